//! Processes that measurements drive by lines: our own roles, the original LCM from C, and other systems that multicast; and
//! the servers that brokers are compared with.
//!
//! Both speak one small protocol (`lab/peers/lcm_peer.c` states it), so that the same code paces,
//! drives and judges all sides.

pub(crate) mod centre;
pub mod contest;
pub mod identities;
mod insider;
pub mod multicast;
pub mod one_core;
pub mod openmls;
pub mod pace;
pub mod player;
pub(crate) mod relay;
pub mod roles;
pub mod servers;
pub mod side;

pub use contest::{Flow, Pair};
pub use one_core::OneCore;
pub use pace::{Cpu, Pace};
pub use player::Player;
pub use side::{Field, Path, Side};
