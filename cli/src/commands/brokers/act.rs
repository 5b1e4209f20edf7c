//! What clients and administrators ask of brokers.
//!
//! An act of the administrators is carried out once m of them have signed it (E3). Whoever begins it signs first; if
//! others must too, it goes into a file, and each adds a signature with `sealcast brokers sign`.
//!
//! ```toml
//! cluster = "5f0c…"
//! what = "policy 3"            # for people; what is signed is in `act`
//! act = "06…"                  # the operation, in hex
//! ```

use std::path::{Path, PathBuf};

use sealcast::brokers::Brokers;
use sealcast::code::Code;
use sealcast::config::{FileError, Home, KeptIdentity, Overwrite, read_public, write_public};
use sealcast_broker::genesis::Genesis;
use sealcast_broker::operation::{Action, Admin, Client, Operation};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Administer, Which};
use crate::cluster::{As, Cluster, hex, interest, unhex};
use crate::commands::Env;
use crate::hint::Failure;
use crate::target;

/// An act and what it is, for people.
pub(crate) struct Act {
    pub(crate) what: String,
    pub(crate) action: Action,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    cluster: String,
    what: String,
    act: String,
}

pub(super) fn advertise(env: &Env<'_>, scope: &str, text: &str, which: &Which) -> Result<(), Failure> {
    let scope = interest(scope)?;
    if text.len() > sealcast_wire::limits::ASSOCIATED_BYTES_MAX {
        return Err(Failure::new(Code::TooLarge, "an advertisement has at most 4 KiB"));
    }
    let brokers = Cluster::of(env, which.cluster.as_deref())?.open_registered(env)?;
    let operation = Operation::Advertise { scope: scope.clone(), text: text.as_bytes().to_vec() };
    let (height, number) = brokers.submit(&operation)?;
    brokers.close();
    env.output.object(&json!({ "scope": scope.to_string(), "height": height, "number": number }))?;
    env.output.line(format!("advertised   {scope}   block {height}"))
}

pub(super) fn revoke(
    env: &Env<'_>,
    client: Option<&str>,
    serial: Option<&str>,
    administer: &Administer,
) -> Result<(), Failure> {
    let act = match (client, serial) {
        (Some(client), _) => {
            let key = client_named(client)?;
            Act { what: format!("revoke client {}", hex(&key.0)), action: Action::RevokeClient(key) }
        }
        (None, Some(serial)) => {
            let hint = "--serial ISSUER:SERIAL, as «sealcast ca ls NAME» shows it";
            let wrong = || Failure::new(Code::BadValue, format!("«{serial}» is no certificate")).hint(hint);
            let (issuer, number) = serial.split_once(':').ok_or_else(wrong)?;
            let bytes = serial_bytes(number).ok_or_else(wrong)?;
            let action = Action::RevokeCredential { issuer: issuer.to_owned(), serial: bytes };
            Act { what: format!("revoke certificate {number} of {issuer}"), action }
        }
        (None, None) => return Err(Failure::new(Code::Usage, "whom? A client, or --serial ISSUER:SERIAL")),
    };
    bring(env, act, administer)
}

/// Lifts the suspension of a client by evidence.
pub(super) fn restore(env: &Env<'_>, client: &str, administer: &Administer) -> Result<(), Failure> {
    let key = client_named(client)?;
    bring(env, Act { what: format!("restore client {}", hex(&key.0)), action: Action::Restore(key) }, administer)
}

fn client_named(client: &str) -> Result<Client, Failure> {
    let key = unhex(client).and_then(|bytes| bytes.try_into().ok()).map(Client);
    key.ok_or_else(|| {
        Failure::new(Code::BadValue, format!("«{client}» is no client's key: 64 hex digits"))
            .hint("«sealcast read» and «sealcast sub --json» name the client of each publication")
    })
}

/// Begins an act: signs it, and carries it out if no other administrator must sign.
pub(crate) fn bring(env: &Env<'_>, act: Act, administer: &Administer) -> Result<(), Failure> {
    let cluster = Cluster::of(env, administer.which.cluster.as_deref())?;
    let brokers = cluster.open(env, &As::Anybody)?;
    brokers.ready()?;
    let number = brokers.next_act()?;
    let mut admin = Admin::new(number, act.action);
    sign_here(env, &cluster, &mut admin)?;
    let out = administer.out.clone().unwrap_or_else(|| PathBuf::from(format!("act-{number}.toml")));
    carry_out(env, &cluster, brokers, admin, &act.what, &out)
}

