//! The program itself: its exit codes, its one line of complaint, its end on a signal.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, prlimit};
use sealcast_broker::protocol::{Answer, Query};
use sealcast_brokerd::channel::Channel;
use sealcast_brokerd::config::{self, Config};
use sealcast_brokerd::deal::deal;
use sealcast_brokerd::evidence::EvidenceStore;
use sealcast_brokerd::serve::Broker;
use sealcast_order_engine::SigningSeed;
use sealcast_order_testing::{two_votes, write_older};
use sealcast_wire::limits;

use crate::client::Reader;
use crate::cluster::{Home, key, until};
use crate::outside::stands;

fn program() -> Command {
    let mut program = Command::new(env!("CARGO_BIN_EXE_sealcast-broker"));
    program.stdin(Stdio::null()).stderr(Stdio::piped());
    program
}

/// How it ended, and the last line that it said.
fn end(child: Child) -> (Option<i32>, String) {
    let output = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), said.lines().last().unwrap_or_default().to_owned())
}

#[test]
fn the_program_ends_on_a_signal_and_shows_figures_until_then() {
    let home = Home::new("program", 1);
    let port = home.metrics_address();
    let mut command = program();
    command.arg("run").arg(home.folder(0)).args(["--solo", "--json", "--metrics", &port.to_string()]);
    let child = command.spawn().expect("it starts");
    let figures = |at: SocketAddr| {
        let mut socket = TcpStream::connect(at).ok()?;
        socket.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").ok()?;
        let mut text = String::new();
        socket.read_to_string(&mut text).ok()?;
        Some(text)
    };
    until("it shows figures", || figures(port).is_some());
    let text = figures(port).expect("it shows them");
    let wanted = [
        "running 1",
        "height 0",
        "epoch 0",
        "policy 0",
        "view_changes_total 0",
        "views_skipped_total 0",
        "bytes_in_total 0",
    ];
    assert!(wanted.iter().all(|line| text.contains(&format!("sealcast_broker_{line}\n"))), "{text}");
    assert!(text.contains("drops_total{reason=\"batch_quota\"} 0\n"), "{text}");
    // A figure that has not happened is 0, not missing: whoever watches it would not know that it exists.
    let zeros = [
        "peer_messages_total{broker=\"0\"} 0",
        "peers_cut_off_total{broker=\"0\"} 0",
        "equivocations_total{broker=\"0\"} 0",
    ];
    let others = [
        "peers_silent 0",
        "clock_ahead_seconds 0",
        "drops_total{reason=\"descriptors\"} 0",
        "drops_total{reason=\"block\"} 0",
    ];
    for line in zeros.iter().chain(&others) {
        assert!(text.contains(&format!("sealcast_broker_{line}\n")), "{line}: {text}");
    }
    // A client that is not one is counted by what it says.
    let figure = |name: &str| -> u64 {
        let text = figures(port).expect("it shows them");
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("sealcast_broker_{name} ")));
        line.unwrap_or_else(|| panic!("no {name}: {text}")).parse().expect("a number")
    };
    assert!(figure("key_age_seconds") < 60);
    let (used, allowed) = (figure("descriptors_used"), figure("descriptors_allowed"));
    assert!(used > 8 && used < allowed, "{used} of {allowed}");
    let (at, broker) = (home.gateway_address(0), home.file.broker_keys()[0]);
    let opened = Channel::open(at, broker, key(1), home.cluster, Duration::from_secs(30)).expect("it is welcome");
    until("it is counted", || figure("messages_in_total") == 1 && figure("messages_out_total") == 1);
    assert!(figure("bytes_in_total") > 32 && figure("bytes_out_total") > 4);
    drop(opened);

    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).expect("a process");
    kill_process(pid, Signal::TERM).expect("it runs");
    let (code, last) = end(child);
    assert_eq!(code, Some(0), "{last}");
    assert!(last.starts_with('{') && last.contains("\"text\":\"ending\""), "{last}");
}

/// The program, run by a shell that first sets its limits of open files.
fn limited(limits: &str) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{limits} && exec \"$0\" \"$@\""), env!("CARGO_BIN_EXE_sealcast-broker")]);
    shell.stdin(Stdio::null()).stderr(Stdio::piped());
    shell
}

