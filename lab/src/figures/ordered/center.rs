//! A key distribution centre as `sealcast kdc run` runs it: pair keys a second on one core, and memory.

use std::io::{self, BufRead as _, BufReader};
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use sealcast::config::{Home, KeptPrincipal, Overwrite};
use sealcast_crypto::identity::{Act, Principal, Registration, Right};
use sealcast_crypto::secret::Secret;
use sealcast_crypto::signature::OriginKey;
use sealcast_kdc::Store;
use sealcast_kdc::server::{framed, unframed};
use sealcast_kdc::store::principal;
use sealcast_keys::center::query::{Answer, Query};
use sealcast_wire::Utc;
use tempfile::TempDir;

use super::AREA;
use crate::Failure;
use crate::brokers::beside;
use crate::figures::{Bench, Goal, Row, median};
use crate::peers::OneCore;
use crate::peers::identities::GROUP;

pub(in crate::figures) const CENTER: &[&str] = &["ord-kdc-rate", "ord-kdc-memory"];

/// Both rows of one centre.
pub(in crate::figures) fn center(bench: &Bench) -> Result<Vec<Row>, Failure> {
    let (turns, seconds) = bench.pick((3, 1), (5, 3));
    let lasts = Duration::from_secs(seconds);
    let registry = Registry::new()?;
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

/// A centre's folder, and a home for those whom it registers.
pub(super) struct Registry {
    folder: TempDir,
}

impl Registry {
    /// Nobody is registered.
    pub(super) fn new() -> Result<Registry, Failure> {
        // Registering thousands waits for a disk thousands of times.
        let memory = Path::new("/dev/shm");
        let within = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        Ok(Registry { folder: tempfile::Builder::new().prefix("sealcast-lab-").tempdir_in(within)? })
    }

    /// The home in which the principals of [`Registry::keep`] are found.
    pub(super) fn home(&self) -> &Path {
        self.folder.path()
    }

    /// Registers so many, called `robot0`, `robot1`, …: all may do all with every topic, and lead.
    pub(super) fn register(&self, members: usize) -> Result<Vec<Principal>, Failure> {
        let mut seed = [0; 32];
        getrandom::fill(&mut seed)?;
        let store = Store::create(&self.folder.path().join(CENTRE), &Secret::from_bytes(seed))?;
        let now = Utc(i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs())?);
        let rights = [Act::Both, Act::Lead, Act::Evict].map(|act| Right::new(GROUP, act, "#"));
        let rights = rights.into_iter().collect::<Result<Vec<Right>, _>>()?;
        let mut made = Vec::new();
        for i in 0..members {
            getrandom::fill(&mut seed)?;
            let signing = Secret::from_bytes(seed);
            let draft = Registration {
                realm: store.realm(),
                serial: 0,
                name: format!("robot{i}").as_str().into(),
                key: OriginKey::from_seed(&signing).public().clone(),
                not_before: now.0 - 60,
                not_after: now.0 + 86_400,
                rights: rights.iter().cloned().collect(),
            };
            made.push(principal(store.secret(), store.register(draft, now)?, signing));
        }
        Ok(made)
    }

    /// Registers so many, and writes the files that they join with.
    pub(super) fn keep(&self, members: usize) -> Result<(), Failure> {
        let home = Home::at(self.home());
        for made in self.register(members)? {
            let path = home.principal(&made.registration.name);
            KeptPrincipal { path, principal: made, url: None }.write(None, Overwrite::Never)?;
        }
        Ok(())
    }

    /// Runs the centre; in the namespace where this command is, if there is one.
    pub(super) fn run(&self, within: Option<Command>, listen: &str) -> Result<Running, Failure> {
        let mut command = within.map_or_else(|| beside("sealcast").map(Command::new), Ok)?;
        command.args(["--json", "kdc", "run", "--listen", listen, "--dir"]).arg(self.folder.path().join(CENTRE));
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("stdout is piped")).read_line(&mut line)?;
        let said: Result<serde_json::Value, _> = serde_json::from_str(&line);
        let address = said.ok().and_then(|it| it["listen"].as_str()?.parse().ok());
        let mut running = Running { child, address: ([0, 0, 0, 0], 0).into() };
        running.address = address.ok_or("the centre does not run")?;
        Ok(running)
    }
}

/// A centre that runs until it is dropped.
pub(super) struct Running {
    child: Child,
    pub(super) address: SocketAddr,
}

impl Running {
    /// The most memory that it has used.
    fn resident_bytes(&self) -> Result<u64, Failure> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("no VmHWM in /proc")?;
        Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? * 1024)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const REGISTERED: usize = 10_000;
/// Written before a measurement; asked again in turn.
const QUESTIONS: u64 = 4_096;
const OUTSTANDING: usize = 64;
/// The centre's folder within the home.
const CENTRE: &str = "kdc";
