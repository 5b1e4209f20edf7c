//! What tests of whole sessions share: addresses of their own, and a small authority.
#![allow(dead_code)]

pub(crate) mod net;

use std::net::UdpSocket;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;
use sealcast::Session;
use sealcast_crypto::identity::{Authority, Identity, MemberSecret, Request, Right};
use sealcast_crypto::signature::Algorithm;
use sealcast_wire::Utc;

/// A wait that only a failing test sees the end of.
pub(crate) const SOON: Duration = Duration::from_secs(10);

/// A UDP port that is free, and that no other test of this process has.
fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Below the ports that the system gives to sockets without one: such a socket took a port that was free a moment before.
    let at = |n: u32| 10_000 + u16::try_from(n % 20_000).expect("it fits");
    let drawn = || at(std::process::id().wrapping_mul(61).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)));
    let is_free = |port: &u16| UdpSocket::bind(("0.0.0.0", *port)).is_ok();
    std::iter::repeat_with(drawn).take(20_000).find(is_free).expect("there are free ports")
}

/// A URL that no other test uses: the address comes from port and process.
pub(crate) fn url(more: &str) -> String {
    let port = free_port();
    let [_, _, b, c] = std::process::id().to_be_bytes();
    format!("udpm://239.{}.{b}.{c}:{port}?ttl=0{more}", 200 + port % 50)
}

/// Opens a session of an identity.
pub(crate) fn open(url: &str, identity: &Arc<Identity>) -> Session {
    sealcast::open(url).identity(identity.clone()).wait().unwrap_or_else(|e| panic!("{e} ({:?})", e.hint()))
}

/// An authority that names its members by what they may do.
pub(crate) struct Ca {
    pub(crate) authority: Authority,
    begin: Utc,
    rng: ChaCha20Rng,
}

/// The time of day in simulated worlds: certificates, and all that follows from their hashes, are then the same each time.
pub(crate) const SIMULATED: Utc = Utc(1_800_000_000);

impl Ca {
    pub(crate) fn new() -> Ca {
        Ca::seeded(7)
    }

    pub(crate) fn seeded(seed: u64) -> Ca {
        Ca::of(seed, utc())
    }

    pub(crate) fn simulated() -> Ca {
        Ca::of(7, SIMULATED)
    }

    fn of(seed: u64, begin: Utc) -> Ca {
        let mut rng = ChaCha20Rng::seed_from_u64(seed);
        let authority = Authority::create("test CA", Algorithm::Ed25519, begin, &mut rng).expect("an authority");
        Ca { authority, begin, rng }
    }

    /// A member with rights like `both:#`, `pub:pose/+`, `evict:#` in the group `ward3`.
    pub(crate) fn member(&mut self, name: &str, rights: &[&str]) -> Arc<Identity> {
        let secret = MemberSecret::generate(Algorithm::Ed25519, &mut self.rng);
        let rights = rights.iter().map(|r| {
            let (act, pattern) = r.split_once(':').expect("act:pattern");
            let act = sealcast_crypto::identity::Act::from_name(act).expect("an act");
            Right::new("ward3", act, pattern).expect("a right")
        });
        let request =
            Request { name: name.to_owned(), keys: secret.public(), rights: rights.collect(), attributes: vec![] };
        let certificate = self.authority.issue(&request, self.begin, 3600).expect("issued");
        let identity = Identity::new(&certificate, &secret, self.authority.anchor().clone()).expect("an identity");
        Arc::new(identity.with_bootstrap_key("ward3", self.authority.bootstrap_key("ward3")))
    }
}

pub(crate) fn utc() -> Utc {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    Utc(i64::try_from(since.as_secs()).expect("before the end of time"))
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// The smallest of all runtimes.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}
