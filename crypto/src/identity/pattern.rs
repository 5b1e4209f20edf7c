//! Patterns over topics, with MQTT's wildcards (MQTT 5.0, section 4.7).
//!
//! A topic is any text without NUL of at most [`limits::TOPIC_BYTES_MAX`] bytes; `/` separates its levels,
//! and a level may be empty. Any LCM channel name is therefore a topic. In a pattern a level that is `+`
//! stands for any one level, and a last level that is `#` for any number of levels, also none:
//!
//! | pattern | matches | does not match |
//! |---|---|---|
//! | `pose/+` | `pose/robot7`, `pose/` | `pose`, `pose/robot7/raw` |
//! | `pose/#` | `pose`, `pose/robot7`, `pose/robot7/raw` | `poses` |
//! | `#` | every topic | |
//!
//! Channel names may hold `+` and `#` themselves; a pattern writes such a character as `\+` or `\#`, and a
//! backslash as `\\`. Unlike MQTT, no topic is hidden from wildcards (`$SYS` means nothing here).

use std::fmt;
use std::str::FromStr;

use sealcast_wire::limits;

/// A set of topics.
///
/// The order is by specificity: a pattern that another one covers comes before it, so that the first match
/// in a sorted list is the most specific one. It is a total order and the same everywhere.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pattern {
    /// Never empty; `Many` only at the end.
    levels: Vec<Level>,
}

/// One level of a pattern. The order of the variants is that of specificity.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Level {
    Literal(String),
    One,
    Many,
}

/// What one level of a pattern stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// A level with this text.
    Literal(&'a str),
    /// Any one level.
    One,
    /// Any number of levels, also none; nothing comes after it.
    Many,
}

/// Why a text is not a pattern or not a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// Nothing is there.
    #[error("a topic or pattern has at least one character; `#` means every topic")]
    Empty,
    /// Longer than [`limits::TOPIC_BYTES_MAX`].
    #[error("{0} bytes are more than a topic or pattern may have")]
    TooLong(usize),
    /// A NUL character.
    #[error("a topic or pattern holds no NUL character")]
    Nul,
    /// `+` or `#` beside other characters of its level (counted from 1).
    #[error("level {0}: `+` and `#` stand alone between slashes; write \\+ or \\# for the character itself")]
    Wildcard(usize),
    /// `#` before the last level (counted from 1).
    #[error("level {0}: `#` stands only at the end")]
    NotLast(usize),
    /// A backslash before something else than `+`, `#` or a backslash, in this level (counted from 1).
    #[error("level {0}: a backslash stands only before `+`, `#` or another backslash")]
    Escape(usize),
}

impl Pattern {
    /// Every topic: `#`.
    pub fn all() -> Pattern {
        Pattern { levels: vec![Level::Many] }
    }

    /// Just this one topic, whatever characters it has.
    ///
    /// # Errors
    /// As [`check_topic`]; escaping may also make it too long to be written.
    pub fn exact(topic: &str) -> Result<Pattern, PatternError> {
        check_topic(topic)?;
        let pattern = Pattern { levels: topic.split('/').map(|l| Level::Literal(l.to_owned())).collect() };
        match pattern.to_string().len() {
            n if n > limits::TOPIC_BYTES_MAX => Err(PatternError::TooLong(n)),
            _ => Ok(pattern),
        }
    }

    /// Whether the topic belongs to the set.
    pub fn matches(&self, topic: &str) -> bool {
        let mut names = topic.split('/');
        for level in &self.levels {
            let fits = match level {
                Level::Many => return true,
                Level::One => names.next().is_some(),
                Level::Literal(text) => names.next() == Some(text.as_str()),
            };
            if !fits {
                return false;
            }
        }
        names.next().is_none()
    }

    /// Whether every topic that `other` matches is matched by this one too.
    pub fn covers(&self, other: &Pattern) -> bool {
        let (mine, my_rest) = self.split();
        let (theirs, their_rest) = other.split();
        // Every topic has a level, so `#` is the same set as `+/#`.
        let theirs = if theirs.is_empty() { &[Level::One][..] } else { theirs };
        let long_enough = match my_rest {
            true => mine.len() <= theirs.len(),
            false => mine.len() == theirs.len() && !their_rest,
        };
        long_enough && mine.iter().zip(theirs).all(|(m, t)| *m == Level::One || m == t)
    }

