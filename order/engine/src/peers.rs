//! What this broker notices of the others on its links: who was heard, who was cut off, and who contradicts itself.

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};

use commonware_actor::Feedback;
use commonware_cryptography::ed25519::PublicKey;
use commonware_p2p::{BlockedSubscription, Blocker, Message, Receiver};

use super::shared::Shared;
use super::watch::{Judge, lock};

/// Counts whom upstream cuts off. Upstream itself says so to its tracing alone.
#[derive(Clone)]
pub(super) struct CutOff<B> {
    pub(super) shared: Arc<Shared>,
    /// All brokers, by index.
    pub(super) brokers: Arc<Vec<PublicKey>>,
    pub(super) blocker: B,
}

impl<B: Blocker<PublicKey = PublicKey>> Blocker for CutOff<B> {
    type PublicKey = PublicKey;

    fn block(&mut self, peer: PublicKey) -> Feedback {
        if let Some(broker) = self.brokers.iter().position(|key| *key == peer) {
            self.shared.cut_off(broker);
        }
        self.blocker.block(peer)
    }

    fn blocked(&mut self) -> BlockedSubscription<PublicKey> {
        self.blocker.blocked()
    }
}

/// Counts the messages of each broker on one link.
#[derive(Debug)]
pub(super) struct Heard<R> {
    pub(super) counts: Counts,
    /// Who else listens.
    pub(super) tap: Option<Tap>,
    pub(super) receiver: R,
}

/// What votes and certificates are looked at for, beside upstream.
#[derive(Clone, Debug)]
pub(super) enum Tap {
    Votes(Arc<Mutex<Judge>>),
    Certificates(Arc<Mutex<Judge>>),
}

/// Where they are counted.
#[derive(Clone)]
pub(super) struct Counts {
    pub(super) shared: Arc<Shared>,
    /// All brokers, by index.
    pub(super) brokers: Arc<Vec<PublicKey>>,
}

impl std::fmt::Debug for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Counts")
    }
}

impl<R: Receiver<PublicKey = PublicKey>> Receiver for Heard<R> {
    type Error = R::Error;
    type PublicKey = PublicKey;

    async fn recv(&mut self) -> Result<Message<PublicKey>, R::Error> {
        let message = self.receiver.recv().await?;
        if let Some(broker) = self.counts.brokers.iter().position(|key| *key == message.0) {
            self.counts.shared.heard(broker);
            match &self.tap {
                Some(Tap::Votes(judge)) => lock(judge).hear_vote(broker, message.1.as_ref()),
                Some(Tap::Certificates(judge)) => lock(judge).hear_certificate(message.1.as_ref()),
                None => {}
            }
        }
        Ok(message)
    }

    fn capacity(&self) -> NonZeroUsize {
        self.receiver.capacity()
    }
}
