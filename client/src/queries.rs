//! Queries to brokers, each to several until enough of them answer alike.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;
use std::sync::Arc;
use std::time::Duration;

use sealcast_broker::protocol::{Answer, Query, Request, Why};
use sealcast_wire::{Dropped, Monotonic, Now, limits};

use super::Quorum;
use super::delivering::Page;
use super::event::{Misbehaviour, Output};
use sealcast_delivery::Token;

/// Open queries.
#[derive(Debug, Default)]
pub(super) struct Queries {
    open: BTreeMap<u64, OpenQuery>,
    /// Of these, those for shares: sn and id.
    shares: BTreeSet<(u64, u64)>,
    names: u64,
    due: BTreeSet<(Monotonic, u64)>,
}

/// One query.
#[derive(Debug)]
pub(super) struct OpenQuery {
    pub(super) purpose: Purpose,
    pub(super) query: Query,
    pub(super) answers: BTreeMap<u16, Answer>,
    pub(super) asked: BTreeSet<u16>,
    /// How often its time came.
    pub(super) rounds: u32,
    due: Monotonic,
}

/// What the client does with the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// What became of an operation whose results did not come.
    Result(u64),
    /// An update whose contents or digests did not come.
    Update(u64),
    /// A subscription catches up.
    Resume(u64),
    Bodies,
    Read(Token),
    Receipt(Token),
    Status(Token),
    /// The proofs that brokers keep.
    Proofs(Token),
    /// How old what is known of the order is.
    Age,
    /// Which threshold key the brokers vouch for.
    Key,
    /// Whether the client is still registered.
    Vouched,
    Shares(u64),
}

impl Queries {
    pub(super) fn has_capacity(&self) -> bool {
        self.open.len() - self.shares.len() < limits::CLIENT_QUERIES_MAX
    }

    /// Shares have room of their own: a broker that does not answer keeps nothing else from being asked.
    pub(super) fn has_capacity_for_shares(&self) -> bool {
        self.shares.len() < limits::CLIENT_SHARES_MAX
    }

    pub(super) fn is_open(&self, purpose: &Purpose) -> bool {
        self.open.values().any(|ask| ask.purpose == *purpose)
    }

    /// Opens one; who is asked is the caller's to say.
    pub(super) fn open(&mut self, now: Monotonic, purpose: Purpose, query: Query) -> u64 {
        self.names += 1;
        let due = now + TIMEOUT;
        let (answers, asked) = (BTreeMap::new(), BTreeSet::new());
        if let Purpose::Shares(sn) = purpose {
            self.shares.insert((sn, self.names));
        }
        self.open.insert(self.names, OpenQuery { purpose, query, answers, asked, rounds: 0, due });
        self.due.insert((due, self.names));
        self.names
    }

    pub(super) fn get_mut(&mut self, id: u64) -> Option<&mut OpenQuery> {
        self.open.get_mut(&id)
    }

    pub(super) fn get(&self, id: u64) -> Option<&OpenQuery> {
        self.open.get(&id)
    }

    pub(super) fn close(&mut self, id: u64) -> Option<OpenQuery> {
        let ask = self.open.remove(&id)?;
        self.due.remove(&(ask.due, id));
        if let Purpose::Shares(sn) = ask.purpose {
            self.shares.remove(&(sn, id));
        }
        Some(ask)
    }

    /// All that ask for shares of this publication.
    pub(super) fn close_shares(&mut self, sn: u64) {
        while let Some(&(_, id)) = self.shares.range((sn, 0)..=(sn, u64::MAX)).next() {
            self.close(id);
        }
    }

    /// The next one whose time has come; its next time is later each time.
    pub(super) fn late(&mut self, now: Monotonic) -> Option<u64> {
        let &(due, id) = self.due.first().filter(|(due, _)| *due <= now)?;
        self.due.remove(&(due, id));
        let ask = self.open.get_mut(&id).expect("what is due is open");
        ask.rounds += 1;
        ask.due = now + TIMEOUT * (1 << ask.rounds.min(5));
        self.due.insert((ask.due, id));
        Some(id)
    }

    pub(super) fn timeout(&self) -> Option<Monotonic> {
        self.due.first().map(|(due, _)| *due)
    }
}

