//! `sealcast lab …`: starts the program `sealcast-lab` beside this one, as git does with its subcommands.

use std::ffi::OsString;

use clap::Args;

use super::Env;
use crate::beside;
use crate::hint::Failure;

/// Experiments, simulator and figures (starts sealcast-lab)
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Lab {
    /// Passed on as they are; 'sealcast lab --help' is sealcast-lab's own help
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
    arguments: Vec<OsString>,
}

impl Lab {
    pub(crate) fn run(self, env: &Env<'_>) -> Result<(), Failure> {
        // Options before the word `lab` were meant for it too.
        let json = env.global.json.then(|| "--json".into());
        Err(beside::become_program(beside::LAB, self.arguments.into_iter().chain(json)))
    }
}
