//! Another outcome of a block than the others signed, in a form that convinces whoever has the genesis (E4).
//!
//! ```text
//! evidence = 3 ‖ u64 height ‖ word ‖ u16 count ‖ word …     the first word is the accused's; the others contradict it
//! word     = u16 broker ‖ state root ‖ outbox root ‖ signature over `executed` of the block
//! ```
//! Honest brokers sign one outcome of a block, and all the same one. So it convicts if the other words say one thing, and
//! not what the first one says, and are the accused's own, or those of f + 1 others, of whom one at least is honest. Of
//! what was published or came of it, which testimonies show, nothing is in it.

use std::collections::BTreeSet;

use sealcast_crypto::ed25519::Key;
use sealcast_crypto::signature::{SIGNATURE_LEN, Signature};
use sealcast_wire::{Malformed, Reader, Writer, limits};

use crate::genesis::Genesis;
use crate::receipt::Testimony;
use crate::state::executed;

/// Words of brokers on one block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contradiction {
    /// The block.
    pub height: u64,
    /// The accused's.
    pub word: BrokerStatement,
    /// What contradicts it.
    pub against: Vec<BrokerStatement>,
}

/// What one broker signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerStatement {
    /// Whose.
    pub broker: u16,
    /// The state after the block.
    pub state_root: [u8; 32],
    /// The root of its outbox.
    pub outbox_root: [u8; 32],
    /// The broker's.
    pub signature: Signature,
}

impl Contradiction {
    /// Of testimonies on one block; `None` if one of them does not hold together, or is of another block.
    pub fn of(accused: &Testimony, against: &[&Testimony]) -> Option<Contradiction> {
        let height = accused.height;
        let word = |it: &Testimony| (it.height == height).then(|| BrokerStatement::of(it))?;
        let against = against.iter().map(|it| word(it)).collect::<Option<_>>()?;
        Some(Contradiction { height, word: word(accused)?, against })
    }

    /// Whom it convicts; `None` if it convicts nobody.
    pub fn convicts(&self, genesis: &Genesis) -> Option<u16> {
        let (first, cluster) = (self.against.first()?, genesis.cluster());
        let says = |it: &BrokerStatement| (it.state_root, it.outbox_root);
        if says(first) == says(&self.word) || self.against.iter().any(|it| says(it) != says(first)) {
            return None;
        }
        let brokers: Vec<&[u8; 32]> = genesis.brokers.iter().collect();
        let others: BTreeSet<u16> = self.against.iter().map(|it| it.broker).collect();
        let own = others.len() == 1 && others.contains(&self.word.broker);
        let enough = others.len() > brokers.len().saturating_sub(1) / 3 && !others.contains(&self.word.broker);
        let signed = |it: &BrokerStatement| {
            let key = brokers.get(usize::from(it.broker)).and_then(|key| Key::new(key).ok());
            let message = executed(&cluster, self.height, &it.state_root, &it.outbox_root);
            key.is_some_and(|key| key.verify(&message, &it.signature))
        };
        let convicts = (own || enough) && self.against.iter().chain([&self.word]).all(signed);
        convicts.then_some(self.word.broker)
    }

    /// Its bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut w = Writer::new();
        self.word.encode(w.u8(FORM).u64(self.height));
        w.u16(u16::try_from(self.against.len()).expect("brokers have a limit"));
        self.against.iter().for_each(|it| it.encode(&mut w));
        w.finish()
    }

    /// Reads what [`Contradiction::to_bytes`] wrote.
    ///
    /// # Errors
    /// [`Malformed`]; also evidence of another form.
    pub fn from_bytes(bytes: &[u8]) -> Result<Contradiction, Malformed> {
        let mut r = Reader::new(bytes);
        if r.u8()? != FORM {
            return Err(Malformed);
        }
        let (height, word) = (r.u64()?, BrokerStatement::decode(&mut r)?);
        let count = r.count16(WORD_LEN, limits::BROKERS_MAX)?;
        let against = (0..count).map(|_| BrokerStatement::decode(&mut r)).collect::<Result<_, _>>()?;
        r.end()?;
        Ok(Contradiction { height, word, against })
    }
}

impl BrokerStatement {
    fn of(it: &Testimony) -> Option<BrokerStatement> {
        let (broker, state_root, signature) = (it.broker, it.state_root, it.signature);
        Some(BrokerStatement { broker, state_root, outbox_root: it.outbox_root()?, signature })
    }

    fn encode(&self, w: &mut Writer) {
        w.u16(self.broker).raw(&self.state_root).raw(&self.outbox_root).raw(&self.signature);
    }

