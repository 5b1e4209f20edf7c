//! The programs in `examples` do what they say.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// What an example prints, given this input, which ends once this was printed; it must end well.
fn run(name: &str, input: &str, last: &str) -> String {
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
    let mut stdin = child.stdin.take().expect("piped");
    stdin.write_all(input.as_bytes()).expect("it reads");
    let mut printed = String::new();
    let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
    while !printed.ends_with(last) && stdout.read_line(&mut printed).expect("text") > 0 {}
    drop(stdin);
    stdout.read_to_string(&mut printed).expect("text");
    let status = child.wait().expect("it ends");
    assert!(status.success(), "{name}: {status}");
    printed
}

#[test]
fn robot_reads_poses() {
    let printed = run("robot", "", "\n");
    assert!(printed.contains("pose/robot from somebody: 1.00 0.00"), "{printed}");
}

#[test]
fn chat_shows_what_is_typed() {
    let printed = run("chat", "hello\nand goodbye\n", "and goodbye\n");
    assert!(printed.contains("somebody: hello\n") && printed.contains("somebody: and goodbye\n"), "{printed}");
}

#[test]
fn control_loop_publishes_each_state() {
    let printed = run("control_loop", "", "\n");
    // None waits; a full queue skips one.
    let numbers = printed.split_whitespace().filter_map(|it| it.parse::<u32>().ok());
    let numbers: Vec<u32> = numbers.collect();
    assert!(numbers[0] > 0 && numbers.iter().sum::<u32>() == 1000, "{printed}");
}
