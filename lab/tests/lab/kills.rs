//! Real brokers, and members of an order, killed under load: short runs of `sealcast lab kills`; and what `kills` and `sync`
//! leave when they are ended, or cannot begin.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// The programs that it starts are other packages': testing the workspace makes them, testing this package alone makes
/// them where they are missing.
fn programs() {
    made(
        &["sealcast", "sealcast-broker", "fresh-broker"],
        &["sealcast-cli", "sealcast-brokerd", "sealcast-brokerd-program"],
    );
}

/// The same where there are no brokers.
fn sealcast() {
    made(&["sealcast"], &["sealcast-cli"]);
}

fn made(programs: &[&str], packages: &[&str]) {
    let beside = |name: &str| PathBuf::from(env!("CARGO_BIN_EXE_sealcast-lab")).with_file_name(name);
    if programs.iter().any(|it| !beside(it).is_file()) {
        let packages = packages.iter().flat_map(|it| ["-p", it]);
        let built = Command::new(env!("CARGO")).args(["build", "-q"]).args(packages).status();
        assert!(built.is_ok_and(|it| it.success()), "{programs:?} are built beside sealcast-lab");
    }
}

#[test]
fn rule_e12_brokers_killed_under_load_lose_nothing_that_was_acknowledged() {
    programs();
    let mut command = Command::new(env!("CARGO_BIN_EXE_sealcast-lab"));
    command.args(["kills", "brokers", "--kills", "6", "--all-every", "3", "--rate", "200", "--json"]);
    let ran = command.output().expect("the program starts");
    let told = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{told}");
    let seen: Value = serde_json::from_slice(&ran.stdout).expect("an object as JSON");
    let count = |what: &str| seen[what].as_u64().unwrap_or_default();
    assert_eq!((count("kills"), count("all"), &seen["holds"]), (6, 1, &Value::from(true)), "{seen}");
    assert!(count("acknowledged") > 0 && count("delivered") >= count("acknowledged"), "{seen}");
}

#[test]
fn rule_b2_members_killed_under_ordered_load_lose_nothing_that_was_acknowledged() {
    sealcast();
    for keys in ["center", "contributory"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sealcast-lab"));
        command.args(["kills", "ordered", "--kills", "3", "--rate", "20", "--json", "--keys", keys]);
        let ran = command.output().expect("the program starts");
        let told = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "{told}");
        let seen: Value = serde_json::from_slice(&ran.stdout).expect("an object as JSON");
        assert_eq!((seen["kills"].as_u64(), &seen["holds"]), (Some(3), &Value::from(true)), "{seen}");
        assert!(
            seen["acknowledged"].as_u64() > Some(0) && seen["delivered"].as_u64() >= seen["acknowledged"].as_u64(),
            "{seen}"
        );
    }
}

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        Folder(folder)
    }

    fn is_empty(&self) -> bool {
        fs::read_dir(&self.0).is_ok_and(|mut it| it.next().is_none())
    }

    /// Processes that were told of it, but this test's own.
    fn processes(&self, but: u32) -> usize {
        let told = |entry: fs::DirEntry| {
            let process: u32 = entry.file_name().to_str()?.parse().ok()?;
            let line = fs::read(entry.path().join("cmdline")).ok()?;
            let is_notified = String::from_utf8_lossy(&line).contains(self.0.to_str()?);
            (is_notified && process != but).then_some(())
        };
        fs::read_dir("/proc").expect("Linux has it").filter_map(|it| told(it.ok()?)).count()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(90), "never came: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Ends it by this signal when its processes run, all of which are told of a folder within this one.
fn ended(what: &str, whom: &str, options: &[&str], signal: &str) {
    let within = Folder::new(&format!("{what}-{whom}{signal}"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_sealcast-lab"));
    command.args([what, whom]).args(options).env("TMPDIR", &within.0);
    if whom == "brokers" {
        command.arg("--within").arg(&within.0);
    }
    let mut running = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the program starts");
    until("its processes", || within.processes(running.id()) >= 4);
    let sent = Command::new("kill").args([signal, &running.id().to_string()]).status();
    assert!(sent.is_ok_and(|it| it.success()));
    assert!(!running.wait().expect("it ends").success());
    until("no process is left", || within.processes(0) == 0);
    until("nothing is left of the folders", || within.is_empty());
}

#[test]
fn kills_that_are_interrupted_leave_no_broker() {
    programs();
    ended("kills", "brokers", &["--kills", "1000000"], "-INT");
}

#[test]
fn kills_that_are_interrupted_leave_no_member() {
    sealcast();
    ended("kills", "ordered", &["--kills", "1000000"], "-INT");
}

#[test]
fn a_sync_that_is_interrupted_leaves_no_broker() {
    programs();
    ended("sync", "brokers", &["--size", "100GB"], "-TERM");
    ended("sync", "brokers", &["--size", "100GB"], "-KILL");
}

#[test]
fn who_lacks_the_brokers_program_is_told_so_before_anything_is_made() {
    let (bare, within) = (Folder::new("bare"), Folder::new("within"));
    let alone = bare.0.join("sealcast-lab");
    fs::hard_link(env!("CARGO_BIN_EXE_sealcast-lab"), &alone).expect("both lie on one disk");
    for what in ["kills", "sync"] {
        let ran = Command::new(&alone).args([what, "brokers", "--within"]).arg(&within.0).output();
        let ran = ran.expect("the program starts");
        let told = String::from_utf8_lossy(&ran.stderr);
        assert!(!ran.status.success() && told.contains("is not built: cargo build"), "{told}");
        assert!(within.is_empty(), "{what}");
    }
}
