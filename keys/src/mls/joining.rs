//! The ways into a group, and how members help those outside.
//!
//! A newcomer asks for a way (WANT). A member answers with the GroupInfo (ENTRY), on which the newcomer makes an external
//! commit; once the order has it and a member confirms that it won, the newcomer is in. A device that was admitted
//! while it was away gets a Welcome instead. Members take turns at answering, so that one answer comes for one question.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use sealcast_crypto::secret::Secret;
use sealcast_wire::{CertHash, Dropped, EpochId, Fetch, Flush, Monotonic, Now, Source, To, View, limits};

use super::access::{append_key, check_entered, entered};
use super::engine::{Engine, ExternalCommit, JoinError, LeafIndex, SetupError};
use super::following::{Change, base_of};
use super::judge::{Claim, Refusal};
use super::message::{Annex, Body, Card, Entry, EntryKind, Message, WantKind};
use super::people::{Cards, People, digest_of};
use super::posted::{NOBODY, Posted};
use super::scheme::{Inside, Mls, Phase, Timer, slot, step};
use crate::{Exclusion, Output, SendResult, Token};

/// Nobody let us in yet.
#[derive(Default)]
pub(super) struct Outside {
    tries: u32,
    /// A way in whose annex is being fetched, and since when.
    entry: Option<(Entry, Monotonic)>,
    /// A Welcome that was left for us, until it is known whether it leads in.
    mail: Option<Entry>,
    /// The group that we found, until the order has our FOUND.
    founds: Option<(Vec<Token>, [u8; 32], Vec<u8>)>,
    /// The group that we found, and the position of its FOUND: messages stand before it, so there may be a group already.
    late: Option<(u64, [u8; 32])>,
}

impl Outside {
    /// Takes in what is posted, unless there is another way in already.
    pub(super) fn take_posted(&mut self, now: Now, entry: Entry) -> bool {
        let is_first = self.entry.is_none() && self.mail.is_none();
        if is_first {
            self.entry = Some((entry, now.monotonic));
        }
        is_first
    }
}

/// Our external commit, until a member confirms that it won.
pub(super) struct External<E> {
    pub(super) engine: E,
    base: Secret<32>,
    /// The positions of its parts.
    places: BTreeMap<Token, Option<u64>>,
    tries: u32,
    /// The confirmation, whose annex is being fetched.
    entered: Option<Entry>,
    /// What it was made on, if that was posted.
    pub(super) posted: Option<Posted>,
}

impl<E> External<E> {
    /// That of the last part.
    pub(super) fn position(&self) -> Option<u64> {
        self.places.values().copied().collect::<Option<Vec<u64>>>()?.into_iter().max()
    }
}

/// Who found a group's cards, and certificates, to be good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KnownBy {
    /// A run of ours, of the certificates, too.
    UsBefore,
    /// Those who were there before us have the same cards; each certificate is verified.
    Others,
    Nobody,
}

/// Whom a commit of ours let in.
pub(super) struct Welcomed {
    pub(super) whom: Vec<CertHash>,
    pub(super) welcome: Vec<u8>,
    pub(super) position: u64,
}

impl<E: Engine> Mls<E> {
    // ---- outside -------------------------------------------------------------------------------

    pub(super) fn begin_outside(&mut self, now: Now) {
        self.phase = Phase::Outside(Box::default());
        self.offer_packages(now);
        self.timers.set(Timer::Want, now.monotonic);
        if self.config.founds || self.config.joins && self.config.directory {
            self.timers.set(Timer::Found, now.monotonic + self.paced(FOUND_AFTER));
        }
    }

    /// Asks for a way in, or what became of our external commit.
    pub(super) fn want(&mut self, now: Now) {
        let card = self.card.clone();
        let asks = if self.comes_by_itself() { WantKind::Entry } else { WantKind::Admission };
        self.try_mail(now);
        let (what, position, tries) = match &mut self.phase {
            Phase::Outside(outside) => {
                outside.tries += 1;
                (asks, 0, outside.tries - 1)
            }
            Phase::External(external) => {
                let Some(position) = external.position() else {
                    return self.timers.set(Timer::Want, now.monotonic + self.paced(WANT_AGAIN));
                };
                external.tries += 1;
                let tries = external.tries;
                if tries > 1 {
                    self.prove_by_log();
                }
                if tries > OUTCOME_TRIES {
                    // It lost, or nobody who knows better is here.
                    return self.rejoin(now);
                }
                (WantKind::Outcome, position, tries - 1)
            }
            Phase::Inside(inside) if inside.behind && inside.tries < BEHIND_TRIES => {
                inside.tries += 1;
                (WantKind::Entry, 0, inside.tries)
            }
            Phase::Inside(inside) => {
                // Nobody showed us a later epoch: there is none.
                (inside.behind, inside.tries) = (false, 0);
                return;
            }
            Phase::Out => return,
        };
        self.tell(To::Group, &Message::Want { what, position, tries, card });
        self.timers.set(Timer::Want, now.monotonic + self.paced(WANT_AGAIN * (1 << tries.min(WANTS_DOUBLE))));
    }

