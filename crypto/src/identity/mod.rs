//! Who somebody is, and what they may do: certificates with rights, as X.509 has them.

pub mod attributes;
pub mod pattern;
pub mod rights;
mod uri;

pub use attributes::{Attribute, AttributeError};
pub use pattern::{Pattern, PatternError, check_topic};
pub use rights::{Act, Right, RightError, Rights, check_group};
