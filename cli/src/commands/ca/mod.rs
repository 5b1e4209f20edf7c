//! `sealcast ca`: the authority of a group, on the machine that has its key.

mod inspect;
mod policy;
mod revoke;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use sealcast::code::Code;
use sealcast::config::{FileError, Home, KeptIdentity, Membership, Overwrite, name_checked, write_public};
use sealcast_crypto::identity::{Authority, Certificate, MemberSecret, PublicKeys, Request, keytext};
use sealcast_crypto::signature::Algorithm;
use sealcast_wire::Utc;
use serde_json::{Value, json};

use super::Env;
use super::grant::{Grant, attributes_shown, rights_shown};
use crate::authority::{KeptAuthority, choose};
use crate::hint::Failure;
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
  sealcast ca export -o insurer.pem      for brokers init --issuer insurer=insurer.pem elsewhere
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
    /// Write the authority's certificate as text, without its key: for those who are to know it by that
    Export {
        /// Where it goes [default: stdout]
        #[arg(long, short, value_name = "FILE")]
        out: Option<PathBuf>,
        /// Overwrite the file
        #[arg(long)]
        force: bool,
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
            Verb::Revoke { whom, which } => revoke::revoke(env, &whom, &which),
            Verb::Ls { name: None } => ls(env),
            Verb::Ls { name } => ls_of(env, &choose(env, name.as_deref())?),
            Verb::Inspect { file, which } => inspect::inspect(env, file.as_deref(), &which),
            Verb::Export { out, force, which } => export(env, out.as_deref(), force, &which),
            Verb::Crl { valid, out, which } => revoke::crl(env, valid, out.as_deref(), &which),
            Verb::Policy { file: None, which, .. } => policy::show(env, &which),
            Verb::Policy { file: Some(file), group, which } => policy::sign(env, &file, group.as_deref(), &which),
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
    let certificate = certify(env, &mut kept, name, identity.secret.public(), grant)?;
    let mut bootstrap_keys = identity.membership.take().map(|m| m.bootstrap_keys).unwrap_or_default();
    bootstrap_keys.insert(group.clone(), kept.authority.bootstrap_key(&group));
    let membership = Membership { certificate, anchor: kept.anchor(), policy: kept.policy.clone(), bootstrap_keys };
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
    let certificate = certify(env, &mut kept, name, keys, grant)?;
    env.output.say(certificate_line(&certificate, grant.group(&kept.name)));
    hand_out(env, certificate_json(&certificate, out), &certificate.to_pem(), out, force)
}

/// Issues a certificate, and says so where it ends before what was asked for; the ledger is durable when this returns (G6).
pub(crate) fn certify(
    env: &Env<'_>,
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
    let (ends, asked) = (certificate.not_after(), Utc(now().0.saturating_add(grant.valid_seconds())));
    if ends < kept.authority.certificate().not_after() || asked <= ends {
        return Ok(certificate);
    }
    let wanted = format!("not on {}, as --valid {} asks", date(asked), duration(grant.valid));
    env.output.warn(format!("the certificate of {name} ends on {}, with its authority, {wanted}", date(ends)));
    Ok(certificate)
}

/// Reads `scpub1…`.
pub(crate) fn public_keys(text: &str) -> Result<PublicKeys, Failure> {
    text.parse().map_err(|e| {
        let failure = Failure::new(Code::BadValue, format!("--for: {e}"));
        failure.hint("the other one types: sealcast id new NAME   (or: sealcast id export)")
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
        rows.push(vec![name, keytext::compared(&fingerprint), issued.to_string(), revoked.to_string(), until]);
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

fn export(env: &Env<'_>, out: Option<&Path>, force: bool, which: &Which) -> Result<(), Failure> {
    let kept = KeptAuthority::open(&env.home, &choose(env, which.authority.as_deref())?)?;
    let (certificate, fingerprint) = (kept.authority.certificate(), kept.authority.fingerprint().to_string());
    env.output.say(format!("{}   {fingerprint}", kept.name));
    let told = json!({ "name": kept.name, "fingerprint": fingerprint, "path": out });
    hand_out(env, told, &certificate.to_pem(), out, force)
}

/// Text to a file, or to stdout; for programs it is in the object, too.
fn hand_out(env: &Env<'_>, mut told: Value, text: &str, out: Option<&Path>, force: bool) -> Result<(), Failure> {
    let named = out.filter(|path| *path != Path::new("-"));
    if let Some(path) = named {
        let overwrite = if force { Overwrite::Replace } else { Overwrite::Never };
        write_public(&fs::canonicalize(path).unwrap_or(path.to_owned()), text.as_bytes(), overwrite)?;
    }
    if env.output.is_json() {
        told["pem"] = json!(text);
        return env.output.object(&told);
    }
    if named.is_none() { env.output.bytes(text.as_bytes()) } else { Ok(()) }
}

fn refused(error: impl std::fmt::Display) -> Failure {
    Failure::new(Code::BadValue, error)
}

/// Until when a certificate is good, compared with now: `None` if it is over.
pub(crate) fn left(until: Utc) -> Option<Duration> {
    u64::try_from(until.0 - now().0).ok().map(Duration::from_secs)
}

pub(crate) use inspect::{certificate_json, certificate_lines};
pub(crate) use sealcast_crypto::identity::authority::{CRL_VALIDITY_SECONDS, MEMBER_VALIDITY_SECONDS};
