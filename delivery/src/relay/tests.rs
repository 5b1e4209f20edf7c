//! Members of a group at one relay, with virtual time: an MQTT broker that forwards, and the real directory.

use std::collections::VecDeque;
use std::sync::Arc;

use sealcast_crypto::hash::sha256;
use sealcast_crypto::secret::Secret;
use sealcast_crypto::signature::OriginKey;
use sealcast_relay::directory::{Config as Quotas, Directory, Memory};
use sealcast_relay::evidence::Evidence;
use sealcast_relay::follower::{Answer, Follower};
use sealcast_relay::ids::{DeviceId, GroupId, Head};
use sealcast_relay::log::LogEntry;
use sealcast_relay::receipt::Receipt;
use sealcast_relay::request::Request;
use sealcast_relay::response::Refusal;
use sealcast_wire::frame::{KIND_SEALED, OPEN_HEADER_LEN};
use sealcast_wire::{
    Address, CertHash, Change, Domain, EpochId, Fetch, FetchId, Fetched, Guarantee, Incarnation, KeyPackages, MemberId,
    Monotonic, Now, Protect, Roster, Slot, To, Utc, View, limits,
};

use super::{Config, DIRECTORY, Handle, MQTT, Relay};
use crate::memory::Frame;
use crate::testing::{everything, group};
use crate::{Batch, Delivery, Input, Outcome, Outgoing, Output, SendError, Token, What};

struct Net {
    directory: Directory,
    storage: Memory,
    /// A copy of the storage, from which a relay that forgot answers.
    old: Option<Memory>,
    /// Another log, which some members see.
    fork: Option<(Memory, Vec<usize>)>,
    members: Vec<Member>,
    time: u64,
    /// Announcements do not reach members.
    withholds: bool,
    /// How many members have sent each other.
    datagrams: usize,
    /// Who enters is to found the group.
    founds: bool,
    /// Nobody has a clock.
    no_clock: bool,
    /// Somebody appends before each append of a member comes.
    has_rival: bool,
}

struct Member {
    relay: Relay,
    handle: Handle,
    /// Responses that have not come.
    inbox: VecDeque<(Address, Vec<u8>)>,
    seen: Vec<String>,
    record: Option<Vec<u8>>,
    is_cut_off: bool,
    /// Nothing of other members reaches it.
    hears_nobody: bool,
    /// Of the view in use.
    protect: Option<Arc<dyn Protect>>,
}

fn key(seed: u8) -> OriginKey {
    OriginKey::from_seed(&Secret::from_bytes([seed; 32]))
}

impl Net {
    fn new(members: usize) -> Net {
        let directory = Directory::new(Quotas::default(), key(1));
        let mut net = Net {
            directory,
            storage: Memory::default(),
            old: None,
            fork: None,
            members: vec![],
            time: 1,
            withholds: false,
            datagrams: 0,
            founds: false,
            no_clock: false,
            has_rival: false,
        };
        (0..members).for_each(|_| net.enter(None));
        net
    }

    fn now(&self) -> Now {
        let utc = Utc(1_800_000_000 + (self.time / 1_000_000) as i64);
        Now { monotonic: Monotonic(self.time), utc: Some(utc).filter(|_| !self.no_clock) }
    }

    fn config(&self) -> Config {
        Config {
            relay: *self.directory.public(),
            signer: Box::new(key(2)),
            device: Box::new(|cert| DeviceId(sha256(&cert.0))),
        }
    }

    fn enter(&mut self, record: Option<&[u8]>) {
        let (relay, handle) = Relay::open(self.config(), record, self.founds).expect("its own record");
        self.members.push(Member {
            relay,
            handle,
            inbox: VecDeque::new(),
            seen: vec![],
            record: record.map(<[u8]>::to_vec),
            is_cut_off: false,
            hears_nobody: false,
            protect: None,
        });
        let (at, now) = (self.members.len() - 1, self.now());
        [MQTT, DIRECTORY].into_iter().for_each(|it| self.members[at].relay.handle(now, Input::Connected(it)));
        self.run(10);
    }

    /// Its process ends, and another one goes on from what it stored.
    fn restart(&mut self, member: usize) {
        let record = self.members[member].record.clone();
        self.enter(record.as_deref());
        let new = self.members.pop().expect("it has entered");
        self.members[member] = new;
    }

    fn send(&mut self, member: usize, text: &str, guarantee: Guarantee) -> Token {
        let what = What::Keys { bytes: text.as_bytes(), sealed: false, names: None };
        let now = self.now();
        self.members[member].relay.send(now, None, Outgoing { what, guarantee, to: To::Group }).expect("there is room")
    }

