//! One comparison of an attribute: `exchange:clearance >= 3`.

use std::collections::BTreeSet;
use std::fmt;

use sealcast_crypto::identity::Attribute;
use sealcast_wire::{Malformed, Reader, Writer, limits};

use super::Because;
use crate::expression::{Atom, ParseError, Parser, quoted};

/// An attribute's name: whose word it is, and what it is about. Ordered as it is written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name {
    issuer: String,
    key: String,
}

/// An attribute and what it must be.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Comparison {
    /// Which attribute.
    pub name: Name,
    /// What it must be.
    pub test: Test,
}

/// What an attribute must be. Texts are as [`Attribute::new`] takes them; lists have one to
/// [`limits::EXPRESSION_LIST_MAX`]; numbers have at most 18 digits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Test {
    /// Some value is this text.
    Equal(String),
    /// It has values, and none is this text.
    NotEqual(String),
    /// Some value is a lower number.
    Below(i64),
    /// Some value is this number or a lower one.
    AtMost(i64),
    /// Some value is a higher number.
    Above(i64),
    /// Some value is this number or a higher one.
    AtLeast(i64),
    /// Some value is one of these texts.
    In(BTreeSet<String>),
}

impl Name {
    /// A name from its parts, if they can be those of an attribute.
    pub fn new(issuer: &str, key: &str) -> Option<Name> {
        (is_part(issuer) && is_part(key)).then(|| Name { issuer: issuer.to_owned(), key: key.to_owned() })
    }

    /// Who says it.
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// What it is about.
    pub fn key(&self) -> &str {
        &self.key
    }
}

impl Comparison {
    /// Whether somebody with these attributes passes, and if not, why.
    pub(super) fn test(&self, attributes: &[Attribute]) -> Because {
        let of_this_name = |a: &&Attribute| a.issuer == self.name.issuer && a.key == self.name.key;
        let values = || attributes.iter().filter(of_this_name).map(|a| a.value.as_str());
        if values().next().is_none() {
            return Because::Missing;
        }
        let some = |is: &dyn Fn(i64) -> bool| values().filter_map(number).any(is);
        let holds = match &self.test {
            Test::Equal(text) => values().any(|v| v == text),
            Test::NotEqual(text) => values().all(|v| v != text),
            Test::Below(n) => some(&|v| v < *n),
            Test::AtMost(n) => some(&|v| v <= *n),
            Test::Above(n) => some(&|v| v > *n),
            Test::AtLeast(n) => some(&|v| v >= *n),
            Test::In(list) => values().any(|v| list.contains(v)),
        };
        if holds {
            Because::Holds
        } else if self.test.is_numeric() && values().all(|v| number(v).is_none()) {
            Because::NoNumber(values().map(str::to_owned).collect())
        } else {
            Because::Other(values().map(str::to_owned).collect())
        }
    }
}

impl Test {
    fn is_numeric(&self) -> bool {
        matches!(self, Test::Below(_) | Test::AtMost(_) | Test::Above(_) | Test::AtLeast(_))
    }
}

/// The number that a text is: decimal, one text for each number, within ±[`NUMBER_MAX`].
pub(super) fn number(text: &str) -> Option<i64> {
    let n: i64 = text.parse().ok()?;
    (n.abs() <= NUMBER_MAX && n.to_string() == text).then_some(n)
}

fn is_part(text: &str) -> bool {
    // The parts of an attribute have one rule; the others here are surely good.
    Attribute::new(text, "key", "value").is_ok()
}

impl Atom for Comparison {
    const NEGATION: bool = true;

    fn parse(parser: &mut Parser) -> Result<Comparison, ParseError> {
        let start = parser.location();
        let issuer = part(parser, "an attribute (issuer:key), `not` or `(`")?;
        if !parser.sign(":") {
            let hint = format!("write whose attribute it is, for example exchange:{}", quoted(&issuer));
            let expected = "an attribute with its issuer (issuer:key)";
            return Err(ParseError::new(start, expected, &format!("`{}`", quoted(&issuer)), Some(hint)));
        }
        let key = part(parser, "the attribute's key")?;
        let name = Name { issuer, key };
        let test = if parser.sign("=") {
            Test::Equal(part(parser, "a value")?)
        } else if parser.sign("!=") {
            Test::NotEqual(part(parser, "a value")?)
        } else if parser.sign("<=") {
            Test::AtMost(integer(parser)?)
        } else if parser.sign("<") {
            Test::Below(integer(parser)?)
        } else if parser.sign(">=") {
            Test::AtLeast(integer(parser)?)
        } else if parser.sign(">") {
            Test::Above(integer(parser)?)
        } else if parser.keyword("in") {
            Test::In(list(parser)?)
        } else {
            return Err(parser.expected("a comparison (=, !=, <, <=, >, >= or in)"));
        };
        Ok(Comparison { name, test })
    }

