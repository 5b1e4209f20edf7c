//! Blobs of a group: content by its hash. When there is too much, what was not named for the longest time goes.

use sealcast_wire::limits;

use super::limiter::Payer;
use super::rows::{self, BlobRecord, GroupRecord};
use super::storage::{Storage, StorageError};
use super::{Step, Stop, weight};
use crate::ids::{BlobHash, GroupId};
use crate::request::Blob;
use crate::response::{Refusal, Response};

impl Step<'_> {
    /// Keeps blobs that are brought, and lets those live longer that are there.
    pub(super) fn keep_blobs(&mut self, id: &GroupId, group: &mut GroupRecord, blobs: &[Blob]) -> Result<(), Stop> {
        let brought: u64 = blobs.iter().filter_map(|blob| Some(weight(blob.bytes()?.len()))).sum();
        if brought > self.directory.config.blob_bytes {
            return Err(Refusal::Full.into());
        }
        for blob in blobs {
            let key = rows::hashed(rows::BLOB, id, blob.hash());
            let bytes = match (self.rows.value::<BlobRecord>(&key)?, blob.bytes()) {
                (Some(record), _) => {
                    self.rows.remove(rows::numbered(rows::BLOB_BY_USE, id, record.stamp));
                    record.bytes
                }
                (None, Some(bytes)) => {
                    self.rows.put(rows::hashed(rows::BLOB_BYTES, id, blob.hash()), bytes.to_vec());
                    group.blob_bytes += weight(bytes.len());
                    bytes.len() as u32
                }
                (None, None) => return Err(Refusal::Missing.into()),
            };
            group.stamp += 1;
            self.rows.put_value(key, &BlobRecord { stamp: group.stamp, bytes });
            self.rows.put(rows::numbered(rows::BLOB_BY_USE, id, group.stamp), blob.hash().to_vec());
        }
        // Each blob is added once and removed once, and the least blob weighs a row.
        while group.blob_bytes > self.directory.config.blob_bytes {
            let prefix = rows::of_group(rows::BLOB_BY_USE, id);
            let from = rows::numbered(rows::BLOB_BY_USE, id, group.first_stamp);
            let Some((key, hash)) = self.rows.range(&prefix, &from, 1)?.pop() else { break };
            group.first_stamp = rows::number_of(&key)? + 1;
            let hash: BlobHash = hash.as_slice().try_into().map_err(|_| lost())?;
            let record: BlobRecord = self.rows.value(&rows::hashed(rows::BLOB, id, &hash))?.ok_or_else(lost)?;
            self.rows.remove(key);
            self.rows.remove(rows::hashed(rows::BLOB, id, &hash));
            self.rows.remove(rows::hashed(rows::BLOB_BYTES, id, &hash));
            group.blob_bytes = group.blob_bytes.saturating_sub(weight(record.bytes as usize));
        }
        Ok(())
    }

    pub(super) fn give_blobs(&mut self, id: &GroupId, hashes: &[BlobHash]) -> Result<Response, Stop> {
        self.known(id)?;
        self.admit(Payer::Readers(*id), &limits::DIRECTORY_READS)?;
        let blobs = hashes.iter().map(|hash| self.rows.get(&rows::hashed(rows::BLOB_BYTES, id, hash)));
        let blobs = blobs.collect::<Result<Vec<_>, _>>()?;
        let bytes = blobs.iter().flatten().map(Vec::len).sum();
        self.charge(Payer::Readers(*id), &limits::DIRECTORY_READS, bytes);
        Ok(Response::Blobs(blobs))
    }
}

fn lost() -> StorageError {
    StorageError("a blob has no record".to_owned())
}
