//! The program over real sockets of loopback.

mod announcing;
mod broker;
mod crashes;
mod directory;
mod hostile;
mod member;
mod mosquitto;
mod process;
mod starting;
