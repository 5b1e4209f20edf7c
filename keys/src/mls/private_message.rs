//! Messages of the application as PrivateMessages (RFC 9420, section 6.3), with `data=mls` (D5): each is signed by its
//! sender's leaf and has a key of its own (section 9). They travel in records that the epoch's key seals like all others, so that
//! carriers see neither group nor epoch nor length of what is signed.
//!
//! For each epoch of RFC 9420 a second engine seals and opens them, made from a checkpoint of the one that follows the group.
//! So what waits can be opened when the group has gone on, proposals that wait keep nobody from publishing, and each engine
//! uses ratchets that the other does not: one those of handshakes, the other those of applications.
//!
//! An engine opens what is up to 1,024 messages ahead of what it opened of that sender. No member seals more of them in one epoch, so
//! that a member that misses any, or runs anew, opens all others; after half of them its sender asks for the next epoch.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rand_chacha::ChaCha20Rng;
use rand_core::{Rng as _, SeedableRng as _};
use sealcast_crypto::hash::{Transcript, sha256};
use sealcast_crypto::secret::Secret;
use sealcast_wire::codec::{Malformed, Reader};
use sealcast_wire::{Dropped, Exhausted, Now, PayloadContext, SealPayload, Utc, limits};

use super::committing::Wish;
use super::engine::{Engine, ProcessError, Processed, Setup, vector};
use super::scheme::{Inside, Mls, Timer, slot, step};
use crate::{Notice, Output};

/// Seals and opens the PrivateMessages of one epoch of RFC 9420.
pub(super) struct PrivateMessages<E> {
    /// RFC 9420's number of the epoch.
    epoch: u64,
    /// Whether we may seal: not in an epoch in which a run before sealed, since nothing says which keys that used.
    pub(super) seals: bool,
    group: Arc<str>,
    utc: Utc,
    state: Mutex<State<E>>,
}

struct State<E> {
    engine: E,
    rng: ChaCha20Rng,
    own: VecDeque<OwnMessage>,
    sealed: usize,
    /// The next epoch was asked for.
    asked: bool,
}

/// A message of ours: RFC 9420 has nobody open his own.
struct OwnMessage {
    hash: [u8; 32],
    ordered: bool,
    /// Until it comes back.
    payload: Option<Vec<u8>>,
}

impl OwnMessage {
    /// How many bytes of it are kept.
    fn kept(&self) -> usize {
        self.payload.as_ref().map_or(0, Vec::len)
    }
}

impl<E: Engine> PrivateMessages<E> {
    /// For the epoch that `engine` is in.
    fn new(setup: &Setup, engine: &mut E, group: Arc<str>, seals: bool, (utc, seed): (Utc, &Secret<32>)) -> Self {
        let (checkpoint, tree) = (engine.checkpoint(), engine.tree());
        let copy = E::restore(setup, &checkpoint, &tree).expect("an engine restores what it wrote");
        let (rng, own) = (ChaCha20Rng::from_seed(*seed.expose()), VecDeque::new());
        let state = Mutex::new(State { engine: copy, rng, own, sealed: 0, asked: false });
        PrivateMessages { epoch: engine.context().epoch, seals, group, utc, state }
    }

    /// The authenticated data of a message: what it is bound to, beside what RFC 9420 binds it to.
    fn bound_to(&self, context: &PayloadContext<'_>) -> [u8; 32] {
        let PayloadContext { epoch, by, ordered, topic, sent_micros } = context;
        let sent = sent_micros.map(u64::to_be_bytes);
        let t = Transcript::new("sealcast/v1/mls/payload").add(self.group.as_bytes()).add(&epoch.to_bytes());
        let t = t.add(&by.to_bytes()).add(&[u8::from(*ordered)]).add(topic.as_bytes());
        t.add(sent.as_ref().map_or(&[], <[u8; 8]>::as_slice)).finish()
    }
}

