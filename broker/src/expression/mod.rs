//! Conditions: comparisons joined by `and`, `or` and `not`, as text and as bytes.
//!
//! ```text
//! condition = all { "or" all }                 all  = one { "and" one }
//! one       = "not" one | "(" condition ")" | comparison
//! ```
//! What a comparison is, its [`Atom`] says: of attributes in [`crate::access`], of topics in a
//! subscription. `and` binds closer than `or`. A text and the tree it is read into, and a tree and its
//! bytes, determine each other, but for spaces and superfluous parentheses: `(a and b) and c` is
//! `a and b and c`.
//!
//! ```text
//! bytes = version 1 ‖ node
//! node  = 1 ‖ u16 count ‖ node …     all of them: two or more, none of them itself an "all"
//!       | 2 ‖ u16 count ‖ node …     any of them: two or more, none of them itself an "any"
//!       | 3 ‖ node                   not
//!       | 4 ‖ comparison
//! ```

mod nearest;
mod parser;
mod token;

use std::fmt;
use std::str::FromStr;

use sealcast_wire::{Malformed, Reader, Writer, limits};

pub use nearest::nearest;
pub use parser::{ParseError, Parser};
pub use token::{Location, quoted};

/// A comparison: the leaf of a condition. Its text has no `and`, `or` or `not` outside quotes.
pub trait Atom: Sized + Clone + Eq + Ord + fmt::Display {
    /// Whether conditions over it know `not`.
    const NEGATION: bool;

    /// Reads one from a text.
    ///
    /// # Errors
    /// What was expected, and where.
    fn parse(parser: &mut Parser) -> Result<Self, ParseError>;

    /// Appends its bytes: one encoding for each value.
    fn encode(&self, writer: &mut Writer);

    /// Reads what [`Atom::encode`] wrote and nothing else.
    ///
    /// # Errors
    /// [`Malformed`].
    fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed>;
}

/// A condition in its one form: no `all` stands directly in an `all`, no `any` in an `any`, and both have
/// two parts or more. [`Tree::all`] and [`Tree::any`] make it so.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tree<A> {
    /// True if all parts are.
    All(Vec<Tree<A>>),
    /// True if some part is.
    Any(Vec<Tree<A>>),
    /// True if its part is not.
    Not(Box<Tree<A>>),
    /// A comparison.
    Is(A),
}

impl<A> Tree<A> {
    /// All of these; of one, that one.
    ///
    /// # Panics
    /// If there are none.
    pub fn all(parts: Vec<Tree<A>>) -> Tree<A> {
        let flat = parts.into_iter().flat_map(|p| match p {
            Tree::All(inner) => inner,
            other => vec![other],
        });
        alone_or(flat.collect(), Tree::All)
    }

    /// Any of these; of one, that one.
    ///
    /// # Panics
    /// If there are none.
    pub fn any(parts: Vec<Tree<A>>) -> Tree<A> {
        let flat = parts.into_iter().flat_map(|p| match p {
            Tree::Any(inner) => inner,
            other => vec![other],
        });
        alone_or(flat.collect(), Tree::Any)
    }

    /// Whether it is true where `is` judges the comparisons. Stops at the first part that decides.
    pub fn holds(&self, is: &mut impl FnMut(&A) -> bool) -> bool {
        match self {
            Tree::All(parts) => parts.iter().all(|p| p.holds(is)),
            Tree::Any(parts) => parts.iter().any(|p| p.holds(is)),
            Tree::Not(part) => !part.holds(is),
            Tree::Is(atom) => is(atom),
        }
    }

    /// All comparisons, from left to right.
    pub fn atoms(&self) -> Vec<&A> {
        match self {
            Tree::All(parts) | Tree::Any(parts) => parts.iter().flat_map(Tree::atoms).collect(),
            Tree::Not(part) => part.atoms(),
            Tree::Is(atom) => vec![atom],
        }
    }

    /// Its direct parts.
    pub fn parts(&self) -> &[Tree<A>] {
        match self {
            Tree::All(parts) | Tree::Any(parts) => parts,
            Tree::Not(part) => std::slice::from_ref(part),
            Tree::Is(_) => &[],
        }
    }

    /// Comparisons and connectives.
    pub fn nodes(&self) -> usize {
        1 + self.parts().iter().map(Tree::nodes).sum::<usize>()
    }

    fn depth(&self) -> usize {
        1 + self.parts().iter().map(Tree::depth).max().unwrap_or(0)
    }
}

