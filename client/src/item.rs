//! What the reader of a subscription gets.

use sealcast_broker::operation::Body;
use sealcast_broker::state::Entry;

/// What a subscription gets, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// A publication.
    Publication {
        /// Its place in the subscription.
        place: u64,
        /// Where it is in the order, and who published it.
        entry: Box<Entry>,
        /// What brokers may read.
        associated: Vec<u8>,
        /// What was published.
        content: Content,
    },
    /// Publications that this client may not read: ⊥.
    Empty {
        /// The first place.
        place: u64,
        /// How many.
        count: u64,
    },
    /// Publications that the brokers no longer keep: the oldest that they keep follows.
    Lost {
        /// The first place.
        place: u64,
        /// How many.
        count: u64,
    },
}

/// What a reader has taken of the items that were handed over to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Took {
    /// How many.
    pub items: usize,
    /// Their bytes.
    pub bytes: usize,
    /// The end of the last one: the place behind it, and the sn of its publication.
    pub end: (u64, Option<u64>),
}

impl Took {
    /// Another item.
    pub fn add(&mut self, item: &Item) {
        self.items += 1;
        self.bytes += item.bytes();
        self.end = item.end();
    }
}

/// What readers get of a publication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Its bodies: one, or as many as were sealed together.
    Bodies(Vec<Vec<u8>>),
    /// Bytes that are kept elsewhere.
    Elsewhere {
        /// How many.
        size: u64,
        /// Their SHA-256.
        hash: [u8; 32],
    },
}

impl Item {
    /// Bytes of what was published.
    pub fn bytes(&self) -> usize {
        match self {
            Item::Publication { associated, content, .. } => associated.len() + content.bytes(),
            Item::Empty { .. } | Item::Lost { .. } => 0,
        }
    }

    /// The place behind it, and the sn of its publication.
    pub fn end(&self) -> (u64, Option<u64>) {
        match self {
            Item::Publication { place, entry, .. } => (place + 1, Some(entry.sn)),
            Item::Empty { place, count } | Item::Lost { place, count } => (place + count, None),
        }
    }
}

impl Content {
    /// Its bodies; `None` if they are kept elsewhere.
    pub fn bodies(&self) -> Option<&[Vec<u8>]> {
        match self {
            Content::Bodies(bodies) => Some(bodies),
            Content::Elsewhere { .. } => None,
        }
    }

    /// The content of a body that is not sealed; `None` of one that is.
    pub fn of(body: Body) -> Option<Content> {
        match body {
            Body::Plain(bytes) => Some(Content::Bodies(vec![bytes])),
            Body::Digest { size, hash } => Some(Content::Elsewhere { size, hash }),
            Body::Sealed(_) => None,
        }
    }

    fn bytes(&self) -> usize {
        self.bodies().iter().flat_map(|it| it.iter()).map(Vec::len).sum()
    }
}
