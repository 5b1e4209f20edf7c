//! `sealcast receipt verify FILE`: whether brokers executed what a receipt says, checked without asking any of them.
//!
//! ```json
//! { "cluster": "5f0c…", "receipt": "01…" }         what else stands there is for people, and has to say the same
//! ```

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use sealcast::brokers::load;
use sealcast::code::Code;
use sealcast::config::{FileError, Home, Overwrite, write_public};
use sealcast_broker::cluster_file::ClusterFile;
use sealcast_broker::receipt::{Fact, Receipt as Proof, ReceiptError};
use serde_json::{Value, json};

use super::{Env, read_text};
use crate::cluster::Cluster;
use crate::hint::Failure;
use crate::text::instant;

/// Receipts of brokers: check them, offline
#[derive(Debug, Args)]
#[command(
    disable_help_subcommand = true,
    after_help = "\
A receipt holds the signatures of f+1 brokers or more, of whom one at least is honest. Whoever has the
cluster file can check it, at any time and without a network.

Examples:
  sealcast pub market/eurusd 1.0842 --receipt r.json
  sealcast receipt verify r.json
  sealcast receipt verify r.json --cluster cluster.toml --json"
)]
pub(crate) struct Receipt {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Check a receipt against the cluster file; exit 6 if it does not hold
    Verify {
        /// The receipt; - is stdin
        file: PathBuf,
        /// The cluster file [default: the one of the URL]
        #[arg(long, value_name = "FILE")]
        cluster: Option<PathBuf>,
    },
}

impl Receipt {
    pub(crate) fn run(self, env: &Env<'_>) -> Result<(), Failure> {
        let Verb::Verify { file, cluster } = self.verb;
        let cluster = match &cluster {
            Some(path) => load(path)?,
            None => (*Cluster::of(env, None)?.file).clone(),
        };
        let (receipt, beside) = read(&file)?;
        receipt.verify(&cluster.genesis).map_err(|e| refused(&file, e))?;
        let told = facts(&receipt, &cluster);
        if let Some(what) = contradiction(&beside, &told) {
            let shown = if file == Path::new("-") { "stdin".to_owned() } else { Home::shown(&file) };
            let what = format!("{shown}: the brokers signed something else than what it shows as {what}");
            return Err(Failure::new(Code::Signature, what)
                .hint("ask its sender for the file as it was written; with \"cluster\" and \"receipt\" alone in it, the proof tells what it proves"));
        }
        env.output.object(&told)?;
        env.output.line(format!("good      {}", summary(&receipt, &cluster)))
    }
}

/// Whether a receipt may be written there, before anything is done that it is of.
///
/// # Errors
/// [`Code::Exists`] unless it shall be overwritten.
pub(crate) fn check_free(path: &Path, force: bool) -> Result<(), Failure> {
    if force || !path.exists() { Ok(()) } else { Err(FileError::Exists(path.to_path_buf()).into()) }
}

/// Writes a receipt for people and programs.
pub(crate) fn save(path: &Path, receipt: &Proof, cluster: &ClusterFile, force: bool) -> Result<(), Failure> {
    let mut object = facts(receipt, cluster);
    object["receipt"] = json!(hex::encode(receipt.to_bytes()));
    let text = serde_json::to_string_pretty(&object).expect("our objects have text keys");
    let overwrite = if force { Overwrite::Replace } else { Overwrite::Never };
    Ok(write_public(path, format!("{text}\n").as_bytes(), overwrite)?)
}

/// What is shown beside a proof and is not what it proves. What this version does not show is left out, but for facts.
fn contradiction(beside: &Value, told: &Value) -> Option<String> {
    match (beside, told) {
        (Value::Object(beside), Value::Object(told)) => beside.iter().find_map(|(name, value)| {
            let inner = match told.get(name) {
                Some(told) => contradiction(value, told)?,
                None if FACTS.contains(&name.as_str()) => String::new(),
                None => return None,
            };
            Some(if inner.is_empty() { name.clone() } else { format!("{name}.{inner}") })
        }),
        (Value::Array(beside), Value::Array(told)) if beside.len() == told.len() => {
            beside.iter().zip(told).find_map(|(beside, told)| contradiction(beside, told))
        }
        _ => (beside != told).then(String::new),
    }
}

