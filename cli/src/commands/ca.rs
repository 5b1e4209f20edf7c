//! `sealcast ca`: the authority of a group, on the machine that has its key.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use sealcast::code::Code;
use sealcast::config::{FileError, Home, KeptIdentity, Membership, Overwrite, name_checked, read_public, write_public};
use sealcast_crypto::identity::statement::{Compartment, OnStale, Policy, SignedPolicy};
use sealcast_crypto::identity::{
    Authority, Certificate, Crl, Invite, MemberSecret, Pattern, PublicKeys, Request, Serial, TrustAnchor, keytext, pem,
};
use sealcast_crypto::signature::Algorithm;
use sealcast_wire::Utc;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Env;
use super::grant::{Grant, attributes_shown, rights_shown};
use crate::authority::{KeptAuthority, choose};
use crate::hint::{Failure, nearest};
use crate::text::{date, duration, instant, now, parse_duration, row, table};

/// The authority of a group: issue, revoke, inspect, policy
#[derive(Debug, Args)]
#[command(
    disable_help_subcommand = true,
    after_help = "\
Examples:
  sealcast ca issue robot7 --pub 'pose/robot7' --sub '#'     an identity for this machine
  sealcast ca ls ward3                                       whom it gave certificates
  sealcast ca revoke carol                                   takes effect in running groups, too
  sealcast ca inspect robot7.invite"
)]
pub(crate) struct Ca {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Make a new authority
    Init {
        /// Its name, and by default that of its group
        name: String,
        /// Kind of its key
        #[arg(long, default_value = "p256")]
        algorithm: Kind,
        /// Replace an authority of this name: nobody will trust its certificates any more
        #[arg(long)]
        force: bool,
    },
    /// Issue a certificate: to an identity of this machine, or with --for as a file
    Issue {
        /// The holder's name
        name: String,
        /// The holder's public key; its certificate is then written as text [default: an identity NAME here]
        #[arg(long = "for", value_name = "scpub1…")]
        key: Option<String>,
        #[command(flatten)]
        grant: Grant,
        #[command(flatten)]
        which: Which,
        /// Where the certificate goes, with --for [default: stdout]
        #[arg(long, short, value_name = "FILE", requires = "key")]
        out: Option<PathBuf>,
        /// Overwrite the file
        #[arg(long)]
        force: bool,
    },
    /// Take certificates back, and sign the list that says so
    Revoke {
        /// The holder's name (all its certificates), or the serial number of one
        whom: String,
        #[command(flatten)]
        which: Which,
    },
    /// List authorities, or with a name what one has issued
    Ls {
        /// An authority
        name: Option<String>,
    },
    /// Say what is in a certificate, list, policy or invite
    Inspect {
        /// A file, or - for stdin [default: the authority's own certificate]
        file: Option<PathBuf>,
        #[command(flatten)]
        which: Which,
    },
    /// Sign a new revocation list and write it as text
    Crl {
        /// Until the next one must be there
        #[arg(long, value_name = "TIME", default_value = "30d", value_parser = parse_duration)]
        valid: Duration,
        /// Where it goes [default: stdout]
        #[arg(long, short, value_name = "FILE")]
        out: Option<PathBuf>,
        #[command(flatten)]
        which: Which,
    },
    /// Sign a policy (topic compartments, age of revocation lists), or show the last one
    #[command(after_help = "\
A policy is a TOML file:
  max_crl_age = \"7d\"                  # optional
  on_stale = \"warn\"                   # or refuse-joins, stop
  [[compartment]]                     # a topic belongs to the first one with a pattern for it
  name = \"orders\"
  patterns = [\"ward3/orders/#\"]")]
    Policy {
        /// The policy, TOML; without it the last one is shown
        file: Option<PathBuf>,
        /// The group that it is for [default: the authority's name]
        #[arg(long, value_name = "NAME")]
        group: Option<String>,
        #[command(flatten)]
        which: Which,
    },
}

