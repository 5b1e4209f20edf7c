//! Our own key packages: what others need to let us in while we are away (RFC 9420, section 10).
//!
//! ```text
//! outside ─ PACKAGES(last resort) ─▶ directory ─▶ so many single-use ones are there ─ fewer than half? PACKAGES(more) ─▶
//! outside ─ PACKAGE(last resort) ─▶ members, where no directory is
//! Welcome ─▶ marked as used ─▶ the group's state is stored ─▶ erased
//! ```
//! A directory hands out each single-use package once, so its secret goes with its use. Members that keep packages for each
//! other cannot promise that: two of them may use the same one at once. There, the last resort alone is offered, as for a
//! directory whose single-use ones are used up (section 16.8). A member needs none: a package is for one group.

use std::time::Duration;

use sealcast_wire::codec::{Malformed, Reader, Writer};
use sealcast_wire::{Fetch, KeyPackages, Now, Utc, limits};
use zeroize::Zeroizing;

use super::engine::{Engine, PackageKind, PackageSecret, Reference};
use super::message::Message;
use super::scheme::{Mls, Phase, Timer, step};
use crate::Output;

/// A key package of ours that others have.
pub(super) struct OwnPackage {
    secret: PackageSecret,
    /// Names it in a Welcome.
    reference: Reference,
    kind: PackageKind,
    /// Seconds since 1970 at which it is of no use any more.
    until: Utc,
    /// A Welcome that used it is being applied: it is erased once the group's state is stored.
    is_used: bool,
}

impl OwnPackage {
    pub(super) fn put(&self, w: &mut Writer) {
        w.u8(u8::from(self.kind == PackageKind::LastResort) | u8::from(self.is_used) << 1);
        w.u64(self.until.0.cast_unsigned()).bytes16(&self.reference.0).bytes16(&self.secret.0);
    }

    pub(super) fn read(r: &mut Reader<'_>) -> Result<OwnPackage, Malformed> {
        let flags = r.u8()?;
        let kind = if flags & 1 == 1 { PackageKind::LastResort } else { PackageKind::SingleUse };
        let until = Utc(r.u64()?.cast_signed());
        let reference = Reference(r.bytes16(limits::OPEN_BYTES_MAX)?.to_vec());
        let secret = PackageSecret(Zeroizing::new(r.bytes16(limits::OPEN_BYTES_MAX)?.to_vec()));
        Ok(OwnPackage { secret, reference, kind, until, is_used: flags & 2 == 2 })
    }
}

impl<E: Engine> Mls<E> {
    /// Offers the last resort of this run, and hears how many single-use packages are left.
    pub(super) fn offer_packages(&mut self, now: Now) {
        if !matches!(self.phase, Phase::Outside(_)) {
            return;
        }
        let until = self.package_ends(now);
        let last_resort =
            if self.shared.own.is_none() { self.make_package(now, PackageKind::LastResort) } else { None };
        if let Some(bytes) = &last_resort {
            self.shared.own = Some((bytes.clone(), now.monotonic));
            self.store_run();
        }
        self.timers.set(Timer::Packages, now.monotonic + OFFER_EVERY);
        if self.config.directory {
            let packages = KeyPackages { cert: self.me.hash, single_use: Vec::new(), last_resort, until };
            self.outputs.push_back(Output::Packages(packages));
        } else if let Some(bytes) = last_resort {
            self.tell(sealcast_wire::To::Group, &Message::Package { cert: self.me.hash, bytes });
        }
        self.refills = true;
    }

    /// So many single-use packages are left: too few are filled up, once for each time that we asked.
    pub(super) fn offered(&mut self, now: Now, single_use: usize) {
        let is_low = single_use < SINGLE_USE / 2 && matches!(self.phase, Phase::Outside(_));
        if !is_low || !std::mem::take(&mut self.refills) {
            return;
        }
        let until = self.package_ends(now);
        let made = (single_use..SINGLE_USE).filter_map(|_| self.make_package(now, PackageKind::SingleUse)).collect();
        self.store_run();
        let packages = KeyPackages { cert: self.me.hash, single_use: made, last_resort: None, until };
        self.outputs.push_back(Output::Packages(packages));
    }

