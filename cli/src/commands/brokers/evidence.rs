//! `sealcast brokers evidence`: what is known against brokers and publishers. Proofs that came up at clients of this user are kept in
//! the state folder; what brokers have they name, and give to whom they know. A proof convicts whoever gives it: `verify`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sealcast::brokers::{BrokerStatus, Brokers, Evidence, misled};
use sealcast::code::Code;
use sealcast::config::{FileError, Home, Overwrite, write_public};
use sealcast::error::Error;
use sealcast_broker::cluster_file::{ClusterFile, Suite, VouchedKey};
use sealcast_broker::contradiction::{self, FORM};
use sealcast_broker::genesis::Cluster as Id;
use sealcast_broker::protocol::{Misbehaviour, Report};
use sealcast_crypto::group::{P256, PrimeGroup, Ristretto255};
use sealcast_crypto::hash::sha256;
use sealcast_keys::threshold::evidence::judge;
use sealcast_keys::threshold::{Config, pin};
use sealcast_wire::Culprit;
use serde_json::{Value, json};

use super::{Which, processes, status};
use crate::cluster::Cluster;
use crate::commands::{Env, read_text};
use crate::hint::Failure;
use crate::text::{instant, now};

pub(super) fn evidence(
    env: &Env<'_>,
    which: &Which,
    out: Option<&Path>,
    submitted: Option<Option<PathBuf>>,
) -> Result<(), Failure> {
    let cluster = Cluster::of(env, which.cluster.as_deref())?;
    if let Some(named) = submitted {
        let all = match named {
            None => kept(&env.home, &cluster.file.cluster())?,
            Some(path) => vec![(path.clone(), sealcast::config::read_public(&path)?)],
        };
        return submit(env, &cluster, &all);
    }
    let id = cluster.file.cluster();
    let cluster = Cluster { timeout: WAIT, ..cluster };
    let brokers = cluster.open(env)?;
    let stands = brokers.survey(WAIT).wait()?;
    let faulty = brokers.cluster().faulty();
    brokers.close();
    let reports = status::against(&stands);
    let judged = judged(env, &cluster, &stands);
    let verified = judged.proved.iter().map(|it| (it, true)).chain(judged.unproved.iter().map(|it| (it, false)));
    for (it, verified) in verified {
        let misbehaviour = status::misbehaviour(it.misbehaviour);
        env.output.object(&json!({
            "broker": it.broker, "misdeed": misbehaviour, "at": it.at, "kept_by": "brokers", "verified": verified,
        }))?;
    }
    for it in &judged.proved {
        let misbehaviour = status::misbehaviour(it.misbehaviour);
        let what =
            format!("broker {}  {misbehaviour} at {}  (the brokers keep the proof: -o FOLDER)", it.broker, it.at);
        env.output.line(what)?;
    }
    for by in &judged.baseless {
        env.output.object(&json!({ "baseless": by }))?;
    }
    for doubt in status::doubts(&judged) {
        env.output.line(doubt)?;
    }
    let suspended = status::suspended(&stands, faulty);
    status::show_suspended(env, &suspended)?;
    let kept = kept(&env.home, &id)?;
    for (path, text) in &kept {
        let value: Value = serde_json::from_str(text).unwrap_or_default();
        let what = value.get("what").and_then(Value::as_str).unwrap_or("a damaged file");
        env.output.object(&json!({ "what": what, "path": path }))?;
        env.output.line(format!("{what}  {}", Home::shown(path)))?;
    }
    if let Some(folder) = out {
        export(&kept, folder)?;
        if !reports.is_empty() {
            let given = fetch(env, &cluster, folder)?;
            for it in reports.iter().filter(|it| !given.contains(&(it.broker, it.at))) {
                env.output.warn(format!("nobody gave the proof against broker {} at {}: ask again", it.broker, it.at));
            }
        }
    }
    if reports.is_empty() && suspended.is_empty() && kept.is_empty() {
        env.output.say("nothing is known against any broker or publisher");
    }
    Ok(())
}

