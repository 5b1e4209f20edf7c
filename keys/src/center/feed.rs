//! What a stand-by centre asks the first one once a second, and what that answers: rows of its log (C1).
//!
//! ```text
//! request:   | kind 1 | nonce, 16 | after, 8 | link, 32 | zeros
//! rows:      | kind 2 | nonce, 16 | newest, 8 | count, 2 | rows, each behind its 16-bit length | zeros
//! diverged:  | kind 3 | nonce, 16 | zeros
//! ```
//! All are sealed as bootstrap messages are, under a key of both centres' secret, and are [`FEED_BYTES`] long: nothing is
//! amplified, and nobody outside sees how much there is. Whoever forges or changes one must know the secret; an old answer
//! has another nonce; an old request brings an answer that nobody waits for.

use sealcast_crypto::bootstrap::{BootstrapError, BootstrapKey, OVERHEAD};
use sealcast_crypto::kdf::hkdf;
use sealcast_crypto::secret::Secret;
use sealcast_wire::{Dropped, Malformed, Reader, Writer};

use super::row::{Link, ROW_BYTES, Row};

/// Bytes of every request and answer; with the frame and the headers of UDP and IPv6 they fit the least packet of IPv6.
pub const FEED_BYTES: usize = 1200;

/// Seals and opens what two centres with one secret tell each other.
#[derive(Debug)]
pub struct Feed(BootstrapKey);

/// Asks for the rows after one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeedRequest {
    /// Drawn at random for each request.
    pub nonce: [u8; 16],
    /// How many rows the stand-by holds.
    pub after: u64,
    /// The link of the last of them.
    pub link: Link,
}

/// What the first centre answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FeedAnswer {
    /// The rows that follow, as many as fit, and the number of the first centre's newest.
    Rows {
        /// Number of the first centre's newest row.
        newest: u64,
        /// The rows after the one that was named, in order.
        rows: Vec<Row>,
    },
    /// The stand-by's rows are not the first centre's.
    Diverged,
}

impl Feed {
    /// The feed of centres with this secret.
    pub fn new(secret: &Secret<32>) -> Feed {
        Feed(BootstrapKey::new(&hkdf(secret.expose(), b"", &[b"sealcast/v1/centre/feed"])))
    }

    /// Whether a datagram says that it is of this feed; all of its messages begin alike.
    pub fn is_of(&self, bytes: &[u8]) -> bool {
        bytes.starts_with(&self.0.tag())
    }

    /// A request's bytes. `seal` is random, and used once.
    pub fn write_request(&self, request: &FeedRequest, seal: [u8; 12]) -> Vec<u8> {
        let mut w = Writer::new();
        w.u8(REQUEST).raw(&request.nonce).u64(request.after).raw(&request.link);
        self.seal(w, seal)
    }

    /// Reads a request.
    ///
    /// # Errors
    /// Why it is none of this feed.
    pub fn read_request(&self, bytes: &[u8]) -> Result<FeedRequest, Dropped> {
        let message = self.open(bytes)?;
        let mut r = Reader::new(&message);
        if r.u8()? != REQUEST {
            return Err(Dropped::Malformed);
        }
        let request = FeedRequest { nonce: r.array()?, after: r.u64()?, link: r.array()? };
        end(r)?;
        Ok(request)
    }

    /// An answer's bytes to the request with this nonce, with as many of its rows as fit: one at least. `seal` as in
    /// [`Feed::write_request`].
    pub fn write_answer(&self, answer: &FeedAnswer, nonce: &[u8; 16], seal: [u8; 12]) -> Vec<u8> {
        let mut w = Writer::new();
        match answer {
            FeedAnswer::Diverged => _ = w.u8(DIVERGED).raw(nonce),
            FeedAnswer::Rows { newest, rows } => {
                let (mut count, mut body) = (0, Writer::new());
                for row in rows.iter().map(Row::to_bytes) {
                    if ROWS_HEAD + body.as_slice().len() + 2 + row.len() > MESSAGE_BYTES {
                        break;
                    }
                    body.bytes16(&row);
                    count += 1;
                }
                w.u8(ROWS).raw(nonce).u64(*newest).u16(count).raw(body.as_slice());
            }
        }
        self.seal(w, seal)
    }

