//! The library through its public API: one test program, so that it is linked once.

#[path = "../common/mod.rs"]
mod common;
mod examples;
mod local;
mod ordered;
mod overlap;
mod pairs;
mod plain;
mod reliable;
mod replica;
mod runtimes;
mod sealed;
