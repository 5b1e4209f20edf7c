//! The program that measures how a broker comes by a history.

use std::path::Path;
use std::process::Command;

/// What `sealcast lab sync brokers` starts, at a small size: the program itself compares what is kept.
#[test]
fn a_fresh_process_gets_what_was_published_and_keeps_all_of_it() {
    let program = Path::new(env!("CARGO_BIN_EXE_fresh-broker"));
    // It starts another package's: testing the workspace makes it, testing this package alone makes it where it is missing.
    if !program.with_file_name("sealcast-broker").is_file() {
        let built = Command::new(env!("CARGO")).args(["build", "-q", "-p", "sealcast-brokerd-program"]).status();
        assert!(built.is_ok_and(|it| it.success()), "sealcast-broker is built beside fresh-broker");
    }
    let mut program = Command::new(program);
    let output = program.args(["--json", "--size", "4MB"]).output().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one object");
    let kept = said["kept"].as_u64().expect("a number");
    assert_eq!(kept * 1024, 4_000_000_u64.next_multiple_of(32 * 1024), "every publication: {said}");
}
