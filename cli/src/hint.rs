//! Errors as people read them: who, what, where, and the next command to type.

use std::fmt::Display;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use sealcast::code::Code;
use sealcast::config::{FileError, Home, NameError, PrincipalError};
use serde_json::{Value, json};

use crate::commands::Cli;
use crate::output::paint;
use crate::remedy;

/// Why the program ends without having done what was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    cause: Cause,
    what: String,
    hint: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    Code(Code),
    /// Everything was said; only the exit code is left.
    Reported(u8),
}

impl Failure {
    /// A failure with its code, and a sentence without a final stop.
    pub(crate) fn new(code: Code, what: impl Display) -> Failure {
        Failure { cause: Cause::Code(code), what: what.to_string(), hint: None }
    }

    /// The same, of this place in the input.
    pub(crate) fn at(mut self, place: impl Display) -> Failure {
        self.what = format!("{place}: {}", self.what);
        self
    }

    /// What to type or do next.
    pub(crate) fn hint(mut self, hint: impl Display) -> Failure {
        self.hint = Some(hint.to_string());
        self
    }

    /// Its code, unless all was said.
    pub(crate) fn code(&self) -> Option<Code> {
        match self.cause {
            Cause::Code(code) => Some(code),
            Cause::Reported(_) => None,
        }
    }

    /// Whether it is of this kind.
    pub(crate) fn is(&self, code: Code) -> bool {
        self.cause == Cause::Code(code)
    }

    /// What happened.
    pub(crate) fn what(&self) -> &str {
        &self.what
    }

    /// What to do next.
    pub(crate) fn next(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// The system's answer about a thing.
    pub(crate) fn system(what: impl Display, error: &io::Error) -> Failure {
        Failure::new(Code::System, format!("{what}: {}", plain(error)))
    }

    /// Whoever read our output has gone (`| head`): nobody is left to tell.
    pub(crate) fn reader_gone() -> Failure {
        Failure::said(0)
    }

    /// Ends with an exit code; all was said.
    pub(crate) fn said(exit: u8) -> Failure {
        Failure { cause: Cause::Reported(exit), what: String::new(), hint: None }
    }

    /// Whether nothing is to be printed.
    pub(crate) fn is_silent(&self) -> bool {
        matches!(self.cause, Cause::Reported(_))
    }

    /// The program's exit code.
    pub(crate) fn exit(&self) -> u8 {
        match self.cause {
            Cause::Code(code) => code.exit(),
            Cause::Reported(exit) => exit,
        }
    }

    /// `{"code", "message", "hint", "exit"}`.
    pub(crate) fn to_json(&self) -> Value {
        let code = self.code().map(|it| it.to_string());
        json!({ "code": code, "message": self.what, "hint": self.hint, "exit": self.exit() })
    }

    /// The same as a line of a log.
    pub(crate) fn to_log(&self) -> Value {
        let mut object = self.to_json();
        object["level"] = json!("error");
        object
    }

    /// One or two lines.
    pub(crate) fn render(&self, color: bool) -> String {
        let Cause::Code(code) = self.cause else { return String::new() };
        let mut text = format!("sealcast: {}: {}\n", paint(color, "1;31", &format!("error[{code}]")), self.what);
        if let Some(hint) = &self.hint {
            text += &format!("sealcast: {}: {hint}\n", paint(color, "1;36", "hint"));
        }
        text
    }
}

/// The system's words without Rust's '(os error 13)'.
pub(crate) fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_lowercase()
}

impl From<FileError> for Failure {
    fn from(error: FileError) -> Failure {
        let shown = |path: &Path| Home::shown(path);
        match &error {
            FileError::Missing(path) => Failure::new(Code::Missing, format!("{} does not exist", shown(path))),
            FileError::Exists(path) => Failure::new(Code::Exists, format!("{} exists already", shown(path)))
                .hint("another name, or --force to overwrite it (what it holds is then lost)"),
            FileError::Exposed { path, mode } => {
                Failure::new(Code::Exposed, format!("{} can be read by others (mode {mode:04o})", shown(path)))
                    .hint(format!("chmod {} {}", if path.is_dir() { "700" } else { "600" }, shown(path)))
            }
            FileError::Syntax { path, line, column, what } => {
                Failure::new(Code::Syntax, format!("{}:{line}:{column}: {}", shown(path), one_line(what)))
            }
            FileError::Content { path, what } => Failure::new(Code::Content, format!("{}: {what}", shown(path))),
            FileError::Io { path, error } => Failure::system(shown(path), error),
        }
    }
}

