//! One broker, as the client sees it.

use std::collections::BTreeMap;

use sealcast_broker::protocol::{ActiveSubscription, SignedKey, Status, Welcome};
use sealcast_wire::{Monotonic, Utc};

use super::event::{Conduct, Misbehaviour};

/// A broker and the channel to it.
#[derive(Clone, Debug, Default)]
pub(super) struct Channel {
    pub(super) link: Link,
    /// The highest that it ever said of where the order is.
    pub(super) claim: Claim,
    has_spoken: bool,
    /// The newest block of which it sent an update on this channel.
    pub(super) newest: u64,
    pub(super) conduct: Conduct,
}

/// Whether there is a channel.
#[derive(Clone, Debug, Default)]
pub(super) enum Link {
    #[default]
    Down,
    /// Connected, and not yet welcome.
    Greeting,
    Up(Box<Greeted>),
}

/// What a broker said as the channel began.
#[derive(Clone, Debug)]
pub(super) struct Greeted {
    /// Updates of later blocks come through this channel.
    pub(super) height: u64,
    /// The place in the order that the next operation got after that block.
    pub(super) sn: u64,
    pub(super) registered: bool,
    pub(super) subscriptions: Vec<ActiveSubscription>,
}

/// Where a broker says that the order is. Each of these only grows.
#[derive(Clone, Debug)]
pub(super) struct Claim {
    pub(super) height: u64,
    pub(super) at: Utc,
    pub(super) policy: u64,
    pub(super) epoch: u32,
    /// The client's next number.
    pub(super) next: u64,
    pub(super) key: Option<SignedKey>,
}

impl Default for Claim {
    fn default() -> Claim {
        Claim { height: 0, at: Utc(i64::MIN), policy: 0, epoch: 0, next: 0, key: None }
    }
}

impl Channel {
    /// Whether it can be asked.
    pub(super) fn is_up(&self) -> bool {
        matches!(self.link, Link::Up(_))
    }

    /// Whether it ever said where the order is.
    pub(super) fn has_spoken(&self) -> bool {
        self.has_spoken
    }

    pub(super) fn greeted(&self) -> Option<&Greeted> {
        match &self.link {
            Link::Up(greeted) => Some(greeted),
            Link::Down | Link::Greeting => None,
        }
    }

    pub(super) fn welcome(&mut self, now: Monotonic, welcome: Welcome) {
        let Welcome { height, at, sn, policy, epoch, registered, next, subscriptions, key, .. } = welcome;
        let claim = &mut self.claim;
        claim.next = claim.next.max(next);
        claim.key = key.or(claim.key.take());
        self.claims(height, at, policy, epoch);
        self.conduct.since = Some(now);
        self.newest = height;
        self.has_spoken = true;
        self.link = Link::Up(Box::new(Greeted { height, sn, registered, subscriptions }));
    }

    pub(super) fn status(&mut self, status: &Status) {
        self.claims(status.height, status.at, status.policy, status.epoch);
    }

    /// The broker signed a key.
    pub(super) fn vouches(&mut self, key: SignedKey) {
        self.claim.key = Some(key);
    }

    fn claims(&mut self, height: u64, at: Utc, policy: u64, epoch: u32) {
        let claim = &mut self.claim;
        claim.height = claim.height.max(height);
        claim.at = claim.at.max(at);
        claim.policy = claim.policy.max(policy);
        claim.epoch = claim.epoch.max(epoch);
    }

    pub(super) fn count(&mut self, how: Misbehaviour) {
        *self.conduct.misbehaviours.entry(how).or_default() += 1;
    }

    pub(super) fn down(&mut self) {
        self.link = Link::Down;
        self.conduct.since = None;
    }
}

/// The highest value that at least one of any `faulty + 1` of these brokers' words backs: the (f + 1)-th highest. At
/// most f lie, so an honest one has said as much.
pub(super) fn reached<T: Ord + Copy>(claims: impl Iterator<Item = T>, faulty: usize) -> Option<T> {
    let mut claims: Vec<T> = claims.collect();
    claims.sort_unstable_by(|a, b| b.cmp(a));
    claims.get(faulty).copied()
}

/// What more than `faulty` of these say alike, if anything; the first such in order.
pub(super) fn believed<T: Ord + Copy>(said: impl Iterator<Item = T>, faulty: usize) -> Option<T> {
    let mut votes: BTreeMap<T, usize> = BTreeMap::new();
    said.for_each(|it| *votes.entry(it).or_default() += 1);
    votes.into_iter().find(|(_, n)| *n > faulty).map(|(it, _)| it)
}
