//! Who somebody is, and what they may do.
//!
//! An [`Authority`] issues X.509 certificates; a member's [`Identity`] holds one with its keys; everybody
//! checks the others' against a [`TrustAnchor`]. Certificates carry [`Rights`] over topic [`Pattern`]s and
//! [`Attribute`]s. [`statement`]s are what an authority, or who has the right, says later and for ever:
//! evictions and the group's policy. An [`invite`] brings a newcomer all that it needs, in one file.
//!
//! Bytes in, bytes out: files are the shell's, time and randomness are arguments.

pub mod anchor;
pub mod attributes;
pub mod authority;
pub mod certificate;
pub mod crl;
pub mod evictions;
#[cfg(test)]
mod fixture;
pub mod holder;
pub mod invite;
pub mod keytext;
pub mod ledger;
pub mod pattern;
pub mod pem;
pub mod registration;
pub mod rights;
pub mod serial;
pub mod statement;
mod uri;
#[cfg(test)]
mod vectors;

pub use anchor::{TrustAnchor, Verified};
pub use attributes::{Attribute, AttributeError};
pub use authority::{Authority, AuthorityError, Request};
pub use certificate::{Certificate, CertificateError, is_name};
pub use crl::{Crl, CrlError};
pub use evictions::Evictions;
pub use holder::{Identity, IdentityError};
pub use invite::{Invite, InviteError};
pub use keytext::{AuthoritySecret, Fingerprint, JoinToken, MemberSecret, PublicKeys};
pub use ledger::Ledger;
pub use pattern::{Pattern, PatternError, Step, check_topic};
pub use registration::{Principal, Registration, RegistrationError};
pub use rights::{Act, Right, RightError, Rights, check_group};
pub use serial::Serial;