impl From<PrincipalError> for Failure {
    fn from(error: PrincipalError) -> Failure {
        match error {
            PrincipalError::File(error) => error.into(),
            PrincipalError::Sealed(path) => {
                Failure::new(Code::Decrypt, format!("{} is sealed by a pass phrase", Home::shown(&path)))
                    .hint("--passphrase-file FILE")
            }
            PrincipalError::WrongPassphrase(path) => {
                let what = format!("{}: the pass phrase is wrong, or the file was changed", Home::shown(&path));
                Failure::new(Code::Decrypt, what)
            }
        }
    }
}

impl From<sealcast::error::Error> for Failure {
    fn from(error: sealcast::error::Error) -> Failure {
        let failure = Failure::new(error.code(), error.message());
        match next(&error) {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}

/// What to do about an error of the library.
pub(crate) fn next(error: &sealcast::Error) -> Option<String> {
    error.remedy().map(remedy::typed).or_else(|| error.hint().map(str::to_owned))
}

impl From<NameError> for Failure {
    fn from(error: NameError) -> Failure {
        Failure::new(Code::BadValue, error)
    }
}

/// A mistake on the command line, in our form; help and version come this way too.
pub(crate) fn usage(error: clap::Error) -> ExitCode {
    // `| head` may close the pipe; there is nobody to tell.
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let _ = write!(io::stdout().lock(), "{}", error.render());
            return ExitCode::SUCCESS;
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = write!(io::stderr().lock(), "{}", error.render());
            return ExitCode::from(Code::Usage.exit());
        }
        _ => {}
    }
    let failure = of_clap(&error);
    let typed: Vec<String> = std::env::args().take_while(|a| a != "--").collect();
    let as_log =
        typed.windows(2).any(|w| w == ["--log-format", "json"]) || typed.iter().any(|a| a == "--log-format=json");
    let _ = if typed.iter().any(|a| a == "--json") {
        writeln!(io::stderr().lock(), "{}", json!({ "error": failure.to_json() }))
    } else if as_log {
        writeln!(io::stderr().lock(), "{}", failure.to_log())
    } else {
        write!(io::stderr().lock(), "{}", failure.render(false))
    };
    ExitCode::from(failure.exit())
}

fn of_clap(error: &clap::Error) -> Failure {
    let get = |kind| match error.get(kind) {
        Some(ContextValue::String(s)) => Some(s.clone()),
        Some(ContextValue::Strings(s)) => s.first().cloned(),
        Some(ContextValue::StyledStr(s)) => Some(s.to_string()),
        _ => None,
    };
    let all = |kind| match error.get(kind) {
        Some(ContextValue::Strings(s)) => s.join(", "),
        Some(ContextValue::String(s)) => s.clone(),
        _ => String::new(),
    };
    let name = |text: String| text.replace(['<', '>', '[', ']'], "").replace("...", "");
    let arg = name(get(ContextKind::InvalidArg).unwrap_or_default());
    let value = get(ContextKind::InvalidValue).unwrap_or_default();
    let command = match get(ContextKind::Usage) {
        Some(usage) => command_of(&usage),
        None => typed_command(),
    };
    let (code, what) = match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let word = get(ContextKind::InvalidSubcommand).unwrap_or_default();
            return unknown_command(&command, &word);
        }
        ErrorKind::MissingSubcommand => (Code::Usage, format!("'{command}' needs one more word")),
        ErrorKind::UnknownArgument if !arg.starts_with('-') => (Code::Usage, format!("'{arg}' is one word too many")),
        ErrorKind::UnknownArgument => (Code::Usage, format!("there is no option {arg}")),
        ErrorKind::InvalidValue if value.is_empty() => (Code::Usage, format!("{arg} needs a value")),
        ErrorKind::InvalidValue => (Code::BadValue, format!("'{value}' is no value of {arg}")),
        ErrorKind::ValueValidation => {
            let why = std::error::Error::source(error).map(|e| format!(": {e}")).unwrap_or_default();
            (Code::BadValue, format!("'{value}' is no value of {arg}{why}"))
        }
        ErrorKind::MissingRequiredArgument => {
            (Code::Usage, format!("{} is missing", name(all(ContextKind::InvalidArg))))
        }
        ErrorKind::ArgumentConflict => {
            let other = name(all(ContextKind::PriorArg));
            let with = if other.is_empty() { "others given".to_owned() } else { other };
            (
                Code::Usage,
                if arg == with { format!("{arg} is given twice") } else { format!("{arg} does not go with {with}") },
            )
        }
        ErrorKind::TooManyValues => (Code::Usage, format!("'{value}' is one value too many for {arg}")),
        _ => (Code::Usage, first_line(&error.to_string())),
    };
    let failure = Failure::new(code, what);
    let suggested = [ContextKind::SuggestedSubcommand, ContextKind::SuggestedArg, ContextKind::SuggestedValue]
        .into_iter()
        .find_map(get);
    let valid = match all(ContextKind::ValidValue) {
        none if none.is_empty() => all(ContextKind::ValidSubcommand),
        values => values,
    };
    match suggested {
        Some(better) => failure.hint(format!("did you mean '{better}'?")),
        None if !valid.is_empty() => failure.hint(format!("one of: {valid}")),
        None => failure.hint(format!("{command} --help")),
    }
}

