//! The operating system's randomness: seeds of machines that have their own generator, incarnations.

use crate::code::Code;
use crate::error::{Error, Result};

/// `N` random bytes.
///
/// # Errors
/// [`Code::System`] if the system has none to give, which nothing may go on without.
pub fn bytes<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|e| Error::new(Code::System, format!("no randomness: {e}")))?;
    Ok(bytes)
}
