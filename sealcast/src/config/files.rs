//! Files written whole or not at all; secrets private from the first byte on.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags};

use crate::io::rng;

/// What to do if the file is there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overwrite {
    /// Refuse: nothing is lost without being asked for.
    Never,
    /// Replace it, in one step.
    Replace,
}

/// Why a file was not read or written.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It is not there.
    #[error("{} does not exist", .0.display())]
    Missing(PathBuf),
    /// It is there already.
    #[error("{} exists already", .0.display())]
    Exists(PathBuf),
    /// A secret that others may read is no secret.
    #[error("{} can be read by others (mode {mode:04o})", path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// It does not say what such a file says.
    #[error("{}:{line}:{column}: {what}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// From 1.
        column: usize,
        /// What is wrong there.
        what: String,
    },
    /// It reads well, but what it says cannot be.
    #[error("{}: {what}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// The system says no.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Its answer.
        error: io::Error,
    },
}

impl FileError {
    /// Wraps the system's answer about a path.
    pub fn io(path: &Path, error: io::Error) -> FileError {
        match error.kind() {
            io::ErrorKind::NotFound => FileError::Missing(path.to_owned()),
            _ => FileError::Io { path: path.to_owned(), error },
        }
    }

    /// Turns a position in the text of a TOML file into line and column.
    pub fn toml(path: &Path, text: &str, error: &toml::de::Error) -> FileError {
        let at = error.span().map_or(0, |s| s.start).min(text.len());
        let before = text.get(..at).unwrap_or("");
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
        FileError::Syntax { path: path.to_owned(), line, column, what: error.message().to_owned() }
    }
}

/// Writes a secret: folders 0700, file 0600, all or nothing, durable on return.
///
/// # Errors
/// [`FileError::Exists`] under [`Overwrite::Never`], and the system's own.
pub fn write_secret(path: &Path, bytes: &[u8], overwrite: Overwrite) -> Result<(), FileError> {
    write(path, bytes, overwrite, 0o600)
}

/// Writes a file that anybody may read, else as [`write_secret`].
///
/// # Errors
/// As [`write_secret`].
pub fn write_public(path: &Path, bytes: &[u8], overwrite: Overwrite) -> Result<(), FileError> {
    write(path, bytes, overwrite, 0o644)
}

fn write(path: &Path, bytes: &[u8], overwrite: Overwrite, mode: u32) -> Result<(), FileError> {
    let folder = path.parent().filter(|f| !f.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !folder.is_dir() {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.map_err(|e| FileError::io(folder, e))?;
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // Processes in two containers may have one number.
    let random = rng::bytes::<8>().map_err(|e| FileError::io(path, io::Error::other(e.message().to_owned())))?;
    let unfinished = folder.join(format!(".{name}.{:016x}.new", u64::from_be_bytes(random)));
    let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&unfinished);
    let mut file = file.map_err(|error| FileError::Io { path: path.to_owned(), error })?;
    let written = (|| {
        file.write_all(bytes)?;
        file.sync_all()?;
        match overwrite {
            Overwrite::Replace => fs::rename(&unfinished, path)?,
            Overwrite::Never => rename_without_replacing(&unfinished, path)?,
        }
        File::open(folder)?.sync_all()
    })();
    written.map_err(|error| {
        // The error at hand tells more than one about a leftover would.
        let _ = fs::remove_file(&unfinished);
        match error.kind() {
            io::ErrorKind::AlreadyExists => FileError::Exists(path.to_owned()),
            _ => FileError::Io { path: path.to_owned(), error },
        }
    })
}

fn rename_without_replacing(from: &Path, to: &Path) -> io::Result<()> {
    match rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // Some file systems know no such rename; a hard link refuses just as well.
        Err(rustix::io::Errno::INVAL) => fs::hard_link(from, to).and_then(|()| fs::remove_file(from)),
        other => other.map_err(io::Error::from),
    }
}

/// Reads a secret, and refuses one that others may read.
///
/// # Errors
/// [`FileError::Missing`], [`FileError::Exposed`], or the system's own.
pub fn read_secret(path: &Path) -> Result<String, FileError> {
    let mut file = File::open(path).map_err(|e| FileError::io(path, e))?;
    let meta = file.metadata().map_err(|e| FileError::io(path, e))?;
    let mode = meta.mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(FileError::Exposed { path: path.to_owned(), mode });
    }
    read(path, &mut file, meta.len())
}

/// Reads a file that need not be secret, of at most 16 MB.
///
/// # Errors
/// [`FileError::Missing`] or the system's own.
pub fn read_public(path: &Path) -> Result<String, FileError> {
    let mut file = File::open(path).map_err(|e| FileError::io(path, e))?;
    let meta = file.metadata().map_err(|e| FileError::io(path, e))?;
    read(path, &mut file, meta.len())
}

fn read(path: &Path, file: &mut File, len: u64) -> Result<String, FileError> {
    if len > FILE_BYTES_MAX {
        return Err(FileError::Content { path: path.to_owned(), what: format!("{len} bytes are too many") });
    }
    let mut text = String::new();
    file.take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(|e| FileError::io(path, e))?;
    Ok(text)
}

