//! An authority as it is kept: one file with its secret, its certificate and what it has done.
//!
//! ```toml
//! fingerprint = "scca1…"
//! secret = "SC-SECRET-1…"
//! certificate = "-----BEGIN CERTIFICATE----- …"
//! crl = "-----BEGIN X509 CRL----- …"                # the last one, once there is one
//! policy = "-----BEGIN SEALCAST POLICY----- …"
//! ledger = "…"
//! ```

use std::path::PathBuf;

use sealcast::code::Code;
use sealcast::config::{FileError, Home, Lock, Overwrite, name_checked, read_secret, write_secret};
use sealcast_crypto::identity::{Authority, AuthoritySecret, TrustAnchor, pem};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::commands::Env;
use crate::hint::{Failure, nearest};

/// An authority of this user, with its file locked while it is changed.
#[derive(Debug)]
pub(crate) struct KeptAuthority {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    pub(crate) authority: Authority,
    /// The last revocation list, DER.
    pub(crate) crl: Option<Vec<u8>>,
    /// The last policy, as signed.
    pub(crate) policy: Option<Vec<u8>>,
    _lock: Lock,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    fingerprint: String,
    secret: Zeroizing<String>,
    certificate: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    crl: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    policy: Option<String>,
    ledger: String,
}

impl KeptAuthority {
    /// A new one, not yet on disk.
    pub(crate) fn new(home: &Home, name: &str, authority: Authority) -> Result<KeptAuthority, Failure> {
        let path = home.authority(name_checked(name)?);
        let lock = Lock::of(&path)?;
        Ok(KeptAuthority { name: name.to_owned(), path, authority, crl: None, policy: None, _lock: lock })
    }

    /// Reads one, and keeps others from changing it until this is dropped.
    pub(crate) fn open(home: &Home, name: &str) -> Result<KeptAuthority, Failure> {
        let path = home.authority(name_checked(name)?);
        let lock = Lock::of(&path)?;
        let text = Zeroizing::new(read_secret(&path)?);
        let file: File = toml::from_str(&text).map_err(|e| FileError::toml(&path, &text, &e))?;
        let wrong = |what: String| FileError::Content { path: path.clone(), what };
        let section =
            |label, text: &str, what: &str| pem::read(label, text).ok_or_else(|| wrong(format!("{what}: no PEM text")));
        let secret = AuthoritySecret::import(&file.secret).map_err(|e| wrong(format!("secret: {e}")))?;
        let ledger = file.ledger.parse().map_err(|e| wrong(format!("ledger: {e}")))?;
        let certificate = section(pem::CERTIFICATE, &file.certificate, "certificate")?;
        let authority = Authority::restore(&certificate, secret, ledger).map_err(|e| wrong(e.to_string()))?;
        let crl = file.crl.as_ref().map(|t| section(pem::CRL, t, "crl")).transpose()?;
        let policy = file.policy.as_ref().map(|t| section(pem::POLICY, t, "policy")).transpose()?;
        Ok(KeptAuthority { name: name.to_owned(), path, authority, crl, policy, _lock: lock })
    }

    /// Writes it; what it signed may leave the machine only afterwards (G6).
    pub(crate) fn save(&self, overwrite: Overwrite) -> Result<(), Failure> {
        let file = File {
            fingerprint: self.authority.fingerprint().to_string(),
            secret: self.authority.secret().export(),
            certificate: pem::write(pem::CERTIFICATE, self.authority.certificate().der()),
            crl: self.crl.as_ref().map(|der| pem::write(pem::CRL, der)),
            policy: self.policy.as_ref().map(|p| pem::write(pem::POLICY, p)),
            ledger: self.authority.ledger().to_string(),
        };
        let text = toml::to_string_pretty(&file).expect("strings in a table are valid TOML");
        let head = "# Who can read this file can issue certificates. Keep it secret, and keep a copy.";
        let text = Zeroizing::new(format!("{head}\n{text}"));
        Ok(write_secret(&self.path, text.as_bytes(), overwrite)?)
    }

    /// Whom those trust who trust this authority, with its last revocation list.
    pub(crate) fn anchor(&self) -> TrustAnchor {
        let mut anchor = self.authority.anchor().clone();
        if let Some(crl) = &self.crl {
            anchor.learn_crl(crl).expect("an authority accepts the list that it signed");
        }
        anchor
    }
}

/// The authority meant: by name, else the one named as the context, else the only one.
pub(crate) fn choose(env: &Env<'_>, named: Option<&str>) -> Result<String, Failure> {
    let all = env.home.authorities();
    if let Some(name) = named {
        if all.iter().any(|a| a == name) {
            return Ok(name.to_owned());
        }
        let failure = Failure::new(Code::NoAuthority, format!("there is no authority '{name}' here"));
        return Err(match nearest(name, all.iter().map(String::as_str)) {
            Some(better) => failure.hint(format!("did you mean '{better}'?")),
            None => failure.hint(format!("sealcast ca init {name}, or 'sealcast ca ls' for those that there are")),
        });
    }
    let context = sealcast::config::Contexts::load(&env.home)?;
    let context = env.global.ctx.as_deref().or(context.selected.as_deref());
    if let Some(name) = context.filter(|c| all.iter().any(|a| a == c)) {
        return Ok(name.to_owned());
    }
    match all.as_slice() {
        [only] => Ok(only.clone()),
        [] => Err(Failure::new(Code::NoAuthority, "there is no authority on this machine")
            .hint("sealcast init NAME makes one; if another machine has it, type this there")),
        _ => Err(Failure::new(Code::NoAuthority, format!("which authority? There are {}", all.join(", ")))
            .hint(format!("--ca {}", all[0]))),
    }
}
