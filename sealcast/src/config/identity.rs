//! An identity as it is kept: one file with its secret and, once it was invited, its certificate.
//!
//! ```toml
//! public = "scpub1…"
//! secret = "SC-SECRET-1…"
//! certificate = "-----BEGIN CERTIFICATE----- …"    # once issued, with:
//! authority = "-----BEGIN CERTIFICATE----- …"
//! crl = "-----BEGIN X509 CRL----- …"                # the newest known
//! policy = "-----BEGIN SEALCAST POLICY----- …"      # the newest known
//! vouchers = ["-----BEGIN CERTIFICATE----- …"]      # what others say of it to brokers: certificates and claims
//! [veil]
//! ward3 = "SC-SECRET-1…"
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use sealcast_crypto::hash::sha256;
#[cfg(feature = "brokers")]
use sealcast_crypto::identity::Attribute;
use sealcast_crypto::identity::{Certificate, Identity, MemberSecret, TrustAnchor, keytext, pem};
use sealcast_crypto::secret::Secret;
use sealcast_wire::CertHash;
#[cfg(feature = "brokers")]
use sealcast_wire::Utc;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::files::{FileError, Overwrite, read_secret, write_secret};
use super::paths::Home;
use super::voucher::Voucher;

/// An identity of this user.
#[derive(Debug)]
pub struct KeptIdentity {
    path: PathBuf,
    /// Its keys.
    pub secret: MemberSecret,
    /// Its place in the world, once an authority gave it one.
    pub membership: Option<Membership>,
    /// What issuers beside that authority say of it to brokers.
    pub vouchers: Vec<Voucher>,
}

/// What an authority gave to an identity.
#[derive(Clone, Debug)]
pub struct Membership {
    /// Says who it is and what it may do.
    pub certificate: Certificate,
    /// Whom it trusts, with the newest revocation list known here.
    pub anchor: TrustAnchor,
    /// The newest policy known here, as signed.
    pub policy: Option<Vec<u8>>,
    /// The bootstrap keys of its groups, by name.
    pub bootstrap_keys: BTreeMap<String, Secret<32>>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    public: String,
    secret: Zeroizing<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    certificate: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    authority: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    crl: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    policy: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    vouchers: Vec<String>,
    #[serde(default, rename = "veil")]
    bootstrap_key: BTreeMap<String, Zeroizing<String>>,
}

impl KeptIdentity {
    /// A new identity in the home's folder, not yet on disk.
    pub fn new(home: &Home, name: &str, secret: MemberSecret) -> KeptIdentity {
        KeptIdentity { path: home.identity(name), secret, membership: None, vouchers: Vec::new() }
    }

    /// Reads the identity of this name.
    ///
    /// # Errors
    /// It is missing, exposed, or damaged.
    pub fn load(home: &Home, name: &str) -> Result<KeptIdentity, FileError> {
        KeptIdentity::read(&home.identity(name))
    }

    /// Reads an identity's file.
    ///
    /// # Errors
    /// As [`KeptIdentity::load`].
    pub fn read(path: &Path) -> Result<KeptIdentity, FileError> {
        let text = Zeroizing::new(read_secret(path)?);
        let file: File = toml::from_str(&text).map_err(|e| FileError::toml(path, &text, &e))?;
        let wrong = |what: String| FileError::Content { path: path.to_owned(), what };
        let secret = MemberSecret::import(&file.secret).map_err(|e| wrong(format!("secret: {e}")))?;
        let membership = membership(&file).map_err(wrong)?;
        let vouchers = file.vouchers.iter().map(|text| Voucher::from_pem(text)).collect::<Result<_, _>>();
        let vouchers = vouchers.map_err(|why| wrong(format!("vouchers: {why}")))?;
        Ok(KeptIdentity { path: path.to_owned(), secret, membership, vouchers })
    }

