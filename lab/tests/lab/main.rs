//! The lab and the project as a whole: one test program, so that it is linked once.

mod architecture;
mod center;
mod insiders;
mod interop;
mod kills;
mod large;
mod models;
mod pairs;
mod scenarios;
mod scripts;
mod sockets;
mod wire;
