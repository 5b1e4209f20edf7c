//! Lines about the process on standard error, for people or, with `--json`, for programs.
//!
//! Each line begins with its time: a date of RFC 3339 in UTC, with milliseconds, as `2026-11-23T19:02:21.896Z`.

use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::json;
use time::OffsetDateTime;
use time::macros::format_description;

use crate::failure::Failure;

static JSON: AtomicBool = AtomicBool::new(false);
static QUIET: AtomicBool = AtomicBool::new(false);

/// From now on, one JSON object per line: `{"at": time, "level": …, "text": …}`.
pub fn as_json() {
    JSON.store(true, Ordering::Relaxed);
}

/// From now on, nothing but what somebody should look at.
pub fn quietly() {
    QUIET.store(true, Ordering::Relaxed);
}

/// What happens.
pub fn info(text: &str) {
    if !is(&QUIET) {
        line("info", text);
    }
}

/// What somebody should look at.
pub fn warn(text: &str) {
    line("warn", text);
}

/// What has failed, while the broker goes on.
pub fn error(text: &str) {
    line("error", text);
}

/// Why the broker ends, and what to do: one line as all others, `error[E0305]: …; hint: …`, or a JSON object that has `code`
/// and `hint` too.
pub fn failure(failure: &Failure) {
    let (text, code, hint) = (failure.to_string(), failure.code().to_string(), failure.hint());
    if is(&JSON) {
        return write(&json!({ "at": now(), "level": "error", "code": code, "text": text, "hint": hint }).to_string());
    }
    write(&format!("{} error[{code}]: {text}; hint: {hint}", now()));
}

/// From now on, a thread that panics says so in one line; with `RUST_BACKTRACE=full`, in as many as that wants.
///
/// The ordering engine panics where its files fail. The broker then ends, and says why itself: the first panic of the
/// engine's threads is kept for it ([`engine_panic`]), and they print nothing.
pub fn panics_in_one_line() {
    if std::env::var_os("RUST_BACKTRACE").is_some_and(|it| it == "full") {
        return;
    }
    std::panic::set_hook(Box::new(|panic| {
        let what = panic.payload_as_str().unwrap_or("it does not say why").replace('\n', " ");
        let at = panic.location().map_or_else(String::new, |it| format!(" ({it})"));
        let thread = std::thread::current();
        let name = thread.name().unwrap_or("without a name");
        if ENGINE_THREADS.contains(&name) {
            first_panic().get_or_insert(what + &at);
            return;
        }
        warn(&format!("thread {name} has ended: {what}{at}"));
    }));
}

/// The first panic of the engine's threads since this was asked last, in one line.
pub fn engine_panic() -> Option<String> {
    first_panic().take()
}

fn first_panic() -> MutexGuard<'static, Option<String>> {
    FIRST_PANIC.lock().unwrap_or_else(PoisonError::into_inner)
}

static FIRST_PANIC: Mutex<Option<String>> = Mutex::new(None);

/// The engine's own thread, and those of its runtime.
const ENGINE_THREADS: [&str; 2] = ["order", "tokio-rt-worker"];

fn line(level: &str, text: &str) {
    write(&match is(&JSON) {
        true => json!({ "at": now(), "level": level, "text": text }).to_string(),
        false => format!("{} {level}: {text}", now()),
    });
}

fn write(line: &str) {
    // Nobody is left to be told that standard error is closed.
    let _ = writeln!(std::io::stderr(), "{line}");
}

fn is(switch: &AtomicBool) -> bool {
    switch.load(Ordering::Relaxed)
}

fn now() -> String {
    shown(OffsetDateTime::now_utc())
}

/// A time in UTC, as RFC 3339 writes it, with milliseconds.
fn shown(at: OffsetDateTime) -> String {
    let format = format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z");
    // A clock that shows a year beyond 9999 has no date of this form.
    at.format(format).unwrap_or_else(|_| at.unix_timestamp().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_begins_with_a_date_of_rfc_3339() {
        let at = |nanos| shown(OffsetDateTime::from_unix_timestamp_nanos(nanos).expect("it is a date"));
        assert_eq!(at(1_795_453_341_896_999_999), "2026-11-23T17:02:21.896Z");
        assert_eq!(at(0), "1970-01-01T00:00:00.000Z");
    }
}
