//! Hostile datagrams: recorded ones of every kind, mutated by the million and thrown at a member.
//!
//! ```text
//! a group forms and talks ─▶ datagrams of every kind ─▶ mutated ────────────────▶ member 0
//!                                 └▶ opened ─▶ mutated ─▶ sealed by member 1 ───▶   (a quarter)
//! ```
//! Watched: no panic; no growth; no state change by what no key sealed; and after every chunk the member
//! still hears an honest one. Everything follows from the seed and the number of the mutation, so that a
//! finding is replayed by its chunk. Coverage is counted by kind of datagram and by what became of it.

mod mutate;
mod specimen;
mod world;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use indicatif::ProgressBar;
use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng as _;
use sealcast_wire::{Dropped, EpochId};
use serde::{Deserialize, Serialize};

pub use mutate::Mutation;

use crate::Failure;
use mutate::below;
use specimen::Specimen;
use world::{HONEST, HOSTILE, People, World};

/// How far a campaign has come; kept on disk, so that it can be resumed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Campaign {
    /// What everything follows from.
    pub seed: u64,
    /// Mutations done, in whole chunks.
    pub done: u64,
    /// Those among them that a hostile member sealed under a valid key.
    pub resealed: u64,
    /// What went wrong, the first of them.
    pub findings: Vec<Finding>,
    /// Kind of datagram, what became of it, how often.
    pub coverage: BTreeMap<String, BTreeMap<String, u64>>,
    /// Resident memory after the first round and after the last, bytes.
    pub memory: (u64, u64),
}

/// Something that must not be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The chunk; its mutations follow from it and the seed.
    pub chunk: u64,
    /// The mutation in it.
    pub index: u64,
    /// What happened.
    pub what: String,
    /// To which kind of datagram, by which mutation.
    pub how: String,
}

/// What one chunk adds to the campaign.
#[derive(Default)]
struct Chunk {
    resealed: u64,
    findings: Vec<Finding>,
    coverage: BTreeMap<String, BTreeMap<String, u64>>,
}

impl Campaign {
    /// A campaign that has not begun.
    pub fn new(seed: u64) -> Campaign {
        Campaign { seed, ..Campaign::default() }
    }

    /// The campaign in a file, if it has this seed; else a new one.
    pub fn resume(file: &Path, seed: u64) -> Campaign {
        let known = std::fs::read(file).ok().and_then(|b| serde_json::from_slice::<Campaign>(&b).ok());
        known.filter(|c| c.seed == seed).unwrap_or_else(|| Campaign::new(seed))
    }

    /// Goes on until `count` mutations are done, and saves itself to `file` after every round.
    ///
    /// # Errors
    /// If the group to be attacked cannot be formed, or the file not be written.
    pub fn run(&mut self, count: u64, threads: usize, file: Option<&Path>, bar: &ProgressBar) -> Result<(), Failure> {
        let people = People::new(self.seed)?;
        let specimens = specimen::record(&people, self.seed)?;
        bar.set_length(count);
        let _quiet = Quiet::new();
        while self.done < count {
            bar.set_position(self.done);
            let first = self.done / CHUNK;
            let end = (first + ROUND).min(count.div_ceil(CHUNK));
            for chunk in round(&people, &specimens, self.seed, first..end, threads)? {
                self.add(chunk);
            }
            self.done = end * CHUNK;
            let resident = resident_bytes();
            self.memory = (if self.memory.0 == 0 { resident } else { self.memory.0 }, resident);
            if let Some(file) = file {
                std::fs::write(file, serde_json::to_vec_pretty(self)?)?;
            }
        }
        Ok(())
    }

    /// How many findings are panics, and how many are something else.
    pub fn counted(&self) -> (usize, usize) {
        let panics = self.findings.iter().filter(|f| f.what.starts_with("panic")).count();
        (panics, self.findings.len() - panics)
    }

    /// Whether memory did not stay where it was.
    pub fn grew(&self) -> bool {
        self.memory.1 > self.memory.0 + GROWTH_BYTES_MAX
    }

    /// Coverage as a table: kinds down, outcomes across.
    pub fn table(&self) -> String {
        let mut outcomes: Vec<&str> = self.coverage.values().flat_map(|o| o.keys().map(String::as_str)).collect();
        outcomes.sort_unstable();
        outcomes.dedup();
        let width = self.coverage.keys().map(String::len).max().unwrap_or(0);
        let mut text = format!("{:width$}", "");
        outcomes.iter().for_each(|o| text += &format!(" {o:>10}"));
        for (kind, of) in &self.coverage {
            text += &format!("\n{kind:width$}");
            for o in &outcomes {
                text += &of.get(*o).map_or(format!(" {:>10}", "."), |n| format!(" {n:>10}"));
            }
        }
        text + "\n"
    }

    fn add(&mut self, chunk: Chunk) {
        self.resealed += chunk.resealed;
        self.findings.extend(chunk.findings);
        self.findings.truncate(FINDINGS_KEPT_MAX);
        for (kind, of) in chunk.coverage {
            let mine = self.coverage.entry(kind).or_default();
            of.into_iter().for_each(|(outcome, n)| *mine.entry(outcome).or_default() += n);
        }
    }
}

