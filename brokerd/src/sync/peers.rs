//! Asking the other brokers, each over the gateway that clients use, under this broker's own key.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use sealcast_broker::cluster_file::ClusterFile;
use sealcast_broker::genesis::Genesis;
use sealcast_broker::protocol::{Answer, Checkpoint, History, Query};
use sealcast_crypto::ed25519::Key;
use sealcast_crypto::signature::OriginKey;
use sealcast_wire::limits;

use crate::channel::Channel;

/// The other brokers, however they are asked.
pub trait Others {
    /// What the cluster began with.
    fn genesis(&self) -> &Genesis;

    /// What each of them says, of those who answer in time.
    fn ask(&self, query: &Query) -> BTreeMap<u16, Answer>;

    /// One of them, to be asked for a snapshot of so many bytes part by part.
    ///
    /// # Errors
    /// It is not there.
    fn source(&self, broker: u16, bytes: u64) -> io::Result<Source<'_>>;

    /// Whether nobody is to be waited for any more.
    fn has_ended(&self) -> bool {
        false
    }

    /// At most so many of them may do anything.
    fn faulty(&self) -> usize {
        self.genesis().brokers.len().saturating_sub(1) / 3
    }

    /// How far back they go.
    fn histories(&self) -> BTreeMap<u16, History> {
        let history = |(broker, answer)| match answer {
            Answer::History(history) => Some((broker, *history)),
            _ => None,
        };
        self.ask(&Query::History).into_iter().filter_map(history).collect()
    }

    /// The state root after this block that f + 1 of them signed, if as many did (E1).
    fn state_root(&self, height: u64) -> Option<[u8; 32]> {
        let mut signed: BTreeMap<[u8; 32], usize> = BTreeMap::new();
        for (broker, answer) in self.ask(&Query::Checkpoint { height }) {
            if let Answer::Checkpoint(it) = answer
                && holds(self.genesis(), broker, height, &it)
            {
                *signed.entry(it.state_root).or_default() += 1;
            }
        }
        signed.into_iter().find(|(_, count)| *count > self.faulty()).map(|(root, _)| root)
    }
}

/// Answers queries one after the other.
pub type Source<'a> = Box<dyn FnMut(Query) -> io::Result<Answer> + 'a>;

/// The other brokers, over the network.
#[derive(Clone)]
pub(crate) struct Peers<'a> {
    pub(crate) cluster: &'a ClusterFile,
    pub(crate) index: u16,
    pub(crate) key: &'a Arc<OriginKey>,
    /// Once it is set, nobody is waited for.
    pub(crate) end: &'a Arc<AtomicBool>,
}

impl Peers<'_> {
    /// A channel to one of them, on which no answer is waited for longer than `timeout`, and none from `last` on.
    pub(crate) fn open(&self, broker: u16, timeout: Duration, last: Instant) -> io::Result<Channel> {
        let place = usize::from(broker);
        let address = address(&self.cluster.addresses[place].gateway)?;
        let timeout = timeout.min(last.saturating_duration_since(Instant::now())).max(Duration::from_millis(1));
        let channel = Channel::connect(address, self.cluster.broker_keys()[place], self.key.clone(), timeout)?;
        Ok(channel.until(Some(last), self.end.clone()).greet(self.cluster.cluster())?.0)
    }

    /// All of it in [`limits::PEER_ANSWER`], whatever it does with the time.
    fn ask_one(&self, broker: u16, query: &Query) -> io::Result<Answer> {
        let last = Instant::now() + limits::PEER_ANSWER;
        self.open(broker, limits::PEER_ANSWER, last)?.ask(query.clone())
    }
}

impl Others for Peers<'_> {
    fn genesis(&self) -> &Genesis {
        &self.cluster.genesis
    }

    fn ask(&self, query: &Query) -> BTreeMap<u16, Answer> {
        let all = 0..u16::try_from(self.cluster.brokers()).expect("brokers have a limit");
        thread::scope(|scope| {
            let asked: Vec<_> = all
                .filter(|broker| *broker != self.index)
                .map(|broker| (broker, scope.spawn(move || self.ask_one(broker, query))))
                .collect();
            let answered = asked.into_iter().filter_map(|(broker, it)| Some((broker, it.join().ok()?.ok()?)));
            answered.collect()
        })
    }

    fn source(&self, broker: u16, bytes: u64) -> io::Result<Source<'_>> {
        let mut channel = self.open(broker, limits::SNAPSHOT_PART_TIMEOUT, Instant::now() + allowed(bytes))?;
        Ok(Box::new(move |query| channel.ask(query)))
    }

    fn has_ended(&self) -> bool {
        self.end.load(Ordering::Acquire)
    }
}

/// Whether it is this broker's word on that block.
fn holds(genesis: &Genesis, broker: u16, height: u64, it: &Checkpoint) -> bool {
    let key = genesis.brokers.iter().nth(usize::from(broker)).and_then(|key| Key::new(key).ok());
    let statement = it.statement(&genesis.cluster());
    (it.broker, it.height) == (broker, height) && key.is_some_and(|key| key.verify(&statement, &it.signature))
}

/// How long a snapshot of so many bytes may take. The length is the one that f + 1 brokers signed.
fn allowed(length: u64) -> Duration {
    limits::SNAPSHOT_PART_TIMEOUT + Duration::from_secs(length / limits::SNAPSHOT_BYTES_PER_SECOND_MIN)
}

/// Whether at least one honest broker, and with it all but f, has pruned what follows on this height.
pub(crate) fn is_left_behind(peers: &impl Others, height: u64) -> bool {
    left_behind(&peers.histories(), peers.faulty(), height)
}

pub(super) fn left_behind(histories: &BTreeMap<u16, History>, faulty: usize, height: u64) -> bool {
    let mut oldest: Vec<u64> = histories.values().map(|it| it.oldest).collect();
    oldest.sort_unstable();
    // The f + 1-th lowest: f may claim to have anything.
    oldest.get(faulty).is_some_and(|oldest| *oldest > height + 1)
}

fn address(text: &str) -> io::Result<SocketAddr> {
    text.to_socket_addrs()?.next().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
}
