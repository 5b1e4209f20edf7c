//! Members of another epoch than ours, led there by somebody who is excluded.
//!
//! Who was evicted and has the bootstrap key can answer a newcomer first, and lead it into a fork of the group, or a group of its
//! own, that it reads. What the newcomer then has ordered is void for the others. A member that finds such a message in the order
//! says whom its group excludes (WARNING): statements that are signed by those who may exclude. Who hears that somebody
//! of its own group is excluded seals nothing any more, and looks for a group without that one.

use std::collections::BTreeSet;
use std::time::Duration;

use rand_core::Rng as _;
use sealcast_crypto::hash::sha256;
use sealcast_wire::{Dropped, Monotonic, Now, To, limits};

use super::certificates::Trust;
use super::engine::Engine;
use super::message::Message;
use super::scheme::{Mls, Timer};

/// What members say about those whom the group excludes.
#[derive(Default)]
pub(super) struct Astray {
    /// When we said it last.
    said: Option<Monotonic>,
    /// Hashes of ours that others said since somebody was found astray.
    heard: BTreeSet<[u8; 32]>,
    /// Statements that were verified in the second that began then.
    verified: (Monotonic, u32),
    /// Until then we look for the right group, before we exclude anybody from ours.
    seeks: Monotonic,
}

impl<E: Engine> Mls<E> {
    /// Something ordered is void here, and may count for somebody astray.
    pub(super) fn note_astray(&mut self, now: Now) {
        if self.timers.is_set(Timer::Astray) || self.exclusions().is_empty() {
            return;
        }
        let Some(inside) = self.inside() else { return };
        let members = u32::try_from(inside.members.len()).unwrap_or(u32::MAX);
        let spread = SPREAD.saturating_mul(members).min(SPREAD_MOST);
        let spread = spread.mul_f64(f64::from(self.rng.next_u32()) / f64::from(u32::MAX));
        let next = self.astray.said.map_or(now.monotonic, |at| now.monotonic.max(at + SAID_EVERY));
        self.astray.heard.clear();
        self.timers.set(Timer::Astray, next + self.paced(SAID_AFTER + spread));
    }

    /// Says whom the group excludes, as far as nobody else has said it.
    pub(super) fn warn_astray(&mut self, now: Now) {
        let heard = std::mem::take(&mut self.astray.heard);
        let mut statements: Vec<Vec<u8>> = Vec::new();
        let mut bytes = 0;
        for it in self.exclusions().into_iter().filter(|it| !heard.contains(&sha256(it))) {
            if bytes + it.len() > limits::MLS_PIECE_BYTES && !statements.is_empty() {
                let part = std::mem::take(&mut statements);
                self.tell(To::Group, &Message::Warning(part));
                bytes = 0;
            }
            bytes += it.len();
            statements.push(it);
        }
        if !statements.is_empty() {
            self.tell(To::Group, &Message::Warning(statements));
        }
        self.astray.said = Some(now.monotonic);
    }

    /// Statements of eviction and the list of our group. Complaints are none of those who may exclude.
    fn exclusions(&self) -> Vec<Vec<u8>> {
        let trust = self.inside().and_then(|it| self.judge.trust(&it.engine.context().extensions).ok());
        let Some(trust) = trust else { return Vec::new() };
        let mut of = Trust::new(&self.group);
        (of.crl, of.evictions) = (trust.crl.clone(), trust.evictions.clone());
        of.statements()
    }

    /// Somebody says whom its group excludes.
    pub(super) fn hear_warning(&mut self, now: Now, statements: &[Vec<u8>]) -> Result<(), Dropped> {
        let known: BTreeSet<[u8; 32]> = self.known.statements().iter().map(|it| sha256(it)).collect();
        for it in statements {
            let hash = sha256(it);
            if known.contains(&hash) {
                self.astray.heard.insert(hash);
                continue;
            }
            if now.monotonic.since(self.astray.verified.0) >= VERIFIED_IN {
                self.astray.verified = (now.monotonic, 0);
            }
            if self.astray.verified.1 >= VERIFIED_MOST {
                return Err(Dropped::Queue);
            }
            self.astray.verified.1 += 1;
            // Not when it is said again: that must not keep ours from excluding somebody.
            if self.learn_now(now, it) {
                self.astray.seeks = now.monotonic + SEEKS_FOR;
            }
        }
        self.seek_others(now);
        Ok(())
    }

    /// While somebody of our group is known to be excluded, there may be a group without that one.
    fn seek_others(&mut self, now: Now) {
        if self.has_excluded()
            && let Some(inside) = self.inside_mut().filter(|it| !it.behind)
        {
            (inside.behind, inside.tries) = (true, 0);
            self.timers.sooner(Timer::Want, now.monotonic);
        }
    }

    /// Whether we look for the right group.
    pub(super) fn seeks(&self, now: Now) -> bool {
        now.monotonic < self.astray.seeks
    }

    /// Whether a group has nobody for a member whom we know to be excluded.
    pub(super) fn is_clean(&self, engine: &E) -> bool {
        let members = engine.members();
        let mut members = members.iter().filter_map(|(_, claim)| self.judge.verify(claim).ok());
        members.all(|it| !self.known.excludes(&it))
    }
}

/// A commit that lost a race is made anew before.
const SAID_AFTER: Duration = Duration::from_secs(1);
/// Members speak one after the other, and those later say nothing.
const SPREAD: Duration = Duration::from_millis(50);
const SPREAD_MOST: Duration = Duration::from_secs(10);
/// How often one member says it.
const SAID_EVERY: Duration = Duration::from_secs(10);
/// So many statements that it does not know a member verifies in so long.
const VERIFIED_MOST: u32 = 64;
const VERIFIED_IN: Duration = Duration::from_secs(1);
/// Shorter than the time after which a removal is withheld: then what is known is committed.
const SEEKS_FOR: Duration = Duration::from_secs(25);
