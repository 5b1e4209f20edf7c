//! All of it at work: time, messages, channels, faults. Engine and timers run on the runtime's time; what clients and
//! brokers say to each other takes as long as the seed says, in order on each channel.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng as _, SeedableRng as _};
use sealcast::url::Scheme;
use sealcast_broker::operation::{Batch, Body, Client as Id, Operation};
use sealcast_broker::protocol::{Answer, Query, Reply, Request};
use sealcast_broker::state::Code;
use sealcast_brokerd::sync::{self, Forgotten, Keep};
use sealcast_crypto::group::Ristretto255;
use sealcast_crypto::hash::Transcript;
use sealcast_crypto::tdh2::Ciphertext;
use sealcast_keys::threshold::sealed::{Attachment, What};
use sealcast_order::StartCertificate;
use sealcast_order_engine::{Broker as Address, Settings, SigningSeed, Start};
use sealcast_order_testing::simulated::Brokers as Orders;
use sealcast_sim::agenda::Agenda;
use sealcast_sim::channels::{Channels, Direction};
use sealcast_sim::checker::Panel;
use sealcast_wire::{Monotonic, Now, Utc};

use crate::broker::{BLOCK, Broker};
use crate::byzantine_client::{ByzantineClient, Deed};
use crate::checkers::{self, Book, Violation};
use crate::client::{Client, ClientEvent};
use crate::event::Event;
use crate::fixture::{Desk, EVERYTHING, Fixture, Interest, Plan, Threshold, key_of, wants};
use crate::joiner::Joiner;
use crate::liar::{Liar, Lie};
use crate::member::Member;

/// What changes an event before checkers see it, in tests of the checkers.
pub type Plant = Box<dyn FnMut(&mut Vec<Event>)>;

/// The simulation.
pub struct Simulation {
    /// Who takes part.
    pub fixture: Arc<Fixture>,
    brokers: Vec<Broker>,
    liars: BTreeMap<usize, Liar>,
    twin: Option<Broker>,
    /// Whose batches a censor refuses.
    refused: Option<Id>,
    /// The correct clients.
    pub clients: Vec<Client>,
    byzantine_clients: Vec<ByzantineClient>,
    /// Members of a group, whom no checker knows.
    pub members: Vec<Member>,
    checkers: Panel<Book, Event>,
    plant: Option<Plant>,
    rng: ChaCha8Rng,
    now: u64,
    queue: Agenda<Message>,
    /// Of members, to brokers.
    channels: Channels,
    /// Open queries for shares: member, broker, id; of which publication.
    queries: BTreeMap<(usize, usize, u64), u64>,
    /// Whose ciphertexts were sent, and under which number, by ctid.
    sealed: BTreeMap<[u8; 32], (Id, u64)>,
    /// Publications that are planned and not begun: when, whose, what.
    planned: usize,
    outcomes: Vec<(usize, u64, u64, Code, u64)>,
    acted: BTreeMap<usize, (u64, Code)>,
    subscribed: BTreeSet<usize>,
    delivered: BTreeMap<usize, u64>,
    /// Longest way of a message, microseconds.
    pub delay_max: u64,
    /// Of 10,000 messages, at so many the channel breaks.
    pub breaks: u64,
    trace: [u8; 32],
    /// What was counted.
    pub counts: Counts,
}

/// What a run came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Messages between clients and brokers.
    pub messages: u64,
    /// Blocks executed, by all brokers.
    pub blocks: u64,
    /// Publications that applications got.
    pub delivered: u64,
    /// Places that were ⊥.
    pub empty: u64,
    /// Shares sent.
    pub shares: u64,
    /// Receipts that held.
    pub receipts: u64,
    /// Accusations, all of liars.
    pub accused: u64,
    /// Replies that liars changed, added or kept to themselves, batches that censors refused, and votes by which liars were
    /// found to contradict themselves.
    pub lies: u64,
    /// Brokers that began with a snapshot, and snapshots that were not begun with.
    pub joined: u64,
    /// See `joined`.
    pub passed_over: u64,
    /// Batches of Byzantine clients, in which they misbehave, that brokers got.
    pub misbehaviours: u64,
    /// Simulated microseconds.
    pub micros: u64,
}

