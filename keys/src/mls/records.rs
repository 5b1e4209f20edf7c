//! What a process leaves for the next one: the group's state, our pending commit, the key package that waits for a Welcome.
//!
//! State and pending commit are one record: torn between the two, either would be lost for good.

use sealcast_crypto::secret::Secret;
use sealcast_wire::Now;
use sealcast_wire::codec::{Malformed, Reader, Writer};
use zeroize::Zeroizing;

use super::committing::{Pending, Wish};
use super::engine::{self, Checkpoint, Engine, PackageSecret, ProposedKind};
use super::joining::Start;
use super::message::{Card, Message};
use super::scheme::{Mls, Phase, Timer};
use crate::{MemberStatus, Output, Status};

/// What is stored.
#[derive(Default)]
pub(super) struct Records {
    /// The last run's number.
    pub(super) run: u64,
    pub(super) packages: Vec<OwnPackage>,
    pub(super) state: Option<State>,
}

/// The secret of the key package that others have.
pub(super) struct OwnPackage {
    pub(super) secret: PackageSecret,
}

/// A group's state.
pub(super) struct State {
    position: u64,
    founded: u64,
    counter: u32,
    base: Secret<32>,
    cut: [u8; 32],
    cards: Vec<Card>,
    checkpoint: Checkpoint,
    tree: Vec<u8>,
    /// What the group is still to commit.
    wishes: Vec<u8>,
    pending: Option<Sent>,
}

/// A commit that was sent, or was about to be.
struct Sent {
    epoch: u64,
    message: Vec<u8>,
    record: engine::Pending,
    welcome: Option<Vec<u8>>,
    wishes: Vec<u8>,
}

/// Reads what is stored; a record that does not parse is none.
pub(super) fn read(stored: &[(u64, Vec<u8>)]) -> Records {
    let of = |id: u64| stored.iter().find(|(it, _)| *it == id).map(|(_, record)| record.as_slice());
    let (run, packages) = of(RUN).and_then(|it| read_run(it).ok()).unwrap_or_default();
    Records { run, packages, state: of(STATE).and_then(|it| State::read(it).ok()) }
}

/// The position in the order from which a member with these records goes on; `None` for a newcomer.
pub fn position(stored: &[(u64, Vec<u8>)]) -> Option<u64> {
    read(stored).state.map(|it| it.position.saturating_add(1))
}

fn read_run(record: &[u8]) -> Result<(u64, Vec<OwnPackage>), Malformed> {
    let mut r = Reader::new(record);
    let (version, run) = (r.u8()?, r.u64()?);
    if version != VERSION {
        return Err(Malformed);
    }
    let mut packages = Vec::new();
    while r.remaining() > 0 {
        packages.push(OwnPackage { secret: PackageSecret(Zeroizing::new(long(&mut r)?.to_vec())) });
    }
    Ok((run, packages))
}

impl State {
    fn read(record: &[u8]) -> Result<State, Malformed> {
        let mut r = Reader::new(record);
        if r.u8()? != VERSION {
            return Err(Malformed);
        }
        let (position, founded, counter) = (r.u64()?, r.u64()?, r.u32()?);
        let (base, cut) = (Secret::from_bytes(r.array()?), r.array()?);
        let count = r.u32()?;
        let cards = (0..count).map(|_| Card::read(&mut r)).collect::<Result<_, _>>()?;
        let checkpoint = Checkpoint(Zeroizing::new(long(&mut r)?.to_vec()));
        let tree = long(&mut r)?.to_vec();
        let wishes = long(&mut r)?.to_vec();
        let pending = match r.u8()? {
            0 => None,
            _ => {
                let (epoch, message) = (r.u64()?, long(&mut r)?.to_vec());
                let record = Zeroizing::new(long(&mut r)?.to_vec());
                let welcome = long(&mut r)?.to_vec();
                let welcome = (!welcome.is_empty()).then_some(welcome);
                let wishes = long(&mut r)?.to_vec();
                Some(Sent { epoch, message, record: engine::Pending(record), welcome, wishes })
            }
        };
        r.end()?;
        Ok(State { position, founded, counter, base, cut, cards, checkpoint, tree, wishes, pending })
    }
}

/// Bytes with a length of four.
fn long<'a>(r: &mut Reader<'a>) -> Result<&'a [u8], Malformed> {
    let length = r.u32()? as usize;
    r.take(length)
}

fn put_long(w: &mut Writer, bytes: &[u8]) {
    w.u32(bytes.len() as u32).raw(bytes);
}

