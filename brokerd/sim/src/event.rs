//! What is seen of a run; checkers know nothing else.

use std::sync::Arc;

use sealcast_broker::operation::Client;
use sealcast_broker::receipt::Receipt;
use sealcast_broker::state::Code;

use crate::fixture::{Desk, Interest, Plan};

/// One thing that happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// A correct client takes part; clients are numbered as they come.
    Enters {
        /// Who.
        client: usize,
        /// Its key.
        id: Client,
        /// What it may read.
        desk: Desk,
        /// What it subscribes to.
        interest: Interest,
    },
    /// Somebody has a mind to publish this; plans are numbered as they come.
    Planned {
        /// What.
        plan: Arc<Plan>,
        /// Whether a correct client does.
        correct: bool,
    },
    /// A client hands in a plan under this number.
    Sends {
        /// Which plan.
        plan: usize,
        /// Of the client's numbers.
        number: u64,
    },
    /// A broker executed a block.
    Executed {
        /// Which broker.
        broker: usize,
        /// Which block.
        height: u64,
        /// That block's hash.
        hash: [u8; 32],
        /// Of the state, and of the outbox.
        roots: ([u8; 32], [u8; 32]),
    },
    /// A broker that had lost everything begins with a snapshot.
    Joined {
        /// Which broker.
        broker: usize,
        /// The block after which that is the state.
        height: u64,
        /// That state's root.
        root: [u8; 32],
    },
    /// A correct client was told what became of its plan.
    Outcome {
        /// Which plan.
        plan: usize,
        /// In which block.
        height: u64,
        /// Under which number.
        number: u64,
        /// What.
        code: Code,
        /// Its place.
        sn: u64,
    },
    /// A correct client has its subscription.
    Subscribed {
        /// Who.
        client: usize,
    },
    /// A correct client's application got a publication.
    Delivered {
        /// Who.
        client: usize,
        /// Which of its places.
        place: u64,
        /// The publication's place in the order.
        sn: u64,
        /// Whose it is.
        publisher: Client,
        /// Under which number.
        number: u64,
        /// The topic, and the number there.
        topic: (String, u64),
        /// What.
        body: Vec<u8>,
    },
    /// A correct client's application was told of places that it may not read.
    Empty {
        /// Who.
        client: usize,
        /// The first.
        place: u64,
        /// How many.
        count: u64,
    },
    /// These bytes came to a broker, or lie there.
    Stored {
        /// Which.
        broker: usize,
        /// What.
        bytes: Arc<[u8]>,
    },
    /// A broker sent its share of a publication to a client.
    Share {
        /// Which broker.
        broker: usize,
        /// To whom.
        client: usize,
        /// Whose publication, as the ciphertext says.
        publisher: Client,
        /// Under which number.
        number: u64,
        /// Whether the broker has executed it, at the place that it names.
        executed: bool,
        /// The last block that the broker had executed.
        height: u64,
    },
    /// A client was ended in this block: none of its outcomes is due, and it may read nothing from there on.
    Revoked {
        /// Who.
        client: usize,
        /// The block.
        height: u64,
    },
    /// A correct client says that a broker misbehaved.
    Accused {
        /// Who.
        client: usize,
        /// Whom.
        broker: usize,
        /// Of what.
        what: String,
    },
    /// An honest broker's engine found that a broker contradicted itself in its votes.
    Contradicted {
        /// Who found it.
        by: usize,
        /// Who did it.
        broker: usize,
        /// In which view.
        view: u64,
    },
    /// A correct client holds a receipt of its plan.
    Receipt {
        /// Which plan.
        plan: usize,
        /// The receipt.
        receipt: Box<Receipt>,
    },
    /// At the end, how far back an honest broker keeps publications.
    LowWaterMark {
        /// Which.
        broker: usize,
        /// The first that it keeps.
        sn: u64,
    },
    /// At the end, an honest broker's row of a publication that somebody was told of.
    Kept {
        /// Which broker.
        broker: usize,
        /// The place.
        sn: u64,
        /// Whose is there, under which number.
        who: Option<(Client, u64)>,
    },
    /// Faults are over, and nothing more is to be waited for.
    End {
        /// Whether what was waited for came.
        complete: bool,
    },
}

impl Event {
    /// For a trace: the same bytes in the same run.
    pub fn digest(&self) -> String {
        match self {
            Event::Stored { broker, bytes } => format!("Held {broker} {}", bytes.len()),
            other => format!("{other:?}"),
        }
    }
}
