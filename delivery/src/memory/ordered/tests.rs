//! Clients and their orderer, joined by a wire that loses what it is told to lose.

use super::*;
use crate::What;
use crate::memory::Orderer;
use sealcast_wire::{CertHash, Change, Domain, Roster, Slot, To, View};

const ORDERER: Address = Address::Node(0);

struct Wire {
    now: Now,
    orderer: Orderer,
    clients: Vec<Ordered>,
    seen: Vec<Vec<String>>,
    /// Loses about one datagram in so many; 0 loses none.
    lose_each: u64,
    chance: u64,
}

impl Wire {
    fn new(n: usize, start: Start) -> Wire {
        Wire {
            now: Now { monotonic: Monotonic(0), utc: None },
            orderer: Orderer::new(),
            clients: (0..n).map(|_| Ordered::new(ORDERER, start)).collect(),
            seen: vec![Vec::new(); n],
            lose_each: 0,
            chance: 1,
        }
    }

    fn keys<'a>(bytes: &'a [u8]) -> Outgoing<'a> {
        let what = What::Keys { bytes, sealed: false, names: None };
        Outgoing { what, guarantee: Guarantee::Ordered, to: To::Group }
    }

    fn send(&mut self, client: usize, bytes: &[u8]) -> Token {
        self.clients[client].send(self.now, None, Wire::keys(bytes)).expect("there is room")
    }

    fn loses(&mut self) -> bool {
        self.chance = self.chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        self.lose_each > 0 && (self.chance >> 33).is_multiple_of(self.lose_each)
    }

    fn run(&mut self, millis: u64) {
        for _ in 0..millis {
            self.now.monotonic = self.now.monotonic + Duration::from_millis(1);
            for i in 0..self.clients.len() {
                if self.clients[i].timeout().is_some_and(|t| t <= self.now.monotonic) {
                    self.clients[i].handle_timeout(self.now, None);
                }
                self.drain(i);
            }
        }
    }

    fn drain(&mut self, i: usize) {
        let mut batch = Batch::default();
        while let Some(output) = self.clients[i].poll(&mut batch) {
            match output {
                Output::Transmit(_) => {
                    for datagram in batch.iter().map(<[u8]>::to_vec).collect::<Vec<_>>() {
                        if !self.loses() {
                            self.orderer.handle(Address::Node(1 + i as u32), &datagram);
                        }
                    }
                    batch.clear();
                }
                Output::Keys { bytes, .. } => self.seen[i].push(String::from_utf8(bytes).expect("tests send text")),
                Output::Deliver(d) => self.seen[i].push(format!("#{} {}", d.index, String::from_utf8_lossy(&d.body))),
                Output::Outcome(token, outcome) => self.seen[i].push(format!("{} {outcome:?}", token.0)),
                Output::Fetched(id, result) => self.seen[i].push(format!("{id:?} {result:?}")),
                Output::Flushed(epoch, cut) => self.seen[i].push(format!("flushed {epoch:?} {cut:?}")),
                Output::Dropped(_) => {}
                other => panic!("not expected: {other:?}"),
            }
        }
        while let Some((to, mut datagram)) = self.orderer.poll() {
            for client in 0..self.clients.len() {
                if to.is_none_or(|to| to == Address::Node(1 + client as u32)) && !self.loses() {
                    self.clients[client].handle(self.now, Input::open(ORDERER, &mut datagram[2..]));
                }
            }
        }
    }
}

#[test]
fn all_see_one_order_in_spite_of_loss() {
    for lose_each in [0, 2, 3, 5, 7] {
        let mut wire = Wire { lose_each, ..Wire::new(3, Start::Beginning) };
        for round in 0..20 {
            for client in 0..3 {
                wire.send(client, format!("{round}/{client}").as_bytes());
            }
            wire.run(3);
        }
        wire.run(5_000);
        // A client's own messages show as outcomes at their places: compare by positions.
        assert!(wire.seen.iter().all(|s| s.len() == 60), "losing each {lose_each}th: {:?}", wire.seen);
        for place in 0..60 {
            let at: Vec<&String> = wire.seen.iter().map(|s| &s[place]).collect();
            let is_ordered = |s: &&String| s.ends_with(&format!("Ordered({place})"));
            let (ordered, texts): (Vec<&String>, Vec<&String>) = at.iter().copied().partition(is_ordered);
            assert!(ordered.len() == 1 && texts[0] == texts[1], "{at:?}");
        }
    }
}