    /// Founds a group of one, unless another one is founded before it, or somebody shows the way into one.
    pub(super) fn found(&mut self, now: Now) {
        let (utc, seed) = (self.utc(now), self.seed());
        let mut group_id = *self.seed().expose();
        self.mark_form(&mut group_id);
        let card = self.card.clone();
        let Phase::Outside(outside) = &self.phase else { return };
        let asks = self.is_fetching(&Fetch::Mail(self.me.hash)) || self.is_fetching(&Fetch::KeyPackage(NOBODY));
        if asks || outside.entry.is_some() || outside.mail.is_some() || outside.founds.is_some() {
            return self.timers.set(Timer::Found, now.monotonic + self.paced(FOUND_AFTER));
        }
        if !self.config.founds {
            self.look_for_post(now);
            // Somebody may come who answers, or posts.
            return self.timers.set(Timer::Found, now.monotonic + self.paced(LOOK_AGAIN));
        }
        if let Some((position, group_id)) = outside.late {
            self.form(now, position, &group_id);
            return self.follow_log(now);
        }
        // So that it is known now whether we may.
        if E::create(&self.setup, &group_id, &self.first_extensions(), step(utc, &seed)).is_err() {
            return;
        }
        let message = Message::Found { group_id, card }.write();
        let tokens = self.order(0, &message);
        if let Phase::Outside(outside) = &mut self.phase {
            outside.founds = Some((tokens, group_id, message));
        }
        self.timers.set(Timer::Found, now.monotonic + self.paced(FOUND_AFTER * 4));
    }

    /// What the order says to somebody outside: whether something was judged.
    pub(super) fn follow_outside(&mut self, now: Now) -> bool {
        let Phase::Outside(outside) = &mut self.phase else { return false };
        if outside.late.is_some() {
            return false;
        }
        let Some(at) = self.log.waits.iter().position(|(_, message, _)| matches!(message, Message::Found { .. }))
        else {
            return false;
        };
        let (position, _, bytes) = &self.log.waits[at];
        let position = *position;
        let ours = outside.founds.take_if(|(_, _, own)| own == bytes).map(|(_, group_id, _)| group_id);
        // What was ordered before it, and the message itself, is of no use to us.
        let Some(group_id) = ours else {
            if self.only_founds() {
                self.exclude(Exclusion::Exists);
                return false;
            }
            let Phase::Outside(outside) = &mut self.phase else { return false };
            // Another group is founded.
            self.log.waits.remove(at);
            outside.founds = None;
            self.timers.stop(Timer::Found);
            self.timers.sooner(Timer::Want, now.monotonic);
            if self.config.founds {
                self.timers.set(Timer::Found, now.monotonic + self.paced(FOUND_AFTER * 8));
            }
            return true;
        };
        self.log.waits.drain(..=at);
        if position > FIRST {
            outside.late = Some((position, group_id));
            self.timers.set(Timer::Found, now.monotonic + self.paced(FOUND_AFTER * 4));
            self.look_for_post(now);
            return false;
        }
        self.form(now, position, &group_id);
        true
    }

    /// The group that we founded begins.
    fn form(&mut self, now: Now, position: u64, group_id: &[u8; 32]) {
        let (utc, seed) = (self.utc(now), self.seed());
        let extensions = self.first_extensions();
        let Ok(mut engine) = E::create(&self.setup, group_id, &extensions, step(utc, &seed)) else { return };
        let Some(base) = base_of(&mut engine) else { return };
        self.timers.stop(Timer::Want);
        self.timers.stop(Timer::Found);
        let cards = vec![self.card.clone()];
        let counter = self.first_counter();
        self.begin_inside(engine, base, Start { counter, position, founded: position, cut: [0; 32], cards });
        self.enter(now, Change::Formed);
        self.post_soon(now);
    }

