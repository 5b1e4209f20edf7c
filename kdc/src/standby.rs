//! A stand-by: it holds the first centre's secret and follows its log, so that it answers alike when that one is gone; and
//! it refuses service once it no longer knows who was revoked (C1).
//!
//! A machine of the usual form: bytes and time go in, requests come out. The server owns the socket.

use std::time::Duration;

use rand_chacha::ChaCha20Rng;
use rand_core::{Rng as _, SeedableRng as _};
use sealcast_keys::center::feed::{Feed, FeedAnswer, FeedRequest};
use sealcast_wire::{Dropped, Monotonic, limits};

use crate::store::{Store, StoreError};

/// Follows the first centre.
#[derive(Debug)]
pub struct StandBy {
    store: Store,
    feed: Feed,
    rng: ChaCha20Rng,
    stale_after: Duration,
    /// The request that waits for its answer, and when it was sent.
    open: Option<(FeedRequest, Monotonic)>,
    next: Monotonic,
    /// When the newest request was sent whose answer left nothing to fetch.
    fresh_at: Option<Monotonic>,
    diverged: bool,
}

/// Whether a stand-by knows what the first centre knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeedStatus {
    /// It knows what the first one knew a short while ago.
    Fresh,
    /// It has not known that for too long, and refuses service.
    Stale,
    /// The first one's log is not the one that it holds: it refuses service until somebody decides which is right.
    Diverged,
}

impl StandBy {
    /// Follows the centre with the secret of this store; stale until it has caught up. `stale_after` is T of C1; `seed` is
    /// this run's only randomness.
    pub fn new(store: Store, stale_after: Duration, seed: [u8; 32], now: Monotonic) -> StandBy {
        let (feed, rng) = (Feed::new(store.secret()), ChaCha20Rng::from_seed(seed));
        StandBy { store, feed, rng, stale_after, open: None, next: now, fresh_at: None, diverged: false }
    }

    /// When [`StandBy::handle_timeout`] is due.
    pub fn timeout(&self) -> Monotonic {
        self.next
    }

    /// The next request to the first centre, if it is due. It takes the place of one that was not answered.
    ///
    /// # Errors
    /// The store's own.
    pub fn handle_timeout(&mut self, now: Monotonic) -> Result<Option<Vec<u8>>, StoreError> {
        if now < self.next {
            return Ok(None);
        }
        let jitter = u64::from(self.rng.next_u32()) % (2 * JITTER_MICROS);
        self.next = Monotonic(now.micros() + INTERVAL_MICROS - JITTER_MICROS + jitter);
        let (after, link) = self.store.newest()?;
        let (mut nonce, mut seal) = ([0; 16], [0; 12]);
        self.rng.fill_bytes(&mut nonce);
        self.rng.fill_bytes(&mut seal);
        let request = FeedRequest { nonce, after, link };
        let bytes = self.feed.write_request(&request, seal);
        self.open = Some((request, now));
        Ok(Some(bytes))
    }

    /// Takes what came from the first centre's address.
    ///
    /// # Errors
    /// Why it is not an answer to the open request.
    pub fn handle(&mut self, now: Monotonic, bytes: &[u8]) -> Result<(), Dropped> {
        let Some((request, sent)) = &self.open else { return Err(Dropped::Stale) };
        let answer = self.feed.read_answer(bytes, &request.nonce)?;
        let (after, sent) = (request.after, *sent);
        self.open = None;
        let FeedAnswer::Rows { newest, rows } = answer else {
            self.diverged = true;
            return Ok(());
        };
        let held = after + rows.len() as u64;
        // A first centre that forgot rows is not the one that was followed.
        self.diverged = newest < held;
        if !self.diverged && !rows.is_empty() {
            match self.store.follow(after, rows) {
                Ok(()) => {}
                Err(StoreError::Diverged | StoreError::Damaged(_)) => self.diverged = true,
                // A full disk, say: the server ends.
                Err(why) => {
                    self.store.noted(Err::<(), _>(why));
                    return Ok(());
                }
            }
        }
        if !self.diverged && newest == held {
            self.fresh_at = Some(sent);
        } else if !self.diverged && held > after {
            // There are more to fetch.
            self.next = now;
        }
        Ok(())
    }