    /// Whether some topic is matched by both.
    pub fn overlaps(&self, other: &Pattern) -> bool {
        let (mine, my_rest) = self.split();
        let (theirs, their_rest) = other.split();
        let lengths = match (my_rest, their_rest) {
            (false, false) => mine.len() == theirs.len(),
            (true, false) => mine.len() <= theirs.len(),
            (false, true) => mine.len() >= theirs.len(),
            (true, true) => true,
        };
        lengths && mine.iter().zip(theirs).all(|(m, t)| m == t || *m == Level::One || *t == Level::One)
    }

    /// The one topic that it matches, where it has no wildcard.
    pub fn topic(&self) -> Option<String> {
        let names: Option<Vec<&str>> = self
            .levels
            .iter()
            .map(|l| match l {
                Level::Literal(text) => Some(text.as_str()),
                Level::One | Level::Many => None,
            })
            .collect();
        names.map(|n| n.join("/"))
    }

    /// Its levels, for an index of many patterns.
    pub fn levels(&self) -> impl Iterator<Item = Step<'_>> {
        self.levels.iter().map(|level| match level {
            Level::Literal(text) => Step::Literal(text),
            Level::One => Step::One,
            Level::Many => Step::Many,
        })
    }

    /// The levels before a `#`, and whether there is one.
    fn split(&self) -> (&[Level], bool) {
        match self.levels.split_last() {
            Some((Level::Many, fixed)) => (fixed, true),
            _ => (&self.levels, false),
        }
    }
}

/// Whether a text can be a topic.
///
/// # Errors
/// Empty, longer than [`limits::TOPIC_BYTES_MAX`], or with a NUL character.
pub fn check_topic(topic: &str) -> Result<(), PatternError> {
    match topic.len() {
        0 => Err(PatternError::Empty),
        n if n > limits::TOPIC_BYTES_MAX => Err(PatternError::TooLong(n)),
        _ if topic.contains('\0') => Err(PatternError::Nul),
        _ => Ok(()),
    }
}

impl FromStr for Pattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Pattern, PatternError> {
        check_topic(text)?;
        let mut levels = Vec::new();
        let mut parts = text.split('/').peekable();
        while let Some(part) = parts.next() {
            let number = levels.len() + 1;
            levels.push(match part {
                "+" => Level::One,
                "#" if parts.peek().is_none() => Level::Many,
                "#" => return Err(PatternError::NotLast(number)),
                _ => Level::Literal(unescape(part, number)?),
            });
        }
        Ok(Pattern { levels })
    }
}

