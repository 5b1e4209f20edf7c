//! `sealcast policy`: access rules of the brokers, written, explained and tested without any broker.

mod attribute;
mod denial;
mod file;
mod lint;
mod set;
mod source;
mod test;
mod why;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use sealcast::code::Code;
use sealcast_broker::operation::policy::{Act, Policy as Rules};
use serde_json::{Value, json};

use super::Env;
use super::brokers::Which;
use crate::cluster::Cluster;
use crate::hint::Failure;
pub(crate) use denial::Denial;
use file::PolicyFile;

/// Access rules of the brokers: check, explain and test them
#[derive(Debug, Args)]
#[command(
    disable_help_subcommand = true,
    after_help = "\
Examples:
  sealcast policy lint ward.toml          all mistakes, and what was hardly meant
  sealcast policy why ward.toml --topic records/derma/7 --attr hospitalA:role=nurse
  sealcast policy why --expr 'exchange:desk = fx' --attr exchange:desk=rates
  sealcast policy test ward.toml          the cases that are written in it
  sealcast policy show ward.toml          the rules as brokers get them, and their hash
  sealcast policy set ward.toml           put in force, once m administrators have signed it
  sealcast policy show                    the rules in force, as the brokers say
  sealcast policy why --topic records/7 --publish     whether you may, by the rules in force

A policy file, here with one rule and one case:
  number = 1                              # one more with each change
  [issuers]                               # who gives which attributes
  hospitalA = [\"role\", \"ward\"]
  [[rule]]                                # who may read (or: act = \"publish\") such topics
  topic = \"records/derma/#\"
  allow = \"hospitalA:role = dermatologist\"
  [[test]]
  topic = \"records/derma/7\"
  attr = [\"hospitalA:role=nurse\"]
  expect = \"deny\"

All rules with a matching topic must allow it; where there is none, every
registered client may. docs/policies.md tells more."
)]
pub(crate) struct Policy {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Find all mistakes of a policy file, and conditions that were hardly meant so
    Lint {
        /// The policy; - is stdin
        file: PathBuf,
        /// Fail also where something is only odd
        #[arg(long)]
        strict: bool,
    },
    /// Explain who may: what of each rule is true, false or missing; exit 5 if denied
    Why(why::Why),
    /// Run the cases that are written in a policy file; exit 1 if one fails
    Test {
        /// The policy; - is stdin
        file: PathBuf,
    },
    /// Put a policy in force at brokers; takes m administrators
    Set {
        /// The policy; - is stdin
        file: PathBuf,
        #[command(flatten)]
        administer: super::brokers::Administer,
    },
    /// Print the rules as brokers get them, with the hash that tells whether two people mean the same
    Show {
        /// The policy; - is stdin [default: the one in force at the brokers]
        #[arg(conflicts_with = "cluster")]
        file: Option<PathBuf>,
        #[command(flatten)]
        which: Which,
    },
}

impl Policy {
    pub(crate) fn run(self, env: &Env<'_>) -> Result<(), Failure> {
        match self.verb {
            Verb::Lint { file, strict } => lint::lint(env, &file, strict),
            Verb::Why(why) => why.run(env),
            Verb::Test { file } => test::test(env, &file),
            Verb::Set { file, administer } => set::set(env, &file, &administer),
            Verb::Show { file, which } => show(env, file.as_deref(), &which),
        }
    }
}

fn show(env: &Env<'_>, path: Option<&Path>, which: &Which) -> Result<(), Failure> {
    let (number, policy) = match path {
        Some(path) => {
            let file = PolicyFile::load(path)?;
            (file.number, file.policy())
        }
        None => in_force(env, which)?,
    };
    let (bytes, hash) = (policy.to_bytes().len(), hex::encode(policy.hash(number)));
    let rules: Vec<Value> = policy
        .rules
        .iter()
        .map(|r| {
            json!({
                "act": act(r.act), "topic": r.topic.to_string(), "allow": r.access.to_string(),
                "allow_bytes": hex::encode(r.access.to_bytes()),
            })
        })
        .collect();
    env.output.object(&json!({ "policy": number, "hash": hash, "bytes": bytes, "rules": rules }))?;
    env.output.line(format!("# policy {number}, {}, {bytes} B, hash {hash}", count(rules.len(), "rule")))?;
    policy.rules.iter().try_for_each(|rule| env.output.line(rule))
}

/// The policy in force and its number, as f + 1 brokers say.
fn in_force(env: &Env<'_>, which: &Which) -> Result<(u64, Rules), Failure> {
    let cluster = Cluster::of(env, which.cluster.as_deref()).map_err(|e| match e.is(Code::NoUrl) {
        true => e.hint("say the policy's FILE, or which brokers have it: --cluster FILE, or --url quorum:FILE"),
        false => e,
    })?;
    let brokers = cluster.open_known(env)?;
    let found = brokers.policy(cluster.timeout).wait();
    super::brokers::keep(env, &cluster.file.cluster(), &brokers.evidence())?;
    brokers.close();
    Ok(found?)
}

/// `read` or `publish`.
fn act(act: Act) -> &'static str {
    match act {
        Act::Read => "read",
        Act::Publish => "publish",
    }
}

/// `1 rule`, `7 rules`.
fn count(n: usize, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}
