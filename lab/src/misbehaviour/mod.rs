//! Misbehaviour has a name: one small actor each.
//!
//! Outsiders hold no certificate. Insiders are members whose program was changed. Who only dies, falls
//! silent or comes back again and again needs no actor: a script does that to a member.

mod equivocator;
mod evicted;
mod flooder;
mod forger;
mod replayer;

use sealcast_wire::Now;

use crate::scenarios::company::Player;
use crate::scenarios::contributory::Robot;
use crate::sim::Birth;
use crate::sim::dice::Dice;

/// Who misbehaves, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Misbehaviour {
    /// An outsider who sends again what it heard, at once and much later.
    Replayer,
    /// An outsider who sends bytes of every form that it can think of, and changed copies of what it heard.
    Forger,
    /// An outsider who sends as much as it can.
    Flooder,
    /// A member who says each of its words many times, and much under the veil that means nothing.
    FlooderInside,
    /// A member who tells half of the others another story than the other half.
    Equivocator,
    /// A member who is evicted, and neither stops sealing with the old keys nor trying to read.
    EvictedInsider,
}

/// Makes a well-behaved process of the member that an insider was.
pub type Make = Box<dyn Fn(Now, [u8; 32]) -> Robot>;

/// Somebody outside.
pub fn outsider(kind: Misbehaviour, seed: [u8; 32]) -> Birth<Player> {
    Box::new(move |now, _| {
        let dice = Dice::new(u64::from_be_bytes(seed[..8].try_into().expect("a seed has 32 bytes")), 0);
        match kind {
            Misbehaviour::Replayer => Box::new(replayer::Replayer::new(now, dice)),
            Misbehaviour::Forger => Box::new(forger::Forger::new(now, dice)),
            _ => Box::new(flooder::Flooder::new(now, dice)),
        }
    })
}

/// Somebody inside; `None` if that misbehaviour needs no membership.
pub fn insider(member: usize, kind: Misbehaviour, seed: [u8; 32], make: Make) -> Option<Birth<Player>> {
    let dice = Dice::new(u64::from_be_bytes(seed[..8].try_into().expect("a seed has 32 bytes")), 1);
    match kind {
        Misbehaviour::FlooderInside => {
            Some(Box::new(move |now, _| Box::new(flooder::Inside::new(make(now, seed), dice.clone()))))
        }
        Misbehaviour::Equivocator => {
            Some(Box::new(move |now, _| Box::new(equivocator::Equivocator::new(make(now, seed), make(now, seed)))))
        }
        Misbehaviour::EvictedInsider => {
            Some(Box::new(move |now, _| Box::new(evicted::Insider::new(make(now, seed), member))))
        }
        Misbehaviour::Replayer | Misbehaviour::Forger | Misbehaviour::Flooder => None,
    }
}
