//! Everything that upstream calls ALPHA, in this one file: `consensus::Application` and `marshal::standard::Inline`.
//!
//! `Inline` joins simplex with marshal: it fetches a proposal's parent, asks the application, keeps the block until
//! it is durable and only then lets simplex go on. It holds the notarize vote back until the application has judged
//! the whole block. (`Deferred` votes first and judges before the finalize vote; it hides the cost of signatures,
//! but a notarisation would then not mean that anyone had looked at the block.)

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use commonware_consensus::marshal::ancestry::Ancestry;
use commonware_consensus::marshal::core::Mailbox;
use commonware_consensus::marshal::standard::{Inline, Standard};
use commonware_consensus::simplex::scheme::ed25519::Scheme;
use commonware_consensus::simplex::types::Context;
use commonware_consensus::types::FixedEpocher;
use commonware_cryptography::ed25519::PublicKey;
use commonware_cryptography::{Digested, sha256};
use commonware_runtime::{Clock, Metrics, Spawner};
use futures::future::{Either, select};
use futures::{FutureExt as _, StreamExt as _};
use sealcast_order::{Block, BlockSize, Parent};

use super::codec::{self, EngineBlock};
use super::shared::Shared;

/// What simplex drives: our hooks behind upstream's glue.
pub(super) type Glue<E> = Inline<E, Scheme, Hooks, EngineBlock, FixedEpocher>;

pub(super) fn glue<E: Spawner + Clock + Metrics>(
    context: E,
    hooks: Hooks,
    marshal: Mailbox<Scheme, Standard<EngineBlock>>,
    epochs: FixedEpocher,
) -> Glue<E> {
    Inline::new(context, hooks, marshal, epochs)
}

/// The application's hooks in upstream's form.
#[derive(Clone)]
pub(super) struct Hooks {
    pub(super) shared: Arc<Shared>,
    /// How much a block of ours holds.
    pub(super) size: BlockSize,
    /// How long a leader without batches waits before it proposes an empty block.
    pub(super) heartbeat: Duration,
    /// How far ahead of our clock a block's time may be before we wait for our clock.
    pub(super) drift: Duration,
}

impl<E: Spawner + Clock + Metrics> commonware_consensus::Application<E> for Hooks {
    type SigningScheme = Scheme;
    type Context = Context<sha256::Digest, PublicKey>;
    type Block = EngineBlock;
    type Input = ();

    async fn propose(
        &mut self,
        (context, _): (E, Self::Context),
        ancestry: impl Ancestry<EngineBlock>,
        (): (),
    ) -> Option<Digested<EngineBlock>> {
        let ancestors = self.in_flight(ancestry).await?;
        let last = ancestors.parent();
        let deadline = context.current() + self.heartbeat;
        let batches = loop {
            let woken = self.shared.batches.notified();
            let batches = self.shared.application.propose(&ancestors.as_parent(), self.size);
            if !batches.is_empty() {
                break batches;
            }
            match select(Box::pin(woken), Box::pin(context.sleep_until(deadline))).await {
                Either::Left(_) => {}
                Either::Right(_) => break Vec::new(),
            }
        };
        let time = last.time.max(micros(context.current()));
        let block = Block { parent: ancestors.hash, height: last.height + 1, time, batches };
        if !block.fits(self.size) {
            // The application drew more than it was asked for.
            return None;
        }
        let hash = block.hash();
        Some(EngineBlock::from(block).digested(hash))
    }

    async fn verify(&mut self, (context, _): (E, Self::Context), mut ancestry: impl Ancestry<EngineBlock>) -> bool {
        let Some(block) = ancestry.next().await.as_ref().map(codec::shared) else { return false };
        let Some(ancestors) = self.in_flight(ancestry).await else { return false };
        // Height and parent hash are checked by the glue; size, the same at all brokers, by the decoder.
        if block.time < ancestors.parent().time {
            return false;
        }
        // A time ahead of our clock may become true: abstain until it has. So f brokers cannot push time ahead (E10).
        let not_before = UNIX_EPOCH + Duration::from_micros(block.time);
        context.sleep_until(not_before.checked_sub(self.drift).unwrap_or(UNIX_EPOCH)).await;
        let shared = self.shared.clone();
        context
            .child("valid")
            .shared(true)
            .spawn(move |_| async move { shared.application.valid(&ancestors.as_parent(), &block) })
            .map(|verdict| verdict.unwrap_or(false))
            .await
    }
}

/// The parent of a proposal and those of its ancestors that are not acknowledged yet.
struct InFlight {
    blocks: Vec<Arc<Block>>,
    hash: [u8; 32],
    acknowledged: u64,
}

