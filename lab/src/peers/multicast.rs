//! Systems that multicast and lose nothing: ours, JGroups, Aeron and NORM. A sender and receivers, each a process in a
//! namespace of its own on a bridge; all speak the lines of `lab/peers/lcm_peer.c`.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::Failure;
use crate::netns::Bridge;
use crate::peers::identities::Identities;
use crate::peers::servers::found;
use crate::peers::side::PeerMissing;
use crate::peers::{Player, roles};

/// One of the compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum System {
    /// Ours, sealed, in each sender's order.
    Fifo,
    /// Ours, sealed, in one order.
    Ordered,
    /// JGroups, whose channel is in each sender's order.
    JGroups {
        /// The most bytes of a bundle.
        bundle: u32,
        /// By SYM_ENCRYPT: AES-256 in CBC mode, without integrity.
        sealed: bool,
    },
    /// Aeron, in clear: the slowest receiver limits the sender.
    Aeron,
    /// NORM, a stream in clear, with parity that is sent unasked.
    Norm,
}

impl System {
    /// The name in tables.
    pub fn name(self) -> String {
        match self {
            System::Fifo => "sealed fifo".into(),
            System::Ordered => "sealed ordered".into(),
            System::JGroups { bundle, sealed: false } => format!("JGroups, bundles of {bundle} B"),
            System::JGroups { bundle, sealed: true } => format!("JGroups SYM_ENCRYPT, bundles of {bundle} B"),
            System::Aeron => "Aeron".into(),
            System::Norm => "NORM".into(),
        }
    }

    /// Which version is here.
    ///
    /// # Errors
    /// `make peers` did not make it.
    pub fn version(self) -> Result<String, PeerMissing> {
        let Some(peer) = self.peer() else { return Ok(String::new()) };
        let text = found(peer, "version").and_then(|at| std::fs::read_to_string(at).ok());
        text.map(|it| it.trim().to_owned()).ok_or(PeerMissing(peer))
    }

    /// The peer's folder, if it is one.
    fn peer(self) -> Option<&'static str> {
        match self {
            System::Fifo | System::Ordered => None,
            System::JGroups { .. } => Some("jgroups"),
            System::Aeron => Some("aeron"),
            System::Norm => Some("norm"),
        }
    }

    /// The command of member `i` of `members`, the first of whom sends.
    fn command(
        self,
        bridge: &Bridge,
        identities: Option<&Identities>,
        options: &str,
        i: usize,
    ) -> Result<Command, Failure> {
        let (role, members) = (if i == 0 { "send" } else { "receive" }, bridge.len());
        let address = Bridge::address_of(i).to_string();
        let mut command = match self {
            System::Fifo | System::Ordered => bridge.command(i, roles::program()?),
            System::Norm => bridge.command(i, found("norm", "norm_peer").ok_or(PeerMissing("norm"))?),
            System::JGroups { .. } | System::Aeron => bridge.command(i, "java"),
        };
        match self {
            System::Fifo | System::Ordered => {
                let identities = identities.ok_or("a group needs identities")?;
                let guarantee = if self == System::Fifo { "fifo" } else { "ordered" };
                let url = format!("{URL}&{options}");
                command.args(["role", role, &url, "--guarantee", guarantee, "--members", &members.to_string()]);
                command.arg("--home").arg(identities.home()).arg("--identity").arg(identities.name(i));
            }
            System::JGroups { bundle, sealed } => {
                java(&mut command, "jgroups")?;
                let cipher = if sealed { "sym" } else { "plain" };
                command.args([role, &address, &members.to_string(), &bundle.to_string(), cipher]);
            }
            System::Aeron => {
                java(&mut command, "aeron")?;
                command.args([role, &address, &(members - 1).to_string()]);
            }
            System::Norm => {
                command.args([role, &address]);
            }
        }
        Ok(command)
    }
}

/// A sender and receivers.
#[derive(Debug)]
pub struct Stream {
    sender: Player,
    receivers: Vec<Player>,
}

impl Stream {
    /// Starts all members, the first of whom sends. Options are those of our URLs: at least whether sends are segmented.
    ///
    /// # Errors
    /// The peer is not here, or a process ended.
    pub fn start(bridge: &Bridge, system: System, options: &str) -> Result<Stream, Failure> {
        let identities = match system.peer() {
            None => Some(Arc::new(Identities::new(bridge.len())?)),
            Some(_) => None,
        };
        let mut receivers = Vec::new();
        for i in 0..bridge.len() {
            let mut command = system.command(bridge, identities.as_deref(), options, i)?;
            let player = Player::start(&mut command)?.with(identities.clone());
            // Members of JGroups that start together found a group each, which merge much later.
            if matches!(system, System::JGroups { .. }) && player.hear()? != "joined" {
                return Err("a member of JGroups did not join".into());
            }
            receivers.push(player);
        }
        receivers.iter().try_for_each(Player::ready)?;
        Ok(Stream { sender: receivers.remove(0), receivers })
    }

