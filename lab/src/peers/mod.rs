//! Processes that measurements drive by lines: our own roles, and the original LCM from C.
//!
//! Both speak one small protocol (`lab/peers/lcm_peer.c` states it), so that the same code paces,
//! drives and judges all sides.

pub mod pace;
pub mod player;

pub use pace::{Cpu, Pace};
pub use player::Player;
