//! A principal of a key distribution centre as it is kept: one file with what the centre registered and its secrets, which
//! a pass phrase may seal.
//!
//! ```toml
//! kind = "principal"
//! registration = "5343524547…"         # hexadecimal
//! url = "udpm://…"                     # where its group is, if the centre said so
//! secret = "SC-SECRET-1…"              # long-term keys and signing seed; or, under a pass phrase, [sealed]
//! [bootstrap]
//! ward3 = "SC-SECRET-1…"
//!
//! [sealed]                             # AES-256-GCM over a table of secret and bootstrap
//! ciphertext = "…"
//! [sealed.key]
//! kdf = "argon2id"
//! memory_kib = 65536
//! passes = 3
//! lanes = 4
//! salt = "…"
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use sealcast_crypto::aead::{Key, Suite, TAG_LEN};
use sealcast_crypto::hash::Transcript;
use sealcast_crypto::identity::{Principal, Registration, keytext};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::files::{FileError, Overwrite, read_secret, write_secret};
use super::passphrase::Stretch;
use super::paths::Home;
use crate::io::rng;

/// A principal of this user.
#[derive(Clone)]
pub struct KeptPrincipal {
    /// Where it is kept.
    pub path: PathBuf,
    /// What the centre registered, and the secrets.
    pub principal: Principal,
    /// Where its group is.
    pub url: Option<String>,
}

/// A principal's file as it was read: what anybody may know of it, before its secrets are opened.
pub struct PrincipalFile {
    path: PathBuf,
    text: Zeroizing<String>,
    content: Content,
    registration: Registration,
}

/// Why a principal's file was not read or written.
#[derive(Debug, thiserror::Error)]
pub enum PrincipalError {
    /// The file.
    #[error(transparent)]
    File(#[from] FileError),
    /// A pass phrase seals its secrets, and none was given.
    #[error("{} is sealed by a pass phrase", .0.display())]
    Sealed(PathBuf),
    /// It is not the one that sealed it; or the file was changed.
    #[error("{}: the pass phrase is wrong, or the file was changed", .0.display())]
    WrongPassphrase(PathBuf),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    kind: String,
    registration: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    url: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    secret: Option<Zeroizing<String>>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    bootstrap: BTreeMap<String, Zeroizing<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sealed: Option<Sealed>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sealed {
    ciphertext: String,
    key: Stretch,
}

/// What a pass phrase seals, as TOML.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Secrets {
    secret: Zeroizing<String>,
    bootstrap: BTreeMap<String, Zeroizing<String>>,
}

impl KeptPrincipal {
    /// Reads the principal of this name.
    ///
    /// # Errors
    /// It is missing, exposed or damaged; or its pass phrase is needed or wrong.
    pub fn load(home: &Home, name: &str, passphrase: Option<&str>) -> Result<KeptPrincipal, PrincipalError> {
        KeptPrincipal::read(&home.principal(name), passphrase)
    }

    /// Reads a principal's file. A pass phrase for one that needs none is not looked at.
    ///
    /// # Errors
    /// As [`KeptPrincipal::load`].
    pub fn read(path: &Path, passphrase: Option<&str>) -> Result<KeptPrincipal, PrincipalError> {
        PrincipalFile::read(path)?.open(passphrase)
    }

    /// Whether it takes a pass phrase to open a file.
    ///
    /// # Errors
    /// As [`PrincipalFile::read`].
    pub fn is_sealed(path: &Path) -> Result<bool, FileError> {
        Ok(PrincipalFile::read(path)?.is_sealed())
    }

    /// Writes the file, private to its owner; with a pass phrase, its secrets are sealed.
    ///
    /// # Errors
    /// [`FileError::Exists`] under [`Overwrite::Never`], [`FileError::Content`] for an empty pass phrase, or the system's own.
    pub fn write(&self, passphrase: Option<&str>, overwrite: Overwrite) -> Result<(), PrincipalError> {
        Ok(self.save(&self.text(passphrase)?, overwrite)?)
    }

    /// Writes a text that [`KeptPrincipal::text`] made.
    ///
    /// # Errors
    /// As [`KeptPrincipal::write`].
    pub fn save(&self, text: &str, overwrite: Overwrite) -> Result<(), FileError> {
        write_secret(&self.path, text.as_bytes(), overwrite)
    }

