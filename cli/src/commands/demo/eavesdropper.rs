//! Somebody on the network: takes every datagram of the group's address and looks for what it knows.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};

use crate::hint::Failure;

/// Listens until it is asked what it has.
pub(super) struct Eavesdropper {
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<Vec<Vec<u8>>>>,
}

/// What was taken from the network.
pub(super) struct Capture {
    datagrams: Vec<Vec<u8>>,
}

impl Eavesdropper {
    /// Begins to listen on the group's address.
    pub(super) fn listen(group: SocketAddr) -> Result<Eavesdropper, Failure> {
        let socket = open(group).map_err(|e| Failure::system("the eavesdropper's socket", &e))?;
        let ended = Arc::new(AtomicBool::new(false));
        let until = ended.clone();
        Ok(Eavesdropper { ended, thread: Some(std::thread::spawn(move || take(&socket, &until))) })
    }

    /// Ends, and hands out what it has taken.
    pub(super) fn end(mut self) -> Capture {
        self.ended.store(true, Ordering::Relaxed);
        let datagrams = self.thread.take().and_then(|t| t.join().ok()).unwrap_or_default();
        Capture { datagrams }
    }
}

impl Drop for Eavesdropper {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

fn open(group: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_reuse_address(true)?;
    socket.set_recv_buffer_size(8 << 20)?;
    socket.bind(&group.into())?;
    let std::net::IpAddr::V4(address) = group.ip() else { return Err(ErrorKind::Unsupported.into()) };
    socket.join_multicast_v4(&address, &Ipv4Addr::UNSPECIFIED)?;
    socket.set_read_timeout(Some(Duration::from_millis(20)))?;
    Ok(socket.into())
}

fn take(socket: &UdpSocket, ended: &AtomicBool) -> Vec<Vec<u8>> {
    let mut taken = vec![];
    let mut buffer = vec![0; 1 << 16];
    while !ended.load(Ordering::Relaxed) && taken.len() < DATAGRAMS_MAX {
        // Nothing for a while is not an error here: the end is looked for, and on it goes.
        if let Ok((n, _)) = socket.recv_from(&mut buffer) {
            taken.push(buffer[..n].to_vec());
        }
    }
    taken
}

impl Capture {
    /// Of what was taken elsewhere.
    pub(super) fn of(datagrams: Vec<Vec<u8>>) -> Capture {
        Capture { datagrams }
    }

    pub(super) fn datagrams(&self) -> usize {
        self.datagrams.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.datagrams.iter().map(Vec::len).sum()
    }

    /// The first bytes of the largest datagram, for people to see.
    pub(super) fn sample(&self) -> String {
        let largest = self.datagrams.iter().max_by_key(|d| d.len());
        let bytes = largest.map_or(&[][..], |d| &d[28.min(d.len())..d.len().min(44)]);
        bytes.iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(" ")
    }

    /// Which of these texts occur anywhere.
    pub(super) fn texts<'a>(&self, texts: &[&'a str]) -> Vec<&'a str> {
        let within = |text: &&&str| {
            let needle = text.as_bytes();
            self.datagrams.iter().any(|d| d.windows(needle.len()).any(|w| w == needle))
        };
        texts.iter().filter(within).copied().collect()
    }

    /// Whether any 31 bytes in a row of `body` occur anywhere: each such run holds one of its aligned
    /// pieces of 16.
    pub(super) fn has_part_of(&self, body: &[u8]) -> bool {
        let pieces: BTreeSet<&[u8]> = body.chunks_exact(PIECE).collect();
        self.datagrams.iter().any(|d| d.windows(PIECE).any(|w| pieces.contains(w)))
    }
}

/// Datagrams kept: a demonstration sends some thousands.
const DATAGRAMS_MAX: usize = 100_000;
const PIECE: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_anywhere_is_found_and_noise_is_not() {
        let body: Vec<u8> = (0..1000_u32).map(|i| (i * i % 251) as u8).collect();
        let mut datagram = vec![0xEE; 100];
        datagram.extend_from_slice(&body[501..540]);
        let with = |d: Vec<u8>| Capture { datagrams: vec![vec![1, 2], d] };
        assert!(with(datagram.clone()).has_part_of(&body));
        assert!(!with(datagram[..110].to_vec()).has_part_of(&body));
        assert_eq!(with(b"..pose/robot1..".to_vec()).texts(&["pose/robot1", "camera"]), ["pose/robot1"]);
    }
}