/// Writes what brokers keep to a folder, each proof once: against whom, and at which height or view. It is as good as it
/// verifies, whoever gave it.
fn fetch(env: &Env<'_>, cluster: &Cluster, to: &Path) -> Result<BTreeSet<(u16, u64)>, Failure> {
    let mut written = BTreeSet::new();
    let brokers = cluster.open_known(env)?;
    let given = brokers.proofs().wait();
    brokers.close();
    for (by, proofs) in given? {
        for (report, proof) in proofs {
            let misbehaviour = spelt(report.misbehaviour);
            let name =
                format!("{}-{}-{misbehaviour}-{}.json", report.broker, report.at, hex::encode(&sha256(&proof)[..4]));
            let text = as_kept(&cluster.file, &report, &proof, by);
            let path = to.join(name);
            write_public(&path, format!("{text:#}\n").as_bytes(), Overwrite::Replace)?;
            written.insert((report.broker, report.at));
        }
    }
    Ok(written)
}

/// What brokers report of each other, and what became of it when it was looked at here.
#[derive(Debug, Default)]
pub(super) struct Judged {
    /// The proofs of these hold.
    pub(super) proved: Vec<Report>,
    /// Nobody gave the proofs of these, or they could not be checked.
    pub(super) unproved: Vec<Report>,
    /// What these brokers keep proves nothing of what they report.
    pub(super) baseless: BTreeSet<u16>,
}

/// Checks what brokers report, as [`verify`] does: one broker's word convicts nobody.
pub(super) fn judged(env: &Env<'_>, cluster: &Cluster, stands: &[BrokerStatus]) -> Judged {
    let mut judged = Judged::default();
    let reports = status::against(stands);
    if reports.is_empty() {
        return judged;
    }
    let given = cluster.open_known(env).and_then(|brokers| {
        let proofs = brokers.proofs().wait();
        brokers.close();
        Ok(proofs?)
    });
    // Whom the brokers do not know they give no proofs.
    let given = given.unwrap_or_default();
    let proofs =
        given.into_iter().flat_map(|(by, proofs)| proofs.into_iter().map(move |(report, it)| (by, report, it)));
    let mut looked_at: BTreeSet<Report> = BTreeSet::new();
    for (by, report, proof) in proofs.take(PROOFS_MAX) {
        let text = as_kept(&cluster.file, &report, &proof, by).to_string();
        let Ok(told) = processes::convicts(&text, &cluster.path) else { continue };
        looked_at.insert(report);
        let is_so = told.is_some_and(|it| {
            (&it["broker"], &it["view"], &it["misdeed"])
                == (&json!(report.broker), &json!(report.at), &json!(spelt(report.misbehaviour)))
        });
        if is_so && !judged.proved.contains(&report) {
            judged.proved.push(report);
        } else if !is_so {
            judged.baseless.insert(by);
        }
    }
    judged.proved.sort_unstable();
    judged.unproved = reports.into_iter().filter(|it| !looked_at.contains(it)).collect();
    judged
}

/// A proof as it lies in the brokers' folders.
fn as_kept(file: &ClusterFile, report: &Report, proof: &[u8], by: u16) -> Value {
    json!({
        "cluster": hex::encode(file.cluster().0), "broker": report.broker,
        "key": file.broker_keys().get(usize::from(report.broker)).map(hex::encode), "view": report.at,
        "misdeed": spelt(report.misbehaviour), "proof": hex::encode(proof), "given_by": by,
    })
}

fn spelt(misbehaviour: Misbehaviour) -> String {
    status::misbehaviour(misbehaviour).replace(' ', "-")
}

