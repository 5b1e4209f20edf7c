//! What is one broker's alone: `broker.toml`, read with all its mistakes, and what the command line says instead.
//!
//! ```toml
//! metrics = "127.0.0.1:9600"
//! share-on = "write"
//! block-size = 500
//! threads = { engine = 2, gateway = 4 }      # or one number for all stages
//! keep = "2d"
//! ```

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::Path;
use std::str::FromStr;

use sealcast_broker::expression::Location;
use sealcast_order::BlockSize;
use sealcast_wire::limits;
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use tracing::warn;

use super::{CHECK, ConfigError, read_text, wrong};
use crate::sync::Keep;

/// `broker.toml`, and what the command line says instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Where to listen for clients, if not at the address in the cluster file.
    pub listen_gateway: Option<SocketAddr>,
    /// Where to listen for brokers, if not at the address in the cluster file.
    pub listen_order: Option<SocketAddr>,
    /// Where to show figures, if anywhere.
    pub metrics: Option<SocketAddr>,
    /// When shares are computed: `read` (default) or `write`.
    pub share_on: ShareOn,
    /// How much a block holds that this broker proposes: `block-size` batches, of `block-bytes` together.
    pub block: BlockSize,
    /// Signatures checked at once, at most.
    pub checked_together: usize,
    /// Threads of each stage.
    pub threads: Threads,
    /// How far back publications are kept: `everything` (default), a time as `2d`, `36h`, `90m`, `30s`, or `100000 blocks`.
    /// It should be the same at all brokers: what f + 1 of them no longer keep, clients do not get.
    pub keep: Keep,
}

/// What the command line says instead of `broker.toml`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Given {
    /// [`Settings::metrics`].
    pub metrics: Option<SocketAddr>,
    /// [`Settings::share_on`].
    pub share_on: Option<ShareOn>,
    /// The batches of [`Settings::block`].
    pub block_size: Option<usize>,
    /// [`Settings::checked_together`].
    pub checked_together: Option<usize>,
    /// [`Settings::threads`], of each stage.
    pub threads: Option<usize>,
    /// [`Settings::keep`].
    pub keep: Option<Keep>,
}

/// When shares are computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ShareOn {
    /// When the first reader is there.
    #[default]
    Read,
    /// When the publication is executed.
    Write,
}

/// Threads by stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threads {
    /// That run the ordering engine.
    pub engine: usize,
    /// That serve clients' channels.
    pub gateway: usize,
    /// That check signatures of batches.
    pub checks: usize,
    /// That compute shares.
    pub shares: usize,
}

impl Threads {
    /// As many for each stage.
    pub fn each(n: usize) -> Threads {
        Threads { engine: n, gateway: n, checks: n, shares: n }
    }
}

impl Default for Threads {
    fn default() -> Threads {
        Threads { engine: 2, gateway: 2, checks: 1, shares: 1 }
    }
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            listen_gateway: None,
            listen_order: None,
            metrics: None,
            share_on: ShareOn::default(),
            block: BlockSize::default(),
            checked_together: limits::CHECKED_TOGETHER_MAX,
            threads: Threads::default(),
            keep: Keep::default(),
        }
    }
}

impl Settings {
    /// Those in a broker's folder; the defaults where there is no file.
    ///
    /// # Errors
    /// [`ConfigError`]: all that is wrong with the file.
    pub fn read(folder: &Path) -> Result<Settings, ConfigError> {
        let path = folder.join(super::SETTINGS);
        if let Ok(false) = std::fs::exists(&path) {
            return Ok(Settings::default());
        }
        let text = read_text(&path, SETTINGS_BYTES_MAX, CHECK)?;
        Settings::of_text(&text).map_err(|mistakes| {
            let what = match mistakes.as_slice() {
                [one] => one.clone(),
                many => format!("{} mistakes: {}", many.len(), many.join("; ")),
            };
            wrong(&path, what, "correct it, or remove it: all settings have defaults")
        })
    }

    /// These, but for what the command line says.
    #[must_use]
    pub fn given(self, given: &Given) -> Settings {
        Settings {
            metrics: given.metrics.or(self.metrics),
            share_on: given.share_on.unwrap_or(self.share_on),
            block: BlockSize { batches: given.block_size.unwrap_or(self.block.batches), ..self.block },
            checked_together: given.checked_together.unwrap_or(self.checked_together),
            threads: given.threads.map_or(self.threads, Threads::each),
            keep: given.keep.unwrap_or(self.keep),
            ..self
        }
    }

    /// Reads a text, or finds its mistakes with their places, in the order in which they stand there.
    fn of_text(text: &str) -> Result<Settings, Vec<String>> {
        let mut settings = Settings::default();
        let mut reading = Reading { mistakes: Vec::new() };
        let (table, errors) = DeTable::parse_recoverable(text);
        if errors.is_empty() {
            reading.settings(table.get_ref(), &mut settings);
        }
        for error in errors {
            let what = error.message().split_whitespace().collect::<Vec<_>>().join(" ");
            reading.mistake(error.span().map_or(0, |span| span.start), what);
        }
        let mut mistakes = reading.mistakes;
        if mistakes.is_empty() {
            return Ok(settings);
        }
        mistakes.sort();
        // An unfinished file may end many times.
        mistakes.dedup();
        Err(mistakes.into_iter().map(|(at, what)| format!("{}: {what}", location(text, at))).collect())
    }
}

