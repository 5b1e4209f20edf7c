//! What a member signs about a commit whose path it cannot open (D3), and complaints by which a group excludes somebody.
//!
//! Nobody can prove that a ciphertext does not open without the key for it. So one complaint decides nothing: the group
//! excludes a certificate once members of different names complained, and their statements lie in the group context, where
//! all judge them alike. A name has one complaint about a certificate, whatever devices it has.

use std::collections::BTreeMap;
use std::sync::Arc;

use sealcast_crypto::hash::{Transcript, sha256};
use sealcast_crypto::identity::certificate::Certificate;
use sealcast_crypto::identity::{Identity, TrustAnchor, Verified};
use sealcast_crypto::signature::Signature;
use sealcast_wire::codec::{Malformed, Reader, Writer};
use sealcast_wire::{CertHash, limits};

/// A member could not open the path of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Complaint {
    pub(super) about: About,
    /// The accuser's certificate, DER.
    pub(super) certificate: Vec<u8>,
    /// By its key.
    pub(super) signature: Signature,
}

/// Which commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct About {
    pub(super) group_id: [u8; 32],
    /// The epoch that it ends.
    pub(super) epoch: u64,
    /// SHA-256 of its MLSMessage.
    pub(super) commit: [u8; 32],
    /// Whose it is.
    pub(super) accused: CertHash,
}

impl Complaint {
    /// Signs a complaint about a commit in the group of this name.
    pub(super) fn new(group: &str, identity: &Identity, about: About) -> Complaint {
        let certificate = identity.certificate();
        let signature = identity.key().sign(&about.statement(group, &certificate.hash));
        Complaint { about, certificate: certificate.der.to_vec(), signature }
    }

    /// Whose it claims to be.
    pub(super) fn accuser(&self) -> CertHash {
        CertHash(sha256(&self.certificate))
    }

    /// Whether the holder of this certificate signed it, about another one.
    pub(super) fn is_by(&self, group: &str, accuser: &Verified) -> bool {
        let statement = self.about.statement(group, &accuser.hash);
        accuser.hash == self.accuser()
            && accuser.hash != self.about.accused
            && accuser.key.verify(&statement, &self.signature).is_ok()
    }

    /// The accuser, if its certificate and signature are good.
    pub(super) fn verify(&self, group: &str, anchor: &TrustAnchor) -> Option<Arc<Verified>> {
        let accuser = anchor.verify_issued(&Certificate::parse(&self.certificate).ok()?).ok()?;
        self.is_by(group, &accuser).then_some(accuser)
    }

    pub(super) fn written(&self) -> Vec<u8> {
        let mut w = Writer::new();
        self.put(&mut w);
        w.finish()
    }

    pub(super) fn put(&self, w: &mut Writer) {
        let About { group_id, epoch, commit, accused } = &self.about;
        w.raw(group_id).u64(*epoch).raw(commit).raw(&accused.0).bytes16(&self.certificate).raw(&self.signature);
    }

    pub(super) fn read(r: &mut Reader<'_>) -> Result<Complaint, Malformed> {
        let (group_id, epoch, commit) = (r.array()?, r.u64()?, r.array()?);
        let about = About { group_id, epoch, commit, accused: CertHash(r.array()?) };
        let certificate = r.bytes16(limits::CERTIFICATE_BYTES_MAX)?.to_vec();
        Ok(Complaint { about, certificate, signature: r.array()? })
    }
}

impl About {
    fn statement(&self, group: &str, accuser: &CertHash) -> [u8; 32] {
        let t = Transcript::new("sealcast/v1/mls/complaint").add(group.as_bytes()).add(&self.group_id);
        let t = t.add(&self.epoch.to_be_bytes()).add(&self.commit);
        t.add(&accuser.0).add(&self.accused.0).finish()
    }
}

/// Complaints whose signatures are good, by the accused and the accuser's name.
#[derive(Clone, Debug, Default)]
pub(super) struct Complaints(BTreeMap<CertHash, BTreeMap<Arc<str>, Proved>>);

/// A complaint and its accuser.
#[derive(Clone, Debug)]
pub(super) struct Proved {
    pub(super) complaint: Complaint,
    pub(super) accuser: Arc<Verified>,
}

