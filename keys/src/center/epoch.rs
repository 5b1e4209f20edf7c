//! An epoch's secrets: drawn by the leader, taken in by members, and the view that they are installed as.
//!
//! ```text
//! PROPOSE: lock = H(nonce, commitments)       commitment of ring r = HKDF(secret r, change, "com", r)
//! COMMIT:  transcript = H(proposal, cut, commitments)        epoch id = counter ‖ its first 8 bytes (A13)
//!          entry of a slot = AEAD(pair key and transcript; secrets of its rings ‖ sending keys where it only writes)
//! secret of a ring ── HKDF(change, "next", nonce, r) ──▶ secret of a ring of the next epoch, where somebody joined and nobody went
//! secret of a ring ── HKDF(epoch, "domain", d) ──▶ secret of a domain
//! ```
//! A change is *one-way* if it only lets newcomers in: members of its base derive the next secrets, newcomers get them sealed and
//! learn nothing of those before. Where somebody goes, parts of a group merge, or a new key is wanted, all is drawn afresh: who
//! knows an old secret derives nothing of it. A change binds leader, base and roster, and the signature of PROPOSE vouches for the lock.

use std::sync::Arc;

use rand_core::Rng as _;
use sealcast_crypto::identity::Rights;
use sealcast_crypto::kdf::hkdf;
use sealcast_crypto::secret::Secret;
use sealcast_wire::{
    Access, Address, CertHash, Change, Domain, Dropped, EpochId, Member, MemberId, Now, Protect, Roster, Slot, View,
    limits,
};

use super::lead::SIGNS_HOLD_DETECTS;
use super::message::{Commit, Content, Gone, Message, lock};
use super::pair::PairKey;
use super::{Center, Installed, Phase, Timer};
use crate::Output;
use crate::compartments::{Slots, Table};
use crate::epoch::{EpochKeys, Parts, sending_key};

/// What the epoch of a proposal is to one slot.
pub(super) struct Taken {
    pub(super) epoch: EpochId,
    cut: [u8; 32],
    /// By ring; `None` where the slot is not in it.
    pub(super) rings: Vec<Option<Secret<32>>>,
    /// Sending keys of domains that the slot writes and does not read.
    pub(super) own: Vec<(Domain, Secret<32>)>,
}

/// The secrets of an epoch that its leader proposes.
pub(super) struct Drawn {
    pub(super) table: Table,
    rings: Vec<Secret<32>>,
    pub(super) nonce: Option<[u8; 32]>,
    commitments: Vec<[u8; 32]>,
}

/// An epoch as its leader made it.
pub(super) struct Made {
    /// Without entries.
    pub(super) commit: Commit,
    /// By slot; empty where there is none.
    pub(super) entries: Vec<Vec<u8>>,
    pub(super) mine: Taken,
}

/// Makes an epoch's secrets, and locks the proposal to them: `one_way` from those of the epoch in use if that may be, else afresh.
pub(super) fn draw(center: &mut Center, content: &mut Content, table: Table, one_way: bool) -> Drawn {
    let change = content.change();
    let base = center.installed.as_ref().filter(|it| one_way && it.epoch == content.base && it.slots.len() > 1);
    let sources = base.and_then(|base| sources((&base.table, &base.slots), (&table, &content.slots)));
    let mut rings = Vec::new();
    let mut nonce = None;
    if let Some((base, sources)) = base.zip(sources) {
        let fresh = nonce.insert([0; 32]);
        center.rng.fill_bytes(fresh);
        let old = |from: Option<usize>| base.rings.get(from?)?.as_ref();
        // A leader that is in not all rings of its base cannot derive for the others.
        if sources.iter().all(|from| from.is_none() || old(*from).is_some()) {
            for (ring, from) in (0..).zip(&sources) {
                rings.push(match old(*from) {
                    Some(old) => next(old, &change, fresh, ring),
                    None => Secret::random(&mut center.rng),
                });
            }
        } else {
            nonce = None;
        }
    }
    if nonce.is_none() {
        rings = table.rings().iter().map(|_| Secret::random(&mut center.rng)).collect();
    }
    let commitments: Vec<[u8; 32]> =
        (0..).zip(&rings).map(|(ring, secret)| commitment(&change, ring, secret)).collect();
    content.lock = lock(nonce.as_ref(), &commitments);
    Drawn { table, rings, nonce, commitments }
}

