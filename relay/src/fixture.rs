//! A directory with a shell of one thread, and keys, for tests.

use std::time::Duration;

use sealcast_crypto::secret::Secret;
use sealcast_crypto::signature::OriginKey;
use sealcast_wire::{Monotonic, Now, Utc};

use crate::directory::{Config, Directory, Memory, Overlay, Published};
use crate::follower::{Answer, Call, Entry, Follower, Misbehaviour, Progress};
use crate::ids::{DeviceId, GroupId};
use crate::key::RelayKey;
use crate::log::LogEntry;
use crate::request::{Append, Blob, Proof, Request};
use crate::response::{Refusal, Response};

pub(crate) const DAY: Duration = Duration::from_secs(86_400);

/// What answers requests: an honest directory, or one that misbehaves.
pub(crate) trait Relay {
    fn send(&mut self, request: &[u8]) -> Vec<u8>;
}

/// An honest directory, and where a crash of it may happen.
pub(crate) struct World {
    pub(crate) directory: Directory,
    pub(crate) storage: Memory,
    pub(crate) now: Now,
    /// Time that passes before each request.
    pub(crate) pace: Duration,
    pub(crate) published: Vec<Published>,
}

impl World {
    pub(crate) fn new() -> World {
        World::with(Config::default())
    }

    pub(crate) fn with(config: Config) -> World {
        World::on(config, Memory::default())
    }

    /// The process starts, on what an earlier one left.
    pub(crate) fn on(config: Config, storage: Memory) -> World {
        let now = Now { monotonic: Monotonic(0), utc: Some(Utc(1_790_000_000)) };
        let directory = Directory::new(config, key(RELAY));
        World { directory, storage, now, pace: Duration::from_secs(2), published: Vec::new() }
    }

    /// The same directory's key on a copy of its rows.
    pub(crate) fn copy(&self) -> World {
        World { now: self.now, ..World::on(Config::default(), self.storage.clone()) }
    }

    pub(crate) fn pass(&mut self, time: Duration) {
        self.now.monotonic = self.now.monotonic + time;
        self.now.utc = self.now.utc.map(|utc| Utc(utc.0 + time.as_secs() as i64));
    }

    pub(crate) fn ask(&mut self, request: &Request) -> Response {
        Response::decode(&self.send(&request.encode())).unwrap()
    }

    /// Why a request is refused; it changed nothing.
    pub(crate) fn refusal(&mut self, request: &Request) -> Refusal {
        let before = self.storage.clone();
        let Response::Refused(why) = self.ask(request) else { panic!("it is not refused: {request:?}") };
        assert_eq!(self.storage, before);
        why
    }

    /// All sweeps that there is something for.
    pub(crate) fn sweep(&mut self) {
        loop {
            let writes = self.directory.sweep(self.now, &self.storage).unwrap();
            if writes.is_empty() {
                return;
            }
            self.storage.apply(writes);
        }
    }

    /// Rows of a kind.
    pub(crate) fn rows(&self, kind: u8) -> usize {
        self.storage.rows().filter(|(key, _)| key[1] == kind).count()
    }
}

impl Relay for World {
    fn send(&mut self, request: &[u8]) -> Vec<u8> {
        self.pass(self.pace);
        let mut overlay = Overlay::new(&self.storage);
        let handled = self.directory.handle(self.now, request, &overlay).unwrap();
        overlay.apply(handled.writes);
        let writes = overlay.into_writes();
        self.storage.apply(writes);
        self.published.extend(handled.published);
        handled.response
    }
}

pub(crate) fn key(seed: u8) -> OriginKey {
    OriginKey::from_seed(&Secret::from_bytes([seed; 32]))
}

/// The joiner key of the group of most tests.
pub(crate) fn joiner() -> OriginKey {
    key(1)
}

pub(crate) fn group() -> GroupId {
    GroupId::of(&joiner().public_bytes())
}

pub(crate) fn relay() -> RelayKey {
    RelayKey::new(&key(RELAY).public_bytes()).unwrap()
}

pub(crate) fn follower() -> Follower {
    Follower::new(group(), relay())
}

pub(crate) fn device(i: u8) -> DeviceId {
    DeviceId([i; 32])
}

pub(crate) fn entry(bytes: &[u8], next_key: Option<u8>) -> LogEntry {
    LogEntry { next_key: next_key.map(|seed| key(seed).public_bytes()), bytes: bytes.to_vec() }
}

/// An append of an entry alone.
pub(crate) fn append(after: &Follower, entry: LogEntry, signer: &OriginKey) -> Request {
    let expected_head = *after.head();
    signed(Append { group: *after.group(), expected_head, at_end: false, entry, blobs: vec![], mail: vec![] }, signer)
}

pub(crate) fn signed(append: Append, signer: &OriginKey) -> Request {
    let proof = Proof::new(signer, |key| append.statement(&relay(), key));
    Request::Append(Box::new(append), proof)
}

pub(crate) fn exchange(to: &mut dyn Relay, follower: &mut Follower, call: &Call) -> Result<Answer, Misbehaviour> {
    follower.handle(call, &to.send(call.request()))
}

/// What an answer brought.
pub(crate) fn progress(answer: Result<Answer, Misbehaviour>) -> Progress {
    match answer.unwrap() {
        Answer::Progress(progress) => progress,
        other => panic!("no progress: {other:?}"),
    }
}

/// Proposes an entry and gives what comes of it.
pub(crate) fn propose(
    to: &mut dyn Relay,
    follower: &mut Follower,
    bytes: &[u8],
    next_key: Option<u8>,
    signer: &OriginKey,
) -> Result<Answer, Misbehaviour> {
    let call = follower.propose(entry(bytes, next_key), vec![], vec![], signer).unwrap();
    exchange(to, follower, &call)
}

/// Reads once and then until nothing is known to be missing.
pub(crate) fn catch_up(to: &mut dyn Relay, follower: &mut Follower) -> Result<Vec<Entry>, Misbehaviour> {
    let mut entries = Vec::new();
    loop {
        let call = follower.read();
        match exchange(to, follower, &call)? {
            Answer::Progress(progress) => entries.extend(progress.entries),
            other => panic!("no progress: {other:?}"),
        }
        if !follower.is_behind() {
            return Ok(entries);
        }
    }
}

/// A group of some entries with one byte each, by its joiner key and then by the key that the first entry names.
pub(crate) fn founded(entries: u8) -> (World, Follower) {
    let (mut world, mut follower) = (World::new(), follower());
    for i in 1..=entries {
        let signer = if i == 1 { joiner() } else { key(MEMBER) };
        progress(propose(&mut world, &mut follower, &[i], Some(MEMBER), &signer));
    }
    (world, follower)
}

pub(crate) const RELAY: u8 = 200;
/// The seed of a key that the log names.
pub(crate) const MEMBER: u8 = 2;

/// What a commit brings with it.
pub(crate) fn blob_and_mail() -> (Vec<Blob>, Vec<(DeviceId, Vec<u8>)>) {
    (vec![Blob::new(b"group info".to_vec())], vec![(device(1), b"welcome".to_vec())])
}