    /// Whether a group has members whom the authority's list, as we have it, revokes: then it is not the one of today.
    fn knows_revoked(&self, engine: &E) -> bool {
        let judge = &self.judge;
        let is_out = |claim: &Claim| judge.verify(claim).is_ok_and(|it| judge.is_revoked(&it));
        engine.members().iter().any(|(_, claim)| is_out(claim))
    }

    /// The state of a member that came in.
    pub(super) fn begin_inside(&mut self, engine: E, base: Secret<32>, start: Start) {
        self.go_inside(engine, base, start, KnownBy::Others);
    }

    /// The same, with certificates and cards that somebody knows already.
    pub(super) fn go_inside(&mut self, engine: E, base: Secret<32>, start: Start, known: KnownBy) {
        let Start { counter, position, founded, cut, cards } = start;
        let cards: BTreeMap<CertHash, Card> = cards.into_iter().map(|card| (card.id.cert, card)).collect();
        let mut people = People::new(self.group.clone());
        for (leaf, claim) in engine.members() {
            let it = match known {
                KnownBy::UsBefore => self.judge.recall(&claim),
                KnownBy::Others | KnownBy::Nobody => self.judge.verify(&claim),
            };
            let Ok(it) = it else { continue };
            let card = cards.get(&it.hash);
            match known {
                KnownBy::Nobody => people.admit(slot(leaf), it, card),
                KnownBy::UsBefore | KnownBy::Others => people.admit_as_others_did(slot(leaf), it, card),
            }
        }
        self.journal.begin_anew();
        self.phase = Phase::Inside(Box::new(Inside {
            engine,
            epoch: EpochId { counter, hash: 0 },
            base,
            cut,
            people,
            position,
            judged: position,
            founded,
            behind: false,
            tries: 0,
            probe: None,
            entering: None,
            leavers: Default::default(),
            recent: VecDeque::new(),
            externals: VecDeque::new(),
            parts: BTreeMap::new(),
            messages: None,
        }));
    }

    /// We cannot follow the group, and come in anew.
    pub(super) fn rejoin(&mut self, now: Now) {
        if self.pending.take().is_some_and(|it| it.excludes) {
            self.outputs.push_back(Output::Abandoned);
        }
        self.end_data();
        self.begin_outside(now);
        // The group stands, whatever becomes of us.
        self.timers.stop(Timer::Found);
    }

    /// Others may have gone on to an epoch that we do not know: what is ordered from here on is not of ours. They seal it again, and
    /// it would come twice.
    fn end_data(&mut self) {
        let Some(inside) = self.inside() else { return };
        let me = slot(inside.engine.own_leaf());
        let view =
            View::new(self.shown.as_ref(), inside.epoch, inside.roster.clone(), me, sealcast_wire::Change::Rekeyed);
        self.outputs.push_back(Output::Prepare { view, flush: Flush::At(inside.judged) });
    }

    // ---- the way in ----------------------------------------------------------------------------

    pub(super) fn hear_entry(&mut self, now: Now, entry: Entry) -> Result<(), Dropped> {
        if entry.to != self.me.hash {
            return Ok(());
        }
        let is_old = |of: &Option<(Entry, Monotonic)>| {
            of.as_ref().is_none_or(|(_, since)| now.monotonic.since(*since) >= ENTRY_LASTS)
        };
        let seeks = self.has_excluded();
        match (&mut self.phase, &entry.kind) {
            (Phase::Outside(outside), EntryKind::Welcome(_) | EntryKind::GroupInfo(_)) if is_old(&outside.entry) => {
                outside.entry = Some((entry, now.monotonic));
            }
            (Phase::External(external), EntryKind::Entered(_)) if external.position() == Some(entry.position) => {
                external.entered = Some(entry);
            }
            // Our commit lost. A lie costs us one more commit.
            (Phase::External(external), EntryKind::GroupInfo(_))
                if external.tries > 0 && entry.epoch >= external.engine.context().epoch =>
            {
                self.rejoin(now);
                if let Phase::Outside(outside) = &mut self.phase {
                    outside.entry = Some((entry, now.monotonic));
                }
                self.timers.set(Timer::Want, now.monotonic + self.paced(WANT_AGAIN));
            }
            // A founder alone that came too late gives way to the group that was there before, a member that is behind follows,
            // and one that was warned looks for others: if it proves to be a way, and not before.
            (Phase::Inside(inside), EntryKind::GroupInfo(_))
                if inside.entering.is_none() && is_old(&inside.probe) && (seeks || inside.follows(&entry)) =>
            {
                inside.probe = Some((entry, now.monotonic));
            }
            _ => return Err(Dropped::Stale),
        }
        self.entry_came(now);
        Ok(())
    }