impl Complaints {
    /// Takes in a complaint, unless its accuser's name complained of the same certificate before, or too much is here.
    pub(super) fn insert(&mut self, it: Proved) {
        let accused = it.complaint.about.accused;
        if !self.0.contains_key(&accused) && self.0.len() >= limits::MLS_ACCUSED_MAX {
            // Many about one say more than one about many.
            let least = self.0.iter().min_by_key(|(_, of)| of.len()).map(|(accused, _)| *accused);
            least.map(|accused| self.0.remove(&accused));
        }
        let of = self.0.entry(accused).or_default();
        if of.len() < limits::MLS_ACCUSERS_MAX {
            of.entry(it.accuser.name.clone()).or_insert(it);
        }
    }

    /// Whether they exclude a certificate.
    pub(super) fn exclude(&self, accused: &CertHash) -> bool {
        self.0.get(accused).is_some_and(|of| of.len() >= limits::MLS_COMPLAINTS)
    }

    /// As many complaints as exclude each of those who are accused, by accusers that `counts` accepts.
    pub(super) fn excluding(&self, counts: impl Fn(&Verified) -> bool) -> Complaints {
        let enough = |of: &BTreeMap<Arc<str>, Proved>| {
            let counting = of.iter().filter(|(_, it)| counts(&it.accuser)).take(limits::MLS_COMPLAINTS);
            let counting: BTreeMap<_, _> = counting.map(|(name, it)| (name.clone(), it.clone())).collect();
            (counting.len() == limits::MLS_COMPLAINTS).then_some(counting)
        };
        Complaints(self.0.iter().filter_map(|(accused, of)| Some((*accused, enough(of)?))).collect())
    }

    /// Takes in those about certificates that these do not exclude, as far as a group context holds them.
    pub(super) fn extend(&mut self, more: Complaints) {
        for (accused, of) in more.0 {
            let fits = self.0.len() < limits::MLS_ACCUSED_MAX && !self.0.contains_key(&accused);
            if fits {
                self.0.insert(accused, of);
                if self.bytes().len() > limits::MLS_COMPLAINTS_BYTES_MAX {
                    self.0.remove(&accused);
                }
            }
        }
    }

    /// Whether all of those before are here, and all others are by accusers who may complain.
    pub(super) fn follow(&self, before: &Complaints, may: impl Fn(&Verified) -> bool) -> bool {
        let same = |of: &BTreeMap<_, Proved>, now: &BTreeMap<_, Proved>| {
            of.values().map(|it| &it.complaint).eq(now.values().map(|it| &it.complaint))
        };
        let kept = before.0.iter().all(|(accused, of)| self.0.get(accused).is_some_and(|now| same(of, now)));
        let new = self.0.iter().filter(|(accused, _)| !before.0.contains_key(accused));
        kept && new.flat_map(|(_, of)| of.values()).all(|it| may(&it.accuser))
    }

    /// Who is accused.
    pub(super) fn accused(&self) -> impl Iterator<Item = &CertHash> {
        self.0.keys()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// By accused and name.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Proved> {
        self.0.values().flat_map(BTreeMap::values)
    }

    /// As a group context has them: nothing if there are none, as before groups had complaints.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut w = Writer::new();
        if !self.is_empty() {
            w.u16(self.iter().count() as u16);
            self.iter().for_each(|it| it.complaint.put(&mut w));
        }
        w.finish()
    }

    /// What [`Complaints::bytes`] made of complaints that exclude all who are accused in them.
    pub(super) fn read(group: &str, anchor: &TrustAnchor, bytes: &[u8]) -> Result<Complaints, Malformed> {
        let (mut r, mut complaints) = (Reader::new(bytes), Complaints::default());
        if r.remaining() == 0 {
            return Ok(complaints);
        }
        if r.remaining() > limits::MLS_COMPLAINTS_BYTES_MAX {
            return Err(Malformed);
        }
        for _ in 0..r.count16(1, limits::MLS_ACCUSED_MAX * limits::MLS_COMPLAINTS)? {
            let complaint = Complaint::read(&mut r)?;
            let accuser = complaint.verify(group, anchor).ok_or(Malformed)?;
            complaints.insert(Proved { complaint, accuser });
        }
        r.end()?;
        let whole = complaints.0.values().all(|of| of.len() == limits::MLS_COMPLAINTS);
        if whole { Ok(complaints) } else { Err(Malformed) }
    }
}
