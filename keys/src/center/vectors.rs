//! Golden vectors of the centre and of groups around a leader (G9): `docs/WIRE.md`, sections 21 and 22, says the bytes,
//! `docs/peer/center.py` reads these by it.
//!
//! Made by our own code with all randomness given. After a change of format, and of version:
//! `SEALCAST_VECTORS=write cargo test -p sealcast-keys center::vectors`.

use std::sync::Arc;

use rand_chacha::ChaCha20Rng;
use rand_core::{Rng as _, SeedableRng as _};
use sealcast_crypto::bootstrap::BootstrapKey;
use sealcast_crypto::hash::Transcript;
use sealcast_crypto::identity::registration::realm;
use sealcast_crypto::identity::{Act, Principal, Registration};
use sealcast_crypto::kdf::hkdf;
use sealcast_crypto::leighton_micali::{Master, Pair, PairSecret, tag};
use sealcast_crypto::secret::Secret;
use sealcast_wire::frame::{FLAG_SIGNED, HEADER_LEN, KIND_OPEN, MAGIC, TAG_LEN};
use sealcast_wire::{Domain, EpochId, Malformed, MemberId, Protect, Reader, Utc};
use serde_json::{Value, json};

use super::epoch::{Drawn, Made, Taken, derive, draw, make, take};
use super::feed::{Feed, FeedAnswer, FeedRequest};
use super::message::{
    Accept, Ack, Beacon, Challenge, Commit, Content, Dismiss, Gone, Join, Lack, Message, Part, Wish, WishKind,
};
use super::pair::PairKey;
use super::query::{Answer, Query};
use super::row::{FIRST_LINK, Revocation, Row};
use super::tests::realm::{GROUP, Realm, UTC, now};
use super::{Center, Config};
use crate::Keys as _;
use crate::Output;

const TIME: u64 = 5_000_000;

/// A centre, a group around a leader, and what they said so far.
struct Story {
    realm: Realm,
    people: Vec<Person>,
    nonces: ChaCha20Rng,
    steps: Vec<Value>,
}

/// One principal, in one run.
struct Person {
    principal: Arc<Principal>,
    node: Center,
}

/// An epoch as its leader made it, and each slot's keys.
struct Epoch {
    id: EpochId,
    keys: Vec<Arc<dyn Protect>>,
}

#[test]
fn rule_g9_a_centre_and_its_group_say_what_the_vectors_say() {
    let now = everything();
    if std::env::var_os("SEALCAST_VECTORS").is_some_and(|v| v == "write") {
        let text = serde_json::to_string_pretty(&now).unwrap() + "\n";
        std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/vectors/center.json"), text).unwrap();
        return;
    }
    let known = known();
    for part in ["given", "centre", "principals", "malformed", "log"] {
        assert_eq!(now[part], known[part], "{part}");
    }
    let steps = |of: &Value| of["steps"].as_array().unwrap().clone();
    for (i, (mine, theirs)) in steps(&now).iter().zip(&steps(&known)).enumerate() {
        assert_eq!(mine, theirs, "step {i}");
    }
    assert_eq!(now, known);
}

