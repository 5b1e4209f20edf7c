//! The state of a group on disk: what changed, epoch by epoch, and now and then the whole.
//!
//! ```text
//! chain    = BASE, CHECKPOINT, STEP, STEP, …, CHECKPOINT, STEP, …, BASE, CHECKPOINT, …          each in a record of its own
//! entry    = u8 2 ‖ u8 kind ‖ SHA-256 of the entry before ‖ …
//! 0 BASE         list of nodes ‖ list of cards                                                     public
//! 1 CHECKPOINT   u64 number of a file key ‖ u32 nodes ‖ changed nodes ‖ changed cards ‖ gone ‖ the rest, sealed under that key
//! 2 STEP         u64 position ‖ cut ‖ (0 ‖ time ‖ commit ‖ cards  |  1 ‖ card)
//! file key = u64 number ‖ 32 random bytes                       two slots: that of the last checkpoint, and the one before it
//! ```
//! A state is the tree of a base and of the changes that follow, the last checkpoint that opens, and the steps behind it, done
//! again. Entries that a crash tore end a chain: nothing left that followed from them (G6). A file key is erased once the
//! checkpoint that supersedes what it seals is durable, so that no secret lies here for longer than [`STEPS_MAX`] epochs or
//! [`STEPS_LAST`] (D6).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sealcast_crypto::at_rest;
use sealcast_crypto::hash::sha256;
use sealcast_crypto::secret::Secret;
use sealcast_wire::codec::{Malformed, Reader, Writer};
use sealcast_wire::{CertHash, Now, Utc};

use super::engine::{Engine, NodeChange, NodeChanges};
use super::message::Card;
use super::records::{State, long, put_long};
use super::scheme::{Mls, Phase, Timer};
use crate::{FILE_KEY, Output};

/// Where the next entry goes, and what is still to be written.
#[derive(Default)]
pub(super) struct Journal {
    /// The next entry's number, and the hash of the one before.
    next: u64,
    last: [u8; 32],
    /// The oldest entry that is kept, and the newest base, with its bytes and those of what follows it.
    oldest: u64,
    base: Option<(u64, usize, usize)>,
    /// Number of the file key that seals the last checkpoint, and that key.
    key: Option<(u64, Secret<32>)>,
    /// The number of the key before it, until it is erased.
    superseded: Option<u64>,
    /// Whether the record of version 1 is still there.
    has_version_1: bool,
    /// What changed since the last checkpoint, and how many nodes there are now.
    nodes: BTreeSet<u32>,
    count: u32,
    certs: BTreeSet<CertHash>,
    /// What the next epoch follows from, until it is written.
    step: Option<Step>,
    /// How many were written since the last checkpoint under a key of its own.
    steps: u32,
    /// Whether something changed that no step says.
    is_dirty: bool,
}

/// What led to an epoch, as a later run does it again.
pub(super) struct Step {
    pub(super) position: u64,
    pub(super) cut: [u8; 32],
    pub(super) cause: Cause,
}

pub(super) enum Cause {
    /// A commit of somebody else, and by which time it was judged.
    Commit { utc: Utc, has_clock: bool, commit: Vec<u8>, cards: Vec<Card> },
    /// A member runs anew.
    Card(Card),
}

impl Journal {
    /// Something changed that a checkpoint has to say.
    pub(super) fn touch(&mut self) {
        self.is_dirty = true;
    }

    /// Whether the state lies in a record of version 1, and nowhere else.
    pub(super) fn is_of_version_1(&self) -> bool {
        self.has_version_1 && self.base.is_none()
    }

    /// These nodes of the tree changed, and the cards of these certificates.
    pub(super) fn note(&mut self, nodes: Option<&NodeChanges>, certs: impl IntoIterator<Item = CertHash>) {
        if let Some(nodes) = nodes {
            // What is cut off may come again as blank.
            self.nodes.extend((nodes.count..self.count).chain(nodes.nodes.iter().map(|it| it.index)));
            self.count = nodes.count;
        }
        self.certs.extend(certs);
    }

    /// An epoch begins that follows from this; `None` if only a checkpoint says from what.
    pub(super) fn begin(&mut self, step: Option<Step>) {
        self.is_dirty |= step.is_none();
        self.step = step;
    }

    /// Another group, or another way into it: nothing of the tree is written.
    pub(super) fn begin_anew(&mut self) {
        self.base = None;
        self.is_dirty = true;
    }

    /// Whether something is to be written.
    pub(super) fn is_behind(&self) -> bool {
        self.is_dirty || self.step.is_some()
    }

    fn put(&mut self, entry: Vec<u8>) -> Output {
        self.last = sha256(&entry);
        self.next += 1;
        Output::Store { id: CHAIN | (self.next - 1), record: entry }
    }

