//! Where everybody waits whom the broker does not know: connections before their hello, and clients that nobody vouches
//! for. Keys and sockets are free, so what all of them hold together is little, and the oldest gives way to the next:
//! whoever fills these slots keeps unregistered clients out, as long as it goes on, and nobody else.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// The connections that have not proved a registered key.
#[derive(Debug)]
pub(super) struct UnauthenticatedConnections {
    places: usize,
    slots: Mutex<Slots>,
}

#[derive(Debug, Default)]
struct Slots {
    next: u64,
    /// By arrival.
    taken: BTreeMap<u64, Arc<Notify>>,
}

/// A slot among them, given up when it is dropped.
#[derive(Debug)]
pub(super) struct Slot {
    unauthenticated: Arc<UnauthenticatedConnections>,
    number: u64,
    lost: Arc<Notify>,
}

impl UnauthenticatedConnections {
    /// With so many places.
    pub(super) fn new(places: usize) -> Arc<UnauthenticatedConnections> {
        Arc::new(UnauthenticatedConnections { places: places.max(1), slots: Mutex::default() })
    }

    /// Takes a place; if there is none, the oldest is lost.
    pub(super) fn enter(self: &Arc<Self>) -> Slot {
        let mut slots = self.slots();
        while slots.taken.len() >= self.places
            && let Some((_, oldest)) = slots.taken.pop_first()
        {
            oldest.notify_one();
        }
        let (number, lost) = (slots.next, Arc::new(Notify::new()));
        slots.next += 1;
        slots.taken.insert(number, lost.clone());
        Slot { unauthenticated: self.clone(), number, lost }
    }

    fn slots(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slot {
    /// Told when it is lost.
    pub(super) fn lost(&self) -> Arc<Notify> {
        self.lost.clone()
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.unauthenticated.slots().taken.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    async fn is_lost(slot: &Slot) -> bool {
        tokio::time::timeout(Duration::ZERO, slot.lost().notified()).await.is_ok()
    }

    #[tokio::test]
    async fn rule_g8_the_oldest_gives_way_and_who_leaves_makes_room() {
        let unauthenticated = UnauthenticatedConnections::new(2);
        let (first, second) = (unauthenticated.enter(), unauthenticated.enter());
        assert!(!is_lost(&first).await);
        let third = unauthenticated.enter();
        assert!(is_lost(&first).await && !is_lost(&second).await);
        drop(third);
        let fourth = unauthenticated.enter();
        assert!(!is_lost(&second).await && !is_lost(&fourth).await);
        assert_eq!(unauthenticated.slots().taken.len(), 2);
        drop((first, second, fourth));
        assert!(unauthenticated.slots().taken.is_empty());
    }
}