#[test]
fn the_program_raises_its_soft_limit_of_open_files_to_the_hard_one() {
    let home = Home::new("raises", 1);
    let mut command = limited("ulimit -n 1000 && ulimit -S -n 300");
    let child = command.arg("run").arg(home.folder(0)).spawn().expect("it starts");
    let limits = format!("/proc/{}/limits", child.id());
    let allowed = || {
        let text = fs::read_to_string(&limits).expect("it runs");
        let line = text.lines().find(|line| line.starts_with("Max open files")).expect("a limit").to_owned();
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        (words[3].clone(), words[4].clone())
    };
    until("the soft limit is the hard one", || allowed() == ("1000".into(), "1000".into()));
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).expect("a process");
    kill_process(pid, Signal::TERM).expect("it runs");
    let (code, last) = end(child);
    assert_eq!(code, Some(0), "{last}");
}

#[test]
fn with_too_few_open_files_the_program_says_how_many_it_needs_and_what_to_type() {
    let home = Home::new("too-few-files", 4);
    let child = limited("ulimit -n 64").arg("run").arg(home.folder(0)).spawn().expect("it starts");
    let (code, last) = end(child);
    assert_eq!(code, Some(1), "{last}");
    let said = last.contains("error[E0101]: this broker needs at least 236 open files")
        && last.contains(
            "allows it 64: 112 for the order, 12 for 3 other brokers, 32 for rows, 64 in reserve, 16 for clients",
        )
        && last.contains("; hint: ulimit -n 4316; in a systemd service: LimitNOFILE=4316");
    assert!(said, "{last}");
}

#[test]
fn with_too_few_open_files_for_an_older_versions_blocks_the_program_says_what_to_type() {
    let home = Home::new("older-files", 4);
    let order = home.folder(0).join("order");
    fs::create_dir_all(&order).expect("a folder");
    // Two files for each block, and all of them are opened.
    write_older(&order, 150);
    let child = limited("ulimit -n 300").arg("run").arg(home.folder(0)).spawn().expect("it starts");
    let (code, last) = end(child);
    assert_eq!(code, Some(1), "{last}");
    let said = last.contains("error[E0101]: to move the blocks of an older version to the log, ")
        && last.contains(" files must be open once; hint: ulimit -n 4");
    assert!(said && !last.contains("away"), "{last}");
}

#[test]
fn rule_g7_a_broker_without_descriptors_turns_clients_away_and_goes_on() {
    let home = Home::new("no-files", 1);
    let port = home.metrics_address();
    let mut command = program();
    command.arg("run").arg(home.folder(0)).args(["--metrics", &port.to_string()]);
    let child = command.spawn().expect("it starts");
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).expect("a process");
    let (at, broker) = (home.gateway_address(0), home.file.broker_keys()[0]);
    until("it listens", || TcpStream::connect(port).is_ok() && TcpStream::connect(at).is_ok());
    let opened = Channel::open(at, broker, key(1), home.cluster, Duration::from_secs(30)).expect("it is welcome");
    let mut honest = opened.0;

    // Somebody takes all descriptors away; those that are open stay.
    let nofile = |limit: u64| {
        let limit = Rlimit { current: Some(limit), maximum: getrlimit(Resource::Nofile).maximum };
        prlimit(Some(pid), Resource::Nofile, limit).expect("it is ours").current.expect("a limit")
    };
    let open = fs::read_dir(format!("/proc/{}/fd", child.id())).expect("it runs").count() as u64;
    let before = nofile(open);
    for _ in 0..4 {
        // Whoever knocks is turned away at once: nothing comes, and the connection ends.
        let mut knock = TcpStream::connect(at).expect("the system takes it");
        knock.set_read_timeout(Some(Duration::from_secs(60))).expect("a time-out");
        assert_eq!(knock.read(&mut [0; 1]).unwrap_or(0), 0);
    }
    let status = |channel: &mut Channel| match channel.ask(Query::Status).expect("an answer") {
        Answer::Status(status) => *status,
        other => panic!("{other:?}"),
    };
    assert!(status(&mut honest).running);
    nofile(before);
    let figures = || {
        let mut socket = TcpStream::connect(port).ok()?;
        socket.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").ok()?;
        let mut text = String::new();
        socket.read_to_string(&mut text).ok()?;
        let line =
            text.lines().find_map(|line| line.strip_prefix("sealcast_broker_drops_total{reason=\"descriptors\"} "))?;
        line.parse::<u64>().ok()
    };
    until("it counted them", || figures().is_some_and(|n| n >= 4));
    let again = Channel::open(at, broker, key(2), home.cluster, Duration::from_secs(30));
    assert!(again.is_ok() && status(&mut honest).running, "with descriptors it lets clients in again");
    kill_process(pid, Signal::TERM).expect("it runs");
    let (code, last) = end(child);
    assert_eq!(code, Some(0), "{last}");
}

