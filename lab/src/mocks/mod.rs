//! Two schemes that prove the interfaces before the real ones come: they have the shape of MLS over a
//! relay, and of threshold decryption at brokers, and nothing of their strength.

pub mod company;
pub mod mls_shaped;
pub mod protect;