    /// A member publishes, sealed for the view in use, or says why not.
    fn publish(&mut self, member: usize) -> Result<Token, SendError> {
        let what = What::Data { topic: "t", domain: Domain(1), signed: false, sent_micros: None, body: b"data" };
        let (now, Member { relay, protect, .. }) = (self.now(), &mut self.members[member]);
        relay.send(now, protect.as_ref(), Outgoing { what, guarantee: Guarantee::Ordered, to: To::Group })
    }

    /// Lets so many milliseconds pass.
    fn run(&mut self, millis: u64) {
        for _ in 0..=millis {
            self.time += 1_000;
            (0..self.members.len()).for_each(|it| self.step(it));
        }
    }

    fn step(&mut self, at: usize) {
        let now = self.now();
        while let Some((peer, bytes)) = self.members[at].inbox.pop_front() {
            self.members[at].relay.handle(now, Input::Message { peer, bytes: &bytes });
        }
        if self.members[at].relay.timeout().is_some_and(|it| it <= now.monotonic) {
            let protect = self.members[at].protect.clone();
            self.members[at].relay.handle_timeout(now, protect.as_ref());
        }
        let mut batch = Batch::default();
        loop {
            batch.clear();
            let Some(output) = self.members[at].relay.poll(&mut batch) else { break };
            match output {
                Output::Transmit(_) if batch.to == Some(DIRECTORY) => {
                    for request in batch.iter().map(<[u8]>::to_vec).collect::<Vec<_>>() {
                        self.ask(at, &request);
                    }
                }
                Output::Transmit(_) => {
                    let datagrams: Vec<Vec<u8>> = batch.iter().map(<[u8]>::to_vec).collect();
                    self.datagrams += datagrams.len();
                    for datagram in datagrams {
                        let hears = |to: &usize| *to != at && !self.members[*to].hears_nobody;
                        for to in (0..self.members.len()).filter(hears).collect::<Vec<_>>() {
                            self.hear(to, &mut datagram.clone());
                        }
                    }
                }
                Output::Keys { position, bytes, .. } => {
                    let text = String::from_utf8(bytes).expect("a text");
                    let position = position.map_or_else(|| "-".to_owned(), |it| it.to_string());
                    self.members[at].seen.push(format!("{position} {text}"));
                }
                Output::Outcome(_, Outcome::Ordered(at_position)) => {
                    self.members[at].seen.push(format!("{at_position} ours"));
                }
                Output::Record { index, ours, .. } => {
                    let whose = if ours.is_some() { " of ours" } else { "" };
                    self.members[at].seen.push(format!("{index} data{whose}"));
                }
                Output::Outcome(_, Outcome::Accepted) | Output::Dropped(_) => {}
                Output::Fetched(id, result) => {
                    let what = if let Fetched::Bytes(bytes) = result { format!("{bytes:?}") } else { "nothing".into() };
                    self.members[at].seen.push(format!("fetched {}: {what}", id.0));
                }
                Output::Store { record, .. } => self.members[at].record = Some(record),
                Output::PackagesKept(count) => self.members[at].seen.push(format!("{count} packages")),
                Output::Up => self.members[at].seen.push("up".into()),
                other => self.members[at].seen.push(format!("{other:?}")),
            }
        }
    }

    /// A datagram of another member.
    fn hear(&mut self, to: usize, datagram: &mut [u8]) {
        let (now, member) = (self.now(), &mut self.members[to]);
        if datagram[1] != KIND_SEALED {
            return member.relay.handle(now, Input::open(MQTT, &mut datagram[OPEN_HEADER_LEN..]));
        }
        let Some(protect) = member.protect.clone() else { return };
        if let Ok((source, flags, frame)) = protect.open(datagram) {
            let (sealed, protect) = (None, Some(&*protect));
            member.relay.handle(now, Input::Frame { source, from: MQTT, flags, frame, sealed, protect });
        }
    }

    fn ask(&mut self, member: usize, request: &[u8]) {
        if self.members[member].is_cut_off {
            return;
        }
        if self.has_rival && matches!(Request::decode(request), Ok(Request::Append(..))) {
            self.append_junk(2, 1);
        }
        let now = self.now();
        let sides = self.fork.as_ref().map(|(_, of)| of.clone()).unwrap_or_default();
        let storage = match &mut self.fork {
            Some((storage, of)) if of.contains(&member) => storage,
            _ => self.old.as_mut().unwrap_or(&mut self.storage),
        };
        let handled = self.directory.handle(now, request, storage).expect("memory does not fail");
        storage.apply(handled.writes);
        self.members[member].inbox.push_back((DIRECTORY, handled.response));
        let Some(published) = handled.published.filter(|_| !self.withholds) else { return };
        let same_side = |at: &usize| sides.contains(at) == sides.contains(&member);
        let hear = self.members.iter_mut().enumerate().filter(|(at, it)| !it.is_cut_off && same_side(at));
        for (_, it) in hear {
            it.inbox.push_back((MQTT, published.to_bytes(usize::MAX)));
        }
    }

