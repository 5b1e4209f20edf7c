//! Plays a script on a carrier, the simulator or real sockets, with all checkers watching.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sealcast_keys::Command;
use sealcast_sim::Sim;
use sealcast_sim::dice::Dice;
use sealcast_sim::trace::{Line, Trace};
use sealcast_wire::{EpochId, Guarantee, Monotonic};

use super::carrier::Carrier;
use super::fixture::{Fixture, Player};
use super::script::{Script, Step};
use super::watch::Watch;
use crate::checkers::loss::Tally;
use crate::checkers::{
    Acknowledged, Agreement, Blame, Body, Causal, Duplicates, Event, Exclusions, Fifo, ForkConsistency, Forward,
    Gapless, Leaders, Linearizable, Loss, Numbers, OneOrder, OnePrimary, Panel, Property, Roles, SameView, Secrecy,
    States, Violation,
};
use crate::member::MemberCommand;
use crate::misbehaviour::Misbehaviour;
use crate::sockets::Sockets;

/// What a run showed.
#[derive(Clone, Debug)]
pub struct Report {
    /// What did not hold.
    pub violations: Vec<Violation>,
    /// How long each wait for a common view took.
    pub converged: Vec<Duration>,
    /// How long the run was on its own clock.
    pub lasted: Duration,
    /// Datagrams sent.
    pub datagrams: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Views installed, all members together.
    pub views: u64,
    /// Messages published, due and lost; counted where the script is lossless.
    pub tally: Tally,
    /// Messages delivered.
    pub delivered: u64,
    /// The trace's hash: the same seed gives the same (G10).
    pub trace: u64,
    /// The last lines of the trace, if asked for.
    pub lines: Vec<Line>,
    /// What members told, as lines to read, if asked for.
    pub story: Vec<String>,
}

impl Report {
    /// Whether everything held.
    pub fn holds(&self) -> bool {
        self.violations.is_empty()
    }
}

/// How much of a run is kept to be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keep {
    /// The last lines of the trace.
    pub lines: usize,
    /// What members tell: views, exclusions, notices.
    pub story: bool,
}

/// Plays a script on the simulator.
pub fn play(fixture: &dyn Fixture, script: &Script, seed: u64, keep: Keep) -> Report {
    let mut sim: Sim<Player> = Sim::new(seed, script.network.clone());
    sim.trace = Trace::new(keep.lines);
    play_on(sim, fixture, script, seed, keep)
}

/// Plays a script over real sockets, in real time, each node in a network namespace of its own.
///
/// # Errors
/// If no such network can be made here.
pub fn play_over_sockets(fixture: &dyn Fixture, script: &Script, seed: u64, keep: Keep) -> io::Result<Report> {
    let sockets = Sockets::new(seed, &script.network, keep.lines)?;
    Ok(play_on(sockets, fixture, script, seed, keep))
}

fn play_on(carrier: impl Carrier, fixture: &dyn Fixture, script: &Script, seed: u64, keep: Keep) -> Report {
    let mut simulation = Simulation::new(carrier, fixture, script, seed, keep);
    for step in &script.steps {
        simulation.watch.tell(simulation.carrier.now(), || format!("── {step:?}"));
        simulation.step(step);
        if !simulation.watch.panel.violations().is_empty() {
            break; // the first fault tells the story; what follows from it only hides it
        }
    }
    simulation.finish()
}

struct Simulation<'a, C> {
    fixture: &'a dyn Fixture,
    members: usize,
    carrier: C,
    watch: Watch,
    dice: Dice,
    imposters: BTreeMap<usize, Misbehaviour>,
    stopped: BTreeSet<usize>,
    lives: Vec<u32>,
    numbers: Vec<u64>,
    /// What the applications do next: (when, which of the traffics).
    due: BTreeSet<(Monotonic, usize)>,
    traffics: Vec<Traffic>,
    admission_at: Option<Monotonic>,
    converged: Vec<Duration>,
    lossless: bool,
    tally: Arc<Mutex<Tally>>,
}

#[derive(Clone, Copy)]
struct Traffic {
    by: usize,
    every: Duration,
    bytes: usize,
    until: Monotonic,
}

