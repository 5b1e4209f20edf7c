//! A scheme with the shape of MLS (RFC 9420) over an order: members commit changes on the ordered channel, of which the
//! first valid one wins an epoch, let others in with a Welcome beside it, and come back after a crash.
//!
//! ```text
//! joiner   ─ Offer(key package)                            Want ─▶ ◀─ Welcome ─┐ after
//! member   ─ Fetch(key package) ─ Store(pending) ─ Send(commit) ─ Ordered(7): the first for its epoch
//! racer    ─ Store(pending) ─ Send(commit) ─ another one for that epoch stood before it: void; commits again
//! ```
//! It is flat instead of a tree and authenticates commits by a MAC under the old secret. A commit names what it changes; a
//! member keeps its slot for good, and its view shares the roster with the view before. Where somebody goes, all others get
//! a fresh secret, of a large group in pieces that each fetches its own of; whoever only comes gets the new secret with
//! its Welcome, and fetches the roster. Enough to show that traits, join and simulator fit; no more.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_core::SeedableRng;
use sealcast_crypto::hash::sha256;
use sealcast_crypto::hpke::{self, KeyPair, PublicKey};
use sealcast_crypto::kdf::hkdf;
use sealcast_crypto::secret::Secret;
use sealcast_keys::plain::Everything;
use sealcast_keys::{
    Command, CommandError, Exclusion, Fetches, HandleError, Input, Keys, Need, Output, Properties, Seal, SealError,
    Sealed, SendResult, Token,
};
use sealcast_sim::Records;
use sealcast_wire::{
    Agreement, CertHash, Change, Dropped, EpochId, Fetch, FetchId, Fetched, Flush, Guarantee, Incarnation, Lane,
    Malformed, Member, MemberId, Monotonic, Now, Reader, Roster, Slot, Source, To, View, Writer,
};

use super::protect::MockProtect;

/// The machine.
pub struct MlsShaped {
    leaf: Leaf,
    pair: KeyPair,
    rng: ChaCha8Rng,
    state: Option<State>,
    pending: Option<Pending>,
    /// The commit that won our epoch, until we have what leads to the next one.
    entering: Option<Entering>,
    wishes: VecDeque<Wish>,
    /// Commits that cannot be judged before a Welcome came, in their order.
    later: VecDeque<(u64, Vec<u8>)>,
    /// The position behind the last commit that was applied.
    position: u64,
    fetching: BTreeMap<FetchId, Fetch>,
    welcome: Option<Welcome>,
    /// The newest epoch that could not be followed from.
    left: u32,
    /// What our commits gave to those whom they added, who ask for it if it was lost.
    welcomes: VecDeque<(Vec<CertHash>, Vec<u8>)>,
    /// When we ask for ours, and how often we did.
    wanting: Option<(Monotonic, u32)>,
    /// Who added us.
    adder: CertHash,
    leaving: Option<Monotonic>,
    /// The roster that our application saw last.
    shown: Option<Roster>,
    out: bool,
    names: u64,
    outputs: VecDeque<Output>,
}

/// A member as commits name it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Leaf {
    id: MemberId,
    name: String,
    key: [u8; 32],
}

/// Where the group stands.
#[derive(Clone)]
struct State {
    epoch: EpochId,
    secret: Secret<32>,
    members: Members,
}

/// Who is in the group. Slots are lasting, and those of members that went are given to newcomers.
#[derive(Clone, Default)]
struct Members {
    roster: Roster,
    keys: BTreeMap<Slot, [u8; 32]>,
    free: BTreeSet<Slot>,
}

/// One thing that a commit changes.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Edit {
    /// Somebody is in from now on, and needs a Welcome.
    Add(Slot, Leaf),
    /// A member is in with another run.
    Update(Slot, Leaf),
    Remove(Slot),
}

/// Our own commit, until we hear what became of it.
struct Pending {
    token: Token,
    bytes: Vec<u8>,
    commit: Commit,
    path: Secret<32>,
    wishes: Vec<Wish>,
}

/// The first valid commit of our epoch. The next one's key follows from what was delivered before it, too.
struct Entering {
    /// Names the flush of the view that the commit ends.
    name: EpochId,
    /// Of the commit.
    hash: [u8; 32],
    by: CertHash,
    position: u64,
    edits: Vec<Edit>,
    /// The fresh secret, once we have it.
    path: Option<Secret<32>>,
    /// What was delivered in the view, once we know.
    cut: Option<[u8; 32]>,
    until: Monotonic,
}

/// What we want the group to commit.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Wish {
    Found,
    Add(Leaf),
    Remove(CertHash),
    Update,
}

/// Members with what is known of them, by slot.
type Leaves = Vec<(Slot, Leaf)>;

/// A Welcome whose roster is being fetched.
struct Welcome {
    epoch: EpochId,
    secret: Secret<32>,
    /// Of the commit that leads there.
    position: u64,
    pieces: Vec<([u8; 32], Option<Leaves>)>,
}

/// How a member is made.
pub struct Config {
    /// Its lasting name; its key pair follows from it.
    pub name: String,
    /// Whether it founds the group if there is none.
    pub founder: bool,
    /// Chance of this process.
    pub seed: [u8; 32],
}

