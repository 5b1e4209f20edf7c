//! Messages put together from fragments, within bounds that no sender can move (G2).
//!
//! A message's memory grows with the bytes that have arrived, never with the length that a fragment
//! claims: contiguous bytes lie in one buffer, which is given away when it is full; bytes that came
//! early wait apart. The first fragment to say something is believed; whatever contradicts it is
//! dropped and counted.

use std::collections::BTreeMap;
use std::time::Duration;

use sealcast_wire::{Dropped, Drops, Monotonic, limits};

/// Incomplete messages, by sender `S` and message `M`; `H` is what else a message has (its topic).
#[derive(Debug)]
pub struct Reassembly<S, M, H> {
    bounds: Bounds,
    senders: BTreeMap<S, Partials<M, H>>,
    bytes: usize,
    messages: usize,
    sweep: Option<Monotonic>,
    drops: Drops,
}

/// How much may be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes of one message.
    pub message_bytes: usize,
    /// Bytes held in all, bookkeeping counted.
    pub bytes: usize,
    /// Bytes held per sender.
    pub bytes_per_sender: usize,
    /// Messages held in all.
    pub messages: usize,
    /// Messages held per sender.
    pub messages_per_sender: usize,
    /// How long a message waits for its next fragment.
    pub timeout: Duration,
}

/// A part of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece<'a, H> {
    /// Length of the whole message, bytes.
    pub total: usize,
    /// How many pieces it is said to have; the same in all of them.
    pub count: u32,
    /// Where these bytes belong.
    pub offset: usize,
    /// The bytes; may be empty only where `offset` is 0 and `head` is given.
    pub bytes: &'a [u8],
    /// What else the message has, if this piece tells.
    pub head: Option<H>,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds {
            message_bytes: limits::MESSAGE_BYTES_MAX,
            bytes: limits::REASSEMBLY_BYTES_MAX,
            bytes_per_sender: limits::REASSEMBLY_BYTES_PER_SENDER_MAX,
            messages: limits::REASSEMBLY_MESSAGES_MAX,
            messages_per_sender: limits::REASSEMBLY_MESSAGES_PER_SENDER_MAX,
            timeout: limits::REASSEMBLY_TIMEOUT,
        }
    }
}

impl<S: Ord + Copy, M: Ord + Copy, H: PartialEq> Reassembly<S, M, H> {
    /// Holds nothing yet.
    pub fn new(bounds: Bounds) -> Reassembly<S, M, H> {
        Reassembly { bounds, senders: BTreeMap::new(), bytes: 0, messages: 0, sweep: None, drops: Drops::default() }
    }

    /// Takes in one piece; the message, once it is whole.
    pub fn insert(&mut self, now: Monotonic, sender: S, message: M, piece: Piece<'_, H>) -> Option<(H, Vec<u8>)> {
        match self.try_insert(now, sender, message, piece) {
            Ok(whole) => whole,
            Err(why) => {
                self.drops.count(why);
                None
            }
        }
    }

    /// Bytes held, bookkeeping counted; at most `Bounds::bytes`.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Messages held; at most `Bounds::messages`.
    pub fn messages(&self) -> usize {
        self.messages
    }

    /// What was dropped, by reason.
    pub fn drops(&self) -> &Drops {
        &self.drops
    }

    /// When the next message may be given up.
    pub fn timeout(&self) -> Option<Monotonic> {
        self.sweep
    }

    /// Gives up messages whose next fragment did not come in time.
    pub fn handle_timeout(&mut self, now: Monotonic) {
        if self.sweep.is_none_or(|at| now < at) {
            return;
        }
        let (timeout, mut oldest) = (self.bounds.timeout, None::<Monotonic>);
        let (mut bytes, mut given_up) = (0, 0);
        for partials in self.senders.values_mut() {
            partials.by_message.retain(|_, partial| {
                let over = now >= partial.touched + timeout;
                if over {
                    partials.bytes -= partial.cost();
                    given_up += 1;
                } else {
                    oldest = Some(oldest.map_or(partial.touched, |at| at.min(partial.touched)));
                }
                !over
            });
            bytes += partials.bytes;
        }
        self.senders.retain(|_, partials| !partials.by_message.is_empty());
        (self.bytes, self.messages) = (bytes, self.messages - given_up);
        (0..given_up).for_each(|_| self.drops.count(Dropped::Incomplete));
        self.sweep = oldest.map(|at| at + timeout);
    }

