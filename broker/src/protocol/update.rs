//! What one client gets of one block.

use std::collections::BTreeSet;

use sealcast_crypto::hash::Transcript;
use sealcast_wire::{Malformed, Reader, Utc, Writer, limits};

use super::{count, flag, read_bytes, write_all, write_bytes};
use crate::genesis::Cluster;
use crate::operation::Client;
use crate::state::{Advertisement, Entry, Notice, Outbox, Results, Run};

/// What one client gets of one block: the digest from every broker, the contents from one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    /// The block.
    pub height: u64,
    /// Of the contents: [`Contents::digest`].
    pub digest: [u8; 32],
    /// The same, from the [`super::designated_responder`], or from the broker that was asked.
    pub contents: Option<Contents>,
}

/// What it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contents {
    /// The block's time.
    pub at: Utc,
    /// What became of the client's batches, in the block's order.
    pub results: Vec<Results>,
    /// What its subscriptions get, by their numbers.
    pub notices: Vec<Notice>,
    /// The publications that the notices deliver, by sn, each once.
    pub publications: Vec<Entry>,
    /// Advertisements, if it wants them.
    pub advertisements: Vec<Advertisement>,
    /// By sn, the operations of publications and advertisements, as far as they fit. Not part of the digest: each
    /// is named by its id there.
    pub bodies: Vec<(u64, Vec<u8>)>,
}

impl Contents {
    /// What this client gets of an outbox, without bodies; `None` if the block does not concern it.
    pub fn of(outbox: &Outbox, client: &Client) -> Option<Contents> {
        let results: Vec<Results> = outbox.results.iter().filter(|r| r.client == *client).cloned().collect();
        let notices: Vec<Notice> = outbox.notices.iter().filter(|n| n.client == *client).cloned().collect();
        let wants = outbox.intents.binary_search(client).is_ok();
        let advertisements = if wants { outbox.advertisements.clone() } else { Vec::new() };
        if results.is_empty() && notices.is_empty() && advertisements.is_empty() {
            return None;
        }
        let delivered: BTreeSet<u64> = notices.iter().flat_map(|n| &n.runs).filter_map(Run::delivered).collect();
        let publications = outbox.publications.iter().filter(|e| delivered.contains(&e.sn)).cloned().collect();
        Some(Contents { at: outbox.at, results, notices, publications, advertisements, bodies: Vec::new() })
    }

    /// `T("sealcast/v1/update"; cluster, client, u64 height, i64 at, leaves of results, of notices, of publications, of
    /// advertisements)`, leaves as in the outbox, one behind another.
    pub fn digest(&self, cluster: &Cluster, client: &Client, height: u64) -> [u8; 32] {
        fn leaves<T>(things: &[T], leaf: impl Fn(&T) -> [u8; 32]) -> Vec<[u8; 32]> {
            things.iter().map(leaf).collect()
        }
        digest(
            (cluster, client, height, self.at),
            [
                leaves(&self.results, Results::leaf).as_flattened(),
                leaves(&self.notices, Notice::leaf).as_flattened(),
                leaves(&self.publications, Entry::leaf).as_flattened(),
                leaves(&self.advertisements, Advertisement::leaf).as_flattened(),
            ],
        )
    }

    /// `i64 at ‖ results … ‖ notices … ‖ (u32 length ‖ entry) … ‖ advertisements … ‖ (u64 sn ‖ u32 length ‖ operation) …`,
    /// each list behind a `u32 count`.
    fn encode(&self, w: &mut Writer) {
        w.raw(&self.at.0.to_be_bytes());
        write_all(w, &self.results, Results::encode);
        write_all(w, &self.notices, Notice::encode);
        write_all(w, &self.publications, |entry, w| write_bytes(w, &entry.to_bytes()));
        write_all(w, &self.advertisements, Advertisement::encode);
        write_all(w, &self.bodies, |(sn, body), w| write_bytes(w.u64(*sn), body));
    }

    fn decode(r: &mut Reader<'_>) -> Result<Contents, Malformed> {
        let at = Utc(i64::from_be_bytes(r.array()?));
        let results = (0..count(r, 74)?).map(|_| Results::decode(r)).collect::<Result<_, _>>()?;
        let notices = (0..count(r, 52)?).map(|_| Notice::decode(r)).collect::<Result<_, _>>()?;
        let publications = (0..count(r, 4)?).map(|_| entry(r)).collect::<Result<_, _>>()?;
        let advertisements = (0..count(r, 84)?).map(|_| Advertisement::decode(r)).collect::<Result<_, _>>()?;
        let bodies = (0..count(r, 12)?).map(|_| body(r)).collect::<Result<_, _>>()?;
        Ok(Contents { at, results, notices, publications, advertisements, bodies })
    }
}

impl Update {
    /// How many bytes it takes, rather more than fewer: a long message is not to be moved as it grows.
    pub(super) fn bytes_about(&self) -> usize {
        let Some(it) = &self.contents else { return 64 };
        let results: usize = it.results.iter().map(|results| 80 + 32 * results.outcomes.len()).sum();
        let notices: usize = it.notices.iter().map(|notice| 64 + 9 * notice.runs.len()).sum();
        let bodies: usize = it.bodies.iter().map(|(_, body)| 12 + body.len()).sum();
        128 + results + notices + 256 * it.publications.len() + 96 * it.advertisements.len() + bodies
    }

    /// `u64 height ‖ digest ‖ (0 | 1 ‖ contents)`
    pub(super) fn encode(&self, w: &mut Writer) {
        w.u64(self.height).raw(&self.digest).u8(u8::from(self.contents.is_some()));
        self.contents.iter().for_each(|contents| contents.encode(w));
    }

    pub(super) fn decode(r: &mut Reader<'_>) -> Result<Update, Malformed> {
        let (height, digest) = (r.u64()?, r.array()?);
        let contents = if flag(r)? { Some(Contents::decode(r)?) } else { None };
        Ok(Update { height, digest, contents })
    }
}

/// [`Contents::digest`] of leaves, one behind another: of results, notices, publications and advertisements.
pub(super) fn digest((cluster, client, height, at): (&Cluster, &Client, u64, Utc), leaves: [&[u8]; 4]) -> [u8; 32] {
    let transcript = Transcript::new("sealcast/v1/update").add(&cluster.0).add(&client.0);
    let transcript = transcript.add(&height.to_be_bytes()).add(&at.0.to_be_bytes());
    leaves.into_iter().fold(transcript, |transcript, it| transcript.add(it)).finish()
}

/// `u32 length ‖ entry`
pub(super) fn entry(r: &mut Reader<'_>) -> Result<Entry, Malformed> {
    Entry::from_bytes(&read_bytes(r, limits::OPERATION_BYTES_MAX)?)
}

/// `u64 sn ‖ u32 length ‖ operation`
pub(super) fn body(r: &mut Reader<'_>) -> Result<(u64, Vec<u8>), Malformed> {
    Ok((r.u64()?, read_bytes(r, limits::OPERATION_BYTES_MAX)?))
}
