//! How a received message is shown: lines for people, a template, JSON, or the payload alone.

use std::fmt::Write;
use std::time::Duration;

use sealcast_broker::operation::Header;
use serde_json::{Value, json};

use crate::text::duration;

/// A received message as the program knows it.
#[derive(Clone, Debug)]
pub(crate) struct Received<'a> {
    /// Counts what this command received, from 1.
    pub(crate) index: u64,
    pub(crate) topic: &'a str,
    pub(crate) sender: Sender<'a>,
    /// The epoch's number; 0 where nothing is sealed.
    pub(crate) epoch: u32,
    /// The sender's own number of the message.
    pub(crate) sequence: u64,
    /// From its publish to its arrival here, by both clocks; negative where they differ that much.
    pub(crate) delay_micros: Option<i64>,
    /// What came with it that brokers may read.
    pub(crate) associated: &'a [u8],
    /// Where brokers placed it under each of its topics; nothing in groups.
    pub(crate) places: &'a [(Header, u64)],
    pub(crate) payload: Payload<'a>,
}

/// What was published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Payload<'a> {
    /// All of it.
    Here(&'a [u8]),
    /// So many bytes, which lie elsewhere, and their SHA-256.
    Elsewhere(u64, &'a [u8; 32]),
}

impl Payload<'_> {
    /// Bytes of it.
    pub(crate) fn size(self) -> u64 {
        match self {
            Payload::Here(bytes) => bytes.len() as u64,
            Payload::Elsewhere(size, _) => size,
        }
    }

    /// For a terminal, which it cannot drive: below a headline, each line behind [`MARGIN`], so that none looks like one.
    pub(crate) fn set_off(self) -> String {
        set_off(&self.shown(), columns())
    }

    /// For a terminal, which it cannot drive.
    pub(crate) fn shown(self) -> String {
        match self {
            Payload::Here(bytes) => for_terminal(bytes),
            Payload::Elsewhere(size, hash) => {
                format!("sha256 {} of {size} bytes that lie elsewhere", hex::encode(hash))
            }
        }
    }

    /// Its bytes as they are; of bytes that lie elsewhere, words that say so.
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        match self {
            Payload::Here(bytes) => bytes.to_vec(),
            Payload::Elsewhere(..) => self.shown().into_bytes(),
        }
    }

    /// As a field of JSON: `payload`, `payload_base64` if it is no text, or `digest`.
    pub(crate) fn field(self) -> (&'static str, Value) {
        match self {
            Payload::Here(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) => ("payload", json!(text)),
                Err(_) => ("payload_base64", json!(base64(bytes))),
            },
            Payload::Elsewhere(_, hash) => ("digest", json!(hex::encode(hash))),
        }
    }
}

/// Who sent it, and how we know (A2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sender<'a> {
    /// By a verified signature.
    Signed(&'a str),
    /// By the group's key alone: any member could have said so.
    Claimed(&'a str),
    /// Nothing says who.
    Anonymous,
}

impl Sender<'_> {
    /// `robot7`, `~robot7` where it is only a claim, `?` where it is not even that.
    pub(crate) fn shown(self) -> String {
        match self {
            Sender::Signed(name) => safe(name),
            Sender::Claimed(name) => format!("~{}", safe(name)),
            Sender::Anonymous => "?".to_owned(),
        }
    }

    fn kind(self) -> &'static str {
        match self {
            Sender::Signed(_) => "signed",
            Sender::Claimed(_) => "claimed",
            Sender::Anonymous => "anonymous",
        }
    }

    fn name(self) -> Option<String> {
        match self {
            Sender::Signed(name) | Sender::Claimed(name) => Some(name.to_owned()),
            Sender::Anonymous => None,
        }
    }
}

/// `#1 ward3/vitals  from you@laptop  epoch 1  9 B  +0.3 ms`
pub(crate) fn headline(m: &Received<'_>) -> String {
    let mut line = format!("#{} {}  from {}", m.index, safe(m.topic), m.sender.shown());
    if m.epoch > 0 {
        let _ = write!(line, "  epoch {}", m.epoch);
    }
    let _ = write!(line, "  {}", crate::text::bytes(m.payload.size()));
    if let Some(micros) = m.delay_micros {
        let _ = write!(line, "  {}", delay(micros));
    }
    if !m.associated.is_empty() {
        let _ = write!(line, "  with {}", safe(&String::from_utf8_lossy(m.associated)));
    }
    line
}

