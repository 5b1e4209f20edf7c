//! What the order says, and the epochs that it leads to.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use sealcast_crypto::hash::sha256;
use sealcast_crypto::identity::statement::SignedEviction;
use sealcast_crypto::secret::Secret;
pub(super) use sealcast_wire::Change;
use sealcast_wire::{Access, CertHash, Dropped, EpochId, Flush, Now, Protect, SealPayload, Slot, View, limits};

use super::access::{DataEpoch, Writers, append_key};
use super::engine::{self, Engine, LeafIndex, ProcessError, Processed, ProposedKind};
use super::joining::Welcomed;
use super::journal::{Cause, Step};
use super::message::{Card, Message};
use super::people::People;
use super::scheme::{Inside, Mls, Phase, Timer, slot};
use crate::{Exclusion, Output, Token};

/// What the order brought and is not judged yet.
#[derive(Default)]
pub(super) struct Log {
    pub(super) waits: VecDeque<(u64, Message, Vec<u8>)>,
    /// Cards of ours under way.
    pub(super) said: BTreeSet<Token>,
}

/// Parts of one message.
pub(super) struct Parts {
    /// Of the first one that came.
    first: u64,
    count: u16,
    here: BTreeMap<u16, Vec<u8>>,
}

/// The message that ends an epoch. The next one's key depends on what was delivered before it, too.
pub(super) struct Entering {
    /// Names the flush.
    name: EpochId,
    position: u64,
    change: Change,
    people: People,
    /// What it says, if the journal can say it by that alone.
    cause: Option<Cause>,
    /// Whom our commit lets in, and by what.
    welcome: Option<(Vec<CertHash>, Vec<u8>)>,
    /// Who came by an external commit.
    external: Option<CertHash>,
    /// Whether the engine has a new epoch, and so a new exporter.
    commits: bool,
}

impl<E: Engine> Mls<E> {
    /// A message has this position in the order.
    pub(super) fn hear_ordered(
        &mut self,
        now: Now,
        position: u64,
        message: Message,
        bytes: Vec<u8>,
    ) -> Result<(), Dropped> {
        if self.inside().is_some_and(|it| position <= it.position) {
            return Err(Dropped::Stale);
        }
        // Our own may be told of late.
        let Err(at) = self.log.waits.binary_search_by_key(&position, |(at, ..)| *at) else {
            return Err(Dropped::Replay);
        };
        self.lose_to(now, &message);
        self.log.waits.insert(at, (position, message, bytes));
        if self.log.waits.len() > limits::MLS_LOG_MAX {
            // Outside, a way in leads past them. A member enters its next epoch before so many come.
            self.log.waits.pop_front();
        }
        self.follow_log(now);
        Ok(())
    }

    /// Judges what waits, in its order, until something leads to another epoch.
    pub(super) fn follow_log(&mut self, now: Now) {
        loop {
            match &self.phase {
                Phase::Inside(inside) if inside.entering.is_none() => {
                    let from = inside.position;
                    self.log.waits.retain(|(at, ..)| *at > from);
                }
                Phase::Outside(_) => {
                    self.hear_complaints(now);
                    if !self.follow_outside(now) {
                        return;
                    }
                    continue;
                }
                Phase::External(_) => return self.hear_complaints(now),
                Phase::Inside(_) | Phase::Out => return,
            }
            let Some((position, message, _)) = self.log.waits.pop_front() else { break };
            self.judge(now, position, message);
            if let Some(inside) = self.inside_mut() {
                inside.judged = position.max(inside.judged);
            }
        }
        self.pursue(now);
    }

