//! A file of a broker's folder that does not hold what was written to it. The broker is a process among three others.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use rustix::process::{Pid, Signal, kill_process};
use sealcast_brokerd::serve::Broker;
use sealcast_order_engine::SigningSeed;
use sealcast_order_testing::Aged;

use crate::client::Reader;
use crate::cluster::{Home, publish, until};
use crate::outside::stands;

/// A broker's process and what it logs.
struct Program {
    child: Child,
    log: Receiver<String>,
    said: Vec<String>,
}

impl Program {
    fn start(folder: &Path) -> Program {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sealcast-broker"));
        command.arg("run").arg(folder).stdin(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let (say, log) = channel();
        let lines = BufReader::new(child.stderr.take().expect("it is piped")).lines();
        // The thread ends with what it reads.
        std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| say.send(line)));
        Program { child, log, said: Vec::new() }
    }

    fn has_said(&mut self, what: &str) -> bool {
        self.said.extend(self.log.try_iter());
        self.said.iter().any(|line| line.contains(what))
    }

    /// Its exit code and all that it said.
    fn end(mut self) -> (Option<i32>, Vec<String>) {
        let exit = self.child.wait().expect("it ends").code();
        self.said.extend(self.log.iter());
        (exit, std::mem::take(&mut self.said))
    }

    fn stop(self) -> (Option<i32>, Vec<String>) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).expect("a process");
        kill_process(pid, Signal::TERM).expect("it runs");
        self.end()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Three brokers in this process and the folder of a fourth, which was one of them.
fn three_and_a_folder(name: &str) -> (Home, Vec<Broker>, Reader) {
    let home = Home::new(name, 4);
    let mut brokers = home.start_all();
    let mut publisher = Reader::open(&home, &brokers, 1);
    publisher.order(0, vec![home.claim(1)]);
    for n in 0..20 {
        publisher.order(n % 3, vec![publish("a", &[n as u8; 400])]);
    }
    let height = brokers[0].status().height;
    until("the fourth has them", || brokers[3].status().height >= height);
    // The key is made beside the order, and its share is kept before it counts.
    until("the fourth has its share", || brokers[3].status().has_share);
    brokers.pop().expect("the last one").stop();
    publisher.channels.pop();
    (home, brokers, publisher)
}

/// The last file of a folder, by its name.
fn last(folder: &Path, extension: Option<&str>) -> PathBuf {
    let files = fs::read_dir(folder).expect("a folder").map(|it| it.expect("a file").path());
    files.filter(|it| it.extension().and_then(|it| it.to_str()) == extension).max().expect("a file")
}

fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").arg(from).arg(to).status().expect("it starts");
    assert!(copied.success());
}

