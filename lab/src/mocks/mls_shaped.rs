//! A scheme with the shape of MLS (RFC 9420) over an order: members commit changes on the ordered channel, of which the
//! first valid one wins an epoch, let others in with a Welcome beside it, and come back after a crash.
//!
//! ```text
//! joiner   ─ Offer(key package)                            Want ─▶ ◀─ Welcome ─┐ after
//! member   ─ Fetch(key package) ─ Store(pending) ─ Send(commit) ─ Ordered(7): the first for its epoch
//! racer    ─ Store(pending) ─ Send(commit) ─ another one for that epoch stood before it: void; commits again
//! ```
//! It is flat instead of a tree, authenticates commits by a MAC under the old secret, and carries the
//! roster in the commit. Enough to show that traits, join and simulator fit; no more.

use std::collections::{BTreeMap, VecDeque};
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
    Command, CommandError, Exclusion, Fetches, HandleError, Input, Keys, Need, Outcome, Output, Properties, Seal,
    SealError, Sealed, Token,
};
use sealcast_sim::Records;
use sealcast_wire::{
    Agreement, CertHash, Change, Dropped, EpochId, Fetch, FetchId, Fetched, Guarantee, Incarnation, Lane, Malformed,
    Member, MemberId, Monotonic, Now, Reader, Slot, Source, To, View, Writer,
};

use super::protect::MockProtect;

/// The machine.
pub struct MlsShaped {
    leaf: Leaf,
    pair: KeyPair,
    rng: ChaCha8Rng,
    state: Option<State>,
    pending: Option<Pending>,
    wishes: VecDeque<Wish>,
    /// Commits that cannot be judged before a Welcome came, in their order.
    later: VecDeque<(u64, Vec<u8>)>,
    /// The position behind the last commit that was applied.
    position: u64,
    fetching: BTreeMap<FetchId, Fetch>,
    welcome: Option<Welcome>,
    /// What our commits gave to those whom they added, who ask for it if it was lost.
    welcomes: VecDeque<(CertHash, Vec<u8>)>,
    /// When we ask for ours, and how often we did.
    wanting: Option<(Monotonic, u32)>,
    /// Who added us.
    adder: CertHash,
    leaving: Option<Monotonic>,
    /// The roster that our application saw last.
    shown: Option<Vec<Leaf>>,
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
    roster: Vec<Leaf>,
}

/// Our own commit, until we hear what became of it.
struct Pending {
    token: Token,
    from: EpochId,
    bytes: Vec<u8>,
    next: State,
    welcomes: Welcomes,
    wishes: Vec<Wish>,
}

/// Sealed to those whom a commit adds.
type Welcomes = Vec<(CertHash, Vec<u8>)>;

/// What we want the group to commit.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Wish {
    Found,
    Add(Leaf),
    Remove(CertHash),
    Update,
}

