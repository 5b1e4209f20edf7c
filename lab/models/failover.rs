//! View change and failover of the ordered channel, as every state that three members can reach (B7).
//!
//! ```text
//! begin ─▶ answers (fence the answering member, tell its log) ─▶ attempt (a set that may be primary, one log for all of it)
//!      ─▶ taken by each of the set (kept durably first) ─▶ installed ─▶ ordering: stamps, held, acknowledged
//! ```
//! A term is one try of one member to be the sequencer of a set: its number tells whose. What is said stays said, and is heard
//! at any time or never: that covers delay, reordering, duplication and loss. What a member heard of its term is chosen when it
//! matters, that is when it answers for another term or when it is counted; so the model needs no step for each datagram. A
//! member that crashed never comes back (one that starts again without its disk is a new member). A partition keeps its two
//! sides from hearing each other until it heals.
//!
//! | rule | here |
//! |---|---|
//! | B1: a majority of the last primary, or its half with the lowest id; attempts that may have succeeded count too | [`may_be_primary`] |
//! | B2: acknowledged once more than half of the view hold it | [`Failover::may_acknowledge`] |
//! | B3: an answer fences; of each sequence number the stamp of the highest term stays, and is stamped anew | [`Fault`] |
//!
//! Sources: Jajodia and Mutchler, "Dynamic voting algorithms" (1990); Yeger Lotem, Keidar and Dolev, "Dynamic voting for
//! consistent primary components" (1997); Ongaro and Ousterhout, "Raft" (2014), section 5.4.2.

use stateright::{Checker, Model, Property};

/// Members, by number.
const MEMBERS: usize = 3;
/// All of them.
const ALL: u8 = (1 << MEMBERS) - 1;

/// A set of members, one bit for each.
type Set = u8;
/// A term's number; term t is of member t mod 3.
type Term = u8;

/// What is left out of the protocol, to see that it is missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A member that answered for a newer term still takes stamps of an older one.
    NoFence,
    /// Any set may be primary.
    Minority,
    /// The stamps that a new sequencer finds keep their old terms, and count as held all the same.
    OldTermCounts,
}

/// The protocol, with bounds that make it finite.
#[derive(Clone, Debug)]
pub(crate) struct Failover {
    /// Terms after the first.
    pub(crate) terms: Term,
    /// Messages that are sent.
    pub(crate) messages: u8,
    /// Members that crash at most.
    pub(crate) crashes: usize,
    /// Whether the network may part, once.
    pub(crate) partition: bool,
    /// What is left out.
    pub(crate) fault: Option<Fault>,
}

/// The place of a message in the order: in which term it was stamped last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Stamp {
    term: Term,
    message: u8,
}

/// A primary view: its term and who is in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct View {
    term: Term,
    set: Set,
}

/// What one member keeps, as it was when it last answered for a term.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Member {
    alive: bool,
    /// The newest term that it answered for: it takes nothing of older ones.
    fence: Term,
    /// The last primary view that it knows to be installed.
    installed: View,
    /// Views that it took and that may have been installed since.
    attempts: Vec<View>,
    log: Vec<Stamp>,
}

/// What a member has heard of its newest term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Heard {
    /// The attempt, which it kept.
    took: bool,
    /// That it is installed.
    learned: bool,
    /// So much of the sequencer's log.
    held: u8,
}

/// What a member says when it answers for a term.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Answer {
    installed: View,
    attempts: Vec<View>,
    log: Vec<Stamp>,
}

/// All that was said in a term.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Record {
    begun: bool,
    answers: [Option<Answer>; MEMBERS],
    /// The set that takes one log.
    attempt: Option<Set>,
    installed: bool,
    /// The sequencer's log.
    log: Vec<Stamp>,
    /// How much of it each member has said that it holds.
    held: [u8; MEMBERS],
}

/// The network: whole, parted once, or whole again for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Network {
    Whole,
    Parted(Set),
    Healed,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    members: [Member; MEMBERS],
    said: Vec<Record>,
    network: Network,
    /// Per sequence number: the message that was acknowledged.
    acknowledged: Vec<u8>,
    /// Two messages were acknowledged with one sequence number.
    contradicted: bool,
    /// A later primary was installed without what was acknowledged before.
    lost: bool,
}

