//! `sealcast kdc`: a key distribution centre, on the machine that has its secret.

mod register;
mod run;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use sealcast::code::Code;
use sealcast::config::Home;
use sealcast_crypto::identity::Registration;
use sealcast_kdc::{Centre, Entry, StoreError};
use sealcast_wire::{Utc, limits};
use serde_json::json;

use super::Env;
use super::grant::rights_shown;
use crate::hint::Failure;
use crate::text::{date, instant, now, parse_duration, row, table};

/// A key distribution centre: run, register, ls, revoke
#[derive(Debug, Args)]
#[command(
    disable_help_subcommand = true,
    after_help = "\
The centre makes the keys by which the leader of a group hands out the group's; members need no
certificates. It could read everything: its folder belongs on a machine that all of them trust.

Examples:
  sealcast kdc register leader --group ward3 --lead --evict '#' -o leader.principal
  sealcast kdc register robot7 --group ward3 --pub 'pose/robot7' --sub '#'
  sealcast kdc run                                           until Ctrl-C
  sealcast kdc revoke robot7 --reason 'lost'                 takes effect in running groups, too
  sealcast kdc run --standby-of kdc1:7680 --listen 0.0.0.0:7680      with a copy of the file secret"
)]
pub(crate) struct Kdc {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Answer the members of groups until Ctrl-C; a centre is made at first use
    Run {
        /// Where it listens for datagrams
        #[arg(long, value_name = "ADDRESS:PORT", default_value = DEFAULT_LISTEN)]
        listen: std::net::SocketAddr,
        /// Be a stand-by of this centre, whose file 'secret' must lie in the folder
        #[arg(long, value_name = "HOST:PORT")]
        standby_of: Option<String>,
        /// A stand-by that has not heard from the first centre for this long refuses service
        #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
        stale_after: Duration,
        /// Make this stand-by the first centre, if the other one is gone for good
        #[arg(long, conflicts_with = "standby_of")]
        promote: bool,
        /// End when standard input closes, as it does when the process that started this ends
        #[arg(long, hide = true)]
        until_stdin_closes: bool,
        #[command(flatten)]
        at: At,
    },
    /// Register a principal, and write the file that it joins with
    Register(register::Register),
    /// List who is registered
    Ls {
        #[command(flatten)]
        at: At,
    },
    /// Take a registration back: no key is made for it any more
    Revoke {
        /// Its name
        name: String,
        /// Why, for those who read the list
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
        #[command(flatten)]
        at: At,
    },
}

