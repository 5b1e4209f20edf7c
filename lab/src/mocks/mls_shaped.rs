//! A scheme with the shape of MLS (RFC 9420) over a relay: members commit changes on an ordered lane
//! with compare-and-set, let others in with a Welcome, and come back after a crash.
//!
//! ```text
//! joiner   ─ Offer(key package)                                   ◀─ Welcome ─┐ after
//! member   ─ Fetch(key package) ─ Store(pending) ─ Send(commit, expect from→to) ─ Accepted
//! racer    ─ Store(pending) ─ Send(commit, expect from→to') ─ Superseded(to) ─ Fetch(after from) ─ again
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
    Member, MemberId, Monotonic, Now, Reader, Slot, Source, To, Transition, View, Writer,
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
    /// Commits that wait for the one that leads to where they begin.
    later: BTreeMap<EpochId, Vec<u8>>,
    fetching: BTreeMap<FetchId, Fetch>,
    welcome: Option<Welcome>,
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
    welcome: Option<Vec<u8>>,
    wish: Wish,
}

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
    roster: [u8; 32],
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
            later: BTreeMap::new(),
            fetching: BTreeMap::new(),
            welcome: None,
            leaving: None,
            shown: None,
            out: false,
            names: 0,
        };
        if let Some((state, pending)) = records.get(&RECORD).and_then(|r| read_record(r).ok()) {
            machine.state = state;
            if let Some(at) = machine.epoch() {
                machine.fetch(Fetch::After(at));
            }
            // G4: a new process is a new incarnation, and the group must know it before we seal.
            machine.wishes.push_back(Wish::Update);
            if let Some((from, bytes, next, welcome)) = pending {
                // Who won? The same bytes again get the same answer.
                machine.propose(from, bytes, next, welcome, Wish::Update);
            }
        } else if config.founder {
            machine.wishes.push_back(Wish::Found);
        }
        machine.pursue();
        machine
    }

    /// The epoch that it stands in.
    pub fn epoch(&self) -> Option<EpochId> {
        self.state.as_ref().map(|s| s.epoch)
    }

    // ---- committing ----------------------------------------------------------------------------

    /// Commits the next wish, if none is under way.
    fn pursue(&mut self) {
        while self.pending.is_none() && !self.out {
            let Some(wish) = self.wishes.pop_front() else { return };
            let Some((roster, joiner)) = self.wished(&wish) else { continue };
            self.commit(wish, roster, joiner);
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

    fn commit(&mut self, wish: Wish, roster: Vec<Leaf>, joiner: Option<Leaf>) {
        let from = self.state.as_ref().map_or_else(EpochId::default, |s| s.epoch);
        let old = self.state.as_ref().map_or_else(|| Secret::from_bytes([0; 32]), |s| s.secret.clone());
        let path: Secret<32> = Secret::random(&mut self.rng);
        let mut w = Writer::new();
        w.u8(COMMIT).raw(&from.to_bytes()).raw(&self.leaf.id.cert.0);
        w.bytes16(&roster_bytes(&roster));
        let others: Vec<&Leaf> =
            roster.iter().filter(|l| l.id.cert != self.leaf.id.cert && Some(*l) != joiner.as_ref()).collect();
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
        let welcome = joiner.map(|leaf| {
            let blob = roster_bytes(&next.roster);
            let mut w = Writer::new();
            w.raw(&epoch.to_bytes()).raw(next.secret.expose()).raw(&sha256(&blob));
            let sealed = hpke::seal_to(&PublicKey(leaf.key), INFO, b"welcome", w.as_slice(), &mut self.rng);
            self.outputs.push_back(Output::Offer { what: Fetch::Blob(sha256(&blob)), bytes: blob });
            let mut w = Writer::new();
            w.u8(WELCOME).raw(&leaf.id.cert.0).raw(&sealed.expect("key packages hold good keys"));
            w.finish()
        });
        self.propose(from, bytes, next, welcome, wish);
    }

    fn propose(&mut self, from: EpochId, bytes: Vec<u8>, next: State, welcome: Option<Vec<u8>>, wish: Wish) {
        let token = self.token();
        if self.excludes(&next)
            && let Some(view) = self.view(&next)
        {
            self.outputs.push_back(Output::Prepare(view));
        }
        let expect = Some(Transition { from, to: next.epoch });
        let commit = bytes.clone();
        let then = welcome.clone();
        self.pending = Some(Pending { token, from, bytes, next, welcome, wish });
        self.store();
        let send =
            |token, expect, after, bytes| Output::Send { token, lane: Lane::Open, to: To::Group, expect, after, bytes };
        self.outputs.push_back(send(token, expect, None, commit));
        if let Some(bytes) = then {
            let welcome_token = self.token();
            self.outputs.push_back(send(welcome_token, None, Some(token), bytes));
        }
    }

    /// Our commit has its place.
    fn accepted(&mut self) {
        let Some(Pending { next, .. }) = self.pending.take() else { return };
        self.enter(next);
        self.catch_up();
        self.pursue();
    }

    fn superseded(&mut self, stands: EpochId) {
        let Some(Pending { wish, next, .. }) = self.pending.take() else { return };
        if self.excludes(&next) {
            self.outputs.push_back(Output::Abandoned);
        }
        self.store();
        self.wishes.push_front(wish);
        match self.epoch() {
            Some(at) if at == stands => self.pursue(),
            Some(at) => self.fetch(Fetch::After(at)),
            None => {} // somebody else founded the group: it must let us in
        }
    }

    // ---- following -----------------------------------------------------------------------------

    fn hear_commit(&mut self, bytes: &[u8]) -> Result<(), Dropped> {
        let commit = Commit::parse(bytes).map_err(|_| Dropped::Malformed)?;
        if self.pending.as_ref().is_some_and(|p| p.bytes == bytes) {
            self.accepted();
            return Ok(());
        }
        // G1: outside we cannot verify anything; what we miss now is fetched after the Welcome.
        let Some(state) = &self.state else { return Err(Dropped::NoKey) };
        if commit.from.counter < state.epoch.counter {
            return Err(Dropped::Stale);
        }
        if commit.from != state.epoch {
            if self.later.len() >= LATER_MAX {
                return Err(Dropped::Queue);
            }
            self.later.insert(commit.from, bytes.to_vec());
            let at = state.epoch;
            self.fetch(Fetch::After(at));
            return Ok(());
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
        let (_, sealed) = commit.wraps.iter().find(|(to, _)| *to == self.leaf.id.cert).ok_or(Dropped::Malformed)?;
        let path = self.pair.open(INFO, &commit.from.to_bytes(), sealed).map_err(|_| Dropped::Auth)?;
        let epoch = leads_to(commit.from, bytes);
        let secret = hkdf(&path, state.secret.expose(), &[&epoch.to_bytes()]);
        self.enter(State { epoch, secret, roster: commit.roster });
        self.catch_up();
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
        let plain = self.pair.open(INFO, b"welcome", r.rest()).map_err(|_| Dropped::Auth)?;
        let mut r = Reader::new(&plain);
        let welcome = (|| {
            let epoch = EpochId { counter: r.u32()?, hash: r.u64()? };
            Ok::<_, Malformed>(Welcome { epoch, secret: Secret::from_bytes(r.array()?), roster: r.array()? })
        })();
        let welcome = welcome.map_err(|_| Dropped::Malformed)?;
        self.fetch(Fetch::Blob(welcome.roster));
        self.welcome = Some(welcome);
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

    /// Applies commits that waited for the one just applied.
    fn catch_up(&mut self) {
        while let Some(at) = self.epoch()
            && let Some(bytes) = self.later.remove(&at)
        {
            if self.hear_commit(&bytes).is_err() {
                return;
            }
        }
        let at = self.epoch();
        self.later.retain(|from, _| Some(from.counter) > at.map(|e| e.counter));
    }

    fn enter(&mut self, state: State) {
        if let Some(pending) = &self.pending
            && pending.from.counter <= state.epoch.counter
            && pending.next.epoch != state.epoch
        {
            // Another commit took its place; what we wished is still to be done.
            let wish = pending.wish.clone();
            if self.excludes(&pending.next) {
                self.outputs.push_back(Output::Abandoned);
            }
            self.pending = None;
            self.wishes.push_front(wish);
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
        let under_way = self.pending.as_ref().is_some_and(|p| p.wish == wish);
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
        match &self.state {
            Some(state) => put_state(w.u8(1), state),
            None => w.u8(0),
        };
        match &self.pending {
            Some(p) => {
                put_state(w.u8(1).raw(&p.from.to_bytes()).bytes16(&p.bytes), &p.next)
                    .bytes16(p.welcome.as_deref().unwrap_or_default());
            }
            None => {
                w.u8(0);
            }
        }
        self.outputs.push_back(Output::Store { id: RECORD, record: w.finish() });
    }
}

impl MlsShaped {
    fn hear(&mut self, source: &Source, message: &[u8]) -> Result<(), HandleError> {
        if self.out {
            return Err(Dropped::Stale.into());
        }
        Ok(match message.first() {
            Some(&COMMIT) => self.hear_commit(message),
            Some(&WELCOME) => self.hear_welcome(message),
            Some(&LEAVE) => self.hear_leave(source),
            _ => Err(Dropped::Malformed),
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
            Outcome::Accepted => self.accepted(),
            Outcome::Superseded(stands) => self.superseded(stands),
            Outcome::Failed => {
                if let Some(Pending { wish, .. }) = self.pending.take() {
                    self.wishes.push_front(wish);
                }
            }
        }
    }

    fn fetched(&mut self, id: FetchId, result: Fetched) {
        let Some(what) = self.fetching.remove(&id) else { return };
        let Fetched::Bytes(bytes) = result else {
            match what {
                Fetch::Blob(_) => self.fetch(what),
                // Still behind what waits: ask again.
                Fetch::After(at) if Some(at) == self.epoch() && !self.later.is_empty() => self.fetch(what),
                _ => {}
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
            Fetch::After(_) => {
                // What does not verify is as if it had not come.
                if self.hear_commit(&bytes).is_ok()
                    && let Some(at) = self.epoch()
                {
                    self.fetch(Fetch::After(at));
                }
            }
            Fetch::Blob(hash) => {
                let Some(Welcome { epoch, secret, .. }) = self.welcome.take_if(|w| w.roster == hash) else { return };
                if let Ok(roster) = read_roster(&bytes) {
                    self.wishes.retain(|w| *w != Wish::Found);
                    self.enter(State { epoch, secret, roster });
                    self.fetch(Fetch::After(epoch)); // we heard commits that we could not verify
                    self.catch_up();
                    self.pursue();
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
            open: Need(Guarantee::Ordered, Agreement::Forkable),
            fetches: Fetches { directory: true, shares: false },
            ..Properties::ANY
        }
    }

    fn handle(&mut self, now: Now, input: Input<'_>) -> Result<(), HandleError> {
        match input {
            Input::Message { source, bytes } => self.hear(source, bytes)?,
            Input::Command(command) => self.command(now, command)?,
            Input::Outcome(token, outcome) => self.outcome(token, outcome),
            Input::Fetched(id, result) => self.fetched(id, result),
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
        self.leaving
    }

    fn handle_timeout(&mut self, now: Now) {
        if self.leaving.is_some_and(|at| at <= now.monotonic) {
            self.leaving = Some(now.monotonic + LEAVE_AGAIN);
            let token = self.token();
            let (lane, to) = (Lane::Control, To::Group);
            self.outputs.push_back(Output::Send { token, lane, to, expect: None, after: None, bytes: vec![LEAVE] });
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
    roster: Vec<Leaf>,
    wraps: Vec<(CertHash, Vec<u8>)>,
}

impl Commit {
    fn parse(bytes: &[u8]) -> Result<Commit, Malformed> {
        let mut r = Reader::new(bytes);
        r.u8()?;
        let from = EpochId { counter: r.u32()?, hash: r.u64()? };
        r.take(32)?;
        let roster = read_roster(r.bytes16(usize::from(u16::MAX))?)?;
        let n = r.count16(34, roster.len())?;
        let mut wraps = Vec::with_capacity(n);
        for _ in 0..n {
            wraps.push((CertHash(r.array()?), r.bytes16(256)?.to_vec()));
        }
        r.take(32)?;
        r.end()?;
        Ok(Commit { from, roster, wraps })
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
    w.raw(&state.epoch.to_bytes()).raw(state.secret.expose()).bytes16(&roster_bytes(&state.roster))
}

fn read_state(r: &mut Reader<'_>) -> Result<State, Malformed> {
    let epoch = EpochId { counter: r.u32()?, hash: r.u64()? };
    let secret = Secret::from_bytes(r.array()?);
    Ok(State { epoch, secret, roster: read_roster(r.bytes16(usize::from(u16::MAX))?)? })
}

type Journaled = (EpochId, Vec<u8>, State, Option<Vec<u8>>);

fn read_record(record: &[u8]) -> Result<(Option<State>, Option<Journaled>), Malformed> {
    let mut r = Reader::new(record);
    let state = if r.u8()? == 1 { Some(read_state(&mut r)?) } else { None };
    let pending = if r.u8()? == 1 {
        let from = EpochId { counter: r.u32()?, hash: r.u64()? };
        let bytes = r.bytes16(usize::from(u16::MAX))?.to_vec();
        let next = read_state(&mut r)?;
        let welcome = Some(r.bytes16(usize::from(u16::MAX))?.to_vec()).filter(|w| !w.is_empty());
        Some((from, bytes, next, welcome))
    } else {
        None
    };
    r.end()?;
    if state.is_none() && pending.is_none() { Err(Malformed) } else { Ok((state, pending)) }
}

const COMMIT: u8 = 1;
const WELCOME: u8 = 2;
const LEAVE: u8 = 3;
const RECORD: u64 = 1;
const LATER_MAX: usize = 64;
const LEAVE_AGAIN: Duration = Duration::from_millis(100);
const INFO: &[u8] = b"sealcast/mock/mls";
