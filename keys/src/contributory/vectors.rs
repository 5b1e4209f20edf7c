//! Golden vectors of the whole scheme (G9): two groups, every open message, what is sealed under their
//! keys. `docs/WIRE.md` says the bytes, `docs/peer/read.py` reads these by it.
//!
//! Made by our own code with all randomness given. After a change of format, and of version:
//! `SEALCAST_VECTORS=write cargo test -p sealcast-keys vectors`.

use std::sync::Arc;

use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};
use sealcast_crypto::aead::Suite;
use sealcast_crypto::hash::{Transcript, sha256};
use sealcast_crypto::identity::anchor::TrustAnchor;
use sealcast_crypto::identity::authority::{Authority, Request};
use sealcast_crypto::identity::certificate::Certificate;
use sealcast_crypto::identity::holder::Identity;
use sealcast_crypto::identity::keytext::MemberSecret;
use sealcast_crypto::identity::rights::{Act, Right};
use sealcast_crypto::identity::statement::{Compartment, Eviction, OnStale, Policy};
use sealcast_crypto::merkle::Tree;
use sealcast_crypto::secret::Secret;
use sealcast_crypto::signature::Algorithm;
use sealcast_wire::frame::{FLAG_SIGNED, HEADER_LEN, KIND_OPEN, MAGIC, TAG_LEN};
use sealcast_wire::{Address, Domain, Dropped, EpochId, Monotonic, Now, Protect, Source, Utc};
use serde_json::{Value, json};

use super::attempt::{Agreed, Attempt, AttemptState, Formation, Step};
use super::memo::Verifier;
use super::message::{Base, Fetch, InstanceId, Kind, Message, Object, Propose};
use super::people::Person;
use super::proposal::Proposal;
use super::{Config, Contributory, Installed};
use crate::{Keys, Output};

const GROUP: &str = "ward3";
const NOW: Now = Now { monotonic: Monotonic(5_000_000), utc: Some(UTC) };
const UTC: Utc = Utc(1_790_000_000);

/// One member with all that it draws given by `seed`.
struct Member {
    name: String,
    node: Contributory,
    rng: ChaCha20Rng,
    suite: Suite,
}

/// What members agreed on: what each got, by seat, and what they agreed about.
struct Agreement {
    agreed: Vec<Agreed>,
    seats: Vec<usize>,
    proposal: Proposal,
}

/// A group while its vectors are made.
struct Story {
    members: Vec<Member>,
    steps: Vec<Value>,
    nonces: ChaCha20Rng,
}

#[test]
fn rule_g9_groups_say_what_the_vectors_say() {
    let known: Value = serde_json::from_str(include_str!("../../vectors/contributory.json")).unwrap();
    let write = std::env::var_os("SEALCAST_VECTORS").is_some_and(|v| v == "write");
    let given = if write { inputs() } else { known["given"].clone() };
    let now = json!({
        "source": "keys/src/contributory/vectors.rs: our code, all randomness given",
        "stories": [readers_and_writers(&given), a_join(&given), refused(&given)],
        "given": given,
    });
    if write {
        let text = serde_json::to_string_pretty(&now).unwrap() + "\n";
        std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/vectors/contributory.json"), text).unwrap();
        return;
    }
    for (mine, theirs) in now["stories"].as_array().unwrap().iter().zip(known["stories"].as_array().unwrap()) {
        let steps = |story: &Value| story["steps"].as_array().unwrap().clone();
        for (i, (mine, theirs)) in steps(mine).iter().zip(&steps(theirs)).enumerate() {
            assert_eq!(mine, theirs, "step {i}");
        }
        assert_eq!(mine, theirs);
    }
    assert_eq!(now["stories"].as_array().unwrap().len(), known["stories"].as_array().unwrap().len());
}

