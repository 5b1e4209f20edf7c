//! One holder of a certificate against sessions, each a process in a network namespace of its own on one bridge: what the
//! scenarios of that name do to members in the simulator.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sealcast_lab::netns::{self, Bridge};
use sealcast_lab::peers::Player;
use sealcast_lab::peers::identities::Identities;

const ADDRESS: &str = "239.255.76.67:7667";

/// Sessions by number, and who misbehaves beside them.
struct Lan {
    bridge: Bridge,
    identities: Arc<Identities>,
}

/// A session's process, and what it last said of its view.
struct Session {
    player: Player,
    epoch: String,
    members: usize,
}

impl Lan {
    /// Room for so many; `None`, said aloud, where there are no namespaces.
    fn new(test: &str, members: usize) -> Option<Lan> {
        if let Err(why) = netns::available() {
            sealcast_lab::skipped(test, &why);
            return None;
        }
        let identities = Arc::new(Identities::new(members).expect("identities"));
        Some(Lan { bridge: Bridge::new(members).expect("a bridge"), identities })
    }

    fn role(&self, role: &str, url: &str, i: usize) -> Player {
        let mut command = self.bridge.command(i, env!("CARGO_BIN_EXE_sealcast-lab"));
        command.args(["role", role, url, "--identity", &self.identities.name(i), "--home"]).arg(self.identities.home());
        let player = Player::start(&mut command).expect("it starts").with(Some(Arc::clone(&self.identities)));
        player.ready().expect("it is ready");
        player
    }

    /// A session that begins to look for its group.
    fn session(&self, i: usize) -> Session {
        let mut player = self.role("member", &format!("udpm://{ADDRESS}?ttl=1&keys=contributory"), i);
        player.tell("open").expect("it lives");
        Session { player, epoch: String::new(), members: 0 }
    }

    /// The last of them misbehaves; it can speak to each of the others alone.
    fn insider(&mut self, kind: &str) -> Player {
        let me = self.bridge.len() - 1;
        let ways: Vec<IpAddr> = (0..me).map(|to| self.bridge.aside(me, to).expect("a way aside")).collect();
        let mut player = self.role("insider", ADDRESS, me);
        for (to, from) in ways.iter().enumerate() {
            player.tell(&format!("aside {to} {from}")).expect("it lives");
        }
        assert_eq!(player.ask(kind).expect("it begins"), "ready");
        player
    }
}

impl Session {
    /// Hears what it says, for so long at most, until it says what is looked for.
    fn hear(&mut self, most: Duration, found: impl Fn(&Session, &str) -> bool) -> bool {
        let end = Instant::now() + most;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let Some(line) = self.player.hear_for(left).expect("the process lives") else { return false };
            if let ["view", _, epoch, members] = line.split_whitespace().collect::<Vec<_>>()[..] {
                (self.epoch, self.members) = (epoch.to_owned(), members.parse().expect("a number"));
            }
            if found(self, &line) {
                return true;
            }
        }
    }

    fn ask(&mut self, line: &str, answer: &str) {
        self.player.tell(line).expect("the process lives");
        assert!(self.hear(TIMEOUT, |_, said| said.starts_with(answer)), "no answer to {line}");
    }
}

/// Until all of these are in one epoch of so many members at least.
fn together(sessions: &mut [Session], members: usize) {
    let end = Instant::now() + TIMEOUT;
    let one = |sessions: &[Session]| {
        let same = sessions.iter().all(|s| s.epoch == sessions[0].epoch);
        same && !sessions[0].epoch.is_empty() && sessions[0].members >= members
    };
    while !one(sessions) {
        assert!(Instant::now() < end, "not together: {:?}", views(sessions));
        sessions.iter_mut().for_each(|s| _ = s.hear(Duration::from_millis(20), |_, _| false));
    }
}

fn views(sessions: &[Session]) -> Vec<(&str, usize)> {
    sessions.iter().map(|s| (&*s.epoch, s.members)).collect()
}

/// The keys that it shares with others, as it said.
fn keys(insider: &Player) -> Vec<String> {
    std::iter::from_fn(|| insider.hear_for(Duration::ZERO).expect("it lives")).collect()
}

#[test]
fn rule_g2_sessions_live_through_a_claimed_number() {
    let Some(mut lan) = Lan::new("rule_g2_sessions_live_through_a_claimed_number", 4) else { return };
    let insider = lan.insider("captor 4294967292");
    let mut sessions: Vec<Session> = (0..3).map(|i| lan.session(i)).collect();
    together(&mut sessions, 3);
    sessions.iter_mut().for_each(|s| _ = s.hear(Duration::from_secs(1), |_, _| false));
    drop(insider);
    sessions[1].ask("rotate", "rotated");
    together(&mut sessions, 3);
}

#[test]
fn rule_a6_a_session_that_starts_beside_its_group_is_not_captured() {
    let Some(mut lan) = Lan::new("rule_a6_a_session_that_starts_beside_its_group_is_not_captured", 5) else { return };
    let mut sessions: Vec<Session> = (0..3).map(|i| lan.session(i)).collect();
    together(&mut sessions, 3);
    let _insider = lan.insider("captor 4294967200 3");
    sessions.push(lan.session(3));
    together(&mut sessions, 4);
}

#[test]
fn rule_a4_a_session_that_was_off_shares_no_key_with_the_evicted() {
    let Some(mut lan) = Lan::new("rule_a4_a_session_that_was_off_shares_no_key_with_the_evicted", 5) else { return };
    let mut sessions: Vec<Session> = (0..3).chain([4]).map(|i| lan.session(i)).collect();
    together(&mut sessions, 4);
    sessions[0].ask("evict robot4", "evicted");
    sessions.truncate(3);
    together(&mut sessions, 3);
    let insider = lan.insider("captor first 3");
    sessions.push(lan.session(3));
    together(&mut sessions, 4);
    assert_eq!(keys(&insider), [""; 0], "{:?}", views(&sessions));
}

#[test]
fn rule_a9_different_confirmations_split_no_session_off() {
    let Some(mut lan) = Lan::new("rule_a9_different_confirmations_split_no_session_off", 4) else { return };
    let mut sessions: Vec<Session> = (0..3).map(|i| lan.session(i)).collect();
    let insider = lan.insider("splitter confirmation 0 4");
    together(&mut sessions, 4);
    for session in [0, 2] {
        sessions[session].ask("count split/#", "ready");
    }
    sessions[1].player.tell("publish split/it 100 50 4000").expect("the process lives");
    sessions[0].ask("rotate", "rotated");
    assert!(sessions[1].hear(TIMEOUT, |_, line| line.starts_with("sent")));
    together(&mut sessions, 3);
    for session in [0, 2] {
        let got = |s: &mut Session| {
            s.player.tell("take").expect("the process lives");
            s.hear(TIMEOUT, |_, line| line == "got 200")
        };
        assert!(got(&mut sessions[session]), "session {session} missed some of 200");
    }
    drop(insider);
}

/// For what takes a second or two.
const TIMEOUT: Duration = Duration::from_secs(30);