/// Members judge by position: the first valid commit of an epoch wins, and the orderer reads none.
#[test]
fn of_two_racers_both_have_a_position_and_all_see_the_same_one_first() {
    let mut wire = Wire::new(2, Start::Beginning);
    wire.send(0, b"a");
    wire.send(1, b"b");
    wire.run(100);
    assert_eq!(wire.seen[0], ["1 Ordered(0)", "b"]);
    assert_eq!(wire.seen[1], ["a", "1 Ordered(1)"]);
}

#[test]
fn the_same_bytes_again_are_the_same_message() {
    let mut wire = Wire::new(2, Start::Beginning);
    wire.send(0, b"commit");
    wire.run(50);
    // The process starts again, knows nothing of the outcome, and sends what its disk held.
    wire.clients[0] = Ordered::new(ORDERER, Start::Head);
    wire.seen[0].clear();
    wire.run(50);
    wire.send(0, b"commit");
    wire.run(50);
    assert_eq!(wire.seen[0], ["1 Ordered(0)"]);
    assert_eq!(wire.seen[1], ["commit"]);
    assert_eq!(wire.orderer.ordered(), 1);
}

#[test]
fn unsealed_messages_are_taken_by_a_plain_way_only_and_two_of_one_text_stay_two() {
    let mut wire = Wire::new(3, Start::Beginning);
    wire.clients[0] = Ordered::plain(ORDERER, Start::Beginning, 7);
    wire.clients[1] = Ordered::plain(ORDERER, Start::Beginning, 1 << 40);
    for client in 0..2 {
        let what = What::Data { topic: "t", domain: Domain::GROUP, signed: false, sent_micros: None, body: b"same" };
        let message = Outgoing { what, guarantee: Guarantee::Ordered, to: To::Group };
        wire.clients[client].send(wire.now, None, message).expect("plain ways need no key");
    }
    wire.run(50);
    let delivered = |client: usize| wire.seen[client].iter().filter(|s| s.starts_with('#')).collect::<Vec<_>>();
    assert_eq!(delivered(0), ["#0 same", "#1 same"]);
    assert_eq!(delivered(1), delivered(0));
    assert!(delivered(2).is_empty(), "a way for sealed messages takes no others");
}

#[test]
fn what_one_offers_another_fetches() {
    let mut wire = Wire { lose_each: 3, ..Wire::new(2, Start::Head) };
    let what = Fetch::KeyPackage(CertHash([7; 32]));
    wire.clients[1].handle(wire.now, Input::Fetch(FetchId(5), &what));
    wire.run(60);
    assert!(wire.seen[1].is_empty(), "nobody has it yet");
    wire.clients[0].handle(wire.now, Input::Provide { what: &what, bytes: b"package" });
    wire.run(2_000);
    assert_eq!(wire.seen[1], [format!("{:?} {:?}", FetchId(5), Fetched::Bytes(b"package".to_vec()))]);
    wire.clients[1].handle(wire.now, Input::Fetch(FetchId(6), &Fetch::Blob([1; 32])));
    wire.run(5_000);
    assert_eq!(wire.seen[1][1], format!("{:?} Missing", FetchId(6)));
}

#[test]
fn only_the_orderer_orders() {
    let mut client = Ordered::new(ORDERER, Start::Beginning);
    let now = Now { monotonic: Monotonic(0), utc: None };
    let mut entry = Frame::Entry { index: 0, id: [0; 16], before: [0; 32], payload: b"x" }.bytes();
    client.handle(now, Input::open(Address::Node(9), &mut entry));
    assert_eq!(dropped(&mut client), [Dropped::Auth]);
}

