//! What a member wants the group to commit, and its commit until the order says what became of it.

use std::sync::Arc;

use sealcast_crypto::identity::statement::{Eviction, Learned, SignedEviction};
use sealcast_crypto::identity::{Crl, TrustAnchor, Verified};
use sealcast_wire::codec::{Malformed, Reader, Writer};
use sealcast_wire::{CertHash, Flush, Now, View, limits};

use super::access::append_key;
use super::admitting::{Lasts, lasts};
use super::certificates::{CredentialKind, OVER_SECONDS, Trust};
use super::engine::{self, Engine, LeafIndex, Plan, Propose, Take};
use super::following::{Change, base_after};
use super::judge::Refusal;
use super::message::{Card, Message};
use super::scheme::{Mls, Refused, Requested, Timer, step};
use crate::{CommandError, Exclusion, Output, Token};

/// What we want the group to commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// Let in the holder of this key package, which runs as the card says.
    Add { package: Vec<u8>, card: Option<Card> },
    /// Renew our leaf.
    Update,
    /// Evict a member, by this statement.
    Evict(Box<SignedEviction>),
    /// Remove a member whose credential is `basic`: no statement can name it, and it may come back.
    Remove(CertHash),
    /// Exclude whom this list revokes.
    Revoke(Arc<Crl>),
    /// Remove those whom the group context excludes, and those who asked for it.
    Tidy,
    /// Have the group exclude whom we know to be excluded.
    Exclude,
}

impl Wish {
    pub(super) fn put(&self, w: &mut Writer) {
        match self {
            Wish::Add { package, card } => {
                w.u8(1).bytes16(package).u8(u8::from(card.is_some()));
                card.iter().for_each(|card| card.put(w));
            }
            Wish::Update => _ = w.u8(2),
            Wish::Evict(statement) => _ = w.u8(3).bytes16(statement.bytes()),
            Wish::Revoke(crl) => _ = w.u8(4).u32(crl.der().len() as u32).raw(crl.der()),
            Wish::Tidy => _ = w.u8(5),
            Wish::Exclude => _ = w.u8(6),
            Wish::Remove(cert) => _ = w.u8(7).raw(&cert.0),
        }
    }

    /// What [`Wish::put`] wrote, of a group whose members trust `anchor`.
    pub(super) fn read(r: &mut Reader<'_>, anchor: &TrustAnchor) -> Result<Wish, Malformed> {
        Ok(match r.u8()? {
            1 => {
                let package = r.bytes16(limits::OPEN_BYTES_MAX)?.to_vec();
                let card = if r.u8()? == 1 { Some(Card::read(r)?) } else { None };
                Wish::Add { package, card }
            }
            2 => Wish::Update,
            3 => {
                let statement = SignedEviction::verify(r.bytes16(limits::STATEMENT_BYTES_MAX)?, anchor);
                Wish::Evict(Box::new(statement.map_err(|_| Malformed)?))
            }
            4 => {
                let length = r.u32()? as usize;
                Wish::Revoke(Arc::new(Crl::verify(r.take(length)?, anchor).map_err(|_| Malformed)?))
            }
            5 => Wish::Tidy,
            6 => Wish::Exclude,
            7 => Wish::Remove(CertHash(r.array()?)),
            _ => return Err(Malformed),
        })
    }
}

/// Our commit, until the order has it.
pub(super) struct Pending {
    pub(super) tokens: Vec<Token>,
    /// Of which epoch.
    pub(super) epoch: u64,
    /// The message, and the commit in it.
    pub(super) message: Vec<u8>,
    pub(super) commit: Vec<u8>,
    pub(super) record: engine::Pending,
    pub(super) welcome: Option<Vec<u8>>,
    pub(super) wishes: Vec<Wish>,
    /// Whether publishers pause for it.
    pub(super) excludes: bool,
}