impl<E: Engine> SealPayload for PrivateMessages<E> {
    fn seal(&self, context: &PayloadContext<'_>, payload: &[u8]) -> Result<Vec<u8>, Exhausted> {
        if !self.seals {
            return Err(Exhausted);
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.sealed >= limits::MLS_SEALED_MAX || !state.reserve(payload.len()) {
            return Err(Exhausted);
        }
        let State { engine, rng, own, sealed: count, .. } = &mut *state;
        let seed = Secret::random(rng);
        let sealed = engine.seal(payload, &self.bound_to(context), step(self.utc, &seed)).map_err(|_| Exhausted)?;
        *count += 1;
        own.push_back(OwnMessage { hash: sha256(&sealed), ordered: context.ordered, payload: Some(payload.to_vec()) });
        Ok(sealed)
    }

    fn open(&self, context: &PayloadContext<'_>, sealed: &[u8]) -> Result<Vec<u8>, Dropped> {
        // Before its key is used up: what somebody puts elsewhere would be lost where it belongs.
        let InClear { content, authenticated_data } = InClear::read(sealed).map_err(|Malformed| Dropped::Malformed)?;
        if content != APPLICATION || authenticated_data != self.bound_to(context) {
            return Err(Dropped::Auth);
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if slot(state.engine.own_leaf()) == context.by {
            let hash = sha256(sealed);
            let own = state.own.iter_mut().find(|it| it.hash == hash).ok_or(Dropped::NoKey)?;
            return own.payload.take().ok_or(Dropped::Replay);
        }
        match state.engine.process(sealed, self.utc) {
            Ok(Processed::Application { by, plaintext, .. }) if slot(by) == context.by => Ok(plaintext.to_vec()),
            Err(ProcessError::OtherEpoch(_)) => Err(Dropped::NoKey),
            Ok(_) | Err(_) => Err(Dropped::Auth),
        }
    }

    fn is_worn(&self) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let waits = state.own.iter().filter(|it| it.ordered).map(OwnMessage::kept).sum::<usize>();
        let is_worn = state.sealed >= limits::MLS_SEALED_MAX / 2 || waits >= limits::MLS_OWN_BYTES_MAX / 2;
        is_worn && !std::mem::replace(&mut state.asked, true)
    }
}

impl<E> State<E> {
    /// Whether a payload of ours can be kept until it comes back; of what has no position the oldest gives way, which need not come.
    fn reserve(&mut self, bytes: usize) -> bool {
        let mut over =
            (self.own.iter().map(OwnMessage::kept).sum::<usize>() + bytes).saturating_sub(limits::MLS_OWN_BYTES_MAX);
        for own in self.own.iter_mut().filter(|it| !it.ordered) {
            if over == 0 {
                break;
            }
            over = over.saturating_sub(own.kept());
            own.payload = None;
        }
        over == 0
    }
}

/// What a PrivateMessage shows to everybody who has it.
struct InClear<'a> {
    content: u8,
    authenticated_data: &'a [u8],
}

impl InClear<'_> {
    /// An MLSMessage (section 6): `version ‖ wire format ‖ group id ‖ epoch ‖ content type ‖ authenticated data ‖ …`.
    fn read(message: &[u8]) -> Result<InClear<'_>, Malformed> {
        let mut r = Reader::new(message);
        if (r.u16()?, r.u16()?) != (MLS_1_0, PRIVATE_MESSAGE) {
            return Err(Malformed);
        }
        vector(&mut r)?;
        r.u64()?;
        Ok(InClear { content: r.u8()?, authenticated_data: vector(&mut r)? })
    }
}

const MLS_1_0: u16 = 1;
const PRIVATE_MESSAGE: u16 = 2;
const APPLICATION: u8 = 1;

