//! What a process leaves for the next one: the group's state, our pending commit, the key packages that wait for a Welcome.
//!
//! State and pending commit are one record: torn between the two, either would be lost for good. `journal` says how the
//! state lies on disk.

use std::collections::BTreeMap;

use sealcast_crypto::secret::Secret;
use sealcast_wire::Now;
use sealcast_wire::codec::{Malformed, Reader, Writer};
use zeroize::Zeroizing;

use super::committing::{Pending, Wish};
use super::engine::{self, Checkpoint, Engine, Processed, ProposedKind};
use super::following::base_of;
use super::joining::{KnownBy, Start};
use super::journal::{self, Cause, Journal, STATE_1, Step};
use super::message::{Card, Message};
use super::packages::OwnPackage;
use super::people::digest_of;
use super::scheme::{Mls, Phase, Timer};
use crate::{MemberStatus, Output, Status, TreeStatus};

/// What is stored.
#[derive(Default)]
pub(super) struct Records {
    /// The last run's number.
    pub(super) run: u64,
    pub(super) packages: Vec<OwnPackage>,
    pub(super) state: Option<State>,
    pub(super) journal: Journal,
}

/// A group's state.
pub(super) struct State {
    position: u64,
    founded: u64,
    counter: u32,
    base: Secret<32>,
    cut: [u8; 32],
    checkpoint: Checkpoint,
    /// What the group is still to commit.
    wishes: Vec<u8>,
    pending: Option<Sent>,
    /// Which authority's certificates and which cards were found to be good: its certificate's hash, and the cards' digest.
    verified: Option<[[u8; 32]; 2]>,
    pub(super) cards: Vec<Card>,
    pub(super) tree: Vec<u8>,
    /// What led on from there.
    pub(super) steps: Vec<Step>,
}

/// A commit that was sent, or was about to be.
struct Sent {
    epoch: u64,
    message: Vec<u8>,
    record: engine::Pending,
    welcome: Option<Vec<u8>>,
    wishes: Vec<u8>,
}

/// Reads what is stored; a record that does not parse is none.
pub(super) fn read(stored: &[(u64, Vec<u8>)]) -> Records {
    let stored = stored.iter().filter(|(_, record)| !record.is_empty());
    let stored: BTreeMap<u64, &[u8]> = stored.map(|(id, record)| (*id, record.as_slice())).collect();
    let (run, packages) = stored.get(&RUN).and_then(|it| read_run(it).ok()).unwrap_or_default();
    match journal::read(&stored) {
        Some((state, journal)) => Records { run, packages, state: Some(state), journal },
        None => {
            let state = stored.get(&STATE_1).and_then(|it| State::read_version_1(it).ok());
            Records { run, packages, state, journal: journal::begin(&stored) }
        }
    }
}

/// The position in the order from which a member with these records goes on; `None` for a newcomer.
pub fn position(stored: &[(u64, Vec<u8>)]) -> Option<u64> {
    let state = read(stored).state?;
    let last = state.steps.last().map_or(state.position, |step| step.position);
    Some(last.saturating_add(1))
}

fn read_run(record: &[u8]) -> Result<(u64, Vec<OwnPackage>), Malformed> {
    let mut r = Reader::new(record);
    let (version, run) = (r.u8()?, r.u64()?);
    // Its packages are offered anew.
    if version == 1 {
        return Ok((run, Vec::new()));
    }
    if version != RUN_VERSION {
        return Err(Malformed);
    }
    let mut packages = Vec::new();
    while r.remaining() > 0 {
        packages.push(OwnPackage::read(&mut r)?);
    }
    Ok((run, packages))
}

impl State {
    fn read_version_1(record: &[u8]) -> Result<State, Malformed> {
        let mut r = Reader::new(record);
        if r.u8()? != 1 {
            return Err(Malformed);
        }
        let mut state = State::read_numbers(&mut r)?;
        let count = r.u32()?;
        state.cards = (0..count).map(|_| Card::read(&mut r)).collect::<Result<_, _>>()?;
        state.checkpoint = Checkpoint(Zeroizing::new(long(&mut r)?.to_vec()));
        state.tree = long(&mut r)?.to_vec();
        let state = state.read_wanted(r)?;
        // Nothing seals it.
        Ok(State { verified: None, ..state })
    }

    /// What a checkpoint seals, without the cards, the tree and the steps.
    pub(super) fn read_rest(rest: &[u8]) -> Result<State, Malformed> {
        let mut r = Reader::new(rest);
        let mut state = State::read_numbers(&mut r)?;
        state.checkpoint = Checkpoint(Zeroizing::new(long(&mut r)?.to_vec()));
        state.read_wanted(r)
    }