/// A Welcome whose roster is being fetched.
struct Welcome {
    epoch: EpochId,
    secret: Secret<32>,
    /// Of the commit that leads there.
    position: u64,
    hash: [u8; 32],
    roster: Option<Vec<Leaf>>,
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
            outputs: VecDeque::from([Output::Offer { what: Fetch::KeyPackage(id.cert), bytes: leaf.bytes() }]),
            leaf,
            pair,
            rng: ChaCha8Rng::from_seed(config.seed),
            state: None,
            pending: None,
            wishes: VecDeque::new(),
            later: VecDeque::new(),
            position: 0,
            fetching: BTreeMap::new(),
            welcome: None,
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
            if let Some((from, bytes, next, welcomes)) = pending {
                // Who won? The same bytes again have the same position.
                machine.propose(from, bytes, next, welcomes, vec![Wish::Update]);
            }
        } else if config.founder {
            machine.wishes.push_back(Wish::Found);
        } else {
            machine.wanting = Some((Monotonic(0), 0));
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
        while self.pending.is_none() && !self.out {
            let Some(wish) = self.wishes.pop_front() else { return };
            let Some((mut roster, joiner)) = self.wished(&wish) else { continue };
            let (mut wishes, mut joiners) = (vec![wish], Vec::from_iter(joiner));
            while let Some(Wish::Add(leaf)) = self.wishes.front().filter(|_| (1..JOINERS_MAX).contains(&joiners.len()))
            {
                let leaf = leaf.clone();
                if !roster.contains(&leaf) {
                    roster.retain(|l| l.id.cert != leaf.id.cert);
                    roster.push(leaf.clone());
                    joiners.push(leaf);
                }
                wishes.extend(self.wishes.pop_front());
            }
            roster.sort();
            self.commit(wishes, roster, &joiners);
        }
    }

    /// The roster that a wish leads to; `None` if it is fulfilled or cannot be.
    fn wished(&self, wish: &Wish) -> Option<(Vec<Leaf>, Option<Leaf>)> {
        let mut roster = match (&self.state, wish) {
            (None, Wish::Found) => return Some((vec![self.leaf.clone()], None)),
            (None, _) | (Some(_), Wish::Found) => return None,
            (Some(state), _) => state.roster.clone(),
        };
        match wish {
            Wish::Found => None,
            Wish::Add(leaf) if roster.contains(leaf) => None,
            Wish::Add(leaf) => {
                roster.retain(|l| l.id.cert != leaf.id.cert);
                roster.push(leaf.clone());
                roster.sort();
                Some((roster, Some(leaf.clone())))
            }
            Wish::Remove(cert) => {
                let before = roster.len();
                roster.retain(|l| l.id.cert != *cert);
                (roster.len() < before).then_some((roster, None))
            }
            Wish::Update => {
                let mine = roster.iter_mut().find(|l| l.id.cert == self.leaf.id.cert)?;
                *mine = self.leaf.clone();
                roster.sort();
                Some((roster, None))
            }
        }
    }

    fn commit(&mut self, wishes: Vec<Wish>, roster: Vec<Leaf>, joiners: &[Leaf]) {
        let from = self.state.as_ref().map_or_else(EpochId::default, |s| s.epoch);
        let old = self.state.as_ref().map_or_else(|| Secret::from_bytes([0; 32]), |s| s.secret.clone());
        let path: Secret<32> = Secret::random(&mut self.rng);
        let mut w = Writer::new();
        w.u8(COMMIT).raw(&from.to_bytes()).raw(&self.leaf.id.cert.0);
        put_long(&mut w, &roster_bytes(&roster));
        let others: Vec<&Leaf> =
            roster.iter().filter(|l| l.id.cert != self.leaf.id.cert && !joiners.contains(l)).collect();
        w.u16(others.len() as u16);
        for leaf in others {
            let sealed = hpke::seal_to(&PublicKey(leaf.key), INFO, &from.to_bytes(), path.expose(), &mut self.rng);
            w.raw(&leaf.id.cert.0).bytes16(&sealed.expect("key packages hold good keys"));
        }
        let mut bytes = w.finish();
        let mac: Secret<32> = hkdf(old.expose(), b"", &[b"sealcast/mock/commit", &bytes]);
        bytes.extend_from_slice(mac.expose());
        let epoch = leads_to(from, &bytes);
        let next = State { epoch, secret: hkdf(path.expose(), old.expose(), &[&epoch.to_bytes()]), roster };
        let welcomes = self.welcome(&next, joiners);
        self.propose(from, bytes, next, welcomes, wishes);
    }

    /// What lets these into a state.
    fn welcome(&mut self, state: &State, joiners: &[Leaf]) -> Welcomes {
        if joiners.is_empty() {
            return Vec::new();
        }
        let blob = roster_bytes(&state.roster);
        let mut w = Writer::new();
        w.raw(&state.epoch.to_bytes()).raw(state.secret.expose()).raw(&sha256(&blob));
        self.outputs.push_back(Output::Offer { what: Fetch::Blob(sha256(&blob)), bytes: blob });
        let sealed = joiners.iter().map(|leaf| {
            let sealed = hpke::seal_to(&PublicKey(leaf.key), INFO, b"welcome", w.as_slice(), &mut self.rng);
            (leaf.id.cert, sealed.expect("key packages hold good keys"))
        });
        sealed.collect()
    }

    fn propose(&mut self, from: EpochId, bytes: Vec<u8>, next: State, welcomes: Welcomes, wishes: Vec<Wish>) {
        let token = self.token();
        if self.excludes(&next)
            && let Some(view) = self.view(&next)
        {
            self.outputs.push_back(Output::Prepare(view));
        }
        let commit = bytes.clone();
        self.pending = Some(Pending { token, from, bytes, next, welcomes, wishes });
        self.store();
        self.send(token, Lane::Open, Guarantee::Ordered, commit);
    }

    fn send(&mut self, token: Token, lane: Lane, needs: Guarantee, bytes: Vec<u8>) {
        self.outputs.push_back(Output::Send { token, lane, needs, to: To::Group, after: None, bytes });
    }

    /// Our commit has this position: it wins its epoch if no valid one stands before it.
    fn ordered(&mut self, position: u64) {
        let at = self.epoch().unwrap_or_default();
        let Some(Pending { from, next, welcomes, wishes, .. }) = self.pending.take() else { return };
        if from != at {
            self.give_up(&next, wishes);
            self.store();
            return self.pursue();
        }
        self.enter(next, position);
        for (cert, sealed) in welcomes {
            let bytes = welcome_message(cert, position, &sealed);
            let token = self.token();
            self.send(token, Lane::Open, Guarantee::BestEffort, bytes.clone());
            if self.welcomes.len() >= LATER_MAX {
                self.welcomes.pop_front();
            }
            self.welcomes.push_back((cert, bytes));
        }
        self.pursue();
    }

    /// What a commit of ours was for is still to be done.
    fn give_up(&mut self, next: &State, wishes: Vec<Wish>) {
        if self.excludes(next) {
            self.outputs.push_back(Output::Abandoned);
        }
        wishes.into_iter().rev().for_each(|wish| self.wishes.push_front(wish));
    }

    // ---- following -----------------------------------------------------------------------------

    fn hear_commit(&mut self, now: Now, position: u64, bytes: &[u8]) -> Result<(), Dropped> {
        let commit = Commit::parse(bytes).map_err(|_| Dropped::Malformed)?;
        if self.pending.as_ref().is_some_and(|p| p.bytes == bytes) {
            self.ordered(position);
            return Ok(());
        }
        // G1: outside we cannot verify anything; what stands behind the Welcome's commit is judged after it.
        if self.state.is_none() {
            if self.later.len() >= LATER_MAX {
                self.later.pop_front();
            }
            self.later.push_back((position, bytes.to_vec()));
            if commit.roster.contains(&self.leaf) {
                self.adder = commit.by;
                self.wanting.get_or_insert((now.monotonic + WANT_AGAIN, 0));
            }
            return Ok(());
        }
        self.judge_commit(now, position, commit, bytes)
    }

    /// We cannot follow, and ask to be let in again.
    fn rejoin(&mut self, now: Now, adder: CertHash, tries: u32) {
        (self.state, self.pending, self.welcome) = (None, None, None);
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
        if !commit.roster.iter().any(|l| l.id.cert == self.leaf.id.cert) {
            self.exclude(match self.leaving {
                Some(_) => Exclusion::Left,
                None => Exclusion::Evicted { reason: String::new() },
            });
            return Ok(());
        }
        let wrap = commit.wraps.iter().find(|(to, _)| *to == self.leaf.id.cert);
        let path = wrap.and_then(|(_, sealed)| self.pair.open(INFO, &commit.from.to_bytes(), sealed).ok());
        // The others follow it, and we cannot: it lets us in anew, or its committer left us out.
        let Some(path) = path else {
            self.rejoin(now, commit.by, 0);
            self.later.push_back((position, bytes.to_vec()));
            return Ok(());
        };
        let epoch = leads_to(commit.from, bytes);
        let secret = hkdf(&path, state.secret.expose(), &[&epoch.to_bytes()]);
        self.enter(State { epoch, secret, roster: commit.roster }, position);
        self.pursue();
        Ok(())
    }

    fn hear_welcome(&mut self, message: &[u8]) -> Result<(), Dropped> {
        let mut r = Reader::new(message);
        r.u8().map_err(|_| Dropped::Malformed)?;
        if r.array::<32>().map_err(|_| Dropped::Malformed)? != self.leaf.id.cert.0 {
            return Ok(());
        }
        if self.state.is_some() {
            return Err(Dropped::Stale);
        }
        let position = r.u64().map_err(|_| Dropped::Malformed)?;
        let plain = self.pair.open(INFO, b"welcome", r.rest()).map_err(|_| Dropped::Auth)?;
        let mut r = Reader::new(&plain);
        let welcome = (|| {
            let epoch = EpochId { counter: r.u32()?, hash: r.u64()? };
            let secret = Secret::from_bytes(r.array()?);
            Ok::<_, Malformed>(Welcome { epoch, secret, position, hash: r.array()?, roster: None })
        })();
        let welcome = welcome.map_err(|_| Dropped::Malformed)?;
        if self.welcome.as_ref().is_some_and(|w| w.epoch.counter >= welcome.epoch.counter) {
            return Err(Dropped::Stale);
        }
        self.fetch(Fetch::Blob(welcome.hash));
        self.welcome = Some(welcome);
        Ok(())
    }

    /// Enters by the Welcome, and judges what stands behind its commit.
    fn join(&mut self, now: Now) {
        let Some(welcome) = self.welcome.take_if(|w| w.roster.is_some()) else { return };
        let Welcome { epoch, secret, roster, position, .. } = welcome;
        self.wishes.retain(|w| *w != Wish::Found);
        (self.wanting, self.fetching) = (None, BTreeMap::new());
        self.enter(State { epoch, secret, roster: roster.unwrap_or_default() }, position);
        for (at, bytes) in std::mem::take(&mut self.later).into_iter().filter(|(at, _)| *at > position) {
            // One of them may let us in again.
            _ = self.hear_commit(now, at, &bytes);
        }
        self.pursue();
    }

    /// Somebody was added and its Welcome was lost: whoever added it says it again, and if that one is gone, another one.
    fn hear_want(&mut self, message: &[u8]) -> Result<(), Dropped> {
        let mut r = Reader::new(message);
        let (adder, leaf, tries) = (|| {
            r.u8()?;
            Ok::<_, Malformed>((CertHash(r.array()?), Leaf::read(&mut r)?, r.u32()?))
        })()
        .map_err(|_| Dropped::Malformed)?;
        let Some(state) = self.state.as_ref().filter(|s| s.roster.contains(&leaf)) else { return Ok(()) };
        if adder == self.leaf.id.cert
            && let Some((_, bytes)) = self.welcomes.iter().rev().find(|(cert, _)| *cert == leaf.id.cert)
        {
            let (bytes, token) = (bytes.clone(), self.token());
            self.send(token, Lane::Open, Guarantee::BestEffort, bytes);
        } else if tries >= WANTS_OF_ADDER
            && state.roster.get(tries as usize % state.roster.len()).is_some_and(|l| l.id == self.leaf.id)
        {
            let state = state.clone();
            for (cert, sealed) in self.welcome(&state, &[leaf]) {
                let bytes = welcome_message(cert, self.position.saturating_sub(1), &sealed);
                let token = self.token();
                self.send(token, Lane::Open, Guarantee::BestEffort, bytes);
            }
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
        let leaver = state.roster.get(slot.index()).ok_or(Dropped::Malformed)?.id.cert;
        let lowest = state.roster.iter().find(|l| l.id.cert != leaver);
        if lowest.is_some_and(|l| l.id == self.leaf.id) {
            self.wish(Wish::Remove(leaver));
        }
        Ok(())
    }

    /// A commit at this position leads there.
    fn enter(&mut self, state: State, position: u64) {
        self.position = position + 1;
        if let Some(pending) = self.pending.take_if(|p| p.next.epoch != state.epoch) {
            // Another commit won.
            self.give_up(&pending.next, pending.wishes);
        }
        let excludes = self.excludes(&state);
        let view = self.view(&state);
        let secret = state.secret.clone();
        self.state = Some(state);
        self.store();
        let Some(mut view) = view else {
            // Our new incarnation is not known yet.
            if !self.wishes.contains(&Wish::Update) {
                self.wishes.push_back(Wish::Update);
            }
            return;
        };
        let before = self.shown.replace(self.state.as_ref().expect("just entered").roster.clone());
        let after = self.shown.as_ref().expect("just shown");
        view.change = match before {
            None => Change::Formed,
            Some(_) if excludes => Change::Evicted,
            Some(before) if after.iter().any(|l| !before.contains(l)) => Change::Joined,
            Some(_) => Change::Rekeyed,
        };
        let protect = Some(Arc::new(MockProtect::new(&view, &secret)) as Arc<dyn sealcast_wire::Protect>);
        self.outputs.push_back(Output::Epoch { view, protect, access: Arc::new(Everything) });
    }

    /// Whether somebody whom our application sees is not in this state.
    fn excludes(&self, next: &State) -> bool {
        let gone = |l: &Leaf| !next.roster.iter().any(|n| n.id.cert == l.id.cert);
        self.shown.as_ref().is_some_and(|shown| shown.iter().any(gone))
    }

    fn view(&self, state: &State) -> Option<View> {
        let me = state.roster.iter().position(|l| l.id == self.leaf.id)?;
        let members = state.roster.iter().map(|l| Member { id: l.id, name: l.name.as_str().into() }).collect();
        // Not decided before it is accepted: until then it is no more than a wish.
        Some(View::new(None, state.epoch, members, Slot(me as u32), Change::Left))
    }

    fn exclude(&mut self, why: Exclusion) {
        self.out = true;
        self.state = None;
        self.pending = None;
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
            None => w.u8(0),
        };
        match &self.pending {
            Some(p) => {
                put_state(put_long(w.u8(1).raw(&p.from.to_bytes()), &p.bytes), &p.next);
                w.u16(p.welcomes.len() as u16);
                p.welcomes.iter().for_each(|(cert, bytes)| _ = w.raw(&cert.0).bytes16(bytes));
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
            (Some(&WELCOME), _) => self.hear_welcome(message),
            (Some(&LEAVE), _) => self.hear_leave(source),
            (Some(&WANT), _) => self.hear_want(message),
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
        }
        Ok(())
    }

    fn outcome(&mut self, token: Token, outcome: Outcome) {
        if self.pending.as_ref().is_none_or(|p| p.token != token) {
            return;
        }
        match outcome {
            Outcome::Ordered(position) => self.ordered(position),
            // Nobody knows its position, and so nobody follows it; what it was for is committed again.
            Outcome::Accepted | Outcome::InDoubt | Outcome::Failed => {
                if let Some(Pending { next, wishes, .. }) = self.pending.take() {
                    self.give_up(&next, wishes);
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
            Fetch::Blob(hash) => {
                if let (Some(welcome), Ok(roster)) = (&mut self.welcome, read_roster(&bytes))
                    && welcome.hash == hash
                {
                    welcome.roster = Some(roster);
                    self.join(now);
                }
            }
            Fetch::Shares { .. } | Fetch::Key => {}
        }
    }

    fn suspect(&mut self, slot: Slot) {
        let cert = self.state.as_ref().and_then(|s| s.roster.get(slot.index())).map(|l| l.id.cert);
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
            Input::Outcome(token, outcome) => self.outcome(token, outcome),
            Input::Fetched(id, result) => self.fetched(now, id, result),
            Input::Suspected(slot) => self.suspect(slot),
            Input::Delivered(_) | Input::InForce(_) | Input::Flushed(_) | Input::Up | Input::Describe => {}
        }
        Ok(())
    }

    fn seal(&mut self, _message: &Seal<'_>) -> Result<Sealed, SealError> {
        Err(SealError::PerDatagram)
    }

    /// It opens no whole messages.
    fn has_room(&self, _bytes: usize) -> bool {
        true
    }

    fn timeout(&self) -> Option<Monotonic> {
        [self.leaving, self.wanting.map(|(at, _)| at)].into_iter().flatten().min()
    }

    fn handle_timeout(&mut self, now: Now) {
        if self.leaving.is_some_and(|at| at <= now.monotonic) {
            self.leaving = Some(now.monotonic + LEAVE_AGAIN);
            let token = self.token();
            self.send(token, Lane::Control, Guarantee::BestEffort, vec![LEAVE]);
        }
        if let Some((_, tries)) = self.wanting.filter(|(at, _)| *at <= now.monotonic) {
            self.wanting = Some((now.monotonic + WANT_AGAIN, tries + 1));
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

fn leads_to(from: EpochId, commit: &[u8]) -> EpochId {
    let hash = u64::from_be_bytes(sha256(commit)[..8].try_into().expect("a hash has 32 bytes"));
    EpochId { counter: from.counter + 1, hash }
}

/// A commit as it is read; its MAC, the last 32 bytes, is the caller's to check.
struct Commit {
    from: EpochId,
    by: CertHash,
    roster: Vec<Leaf>,
    wraps: Vec<(CertHash, Vec<u8>)>,
}

impl Commit {
    fn parse(bytes: &[u8]) -> Result<Commit, Malformed> {
        let mut r = Reader::new(bytes);
        r.u8()?;
        let from = EpochId { counter: r.u32()?, hash: r.u64()? };
        let by = CertHash(r.array()?);
        let roster = read_roster(long(&mut r)?)?;
        let n = r.count16(34, roster.len())?;
        let mut wraps = Vec::with_capacity(n);
        for _ in 0..n {
            wraps.push((CertHash(r.array()?), r.bytes16(256)?.to_vec()));
        }
        r.take(32)?;
        r.end()?;
        Ok(Commit { from, by, roster, wraps })
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

    fn read(r: &mut Reader<'_>) -> Result<Leaf, Malformed> {
        let id = MemberId { cert: CertHash(r.array()?), incarnation: Incarnation(r.array()?) };
        let key = r.array()?;
        let name = String::from_utf8(r.bytes16(64)?.to_vec()).map_err(|_| Malformed)?;
        Ok(Leaf { id, name, key })
    }
}

fn welcome_message(cert: CertHash, position: u64, sealed: &[u8]) -> Vec<u8> {
    let mut w = Writer::new();
    w.u8(WELCOME).raw(&cert.0).u64(position).raw(sealed);
    w.finish()
}

/// Bytes with a length of four.
fn put_long<'w>(w: &'w mut Writer, bytes: &[u8]) -> &'w mut Writer {
    w.u32(bytes.len() as u32).raw(bytes)
}

fn long<'a>(r: &mut Reader<'a>) -> Result<&'a [u8], Malformed> {
    let n = r.u32()? as usize;
    r.take(n)
}

fn roster_bytes(roster: &[Leaf]) -> Vec<u8> {
    let mut w = Writer::new();
    w.u16(roster.len() as u16);
    roster.iter().for_each(|l| l.put(&mut w));
    w.finish()
}

fn read_roster(bytes: &[u8]) -> Result<Vec<Leaf>, Malformed> {
    let mut r = Reader::new(bytes);
    let n = r.count16(82, 1024)?;
    let roster = (0..n).map(|_| Leaf::read(&mut r)).collect::<Result<_, _>>()?;
    r.end()?;
    Ok(roster)
}

fn put_state<'w>(w: &'w mut Writer, state: &State) -> &'w mut Writer {
    w.raw(&state.epoch.to_bytes()).raw(state.secret.expose());
    put_long(w, &roster_bytes(&state.roster))
}