type Value<'a> = Spanned<DeValue<'a>>;

/// A file on its way to settings.
struct Reading {
    /// Where each begins, and what it is.
    mistakes: Vec<(usize, String)>,
}

impl Reading {
    fn settings(&mut self, table: &DeTable<'_>, to: &mut Settings) {
        for (key, value) in table {
            let name = key.get_ref().as_ref();
            match name {
                "listen-gateway" => to.listen_gateway = self.text(name, value, ADDRESS),
                "listen-order" => to.listen_order = self.text(name, value, ADDRESS),
                "metrics" => to.metrics = self.text(name, value, ADDRESS),
                "share-on" => set(&mut to.share_on, self.text(name, value, "\"read\" or \"write\"")),
                "block-size" => set(&mut to.block.batches, self.number(name, value, BLOCK_SIZE)),
                "block-bytes" => set(&mut to.block.bytes, self.number(name, value, BLOCK_BYTES)),
                "checked-together" | "batch-size" => {
                    if name == "batch-size" {
                        warn!("broker.toml: batch-size is called checked-together now");
                    }
                    set(&mut to.checked_together, self.number(name, value, CHECKED_TOGETHER));
                }
                "threads" => self.threads(value, &mut to.threads),
                "keep" => self.keep(value, &mut to.keep),
                _ => self.mistake(key.span().start, format!("there is no setting '{name}'")),
            }
        }
    }

    /// One number for all stages, or a table with one for each of some.
    fn threads(&mut self, value: &Value<'_>, to: &mut Threads) {
        let Some(stages) = value.get_ref().as_table() else {
            set(to, self.number("threads", value, THREADS).map(Threads::each));
            return;
        };
        for (key, value) in stages {
            let name = key.get_ref().as_ref();
            let stage = match name {
                "engine" => &mut to.engine,
                "gateway" => &mut to.gateway,
                "checks" => &mut to.checks,
                "shares" => &mut to.shares,
                _ => {
                    self.mistake(key.span().start, format!("there is no stage '{name}'"));
                    continue;
                }
            };
            set(stage, self.number(&format!("threads.{name}"), value, THREADS));
        }
    }

    fn number(&mut self, name: &str, value: &Value<'_>, range: RangeInclusive<usize>) -> Option<usize> {
        let read = |n: &toml::de::DeInteger<'_>| usize::from_str_radix(n.as_str(), n.radix()).ok();
        let number = value.get_ref().as_integer().and_then(read).filter(|n| range.contains(n));
        if number.is_none() {
            let what = format!("{name} is a whole number from {} to {}", range.start(), range.end());
            self.mistake(value.span().start, what);
        }
        number
    }

    fn text<T: FromStr>(&mut self, name: &str, value: &Value<'_>, expected: &str) -> Option<T> {
        let text = value.get_ref().as_str();
        let read = text.and_then(|text| text.parse().ok());
        if read.is_none() {
            let found = text.map_or(String::new(), |text| format!(", not '{text}'"));
            self.mistake(value.span().start, format!("{name} is {expected}{found}"));
        }
        read
    }

    fn keep(&mut self, value: &Value<'_>, to: &mut Keep) {
        match value.get_ref().as_str().map(str::parse::<Keep>) {
            Some(Ok(keep)) => *to = keep,
            Some(Err(e)) => self.mistake(value.span().start, format!("keep: {e}")),
            None => self.mistake(value.span().start, "keep is a text in quotes, as \"2d\"".into()),
        }
    }

    fn mistake(&mut self, at: usize, what: String) {
        // A terminal obeys control characters.
        let what = what.chars().map(|c| if c.is_control() { c.escape_debug().collect() } else { String::from(c) });
        self.mistakes.push((at, what.collect()));
    }
}

/// Changes a setting, unless its value was a mistake.
fn set<T>(setting: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *setting = value;
    }
}

fn location(text: &str, at: usize) -> Location {
    let before = text.get(..at.min(text.len())).unwrap_or("");
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
    Location { line, column }
}

impl FromStr for ShareOn {
    type Err = ();

    fn from_str(text: &str) -> Result<ShareOn, ()> {
        match text {
            "read" => Ok(ShareOn::Read),
            "write" => Ok(ShareOn::Write),
            _ => Err(()),
        }
    }
}

/// Batches of one block.
pub const BLOCK_SIZE: RangeInclusive<usize> = 1..=limits::BLOCK_BATCHES_MAX;
/// Signatures checked at once.
pub const CHECKED_TOGETHER: RangeInclusive<usize> = 1..=limits::CHECKED_TOGETHER_MAX;
/// Threads of one stage.
pub const THREADS: RangeInclusive<usize> = 1..=256;
/// Bytes of one block.
const BLOCK_BYTES: RangeInclusive<usize> = 1..=limits::BLOCK_BYTES_MAX;
const ADDRESS: &str = "an address like \"127.0.0.1:9600\"";
/// Bytes of `broker.toml`.
const SETTINGS_BYTES_MAX: usize = 64 << 10;
