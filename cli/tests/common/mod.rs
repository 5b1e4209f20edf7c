//! A folder of its own per test, the program run in it, and its words made comparable.

#![allow(dead_code, unreachable_pub)] // each test file uses its part

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use regex::Regex;

/// A home that disappears with the test.
pub struct Home {
    folder: PathBuf,
    transcript: String,
}

/// What a run left behind.
pub struct Ran {
    pub stdout: String,
    pub stderr: String,
    pub exit: i32,
}

impl Home {
    pub fn new(name: &str) -> Home {
        let folder = std::env::temp_dir().join(format!("sealcast-cli-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("the temporary folder can be written");
        Home { folder, transcript: String::new() }
    }

    pub fn path(&self) -> &Path {
        &self.folder
    }

    /// The program with this home and nothing of the caller's surroundings.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sealcast"));
        command.args(arguments).current_dir(&self.folder).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("SEALCAST_HOME", self.folder.join("home")).env("HOME", &self.folder);
        command.env("USER", "you").env("SEALCAST_HOST", "laptop");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs to the end.
    pub fn run(&self, arguments: &[&str]) -> Ran {
        let output = self.command(arguments).output().expect("the program starts");
        Ran {
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            exit: output.status.code().unwrap_or(-1),
        }
    }

    /// Runs, and must end well.
    pub fn good(&self, arguments: &[&str]) -> String {
        let ran = self.run(arguments);
        assert_eq!(ran.exit, 0, "sealcast {}: {}{}", arguments.join(" "), ran.stdout, ran.stderr);
        ran.stdout
    }

    /// Runs a line as typed, and notes it with all it said.
    pub fn type_line(&mut self, line: &str) -> &mut Home {
        let ran = self.run(&words(line).iter().map(String::as_str).collect::<Vec<_>>());
        self.transcript += &format!("$ sealcast {line}\n{}", ran.stdout);
        if !ran.stderr.is_empty() {
            let talk: String = ran.stderr.lines().map(|l| format!("! {l}\n")).collect();
            self.transcript += &talk;
        }
        if ran.exit != 0 {
            self.transcript += &format!("[exit {}]\n", ran.exit);
        }
        self.transcript.push('\n');
        self
    }

    /// All that was typed and answered so far, with what changes from run to run made equal.
    pub fn transcript(&self) -> String {
        redacted(&self.transcript, &self.folder)
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Words of a line; single quotes hold words together.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![];
    for (i, part) in line.split('\'').enumerate() {
        if i % 2 == 1 {
            words.push(part.to_owned());
        } else {
            words.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    words
}

/// Keys, dates, paths and measured times replaced by their kind.
pub fn redacted(text: &str, folder: &Path) -> String {
    let text = text.replace(&folder.display().to_string(), "~");
    let rules = [
        (r"\b(scpub|scca|scjoin|SC-SECRET-)1[0-9a-zA-Z]{2,}(…[0-9a-z]{3})?", "${1}1[key]"),
        (r"\b20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", "[time]"),
        (r"\b20\d\d-\d\d-\d\d\b", "[date]"),
        (r"\b[0-9a-f]{16,64}\b", "[hash]"),
        (r"0x[0-9a-f]{4}…", "0x[id]…"),
        (r"\+\d+(\.\d+)? (ms|s)", "+[time]"),
        (r"\b\d+(\.\d+)? (ms|µs|s|m|h|d)( \d+ [smh])?\b", "[time]"),
    ];
    rules.iter().fold(text, |text, (pattern, by)| {
        Regex::new(pattern).expect("the rules are valid").replace_all(&text, *by).into_owned()
    })
}