    /// Writes the file.
    ///
    /// # Errors
    /// [`FileError::Exists`] under [`Overwrite::Never`], or the system's own.
    pub fn save(&self, overwrite: Overwrite) -> Result<(), FileError> {
        let mut file = File {
            public: self.secret.public().to_string(),
            secret: self.secret.export(),
            certificate: None,
            authority: None,
            crl: None,
            policy: None,
            vouchers: self.vouchers.iter().map(Voucher::to_pem).collect(),
            bootstrap_key: BTreeMap::new(),
        };
        if let Some(m) = &self.membership {
            file.certificate = Some(pem::write(pem::CERTIFICATE, m.certificate.der()));
            file.authority = Some(pem::write(pem::CERTIFICATE, m.anchor.certificate().der()));
            file.crl = m.anchor.crl().map(|crl| pem::write(pem::CRL, crl.der()));
            file.policy = m.policy.as_ref().map(|p| pem::write(pem::POLICY, p));
            file.bootstrap_key =
                m.bootstrap_keys.iter().map(|(g, v)| (g.clone(), keytext::export_bootstrap_key(v))).collect();
        }
        let name = self.name();
        let text = toml::to_string_pretty(&file).expect("strings in tables are valid TOML");
        let text = Zeroizing::new(format!("# Who can read this file is '{name}'. Keep it secret.\n{text}"));
        write_secret(&self.path, text.as_bytes(), overwrite)
    }

    /// The name of the file.
    pub fn name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Where it is kept.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// By what its clients' keys at brokers are kept: its certificate, or the key that others vouch for.
    pub fn holder(&self) -> CertHash {
        let key = || CertHash(sha256(&self.secret.public().signing.to_bytes()));
        self.membership.as_ref().map_or_else(key, |it| it.certificate.hash())
    }

    /// What is said of it to brokers at this time: by its certificate, and by others.
    #[cfg(feature = "brokers")]
    pub fn attributes(&self, at: Utc) -> Vec<Attribute> {
        let own = self.membership.iter().flat_map(|it| it.certificate.attributes().to_vec());
        let others = self.vouchers.iter().filter(|it| it.not_after() >= at);
        own.chain(others.flat_map(Voucher::attributes)).collect()
    }

    /// The identity, ready for a session; `None` if no authority has given it a certificate yet.
    ///
    /// # Errors
    /// [`FileError::Content`] if certificate, authority and keys do not belong together.
    pub fn identity(&self) -> Result<Option<Identity>, FileError> {
        let Some(m) = &self.membership else { return Ok(None) };
        let made = Identity::new(&m.certificate, &self.secret, m.anchor.clone());
        let made = made.map_err(|e| FileError::Content { path: self.path.clone(), what: e.to_string() })?;
        Ok(Some(
            m.bootstrap_keys.iter().fold(made, |identity, (group, bootstrap_key)| {
                identity.with_bootstrap_key(group, bootstrap_key.clone())
            }),
        ))
    }
}

impl Membership {
    /// The groups that it has a right in or a bootstrap key of, sorted.
    pub fn groups(&self) -> Vec<String> {
        let rights = self.certificate.rights().iter().map(|r| r.group.clone());
        let mut groups: Vec<String> = rights.chain(self.bootstrap_keys.keys().cloned()).collect();
        groups.sort();
        groups.dedup();
        groups
    }
}

