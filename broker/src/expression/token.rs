//! Words, quotes and signs, each with its place in the text.

use std::fmt;

use super::ParseError;

/// Where something stands in a text, counted from 1, columns in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Location {
    /// The line.
    pub line: usize,
    /// The character within the line.
    pub column: usize,
}

/// A piece of text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// A word without quotes.
    Bare(String),
    /// What stood in quotes.
    Quoted(String),
    /// One of [`SIGNS`].
    Sign(&'static str),
    /// The end of the text.
    End,
}

/// All tokens of a text with their places; [`Token::End`] last.
pub(super) fn tokens(text: &str) -> Result<Vec<(Location, Token)>, ParseError> {
    let mut scanner = Scanner { rest: text, location: Location { line: 1, column: 1 } };
    let mut found = Vec::new();
    loop {
        scanner.skip_space();
        let location = scanner.location;
        let token = scanner.token()?;
        let end = token == Token::End;
        found.push((location, token));
        if end {
            return Ok(found);
        }
    }
}

struct Scanner<'a> {
    rest: &'a str,
    location: Location,
}

impl Scanner<'_> {
    fn token(&mut self) -> Result<Token, ParseError> {
        let Some(first) = self.rest.chars().next() else { return Ok(Token::End) };
        if let Some(sign) = SIGNS.iter().find(|s| self.rest.starts_with(**s)) {
            sign.chars().for_each(|_| {
                self.next();
            });
            return Ok(Token::Sign(sign));
        }
        if first == '"' {
            return self.quotes();
        }
        let mut word = String::new();
        while let Some(c) = self.rest.chars().next().filter(|c| is_plain(*c)) {
            word.push(c);
            self.next();
        }
        if word.is_empty() {
            let hint = "put other characters into double quotes".to_owned();
            return Err(ParseError::new(self.location, "a word", &format!("`{}`", first.escape_debug()), Some(hint)));
        }
        Ok(Token::Bare(word))
    }

    fn quotes(&mut self) -> Result<Token, ParseError> {
        let start = self.location;
        self.next();
        let mut text = String::new();
        loop {
            let location = self.location;
            match self.next() {
                Some('"') => return Ok(Token::Quoted(text)),
                Some('\\') => match self.next() {
                    Some(c @ ('"' | '\\')) => text.push(c),
                    _ => return Err(ParseError::new(location, "`\\\"` or `\\\\`", "another escape", None)),
                },
                Some(c) if !c.is_control() => text.push(c),
                Some(_) => return Err(ParseError::new(location, "printable text", "a control character", None)),
                None => return Err(ParseError::new(start, "a closing `\"`", "the end of the text", None)),
            }
        }
    }

    fn skip_space(&mut self) {
        while self.rest.starts_with([' ', '\t', '\r', '\n']) {
            self.next();
        }
    }

    fn next(&mut self) -> Option<char> {
        let mut characters = self.rest.chars();
        let c = characters.next()?;
        self.rest = characters.as_str();
        match c {
            '\n' => self.location = Location { line: self.location.line + 1, column: 1 },
            _ => self.location.column += 1,
        }
        Some(c)
    }
}

impl Token {
    /// As a message names it.
    pub(super) fn shown(&self) -> String {
        match self {
            Token::Bare(word) => format!("`{word}`"),
            Token::Quoted(text) => quoted(text),
            Token::Sign(sign) => format!("`{sign}`"),
            Token::End => "the end of the text".to_owned(),
        }
    }
}

/// The text as a condition has it: in quotes where it would not be one word otherwise.
pub fn quoted(text: &str) -> String {
    if !text.is_empty() && text.chars().all(is_plain) && !KEYWORDS.contains(&text) {
        return text.to_owned();
    }
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

fn is_plain(c: char) -> bool {
    c.is_alphanumeric() || "_-./@+#*$%&".contains(c)
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// The longer ones first.
const SIGNS: [&str; 12] = ["!=", "<=", ">=", "=", "<", ">", "(", ")", "[", "]", ",", ":"];
/// Words that need quotes to mean themselves.
pub(super) const KEYWORDS: [&str; 4] = ["and", "or", "not", "in"];