    fn encode(&self, writer: &mut Writer) {
        let (code, numbers, texts): (u8, Option<i64>, Vec<&String>) = match &self.test {
            Test::Equal(text) => (1, None, vec![text]),
            Test::NotEqual(text) => (2, None, vec![text]),
            Test::Below(n) => (3, Some(*n), vec![]),
            Test::AtMost(n) => (4, Some(*n), vec![]),
            Test::Above(n) => (5, Some(*n), vec![]),
            Test::AtLeast(n) => (6, Some(*n), vec![]),
            Test::In(list) => (7, None, list.iter().collect()),
        };
        writer.u8(code).bytes16(self.name.issuer.as_bytes()).bytes16(self.name.key.as_bytes());
        if matches!(self.test, Test::In(_)) {
            writer.u16(u16::try_from(texts.len()).expect("a list has a limit"));
        }
        numbers.iter().for_each(|n| {
            writer.raw(&n.to_be_bytes());
        });
        texts.iter().for_each(|t| {
            writer.bytes16(t.as_bytes());
        });
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Comparison, Malformed> {
        let code = reader.u8()?;
        let name = Name { issuer: text(reader)?, key: text(reader)? };
        let test = match code {
            1 => Test::Equal(text(reader)?),
            2 => Test::NotEqual(text(reader)?),
            3 => Test::Below(signed(reader)?),
            4 => Test::AtMost(signed(reader)?),
            5 => Test::Above(signed(reader)?),
            6 => Test::AtLeast(signed(reader)?),
            7 => {
                let count = reader.count16(3, limits::EXPRESSION_LIST_MAX)?;
                let values: Vec<String> = (0..count).map(|_| text(reader)).collect::<Result<_, _>>()?;
                // Ascending: one encoding for a list, whatever the order in which it was written.
                if values.is_empty() || !values.is_sorted_by(|a, b| a < b) {
                    return Err(Malformed);
                }
                Test::In(values.into_iter().collect())
            }
            _ => return Err(Malformed),
        };
        Ok(Comparison { name, test })
    }
}

fn part(parser: &mut Parser, expected: &str) -> Result<String, ParseError> {
    let location = parser.location();
    let word = parser.word(expected)?;
    if is_part(&word) {
        return Ok(word);
    }
    let expected = format!("1 to {} bytes", limits::ATTRIBUTE_BYTES_MAX);
    Err(ParseError::new(location, &expected, &format!("{} bytes", word.len()), None))
}

fn integer(parser: &mut Parser) -> Result<i64, ParseError> {
    let location = parser.location();
    let word = parser.word("a whole number")?;
    number(&word).ok_or_else(|| {
        let hint = "<, <=, > and >= compare decimal integers of at most 18 digits; `=` compares texts".to_owned();
        ParseError::new(location, "a whole number", &format!("`{}`", quoted(&word)), Some(hint))
    })
}

fn list(parser: &mut Parser) -> Result<BTreeSet<String>, ParseError> {
    if !parser.sign("[") {
        return Err(parser.expected("a list, as [nurse, doctor]"));
    }
    let mut values = BTreeSet::new();
    loop {
        let location = parser.location();
        values.insert(part(parser, "a value")?);
        if values.len() > limits::EXPRESSION_LIST_MAX {
            let expected = format!("at most {} values", limits::EXPRESSION_LIST_MAX);
            return Err(ParseError::new(location, &expected, "more", None));
        }
        if parser.sign("]") {
            return Ok(values);
        }
        if !parser.sign(",") {
            return Err(parser.expected("`,` or `]`"));
        }
    }
}

fn text(reader: &mut Reader<'_>) -> Result<String, Malformed> {
    let bytes = reader.bytes16(limits::ATTRIBUTE_BYTES_MAX)?;
    let text = std::str::from_utf8(bytes).map_err(|_| Malformed)?;
    if is_part(text) { Ok(text.to_owned()) } else { Err(Malformed) }
}

fn signed(reader: &mut Reader<'_>) -> Result<i64, Malformed> {
    let n = i64::from_be_bytes(reader.array()?);
    if (-NUMBER_MAX..=NUMBER_MAX).contains(&n) { Ok(n) } else { Err(Malformed) }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", quoted(&self.issuer), quoted(&self.key))
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.name)?;
        match &self.test {
            Test::Equal(text) => write!(f, "= {}", quoted(text)),
            Test::NotEqual(text) => write!(f, "!= {}", quoted(text)),
            Test::Below(n) => write!(f, "< {n}"),
            Test::AtMost(n) => write!(f, "<= {n}"),
            Test::Above(n) => write!(f, "> {n}"),
            Test::AtLeast(n) => write!(f, ">= {n}"),
            Test::In(list) => {
                let values: Vec<String> = list.iter().map(|v| quoted(v)).collect();
                write!(f, "in [{}]", values.join(", "))
            }
        }
    }
}

/// Eighteen nines: what any number type of 64 bits holds, in every language.
pub(super) const NUMBER_MAX: i64 = 999_999_999_999_999_999;