    fn head(&self, kind: u8) -> Writer {
        let mut w = Writer::new();
        w.u8(VERSION).u8(kind).raw(&self.last);
        w
    }
}

impl<E: Engine> Mls<E> {
    /// Makes the state durable before anything that follows from it is sent (G6).
    pub(super) fn store(&mut self) {
        match &self.phase {
            // The engine may be in the next epoch already, and the rest is not: the records before lead there, too.
            Phase::Inside(inside) if inside.entering.is_some() => return self.journal.touch(),
            Phase::Inside(_) => {}
            Phase::Out => return self.erase_state(),
            // What is there is of use to the next run, if this one does not come in.
            Phase::Outside(_) | Phase::External(_) => return,
        }
        let journal = &mut self.journal;
        match journal.step.take() {
            Some(step) if !journal.is_dirty && !self.config.erases && journal.steps + 1 < STEPS_MAX => {
                let mut w = journal.head(STEP);
                step.put(&mut w);
                let entry = w.finish();
                if let Some((.., behind)) = &mut journal.base {
                    *behind += entry.len();
                }
                journal.steps += 1;
                let output = journal.put(entry);
                self.outputs.push_back(output);
            }
            _ => self.store_all(),
        }
    }

    /// Writes a checkpoint.
    fn store_all(&mut self) {
        let rest = self.rest();
        let Phase::Inside(inside) = &self.phase else { return };
        let journal = &mut self.journal;
        // While the key before may still be needed, what is superseded stays under the same one.
        if journal.superseded.is_none() || journal.key.is_none() {
            let number = journal.key.as_ref().map_or(1, |(number, _)| number + 1);
            journal.superseded = journal.key.as_ref().map(|(number, _)| *number);
            let key = Secret::random(&mut self.rng);
            let record = [&number.to_be_bytes()[..], key.expose()].concat();
            self.outputs.push_back(Output::Store { id: slot_of(number), record });
            journal.key = Some((number, key));
            journal.steps = 0;
        } else {
            journal.steps += 1;
        }
        let whole = journal.base.filter(|(_, bytes, behind)| *behind <= bytes + BEHIND_BYTES).is_none();
        if whole {
            let mut w = journal.head(BASE);
            let count = inside.engine.node_count();
            w.u32(count);
            (0..count).for_each(|index| put_long(&mut w, &inside.engine.node(index)));
            put_cards(&mut w, inside.people.cards.values());
            let entry = w.finish();
            let number = journal.next;
            // The last base and what follows it stay until this one is surely durable.
            let before = journal.base.replace((number, entry.len(), 0)).map_or(journal.oldest, |(number, ..)| number);
            let gone = std::mem::replace(&mut journal.oldest, before)..before;
            let erased = |number| Output::Store { id: CHAIN | number, record: Vec::new() };
            self.outputs.extend(gone.map(erased));
            let output = journal.put(entry);
            self.outputs.push_back(output);
            journal.nodes.clear();
            journal.certs.clear();
        }
        journal.count = inside.engine.node_count();
        let (number, key) = journal.key.as_ref().expect("it was made above");
        let mut w = journal.head(CHECKPOINT);
        w.u64(*number).u32(journal.count).u32(journal.nodes.len() as u32);
        for index in std::mem::take(&mut journal.nodes) {
            w.u32(index);
            put_long(&mut w, &inside.engine.node(index));
        }
        let (there, gone): (Vec<CertHash>, Vec<CertHash>) =
            std::mem::take(&mut journal.certs).into_iter().partition(|it| inside.people.cards.get(it).is_some());
        put_cards(&mut w, there.iter().filter_map(|it| inside.people.cards.get(it)));
        w.u32(gone.len() as u32);
        gone.iter().for_each(|it| _ = w.raw(&it.0));
        w.raw(&at_rest::seal(key, &[SEALED, &number.to_be_bytes()], &rest, &mut self.rng));
        let entry = w.finish();
        if let Some((.., behind)) = &mut journal.base {
            *behind += entry.len();
        }
        journal.is_dirty = false;
        let output = journal.put(entry);
        self.outputs.push_back(output);
    }

    /// We are out: nothing of the group is kept.
    fn erase_state(&mut self) {
        let journal = std::mem::take(&mut self.journal);
        let ids =
            [FILE_KEY, FILE_KEY | 1, STATE_1].into_iter().chain((journal.oldest..journal.next).map(|it| CHAIN | it));
        self.outputs.extend(ids.map(|id| Output::Store { id, record: Vec::new() }));
        (self.journal.next, self.journal.oldest) = (journal.next, journal.next);
    }