impl<'a, C: Carrier> Simulation<'a, C> {
    fn new(carrier: C, fixture: &'a dyn Fixture, script: &Script, seed: u64, keep: Keep) -> Simulation<'a, C> {
        let members = script.members;
        let roles = Roles::new((0..members).map(|m| fixture.cert(m)));
        let (loss, tally) = Loss::new();
        let mut checkers: Vec<Box<Property>> = vec![fixture.authentic()];
        if fixture.meets() {
            checkers.push(Box::<Agreement>::default());
            checkers.push(Box::<Duplicates>::default());
            checkers.push(Box::<Forward>::default());
            checkers.push(Box::<Numbers>::default());
            checkers.push(Box::<Blame>::default());
            checkers.push(Box::new(Leaders::of((0..members).filter(|it| fixture.may_lead(*it)))));
            if fixture.seals() {
                checkers.push(Box::new(Secrecy::new(fixture.secrets())));
            }
        }
        let ordered = |(topic, guarantee): &(&'static str, Guarantee)| {
            (*guarantee >= Guarantee::Ordered).then(|| Arc::from(*topic))
        };
        let ordered_topics = fixture.channels().iter().filter_map(ordered);
        checkers.push(match fixture.may_fork() {
            true => Box::new(ForkConsistency::of(ordered_topics)),
            false => Box::new(OneOrder::of(ordered_topics)),
        });
        if fixture.meets() {
            // What waits for the order, or behind it, comes before the view is shown in which its sender is back.
            let reliable = |(topic, guarantee): &(&'static str, Guarantee)| {
                let in_turn = *guarantee >= Guarantee::Fifo && fixture.orders_in_views();
                in_turn.then(|| Arc::from(*topic))
            };
            let in_turn = fixture.channels().iter().filter_map(reliable);
            checkers.push(Box::new(Exclusions::of(in_turn)));
        }
        let is_fifo =
            |(topic, guarantee): &(&'static str, Guarantee)| (*guarantee == Guarantee::Fifo).then(|| Arc::from(*topic));
        checkers.push(Box::new(Fifo::of(fixture.channels().iter().filter_map(is_fifo))));
        if fixture.orders_in_views() {
            checkers.extend(of_order(fixture));
        } else if fixture.delivers_ordered() {
            checkers.push(Box::new(Fifo::of(fixture.channels().iter().filter_map(ordered))));
        }
        if script.lossless {
            checkers.push(Box::new(loss));
        }
        let watch = Watch::new(Panel::new(roles.clone(), checkers), roles, members, keep.story);
        let mut simulation = Simulation {
            fixture,
            members,
            carrier,
            watch,
            dice: Dice::new(seed, STREAM_STAGE),
            imposters: BTreeMap::new(),
            stopped: BTreeSet::new(),
            lives: vec![0; members],
            numbers: vec![0; members],
            due: BTreeSet::new(),
            traffics: Vec::new(),
            admission_at: None,
            converged: Vec::new(),
            lossless: script.lossless,
            tally,
        };
        (0..members).for_each(|_| {
            simulation.carrier.add(true, &mut simulation.watch);
        });
        for (multicast, birth) in fixture.helpers() {
            let node = simulation.carrier.add(multicast, &mut simulation.watch);
            simulation.carrier.start(node, birth, &mut simulation.watch);
            if fixture.shares_helpers() {
                simulation.carrier.network().share(node);
            }
        }
        simulation
    }

    fn step(&mut self, step: &Step) {
        let now = self.carrier.now();
        match step {
            Step::Start(node) if *node >= self.members => self.start_helper(*node),
            Step::Start(member) => self.start(*member),
            Step::Crash(node) => {
                self.stopped.remove(node);
                self.carrier.crash(*node);
                if *node < self.members {
                    self.watch.stopped(now, *node);
                }
            }
            Step::Stop(member) => self.stop(*member),
            Step::Resume(member) => self.resume(*member),
            Step::CrashSequencer => {
                self.sequencer().into_iter().for_each(|it| self.step(&Step::Crash(it)));
            }
            Step::StopSequencer => self.sequencer().into_iter().for_each(|it| self.stop(it)),
            Step::Return => {
                std::mem::take(&mut self.stopped).into_iter().for_each(|it| self.resume(it));
                (0..self.members)
                    .filter(|it| !self.carrier.runs(*it))
                    .collect::<Vec<_>>()
                    .into_iter()
                    .for_each(|it| self.start(it));
            }
            Step::Rest(within) => self.converge(&self.running(), *within, &BTreeSet::new()),
            Step::Command(member, command) => self.ask(*member, command.clone()),
            Step::Evict { by, whom } => self.ask(*by, self.fixture.eviction(*whom)),
            Step::Suspect { by, whom } => {
                let cert = self.fixture.cert(*whom);
                self.carrier.command(*by, MemberCommand::Suspect(cert), &mut self.watch);
            }
            Step::Network(network) => self.carrier.set_network(network),
            Step::Cut(from, to) => self.carrier.network().cut(*from, *to),
            Step::Partition(sides) => self.carrier.network().partition(sides),
            Step::Heal => self.carrier.network().heal(),
            Step::Traffic { by, rate, bytes, lasting } => self.traffic(by, *rate, *bytes, *lasting),
            Step::Misbehave(kind) => {
                let seed = self.dice.seed();
                if let Some(birth) = self.fixture.actor(*kind, seed) {
                    let node = self.carrier.add(true, &mut self.watch);
                    self.carrier.start(node, birth, &mut self.watch);
                }
            }
            Step::Imposter(member, kind) => {
                self.imposters.insert(*member, *kind);
            }
            Step::Honest(member) => _ = self.imposters.remove(member),
            Step::Together { members, within } => {
                if !self.run(now + *within, |watch| watch.together(members)) {
                    let what = format!("after {within:?} {members:?} are not together: {}", self.watch.summary());
                    self.watch.panel.report(self.carrier.now(), "convergence", what);
                }
            }
            Step::Wait(time) => {
                self.run(now + *time, |_| false);
            }
            Step::Converge { members, within } => self.converge(members, *within, &BTreeSet::new()),
            Step::Renewed { members, within } => {
                let old = members.iter().filter_map(|m| self.watch.epoch(*m)).collect();
                self.converge(members, *within, &old);
            }
            Step::Out { member, within } => {
                if !self.run(now + *within, |watch| watch.out[*member]) {
                    let what = format!("after {within:?} node {member} does not know that it is out");
                    self.watch.panel.report(self.carrier.now(), "convergence", what);
                }
            }
            Step::Hears { members, within } => {
                let before = self.watch.heard.clone();
                let hears = |watch: &Watch| members.iter().all(|m| watch.heard.get(m) > before.get(m));
                if !self.run(now + *within, hears) {
                    let not: Vec<_> = members.iter().filter(|m| self.watch.heard.get(m) <= before.get(m)).collect();
                    let what = format!("after {within:?} {not:?} hear nobody else");
                    self.watch.panel.report(self.carrier.now(), "hears", what);
                }
            }
            Step::Deaf(member) => self.watch.deafen(*member),
            Step::Majority(members) => {
                self.watch.majorities.push(members.clone());
                members.iter().for_each(|member| self.watch.look_for_majority(now, *member));
            }
            Step::Named { by, whom, within } => {
                if !self.run(now + *within, |watch| by.iter().all(|m| watch.named.contains(&(*m, *whom)))) {
                    let not: Vec<_> = by.iter().filter(|m| !self.watch.named.contains(&(**m, *whom))).collect();
                    let what = format!("after {within:?} {not:?} have not named {whom}, which lies");
                    self.watch.panel.report(self.carrier.now(), "named", what);
                }
            }
            Step::Blames { members, proof, within } => {
                if !self.run(now + *within, |watch| members.iter().all(|m| watch.blames.contains(&(*m, *proof)))) {
                    let not: Vec<_> = members.iter().filter(|m| !self.watch.blames.contains(&(**m, *proof))).collect();
                    let what = if *proof { "no evidence against" } else { "nothing against" };
                    let what = format!("after {within:?} {not:?} have {what} the relay, which lies");
                    self.watch.panel.report(self.carrier.now(), "blames", what);
                }
            }
            Step::Speaks { members, version } => {
                let spoken: Vec<_> = members.iter().map(|m| (*m, self.watch.versions.get(m))).collect();
                if spoken.iter().any(|(_, spoken)| *spoken != Some(version)) {
                    let what = format!("version {version} is the one to be spoken, and by member it is {spoken:?}");
                    self.watch.panel.report(now, "versions", what);
                }
            }
            Step::Number { members, at_most } => {
                let counter = |m: &usize| self.watch.views[*m].as_ref().map(|view| view.epoch.counter);
                if let Some(counter) = members.iter().filter_map(counter).max().filter(|c| c > at_most) {
                    let what = format!("epoch {counter} is in use, and {at_most} is what there could be");
                    self.watch.panel.report(now, "numbers", what);
                }
            }
            Step::Never { members, whom } => self.watch.never.push((members.clone(), *whom)),
        }
    }

    /// Those that run and are not stopped.
    fn running(&self) -> BTreeSet<usize> {
        (0..self.members).filter(|it| self.carrier.runs(*it) && !self.stopped.contains(it)).collect()
    }

    /// Of those, the first one of the view that most of them see.
    fn sequencer(&self) -> Option<usize> {
        let running = self.running();
        let first = |it: &usize| {
            let nodes = self.watch.roles.nodes_of(self.watch.views[*it].as_ref()?);
            nodes.into_iter().find(|it| running.contains(it))
        };
        let mut votes: BTreeMap<usize, usize> = BTreeMap::new();
        running.iter().filter_map(first).for_each(|it| *votes.entry(it).or_default() += 1);
        votes.into_iter().max_by_key(|(_, votes)| *votes).map(|(node, _)| node)
    }

    fn stop(&mut self, member: usize) {
        self.stopped.insert(member);
        self.carrier.stop(member);
    }

    fn resume(&mut self, member: usize) {
        self.stopped.remove(&member);
        self.carrier.resume(member, &mut self.watch);
    }

    /// Until all of these have one view of exactly these, of none of the epochs before.
    fn converge(&mut self, members: &BTreeSet<usize>, within: Duration, before: &BTreeSet<EpochId>) {
        let now = self.carrier.now();
        let new = |watch: &Watch| members.iter().all(|m| watch.epoch(*m).is_none_or(|e| !before.contains(&e)));
        if self.run(now + within, |watch| watch.agree(members) && new(watch)) {
            return self.converged.push(self.carrier.now() - now);
        }
        let what = format!("after {within:?} not one view of {members:?}: {}", self.watch.summary());
        self.watch.panel.report(self.carrier.now(), "convergence", what);
    }

    fn start(&mut self, member: usize) {
        self.lives[member] += 1;
        self.numbers[member] = 0;
        let seed = self.dice.seed();
        let changed = self.imposters.get(&member).and_then(|kind| self.fixture.imposter(member, *kind, seed));
        if changed.is_some() {
            self.watch.panel.event(self.carrier.now(), member, &Event::Changed);
        }
        let birth = changed.unwrap_or_else(|| self.fixture.member(member, self.lives[member], seed));
        self.watch.out[member] = false;
        self.watch.panel.event(self.carrier.now(), member, &Event::Started);
        self.carrier.start(member, birth, &mut self.watch);
        if self.fixture.admits() {
            self.admission_at.get_or_insert(self.carrier.now() + ADMISSION);
        }
    }

    /// A helper that crashed comes back with what its disk holds.
    fn start_helper(&mut self, node: usize) {
        let seed = self.dice.seed();
        let changed = self.imposters.get(&node).and_then(|kind| self.fixture.imposter(node, *kind, seed));
        if changed.is_some() {
            self.watch.panel.event(self.carrier.now(), node, &Event::Changed);
        }
        let birth = changed.unwrap_or_else(|| self.fixture.helpers().swap_remove(node - self.members).1);
        self.carrier.start(node, birth, &mut self.watch);
    }

    fn ask(&mut self, member: usize, command: Command) {
        self.carrier.command(member, MemberCommand::Command(command), &mut self.watch);
    }

    fn traffic(&mut self, by: &[usize], rate: u32, bytes: usize, lasting: Duration) {
        let (now, every) = (self.carrier.now(), Duration::from_secs(1) / rate);
        for &by in by {
            let first = now + self.dice.between(Duration::ZERO, every);
            self.due.insert((first, self.traffics.len()));
            self.traffics.push(Traffic { by, every, bytes, until: now + lasting });
        }
    }

    /// Runs until a moment, or until what is looked for has come; whether it has.
    fn run(&mut self, until: Monotonic, found: impl Fn(&Watch) -> bool) -> bool {
        self.watch.changed = true;
        loop {
            if std::mem::take(&mut self.watch.changed) && found(&self.watch) {
                return true;
            }
            let traffic = self.due.first().map(|(at, _)| *at);
            let ours = [traffic, self.admission_at].into_iter().flatten().min();
            let next = ours.map_or(until, |at| at.min(until));
            if self.carrier.step(next, &mut self.watch) {
                continue;
            }
            if next == until && ours.is_none_or(|at| at > until) {
                return false;
            }
            if self.admission_at.is_some_and(|at| at <= next) {
                self.admit();
            }
            if traffic.is_some_and(|at| at <= next) {
                self.publish();
            }
        }
    }

    fn publish(&mut self) {
        let Some((at, which)) = self.due.pop_first() else { return };
        let Traffic { by, every, bytes, until } = self.traffics[which];
        if at + every < until {
            self.due.insert((at + every, which));
        }
        self.numbers[by] += 1;
        let body = Body { author: by as u32, life: self.lives[by], number: self.numbers[by] }.bytes(bytes);
        let channels = self.fixture.channels();
        let (topic, guarantee) = channels[self.numbers[by] as usize % channels.len()];
        self.carrier.command(by, MemberCommand::Publish { topic: topic.into(), body, guarantee }, &mut self.watch);
    }

    /// Somebody inside lets in whoever runs and is not in a view yet.
    fn admit(&mut self) {
        let outside = (0..self.members).filter(|&m| self.carrier.runs(m) && self.watch.views[m].is_none());
        let outside: Vec<usize> = outside.filter(|&m| !self.watch.out[m]).collect();
        let insider = (0..self.members).find(|&m| self.carrier.runs(m) && self.watch.views[m].is_some());
        self.admission_at = (!outside.is_empty()).then(|| self.carrier.now() + ADMISSION);
        if let Some(insider) = insider {
            for member in outside {
                self.ask(insider, Command::Admit { cert: self.fixture.cert(member) });
            }
        }
    }

    fn finish(mut self) -> Report {
        if self.watch.panel.violations().is_empty() {
            // What is under way arrives, or is known to be lost.
            self.due.clear();
            self.run(self.carrier.now() + C::SETTLE, |_| false);
            self.watch.panel.end(self.carrier.now());
        }
        let mut tally = self.tally.lock().map(|t| *t).unwrap_or_default();
        if !self.lossless {
            tally = Tally::default();
        }
        Report {
            violations: self.watch.panel.violations().to_vec(),
            converged: self.converged,
            lasted: self.carrier.now() - Monotonic(0),
            datagrams: self.watch.datagrams,
            bytes: self.watch.bytes,
            views: self.watch.installed,
            tally,
            delivered: self.watch.delivered,
            trace: self.carrier.trace().hash(),
            lines: self.carrier.trace().lines().copied().collect(),
            story: self.watch.story.unwrap_or_default(),
        }
    }
}

/// The checkers of an order that members make, in primary views.
fn of_order(fixture: &dyn Fixture) -> Vec<Box<Property>> {
    let topics = |is: fn(Guarantee) -> bool| {
        let channels = fixture.channels().iter();
        channels.filter(move |(_, it)| is(*it)).map(|(topic, _)| Arc::from(*topic)).collect::<Vec<Arc<str>>>()
    };
    let (ordered, fifo) = (topics(|it| it >= Guarantee::Ordered), topics(|it| it == Guarantee::Fifo));
    // Where somebody may lack messages of a time when nobody was primary, it says so.
    let in_turn = if fixture.delivers_ordered() { Fifo::of(ordered.clone()) } else { Fifo::ordered(ordered.clone()) };
    vec![
        Box::new(Gapless::of(ordered.clone())),
        Box::<States>::default(),
        Box::new(in_turn),
        Box::new(Acknowledged::of(ordered.clone())),
        Box::new(Causal::of(ordered.clone(), fifo)),
        Box::new(Linearizable::of(ordered.clone())),
        Box::new(OnePrimary::of(ordered.clone())),
        Box::new(SameView::of(ordered)),
    ]
}

/// How often those inside look for somebody to let in.
const ADMISSION: Duration = Duration::from_millis(200);
const STREAM_STAGE: u64 = 3;