impl MlsShaped {
    /// A process of this member, with what its disk holds.
    pub fn restore(config: Config, records: &Records) -> MlsShaped {
        let secret: Secret<32> = hkdf(config.name.as_bytes(), b"", &[b"sealcast/mock/pair"]);
        let pair = KeyPair::derive(&secret);
        let incarnation = Incarnation(config.seed[..16].try_into().expect("a seed has 32 bytes"));
        let id = MemberId { cert: cert(&config.name), incarnation };
        let leaf = Leaf { id, name: config.name, key: pair.public().0 };
        let mut machine = MlsShaped {
            outputs: VecDeque::from([Output::Provide { what: Fetch::KeyPackage(id.cert), bytes: leaf.bytes() }]),
            leaf,
            pair,
            rng: ChaCha8Rng::from_seed(config.seed),
            state: None,
            pending: None,
            entering: None,
            wishes: VecDeque::new(),
            later: VecDeque::new(),
            position: 0,
            fetching: BTreeMap::new(),
            welcome: None,
            left: 0,
            welcomes: VecDeque::new(),
            wanting: None,
            adder: CertHash::default(),
            leaving: None,
            shown: None,
            out: false,
            names: 0,
        };
        if let Some((position, state, pending)) = records.get(&RECORD).and_then(|r| read_record(r).ok()) {
            (machine.position, machine.state) = (position, state);
            // G4: a new process is a new incarnation, and the group must know it before we seal.
            machine.wishes.push_back(Wish::Update);
            if let Some((bytes, path)) = pending
                && let Ok(commit) = Commit::parse(&bytes)
            {
                // Who won? The same bytes again have the same position.
                machine.propose(bytes, commit, path, vec![Wish::Update]);
            }
        } else if config.founder {
            machine.wishes.push_back(Wish::Found);
        } else {
            machine.wanting = Some((Monotonic(0) + WANT_FIRST, 0));
        }
        machine.pursue();
        machine
    }

    /// The epoch that it stands in.
    pub fn epoch(&self) -> Option<EpochId> {
        self.state.as_ref().map(|s| s.epoch)
    }

    // ---- committing ----------------------------------------------------------------------------

    /// Commits the next wish, if none is under way; several who want in come in together.
    fn pursue(&mut self) {
        while self.pending.is_none() && self.entering.is_none() && !self.out {
            let Some(wish) = self.wishes.pop_front() else { return };
            let mut slots = self.state.as_ref().map(|s| s.members.vacant()).into_iter().flatten();
            let Some(edit) = self.wished(&wish, &mut slots) else { continue };
            let (mut wishes, mut edits) = (vec![wish], vec![edit]);
            while let Some(Wish::Add(_)) = self.wishes.front()
                && matches!(edits[0], Edit::Add(..))
                && edits.len() < JOINERS_MAX
            {
                let Some(wish) = self.wishes.pop_front() else { break };
                edits.extend(self.wished(&wish, &mut slots));
                wishes.push(wish);
            }
            self.commit(wishes, edits);
        }
    }

    /// What a wish changes; `None` if it is fulfilled or cannot be.
    fn wished(&self, wish: &Wish, slots: &mut impl Iterator<Item = Slot>) -> Option<Edit> {
        let Some(state) = &self.state else {
            return (*wish == Wish::Found).then(|| Edit::Update(Slot(0), self.leaf.clone()));
        };
        let slot_of = |cert: &CertHash| state.members.roster.find(cert).map(|(slot, _)| slot);
        match wish {
            Wish::Found => None,
            Wish::Add(leaf) if state.members.roster.contains(&leaf.id) => None,
            Wish::Add(leaf) => {
                let slot = slot_of(&leaf.id.cert).or_else(|| slots.next())?;
                Some(Edit::Add(slot, leaf.clone()))
            }
            Wish::Remove(cert) => slot_of(cert).map(Edit::Remove),
            Wish::Update => slot_of(&self.leaf.id.cert).map(|slot| Edit::Update(slot, self.leaf.clone())),
        }
    }

    fn commit(&mut self, wishes: Vec<Wish>, edits: Vec<Edit>) {
        let from = self.epoch().unwrap_or_default();
        let old = self.secret();
        let comes_only = edits.iter().all(|edit| matches!(edit, Edit::Add(..)));
        let path = if comes_only { Secret::from_bytes([0; 32]) } else { Secret::random(&mut self.rng) };
        let wraps = if comes_only { Wraps::Nobody } else { self.wrap(from, &edits, &path) };
        let commit = Commit { from, by: self.leaf.id.cert, edits, wraps };
        let mut bytes = commit.bytes();
        let mac: Secret<32> = hkdf(old.expose(), b"", &[b"sealcast/mock/commit", &bytes]);
        bytes.extend_from_slice(mac.expose());
        self.propose(bytes, commit, path, wishes);
    }

    /// A fresh secret for all who were in and stay.
    fn wrap(&mut self, from: EpochId, edits: &[Edit], path: &Secret<32>) -> Wraps {
        let Some(state) = &self.state else { return Wraps::Inside(Vec::new()) };
        let me = state.members.roster.find(&self.leaf.id.cert).map(|(slot, _)| slot);
        let gets_none = |slot: Slot| {
            Some(slot) == me || edits.iter().any(|e| matches!(e, Edit::Add(at, _) | Edit::Remove(at) if *at == slot))
        };
        let others = state.members.keys.iter().filter(|(slot, _)| !gets_none(**slot));
        let mut wraps: Vec<(Slot, Vec<u8>)> = Vec::new();
        for (slot, key) in others {
            let sealed = hpke::seal_to(&PublicKey(*key), INFO, &from.to_bytes(), path.expose(), &mut self.rng);
            wraps.push((*slot, sealed.expect("key packages hold good keys")));
        }
        if wraps.len() <= WRAPS_INSIDE_MAX {
            return Wraps::Inside(wraps);
        }
        let mut pieces = Vec::new();
        for some in wraps.chunks(PIECE_MEMBERS) {
            let mut w = Writer::new();
            put_wraps(&mut w, some);
            pieces.push((some[0].0, self.provide(w.finish())));
        }
        Wraps::Pieces(pieces)
    }

    /// Keeps something for those who fetch it by its hash.
    fn provide(&mut self, bytes: Vec<u8>) -> [u8; 32] {
        let hash = sha256(&bytes);
        self.outputs.push_back(Output::Provide { what: Fetch::Blob(hash), bytes });
        hash
    }

