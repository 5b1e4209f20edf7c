//! Reading without ordering: what f + 1 brokers answer alike, and not older than what the client has seen (E9).

use sealcast_broker::operation::{Operation, Publication};
use sealcast_broker::protocol::{self, Query, Why};
use sealcast_broker::state::{self, Entry, TopicPosition};
use sealcast_wire::{Now, limits};

use super::Quorum;
use super::channel::reached;
use super::event::{self, Answer, Output, Read};
use super::line::shared;
use super::queries::Purpose;
use super::sending::{Op, What};
use sealcast_delivery::{SendError, Token};

/// What stands at a place, its body perhaps not here yet; `None` is ⊥.
type Found = Option<Box<(Entry, Option<Publication>)>>;

/// A read under way.
#[derive(Debug)]
pub(super) enum Reading {
    /// Its `Sync` is being ordered, or its query is open.
    Requested(Read),
    /// Bodies are missing.
    Places(Vec<(u64, Found)>),
}

impl Quorum {
    /// Reads the newest state that f + 1 brokers agree on, not older than what the client has seen (E9). `linearizable`
    /// orders a `Sync` before, and the block that executed it is the minimum: all that was acknowledged before this call,
    /// to whomever, is in what is read.
    ///
    /// # Errors
    /// `Full`.
    pub fn read(&mut self, now: Now, what: Read, linearizable: bool) -> Result<Token, SendError> {
        if !self.queries.has_capacity() || self.reads.len() >= limits::CLIENT_QUERIES_MAX {
            return Err(SendError::Full);
        }
        self.tokens += 1;
        let token = Token(self.tokens);
        self.reads.insert(token, Reading::Requested(what));
        if linearizable {
            self.tokens += 1;
            let op = Op::new(Token(self.tokens), What::SyncForRead(token), &Operation::Sync);
            self.sending.push(now.monotonic, op);
        } else {
            self.ask_to_read(now, token, self.known.height);
        }
        Ok(token)
    }

    /// Asks all brokers where they are.
    ///
    /// # Errors
    /// `Full`.
    pub fn status(&mut self, now: Now) -> Result<Token, SendError> {
        if !self.queries.has_capacity() {
            return Err(SendError::Full);
        }
        self.tokens += 1;
        self.ask(now, Purpose::Status(Token(self.tokens)), Query::Status, self.channels.len());
        Ok(Token(self.tokens))
    }

    /// Asks all brokers for the proofs that they keep of what others did (E4). Whoever gives one is not believed: the proof
    /// is checked by whoever takes it.
    ///
    /// # Errors
    /// `Full`.
    pub fn proofs(&mut self, now: Now) -> Result<Token, SendError> {
        if !self.queries.has_capacity() {
            return Err(SendError::Full);
        }
        self.tokens += 1;
        self.ask(now, Purpose::Proofs(Token(self.tokens)), Query::Evidence, self.channels.len());
        Ok(Token(self.tokens))
    }

    /// Asks all brokers for the threshold key, for a client that came before there was one; [`Output::OrderStatus`] brings
    /// what they sign.
    pub fn look_for_key(&mut self, now: Now) {
        if self.queries.has_capacity() && !self.queries.is_open(&Purpose::Key) {
            self.ask(now, Purpose::Key, Query::Key, self.channels.len());
        }
    }

    /// The `Sync` of a read has its place; without one the client may not read.
    pub(super) fn sync_done(&mut self, now: Now, token: Token, min_height: Option<u64>) {
        match min_height {
            Some(min_height) => self.ask_to_read(now, token, min_height),
            None => self.fail_read(token, Why::Denied),
        }
    }

    /// f + 1 brokers refuse to order the `Sync` of a read.
    pub(super) fn sync_refused(&mut self, token: Token) {
        self.fail_read(token, Why::Busy);
    }

    fn ask_to_read(&mut self, now: Now, token: Token, min_height: u64) {
        let Some(Reading::Requested(what)) = self.reads.get(&token) else { return };
        let query = match what.clone() {
            // What stands at a place never changes, but whether anything does yet is a query of how far one sees.
            Read::TopicPosition { header, ps } => Query::Range { header, from: ps, limit: 1, min_height },
            Read::Range { header, from, limit } => Query::Range { header, from, limit, min_height },
            Read::Latest { header } => Query::Latest { header, min_height },
            Read::Value { topic, key } => Query::Value { topic, key, min_height },
            Read::Policy => Query::Policy { min_height },
            Read::Subject(subject) => Query::Subject { subject, min_height },
        };
        self.ask(now, Purpose::Read(token), query, self.faulty + 1);
    }

