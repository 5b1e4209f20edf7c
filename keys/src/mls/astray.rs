//! Newcomers whom somebody that is excluded led astray.
//!
//! Who was evicted and has the bootstrap key can answer a newcomer first, and lead it into an epoch that it still reads. The
//! newcomer's commit stands in the order, where it is void. A member that finds it there shows its author the way; the group context
//! on that way says whom the group excludes, signed by those who may. A newcomer that sees that somebody of its own group
//! is excluded there comes in anew, by that way, and by no other one that leads to whom it was warned of.

use std::collections::BTreeMap;
use std::time::Duration;

use sealcast_crypto::identity::Verified;
use sealcast_wire::{CertHash, Monotonic, Now, To, limits};

use super::certificates::Trust;
use super::engine::Engine;
use super::judge::Extension;
use super::message::Card;
use super::scheme::{Mls, Timer, slot};

/// What a member knows of newcomers that lost their way, and of its own one.
#[derive(Default)]
pub(super) struct Astray {
    /// Whose commit on an epoch that is over stands in the order, and in which run it made it.
    newcomers: BTreeMap<CertHash, u64>,
    /// When we came in, in this run; until [`WARNED_FOR`] later a member can warn us.
    came: Option<Monotonic>,
    /// How many warnings were looked at.
    heard: u32,
    /// Whom we were warned of.
    warning: Option<Trust>,
}

impl<E: Engine> Mls<E> {
    /// A commit of an epoch that is over: a newcomer may believe that it won, where somebody is excluded who can say so.
    pub(super) fn note_astray(&mut self, now: Now, cards: &[Card]) {
        let [card] = cards else { return };
        let trust = self.inside().and_then(|it| self.judge.trust(&it.engine.context().extensions).ok());
        let excludes = trust.is_some_and(|it| !it.evictions.is_empty() || it.crl.is_some());
        if excludes && self.astray.newcomers.len() < limits::MLS_ANSWERS_MAX {
            self.astray.newcomers.insert(card.id.cert, card.run);
            self.timers.sooner(Timer::Astray, now.monotonic + self.paced(SHOWN_AFTER));
        }
    }

    /// Shows those the way that did not come in meanwhile. Of all members, two do so.
    pub(super) fn show_astray(&mut self, now: Now) {
        for (cert, run) in std::mem::take(&mut self.astray.newcomers) {
            let Some(inside) = self.inside().filter(|it| it.entering.is_none()) else { return };
            let own = slot(inside.engine.own_leaf());
            let is_in = inside.cards.get(&cert).is_some_and(|it| it.run >= run);
            if !is_in && (0..2).any(|tries| inside.drawn(&cert, tries) == Some(own)) && self.may_answer(now, cert) {
                self.show_way(now, To::Group, cert);
            }
        }
    }

    /// We came in.
    pub(super) fn came(&mut self, now: Now) {
        (self.astray.came, self.astray.heard) = (Some(now.monotonic), 0);
    }

    /// Whether a way into another epoch is looked at though we are inside: each costs a tree.
    pub(super) fn hears_warning(&mut self, now: Now) -> bool {
        let is_new = self.astray.came.is_some_and(|at| now.monotonic.since(at) < WARNED_FOR);
        let hears = is_new && self.astray.heard < WARNINGS_MAX;
        self.astray.heard += u32::from(hears);
        hears
    }

    /// Whether a group excludes somebody of ours: then ours is not the one of today. Complaints do not count, which are no
    /// statements of those who may exclude.
    pub(super) fn is_warned_by(&mut self, extensions: &[Extension]) -> bool {
        let (Some(inside), Ok(trust)) = (self.inside(), self.judge.trust(extensions)) else { return false };
        let mut warning = Trust::new(&self.group);
        (warning.crl, warning.evictions) = (trust.crl.clone(), trust.evictions.clone());
        let is_out = |it: &std::sync::Arc<Verified>| warning.excludes(it);
        let warned = inside.members.values().any(is_out);
        if warned {
            // Whom our group excluded is not in the right one either.
            self.known = self.known.with(&warning);
            (warning.crl, warning.evictions) = (self.known.crl.clone(), self.known.evictions.clone());
            self.astray.warning = Some(warning);
        }
        warned
    }

    /// Whether a way leads to somebody of whom we were warned.
    pub(super) fn was_warned_of(&self, engine: &E) -> bool {
        let Some(warning) = &self.astray.warning else { return false };
        let members = engine.members();
        let members = members.iter().filter_map(|(_, claim)| self.judge.verify(&claim.credential).ok());
        members.into_iter().any(|it| warning.excludes(&it))
    }
}

/// A commit that lost a race is asked about by its author before.
const SHOWN_AFTER: Duration = Duration::from_secs(1);
/// So long after it came in, a member can be warned.
const WARNED_FOR: Duration = Duration::from_secs(600);
const WARNINGS_MAX: u32 = 4;
