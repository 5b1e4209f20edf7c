//! Evidence: what proves to others that somebody misbehaved (E4).
//!
//! Whoever finds it hands it on as bytes; the key scheme or transport that made it judges it.

/// Who misbehaved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Culprit {
    /// The broker with this number signed what no honest one signs.
    Broker(u16),
    /// Who published this made a ciphertext that opens to nothing. That this client did, the order shows.
    Publisher {
        /// Its key.
        client: [u8; 32],
        /// Its number of the publication.
        number: u64,
    },
}

/// A proof, and whom it is said to convict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// Who.
    pub against: Culprit,
    /// The proof, in the form of whoever judges it.
    pub record: Vec<u8>,
    /// The position of the message that it is about.
    pub at: u64,
}
