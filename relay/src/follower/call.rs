//! What a follower asks, and what it knew when it asked.

use sealcast_wire::limits;

use super::{Follower, Pending};
use crate::codec::FormatError;
use crate::ids::{AppendKey, BlobHash, DeviceId};
use crate::log::LogEntry;
use crate::request::{
    Append, Blob, FetchMail, PROOF_BYTES, Package, Proof, PutBlobs, PutMail, PutPackages, Request, Signer, TakePackage,
};

/// A request on its way. Hand it back with the response: several may be under way, and responses may overtake each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    request: Vec<u8>,
    pub(super) kind: Kind,
    /// The follower's position when it asked.
    pub(super) position: u64,
    /// The newest position that it knew a receipt for.
    pub(super) newest: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Info,
    Newest,
    Before(u64),
    /// The first position that the entry may have.
    Append(u64),
    Read,
    Blobs(Vec<BlobHash>),
    Put,
    Take,
    Mail,
}

/// Why an append is not proposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProposeError {
    /// Another one is under way.
    #[error("another append of this member is under way")]
    Pending,
    /// A part is over its limit.
    #[error("a part of the append is over the directory's limit")]
    TooLarge,
}

impl Call {
    /// The bytes to send.
    pub fn request(&self) -> &[u8] {
        &self.request
    }

    /// The key that signed it, if it is signed.
    pub fn signer(&self) -> Option<AppendKey> {
        let is_signed = matches!(self.kind, Kind::Append(_) | Kind::Put | Kind::Take | Kind::Mail);
        // The proof is at its end.
        let proof = self.request.last_chunk::<PROOF_BYTES>().filter(|_| is_signed)?;
        proof.first_chunk().copied()
    }
}

impl Follower {
    /// Asks the directory what it is.
    pub fn info(&self) -> Call {
        self.call(Kind::Info, &Request::Info)
    }

    /// Asks how far the log goes, for a newcomer that begins there.
    pub fn ask_newest(&self) -> Call {
        self.call(Kind::Newest, &Request::Read { group: self.group, from: 1, max_bytes: 1 })
    }

    /// Asks for the receipt of a position that lies before the follower's, for a member that goes on from there.
    pub fn ask_before(&self, position: u64) -> Call {
        let request = Request::Read { group: self.group, from: position.saturating_add(1), max_bytes: 1 };
        self.call(Kind::Before(position), &request)
    }

    /// Asks for entries after the follower's position.
    pub fn read(&self) -> Call {
        let max_bytes = limits::RELAY_READ_BYTES_MAX as u32;
        self.call(Kind::Read, &Request::Read { group: self.group, from: self.position + 1, max_bytes })
    }

    /// Proposes an entry after the follower's position, with all that belongs to it. Persist the follower before sending: it
    /// keeps the append until the log says who won (D1).
    ///
    /// # Errors
    /// [`ProposeError`]; then nothing is under way that was not before.
    pub fn propose(
        &mut self,
        entry: LogEntry,
        blobs: Vec<Blob>,
        mail: Vec<(DeviceId, Vec<u8>)>,
        signer: &dyn Signer,
    ) -> Result<Call, ProposeError> {
        let append = Append { group: self.group, expected_head: self.head, at_end: false, entry, blobs, mail };
        self.propose_append(append, signer)
    }

    /// The same wherever the log ends by then, for what lost to others again and again. It may come behind entries that its author
    /// does not know.
    ///
    /// # Errors
    /// As [`Follower::propose`].
    pub fn propose_at_end(&mut self, entry: LogEntry, signer: &dyn Signer) -> Result<Call, ProposeError> {
        let (group, expected_head, blobs, mail) = (self.group, self.head, Vec::new(), Vec::new());
        self.propose_append(Append { group, expected_head, at_end: true, entry, blobs, mail }, signer)
    }

