//! A broker as the client meets it: executes blocks, sends updates, answers queries; and how it may lie.

use std::collections::{BTreeMap, BTreeSet};

use sealcast_broker::operation::{Batch, Checked, Client, Moment, Operation, OperationId, Policy, UnregisteredError};
use sealcast_broker::protocol::{
    ActiveSubscription, Answer, Contents, Misbehaviour, Query, Refusal, Reply, Report, Request, Status, Update,
    Welcome, Why, designated_responder,
};
use sealcast_broker::receipt::{Fact, Testimony};
use sealcast_broker::state::{
    LowWaterMark, Memory, Outbox, ReadError, Reading, Results, Resuming, Run, State, Store as _, SubjectStatus,
    elements,
};
use sealcast_crypto::signature::OriginKey;
use sealcast_wire::Utc;

/// How a broker behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Behaviour {
    Honest,
    /// Executes and says nothing.
    Withholder,
    /// Says that operations came to nothing.
    LiarInResults,
    /// Says that publications may not be read, and that others may.
    LiarInEmpty,
    /// Sends attachments that are none.
    Forger,
    /// Takes batches and orders none of them.
    Censor,
    /// Answers as it was at height 1, or when it froze, whatever floor it is asked for; and claims heights that are not.
    StaleState,
    /// Right digests, other contents and bodies.
    Equivocator,
}

pub(super) const LIARS: [Behaviour; 7] = [
    Behaviour::Withholder,
    Behaviour::LiarInResults,
    Behaviour::LiarInEmpty,
    Behaviour::Forger,
    Behaviour::Censor,
    Behaviour::StaleState,
    Behaviour::Equivocator,
];

/// One broker.
pub(super) struct Broker {
    pub(super) number: u16,
    pub(super) behaviour: Behaviour,
    key: OriginKey,
    pub(super) state: State<Memory>,
    outboxes: BTreeMap<u64, Outbox>,
    /// Operations by sn.
    bodies: BTreeMap<u64, Vec<u8>>,
    /// The batch that used a number.
    results: BTreeMap<(Client, u64), (u64, Results)>,
    active: BTreeMap<(Client, u64), ActiveSubscription>,
    pub(super) here: BTreeSet<Client>,
    /// What a stale one shows.
    early: Option<Box<State<Memory>>>,
    /// Seconds by which the time is wrong that it names in its welcome.
    pub(super) clock_error: i64,
    brokers: usize,
}

impl Broker {
    pub(super) fn new(number: u16, behaviour: Behaviour, key: OriginKey, state: State<Memory>) -> Broker {
        let brokers = state.genesis().brokers.len();
        let (outboxes, bodies, results) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let (here, active, early, clock_error) = (BTreeSet::new(), BTreeMap::new(), None, 0);
        Broker { number, behaviour, key, state, outboxes, bodies, results, active, here, early, clock_error, brokers }
    }

    /// Executes a block, and says so to those whom it concerns.
    pub(super) fn execute(&mut self, height: u64, at: Utc, batches: &[Checked]) -> Vec<(Client, Reply)> {
        let outbox = self.state.execute(height, at, batches).expect("blocks come in order");
        if height == 1 {
            self.early = Some(Box::new(self.state.clone()));
        }
        for (batch, results) in batches.iter().zip(&outbox.results) {
            for ((number, _, operation), outcome) in batch.batch().operations().zip(&results.outcomes) {
                use sealcast_broker::state::Code;
                if matches!(outcome.code, Code::Duplicate | Code::Gap) {
                    continue;
                }
                self.results.insert((results.client, number), (height, results.clone()));
                if outcome.code == Code::Done {
                    let sn = u64::from_be_bytes(outcome.detail[..8].try_into().expect("it begins with the sn"));
                    self.bodies.insert(sn, operation.to_bytes());
                    if let Operation::Subscribe(interest) = operation {
                        let it = ActiveSubscription { id: number, interest: interest.clone(), since: sn, next: 0 };
                        self.active.insert((results.client, number), it);
                    }
                }
            }
        }
        for notice in &outbox.notices {
            if let Some(it) = self.active.get_mut(&(notice.client, notice.subscription)) {
                it.next = notice.first + notice.places();
            }
        }
        self.outboxes.insert(height, outbox);
        let clients: Vec<Client> = self.here.iter().copied().collect();
        let mut replies = Vec::new();
        for client in clients {
            let is_designated = designated_responder(&client, height, self.brokers) == usize::from(self.number);
            let Some(update) = self.update(&client, height, is_designated) else { continue };
            if self.behaviour == Behaviour::Forger {
                for entry in &self.outboxes[&height].publications {
                    replies.push((client, Reply::Attach { sn: entry.sn, attachment: vec![1; 40] }));
                }
            }
            replies.push((client, Reply::Update(update)));
        }
        if self.behaviour == Behaviour::StaleState {
            let update = || Update { height: height + 1_000_000, digest: [7; 32], contents: None };
            replies = self.here.iter().map(|client| (*client, Reply::Update(update()))).collect();
        }
        if self.behaviour == Behaviour::Withholder {
            replies.clear();
        }
        replies
    }