/// Why something was dropped, if that is all that comes.
fn dropped(client: &mut Ordered) -> Vec<Dropped> {
    let all = std::iter::from_fn(|| client.poll(&mut Batch::default()));
    let reasons = |output| match output {
        Output::Dropped(drops) => [Dropped::Auth, Dropped::Stale].into_iter().filter(move |why| drops.of(*why) > 0),
        other => panic!("not expected: {other:?}"),
    };
    all.flat_map(reasons).collect()
}

/// A view whose epoch has this number, as it is prepared.
fn prepared(counter: u32) -> View {
    View::new(None, EpochId { counter, hash: 7 }, Roster::default(), Slot(0), Change::Joined)
}

fn prepare(client: &mut Ordered, now: Now, view: &View, flush: Flush) {
    client.handle(now, Input::Prepare { view, flush });
}

/// An orderer shows a client this, behind what has that hash.
fn show(client: &mut Ordered, index: u64, id: u8, before: Chain) {
    let now = Now { monotonic: Monotonic(0), utc: None };
    let payload = open_datagram(&Frame::Keys(b"commit"));
    let mut entry = Frame::Entry { index, id: [id; 16], before, payload: &payload }.bytes();
    client.handle(now, Input::open(ORDERER, &mut entry));
}

/// Whether a message of the key scheme comes, and nothing else.
fn takes(client: &mut Ordered) -> bool {
    let all: Vec<_> = std::iter::from_fn(|| client.poll(&mut Batch::default())).collect();
    matches!(all[..], [Output::Keys { .. }])
}

#[test]
fn rule_b4_members_flush_a_view_up_to_one_position_whoever_asks_first() {
    let mut wire = Wire::new(3, Start::Beginning);
    wire.lose_each = 4;
    let view = prepared(2);
    for i in 0..20 {
        wire.send(i % 3, &[i as u8]);
        if i % 7 == 6 {
            let now = wire.now;
            prepare(&mut wire.clients[i / 7], now, &view, Flush::Now);
        }
        wire.run(3);
    }
    let now = wire.now;
    prepare(&mut wire.clients[2], now, &view, Flush::Now);
    wire.run(3000);
    let cuts: Vec<Vec<&String>> =
        wire.seen.iter().map(|seen| seen.iter().filter(|it| it.starts_with("flushed")).collect()).collect();
    assert_eq!(cuts.iter().map(Vec::len).collect::<Vec<_>>(), [1, 1, 1], "{cuts:?}");
    assert!(cuts[0] == cuts[1] && cuts[1] == cuts[2], "{cuts:?}");
    let mut later = wire.clients.remove(0);
    prepare(&mut later, now, &prepared(3), Flush::Later);
    assert!(later.poll(&mut Batch::default()).is_none(), "where a view ends may not be known yet");
}

#[test]
fn rule_d2_an_order_that_forks_is_not_followed_and_two_orders_have_two_cuts() {
    let now = Now { monotonic: Monotonic(0), utc: None };
    let mut clients = [1, 2].map(|first| {
        let mut client = Ordered::new(ORDERER, Start::Beginning);
        show(&mut client, 0, first, [0; 32]);
        assert!(takes(&mut client));
        let (this, other) = (chained(&[0; 32], &[first; 16]), chained(&[0; 32], &[3 - first; 16]));
        show(&mut client, 1, 9, other);
        assert_eq!(dropped(&mut client), [Dropped::Auth], "it stands behind something else");
        show(&mut client, 1, 9, this);
        assert!(takes(&mut client));
        client
    });
    let cuts = clients.each_mut().map(|client| {
        prepare(client, now, &prepared(2), Flush::At(1));
        match client.poll(&mut Batch::default()) {
            Some(Output::Flushed(EpochId { counter: 2, .. }, cut)) => cut,
            other => panic!("no cut: {other:?}"),
        }
    });
    assert_ne!(cuts[0], cuts[1]);
    prepare(&mut clients[0], now, &prepared(3), Flush::At(7));
    assert_eq!(dropped(&mut clients[0]), [Dropped::Stale], "of what did not come nothing can be said");
}
