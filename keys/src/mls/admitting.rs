//! Whom a member lets in: who asks for it, what it takes, and one commit for many.
//!
//! ```text
//! device ─ WANT(admission) ─▶ members note it       member ─ SEEK(certificate) ─▶ device ─ PACKAGE ─▶ a name to be shown
//! ADMIT … ─ key packages, a lot at a time ─▶ one commit with all of the lot ─▶ order ─▶ ENTRY(Welcome) and mail for each
//! ```
//! So many devices take as many commits as they fill lots, not as there are devices. What keeps one of them out is found
//! before the commit: a commit that fails is tried again for each alone.

use std::collections::{BTreeSet, VecDeque};

use sealcast_wire::{CertHash, Fetch, Now, To, Utc, limits};

use super::access::entered;
use super::committing::Wish;
use super::engine::{CommitError, Engine, KeyPackage};
use super::judge::Judge as _;
use super::message::{Annex, Card, Entry, EntryKind, Message, Sought};
use super::scheme::{Mls, Refused};
use crate::{CommandError, NotAdmitted, Notice, Output, PendingStatus};

/// Devices that are to be let in.
#[derive(Default)]
pub(super) struct Admission {
    /// Those whose turn has not come.
    waits: VecDeque<CertHash>,
    /// Those of this lot whose key packages are being fetched.
    fetching: BTreeSet<CertHash>,
    /// Those of this lot whose key packages are here.
    ready: Vec<Wish>,
}

impl<E: Engine> Mls<E> {
    // ---- who asks ------------------------------------------------------------------------------

    /// A device asks to be let in: noted, unless it is a member already. Whether it is one.
    pub(super) fn hear_request(&mut self, now: Now, cert: CertHash) -> bool {
        let Some(inside) = self.inside() else { return false };
        if inside.leaf_of(&cert).is_some() {
            return true;
        }
        let asked = &mut self.shared.asked;
        if asked.len() >= limits::MLS_PACKAGES_KEPT_MAX && !asked.contains_key(&cert) {
            let oldest = asked.iter().min_by_key(|(_, at)| **at).map(|(cert, _)| *cert);
            oldest.map(|it| asked.remove(&it));
        }
        asked.insert(cert, now.monotonic);
        false
    }

    /// The devices that asked, as far as their certificates are known; the others are asked for theirs.
    pub(super) fn pending_devices(&mut self, now: Now) -> (Vec<PendingStatus>, usize) {
        let Some(inside) = self.inside() else { return Default::default() };
        let trust = self.judge.trust(&inside.engine.context().extensions);
        let members: BTreeSet<CertHash> = inside.members.values().map(|it| it.hash).collect();
        self.shared.asked.retain(|cert, _| !members.contains(cert));
        let mut pending = Vec::new();
        let mut unknown = Vec::new();
        for (cert, at) in self.shared.asked.clone() {
            let Some(package) = self.shared.package_of(&cert) else {
                unknown.push(cert);
                continue;
            };
            let read = self.read_package(cert, &package).and_then(|(package, _)| E::inspect_key_package(&package).ok());
            let Some(it) = read.and_then(|it| self.judge.verify(&it.claim).ok()) else { continue };
            if trust.as_ref().is_ok_and(|trust| !trust.excludes(&it)) {
                let heard = now.monotonic.since(at);
                let (name, not_after) = (it.name.to_string(), it.not_after.0);
                pending.push(PendingStatus { cert, name, serial: it.serial, not_after, heard });
            }
        }
        let unnamed = unknown.len();
        for cert in unknown {
            if self.may_answer(now, cert) {
                self.tell(To::Group, &Message::Seek(Sought::Package { cert, tries: 0 }));
            }
        }
        (pending, unnamed)
    }

    // ---- letting in ----------------------------------------------------------------------------

