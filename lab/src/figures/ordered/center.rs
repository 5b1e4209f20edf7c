//! A key distribution centre: pair keys a second on one core, and memory.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use sealcast_kdc::server::{framed, unframed};
use sealcast_keys::center::query::{Answer, Query};

use super::AREA;
use crate::Failure;
use crate::figures::{Bench, Goal, Row, median};
use crate::peers::OneCore;
use crate::peers::centre::Registry;

pub(in crate::figures) const CENTER: &[&str] = &["ord-kdc-rate", "ord-kdc-memory"];

/// Both rows of one centre.
pub(in crate::figures) fn center(bench: &Bench) -> Result<Vec<Row>, Failure> {
    let (turns, seconds) = bench.pick((3, 1), (5, 3));
    let lasts = Duration::from_secs(seconds);
    let registry = Registry::in_memory()?;
    let members = registry.register(REGISTERED)?;
    // The other side of each exchange has the other core.
    let core = OneCore::hold()?;
    let running = registry.run(None, "127.0.0.1:0")?;
    let echo = Echo::start()?;
    drop(core);
    let (mut keys, mut echoes) = (vec![], vec![]);
    for turn in 0..turns {
        bench.bar.tick();
        let mut ask = |number: u64| {
            let nonce = (u128::from(number) << 32 | turn as u128).to_be_bytes();
            let (from, to) = (&members[0], &members[1 + number as usize % (members.len() - 1)]);
            framed(&Query::Pair(to.registration.hash()).write(&from.registration.hash(), &nonce, &from.long_term))
        };
        let granted = |answer: &[u8]| {
            let answer = unframed(answer).ok().and_then(|it| Answer::read(it).ok()?.check(&members[0].long_term).ok());
            // GRANTED is proved by what it holds, and that is for who asked to open.
            matches!(answer, Some(Answer::Granted(..)))
        };
        keys.push(exchanges(running.address, lasts, &mut ask, granted)?);
        echoes.push(exchanges(echo.address, lasts, &mut ask, |_| true)?);
    }
    let (keys, echoes) = (median(&keys), median(&echoes));
    let row = Row::new(
        AREA,
        "ord-kdc-rate",
        "pair keys/s of a centre on one core / bare UDP echoes",
        "ratio",
        Goal::AtLeast(0.25),
    );
    let how = format!(
        "medians of {turns} turns of {seconds} s, {OUTSTANDING} outstanding, each server on one core and the asker on the \
         others, questions of 185 bytes, loopback"
    );
    let rate = row.part("pair keys/s", keys).part("echoes/s", echoes).measured(keys / echoes, how);
    let megabytes = running.resident_bytes()? as f64 / 1e6;
    let what = format!("memory of a centre with {} registered", REGISTERED);
    let row = Row::new(AREA, "ord-kdc-memory", what, "MB", Goal::AtMost(64.0));
    let memory = row.measured(megabytes, "peak of the resident set, after answering for the row above");
    Ok(vec![rate, memory])
}

/// How many exchanges a second, so many outstanding.
fn exchanges(
    server: SocketAddr,
    lasts: Duration,
    ask: &mut impl FnMut(u64) -> Vec<u8>,
    is_good: impl Fn(&[u8]) -> bool,
) -> Result<f64, Failure> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.connect(server)?;
    socket.set_read_timeout(Some(Duration::from_millis(200)))?;
    // Questions are written before they are asked: the asker's own work is no part of the exchange.
    let questions: Vec<Vec<u8>> = (0..QUESTIONS).map(ask).collect();
    let mut next = questions.iter().cycle();
    let start = Instant::now();
    let (mut answered, mut buffer) = (0_u64, [0; 2048]);
    let mut send = || socket.send(next.next().expect("a cycle has no end"));
    (0..OUTSTANDING).try_for_each(|_| send().map(drop))?;
    let mut checked = false;
    while start.elapsed() < lasts {
        match socket.recv(&mut buffer) {
            Ok(length) => {
                // The first answer shows that the server does what it is measured for.
                if !checked && !is_good(&buffer[..length]) {
                    return Err("the first answer is not what was asked for".into());
                }
                checked = true;
                answered += 1;
                send()?;
            }
            // All that was outstanding is lost.
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                (0..OUTSTANDING).try_for_each(|_| send().map(drop))?;
            }
            Err(e) => return Err(e.into()),
        }
    }
    if !checked {
        return Err("no question was answered".into());
    }
    Ok(answered as f64 / start.elapsed().as_secs_f64())
}

/// A server that sends each datagram back, on a thread that stays where it is started.
struct Echo {
    address: SocketAddr,
    ended: Arc<AtomicBool>,
}

impl Echo {
    fn start() -> io::Result<Echo> {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        socket.set_read_timeout(Some(Duration::from_millis(100)))?;
        let (address, ended) = (socket.local_addr()?, Arc::new(AtomicBool::new(false)));
        let until = ended.clone();
        std::thread::spawn(move || {
            let mut buffer = [0; 2048];
            while !until.load(Ordering::Relaxed) {
                if let Ok((length, from)) = socket.recv_from(&mut buffer) {
                    // Who is gone needs no answer.
                    let _ = socket.send_to(&buffer[..length], from);
                }
            }
        });
        Ok(Echo { address, ended })
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

const REGISTERED: usize = 10_000;
/// Written before a measurement; asked again in turn.
const QUESTIONS: u64 = 4_096;
const OUTSTANDING: usize = 64;
