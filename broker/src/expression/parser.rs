//! Reads conditions, and says what it expected where it cannot.

use std::fmt;

use sealcast_wire::limits;

use super::token::{KEYWORDS, Location, Token, tokens};
use super::{Atom, Tree};

/// A text on the way to becoming a condition.
pub struct Parser {
    tokens: Vec<(Location, Token)>,
    next: usize,
    /// Nodes that may still be made.
    nodes: usize,
}

/// What is wrong with a text, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// Where.
    pub location: Location,
    /// What should stand there.
    pub expected: String,
    /// What does.
    pub found: String,
    /// What might have been meant.
    pub hint: Option<String>,
}

impl Parser {
    /// At the beginning of a text.
    ///
    /// # Errors
    /// The text is too long, or no sequence of words, quotes and signs.
    pub fn new(text: &str) -> Result<Parser, ParseError> {
        if text.len() > limits::EXPRESSION_TEXT_BYTES_MAX {
            let expected = format!("at most {} bytes", limits::EXPRESSION_TEXT_BYTES_MAX);
            let start = Location { line: 1, column: 1 };
            return Err(ParseError::new(start, &expected, &format!("{} bytes", text.len()), None));
        }
        Ok(Parser { tokens: tokens(text)?, next: 0, nodes: limits::EXPRESSION_NODES_MAX })
    }

    /// The whole text as one condition.
    ///
    /// # Errors
    /// It is none, or over a limit.
    pub fn condition<A: Atom>(mut self) -> Result<Tree<A>, ParseError> {
        let tree = self.any(1)?;
        match self.peek() {
            Token::End => {}
            _ => return Err(self.expected("`and`, `or` or the end")),
        }
        let wrong = |expected: String| Err(ParseError::new(Location { line: 1, column: 1 }, &expected, "more", None));
        if tree.nodes() > limits::EXPRESSION_NODES_MAX {
            wrong(format!("at most {} comparisons and connectives", limits::EXPRESSION_NODES_MAX))
        } else if tree.depth() > limits::EXPRESSION_DEPTH_MAX {
            wrong(format!("conditions within each other at most {} deep", limits::EXPRESSION_DEPTH_MAX))
        } else if tree.to_bytes().len() > limits::EXPRESSION_BYTES_MAX {
            wrong(format!("at most {} bytes once encoded", limits::EXPRESSION_BYTES_MAX))
        } else {
            Ok(tree)
        }
    }

    /// Where the next token stands.
    pub fn location(&self) -> Location {
        self.tokens[self.next].0
    }

    /// Takes the sign if it comes next.
    pub fn sign(&mut self, sign: &str) -> bool {
        self.take(|t| matches!(t, Token::Sign(s) if *s == sign)).is_some()
    }

    /// Takes the keyword if it comes next.
    pub fn keyword(&mut self, keyword: &str) -> bool {
        self.take(|t| matches!(t, Token::Bare(w) if w == keyword)).is_some()
    }

    /// Takes a word that is no keyword, or what stands in quotes.
    ///
    /// # Errors
    /// Something else comes next; `expected` says what should.
    pub fn word(&mut self, expected: &str) -> Result<String, ParseError> {
        let is_name = |t: &Token| match t {
            Token::Bare(word) => !KEYWORDS.contains(&word.as_str()),
            Token::Quoted(_) => true,
            _ => false,
        };
        match self.take(is_name) {
            Some(Token::Bare(text) | Token::Quoted(text)) => Ok(text),
            _ => Err(self.expected(expected)),
        }
    }

    /// That something else comes next than should.
    pub fn expected(&self, expected: &str) -> ParseError {
        let (location, token) = &self.tokens[self.next];
        let hint = match token {
            Token::Bare(word) if KEYWORDS.contains(&word.as_str()) => {
                Some(format!("in quotes \"{word}\" is a name or value"))
            }
            Token::Bare(word) => {
                let lower = word.to_lowercase();
                let keyword = KEYWORDS.iter().find(|k| **k == lower);
                keyword.map(|k| format!("keywords are written in lower case: `{k}`"))
            }
            Token::Sign("=") if self.next > 0 && self.tokens[self.next - 1].1 == Token::Sign("=") => {
                Some("equality is a single `=`".to_owned())
            }
            _ => None,
        };
        ParseError::new(*location, expected, &token.shown(), hint)
    }

    /// The first place from which `fits` finds what it looks for.
    pub(crate) fn find(&mut self, mut fits: impl FnMut(&mut Parser) -> Option<()>) -> Option<Location> {
        for start in 0..self.tokens.len() {
            self.next = start;
            if fits(self).is_some() {
                return Some(self.tokens[start].0);
            }
        }
        None
    }

    fn any<A: Atom>(&mut self, depth: usize) -> Result<Tree<A>, ParseError> {
        let mut parts = vec![self.all(depth)?];
        while self.keyword("or") {
            parts.push(self.all(depth)?);
        }
        Ok(Tree::any(parts))
    }

    fn all<A: Atom>(&mut self, depth: usize) -> Result<Tree<A>, ParseError> {
        let mut parts = vec![self.one(depth)?];
        while self.keyword("and") {
            parts.push(self.one(depth)?);
        }
        Ok(Tree::all(parts))
    }

    fn one<A: Atom>(&mut self, depth: usize) -> Result<Tree<A>, ParseError> {
        if depth > limits::EXPRESSION_DEPTH_MAX {
            let expected = format!("at most {} levels of parentheses and `not`", limits::EXPRESSION_DEPTH_MAX);
            return Err(ParseError::new(self.location(), &expected, "more", None));
        }
        if A::NEGATION && self.keyword("not") {
            return Ok(Tree::Not(Box::new(self.one(depth + 1)?)));
        }
        if self.sign("(") {
            let inner = self.any(depth + 1)?;
            return if self.sign(")") { Ok(inner) } else { Err(self.expected("`and`, `or` or `)`")) };
        }
        self.nodes = self.nodes.checked_sub(1).ok_or_else(|| {
            let expected = format!("at most {} comparisons", limits::EXPRESSION_NODES_MAX);
            ParseError::new(self.location(), &expected, "more", None)
        })?;
        A::parse(self).map(Tree::Is)
    }

    fn peek(&self) -> &Token {
        &self.tokens[self.next].1
    }

    fn take(&mut self, fits: impl FnOnce(&Token) -> bool) -> Option<Token> {
        let token = self.peek();
        if *token == Token::End || !fits(token) {
            return None;
        }
        let token = token.clone();
        self.next += 1;
        Some(token)
    }
}

impl ParseError {
    /// Something else was expected.
    pub fn new(location: Location, expected: &str, found: &str, hint: Option<String>) -> ParseError {
        ParseError { location, expected: expected.to_owned(), found: found.to_owned(), hint }
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: expected {}, found {}", self.location, self.expected, self.found)?;
        self.hint.iter().try_for_each(|h| write!(f, " ({h})"))
    }
}

impl std::error::Error for ParseError {}
