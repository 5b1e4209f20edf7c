//! The way in that lies at a directory, for newcomers who meet no member.
//!
//! Who leads to an epoch posts its GroupInfo, where the directory has what devices offer: as the last resort of nobody. A newcomer
//! whom nobody answers takes that instead of founding a group, and makes its commit. Nobody need confirm that: the log from the
//! message that led to the posted epoch to the commit holds no other commit, so it is the first one (D1).
//!
//! Who is no member any more, and has the bootstrap key, can post, too, and lead into an epoch that it reads, as it can where it
//! answers a newcomer that nobody else answers.

use std::time::Duration;

use sealcast_wire::{CertHash, Change, EpochId, Fetch, Flush, KeyPackages, Now, Utc, View};

use super::engine::Engine;
use super::following::name_of;
use super::joining::{FIRST, Start};
use super::message::{Annex, Card, Entry, EntryKind, Message};
use super::packages::PACKAGE_LASTS;
use super::people::People;
use super::scheme::{Mls, Phase, Timer, slot};
use crate::Output;

/// The epoch on which an external commit was made, as it was posted.
pub(super) struct Posted {
    pub(super) epoch: u64,
    pub(super) counter: u32,
    pub(super) position: u64,
    pub(super) founded: u64,
    pub(super) cards: Vec<Card>,
    /// What the transport is asked for the cut by, and what we enter with it.
    asked: Option<(EpochId, Start)>,
}

impl Posted {
    pub(super) fn new(entry: &Entry, cards: Vec<Card>) -> Posted {
        let Entry { epoch, counter, position, founded, .. } = *entry;
        Posted { epoch, counter, position, founded, cards, asked: None }
    }
}

impl<E: Engine> Mls<E> {
    /// We led to an epoch, and post the way into it soon: the later, the more it costs.
    pub(super) fn post_soon(&mut self, now: Now) {
        let Some(inside) = self.inside() else { return };
        let after = POST_AFTER * u32::try_from(inside.members.len()).unwrap_or(u32::MAX);
        if self.config.directory && now.utc.is_some() {
            self.timers.sooner(Timer::Post, now.monotonic + self.paced(after.min(POST_LATEST)));
        }
    }

    /// Posts the way into this epoch.
    pub(super) fn post(&mut self, now: Now) {
        let Some(utc) = now.utc else { return };
        let Some(entry) = self.way_in(NOBODY, None) else { return };
        let bytes = self.sealed(&Message::Entry(entry).write());
        let until = Utc(utc.0.saturating_add(PACKAGE_LASTS.as_secs().cast_signed()));
        let packages = KeyPackages { cert: NOBODY, single_use: Vec::new(), last_resort: Some(bytes), until };
        self.outputs.push_back(Output::Packages(packages));
    }

    /// Fetches what is posted: nobody answered.
    pub(super) fn look_for_post(&mut self, now: Now) {
        if self.config.directory && self.config.joins {
            self.fetch(now, Fetch::KeyPackage(NOBODY));
        }
    }

    /// What is posted: the log is read from what led to it.
    pub(super) fn post_came(&mut self, now: Now, bytes: &[u8]) {
        let message = self.bootstrap_key.open(bytes).ok().and_then(|it| Message::read(&it).ok());
        let Some(Message::Entry(entry @ Entry { to: NOBODY, kind: EntryKind::GroupInfo(None), .. })) = message else {
            return;
        };
        let Phase::Outside(outside) = &mut self.phase else { return };
        if outside.take_posted(now, entry.clone()) {
            self.outputs.push_back(Output::Again(entry.position.saturating_sub(1).max(FIRST)));
            self.entry_came(now);
        }
    }

    /// Nobody says that our commit on what was posted won. If the log says it, the transport is asked for the cut there.
    pub(super) fn prove_by_log(&mut self) {
        let Phase::External(external) = &self.phase else { return };
        let (Some(position), Some(posted)) = (external.position(), &external.posted) else { return };
        let mut people = People::new(self.group.clone());
        for (leaf, claim) in external.engine.members() {
            if let Ok(it) = self.judge.verify(&claim) {
                let card = posted.cards.iter().find(|card| card.id.cert == it.hash);
                people.admit(slot(leaf), it, card);
            }
        }
        let mut counter = posted.counter;
        let mut has_beginning = posted.position == FIRST;
        for (at, message, _) in self.log.waits.iter().filter(|(at, ..)| (posted.position..position).contains(at)) {
            match message {
                _ if *at == posted.position => has_beginning = true,
                Message::Commit { epoch, .. } | Message::Part { epoch, .. } if *epoch >= posted.epoch => return,
                Message::Card(card) if people.run(card) => counter = counter.saturating_add(1),
                _ => {}
            }
        }
        if !has_beginning {
            return;
        }
        let own = self.card.clone();
        people.run(&own);
        let counter = counter.saturating_add(1);
        let name = name_of(EpochId { counter, hash: 0 }, &own.signature);
        let me = slot(external.engine.own_leaf());
        let view = View::new(None, name, people.roster.clone(), me, Change::Formed);
        let cards = people.cards.values().cloned().collect();
        let start = Start { counter, position, founded: posted.founded, cut: [0; 32], cards };
        if let Phase::External(external) = &mut self.phase
            && let Some(posted) = &mut external.posted
        {
            posted.asked = Some((name, start));
        }
        self.outputs.push_back(Output::Prepare { view, flush: Flush::At(position) });
    }

    /// The cut at our commit; whether that was asked for.
    pub(super) fn proved_by_log(&mut self, now: Now, epoch: EpochId, cut: [u8; 32]) -> bool {
        let Phase::External(external) = &mut self.phase else { return false };
        let asked = external.posted.as_mut().and_then(|it| it.asked.take_if(|(name, _)| *name == epoch));
        let Some((_, start)) = asked else { return false };
        self.come_in(now, Start { cut, ..start });
        true
    }

    /// The GroupInfo of this epoch, for somebody.
    pub(super) fn way_in(&mut self, to: CertHash, replaces: Option<u32>) -> Option<Entry> {
        let inside = self.inside()?;
        let (counter, epoch) = (inside.epoch.counter, inside.engine.context().epoch);
        let (position, founded, cut) = (inside.position, inside.founded, inside.cut);
        let (opening, tree) = (inside.engine.group_info(), inside.engine.tree());
        let annex = Annex { opening, tree, cards: inside.cards.values().cloned().collect() }.write();
        let annex = self.body(&annex);
        let kind = EntryKind::GroupInfo(replaces);
        Some(Entry { to, counter, epoch, position, founded, cut, annex, kind })
    }
}

/// Whose last resort it is.
pub(super) const NOBODY: CertHash = CertHash([0; 32]);
/// For each member of the group, and at most.
const POST_AFTER: Duration = Duration::from_millis(10);
const POST_LATEST: Duration = Duration::from_secs(60);