impl OpenQuery {
    /// What more than `faulty` brokers answer alike. That they cannot say it yet is no answer.
    pub(super) fn agreed(&self, faulty: usize) -> Option<&Answer> {
        let alike = |it: &&Answer| self.answers.values().filter(|other| other == it).count() > faulty;
        let says = |it: &&Answer| !matches!(it, Answer::No(why) if may_change(*why));
        self.answers.values().filter(says).find(alike)
    }

    /// Who answered otherwise than f + 1 did. To be behind, busy or without it is no lie, and neither is to be ahead of f + 1
    /// who are.
    pub(super) fn differing(&self, agreed: &Answer) -> Vec<u16> {
        if matches!(agreed, Answer::No(_)) {
            return Vec::new();
        }
        let differs = |it: &Answer| it != agreed && !matches!(it, Answer::No(_));
        self.answers.iter().filter(|(_, it)| differs(it)).map(|(broker, _)| *broker).collect()
    }

    /// Whether a broker has answered, and not that it cannot yet.
    pub(super) fn has_said(&self, broker: u16) -> bool {
        self.answers.get(&broker).is_some_and(|it| !matches!(it, Answer::No(why) if may_change(*why)))
    }

    /// Whether nobody is left who could give it: too many do not keep it, or no longer let us read it, for f + 1 to do; or
    /// f + 1 do not, and the others had their time. A body is its name's, so that one broker that gives it is enough.
    fn is_gone(&self, faulty: usize, brokers: usize) -> bool {
        let gone = |it: &&Answer| matches!(it, Answer::No(Why::Pruned | Why::Denied));
        let gone = self.answers.values().filter(gone).count();
        gone + faulty >= brokers || gone > faulty && self.rounds >= GONE_ROUNDS
    }

    /// It is asked for the next page of what it has begun to answer: so much comes that there is no hurry.
    pub(super) fn is_asked_on(&mut self, broker: u16) {
        self.answers.remove(&broker);
        self.rounds = 0;
    }

    /// Whether all that were asked have answered.
    pub(super) fn is_answered(&self) -> bool {
        self.asked.iter().all(|broker| self.answers.contains_key(broker))
    }
}

impl Quorum {
    /// Asks so many brokers, from the client's primary broker on, those first that have behaved.
    pub(super) fn ask(&mut self, now: Now, purpose: Purpose, query: Query, width: usize) {
        let id = self.queries.open(now.monotonic, purpose, query);
        self.ask_more(id, width);
    }

    /// Asks so many more.
    fn ask_more(&mut self, id: u64, width: usize) {
        let mut up = self.up();
        let Some(ask) = self.queries.get(id) else { return };
        let subscription = if let Purpose::Resume(subscription) = ask.purpose { Some(subscription) } else { None };
        up.retain(|broker| !ask.asked.contains(broker) && !subscription.is_some_and(|it| self.is_ahead(it, *broker)));
        up.sort_by_key(|broker| {
            let conduct = &self.channels[usize::from(*broker)].conduct;
            (!conduct.misbehaviours.is_empty(), conduct.silent.min(SILENCES))
        });
        up.truncate(width);
        let request: Arc<[u8]> = Request::Query { id, query: ask.query.clone() }.to_bytes().into();
        if let Some(ask) = self.queries.get_mut(id) {
            ask.asked.extend(&up);
        }
        for broker in up {
            match subscription {
                Some(_) => self.ask_broker(id, broker),
                None => self.send(broker, request.clone()),
            }
        }
    }

    /// Asks one broker for what follows on its own last page of a subscription.
    pub(super) fn ask_broker(&mut self, id: u64, broker: u16) {
        let Some(OpenQuery { purpose: Purpose::Resume(of), query, .. }) = self.queries.get(id) else { return };
        let (Some(line), &Query::Resume { subscription, min_height, .. }) = (self.lines.get_mut(of), query) else {
            return;
        };
        let (place, sn) = line.streams.ask(broker, line.anchor);
        let query = Query::Resume { subscription, place, sn, min_height };
        self.send(broker, Request::Query { id, query }.to_bytes().into());
    }