    /// An epoch begins at a member, with the key of this seed.
    fn begin(&mut self, member: usize, seed: u8) {
        let now = self.now();
        self.members[member].relay.handle(now, Input::AppendKey(&Arc::new(key(seed))));
    }

    /// Somebody appends by this key, as often as the directory takes that.
    fn flood(&mut self, seed: u8) {
        self.append_junk(seed, usize::MAX);
    }

    fn append_junk(&mut self, seed: u8, times: usize) {
        let mut follower = Follower::new(GroupId::of(&key(2).public_bytes()), *self.directory.public());
        let mut junk = 0;
        while junk < times {
            let call = follower.read();
            let response = self.directory.handle(self.now(), call.request(), &self.storage).unwrap().response;
            follower.handle(&call, &response).expect("it is honest");
            if follower.is_behind() {
                continue;
            }
            let entry = LogEntry { next_key: Some([9; 32]), bytes: vec![] };
            let call = follower.propose(entry, vec![], vec![], &key(seed)).unwrap();
            let handled = self.directory.handle(self.now(), call.request(), &self.storage).unwrap();
            self.storage.apply(handled.writes);
            if let Ok(Answer::Refused(Refusal::RateLimited { .. })) = follower.handle(&call, &handled.response) {
                return;
            }
            junk += 1;
        }
    }

    fn seen(&mut self, member: usize) -> Vec<String> {
        std::mem::take(&mut self.members[member].seen)
    }
}

#[test]
fn rule_d1_members_append_and_leave_mail_though_former_ones_use_up_the_rate_of_the_joiner_key() {
    let mut net = Net::new(2);
    net.send(0, "a", Guarantee::Ordered);
    net.run(3);
    // The first key of an epoch is named by the joiner key, the next one by that.
    for seed in [10, 11] {
        [0, 1].into_iter().for_each(|member| net.begin(member, seed));
        net.send(1, "names", Guarantee::Ordered);
        net.run(3);
    }
    net.seen(0);
    let said = |net: &mut Net| -> Vec<String> {
        net.seen(0).iter().map(|it| it.split_once(' ').expect("a position and a text").1.to_owned()).collect()
    };
    // An evicted member has the joiner key and that of the epoch before. What it put into the log is read first.
    [2, 10].into_iter().for_each(|seed| net.flood(seed));
    net.send(0, "b", Guarantee::Ordered);
    net.send(1, "c", Guarantee::Ordered);
    net.run(50);
    let mut both = said(&mut net);
    both.sort();
    assert_eq!(both, ["c", "ours"]);
    // A new run has the newest key alone. One that the directory has not heard of comes in by the joiner key, which has to wait.
    net.restart(1);
    net.begin(1, 11);
    net.send(1, "d", Guarantee::Ordered);
    net.run(3);
    assert_eq!(said(&mut net), ["d"]);
    net.restart(1);
    net.begin(1, 12);
    net.flood(2);
    net.send(1, "e", Guarantee::Ordered);
    net.run(150);
    assert_eq!(said(&mut net), ["e"]);
    net.flood(2);
    net.begin(0, 12);
    net.send(1, "f", Guarantee::Ordered);
    net.run(50);
    assert_eq!(said(&mut net), ["f"]);
    let now = net.now();
    net.members[1].relay.handle(now, Input::Provide { what: &Fetch::Mail(CertHash([7; 32])), bytes: b"mail" });
    net.run(3);
    net.members[0].relay.handle(now, Input::Fetch(FetchId(5), &Fetch::Mail(CertHash([7; 32]))));
    net.run(3);
    assert_eq!(net.seen(0), [format!("fetched 5: {:?}", b"mail")]);
}

#[test]
fn a_directory_that_refuses_a_founder_is_known_for_why() {
    let mut net = Net::new(0);
    net.directory = Directory::new(Quotas { groups: 0, ..Quotas::default() }, key(1));
    net.enter(None);
    net.send(0, "a", Guarantee::Ordered);
    net.run(3);
    let why = net.members[0].handle.lock().refusal.clone();
    assert!(why.as_ref().is_some_and(|it| it.contains("quota")), "{why:?}");
    net.directory = Directory::new(Quotas::default(), key(1));
    net.send(0, "b", Guarantee::Ordered);
    net.run(3);
    assert_eq!(net.members[0].handle.lock().refusal, None);
}