    /// The file's text: a secret, if no pass phrase seals it.
    ///
    /// # Errors
    /// [`FileError::Content`] for an empty pass phrase, or without randomness.
    pub fn text(&self, passphrase: Option<&str>) -> Result<Zeroizing<String>, FileError> {
        let wrong = |what: String| FileError::Content { path: self.path.clone(), what };
        let it = &self.principal;
        let bootstrap = it.bootstrap.iter();
        let bootstrap = bootstrap.map(|(group, key)| (group.clone(), keytext::export_bootstrap_key(key))).collect();
        let secrets = Secrets { secret: keytext::export_principal(&it.long_term, &it.signing), bootstrap };
        let registration = hex::encode(it.registration.to_bytes());
        let mut content = Content {
            kind: KIND.to_owned(),
            registration,
            url: self.url.clone(),
            secret: None,
            bootstrap: BTreeMap::new(),
            sealed: None,
        };
        match passphrase {
            None => (content.secret, content.bootstrap) = (Some(secrets.secret), secrets.bootstrap),
            Some("") => return Err(wrong("an empty pass phrase seals nothing".to_owned())),
            Some(passphrase) => {
                let salt = rng::bytes().map_err(|e| wrong(e.message().to_owned()))?;
                let key = Stretch::recommended(salt);
                let inner = toml::to_string(&secrets).expect("strings in tables are valid TOML");
                let mut bytes = Zeroizing::new([Zeroizing::new(inner).as_bytes(), &[0; TAG_LEN]].concat());
                // The key is of this salt, and seals once.
                Key::new(Suite::Aes256Gcm, &key.key(passphrase).map_err(wrong)?).seal(0, &bound(&content), &mut bytes);
                content.sealed = Some(Sealed { ciphertext: hex::encode(&bytes), key });
            }
        }
        let text = toml::to_string(&content).expect("strings in tables are valid TOML");
        Ok(Zeroizing::new(format!("# Who can read this file is '{}'. Keep it secret.\n{text}", it.registration.name)))
    }

    /// The name under which it is kept.
    pub fn name(&self) -> String {
        self.path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
    }
}

impl PrincipalFile {
    /// Whether a text says that it is a principal's file.
    pub fn is_one(text: &str) -> bool {
        let kind = |table: toml::Table| table.get("kind").and_then(|it| it.as_str().map(|it| it == KIND));
        toml::from_str(text).ok().and_then(kind).unwrap_or(false)
    }

    /// Reads a file that only its owner can read.
    ///
    /// # Errors
    /// [`FileError`].
    pub fn read(path: &Path) -> Result<PrincipalFile, FileError> {
        PrincipalFile::parse(path, Zeroizing::new(read_secret(path)?))
    }

    /// Reads a text; `path` is where errors say that it came from.
    ///
    /// # Errors
    /// [`FileError`].
    pub fn parse(path: &Path, text: Zeroizing<String>) -> Result<PrincipalFile, FileError> {
        let content: Content = toml::from_str(&text).map_err(|e| FileError::toml(path, &text, &e))?;
        let wrong = |what: &str| FileError::Content { path: path.to_owned(), what: what.to_owned() };
        if content.kind != KIND {
            return Err(wrong("kind: this is not a principal"));
        }
        if content.secret.is_some() == content.sealed.is_some() {
            return Err(wrong("it has either a secret or a sealed one"));
        }
        let registration = hex::decode(&content.registration).ok();
        let registration = registration.and_then(|bytes| Registration::from_bytes(&bytes).ok());
        let registration = registration.ok_or_else(|| wrong("registration: it is damaged"))?;
        Ok(PrincipalFile { path: path.to_owned(), text, content, registration })
    }

    /// What the centre registered.
    pub fn registration(&self) -> &Registration {
        &self.registration
    }

    /// Where its group is.
    pub fn url(&self) -> Option<&str> {
        self.content.url.as_deref()
    }

    /// Whether it takes a pass phrase to open it.
    pub fn is_sealed(&self) -> bool {
        self.content.sealed.is_some()
    }

    /// Writes the same file elsewhere, sealed if it is.
    ///
    /// # Errors
    /// As [`KeptPrincipal::write`].
    pub fn copy(&self, to: &Path, overwrite: Overwrite) -> Result<(), FileError> {
        write_secret(to, self.text.as_bytes(), overwrite)
    }