fn membership(file: &File) -> Result<Option<Membership>, String> {
    let (certificate, authority) = match (&file.certificate, &file.authority) {
        (None, None) => return Ok(None),
        (Some(certificate), Some(authority)) => (certificate, authority),
        _ => return Err("certificate and authority come together or not at all".to_owned()),
    };
    let section = |label, text: &str, name: &str| pem::read(label, text).ok_or(format!("{name}: no PEM text"));
    let certificate = Certificate::parse(&section(pem::CERTIFICATE, certificate, "certificate")?);
    let certificate = certificate.map_err(|e| format!("certificate: {e}"))?;
    let anchor = TrustAnchor::new(&section(pem::CERTIFICATE, authority, "authority")?);
    let mut anchor = anchor.map_err(|e| format!("authority: {e}"))?;
    if let Some(crl) = &file.crl {
        anchor.learn_crl(&section(pem::CRL, crl, "crl")?).map_err(|e| format!("crl: {e}"))?;
    }
    let policy = file.policy.as_ref().map(|p| section(pem::POLICY, p, "policy")).transpose()?;
    let bootstrap_key = |(group, text): (&String, &Zeroizing<String>)| {
        let bootstrap_key =
            keytext::import_bootstrap_key(text).map_err(|e| format!("bootstrap key of {group}: {e}"))?;
        Ok((group.clone(), bootstrap_key))
    };
    let bootstrap_keys = file.bootstrap_key.iter().map(bootstrap_key).collect::<Result<_, String>>()?;
    Ok(Some(Membership { certificate, anchor, policy, bootstrap_keys }))
}

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha20Rng;
    use rand_core::SeedableRng;
    use sealcast_crypto::identity::{Act, Authority, Request, Right};
    use sealcast_crypto::signature::Algorithm;
    use sealcast_wire::Utc;

    use super::*;

    #[test]
    fn an_identity_is_read_as_it_was_kept() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::at(folder.path());
        let (now, mut rng) = (Utc(1_800_000_000), ChaCha20Rng::seed_from_u64(1));
        let mut authority = Authority::create("ward3", Algorithm::P256, now, &mut rng).unwrap();
        let mut kept = KeptIdentity::new(&home, "alice", MemberSecret::generate(Algorithm::Ed25519, &mut rng));
        kept.save(Overwrite::Never).unwrap();
        assert!(KeptIdentity::load(&home, "alice").unwrap().identity().unwrap().is_none(), "no certificate yet");

        let rights = [Right::new("ward3", Act::Both, "#").unwrap()].into_iter().collect();
        let request = Request { name: "alice".to_owned(), keys: kept.secret.public(), rights, attributes: vec![] };
        let certificate = authority.issue(&request, now, 90 * 86_400).unwrap();
        let mut anchor = authority.anchor().clone();
        anchor.learn_crl(&authority.crl(now, 86_400).unwrap()).unwrap();
        let bootstrap_keys = BTreeMap::from([("ward3".to_owned(), authority.bootstrap_key("ward3"))]);
        kept.membership = Some(Membership { certificate, anchor, policy: Some(b"SCP".to_vec()), bootstrap_keys });
        assert!(matches!(kept.save(Overwrite::Never), Err(FileError::Exists(_))));
        kept.save(Overwrite::Replace).unwrap();

        let again = KeptIdentity::load(&home, "alice").unwrap();
        let (was, is) = (kept.membership.as_ref().unwrap(), again.membership.as_ref().unwrap());
        assert_eq!(again.secret.public(), kept.secret.public());
        assert_eq!(is.certificate, was.certificate);
        assert_eq!(is.anchor.crl(), was.anchor.crl());
        assert_eq!((&is.policy, is.groups()), (&was.policy, vec!["ward3".to_owned()]));
        assert!(again.identity().unwrap().unwrap().has_bootstrap_key("ward3"));
    }

    #[test]
    fn a_damaged_file_says_what_is_wrong() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("id");
        for (text, part) in [
            ("secret = 1", "line"),
            ("public = \"\"\nsecret = \"x\"", "this is not a member's secret"),
            ("public = \"\"\nsecret = \"x\"\nfoo = 1", "unknown field"),
        ] {
            write_secret(&path, text.as_bytes(), Overwrite::Replace).unwrap();
            let error = KeptIdentity::read(&path).unwrap_err().to_string();
            let found = error.contains(part) || part == "line" && error.contains("id:1:");
            assert!(found, "{error}");
        }
    }
}
