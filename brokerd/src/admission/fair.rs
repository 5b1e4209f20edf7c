//! A queue in which accounts take turns by bytes: nobody's wait depends on how much another account has waiting. Pure.
//!
//! WF²Q+ (Bennett, Zhang: *Hierarchical packet fair queueing algorithms*, 1997, section 3.4). It shares as weighted
//! deficit round robin does, needs no round over all accounts, and lets no long item starve. An item gets, when it
//! comes, a *virtual start*, the later of the queue's virtual time and its account's last virtual finish, and a *virtual
//! finish*, its start plus its bytes. Items leave by their finish. All accounts weigh the same, and all clients for whom
//! nobody vouches are one account, since keys are free.
//!
//! *Deviation.* A block takes items out in the order that its leader likes. So the virtual time advances by the bytes
//! that leave, divided by the accounts that wait, and at least to the start of the first item: a leader that takes
//! somebody's last item first cannot put it forward.

use std::collections::BTreeMap;

use sealcast_broker::state::Holder;

use super::mempool::Account;

/// The queue; items of one account keep their order.
#[derive(Debug)]
pub(super) struct Fair<T> {
    items: BTreeMap<Turn, Item<T>>,
    flows: BTreeMap<Flow, AccountQueue>,
    arrivals: u64,
    /// V(t), bytes.
    virtual_time: u64,
}

/// When an item's turn is: its virtual finish F, then its arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Turn {
    finish: u64,
    arrival: u64,
}

#[derive(Debug)]
struct Item<T> {
    it: T,
    flow: Flow,
    bytes: u64,
}

/// Who takes a turn.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Flow {
    /// All clients of one credential.
    Holder(Holder),
    /// All clients for whom nobody vouches.
    Unregistered,
}

/// One account's part of the queue.
#[derive(Debug, Default)]
struct AccountQueue {
    items: usize,
    /// The virtual finish of its last item.
    finish: u64,
}

impl<T> Default for Fair<T> {
    fn default() -> Fair<T> {
        Fair { items: BTreeMap::new(), flows: BTreeMap::new(), arrivals: 0, virtual_time: 0 }
    }
}

impl<T> Fair<T> {
    /// Appends an item of so many bytes to its account's part.
    pub(super) fn push(&mut self, account: &Account, bytes: usize, it: T) -> Turn {
        let flow = Flow::of(account);
        let line = self.flows.entry(flow.clone()).or_default();
        let bytes = bytes as u64;
        // S = max(V, F of the one before); F = S + L.
        line.finish = line.finish.max(self.virtual_time) + bytes;
        line.items += 1;
        let turn = Turn { finish: line.finish, arrival: self.arrivals };
        self.arrivals += 1;
        self.items.insert(turn, Item { it, flow, bytes });
        turn
    }

    /// Takes out the item of this turn.
    pub(super) fn remove(&mut self, turn: Turn) -> Option<T> {
        let Item { it, flow, bytes } = self.items.remove(&turn)?;
        self.virtual_time += bytes / self.flows.len() as u64;
        let line = self.flows.get_mut(&flow).expect("an item's account has a line");
        line.items -= 1;
        if line.items == 0 {
            self.flows.remove(&flow);
        }
        if let Some((first, item)) = self.items.first_key_value() {
            self.virtual_time = self.virtual_time.max(first.finish - item.bytes);
        }
        Some(it)
    }

    /// The items in their turns.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.items.values().map(|item| &item.it)
    }

    /// The first item, and its bytes.
    pub(super) fn first(&self) -> Option<(Turn, usize)> {
        let (turn, item) = self.items.first_key_value()?;
        Some((*turn, usize::try_from(item.bytes).expect("it was a length")))
    }

    /// How many items wait.
    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether none waits.
    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Drops all items.
    pub(super) fn clear(&mut self) {
        self.items.clear();
        self.flows.clear();
    }
}

