//! The cluster's own rules: numbered global policies, which hold beside each publication's `ac` (E6).
//!
//! ```text
//! # text, for people: one rule a line
//! read    market/#        if exchange:desk = fx
//! publish "a topic/+"     if hospitalA:role in [nurse, doctor]
//! ```
//! A rule concerns publications that have a topic of its pattern. All rules that concern a publication must
//! hold; where none does, nothing is asked.

use std::fmt;
use std::str::FromStr;

use sealcast_crypto::hash::Transcript;
use sealcast_crypto::identity::{Attribute, Pattern};
use sealcast_wire::{Malformed, Reader, Writer, limits};

use super::Header;
use crate::access::Access;
use crate::expression::{Location, ParseError, Parser, quoted};

/// A global policy. The first has number 1; before it number 0 is in force, which asks nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Its rules; the order means nothing.
    pub rules: Vec<Rule>,
}

/// Who may do something with some topics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Do what.
    pub act: Act,
    /// With which topics.
    pub topic: Pattern,
    /// Who may.
    pub access: Access,
}

/// What a rule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Act {
    /// Getting publications, by notification or by reading.
    Read,
    /// Publishing.
    Publish,
}

impl Policy {
    /// Whether somebody with these attributes may do it with a publication that has these headers.
    pub fn allows(&self, act: Act, headers: &[Header], attributes: &[Attribute]) -> bool {
        self.concerning(act, headers).all(|rule| rule.access.allows(attributes))
    }

    /// The rules that concern such a publication.
    pub fn concerning<'a>(&'a self, act: Act, headers: &'a [Header]) -> impl Iterator<Item = &'a Rule> {
        let concerns = move |r: &&Rule| r.act == act && headers.iter().any(|h| r.topic.matches(&h.topic));
        self.rules.iter().filter(concerns)
    }

    /// The same rules in one order and each once, so that who writes the same ones signs the same bytes.
    #[must_use]
    pub fn in_order(mut self) -> Policy {
        self.rules.sort_by_cached_key(|r| (r.act, r.topic.to_string(), r.access.to_bytes()));
        self.rules.dedup();
        self
    }

    /// What people compare to know that they mean the same rules under the same number:
    /// `T("sealcast/v1/policy"; u64 number, bytes)`.
    pub fn hash(&self, number: u64) -> [u8; 32] {
        Transcript::new("sealcast/v1/policy").add(&number.to_be_bytes()).add(&self.to_bytes()).finish()
    }

    /// Its bytes: `u16 count ‖ (u8 act ‖ bytes16 pattern ‖ bytes16 access) …`, act 1 read, 2 publish.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut w = Writer::new();
        w.u16(u16::try_from(self.rules.len()).expect("rules have a limit"));
        for rule in &self.rules {
            w.u8(if rule.act == Act::Read { 1 } else { 2 });
            w.bytes16(rule.topic.to_string().as_bytes()).bytes16(&rule.access.to_bytes());
        }
        w.finish()
    }

    /// Reads what [`Policy::to_bytes`] wrote.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Policy, Malformed> {
        if bytes.len() > limits::RULES_BYTES_MAX {
            return Err(Malformed);
        }
        let mut r = Reader::new(bytes);
        let count = r.count16(5, limits::RULES_MAX)?;
        let rules = (0..count).map(|_| Rule::decode(&mut r)).collect::<Result<_, _>>()?;
        r.end()?;
        Ok(Policy { rules })
    }
}

impl Rule {
    fn decode(r: &mut Reader<'_>) -> Result<Rule, Malformed> {
        let act = match r.u8()? {
            1 => Act::Read,
            2 => Act::Publish,
            _ => return Err(Malformed),
        };
        let text = std::str::from_utf8(r.bytes16(limits::TOPIC_BYTES_MAX)?).map_err(|_| Malformed)?;
        let topic: Pattern = text.parse().map_err(|_| Malformed)?;
        if topic.to_string() != text {
            return Err(Malformed);
        }
        Ok(Rule { act, topic, access: Access::from_bytes(r.bytes16(limits::EXPRESSION_BYTES_MAX)?)? })
    }
}

impl FromStr for Policy {
    type Err = ParseError;

    /// Reads one rule a line; lines that begin with `#` and empty ones say nothing.
    fn from_str(text: &str) -> Result<Policy, ParseError> {
        let mut rules = Vec::new();
        for (number, line) in text.lines().enumerate() {
            if line.trim().is_empty() || line.trim_start().starts_with('#') {
                continue;
            }
            let in_this_line = |mut e: ParseError| {
                e.location = Location { line: number + 1, ..e.location };
                e
            };
            rules.push(rule(line).map_err(in_this_line)?);
            if rules.len() > limits::RULES_MAX {
                let expected = format!("at most {} rules", limits::RULES_MAX);
                let location = Location { line: number + 1, column: 1 };
                return Err(ParseError::new(location, &expected, "more", None));
            }
        }
        Ok(Policy { rules })
    }
}

fn rule(line: &str) -> Result<Rule, ParseError> {
    let mut parser = Parser::new(line)?;
    let act = if parser.keyword("read") {
        Act::Read
    } else if parser.keyword("publish") {
        Act::Publish
    } else {
        return Err(parser.expected("`read` or `publish`"));
    };
    let location = parser.location();
    let word = parser.word("a topic or pattern")?;
    let topic = word
        .parse()
        .map_err(|e| ParseError::new(location, "a topic or pattern", &quoted(&word), Some(format!("{e}"))))?;
    if !parser.keyword("if") {
        return Err(parser.expected("`if`"));
    }
    Ok(Rule { act, topic, access: parser.condition()? })
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let act = if self.act == Act::Read { "read" } else { "publish" };
        write!(f, "{act} {} if {}", quoted(&self.topic.to_string()), self.access)
    }
}

/// The text that reads back as this policy.
impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.rules.iter().try_for_each(|r| writeln!(f, "{r}"))
    }
}