    /// Lets in the holders of these certificates, as soon as their key packages are here.
    pub(super) fn admit(&mut self, now: Now, certs: &[CertHash]) -> Result<(), Refused> {
        let inside = self.inside().ok_or(CommandError::NotReady)?;
        let is_new = |cert: &&CertHash| inside.leaf_of(cert).is_none() && !self.is_being_admitted(cert);
        let new: Vec<CertHash> = certs.iter().filter(is_new).copied().collect();
        if self.admission.waits.len() + new.len() > limits::MLS_MEMBERS_MAX {
            return Err(CommandError::TooMuch);
        }
        for cert in new {
            if !self.admission.waits.contains(&cert) {
                self.admission.waits.push_back(cert);
            }
        }
        self.begin_lot(now);
        Ok(())
    }

    fn is_being_admitted(&self, cert: &CertHash) -> bool {
        let pending = self.pending.iter().flat_map(|it| &it.wishes);
        let adds = |wish: &Wish| matches!(wish, Wish::Add { card: Some(card), .. } if card.id.cert == *cert);
        let Admission { waits, fetching, ready } = &self.admission;
        waits.contains(cert)
            || fetching.contains(cert)
            || ready.iter().chain(&self.wishes).chain(&self.alone).chain(pending).any(adds)
    }

    /// Fetches the key packages of the next ones, once those before them are in.
    pub(super) fn begin_lot(&mut self, now: Now) {
        let adds = |wish: &Wish| matches!(wish, Wish::Add { .. });
        if !self.admission.fetching.is_empty() || self.pending.is_some() || self.wishes.iter().any(adds) {
            return;
        }
        let count = self.admission.waits.len().min(limits::MLS_ADDED_MAX);
        let lot: Vec<CertHash> = self.admission.waits.drain(..count).collect();
        // What is here already answers at once, and the last answer ends the lot.
        self.admission.fetching.extend(&lot);
        for cert in lot {
            self.fetch(now, Fetch::KeyPackage(cert));
            if !self.is_fetching(&Fetch::KeyPackage(cert)) {
                self.package_missing(now, cert);
            }
        }
    }

    /// A key package that we asked for.
    pub(super) fn package_came(&mut self, now: Now, cert: CertHash, bytes: &[u8]) {
        if !self.admission.fetching.remove(&cert) {
            return;
        }
        match self.judge_package(now, cert, bytes) {
            Ok((package, card)) => self.admission.ready.push(Wish::Add { package, card: Some(card) }),
            Err(why) => self.not_admitted(cert, why),
        }
        self.end_lot(now);
    }

    /// There is none; that which the device itself sent, if it did, is as good.
    pub(super) fn package_missing(&mut self, now: Now, cert: CertHash) {
        match self.shared.package_of(&cert) {
            Some(bytes) => self.package_came(now, cert, &bytes),
            None if self.admission.fetching.remove(&cert) => {
                self.not_admitted(cert, NotAdmitted::NoPackage);
                self.end_lot(now);
            }
            None => {}
        }
    }

    fn end_lot(&mut self, now: Now) {
        if !self.admission.fetching.is_empty() {
            return;
        }
        let ready = std::mem::take(&mut self.admission.ready);
        if ready.is_empty() {
            return self.begin_lot(now);
        }
        self.wishes.extend(ready);
        self.pursue(now);
        // What was asked for outlives a crash.
        self.store();
    }

