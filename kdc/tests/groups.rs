//! Groups whose keys come from a centre: the one that `kdc run` runs, and sessions over loopback multicast.

use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use sealcast::io::clock::Clock;
use sealcast::session::Identity;
use sealcast::{Code, Message, Origin, Session, Subscription};
use sealcast_crypto::identity::registration::exchange_key;
use sealcast_crypto::identity::{Act, Principal, Registration, Right};
use sealcast_crypto::secret::Secret;
use sealcast_crypto::signature::OriginKey;
use sealcast_kdc::store::principal;
use sealcast_kdc::{Server, Store};
use sealcast_wire::Change;

const GROUP: &str = "ward3";
const SOON: Duration = Duration::from_secs(15);
const LEADER: &[(Act, &str)] = &[(Act::Both, "#"), (Act::Lead, "#"), (Act::Evict, "#")];
const PLAIN: &[(Act, &str)] = &[(Act::Both, "#")];

/// A centre that runs until it is dropped.
struct Centre {
    store: Store,
    address: String,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    _folder: tempfile::TempDir,
}

impl Centre {
    fn new() -> Centre {
        let folder = tempfile::tempdir().unwrap();
        let secret = Secret::from_bytes([7; 32]);
        let store = Store::create(&folder.path().join("kdc"), &secret).unwrap();
        let mut server = Server::first(store.clone(), "127.0.0.1:0".parse().unwrap()).unwrap();
        let address = server.address().unwrap().to_string();
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, clock) = (stop.clone(), Clock::start());
        let (ended, _) = mpsc::channel();
        let serve = move || server.serve(|| clock.now(), &stopped, |it| ended.send(it).unwrap_or(())).unwrap();
        let thread = Some(std::thread::spawn(serve));
        Centre { store, address, stop, thread, _folder: folder }
    }

    fn register(&self, name: &str, rights: &[(Act, &str)]) -> Arc<Principal> {
        self.register_with(name, rights, false)
    }

    fn register_with(&self, name: &str, rights: &[(Act, &str)], exchanges: bool) -> Arc<Principal> {
        let now = Clock::start().now().utc.unwrap();
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).unwrap();
        let signing = Secret::from_bytes(seed);
        let draft = Registration {
            realm: self.store.realm(),
            serial: 0,
            name: name.into(),
            key: OriginKey::from_seed(&signing).public().clone(),
            exchange: exchanges.then(|| exchange_key(&signing)),
            not_before: now.0 - 5,
            not_after: now.0 + 3600,
            rights: rights.iter().map(|(act, pattern)| Right::new(GROUP, *act, pattern).unwrap()).collect(),
        };
        Arc::new(principal(self.store.secret(), self.store.register(draft, now).unwrap(), signing))
    }

    fn url(&self, more: &str) -> String {
        static PORT: AtomicU16 = AtomicU16::new(0);
        // Below the ports that the system gives away.
        let port = 10_000 + (std::process::id() % 20_000) as u16 + PORT.fetch_add(1, Ordering::Relaxed);
        format!("udpm://239.255.77.1:{port}?ttl=0&keys=center&group={GROUP}&kdc={}{more}", self.address)
    }

    fn end(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().into_iter().for_each(|it| it.join().unwrap());
    }
}

impl Drop for Centre {
    fn drop(&mut self) {
        self.end();
    }
}

fn open(url: &str, principal: &Arc<Principal>) -> Session {
    sealcast::open(url).identity(Identity::Principal(principal.clone())).wait().unwrap()
}

