//! What lies on disk: where files are, how secrets are written and read, contexts, identities and principals.
//!
//! Every program of a user finds the same files through this module, so that `identity("robot7")`
//! in a program and `--id robot7` on the command line are the same thing.

mod context;
mod files;
mod identity;
mod passphrase;
mod paths;
mod principal;
#[cfg(feature = "brokers")]
mod voucher;
#[cfg(not(feature = "brokers"))]
#[path = "voucher_text.rs"]
mod voucher;

pub use context::{Context, Contexts};
pub use files::{
    FileError, Lock, Overwrite, private_folder, program_folder, read_public, read_secret, write_public, write_secret,
};
pub use identity::{KeptIdentity, Membership};
pub use paths::{Home, NameError, name_checked};
pub use principal::{KeptPrincipal, PrincipalError, PrincipalFile};
pub use voucher::Voucher;
