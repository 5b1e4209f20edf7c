//! The program `sealcast-lab`: what `sealcast lab …` starts.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Simulations, experiments and figures.
#[derive(Parser)]
#[command(name = "sealcast-lab", version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Play scenarios on the deterministic simulator.
    Sim(sealcast_lab::scenarios::command::Arguments),
    /// List what there is: scenarios by name, with their stories.
    List,
}

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Sim(arguments) => sealcast_lab::scenarios::command::run(&arguments),
        Command::List => {
            sealcast_lab::scenarios::command::list();
            ExitCode::SUCCESS
        }
    }
}
