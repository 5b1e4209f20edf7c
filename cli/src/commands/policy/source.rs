//! Where things stand in a TOML file, also within its strings.

use std::ops::Range;

use sealcast_broker::expression::Location;

/// The text of a file.
pub(super) struct Source<'a>(pub(super) &'a str);

impl Source<'_> {
    /// Line and column of a byte.
    pub(super) fn location(&self, at: usize) -> Location {
        let before = self.0.get(..at.min(self.0.len())).unwrap_or("");
        let line = before.matches('\n').count() + 1;
        Location { line, column: before.rsplit('\n').next().unwrap_or("").chars().count() + 1 }
    }

    /// Where in the file a place within a string's value stands; `span` is the string with its quotes. If that
    /// cannot be told, where the string begins.
    pub(super) fn within(&self, span: &Range<usize>, value: &str, inside: Location) -> Location {
        let characters = character(value, inside);
        let raw = self.0.get(span.clone()).unwrap_or("");
        self.location(span.start + offset(raw, value, characters).unwrap_or(0))
    }
}

/// How many characters stand before a place of a text.
fn character(text: &str, location: Location) -> usize {
    let lines = text.split_inclusive('\n').take(location.line - 1);
    lines.map(|l| l.chars().count()).sum::<usize>() + location.column - 1
}

/// Where in a TOML string, quotes included, the character of this number stands; one after the last is the
/// closing quote.
fn offset(raw: &str, value: &str, character: usize) -> Option<usize> {
    let quotes = ["\"\"\"", "'''", "\"", "'"].into_iter().find(|q| raw.starts_with(q))?;
    let escapes = quotes.starts_with('"');
    let mut at = quotes.len();
    if quotes.len() == 3 {
        // A newline at once after the quotes is no part of the value.
        at += ["\r\n", "\n"].into_iter().find(|n| raw[at..].starts_with(n)).map_or(0, str::len);
    }
    for wanted in value.chars().take(character) {
        at = skip_joined_lines(raw, at, escapes);
        let rest = raw.get(at..)?;
        let (read, length) = if escapes && rest.starts_with('\\') { escape(rest)? } else { plain(rest, wanted)? };
        if read.is_some_and(|c| c != wanted) {
            return None;
        }
        at += length;
    }
    Some(skip_joined_lines(raw, at, escapes))
}

/// Past a backslash at the end of a line, which joins the next line's first word to this one.
fn skip_joined_lines(raw: &str, at: usize, escapes: bool) -> usize {
    let joined = raw
        .get(at..)
        .and_then(|rest| rest.strip_prefix('\\'))
        .filter(|rest| escapes && rest.trim_start_matches([' ', '\t', '\r']).starts_with('\n'));
    joined.map_or(at, |rest| at + 1 + rest.len() - rest.trim_start().len())
}

/// An escape's character, where it need not be computed, and its bytes in the file.
fn escape(rest: &str) -> Option<(Option<char>, usize)> {
    Some(match rest.chars().nth(1)? {
        'u' => (None, 6),
        'U' => (None, 10),
        'x' => (None, 4),
        c @ ('"' | '\\') => (Some(c), 2),
        _ => (None, 2),
    })
}

fn plain(rest: &str, wanted: char) -> Option<(Option<char>, usize)> {
    if wanted == '\n' && rest.starts_with("\r\n") {
        return Some((Some('\n'), 2));
    }
    let c = rest.chars().next()?;
    Some((Some(c), c.len_utf8()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where the `!` of the value stands, by lines and columns of the file.
    fn found(file: &str) -> (usize, usize) {
        let table = toml::de::DeTable::parse(file).expect("the test's file is TOML").into_inner();
        let value = table.iter().next().expect("there is one value").1.clone();
        let text = value.get_ref().as_str().expect("it is a string");
        let before = &text[..text.find('!').expect("there is a mark")];
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
        let location = Source(file).within(&value.span(), text, Location { line, column });
        (location.line, location.column)
    }

    #[test]
    fn a_mistake_within_a_string_is_found_in_the_file() {
        for (file, expected) in [
            ("a = \"xy!\"", (1, 8)),
            ("\na = 'é!'", (2, 7)),
            ("a = \"say \\\"x\\\" !\"", (1, 16)),
            ("a = \"\\u00e9\\t!\"", (1, 14)),
            ("a = \"\"\"\nx\n  y!\"\"\"", (3, 4)),
            ("a = \"\"\"\r\nx\r\n  !\"\"\"", (3, 3)),
            ("a = \"\"\"x \\\n   y!\"\"\"", (2, 5)),
            ("a = '''\n\\ !'''", (2, 3)),
        ] {
            assert_eq!(found(file), expected, "{file}");
        }
    }
}
