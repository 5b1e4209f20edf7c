//! Listens to what simplex reports: the current view and leader, and brokers that contradict themselves.

use std::collections::BTreeMap;
use std::sync::Arc;

use commonware_actor::Feedback;
use commonware_codec::Encode as _;
use commonware_consensus::simplex::elector::{Config as _, Elector as _, RoundRobin, RoundRobinElector};
use commonware_consensus::simplex::scheme::ed25519::Scheme;
use commonware_consensus::simplex::types::{Activity, Attributable as _, ConflictingNotarize, Notarization, Notarize};
use commonware_consensus::types::{Participant, Round, TermLength, View};
use commonware_consensus::{Epochable as _, Reporter, Viewable as _};
use commonware_cryptography::certificate::{Attestation, Scheme as _};
use commonware_cryptography::sha256::Digest;
use commonware_parallel::Sequential;
use rand_chacha::ChaCha20Rng;
use sealcast_wire::limits;

use super::shared::Shared;
use crate::order::{Evidence, Misdeed};

/// Sits between simplex and `next`, which hears everything too.
#[derive(Clone)]
pub(super) struct Watch<R> {
    pub(super) shared: Arc<Shared>,
    pub(super) schedule: Schedule,
    pub(super) scheme: Scheme,
    /// Upstream's verification draws weights from it.
    pub(super) rng: ChaCha20Rng,
    pub(super) votes: Votes,
    pub(super) next: R,
}

/// The vote of each broker to notarize a block, of the latest views, by view and broker.
///
/// Upstream compares votes with each other, and a leader's proposal with certificates. It reports the first kind of
/// contradiction; for the second it closes the channel without a word, though a certificate holds its signers' votes.
#[derive(Clone, Default)]
pub(super) struct Votes(BTreeMap<(View, Participant), Notarize<Scheme, Digest>>);

impl Votes {
    /// A vote comes alone. Its signature may be false.
    fn single(&mut self, vote: &Notarize<Scheme, Digest>) -> Option<ConflictingNotarize<Scheme, Digest>> {
        let known = self.0.entry((vote.view(), vote.signer())).or_insert_with(|| vote.clone());
        let conflict = (known.proposal != vote.proposal).then(|| ConflictingNotarize::new(known.clone(), vote.clone()));
        self.bound();
        conflict
    }

    /// A certificate, which upstream has verified, brings the votes of its signers.
    fn certified(&mut self, it: &Notarization<Scheme, Digest>) -> Vec<ConflictingNotarize<Scheme, Digest>> {
        let mut conflicts = Vec::new();
        for (signer, signature) in it.certificate.signers.iter().zip(&it.certificate.signatures) {
            let attestation = Attestation { signer, signature: signature.clone() };
            let vote = Notarize { proposal: it.proposal.clone(), attestation };
            let known = self.0.insert((it.view(), signer), vote.clone());
            let other = known.filter(|known| known.proposal != vote.proposal);
            conflicts.extend(other.map(|other| ConflictingNotarize::new(other, vote)));
        }
        self.bound();
        conflicts
    }

    fn bound(&mut self) {
        while self.0.len() > limits::NOTARIZE_VOTES_REMEMBERED {
            self.0.pop_first();
        }
    }
}

/// Who leads when.
#[derive(Clone)]
pub(super) struct Schedule {
    elector: RoundRobinElector<Scheme>,
    term: TermLength,
    /// Index in the caller's list of brokers, by index in the engine's sorted one.
    indices: Arc<Vec<usize>>,
}

impl Schedule {
    pub(super) fn new(elector: RoundRobin, term: TermLength, scheme: &Scheme, indices: Arc<Vec<usize>>) -> Schedule {
        Schedule { elector: elector.build(scheme.participants()), term, indices }
    }

    pub(super) fn leader(&self, round: Round) -> usize {
        self.index(self.elector.elect(round, ()))
    }

    fn index(&self, participant: Participant) -> usize {
        self.indices[usize::try_from(participant.get()).expect("an index fits usize")]
    }
}

impl<R: Reporter<Activity = Activity<Scheme, Digest>>> Watch<R> {
    fn entered(&self, round: Round, view: View, skipped: bool) {
        self.shared.entered(view.get(), self.schedule.leader(Round::new(round.epoch(), view)), skipped);
    }

    fn caught(&self, broker: Participant, view: View, misdeed: Misdeed, proof: Vec<u8>) {
        self.shared.caught(Evidence { broker: self.schedule.index(broker), view: view.get(), misdeed, proof });
    }
}

