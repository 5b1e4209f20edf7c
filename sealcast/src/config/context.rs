//! Contexts: a name for 'this group, by this URL, as this identity'.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::files::{FileError, Lock, Overwrite, read_public, write_secret};
use super::paths::Home;

/// Where, and as whom.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Context {
    /// How bytes travel and who holds the keys.
    pub url: String,
    /// The name of an identity of this user; none where there are no keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
}

/// All contexts of a user: the file `contexts.toml`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contexts {
    /// The one in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selected: Option<String>,
    /// The one that was in use before: `ctx -` goes back to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<String>,
    /// By name.
    #[serde(default)]
    pub context: BTreeMap<String, Context>,
}

impl Contexts {
    /// Reads the file; none means no contexts.
    ///
    /// # Errors
    /// [`FileError::Syntax`] with the position, or the system's own.
    pub fn load(home: &Home) -> Result<Contexts, FileError> {
        let path = home.contexts();
        match read_public(&path) {
            Ok(text) => toml::from_str(&text).map_err(|e| FileError::toml(&path, &text, &e)),
            Err(FileError::Missing(_)) => Ok(Contexts::default()),
            Err(e) => Err(e),
        }
    }

    /// Reads, changes and writes the file while no other process does.
    ///
    /// # Errors
    /// Those of reading and writing, and what `change` answers: then nothing is written.
    pub fn update<T, E: From<FileError>>(
        home: &Home,
        change: impl FnOnce(&mut Contexts) -> Result<T, E>,
    ) -> Result<T, E> {
        let path = home.contexts();
        let _lock = Lock::of(&path)?;
        let mut contexts = Contexts::load(home)?;
        let answer = change(&mut contexts)?;
        let text = toml::to_string(&contexts).expect("strings in tables are valid TOML");
        write_secret(&path, text.as_bytes(), Overwrite::Replace)?;
        Ok(answer)
    }

    /// The selected context with its name.
    pub fn current(&self) -> Option<(&str, &Context)> {
        let (name, context) = self.context.get_key_value(self.selected.as_ref()?)?;
        Some((name, context))
    }

    /// Selects a context; false if there is none of this name.
    pub fn select(&mut self, name: &str) -> bool {
        let known = self.context.contains_key(name);
        if known && self.selected.as_deref() != Some(name) {
            self.previous = self.selected.replace(name.to_owned());
        }
        known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selecting_remembers_where_one_was() {
        let context = Context { url: "mem:".to_owned(), id: None };
        let mut all = Contexts::default();
        all.context.insert("a".to_owned(), context.clone());
        all.context.insert("b".to_owned(), context.clone());
        assert!(all.select("a") && all.select("b"));
        assert_eq!(all.current(), Some(("b", &context)));
        assert_eq!(all.previous.as_deref(), Some("a"));
        assert!(!all.select("c"), "an unknown context is not selected");
        assert_eq!(all.selected.as_deref(), Some("b"));
    }
}