impl<E: Engine> Mls<E> {
    pub(super) fn command(&mut self, now: Now, command: Requested) -> Result<(), Refused> {
        let Some(inside) = self.inside() else { return Err(CommandError::NotReady) };
        match command {
            Requested::Rotate => self.wish(now, Wish::Update),
            Requested::Admit { cert } => self.admit(now, &[cert])?,
            Requested::Evict { cert, reason } => self.evict(now, &[(cert, reason)])?,
            Requested::Batch(all) => self.batch(now, all)?,
            Requested::Leave => {
                if inside.members.len() == 1 {
                    self.exclude(Exclusion::Left);
                } else {
                    self.leaving = true;
                    self.ask_to_leave(now);
                }
            }
            Requested::Learn(bytes) => {
                let learned = Learned::verify(&bytes, self.judge.anchor()).map_err(|_| CommandError::Invalid)?;
                match learned {
                    Learned::Eviction(it) if it.eviction().group == *self.group => {
                        self.learn_now(now, &bytes);
                        self.wish(now, Wish::Evict(Box::new(it)));
                    }
                    Learned::Eviction(_) => return Err(CommandError::Invalid),
                    // More than a group context holds.
                    Learned::Crl(crl) if crl.der().len() > limits::MLS_TRUST_BYTES_MAX / 2 => {
                        return Err(CommandError::Invalid);
                    }
                    Learned::Crl(crl) => {
                        self.learn_now(now, &bytes);
                        self.wish(now, Wish::Revoke(Arc::new(crl)));
                    }
                    // Compartments: a group has one set of readers.
                    Learned::Policy(_) => return Err(CommandError::Unsupported),
                }
            }
        }
        Ok(())
    }

    /// What can be done together takes one commit.
    fn batch(&mut self, now: Now, all: Vec<Requested>) -> Result<(), Refused> {
        let (mut admitted, mut evicted) = (Vec::new(), Vec::new());
        let mut others = Vec::new();
        for it in all {
            match it {
                Requested::Admit { cert } => admitted.push(cert),
                Requested::Evict { cert, reason } => evicted.push((cert, reason)),
                other => others.push(other),
            }
        }
        if !evicted.is_empty() {
            self.evict(now, &evicted)?;
        }
        if !admitted.is_empty() {
            self.admit(now, &admitted)?;
        }
        others.into_iter().try_for_each(|it| self.command(now, it))
    }

    /// Evicts members for these reasons, in one commit.
    fn evict(&mut self, now: Now, whom: &[(CertHash, String)]) -> Result<(), Refused> {
        let inside = self.inside().ok_or(CommandError::NotReady)?;
        if self.wishes.len() + whom.len() > limits::MLS_ADDED_MAX {
            return Err(CommandError::TooMuch);
        }
        let mut wishes = Vec::new();
        for (number, (cert, reason)) in (1..).zip(whom) {
            let (slot, _) = inside.roster.find(cert).ok_or(CommandError::NoSuchMember)?;
            let whom = inside.members.get(&slot).ok_or(CommandError::NoSuchMember)?;
            wishes.push(match self.config.credentials {
                CredentialKind::X509 => Wish::Evict(Box::new(self.evicts(whom, reason, number)?)),
                CredentialKind::Basic => Wish::Remove(*cert),
            });
        }
        for wish in &wishes {
            if let Wish::Evict(statement) = wish {
                self.learn_now(now, statement.bytes());
            }
        }
        self.wishes.extend(wishes);
        self.pursue(now);
        // What was asked for outlives a crash.
        self.store();
        Ok(())
    }

    /// A statement that evicts a member (A4): so many behind our last one in use.
    fn evicts(&self, whom: &Verified, reason: &str, behind: u64) -> Result<SignedEviction, Refused> {
        let inside = self.inside().ok_or(CommandError::NotReady)?;
        let trust = self.judge.trust(&inside.engine.context().extensions).map_err(|_| CommandError::Invalid)?;
        let last = |of: &Trust| of.evictions.last_number(Some(self.me.hash));
        let number = last(&trust).max(last(&self.known)) + behind;
        let statement = Eviction::new(&self.group, whom, number, reason);
        let denied = |_| CommandError::Denied("evict");
        let bytes = statement.sign_as_member(&self.config.identity, whom).map_err(denied)?;
        SignedEviction::verify(&bytes, self.judge.anchor()).map_err(denied)
    }

    pub(super) fn ask_to_leave(&mut self, now: Now) {
        let (utc, seed) = (self.utc(now), self.seed());
        let Some(inside) = self.inside_mut().filter(|it| it.entering.is_none()) else {
            return self.timers.set(Timer::Leave, now.monotonic + LEAVE_AGAIN);
        };
        let own = inside.engine.own_leaf();
        if let Ok(proposal) = inside.engine.propose(&Propose::Remove(own), step(utc, &seed)) {
            let epoch = inside.engine.context().epoch;
            // Sent again after a crash it would use a key twice.
            self.store();
            self.order(epoch, &Message::Proposal { epoch, proposal }.write());
        }
        self.timers.set(Timer::Leave, now.monotonic + LEAVE_AGAIN);
    }

