//! What a member in no group waits for before it believes that it found one.
//!
//! A newcomer knows nothing: whoever answers its JOIN first may have been evicted while it was away, or make up an epoch
//! that does not exist. It therefore follows on an epoch only if two of its members sign that they are in it or confirmed
//! it (see [`super::attempt::Attempt::is_proven`]), and does not go beyond the first round of another agreement before
//! others had the time to answer, nor while a member of a group is heard that is not in it. Until then it has no key, and
//! seals nothing; what it learns meanwhile of evictions ends the agreement.

use std::sync::Arc;

use sealcast_wire::{Monotonic, Now, limits};

use super::attempt::Attempt;
use super::message::{Base, ShortId};
use super::people::Person;
use super::timing::{self, Timer};
use super::{Contributory, Elsewhere, Strike};

impl Contributory {
    /// A verified sign of somebody that is in a group, or says so.
    pub(super) fn hear_elsewhere(&mut self, now: Now, person: &Arc<Person>) {
        if self.statements.excludes(&person.cert) {
            return;
        }
        if self.is_grouped() {
            let is_in = self.installed_members().is_some_and(|it| it.find(&person.id.cert).is_some());
            return self.apart = Some(person.id.cert).filter(|_| !is_in).or(self.apart);
        }
        let at = now.monotonic;
        if self.elsewhere.len() >= limits::REMEMBERED_PEOPLE_MAX && !self.elsewhere.contains_key(&person.id.cert) {
            let oldest = self.elsewhere.iter().min_by_key(|(_, e)| e.last).map(|(cert, _)| *cert);
            oldest.map(|cert| self.elsewhere.remove(&cert));
        }
        let new = Elsewhere { person: person.clone(), first: at, last: at };
        let known = self.elsewhere.entry(person.id.cert).or_insert(new);
        if at.since(known.last) > timing::ELSEWHERE_FORGOTTEN {
            known.first = at;
        }
        known.last = at;
    }

    /// Until when an attempt that has all of its first round waits for others that may let us in; `None`: no longer.
    pub(super) fn hears_others_first(&self, now: Now, attempt: &Attempt) -> Option<Monotonic> {
        #[cfg(any(test, feature = "misbehaving"))]
        if self.lacks(super::misbehaving::Rule::Caution) {
            return None;
        }
        let content = &attempt.proposal.content;
        if self.is_grouped() || content.base.is_some() || attempt.seats() == 1 {
            return None;
        }
        let answered = if attempt.seats() == 2 { timing::ANSWERED_PAIR } else { timing::ANSWERED };
        let since_asked = self.asked.map_or(now.monotonic, |asked| asked + answered);
        let end = |e: &Elsewhere| (e.last + timing::ELSEWHERE).min(e.first + self.config.detect * 2);
        let heard = self.outside(now, attempt).map(end).fold(since_asked, Monotonic::max);
        Some(heard).filter(|until| *until > now.monotonic)
    }

    /// Whether an attempt of two newcomers may still wait for a group's answer, at the other one if not here.
    pub(super) fn waits_as_pair(&self, now: Now, attempt: &Attempt) -> bool {
        let first = !self.is_grouped() && attempt.proposal.content.base.is_none() && !attempt.is_confirming();
        first && attempt.seats() == 2 && now.monotonic < attempt.started + timing::ANSWERED_PAIR
    }

    /// Members of groups of whom we heard while in none, and that are not in this attempt.
    pub(super) fn outside(&self, now: Now, attempt: &Attempt) -> impl Iterator<Item = &Elsewhere> {
        let seats = &attempt.proposal.content.seats;
        let is_in = |e: &Elsewhere| {
            let of_cert = |s: &ShortId| self.people.get(s).is_some_and(|p| p.id.cert == e.person.id.cert);
            seats.iter().any(of_cert)
        };
        let counts = move |p: &Person| !self.statements.excludes(&p.cert) && !self.is_doubted(now, p);
        self.elsewhere.values().filter(move |e| !is_in(e) && counts(&e.person))
    }

    /// This proposer's epoch was not vouched for: it is not followed for a while, that doubles each time.
    pub(super) fn doubt(&mut self, now: Now, proposer: ShortId) {
        let by_mistake = self.by_mistake();
        let Some(person) = self.people.get(&proposer) else { return };
        let doubt = self.doubted.entry(person.id.cert).or_insert(Strike { count: 0, until: now.monotonic });
        // Loss can make an honest member's epoch look made up, but not again and again.
        let most = if doubt.count < timing::MISTAKES { by_mistake } else { timing::STRIKE_MAX };
        doubt.until = now.monotonic + (timing::DOUBT * (1 << doubt.count.min(7))).min(most);
        doubt.count = doubt.count.saturating_add(1);
        if self.doubted.len() > limits::REMEMBERED_PEOPLE_MAX {
            let first = self.doubted.iter().min_by_key(|(_, d)| d.until).map(|(cert, _)| *cert);
            first.map(|cert| self.doubted.remove(&cert));
        }
    }

    /// Whether a proposer that names us named one epoch to follow on after the other: a group may move on while somebody
    /// joins it, but not again and again. It is not followed for a while, then.
    pub(super) fn wavers(&mut self, now: Now, proposer: ShortId, base: Base) -> bool {
        let Some(person) = self.people.get(&proposer).filter(|_| !self.is_grouped()) else { return false };
        let new = (base, Strike { count: 1, until: now.monotonic });
        let (last, named) = self.named_bases.entry(person.id.cert).or_insert(new);
        let count = if named.until > now.monotonic { named.count } else { 1 };
        let count = count + u32::from(*last != base);
        (*last, *named) = (base, Strike { count, until: now.monotonic + timing::DOUBT });
        if self.named_bases.len() > limits::REMEMBERED_PEOPLE_MAX {
            let first = self.named_bases.iter().min_by_key(|(_, (_, n))| n.until).map(|(cert, _)| *cert);
            first.map(|cert| self.named_bases.remove(&cert));
        }
        if count > timing::BASES_NAMED {
            self.doubt(now, proposer);
        }
        count > timing::BASES_NAMED
    }

    /// Whether what this one says of an epoch that is not ours does not count now.
    pub(super) fn is_doubted(&self, now: Now, person: &Person) -> bool {
        self.doubted.get(&person.id.cert).is_some_and(|d| d.until > now.monotonic)
    }

    /// Drops an agreement with somebody of whom we learnt that it may be in none, where no other one would replace it.
    pub(super) fn drop_unfit(&mut self, now: Now) {
        let excluded = |s: &ShortId| self.people.get(s).is_some_and(|p| self.statements.excludes(&p.cert));
        let unfit = |a: &Attempt| a.proposal.content.seats.iter().any(excluded);
        if !self.is_grouped() && self.attempt.as_ref().is_some_and(unfit) {
            self.attempt = None;
            self.timers.stop(Timer::Resend);
            self.timers.sooner(Timer::Join, now.monotonic + timing::RTO);
        }
    }
}