#[test]
fn rule_d1_who_loses_the_head_to_somebody_faster_each_time_gets_in_behind_that_one() {
    let mut net = Net::new(2);
    net.send(0, "a", Guarantee::Ordered);
    net.run(3);
    net.has_rival = true;
    net.send(1, "b", Guarantee::Ordered);
    net.send(1, "c", Guarantee::Ordered);
    net.send(0, "d", Guarantee::Ordered);
    net.run(40);
    let said = net.seen(0);
    let texts: Vec<&str> = said.iter().filter_map(|it| it.split_once(' ')).map(|(_, text)| text).collect();
    assert_eq!(texts.len(), 4, "{said:?}");
    assert!(["b", "c"].iter().all(|it| texts.contains(it)) && texts[0] == "ours", "{said:?}");
    assert_eq!(net.seen(1).iter().filter(|it| it.ends_with("ours")).count(), 2);
    net.has_rival = false;
    net.send(1, "e", Guarantee::Ordered);
    net.run(3);
    assert!(net.seen(0)[0].ends_with(" e"));
}

#[test]
fn what_is_appended_comes_to_all_in_one_order_and_to_its_author_as_its_position() {
    let mut net = Net::new(3);
    assert!((0..3).all(|it| net.seen(it) == ["up"]));
    net.send(0, "a", Guarantee::Ordered);
    net.run(3);
    // Two at once: one of them does not know of the other one, loses the head, and comes behind.
    net.withholds = true;
    net.send(1, "b", Guarantee::Ordered);
    net.send(2, "c", Guarantee::Ordered);
    net.send(1, "d", Guarantee::Fifo);
    net.run(20);
    net.withholds = false;
    net.send(1, "e", Guarantee::Ordered);
    net.run(20);
    assert_eq!(net.seen(0), ["1 ours", "2 b", "3 d", "4 c", "5 e"].map(String::from).to_vec());
    assert_eq!(net.seen(1), ["1 a", "2 ours", "3 ours", "4 c", "5 ours"].map(String::from).to_vec());
    assert_eq!(net.seen(2), ["1 a", "2 b", "3 d", "4 ours", "5 e"].map(String::from).to_vec());
    net.send(1, "quick", Guarantee::BestEffort);
    net.run(1);
    assert_eq!(net.seen(0), ["- quick"]);
}

#[test]
fn without_announcements_the_log_is_read_all_the_same() {
    let mut net = Net::new(2);
    net.withholds = true;
    net.send(0, "a", Guarantee::Ordered);
    net.run(10);
    assert_eq!(net.seen(1), ["up"]);
    net.run(61_000);
    assert_eq!(net.seen(1), ["1 a"]);
}

#[test]
fn rule_d1_a_member_that_was_cut_off_neither_loses_nor_repeats_its_append() {
    let mut net = Net::new(2);
    net.send(1, "a", Guarantee::Ordered);
    // The request is lost; then its answer is.
    net.members[1].is_cut_off = true;
    net.run(3);
    net.members[1].is_cut_off = false;
    let now = net.now();
    for _ in 0..2 {
        net.members[1].relay.handle(now, Input::Disconnected(DIRECTORY));
        net.members[1].relay.handle(now, Input::Connected(DIRECTORY));
        net.step(1);
        net.members[1].inbox.clear();
    }
    net.members[1].relay.handle(now, Input::Disconnected(DIRECTORY));
    net.members[1].relay.handle(now, Input::Connected(DIRECTORY));
    net.run(10);
    assert_eq!(net.seen(1), ["up", "1 ours"]);
    assert_eq!(net.seen(0), ["up", "1 a"]);
}

#[test]
fn rule_g6_a_later_run_begins_behind_its_checkpoint_and_a_newcomer_at_the_head() {
    let mut net = Net::new(2);
    for text in ["a", "b", "c"] {
        net.send(0, text, Guarantee::Ordered);
        net.run(3);
    }
    let now = net.now();
    net.members[1].relay.handle(now, Input::Checkpointed(2));
    net.step(1);
    net.restart(1);
    net.run(3);
    assert_eq!(net.seen(1), ["up", "3 c"]);
    net.enter(None);
    net.send(0, "d", Guarantee::Ordered);
    net.run(5);
    assert_eq!(net.seen(2), ["up", "4 d"]);
}