    /// Looks whether enough brokers agree on what was read; `true` if the query is done with.
    pub(super) fn judge_read(&mut self, now: Now, token: Token, id: u64) -> bool {
        let Some(ask) = self.queries.get(id) else { return true };
        match ask.agreed(self.faulty) {
            Some(protocol::Answer::Value(value)) => {
                // Whoever reads again sees no less (E9).
                let (height, value) = value.clone().unzip();
                self.known.height = self.known.height.max(height.unwrap_or(0));
                let answer = Answer::Value(value);
                self.reads.remove(&token);
                self.outputs.push_back(Output::Read(token, Ok(answer)));
                return true;
            }
            Some(protocol::Answer::Policy { number, policy }) => {
                let answer = Answer::Policy { number: *number, policy: policy.clone() };
                self.reads.remove(&token);
                self.outputs.push_back(Output::Read(token, Ok(answer)));
                return true;
            }
            Some(protocol::Answer::Subject(status)) => {
                let answer = Answer::Subject(*status);
                self.reads.remove(&token);
                self.outputs.push_back(Output::Read(token, Ok(answer)));
                return true;
            }
            Some(protocol::Answer::Places(places)) => {
                let places = places.clone();
                self.read_topic_positions(token, places);
                return true;
            }
            Some(protocol::Answer::No(why)) => {
                let why = *why;
                self.fail_read(token, why);
                return true;
            }
            _ => {}
        }
        // 2f + 1 brokers that have come to that height: f + 1 of them are honest, and see all that there was at it. Others are
        // not counted, for f who lie and one who is behind make no quorum.
        let there = ask.answers.values().filter_map(|it| match it {
            protocol::Answer::Places(places) => Some(places.clone()),
            protocol::Answer::No(Why::Nothing) => Some(Vec::new()),
            _ => None,
        });
        let lists: Vec<Vec<TopicPosition>> = there.collect();
        if lists.len() <= 2 * self.faulty {
            return false;
        }
        match &ask.query {
            // What stands at a place never changes, so brokers differ only in how far they see.
            Query::Range { .. } => {
                let agreed = shared(&lists, self.faulty);
                let is_some = !agreed.is_empty();
                if is_some {
                    self.read_topic_positions(token, agreed);
                }
                is_some
            }
            Query::Latest { header, min_height } => {
                let latest = lists.iter().map(|list| list.last().map(|it| it.ps));
                let (Some(Some(ps)), header) = (reached(latest, self.faulty), header.clone()) else { return false };
                let query = Query::Range { header, from: ps, limit: 1, min_height: *min_height };
                self.ask(now, Purpose::Read(token), query, self.channels.len());
                true
            }
            _ => false,
        }
    }

    fn read_topic_positions(&mut self, token: Token, places: Vec<TopicPosition>) {
        // Whoever reads again sees no less (E9).
        let heights = places.iter().filter_map(|it| match &it.reading {
            state::Reading::Empty => None,
            state::Reading::Publication(entry) => Some(entry.height),
        });
        self.known.height = heights.fold(self.known.height, u64::max);
        let of = |place: TopicPosition| match place.reading {
            state::Reading::Empty => (place.ps, None),
            state::Reading::Publication(entry) => (place.ps, Some(Box::new((*entry, None)))),
        };
        self.reads.insert(token, Reading::Places(places.into_iter().map(of).collect()));
    }

    /// Hands out reads whose bodies are here, and asks for the others.
    pub(super) fn read_on(&mut self, now: Now) {
        let mut done = Vec::new();
        for (token, reading) in &mut self.reads {
            let Reading::Places(places) = reading else { continue };
            let mut has_all = true;
            for (_, found) in places {
                if let Some((entry, publication @ None)) = found.as_deref_mut() {
                    *publication = self.bodies.publication(entry);
                    has_all &= publication.is_some();
                }
            }
            if has_all {
                done.push(*token);
            }
        }
        for token in done {
            let Some(Reading::Places(places)) = self.reads.remove(&token) else { continue };
            let whole = |it: Box<(Entry, Option<Publication>)>| {
                let (entry, publication) = *it;
                publication.map(|publication| Box::new((entry, publication)))
            };
            let places = places
                .into_iter()
                .map(|(ps, found)| event::TopicPosition { ps, found: found.and_then(whole) })
                .collect();
            self.outputs.push_back(Output::Read(token, Ok(Answer::Places(places))));
        }
        self.request_bodies(now);
    }

    /// The bodies that reads wait for, by sn.
    pub(super) fn missing_of_reads(&self) -> Vec<u64> {
        let places = self.reads.values().filter_map(|it| match it {
            Reading::Places(places) => Some(places),
            Reading::Requested(_) => None,
        });
        let missing = places.flatten().filter_map(|(_, found)| match found.as_deref() {
            Some((entry, None)) if !self.bodies.holds(entry.sn) => Some(entry.sn),
            _ => None,
        });
        missing.take(limits::READ_POSITIONS_MAX).collect()
    }

    /// Bodies that reads wait for are no longer kept.
    pub(super) fn reads_pruned(&mut self) {
        let waits = |(token, it): (&Token, &Reading)| matches!(it, Reading::Places(_)).then_some(*token);
        let tokens: Vec<Token> = self.reads.iter().filter_map(waits).collect();
        tokens.into_iter().for_each(|token| self.fail_read(token, Why::Pruned));
    }

    pub(super) fn fail_read(&mut self, token: Token, why: Why) {
        if self.reads.remove(&token).is_some() {
            self.outputs.push_back(Output::Read(token, Err(why)));
        }
    }
}