    /// One message of the order: it counts, or is void.
    fn judge(&mut self, now: Now, position: u64, message: Message) {
        let Some(current) = self.inside().map(|it| it.engine.context().epoch) else { return };
        match message {
            Message::Commit { epoch, commit, cards, why } if epoch == current => {
                self.judge_commit(now, position, &commit, (&cards, &why));
            }
            Message::Proposal { epoch, proposal } if epoch == current => self.judge_proposal(now, &proposal),
            Message::Part { epoch, whole, index, count, bytes } if epoch == current => {
                let complete = self.inside_mut().and_then(|it| it.take_part(position, whole, (index, count), bytes));
                if let Some(Ok(message @ Message::Commit { .. })) = complete.as_deref().map(Message::read) {
                    self.judge(now, position, message);
                }
            }
            Message::Card(card) => self.judge_card(now, position, &card),
            Message::Complaint(complaint) => self.hear_complaint(now, complaint),
            Message::Found { card, .. } => self.answer_founder(now, &card),
            // Void, unless it is we who missed something: anybody can write a number.
            Message::Commit { epoch, .. } | Message::Part { epoch, .. } if epoch > current => {
                self.note_astray(now);
                if let Some(inside) = self.inside_mut() {
                    inside.behind = true;
                }
                self.timers.sooner(Timer::Want, now.monotonic + self.paced(BEHIND_AFTER));
            }
            // Of an epoch that is over: void.
            Message::Commit { .. } | Message::Part { .. } => self.note_astray(now),
            Message::Proposal { .. }
            | Message::Want { .. }
            | Message::Entry(_)
            | Message::Seek(_)
            | Message::Piece(_)
            | Message::Warning(_)
            | Message::Package { .. } => {}
        }
    }

    fn judge_proposal(&mut self, now: Now, proposal: &[u8]) {
        let utc = self.utc(now);
        let Some(inside) = self.inside_mut() else { return };
        match inside.engine.inspect_proposal(proposal, utc) {
            // D3: a member leaves, and nobody else is removed by a proposal. The first one of its leaf is kept, and all others
            // are void, so that nobody has to keep any number of them (G8).
            Ok(it) if it.what == ProposedKind::Remove(it.by) && inside.leavers.insert(it.by) => {
                if inside.engine.process(proposal, utc).is_err() {
                    return;
                }
            }
            // Our own: this engine knows it.
            Err(ProcessError::Ours) => {
                let own = inside.engine.own_leaf();
                inside.leavers.insert(own);
            }
            Ok(_) | Err(_) => return,
        }
        debug_assert!(inside.keeps_one_proposal_a_leaf());
        self.journal.touch();
        self.set_turn(now);
    }

    /// A commit of our epoch: if it is valid it leads to the next, and if not it stops nobody (D1).
    fn judge_commit(&mut self, now: Now, position: u64, commit: &[u8], (cards, why): (&[Card], &[u8])) {
        let utc = self.utc(now);
        // Also if somebody else sent it on, in another message.
        let ours = self.pending.take_if(|it| it.commit == commit);
        let Some(inside) = self.inside_mut() else { return };
        let judged = match &ours {
            Some(pending) => inside.engine.apply(&pending.record).map_err(|_| None),
            // Another message would change the engine's ratchets.
            None if !is_commit::<E>(commit) => Err(None),
            None => match inside.engine.process(commit, utc) {
                Ok(Processed::Commit(change)) => Ok(change),
                Ok(_) => Err(None),
                Err(why) => Err(Some(why)),
            },
        };
        match judged {
            Ok(change) if change.removes_us => {
                let evicted = || Exclusion::Evicted { reason: self.reason(why) };
                let why = if self.leaving { Exclusion::Left } else { evicted() };
                self.exclude(why);
            }
            Ok(change) => {
                if let Some(by) = self.author_of(&change) {
                    self.note_commit(now, commit, by, true);
                }
                let lost = ours.is_none();
                let has_clock = now.utc.is_some();
                let (commit, given) = (commit.to_vec(), cards.to_vec());
                let cause = lost.then_some(Cause::Commit { utc, has_clock, commit, cards: given });
                self.follow(position, change, cards, ours, cause);
                if lost {
                    self.give_up_pending(now);
                }
            }
            // Others follow it, and we cannot (D3): one that we cannot open, or one of ours that we know no longer.
            Err(Some(ProcessError::NoPathSecret)) => self.cannot_open(now, commit),
            Err(Some(ProcessError::Ours)) => self.rejoin(now),
            Err(_) => {
                self.note_astray(now);
                if let Some(pending) = ours {
                    self.pending = Some(pending);
                    self.give_up_pending(now);
                }
            }
        }
    }

