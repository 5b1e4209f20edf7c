//! The process is killed, or its disk fails.

use std::process::Command;
use std::thread;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, prlimit};
use sealcast_relay::follower::{Answer, Outcome};

use crate::member::Member;
use crate::process::{Process, command, nobody, post};

/// What one run answered: requests with their responses.
type Answered = Vec<(Vec<u8>, Vec<u8>)>;

/// Appends until the relay is gone.
fn append_until_killed(mut member: Member, round: u8) -> (Member, Answered) {
    let mut answered = Vec::new();
    // What the run before may have left under way.
    let mut next = member.follower.retry();
    loop {
        let n = answered.len() as u8;
        let call = next.take().unwrap_or_else(|| member.propose(&[round, n], vec![], vec![]));
        let Ok((200, response)) = post_quietly(&member, call.request()) else { return (member, answered) };
        match member.follower.handle(&call, &response) {
            Ok(Answer::Progress(progress)) => {
                assert!(matches!(progress.outcome, Some(Outcome::Won(_))), "{progress:?}")
            }
            other => panic!("no progress: {other:?}"),
        }
        answered.push((call.request().to_vec(), response));
    }
}

/// The relay may be gone already.
fn post_quietly(member: &Member, request: &[u8]) -> std::io::Result<(u16, Vec<u8>)> {
    let socket = std::net::TcpStream::connect(member.at)?;
    crate::process::ask(socket, "POST", "/v1", request)
}

#[test]
fn rule_g6_a_killed_relay_loses_nothing_that_it_answered() {
    let dir = tempfile::tempdir().unwrap();
    let (data, mut all) = (dir.path().join("relay"), Vec::new());
    let mut member: Option<Member> = None;
    for round in 0..20 {
        let relay = Process::start(&data);
        let mut appending = member.take().unwrap_or_else(|| Member::new(&relay, 1));
        assert_eq!(*appending.follower.group(), *Member::new(&relay, 1).follower.group());
        appending.at = relay.at();
        let running = thread::spawn(move || append_until_killed(appending, round));
        // At another moment of the few milliseconds that an append takes, each time.
        thread::sleep(Duration::from_micros(20_000 + 730 * u64::from(round)));
        relay.kill();
        let (appended, answered) = running.join().unwrap();
        all.extend(answered);
        member = Some(appended);
    }
    let (relay, member) = (Process::start(&data), member.unwrap());
    assert!(all.len() > 20, "only {} appends were answered", all.len());
    let entries = Member::new(&relay, 1).read();
    let won = member.follower.position();
    assert!(entries.len() as u64 >= won && entries.len() as u64 <= won + 1, "{} of {won}", entries.len());
    // The same request has the same answer, whatever came since.
    for (request, response) in all.iter().rev().take(8) {
        assert_eq!(post(relay.at(), request).unwrap(), (200, response.clone()));
    }
}

#[test]
fn rule_g6_a_disk_that_fails_ends_the_relay_and_loses_nothing_that_was_answered() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("relay");
    let run = command(&data, nobody(), &[]);
    // Where a file may not grow, writing fails; without the trap the signal would end the program.
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""]).arg(run.get_program()).args(run.get_args());
    let mut relay = Process::run(shell);
    let mut member = Member::new(&relay, 1);
    assert_eq!(member.append(b"kept"), Some(Outcome::Won(1)));
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    prlimit(Some(relay.pid()), Resource::Fsize, none).expect("it is ours");
    let call = member.propose(b"under way", vec![], vec![]);
    let answer = post(relay.at(), call.request());
    assert!(!matches!(answer, Ok((200, _))), "{answer:?}");
    let (status, said) = relay.wait();
    let text = said.contains("\"code\":\"E0101\"") && said.contains("once the disk works again");
    assert!(status.code() == Some(1) && text, "{status} {said}");
    drop(relay);

    let relay = Process::start(&data);
    member.at = relay.at();
    let call = member.follower.retry().expect("it is under way");
    assert!(matches!(member.ask(&call), Answer::Progress(it) if it.outcome == Some(Outcome::Won(2))));
    assert_eq!(Member::new(&relay, 1).read().len(), 2);
}