    /// Sees to it that what is superseded is erased in time.
    pub(super) fn arm_erasure(&mut self, now: Now) {
        let journal = &self.journal;
        if journal.superseded.is_some() || journal.has_version_1 && journal.base.is_some() {
            self.timers.sooner(Timer::Erase, now.monotonic + ERASED_AFTER);
        } else if journal.steps > 0 {
            let last = if self.config.erases { ERASED_AFTER } else { STEPS_LAST };
            self.timers.sooner(Timer::Erase, now.monotonic + last);
        }
    }

    /// Something superseded was there for long enough.
    pub(super) fn erase(&mut self) {
        let journal = &mut self.journal;
        if std::mem::take(&mut journal.has_version_1) {
            self.outputs.push_back(Output::Store { id: STATE_1, record: Vec::new() });
        }
        if let Some(number) = journal.superseded.take() {
            self.outputs.push_back(Output::Store { id: slot_of(number), record: Vec::new() });
        } else if journal.steps > 0 {
            journal.is_dirty = true;
            self.store();
        }
    }
}

/// What is stored, as far as it is whole: the state, and how the journal goes on.
pub(super) fn read(stored: &BTreeMap<u64, &[u8]>) -> Option<(State, Journal)> {
    let keys = keys(stored);
    let entries: BTreeMap<u64, &[u8]> = stored.range(CHAIN..2 * CHAIN).map(|(id, it)| (id - CHAIN, *it)).collect();
    let bases = entries.iter().rev().filter(|(_, it)| it.get(..2) == Some(&[VERSION, BASE]));
    let (state, mut journal) = bases.filter_map(|(number, _)| read_from(&entries, *number, &keys)).next()?;
    journal.oldest = *entries.keys().next()?;
    journal.has_version_1 = stored.contains_key(&STATE_1);
    Some((state, journal))
}

/// The chain that begins with a base.
fn read_from(entries: &BTreeMap<u64, &[u8]>, base: u64, keys: &BTreeMap<u64, Secret<32>>) -> Option<(State, Journal)> {
    let first = *entries.get(&base)?;
    let mut last = sha256(first);
    let mut chain = Vec::new();
    for (number, bytes) in (base + 1..).map_while(|number| Some((number, *entries.get(&number)?))) {
        let Ok(entry) = Entry::read(bytes, &last) else { break };
        last = sha256(bytes);
        chain.push((number, bytes, entry));
    }
    // The last checkpoint that opens, and what is behind it.
    let opened = chain.iter().enumerate().rev().find_map(|(at, (.., entry))| match entry {
        Entry::Checkpoint { key, sealed, .. } => {
            let rest = at_rest::open(keys.get(key)?, &[SEALED, &key.to_be_bytes()], sealed).ok()?;
            Some((at, *key, State::read_rest(&rest).ok()?))
        }
        Entry::Step(_) => None,
    });
    let (at, key, mut state) = opened?;
    let (mut nodes, cards) = read_base(first).ok()?;
    let mut cards: BTreeMap<CertHash, Card> = cards.into_iter().map(|card| (card.id.cert, card)).collect();
    let steps = chain[at + 1..].iter().take_while(|(.., entry)| matches!(entry, Entry::Step(_))).count();
    let end = at + 1 + steps;
    let number = chain[end - 1].0;
    let (hash, behind) = (sha256(chain[end - 1].1), chain[..end].iter().map(|(_, bytes, _)| bytes.len()).sum());
    for (i, (.., entry)) in chain.into_iter().take(end).enumerate() {
        match entry {
            Entry::Checkpoint { changes, there, gone, .. } => {
                changes.apply_to(&mut nodes);
                gone.iter().for_each(|cert| _ = cards.remove(cert));
                cards.extend(there.into_iter().map(|card| (card.id.cert, card)));
            }
            Entry::Step(step) if i > at => state.steps.push(step),
            Entry::Step(_) => {}
        }
    }
    let count = nodes.len() as u32;
    state.tree = super::engine::assemble(nodes.iter().map(Vec::as_slice));
    state.cards = cards.into_values().collect();
    let journal = Journal {
        next: number + 1,
        last: hash,
        base: Some((base, first.len(), behind)),
        superseded: keys.keys().copied().find(|it| *it < key),
        key: keys.get(&key).map(|secret| (key, secret.clone())),
        steps: steps as u32,
        count,
        ..Journal::default()
    };
    Some((state, journal))
}

/// How a journal begins behind a record of version 1, or behind what is of no use.
pub(super) fn begin(stored: &BTreeMap<u64, &[u8]>) -> Journal {
    let numbers = || stored.range(CHAIN..2 * CHAIN).map(|(id, _)| id - CHAIN);
    let (oldest, next) = (numbers().next().unwrap_or(0), numbers().next_back().map_or(0, |it| it + 1));
    Journal {
        next,
        oldest,
        key: keys(stored).pop_last(),
        has_version_1: stored.contains_key(&STATE_1),
        ..Journal::default()
    }
}

