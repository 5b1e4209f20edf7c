//! Network namespaces: a loopback of our own for measurements, and a bridged network of members.
//!
//! Everything works without root inside a user namespace (`unshare -Urn`); a machine that forbids
//! those is told so, and what needs them is skipped with that reason.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

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
        for _ in 0..members {
            bridge.add()?;
        }
        Ok(bridge)
    }

    /// One more member; its index.
    pub fn add(&mut self) -> io::Result<usize> {
        let i = self.members.len();
        let stdin = self.outer.stdin.as_mut().expect("stdin is piped");
        writeln!(stdin, "{i}")?;
        stdin.flush()?;
        let pid = self.line("member")?;
        self.members.push(pid.parse().map_err(|_| io::Error::other(format!("no process id: {pid}")))?);
        Ok(i)
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

    /// The address of member `i`.
    ///
    /// # Panics
    /// If no bridge has so many members.
    pub fn address_of(i: usize) -> IpAddr {
        address(i).into()
    }

    /// The file that names the namespace of member `i`.
    ///
    /// # Panics
    /// If there is no such member.
    pub fn namespace(&self, i: usize) -> PathBuf {
        format!("/proc/{}/ns/net", self.members[i]).into()
    }

    /// Takes member `i` off the bridge, or puts it back: alone, it keeps interface, address and route.
    ///
    /// # Errors
    /// The system's own.
    pub fn plug(&self, i: usize, plugged: bool) -> io::Result<()> {
        let end = format!("v{i}");
        let mut ip = inside(self.outer.id(), "ip");
        done(if plugged {
            ip.args(["link", "set", &end, "master", "br0"])
        } else {
            ip.args(["link", "set", &end, "nomaster"])
        })
    }

    /// Has member `i` lose incoming datagrams of UDP by a condition of nftables, such as `numgen random mod 100 lt 1`;
    /// none loses none. A segmented send counts as one datagram here: `gso=off` goes with it.
    ///
    /// # Errors
    /// If nftables is missing, or does not know the condition.
    ///
    /// # Panics
    /// If there is no such member.
    pub fn lose(&self, i: usize, condition: Option<&str>) -> io::Result<()> {
        let mut rules = "add table inet lab\ndelete table inet lab\n".to_owned();
        if let Some(condition) = condition {
            rules += "add table inet lab\n\
                      add chain inet lab in { type filter hook prerouting priority -300; }\n";
            rules += &format!("add rule inet lab in iifname veth0 meta l4proto udp {condition} drop\n");
        }
        done(self.command(i, "nft").arg(rules))
    }

    /// Lets this many Mb/s of all that others send reach member `i`; none lets everything. What waits longer than 50 ms is lost.
    ///
    /// # Errors
    /// If the kernel has no token bucket filter.
    pub fn limit_to(&self, i: usize, megabits: Option<u32>) -> io::Result<()> {
        done(shaped(&mut inside(self.outer.id(), "tc"), &format!("v{i}"), megabits))
    }

    /// The same of all that member `i` sends.
    ///
    /// # Errors
    /// If the kernel has no token bucket filter.
    ///
    /// # Panics
    /// If there is no such member.
    pub fn limit_from(&self, i: usize, megabits: Option<u32>) -> io::Result<()> {
        done(shaped(&mut self.command(i, "tc"), "veth0", megabits))
    }

    /// Does something as member `i`, on a thread that goes there. Sockets that it opens stay there.
    ///
    /// # Errors
    /// Whoever is neither root nor in a user namespace of its own ([`enclosed`]) may not enter.
    ///
    /// # Panics
    /// If there is no such member.
    pub fn enter<T: Send>(&self, i: usize, act: impl FnOnce() -> T + Send) -> io::Result<T> {
        let there = File::open(self.namespace(i))?;
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                move_into_link_name_space(there.as_fd(), Some(LinkNameSpaceType::Network))?;
                Ok(act())
            });
            thread.join().expect("what is done in a namespace does not panic")
        })
    }

    /// A way from member `i` to member `to` alone, made anew: multicast out of the returned local address
    /// keeps its destination, but travels in frames that are addressed to that member.
    ///
    /// # Panics
    /// If there is no such member.
    pub fn aside(&mut self, i: usize, to: usize) -> io::Result<IpAddr> {
        let (from, gateway, table) = (aside_address(i, to), address(to), ASIDE + to);
        // A route 'via' somebody is taken for multicast too, if it is longer than 224.0.0.0/4 (or as long).
        let commands = format!(
            "ip addr replace {from}/32 dev veth0 && ip rule add from {from} lookup {table} && \
             ip route replace 224.0.0.0/4 via {gateway} dev veth0 table {table}"
        );
        done(self.command(i, "sh").args(["-c", &commands]))?;
        Ok(from.into())
    }

    /// The member that an address belongs to.
    pub fn member_of(address: IpAddr) -> Option<usize> {
        match address {
            IpAddr::V4(ip) if ip.octets()[..2] == NETWORK => usize::from(ip.octets()[3]).checked_sub(FIRST),
            _ => None,
        }
    }

    /// Whether what comes from this address was sent to one member alone.
    pub fn is_aside(address: IpAddr) -> bool {
        matches!(address, IpAddr::V4(ip) if ip.octets()[..2] == NETWORK && usize::from(ip.octets()[2]) >= ASIDE)
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

/// Where a member is.
fn address(i: usize) -> Ipv4Addr {
    let last = u8::try_from(i + FIRST).expect("a bridge has fewer than 254 members");
    Ipv4Addr::new(NETWORK[0], NETWORK[1], 0, last)
}

/// What it sends to another one alone comes from here.
fn aside_address(i: usize, to: usize) -> Ipv4Addr {
    let [a, b, _, last] = address(i).octets();
    Ipv4Addr::new(a, b, u8::try_from(ASIDE + to).expect("asides are for small bridges"), last)
}

/// Addresses of a bridge, and the last byte of the first member's.
const NETWORK: [u8; 2] = [10, 77];
const FIRST: usize = 2;
/// Third byte of the addresses of ways to member 0 alone, and the number of its routing table.
const ASIDE: usize = 100;

/// A command in the user and network namespaces of a running process.
fn inside(process: u32, program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut c = Command::new("nsenter");
    c.args(["--preserve-credentials", "-U", "-n", "-t", &process.to_string(), "--"]);
    c.arg(program).env(ENCLOSED, "1");
    c
}

/// The command of `tc` that limits what leaves an interface.
fn shaped<'a>(tc: &'a mut Command, interface: &str, megabits: Option<u32>) -> &'a mut Command {
    match megabits {
        Some(rate) => {
            let rate = format!("{rate}mbit");
            tc.args([
                "qdisc", "replace", "dev", interface, "root", "tbf", "rate", &rate, "burst", "20k", "latency", "50ms",
            ])
        }
        // Interfaces of this kind have no queue of their own.
        None => tc.args(["qdisc", "replace", "dev", interface, "root", "noqueue"]),
    }
}

/// Runs a command to its end; what it says is the error if it fails.
fn done(command: &mut Command) -> io::Result<()> {
    let done = command.stdin(Stdio::null()).output()?;
    match done.status.success() {
        true => Ok(()),
        false => Err(io::Error::other(String::from_utf8_lossy(&done.stderr).trim().to_owned())),
    }
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
