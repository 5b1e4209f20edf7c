//! Receipts: f + 1 signed testimonies of one fact; and whoever signs two things is shown with both (E1, E4).

use std::collections::BTreeMap;

use sealcast_broker::contradiction::Contradiction;
use sealcast_broker::operation::Client;
use sealcast_broker::protocol::Query;
use sealcast_broker::receipt::{Fact, Receipt, Testimony};
use sealcast_broker::state::Entry;
use sealcast_crypto::ed25519::Key;
use sealcast_wire::{Now, limits};

use super::Quorum;
use super::event::{Misbehaviour, Notice, Output};
use super::queries::Purpose;
use sealcast_delivery::{SendError, Token};

/// Receipts being collected, and who signed what.
#[derive(Debug, Default)]
pub(super) struct Receipts {
    open: BTreeMap<Token, Wanted>,
    /// The first testimony of each broker for a block.
    signed: BTreeMap<(u64, u16), Box<Testimony>>,
}

#[derive(Debug)]
struct Wanted {
    client: Client,
    height: u64,
    number: u64,
    /// So many brokers sign.
    needed: usize,
    /// Different ones, if somebody lies.
    receipts: Vec<Receipt>,
}

impl Quorum {
    /// Collects the receipt of an operation of this client, from its [`super::OperationOutcome::Executed`].
    ///
    /// # Errors
    /// `Full`.
    pub fn receipt(&mut self, now: Now, height: u64, number: u64) -> Result<Token, SendError> {
        let query = Query::Receipt { height, number };
        self.testimonies(now, query, self.client, height, number, self.faulty + 1)
    }

    /// The same of 2f + 1 brokers: when it comes, so many have executed the operation, and of any t = 2f + 1 of them whose
    /// shares a reader may gather one at least is honest and knows of it (E2).
    ///
    /// # Errors
    /// `Full`.
    pub fn bound(&mut self, now: Now, height: u64, number: u64) -> Result<Token, SendError> {
        let query = Query::Receipt { height, number };
        self.testimonies(now, query, self.client, height, number, 2 * self.faulty + 1)
    }

    /// Collects the receipt of a publication that this client may read, whoever published it, to show it to others.
    ///
    /// # Errors
    /// `Full`.
    pub fn receipt_of(&mut self, now: Now, entry: &Entry) -> Result<Token, SendError> {
        let query = Query::Witness { sn: entry.sn };
        self.testimonies(now, query, entry.client, entry.height, entry.number, self.faulty + 1)
    }

    fn testimonies(
        &mut self,
        now: Now,
        query: Query,
        client: Client,
        height: u64,
        number: u64,
        needed: usize,
    ) -> Result<Token, SendError> {
        if !self.queries.has_capacity() {
            return Err(SendError::Full);
        }
        self.tokens += 1;
        let token = Token(self.tokens);
        self.receipts.open.insert(token, Wanted { client, height, number, needed, receipts: Vec::new() });
        self.ask(now, Purpose::Receipt(token), query, self.channels.len());
        Ok(token)
    }

    /// A broker testifies. `true` if the receipt is complete.
    pub(super) fn testified(&mut self, token: Token, broker: u16, testimony: Testimony) -> bool {
        let Some(wanted) = self.receipts.open.get_mut(&token) else { return true };
        let key = self.config.genesis.brokers.iter().nth(usize::from(broker)).and_then(|key| Key::new(key).ok());
        let signed = testimony
            .statement(&self.cluster)
            .filter(|statement| key.is_some_and(|key| key.verify(statement, &testimony.signature)));
        let is_wanted = match &testimony.fact {
            Fact::Published(entry) => entry.client == wanted.client && entry.number == wanted.number,
            Fact::Executed(results) => {
                let numbers = results.first..results.first + results.outcomes.len() as u64;
                results.client == wanted.client && numbers.contains(&wanted.number)
            }
        };
        if signed.is_none() || testimony.broker != broker || testimony.height != wanted.height || !is_wanted {
            self.misbehaved(broker, Misbehaviour::Testimony);
            return false;
        }
        match wanted.receipts.iter_mut().find_map(|it| it.add(&testimony).then_some(())) {
            Some(()) => {}
            None => wanted.receipts.push(Receipt::new(self.cluster, &testimony)),
        }
        let signed = |it: &&Receipt| it.signatures.len() >= wanted.needed && it.verify(&self.config.genesis).is_ok();
        let complete = wanted.receipts.iter().find(signed).cloned();
        self.compare(testimony);
        let Some(receipt) = complete else { return false };
        self.receipts.open.remove(&token);
        self.outputs.push_back(Output::Receipt(token, Some(Box::new(receipt))));
        true
    }

    /// Holds a testimony against what was signed for the same block before: honest brokers sign one statement of it.
    fn compare(&mut self, testimony: Testimony) {
        let statement = testimony.statement(&self.cluster);
        let (height, broker) = (testimony.height, testimony.broker);
        let own = self.receipts.signed.get(&(height, broker)).filter(|it| it.statement(&self.cluster) != statement);
        // f + 1 equal ones hold an honest broker's: who signed otherwise lied.
        let of_block: Vec<&Testimony> =
            self.receipts.signed.range((height, 0)..=(height, u16::MAX)).map(|(_, it)| &**it).collect();
        let mut evidence = Vec::new();
        if let Some(own) = own {
            evidence.push(Contradiction::of(&testimony, &[&**own]));
        }
        let mut by_statement: BTreeMap<_, Vec<&Testimony>> = BTreeMap::new();
        for it in of_block.iter().copied().filter(|it| it.broker != broker).chain([&testimony]) {
            by_statement.entry(it.statement(&self.cluster)).or_default().push(it);
        }
        if let Some(believed) = by_statement.values().find(|them| them.len() > self.faulty) {
            let others = by_statement.values().filter(|them| them.len() <= self.faulty).flatten();
            evidence.extend(others.map(|liar| Contradiction::of(liar, &believed[..=self.faulty])));
        }
        // What was taken holds together, so that nothing is left out here.
        for it in evidence.into_iter().flatten() {
            self.misbehaved(it.word.broker, Misbehaviour::Testimony);
            self.outputs.push_back(Output::Notice(Notice::Evidence(Box::new(it))));
        }
        if self.receipts.signed.len() >= limits::EVIDENCE_MAX {
            self.receipts.signed.pop_first();
        }
        self.receipts.signed.entry((height, broker)).or_insert_with(|| Box::new(testimony));
    }

    pub(super) fn fail_receipt(&mut self, token: Token) {
        if self.receipts.open.remove(&token).is_some() {
            self.outputs.push_back(Output::Receipt(token, None));
        }
    }
}
