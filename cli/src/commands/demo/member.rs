//! A member of a demonstration's group: a session, and everything that it has received.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use sealcast::{Origin, OriginMode, Session, Subscription};

use crate::hint::Failure;
use crate::scene::Scene;

/// A member at work.
pub(super) struct Member {
    pub(super) name: String,
    pub(super) session: Session,
    got: Arc<Mutex<Vec<Got>>>,
    reader: Option<JoinHandle<()>>,
}

/// A message as it was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Got {
    pub(super) topic: String,
    /// The name, if a signature proves it.
    pub(super) signed_by: Option<String>,
    pub(super) epoch: u32,
    pub(super) payload: Vec<u8>,
}

impl Member {
    /// Opens the session of a name and takes everything.
    pub(super) fn start(scene: &Scene, url: &str, name: &str) -> Result<Member, Failure> {
        let opening = sealcast::open(url).home(scene.home()).identity(name).origin(OriginMode::Signed);
        let session = opening.wait()?;
        let subscription = session.subscribe("#").capacity(100_000).wait()?;
        let got = Arc::<Mutex<Vec<Got>>>::default();
        let into = got.clone();
        let reader = std::thread::spawn(move || read(subscription, &into));
        Ok(Member { name: name.to_owned(), session, got, reader: Some(reader) })
    }

    /// What it has received.
    pub(super) fn got(&self) -> MutexGuard<'_, Vec<Got>> {
        self.got.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many messages it has on a topic of another one, each proved to be that one's.
    pub(super) fn got_of(&self, other: &str, topic: &str) -> usize {
        self.got().iter().filter(|g| g.topic == topic && g.signed_by.as_deref() == Some(other)).count()
    }

    /// The epoch's number and how many members it has.
    pub(super) fn epoch(&self) -> Option<(u32, usize)> {
        self.session.view().map(|v| (v.epoch.counter, v.members.len()))
    }

    /// Closes the session.
    pub(super) fn stop(mut self) {
        self.session.clone().close();
        if let Some(reader) = self.reader.take() {
            // A panic in it was reported when it happened.
            let _ = reader.join();
        }
    }
}

fn read(mut subscription: Subscription, into: &Mutex<Vec<Got>>) {
    // Until the session is closed, or excluded: then there is an error.
    while let Ok(message) = subscription.next_timeout(Duration::from_millis(100)) {
        let Some(message) = message else { continue };
        let signed_by = match message.origin() {
            Origin::Signed(member) => Some(member.name.to_string()),
            _ => None,
        };
        let got = Got {
            topic: message.topic().to_owned(),
            signed_by,
            epoch: message.epoch().map_or(0, |e| e.counter),
            payload: message.into_payload(),
        };
        into.lock().unwrap_or_else(PoisonError::into_inner).push(got);
    }
}