    /// The key package and the card of a certificate's holder, if they are its own.
    pub(super) fn read_package(&self, cert: CertHash, bytes: &[u8]) -> Option<(Vec<u8>, Card)> {
        let opened = self.bootstrap_key.open(bytes).ok()?;
        let mut r = Reader::new(&opened);
        let package = r.bytes16(limits::OPEN_BYTES_MAX).ok()?.to_vec();
        let card = Card::read(&mut r).ok()?;
        r.end().ok()?;
        let whose = self.judge.verify(&E::inspect_key_package(&package).ok()?.claim).ok()?;
        let is_its_own = whose.hash == cert && card.id.cert == cert && card.check(&self.group, &whose.key).is_some();
        is_its_own.then_some((package, card))
    }

    /// What others fetch to let us in.
    pub(super) fn offered_bytes(package: &[u8], card: &Card) -> Vec<u8> {
        let mut w = Writer::new();
        card.put(w.bytes16(package));
        w.finish()
    }

    pub(super) fn wish(&mut self, now: Now, wish: Wish) {
        let under_way = self.pending.as_ref().is_some_and(|it| it.wishes.contains(&wish));
        if !self.wishes.contains(&wish) && !under_way && self.wishes.len() < limits::MLS_ADDED_MAX {
            self.wishes.push_back(wish);
        }
        self.pursue(now);
        // What was asked for outlives a crash.
        if self.wishes.iter().any(|it| !matches!(it, Wish::Update | Wish::Tidy)) {
            self.store();
        }
    }

    /// Commits the next wish, if nothing is under way; several who are to be let in come together, and so go the evicted.
    pub(super) fn pursue(&mut self, now: Now) {
        while self.pending.is_none() && self.inside().is_some_and(|it| it.entering.is_none()) {
            if let Some(wish) = self.alone.pop_front() {
                self.commit(now, vec![wish]);
                continue;
            }
            let Some(wish) = self.wishes.pop_front() else { return self.begin_lot(now) };
            let mut wishes = vec![wish];
            while let (Wish::Add { .. }, Some(Wish::Add { .. }))
            | (Wish::Evict(_), Some(Wish::Evict(_)))
            | (Wish::Remove(_), Some(Wish::Remove(_))) = (&wishes[0], self.wishes.front())
            {
                if wishes.len() >= limits::MLS_ADDED_MAX {
                    break;
                }
                wishes.extend(self.wishes.pop_front());
            }
            self.commit(now, wishes);
        }
    }