/// The chunks of a round, on several threads; in their order.
fn round(
    people: &People,
    specimens: &[Specimen],
    seed: u64,
    chunks: std::ops::Range<u64>,
    threads: usize,
) -> Result<Vec<Chunk>, Failure> {
    let next = AtomicU64::new(chunks.start);
    let done: Mutex<BTreeMap<u64, Result<Chunk, String>>> = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let chunk = next.fetch_add(1, Ordering::Relaxed);
                    if chunk >= chunks.end {
                        return;
                    }
                    let result = attack(people, specimens, seed, chunk).map_err(|e| e.to_string());
                    done.lock().expect("no holder panics").insert(chunk, result);
                }
            });
        }
    });
    let done = done.into_inner().expect("no holder panicked");
    Ok(done.into_values().collect::<Result<Vec<_>, String>>()?)
}

/// One world, and a chunk of mutations thrown at it.
fn attack(people: &People, specimens: &[Specimen], seed: u64, chunk: u64) -> Result<Chunk, Failure> {
    let mut rng = ChaCha20Rng::seed_from_u64(seed ^ chunk.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let mut world = World::new(people, seed)?;
    let hostile = world.protect(HOSTILE);
    let mut result = Chunk::default();
    for index in 0..CHUNK {
        let specimen = &specimens[below(&mut rng, specimens.len())];
        let other = &specimens[below(&mut rng, specimens.len())];
        let resealed = index % 4 == 3;
        let mutation = Mutation::draw(&mut rng);
        let mut datagram = if resealed {
            result.resealed += 1;
            specimen.resealed(mutation, other, &*hostile, people, &mut rng)
        } else {
            specimen.mutated(mutation, other, &mut rng)
        };
        let mut found = |what: String| {
            let how = format!("{} {mutation:?}{}", specimen.kind, if resealed { ", sealed" } else { "" });
            result.findings.push(Finding { chunk, index, what, how });
        };
        world.tick();
        let before = State::of(&world);
        let drops = world.drops();
        let fed = catch_unwind(AssertUnwindSafe(|| world.attack(&mut datagram)));
        if let Err(panic) = fed {
            let text = panic.downcast_ref::<String>().cloned();
            found(format!(
                "panic: {}",
                text.or(panic.downcast_ref::<&str>().map(|s| s.to_string())).unwrap_or_default()
            ));
            return Ok(result);
        }
        let after = State::of(&world);
        if !resealed && before != after {
            found(format!("state changed from {before:?} to {after:?}"));
        }
        let outcome = world.drops().iter().find(|(why, n)| *n > drops.of(*why)).map(|(why, _)| why);
        let outcome = outcome.map_or("taken".to_string(), |why: Dropped| why.to_string());
        let kind = format!("{}{}", specimen.kind, if resealed { ", sealed again" } else { "" });
        *result.coverage.entry(kind).or_default().entry(outcome).or_default() += 1;
    }
    // The honest are still heard.
    let (before, drops) = (State::of(&world), world.drops());
    world.publish(HONEST, "open/after", b"still there?")?;
    let after = State::of(&world);
    if before.epoch == after.epoch && after.delivered == before.delivered {
        let why: Vec<String> =
            world.drops().iter().filter(|(w, n)| *n > drops.of(*w)).map(|(w, _)| w.to_string()).collect();
        let what = format!("an honest member is not heard any more: {}", why.join(", "));
        result.findings.push(Finding { chunk, index: CHUNK, what, how: "after the chunk".into() });
    }
    Ok(result)
}

/// What must not change by what no key sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    epoch: Option<EpochId>,
    members: usize,
    excluded: bool,
    delivered: u64,
}

impl State {
    fn of(world: &World) -> State {
        let member = &world.members[0];
        State {
            epoch: member.view().map(|v| v.epoch),
            members: member.view().map_or(0, |v| v.members.len()),
            excluded: member.excluded().is_some(),
            delivered: world.delivered,
        }
    }
}

/// Keeps panics that are looked for from printing.
struct Quiet;

impl Quiet {
    fn new() -> Quiet {
        std::panic::set_hook(Box::new(|_| {}));
        Quiet
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        let _ = std::panic::take_hook();
    }
}

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split_whitespace().nth(1).and_then(|p| p.parse::<u64>().ok()).unwrap_or(0) * 4096
}

/// Mutations per world: less than a second of its time, so that nobody is suspected for silence.
const CHUNK: u64 = 4_000;
/// Chunks between two saves.
const ROUND: u64 = 50;
/// Findings kept.
const FINDINGS_KEPT_MAX: usize = 100;
/// What the allocator may keep for itself.
const GROWTH_BYTES_MAX: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_g1_a_chunk_of_hostile_datagrams_changes_nothing() {
        let mut campaign = Campaign::new(1);
        campaign.run(2 * CHUNK, 2, None, &ProgressBar::hidden()).expect("the group forms");
        assert_eq!(campaign.findings, []);
        assert_eq!((campaign.done, campaign.resealed), (2 * CHUNK, CHUNK / 2));
        let kinds: Vec<&String> = campaign.coverage.keys().collect();
        for kind in ["JOIN", "R1", "R2", "data", "piece", "signed"] {
            assert!(kinds.iter().any(|k| k.starts_with(kind)), "no {kind} among {kinds:?}");
        }
    }

    #[test]
    fn rule_g10_a_campaign_repeats() {
        let run = || {
            let mut campaign = Campaign::new(7);
            campaign.run(CHUNK, 1, None, &ProgressBar::hidden()).expect("the group forms");
            campaign.coverage
        };
        assert_eq!(run(), run());
    }
}