impl Flow {
    fn of(account: &Account) -> Flow {
        match account {
            Account::Holder(holder) => Flow::Holder(holder.clone()),
            Account::Unregistered(_) => Flow::Unregistered,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sealcast_broker::operation::Client;

    fn holder(name: &str) -> Account {
        Account::Holder(Holder::new((name.into(), b"serial".to_vec())))
    }

    /// Takes the items out one by one.
    fn drained(queue: &mut Fair<(&'static str, u32)>) -> Vec<(&'static str, u32)> {
        let mut all = Vec::new();
        while let Some((turn, _)) = queue.first() {
            all.extend(queue.remove(turn));
        }
        all
    }

    fn flooded(items: u32) -> Fair<(&'static str, u32)> {
        let mut queue = Fair::default();
        for n in 0..items {
            queue.push(&holder("mallory"), 1000, ("mallory", n));
        }
        queue
    }

    #[test]
    fn rule_g7_a_newcomers_wait_does_not_depend_on_anothers_backlog() {
        for backlog in [10, 10_000] {
            let mut queue = flooded(backlog);
            let third = queue.first().map(|(turn, _)| turn).and_then(|turn| queue.remove(turn));
            assert_eq!(third, Some(("mallory", 0)));
            queue.push(&holder("ann"), 1000, ("ann", 0));
            let place = drained(&mut queue).iter().position(|it| it.0 == "ann");
            assert_eq!(place, Some(1), "one of mallory's stands before it, whose turn came earlier");
        }
    }

    #[test]
    fn accounts_share_by_bytes_and_each_keeps_its_order() {
        let mut queue = flooded(12);
        for n in 0..4 {
            queue.push(&holder("ann"), 3000, ("ann", n));
        }
        let all = drained(&mut queue);
        for (place, (_, n)) in all.iter().filter(|it| it.0 == "ann").enumerate() {
            assert_eq!(*n as usize, place);
        }
        for third in 1..=4 {
            let ann = all[..4 * third].iter().filter(|it| it.0 == "ann").count();
            assert_eq!(ann, third, "one of 3000 bytes for three of 1000: {all:?}");
        }
    }

    #[test]
    fn a_long_item_has_its_turn_while_short_ones_keep_coming() {
        let mut queue = Fair::default();
        queue.push(&holder("ann"), 50_000, ("ann", 0));
        queue.push(&holder("mallory"), 1000, ("mallory", 0));
        let mut before = 0;
        for n in 1..1000 {
            queue.push(&holder("mallory"), 1000, ("mallory", n));
            let (turn, _) = queue.first().expect("two wait");
            if queue.remove(turn).expect("it is there").0 == "ann" {
                break;
            }
            before += 1;
        }
        assert!((49..=51).contains(&before), "as many bytes of the other: {before}");
    }

    #[test]
    fn rule_g8_all_clients_for_whom_nobody_vouches_are_one_account() {
        let mut queue = Fair::default();
        for n in 0..200 {
            queue.push(&Account::Unregistered(Client([n; 32])), 1000, ("nobody", u32::from(n)));
        }
        queue.push(&holder("ann"), 1000, ("ann", 0));
        assert_eq!(drained(&mut queue).iter().position(|it| it.0 == "ann"), Some(1));
    }

    #[test]
    fn a_leader_that_takes_somebodys_last_item_first_puts_no_newcomer_behind_the_others() {
        let mut queue = flooded(99);
        let last = queue.push(&holder("mallory"), 1000, ("mallory", 99));
        assert_eq!(queue.remove(last), Some(("mallory", 99)));
        queue.push(&holder("ann"), 1000, ("ann", 0));
        let place = drained(&mut queue).iter().position(|it| it.0 == "ann");
        assert_eq!(place, Some(2), "what left counts as served");
    }

    #[test]
    fn an_empty_queue_holds_nothing_of_who_was_in_it() {
        let mut queue = flooded(100);
        drained(&mut queue);
        assert!(queue.is_empty() && queue.flows.is_empty() && queue.first().is_none());
    }
}