    /// A way in of which pieces come does not make place for another one.
    pub(super) fn entry_grows(&mut self, now: Now) {
        let entry = match &mut self.phase {
            Phase::Outside(outside) => outside.entry.as_mut(),
            Phase::Inside(inside) => inside.probe.as_mut(),
            Phase::External(_) | Phase::Out => None,
        };
        if let Some((_, since)) = entry {
            *since = now.monotonic;
        }
    }

    /// Whether it looks for a way in as long as it is outside, and does not wait for others.
    fn comes_by_itself(&self) -> bool {
        self.config.joins || self.config.founds
    }

    /// Whether it founds the group, or nothing.
    fn only_founds(&self) -> bool {
        self.config.founds && !self.config.joins
    }

    /// A Welcome that was left for us is a way in like others; without one, the directory is asked for it.
    pub(super) fn try_mail(&mut self, now: Now) {
        let Phase::Outside(outside) = &mut self.phase else { return };
        let is_old = |since: &Monotonic| now.monotonic.since(*since) >= ENTRY_LASTS;
        match (&outside.mail, &outside.entry) {
            (Some(_), Some((_, since))) if !is_old(since) => return,
            (Some(mail), _) => outside.entry = Some((mail.clone(), now.monotonic)),
            (None, _) => return self.ask_for_mail(now),
        }
        self.entry_came(now);
    }

    /// Something that was left for us. What is of no use is deleted by asking for the next.
    pub(super) fn take_mail(&mut self, now: Now, message: Option<Message>) {
        match (&mut self.phase, message) {
            (Phase::Outside(outside), Some(Message::Entry(entry)))
                if entry.to == self.me.hash && matches!(entry.kind, EntryKind::Welcome(_)) =>
            {
                outside.mail = Some(entry);
                self.try_mail(now);
            }
            _ => self.ask_for_mail(now),
        }
    }

    /// Goes in, if all that it takes is here.
    pub(super) fn entry_came(&mut self, now: Now) {
        let entry = match &self.phase {
            Phase::Outside(outside) => outside.entry.clone().map(|(entry, _)| entry),
            Phase::External(external) => external.entered.clone(),
            Phase::Inside(inside) => inside.probe.clone().map(|(entry, _)| entry),
            Phase::Out => None,
        };
        let Some(entry) = entry else { return };
        let Some(annex) = self.whole(now, &entry.annex) else { return };
        self.pieces.clear();
        let annex = Annex::read(&annex);
        match &mut self.phase {
            Phase::Outside(outside) => outside.entry = None,
            Phase::External(external) => external.entered = None,
            Phase::Inside(inside) => inside.probe = None,
            Phase::Out => {}
        }
        // A lie reaches us alone: the next member is asked.
        let Ok(annex) = annex else { return };
        match &entry.kind {
            EntryKind::Welcome(mac) => self.by_welcome(now, &entry, mac, annex),
            EntryKind::GroupInfo(leaf) => self.by_external_commit(now, *leaf, &entry, &annex),
            EntryKind::Entered(mac) => self.came_in(now, &entry, mac, annex),
        }
        // It led in, or it never will.
        let is_done = match &mut self.phase {
            Phase::Outside(outside) => outside.mail.take_if(|mail| *mail == entry).is_some(),
            Phase::Inside(_) => true,
            Phase::External(_) | Phase::Out => false,
        };
        if is_done {
            self.ask_for_mail(now);
        }
    }

