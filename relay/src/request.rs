//! What clients ask of a directory.
//!
//! ```text
//! request = u8 1 ‖ u8 kind ‖ …
//! 1 INFO
//! 2 APPEND       group ‖ expected head ‖ entry ‖ u16 n ‖ n·blob ‖ u16 n ‖ n·(device ‖ bytes32) ‖ proof
//! 3 READ         group ‖ u64 from ‖ u32 bytes
//! 4 BLOBS        group ‖ u16 n ‖ n·SHA-256
//! 5 PUT_BLOBS    group ‖ u16 n ‖ n·blob ‖ proof
//! 6 PUT_PACKAGES group ‖ device ‖ u64 number ‖ u16 n ‖ n·package ‖ (0 | 1 ‖ package) ‖ proof
//! 7 TAKE_PACKAGE group ‖ device ‖ proof
//! 8 MAIL         group ‖ device ‖ u64 acknowledged ‖ proof
//! 9 PUT_MAIL     group ‖ u16 n ‖ n·(device ‖ bytes32) ‖ proof
//! 10 APPEND_AT_END   as APPEND
//! entry   = (0 | 1 ‖ next key) ‖ bytes32        blob = 0 ‖ SHA-256 | 1 ‖ bytes32        package = i64 expires ‖ bytes32
//! proof   = signer's Ed25519 key, 32 ‖ signature, 64        bytes32 = u32 length ‖ bytes
//! ```
//! All that changes something is signed. What is signed names the directory, so no request is of use at another one (G3):
//!
//! ```text
//! T("sealcast/v1/relay/append";   directory's key; signer; group; expected head; SHA-256 of the entry; next key, or nothing;
//!                                 SHA-256 of each blob …; device ‖ SHA-256 of each mail …)
//! T("sealcast/v1/relay/append at end"; …)                         the same of APPEND_AT_END
//! T("sealcast/v1/relay/blobs";    directory's key; signer; group; SHA-256 of each blob …)
//! T("sealcast/v1/relay/packages"; directory's key; signer; group; device; u64 number; i64 expires ‖ SHA-256 of each package …;
//!                                 the same of the last resort, or nothing)
//! T("sealcast/v1/relay/take";     directory's key; signer; group; device)
//! T("sealcast/v1/relay/mail";     directory's key; signer; group; device; u64 acknowledged)
//! T("sealcast/v1/relay/leave";    directory's key; signer; group; device ‖ SHA-256 of each mail …)
//! ```

use sealcast_crypto::hash::{Transcript, sha256};
use sealcast_crypto::signature::{OriginKey, Signature};
use sealcast_wire::{Reader, Utc, Writer, limits};

use crate::VERSION;
use crate::codec::{FormatError, bytes32, count, option, put_bytes32, put_count, put_option};
use crate::ids::{AppendKey, BlobHash, DeviceId, GroupId, Head};
use crate::key::RelayKey;
use crate::log::LogEntry;

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Who are you?
    Info,
    /// Put an entry and all that belongs to it at the end of the log.
    Append(Box<Append>, Proof),
    /// Give entries from a position on.
    Read {
        /// Whose log.
        group: GroupId,
        /// The first position, at least 1.
        from: u64,
        /// Bytes of entries that the answer may have; the first entry comes in any case.
        max_bytes: u32,
    },
    /// Give blobs.
    Blobs {
        /// Whose.
        group: GroupId,
        /// Which.
        hashes: Vec<BlobHash>,
    },
    /// Keep blobs.
    PutBlobs(PutBlobs, Proof),
    /// Keep key packages of a device.
    PutPackages(PutPackages, Proof),
    /// Hand out a key package of a device.
    TakePackage(TakePackage, Proof),
    /// Give a device's mail, and delete what it acknowledges.
    Mail(FetchMail, Proof),
    /// Keep mail that says where in the log its entry came to be, and so could not come with it.
    PutMail(PutMail, Proof),
}