    /// Queries that took too long: others are asked too, and in the end all again.
    pub(super) fn ask_late(&mut self, now: Now) {
        while let Some(id) = self.queries.late(now.monotonic) {
            let Some(ask) = self.queries.get(id) else { continue };
            let silent: Vec<u16> = ask.asked.iter().filter(|it| !ask.answers.contains_key(it)).copied().collect();
            match (ask.purpose.clone(), ask.rounds) {
                (Purpose::Resume(subscription), 2..) if self.resumed(subscription, id, true) => {
                    self.queries.close(id);
                    self.advance(now);
                    continue;
                }
                (Purpose::Status(token), SURVEY_ROUNDS..) => {
                    self.report_status(token, id);
                    continue;
                }
                (Purpose::Proofs(token), SURVEY_ROUNDS..) => {
                    self.report_proofs(token, id);
                    continue;
                }
                _ => {}
            }
            let Some(ask) = self.queries.get_mut(id) else { continue };
            // Each says its own share once; whoever lacks some asks anew.
            if ask.rounds > 1 && !matches!(ask.purpose, Purpose::Shares(_)) {
                // Answers age: what brokers said of different heights may agree now.
                ask.asked.clear();
                if ask.rounds > 2 {
                    ask.answers.clear();
                    if let Purpose::Resume(subscription) = ask.purpose {
                        self.lines.entry(subscription).and_modify(|line| line.streams.clear());
                    }
                }
            }
            let is_over = ask.rounds >= ROUNDS;
            for broker in silent {
                self.channels[usize::from(broker)].conduct.silent += 1;
            }
            if is_over {
                self.give_up(now, id);
            } else {
                self.ask_more(id, self.channels.len());
                self.judge(now, id);
            }
        }
    }

    pub(super) fn answer(&mut self, now: Now, broker: u16, id: u64, mut answer: Answer) {
        let Some(ask) = self.queries.get_mut(id).filter(|ask| ask.asked.contains(&broker)) else {
            return self.drops.count(Dropped::Stale);
        };
        let purpose = ask.purpose.clone();
        if let (Purpose::Bodies, Answer::Bodies(bodies)) = (&purpose, &mut answer) {
            // Bodies are judged by their ids, not by how many say so.
            let bodies = take(bodies);
            ask.answers.insert(broker, answer);
            if self.take_bodies(broker, bodies) {
                // What did not fit is asked for anew.
                self.queries.close(id);
                self.read_on(now);
                return self.advance(now);
            }
            return self.judge(now, id);
        }
        if let (Purpose::Resume(subscription), Answer::Resumed { lost, notice, until, publications }) =
            (&purpose, &mut answer)
        {
            // A page goes to the line, and that there was one is noted.
            let page = Page { lost: *lost, notice: notice.clone(), until: *until, publications: take(publications) };
            notice.runs.clear();
            if let Some(line) = self.lines.get_mut(subscription).filter(|_| page.notice.subscription == *subscription) {
                line.streams.take(broker, page);
            }
            ask.answers.insert(broker, answer);
            return self.judge(now, id);
        }
        ask.answers.insert(broker, answer.clone());
        match (purpose, answer) {
            (Purpose::Update(height), Answer::Update(update)) if update.height == height => {
                self.update(now, broker, update, false);
            }
            (Purpose::Update(height), Answer::No(Why::Nothing)) => {
                self.updates.nothing(broker, height);
                self.advance(now);
            }
            (Purpose::Age | Purpose::Status(_), Answer::Status(status)) => {
                if status.broker != broker {
                    return self.misbehaved(broker, Misbehaviour::Number);
                }
                self.channels[usize::from(broker)].status(&status);
                self.look_around(now);
            }
            (Purpose::Key, Answer::Key(key)) => {
                self.channels[usize::from(broker)].vouches(key);
                self.look_around(now);
            }
            (Purpose::Shares(sn), Answer::Share(attachment)) => {
                self.outputs.push_back(Output::Attach { sn, broker, attachment });
            }
            (Purpose::Receipt(token), Answer::Receipt(testimony)) => {
                let is_complete = self.testified(token, broker, *testimony);
                is_complete.then(|| self.queries.close(id));
            }
            _ => {}
        }
        self.judge(now, id);
    }

