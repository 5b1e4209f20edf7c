//! The key schemes that a session can run, as one type: the table of schemes, in code.

use std::sync::Arc;

use sealcast_crypto::identity::Identity;
use sealcast_keys::plain::Plain;
use sealcast_keys::{
    Command, CommandError, Delivered, FetchId, Fetched, HandleError, Keys, Outcome, Output, Seal, SealError, Sealed,
    Token,
};
use sealcast_wire::{Agreement, Guarantee, Lane, Monotonic, Now, Slot, Source};

use crate::code::Code;
use crate::error::{Error,Result};
use crate::io::store::Store;
use crate::url::Url;

/// A key scheme's machine.
pub(super) enum Scheme {
    Plain(Plain),
}

impl Scheme {
    /// A member of a contributory group.
    pub(super) fn contributory(
        _url: &Url,
        _group: &str,
        _identity: Arc<Identity>,
        _statements: Vec<Vec<u8>>,
        _store: Option<&Store>,
        _now: Now,
    ) -> Result<Scheme> {
        Err(Error::new(Code::BadUrl, "not yet"))
    }
}

macro_rules! each {
    ($self:ident, $machine:ident => $call:expr) => {
        match $self {
            Scheme::Plain($machine) => $call,
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