/// What can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// A member begins a term of its own, for which it answers first.
    Begin(Term, Heard),
    /// A member answers for somebody's term.
    Answer(usize, Term, Heard),
    /// A term's member proposes a set and the log that all of it take.
    Attempt(Term, Set),
    /// All of the set took it.
    Install(Term),
    /// The sequencer gives a message the next sequence number.
    Order(Term, u8),
    /// The sequencer acknowledges so much of its log, which these hold.
    Acknowledge(Term, u8, Set),
    Crash(usize),
    Part(Set),
    Heal,
}

/// Whose term it is.
fn sequencer(term: Term) -> usize {
    usize::from(term) % MEMBERS
}

fn holds(set: Set, member: usize) -> bool {
    set & 1 << member != 0
}

/// The members of a set, in order.
fn members(set: Set) -> impl Iterator<Item = usize> {
    (0..MEMBERS).filter(move |it| holds(set, *it))
}

/// Whether a set may follow a view as primary: more than half of it, or its half with the lowest id (B1).
fn follows(view: View, set: Set) -> bool {
    let both = (view.set & set).count_ones();
    let lowest = holds(set, view.set.trailing_zeros() as usize);
    2 * both > view.set.count_ones() || 2 * both == view.set.count_ones() && lowest
}

/// Whether a set may be primary, by what its members answered: it follows the newest view that was installed, and each attempt
/// after it, which may have been installed unheard (B1).
fn may_be_primary(answers: &[&Answer], set: Set) -> bool {
    let Some(newest) = answers.iter().map(|it| it.installed).max() else { return false };
    let mut attempts = answers.iter().flat_map(|it| &it.attempts).filter(|it| it.term > newest.term);
    follows(newest, set) && attempts.all(|it| follows(*it, set))
}

/// At each sequence number the stamp of the highest term among the answers (B3). No log has a gap here.
fn merged(answers: &[&Answer]) -> Vec<Stamp> {
    let longest = answers.iter().map(|it| it.log.len()).max().unwrap_or(0);
    (0..longest).filter_map(|n| answers.iter().filter_map(|it| it.log.get(n)).max().copied()).collect()
}

impl Member {
    fn new() -> Member {
        Member { alive: true, fence: 0, installed: View { term: 0, set: ALL }, attempts: vec![], log: vec![] }
    }
}

impl State {
    fn of(&self, term: Term) -> &Record {
        &self.said[usize::from(term)]
    }

    fn hears(&self, one: usize, other: usize) -> bool {
        match self.network {
            Network::Parted(side) => holds(side, one) == holds(side, other),
            Network::Whole | Network::Healed => true,
        }
    }

    /// Whether a term's sequencer runs and answered for no newer one.
    fn leads(&self, term: Term) -> bool {
        let member = &self.members[sequencer(term)];
        member.alive && member.fence == term
    }

    /// What a member may have heard of its newest term: at least what was counted.
    fn may_have_heard(&self, member: usize) -> Vec<Heard> {
        let term = self.members[member].fence;
        let said = self.of(term);
        let nothing = Heard { took: false, learned: false, held: 0 };
        if !said.attempt.is_some_and(|set| holds(set, member)) {
            return vec![nothing];
        }
        let all = said.log.len() as u8;
        if member == sequencer(term) {
            return vec![Heard { took: true, learned: said.installed, held: all }];
        }
        if !said.installed {
            return vec![nothing, Heard { took: true, ..nothing }];
        }
        let held = said.held[member]..=all;
        held.flat_map(|held| [true, false].map(|learned| Heard { took: true, learned, held })).collect()
    }

    /// A member answers for a term, and is fenced from older ones.
    fn answer(&mut self, i: usize, term: Term, heard: Heard) {
        let member = &mut self.members[i];
        let of = member.fence;
        let said = &mut self.said[usize::from(of)];
        if let Some(set) = said.attempt.filter(|_| heard.took && of > 0) {
            member.attempts.push(View { term: of, set });
        }
        if heard.took {
            let held = if said.installed { usize::from(heard.held) } else { said.log.len() };
            member.log = said.log[..held].to_vec();
        }
        if let Some(set) = said.attempt.filter(|_| heard.learned) {
            member.installed = View { term: of, set };
            member.attempts.retain(|it| it.term > of);
        }
        member.fence = term;
        let Member { installed, attempts, log, .. } = member.clone();
        self.said[usize::from(term)].answers[i] = Some(Answer { installed, attempts, log });
    }

