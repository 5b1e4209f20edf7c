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
use sealcast::config::{Home, KeptIdentity, Overwrite, write_public};
use sealcast_broker::genesis::Genesis;
use sealcast_broker::operation::{Action, Admin, Client, Operation};
use sealcast_broker::state::Subject;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Administer, Which, sign};
use crate::cluster::{Cluster, interest};
use crate::commands::Env;
use crate::hint::{Failure, nearest};
use crate::target;

/// An act and what it is, for people.
pub(crate) struct Act {
    pub(crate) what: String,
    pub(crate) action: Action,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) cluster: String,
    what: String,
    pub(super) act: String,
}

pub(super) fn advertise(env: &Env<'_>, scope: &str, text: &str, which: &Which) -> Result<(), Failure> {
    let scope = interest(scope)?;
    if text.len() > sealcast_wire::limits::ASSOCIATED_BYTES_MAX {
        return Err(Failure::new(Code::TooLarge, "an advertisement has at most 4 KiB"));
    }
    let brokers = Cluster::of(env, which.cluster.as_deref())?.open_registered(env)?;
    let operation = Operation::Advertise { scope: scope.clone(), text: text.as_bytes().to_vec() };
    let (height, number) = brokers.submit(&operation).wait()?;
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
            Act { what: format!("revoke client {}", hex::encode(key.0)), action: Action::RevokeClient(key) }
        }
        (None, Some(serial)) => {
            let hint = "--serial ISSUER:SERIAL, as 'sealcast ca ls NAME' shows it";
            let wrong = || Failure::new(Code::BadValue, format!("'{serial}' is no certificate")).hint(hint);
            let (issuer, number) = serial.split_once(':').ok_or_else(wrong)?;
            let bytes = serial_bytes(number).ok_or_else(wrong)?;
            known_issuer(&Cluster::of(env, administer.which.cluster.as_deref())?, issuer)?;
            let action = Action::RevokeCredential { issuer: issuer.to_owned(), serial: bytes };
            Act { what: format!("revoke certificate {number} of {issuer}"), action }
        }
        (None, None) => return Err(Failure::new(Code::Usage, "whom? A client, or --serial ISSUER:SERIAL")),
    };
    bring(env, act, administer)
}

/// Refuses an issuer that the cluster file does not name: what it signed is in force nowhere, and a misspelt one would
/// leave the right certificate in force.
fn known_issuer(cluster: &Cluster, issuer: &str) -> Result<(), Failure> {
    let issuers = &cluster.file.genesis.issuers;
    if issuers.contains_key(issuer) {
        return Ok(());
    }
    let what = format!("--serial: {} has no issuer '{issuer}'", cluster.file.genesis.name);
    let hint = match nearest(issuer, issuers.keys().map(String::as_str)) {
        Some(better) => format!("did you mean '{better}'?"),
        None => format!("its issuers are {}", issuers.keys().cloned().collect::<Vec<_>>().join(", ")),
    };
    Err(Failure::new(Code::BadValue, what).hint(hint))
}

/// Lifts the suspension of a client by evidence.
pub(super) fn restore(env: &Env<'_>, client: &str, administer: &Administer) -> Result<(), Failure> {
    let key = client_named(client)?;
    bring(env, Act { what: format!("restore client {}", hex::encode(key.0)), action: Action::Restore(key) }, administer)
}

fn client_named(client: &str) -> Result<Client, Failure> {
    let key = hex::decode(client).ok().and_then(|bytes| bytes.try_into().ok()).map(Client);
    key.ok_or_else(|| {
        Failure::new(Code::BadValue, format!("'{client}' is no client's key: 64 hex digits"))
            .hint("'sealcast read' and 'sealcast sub --json' name the client of each publication")
    })
}

