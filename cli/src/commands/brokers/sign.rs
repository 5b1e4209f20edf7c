//! `sealcast brokers sign FILE`: an act of the administrators as another one of them gets it. It is looked at, signed, and
//! carried out once enough have signed.

use std::path::Path;

use sealcast::code::Code;
use sealcast::config::{FileError, Home, read_public};
use sealcast_broker::genesis::Genesis;
use sealcast_broker::operation::{Action, Admin, Operation};
use sealcast_broker::state::{Subject, SubjectStatus};
use sealcast_crypto::identity::Serial;
use serde_json::json;

use super::Which;
use super::act::{File, carry_out, sign_here};
use crate::cluster::Cluster;
use crate::commands::Env;
use crate::hint::Failure;

pub(super) fn sign(env: &Env<'_>, path: &Path, look: bool, which: &Which) -> Result<(), Failure> {
    let cluster = Cluster::of(env, which.cluster.as_deref())?;
    let mut admin = read(path, &cluster)?;
    // What is signed is what is said here, not what the file says of itself.
    let what = described(&admin.action);
    if look {
        return show(env, &cluster, &admin, &what);
    }
    let genesis = &cluster.file.genesis;
    let wrong = admin.false_signatures(genesis, &cluster.file.cluster());
    for place in &wrong {
        // One lying administrator cannot keep the others from acting.
        let shown = Home::shown(path);
        env.output
            .warn(format!("{shown}: {} is false; it does not count and is left out", signature_of(genesis, *place)));
    }
    admin.signatures.retain(|(place, _)| !wrong.contains(place));
    env.output.say(format!("signing   act {}: {what}", admin.number));
    sign_here(env, &cluster, &mut admin)?;
    let brokers = cluster.open(env)?;
    carry_out(env, &cluster, brokers, admin, &what, path)
}

/// The act in a file, if it is one for this cluster.
fn read(path: &Path, cluster: &Cluster) -> Result<Admin, Failure> {
    let text = read_public(path)?;
    let file: File = toml::from_str(&text).map_err(|e| FileError::toml(path, &text, &e))?;
    let shown = Home::shown(path);
    let of = hex::encode(cluster.file.cluster().0);
    if file.cluster != of {
        let what = format!("{shown} is an act for another cluster: {}, not {of}", file.cluster);
        return Err(Failure::new(Code::Content, what).hint("--cluster FILE: the file of the cluster that it is for"));
    }
    match hex::decode(&file.act).ok().and_then(|bytes| Operation::from_bytes(&bytes).ok()) {
        Some(Operation::Administer(admin)) => Ok(admin),
        _ => Err(Failure::new(Code::Content, format!("{shown}: 'act' is no act of administrators"))
            .hint("get the file again from the administrator who began the act")),
    }
}

/// `--look`: what the act does and whose signatures it has; nothing is asked of brokers.
fn show(env: &Env<'_>, cluster: &Cluster, admin: &Admin, what: &str) -> Result<(), Failure> {
    let genesis = &cluster.file.genesis;
    let wrong = admin.false_signatures(genesis, &cluster.file.cluster());
    let (good, needed) = (admin.signatures.len() - wrong.len(), genesis.quorum);
    let places = admin.signatures.iter().map(|(place, _)| *place);
    let signatures: Vec<_> = places
        .clone()
        .map(|it| json!({ "administrator": it, "key": key_of(genesis, it), "good": !wrong.contains(&it) }))
        .collect();
    env.output.object(&json!({ "act": admin.number, "what": what, "signed": good, "needed": needed,
                "signatures": signatures, "done": false }))?;
    env.output.line(format!("act {}   {what}   signed by {good} of {needed}", admin.number))?;
    for place in places {
        let verdict = if wrong.contains(&place) { "false" } else { "good" };
        env.output.line(format!("{verdict:<8}  {}", signature_of(genesis, place)))?;
    }
    match wrong.first() {
        None => Ok(()),
        Some(place) => Err(Failure::new(Code::Signature, format!("{} is false", signature_of(genesis, *place)))
            .hint("without --look it is left out; ask that administrator who changed the file")),
    }
}

fn signature_of(genesis: &Genesis, place: u16) -> String {
    match key_of(genesis, place) {
        Some(key) => format!("the signature of administrator {place} ({}…)", &key[..16]),
        None => format!("the signature of administrator {place}, of whom the cluster file knows nothing,"),
    }
}

