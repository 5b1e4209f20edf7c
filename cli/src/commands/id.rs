//! `sealcast id`: your identities on this machine.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use sealcast::code::Code;
use sealcast::config::{Home, KeptIdentity, Membership, Overwrite, name_checked};
use sealcast::control::running;
use sealcast_crypto::identity::statement::{Kind, SignedPolicy};
use sealcast_crypto::identity::{MemberSecret, keytext, pem};
use serde_json::json;

use super::brokers::listed;
use super::ca::{Kind as Algorithm, certificate_json, certificate_lines, left};
use super::{Env, grant, read_text};
use crate::hint::Failure;
use crate::target;
use crate::text::{date, duration, parse_duration, row, table};

/// Your identities: keys, and what certificates grant them
#[derive(Debug, Args)]
#[command(
    disable_help_subcommand = true,
    after_help = "\
Examples:
  sealcast id new robot7            make keys; give the scpub1… to the authority, get an invite back
  sealcast id show
  sealcast id export                your public key, to be invited with
  sealcast id learn ward.crl        what the authority took back
  sealcast id needs-renewal && mail -s 'renew me' admin"
)]
pub(crate) struct Id {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Make a new identity's keys
    New {
        /// Its name on this machine
        name: String,
        /// Kind of its signing key
        #[arg(long, default_value = "ed25519")]
        algorithm: Algorithm,
        /// Replace an identity of this name: its keys are lost
        #[arg(long)]
        force: bool,
    },
    /// Show an identity: key, certificate, rights
    Show {
        /// Which one [default: the context's]
        name: Option<String>,
    },
    /// List all identities
    Ls,
    /// Print the public key, or with --certificate the certificate
    Export {
        /// Which one [default: the context's]
        name: Option<String>,
        /// The certificate as text (PEM)
        #[arg(long)]
        certificate: bool,
    },
    /// Take in a revocation list or policy that the authority signed
    Learn {
        /// The list (sealcast ca crl -o FILE) or policy; - is stdin
        file: PathBuf,
    },
    /// Exit 0 if the certificate should be renewed, 1 if not
    NeedsRenewal {
        /// Which one [default: the context's]
        name: Option<String>,
        /// How much time must be left
        #[arg(long, value_name = "TIME", default_value = "30d", value_parser = parse_duration)]
        within: Duration,
    },
}

impl Id {
    pub(crate) fn run(self, env: &Env<'_>) -> Result<(), Failure> {
        match self.verb {
            Verb::New { name, algorithm, force } => new(env, &name, algorithm, force),
            Verb::Show { name } => show(env, &load(env, name)?),
            Verb::Ls => ls(env),
            Verb::Export { name, certificate } => export(env, &load(env, name)?, certificate),
            Verb::Learn { file } => learn(env, &file),
            Verb::NeedsRenewal { name, within } => needs_renewal(env, &load(env, name)?, within),
        }
    }
}

/// The identity of this name, else the one that commands use.
fn load(env: &Env<'_>, name: Option<String>) -> Result<KeptIdentity, Failure> {
    let name = match name {
        Some(name) if env.home.identity(name_checked(&name)?).exists() => name,
        Some(name) => return Err(target::unknown_identity(&name, &env.home.identities())),
        None => target::identity(env)?.ok_or_else(|| target::no_identity(env))?,
    };
    Ok(KeptIdentity::load(&env.home, &name)?)
}

fn new(env: &Env<'_>, name: &str, algorithm: Algorithm, force: bool) -> Result<(), Failure> {
    let secret = MemberSecret::generate(algorithm.into(), &mut crate::rng());
    let identity = KeptIdentity::new(&env.home, name_checked(name)?, secret);
    identity.save(if force { Overwrite::Replace } else { Overwrite::Never })?;
    let key = identity.secret.public().to_string();
    env.output.object(&json!({ "id": name, "key": key, "path": identity.path() }))?;
    env.output.say(format!("identity  {name}   {}   [0600]", Home::shown(identity.path())));
    env.output.line(&key)?;
    env.output.say(format!(
        "          Next:  give this key to the authority, who types:  sealcast invite --for {} --as {name}\n          \
         then you:  sealcast join FILE",
        keytext::short(&key)
    ));
    Ok(())
}

