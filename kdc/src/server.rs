//! A centre's socket: one thread, one datagram in, at most one out.
//!
//! ```text
//! | 0x5C | 2 | a question to the centre, or a stand-by's request |        the frame of a key scheme's messages
//! ```

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rand_chacha::ChaCha20Rng;
use rand_core::{Rng as _, SeedableRng as _};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sealcast::io::clock::FLOOR;
use sealcast::io::rng;
use sealcast_crypto::identity::Registration;
use sealcast_keys::center::feed::{FEED_BYTES, Feed, FeedAnswer, FeedRequest};
use sealcast_keys::center::kdc::{Kdc, Registry};
use sealcast_wire::frame::{KIND_OPEN, MAGIC, OPEN_HEADER_LEN};
use sealcast_wire::{CertHash, Dropped, Drops, Monotonic, Now, Utc};

use crate::standby::{FeedStatus, StandBy};
use crate::store::{Store, StoreError};

/// Who is registered, as a running centre knows it: the first one, or a stand-by.
#[derive(Debug)]
pub struct Role {
    store: Store,
    stand_by: Option<StandBy>,
    /// The time of the question that is answered, for what is stored because of it.
    at: Utc,
}

/// A running centre.
pub struct Server {
    socket: UdpSocket,
    /// Connected to the first centre, if this is a stand-by.
    first: Option<UdpSocket>,
    kdc: Kdc<Role>,
    feed: Feed,
    rng: ChaCha20Rng,
    drops: Drops,
    answered: u64,
}

