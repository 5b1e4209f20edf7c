//! `sealcast relay`: a look at a relay, evidence against relays, and the program of one.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use sealcast::code::Code;
use sealcast::config::Home;
use sealcast::relay::{KeptEvidence, RelayKey, kept, pinned};
use sealcast::url::TransportAddress;
use serde_json::json;

use super::{Env, doctor, read_text};
use crate::beside;
use crate::hint::Failure;
use crate::target::Target;

/// Relays that nobody trusts: look at one, keep evidence against them, run one
#[derive(Debug, Args)]
#[command(
    disable_help_subcommand = true,
    after_help = "\
A relay forwards and stores what groups seal. It has an MQTT broker, and a directory that keeps each
group's handshakes in one order and signs it. A directory that shows two members two orders convicts
itself by its signatures.

Examples:
  sealcast relay check --ctx ward
  sealcast relay evidence
  sealcast relay evidence verify proof.json
  sealcast relay run --data relay"
)]
pub(crate) struct Relay {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Look at broker and directory of the URL as a member does, and list what they see of the group
    Check,
    /// List the proofs that were kept here against relays, of two logs signed for one group
    #[command(args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
    Evidence {
        #[command(subcommand)]
        verb: Option<EvidenceVerb>,
    },
    /// Run a relay (starts sealcast-relay, which starts Mosquitto)
    Run {
        /// Passed on as they are: 'sealcast-relay run --help' lists them
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
        arguments: Vec<OsString>,
    },
}

#[derive(Debug, Subcommand)]
enum EvidenceVerb {
    /// Check a proof by the relay's key, without a network, and say whom it convicts; exit 6 if nobody
    Verify {
        /// The proof, as a session kept it; - is stdin
        file: PathBuf,
        /// The key that the relay must have, scrl1… [default: that of the URL, else the one in the file]
        #[arg(long, value_name = "KEY")]
        relay: Option<RelayKey>,
    },
}

impl Relay {
    pub(crate) fn run(self, env: &Env<'_>) -> Result<(), Failure> {
        match self.verb {
            Verb::Check => check(env),
            Verb::Evidence { verb: None } => evidence(env),
            Verb::Evidence { verb: Some(EvidenceVerb::Verify { file, relay }) } => verify(env, &file, relay),
            Verb::Run { arguments } => {
                let json = env.global.json.then(|| "--json".into());
                let arguments = ["run".into()].into_iter().chain(arguments).chain(json);
                Err(beside::become_program(beside::RELAY, arguments))
            }
        }
    }
}

fn check(env: &Env<'_>) -> Result<(), Failure> {
    let target = Target::of(env)?;
    if !matches!(target.url.address, TransportAddress::Relay(_)) {
        let failure = Failure::new(Code::BadUrl, format!("{} is no relay (from {})", target.url, target.from));
        return Err(
            failure.hint("--url 'mqtts://HOST/PREFIX?keys=mls&…', as the relay's program prints it, or --ctx NAME")
        );
    }
    let checked = doctor::report(env, &doctor::relay::check(env, &target));
    env.output.say("it sees:");
    for it in doctor::relay::sees(&target) {
        env.output.object(&json!({ "sees": it }))?;
        env.output.line(format!("    {it}"))?;
    }
    checked
}

fn evidence(env: &Env<'_>) -> Result<(), Failure> {
    let all = kept(&env.home)?;
    for (path, it) in &all {
        match it {
            Ok(it) => {
                env.output.object(&json!({ "path": path, "seen": it.seen, "verified": true, "proves": facts(it) }))?;
                env.output.line(format!("{}  {}", it.what(), Home::shown(path)))?;
            }
            Err(e) => {
                env.output.object(&json!({ "path": path, "verified": false, "why": e.to_string() }))?;
                env.output.warn(e);
            }
        }
    }
    if all.is_empty() {
        env.output.say("nothing is known against any relay");
    }
    Ok(())
}

fn verify(env: &Env<'_>, file: &Path, relay: Option<RelayKey>) -> Result<(), Failure> {
    let shown = if file == Path::new("-") { "stdin".to_owned() } else { Home::shown(file) };
    let proof = KeptEvidence::parse(&read_text(file)?).map_err(|e| Failure::from(e).at(&shown))?;
    // Without a URL, too, a proof convicts the key that it names.
    let of_url = Target::of(env).ok().map(|it| pinned(&it.url)).transpose()?.flatten();
    if let Some(other) = relay.or(of_url).filter(|it| *it != proof.relay) {
        let what = format!("{shown}: it says nothing of the relay {other}: it is against {}", proof.relay);
        return Err(Failure::new(Code::Signature, what).hint("--relay KEY: the key that the proof is against"));
    }
    env.output.object(&facts(&proof))?;
    env.output.line(format!("convicted  {}", proof.what()))
}

fn facts(it: &KeptEvidence) -> serde_json::Value {
    let one = &it.evidence.one;
    json!({ "relay": it.relay.to_string(), "group": hex::encode(one.group.0), "position": one.position })
}
