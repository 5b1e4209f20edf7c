//! Lines about the process on standard error, for people or, with `--json`, for programs.

use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::json;

use crate::serve::Failure;

static JSON: AtomicBool = AtomicBool::new(false);
static QUIET: AtomicBool = AtomicBool::new(false);

/// From now on, one JSON object per line: `{"at": seconds, "level": …, "text": …}`.
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
    write(&format!("{:.3} error[{code}]: {text}; hint: {hint}", now()));
}

/// From now on, a thread that panics says so in one line; with `RUST_BACKTRACE` set, in as many as that wants.
///
/// The ordering engine panics where its files fail. The broker then ends, and the line that says why is to be found.
pub fn panics_in_one_line() {
    if std::env::var_os("RUST_BACKTRACE").is_some_and(|it| it != "0") {
        return;
    }
    std::panic::set_hook(Box::new(|panic| {
        let what = panic.payload_as_str().unwrap_or("it does not say why").replace('\n', " ");
        let at = panic.location().map_or_else(String::new, |it| format!(" ({it})"));
        let thread = std::thread::current();
        warn(&format!("thread {} has ended: {what}{at}", thread.name().unwrap_or("without a name")));
    }));
}

fn line(level: &str, text: &str) {
    write(&match is(&JSON) {
        true => json!({ "at": now(), "level": level, "text": text }).to_string(),
        false => format!("{:.3} {level}: {text}", now()),
    });
}

fn write(line: &str) {
    // Nobody is left to be told that standard error is closed.
    let _ = writeln!(std::io::stderr(), "{line}");
}

fn is(switch: &AtomicBool) -> bool {
    switch.load(Ordering::Relaxed)
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
