//! `sealcast kdc register NAME`: a principal, and the file that it joins with.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use sealcast::code::Code;
use sealcast::config::{FileError, Home, KeptPrincipal, Overwrite, PrincipalError, name_checked, read_secret};
use sealcast::url::{Scheme, Url};
use sealcast_crypto::identity::{Act, Registration, registration::exchange_key};
use sealcast_crypto::secret::Secret;
use sealcast_crypto::signature::OriginKey;
use sealcast_kdc::Centre;
use sealcast_kdc::store::{principal, read_centre};
use sealcast_wire::Utc;
use serde_json::json;
use zeroize::Zeroizing;

use super::{At, DEFAULT_LISTEN, failed, granted, short};
use crate::commands::Env;
use crate::commands::grant::Patterns;
use crate::hint::Failure;
use crate::text::{date, now, parse_duration};

#[derive(Debug, Args)]
#[command(after_help = "\
Without --pub, --sub and --both the principal may do both with every topic. Anyone who has the file
is the principal: hand it over as a secret, or seal it with --passphrase-file. The file says where
the group is: on this machine's loopback, or what --url says. The centre is made at first use, and
may run meanwhile.

Examples:
  sealcast kdc register leader --group ward3 --lead --evict '#'
  sealcast kdc register robot7 --group ward3 --pub 'pose/robot7' --sub '#' --passphrase-file phrase
  sealcast kdc register alice --group ward3 -o - | ssh alice sealcast join -")]
pub(crate) struct Register {
    /// Its name
    name: String,
    /// The group that the rights hold in
    #[arg(long, value_name = "NAME")]
    group: String,
    #[command(flatten)]
    patterns: Patterns,
    /// May do both with topics of this pattern; may be repeated
    #[arg(long, value_name = "PATTERN")]
    both: Vec<String>,
    /// May lead the group, and stand by for its leader
    #[arg(long)]
    lead: bool,
    /// Mix an X25519 exchange into keys shared with others who have this, so that the centre cannot compute them
    #[arg(long)]
    x25519: bool,
    /// How long the registration holds
    #[arg(long, value_name = "TIME", default_value = "90d", value_parser = parse_duration)]
    ttl: Duration,
    /// Seal the secrets in the file by the pass phrase in this one
    #[arg(long, value_name = "FILE")]
    passphrase_file: Option<PathBuf>,
    /// Where the principal's file goes; - is stdout [default: NAME.principal]
    #[arg(long, short, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    at: At,
}

impl Register {
    pub(super) fn run(self, env: &Env<'_>) -> Result<(), Failure> {
        let name = name_checked(&self.name)?;
        let folder = self.at.folder(env)?;
        let out = self.out.clone().unwrap_or_else(|| PathBuf::from(format!("{name}.principal")));
        let to_stdout = out == Path::new("-");
        if !to_stdout && out.exists() {
            let failure = Failure::from(FileError::Exists(out));
            return Err(Failure::new(Code::Exists, failure.what()).hint("-o FILE names another one"));
        }
        let passphrase = self.passphrase_file.as_deref().map(read_passphrase).transpose()?;
        let signing = Secret::random(&mut crate::rng());
        let draft = self.draft(&signing)?;
        let fresh = Secret::random(&mut crate::rng());
        let mut centre = Centre::create(&folder, &fresh).map_err(|e| failed(e, &folder))?;
        let url = match &env.global.url {
            Some(url) => self.checked(url)?,
            None => self.default_url(centre.address().map_err(|e| failed(e, &folder))?)?,
        };
        let secret = read_centre(&folder).map_err(|e| failed(e, &folder))?;
        let registration = centre.register(&draft, now()).map_err(|e| failed(e, &folder))?;
        let kept =
            KeptPrincipal { path: out.clone(), principal: principal(&secret, registration, signing), url: Some(url) };
        let text = kept.text(passphrase.as_deref().map(String::as_str));
        let text = text.map_err(|e| unwritten(e.into(), name))?;
        if !to_stdout {
            kept.save(&text, Overwrite::Never).map_err(|e| unwritten(e.into(), name))?;
        } else if !env.output.is_json() {
            env.output.bytes(text.as_bytes())?;
        }
        said(env, &kept, to_stdout.then_some(&text), passphrase.is_some())
    }