#[test]
fn what_is_provided_is_fetched_also_if_the_group_is_founded_later() {
    let mut net = Net::new(2);
    let (now, blob, cert) = (net.now(), vec![1, 2, 3], CertHash([5; 32]));
    let what = Fetch::Blob(sha256(&blob));
    net.members[0].relay.handle(now, Input::Provide { what: &what, bytes: &blob });
    net.members[0].relay.handle(now, Input::Provide { what: &Fetch::KeyPackage(cert), bytes: &[9] });
    net.run(5);
    net.send(0, "a", Guarantee::Ordered);
    net.run(10);
    let now = net.now();
    net.members[1].relay.handle(now, Input::Fetch(FetchId(1), &what));
    net.members[1].relay.handle(now, Input::Fetch(FetchId(2), &Fetch::KeyPackage(cert)));
    net.members[1].relay.handle(now, Input::Fetch(FetchId(3), &Fetch::Blob([1; 32])));
    net.run(5);
    let mut seen = net.seen(1);
    seen.sort();
    assert_eq!(seen, ["1 a", "fetched 1: [1, 2, 3]", "fetched 2: [9]", "up"]);
    net.run(10_000);
    assert_eq!(net.seen(1), ["fetched 3: nothing"]);
}

#[test]
fn a_single_use_package_is_handed_out_once_and_the_last_resort_after_it() {
    let mut net = Net::new(2);
    let (cert, until) = (CertHash([5; 32]), Utc(1_900_000_000));
    let keep = |net: &mut Net, single_use: Vec<Vec<u8>>, last_resort: Option<Vec<u8>>| {
        let (now, packages) = (net.now(), KeyPackages { cert, single_use, last_resort, until });
        net.members[0].relay.handle(now, Input::Packages(&packages));
        net.run(5);
    };
    keep(&mut net, vec![], Some(vec![9]));
    assert_eq!(net.seen(0), ["up"], "nobody founded the group yet");
    net.send(0, "a", Guarantee::Ordered);
    net.run(5);
    assert_eq!(net.seen(0), ["1 ours", "0 packages"]);
    keep(&mut net, vec![vec![1], vec![2]], None);
    assert_eq!(net.seen(0), ["2 packages"]);
    net.seen(1);
    for id in 1..=4 {
        let now = net.now();
        net.members[1].relay.handle(now, Input::Fetch(FetchId(id), &Fetch::KeyPackage(cert)));
        net.run(5);
    }
    assert_eq!(net.seen(1), ["fetched 1: [1]", "fetched 2: [2]", "fetched 3: [9]", "fetched 4: [9]"]);
}

#[test]
fn rule_g5_a_device_without_a_clock_leaves_packages_though_an_earlier_run_had_one() {
    let mut net = Net::new(1);
    net.send(0, "a", Guarantee::Ordered);
    net.run(5);
    let packages = |package| KeyPackages {
        cert: CertHash([5; 32]),
        single_use: vec![],
        last_resort: Some(vec![package]),
        until: Utc(1_900_000_000),
    };
    let now = net.now();
    net.members[0].relay.handle(now, Input::Packages(&packages(1)));
    net.run(5);
    net.restart(0);
    net.seen(0);
    net.no_clock = true;
    let now = net.now();
    net.members[0].relay.handle(now, Input::Packages(&packages(2)));
    net.run(100);
    assert_eq!(net.seen(0), ["0 packages"]);
    let now = net.now();
    net.members[0].relay.handle(now, Input::Fetch(FetchId(1), &Fetch::KeyPackage(CertHash([5; 32]))));
    net.run(5);
    assert_eq!(net.seen(0), ["fetched 1: [2]"]);
}

#[test]
fn mail_is_brought_one_by_one_and_deleted_when_the_next_is_fetched() {
    let mut net = Net::new(2);
    let mail = Fetch::Mail(CertHash([5; 32]));
    net.send(0, "a", Guarantee::Ordered);
    net.run(5);
    net.seen(1);
    for i in 1..=2 {
        let now = net.now();
        net.members[0].relay.handle(now, Input::Provide { what: &mail, bytes: &[i] });
        net.run(5);
    }
    let fetch = |net: &mut Net, id| {
        let now = net.now();
        net.members[1].relay.handle(now, Input::Fetch(FetchId(id), &mail));
        net.run(5);
        net.seen(1)
    };
    assert_eq!(fetch(&mut net, 1), ["fetched 1: [1]"]);
    // A process that ended before it was of use gets it again.
    net.restart(1);
    net.seen(1);
    assert_eq!(fetch(&mut net, 2), ["fetched 2: [1]"]);
    assert_eq!(fetch(&mut net, 3), ["fetched 3: [2]"]);
    assert_eq!(fetch(&mut net, 4), ["fetched 4: nothing"], "at once");
    net.restart(1);
    net.seen(1);
    assert_eq!(fetch(&mut net, 5), ["fetched 5: nothing"]);
}