    fn by_welcome(&mut self, now: Now, entry: &Entry, mac: &[u8; 32], annex: Annex) {
        let utc = self.utc(now);
        let Some(mut engine) = self.join_by_package(&annex.opening, &annex.tree, utc) else { return };
        let context = engine.context();
        if context.epoch != entry.epoch || self.is_deserted(&context.group_id) || self.knows_revoked(&engine) {
            return;
        }
        let Some(base) = base_of(&mut engine) else { return };
        let Entry { counter, position, founded, cut, .. } = *entry;
        let Some(cards) = digest_of(&annex.cards) else { return };
        let is_entered = check_entered(&base, (counter, position, founded), &cut, &cards, mac).is_ok();
        if !is_entered || self.has_other_form(&context.group_id) {
            return;
        }
        self.timers.stop(Timer::Want);
        self.timers.stop(Timer::Found);
        self.begin_inside(engine, base, Start { counter, position, founded, cut, cards: annex.cards });
        if self.config.directory {
            // What lies between that position and what we heard of the order was never ours to hear.
            self.log.waits.clear();
            self.outputs.push_back(Output::Again(position));
        }
        self.enter(now, Change::Formed);
        self.erase_used();
        self.set_turn(now);
        self.follow_log(now);
    }

    fn by_external_commit(&mut self, now: Now, leaf: Option<u32>, entry: &Entry, annex: &Annex) {
        // A device that was admitted may have lost its Welcome.
        if !self.comes_by_itself() && leaf.is_none() {
            return;
        }
        let (utc, seed) = (self.utc(now), self.seed());
        // Others judge by clocks that differ from ours, and leave a margin.
        if self.judge.is_over(&self.me, 0) {
            return;
        }
        let replaces = leaf.map(LeafIndex);
        let made = E::external_join(&self.setup, &annex.opening, &annex.tree, replaces, step(utc, &seed));
        let (mut engine, ExternalCommit { message, .. }) = match made {
            Ok(made) => made,
            // Signed by who may say so. Another member that is out is removed soon.
            Err(JoinError::Setup(SetupError::Refused(Refusal::Revoked))) => {
                let shown = E::inspect_group_info(&annex.opening).ok();
                let trust = shown.and_then(|it| self.judge.trust(&it.extensions).ok());
                if trust.is_some_and(|it| self.known.with(&it).excludes(&self.me)) {
                    self.exclude(Exclusion::Evicted { reason: String::new() });
                }
                return;
            }
            Err(_) => return,
        };
        let context = engine.context();
        let is_ours = |it: &Inside<E>| it.members.len() == 1 || it.engine.context().group_id == context.group_id;
        // Who knows of an excluded member looks for any group without that one.
        let fits = match self.has_excluded() {
            true => self.is_clean(&engine),
            false => self.inside().is_none_or(|it| it.follows(entry) && is_ours(it)),
        };
        let is_left = self.is_deserted(&context.group_id) || !fits;
        if is_left || self.knows_revoked(&engine) || self.is_way_of_author(now, &engine, &annex.opening) {
            return;
        }
        if self.has_other_form(&context.group_id) {
            return;
        }
        if self.only_founds() && matches!(self.phase, Phase::Outside(_)) {
            return self.exclude(Exclusion::Exists);
        }
        let Some(base) = base_of(&mut engine) else { return };
        self.end_data();
        if self.pending.take().is_some_and(|it| it.excludes) {
            self.outputs.push_back(Output::Abandoned);
        }
        let (epoch, cards) = (entry.epoch, vec![self.card.clone()]);
        let names = self.config.directory.then(|| append_key(&base).public_bytes());
        let commit = Message::Commit { epoch, commit: message, cards, why: Vec::new() };
        let tokens = self.order_naming(names, epoch, &commit.write());
        let places = tokens.into_iter().map(|token| (token, None)).collect();
        let posted = (entry.to == NOBODY).then(|| Posted::new(entry, annex.cards.clone()));
        let external = External { engine, base, places, tries: 0, entered: None, posted };
        self.phase = Phase::External(Box::new(external));
        self.timers.stop(Timer::Found);
        self.timers.set(Timer::Want, now.monotonic + self.paced(WANT_AGAIN * 4));
    }

    /// Another commit of the epoch came first: ours would be void, unless that one is. It is asked for anew rather than ordered, a
    /// few times: somebody could send void ones on and on.
    pub(super) fn lose_to(&mut self, now: Now, other: &Message) {
        let Phase::External(external) = &self.phase else { return };
        let Message::Commit { epoch, .. } = other else { return };
        let is_under_way = external.places.values().all(Option::is_none);
        let is_of_ours = external.engine.context().epoch.checked_sub(1) == Some(*epoch);
        if !is_of_ours || !is_under_way || self.withdrawn >= WITHDRAWN_MOST {
            return;
        }
        self.withdrawn += 1;
        let tokens: Vec<Token> = external.places.keys().copied().collect();
        self.outputs.extend(tokens.into_iter().map(Output::Withdraw));
        self.rejoin(now);
        let later = self.again(now);
        self.timers.set(Timer::Want, later);
    }

