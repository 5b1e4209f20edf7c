//! Letting devices into a group whose members admit others (`keys=mls`), and removing all devices of a name.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use sealcast_keys::{Command, NotAdmitted, Notice, PendingStatus};
use sealcast_wire::{CertHash, EpochId, Monotonic, limits};

use super::shared::Shared;
use super::{CHANGE_TIMEOUT, Call, Report, Session, Who, not_done, not_ready};
use crate::code::Code;
use crate::error::{Error, Result};
use crate::group::lock;
use crate::remedy::Remedy;

/// How an admission went.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Admission {
    /// The epoch before, and the one in which all are members that can be.
    pub from: EpochId,
    /// See there.
    pub to: EpochId,
    /// Who is a member now.
    pub admitted: Vec<CertHash>,
    /// Who is not, and why.
    pub refused: Vec<(CertHash, NotAdmitted)>,
    /// How long it took.
    pub elapsed: Duration,
}

/// Devices that were not admitted lately, and when.
pub(super) type Refused = BTreeMap<CertHash, (Monotonic, NotAdmitted)>;

impl Session {
    /// The devices that want to be let in, as far as this member heard of them: those that run and wait. Asks them for their
    /// certificates, which takes a moment.
    ///
    /// ```no_run
    /// let session = sealcast::open("relay").identity("desk").wait()?;
    /// for device in session.pending().wait()? {
    ///     println!("{} {:?}", device.name, device.cert);
    /// }
    /// # Ok::<(), sealcast::Error>(())
    /// ```
    pub fn pending(&self) -> Call<'static, Result<Vec<PendingStatus>>> {
        let shared = self.inner.shared.clone();
        Call::new(async move {
            shared.process.check()?;
            let known = |shared: &Shared| shared.status().filter(|it| it.unnamed == 0).map(|it| it.pending);
            let all = shared.changed.until(Instant::now() + ANSWERS_WITHIN, || known(&shared)).await;
            Ok(all.or_else(|| Some(shared.status()?.pending)).unwrap_or_default())
        })
    }

    /// Lets in devices, in as few changes of key as can be: by their certificates, or by names that pending devices have. A
    /// device may be off: it comes in when it runs again, where the transport keeps what is left for it.
    ///
    /// ```no_run
    /// let session = sealcast::open("relay").identity("desk").wait()?;
    /// let admission = session.admit(["robot7", "robot8"]).wait()?;
    /// println!("{} are in", admission.admitted.len());
    /// # Ok::<(), sealcast::Error>(())
    /// ```
    pub fn admit<W: Into<Who>>(&self, who: impl IntoIterator<Item = W>) -> Call<'static, Result<Admission>> {
        let begun = self.begin_admission(who.into_iter().map(Into::into).collect());
        let (start, lots) =
            (Instant::now(), begun.as_ref().map_or(0, |(_, certs)| certs.len() / limits::MLS_ADDED_MAX));
        self.doing(CHANGE_TIMEOUT * (1 + lots as u32), not_done, move |shared| {
            let (from, certs) = match &begun {
                Ok(begun) => begun,
                Err(error) => return Some(Err(error.clone())),
            };
            let seen = lock(&shared.seen);
            if let Some(why) = &seen.excluded {
                return Some(Err(Error::excluded(why)));
            }
            let view = seen.view.as_ref()?;
            let (admitted, others): (Vec<CertHash>, Vec<CertHash>) =
                certs.iter().copied().partition(|cert| view.slot_of(cert).is_some());
            let refused: Vec<_> = others.iter().filter_map(|it| Some((*it, seen.not_admitted.get(it)?.1))).collect();
            let (from, to, elapsed) = (*from, view.epoch, start.elapsed());
            let is_done = refused.len() == others.len();
            is_done.then(|| Ok(Admission { from, to, admitted, refused, elapsed }))
        })
    }

    fn begin_admission(&self, who: Vec<Who>) -> Result<(EpochId, Vec<CertHash>)> {
        let shared = &self.inner.shared;
        let view = self.view().ok_or_else(|| not_ready(Duration::ZERO))?;
        let pending = shared.status().map(|it| it.pending).unwrap_or_default();
        let mut certs = Vec::new();
        for it in who {
            match it {
                Who::Cert(cert) => certs.push(cert),
                Who::Name(name) => {
                    let of_name = pending.iter().filter(|it| it.name == name).map(|it| it.cert);
                    let before = certs.len();
                    certs.extend(of_name);
                    if certs.len() == before {
                        let what = format!("no device named '{name}' waits to be let in");
                        return Err(Error::new(Code::BadValue, what).with_remedy(Remedy::ListPending));
                    }
                }
            }
        }
        lock(&shared.seen).not_admitted.retain(|cert, _| !certs.contains(cert));
        shared.command(Command::Batch(certs.iter().map(|cert| Command::Admit { cert: *cert }).collect()))?;
        Ok((view.epoch, certs))
    }

    /// Evicts all members that have a name, in one change of key where the scheme can.
    ///
    /// ```no_run
    /// let session = sealcast::open("relay").identity("desk").wait()?;
    /// session.evict_all("ann", "left the company").wait()?;
    /// # Ok::<(), sealcast::Error>(())
    /// ```
    pub fn evict_all(&self, name: &str, reason: &str) -> Call<'static, Result<Report>> {
        let of_name = |it: &&sealcast_wire::Member| &*it.name == name;
        let view = self.view();
        let certs: Vec<CertHash> =
            view.iter().flat_map(|view| view.members.iter().filter(of_name)).map(|it| it.id.cert).collect();
        if certs.is_empty() {
            let what = format!("no member is named '{name}'");
            let error = Error::new(Code::BadValue, what).with_remedy(Remedy::ListMembers);
            return self.doing(Duration::ZERO, not_done, move |_| Some(Err(error.clone())));
        }
        let evict = |cert| Command::Evict { cert, reason: reason.to_owned() };
        self.change(Command::Batch(certs.into_iter().map(evict).collect()))
    }
}

impl Shared {
    /// A device was not admitted: those who wait for it are told.
    pub(super) fn note_not_admitted(&self, notice: &Notice) {
        if let Notice::NotAdmitted { cert, why } = notice {
            let mut seen = lock(&self.seen);
            if seen.not_admitted.len() >= limits::MLS_MEMBERS_MAX {
                let oldest = seen.not_admitted.iter().min_by_key(|(_, (at, _))| *at).map(|(cert, _)| *cert);
                oldest.map(|it| seen.not_admitted.remove(&it));
            }
            seen.not_admitted.insert(*cert, (self.clock.monotonic(), *why));
        }
    }
}

impl From<NotAdmitted> for Error {
    fn from(why: NotAdmitted) -> Error {
        let (code, remedy) = match why {
            NotAdmitted::NoPackage => (Code::NoPackage, Remedy::StartDevice),
            NotAdmitted::Expired => (Code::PackageExpired, Remedy::StartDevice),
            NotAdmitted::Refused => (Code::Denied, Remedy::AskForInvite { keys: None }),
            NotAdmitted::Unfit => (Code::Content, Remedy::StartDevice),
            NotAdmitted::Full => (Code::GroupFull, Remedy::MakeRoom),
        };
        Error::new(code, why.to_string()).with_remedy(remedy)
    }
}

/// Devices that wait say who they are within this time.
const ANSWERS_WITHIN: Duration = Duration::from_secs(2);