#[test]
fn what_lies_behind_an_earlier_position_is_handed_on_again_also_to_a_later_run() {
    let mut net = Net::new(1);
    for text in ["a", "b", "c", "d"] {
        net.send(0, text, Guarantee::Ordered);
        net.run(3);
    }
    net.enter(None);
    net.send(0, "e", Guarantee::Ordered);
    net.run(5);
    assert_eq!(net.seen(1), ["up", "5 e"]);
    let now = net.now();
    net.members[1].relay.handle(now, Input::Again(2));
    net.members[1].relay.handle(now, Input::Checkpointed(2));
    net.step(1);
    net.send(0, "f", Guarantee::Ordered);
    net.run(10);
    assert_eq!(net.seen(1), ["3 c", "4 d", "5 e", "6 f"]);
    net.restart(1);
    net.run(5);
    assert_eq!(net.seen(1), ["up", "3 c", "4 d", "5 e", "6 f"], "it begins behind what it went back to");
    // What is still to come is not asked for.
    let now = net.now();
    net.members[1].relay.handle(now, Input::Again(6));
    net.run(5);
    assert!(net.seen(1).is_empty());
}

#[test]
fn what_is_sent_while_a_member_goes_back_gets_its_place_behind_what_it_reads_again() {
    let mut net = Net::new(1);
    for text in ["a", "b", "c"] {
        net.send(0, text, Guarantee::Ordered);
        net.run(3);
    }
    net.enter(None);
    let now = net.now();
    let what = Fetch::Blob(sha256(b"piece"));
    net.members[1].relay.handle(now, Input::Provide { what: &what, bytes: b"piece" });
    net.members[1].relay.handle(now, Input::Again(1));
    net.send(1, "d", Guarantee::Ordered);
    net.run(10);
    assert_eq!(net.seen(1), ["up", "2 b", "3 c", "4 ours"]);
}

#[test]
fn who_was_away_for_longer_than_the_log_reaches_back_is_told_what_it_missed() {
    let mut net = Net::new(2);
    net.directory = Directory::new(Quotas { log_entries: 3, ..Quotas::default() }, key(1));
    let texts = ["a", "b", "c", "d", "e", "f", "g", "h"];
    for (at, text) in texts.into_iter().enumerate() {
        net.send(0, text, Guarantee::Ordered);
        net.run(3);
        if at == 1 {
            let now = net.now();
            net.members[1].relay.handle(now, Input::Checkpointed(2));
            net.step(1);
            net.members[1].is_cut_off = true;
        }
    }
    net.restart(1);
    net.run(5);
    assert_eq!(net.seen(1), ["up", "Missed(3, 5)", "6 f", "7 g", "8 h"]);
}

#[test]
fn who_founds_a_group_that_has_a_log_is_told() {
    let mut net = Net::new(1);
    net.send(0, "a", Guarantee::Ordered);
    net.run(5);
    net.founds = true;
    net.enter(None);
    assert!(net.members[1].handle.lock().exists);
    assert!(net.seen(1).is_empty(), "it is not up");
}

#[test]
fn rule_d2_a_relay_that_rewinds_and_goes_on_is_convicted() {
    let mut net = Net::new(2);
    net.send(0, "a", Guarantee::Ordered);
    net.run(5);
    net.old = Some(net.storage.clone());
    // Member 1 sees the log that goes on without this one.
    net.members[1].is_cut_off = true;
    let old = net.old.take();
    net.send(0, "b", Guarantee::Ordered);
    net.run(5);
    net.members[1].is_cut_off = false;
    net.old = old;
    net.send(1, "c", Guarantee::Ordered);
    net.run(5);
    let status = net.members[0].handle.lock().clone();
    let evidence = status.evidence.expect("its announcement shows another log");
    evidence.verify(net.directory.public()).expect("anybody can check it");
    assert!(status.misbehaviour.is_some());
    // Nothing of it counts any more.
    let seen = net.seen(0);
    assert!(!seen.contains(&"2 c".to_owned()), "{seen:?}");
}

/// The members form a view, as their key scheme would have it.
fn install(net: &mut Net) {
    install_next(net, 1);
}

/// The same, and whichever it is.
fn install_next(net: &mut Net, counter: u32) {
    let mut roster = Roster::default();
    for slot in 0..net.members.len() as u32 {
        let id = MemberId { cert: CertHash([slot as u8; 32]), incarnation: Incarnation([0; 16]) };
        roster.insert(Slot(slot), sealcast_wire::Member { id, name: format!("m{slot}").into() });
    }
    let (now, epoch) = (net.now(), EpochId { counter, hash: 1 });
    let keys = group(counter, net.members.len() as u32);
    for ((me, member), key) in net.members.iter_mut().enumerate().zip(keys) {
        member.protect = Some(key);
        let view = View::new(None, epoch, roster.clone(), Slot(me as u32), Change::Formed);
        member
            .relay
            .handle(now, Input::Install { view: &view, protect: member.protect.as_ref(), access: &everything() });
    }
}