enum Message {
    ToBroker { member: usize, broker: usize, channel: u32, bytes: Arc<[u8]> },
    ToMember { member: usize, broker: usize, channel: u32, bytes: Vec<u8> },
    Connect { member: usize, broker: usize },
    Cut { member: usize, broker: usize },
    Plan { client: usize, plan: usize, it: Arc<Plan> },
    ByzantineClient(usize),
}

impl Simulation {
    /// Brokers of which so many lie, if there is a lie.
    pub fn new(seed: u64, faulty: usize, threshold: Threshold, lies: Option<(Lie, usize)>) -> Simulation {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let (fixture, shares) = Fixture::new(faulty, threshold, seed);
        let brokers: Vec<Broker> =
            shares.iter().enumerate().map(|(number, share)| Broker::new(number, &fixture, share)).collect();
        let mut liars = BTreeMap::new();
        while let Some((lie, _)) = lies.filter(|(_, count)| liars.len() < *count) {
            let number = (rng.next_u64() % brokers.len() as u64) as usize;
            liars
                .entry(number)
                .or_insert_with(|| Liar::new(lie, key_of(fixture.seeds[number]), fixture.cluster, seed / 2));
        }
        let twin = lies.filter(|it| it.0 == Lie::Equivocator).and(liars.keys().next()).map(|it| brokers[*it].twin());
        let checkers = checkers::all(&fixture, liars.keys().copied().collect());
        Simulation {
            fixture: Arc::new(fixture),
            brokers,
            liars,
            twin,
            refused: None,
            clients: Vec::new(),
            byzantine_clients: Vec::new(),
            members: Vec::new(),
            checkers,
            plant: None,
            rng,
            now: 0,
            queue: Agenda::default(),
            channels: Channels::default(),
            queries: BTreeMap::new(),
            sealed: BTreeMap::new(),
            planned: 0,
            outcomes: Vec::new(),
            acted: BTreeMap::new(),
            subscribed: BTreeSet::new(),
            delivered: BTreeMap::new(),
            delay_max: 8_000,
            breaks: 0,
            trace: [0; 32],
            counts: Counts::default(),
        }
    }

    /// From their next start on, brokers keep no more than this, and their blocks come fast.
    pub fn keep(&mut self, keep: Keep) {
        self.brokers.iter_mut().for_each(|it| it.keep = keep);
    }

    /// Lets something change what checkers see.
    pub fn plant(&mut self, plant: Plant) {
        self.plant = Some(plant);
    }

    /// A correct client comes.
    ///
    /// # Errors
    /// [`Violation`].
    pub fn enter(&mut self, seed: u8, desk: Desk, interest: Interest) -> Result<usize, Violation> {
        let client = Client::new(&self.fixture, seed, desk, interest);
        let (id, number) = (client.id, self.clients.len());
        assert!(self.byzantine_clients.is_empty(), "correct clients come first");
        self.clients.push(client);
        self.tell(Event::Enters { client: number, id, desk, interest })?;
        self.connect_all(number);
        Ok(number)
    }

    /// A client that misbehaves comes.
    ///
    /// # Errors
    /// [`Violation`].
    pub fn add_byzantine_client(&mut self, seed: u8, deed: Deed) -> Result<(), Violation> {
        let byzantine_client = ByzantineClient::new(seed, deed);
        let (id, desk, number) =
            (byzantine_client.id, byzantine_client.desk, self.clients.len() + self.byzantine_clients.len());
        self.byzantine_clients.push(byzantine_client);
        self.tell(Event::Enters { client: number, id, desk, interest: Some(EVERYTHING) })?;
        self.connect_all(number);
        self.push(300_000, Message::ByzantineClient(self.byzantine_clients.len() - 1));
        Ok(())
    }

    /// A member of a group comes; it is the last to come.
    pub fn enter_member(&mut self, keys: Scheme, seed: u8) {
        let (now, number) = (self.time(), self.outsiders() + self.members.len());
        self.members.push(Member::new(now, &self.fixture, keys, seed));
        self.connect_all(number);
    }

    /// A member's process dies, and starts again.
    pub fn restart_member(&mut self, number: usize) {
        let (now, member) = (self.time(), self.outsiders() + number);
        for broker in 0..self.brokers.len() {
            if self.channels.cut((member, broker)) {
                self.brokers[broker].leave(&self.members[number].id);
            }
        }
        self.members[number].restart(now, &self.fixture);
        self.connect_all(member);
    }

