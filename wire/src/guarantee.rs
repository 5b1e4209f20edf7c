//! What a sender may ask of delivery, and what delivery says it gives.

/// How strongly a message is delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Guarantee {
    /// At most once, any order, may be lost.
    BestEffort,
    /// Each sender's messages in the order sent, without gaps while it lives.
    Fifo,
    /// One order at all members; acknowledged once a majority of the view holds it (B2).
    Ordered,
    /// As `Ordered`, acknowledged once all of the view hold it.
    Safe,
}

/// Whether two halves of a group can both go on ordering (B1, D7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Agreement {
    /// No order is promised.
    None,
    /// One order, which a lying carrier can split; a split is detected (D2).
    Forkable,
    /// Only the primary component orders; crash faults.
    Primary,
    /// One order in spite of f lying orderers of 3f+1.
    Byzantine,
}

/// How a key scheme's message is protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// Unsealed by the group; the message protects and proves itself (a joiner has no group key).
    Open,
    /// Sealed under the group's key.
    Control,
}
