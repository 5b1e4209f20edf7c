//! The gate before publishing: which key and compartment a topic takes, and whether anybody may seal.
//!
//! ```text
//! Waiting ──Epoch──▶ Open ──Prepare, excludes──▶ Paused ──Epoch──▶ Open …   ──Excluded──▶ Closed
//! ```
//! On channels on which a position ends epochs, publishers wait a little longer than for the key: until all that they
//! sealed before has its position.
//!
//! Publishers on any thread share one gate behind a lock, and seal while they hold it: once it is
//! paused, nothing is sealed under the old key any more (A5).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use sealcast_delivery::{Batch, SendError, Token};
use sealcast_keys::Exclusion;
use sealcast_wire::{Access, Domain, Guarantee, Monotonic, Protect, View, limits};

use super::recent::Recent;
use crate::url::OriginMode;

/// One installed or agreed epoch: who, with what, by which rights.
pub struct Epoch {
    /// The membership.
    pub view: Arc<View>,
    /// Seals and opens; `None` where nothing is sealed.
    pub protect: Option<Arc<dyn Protect>>,
    /// Who may do what.
    pub access: Arc<dyn Access>,
}

/// The gate; see the module.
pub struct Gate {
    state: State,
    origin: OriginMode,
    routes: BTreeMap<Box<str>, Route>,
    queue: VecDeque<Queued>,
    queue_bytes: usize,
    /// By guarantee: whether a position in an order ends epochs there.
    by_position: [bool; 4],
    /// Publishers there wait for their positions.
    waits: bool,
    /// What was last sealed and sent, to vouch for.
    pub(super) recent: Recent,
}

enum State {
    Waiting,
    Open(Arc<Epoch>),
    Paused(Arc<Epoch>),
    Closed(Exclusion),
}

/// How one topic is sealed in one epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The compartment whose key seals it.
    pub domain: Domain,
    /// Whether its origin is signed.
    pub signed: bool,
}

/// What the gate says to a publisher.
pub enum Pass {
    /// Seal so, before the gate's lock is let go.
    Send(Arc<Epoch>, Route),
    /// The message was queued: the key is changing.
    Queued,
}

/// A message to be published.
#[derive(Clone, Copy, Debug)]
pub struct Publication<'a> {
    /// Its topic.
    pub topic: &'a str,
    /// Its payload.
    pub body: &'a [u8],
    /// How strongly.
    pub guarantee: Guarantee,
    /// The sender's clock, microseconds since 1970, if it tells.
    pub sent_micros: Option<u64>,
}

/// A message that waits for the next key, or may have to be sealed again.
pub(super) struct Queued {
    /// What the application knows it by, if it was told.
    pub(super) token: Option<Token>,
    pub(super) topic: Box<str>,
    pub(super) body: Vec<u8>,
    pub(super) guarantee: Guarantee,
    pub(super) sent_micros: Option<u64>,
}

impl Gate {
    /// A gate of a group without a view.
    pub fn new(origin: OriginMode) -> Gate {
        Gate {
            state: State::Waiting,
            origin,
            routes: BTreeMap::new(),
            queue: VecDeque::new(),
            queue_bytes: 0,
            by_position: [false; 4],
            waits: false,
            recent: Recent::default(),
        }
    }

    /// On the channels of these guarantees a position ends epochs.
    pub(super) fn cut_by_position(self, by_position: [bool; 4]) -> Gate {
        Gate { by_position, ..self }
    }

    /// Whether a message may go, and how.
    ///
    /// # Errors
    /// [`PublishError`]: rights are those of our own certificate (A1).
    pub fn admit(&mut self, message: &Publication<'_>) -> Result<Pass, PublishError> {
        if message.topic.len() > limits::TOPIC_BYTES_MAX || message.body.len() > limits::MESSAGE_BYTES_MAX {
            return Err(SendError::TooLong.into());
        }
        match &self.state {
            State::Open(epoch) if !self.waits || !self.by_position[message.guarantee as usize] => {
                let epoch = epoch.clone();
                Ok(Pass::Send(epoch.clone(), self.route(&epoch, message.topic)?))
            }
            State::Waiting => Err(PublishError::NotReady),
            State::Closed(why) => Err(PublishError::Excluded(why.clone())),
            State::Open(epoch) | State::Paused(epoch) => {
                let epoch = epoch.clone();
                self.route(&epoch, message.topic)?;
                let bytes = message.topic.len() + message.body.len();
                let full = self.queue.len() >= limits::PAUSED_MESSAGES_MAX
                    || self.queue_bytes + bytes > limits::PAUSED_BYTES_MAX;
                if full {
                    return Err(SendError::Full.into());
                }
                self.queue_bytes += bytes;
                self.queue.push_back(Queued {
                    token: None,
                    topic: message.topic.into(),
                    body: message.body.to_vec(),
                    guarantee: message.guarantee,
                    sent_micros: message.sent_micros,
                });
                Ok(Pass::Queued)
            }
        }
    }