impl<R: Reporter<Activity = Activity<Scheme, Digest>>> Watch<R> {
    /// Two votes for different blocks; false signatures prove nothing.
    fn conflict(&mut self, e: &ConflictingNotarize<Scheme, Digest>) {
        if e.verify(&mut self.rng, &self.scheme, &Sequential) {
            self.caught(e.signer(), e.view(), Misdeed::TwoNotarizeVotes, e.encode().to_vec());
        }
    }
}

impl<R: Reporter<Activity = Activity<Scheme, Digest>>> Reporter for Watch<R> {
    type Activity = Activity<Scheme, Digest>;

    fn report(&mut self, activity: Self::Activity) -> Feedback {
        match &activity {
            Activity::Certification(n) => self.entered(Round::new(n.epoch(), n.view()), n.view().next(), false),
            Activity::Notarize(vote) => {
                let conflict = self.votes.single(vote);
                conflict.iter().for_each(|it| self.conflict(it));
            }
            Activity::Notarization(n) => {
                let conflicts = self.votes.certified(n);
                conflicts.iter().for_each(|it| self.conflict(it));
            }
            Activity::Finalization(f) => self.entered(Round::new(f.epoch(), f.view()), f.view().next(), false),
            // Skipping a view skips what is left of its leader's term.
            Activity::Nullification(n) => {
                self.entered(Round::new(n.epoch(), n.view()), n.view().next_term_start(self.schedule.term), true);
            }
            Activity::ConflictingNotarize(e) => self.conflict(e),
            Activity::ConflictingFinalize(e) if e.verify(&mut self.rng, &self.scheme, &Sequential) => {
                self.caught(e.signer(), e.view(), Misdeed::TwoFinalizeVotes, e.encode().to_vec());
            }
            Activity::NullifyFinalize(e) if e.verify(&mut self.rng, &self.scheme, &Sequential) => {
                self.caught(e.signer(), e.view(), Misdeed::SkippedAndFinalized, e.encode().to_vec());
            }
            // Single votes; and contradictions whose signatures are false, which prove nothing.
            _ => {}
        }
        self.next.report(activity)
    }
}

#[cfg(test)]
mod tests {
    use commonware_consensus::simplex::types::Proposal;
    use commonware_consensus::types::Epoch;
    use commonware_utils::non_empty;
    use rand_core::SeedableRng as _;

    use super::super::SigningSeed;
    use super::super::proof::judge;
    use super::super::stack::{Members, namespace_of};
    use super::*;

    #[test]
    fn rule_e4_a_vote_beside_a_certificate_for_another_block_convicts_whoever_signed_both() {
        let seeds: Vec<SigningSeed> = (1..5).map(|i| SigningSeed::new(&[i; 32])).collect();
        let keys: Vec<[u8; 32]> = seeds.iter().map(SigningSeed::public).collect();
        let scheme = |i: usize| {
            let Members { sorted, .. } = Members::of(keys.iter()).expect("they are keys");
            Scheme::signer(&namespace_of(b"test"), sorted, seeds[i].0.clone()).expect("it is one of them")
        };
        let vote = |i: usize, view: u64, block: u8| {
            let round = Round::new(Epoch::zero(), View::new(view));
            Notarize::sign(&scheme(i), Proposal::new(round, View::zero(), Digest([block; 32]))).expect("it signs")
        };
        let certificate = |view: u64, block: u8| {
            let votes: Vec<_> = (1..4).map(|i| vote(i, view, block)).collect();
            Notarization::from_notarizes(&scheme(0), non_empty![@votes.iter()], &Sequential).expect("a quorum")
        };
        let convicted = |it: &ConflictingNotarize<Scheme, Digest>| {
            let shown = judge(&keys, b"test", &it.encode()).expect("it convicts");
            assert!(it.verify(&mut ChaCha20Rng::from_seed([0; 32]), &scheme(0), &Sequential));
            (shown.broker, shown.view)
        };
        // The vote comes first, and the certificate first; brokers 1 and 2 said the same each time.
        let mut votes = Votes::default();
        assert!(votes.single(&vote(1, 7, 8)).is_none() && votes.single(&vote(3, 7, 9)).is_none());
        let found: Vec<_> = votes.certified(&certificate(7, 8)).iter().map(convicted).collect();
        assert_eq!(found, [(3, 7)]);
        assert!(votes.certified(&certificate(8, 8)).is_empty());
        assert!(votes.single(&vote(1, 8, 8)).is_none() && votes.single(&vote(0, 8, 9)).is_none());
        assert_eq!(votes.single(&vote(3, 8, 9)).as_ref().map(convicted), Some((3, 8)));
        for view in 0..2 * limits::NOTARIZE_VOTES_REMEMBERED as u64 {
            votes.0.insert((View::new(100 + view), Participant::new(0)), vote(0, 1, 1));
            votes.bound();
        }
        assert_eq!(votes.0.len(), limits::NOTARIZE_VOTES_REMEMBERED);
    }
}