    /// Lets these into our state by the commit at a position.
    fn welcome(&mut self, joiners: &[Leaf], position: u64) {
        let Some(state) = self.state.clone() else { return };
        if joiners.is_empty() {
            return;
        }
        let members: Leaves = state.members.leaves().collect();
        let mut pieces = Writer::new();
        for some in members.chunks(PIECE_MEMBERS) {
            let mut w = Writer::new();
            put_members(&mut w, some);
            let piece = self.provide(w.finish());
            pieces.raw(&piece);
        }
        let pieces = pieces.finish();
        let mut plain = Writer::new();
        plain.raw(&state.epoch.to_bytes()).raw(state.secret.expose()).raw(&sha256(&pieces));
        for some in joiners.chunks(WELCOMED_TOGETHER) {
            let mut w = Writer::new();
            w.u8(WELCOME).u64(position);
            put_long(&mut w, &pieces).u16(some.len() as u16);
            for leaf in some {
                let sealed = hpke::seal_to(&PublicKey(leaf.key), INFO, b"welcome", plain.as_slice(), &mut self.rng);
                w.raw(&leaf.id.cert.0).bytes16(&sealed.expect("key packages hold good keys"));
            }
            let (token, bytes) = (self.token(), w.finish());
            self.send(token, Lane::Open, Guarantee::BestEffort, bytes.clone());
            if self.welcomes.len() >= LATER_MAX {
                self.welcomes.pop_front();
            }
            self.welcomes.push_back((some.iter().map(|l| l.id.cert).collect(), bytes));
        }
    }

    fn propose(&mut self, bytes: Vec<u8>, commit: Commit, path: Secret<32>, wishes: Vec<Wish>) {
        let token = self.token();
        if self.excludes(&commit.edits) {
            // Nothing is sealed any more; where the view ends is not known yet.
            let view = self.view_after(leads_to(commit.from, &sha256(&bytes)), &commit.edits);
            self.outputs.push_back(Output::Prepare { view, flush: Flush::Later });
        }
        let message = bytes.clone();
        self.pending = Some(Pending { token, bytes, commit, path, wishes });
        self.store();
        self.send(token, Lane::Open, Guarantee::Ordered, message);
    }

    fn send(&mut self, token: Token, lane: Lane, needs: Guarantee, bytes: Vec<u8>) {
        self.outputs.push_back(Output::Send { token, lane, needs, to: To::Group, after: None, names: None, bytes });
    }

    /// Our commit has this position: it wins its epoch if no valid one stands before it.
    fn ordered(&mut self, now: Now, position: u64) {
        let at = self.epoch().unwrap_or_default();
        if self.entering.is_some() {
            return; // another one stood before it, and ends its time
        }
        let Some(pending) = self.pending.take() else { return };
        if pending.commit.from != at {
            self.give_up(pending);
            self.store();
            return self.pursue();
        }
        let Pending { bytes, commit, path, .. } = pending;
        self.follow(now, position, commit, &bytes, Some(path));
    }

    /// What a commit of ours was for is still to be done.
    fn give_up(&mut self, pending: Pending) {
        if self.excludes(&pending.commit.edits) {
            self.outputs.push_back(Output::Abandoned);
        }
        pending.wishes.into_iter().rev().for_each(|wish| self.wishes.push_front(wish));
    }

    // ---- following -----------------------------------------------------------------------------

    fn hear_commit(&mut self, now: Now, position: u64, bytes: &[u8]) -> Result<(), Dropped> {
        let commit = Commit::parse(bytes).map_err(|_| Dropped::Malformed)?;
        if self.pending.as_ref().is_some_and(|p| p.bytes == bytes) {
            self.ordered(now, position);
            return Ok(());
        }
        // G1: outside we cannot verify anything; what stands behind the Welcome's commit is judged after it.
        if self.state.is_none() || self.entering.is_some() {
            if self.later.len() >= LATER_MAX {
                self.later.pop_front();
            }
            self.later.push_back((position, bytes.to_vec()));
            if self.state.is_none()
                && commit.edits.iter().any(|e| matches!(e, Edit::Add(_, leaf) if *leaf == self.leaf))
            {
                self.adder = commit.by;
                let soon = now.monotonic + WANT_AGAIN;
                self.wanting = Some(self.wanting.filter(|(at, _)| *at < soon).unwrap_or((soon, 0)));
            }
            return Ok(());
        }
        self.judge_commit(now, position, commit, bytes)
    }

    /// We cannot follow, and ask to be let in again.
    fn rejoin(&mut self, now: Now, adder: CertHash, tries: u32) {
        // A Welcome of what we could not follow may be said again.
        self.left = self.state.as_ref().map_or(self.left, |it| it.epoch.counter.max(self.left));
        (self.state, self.pending, self.entering, self.welcome) = (None, None, None, None);
        self.wishes.clear();
        self.adder = adder;
        self.wanting = Some((now.monotonic + WANT_AGAIN, tries));
    }

    /// A commit in the order: the first valid one of our epoch leads to the next, and a void one stops nobody.
    fn judge_commit(&mut self, now: Now, position: u64, commit: Commit, bytes: &[u8]) -> Result<(), Dropped> {
        let state = self.state.as_ref().ok_or(Dropped::NoKey)?;
        if commit.from.counter > state.epoch.counter {
            // Between the Welcome's commit and where our order begins stood another one.
            self.rejoin(now, commit.by, WANTS_OF_ADDER);
            self.later.push_back((position, bytes.to_vec()));
            return Ok(());
        }
        if commit.from != state.epoch {
            return Err(Dropped::Stale);
        }
        let (stated, mac) = bytes.split_at(bytes.len() - 32);
        let expect: Secret<32> = hkdf(state.secret.expose(), b"", &[b"sealcast/mock/commit", stated]);
        if mac != expect.expose() {
            return Err(Dropped::Auth);
        }
        let me = state.members.roster.find(&self.leaf.id.cert).map(|(slot, _)| slot);
        let Some(me) = me.filter(|slot| !commit.edits.contains(&Edit::Remove(*slot))) else {
            self.exclude(match self.leaving {
                Some(_) => Exclusion::Left,
                None => Exclusion::Evicted { reason: String::new() },
            });
            return Ok(());
        };
        let path = match &commit.wraps {
            Wraps::Nobody => Some(Secret::from_bytes([0; 32])),
            Wraps::Inside(wraps) => match self.unwrap(commit.from, me, wraps) {
                Some(path) => Some(path),
                // The others follow it, and we cannot: it lets us in anew, or its committer left us out.
                None => {
                    self.rejoin(now, commit.by, 0);
                    self.later.push_back((position, bytes.to_vec()));
                    return Ok(());
                }
            },
            Wraps::Pieces(pieces) => {
                let piece = pieces.iter().rev().find(|(first, _)| *first <= me).ok_or(Dropped::Malformed)?;
                self.fetch(Fetch::Blob(piece.1));
                None
            }
        };
        self.follow(now, position, commit, bytes, path);
        Ok(())
    }