    /// Makes a commit of what is wished; what is fulfilled already, or refused, is passed over.
    fn commit(&mut self, now: Now, wishes: Vec<Wish>) {
        let (utc, seed) = (self.utc(now), self.seed());
        let (judge, known) = (self.judge.clone(), self.known.clone());
        let me = self.me.clone();
        // Others judge our leaf by clocks that differ from ours, and leave a margin.
        if judge.is_over(&self.me, 0) {
            return wishes.iter().for_each(|it| self.cannot(it, &engine::CommitError::Refused(Refusal::Time)));
        }
        let Some(inside) = self.inside_mut() else { return };
        let context = inside.engine.context();
        let Ok(trust) = judge.trust(&context.extensions) else { return };
        let has_clock = now.utc.is_some();
        let (mut add, mut cards, mut remove): (Vec<&[u8]>, Vec<Card>, Vec<LeafIndex>) = Default::default();
        let mut changed: Option<Trust> = None;
        let leaf_of = |inside: &super::scheme::Inside<E>, cert: &CertHash| {
            inside.roster.find(cert).map(|(slot, _)| LeafIndex(slot.0))
        };
        let own = inside.engine.own_leaf();
        // Whom we may not evict goes once the group context says so.
        let may = |it: &Verified| trust.excludes(it) || judge.may_remove(&me, it);
        for wish in &wishes {
            match wish {
                Wish::Add { package, card } => {
                    let Ok(said) = E::inspect_key_package(package) else { continue };
                    let known = judge.verify(&said.claim).map(|it| leaf_of(inside, &it.hash).is_some());
                    let full = inside.members.len() + add.len() >= limits::MLS_MEMBERS_MAX;
                    let valid = matches!(lasts(&said, utc, has_clock), Lasts::Now);
                    if known == Ok(false) && !full && valid {
                        add.push(package);
                        cards.extend(card.clone());
                    }
                }
                Wish::Update => {}
                Wish::Evict(statement) => {
                    let mut next = changed.take().unwrap_or_else(|| (*trust).clone());
                    if next.evictions.insert((**statement).clone()) == Ok(true) {
                        changed = Some(next);
                    }
                    let leaf = leaf_of(inside, &statement.eviction().certificate).filter(|leaf| *leaf != own);
                    let leaf =
                        leaf.filter(|leaf| inside.members.get(&super::scheme::slot(*leaf)).is_some_and(|it| may(it)));
                    remove.extend(leaf);
                }
                Wish::Remove(cert) => remove.extend(leaf_of(inside, cert).filter(|leaf| *leaf != own)),
                Wish::Revoke(crl) => {
                    if crl.replaces(trust.crl.as_deref()) == Ok(true) {
                        changed = Some(Trust { crl: Some(crl.clone()), ..(*trust).clone() });
                    }
                }
                Wish::Tidy => {
                    let is_out = |it: &Verified| trust.excludes(it) || judge.is_over(it, 2 * OVER_SECONDS);
                    let out = inside.members.iter().filter(|(_, it)| is_out(it));
                    remove.extend(out.map(|(slot, _)| LeafIndex(slot.0)).filter(|leaf| *leaf != own));
                }
                Wish::Exclude => {
                    let all = trust.with(&known);
                    if all.extension() != trust.extension() {
                        changed = Some(changed.take().unwrap_or((*trust).clone()).with(&all));
                    }
                    let out = inside.members.iter().filter(|(_, it)| all.excludes(it) && may(it));
                    remove.extend(out.map(|(slot, _)| LeafIndex(slot.0)).filter(|leaf| *leaf != own));
                }
            }
        }
        // Others' proposals could keep ours from being committed: those of members who leave are taken alone (D3).
        let leaves = |it: &engine::Proposed| it.what == engine::ProposedKind::Remove(it.by) && it.by != own;
        let proposals: Vec<engine::Proposed> = inside.engine.proposals().into_iter().filter(leaves).collect();
        let references: Vec<engine::Reference> = proposals.iter().map(|it| it.reference.clone()).collect();
        let is_idle = add.is_empty() && remove.is_empty() && changed.is_none() && proposals.is_empty();
        if is_idle && !wishes.contains(&Wish::Update) {
            return;
        }
        remove.sort();
        remove.dedup();
        // What is proposed for removal already is taken by reference.
        let proposed = |leaf: &LeafIndex| proposals.iter().any(|it| it.what == engine::ProposedKind::Remove(*leaf));
        remove.retain(|leaf| !proposed(leaf));
        let extensions = changed.map(|trust| {
            let others = context.extensions.iter().filter(|it| it.kind != super::certificates::TRUST).cloned();
            others.chain([trust.extension()]).collect::<Vec<_>>()
        });
        let excludes = !remove.is_empty() || !references.is_empty();
        let proposals = Take::Only(&references);
        let plan = Plan { add: &add, remove: &remove, extensions: extensions.as_deref(), proposals };
        let made = match inside.engine.commit(&plan, step(utc, &seed)) {
            Ok(made) => made,
            // What fails by itself cannot be done.
            Err(why) if wishes.len() == 1 => return self.cannot(&wishes[0], &why),
            // One of them may be at fault.
            Err(_) => return self.alone.extend(wishes),
        };
        let name = inside.epoch;
        let statement = wishes.iter().find_map(|it| if let Wish::Evict(it) = it { Some(it.bytes()) } else { None });
        let (epoch, why) = (context.epoch, statement.unwrap_or_default().to_vec());
        let commit = made.message.clone();
        let message = Message::Commit { epoch, commit: made.message, cards, why }.write();
        if excludes && let Some(view) = self.view_without(name, &remove) {
            // Nothing is sealed any more; where the view ends is not known yet.
            self.outputs.push_back(Output::Prepare { view, flush: Flush::Later });
        }
        let (record, welcome) = (made.pending, made.welcome);
        let tokens = Vec::new();
        self.pending = Some(Pending { tokens, epoch, message, commit, record, welcome, wishes, excludes });
        self.store();
        self.send_pending();
    }