/// Bytes of a configuration file: beyond them it is none.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Held while one process reads, changes and rewrites a file; freed when dropped, even by a crash.
#[derive(Debug)]
pub struct Lock {
    _folder: File,
}

impl Lock {
    /// Waits for the folder that the file lies in.
    ///
    /// # Errors
    /// The system's own.
    pub fn of(path: &Path) -> Result<Lock, FileError> {
        let folder = path.parent().unwrap_or(Path::new("."));
        let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.map_err(|e| FileError::io(folder, e))?;
        let file = File::open(folder).map_err(|e| FileError::io(folder, e))?;
        file.lock().map_err(|e| FileError::io(folder, e))?;
        Ok(Lock { _folder: file })
    }
}

/// Makes a folder private to the user, as local sockets need it.
///
/// # Errors
/// The system's own, and [`FileError::Exposed`] if the folder is another user's or open to others.
pub fn private_folder(path: &Path) -> Result<(), FileError> {
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|e| FileError::io(path, e))?;
    let (mine, mode) = owned(path)?;
    if mine && mode & OTHERS == 0 { Ok(()) } else { Err(FileError::Exposed { path: path.to_owned(), mode }) }
}

/// The same of a folder that only this program makes: one that others can look into, as earlier versions made it, is
/// closed to them (mode 0700).
///
/// # Errors
/// As [`private_folder`]. A folder that others can write into stays as it is and is refused: they may have put something
/// there.
pub fn program_folder(path: &Path) -> Result<(), FileError> {
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|e| FileError::io(path, e))?;
    let (mine, mode) = owned(path)?;
    if mine && mode & OTHERS != 0 && mode & OTHERS_WRITE == 0 {
        fs::set_permissions(path, fs::Permissions::from_mode(0o700)).map_err(|e| FileError::io(path, e))?;
    }
    private_folder(path)
}

/// Whether a path is a folder of this user, not a link to one, and its permission bits.
fn owned(path: &Path) -> Result<(bool, u32), FileError> {
    let meta = fs::symlink_metadata(path).map_err(|e| FileError::io(path, e))?;
    let mine = meta.is_dir() && meta.uid() == rustix::process::geteuid().as_raw();
    Ok((mine, meta.permissions().mode() & 0o7777))
}

/// Permission bits of everybody but the owner.
const OTHERS: u32 = 0o077;
/// Those of them that let others write.
const OTHERS_WRITE: u32 = 0o022;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_process_of_our_number_writes_is_neither_in_the_way_nor_removed() {
        let folder = tempfile::tempdir().unwrap();
        let others = folder.path().join(format!(".robot7.{}.new", std::process::id()));
        fs::write(&others, b"half").unwrap();
        write_secret(&folder.path().join("robot7"), b"one", Overwrite::Never).unwrap();
        assert_eq!(fs::read(&others).unwrap(), b"half");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "nothing of ours is left over");
    }

    #[test]
    fn a_secret_is_private_and_never_overwritten_unasked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("id/robot7");
        write_secret(&path, b"one", Overwrite::Never).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(path.parent().unwrap()).unwrap().mode() & 0o777, 0o700);

        let again = write_secret(&path, b"two", Overwrite::Never);
        assert!(matches!(again, Err(FileError::Exists(p)) if p == path));
        assert_eq!(read_secret(&path).unwrap(), "one");
        write_secret(&path, b"two", Overwrite::Replace).unwrap();
        assert_eq!(read_secret(&path).unwrap(), "two");
        let left = fs::read_dir(path.parent().unwrap()).unwrap().count();
        assert_eq!(left, 1, "no unfinished file stays behind");
    }

    #[test]
    fn a_secret_that_others_can_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        write_secret(&path, b"x", Overwrite::Never).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(read_secret(&path), Err(FileError::Exposed { mode: 0o640, .. })));
    }

    #[test]
    fn a_folder_of_an_earlier_version_is_closed_to_others() {
        let folder = tempfile::tempdir().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
        let opened = |path: &Path, mode: u32| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        let inner = folder.path().join("state/clusters");
        program_folder(&inner).unwrap();
        assert_eq!([mode(&inner), mode(&folder.path().join("state"))], [0o700, 0o700]);

        opened(&inner, 0o755);
        assert!(
            matches!(private_folder(&inner), Err(FileError::Exposed { mode: 0o755, .. })),
            "it may be a user's own"
        );
        program_folder(&inner).unwrap();
        assert_eq!(mode(&inner), 0o700);

        // Others may have put something there.
        opened(&inner, 0o775);
        assert!(matches!(program_folder(&inner), Err(FileError::Exposed { mode: 0o775, .. })));
        assert_eq!(mode(&inner), 0o775);
    }

    #[test]
    fn a_mistake_is_found_at_its_line_and_column() {
        let text = "a = 1\nb = = 2\n";
        let error = toml::from_str::<toml::Table>(text).unwrap_err();
        let error = FileError::toml(Path::new("x.toml"), text, &error);
        assert!(error.to_string().starts_with("x.toml:2:5: "), "{error}");
    }
}
