//! Cluster files on disk.

use std::path::Path;

use sealcast_broker::cluster_file::ClusterFile;

use crate::code::Code;
use crate::config::{FileError, Home, Overwrite, read_public, write_public};
use crate::error::{Error, Result};

/// Reads a cluster file; it holds together then, but whose it is, only its authority or its id can tell.
///
/// # Errors
/// [`Code::Missing`], [`Code::Content`] with line and column, or the system's own.
pub fn load(path: &Path) -> Result<ClusterFile> {
    let text = read_public(path).map_err(|e| match e {
        FileError::Missing(_) => {
            Error::new(Code::Missing, format!("{}: there is no such cluster file", Home::shown(path)))
                .with_hint("sealcast brokers up -n 4 makes a cluster; else get the file from whoever runs the brokers")
        }
        other => other.into(),
    })?;
    ClusterFile::from_text(&text).map_err(|e| {
        let place = if e.place.is_some() { ":" } else { ": " };
        Error::new(Code::Content, format!("{}{place}{e}", Home::shown(path))).with_hint(e.hint)
    })
}

/// Reads a cluster file whose id begins so, in hex, if that is said.
///
/// # Errors
/// As [`load`], and [`Code::Content`] if it is of another cluster.
pub fn load_pinned(path: &Path, pin: Option<&str>) -> Result<ClusterFile> {
    let file = load(path)?;
    let id: String = file.cluster().0.iter().map(|byte| format!("{byte:02x}")).collect();
    match pin.filter(|pin| !id.starts_with(pin)) {
        None => Ok(file),
        Some(pin) => {
            let what = format!("{} is of another cluster: its id is {id}, not {pin}…", Home::shown(path));
            Err(Error::new(Code::Content, what)
                .with_hint("get the right file from whoever runs the brokers; pin= in the URL names the cluster"))
        }
    }
}

/// Writes a cluster file, whole or not at all.
///
/// # Errors
/// [`Code::Exists`] under [`Overwrite::Never`], or the system's own.
pub fn save(path: &Path, file: &ClusterFile, overwrite: Overwrite) -> Result<()> {
    Ok(write_public(path, file.to_text().as_bytes(), overwrite)?)
}
