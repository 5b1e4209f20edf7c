//! Lines about the process on standard error, for people or, with `--json`, for programs.
//!
//! Each line begins with its time: a date of RFC 3339 in UTC, with milliseconds, as `2026-11-23T19:02:21.896Z`. No line holds a
//! request, an address of a client, or a group.

use std::fmt::{self, Write as _};
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;
use time::OffsetDateTime;
use time::macros::format_description;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Subscriber, error};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::failure::Failure;

static JSON: AtomicBool = AtomicBool::new(false);

/// From now on, what this crate tells through `tracing` is written: with `json` as one object per line,
/// `{"at": time, "level": …, "text": …}`. `RUST_LOG` adds what libraries tell.
pub fn start(json: bool) {
    JSON.store(json, Ordering::Relaxed);
    let others = std::env::var("RUST_LOG").ok().and_then(|it| it.parse::<Targets>().ok()).unwrap_or_default();
    let shown = others.with_target("sealcast", LevelFilter::INFO);
    // A second start in one process changes the form alone.
    let _ = tracing_subscriber::registry().with(Lines.with_filter(shown)).try_init();
}

/// Writes each event as one line.
struct Lines;

impl<S: Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut text = Text::default();
        event.record(&mut text);
        line(&event.metadata().level().as_str().to_lowercase(), &text.0);
    }
}

/// What an event says: its message, then its fields.
#[derive(Default)]
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let written = match field.name() {
            "message" => write!(self.0, "{value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
        written.expect("a string takes all");
    }
}

/// Why the program ends, and what to do: one line as all others, `error[E0305]: …; hint: …`, or a JSON object that has `code`
/// and `hint` too.
pub fn failure(failure: &Failure) {
    let Failure { code, what, hint } = failure;
    if JSON.load(Ordering::Relaxed) {
        let code = code.to_string();
        return write(&json!({ "at": now(), "level": "error", "code": code, "text": what, "hint": hint }).to_string());
    }
    write(&format!("{} error[{code}]: {what}; hint: {hint}", now()));
}

/// From now on, a thread that panics says so in one line; with `RUST_BACKTRACE=full`, in as many as that wants.
pub fn panics_in_one_line() {
    if std::env::var_os("RUST_BACKTRACE").is_some_and(|it| it == "full") {
        return;
    }
    std::panic::set_hook(Box::new(|panic| {
        let what = panic.payload_as_str().unwrap_or("it does not say why").replace('\n', " ");
        let at = panic.location().map_or_else(String::new, |it| format!(" ({it})"));
        let thread = std::thread::current();
        error!("thread {} has panicked: {what}{at}", thread.name().unwrap_or("without a name"));
    }));
}

fn line(level: &str, text: &str) {
    write(&match JSON.load(Ordering::Relaxed) {
        true => json!({ "at": now(), "level": level, "text": text }).to_string(),
        false => format!("{} {level}: {text}", now()),
    });
}

fn write(line: &str) {
    // Nobody is left to be told that standard error is closed.
    let _ = writeln!(std::io::stderr(), "{line}");
}

fn now() -> String {
    let (at, format) = (
        OffsetDateTime::now_utc(),
        format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z"),
    );
    // A clock that shows a year beyond 9999 has no date of this form.
    at.format(format).unwrap_or_else(|_| at.unix_timestamp().to_string())
}
