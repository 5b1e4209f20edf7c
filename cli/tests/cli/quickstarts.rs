//! The quickstarts are typed as they are printed, and say what they say they say.
//!
//! ```text
//! desk$   sealcast pub ward3/vitals '{"hr":72}'      # a command, and on which machine; one with & or an endless one goes on
//! #1 ward3/vitals  from you@desk  epoch 1  9 B       # what that machine prints: numbers and … stand for any
//! ```

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use crate::common::relay::program;
use crate::common::{Home, brokers_programs, free_port};
use regex::Regex;
use rustix::process::{Pid, Signal, kill_process_group};

/// The consoles under a heading of a document.
fn consoles(document: &str, heading: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(document);
    let text = std::fs::read_to_string(path).expect("the document is there");
    let lines = text.lines().skip_while(|line| *line != heading).skip(1).take_while(|line| !line.starts_with("## "));
    let mut is_console = false;
    let mut found = Vec::new();
    for line in lines {
        match line {
            "```console" => is_console = true,
            _ if line.starts_with("```") => is_console = false,
            _ if is_console => found.push(line.to_owned()),
            _ => {}
        }
    }
    assert!(!found.is_empty(), "{document} has a console under {heading}");
    found
}

/// A line typed somewhere, and what is printed there then.
struct Step {
    machine: String,
    command: String,
    printed: Vec<String>,
}

fn steps(lines: Vec<String>) -> Vec<Step> {
    let prompt = Regex::new(r"^(\w*)\$ +(.*?)(  +#.*)?$").unwrap();
    let mut steps: Vec<Step> = Vec::new();
    for line in lines {
        match (prompt.captures(&line), steps.last_mut()) {
            (Some(found), _) => steps.push(Step {
                machine: found[1].to_owned(),
                command: found[2].trim_end().to_owned(),
                printed: Vec::new(),
            }),
            (None, Some(step)) => step.printed.push(line),
            (None, None) => panic!("'{line}' is printed before anything is typed"),
        }
    }
    steps
}

/// A printed line, in which numbers, hexadecimal ids, times and what `…` stands for may be others.
fn pattern(line: &str) -> Regex {
    // Who you are is said with the name of the machine.
    let line = &Regex::new(r"you@\w+").unwrap().replace_all(line, "you@…");
    let any = [
        ("T", r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"),
        ("H", r"[0-9a-f]{8}…"),
        ("U", r"\+[0-9.]+ (?:µs|ms|s)"),
        ("E", "…"),
        ("N", r"\d+"),
    ];
    let parts: Vec<String> = any.iter().map(|(name, same)| format!("(?<{name}>{same})")).collect();
    let parts = Regex::new(&parts.join("|")).expect("an expression");
    let (mut made, mut from) = (String::new(), 0);
    for found in parts.captures_iter(line) {
        let whole = found.get(0).expect("it is the match");
        made += &regex::escape(&line[from..whole.start()]);
        let (kind, same) = any.iter().find(|(name, _)| found.name(name).is_some()).expect("one of them");
        made += if *kind == "E" { ".*" } else { same };
        from = whole.end();
    }
    Regex::new(&format!("^ *{} *$", (made + &regex::escape(&line[from..])).trim())).expect("an expression")
}

/// One machine of the text: a home of its own.
struct Machine {
    home: Home,
    printed: Receiver<String>,
    print: Sender<String>,
    seen: Vec<String>,
    running: Vec<Child>,
}

impl Machine {
    fn new(text: &str, name: &str) -> Machine {
        let (print, printed) = channel();
        let home = Home::new(&format!("{text}-{name}"));
        Machine { home, printed, print, seen: Vec::new(), running: Vec::new() }
    }

    /// Types a command into a shell.
    fn start(&self, command: &str) -> Child {
        let program = PathBuf::from(env!("CARGO_BIN_EXE_sealcast"));
        let of_home = self.home.command(&[]);
        let mut shell = Command::new("sh");
        shell.args(["-c", command]).current_dir(self.home.path()).env_clear();
        shell.envs(of_home.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let folders = [program.parent().expect("it lies in a folder").to_owned(), "/usr/bin".into(), "/bin".into()];
        shell.env("PATH", std::env::join_paths(folders).expect("no colons"));
        shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        std::os::unix::process::CommandExt::process_group(&mut shell, 0);
        let mut child = shell.spawn().expect("the shell starts");
        self.forward(child.stdout.take().expect("piped"));
        self.forward(child.stderr.take().expect("piped"));
        child
    }

    fn forward(&self, from: impl Read + Send + 'static) {
        let print = self.print.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(from).lines().map_while(Result::ok) {
                // The test may have ended.
                let _ = print.send(line);
            }
        });
    }

    /// Waits until it is printed.
    fn expect(&mut self, line: &str) {
        let (pattern, end) = (pattern(line), Instant::now() + TIMEOUT);
        while let Ok(printed) = self.printed.recv_timeout(end.saturating_duration_since(Instant::now())) {
            let is_it = pattern.is_match(&printed);
            self.seen.push(printed);
            if is_it {
                return;
            }
        }
        panic!("the document says '{line}', and printed was:\n{}", self.seen.join("\n"));
    }

    /// Takes what is printed until nothing was for a moment.
    fn settle(&mut self) {
        while let Ok(printed) = self.printed.recv_timeout(MOMENT) {
            self.seen.push(printed);
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        for child in &mut self.running {
            let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw).expect("a child has a process id");
            // It may have ended.
            let _ = kill_process_group(group, Signal::TERM);
            let _ = child.wait();
        }
    }
}

