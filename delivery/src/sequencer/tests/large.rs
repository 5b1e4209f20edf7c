//! Groups of more members than show each other MACs: their reports count members that they do not name.

use sealcast_wire::frame::{FLAG_SIGNED, SEGMENT_MIN};

use super::*;

impl Net {
    /// So many members with datagrams as short as they may be, in a view that orders.
    fn large(members: usize, loss: u64, seed: u64) -> (Net, Vec<usize>) {
        let all: Vec<usize> = (0..members).collect();
        let mut net = Net::new(members, loss, seed);
        let config = || Config { segment: SEGMENT_MIN, ..Config::default() };
        net.nodes = all.iter().map(|_| Sequencer::new(config(), 1 << 20)).collect();
        net.is_aside = true;
        net.order(1, &all);
        (net, all)
    }

    /// It says and hears nothing any more.
    fn kill(&mut self, node: usize) {
        self.deaf.insert(node);
        self.keys[node].clear();
        self.under_way.retain(|_, (from, ..)| *from != node);
        self.current[node] = 0;
    }

    /// Parts come together: each ends its own view, and then all report.
    fn merge(&mut self, epoch: u32, all: &[usize]) {
        self.prepare(epoch, all, 100_000);
        self.install(epoch, all);
        self.run(self.now + 100_000);
        self.change(epoch + 1, all);
    }

    /// Each of these publishes one ordered message.
    fn order_one_each(&mut self, nodes: &[usize], n: u8) {
        for node in nodes {
            self.publish_as(Guarantee::Ordered, *node, "c1/a", &[*node as u8, n]).expect("there is room");
        }
        self.run(self.now + 2_000);
    }

    /// What a node got of the order, without positions.
    fn bodies(&self, node: usize) -> Vec<&[u8]> {
        self.order[node].iter().map(|(.., body)| &**body).collect()
    }

    /// How many signed words were said.
    fn signed_words(&self) -> usize {
        let is_word = |it: &Header| it.flags & (FLAG_RELIABLE | FLAG_SIGNED) == FLAG_RELIABLE | FLAG_SIGNED;
        self.sent.iter().filter_map(|(_, it)| Header::parse(it).ok()).filter(is_word).count()
    }
}

const MEMBERS: usize = 72;

#[test]
fn rule_b3_seventy_two_members_lose_their_sequencer_and_nothing_that_was_acknowledged() {
    let (mut net, mut stay) = Net::large(MEMBERS, 10, 301);
    let speakers = [0, 1, 50, 70, 71];
    for n in 0..5 {
        net.order_one_each(&speakers, n);
    }
    // It dies in the midst of that, and then the next one does.
    for (epoch, dead) in [(3, 0), (4, 1)] {
        stay.retain(|it| *it != dead);
        let rest: Vec<usize> = speakers.iter().copied().filter(|it| stay.contains(it)).collect();
        net.order_one_each(&rest, 5 * epoch as u8);
        net.kill(dead);
        net.run(net.now + 500);
        net.change(epoch, &stay);
        assert!(stay.iter().all(|node| net.nodes[*node].order_status.sequencer.is_some()), "they order in {epoch}");
        net.order_one_each(&rest, 5 * epoch as u8 + 1);
    }
    net.run(net.now + 5 * SECOND);
    let order = net.bodies(71);
    assert!(stay.iter().all(|node| net.bodies(*node) == order), "all deliver one order");
    assert!(stay.iter().all(|node| net.in_doubt[*node].is_empty() && net.gaps.is_empty()));
    assert!([50, 70, 71].iter().all(|node| net.ordered[*node].len() == 5 + 4), "all is acknowledged");
    let all: BTreeSet<_> = order.iter().collect();
    assert_eq!(all.len(), order.len(), "nothing comes twice");
    let positions: BTreeSet<u64> = net.order[71].iter().map(|(at, ..)| *at).collect();
    let acknowledged = net.ordered.iter().flatten();
    assert!(acknowledged.into_iter().all(|(_, at)| positions.contains(at)), "nothing acknowledged is lost");
    assert!(net.suspected.iter().all(|(by, _)| !stay.contains(by)), "nobody that stays takes anybody for dead");
    assert!(net.sent.iter().all(|(_, it)| it.len() <= SEGMENT_MIN), "each report fits a datagram");
}

