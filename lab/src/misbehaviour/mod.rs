//! Misbehaviour has a name: one small actor each.
//!
//! Outsiders hold no certificate. Insiders are members whose program was changed. Who only dies, falls
//! silent or comes back again and again needs no actor: a script does that to a member.

mod captor;
mod center;
mod churner;
mod downgrader;
mod equivocator;
mod evicted;
mod flooder;
mod forger;
mod liar;
mod mls;
mod ordered;
mod relay;
mod replayer;
mod splitter;
mod twin;

use std::cell::Cell;
use std::collections::BTreeSet;

use sealcast_delivery::Delivery;
use sealcast_keys::Keys;
use sealcast_keys::center::misbehaving::MessageKind;
use sealcast_keys::center::query;
use sealcast_keys::contributory::misbehaving::{Claim, Collision, Lie, Rule};
use sealcast_sim::dice::Dice;
use sealcast_sim::{Birth, Records};
use sealcast_wire::frame::{KIND_OPEN, MAGIC};
use sealcast_wire::{CertHash, Now};

use crate::scenarios::center::CenterRobot;
use crate::scenarios::contributory::Robot;
use crate::scenarios::fixture::Player;

/// Who misbehaves, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Misbehaviour {
    /// An outsider who sends again what it heard, at once and much later.
    Replayer,
    /// An outsider who sends bytes of every form that it can think of, and changed copies of what it heard.
    Forger,
    /// An outsider who sends as much as it can.
    Flooder,
    /// A member who says each of its words many times, and much under the bootstrap key that means nothing.
    FlooderInside,
    /// A member who tells half of the others another story than the other half.
    Equivocator,
    /// A member who is evicted, and neither stops sealing with the old keys nor trying to read.
    EvictedInsider,
    /// A holder of a certificate who answers each JOIN by a proposal on an epoch that nobody can check.
    Captor {
        /// Whom it hears and speaks to; everybody if there is none.
        target: Option<usize>,
        /// What it says of the epoch.
        claim: Claim,
    },
    /// A member who says one thing to one of the others, and another one to the rest.
    Splitter {
        /// What it says to the rest.
        lie: Lie,
        /// Who hears the truth; nobody, if it is no member.
        told_truth: usize,
        /// How many members there are.
        members: usize,
    },
    /// A holder of a certificate that has two cards under one short id, and shows some the one and some the other.
    Twin {
        /// How many members there are.
        members: usize,
    },
    /// A member who strips versions of the wire from what others say, and proposes epochs of a lower one than all speak.
    Downgrader,
    /// A member whose keys come from a centre, and who lies to the others.
    CenterLiar(CenterLie),
    /// A member of a group that orders, who lies about the order.
    Orders(OrderLie),
    /// A leader who is revoked, goes on leading, and captures whoever comes.
    RevokedLeader,
    /// The centre lies, or somebody is in its place.
    FalseKdc(KdcLie),
    /// A member of an MLS group who lies to the others.
    OfMls(MlsLie),
    /// The relay lies, and has the key that members pin.
    FalseRelay(RelayLie),
    /// A member who joins, wants new keys, and leaves without end, each time as another run.
    Churner {
        /// How far ahead of the last epoch each of its runs claims to be.
        ahead: Option<u32>,
    },
}

use liar::Liar;

pub use center::{CenterLie, KdcLie};
pub use mls::{MlsLie, MlsRobot};
pub use ordered::{OrderLie, OrderingRobot};
pub use relay::RelayLie;

/// Makes a process of the member that an insider was, which keeps all rules but these.
pub type Make = Box<dyn Fn(Now, [u8; 32], &'static [Rule]) -> Robot>;

/// Somebody outside.
pub fn outsider(kind: Misbehaviour, seed: [u8; 32]) -> Birth<Player> {
    Box::new(move |now, _| {
        let dice = dice_of(seed, 0);
        match kind {
            Misbehaviour::Replayer => Box::new(replayer::Replayer::new(now, dice)),
            Misbehaviour::Forger => Box::new(forger::Forger::new(now, dice)),
            _ => Box::new(flooder::Flooder::new(now, dice)),
        }
    })
}

/// Somebody inside, who knows the others by their certificates; `None` if that misbehaviour needs no membership.
pub fn insider(
    member: usize,
    kind: Misbehaviour,
    seed: [u8; 32],
    make: Make,
    cert: &dyn Fn(usize) -> CertHash,
) -> Option<Birth<Player>> {
    let dice = dice_of(seed, 1);
    match kind {
        Misbehaviour::FlooderInside => {
            Some(Box::new(move |now, _| Box::new(flooder::Inside::new(make(now, seed, &[]), dice.clone()))))
        }
        Misbehaviour::Equivocator => Some(Box::new(move |now, _| {
            Box::new(equivocator::Equivocator::new(make(now, seed, &[]), make(now, seed, &[])))
        })),
        Misbehaviour::Downgrader => Some(Box::new(move |now, _| {
            let first = now.monotonic + downgrader::EVERY;
            Box::new(Liar::acting(make(now, seed, &[]), downgrader::Downgrader, first, downgrader::EVERY))
        })),
        Misbehaviour::EvictedInsider => Some(Box::new(move |now, _| {
            Box::new(evicted::Insider::new(Box::new(make(now, seed, &[])), member, Box::new(|_| false)))
        })),
        Misbehaviour::Captor { target, claim } => {
            let target = target.map(|node| (node, cert(node)));
            Some(Box::new(move |now, _| {
                let robot = make(now, seed, &[Rule::Proof, Rule::Caution]);
                Box::new(Liar::new(robot, captor::Captor::new(target, claim)))
            }))
        }
        Misbehaviour::Splitter { lie, told_truth, members } => Some(Box::new(move |now, _| {
            let lie = splitter::Splitter::new(lie, told_truth, others(member, members));
            Box::new(Liar::new(make(now, seed, &[]), lie))
        })),
        Misbehaviour::Twin { members } => {
            let mine = cert(member);
            Some(Box::new(move |now, _| {
                let twin = twin::Twin::new(Collision::plant(mine), &others(member, members));
                Box::new(Liar::acting(make(now, seed, &[]), twin, now.monotonic, twin::EVERY))
            }))
        }
        Misbehaviour::Churner { ahead } => {
            let make = std::rc::Rc::new(make);
            Some(Box::new(move |now, _| {
                let (robot, churner) = churner::Churner::new(now, make.clone(), dice.clone(), ahead);
                Box::new(Liar::acting(robot, churner, now.monotonic + churner::EVERY, churner::EVERY))
            }))
        }
        Misbehaviour::Replayer
        | Misbehaviour::Forger
        | Misbehaviour::Flooder
        | Misbehaviour::CenterLiar(_)
        | Misbehaviour::Orders(_)
        | Misbehaviour::RevokedLeader
        | Misbehaviour::FalseKdc(_)
        | Misbehaviour::OfMls(_)
        | Misbehaviour::FalseRelay(_) => None,
    }
}

/// Makes a process of a member of a group that orders.
pub type MakeOrdering<K> = Box<dyn Fn(Now) -> OrderingRobot<K>>;

/// Somebody in a group that orders; `None` if there is no such misbehaviour there.
pub fn ordering<K: Keys + 'static>(kind: Misbehaviour, make: MakeOrdering<K>) -> Option<Birth<Player>> {
    let Misbehaviour::Orders(lie) = kind else { return None };
    Some(Box::new(move |now, _| match lie {
        OrderLie::TellsTwo => Box::new(ordered::TwoOrders::new(make(now), make(now))),
        lie => {
            let first = now.monotonic + ordered::EVERY;
            Box::new(Liar::acting(make(now), ordered::OrderLiar::new(lie), first, ordered::EVERY))
        }
    }))
}