/// An entry and what belongs to it: kept or refused whole (D1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Append {
    /// Whose log.
    pub group: GroupId,
    /// The head after which the entry stands. The first append to a group expects [`crate::log::first_head`] and founds it.
    pub expected_head: Head,
    /// The entry may also stand behind others that followed the expected head, up to [`limits::RELAY_BEHIND_MAX`] of them. Who
    /// always loses the head to others gets its entry in so; whether it still counts, members judge.
    pub at_end: bool,
    /// The entry.
    pub entry: LogEntry,
    /// What members fetch by its hash: GroupInfo, nodes of the tree.
    pub blobs: Vec<Blob>,
    /// What single devices fetch: Welcomes.
    pub mail: Vec<(DeviceId, Vec<u8>)>,
}

/// Content that is named by its hash: brought, or known to be stored, which makes it live longer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blob {
    hash: BlobHash,
    bytes: Option<Vec<u8>>,
}

/// Blobs to be kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PutBlobs {
    /// Whose.
    pub group: GroupId,
    /// Which.
    pub blobs: Vec<Blob>,
}

/// Key packages to be kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PutPackages {
    /// Of whose group.
    pub group: GroupId,
    /// Of which device.
    pub device: DeviceId,
    /// Greater with each request of the device: an older request that comes again changes nothing.
    pub number: u64,
    /// Each is handed out once. They are added to those that are stored.
    pub single_use: Vec<Package>,
    /// Is handed out when there is no other one. It replaces the stored one.
    pub last_resort: Option<Package>,
}

/// A sealed key package.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Package {
    /// When it is of no use any more.
    pub expires: Utc,
    /// Sealed bytes.
    pub bytes: Vec<u8>,
}

/// Wants a key package.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakePackage {
    /// Of whose group.
    pub group: GroupId,
    /// Of which device.
    pub device: DeviceId,
}

/// Wants a device's mail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchMail {
    /// Of whose group.
    pub group: GroupId,
    /// For which device.
    pub device: DeviceId,
    /// Mail up to this number has come and is deleted; 0 deletes nothing.
    pub acknowledged: u64,
}

/// Mail to be kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PutMail {
    /// Of whose group.
    pub group: GroupId,
    /// What single devices fetch.
    pub mail: Vec<(DeviceId, Vec<u8>)>,
}

/// Who signed a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proof {
    /// A key that the log names, or the group's joiner key.
    pub signer: AppendKey,
    /// Over the request's statement.
    pub signature: Signature,
}

/// A signer and a signature.
pub(crate) const PROOF_BYTES: usize = 32 + 64;

/// Signs requests.
pub trait Signer {
    /// The Ed25519 public key.
    fn public(&self) -> AppendKey;
    /// Signs a statement.
    fn sign(&self, statement: &[u8; 32]) -> Signature;
}

impl Signer for OriginKey {
    fn public(&self) -> AppendKey {
        self.public_bytes()
    }

    fn sign(&self, statement: &[u8; 32]) -> Signature {
        OriginKey::sign(self, statement)
    }
}

impl Proof {
    /// The proof of a statement, which says for whom it signs.
    pub fn new(signer: &dyn Signer, statement: impl FnOnce(&AppendKey) -> [u8; 32]) -> Proof {
        let key = signer.public();
        Proof { signer: key, signature: signer.sign(&statement(&key)) }
    }

    fn encode(&self, w: &mut Writer) {
        w.raw(&self.signer).raw(&self.signature);
    }

    fn decode(r: &mut Reader<'_>) -> Result<Proof, FormatError> {
        Ok(Proof { signer: r.array()?, signature: r.array()? })
    }
}

impl Append {
    /// What its signer signs.
    pub fn statement(&self, relay: &RelayKey, signer: &AppendKey) -> [u8; 32] {
        let link = self.entry.link();
        let label = if self.at_end { "sealcast/v1/relay/append at end" } else { "sealcast/v1/relay/append" };
        begin(label, relay, signer, &self.group)
            .add(&self.expected_head.0)
            .add(&link.hash)
            .add(link.next_key.as_ref().map_or(&[], |key| key))
            .add(&hashes(&self.blobs))
            .add(&mail_hashes(&self.mail))
            .finish()
    }
}

impl Blob {
    /// Content to be kept.
    pub fn new(bytes: Vec<u8>) -> Blob {
        Blob { hash: sha256(&bytes), bytes: Some(bytes) }
    }