/// One line of JSON's object; a payload that is no text comes as Base64, one that lies elsewhere as its digest.
pub(crate) fn object(m: &Received<'_>) -> Value {
    let mut object = json!({
        "number": m.index,
        "topic": m.topic,
        "from": m.sender.name(),
        "origin": m.sender.kind(),
        "epoch": m.epoch,
        "sequence": m.sequence,
        "bytes": m.payload.size(),
        "delay_ms": m.delay_micros.map(|d| d as f64 / 1e3),
    });
    let (name, payload) = m.payload.field();
    object[name] = payload;
    match std::str::from_utf8(m.associated) {
        Ok("") => {}
        Ok(text) => object["associated"] = json!(text),
        Err(_) => object["associated_base64"] = json!(base64(m.associated)),
    }
    if !m.places.is_empty() {
        let place = |(it, number): &(Header, u64)| json!({ "topic": it.topic, "value": it.value, "number": number });
        object["places"] = m.places.iter().map(place).collect();
    }
    object
}

/// The payload for a terminal: text as it is; a short dump or the number of bytes of anything else,
/// so that no message can drive the terminal.
pub(crate) fn for_terminal(payload: &[u8]) -> String {
    match std::str::from_utf8(payload) {
        Ok(text) if is_harmless(text) => text.to_owned(),
        _ if payload.len() <= DUMP_BYTES_MAX => dump(payload),
        _ => format!("<{} bytes>", payload.len()),
    }
}

/// A template: `%t` topic, `%s` sender, `%p` payload, `%e` epoch, `%n` the sender's number, `%i` index
/// here, `%l` bytes, `%d` delay, `%j` JSON, `%%`; `\n` and `\t`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Field(char),
}

impl Template {
    /// Reads a template; an unknown field is an error now, not at the first message.
    pub(crate) fn parse(text: &str) -> Result<Template, String> {
        let mut parts = vec![];
        let mut plain = String::new();
        let mut chars = text.chars();
        while let Some(c) = chars.next() {
            match (c, chars.clone().next()) {
                ('%', Some('%')) => plain.push('%'),
                ('%', Some(field)) if FIELDS.contains(field) => {
                    parts.push(Part::Text(std::mem::take(&mut plain)));
                    parts.push(Part::Field(field));
                }
                ('%', Some(other)) => return Err(format!("%{other} is unknown; there are {}", fields())),
                ('%', None) => return Err(format!("% at the end; there are {}", fields())),
                ('\\', Some('n')) => plain.push('\n'),
                ('\\', Some('t')) => plain.push('\t'),
                ('\\', Some('\\')) => plain.push('\\'),
                _ => {
                    plain.push(c);
                    continue;
                }
            }
            chars.next();
        }
        parts.push(Part::Text(plain));
        Ok(Template(parts))
    }

    /// The message in this form; the payload's bytes as they are, unless a terminal shall show them.
    pub(crate) fn fill(&self, m: &Received<'_>, to_terminal: bool) -> Vec<u8> {
        let mut out = vec![];
        for part in &self.0 {
            match part {
                Part::Text(text) => out.extend_from_slice(text.as_bytes()),
                // Further lines of it are set off from the lines that the template makes.
                Part::Field('p') if to_terminal => {
                    let shown = set_off(&m.payload.shown(), columns());
                    out.extend_from_slice(shown.strip_prefix(MARGIN).unwrap_or(&shown).as_bytes());
                }
                Part::Field('p') => out.extend_from_slice(&m.payload.to_bytes()),
                Part::Field(field) => out.extend_from_slice(value(*field, m).as_bytes()),
            }
        }
        out
    }
}

fn value(field: char, m: &Received<'_>) -> String {
    match field {
        't' => safe(m.topic),
        's' => m.sender.shown(),
        'e' => m.epoch.to_string(),
        'n' => m.sequence.to_string(),
        'i' => m.index.to_string(),
        'l' => m.payload.size().to_string(),
        'd' => m.delay_micros.map(delay).unwrap_or_default(),
        _ => object(m).to_string(),
    }
}

fn fields() -> String {
    FIELDS.chars().chain(['%']).map(|c| format!("%{c}")).collect::<Vec<_>>().join(" ")
}