    fn try_insert(
        &mut self,
        now: Monotonic,
        sender: S,
        message: M,
        piece: Piece<'_, H>,
    ) -> Result<Option<(H, Vec<u8>)>, Dropped> {
        if piece.total > self.bounds.message_bytes {
            return Err(Dropped::TooLong);
        }
        let end = piece.offset.checked_add(piece.bytes.len()).ok_or(Dropped::Malformed)?;
        if end > piece.total || (piece.bytes.is_empty() && (piece.offset != 0 || piece.head.is_none())) {
            return Err(Dropped::Malformed);
        }
        let partials = self.senders.entry(sender).or_default();
        let known = partials.by_message.contains_key(&message);
        let partial = partials.by_message.entry(message).or_insert_with(|| Partial::new(&piece));
        let before = if known { partial.cost() } else { 0 };
        let outcome = partial.insert(now, piece);
        let after = partial.cost();
        partials.bytes = partials.bytes - before + after;
        self.bytes = self.bytes - before + after;
        self.messages += usize::from(!known);
        self.sweep.get_or_insert(now + self.bounds.timeout);
        if outcome? {
            let whole = self.remove(sender, message).expect("it was just inserted");
            return Ok(Some((whole.head.expect("a whole message has its head"), whole.body)));
        }
        self.keep_bounds(sender);
        Ok(None)
    }

    /// Drops the oldest messages of whoever holds too much.
    fn keep_bounds(&mut self, sender: S) {
        while self.senders.get(&sender).is_some_and(|p| {
            p.bytes > self.bounds.bytes_per_sender || p.by_message.len() > self.bounds.messages_per_sender
        }) {
            self.drop_oldest_of(sender);
        }
        while self.bytes > self.bounds.bytes || self.messages > self.bounds.messages {
            let greediest = self.senders.iter().max_by_key(|(_, p)| (p.bytes, p.by_message.len()));
            let greediest = *greediest.expect("something is held").0;
            self.drop_oldest_of(greediest);
        }
    }

    fn drop_oldest_of(&mut self, sender: S) {
        let partials = &self.senders[&sender].by_message;
        let oldest = *partials.iter().min_by_key(|(_, p)| p.touched).expect("it holds something").0;
        self.remove(sender, oldest);
        self.drops.count(Dropped::Queue);
    }

    fn remove(&mut self, sender: S, message: M) -> Option<Partial<H>> {
        let partials = self.senders.get_mut(&sender)?;
        let partial = partials.by_message.remove(&message)?;
        partials.bytes -= partial.cost();
        self.bytes -= partial.cost();
        self.messages -= 1;
        if partials.by_message.is_empty() {
            self.senders.remove(&sender);
        }
        Some(partial)
    }
}

#[derive(Debug)]
struct Partials<M, H> {
    by_message: BTreeMap<M, Partial<H>>,
    bytes: usize,
}

impl<M, H> Default for Partials<M, H> {
    fn default() -> Partials<M, H> {
        Partials { by_message: BTreeMap::new(), bytes: 0 }
    }
}

#[derive(Debug)]
struct Partial<H> {
    total: usize,
    count: u32,
    head: Option<H>,
    /// The first bytes of the message, without a gap.
    body: Vec<u8>,
    /// What came early, by offset; never overlaps itself or `body`.
    early: BTreeMap<usize, Vec<u8>>,
    early_bytes: usize,
    touched: Monotonic,
}

impl<H: PartialEq> Partial<H> {
    fn new(piece: &Piece<'_, H>) -> Partial<H> {
        Partial {
            total: piece.total,
            count: piece.count,
            head: None,
            body: Vec::new(),
            early: BTreeMap::new(),
            early_bytes: 0,
            touched: Monotonic(0),
        }
    }