    fn testify(&self, client: &Client, height: u64, number: u64) -> Answer {
        let fact = self.outboxes.get(&height).and_then(|it| Some((it, Fact::of(it, client, number)?)));
        let Some((outbox, (fact, proof))) = fact else { return Answer::No(Why::Nothing) };
        let lies = self.behaviour == Behaviour::LiarInResults;
        let state_root = if lies { [9; 32] } else { outbox.state_root };
        let mut it = Testimony { broker: self.number, height, state_root, fact, proof, signature: [0; 64] };
        it.signature = self.key.sign(&it.statement(self.state.cluster()).expect("the proof fits"));
        Answer::Receipt(Box::new(it))
    }

    fn update(&self, client: &Client, height: u64, whole: bool) -> Option<Update> {
        let mut contents = Contents::of(self.outboxes.get(&height)?, client)?;
        let cluster = self.state.cluster();
        match self.behaviour {
            Behaviour::LiarInResults => {
                for results in &mut contents.results {
                    results.outcomes.iter_mut().for_each(|it| it.code = sealcast_broker::state::Code::Denied);
                }
            }
            Behaviour::LiarInEmpty => {
                for notice in &mut contents.notices {
                    notice.runs.iter_mut().for_each(|run| *run = lie(*run));
                }
            }
            _ => {}
        }
        let digest = contents.digest(cluster, client, height);
        let mentioned =
            contents.publications.iter().map(|it| it.sn).chain(contents.advertisements.iter().map(|it| it.sn));
        let sns: Vec<u64> = mentioned.collect();
        // What may be read now: a block may be asked for long after it was executed.
        let denied = |sn: &u64| {
            let is_published = contents.publications.iter().any(|it| it.sn == *sn);
            is_published && !self.state.may_read(client, *sn).expect("memory does not fail")
        };
        let readable: Vec<u64> = sns.into_iter().filter(|sn| !denied(sn)).collect();
        contents.bodies = readable.iter().filter_map(|sn| Some((*sn, self.bodies.get(sn)?.clone()))).collect();
        if self.behaviour == Behaviour::Equivocator {
            contents.bodies.iter_mut().for_each(|(_, body)| body.reverse());
            if height.is_multiple_of(2) {
                contents.at.0 += 1;
            }
        }
        Some(Update { height, digest, contents: whole.then_some(contents) })
    }

    /// What it says to a request; batches to be ordered come back too.
    pub(super) fn handle(&mut self, client: Client, request: &[u8]) -> (Vec<Reply>, Option<Batch>) {
        match Request::from_bytes(request).expect("the client speaks well") {
            Request::Hello { cluster } => {
                assert_eq!(cluster, *self.state.cluster());
                self.here.insert(client);
                (vec![Reply::Welcome(self.welcome(&client))], None)
            }
            Request::Submit(batch) => {
                let batch = Batch::from_bytes(&batch).expect("the client's batches are batches");
                let taken = !matches!(self.behaviour, Behaviour::Censor | Behaviour::Withholder);
                let is_known = self.state.client(&client).expect("memory does not fail").is_some();
                if let Err(why) = self.introduces(&batch)
                    && !is_known
                    && taken
                {
                    let why = match why {
                        UnregisteredError::Unknown => Refusal::Unregistered,
                        UnregisteredError::False => Refusal::Proof,
                    };
                    return (vec![Reply::Refused { first: batch.first(), why }], None);
                }
                (Vec::new(), taken.then_some(batch))
            }
            Request::Query { id, query } => {
                if self.behaviour == Behaviour::Withholder {
                    return (Vec::new(), None);
                }
                let answer = self.answer(&client, query);
                (vec![Reply::Answer { id, answer }], None)
            }
        }
    }

    /// Honest brokers take of whom they do not know only what shows who it is.
    fn introduces(&self, batch: &Batch) -> Result<(), UnregisteredError> {
        let now = Moment { at: self.state.time(), next_act: self.state.next_act() };
        batch.introduces(self.state.genesis(), self.state.cluster(), now, |_, _| true)
    }