#[test]
fn rule_g9_members_take_the_messages_of_the_vectors() {
    let known: Value = serde_json::from_str(include_str!("../../vectors/contributory.json")).unwrap();
    let refuses = |story: &&Value| story["steps"].as_array().unwrap().iter().any(|s| s["refused"].is_string());
    for story in known["stories"].as_array().unwrap().iter().filter(|story| !refuses(story)) {
        let steps = story["steps"].as_array().unwrap();
        let first = steps.iter().position(|s| s["message"] == "PROPOSE").unwrap();
        let named = |m: &Member| steps[..first].iter().any(|s| s["message"] == "JOIN" && s["from"] == *m.name);
        let listeners = Story::new(&known["given"], story).members.into_iter();
        for mut listener in listeners.filter(|m| named(m) && steps[first]["from"] != *m.name) {
            let mut agreed = false;
            let mut taken = Vec::new();
            for step in steps {
                agreed |= step["agreed"].is_object();
                let Some(what) = step["message"].as_str() else { continue };
                let datagram = unhex(&step["datagram"]);
                assert_eq!(datagram[..2], [MAGIC, KIND_OPEN]);
                let plain = listener.node.bootstrap_key.open(&datagram[2..]).unwrap();
                assert_eq!(Message::decode(&plain).unwrap().encode(), plain, "{what}");
                // R2 and KC fit the exponents that made them; everybody's `Attempt` takes those in the other test.
                let apart = ["R2", "KC"].contains(&what) || agreed && !["GIVE", "BEACON", "LEAVE"].contains(&what);
                if !apart && step["from"] != *listener.name {
                    let from = Source::Outside(Address::Node(1));
                    let result = listener.node.hear(NOW, &from, &datagram[2..]);
                    assert_eq!(result.err(), None, "{}: {what} of {}", listener.name, step["from"]);
                    taken.push(what);
                }
            }
            assert!(["JOIN", "PROPOSE", "R1"].iter().all(|what| taken.contains(what)), "{taken:?}");
        }
    }
}

/// A newcomer hears the third story: it goes no further with what is to be refused than the vectors say.
#[test]
fn rule_g9_members_refuse_what_the_vectors_refuse() {
    let known: Value = serde_json::from_str(include_str!("../../vectors/contributory.json")).unwrap();
    let story = &known["stories"][2];
    let mut members = Story::new(&known["given"], story).members;
    let mallory = members.pop().unwrap();
    let mut listener = members.swap_remove(0);
    let mut refused = Vec::new();
    for step in story["steps"].as_array().unwrap().iter().filter(|s| s["from"] != *listener.name) {
        let from = Source::Outside(Address::Node(1));
        let datagram = unhex(&step["datagram"]);
        match (step["message"].as_str(), step["refused"].is_string()) {
            (Some("R1"), true) => {
                let card = listener.node.people.get(&mallory.node.me.short).unwrap().clone();
                assert!(!listener.node.is_doubted(NOW, &card) && listener.node.attempt.is_some());
                _ = listener.node.hear(NOW, &from, &datagram[2..]);
                assert!(listener.node.is_doubted(NOW, &card) && listener.node.attempt.is_none());
                refused.push("R1");
            }
            (Some("PROPOSE"), true) => {
                let result = listener.node.hear(NOW, &from, &datagram[2..]);
                assert_eq!(result, Err(Dropped::Malformed.into()));
                refused.push("PROPOSE");
            }
            // The shares of the last agreement fit the exponents that made them: its KC is refused where it is made.
            (Some("R2" | "KC"), _) | (None, _) => {}
            (Some(_), _) if refused.len() < 2 => _ = listener.node.hear(NOW, &from, &datagram[2..]),
            (Some(_), _) => {}
        }
    }
    assert_eq!(refused, ["R1", "PROPOSE"]);
}

#[test]
fn rule_g9_no_datagram_of_ours_begins_like_lcms() {
    let known: Value = serde_json::from_str(include_str!("../../vectors/contributory.json")).unwrap();
    let steps = known["stories"].as_array().unwrap().iter().flat_map(|s| s["steps"].as_array().unwrap());
    let firsts: Vec<u8> = steps.map(|s| unhex(&s["datagram"])[0]).collect();
    assert!(firsts.len() > 30 && firsts.iter().all(|first| *first == MAGIC && *first != b'L'));
}