    /// Reads the answer to the request with this nonce.
    ///
    /// # Errors
    /// Why it is none; [`Dropped::Stale`] if it answers another request.
    pub fn read_answer(&self, bytes: &[u8], nonce: &[u8; 16]) -> Result<FeedAnswer, Dropped> {
        let message = self.open(bytes)?;
        let mut r = Reader::new(&message);
        let kind = r.u8()?;
        if !matches!(kind, ROWS | DIVERGED) {
            return Err(Dropped::Malformed);
        }
        if r.array::<16>()? != *nonce {
            return Err(Dropped::Stale);
        }
        let answer = match kind {
            DIVERGED => FeedAnswer::Diverged,
            _ => {
                let newest = r.u64()?;
                let count = r.count16(3, MESSAGE_BYTES)?;
                let row = |_| Row::from_bytes(r.bytes16(ROW_BYTES)?);
                FeedAnswer::Rows { newest, rows: (0..count).map(row).collect::<Result<_, Malformed>>()? }
            }
        };
        end(r)?;
        Ok(answer)
    }

    fn seal(&self, w: Writer, seal: [u8; 12]) -> Vec<u8> {
        let mut message = w.finish();
        debug_assert!(message.len() <= MESSAGE_BYTES);
        message.resize(MESSAGE_BYTES, 0);
        self.0.seal(seal, &message)
    }

    fn open(&self, bytes: &[u8]) -> Result<Vec<u8>, Dropped> {
        if bytes.len() != FEED_BYTES {
            return Err(Dropped::Malformed);
        }
        self.0.open(bytes).map_err(|why| match why {
            BootstrapError::Foreign => Dropped::Foreign,
            BootstrapError::Auth => Dropped::Auth,
        })
    }
}

/// Nothing but zeros may follow.
fn end(mut r: Reader<'_>) -> Result<(), Malformed> {
    if r.rest().iter().all(|byte| *byte == 0) { Ok(()) } else { Err(Malformed) }
}