    /// What was sealed to us of a fresh secret.
    fn unwrap(&self, from: EpochId, me: Slot, wraps: &[(Slot, Vec<u8>)]) -> Option<Secret<32>> {
        let (_, sealed) = wraps.iter().find(|(to, _)| *to == me)?;
        let path = self.pair.open(INFO, &from.to_bytes(), sealed).ok()?;
        Some(Secret::from_bytes(path.as_slice().try_into().ok()?))
    }

    /// This commit leads to the next epoch: the view ends at its position, and we enter once we have all that the next key
    /// follows from.
    fn follow(&mut self, now: Now, position: u64, commit: Commit, bytes: &[u8], path: Option<Secret<32>>) {
        let Commit { from, by, edits, .. } = commit;
        let hash = sha256(bytes);
        let name = leads_to(from, &hash);
        let view = self.view_after(name, &edits);
        self.outputs.push_back(Output::Prepare { view, flush: Flush::At(position) });
        let until = now.monotonic + ENTER_WAIT;
        self.entering = Some(Entering { name, hash, by, position, edits, path, cut: None, until });
    }

    fn flushed(&mut self, now: Now, epoch: EpochId, cut: [u8; 32]) {
        if let Some(entering) = self.entering.as_mut().filter(|it| it.name == epoch) {
            entering.cut = Some(cut);
            self.enter_if_ready(now);
        }
    }

    fn enter_if_ready(&mut self, now: Now) {
        let Some(Entering { hash, by, position, edits, path: Some(path), cut: Some(cut), .. }) =
            self.entering.take_if(|it| it.path.is_some() && it.cut.is_some())
        else {
            return;
        };
        let epoch = leads_to(self.epoch().unwrap_or_default(), &sha256(&[hash, cut].concat()));
        let secret = hkdf(path.expose(), self.secret().expose(), &[&epoch.to_bytes(), &cut]);
        let mut members = self.state.take().map_or_else(Members::default, |s| s.members);
        edits.iter().for_each(|edit| members.apply(edit));
        self.enter(State { epoch, secret, members }, position);
        if by == self.leaf.id.cert {
            let joiners = edits.into_iter().filter_map(|edit| match edit {
                Edit::Add(_, leaf) => Some(leaf),
                Edit::Update(..) | Edit::Remove(_) => None,
            });
            self.welcome(&joiners.collect::<Vec<_>>(), position);
        }
        self.judge_later(now, position);
    }

    /// Judges the commits that wait and stand behind a position.
    fn judge_later(&mut self, now: Now, position: u64) {
        for (at, bytes) in std::mem::take(&mut self.later).into_iter().filter(|(at, _)| *at > position) {
            // A void one stops nobody, and one of them may let us in again.
            _ = self.hear_commit(now, at, &bytes);
        }
        self.pursue();
    }

    fn hear_welcome(&mut self, now: Now, message: &[u8]) -> Result<(), Dropped> {
        let (position, pieces, sealed) = self.read_welcome(message).map_err(|_| Dropped::Malformed)?;
        let Some(sealed) = sealed else { return Ok(()) };
        if self.state.is_some() {
            return Err(Dropped::Stale);
        }
        let plain = self.pair.open(INFO, b"welcome", &sealed).map_err(|_| Dropped::Auth)?;
        let mut r = Reader::new(&plain);
        let (epoch, secret, hash) = (|| {
            let epoch = EpochId { counter: r.u32()?, hash: r.u64()? };
            Ok::<_, Malformed>((epoch, Secret::from_bytes(r.array()?), r.array::<32>()?))
        })()
        .map_err(|_| Dropped::Malformed)?;
        if sha256(&pieces.concat()) != hash {
            return Err(Dropped::Auth);
        }
        if epoch.counter <= self.left || self.welcome.as_ref().is_some_and(|w| w.epoch.counter >= epoch.counter) {
            return Err(Dropped::Stale);
        }
        pieces.iter().for_each(|piece| self.fetch(Fetch::Blob(*piece)));
        let pieces = pieces.into_iter().map(|hash| (hash, None)).collect();
        self.welcome = Some(Welcome { epoch, secret, position, pieces });
        self.join(now);
        Ok(())
    }

    /// Position and roster of a Welcome, and what is sealed to us in it.
    fn read_welcome(&self, message: &[u8]) -> Result<Opened, Malformed> {
        let mut r = Reader::new(message);
        r.u8()?;
        let position = r.u64()?;
        let (pieces, rest) = long(&mut r)?.as_chunks::<32>();
        let n = r.count16(34, WELCOMED_TOGETHER)?;
        let mut ours = None;
        for _ in 0..n {
            let (cert, sealed) = (CertHash(r.array()?), r.bytes16(512)?);
            if cert == self.leaf.id.cert {
                ours = Some(sealed.to_vec());
            }
        }
        r.end()?;
        if rest.is_empty() { Ok((position, pieces.to_vec(), ours)) } else { Err(Malformed) }
    }

