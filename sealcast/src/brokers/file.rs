//! Cluster files on disk.

use std::path::Path;

use sealcast_broker::cluster_file::ClusterFile;

use crate::code::Code;
use crate::config::{FileError, Home, Overwrite, read_public, write_public};
use crate::error::{Error, Result};
use crate::remedy::Remedy;
use crate::url::Options;

/// Reads a cluster file; it holds together then, but whose it is, only its authority or its id can tell.
///
/// # Errors
/// [`Code::Missing`], [`Code::Content`] with line and column, or the system's own.
pub fn load(path: &Path) -> Result<ClusterFile> {
    let text = read_public(path).map_err(|e| match e {
        FileError::Missing(_) => {
            Error::new(Code::Missing, format!("{}: there is no such cluster file", Home::shown(path)))
                .with_remedy(Remedy::MakeCluster)
        }
        other => other.into(),
    })?;
    ClusterFile::from_text(&text).map_err(|e| {
        let separator = if e.location.is_some() { ":" } else { ": " };
        Error::new(Code::Content, format!("{}{separator}{e}", Home::shown(path))).with_hint(e.hint)
    })
}

/// Reads the cluster file that a URL means: `pin=` says how its id begins, `authority=` who signed it (E11).
///
/// # Errors
/// As [`load`], and [`Code::Content`] if it is another cluster's, or signed by somebody else or nobody.
pub fn load_named(path: &Path, options: &Options) -> Result<ClusterFile> {
    let file = load(path)?;
    let wrong = |what: String, why: &str| {
        let hint = format!("get the right file from the brokers' operator; {why}");
        Err(Error::new(Code::Content, format!("{} {what}", Home::shown(path))).with_hint(hint))
    };
    let id: String = file.cluster().0.iter().map(|byte| format!("{byte:02x}")).collect();
    if let Some(pin) = options.pin.as_ref().filter(|pin| !id.starts_with(pin.as_str())) {
        let what = format!("is of another cluster: its id is {id}, not {pin}…");
        return wrong(what, "pin= in the URL names the cluster");
    }
    match options.authority.map(|authority| file.signed_by(authority)) {
        Some(Err(e)) => wrong(format!("is not to be trusted: {e}"), "authority= in the URL names who signs it"),
        _ => Ok(file),
    }
}

/// Writes a cluster file, whole or not at all.
///
/// # Errors
/// [`Code::Exists`] under [`Overwrite::Never`], or the system's own.
pub fn save(path: &Path, file: &ClusterFile, overwrite: Overwrite) -> Result<()> {
    Ok(write_public(path, file.to_text().as_bytes(), overwrite)?)
}