/// From the file alone, by each side's own keys.
#[test]
fn rule_g9_members_and_centres_take_the_messages_of_the_vectors() {
    let known = known();
    let master = Master::new(&secret(&known["given"]["secret"]));
    let bootstrap = BootstrapKey::new(&secret(&known["centre"]["bootstrap"]));
    for it in known["principals"].as_array().unwrap() {
        let registration = Registration::from_bytes(&unhex(&it["registration"])).unwrap();
        assert_eq!(hex(&registration.hash().0), it["principal"]);
        let keys = master.long_term(&registration.hash().0);
        assert_eq!((hex(keys.exchange.expose()), hex(keys.authentication.expose())), (text(it, "X"), text(it, "A")));
    }
    for it in known["malformed"].as_array().unwrap() {
        assert_eq!(Registration::from_bytes(&unhex(&it["registration"])), Err(Malformed), "{}", it["why"]);
    }
    let mut kinds = std::collections::BTreeSet::new();
    for step in known["steps"].as_array().unwrap() {
        let datagram = unhex(&step["datagram"]);
        assert_eq!(datagram[0], MAGIC);
        if step["ask"].is_string() {
            let asked = Query::read(&datagram[2..]).unwrap();
            let keys = master.long_term(&asked.asker.0);
            let (asker, nonce) = (asked.asker, asked.nonce);
            let asked = asked.check(&keys).unwrap();
            assert_eq!(asked.write(&asker, &nonce, &keys), datagram[2..]);
        } else if step["answer"].is_string() {
            let answer = Answer::read(&datagram[2..]).unwrap();
            let keys = master.long_term(&answer.asker.0);
            let (asker, nonce) = (answer.asker, answer.nonce);
            let answer = answer.check(&keys).unwrap();
            assert_eq!(answer.write(&asker, &nonce, &keys), datagram[2..]);
            if let Answer::Granted(number, granted) = answer {
                let pair = Pair { from: asker.0, to: unhex(&step["pair"]).try_into().unwrap(), nonce };
                let sigma = keys.unmask(&pair, &granted, &number.to_be_bytes()).unwrap();
                let theirs = master.long_term(&pair.to).receives(&pair.from, &pair.to, &granted.salt);
                assert_eq!((hex(sigma.expose()), hex(theirs.expose())), (text(step, "sigma"), text(step, "sigma")));
            }
        } else if let Some(what) = step["message"].as_str() {
            let plain = bootstrap.open(&datagram[2..]).unwrap();
            assert_eq!(Message::decode(&plain).unwrap().encode(), plain, "{what}");
            kinds.insert(plain[0]);
        }
    }
    assert_eq!(kinds, (1..=13).collect());
}

fn everything() -> Value {
    let mut story = Story::new();
    story.questions();
    story.letting_in(base(), &[BOB, CAROL]);
    let group = story.change();
    story.talk(&group);
    let group = story.one_way(&group, 3, &[ALICE, BOB, CAROL, FRANK]);
    let group = story.one_way(&group, 4, &[ALICE, BOB, CAROL, FRANK, GRACE]);
    story.leaving(&group);
    let (given, centre) = (story.given(), story.centre());
    let principals: Vec<Value> = story.people.iter().map(Person::shown).collect();
    json!({
        "source": "keys/src/center/vectors.rs: our code, all randomness given",
        "given": given,
        "centre": centre,
        "principals": principals,
        "malformed": malformed(&story.people[CAROL].principal.registration),
        "log": story.log(),
        "steps": story.steps,
    })
}

impl Story {
    /// A leader, another one that may lead and reads a part, one that only writes, two that will be revoked, and two that come later.
    fn new() -> Story {
        let mut realm = Realm::new();
        let all = [(Act::Both, "#"), (Act::Lead, "#"), (Act::Evict, "#")];
        let writes = [(Act::Publish, "#"), (Act::Publish, "log/+"), (Act::Publish, "log/a"), (Act::Publish, "+/b")];
        let list: [(&str, &[(Act, &str)]); 7] = [
            ("alice", &all),
            ("bob", &[(Act::Both, "pose/#"), (Act::Lead, "#")]),
            ("carol", &writes),
            ("dave", &[(Act::Both, "#")]),
            ("erin", &[(Act::Subscribe, "#")]),
            ("frank", &[(Act::Both, "#")]),
            ("grace", &[(Act::Both, "#")]),
        ];
        let principals: Vec<Arc<Principal>> = list.iter().map(|(name, r)| Arc::new(realm.register(name, r))).collect();
        let person = |(i, principal): (u8, &Arc<Principal>)| {
            let config = Config::new(GROUP, principal.clone(), Vec::new());
            let mut node = Center::new(config, [i; 32], now(TIME)).unwrap();
            let known = principals.iter().map(|it| Arc::new(it.registration.clone()));
            known.for_each(|it| node.learn(now(TIME).monotonic, &it));
            Person { principal: principal.clone(), node }
        };
        let people = (0..).zip(&principals).map(person).collect();
        Story { realm, people, nonces: ChaCha20Rng::from_seed([0x4E; 32]), steps: Vec::new() }
    }