    /// A commit leads to the next epoch, in which the engine is already.
    fn follow(
        &mut self,
        position: u64,
        change: engine::Change,
        given: &[Card],
        ours: Option<super::committing::Pending>,
        cause: Option<Cause>,
    ) {
        let Some((people, came)) = self.people_after(&change, given) else { return };
        let Some(inside) = self.inside_mut() else { return };
        let left = change.removed.iter().all(|leaf| inside.leavers.contains(leaf));
        let kind = match (change.removed.is_empty() || change.external, came.is_empty()) {
            (false, _) if left => Change::Left,
            (false, _) => Change::Evicted,
            (true, false) => Change::Joined,
            (true, true) => Change::Rekeyed,
        };
        inside.leavers.clear();
        inside.behind = false;
        // A newcomer is not in before somebody confirms it.
        if !change.external {
            inside.heard_of(slot(change.by));
        }
        let external = came.last().copied().filter(|_| change.external);
        let welcome = ours.and_then(|it| it.welcome).map(|welcome| (came, welcome));
        let name = name_of(inside.epoch, &change.context.transcript_hash);
        let entering = Entering { name, position, change: kind, people, cause, welcome, external, commits: true };
        self.end_epoch(entering);
    }

    /// Who is in after a commit, which the engine has taken in already, and who came by it.
    pub(super) fn people_after(&mut self, change: &engine::Change, given: &[Card]) -> Option<(People, Vec<CertHash>)> {
        let judge = self.judge.clone();
        let inside = self.inside()?;
        let mut people = inside.people.clone();
        let mut certs: Vec<CertHash> = change.removed.iter().filter_map(|leaf| people.remove(slot(*leaf))).collect();
        let external = change.external.then_some(change.by);
        let mut came = Vec::new();
        for leaf in change.added.iter().copied().chain(external) {
            let Some(it) = inside.engine.member(leaf).and_then(|it| judge.verify(&it).ok()) else {
                continue;
            };
            came.push(it.hash);
            let card = given.iter().find(|card| card.id.cert == it.hash);
            people.admit(slot(leaf), it, card);
        }
        certs.extend(&came);
        self.journal.note(Some(&change.nodes), certs);
        Some((people, came))
    }

    /// Why we are out, as the statement beside the commit says it. The group context that holds it is closed to us.
    fn reason(&self, statement: &[u8]) -> String {
        let statement = SignedEviction::verify(statement, self.judge.anchor()).ok();
        // It names one of those that the commit evicts together.
        let of_ours = statement.filter(|it| it.eviction().group == *self.group);
        of_ours.map_or_else(|| self.reason_of_complaints(), |it| it.eviction().reason.clone())
    }

    /// Why we are out, if complaints exclude us.
    fn reason_of_complaints(&self) -> String {
        let trust = self.inside().and_then(|it| self.judge.trust(&it.engine.context().extensions).ok());
        let excludes = trust.is_some_and(|it| it.complaints.exclude(&self.me.hash));
        if excludes { "members could not open its commits".to_owned() } else { String::new() }
    }

    /// A member runs anew: the epoch's tree stays, its data gets new keys (G4).
    fn judge_card(&mut self, now: Now, position: u64, card: &Card) {
        if self.inside().is_some_and(|it| it.leaf_of(&card.id.cert).is_none()) {
            return self.note_astray(now);
        }
        let Some(inside) = self.inside_mut() else { return };
        let mut people = inside.people.clone();
        if !people.run(card) {
            return;
        }
        if let Some((slot, _)) = people.roster.find(&card.id.cert) {
            inside.heard_of(slot);
        }
        let entering = Entering {
            name: name_of(inside.epoch, &sha256(&card.signature)),
            position,
            change: Change::Rekeyed,
            people,
            cause: Some(Cause::Card(card.clone())),
            welcome: None,
            external: None,
            commits: false,
        };
        self.journal.note(None, [card.id.cert]);
        self.end_epoch(entering);
    }

    /// The view ends at a position; we enter the next one once what was delivered before it is known.
    fn end_epoch(&mut self, entering: Entering) {
        let shown = self.shown.clone();
        let Some(inside) = self.inside_mut() else { return };
        let me = slot(inside.engine.own_leaf());
        let view = View::new(shown.as_ref(), entering.name, entering.people.roster.clone(), me, entering.change);
        let flush = Flush::At(entering.position);
        inside.entering = Some(entering);
        self.outputs.push_back(Output::Prepare { view, flush });
    }

