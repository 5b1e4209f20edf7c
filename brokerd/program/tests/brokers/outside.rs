//! What a machine does to a broker: its disk is full, its clock jumps. The broker is a process among three others here.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::process::{Pid, Signal, kill_process};
use sealcast_broker::protocol::{Answer, Query, Status};
use sealcast_brokerd::channel::Channel;
use sealcast_brokerd::serve::Broker;

use crate::client::Reader;
use crate::cluster::{Home, key, publish, until};

/// A shell that runs the program; it ends when this does.
struct Shell {
    child: Child,
    input: ChildStdin,
    said: Receiver<String>,
}

impl Shell {
    fn start(command: &mut Command) -> Shell {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let (say, said) = channel();
        let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        // The thread ends with what it reads.
        std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| say.send(line)));
        let input = child.stdin.take().expect("it is piped");
        Shell { child, input, said }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // A killed shell would leave its program behind.
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::TERM);
        }
        let _ = self.child.wait();
    }
}

/// Says that a test was skipped, on stderr and in the file that `make test` names.
fn skipped(test: &str, why: &str) {
    eprintln!("skipped {test}: {why}");
    if let Some(path) = std::env::var_os("SEALCAST_SKIPPED") {
        let log = fs::OpenOptions::new().create(true).append(true).open(path);
        let _ = log.and_then(|mut it| writeln!(it, "{test}: {why}"));
    }
}

/// Where a broker stands; `None` if it is not there.
pub(crate) fn stands(home: &Home, broker: usize) -> Option<Status> {
    let key_of = home.file.broker_keys()[broker];
    let opened = Channel::open(home.gateway_address(broker), key_of, key(7), home.cluster, Duration::from_secs(20));
    match opened.ok()?.0.ask(Query::Status) {
        Ok(Answer::Status(status)) => Some(*status),
        _ => None,
    }
}

#[test]
fn rule_e12_a_broker_on_a_full_disk_stops_and_says_so_and_comes_back_with_everything() {
    let possible = Command::new("unshare").args(["-Urm", "true"]).stderr(Stdio::null()).status();
    if !possible.is_ok_and(|it| it.success()) {
        return skipped("full disk", "this machine lets us mount nothing");
    }
    let home = Home::new("full-disk", 4);
    let brokers: Vec<Broker> = (0..3).map(|broker| home.start(broker)).collect();
    let small = home.folder(3).join("small");
    fs::create_dir(&small).expect("a folder");
    let mut command = Command::new("unshare");
    command.args(["-Urm", "sh", "-c", ON_A_SMALL_DISK, env!("CARGO_BIN_EXE_sealcast-broker")]);
    let mut shell = Shell::start(command.arg(home.folder(3)).arg(&small).env_remove("RUST_BACKTRACE"));
    until("the fourth is there", || stands(&home, 3).is_some());

    let mut publisher = Reader::open(&home, &brokers, 1);
    publisher.order(0, vec![home.claim(1)]);
    let mut log: Vec<String> = Vec::new();
    let body = vec![7; 256 << 10];
    let ended = |log: &Vec<String>| log.last().is_some_and(|line| line.starts_with("exit "));
    while !ended(&log) {
        assert!(publisher.next < 400, "the disk never became full: {log:?}");
        let through = usize::try_from(publisher.next % 3).expect("it is below 3");
        publisher.order(through, vec![publish("a", &body)]);
        log.extend(shell.said.try_iter());
    }
    // One line says why, the last one of the program; and nobody else was disturbed.
    let errors: Vec<&String> = log.iter().filter(|line| line.contains(" error[E0101]: ")).collect();
    assert_eq!((errors.len(), log.last().map(String::as_str)), (1, Some("exit 1")), "{log:#?}");
    assert!(errors[0].contains("full") || errors[0].contains("No space left"), "{log:#?}");
    assert!(!log.iter().any(|line| line.contains("panicked")), "{log:#?}");
    for n in 0..6 {
        publisher.order(n % 3, vec![publish("a", b"three go on")]);
    }

    // Room is made: it comes back, and has or fetches all that was ordered.
    shell.input.write_all(b"\n").expect("it waits for this");
    let height = brokers[0].status().height;
    until("it has caught up", || stands(&home, 3).is_some_and(|it| it.height >= height));
    let there = publisher.next;
    let mut reader = Channel::open(
        home.gateway_address(3),
        home.file.broker_keys()[3],
        key(1),
        home.cluster,
        Duration::from_secs(20),
    )
    .expect("it is there")
    .0;
    let result = |channel: &mut Channel, number| channel.ask(Query::Result { number }).expect("an answer");
    for number in 0..there {
        let (of_others, own) = (result(&mut publisher.channels[0], number), result(&mut reader, number));
        assert!(matches!(own, Answer::Result { .. }) && own == of_others, "operation {number}: {own:?}");
    }
}