    /// Content that should be stored already, and is to live on.
    pub fn known(hash: BlobHash) -> Blob {
        Blob { hash, bytes: None }
    }

    /// SHA-256 of the content.
    pub fn hash(&self) -> &BlobHash {
        &self.hash
    }

    /// The content, if it is brought.
    pub fn bytes(&self) -> Option<&[u8]> {
        self.bytes.as_deref()
    }

    fn encode(&self, w: &mut Writer) {
        match &self.bytes {
            None => _ = w.u8(0).raw(&self.hash),
            Some(bytes) => put_bytes32(w.u8(1), bytes),
        }
    }

    fn decode(r: &mut Reader<'_>) -> Result<Blob, FormatError> {
        match r.u8()? {
            0 => Ok(Blob::known(r.array()?)),
            1 => Ok(Blob::new(bytes32(r, limits::RELAY_BLOB_BYTES_MAX)?.to_vec())),
            _ => Err(FormatError::Malformed),
        }
    }
}

impl PutBlobs {
    /// What its signer signs.
    pub fn statement(&self, relay: &RelayKey, signer: &AppendKey) -> [u8; 32] {
        begin("sealcast/v1/relay/blobs", relay, signer, &self.group).add(&hashes(&self.blobs)).finish()
    }
}

impl PutPackages {
    /// What its signer signs.
    pub fn statement(&self, relay: &RelayKey, signer: &AppendKey) -> [u8; 32] {
        let parts = |packages: &[Package]| {
            let mut w = Writer::new();
            packages.iter().for_each(|it| _ = w.u64(it.expires.0.cast_unsigned()).raw(&sha256(&it.bytes)));
            w.finish()
        };
        begin("sealcast/v1/relay/packages", relay, signer, &self.group)
            .add(&self.device.0)
            .add(&self.number.to_be_bytes())
            .add(&parts(&self.single_use))
            .add(&parts(self.last_resort.as_slice()))
            .finish()
    }
}

impl Package {
    pub(crate) fn encode(&self, w: &mut Writer) {
        put_bytes32(w.u64(self.expires.0.cast_unsigned()), &self.bytes);
    }

    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Package, FormatError> {
        let expires = Utc(r.u64()?.cast_signed());
        Ok(Package { expires, bytes: bytes32(r, limits::RELAY_PACKAGE_BYTES_MAX)?.to_vec() })
    }
}

impl TakePackage {
    /// What its signer signs.
    pub fn statement(&self, relay: &RelayKey, signer: &AppendKey) -> [u8; 32] {
        begin("sealcast/v1/relay/take", relay, signer, &self.group).add(&self.device.0).finish()
    }
}

impl FetchMail {
    /// What its signer signs.
    pub fn statement(&self, relay: &RelayKey, signer: &AppendKey) -> [u8; 32] {
        let statement = begin("sealcast/v1/relay/mail", relay, signer, &self.group).add(&self.device.0);
        statement.add(&self.acknowledged.to_be_bytes()).finish()
    }
}

impl PutMail {
    /// What its signer signs.
    pub fn statement(&self, relay: &RelayKey, signer: &AppendKey) -> [u8; 32] {
        begin("sealcast/v1/relay/leave", relay, signer, &self.group).add(&mail_hashes(&self.mail)).finish()
    }
}