    fn given(&self) -> Value {
        let run = |it: &Person| (it.name().to_owned(), json!(hex(&it.node.me.incarnation.0)));
        let seed = |it: &Person| (it.name().to_owned(), json!(hex(it.principal.signing.expose())));
        json!({
            "secret": hex(self.realm.secret.expose()),
            "group": GROUP,
            "suite": 1,
            "utc": UTC,
            "runs": self.people.iter().map(run).collect::<serde_json::Map<_, _>>(),
            "signing": self.people.iter().map(seed).collect::<serde_json::Map<_, _>>(),
        })
    }

    /// What follows from the centre's secret.
    fn centre(&self) -> Value {
        let master = |label: &[u8]| {
            let key: Secret<32> = hkdf(self.realm.secret.expose(), b"", &[b"sealcast/v1/lm/master", label]);
            // The one that the centre uses.
            let alice = self.people[ALICE].node.me.cert.0;
            let long_term = Master::new(&self.realm.secret).long_term(&alice);
            let expect = if label == b"x" { long_term.exchange } else { long_term.authentication };
            let name = format!("sealcast/v1/lm/{}", std::str::from_utf8(label).unwrap());
            assert_eq!(tag(&key, &name, &[&alice]), *expect.expose());
            hex(key.expose())
        };
        json!({
            "MK": master(b"x"),
            "MK'": master(b"a"),
            "realm": hex(&realm(&self.realm.secret)),
            "bootstrap": hex(self.people[ALICE].principal.bootstrap_of(GROUP).unwrap().expose()),
        })
    }

    /// Each question, and one of each answer.
    fn questions(&mut self) {
        let of = |story: &Story, who: usize| story.people[who].node.me.cert;
        let [alice, bob, carol, dave, erin, frank, grace] =
            [ALICE, BOB, CAROL, DAVE, ERIN, FRANK, GRACE].map(|who| of(self, who));
        self.ask(ALICE, "PAIR", &Query::Pair(bob), "GRANTED");
        self.ask(BOB, "PAIR", &Query::Pair(dave), "GRANTED");
        self.ask(CAROL, "PAIR", &Query::Pair(alice), "REFUSED");
        self.ask(BOB, "REVOKE", &Query::Revoke(dave, "no right".into()), "REFUSED");
        self.ask(ALICE, "REVOKE", &Query::Revoke(dave, "lost laptop".into()), "DONE");
        self.ask(BOB, "NEWS", &Query::News(0), "REVOKED");
        self.ask(BOB, "PAIR", &Query::Pair(dave), "REFUSED");
        self.ask(ALICE, "REVOKE", &Query::Revoke(erin, String::new()), "DONE");
        self.ask(ALICE, "REVOKE", &Query::Revoke(dave, "once more".into()), "DONE");
        self.ask(BOB, "NEWS", &Query::News(1), "REVOKED");
        self.ask(DAVE, "CHECK", &Query::Check(alice), "REFUSED");
        self.ask(ALICE, "PAIR", &Query::Pair(carol), "GRANTED");
        self.ask(CAROL, "CHECK", &Query::Check(alice), "DONE");
        self.ask(ALICE, "PAIR", &Query::Pair(frank), "GRANTED");
        self.ask(ALICE, "PAIR", &Query::Pair(grace), "GRANTED");
    }

    fn ask(&mut self, who: usize, what: &str, query: &Query, expect: &str) {
        let mut nonce = [0; 16];
        self.nonces.fill_bytes(&mut nonce);
        let (asker, keys) = (self.people[who].node.me.cert, self.people[who].principal.long_term.clone());
        let bytes = query.write(&asker, &nonce, &keys);
        let name = self.people[who].name().to_owned();
        self.steps.push(json!({ "from": name, "ask": what, "datagram": open(&bytes) }));
        let answer = self.realm.kdc.answer(now(TIME), &bytes).unwrap();
        let mut step = json!({ "to": name, "answer": expect, "datagram": open(&answer) });
        let said = Answer::read(&answer).unwrap().check(&keys).unwrap();
        let told = match said {
            Answer::Granted(number, granted) => {
                let Query::Pair(to) = query else { panic!("nothing else is granted") };
                let pair = Pair { from: asker.0, to: to.0, nonce };
                let sigma = keys.unmask(&pair, &granted, &number.to_be_bytes()).unwrap();
                step["pair"] = json!(hex(&to.0));
                step["sigma"] = json!(hex(sigma.expose()));
                if who == ALICE {
                    self.people[ALICE].node.on_pair(now(TIME), *to, granted.salt, sigma);
                }
                "GRANTED"
            }
            Answer::Revoked(..) => "REVOKED",
            Answer::Done(_) => "DONE",
            Answer::Refused(..) => "REFUSED",
        };
        assert_eq!(told, expect, "{what} of {name}");
        self.steps.push(step);
    }

