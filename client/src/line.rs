//! A subscription: where its reader is, and how it catches up.
//!
//! ```text
//! places  0 … delivered │ ready: fetched, not yet delivered │ … goal: places that exist │ … come with updates
//!                     place                                goal
//! ```
//! Places are gap-free, ⊥ included, so nothing can be missing unseen. Brokers find a place again only from a pair (place,
//! sn) that belongs together: the `anchor`, which moves with each publication that is delivered.

use std::collections::VecDeque;

use sealcast_broker::operation::Interest;
use sealcast_broker::state::{Entry, Run};

use super::catching::{Agreed, AgreementRule, Streams};

/// See the module.
#[derive(Debug)]
pub(super) struct SubscriptionState {
    pub(super) interest: Interest,
    /// The next place to deliver.
    pub(super) place: u64,
    /// The first place at or behind this sn.
    pub(super) anchor: (u64, u64),
    /// Places below this one exist.
    pub(super) goal: u64,
    /// What stands from `place` on, fetched.
    pub(super) ready: VecDeque<Item>,
    /// What brokers say of what follows.
    pub(super) streams: Streams,
    /// Whether somebody reads it in this run.
    pub(super) is_read: bool,
    /// Whether it is known in this run that it stands at the brokers.
    pub(super) stands: bool,
    /// What its reader has taken: the next place, and an anchor at or before it.
    pub(super) taken: (u64, (u64, u64)),
}

/// What stands at a place, or at several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Item {
    Publication(Box<Entry>),
    /// So many may not be read.
    Empty(u64),
    /// So many are no longer kept.
    Lost(u64),
}

impl SubscriptionState {
    pub(super) fn new(interest: Interest, place: u64, anchor: (u64, u64)) -> SubscriptionState {
        SubscriptionState {
            interest,
            place,
            anchor,
            goal: place,
            ready: VecDeque::new(),
            streams: Streams::default(),
            is_read: true,
            stands: true,
            taken: (place, anchor),
        }
    }

    /// Nobody reads it any more: it goes back to what was taken.
    pub(super) fn leave(&mut self) {
        self.is_read = false;
        self.goal = self.goal.max(self.place);
        self.refetch();
        (self.place, self.anchor) = self.cursor();
    }

    /// The next place that its reader has not taken, and an anchor at or before it. A pair ahead of what was taken leaves a
    /// gap behind it: the subscription's beginning leaves none.
    pub(super) fn cursor(&self) -> (u64, (u64, u64)) {
        let (next, anchor) = self.taken;
        (next, if anchor.0 > next { (0, 0) } else { anchor })
    }

    /// Whether there are places that have not been delivered.
    pub(super) fn lags(&self) -> bool {
        self.is_read && self.place < self.goal
    }

    /// So many places are ⊥.
    pub(super) fn skip(&mut self, count: u64) {
        self.place += count;
    }

    /// The publication at the next place is delivered.
    pub(super) fn deliver(&mut self, sn: u64) {
        self.place += 1;
        if self.place > self.anchor.0 {
            self.anchor = (self.place, sn + 1);
        }
    }

    /// f + 1 brokers say that this place is the first at or behind this sn: nobody need look for it before.
    pub(super) fn set_position(&mut self, pair: (u64, u64)) {
        if pair.0 <= self.place && pair > self.anchor {
            self.anchor = pair;
        }
        if pair.0 <= self.taken.0 && pair > self.taken.1 {
            self.taken.1 = pair;
        }
    }

    /// An honest broker says that this place was next at this sn: what has the same one as its anchor need look no further
    /// back. Of another anchor it says nothing, for at a lower sn, as somebody may have named it, another place was next.
    pub(super) fn moves_up(&mut self, pair: (u64, u64)) {
        for anchor in [&mut self.anchor, &mut self.taken.1] {
            if anchor.0 == pair.0 {
                *anchor = pair.max(*anchor);
            }
        }
    }

    /// Its reader has taken what stands below `place`, the last of it the publication with this sn, if it was one.
    pub(super) fn take(&mut self, place: u64, sn: Option<u64>) {
        if place > self.taken.0 && place <= self.place {
            self.taken.0 = place;
            if let Some(sn) = sn
                && place > self.taken.1.0
            {
                self.taken.1 = (place, sn + 1);
            }
        }
    }

    /// The place behind what is ready.
    pub(super) fn fetched(&self) -> u64 {
        let places = |item: &Item| match item {
            Item::Publication(_) => 1,
            Item::Empty(count) | Item::Lost(count) => *count,
        };
        self.place + self.ready.iter().map(places).sum::<u64>()
    }

