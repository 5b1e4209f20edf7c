//! Brings batches to the broker that leads, and takes those that others bring (E14).
//!
//! Simplex asks only the leader for a block, so a batch that waits elsewhere would wait for its own broker's turn.
//! Each batch is therefore sent to the leader when it is submitted. When the leader changes, or a link had no room,
//! what waits is sent from the pool, a few blocks ahead of what is delivered. And what still waits after a while is
//! sent once more: a message may have been lost on the way.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use commonware_cryptography::ed25519::PublicKey;
use commonware_p2p::{Receiver, Recipients, Sender};
use commonware_runtime::{Clock, Spawner};
use commonware_utils::channel::mpsc;
use futures::FutureExt as _;
use sealcast_order::{Batch, BlockSize, Hash, Origin};
use sealcast_wire::limits;

use super::codec;
use super::shared::Shared;

pub(super) struct Forward {
    pub(super) shared: Arc<Shared>,
    /// How much is sent at once.
    pub(super) size: BlockSize,
    /// The brokers in the caller's order.
    pub(super) brokers: Vec<PublicKey>,
    pub(super) me: usize,
    /// How long a batch waits before it is sent once more.
    pub(super) again: Duration,
}

/// What the leaders were sent.
#[derive(Default)]
struct Sent {
    leader: usize,
    /// By leader: one who leads again has them in its pool, and is not sent them again.
    batches: BTreeMap<usize, BTreeSet<Hash>>,
    /// Batches wait that this leader was not sent.
    behind: bool,
    /// What waited when we looked last.
    waited: BTreeSet<Hash>,
}

impl Forward {
    pub(super) async fn run<E, S, R>(
        self,
        context: E,
        mut submitted: mpsc::Receiver<Batch>,
        (mut sender, mut receiver): (S, R),
    ) where
        E: Clock + Spawner,
        S: Sender<PublicKey = PublicKey>,
        R: Receiver<PublicKey = PublicKey>,
    {
        let mut sent = Sent { leader: self.shared.status().leader, behind: true, ..Sent::default() };
        let mut next = context.current() + self.again;
        loop {
            let look = self.shared.look.notified();
            futures::select_biased! {
                batch = submitted.recv().fuse() => {
                    let Some(batch) = batch else { return };
                    let mut batches = vec![batch];
                    while batches.len() < self.size.batches
                        && let Ok(batch) = submitted.try_recv()
                    {
                        batches.push(batch);
                    }
                    // When behind, they are sent in their turn, from the pool.
                    if !sent.behind {
                        self.send(&mut sender, &mut sent, batches);
                    }
                }
                message = receiver.recv().fuse() => {
                    let Ok((from, message)) = message else { return };
                    self.take(&from, message);
                }
                () = look.fuse() => {}
                () = context.sleep_until(next).fuse() => {
                    self.send_again(&mut sender, &mut sent);
                    next = context.current() + self.again;
                }
            }
            self.catch_up(&mut sender, &mut sent);
        }
    }

    /// Sends a new leader, or one that was not sent everything, what waits.
    fn catch_up(&self, sender: &mut impl Sender<PublicKey = PublicKey>, sent: &mut Sent) {
        let leader = self.shared.status().leader;
        let overflowed = self.shared.overflowed.swap(false, Ordering::AcqRel);
        if sent.leader != leader {
            (sent.leader, sent.behind) = (leader, true);
        }
        sent.behind |= overflowed;
        if !sent.behind || leader == self.me {
            return;
        }
        let ahead = BlockSize { batches: self.size.batches * BLOCKS_AHEAD, bytes: self.size.bytes * BLOCKS_AHEAD };
        let waiting = self.shared.application.waiting(ahead);
        let bytes: usize = waiting.iter().map(|f| f.bytes().len()).sum();
        // Full up to one more batch: there may be more behind it.
        let all = waiting.len() < ahead.batches && bytes + limits::BATCH_BYTES_MAX <= ahead.bytes;
        let known = sent.batches.entry(leader).or_default();
        let unsent = waiting.into_iter().filter(|f| !known.contains(&f.hash())).collect();
        sent.behind = !all;
        self.send(sender, sent, unsent);
    }

    /// Sends what waited already when we looked last time; if all of that still waits, everything.
    fn send_again(&self, sender: &mut impl Sender<PublicKey = PublicKey>, sent: &mut Sent) {
        let waiting = self.shared.application.waiting(self.size);
        let now: BTreeSet<Hash> = waiting.iter().map(Batch::hash).collect();
        if !sent.waited.is_empty() && sent.waited.is_subset(&now) {
            sent.batches.remove(&sent.leader);
            sent.behind = true;
        } else {
            let still = waiting.into_iter().filter(|f| sent.waited.contains(&f.hash())).collect();
            self.send(sender, sent, still);
        }
        sent.waited = now;
    }

    /// Sends batches to the leader, in as many messages as it takes.
    fn send(&self, sender: &mut impl Sender<PublicKey = PublicKey>, sent: &mut Sent, batches: Vec<Batch>) {
        if sent.leader == self.me {
            return;
        }
        let known = sent.batches.entry(sent.leader).or_default();
        if known.len() > limits::ORDER_POOL_BATCHES_MAX {
            known.clear();
        }
        let mut rest = &batches[..];
        while !rest.is_empty() {
            let mut room = self.size.bytes;
            let fits = rest.iter().take_while(|f| {
                let fits = f.bytes().len() <= room;
                room = room.saturating_sub(f.bytes().len());
                fits
            });
            // A batch too long for company goes alone.
            let (now, later) = rest.split_at(fits.count().clamp(1, self.size.batches));
            let to = Recipients::One(self.brokers[sent.leader].clone());
            if sender.send(to, codec::encode_batches(now), false).is_empty() {
                // The link is full; they go later, from the pool.
                sent.behind = true;
                return;
            }
            known.extend(now.iter().map(Batch::hash));
            rest = later;
        }
    }

    fn take(&self, from: &PublicKey, message: impl commonware_codec::Buf) {
        let Some(broker) = self.brokers.iter().position(|b| b == from) else { return };
        let mut taken = false;
        for batch in codec::decode_batches(message, BlockSize::MAX).unwrap_or_default() {
            taken |= self.shared.application.receive(Origin::Broker(broker), batch).is_ok();
        }
        if taken {
            self.shared.batches.notify_waiters();
        }
    }
}

/// Blocks that a leader is given in advance of what is delivered, when much waits.
const BLOCKS_AHEAD: usize = 8;