    pub(super) fn external_outcome(&mut self, now: Now, token: Token, result: SendResult) {
        match (&mut self.phase, result) {
            (Phase::External(external), SendResult::Ordered(position)) if external.places.contains_key(&token) => {
                external.places.insert(token, Some(position));
                if external.position().is_some() {
                    self.timers.set(Timer::Want, now.monotonic + self.paced(OUTCOME_AFTER));
                }
            }
            (Phase::External(external), SendResult::InDoubt | SendResult::Failed)
                if external.places.contains_key(&token) =>
            {
                self.rejoin(now);
                let later = self.again(now);
                self.timers.set(Timer::Want, later);
            }
            (Phase::Outside(outside), SendResult::InDoubt | SendResult::Failed) => {
                outside.founds.take_if(|(of, ..)| of.contains(&token));
            }
            _ => {}
        }
    }

    /// A member confirms that our external commit won.
    fn came_in(&mut self, now: Now, entry: &Entry, mac: &[u8; 32], annex: Annex) {
        let Entry { counter, position, founded, cut, .. } = *entry;
        let Some(cards) = digest_of(&annex.cards) else { return };
        let Phase::External(external) = &self.phase else { return };
        if check_entered(&external.base, (counter, position, founded), &cut, &cards, mac).is_err() {
            return;
        }
        self.come_in(now, Start { counter, position, founded, cut, cards: annex.cards });
    }

    /// Our external commit won.
    pub(super) fn come_in(&mut self, now: Now, start: Start) {
        let Phase::External(external) = std::mem::replace(&mut self.phase, Phase::Outside(Box::default())) else {
            return;
        };
        let External { engine, base, .. } = *external;
        self.withdrawn = 0;
        self.timers.stop(Timer::Want);
        self.begin_inside(engine, base, start);
        self.enter(now, Change::Formed);
        self.post_soon(now);
        self.set_turn(now);
        self.follow_log(now);
    }

    // ---- members -------------------------------------------------------------------------------

    /// Somebody outside asks.
    pub(super) fn hear_want(
        &mut self,
        now: Now,
        source: &Source,
        what: WantKind,
        position: u64,
        tries: u32,
        card: Card,
    ) -> Result<(), Dropped> {
        let cert = card.id.cert;
        if what == WantKind::Admission && !self.hear_request(now, cert) {
            return Ok(());
        }
        let Some(inside) = self.inside().filter(|it| it.entering.is_none()) else { return Ok(()) };
        let Some(at) = inside.drawn(&cert, tries) else { return Ok(()) };
        let welcomes = self.welcomed.iter().rev().find(|it| it.whom.contains(&cert) && it.position == inside.position);
        let welcome = welcomes.map(|it| it.welcome.clone());
        if slot(inside.engine.own_leaf()) != at && welcome.is_none() {
            return Ok(());
        }
        if !self.may_answer(now, cert) {
            return Err(Dropped::Queue);
        }
        let to = if let Source::Outside(from) = source { To::Peer(*from) } else { To::Group };
        match (what, welcome) {
            (WantKind::Entry | WantKind::Admission, Some(welcome)) => self.let_in(now, &[cert], &welcome, false),
            (WantKind::Entry | WantKind::Admission, None) => self.show_way(now, to, cert),
            (WantKind::Outcome, _) => self.confirm(now, to, cert, position),
        }
        Ok(())
    }

    /// Answers cost a signature and a tree: each asker gets one in a while.
    pub(super) fn may_answer(&mut self, now: Now, cert: CertHash) -> bool {
        self.answered.retain(|_, at| now.monotonic.since(*at) < ANSWER_EVERY);
        if self.answered.len() >= limits::MLS_ANSWERS_MAX || self.answered.contains_key(&cert) {
            return false;
        }
        self.answered.insert(cert, now.monotonic);
        true
    }

    /// The GroupInfo of this epoch.
    fn show_way(&mut self, now: Now, to: To, cert: CertHash) {
        let Some(inside) = self.inside() else { return };
        if inside.members.len() >= limits::MLS_MEMBERS_MAX {
            return;
        }
        let replaces = inside.leaf_of(&cert).map(|leaf| leaf.0);
        let Some(entry) = self.way_in(cert, replaces) else { return };
        self.tell_entry(now, to, entry);
    }