    /// Has our commit ordered, or once more: of a message that comes twice the first one counts.
    pub(super) fn send_pending(&mut self) {
        let Some((epoch, message)) = self.pending.as_ref().map(|it| (it.epoch, it.message.clone())) else { return };
        let names = self.key_after_pending();
        let tokens = self.order_naming(names, epoch, &message);
        if let Some(pending) = &mut self.pending {
            pending.tokens = tokens;
        }
    }

    /// The key by which members append once our commit is in use: evicted ones cannot derive it.
    fn key_after_pending(&mut self) -> Option<[u8; 32]> {
        if !self.config.directory {
            return None;
        }
        let pending = self.pending.take()?;
        let base = self.inside_mut().and_then(|it| base_after(&mut it.engine, &pending.record));
        self.pending = Some(pending);
        base.map(|base| append_key(&base).public_bytes())
    }

    /// Nobody knows whether the order has our commit: it is sent once more.
    pub(super) fn send_pending_again(&mut self, now: Now) {
        if let Some(pending) = &mut self.pending {
            pending.tokens.clear();
        }
        let later = self.again(now);
        self.timers.sooner(Timer::Again, later);
    }

    /// The view without some members, as far as it is known before the order has the commit.
    pub(super) fn view_without(&self, epoch: sealcast_wire::EpochId, remove: &[LeafIndex]) -> Option<View> {
        let inside = self.inside()?;
        let mut roster = inside.roster.clone();
        let leavers = inside.leavers.iter().copied();
        remove.iter().copied().chain(leavers).for_each(|leaf| _ = roster.remove(super::scheme::slot(leaf)));
        let me = super::scheme::slot(inside.engine.own_leaf());
        let change = if remove.is_empty() { Change::Left } else { Change::Evicted };
        Some(View::new(self.shown.as_ref(), epoch, roster, me, change))
    }

    /// Our commit lost, or was not ordered: what it was for is still to be done.
    pub(super) fn give_up_pending(&mut self, now: Now) {
        let Some(pending) = self.pending.take() else { return };
        if pending.excludes {
            self.outputs.push_back(Output::Abandoned);
        }
        self.outputs.extend(pending.tokens.iter().copied().map(Output::Withdraw));
        pending.wishes.into_iter().rev().for_each(|it| self.wishes.push_front(it));
        self.store();
        let later = self.again(now);
        self.timers.sooner(Timer::Again, later);
    }

    /// Whether somebody is to be removed: members take turns, by an order that the epoch draws (D2, D3).
    pub(super) fn set_turn(&mut self, now: Now) {
        let judge = self.judge.clone();
        let accused = self.is_somebody_accused();
        let Some(inside) = self.inside_mut().filter(|it| it.entering.is_none()) else { return };
        let context = inside.engine.context();
        let out = judge.trust(&context.extensions).is_ok_and(|trust| inside.people.are_some_out(&judge, &trust));
        if inside.leavers.is_empty() && !out && !accused {
            return;
        }
        let rank =
            |slot: u32| sealcast_crypto::hash::sha256(&[&context.authenticator[..], &slot.to_be_bytes()].concat());
        let own = inside.engine.own_leaf();
        if inside.leavers.contains(&own) {
            return;
        }
        let stays = |slot: &u32| !inside.leavers.contains(&LeafIndex(*slot));
        let mine = rank(own.0);
        let before = inside.members.keys().map(|it| it.0).filter(stays).filter(|it| rank(*it) < mine).count();
        let wait = self.paced(TURN) * u32::try_from(before).unwrap_or(u32::MAX).min(TURNS_MAX);
        self.timers.set(Timer::Turn, now.monotonic + wait);
    }

    pub(super) fn take_turn(&mut self, now: Now) {
        self.exclude_accused(now);
        self.wish(now, Wish::Tidy);
        self.set_next_turn(now);
    }

    /// Those whose turn it is may be away.
    fn set_next_turn(&mut self, now: Now) {
        if self.pending.is_none() && self.inside().is_some_and(|it| !it.leavers.is_empty() && it.entering.is_none()) {
            self.timers.sooner(Timer::Turn, now.monotonic + self.paced(TURN) * TURNS_MAX);
        }
    }
}

/// From one member's turn to the next one's.
const TURN: std::time::Duration = std::time::Duration::from_millis(200);
const TURNS_MAX: u32 = 20;
const LEAVE_AGAIN: std::time::Duration = std::time::Duration::from_secs(2);