    /// JOIN to ACCEPT, of newcomers.
    fn letting_in(&mut self, base: EpochId, newcomers: &[usize]) {
        for who in newcomers.iter().copied() {
            let (registration, me) = self.shown(who);
            let (run, epoch) = (me.incarnation, EpochId::default());
            self.say(who, &Message::Join(Join { registration, run, epoch, size: 0, reliable: true }), json!({}));
        }
        let (registration, alice) = self.shown(ALICE);
        let run = alice.incarnation;
        let size = self.people[ALICE].node.view_size().max(1) as u16;
        let beacon = Beacon { registration: registration.clone(), run, epoch: base, size, reliable: true };
        self.say(ALICE, &Message::Beacon(beacon), json!({}));
        for who in newcomers.iter().copied() {
            let to = self.people[who].node.me;
            let (key, salt) = self.key_and_salt(ALICE, who);
            let mut token = [0; 16];
            self.nonces.fill_bytes(&mut token);
            let mut it = Challenge { to, registration: registration.clone(), run, salt, token, tag: [0; 16] };
            it.tag = key.challenge(&it);
            let theirs = self.key_of_member(who);
            assert_eq!(theirs.check_challenge(&it), Ok(()));
            let values = json!({ "pair_key": hex(&raw(&self.sigma(who, &salt), &alice, &to)) });
            self.say(ALICE, &Message::Challenge(it), values);
            let mut it = Accept { from: to, to: alice, token, epoch: EpochId::default(), tag: [0; 16] };
            it.tag = theirs.accept(&it);
            assert_eq!(key.check_accept(&it), Ok(()));
            self.say(who, &Message::Accept(it), json!({}));
        }
    }

    /// PROPOSE to COMMIT: the two newcomers are in.
    fn change(&mut self) -> Epoch {
        let of = |story: &Story, who: usize| story.people[who].node.me.cert;
        self.say(BOB, &Message::Want(vec![of(self, ALICE), of(self, CAROL)]), json!({}));
        let all = [ALICE, BOB, CAROL];
        let given = all.iter().map(|it| Arc::new(self.people[*it].principal.registration.clone())).collect();
        self.say(ALICE, &Message::Give(given), json!({}));
        self.agree(base(), (2, 7), &[], &all, [0; 32])
    }

    /// The same for one newcomer, the last member, where others derive the secrets; bob and carol get their sending keys.
    fn one_way(&mut self, epoch: &Epoch, counter: u32, members: &[usize]) -> Epoch {
        let newcomer = members[members.len() - 1];
        self.letting_in(epoch.id, &[newcomer]);
        let next = self.agree(epoch.id, (counter, counter + 5), &[], members, [0xA5; 32]);
        let log = [&[3][..], &8_u64.to_be_bytes()].concat();
        self.seal(newcomer, &next, members.len() - 1, (Domain(0), 0), &log);
        next
    }