#[test]
fn rule_e12_damaged_rows_are_named_and_the_hint_helps() {
    let (home, brokers, mut publisher) = three_and_a_folder("rows");
    let (folder, state) = (home.folder(3), home.folder(3).join("state"));
    let good = folder.join("good-state");
    copy(&state, &good);
    let journal = |change: &dyn Fn(&mut Vec<u8>)| {
        fs::remove_dir_all(&state).expect("removed");
        copy(&good, &state);
        let path = last(&state, Some("jnl"));
        let mut bytes = fs::read(&path).expect("read");
        change(&mut bytes);
        fs::write(&path, bytes).expect("written");
    };
    let written = |bytes: &[u8]| bytes.iter().rposition(|byte| *byte != 0).expect("something is written");
    type Change<'a> = &'a dyn Fn(&mut Vec<u8>);
    let damages: [(&str, Change<'_>); 2] = [
        ("bytes flipped", &|bytes| {
            let at = written(bytes) / 2;
            bytes[at..at + 40].iter_mut().for_each(|byte| *byte ^= 0x55);
        }),
        ("cut in half", &|bytes| bytes.truncate(written(bytes) / 2)),
    ];
    for (what, damage) in damages {
        journal(damage);
        let (exit, log) = Program::start(&folder).end();
        let errors: Vec<&String> = log.iter().filter(|line| line.contains("error[")).collect();
        assert_eq!((exit, errors.len()), (Some(1), 1), "{what}: {log:#?}");
        let named = format!("error[E0110]: {} is damaged: ", state.display());
        assert!(errors[0].contains(&named), "{what}: {log:#?}");
        assert!(errors[0].contains("move the folders order, state and snapshots away"), "{what}: {log:#?}");
        assert!(
            !log.iter().any(|line| line.contains("panicked") || line.contains("executed next")),
            "{what}: {log:#?}"
        );
    }
    // What the hint says: the other brokers give back what is moved away, and the share stays.
    for name in ["order", "state", "snapshots"] {
        let _ = fs::rename(folder.join(name), folder.join(format!("away-{name}")));
    }
    let program = Program::start(&folder);
    publisher.order(0, vec![publish("a", b"meanwhile")]);
    let height = brokers[0].status().height;
    until("it has caught up", || stands(&home, 3).is_some_and(|it| it.height >= height && it.has_share));
    assert_eq!(program.stop().0, Some(0));
    brokers.into_iter().for_each(Broker::stop);
}

/// A history of two files of the log, of which the closed one was changed in a block that a broker without rows executes.
#[test]
fn rule_e12_damage_in_a_closed_file_of_the_log_is_named_and_the_hint_is_true() {
    let home = Home::new("closed", 4);
    let folder = home.folder(0);
    let aged = Aged {
        folder: folder.join("order"),
        namespace: home.file.cluster().0.to_vec(),
        keys: home.seeds.iter().map(|seed| SigningSeed::new(&[*seed; 32])).collect(),
        blocks: 33_000,
        until: 1_700_000_000_000_000,
    };
    aged.write(|_| ()).expect("it is written");
    let closed = folder.join("order/log/0000000000000000");
    assert!(closed.with_file_name("0000000000000001").exists(), "one is closed");
    let mut bytes = fs::read(&closed).expect("read");
    bytes[20_000] ^= 1;
    fs::write(&closed, bytes).expect("written");
    let (exit, log) = Program::start(&folder).end();
    let errors: Vec<&String> = log.iter().filter(|line| line.contains("error[")).collect();
    assert_eq!((exit, errors.len()), (Some(1), 1), "{log:#?}");
    assert!(errors[0].contains(&format!("error[E0110]: {} is damaged: ", closed.display())), "{log:#?}");
    assert!(errors[0].contains("move the folders order, state and snapshots away"), "{log:#?}");
}

#[test]
fn rule_e7_a_damaged_key_file_is_named_and_without_it_the_broker_orders() {
    let (home, brokers, mut publisher) = three_and_a_folder("keys");
    let (folder, keys) = (home.folder(3), home.folder(3).join("keys"));
    let (share, file_key) = (keys.join("share.0"), keys.join("file-keys/0"));
    type Change<'a> = &'a dyn Fn(&mut Vec<u8>);
    let cases: [(&Path, Change<'_>, &str); 4] = [
        (&share, &|bytes| bytes[60] ^= 1, "sealed under another file key than this folder's, or damaged"),
        (&share, &|bytes| bytes.truncate(40), "the file is cut short"),
        (&share, &|bytes| bytes[0] ^= 1, "not what should be there"),
        (&file_key, &|bytes| bytes.truncate(31), "the file is cut short"),
    ];
    for (file, change, what) in cases {
        let good = fs::read(file).expect("it is kept");
        let mut bytes = good.clone();
        change(&mut bytes);
        fs::write(file, bytes).expect("written");
        let (exit, log) = Program::start(&folder).end();
        let errors: Vec<&String> = log.iter().filter(|line| line.contains("error[")).collect();
        assert_eq!((exit, errors.len()), (Some(3), 1), "{what}: {log:#?}");
        let named = format!("error[E0305]: {}: {what}", file.display());
        let hint = "; hint: bring the folder keys back from a copy; keep order and state";
        assert!(errors[0].contains(&named) && errors[0].contains(hint), "{what}: {log:#?}");
        fs::write(file, good).expect("written");
    }
    // What the document says: without the folder it orders, and has no share.
    fs::rename(&keys, folder.join("away-keys")).expect("moved");
    let program = Program::start(&folder);
    publisher.order(0, vec![publish("a", b"meanwhile")]);
    let height = brokers[0].status().height;
    until("it has caught up", || stands(&home, 3).is_some_and(|it| it.height >= height && !it.has_share));
    assert_eq!(program.stop().0, Some(0));
    brokers.into_iter().for_each(Broker::stop);
}

#[test]
fn rule_e16_a_broker_whose_journal_of_votes_is_damaged_does_not_vote_before_the_others_have_gone_on() {
    let (home, brokers, mut publisher) = three_and_a_folder("unvoted");
    let folder = home.folder(3);
    // A file was begun perhaps just now: the longest has two pages.
    let files = fs::read_dir(folder.join("order/simplex")).expect("a folder").map(|it| it.expect("a file").path());
    let file = files.max_by_key(|it| it.metadata().expect("a file").len()).expect("a file");
    let mut bytes = fs::read(&file).expect("read");
    let middle = 4096 + 200;
    bytes[middle] ^= 0x10;
    fs::write(&file, bytes).expect("written");

    let mut program = Program::start(&folder);
    until("it says so", || program.has_said("the journal of votes is damaged"));
    assert!(program.has_said(&file.display().to_string()), "{:#?}", program.said);
    until("it waits", || program.has_said("blocks to go before it votes"));
    assert!(folder.join("votes-awaited").exists() && !file.exists());
    let begun = brokers[0].status().height;
    for n in 0..130 {
        publisher.order(n % 3, vec![publish("a", b"the others go on")]);
    }
    let height = brokers[0].status().height;
    assert!(height >= begun + 112);
    until("it has caught up", || stands(&home, 3).is_some_and(|it| it.height >= height));
    assert!(!folder.join("votes-awaited").exists());
    let (exit, log) = program.stop();
    assert_eq!(exit, Some(0), "{log:#?}");

    // After a graceful end, and after a kill, it goes on at once.
    for killed in [false, true] {
        let mut program = Program::start(&folder);
        publisher.order(0, vec![publish("a", b"again")]);
        let height = brokers[0].status().height;
        until("it has caught up again", || stands(&home, 3).is_some_and(|it| it.height >= height));
        assert!(!program.has_said("journal of votes"), "{:#?}", program.said);
        match killed {
            false => drop(program),
            true => assert_eq!(program.stop().0, Some(0)),
        }
    }
    brokers.into_iter().for_each(Broker::stop);
}

#[test]
fn a_broker_logs_who_is_gone_and_back() {
    let (home, mut brokers, _) = three_and_a_folder("gone");
    let mut program = Program::start(&home.folder(3));
    until("it is there", || stands(&home, 3).is_some_and(|it| it.silent.is_empty()));
    brokers.pop().expect("broker 2").stop();
    until("it is missed", || program.has_said("broker 2 is gone"));
    until("and shown", || stands(&home, 3).is_some_and(|it| it.silent == [2]));
    brokers.push(home.start(2));
    until("it is heard", || program.has_said("broker 2 is back"));
    drop(brokers);
    until("nobody is left", || program.has_said("cut off from the order: only "));
}
