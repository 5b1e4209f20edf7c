//! `sealcast doctor`: what stands between you and the group, and the line that repairs it.

mod brokers;
pub(crate) mod relay;
mod segments;

use std::io::{self, ErrorKind};
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant};

use clap::Args;
use sealcast::code::{Class, Code};
use sealcast::config::Contexts;
use sealcast::url::{Scheme, TransportAddress};
use serde::Serialize;
use serde_json::json;
use socket2::{Domain, Protocol, Socket, Type};

use super::{Env, id};
use crate::hint::{Failure, plain};
use crate::target::Target;
use crate::text::{bytes, table, thousands};

/// Check route, TTL, buffers, MTU, interface, brokers, relay, clock and your identity
#[derive(Debug, Args)]
#[command(after_help = "\
Each line is one check; ! marks what will hurt, x what cannot work, with the line that repairs it.
The exit code is 0 if nothing is marked x.

Examples:
  sealcast doctor
  sealcast doctor --url 'udpm://239.255.76.67:7667?ttl=1' --json")]
pub(crate) struct Doctor {}

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Good,
    Hurts,
    Broken,
}

/// One line of the report.
#[derive(Debug)]
pub(crate) struct Check {
    name: &'static str,
    state: State,
    code: Option<Code>,
    found: String,
    hint: Option<String>,
    exit: u8,
}

impl Check {
    fn good(name: &'static str, found: impl Into<String>) -> Check {
        Check { name, state: State::Good, code: None, found: found.into(), hint: None, exit: 0 }
    }

    fn hurts(name: &'static str, found: impl Into<String>, hint: impl Into<String>) -> Check {
        Check { state: State::Hurts, hint: Some(hint.into()), ..Check::good(name, found) }
    }

    fn broken(name: &'static str, class: Class, found: impl Into<String>, hint: impl Into<String>) -> Check {
        Check { state: State::Broken, hint: Some(hint.into()), exit: class as u8, ..Check::good(name, found) }
    }
}

impl Doctor {
    pub(crate) fn run(self, env: &Env<'_>) -> Result<(), Failure> {
        let mut checks = vec![context(env)];
        match Target::of(env) {
            Err(failure) => checks.push(of_failure("url", &failure)),
            Ok(target) => {
                checks.push(Check::good("url", format!("{} (from {})", target.url, target.from)));
                checks.extend(keys(env, &target));
                match &target.url.address {
                    TransportAddress::Multicast { group, .. } => checks.extend(network(*group, &target)),
                    TransportAddress::Quorum(_) => checks.extend(brokers::check(env, &target)),
                    TransportAddress::Relay(_) => checks.extend(relay::check(env, &target)),
                    _ => {}
                }
            }
        }
        checks.push(clock());
        report(env, &checks)
    }
}

/// Shows them; its error is the exit code of the first one that cannot work.
pub(crate) fn report(env: &Env<'_>, checks: &[Check]) -> Result<(), Failure> {
    for c in checks {
        let code = c.code.map(|it| it.to_string());
        env.output
            .object(&json!({ "check": c.name, "state": c.state, "code": code, "found": c.found, "hint": c.hint }))?;
    }
    let mut rows = vec![];
    for c in checks {
        let mark = match c.state {
            State::Good => env.output.good("ok"),
            State::Hurts => "! ".to_owned(),
            State::Broken => env.output.bad("x "),
        };
        let found = c.code.map_or_else(|| c.found.clone(), |code| format!("{} [{code}]", c.found));
        rows.push(vec![mark, c.name.to_owned(), found]);
        if let Some(hint) = &c.hint {
            rows.push(vec!["  ".to_owned(), String::new(), format!("→ {hint}")]);
        }
    }
    env.output.line(table(&rows))?;
    match checks.iter().find(|c| c.state == State::Broken) {
        Some(worst) => Err(Failure::said(worst.exit)),
        None => Ok(()),
    }
}

fn of_failure(name: &'static str, failure: &Failure) -> Check {
    let hint = failure.next().map(str::to_owned);
    let (code, exit) = (failure.code(), failure.exit());
    Check { state: State::Broken, code, hint, exit, ..Check::good(name, failure.what()) }
}

fn context(env: &Env<'_>) -> Check {
    match Contexts::load(&env.home) {
        Err(e) => of_failure("context", &e.into()),
        Ok(all) => match all.current() {
            Some((name, _)) => Check::good("context", format!("{name} of {}", all.context.len())),
            None => Check::hurts("context", "none selected", "sealcast init NAME, or sealcast ctx select NAME"),
        },
    }
}

fn keys(env: &Env<'_>, target: &Target) -> Vec<Check> {
    if target.url.keys == Scheme::Plain {
        let what = "keys=plain: nothing is sealed, nobody is authenticated";
        return vec![Check::hurts("keys", what, "leave keys=plain out of the URL")];
    }
    let name = match target.identity(env) {
        Err(failure) => return vec![of_failure("identity", &failure)],
        Ok(name) => name.expect("sealed URLs come with an identity or an error"),
    };
    vec![match id::check(env, &name) {
        Err(failure) => of_failure("identity", &failure),
        Ok((found, None)) => Check::good("identity", found),
        Ok((found, Some(hint))) => Check::hurts("identity", found, hint),
    }]
}

