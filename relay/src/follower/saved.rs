//! What a follower's process leaves for the next one.
//!
//! ```text
//! saved = u8 1 ‖ group ‖ u64 position ‖ head ‖ u16 n ‖ head before the first link, if there is one ‖ n·link
//!         ‖ (0 | 1 ‖ receipt) ‖ (0 | 1 ‖ newest receipt) ‖ (0 | 1 ‖ bytes32 append)
//! ```
//! Less than 5 KB without the append.

use std::collections::VecDeque;

use sealcast_wire::{Reader, Writer, limits};

use super::{Follower, Pending};
use crate::VERSION;
use crate::codec::{FormatError, bytes32, count, option, put_bytes32, put_count, put_option};
use crate::ids::{GroupId, Head};
use crate::key::RelayKey;
use crate::log::{LINK_BYTES_LEAST, Link, first_head};
use crate::receipt::Receipt;
use crate::request::Request;

/// Why saved bytes are no follower.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SavedError {
    /// They do not parse.
    #[error("the saved state of the relay's log cannot be read: {0}")]
    Format(#[from] FormatError),
    /// Its parts contradict each other.
    #[error("the saved state of the relay's log contradicts itself")]
    Inconsistent,
    /// Its receipts are by another directory than the pinned one.
    #[error("the saved state of the relay's log is of another relay")]
    OtherRelay,
}

impl Follower {
    /// Its bytes, to be persisted before what depends on them is sent or told (G6).
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::new();
        w.u8(VERSION).raw(&self.group.0).u64(self.position).raw(&self.head.0);
        put_count(&mut w, self.links.len());
        self.links.front().into_iter().for_each(|(before, _)| _ = w.raw(&before.0));
        self.links.iter().for_each(|(_, link)| link.encode(&mut w));
        put_option(&mut w, self.receipt.as_ref(), |w, it| it.encode(w));
        put_option(&mut w, self.newest.as_ref(), |w, it| it.encode(w));
        // Where one at the end stood is known no more then: it is proposed anew.
        let pending = self.pending.as_ref().filter(|it| it.head.is_some());
        put_option(&mut w, pending, |w, it| put_bytes32(w, &it.request));
        w.finish()
    }

    /// Reads what [`Follower::encode`] wrote, and verifies it.
    ///
    /// # Errors
    /// [`SavedError`].
    pub fn decode(relay: RelayKey, bytes: &[u8]) -> Result<Follower, SavedError> {
        let (mut follower, pending) = Follower::parse(relay, bytes)?;
        let (position, head) = (follower.position, follower.head);
        let reached = follower.receipt.map_or((0, first_head(&follower.group)), |it| (it.position, it.head));
        let is_chained = match follower.links.back() {
            Some((before, link)) => link.head(before, position) == head,
            None => true,
        };
        if reached != (position, head) || !is_chained || follower.newest.is_some_and(|it| it.position <= position) {
            return Err(SavedError::Inconsistent);
        }
        let receipts = [follower.receipt, follower.newest];
        if receipts.iter().flatten().any(|it| it.group != follower.group || !it.verify(&relay)) {
            return Err(SavedError::OtherRelay);
        }
        if let Some(request) = pending {
            // An append that is under way follows the position: as soon as that moves, it has won or lost.
            let Ok(Request::Append(append, _)) = Request::decode(&request) else {
                return Err(SavedError::Inconsistent);
            };
            if append.group != follower.group || append.expected_head != head || append.at_end {
                return Err(SavedError::Inconsistent);
            }
            let link = append.entry.link();
            let head = Some(link.head(&head, position + 1));
            follower.pending =
                Some(Pending { request, first: position + 1, until: head.map(|_| position + 1), head, link });
        }
        Ok(follower)
    }

    fn parse(relay: RelayKey, bytes: &[u8]) -> Result<(Follower, Option<Vec<u8>>), FormatError> {
        let mut r = Reader::new(bytes);
        if r.u8()? != VERSION {
            return Err(FormatError::Version);
        }
        let (group, position, head) = (GroupId(r.array()?), r.u64()?, Head(r.array()?));
        let n = count(&mut r, LINK_BYTES_LEAST, limits::RELAY_LINKS_MAX)?;
        let first = position.checked_sub(n as u64).filter(|_| position < u64::MAX).ok_or(FormatError::Malformed)? + 1;
        let mut before = if n > 0 { Head(r.array()?) } else { head };
        let mut links = VecDeque::with_capacity(n);
        for at in (first..).take(n) {
            let link = Link::decode(&mut r)?;
            links.push_back((before, link));
            before = link.head(&before, at);
        }
        let receipt = option(&mut r, |r| Ok(Receipt::decode(r)?))?;
        let newest = option(&mut r, |r| Ok(Receipt::decode(r)?))?;
        let pending = option(&mut r, |r| Ok(bytes32(r, limits::RELAY_REQUEST_BYTES_MAX)?.to_vec()))?;
        r.end()?;
        Ok((Follower { group, relay, position, head, links, receipt, newest, pending: None }, pending))
    }
}
