//! Members of an MLS group with a changed program: their certificates are valid, and what they say is well-formed.

use std::time::Duration;

use sealcast_delivery::Delivery;
use sealcast_keys::mls::Mls;
use sealcast_keys::mls::engine::mls_rs::MlsRs;
use sealcast_sim::Effect;
use sealcast_wire::{CertHash, Now};

use super::liar::{Inside, Lies};
use super::open_message;
use crate::member::{Member, MemberEvent};

/// A member of an MLS group.
pub type MlsRobot<D> = Member<Mls<MlsRs>, D>;

/// How a member of an MLS group lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MlsLie {
    /// It has void messages ordered.
    AppendsGarbage,
    /// It makes two commits of each epoch, and has each of them ordered twice.
    CommitsTwice,
    /// It removes this member, and everybody, without the right to.
    Removes {
        /// Whom.
        whom: usize,
    },
    /// It has many proposals ordered.
    Proposes,
    /// It makes commits whose path half of the others cannot open.
    SpoilsHalf,
    /// It makes commits whose path nobody else can open.
    SpoilsAll,
    /// It complains of all commits of others, each of which it could open.
    Complains,
    /// It sends nobody a Welcome whom it lets in.
    KeepsWelcomes,
    /// It is evicted, and commits itself in all the same.
    Rejoins,
}

impl MlsLie {
    /// Whether its engine makes commits that no honest one makes.
    pub(super) fn judges_nothing(self) -> bool {
        matches!(self, MlsLie::Removes { .. } | MlsLie::Rejoins)
    }
}

/// See the module.
pub(super) struct MlsLiar {
    lie: MlsLie,
    victim: CertHash,
    /// Whose certificate a member's is.
    cert: fn(usize) -> CertHash,
}

impl MlsLiar {
    pub(super) fn new(lie: MlsLie, cert: fn(usize) -> CertHash) -> MlsLiar {
        let victim = if let MlsLie::Removes { whom } = lie { cert(whom) } else { CertHash::default() };
        MlsLiar { lie, victim, cert }
    }
}

impl<D: Delivery> Lies<MlsRobot<D>> for MlsLiar {
    fn effect(&mut self, _now: Now, member: &mut Inside<MlsRobot<D>>, effect: Effect<MemberEvent>) {
        if let Effect::Send { datagram, .. } = &effect
            && self.lie == MlsLie::KeepsWelcomes
            && open_message(datagram).is_some_and(|it| member.robot.group().keys().inner().is_welcome(it))
        {
            return;
        }
        // It follows neither of its commits, or it alone: what it delivers then is not what the others do.
        let is_apart = matches!(self.lie, MlsLie::CommitsTwice | MlsLie::SpoilsHalf | MlsLie::SpoilsAll);
        if is_apart && matches!(effect, Effect::Tell(MemberEvent::Delivered(_))) {
            return;
        }
        member.effects.push_back(effect);
    }

    fn act(&mut self, now: Now, member: &mut Inside<MlsRobot<D>>) {
        member.robot.with_keys(now, |keys| match self.lie {
            MlsLie::AppendsGarbage => keys.append_garbage(now),
            MlsLie::CommitsTwice => keys.commit_twice(now),
            MlsLie::Removes { .. } => keys.remove_without_right(now, self.victim),
            MlsLie::Proposes => keys.flood_proposals(now, PROPOSALS),
            MlsLie::SpoilsHalf => keys.commit_bad_path(now, Some(&[(self.cert)(0), (self.cert)(1)])),
            MlsLie::SpoilsAll => keys.commit_bad_path(now, None),
            MlsLie::Complains => keys.complain_falsely(),
            MlsLie::KeepsWelcomes | MlsLie::Rejoins => {}
        });
    }
}

/// From one lie of its own to the next.
pub(super) const EVERY: Duration = Duration::from_millis(500);
/// How many proposals at once.
const PROPOSALS: usize = 20;