    /// Enters by the Welcome, and judges what stands behind its commit.
    fn join(&mut self, now: Now) {
        let is_whole = |w: &mut Welcome| w.pieces.iter().all(|(_, members)| members.is_some());
        let Some(Welcome { epoch, secret, position, pieces }) = self.welcome.take_if(is_whole) else { return };
        let mut members = Members::default();
        for (slot, leaf) in pieces.into_iter().filter_map(|(_, members)| members).flatten() {
            members.apply(&Edit::Update(slot, leaf));
        }
        self.wishes.retain(|w| *w != Wish::Found);
        (self.wanting, self.fetching) = (None, BTreeMap::new());
        self.enter(State { epoch, secret, members }, position);
        self.judge_later(now, position);
    }

    /// Somebody was added and its Welcome was lost: whoever added it says it again, and if that one is gone, another one.
    fn hear_want(&mut self, source: &Source, message: &[u8]) -> Result<(), Dropped> {
        let mut r = Reader::new(message);
        let (adder, leaf, tries) = (|| {
            r.u8()?;
            Ok::<_, Malformed>((CertHash(r.array()?), Leaf::read(&mut r)?, r.u32()?))
        })()
        .map_err(|_| Dropped::Malformed)?;
        let Some(state) = self.state.as_ref().filter(|s| s.members.roster.contains(&leaf.id)) else { return Ok(()) };
        let span = state.members.roster.last().map_or(1, |(slot, _)| slot.0 + 1);
        let is_asked = |(_, member): &(Slot, &Member)| member.id == self.leaf.id;
        if adder == self.leaf.id.cert
            && let Some((_, bytes)) = self.welcomes.iter().rev().find(|(certs, _)| certs.contains(&leaf.id.cert))
        {
            let (bytes, token) = (bytes.clone(), self.token());
            // Nobody else has a use for it.
            let to = if let Source::Outside(from) = source { To::Peer(*from) } else { To::Group };
            let (lane, needs) = (Lane::Open, Guarantee::BestEffort);
            self.outputs.push_back(Output::Send { token, lane, needs, to, after: None, names: None, bytes });
        } else if tries >= WANTS_OF_ADDER
            && state
                .members
                .roster
                .find(&self.leaf.id.cert)
                .filter(is_asked)
                .is_some_and(|(at, _)| at.0 == tries % span)
        {
            self.welcome(&[leaf], self.position.saturating_sub(1));
        }
        Ok(())
    }

    /// A member asked to be removed; the lowest other one commits it.
    fn hear_leave(&mut self, source: &Source) -> Result<(), Dropped> {
        let (Some(state), Source::Inside { epoch, slot, .. }) = (&self.state, source) else {
            return Err(Dropped::Auth);
        };
        if *epoch != state.epoch {
            return Err(Dropped::Stale); // it asks again
        }
        let leaver = state.members.roster.get(*slot).ok_or(Dropped::Malformed)?.id.cert;
        let lowest = state.members.roster.iter().find(|m| m.id.cert != leaver);
        if lowest.is_some_and(|m| m.id == self.leaf.id) {
            self.wish(Wish::Remove(leaver));
        }
        Ok(())
    }

    /// A commit at this position leads there.
    fn enter(&mut self, state: State, position: u64) {
        self.position = position + 1;
        if let Some(pending) = self.pending.take() {
            // Another commit won.
            self.give_up(pending);
        }
        let (epoch, secret) = (state.epoch, state.secret.clone());
        let roster = state.members.roster.clone();
        self.state = Some(state);
        self.store();
        let Some((me, _)) = roster.find(&self.leaf.id.cert).filter(|(_, member)| member.id == self.leaf.id) else {
            // Our new incarnation is not known yet.
            if !self.wishes.contains(&Wish::Update) {
                self.wishes.push_back(Wish::Update);
            }
            return;
        };
        let change = self.change_to(&roster);
        let before = self.shown.replace(roster.clone());
        let view = View::new(before.as_ref(), epoch, roster, me, change);
        let protect = Some(Arc::new(MockProtect::new(&view, &secret)) as Arc<dyn sealcast_wire::Protect>);
        self.outputs.push_back(Output::Epoch { view, protect, access: Arc::new(Everything) });
    }

    /// What a roster changes of what our application sees.
    fn change_to(&self, roster: &Roster) -> Change {
        let Some(shown) = &self.shown else { return Change::Formed };
        if shown.without(roster).iter().any(|m| roster.find(&m.id.cert).is_none()) {
            Change::Evicted
        } else if roster.is_within(shown) {
            Change::Rekeyed
        } else {
            Change::Joined
        }
    }

    /// Whether this takes out somebody whom our application sees.
    fn excludes(&self, edits: &[Edit]) -> bool {
        let members = self.state.as_ref().map(|s| &s.members.roster);
        let goes = |slot: &Slot| {
            let cert = members.and_then(|m| m.get(*slot)).map(|m| m.id.cert);
            cert.is_some_and(|cert| self.shown.as_ref().is_some_and(|shown| shown.find(&cert).is_some()))
        };
        edits.iter().any(|edit| matches!(edit, Edit::Remove(slot) if goes(slot)))
    }

    /// The view that a commit leads to, also while the group knows our last run only.
    fn view_after(&self, epoch: EpochId, edits: &[Edit]) -> View {
        let mut roster = self.state.as_ref().map(|s| s.members.roster.clone()).unwrap_or_default();
        edits.iter().for_each(|edit| edit.change(&mut roster));
        let me = roster.find(&self.leaf.id.cert).map_or(Slot(0), |(slot, _)| slot);
        let change = self.change_to(&roster);
        View::new(self.shown.as_ref(), epoch, roster, me, change)
    }

    fn secret(&self) -> Secret<32> {
        self.state.as_ref().map_or_else(|| Secret::from_bytes([0; 32]), |s| s.secret.clone())
    }

    fn exclude(&mut self, why: Exclusion) {
        self.out = true;
        self.state = None;
        (self.pending, self.entering) = (None, None);
        self.wishes.clear();
        self.later.clear();
        self.leaving = None;
        self.store();
        self.outputs.push_back(Output::Excluded { why });
    }

    // ---- small things --------------------------------------------------------------------------

    fn wish(&mut self, wish: Wish) {
        let under_way = self.pending.as_ref().is_some_and(|p| p.wishes.contains(&wish));
        if !self.wishes.contains(&wish) && !under_way {
            self.wishes.push_back(wish);
        }
        self.pursue();
    }

