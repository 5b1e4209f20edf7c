//! A member: a follower of a log, over HTTP.

use std::net::SocketAddr;

use sealcast_crypto::secret::Secret;
use sealcast_crypto::signature::OriginKey;
use sealcast_relay::follower::{Answer, Call, Entry, Follower, Outcome};
use sealcast_relay::ids::{DeviceId, GroupId};
use sealcast_relay::key::RelayKey;
use sealcast_relay::log::LogEntry;
use sealcast_relay::request::Blob;

use crate::process::{Process, post};

pub(crate) struct Member {
    pub(crate) follower: Follower,
    pub(crate) at: SocketAddr,
    joiner: OriginKey,
}

pub(crate) fn key(seed: u8) -> OriginKey {
    OriginKey::from_seed(&Secret::from_bytes([seed; 32]))
}

/// The key that entries name: it may append faster than the joiner key.
pub(crate) fn named() -> OriginKey {
    key(2)
}

impl Member {
    /// A member of the group of a joiner key with this seed.
    pub(crate) fn new(of: &Process, seed: u8) -> Member {
        Member::at(of.at(), of.relay(), seed)
    }

    pub(crate) fn at(at: SocketAddr, relay: RelayKey, seed: u8) -> Member {
        let joiner = key(seed);
        let follower = Follower::new(GroupId::of(&joiner.public_bytes()), relay);
        Member { follower, at, joiner }
    }

    pub(crate) fn ask(&mut self, call: &Call) -> Answer {
        let (status, response) = post(self.at, call.request()).expect("an answer");
        assert_eq!(status, 200);
        self.follower.handle(call, &response).expect("an honest directory")
    }

    pub(crate) fn propose(&mut self, bytes: &[u8], blobs: Vec<Blob>, mail: Vec<(DeviceId, Vec<u8>)>) -> Call {
        let entry = LogEntry { next_key: Some(named().public_bytes()), bytes: bytes.to_vec() };
        let signer = if self.follower.position() == 0 { &self.joiner } else { &named() };
        self.follower.propose(entry, blobs, mail, signer).expect("it fits")
    }

    /// Appends, and says what became of it.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> Option<Outcome> {
        let call = self.propose(bytes, vec![], vec![]);
        match self.ask(&call) {
            Answer::Progress(progress) => progress.outcome,
            other => panic!("no progress: {other:?}"),
        }
    }

    /// All new entries.
    pub(crate) fn read(&mut self) -> Vec<Entry> {
        let mut entries = Vec::new();
        loop {
            let call = self.follower.read();
            match self.ask(&call) {
                Answer::Progress(progress) => entries.extend(progress.entries),
                other => panic!("no progress: {other:?}"),
            }
            if !self.follower.is_behind() {
                return entries;
            }
        }
    }
}
