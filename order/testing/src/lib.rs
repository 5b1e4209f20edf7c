//! What tests and simulations of brokers need of the engine, and no broker does: the engine in upstream's simulation
//! ([`simulated`]), folders that age made or an older version wrote, votes that contradict each other, and a ledger.

mod aged;
mod evidence;
mod ledger;
pub mod simulated;

pub use aged::{Aged, write_older};
pub use evidence::two_votes;
pub use ledger::{BAD, Ledger, assert_agree};