fn show(env: &Env<'_>, identity: &KeptIdentity) -> Result<(), Failure> {
    let key = identity.secret.public().to_string();
    let name = identity.name();
    let mut object = json!({ "id": name, "key": key, "path": identity.path(), "certificate": null });
    let mut lines =
        vec![format!("id          {name}   {}", Home::shown(identity.path())), format!("key         {key}")];
    match &identity.membership {
        None => lines.push("certificate none yet: sealcast join FILE, once you are invited".to_owned()),
        Some(m) => {
            let c = &m.certificate;
            object["certificate"] = certificate_json(c, None);
            object["authority"] = json!(m.anchor.fingerprint().to_string());
            object["groups"] = json!(m.groups());
            lines.extend(certificate_lines(c));
            let fingerprint = m.anchor.fingerprint().to_string();
            lines.push(format!("authority   {}   {fingerprint}", m.anchor.certificate().name()));
            lines.extend(m.groups().iter().filter(|g| !m.bootstrap_keys.contains_key(*g)).map(|g| {
                format!(
                    "! names in {g} are hidden only from those who do not know the authority: it has no bootstrap key"
                )
            }));
        }
    }
    let (vouchers, objects) = listed(identity);
    object["vouchers"] = json!(objects);
    lines.extend(vouchers.iter().map(|it| format!("also        {it}")));
    env.output.object(&object)?;
    env.output.line(lines.join("\n"))?;
    match check(env, &name) {
        Ok((_, Some(hint))) => env.output.warn(hint),
        Err(failure) if identity.membership.is_some() => env.output.warn(failure.what()),
        _ => {}
    }
    Ok(())
}

/// What doctor says about an identity: what it is, and what should be done about it.
pub(crate) fn check(env: &Env<'_>, name: &str) -> Result<(String, Option<String>), Failure> {
    let identity = KeptIdentity::load(&env.home, name)?;
    let Some(m) = &identity.membership else {
        let failure = Failure::new(Code::NoIdentity, format!("{name} has no certificate yet"));
        return Err(failure.hint(format!("sealcast join FILE, once invited with: sealcast id export {name}")));
    };
    // Together they must make an identity.
    identity.identity()?;
    let until = m.certificate.not_after();
    let shown =
        format!("{} (id {name}), certificate #{} to {}", m.certificate.name(), m.certificate.serial(), date(until));
    let renew = "ask the authority for a new invite; until then nobody lets you in";
    if m.anchor.crl().is_some_and(|crl| crl.revokes(&m.certificate.serial())) {
        return Err(Failure::new(Code::Excluded, format!("{shown}, is revoked")).hint(renew));
    }
    match left(until) {
        None => Err(Failure::new(Code::CertificateExpired, format!("{shown}, has expired")).hint(renew)),
        Some(time) if time < WARN_BEFORE => {
            let hint = format!("the certificate of {name} ends in {}: ask the authority to renew it", duration(time));
            Ok((shown, Some(hint)))
        }
        Some(_) => Ok((shown, None)),
    }
}

/// Whether others let this identity in, in a word: what the authority's table calls its certificates, too.
fn state(identity: &KeptIdentity) -> &'static str {
    match &identity.membership {
        None => "not invited",
        Some(m) if m.anchor.crl().is_some_and(|crl| crl.revokes(&m.certificate.serial())) => "revoked",
        Some(m) => match left(m.certificate.not_after()) {
            None => "expired",
            Some(time) if time < WARN_BEFORE => "renew soon",
            Some(_) => "good",
        },
    }
}

fn ls(env: &Env<'_>) -> Result<(), Failure> {
    let names = env.home.identities();
    if names.is_empty() {
        env.output.say("no identities yet; sealcast init NAME or sealcast id new NAME makes one");
        return Ok(());
    }
    let mut rows = vec![row(["ID", "NAME", "KEY", "GROUPS", "RIGHTS", "VALID TO", "STATE"])];
    for name in names {
        let identity = match KeptIdentity::load(&env.home, &name) {
            Ok(identity) => identity,
            // One bad file shall not hide the others.
            Err(error) => {
                env.output.warn(Failure::from(error).what());
                continue;
            }
        };
        let key = identity.secret.public().to_string();
        let m = identity.membership.as_ref();
        let groups = m.map(|m| m.groups()).unwrap_or_default();
        let until = m.map_or("no certificate".to_owned(), |m| date(m.certificate.not_after()));
        let called = m.map_or("-".to_owned(), |m| m.certificate.name().to_string());
        let rights: Vec<String> = m
            .map(|m| groups.iter().map(|g| grant::rights_shown(m.certificate.rights(), g)).collect())
            .unwrap_or_default();
        env.output.object(&json!({
            "id": name, "name": m.map(|m| m.certificate.name().to_string()), "key": key, "groups": groups,
            "valid_to": m.map(|m| date(m.certificate.not_after())), "state": state(&identity),
        }))?;
        let state = state(&identity).to_owned();
        rows.push(vec![name, called, keytext::short(&key), groups.join(" "), rights.join("; "), until, state]);
    }
    env.output.line(table(&rows))
}

