//! Updates and answers about subscriptions, handed on in one order.
//!
//! Blocks are dealt with by height, and only while no subscription lags; those that lag are caught up together, by sn. So
//! what the application gets is in the brokers' order over all of its subscriptions.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sealcast_broker::operation::{Operation, OperationId, Publication};
use sealcast_broker::protocol::{Contents, Query, Update};
use sealcast_broker::state::{Entry, Notice, Run};
use sealcast_wire::{Monotonic, Now, limits};

use super::Quorum;
use super::catching::AgreementRule;
use super::event::{Delivered, Misbehaviour, Output};
use super::line::{Item, SubscriptionState};
use super::queries::Purpose;
use super::updates::Known;

/// Bodies of publications and advertisements, named by their operations' ids.
#[derive(Debug, Default)]
pub(super) struct Bodies {
    wanted: BTreeMap<u64, OperationId>,
    got: BTreeMap<u64, Vec<u8>>,
}

impl Bodies {
    /// The body with this id, if it is here; otherwise it is wanted from now on.
    fn take(&mut self, sn: u64, id: &OperationId) -> Option<Vec<u8>> {
        let body = self.got.remove(&sn);
        if body.is_some() {
            self.wanted.remove(&sn);
        } else {
            self.wanted.insert(sn, *id);
        }
        body
    }

    /// Whether it is here; otherwise it is wanted from now on.
    pub(super) fn has(&mut self, sn: u64, id: &OperationId) -> bool {
        self.got.contains_key(&sn) || {
            self.wanted.insert(sn, *id);
            false
        }
    }

    /// Takes in a body that a broker sent; `false` if it is not the one that is wanted.
    fn put(&mut self, sn: u64, body: Vec<u8>) -> bool {
        let Some(id) = self.wanted.get(&sn) else { return true };
        let fits = OperationId::of(&body) == *id;
        if fits {
            self.got.insert(sn, body);
        }
        fits
    }

    /// What is wanted and not here, by sn.
    fn missing(&self) -> Vec<u64> {
        let missing = self.wanted.keys().filter(|sn| !self.got.contains_key(sn));
        missing.copied().take(limits::READ_POSITIONS_MAX).collect()
    }

    /// Whether it is here.
    pub(super) fn holds(&self, sn: u64) -> bool {
        self.got.contains_key(&sn)
    }

    /// The publication with this entry, if its body is here.
    pub(super) fn publication(&mut self, entry: &Entry) -> Option<Publication> {
        publication(&self.take(entry.sn, &entry.id)?)
    }
}

/// The publication with these bytes, which its entry names.
fn publication(bytes: &[u8]) -> Option<Publication> {
    match Operation::from_bytes(bytes) {
        Ok(Operation::Publish(publication)) => Some(*publication),
        _ => None,
    }
}

/// How far dealing with a block came.
enum Step {
    /// It is done, or something else must be done first that can be.
    On,
    /// Something must come from a broker.
    Wait,
}

impl Quorum {
    /// A broker names what a block holds for the client; `in_turn` unless it is an answer.
    pub(super) fn update(&mut self, now: Now, broker: u16, update: Update, in_turn: bool) {
        let Update { height, digest, contents } = update;
        if in_turn {
            let channel = &mut self.channels[usize::from(broker)];
            channel.newest = channel.newest.max(height);
            channel.claim.height = channel.claim.height.max(height);
        }
        if !self.updates.named(now.monotonic, broker, height, digest) {
            self.misbehaved(broker, Misbehaviour::Differed);
        }
        if let Some(mut contents) = contents.filter(|_| height > self.updates.applied) {
            if contents.digest(&self.cluster, &self.client, height) != digest {
                self.misbehaved(broker, Misbehaviour::Contents);
            } else {
                if !keep_good_bodies(&mut contents) {
                    self.misbehaved(broker, Misbehaviour::Body);
                }
                self.updates.contents(height, digest, contents);
            }
        }
        self.advance(now);
    }

    /// Hands on whatever can be.
    pub(super) fn advance(&mut self, now: Now) {
        if self.order_status().is_none() {
            return;
        }
        self.watch_vouching(now);
        self.take_results(now);
        while self.may_hand_on() {
            let lagging: Vec<u64> = self.lines.iter().filter(|(_, line)| line.lags()).map(|(id, _)| *id).collect();
            let step = match (lagging.is_empty(), self.updates.head()) {
                (false, _) => self.catch_up(now, &lagging),
                (true, None) => Step::Wait,
                (true, Some(height)) => match self.known_of(height) {
                    Known::Unclear => Step::Wait,
                    Known::Nothing => {
                        self.settle_height(height, None);
                        Step::On
                    }
                    Known::Believed(digest) => self.apply(now, height, digest),
                },
            };
            if let Step::Wait = step {
                break;
            }
        }
        self.request_bodies(now);
    }