impl Hooks {
    async fn in_flight(&self, mut ancestry: impl Ancestry<EngineBlock>) -> Option<InFlight> {
        let acknowledged = self.shared.status().height;
        let parent = ancestry.next().await?;
        let hash = commonware_cryptography::Digestible::digest(&parent).0;
        let mut blocks = vec![codec::shared(&parent)];
        while blocks.last().expect("it begins with the parent").height > acknowledged + 1 {
            blocks.push(codec::shared(&ancestry.next().await?));
        }
        Some(InFlight { blocks, hash, acknowledged })
    }
}

impl InFlight {
    fn parent(&self) -> &Block {
        &self.blocks[0]
    }

    fn as_parent(&self) -> Parent<'_> {
        let parent = self.parent();
        // A parent that is acknowledged itself is no longer in flight.
        let ancestors = if parent.height > self.acknowledged { &self.blocks[..] } else { &[] };
        Parent { height: parent.height, hash: self.hash, time: parent.time, ancestors }
    }
}

fn micros(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use commonware_consensus::Application as _;
    use commonware_consensus::marshal::ancestry::from_iter;
    use commonware_consensus::types::{Epoch, Round, View};
    use commonware_cryptography::Signer as _;
    use commonware_cryptography::ed25519::PrivateKey;
    use commonware_runtime::deterministic::{self, Runner};
    use commonware_runtime::{Runner as _, Supervisor as _};
    use sealcast_order::{Application as _, Batch, Origin};
    use sealcast_order_testing::Ledger;

    use super::*;

    const SIZE: BlockSize = BlockSize { batches: 8, bytes: 4096 };

    fn hooks(ledger: &Arc<Ledger>) -> Hooks {
        let shared = Arc::new(Shared::new(ledger.clone(), 4));
        Hooks { shared, size: SIZE, heartbeat: Duration::from_millis(150), drift: Duration::from_secs(1) }
    }

    fn digested(block: Block) -> Digested<EngineBlock> {
        let hash = block.hash();
        EngineBlock::from(block).digested(hash)
    }

    fn round(context: &deterministic::Context) -> (deterministic::Context, Context<sha256::Digest, PublicKey>) {
        let leader = PrivateKey::from_seed(0).public_key();
        let round = Round::new(Epoch::zero(), View::new(2));
        (context.child("call"), Context { round, leader, parent: (View::new(1), sha256::Digest([0; 32])) })
    }

    fn parent(time: u64) -> Block {
        Block { time, ..Block::genesis(b"test") }
    }

    fn child(time: u64, batches: Vec<Batch>) -> Block {
        Block { parent: parent(5_000_000).hash(), height: 1, time, batches }
    }

    #[test]
    fn rule_e10_time_never_goes_back_and_not_ahead_of_the_clock() {
        Runner::default().start(|context| async move {
            let mut hooks = hooks(&Arc::new(Ledger::new()));
            let parent = digested(parent(5_000_000));
            let chain = |time| from_iter([digested(child(time, Vec::new())), parent.clone()]);
            assert!(!hooks.verify(round(&context), chain(4_999_999)).await);
            // The clock shows 0 s; a block of 5 s is judged once the clock shows 4 s, a second of drift before.
            assert!(hooks.verify(round(&context), chain(5_000_000)).await);
            assert!(micros(context.current()) >= 4_000_000);
        });
    }

    #[test]
    fn rule_e14_an_idle_leader_is_woken_by_a_batch_and_else_proposes_nothing_in_it() {
        Runner::default().start(|context| async move {
            let ledger = Arc::new(Ledger::new());
            let mut hooks = hooks(&ledger);
            let chain = || from_iter([digested(parent(0))]);
            let idle = hooks.propose(round(&context), chain(), ()).await.expect("it proposes");
            assert!(idle.inner().batches.is_empty() && micros(context.current()) >= 150_000);

            let (shared, pool) = (hooks.shared.clone(), ledger.clone());
            let begun = context.current();
            context.child("client").spawn(move |context| async move {
                context.sleep(Duration::from_millis(20)).await;
                pool.receive(Origin::Here, Batch::new(&b"batch"[..])).expect("there is room");
                shared.batches.notify_waiters();
            });
            let woken = hooks.propose(round(&context), chain(), ()).await.expect("it proposes");
            assert_eq!(woken.inner().batches, [Batch::new(&b"batch"[..])]);
            assert!(context.current() < begun + Duration::from_millis(100), "it did not wait for the heartbeat");
            assert!(woken.inner().time >= idle.inner().time);
        });
    }

    #[test]
    fn what_the_application_refuses_is_refused() {
        Runner::default().start(|context| async move {
            let mut hooks = hooks(&Arc::new(Ledger::new()));
            let chain = |text: &'static str| {
                let block = child(5_000_000, vec![Batch::new(text.as_bytes())]);
                from_iter([digested(block), digested(parent(5_000_000))])
            };
            assert!(hooks.verify(round(&context), chain("good")).await);
            assert!(!hooks.verify(round(&context), chain("bad")).await);
        });
    }
}