#[test]
fn rule_e10_a_broker_whose_clock_is_hours_off_stops_nobody_and_moves_no_time() {
    let home = Home::new("clock", 4);
    let (source, library) = (home.folder(3).join("clock.c"), home.folder(3).join("clock.so"));
    fs::write(&source, CLOCK).expect("it is written");
    let built = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).arg("-ldl").status();
    if !built.is_ok_and(|it| it.success()) {
        return skipped("clock", "there is no C compiler");
    }
    let brokers: Vec<Broker> = (0..3).map(|broker| home.start(broker)).collect();
    let offset: PathBuf = home.folder(3).join("offset");
    let mut command = Command::new("sh");
    command.args(["-c", WITH_A_CLOCK, env!("CARGO_BIN_EXE_sealcast-broker")]).arg(home.folder(3));
    let mut shell = Shell::start(command.env("TEST_CLOCK_LIBRARY", &library).env("TEST_CLOCK", &offset));
    until("the fourth is there", || stands(&home, 3).is_some_and(|it| it.height > 0));

    let mut publisher = Reader::open(&home, &brokers, 1);
    publisher.order(0, vec![home.claim(1)]);
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs() as i64;
    let mut set = |seconds: i64| {
        // Replaced in one step: the clock is never read half.
        fs::write(offset.with_extension("new"), format!("{seconds}\n")).expect("it is written");
        fs::rename(offset.with_extension("new"), &offset).expect("it is in its place");
        for n in 0..40_u8 {
            publisher.order(usize::from(n) % 3, vec![publish("a", &[n])]);
        }
        let status = brokers[0].status();
        assert!((now() - status.at.0).abs() < 60, "off by {seconds} s, one broker moved the time of all: {status:?}");
    };
    // Set back it ends and says why, and whoever sees to it starts it again.
    set(3 * 3600);
    set(0);
    let mut log: Vec<String> = Vec::new();
    until("it has ended", || {
        log.extend(shell.said.try_iter());
        log.last().is_some_and(|line| line == "exit 1")
    });
    assert!(
        log.iter().any(|line| line.contains("error[E0108]: ") && line.contains("the clock was set back by 1")),
        "{log:#?}"
    );
    set(-3 * 3600);
    shell.input.write_all(b"\n").expect("it waits for this");
    set(-3 * 3600);
    // The others accept no connection of it, and it finds out why.
    until("it says so", || {
        log.extend(shell.said.try_iter());
        log.iter().any(|line| line.contains(" s behind the others'"))
    });
    until("and shows it", || stands(&home, 3).is_some_and(|it| it.clock_ahead < -10_000));
    set(0);
    let height = brokers[0].status().height;
    until("it has caught up", || stands(&home, 3).is_some_and(|it| it.height >= height));
    assert!(brokers.iter().all(|it| it.failure().is_none() && it.status().running));
}

/// Program, the broker's folder, where the small disk is mounted.
const ON_A_SMALL_DISK: &str = r#"
trap 'kill -9 $! 2>/dev/null; exit' TERM
mount -t tmpfs -o size=24m,mode=700 small "$2" && cp -p "$1"/broker.key "$1"/cluster.toml "$2"
"$0" run "$2" 2>&1 & wait $!
echo "exit $?"
read -r _
mount -o remount,size=240m "$2"
"$0" run "$2" 2>&1 & wait $!
echo "exit $?"
"#;

/// Program, the broker's folder.
const WITH_A_CLOCK: &str = r#"
trap 'kill -9 $! 2>/dev/null; exit' TERM
LD_PRELOAD="$TEST_CLOCK_LIBRARY" "$0" run "$1" 2>&1 & wait $!
echo "exit $?"
read -r _
LD_PRELOAD="$TEST_CLOCK_LIBRARY" "$0" run "$1" 2>&1 & wait $!
echo "exit $?"
"#;

/// The time of day with as many seconds more as a file says.
const CLOCK: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t id, struct timespec *t) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(id, t);
    const char *path = getenv("TEST_CLOCK");
    if (result == 0 && id == CLOCK_REALTIME && path) {
        char text[32] = {0};
        int file = open(path, O_RDONLY | O_CLOEXEC);
        if (file >= 0) {
            if (read(file, text, sizeof text - 1) > 0) t->tv_sec += atoll(text);
            close(file);
        }
    }
    return result;
}
"#;