/// Says whom a proof convicts.
pub(super) fn verify(env: &Env<'_>, path: &Path, which: &Which) -> Result<(), Failure> {
    let shown = if path == Path::new("-") { "stdin".to_owned() } else { Home::shown(path) };
    let text = read_text(path)?;
    let value: Value = serde_json::from_str(&text).map_err(|e| {
        Failure::new(Code::Syntax, format!("{shown}:{}:{}: this is no JSON", e.line(), e.column()))
            .hint("it begins with {, as 'sealcast brokers evidence -o FOLDER' wrote it")
    })?;
    let cluster = Cluster::of(env, which.cluster.as_deref())?;
    let nobody = |why: &str| Failure::new(Code::Signature, format!("{shown}: {why}"));
    if value.get("cluster").and_then(Value::as_str).is_some_and(|it| it != hex::encode(cluster.file.cluster().0)) {
        return Err(
            nobody("the proof is of another cluster").hint("--cluster FILE: the file of the cluster that it is of")
        );
    }
    let record = value.get("record").and_then(Value::as_str).and_then(|digits| hex::decode(digits).ok());
    let found = match &record {
        // What the order's engine found is checked by the program that has it.
        None => processes::convicts(&text, &cluster.path)?.map(|told| {
            let of = |key: &str| told.get(key).cloned().unwrap_or_default();
            let misbehaviour = of("misdeed").as_str().unwrap_or_default().replace('-', " ");
            let who = format!("broker {}  {misbehaviour} at {}", of("broker"), of("view"));
            (json!({ "broker": of("broker"), "misdeed": misbehaviour, "at": of("view") }), who)
        }),
        Some(record) if record.first() == Some(&FORM) => {
            contradiction::judge(&cluster.file.genesis, record).map(|it| {
                let misbehaviour = status::misbehaviour(Misbehaviour::FalseState);
                (json!({ "broker": it, "misdeed": misbehaviour }), format!("broker {it}  {misbehaviour}"))
            })
        }
        Some(_) => {
            let key = match &cluster.file.key {
                Some(key) => key.clone(),
                // The brokers made it after the file was written.
                None => {
                    let brokers = cluster.open(env)?;
                    let key = brokers.key(cluster.timeout).wait();
                    brokers.close();
                    key?
                }
            };
            convicts(&cluster.file, &key, &text).map(|culprit| match culprit {
                Culprit::Broker(it) => {
                    let misbehaviour = status::misbehaviour(Misbehaviour::FalseShare);
                    (json!({ "broker": it, "misdeed": misbehaviour }), format!("broker {it}  {misbehaviour}"))
                }
                Culprit::Publisher { client, number } => {
                    let (client, misbehaviour) = (hex::encode(client), "sealed what opens to nothing");
                    let who = format!("client {client}  {misbehaviour}, as its number {number}");
                    (json!({ "client": client, "misdeed": misbehaviour, "number": number }), who)
                }
            })
        }
    };
    let Some((object, who)) = found else {
        return Err(nobody("it convicts nobody").hint("ask its sender for the file as it was written"));
    };
    env.output.object(&object)?;
    env.output.line(format!("convicted  {who}"))
}

/// Brings proofs against publishers before the brokers.
fn submit(env: &Env<'_>, cluster: &Cluster, all: &[(PathBuf, String)]) -> Result<(), Failure> {
    let mut proofs = Vec::new();
    for (_, text) in all {
        let value: Value = serde_json::from_str(text).unwrap_or_default();
        let of = |key: &str| value.get(key).and_then(Value::as_str);
        let (record, sn) =
            (of("record").and_then(|digits| hex::decode(digits).ok()), value.get("sn").and_then(Value::as_u64));
        if let (Some(record), Some(sn), Some(what)) = (record, sn, of("what")) {
            proofs.push((what.to_owned(), record, sn));
        }
    }
    if proofs.is_empty() {
        return Err(Failure::new(Code::Missing, "there is no proof against a publisher")
            .hint("sealcast brokers evidence lists what came up here; readers keep what they find"));
    }
    let brokers = cluster.open_registered(env)?;
    for (what, record, sn) in proofs {
        match brokers.accuse(sn, &record).wait() {
            Ok(height) => {
                env.output.object(&json!({ "what": what, "suspended": true, "height": height }))?;
                env.output.line(format!("suspended  {what}   block {height}"))?;
            }
            Err(e) => {
                env.output.object(&json!({ "what": what, "suspended": false, "why": e.to_string() }))?;
                env.output.line(format!("unchanged  {what}: {e}"))?;
            }
        }
    }
    brokers.close();
    Ok(())
}

/// Keeps what came up while a command ran, and says so.
pub(crate) fn keep(env: &Env<'_>, cluster: &Id, found: &[Evidence]) -> Result<(), Failure> {
    for it in found {
        env.output.warn(&it.what);
        if let Some(path) = save(&env.home, cluster, it)? {
            env.output.warn(format!("evidence saved: {}", Home::shown(&path)));
        }
    }
    Ok(())
}

/// That the proofs which earlier runs have kept convict more than f brokers, if so.
///
/// # Errors
/// A file of them cannot be read.
pub(crate) fn misled_before(env: &Env<'_>, cluster: &Cluster, brokers: &Brokers) -> Result<Option<Error>, Failure> {
    let kept = kept(&env.home, &cluster.file.cluster())?;
    let (n, faulty) = (cluster.file.brokers(), cluster.file.faulty());
    if kept.len() <= faulty {
        return Ok(None);
    }
    let Ok(key) = brokers.key(WAIT).wait() else { return Ok(None) };
    let convicted = kept.iter().filter_map(|(_, text)| convicts(&cluster.file, &key, text));
    let liars = convicted.filter_map(|culprit| match culprit {
        Culprit::Broker(broker) => Some(broker),
        Culprit::Publisher { .. } => None,
    });
    Ok(misled(&liars.collect(), n, faulty))
}

