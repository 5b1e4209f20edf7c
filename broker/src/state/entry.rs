//! A publication as brokers remember it: all but its body, which stays in the block.

use sealcast_crypto::hash::Transcript;
use sealcast_wire::{Malformed, Reader, Utc, Writer, limits};

use crate::access::Access;
use crate::operation::publication::{read_headers, write_headers};
use crate::operation::{Client, Header, OperationId};

/// A publication in its place (Chios Fig. 2). Immutable: a read by (topic, ps) always means the same (E9).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The place of its operation among all that were executed.
    pub sn: u64,
    /// The block that holds it.
    pub height: u64,
    /// That block's time.
    pub at: Utc,
    /// The batch within the block; the operation within the batch is `number` less the batch's first.
    pub batch: u32,
    /// Who published.
    pub client: Client,
    /// As the client numbered it.
    pub number: u64,
    /// Names the operation's bytes, and with them ciphertext and label.
    pub id: OperationId,
    /// The number of the global policy that it was sealed for.
    pub policy: u64,
    /// The key epoch that it was sealed to.
    pub epoch: u32,
    /// Its headers, each with the publication's gap-free number there.
    pub places: Vec<(Header, u64)>,
    /// Who may read it, beside what global policies say.
    pub access: Option<Access>,
}

impl Entry {
    /// Its headers alone.
    pub fn headers(&self) -> Vec<Header> {
        self.places.iter().map(|(header, _)| header.clone()).collect()
    }

    /// What the outbox root holds of it: `T("sealcast/v1/published"; bytes)`.
    pub fn leaf(&self) -> [u8; 32] {
        Entry::leaf_of(&self.to_bytes())
    }

    /// [`Entry::leaf`] of what has these bytes.
    pub(super) fn leaf_of(bytes: &[u8]) -> [u8; 32] {
        Transcript::of("sealcast/v1/published", bytes)
    }

    /// ```text
    /// u64 sn ‖ u64 height ‖ i64 time ‖ u32 batch ‖ client ‖ u64 number ‖ id ‖ u64 policy ‖ u32 epoch
    ///        ‖ headers ‖ u64 ps … ‖ (0 | 1 ‖ bytes16 access)
    /// ```
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut w = Writer::with_capacity(BYTES_USUAL);
        w.u64(self.sn).u64(self.height).raw(&self.at.0.to_be_bytes()).u32(self.batch);
        w.raw(&self.client.0).u64(self.number).raw(&self.id.0).u64(self.policy).u32(self.epoch);
        write_headers(&mut w, self.places.iter().map(|(header, _)| header));
        self.places.iter().for_each(|(_, ps)| {
            w.u64(*ps);
        });
        match &self.access {
            None => w.u8(0),
            Some(access) => w.u8(1).bytes16(&access.to_bytes()),
        };
        w.finish()
    }

    /// Reads what [`Entry::to_bytes`] wrote.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Entry, Malformed> {
        let mut r = Reader::new(bytes);
        let entry = Entry::decode(&mut r)?;
        r.end()?;
        Ok(entry)
    }

    pub(super) fn decode(r: &mut Reader<'_>) -> Result<Entry, Malformed> {
        let (sn, height, at, batch) = (r.u64()?, r.u64()?, Utc(i64::from_be_bytes(r.array()?)), r.u32()?);
        let (client, number, id) = (Client(r.array()?), r.u64()?, OperationId(r.array()?));
        let (policy, epoch) = (r.u64()?, r.u32()?);
        let headers = read_headers(r)?;
        let places = headers.into_iter().map(|h| Ok((h, r.u64()?))).collect::<Result<_, Malformed>>()?;
        let access = match r.u8()? {
            0 => None,
            1 => Some(Access::from_bytes(r.bytes16(limits::EXPRESSION_BYTES_MAX)?)?),
            _ => return Err(Malformed),
        };
        Ok(Entry { sn, height, at, batch, client, number, id, policy, epoch, places, access })
    }
}

/// Bytes that most entries fit in.
const BYTES_USUAL: usize = 256;