#[test]
fn rule_d2_members_of_two_branches_show_each_other_receipts_and_convict_the_relay() {
    let mut net = Net::new(4);
    net.send(0, "a", Guarantee::Ordered);
    net.run(5);
    install(&mut net);
    // From here on two of them see another log. Their datagrams go to everybody.
    net.fork = Some((net.storage.clone(), vec![2, 3]));
    for (member, text) in [(0, "b"), (2, "c")] {
        net.send(member, text, Guarantee::Ordered);
    }
    net.run(100);
    assert!(net.members.iter().all(|it| it.handle.lock().evidence.is_none()), "each side sees one log");
    net.run(25_000);
    for member in &net.members {
        let status = member.handle.lock().clone();
        status.evidence.expect("a beacon shows the other log").verify(net.directory.public()).expect("it is proof");
    }
}

#[test]
fn rule_d2_a_group_of_any_size_says_few_beacons() {
    let mut net = Net::new(6);
    net.send(0, "a", Guarantee::Ordered);
    net.run(5);
    install(&mut net);
    let before = net.datagrams;
    net.run(60_000);
    let said = net.datagrams - before;
    assert!((4..=8).contains(&said), "{said} in a minute: each open, and sealed");
    // Shown what they know already, again and again, they do not speak more often.
    let receipt = net.members[0].relay.log.as_ref().and_then(|it| it.follower.receipt().copied()).expect("it has one");
    for _ in 0..1_000 {
        let mut frame = Frame::Receipt(&receipt.to_bytes()).bytes();
        let now = net.now();
        net.members[1].relay.handle(now, Input::open(MQTT, &mut frame));
        net.run(9);
    }
    assert!(net.datagrams - before - said <= 8);
}

/// What members were told of silence.
fn silences(net: &mut Net, member: usize) -> Vec<String> {
    net.seen(member).into_iter().filter(|it| it.starts_with("Silence")).collect()
}

#[test]
fn rule_d2_members_that_hear_each_other_are_never_stale() {
    for members in [1, 2, 5] {
        let mut net = Net::new(members);
        net.send(0, "a", Guarantee::Ordered);
        net.run(5);
        install(&mut net);
        net.run(1_200_000);
        for member in 0..members {
            assert_eq!(silences(&mut net, member), [""; 0], "member {member} of {members}");
        }
    }
}

#[test]
fn rule_d2_a_member_that_the_relay_isolates_is_stale_and_no_longer_once_it_hears_another() {
    let mut net = Net::new(3);
    net.send(0, "a", Guarantee::Ordered);
    net.run(5);
    install(&mut net);
    net.run(60_000);
    net.members[2].hears_nobody = true;
    // The directory answers it, and repeats what it signed as if members showed it.
    for _ in 0..60 {
        let receipt =
            net.members[2].relay.log.as_ref().and_then(|it| it.follower.receipt().copied()).expect("it has one");
        let mut frame = Frame::Receipt(&receipt.to_bytes()).bytes();
        let now = net.now();
        net.members[2].relay.handle(now, Input::open(MQTT, &mut frame));
        net.run(1_000);
    }
    net.run(25_000);
    let told = silences(&mut net, 2);
    assert!(matches!(&told[..], [one] if one.starts_with("Silence(Some(6")), "it is told once: {told:?}");
    assert_eq!((silences(&mut net, 0).len(), silences(&mut net, 1).len()), (0, 0));
    // While it is not connected it hears nobody, and is not isolated.
    net.members[2].hears_nobody = false;
    net.run(61_000);
    assert_eq!(silences(&mut net, 2), ["Silence(None)"]);
    net.members[2].hears_nobody = true;
    let now = net.now();
    net.members[2].relay.handle(now, Input::Disconnected(MQTT));
    net.run(300_000);
    let now = net.now();
    net.members[2].relay.handle(now, Input::Connected(MQTT));
    net.members[2].hears_nobody = false;
    net.run(60_000);
    assert_eq!(silences(&mut net, 2), [""; 0]);
}

