//! What brokers know of a client.

use std::collections::BTreeMap;
use std::sync::Arc;

use sealcast_crypto::identity::Attribute;
use sealcast_wire::{Malformed, Reader, Utc, Writer, limits};

use crate::operation::Credential;

/// A registered client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// The number that its next operation has.
    pub next: u64,
    /// Whether administrators ended it.
    pub revoked: bool,
    /// Whether it wants advertisements without having a subscription.
    pub intent: bool,
    /// Since which block evidence keeps it from publishing (E4).
    pub suspended: Option<u64>,
    /// What stands before this sn is forgiven.
    pub forgiven: u64,
    /// Who vouched for it, by issuer and serial: until when, and for what.
    pub credentials: BTreeMap<CredentialName, Vouched>,
}

/// Issuer and serial.
pub type CredentialName = (String, Vec<u8>);

/// Who is behind a client, however many clients it is: the first of the credentials that vouch for it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Holder(Arc<CredentialName>);

impl Holder {
    /// Whom the credential of this name was given to.
    pub fn new(name: CredentialName) -> Holder {
        Holder(Arc::new(name))
    }

    /// That credential's.
    pub(super) fn name(&self) -> &CredentialName {
        &self.0
    }
}

/// What one credential says, the issuer known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vouched {
    /// The last second of its time.
    pub not_after: Utc,
    /// Keys and values.
    pub attributes: Vec<(String, String)>,
}

impl Record {
    /// Adds a credential, or puts it in place of its former version.
    /// `false`, and no change, if the client would hold too many attributes.
    pub(super) fn add(&mut self, credential: &Credential) -> bool {
        let mut credentials = self.credentials.clone();
        let attributes = credential.attributes.iter().map(|a| (a.key.clone(), a.value.clone())).collect();
        let vouched = Vouched { not_after: credential.not_after, attributes };
        credentials.insert(credential.name(), vouched);
        // A credential without attributes counts as one, so that their number is bounded too.
        let held: usize = credentials.values().map(|v| v.attributes.len().max(1)).sum();
        let fits = held <= limits::CLIENT_ATTRIBUTES_MAX;
        if fits {
            self.credentials = credentials;
        }
        fits
    }

    /// Its attributes at a block's time (E10); `None` if it may do nothing: revoked, or nobody vouches for it
    /// any more.
    pub fn attributes(&self, at: Utc) -> Option<Vec<Attribute>> {
        let mut live = self.credentials.iter().filter(|(_, v)| v.not_after >= at).peekable();
        if self.revoked || live.peek().is_none() {
            return None;
        }
        let attribute = |issuer: &String, (key, value): &(String, String)| Attribute {
            issuer: issuer.clone(),
            key: key.clone(),
            value: value.clone(),
        };
        Some(live.flat_map(|((issuer, _), v)| v.attributes.iter().map(move |a| attribute(issuer, a))).collect())
    }

    /// Who is behind it at a block's time; `None` if it may do nothing.
    pub fn holder(&self, at: Utc) -> Option<Holder> {
        let mut live = self.credentials.iter().filter(|(_, v)| v.not_after >= at && !self.revoked);
        live.next().map(|(name, _)| Holder::new(name.clone()))
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let count = |n: usize| u16::try_from(n).expect("attributes have a limit");
        let mut w = Writer::new();
        w.u64(self.next).u8(u8::from(self.revoked)).u8(u8::from(self.intent));
        match self.suspended {
            None => w.u8(0),
            Some(since) => w.u8(1).u64(since),
        };
        w.u64(self.forgiven).u16(count(self.credentials.len()));
        for ((issuer, serial), vouched) in &self.credentials {
            w.bytes16(issuer.as_bytes()).bytes16(serial).raw(&vouched.not_after.0.to_be_bytes());
            w.u16(count(vouched.attributes.len()));
            for (key, value) in &vouched.attributes {
                w.bytes16(key.as_bytes()).bytes16(value.as_bytes());
            }
        }
        w.finish()
    }

    pub(super) fn decode(r: &mut Reader<'_>) -> Result<Record, Malformed> {
        let text = |r: &mut Reader<'_>| {
            let bytes = r.bytes16(limits::ATTRIBUTE_BYTES_MAX)?;
            String::from_utf8(bytes.to_vec()).map_err(|_| Malformed)
        };
        let mut record = Record { next: r.u64()?, revoked: r.u8()? == 1, intent: r.u8()? == 1, ..Record::default() };
        record.suspended = if r.u8()? == 1 { Some(r.u64()?) } else { None };
        record.forgiven = r.u64()?;
        for _ in 0..r.count16(14, limits::CLIENT_ATTRIBUTES_MAX)? {
            let name = (text(r)?, r.bytes16(limits::ATTRIBUTE_BYTES_MAX)?.to_vec());
            let not_after = Utc(i64::from_be_bytes(r.array()?));
            let count = r.count16(4, limits::CLIENT_ATTRIBUTES_MAX)?;
            let attributes = (0..count).map(|_| Ok((text(r)?, text(r)?))).collect::<Result<_, Malformed>>()?;
            record.credentials.insert(name, Vouched { not_after, attributes });
        }
        Ok(record)
    }
}