const REQUEST: u8 = 1;
const ROWS: u8 = 2;
const DIVERGED: u8 = 3;
const MESSAGE_BYTES: usize = FEED_BYTES - OVERHEAD;
const ROWS_HEAD: usize = 1 + 16 + 8 + 2;
const _: () = assert!(ROWS_HEAD + 2 + ROW_BYTES <= MESSAGE_BYTES, "the longest row fits");

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sealcast_crypto::identity::{Act, Registration, Right};
    use sealcast_wire::limits::REGISTRATION_BYTES_MAX;

    use super::super::row::tests::rows;
    use super::*;

    const NONCE: [u8; 16] = [9; 16];
    const SEAL: [u8; 12] = [3; 12];

    fn feed() -> Feed {
        Feed::new(&Secret::from_bytes([42; 32]))
    }

    fn request() -> FeedRequest {
        FeedRequest { nonce: NONCE, after: 7, link: [5; 32] }
    }

    #[test]
    fn requests_and_answers_are_read_as_they_were_written() {
        let bytes = feed().write_request(&request(), SEAL);
        assert!(bytes.len() == FEED_BYTES && feed().is_of(&bytes));
        assert_eq!(feed().read_request(&bytes), Ok(request()));
        for answer in [
            FeedAnswer::Rows { newest: 9, rows: rows() },
            FeedAnswer::Rows { newest: 0, rows: vec![] },
            FeedAnswer::Diverged,
        ] {
            let bytes = feed().write_answer(&answer, &NONCE, SEAL);
            assert_eq!(bytes.len(), FEED_BYTES, "nothing amplifies (G8)");
            assert_eq!(feed().read_answer(&bytes, &NONCE), Ok(answer));
            assert_eq!(feed().read_answer(&bytes, &[8; 16]), Err(Dropped::Stale), "an answer to another request");
            assert_eq!(feed().read_request(&bytes), Err(Dropped::Malformed), "an answer is no request");
        }
        assert_eq!(feed().read_answer(&bytes, &NONCE), Err(Dropped::Malformed), "a request is no answer");
    }

    #[test]
    fn an_answer_holds_as_many_rows_as_fit_and_the_longest_row_does() {
        let many: Vec<Row> = rows().into_iter().cycle().take(60).collect();
        let bytes = feed().write_answer(&FeedAnswer::Rows { newest: 60, rows: many.clone() }, &NONCE, SEAL);
        let Ok(FeedAnswer::Rows { newest: 60, rows: some }) = feed().read_answer(&bytes, &NONCE) else { panic!() };
        assert!(some.len() > 3 && some.len() < 60 && many.starts_with(&some), "{}", some.len());

        let Row::Registered(mut longest) = rows().remove(0) else { panic!() };
        let mut at = 0;
        while REGISTRATION_BYTES_MAX - longest.to_bytes().len() > 30 {
            longest.rights.grant(Right::new("ward3", Act::Publish, &format!("topic/{at:06}")).unwrap());
            at += 1;
        }
        let rest = REGISTRATION_BYTES_MAX - longest.to_bytes().len() - (2 + 5 + 1 + 2);
        longest.rights.grant(Right::new("ward3", Act::Publish, &"t".repeat(rest)).unwrap());
        assert_eq!(longest.to_bytes().len(), REGISTRATION_BYTES_MAX);
        assert!(Registration::from_bytes(&longest.to_bytes()).is_ok());
        let answer = FeedAnswer::Rows { newest: 1, rows: vec![Row::Registered(longest)] };
        let bytes = feed().write_answer(&answer, &NONCE, SEAL);
        assert_eq!(feed().read_answer(&bytes, &NONCE), Ok(answer));
    }

    #[test]
    fn rule_c1_a_message_that_was_changed_or_is_of_another_secret_is_refused() {
        let request = feed().write_request(&request(), SEAL);
        let answer = feed().write_answer(&FeedAnswer::Rows { newest: 3, rows: rows() }, &NONCE, SEAL);
        for at in 0..FEED_BYTES {
            let (mut other, mut told) = (request.clone(), answer.clone());
            other[at] ^= 1;
            told[at] ^= 1;
            assert!(feed().read_request(&other).is_err() && feed().read_answer(&told, &NONCE).is_err(), "byte {at}");
            assert!(feed().read_request(&request[..at]).is_err() && feed().read_answer(&answer[..at], &NONCE).is_err());
        }
        let wrong = Feed::new(&Secret::from_bytes([43; 32]));
        assert_eq!(wrong.read_request(&request), Err(Dropped::Foreign));
        assert_eq!(wrong.read_answer(&answer, &NONCE), Err(Dropped::Foreign));
        assert!(!wrong.is_of(&request));
    }

    #[test]
    fn what_follows_a_message_is_zeros() {
        let mut w = Writer::new();
        w.u8(REQUEST).raw(&NONCE).u64(7).raw(&[5; 32]).u8(0).u8(1);
        assert_eq!(feed().read_request(&feed().seal(w, SEAL)), Err(Dropped::Malformed));
    }

    proptest! {
        #[test]
        fn rule_g2_no_bytes_make_it_panic(
            kind in 0..5_u8,
            bytes in proptest::collection::vec(any::<u8>(), 0..MESSAGE_BYTES - 17),
            raw in proptest::collection::vec(any::<u8>(), 0..FEED_BYTES + 10),
        ) {
            prop_assert!(feed().read_request(&raw).is_err() && feed().read_answer(&raw, &NONCE).is_err());
            // Of somebody who knows the secret.
            let mut w = Writer::new();
            w.u8(kind).raw(&NONCE).raw(&bytes);
            let sealed = feed().seal(w, SEAL);
            let _ = feed().read_request(&sealed);
            let _ = feed().read_answer(&sealed, &NONCE);
        }
    }
}