fn export(env: &Env<'_>, identity: &KeptIdentity, certificate: bool) -> Result<(), Failure> {
    let key = identity.secret.public().to_string();
    let text = match (&identity.membership, certificate) {
        (_, false) => key.clone(),
        (Some(m), true) => m.certificate.to_pem().trim_end().to_owned(),
        (None, true) => {
            let failure = Failure::new(Code::Missing, format!("{} has no certificate yet", identity.name()));
            return Err(failure.hint("sealcast join FILE, once you are invited"));
        }
    };
    let pem = certificate.then_some(&text);
    env.output.object(&json!({ "id": identity.name(), "key": key, "certificate": pem }))?;
    env.output.line(&text)
}

/// Brings it to every identity that trusts its signer, and to their running sessions.
fn learn(env: &Env<'_>, file: &Path) -> Result<(), Failure> {
    let text = read_text(file)?;
    let (what, object) = match (pem::read(pem::CRL, &text), pem::read(pem::POLICY, &text)) {
        (Some(der), _) => ("revocation list", der),
        (None, Some(bytes)) => ("policy", bytes),
        (None, None) => {
            let what = "neither a revocation list nor a policy is in it";
            return Err(Failure::new(Code::Content, format!("{}: {what}", Home::shown(file))));
        }
    };
    let mut told = vec![];
    let mut refusal = None;
    for name in env.home.identities() {
        let mut identity = KeptIdentity::load(&env.home, &name)?;
        let Some(m) = &mut identity.membership else { continue };
        match take_in(m, &object) {
            Ok(newer) => {
                if newer {
                    identity.save(Overwrite::Replace)?;
                }
                told.push(name);
            }
            Err(why) => refusal = Some(why),
        }
    }
    if told.is_empty() {
        let why = refusal.unwrap_or_else(|| "no identity here has an authority yet".to_owned());
        return Err(Failure::new(Code::Signature, format!("the {what} is not for any identity here: {why}")));
    }
    let mut sessions = vec![];
    for mut client in running(&env.home) {
        if let (Ok(info), Ok(())) = (client.show(), client.learn(&object)) {
            sessions.push(info.group);
        }
    }
    env.output.object(&json!({ "learned": what, "identities": told, "sessions": sessions }))?;
    let also =
        if sessions.is_empty() { String::new() } else { format!(", and by the session of {}", sessions.join(", ")) };
    env.output.line(format!("{what} learned by {}{also}", told.join(", ")))
}

/// Whether it is newer than what was known.
fn take_in(m: &mut Membership, object: &[u8]) -> Result<bool, String> {
    if Kind::of(object) == Some(Kind::Crl) {
        return m.anchor.learn_crl(object).map_err(|e| e.to_string());
    }
    let policy = SignedPolicy::verify(object, &m.anchor).map_err(|e| e.to_string())?;
    let known = m.policy.as_ref().and_then(|p| SignedPolicy::verify(p, &m.anchor).ok());
    let newer = known.is_none_or(|k| k.policy().number < policy.policy().number);
    if newer {
        m.policy = Some(object.to_vec());
    }
    Ok(newer)
}

fn needs_renewal(env: &Env<'_>, identity: &KeptIdentity, within: Duration) -> Result<(), Failure> {
    let Some(m) = &identity.membership else {
        let failure = Failure::new(Code::NoIdentity, format!("{} has no certificate yet", identity.name()));
        return Err(failure.hint("sealcast join FILE, once you are invited"));
    };
    let time = left(m.certificate.not_after());
    let needs = time.is_none_or(|t| t < within);
    let shown = time.map_or("over".to_owned(), |t| format!("{} left", duration(t)));
    env.output.object(&json!({
        "id": identity.name(), "needs_renewal": needs, "valid_to": date(m.certificate.not_after()),
        "seconds_left": time.map(|t| t.as_secs()),
    }))?;
    env.output.say(format!("{}: {shown}", identity.name()));
    if needs { Ok(()) } else { Err(Failure::said(1)) }
}

/// From when on an end of validity is worth a warning.
const WARN_BEFORE: Duration = Duration::from_secs(14 * 86_400);