/// A broker that may have 256 files open, among three others in this process.
struct Limited {
    child: Option<Child>,
    others: Vec<Broker>,
}

impl Limited {
    fn start(home: &Home) -> Limited {
        let others = (1..4).map(|broker| home.start(broker)).collect();
        let child = limited("ulimit -n 256").arg("run").arg(home.folder(0)).spawn().expect("it starts");
        let started = Limited { child: Some(child), others };
        until("it orders with the others", || stands(home, 0).is_some_and(|it| it.height > 20));
        started
    }

    fn open_files(&self) -> usize {
        let id = self.child.as_ref().expect("it was started").id();
        fs::read_dir(format!("/proc/{id}/fd")).expect("it runs").count()
    }

    /// It goes on with what the others order from now on.
    fn goes_on(mut self, home: &Home) {
        let height = self.others[0].status().height + 50;
        until("it goes on", || stands(home, 0).is_some_and(|it| it.running && it.height > height));
        let child = self.child.take().expect("it was started");
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).expect("a process");
        kill_process(pid, Signal::TERM).expect("it runs");
        let (code, last) = end(child);
        assert_eq!(code, Some(0), "{last}");
        self.others.drain(..).for_each(Broker::stop);
    }
}

impl Drop for Limited {
    /// A test that failed leaves no broker behind.
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The sockets come faster than the port's limit of 64 a second and 5 s for a handshake let them go again.
#[test]
fn rule_g7_whoever_only_connects_to_the_orders_port_takes_few_descriptors_and_the_order_goes_on() {
    let home = Home::new("idle-order", 4);
    let broker = Limited::start(&home);
    let (mut idle, mut most) = (Vec::new(), 0);
    for _ in 0..100 {
        idle.extend((0..8).filter_map(|_| TcpStream::connect(home.order_address(0)).ok()));
        most = broker.open_files().max(most);
        std::thread::sleep(Duration::from_millis(50));
    }
    // The parts of the order, the links and the rows, and the reserve, which has room for handshakes.
    let own = limits::ORDER_DESCRIPTORS + 3 * limits::BROKER_DESCRIPTORS + limits::STORE_FILES_OPEN;
    let own = own + limits::RESERVED_DESCRIPTORS;
    assert!(idle.len() > 200 && most <= own, "{most} files are open beside {} sockets, {own} may be", idle.len());
    broker.goes_on(&home);
}

#[test]
fn rule_g7_whoever_connects_to_the_gateway_until_it_refuses_does_not_end_the_order() {
    let home = Home::new("idle-gateway", 4);
    let broker = Limited::start(&home);
    let at = home.gateway_address(0);
    let (mut idle, mut most) = (Vec::new(), 0);
    for _ in 0..10 {
        idle.extend((0..64).filter_map(|_| TcpStream::connect(at).ok()));
        most = broker.open_files().max(most);
    }
    // The oldest of those that do not say who they are give way, and those that come too fast are not let in.
    let is_over = |mut socket: &TcpStream| {
        socket
            .set_read_timeout(Some(Duration::from_millis(1)))
            .is_ok_and(|()| matches!(socket.read(&mut [0; 1]), Ok(0)))
    };
    until("most of them are turned away", || idle.iter().filter(|socket| is_over(socket)).count() > 500);
    assert!(most < 256, "{most} files were open");
    broker.goes_on(&home);
}

#[test]
fn what_is_wrong_is_one_line_and_an_exit_code() {
    let home = Home::new("wrong", 4);
    let run = |arguments: &[&str]| {
        let child = program().arg("run").arg(home.folder(0)).args(arguments).spawn();
        end(child.expect("it starts"))
    };
    let (code, last) = run(&["--solo"]);
    assert_eq!(
        (code, last.contains("error[E0305]: --solo: the cluster file names 4 brokers")),
        (Some(3), true),
        "{last}"
    );

    let taken = TcpListener::bind(home.gateway_address(0)).expect("it is free");
    let (code, last) = run(&[]);
    let said = last.contains("error[E0404]: ") && last.contains("the port is in use; hint: 'ss -ltnp' shows");
    assert_eq!((code, said), (Some(4), true), "{last}");
    drop(taken);

    let other = Home::new("wrong-other", 4);
    let key = home.folder(0).join(config::KEY);
    fs::write(home.folder(0).join(config::CLUSTER), other.file.to_text().replace("[[broker]]", "[[borker]]"))
        .expect("it is written");
    let (code, last) = run(&[]);
    assert_eq!((code, last.contains("cluster.toml: ")), (Some(3), true), "{last}");
    fs::remove_file(&key).expect("it is there");
    fs::write(home.folder(0).join(config::CLUSTER), other.file.to_text()).expect("it is written");
    let (code, last) = run(&[]);
    assert_eq!((code, last.contains("broker.key: there is no such file; hint: ")), (Some(3), true), "{last}");
    let (code, last) = run(&["--json"]);
    let said = last.contains("\"code\":\"E0301\"") && last.contains("\"hint\":\"'sealcast brokers init' makes");
    assert_eq!((code, said), (Some(3), true), "{last}");
    assert_eq!(run(&["--no-such-option"]).0, Some(2));
    assert_eq!(run(&["--checked-together", "129"]).0, Some(2));
}

#[test]
fn a_dealt_key_is_signed_by_all_and_held_from_the_start() {
    let home = Home::new("dealt", 4);
    let folders: Vec<_> = (0..4).map(|broker| home.folder(broker)).collect();
    assert!(deal(&folders[..3]).is_err(), "one is missing");
    deal(&folders).expect("all are there");
    let file = Config::read(&folders[2]).expect("it holds together").cluster;
    let key = file.key.expect("it was dealt");
    assert_eq!(key.signatures.len(), 4);
    assert!(deal(&folders).is_err_and(|e| e.to_string() == "the cluster has a threshold key already"));

    let made = folders[2].join("keys/made.0");
    let seconds: u64 = fs::read_to_string(&made).expect("it is kept").trim().parse().expect("a number");
    fs::write(&made, (seconds - 7200).to_string()).expect("it is written");

    let brokers = home.start_all();
    assert!(brokers.iter().all(|broker| broker.status().key_age.is_some()), "nothing was made");
    let ages = brokers.iter().map(|broker| broker.status().key_age.unwrap_or_default());
    let old: Vec<bool> = ages.map(|age| age >= 7200).collect();
    assert_eq!(old, [false, false, true, false], "a key is as old as when it was made, not as the process");
    let answers = Reader::open(&home, &brokers, 1).ask_all(&Query::Key);
    assert!(answers.iter().all(|answer| matches!(answer, Answer::Key(it) if it.key == key.key)), "{answers:?}");
    brokers.into_iter().for_each(Broker::stop);
}

#[test]
fn rule_e4_the_program_says_whom_a_proof_convicts() {
    let home = Home::new("convicts", 4);
    let (keys, genesis) = (home.file.broker_keys(), &home.file.genesis);
    let evidence = two_votes(&keys, &home.file.cluster().0, &SigningSeed::new(&[212; 32]), 5);
    let evidence_store = EvidenceStore::open(&home.folder(0).join("evidence"), genesis).expect("a folder");
    let path = evidence_store.keep(&evidence).expect("it is written").expect("it is new");
    let verify = |path: &Path| {
        let mut command = program();
        command.args(["evidence", "verify"]).arg(path).arg("--cluster").arg(home.folder(1).join(config::CLUSTER));
        command.stdout(Stdio::piped()).output().expect("it ends")
    };
    let good = verify(&path);
    let told: serde_json::Value = serde_json::from_slice(&good.stdout).expect("a line of JSON");
    assert_eq!(good.status.code(), Some(0));
    assert_eq!(told, serde_json::json!({ "broker": evidence.broker, "misdeed": "equivocated", "view": 5 }));

    let text = fs::read_to_string(&path).expect("it is there");
    fs::write(&path, text.replace("\"view\": 5", "\"view\": 6")).expect("it is written");
    let changed = verify(&path);
    assert_eq!((changed.status.code(), changed.stdout), (Some(6), Vec::new()));
    assert_eq!(verify(&home.folder(0).join("nothing.json")).status.code(), Some(3));
}