/// Three members: one reads all, one a part, one only writes. Three rings, the last of one seat.
fn readers_and_writers(given: &Value) -> Value {
    let names = ["robot1", "robot2", "logger"];
    let mut story = Story::new(given, &json!({ "members": names, "statements": false }));
    (0..3).for_each(|i| story.join(i));
    let first = story.agree(0, &[0, 1, 2], 1, 1, None, &[]);
    story.status(1, &first);
    story.install(&first);
    story.said(1, "BEACON", |node| node.beacon(NOW));
    story.said(2, "SENDERKEY", |node| node.send_own_keys(NOW));
    story.fetch(0, &first);
    story.give(0, vec![Object::Card(Box::new(story.members[1].node.me.card.clone()))]);
    story.seal(0, &first, Domain(0), 0, &heartbeat(7));
    let two = [whole(1, None, "pose/robot1", b"x=1"), whole(2, Some(1_790_000_000_000_000), "pose/robot1", b"x=2")];
    story.seal(0, &first, Domain(1), 0, &two.concat());
    let batch: Vec<Vec<u8>> = (1..=3).map(|n| whole(n, None, "pose/robot2", &[n as u8; 4])).collect();
    story.seal_signed(1, &first, Domain(1), &batch);
    let pieces = [piece(4, "pose/robot2", 5, 0, b"hel"), piece(4, "pose/robot2", 5, 3, b"lo")];
    story.seal(1, &first, Domain(1), 0, &[&pieces[0][..], &[0; 9]].concat());
    story.seal(1, &first, Domain(1), 0, &pieces[1]);
    story.seal_signed(2, &first, Domain(2), &[whole(1, None, "log/door", b"open")]);
    story.said(1, "LEAVE", Contributory::send_leave);
    story.finish("three members: one reads all, one a part, one only writes", &names, false)
}

/// Four members under a policy, at the second attempt; a fifth joins; one of them vouches.
fn a_join(given: &Value) -> Value {
    let names = ["robot3", "robot4", "robot5", "robot6", "robot7"];
    let mut story = Story::new(given, &json!({ "members": names, "statements": true }));
    story.give_statements(0);
    story.said(1, "STATE", |node| {
        let state = node.statements.state();
        node.send(&Message::State(state));
    });
    (0..4).for_each(|i| story.join(i));
    let first = story.agree(1, &[0, 1, 2, 3], 1, 2, None, &[]);
    let old = story.seal(2, &first, Domain(2), 0, &whole(1, None, "camera", b"before"));
    story.install(&first);
    story.join(4);
    let second = story.agree(3, &[0, 1, 2, 3, 4], 2, 1, Some(&first), &[4]);
    story.seal(4, &second, Domain(1), 0, &whole(1, None, "pose/robot7", b"here"));
    story.vouch(2, &first, &second, &old);
    story.finish("four members under a policy and at the second attempt, then a fifth joins", &names, true)
}

/// What is refused: a base that one member makes up, a number that is not the base's + 1, and a KC of another suite.
fn refused(given: &Value) -> Value {
    let names = ["robot3", "robot4", "mallory"];
    let mut story = Story::new(given, &json!({ "members": names, "statements": false }));
    (0..3).for_each(|i| story.join(i));
    let base = Base { counter: 76, size: 2, hash: 0x6d61_6465_2075_7021 };
    let proposal = story.propose(2, &[0, 1, 2], 77, 1, Kind::Setup, Some(base));
    story.first_round_on_made_up(proposal);
    story.refused("1 vouches for the base, and two must");
    story.propose(2, &[0, 1, 2], 78, 1, Kind::Setup, Some(base));
    story.refused("the number of the epoch to be");
    let proposal = story.propose(0, &[0, 1, 2], 1, 1, Kind::Setup, None);
    story.agree_but_one(proposal, 2);
    story.refused("a KC of another epoch hash: another suite, for example");
    story.finish("what is refused: a made-up base, a number that does not follow, a KC of another suite", &names, false)
}

impl Story {
    fn new(given: &Value, story: &Value) -> Story {
        let statements: Vec<Vec<u8>> = match story["statements"].as_bool().unwrap() {
            true => given["statements"].as_array().unwrap().iter().map(unhex).collect(),
            false => Vec::new(),
        };
        let member = |name: &Value| {
            let of = &given["members"][name.as_str().unwrap()];
            let secret = MemberSecret::import(of["secret"].as_str().unwrap()).unwrap();
            let anchor = TrustAnchor::new(&unhex(&given["authority"])).unwrap();
            let certificate = Certificate::parse(&unhex(&of["certificate"])).unwrap();
            let bootstrap_key = Secret::try_from(&unhex(&given["veil"])[..]).unwrap();
            let identity = Arc::new(
                Identity::new(&certificate, &secret, anchor).unwrap().with_bootstrap_key(GROUP, bootstrap_key),
            );
            let config = Config { statements: statements.clone(), ..Config::new(GROUP, identity) };
            let seed: [u8; 32] = unhex(&of["seed"]).try_into().unwrap();
            let node = Contributory::new(config, seed, NOW);
            let rng = ChaCha20Rng::from_seed(sha256(&seed));
            Member { name: name.as_str().unwrap().to_owned(), node, rng, suite: Suite::Aes256Gcm }
        };
        let members = story["members"].as_array().unwrap().iter().map(member).collect();
        Story { members, steps: Vec::new(), nonces: ChaCha20Rng::from_seed([0x4E; 32]) }
    }