    fn fetch(&mut self, what: Fetch) {
        if self.fetching.values().any(|w| *w == what) || self.fetching.len() >= LATER_MAX {
            return;
        }
        self.names += 1;
        let id = FetchId(self.names);
        self.fetching.insert(id, what.clone());
        self.outputs.push_back(Output::Fetch { id, what });
    }

    fn token(&mut self) -> Token {
        self.names += 1;
        Token(self.names)
    }

    /// One record for state and pending commit: torn between the two, either would be lost for good.
    fn store(&mut self) {
        let mut w = Writer::new();
        w.u64(self.position);
        match &self.state {
            Some(state) => put_state(w.u8(1), state),
            None => _ = w.u8(0),
        }
        match &self.pending {
            Some(p) => {
                put_long(w.u8(1).raw(p.path.expose()), &p.bytes);
            }
            None => {
                w.u8(0);
            }
        }
        self.outputs.push_back(Output::Store { id: RECORD, record: w.finish() });
    }
}

impl MlsShaped {
    fn hear(&mut self, now: Now, source: &Source, position: Option<u64>, message: &[u8]) -> Result<(), HandleError> {
        if self.out {
            return Err(Dropped::Stale.into());
        }
        Ok(match (message.first(), position) {
            (Some(&COMMIT), Some(position)) => self.hear_commit(now, position, message),
            (Some(&WELCOME), _) => self.hear_welcome(now, message),
            (Some(&LEAVE), _) => self.hear_leave(source),
            (Some(&WANT), _) => self.hear_want(source, message),
            // A commit that has no position decides nothing.
            (Some(_) | None, _) => Err(Dropped::Malformed),
        }?)
    }

    fn command(&mut self, now: Now, command: Command) -> Result<(), CommandError> {
        if self.state.is_none() {
            return Err(CommandError::NotReady);
        }
        match command {
            Command::Rotate => self.wish(Wish::Update),
            Command::Admit { cert } => self.fetch(Fetch::KeyPackage(cert)),
            Command::Evict { cert, .. } => self.wish(Wish::Remove(cert)),
            Command::Leave => self.leaving = Some(now.monotonic),
            Command::Learn(_) => return Err(CommandError::Unsupported),
            Command::Batch(all) => return all.into_iter().try_for_each(|it| self.command(now, it)),
        }
        Ok(())
    }

    fn outcome(&mut self, now: Now, token: Token, outcome: SendResult) {
        if self.pending.as_ref().is_none_or(|p| p.token != token) {
            return;
        }
        match outcome {
            SendResult::Ordered(position) => self.ordered(now, position),
            // Nobody knows its position, and so nobody follows it; what it was for is committed again.
            SendResult::Accepted | SendResult::InDoubt | SendResult::Failed => {
                if let Some(pending) = self.pending.take() {
                    self.give_up(pending);
                    self.store();
                }
            }
        }
    }

    fn fetched(&mut self, now: Now, id: FetchId, result: Fetched) {
        let Some(what) = self.fetching.remove(&id) else { return };
        let Fetched::Bytes(bytes) = result else {
            if let Fetch::Blob(_) = what {
                self.fetch(what);
            }
            return;
        };
        match what {
            Fetch::KeyPackage(cert) => {
                if let Ok(leaf) = Leaf::read(&mut Reader::new(&bytes))
                    && leaf.id.cert == cert
                {
                    self.wish(Wish::Add(leaf));
                }
            }
            Fetch::Blob(hash) => self.piece(now, hash, &bytes),
            Fetch::Shares { .. } | Fetch::Key | Fetch::Mail(_) => {}
        }
    }

    /// A piece of the roster that we are let in with, or the one that holds what is sealed to us.
    fn piece(&mut self, now: Now, hash: [u8; 32], bytes: &[u8]) {
        if let Some(welcome) = &mut self.welcome
            && let Some((_, members)) = welcome.pieces.iter_mut().find(|(piece, _)| *piece == hash)
        {
            *members = read_members(&mut Reader::new(bytes)).ok();
            return self.join(now);
        }
        let me = self.state.as_ref().and_then(|s| s.members.roster.find(&self.leaf.id.cert)).map(|(slot, _)| slot);
        let (Some(me), Some(Entering { path: None, by, .. })) = (me, &self.entering) else { return };
        let (by, from) = (*by, self.epoch().unwrap_or_default());
        let path = read_wraps(&mut Reader::new(bytes)).ok().and_then(|wraps| self.unwrap(from, me, &wraps));
        match (path, &mut self.entering) {
            (Some(path), Some(entering)) => {
                entering.path = Some(path);
                self.enter_if_ready(now);
            }
            (_, _) => self.rejoin(now, by, WANTS_OF_ADDER),
        }
    }

    fn suspect(&mut self, slot: Slot) {
        let cert = self.state.as_ref().and_then(|s| s.members.roster.get(slot)).map(|m| m.id.cert);
        if let Some(cert) = cert {
            self.wish(Wish::Remove(cert));
        }
    }
}

impl Keys for MlsShaped {
    fn properties(&self) -> Properties {
        Properties {
            messages: &[Need(Guarantee::Ordered, Agreement::Forkable)],
            fetches: Fetches { directory: true, shares: false },
            ..Properties::ANY
        }
    }

    fn handle(&mut self, now: Now, input: Input<'_>) -> Result<(), HandleError> {
        match input {
            Input::Message { source, position, bytes } => self.hear(now, source, position, bytes)?,
            Input::Command(command) => self.command(now, command)?,
            Input::Outcome(token, outcome) => self.outcome(now, token, outcome),
            Input::Fetched(id, result) => self.fetched(now, id, result),
            Input::Suspected(slot) => self.suspect(slot),
            Input::Slow(_) => {}
            Input::Flushed(epoch, cut) => self.flushed(now, epoch, cut),
            Input::Delivered(_) | Input::InForce(_) | Input::PackagesKept(_) | Input::Up | Input::Describe => {}
            Input::Passed(_) | Input::Ends => {}
        }
        Ok(())
    }