/// Types a document's console.
fn type_in(text: &str, document: &str, heading: &str) {
    type_at(text, document, &[heading]);
}

/// Types a document's consoles.
fn type_at(text: &str, document: &str, headings: &[&str]) {
    let ports = ["7667", "7680", "7690", "1883"].map(|it| (it, free_port()));
    let mut machines: BTreeMap<String, Machine> = BTreeMap::new();
    let mut keys = BTreeMap::from(["scpub1", "scrl1"].map(|kind| (kind, String::new())));
    let all = steps(headings.iter().flat_map(|heading| consoles(document, heading)).collect());
    for step in &all {
        machines.entry(step.machine.clone()).or_insert_with(|| Machine::new(text, &step.machine));
    }
    for step in all {
        if ["make ", "sudo apt "].iter().any(|it| step.command.starts_with(it)) {
            continue;
        }
        // All are on this machine.
        let mut command = step.command.replace("ttl=1", "ttl=0");
        for (said, port) in &ports {
            command = command.replace(said, &port.to_string());
        }
        for (kind, key) in &keys {
            command = command.replace(&format!("{kind}…"), key);
        }
        if let Some(copied) = command.strip_prefix("scp ") {
            let (file, to) = copied.split_once(' ').expect("a file and a machine");
            let (from, to) = (&machines[&step.machine], &machines[to.trim_end_matches(':')]);
            std::fs::copy(from.home.path().join(file), to.home.path().join(file)).expect("it is there");
            continue;
        }
        let machine = machines.get_mut(&step.machine).expect("made above");
        machine.settle();
        let endless = ["sealcast sub", " sub '#'", "brokers up", "kdc run", "sealcast-relay run", "tail -f"];
        let is_endless = endless.iter().any(|it| command.contains(it));
        let mut child = machine.start(command.trim_end_matches('&'));
        if is_endless {
            machine.running.push(child);
            match command.contains("brokers up") {
                true => machine.expect("context …"),
                false => machine.settle(),
            }
        } else {
            let start = Instant::now();
            let status = loop {
                if let Some(status) = child.try_wait().expect("a child can be waited for") {
                    break status;
                }
                assert!(start.elapsed() < TIMEOUT, "{command} does not end:\n{}", machine.seen.join("\n"));
                std::thread::sleep(Duration::from_millis(10));
            };
            let may_fail = step.printed.iter().any(|it| it.contains("error["));
            machine.settle();
            assert!(status.success() != may_fail, "{command}: {status}\n{}", machine.seen.join("\n"));
        }
        for line in &step.printed {
            let pattern = pattern(line);
            if !machine.seen.iter().any(|it| pattern.is_match(it)) {
                machine.expect(line);
            }
        }
        let said: Vec<&str> = machine.seen.iter().rev().flat_map(|it| it.split_whitespace()).collect();
        for (kind, key) in &mut keys {
            let newest = said.iter().find(|it| it.starts_with(kind) && !it.contains('…'));
            *key = newest.map_or(std::mem::take(key), |&it| it.to_owned());
        }
    }
}

#[test]
fn readme_first_sealed_message() {
    type_in("readme", "README.md", "## First sealed message");
}

#[test]
fn two_machines_one_sealed_topic() {
    type_in("lan", "docs/quickstart-lan.md", "# Two machines, one sealed topic");
}

#[test]
fn a_group_with_a_key_distribution_centre() {
    type_in("kdc", "docs/quickstart-kdc.md", "# A group with a key distribution centre");
}

#[test]
fn brokers_in_five_minutes() {
    brokers_programs();
    type_in("brokers", "docs/quickstart-brokers.md", "# Brokers in five minutes");
}

#[test]
fn a_relay_in_five_minutes() {
    program();
    type_at("relay", "docs/quickstart-relay.md", &["# A relay in five minutes", "## Members"]);
}

#[test]
fn a_printed_line_allows_other_numbers_and_no_other_words() {
    let line = pattern("#1 ward3/vitals  from you@laptop  epoch 1  9 B  +0.3 ms");
    assert!(line.is_match("#12 ward3/vitals  from you@laptop  epoch 3  9 B  +10.7 ms"));
    assert!(line.is_match("#12 ward3/vitals  from you@laptop  epoch 3  9 B  +850 µs"));
    assert!(!line.is_match("#12 ward3/vitals  from ~you@laptop  epoch 3  9 B  +10.7 ms"));
    assert!(
        pattern("good      market/eurusd number 0  block 175  …  signed by 2 of 4 brokers of market")
            .is_match("good      market/eurusd number 0  block 3  2026  signed by 3 of 4 brokers of market")
    );
}

/// How long something may take to be printed; generous, since machines are busy.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Between two lines that somebody types.
const MOMENT: Duration = Duration::from_millis(700);