    fn draft(&self, signing: &Secret<32>) -> Result<Registration, Failure> {
        let lead: &[String] = if self.lead { &["#".to_owned()] } else { &[] };
        let rights = self.patterns.rights(&self.group, &[(Act::Both, &self.both), (Act::Lead, lead)])?;
        let seconds = i64::try_from(self.ttl.as_secs()).unwrap_or(i64::MAX);
        if seconds == 0 {
            return Err(Failure::new(Code::BadValue, "--ttl: a registration holds for a second at least"));
        }
        Ok(Registration {
            realm: [0; 32],
            serial: 0,
            name: self.name.as_str().into(),
            key: OriginKey::from_seed(signing).public().clone(),
            exchange: self.x25519.then(|| exchange_key(signing)),
            // Others' clocks may be behind ours.
            not_before: now().0 - CLOCKS_APART_SECONDS,
            not_after: now().0.saturating_add(seconds),
            rights,
        })
    }

    /// A URL of the group, as long as its keys come from a centre: with another one nobody would find its principal.
    fn checked(&self, text: &str) -> Result<String, Failure> {
        let url = Url::parse(text)?;
        let group = &self.group;
        let example = format!("udpm://239.255.76.67:7667?keys=center&group={group}&kdc=HOST:PORT");
        match url.keys {
            Scheme::Center if url.options.group.as_ref().is_none_or(|it| it == group) => Ok(text.to_owned()),
            Scheme::Center => Err(Failure::new(Code::BadUrl, format!("{text}: it is not a URL of the group {group}"))),
            _ => Err(Failure::new(Code::BadUrl, format!("{text}: its keys come from no centre"))),
        }
        .map_err(|failure| failure.hint(format!("--url '{example}'")))
    }

    /// The group on this machine's loopback, with the centre where it listens or last did.
    fn default_url(&self, listens: Option<SocketAddr>) -> Result<String, Failure> {
        let at = listens.unwrap_or_else(|| DEFAULT_LISTEN.parse().expect("an address"));
        let group = &self.group;
        let url = |at: &str| format!("udpm://239.255.76.67:7667?ttl=0&keys=center&group={group}&kdc={at}");
        if name_checked(group).is_err() {
            let what = format!("the group's name '{group}' has characters that no URL of a group can have");
            return Err(Failure::new(Code::BadValue, what).hint("letters, digits or . _ - @"));
        }
        if at.ip().is_unspecified() {
            let what = format!("the centre listens on {at}: it is not known by which address the others reach it");
            return Err(
                Failure::new(Code::NoUrl, what).hint(format!("--url '{}'", url(&format!("HOST:{}", at.port()))))
            );
        }
        Ok(url(&at.to_string()))
    }
}

fn said(env: &Env<'_>, kept: &KeptPrincipal, text: Option<&Zeroizing<String>>, sealed: bool) -> Result<(), Failure> {
    let it = &kept.principal.registration;
    let (hash, to) = (it.hash(), Home::shown(&kept.path));
    let out = if text.is_some() { "stdout".to_owned() } else { to.clone() };
    env.output.object(&json!({
        "name": *it.name, "hash": hex::encode(hash.0), "serial": it.serial, "principal": kept.path, "url": kept.url,
        "rights": it.rights.iter().map(ToString::to_string).collect::<Vec<_>>(), "valid_to": date(Utc(it.not_after)),
        "sealed": sealed, "text": text.map(|text| text.as_str()),
    }))?;
    let seal = if sealed { "sealed by the pass phrase" } else { "a secret" };
    let (shown, ends) = (short(&hash.0), date(Utc(it.not_after)));
    let line = format!("principal {out}   {} ({shown})   {}   #{} to {ends}   {seal}", it.name, granted(it), it.serial);
    if text.is_some() {
        env.output.say(line);
    } else {
        env.output.line(line)?;
    }
    env.output.say(format!("          Next:  there:  sealcast join {to}"));
    Ok(())
}

/// A pass phrase: the first line of a file that only its owner can read.
pub(crate) fn read_passphrase(path: &Path) -> Result<Zeroizing<String>, Failure> {
    let text = Zeroizing::new(read_secret(path)?);
    let line = text.lines().next().unwrap_or_default();
    if line.is_empty() {
        let what = format!("{}: its first line, the pass phrase, is empty", Home::shown(path));
        return Err(Failure::new(Code::Content, what));
    }
    Ok(Zeroizing::new(line.to_owned()))
}

/// It is registered, and its secrets are lost.
fn unwritten(error: PrincipalError, name: &str) -> Failure {
    let failure = Failure::from(error);
    let what = format!("{name} is registered, and its file could not be written: {}", failure.what());
    Failure::new(Code::System, what).hint(format!("sealcast kdc revoke {name}, then register it again"))
}

/// A registration holds from so long before it was made.
const CLOCKS_APART_SECONDS: i64 = 60;
