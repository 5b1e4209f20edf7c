//! Listens to what simplex reports: the current view and leader, and brokers that contradict themselves.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use commonware_actor::Feedback;
use commonware_codec::types::lazy::Lazy;
use commonware_codec::{Copying, Decode as _, Encode as _};
use commonware_consensus::simplex::elector::{Config as _, Elector as _, RoundRobin, RoundRobinElector};
use commonware_consensus::simplex::scheme::ed25519::Scheme;
use commonware_consensus::simplex::types::{
    Activity, Attributable as _, Certificate, ConflictingNotarize, Notarization, Notarize, Vote,
};
use commonware_consensus::types::{Participant, Round, TermLength, View};
use commonware_consensus::{Epochable as _, Reporter, Viewable as _};
use commonware_cryptography::certificate::{Attestation, Scheme as _, Verifier as _};
use commonware_cryptography::ed25519::Signature;
use commonware_cryptography::sha256::Digest;
use commonware_parallel::Sequential;
use rand_chacha::ChaCha20Rng;
use sealcast_order::{Evidence, Misbehaviour};
use sealcast_wire::limits;

use super::shared::Shared;

/// Sits between simplex and `next`, which hears everything too.
#[derive(Clone)]
pub(super) struct Watch<R> {
    pub(super) shared: Arc<Shared>,
    pub(super) schedule: Schedule,
    pub(super) judge: Arc<Mutex<Judge>>,
    pub(super) next: R,
}

/// Finds brokers that contradict themselves, in what simplex reports and in what comes on the links: simplex closes the
/// channel of a leader whose proposal a certificate contradicts, and reports neither.
pub(super) struct Judge {
    shared: Arc<Shared>,
    schedule: Schedule,
    scheme: Scheme,
    /// Upstream's verification draws weights from it.
    rng: ChaCha20Rng,
    votes: Votes,
}

/// The votes of each broker to notarize blocks, of the latest views, by view and broker.
///
/// Upstream compares votes with each other, and a leader's proposal with certificates. It reports the first kind of
/// contradiction; for the second it closes the channel without a word, though a certificate holds its signers' votes.
#[derive(Clone, Default)]
struct Votes(BTreeMap<(View, Participant), Vec<Notarize<Scheme, Digest>>>);

impl Votes {
    /// A vote comes, whose signature may be false; those for other blocks that it contradicts.
    fn add(&mut self, vote: Notarize<Scheme, Digest>) -> Vec<ConflictingNotarize<Scheme, Digest>> {
        let known = self.0.entry((vote.view(), vote.signer())).or_default();
        if known.len() == VOTES_PER_VIEW || known.contains(&vote) {
            return Vec::new();
        }
        let others = known.iter().filter(|known| known.proposal != vote.proposal);
        let conflicts = others.map(|known| ConflictingNotarize::new(known.clone(), vote.clone())).collect();
        known.push(vote);
        while self.0.len() > limits::NOTARIZE_VOTES_REMEMBERED {
            self.0.pop_first();
        }
        conflicts
    }

    /// A certificate brings the votes of its signers.
    fn certified(&mut self, it: &Notarization<Scheme, Digest>) -> Vec<ConflictingNotarize<Scheme, Digest>> {
        let signed = it.certificate.signers.iter().zip(&it.certificate.signatures);
        let vote = |(signer, signature): (Participant, &Lazy<Signature>)| {
            let attestation = Attestation { signer, signature: signature.clone() };
            Notarize { proposal: it.proposal.clone(), attestation }
        };
        signed.map(vote).collect::<Vec<_>>().into_iter().flat_map(|vote| self.add(vote)).collect()
    }
}

impl Judge {
    pub(super) fn new(shared: Arc<Shared>, schedule: Schedule, scheme: Scheme, rng: ChaCha20Rng) -> Judge {
        Judge { shared, schedule, scheme, rng, votes: Votes::default() }
    }

    /// What a broker says on the link for votes. What cannot be read is upstream's to judge.
    pub(super) fn hear_vote(&mut self, broker: usize, bytes: &[u8]) {
        if let Ok(Vote::Notarize(vote)) = Vote::<Scheme, Digest>::decode_cfg(Copying(bytes), &())
            && self.is_near(vote.view())
            && self.scheme.participants().get(usize::from(vote.signer())).is_some()
            && self.schedule.index(vote.signer()) == broker
        {
            let conflicts = self.votes.add(vote);
            self.look_at(&conflicts);
        }
    }

    /// What a broker says on the link for certificates: the votes in one need not be right.
    pub(super) fn hear_certificate(&mut self, bytes: &[u8]) {
        let config = self.scheme.certificate_codec_config();
        if let Ok(Certificate::Notarization(it)) = Certificate::<Scheme, Digest>::decode_cfg(Copying(bytes), &config)
            && self.is_near(it.view())
        {
            let conflicts = self.votes.certified(&it);
            self.look_at(&conflicts);
        }
    }