/// The file keys that are there, by their numbers.
fn keys(stored: &BTreeMap<u64, &[u8]>) -> BTreeMap<u64, Secret<32>> {
    let read = |id: &u64| {
        let (number, key) = stored.get(id)?.split_first_chunk::<8>()?;
        Some((u64::from_be_bytes(*number), Secret::try_from(key).ok()?))
    };
    [FILE_KEY, FILE_KEY | 1].iter().filter_map(read).collect()
}

/// An entry behind a base.
enum Entry<'a> {
    Checkpoint { key: u64, changes: NodeChanges, there: Vec<Card>, gone: Vec<CertHash>, sealed: &'a [u8] },
    Step(Step),
}

impl Entry<'_> {
    fn read<'a>(bytes: &'a [u8], last: &[u8; 32]) -> Result<Entry<'a>, Malformed> {
        let mut r = Reader::new(bytes);
        let (version, kind) = (r.u8()?, r.u8()?);
        if version != VERSION || r.array()? != *last {
            return Err(Malformed);
        }
        match kind {
            CHECKPOINT => {
                let (key, count, changed) = (r.u64()?, r.u32()?, r.u32()?);
                let node = |r: &mut Reader<'_>| Ok(NodeChange { index: r.u32()?, bytes: long(r)?.to_vec() });
                let nodes = (0..changed).map(|_| node(&mut r)).collect::<Result<_, _>>()?;
                let there = read_cards(&mut r)?;
                let gone = r.u32()?;
                let gone = (0..gone).map(|_| Ok(CertHash(r.array()?))).collect::<Result<_, _>>()?;
                Ok(Entry::Checkpoint { key, changes: NodeChanges { count, nodes }, there, gone, sealed: r.rest() })
            }
            STEP => {
                let step = Step::read(&mut r)?;
                r.end()?;
                Ok(Entry::Step(step))
            }
            _ => Err(Malformed),
        }
    }
}

impl Step {
    fn put(&self, w: &mut Writer) {
        w.u64(self.position).raw(&self.cut);
        match &self.cause {
            Cause::Commit { utc, has_clock, commit, cards } => {
                w.u8(0).u64(utc.0 as u64).u8(u8::from(*has_clock));
                put_long(w, commit);
                put_cards(w, cards.iter());
            }
            Cause::Card(card) => card.put(w.u8(1)),
        }
    }

    fn read(r: &mut Reader<'_>) -> Result<Step, Malformed> {
        let (position, cut) = (r.u64()?, r.array()?);
        let cause = match r.u8()? {
            0 => {
                let (utc, has_clock) = (Utc(r.u64()? as i64), r.u8()? == 1);
                Cause::Commit { utc, has_clock, commit: long(r)?.to_vec(), cards: read_cards(r)? }
            }
            1 => Cause::Card(Card::read(r)?),
            _ => return Err(Malformed),
        };
        Ok(Step { position, cut, cause })
    }
}

fn read_base(bytes: &[u8]) -> Result<(Vec<Vec<u8>>, Vec<Card>), Malformed> {
    let mut r = Reader::new(bytes);
    r.take(2 + 32)?;
    let count = r.u32()?;
    let nodes = (0..count).map(|_| Ok(long(&mut r)?.to_vec())).collect::<Result<_, _>>()?;
    let cards = read_cards(&mut r)?;
    r.end()?;
    Ok((nodes, cards))
}

fn put_cards<'a>(w: &mut Writer, cards: impl Iterator<Item = &'a Card>) {
    let cards: Vec<&Card> = cards.collect();
    w.u32(cards.len() as u32);
    cards.iter().for_each(|card| card.put(w));
}

fn read_cards(r: &mut Reader<'_>) -> Result<Vec<Card>, Malformed> {
    let count = r.u32()?;
    (0..count).map(|_| Card::read(r)).collect()
}

fn slot_of(number: u64) -> u64 {
    FILE_KEY | number & 1
}

/// D6: what a checkpoint holds is superseded for so many epochs at most, that which ends it included.
const STEPS_MAX: u32 = 32;
/// The same as time, with [`ERASED_AFTER`] under a minute.
const STEPS_LAST: Duration = Duration::from_secs(55);
/// What supersedes is durable by then: a batch of records takes some milliseconds.
const ERASED_AFTER: Duration = Duration::from_millis(100);
/// So much more than the base has the chain behind it: a small group does not begin anew all the time.
const BEHIND_BYTES: usize = 64 << 10;

/// Of entries: 1 was one record of all.
const VERSION: u8 = 2;
const BASE: u8 = 0;
const CHECKPOINT: u8 = 1;
const STEP: u8 = 2;
/// Ids of entries: this and their number.
const CHAIN: u64 = 1 << 32;
/// The record of version 1.
pub(super) const STATE_1: u64 = 1;
const SEALED: &[u8] = b"mls state";