    fn welcome(&self, client: &Client) -> Welcome {
        let stale = self.behaviour == Behaviour::StaleState;
        let state = self.early.as_deref().filter(|_| stale).unwrap_or(&self.state);
        let record = state.client(client).expect("memory does not fail");
        let registered = record.as_ref().is_some_and(|it| it.attributes(state.time()).is_some());
        let lies = self.behaviour == Behaviour::LiarInResults;
        Welcome {
            broker: self.number,
            height: if lies { u64::MAX / 2 } else { state.height() },
            at: Utc(state.time().0 + self.clock_error),
            sn: state.next_sn(),
            policy: if lies { 99 } else { state.policy().0 },
            epoch: state.epoch(),
            registered: registered != lies,
            next: if lies { 999_999 } else { record.map_or(0, |it| it.next) },
            subscriptions: self.active(client),
            key: None,
        }
    }

    fn active(&self, client: &Client) -> Vec<ActiveSubscription> {
        let stands = |id: u64| self.state.subscriptions(client).any(|(other, ..)| other == id);
        let noted = self.active.range((*client, 0)..=(*client, u64::MAX));
        noted.map(|(_, it)| it.clone()).filter(|it| stands(it.id)).collect()
    }

    /// From now on it lies by showing what is now.
    pub(super) fn freeze(&mut self) {
        self.behaviour = Behaviour::StaleState;
        self.early = Some(Box::new(self.state.clone()));
    }

