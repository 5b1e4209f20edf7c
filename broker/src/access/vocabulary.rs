//! Which attributes there are, so that a misspelt one is an error and not a policy that nobody meets.

use std::collections::BTreeSet;

use super::{Access, Name};
use crate::expression::{Location, ParseError, Parser, nearest};

/// The attributes that issuers are known to give.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vocabulary {
    names: BTreeSet<Name>,
}

impl Vocabulary {
    /// These attributes.
    pub fn new(names: impl IntoIterator<Item = Name>) -> Vocabulary {
        Vocabulary { names: names.into_iter().collect() }
    }

    /// Whether somebody gives it.
    pub fn contains(&self, name: &Name) -> bool {
        self.names.contains(name)
    }

    /// Whether it gives any.
    pub fn knows_issuer(&self, issuer: &str) -> bool {
        self.names.iter().any(|n| n.issuer() == issuer)
    }

    /// What could have been meant by an attribute that nobody gives: the nearest name as written, or the
    /// same key of another issuer.
    pub fn nearest(&self, name: &Name) -> Option<&Name> {
        let written: Vec<String> = self.names.iter().map(Name::to_string).collect();
        let near = nearest(&name.to_string(), written.iter().map(String::as_str));
        let near = near.and_then(|n| written.iter().position(|w| w == n)).and_then(|i| self.names.iter().nth(i));
        near.or_else(|| self.names.iter().find(|n| n.key() == name.key()))
    }

    /// What is wrong with the names in a condition that was read from this text: an error for each attribute
    /// that nobody gives, once, where it first stands.
    pub(super) fn unknown(&self, text: &str, access: &Access) -> Vec<ParseError> {
        let names: BTreeSet<&Name> =
            access.atoms().into_iter().map(|c| &c.name).filter(|n| !self.contains(n)).collect();
        let mut errors: Vec<ParseError> = names.into_iter().map(|name| self.error(text, name)).collect();
        errors.sort_by_key(|e| e.location);
        errors
    }

    fn error(&self, text: &str, unknown: &Name) -> ParseError {
        let location = location(text, unknown).unwrap_or(Location { line: 1, column: 1 });
        let hint = self.nearest(unknown).map(|n| format!("did you mean {n}?"));
        let hint = hint.or_else(|| {
            let all: Vec<String> = self.names.iter().take(SHOWN).map(Name::to_string).collect();
            (!all.is_empty()).then(|| format!("known are {}", all.join(", ")))
        });
        ParseError::new(location, "a known attribute", &format!("`{unknown}`"), hint)
    }

    /// A better hint where an attribute came without its issuer.
    pub(super) fn explain<T>(&self, read: Result<T, ParseError>) -> Result<T, ParseError> {
        read.map_err(|mut error| {
            let written = error.found.trim_matches('`').to_owned();
            let keys = self.names.iter().map(Name::key);
            let meant = nearest(&written, keys).map(str::to_owned);
            if error.expected.starts_with("an attribute with its issuer")
                && let Some(name) = meant.and_then(|key| self.names.iter().find(|n| *n.key() == key))
            {
                error.hint = Some(format!("did you mean {name}?"));
            }
            error
        })
    }
}

/// Where an attribute first stands in a text that was read before.
fn location(text: &str, name: &Name) -> Option<Location> {
    let mut parser = Parser::new(text).ok()?;
    parser.find(|p| {
        let issuer = p.word("").ok()?;
        (p.sign(":") && issuer == name.issuer() && p.word("").ok()? == name.key()).then_some(())
    })
}

impl FromIterator<Name> for Vocabulary {
    fn from_iter<I: IntoIterator<Item = Name>>(names: I) -> Vocabulary {
        Vocabulary::new(names)
    }
}

/// Attributes that a hint lists where none is near.
const SHOWN: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expression::quoted;

    #[test]
    fn quotes_do_not_hide_where_it_stands() {
        let name = Name::new("hospital A", "role").expect("a name");
        let text = format!("a:role = x\n  and {}:role = nurse", quoted("hospital A"));
        assert_eq!(location(&text, &name), Some(Location { line: 2, column: 7 }));
    }
}
