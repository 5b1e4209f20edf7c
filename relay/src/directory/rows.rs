//! The rows of a directory: keys, and the forms of their values.
//!
//! ```text
//! key = u8 1, the format ‖ kind ‖ …
//! g group            the group's record                       i u32 day ‖ group        groups by the day of their last change
//! h group ‖ head     u64 position                             z group                  a group whose rows are being removed
//! m group ‖ u64 n    head before ‖ head ‖ statement ‖ link ‖ u32 bytes     e group ‖ u64 n      the entry's bytes
//! b group ‖ hash     a blob                                   t group ‖ hash           u64 stamp ‖ u32 bytes
//! o group ‖ u64 stamp   hash: blobs by their last use
//! w group ‖ device ‖ u64 n   i64 stored ‖ mail                n group ‖ u64 n          device ‖ i64 stored ‖ u32 bytes
//! d group ‖ device   a device's record                        l group ‖ device         its last resort, as a package
//! p group ‖ device ‖ u64 n   a package                        x u32 day ‖ group ‖ device   what may expire on a day
//! k group            keys that may append                     c                        u64 number of groups
//! ```
//! Small rows say what long ones weigh, so that nothing long is read to be removed.

use sealcast_wire::{Malformed, Reader, Utc, Writer, limits};

use super::storage::{Overlay, Storage, StorageError};
use crate::codec::FormatError;
use crate::ids::{AppendKey, BlobHash, DeviceId, GroupId, Head};
use crate::log::{Link, first_head};

/// What a directory knows of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GroupRecord {
    /// Of the newest entry.
    pub(super) position: u64,
    pub(super) head: Head,
    /// Of the oldest entry that is kept.
    pub(super) first: u64,
    /// The head before that.
    pub(super) before: Head,
    pub(super) log_bytes: u64,
    pub(super) blob_bytes: u64,
    pub(super) mail_bytes: u64,
    pub(super) package_bytes: u64,
    pub(super) devices: u32,
    /// Of the last use of a blob.
    pub(super) stamp: u64,
    /// No blob has an earlier one, so that nobody looks for the oldest blob among rows that are gone.
    pub(super) first_stamp: u64,
    /// Of the newest mail.
    pub(super) mail: u64,
    /// No mail has a lower number.
    pub(super) first_mail: u64,
    /// Of the last change.
    pub(super) day: u32,
    /// Keys that appends named, as versions before wrote them: now they have a row of their own.
    pub(super) keys: Vec<AppendKey>,
}

/// What a directory knows of an entry beside its bytes.
pub(super) struct EntryRecord {
    pub(super) before: Head,
    pub(super) head: Head,
    /// What the append's signer signed, by which a repeated one is known.
    pub(super) statement: [u8; 32],
    pub(super) link: Link,
    pub(super) bytes: u32,
}

pub(super) struct BlobRecord {
    pub(super) stamp: u64,
    pub(super) bytes: u32,
}

pub(super) struct MailRecord {
    pub(super) device: DeviceId,
    pub(super) stored: Utc,
    pub(super) bytes: u32,
}

#[derive(Clone, Copy, Default)]
pub(super) struct DeviceRecord {
    /// Of its last request.
    pub(super) number: u64,
    /// Of its newest package.
    pub(super) newest: u64,
    pub(super) single_use: u16,
    /// Of all its packages.
    pub(super) bytes: u64,
}

/// A row's value.
pub(super) trait Value: Sized {
    fn write(&self, w: &mut Writer);
    fn read(r: &mut Reader<'_>) -> Result<Self, FormatError>;

    fn of(bytes: &[u8]) -> Result<Self, StorageError> {
        let mut r = Reader::new(bytes);
        let value = Self::read(&mut r).ok().filter(|_| r.end().is_ok());
        value.ok_or_else(|| StorageError("a row has a form that this version does not know".to_owned()))
    }
}

impl Overlay<'_> {
    pub(super) fn value<T: Value>(&self, key: &[u8]) -> Result<Option<T>, StorageError> {
        self.get(key)?.map(|bytes| T::of(&bytes)).transpose()
    }

    pub(super) fn put_value<T: Value>(&mut self, key: Vec<u8>, value: &T) {
        let mut w = Writer::new();
        value.write(&mut w);
        self.put(key, w.finish());
    }
}

impl GroupRecord {
    pub(super) fn new(group: &GroupId) -> GroupRecord {
        let head = first_head(group);
        GroupRecord {
            position: 0,
            head,
            first: 1,
            before: head,
            log_bytes: 0,
            blob_bytes: 0,
            mail_bytes: 0,
            package_bytes: 0,
            devices: 0,
            stamp: 0,
            first_stamp: 0,
            mail: 0,
            first_mail: 0,
            day: 0,
            keys: Vec::new(),
        }
    }
}

impl Value for GroupRecord {
    fn write(&self, w: &mut Writer) {
        w.u64(self.position).raw(&self.head.0).u64(self.first).raw(&self.before.0);
        w.u64(self.log_bytes).u64(self.blob_bytes).u64(self.mail_bytes).u64(self.package_bytes);
        w.u32(self.devices).u64(self.stamp).u64(self.first_stamp).u64(self.mail).u64(self.first_mail).u32(self.day);
        self.keys.iter().for_each(|key| _ = w.raw(key));
    }