/// Begins an act: signs it, and carries it out if no other administrator must sign.
pub(crate) fn bring(env: &Env<'_>, act: Act, administer: &Administer) -> Result<(), Failure> {
    let cluster = Cluster::of(env, administer.which.cluster.as_deref())?;
    let brokers = cluster.open(env)?;
    brokers.ready().wait()?;
    let number = brokers.next_act().wait()?;
    look_before(env, &cluster, &act)?;
    let mut admin = Admin::new(number, act.action);
    sign_here(env, &cluster, &mut admin)?;
    let out = administer.out.clone().unwrap_or_else(|| PathBuf::from(format!("act-{number}.toml")));
    carry_out(env, &cluster, brokers, admin, &act.what, &out)
}

/// Looks whether an act would change anything, as the brokers stand now. What they do not say hinders nobody.
fn look_before(env: &Env<'_>, cluster: &Cluster, act: &Act) -> Result<(), Failure> {
    let Some(subject) = sign::subject(&act.action) else { return Ok(()) };
    let Some(status) = sign::status_of(env, cluster, &subject)? else { return Ok(()) };
    let already = match act.action {
        Action::Restore(_) => status.suspended.is_none().then_some("is not suspended"),
        _ => status.revoked.then_some("is revoked already"),
    };
    let named = sign::named(&subject);
    if let Some(already) = already {
        return Err(Failure::new(Code::BadValue, format!("{named} {already}"))
            .hint("nothing is left to do; an act would only use up its number"));
    }
    if status.clients == 0 {
        let (what, compare) = match &subject {
            Subject::Client(_) => ("has never come to these brokers", "compare the key"),
            Subject::Credential { .. } => ("is used by no client of these brokers", "compare the number"),
        };
        env.output.warn(format!("{named} {what}: {compare} (the act goes on)"));
    }
    Ok(())
}

/// Writes the act for the next administrator, or lets the brokers execute it if enough have signed.
pub(super) fn carry_out(
    env: &Env<'_>,
    cluster: &Cluster,
    brokers: Brokers,
    admin: Admin,
    what: &str,
    out: &Path,
) -> Result<(), Failure> {
    let (signed, needed, number) = (admin.signatures.len(), cluster.file.genesis.quorum, admin.number);
    if signed < needed {
        let act = hex::encode(Operation::Administer(admin).to_bytes());
        let file = File { cluster: hex::encode(cluster.file.cluster().0), what: what.to_owned(), act };
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
    brokers.ready().wait()?;
    let (height, number_of_ours) = match brokers.submit(&Operation::Administer(admin.clone())).wait() {
        Ok(done) => done,
        // Another administrator may have been faster.
        Err(e) if brokers.next_act().wait()? > number => {
            return sign::too_late(env, cluster, &admin, brokers.next_act().wait()?, e);
        }
        Err(e) => return Err(e.into()),
    };
    // E2: it is said to be done once it binds.
    let executed = brokers.bound(height, number_of_ours).wait()?.signatures.len();
    brokers.close();
    env.output.object(&json!({ "act": number, "what": what, "signed": signed, "needed": needed, "height": height,
                "executed": executed, "done": true }))?;
    env.output
        .line(format!("act {number}   {what}   signed by {signed} of {needed}   in force from block {height} on"))?;
    env.output.detail(format!("{executed} brokers have signed that they executed it"));
    Ok(())
}

/// Adds the signature of the chosen identity, or of whichever of this user's is an administrator.
pub(super) fn sign_here(env: &Env<'_>, cluster: &Cluster, admin: &mut Admin) -> Result<(), Failure> {
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

/// `17`, as the authority numbers its certificates, or hex after `0x`.
fn serial_bytes(text: &str) -> Option<Vec<u8>> {
    let text = text.strip_prefix('#').unwrap_or(text);
    match text.strip_prefix("0x") {
        Some(digits) => hex::decode(digits).ok().filter(|bytes| !bytes.is_empty()),
        None => {
            let number: u64 = text.parse().ok()?;
            Some(sealcast_crypto::identity::Serial::try_from(number).ok()?.as_bytes().to_vec())
        }
    }
}
