//! The key schemes that a session can run, as one type: the table of schemes, in code.

use std::sync::Arc;

use sealcast_crypto::aead::Suite;
use sealcast_crypto::identity::Identity;
use sealcast_keys::contributory::{Config, Contributory, Status};
use sealcast_keys::plain::Plain;
use sealcast_keys::{
    Command, CommandError, Delivered, FetchId, Fetched, HandleError, Keys, Outcome, Output, Seal, SealError, Sealed,
    Token,
};
use sealcast_wire::{Agreement, Guarantee, Lane, Monotonic, Now, Slot, Source};

use crate::error::Result;
use crate::io::store::Store;
use crate::io::{clock, rng};
use crate::url::{Cipher, Url};

/// A key scheme's machine.
pub(super) enum Scheme {
    Plain(Plain),
    Contributory(Box<Contributory>),
}

impl Scheme {
    /// A member of a contributory group, which takes up where the records of an earlier run end.
    pub(super) fn contributory(
        url: &Url,
        group: &str,
        identity: Arc<Identity>,
        statements: Vec<Vec<u8>>,
        store: Option<&Store>,
        now: Now,
    ) -> Result<Scheme> {
        let mut config = Config::new(group, identity);
        config.suite = match url.options.cipher {
            Cipher::Aes256Gcm => Suite::Aes256Gcm,
            Cipher::ChaCha20Poly1305 => Suite::ChaCha20Poly1305,
        };
        config.rekey_after = url.options.rekey.unwrap_or(config.rekey_after);
        config.floor = clock::FLOOR;
        config.statements = statements;
        let records = store.map(Store::records).unwrap_or_default();
        let machine = Contributory::restore(config, rng::bytes()?, now, &records);
        Ok(Scheme::Contributory(Box::new(machine)))
    }

    /// What a contributory scheme knows of its group.
    pub(super) fn status(&self, now: Now) -> Option<Status> {
        match self {
            Scheme::Plain(_) => None,
            Scheme::Contributory(machine) => Some(machine.status(now)),
        }
    }
}

macro_rules! each {
    ($self:ident, $machine:ident => $call:expr) => {
        match $self {
            Scheme::Plain($machine) => $call,
            Scheme::Contributory($machine) => $call,
        }
    };
}

impl Keys for Scheme {
    fn needs(&self, lane: Lane) -> (Guarantee, Agreement) {
        each!(self, machine => machine.needs(lane))
    }

    fn handle(&mut self, now: Now, source: &Source, message: &[u8]) -> std::result::Result<(), HandleError> {
        each!(self, machine => machine.handle(now, source, message))
    }

    fn command(&mut self, now: Now, command: Command) -> std::result::Result<(), CommandError> {
        each!(self, machine => machine.command(now, command))
    }

    fn seal(&mut self, message: &Seal<'_>) -> std::result::Result<Sealed, SealError> {
        each!(self, machine => machine.seal(message))
    }

    fn open(&mut self, now: Now, message: Delivered<'_>) {
        each!(self, machine => machine.open(now, message));
    }

    fn outcome(&mut self, now: Now, token: Token, outcome: Outcome) {
        each!(self, machine => machine.outcome(now, token, outcome));
    }

    fn fetched(&mut self, now: Now, id: FetchId, result: Fetched) {
        each!(self, machine => machine.fetched(now, id, result));
    }

    fn suspect(&mut self, now: Now, slot: Slot) {
        each!(self, machine => machine.suspect(now, slot));
    }

    fn flushed(&mut self, now: Now, cut: [u8; 32]) {
        each!(self, machine => machine.flushed(now, cut));
    }

    fn timeout(&self) -> Option<Monotonic> {
        each!(self, machine => machine.timeout())
    }

    fn handle_timeout(&mut self, now: Now) {
        each!(self, machine => machine.handle_timeout(now));
    }

    fn poll(&mut self) -> Option<Output> {
        each!(self, machine => machine.poll())
    }
}