    /// Forgets what nobody will hear any more, so that states which differ in nothing else are one.
    fn forget(&mut self) {
        for member in self.members.iter_mut().filter(|it| !it.alive) {
            *member = Member { alive: false, ..Member::new() };
        }
        for term in (0_u8..).take(self.said.len()) {
            let leads = self.leads(term);
            let matters = self.members.iter().any(|it| it.alive && it.fence == term);
            let said = &mut self.said[usize::from(term)];
            if said.attempt.is_some() || !leads {
                said.answers = [const { None }; MEMBERS];
            }
            if !matters {
                *said = Record { begun: said.begun, ..Record::default() };
            }
        }
    }

    /// Whether a log holds what was acknowledged.
    fn keeps_acknowledged(&self, log: &[Stamp]) -> bool {
        self.acknowledged.iter().enumerate().all(|(n, message)| log.get(n).is_some_and(|it| it.message == *message))
    }
}

impl Failover {
    /// The next term that a member may begin.
    fn next_term(&self, state: &State, member: usize) -> Option<Term> {
        let fence = state.members[member].fence;
        (fence + 1..=self.terms).find(|it| sequencer(*it) == member && !state.of(*it).begun)
    }

    /// The sets that may hold so much of a term's log: those who said so, and those whom no newer term fences (B3).
    fn may_hold(&self, state: &State, term: Term, until: u8) -> Set {
        let said = state.of(term);
        let can = |it: &usize| {
            let member = &state.members[*it];
            let fenced = member.fence > term && self.fault != Some(Fault::NoFence);
            let now = member.alive && !fenced && state.hears(*it, sequencer(term));
            *it == sequencer(term) || said.held[*it] >= until || now
        };
        members(said.attempt.unwrap_or(0)).filter(can).fold(0, |set, it| set | 1 << it)
    }

    /// Whether so many of a view hold what is acknowledged: more than half of it (B2).
    fn may_acknowledge(view: Set, holders: Set) -> bool {
        2 * (view & holders).count_ones() > view.count_ones()
    }
}

impl Model for Failover {
    type State = State;
    type Action = Action;