    /// What a member's own code sends in an act, under a given nonce.
    fn said(&mut self, i: usize, what: &str, act: impl FnOnce(&mut Contributory)) {
        let node = &mut self.members[i].node;
        while node.poll().is_some() {}
        self.nonces.fill_bytes(&mut [0; 8]);
        node.rng = self.nonces.clone();
        act(node);
        let sent = std::iter::from_fn(|| node.poll());
        let bytes: Vec<Vec<u8>> =
            sent.filter_map(|o| if let Output::Send { bytes, .. } = o { Some(bytes) } else { None }).collect();
        assert!(!bytes.is_empty(), "{what} was not sent");
        bytes.into_iter().for_each(|bootstrap_sealed| self.open(i, what, &bootstrap_sealed));
    }

    fn open(&mut self, i: usize, what: &str, bootstrap_sealed: &[u8]) {
        let datagram = [&[MAGIC, KIND_OPEN][..], bootstrap_sealed].concat();
        self.steps.push(json!({ "from": self.members[i].name, "message": what, "datagram": hex(&datagram) }));
    }

    fn send(&mut self, i: usize, what: &str, message: &Message) {
        let mut nonce = [0; 12];
        self.nonces.fill_bytes(&mut nonce);
        let bootstrap_key = self.members[i].node.config.identity.bootstrap_key(GROUP);
        self.open(i, what, &bootstrap_key.seal(nonce, &message.encode()));
    }

    fn join(&mut self, i: usize) {
        self.said(i, "JOIN", |node| {
            node.installed = None;
            node.join_again(NOW);
        });
    }

    /// One agreement from its proposal to its installation, by everybody's `Attempt`.
    fn agree(
        &mut self,
        proposer: usize,
        who: &[usize],
        counter: u32,
        attempt: u8,
        base: Option<&Agreement>,
        joiners: &[usize],
    ) -> Agreement {
        let seats = self.seats(proposer, who);
        let bits = (0..seats.len()).filter(|seat| joiners.contains(&seats[*seat])).fold(0, |all, seat| all | 1 << seat);
        let kind = if base.is_some() { Kind::Join(bits) } else { Kind::Setup };
        let on = base.map(|b| Base::of(b.agreed[0].epoch, b.agreed[0].people.len()));
        let (proposal, seats) = self.propose(proposer, who, counter, attempt, kind, on);
        self.run(proposal, seats, base, joiners)
    }

    /// The proposer, then the others by their short ids.
    fn seats(&self, proposer: usize, who: &[usize]) -> Vec<usize> {
        let mut seats: Vec<usize> = who.iter().copied().filter(|i| *i != proposer).collect();
        seats.sort_by_key(|i| self.members[*i].node.me.short);
        seats.insert(0, proposer);
        seats
    }

    /// A proposal, and who has which seat in it.
    fn propose(
        &mut self,
        proposer: usize,
        who: &[usize],
        counter: u32,
        attempt: u8,
        kind: Kind,
        base: Option<Base>,
    ) -> (Proposal, Vec<usize>) {
        let seats = self.seats(proposer, who);
        let node = &self.members[proposer].node;
        let mut content = Propose {
            counter,
            attempt,
            version: 1,
            kind,
            base,
            hint: node.statements.hint(),
            seats: seats.iter().map(|i| self.members[*i].node.me.short).collect(),
            signature: [0; 64],
        };
        let mut nonce = [0; 12];
        self.nonces.fill_bytes(&mut nonce);
        let instance = Proposal::instance(GROUP, &nonce, &content);
        content.signature = node.key.sign(&instance);
        let bootstrap_sealed = node.bootstrap_key.seal(nonce, &Message::Propose(content.clone()).encode());
        let proposal = Proposal { content, instance, bootstrap_sealed: bootstrap_sealed.clone(), sent: NOW.monotonic };
        self.open(proposer, "PROPOSE", &bootstrap_sealed);
        (proposal, seats)
    }

    /// The last step is to be refused, and why.
    fn refused(&mut self, why: &str) {
        self.steps.last_mut().expect("there are steps")["refused"] = json!(why);
    }

