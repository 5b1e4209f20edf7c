//! The key distribution centre: answers who may lead with pair keys, and knows who is revoked.
//!
//! It keeps nothing of a question: a principal's keys follow from the master secret and its registration, so that a lost
//! answer is asked for again, and a stand-by with the same secret and registrations answers alike.
//! It sees who asks for whom, and could read everything: SECURITY.md says what follows from that.

use std::sync::Arc;

use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng as _;
use sealcast_crypto::identity::Registration;
use sealcast_crypto::leighton_micali::{LongTerm, Master, Pair};
use sealcast_crypto::secret::Secret;
use sealcast_wire::limits::KDC_NEWS_MAX;
use sealcast_wire::{CertHash, Dropped, Now, Utc};

use super::query::{Answer, Query, Refusal, kind_of};

/// Who is registered, and who is revoked.
pub trait Registry {
    /// The registration with this hash, and whether it is revoked.
    fn find(&self, principal: &CertHash) -> Option<(Arc<Registration>, bool)>;
    /// The number of the newest revocation; 0 before the first.
    fn number(&self) -> u64;
    /// Revocations after the one of this number, oldest first, `most` at most: number and whose.
    fn revoked_since(&self, number: u64, most: usize) -> Vec<(u64, CertHash)>;
    /// Revokes, durably, and says by which number; the same one again if it was revoked before. `None` if it cannot be stored.
    fn revoke(&mut self, principal: &CertHash, by: &str, reason: &str) -> Option<u64>;
    /// Whether this is a stand-by that has not heard from the first centre for too long (C1).
    fn is_stale(&self, now: Now) -> bool;
}

/// The centre's machine.
pub struct Kdc<R> {
    master: Master,
    registry: R,
    rng: ChaCha20Rng,
    floor: Utc,
}

impl<R: Registry> Kdc<R> {
    /// A centre with its secret. `seed` is this run's only randomness: never use one twice. `floor` is a date that has surely
    /// passed (G5).
    pub fn new(secret: &Secret<32>, registry: R, seed: [u8; 32], floor: Utc) -> Kdc<R> {
        Kdc { master: Master::new(secret), registry, rng: ChaCha20Rng::from_seed(seed), floor }
    }

    /// Who is registered.
    pub fn registry(&self) -> &R {
        &self.registry
    }

    /// The same, to change it.
    pub fn registry_mut(&mut self) -> &mut R {
        &mut self.registry
    }

    /// Answers one question. What does not prove to be a registered, unrevoked principal's gets no answer, and costs one
    /// look-up and three HMACs.
    ///
    /// # Errors
    /// Why there is no answer.
    pub fn answer(&mut self, now: Now, bytes: &[u8]) -> Result<Vec<u8>, Dropped> {
        let asked = Query::read(bytes)?;
        let (asker, nonce) = (asked.asker, asked.nonce);
        let (registration, revoked) = self.registry.find(&asker).ok_or(Dropped::Foreign)?;
        let keys = self.master.long_term(&asker.0);
        let ask = asked.check(&keys).map_err(|_| Dropped::Auth)?;
        if registration.check(now.utc, self.floor).is_err() {
            return Err(Dropped::Policy);
        }
        if revoked {
            // So that it knows, though nobody in its group tells it.
            let answer = Answer::Refused(kind_of(&ask), self.registry.number(), Refusal::Excluded);
            return Ok(answer.write(&asker, &nonce, &keys));
        }
        let answer = match self.judge(now, &registration, &ask) {
            Ok(()) => self.do_it(&registration, (asker, nonce, &keys), &ask),
            Err(why) => Err(why),
        };
        let number = self.registry.number();
        let answer = answer.unwrap_or_else(|why| Answer::Refused(kind_of(&ask), number, why));
        Ok(answer.write(&asker, &nonce, &keys))
    }

    /// Whether the question may be asked.
    fn judge(&self, now: Now, asker: &Registration, ask: &Query) -> Result<(), Refusal> {
        if self.registry.is_stale(now) {
            return Err(Refusal::Stale);
        }
        let groups = asker.rights.groups();
        let leads = |group: &&str| asker.rights.may_lead(group);
        match ask {
            Query::News(_) if groups.iter().any(leads) => Ok(()),
            Query::News(_) => Err(Refusal::Denied),
            Query::Pair(to) => {
                let (to, revoked) = self.registry.find(to).ok_or(Refusal::Unknown)?;
                let shared = groups.iter().filter(|it| leads(it)).any(|group| to.rights.is_member(group));
                match (shared, revoked) {
                    (false, _) => Err(Refusal::Denied),
                    (true, true) => Err(Refusal::Revoked),
                    (true, false) => to.check(now.utc, self.floor).map_err(|_| Refusal::Expired),
                }
            }
            Query::Check(whom) => {
                let (whom, revoked) = self.registry.find(whom).ok_or(Refusal::Unknown)?;
                if revoked {
                    return Err(Refusal::Revoked);
                }
                whom.check(now.utc, self.floor).map_err(|_| Refusal::Expired)
            }
            Query::Revoke(whom, _) => {
                let (whom, _) = self.registry.find(whom).ok_or(Refusal::Unknown)?;
                // It is revoked everywhere: the right must cover it everywhere.
                let covers = |group: &&str| asker.rights.may_evict(group, &whom.rights);
                if whom.rights.groups().iter().all(covers) { Ok(()) } else { Err(Refusal::Denied) }
            }
        }
    }

    fn do_it(
        &mut self,
        asker: &Registration,
        (from, nonce, keys): (CertHash, [u8; 16], &LongTerm),
        ask: &Query,
    ) -> Result<Answer, Refusal> {
        match ask {
            Query::Pair(to) => {
                let number = self.registry.number();
                let pair = Pair { from: from.0, to: to.0, nonce };
                Ok(Answer::Granted(number, self.master.grant(&pair, keys, &number.to_be_bytes(), &mut self.rng)))
            }
            Query::News(since) => {
                Ok(Answer::Revoked(self.registry.number(), self.registry.revoked_since(*since, KDC_NEWS_MAX)))
            }
            Query::Check(_) => Ok(Answer::Done(self.registry.number())),
            Query::Revoke(whom, reason) => {
                self.registry.revoke(whom, &asker.name, reason).map(Answer::Done).ok_or(Refusal::Store)
            }
        }
    }
}
