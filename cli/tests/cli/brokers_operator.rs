//! Brokers as their operator meets them: started twice, killed, started again by hand; and the quickstart to its last line.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::common::{Home, Running, brokers_programs};
use rustix::process::{Pid, Signal, kill_process};

/// A home with an exchange, its members ann and bob, and four brokers running.
fn market(name: &str) -> (Home, Running) {
    brokers_programs();
    let home = Home::new(name);
    home.good(&["ca", "init", "exchange"]);
    for member in ["ann", "bob"] {
        home.good(&["ca", "issue", member, "--attr", "desk=fx"]);
    }
    let mut up = home.start(&["--id", "ann", "brokers", "up", "-n", "4", "--name", "market", "--port", "0"]);
    up.line_within("Ctrl-C stops", TIMEOUT).expect("four brokers agree on their key");
    (home, up)
}

fn folder(home: &Home, broker: usize) -> PathBuf {
    home.path().join(format!("home/state/clusters/market/broker-{broker}"))
}

/// The process of a broker, if one runs.
fn process(home: &Home, broker: usize) -> Option<Pid> {
    let folder = folder(home, broker);
    let is_its = |entry: fs::DirEntry| {
        let pid = Pid::from_raw(entry.file_name().to_str()?.parse().ok()?)?;
        let line = fs::read(entry.path().join("cmdline")).ok()?;
        let mut words = line.split(|it| *it == 0);
        let program = String::from_utf8_lossy(words.next()?).into_owned();
        let is_its =
            program.ends_with("sealcast-broker") && words.any(|it| it == folder.as_os_str().as_encoded_bytes());
        is_its.then_some(pid)
    };
    fs::read_dir("/proc").expect("Linux has it").find_map(|entry| is_its(entry.ok()?))
}

fn kill(home: &Home, broker: usize) {
    let pid = process(home, broker).expect("the broker runs");
    kill_process(pid, Signal::KILL).expect("it is ours");
}

/// All folders below one, and itself.
fn folders(top: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(top).expect("it can be read").map(|entry| entry.expect("it can be read").path());
    let inner = entries.filter(|it| it.is_dir()).flat_map(|it| folders(&it));
    inner.chain([top.to_path_buf()]).collect()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("it is there").permissions().mode() & 0o7777
}

#[test]
fn the_quickstart_ends_with_a_group_whose_brokers_read_nothing() {
    let (home, mut up) = market("quickstart");
    let said = home.good(&["pub", "market/eurusd", "1.0842", "--allow", "exchange:desk = fx", "--receipt", "r.json"]);
    assert!(said.contains("sealed for exchange:desk = fx"), "{said}");
    assert!(home.good(&["read", "market/eurusd"]).contains("1.0842"));

    // Nobody else looks into what the program has made.
    let state = home.path().join("home/state");
    let open: Vec<_> = folders(&state).into_iter().filter(|it| mode(it) != 0o700).map(|it| (mode(&it), it)).collect();
    assert_eq!(open, [], "all folders are 0700");
    assert_eq!(mode(&home.path().join("home")), 0o700);

    // What an earlier version left open is closed, and the last line of the quickstart works.
    for opened in [state.clone(), state.join("clusters")] {
        fs::set_permissions(opened, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let file = state.join("clusters/market/cluster.toml");
    // In MLS groups they stay members when their programs end.
    for (keys, members) in [("contributory", "1 member"), ("mls", "1 member"), ("mls", "2 members")] {
        let url = format!("quorum:{}?keys={keys}&group=exchange&wait=150s", file.display());
        let mut sub = home.start(&["--id", "ann", "--url", &url, "sub", "#", "-C", "1", "-v"]);
        sub.line_within(members, TIMEOUT).expect("a group");
        home.good(&["--id", "bob", "--url", &url, "pub", "market/eurusd", "between us"]);
        let (exit, heard) = sub.end();
        assert!(exit == 0 && heard.contains("between us"), "{heard}");
    }
    assert_eq!(mode(&state), 0o700);

    // Whoever starts them once more is told that they run, and their logs have no error about it.
    let again = home.run(&["--id", "ann", "brokers", "up", "--name", "market"]);
    assert_eq!(again.exit, 0, "{}{}", again.stdout, again.stderr);
    assert!(again.stderr.contains("4 of 4 brokers run already, started elsewhere"), "{}", again.stderr);
    assert!(again.stdout.contains("context   market") && !again.stderr.contains("Ctrl-C"), "{}", again.stderr);
    assert_eq!(mode(&state.join("clusters")), 0o700);
    for broker in 0..4 {
        assert!(process(&home, broker).is_some(), "broker {broker} goes on");
        let log = fs::read_to_string(folder(&home, broker).join("log")).unwrap();
        assert!(!log.is_empty() && !log.contains("error"), "{log}");
    }
    up.interrupt();
    let (exit, all) = up.end();
    assert!(exit == 130 && all.contains("stopping 4 brokers"), "{all}");
}

#[test]
fn brokers_that_run_go_on_when_others_are_killed_and_a_dead_one_is_started_by_hand() {
    let (home, mut up) = market("killed");
    kill(&home, 3);
    up.line_within("broker 3 was killed by SIGKILL", TIMEOUT).expect("it says how it ended");
    let again = up.line_within("To start it again:", TIMEOUT).expect("it says what to type");
    assert!(again.contains("sealcast brokers run") && again.contains("market/broker-3"), "{again}");
    home.good(&["pub", "market/eurusd", "1.0842"]);

    // Too few to order anything: those that run wait.
    kill(&home, 2);
    up.line_within("broker 2 was killed by SIGKILL", TIMEOUT).expect("it says how it ended");
    up.line_within("only 2 of 4 brokers run, and 3 are needed", TIMEOUT).expect("it warns");
    assert!(process(&home, 0).is_some() && process(&home, 1).is_some());

    let by_hand = folder(&home, 3);
    let mut run = home.start(&["brokers", "run", by_hand.to_str().unwrap()]);
    up.line_within("broker 3 runs again", TIMEOUT).expect("it is seen");
    up.line_within("3 brokers run, enough to go on", TIMEOUT).expect("nothing is missing");
    let until = Instant::now() + TIMEOUT;
    while home.run(&["pub", "market/eurusd", "1.0843"]).exit != 0 {
        assert!(Instant::now() < until, "three brokers order nothing");
    }
    assert!(home.good(&["read", "market/eurusd", "--latest"]).contains("1.0843"));

    // It ends with those whom nobody could help.
    run.interrupt();
    assert_eq!(run.end().0, 0, "a broker ends when asked");
    up.line_within("broker 3 has ended; it was not started here", TIMEOUT).expect("it is watched too");
    up.line_within("only 2 of 4 brokers run", TIMEOUT).expect("it warns");
    up.interrupt();
    let (exit, all) = up.end();
    assert!(exit == 8 && all.contains("only 2 of 4 brokers ran at the end") && all.contains("stopping 2"), "{all}");
}

/// Machines that run tests are busy.
const TIMEOUT: Duration = Duration::from_secs(180);