/// Seals the secrets of each slot under its key. The leader's slot has no key; who derives has no entry: slots of `of_base` in a
/// one-way change that get no sending keys.
pub(super) fn make(
    center: &Center,
    content: &Content,
    drawn: &Drawn,
    cut: [u8; 32],
    keys: &[Option<PairKey>],
    of_base: &[bool],
) -> Made {
    let proposal = content.id();
    let Drawn { table, rings, nonce, commitments } = drawn;
    let commit = Commit { proposal, cut, nonce: *nonce, commitments: commitments.clone(), entries: Vec::new() };
    let transcript = commit.transcript();
    let epoch = id(content, &transcript);
    let taken = |slot: usize| {
        let in_ring = |(readers, secret): (&Slots, &Secret<32>)| readers.holds(slot).then(|| secret.clone());
        let run = content.slots[slot].incarnation;
        let own = only_writes(table, slot).map(|(domain, ring)| {
            let secret = domain_secret(epoch, domain, &rings[ring]);
            let of = (&*center.group, center.config.suite, epoch);
            (domain, sending_key(of, domain, (Slot(slot as u32), run), &secret))
        });
        Taken { epoch, cut, rings: table.rings().iter().zip(rings).map(in_ring).collect(), own: own.collect() }
    };
    let entry = |(slot, key): (usize, &Option<PairKey>)| {
        let Some(key) = key else { return Vec::new() };
        if nonce.is_some() && of_base[slot] && !has_sending_keys(table, slot) {
            return Vec::new();
        }
        let taken = taken(slot);
        let secrets = taken.rings.len() + taken.own.len();
        // No copy of it is left where it grew.
        let mut plaintext = zeroize::Zeroizing::new(Vec::with_capacity(32 * secrets));
        let secrets = taken.rings.iter().flatten().chain(taken.own.iter().map(|(_, key)| key));
        secrets.for_each(|secret| plaintext.extend_from_slice(secret.expose()));
        key.seal_entry(&transcript, &plaintext)
    };
    let entries = keys.iter().enumerate().map(entry).collect();
    Made { entries, mine: taken(0), commit }
}

/// Opens a slot's entry.
///
/// # Errors
/// [`Dropped::Auth`] if the key is not the one that sealed it, [`Dropped::Conflict`] if it is, and what it says is not what the
/// commitments say.
pub(super) fn take(
    content: &Content,
    table: &Table,
    commit: &Commit,
    slot: usize,
    (sealed, key): (&[u8], &PairKey),
) -> Result<Taken, Dropped> {
    let (transcript, change) = (commit.transcript(), content.change());
    let mut sealed = zeroize::Zeroizing::new(sealed.to_vec());
    let plaintext = key.open_entry(&transcript, &mut sealed).map_err(|_| Dropped::Auth)?;
    let mut secrets = plaintext.chunks_exact(32).map(|it| Secret::try_from(it).expect("32 bytes"));
    let mut rings = Vec::new();
    if commit.commitments.len() != table.rings().len() {
        return Err(Dropped::Conflict);
    }
    for ((ring, readers), said) in (0..).zip(table.rings()).zip(&commit.commitments) {
        if !readers.holds(slot) {
            rings.push(None);
            continue;
        }
        let secret = secrets.next().ok_or(Dropped::Conflict)?;
        if commitment(&change, ring, &secret) != *said {
            return Err(Dropped::Conflict);
        }
        rings.push(Some(secret));
    }
    let own = only_writes(table, slot).map(|(domain, _)| Some((domain, secrets.next()?)));
    let own = own.collect::<Option<_>>().ok_or(Dropped::Conflict)?;
    Ok(Taken { epoch: id(content, &transcript), cut: commit.cut, rings, own })
}

/// Derives a slot's secrets of a one-way change from those of its base.
///
/// # Errors
/// [`Dropped::Conflict`] if the change may not be one-way, or the commitments are not those of what is derived: only the leader
/// made them.
pub(super) fn derive(
    base: &Installed,
    content: &Content,
    table: &Table,
    commit: &Commit,
    (slot, nonce): (usize, &[u8; 32]),
) -> Result<Taken, Dropped> {
    let sources = sources((&base.table, &base.slots), (table, &content.slots)).ok_or(Dropped::Conflict)?;
    if commit.commitments.len() != table.rings().len() {
        return Err(Dropped::Conflict);
    }
    let change = content.change();
    let mut rings = Vec::new();
    for ((ring, readers), (from, said)) in (0..).zip(table.rings()).zip(sources.iter().zip(&commit.commitments)) {
        if !readers.holds(slot) {
            rings.push(None);
            continue;
        }
        // A ring that we are in has a source that we are in: it is its members who stay.
        let old = from.and_then(|from| base.rings.get(from)?.as_ref()).ok_or(Dropped::Conflict)?;
        let secret = next(old, &change, nonce, ring);
        if commitment(&change, ring, &secret) != *said {
            return Err(Dropped::Conflict);
        }
        rings.push(Some(secret));
    }
    Ok(Taken { epoch: id(content, &commit.transcript()), cut: commit.cut, rings, own: Vec::new() })
}

