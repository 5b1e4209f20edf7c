//! Plays many seeds on several threads, and notes how far they hold, so that the next run goes on there.

use std::collections::BTreeSet;
use std::fs;
use std::io::IsTerminal as _;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// What is played: so many seeds of one story.
pub struct Seeds {
    /// What the progress bar says.
    pub name: String,
    /// Which.
    pub seeds: Range<u64>,
    /// So many at once; 0 is one per processor.
    pub jobs: usize,
    /// Whether a terminal sees a progress bar.
    pub bar: bool,
    /// Where it is noted how far they hold.
    pub note: Option<Note>,
    /// Whether to go on where the run before came to.
    pub resume: bool,
}

/// What one seed came to.
pub struct Played<R> {
    /// Which.
    pub seed: u64,
    /// What its story says of it.
    pub report: R,
}

impl Seeds {
    /// Plays each; `told` says for a person what did not hold in one, if something did not. What came of all, by seed.
    ///
    /// # Errors
    /// The first that a run ended with.
    pub fn play<R: Send, E: Send>(
        mut self,
        one: impl Fn(u64) -> Result<R, E> + Sync,
        told: impl Fn(u64, &R) -> Option<String> + Sync,
    ) -> Result<Vec<Played<R>>, E> {
        if let Some(note) = self.note.as_ref().filter(|_| self.resume) {
            self.seeds.start = self.seeds.start.max(note.read().min(self.seeds.end));
        }
        let Seeds { seeds, note, .. } = &self;
        // Noted at once: the note of an earlier run would have the next one pass over what fails first now.
        note.iter().for_each(|note| note.write(seeds.start));
        let held = note.as_ref().map(|note| Mutex::new(HeldSeeds::from(note, seeds.start)));
        let bar = self.progress(seeds.end.saturating_sub(seeds.start));
        let (next, over, reports) = (AtomicU64::new(seeds.start), AtomicBool::new(false), Mutex::new(Vec::new()));
        let work = || -> Result<(), E> {
            while !over.load(Ordering::Relaxed) {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= seeds.end {
                    break;
                }
                let report = one(seed).inspect_err(|_| over.store(true, Ordering::Relaxed))?;
                match told(seed, &report) {
                    Some(why) => bar.suspend(|| eprintln!("{why}")),
                    None => held.iter().for_each(|held| held.lock().unwrap_or_else(PoisonError::into_inner).add(seed)),
                }
                reports.lock().unwrap_or_else(PoisonError::into_inner).push(Played { seed, report });
                bar.inc(1);
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..self.threads()).map(|_| scope.spawn(work)).collect();
            threads.into_iter().try_for_each(|it| it.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        })?;
        bar.finish_and_clear();
        let mut reports = reports.into_inner().unwrap_or_else(PoisonError::into_inner);
        reports.sort_by_key(|it| it.seed);
        Ok(reports)
    }

    fn threads(&self) -> usize {
        match self.jobs {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            jobs => jobs,
        }
    }

    fn progress(&self, seeds: u64) -> ProgressBar {
        let is_shown = self.bar && std::io::stderr().is_terminal();
        let target = if is_shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let style = ProgressStyle::with_template("{msg:<22} {wide_bar} {pos}/{len} {eta}");
        let bar = ProgressBar::with_draw_target(Some(seeds), target);
        bar.with_style(style.expect("the template is right")).with_message(self.name.clone())
    }
}

/// A range of seeds as it is typed: A..B, without B.
///
/// # Errors
/// What is wrong, for a person.
pub fn range(text: &str) -> Result<Range<u64>, String> {
    let number = |part: &str| part.trim().parse::<u64>().map_err(|_| format!("'{part}' is no seed"));
    let (from, to) = text.split_once("..").ok_or("seeds are given as A..B")?;
    Ok(number(from)?..number(to)?)
}

/// How far the seeds of one story hold, on disk: a process that is killed leaves what it noted last.
pub struct Note(PathBuf);

impl Note {
    /// The note of this name; `None` if this user has no folder for it.
    pub fn of(name: &str) -> Option<Note> {
        let home = std::env::var_os("XDG_STATE_HOME")
            .map(PathBuf::from)
            .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/state")));
        Some(Note(home?.join("sealcast/lab").join(name)))
    }

    /// The first seed that was not played, or did not hold, in the run before; 0 if nothing was noted.
    fn read(&self) -> u64 {
        let text = fs::read_to_string(&self.0).ok();
        text.and_then(|it| it.trim().parse().ok()).unwrap_or(0)
    }

    /// A note that cannot be written costs only a repetition. There is the old one or the new one, whenever the process ends.
    fn write(&self, next: u64) {
        let new = self.0.with_extension("new");
        let _ = self.0.parent().map(fs::create_dir_all);
        let _ = fs::write(&new, format!("{next}\n")).and_then(|()| fs::rename(new, &self.0));
    }
}

/// The seeds of this run that hold.
struct HeldSeeds<'a> {
    note: &'a Note,
    /// The first that was not played, or did not hold.
    next: u64,
    /// Those behind it that held.
    later: BTreeSet<u64>,
}

impl HeldSeeds<'_> {
    fn from(note: &Note, start: u64) -> HeldSeeds<'_> {
        HeldSeeds { note, next: start, later: BTreeSet::new() }
    }

    fn add(&mut self, seed: u64) {
        self.later.insert(seed);
        let before = self.next;
        while self.later.remove(&self.next) {
            self.next += 1;
        }
        if self.next > before {
            self.note.write(self.next);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_seed_is_played_once_and_the_first_that_does_not_hold_is_noted() {
        let folder = tempfile::tempdir().unwrap();
        let note = || Note(folder.path().join("story"));
        let seeds =
            |seeds, resume| Seeds { name: "story".into(), seeds, jobs: 3, bar: false, note: Some(note()), resume };
        let failed = |fails: u64| move |seed: u64, _: &u64| (seed == fails).then(|| format!("seed {seed}"));
        let played = seeds(5..40, false).play(|seed| Ok::<_, ()>(seed * 2), failed(17)).unwrap();
        assert_eq!(
            played.iter().map(|it| (it.seed, it.report)).collect::<Vec<_>>(),
            (5..40).map(|s| (s, 2 * s)).collect::<Vec<_>>()
        );
        assert_eq!(note().read(), 17);
        let played = seeds(5..40, true).play(Ok::<_, ()>, failed(99)).unwrap();
        assert_eq!((played.len(), played[0].seed, note().read()), (23, 17, 40));
        let failed = seeds(0..9, false).play(|seed| if seed == 3 { Err("socket") } else { Ok(seed) }, failed(99));
        assert!(failed.is_err_and(|why| why == "socket"));
    }

    #[test]
    fn a_range_is_two_numbers() {
        assert_eq!(range("3..9"), Ok(3..9));
        assert!(["3", "a..9", "3..", "3-9"].iter().all(|it| range(it).is_err()));
    }
}