    /// What a commit would be refused for, and what nobody but its author judges.
    fn judge_package(&mut self, now: Now, cert: CertHash, bytes: &[u8]) -> Result<(Vec<u8>, Card), NotAdmitted> {
        let utc = self.utc(now);
        let (package, card) = self.read_package(cert, bytes).ok_or(NotAdmitted::Unfit)?;
        let said = E::inspect_key_package(&package).map_err(|_| NotAdmitted::Unfit)?;
        if said.suite != self.setup.suite.number() {
            return Err(NotAdmitted::Unfit);
        }
        // RFC 9420, section 7.3: who sends it judges this; those who read the commit cannot all do so alike.
        match lasts(&said, utc, now.utc.is_some()) {
            Lasts::Now => {}
            Lasts::NoMore => return Err(NotAdmitted::Expired),
            Lasts::NotYet => return Err(NotAdmitted::Unfit),
        }
        let whose = self.judge.verify(&said.claim).map_err(|_| NotAdmitted::Refused)?;
        if self.judge.is_over(&whose, 0) {
            return Err(NotAdmitted::Refused);
        }
        let inside = self.inside().ok_or(NotAdmitted::Refused)?;
        if inside.members.len() + self.admission.ready.len() >= limits::MLS_MEMBERS_MAX {
            return Err(NotAdmitted::Full);
        }
        let extensions = inside.engine.context().extensions;
        self.judge.admit(&said.claim, utc, &extensions).map_err(|_| NotAdmitted::Refused)?;
        Ok((package, card))
    }

    fn not_admitted(&mut self, cert: CertHash, why: NotAdmitted) {
        let read = self.shared.package_of(&cert).and_then(|bytes| self.read_package(cert, &bytes));
        let said = read.and_then(|(package, _)| E::inspect_key_package(&package).ok());
        let name = said.and_then(|it| Some(self.judge.verify(&it.claim).ok()?.name.to_string()));
        self.outputs.push_back(Output::Notice { notice: Notice::NotAdmitted { cert, why }, about: name });
    }

    /// A wish that was committed alone cannot be fulfilled.
    pub(super) fn cannot(&mut self, wish: &Wish, why: &CommitError) {
        if let Wish::Add { card: Some(card), .. } = wish {
            let why = if let CommitError::Refused(_) = why { NotAdmitted::Refused } else { NotAdmitted::Unfit };
            self.not_admitted(card.id.cert, why);
        }
    }

    // ---- Welcomes ------------------------------------------------------------------------------

    /// Lets in those whom a commit of ours added. They get the same, and it is made once.
    pub(super) fn let_in(&mut self, now: Now, whom: &[CertHash], welcome: &[u8], by_mail: bool) {
        let Some(inside) = self.inside() else { return };
        let (counter, epoch) = (inside.epoch.counter, inside.engine.context().epoch);
        let (position, founded, cut) = (inside.position, inside.founded, inside.cut);
        let mac = entered(&inside.base, (counter, position, founded), &cut, &inside.cards.digest());
        let (tree, cards) = (inside.engine.tree(), inside.cards.values().cloned().collect());
        let annex = self.body(&Annex { opening: welcome.to_vec(), tree, cards }.write());
        for to in whom.iter().copied() {
            let annex = annex.clone();
            let entry = Entry { to, counter, epoch, position, founded, cut, annex, kind: EntryKind::Welcome(mac) };
            if by_mail && self.config.directory {
                let bytes = self.sealed(&Message::Entry(entry.clone()).write());
                self.outputs.push_back(Output::Provide { what: Fetch::Mail(to), bytes });
            }
            self.tell_entry(now, To::Group, entry);
        }
    }

    /// A message that somebody left for us: a Welcome, or nothing of use.
    pub(super) fn mail_came(&mut self, now: Now, bytes: &[u8]) {
        let opened = self.bootstrap_key.open(bytes).ok();
        self.take_mail(now, opened.and_then(|it| Message::read(&it).ok()));
    }
}

/// Whether a key package is valid.
pub(super) enum Lasts {
    NotYet,
    Now,
    NoMore,
}

/// Judges a key package's lifetime at this time, which without a clock is a date that has passed: nothing is too early (G5).
pub(super) fn lasts(package: &KeyPackage, utc: Utc, has_clock: bool) -> Lasts {
    match package {
        it if it.until <= utc => Lasts::NoMore,
        it if has_clock && utc < it.from => Lasts::NotYet,
        _ => Lasts::Now,
    }
}
