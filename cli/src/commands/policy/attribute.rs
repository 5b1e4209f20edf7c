//! Attributes as people type them: `hospitalA:role=nurse`.

use sealcast_broker::access::{Name, Vocabulary};
use sealcast_crypto::identity::Attribute;

/// Why a text is no attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wrong {
    pub(super) what: String,
    pub(super) hint: Option<String>,
}

/// Reads one: the issuer ends at the first colon, the key at the first `=` after it.
pub(super) fn read(text: &str, known: Option<&Vocabulary>) -> Result<Attribute, Wrong> {
    let wrong = |what: String, hint: String| Wrong { what, hint: Some(hint) };
    let Some((name, value)) = text.split_once('=') else {
        return Err(wrong(format!("'{text}' says no value"), "issuer:key=value, as hospitalA:role=nurse".into()));
    };
    // Spaces around `=` are as in conditions.
    let (name, value) = (name.trim(), value.trim());
    let Some((issuer, key)) = name.split_once(':') else {
        // The same key of whoever gives it, else an example.
        let meant = Name::new("?", name).and_then(|n| known?.nearest(&n).cloned());
        let meant = meant.map_or(format!("hospitalA:{name}={value}"), |n| format!("{n}={value}"));
        return Err(wrong(format!("'{text}' does not say whose attribute it is"), format!("for example {meant}")));
    };
    Attribute::new(issuer.trim(), key.trim(), value)
        .map_err(|e| wrong(format!("'{text}': {e}"), "issuer:key=value, as hospitalA:role=nurse".into()))
}

/// Whether somebody gives such an attribute.
pub(super) fn check(attribute: &Attribute, known: &Vocabulary) -> Result<(), Wrong> {
    let Some(name) = Name::new(&attribute.issuer, &attribute.key).filter(|n| !known.contains(n)) else {
        return Ok(());
    };
    let hint = known.nearest(&name).map(|n| format!("did you mean {n}?"));
    let what = if known.knows_issuer(name.issuer()) {
        format!("nobody gives {name}")
    } else {
        format!("no issuer is called {}", name.issuer())
    };
    Err(Wrong { what, hint })
}

/// `hospitalA:role=nurse`, as it is read.
pub(super) fn shown(attribute: &Attribute) -> String {
    format!("{}:{}={}", attribute.issuer, attribute.key, attribute.value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_typed_is_read_and_shown_again() {
        for text in ["hospitalA:role=nurse", "h:ward=ward 3", "h:equation=a=b", "h:time=10:30"] {
            assert_eq!(shown(&read(text, None).expect(text)), text);
        }
        assert_eq!(read(" h:role = nurse ", None), read("h:role=nurse", None));
    }

    #[test]
    fn rule_e3_an_attribute_without_issuer_is_refused_with_the_likely_one() {
        let known = Vocabulary::new(Name::new("hospitalA", "role"));
        let hint = |text: &str| read(text, Some(&known)).expect_err(text).hint;
        assert_eq!(hint("role=nurse").as_deref(), Some("for example hospitalA:role=nurse"));
        assert!(hint("role").is_some() && hint(":role=x").is_some() && hint("h:role=").is_some());
    }
}
