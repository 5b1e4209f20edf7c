//! What a condition says that its author hardly meant.
//!
//! Findings are certain but not complete: parts are compared in pairs, and a comparison only with others
//! of the same attribute. Deciding all of it would take time exponential in the condition's size.

use std::collections::BTreeSet;
use std::fmt;

use super::comparison::number;
use super::{Access, Comparison, Test, Vocabulary};
use crate::expression::{Tree, quoted};

/// Something that is odd about a condition. The texts are its parts, as conditions are written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Finding {
    /// Nobody meets this part.
    AlwaysFalse {
        /// It.
        part: String,
    },
    /// Everybody meets this part.
    AlwaysTrue {
        /// It.
        part: String,
    },
    /// An alternative that adds nobody: who meets it meets the other one.
    Shadowed {
        /// The alternative.
        part: String,
        /// The other one.
        by: String,
    },
    /// A requirement that excludes nobody: who meets the other one meets it.
    Redundant {
        /// The requirement.
        part: String,
        /// The other one.
        given: String,
    },
    /// Only somebody who holds this attribute with two values meets it.
    TwoValues {
        /// The first requirement.
        part: String,
        /// The second.
        and: String,
    },
    /// Who does not have the attribute at all meets it.
    ProvedUnregistered {
        /// The part with `not`.
        part: String,
    },
    /// Nobody knows this issuer.
    UnknownIssuer {
        /// Its name.
        issuer: String,
        /// The attribute that may have been meant.
        nearest: Option<String>,
    },
    /// The issuer is known, but gives no such attribute.
    UnknownAttribute {
        /// Its name.
        name: String,
        /// The attribute that may have been meant.
        nearest: Option<String>,
    },
}

/// All that is odd about a condition, each thing once.
pub fn lint(access: &Access, known: &Vocabulary) -> Vec<Finding> {
    let mut found = BTreeSet::new();
    names(access, known, &mut found);
    visit(access, &mut found);
    found.into_iter().collect()
}

fn names(access: &Access, known: &Vocabulary, found: &mut BTreeSet<Finding>) {
    for name in access.atoms().into_iter().map(|c| &c.name).filter(|n| !known.contains(n)) {
        let nearest = known.nearest(name).map(ToString::to_string);
        found.insert(if known.knows_issuer(name.issuer()) {
            Finding::UnknownAttribute { name: name.to_string(), nearest }
        } else {
            Finding::UnknownIssuer { issuer: name.issuer().to_owned(), nearest }
        });
    }
}

fn visit(access: &Access, found: &mut BTreeSet<Finding>) {
    let pairs = |parts: &[Access], see: &mut dyn FnMut(&Access, &Access)| {
        for (i, a) in parts.iter().enumerate() {
            parts[i + 1..].iter().for_each(|b| see(a, b));
        }
    };
    match access {
        Tree::All(parts) => pairs(parts, &mut |a, b| {
            if contradict(a, b) {
                found.insert(Finding::AlwaysFalse { part: format!("{} and {}", Shown(a), Shown(b)) });
            } else if implies(a, b) {
                found.insert(Finding::Redundant { part: b.to_string(), given: a.to_string() });
            } else if implies(b, a) {
                found.insert(Finding::Redundant { part: a.to_string(), given: b.to_string() });
            } else if let (Tree::Is(x), Tree::Is(y)) = (a, b)
                && need_two_values(x, y)
            {
                found.insert(Finding::TwoValues { part: a.to_string(), and: b.to_string() });
            }
        }),
        Tree::Any(parts) => pairs(parts, &mut |a, b| {
            if exhaust(a, b) {
                found.insert(Finding::AlwaysTrue { part: format!("{a} or {b}") });
            } else if implies(b, a) {
                found.insert(Finding::Shadowed { part: b.to_string(), by: a.to_string() });
            } else if implies(a, b) {
                found.insert(Finding::Shadowed { part: a.to_string(), by: b.to_string() });
            }
        }),
        Tree::Not(part) => {
            if let Tree::Is(_) = **part {
                found.insert(Finding::ProvedUnregistered { part: access.to_string() });
            }
        }
        Tree::Is(_) => {}
    }
    access.parts().iter().for_each(|p| visit(p, found));
}

/// Whether whoever meets `a` surely meets `b`.
fn implies(a: &Access, b: &Access) -> bool {
    if a == b {
        return true;
    }
    match (a, b) {
        (Tree::Any(parts), _) => parts.iter().all(|p| implies(p, b)),
        (_, Tree::All(parts)) => parts.iter().all(|p| implies(a, p)),
        (Tree::All(parts), _) if parts.iter().any(|p| implies(p, b)) => true,
        (_, Tree::Any(parts)) => parts.iter().any(|p| implies(a, p)),
        (Tree::Not(a), Tree::Not(b)) => implies(b, a),
        (Tree::Is(a), Tree::Not(b)) => matches!(&**b, Tree::Is(b) if exclude(a, b)),
        (Tree::Is(a), Tree::Is(b)) => a.name == b.name && stronger(&a.test, &b.test),
        _ => false,
    }
}