/// Keeps one proof in the state folder; `None` if there is nothing to keep, or it is kept already.
pub(crate) fn save(home: &Home, cluster: &Id, it: &Evidence) -> Result<Option<PathBuf>, Failure> {
    if it.record.is_empty() {
        return Ok(None);
    }
    let path = folder(home, cluster).join(format!("{}.json", hex::encode(&sha256(&it.record)[..8])));
    let mut object = json!({ "what": it.what, "seen": instant(now()), "cluster": hex::encode(cluster.0), "record": hex::encode(&it.record) });
    if let Some(sn) = it.sn {
        object["sn"] = json!(sn);
    }
    let text = serde_json::to_string_pretty(&object).expect("our objects have text keys");
    match write_public(&path, text.as_bytes(), Overwrite::Never) {
        Ok(()) => Ok(Some(path)),
        Err(FileError::Exists(_)) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// What is kept: files and their texts.
pub(crate) fn kept(home: &Home, cluster: &Id) -> Result<Vec<(PathBuf, String)>, Failure> {
    let folder = folder(home, cluster);
    let entries = match fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(FileError::io(&folder, e).into()),
    };
    let mut all: Vec<PathBuf> =
        entries.flatten().map(|it| it.path()).filter(|p| p.extension().is_some_and(|e| e == "json")).collect();
    all.sort();
    let text = |path: PathBuf| -> Result<_, Failure> { Ok((path.clone(), sealcast::config::read_public(&path)?)) };
    all.into_iter().map(text).collect()
}

/// Brokers that evidence of this user convicts: of shares if the cluster file has the key, and of states.
pub(super) fn brokers_convicted(env: &Env<'_>, file: &ClusterFile) -> Result<BTreeSet<u16>, Failure> {
    let key = file.key.as_ref();
    let broker = |(_, text): &(PathBuf, String)| match convicted_of_state(file, text) {
        Some(broker) => Some(broker),
        None => match convicts(file, key?, text)? {
            Culprit::Broker(broker) => Some(broker),
            Culprit::Publisher { .. } => None,
        },
    };
    Ok(kept(&env.home, &file.cluster())?.iter().filter_map(broker).collect())
}

fn convicted_of_state(file: &ClusterFile, text: &str) -> Option<u16> {
    let value: Value = serde_json::from_str(text).ok()?;
    contradiction::judge(&file.genesis, &hex::decode(value.get("record")?.as_str()?).ok()?)
}

/// Copies it to another folder.
pub(crate) fn export(kept: &[(PathBuf, String)], to: &Path) -> Result<(), Failure> {
    for (path, text) in kept {
        if let Some(name) = path.file_name() {
            write_public(&to.join(name), text.as_bytes(), Overwrite::Replace)?;
        }
    }
    Ok(())
}

/// Whom the proof in such a file convicts, to anybody who has the cluster file and the key; `None` if nobody.
pub(crate) fn convicts(file: &ClusterFile, key: &VouchedKey, text: &str) -> Option<Culprit> {
    fn judged<G: PrimeGroup>(file: &ClusterFile, key: &VouchedKey, record: &[u8]) -> Option<Culprit> {
        let cluster = file.cluster().0;
        let pinned = pin(&cluster, &key.key);
        // Whoever looks at a proof publishes nothing: it has no key.
        let config = Config::<G>::new([0; 32], cluster, &file.broker_keys(), &key.key, &pinned).ok()?;
        judge(&config, record, &mut crate::rng())
    }
    let value: Value = serde_json::from_str(text).ok()?;
    let record = hex::decode(value.get("record")?.as_str()?).ok()?;
    if record.first() == Some(&FORM) {
        return contradiction::judge(&file.genesis, &record).map(Culprit::Broker);
    }
    match file.suite {
        Suite::Ristretto255 => judged::<Ristretto255>(file, key, &record),
        Suite::P256 => judged::<P256>(file, key, &record),
    }
}

fn folder(home: &Home, cluster: &Id) -> PathBuf {
    home.state().join("brokers").join(hex::encode(&cluster.0[..8])).join("evidence")
}

/// So many proofs are checked for a table; each costs the start of a program.
const PROOFS_MAX: usize = 64;
/// How long silent brokers are waited for.
const WAIT: Duration = Duration::from_secs(2);
