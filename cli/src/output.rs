//! What goes where: stdout is data, stderr is talk.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use serde_json::json;

use crate::commands::{ColorWhen, Global, LogFormat};
use crate::hint::Failure;

/// How this run writes.
#[derive(Clone, Debug)]
pub(crate) struct Output {
    json: bool,
    quiet: bool,
    verbose: bool,
    log_json: bool,
    color: bool,
    color_talk: bool,
    progress: bool,
}

impl Output {
    /// As the options, the environment and the terminals say.
    pub(crate) fn new(options: &Global) -> Output {
        let plain = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
        let color = |terminal: bool| match options.color {
            ColorWhen::Always => true,
            ColorWhen::Never => false,
            ColorWhen::Auto => terminal && !plain,
        };
        let talk_terminal = io::stderr().is_terminal();
        Output {
            json: options.json,
            quiet: options.quiet,
            verbose: options.verbose,
            log_json: options.log_format == LogFormat::Json,
            color: color(io::stdout().is_terminal()),
            color_talk: color(talk_terminal),
            progress: talk_terminal && !options.no_progress && !options.quiet && !options.json,
        }
    }

    /// Whether data is to be JSON.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// Whether stdout is a terminal that a person reads.
    pub(crate) fn to_terminal(&self) -> bool {
        io::stdout().is_terminal()
    }

    /// A line of data for people; with `--json` nothing.
    pub(crate) fn line(&self, text: impl Display) -> Result<(), Failure> {
        if self.json { Ok(()) } else { self.bytes(format!("{text}\n").as_bytes()) }
    }

    /// An object, on one line, with `--json`; else nothing.
    pub(crate) fn object(&self, value: &impl Serialize) -> Result<(), Failure> {
        if !self.json {
            return Ok(());
        }
        let mut line = serde_json::to_vec(value).expect("our objects have text keys");
        line.push(b'\n');
        self.bytes(&line)
    }

    /// Data as it is, whatever the options.
    pub(crate) fn bytes(&self, bytes: &[u8]) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        out.write_all(bytes).and_then(|()| out.flush()).map_err(|e| match e.kind() {
            io::ErrorKind::BrokenPipe => Failure::reader_gone(),
            _ => Failure::system("stdout", &e),
        })
    }

    /// Talk: what a person wants to know beside the data.
    pub(crate) fn say(&self, text: impl Display) {
        if !self.quiet {
            self.talk("info", "", &text.to_string());
        }
    }

    /// Talk for those who asked for more of it.
    pub(crate) fn detail(&self, text: impl Display) {
        if self.verbose && !self.quiet {
            self.talk("debug", "", &text.to_string());
        }
    }

    /// Something that is not an error, but should be known; `-q` does not silence it.
    pub(crate) fn warn(&self, text: impl Display) {
        self.talk("warning", "33", &text.to_string());
    }

    /// The error that ends the program, and its exit code.
    pub(crate) fn fail(&self, failure: &Failure) -> ExitCode {
        if failure.is_silent() {
            return ExitCode::from(failure.exit());
        }
        if self.json {
            let mut err = io::stderr().lock();
            let _ = writeln!(err, "{}", json!({ "error": failure.to_json() }));
        } else if self.log_json {
            let _ = writeln!(io::stderr().lock(), "{}", failure.to_log());
        } else {
            let _ = write!(io::stderr().lock(), "{}", failure.render(self.color_talk));
        }
        ExitCode::from(failure.exit())
    }

    fn talk(&self, level: &str, color: &str, text: &str) {
        let mut err = io::stderr().lock();
        // Talk that nobody can hear must not stop the work.
        let _ = if self.log_json {
            writeln!(err, "{}", json!({ "level": level, "message": text }))
        } else if level == "warning" {
            writeln!(err, "sealcast: {}: {text}", paint(self.color_talk, color, level))
        } else {
            writeln!(err, "{text}")
        };
    }

    /// Text in bold on a terminal, else as it is.
    pub(crate) fn bold(&self, text: impl Display) -> String {
        paint(self.color, "1", &text.to_string())
    }

    /// Text in green on a terminal, else as it is.
    pub(crate) fn good(&self, text: impl Display) -> String {
        paint(self.color, "32", &text.to_string())
    }

    /// Text in red on a terminal, else as it is.
    pub(crate) fn bad(&self, text: impl Display) -> String {
        paint(self.color, "31", &text.to_string())
    }

    /// A bar for work of `steps` steps; invisible where nobody watches.
    pub(crate) fn progress(&self, steps: u64, what: &str) -> ProgressBar {
        let bar = ProgressBar::with_draw_target(Some(steps), self.draw_target());
        let style = ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} {eta}");
        bar.set_style(style.expect("the template names known fields"));
        bar.set_message(what.to_owned());
        bar.enable_steady_tick(Duration::from_millis(200));
        bar
    }

    fn draw_target(&self) -> ProgressDrawTarget {
        if self.progress { ProgressDrawTarget::stderr_with_hz(10) } else { ProgressDrawTarget::hidden() }
    }
}

/// Wraps text in an ANSI colour.
pub(crate) fn paint(color: bool, code: &str, text: &str) -> String {
    if color { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
}
