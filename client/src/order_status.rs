//! Where the order is, as f + 1 brokers back it, and how old that knowledge is (E6, E11).

use std::collections::BTreeMap;
use std::time::Duration;

use sealcast_broker::operation::{Interest, Operation, Publication};
use sealcast_broker::protocol::{self, Query, Welcome};
use sealcast_wire::{Monotonic, Now, Utc, limits};

use super::channel::{Channel, Greeted, reached};
use super::event::{ConfirmedSubscription, Misbehaviour, Notice, OrderStatus, Output};
use super::line::SubscriptionState;
use super::queries::Purpose;
use super::sending::{Op, What};
use super::{Begin, Quorum};
use sealcast_delivery::Token;

/// What is known of the order.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) order_status: Option<OrderStatus>,
    /// The highest block and key epoch ever believed, also in runs before this one (E11).
    pub(super) height: u64,
    pub(super) epoch: u32,
    /// What an operation's outcome said is in force.
    pub(super) policy: u64,
    /// The newest block time that is believed, and when it was first.
    at: Option<(Utc, Monotonic)>,
    /// When f + 1 brokers had first said where they are.
    greeted: Option<Monotonic>,
    /// When brokers are asked next how late it is.
    ask_at: Option<Monotonic>,
    /// A registration of ours is under way.
    pub(super) is_registering: bool,
    has_told: bool,
    /// Since when the brokers are behind what we have seen.
    behind: Option<Monotonic>,
}

impl Known {
    /// Sets the versions in force (E6).
    pub(super) fn stamp(&self, publication: Publication) -> Publication {
        Publication { policy: self.policy, epoch: self.epoch, ..publication }
    }

    /// A block time that f + 1 brokers back.
    pub(super) fn believe(&mut self, now: Monotonic, at: Utc) {
        if self.at.is_none_or(|(known, _)| known < at) {
            self.at = Some((at, now));
        }
    }

    pub(super) fn at(&self) -> Option<Utc> {
        self.at.map(|(at, _)| at)
    }

    /// How old the newest block is that is believed in; without a calendar, since when it is known.
    pub(super) fn age(&self, now: Now) -> Option<Duration> {
        let (at, since) = self.at?;
        Some(match now.utc {
            Some(utc) => Duration::from_secs(u64::try_from(utc.0.saturating_sub(at.0)).unwrap_or(0)),
            None => now.monotonic.since(since),
        })
    }

    pub(super) fn timeout(&self) -> Option<Monotonic> {
        match self.order_status {
            None => self.greeted.map(|since| since + TIMEOUT),
            Some(_) => self.ask_at,
        }
    }
}

impl Quorum {
    pub(super) fn welcome(&mut self, now: Now, broker: u16, welcome: Welcome) {
        if welcome.broker != broker {
            return self.misbehaved(broker, Misbehaviour::Number);
        }
        self.channels[usize::from(broker)].welcome(now.monotonic, welcome);
        self.look_around(now);
        if self.order_status().is_some() {
            let ids: Vec<u64> = self.lines.keys().copied().collect();
            ids.into_iter().for_each(|id| self.set_goal(id));
            self.changed(now);
            self.advance(now);
        }
    }

    /// The f + 1-th highest of what brokers say.
    pub(super) fn reached<T: Ord + Copy>(&self, claim: impl Fn(&Channel) -> T) -> Option<T> {
        reached(self.channels.iter().filter(|it| it.has_spoken()).map(claim), self.faulty)
    }

