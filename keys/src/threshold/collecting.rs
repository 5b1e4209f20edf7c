//! One ciphertext and what brokers say of it, until it is opened or ⊥.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rand_core::CryptoRng;
use sealcast_crypto::group::PrimeGroup;
use sealcast_crypto::tdh2::{Combined, Combiner, Labelled, Share, Verified};
use sealcast_wire::{Dropped, Monotonic};
use zeroize::Zeroizing;

use super::config::Config;
use super::sealed::{Attachment, SignedShare, What, statement};

/// Shares of one ciphertext: at most one of each broker, and one proof.
pub(super) struct Collecting<G: PrimeGroup> {
    pub(super) it: Labelled<G>,
    pub(super) header: Vec<u8>,
    /// Bytes of what was delivered.
    pub(super) size: usize,
    trust: Trust<G>,
    /// By broker, as it first came.
    shares: BTreeMap<u16, Share<G>>,
    /// Whose shares combined to something wrong.
    failed: Vec<u16>,
    /// By broker, its signature checked and its proof not.
    proofs: BTreeMap<u16, SignedShare<G>>,
    denied: BTreeSet<u16>,
    /// Who speaks of another ciphertext at this place.
    elsewhere: BTreeSet<u16>,
    /// When it came.
    pub(super) since: Monotonic,
    /// When brokers are asked next, and how often they were.
    pub(super) ask_at: Monotonic,
    pub(super) asks: u32,
}

/// How far shares are believed.
enum Trust<G: PrimeGroup> {
    /// Until t of them combine to something wrong.
    Optimistic,
    /// Only with proof; these have one. Of the convicted nothing more is taken.
    Proved { verified: BTreeMap<u16, (Verified<G>, SignedShare<G>)>, convicted: BTreeSet<u16> },
}

/// What has become of a ciphertext.
pub(super) enum Verdict<G: PrimeGroup> {
    /// More is needed.
    Wait,
    /// t shares combine to something wrong: proofs are needed.
    Doubt,
    /// The plaintext; and who sent us other shares than it proved, or one that is wrong as all others are right.
    Opened(Zeroizing<Vec<u8>>, Vec<u16>),
    /// Nobody can read it, by these shares.
    Bottom(Vec<SignedShare<G>>),
    /// We may not read it, as one honest broker at least finds.
    Denied,
    /// Not what was ordered here: its proof fails for its label, or f + 1 brokers name another.
    NotOrdered,
}

impl<G: PrimeGroup> Collecting<G> {
    pub(super) fn new(
        it: Labelled<G>,
        header: &[u8],
        size: usize,
        since: Monotonic,
        timeout: Duration,
    ) -> Collecting<G> {
        Collecting {
            it,
            header: header.to_vec(),
            size,
            trust: Trust::Optimistic,
            shares: BTreeMap::new(),
            failed: Vec::new(),
            proofs: BTreeMap::new(),
            denied: BTreeSet::new(),
            elsewhere: BTreeSet::new(),
            since,
            ask_at: since + timeout,
            asks: 0,
        }
    }

    /// Takes in what a broker says.
    ///
    /// # Errors
    /// `Conflict` for another ciphertext's, `Auth` for a share of somebody else's or a wrong signature, `Stale` for a proof
    /// under another sharing of the key than ours, `Replay` for a second word.
    pub(super) fn take(&mut self, config: &Config<G>, broker: u16, said: Attachment<G>) -> Result<(), Dropped> {
        if said.ciphertext != *self.it.id() {
            self.elsewhere.insert(broker);
            return Err(Dropped::Conflict);
        }
        match said.what {
            What::Denied => {
                self.denied.insert(broker);
                Ok(())
            }
            What::Share(share) => self.take_share(broker, share),
            What::Proved(signed) => {
                if self.is_judged(broker) || self.proofs.contains_key(&broker) {
                    return Err(Dropped::Replay);
                }
                // Under another sharing it may well be right, so it says nothing about its broker.
                if signed.sharing != config.key.sharing() {
                    return Err(Dropped::Stale);
                }
                let share = *signed.proved.share();
                let statement = statement(&config.cluster, &signed.sharing, self.it.id(), &signed.proved.encode());
                let key = config.brokers.get(usize::from(broker)).ok_or(Dropped::Auth)?;
                if share.index() != broker + 1 || !key.verify(&statement, &signed.signature) {
                    return Err(Dropped::Auth);
                }
                self.proofs.insert(broker, signed);
                self.shares.entry(broker).or_insert(share);
                Ok(())
            }
        }
    }

    fn take_share(&mut self, broker: u16, share: Share<G>) -> Result<(), Dropped> {
        if share.index() != broker + 1 {
            return Err(Dropped::Auth);
        }
        if self.shares.contains_key(&broker) {
            return Err(Dropped::Replay);
        }
        self.shares.insert(broker, share);
        Ok(())
    }

    fn is_judged(&self, broker: u16) -> bool {
        match &self.trust {
            Trust::Optimistic => false,
            Trust::Proved { verified, convicted } => verified.contains_key(&broker) || convicted.contains(&broker),
        }
    }