    fn propose_append(&mut self, append: Append, signer: &dyn Signer) -> Result<Call, ProposeError> {
        if self.pending.is_some() {
            return Err(ProposeError::Pending);
        }
        let proof = Proof::new(signer, |key| append.statement(&self.relay, key));
        let link = append.entry.link();
        let head = (!append.at_end).then(|| link.head(&self.head, self.position + 1));
        let request = Request::Append(Box::new(append), proof);
        request.check().map_err(|_| ProposeError::TooLarge)?;
        let request = request.encode();
        if request.len() > limits::RELAY_REQUEST_BYTES_MAX {
            return Err(ProposeError::TooLarge);
        }
        self.pending =
            Some(Pending { request, first: self.position + 1, until: head.map(|_| self.position + 1), head, link });
        Ok(self.retry().expect("an append is under way"))
    }

    /// The append that is under way once more: the directory answers an append that it already accepted with the same receipt.
    pub fn retry(&self) -> Option<Call> {
        let pending = self.pending.as_ref()?;
        Some(self.call_bytes(Kind::Append(pending.first), pending.request.clone()))
    }

    /// Forgets the append that is under way. After a refusal the directory has not accepted it, if it is honest; if it lies, the
    /// entry comes as one of somebody else.
    pub fn withdraw(&mut self) {
        self.pending = None;
    }

    /// Asks for blobs.
    ///
    /// # Errors
    /// More than [`limits::RELAY_BLOBS_MAX`].
    pub fn blobs(&self, hashes: Vec<BlobHash>) -> Result<Call, FormatError> {
        let request = Request::Blobs { group: self.group, hashes: hashes.clone() };
        request.check()?;
        Ok(self.call(Kind::Blobs(hashes), &request))
    }

    /// Has blobs kept.
    ///
    /// # Errors
    /// A blob is over its limit, or there are too many.
    pub fn put_blobs(&self, blobs: Vec<Blob>, signer: &dyn Signer) -> Result<Call, FormatError> {
        let it = PutBlobs { group: self.group, blobs };
        let proof = Proof::new(signer, |key| it.statement(&self.relay, key));
        self.checked(Kind::Put, &Request::PutBlobs(it, proof))
    }

    /// Has key packages of a device kept; `number` is greater with each request of the device.
    ///
    /// # Errors
    /// A package is over its limit, or there are too many.
    pub fn put_packages(
        &self,
        device: DeviceId,
        number: u64,
        single_use: Vec<Package>,
        last_resort: Option<Package>,
        signer: &dyn Signer,
    ) -> Result<Call, FormatError> {
        let it = PutPackages { group: self.group, device, number, single_use, last_resort };
        let proof = Proof::new(signer, |key| it.statement(&self.relay, key));
        self.checked(Kind::Put, &Request::PutPackages(it, proof))
    }

    /// Takes a key package of a device.
    pub fn take_package(&self, device: DeviceId, signer: &dyn Signer) -> Call {
        let it = TakePackage { group: self.group, device };
        let proof = Proof::new(signer, |key| it.statement(&self.relay, key));
        self.call(Kind::Take, &Request::TakePackage(it, proof))
    }

    /// Has mail of some devices kept.
    ///
    /// # Errors
    /// [`FormatError::TooLarge`].
    pub fn put_mail(&self, mail: Vec<(DeviceId, Vec<u8>)>, signer: &dyn Signer) -> Result<Call, FormatError> {
        let it = PutMail { group: self.group, mail };
        let proof = Proof::new(signer, |key| it.statement(&self.relay, key));
        self.checked(Kind::Put, &Request::PutMail(it, proof))
    }

    /// Asks for a device's mail and has it deleted up to the number `acknowledged`.
    pub fn mail(&self, device: DeviceId, acknowledged: u64, signer: &dyn Signer) -> Call {
        let it = FetchMail { group: self.group, device, acknowledged };
        let proof = Proof::new(signer, |key| it.statement(&self.relay, key));
        self.call(Kind::Mail, &Request::Mail(it, proof))
    }

    fn checked(&self, kind: Kind, request: &Request) -> Result<Call, FormatError> {
        request.check()?;
        Ok(self.call(kind, request))
    }

    fn call(&self, kind: Kind, request: &Request) -> Call {
        self.call_bytes(kind, request.encode())
    }

    fn call_bytes(&self, kind: Kind, request: Vec<u8>) -> Call {
        let newest = self.newest.map_or(self.position, |it| it.position.max(self.position));
        Call { request, kind, position: self.position, newest }
    }
}
