//! A scheme whose members hold one secret from the beginning, and know each other by name: one epoch, and no messages.
//!
//! A process that starts again has the same key, so it draws where its counter begins (G4): in 2⁴⁰ the chance that two of its
//! runs meet is small enough for a mock. Nobody can be evicted.

use std::collections::VecDeque;
use std::sync::Arc;

use sealcast_crypto::hash::sha256;
use sealcast_crypto::kdf::hkdf;
use sealcast_crypto::secret::Secret;
use sealcast_keys::plain::Everything;
use sealcast_keys::{
    Command, CommandError, Exclusion, HandleError, Input, Keys, Output, Properties, Seal, SealError, Sealed,
};
use sealcast_wire::{CertHash, Change, Dropped, EpochId, Incarnation, Member, MemberId, Monotonic, Now, Slot, View};

use super::protect::MockProtect;

/// The machine.
pub struct Preshared {
    outputs: VecDeque<Output>,
}

impl Preshared {
    /// The member of this name among these, whose process has this chance of its own.
    ///
    /// # Panics
    /// If it is none of them.
    pub fn new(name: &str, roster: &[String], seed: [u8; 32]) -> Preshared {
        let incarnation = Incarnation::default();
        let member =
            |name: &String| Member { id: MemberId { cert: cert(name), incarnation }, name: name.as_str().into() };
        let mut members: Vec<Member> = roster.iter().map(member).collect();
        members.sort_by_key(|member| member.id);
        let me = members.iter().position(|member| *member.name == *name).expect("a member knows its group");
        let view = View::new(None, EPOCH, members.into_iter().collect(), Slot(me as u32), Change::Formed);
        let secret: Secret<32> = hkdf(b"what all members hold", b"", &[b"sealcast/mock/preshared"]);
        let first = u64::from_be_bytes(*seed.first_chunk().expect("a seed has 32 bytes")) >> 24;
        let protect = Arc::new(MockProtect::new(&view, &secret).starting_at(first));
        let epoch = Output::Epoch { view, protect: Some(protect), access: Arc::new(Everything) };
        Preshared { outputs: VecDeque::from([epoch]) }
    }
}

impl Keys for Preshared {
    fn properties(&self) -> Properties {
        Properties::ANY
    }

    fn handle(&mut self, _now: Now, input: Input<'_>) -> Result<(), HandleError> {
        match input {
            Input::Command(Command::Leave) => {
                self.outputs.push_back(Output::Excluded { why: Exclusion::Left });
                Ok(())
            }
            Input::Command(_) => Err(CommandError::Unsupported.into()),
            Input::Message { .. } => Err(Dropped::Foreign.into()),
            // Nothing is sent, fetched, prepared or sealed as a whole, and who is silent stays a member.
            Input::Delivered(_)
            | Input::Outcome(..)
            | Input::InForce(_)
            | Input::Passed(_)
            | Input::Ends
            | Input::Fetched(..)
            | Input::PackagesKept(_)
            | Input::Suspected(_)
            | Input::Slow(_)
            | Input::Flushed(..)
            | Input::Up
            | Input::Describe => Ok(()),
        }
    }

    fn seal(&mut self, _message: &Seal<'_>) -> Result<Sealed, SealError> {
        Err(SealError::PerDatagram)
    }

    fn has_capacity(&self, _bytes: usize) -> bool {
        true
    }

    fn timeout(&self) -> Option<Monotonic> {
        None
    }

    fn handle_timeout(&mut self, _now: Now) {}

    fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }
}

/// The certificate of a member, which stands for its name.
pub fn cert(name: &str) -> CertHash {
    CertHash(sha256(name.as_bytes()))
}

const EPOCH: EpochId = EpochId { counter: 1, hash: 0 };
