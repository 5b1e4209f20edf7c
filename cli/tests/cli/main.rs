//! The program as it is typed: one test program, so that it is linked once.

mod admission;
mod awaited;
mod brokers;
mod brokers_admin;
mod brokers_operator;
mod brokers_told;
mod common;
mod kdc;
mod plain;
mod quickstarts;
mod relay;
mod sealed;
mod sessions;
mod snapshots;
