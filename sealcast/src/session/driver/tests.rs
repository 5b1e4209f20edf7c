//! What the driver does of its sockets and timers, with a transport that never runs dry.

use std::io::Write;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use mio::net::UnixStream;
use sealcast_delivery::memory::BestEffort;
use sealcast_keys::Notice;
use sealcast_keys::plain::Plain;
use sealcast_wire::Incarnation;

use super::*;
use crate::Error;
use crate::io::clock::Clock;
use crate::session::open::start_over;
use crate::session::parts::Parts;
use crate::session::transports::{Carrier, Transport};
use crate::url::Url;

/// A socket that has something always, and another one.
struct Flooded {
    other: UnixStream,
    woken: Arc<AtomicBool>,
}

const OTHER: mio::Token = mio::Token(7);

impl Shell for Flooded {
    fn listen(&mut self, _: &mio::Registry) -> Result<Option<Listening>> {
        Ok(None)
    }

    fn receive(&mut self, _: Now, _: &mut AnyCore) -> std::result::Result<bool, Fault> {
        std::thread::sleep(Duration::from_micros(100));
        Ok(true)
    }

    fn woken(&mut self, token: mio::Token) {
        self.woken.fetch_or(token == OTHER, Ordering::SeqCst);
    }

    fn send(&mut self, _: &Batch, _: Option<usize>) {}

    fn flush(&mut self) {}

    fn hand_over(&mut self, _: Now) -> bool {
        false
    }

    fn timeout(&self) -> Option<Duration> {
        None
    }

    fn keep(&mut self, _: &[u8]) -> io::Result<bool> {
        Ok(false)
    }

    fn noticed(&mut self, _: &Notice) {}

    fn is_settled(&self) -> bool {
        true
    }

    fn late(&self, _: Duration) -> Option<Error> {
        None
    }

    fn carrier(&self) -> Option<Carrier> {
        None
    }

    fn end(&mut self, _: Now) {}
}

/// What all send may come without end: a member's own socket, where its acknowledgements come, is looked at all the same.
#[test]
fn rule_g7_a_flood_at_one_socket_keeps_nobody_from_another() {
    let woken = Arc::new(AtomicBool::new(false));
    let (mut far, other) = std::os::unix::net::UnixStream::pair().expect("the system has sockets");
    other.set_nonblocking(true).expect("it can be");
    let keys = Box::new(Plain::new("robot7", Incarnation([7; 16])));
    let (me, group) = ("robot7".to_owned(), String::new());
    let parts = Parts { keys, me, group, store: None, identity: None, rights: None, control: None, reach: None };
    let url = Url::parse("mem:flooded").expect("it is one");
    let flag = woken.clone();
    let session = start_over(url, parts, Clock::start(), false, |registry, _| {
        let mut shell = Flooded { other: UnixStream::from_std(other), woken: flag };
        registry.register(&mut shell.other, OTHER, mio::Interest::READABLE).expect("it can be waited for");
        let shell: Box<dyn Shell> = Box::new(shell);
        Ok(Transport { delivery: Box::new(BestEffort::plain()), shell: Box::new(|_| (shell, None)), brokers: None })
    });
    let session = session.expect("it opens");
    // Its turns are under way when something comes.
    std::thread::sleep(Duration::from_millis(20));
    far.write_all(b"x").expect("there is room");
    let begun = Instant::now();
    while !woken.load(Ordering::SeqCst) {
        assert!(begun.elapsed() < Duration::from_secs(10), "nobody looks at the other socket");
        std::thread::sleep(Duration::from_millis(1));
    }
    session.close();
}