    /// How many there are beside members of groups, who come behind them.
    fn outsiders(&self) -> usize {
        self.clients.len() + self.byzantine_clients.len()
    }

    fn member_of_group(&mut self, number: usize) -> Option<&mut Member> {
        let outsiders = self.outsiders();
        number.checked_sub(outsiders).and_then(|it| self.members.get_mut(it))
    }

    fn id_of(&self, number: usize) -> Id {
        let clients = self.clients.iter().map(|it| it.id).chain(self.byzantine_clients.iter().map(|it| it.id));
        clients.chain(self.members.iter().map(|it| it.id)).nth(number).expect("it is somebody's number")
    }

    /// A correct client is away for so many microseconds.
    pub fn leave(&mut self, client: usize, micros: u64) {
        let now = self.time();
        for broker in 0..self.brokers.len() {
            if self.channels.cut((client, broker)) {
                self.clients[client].disconnected(now, number_of(broker));
                let id = self.clients[client].id;
                self.brokers[broker].leave(&id);
            }
            self.push(micros, Message::Connect { member: client, broker });
        }
    }

    /// A censor refuses this client's batches.
    pub fn refuse(&mut self, client: usize) {
        self.refused = Some(self.clients[client].id);
    }

    /// A client will publish this after so many microseconds.
    ///
    /// # Errors
    /// [`Violation`].
    pub fn plan(&mut self, wait: u64, client: usize, plan: Plan) -> Result<(), Violation> {
        let (it, number) = (Arc::new(plan), self.checkers.roles.plans.len());
        self.tell(Event::Planned { plan: it.clone(), correct: true })?;
        self.planned += 1;
        self.push(wait, Message::Plan { client, plan: number, it });
        Ok(())
    }

    /// What the run itself finds.
    pub fn violation(&self, checker: &'static str, what: impl Into<String>) -> Violation {
        Violation { at: Monotonic(self.now), checker, what: what.into() }
    }