    /// Confirms that an external commit won, with the cards of its epoch.
    fn tell_entered(&mut self, now: Now, to: To, entry: Entry, cards: &Cards) {
        let annex = Annex { cards: cards.values().cloned().collect(), ..Annex::default() }.write();
        let annex = self.body(&annex);
        self.tell_entry(now, to, Entry { annex, ..entry });
    }

    /// Sends an entry, and what it lacks where no directory is.
    pub(super) fn tell_entry(&mut self, now: Now, to: To, entry: Entry) {
        let pieces = match &entry.annex {
            Body::Pieces(pieces) | Body::Listed(pieces) => pieces.clone(),
            Body::Inline(_) => Vec::new(),
        };
        self.tell(to, &Message::Entry(entry));
        self.send_pieces(now, to, &pieces);
    }

    /// An external commit leads to the epoch that we have just entered.
    pub(super) fn note_external(&mut self, now: Now, cert: CertHash) {
        let Some(inside) = self.inside_mut() else { return };
        let (counter, epoch) = (inside.epoch.counter, inside.engine.context().epoch);
        let (position, founded, cut) = (inside.position, inside.founded, inside.cut);
        let hash = inside.cards.digest();
        let kind = EntryKind::Entered(entered(&inside.base, (counter, position, founded), &cut, &hash));
        let cards = inside.cards.clone();
        if inside.externals.len() >= EXTERNALS_KEPT {
            inside.externals.pop_front();
        }
        let is_ours = inside.drawn(&cert, 0) == Some(slot(inside.engine.own_leaf()));
        // Who says it makes its pieces, and nobody else.
        let annex = Body::Inline(Vec::new());
        let entry = Entry { to: cert, counter, epoch, position, founded, cut, annex, kind };
        inside.externals.push_back((entry.clone(), cards.clone()));
        if is_ours {
            self.tell_entered(now, To::Group, entry, &cards);
        }
    }

    fn confirm(&mut self, now: Now, to: To, cert: CertHash, position: u64) {
        let Some(inside) = self.inside() else { return };
        let found = inside.externals.iter().find(|(it, _)| it.to == cert && it.position == position).cloned();
        match found {
            Some((entry, cards)) => self.tell_entered(now, to, entry, &cards),
            // It lost: the way leads on from here.
            None if inside.judged >= position => self.show_way(now, to, cert),
            // The order has not brought it here yet.
            None => {}
        }
    }

    /// Somebody founds a group where one is.
    pub(super) fn answer_founder(&mut self, now: Now, card: &Card) {
        if card.id.cert != self.me.hash && self.may_answer(now, card.id.cert) {
            self.show_way(now, To::Group, card.id.cert);
        }
    }
}

impl<E: Engine> Inside<E> {
    /// Whether a member looks for such a way: a founder alone that came too late, or one that is behind.
    fn follows(&self, entry: &Entry) -> bool {
        self.members.len() == 1 && entry.founded < self.founded
            || self.behind && entry.epoch > self.engine.context().epoch
    }
}

/// What a way in says beside the engine's state.
pub(super) struct Start {
    pub(super) counter: u32,
    pub(super) position: u64,
    pub(super) founded: u64,
    pub(super) cut: [u8; 32],
    pub(super) cards: Vec<Card>,
}

/// A founder waits so long for a group that is there.
const FOUND_AFTER: Duration = Duration::from_millis(400);
/// The position of a log's first message.
pub(super) const FIRST: u64 = 1;
/// How often it is looked whether something is posted, by who founds no group.
const LOOK_AGAIN: Duration = Duration::from_secs(10);
const WANT_AGAIN: Duration = Duration::from_millis(100);
const WANTS_DOUBLE: u32 = 6;
/// Whether an external commit won is asked, if nobody says so by itself.
const OUTCOME_AFTER: Duration = Duration::from_millis(300);
const OUTCOME_TRIES: u32 = 6;
/// A way in whose annex does not come makes place for another one.
const ENTRY_LASTS: Duration = Duration::from_secs(2);
/// How often a member asks that seems to be behind.
const BEHIND_TRIES: u32 = 6;
/// How often in a row an external commit is withdrawn.
const WITHDRAWN_MOST: u32 = 16;
const ANSWER_EVERY: Duration = Duration::from_millis(80);
/// External commits of which a member can say that they won.
const EXTERNALS_KEPT: usize = 32;
