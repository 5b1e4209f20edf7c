//! Where a long run notes how far it came, so that the next one goes on there.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// How far the seeds of one fault hold, on disk: a process that is ended leaves what it noted last.
pub struct Note {
    /// None if this user has no folder for it.
    path: Option<PathBuf>,
    held: Mutex<Held>,
}

struct Held {
    /// The first seed that was not played, or did not hold.
    next: u64,
    /// Those behind it that held.
    later: BTreeSet<u64>,
}

impl Note {
    /// The note of this name, where the other scenarios have theirs.
    pub fn of(name: &str) -> Note {
        let home = std::env::var_os("XDG_STATE_HOME")
            .map(PathBuf::from)
            .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/state")));
        let path = home.map(|home| home.join("sealcast/lab").join(name));
        Note { path, held: Mutex::new(Held { next: 0, later: BTreeSet::new() }) }
    }

    /// The first seed that was not played, or did not hold, in the run before; 0 if nothing was noted.
    pub fn read(&self) -> u64 {
        let text = self.path.as_ref().and_then(|path| fs::read_to_string(path).ok());
        text.and_then(|it| it.trim().parse().ok()).unwrap_or(0)
    }

    /// Seeds from this one on are played now.
    pub fn begin(&self, start: u64) {
        let held = &mut *self.held.lock().unwrap_or_else(PoisonError::into_inner);
        *held = Held { next: start, later: BTreeSet::new() };
    }

    /// A seed held.
    pub fn held(&self, seed: u64) {
        let held = &mut *self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.later.insert(seed);
        let before = held.next;
        while held.later.remove(&held.next) {
            held.next += 1;
        }
        if held.next > before {
            self.write(held.next);
        }
    }

    /// A note that cannot be written costs only a repetition. There is the old one or the new one, whenever the process ends.
    fn write(&self, next: u64) {
        if let Some(path) = &self.path {
            let new = path.with_extension("new");
            let _ = path.parent().map(fs::create_dir_all);
            let _ = fs::write(&new, format!("{next}\n")).and_then(|()| fs::rename(new, path));
        }
    }
}
