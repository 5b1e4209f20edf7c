//! What acts of administrators are about, and what has become of it: for administrators, before they sign.

use sealcast_wire::{Malformed, Reader, Writer, limits};

use super::read::ReadError;
use super::store::Store;
use super::{State, rows, table};
use crate::operation::Client;

/// A client, or what vouches for clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A client, by its key.
    Client(Client),
    /// A certificate or claim.
    Credential {
        /// The issuer's name in genesis.
        issuer: String,
        /// Its number there.
        serial: Vec<u8>,
    },
}

/// What has become of a [`Subject`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SubjectStatus {
    /// Whether administrators have ended it.
    pub revoked: bool,
    /// Since which block evidence keeps the client from publishing (E4); `None` for certificates and claims.
    pub suspended: Option<u64>,
    /// Clients that have come to the brokers with it. Nobody need have come with a certificate for it to be valid.
    pub clients: u32,
}

impl<S: Store> State<S> {
    /// What has become of a client, a certificate or a claim, at a broker that has executed block `min_height`. Administrators
    /// alone are told, by the keys that genesis names.
    ///
    /// # Errors
    /// `Behind`, `Denied` or `Store`.
    pub fn read_subject(&self, asker: &Client, subject: &Subject, min_height: u64) -> Result<SubjectStatus, ReadError> {
        self.reached(min_height)?;
        if !self.administers(asker) {
            return Err(ReadError::Denied);
        }
        match subject {
            Subject::Client(client) => {
                let Some(record) = self.client(client)? else { return Ok(SubjectStatus::default()) };
                let has_come = record.next > 0 || !record.credentials.is_empty();
                let clients = u32::from(has_come);
                Ok(SubjectStatus { revoked: record.revoked, suspended: record.suspended, clients })
            }
            Subject::Credential { issuer, serial } => {
                let revoked = self.store.get(&table::revoked(issuer, serial))?.is_some();
                let mut clients = 0;
                for (_, row) in rows(&self.store, &table::holder(issuer, serial, None)) {
                    row?;
                    clients += 1;
                }
                Ok(SubjectStatus { revoked, suspended: None, clients })
            }
        }
    }
}

impl Subject {
    /// `01 ‖ client | 02 ‖ bytes16 issuer ‖ bytes16 serial`
    pub(crate) fn encode(&self, w: &mut Writer) {
        match self {
            Subject::Client(client) => w.u8(1).raw(&client.0),
            Subject::Credential { issuer, serial } => w.u8(2).bytes16(issuer.as_bytes()).bytes16(serial),
        };
    }

    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Subject, Malformed> {
        match r.u8()? {
            1 => Ok(Subject::Client(Client(r.array()?))),
            2 => {
                let issuer = r.bytes16(limits::ATTRIBUTE_BYTES_MAX)?.to_vec();
                let issuer = String::from_utf8(issuer).map_err(|_| Malformed)?;
                Ok(Subject::Credential { issuer, serial: r.bytes16(limits::ATTRIBUTE_BYTES_MAX)?.to_vec() })
            }
            _ => Err(Malformed),
        }
    }
}

impl SubjectStatus {
    /// `u8 revoked ‖ (00 | 01 ‖ u64 suspended since) ‖ u32 clients`
    pub(crate) fn encode(&self, w: &mut Writer) {
        w.u8(u8::from(self.revoked)).u8(u8::from(self.suspended.is_some()));
        self.suspended.iter().for_each(|since| {
            w.u64(*since);
        });
        w.u32(self.clients);
    }

    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<SubjectStatus, Malformed> {
        let flag = |r: &mut Reader<'_>| match r.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed),
        };
        let revoked = flag(r)?;
        let suspended = if flag(r)? { Some(r.u64()?) } else { None };
        Ok(SubjectStatus { revoked, suspended, clients: r.u32()? })
    }
}
