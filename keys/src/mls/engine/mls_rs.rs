//! `Engine` by mls-rs 0.57, over this project's own cryptography.

mod identity;
mod provider;
mod store;