    /// Until when a package that is made now is valid. Without a clock nobody knows how long ago the newest known date was:
    /// then it is as long as the certificate.
    fn package_ends(&self, now: Now) -> Utc {
        let utc = self.utc(now);
        match now.utc {
            Some(_) => Utc(utc.0.saturating_add(PACKAGE_LASTS.as_secs().cast_signed())),
            None => self.me.not_after.max(utc),
        }
    }

    /// A new key package, sealed for others; its secret waits for a Welcome.
    fn make_package(&mut self, now: Now, kind: PackageKind) -> Option<Vec<u8>> {
        let (utc, seed) = (self.utc(now), self.seed());
        let until = self.package_ends(now);
        let lasting = Duration::from_secs(until.0.saturating_sub(utc.0).cast_unsigned());
        let made = E::key_package(&self.setup, kind, lasting, step(utc, &seed)).ok()?;
        let offered = Mls::<E>::offered_bytes(&made.public, &self.card);
        self.packages.retain(|it| it.until > utc);
        let most = if kind == PackageKind::LastResort { LAST_RESORTS_KEPT } else { SINGLE_USE_KEPT };
        if self.packages.iter().filter(|it| it.kind == kind).count() >= most
            && let Some(oldest) = self.packages.iter().position(|it| it.kind == kind)
        {
            self.packages.remove(oldest);
        }
        let (secret, reference) = (made.secret, made.reference);
        self.packages.push(OwnPackage { secret, reference, kind, until, is_used: false });
        Some(self.sealed(&offered))
    }

    /// Comes in by a Welcome, if it is for a package of ours. A single-use one is marked as used first: its secret must
    /// neither be gone before the group's state is stored, nor stay behind.
    pub(super) fn join_by_package(&mut self, opening: &[u8], tree: &[u8], utc: Utc) -> Option<E> {
        let whom = E::inspect_welcome(opening).ok()?;
        let package = self.packages.iter_mut().rev().find(|it| whom.contains(&it.reference))?;
        let engine = E::join(&self.setup, opening, tree, &package.secret, utc).ok()?.engine;
        if package.kind == PackageKind::SingleUse {
            package.is_used = true;
            self.store_run();
        }
        Some(engine)
    }

    /// The group's state is stored, or was by the run before: what led to it is erased.
    pub(super) fn erase_used(&mut self) {
        let before = self.packages.len();
        self.packages.retain(|it| !it.is_used);
        if self.packages.len() < before {
            self.store_run();
        }
    }

    /// Asks the directory for what members left for us.
    pub(super) fn ask_for_mail(&mut self, now: Now) {
        if self.config.directory {
            self.fetch(now, Fetch::Mail(self.me.hash));
        }
    }
}

#[cfg(test)]
impl<E: Engine> Mls<E> {
    /// How many single-use secrets, and last resorts, wait for a Welcome.
    pub(super) fn packages_kept(&self) -> (usize, usize) {
        let single_use = self.packages.iter().filter(|it| it.kind == PackageKind::SingleUse).count();
        (single_use, self.packages.len() - single_use)
    }
}

/// Single-use packages that a directory has of a device; below half of them it gets more.
const SINGLE_USE: usize = 16;
/// Those whose Welcome may come. A directory that forgot some was given others.
const SINGLE_USE_KEPT: usize = 2 * SINGLE_USE;
/// The one that is offered, and that of the run before.
const LAST_RESORTS_KEPT: usize = 2;
pub(super) const PACKAGE_LASTS: Duration = Duration::from_secs(90 * 24 * 3600);
/// How often a device that waits looks how many are left.
const OFFER_EVERY: Duration = Duration::from_secs(3600);