    /// What it has come to; false proofs that were found on the way go to `liars`, who are not believed unproved.
    pub(super) fn judge(
        &mut self,
        config: &Config<G>,
        combiner: &mut Combiner<G>,
        liars: &BTreeSet<u16>,
        found: &mut Vec<(u16, SignedShare<G>)>,
        rng: &mut impl CryptoRng,
    ) -> Verdict<G> {
        if self.denied.len() > config.faulty() {
            return Verdict::Denied;
        }
        if self.elsewhere.len() > config.faulty() {
            return Verdict::NotOrdered;
        }
        let threshold = config.threshold();
        let first = matches!(self.trust, Trust::Optimistic);
        if first {
            let believed = self.shares.iter().filter(|(broker, _)| !liars.contains(broker));
            let (brokers, believed): (Vec<u16>, Vec<Share<G>>) = believed.take(threshold).unzip();
            if believed.len() < threshold {
                return Verdict::Wait;
            }
            match combiner.combine(&self.it, &believed).expect("t shares of different holders, of this key") {
                Combined::Opened(plaintext) => return Verdict::Opened(plaintext, Vec::new()),
                Combined::NeedProofs | Combined::Bottom(_) => {}
            }
            // Brokers order no ciphertext whose proof fails (S12): then it is not the one, and what others read is.
            if config.key.check(self.it.clone()).is_err() {
                return Verdict::NotOrdered;
            }
            self.failed = brokers;
            self.doubt();
        }
        self.prove(config, found, rng);
        let Trust::Proved { verified, .. } = &self.trust else { unreachable!("just doubted") };
        if verified.len() < threshold {
            return if first { Verdict::Doubt } else { Verdict::Wait };
        }
        let right: Vec<Verified<G>> = verified.values().map(|(right, _)| *right).collect();
        match combiner.combine_verified(&self.it, &right).expect("verified for this ciphertext and key") {
            Combined::Opened(plaintext) => {
                let sent = |broker: &u16, (right, _): &(Verified<G>, SignedShare<G>)| {
                    self.shares.get(broker) == Some(right.proved().share())
                };
                let mut lied: Vec<u16> = verified.iter().filter(|(of, it)| !sent(of, it)).map(|(of, _)| *of).collect();
                // One of those that failed is wrong: whoever is left, though it proves nothing.
                let is_right = |broker: &&u16| verified.get(broker).is_some_and(|it| sent(broker, it));
                let mut left = self.failed.iter().filter(|it| !is_right(it));
                if let (Some(only), None) = (left.next(), left.next())
                    && !lied.contains(only)
                {
                    lied.push(*only);
                }
                Verdict::Opened(plaintext, lied)
            }
            Combined::Bottom(shares) => {
                let signed = |share: &Verified<G>| verified.values().find(|(right, _)| right == share).map(|it| it.1);
                Verdict::Bottom(shares.iter().filter_map(signed).collect())
            }
            Combined::NeedProofs => unreachable!("proved shares need no proofs"),
        }
    }

    /// Brokers whose share is here and may be right: of those that are not believed, and once it is doubted, only with proof.
    pub(super) fn holders(&self, liars: &BTreeSet<u16>) -> BTreeSet<u16> {
        match &self.trust {
            Trust::Optimistic => self.shares.keys().filter(|broker| !liars.contains(broker)).copied().collect(),
            Trust::Proved { verified, .. } => verified.keys().chain(self.proofs.keys()).copied().collect(),
        }
    }

    /// From now on shares count with proof only.
    pub(super) fn doubt(&mut self) {
        if let Trust::Optimistic = self.trust {
            self.trust = Trust::Proved { verified: BTreeMap::new(), convicted: BTreeSet::new() };
        }
    }

    /// Whether shares count with proof only.
    pub(super) fn doubts(&self) -> bool {
        matches!(self.trust, Trust::Proved { .. })
    }

    /// Whether only brokers that are not believed keep it from being tried.
    pub(super) fn has_enough(&self, threshold: usize) -> bool {
        self.shares.len() >= threshold
    }

    /// Verifies all proofs at once, as soon as they can suffice.
    fn prove(&mut self, config: &Config<G>, found: &mut Vec<(u16, SignedShare<G>)>, rng: &mut impl CryptoRng) {
        let Trust::Proved { verified, convicted } = &mut self.trust else { return };
        if self.proofs.is_empty() || verified.len() + self.proofs.len() < config.threshold() {
            return;
        }
        let proofs: Vec<(u16, SignedShare<G>)> = std::mem::take(&mut self.proofs).into_iter().collect();
        let batch: Vec<_> = proofs.iter().map(|(_, signed)| (&self.it, signed.proved)).collect();
        for ((broker, signed), right) in proofs.iter().zip(config.key.verify_shares(&batch, rng)) {
            match right {
                Ok(right) => {
                    verified.insert(*broker, (right, *signed));
                }
                Err(_) => {
                    convicted.insert(*broker);
                    found.push((*broker, *signed));
                }
            }
        }
    }
}
