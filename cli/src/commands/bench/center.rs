//! A key distribution centre of this process, and principals that it has registered: for groups with `keys=center`.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use sealcast::code::Code;
use sealcast::io::clock::Clock;
use sealcast_crypto::identity::{Act, Principal, Registration, Right};
use sealcast_crypto::secret::Secret;
use sealcast_crypto::signature::OriginKey;
use sealcast_kdc::store::principal;
use sealcast_kdc::{Server, Store};
use tempfile::TempDir;

use super::name;
use crate::hint::Failure;
use crate::text::now;

/// A centre that answers until it is dropped, and those whom it knows.
pub(super) struct BenchCenter {
    pub(super) address: SocketAddr,
    principals: Vec<Arc<Principal>>,
    stop: Arc<AtomicBool>,
    serving: Option<JoinHandle<()>>,
    _folder: TempDir,
}

impl BenchCenter {
    /// Registers so many in a group, named `m0`, `m1`, …; the first ones may lead it.
    pub(super) fn start(group: &str, members: usize) -> Result<BenchCenter, Failure> {
        // Each registration is durable before it is answered; a disk would be waited for a thousand times.
        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let folder = tempfile::Builder::new().prefix("sealcast-").tempdir_in(&parent);
        let folder = folder.map_err(|e| Failure::system(parent.display(), &e))?;
        let store = Store::create(&folder.path().join("kdc"), &Secret::random(&mut crate::rng())).map_err(failed)?;
        let principals = (0..members).map(|i| register(&store, group, i)).collect::<Result<_, _>>()?;
        let mut server = Server::first(store, SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).map_err(failed)?;
        let address = server.address().map_err(|e| Failure::system("the centre's socket", &e))?;
        let (stop, clock) = (Arc::new(AtomicBool::new(false)), Clock::start());
        let until = stop.clone();
        let serving = std::thread::spawn(move || {
            // Members that get no answer fail, and say so.
            let _ = server.serve(|| clock.now(), &until, |_| ());
        });
        Ok(BenchCenter { address, principals, stop, serving: Some(serving), _folder: folder })
    }

    /// Member `i`'s registration and keys.
    pub(super) fn principal(&self, i: usize) -> Arc<Principal> {
        self.principals[i].clone()
    }
}

impl Drop for BenchCenter {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(serving) = self.serving.take() {
            // A panic of its thread was printed there.
            let _ = serving.join();
        }
    }
}

fn register(store: &Store, group: &str, i: usize) -> Result<Arc<Principal>, Failure> {
    let (at, signing) = (now(), Secret::random(&mut crate::rng()));
    let acts: &[Act] = if i < LEADERS { &[Act::Both, Act::Lead, Act::Evict] } else { &[Act::Both] };
    let rights = acts.iter().map(|act| Right::new(group, *act, "#")).collect::<Result<_, _>>();
    let draft = Registration {
        realm: store.realm(),
        serial: 0,
        name: name(i).as_str().into(),
        key: OriginKey::from_seed(&signing).public().clone(),
        exchange: None,
        not_before: at.0 - 60,
        not_after: at.0 + 86_400,
        rights: rights.map_err(|e| Failure::new(Code::BadValue, e))?,
    };
    let registration = store.register(draft, at).map_err(failed)?;
    Ok(Arc::new(principal(store.secret(), registration, signing)))
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::new(Code::System, format!("the centre: {error}"))
}

/// A leader and its two stand-bys: more would each form a group while a large one lets them in.
const LEADERS: usize = 3;
