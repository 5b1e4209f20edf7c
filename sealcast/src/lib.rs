//! Any keys over any delivery: what users import.

#![forbid(unsafe_code)]

pub mod code;
pub mod config;
pub mod control;
pub mod error;
pub mod group;
pub mod url;
