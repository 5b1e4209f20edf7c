//! Releases sealed publications: this broker's share of each, to the readers whom the policy allows.
//!
//! *When.* Only of publications that are executed, so final; a reader is judged when the publication is executed, and again
//! on the newest executed state right before a share leaves (E2): a revocation that came in between holds the share back.
//! Who may not read gets ⊥ instead.
//!
//! *By whom.* t + f brokers, in turn from publication to publication: f of them may be silent. With t = 2f + 1 that is all;
//! with t = f + 1 the others need not compute what nobody would use. Whoever asks gets a share of each.
//!
//! *How often.* A share is the same for all its readers. It is computed once, on threads of their own, when the
//! publication is executed or when the first reader is there ([`ShareOn`]); a proof when somebody doubts the share,
//! and no client is given many in a short time (E4). Only ciphertexts whose own proof was checked get shares (S12), and
//! what admission checked is not checked again.

mod key_with_share;
mod pool;
mod rate;
mod shares;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, Weak};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use sealcast_broker::operation::{Body, Checked, Client, Operation, Sealed};
use sealcast_broker::protocol::{Reply, SignedKey, Why};
use sealcast_broker::state::Run;
use sealcast_wire::Utc;

use crate::executor::{Kept, ShareOn, Shared};
use pool::{Job, Pool};
use rate::Rate;

pub use key_with_share::KeyWithShare;

/// What releases shares. Without a key it accepts no ciphertext and releases nothing.
pub(crate) struct Release {
    shared: Weak<Shared>,
    /// Whether shares are computed on writing.
    on_write: AtomicBool,
    installed: RwLock<Option<Arc<Installed>>>,
    pool: Arc<Pool>,
    proofs: Mutex<Rate>,
    /// Tells the time, for simulations; the system's own otherwise.
    clock: OnceLock<Clock>,
}

/// What tells the time.
pub(crate) type Clock = Box<dyn Fn() -> Instant + Send + Sync>;

/// The key in force.
struct Installed {
    key_with_share: KeyWithShare,
    signed: SignedKey,
    made: Utc,
}

/// What may be attached for a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Share,
    Proved,
    Denied,
}

impl Release {
    pub(crate) fn new(shared: Weak<Shared>, share_on: ShareOn) -> Release {
        let proofs = Mutex::new(Rate::default());
        let clock = OnceLock::new();
        let on_write = AtomicBool::new(share_on == ShareOn::Write);
        Release { shared, on_write, installed: RwLock::new(None), pool: Arc::default(), proofs, clock }
    }

    /// Lets this tell the time.
    pub(crate) fn set_clock(&self, clock: Clock) {
        let _ = self.clock.set(clock);
    }

    fn now(&self) -> Instant {
        self.clock.get().map_or_else(Instant::now, |clock| clock())
    }

    /// Computes and sends what waits, on the caller's thread; whether there was anything.
    pub(crate) fn step(&self, shared: &Shared) -> bool {
        let mut any = false;
        while let Some(job) = self.pool.try_next() {
            self.work(shared, &job);
            any = true;
        }
        any
    }

    /// Starts the threads that compute shares.
    pub(crate) fn start(&self, threads: usize) -> io::Result<()> {
        self.pool.start(threads.max(1), &self.shared)
    }

    /// Ends them.
    pub(crate) fn stop(&self) {
        self.pool.stop();
    }

    pub(crate) fn set_share_on(&self, share_on: ShareOn) {
        self.on_write.store(share_on == ShareOn::Write, Ordering::Relaxed);
    }