impl Request {
    /// Its bytes.
    ///
    /// # Panics
    /// If a part is over its limit: [`Request::check`] says so before.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::new();
        w.u8(VERSION);
        match self {
            Request::Info => _ = w.u8(INFO),
            Request::Append(it, proof) => {
                w.u8(if it.at_end { APPEND_AT_END } else { APPEND }).raw(&it.group.0).raw(&it.expected_head.0);
                it.entry.encode(&mut w);
                put_blobs(&mut w, &it.blobs);
                put_mail(&mut w, &it.mail);
                proof.encode(&mut w);
            }
            Request::Read { group, from, max_bytes } => _ = w.u8(READ).raw(&group.0).u64(*from).u32(*max_bytes),
            Request::Blobs { group, hashes } => {
                put_count(w.u8(BLOBS).raw(&group.0), hashes.len());
                hashes.iter().for_each(|hash| _ = w.raw(hash));
            }
            Request::PutBlobs(it, proof) => {
                put_blobs(w.u8(PUT_BLOBS).raw(&it.group.0), &it.blobs);
                proof.encode(&mut w);
            }
            Request::PutPackages(it, proof) => {
                w.u8(PUT_PACKAGES).raw(&it.group.0).raw(&it.device.0).u64(it.number);
                put_count(&mut w, it.single_use.len());
                it.single_use.iter().for_each(|package| package.encode(&mut w));
                put_option(&mut w, it.last_resort.as_ref(), |w, package| package.encode(w));
                proof.encode(&mut w);
            }
            Request::TakePackage(it, proof) => proof.encode(w.u8(TAKE_PACKAGE).raw(&it.group.0).raw(&it.device.0)),
            Request::Mail(it, proof) => {
                proof.encode(w.u8(MAIL).raw(&it.group.0).raw(&it.device.0).u64(it.acknowledged));
            }
            Request::PutMail(it, proof) => {
                put_mail(w.u8(PUT_MAIL).raw(&it.group.0), &it.mail);
                proof.encode(&mut w);
            }
        }
        w.finish()
    }

    /// Reads what [`Request::encode`] wrote.
    ///
    /// # Errors
    /// [`FormatError`]. Signatures are not checked.
    pub fn decode(bytes: &[u8]) -> Result<Request, FormatError> {
        if bytes.len() > limits::RELAY_REQUEST_BYTES_MAX {
            return Err(FormatError::TooLarge);
        }
        let mut r = Reader::new(bytes);
        if r.u8()? != VERSION {
            return Err(FormatError::Version);
        }
        let request = match r.u8()? {
            INFO => Request::Info,
            kind @ (APPEND | APPEND_AT_END) => {
                let at_end = kind == APPEND_AT_END;
                let (group, expected_head) = (GroupId(r.array()?), Head(r.array()?));
                let (entry, blobs) = (LogEntry::decode(&mut r)?, blobs(&mut r)?);
                let append = Append { group, expected_head, at_end, entry, blobs, mail: mail(&mut r)? };
                Request::Append(Box::new(append), Proof::decode(&mut r)?)
            }
            READ => {
                let (group, from, max_bytes) = (GroupId(r.array()?), r.u64()?, r.u32()?);
                if from == 0 {
                    return Err(FormatError::Malformed);
                }
                Request::Read { group, from, max_bytes }
            }
            BLOBS => {
                let group = GroupId(r.array()?);
                let n = count(&mut r, 32, limits::RELAY_BLOBS_MAX)?;
                let hashes = (0..n).map(|_| r.array()).collect::<Result<_, _>>()?;
                Request::Blobs { group, hashes }
            }
            PUT_BLOBS => {
                let it = PutBlobs { group: GroupId(r.array()?), blobs: blobs(&mut r)? };
                Request::PutBlobs(it, Proof::decode(&mut r)?)
            }
            PUT_PACKAGES => {
                let (group, device, number) = (GroupId(r.array()?), DeviceId(r.array()?), r.u64()?);
                let n = count(&mut r, 8 + 4, limits::RELAY_PACKAGES_MAX)?;
                let single_use = (0..n).map(|_| Package::decode(&mut r)).collect::<Result<_, _>>()?;
                let last_resort = option(&mut r, Package::decode)?;
                let it = PutPackages { group, device, number, single_use, last_resort };
                Request::PutPackages(it, Proof::decode(&mut r)?)
            }
            TAKE_PACKAGE => {
                let it = TakePackage { group: GroupId(r.array()?), device: DeviceId(r.array()?) };
                Request::TakePackage(it, Proof::decode(&mut r)?)
            }
            MAIL => {
                let (group, device) = (GroupId(r.array()?), DeviceId(r.array()?));
                Request::Mail(FetchMail { group, device, acknowledged: r.u64()? }, Proof::decode(&mut r)?)
            }
            PUT_MAIL => {
                let it = PutMail { group: GroupId(r.array()?), mail: mail(&mut r)? };
                Request::PutMail(it, Proof::decode(&mut r)?)
            }
            _ => return Err(FormatError::Malformed),
        };
        r.end()?;
        Ok(request)
    }

    /// Whether all parts are within their limits, before a caller encodes it.
    ///
    /// # Errors
    /// [`FormatError::TooLarge`].
    pub fn check(&self) -> Result<(), FormatError> {
        let blobs = |it: &[Blob]| {
            let fits = |blob: &Blob| blob.bytes().is_none_or(|bytes| bytes.len() <= limits::RELAY_BLOB_BYTES_MAX);
            it.len() <= limits::RELAY_BLOBS_MAX && it.iter().all(fits)
        };
        let mail = |it: &[(DeviceId, Vec<u8>)]| {
            let fits = |(_, bytes): &(DeviceId, Vec<u8>)| bytes.len() <= limits::RELAY_MAIL_BYTES_MAX;
            it.len() <= limits::RELAY_MAIL_MAX && it.iter().all(fits)
        };
        let fits = match self {
            Request::Append(it, _) => {
                it.entry.bytes.len() <= limits::RELAY_ENTRY_BYTES_MAX && blobs(&it.blobs) && mail(&it.mail)
            }
            Request::Blobs { hashes, .. } => hashes.len() <= limits::RELAY_BLOBS_MAX,
            Request::PutBlobs(it, _) => blobs(&it.blobs),
            Request::PutMail(it, _) => mail(&it.mail),
            Request::PutPackages(it, _) => {
                let package = |package: &Package| package.bytes.len() <= limits::RELAY_PACKAGE_BYTES_MAX;
                it.single_use.len() <= limits::RELAY_PACKAGES_MAX
                    && it.single_use.iter().chain(&it.last_resort).all(package)
            }
            Request::Info | Request::Read { .. } | Request::TakePackage(..) | Request::Mail(..) => true,
        };
        if fits { Ok(()) } else { Err(FormatError::TooLarge) }
    }
}