impl<E: Engine> Mls<E> {
    /// What seals and opens messages in the engine's epoch, with `data=mls`. It may seal in an epoch that is `new` to all runs of
    /// ours; one that began before the group knew this run was perhaps not new to a run whose records are lost.
    pub(super) fn private_messages(&mut self, now: Now, new: bool) -> Option<Arc<PrivateMessages<E>>> {
        if !self.config.private_messages {
            return None;
        }
        let (utc, seed) = (self.utc(now), self.seed());
        let (setup, group) = (self.setup.clone(), self.group.clone());
        let inside = self.inside_mut()?;
        let epoch = inside.engine.context().epoch;
        if inside.messages.as_ref().is_none_or(|it| it.epoch != epoch) {
            let made = PrivateMessages::new(&setup, &mut inside.engine, group, new, (utc, &seed));
            inside.messages = Some(Arc::new(made));
        }
        inside.messages.clone()
    }

    /// A group's id says in which form its messages travel, so that nobody comes in who has another one.
    pub(super) fn mark_form(&self, group_id: &mut [u8; 32]) {
        if self.config.private_messages {
            group_id[..FORM.len()].copy_from_slice(FORM);
        }
    }

    /// Whether the messages of a group travel in the form that we have.
    pub(super) fn has_our_form(&self, group_id: &[u8]) -> bool {
        group_id.starts_with(FORM) == self.config.private_messages
    }

    /// Whether the way into this group is none for us: its messages have another form.
    pub(super) fn has_other_form(&mut self, group_id: &[u8]) -> bool {
        let has_other = !self.has_our_form(group_id);
        if has_other && !std::mem::replace(&mut self.told_form, true) {
            let notice = Notice::OtherForm { private_messages: !self.config.private_messages };
            self.outputs.push_back(Output::Notice { notice, about: None });
        }
        has_other
    }

    /// This run may not seal in this epoch: it leads to another one, unless somebody else does.
    pub(super) fn renew(&mut self, now: Now) {
        let is_in = |it: &Inside<E>| it.cards.get(&self.card.id.cert) == Some(&self.card);
        if self.inside().is_some_and(|it| is_in(it) && it.messages.as_ref().is_some_and(|it| !it.seals)) {
            self.wish(now, Wish::Update);
            self.timers.set(Timer::Renew, now.monotonic + self.paced(RENEW_AGAIN));
        }
    }

    /// When it does so: not all at once that begin anew together.
    pub(super) fn renew_soon(&mut self, now: Now) {
        let share = f64::from(self.rng.next_u32()) / f64::from(u32::MAX);
        let members = self.inside().map_or(1, |it| it.members.len()).min(RENEWS_AT_ONCE);
        let wait = self.paced(RENEW_APART) * (members as u32 - 1);
        self.timers.sooner(Timer::Renew, now.monotonic + wait.mul_f64(share));
    }

    /// Somebody led to a new epoch.
    pub(super) fn renewed(&mut self) {
        if self.config.private_messages && self.timers.is_set(Timer::Renew) {
            self.timers.stop(Timer::Renew);
            self.wishes.retain(|it| *it != Wish::Update);
        }
    }
}

/// Of those that begin anew together each waits up to so long for each other one.
const RENEW_APART: Duration = Duration::from_millis(20);
const RENEWS_AT_ONCE: usize = 100;
const RENEW_AGAIN: Duration = Duration::from_secs(5);

/// How the id of a group begins whose messages travel as PrivateMessages.
const FORM: &[u8; 8] = b"data=mls";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_in_clear_is_read_with_checked_lengths() {
        let mut message =
            vec![0, 1, 0, 2, 3, b'a', b'b', b'c', 0, 0, 0, 0, 0, 0, 0, 9, APPLICATION, 0x40, 2, 7, 8, 0xff];
        let read = InClear::read(&message).unwrap();
        assert_eq!((read.content, read.authenticated_data), (APPLICATION, &[7, 8][..]));
        for length in 0..message.len() - 1 {
            assert!(InClear::read(&message[..length]).is_err(), "{length} bytes");
        }
        for (at, byte) in [(1, 2), (3, 1), (4, 0x80), (4, 0xc0), (18, 0xff)] {
            let before = std::mem::replace(&mut message[at], byte);
            assert!(InClear::read(&message).is_err(), "byte {at} is {byte}");
            message[at] = before;
        }
    }
}
