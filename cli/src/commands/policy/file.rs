//! A policy as its author writes it: rules, the issuers that they may name, and cases that test them.
//!
//! ```toml
//! number = 3
//! [issuers]                                   # who gives which attributes
//! hospitalA = ["role", "ward"]
//! [[rule]]
//! act = "read"                                # or publish [default: read]
//! topic = "records/derma/#"
//! allow = "hospitalA:role = dermatologist"
//! [[test]]
//! name = "a nurse does not read it"           # [default: 'case 1']
//! topic = "records/derma/7"                   # or a list
//! attr = ["hospitalA:role=nurse"]
//! expect = "deny"                             # or allow
//! ```

use std::ops::Range;
use std::path::Path;

use sealcast::code::Code;
use sealcast::config::Home;
use sealcast_broker::access::{Access, Name, Vocabulary};
use sealcast_broker::expression::{Location, ParseError};
use sealcast_broker::operation::Header;
use sealcast_broker::operation::policy::{Act, Policy, Rule};
use sealcast_crypto::identity::{Attribute, Pattern, check_topic};
use sealcast_wire::limits;
use toml::Spanned;
use toml::de::{DeArray, DeString, DeTable, DeValue};

use super::attribute;
use super::source::Source;
use crate::commands::read_text;
use crate::hint::{Failure, nearest};

/// What a file says, as far as it could be read.
pub(super) struct PolicyFile {
    /// The file, as people read it.
    pub(super) shown: String,
    /// All of its text.
    text: String,
    /// The number under which the policy is to be in force.
    pub(super) number: u64,
    /// The attributes that issuers give; `None`: the file does not say.
    pub(super) known: Option<Vocabulary>,
    /// In the order of the file.
    pub(super) rules: Vec<LocatedRule>,
    /// In the order of the file.
    pub(super) cases: Vec<Case>,
}

/// A rule and where it stands.
pub(super) struct LocatedRule {
    pub(super) rule: Rule,
    /// Where it begins.
    pub(super) location: Location,
    /// The condition's text as written.
    pub(super) text: String,
    /// Where the condition stands in the file, with its quotes.
    at: Range<usize>,
}

/// What an author expects of the rules.
pub(super) struct Case {
    pub(super) name: String,
    pub(super) act: Act,
    pub(super) headers: Vec<Header>,
    pub(super) attributes: Vec<Attribute>,
    /// Whether it is to be allowed.
    pub(super) allow: bool,
    pub(super) location: Location,
}

/// Something that makes a file no policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mistake {
    pub(super) location: Location,
    pub(super) what: String,
    pub(super) hint: Option<String>,
}

impl PolicyFile {
    /// Reads a file with all its mistakes, in the order in which they stand there.
    pub(super) fn read(path: &Path) -> Result<(PolicyFile, Vec<Mistake>), Failure> {
        let shown = if path == Path::new("-") { "stdin".to_owned() } else { Home::shown(path) };
        let text = read_text(path)?;
        Ok(PolicyFile::of_text(&text, shown))
    }

    /// Reads a file that must have no mistake.
    pub(super) fn load(path: &Path) -> Result<PolicyFile, Failure> {
        let (file, mistakes) = PolicyFile::read(path)?;
        let at = |m: &Mistake| format!("{}:{}: {}", file.shown, m.location, m.what);
        match mistakes.as_slice() {
            [] => Ok(file),
            [one] => {
                let failure = Failure::new(Code::Content, at(one));
                Err(match &one.hint {
                    Some(hint) => failure.hint(hint),
                    None => failure.hint("sealcast policy --help shows an example"),
                })
            }
            many => {
                let lines: Vec<String> = many.iter().map(|m| format!("\n  {}", at(m))).collect();
                let what = format!("{}: {} mistakes{}", file.shown, many.len(), lines.concat());
                Err(Failure::new(Code::Content, what).hint(format!("sealcast policy lint {}", path.display())))
            }
        }
    }

    fn of_text(text: &str, shown: String) -> (PolicyFile, Vec<Mistake>) {
        let mut reading = Reading { source: Source(text), mistakes: vec![] };
        let (table, errors) = DeTable::parse_recoverable(text);
        let mut file =
            PolicyFile { shown, text: text.to_owned(), number: 0, known: None, rules: vec![], cases: vec![] };
        if errors.is_empty() {
            reading.file(table.get_ref(), &mut file);
        }
        for error in errors {
            let at = error.span().map_or(0, |s| s.start);
            reading.mistake(at, error.message().split_whitespace().collect::<Vec<_>>().join(" "), None);
        }
        let mut mistakes = reading.mistakes;
        mistakes.sort_by_key(|m| m.location);
        // An unfinished file may end many times.
        mistakes.dedup();
        (file, mistakes)
    }

