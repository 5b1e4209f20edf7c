//! Why somebody may or may not read: what of a condition was true, false or missing.

use std::fmt;

use sealcast_crypto::identity::Attribute;

use super::Access;
use crate::expression::Tree;

/// A condition judged, with its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Why {
    /// Whether it is true.
    pub holds: bool,
    /// The condition, as text.
    pub condition: String,
    /// How its parts are joined, or why a comparison is as it is.
    pub because: Because,
    /// Its parts, judged.
    pub parts: Vec<Why>,
}

/// What decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Because {
    /// A comparison that is true.
    Holds,
    /// The attribute is not there.
    Missing,
    /// It has these other values.
    Other(Vec<String>),
    /// Its values are no numbers.
    NoNumber(Vec<String>),
    /// All parts must be true.
    All,
    /// Some part must be true.
    Any,
    /// The part must be false.
    Not,
}

impl Why {
    pub(super) fn new(access: &Access, attributes: &[Attribute]) -> Why {
        let parts: Vec<Why> = access.parts().iter().map(|p| Why::new(p, attributes)).collect();
        let (holds, because) = match access {
            Tree::All(_) => (parts.iter().all(|p| p.holds), Because::All),
            Tree::Any(_) => (parts.iter().any(|p| p.holds), Because::Any),
            Tree::Not(_) => (!parts[0].holds, Because::Not),
            Tree::Is(comparison) => {
                let because = comparison.test(attributes);
                (because == Because::Holds, because)
            }
        };
        Why { holds, condition: access.to_string(), because, parts }
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, depth: usize) -> fmt::Result {
        let verdict = if self.holds { "yes" } else { "no " };
        let indent = 2 * depth;
        match &self.because {
            Because::All => write!(f, "{verdict} {:indent$}all of", "")?,
            Because::Any => write!(f, "{verdict} {:indent$}any of", "")?,
            Because::Not => write!(f, "{verdict} {:indent$}not", "")?,
            _ => write!(f, "{verdict} {:indent$}{}", "", self.condition)?,
        }
        match &self.because {
            Because::Missing => write!(f, "   (no such attribute)")?,
            Because::Other(values) => write!(f, "   (it is {})", values.join(", "))?,
            Because::NoNumber(values) => write!(f, "   (it is no number: {})", values.join(", "))?,
            _ => {}
        }
        self.parts.iter().try_for_each(|p| {
            writeln!(f)?;
            p.write(f, depth + 1)
        })
    }
}

/// A line for each part, the verdict first.
impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, 0)
    }
}
