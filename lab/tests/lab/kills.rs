//! Real brokers killed under load: a short run of `sealcast lab kills brokers`; and what `kills` and `sync` leave when they
//! are ended, or cannot begin.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// The programs that it starts are other packages': testing the workspace makes them, testing this package alone makes
/// them where they are missing.
fn programs() {
    let beside = |name: &str| PathBuf::from(env!("CARGO_BIN_EXE_sealcast-lab")).with_file_name(name);
    if ["sealcast", "sealcast-broker", "fresh-broker"].into_iter().any(|it| !beside(it).is_file()) {
        let mut cargo = Command::new(env!("CARGO"));
        let packages = ["-p", "sealcast-cli", "-p", "sealcast-brokerd", "-p", "sealcast-brokerd-program"];
        let built = cargo.args(["build", "-q"]).args(packages).status();
        assert!(built.is_ok_and(|it| it.success()), "sealcast and sealcast-broker are built beside sealcast-lab");
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

/// Ends it by this signal when all brokers run.
fn ended(what: &str, options: &[&str], signal: &str) {
    programs();
    let within = Folder::new(&format!("{what}{signal}"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_sealcast-lab"));
    command.args([what, "brokers", "--within"]).arg(&within.0).args(options);
    let mut running = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the program starts");
    until("four brokers", || within.processes(running.id()) >= 4);
    let sent = Command::new("kill").args([signal, &running.id().to_string()]).status();
    assert!(sent.is_ok_and(|it| it.success()));
    assert!(!running.wait().expect("it ends").success());
    until("no process is left", || within.processes(0) == 0);
    until("nothing is left of the folders", || within.is_empty());
}

#[test]
fn kills_that_are_interrupted_leave_no_broker() {
    ended("kills", &["--kills", "1000000"], "-INT");
}

#[test]
fn a_sync_that_is_interrupted_leaves_no_broker() {
    ended("sync", &["--size", "100GB"], "-TERM");
    ended("sync", &["--size", "100GB"], "-KILL");
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
