//! `broker-testing`: what demonstrations, tests and measurements need beside `sealcast-broker`, over the same library. Nothing
//! installs it.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use sealcast_brokerd::log;

mod age;
mod bench_engine;
mod lie;

/// Brokers that lie, the ordering engine alone, and histories that nobody ordered: for demonstrations, tests and figures.
#[derive(Parser)]
#[command(name = "broker-testing", version, max_term_width = 120)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs the broker of a folder, lying to its clients, until SIGINT or SIGTERM.
    Lie(lie::Args),
    /// Measures the ordering engine alone, with the brokers' batches and nothing executed.
    BenchEngine(bench_engine::Args),
    /// Writes a history of empty blocks, as idle years leave it.
    Age(age::Args),
}

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Lie(args) => lie::run(&args),
        Command::BenchEngine(args) => {
            bench_engine::run(&args);
            Ok(())
        }
        Command::Age(args) => age::run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            log::failure(&failure);
            ExitCode::from(failure.code().exit())
        }
    }
}
