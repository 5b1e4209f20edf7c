//! Network namespaces: a loopback of our own for measurements, and a bridged network of members.
//!
//! Everything works without root inside a user namespace (`unshare -Urn`); a machine that forbids
//! those is told so, and what needs them is skipped with that reason.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, ExitCode, Stdio};

use crate::Failure;

/// Runs `f` in a network namespace of its own, whose loopback carries multicast.
///
/// The program starts itself again inside, so that `f` runs once, there; where namespaces are
/// forbidden, `f` runs here and a line on stderr says so.
pub fn enclosed(f: impl FnOnce() -> Result<ExitCode, Failure>) -> Result<ExitCode, Failure> {
    if std::env::var_os(ENCLOSED).is_some() {
        return f();
    }
    if let Err(why) = available() {
        eprintln!("lab: {why}: measuring on this machine's own network");
        return f();
    }
    let status = Command::new("unshare")
        .args(["-Urn", "--", "sh", "-c", LOOPBACK, "sh"])
        .arg(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .env(ENCLOSED, "1")
        .status()?;
    Ok(ExitCode::from(u8::try_from(status.code().unwrap_or(130)).unwrap_or(1)))
}

/// A command that runs `program` in a namespace of its own, with multicast on its loopback.
pub fn enclosed_command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut c = Command::new("unshare");
    c.args(["-Urn", "--", "sh", "-c", LOOPBACK, "sh"]).arg(program).env(ENCLOSED, "1");
    c
}

/// Whether this machine lets us make network namespaces.
///
/// # Errors
/// The reason, for the line that says what is skipped.
pub fn available() -> Result<(), String> {
    match Command::new("unshare").args(["-Urn", "true"]).stdin(Stdio::null()).output() {
        Ok(o) if o.status.success() => match Command::new("ip").arg("-V").output() {
            Ok(o) if o.status.success() => Ok(()),
            _ => Err("`ip` is missing (package iproute2)".into()),
        },
        Ok(o) => Err(format!("`unshare -Urn true` fails: {}", String::from_utf8_lossy(&o.stderr).trim())),
        Err(why) => Err(format!("`unshare` cannot be started: {why}")),
    }
}

/// One namespace whose loopback carries multicast. Dropped, it is gone.
#[derive(Debug)]
pub struct Loopback {
    holder: Child,
}

impl Loopback {
    /// A namespace of its own.
    pub fn new() -> io::Result<Loopback> {
        let mut holder = enclosed_command("sh")
            .args(["-c", "echo loopback; exec cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut lines = BufReader::new(holder.stdout.take().expect("stdout is piped"));
        let mut line = String::new();
        lines.read_line(&mut line)?;
        match line.trim() {
            "loopback" => Ok(Loopback { holder }),
            _ => Err(io::Error::other("the namespace could not be made")),
        }
    }

    /// A command that runs `program` inside.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        inside(self.holder.id(), program)
    }
}

impl Drop for Loopback {
    fn drop(&mut self) {
        drop(self.holder.stdin.take());
        let _ = self.holder.wait();
    }
}

/// Members on a bridge, each in a namespace with one interface `veth0` of MTU 1500.
///
/// Addresses are 10.77.0.2 and up; multicast goes out of `veth0`. Dropped, the network is gone.
#[derive(Debug)]
pub struct Bridge {
    outer: Child,
    lines: BufReader<std::process::ChildStdout>,
    members: Vec<u32>,
}

impl Bridge {
    /// A bridge with `members` namespaces on it.
    pub fn new(members: usize) -> io::Result<Bridge> {
        let mut outer = Command::new("unshare")
            .args(["-Urn", "--", "sh", "-c", BRIDGE])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let lines = BufReader::new(outer.stdout.take().expect("stdout is piped"));
        let mut bridge = Bridge { outer, lines, members: Vec::new() };
        bridge.line("bridge")?;
        for i in 0..members {
            let stdin = bridge.outer.stdin.as_mut().expect("stdin is piped");
            writeln!(stdin, "{i}")?;
            stdin.flush()?;
            let pid = bridge.line("member")?;
            bridge.members.push(pid.parse().map_err(|_| io::Error::other(format!("no process id: {pid}")))?);
        }
        Ok(bridge)
    }

    /// How many members there are.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// A command that runs `program` as member `i`.
    ///
    /// # Panics
    /// If there is no such member.
    pub fn command(&self, i: usize, program: impl AsRef<std::ffi::OsStr>) -> Command {
        inside(self.members[i], program)
    }

    fn line(&mut self, tag: &str) -> io::Result<String> {
        let mut line = String::new();
        self.lines.read_line(&mut line)?;
        match line.trim().strip_prefix(tag) {
            Some(rest) => Ok(rest.trim().to_string()),
            None => Err(io::Error::other(format!("the bridge could not be built: {line:?}"))),
        }
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        drop(self.outer.stdin.take());
        let _ = self.outer.wait();
    }
}

/// A command in the user and network namespaces of a running process.
fn inside(process: u32, program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut c = Command::new("nsenter");
    c.args(["--preserve-credentials", "-U", "-n", "-t", &process.to_string(), "--"]);
    c.arg(program).env(ENCLOSED, "1");
    c
}

/// Set in processes that run inside a namespace of ours.
const ENCLOSED: &str = "SEALCAST_LAB_ENCLOSED";

/// Brings up a multicast loopback, then becomes the command.
const LOOPBACK: &str = r#"ip link set lo up multicast on && ip route add 224.0.0.0/4 dev lo && exec "$@""#;

/// Builds a bridge, then a member per line read; ends them all with its stdin.
const BRIDGE: &str = r#"
set -e
ip link set lo up
ip link add br0 type bridge mcast_snooping 0
ip link set br0 up
echo bridge
pids=
while read -r i; do
    unshare -n sleep 1000000 </dev/null >/dev/null &
    pid=$!
    pids="$pids $pid"
    while [ "$(readlink /proc/$pid/ns/net)" = "$(readlink /proc/self/ns/net)" ]; do :; done
    ip link add "v$i" type veth peer name veth0 netns "$pid"
    ip link set "v$i" master br0 up
    nsenter -n -t "$pid" -- sh -ec "
        ip link set lo up
        ip addr add 10.77.$(( (i + 2) / 256 )).$(( (i + 2) % 256 ))/16 dev veth0
        ip link set veth0 up multicast on
        ip route add 224.0.0.0/4 dev veth0"
    echo member "$pid"
done
kill $pids 2>/dev/null
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_of_a_bridge_reach_each_other() {
        if let Err(why) = available() {
            return crate::skipped("members_of_a_bridge_reach_each_other", &why);
        }
        let bridge = Bridge::new(2).expect("a bridge with two members");
        assert_eq!(bridge.len(), 2);
        let addresses = bridge.command(1, "ip").args(["-o", "addr"]).output().expect("ip runs as a member");
        let text = String::from_utf8_lossy(&addresses.stdout).into_owned();
        assert!(text.contains("10.77.0.3/16"), "{text}{}", String::from_utf8_lossy(&addresses.stderr));
        let route = bridge.command(0, "ip").args(["route", "get", "239.255.76.67"]).output().expect("ip runs");
        assert!(String::from_utf8_lossy(&route.stdout).contains("veth0"));
    }
}