pub(super) fn sign(env: &Env<'_>, path: &Path, which: &Which) -> Result<(), Failure> {
    let cluster = Cluster::of(env, which.cluster.as_deref())?;
    let text = read_public(path)?;
    let file: File = toml::from_str(&text).map_err(|e| FileError::toml(path, &text, &e))?;
    let shown = Home::shown(path);
    let of = hex(&cluster.file.cluster().0);
    if file.cluster != of {
        let what = format!("{shown} is an act for another cluster: {}, not {of}", file.cluster);
        return Err(Failure::new(Code::Content, what).hint("--cluster FILE: the file of the cluster that it is for"));
    }
    let operation = unhex(&file.act).and_then(|bytes| Operation::from_bytes(&bytes).ok());
    let Some(Operation::Administer(mut admin)) = operation else {
        return Err(Failure::new(Code::Content, format!("{shown}: «act» is no act of administrators"))
            .hint("get the file again from whoever began the act"));
    };
    // What is signed is what is said here, not what the file says of itself.
    let what = described(&admin.action);
    env.output.say(format!("signing   act {}: {what}", admin.number));
    sign_here(env, &cluster, &mut admin)?;
    let brokers = cluster.open(env, &As::Anybody)?;
    carry_out(env, &cluster, brokers, admin, &what, path)
}

fn carry_out(
    env: &Env<'_>,
    cluster: &Cluster,
    brokers: Brokers,
    admin: Admin,
    what: &str,
    out: &Path,
) -> Result<(), Failure> {
    let (signed, needed, number) = (admin.signatures.len(), cluster.file.genesis.quorum, admin.number);
    if signed < needed {
        let act = hex(&Operation::Administer(admin).to_bytes());
        let file = File { cluster: hex(&cluster.file.cluster().0), what: what.to_owned(), act };
        let text = toml::to_string(&file).expect("strings in a table are valid TOML");
        let text = format!(
            "# An act of the administrators, signed by {signed} of {needed}: sealcast brokers sign FILE\n{text}"
        );
        write_public(out, text.as_bytes(), Overwrite::Replace)?;
        let shown = Home::shown(out);
        env.output.object(
            &json!({ "act": number, "what": what, "signed": signed, "needed": needed, "path": out, "done": false }),
        )?;
        env.output.line(format!("act {number}   {what}   signed by {signed} of {needed}   {shown}"))?;
        env.output.say(format!("          Next:  another administrator types: sealcast brokers sign {shown}"));
        return Ok(());
    }
    brokers.ready()?;
    let (height, number_of_ours) = brokers.submit(&Operation::Administer(admin))?;
    // E2: it is said to be done once it binds.
    let executed = brokers.bound(height, number_of_ours)?.signatures.len();
    brokers.close();
    env.output.object(&json!({ "act": number, "what": what, "signed": signed, "needed": needed, "height": height,
                "executed": executed, "done": true }))?;
    env.output
        .line(format!("act {number}   {what}   signed by {signed} of {needed}   in force from block {height} on"))?;
    env.output.detail(format!("{executed} brokers have signed that they executed it"));
    Ok(())
}

/// Adds the signature of the chosen identity, or of whichever of this user's is an administrator.
fn sign_here(env: &Env<'_>, cluster: &Cluster, admin: &mut Admin) -> Result<(), Failure> {
    let chosen = target::identity(env)?;
    let named = env.global.id.is_some();
    let others = env.home.identities().into_iter().filter(|_| !named);
    let (genesis, id): (&Genesis, _) = (&cluster.file.genesis, cluster.file.cluster());
    for name in chosen.iter().cloned().chain(others) {
        // A damaged identity of somebody else's is none of this command's business.
        let Ok(kept) = KeptIdentity::load(&env.home, &name) else { continue };
        if kept.secret.origin_key().is_some_and(|key| admin.sign(genesis, &id, &key)) {
            env.output.detail(format!("signed as {name}"));
            return Ok(());
        }
    }
    let who = chosen.filter(|_| named).map_or("none of your identities is".to_owned(), |name| format!("{name} is not"));
    Err(Failure::new(Code::Denied, format!("{who} an administrator of {}", genesis.name))
        .hint("the cluster file lists the administrators' keys; genesis fixes them"))
}

fn described(action: &Action) -> String {
    match action {
        Action::Policy(policy) => {
            let rules: Vec<String> = policy.rules.iter().map(ToString::to_string).collect();
            format!("a policy with {} rules: {}", rules.len(), rules.join("; "))
        }
        Action::RevokeClient(client) => format!("revoke client {}", hex(&client.0)),
        Action::RevokeCredential { issuer, serial } => format!("revoke certificate {} of {issuer}", hex(serial)),
        Action::Epoch(epoch) => format!("key epoch {epoch}"),
        Action::Restore(client) => format!("restore client {}", hex(&client.0)),
    }
}

/// `17`, as the authority numbers its certificates, or hex after `0x`.
fn serial_bytes(text: &str) -> Option<Vec<u8>> {
    let text = text.strip_prefix('#').unwrap_or(text);
    match text.strip_prefix("0x") {
        Some(hex) => unhex(hex).filter(|bytes| !bytes.is_empty()),
        None => {
            let number: u64 = text.parse().ok()?;
            Some(sealcast_crypto::identity::Serial::try_from(number).ok()?.as_bytes().to_vec())
        }
    }
}