    /// Opens its secrets.
    ///
    /// # Errors
    /// As [`KeptPrincipal::load`].
    pub fn open(self, passphrase: Option<&str>) -> Result<KeptPrincipal, PrincipalError> {
        let PrincipalFile { path, mut content, registration, .. } = self;
        let wrong = |what: String| FileError::Content { path: path.clone(), what };
        let secrets = match (content.sealed.take(), passphrase) {
            (None, _) => {
                let secret = content.secret.take().expect("parsing found either");
                Secrets { secret, bootstrap: std::mem::take(&mut content.bootstrap) }
            }
            (Some(_), None) => return Err(PrincipalError::Sealed(path)),
            (Some(sealed), Some(passphrase)) => {
                let key = Key::new(Suite::Aes256Gcm, &sealed.key.key(passphrase).map_err(wrong)?);
                let bytes = hex::decode(&sealed.ciphertext).map_err(|_| wrong("ciphertext: not hexadecimal".into()))?;
                let mut bytes = Zeroizing::new(bytes);
                let Ok(inner) = key.open(0, &bound(&content), &mut bytes) else {
                    return Err(PrincipalError::WrongPassphrase(path));
                };
                let inner = std::str::from_utf8(inner).ok().and_then(|text| toml::from_str(text).ok());
                inner.ok_or_else(|| wrong("what is sealed in it is not known to this version".to_owned()))?
            }
        };
        let secret = keytext::import_principal(&secrets.secret);
        let (long_term, signing) = secret.map_err(|e| wrong(format!("secret: {e}")))?;
        let mut bootstrap = Vec::new();
        for (group, text) in &secrets.bootstrap {
            let key = keytext::import_bootstrap_key(text);
            bootstrap.push((group.clone(), key.map_err(|e| wrong(format!("bootstrap key of {group}: {e}")))?));
        }
        let principal = Principal { registration, long_term, signing, bootstrap };
        if *principal.origin_key().public() != principal.registration.key {
            return Err(wrong("secret: it is of another key than the registration's".to_owned()).into());
        }
        if let Some(group) =
            principal.registration.rights.groups().iter().find(|it| principal.bootstrap_of(it).is_none())
        {
            return Err(wrong(format!("bootstrap: the key of {group} is missing")).into());
        }
        let url = content.url;
        Ok(KeptPrincipal { path, principal, url })
    }
}

/// What a sealed file says in clear is bound to what is sealed: nobody sends its owner to another URL.
fn bound(content: &Content) -> [u8; 32] {
    let url = content.url.as_deref().unwrap_or_default();
    Transcript::new("sealcast/v1/centre/principal file")
        .add(content.registration.as_bytes())
        .add(url.as_bytes())
        .finish()
}

impl std::fmt::Debug for KeptPrincipal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeptPrincipal").field("path", &self.path).field("url", &self.url).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for PrincipalFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PrincipalFile").field("path", &self.path).finish_non_exhaustive()
    }
}