    fn known_of(&self, height: u64) -> Known {
        let has_passed = |it: &super::Channel| it.greeted().is_some_and(|g| g.height < height) && it.newest > height;
        let passed = self.channels.iter().zip(0..).filter(|(it, _)| has_passed(it)).map(|(_, broker)| broker);
        self.updates.known(height, passed, self.faulty)
    }

    /// Results do not wait for what must be delivered before them.
    fn take_results(&mut self, now: Now) {
        let open: Vec<u64> = self.updates.heights().filter(|(_, it)| !it.results_taken).map(|(h, _)| h).collect();
        for height in open {
            let Known::Believed(digest) = self.known_of(height) else { continue };
            let Some((at, results)) = self.updates.take_results(height, &digest) else { continue };
            self.known.believe(now.monotonic, at);
            results.iter().for_each(|it| self.executed(now, height, it));
        }
    }

    /// Deals with a believed block.
    fn apply(&mut self, now: Now, height: u64, digest: [u8; 32]) -> Step {
        let Some(contents) = self.updates.held(height, &digest) else { return Step::Wait };
        let mut lags = false;
        for Notice { subscription, first, .. } in &contents.notices {
            if let Some(line) = self.lines.get_mut(subscription).filter(|it| it.is_read && it.place < *first) {
                line.goal = line.goal.max(*first);
                lags = true;
            }
        }
        if lags {
            return Step::On;
        }
        let mut here: Vec<u64> = contents.bodies.iter().map(|(sn, _)| *sn).collect();
        here.sort_unstable();
        let mut has_all = true;
        let entries = contents.publications.iter().map(|it| (it.sn, &it.id));
        for (sn, id) in entries.chain(contents.advertisements.iter().map(|it| (it.sn, &it.id))) {
            has_all &= here.binary_search(&sn).is_ok() || self.bodies.has(sn, id);
        }
        if !has_all {
            return Step::Wait;
        }
        let contents = self.updates.take(height, &digest).expect("it was just there");
        self.hand_on(now, *contents);
        self.settle_height(height, Some(digest));
        Step::On
    }

    fn settle_height(&mut self, height: u64, digest: Option<[u8; 32]>) {
        self.known.height = self.known.height.max(if digest.is_some() { height } else { 0 });
        for broker in self.updates.done(height, digest) {
            self.misbehaved(broker, Misbehaviour::Differed);
        }
    }

    /// Hands on a block of which all is here.
    fn hand_on(&mut self, now: Now, contents: Contents) {
        let mut bodies = Ascending::of(contents.bodies);
        let mut entries = Ascending::of(contents.publications.into_iter().map(|it| (it.sn, it)).collect());
        // What subscriptions get: by sn, and at the same sn by subscription.
        let mut readers: Vec<(u64, u64)> = Vec::new();
        for notice in &contents.notices {
            let Some(line) = self.lines.get_mut(&notice.subscription) else { continue };
            if !line.is_read {
                // Whoever reads it later has this to catch up with.
                line.goal = line.goal.max(notice.first + notice.places());
                continue;
            }
            let mut place = notice.first;
            for run in &notice.runs {
                match run {
                    Run::Deliver { sn } => {
                        if place >= line.place {
                            readers.push((*sn, notice.subscription));
                        }
                        place += 1;
                    }
                    Run::Empty { count } => place += count,
                }
            }
        }
        let mut runs: BTreeMap<u64, std::vec::IntoIter<Run>> = BTreeMap::new();
        for notice in contents.notices {
            let Some(line) = self.lines.get(&notice.subscription).filter(|it| it.is_read) else { continue };
            let left = behind(notice.runs, line.place - notice.first);
            runs.insert(notice.subscription, left.into_iter());
        }
        readers.sort_unstable();
        for readers in readers.chunk_by(|a, b| a.0 == b.0) {
            let sn = readers[0].0;
            let (Some(entry), body) = (entries.take(sn), bodies.take(sn)) else { continue };
            let body = body.or_else(|| self.bodies.take(sn, &entry.id));
            let Some(publication) = body.and_then(|it| publication(&it)) else { continue };
            let mut given = Some((entry, publication));
            for (i, (_, subscription)) in readers.iter().enumerate() {
                let is_last = i + 1 == readers.len();
                let (entry, publication) =
                    if is_last { given.take() } else { given.clone() }.expect("it is given away last");
                self.skip_until(*subscription, &mut runs);
                self.give(*subscription, entry, publication);
            }
        }
        let mut bodies = bodies.rest();
        let subscriptions: Vec<u64> = runs.keys().copied().collect();
        subscriptions.into_iter().for_each(|it| self.skip_until(it, &mut runs));
        for advertisement in contents.advertisements {
            let body = bodies.remove(&advertisement.sn);
            let body = body.or_else(|| self.bodies.take(advertisement.sn, &advertisement.id));
            if let Some(Ok(Operation::Advertise { scope, text })) = body.map(|it| Operation::from_bytes(&it)) {
                self.outputs.push_back(Output::Advertised { advertisement, scope, text });
            }
        }
        self.changed(now);
    }

