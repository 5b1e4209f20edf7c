//! A client with a channel to each broker, who believes what f + 1 of them say.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use sealcast_broker::operation::{Batch, Client, Operation};
use sealcast_broker::protocol::{Answer, Contents, Query, Refusal, Reply, Update};
use sealcast_broker::state::Code;
use sealcast_brokerd::channel::Channel;
use sealcast_brokerd::serve::Broker;

use crate::cluster::{Home, key};

pub(crate) struct Reader {
    seed: u8,
    client: Client,
    cluster: sealcast_broker::genesis::Cluster,
    pub(crate) channels: Vec<Channel>,
    /// The number of the next operation.
    pub(crate) next: u64,
    /// What was ordered last, through which broker, and when it was sent.
    last: Option<(usize, Batch, Instant)>,
    /// Updates of blocks, by height and broker.
    heard: BTreeMap<u64, BTreeMap<usize, Update>>,
}

impl Reader {
    /// Says hello to all brokers.
    pub(crate) fn open(home: &Home, brokers: &[Broker], seed: u8) -> Reader {
        let keys = home.file.broker_keys();
        let open = |(broker, at): (usize, &Broker)| {
            let opened = Channel::open(at.gateway_address(), keys[broker], key(seed), home.cluster, TIMEOUT);
            opened.unwrap_or_else(|e| panic!("broker {broker}: {e}"))
        };
        let (channels, welcomes): (Vec<_>, Vec<_>) = brokers.iter().enumerate().map(open).unzip();
        let next = welcomes.iter().map(|welcome| welcome.next).max().expect("there are brokers");
        let client = Client(key(seed).public_bytes());
        Reader { seed, client, cluster: home.cluster, channels, next, last: None, heard: BTreeMap::new() }
    }

    /// Orders operations through a broker and waits until f + 1 brokers say that all are done.
    pub(crate) fn order(&mut self, through: usize, operations: Vec<Operation>) {
        let codes = self.order_for(through, operations);
        assert!(codes.iter().all(|code| *code == Code::Done), "{codes:?}");
    }

    /// The same, whatever becomes of them.
    pub(crate) fn order_for(&mut self, through: usize, operations: Vec<Operation>) -> Vec<Code> {
        let (first, count) = (self.next, operations.len());
        self.next += count as u64;
        let batch = Batch::sign(&self.cluster, &key(self.seed), first, operations);
        self.channels[through].submit(&batch).expect("it is sent");
        self.last = Some((through, batch, Instant::now()));
        let enough = if self.channels.len() == 1 { 1 } else { 2 };
        let ours = |contents: &Contents| contents.results.iter().any(|results| results.first == first);
        let (_, contents) = self.updates(enough, ours);
        self.last = None;
        let results = contents.results.iter().find(|results| results.first == first).expect("it was just found");
        results.outcomes.iter().map(|outcome| outcome.code).collect()
    }

    /// Hears until so many brokers agree on an update with such contents, and one has sent them: of which blocks, and
    /// what.
    pub(crate) fn updates(&mut self, enough: usize, wanted: impl Fn(&Contents) -> bool) -> (Vec<u64>, Contents) {
        loop {
            let mut found = Vec::new();
            for (height, updates) in &self.heard {
                let contents = updates.values().filter_map(|update| update.contents.as_ref());
                let Some(contents) = contents.into_iter().find(|contents| wanted(contents)) else { continue };
                let digest = contents.digest(&self.cluster, &self.client, *height);
                let agree = updates.values().filter(|update| update.digest == digest).count();
                assert_eq!(agree, updates.len(), "brokers differ in block {height}");
                if agree >= enough {
                    found.push((*height, contents.clone()));
                }
            }
            if let Some((_, contents)) = found.first() {
                return (found.iter().map(|(height, _)| *height).collect(), contents.clone());
            }
            self.listen();
            self.request_contents();
        }
    }

    /// Whoever was to send contents may be gone: another one is asked.
    fn request_contents(&mut self) {
        let few = if self.channels.len() == 1 { 1 } else { 2 };
        let lacks = |updates: &BTreeMap<usize, Update>| updates.values().all(|update| update.contents.is_none());
        let lacking = self.heard.iter().filter(|(_, updates)| updates.len() >= few && lacks(updates));
        let heights: Vec<u64> = lacking.map(|(height, _)| *height).collect();
        for height in heights {
            for broker in 0..self.channels.len() {
                if let Ok(Answer::Update(update)) = self.channels[broker].ask(Query::Update { height }) {
                    self.heard.entry(height).or_default().insert(broker, update);
                    break;
                }
            }
        }
    }

    /// Hears something from some broker.
    fn listen(&mut self) {
        // A broker that had not executed our registration yet refused it.
        if let Some((through, batch, sent)) = &mut self.last
            && sent.elapsed() > AGAIN
        {
            *sent = Instant::now();
            // A broker that is gone takes nothing.
            let _ = self.channels[*through].submit(batch);
        }
        for broker in 0..self.channels.len() {
            // A broker that is gone says nothing.
            if let Ok(Some(Reply::Update(update))) = self.channels[broker].hear_within(LOOK) {
                let updates = self.heard.entry(update.height).or_default();
                updates.insert(broker, update);
            }
        }
    }

    /// Hears such a refusal from a broker.
    pub(crate) fn refused(&mut self, broker: usize, why: Refusal) {
        loop {
            match self.channels[broker].hear().expect("a refusal") {
                Reply::Refused { why: found, .. } if found == why => return,
                _ => {}
            }
        }
    }

    /// Asks all brokers; those that are behind are asked again.
    pub(crate) fn ask_all(&mut self, query: &Query) -> Vec<Answer> {
        self.channels.iter_mut().map(|channel| channel.ask(query.clone()).expect("an answer")).collect()
    }
}

const TIMEOUT: Duration = Duration::from_secs(120);
/// How long what became of a batch is waited for before it is sent again.
const AGAIN: Duration = Duration::from_millis(500);
const LOOK: Duration = Duration::from_millis(5);