    fn seal(&mut self, _message: &Seal<'_>) -> Result<Sealed, SealError> {
        Err(SealError::PerDatagram)
    }

    /// It opens no whole messages.
    fn has_capacity(&self, _bytes: usize) -> bool {
        true
    }

    fn timeout(&self) -> Option<Monotonic> {
        let entering = self.entering.as_ref().map(|it| it.until);
        [self.leaving, entering, self.wanting.map(|(at, _)| at)].into_iter().flatten().min()
    }

    fn handle_timeout(&mut self, now: Now) {
        if self.leaving.is_some_and(|at| at <= now.monotonic) {
            self.leaving = Some(now.monotonic + LEAVE_AGAIN);
            let token = self.token();
            self.send(token, Lane::Control, Guarantee::BestEffort, vec![LEAVE]);
        }
        if let Some(Entering { by, .. }) = self.entering.take_if(|it| it.until <= now.monotonic) {
            // The others have a key that we do not come by.
            self.rejoin(now, by, WANTS_OF_ADDER);
        }
        if let Some((_, tries)) = self.wanting.filter(|(at, _)| *at <= now.monotonic) {
            self.wanting = Some((now.monotonic + WANT_AGAIN * (1 << tries.min(4)), tries + 1));
            let mut w = Writer::new();
            self.leaf.put(w.u8(WANT).raw(&self.adder.0));
            w.u32(tries);
            let token = self.token();
            self.send(token, Lane::Open, Guarantee::BestEffort, w.finish());
        }
    }

    fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }
}

/// The certificate hash of a mock member.
pub fn cert(name: &str) -> CertHash {
    CertHash(sha256(name.as_bytes()))
}

fn leads_to(from: EpochId, hash: &[u8; 32]) -> EpochId {
    EpochId { counter: from.counter + 1, hash: u64::from_be_bytes(hash[..8].try_into().expect("8 of 32 bytes")) }
}

/// A commit; its MAC, the last 32 bytes, is the caller's.
struct Commit {
    from: EpochId,
    by: CertHash,
    edits: Vec<Edit>,
    wraps: Wraps,
}

/// The fresh secret of a commit, sealed to each who gets it so.
enum Wraps {
    /// There is none.
    Nobody,
    Inside(Vec<(Slot, Vec<u8>)>),
    /// Each by the first slot that it holds something for; to be fetched by these hashes.
    Pieces(Vec<(Slot, [u8; 32])>),
}

/// Of a Welcome: position, the roster's pieces, what is sealed to us.
type Opened = (u64, Vec<[u8; 32]>, Option<Vec<u8>>);

impl Commit {
    fn parse(bytes: &[u8]) -> Result<Commit, Malformed> {
        let mut r = Reader::new(bytes);
        r.u8()?;
        let from = EpochId { counter: r.u32()?, hash: r.u64()? };
        let by = CertHash(r.array()?);
        let n = r.count16(5, JOINERS_MAX)?;
        let edits = (0..n).map(|_| Edit::read(&mut r)).collect::<Result<_, _>>()?;
        let wraps = match r.u8()? {
            0 => Wraps::Nobody,
            1 => Wraps::Inside(read_wraps(&mut r)?),
            2 => {
                let n = r.count16(36, usize::from(u16::MAX))?;
                let piece = |r: &mut Reader<'_>| Ok((Slot(r.u32()?), r.array()?));
                Wraps::Pieces((0..n).map(|_| piece(&mut r)).collect::<Result<_, Malformed>>()?)
            }
            _ => return Err(Malformed),
        };
        r.take(32)?;
        r.end()?;
        Ok(Commit { from, by, edits, wraps })
    }

    fn bytes(&self) -> Vec<u8> {
        let mut w = Writer::new();
        w.u8(COMMIT).raw(&self.from.to_bytes()).raw(&self.by.0).u16(self.edits.len() as u16);
        self.edits.iter().for_each(|edit| edit.put(&mut w));
        match &self.wraps {
            Wraps::Nobody => _ = w.u8(0),
            Wraps::Inside(wraps) => put_wraps(w.u8(1), wraps),
            Wraps::Pieces(pieces) => {
                w.u8(2).u16(pieces.len() as u16);
                pieces.iter().for_each(|(first, hash)| _ = w.u32(first.0).raw(hash));
            }
        }
        w.finish()
    }
}

impl Edit {
    fn change(&self, roster: &mut Roster) {
        match self {
            Edit::Add(slot, leaf) | Edit::Update(slot, leaf) => roster.insert(*slot, leaf.member()),
            Edit::Remove(slot) => _ = roster.remove(*slot),
        }
    }

    fn put(&self, w: &mut Writer) {
        match self {
            Edit::Add(slot, leaf) => leaf.put(w.u8(1).u32(slot.0)),
            Edit::Update(slot, leaf) => leaf.put(w.u8(2).u32(slot.0)),
            Edit::Remove(slot) => _ = w.u8(3).u32(slot.0),
        }
    }

    fn read(r: &mut Reader<'_>) -> Result<Edit, Malformed> {
        let (kind, slot) = (r.u8()?, read_slot(r)?);
        match kind {
            1 => Ok(Edit::Add(slot, Leaf::read(r)?)),
            2 => Ok(Edit::Update(slot, Leaf::read(r)?)),
            3 => Ok(Edit::Remove(slot)),
            _ => Err(Malformed),
        }
    }
}

impl Members {
    /// Slots for newcomers, the lowest first.
    fn vacant(&self) -> impl Iterator<Item = Slot> + use<> {
        let next = self.roster.last().map_or(0, |(slot, _)| slot.0 + 1);
        self.free.clone().into_iter().chain((next..=Slot::MAX.0).map(Slot))
    }

