//! What single devices leave and fetch: key packages (RFC 9420, section 16.8: a last resort may be used again) and mail.

use sealcast_wire::{Utc, limits};

use super::limiter::Payer;
use super::rows::{self, DeviceRecord, GroupRecord, MailRecord, Value};
use super::storage::{Storage, StorageError};
use super::{Step, Stop, day_of, weight};
use crate::ids::{DeviceId, GroupId};
use crate::request::{FetchMail, Package, Proof, PutMail, PutPackages, TakePackage};
use crate::response::{MailItem, Refusal, Response, Taken};

impl Step<'_> {
    pub(super) fn put_packages(&mut self, it: PutPackages, proof: &Proof) -> Result<Response, Stop> {
        let mut group = self.known(&it.group)?;
        let statement = it.statement(&self.directory.public, &proof.signer);
        let bytes = it.single_use.iter().chain(&it.last_resort).map(|package| package.bytes.len()).sum();
        self.authorize(&it.group, &group, proof, &statement, bytes, Payer::Others)?;
        let device_key = rows::of_device(rows::DEVICE, &it.group, &it.device);
        let mut record = match self.rows.value::<DeviceRecord>(&device_key)? {
            // The device did not hear the first answer.
            Some(record) if it.number == record.number => {
                return Ok(Response::Stored { single_use: record.single_use });
            }
            Some(record) if it.number < record.number => return Err(Refusal::Stale.into()),
            Some(record) => record,
            None if group.devices >= self.directory.config.devices => return Err(Refusal::Full.into()),
            None => {
                group.devices += 1;
                DeviceRecord::default()
            }
        };
        record.number = it.number;
        for package in it.single_use.iter().chain(&it.last_resort) {
            self.expires(package.expires, &it.group, Some(&it.device));
        }
        let before = record.bytes;
        for package in &it.single_use {
            record.newest += 1;
            record.single_use += 1;
            record.bytes += weight(package.bytes.len());
            let key = rows::of_device_numbered(rows::PACKAGE, &it.group, &it.device, record.newest);
            self.rows.put_value(key, package);
        }
        if let Some(package) = &it.last_resort {
            let key = rows::of_device(rows::LAST_RESORT, &it.group, &it.device);
            if let Some(old) = self.rows.value::<Package>(&key)? {
                record.bytes = record.bytes.saturating_sub(weight(old.bytes.len()));
            }
            record.bytes += weight(package.bytes.len());
            self.rows.put_value(key, package);
        }
        let surplus = usize::from(record.single_use).saturating_sub(limits::RELAY_PACKAGES_MAX);
        for (key, package) in self.packages(&it.group, &it.device, surplus)? {
            self.remove_package(&mut record, key, &package);
        }
        group.package_bytes = (group.package_bytes + record.bytes).saturating_sub(before);
        if group.package_bytes > self.directory.config.package_bytes {
            return Err(Refusal::Full.into());
        }
        self.rows.put_value(device_key, &record);
        self.keep(&it.group, group);
        Ok(Response::Stored { single_use: record.single_use })
    }

    pub(super) fn take_package(&mut self, it: &TakePackage, proof: &Proof) -> Result<Response, Stop> {
        let mut group = self.known(&it.group)?;
        let statement = it.statement(&self.directory.public, &proof.signer);
        self.authorize(&it.group, &group, proof, &statement, 0, Payer::Others)?;
        let device_key = rows::of_device(rows::DEVICE, &it.group, &it.device);
        let Some(mut record) = self.rows.value::<DeviceRecord>(&device_key)? else {
            return Ok(Response::Package(None));
        };
        let before = record.bytes;
        let mut taken = None;
        for (key, package) in self.packages(&it.group, &it.device, limits::RELAY_PACKAGES_MAX)? {
            self.remove_package(&mut record, key, &package);
            if !self.is_over(package.expires) {
                taken = Some(package);
                break;
            }
        }
        group.package_bytes = (group.package_bytes + record.bytes).saturating_sub(before);
        self.rows.put_value(device_key, &record);
        self.keep(&it.group, group);
        let left = record.single_use;
        if let Some(package) = taken {
            return Ok(Response::Package(Some(Taken { is_last_resort: false, left, package })));
        }
        let key = rows::of_device(rows::LAST_RESORT, &it.group, &it.device);
        let last_resort = self.rows.value::<Package>(&key)?.filter(|package| !self.is_over(package.expires));
        Ok(Response::Package(last_resort.map(|package| Taken { is_last_resort: true, left, package })))
    }

    /// A device's oldest single-use packages.
    pub(super) fn packages(
        &self,
        group: &GroupId,
        device: &DeviceId,
        most: usize,
    ) -> Result<Vec<(Vec<u8>, Package)>, StorageError> {
        let prefix = rows::of_device(rows::PACKAGE, group, device);
        let found = self.rows.range(&prefix, &prefix, most)?.into_iter();
        found.map(|(key, value)| Ok((key, Package::of(&value)?))).collect()
    }

    pub(super) fn remove_package(&mut self, record: &mut DeviceRecord, key: Vec<u8>, package: &Package) {
        self.rows.remove(key);
        record.single_use = record.single_use.saturating_sub(1);
        record.bytes = record.bytes.saturating_sub(weight(package.bytes.len()));
    }

    // ---- mail ----------------------------------------------------------------------------------

    pub(super) fn keep_mail(
        &mut self,
        id: &GroupId,
        group: &mut GroupRecord,
        mail: &[(DeviceId, Vec<u8>)],
    ) -> Result<(), Stop> {
        let brought: u64 = mail.iter().map(|(_, bytes)| weight(bytes.len())).sum();
        if brought > self.directory.config.mail_bytes {
            return Err(Refusal::Full.into());
        }
        // Without a clock, age removes nothing.
        let stored = self.now.utc.unwrap_or(Utc(i64::MAX));
        for (device, bytes) in mail {
            group.mail += 1;
            group.mail_bytes += weight(bytes.len());
            let record = MailRecord { device: *device, stored, bytes: bytes.len() as u32 };
            self.rows.put_value(rows::numbered(rows::MAIL, id, group.mail), &record);
            self.rows.put(rows::of_device_numbered(rows::MAIL_BYTES, id, device, group.mail), bytes.clone());
        }
        if !mail.is_empty() {
            self.expires(self.end_of_mail(stored), id, None);
        }
        // Each mail is added once and removed once, and the least mail weighs a row.
        while group.mail_bytes > self.directory.config.mail_bytes && self.remove_oldest_mail(id, group, |_| true)? {}
        Ok(())
    }

    /// Removes a group's oldest mail if that is to go, and says whether it did.
    pub(super) fn remove_oldest_mail(
        &mut self,
        id: &GroupId,
        group: &mut GroupRecord,
        goes: impl Fn(&MailRecord) -> bool,
    ) -> Result<bool, StorageError> {
        let prefix = rows::of_group(rows::MAIL, id);
        let from = rows::numbered(rows::MAIL, id, group.first_mail);
        let Some((key, value)) = self.rows.range(&prefix, &from, 1)?.pop() else { return Ok(false) };
        let (record, number) = (MailRecord::of(&value)?, rows::number_of(&key)?);
        let does_go = goes(&record);
        group.first_mail = number + u64::from(does_go);
        if does_go {
            self.remove_mail(id, group, &record, number);
        }
        Ok(does_go)
    }

    fn remove_mail(&mut self, id: &GroupId, group: &mut GroupRecord, record: &MailRecord, number: u64) {
        self.rows.remove(rows::numbered(rows::MAIL, id, number));
        self.rows.remove(rows::of_device_numbered(rows::MAIL_BYTES, id, &record.device, number));
        group.mail_bytes = group.mail_bytes.saturating_sub(weight(record.bytes as usize));
    }

    pub(super) fn put_mail(&mut self, it: &PutMail, proof: &Proof) -> Result<Response, Stop> {
        let mut group = self.known(&it.group)?;
        let statement = it.statement(&self.directory.public, &proof.signer);
        let bytes = it.mail.iter().map(|(_, bytes)| bytes.len()).sum();
        self.authorize(&it.group, &group, proof, &statement, bytes, Payer::Others)?;
        self.keep_mail(&it.group, &mut group, &it.mail)?;
        self.keep(&it.group, group);
        Ok(Response::Stored { single_use: 0 })
    }

    pub(super) fn give_mail(&mut self, it: &FetchMail, proof: &Proof) -> Result<Response, Stop> {
        let mut group = self.known(&it.group)?;
        let statement = it.statement(&self.directory.public, &proof.signer);
        self.authorize(&it.group, &group, proof, &statement, 0, Payer::Others)?;
        let prefix = rows::of_device(rows::MAIL_BYTES, &it.group, &it.device);
        let (mut from, mut items, mut changed) = (prefix.clone(), Vec::new(), false);
        // Mail that is acknowledged is read once more to be removed: as much of it as one answer holds.
        for (key, bytes) in self.rows.range(&prefix, &from, limits::RELAY_MAIL_MAX)? {
            let number = rows::number_of(&key)?;
            let record: MailRecord =
                self.rows.value(&rows::numbered(rows::MAIL, &it.group, number))?.ok_or_else(lost)?;
            if number <= it.acknowledged || self.is_over(self.end_of_mail(record.stored)) {
                self.remove_mail(&it.group, &mut group, &record, number);
                changed = true;
            } else {
                items.push(MailItem { number, bytes });
            }
            from = key;
        }
        from.push(0);
        let more = !self.rows.range(&prefix, &from, 1)?.is_empty();
        if changed {
            self.keep(&it.group, group);
        }
        Ok(Response::Mail { items, more })
    }

    /// When mail is of no use any more.
    pub(super) fn end_of_mail(&self, stored: Utc) -> Utc {
        let kept = i64::try_from(self.directory.config.mail_kept.as_secs()).unwrap_or(i64::MAX);
        Utc(stored.0.saturating_add(kept))
    }

    /// Whether a time has passed; without a clock none has.
    pub(super) fn is_over(&self, end: Utc) -> bool {
        self.now.utc.is_some_and(|now| now > end)
    }

    /// Notes that something of a device, or a group's mail, is to be looked at after this time.
    fn expires(&mut self, end: Utc, group: &GroupId, device: Option<&DeviceId>) {
        if self.now.utc.is_some() && end < Utc(i64::MAX) {
            self.rows.put(rows::of_day(rows::EXPIRY, day_of(end.0).saturating_add(1), group, device), Vec::new());
        }
    }
}

fn lost() -> StorageError {
    StorageError("a mail has no record".to_owned())
}
