//! What is removed because its time is over, a few rows at a time.

use sealcast_wire::{Malformed, Now, Utc, limits};

use super::rows::{self, DeviceRecord, GroupRecord, MailRecord, Value};
use super::storage::{Overlay, Storage, StorageError, Write};
use super::{DAY, Directory, Step, weight};
use crate::ids::{BlobHash, DeviceId, GroupId};
use crate::request::Package;

impl Directory {
    /// Removes some rows whose time is over. The shell calls it now and then, and again at once while it gives writes, which
    /// are applied like those of a request.
    ///
    /// # Errors
    /// The storage failed.
    pub fn sweep(&mut self, now: Now, storage: &dyn Storage) -> Result<Vec<Write>, StorageError> {
        let mut step = Step { now, directory: self, rows: Overlay::new(storage), published: None };
        if !step.remove_rows()? {
            step.find_idle()?;
            step.find_expired()?;
        }
        Ok(step.rows.into_writes())
    }
}

impl Step<'_> {
    /// Some rows of a group that is being removed; `false` if there is no such group.
    fn remove_rows(&mut self) -> Result<bool, StorageError> {
        let prefix = rows::all(rows::REMOVED_GROUP);
        let Some((removed, _)) = self.rows.range(&prefix, &prefix, 1)?.pop() else { return Ok(false) };
        let id = GroupId(rows::rest(&removed).array().map_err(rows::corrupt)?);
        // Each kind's small rows name the long ones, which go with them.
        for kind in [rows::HEAD, rows::ENTRY, rows::BLOB, rows::BLOB_BY_USE, rows::MAIL, rows::DEVICE, rows::PACKAGE] {
            let prefix = rows::of_group(kind, &id);
            let found = self.rows.range(&prefix, &prefix, limits::DIRECTORY_SWEPT_ROWS)?;
            for (key, value) in &found {
                self.remove_with(kind, &id, key, value)?;
            }
            if !found.is_empty() {
                return Ok(true);
            }
        }
        self.rows.remove(removed);
        let groups: u64 = self.rows.value(&rows::all(rows::GROUPS))?.unwrap_or(0);
        self.rows.put_value(rows::all(rows::GROUPS), &groups.saturating_sub(1));
        Ok(true)
    }

    fn remove_with(&mut self, kind: u8, id: &GroupId, key: &[u8], value: &[u8]) -> Result<(), StorageError> {
        // Behind format, kind and group.
        let end = key.get(2 + 32..).unwrap_or_default();
        let hash = || <BlobHash>::try_from(end).map_err(|_| rows::corrupt(Malformed));
        match kind {
            rows::ENTRY => self.rows.remove(rows::numbered(rows::ENTRY_BYTES, id, rows::number_of(key)?)),
            rows::BLOB => self.rows.remove(rows::hashed(rows::BLOB_BYTES, id, &hash()?)),
            rows::DEVICE => self.rows.remove(rows::of_device(rows::LAST_RESORT, id, &DeviceId(hash()?))),
            rows::MAIL => {
                let (device, number) = (MailRecord::of(value)?.device, rows::number_of(key)?);
                self.rows.remove(rows::of_device_numbered(rows::MAIL_BYTES, id, &device, number));
            }
            _ => {}
        }
        self.rows.remove(key.to_vec());
        Ok(())
    }

    /// The groups that were not changed for the longest time go if that is too long.
    fn find_idle(&mut self) -> Result<(), StorageError> {
        let Some(today) = self.today() else { return Ok(()) };
        let kept = u32::try_from(self.directory.config.idle_kept.as_secs() / DAY as u64).unwrap_or(u32::MAX);
        let prefix = rows::all(rows::GROUP_BY_DAY);
        for (key, _) in self.rows.range(&prefix, &prefix, limits::DIRECTORY_SWEPT_ROWS)? {
            let mut rest = rows::rest(&key);
            let (day, id) = rest.u32().and_then(|day| Ok((day, GroupId(rest.array()?)))).map_err(rows::corrupt)?;
            if day > 0 && day.saturating_add(kept) >= today {
                break;
            }
            self.rows.remove(key);
            // The group was changed last while there was no clock.
            if day == 0 {
                if let Some(group) = self.group(&id)? {
                    let group = GroupRecord { day: today, ..group };
                    self.rows.put_value(rows::of_group(rows::GROUP, &id), &group);
                    self.rows.put(rows::of_day(rows::GROUP_BY_DAY, today, &id, None), Vec::new());
                }
                continue;
            }
            self.rows.remove(rows::of_group(rows::GROUP, &id));
            self.rows.remove(rows::of_group(rows::KEYS, &id));
            self.rows.put(rows::of_group(rows::REMOVED_GROUP, &id), Vec::new());
        }
        Ok(())
    }

    fn find_expired(&mut self) -> Result<(), StorageError> {
        let Some(today) = self.today() else { return Ok(()) };
        let prefix = rows::all(rows::EXPIRY);
        for (key, _) in self.rows.range(&prefix, &prefix, limits::DIRECTORY_SWEPT_ROWS)? {
            let mut rest = rows::rest(&key);
            let (day, id) = rest.u32().and_then(|day| Ok((day, GroupId(rest.array()?)))).map_err(rows::corrupt)?;
            if day > today {
                break;
            }
            let Some(mut group) = self.group(&id)? else {
                self.rows.remove(key);
                continue;
            };
            let is_done = match rest.array() {
                Ok(device) => self.expire_device(&id, &mut group, &DeviceId(device))?,
                Err(_) => self.expire_mail(&id, &mut group)?,
            };
            // That something expires is no change by which a group lives longer.
            self.rows.put_value(rows::of_group(rows::GROUP, &id), &group);
            if is_done {
                self.rows.remove(key);
            }
        }
        Ok(())
    }

    fn expire_mail(&mut self, id: &GroupId, group: &mut GroupRecord) -> Result<bool, StorageError> {
        let now = self.now.utc;
        let kept = self.end_of_mail(Utc(0)).0;
        for _ in 0..limits::DIRECTORY_SWEPT_ROWS {
            let is_old = |it: &MailRecord| now.is_some_and(|now| now.0 > it.stored.0.saturating_add(kept));
            if !self.remove_oldest_mail(id, group, is_old)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn expire_device(
        &mut self,
        id: &GroupId,
        group: &mut GroupRecord,
        device: &DeviceId,
    ) -> Result<bool, StorageError> {
        let device_key = rows::of_device(rows::DEVICE, id, device);
        let Some(mut record) = self.rows.value::<DeviceRecord>(&device_key)? else { return Ok(true) };
        let before = record.bytes;
        for (key, package) in self.packages(id, device, limits::RELAY_PACKAGES_MAX)? {
            if self.is_over(package.expires) {
                self.remove_package(&mut record, key, &package);
            }
        }
        let last_resort = rows::of_device(rows::LAST_RESORT, id, device);
        if let Some(package) = self.rows.value::<Package>(&last_resort)?
            && self.is_over(package.expires)
        {
            self.rows.remove(last_resort);
            record.bytes = record.bytes.saturating_sub(weight(package.bytes.len()));
        }
        group.package_bytes = (group.package_bytes + record.bytes).saturating_sub(before);
        if record.bytes == 0 {
            self.rows.remove(device_key);
            group.devices = group.devices.saturating_sub(1);
        } else {
            self.rows.put_value(device_key, &record);
        }
        Ok(true)
    }
}
