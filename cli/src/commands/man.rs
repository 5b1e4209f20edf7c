//! `sealcast man FOLDER`: a man page for each command, from the same table as the help.

use std::fs;
use std::path::PathBuf;

use clap::{Args, CommandFactory};
use serde_json::json;

use super::{Cli, Env};
use crate::hint::Failure;

/// Write a man page for each command into a folder
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sealcast man ~/.local/share/man/man1      then: man sealcast, man sealcast-pub")]
pub(crate) struct Man {
    /// The folder; it is made if it is missing
    folder: PathBuf,
}

impl Man {
    pub(crate) fn run(self, env: &Env<'_>) -> Result<(), Failure> {
        let written = fs::create_dir_all(&self.folder)
            .and_then(|()| clap_mangen::generate_to(Cli::command().disable_help_subcommand(true), &self.folder));
        written.map_err(|e| Failure::system(format!("writing man pages into {}", self.folder.display()), &e))?;
        if env.output.is_json() {
            return env.output.object(&json!({ "folder": self.folder }));
        }
        env.output.say(format!("man pages are in {}", self.folder.display()));
        Ok(())
    }
}