    /// Sealed datagrams of each member, in each domain; one of them signed.
    fn talk(&mut self, epoch: &Epoch) {
        let frame = |topic: &str, body: &[u8]| {
            let length = (body.len() as u32).to_be_bytes();
            [&[1, topic.len() as u8][..], &length, &1_u64.to_be_bytes(), topic.as_bytes(), body].concat()
        };
        let heartbeat = [&[3][..], &7_u64.to_be_bytes()].concat();
        self.seal(ALICE, epoch, 0, (Domain(0), 0), &heartbeat);
        self.seal(BOB, epoch, 1, (Domain(1), 0), &frame("pose/robot1", b"x=1"));
        self.seal(CAROL, epoch, 2, (Domain(1), 0), &frame("pose/b", b"x=2"));
        let log = frame("log/a", b"open");
        let root = sealcast_crypto::merkle::Tree::new(&[sealcast_crypto::hash::sha256(&log)]).root();
        let parts = [&epoch.id.to_bytes()[..], &[0, 2], &2_u32.to_be_bytes(), &root];
        let statement = parts.iter().fold(Transcript::new("sealcast/v1/origin"), |t, part| t.add(part)).finish();
        let mut proof = Vec::new();
        epoch.keys[2].vouch(&statement, &mut proof);
        let record = [&log[..], &proof, &[0, 1, 0, 64]].concat();
        self.seal(CAROL, epoch, 2, (Domain(2), FLAG_SIGNED), &record);
    }

    /// A member leaves; the leader asks for a new key for itself to leave; a wish of each kind.
    fn leaving(&mut self, epoch: &Epoch) {
        for (from, to, what) in [
            (CAROL, ALICE, WishKind::News),
            (CAROL, ALICE, WishKind::Rotate),
            (BOB, ALICE, WishKind::Leave),
            (ALICE, CAROL, WishKind::Leave),
        ] {
            let (mine, theirs) = (self.people[from].node.me, self.people[to].node.me);
            let key = self.key_and_salt(ALICE, if from == ALICE { to } else { from }).0;
            let mut it = Wish { from: mine, to: theirs, epoch: epoch.id, what, tag: [0; 16] };
            it.tag = key.wish(&it);
            assert_eq!(key.check_wish(&it), Ok(()));
            self.say(from, &Message::Wish(it), json!({}));
        }
        self.agree(epoch.id, (5, 10), &[(BOB, Gone::Left)], &[ALICE, CAROL, FRANK, GRACE], [0xC7; 32]);
        let (from, to) = (self.people[ALICE].node.me, self.people[BOB].node.me);
        let key = self.key_and_salt(ALICE, BOB).0;
        let mut it = Dismiss { from, to, why: Gone::Left, tag: [0; 16] };
        it.tag = key.dismiss(&it);
        assert_eq!(key.check_dismiss(&it), Ok(()));
        self.say(ALICE, &Message::Dismiss(it), json!({}));
    }

    /// One change around alice: the members are in slot order, newcomers acknowledge with zeros.
    fn agree(
        &mut self,
        base: EpochId,
        (counter, attempt): (u32, u32),
        gone: &[(usize, Gone)],
        members: &[usize],
        cut: [u8; 32],
    ) -> Epoch {
        let leader = self.people[ALICE].node.me;
        let alice = &mut self.people[ALICE].node;
        let before = alice.installed.as_ref().filter(|it| it.epoch == base).map(|it| it.slots.clone());
        let old = before.clone().unwrap_or_default();
        let slot = |who: &MemberId| old.iter().position(|it| it == who).unwrap() as u16;
        let gone = gone.iter().map(|(who, why)| (slot(&self.people[*who].node.me), *why)).collect();
        let slots = members.iter().map(|it| self.people[*it].node.me).collect();
        let mut content = Content { leader, base, counter, attempt, lock: [0; 32], gone, slots };
        let alice = &mut self.people[ALICE].node;
        let table = alice.table_of(&content).unwrap();
        let one_way = content.gone.is_empty();
        let drawn = draw(alice, &mut content, table, one_way);
        let signer = alice.signer.clone();
        let id = content.id();
        let pair = |who: &usize| (*who != ALICE).then(|| self.key_and_salt(ALICE, *who).0);
        let keys: Vec<Option<PairKey>> = members.iter().map(pair).collect();
        let mut said = content.say(before.as_deref(), &signer);
        self.say(ALICE, &Message::Propose(said.clone()), json!({ "proposal": hex(&id) }));
        if !members.iter().all(|it| old.contains(&self.people[*it].node.me)) {
            let newcomer = members[members.len() - 1];
            let (from, key) = (self.people[newcomer].node.me, keys[members.len() - 1].as_ref().unwrap());
            let mut it = Lack { from, to: leader, proposal: id, parts: 1, tag: [0; 16] };
            it.tag = key.lack(&it);
            assert_eq!(key.check_lack(&it), Ok(()));
            self.say(newcomer, &Message::Lack(it), json!({}));
            let salt = |who: &usize| if *who == ALICE { [0; 16] } else { self.key_and_salt(ALICE, *who).1 };
            let slots = members.iter().map(|it| (self.people[*it].node.me, salt(it))).collect();
            let mut it = Part { proposal: id, part: 0, slots, signature: [0; 64] };
            it.signature = signer.sign(&it.statement());
            self.say(ALICE, &Message::Roster(it), json!({}));
            // Once more, after the first two have acknowledged.
            said.acked = vec![0b11];
            self.say(ALICE, &Message::Propose(said), json!({ "proposal": hex(&id) }));
        }
        for (at, who) in members.iter().enumerate().skip(1) {
            let theirs = self.key_of_member(*who);
            let from = self.people[*who].node.me;
            let was_in = self.people[*who].node.installed.as_ref().is_some_and(|it| it.epoch == base);
            let (base, cut) = if was_in { (base, cut) } else { (EpochId::default(), [0; 32]) };
            let mut it = Ack { from, to: leader, proposal: id, base, cut, tag: [0; 16] };
            it.tag = theirs.ack(&it);
            assert_eq!(keys[at].as_ref().unwrap().check_ack(&it), Ok(()));
            self.say(*who, &Message::Ack(it), json!({}));
        }
        self.hand_out(&content, members, cut, &keys, &drawn)
    }