fn key_of(genesis: &Genesis, place: u16) -> Option<String> {
    genesis.administrators.get(usize::from(place)).map(|key| hex::encode(key.as_bytes()))
}

/// What becomes of an act whose number brokers have executed already, `next` being the next one: it is in force, or another
/// act was faster.
pub(super) fn too_late(
    env: &Env<'_>,
    cluster: &Cluster,
    admin: &Admin,
    next: u64,
    error: sealcast::error::Error,
) -> Result<(), Failure> {
    let (number, what) = (admin.number, described(&admin.action));
    let in_force = match (&admin.action, subject(&admin.action)) {
        (Action::Policy(policy), _) => match cluster.open_known(env)?.policy(cluster.timeout).wait() {
            Ok((_, now)) if now == *policy => Some(true),
            // A later policy may have taken its place since.
            Ok(_) => (number + 1 == next).then_some(false),
            Err(_) => None,
        },
        (action, Some(subject)) => status_of(env, cluster, &subject)?.map(|it| match action {
            Action::Restore(_) => it.suspended.is_none(),
            _ => it.revoked,
        }),
        _ => None,
    };
    let over = |why: &str| Failure::new(Code::BadValue, format!("act {number} is over: {why}; the next act is {next}"));
    match in_force {
        Some(true) => {
            let quorum = cluster.file.genesis.quorum;
            env.output.object(&json!({ "act": number, "what": what, "signed": admin.signatures.len(),
                        "needed": quorum, "done": true, "already": true }))?;
            env.output.line(format!("act {number}   {what}   in force already"))
        }
        Some(false) => Err(over("another act was executed under its number").hint(AGAIN)),
        None if subject(&admin.action).is_some() => Err(error.into()),
        None => Err(over("another act was executed under its number, or a later one has replaced it").hint(AGAIN)),
    }
}

/// What a client, certificate or claim has come to, as brokers tell administrators; `None` if they do not say, as those of
/// earlier versions, or if nobody here is an administrator.
pub(super) fn status_of(env: &Env<'_>, cluster: &Cluster, subject: &Subject) -> Result<Option<SubjectStatus>, Failure> {
    let Some(brokers) = cluster.open_administrator(env)? else { return Ok(None) };
    let status = brokers.ready().wait().and_then(|_| brokers.subject(subject).wait());
    brokers.close();
    if let Err(e) = &status {
        env.output.detail(format!("the brokers do not say what has become of {}: {e}", named(subject)));
    }
    Ok(status.ok())
}

/// What an act is about; `None` for one that concerns all.
pub(super) fn subject(action: &Action) -> Option<Subject> {
    match action {
        Action::RevokeClient(client) | Action::Restore(client) => Some(Subject::Client(*client)),
        Action::RevokeCredential { issuer, serial } => {
            Some(Subject::Credential { issuer: issuer.clone(), serial: serial.clone() })
        }
        Action::Policy(_) | Action::Epoch(_) => None,
    }
}

/// `client 0d78…`, `certificate 02 of exchange`.
pub(super) fn named(subject: &Subject) -> String {
    match subject {
        Subject::Client(client) => format!("client {}", hex::encode(client.0)),
        Subject::Credential { issuer, serial } => format!("certificate {} of {issuer}", shown(serial)),
    }
}

fn described(action: &Action) -> String {
    match action {
        Action::Policy(policy) => {
            let rules: Vec<String> = policy.rules.iter().map(ToString::to_string).collect();
            let count = if rules.len() == 1 { "1 rule".to_owned() } else { format!("{} rules", rules.len()) };
            format!("a policy with {count}: {}", rules.join("; "))
        }
        Action::RevokeClient(client) => format!("revoke client {}", hex::encode(client.0)),
        Action::RevokeCredential { issuer, serial } => format!("revoke certificate {} of {issuer}", shown(serial)),
        Action::Epoch(epoch) => format!("key epoch {epoch}"),
        Action::Restore(client) => format!("restore client {}", hex::encode(client.0)),
    }
}

/// A serial number as `ca ls` shows it.
fn shown(serial: &[u8]) -> String {
    Serial::new(serial).map_or_else(|_| format!("0x{}", hex::encode(serial)), |it| it.to_string())
}

/// What to do with an act that came too late.
const AGAIN: &str = "begin it again, with the command that made the file";