/// Which centre.
#[derive(Clone, Debug, Args)]
struct At {
    /// The centre's folder [default: kdc, in the configuration folder]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

impl At {
    fn folder(&self, env: &Env<'_>) -> Result<PathBuf, Failure> {
        match &self.dir {
            Some(dir) => std::path::absolute(dir).map_err(|e| Failure::system(dir.display(), &e)),
            None => Ok(env.home.centre()),
        }
    }
}

impl Kdc {
    pub(crate) fn run(self, env: &Env<'_>) -> Result<(), Failure> {
        match self.verb {
            Verb::Run { listen, standby_of, stale_after, promote, until_stdin_closes, at } => {
                if until_stdin_closes {
                    crate::interrupt::when_stdin_closes();
                }
                let of = standby_of.as_deref();
                run::run(env, &at.folder(env)?, listen, &run::Part { of, stale_after, promote })
            }
            Verb::Register(register) => register.run(env),
            Verb::Ls { at } => ls(env, &at.folder(env)?),
            Verb::Revoke { name, reason, at } => {
                revoke(env, &at.folder(env)?, &name, reason.as_deref().unwrap_or_default())
            }
        }
    }
}

fn ls(env: &Env<'_>, folder: &Path) -> Result<(), Failure> {
    let mut centre = Centre::open(folder).map_err(|e| failed(e, folder))?;
    let mut rows = vec![row(["NAME", "HASH", "RIGHTS", "ENDS", "STATE"])];
    let mut after = Some(0);
    while let Some(row) = after {
        let (entries, next) = centre.entries_after(row).map_err(|e| failed(e, folder))?;
        for entry in &entries {
            env.output.object(&entry_json(entry))?;
            rows.push(entry_row(entry));
        }
        after = next;
    }
    if rows.len() == 1 {
        env.output.say("nobody is registered; sealcast kdc register NAME --group GROUP does that");
        return Ok(());
    }
    env.output.line(table(&rows))
}

fn revoke(env: &Env<'_>, folder: &Path, name: &str, reason: &str) -> Result<(), Failure> {
    let mut centre = Centre::open(folder).map_err(|e| failed(e, folder))?;
    let (hash, number) = centre.revoke(name, reason, now()).map_err(|e| failed(e, folder))?;
    env.output.object(&json!({ "name": name, "hash": hex::encode(hash.0), "revocation": number }))?;
    env.output.line(format!("revoked   {name} ({})   revocation #{number}", short(&hash.0)))?;
    let (first, second) = (limits::KDC_NEWS_EVERY, 2 * limits::KDC_NEWS_EVERY);
    env.output.say(format!(
        "          Groups whose leader asks this centre leave it out within {first:?}; within {second:?} if it asks a stand-by"
    ));
    Ok(())
}

fn entry_json(entry: &Entry) -> serde_json::Value {
    let it = &entry.registration;
    let revoked = entry
        .revoked
        .as_ref()
        .map(|it| json!({ "revocation": it.number, "at": instant(it.at), "by": it.by, "reason": it.reason }));
    json!({
        "name": *it.name, "hash": hex::encode(it.hash().0), "serial": it.serial,
        "rights": it.rights.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "valid_to": instant(Utc(it.not_after)), "revoked": revoked,
    })
}

fn entry_row(entry: &Entry) -> Vec<String> {
    let it = &entry.registration;
    let state = match &entry.revoked {
        Some(revoked) if revoked.reason.is_empty() => format!("revoked {}", date(revoked.at)),
        Some(revoked) => format!("revoked {}: {}", date(revoked.at), revoked.reason),
        None if it.not_after < now().0 => "expired".to_owned(),
        None => "good".to_owned(),
    };
    vec![it.name.to_string(), short(&it.hash().0), granted(it), date(Utc(it.not_after)), state]
}

/// `ward3: pub pose/robot7   sub #`, for each group.
fn granted(registration: &Registration) -> String {
    let rights = &registration.rights;
    let of = |group: &str| format!("{group}: {}", rights_shown(rights, group));
    rights.groups().into_iter().map(of).collect::<Vec<_>>().join("   ")
}

/// The first 12 digits of a hash, for people.
fn short(hash: &[u8; 32]) -> String {
    hex::encode(&hash[..6])
}

fn failed(error: StoreError, folder: &Path) -> Failure {
    let at = Home::shown(folder);
    let what = error.to_string();
    match error {
        StoreError::File(error) => error.into(),
        StoreError::None(_) => Failure::new(Code::Missing, format!("there is no centre in {at}"))
            .hint("sealcast kdc register NAME --group GROUP makes one; --dir DIR names another folder"),
        StoreError::Busy(_) => Failure::new(Code::Duplicate, format!("another process uses the centre in {at}"))
            .hint("try again when that has ended"),
        StoreError::Newer { found, .. } => {
            Failure::new(Code::Content, format!("the centre in {at} was written by a later version (format {found})"))
                .hint("use that version of sealcast")
        }
        StoreError::OtherSecret(_) => {
            Failure::new(Code::Content, format!("{at}/secret is not the one that the centre's rows were written under"))
                .hint("put the right one back; a centre of its own begins in another folder: --dir DIR")
        }
        StoreError::Taken(name) => Failure::new(Code::Exists, format!("'{name}' is registered already"))
            .hint(format!("another name; or first: sealcast kdc revoke {name}")),
        StoreError::Unknown(_) => Failure::new(Code::BadValue, what).hint("sealcast kdc ls"),
        StoreError::Refused(_) => Failure::new(Code::BadValue, what),
        StoreError::StandBy => Failure::new(Code::Content, format!("the centre in {at} is a stand-by"))
            .hint("type it at the first centre; if that is gone for good: sealcast kdc run --promote"),
        StoreError::Diverged | StoreError::Damaged(_) => Failure::new(Code::Content, format!("{at}: {what}")),
        StoreError::Rows(_) => Failure::new(Code::System, format!("{at}: {what}")).hint(format!("df {at}")),
        StoreError::Running(_) => Failure::new(Code::System, format!("{at}: {what}")),
    }
}

/// Where a centre listens if nothing is said.
const DEFAULT_LISTEN: &str = "127.0.0.1:7680";

pub(crate) use register::read_passphrase;
