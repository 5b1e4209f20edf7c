//! Crashes of the directory and of clients at each step of an append: nothing acknowledged is lost, nothing happens twice (D1).

use crate::directory::{Config, Overlay};
use crate::fixture::{
    MEMBER, Relay as _, World, blob_and_mail, catch_up, entry, exchange, founded, key, progress, propose, relay,
};
use crate::follower::{Answer, Follower, Outcome};

/// Before which step the directory dies.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Crash {
    /// The request does not come.
    Request,
    /// It was handled, and its writes were not applied.
    Write,
    /// Its writes are durable, and nobody hears of it.
    Answer,
    /// The answer was sent, and nothing was published.
    Publishing,
}

/// The append that a client sends, up to the crash; what the client hears.
fn send(world: &mut World, request: &[u8], crash: Crash) -> Option<Vec<u8>> {
    if crash == Crash::Request {
        return None;
    }
    let mut overlay = Overlay::new(&world.storage);
    let handled = world.directory.handle(world.now, request, &overlay).unwrap();
    overlay.apply(handled.writes);
    let writes = overlay.into_writes();
    if crash == Crash::Write {
        return None;
    }
    world.storage.apply(writes);
    (crash == Crash::Publishing).then_some(handled.response)
}

const CRASHES: [Crash; 4] = [Crash::Request, Crash::Write, Crash::Answer, Crash::Publishing];

#[test]
fn rule_d1_after_a_crash_of_the_directory_at_any_step_the_author_learns_who_won() {
    for crash in CRASHES {
        for overtaken in [false, true] {
            let (mut world, mut author) = founded(2);
            let mut other = author.clone();
            let (blobs, mail) = blob_and_mail();
            let call = author.propose(entry(b"own", Some(3)), blobs, mail, &key(MEMBER)).unwrap();
            let saved = author.encode();
            let heard = send(&mut world, call.request(), crash);
            let mut world = World::on(Config::default(), world.storage);
            let is_in = matches!(crash, Crash::Answer | Crash::Publishing);
            if overtaken {
                catch_up(&mut world, &mut other).unwrap();
                progress(propose(&mut world, &mut other, b"other", None, &key(MEMBER)));
            }
            // The author may have died as well: it goes on with what it saved before it sent.
            for response in [heard, None] {
                let mut author = Follower::decode(relay(), &saved).unwrap();
                let answer = match response {
                    Some(response) => author.handle(&call, &response),
                    None => {
                        let call = author.retry().unwrap();
                        exchange(&mut world, &mut author, &call)
                    }
                };
                let first = progress(answer);
                let won = is_in || !overtaken;
                let expect = if won { Outcome::Won(3) } else { Outcome::Lost };
                assert_eq!(first.outcome, Some(expect), "{crash:?} {overtaken}");
                let mut told: Vec<_> = first.entries.into_iter().map(|it| it.bytes).collect();
                told.extend(catch_up(&mut world, &mut author).unwrap().into_iter().map(|it| it.bytes));
                let expect: &[&[u8]] = match (won, overtaken) {
                    (true, true) => &[b"own", b"other"],
                    (true, false) => &[b"own"],
                    (false, _) => &[b"other"],
                };
                assert_eq!(told, expect, "{crash:?} {overtaken}");
            }
        }
    }
}

#[test]
fn rule_d1_an_author_that_reads_instead_of_retrying_learns_it_too() {
    for crash in CRASHES {
        let (mut world, mut author) = founded(2);
        let call = author.propose(entry(b"own", None), vec![], vec![], &key(MEMBER)).unwrap();
        send(&mut world, call.request(), crash);
        let mut author = Follower::decode(relay(), &author.encode()).unwrap();
        let read = author.read();
        let outcome = progress(exchange(&mut world, &mut author, &read)).outcome;
        let is_in = matches!(crash, Crash::Answer | Crash::Publishing);
        assert_eq!(outcome, is_in.then_some(Outcome::Won(3)), "{crash:?}");
        assert_eq!(author.pending(), (!is_in).then_some(3), "nobody won yet");
        // An answer that was late changes nothing any more.
        let late = world.send(call.request());
        let answer = author.handle(&call, &late).unwrap();
        let Answer::Progress(late) = answer else { panic!("{answer:?}") };
        assert_eq!(late.outcome, (!is_in).then_some(Outcome::Won(3)));
        assert_eq!(author.position(), 3);
    }
}

#[test]
fn rule_d1_a_withdrawn_append_that_is_in_the_log_all_the_same_comes_as_an_entry() {
    let (mut world, mut author) = founded(1);
    let call = author.propose(entry(b"own", None), vec![], vec![], &key(MEMBER)).unwrap();
    send(&mut world, call.request(), Crash::Answer);
    author.withdraw();
    let lost = progress(propose(&mut world, &mut author, b"second", None, &key(MEMBER)));
    assert_eq!((lost.outcome, lost.entries.len()), (Some(Outcome::Lost), 1));
    assert!(!lost.entries[0].is_own && lost.entries[0].bytes == b"own");
}