    /// A random number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.rng.next_u64() % n.max(1)
    }

    /// Brokers that do not lie, by number.
    pub fn honest(&self) -> Vec<usize> {
        (0..self.brokers.len()).filter(|it| !self.liars.contains_key(it)).collect()
    }

    /// The engine's settings of all brokers.
    pub fn settings(&self) -> Vec<Settings> {
        let address = |port: usize| ([127, 0, 0, 1], u16::try_from(port).expect("brokers are few")).into();
        let seeds: Vec<SigningSeed> = self.fixture.seeds.iter().map(SigningSeed::new).collect();
        let brokers: Vec<Address> =
            seeds.iter().enumerate().map(|(i, seed)| Address { key: seed.public(), address: address(i) }).collect();
        let of = |(i, seed): (usize, SigningSeed)| Settings {
            block: BLOCK,
            term: 8,
            heartbeat: if self.brokers[i].keep == Keep::Everything { HEARTBEAT } else { FAST_HEARTBEAT },
            ..Settings::new(&self.fixture.cluster.0, brokers.clone(), seed, address(i), "".into())
        };
        seeds.into_iter().enumerate().map(of).collect()
    }

    /// Opens all links, with up to so many of 100 messages lost.
    pub async fn link_all(&mut self, orders: &mut Orders, loss_percent: u64) {
        for a in 0..self.brokers.len() {
            for b in (0..self.brokers.len()).filter(|b| *b != a) {
                let (loss, latency) = (self.below(loss_percent + 1), 1 + self.below(12));
                orders.link(a, b, Duration::from_millis(latency), 100 - loss).await;
            }
        }
    }

    /// Starts a broker's process.
    pub async fn start(&mut self, orders: &mut Orders, number: usize) {
        let censors = self.liars.get(&number).is_some_and(|it| it.lie == Lie::Censor);
        let application = self.brokers[number].start(self.refused.filter(|_| censors));
        let twin = self.twin.as_mut().filter(|twin| twin.number == number);
        match twin {
            Some(twin) => {
                let second = twin.start(None);
                let order = orders.start_twins(number, application, second).await;
                twin.attach(order);
            }
            None => orders.start(number, application).await,
        }
        self.brokers[number].attach(orders.order(number));
    }

    /// Kills a broker's process.
    pub async fn crash(&mut self, orders: &mut Orders, number: usize) {
        orders.crash(number).await;
        self.die(number);
    }

    /// Kills a broker's process, and takes all that it had but its keys.
    pub async fn lose(&mut self, orders: &mut Orders, number: usize) {
        self.crash(orders, number).await;
        orders.lose_disk(number);
        self.brokers[number].lose();
    }

    /// A broker that lost everything asks the others, some one of whom may be out of its reach, and has what it needs for a
    /// start when there is something; where its order begins then.
    ///
    /// # Errors
    /// [`Violation`].
    pub fn join(&mut self, orders: &mut Orders, number: usize) -> Result<Option<u64>, Violation> {
        let silent = self.below(2 * self.brokers.len() as u64) as usize;
        let joiner = Joiner::new(&self.fixture, &self.brokers, &mut self.liars, number, silent);
        let is_start_certificate =
            |start_certificate: &StartCertificate| orders.is_start_certificate(number, start_certificate);
        let mut passed_over = 0;
        let joined = sync::join(&joiner, &is_start_certificate, &mut self.rng, |_, _| passed_over += 1);
        self.counts.lies += joiner.lies();
        self.counts.passed_over += passed_over;
        let joined = joined.map_err(|what| self.violation("brokers go on", what.to_string()))?;
        let Some(joined) = joined else { return Ok(None) };
        self.counts.joined += 1;
        self.tell(Event::Joined { broker: number, height: joined.height, root: joined.root })?;
        let height = joined.start_certificate.height;
        orders.start_from(number, Start::StartCertificate(joined.start_certificate.clone()));
        self.brokers[number].begin(joined);
        Ok(Some(height))
    }

    /// Whether the others say that the views are over for which it may have voted, some one of whom may be out of reach.
    pub fn is_over(&mut self, forgotten: &mut Forgotten, number: usize) -> bool {
        let silent = self.below(2 * self.brokers.len() as u64) as usize;
        forgotten.is_over(&Joiner::new(&self.fixture, &self.brokers, &mut self.liars, number, silent))
    }

    /// The first publication that some honest broker that runs still keeps.
    pub fn low_water_mark(&self) -> u64 {
        let honest = self.honest().into_iter().filter(|it| self.runs(*it));
        honest.map(|it| self.brokers[it].low_water_mark()).min().unwrap_or(0)
    }

    /// All processes are gone with their runtime.
    pub fn killed(&mut self) {
        (0..self.brokers.len()).for_each(|number| self.die(number));
    }

    fn die(&mut self, number: usize) {
        let dice = self.rng.next_u64();
        self.brokers[number].crash(dice);
        if let Some(twin) = self.twin.as_mut().filter(|twin| twin.number == number) {
            twin.crash(dice);
        }
        for member in 0..self.outsiders() + self.members.len() {
            self.push(0, Message::Cut { member, broker: number });
        }
    }

    /// Whether this broker runs.
    pub fn runs(&self, number: usize) -> bool {
        self.brokers[number].runs()
    }

    /// Whether all correct subscribers have their subscription.
    pub fn are_subscribed(&self, count: usize) -> bool {
        self.subscribed.len() >= count
    }

    /// Whether nothing of correct clients is under way, brokers stand together and readers have got all; of clients that
    /// are ended, nothing is waited for.
    pub fn is_quiet(&self) -> bool {
        let book = &self.checkers.roles;
        let pending = |(number, it): (usize, &Client)| !book.revoked.contains_key(&number) && it.pending() > 0;
        if self.planned > 0 || self.clients.iter().enumerate().any(pending) {
            return false;
        }
        let last = self.outcomes.iter().map(|it| it.1).max().unwrap_or(0);
        if self.honest().iter().any(|it| self.brokers[*it].height() < last) {
            return false;
        }
        let readers = self.subscribed.iter().filter(|it| !book.revoked.contains_key(it));
        let mut places: BTreeMap<Interest, BTreeSet<u64>> = BTreeMap::new();
        for reader in readers {
            let of_reader = self.delivered.get(reader).copied().unwrap_or(0);
            places.entry(book.clients[*reader].2).or_default().insert(of_reader);
        }
        let done = |interest: Interest| {
            let done = self.outcomes.iter().filter(|it| it.3 == Code::Done);
            done.filter(|it| wants(interest, book.plans[it.0].0.topic)).count() as u64
        };
        places.iter().all(|(interest, places)| places.len() == 1 && places.iter().all(|it| *it >= done(*interest)))
    }

    /// What became of plans so far: plan, block, number, code, sn.
    pub fn outcomes(&self) -> &[(usize, u64, u64, Code, u64)] {
        &self.outcomes
    }

    /// Where an act of this number was executed.
    pub fn acted(&self, act: usize) -> Option<(u64, Code)> {
        self.acted.get(&act).copied()
    }

    /// A client is known to be ended in this block.
    ///
    /// # Errors
    /// [`Violation`].
    pub fn revoked(&mut self, client: usize, height: u64) -> Result<(), Violation> {
        self.tell(Event::Revoked { client, height })
    }

    /// Asks for receipts of plans that have their place.
    pub fn ask_receipts(&mut self, count: usize) {
        let now = self.time();
        let done: Vec<_> = self.outcomes.iter().filter(|it| it.3 == Code::Done).rev().take(count).copied().collect();
        for (plan, height, number, _, _) in done {
            let id = self.checkers.roles.plans[plan].0.client;
            if let Some(client) = self.clients.iter_mut().find(|it| it.id == id) {
                client.ask_receipt(now, plan, height, number);
            }
        }
    }

    /// Tells checkers what lies at brokers, and that it is over.
    ///
    /// # Errors
    /// [`Violation`].
    pub fn end(&mut self, complete: bool) -> Result<(), Violation> {
        for broker in 0..self.brokers.len() {
            for bytes in self.brokers[broker].holdings() {
                self.tell(Event::Stored { broker, bytes })?;
            }
            let sn = self.brokers[broker].low_water_mark();
            self.tell(Event::LowWaterMark { broker, sn })?;
            let sns: Vec<u64> = self.outcomes.iter().filter(|it| it.3 == Code::Done).map(|it| it.4).collect();
            for sn in sns {
                let who = self.brokers[broker].published(sn);
                self.tell(Event::Kept { broker, sn, who })?;
            }
        }
        self.counts.micros = self.now;
        self.counts.lies += self.brokers.iter().map(Broker::censored).sum::<u64>();
        self.tell(Event::End { complete })
    }

    /// A hash over all that was seen and said.
    pub fn trace(&self) -> [u8; 32] {
        self.trace
    }

    /// Lets so much time pass.
    ///
    /// # Errors
    /// [`Violation`].
    pub async fn advance(&mut self, orders: &mut Orders, micros: u64) -> Result<(), Violation> {
        self.now = self.now.max(micros_of(orders.now()));
        let until = self.now + micros;
        while self.now < until {
            self.settle()?;
            for broker in &self.brokers {
                broker.certify().await;
            }
            let members = self.members.iter().filter_map(Member::timeout);
            let timers = self.clients.iter().filter_map(Client::timeout).chain(members).map(|it| it.0);
            let first = self.queue.first().map(|at| at.0);
            let next = timers.chain(first).min().unwrap_or(until).min(self.now + TICK_MICROS).min(until);
            orders.sleep(Duration::from_micros(next.saturating_sub(self.now).max(1))).await;
            self.now = self.now.max(micros_of(orders.now()));
            while let Some((_, message)) = self.queue.pop(Monotonic(self.now)) {
                self.happen(message)?;
            }
        }
        self.settle()
    }

    /// Lets time pass until this holds; `false` if it never did.
    ///
    /// # Errors
    /// [`Violation`].
    pub async fn until(
        &mut self,
        orders: &mut Orders,
        micros: u64,
        mut holds: impl FnMut(&Simulation) -> bool,
    ) -> Result<bool, Violation> {
        let end = self.now + micros;
        while self.now < end {
            if holds(self) {
                return Ok(true);
            }
            self.advance(orders, 50_000).await?;
        }
        Ok(holds(self))
    }

    /// The time of clients.
    pub fn time(&self) -> Now {
        let utc = Utc(i64::try_from(self.now / 1_000_000).expect("a run is short"));
        Now { monotonic: Monotonic(self.now + BOOT_MICROS), utc: Some(utc) }
    }

    /// Brokers and clients do what they can.
    fn settle(&mut self) -> Result<(), Violation> {
        for number in 0..self.brokers.len() {
            let dice = self.rng.next_u64();
            let at = Monotonic(self.now);
            let failed = |what| Violation { at, checker: "brokers go on", what };
            if let Some(twin) = self.twin.as_mut().filter(|twin| twin.number == number) {
                twin.step(self.now, dice).map_err(failed)?;
                twin.take();
            }
            for done in self.brokers[number].step(self.now, dice).map_err(failed)? {
                self.counts.blocks += 1;
                let (height, hash, roots) = (done.height, done.hash, done.roots);
                self.tell(Event::Executed { broker: number, height, hash, roots })?;
            }
            for (broker, view) in self.brokers[number].contradictions() {
                self.counts.lies += u64::from(self.liars.contains_key(&broker));
                self.tell(Event::Contradicted { by: number, broker, view })?;
            }
            for (client, reply) in self.brokers[number].take() {
                let said = match self.liars.get_mut(&number) {
                    Some(liar) => {
                        let honest = [(client, reply.clone())];
                        let said = liar.says(client, reply);
                        self.counts.lies += u64::from(said != honest);
                        said
                    }
                    None => vec![(client, reply)],
                };
                for (client, reply) in said {
                    self.reply(number, &client, &reply)?;
                }
            }
        }
        for number in 0..self.clients.len() {
            let now = self.time();
            for said in self.clients[number].work(now) {
                self.say(number, said)?;
            }
            if let Some(at) = self.clients[number].believes().filter(|at| now.utc.is_some_and(|utc| *at > utc)) {
                let what = format!("client {number} believes in a block of {at:?} at {:?}", now.utc);
                return Err(self.violation("block time", what));
            }
        }
        for number in 0..self.members.len() {
            let now = self.time();
            for (broker, bytes) in self.members[number].work(now) {
                self.send_to(self.outsiders() + number, usize::from(broker), bytes);
            }
        }
        Ok(())
    }

    fn say(&mut self, client: usize, said: ClientEvent) -> Result<(), Violation> {
        match said {
            ClientEvent::Send(broker, bytes) => {
                if let Some(batch) = Request::submitted(&bytes) {
                    let overheard = self.byzantine_clients.iter_mut().map(|it| &mut it.overheard);
                    overheard.for_each(|it| it.push(batch.to_vec()));
                }
                self.send_to(client, usize::from(broker), bytes);
                Ok(())
            }
            ClientEvent::Sends(plan, number) => self.tell(Event::Sends { plan, number }),
            ClientEvent::Outcome(plan, height, number, code, sn) => {
                self.outcomes.push((plan, height, number, code, sn));
                self.tell(Event::Outcome { plan, height, number, code, sn })
            }
            ClientEvent::Acted(act, height, code) => {
                self.acted.insert(act, (height, code));
                Ok(())
            }
            ClientEvent::Subscribed => {
                self.subscribed.insert(client);
                self.tell(Event::Subscribed { client })
            }
            ClientEvent::Delivered(place, entry, body) => {
                self.counts.delivered += 1;
                *self.delivered.entry(client).or_default() += 1;
                let topic = entry.places.first().map(|(it, ps)| (it.topic.clone(), *ps)).unwrap_or_default();
                let (sn, publisher, number) = (entry.sn, entry.client, entry.number);
                self.tell(Event::Delivered { client, place, sn, publisher, number, topic, body })
            }
            ClientEvent::Empty(place, count) => {
                self.counts.empty += count;
                *self.delivered.entry(client).or_default() += count;
                self.tell(Event::Empty { client, place, count })
            }
            ClientEvent::Receipt(plan, receipt) => {
                self.counts.receipts += 1;
                self.tell(Event::Receipt { plan, receipt })
            }
            ClientEvent::Accused(broker, what) => {
                self.counts.accused += 1;
                self.tell(Event::Accused { client, broker: usize::from(broker), what })
            }
            ClientEvent::Convicted(publisher, number) => {
                let correct = self.clients.iter().any(|it| it.id == publisher);
                let what = format!("client {client} convicts a correct publisher of number {number}");
                if correct { Err(self.violation("accusations", what)) } else { Ok(()) }
            }
        }
    }

    fn tell(&mut self, event: Event) -> Result<(), Violation> {
        let mut events = vec![event];
        if let Some(plant) = &mut self.plant {
            plant(&mut events);
        }
        for event in events {
            let said = event.digest();
            self.trace = Transcript::new("trace").add(&self.trace).add(said.as_bytes()).finish();
            self.checkers.roles.see(&event);
            self.checkers.event(Monotonic(self.now), 0, &event);
            if let Some(violation) = self.checkers.violations().first() {
                return Err(violation.clone());
            }
        }
        Ok(())
    }

    fn push(&mut self, wait: u64, message: Message) {
        self.queue.push(Monotonic(self.now + wait), message);
    }

    fn connect_all(&mut self, member: usize) {
        for broker in 0..self.brokers.len() {
            let wait = 1 + self.below(self.delay_max);
            self.push(wait, Message::Connect { member, broker });
        }
    }

    /// A message on its way, behind those before it on its channel.
    fn carry(&mut self, direction: Direction, member: usize, broker: usize, message: Message) {
        let delay = 50 + self.below(self.delay_max);
        let at = self.channels.arrives(direction, (member, broker), Monotonic(self.now + delay));
        self.counts.messages += 1;
        self.queue.push(at, message);
        if self.breaks > 0 && self.below(10_000) < self.breaks {
            let wait = self.below(2 * self.delay_max);
            self.push(wait, Message::Cut { member, broker });
        }
    }

    fn send_to(&mut self, member: usize, broker: usize, bytes: Arc<[u8]>) {
        if self.channels.is_open((member, broker)) {
            self.note_sealed(&bytes);
            let channel = self.channels.number((member, broker));
            self.carry(Direction::ToServer, member, broker, Message::ToBroker { member, broker, channel, bytes });
        }
    }

    /// Notes whose ciphertexts a message brings.
    pub(crate) fn note_sealed(&mut self, bytes: &[u8]) {
        let Some(Ok(batch)) = Request::submitted(bytes).map(Batch::from_bytes) else { return };
        for (number, _, operation) in batch.operations() {
            if let Operation::Publish(it) = operation
                && let Body::Sealed(body) = &it.body
                && let Ok(ciphertext) = Ciphertext::decode(body)
            {
                let labelled = self.fixture.key.bind(ciphertext, &it.label(&batch.client(), number));
                self.sealed.insert(*labelled.id(), (batch.client(), number));
            }
        }
    }

    fn member(&self, id: &Id) -> Option<usize> {
        let clients = self.clients.iter().map(|it| it.id).chain(self.byzantine_clients.iter().map(|it| it.id));
        clients
            .chain(self.members.iter().map(|it| it.id))
            .enumerate()
            .find(|(_, it)| it == id)
            .map(|(number, _)| number)
    }

    /// A broker says something to a client.
    ///
    /// # Errors
    /// [`Violation`].
    pub(crate) fn reply(&mut self, broker: usize, client: &Id, reply: &Reply) -> Result<(), Violation> {
        let Some(member) = self.member(client) else { return Ok(()) };
        let shared = match reply {
            Reply::Attach { sn, attachment } => Some((*sn, attachment)),
            Reply::Answer { id, answer } => {
                let sn = self.queries.remove(&(member, broker, *id));
                match answer {
                    Answer::Share(attachment) => sn.map(|sn| (sn, attachment)),
                    _ => None,
                }
            }
            _ => None,
        };
        if let Some((sn, attachment)) = shared.filter(|_| member < self.outsiders())
            && let Ok(it) = Attachment::<Ristretto255>::from_bytes(attachment)
            && it.what != What::Denied
            && let Some((publisher, number)) = self.sealed.get(&it.ciphertext).copied()
        {
            self.counts.shares += 1;
            let (height, low_water_mark) = (self.brokers[broker].height(), self.brokers[broker].low_water_mark());
            // What it had executed it may have pruned since it was asked.
            let executed =
                self.brokers[broker].published(sn).map_or(sn < low_water_mark, |it| it == (publisher, number));
            self.tell(Event::Share { broker, client: member, publisher, number, executed, height })?;
        }
        if self.channels.is_open((member, broker)) {
            let (channel, bytes) = (self.channels.number((member, broker)), reply.to_bytes());
            self.carry(Direction::ToClient, member, broker, Message::ToMember { member, broker, channel, bytes });
        }
        Ok(())
    }

    fn happen(&mut self, message: Message) -> Result<(), Violation> {
        let now = self.time();
        match message {
            Message::ToBroker { member, broker, channel, bytes } => {
                if self.channels.number((member, broker)) != channel {
                    return Ok(());
                }
                let id = self.id_of(member);
                if let Some(byzantine_client) =
                    member.checked_sub(self.clients.len()).and_then(|it| self.byzantine_clients.get(it))
                {
                    let batch = Request::submitted(&bytes);
                    self.counts.misbehaviours +=
                        u64::from(batch.is_some_and(|it| byzantine_client.misbehaviours.contains(it)));
                }
                self.tell(Event::Stored { broker, bytes: bytes.clone() })?;
                if let Ok(Request::Query { id, query: Query::Share { sn, .. } }) = Request::from_bytes(&bytes) {
                    self.queries.insert((member, broker, id), sn);
                }
                if !self.brokers[broker].hear(&id, &bytes) {
                    self.push(0, Message::Cut { member, broker });
                }
            }
            Message::ToMember { member, broker, channel, bytes } => {
                if self.channels.number((member, broker)) == channel {
                    if let Some(client) = self.clients.get_mut(member) {
                        client.handle(now, number_of(broker), &bytes);
                    } else if let Some(member) = self.member_of_group(member) {
                        member.handle(now, number_of(broker), &bytes);
                    }
                }
            }
            Message::Connect { member, broker } => {
                if !self.brokers[broker].runs() {
                    let wait = 50_000 + self.below(100_000);
                    self.push(wait, Message::Connect { member, broker });
                } else if self.channels.open((member, broker)) {
                    if let Some(client) = self.clients.get_mut(member) {
                        client.connected(now, number_of(broker));
                    } else if let Some(member) = self.member_of_group(member) {
                        member.connected(now, number_of(broker));
                    } else {
                        let hello = Request::Hello { cluster: self.fixture.cluster }.to_bytes();
                        self.send_to(member, broker, hello.into());
                    }
                }
            }
            Message::Cut { member, broker } => {
                if self.channels.cut((member, broker)) {
                    let wait = 20_000 + self.below(100_000);
                    self.push(wait, Message::Connect { member, broker });
                    if let Some(client) = self.clients.get_mut(member) {
                        client.disconnected(now, number_of(broker));
                    } else if let Some(member) = self.member_of_group(member) {
                        member.disconnected(now, number_of(broker));
                    }
                    let id = self.id_of(member);
                    self.brokers[broker].leave(&id);
                }
            }
            Message::Plan { client, plan, it } => {
                self.planned -= 1;
                self.clients[client].plans.push_back((plan, it));
            }
            Message::ByzantineClient(number) => {
                let dice = self.rng.next_u64();
                let (fixture, member) = (self.fixture.clone(), self.clients.len() + number);
                let act = self.byzantine_clients[number].act(&fixture, dice);
                for (plan, of) in act.plans {
                    let at = self.checkers.roles.plans.len();
                    self.tell(Event::Planned { plan, correct: false })?;
                    self.tell(Event::Sends { plan: at, number: of })?;
                }
                for (broker, bytes) in act.messages {
                    self.send_to(member, broker, bytes.into());
                }
                if self.now < BYZANTINE_UNTIL_MICROS {
                    let wait = 50_000 + self.below(150_000);
                    self.push(wait, Message::ByzantineClient(number));
                }
            }
        }
        Ok(())
    }
}

fn number_of(broker: usize) -> u16 {
    u16::try_from(broker).expect("a broker's number has 16 bits")
}

fn micros_of(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).expect("a run is short")
}

/// A leader without batches proposes a block after this: as real ones do, and where many blocks are needed.
const HEARTBEAT: Duration = Duration::from_millis(150);
const FAST_HEARTBEAT: Duration = Duration::from_millis(25);
/// How long brokers' work waits for nothing but time, at most.
const TICK_MICROS: u64 = 3_000;
/// Clients' clocks do not begin with their brokers'.
const BOOT_MICROS: u64 = 5_000_000;
/// Villains rest from then on, so that a run ends.
const BYZANTINE_UNTIL_MICROS: u64 = 6_000_000;
