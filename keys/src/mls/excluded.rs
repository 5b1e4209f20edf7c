//! Whom a member knows to be excluded, from this group or one before it.
//!
//! A group ends with its log: where a relay signed two of them, or lost the only one, members found another group elsewhere
//! (D2). Statements of eviction must not end with it. So each member keeps those that it knows beside the group's state, a
//! founder begins with them, and a member that enters a group which lacks some has them committed. Nobody seals while somebody
//! is still a member who is known to be excluded.

use std::sync::Arc;

use sealcast_crypto::identity::Verified;
use sealcast_crypto::identity::statement::Learned;
use sealcast_wire::codec::{Malformed, Reader, Writer};
use sealcast_wire::{Flush, Now, limits};

use super::certificates::Trust;
use super::committing::Wish;
use super::complaints::{Complaint, Proved};
use super::engine::{Engine, LeafIndex};
use super::judge::Extension;
use super::scheme::{Mls, Timer};
use crate::{Notice, Output};

impl<E: Engine> Mls<E> {
    /// Takes in statements; those that do not verify, or are of other groups, say nothing.
    pub(super) fn learn_statements(&mut self, statements: &[Vec<u8>]) {
        let mut complaints = Trust::new(&self.group);
        for bytes in statements {
            if let Some(it) = self.read_complaint(bytes) {
                complaints.complaints.insert(it);
                continue;
            }
            let mut one = Trust::new(&self.group);
            match Learned::verify(bytes, self.judge.anchor()) {
                Ok(Learned::Crl(crl)) => one.crl = Some(Arc::new(crl)),
                Ok(Learned::Eviction(it)) if it.eviction().group == *self.group => _ = one.evictions.insert(it),
                Ok(_) | Err(_) => continue,
            }
            self.known = self.known.with(&one);
        }
        self.known = self.known.with(&complaints);
    }

    fn read_complaint(&self, bytes: &[u8]) -> Option<Proved> {
        let mut r = Reader::new(bytes);
        let complaint = Complaint::read(&mut r).ok()?;
        r.end().ok()?;
        let accuser = complaint.verify(&self.group, self.judge.anchor())?;
        Some(Proved { complaint, accuser })
    }

    /// What a group that we found begins with.
    pub(super) fn first_extensions(&self) -> Vec<Extension> {
        if self.known.statements().is_empty() { Vec::new() } else { vec![self.known.extension()] }
    }

    /// An epoch is in use: what its group excludes is remembered, and what it does not know is committed.
    pub(super) fn remember(&mut self, now: Now) {
        let Some(inside) = self.inside() else { return };
        let Ok(trust) = self.judge.trust(&inside.engine.context().extensions) else { return };
        if self.compared.as_ref().is_none_or(|(with, _)| !Arc::ptr_eq(with, &trust)) {
            self.know(&trust);
            let lacks = trust.with(&self.known).extension() != trust.extension();
            self.compared = Some((trust.clone(), lacks));
        }
        let lacks = self.compared.as_ref().is_some_and(|(_, lacks)| *lacks);
        if lacks && !self.seeks(now) {
            self.wish(now, Wish::Exclude);
        }
        let judge = self.judge.clone();
        if lacks || self.inside_mut().is_some_and(|it| it.people.are_some_out(&judge, &trust)) {
            self.hold(now);
        }
    }

    /// A statement of ours, or that somebody knows: it counts whatever becomes of its commit. Whether it is new.
    pub(super) fn learn_now(&mut self, now: Now, statement: &[u8]) -> bool {
        let before = self.known.clone();
        self.learn_statements(&[statement.to_vec()]);
        let all = std::mem::replace(&mut self.known, before);
        let is_new = self.know(&all);
        if is_new {
            self.hold(now);
        }
        is_new
    }

    /// Remembers what some exclude; whether that is new.
    pub(super) fn know(&mut self, more: &Trust) -> bool {
        let all = self.known.with(more);
        let is_new = all.extension() != self.known.extension();
        if is_new {
            self.known = all;
            self.compared = None;
            self.outputs.push_back(Output::Store { id: STATEMENTS, record: write(&self.known.statements()) });
        }
        is_new
    }

    /// Publishers pause while an excluded one is a member: it reads what is sealed.
    pub(super) fn hold(&mut self, now: Now) {
        let excluded = self.excluded();
        if excluded.is_empty() {
            return;
        }
        let epoch = self.inside().map(|it| it.epoch).unwrap_or_default();
        if let Some(view) = self.view_without(epoch, &excluded) {
            self.outputs.push_back(Output::Prepare { view, flush: Flush::Later });
        }
        self.timers.sooner(Timer::Withheld, now.monotonic + self.paced(WITHHELD_AFTER));
    }

    /// Members other than we whom we know to be excluded.
    fn excluded(&self) -> Vec<LeafIndex> {
        let Some(inside) = self.inside() else { return Vec::new() };
        let own = inside.engine.own_leaf();
        let is_out = |it: &Verified| self.known.excludes(it);
        let out = inside.members.iter().filter(|(_, it)| is_out(it)).map(|(at, _)| LeafIndex(at.0));
        out.filter(|leaf| *leaf != own).collect()
    }

    /// Whether somebody of our group is known to be excluded.
    pub(super) fn has_excluded(&self) -> bool {
        !self.excluded().is_empty()
    }

    /// Somebody is to be removed and still is a member (D2): who orders may be withholding it.
    pub(super) fn removal_withheld(&mut self, now: Now) {
        let whom = self.excluded();
        if whom.is_empty() {
            return;
        }
        // What we were told, and found in no other group, our own one lacks.
        self.remember(now);
        let Some(inside) = self.inside() else { return };
        let names = whom.iter().filter_map(|leaf| inside.members.get(&super::scheme::slot(*leaf)));
        let certs: Vec<_> = names.map(|it| (it.hash, it.name.to_string())).collect();
        for (cert, name) in certs {
            let notice = Notice::RemovalWithheld { cert };
            self.outputs.push_back(Output::Notice { notice, about: Some(name) });
        }
        self.timers.set(Timer::Withheld, now.monotonic + self.paced(WITHHELD_AFTER) * 10);
    }
}

/// Statements of eviction and the revocation list that a run of a member stored; for runs in other groups of that name.
pub fn statements(stored: &[(u64, Vec<u8>)]) -> Vec<Vec<u8>> {
    let record = stored.iter().find(|(id, _)| *id == STATEMENTS);
    record.and_then(|(_, record)| read(record).ok()).unwrap_or_default()
}

fn write(statements: &[Vec<u8>]) -> Vec<u8> {
    let mut w = Writer::new();
    w.u8(VERSION);
    statements.iter().for_each(|it| _ = w.u32(it.len() as u32).raw(it));
    w.finish()
}

fn read(record: &[u8]) -> Result<Vec<Vec<u8>>, Malformed> {
    let mut r = Reader::new(record);
    if r.u8()? != VERSION || record.len() > 2 * limits::MLS_TRUST_BYTES_MAX {
        return Err(Malformed);
    }
    let mut statements = Vec::new();
    while r.remaining() > 0 {
        let length = r.u32()? as usize;
        statements.push(r.take(length)?.to_vec());
    }
    Ok(statements)
}

const VERSION: u8 = 1;
/// The record's number, beside those of `records`.
const STATEMENTS: u64 = 3;
/// From when on a removal that does not come to pass is told of.
const WITHHELD_AFTER: std::time::Duration = std::time::Duration::from_secs(30);