fn begin(label: &str, relay: &RelayKey, signer: &AppendKey, group: &GroupId) -> Transcript {
    Transcript::new(label).add(relay.as_bytes()).add(signer).add(&group.0)
}

fn hashes(blobs: &[Blob]) -> Vec<u8> {
    blobs.iter().flat_map(|blob| blob.hash).collect()
}

fn mail_hashes(mail: &[(DeviceId, Vec<u8>)]) -> Vec<u8> {
    mail.iter().flat_map(|(device, bytes)| [device.0, sha256(bytes)].concat()).collect()
}

fn put_mail(w: &mut Writer, mail: &[(DeviceId, Vec<u8>)]) {
    put_count(w, mail.len());
    mail.iter().for_each(|(device, bytes)| put_bytes32(w.raw(&device.0), bytes));
}

fn mail(r: &mut Reader<'_>) -> Result<Vec<(DeviceId, Vec<u8>)>, FormatError> {
    let n = count(r, 32 + 4, limits::RELAY_MAIL_MAX)?;
    let mail = |r: &mut Reader<'_>| {
        let device = DeviceId(r.array()?);
        Ok((device, bytes32(r, limits::RELAY_MAIL_BYTES_MAX)?.to_vec()))
    };
    (0..n).map(|_| mail(r)).collect()
}

fn put_blobs(w: &mut Writer, blobs: &[Blob]) {
    put_count(w, blobs.len());
    blobs.iter().for_each(|blob| blob.encode(w));
}

fn blobs(r: &mut Reader<'_>) -> Result<Vec<Blob>, FormatError> {
    let n = count(r, 1 + 4, limits::RELAY_BLOBS_MAX)?;
    (0..n).map(|_| Blob::decode(r)).collect()
}

const INFO: u8 = 1;
const APPEND: u8 = 2;
const READ: u8 = 3;
const BLOBS: u8 = 4;
const PUT_BLOBS: u8 = 5;
const PUT_PACKAGES: u8 = 6;
const TAKE_PACKAGE: u8 = 7;
const MAIL: u8 = 8;
const PUT_MAIL: u8 = 9;
const APPEND_AT_END: u8 = 10;