/// Which authority.
#[derive(Debug, Args)]
pub(crate) struct Which {
    /// The authority [default: the context's, or the only one]
    #[arg(long = "ca", value_name = "NAME")]
    pub(crate) authority: Option<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Kind {
    P256,
    Ed25519,
}

impl From<Kind> for Algorithm {
    fn from(kind: Kind) -> Algorithm {
        match kind {
            Kind::P256 => Algorithm::P256,
            Kind::Ed25519 => Algorithm::Ed25519,
        }
    }
}

impl Ca {
    pub(crate) fn run(self, env: &Env<'_>) -> Result<(), Failure> {
        match self.verb {
            Verb::Init { name, algorithm, force } => init(env, &name, algorithm.into(), force),
            Verb::Issue { name, key: Some(key), grant, which, out, force } => {
                issue_for(env, &name, &key, &grant, &which, out.as_deref(), force)
            }
            Verb::Issue { name, grant, which, .. } => issue_here(env, &name, &grant, &which),
            Verb::Revoke { whom, which } => revoke(env, &whom, &which),
            Verb::Ls { name: None } => ls(env),
            Verb::Ls { name } => ls_of(env, &choose(env, name.as_deref())?),
            Verb::Inspect { file, which } => inspect(env, file.as_deref(), &which),
            Verb::Crl { valid, out, which } => crl(env, valid, out.as_deref(), &which),
            Verb::Policy { file: None, which, .. } => show_policy(env, &which),
            Verb::Policy { file: Some(file), group, which } => policy(env, &file, group.as_deref(), &which),
        }
    }
}

fn init(env: &Env<'_>, name: &str, algorithm: Algorithm, force: bool) -> Result<(), Failure> {
    sealcast_crypto::identity::check_group(name).map_err(|e| Failure::new(Code::BadValue, e))?;
    let authority = Authority::create(name, algorithm, now(), &mut crate::rng());
    let kept = KeptAuthority::new(&env.home, name, authority.map_err(refused)?)?;
    kept.save(if force { Overwrite::Replace } else { Overwrite::Never })?;
    let fingerprint = kept.authority.fingerprint().to_string();
    let until = date(kept.authority.certificate().not_after());
    env.output.object(&json!({ "name": name, "fingerprint": fingerprint, "valid_to": until, "path": kept.path }))?;
    let at = Home::shown(&kept.path);
    env.output.line(format!("CA        {fingerprint}  (valid to {until})  {at}   [0600]"))?;
    env.output.say(format!("          Next:  sealcast ca issue NAME --ca {name}   |   sealcast invite --for scpub1…"));
    Ok(())
}

/// Issues to an identity of this user, making it if need be.
fn issue_here(env: &Env<'_>, name: &str, grant: &Grant, which: &Which) -> Result<(), Failure> {
    let mut kept = KeptAuthority::open(&env.home, &choose(env, which.authority.as_deref())?)?;
    let group = grant.group(&kept.name).to_owned();
    let existing = env.home.identity(name_checked(name)?).exists();
    let mut identity = if existing {
        KeptIdentity::load(&env.home, name)?
    } else {
        KeptIdentity::new(&env.home, name, MemberSecret::generate(Algorithm::Ed25519, &mut crate::rng()))
    };
    if let Some(other) =
        identity.membership.as_ref().filter(|m| m.anchor.certificate().hash() != kept.authority.certificate().hash())
    {
        let of = other.anchor.certificate().name();
        let failure =
            Failure::new(Code::Exists, format!("identity {name} has a certificate of another authority, {of}"));
        return Err(failure.hint("choose another name"));
    }
    let certificate = certify(&mut kept, name, identity.secret.public(), grant)?;
    let mut veils = identity.membership.take().map(|m| m.veils).unwrap_or_default();
    veils.insert(group.clone(), kept.authority.veil(&group));
    let membership = Membership { certificate, anchor: kept.anchor(), policy: kept.policy.clone(), veils };
    let certificate = membership.certificate.clone();
    identity.membership = Some(membership);
    identity.save(if existing { Overwrite::Replace } else { Overwrite::Never })?;
    env.output.object(&certificate_json(&certificate, Some(identity.path())))?;
    let at = Home::shown(identity.path());
    env.output.line(format!("{}   {at}   [0600]", certificate_line(&certificate, &group)))?;
    env.output.say(format!("          Next:  sealcast --id {name} sub '#'"));
    Ok(())
}

fn issue_for(
    env: &Env<'_>,
    name: &str,
    key: &str,
    grant: &Grant,
    which: &Which,
    out: Option<&Path>,
    force: bool,
) -> Result<(), Failure> {
    let keys = public_keys(key)?;
    if let Some(path) = out.filter(|p| p.exists() && !force) {
        return Err(FileError::Exists(path.to_owned()).into());
    }
    let mut kept = KeptAuthority::open(&env.home, &choose(env, which.authority.as_deref())?)?;
    let certificate = certify(&mut kept, name, keys, grant)?;
    env.output.say(certificate_line(&certificate, grant.group(&kept.name)));
    if env.output.is_json() {
        return env.output.object(&with_text(certificate_json(&certificate, out), &certificate.to_pem()));
    }
    put(env, out, &certificate.to_pem(), force)
}

/// Issues a certificate; the ledger is durable when this returns (G6).
pub(crate) fn certify(
    kept: &mut KeptAuthority,
    name: &str,
    keys: PublicKeys,
    grant: &Grant,
) -> Result<Certificate, Failure> {
    let rights = grant.rights(grant.group(&kept.name))?;
    let attributes = grant.attributes(&kept.name)?;
    let request = Request { name: name.to_owned(), keys, rights, attributes };
    let certificate = kept.authority.issue(&request, now(), grant.valid_seconds()).map_err(refused)?;
    kept.save(Overwrite::Replace)?;
    Ok(certificate)
}

/// Reads `scpub1…`.
pub(crate) fn public_keys(text: &str) -> Result<PublicKeys, Failure> {
    text.parse().map_err(|e| {
        let failure = Failure::new(Code::BadValue, format!("--for: {e}"));
        failure.hint("the other one types: sealcast id new NAME   (or: sealcast id export)")
    })
}

fn revoke(env: &Env<'_>, whom: &str, which: &Which) -> Result<(), Failure> {
    let mut kept = KeptAuthority::open(&env.home, &choose(env, which.authority.as_deref())?)?;
    let serials = serials_of(&kept.authority, whom)?;
    for serial in &serials {
        kept.authority.revoke(*serial, now()).map_err(refused)?;
    }
    let list = kept.authority.crl(now(), CRL_VALIDITY_SECONDS).map_err(refused)?;
    kept.crl = Some(list.clone());
    kept.save(Overwrite::Replace)?;
    let told = tell_identities(env, &kept)?;
    let groups = super::group::teach(env, &kept, &list);
    let shown: Vec<String> = serials.iter().map(|s| format!("#{s}")).collect();
    let number = kept.authority.ledger().crl_number();
    env.output.object(&json!({
        "revoked": shown, "whom": whom, "crl": number, "identities": told, "sessions": groups,
    }))?;
    let what = if shown.len() == 1 { "certificate" } else { "certificates" };
    env.output.line(format!("revoked {what} {} of {whom} · revocation list {number}", shown.join(", ")))?;
    match groups.len() {
        0 => env.output.say("no session runs here; give members the list: sealcast ca crl -o ward.crl"),
        _ => env.output.say(format!("told the running session of {}; members pass it on", groups.join(", "))),
    }
    Ok(())
}

/// The valid certificates of a name, or the one of a serial.
fn serials_of(authority: &Authority, whom: &str) -> Result<Vec<Serial>, Failure> {
    let ledger = authority.ledger();
    let digits = whom.strip_prefix('#').or(Some(whom).filter(|w| w.bytes().all(|b| b.is_ascii_digit())));
    if let Some(serial) = digits.filter(|_| ledger.issued().all(|(_, i)| i.name != whom)) {
        let serial: Serial =
            serial.parse().map_err(|_| Failure::new(Code::BadValue, format!("«{whom}» is no serial number")))?;
        if ledger.issued().all(|(s, _)| *s != serial) {
            return Err(
                Failure::new(Code::Missing, format!("no certificate #{serial} was issued")).hint("sealcast ca ls NAME")
            );
        }
        return Ok(vec![serial]);
    }
    let valid = ledger.valid_of(whom, now());
    if !valid.is_empty() {
        return Ok(valid);
    }
    let known = ledger.issued().any(|(_, i)| i.name == whom);
    let what = if known { "has no valid certificate" } else { "never had a certificate" };
    let failure = Failure::new(Code::Missing, format!("{whom} {what} of this authority"));
    Err(match nearest(whom, ledger.issued().map(|(_, i)| i.name.as_str())) {
        Some(better) if !known => failure.hint(format!("did you mean «{better}»?")),
        _ => failure.hint("sealcast ca ls NAME"),
    })
}

/// Brings the newest list and policy to the identities of this user that trust the authority.
fn tell_identities(env: &Env<'_>, kept: &KeptAuthority) -> Result<Vec<String>, Failure> {
    let mut told = vec![];
    for name in env.home.identities() {
        // A damaged identity of somebody else's group is none of this command's business.
        let Ok(mut identity) = KeptIdentity::load(&env.home, &name) else { continue };
        let Some(m) = &mut identity.membership else { continue };
        if m.anchor.certificate().hash() != kept.authority.certificate().hash() {
            continue;
        }
        m.anchor = kept.anchor();
        m.policy = kept.policy.clone();
        identity.save(Overwrite::Replace)?;
        told.push(name);
    }
    Ok(told)
}

fn ls(env: &Env<'_>) -> Result<(), Failure> {
    let names = env.home.authorities();
    if names.is_empty() {
        env.output.say("no authorities here; sealcast init NAME makes one");
        return Ok(());
    }
    let mut rows = vec![row(["CA", "FINGERPRINT", "ISSUED", "REVOKED", "VALID TO"])];
    for name in names {
        let kept = KeptAuthority::open(&env.home, &name)?;
        let ledger = kept.authority.ledger();
        let issued = ledger.issued().count();
        let revoked = ledger.issued().filter(|(s, _)| ledger.revoked(s).is_some()).count();
        let fingerprint = kept.authority.fingerprint().to_string();
        let until = date(kept.authority.certificate().not_after());
        env.output.object(&json!({
            "ca": name, "fingerprint": fingerprint, "issued": issued, "revoked": revoked, "valid_to": until,
        }))?;
        rows.push(vec![name, keytext::short(&fingerprint), issued.to_string(), revoked.to_string(), until]);
    }
    env.output.line(table(&rows))
}

fn ls_of(env: &Env<'_>, name: &str) -> Result<(), Failure> {
    let kept = KeptAuthority::open(&env.home, name)?;
    let ledger = kept.authority.ledger();
    let mut rows = vec![row(["SERIAL", "NAME", "VALID TO", "STATE"])];
    for (serial, i) in ledger.issued() {
        let state = match ledger.revoked(serial) {
            Some(when) => format!("revoked {}", instant(when)),
            None if i.not_after < now() => "expired".to_owned(),
            None => "good".to_owned(),
        };
        env.output.object(&json!({
            "serial": serial.to_string(), "name": i.name, "valid_to": instant(i.not_after), "state": state,
        }))?;
        rows.push(vec![format!("#{serial}"), i.name.clone(), date(i.not_after), state]);
    }
    env.output.line(table(&rows))
}

fn crl(env: &Env<'_>, valid: Duration, out: Option<&Path>, which: &Which) -> Result<(), Failure> {
    let mut kept = KeptAuthority::open(&env.home, &choose(env, which.authority.as_deref())?)?;
    let seconds = i64::try_from(valid.as_secs()).unwrap_or(i64::MAX);
    let list = kept.authority.crl(now(), seconds).map_err(refused)?;
    kept.crl = Some(list.clone());
    kept.save(Overwrite::Replace)?;
    tell_identities(env, &kept)?;
    super::group::teach(env, &kept, &list);
    let text = pem::write(pem::CRL, &list);
    let number = kept.authority.ledger().crl_number();
    if env.output.is_json() {
        return env.output.object(&with_text(json!({ "crl": number, "path": out }), &text));
    }
    env.output.say(format!("revocation list {number}, due again in {}", duration(valid)));
    put(env, out, &text, true)
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyFile {
    #[serde(default)]
    max_crl_age: Option<String>,
    #[serde(default)]
    on_stale: Option<String>,
    #[serde(default)]
    compartment: Vec<CompartmentFile>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CompartmentFile {
    name: String,
    patterns: Vec<String>,
}

fn policy(env: &Env<'_>, file: &Path, group: Option<&str>, which: &Which) -> Result<(), Failure> {
    let text = read_public(file)?;
    let draft: PolicyFile = toml::from_str(&text).map_err(|e| FileError::toml(file, &text, &e))?;
    let mut kept = KeptAuthority::open(&env.home, &choose(env, which.authority.as_deref())?)?;
    let draft = draft_of(&draft, group.unwrap_or(&kept.name)).map_err(|wrong| mistakes(file, &wrong))?;
    let signed = kept.authority.policy(&draft).map_err(refused)?;
    kept.policy = Some(signed.clone());
    kept.save(Overwrite::Replace)?;
    let told = tell_identities(env, &kept)?;
    let sessions = super::group::teach(env, &kept, &signed);
    let number = kept.authority.ledger().policy_number();
    env.output.object(&json!({ "policy": number, "group": draft.group, "identities": told, "sessions": sessions }))?;
    env.output.line(format!("policy {number} for {} signed: {} compartments", draft.group, draft.compartments.len()))
}

/// All mistakes of the file at once.
fn draft_of(file: &PolicyFile, group: &str) -> Result<Policy, Vec<String>> {
    let mut wrong = vec![];
    let max_crl_age_seconds = file.max_crl_age.as_ref().and_then(|text| match parse_duration(text) {
        Ok(age) => u32::try_from(age.as_secs()).ok().filter(|s| *s > 0),
        Err(e) => {
            wrong.push(format!("max_crl_age = \"{text}\": {e}"));
            None
        }
    });
    let on_stale = match file.on_stale.as_deref() {
        None | Some("warn") => OnStale::Warn,
        Some("refuse-joins") => OnStale::RefuseJoins,
        Some("stop") => OnStale::Stop,
        Some(other) => {
            wrong.push(format!("on_stale = \"{other}\": there are warn, refuse-joins, stop"));
            OnStale::Warn
        }
    };
    let mut compartments = vec![];
    for c in &file.compartment {
        let mut patterns = vec![];
        for text in &c.patterns {
            match text.parse::<Pattern>() {
                Ok(pattern) => patterns.push(pattern),
                Err(e) => wrong.push(format!("compartment {}: «{text}»: {e}", c.name)),
            }
        }
        if c.patterns.is_empty() {
            wrong.push(format!("compartment {} has no patterns", c.name));
        }
        compartments.push(Compartment { name: c.name.clone(), patterns });
    }
    if !wrong.is_empty() {
        return Err(wrong);
    }
    Ok(Policy { group: group.to_owned(), number: 0, compartments, max_crl_age_seconds, on_stale })
}

fn mistakes(file: &Path, wrong: &[String]) -> Failure {
    let more = if wrong.len() > 1 { format!("{} mistakes: ", wrong.len()) } else { String::new() };
    Failure::new(Code::Content, format!("{}: {more}{}", Home::shown(file), wrong.join("; ")))
        .hint("sealcast ca policy --help shows an example")
}

fn show_policy(env: &Env<'_>, which: &Which) -> Result<(), Failure> {
    let kept = KeptAuthority::open(&env.home, &choose(env, which.authority.as_deref())?)?;
    let Some(bytes) = &kept.policy else {
        env.output.say("no policy is signed: compartments follow from the members' sub rights");
        return env.output.object(&json!({ "policy": null }));
    };
    let (lines, object) = policy_shown(bytes, kept.authority.anchor())?;
    env.output.object(&object)?;
    env.output.line(lines)
}

fn policy_shown(bytes: &[u8], anchor: &TrustAnchor) -> Result<(String, Value), Failure> {
    let signed = SignedPolicy::verify(bytes, anchor).map_err(|e| Failure::new(Code::Signature, e))?;
    let p = signed.policy();
    let age = p.max_crl_age_seconds.map_or("any age".to_owned(), |s| duration(Duration::from_secs(s.into())));
    let mut lines =
        vec![format!("policy {} of {}: revocation lists up to {age}, then {:?}", p.number, p.group, p.on_stale)];
    let patterns = |c: &Compartment| c.patterns.iter().map(ToString::to_string).collect::<Vec<_>>();
    lines.extend(p.compartments.iter().map(|c| format!("  {}: {}", c.name, patterns(c).join(" "))));
    let compartments: Vec<Value> =
        p.compartments.iter().map(|c| json!({ "name": c.name, "patterns": patterns(c) })).collect();
    let object = json!({
        "kind": "policy", "policy": p.number, "group": p.group,
        "max_crl_age_seconds": p.max_crl_age_seconds, "compartments": compartments,
    });
    Ok((lines.join("\n"), object))
}

fn inspect(env: &Env<'_>, file: Option<&Path>, which: &Which) -> Result<(), Failure> {
    let Some(file) = file else {
        let kept = KeptAuthority::open(&env.home, &choose(env, which.authority.as_deref())?)?;
        return show_certificate(env, kept.authority.certificate());
    };
    let text = super::read_text(file)?;
    if let Some(der) = pem::read(pem::CERTIFICATE, &text) {
        let certificate = Certificate::parse(&der);
        return show_certificate(env, &certificate.map_err(|e| wrong_content(file, &e))?);
    }
    if let Ok(sealed) = Invite::from_pem(&text) {
        env.output.object(&json!({ "kind": "invite", "bytes": sealed.len() }))?;
        return env.output.line(format!(
            "invite    {} B, sealed for one key: only its holder can open it\n          Next:  sealcast join {}",
            sealed.len(),
            file.display()
        ));
    }
    let anchor = KeptAuthority::open(&env.home, &choose(env, which.authority.as_deref())?)?.anchor();
    if let Some(der) = pem::read(pem::CRL, &text) {
        let list = Crl::verify(&der, &anchor).map_err(|e| Failure::new(Code::Signature, e))?;
        let revoked: Vec<String> = list.revoked().map(|s| format!("#{s}")).collect();
        env.output.object(&json!({
            "kind": "crl", "number": list.number(), "issued": instant(list.this_update()),
            "next": list.next_update().map(instant), "revoked": revoked,
        }))?;
        let next = list.next_update().map_or("-".to_owned(), date);
        let revoked = if revoked.is_empty() { "nothing".to_owned() } else { revoked.join(" ") };
        return env.output.line(format!(
            "revocation list {} of {}, next {next}: {revoked}",
            list.number(),
            date(list.this_update())
        ));
    }
    if let Some(bytes) = pem::read(pem::POLICY, &text) {
        let (lines, object) = policy_shown(&bytes, &anchor)?;
        env.output.object(&object)?;
        return env.output.line(lines);
    }
    let what = "no certificate, revocation list, policy or invite is in it";
    Err(Failure::new(Code::Content, format!("{}: {what}", Home::shown(file))))
}

/// All that a certificate says, one fact a line.
pub(crate) fn show_certificate(env: &Env<'_>, c: &Certificate) -> Result<(), Failure> {
    env.output.object(&certificate_json(c, None))?;
    env.output.line(certificate_lines(c).join("\n"))
}

/// All that a certificate says, one fact a line.
pub(crate) fn certificate_lines(c: &Certificate) -> Vec<String> {
    let mut lines = vec![
        format!("name        {}{}", c.name(), if c.is_authority() { "   (an authority)" } else { "" }),
        format!("serial      #{}", c.serial()),
        format!("valid       {} to {}", date(c.not_before()), date(c.not_after())),
        format!("sha256      {}", hex(&c.hash().0)),
    ];
    if !c.attributes().is_empty() {
        lines.push(format!("attributes  {}", attributes_shown(c.attributes())));
    }
    for group in c.rights().groups() {
        lines.push(format!("in {group:<8} {}", rights_shown(c.rights(), group)));
    }
    lines
}

/// The same as an object.
pub(crate) fn certificate_json(c: &Certificate, path: Option<&Path>) -> Value {
    let rights: Vec<Value> = c
        .rights()
        .iter()
        .map(|r| json!({ "group": r.group, "act": r.act.name(), "pattern": r.pattern.to_string() }))
        .collect();
    let attributes: serde_json::Map<String, Value> =
        c.attributes().iter().map(|a| (a.key.clone(), json!(a.value))).collect();
    json!({
        "kind": "certificate", "name": c.name().to_string(), "serial": c.serial().to_string(),
        "authority": c.is_authority(), "not_before": instant(c.not_before()), "not_after": instant(c.not_after()),
        "sha256": hex(&c.hash().0), "rights": rights, "attributes": attributes, "path": path,
    })
}

/// `alice   role=nurse ward=3   pub ward3/vitals   to 2027-02-18`
pub(crate) fn certificate_line(c: &Certificate, group: &str) -> String {
    let mut parts = vec![c.name().to_string()];
    if !c.attributes().is_empty() {
        parts.push(attributes_shown(c.attributes()));
    }
    parts.push(rights_shown(c.rights(), group));
    parts.push(format!("#{} to {}", c.serial(), date(c.not_after())));
    parts.join("   ")
}

fn with_text(mut object: Value, text: &str) -> Value {
    object["pem"] = json!(text);
    object
}

/// Text to a file, or to stdout.
fn put(env: &Env<'_>, out: Option<&Path>, text: &str, force: bool) -> Result<(), Failure> {
    match out.filter(|p| *p != Path::new("-")) {
        None => env.output.bytes(text.as_bytes()),
        Some(path) => {
            let overwrite = if force { Overwrite::Replace } else { Overwrite::Never };
            Ok(write_public(&fs::canonicalize(path).unwrap_or(path.to_owned()), text.as_bytes(), overwrite)?)
        }
    }
}

fn wrong_content(file: &Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::new(Code::Content, format!("{}: {error}", Home::shown(file)))
}

fn refused(error: impl std::fmt::Display) -> Failure {
    Failure::new(Code::BadValue, error)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Until when a certificate is good, compared with now: `None` if it is over.
pub(crate) fn left(until: Utc) -> Option<Duration> {
    u64::try_from(until.0 - now().0).ok().map(Duration::from_secs)
}

pub(crate) use sealcast_crypto::identity::authority::{CRL_VALIDITY_SECONDS, MEMBER_VALIDITY_SECONDS};
