//! What is too long for a message: pieces that are fetched by their hash, and of more of them a list in pieces, too.
//!
//! All of it travels under the bootstrap key (D8) and proves itself by its hash.

use sealcast_crypto::hash::sha256;
use sealcast_wire::{Fetch, Now, limits};

use super::engine::Engine;
use super::message::Body;
use super::scheme::Mls;

impl<E: Engine> Mls<E> {
    /// Bytes as a message's body: what is long is kept where others fetch it.
    pub(super) fn body(&mut self, bytes: &[u8]) -> Body {
        if bytes.len() <= limits::MLS_INLINE_BYTES_MAX {
            return Body::Inline(bytes.to_vec());
        }
        let pieces = self.pieces_of(bytes);
        if pieces.len() <= limits::MLS_PIECES_MAX {
            return Body::Pieces(pieces);
        }
        Body::Listed(self.pieces_of(pieces.as_flattened()))
    }

    fn pieces_of(&mut self, bytes: &[u8]) -> Vec<[u8; 32]> {
        bytes.chunks(limits::MLS_PIECE_BYTES).map(|piece| self.piece(piece)).collect()
    }

    fn piece(&mut self, piece: &[u8]) -> [u8; 32] {
        // The nonce follows from the piece, so that members who keep the same thing keep it once (D8).
        let nonce = *sha256(piece).first_chunk().expect("12 of 32 bytes");
        let bytes = self.bootstrap_key.seal(nonce, piece);
        let hash = sha256(&bytes);
        self.provide(Fetch::Blob(hash), bytes);
        hash
    }

    /// A body's bytes; some of those that are not here are fetched. A list that is none gives no bytes.
    pub(super) fn whole(&mut self, now: Now, body: &Body) -> Option<Vec<u8>> {
        match body {
            Body::Inline(bytes) => Some(bytes.clone()),
            Body::Pieces(pieces) => self.gather(now, pieces),
            Body::Listed(lists) => match self.gather(now, lists)?.as_chunks() {
                (pieces, []) if pieces.len() <= limits::MLS_ANNEX_PIECES_MAX => self.gather(now, pieces),
                _ => Some(Vec::new()),
            },
        }
    }

    fn gather(&mut self, now: Now, pieces: &[[u8; 32]]) -> Option<Vec<u8>> {
        let mut missing = pieces.iter().filter(|it| !self.pieces.contains_key(*it)).copied().peekable();
        if missing.peek().is_none() {
            return Some(pieces.iter().flat_map(|it| &self.pieces[it]).copied().collect());
        }
        let missing: Vec<[u8; 32]> = missing.take(limits::MLS_PIECES_MAX).collect();
        missing.into_iter().for_each(|it| self.fetch(now, Fetch::Blob(it)));
        None
    }

    /// A piece of this hash.
    pub(super) fn piece_came(&mut self, now: Now, hash: [u8; 32], bytes: &[u8]) {
        // Those of a way in that another one replaced may be of use to that one.
        if self.pieces.len() >= limits::MLS_ANNEX_PIECES_MAX + limits::MLS_PIECES_MAX {
            self.pieces.clear();
        }
        if let Ok(piece) = self.bootstrap_key.open(bytes) {
            self.pieces.insert(hash, piece);
        }
        self.entry_grows(now);
        self.look_for_pieces(now);
    }

    /// Once none is under way, what waits for them looks again.
    pub(super) fn look_for_pieces(&mut self, now: Now) {
        let is_under_way = self.fetching.values().chain(self.shared.sought()).any(|it| matches!(it, Fetch::Blob(_)));
        if !is_under_way {
            self.entry_came(now);
        }
    }
}