fn network(group: SocketAddr, target: &Target) -> Vec<Check> {
    let mut checks = vec![];
    let ttl = u32::from(target.url.options.ttl);
    let route = match target.url.options.interface {
        Some(own) => Ok(own),
        None => local_address(group),
    };
    let own = match route {
        Ok(own) => own,
        Err(e) => {
            let found = format!("none to {}: {}", group.ip(), plain(&e));
            return vec![Check::broken("route", Class::Unreachable, found, NO_ROUTE_HINT)];
        }
    };
    // With interface= in the URL the route is not asked.
    let interface = interface_of(group.ip()).filter(|_| target.url.options.interface.is_none());
    let through = interface.as_ref().map(|name| format!(" through {name}")).unwrap_or_default();
    checks.push(Check::good("route", format!("{}{through} as {own}", group.ip())));
    checks.push(match ttl {
        0 => Check::good("ttl", "0: stays on this machine (add ttl=1 to the URL to reach the network)"),
        1 => Check::good("ttl", "1: reaches this network segment"),
        _ => Check::hurts("ttl", format!("{ttl}: passes up to {} routers", ttl - 1), "ttl=1 reaches the whole segment"),
    });
    if let Some(name) = &interface {
        checks.extend(of_interface(name, ttl));
    }
    checks.push(buffers(target.url.options.recv_buf_size.unwrap_or(RECEIVE_BUFFER_WANTED)));
    let looped = loopback(group, own);
    let is_heard = looped.state == State::Good;
    checks.push(looped);
    if is_heard && group.is_ipv4() {
        checks.push(segments::check(group, &target.url.options));
    }
    checks
}

/// The address that the kernel would send from; connecting a UDP socket sends nothing.
pub(crate) fn local_address(group: SocketAddr) -> io::Result<IpAddr> {
    let any: SocketAddr = if group.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" }.parse().expect("a literal address");
    let socket = UdpSocket::bind(any)?;
    socket.connect(group)?;
    Ok(socket.local_addr()?.ip())
}

/// The interface of the most specific IPv4 route to `group`, from /proc/net/route.
fn interface_of(group: IpAddr) -> Option<String> {
    let IpAddr::V4(group) = group else { return None };
    let routes = std::fs::read_to_string("/proc/net/route").ok()?;
    best_route(&routes, group)
}

fn best_route(routes: &str, to: Ipv4Addr) -> Option<String> {
    let to = u32::from(to);
    let of_line = |line: &str| {
        let f: Vec<&str> = line.split_whitespace().collect();
        // Little-endian hexadecimal: destination in the second column, mask in the eighth.
        let address = |i: usize| u32::from_str_radix(f.get(i)?, 16).ok().map(u32::swap_bytes);
        let (destination, mask) = (address(1)?, address(7)?);
        (to & mask == destination).then(|| (mask, f[0].to_owned()))
    };
    routes.lines().skip(1).filter_map(of_line).max_by_key(|(mask, _)| *mask).map(|(_, name)| name)
}

fn of_interface(name: &str, ttl: u32) -> Vec<Check> {
    let read = |what: &str| std::fs::read_to_string(Path::new("/sys/class/net").join(name).join(what)).ok();
    let mut checks = vec![];
    let flags = read("flags").and_then(|f| u32::from_str_radix(f.trim().trim_start_matches("0x"), 16).ok());
    if let Some(flags) = flags {
        let (up, multicast) = (flags & IFF_UP != 0, flags & IFF_MULTICAST != 0);
        checks.push(if !up {
            let hint = format!("sudo ip link set {name} up");
            Check::broken("interface", Class::Unreachable, format!("{name} is down"), hint)
        } else if !multicast && name != "lo" {
            let hint = format!("sudo ip link set {name} multicast on");
            Check::broken("interface", Class::Unreachable, format!("{name} does not carry multicast"), hint)
        } else if name == "lo" && ttl > 0 {
            let hint = "sudo ip route replace 224.0.0.0/4 dev IFACE";
            Check::hurts("interface", "lo: messages do not leave this machine although ttl > 0", hint)
        } else {
            Check::good("interface", format!("{name} is up and carries multicast"))
        });
    }
    if let Some(mtu) = read("mtu").and_then(|m| m.trim().parse::<u64>().ok()) {
        checks.push(if mtu < 1280 {
            let hint = format!("sudo ip link set {name} mtu 1500");
            Check::hurts("mtu", format!("{mtu}: small datagrams cost much of the speed"), hint)
        } else {
            Check::good(
                "mtu",
                format!(
                    "{}: datagrams of up to {} B of UDP payload",
                    thousands(mtu),
                    thousands((mtu - 28).min(UDP_PAYLOAD_MAX))
                ),
            )
        });
    }
    checks
}

