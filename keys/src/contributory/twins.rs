//! Two cards under one short id: members that know different ones disagree about the roster, and find out.
//!
//! A short id has eight bytes, and the holder of a certificate chooses its incarnations: 2³² hashes give it two cards
//! with one short id. It can show each half of a group another one. R1 says the roster that its author knows, so that
//! the halves see that they differ; they show each other cards, and whoever then holds both shows both to everybody.

use std::sync::Arc;
use std::time::Duration;

use rand_core::Rng;
use sealcast_wire::{CertHash, Monotonic, Now, limits};

use super::message::{Message, Object, ShortId};
use super::people::Person;
use super::proposal::Proposal;
use super::timing::{self, Timer};
use super::{Contributory, Strike};
use crate::{Misbehaviour, Notice};

/// Two cards with one short id, which convicted their holder.
pub(super) struct Convicted {
    one: Arc<Person>,
    other: Arc<Person>,
    /// How often both were shown again, and when they were shown last.
    shown: u32,
    last: Monotonic,
}

impl Contributory {
    /// Somebody signed another roster: each shows some of the cards that it knows, and others the next time; some show
    /// the author's.
    pub(super) fn show_cards(&mut self, now: Now, author: Option<ShortId>) {
        let Some(attempt) = self.attempt.as_mut() else { return };
        let (times, last) = attempt.disagreed;
        if times >= SHOWN_TIMES || times > 0 && now.monotonic.since(last) < timing::RTO {
            return;
        }
        attempt.disagreed = (times + 1, now.monotonic);
        let seats = &attempt.proposal.content.seats;
        let n = seats.len();
        let turn = seats[(attempt.me + 1 + times as usize) % n];
        let author = author.filter(|a| *a != turn && self.rng.next_u64() % (n as u64) < AUTHORS_SHOWN_BY);
        let shown = [Some(turn), author].into_iter().flatten().filter(|s| *s != self.me.short);
        let cards: Vec<Object> =
            shown.filter_map(|s| self.people.get(&s)).map(|p| Object::Card(Box::new(p.card.clone()))).collect();
        for card in cards {
            self.send(&Message::Give(vec![card]));
        }
    }

    /// Leaves out the certificates of which two cards with one short id were seen, and shows them to everybody.
    pub(super) fn judge_twins(&mut self, now: Now) {
        #[cfg(any(test, feature = "misbehaving"))]
        if self.lacks(super::misbehaving::Rule::Twins) {
            return;
        }
        for (one, other) in self.people.take_twins() {
            if self.is_banned(now.monotonic, &one) || self.is_banned(now.monotonic, &other) {
                continue;
            }
            self.show_both(&one, &other);
            if self.convicted.len() >= limits::RUNS_PER_CERTIFICATE_MAX {
                self.convicted.pop_front();
            }
            self.convicted.retain(|it| it.one.short != one.short);
            let certs = [one.id.cert, other.id.cert];
            self.convicted.push_back(Convicted { one, other, shown: 0, last: now.monotonic });
            self.ban(now, certs[0]);
            if certs[1] != certs[0] {
                self.ban(now, certs[1]);
            }
        }
    }

    fn show_both(&mut self, one: &Person, other: &Person) {
        for card in [&one.card, &other.card] {
            self.send(&Message::Give(vec![Object::Card(Box::new(card.clone()))]));
        }
    }

    /// Whether a proposal names somebody whose two cards we hold. Its author lacks one of them: both are shown again, since
    /// members that do not know the same of each other would take turns to blame the honest. Each time it takes twice as long
    /// until the next, and a convicted author is shown nothing: two cards for each proposal would be an amplifier (G8).
    pub(super) fn names_a_twin(&mut self, now: Now, proposal: &Proposal) -> bool {
        let banned = |person: &Person| self.is_banned(now.monotonic, person);
        let named = |it: &Convicted| proposal.seat_of(&it.one.short).is_some() && banned(&it.one);
        let Some(at) = self.convicted.iter().position(named) else { return false };
        let is_convicted = self.people.get(proposal.proposer()).is_some_and(|author| banned(author));
        let convicted = &mut self.convicted[at];
        let pause = timing::RTO * (1 << convicted.shown.min(SHOWN_AGAIN_DOUBLINGS));
        if !is_convicted && now.monotonic.since(convicted.last) >= pause {
            (convicted.shown, convicted.last) = (convicted.shown.saturating_add(1), now.monotonic);
            let (one, other) = (convicted.one.clone(), convicted.other.clone());
            self.show_both(&one, &other);
        }
        true
    }

    /// Whether a certificate's holder is left out now, whatever its run.
    pub(super) fn is_banned(&self, now: Monotonic, person: &Person) -> bool {
        self.banned.get(&person.id.cert).is_some_and(|b| b.until > now)
    }

    /// Leaves a certificate's holder out, whatever its run, for a while that grows each time: it was proved to misbehave.
    pub(super) fn shut_out(&mut self, now: Now, cert: CertHash, first: Duration) {
        let ban = self.banned.entry(cert).or_insert(Strike { count: 0, until: now.monotonic });
        ban.until = now.monotonic + (first * (1 << ban.count.saturating_mul(3).min(12))).min(timing::STRIKE_MAX);
        ban.count = ban.count.saturating_add(1);
        let until = ban.until;
        if self.banned.len() > limits::REMEMBERED_PEOPLE_MAX {
            let first = self.banned.iter().min_by_key(|(_, b)| b.until).map(|(cert, _)| *cert);
            first.map(|cert| self.banned.remove(&cert));
        }
        self.timers.sooner(Timer::Judge, until);
    }

    fn ban(&mut self, now: Now, cert: CertHash) {
        if cert == self.me.id.cert {
            return;
        }
        self.shut_out(now, cert, timing::STRIKE_MAX);
        self.notice(Notice::LeftOut { cert, why: Misbehaviour::Equivocation });
        let of_cert = |s: &ShortId| self.people.get(s).is_some_and(|p| p.id.cert == cert);
        if self.attempt.as_ref().is_some_and(|a| a.proposal.content.seats.iter().any(of_cert)) {
            // The others' half of it does not verify for us, nor ours for them.
            self.attempt = None;
            self.timers.stop(Timer::Resend);
            self.retry = true;
        }
        self.planned = None;
        self.plan(now);
    }
}

/// How often a member shows cards in one attempt.
const SHOWN_TIMES: u32 = 6;
/// How often the pause until both cards are shown again doubles: to ten seconds.
const SHOWN_AGAIN_DOUBLINGS: u32 = 8;
/// So many, on average, show the card of whoever signed another roster.
const AUTHORS_SHOWN_BY: u64 = 6;