    fn hand_out(
        &mut self,
        content: &Content,
        members: &[usize],
        cut: [u8; 32],
        keys: &[Option<PairKey>],
        drawn: &Drawn,
    ) -> Epoch {
        let in_base =
            |who: &usize| self.people[*who].node.installed.as_ref().is_some_and(|it| it.epoch == content.base);
        let of_base: Vec<bool> = members.iter().map(in_base).collect();
        let table = drawn.table.clone();
        let Made { commit, entries, mine } = make(&self.people[ALICE].node, content, drawn, cut, keys, &of_base);
        let id = mine.epoch;
        let mut taken: Vec<Taken> = Vec::new();
        for (at, who) in members.iter().enumerate().skip(1) {
            let key = self.key_of_member(*who);
            let base = self.people[*who].node.installed.as_ref();
            taken.push(match (&entries[at][..], &commit.nonce) {
                ([], Some(nonce)) => derive(base.unwrap(), content, &table, &commit, (at, nonce)).unwrap(),
                (sealed, _) => take(content, &table, &commit, at, (sealed, &key)).unwrap(),
            });
        }
        taken.insert(0, mine);
        let secrets: Vec<Option<String>> = taken[0].rings.iter().map(of_secret).collect();
        let ring = |domain: Domain| table.ring_of(domain).map(|it| it as u16);
        let rings: Vec<Option<u16>> = table.domains().map(ring).collect();
        let own = |it: &Taken| it.own.iter().map(|(d, key)| json!([d.0, hex(key.expose())])).collect::<Vec<_>>();
        let values = json!({
            "transcript": hex(&commit.transcript()),
            "epoch": hex(&id.to_bytes()),
            "secrets": secrets,
            "ring_of_domain": rings,
            "sending_keys": taken.iter().map(own).collect::<Vec<_>>(),
            "one_way": commit.nonce.is_some(),
        });
        // As two datagrams: each stands alone.
        let slots: Vec<(u16, Vec<u8>)> = (0..).zip(entries).filter(|(_, it)| !it.is_empty()).collect();
        for part in slots.chunks(1) {
            let part = Commit { entries: part.to_vec(), ..commit.clone() };
            self.say(ALICE, &Message::Commit(part), values.clone());
        }
        let mut keys = Vec::new();
        for (who, taken) in members.iter().zip(taken) {
            let node = &mut self.people[*who].node;
            while node.poll().is_some() {}
            node.enter(now(TIME), content, table.clone(), taken, commit.nonce.is_some());
            let entered = std::iter::from_fn(|| node.poll())
                .find_map(|it| if let Output::Epoch { protect, .. } = it { protect } else { None });
            keys.push(entered.unwrap());
        }
        Epoch { id, keys }
    }

