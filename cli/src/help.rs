//! Help as a page one reads: commands by what they are for, options, exit codes, an example.

use clap::builder::Styles;
use clap::builder::styling::AnsiColor;

/// The commands in the order in which a newcomer needs them.
const GROUPS: &[(&str, &[&str])] = &[
    ("First steps", &["demo", "init", "doctor"]),
    ("Messages", &["pub", "sub", "bench"]),
    ("People and keys", &["group", "invite", "join", "id", "ca", "kdc"]),
    ("Brokers and relays", &["brokers", "policy", "read", "receipt", "relay"]),
    ("This program", &["ctx", "explain", "completion", "man", "lab"]),
];

/// What the exit code says; scripts may rely on it.
const EXIT_CODES: &str = "\
Exit codes:
  0 ok · 1 failed while running · 2 usage · 3 configuration · 4 unreachable or time-out
  5 denied by policy · 6 authentication or decryption failed · 7 credential expired or revoked
  8 no quorum, or evidence of a fork · 130 interrupted";

const EXAMPLE: &str = "\
Example:
  sealcast init ward3                          an authority, your identity, a context
  sealcast sub 'ward3/#' &                     listen
  sealcast pub ward3/vitals '{\"hr\":72}'        speak

Files lie in ~/.config/sealcast (XDG_CONFIG_HOME and SEALCAST_HOME are honoured).";

/// The command line with the front page of its help; other pages do not repeat the options of every command.
pub(crate) fn command(command: clap::Command) -> clap::Command {
    let listed = GROUPS.iter().map(|(title, names)| {
        let lines: Vec<String> = names.iter().map(|name| line(&command, name)).collect();
        format!("{title}:\n{}", lines.join("\n"))
    });
    let listed: Vec<String> = listed.collect();
    let options: Vec<String> = command.get_arguments().map(option).collect();
    let template = format!(
        "{{about}}\n\nUsage: sealcast COMMAND [OPTIONS]\n\n{}\n\nOptions of every command:\n{}\n\n{EXAMPLE}\n\n\
         {EXIT_CODES}\n\n'sealcast help COMMAND' or 'sealcast COMMAND --help' tells more.\n",
        listed.join("\n\n"),
        options.join("\n"),
    );
    let command = command.mut_args(|a| a.hide(true)).mut_subcommands(page);
    command.help_template(template).arg_required_else_help(true).styles(STYLES).max_term_width(100)
}

/// A command's own page.
fn page(command: clap::Command) -> clap::Command {
    let own = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let gap = if own.is_empty() { "" } else { "\n\n" };
    let after = format!("{own}{gap}{GLOBAL}");
    command.after_help(after).mut_subcommands(page)
}

/// `  -q, --quiet        Say less on stderr`
fn option(arg: &clap::Arg) -> String {
    let short = arg.get_short().map_or("    ".to_owned(), |c| format!("-{c}, "));
    let long = arg.get_long().map(|l| format!("--{l}")).unwrap_or_default();
    let takes = arg.get_action().takes_values();
    let value = arg.get_value_names().filter(|_| takes).map(|v| format!(" {}", v.join(" "))).unwrap_or_default();
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    format!("  {:<24} {help}", format!("{short}{long}{value}"))
}

const GLOBAL: &str = "And as for every command: --json --url --id --ctx -q -v --no-progress ('sealcast --help')";

fn line(command: &clap::Command, name: &str) -> String {
    let about = command.find_subcommand(name).and_then(|c| c.get_about()).map(ToString::to_string);
    format!("  {name:<11} {}", about.unwrap_or_default())
}

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::White.on_default().bold())
    .usage(AnsiColor::White.on_default().bold())
    .literal(AnsiColor::Cyan.on_default());

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::commands::Cli;

    #[test]
    fn every_command_stands_on_the_front_page_once() {
        let cli = Cli::command();
        let mut all: Vec<&str> = cli.get_subcommands().map(clap::Command::get_name).collect();
        let mut listed: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        all.sort_unstable();
        listed.sort_unstable();
        assert_eq!(all, listed);
    }

    #[test]
    fn the_table_of_commands_is_consistent() {
        command(Cli::command()).debug_assert();
    }
}