/// From which ring of its base each ring of a one-way change is derived: the one of just those of its readers who were there.
/// `None` for a ring of newcomers alone; `None` for all if the change cannot be one-way: somebody goes, or a ring parts.
fn sources((old, base): (&Table, &[MemberId]), (new, slots): (&Table, &[MemberId])) -> Option<Vec<Option<usize>>> {
    let places: Vec<usize> = places(base, slots).collect::<Option<_>>()?;
    let source = |readers: &Slots| {
        let were = |slot: usize| readers.holds(places[slot]);
        if !(0..places.len()).any(were) {
            return Some(None);
        }
        let same = |ring: &Slots| (0..places.len()).all(|slot| ring.holds(slot) == were(slot));
        old.rings().iter().position(same).map(Some)
    };
    new.rings().iter().map(source).collect()
}

/// Where each of some members is in another roster. Rosters have their members in one order, so that each is beside the one before.
pub(super) fn places(of: &[MemberId], slots: &[MemberId]) -> impl Iterator<Item = Option<usize>> {
    let mut next = 0;
    of.iter().map(move |who| {
        let at = if slots.get(next) == Some(who) { next } else { slots.iter().position(|it| it == who)? };
        next = at + 1;
        Some(at)
    })
}

/// A ring's secret in the next epoch, for who has the one before.
fn next(old: &Secret<32>, change: &[u8; 32], nonce: &[u8; 32], ring: u16) -> Secret<32> {
    hkdf(old.expose(), change, &[b"sealcast/v1/center/next", nonce, &ring.to_be_bytes()])
}

impl Center {
    /// The compartments of a proposal's slots, if all their registrations are here.
    pub(super) fn table_of(&self, content: &Content) -> Option<Table> {
        let rights = |who: &MemberId| Some(self.people.get(&who.cert)?.rights.clone());
        let rights: Vec<Arc<Rights>> = content.slots.iter().map(rights).collect::<Option<_>>()?;
        Some(Table::new(self.group.clone(), rights, None))
    }

    /// The epoch is in use.
    pub(super) fn enter(&mut self, now: Now, content: &Content, table: Table, taken: Taken, one_way: bool) {
        let me = Slot(content.slot_of(&self.me).expect("a member that enters has a slot") as u32);
        let Taken { epoch, cut, rings, own } = taken;
        let table = Arc::new(table);
        let secret_of = |domain: Domain| {
            let ring = rings[table.ring_of(domain)?].as_ref()?;
            Some(domain_secret(epoch, domain, ring))
        };
        let own_of = |domain: Domain| own.iter().find(|(it, _)| *it == domain).map(|(_, key)| key.clone());
        let known = |cert| &self.people.get(cert).expect("all registrations are here").registration;
        let keys: Arc<dyn Protect> = Arc::new(EpochKeys::new(Parts {
            group: self.group.clone(),
            suite: self.config.suite,
            epoch,
            me,
            members: Box::new(
                content.slots.iter().map(|it| (it.incarnation, known(&it.cert).key.clone())).collect::<Vec<_>>(),
            ),
            secrets: table.domains().map(secret_of).collect(),
            // A member that only writes was given the key that readers derive for it.
            readers: table.domains().map(|_| None).collect(),
            own: table.domains().map(own_of).collect(),
            signer: self.signer.clone(),
            payload: None,
        }));
        let change = self.change_to(content);
        let members = self.roster_of(content);
        let of_base = self.installed.as_ref().map_or(content.slots.len() == 1, |it| it.epoch == content.base);
        let view = View::new(self.installed_members(), epoch, members.clone(), me, change);
        let view = view.after(if of_base { cut } else { [0; 32] });
        let before = self.installed.as_ref();
        let slots = before.map_or(&[][..], |it| &it.slots);
        let since = |at: Option<usize>| at.zip(before).map_or(epoch.counter, |(at, it)| it.since[at]);
        let since = places(&content.slots, slots).map(since).collect();
        let stays = slots.iter().zip(places(slots, &content.slots));
        let went: Vec<CertHash> = stays.filter(|(_, place)| place.is_none()).map(|(it, _)| it.cert).collect();
        if !view.came.is_empty() {
            self.grew = now.monotonic;
            self.others.take_if(|it| content.slots.contains(it));
        }
        let access: Arc<dyn Access> = table.clone();
        let (protect, view) = (keys, view);
        self.outputs.push_back(Output::Keyed {
            epoch,
            protect: protect.clone(),
            view: view.clone(),
            access: access.clone(),
            passed: false,
        });
        self.outputs.push_back(Output::Epoch { view, protect: Some(protect), access });
        let slots = content.slots.clone();
        self.installed = Some(Installed { epoch, slots, members, table, at: now.monotonic, since, rings });
        self.entered(now, content, went);
        // However often somebody joins, the time comes for a secret that nobody can derive.
        if !(one_way && self.timers.is_set(Timer::Rekey)) {
            self.timers.set(Timer::Rekey, now.monotonic + self.config.rekey_after);
        }
    }