    /// Votes for views that are far off would only take the room of others.
    fn is_near(&self, view: View) -> bool {
        view.get() <= self.shared.status().view.saturating_add(VIEWS_NEAR)
    }

    /// Two votes for different blocks each; false signatures prove nothing.
    fn look_at(&mut self, conflicts: &[ConflictingNotarize<Scheme, Digest>]) {
        for it in conflicts {
            if it.verify(&mut self.rng, &self.scheme, &Sequential) {
                self.caught(it.signer(), it.view(), Misbehaviour::TwoNotarizeVotes, it.encode().to_vec());
            }
        }
    }

    fn caught(&self, broker: Participant, view: View, misbehaviour: Misbehaviour, proof: Vec<u8>) {
        self.shared.caught(Evidence { broker: self.schedule.index(broker), view: view.get(), misbehaviour, proof });
    }

    fn report(&mut self, activity: &Activity<Scheme, Digest>) {
        match activity {
            Activity::Notarize(vote) => {
                let conflicts = self.votes.add(vote.clone());
                self.look_at(&conflicts);
            }
            Activity::Notarization(n) => {
                let conflicts = self.votes.certified(n);
                self.look_at(&conflicts);
            }
            Activity::ConflictingNotarize(e) => self.look_at(std::slice::from_ref(e)),
            Activity::ConflictingFinalize(e) if e.verify(&mut self.rng, &self.scheme, &Sequential) => {
                self.caught(e.signer(), e.view(), Misbehaviour::TwoFinalizeVotes, e.encode().to_vec());
            }
            Activity::NullifyFinalize(e) if e.verify(&mut self.rng, &self.scheme, &Sequential) => {
                self.caught(e.signer(), e.view(), Misbehaviour::SkippedAndFinalized, e.encode().to_vec());
            }
            // Single votes; and contradictions whose signatures are false, which prove nothing.
            _ => {}
        }
    }
}

impl std::fmt::Debug for Judge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Judge")
    }
}

/// So many votes of one broker in one view are compared: honest ones have one.
const VOTES_PER_VIEW: usize = 4;
/// Views ahead of this broker's whose votes are remembered.
const VIEWS_NEAR: u64 = 64;

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
}

impl<R: Reporter<Activity = Activity<Scheme, Digest>>> Reporter for Watch<R> {
    type Activity = Activity<Scheme, Digest>;

    fn report(&mut self, activity: Self::Activity) -> Feedback {
        match &activity {
            Activity::Certification(n) => self.entered(Round::new(n.epoch(), n.view()), n.view().next(), false),
            Activity::Finalization(f) => self.entered(Round::new(f.epoch(), f.view()), f.view().next(), false),
            // Skipping a view skips what is left of its leader's term.
            Activity::Nullification(n) => {
                self.entered(Round::new(n.epoch(), n.view()), n.view().next_term_start(self.schedule.term), true);
            }
            it => lock(&self.judge).report(it),
        }
        self.next.report(activity)
    }
}

/// What one thread left half done another goes on with: nothing here spans two calls.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use commonware_consensus::simplex::types::Proposal;
    use commonware_consensus::types::Epoch;
    use commonware_utils::non_empty;
    use rand_core::SeedableRng as _;

    use super::super::SigningSeed;
    use super::super::proof::judge;
    use super::super::stack::{Members, namespace_of, signer};
    use super::*;

    #[test]
    fn rule_e4_a_vote_beside_a_certificate_for_another_block_convicts_whoever_signed_both() {
        let seeds: Vec<SigningSeed> = (1..5).map(|i| SigningSeed::new(&[i; 32])).collect();
        let keys: Vec<[u8; 32]> = seeds.iter().map(SigningSeed::public).collect();
        let scheme = |i: usize| {
            let Members { sorted, .. } = Members::of(keys.iter()).expect("they are keys");
            Scheme::signer(&namespace_of(b"test"), sorted, signer(&seeds[i])).expect("it is one of them")
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
        assert!(votes.add(vote(1, 7, 8)).is_empty() && votes.add(vote(3, 7, 9)).is_empty());
        let found: Vec<_> = votes.certified(&certificate(7, 8)).iter().map(convicted).collect();
        assert_eq!(found, [(3, 7)]);
        assert!(votes.certified(&certificate(8, 8)).is_empty());
        assert!(votes.add(vote(1, 8, 8)).is_empty() && votes.add(vote(0, 8, 9)).is_empty());
        assert_eq!(votes.add(vote(3, 8, 9)).iter().map(convicted).collect::<Vec<_>>(), [(3, 8)]);
        assert!(votes.add(vote(3, 8, 9)).is_empty(), "once");
        for view in 0..2 * limits::NOTARIZE_VOTES_REMEMBERED as u64 {
            votes.add(vote(0, 100 + view, 1));
        }
        assert_eq!(votes.0.len(), limits::NOTARIZE_VOTES_REMEMBERED);
    }
}