    fn seal(&mut self, who: usize, epoch: &Epoch, slot: usize, (domain, flags): (Domain, u8), record: &[u8]) {
        let mut datagram = vec![0; HEADER_LEN];
        datagram.extend_from_slice(record);
        datagram.resize(datagram.len() + TAG_LEN, 0);
        epoch.keys[slot].seal(domain, flags, &mut datagram).unwrap();
        let opened = epoch.keys[0].open(&mut datagram.clone()).map(|(_, _, text)| text.to_vec());
        assert!(who == ALICE || opened.as_deref() == Ok(record), "{opened:?}");
        self.steps.push(json!({ "from": self.people[who].name(), "record": hex(record), "datagram": hex(&datagram) }));
    }

    fn say(&mut self, who: usize, message: &Message, mut step: Value) {
        let names = [
            "JOIN",
            "CHALLENGE",
            "ACCEPT",
            "PROPOSE",
            "ACK",
            "COMMIT",
            "BEACON",
            "WISH",
            "DISMISS",
            "WANT",
            "GIVE",
            "ROSTER",
            "LACK",
        ];
        let mut nonce = [0; 12];
        self.nonces.fill_bytes(&mut nonce);
        let bytes = message.encode();
        let sealed = self.people[who].node.bootstrap_key.seal(nonce, &bytes);
        step["from"] = json!(self.people[who].name());
        step["message"] = json!(names[usize::from(bytes[0]) - 1]);
        step["datagram"] = json!(open(&sealed));
        self.steps.push(step);
    }

    fn shown(&self, who: usize) -> (Arc<Registration>, MemberId) {
        (self.people[who].node.registration.clone(), self.people[who].node.me)
    }

    /// The leader's key with a member, and the salt that it comes of.
    fn key_and_salt(&self, leader: usize, member: usize) -> (PairKey, [u8; 16]) {
        let (of, member) = (&self.people[leader].node, self.people[member].node.me);
        let key = of.leads.key_with(GROUP, &of.me, &member).expect("it was granted");
        (key, of.leads.salt_with(&member.cert).expect("it was granted"))
    }

    /// The same key as the member computes it.
    fn key_of_member(&self, member: usize) -> PairKey {
        let (leader, me) = (self.people[ALICE].node.me, self.people[member].node.me);
        let salt = self.key_and_salt(ALICE, member).1;
        PairKey::new(GROUP, &self.sigma(member, &salt), &leader, &me)
    }

    fn sigma(&self, member: usize, salt: &[u8; 16]) -> PairSecret {
        let (leader, me) = (self.people[ALICE].node.me, &self.people[member]);
        me.principal.long_term.receives(&leader.cert.0, &me.node.me.cert.0, salt)
    }

    /// The first centre's rows with their links, and what a stand-by says and hears.
    fn log(&self) -> Value {
        let feed = Feed::new(&self.realm.secret);
        let (dave, by, reason) = (self.people[DAVE].node.me.cert, "alice".to_owned(), "lost laptop".to_owned());
        let registered = self.people.iter().map(|it| Row::Registered(it.principal.registration.clone()));
        let revoked = Row::Revoked(Revocation { principal: dave, number: 1, at: Utc(UTC), by, reason });
        let rows: Vec<Row> = registered.chain([revoked]).collect();
        let mut link = FIRST_LINK;
        let mut links = Vec::new();
        for row in &rows {
            link = row.link(&link);
            links.push(link);
        }
        let nonce = [0x51; 16];
        let request = FeedRequest { nonce, after: 2, link: links[1] };
        let answer = FeedAnswer::Rows { newest: rows.len() as u64, rows: rows[2..].to_vec() };
        let (asks, says) = (feed.write_request(&request, [1; 12]), feed.write_answer(&answer, &nonce, [2; 12]));
        let diverged = feed.write_answer(&FeedAnswer::Diverged, &nonce, [3; 12]);
        assert_eq!((feed.read_request(&asks), feed.read_answer(&says, &nonce)), (Ok(request), Ok(answer)));
        let row = |(row, link): (&Row, &[u8; 32])| json!({ "row": hex(&row.to_bytes()), "link": hex(link) });
        json!({
            "rows": rows.iter().zip(&links).map(row).collect::<Vec<_>>(),
            "request": open(&asks),
            "answer": open(&says),
            "diverged": open(&diverged),
        })
    }
}

