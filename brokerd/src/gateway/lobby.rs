//! Where everybody waits whom the broker does not know: connections before their hello, and clients that nobody vouches
//! for. Keys and sockets are free, so what all of them hold together is little, and the oldest gives way to the next:
//! whoever fills the lobby keeps strangers out, as long as it goes on, and nobody else.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// The lobby.
#[derive(Debug)]
pub(super) struct Lobby {
    places: usize,
    seats: Mutex<Seats>,
}

#[derive(Debug, Default)]
struct Seats {
    next: u64,
    /// By arrival.
    taken: BTreeMap<u64, Arc<Notify>>,
}

/// A place in the lobby, given up when it is dropped.
#[derive(Debug)]
pub(super) struct Seat {
    lobby: Arc<Lobby>,
    number: u64,
    lost: Arc<Notify>,
}

impl Lobby {
    /// With so many places.
    pub(super) fn new(places: usize) -> Arc<Lobby> {
        Arc::new(Lobby { places: places.max(1), seats: Mutex::default() })
    }

    /// Takes a place; if there is none, the oldest is lost.
    pub(super) fn enter(self: &Arc<Self>) -> Seat {
        let mut seats = self.seats();
        while seats.taken.len() >= self.places
            && let Some((_, oldest)) = seats.taken.pop_first()
        {
            oldest.notify_one();
        }
        let (number, lost) = (seats.next, Arc::new(Notify::new()));
        seats.next += 1;
        seats.taken.insert(number, lost.clone());
        Seat { lobby: self.clone(), number, lost }
    }

    fn seats(&self) -> MutexGuard<'_, Seats> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seat {
    /// Told when it is lost.
    pub(super) fn lost(&self) -> Arc<Notify> {
        self.lost.clone()
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.lobby.seats().taken.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    async fn is_lost(seat: &Seat) -> bool {
        tokio::time::timeout(Duration::ZERO, seat.lost().notified()).await.is_ok()
    }

    #[tokio::test]
    async fn rule_g8_the_oldest_gives_way_and_who_leaves_makes_room() {
        let lobby = Lobby::new(2);
        let (first, second) = (lobby.enter(), lobby.enter());
        assert!(!is_lost(&first).await);
        let third = lobby.enter();
        assert!(is_lost(&first).await && !is_lost(&second).await);
        drop(third);
        let fourth = lobby.enter();
        assert!(!is_lost(&second).await && !is_lost(&fourth).await);
        assert_eq!(lobby.seats().taken.len(), 2);
        drop((first, second, fourth));
        assert!(lobby.seats().taken.is_empty());
    }
}
