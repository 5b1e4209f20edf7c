//! `sealcast completion SHELL`: a script for the shell, from the same table as the help.

use clap::{Args, CommandFactory, ValueEnum};
use clap_complete::{Shell, generate};
use serde_json::json;

use super::{Cli, Env};
use crate::hint::Failure;

/// A completion script for your shell
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  source <(sealcast completion bash)                                       this shell
  sealcast completion bash > ~/.local/share/bash-completion/completions/sealcast
  sealcast completion zsh > ~/.zfunc/_sealcast
  sealcast completion fish > ~/.config/fish/completions/sealcast.fish")]
pub(crate) struct Completion {
    /// Which shell
    shell: Kind,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Kind {
    Bash,
    Zsh,
    Fish,
}

impl Completion {
    pub(crate) fn run(self, env: &Env<'_>) -> Result<(), Failure> {
        let (shell, name) = match self.shell {
            Kind::Bash => (Shell::Bash, "bash"),
            Kind::Zsh => (Shell::Zsh, "zsh"),
            Kind::Fish => (Shell::Fish, "fish"),
        };
        let mut script = Vec::new();
        generate(shell, &mut Cli::command(), "sealcast", &mut script);
        if env.output.is_json() {
            return env.output.object(&json!({ "shell": name, "script": String::from_utf8_lossy(&script) }));
        }
        env.output.bytes(&script)
    }
}