    /// Passes over ⊥ up to the subscription's next publication, and that one's run.
    fn skip_until(&mut self, subscription: u64, runs: &mut BTreeMap<u64, std::vec::IntoIter<Run>>) {
        let Some(runs) = runs.get_mut(&subscription) else { return };
        for run in runs.by_ref() {
            match run {
                Run::Deliver { .. } => return,
                Run::Empty { count } => self.skip(subscription, count),
            }
        }
    }

    fn skip(&mut self, subscription: u64, count: u64) {
        if let Some(line) = self.lines.get_mut(&subscription) {
            self.outputs.push_back(Output::Skipped { subscription, place: line.place, count });
            line.skip(count);
        }
    }

    fn give(&mut self, subscription: u64, entry: Entry, publication: Publication) {
        if let Some(line) = self.lines.get_mut(&subscription) {
            let place = line.place;
            line.deliver(entry.sn);
            let delivered = Delivered { subscription, place, entry, publication };
            self.outputs.push_back(Output::Delivered(Box::new(delivered)));
        }
    }

    /// Delivers what was fetched for subscriptions that lag, in the order of all of them.
    fn catch_up(&mut self, now: Now, lagging: &[u64]) -> Step {
        let mut next: Option<(u64, u64)> = None;
        let mut waits = false;
        for id in lagging {
            let line = self.lines.get_mut(id).expect("it lags");
            match line.ready.front() {
                Some(Item::Empty(count)) => {
                    let count = *count;
                    line.ready.pop_front();
                    self.skip(*id, count);
                    self.changed(now);
                    return Step::On;
                }
                Some(Item::Lost(count)) => {
                    let (subscription, place, count) = (*id, line.place, *count);
                    line.ready.pop_front();
                    line.skip(count);
                    self.outputs.push_back(Output::Lost { subscription, place, count });
                    self.changed(now);
                    return Step::On;
                }
                Some(Item::Publication(entry)) => {
                    next = Some(next.map_or((entry.sn, *id), |it| it.min((entry.sn, *id))));
                }
                None => {
                    waits = true;
                    let purpose = Purpose::Resume(*id);
                    let (place, sn) = line.anchor;
                    let min_height = self.known.height;
                    if !self.queries.is_open(&purpose) && self.queries.has_capacity() {
                        let query = Query::Resume { subscription: *id, place, sn, min_height };
                        self.ask(now, purpose, query, self.faulty + 1);
                    }
                }
            }
        }
        let Some((_, id)) = next.filter(|_| !waits) else { return Step::Wait };
        let line = self.lines.get_mut(&id).expect("it lags");
        // Bodies of what follows are asked for at once.
        let mut wanted = Vec::new();
        for item in line.ready.iter().take(limits::READ_POSITIONS_MAX) {
            if let Item::Publication(entry) = item {
                wanted.push((entry.sn, entry.id));
            }
        }
        let Some(&(sn, first)) = wanted.first() else { return Step::Wait };
        if !self.bodies.has(sn, &first) {
            wanted.iter().for_each(|(sn, id)| {
                self.bodies.has(*sn, id);
            });
            return Step::Wait;
        }
        let Some(Item::Publication(entry)) = line.ready.pop_front() else { return Step::Wait };
        if let Some(publication) = self.bodies.publication(&entry) {
            self.give(id, *entry, publication);
        }
        self.changed(now);
        Step::On
    }

