//! The program: a run that is ended is gone on with.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// A user's folder of states, which goes with the test.
struct State(PathBuf);

impl State {
    fn new(name: &str) -> State {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        State(folder)
    }

    fn program(&self, options: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_brokers-sim"));
        command.args("--fault honest --json --jobs 1".split(' ')).args(options.split(' '));
        command.env("XDG_STATE_HOME", &self.0).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// How many seeds a run played.
    fn seeds(&self, options: &str) -> u64 {
        let output = self.program(options).output().expect("it runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let said: Value = serde_json::from_slice(&output.stdout).expect("an object as JSON");
        assert_eq!(said["seeds"], said["held"]);
        said["seeds"].as_u64().expect("a number")
    }

    fn noted(&self) -> Option<u64> {
        let note = std::fs::read_to_string(self.0.join("sealcast/lab/brokers-honest-1")).ok()?;
        note.trim().parse().ok()
    }
}

impl Drop for State {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_run_goes_on_after_the_last_seed_that_held() {
    let state = State::new("resume");
    assert_eq!((state.seeds("--seeds 0..2"), state.noted()), (2, Some(2)));
    assert_eq!((state.seeds("--seeds 0..3 --resume"), state.noted()), (1, Some(3)));
    assert_eq!(state.seeds("--seeds 0..3 --resume"), 0, "nothing is left");
    assert_eq!((state.seeds("--seed 1"), state.noted()), (1, Some(3)), "one seed alone is not noted");
    assert_eq!(state.seeds("--seeds 0..1"), 1, "without the option all are played");
}

#[test]
fn a_run_that_is_ended_at_any_time_leaves_its_note() {
    let state = State::new("ended");
    let mut running = state.program("--seeds 0..100000").spawn().expect("it runs");
    let begun = Instant::now();
    while state.noted().is_none() {
        assert!(begun.elapsed() < Duration::from_secs(120), "nothing is noted");
        std::thread::sleep(Duration::from_millis(20));
    }
    running.kill().expect("it runs");
    assert!(!running.wait().expect("it ends").success());
    let noted = state.noted().expect("the note stays");
    assert_eq!(state.seeds(&format!("--seeds 0..{} --resume", noted + 1)), 1);
}