    pub(super) fn flushed(&mut self, now: Now, epoch: EpochId, cut: [u8; 32]) {
        if self.proved_by_log(now, epoch, cut) {
            return;
        }
        let Some(inside) = self.inside_mut() else { return };
        let Some(entering) = inside.entering.take_if(|it| it.name == epoch) else { return };
        if entering.commits {
            let Some(base) = base_of(&mut inside.engine) else { return };
            inside.base = base;
        }
        let Entering { position, change, people, cause, welcome, external, .. } = entering;
        inside.advance(people, position, cut);
        let is_ours = match &cause {
            None => true,
            Some(Cause::Card(card)) => card.id.cert == self.me.hash,
            Some(Cause::Commit { .. }) => false,
        };
        self.journal.begin(cause.map(|cause| Step { position, cut, cause }));
        self.enter(now, change);
        if self.pending.as_ref().is_some_and(|it| it.tokens.len() > 1) {
            self.send_pending();
        }
        if let Some((whom, welcome)) = welcome {
            self.let_in(now, &whom, &welcome, true);
            if self.welcomed.len() >= limits::MLS_ADDED_MAX {
                self.welcomed.pop_front();
            }
            self.welcomed.push_back(Welcomed { whom, welcome, position });
        }
        if let Some(cert) = external {
            self.note_external(now, cert);
        }
        if is_ours {
            self.post_soon(now);
        }
        self.set_turn(now);
        self.follow_log(now);
    }

    /// An epoch is in use.
    pub(super) fn enter(&mut self, now: Now, change: Change) {
        self.enter_anew(now, change, true);
    }

    /// The same. One that a run before was in is not `new`.
    pub(super) fn enter_anew(&mut self, now: Now, change: Change, new: bool) {
        let (group, suite, signs) = (self.group.clone(), self.config.suite, self.config.signs);
        let (origin, card) = (self.origin.clone(), self.card.clone());
        let is_known = self.inside().is_some_and(|it| it.cards.get(&card.id.cert) == Some(&card));
        let messages = self.private_messages(now, new && is_known);
        let seals = messages.as_ref().is_none_or(|it| it.seals);
        let shown = self.shown.clone();
        let has_log = self.config.directory;
        let Some(inside) = self.inside_mut() else { return };
        let data = DataEpoch {
            group: &group,
            suite,
            counter: inside.epoch.counter,
            context: &inside.engine.context(),
            cut: &inside.cut,
            people: &inside.people,
            payload: messages.map(|it| it as Arc<dyn SealPayload>),
        };
        inside.epoch = data.id();
        let me = slot(inside.engine.own_leaf());
        let protect: Arc<dyn Protect> = Arc::new(data.keys(&inside.base, me, &origin));
        let access: Arc<dyn Access> = Arc::new(Writers::new(group.clone(), inside.people.clone(), signs));
        let (epoch, roster) = (inside.epoch, inside.roster.clone());
        let change = if shown.is_none() { Change::Formed } else { change };
        let view = View::new(shown.as_ref(), epoch, roster.clone(), me, change).after(inside.cut);
        let position = inside.position;
        let signer = has_log.then(|| Arc::new(append_key(&inside.base)));
        if new || self.journal.is_behind() {
            self.store();
        }
        self.outputs.push_back(Output::Checkpointed(position));
        self.outputs.extend(signer.map(Output::AppendKey));
        if is_known && seals {
            self.renewed();
            self.shown = Some(roster);
            self.outputs.push_back(Output::Epoch { view, protect: Some(protect), access });
        } else {
            // It can be read; nothing is sealed before the others know our run, and with `data=mls` before it leads to an epoch.
            if !new {
                let until = self.delivered_before(epoch);
                self.outputs.push_back(Output::DeliveredBefore { epoch, until });
            }
            self.outputs.push_back(Output::Keyed { epoch, protect, view, access, passed: true });
            self.timers.sooner(Timer::Card, now.monotonic);
        }
        self.done();
        if is_known && !seals {
            self.renew_soon(now);
        }
        if !self.timers.is_set(Timer::Rekey) {
            self.set_rekey(now);
        }
        self.remember(now);
    }

    /// Says in the order how we run.
    pub(super) fn say_card(&mut self) {
        let card = self.card.clone();
        let Some(inside) = self.inside() else { return };
        if inside.cards.get(&card.id.cert) == Some(&card) || inside.entering.is_some() || !self.log.said.is_empty() {
            return;
        }
        let tokens = self.order(0, &Message::Card(card).write());
        self.log.said.extend(tokens);
    }
}

