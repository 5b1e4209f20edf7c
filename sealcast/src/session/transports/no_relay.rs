//! Where relays would be, in a program without them (feature `relay`). A URL of one does not parse.

use std::sync::Arc;

use super::{Meeting, Transport};
use crate::error::{Error, Result};
use crate::url::{RelayAddress, Url};

pub(super) fn open(_at: &RelayAddress, _url: &Url, _meeting: Meeting, _waker: &Arc<mio::Waker>) -> Result<Transport> {
    Err(Error::closed())
}
