//! How the brokers come to hold shares of one key ([`sealcast_crypto::tdh2`]), and how each keeps its own.
//!
//! | file | what |
//! |---|---|
//! | `dealer` | somebody trusted deals the shares |
//! | `ceremony`, `word` | the brokers make the key among themselves, by words in their order (E8) |
//! | `file` | shares and seeds on disk, under a file key that is overwritten when they are to be gone (E7) |
//!
//! Broker b (from 0) holds share b + 1. A broker starts so:
//!
//! 1. [`Folder::share`]: there is one, and all is done.
//! 2. Else [`Ceremony::new`] with [`Folder::seed`], and the words and heights that are ordered already, in their order;
//!    then [`Ceremony::begin`].
//! 3. From then on each word of a block, then [`Ceremony::at`] its height, then [`Ceremony::poll`] until `None`. What is
//!    to be said is submitted as this broker's operation, again from time to time while [`Ceremony::unheard`] has it.
//! 4. On [`Event::Made`]: [`Folder::keep`], sign the key (`protocol::SignedKey::statement`), tell the executor. On
//!    [`Event::Failed`]: [`Ceremony::begin`], after a while.

pub mod ceremony;
pub mod dealer;
pub mod file;
#[cfg(test)]
mod testing;
mod word;

pub use ceremony::{Ceremony, Event, Failure, Fault, Made, Round, Setup, SetupError};
pub use dealer::deal;
pub use file::{FileError, Folder, Kept};
