//! Which topics a subscription takes: an MQTT-style pattern, or LCM's anchored regular expression.

use regex::Regex;
use sealcast_crypto::identity::pattern::{Pattern, PatternError};

use crate::code::Code;
use crate::error::{Error, Result};
use crate::remedy::Remedy;

/// See the module.
#[derive(Clone, Debug)]
pub enum Filter {
    /// An MQTT-style pattern.
    Pattern(Pattern),
    /// An anchored regular expression.
    Regex(Regex),
}

impl Filter {
    /// `+` stands for one level, a last `#` for the rest.
    ///
    /// # Errors
    /// [`Code::BadValue`] if it cannot be read.
    pub fn pattern(text: &str) -> Result<Filter> {
        let pattern: Pattern = text.parse().map_err(|e: PatternError| {
            Error::new(Code::BadValue, format!("the pattern '{text}': {e}")).with_remedy(Remedy::WritePattern)
        })?;
        Ok(Filter::Pattern(pattern))
    }

    /// The whole topic must match, as in LCM.
    ///
    /// # Errors
    /// [`Code::BadValue`] if it cannot be read.
    pub fn regex(text: &str) -> Result<Filter> {
        let regex = Regex::new(&format!("^(?:{text})$"))
            .map_err(|e| Error::new(Code::BadValue, format!("the regular expression '{text}': {e}")))?;
        Ok(Filter::Regex(regex))
    }

    /// What a transport is asked for: it matches patterns, and the rest is done here.
    pub fn as_pattern(&self) -> Pattern {
        match self {
            Filter::Pattern(pattern) => pattern.clone(),
            Filter::Regex(_) => Pattern::all(),
        }
    }

    /// Whether it takes a topic.
    pub fn matches(&self, topic: &str) -> bool {
        match self {
            Filter::Pattern(pattern) => pattern.matches(topic),
            Filter::Regex(regex) => regex.is_match(topic),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_anchored_as_in_lcm() {
        let filter = Filter::regex("POSE_.*").unwrap();
        assert!(filter.matches("POSE_7") && !filter.matches("MY_POSE_7"));
        assert!(!Filter::regex("a|b").unwrap().matches("ax"), "an alternative is anchored on both sides");
        assert_eq!(Filter::regex("(").unwrap_err().code(), Code::BadValue);
        assert!(Filter::pattern("pose/+").unwrap().matches("pose/robot7"));
    }
}