fn delay(micros: i64) -> String {
    let sign = if micros < 0 { '-' } else { '+' };
    let d = Duration::from_micros(micros.unsigned_abs());
    // Below a second tenths of a millisecond are what one wants to see.
    if d < Duration::from_millis(100) {
        format!("{sign}{:.1} ms", d.as_secs_f64() * 1e3)
    } else {
        format!("{sign}{}", duration(d))
    }
}

/// A name for a terminal: whatever could drive it becomes `?`.
pub(crate) fn safe(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// A topic as it is typed in a shell: in quotes where it needs them.
pub(crate) fn typed(topic: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '/' | '-' | '_' | '.' | '@' | '%');
    if topic.chars().all(plain) { topic.to_owned() } else { format!("'{}'", safe(topic).replace('\'', "'\\''")) }
}

/// Whether a text leaves a terminal's lines as they are: a lone carriage return would write over what stands before it, and
/// there are characters that turn the direction of writing round, or end a line for some terminals.
fn is_harmless(text: &str) -> bool {
    let turns = |c: char| matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.replace("\r\n", "\n").chars().all(|c| !turns(c) && (!c.is_control() || matches!(c, '\n' | '\t')))
}

/// A text with [`MARGIN`] before each line. A line that is too long for the terminal goes on behind a margin of its own,
/// since the terminal would begin its rest where headlines begin.
fn set_off(text: &str, columns: usize) -> String {
    let room = columns.saturating_sub(MARGIN.len()).max(WIDTH_MIN);
    let mut out = String::with_capacity(text.len() + MARGIN.len());
    for (number, line) in text.replace("\r\n", "\n").split('\n').enumerate() {
        if number > 0 {
            out.push('\n');
        }
        out.push_str(MARGIN);
        let mut used = 0;
        for c in line.chars() {
            // At most: other characters than those of ASCII may be two columns wide.
            let width = if c == '\t' { 8 } else { 1 + usize::from(!c.is_ascii()) };
            if used + width > room {
                out.push('\n');
                out.push_str(MARGIN);
                used = 0;
            }
            out.push(c);
            used += width;
        }
    }
    out
}

/// Columns of the terminal at stdout.
fn columns() -> usize {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok();
    size.map(|it| usize::from(it.ws_col)).filter(|it| *it > 0).unwrap_or(COLUMNS_USUAL)
}

/// Sixteen bytes a line, as `hexdump -C` prints them.
fn dump(bytes: &[u8]) -> String {
    let line = |(i, chunk): (usize, &[u8])| {
        let hex: Vec<String> = chunk.iter().map(|b| format!("{b:02x}")).collect();
        let text: String = chunk.iter().map(|&b| if (0x20..0x7f).contains(&b) { b as char } else { '.' }).collect();
        format!("{:04x}  {:<47}  {text}", i * 16, hex.join(" "))
    };
    bytes.chunks(16).enumerate().map(line).collect::<Vec<_>>().join("\n")
}

/// RFC 4648, section 4.
pub(crate) fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let n = chunk.iter().fold(0_u32, |n, &b| n << 8 | u32::from(b)) << (8 * (3 - chunk.len()));
        for i in 0..4 {
            let digit = DIGITS[(n >> (18 - 6 * i) & 63) as usize];
            text.push(if i <= chunk.len() { digit as char } else { '=' });
        }
    }
    text
}

/// Before each line of a payload on a terminal.
const MARGIN: &str = "  ";
/// Columns where the terminal does not say.
const COLUMNS_USUAL: usize = 80;
/// Columns that a line has even in a narrower terminal.
const WIDTH_MIN: usize = 10;
/// Bytes of a payload that are worth a dump.
const DUMP_BYTES_MAX: usize = 256;
const FIELDS: &str = "tspenildj";

#[cfg(test)]
mod tests {
    use super::*;