    /// The key is this one, made then.
    pub(crate) fn set_key(&self, key_with_share: KeyWithShare, made: Utc) {
        let Some(shared) = self.shared.upgrade() else { return };
        let (epoch, key) = key_with_share.encoded();
        let signature = shared.key.sign(&SignedKey::statement(&shared.cluster, epoch, &key));
        let signed = SignedKey { epoch, key, signature };
        let installed = Installed { key_with_share, signed, made };
        *self.installed.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(installed));
    }

    /// The key in force, as this broker vouches for it.
    pub(crate) fn signed_key(&self) -> Option<SignedKey> {
        self.installed().map(|it| it.signed.clone())
    }

    /// Seconds since the key was made.
    pub(crate) fn key_age(&self) -> Option<u64> {
        self.installed().map(|it| u64::try_from(now().0.saturating_sub(it.made.0)).unwrap_or(0))
    }

    /// Whether there is a key.
    pub(crate) fn has_key(&self) -> bool {
        self.installed().is_some()
    }

    /// Whether this broker has a share of it.
    pub(crate) fn has_share(&self) -> bool {
        self.installed().is_some_and(|it| it.key_with_share.has_share())
    }

    pub(crate) fn ciphertexts_valid(&self, sealed: &[Sealed<'_>]) -> Vec<bool> {
        match (self.installed(), self.shared.upgrade()) {
            (Some(it), Some(shared)) => it.key_with_share.check(&shared, sealed),
            _ => vec![false; sealed.len()],
        }
    }

    /// Lets the threads send shares of an executed block's publications to whom they interest and who is here. Waits
    /// while too many shares are to be computed.
    pub(crate) fn executed(&self, kept: &Arc<Kept>, batches: &[Checked]) {
        // Without a share nothing is computed; ⊥ is answered to who asks.
        let Some(installed) = self.installed().filter(|it| it.key_with_share.has_share()) else { return };
        let Some(shared) = self.shared.upgrade() else { return };
        let publications = &kept.outbox.publications;
        let sealed = |place: usize| is_sealed(&batches[publications[place].batch as usize], publications[place].number);
        let sealed: Vec<usize> = (0..publications.len()).filter(|place| sealed(*place)).collect();
        if sealed.is_empty() {
            return;
        }
        let mut readers: Vec<Vec<Client>> = vec![Vec::new(); publications.len()];
        for notice in kept.outbox.notices.iter().filter(|it| shared.outlet.is_here(&it.client)) {
            for sn in notice.runs.iter().filter_map(Run::delivered) {
                if let Ok(place) = publications.binary_search_by_key(&sn, |it| it.sn)
                    && readers[place].last() != Some(&notice.client)
                {
                    readers[place].push(notice.client);
                }
            }
        }
        for place in sealed {
            let mut readers = std::mem::take(&mut readers[place]);
            if !is_turn(shared.index, shared.brokers, installed.key_with_share.threshold(), publications[place].sn) {
                readers.clear();
            }
            if !readers.is_empty() || self.on_write.load(Ordering::Relaxed) {
                self.pool.push(Job { kept: kept.clone(), place, readers });
            }
        }
    }

    /// What this broker attaches for one reader who asks: ⊥ to clients that may not read, for which nothing is computed,
    /// and nothing to unregistered clients.
    pub(crate) fn answer(&self, shared: &Shared, client: &Client, sn: u64, proved: bool) -> Result<Vec<u8>, Why> {
        let installed = self.installed().ok_or(Why::Nothing)?;
        let entry = shared.state().published(sn).map_err(|_| Why::Storage)?.ok_or(Why::Nothing)?;
        let may_read = || match shared.readable(client, sn) {
            Ok(_) => Ok(true),
            Err(Why::Denied) => Ok(false),
            Err(why) => Err(why),
        };
        if may_read()? {
            if proved && !self.proofs.lock().unwrap_or_else(PoisonError::into_inner).allows(client, self.now()) {
                return Err(Why::Busy);
            }
            let prepared =
                installed.key_with_share.prepare(shared, &entry, if proved { Kind::Proved } else { Kind::Share });
            // Judged again when all is computed: what was revoked meanwhile does not leave.
            if may_read()? {
                return prepared;
            }
        }
        if shared.is_client(client)? {
            installed.key_with_share.prepare(shared, &entry, Kind::Denied)
        } else {
            Err(Why::Denied)
        }
    }

    /// Computes a share and sends it to its readers.
    fn work(&self, shared: &Shared, job: &Job) {
        let Some(installed) = self.installed() else { return };
        let entry = &job.kept.outbox.publications[job.place];
        let Ok(share) = installed.key_with_share.prepare(shared, entry, Kind::Share) else { return };
        for client in &job.readers {
            // E2: on the newest executed state.
            let attachment = match shared.readable(client, entry.sn) {
                Ok(_) => Ok(share.clone()),
                Err(Why::Denied) => installed.key_with_share.prepare(shared, entry, Kind::Denied),
                Err(why) => Err(why),
            };
            if let Ok(attachment) = attachment {
                shared.outlet.send(client, Reply::Attach { sn: entry.sn, attachment });
            }
        }
    }

    fn installed(&self) -> Option<Arc<Installed>> {
        self.installed.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Release {
    fn drop(&mut self) {
        self.pool.stop();
    }
}

/// Whether a broker is among those that send shares of this publication unasked.
fn is_turn(broker: u16, brokers: usize, threshold: usize, sn: u64) -> bool {
    let (brokers, faulty) = (brokers as u64, (brokers.saturating_sub(1) / 3) as u64);
    (u64::from(broker) + brokers - sn % brokers) % brokers < threshold as u64 + faulty
}

/// The time of day.
pub(crate) fn now() -> Utc {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Utc(i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}

fn is_sealed(batch: &Checked, number: u64) -> bool {
    match batch.batch().operation(number) {
        Some(Operation::Publish(publication)) => matches!(publication.body, Body::Sealed(_)),
        _ => false,
    }
}