/// Makes a process of a member whose keys come from a centre.
pub type MakeCentered = Box<dyn Fn(Now) -> CenterRobot>;

/// Somebody in a group whose keys come from a centre, or the centre; `None` if there is no such misbehaviour there.
pub fn centered(member: usize, kind: Misbehaviour, make: MakeCentered, certs: Vec<CertHash>) -> Option<Birth<Player>> {
    match kind {
        Misbehaviour::CenterLiar(lie) => Some(Box::new(move |now, _| {
            let victim = if let CenterLie::Steals { whom } = lie { certs[whom] } else { CertHash::default() };
            let first = now.monotonic + center::EVERY;
            Box::new(Liar::acting(make(now), center::CenterLiar::new(lie, victim), first, center::EVERY))
        })),
        Misbehaviour::RevokedLeader => Some(Box::new(move |now, _| {
            let (reader, me, is_out) = (make(now), certs[member], Cell::new(false));
            // A stand-by proposes a view without it; from then on the centre would tell it, too.
            let ignores = move |datagram: &[u8]| {
                let Some(message) = open_message(datagram) else { return false };
                let kind = reader.group().keys().inner().read(message);
                let ends = matches!(kind, Some(MessageKind::Propose)) || kind == Some(MessageKind::Dismiss(me));
                is_out.set(is_out.get() || ends);
                ends || is_out.get() && message.starts_with(&query::MAGIC)
            };
            Box::new(evicted::Insider::new(Box::new(make(now)), member, Box::new(ignores)))
        })),
        Misbehaviour::FalseKdc(lie) => {
            Some(Box::new(move |_, records| Box::new(center::FalseKdc::new(records, lie, certs.clone()))))
        }
        _ => None,
    }
}

/// Somebody in an MLS group, as `make` makes it where its engine judges nothing or as ours does; `None` if there is no such
/// misbehaviour there.
pub fn of_mls<D: Delivery + 'static>(
    kind: Misbehaviour,
    make: impl Fn(Now, &Records, bool) -> MlsRobot<D> + 'static,
    cert: fn(usize) -> CertHash,
) -> Option<Birth<Player>> {
    let Misbehaviour::OfMls(lie) = kind else { return None };
    Some(Box::new(move |now, records| {
        let (robot, first) = (make(now, records, lie.judges_nothing()), now.monotonic + mls::EVERY);
        Box::new(Liar::acting(robot, mls::MlsLiar::new(lie, cert), first, mls::EVERY))
    }))
}

/// A relay of so many members that lies; `None` if that misbehaviour is none of a relay.
pub fn false_relay(kind: Misbehaviour, members: usize, seed: [u8; 32]) -> Option<Birth<Player>> {
    let Misbehaviour::FalseRelay(lie) = kind else { return None };
    let dice = dice_of(seed, 2);
    Some(Box::new(move |now, records| Box::new(relay::FalseRelay::new(now, records, lie, members, dice.clone()))))
}

/// Chance that follows from the seed of a process.
fn dice_of(seed: [u8; 32], stream: u64) -> Dice {
    Dice::new(u64::from_be_bytes(seed[..8].try_into().expect("a seed has 32 bytes")), stream)
}

fn others(member: usize, members: usize) -> BTreeSet<usize> {
    (0..members).filter(|m| *m != member).collect()
}

/// What lies under the bootstrap key in a datagram of the key scheme.
pub(crate) fn open_message(datagram: &[u8]) -> Option<&[u8]> {
    datagram.strip_prefix(&[MAGIC, KIND_OPEN])
}

/// The datagram of a message of the key scheme.
pub(crate) fn as_open(sealed_message: &[u8]) -> Vec<u8> {
    [&[MAGIC, KIND_OPEN][..], sealed_message].concat()
}
