//! Who misbehaved at the brokers, as one client found out: what its user is told, and what is brought before the brokers (E4).

use sealcast_broker::operation::{Accusation, Operation};
use sealcast_delivery::quorum::{Notice, Outcome};
use sealcast_delivery::{SendError, Token};
use sealcast_keys as keys;
use sealcast_keys::threshold::evidence::Culprit;
use sealcast_wire::limits;

use super::accusing::Accusing;

/// Proof, or what is as good to an operator, that somebody at the brokers misbehaved (E4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// Who and what, for people.
    pub what: String,
    /// The proof: of `keys::threshold::evidence` or `sealcast_broker::contradiction`; empty where there is only our word.
    pub record: Vec<u8>,
    /// Against a publisher: where the publication stands, which [`super::Brokers::accuse`] names.
    pub sn: Option<u64>,
}

/// See the module.
pub(crate) struct Findings {
    evidence: Vec<Evidence>,
    /// Whether evidence against publishers is brought before the brokers.
    accuse: bool,
    accusing: Accusing,
}

impl Findings {
    pub(crate) fn new(accuse: bool) -> Findings {
        Findings { evidence: Vec::new(), accuse, accusing: Accusing::default() }
    }

    /// What the keys found about shares and ciphertexts.
    pub(crate) fn by_keys(&mut self, notice: &keys::Notice) {
        let keys::Notice::Evidence { against, record, at } = notice else { return };
        let what = match against {
            Culprit::Broker(broker) => format!("broker {broker} signed the proof of a false share"),
            Culprit::Publisher { client, number } => {
                format!("client {} sealed publication {number} so that it opens to nothing", short(client))
            }
        };
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
                self.note(format!("broker {broker} said what no honest one says ({how:?})"), Vec::new(), None);
            }
            Notice::Evidence(it) => {
                let what =
                    format!("broker {} signed another outcome of block {} than others", it.word.broker, it.height);
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
    pub(crate) fn ended(&mut self, token: Token, outcome: &Outcome, newest: u64) -> bool {
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

    fn note(&mut self, what: String, record: Vec<u8>, sn: Option<u64>) {
        // What only repeats itself is kept once.
        let evidence = Evidence { what, record, sn };
        if self.evidence.len() < limits::EVIDENCE_MAX && !self.evidence.contains(&evidence) {
            self.evidence.push(evidence);
        }
    }
}

fn short(key: &[u8]) -> String {
    key.iter().take(4).map(|byte| format!("{byte:02x}")).collect()
}