/// Whether a message is what it is said to be.
fn is_commit<E: Engine>(message: &[u8]) -> bool {
    let content = E::inspect_message(message).map(|it| it.content);
    matches!(content, Ok(engine::Content::Commit | engine::Content::ExternalCommit))
}

/// What the exporter of an engine's epoch gives for data; it gives nothing more.
pub(super) fn base_of<E: Engine>(engine: &mut E) -> Option<Secret<32>> {
    let exported = engine.export(DATA, b"", 32).ok()?;
    engine.delete_exporter();
    Secret::try_from(exported.as_slice()).ok()
}

/// The same of the epoch that our commit leads to.
pub(super) fn base_after<E: Engine>(engine: &mut E, pending: &engine::Pending) -> Option<Secret<32>> {
    let exported = engine.export_after(pending, DATA, b"", 32).ok()?;
    Secret::try_from(exported.as_slice()).ok()
}

/// As the exporter knows it.
const DATA: &str = "sealcast data";
/// So many who led to the last epochs are known to be there.
const RECENT: usize = 4;
/// A member that seems to be behind asks so much later.
const BEHIND_AFTER: std::time::Duration = std::time::Duration::from_millis(300);

/// Names the flush of the view that a message ends.
pub(super) fn name_of(from: EpochId, of: &[u8]) -> EpochId {
    let hash = sha256(of);
    EpochId {
        counter: from.counter.saturating_add(1),
        hash: u64::from_be_bytes(*hash.first_chunk().expect("8 of 32 bytes")),
    }
}

impl<E> Inside<E> {
    /// The next epoch begins, behind this position.
    pub(super) fn advance(&mut self, people: People, position: u64, cut: [u8; 32]) {
        self.people = people;
        (self.position, self.cut) = (position, cut);
        self.epoch.counter = self.epoch.counter.saturating_add(1);
        // Who comes in now knows none of them.
        self.parts.clear();
    }

    /// A member led to an epoch.
    fn heard_of(&mut self, slot: Slot) {
        self.recent.retain(|it| *it != slot);
        self.recent.push_front(slot);
        self.recent.truncate(RECENT);
    }

    /// Takes in a part; the message, once all are here. All members have the same ones at a position.
    fn take_part(
        &mut self,
        position: u64,
        whole: [u8; 32],
        (index, count): (u16, u16),
        bytes: Vec<u8>,
    ) -> Option<Vec<u8>> {
        if !self.parts.contains_key(&whole) && self.parts.len() >= limits::MLS_INCOMPLETE_MAX {
            let oldest = self.parts.iter().min_by_key(|(_, it)| it.first).map(|(whole, _)| *whole);
            oldest.map(|it| self.parts.remove(&it));
        }
        let parts = self.parts.entry(whole).or_insert_with(|| Parts { first: position, count, here: BTreeMap::new() });
        if parts.count != count {
            return None;
        }
        parts.here.entry(index).or_insert(bytes);
        if parts.here.len() < usize::from(count) {
            return None;
        }
        let message = self.parts.remove(&whole)?.here.into_values().collect::<Vec<_>>().concat();
        (sha256(&message) == whole).then_some(message)
    }

    /// Whether of each other member at most one proposal is kept, to remove its own leaf.
    pub(super) fn keeps_one_proposal_a_leaf(&self) -> bool
    where
        E: Engine,
    {
        let own = self.engine.own_leaf();
        let kept: Vec<engine::Proposed> = self.engine.proposals().into_iter().filter(|it| it.by != own).collect();
        let leaves: BTreeSet<LeafIndex> = kept.iter().map(|it| it.by).collect();
        kept.len() == leaves.len() && kept.iter().all(|it| it.what == ProposedKind::Remove(it.by))
    }

    /// The leaf of a certificate's holder.
    pub(super) fn leaf_of(&self, cert: &CertHash) -> Option<LeafIndex> {
        self.roster.find(cert).map(|(slot, _)| LeafIndex(slot.0))
    }
}

#[cfg(test)]
impl<E: Engine> Inside<E> {
    /// RFC 9420's number of the epoch.
    pub(super) fn engine_epoch(&self) -> u64 {
        self.engine.context().epoch
    }
}