    /// Whether the message is whole now.
    fn insert(&mut self, now: Monotonic, piece: Piece<'_, H>) -> Result<bool, Dropped> {
        if (piece.total, piece.count) != (self.total, self.count) {
            return Err(Dropped::Conflict);
        }
        if let (Some(mine), Some(theirs)) = (&self.head, &piece.head)
            && mine != theirs
        {
            return Err(Dropped::Conflict);
        }
        self.place(piece.offset, piece.bytes)?;
        if self.head.is_none() {
            self.head = piece.head;
        }
        self.touched = now;
        Ok(self.body.len() == self.total && self.head.is_some())
    }

    fn place(&mut self, offset: usize, bytes: &[u8]) -> Result<(), Dropped> {
        let end = offset + bytes.len();
        let held = self.body.len();
        if end <= held && !bytes.is_empty() {
            return Err(if self.body[offset..end] == *bytes { Dropped::Replay } else { Dropped::Conflict });
        }
        if offset < held {
            return if bytes.is_empty() { Ok(()) } else { Err(Dropped::Conflict) };
        }
        if let Some((&at, early)) = self.early.range(..end.max(1)).next_back()
            && at + early.len() > offset
        {
            return Err(if (at, &early[..]) == (offset, bytes) { Dropped::Replay } else { Dropped::Conflict });
        }
        if offset > held {
            self.early.insert(offset, bytes.to_vec());
            self.early_bytes += bytes.len();
            return Ok(());
        }
        self.append(bytes);
        while let Some(early) = self.early.first_entry().filter(|e| *e.key() == self.body.len()) {
            let early = early.remove();
            self.early_bytes -= early.len();
            self.append(&early);
        }
        Ok(())
    }

    /// Reserves for what may follow, but only in proportion to what is here.
    fn append(&mut self, bytes: &[u8]) {
        let len = self.body.len() + bytes.len();
        if len > self.body.capacity() {
            let room = len.saturating_mul(GROWTH).min(self.total);
            self.body.reserve_exact(room - self.body.len());
        }
        self.body.extend_from_slice(bytes);
    }
}

impl<H> Partial<H> {
    fn cost(&self) -> usize {
        PARTIAL_OVERHEAD + self.body.capacity() + self.early_bytes + self.early.len() * EARLY_OVERHEAD
    }
}