fn unknown_command(above: &str, word: &str) -> Failure {
    let root = Cli::command();
    let inside = above.split(' ').skip(1).try_fold(&root, |c, name| c.find_subcommand(name)).unwrap_or(&root);
    let known: Vec<&str> = inside.get_subcommands().flat_map(|c| c.get_name_and_visible_aliases()).collect();
    let failure = Failure::new(Code::UnknownCommand, format!("there is no command '{above} {word}'"));
    match nearest(word, known.iter().copied()) {
        Some(better) => failure.hint(format!("did you mean '{above} {better}'?")),
        None => failure.hint(format!("{above} --help lists: {}", known.join(", "))),
    }
}

/// `Usage: sealcast ca issue [OPTIONS] …` without what is not the command's name.
fn command_of(usage: &str) -> String {
    let words = usage.trim_start_matches("Usage: ").split_whitespace();
    let names: Vec<&str> =
        words.take_while(|w| !w.starts_with("--") && w.chars().all(|c| c.is_ascii_lowercase() || c == '-')).collect();
    if names.is_empty() { "sealcast".to_owned() } else { names.join(" ") }
}

/// The commands that were typed, where clap does not say.
fn typed_command() -> String {
    let root = Cli::command();
    let mut command = &root;
    let mut names = vec!["sealcast".to_owned()];
    for word in std::env::args().skip(1) {
        let Some(inside) = command.find_subcommand(&word) else { continue };
        names.push(word);
        command = inside;
        if !command.has_subcommands() {
            break;
        }
    }
    names.join(" ")
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The known name that was probably meant, if any is near enough.
pub(crate) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // A beginning of three letters is as good as a mistyped whole.
    let apart = |k: &str| if name.len() > 2 && k.starts_with(name) { 1 } else { strsim::levenshtein(name, k) };
    let near = known.map(|k| (apart(k), k)).min()?;
    (near.0 <= 1 + name.chars().count() / 4).then_some(near.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_name_finds_its_neighbour_and_a_wild_one_none() {
        assert_eq!(nearest("wrad3", ["ward3", "lab"].into_iter()), Some("ward3"));
        assert_eq!(nearest("zebra", ["ward3", "lab"].into_iter()), None);
        assert_eq!(nearest("x", [].into_iter()), None);
    }

    #[test]
    fn an_error_says_its_code_and_what_to_type() {
        let failure = Failure::new(Code::DeniedPublish, "alice may not publish on ward3/orders").hint("try this");
        assert_eq!(
            failure.render(false),
            "sealcast: error[E0412]: alice may not publish on ward3/orders\nsealcast: hint: try this\n"
        );
        assert_eq!(failure.exit(), 5);
    }

    #[test]
    fn the_command_of_a_usage_line() {
        assert_eq!(command_of("Usage: sealcast ca issue [OPTIONS] <FILE>"), "sealcast ca issue");
        assert_eq!(command_of(""), "sealcast");
    }
}