impl Person {
    fn name(&self) -> &str {
        &self.principal.registration.name
    }

    fn shown(&self) -> Value {
        let keys = &self.principal.long_term;
        json!({
            "name": self.name(),
            "registration": hex(&self.principal.registration.to_bytes()),
            "principal": hex(&self.node.me.cert.0),
            "X": hex(keys.exchange.expose()),
            "A": hex(keys.authentication.expose()),
        })
    }
}

/// Registrations that have another encoding than the one, or too much.
fn malformed(of: &Registration) -> Value {
    let bytes = of.to_bytes();
    let head = 6 + 32 + 8 + 2 + of.name.len() + 32 + 16 + 2;
    let mut rights = Vec::new();
    let mut r = Reader::new(&bytes[head..]);
    for _ in 0..of.rights.len() {
        let parts = (r.bytes16(64).unwrap().to_vec(), r.u8().unwrap(), r.bytes16(255).unwrap().to_vec());
        let length = |it: &[u8]| (it.len() as u16).to_be_bytes();
        rights.push([&length(&parts.0)[..], &parts.0, &[parts.1], &length(&parts.2), &parts.2].concat());
    }
    let with = |rights: &[Vec<u8>]| {
        let count = (rights.len() as u16).to_be_bytes();
        hex(&[&bytes[..head - 2], &count[..], &rights.concat()].concat())
    };
    let swapped: Vec<Vec<u8>> = rights.iter().rev().cloned().collect();
    let twice: Vec<Vec<u8>> = rights[..1].iter().chain(&rights).cloned().collect();
    let longer = hex(&[&bytes[..], &[0]].concat());
    let no_act: Vec<Vec<u8>> = rights.iter().map(|it| [&it[..7], &[6], &it[8..]].concat()).collect();
    json!([
        { "why": "rights do not ascend", "registration": with(&swapped) },
        { "why": "rights do not ascend", "registration": with(&twice) },
        { "why": "an unknown act", "registration": with(&no_act) },
        { "why": "bytes left over", "registration": longer },
    ])
}

/// Of the leader when it was alone.
fn base() -> EpochId {
    EpochId { counter: 1, hash: 0x6c6f_6e65_6c79_2121 }
}

/// As [`PairKey`] keeps it to itself.
fn raw(sigma: &PairSecret, leader: &MemberId, member: &MemberId) -> [u8; 32] {
    let runs = [leader.incarnation.0, member.incarnation.0].concat();
    *hkdf::<32>(sigma.expose(), &runs, &[b"sealcast/v1/center/pair", GROUP.as_bytes()]).expose()
}

fn of_secret(secret: &Option<Secret<32>>) -> Option<String> {
    secret.as_ref().map(|it| hex(it.expose()))
}

fn open(bytes: &[u8]) -> String {
    hex(&[&[MAGIC, KIND_OPEN], bytes].concat())
}

fn known() -> Value {
    serde_json::from_str(include_str!("../../vectors/center.json")).unwrap()
}

fn secret(of: &Value) -> Secret<32> {
    Secret::try_from(&unhex(of)[..]).unwrap()
}

fn text(of: &Value, name: &str) -> String {
    of[name].as_str().unwrap().to_owned()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn unhex(text: &Value) -> Vec<u8> {
    let text = text.as_str().expect("bytes are text");
    (0..text.len() / 2).map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).expect("hexadecimal")).collect()
}

const ALICE: usize = 0;
const BOB: usize = 1;
const CAROL: usize = 2;
const DAVE: usize = 3;
const ERIN: usize = 4;
const FRANK: usize = 5;
const GRACE: usize = 6;