const KIND: &str = "principal";

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    use sealcast_crypto::identity::registration::{bootstrap_secret, realm};
    use sealcast_crypto::identity::{Act, Right};
    use sealcast_crypto::leighton_micali::Master;
    use sealcast_crypto::secret::Secret;
    use sealcast_crypto::signature::OriginKey;

    use super::*;

    const URL: &str = "udpm://239.255.76.67:7667?ttl=0&keys=center&group=ward3&kdc=127.0.0.1:7680";

    fn principal() -> Principal {
        let (centre, signing) = (Secret::from_bytes([42; 32]), Secret::from_bytes([7; 32]));
        let registration = Registration {
            realm: realm(&centre),
            serial: 1,
            name: "robot7".into(),
            key: OriginKey::from_seed(&signing).public().clone(),
            exchange: None,
            not_before: 1_790_000_000,
            not_after: 1_800_000_000,
            rights: [Right::new("ward3", Act::Both, "#").unwrap()].into_iter().collect(),
        };
        let long_term = Master::new(&centre).long_term(&registration.hash().0);
        let bootstrap = vec![("ward3".to_owned(), bootstrap_secret(&centre, "ward3"))];
        Principal { registration, long_term, signing, bootstrap }
    }

    fn kept(home: &Home) -> KeptPrincipal {
        KeptPrincipal { path: home.principal("robot7"), principal: principal(), url: Some(URL.to_owned()) }
    }

    fn same(one: &Principal, other: &Principal) -> bool {
        one.registration == other.registration
            && one.long_term.exchange == other.long_term.exchange
            && one.long_term.authentication == other.long_term.authentication
            && one.signing == other.signing
            && one.bootstrap == other.bootstrap
    }

    #[test]
    fn a_principal_is_read_as_it_was_kept() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::at(folder.path());
        let kept = kept(&home);
        kept.write(None, Overwrite::Never).unwrap();
        assert!(!KeptPrincipal::is_sealed(&kept.path).unwrap());
        let path = folder.path().join("principals/robot7.toml");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let text = fs::read_to_string(&path).unwrap();
        assert!(PrincipalFile::is_one(&text) && text.matches("SC-SECRET-1").count() == 2, "{text}");
        assert!(text.contains(&format!("url = \"{URL}\"")), "{text}");
        for passphrase in [None, Some("not looked at")] {
            let again = KeptPrincipal::load(&home, "robot7", passphrase).unwrap();
            assert!(same(&again.principal, &principal()));
            assert_eq!((again.url.as_deref(), again.name()), (Some(URL), "robot7".to_owned()));
        }
        assert_eq!(home.principals(), ["robot7"]);
        let again = kept.write(None, Overwrite::Never);
        assert!(matches!(again, Err(PrincipalError::File(FileError::Exists(_)))));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let exposed = KeptPrincipal::load(&home, "robot7", None);
        assert!(matches!(exposed, Err(PrincipalError::File(FileError::Exposed { .. }))));
    }

    #[test]
    fn a_pass_phrase_seals_the_secrets_and_what_is_beside_them() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::at(folder.path());
        let kept = kept(&home);
        kept.write(Some("correct horse"), Overwrite::Never).unwrap();
        let text = fs::read_to_string(&kept.path).unwrap();
        assert!(!text.contains("SC-SECRET-1") && text.contains("memory_kib = 65536"), "{text}");
        let file = PrincipalFile::read(&kept.path).unwrap();
        assert!(
            KeptPrincipal::is_sealed(&kept.path).unwrap()
                && file.is_sealed()
                && *file.registration() == principal().registration
                && file.url() == Some(URL)
        );
        assert!(same(&file.open(Some("correct horse")).unwrap().principal, &principal()));
        let read = |passphrase| KeptPrincipal::read(&kept.path, passphrase).map(drop);
        assert!(matches!(read(None), Err(PrincipalError::Sealed(_))));
        assert!(matches!(read(Some("wrong horse")), Err(PrincipalError::WrongPassphrase(_))));
        let empty = kept.write(Some(""), Overwrite::Replace);
        assert!(matches!(empty, Err(PrincipalError::File(FileError::Content { .. }))));

        for (from, to) in [("kdc=127.0.0.1", "kdc=127.0.0.2"), ("passes = 3", "passes = 1")] {
            assert!(text.contains(from));
            write_secret(&kept.path, text.replace(from, to).as_bytes(), Overwrite::Replace).unwrap();
            assert!(matches!(read(Some("correct horse")), Err(PrincipalError::WrongPassphrase(_))), "{from}");
        }
        write_secret(&kept.path, text.replace("65536", "104857600").as_bytes(), Overwrite::Replace).unwrap();
        let error = read(Some("correct horse")).unwrap_err().to_string();
        assert!(error.ends_with("memory_kib: 104857600 is more than 262144"), "{error}");
    }

    #[test]
    fn a_copy_is_the_same_file() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::at(folder.path());
        let kept = kept(&home);
        kept.write(None, Overwrite::Never).unwrap();
        let text = fs::read_to_string(&kept.path).unwrap();
        let file = PrincipalFile::parse(Path::new("stdin"), Zeroizing::new(text)).unwrap();
        file.copy(&home.principal("other"), Overwrite::Never).unwrap();
        assert!(same(&KeptPrincipal::load(&home, "other", None).unwrap().principal, &principal()));
        assert_eq!(fs::metadata(home.principal("other")).unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_damaged_file_says_what_is_wrong() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::at(folder.path());
        let kept = kept(&home);
        kept.write(None, Overwrite::Never).unwrap();
        let text = fs::read_to_string(&kept.path).unwrap();
        assert!(text.contains("SC-SECRET-1Q"), "secrets begin so, and errors show none");
        let other = keytext::export_principal(&principal().long_term, &Secret::from_bytes([8; 32]));
        let line = |start: &str| text.lines().find(|it| it.starts_with(start)).unwrap();
        for (from, to, part) in [
            ("kind = \"principal\"", "kind = \"member\"", "this is not a principal"),
            ("kind = ", "x = 1\nkind = ", "unknown field"),
            (line("registration"), "registration = \"00\"", "registration: it is damaged"),
            (line("secret"), "secret = \"x\"", "secret: this is not a principal's secret"),
            (line("secret"), &format!("secret = \"{}\"", *other), "of another key than the registration's"),
            (line("secret"), "", "either a secret or a sealed one"),
            (line("ward3"), "", "the key of ward3 is missing"),
            (line("ward3"), "ward3 = \"x\"", "bootstrap key of ward3: "),
        ] {
            assert!(text.contains(from), "{from}");
            write_secret(&kept.path, text.replacen(from, to, 1).as_bytes(), Overwrite::Replace).unwrap();
            let error = KeptPrincipal::read(&kept.path, None).unwrap_err().to_string();
            assert!(error.contains(part) && !error.contains("SC-SECRET-1Q"), "{error}");
        }
        for none in ["", "-----BEGIN SEALCAST INVITE-----\nAAAA\n-----END SEALCAST INVITE-----\n", "kind = 1"] {
            assert!(!PrincipalFile::is_one(none), "{none}");
        }
    }
}
