//! Where the files of a user are.

use std::env;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use sealcast_crypto::hash::sha256;

/// The folders of one user: configuration, state, and what lives as long as a login.
///
/// `SEALCAST_HOME` puts all three into one folder; else `XDG_CONFIG_HOME`, `XDG_STATE_HOME` and
/// `XDG_RUNTIME_DIR` are honoured, and below them `HOME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Home {
    config: PathBuf,
    state: PathBuf,
    runtime: PathBuf,
}

impl Home {
    /// The folders as the environment names them.
    pub fn from_env() -> Home {
        let var = |name: &str| env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        if let Some(one) = var("SEALCAST_HOME") {
            return Home::at(&one);
        }
        let home = var("HOME").or_else(env::home_dir).unwrap_or_else(|| PathBuf::from("."));
        Home {
            config: var("XDG_CONFIG_HOME").unwrap_or_else(|| home.join(".config")).join("sealcast"),
            state: var("XDG_STATE_HOME").unwrap_or_else(|| home.join(".local/state")).join("sealcast"),
            runtime: match var("XDG_RUNTIME_DIR") {
                Some(folder) => folder.join("sealcast"),
                None => env::temp_dir().join(format!("sealcast-{}", rustix::process::getuid().as_raw())),
            },
        }
    }

    /// All folders inside one, as `SEALCAST_HOME` does; for tests and demonstrations too.
    pub fn at(folder: &Path) -> Home {
        let mut runtime = folder.join("run");
        if runtime.as_os_str().len() > RUNTIME_BYTES_MAX {
            // The kernel takes short socket paths only.
            let hash = sha256(folder.as_os_str().as_bytes());
            let short: String = hash[..6].iter().map(|b| format!("{b:02x}")).collect();
            runtime = env::temp_dir().join(format!("sealcast-{}-{short}", rustix::process::getuid().as_raw()));
        }
        Home { config: folder.to_owned(), state: folder.join("state"), runtime }
    }

    /// The folder of everything that is kept: authorities, identities, contexts.
    pub fn config(&self) -> &Path {
        &self.config
    }

    /// The folder of what a scheme must remember between runs (highest CRL number, statements).
    pub fn state(&self) -> &Path {
        &self.state
    }

    /// The folder of local sockets.
    pub fn runtime(&self) -> &Path {
        &self.runtime
    }

    /// The file of an authority: its signing key and what it issued.
    pub fn authority(&self, name: &str) -> PathBuf {
        self.config.join("ca").join(name)
    }

    /// The file of an identity: its secret, and its certificate once it has one.
    pub fn identity(&self, name: &str) -> PathBuf {
        self.config.join("id").join(name)
    }

    /// The file of a principal of a key distribution centre: what was registered, and its secrets.
    pub fn principal(&self, name: &str) -> PathBuf {
        self.config.join("principals").join(format!("{name}.toml"))
    }

    /// The folder of a key distribution centre of this user.
    pub fn centre(&self) -> PathBuf {
        self.config.join("kdc")
    }

    /// The file of all contexts.
    pub fn contexts(&self) -> PathBuf {
        self.config.join("contexts.toml")
    }

    /// The names of all authorities, sorted.
    pub fn authorities(&self) -> Vec<String> {
        names_in(&self.config.join("ca"))
    }

    /// The names of all identities, sorted.
    pub fn identities(&self) -> Vec<String> {
        names_in(&self.config.join("id"))
    }

    /// The names of all principals, sorted.
    pub fn principals(&self) -> Vec<String> {
        let files = names_in(&self.config.join("principals"));
        files.iter().filter_map(|file| file.strip_suffix(".toml")).map(str::to_owned).collect()
    }

    /// A path as a person would write it: `~` for the home folder.
    pub fn shown(path: &Path) -> String {
        let home = env::var_os("HOME").filter(|v| !v.is_empty()).map(PathBuf::from);
        match home.as_deref().and_then(|h| path.strip_prefix(h).ok()) {
            Some(rest) => format!("~/{}", rest.display()),
            None => path.display().to_string(),
        }
    }
}

/// A name of an authority, identity or context that can be a file's name.
///
/// # Errors
/// [`NameError`] if it is empty, longer than 64 bytes, begins with `.` or `-`, or holds anything but
/// letters, digits and `. _ - @`.
pub fn name_checked(name: &str) -> Result<&str, NameError> {
    let fits = |c: char| c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '@');
    let good = (1..=64).contains(&name.len()) && !name.starts_with(['.', '-']) && name.chars().all(fits);
    if good { Ok(name) } else { Err(NameError(name.to_owned())) }
}

/// The name cannot be a file's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a name: 1 to 64 letters, digits or . _ - @, not beginning with . or -")]
pub struct NameError(pub String);

/// Of the 107 bytes of a Unix socket's path, those that the folder may take.
const RUNTIME_BYTES_MAX: usize = 80;

fn names_in(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.filter_map(|e| e.file_name().into_string().ok()).filter(|n| name_checked(n).is_ok()).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_folder_has_its_sockets_elsewhere() {
        let (short, long) = (Home::at(Path::new("/a")), Home::at(&Path::new("/a").join("b".repeat(100))));
        assert_eq!(short.runtime(), Path::new("/a/run"));
        assert!(long.runtime().as_os_str().len() <= RUNTIME_BYTES_MAX, "{long:?}");
        assert_eq!(long.runtime().parent(), Some(env::temp_dir().as_path()));
    }

    #[test]
    fn a_name_cannot_leave_its_folder() {
        assert_eq!(name_checked("you@laptop"), Ok("you@laptop"));
        for bad in ["", "..", "../x", "a/b", ".hidden", "-rf", "a b", "a\n", &"x".repeat(65)] {
            assert!(name_checked(bad).is_err(), "{bad:?}");
        }
    }
}