impl<E: Engine> Mls<E> {
    /// Makes the state durable before anything that follows from it is sent (G6).
    pub(super) fn store(&mut self) {
        // The engine may be in the next epoch already, and the rest is not: the record before leads there, too.
        if self.inside().is_some_and(|it| it.entering.is_some()) {
            return;
        }
        let mut w = Writer::new();
        let pending = self.pending.as_ref();
        if let Phase::Inside(inside) = &mut self.phase {
            w.u8(VERSION).u64(inside.position).u64(inside.founded).u32(inside.epoch.counter);
            w.raw(inside.base.expose()).raw(&inside.cut).u32(inside.cards.len() as u32);
            inside.cards.values().for_each(|card| card.put(&mut w));
            put_long(&mut w, &inside.engine.checkpoint().0);
            put_long(&mut w, &inside.engine.tree());
            put_long(&mut w, &written(self.wishes.iter()));
            w.u8(u8::from(pending.is_some()));
            if let Some(pending) = pending {
                w.u64(pending.epoch);
                put_long(&mut w, &pending.message);
                put_long(&mut w, &pending.record.0);
                put_long(&mut w, pending.welcome.as_deref().unwrap_or_default());
                put_long(&mut w, &written(pending.wishes.iter()));
            }
        }
        self.outputs.push_back(Output::Store { id: STATE, record: w.finish() });
    }

    pub(super) fn store_run(&mut self) {
        let mut w = Writer::new();
        w.u8(VERSION).u64(self.card.run);
        self.packages.iter().for_each(|it| put_long(&mut w, &it.secret.0));
        self.outputs.push_back(Output::Store { id: RUN, record: w.finish() });
    }

    /// Goes on where the last run ended. Nothing is sealed before the group knows this run.
    pub(super) fn resume(&mut self, now: Now, state: State) -> Option<()> {
        let engine = E::restore(&self.setup, &state.checkpoint, &state.tree).ok()?;
        let State { position, founded, counter, base, cut, cards, wishes, pending, .. } = state;
        self.begin_inside(engine, base, Start { counter, position, founded, cut, cards });
        self.wishes = self.read_wishes(&wishes).into();
        if let Some(inside) = self.inside_mut() {
            let removal =
                |it: engine::Proposed| if let ProposedKind::Remove(leaf) = it.what { Some(leaf) } else { None };
            inside.leavers = inside.engine.proposals().into_iter().filter_map(removal).collect();
            let leaves = inside.leavers.contains(&inside.engine.own_leaf());
            self.leaving = leaves;
        }
        if let Some(Sent { epoch, message, record, welcome, wishes }) = pending {
            let wishes = self.read_wishes(&wishes);
            let commit = match Message::read(&message) {
                Ok(Message::Commit { commit, .. }) => commit,
                _ => Vec::new(),
            };
            let tokens = Vec::new();
            let excludes = false;
            self.pending = Some(Pending { tokens, epoch, message, commit, record, welcome, wishes, excludes });
            self.send_pending();
        }
        self.enter_anew(now, sealcast_wire::Change::Formed, false);
        self.timers.sooner(Timer::Card, now.monotonic);
        Some(())
    }

    fn read_wishes(&self, written: &[u8]) -> Vec<Wish> {
        let mut r = Reader::new(written);
        let mut wishes = Vec::new();
        while r.remaining() > 0 {
            let Ok(wish) = Wish::read(&mut r, self.judge.anchor()) else { break };
            wishes.push(wish);
        }
        wishes
    }

    /// What `group show` prints.
    pub(super) fn describe(&mut self) {
        let Some(inside) = self.inside() else { return };
        let member = |(at, it): (&sealcast_wire::Slot, &std::sync::Arc<sealcast_crypto::identity::Verified>)| {
            let id = inside.roster.get(*at).map(|member| member.id)?;
            Some(MemberStatus {
                id,
                name: it.name.to_string(),
                serial: it.serial,
                key: it.key.clone(),
                sealing: it.sealing,
                exchanges: false,
                rights: it.rights.clone(),
                attributes: it.attributes.clone(),
                not_after: it.not_after.0,
                since: inside.epoch.counter,
            })
        };
        let members = inside.members.iter().filter_map(member).collect();
        self.outputs.push_back(Output::Described(Box::new(Status { members, ..Status::default() })));
    }
}

fn written<'a>(wishes: impl Iterator<Item = &'a Wish>) -> Vec<u8> {
    let mut w = Writer::new();
    wishes.for_each(|it| it.put(&mut w));
    w.finish()
}

const VERSION: u8 = 1;
const STATE: u64 = 1;
const RUN: u64 = 2;
