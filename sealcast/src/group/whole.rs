//! Messages that travel as one: the key scheme seals them as a whole, or nobody seals them (`keys=plain`).
//!
//! The transport calls the key scheme back, through [`SealMessage`], once it knows which id the message gets. A message that
//! was sealed for a policy or key that was replaced meanwhile (E6) is sealed again, and keeps its token.

use std::cell::{Cell, RefCell};

use sealcast_delivery::{Body, Delivery, Outcome, Outgoing, SendError, Token, What};
use sealcast_keys::{self as keys, Keys, SealError};
use sealcast_wire::{Envelope, Guarantee, Now, SealMessage, Sealed, To, Unsealed};

use super::ordered::TRIES_MAX;
use super::{Group, Output, PublishError, lock};

/// A message to be published as one, with all that its carriers read.
#[derive(Clone, Copy, Debug)]
pub struct Together<'a> {
    /// What they read; its versions are set to those in force.
    pub envelope: &'a Envelope,
    /// What only readers read: one body, or several that readers get together or not at all.
    pub bodies: &'a [&'a [u8]],
}

/// A message of ours that was sealed as a whole, until it is known what became of it.
pub(super) struct Whole {
    envelope: Envelope,
    bodies: Vec<Vec<u8>>,
    guarantee: Guarantee,
    /// The token under which the application knows it, once it was sent.
    first: Option<Token>,
    tries: u32,
}

impl Whole {
    /// One body under one topic; a message that was sent or queued before has that token, and was sent so often.
    pub(super) fn of_one(topic: &str, body: &[u8], guarantee: Guarantee, before: Option<(Token, u32)>) -> Whole {
        let (envelope, bodies) = (Envelope::of_topic(topic), vec![body.to_vec()]);
        Whole { envelope, bodies, guarantee, first: before.map(|(first, _)| first), tries: before.map_or(0, |it| it.1) }
    }
}

/// Seals one message when the transport calls.
struct Sealer<'a, K> {
    keys: RefCell<&'a mut K>,
    envelope: &'a Envelope,
    bodies: &'a [&'a [u8]],
    /// The id for a transport that has none.
    drawn: [u8; 16],
    why: Cell<SealError>,
}

impl<K: Keys> SealMessage for Sealer<'_, K> {
    fn seal(&self, id: Option<[u8; 16]>) -> Result<Sealed, Unsealed> {
        let message = keys::Seal { id: id.unwrap_or(self.drawn), envelope: self.envelope, bodies: self.bodies };
        self.keys.borrow_mut().seal(&message).map_err(|why| {
            self.why.set(why);
            Unsealed
        })
    }
}

impl<K: Keys, D: Delivery> Group<K, D> {
    /// Publishes one message with all that its carriers read, in their one order: the keys seal it as a whole, and again while
    /// what it was sealed for is replaced; with `keys=plain` it travels in clear, and then has one body. Its token comes back
    /// with what becomes of it ([`Output::Outcome`]).
    ///
    /// # Errors
    /// [`PublishError`]; [`SendError::PerDatagram`] where the transport or the keys seal datagrams.
    pub fn publish_together(&mut self, now: Now, message: Together<'_>) -> Result<Token, PublishError> {
        let Together { envelope, bodies } = message;
        let topics = envelope.headers.iter().map(|(topic, _)| topic.as_str());
        let epoch = lock(&self.gate).admit_whole(topics)?;
        let guarantee = Guarantee::Ordered;
        if self.keys.properties().seals_messages {
            let bodies = bodies.iter().map(|it| it.to_vec()).collect();
            return self
                .send_whole(now, Whole { envelope: envelope.clone(), bodies, guarantee, first: None, tries: 0 });
        }
        let (None, &[body]) = (&epoch.protect, bodies) else { return Err(SendError::PerDatagram.into()) };
        let what = What::Message { envelope, body: Body::Clear(body), again: None };
        let token = self.delivery.send(now, None, Outgoing { what, guarantee, to: To::Group })?;
        self.names.insert(token, token);
        Ok(token)
    }

    /// Has the keys seal a message, and sends it.
    pub(super) fn send_whole(&mut self, now: Now, whole: Whole) -> Result<Token, PublishError> {
        let bodies: Vec<&[u8]> = whole.bodies.iter().map(Vec::as_slice).collect();
        let drawn = self.opening.draw_id();
        let (envelope, keys) = (&whole.envelope, RefCell::new(&mut self.keys));
        let sealer = Sealer { keys, envelope, bodies: &bodies, drawn, why: Cell::new(SealError::NotReady) };
        let what = What::Message { envelope, body: Body::Sealed(&sealer), again: whole.first };
        let outgoing = Outgoing { what, guarantee: whole.guarantee, to: To::Group };
        match self.delivery.send(now, None, outgoing) {
            Ok(token) => {
                let first = whole.first.or(Some(token));
                self.sealed.insert(token, Whole { first, ..whole });
                Ok(token)
            }
            Err(SendError::NotReady) => Err(PublishError::NotReady),
            Err(SendError::Unsealed(_)) => Err(match sealer.why.get() {
                SealError::PerDatagram => SendError::PerDatagram.into(),
                SealError::NotReady | SealError::Number => PublishError::NotReady,
                SealError::Policy => PublishError::Denied,
                SealError::TooLarge => SendError::TooLong.into(),
            }),
            Err(why) => Err(why.into()),
        }
    }

    /// What became of a message that was sealed as a whole.
    pub(super) fn whole_became(&mut self, now: Now, token: Token, whole: Whole, outcome: Outcome) {
        let (first, tries) = (whole.first.unwrap_or(token), whole.tries + 1);
        let Outcome::Superseded(versions) = outcome else {
            return self.ready.push_back(Output::Outcome(first, outcome));
        };
        // Sealed for what was replaced meanwhile (E6): again, for what is in force.
        self.tell_keys(now, keys::Input::InForce(versions));
        let topics = whole.envelope.headers.iter().map(|(topic, _)| topic.as_str());
        let admitted = lock(&self.gate).admit_whole(topics);
        let sent = match admitted {
            Ok(_) if tries <= TRIES_MAX => self.send_whole(now, Whole { tries, ..whole }),
            Ok(_) => Err(SendError::Retired.into()),
            Err(why) => Err(why),
        };
        if sent.is_err() {
            self.ready.push_back(Output::Outcome(first, Outcome::Failed));
        }
    }
}
