//! Simulator, checkers, misbehaving members, experiments and plots; nobody imports this crate.

pub mod network;
pub mod sim;