    fn decode(r: &mut Reader<'_>) -> Result<BrokerStatement, Malformed> {
        let (broker, state_root, outbox_root) = (r.u16()?, r.array()?, r.array()?);
        Ok(BrokerStatement { broker, state_root, outbox_root, signature: r.array::<SIGNATURE_LEN>()? })
    }
}

/// Whom a record convicts; `None` if it convicts nobody. The cluster is not in it: of another one no signature holds.
pub fn judge(genesis: &Genesis, record: &[u8]) -> Option<u16> {
    Contradiction::from_bytes(record).ok()?.convicts(genesis)
}

/// Forms 1 and 2 are those of threshold shares: `sealcast_keys::threshold::evidence`.
pub const FORM: u8 = 3;
const WORD_LEN: usize = 2 + 32 + 32 + SIGNATURE_LEN;

#[cfg(test)]
mod tests {
    use sealcast_crypto::signature::OriginKey;

    use super::*;
    use crate::fixture::{World, origin_key};

    fn brokers(world: &World) -> Vec<OriginKey> {
        let mut keys: Vec<OriginKey> = (210..214).map(origin_key).collect();
        keys.sort_by_key(OriginKey::public_bytes);
        assert!(keys.iter().map(OriginKey::public_bytes).eq(world.genesis.brokers.iter().copied()));
        keys
    }

    fn word(world: &World, broker: u16, height: u64, state: u8) -> BrokerStatement {
        let (state_root, outbox_root) = ([state; 32], [7; 32]);
        let message = executed(&world.cluster, height, &state_root, &outbox_root);
        BrokerStatement {
            broker,
            state_root,
            outbox_root,
            signature: brokers(world)[usize::from(broker)].sign(&message),
        }
    }

    #[test]
    fn rule_e4_who_signs_two_outcomes_of_a_block_or_another_one_than_f_plus_1_is_convicted() {
        let world = World::new();
        let says = |broker, state| word(&world, broker, 9, state);
        let convicts = |word: BrokerStatement, against: Vec<BrokerStatement>| {
            let record = Contradiction { height: 9, word, against }.to_bytes();
            judge(&world.genesis, &record)
        };
        assert_eq!(convicts(says(2, 1), vec![says(2, 2)]), Some(2), "its own other word");
        assert_eq!(convicts(says(2, 1), vec![says(0, 2), says(3, 2)]), Some(2), "f + 1 others");
        assert_eq!(convicts(says(2, 1), vec![says(0, 2), says(1, 2), says(3, 2)]), Some(2));
        for (why, word, against) in [
            ("one other may be the liar", says(2, 1), vec![says(0, 2)]),
            ("one other twice is one", says(2, 1), vec![says(0, 2), says(0, 2)]),
            ("they say the same", says(2, 1), vec![says(0, 1), says(3, 1)]),
            ("the others say two things", says(2, 1), vec![says(0, 2), says(3, 3)]),
            ("its own is none of f + 1 others", says(2, 1), vec![says(0, 2), says(2, 2)]),
            ("nothing is said against it", says(2, 1), vec![]),
            ("nobody is broker 4", BrokerStatement { broker: 4, ..says(2, 1) }, vec![says(0, 2), says(3, 2)]),
            ("it is another's word", BrokerStatement { broker: 1, ..says(2, 1) }, vec![says(0, 2), says(3, 2)]),
            ("another's is put against it", says(2, 1), vec![BrokerStatement { broker: 2, ..says(0, 2) }]),
            ("of another block", word(&world, 2, 8, 1), vec![says(2, 2)]),
        ] {
            assert_eq!(convicts(word, against), None, "{why}");
        }
    }

    #[test]
    fn rule_e4_changed_or_cut_evidence_convicts_nobody() {
        let world = World::new();
        let says = |broker, state| word(&world, broker, 9, state);
        let it = Contradiction { height: 9, word: says(2, 1), against: vec![says(0, 2), says(3, 2)] };
        let record = it.to_bytes();
        assert_eq!(Contradiction::from_bytes(&record), Ok(it));
        assert_eq!(judge(&world.genesis, &record), Some(2));
        for i in 0..record.len() {
            let mut changed = record.clone();
            changed[i] ^= 1;
            assert_eq!(judge(&world.genesis, &changed), None, "byte {i}");
            assert_eq!(judge(&world.genesis, &record[..i]), None, "cut at {i}");
        }
        assert_eq!(judge(&world.genesis, &[&record[..], &[0]].concat()), None);
        let mut other = world.genesis.clone();
        other.name.push('s');
        assert_eq!(judge(&other, &record), None, "of another cluster");
    }
}