fn buffers(wanted: usize) -> Check {
    let limit =
        std::fs::read_to_string("/proc/sys/net/core/rmem_max").ok().and_then(|t| t.trim().parse::<usize>().ok());
    let got = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP)).and_then(|s| {
        s.set_recv_buffer_size(wanted)?;
        // The kernel doubles what is asked for, for its own bookkeeping, and reports the double.
        Ok(s.recv_buffer_size()? / 2)
    });
    match got {
        Err(e) => Check::hurts("buffers", format!("cannot be set: {}", plain(&e)), "sysctl net.core.rmem_max"),
        Ok(got) if got >= wanted => Check::good("buffers", format!("{} for receiving", bytes(got as u64))),
        Ok(got) => Check::hurts(
            "buffers",
            format!(
                "{} for receiving, {} wanted (net.core.rmem_max = {}): bursts will be lost",
                bytes(got as u64),
                bytes(wanted as u64),
                limit.map_or("?".to_owned(), |l| thousands(l as u64)),
            ),
            format!("sudo sysctl -w net.core.rmem_max={wanted}"),
        ),
    }
}

/// Sends one datagram to the group's address, on a port of its own, and waits for it to come back.
fn loopback(group: SocketAddr, own: IpAddr) -> Check {
    let heard = match (group.ip(), own) {
        (IpAddr::V4(group), IpAddr::V4(own)) => multicast_to_myself(group, own),
        _ => return Check::good("loop", "not tried over IPv6"),
    };
    match heard {
        Ok(took) => {
            Check::good("loop", format!("a datagram to the group came back after {:.2} ms", took.as_secs_f64() * 1e3))
        }
        Err(e) if e.kind() == ErrorKind::WouldBlock => Check::broken(
            "loop",
            Class::Unreachable,
            "a datagram to the group did not come back: multicast is blocked here",
            "check the firewall: sudo nft list ruleset | grep -n drop",
        ),
        Err(e) => Check::broken(
            "loop",
            Class::Unreachable,
            format!("multicast fails: {}", plain(&e)),
            "ip route get 239.255.76.67",
        ),
    }
}

fn multicast_to_myself(group: Ipv4Addr, own: Ipv4Addr) -> io::Result<Duration> {
    let listener = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    listener.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)).into())?;
    listener.join_multicast_v4(&group, &own)?;
    listener.set_read_timeout(Some(Duration::from_millis(500)))?;
    let port = listener.local_addr()?.as_socket().map_or(0, |a| a.port());

    let sender = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    sender.set_multicast_if_v4(&own)?;
    sender.set_multicast_ttl_v4(0)?;
    sender.set_multicast_loop_v4(true)?;
    let mut question = [0; 16];
    getrandom::fill(&mut question).map_err(io::Error::other)?;
    let start = Instant::now();
    sender.send_to(&question, &SocketAddr::from((group, port)).into())?;
    let mut buffer = [MaybeUninit::uninit(); 64];
    loop {
        let (n, _) = listener.recv_from(&mut buffer)?;
        // A stray datagram of 16 bytes is next to impossible on a port drawn a moment ago.
        if n == question.len() {
            return Ok(start.elapsed());
        }
        if start.elapsed() > Duration::from_secs(1) {
            return Err(ErrorKind::WouldBlock.into());
        }
    }
}

fn clock() -> Check {
    let now = crate::text::now();
    let shown = crate::text::instant(now);
    if now < crate::text::FLOOR {
        let hint = "sudo timedatectl set-ntp true";
        return Check::broken("clock", Class::Expired, format!("{shown} is before this program was made"), hint);
    }
    let kept = Path::new("/run/systemd/timesync/synchronized").exists() || Path::new("/run/chrony").exists();
    Check::good("clock", format!("{shown}, {}", if kept { "kept by a time service" } else { "no time service seen" }))
}

/// Bytes of receive buffer that a burst of camera frames needs.
const RECEIVE_BUFFER_WANTED: usize = 8 << 20;
/// What to type where there is no route for multicast.
pub(crate) const NO_ROUTE_HINT: &str =
    "sudo ip link set lo up && sudo ip route add 224.0.0.0/4 dev lo   (one machine; else dev IFACE)";
/// 65,535 less the headers of IPv4 and UDP.
const UDP_PAYLOAD_MAX: u64 = 65_507;
/// Linux `include/uapi/linux/if.h`.
const IFF_UP: u32 = 0x1;
/// Linux `include/uapi/linux/if.h`.
const IFF_MULTICAST: u32 = 0x1000;

#[cfg(test)]
mod tests {
    use super::*;

    const ROUTES: &str = "\
Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT
eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0
lo\t000000E0\t00000000\t0001\t0\t0\t0\t000000F0\t0\t0\t0
eth1\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0
";

    #[test]
    fn the_most_specific_route_wins() {
        let best = |a: [u8; 4]| best_route(ROUTES, Ipv4Addr::from(a));
        assert_eq!(best([239, 255, 76, 67]).as_deref(), Some("lo"));
        assert_eq!(best([192, 0, 2, 9]).as_deref(), Some("eth1"));
        assert_eq!(best([10, 0, 0, 1]).as_deref(), Some("eth0"));
        assert_eq!(best_route("Iface\n", Ipv4Addr::LOCALHOST), None);
    }
}