/// What a receipt may be of, as it is shown.
const FACTS: [&str; 2] = ["published", "executed"];

/// A proof, and the object that it is in.
fn read(path: &Path) -> Result<(Proof, Value), Failure> {
    let shown = if path == Path::new("-") { "stdin".to_owned() } else { Home::shown(path) };
    let text = read_text(path)?;
    let wrong = |what: &str| {
        Failure::new(Code::Content, format!("{shown}: {what}"))
            .hint("a receipt is what 'sealcast pub … --receipt FILE' wrote")
    };
    let value: Value = serde_json::from_str(&text).map_err(|e| {
        let place = format!("{shown}:{}:{}", e.line(), e.column());
        Failure::new(Code::Syntax, format!("{place}: this is no JSON"))
            .hint("it begins with {, as 'sealcast pub … --receipt FILE' wrote it")
    })?;
    let bytes = value.get("receipt").and_then(Value::as_str).ok_or_else(|| wrong("it has no \"receipt\""))?;
    let bytes = hex::decode(bytes).ok().ok_or_else(|| wrong("\"receipt\" is not in hex"))?;
    let proof = Proof::from_bytes(&bytes).map_err(|_| {
        Failure::new(Code::Signature, format!("{shown}: its bytes are no receipt: they were changed, or cut"))
            .hint("ask its sender for the file as it was written")
    })?;
    Ok((proof, value))
}

fn refused(path: &Path, why: ReceiptError) -> Failure {
    let shown = if path == Path::new("-") { "stdin".to_owned() } else { Home::shown(path) };
    let failure = Failure::new(Code::Signature, format!("{shown}: {why}"));
    match why {
        ReceiptError::Cluster => failure.hint("--cluster FILE: the file of the cluster that it is of"),
        _ => failure.hint("the receipt proves nothing; ask its sender for the file as it was written"),
    }
}

fn facts(receipt: &Proof, cluster: &ClusterFile) -> Value {
    let mut object = json!({
        "cluster": hex::encode(receipt.cluster.0), "name": cluster.genesis.name, "height": receipt.height,
        "brokers": receipt.signatures.keys().collect::<Vec<_>>(),
    });
    match &receipt.fact {
        Fact::Published(it) => {
            let topics = it
                .places
                .iter()
                .map(|(header, ps)| json!({ "topic": header.topic, "value": header.value, "number": ps }));
            object["published"] = json!({
                "topics": topics.collect::<Vec<_>>(), "at": instant(it.at), "client": hex::encode(it.client.0),
                "sn": it.sn, "id": hex::encode(it.id.0), "policy": it.policy, "epoch": it.epoch,
                "allow": it.access.as_ref().map(ToString::to_string),
            });
        }
        Fact::Executed(it) => {
            object["executed"] = json!({
                "client": hex::encode(it.client.0), "first": it.first,
                "outcomes": it.outcomes.iter().map(|o| format!("{:?}", o.code)).collect::<Vec<_>>(),
            });
        }
    }
    object
}

fn summary(receipt: &Proof, cluster: &ClusterFile) -> String {
    let signed =
        format!("signed by {} of {} brokers of {}", receipt.signatures.len(), cluster.brokers(), cluster.genesis.name);
    match &receipt.fact {
        Fact::Published(it) => {
            let places: Vec<String> =
                it.places.iter().map(|(header, ps)| format!("{} number {ps}", header.topic)).collect();
            let allow = it.access.as_ref().map(|it| format!("  for {it}")).unwrap_or_default();
            format!("{}  block {}  {}{allow}  {signed}", places.join(", "), receipt.height, instant(it.at))
        }
        Fact::Executed(it) => {
            let outcomes: Vec<String> = it.outcomes.iter().map(|o| format!("{:?}", o.code)).collect();
            format!("operations from {}: {}  block {}  {signed}", it.first, outcomes.join(", "), receipt.height)
        }
    }
}
