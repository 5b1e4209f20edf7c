//! Who misbehaved at the brokers, as one client found out: what its user is told, and what is brought before the brokers (E4).

use std::collections::BTreeSet;

use sealcast_broker::operation::{Accusation, Operation};
use sealcast_client::{Misbehaviour, Notice, OperationOutcome};
use sealcast_delivery::{SendError, Token};
use sealcast_keys as keys;
use sealcast_wire::{self as wire, Culprit, limits};

use super::accusing::Accusing;
use crate::code::Code;
use crate::error::Error;
use crate::remedy::Remedy;

/// Proof, or what is as good to an operator, that somebody at the brokers misbehaved (E4).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Evidence {
    /// Who and what, for people.
    pub what: String,
    /// The proof: of `keys::threshold::evidence` or `sealcast_broker::contradiction`; empty where there is only our word.
    pub record: Vec<u8>,
    /// Against a publisher: where the publication stands, which [`super::Brokers::accuse`] names.
    pub sn: Option<u64>,
}

/// See the module.
pub(crate) struct EvidenceStore {
    evidence: Vec<Evidence>,
    /// Whether evidence against publishers is brought before the brokers.
    accuse: bool,
    accusing: Accusing,
    /// Brokers that have told this client something false.
    liars: BTreeSet<u16>,
}

impl EvidenceStore {
    pub(crate) fn new(accuse: bool) -> EvidenceStore {
        EvidenceStore { evidence: Vec::new(), accuse, accusing: Accusing::default(), liars: BTreeSet::new() }
    }

    /// What the keys found about shares and ciphertexts.
    pub(crate) fn by_keys(&mut self, notice: &keys::Notice) {
        let keys::Notice::Evidence(wire::Evidence { against, record, at }) = notice else { return };
        let what = match against {
            Culprit::Broker(broker) => format!("broker {broker} signed the proof of a false share"),
            Culprit::Publisher { client, number } => {
                format!("client {} sealed publication {number} so that it opens to nothing", short(client))
            }
        };
        if let Culprit::Broker(broker) = against {
            self.liars.insert(*broker);
        }
        let is_publisher = matches!(against, Culprit::Publisher { .. });
        if is_publisher
            && self.accuse
            && let Ok(accusation) = Accusation::of_record(*at, record)
        {
            self.accusing.add(accusation);
        }
        self.note(what, record.clone(), is_publisher.then_some(*at));
    }

    /// What the order's machine found about brokers.
    pub(crate) fn by_order(&mut self, notice: &Notice) {
        match notice {
            Notice::Misbehaved { broker, how } => {
                // What cannot be read tells nothing false; it may be of another version.
                if *how != Misbehaviour::Malformed {
                    self.liars.insert(*broker);
                }
                self.note(format!("broker {broker} {}", misbehaviour(*how)), Vec::new(), None);
            }
            Notice::Evidence(it) => {
                let what =
                    format!("broker {} signed another outcome of block {} than others", it.word.broker, it.height);
                self.liars.insert(it.word.broker);
                self.note(what, it.to_bytes(), None);
            }
            Notice::Unregistered | Notice::NotRegistered(..) | Notice::NotVouched | Notice::RolledBack { .. } => {}
        }
    }

    /// Brings the next accusation before the brokers, if none is under way; whether it was taken. If not, it is tried again.
    pub(crate) fn bring(&mut self, submit: impl FnOnce(Operation) -> Result<Token, SendError>) -> bool {
        let taken = self.accusing.next().map(|next| submit(Operation::Accuse(Box::new(next.clone()))));
        if let Some(Ok(token)) = taken {
            self.accusing.began(token);
        }
        matches!(taken, Some(Ok(_)))
    }

    /// What became of an operation, when publications up to `newest` were seen; `false` if it was no accusation.
    pub(crate) fn ended(&mut self, token: Token, outcome: &OperationOutcome, newest: u64) -> bool {
        self.accusing.ended(token, outcome, newest)
    }

    /// Whether all that is to be brought before the brokers has been.
    pub(crate) fn has_accused(&self) -> bool {
        self.accusing.is_idle()
    }

    /// What was found since the last call.
    pub(crate) fn take(&mut self) -> Vec<Evidence> {
        std::mem::take(&mut self.evidence)
    }

    /// That more brokers than f of so many have lied to this client: then no honest one need be among any f + 1.
    pub(crate) fn misled(&self, brokers: usize, faulty: usize) -> Option<Error> {
        misled(&self.liars, brokers, faulty)
    }

    fn note(&mut self, what: String, record: Vec<u8>, sn: Option<u64>) {
        // What only repeats itself is kept once.
        let evidence = Evidence { what, record, sn };
        if self.evidence.len() < limits::EVIDENCE_MAX && !self.evidence.contains(&evidence) {
            self.evidence.push(evidence);
        }
    }
}

/// That these are more liars than f of so many brokers may be.
pub fn misled(liars: &BTreeSet<u16>, brokers: usize, faulty: usize) -> Option<Error> {
    (liars.len() > faulty).then(|| {
        let who: Vec<String> = liars.iter().map(u16::to_string).collect();
        let what = format!(
            "brokers {} told this client what no honest broker says, and of {brokers} brokers at most {faulty} may lie: \
             nothing that these brokers say can be relied on",
            who.join(", ")
        );
        Error::new(Code::Equivocation, what).with_remedy(Remedy::ShowEvidence)
    })
}

/// What a broker did, for people.
fn misbehaviour(how: Misbehaviour) -> &'static str {
    match how {
        Misbehaviour::Malformed => "sent a message that cannot be read",
        Misbehaviour::Number => "gave another broker's number as its own",
        Misbehaviour::Differed => "answered otherwise than f + 1 other brokers",
        Misbehaviour::Contents => "sent a block's contents that do not fit its own digest",
        Misbehaviour::Body => "sent another body than the one that was asked for",
        Misbehaviour::Testimony => "signed a receipt that does not hold",
    }
}

fn short(key: &[u8]) -> String {
    key.iter().take(4).map(|byte| format!("{byte:02x}")).collect()
}
