//! The program over real sockets of loopback.

mod announcing;
mod broker;
mod crashes;
mod directory;
mod hostile;
mod member;
mod process;
mod starting;