    fn message<'a>(payload: &'a [u8]) -> Received<'a> {
        let sender = Sender::Signed("you@laptop");
        let (topic, delay_micros, payload) = ("ward3/vitals", Some(312), Payload::Here(payload));
        Received { index: 1, topic, sender, epoch: 1, sequence: 7, delay_micros, associated: b"", places: &[], payload }
    }

    #[test]
    fn the_line_is_that_of_the_manual() {
        let m = message(b"{\"hr\":72}");
        assert_eq!(headline(&m), "#1 ward3/vitals  from you@laptop  epoch 1  9 B  +0.3 ms");
    }

    #[test]
    fn rule_a2_a_claim_never_looks_like_a_signature() {
        assert_eq!(Sender::Signed("robot7").shown(), "robot7");
        assert_eq!(Sender::Claimed("robot7").shown(), "~robot7");
        assert_eq!(Sender::Anonymous.shown(), "?");
    }

    #[test]
    fn a_template_is_filled_and_a_wrong_one_refused_at_once() {
        let m = message(b"72");
        let fill = |text: &str| String::from_utf8(Template::parse(text).unwrap().fill(&m, false)).unwrap();
        assert_eq!(fill("%t %s %p"), "ward3/vitals you@laptop 72");
        assert_eq!(fill("%l%%\\t%n\\n"), "2%\t7\n");
        assert_eq!(fill("%d"), "+0.3 ms");
        assert!(Template::parse("%x").is_err() && Template::parse("100%").is_err());
    }

    #[test]
    fn what_came_with_it_is_shown_beside_it() {
        let m = Received { associated: b"desk 3\x1b", ..message(b"72") };
        assert!(headline(&m).ends_with("+0.3 ms  with desk 3?"));
        assert_eq!(object(&m)["associated"], "desk 3\u{1b}");
        assert!(object(&message(b"72")).get("associated").is_none());
    }

    #[test]
    fn bytes_that_lie_elsewhere_are_not_taken_for_a_payload() {
        let m = Received { payload: Payload::Elsewhere(1_048_576, &[0xab; 32]), ..message(b"") };
        let hash = "ab".repeat(32);
        assert_eq!(headline(&m), "#1 ward3/vitals  from you@laptop  epoch 1  1.0 MB  +0.3 ms");
        assert_eq!(m.payload.shown(), format!("sha256 {hash} of 1048576 bytes that lie elsewhere"));
        let object = object(&m);
        assert!(object["digest"] == hash && object["bytes"] == 1_048_576 && object.get("payload").is_none());
    }

    #[test]
    fn no_payload_can_drive_the_terminal() {
        assert_eq!(for_terminal(b"plain\ntext"), "plain\ntext");
        assert!(for_terminal(b"one\rtwo").starts_with("0000  6f 6e 65 0d"), "it would write over what stands there");
        assert!(for_terminal("a\u{202e}b".as_bytes()).starts_with("0000"), "it would turn the line round");
        assert!(for_terminal(b"\x1b]0;owned\x07").starts_with("0000  1b 5d"));
        let shown = Template::parse("%p").unwrap().fill(&message(b"\x1b[2J"), true);
        assert!(!shown.contains(&0x1b));
        assert_eq!(for_terminal(&[0xff; 1000]), "<1000 bytes>");
        assert_eq!(safe("a\x1b[2Jb"), "a?[2Jb");
        assert_eq!([typed("a/b-1"), typed("it's #1")], ["a/b-1", r"'it'\''s #1'"]);
    }

    #[test]
    fn no_line_of_a_payload_looks_like_a_headline_on_a_terminal() {
        let forged = "#77 market/eurusd  from c49a0156…  6 B";
        let line =
            |text: &str| set_off(text, 20).lines().all(|line| line.starts_with(MARGIN) && !line.starts_with('#'));
        assert_eq!(set_off("body", 80), "  body");
        assert_eq!(set_off(&format!("body\r\n{forged}\nforged\n"), 80), format!("  body\n  {forged}\n  forged\n  "));
        // Also where the terminal would break the line itself.
        let long = format!("{}{forged}", " ".repeat(20));
        assert!(line(forged) && line(&long) && line(&format!("\t\t{forged}")) && line(&format!("ééééééééé{forged}")));
        assert!(set_off(&long, 20).lines().all(|line| line.chars().count() <= 20));
        let many = format!("one\n{forged}");
        let filled = Template::parse("%t %p").unwrap().fill(&message(many.as_bytes()), true);
        assert!(String::from_utf8(filled).unwrap().starts_with("ward3/vitals one\n  #77"), "a template's, too");
    }

    #[test]
    fn base64_as_in_the_rfc() {
        // RFC 4648, section 10.
        let all = ["", "f", "fo", "foo", "foob", "fooba", "foobar"].map(|t| base64(t.as_bytes()));
        assert_eq!(all, ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"]);
    }
}