fn read_state(r: &mut Reader<'_>) -> Result<State, Malformed> {
    let epoch = EpochId { counter: r.u32()?, hash: r.u64()? };
    let secret = Secret::from_bytes(r.array()?);
    Ok(State { epoch, secret, roster: read_roster(long(r)?)? })
}

type Journaled = (EpochId, Vec<u8>, State, Welcomes);

fn read_record(record: &[u8]) -> Result<(u64, Option<State>, Option<Journaled>), Malformed> {
    let mut r = Reader::new(record);
    let position = r.u64()?;
    let state = if r.u8()? == 1 { Some(read_state(&mut r)?) } else { None };
    let pending = if r.u8()? == 1 {
        let from = EpochId { counter: r.u32()?, hash: r.u64()? };
        let bytes = long(&mut r)?.to_vec();
        let next = read_state(&mut r)?;
        let n = r.count16(34, JOINERS_MAX)?;
        let mut welcomes = Vec::with_capacity(n);
        for _ in 0..n {
            welcomes.push((CertHash(r.array()?), r.bytes16(512)?.to_vec()));
        }
        Some((from, bytes, next, welcomes))
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
const JOINERS_MAX: usize = 512;
const LEAVE_AGAIN: Duration = Duration::from_millis(100);
const WANT_AGAIN: Duration = Duration::from_millis(100);
/// How often a newcomer asks the member that added it, before it asks others.
const WANTS_OF_ADDER: u32 = 4;
const INFO: &[u8] = b"sealcast/mock/mls";
