//! Who is measured against whom: plain, sealed, signed, and the original LCM.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::Failure;
use crate::peers::identities::Identities;
use crate::peers::{Player, roles};

/// One of the compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// The original LCM, called from C.
    Liblcm,
    /// Ours, with `keys=plain`: LCM's bytes.
    Plain,
    /// Ours, sealed under AES-256-GCM, origin by the group's MAC.
    Sealed,
    /// As `Sealed`, under ChaCha20-Poly1305.
    ChaCha,
    /// As `Sealed`, each origin proved by a signature.
    Signed,
    /// Our framing, unsealed: `keys=plain&order=total`.
    Unsealed,
    /// As `Unsealed`, on the channel that loses nothing.
    ReliableUnsealed,
    /// As `Sealed`, on the channel that loses nothing.
    Reliable,
    /// As `Reliable`, under ChaCha20-Poly1305.
    ReliableChaCha,
}

/// How datagrams are made of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Path {
    /// `batch=off&gso=off`: one message, one datagram (or its fragments), one system call each.
    OnePacket,
    /// `gso=off&segment=1472`: one message of 1 KB a datagram, one system call each, while signatures
    /// are made for many at once.
    OneEach,
    /// `batch=on&gso=on`: messages in quick succession share datagrams and system calls.
    Segmented,
}

impl Side {
    /// The name in tables and plots.
    pub fn name(self) -> &'static str {
        match self {
            Side::Liblcm => "liblcm",
            Side::Plain => "plain",
            Side::Sealed => "sealed",
            Side::ChaCha => "sealed ChaCha20",
            Side::Signed => "signed",
            Side::Unsealed => "unsealed",
            Side::ReliableUnsealed => "reliable unsealed",
            Side::Reliable => "reliable",
            Side::ReliableChaCha => "reliable ChaCha20",
        }
    }

    /// Whether its messages are published fifo.
    pub fn is_reliable(self) -> bool {
        matches!(self, Side::ReliableUnsealed | Side::Reliable | Side::ReliableChaCha)
    }
}

/// The network that sides meet on: hands out addresses, so that no two contests hear each other.
#[derive(Debug)]
pub struct Field {
    next: AtomicU8,
}

impl Default for Field {
    fn default() -> Field {
        Field { next: AtomicU8::new(0) }
    }
}

impl Field {
    /// An address of its own for one contest.
    pub fn address(&self) -> String {
        let n = 1 + self.next.fetch_add(1, Ordering::Relaxed) % 250;
        format!("239.255.77.{n}:{}", 7700 + u16::from(n))
    }

    /// The URL of a side at an address.
    pub fn url(&self, side: Side, path: Path, address: &str) -> String {
        let path = match path {
            Path::OnePacket => "batch=off&gso=off",
            Path::OneEach => "gso=off&segment=1472",
            Path::Segmented => "batch=on&gso=on",
        };
        let common = format!("udpm://{address}?ttl=0&recv_buf_size={RECEIVE_BUFFER}");
        let sealed = format!("{common}&keys=contributory&group=lab&origin=mac&{path}");
        match side {
            Side::Liblcm => common,
            Side::Plain => format!("{common}&keys=plain&{path}"),
            Side::Unsealed | Side::ReliableUnsealed => {
                format!("{common}&keys=plain&group=lab&order=total&{path}")
            }
            Side::Sealed => sealed,
            Side::ChaCha => format!("{sealed}&{CHACHA}"),
            Side::Reliable => format!("{sealed}&order=total"),
            Side::ReliableChaCha => format!("{sealed}&order=total&{CHACHA}"),
            Side::Signed => format!("{common}&keys=contributory&group=lab&origin=signed&{path}"),
        }
    }

    /// Starts the processes of these roles as one group; all are ready when it returns.
    ///
    /// # Errors
    /// If one of them cannot be started or does not get ready.
    pub fn start(&self, side: Side, path: Path, roles: &[&str]) -> Result<Vec<Player>, Failure> {
        let url = self.url(side, path, &self.address());
        let identities = match side {
            Side::Liblcm | Side::Plain => None,
            _ => Some(Arc::new(Identities::new(roles.len())?)),
        };
        let mut players = Vec::new();
        for (i, role) in roles.iter().enumerate() {
            let mut command = match side {
                Side::Liblcm => {
                    let mut c = Command::new(liblcm()?);
                    c.arg(role).arg(&url);
                    c
                }
                _ => {
                    let mut c = command(role, &url, identities.as_deref(), i)?;
                    if side.is_reliable() {
                        c.args(["--guarantee", "fifo"]);
                    }
                    c
                }
            };
            players.push(Player::start(&mut command)?.with(identities.clone()));
        }
        players.iter().try_for_each(Player::ready)?;
        Ok(players)
    }
}

/// The command of one of our own roles, as the `i`th of these.
///
/// # Errors
/// If our own program cannot be found.
pub fn command(role: &str, url: &str, identities: Option<&Identities>, i: usize) -> Result<Command, Failure> {
    let mut c = Command::new(roles::program()?);
    c.arg("role").arg(role).arg(url);
    if let Some(all) = identities {
        c.arg("--home").arg(all.home()).arg("--identity").arg(all.name(i));
        c.arg("--members").arg(all.len().to_string());
    }
    Ok(c)
}

/// The C program that speaks for the original LCM.
///
/// # Errors
/// If `make peers` was not run; rows that need it then print `not run`.
pub fn liblcm() -> Result<PathBuf, PeerMissing> {
    let named = std::env::var_os("SEALCAST_PEERS").map(PathBuf::from);
    let folders = named.into_iter().chain([PathBuf::from("out/peers")]);
    folders.map(|f| f.join("lcm_peer")).find(|p| p.exists()).ok_or(PeerMissing("liblcm"))
}

/// A peer is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} was not built: type `make peers`")]
pub struct PeerMissing(pub &'static str);

const CHACHA: &str = "suite=chacha20poly1305";
/// Receive buffer of every side, bytes: the most that Linux grants without tuning here.
const RECEIVE_BUFFER: usize = 4 << 20;
