//! Two schemes that prove the interfaces before the real ones come: they have the shape of MLS over a
//! relay, and of threshold decryption at brokers, and nothing of their strength.

pub mod broker;
pub mod fixture;
pub mod mls_shaped;
pub mod preshared;
pub mod protect;
pub mod relay;
pub mod repeating;
pub mod sharing;
pub mod threshold_shaped;
