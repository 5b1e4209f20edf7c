//! The data folder: one process's at a time, of a format that has a number, with the receipt key.
//!
//! ```text
//! lock          one process alone
//! format        'sealcast-relay 1'                              written last: with it, the key is there
//! receipt.key   the secret of the receipt key, SC-SECRET-1…     0600
//! rows/         what the directory keeps
//! mosquitto…    files of the relay's own MQTT broker, mqtt.sock its socket
//! ```
//! A folder whose key is lost gets no new one: members pin the key, and another one would be another directory.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use sealcast_crypto::identity::keytext::{export_seed, import_seed};
use sealcast_crypto::secret::Secret;
use sealcast_crypto::signature::OriginKey;
use tracing::info;
use zeroize::Zeroizing;

use crate::failure::{Code, Failure};

/// An open folder. While this lives, no other process uses it.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    _lock: File,
}

impl Folder {
    /// Opens a folder, which is made if it is not there, and gives its receipt key.
    ///
    /// # Errors
    /// Another process uses it, another version wrote it, others can read it, or its key is missing or wrong.
    pub fn open(path: &Path) -> Result<(Folder, OriginKey), Failure> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
        made.map_err(|e| Failure::file(path, &e))?;
        is_private(path, "folder", "700")?;
        let folder = Folder { path: path.to_path_buf(), _lock: lock(&path.join(LOCK))? };
        let key = if folder.has_format()? { folder.read_key()? } else { folder.begin()? };
        Ok((folder, key))
    }

    /// Where the rows are.
    pub fn rows(&self) -> PathBuf {
        self.path.join(ROWS)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the folder was used before, by a version whose format this one knows.
    fn has_format(&self) -> Result<bool, Failure> {
        let path = self.path.join(FORMAT);
        let Some(text) = read(&path)? else { return Ok(false) };
        let number = text.trim().strip_prefix(PROGRAM).and_then(|it| it.trim().parse::<u32>().ok());
        match number {
            Some(FORMAT_NUMBER) => Ok(true),
            Some(number) => Err(Failure::new(
                Code::Content,
                format!(
                    "{} was written by another version: format {number}, this one knows {FORMAT_NUMBER}",
                    self.path.display()
                ),
                "start the version that wrote it, or name another folder with --data",
            )),
            None => Err(Failure::new(
                Code::Content,
                format!("{}: this is no data folder of a relay", path.display()),
                "name another folder with --data",
            )),
        }
    }

    /// The first start in this folder.
    fn begin(&self) -> Result<OriginKey, Failure> {
        if self.rows().exists() {
            return Err(Failure::new(
                Code::Missing,
                format!("{}: the file '{FORMAT}' is missing, and there are rows", self.path.display()),
                "bring the folder back from a copy, or name another one with --data",
            ));
        }
        // A start that was interrupted may have left a key; nobody has seen it.
        let path = self.path.join(KEY);
        let mut seed = Zeroizing::new([0; 32]);
        getrandom::fill(&mut *seed).map_err(|e| {
            Failure::new(
                Code::System,
                format!("the operating system gives no randomness: {e}"),
                "start the relay again",
            )
        })?;
        let seed = Secret::from_bytes(*seed);
        let text = Zeroizing::new(format!("{}\n", *export_seed(&seed)));
        self.write(KEY, text.as_bytes())?;
        self.write(FORMAT, format!("{PROGRAM} {FORMAT_NUMBER}\n").as_bytes())?;
        info!("made a receipt key: keep a copy of {}", path.display());
        Ok(OriginKey::from_seed(&seed))
    }

    fn read_key(&self) -> Result<OriginKey, Failure> {
        let path = self.path.join(KEY);
        let back = "bring it back from a copy: members pin this key, and take another one for another relay";
        let Some(text) = read(&path)?.map(Zeroizing::new) else {
            return Err(Failure::new(Code::Missing, format!("{}: the receipt key is missing", path.display()), back));
        };
        is_private(&path, "receipt key", "600")?;
        let seed = import_seed(text.trim());
        let seed = seed.map_err(|e| Failure::new(Code::Content, format!("{}: {e}", path.display()), back))?;
        Ok(OriginKey::from_seed(&seed))
    }

    /// Writes a file whole or not at all, durably.
    pub(crate) fn write(&self, name: &str, content: &[u8]) -> Result<(), Failure> {
        let (path, new) = (self.path.join(name), self.path.join(format!("{name}.new")));
        let write = || -> io::Result<()> {
            match fs::remove_file(&new) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                _ => {}
            }
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
            file.write_all(content)?;
            file.sync_all()?;
            fs::rename(&new, &path)?;
            File::open(&self.path)?.sync_all()
        };
        write().map_err(|e| Failure::file(&path, &e))
    }
}

