//! A broker that lost its folder asks the others, as the first thing it does: over the queries that real brokers have for
//! this, and what liars among them say goes through their mouths. No time passes meanwhile.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;

use sealcast_broker::genesis::Genesis;
use sealcast_broker::operation::Client;
use sealcast_broker::protocol::{Answer, Query, Reply};
use sealcast_brokerd::sync::{Others, Source};

use crate::broker::Broker;
use crate::fixture::Fixture;
use crate::liar::Liar;

/// The other brokers, as one of them sees them.
pub struct Joiner<'a> {
    fixture: &'a Fixture,
    brokers: &'a [Broker],
    /// Its number.
    number: usize,
    /// Who is out of its reach.
    silent: usize,
    lying: RefCell<Lying<'a>>,
}

struct Lying<'a> {
    liars: &'a mut BTreeMap<usize, Liar>,
    lies: u64,
}

impl<'a> Joiner<'a> {
    /// Broker `number`; broker `silent` is out of its reach, if there is one of this number.
    pub fn new(
        fixture: &'a Fixture,
        brokers: &'a [Broker],
        liars: &'a mut BTreeMap<usize, Liar>,
        number: usize,
        silent: usize,
    ) -> Joiner<'a> {
        Joiner { fixture, brokers, number, silent, lying: RefCell::new(Lying { liars, lies: 0 }) }
    }

    /// Answers that were lies.
    pub fn lies(&self) -> u64 {
        self.lying.borrow().lies
    }

    fn ask_one(&self, broker: usize, query: &Query) -> Option<Answer> {
        if broker == self.number || broker == self.silent {
            return None;
        }
        let client = Client(*self.fixture.genesis.brokers.iter().nth(self.number)?);
        let answer = self.brokers[broker].answer(&client, query)?;
        let Lying { liars, lies } = &mut *self.lying.borrow_mut();
        let Some(liar) = liars.get_mut(&broker) else { return Some(answer) };
        let said = liar.says(client, Reply::Answer { id: 0, answer: answer.clone() });
        let to_us = said.into_iter().find(|(to, _)| *to == client);
        let answered = to_us.and_then(|(_, reply)| match reply {
            Reply::Answer { answer, .. } => Some(answer),
            _ => None,
        });
        *lies += u64::from(answered.as_ref() != Some(&answer));
        answered
    }
}

impl Others for Joiner<'_> {
    fn genesis(&self) -> &Genesis {
        &self.fixture.genesis
    }

    fn ask(&self, query: &Query) -> BTreeMap<u16, Answer> {
        let answer = |broker: usize| Some((u16::try_from(broker).ok()?, self.ask_one(broker, query)?));
        (0..self.brokers.len()).filter_map(answer).collect()
    }

    fn source(&self, broker: u16, _: u64) -> io::Result<Source<'_>> {
        let gone = || io::Error::from(io::ErrorKind::NotConnected);
        Ok(Box::new(move |query| self.ask_one(usize::from(broker), &query).ok_or_else(gone)))
    }
}
