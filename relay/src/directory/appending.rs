//! A group's log: one append after the other, each compared with the head that it expects (D1).

use std::time::Duration;

use sealcast_wire::limits;

use super::limiter::Payer;
use super::rows::{self, EntryRecord, GroupRecord};
use super::storage::{Storage, StorageError};
use super::{Published, Step, Stop, is_signed, weight};
use crate::ids::{AppendKey, GroupId};
use crate::log::{LogEntry, first_head};
use crate::receipt::{Announcement, Receipt};
use crate::request::{Append, Proof};
use crate::response::{Page, Refusal, Response};

impl Step<'_> {
    pub(super) fn append(&mut self, it: Append, proof: &Proof) -> Result<Response, Stop> {
        let statement = it.statement(&self.directory.public, &proof.signer);
        let mut group = match self.group(&it.group)? {
            None if it.at_end => return Err(Refusal::UnknownGroup.into()),
            None => self.found(&it, proof, &statement)?,
            Some(group) if group.head != it.expected_head => {
                let expected = if it.at_end { self.expected_position(&it)? } else { None };
                let Some(expected) = expected.filter(|at| at + 1 >= group.first) else {
                    return self.superseded(&it, &group, &statement);
                };
                self.authorize(&it.group, &group, proof, &statement, bytes_of(&it), Payer::Appends)?;
                if let Some(receipt) = self.repeated(&it.group, &statement, expected, group.position)? {
                    return Ok(Response::Receipt(receipt));
                }
                if group.position - expected > limits::RELAY_BEHIND_MAX {
                    return self.superseded(&it, &group, &statement);
                }
                group
            }
            Some(group) => {
                self.authorize(&it.group, &group, proof, &statement, bytes_of(&it), Payer::Appends)?;
                group
            }
        };
        self.keep_blobs(&it.group, &mut group, &it.blobs)?;
        self.keep_mail(&it.group, &mut group, &it.mail)?;

        let (id, link) = (it.group, it.entry.link());
        let before = group.head;
        group.position += 1;
        group.head = link.head(&before, group.position);
        group.log_bytes += weight(it.entry.bytes.len());
        self.note_keys(&id, &mut group, &proof.signer, link.next_key.as_ref())?;
        let bytes = it.entry.bytes.len() as u32;
        let record = EntryRecord { before, head: group.head, statement, link, bytes };
        self.rows.put_value(rows::numbered(rows::ENTRY, &id, group.position), &record);
        self.rows.put(rows::numbered(rows::ENTRY_BYTES, &id, group.position), it.entry.bytes.clone());
        self.rows.put_value(rows::hashed(rows::HEAD, &id, &group.head.0), &group.position);
        self.compact(&id, &mut group)?;

        let (position, receipt) = (group.position, self.receipt(&id, group.position, group.head));
        self.keep(&id, group);
        let announcement = Announcement { receipt, entry: Some(it.entry) };
        self.published = Some(Published { group: id, position, announcement });
        Ok(Response::Receipt(receipt))
    }

    /// The first append to a group, by a holder of the key that the group's id names.
    fn found(&mut self, it: &Append, proof: &Proof, statement: &[u8; 32]) -> Result<GroupRecord, Stop> {
        if it.expected_head != first_head(&it.group) {
            return Err(Refusal::UnknownGroup.into());
        }
        if GroupId::of(&proof.signer) != it.group {
            return Err(Refusal::WrongKey.into());
        }
        if self.rows.get(&rows::of_group(rows::REMOVED_GROUP, &it.group))?.is_some() {
            return Err(Refusal::RateLimited { retry_after: REMOVAL }.into());
        }
        self.admit(Payer::Founders, &limits::DIRECTORY_FOUNDINGS)?;
        self.charge(Payer::Founders, &limits::DIRECTORY_FOUNDINGS, bytes_of(it));
        if !is_signed(proof, statement) {
            return Err(Refusal::BadSignature.into());
        }
        let groups: u64 = self.rows.value(&rows::all(rows::GROUPS))?.unwrap_or(0);
        if groups >= self.directory.config.groups {
            return Err(Refusal::Full.into());
        }
        self.rows.put_value(rows::all(rows::GROUPS), &(groups + 1));
        Ok(GroupRecord::new(&it.group))
    }

    /// Whose key an append named.
    fn note_keys(
        &mut self,
        id: &GroupId,
        group: &mut GroupRecord,
        signer: &AppendKey,
        names: Option<&AppendKey>,
    ) -> Result<(), Stop> {
        let mut keys = self.keys(id, group)?;
        let by = (GroupId::of(signer) != *id).then_some(signer);
        // Who names one key after the other, and uses each once, has used as much as who uses one.
        if let Some(key) = names.filter(|it| !keys.contains(it)) {
            self.directory.limiter.inherit(&Payer::Appends(*id, *signer), Payer::Appends(*id, *key));
        }
        if keys.appended(by, names) {
            group.keys.clear();
            self.rows.put_value(rows::of_group(rows::KEYS, id), &keys);
        }
        Ok(())
    }

    /// Where the head is that an append expects, if it is in the log.
    fn expected_position(&self, it: &Append) -> Result<Option<u64>, StorageError> {
        if it.expected_head == first_head(&it.group) {
            return Ok(Some(0));
        }
        self.rows.value(&rows::hashed(rows::HEAD, &it.group, &it.expected_head.0))
    }

    /// The receipt of this very append, which may stand behind others, if the log has it.
    fn repeated(&self, id: &GroupId, statement: &[u8; 32], expected: u64, end: u64) -> Result<Option<Receipt>, Stop> {
        for position in expected + 1..=end.min(expected + 1 + limits::RELAY_BEHIND_MAX) {
            let record = self.entry(id, position)?.ok_or_else(missing)?;
            if record.statement == *statement {
                return Ok(Some(self.receipt(id, position, record.head)));
            }
        }
        Ok(None)
    }

    /// The log has moved on: by this very append, or by another one.
    fn superseded(&mut self, it: &Append, group: &GroupRecord, statement: &[u8; 32]) -> Result<Response, Stop> {
        self.admit(Payer::Readers(it.group), &limits::DIRECTORY_READS)?;
        self.charge(Payer::Readers(it.group), &limits::DIRECTORY_READS, 0);
        let expected = self.expected_position(it)?;
        if let Some(record) = self.entry(&it.group, expected.map_or(0, |it| it + 1))?
            && record.statement == *statement
        {
            // The client did not hear the first answer. Who says the same again learns what everybody may read.
            return Ok(Response::Receipt(self.receipt(&it.group, expected.map_or(0, |it| it + 1), record.head)));
        }
        // Of entries that are gone, or of a head that is not in this log, the newest receipt says enough.
        let from = expected.map_or(0, |it| it + 1);
        let from = if from < group.first { group.position + 1 } else { from };
        let page = self.page(&it.group, group, from, limits::RELAY_READ_BYTES_MAX)?;
        Err(Refusal::Conflict(Box::new(page)).into())
    }

    pub(super) fn read(&mut self, id: &GroupId, from: u64, max_bytes: usize) -> Result<Response, Stop> {
        let group = self.known(id)?;
        if from < group.first {
            let before = Box::new(self.receipt(id, group.first - 1, group.before));
            let newest = Box::new(self.receipt(id, group.position, group.head));
            return Err(Refusal::Gone { before, newest }.into());
        }
        let from = from.min(group.position + 1);
        let page = self.page(id, &group, from, max_bytes.min(limits::RELAY_READ_BYTES_MAX))?;
        Ok(Response::Page(Box::new(page)))
    }

    /// Entries from a position on that is kept, or the one after the last.
    fn page(&mut self, id: &GroupId, group: &GroupRecord, from: u64, max_bytes: usize) -> Result<Page, Stop> {
        self.admit(Payer::Readers(*id), &limits::DIRECTORY_READS)?;
        let head_before = match from {
            _ if from == group.first => group.before,
            _ if from > group.position => group.head,
            _ => self.entry(id, from - 1)?.ok_or_else(missing)?.head,
        };
        let (mut entries, mut bytes, mut reached) = (Vec::new(), 0, (from - 1, head_before));
        for position in from..=group.position {
            let record = self.entry(id, position)?.ok_or_else(missing)?;
            bytes += record.bytes as usize;
            let is_over = bytes > max_bytes || entries.len() >= limits::RELAY_READ_ENTRIES_MAX;
            if is_over && !entries.is_empty() {
                break;
            }
            let entry = self.rows.get(&rows::numbered(rows::ENTRY_BYTES, id, position))?.ok_or_else(missing)?;
            entries.push(LogEntry { next_key: record.link.next_key, bytes: entry });
            reached = (position, record.head);
        }
        self.charge(Payer::Readers(*id), &limits::DIRECTORY_READS, bytes);
        let before = (from > 1).then(|| self.receipt(id, from - 1, head_before));
        let newest = self.receipt(id, group.position, group.head);
        let reached = match before {
            Some(before) if entries.is_empty() => before,
            _ if reached.0 == group.position => newest,
            _ => self.receipt(id, reached.0, reached.1),
        };
        Ok(Page { before, entries, reached, newest })
    }

    fn entry(&self, id: &GroupId, position: u64) -> Result<Option<EntryRecord>, StorageError> {
        self.rows.value(&rows::numbered(rows::ENTRY, id, position))
    }

    /// Removes the oldest entries that are too many. Each append adds one, so that few go at once.
    fn compact(&mut self, id: &GroupId, group: &mut GroupRecord) -> Result<(), Stop> {
        let config = &self.directory.config;
        let (entries, bytes) = (config.log_entries, config.log_bytes);
        for _ in 0..limits::RELAY_COMPACTED_ENTRIES {
            let kept = group.position - group.first + 1;
            if kept <= 1 || kept <= entries && group.log_bytes <= bytes {
                break;
            }
            let record = self.entry(id, group.first)?.ok_or_else(missing)?;
            self.rows.remove(rows::numbered(rows::ENTRY, id, group.first));
            self.rows.remove(rows::numbered(rows::ENTRY_BYTES, id, group.first));
            // The head before the first entry that is kept remains known: an append may expect it.
            self.rows.remove(rows::hashed(rows::HEAD, id, &record.before.0));
            group.log_bytes = group.log_bytes.saturating_sub(weight(record.bytes as usize));
            group.first += 1;
            group.before = record.head;
        }
        Ok(())
    }
}

fn bytes_of(it: &Append) -> usize {
    let blobs: usize = it.blobs.iter().filter_map(|blob| Some(blob.bytes()?.len())).sum();
    let mail: usize = it.mail.iter().map(|(_, bytes)| bytes.len()).sum();
    it.entry.bytes.len() + blobs + mail
}

fn missing() -> StorageError {
    StorageError("an entry of a log is missing".to_owned())
}

/// A group that is being removed can be founded again after about so long.
const REMOVAL: Duration = Duration::from_secs(1);
