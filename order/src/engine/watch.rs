//! Listens to what simplex reports: the current view and leader, and brokers that contradict themselves.

use std::sync::Arc;

use commonware_actor::Feedback;
use commonware_codec::Encode as _;
use commonware_consensus::simplex::elector::{Config as _, Elector as _, RoundRobin, RoundRobinElector};
use commonware_consensus::simplex::scheme::ed25519::Scheme;
use commonware_consensus::simplex::types::{Activity, Attributable as _};
use commonware_consensus::types::{Participant, Round, TermLength, View};
use commonware_consensus::{Epochable as _, Reporter, Viewable as _};
use commonware_cryptography::certificate::Scheme as _;
use commonware_cryptography::sha256::Digest;
use commonware_parallel::Sequential;
use rand_chacha::ChaCha20Rng;

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
    pub(super) next: R,
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
            Activity::ConflictingNotarize(e) if e.verify(&mut self.rng, &self.scheme, &Sequential) => {
                self.caught(e.signer(), e.view(), Misdeed::TwoNotarizeVotes, e.encode().to_vec());
            }
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
