//! How the brokers come to hold shares of one key ([`sealcast_crypto::tdh2`]), and how each keeps its own.
//!
//! | file | what |
//! |---|---|
//! | `dealer` | somebody trusted deals the shares |
//! | `dkg`, `word` | the brokers make the key among themselves, by words in their order (E8) |
//! | `file` | shares and seeds on disk, under a file key that is overwritten when they are to be gone (E7) |
//!
//! Broker b (from 0) holds share b + 1. A broker starts so:
//!
//! 1. [`Folder::share`]: there is one, and all is done.
//! 2. Else [`Dkg::new`] with [`Folder::seed`], and the words and heights that are ordered already, in their order;
//!    then [`Dkg::begin`].
//! 3. From then on each word of a block, then [`Dkg::at`] its height, then [`Dkg::poll`] until `None`. What is
//!    to be said is submitted as this broker's operation, again from time to time while [`Dkg::unheard`] has it.
//! 4. On [`Event::Made`]: [`Folder::keep`], sign the key (`protocol::SignedKey::statement`), tell the executor. On
//!    [`Event::Failed`]: [`Dkg::begin`], after a while.

pub mod dealer;
pub mod dkg;
pub mod file;
#[cfg(test)]
mod testing;
mod word;

pub use dealer::deal;
pub use dkg::{Dkg, Event, Failure, Fault, Made, Round, Setup, SetupError};
pub use file::{FileError, Folder, Kept};
