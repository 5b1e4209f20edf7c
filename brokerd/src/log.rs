//! Lines about the process on standard error, for people or, with `--json`, for programs.

use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::json;

static JSON: AtomicBool = AtomicBool::new(false);

/// From now on, one JSON object per line: `{"at": seconds, "level": …, "text": …}`.
pub fn as_json() {
    JSON.store(true, Ordering::Relaxed);
}

/// What happens.
pub fn info(text: &str) {
    line("info", text);
}

/// What somebody should look at.
pub fn warn(text: &str) {
    line("warn", text);
}

/// Why the broker ends.
pub fn error(text: &str) {
    line("error", text);
}

fn line(level: &str, text: &str) {
    let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let line = match JSON.load(Ordering::Relaxed) {
        true => json!({ "at": at, "level": level, "text": text }).to_string(),
        false => format!("{at:.3} {level}: {text}"),
    };
    // Nobody is left to be told that standard error is closed.
    let _ = writeln!(std::io::stderr(), "{line}");
}
