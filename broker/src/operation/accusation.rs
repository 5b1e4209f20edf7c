//! Evidence against a publisher whose ciphertext opens to nothing, brought before all brokers (E4).
//!
//! ```text
//! accusation = u64 sn ‖ u32 length ‖ record
//! record     = (2 | 5 ‖ pkh, 32) ‖ bytes16 header ‖ u32 length ‖ ciphertext ‖ shares       docs/WIRE.md, 15.6: `evidence`
//! header     = 1 ‖ client ‖ u64 number ‖ envelope
//! ```
//! The record is what readers keep and export, byte for byte. Brokers judge its mathematics before it is ordered: t
//! shares, each proved and signed by another broker, that open the ciphertext to nothing. The state judges the rest:
//! that this ciphertext was ordered at this sn. So what is executed convicts at every broker, with or without the
//! threshold key.

use sealcast_crypto::tdh2::{Label, Sharing};
use sealcast_wire::{Envelope, Malformed, Reader, Writer, limits};

use super::{Body, Client, Operation, OperationId, read_bytes, write_bytes};

/// That a publication was sealed so that it opens to nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accusation {
    /// The publication's place in the order.
    pub sn: u64,
    /// Who published it.
    pub client: Client,
    /// As the client numbered it.
    pub number: u64,
    /// The publication, less its body.
    pub envelope: Envelope,
    /// Its body.
    pub ciphertext: Vec<u8>,
    /// The sharing of the threshold key that the shares are of.
    pub sharing: Sharing,
    /// `u16 count ‖ (proved share ‖ signature) …`, as the key's group encodes them.
    pub shares: Vec<u8>,
}

impl Accusation {
    /// Of a record that convicts the publisher of what stands at `sn`.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn of_record(sn: u64, record: &[u8]) -> Result<Accusation, Malformed> {
        let mut r = Reader::new(record);
        let sharing = match r.u8()? {
            PUBLISHER => Sharing::First,
            PUBLISHER_LATER => Sharing::Later(r.array()?),
            _ => return Err(Malformed),
        };
        let mut header = Reader::new(r.bytes16(usize::from(u16::MAX))?);
        if header.u8()? != HEADER_VERSION {
            return Err(Malformed);
        }
        let (client, number) = (Client(header.array()?), header.u64()?);
        let envelope = Envelope::decode(&mut header)?;
        header.end()?;
        let ciphertext = read_bytes(&mut r, limits::BODY_BYTES_MAX)?.to_vec();
        let it = Accusation { sn, client, number, envelope, ciphertext, sharing, shares: r.rest().to_vec() };
        // Of a publication that brokers could not have read, none was ordered.
        it.published()?;
        Ok(it)
    }

    /// What readers keep and export.
    pub fn record(&self) -> Vec<u8> {
        let mut header = Writer::new();
        header.u8(HEADER_VERSION).raw(&self.client.0).u64(self.number);
        self.envelope.encode(&mut header);
        let mut w = Writer::new();
        match &self.sharing {
            Sharing::First => w.u8(PUBLISHER),
            Sharing::Later(pkh) => w.u8(PUBLISHER_LATER).raw(pkh),
        };
        write_bytes(w.bytes16(header.as_slice()), &self.ciphertext);
        w.raw(&self.shares);
        w.finish()
    }

    /// What the ciphertext is bound to.
    pub fn label(&self) -> Label {
        Label::of(&self.client.0, self.number, &self.envelope)
    }

    /// Names the accused publication, ciphertext and label.
    pub fn accused(&self) -> OperationId {
        OperationId::of(&self.operation())
    }

    /// The bytes of the accused `pub`.
    fn operation(&self) -> Vec<u8> {
        let mut w = Writer::new();
        self.envelope.encode(w.u8(5));
        write_bytes(w.u8(2), &self.ciphertext);
        w.finish()
    }

    fn published(&self) -> Result<(), Malformed> {
        match Operation::from_bytes(&self.operation())? {
            Operation::Publish(it) if matches!(it.body, Body::Sealed(_)) => Ok(()),
            _ => Err(Malformed),
        }
    }

    pub(super) fn encode(&self, w: &mut Writer) {
        write_bytes(w.u64(self.sn), &self.record());
    }

    pub(super) fn decode(r: &mut Reader<'_>) -> Result<Accusation, Malformed> {
        let sn = r.u64()?;
        Accusation::of_record(sn, read_bytes(r, limits::OPERATION_BYTES_MAX)?)
    }
}

/// As in `keys::threshold::evidence`.
const PUBLISHER: u8 = 2;
const PUBLISHER_LATER: u8 = 5;
/// As in `keys::threshold::sealed`.
const HEADER_VERSION: u8 = 1;
