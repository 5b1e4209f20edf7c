//! Our questions to the centre: asked again until they are answered, of one centre after the other.

use std::collections::BTreeMap;
use std::time::Duration;

use rand_chacha::ChaCha20Rng;
use rand_core::Rng as _;
use sealcast_crypto::leighton_micali::{LongTerm, Pair, PairSecret};
use sealcast_wire::{Address, CertHash, Dropped, Monotonic, limits};

use super::query::{Answer, Nonce, Query, Refusal};
use crate::timers::jitter;

/// Questions under way.
pub(super) struct Queries {
    me: CertHash,
    centers: Vec<Address>,
    /// Which of them answered last.
    at: usize,
    open: BTreeMap<Nonce, OpenQuery>,
    /// When one of them last answered.
    pub(super) heard: Option<Monotonic>,
    /// Answers are believed whoever makes them: a planted fault.
    #[cfg(any(test, feature = "misbehaving"))]
    pub(super) believes: bool,
}

struct OpenQuery {
    ask: Query,
    tries: u32,
    next: Monotonic,
}

/// What the centre said, proved.
#[derive(Debug)]
pub(super) enum News {
    /// A pair key for us to talk to somebody.
    Pair { with: CertHash, salt: [u8; 16], sigma: PairSecret },
    /// The newest revocation's number, and those after `since`.
    Revoked { number: u64, list: Vec<(u64, CertHash)> },
    /// Somebody is revoked now, by our word, or good.
    Done { ask: Query, number: u64 },
    /// It is a stand-by that lags behind; it is asked again, after the others.
    Stale,
    /// We are revoked ourselves.
    Excluded,
    /// It does not do what we asked for.
    Refused { ask: Query, why: Refusal },
}

impl Queries {
    pub(super) fn new(me: CertHash, centers: Vec<Address>) -> Queries {
        Queries {
            me,
            centers,
            at: 0,
            open: BTreeMap::new(),
            heard: None,
            #[cfg(any(test, feature = "misbehaving"))]
            believes: false,
        }
    }

    /// Asks, unless the same is asked already; whether there was room.
    pub(super) fn ask(&mut self, now: Monotonic, ask: Query, rng: &mut ChaCha20Rng) -> bool {
        if self.asks(&ask) {
            return true;
        }
        // Keys for those who ask to be let in leave room for what guards the others.
        let reserved = if matches!(ask, Query::Pair(_)) { limits::KDC_QUESTIONS_RESERVED } else { 0 };
        if self.open.len() + reserved >= limits::KDC_QUESTIONS_MAX || self.centers.is_empty() {
            return false;
        }
        let mut nonce = [0; 16];
        rng.fill_bytes(&mut nonce);
        self.open.insert(nonce, OpenQuery { ask, tries: 0, next: now });
        true
    }

    pub(super) fn asks(&self, ask: &Query) -> bool {
        self.open.values().any(|it| it.ask == *ask)
    }

    /// Forgets questions that nobody waits for.
    pub(super) fn retain(&mut self, keep: impl Fn(&Query) -> bool) {
        self.open.retain(|_, it| keep(&it.ask));
    }

    /// When a question is to be sent.
    pub(super) fn timeout(&self) -> Option<Monotonic> {
        self.open.values().map(|it| it.next).min()
    }

    /// The questions that are due: to whom, and their bytes.
    pub(super) fn due(&mut self, now: Monotonic, keys: &LongTerm, rng: &mut ChaCha20Rng) -> Vec<(Address, Vec<u8>)> {
        let mut out = Vec::new();
        let mut turns = false;
        for (nonce, question) in self.open.iter_mut().filter(|(_, it)| it.next <= now) {
            // The first one is given a second try before another is asked.
            turns |= question.tries >= 2;
            let place = (self.at + question.tries as usize / 2) % self.centers.len();
            out.push((self.centers[place], question.ask.write(&self.me, nonce, keys)));
            let wait = (RETRY * 2_u32.saturating_pow(question.tries.min(6))).min(RETRY_MAX);
            question.next = now + wait + jitter(rng, wait / 4);
            question.tries += 1;
        }
        if turns {
            self.at = (self.at + 1) % self.centers.len();
        }
        out
    }

    /// Takes in an answer.
    pub(super) fn answered(&mut self, now: Monotonic, keys: &LongTerm, bytes: &[u8]) -> Result<News, Dropped> {
        let unchecked = Answer::read(bytes)?;
        let nonce = unchecked.nonce;
        if unchecked.asker != self.me {
            return Err(Dropped::Foreign);
        }
        let ask = self.open.get(&nonce).map(|it| it.ask.clone()).ok_or(Dropped::Stale)?;
        #[cfg(any(test, feature = "misbehaving"))]
        let unchecked = if self.believes { unchecked.believed() } else { unchecked };
        let answer = unchecked.check(keys).map_err(|_| Dropped::Auth)?;
        let news = match (answer, ask) {
            (Answer::Granted(number, granted), Query::Pair(with)) => {
                let pair = Pair { from: self.me.0, to: with.0, nonce };
                let sigma = keys.unmask(&pair, &granted, &number.to_be_bytes()).map_err(|_| Dropped::Auth)?;
                News::Pair { with, salt: granted.salt, sigma }
            }
            (Answer::Revoked(number, list), Query::News(_)) => News::Revoked { number, list },
            (Answer::Done(number), ask @ (Query::Revoke(..) | Query::Check(_))) => News::Done { ask, number },
            // A stand-by that lags behind: another one may not.
            (Answer::Refused(_, _, Refusal::Stale), _) => {
                self.at = (self.at + 1) % self.centers.len();
                return Ok(News::Stale);
            }
            (Answer::Refused(_, _, Refusal::Excluded), _) => News::Excluded,
            (Answer::Refused(_, _, why), ask) => News::Refused { ask, why },
            _ => return Err(Dropped::Malformed),
        };
        self.open.remove(&nonce);
        self.heard = Some(now);
        Ok(news)
    }
}

const RETRY: Duration = Duration::from_millis(60);
const RETRY_MAX: Duration = Duration::from_secs(2);
