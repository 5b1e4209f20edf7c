//! One file per command.

mod bench;
pub(crate) mod brokers;
pub(crate) mod ca;
mod completion;
pub(crate) mod ctx;
mod demo;
pub(crate) mod doctor;
mod explain;
mod grant;
mod group;
pub(crate) mod id;
mod init;
mod invite;
mod join;
pub(crate) mod kdc;
mod lab;
mod man;
mod policy;
mod publish;
mod read;
mod receipt;
mod relay;
mod subscribe;

use std::io::{self, Read};
use std::path::Path;

use clap::{Args, Parser, Subcommand, ValueEnum};
use sealcast::config::{Home, read_public};

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
    Pub(publish::Pub),
    Sub(subscribe::Sub),
    Read(read::Read),
    Receipt(receipt::Receipt),
    Relay(relay::Relay),
    Brokers(brokers::Brokers),
    Bench(bench::Bench),
    Demo(demo::Demo),
    Group(group::Group),
    Init(init::Init),
    Ca(ca::Ca),
    Kdc(kdc::Kdc),
    Id(id::Id),
    Invite(invite::Invite),
    Join(join::Join),
    Policy(policy::Policy),
    Ctx(ctx::Ctx),
    Doctor(doctor::Doctor),
    Explain(explain::Explain),
    Completion(completion::Completion),
    Man(man::Man),
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
        Command::Pub(c) => c.run(&env),
        Command::Sub(c) => c.run(&env),
        Command::Read(c) => c.run(&env),
        Command::Receipt(c) => c.run(&env),
        Command::Relay(c) => c.run(&env),
        Command::Brokers(c) => c.run(&env),
        Command::Bench(c) => c.run(&env),
        Command::Demo(c) => c.run(&env),
        Command::Group(c) => c.run(&env),
        Command::Init(c) => c.run(&env),
        Command::Ca(c) => c.run(&env),
        Command::Kdc(c) => c.run(&env),
        Command::Id(c) => c.run(&env),
        Command::Invite(c) => c.run(&env),
        Command::Join(c) => c.run(&env),
        Command::Policy(c) => c.run(&env),
        Command::Ctx(c) => c.run(&env),
        Command::Doctor(c) => c.run(&env),
        Command::Explain(c) => c.run(&env),
        Command::Completion(c) => c.run(&env),
        Command::Man(c) => c.run(&env),
        Command::Lab(c) => c.run(&env),
    }
}

/// The text of a file; `-` is stdin.
pub(crate) fn read_text(path: &Path) -> Result<String, Failure> {
    if path != Path::new("-") {
        return Ok(read_public(path)?);
    }
    let mut text = String::new();
    io::stdin().lock().take(STDIN_BYTES_MAX).read_to_string(&mut text).map_err(|e| Failure::system("stdin", &e))?;
    Ok(text)
}

/// Bytes of a configuration text from stdin.
const STDIN_BYTES_MAX: u64 = 16 << 20;
