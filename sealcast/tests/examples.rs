//! The programs in `examples` do what they say.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// What an example prints, given these lines; it must end well.
fn run(name: &str, input: &str) -> String {
    // Beside the folder of this program: target/debug/deps, target/debug/examples.
    let own = std::env::current_exe().expect("a program has a path");
    let built: PathBuf = own.ancestors().nth(2).expect("it lies in deps").join("examples").join(name);
    // Testing the whole package has built it; testing this program alone has not.
    if !built.is_file() {
        let built = Command::new(env!("CARGO")).args(["build", "-q", "-p", "sealcast", "--examples"]).status();
        assert!(built.is_ok_and(|it| it.success()), "the examples are built");
    }
    let mut command = Command::new(built);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
    child.stdin.take().expect("piped").write_all(input.as_bytes()).expect("it reads");
    let ended = child.wait_with_output().expect("it ends");
    assert!(ended.status.success(), "{name}: {}", ended.status);
    String::from_utf8(ended.stdout).expect("text")
}

#[test]
fn robot_reads_poses() {
    let printed = run("robot", "");
    assert!(printed.contains("pose/robot from somebody: 1.00 0.00"), "{printed}");
}

#[test]
fn chat_shows_what_is_typed() {
    let printed = run("chat", "hello\nand goodbye\n");
    assert!(printed.contains("somebody: hello\n") && printed.contains("somebody: and goodbye\n"), "{printed}");
}

#[test]
fn control_loop_publishes_each_state() {
    let printed = run("control_loop", "");
    assert_eq!(printed, "1000 states published, 0 skipped\n");
}
