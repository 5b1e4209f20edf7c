//! Signs of life in a large group.

use std::collections::BTreeSet;

use super::*;

const MEMBERS: u32 = 16;
const DETECT: Duration = Duration::from_millis(500);
const STEP: u64 = 2_000;

/// Members that say nothing but that they are alive.
struct Net {
    now: u64,
    nodes: Vec<Multicast>,
    keys: Vec<Arc<dyn Protect>>,
    /// Who is gone.
    gone: BTreeSet<usize>,
    /// Whose words to one member alone do not come.
    unheard: BTreeSet<usize>,
    /// Datagrams to all, and to one.
    sent: (usize, usize),
    /// By node: whom it suspects.
    suspected: Vec<BTreeSet<u32>>,
}

impl Net {
    fn new() -> Net {
        let config = Config { detect: DETECT, collects: true, ..Config::default() };
        let mut nodes: Vec<Multicast> = (0..MEMBERS).map(|_| Multicast::new(config)).collect();
        let keys = group(1, MEMBERS);
        let now = Now { monotonic: Monotonic(1_000), utc: Some(Utc(0)) };
        for (me, node) in nodes.iter_mut().enumerate() {
            let member = |slot: u32| Member {
                id: MemberId { cert: CertHash([slot as u8; 32]), incarnation: incarnation(Slot(slot)) },
                name: "robot".into(),
            };
            let members = (0..MEMBERS).map(member).collect();
            let view = View::new(None, keys[me].epoch(), members, Slot(me as u32), Change::Joined);
            node.handle(now, Input::Install { view: &view, protect: Some(&keys[me]), access: &everything() });
        }
        let suspected = vec![BTreeSet::new(); MEMBERS as usize];
        Net { now: 1_000, nodes, keys, gone: BTreeSet::new(), unheard: BTreeSet::new(), sent: (0, 0), suspected }
    }

    fn run(&mut self, time: Duration) {
        let until = self.now + time.as_micros() as u64;
        while self.now < until {
            self.now += STEP;
            let now = Now { monotonic: Monotonic(self.now), utc: Some(Utc(0)) };
            for node in (0..self.nodes.len()).filter(|node| !self.gone.contains(node)).collect::<Vec<_>>() {
                if self.nodes[node].timeout().is_some_and(|at| at <= now.monotonic) {
                    self.nodes[node].handle_timeout(now, Some(&self.keys[node].clone()));
                }
                let mut batch = Batch::default();
                while let Some(output) = self.nodes[node].poll(&mut batch) {
                    let all: Vec<usize> = match output {
                        Output::Transmit(To::Group) => (0..self.nodes.len()).filter(|it| *it != node).collect(),
                        Output::Transmit(To::Slot(slot)) => vec![slot.index()],
                        Output::Suspect(slot) => {
                            self.suspected[node].insert(slot.0);
                            continue;
                        }
                        _ => continue,
                    };
                    let alone = matches!(output, Output::Transmit(To::Slot(_)));
                    *(if alone { &mut self.sent.1 } else { &mut self.sent.0 }) += batch.iter().count();
                    for to in all.into_iter().filter(|to| !self.gone.contains(to)) {
                        if alone && self.unheard.contains(&node) {
                            continue;
                        }
                        for datagram in batch.iter() {
                            let key = self.keys[to].clone();
                            let mut datagram = datagram.to_vec();
                            let (source, flags, frame) = key.open(&mut datagram).expect("they share the key");
                            self.nodes[to].handle(now, inside(source, flags, frame, &*key));
                        }
                    }
                    batch.clear();
                }
            }
        }
    }
}

#[test]
fn rule_b10_signs_of_life_grow_with_the_members_and_nobody_is_suspected() {
    let mut net = Net::new();
    net.run(Duration::from_secs(5));
    assert!(net.suspected.iter().all(BTreeSet::is_empty), "{:?}", net.suspected);
    // 80 periods of 62.5 ms: one word of the collector's to all in each, and one of each other member's to it alone.
    let (all, alone) = net.sent;
    assert!((75..85).contains(&all) && (15 * 75..15 * 85).contains(&alone), "{all} to all, {alone} to one");
}

#[test]
fn rule_b10_of_a_member_that_is_gone_all_know_and_of_a_collector_that_is_gone_it_alone() {
    for gone in [9, 0] {
        let mut net = Net::new();
        net.run(Duration::from_secs(1));
        net.gone.insert(gone);
        net.run(DETECT * 2);
        let others = (0..MEMBERS as usize).filter(|it| *it != gone);
        others.for_each(|it| assert_eq!(net.suspected[it], BTreeSet::from([gone as u32]), "by {it}"));
        net.suspected.iter_mut().for_each(BTreeSet::clear);
        net.run(DETECT * 3);
        assert!(net.suspected.iter().flatten().all(|it| *it == gone as u32), "{:?}", net.suspected);
    }
}

#[test]
fn rule_b10_whom_the_collector_does_not_hear_alone_it_hears_among_all() {
    let mut net = Net::new();
    net.unheard = (1..MEMBERS as usize).collect();
    net.run(Duration::from_secs(5));
    assert!(net.suspected.iter().all(BTreeSet::is_empty), "{:?}", net.suspected);
}

#[test]
fn rule_g2_nobody_but_the_collector_says_whom_it_heard() {
    let mut net = Net::new();
    net.run(Duration::from_millis(100));
    net.gone.insert(9);
    let key = net.keys[3].clone();
    for _ in 0..600 {
        net.run(Duration::from_millis(2));
        let mut datagram = vec![0; HEADER_LEN];
        super::super::frame::write_heard(&[0xFF, 0xFF], &mut datagram);
        datagram.resize(datagram.len() + TAG_LEN, 0);
        net.keys[5].seal(Domain::GROUP, 0, &mut datagram).expect("it has a key");
        let (source, flags, frame) = key.open(&mut datagram).expect("they share the key");
        let now = Now { monotonic: Monotonic(net.now), utc: Some(Utc(0)) };
        net.nodes[3].handle(now, inside(source, flags, frame, &*key));
    }
    assert!(net.suspected[3].contains(&9));
    assert_eq!(net.nodes[3].receiver.drops().of(Dropped::Policy), 600);
}
