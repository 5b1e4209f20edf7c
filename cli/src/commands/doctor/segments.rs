//! Whether what `doctor` sends to the group in one piece comes back whole: a run of datagrams that the kernel or the network
//! card cuts apart (UDP GSO), and one datagram that travels in IP fragments.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::thread::sleep;
use std::time::{Duration, Instant};

use sealcast::Result;
use sealcast::code::Class;
use sealcast::error::Error;
use sealcast::io::udp::{self, UdpReceiver, UdpSender};
use sealcast::url::Options;
use sealcast_delivery::Batch;

use super::Check;

/// How many came back, of how many that were sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Came {
    back: usize,
    of: usize,
}

/// What was sent, and what came back.
#[derive(Clone, Copy, Debug)]
struct Probe {
    /// One send, cut into segments; `None` if the URL or the kernel has them sent one by one.
    segments: Option<Came>,
    /// The same datagrams, sent one by one.
    single: Came,
    /// Datagrams longer than a packet of this interface; `None` if there are none, as on loopback.
    fragmented: Option<Came>,
}

/// Sends to the group's address, through its interface and on a port of its own.
pub(super) fn check(group: SocketAddr, options: &Options) -> Check {
    match probe(group, options) {
        Ok(probe) => judged(probe),
        Err(e) => Check::hurts(
            "segments",
            format!("not tried: {e}"),
            crate::hint::next(&e).unwrap_or_else(|| "ip route get 239.255.76.67".to_owned()),
        ),
    }
}

fn probe(group: SocketAddr, options: &Options) -> Result<Probe> {
    let system = |e: io::Error| Error::system("sending to the group", &e);
    let any =
        UdpSocket::bind(SocketAddr::new([0, 0, 0, 0].into(), 0)).and_then(|it| it.local_addr()).map_err(system)?;
    let to = SocketAddr::new(group.ip(), any.port());
    // What is looked at is not for others.
    let mut options = options.clone();
    options.ttl = 0;
    let (mut receiver, _) = UdpReceiver::open(to, &options)?;
    let mut send = |gso: bool, length: usize, count: usize| -> Result<(Came, bool)> {
        let mut options = options.clone();
        options.gso = gso;
        let sender = UdpSender::open(to, &options)?;
        let mut batch = Batch::default();
        let datagram: Vec<u8> = sealcast::io::rng::bytes::<16>()?.into_iter().cycle().take(length).collect();
        (0..count).for_each(|_| batch.push(&datagram));
        sender.send(&batch).map_err(system)?;
        let (mut back, start) = (0, Instant::now());
        while back < count && start.elapsed() < TIMEOUT {
            let mut heard = |_, bytes: &mut [u8]| back += usize::from(bytes == datagram);
            if !receiver.receive(&mut heard).map_err(system)? {
                sleep(STEP);
            }
        }
        Ok((Came { back, of: count }, sender.gso()))
    };
    let mut of_route = options.clone();
    let asked = of_route.segment.take();
    let packet = udp::segment(to, &of_route)?;
    let length = packet.min(asked.unwrap_or(LENGTH)).min(LENGTH);
    let (single, _) = send(false, length, RUN)?;
    let (together, stays) = send(true, length, RUN)?;
    let segments = (options.gso && stays).then_some(together);
    let longer = 2 * packet;
    let fragmented = if longer < LONGEST { Some(send(false, longer, 1)?.0) } else { None };
    Ok(Probe { segments, single, fragmented })
}

fn judged(probe: Probe) -> Check {
    let whole = |it: Option<Came>| it.is_none_or(|it| it.back == it.of);
    let Came { back, of } = probe.single;
    if back < of {
        let found = format!(
            "{back} of {of} datagrams of Ethernet's length came back: longer ones than the path carries are lost"
        );
        let hint = "add mtu=1280 to the URL, or set the interface's: sudo ip link set IFACE mtu 1500";
        return Check::broken("segments", Class::Unreachable, found, hint);
    }
    if let Some(Came { back, of }) = probe.segments.filter(|it| !whole(Some(*it))) {
        let found = format!(
            "{back} of {of} datagrams that were sent as one came back, sent one by one all did: UDP GSO is broken here"
        );
        let hint = "add gso=off to the URL, or: sudo ethtool -K IFACE tx-udp-segmentation off";
        return Check::broken("segments", Class::Unreachable, found, hint);
    }
    if !whole(probe.fragmented) {
        let found = "a datagram in IP fragments did not come back: large messages of plain LCM peers are lost";
        let hint = "let fragments through: sudo nft list ruleset | grep -n frag; sealed groups send none";
        return Check::hurts("segments", found, hint);
    }
    let sent = match probe.segments {
        Some(it) => format!("{} datagrams sent as one came back", it.of),
        None => format!("{of} datagrams came back, sent one by one (gso is off)"),
    };
    let fragments = if probe.fragmented.is_some() { ", and one in fragments" } else { "" };
    Check::good("segments", format!("{sent}{fragments}"))
}

/// As many as a burst of a message of some 10 KB has.
const RUN: usize = 8;
/// Bytes of each: what an Ethernet frame carries, also on loopback, where one would be much longer and travel alone.
const LENGTH: usize = 1_400;
/// How long the loop may take.
const TIMEOUT: Duration = Duration::from_millis(300);
const STEP: Duration = Duration::from_millis(1);
/// UDP carries no longer datagram.
const LONGEST: usize = 65_507;

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    #[test]
    fn what_is_lost_has_its_words_and_the_option_that_avoids_it() {
        let all = Came { back: 8, of: 8 };
        let one = |back: usize| Some(Came { back, of: 1 });
        let good = Probe { segments: Some(all), single: all, fragmented: one(1) };
        assert_eq!(judged(good).state, State::Good);
        let cut = judged(Probe { segments: Some(Came { back: 0, of: 8 }), ..good });
        assert_eq!((cut.state, cut.exit), (State::Broken, 4));
        assert!(cut.found.contains("0 of 8") && cut.hint.is_some_and(|it| it.contains("gso=off")));
        let fragments = judged(Probe { fragmented: one(0), ..good });
        assert!(fragments.state == State::Hurts && fragments.found.contains("fragments"), "{}", fragments.found);
        let short = judged(Probe { single: Came { back: 1, of: 8 }, ..good });
        assert!(short.state == State::Broken && short.hint.is_some_and(|it| it.contains("mtu=")));
        let off = judged(Probe { segments: None, ..good });
        assert!(off.state == State::Good && off.found.contains("gso is off"), "{}", off.found);
    }
}
