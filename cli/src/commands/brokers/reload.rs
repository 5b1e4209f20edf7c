//! `sealcast brokers reload FOLDER`: running brokers of this machine read their `broker.toml` again.
//!
//! A broker listens at the socket `control` of its folder: 'reload' in, one line of JSON out.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sealcast::code::Code;
use sealcast::config::{FileError, Home};
use serde_json::{Value, json};

use crate::commands::Env;
use crate::hint::Failure;

pub(super) fn reload(env: &Env<'_>, folder: &Path) -> Result<(), Failure> {
    let (mut all, mut refused) = (brokers_in(folder)?, None);
    all.sort();
    for folder in all {
        let shown = Home::shown(&folder);
        let said = ask(&folder)?;
        let list = |key: &str| -> Vec<&str> {
            said.get(key).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
        };
        let (changed, restart) = (list("changed"), list("restart"));
        if said.get("reloaded") == Some(&Value::Bool(true)) {
            env.output
                .object(&json!({ "folder": folder, "reloaded": true, "changed": changed, "restart": restart }))?;
            let of = |what: &str, all: &[&str]| {
                if all.is_empty() { String::new() } else { format!("   {what} {}", all.join(", ")) }
            };
            let nothing = if changed.is_empty() && restart.is_empty() { "   nothing changed" } else { "" };
            let (changed, restart) = (of("in force:", &changed), of("after a restart:", &restart));
            env.output.line(format!("reloaded  {shown}{changed}{restart}{nothing}"))?;
        } else {
            let why = said.get("why").and_then(Value::as_str).unwrap_or("it does not say why").to_owned();
            env.output.object(&json!({ "folder": folder, "reloaded": false, "why": why }))?;
            refused.get_or_insert(Failure::new(
                Code::Content,
                format!("not reloaded, its settings stay as they are: {why}"),
            ));
        }
    }
    refused.map_or(Ok(()), Err)
}

/// The folder itself, or those in it that are brokers' and have one running.
fn brokers_in(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    if folder.join("broker.key").exists() {
        return Ok(vec![folder.to_path_buf()]);
    }
    let entries = std::fs::read_dir(folder).map_err(|e| FileError::io(folder, e))?;
    let all: Vec<PathBuf> = entries.flatten().map(|it| it.path()).filter(|it| it.join(SOCKET).exists()).collect();
    match all.is_empty() {
        false => Ok(all),
        true => Err(Failure::new(Code::Missing, format!("no broker runs in {}", Home::shown(folder)))
            .hint("name a broker's folder, as 'sealcast brokers run' does")),
    }
}

fn ask(folder: &Path) -> Result<Value, Failure> {
    let path = folder.join(SOCKET);
    let asked = || -> std::io::Result<String> {
        let mut socket = UnixStream::connect(&path)?;
        socket.set_read_timeout(Some(TIMEOUT))?;
        socket.write_all(b"reload\n")?;
        let mut line = String::new();
        BufReader::new(socket.take(ANSWER_BYTES_MAX)).read_line(&mut line)?;
        Ok(line)
    };
    let line = asked().map_err(|e| {
        Failure::new(Code::NotReady, format!("no broker answers at {}: {e}", Home::shown(&path)))
            .hint("does it run? sealcast brokers run FOLDER")
    })?;
    serde_json::from_str(&line)
        .map_err(|_| Failure::new(Code::NotReady, format!("the broker at {} said nothing", Home::shown(&path))))
}

/// As in `sealcast_brokerd::control`.
const SOCKET: &str = "control";
/// How long a broker may take to read two files.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of what it says.
const ANSWER_BYTES_MAX: u64 = 16 << 10;
