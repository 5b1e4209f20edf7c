//! Any keys over any delivery: what users import.

#![forbid(unsafe_code)]

pub mod config;
