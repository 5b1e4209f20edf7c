//! Links that carry little: one slow receiver, and a bottleneck that is shared with a TCP stream.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::{AREA, MEMBERS};
use crate::Failure;
use crate::figures::{Bench, Goal, Holds, Row};
use crate::netns::Bridge;
use crate::peers::multicast::{Stream, System};

pub(in crate::figures) const SLOW: &[&str] = &[WAIT, EXPEL];
const WAIT: &str = "ord-slow-wait";
const EXPEL: &str = "ord-slow-expel";

/// One receiver at 2 Mb/s, for which the others wait or which they expel.
pub(in crate::figures) fn slow(bench: &Bench) -> Result<Vec<Row>, Failure> {
    let window = Duration::from_secs(bench.pick(5, 20));
    let what = [
        (WAIT, format!("rate with one receiver at {SLOW_MEGABITS} Mb/s, slow=wait / that rate"), Goal::AtLeast(0.8)),
        (
            EXPEL,
            format!("the others' rate after one at {SLOW_MEGABITS} Mb/s was expelled, slow=expel / before"),
            Goal::AtLeast(0.95),
        ),
    ];
    let rows = what.into_iter().filter(|(id, ..)| bench.wants(id)).map(|(id, what, goal)| {
        bench.bar.tick();
        let row = Row::new(AREA, id, format!("{what}, fifo, 1 KB, 1 -> 3"), "ratio", goal);
        let how = format!(
            "{} s, {:?} after the link became slow, gso=off, bridge of namespaces, one process each",
            window.as_secs(),
            reaction(id)
        );
        match slowed(id, window) {
            Ok(Slowed { before, slow, others }) => {
                let row = row.part("before msg/s", before).part("slow one msg/s", slow).part("others msg/s", others);
                let value =
                    if id == WAIT { megabits(slow.min(others)) / f64::from(SLOW_MEGABITS) } else { others / before };
                row.measured(value, how)
            }
            Err(why) => row.absent(Holds::No, why.to_string()),
        }
    });
    Ok(rows.collect())
}

/// Messages per second.
struct Slowed {
    /// At the slowest, while all links are fast.
    before: f64,
    /// At the receiver whose link is slow.
    slow: f64,
    /// At the slowest of the others meanwhile.
    others: f64,
}

/// So long after the link became slow what was under way has arrived, or who is slow is known.
fn reaction(id: &str) -> Duration {
    if id == WAIT { DRAINS } else { REACTION }
}

fn slowed(id: &str, window: Duration) -> Result<Slowed, Failure> {
    let bridge = Bridge::new(MEMBERS)?;
    // To wait is the default.
    let options = if id == WAIT { EACH.to_owned() } else { format!("{EACH}&slow=expel") };
    let mut stream = Stream::start(&bridge, System::Fifo, &options)?;
    stream.send(1_000, SETTLES + 2 * window + reaction(id))?;
    thread::sleep(SETTLES);
    let slowest = |rates: &[f64]| rates.iter().copied().fold(f64::INFINITY, f64::min);
    let before = slowest(&stream.rates(window)?);
    bridge.limit_to(MEMBERS - 1, Some(SLOW_MEGABITS))?;
    thread::sleep(reaction(id));
    let rates = stream.rates(window)?;
    let (slow, others) = rates.split_last().ok_or("there are no receivers")?;
    Ok(Slowed { before, slow: *slow, others: slowest(others) })
}

pub(in crate::figures) const BOTTLENECK: &[&str] = &[USE, SHARE];
const USE: &str = "ord-bottleneck-use";
const SHARE: &str = "ord-bottleneck-share";

/// A sender whose link carries 100 Mb/s, alone and beside one TCP stream.
pub(in crate::figures) fn bottleneck(bench: &Bench) -> Result<Vec<Row>, Failure> {
    let window = Duration::from_secs(bench.pick(5, 20));
    let bridge = Bridge::new(MEMBERS)?;
    let mut stream = Stream::start(&bridge, System::Fifo, EACH)?;
    bridge.limit_from(0, Some(BOTTLENECK_MEGABITS))?;
    stream.send(1_000, 2 * SETTLES + 2 * window + REACTION)?;
    thread::sleep(SETTLES);
    let slowest = |rates: Vec<f64>| megabits(rates.into_iter().fold(f64::INFINITY, f64::min));
    let alone = slowest(stream.rates(window)?);
    bench.bar.tick();
    let tcp = Tcp::start(&bridge, 0, 1)?;
    thread::sleep(SETTLES);
    let (start, before) = (Instant::now(), tcp.bytes());
    let beside = slowest(stream.rates(window)?);
    let tcp = (tcp.bytes() - before) as f64 * 8.0 / 1e6 / start.elapsed().as_secs_f64();
    let how = format!(
        "{} s, tbf on the sender's link, what waits longer than 50 ms is lost, gso=off, messages' bytes alone, bridge of \
         namespaces, one process each",
        window.as_secs()
    );
    let what = format!("use of a bottleneck of {BOTTLENECK_MEGABITS} Mb/s, fifo, 1 KB, 1 -> 3");
    let row = Row::new(AREA, USE, what, "ratio", Goal::AtLeast(0.8));
    let used = row.part("Mb/s", alone).measured(alone / f64::from(BOTTLENECK_MEGABITS), &how);
    let row = Row::new(AREA, SHARE, "share of it beside one TCP stream", "ratio", Goal::Between(0.25, 0.75));
    let shared = row.part("Mb/s", beside).part("TCP Mb/s", tcp).measured(beside / (beside + tcp), how);
    Ok(vec![used, shared])
}

/// A TCP stream from one member to another, as much as it carries.
struct Tcp {
    stream: TcpStream,
    received: Arc<AtomicU64>,
}

impl Tcp {
    fn start(bridge: &Bridge, from: usize, to: usize) -> Result<Tcp, Failure> {
        let address = (Bridge::address_of(to), TCP_PORT);
        let listener = bridge.enter(to, || TcpListener::bind(address))??;
        let stream = bridge.enter(from, || TcpStream::connect(address))??;
        let (mut accepted, _) = listener.accept()?;
        let received = Arc::new(AtomicU64::new(0));
        let counter = received.clone();
        thread::spawn(move || {
            let mut buffer = vec![0; 1 << 16];
            while let Ok(length @ 1..) = accepted.read(&mut buffer) {
                counter.fetch_add(length as u64, Ordering::Relaxed);
            }
        });
        let mut sending = stream.try_clone()?;
        thread::spawn(move || while sending.write_all(&[0; 1 << 14]).is_ok() {});
        Ok(Tcp { stream, received })
    }

    fn bytes(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }
}

impl Drop for Tcp {
    fn drop(&mut self) {
        // Both threads end with it.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

/// What messages of 1,000 bytes a second come to.
fn megabits(messages: f64) -> f64 {
    messages * 8_000.0 / 1e6
}

/// One message of 1 KB a datagram: what limits a link counts datagrams, not segmented sends.
const EACH: &str = "gso=off&segment=1472";
const SLOW_MEGABITS: u32 = 2;
const BOTTLENECK_MEGABITS: u32 = 100;
/// Who is slow is known.
const REACTION: Duration = Duration::from_secs(6);
/// As much as may be under way is through the slow link: 4 MB.
const DRAINS: Duration = Duration::from_secs(20);
const SETTLES: Duration = Duration::from_secs(3);
const TCP_PORT: u16 = 7_679;
