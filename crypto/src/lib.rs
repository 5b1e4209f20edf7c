//! The mathematics: sealing, signatures, certificates, key agreement.

#![forbid(unsafe_code)]

pub mod identity;
