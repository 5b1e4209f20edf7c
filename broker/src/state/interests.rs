//! Standing subscriptions, found by topic without asking each of them.
//!
//! ```text
//!            ward3 ──▶ + ──▶ orders   ward3/+/orders
//! root ──▶ { market ──▶ #             market/#
//!            price                    price = 105
//! ```

use std::collections::{BTreeMap, BTreeSet};

use sealcast_crypto::identity::Step;

use crate::operation::{Client, Header, Interest};

/// A subscription's name: the client, and the number of the operation that made it.
pub(super) type Id = (Client, u64);

/// All active subscriptions.
#[derive(Clone, Debug, Default)]
pub(super) struct Interests {
    active: BTreeMap<Id, Subscription>,
    all: Usage,
    root: Node,
}

/// One subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Subscription {
    /// What it wants.
    pub(super) interest: Interest,
    /// It is about operations with this number or higher ones.
    pub(super) since: u64,
    /// The place that its next publication gets: gap-free, also over what may not be read.
    pub(super) next: u64,
    /// Of its interest.
    bytes: usize,
}

impl Subscription {
    pub(super) fn new(interest: Interest, since: u64, next: u64) -> Subscription {
        let bytes = interest.to_bytes().len();
        Subscription { interest, since, next, bytes }
    }
}

/// How much of the room for subscriptions is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) subscriptions: usize,
    /// Of their interests as they are stored.
    pub(super) bytes: usize,
}

impl Usage {
    /// One more subscription, of so many bytes.
    pub(super) fn add(&mut self, bytes: usize) {
        self.subscriptions += 1;
        self.bytes += bytes;
    }
}

/// A level of topics.
#[derive(Clone, Debug, Default)]
struct Node {
    literal: BTreeMap<String, Node>,
    one: Option<Box<Node>>,
    /// Patterns that end here.
    here: BTreeSet<Id>,
    /// Patterns that end in `#` here.
    many: BTreeSet<Id>,
}

impl Interests {
    pub(super) fn insert(&mut self, id: Id, subscription: Subscription) {
        for pattern in subscription.interest.anchors() {
            let steps: Vec<Step<'_>> = pattern.levels().collect();
            self.root.change(&steps, &mut |ids| {
                ids.insert(id);
            });
        }
        self.all.add(subscription.bytes);
        self.active.insert(id, subscription);
    }

    pub(super) fn remove(&mut self, id: &Id) -> bool {
        let Some(subscription) = self.active.remove(id) else { return false };
        self.all.subscriptions -= 1;
        self.all.bytes -= subscription.bytes;
        for pattern in subscription.interest.anchors() {
            let steps: Vec<Step<'_>> = pattern.levels().collect();
            self.root.change(&steps, &mut |ids| {
                ids.remove(id);
            });
        }
        true
    }

    pub(super) fn get(&self, id: &Id) -> Option<&Subscription> {
        self.active.get(id)
    }

    /// What all clients hold.
    pub(super) fn all(&self) -> Usage {
        self.all
    }

    /// What these clients hold.
    pub(super) fn held<'a>(&self, clients: impl IntoIterator<Item = &'a Client>) -> Usage {
        let mut held = Usage::default();
        clients.into_iter().flat_map(|it| self.of_client(it)).for_each(|(_, it)| held.add(it.bytes));
        held
    }

    /// The client's subscriptions, by name.
    pub(super) fn of(&self, client: &Client) -> Vec<Id> {
        self.of_client(client).map(|(id, _)| *id).collect()
    }

    /// The client's subscriptions.
    pub(super) fn of_client(&self, client: &Client) -> impl Iterator<Item = (&Id, &Subscription)> {
        self.active.range((*client, 0)..=(*client, u64::MAX))
    }

    /// Who has a subscription.
    pub(super) fn clients(&self) -> BTreeSet<Client> {
        self.active.keys().map(|(client, _)| *client).collect()
    }

    /// Gives the publication with these headers the next place in every subscription that wants it.
    pub(super) fn place(&mut self, headers: &[Header]) -> Vec<(Id, u64)> {
        let mut found = BTreeSet::new();
        for header in headers {
            let levels: Vec<&str> = header.topic.split('/').collect();
            self.root.find(&levels, &mut found);
        }
        let mut places = Vec::new();
        for id in found {
            let subscription = self.active.get_mut(&id).expect("the index names active subscriptions");
            if subscription.interest.matches(headers) {
                places.push((id, subscription.next));
                subscription.next += 1;
            }
        }
        places
    }
}

impl Node {
    /// Changes the set of a pattern, and forgets what became empty.
    fn change(&mut self, steps: &[Step<'_>], change: &mut impl FnMut(&mut BTreeSet<Id>)) {
        match steps.split_first() {
            None => change(&mut self.here),
            Some((Step::Many, _)) => change(&mut self.many),
            Some((Step::One, rest)) => {
                let mut node = self.one.take().unwrap_or_default();
                node.change(rest, change);
                self.one = (!node.is_empty()).then_some(node);
            }
            Some((Step::Literal(text), rest)) => {
                let mut node = self.literal.remove(*text).unwrap_or_default();
                node.change(rest, change);
                if !node.is_empty() {
                    self.literal.insert((*text).to_owned(), node);
                }
            }
        }
    }

    fn find(&self, levels: &[&str], found: &mut BTreeSet<Id>) {
        found.extend(&self.many);
        match levels.split_first() {
            None => found.extend(&self.here),
            Some((level, rest)) => {
                let literal = self.literal.get(*level);
                literal.into_iter().chain(self.one.as_deref()).for_each(|node| node.find(rest, found));
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.literal.is_empty() && self.one.is_none() && self.here.is_empty() && self.many.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fixture::{client, header};

    proptest! {
        #[test]
        fn the_index_finds_what_matches_and_forgets_what_goes(
            wanted in prop::collection::vec("(a|b|\\+)(/(a|b|\\+)){0,2}(/#)?|#", 1..12),
            gone in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
            topics in prop::collection::vec("[abc](/[abc]){0,3}", 1..4),
        ) {
            let mut interests = Interests::default();
            let mut all: BTreeMap<Id, Interest> = BTreeMap::new();
            for (n, text) in (0..).zip(&wanted) {
                let interest: Interest = format!("{text} or c and {text}").parse().expect("an interest");
                all.insert((client(1), n), interest.clone());
                interests.insert((client(1), n), Subscription::new(interest, 0, 0));
            }
            for index in gone {
                let id = (client(1), index.index(wanted.len()) as u64);
                prop_assert_eq!(interests.remove(&id), all.remove(&id).is_some());
            }
            let headers: Vec<Header> = topics.iter().map(|t| header(t)).collect();
            let expected: Vec<Id> = all.iter().filter(|(_, i)| i.matches(&headers)).map(|(id, _)| *id).collect();
            prop_assert_eq!(interests.all(), interests.held(&[client(1)]));
            let found: Vec<Id> = interests.place(&headers).into_iter().map(|(id, _)| id).collect();
            prop_assert_eq!(found, expected);
            all.keys().for_each(|id| { interests.remove(id); });
            prop_assert!(interests.root.is_empty());
            prop_assert_eq!(interests.all(), Usage::default());
        }
    }
}
