//! Evidence against publishers on its way to the brokers (E4), one at a time.
//!
//! One suspension is enough for all that a publisher did before it: until it is known what became of an accusation, and for
//! what was published up to then, the same publisher is not accused again. Administrators may restore it; what it does
//! after that is new.

use std::collections::{BTreeMap, VecDeque};

use sealcast_broker::operation::{Accusation, Client};
use sealcast_broker::state::Code;
use sealcast_client::OperationOutcome;
use sealcast_delivery::Token;
use sealcast_wire::limits;

/// See the module.
#[derive(Default)]
pub(super) struct Accusing {
    waiting: VecDeque<Box<Accusation>>,
    under_way: Option<(Token, Client)>,
    /// Up to which publication, by sn, nothing new is to be said of a publisher.
    until: BTreeMap<Client, u64>,
}

impl Accusing {
    /// Takes in evidence, unless enough was said of its publisher or too much waits.
    pub(super) fn add(&mut self, accusation: Accusation) {
        let is_new = self.until.get(&accusation.client).is_none_or(|until| *until < accusation.sn);
        if is_new && self.waiting.len() < limits::ACCUSATIONS_WAITING_MAX {
            self.until.insert(accusation.client, u64::MAX);
            self.waiting.push_back(Box::new(accusation));
        }
    }

    /// The next one, if none is under way.
    pub(super) fn next(&self) -> Option<&Accusation> {
        self.waiting.front().filter(|_| self.under_way.is_none()).map(|it| &**it)
    }

    /// It is under way.
    pub(super) fn began(&mut self, token: Token) {
        self.under_way = self.waiting.pop_front().map(|it| (token, it.client));
    }

    /// Whether nothing waits or is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.under_way.is_none()
    }

    /// What became of an operation, when publications up to `newest` were seen; `false` if it was no accusation.
    pub(super) fn ended(&mut self, token: Token, outcome: &OperationOutcome, newest: u64) -> bool {
        let Some((_, client)) = self.under_way.take_if(|(under_way, _)| *under_way == token) else { return false };
        let place = match outcome {
            OperationOutcome::Executed { outcome, .. } if outcome.code == Code::Done => {
                outcome.detail.first_chunk::<8>()
            }
            // Others may have brought the same before.
            _ => None,
        };
        self.until.insert(client, place.map_or(newest, |sn| u64::from_be_bytes(*sn)));
        true
    }
}

#[cfg(test)]
mod tests {
    use sealcast_broker::state;
    use sealcast_crypto::tdh2::Sharing;
    use sealcast_wire::Envelope;

    use super::*;

    fn accusation(client: u8, sn: u64) -> Accusation {
        let envelope = Envelope {
            headers: vec![("t".into(), None)],
            associated: Vec::new(),
            access: None,
            execute: Vec::new(),
            policy: 0,
            epoch: 0,
        };
        let (ciphertext, shares) = (Vec::new(), Vec::new());
        let client = Client([client; 32]);
        Accusation { sn, client, number: sn, envelope, ciphertext, sharing: Sharing::First, shares }
    }

    fn executed(code: Code, sn: u64) -> OperationOutcome {
        let outcome = state::OperationResult { code, detail: sn.to_be_bytes().to_vec() };
        OperationOutcome::Executed { height: 9, number: 1, outcome }
    }

    #[test]
    fn rule_e4_a_publisher_that_was_restored_and_does_it_again_is_accused_again() {
        let mut accusing = Accusing::default();
        accusing.add(accusation(1, 10));
        accusing.add(accusation(1, 11));
        accusing.add(accusation(2, 12));
        assert_eq!(accusing.next().map(|it| it.sn), Some(10));
        accusing.began(Token(5));
        assert_eq!(accusing.next(), None, "one at a time");
        accusing.add(accusation(1, 13));
        assert!(!accusing.ended(Token(4), &executed(Code::Done, 20), 13), "another operation");
        assert!(accusing.ended(Token(5), &executed(Code::Done, 20), 13));
        assert_eq!(accusing.next().map(|it| it.sn), Some(12), "once for each publisher");
        accusing.began(Token(6));
        accusing.ended(Token(6), &executed(Code::Futile, 0), 25);
        // What was published before the suspension needs no other one.
        accusing.add(accusation(1, 14));
        accusing.add(accusation(2, 24));
        assert_eq!(accusing.next(), None);
        accusing.add(accusation(1, 30));
        accusing.add(accusation(2, 31));
        assert_eq!(accusing.next().map(|it| it.sn), Some(30));
    }
}