/// Whether surely nobody meets both.
fn contradict(a: &Access, b: &Access) -> bool {
    let not = |x: &Access| Tree::Not(Box::new(x.clone()));
    match (a, b) {
        (Tree::Not(x), _) if implies(b, x) => true,
        (_, Tree::Not(y)) if implies(a, y) => true,
        (Tree::Is(_), Tree::Is(_)) => implies(a, &not(b)),
        (Tree::All(parts), other) | (other, Tree::All(parts)) => parts.iter().any(|p| contradict(p, other)),
        (Tree::Any(parts), other) | (other, Tree::Any(parts)) => parts.iter().all(|p| contradict(p, other)),
        _ => false,
    }
}

/// Whether surely everybody meets one of them.
fn exhaust(a: &Access, b: &Access) -> bool {
    match (a, b) {
        (Tree::Not(x), y) | (y, Tree::Not(x)) => implies(x, y),
        _ => false,
    }
}

/// Two comparisons that no set of values meets together.
fn exclude(a: &Comparison, b: &Comparison) -> bool {
    let against = |not: &Test, other: &Test| match (not, other) {
        (Test::NotEqual(x), Test::Equal(y)) => x == y,
        (Test::NotEqual(x), Test::In(list)) => list.iter().all(|y| x == y),
        (Test::NotEqual(x), Test::AtMost(n) | Test::AtLeast(n)) => {
            // Only the very ends of the numbers leave a single one.
            number(x) == Some(*n) && n.abs() == super::comparison::NUMBER_MAX && {
                matches!(other, Test::AtLeast(_)) == (*n > 0)
            }
        }
        _ => false,
    };
    a.name == b.name && (against(&a.test, &b.test) || against(&b.test, &a.test))
}

/// Whether every set of values that passes `a` passes `b`.
fn stronger(a: &Test, b: &Test) -> bool {
    // What passes for one of these texts passes for any comparison of single values that all of them pass.
    let each = |text: &String| match b {
        Test::Equal(other) => text == other,
        Test::In(list) => list.contains(text),
        Test::Below(n) => number(text).is_some_and(|v| v < *n),
        Test::AtMost(n) => number(text).is_some_and(|v| v <= *n),
        Test::Above(n) => number(text).is_some_and(|v| v > *n),
        Test::AtLeast(n) => number(text).is_some_and(|v| v >= *n),
        Test::NotEqual(_) => false,
    };
    match (a, b) {
        (Test::Equal(text), _) => each(text),
        (Test::In(list), _) => list.iter().all(each),
        (Test::Below(a) | Test::AtMost(a), Test::AtMost(b)) | (Test::Below(a), Test::Below(b)) => a <= b,
        (Test::AtMost(a), Test::Below(b)) => a < b,
        (Test::Above(a) | Test::AtLeast(a), Test::AtLeast(b)) | (Test::Above(a), Test::Above(b)) => a >= b,
        (Test::AtLeast(a), Test::Above(b)) => a > b,
        _ => a == b,
    }
}

/// Two requirements that one value cannot meet, though two can.
fn need_two_values(a: &Comparison, b: &Comparison) -> bool {
    let texts = |t: &Test| match t {
        Test::Equal(text) => Some(BTreeSet::from([text.clone()])),
        Test::In(list) => Some(list.clone()),
        _ => None,
    };
    let range = |t: &Test| match t {
        Test::Below(n) => Some((i64::MIN, n - 1)),
        Test::AtMost(n) => Some((i64::MIN, *n)),
        Test::Above(n) => Some((n + 1, i64::MAX)),
        Test::AtLeast(n) => Some((*n, i64::MAX)),
        _ => None,
    };
    let within = |(low, high): (i64, i64), text: &String| number(text).is_some_and(|v| (low..=high).contains(&v));
    a.name == b.name
        && match (texts(&a.test), range(&a.test), texts(&b.test), range(&b.test)) {
            (Some(a), _, Some(b), _) => a.is_disjoint(&b),
            (_, Some(a), _, Some(b)) => a.1 < b.0 || b.1 < a.0,
            (Some(texts), _, _, Some(range)) | (_, Some(range), Some(texts), _) => {
                !texts.iter().any(|t| within(range, t))
            }
            _ => false,
        }
}

/// A part as it stands within an `and`.
struct Shown<'a>(&'a Access);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if matches!(self.0, Tree::Any(_)) { write!(f, "({})", self.0) } else { write!(f, "{}", self.0) }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hint =
            |nearest: &Option<String>| nearest.as_ref().map_or(String::new(), |n| format!("; did you mean {n}?"));
        match self {
            Finding::AlwaysFalse { part } => write!(f, "nobody meets '{part}'"),
            Finding::AlwaysTrue { part } => write!(f, "everybody meets '{part}'"),
            Finding::Shadowed { part, by } => write!(f, "'{part}' adds nobody to '{by}'"),
            Finding::Redundant { part, given } => write!(f, "'{part}' excludes nobody after '{given}'"),
            Finding::TwoValues { part, and } => {
                write!(f, "only who holds two values of the attribute meets '{part}' and '{and}'")
            }
            Finding::ProvedUnregistered { part } => {
                write!(f, "'{part}' is also true of those without the attribute; `!=` is not")
            }
            Finding::UnknownIssuer { issuer, nearest } => {
                write!(f, "no issuer is called {}{}", quoted(issuer), hint(nearest))
            }
            Finding::UnknownAttribute { name, nearest } => write!(f, "nobody gives {name}{}", hint(nearest)),
        }
    }
}