    /// What was waited for came.
    fn entered(&mut self, now: Now, content: &Content, went: Vec<CertHash>) {
        (self.cut, self.prepared) = (Some([0; 32]), false);
        (self.follows, self.gathers, self.courts, self.towards) = (None, None, None, None);
        self.early.clear();
        self.overtook = None;
        (self.join_wait, self.joins) = (super::JOIN_RETRY, 0);
        for timer in [Timer::Flush, Timer::Ack, Timer::Form, Timer::Join] {
            self.timers.stop(timer);
        }
        let in_view = |cert: &_| content.slots.iter().any(|it| it.cert == *cert);
        self.going.retain(|cert, why| in_view(cert) && *why == Gone::Revoked);
        // A leader that may be revoked is looked up again before we follow it.
        went.into_iter().for_each(|cert| _ = self.good.remove(&cert));
        self.leads.entered(content, self.me);
        let revoked = content.slots.iter().map(|it| it.cert).filter(|cert| self.revoked.contains(cert));
        revoked.collect::<Vec<_>>().into_iter().for_each(|cert| self.goes(now, cert, Gone::Revoked));
        if self.leader() == Some(self.me) {
            // Those who are in learnt it by the change; others hear it as often as the group changes, and no more.
            if !self.timers.is_set(Timer::Beacon) {
                self.beacon(now);
            }
        } else {
            self.timers.stop(Timer::Beacon);
        }
        self.fetch_keys(now, &content.slots);
        self.plan(now, super::lead::GATHER);
        if self.phase == Phase::Leaving {
            self.wish(super::WishKind::Leave);
        }
    }

    pub(super) fn installed_members(&self) -> Option<&Roster> {
        self.installed.as_ref().map(|it| &it.members)
    }

    /// Who is in a change: made from the view in use, so that what stays is shared with it.
    pub(super) fn roster_of(&self, content: &Content) -> Roster {
        let name = |cert: &CertHash| self.people.get(cert).map(|it| it.registration.name.clone()).unwrap_or_default();
        let member = |it: &MemberId| Member { id: *it, name: name(&it.cert) };
        let base = self.installed.as_ref().map_or(&[][..], |it| &it.slots);
        let moved = content.slots.iter().enumerate().filter(|(slot, it)| base.get(*slot) != Some(it));
        let moved: Vec<(usize, &MemberId)> = moved.collect();
        match self.installed_members() {
            Some(before) if moved.len() * 2 < content.slots.len() => {
                let mut roster = before.clone();
                (content.slots.len()..base.len()).for_each(|slot| _ = roster.remove(Slot(slot as u32)));
                moved.into_iter().for_each(|(slot, it)| roster.insert(Slot(slot as u32), member(it)));
                roster
            }
            _ => content.slots.iter().map(member).collect(),
        }
    }