/// Why a centre ends.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The socket.
    #[error(transparent)]
    Socket(#[from] io::Error),
    /// Its rows: it must not take registrations that it cannot read for unknown ones.
    #[error("{0}")]
    Store(String),
    /// The system has no randomness.
    #[error(transparent)]
    Randomness(#[from] sealcast::Error),
}

impl From<StoreError> for ServeError {
    fn from(error: StoreError) -> ServeError {
        ServeError::Store(error.to_string())
    }
}

impl Server {
    /// A first centre that listens on an address; port 0 takes a free one.
    ///
    /// # Errors
    /// The store is a stand-by's, the address cannot be used, or there is no randomness.
    pub fn first(store: Store, listen: SocketAddr) -> Result<Server, ServeError> {
        if store.is_stand_by()? {
            return Err(StoreError::StandBy.into());
        }
        Server::new(Role { store, stand_by: None, at: FLOOR }, listen, None)
    }

    /// A stand-by of the centre at `of`, which refuses service when it has not heard from that for `stale_after`. Its store
    /// is a stand-by's from now on.
    ///
    /// # Errors
    /// As [`Server::first`].
    pub fn stand_by(
        store: Store,
        listen: SocketAddr,
        of: SocketAddr,
        stale_after: Duration,
        now: Monotonic,
    ) -> Result<Server, ServeError> {
        store.set_stand_by(true)?;
        let any: SocketAddr =
            if of.is_ipv4() { (Ipv4Addr::UNSPECIFIED, 0).into() } else { (Ipv6Addr::UNSPECIFIED, 0).into() };
        let first = UdpSocket::bind(any)?;
        // The kernel drops what comes from elsewhere.
        first.connect(of)?;
        first.set_nonblocking(true)?;
        let stand_by = StandBy::new(store.clone(), stale_after, rng::bytes()?, now);
        Server::new(Role { store, stand_by: Some(stand_by), at: FLOOR }, listen, Some(first))
    }

    fn new(role: Role, listen: SocketAddr, first: Option<UdpSocket>) -> Result<Server, ServeError> {
        let socket = UdpSocket::bind(listen)?;
        socket.set_nonblocking(true)?;
        let secret = role.store.secret().clone();
        let (feed, rng) = (Feed::new(&secret), ChaCha20Rng::from_seed(rng::bytes()?));
        role.store.set_address(socket.local_addr()?)?;
        let kdc = Kdc::new(&secret, role, rng::bytes()?, FLOOR);
        Ok(Server { socket, first, kdc, feed, rng, drops: Drops::default(), answered: 0 })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// The system's own.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// What was not answered, by reason.
    pub fn drops(&self) -> &Drops {
        &self.drops
    }

    /// How many questions and requests were answered.
    pub fn answered(&self) -> u64 {
        self.answered
    }

    /// Answers until `stop` is set, which it sees within [`LOOK_AGAIN`]. `now` reads the clocks. A stand-by calls `told` with
    /// its first status, and whenever that changes.
    ///
    /// # Errors
    /// [`ServeError`]: then nothing is answered any more.
    pub fn serve(
        &mut self,
        now: impl Fn() -> Now,
        stop: &AtomicBool,
        mut told: impl FnMut(FeedStatus),
    ) -> Result<(), ServeError> {
        let mut status = None;
        while !stop.load(Ordering::Relaxed) {
            self.request(now())?;
            if let Some(stand_by) = &self.kdc.registry().stand_by {
                let is = stand_by.status(now().monotonic);
                if status != Some(is) {
                    status = Some(is);
                    told(is);
                }
            }
            self.wait(now())?;
            self.hear(&now)?;
            self.answer_some(&now)?;
            if let Some(why) = self.kdc.registry().store.failure() {
                return Err(ServeError::Store(why));
            }
        }
        Ok(())
    }

    /// Asks the first centre, if that is due.
    fn request(&mut self, now: Now) -> Result<(), ServeError> {
        let (Some(first), Some(stand_by)) = (&self.first, &mut self.kdc.registry_mut().stand_by) else {
            return Ok(());
        };
        if let Some(request) = stand_by.handle_timeout(now.monotonic)? {
            // One that cannot be sent is as one that is lost: the next one follows.
            let _ = first.send(&framed(&request));
        }
        Ok(())
    }

    /// Waits for a datagram, for a request that is due, or for [`LOOK_AGAIN`].
    fn wait(&self, now: Now) -> io::Result<()> {
        let due = self.kdc.registry().stand_by.as_ref().map(|it| it.timeout().since(now.monotonic));
        let timeout = due.unwrap_or(LOOK_AGAIN).min(LOOK_AGAIN);
        let timeout = Timespec::try_from(timeout).expect("a fraction of a second");
        let mut awaited = vec![PollFd::new(&self.socket, PollFlags::IN)];
        awaited.extend(self.first.as_ref().map(|it| PollFd::new(it, PollFlags::IN)));
        match poll(&mut awaited, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Takes what the first centre answered.
    fn hear(&mut self, now: impl Fn() -> Now) -> Result<(), ServeError> {
        let Some(first) = &self.first else { return Ok(()) };
        let mut buffer = [0; BUFFER_BYTES];
        for _ in 0..DATAGRAMS_PER_TURN {
            let bytes = match first.recv(&mut buffer) {
                Ok(length) => &buffer[..length],
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                // Nobody listens there, as the system learnt from our request.
                Err(_) => continue,
            };
            let Some(stand_by) = &mut self.kdc.registry_mut().stand_by else { break };
            let heard = unframed(bytes).and_then(|bytes| stand_by.handle(now().monotonic, bytes));
            if let Err(why) = heard {
                self.drops.count(why);
            }
        }
        Ok(())
    }

    /// Answers what has come, some of it at a time: the clock, the first centre and `stop` wait for it.
    fn answer_some(&mut self, now: impl Fn() -> Now) -> Result<(), ServeError> {
        let mut buffer = [0; BUFFER_BYTES];
        for _ in 0..DATAGRAMS_PER_TURN {
            let (length, from) = match self.socket.recv_from(&mut buffer) {
                Ok(received) => received,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(e.into()),
            };
            match self.answer(now(), &buffer[..length]) {
                Ok(answer) if self.socket.send_to(&framed(&answer), from).is_ok() => self.answered += 1,
                // The system's queue, or an address that cannot be reached: it will ask again.
                Ok(_) => self.drops.count(Dropped::Queue),
                Err(why) => self.drops.count(why),
            }
        }
        Ok(())
    }

    fn answer(&mut self, now: Now, bytes: &[u8]) -> Result<Vec<u8>, Dropped> {
        let bytes = unframed(bytes)?;
        if !self.feed.is_of(bytes) {
            self.kdc.registry_mut().at = now.utc.unwrap_or(FLOOR);
            return self.kdc.answer(now, bytes);
        }
        let request = self.feed.read_request(bytes)?;
        let role = self.kdc.registry();
        if role.stand_by.is_some() {
            // A stand-by of a stand-by would not know how old its rows are.
            return Err(Dropped::Policy);
        }
        let answer = role.store.noted(feed_answer(&role.store, &request).map(Some)).ok_or(Dropped::Incomplete)?;
        let mut seal = [0; 12];
        self.rng.fill_bytes(&mut seal);
        Ok(self.feed.write_answer(&answer, &request.nonce, seal))
    }
}

/// What a first centre answers a stand-by.
pub(crate) fn feed_answer(store: &Store, request: &FeedRequest) -> Result<FeedAnswer, StoreError> {
    if store.link(request.after)? != Some(request.link) {
        return Ok(FeedAnswer::Diverged);
    }
    // The newest is read first: rows that come between are fetched by the next request.
    let (newest, _) = store.newest()?;
    let rows = store.rows_after(request.after, FEED_ROWS)?;
    Ok(FeedAnswer::Rows { newest: newest.max(request.after + rows.len() as u64), rows })
}

impl Registry for Role {
    fn find(&self, principal: &CertHash) -> Option<(Arc<Registration>, bool)> {
        self.store.find(principal)
    }

    fn number(&self) -> u64 {
        self.store.number()
    }

    fn revoked_since(&self, number: u64, most: usize) -> Vec<(u64, CertHash)> {
        self.store.revoked_since(number, most)
    }

    fn revoke(&mut self, principal: &CertHash, by: &str, reason: &str) -> Option<u64> {
        match self.store.revoke(principal, by, reason, self.at) {
            Ok(number) => Some(number),
            Err(StoreError::StandBy) => None,
            Err(why) => self.store.noted(Err(why).map(Some)),
        }
    }

    fn is_stale(&self, now: Now) -> bool {
        self.stand_by.as_ref().is_some_and(|it| it.is_stale(now.monotonic))
    }
}

/// A datagram with the frame of a key scheme's messages.
pub fn framed(bytes: &[u8]) -> Vec<u8> {
    [&[MAGIC, KIND_OPEN], bytes].concat()
}

/// What a frame holds.
///
/// # Errors
/// [`Dropped::Foreign`] if it is another protocol's, [`Dropped::TooLong`] if no message is that long.
pub fn unframed(datagram: &[u8]) -> Result<&[u8], Dropped> {
    let bytes = datagram.strip_prefix(&[MAGIC, KIND_OPEN]).ok_or(Dropped::Foreign)?;
    if bytes.len() > FEED_BYTES { Err(Dropped::TooLong) } else { Ok(bytes) }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("socket", &self.socket).field("answered", &self.answered).finish_non_exhaustive()
    }
}

/// How often it looks whether it shall end.
pub const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// Datagrams of one kind between two looks at everything else.
const DATAGRAMS_PER_TURN: usize = 64;
/// One byte more than the longest datagram: what is longer shows.
const BUFFER_BYTES: usize = OPEN_HEADER_LEN + FEED_BYTES + 1;
/// More rows than fit an answer.
const FEED_ROWS: usize = 24;

#[cfg(test)]
mod tests {
    use std::thread::JoinHandle;

    use sealcast::io::clock::Clock;
    use sealcast_crypto::identity::Principal;
    use sealcast_crypto::leighton_micali::Pair;
    use sealcast_crypto::secret::Secret;
    use sealcast_keys::center::query::{Answer, Query, Refusal};
    use tempfile::TempDir;

    use super::*;
    use crate::store::principal;
    use crate::store::tests::{draft, folder, secret, signing};

    /// A centre that runs on a thread until it is dropped.
    struct Running {
        _folder: TempDir,
        store: Store,
        address: SocketAddr,
        stop: Arc<AtomicBool>,
        thread: Option<JoinHandle<Server>>,
        statuses: std::sync::mpsc::Receiver<FeedStatus>,
    }

    const STALE_AFTER: Duration = Duration::from_secs(4);
    const LOOPBACK: &str = "127.0.0.1:0";

    impl Running {
        fn start(secret: &Secret<32>, make: impl FnOnce(Store, &Clock) -> Server) -> Running {
            let folder = folder();
            let store = Store::create(folder.path(), secret).unwrap();
            let clock = Clock::start();
            let mut server = make(store.clone(), &clock);
            let (address, stop) = (server.address().unwrap(), Arc::new(AtomicBool::new(false)));
            let (to_test, statuses) = std::sync::mpsc::channel();
            let stopped = stop.clone();
            let thread = std::thread::spawn(move || {
                server.serve(|| clock.now(), &stopped, |status| to_test.send(status).unwrap_or(())).unwrap();
                server
            });
            Running { _folder: folder, store, address, stop, thread: Some(thread), statuses }
        }

        fn first(listen: &str) -> Running {
            Running::start(&secret(), |store, _| Server::first(store, listen.parse().unwrap()).unwrap())
        }

        fn stand_by(of: SocketAddr) -> Running {
            Running::start(&secret(), |store, clock| {
                let listen = LOOPBACK.parse().unwrap();
                Server::stand_by(store, listen, of, STALE_AFTER, clock.monotonic()).unwrap()
            })
        }

        fn register(&self, name: &str) -> Principal {
            let now = Clock::start().now().utc.unwrap();
            let draft = Registration { not_before: now.0 - 5, not_after: now.0 + 3_600, ..draft(name) };
            principal(&secret(), self.store.register(draft, now).unwrap(), signing(name))
        }

        fn awaits(&self, status: FeedStatus) {
            let end = std::time::Instant::now() + Duration::from_secs(20);
            while let Ok(is) = self.statuses.recv_timeout(end.saturating_duration_since(std::time::Instant::now())) {
                if is == status {
                    return;
                }
            }
            panic!("it never was {status:?}");
        }

        fn end(mut self) -> Server {
            self.stop.store(true, Ordering::Relaxed);
            self.thread.take().unwrap().join().unwrap()
        }
    }

    impl Drop for Running {
        fn drop(&mut self) {
            self.stop.store(true, Ordering::Relaxed);
            if let Some(thread) = self.thread.take() {
                let _ = thread.join();
            }
        }
    }

    fn client(to: SocketAddr) -> UdpSocket {
        let any = if to.is_ipv4() { "127.0.0.1:0" } else { "[::1]:0" };
        let socket = UdpSocket::bind(any).unwrap();
        socket.connect(to).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        socket
    }

    fn ask(to: SocketAddr, who: &Principal, ask: &Query, nonce: [u8; 16]) -> Answer {
        let socket = client(to);
        let me = who.registration.hash();
        let question = framed(&ask.write(&me, &nonce, &who.long_term));
        socket.send(&question).unwrap();
        let mut buffer = [0; 2_000];
        let length = socket.recv(&mut buffer).unwrap();
        assert!(length <= question.len(), "nothing amplifies (G8)");
        let answer = Answer::read(unframed(&buffer[..length]).unwrap()).unwrap();
        assert_eq!((answer.asker, answer.nonce), (me, nonce));
        answer.check(&who.long_term).unwrap()
    }

    fn gets_a_key(to: SocketAddr, leader: &Principal, other: &Principal) {
        let [from, whom] = [leader, other].map(|it| it.registration.hash());
        let Answer::Granted(number, granted) = ask(to, leader, &Query::Pair(whom), [7; 16]) else { panic!() };
        let pair = Pair { from: from.0, to: whom.0, nonce: [7; 16] };
        let key = leader.long_term.unmask(&pair, &granted, &number.to_be_bytes()).unwrap();
        assert_eq!(key, other.long_term.receives(&from.0, &whom.0, &granted.salt));
    }

    #[test]
    fn a_centre_answers_over_both_families() {
        for listen in [LOOPBACK, "[::1]:0"] {
            let centre = Running::first(listen);
            let (leader, alice) = (centre.register("leader"), centre.register("alice"));
            gets_a_key(centre.address, &leader, &alice);
            let whom = alice.registration.hash();
            assert_eq!(ask(centre.address, &leader, &Query::Revoke(whom, "lost".into()), [1; 16]), Answer::Done(1));
            let news = Answer::Revoked(1, vec![(1, whom)]);
            assert_eq!(ask(centre.address, &leader, &Query::News(0), [2; 16]), news);
            let revoked = centre.store.named("alice").unwrap().unwrap().revoked.unwrap();
            assert_eq!((revoked.by.as_str(), revoked.reason.as_str()), ("leader", "lost"));
            let now = Clock::start().now().utc.unwrap();
            assert!((now.0 - 60..=now.0).contains(&revoked.at.0), "{}", revoked.at.0);
            assert_eq!(centre.end().answered(), 3);
        }
    }

    #[test]
    fn rule_g7_what_is_not_answered_is_counted_by_reason() {
        let centre = Running::first(LOOPBACK);
        let leader = centre.register("leader");
        let me = leader.registration.hash();
        let good = framed(&Query::News(0).write(&me, &[1; 16], &leader.long_term));
        let mut forged = good.clone();
        *forged.last_mut().unwrap() ^= 1;
        let unknown = framed(&Query::News(0).write(&CertHash([5; 32]), &[1; 16], &leader.long_term));
        let socket = client(centre.address);
        let long = vec![MAGIC; 2_000];
        let sent: [&[u8]; 7] =
            [b"", b"LC02", &framed(&[]), &forged, &unknown, &[&framed(b"")[..], &long].concat(), &good];
        for bytes in sent {
            socket.send(bytes).unwrap();
        }
        let mut buffer = [0; 2_000];
        socket.recv(&mut buffer).unwrap();
        let server = centre.end();
        let drops: Vec<_> = server.drops().iter().collect();
        let counted = [(Dropped::Malformed, 1), (Dropped::Auth, 1), (Dropped::Foreign, 3), (Dropped::TooLong, 1)];
        assert_eq!((drops, server.answered()), (counted.to_vec(), 1));
    }

    #[test]
    fn rule_c1_a_stand_by_answers_alike_and_refuses_once_the_first_centre_is_gone() {
        let first = Running::first(LOOPBACK);
        let (leader, alice) = (first.register("leader"), first.register("alice"));
        let second = Running::stand_by(first.address);
        second.awaits(FeedStatus::Fresh);
        gets_a_key(second.address, &leader, &alice);
        // What needs a row is the first centre's to do.
        let (whom, refused) = (alice.registration.hash(), |why| Answer::Refused(5, 0, why));
        let revoke = Query::Revoke(whom, "lost".into());
        assert_eq!(ask(second.address, &leader, &revoke, [1; 16]), refused(Refusal::Store));
        assert_eq!(ask(first.address, &leader, &revoke, [2; 16]), Answer::Done(1));
        let begun = std::time::Instant::now();
        while ask(second.address, &leader, &Query::News(0), [3; 16]) != Answer::Revoked(1, vec![(1, whom)]) {
            assert!(begun.elapsed() < Duration::from_secs(10), "the revocation never came");
            std::thread::sleep(Duration::from_millis(50));
        }
        drop(first);
        second.awaits(FeedStatus::Stale);
        let stale = Answer::Refused(3, 1, Refusal::Stale);
        assert_eq!(ask(second.address, &leader, &Query::News(0), [4; 16]), stale);
    }

    #[test]
    fn rule_c1_a_first_centre_with_another_secret_is_ignored() {
        let liar = Running::start(&Secret::from_bytes([1; 32]), |store, _| {
            Server::first(store, LOOPBACK.parse().unwrap()).unwrap()
        });
        let second = Running::stand_by(liar.address);
        second.awaits(FeedStatus::Stale);
        std::thread::sleep(Duration::from_millis(1_500));
        assert_eq!(second.store.newest().unwrap().0, 0);
        drop(second);
        // Its requests are none that the other one understands.
        assert!(liar.end().drops().of(Dropped::Malformed) > 0);
    }

    #[test]
    fn a_stand_by_is_no_first_centre_until_somebody_says_so() {
        let first = Running::first(LOOPBACK);
        let second = Running::stand_by(first.address);
        second.awaits(FeedStatus::Fresh);
        let store = second.store.clone();
        let _folder = second;
        let listen = || LOOPBACK.parse().unwrap();
        assert!(matches!(Server::first(store.clone(), listen()), Err(ServeError::Store(_))));
        store.set_stand_by(false).unwrap();
        assert!(Server::first(store, listen()).is_ok());
    }

    #[test]
    fn a_stand_by_has_no_stand_by() {
        let first = Running::first(LOOPBACK);
        let second = Running::stand_by(first.address);
        second.awaits(FeedStatus::Fresh);
        let third = Running::stand_by(second.address);
        third.awaits(FeedStatus::Stale);
        std::thread::sleep(Duration::from_millis(1_300));
        drop(third);
        assert!(second.end().drops().of(Dropped::Policy) > 0);
    }
}