/// Those apart name the others by their number alone, and a majority stays one: the greater part of all, and of two
/// halves the one with the lowest id. Who was in no view with the others counts alike.
#[test]
fn rule_b1_seventy_two_members_part_twice_and_one_part_alone_orders() {
    let (mut net, all) = Net::large(MEMBERS, 0, 302);
    net.order_one_each(&[7, 70], 0);
    let (greater, less): (Vec<usize>, Vec<usize>) = all.iter().partition(|it| **it < 44);
    let orders = |net: &Net, of: &[usize]| {
        let ordering = of.iter().filter(|it| net.nodes[**it].order_status.sequencer.is_some()).count();
        assert!(ordering == 0 || ordering == of.len(), "{ordering} of {}", of.len());
        ordering > 0
    };
    net.parted = Some(less.iter().copied().collect());
    net.change(3, &less);
    net.change(4, &greater);
    assert!(orders(&net, &greater) && !orders(&net, &less));
    net.order_one_each(&[7], 1);
    let (odd, even): (Vec<usize>, Vec<usize>) = greater.iter().partition(|it| **it % 2 == 1);
    net.parted = Some(odd.iter().copied().collect());
    net.change(5, &odd);
    net.change(6, &even);
    assert!(orders(&net, &even) && !orders(&net, &odd), "half of them, with the lowest id");
    net.order_one_each(&[8], 2);
    // Without a majority of those who order nobody does, however many they are.
    let others: Vec<usize> = less.iter().chain(&odd).copied().collect();
    net.parted = Some(even.iter().copied().collect());
    net.merge(7, &others);
    assert!(!orders(&net, &others));
    let some: Vec<usize> = others.iter().chain(even.iter().skip(12)).copied().collect();
    net.parted = Some(even.iter().take(12).copied().collect());
    net.merge(9, &some);
    assert!(!orders(&net, &some), "10 of 22");
    net.parted = None;
    net.run(net.now + SECOND);
    net.merge(11, &all);
    assert!(orders(&net, &all));
    net.order_one_each(&[7, 8, 71], 3);
    net.run(net.now + 3 * SECOND);
    let last = net.bodies(0).split_off(2 + 1 + 1);
    assert_eq!(last.iter().copied().collect::<BTreeSet<_>>(), BTreeSet::from([&[7, 3][..], &[8, 3], &[71, 3]]));
    assert!(all.iter().all(|node| net.bodies(*node).ends_with(&last)), "all deliver what comes from then on");
    assert!(even.iter().all(|node| net.bodies(*node).len() == 2 + 1 + 1 + 3), "those who always ordered have it all");
    assert!(net.sent.iter().all(|(_, it)| it.len() <= SEGMENT_MIN), "each report fits a datagram");
}

#[test]
fn rule_b10_what_many_members_say_at_the_end_of_a_view_and_in_silence_grows_with_them() {
    for members in [32, 96] {
        let (mut net, all) = Net::large(members, 0, 303);
        net.sent.clear();
        net.prepare(3, &all, 100_000);
        assert!(net.flushed.iter().all(|it| it.is_some() && *it == net.flushed[0]));
        assert!(net.signed_words() <= 2 * members, "{} words of {members}", net.signed_words());
        net.install(3, &all);
        net.order_one_each(&[3, 4], 0);
        net.run(net.now + SECOND);
        net.sent.clear();
        net.run(net.now + 6 * SECOND);
        assert!(net.sent.len() <= 17 * members, "{} datagrams of {members} in 6 s of silence", net.sent.len());
    }
}