    /// The proposer alone says that it is of the base: whoever is in no group goes no further.
    fn first_round_on_made_up(&mut self, (proposal, seats): (Proposal, Vec<usize>)) {
        let (mut attempts, _) = self.attempts(&proposal, &seats, None, &[]);
        // The proposer's comes last.
        for seat in (0..seats.len()).rev() {
            let Some(Step::Send(message)) = attempts[seat].step(NOW.monotonic, &mut self.env(seats[seat])) else {
                panic!("seat {seat} has nothing to send");
            };
            self.send(seats[seat], "R1", &message);
            for other in (0..seats.len()).filter(|other| *other != seat) {
                let env = self.env(seats[other]);
                assert_eq!(attempts[other].take((*message).clone(), NOW.monotonic, &env), Ok(()));
            }
        }
        for seat in 1..seats.len() {
            let step = attempts[seat].step(NOW.monotonic, &mut self.env(seats[seat]));
            assert!(matches!(step, Some(Step::Failed)) && attempts[seat].unproven, "seat {seat} believes it");
        }
    }

    /// An agreement in which one member has another suite: the others do not go on to an epoch by its confirmation, which
    /// comes last.
    fn agree_but_one(&mut self, (proposal, seats): (Proposal, Vec<usize>), odd: usize) {
        self.members[odd].suite = Suite::ChaCha20Poly1305;
        let (mut attempts, uniform) = self.attempts(&proposal, &seats, None, &[]);
        let names: Vec<String> = seats.iter().map(|i| self.members[*i].name.clone()).collect();
        let (mut agreed, mut theirs) = (None, None);
        let mut waiting = true;
        while waiting {
            waiting = false;
            for seat in 0..seats.len() {
                while let Some(step) = attempts[seat].step(NOW.monotonic, &mut self.env(seats[seat])) {
                    waiting = true;
                    let (what, message) = match step {
                        Step::Send(message) if matches!(*message, Message::R1(_)) => ("R1", *message),
                        Step::Send(message) => ("R2", *message),
                        Step::Keyed => ("KC", attempts[seat].message(2, seat).cloned().expect("an active seat's")),
                        Step::Done(_) | Step::Show(_) | Step::Failed => panic!("seat {seat} ends"),
                    };
                    if what == "KC" && seats[seat] == odd {
                        theirs = Some(message);
                        continue;
                    }
                    if let Message::Kc(kc) = &message {
                        let AttemptState::Confirming(confirming) = &attempts[seat].state else {
                            panic!("a key is confirmed")
                        };
                        agreed = Some((confirming.agreed.epoch, kc.rings[0].1));
                    }
                    self.send(seats[seat], what, &message);
                    let hears = |other: &usize| *other != seat && (what != "KC" || seats[*other] != odd);
                    for other in (0..seats.len()).filter(hears) {
                        let env = self.env(seats[other]);
                        assert_eq!(attempts[other].take(message.clone(), NOW.monotonic, &env), Ok(()), "{what}");
                    }
                }
            }
        }
        let ((epoch, commitment), theirs) = (agreed.expect("a key"), theirs.expect("another key"));
        self.steps.push(json!({
            "agreed": { "seats": names, "uniform": uniform, "epoch": hex(&epoch.to_bytes()), "commitment": hex(&commitment) },
            "datagram": hex(&[&[MAGIC, KIND_OPEN][..], &proposal.bootstrap_sealed].concat()),
        }));
        self.send(odd, "KC", &theirs);
        for seat in (0..seats.len()).filter(|seat| seats[*seat] != odd) {
            let env = self.env(seats[seat]);
            assert_eq!(attempts[seat].take(theirs.clone(), NOW.monotonic, &env), Ok(()));
            let step = attempts[seat].step(NOW.monotonic, &mut self.env(seats[seat]));
            assert!(!matches!(step, Some(Step::Done(_))), "seat {seat} takes another epoch's confirmation");
        }
    }

