//! Scenarios: stories by name, played by a company on a stage.

pub mod command;
pub mod company;
mod mocks;
pub mod script;
pub mod stage;

use std::time::Duration;

use crate::mocks::company::MlsCompany;
use crate::sim::dice::{Chance, Dice};
use company::Company;
use script::{Knobs, Script};
use stage::Report;

/// A story by name.
pub struct Scenario {
    /// What to type.
    pub name: &'static str,
    /// What happens, in one sentence.
    pub story: &'static str,
    /// What it is played with unless asked otherwise.
    pub knobs: Knobs,
    company: fn(&Knobs) -> Box<dyn Company>,
    write: fn(&Knobs, &mut Dice) -> Script,
}

impl Scenario {
    /// The story with these knobs and the chances of this seed.
    pub fn script(&self, knobs: &Knobs, seed: u64) -> Script {
        (self.write)(knobs, &mut Dice::new(seed, STREAM_SCRIPT))
    }

    /// Plays it; `keep` lines of the trace are kept.
    pub fn play(&self, knobs: &Knobs, seed: u64, keep: usize) -> Report {
        stage::play(&*(self.company)(knobs), &self.script(knobs, seed), seed, keep)
    }

    /// The scenario of a name.
    pub fn find(name: &str) -> Option<&'static Scenario> {
        ALL.iter().find(|s| s.name == name)
    }
}

/// All scenarios.
pub static ALL: &[Scenario] = &[
    Scenario {
        name: "mock-mls-admission",
        story: "MLS-shaped: members are let in by a Welcome, and publish to each other",
        knobs: knobs(4),
        company: mls,
        write: mocks::admission,
    },
    Scenario {
        name: "mock-mls-race",
        story: "MLS-shaped: all commit at once; one wins each epoch, the others are superseded and retry",
        knobs: knobs(5),
        company: mls,
        write: mocks::race,
    },
    Scenario {
        name: "mock-mls-crash",
        story: "MLS-shaped: a committer dies at any moment and comes back with what its disk holds",
        knobs: knobs(4),
        company: mls,
        write: mocks::crash,
    },
    Scenario {
        name: "mock-mls-departure",
        story: "MLS-shaped: one leaves and one is evicted while all publish",
        knobs: knobs(5),
        company: mls,
        write: mocks::departure,
    },
];

fn mls(knobs: &Knobs) -> Box<dyn Company> {
    Box::new(MlsCompany { members: knobs.members })
}

const fn knobs(members: usize) -> Knobs {
    Knobs { members, loss: Chance(50_000), jitter: Duration::from_millis(500) }
}

const STREAM_SCRIPT: u64 = 4;
