//! The program `sealcast`: one file per command below `commands`, help in [`help`], errors in [`hint`].

#![forbid(unsafe_code)]

mod advice;
mod authority;
mod beside;
mod cluster;
mod commands;
mod format;
mod help;
mod hint;
mod interrupt;
mod output;
mod remedy;
mod scene;
mod session;
mod target;
mod text;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};
use mimalloc::MiMalloc;

use commands::Cli;
use output::Output;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    interrupt::install();
    let matches = help::command(Cli::command()).try_get_matches();
    let cli = match matches.and_then(|m| Cli::from_arg_matches(&m)) {
        Ok(cli) => cli,
        Err(error) => return hint::usage(error),
    };
    let output = Output::new(&cli.global);
    match commands::run(cli, &output) {
        Ok(()) => interrupt::exit_code(),
        Err(failure) => output.fail(&failure),
    }
}

/// The operating system's randomness, stretched.
fn rng() -> rand_chacha::ChaCha20Rng {
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).expect("the operating system gives random bytes");
    rand_core::SeedableRng::from_seed(seed)
}