    /// Everybody's attempt, and what each drew for it.
    fn attempts(
        &mut self,
        proposal: &Proposal,
        seats: &[usize],
        base: Option<&Agreement>,
        joiners: &[usize],
    ) -> (Vec<Attempt>, serde_json::Map<String, Value>) {
        let people: Vec<Arc<Person>> = seats.iter().map(|i| self.members[*i].node.me.clone()).collect();
        let (mut attempts, mut uniform) = (Vec::new(), serde_json::Map::new());
        for (seat, i) in seats.iter().enumerate() {
            let is_joiner = |p: &Person| joiners.iter().any(|j| self.members[*j].node.me.short == p.short);
            let of_base = base.is_some() && !joiners.contains(i);
            let node = &self.members[*i].node;
            let (group, state) = (node.group.clone(), node.statements.hash());
            let is_base = |p: &Person| of_base.then(|| !is_joiner(p));
            let formation =
                Formation::new(&group, proposal, people.clone(), node.statements.lines(), state, is_base).unwrap();
            let seed = base.filter(|_| of_base).and_then(|b| b.agreed[0].ring_key.clone());
            let mut attempt = Attempt::new(proposal.clone(), seat, NOW.monotonic);
            // Whoever proposes an epoch on another one says that it is of that one.
            attempt.of_base = of_base || seat == 0 && proposal.content.base.is_some();
            let before = self.members[*i].rng.clone();
            attempt.form(formation, seed.as_deref(), &mut self.env(*i));
            uniform.insert(self.members[*i].name.clone(), json!(draws(before, &self.members[*i].rng)));
            attempts.push(attempt);
        }
        (attempts, uniform)
    }

    fn run(&mut self, proposal: Proposal, seats: Vec<usize>, base: Option<&Agreement>, joiners: &[usize]) -> Agreement {
        let names: Vec<String> = seats.iter().map(|i| self.members[*i].name.clone()).collect();
        let (mut attempts, uniform) = self.attempts(&proposal, &seats, base, joiners);
        let mut agreed: Vec<Option<Agreed>> = seats.iter().map(|_| None).collect();
        let mut waiting = true;
        while waiting {
            waiting = false;
            for seat in 0..seats.len() {
                while let Some(step) = attempts[seat].step(NOW.monotonic, &mut self.env(seats[seat])) {
                    waiting = true;
                    let message = match step {
                        Step::Send(message) => Some(*message),
                        Step::Keyed => attempts[seat].message(2, seat).cloned(),
                        Step::Done(done) => {
                            agreed[seat] = Some(*done);
                            None
                        }
                        Step::Show(_) | Step::Failed => panic!("seat {seat} failed"),
                    };
                    let Some(message) = message else { continue };
                    let what = match message {
                        Message::R1(_) => "R1",
                        Message::R2(_) => "R2",
                        _ => "KC",
                    };
                    self.send(seats[seat], what, &message);
                    for other in (0..seats.len()).filter(|other| *other != seat) {
                        let env = self.env(seats[other]);
                        assert_eq!(attempts[other].take(message.clone(), NOW.monotonic, &env), Ok(()), "{what}");
                    }
                }
            }
        }
        let agreed: Vec<Agreed> = agreed.into_iter().map(|a| a.expect("all agree")).collect();
        let first = &agreed[0];
        assert!(agreed.iter().all(|a| a.epoch == first.epoch));
        let commitment = first.ring_key.as_ref().unwrap().commitment();
        self.steps.push(json!({
            "agreed": {
                "seats": names, "uniform": uniform, "epoch": hex(&first.epoch.to_bytes()), "commitment": hex(&commitment),
            },
            "datagram": hex(&[&[MAGIC, KIND_OPEN][..], &proposal.bootstrap_sealed].concat()),
        }));
        Agreement { agreed, seats, proposal }
    }