    /// Has the sender send messages of `size` bytes for so long, as fast as it may.
    ///
    /// # Errors
    /// A process ended.
    pub fn send(&mut self, size: usize, lasts: Duration) -> Result<(), Failure> {
        Ok(self.sender.tell(&format!("{size} 0 {}", lasts.as_millis()))?)
    }

    /// Messages per second at each receiver, over this window.
    ///
    /// # Errors
    /// A process ended.
    pub fn rates(&mut self, window: Duration) -> Result<Vec<f64>, Failure> {
        self.taken()?;
        let start = Instant::now();
        std::thread::sleep(window);
        let taken = self.taken()?;
        let seconds = start.elapsed().as_secs_f64();
        Ok(taken.into_iter().map(|it| it as f64 / seconds).collect())
    }

    /// Waits until the sender has sent for as long as it was to: one that ended early would have sent for less.
    ///
    /// # Errors
    /// It ended.
    pub fn sent(&mut self) -> Result<(), Failure> {
        self.sender.hear().map(drop)?;
        Ok(())
    }

    fn taken(&mut self) -> Result<Vec<u64>, Failure> {
        self.receivers.iter_mut().map(|it| Ok(it.ask_numbers::<4>("take")?[0])).collect()
    }
}

/// Messages per second at the slowest receiver while the sender sends as fast as it may: `window` long, once it has sent for
/// a while (virtual machines compile, windows open).
///
/// # Errors
/// The peer is not here, or a process ended.
pub fn steady(bridge: &Bridge, system: System, size: usize, window: Duration) -> Result<f64, Failure> {
    let mut stream = Stream::start(bridge, system, "gso=on")?;
    stream.send(size, WARM_UP + window + RUN_OUT)?;
    std::thread::sleep(WARM_UP);
    let rates = stream.rates(window)?;
    stream.sent()?;
    Ok(rates.into_iter().fold(f64::INFINITY, f64::min))
}

/// Members of JGroups in one process on loopback, who come and go.
#[derive(Debug)]
pub struct Changes {
    player: Player,
}

impl Changes {
    /// So many members.
    ///
    /// # Errors
    /// JGroups is not here.
    pub fn start(members: usize) -> Result<Changes, Failure> {
        let mut command = Command::new("java");
        java(&mut command, "jgroups")?;
        command.args(["changes", "127.0.0.1", &members.to_string(), &JGROUPS_BUNDLES[1].to_string(), "plain"]);
        let player = Player::start(&mut command)?;
        player.ready()?;
        Ok(Changes { player })
    }

    /// One more joins and sends; how long until an older member has that message.
    ///
    /// # Errors
    /// The process ended.
    pub fn join(&mut self) -> Result<Duration, Failure> {
        let [nanos] = self.player.ask_numbers("join")?;
        Ok(Duration::from_nanos(nanos))
    }

    /// The coordinator leaves; how long until all others have the next view.
    ///
    /// # Errors
    /// The process ended.
    pub fn lead(&mut self) -> Result<Duration, Failure> {
        let [nanos] = self.player.ask_numbers("lead")?;
        Ok(Duration::from_nanos(nanos))
    }
}

/// What starts the peer's program in a virtual machine.
fn java(command: &mut Command, peer: &'static str) -> Result<(), Failure> {
    let file = |name| found(peer, name).ok_or(PeerMissing(peer));
    let [jars, classes]: [PathBuf; 2] = [file("jars")?, file("classes")?];
    // Aeron reaches into the JDK.
    let opens = ["jdk.internal.misc", "sun.nio.ch"].map(|it| format!("--add-opens=java.base/{it}=ALL-UNNAMED"));
    command.args(opens).args(["-Xmx512m", "-Djava.net.preferIPv4Stack=true", "-cp"]);
    command.arg(format!("{}/*:{}", jars.display(), classes.display())).arg("Peer");
    Ok(())
}

/// JGroups is measured with both, and the better counts: a bundle that is one packet, and its own default.
pub const JGROUPS_BUNDLES: [u32; 2] = [1_400, 64_000];
/// Ours.
const URL: &str =
    "udpm://239.255.77.76:7676?ttl=1&keys=contributory&group=lab&order=total&origin=mac&recv_buf_size=4194304";
/// Before the window.
const WARM_UP: Duration = Duration::from_secs(3);
/// After it.
const RUN_OUT: Duration = Duration::from_millis(500);
