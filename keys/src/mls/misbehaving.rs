//! A member whose program was changed, for tests and simulations elsewhere (feature `misbehaving`).
//!
//! What such a program says and ours does not is made with the codec, the engine and the keys of a member, so that it is
//! well-formed and signed.

use std::sync::Arc;

use rand_core::Rng as _;
use sealcast_wire::{CertHash, Now, Utc};

use super::certificates::{Certificates, Trust};
use super::committing::Wish;
use super::complaints::{About, Complaint};
use super::engine::mls_rs::MlsRs;
use super::engine::{Engine, LeafIndex, Plan, Propose, Take};
use super::judge::{Act, Claim, Credential, Extension, Judge, Refusal};
use super::message::{Card, EntryKind, Message};
use super::scheme::{Inside, Mls, Phase, step};

/// Judges who somebody is, and lets everybody do everything.
struct Lenient(Arc<Certificates>);

impl Judge for Lenient {
    fn identity(&self, credential: &Credential) -> Result<Vec<u8>, Refusal> {
        self.0.identity(credential)
    }

    fn admit(&self, _: &Claim, _: Utc, _: &[Extension]) -> Result<(), Refusal> {
        Ok(())
    }

    fn permit(&self, _: &Act<'_>) -> Result<(), Refusal> {
        Ok(())
    }
}

impl Mls<MlsRs> {
    /// Has a commit ordered whose path these members cannot open, or nobody else; it follows it itself.
    pub fn commit_bad_path(&mut self, now: Now, victims: Option<&[CertHash]>) {
        let Some(inside) = self.ready() else { return };
        let all = || inside.members.keys().map(|it| LeafIndex(it.0)).collect();
        let these = |certs: &[CertHash]| certs.iter().filter_map(|it| inside.leaf_of(it)).collect();
        let leaves: Vec<LeafIndex> = victims.map_or_else(all, these);
        inside.engine.spoil(&leaves);
        self.wish(now, Wish::Update);
        if let Some(inside) = self.inside_mut() {
            inside.engine.spoil(&[]);
        }
    }
}

impl<E: Engine> Mls<E> {
    /// From now on its engine lets everybody do everything: it makes commits that the others refuse.
    pub fn judge_nothing(&mut self) {
        self.setup.judge = Arc::new(Lenient(self.judge.clone()));
        if let Phase::Inside(inside) = &mut self.phase {
            let (checkpoint, tree) = (inside.engine.checkpoint(), inside.engine.tree());
            inside.engine = E::restore(&self.setup, &checkpoint, &tree).expect("its own state");
        }
    }

    /// Whether a message under the bootstrap key is a Welcome for somebody.
    pub fn is_welcome(&self, bootstrap_sealed: &[u8]) -> bool {
        let message = self.bootstrap_key.open(bootstrap_sealed).ok().and_then(|it| Message::read(&it).ok());
        matches!(message, Some(Message::Entry(entry)) if matches!(entry.kind, EntryKind::Welcome(_)))
    }

    /// Has void messages ordered: bytes that are no commit, a commit with a changed byte, one of an epoch that is not, parts
    /// of nothing, a card and a founding in another member's name.
    pub fn append_garbage(&mut self, now: Now) {
        let (utc, seed) = (self.utc(now), self.seed());
        let (mut garbage, whole) = (vec![0; 100], *self.seed().expose());
        self.rng.fill_bytes(&mut garbage);
        let own = self.card.clone();
        let Some(inside) = self.ready() else { return };
        let (epoch, extensions) = (inside.engine.context().epoch, inside.engine.context().extensions);
        let somebody = inside.roster.iter().map(|it| it.id).find(|it| *it != own.id).unwrap_or(own.id);
        let card = Card { id: somebody, run: u64::MAX, ..own };
        let Ok(made) = inside.engine.commit(&Plan::default(), step(utc, &seed)) else { return };
        let mut changed = made.message;
        let index = changed.len() * usize::from(garbage[0]) / 256;
        changed[index] ^= 1 + (garbage[1] & 0x7f);
        let commit =
            |epoch: u64, commit: Vec<u8>| Message::Commit { epoch, commit, cards: vec![card.clone()], why: Vec::new() };
        let part = Message::Part { epoch, whole, index: 0, count: 3, bytes: garbage.clone() };
        let messages = [
            commit(epoch, garbage.clone()),
            commit(epoch, changed),
            commit(epoch + 7, garbage.clone()),
            part,
            Message::Proposal { epoch, proposal: extensions.into_iter().next().map_or(garbage, |it| it.data) },
            Message::Found { group_id: whole, card: card.clone() },
            Message::Card(card.clone()),
        ];
        messages.iter().for_each(|it| _ = self.order(epoch, &it.write()));
    }