    fn env(&mut self, i: usize) -> super::attempt::Env<'_> {
        let Member { node, rng, suite, .. } = &mut self.members[i];
        super::attempt::Env {
            group: &node.group,
            suite: *suite,
            rng,
            verifier: const { &Verifier(None) },
            identity: node.config.identity.key(),
            key: &node.key,
            cut: Some([0; 32]),
        }
    }

    fn install(&mut self, agreement: &Agreement) {
        for (agreed, i) in agreement.agreed.iter().zip(&agreement.seats) {
            let ring_key = agreed.ring_key.clone().unwrap();
            self.members[*i].node.installed = Some(Installed {
                agreed: agreed.clone(),
                at: NOW.monotonic,
                joins_since_setup: 0,
                ring_key,
                since: vec![1; agreed.people.len()],
                members: agreed.people.iter().map(|p| p.member()).collect(),
            });
        }
    }

    fn status(&mut self, i: usize, agreement: &Agreement) {
        let seat = agreement.seats.iter().position(|s| *s == i).unwrap();
        let mut attempt = Attempt::new(agreement.proposal.clone(), seat, NOW.monotonic);
        let people = agreement.seats.iter().map(|i| self.members[*i].node.me.clone()).collect();
        let (group, state) = (self.members[i].node.group.clone(), self.members[i].node.statements.hash());
        let formation = Formation::new(&group, &agreement.proposal, people, None, state, |_| None).unwrap();
        attempt.form(formation, None, &mut self.env(i));
        let status = attempt.status(&self.env(i));
        self.send(i, "STATUS", &status);
    }

    fn fetch(&mut self, i: usize, agreement: &Agreement) {
        let proposal = Some(InstanceId(*agreement.proposal.instance.first_chunk().unwrap()));
        let cards = vec![self.members[1].node.me.short, self.members[2].node.me.short];
        self.send(i, "FETCH", &Message::Fetch(Fetch { proposal, cards }));
    }

    fn give(&mut self, i: usize, objects: Vec<Object>) {
        self.send(i, "GIVE", &Message::Give(objects));
    }

    fn give_statements(&mut self, i: usize) {
        let nothing = super::message::State { crl: 0, policy: 0, evictions: vec![] };
        let objects = self.members[i].node.statements.beyond(&nothing);
        assert_eq!(objects.len(), 3);
        self.give(i, objects);
    }

    /// Seals a record as a member; all others who read its domain open it.
    fn seal(&mut self, i: usize, agreement: &Agreement, domain: Domain, flags: u8, record: &[u8]) -> Vec<u8> {
        let seat = agreement.seats.iter().position(|s| *s == i).unwrap();
        let agreed = &agreement.agreed[seat];
        let mut datagram = vec![0; HEADER_LEN];
        datagram.extend_from_slice(record);
        datagram.resize(datagram.len() + TAG_LEN, 0);
        agreed.keys.seal(domain, flags, &mut datagram).unwrap();
        self.steps.push(json!({
            "from": self.members[i].name, "epoch": hex(&agreed.epoch.to_bytes()), "record": hex(record),
            "datagram": hex(&datagram),
        }));
        datagram
    }

    fn seal_signed(&mut self, i: usize, agreement: &Agreement, domain: Domain, frames: &[Vec<u8>]) {
        let seat = agreement.seats.iter().position(|s| *s == i).unwrap();
        let agreed = agreement.agreed[seat].clone();
        let tree = Tree::new(&frames.iter().map(|f| sha256(f)).collect::<Vec<_>>());
        let statement = Transcript::new("sealcast/v1/origin")
            .add(&agreed.epoch.to_bytes())
            .add(&domain.0.to_be_bytes())
            .add(&agreed.me.to_bytes())
            .add(&tree.root())
            .finish();
        let mut signature = Vec::new();
        agreed.keys.vouch(&statement, &mut signature);
        for (index, frames) in frames.iter().enumerate() {
            let mut path = tree.path(index).concat();
            path.resize(32 * tree.count().next_power_of_two().ilog2() as usize, 0);
            let trailer = [index as u8, tree.count() as u8, 0, 64];
            self.seal(i, agreement, domain, FLAG_SIGNED, &[&frames[..], &path, &signature, &trailer].concat());
        }
    }

    /// A VOUCH for one datagram of the old epoch, sealed under the new.
    fn vouch(&mut self, i: usize, old: &Agreement, new: &Agreement, datagram: &[u8]) {
        let of = |a: &Agreement| a.agreed[a.seats.iter().position(|s| *s == i).unwrap()].clone();
        let (old, agreed): (EpochId, Agreed) = (of(old).epoch, of(new));
        let mut body = [&[1][..], &old.to_bytes(), &[0, 1], &1_u16.to_be_bytes()].concat();
        body.extend_from_slice(&datagram[2..4]);
        body.extend_from_slice(&datagram[20..28]);
        body.extend_from_slice(&sha256(datagram)[..16]);
        let statement = Transcript::new("sealcast/v1/vouch").add(&agreed.epoch.to_bytes());
        let statement = statement.add(&agreed.me.to_bytes()).add(&body).finish();
        agreed.keys.vouch(&statement, &mut body);
        let mut record = whole(2, None, "", &body);
        record[0] |= 0x40;
        self.seal(i, new, Domain(0), 0, &record);
    }

    fn finish(self, name: &str, names: &[&str], statements: bool) -> Value {
        json!({ "name": name, "members": names, "statements": statements, "steps": self.steps })
    }
}