fn unescape(part: &str, number: usize) -> Result<String, PatternError> {
    let mut text = String::with_capacity(part.len());
    let mut characters = part.chars();
    while let Some(c) = characters.next() {
        text.push(match c {
            '+' | '#' => return Err(PatternError::Wildcard(number)),
            '\\' => match characters.next() {
                Some(c @ ('+' | '#' | '\\')) => c,
                _ => return Err(PatternError::Escape(number)),
            },
            c => c,
        });
    }
    Ok(text)
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, level) in self.levels.iter().enumerate() {
            if i > 0 {
                f.write_str("/")?;
            }
            match level {
                Level::One => f.write_str("+")?,
                Level::Many => f.write_str("#")?,
                Level::Literal(text) => {
                    for c in text.chars() {
                        if matches!(c, '+' | '#' | '\\') {
                            f.write_str("\\")?;
                        }
                        write!(f, "{c}")?;
                    }
                }
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{self}'")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pattern(text: &str) -> Pattern {
        text.parse().unwrap_or_else(|e| panic!("{text}: {e}"))
    }

    #[test]
    fn wildcards_match_as_in_mqtt() {
        let cases = [
            ("a/b", "a/b", true),
            ("a/b", "a/b/", false),
            ("+", "a", true),
            ("+", "a/b", false),
            ("a/+", "a/", true),
            ("a/+", "a", false),
            ("+/+", "/finance", true),
            ("a/#", "a", true),
            ("a/#", "a/b/c", true),
            ("a/#", "ab", false),
            ("#", "a//b", true),
            ("a/+/c", "a/b/c", true),
            ("a/+/c", "a/b/d", false),
            ("EXAMPLE_POSE", "EXAMPLE_POSE", true),
        ];
        for (p, topic, expected) in cases {
            assert_eq!(pattern(p).matches(topic), expected, "{p} on {topic}");
        }
    }

    #[test]
    fn a_wrong_pattern_says_what_is_wrong_and_where() {
        let long = "x".repeat(limits::TOPIC_BYTES_MAX + 1);
        let cases = [
            ("", PatternError::Empty),
            (long.as_str(), PatternError::TooLong(long.len())),
            ("a\0b", PatternError::Nul),
            ("a/b+", PatternError::Wildcard(2)),
            ("a#", PatternError::Wildcard(1)),
            ("a/#/b", PatternError::NotLast(2)),
            ("a\\b", PatternError::Escape(1)),
            ("a/\\", PatternError::Escape(2)),
        ];
        for (text, expected) in cases {
            assert_eq!(text.parse::<Pattern>(), Err(expected), "{text}");
        }
    }

    #[test]
    fn any_lcm_channel_name_is_a_topic_and_has_an_exact_pattern() {
        for channel in ["LCM_SELF_TEST", "+", "#", "a+b", "#/a", "\\", "a//b", "/", " ", "Größe:1"] {
            let exact = Pattern::exact(channel).expect("a channel name");
            assert!(exact.matches(channel), "{channel}");
            assert!(!exact.matches("other") && exact != pattern("+"), "{channel}");
            assert_eq!(exact.topic().as_deref(), Some(channel));
            assert_eq!(pattern(&exact.to_string()), exact, "{channel}");
        }
    }

    #[test]
    fn the_most_specific_comes_first() {
        let mut list: Vec<Pattern> =
            ["#", "a/#", "+/b", "a/b", "a/+", "+/#", "a", "a/b/c"].into_iter().map(pattern).collect();
        list.sort();
        let sorted: Vec<String> = list.iter().map(Pattern::to_string).collect();
        assert_eq!(sorted, ["a", "a/b", "a/b/c", "a/+", "a/#", "+/b", "+/#", "#"]);
    }

    fn some_pattern() -> impl Strategy<Value = Pattern> {
        (prop::collection::vec(prop::sample::select(vec!["a", "b", "", "+"]), 0..4), any::<bool>()).prop_filter_map(
            "empty",
            |(mut levels, many)| {
                if many {
                    levels.push("#");
                }
                levels.join("/").parse().ok()
            },
        )
    }

    fn some_topic() -> impl Strategy<Value = String> {
        prop::collection::vec(prop::sample::select(vec!["a", "b", "", "zz"]), 1..5).prop_map(|l| l.join("/"))
    }

    /// Topics of the pattern that are as unlike any other pattern as it allows.
    fn witnesses(p: &Pattern) -> Vec<String> {
        let (fixed, rest) = p.split();
        let names: Vec<String> = fixed
            .iter()
            .map(|l| match l {
                Level::Literal(text) => text.clone(),
                _ => "fresh".to_owned(),
            })
            .collect();
        let more = if rest { 0..=5 } else { 0..=0 };
        more.map(|n| [names.clone(), vec!["fresh".to_owned(); n]].concat().join("/")).filter(|t| p.matches(t)).collect()
    }

    proptest! {
        #[test]
        fn covering_is_the_inclusion_of_the_sets(a in some_pattern(), b in some_pattern(), t in some_topic()) {
            if a.covers(&b) {
                prop_assert!(!b.matches(&t) || a.matches(&t));
                prop_assert!(a.overlaps(&b));
                prop_assert!(b <= a || b.covers(&a), "the more specific one comes first");
            } else {
                prop_assert!(witnesses(&b).iter().any(|w| !a.matches(w)), "{a} does not cover {b}, yet no topic says so");
            }
        }

        #[test]
        fn overlapping_is_having_a_topic_in_common(a in some_pattern(), b in some_pattern(), t in some_topic()) {
            prop_assert_eq!(a.overlaps(&b), b.overlaps(&a));
            prop_assert!(!(a.matches(&t) && b.matches(&t)) || a.overlaps(&b));
        }

        #[test]
        fn what_is_written_is_read(p in some_pattern()) {
            prop_assert_eq!(pattern(&p.to_string()), p);
        }

        #[test]
        fn parsing_never_panics(text in "\\PC{0,40}|[a/+#\\\\]{0,12}") {
            if let Ok(p) = text.parse::<Pattern>() {
                prop_assert_eq!(p.to_string(), text);
            }
        }
    }
}