    /// The rules as brokers get them.
    pub(super) fn policy(&self) -> Policy {
        Policy { rules: self.rules.iter().map(|r| r.rule.clone()).collect() }.in_order()
    }

    /// Where a part of a rule's condition stands, if it is written as it is shown; else where the condition begins.
    pub(super) fn location_of(&self, r: &LocatedRule, part: &str) -> Location {
        let before = r.text.find(part).map_or("", |at| &r.text[..at]);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
        Source(&self.text).within(&r.at, &r.text, Location { line, column })
    }

    /// The rules that concern a publication; all of this act where no topic is said.
    pub(super) fn concerning<'a>(
        &'a self,
        act: Act,
        headers: &'a [Header],
    ) -> impl Iterator<Item = (usize, &'a LocatedRule)> {
        let all = headers.is_empty();
        let concerns = move |r: &Rule| all || headers.iter().any(|h| r.topic.matches(&h.topic));
        (1..).zip(&self.rules).filter(move |(_, r)| r.rule.act == act && concerns(&r.rule))
    }
}

struct Reading<'a> {
    source: Source<'a>,
    mistakes: Vec<Mistake>,
}

type Value<'a> = Spanned<DeValue<'a>>;

impl Reading<'_> {
    fn file(&mut self, table: &DeTable<'_>, file: &mut PolicyFile) {
        self.fields(table, "a policy", &["number", "issuers", "rule", "test"]);
        match field(table, "number") {
            None => {
                self.mistake(0, "number is missing".into(), Some("number = 1, and one more with each change".into()))
            }
            Some(value) => file.number = self.number(value).unwrap_or(0),
        }
        file.known = field(table, "issuers").map(|v| self.issuers(v));
        let rules = self.tables(table, "rule");
        if let Some((span, _)) = rules.get(limits::RULES_MAX) {
            self.mistake(span.start, format!("a policy has at most {} rules", limits::RULES_MAX), None);
        }
        for (span, rule) in rules.iter().take(limits::RULES_MAX) {
            let read = self.rule(span, rule, file.known.as_ref());
            file.rules.extend(read);
        }
        if file.policy().to_bytes().len() > limits::RULES_BYTES_MAX {
            let what = format!("the rules have more than {} bytes once encoded", limits::RULES_BYTES_MAX);
            self.mistake(rules[0].0.start, what, Some("shorter conditions, or fewer rules".into()));
        }
        for (number, (span, case)) in (1..).zip(self.tables(table, "test")) {
            let read = self.case(number, &span, case, file.known.as_ref());
            file.cases.extend(read);
        }
    }

    fn issuers(&mut self, value: &Value<'_>) -> Vocabulary {
        let mut names = vec![];
        let Some(table) = self.table(value, "issuers", "[issuers], then a line for each: hospitalA = [\"role\"]")
        else {
            return Vocabulary::default();
        };
        for (issuer, keys) in table {
            if Name::new(issuer.get_ref(), "key").is_none() {
                self.mistake(issuer.span().start, part_rule("an issuer's name"), None);
                continue;
            }
            let listed = self.list(keys, &format!("{} = [\"role\"]: the attributes that it gives", issuer.get_ref()));
            if listed.as_ref().is_some_and(|l| l.is_empty()) {
                let what = format!("{} gives no attribute", issuer.get_ref());
                self.mistake(keys.span().start, what, Some(format!("{} = [\"role\"]", issuer.get_ref())));
            }
            for (span, key) in listed.unwrap_or_default() {
                match Name::new(issuer.get_ref(), &key) {
                    Some(name) => names.push(name),
                    None => self.mistake(span.start, part_rule("an attribute's name"), None),
                }
            }
        }
        Vocabulary::new(names)
    }

    fn rule(&mut self, span: &Range<usize>, table: &DeTable<'_>, known: Option<&Vocabulary>) -> Option<LocatedRule> {
        self.fields(table, "a rule", &["act", "topic", "allow"]);
        let act = self.act(table);
        let topic = self.needed(table, span, "a rule", "topic", "topic = \"records/#\"").and_then(|v| {
            let text = self.printable(v, "topic = \"records/#\"")?;
            let pattern = text.parse::<Pattern>();
            pattern.map_err(|e| self.mistake(v.span().start, format!("topic '{text}': {e}"), None)).ok()
        });
        let example = "allow = \"hospitalA:role = nurse\"";
        let allow = self.needed(table, span, "a rule", "allow", example).and_then(|v| {
            let text = self.text(v, example)?;
            Some((self.access(v, &text, known)?, text, v.span()))
        });
        let (access, text, at) = allow?;
        let location = self.source.location(span.start);
        Some(LocatedRule { rule: Rule { act: act?, topic: topic?, access }, location, text, at })
    }

    fn access(&mut self, value: &Value<'_>, text: &str, known: Option<&Vocabulary>) -> Option<Access> {
        let read = match known {
            Some(known) => Access::parse_all(text, known),
            None => text.parse().map_err(|e: ParseError| vec![e]),
        };
        let errors = match read {
            Ok(access) => return Some(access),
            Err(errors) => errors,
        };
        for error in errors {
            let location = self.source.within(&value.span(), text, error.location);
            let what = format!("expected {}, found {}", error.expected, error.found);
            self.mistakes.push(Mistake { location, what, hint: error.hint });
        }
        None
    }

    fn case(
        &mut self,
        number: usize,
        span: &Range<usize>,
        table: &DeTable<'_>,
        known: Option<&Vocabulary>,
    ) -> Option<Case> {
        self.fields(table, "a test", &["name", "act", "topic", "attr", "expect"]);
        let act = self.act(table);
        let name = match field(table, "name") {
            None => Some(format!("case {number}")),
            Some(v) => self.printable(v, "name = \"a nurse does not read it\""),
        };
        let topics = self.needed(table, span, "a test", "topic", "topic = \"records/7\"").and_then(|v| self.topics(v));
        let attributes = field(table, "attr").map_or(Some(vec![]), |v| self.attributes(v, known));
        let expect = self.needed(table, span, "a test", "expect", "expect = \"allow\" or \"deny\"").and_then(|v| {
            match self.text(v, "expect = \"allow\" or \"deny\"")?.as_str() {
                "allow" => Some(true),
                "deny" => Some(false),
                other => {
                    let what = format!("expected allow or deny, found '{other}'");
                    self.mistake(v.span().start, what, None);
                    None
                }
            }
        });
        let location = self.source.location(span.start);
        Some(Case { name: name?, act: act?, headers: topics?, attributes: attributes?, allow: expect?, location })
    }

    fn topics(&mut self, value: &Value<'_>) -> Option<Vec<Header>> {
        let listed = match value.get_ref() {
            DeValue::Array(_) => self.list(value, "topic = [\"records/7\", \"claims/7\"]")?,
            _ => vec![(value.span(), self.printable(value, "topic = \"records/7\"")?)],
        };
        if listed.is_empty() || listed.len() > limits::HEADERS_MAX {
            let what = format!("a publication has 1 to {} topics, not {}", limits::HEADERS_MAX, listed.len());
            self.mistake(value.span().start, what, None);
            return None;
        }
        let mut headers = vec![];
        for (span, topic) in listed {
            match check_topic(&topic) {
                Ok(()) => headers.push(Header { topic, value: None }),
                Err(e) => self.mistake(span.start, format!("topic '{topic}': {e}"), None),
            }
        }
        Some(headers)
    }

    fn attributes(&mut self, value: &Value<'_>, known: Option<&Vocabulary>) -> Option<Vec<Attribute>> {
        let mut all = vec![];
        for (span, text) in self.list(value, "attr = [\"hospitalA:role=nurse\"]")? {
            let read = attribute::read(&text, known).and_then(|a| match known {
                Some(known) => attribute::check(&a, known).map(|()| a),
                None => Ok(a),
            });
            match read {
                Ok(attribute) => all.push(attribute),
                Err(wrong) => self.mistake(span.start, wrong.what, wrong.hint),
            }
        }
        Some(all)
    }

    fn act(&mut self, table: &DeTable<'_>) -> Option<Act> {
        let Some(value) = field(table, "act") else { return Some(Act::Read) };
        match self.text(value, "act = \"read\" or \"publish\"")?.as_str() {
            "read" => Some(Act::Read),
            "publish" => Some(Act::Publish),
            other => {
                self.mistake(value.span().start, format!("expected read or publish, found '{other}'"), None);
                None
            }
        }
    }

    /// Fields that are none: most often misspelt ones.
    fn fields(&mut self, table: &DeTable<'_>, of: &str, known: &[&str]) {
        for key in table.keys().filter(|k| !known.contains(&k.get_ref().as_ref())) {
            let hint = match nearest(key.get_ref(), known.iter().copied()) {
                Some(better) => format!("did you mean {better}?"),
                None => format!("it has {}", known.join(", ")),
            };
            self.mistake(key.span().start, format!("{of} has no field '{}'", key.get_ref()), Some(hint));
        }
    }

    fn needed<'a, 'v>(
        &mut self,
        table: &'a DeTable<'v>,
        span: &Range<usize>,
        of: &str,
        name: &str,
        example: &str,
    ) -> Option<&'a Value<'v>> {
        let found = field(table, name);
        if found.is_none() {
            self.mistake(span.start, format!("{of} without {name}"), Some(example.to_owned()));
        }
        found
    }

    /// The tables of `[[name]]`.
    fn tables<'a, 'v>(&mut self, table: &'a DeTable<'v>, name: &str) -> Vec<(Range<usize>, &'a DeTable<'v>)> {
        let Some(value) = field(table, name) else { return vec![] };
        let example = format!("write [[{name}]] above each");
        let Some(listed) = self.array(value, name, &example) else { return vec![] };
        listed.iter().filter_map(|v| Some((v.span(), self.table(v, name, &example)?))).collect()
    }

    fn table<'a, 'v>(&mut self, value: &'a Value<'v>, name: &str, example: &str) -> Option<&'a DeTable<'v>> {
        let found = value.get_ref().as_table();
        if found.is_none() {
            self.other_kind(value, &format!("a table '{name}'"), example);
        }
        found
    }

    fn array<'a, 'v>(&mut self, value: &'a Value<'v>, name: &str, example: &str) -> Option<&'a DeArray<'v>> {
        let found = value.get_ref().as_array();
        if found.is_none() {
            self.other_kind(value, &format!("a list of '{name}'"), example);
        }
        found
    }

    /// A list of texts; others than texts in it are mistakes.
    fn list(&mut self, value: &Value<'_>, example: &str) -> Option<Vec<(Range<usize>, String)>> {
        let Some(values) = value.get_ref().as_array() else {
            self.other_kind(value, "a list of texts", example);
            return None;
        };
        Some(values.iter().filter_map(|v| Some((v.span(), self.printable(v, example)?))).collect())
    }

    fn text(&mut self, value: &Value<'_>, example: &str) -> Option<String> {
        let found = value.get_ref().as_str();
        if found.is_none() {
            self.other_kind(value, "a text in quotes", example);
        }
        found.map(str::to_owned)
    }

    /// A text of one line, which the policy's own text form and terminals can show.
    fn printable(&mut self, value: &Value<'_>, example: &str) -> Option<String> {
        let text = self.text(value, example)?;
        if text.chars().any(char::is_control) {
            self.mistake(value.span().start, format!("'{text}' has a control character"), None);
            return None;
        }
        Some(text)
    }

    fn number(&mut self, value: &Value<'_>) -> Option<u64> {
        let read = |n: &toml::de::DeInteger<'_>| u64::from_str_radix(n.as_str(), n.radix()).ok();
        let number = value.get_ref().as_integer().and_then(read).filter(|n| *n > 0 && i64::try_from(*n).is_ok());
        if number.is_none() {
            let hint = "the first policy has number 1; 0 is the empty one before it";
            self.mistake(value.span().start, "number is not a whole number from 1".into(), Some(hint.into()));
        }
        number
    }

    fn other_kind(&mut self, value: &Value<'_>, expected: &str, example: &str) {
        let found = match value.get_ref() {
            DeValue::String(_) => "a text",
            DeValue::Integer(_) | DeValue::Float(_) => "a number",
            DeValue::Boolean(_) => "true or false",
            DeValue::Datetime(_) => "a date",
            DeValue::Array(_) => "a list",
            DeValue::Table(_) => "a table",
        };
        self.mistake(value.span().start, format!("expected {expected}, found {found}"), Some(example.to_owned()));
    }

    fn mistake(&mut self, at: usize, what: String, hint: Option<String>) {
        // The file may come from anybody; a terminal obeys control characters.
        let what = what.chars().map(|c| if c.is_control() { c.escape_debug().collect() } else { String::from(c) });
        self.mistakes.push(Mistake { location: self.source.location(at), what: what.collect(), hint });
    }
}

fn field<'a, 'v>(table: &'a DeTable<'v>, name: &str) -> Option<&'a Value<'v>> {
    let named = |(key, _): &(&Spanned<DeString<'v>>, &'a Value<'v>)| key.get_ref() == name;
    table.iter().find(named).map(|(_, value)| value)
}

fn part_rule(what: &str) -> String {
    format!("{what} has 1 to {} bytes and no control character", limits::ATTRIBUTE_BYTES_MAX)
}
