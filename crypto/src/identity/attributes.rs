//! Attributes: what an authority says of a certificate's holder, as URIs in its subject alternative names.
//!
//! ```text
//! urn:sealcast:attr:<issuer>:<key>=<value>
//! ```
//! The issuer's name is part of the attribute, so that `hospitalA:role` and `hospitalB:role` are two things
//! (E3). Whoever trusts several authorities compares it with who signed the certificate.

use std::fmt;

use sealcast_wire::limits;

use super::rights::PREFIX;
use super::uri;

/// One attribute.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attribute {
    /// Who says so.
    pub issuer: String,
    /// What is said, for example `role`.
    pub key: String,
    /// How it is answered, for example `nurse`.
    pub value: String,
}

/// Why something is not an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AttributeError {
    /// Not of the form in the module's head.
    #[error("an attribute is written urn:sealcast:attr:<issuer>:<key>=<value>")]
    Form,
    /// An escape is broken, or the bytes are not UTF-8.
    #[error("broken percent-encoding")]
    Encoding,
    /// A part is empty, too long, or has control characters.
    #[error("issuer, key and value have 1 to 64 bytes each and no control character")]
    Part,
}

impl Attribute {
    /// An attribute from its parts.
    ///
    /// # Errors
    /// [`AttributeError::Part`].
    pub fn new(issuer: &str, key: &str, value: &str) -> Result<Attribute, AttributeError> {
        for part in [issuer, key, value] {
            if !(1..=limits::ATTRIBUTE_BYTES_MAX).contains(&part.len()) || part.chars().any(char::is_control) {
                return Err(AttributeError::Part);
            }
        }
        Ok(Attribute { issuer: issuer.to_owned(), key: key.to_owned(), value: value.to_owned() })
    }

    /// Reads a URI; `Ok(None)` if it is no attribute.
    ///
    /// # Errors
    /// It is one, but broken.
    pub fn from_uri(text: &str) -> Result<Option<Attribute>, AttributeError> {
        let Some(rest) = text.strip_prefix(PREFIX).and_then(|t| t.strip_prefix("attr:")) else {
            return Ok(None);
        };
        let (issuer, rest) = rest.split_once(':').ok_or(AttributeError::Form)?;
        let (key, value) = rest.split_once('=').ok_or(AttributeError::Form)?;
        let part = |text| uri::decode(text).ok_or(AttributeError::Encoding);
        Attribute::new(&part(issuer)?, &part(key)?, &part(value)?).map(Some)
    }
}

/// The URI.
impl fmt::Display for Attribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [issuer, key, value] = [&self.issuer, &self.key, &self.value].map(|p| uri::encode(p, ""));
        write!(f, "{PREFIX}attr:{issuer}:{key}={value}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_attribute_names_its_issuer() {
        let a = Attribute::new("hospital A", "role", "head=nurse").expect("valid");
        assert_eq!(a.to_string(), "urn:sealcast:attr:hospital%20A:role=head%3Dnurse");
        assert_eq!(Attribute::from_uri(&a.to_string()), Ok(Some(a)));
        assert_eq!(Attribute::from_uri("urn:sealcast:ward3:pub:a=b"), Ok(None));
    }

    #[test]
    fn broken_attributes_are_refused() {
        for (broken, why) in [
            ("urn:sealcast:attr:a", AttributeError::Form),
            ("urn:sealcast:attr:a:b", AttributeError::Form),
            ("urn:sealcast:attr:a:b=", AttributeError::Part),
            ("urn:sealcast:attr::b=c", AttributeError::Part),
            ("urn:sealcast:attr:a:b=%0a", AttributeError::Part),
            ("urn:sealcast:attr:a:b=%zz", AttributeError::Encoding),
        ] {
            assert_eq!(Attribute::from_uri(broken), Err(why), "{broken}");
        }
    }

    proptest! {
        #[test]
        fn parsing_never_panics(tail in "\\PC{0,40}|[a-c:%=0-9]{0,20}") {
            if let Ok(Some(a)) = Attribute::from_uri(&format!("urn:sealcast:attr:{tail}")) {
                prop_assert_eq!(Attribute::from_uri(&a.to_string()), Ok(Some(a)));
            }
        }
    }
}
