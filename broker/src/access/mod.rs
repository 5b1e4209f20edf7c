//! Who may read: conditions on attributes, which publishers attach and policies hold (Chios III-A, `ac`).
//!
//! ```text
//! exchange:desk = fx and exchange:clearance >= 3
//! hospitalA:role in [nurse, doctor] and not (hospitalA:ward = "ward 3" or insurer:blocked = yes)
//! ```
//! | | |
//! |---|---|
//! | `issuer:key` | an attribute always names who says it (E3): `role` alone is an error |
//! | `=` `!=` | compare texts, exactly |
//! | `<` `<=` `>` `>=` | compare decimal integers of at most 18 digits, without sign or zeros that mean nothing; an attribute whose value is none is not comparable |
//! | `in [a, b]` | is one of these texts |
//! | `"…"` | a name or value with other characters than letters, digits and `_-./@+#*$%&`; `\"` and `\\` inside |
//!
//! Somebody may hold an attribute with several values. A comparison is true if **some** value makes it so;
//! `!=` if the attribute is there and **none** of its values is that text. Without the attribute every
//! comparison is false, so `a:x != y` says less than `not a:x = y`, which is also true of unregistered clients:
//! [`lint`] warns of it.

mod comparison;
mod lint;
#[cfg(test)]
mod tests;
mod vocabulary;
mod why;

use sealcast_crypto::identity::Attribute;

pub use comparison::{Comparison, Name, Test};
pub use lint::{Finding, lint};
pub use vocabulary::Vocabulary;
pub use why::{Because, Why};

use crate::expression::{ParseError, Tree};

/// A condition on attributes.
pub type Access = Tree<Comparison>;

impl Access {
    /// Reads a condition in which every attribute must be a known one.
    ///
    /// # Errors
    /// As for any text, and an attribute or issuer that nobody knows, with the nearest that is known.
    pub fn parse_known(text: &str, known: &Vocabulary) -> Result<Access, ParseError> {
        Access::parse_all(text, known).map_err(|mut errors| errors.remove(0))
    }

    /// The same, with all that is wrong: every unknown attribute, or the one place where reading stopped.
    ///
    /// # Errors
    /// One or more, in the order of their places.
    pub fn parse_all(text: &str, known: &Vocabulary) -> Result<Access, Vec<ParseError>> {
        let access = known.explain(text.parse()).map_err(|e| vec![e])?;
        let errors = known.unknown(text, &access);
        if errors.is_empty() { Ok(access) } else { Err(errors) }
    }

    /// Whether somebody with these attributes meets the condition.
    pub fn allows(&self, attributes: &[Attribute]) -> bool {
        self.holds(&mut |comparison| comparison.test(attributes) == Because::Holds)
    }

    /// What is true, false or missing of it for somebody with these attributes.
    pub fn why(&self, attributes: &[Attribute]) -> Why {
        Why::new(self, attributes)
    }
}