/// The 64 bytes of each exponent that were drawn between two states of a generator, `null` for the seed's.
fn draws(mut before: ChaCha20Rng, after: &ChaCha20Rng) -> Vec<Value> {
    let mut drawn = Vec::new();
    let words = |rng: &ChaCha20Rng| rng.get_word_pos();
    while words(&before) < words(after) {
        let left = (words(after) - words(&before)) * 4;
        // An exponent and its proof's randomness, 96 bytes; at the seed's seat the latter alone, which comes last.
        drawn.push(if left % 96 == 0 {
            let mut uniform = [0; 64];
            before.fill_bytes(&mut uniform);
            json!(hex(&uniform))
        } else {
            Value::Null
        });
        before.fill_bytes(&mut [0; 32]);
    }
    drawn
}

fn whole(number: u64, sent: Option<u64>, topic: &str, body: &[u8]) -> Vec<u8> {
    let kind = if sent.is_some() { 0x81 } else { 1 };
    let sent = sent.map_or(vec![], |t| t.to_be_bytes().to_vec());
    let length = (body.len() as u32).to_be_bytes();
    [&[kind, topic.len() as u8][..], &length, &number.to_be_bytes(), &sent, topic.as_bytes(), body].concat()
}

fn piece(number: u64, topic: &str, total: u32, offset: u32, bytes: &[u8]) -> Vec<u8> {
    let length = (bytes.len() as u32).to_be_bytes();
    let place = [total.to_be_bytes(), offset.to_be_bytes()].concat();
    [&[2, topic.len() as u8][..], &length, &number.to_be_bytes(), &place, topic.as_bytes(), bytes].concat()
}

fn heartbeat(number: u64) -> Vec<u8> {
    [&[3][..], &number.to_be_bytes()].concat()
}

/// Certificates, secrets and statements, made once; the stories read them from the file.
fn inputs() -> Value {
    let mut rng = ChaCha20Rng::from_seed([0x57; 32]);
    let mut authority = Authority::create("ward3 CA", Algorithm::Ed25519, UTC, &mut rng).unwrap();
    let mut members = serde_json::Map::new();
    let mut certificates = Vec::new();
    let all: &[(Act, &str)] = &[(Act::Both, "#")];
    let list: [(&str, &[(Act, &str)]); 9] = [
        ("robot1", &[(Act::Both, "#"), (Act::Evict, "#")]),
        ("robot2", &[(Act::Both, "pose/#")]),
        ("logger", &[(Act::Publish, "log/+")]),
        ("robot3", all),
        ("robot4", all),
        ("robot5", all),
        ("robot6", all),
        ("robot7", all),
        ("mallory", all),
    ];
    for (name, rights) in list {
        let secret = MemberSecret::generate(Algorithm::Ed25519, &mut rng);
        let rights = rights.iter().map(|(act, p)| Right::new(GROUP, *act, p).unwrap()).collect();
        let request = Request { name: name.into(), keys: secret.public(), rights, attributes: vec![] };
        let certificate = authority.issue(&request, UTC, 20 * 365 * 86_400).unwrap();
        let seed: Secret<32> = Secret::random(&mut rng);
        members.insert(
            name.into(),
            json!({ "secret": *secret.export(), "certificate": hex(certificate.der()), "seed": hex(seed.expose()) }),
        );
        certificates.push((certificate, secret));
    }
    let anchor = authority.anchor().clone();
    let identity = Identity::new(&certificates[0].0, &certificates[0].1, anchor.clone()).unwrap();
    let mallory = anchor.verify(&certificates[8].0, Some(UTC), UTC).unwrap();
    let eviction = Eviction::new(GROUP, &mallory, 1, "lost laptop").sign_as_member(&identity, &mallory).unwrap();
    let line = |name: &str, p: &str| Compartment { name: name.into(), patterns: vec![p.parse().unwrap()] };
    let policy = Policy {
        group: GROUP.into(),
        number: 0,
        compartments: vec![line("motion", "pose/#"), line("rest", "#")],
        max_crl_age_seconds: None,
        on_stale: OnStale::Warn,
    };
    let policy = authority.policy(&policy).unwrap();
    let crl = authority.crl(UTC, 20 * 365 * 86_400).unwrap();
    json!({
        "group": GROUP,
        "suite": 1,
        "veil": hex(authority.bootstrap_key(GROUP).expose()),
        "authority": hex(authority.certificate().der()),
        "members": members,
        "statements": [hex(&eviction), hex(&crl), hex(&policy)],
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn unhex(text: &Value) -> Vec<u8> {
    let text = text.as_str().expect("bytes are text");
    (0..text.len() / 2).map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).expect("hexadecimal")).collect()
}