    fn read_numbers(r: &mut Reader<'_>) -> Result<State, Malformed> {
        let (position, founded, counter) = (r.u64()?, r.u64()?, r.u32()?);
        let (base, cut) = (Secret::from_bytes(r.array()?), r.array()?);
        let (checkpoint, wishes, pending) = (Checkpoint(Zeroizing::default()), Vec::new(), None);
        let (verified, cards, tree, steps) = Default::default();
        Ok(State { position, founded, counter, base, cut, checkpoint, wishes, pending, verified, cards, tree, steps })
    }

    fn read_wanted(mut self, mut r: Reader<'_>) -> Result<State, Malformed> {
        self.wishes = long(&mut r)?.to_vec();
        if r.u8()? != 0 {
            let (epoch, message) = (r.u64()?, long(&mut r)?.to_vec());
            let record = engine::Pending(Zeroizing::new(long(&mut r)?.to_vec()));
            let welcome = long(&mut r)?.to_vec();
            let welcome = (!welcome.is_empty()).then_some(welcome);
            self.pending = Some(Sent { epoch, message, record, welcome, wishes: long(&mut r)?.to_vec() });
        }
        // A program before this one did not say it.
        if r.remaining() > 0 {
            self.verified = Some([r.array()?, r.array()?]);
        }
        r.end()?;
        Ok(self)
    }
}

/// Bytes with a length of four.
pub(super) fn long<'a>(r: &mut Reader<'a>) -> Result<&'a [u8], Malformed> {
    let length = r.u32()? as usize;
    r.take(length)
}

pub(super) fn put_long(w: &mut Writer, bytes: &[u8]) {
    w.u32(bytes.len() as u32).raw(bytes);
}

impl<E: Engine> Mls<E> {
    /// What a checkpoint seals; empty outside of a group.
    pub(super) fn rest(&mut self) -> Zeroizing<Vec<u8>> {
        let Phase::Inside(inside) = &mut self.phase else { return Zeroizing::default() };
        let checkpoint = inside.engine.checkpoint();
        let wishes = Zeroizing::new(written(self.wishes.iter()));
        let pending = self.pending.as_ref();
        let sent = |it: &Pending| it.message.len() + it.record.0.len() + it.welcome.as_ref().map_or(0, Vec::len);
        let others = pending.map_or(0, |it| sent(it) + written(it.wishes.iter()).len());
        // In one place: a vector that grows leaves copies of secrets behind.
        let mut w = Writer::with_capacity(checkpoint.0.len() + wishes.len() + others + 256);
        w.u64(inside.position).u64(inside.founded).u32(inside.epoch.counter);
        w.raw(inside.base.expose()).raw(&inside.cut);
        put_long(&mut w, &checkpoint.0);
        put_long(&mut w, &wishes);
        w.u8(u8::from(pending.is_some()));
        if let Some(pending) = pending {
            w.u64(pending.epoch);
            put_long(&mut w, &pending.message);
            put_long(&mut w, &pending.record.0);
            put_long(&mut w, pending.welcome.as_deref().unwrap_or_default());
            put_long(&mut w, &written(pending.wishes.iter()));
        }
        let cards = inside.people.cards.digest();
        w.raw(&self.judge.anchor().certificate().hash().0).raw(&cards);
        Zeroizing::new(w.finish())
    }

    pub(super) fn store_run(&mut self) {
        let mut w = Writer::new();
        w.u8(RUN_VERSION).u64(self.card.run);
        self.packages.iter().for_each(|it| it.put(&mut w));
        self.outputs.push_back(Output::Store { id: RUN, record: w.finish() });
    }