    /// Whether a message under these topics may be sealed as a whole now, for which epoch.
    ///
    /// # Errors
    /// [`PublishError`]; `NotReady` also while the key is changing.
    pub(super) fn admit_whole<'t>(
        &mut self,
        topics: impl Iterator<Item = &'t str>,
    ) -> Result<Arc<Epoch>, PublishError> {
        let epoch = match &self.state {
            State::Open(epoch) => epoch.clone(),
            State::Waiting | State::Paused(_) => return Err(PublishError::NotReady),
            State::Closed(why) => return Err(PublishError::Excluded(why.clone())),
        };
        for topic in topics {
            self.route(&epoch, topic)?;
        }
        Ok(epoch)
    }

    /// Names the message that was queued last.
    pub(super) fn name_queued(&mut self, token: Token) {
        if let Some(queued) = self.queue.back_mut() {
            queued.token = Some(token);
        }
    }

    /// The epoch that publishers seal for; while they are paused, the one that they sealed for last.
    pub fn epoch(&self) -> Option<&Arc<Epoch>> {
        match &self.state {
            State::Open(epoch) | State::Paused(epoch) => Some(epoch),
            State::Waiting | State::Closed(_) => None,
        }
    }

    /// Whether publishing is paused by a change of key that excludes somebody.
    pub fn is_paused(&self) -> bool {
        matches!(self.state, State::Paused(_))
    }

    /// Why nothing can be published any more, if so.
    pub fn closed(&self) -> Option<&Exclusion> {
        match &self.state {
            State::Closed(why) => Some(why),
            _ => None,
        }
    }

    /// Remembers datagrams that leave now, so that they can be vouched for (A5).
    pub fn sending(&mut self, now: Monotonic, batch: &Batch) {
        if self.epoch().is_some_and(|e| e.protect.is_some()) {
            self.recent.remember(now, batch);
        }
    }

    /// Nothing is sealed under the old key from now on.
    pub(super) fn pause(&mut self) {
        if let State::Open(epoch) = &self.state {
            self.state = State::Paused(epoch.clone());
        }
    }

    /// Seal for this epoch from now on; what was queued and waits for no position is the caller's to send, in order.
    pub(super) fn open(&mut self, epoch: Arc<Epoch>) -> VecDeque<Queued> {
        self.routes.clear();
        self.state = State::Open(epoch);
        self.due()
    }

    /// Publishers wait for the positions of what they sealed before, where a position ends epochs.
    pub(super) fn pause_ordered(&mut self) {
        self.waits = true;
    }

    /// They have them all; what was queued is the caller's to send, in order.
    pub(super) fn open_ordered(&mut self) -> VecDeque<Queued> {
        self.waits = false;
        self.due()
    }

    fn due(&mut self) -> VecDeque<Queued> {
        if let State::Paused(_) = self.state {
            return VecDeque::new();
        }
        let waits = |it: &Queued| self.waits && self.by_position[it.guarantee as usize];
        let (kept, due) = std::mem::take(&mut self.queue).into_iter().partition(waits);
        self.queue = kept;
        self.queue_bytes = self.queue.iter().map(|it| it.topic.len() + it.body.len()).sum();
        due
    }

    /// The old key stands after all.
    pub(super) fn reopen(&mut self) -> VecDeque<Queued> {
        match &self.state {
            State::Paused(epoch) => {
                let epoch = epoch.clone();
                self.open(epoch)
            }
            _ => VecDeque::new(),
        }
    }

    /// Nothing can be published any more; what was queued will not be.
    pub(super) fn close(&mut self, why: Exclusion) -> VecDeque<Queued> {
        self.routes.clear();
        self.queue_bytes = 0;
        self.recent = Recent::default();
        self.state = State::Closed(why);
        std::mem::take(&mut self.queue)
    }

    fn route(&mut self, epoch: &Epoch, topic: &str) -> Result<Route, PublishError> {
        if let Some(route) = self.routes.get(topic) {
            return Ok(*route);
        }
        let access = &epoch.access;
        if !access.may_publish(epoch.view.me, topic) {
            return Err(PublishError::Denied);
        }
        let domain = access.domain(topic).ok_or(PublishError::Denied)?;
        let must_sign = access.must_sign(topic);
        let signed = match self.origin {
            OriginMode::Auto => must_sign,
            OriginMode::Signed => true,
            OriginMode::Mac if must_sign => return Err(PublishError::MustSign),
            OriginMode::Mac => false,
        };
        // What is sealed by itself is signed there.
        let signs = epoch.protect.as_ref().is_some_and(|it| it.payload().is_none());
        let route = Route { domain, signed: signed && signs };
        if self.routes.len() >= limits::ROUTES_MAX {
            self.routes.clear();
        }
        self.routes.insert(topic.into(), route);
        Ok(route)
    }
}

/// Why a message was not published.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    /// No view is installed yet.
    #[error("no key is agreed yet")]
    NotReady,
    /// Our certificate grants no `pub` on the topic.
    #[error("our certificate grants no pub right on this topic")]
    Denied,
    /// `origin=mac`, but some reader of the topic may not write it: unsigned messages would be dropped (A1).
    #[error("the topic demands signatures, and origin=mac forbids them")]
    MustSign,
    /// The process was forked after it became a member (G4).
    #[error("the session belongs to the process that opened it")]
    Forked,
    /// We are out.
    #[error("no longer a member")]
    Excluded(Exclusion),
    /// Delivery says no.
    #[error(transparent)]
    Send(#[from] SendError),
}