fn alone_or<A>(mut parts: Vec<Tree<A>>, join: fn(Vec<Tree<A>>) -> Tree<A>) -> Tree<A> {
    assert!(!parts.is_empty(), "a condition has a part");
    if parts.len() == 1 { parts.remove(0) } else { join(parts) }
}

impl<A: Atom> Tree<A> {
    /// Whether it keeps to the limits and forms that texts and bytes have; what is read always does.
    pub fn is_well_formed(&self) -> bool {
        self.nodes() <= limits::EXPRESSION_NODES_MAX && self.depth() <= limits::EXPRESSION_DEPTH_MAX && {
            let bytes = self.to_bytes();
            Tree::from_bytes(&bytes).as_ref() == Ok(self)
        }
    }

    /// Its bytes, as labels bind them.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        writer.u8(VERSION);
        self.encode(&mut writer);
        writer.finish()
    }

    /// Reads what [`Tree::to_bytes`] wrote, and nothing else.
    ///
    /// # Errors
    /// [`Malformed`], also if it is not in its one form or over a limit.
    pub fn from_bytes(bytes: &[u8]) -> Result<Tree<A>, Malformed> {
        let mut reader = Reader::new(bytes);
        if bytes.len() > limits::EXPRESSION_BYTES_MAX || reader.u8()? != VERSION {
            return Err(Malformed);
        }
        let tree = Tree::decode(&mut reader, &mut limits::EXPRESSION_NODES_MAX.clone(), 1)?;
        reader.end()?;
        Ok(tree)
    }

    fn encode(&self, writer: &mut Writer) {
        match self {
            Tree::All(parts) | Tree::Any(parts) => {
                let tag = if matches!(self, Tree::All(_)) { ALL } else { ANY };
                let count = u16::try_from(parts.len()).expect("the limit of nodes bounds the parts");
                writer.u8(tag).u16(count);
                parts.iter().for_each(|p| p.encode(writer));
            }
            Tree::Not(part) => {
                writer.u8(NOT);
                part.encode(writer);
            }
            Tree::Is(atom) => {
                writer.u8(IS);
                atom.encode(writer);
            }
        }
    }

    fn decode(reader: &mut Reader<'_>, nodes: &mut usize, depth: usize) -> Result<Tree<A>, Malformed> {
        *nodes = nodes.checked_sub(1).ok_or(Malformed)?;
        if depth > limits::EXPRESSION_DEPTH_MAX {
            return Err(Malformed);
        }
        match reader.u8()? {
            tag @ (ALL | ANY) => {
                let count = reader.count16(1, *nodes)?;
                let parts: Vec<_> =
                    (0..count).map(|_| Tree::decode(reader, nodes, depth + 1)).collect::<Result<_, _>>()?;
                let nested = |p: &Tree<A>| match p {
                    Tree::All(_) => tag == ALL,
                    Tree::Any(_) => tag == ANY,
                    _ => false,
                };
                if count < 2 || parts.iter().any(nested) {
                    return Err(Malformed);
                }
                Ok(if tag == ALL { Tree::All(parts) } else { Tree::Any(parts) })
            }
            NOT if A::NEGATION => Ok(Tree::Not(Box::new(Tree::decode(reader, nodes, depth + 1)?))),
            IS => Ok(Tree::Is(A::decode(reader)?)),
            _ => Err(Malformed),
        }
    }
}

impl<A: Atom> FromStr for Tree<A> {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Tree<A>, ParseError> {
        Parser::new(text)?.condition()
    }
}

/// The text that reads back as this tree.
impl<A: fmt::Display> fmt::Display for Tree<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |f: &mut fmt::Formatter<'_>, parts: &[Tree<A>], word: &str| {
            for (i, part) in parts.iter().enumerate() {
                if i > 0 {
                    write!(f, " {word} ")?;
                }
                let enclosed = matches!(part, Tree::Any(_));
                if enclosed { write!(f, "({part})")? } else { write!(f, "{part}")? }
            }
            Ok(())
        };
        match self {
            Tree::All(parts) => list(f, parts, "and"),
            Tree::Any(parts) => list(f, parts, "or"),
            Tree::Not(part) if part.parts().len() > 1 => write!(f, "not ({part})"),
            Tree::Not(part) => write!(f, "not {part}"),
            Tree::Is(atom) => write!(f, "{atom}"),
        }
    }
}

const VERSION: u8 = 1;
const ALL: u8 = 1;
const ANY: u8 = 2;
const NOT: u8 = 3;
const IS: u8 = 4;

const _: () = assert!(limits::EXPRESSION_NODES_MAX <= u16::MAX as usize);