    /// Takes in what f + 1 brokers say of a subscription; of what they do not agree on something is given up only once
    /// nobody is to be waited for, and if it is `late` for nobody. `true` if the query is done with.
    pub(super) fn resumed(&mut self, id: u64, ask: u64, late: bool) -> bool {
        let (up, brokers, faulty) = (self.up(), self.channels.len(), self.faulty);
        let (Some(line), Some(ask)) = (self.lines.get_mut(&id), self.queries.get(ask)) else { return true };
        let waits = |broker: u16| !late && up.contains(&broker) && !ask.has_said(broker);
        let may_agree = !late || ask.rounds < DIFFERING_ROUNDS;
        line.fetch(&AgreementRule { brokers, faulty, waits: &waits, may_agree })
    }

    /// Asks those brokers on whose pages ended before what is wanted; whether there are such.
    pub(super) fn ask_on(&mut self, id: u64, ask: u64) -> bool {
        let up = self.up();
        let (Some(line), Some(ask_of)) = (self.lines.get(&id), self.queries.get_mut(ask)) else { return false };
        let mut behind = line.streams.behind(line.fetched());
        behind.retain(|broker| up.contains(broker));
        behind.iter().for_each(|broker| ask_of.is_asked_on(*broker));
        behind.iter().for_each(|broker| self.ask_broker(ask, *broker));
        !behind.is_empty()
    }

    /// Who need not be asked of a subscription, because what it said reaches further than what is agreed on.
    pub(super) fn is_ahead(&self, id: u64, broker: u16) -> bool {
        self.lines.get(&id).is_some_and(|line| line.streams.covers(broker, line.fetched()))
    }

    /// f + 1 brokers no longer keep the bodies that are wanted, or let us read them: what stands where is asked for again,
    /// and is lost or ⊥ then.
    pub(super) fn bodies_gone(&mut self, now: Now) {
        self.bodies.wanted.clear();
        self.lines.values_mut().for_each(SubscriptionState::refetch);
        self.reads_pruned();
        self.pass_over_head(now);
    }

    /// Of the block that is next not all can be had: its subscriptions catch up with what may be read of it now.
    fn pass_over_head(&mut self, now: Now) {
        let Some(height) = self.updates.head() else { return };
        let Known::Believed(digest) = self.known_of(height) else { return };
        let Some(contents) = self.updates.held(height, &digest) else { return };
        let here: BTreeSet<u64> = contents.bodies.iter().map(|(sn, _)| *sn).collect();
        let mentioned =
            contents.publications.iter().map(|it| it.sn).chain(contents.advertisements.iter().map(|it| it.sn));
        if mentioned.into_iter().all(|sn| here.contains(&sn) || self.bodies.holds(sn)) {
            return;
        }
        for notice in &contents.notices {
            if let Some(line) = self.lines.get_mut(&notice.subscription) {
                line.goal = line.goal.max(notice.first + notice.places());
            }
        }
        self.settle_height(height, Some(digest));
        self.changed(now);
    }

    /// Takes in bodies that a broker sent, as many as fitted. `true` if there were such that are wanted.
    pub(super) fn take_bodies(&mut self, broker: u16, bodies: Vec<(u64, Vec<u8>)>) -> bool {
        let before = self.bodies.got.len();
        for (sn, body) in bodies {
            if !self.bodies.put(sn, body) {
                self.misbehaved(broker, Misbehaviour::Body);
            }
        }
        self.bodies.got.len() > before
    }

    pub(super) fn request_bodies(&mut self, now: Now) {
        // What nobody may be handed now is not asked for.
        let sns = if self.held { self.missing_of_reads() } else { self.bodies.missing() };
        if !sns.is_empty() && self.queries.has_capacity() && !self.queries.is_open(&Purpose::Bodies) {
            self.ask(now, Purpose::Bodies, Query::Bodies { sns }, 1);
        }
    }

    /// When the first block has waited long enough to be asked for.
    pub(super) fn late_update(&self) -> Option<Monotonic> {
        let due = |(height, it): (u64, &super::updates::Height)| {
            (!self.queries.is_open(&Purpose::Update(height))).then(|| it.since + TIMEOUT * (1 + it.asked))
        };
        let reached = self.reached(|it| it.claim.height)?;
        let executed = self.updates.heights().take_while(|(height, _)| *height <= reached).take(ASKED_AT_ONCE);
        executed.filter_map(due).min().filter(|_| self.queries.has_capacity())
    }

    /// Whether nothing of a block is missing but perhaps bodies.
    pub(super) fn has_update(&self, height: u64) -> bool {
        match self.known_of(height) {
            Known::Believed(digest) => self.updates.held(height, &digest).is_some(),
            Known::Nothing => true,
            Known::Unclear => false,
        }
    }

