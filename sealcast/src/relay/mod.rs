//! What is particular to relays: what a group is called there, evidence against them, and what `relay check` looks at.

mod check;
pub(crate) mod evidence;
mod names;

pub use self::check::{Checked, DirectoryStatus, check};
pub use self::evidence::{KeptEvidence, keep, kept, read};
pub(crate) use self::names::Names;

#[doc(inline)]
pub use sealcast_relay::evidence::Evidence;
#[doc(inline)]
pub use sealcast_relay::key::RelayKey;

use crate::code::Code;
use crate::error::{Error, Result};
use crate::url::Url;

/// The key of the URL by which a directory's receipts are checked; `None` where there is no directory.
///
/// # Errors
/// [`Code::BadUrl`].
pub fn pinned(url: &Url) -> Result<Option<RelayKey>> {
    let Some(text) = &url.options.relay else { return Ok(None) };
    text.parse().map(Some).map_err(|e| Error::new(Code::BadUrl, format!("{url}: relay={text}: {e}")))
}

/// That a directory refuses to keep something.
pub(crate) fn refused(why: &str) -> Error {
    let hint = "try it again in a minute, or ask who runs the relay";
    Error::new(Code::TimedOut, format!("the relay's directory refuses what this member asks: {why}")).with_hint(hint)
}

/// That a directory does what no honest one does.
pub(crate) fn misbehaved(how: String) -> Error {
    let hint = "directory= and relay= are to be what the relay's program prints; if they are, do not trust this relay";
    Error::new(Code::Authority, how).with_hint(hint)
}