    /// Whether it must refuse service.
    pub fn is_stale(&self, now: Monotonic) -> bool {
        self.status(now) != FeedStatus::Fresh
    }

    /// Whether it knows what the first centre knows.
    pub fn status(&self, now: Monotonic) -> FeedStatus {
        match self.fresh_at {
            _ if self.diverged => FeedStatus::Diverged,
            Some(at) if now.since(at) <= self.stale_after => FeedStatus::Fresh,
            _ => FeedStatus::Stale,
        }
    }
}

/// From one request to the next.
const INTERVAL_MICROS: u64 = limits::KDC_NEWS_EVERY.as_micros() as u64;
/// By how much that varies, either way, so that stand-bys do not ask in step (G7).
const JITTER_MICROS: u64 = 100_000;

#[cfg(test)]
mod tests {
    use sealcast_crypto::secret::Secret;
    use sealcast_keys::center::row::Row;
    use tempfile::TempDir;

    use super::*;
    use crate::server::feed_answer;
    use crate::store::tests::{NOW, draft, folder, secret};

    struct Pair {
        _folders: [TempDir; 2],
        first: Store,
        second: Store,
        stand_by: StandBy,
    }

    const STALE_AFTER: Duration = Duration::from_secs(10);

    fn seconds(s: f64) -> Monotonic {
        Monotonic((s * 1e6) as u64)
    }

    impl Pair {
        fn new() -> Pair {
            let folders = [folder(), folder()];
            let [first, second] = [0, 1].map(|at: usize| Store::create(folders[at].path(), &secret()).unwrap());
            let stand_by = StandBy::new(second.clone(), STALE_AFTER, [1; 32], Monotonic(0));
            Pair { _folders: folders, first, second, stand_by }
        }

        /// One request that is due, and its answer.
        fn exchange(&mut self, at: Monotonic) -> Result<(), Dropped> {
            let request = self.stand_by.handle_timeout(at).unwrap().expect("a request is due");
            let answer = answered(&self.first, &request);
            self.stand_by.handle(at, &answer)
        }
    }

    fn answered(first: &Store, request: &[u8]) -> Vec<u8> {
        let feed = Feed::new(first.secret());
        let request = feed.read_request(request).unwrap();
        feed.write_answer(&feed_answer(first, &request).unwrap(), &request.nonce, [4; 12])
    }

    #[test]
    fn rule_c1_a_stand_by_serves_once_it_has_caught_up_and_not_for_longer_than_it_hears() {
        let mut pair = Pair::new();
        for at in 0..40 {
            pair.first.register(draft(&format!("robot{at}")), NOW).unwrap();
        }
        assert_eq!(pair.stand_by.status(seconds(0.0)), FeedStatus::Stale, "it has heard nothing yet");
        let mut exchanges = 0;
        while pair.stand_by.is_stale(seconds(0.0)) {
            // What is left is fetched at once, not a second later.
            assert!(pair.stand_by.timeout() <= seconds(0.0));
            pair.exchange(seconds(0.0)).unwrap();
            exchanges += 1;
        }
        assert!(exchanges > 1, "{exchanges}");
        assert_eq!(pair.second.newest().unwrap(), pair.first.newest().unwrap());

        let next = pair.stand_by.timeout().micros();
        assert!((900_000..1_100_000).contains(&next), "{next}");
        assert_eq!(pair.stand_by.handle_timeout(seconds(0.5)).unwrap(), None);
        // Its requests go nowhere from now on.
        for at in 2..10 {
            assert!(pair.stand_by.handle_timeout(seconds(f64::from(at) * 1.2)).unwrap().is_some());
        }
        assert!(!pair.stand_by.is_stale(seconds(10.0)));
        assert_eq!(pair.stand_by.status(seconds(10.000_001)), FeedStatus::Stale);
        let revoked = pair.first.named("robot7").unwrap().unwrap().registration.hash();
        pair.first.revoke(&revoked, "admin", "", NOW).unwrap();
        pair.exchange(seconds(20.0)).unwrap();
        assert_eq!((pair.stand_by.status(seconds(20.0)), pair.second.number()), (FeedStatus::Fresh, 1));
    }