    /// Looks whether a query is answered.
    fn judge(&mut self, now: Now, id: u64) {
        let Some(ask) = self.queries.get(id) else { return };
        let faulty = self.faulty;
        let (purpose, all) = (ask.purpose.clone(), ask.is_answered() && !ask.asked.is_empty());
        let is_everybody = ask.asked.len() == self.channels.len();
        match purpose {
            Purpose::Result(number) => {
                let Some(agreed) = ask.agreed(faulty).cloned() else { return self.widen(id, all) };
                let differing = ask.differing(&agreed);
                match agreed {
                    Answer::Result { height, results } if results.client == self.client => {
                        self.executed(now, height, &results);
                    }
                    Answer::No(Why::Pruned) => {
                        if let Some(op) = self.sending.forgotten(number) {
                            self.forgotten(now, op);
                        }
                    }
                    // Not executed yet: it is on its way.
                    _ => {}
                }
                self.queries.close(id);
                differing.into_iter().for_each(|broker| self.misbehaved(broker, Misbehaviour::Differed));
            }
            Purpose::Resume(subscription) => {
                if self.resumed(subscription, id, false) {
                    self.queries.close(id);
                    self.changed(now);
                    self.advance(now);
                } else if !self.ask_on(subscription, id) {
                    self.widen(id, all);
                }
            }
            Purpose::Read(token) => {
                if self.judge_read(now, token, id) {
                    self.queries.close(id);
                    self.read_on(now);
                } else {
                    self.widen(id, all);
                }
            }
            Purpose::Vouched => match ask.agreed(faulty).map(|it| *it == Answer::No(Why::Denied)) {
                Some(denied) => {
                    self.queries.close(id);
                    self.vouched(now, denied);
                }
                None => self.widen(id, all),
            },
            Purpose::Update(height) => {
                let asked = ask.asked.len();
                if self.has_update(height) || all && asked >= self.up().len() {
                    self.queries.close(id);
                } else {
                    self.widen(id, all);
                }
            }
            Purpose::Status(token) if all => self.report_status(token, id),
            // Each has its own: who is not connected yet is waited for, too.
            Purpose::Proofs(token) if all && is_everybody => self.report_proofs(token, id),
            Purpose::Bodies if ask.is_gone(faulty, self.channels.len()) => {
                self.queries.close(id);
                self.bodies_gone(now);
                self.advance(now);
            }
            Purpose::Receipt(_) | Purpose::Bodies => self.widen(id, all),
            Purpose::Age | Purpose::Key | Purpose::Shares(_) if all => {
                self.queries.close(id);
            }
            Purpose::Status(_) | Purpose::Proofs(_) | Purpose::Age | Purpose::Key | Purpose::Shares(_) => {}
        }
    }

    /// Asks the rest if those who were asked do not agree.
    fn widen(&mut self, id: u64, all: bool) {
        if all {
            self.ask_more(id, self.channels.len());
        }
    }

    /// A query has no answer.
    fn give_up(&mut self, now: Now, id: u64) {
        let Some(ask) = self.queries.get(id) else { return };
        match ask.purpose.clone() {
            Purpose::Read(token) => {
                self.queries.close(id);
                self.fail_read(token, Why::Busy);
            }
            Purpose::Receipt(token) => {
                self.queries.close(id);
                self.fail_receipt(token);
            }
            Purpose::Status(token) => self.report_status(token, id),
            Purpose::Proofs(token) => self.report_proofs(token, id),
            // What is still wanted is asked for anew.
            _ => {
                self.queries.close(id);
                self.advance(now);
            }
        }
    }

    fn report_status(&mut self, token: Token, id: u64) {
        let Some(ask) = self.queries.close(id) else { return };
        let of = |(broker, answer)| match answer {
            Answer::Status(status) => Some((broker, *status)),
            _ => None,
        };
        self.outputs.push_back(Output::Status(token, ask.answers.into_iter().filter_map(of).collect()));
    }

    fn report_proofs(&mut self, token: Token, id: u64) {
        let Some(ask) = self.queries.close(id) else { return };
        let of = |(broker, answer)| match answer {
            Answer::Evidence(proofs) => Some((broker, proofs)),
            _ => None,
        };
        self.outputs.push_back(Output::Proofs(token, ask.answers.into_iter().filter_map(of).collect()));
    }
}

/// Whether another broker, or the same one later, may have a better answer.
fn may_change(why: Why) -> bool {
    matches!(why, Why::Behind | Why::Busy | Why::Storage)
}

/// How long an answer may take before others are asked.
const TIMEOUT: Duration = Duration::from_millis(150);
/// Times that a broker was silent that count when others can be asked: from here on they are all the same.
const SILENCES: u64 = 64;
/// Times that a request's timeout ends before what f + 1 brokers do not give is given up.
const GONE_ROUNDS: u32 = 2;
/// Times that a request's timeout ends before a broker that speaks for itself alone is no longer waited for: about a
/// second.
const SURVEY_ROUNDS: u32 = 3;
/// Times that a request's timeout ends before it has no answer: some 25 seconds.
const ROUNDS: u32 = 9;