    /// Asks for blocks whose digests or contents did not come.
    pub(super) fn request_updates(&mut self, now: Now) {
        let is_late = |(_, it): &(u64, &super::updates::Height)| now.monotonic >= it.since + TIMEOUT * (1 + it.asked);
        let Some(reached) = self.reached(|it| it.claim.height) else { return };
        let first = self.updates.heights().take_while(|(height, _)| *height <= reached).take(ASKED_AT_ONCE);
        let late: Vec<u64> = first.filter(is_late).map(|(height, _)| height).collect();
        for height in late {
            let (known, is_here) = (self.known_of(height), self.has_update(height));
            let purpose = Purpose::Update(height);
            if self.queries.is_open(&purpose) || !self.queries.has_capacity() {
                continue;
            }
            let Some(it) = self.updates.get_mut(height) else { continue };
            it.asked += 1;
            if is_here {
                continue;
            }
            if it.asked > UPDATE_ASKS * if known == Known::Unclear { 1 } else { 8 } {
                // Nobody can say any more what it was: a gap, if anything.
                self.updates.give_up(height);
                continue;
            }
            let width = if known == Known::Unclear { self.channels.len() } else { 1 };
            self.ask(now, purpose, Query::Update { height }, width);
        }
    }

    /// Something of the record changed.
    pub(super) fn changed(&mut self, now: Now) {
        self.store_at.get_or_insert(now.monotonic + STORE_EVERY);
    }
}

/// What one broker found of a subscription.
pub(super) struct Page {
    pub(super) lost: u64,
    pub(super) notice: Notice,
    pub(super) until: u64,
    pub(super) publications: Vec<Entry>,
}

/// Things by sn that are asked for in ascending order.
struct Ascending<T> {
    things: std::iter::Peekable<std::vec::IntoIter<(u64, T)>>,
    /// What nobody asked for.
    passed: Vec<(u64, T)>,
}

impl<T> Ascending<T> {
    fn of(mut things: Vec<(u64, T)>) -> Ascending<T> {
        things.sort_by_key(|(sn, _)| *sn);
        Ascending { things: things.into_iter().peekable(), passed: Vec::new() }
    }

    /// The last one with this sn, which is not below any that was asked for before.
    fn take(&mut self, sn: u64) -> Option<T> {
        while let Some(thing) = self.things.next_if(|(at, _)| *at < sn) {
            self.passed.push(thing);
        }
        let mut found = None;
        while let Some((_, thing)) = self.things.next_if(|(at, _)| *at == sn) {
            found = Some(thing);
        }
        found
    }

    /// What was not taken.
    fn rest(self) -> BTreeMap<u64, T> {
        self.passed.into_iter().chain(self.things).collect()
    }
}

/// Drops bodies that are not what the contents name; `false` if there were such.
fn keep_good_bodies(contents: &mut Contents) -> bool {
    let ids = contents.publications.iter().map(|it| (it.sn, it.id));
    let mut ids: Vec<(u64, OperationId)> = ids.chain(contents.advertisements.iter().map(|it| (it.sn, it.id))).collect();
    ids.sort_unstable();
    let id_of = |sn: &u64| ids.binary_search_by_key(sn, |(sn, _)| *sn).ok().map(|place| ids[place].1);
    let before = contents.bodies.len();
    contents.bodies.retain(|(sn, body)| id_of(sn).is_some_and(|id| OperationId::of(body) == id));
    contents.bodies.len() == before
}

/// What is left of runs behind so many places.
fn behind(runs: Vec<Run>, mut places: u64) -> Vec<Run> {
    let mut left = Vec::new();
    for run in runs {
        match run {
            Run::Deliver { .. } if places > 0 => places -= 1,
            Run::Empty { count } if places > 0 => {
                let gone = places.min(count);
                places -= gone;
                if count > gone {
                    left.push(Run::Empty { count: count - gone });
                }
            }
            run => left.push(run),
        }
    }
    left
}

/// Times that a request's timeout ends before brokers that answer differently are taken to do so for ever: they were asked
/// afresh meanwhile.
const DIFFERING_ROUNDS: u32 = 4;
/// How long a block's digests and contents may take before they are asked for.
const TIMEOUT: Duration = Duration::from_millis(100);
/// How often a block is asked for before it is given up, which leaves a gap that is caught up.
const UPDATE_ASKS: u32 = 5;
/// Of how many blocks queries are open at once.
const ASKED_AT_ONCE: usize = 16;
/// How often the record is stored at most: what was delivered since may come again after a crash.
const STORE_EVERY: Duration = Duration::from_millis(200);