    /// An answer is as old as its request, however late it comes.
    #[test]
    fn rule_c1_a_delayed_answer_makes_nobody_fresh() {
        let mut pair = Pair::new();
        let request = pair.stand_by.handle_timeout(seconds(0.0)).unwrap().unwrap();
        let answer = answered(&pair.first, &request);
        pair.stand_by.handle(seconds(11.0), &answer).unwrap();
        assert!(pair.stand_by.is_stale(seconds(11.0)));
        assert_eq!(pair.stand_by.handle(seconds(11.0), &answer), Err(Dropped::Stale), "and counts once");
        let request = pair.stand_by.handle_timeout(seconds(12.0)).unwrap().unwrap();
        pair.stand_by.handle_timeout(seconds(14.0)).unwrap().unwrap();
        let late = answered(&pair.first, &request);
        assert_eq!(pair.stand_by.handle(seconds(14.0), &late), Err(Dropped::Stale), "another request is open");
        assert!(pair.stand_by.is_stale(seconds(14.0)));
    }

    #[test]
    fn rule_c1_a_centre_with_another_secret_is_not_believed() {
        let mut pair = Pair::new();
        let lies = folder();
        let liar = Store::create(lies.path(), &Secret::from_bytes([1; 32])).unwrap();
        liar.register(draft("mallory"), NOW).unwrap();
        let request = pair.stand_by.handle_timeout(seconds(0.0)).unwrap().unwrap();
        let feed = Feed::new(liar.secret());
        let nonce = Feed::new(&secret()).read_request(&request).unwrap().nonce;
        let rows = liar.rows_after(0, 9).unwrap();
        let answer = feed.write_answer(&FeedAnswer::Rows { newest: 1, rows }, &nonce, [4; 12]);
        assert_eq!(pair.stand_by.handle(seconds(0.0), &answer), Err(Dropped::Foreign));
        assert!(pair.stand_by.is_stale(seconds(0.0)) && pair.second.newest().unwrap().0 == 0);
        // The answer to the same request still counts.
        pair.stand_by.handle(seconds(0.0), &answered(&pair.first, &request)).unwrap();
        assert!(!pair.stand_by.is_stale(seconds(0.0)));
    }

    #[test]
    fn rule_c1_two_logs_that_differ_are_noticed() {
        let mut pair = Pair::new();
        pair.first.register(draft("alice"), NOW).unwrap();
        pair.exchange(seconds(0.0)).unwrap();
        assert!(!pair.stand_by.is_stale(seconds(0.0)));
        // Somebody registered at the stand-by's folder, as if it were a first centre.
        pair.second.register(draft("bob"), NOW).unwrap();
        pair.first.register(draft("carol"), NOW).unwrap();
        pair.exchange(seconds(2.0)).unwrap();
        assert_eq!(pair.stand_by.status(seconds(2.0)), FeedStatus::Diverged);
    }

    #[test]
    fn rule_c1_a_first_centre_that_lost_rows_is_noticed() {
        let mut pair = Pair::new();
        pair.first.register(draft("alice"), NOW).unwrap();
        pair.exchange(seconds(0.0)).unwrap();
        let lost = folder();
        pair.first = Store::create(lost.path(), &secret()).unwrap();
        pair.exchange(seconds(2.0)).unwrap();
        assert_eq!(pair.stand_by.status(seconds(2.0)), FeedStatus::Diverged);
        assert_eq!(pair.second.newest().unwrap().0, 1, "what is known stays known");
    }

    /// A first centre that knows the secret and whose rows cannot follow each other.
    #[test]
    fn rows_that_cannot_be_are_not_stored() {
        let mut pair = Pair::new();
        let alice = pair.first.register(draft("alice"), NOW).unwrap();
        let request = pair.stand_by.handle_timeout(seconds(0.0)).unwrap().unwrap();
        let feed = Feed::new(&secret());
        let nonce = feed.read_request(&request).unwrap().nonce;
        let rows = vec![Row::Registered(alice.clone()), Row::Registered(alice)];
        let answer = feed.write_answer(&FeedAnswer::Rows { newest: 2, rows }, &nonce, [4; 12]);
        pair.stand_by.handle(seconds(0.0), &answer).unwrap();
        assert_eq!(pair.stand_by.status(seconds(0.0)), FeedStatus::Diverged);
        assert_eq!(pair.second.newest().unwrap().0, 0);
    }
}
