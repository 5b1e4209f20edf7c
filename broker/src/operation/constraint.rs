//! What a subscription asks of a publication's headers: `county = Orange and (price = 105 or market/#)`.

use std::fmt;

use sealcast_crypto::identity::{Pattern, check_topic};
use sealcast_wire::{Malformed, Reader, Writer, limits};

use super::Header;
use crate::expression::{Atom, ParseError, Parser, Tree, quoted};

/// A condition on headers, without `not`: what matches nothing can then be found by topic.
pub type Interest = Tree<Constraint>;

/// That some header has such a topic and, if it says one, this value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Constraint {
    /// Which topics; `+` and `#` as in MQTT.
    pub topic: Pattern,
    /// Which value; `None` is any, also none.
    pub value: Option<String>,
}

impl Constraint {
    /// Whether a header satisfies it.
    pub fn matches(&self, header: &Header) -> bool {
        self.topic.matches(&header.topic) && (self.value.is_none() || self.value == header.value)
    }
}

impl Interest {
    /// Whether a publication with these headers is of interest.
    pub fn matches(&self, headers: &[Header]) -> bool {
        self.holds(&mut |constraint| headers.iter().any(|h| constraint.matches(h)))
    }

    /// Patterns of which every publication of interest has a topic: of `and` one side suffices, the one
    /// with fewer patterns, and those the more specific.
    pub fn anchors(&self) -> Vec<&Pattern> {
        match self {
            Tree::All(parts) => {
                let rank = |patterns: &Vec<&Pattern>| {
                    (patterns.iter().filter(|p| p.topic().is_none()).count(), patterns.len())
                };
                parts.iter().map(Interest::anchors).min_by_key(rank).expect("an `all` has parts")
            }
            Tree::Any(parts) => {
                let mut patterns: Vec<&Pattern> = parts.iter().flat_map(Interest::anchors).collect();
                patterns.sort_unstable();
                patterns.dedup();
                patterns
            }
            Tree::Not(part) => part.anchors(),
            Tree::Is(constraint) => vec![&constraint.topic],
        }
    }
}

impl Atom for Constraint {
    const NEGATION: bool = false;

    fn parse(parser: &mut Parser) -> Result<Constraint, ParseError> {
        let location = parser.location();
        let word = parser.word("a topic, a pattern or `(`")?;
        let topic = word
            .parse()
            .map_err(|e| ParseError::new(location, "a topic or pattern", &quoted(&word), Some(format!("{e}"))))?;
        if !parser.sign("=") {
            return Ok(Constraint { topic, value: None });
        }
        let location = parser.location();
        let value = parser.word("the topic's value")?;
        match check_topic(&value) {
            Ok(()) => Ok(Constraint { topic, value: Some(value) }),
            Err(e) => Err(ParseError::new(location, "a value", &quoted(&value), Some(format!("{e}")))),
        }
    }

    fn encode(&self, writer: &mut Writer) {
        writer.bytes16(self.topic.to_string().as_bytes());
        write_value(writer, self.value.as_deref());
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Constraint, Malformed> {
        let text = std::str::from_utf8(reader.bytes16(limits::TOPIC_BYTES_MAX)?).map_err(|_| Malformed)?;
        let topic: Pattern = text.parse().map_err(|_| Malformed)?;
        if topic.to_string() != text {
            return Err(Malformed);
        }
        Ok(Constraint { topic, value: read_value(reader)? })
    }
}

/// `0`, or `1 ‖ bytes16 value`.
pub(super) fn write_value(writer: &mut Writer, value: Option<&str>) {
    match value {
        None => writer.u8(0),
        Some(text) => writer.u8(1).bytes16(text.as_bytes()),
    };
}

/// Reads what [`write_value`] wrote; a value is text as a topic is.
pub(super) fn read_value(reader: &mut Reader<'_>) -> Result<Option<String>, Malformed> {
    match reader.u8()? {
        0 => Ok(None),
        1 => read_topic(reader).map(Some),
        _ => Err(Malformed),
    }
}

/// Text as [`check_topic`] takes it.
pub(super) fn read_topic(reader: &mut Reader<'_>) -> Result<String, Malformed> {
    let text = std::str::from_utf8(reader.bytes16(limits::TOPIC_BYTES_MAX)?).map_err(|_| Malformed)?;
    check_topic(text).map_err(|_| Malformed)?;
    Ok(text.to_owned())
}

impl fmt::Display for Constraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", quoted(&self.topic.to_string()))?;
        self.value.iter().try_for_each(|v| write!(f, " = {}", quoted(v)))
    }
}
