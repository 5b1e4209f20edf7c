//! The file descriptors that a broker's process may open.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the process's soft limit of open files to its hard limit. The order must not run out of files at the soft
/// limit, which is meant for programs that use `select`.
///
/// # Errors
/// The operating system refuses; the limits are as before.
pub fn raise() -> io::Result<()> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?;
    }
    Ok(())
}