    pub(super) fn change_to(&self, content: &Content) -> Change {
        let Some(installed) = &self.installed else { return Change::Formed };
        let stays = |id: &sealcast_wire::MemberId| content.slots.iter().any(|it| it.cert == id.cert);
        let why = |id: &sealcast_wire::MemberId| {
            let said = content.why(&installed.slots, &id.cert).filter(|_| installed.epoch == content.base);
            match said.or(self.going.get(&id.cert).copied()) {
                Some(Gone::Left) => Change::Left,
                Some(Gone::Revoked) => Change::Evicted,
                Some(Gone::Silent | Gone::Replaced) | None => Change::Suspected,
            }
        };
        let went = installed.slots.iter().zip(places(&installed.slots, &content.slots));
        let went = went.filter(|(it, place)| place.is_none() && !stays(it)).map(|(it, _)| it);
        if let Some(worst) = went.map(why).max() {
            return worst;
        }
        let new = places(&content.slots, &installed.slots).filter(Option::is_none).count();
        match new {
            0 => Change::Rekeyed,
            n if n > installed.slots.len() || content.base != installed.epoch => Change::Merged,
            _ => Change::Joined,
        }
    }

    /// Tells what is coming, and has the view in use flushed for it.
    pub(super) fn prepare(&mut self, now: Now, proposal: &[u8; 32], content: &Content) {
        let epoch = id(content, proposal);
        (self.cut, self.flushing) = (None, epoch);
        self.timers.set(Timer::Flush, now.monotonic + limits::flush_within(content.slots.len()));
        self.prepared = true;
        let me = Slot(content.slot_of(&self.me).unwrap_or(0) as u32);
        let (members, change) = (self.roster_of(content), self.change_to(content));
        let waits = self.others.is_some() && now.monotonic.since(self.grew) < self.config.detect * SIGNS_HOLD_DETECTS;
        let view = View::new(self.installed_members(), epoch, members, me, change).waiting(waits);
        self.outputs.push_back(Output::Prepare { view, flush: sealcast_wire::Flush::Now });
    }

    /// Sends an epoch's entries, in datagrams of which each stands alone; to each its own, if they are many.
    pub(super) fn send_commit(&mut self, commit: &Commit, entries: &[(u16, Vec<u8>)], addresses: &[Option<Address>]) {
        let mut parts: Vec<Commit> = Vec::new();
        let mut bytes = usize::MAX;
        if entries.is_empty() && commit.nonce.is_some() {
            parts.push(commit.clone());
        }
        for (slot, sealed) in entries {
            if bytes.saturating_add(sealed.len() + 4) > COMMIT_BYTES {
                bytes = commit.commitments.len() * 32;
                parts.push(commit.clone());
            }
            bytes += sealed.len() + 4;
            parts.last_mut().expect("one was pushed").entries.push((*slot, sealed.clone()));
        }
        if parts.len() <= COMMITS_TO_ALL {
            return parts.into_iter().for_each(|part| self.send(&Message::Commit(part)));
        }
        // Many entries that concern one member each: whose address is known gets its own alone.
        for (slot, sealed) in entries {
            let part = Commit { entries: vec![(*slot, sealed.clone())], ..commit.clone() };
            self.send_to(addresses.get(usize::from(*slot)).copied().flatten(), &Message::Commit(part));
        }
    }
}

/// Whether a slot is given sending keys, which it cannot derive.
pub(super) fn has_sending_keys(table: &Table, slot: usize) -> bool {
    only_writes(table, slot).next().is_some()
}

/// Domains that a slot writes and does not read, and the rings that make their keys.
fn only_writes(table: &Table, slot: usize) -> impl Iterator<Item = (Domain, usize)> {
    let writes = move |domain: &Domain| table.writers_only(*domain).holds(slot);
    table.domains().filter(writes).filter_map(|domain| Some((domain, table.ring_of(domain)?)))
}

fn commitment(change: &[u8; 32], ring: u16, secret: &Secret<32>) -> [u8; 32] {
    *hkdf::<32>(secret.expose(), change, &[b"sealcast/v1/center/com", &ring.to_be_bytes()]).expose()
}

fn domain_secret(epoch: EpochId, domain: Domain, ring: &Secret<32>) -> Secret<32> {
    hkdf(ring.expose(), &epoch.to_bytes(), &[b"sealcast/v1/center/domain", &domain.0.to_be_bytes()])
}

fn id(content: &Content, transcript: &[u8; 32]) -> EpochId {
    let hash = u64::from_be_bytes(*transcript.first_chunk().expect("it has 32 bytes"));
    EpochId { counter: content.counter, hash }
}

/// Bytes of entries and commitments in one datagram.
const COMMIT_BYTES: usize = 1100;
/// Datagrams of entries that go to all.
const COMMITS_TO_ALL: usize = 4;
