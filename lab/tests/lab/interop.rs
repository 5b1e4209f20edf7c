//! The original LCM and we exchange messages, both ways: LC02 and LC03 as other programs speak them.
//!
//! `make test` installs the peers and names them (`SEALCAST_PYTHON`, `out/peers`); named and yet not
//! working, a test fails. Without namespaces it is skipped, with the reason.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use sealcast_lab::netns::{self, Bridge, Loopback};
use sealcast_lab::peers::Player;

#[test]
fn python_lcm_and_we_hear_each_other_on_loopback() {
    with("python_lcm_and_we_hear_each_other_on_loopback", python(), |peer| {
        let here = Loopback::new().expect("a namespace");
        both_directions(|p| here.command(p), |p| here.command(p), peer);
    });
}

#[test]
fn python_lcm_and_we_hear_each_other_over_ethernet() {
    with("python_lcm_and_we_hear_each_other_over_ethernet", python(), |peer| {
        let bridge = Bridge::new(2).expect("a bridge");
        both_directions(|p| bridge.command(0, p), |p| bridge.command(1, p), peer);
    });
}

#[test]
fn the_c_library_and_we_hear_each_other_on_loopback() {
    with("the_c_library_and_we_hear_each_other_on_loopback", c_library(), |peer| {
        let here = Loopback::new().expect("a namespace");
        both_directions(|p| here.command(p), |p| here.command(p), peer);
    });
}

#[test]
fn the_c_library_and_we_hear_each_other_over_ethernet() {
    with("the_c_library_and_we_hear_each_other_over_ethernet", c_library(), |peer| {
        let bridge = Bridge::new(2).expect("a bridge");
        both_directions(|p| bridge.command(0, p), |p| bridge.command(1, p), peer);
    });
}

/// A peer: the program and its first arguments, before the URL.
type Peer = Vec<PathBuf>;

/// All lengths at which something changes: empty, one datagram, its limit, fragments of it, 3 MB.
const LENGTHS: [usize; 13] =
    [0, 1, 100, 1_000, 1_472, 10_000, 65_480, 65_495, 65_499, 65_500, 200_000, 1_000_000, 3_000_000];
const CHANNELS: usize = 20;

fn both_directions(ours: impl Fn(&Path) -> Command, theirs: impl Fn(&Path) -> Command, peer: &Peer) {
    let url = "udpm://239.255.76.67:7667?ttl=1&recv_buf_size=4194304";
    let we = || {
        let mut c = ours(Path::new(env!("CARGO_BIN_EXE_sealcast-lab")));
        c.args(["role", "talk", &format!("{url}&keys=plain")]);
        c
    };
    let they = || {
        let mut c = theirs(&peer[0]);
        c.args(&peer[1..]).arg(url);
        c
    };
    exchange(they(), we(), "from the original to us");
    exchange(we(), they(), "from us to the original");
}

/// One publishes, the other must receive: every length, 20 channels, and only what its regex matches.
fn exchange(sender: Command, receiver: Command, direction: &str) {
    let mut receiver = start(receiver);
    let mut sender = start(sender);
    for regex in ["len.*", "ch_[0-9]+"] {
        receiver.tell(&format!("subscribe {regex}")).expect("it lives");
        receiver.ready().expect("it subscribes");
    }

    for length in LENGTHS {
        let got = deliver(&mut sender, &mut receiver, "length", length);
        assert_eq!(got, format!("got length {length} {:016x}", checksum(length)), "{direction}");
    }
    let mut heard = BTreeSet::new();
    for n in 0..CHANNELS {
        for other in [format!("xch_{n}"), format!("ch_{n}x")] {
            sender.tell(&format!("publish {other} 50")).expect("it lives");
        }
        let channel = format!("ch_{n}");
        let got = deliver(&mut sender, &mut receiver, &channel, 50 + n);
        assert_eq!(got, format!("got {channel} {} {:016x}", 50 + n, checksum(50 + n)), "{direction}");
        heard.insert(channel);
    }
    assert_eq!(heard.len(), CHANNELS);
}

/// Sends until it is received: over a best-effort network a message may be lost, never changed.
fn deliver(sender: &mut Player, receiver: &mut Player, channel: &str, length: usize) -> String {
    for _ in 0..10 {
        sender.tell(&format!("publish {channel} {length}")).expect("the sender lives");
        let until = Instant::now() + Duration::from_secs(3);
        while let Some(line) =
            receiver.hear_for(until.saturating_duration_since(Instant::now())).expect("the receiver lives")
        {
            let words: Vec<&str> = line.split_whitespace().collect();
            assert!(
                words.len() == 4 && (words[1] == "length" || words[1].starts_with("ch_") && !words[1].ends_with('x')),
                "its regex does not match what it received: {line}"
            );
            let expected = words[2].parse().map(checksum).map(|c| format!("{c:016x}"));
            assert_eq!(expected.as_deref(), Ok(words[3]), "received changed: {line}");
            if words[1] == channel && words[2] == length.to_string() {
                return line;
            }
        }
    }
    panic!("{length} bytes on {channel} did not arrive in ten tries");
}

/// Starts a process that is told lines and says lines.
fn start(mut command: Command) -> Player {
    let player = Player::start(&mut command).expect("the talker starts");
    player.ready().expect("the talker is ready");
    player
}

/// What `pattern` of that length hashes to, as the peers compute it.
fn checksum(length: usize) -> u64 {
    let at = |i: usize| ((i % 65_536) * 31 + ((i % 65_536) >> 8) + length) as u8;
    let step = if length <= 65_536 { 1 } else { 61 };
    let last = (step > 1).then(|| at(length - 1));
    (0..length)
        .step_by(step)
        .map(at)
        .chain(last)
        .fold(0xCBF2_9CE4_8422_2325, |h: u64, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01B3))
}

/// Runs the test if namespaces and the peer are there; says why not, else.
fn with(test: &str, peer: Result<Peer, String>, run: impl FnOnce(&Peer)) {
    if let Err(why) = netns::available() {
        return sealcast_lab::skipped(test, &why);
    }
    match peer {
        Ok(peer) => run(&peer),
        Err(why) => sealcast_lab::skipped(test, &why),
    }
}

/// Python `lcm`, in the virtual environment that `make` sets up.
fn python() -> Result<Peer, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("lab lies in the workspace");
    let named = std::env::var_os("SEALCAST_PYTHON").map(PathBuf::from);
    let python = named.clone().unwrap_or_else(|| root.join(".venv/bin/python"));
    let works = Command::new(&python).args(["-c", "import lcm"]).output().is_ok_and(|o| o.status.success());
    assert!(works || named.is_none(), "SEALCAST_PYTHON names {}, but it cannot `import lcm`", python.display());
    let script = root.join("lab/tests/interop/lcm_talk.py");
    if works { Ok(vec![python, script]) } else { Err("Python lcm is missing: type `make interop`".into()) }
}

/// The C library, in the program that `make peers` builds, or that we build where a compiler and the
/// library are there.
fn c_library() -> Result<Peer, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("lab lies in the workspace");
    let built = Command::new(root.join("scripts/peers.sh")).arg("lcm").output();
    match built {
        Ok(o) if o.status.success() => Ok(vec![root.join("out/peers/lcm_peer"), "talk".into()]),
        Ok(o) => Err(format!("liblcm is missing: {}", String::from_utf8_lossy(&o.stderr).trim())),
        Err(why) => Err(format!("scripts/peers.sh cannot be run: {why}")),
    }
}
