//! The program `sealcast-lab`, which `sealcast lab …` starts: simulator, experiments, figures.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use mimalloc::MiMalloc;
use sealcast_lab::{brokers, experiments, figures, history, kills, netns, peers, scenarios};

/// That of the program `sealcast`: members are measured as they run there.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Simulations, experiments and figures.
#[derive(Parser)]
#[command(name = "sealcast-lab", version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Play scenarios on the deterministic simulator, or over real sockets.
    Sim(scenarios::command::Arguments),
    /// List what there is: experiments and figures, and scenarios with their stories.
    List(experiments::List),
    /// Run one experiment: CSV and SVG into out/, one verdict per claim.
    Run(experiments::Run),
    /// Measure the figures of an area, row by row.
    Figures(figures::Figures),
    /// Kill brokers, or members of an order, again and again under load, and see that nothing is lost.
    Kills(kills::Kills),
    /// Run brokers that are old, or for long, and see that nothing grows.
    Soak(brokers::soak::Soak),
    /// How a fresh broker comes by the history of the others.
    Sync(history::Sync),
    /// One process of a measurement, driven by lines on stdin.
    #[command(hide = true)]
    Role(peers::roles::Role),
}

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Sim(arguments) => scenarios::command::run(&arguments),
        Command::List(list) => list.run(),
        Command::Run(run) => netns::enclosed(|| run.run()),
        Command::Figures(figures) => netns::enclosed(|| figures.run()),
        Command::Kills(kills) => kills.run(),
        Command::Soak(soak) => soak.run(),
        Command::Sync(sync) => sync.run(),
        Command::Role(role) => role.run(),
    };
    done.unwrap_or_else(|why| {
        eprintln!("sealcast: error: {why}");
        ExitCode::from(1)
    })
}