/// A short text; `None` if there is no such file.
fn read(path: &Path) -> Result<Option<String>, Failure> {
    let mut text = String::new();
    match File::open(path).and_then(|it| it.take(FILE_BYTES_MAX).read_to_string(&mut text)) {
        Ok(_) => Ok(Some(text)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) if e.kind() == io::ErrorKind::InvalidData => Ok(Some(String::new())),
        Err(e) => Err(Failure::file(path, &e)),
    }
}

fn is_private(path: &Path, what: &str, mode: &str) -> Result<(), Failure> {
    let found = fs::metadata(path).map_err(|e| Failure::file(path, &e))?;
    if found.mode() & 0o077 == 0 {
        return Ok(());
    }
    let at = path.display();
    Err(Failure::new(Code::Exposed, format!("{at}: others can read the {what}"), format!("chmod {mode} {at}")))
}

fn lock(path: &Path) -> Result<File, Failure> {
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path);
    let file = file.map_err(|e| Failure::file(path, &e))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            let folder = path.parent().unwrap_or(path).display();
            Err(Failure::new(
                Code::Content,
                format!("a relay runs in {folder} already"),
                "stop it first, or name another folder with --data",
            ))
        }
        Err(TryLockError::Error(e)) => Err(Failure::file(path, &e)),
    }
}

const LOCK: &str = "lock";
const FORMAT: &str = "format";
const KEY: &str = "receipt.key";
const ROWS: &str = "rows";
const PROGRAM: &str = "sealcast-relay";
/// What this version writes. Rows have a format of their own in their keys.
const FORMAT_NUMBER: u32 = 1;
const FILE_BYTES_MAX: u64 = 4096;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn failure(path: &Path) -> Failure {
        Folder::open(path).expect_err("it is not opened")
    }

    #[test]
    fn a_folder_keeps_its_key_and_is_one_processs() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("relay");
        let (folder, key) = Folder::open(&path).unwrap();
        let mode = |name: &str| fs::metadata(path.join(name)).unwrap().mode() & 0o777;
        assert_eq!((mode(""), mode(KEY)), (0o700, 0o600));
        assert_eq!((failure(&path).code, failure(&path).what.contains("runs in")), (Code::Content, true));
        drop(folder);
        assert_eq!(Folder::open(&path).unwrap().1.public_bytes(), key.public_bytes());
    }

    #[test]
    fn a_folder_that_cannot_be_used_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("relay");
        drop(Folder::open(&path).unwrap());
        let (key, format) = (path.join(KEY), path.join(FORMAT));

        fs::write(&format, "sealcast-relay 2\n").unwrap();
        assert!(failure(&path).what.ends_with("another version: format 2, this one knows 1"), "{}", failure(&path));
        fs::write(&format, [0xff; 3]).unwrap();
        assert_eq!(failure(&path).code, Code::Content);
        fs::write(&format, "sealcast-relay 1\n").unwrap();

        fs::set_permissions(&key, fs::Permissions::from_mode(0o640)).unwrap();
        assert_eq!(failure(&path).hint, format!("chmod 600 {}", key.display()));
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(failure(&path).code, Code::Exposed);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();

        fs::write(&key, "SC-SECRET-1NONSENSE").unwrap();
        assert_eq!(failure(&path).code, Code::Content);
        fs::remove_file(&key).unwrap();
        assert_eq!(failure(&path).code, Code::Missing, "it gets no new key");
        fs::remove_file(&format).unwrap();
        fs::create_dir(path.join(ROWS)).unwrap();
        assert_eq!(failure(&path).code, Code::Missing, "rows without a format");
    }
}