    fn apply(&mut self, edit: &Edit) {
        let next = self.roster.last().map_or(0, |(slot, _)| slot.0 + 1);
        edit.change(&mut self.roster);
        match edit {
            Edit::Add(slot, leaf) | Edit::Update(slot, leaf) => {
                self.free.extend((next..slot.0).map(Slot));
                self.free.remove(slot);
                self.keys.insert(*slot, leaf.key);
            }
            Edit::Remove(slot) => {
                self.keys.remove(slot);
                self.free.insert(*slot);
                let next = self.roster.last().map_or(0, |(slot, _)| slot.0 + 1);
                _ = self.free.split_off(&Slot(next));
            }
        }
    }

    fn leaves(&self) -> impl Iterator<Item = (Slot, Leaf)> + '_ {
        self.roster
            .slots()
            .map(|(slot, member)| (slot, Leaf { id: member.id, name: member.name.to_string(), key: self.keys[&slot] }))
    }
}

impl Leaf {
    fn put(&self, w: &mut Writer) {
        w.raw(&self.id.cert.0).raw(&self.id.incarnation.0).raw(&self.key).bytes16(self.name.as_bytes());
    }

    fn bytes(&self) -> Vec<u8> {
        let mut w = Writer::new();
        self.put(&mut w);
        w.finish()
    }

    fn member(&self) -> Member {
        Member { id: self.id, name: self.name.as_str().into() }
    }

    fn read(r: &mut Reader<'_>) -> Result<Leaf, Malformed> {
        let id = MemberId { cert: CertHash(r.array()?), incarnation: Incarnation(r.array()?) };
        let key = r.array()?;
        let name = String::from_utf8(r.bytes16(64)?.to_vec()).map_err(|_| Malformed)?;
        Ok(Leaf { id, name, key })
    }
}

/// Bytes with a length of four.
fn put_long<'w>(w: &'w mut Writer, bytes: &[u8]) -> &'w mut Writer {
    w.u32(bytes.len() as u32).raw(bytes)
}

fn long<'a>(r: &mut Reader<'a>) -> Result<&'a [u8], Malformed> {
    let n = r.u32()? as usize;
    r.take(n)
}

fn read_slot(r: &mut Reader<'_>) -> Result<Slot, Malformed> {
    let slot = Slot(r.u32()?);
    if slot <= Slot::MAX { Ok(slot) } else { Err(Malformed) }
}

fn put_members(w: &mut Writer, members: &[(Slot, Leaf)]) {
    w.u32(members.len() as u32);
    members.iter().for_each(|(slot, leaf)| leaf.put(w.u32(slot.0)));
}

fn read_members(r: &mut Reader<'_>) -> Result<Leaves, Malformed> {
    let n = r.u32()?;
    (0..n).map(|_| Ok((read_slot(r)?, Leaf::read(r)?))).collect()
}

fn put_wraps(w: &mut Writer, wraps: &[(Slot, Vec<u8>)]) {
    w.u16(wraps.len() as u16);
    wraps.iter().for_each(|(to, sealed)| _ = w.u32(to.0).bytes16(sealed));
}

fn read_wraps(r: &mut Reader<'_>) -> Result<Vec<(Slot, Vec<u8>)>, Malformed> {
    let n = r.count16(6, PIECE_MEMBERS)?;
    (0..n).map(|_| Ok((read_slot(r)?, r.bytes16(256)?.to_vec()))).collect()
}

fn put_state(w: &mut Writer, state: &State) {
    w.raw(&state.epoch.to_bytes()).raw(state.secret.expose());
    put_members(w, &state.members.leaves().collect::<Vec<_>>());
}

fn read_state(r: &mut Reader<'_>) -> Result<State, Malformed> {
    let epoch = EpochId { counter: r.u32()?, hash: r.u64()? };
    let secret = Secret::from_bytes(r.array()?);
    let mut members = Members::default();
    read_members(r)?.into_iter().for_each(|(slot, leaf)| members.apply(&Edit::Update(slot, leaf)));
    Ok(State { epoch, secret, members })
}

/// A commit under way, and its fresh secret.
type Journaled = (Vec<u8>, Secret<32>);

fn read_record(record: &[u8]) -> Result<(u64, Option<State>, Option<Journaled>), Malformed> {
    let mut r = Reader::new(record);
    let position = r.u64()?;
    let state = if r.u8()? == 1 { Some(read_state(&mut r)?) } else { None };
    let pending = if r.u8()? == 1 {
        let path = Secret::from_bytes(r.array()?);
        Some((long(&mut r)?.to_vec(), path))
    } else {
        None
    };
    r.end()?;
    if state.is_none() && pending.is_none() { Err(Malformed) } else { Ok((position, state, pending)) }
}

/// The position in the order from which a member that has these records goes on; `None` for a newcomer.
pub fn position(records: &Records) -> Option<u64> {
    records.get(&RECORD).and_then(|r| read_record(r).ok()).map(|(position, ..)| position)
}

const COMMIT: u8 = 1;
const WELCOME: u8 = 2;
const LEAVE: u8 = 3;
const WANT: u8 = 4;
const RECORD: u64 = 1;
const LATER_MAX: usize = 1024;
/// Members that one commit adds.
const JOINERS_MAX: usize = 128;
/// Of how many members a piece tells that is fetched.
const PIECE_MEMBERS: usize = 128;
/// How many get a fresh secret by the commit itself, and not by pieces of it.
const WRAPS_INSIDE_MAX: usize = 64;
/// Newcomers of one Welcome.
const WELCOMED_TOGETHER: usize = 64;
/// How long a member waits for what it lacks of a commit.
const ENTER_WAIT: Duration = Duration::from_secs(2);
/// When a newcomer asks that heard of no commit with it.
const WANT_FIRST: Duration = Duration::from_secs(3);
const LEAVE_AGAIN: Duration = Duration::from_millis(100);
const WANT_AGAIN: Duration = Duration::from_millis(100);
/// How often a newcomer asks the member that added it, before it asks others.
const WANTS_OF_ADDER: u32 = 4;
const INFO: &[u8] = b"sealcast/mock/mls";