    /// Goes on where the last run ended. Nothing is sealed before the group knows this run.
    pub(super) fn resume(&mut self, now: Now, state: State) -> Option<()> {
        let engine = E::restore(&self.setup, &state.checkpoint, &state.tree).ok()?;
        let State { position, founded, counter, base, cut, cards, wishes, pending, verified, steps, .. } = state;
        let journal = std::mem::take(&mut self.journal);
        // The engine compared the tree with what is sealed; a thousand signatures take a tenth of a second.
        let authority = self.judge.anchor().certificate().hash().0;
        let known = verified.is_some_and(|it| digest_of(&cards).is_some_and(|cards| it == [authority, cards]));
        let known = if known { KnownBy::UsBefore } else { KnownBy::Nobody };
        self.go_inside(engine, base, Start { counter, position, founded, cut, cards }, known);
        self.journal = journal;
        let replayed = !steps.is_empty();
        steps.into_iter().try_for_each(|step| self.replay(step))?;
        self.utc(now);
        self.erase_used();
        // Also where the transport does not know how far we were.
        let position = self.inside().map_or(position, |it| it.position);
        self.outputs.push_back(Output::Again(position));
        self.wishes = self.read_wishes(&wishes).into();
        if let Some(inside) = self.inside_mut() {
            // A program before this one kept others, too.
            let removal = |it: engine::Proposed| (it.what == ProposedKind::Remove(it.by)).then_some(it.by);
            inside.leavers = inside.engine.proposals().into_iter().filter_map(removal).collect();
            let leaves = inside.leavers.contains(&inside.engine.own_leaf());
            // It may have founded its group while the members of another one were away.
            let is_alone = inside.members.len() == 1;
            inside.behind = is_alone;
            self.leaving = leaves;
            if is_alone {
                self.timers.sooner(Timer::Want, now.monotonic);
            }
        }
        if let Some(Sent { epoch, message, record, welcome, wishes }) = pending {
            let wishes = self.read_wishes(&wishes);
            let commit = match Message::read(&message) {
                Ok(Message::Commit { commit, .. }) => commit,
                _ => Vec::new(),
            };
            let tokens = Vec::new();
            let excludes = false;
            self.pending = Some(Pending { tokens, epoch, message, commit, record, welcome, wishes, excludes });
            self.send_pending();
        }
        // A process may be away for longer than what is superseded may stay (D6).
        if replayed || self.journal.is_of_version_1() {
            self.journal.touch();
        }
        self.enter_anew(now, sealcast_wire::Change::Formed, false);
        self.timers.sooner(Timer::Card, now.monotonic);
        Some(())
    }

    /// Does again what led to an epoch.
    fn replay(&mut self, step: Step) -> Option<()> {
        let Step { position, cut, cause } = step;
        let mut people = self.inside()?.people.clone();
        match cause {
            Cause::Commit { utc, has_clock, commit, cards } => {
                self.judge.set_time(utc, has_clock);
                let inside = self.inside_mut()?;
                let Ok(Processed::Commit(change)) = inside.engine.process(&commit, utc) else { return None };
                inside.base = base_of(&mut inside.engine)?;
                (people, _) = self.people_after(&change, &cards)?;
            }
            Cause::Card(card) => {
                people.run(&card).then_some(())?;
                self.journal.note(None, [card.id.cert]);
            }
        }
        self.inside_mut()?.advance(people, position, cut);
        Some(())
    }

    fn read_wishes(&self, written: &[u8]) -> Vec<Wish> {
        let mut r = Reader::new(written);
        let mut wishes = Vec::new();
        while r.remaining() > 0 {
            let Ok(wish) = Wish::read(&mut r, self.judge.anchor()) else { break };
            wishes.push(wish);
        }
        wishes
    }

    /// What `group show` prints.
    pub(super) fn describe(&mut self, now: Now) {
        let (pending, unnamed) = self.pending_devices(now);
        let Some(inside) = self.inside() else { return };
        let member = |(at, it): (&sealcast_wire::Slot, &std::sync::Arc<sealcast_crypto::identity::Verified>)| {
            let id = inside.roster.get(*at).map(|member| member.id)?;
            Some(MemberStatus {
                id,
                name: it.name.to_string(),
                serial: it.serial,
                key: it.key.clone(),
                sealing: it.sealing,
                exchanges: false,
                rights: it.rights.clone(),
                attributes: it.attributes.clone(),
                not_after: it.not_after.0,
                since: inside.epoch.counter,
            })
        };
        let members = inside.members.iter().filter_map(member).collect();
        let tree = Some(TreeStatus {
            suite: self.setup.suite.name(),
            nodes: inside.engine.node_count(),
            blanks_above: inside.engine.blanks_above(),
            position: inside.judged,
        });
        self.outputs.push_back(Output::Described(Box::new(Status {
            members,
            tree,
            pending,
            unnamed,
            ..Status::default()
        })));
    }
}

fn written<'a>(wishes: impl Iterator<Item = &'a Wish>) -> Vec<u8> {
    let mut w = Writer::new();
    wishes.for_each(|it| it.put(&mut w));
    w.finish()
}

/// Of the record of the run and its key packages.
const RUN_VERSION: u8 = 2;
const RUN: u64 = 2;