fn together(sessions: &[&Session], members: usize) {
    let deadline = Instant::now() + SOON;
    loop {
        let views: Vec<_> = sessions.iter().filter_map(|it| it.view()).collect();
        let one = |v: &std::sync::Arc<sealcast::View>| v.members.len() == members && v.epoch == views[0].epoch;
        if views.len() == sessions.len() && views.iter().all(one) {
            return;
        }
        assert!(Instant::now() < deadline, "not together: {views:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn next(sub: &mut Subscription) -> Message {
    sub.next_timeout(SOON).expect("open").expect("delivered")
}

#[test]
fn members_talk_on_both_channels_under_keys_that_the_leader_hands_out() {
    let centre = Centre::new();
    let (leader, alice, bob) =
        (centre.register("leader", LEADER), centre.register("alice", PLAIN), centre.register("bob", PLAIN));
    let url = centre.url("");
    let sessions = [open(&url, &leader), open(&url, &alice), open(&url, &bob)];
    together(&sessions.each_ref(), 3);
    let mut subs = sessions.each_ref().map(|it| it.subscribe("#").wait().unwrap());
    sessions[1].publish("media/1", b"frame").wait().unwrap();
    for sub in &mut subs {
        let message = next(sub);
        assert_eq!((message.topic(), message.payload()), ("media/1", &b"frame"[..]));
        assert!(matches!(message.origin(), Origin::Claimed(m) if &*m.name == "alice"));
    }
    for (i, session) in sessions.iter().enumerate() {
        session.publish("state", [i as u8]).ordered().wait().unwrap();
    }
    sessions[2].publish("state", [9]).safe().wait().unwrap();
    let got = |sub: &mut Subscription| (0..4).map(|_| next(sub).payload()[0]).collect::<Vec<u8>>();
    assert_eq!(subs.each_mut().map(got), [[0, 1, 2, 9]; 3]);
    let status = sessions[0].status().expect("it knows its group");
    assert_eq!(status.members.iter().map(|it| &*it.name).collect::<Vec<_>>()[0], "leader");
}

/// Each pair mixes an exchange in if both have a key for it: with and without are in one group, under any leader.
#[test]
fn rule_c2_members_with_x25519_keys_and_without_are_one_group() {
    let centre = Centre::new();
    let url = centre.url("");
    let all = [("leader", LEADER, true), ("second", LEADER, true), ("alice", PLAIN, true), ("bob", PLAIN, false)];
    let principals = all.map(|(name, rights, exchanges)| centre.register_with(name, rights, exchanges));
    assert!(principals[0].registration.exchange.is_some() && principals[3].registration.exchange.is_none());
    let mut sessions: Vec<Session> = principals.iter().map(|it| open(&url, it)).collect();
    together(&sessions.iter().collect::<Vec<_>>(), 4);
    let status = sessions[3].status().expect("it knows its group");
    assert_eq!(status.members.iter().filter(|it| it.exchanges).count(), 3);
    // The next one in line has pair keys of its own with all.
    let first = sessions.remove(0);
    let _ = first.leave().wait();
    together(&sessions.iter().collect::<Vec<_>>(), 3);
    let mut sub = sessions[2].subscribe("t").wait().unwrap();
    sessions[1].publish("t", b"x").wait().unwrap();
    assert_eq!(next(&mut sub).payload(), b"x");
}

#[test]
fn rule_c2_the_order_goes_on_when_the_leader_leaves_and_when_the_centre_is_lost() {
    let mut centre = Centre::new();
    let url = centre.url("&detect=500ms");
    let names = ["one", "two", "three", "four"];
    let mut sessions: Vec<Session> = names.map(|it| open(&url, &centre.register(it, LEADER))).into();
    together(&sessions.iter().collect::<Vec<_>>(), 4);
    // Stand-bys have what they need.
    std::thread::sleep(Duration::from_millis(1500));
    centre.end();
    let view = sessions[0].view().unwrap();
    let first = view.members.iter().next().unwrap().name.clone();
    let leader = sessions.iter().position(|it| it.info().me == *first).unwrap();
    assert_eq!(sessions.remove(leader).close(), 0);
    together(&sessions.iter().collect::<Vec<_>>(), 3);
    let mut sub = sessions[1].subscribe("#").wait().unwrap();
    sessions[0].publish("state", b"after").ordered().wait().unwrap();
    assert_eq!(next(&mut sub).payload(), b"after");
    assert_eq!(sessions[0].view().unwrap().change, Change::Left);
}

#[test]
fn rule_c1_a_principal_that_the_centre_revokes_is_out() {
    let centre = Centre::new();
    let url = centre.url("");
    let bob = centre.register("bob", PLAIN);
    let (leader, alice) = (centre.register("leader", LEADER), centre.register("alice", PLAIN));
    let sessions = [open(&url, &leader), open(&url, &alice), open(&url, &bob)];
    together(&sessions.each_ref(), 3);
    let now = Clock::start().now().utc.unwrap();
    centre.store.revoke(&bob.registration.hash(), "operator", "lost", now).unwrap();
    together(&[&sessions[0], &sessions[1]], 2);
    let deadline = Instant::now() + SOON;
    while sessions[2].info().excluded.is_none() {
        assert!(Instant::now() < deadline, "it does not know");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(sessions[2].publish("x", b"y").wait().unwrap_err().code(), Code::Excluded);
    // By a member with the right, too.
    sessions[0].evict("alice", "gone").wait().unwrap();
    together(&[&sessions[0]], 1);
}

#[test]
fn without_the_centre_a_newcomer_waits_and_says_so() {
    let centre = Centre::new();
    let url = centre.url("");
    let leader = centre.register("leader", LEADER);
    let session = open(&url, &leader);
    together(&[&session], 1);
    let unknown = centre.register("late", PLAIN);
    let lost = url.replace(&centre.address, "127.0.0.1:9");
    let late = sealcast::open(&format!("{lost}&wait=1s")).identity(Identity::Principal(unknown)).wait().unwrap();
    assert_eq!(late.ready().wait().unwrap_err().code(), Code::NotReady);
}

#[test]
fn a_registration_that_grants_nothing_in_the_group_is_refused_at_once() {
    let centre = Centre::new();
    let alice = centre.register("alice", PLAIN);
    let url = centre.url("").replace("group=ward3", "group=ward4");
    let error = sealcast::open(&url).identity(Identity::Principal(alice)).wait().unwrap_err();
    assert_eq!(error.code(), Code::Denied);
    let error = sealcast::open(&centre.url("")).wait().unwrap_err();
    assert_eq!(error.code(), Code::NoIdentity);
    assert!(matches!(error.remedy(), Some(sealcast::Remedy::RegisterPrincipal { name: None })));
}
