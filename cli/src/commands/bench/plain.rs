//! What multicasting costs by itself: one sender in clear to many sockets of this process, which all get everything.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::{Domain, Protocol, Socket, Type};

use super::stop_if_asked;
use crate::hint::Failure;

/// A sender, and sockets that have joined its group.
pub(super) struct PlainSockets {
    sender: UdpSocket,
    to: SocketAddrV4,
    receivers: Vec<UdpSocket>,
}

impl PlainSockets {
    /// So many sockets, at an address that nobody else uses.
    pub(super) fn open(to: SocketAddrV4, receivers: usize) -> Result<PlainSockets, Failure> {
        let open = || -> io::Result<PlainSockets> {
            let receivers = (0..receivers).map(|_| receiver(to)).collect::<io::Result<_>>()?;
            let sender = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
            sender.set_multicast_ttl_v4(0)?;
            sender.set_multicast_loop_v4(true)?;
            Ok(PlainSockets { sender, to, receivers })
        };
        open().map_err(|e| Failure::system(to, &e))
    }

    /// How many multicasts of this size a second all sockets get: the sender is a window ahead of the slowest at most. As many
    /// threads receive as there are cores.
    pub(super) fn measure(&self, size: usize, lasts: Duration) -> Result<f64, Failure> {
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(self.receivers.len());
        let shares: Vec<&[UdpSocket]> = self.receivers.chunks(self.receivers.len().div_ceil(threads)).collect();
        let slowest: Vec<AtomicU64> = shares.iter().map(|_| AtomicU64::new(0)).collect();
        let ended = AtomicBool::new(false);
        let least = || slowest.iter().map(|it| it.load(Ordering::Acquire)).min().unwrap_or_default();
        std::thread::scope(|scope| {
            for (sockets, slowest) in shares.iter().zip(&slowest) {
                scope.spawn(|| receive(sockets, slowest, &ended));
            }
            let (body, start) = (vec![0x5A; size], Instant::now());
            let mut sent = 0;
            let mut failure = Ok(());
            while start.elapsed() < lasts && failure.is_ok() {
                failure = self.sender.send_to(&body, self.to).map(drop).map_err(|e| Failure::system(self.to, &e));
                sent += 1;
                let waiting = Instant::now();
                while failure.is_ok() && sent - least() >= WINDOW {
                    std::thread::yield_now();
                    if waiting.elapsed() > LOST_AFTER {
                        failure = Err(Failure::new(sealcast::code::Code::TimedOut, "plain multicasts were lost"));
                    }
                    failure = failure.and_then(|()| stop_if_asked());
                }
            }
            let rate = least() as f64 / start.elapsed().as_secs_f64();
            ended.store(true, Ordering::Relaxed);
            failure.map(|()| rate)
        })
    }
}

/// Receives at each of these sockets; `slowest` is what the one has that got the fewest.
fn receive(sockets: &[UdpSocket], slowest: &AtomicU64, ended: &AtomicBool) {
    let mut got = vec![0_u64; sockets.len()];
    let mut ready: Vec<PollFd<'_>> = sockets.iter().map(|it| PollFd::new(it, PollFlags::IN)).collect();
    let (mut buffer, pause) = ([0; 2048], Timespec { tv_sec: 0, tv_nsec: 20_000_000 });
    while !ended.load(Ordering::Relaxed) {
        // What cannot be waited for is looked at again.
        let _ = poll(&mut ready, Some(&pause));
        for ((socket, ready), got) in sockets.iter().zip(&ready).zip(&mut got) {
            while ready.revents().contains(PollFlags::IN) && socket.recv(&mut buffer).is_ok() {
                *got += 1;
            }
        }
        slowest.store(got.iter().copied().min().unwrap_or_default(), Ordering::Release);
    }
}

fn receiver(to: SocketAddrV4) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_reuse_address(true)?;
    socket.bind(&to.into())?;
    socket.join_multicast_v4(to.ip(), &Ipv4Addr::UNSPECIFIED)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// Multicasts under way: what every socket's default buffer holds.
const WINDOW: u64 = 32;
const LOST_AFTER: Duration = Duration::from_secs(1);