    /// Sums up what brokers say of where the order is.
    pub(super) fn look_around(&mut self, now: Now) {
        let (Some(height), Some(at)) = (self.reached(|it| it.claim.height), self.reached(|it| it.claim.at)) else {
            return;
        };
        self.known.believe(now.monotonic, at);
        let spoken = self.channels.iter().filter(|it| it.has_spoken()).count();
        let greeted = *self.known.greeted.get_or_insert(now.monotonic);
        let epoch = self.reached(|it| it.claim.epoch).unwrap_or(0);
        let is_settled = spoken > 2 * self.faulty || now.monotonic.since(greeted) >= TIMEOUT;
        if self.known.order_status.is_none() {
            if !is_settled {
                return;
            }
            if height < self.known.height || epoch < self.known.epoch {
                // Not the cluster as it was (E11)? Brokers that come later may know better, and honest ones may only be a
                // few blocks behind those that we heard before.
                self.known.greeted = Some(now.monotonic);
                let behind = *self.known.behind.get_or_insert(now.monotonic);
                if !self.queries.is_open(&Purpose::Age) {
                    self.ask(now, Purpose::Age, Query::Status, self.channels.len());
                }
                let is_late = spoken > 2 * self.faulty && now.monotonic.since(behind) >= BEHIND_TIMEOUT;
                if is_late && !std::mem::replace(&mut self.known.has_told, true) {
                    let seen = self.known.height;
                    self.outputs.push_back(Output::Notice(Notice::RolledBack { seen, height }));
                }
                return;
            }
        }
        self.known.height = self.known.height.max(height);
        self.known.epoch = self.known.epoch.max(epoch);
        self.known.policy = self.known.policy.max(self.reached(|it| it.claim.policy).unwrap_or(0));
        if self.known.ask_at.is_none_or(|at| at <= now.monotonic) {
            if self.known.ask_at.is_some() && !self.queries.is_open(&Purpose::Age) {
                self.ask(now, Purpose::Age, Query::Status, self.channels.len());
            }
            self.known.ask_at = Some(now.monotonic + limits::SEAL_BLOCK_AGE_MAX / 4);
        }
        let vouching = self.channels.iter().filter_map(Channel::greeted).filter(|it| it.registered).count();
        let was = self.order_status().is_some_and(|it| it.registered);
        let registered = was && !self.known.is_registering || vouching > self.faulty;
        let keys = self.channels.iter().zip(0..).filter_map(|(it, b)| Some((b, it.claim.key.clone()?))).collect();
        let Known { height, epoch, policy, .. } = self.known;
        let at = self.known.at.map_or(Utc(i64::MIN), |(at, _)| at);
        let order_status = OrderStatus { height, at, policy, epoch, registered, keys };
        let before = self.known.order_status.replace(order_status.clone());
        if before.is_none() {
            self.begin(now);
        }
        let new = |it: &OrderStatus| (it.policy, it.epoch, it.registered, it.keys.clone());
        if before.as_ref().map(new) != Some(new(&order_status)) {
            self.outputs.push_back(Output::OrderStatus(order_status));
        }
    }

    /// It is known where the order is: operations get their numbers.
    fn begin(&mut self, now: Now) {
        let next = self.reached(|it| it.claim.next).unwrap_or(0);
        let is_known = self.order_status().is_some_and(|it| it.registered);
        let registrations = &self.config.registrations;
        if !is_known && registrations.is_empty() {
            self.outputs.push_back(Output::Notice(Notice::Unregistered));
        }
        if !is_known || registrations.len() > 1 {
            for registration in registrations.iter().rev() {
                let op = Op::new(INTERNAL, What::Register, &Operation::Register(registration.clone()));
                self.sending.push_front(now.monotonic, op);
                self.known.is_registering |= !is_known;
            }
        }
        self.sending.begin(next);
        self.take_up_wanted(now);
    }

    /// Somebody vouches for the client now.
    pub(super) fn registered(&mut self) {
        self.known.is_registering = false;
        if let Some(order_status) = self.known.order_status.as_mut().filter(|it| !it.registered) {
            order_status.registered = true;
            self.outputs.push_back(Output::OrderStatus(order_status.clone()));
        }
    }

    /// What an operation's outcome says is in force (E6).
    pub(super) fn learn(&mut self, policy: Option<u64>, epoch: Option<u32>) {
        self.known.policy = self.known.policy.max(policy.unwrap_or(0));
        self.known.epoch = self.known.epoch.max(epoch.unwrap_or(0));
        let (policy, epoch) = (self.known.policy, self.known.epoch);
        if let Some(order_status) =
            self.known.order_status.as_mut().filter(|it| (it.policy, it.epoch) != (policy, epoch))
        {
            (order_status.policy, order_status.epoch) = (policy, epoch);
            self.outputs.push_back(Output::OrderStatus(order_status.clone()));
        }
    }

    /// Active subscriptions as brokers named them when their channels opened.
    fn confirmed(&self, id: u64) -> impl Iterator<Item = (&Greeted, &protocol::ActiveSubscription)> {
        let greeted = self.channels.iter().filter_map(Channel::greeted);
        greeted.filter_map(move |it| Some((it, it.subscriptions.iter().find(|s| s.id == id)?)))
    }

    /// Goes on with what stands, and subscribes to the rest of what is wanted.
    pub(super) fn take_up_wanted(&mut self, now: Now) {
        for (token, interest, begin) in std::mem::take(&mut self.wanted) {
            if begin == Begin::Afresh {
                self.lines.retain(|_, line| line.is_read || line.interest != interest);
            }
            let has_lapsed = |id: u64| self.confirmed(id).count() <= self.faulty && !self.lines[&id].stands;
            let held = self
                .lines
                .iter()
                .find(|(id, line)| line.interest == interest && !has_lapsed(**id) && !self.ended.contains(id));
            let found = held.map(|(id, _)| *id).or_else(|| self.adopt(&interest));
            match found {
                Some(subscription) => {
                    let line = self.lines.get_mut(&subscription).expect("it was found");
                    (line.is_read, line.stands) = (true, true);
                    self.set_goal(subscription);
                    self.outputs.push_back(Output::Subscribed { token, subscription });
                }
                None => {
                    let operation = Operation::Subscribe(interest.clone());
                    self.sending.push(now.monotonic, Op::new(token, What::Subscribe(interest), &operation));
                }
            }
        }
        self.advance(now);
    }