/// A buffer is at most this many times as long as what has arrived of its message: 4 moves a message of
/// 3 MB in Ethernet fragments five times and not eleven.
const GROWTH: usize = 4;
/// What an incomplete message costs besides its bytes: two map entries and a topic.
const PARTIAL_OVERHEAD: usize = 512;
/// What an early piece costs besides its bytes: a map entry and an allocation.
const EARLY_OVERHEAD: usize = 64;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Small = Reassembly<u8, u8, char>;

    fn piece(total: usize, offset: usize, bytes: &[u8]) -> Piece<'_, char> {
        Piece { total, count: 0, offset, bytes, head: Some('h') }
    }

    fn bounds() -> Bounds {
        Bounds { message_bytes: 100_000, bytes: 20_000, bytes_per_sender: 9_000, messages: 12, ..Bounds::default() }
    }

    #[test]
    fn pieces_in_any_order_make_the_message() {
        let mut r = Small::new(bounds());
        assert_eq!(r.insert(Monotonic(0), 1, 1, piece(6, 4, b"ef")), None);
        assert_eq!(r.insert(Monotonic(0), 1, 1, piece(6, 2, b"cd")), None);
        assert_eq!(r.insert(Monotonic(0), 1, 1, piece(6, 0, b"ab")), Some(('h', b"abcdef".to_vec())));
        assert_eq!((r.bytes(), r.messages()), (0, 0));
    }

    #[test]
    fn the_head_may_come_last() {
        let mut r = Small::new(bounds());
        let headless = Piece { head: None, ..piece(2, 0, b"ab") };
        assert_eq!(r.insert(Monotonic(0), 1, 1, headless), None);
        assert_eq!(r.insert(Monotonic(0), 1, 1, piece(2, 0, b"")), Some(('h', b"ab".to_vec())));
    }

    #[test]
    fn what_contradicts_the_first_word_is_dropped_and_counted() {
        let mut r = Small::new(bounds());
        r.insert(Monotonic(0), 1, 1, piece(6, 0, b"ab"));
        r.insert(Monotonic(0), 1, 1, piece(6, 4, b"e"));
        for wrong in [piece(6, 0, b"xb"), piece(6, 1, b"bc"), piece(6, 3, b"de"), piece(6, 4, b"x"), piece(7, 2, b"c")]
        {
            let before = r.drops().of(Dropped::Conflict);
            assert_eq!(r.insert(Monotonic(0), 1, 1, wrong), None);
            assert_eq!(r.drops().of(Dropped::Conflict), before + 1);
        }
        assert_eq!(r.insert(Monotonic(0), 1, 1, Piece { head: Some('x'), ..piece(6, 2, b"c") }), None);
        r.insert(Monotonic(0), 1, 1, piece(6, 4, b"e"));
        assert_eq!(r.drops().of(Dropped::Replay), 1);
        r.insert(Monotonic(0), 1, 1, piece(6, 5, b"f"));
        assert_eq!(r.insert(Monotonic(0), 1, 1, piece(6, 2, b"cd")), Some(('h', b"abcdef".to_vec())));
    }

    #[test]
    fn rule_g7_a_message_waits_no_longer_than_its_timeout() {
        let mut r = Small::new(bounds());
        assert_eq!(r.timeout(), None);
        r.insert(Monotonic(1_000), 1, 1, piece(4, 0, b"a"));
        r.insert(Monotonic(400_000), 1, 2, piece(4, 0, b"a"));
        let first = r.timeout().expect("something waits");
        assert_eq!(first, Monotonic(501_000));
        r.handle_timeout(Monotonic(500_999));
        assert_eq!(r.messages(), 2);
        r.handle_timeout(first);
        assert_eq!((r.messages(), r.drops().of(Dropped::Incomplete), r.timeout()), (1, 1, Some(Monotonic(900_000))));
        r.handle_timeout(Monotonic(900_000));
        assert_eq!((r.messages(), r.bytes(), r.timeout()), (0, 0, None));
    }

    #[test]
    fn rule_g2_a_claimed_length_allocates_nothing() {
        let mut r = Reassembly::<u8, u64, char>::new(Bounds::default());
        for message in 0..64 {
            r.insert(Monotonic(0), 1, message, piece(64 << 20, 0, b"x"));
        }
        assert!(r.bytes() < 64 * 1024, "{} bytes for 64 bytes received", r.bytes());
        r.insert(Monotonic(0), 1, 64, piece((64 << 20) + 1, 0, b"x"));
        assert_eq!(r.drops().of(Dropped::TooLong), 1);
    }

    #[test]
    fn one_sender_cannot_push_out_another() {
        let mut r = Small::new(bounds());
        r.insert(Monotonic(0), 1, 1, piece(2, 0, b"a"));
        for message in 0..200 {
            r.insert(Monotonic(1), 2, message, piece(90_000, 40_000, &[7; 4000]));
            assert!(r.bytes() <= 20_000 && r.messages() <= 12);
        }
        assert_eq!(r.insert(Monotonic(2), 1, 1, piece(2, 1, b"b")), Some(('h', b"ab".to_vec())));
        assert!(r.drops().of(Dropped::Queue) > 100);
    }

    proptest! {
        #[test]
        fn rule_g2_any_pieces_stay_within_bounds(
            pieces in prop::collection::vec(
                (0_u8..4, 0_u8..20, 0_usize..3000, 0_usize..3000, 0_usize..1200, any::<bool>(), 0_u64..400_000), 0..300)
        ) {
            let mut r = Small::new(bounds());
            let mut now = 0;
            let zeros = [0; 1200];
            for (sender, message, total, offset, len, headed, wait) in pieces {
                now += wait;
                r.handle_timeout(Monotonic(now));
                let p = Piece { head: headed.then_some('h'), ..piece(total, offset, &zeros[..len]) };
                if let Some((_, body)) = r.insert(Monotonic(now), sender, message, p) {
                    prop_assert_eq!(body.len(), total);
                }
                prop_assert!(r.bytes() <= 20_000 && r.messages() <= 12);
                let held: usize = r.senders.values().flat_map(|p| p.by_message.values()).map(Partial::cost).sum();
                prop_assert_eq!(r.bytes(), held);
            }
        }
    }
}