    /// All three are installed in term 0, of member 0, with nothing ordered.
    fn init_states(&self) -> Vec<State> {
        let mut said = vec![Record::default(); usize::from(self.terms) + 1];
        said[0] = Record { begun: true, attempt: Some(ALL), installed: true, ..Record::default() };
        let members = std::array::from_fn(|_| Member::new());
        vec![State { members, said, network: Network::Whole, acknowledged: vec![], contradicted: false, lost: false }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let dead = state.members.iter().filter(|it| !it.alive).count();
        for i in (0..MEMBERS).filter(|it| state.members[*it].alive) {
            let heard = state.may_have_heard(i);
            if let Some(term) = self.next_term(state, i) {
                actions.extend(heard.iter().map(|it| Action::Begin(term, *it)));
            }
            let begun = (state.members[i].fence + 1..=self.terms).filter(|it| state.of(*it).begun);
            for term in begun.filter(|it| state.hears(i, sequencer(*it))) {
                actions.extend(heard.iter().map(|it| Action::Answer(i, term, *it)));
            }
            if dead < self.crashes {
                actions.push(Action::Crash(i));
            }
        }
        // Messages are alike: the first that is ordered anywhere is 1, and so on.
        let known = state.said.iter().flat_map(|it| &it.log).map(|it| it.message).max().unwrap_or(0);
        for term in (0..=self.terms).filter(|it| state.of(*it).begun && state.leads(*it)) {
            let (said, leader) = (state.of(term), sequencer(term));
            let Some(view) = said.attempt else {
                let answered = (0..MEMBERS).filter(|it| said.answers[*it].is_some() && state.hears(*it, leader));
                let answered = answered.fold(0, |set: Set, it| set | 1 << it);
                for set in (1..=ALL).filter(|set| set & !answered == 0 && holds(*set, leader)) {
                    let answers: Vec<&Answer> = members(set).filter_map(|it| said.answers[it].as_ref()).collect();
                    if self.fault == Some(Fault::Minority) || may_be_primary(&answers, set) {
                        actions.push(Action::Attempt(term, set));
                    }
                }
                continue;
            };
            if !said.installed {
                let takes =
                    |it: usize| state.members[it].fence == term && state.members[it].alive && state.hears(it, leader);
                if members(view).all(takes) {
                    actions.push(Action::Install(term));
                }
                continue;
            }
            // A message is ordered once: senders that resubmit one are recognised.
            let is_new = |m: &u8| said.log.iter().all(|it| it.message != *m);
            let messages = 1..=self.messages.min(known + 1);
            actions.extend(messages.filter(is_new).map(|m| Action::Order(term, m)));
            let first =
                (0..said.log.len()).find(|n| state.acknowledged.get(*n).is_none_or(|it| *it != said.log[*n].message));
            if let Some(until) = first.map(|n| n as u8 + 1) {
                let may = self.may_hold(state, term, until);
                let sets = (1..=view).filter(|set| set & !may == 0 && holds(*set, leader));
                // One holder more would change nothing.
                let majority = view.count_ones() / 2 + 1;
                let enough = sets.filter(|set| set & !view == 0 && set.count_ones() == majority);
                actions.extend(enough.map(|set| Action::Acknowledge(term, until, set)));
            }
        }
        match state.network {
            Network::Whole if self.partition => actions.extend((1..=ALL / 2).map(Action::Part)),
            Network::Parted(_) => actions.push(Action::Heal),
            Network::Whole | Network::Healed => {}
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        match action {
            Action::Begin(term, heard) => {
                next.said[usize::from(term)].begun = true;
                next.answer(sequencer(term), term, heard);
            }
            Action::Answer(i, term, heard) => next.answer(i, term, heard),
            Action::Attempt(term, set) => {
                let said = &mut next.said[usize::from(term)];
                let answers: Vec<&Answer> = members(set).filter_map(|it| said.answers[it].as_ref()).collect();
                let mut log = merged(&answers);
                if self.fault != Some(Fault::OldTermCounts) {
                    log.iter_mut().for_each(|it| it.term = term);
                }
                (said.attempt, said.log) = (Some(set), log);
            }
            Action::Install(term) => {
                let said = &mut next.said[usize::from(term)];
                said.installed = true;
                members(said.attempt?).for_each(|it| said.held[it] = said.log.len() as u8);
                let log = said.log.clone();
                next.lost |= !next.keeps_acknowledged(&log);
            }
            Action::Order(term, message) => next.said[usize::from(term)].log.push(Stamp { term, message }),
            Action::Acknowledge(term, until, holders) => {
                let said = &mut next.said[usize::from(term)];
                members(holders).for_each(|it| said.held[it] = said.held[it].max(until));
                for (n, stamp) in said.log.iter().enumerate().take(usize::from(until)) {
                    match next.acknowledged.get(n) {
                        Some(before) => next.contradicted |= *before != stamp.message,
                        None => next.acknowledged.push(stamp.message),
                    }
                }
            }
            Action::Crash(i) => next.members[i].alive = false,
            Action::Part(side) => next.network = Network::Parted(side),
            Action::Heal => next.network = Network::Healed,
        }
        next.forget();
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("one order", |_, state: &State| !state.contradicted),
            Property::always("nothing acknowledged lost", |_, state: &State| !state.lost),
            Property::always("one primary", |model: &Failover, state: &State| {
                let orders = |term: &Term| {
                    let view = state.of(*term).attempt.filter(|_| state.of(*term).installed && state.leads(*term));
                    view.is_some_and(|view| Failover::may_acknowledge(view, model.may_hold(state, *term, u8::MAX)))
                };
                (0..=model.terms).filter(orders).count() <= 1
            }),
            Property::sometimes("a later term acknowledges", |_, state: &State| {
                let later =
                    |said: &Record| said.installed && said.log.len() == 2 && state.keeps_acknowledged(&said.log);
                state.acknowledged.len() == 2 && state.said.iter().skip(3).any(later)
            }),
            Property::sometimes("one member alone is primary", |_, state: &State| {
                state.said.iter().any(|it| it.installed && it.attempt.is_some_and(|it| it.count_ones() == 1))
            }),
        ]
    }
}

/// Every state that can be reached.
pub(crate) fn checked(model: Failover) -> impl Checker<Failover> {
    model.checker().threads(2).spawn_bfs().join()
}