    fn read(r: &mut Reader<'_>) -> Result<GroupRecord, FormatError> {
        let mut record = GroupRecord {
            position: r.u64()?,
            head: Head(r.array()?),
            first: r.u64()?,
            before: Head(r.array()?),
            log_bytes: r.u64()?,
            blob_bytes: r.u64()?,
            mail_bytes: r.u64()?,
            package_bytes: r.u64()?,
            devices: r.u32()?,
            stamp: r.u64()?,
            first_stamp: r.u64()?,
            mail: r.u64()?,
            first_mail: r.u64()?,
            day: r.u32()?,
            keys: Vec::new(),
        };
        while r.remaining() > 0 {
            record.keys.push(r.array()?);
        }
        let sound = record.keys.len() <= limits::RELAY_KEYS_NAMED && (1..=record.position + 1).contains(&record.first);
        if sound { Ok(record) } else { Err(FormatError::Malformed) }
    }
}

impl Value for EntryRecord {
    fn write(&self, w: &mut Writer) {
        self.link.encode(w.raw(&self.before.0).raw(&self.head.0).raw(&self.statement));
        w.u32(self.bytes);
    }

    fn read(r: &mut Reader<'_>) -> Result<EntryRecord, FormatError> {
        let (before, head, statement) = (Head(r.array()?), Head(r.array()?), r.array()?);
        Ok(EntryRecord { before, head, statement, link: Link::decode(r)?, bytes: r.u32()? })
    }
}

impl Value for BlobRecord {
    fn write(&self, w: &mut Writer) {
        w.u64(self.stamp).u32(self.bytes);
    }

    fn read(r: &mut Reader<'_>) -> Result<BlobRecord, FormatError> {
        Ok(BlobRecord { stamp: r.u64()?, bytes: r.u32()? })
    }
}

impl Value for MailRecord {
    fn write(&self, w: &mut Writer) {
        w.raw(&self.device.0).u64(self.stored.0.cast_unsigned()).u32(self.bytes);
    }

    fn read(r: &mut Reader<'_>) -> Result<MailRecord, FormatError> {
        Ok(MailRecord { device: DeviceId(r.array()?), stored: Utc(r.u64()?.cast_signed()), bytes: r.u32()? })
    }
}

impl Value for DeviceRecord {
    fn write(&self, w: &mut Writer) {
        w.u64(self.number).u64(self.newest).u16(self.single_use).u64(self.bytes);
    }

    fn read(r: &mut Reader<'_>) -> Result<DeviceRecord, FormatError> {
        Ok(DeviceRecord { number: r.u64()?, newest: r.u64()?, single_use: r.u16()?, bytes: r.u64()? })
    }
}

impl Value for crate::request::Package {
    fn write(&self, w: &mut Writer) {
        self.encode(w);
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, FormatError> {
        Self::decode(r)
    }
}

impl Value for u64 {
    fn write(&self, w: &mut Writer) {
        w.u64(*self);
    }

    fn read(r: &mut Reader<'_>) -> Result<u64, FormatError> {
        Ok(r.u64()?)
    }
}

fn key(kind: u8, parts: &[&[u8]]) -> Vec<u8> {
    [&[FORMAT, kind], parts.concat().as_slice()].concat()
}

/// All rows of a kind that a group has.
pub(super) fn of_group(kind: u8, group: &GroupId) -> Vec<u8> {
    key(kind, &[&group.0])
}

/// All rows of a kind that a device has.
pub(super) fn of_device(kind: u8, group: &GroupId, device: &DeviceId) -> Vec<u8> {
    key(kind, &[&group.0, &device.0])
}

/// A row of a group by its number.
pub(super) fn numbered(kind: u8, group: &GroupId, number: u64) -> Vec<u8> {
    key(kind, &[&group.0, &number.to_be_bytes()])
}

/// A row of a group by a hash.
pub(super) fn hashed(kind: u8, group: &GroupId, hash: &BlobHash) -> Vec<u8> {
    key(kind, &[&group.0, hash])
}

/// A row of a device by its number.
pub(super) fn of_device_numbered(kind: u8, group: &GroupId, device: &DeviceId, number: u64) -> Vec<u8> {
    key(kind, &[&group.0, &device.0, &number.to_be_bytes()])
}

/// A row of a day.
pub(super) fn of_day(kind: u8, day: u32, group: &GroupId, device: Option<&DeviceId>) -> Vec<u8> {
    key(kind, &[&day.to_be_bytes(), &group.0, device.map_or(&[], |it| &it.0)])
}

/// All rows of a kind.
pub(super) fn all(kind: u8) -> Vec<u8> {
    key(kind, &[])
}

/// What follows the kind in a key.
pub(super) fn rest(key: &[u8]) -> Reader<'_> {
    Reader::new(key.get(2..).unwrap_or_default())
}

/// The number at the end of a key.
pub(super) fn number_of(key: &[u8]) -> Result<u64, StorageError> {
    key.last_chunk().map(|it| u64::from_be_bytes(*it)).ok_or_else(|| corrupt(Malformed))
}

pub(super) fn corrupt(_: Malformed) -> StorageError {
    StorageError("a key has a form that this version does not know".to_owned())
}

const FORMAT: u8 = 1;
pub(super) const GROUP: u8 = b'g';
pub(super) const KEYS: u8 = b'k';
pub(super) const HEAD: u8 = b'h';
pub(super) const ENTRY: u8 = b'm';
pub(super) const ENTRY_BYTES: u8 = b'e';
pub(super) const BLOB: u8 = b't';
pub(super) const BLOB_BYTES: u8 = b'b';
pub(super) const BLOB_BY_USE: u8 = b'o';
pub(super) const MAIL: u8 = b'n';
pub(super) const MAIL_BYTES: u8 = b'w';
pub(super) const DEVICE: u8 = b'd';
pub(super) const PACKAGE: u8 = b'p';
pub(super) const LAST_RESORT: u8 = b'l';
pub(super) const EXPIRY: u8 = b'x';
pub(super) const GROUP_BY_DAY: u8 = b'i';
pub(super) const REMOVED_GROUP: u8 = b'z';
pub(super) const GROUPS: u8 = b'c';