    fn answer(&self, client: &Client, mut query: Query) -> Answer {
        let stale = self.behaviour == Behaviour::StaleState;
        let state = self.early.as_deref().filter(|_| stale).unwrap_or(&self.state);
        if stale
            && let Query::Range { min_height, .. }
            | Query::Latest { min_height, .. }
            | Query::Value { min_height, .. }
            | Query::Policy { min_height }
            | Query::Subject { min_height, .. }
            | Query::Resume { min_height, .. } = &mut query
        {
            *min_height = 0;
        }
        let no = |error: ReadError| {
            Answer::No(match error {
                ReadError::Behind { .. } => Why::Behind,
                ReadError::Denied => Why::Denied,
                ReadError::NoSubscription => Why::Nothing,
                ReadError::Pruned => Why::Pruned,
                ReadError::Store(_) => Why::Storage,
            })
        };
        let honest = match query {
            Query::Update { height } if height > state.height() => Answer::No(Why::Behind),
            Query::Update { height } => {
                self.update(client, height, true).map_or(Answer::No(Why::Nothing), Answer::Update)
            }
            Query::Result { number } => match self.results.get(&(*client, number)) {
                Some((height, results)) => Answer::Result { height: *height, results: results.clone() },
                None => Answer::No(Why::Nothing),
            },
            Query::Receipt { height, number } => self.testify(client, height, number),
            Query::Witness { sn } => match state.published(sn) {
                Ok(Some(entry)) if state.may_read_entry(client, &entry).is_ok_and(|may| may) => {
                    self.testify(&entry.client, entry.height, entry.number)
                }
                Ok(Some(_)) => Answer::No(Why::Denied),
                _ => Answer::No(Why::Nothing),
            },
            Query::TopicPosition { header, ps } => match state.read(client, &header, ps) {
                Ok(Some(reading)) => {
                    let reading = if self.behaviour == Behaviour::LiarInEmpty { Reading::Empty } else { reading };
                    Answer::Places(vec![sealcast_broker::state::TopicPosition { ps, reading }])
                }
                Ok(None) => Answer::No(Why::Nothing),
                Err(error) => no(error),
            },
            Query::Range { header, from, limit, min_height } => {
                match state.read_range(client, &header, from, usize::from(limit), min_height) {
                    Ok(places) if places.is_empty() => Answer::No(Why::Nothing),
                    Ok(mut places) => {
                        if self.behaviour == Behaviour::LiarInEmpty {
                            places.iter_mut().for_each(|it| it.reading = Reading::Empty);
                        }
                        Answer::Places(places)
                    }
                    Err(error) => no(error),
                }
            }
            Query::Latest { header, min_height } => match state.read_latest(client, &header, min_height) {
                Ok(Some(place)) => Answer::Places(vec![place]),
                Ok(None) => Answer::No(Why::Nothing),
                Err(error) => no(error),
            },
            Query::Value { topic, key, min_height } => {
                let lies = self.behaviour == Behaviour::LiarInResults;
                let found = state.read_value(client, &topic, &key, min_height);
                found.map_or_else(no, |it| Answer::Value(if lies { Some((u64::MAX / 2, b"lie".to_vec())) } else { it }))
            }
            Query::Policy { min_height } => match state.read_policy(client, min_height) {
                // The number that others name, and rules that ask nothing.
                Ok((number, _)) if self.behaviour == Behaviour::LiarInResults => {
                    Answer::Policy { number, policy: Policy::default() }
                }
                Ok((number, policy)) => Answer::Policy { number, policy: policy.clone() },
                Err(error) => no(error),
            },
            Query::Subject { subject, min_height } => match state.read_subject(client, &subject, min_height) {
                Ok(it) if self.behaviour == Behaviour::LiarInResults => {
                    Answer::Subject(SubjectStatus { revoked: !it.revoked, ..it })
                }
                Ok(it) => Answer::Subject(it),
                Err(error) => no(error),
            },
            Query::Resume { subscription, place, sn, min_height } => {
                // One step of what a broker would look at, so that few publications make several pages.
                let mut resuming = Resuming::new(*client, subscription, place, sn, min_height);
                match resuming.step(state).map(|_| resuming.found()) {
                    Ok(mut found) => {
                        let sns: Vec<u64> = found.notice.runs.iter().filter_map(Run::delivered).collect();
                        let publications = sns.iter().map(|sn| state.entry(*sn).expect("it is there")).collect();
                        if self.behaviour == Behaviour::LiarInEmpty {
                            found.notice.runs.iter_mut().for_each(|run| *run = lie(*run));
                        }
                        Answer::Resumed { lost: found.lost, notice: found.notice, until: found.until, publications }
                    }
                    Err(error) => no(error),
                }
            }
            Query::Bodies { sns } => {
                let may_read = |sn: &&u64| state.may_read(client, **sn).expect("memory does not fail");
                let readable = sns.iter().filter(may_read);
                let mut bodies: Vec<(u64, Vec<u8>)> =
                    readable.filter_map(|sn| Some((*sn, self.bodies.get(sn)?.clone()))).take(7).collect();
                if matches!(self.behaviour, Behaviour::Equivocator | Behaviour::LiarInEmpty) {
                    bodies.iter_mut().for_each(|(_, body)| body.reverse());
                }
                match bodies.is_empty() {
                    true if sns.iter().any(|sn| *sn < state.low_water_mark().sn) => Answer::No(Why::Pruned),
                    true if sns.iter().any(|sn| self.bodies.contains_key(sn)) => Answer::No(Why::Denied),
                    true => Answer::No(Why::Nothing),
                    false => Answer::Bodies(bodies),
                }
            }
            Query::Share { sn, proved } => Answer::Share(vec![self.number as u8, sn as u8, u8::from(proved)]),
            Query::Status => Answer::Status(Box::new(Status {
                broker: self.number,
                height: state.height(),
                state_root: state.root(),
                at: state.time(),
                policy: state.policy().0,
                epoch: state.epoch(),
                ..Status::default()
            })),
            Query::Evidence => {
                let report = Report { broker: 0, at: 7, misbehaviour: Misbehaviour::Equivocated };
                Answer::Evidence(vec![(report, vec![self.number as u8])])
            }
            Query::Key | Query::History | Query::Checkpoint { .. } | Query::Part { .. } => Answer::No(Why::Nothing),
        };
        match (self.behaviour, honest) {
            (Behaviour::LiarInResults, Answer::Result { height, mut results }) => {
                results.outcomes.iter_mut().for_each(|it| it.code = sealcast_broker::state::Code::Denied);
                Answer::Result { height, results }
            }
            (_, honest) => honest,
        }
    }

    /// Keeps nothing of what was published so far.
    pub(super) fn prune(&mut self) {
        let head = self.state.snapshot_head();
        let mut store = self.state.store().clone();
        let rows = elements(self.state.store()).map(|row| row.expect("memory does not fail"));
        let places = rows.filter_map(|row| LowWaterMark::place(head.height(), &row).expect("it is a row"));
        store.apply(places.map(|(key, value)| (key, Some(value))).collect()).expect("memory does not fail");
        self.state = State::open(self.state.genesis().clone(), store).expect("memory does not fail");
        self.state.raise_low_water_mark(head.low_water_mark()).expect("memory does not fail");
        self.bodies.retain(|sn, _| *sn >= head.low_water_mark().sn);
    }

    /// The operation with this sn.
    pub(super) fn body(&self, sn: u64) -> Option<(OperationId, Operation)> {
        let bytes = self.bodies.get(&sn)?;
        Some((OperationId::of(bytes), Operation::from_bytes(bytes).expect("it was executed")))
    }
}

/// ⊥ for what may be read, and something for ⊥.
fn lie(run: Run) -> Run {
    match run {
        Run::Deliver { .. } => Run::Empty { count: 1 },
        Run::Empty { .. } => Run::Deliver { sn: 0 },
    }
}
