//! One file per command.

mod completion;
mod ctx;
mod explain;
mod lab;

use clap::{Args, Parser, Subcommand, ValueEnum};
use sealcast::config::Home;

use crate::hint::Failure;
use crate::output::Output;

/// Publish and subscribe, sealed end to end among the members of a group.
#[derive(Debug, Parser)]
#[command(name = "sealcast", version)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options that every command takes.
#[derive(Clone, Debug, Args)]
pub(crate) struct Global {
    /// Use this context instead of the selected one [env: SEALCAST_CTX]
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) ctx: Option<String>,
    /// Use this URL [env: SEALCAST_URL, else the context's, else LCM_DEFAULT_URL]
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// Act as this identity [env: SEALCAST_ID, else the context's]
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) id: Option<String>,
    /// Print JSON: one object, or one per line for streams
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Say less on stderr
    #[arg(long, short, global = true)]
    pub(crate) quiet: bool,
    /// Say more on stderr
    #[arg(long, short, global = true, conflicts_with = "quiet")]
    pub(crate) verbose: bool,
    /// Write stderr as text, or as JSON lines: text, json
    #[arg(long, global = true, value_name = "FORMAT", default_value = "text")]
    pub(crate) log_format: LogFormat,
    /// When to colour: auto, always, never; NO_COLOR is honoured
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub(crate) color: ColorWhen,
    /// Show no progress bars
    #[arg(long, global = true)]
    pub(crate) no_progress: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColorWhen {
    Auto,
    Always,
    Never,
}

/// All commands; `help::GROUPS` orders them for people.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Ctx(ctx::Ctx),
    Explain(explain::Explain),
    Completion(completion::Completion),
    Lab(lab::Lab),
}

/// What a command finds around it.
pub(crate) struct Env<'a> {
    pub(crate) output: &'a Output,
    pub(crate) home: Home,
    pub(crate) global: Global,
}

/// Runs the command that was asked for.
pub(crate) fn run(cli: Cli, output: &Output) -> Result<(), Failure> {
    let env = Env { output, home: Home::from_env(), global: cli.global };
    match cli.command {
        Command::Ctx(c) => c.run(&env),
        Command::Explain(c) => c.run(&env),
        Command::Completion(c) => c.run(&env),
        Command::Lab(c) => c.run(&env),
    }
}