#[test]
fn rule_d2_a_repeated_beacon_is_no_sign_of_a_member() {
    let mut net = Net::new(2);
    net.send(0, "a", Guarantee::Ordered);
    net.run(5);
    install(&mut net);
    let now = net.now();
    let mut protect = net.members[0].protect.clone();
    let message =
        What::Data { topic: "t", domain: sealcast_wire::Domain(1), signed: false, sent_micros: None, body: &[1] };
    let outgoing = Outgoing { what: message, guarantee: Guarantee::BestEffort, to: To::Group };
    net.members[0].relay.send(now, protect.take().as_ref(), outgoing).expect("there is room");
    let mut batch = Batch::default();
    while net.members[0].relay.poll(&mut batch).is_some() {}
    let sealed = batch.iter().last().expect("it was sent").to_vec();
    net.members[1].hears_nobody = true;
    for _ in 0..80 {
        net.hear(1, &mut sealed.clone());
        net.run(1_000);
    }
    assert_eq!(silences(&mut net, 1).len(), 1);
}

#[test]
fn rule_d2_receipts_and_evidence_that_the_relay_did_not_sign_do_nothing() {
    let mut net = Net::new(2);
    net.send(0, "a", Guarantee::Ordered);
    net.run(5);
    install(&mut net);
    let group = GroupId::of(&key(2).public_bytes());
    let (one, other) =
        (Receipt::sign(&key(9), group, 1, Head([1; 32])), Receipt::sign(&key(9), group, 1, Head([2; 32])));
    let evidence = Evidence { one, head: other.head, links: vec![], other };
    let now = net.now();
    for frame in [Frame::Receipt(&one.to_bytes()), Frame::Evidence(&evidence.to_bytes()), Frame::Evidence(&[1])] {
        let mut frame = frame.bytes();
        net.members[0].relay.handle(now, Input::open(MQTT, &mut frame));
    }
    // Of another relay that is convicted rightly.
    let there = GroupId::of(&key(3).public_bytes());
    let (one, other) =
        (Receipt::sign(&key(1), there, 1, Head([1; 32])), Receipt::sign(&key(1), there, 1, Head([2; 32])));
    let mut frame = Frame::Evidence(&Evidence { one, head: other.head, links: vec![], other }.to_bytes()).bytes();
    net.members[0].relay.handle(now, Input::open(MQTT, &mut frame));
    net.send(1, "b", Guarantee::Ordered);
    net.run(5);
    assert!(net.members[0].handle.lock().evidence.is_none());
    assert!(net.seen(0).contains(&"2 b".to_owned()));
}

#[test]
fn rule_d1_an_eviction_does_not_wait_for_data_and_data_of_a_former_epoch_takes_no_position() {
    let mut net = Net::new(2);
    install(&mut net);
    for _ in 0..limits::RELAY_APPENDS_MAX {
        net.publish(0).unwrap();
    }
    assert_eq!(net.publish(0), Err(SendError::Full));
    // The first one is under way.
    net.step(0);
    net.send(0, "a commit", Guarantee::Ordered);
    net.send(0, "another one", Guarantee::Ordered);
    assert_eq!(net.publish(0), Err(SendError::Full));
    net.run(3);
    install_next(&mut net, 2);
    net.run(20);
    assert_eq!(net.seen(1)[..4], ["up", "1 data", "2 a commit", "3 another one"].map(String::from));
    let ours = net.seen(0);
    assert_eq!(ours[..4], ["up", "1 data of ours", "2 ours", "3 ours"].map(String::from));
    let superseded = ours.iter().filter(|it| it.contains("Superseded")).count();
    let appended = ours.iter().filter(|it| it.ends_with("data of ours")).count();
    assert_eq!(superseded + appended, limits::RELAY_APPENDS_MAX);
    assert!(appended < 5, "none was proposed in the new epoch: {appended}");
    // What is sealed for it is appended as ever.
    net.publish(0).unwrap();
    net.run(5);
    assert!(net.seen(0).iter().all(|it| it.ends_with("data of ours")));
}

#[test]
fn rule_d1_what_is_withdrawn_is_not_appended_behind_what_came_first() {
    let mut net = Net::new(3);
    net.send(1, "b", Guarantee::Ordered);
    let lost = net.send(2, "c", Guarantee::Ordered);
    let later = net.send(2, "d", Guarantee::Ordered);
    net.send(2, "e", Guarantee::Ordered);
    // The first one is under way, and loses; the second one has not left.
    net.withholds = true;
    net.step(1);
    net.step(2);
    net.withholds = false;
    for token in [lost, later] {
        let now = net.now();
        net.members[2].relay.handle(now, Input::Withdraw(token));
    }
    net.run(20);
    assert_eq!(net.seen(1), ["up", "1 ours", "2 e"]);
    let failed = net.seen(2).iter().filter(|it| it.contains("Failed")).count();
    assert_eq!(failed, 2, "each has an outcome");
}
