//! Proofs that a relay showed two logs of one group (D1), kept in the state folder for this user and for others.
//!
//! ```text
//! state/relays/FIRST 8 BYTES OF THE KEY/evidence/HASH.json
//! { "what": "…", "seen": "2026-11-28T…", "relay": "scrl1…", "group": "5f0c…", "position": 17, "evidence": "01…" }
//! ```
//! What is there beside `relay` and `evidence` is for people, and nobody believes it.

use std::fs;
use std::path::{Path, PathBuf};

use sealcast_crypto::hash::sha256;
use sealcast_relay::evidence::Evidence;
use sealcast_relay::key::RelayKey;
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::code::Code;
use crate::config::{FileError, Home, Overwrite, read_public, write_public};
use crate::error::{Error, Result};
use crate::remedy::Remedy;

/// A proof in a file, which convicts the relay that it names.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeptEvidence {
    /// Who showed two logs.
    pub relay: RelayKey,
    /// The proof.
    pub evidence: Evidence,
    /// When it was seen here, RFC 3339; empty if the file does not say.
    pub seen: String,
}

impl KeptEvidence {
    /// Reads the text of a file, and verifies it by the relay's key.
    ///
    /// # Errors
    /// [`Code::Content`] if this is no such file; [`Code::Signature`] if the proof convicts nobody.
    pub fn parse(text: &str) -> Result<KeptEvidence> {
        let wrong = |what: &str| {
            Error::new(Code::Content, what).with_hint("ask its sender for the file as the session wrote it")
        };
        let value: Value = serde_json::from_str(text)
            .map_err(|e| wrong(&format!("line {}, column {}: this is no JSON", e.line(), e.column())))?;
        let of = |name: &str| value.get(name).and_then(Value::as_str);
        let relay = of("relay").ok_or_else(|| wrong("it names no \"relay\""))?;
        let relay: RelayKey = relay.parse().map_err(|e| wrong(&format!("\"relay\": {e}")))?;
        let bytes = of("evidence").and_then(|it| hex::decode(it).ok());
        let bytes = bytes.ok_or_else(|| wrong("it has no \"evidence\" in hexadecimal digits"))?;
        let nobody = |why: String| {
            let hint = "it convicts nobody: ask its sender for the file as the session wrote it";
            Error::new(Code::Signature, why).with_hint(hint)
        };
        let evidence = Evidence::from_bytes(&bytes).map_err(|e| nobody(format!("\"evidence\": {e}")))?;
        evidence.verify(&relay).map_err(|e| nobody(e.to_string()))?;
        Ok(KeptEvidence { relay, evidence, seen: of("seen").unwrap_or_default().to_owned() })
    }

    /// What the relay did, for people.
    pub fn what(&self) -> String {
        what(&self.relay, &self.evidence)
    }
}

/// Keeps a proof, durably; where. One that is kept already stays as it is.
///
/// # Errors
/// The system's own.
pub fn keep(home: &Home, relay: &RelayKey, evidence: &Evidence) -> Result<PathBuf> {
    let bytes = evidence.to_bytes();
    let path = folder(home, relay).join(format!("{}.json", hex::encode(&sha256(&bytes)[..8])));
    let text = json!({
        "what": what(relay, evidence), "seen": OffsetDateTime::now_utc().format(&Rfc3339).unwrap_or_default(),
        "relay": relay.to_string(), "group": hex::encode(evidence.one.group.0), "position": evidence.one.position,
        "evidence": hex::encode(bytes),
    });
    match write_public(&path, format!("{text:#}\n").as_bytes(), Overwrite::Never) {
        Ok(()) | Err(FileError::Exists(_)) => Ok(path),
        Err(e) => Err(e.into()),
    }
}

/// All that is kept, of all relays: files, and what is in them.
///
/// # Errors
/// A folder cannot be read.
pub fn kept(home: &Home) -> Result<Vec<(PathBuf, Result<KeptEvidence>)>> {
    let relays = files(&home.state().join("relays"))?;
    let mut all = Vec::new();
    for relay in relays {
        all.extend(of_folder(&relay.join("evidence"))?);
    }
    Ok(all)
}

/// The proof in a file.
///
/// # Errors
/// As [`KeptEvidence::parse`], and the system's own.
pub fn read(path: &Path) -> Result<KeptEvidence> {
    let shown = Home::shown(path);
    KeptEvidence::parse(&read_public(path)?).map_err(|e| e.at(shown))
}

/// Refuses a relay that is convicted here.
///
/// # Errors
/// [`Code::Equivocation`]; or its folder cannot be read, and nobody knows.
pub(crate) fn refuse_convicted(home: &Home, relay: &RelayKey) -> Result<()> {
    let mut proofs = of_folder(&folder(home, relay))?.into_iter();
    let proof = proofs.find_map(|(path, it)| it.ok().filter(|it| it.relay == *relay).map(|it| (path, it)));
    proof.map_or(Ok(()), |(path, it)| Err(convicted(&it.what(), &path)))
}

/// That nothing which the relay says counts any more. The proof is kept there.
pub(crate) fn convicted(what: &str, path: &Path) -> Error {
    let proof = Home::shown(path);
    Error::new(Code::Equivocation, format!("{what}: {proof} proves it")).with_remedy(Remedy::LeaveRelay { proof })
}

pub(crate) fn what(relay: &RelayKey, evidence: &Evidence) -> String {
    format!("the relay {relay} signed two logs of one group, which differ at position {}", evidence.one.position)
}

fn of_folder(folder: &Path) -> Result<Vec<(PathBuf, Result<KeptEvidence>)>> {
    let proofs = files(folder)?.into_iter().filter(|it| it.extension().is_some_and(|it| it == "json"));
    Ok(proofs.map(|path| (path.clone(), read(&path))).collect())
}

/// What is in a folder, sorted; nothing if it is not there.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(FileError::io(folder, e).into()),
    };
    let mut all: Vec<PathBuf> = entries.flatten().map(|it| it.path()).collect();
    all.sort();
    Ok(all)
}

fn folder(home: &Home, relay: &RelayKey) -> PathBuf {
    home.state().join("relays").join(hex::encode(&relay.as_bytes()[..8])).join("evidence")
}