    /// Complains of all commits of others that it knows, each twice, and once in another member's name, and of commits that
    /// never were.
    pub fn complain_falsely(&mut self) {
        let mut all = self.commits_of_others();
        let other = self.inside().and_then(|it| it.members.values().find(|it| it.hash != self.me.hash));
        let other = other.map_or(Vec::new(), |it| it.der.to_vec());
        let never = all.last().map(|it| About { commit: [7; 32], ..*it });
        let earlier = all.last().map(|it| About { epoch: it.epoch.saturating_sub(1), ..*it });
        all.extend(never.into_iter().chain(earlier));
        for about in all {
            let complaint = Complaint::new(&self.group, &self.config.identity, about);
            let forged = Complaint { certificate: other.clone(), ..complaint.clone() };
            for it in [complaint.clone(), complaint, forged] {
                self.order(0, &Message::Complaint(it).write());
            }
        }
    }

    /// Has two commits of one epoch ordered, each of them twice. It follows neither, and has to come in anew.
    pub fn commit_twice(&mut self, now: Now) {
        for _ in 0..2 {
            let (utc, seed) = (self.utc(now), self.seed());
            let Some(inside) = self.ready() else { return };
            let epoch = inside.engine.context().epoch;
            let Ok(made) = inside.engine.commit(&Plan::default(), step(utc, &seed)) else { return };
            let message = Message::Commit { epoch, commit: made.message, cards: Vec::new(), why: Vec::new() }.write();
            self.order(epoch, &message);
            self.order(epoch, &message);
        }
    }

    /// Has commits ordered that it has no right to: one removes a member, one pretends that the authority revoked it, one
    /// removes it because it proposes so itself.
    pub fn remove_without_right(&mut self, now: Now, whom: CertHash) {
        let utc = self.utc(now);
        let seeds = [self.seed(), self.seed(), self.seed(), self.seed()];
        let group = self.group.clone();
        let Some(inside) = self.ready() else { return };
        let Some(leaf) = inside.leaf_of(&whom) else { return };
        let epoch = inside.engine.context().epoch;
        let others: Vec<LeafIndex> = inside.members.keys().map(|it| LeafIndex(it.0)).collect();
        let forged = Extension { data: b"\x00\x00\x00\x03crl\x00\x00".to_vec(), ..Trust::new(&group).extension() };
        let nothing = Take::Only(&[]);
        let plans = [
            Plan { remove: &[leaf], proposals: nothing, ..Plan::default() },
            Plan { extensions: Some(std::slice::from_ref(&forged)), proposals: nothing, ..Plan::default() },
            Plan { remove: &others, proposals: nothing, ..Plan::default() },
        ];
        let mut messages = Vec::new();
        for (plan, seed) in plans.iter().zip(&seeds) {
            if let Ok(made) = inside.engine.commit(plan, step(utc, seed)) {
                let commit = made.message;
                messages.push(Message::Commit { epoch, commit, cards: Vec::new(), why: Vec::new() });
            }
        }
        if let Ok(proposal) = inside.engine.propose(&Propose::Remove(leaf), step(utc, &seeds[3])) {
            messages.push(Message::Proposal { epoch, proposal });
        }
        messages.iter().for_each(|it| _ = self.order(epoch, &it.write()));
    }

    /// Has so many proposals of this epoch ordered.
    pub fn flood_proposals(&mut self, now: Now, count: usize) {
        for number in 0..count {
            let (utc, seed) = (self.utc(now), self.seed());
            let Some(inside) = self.ready() else { return };
            let epoch = inside.engine.context().epoch;
            let leaves: Vec<LeafIndex> = inside.members.keys().map(|it| LeafIndex(it.0)).collect();
            let own = inside.engine.own_leaf();
            let leaf = leaves[number % leaves.len()];
            let what = if leaf == own { Propose::Update } else { Propose::Remove(leaf) };
            if let Ok(proposal) = inside.engine.propose(&what, step(utc, &seed)) {
                self.order(epoch, &Message::Proposal { epoch, proposal }.write());
            }
        }
    }

    /// Has a commit ordered of all proposals that its engine knows, its own among them.
    pub fn commit_proposals(&mut self, now: Now) {
        let (utc, seed) = (self.utc(now), self.seed());
        let Some(inside) = self.ready() else { return };
        let epoch = inside.engine.context().epoch;
        if let Ok(made) = inside.engine.commit(&Plan { proposals: Take::All, ..Plan::default() }, step(utc, &seed)) {
            let message = Message::Commit { epoch, commit: made.message, cards: Vec::new(), why: Vec::new() };
            self.order(epoch, &message.write());
        }
    }

    /// A member that neither leaves its epoch nor has a commit under way.
    fn ready(&mut self) -> Option<&mut Inside<E>> {
        if self.pending.is_some() {
            return None;
        }
        self.inside_mut().filter(|it| it.entering.is_none())
    }
}