    /// A subscription that f + 1 brokers know and no record does: gone on with from where it is now.
    fn adopt(&mut self, interest: &Interest) -> Option<u64> {
        let ids = self.channels.iter().filter_map(Channel::greeted).flat_map(|it| &it.subscriptions);
        let mut ids: Vec<u64> = ids.filter(|it| it.interest == *interest).map(|it| it.id).collect();
        ids.sort_unstable();
        ids.dedup();
        let known = |id: &u64| {
            !self.lines.contains_key(id)
                && !self.ended.contains(id)
                && self.confirmed(*id).filter(|(_, it)| it.interest == *interest).count() > self.faulty
        };
        let id = ids.into_iter().find(known)?;
        let place = reached(self.confirmed(id).map(|(_, it)| it.next), self.faulty)?;
        let pair = super::channel::believed(self.confirmed(id).map(|(greeted, it)| (it.next, greeted.sn)), self.faulty);
        self.lines.insert(id, SubscriptionState::new(interest.clone(), place, pair.unwrap_or((0, 0))));
        Some(id)
    }

    /// Subscriptions of ours that f + 1 brokers know and nobody here reads: of runs before this one.
    pub fn unread_subscriptions(&self) -> Vec<u64> {
        let ids = self.channels.iter().filter_map(Channel::greeted).flat_map(|it| &it.subscriptions);
        let mut ids: Vec<u64> = ids.map(|it| it.id).filter(|id| !self.lines.contains_key(id)).collect();
        ids.sort_unstable();
        ids.dedup();
        ids.retain(|id| !self.ended.contains(id) && self.confirmed(*id).count() > self.faulty);
        ids
    }

    /// The client's confirmed subscriptions, by id: f + 1 brokers named them when their channels opened, or they were made
    /// since.
    pub fn confirmed_subscriptions(&self) -> Vec<ConfirmedSubscription> {
        let mut all: BTreeMap<u64, Interest> = BTreeMap::new();
        for it in self.channels.iter().filter_map(Channel::greeted).flat_map(|it| &it.subscriptions) {
            let alike = self.confirmed(it.id).filter(|(_, other)| other.interest == it.interest).count();
            if alike > self.faulty {
                all.insert(it.id, it.interest.clone());
            }
        }
        let made = self.lines.iter().filter(|(_, line)| line.stands);
        all.extend(made.map(|(id, line)| (*id, line.interest.clone())));
        all.retain(|id, _| !self.ended.contains(id));
        let confirmed = |(subscription, interest): (u64, Interest)| {
            let said = reached(self.confirmed(subscription).map(|(_, it)| it.next), self.faulty).unwrap_or(0);
            let line = self.lines.get(&subscription);
            let places = line.map_or(said, |it| said.max(it.goal).max(it.place));
            ConfirmedSubscription { subscription, interest, next: line.map_or(places, |it| it.cursor().0), places }
        };
        all.into_iter().map(confirmed).collect()
    }

    /// Places that f + 1 brokers had when their channels opened exist; whoever has them all goes on from there.
    fn set_goal(&mut self, id: u64) {
        let confirmed: Vec<(u64, u64)> = self.confirmed(id).map(|(greeted, it)| (it.next, greeted.sn)).collect();
        let goal = reached(confirmed.iter().map(|(next, _)| *next), self.faulty);
        let pair = super::channel::believed(confirmed.iter().copied(), self.faulty);
        let Some(line) = self.lines.get_mut(&id) else { return };
        line.goal = line.goal.max(goal.unwrap_or(0));
        pair.into_iter().for_each(|pair| line.set_position(pair));
        // Brokers speak of different blocks: whose place is still that of an anchor is moved up to an sn at which an
        // honest one finds it so.
        for (place, _) in [line.anchor, line.taken.1] {
            let there = confirmed.iter().filter(|(next, _)| *next == place).map(|(_, sn)| *sn);
            reached(there, self.faulty).into_iter().for_each(|sn| line.moves_up((place, sn)));
        }
    }
}

/// The token of what the client does for itself.
pub(super) const INTERNAL: Token = Token(0);
/// How long the client waits for more than f + 1 brokers before it believes where the order is.
const TIMEOUT: Duration = Duration::from_millis(200);
/// Honest brokers have executed by then what others of them had executed before.
const BEHIND_TIMEOUT: Duration = Duration::from_secs(3);
