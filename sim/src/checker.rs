//! What must hold in every run, whatever happens: small observers of all that takes part, fed with every event.
//!
//! Each checker has a planted fault, a test in which it must report.

use std::fmt;

use sealcast_wire::Monotonic;

/// A property of a run of which events of type `E` are seen; `C` says who is who.
pub trait Checker<C, E> {
    /// Its name in reports.
    fn name(&self) -> &'static str;
    /// A datagram left a node.
    fn sent(&mut self, _at: Monotonic, _from: usize, _datagram: &[u8]) -> Verdict {
        Ok(())
    }
    /// Something happened at a node.
    fn event(&mut self, at: Monotonic, node: usize, event: &E, roles: &C) -> Verdict;
    /// The run is over.
    fn end(&mut self) -> Verdict {
        Ok(())
    }
}

/// `Err` says what is wrong.
pub type Verdict = Result<(), String>;

/// A property did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// When, on the run's clock.
    pub at: Monotonic,
    /// Which checker says so.
    pub checker: &'static str,
    /// What it says.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} ms  {}: {}", self.at.micros() as f64 / 1e3, self.checker, self.what)
    }
}

/// A set of checkers and what they found.
pub struct Panel<C, E> {
    /// Who is who.
    pub roles: C,
    checkers: Vec<Box<dyn Checker<C, E>>>,
    violations: Vec<Violation>,
}

impl<C, E> Panel<C, E> {
    /// These checkers over this cast.
    pub fn new(roles: C, checkers: Vec<Box<dyn Checker<C, E>>>) -> Panel<C, E> {
        Panel { roles, checkers, violations: Vec::new() }
    }

    /// A datagram left a node.
    pub fn sent(&mut self, at: Monotonic, from: usize, datagram: &[u8]) {
        self.each(at, |checker, _| checker.sent(at, from, datagram));
    }

    /// Something happened at a node.
    pub fn event(&mut self, at: Monotonic, node: usize, event: &E) {
        self.each(at, |checker, roles| checker.event(at, node, event, roles));
    }

    /// The run is over.
    pub fn end(&mut self, at: Monotonic) {
        self.each(at, |checker, _| checker.end());
    }

    /// Reports what the run itself found.
    pub fn report(&mut self, at: Monotonic, checker: &'static str, what: String) {
        if self.violations.len() < VIOLATIONS_MAX {
            self.violations.push(Violation { at, checker, what });
        }
    }

    /// What was found so far.
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// The checkers' names.
    pub fn names(&self) -> Vec<&'static str> {
        self.checkers.iter().map(|it| it.name()).collect()
    }

    fn each(&mut self, at: Monotonic, mut ask: impl FnMut(&mut dyn Checker<C, E>, &C) -> Verdict) {
        for checker in &mut self.checkers {
            if let Err(what) = ask(&mut **checker, &self.roles)
                && self.violations.len() < VIOLATIONS_MAX
            {
                self.violations.push(Violation { at, checker: checker.name(), what });
            }
        }
    }
}

/// Violations kept; the first ones tell the story.
const VIOLATIONS_MAX: usize = 100;