    /// Takes in what brokers agree on from what is ready on; whether that is anything.
    pub(super) fn fetch(&mut self, rule: &AgreementRule<'_>) -> bool {
        let at = self.fetched();
        let agreed = self.streams.agree(at, rule);
        let any = !agreed.is_empty();
        for it in agreed {
            match (self.ready.back_mut(), it) {
                (_, Agreed::Found(Found::Publication(entry))) => self.ready.push_back(Item::Publication(entry)),
                (Some(Item::Empty(count)), Agreed::Found(Found::Empty)) => *count += 1,
                (_, Agreed::Found(Found::Empty)) => self.ready.push_back(Item::Empty(1)),
                (Some(Item::Lost(count)), Agreed::Lost(more)) => *count += more,
                (_, Agreed::Lost(count)) => self.ready.push_back(Item::Lost(count)),
            }
        }
        let (end, before) = (self.fetched(), self.anchor);
        // What is found exists.
        self.goal = self.goal.max(end);
        // All of a page was ⊥, or nothing: the next one begins behind it, also in the next run.
        if let Some(pair) = self.streams.pair(end, rule.faulty) {
            self.anchor = self.anchor.max(pair);
            if pair.0 <= self.taken.0 {
                self.taken.1 = self.taken.1.max(pair);
            }
        }
        if end >= self.goal {
            self.streams.clear();
        }
        any || self.anchor != before
    }

    /// What was fetched is not to be had: it is looked for again, from an anchor that is not behind it.
    pub(super) fn refetch(&mut self) {
        self.ready.clear();
        self.streams.clear();
        if self.anchor.0 > self.place {
            self.anchor = self.taken.1;
        }
    }
}

/// What stands at one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Publication(Box<Entry>),
    Empty,
}

/// The sn at each place of these runs, `None` for ⊥; at most `max` places.
pub(super) fn places(runs: &[Run], max: usize) -> Vec<Option<u64>> {
    let mut places = Vec::new();
    for run in runs {
        match run {
            Run::Deliver { sn } => places.push(Some(*sn)),
            Run::Empty { count } => {
                let room = max.saturating_sub(places.len());
                places.resize(places.len() + usize::try_from(*count).unwrap_or(room).min(room), None);
            }
        }
        if places.len() >= max {
            break;
        }
    }
    places
}

/// The longest beginning that more than `faulty` of these lists share, place by place.
pub(super) fn shared<T: Eq + Clone>(lists: &[Vec<T>], faulty: usize) -> Vec<T> {
    let mut live: Vec<&Vec<T>> = lists.iter().collect();
    let mut shared = Vec::new();
    loop {
        let at = shared.len();
        let candidates: Vec<&T> = live.iter().filter_map(|list| list.get(at)).collect();
        let winner = candidates.iter().find(|it| candidates.iter().filter(|other| other == it).count() > faulty);
        let Some(winner) = winner.map(|it| (*it).clone()) else { return shared };
        // Who said something else is not listened to further on.
        live.retain(|list| list.get(at) == Some(&winner));
        shared.push(winner);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_looked_for_again_is_not_passed_over() {
        let mut line = SubscriptionState::new("a".parse().expect("an interest"), 5, (5, 50));
        line.ready.push_back(Item::Empty(4));
        line.anchor = (9, 90);
        line.refetch();
        assert_eq!((line.fetched(), line.anchor), (5, (5, 50)));
    }

    #[test]
    fn who_lacks_nothing_goes_on_from_where_the_brokers_are() {
        let mut line = SubscriptionState::new("a".parse().expect("an interest"), 0, (0, 0));
        line.set_position((0, 900));
        assert_eq!((line.anchor, line.taken), ((0, 900), (0, (0, 900))), "nothing was published for it below 900");
        line.set_position((3, 1000));
        assert_eq!((line.anchor, line.taken), ((0, 900), (0, (0, 900))), "three places are to be fetched");
        (0..3).for_each(|n| line.deliver(950 + n));
        line.take(1, Some(950));
        line.set_position((3, 1000));
        assert_eq!((line.anchor, line.taken), ((3, 1000), (1, (1, 951))), "two places are not yet taken");
    }

    #[test]
    fn who_leaves_goes_back_to_what_was_taken() {
        let mut line = SubscriptionState::new("a".parse().expect("an interest"), 0, (0, 0));
        (0..5).for_each(|n| line.deliver(950 + n));
        line.take(2, Some(951));
        line.leave();
        assert_eq!((line.place, line.anchor, line.goal, line.is_read), (2, (2, 952), 5, false));
    }
}
