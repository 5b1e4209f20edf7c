//! `sealcast brokers evidence`: what is known against brokers. Proofs that came up at clients of this user are kept in
//! the state folder; what brokers have is theirs, and they name it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sealcast::brokers::Evidence;
use sealcast::config::{FileError, Home, Overwrite, write_public};
use sealcast_broker::genesis::Cluster as Id;
use sealcast_crypto::hash::sha256;
use serde_json::{Value, json};

use super::{Which, status};
use crate::cluster::{As, Cluster, hex};
use crate::commands::Env;
use crate::hint::Failure;
use crate::text::{instant, now};

pub(super) fn evidence(env: &Env<'_>, which: &Which, out: Option<&Path>) -> Result<(), Failure> {
    let cluster = Cluster::of(env, which.cluster.as_deref())?;
    let id = cluster.file.cluster();
    let brokers = Cluster { patience: WAIT, ..cluster }.open(env, &As::Anybody)?;
    let stands = brokers.survey(WAIT)?;
    brokers.close();
    let reports = status::against(&stands);
    for report in &reports {
        let misdeed = status::misdeed(report.misdeed);
        env.output
            .object(&json!({ "broker": report.broker, "misdeed": misdeed, "at": report.at, "kept_by": "brokers" }))?;
        env.output
            .line(format!("broker {}  {misdeed} at {}  (the brokers keep the proof)", report.broker, report.at))?;
    }
    let kept = kept(env, &id)?;
    for path in &kept {
        let text = sealcast::config::read_public(path)?;
        let value: Value = serde_json::from_str(&text).unwrap_or_default();
        let what = value.get("what").and_then(Value::as_str).unwrap_or("a damaged file");
        env.output.object(&json!({ "what": what, "path": path }))?;
        env.output.line(format!("{what}  {}", Home::shown(path)))?;
        if let (Some(folder), Some(name)) = (out, path.file_name()) {
            write_public(&folder.join(name), text.as_bytes(), Overwrite::Replace)?;
        }
    }
    if reports.is_empty() && kept.is_empty() {
        env.output.say("nothing is known against any broker");
    }
    Ok(())
}

/// Keeps what came up while a command ran, and says so.
pub(crate) fn keep(env: &Env<'_>, cluster: &Id, found: &[Evidence]) -> Result<(), Failure> {
    for it in found {
        env.output.warn(&it.what);
        if it.record.is_empty() {
            continue;
        }
        let name = hex(&sha256(&it.record)[..8]);
        let path = folder(env, cluster).join(format!("{name}.json"));
        let object =
            json!({ "what": it.what, "seen": instant(now()), "cluster": hex(&cluster.0), "record": hex(&it.record) });
        let text = serde_json::to_string_pretty(&object).expect("our objects have text keys");
        match write_public(&path, text.as_bytes(), Overwrite::Never) {
            Ok(()) => env.output.warn(format!("evidence saved: {}", Home::shown(&path))),
            Err(FileError::Exists(_)) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

fn folder(env: &Env<'_>, cluster: &Id) -> PathBuf {
    env.home.state().join("brokers").join(hex(&cluster.0[..8])).join("evidence")
}

fn kept(env: &Env<'_>, cluster: &Id) -> Result<Vec<PathBuf>, Failure> {
    let folder = folder(env, cluster);
    let entries = match fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(FileError::io(&folder, e).into()),
    };
    let mut all: Vec<PathBuf> =
        entries.flatten().map(|it| it.path()).filter(|p| p.extension().is_some_and(|e| e == "json")).collect();
    all.sort();
    Ok(all)
}

/// How long silent brokers are waited for.
const WAIT: Duration = Duration::from_secs(2);
