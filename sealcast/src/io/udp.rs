//! UDP multicast: one socket that receives, one that sends; segmented sends (GSO) and receives (GRO).
//!
//! Like LCM's, a node hears its own messages, and every process of a machine hears all others. The
//! sending socket has a port of its own, by which receivers tell processes apart. It does not forbid IP
//! to fragment: LCM's datagrams have up to 64 KB, whatever the MTU.

use std::fmt;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use quinn_udp::{RecvMeta, Transmit, UdpSockRef, UdpSocketState};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::{self, Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery};
use sealcast_delivery::Batch;
use sealcast_wire::frame::SEGMENT_MIN;
use socket2::{Domain, Protocol, SockFilter, Socket, Type};

use crate::code::Code;
use crate::error::{Error, Result};
use crate::session::Warning;
use crate::url::Options;

/// Sends datagrams to the group; shared by publishers' threads.
pub struct UdpSender {
    socket: UdpSocket,
    state: UdpSocketState,
    group: SocketAddr,
    gso: AtomicBool,
    /// Longer datagrams cannot be segments: the path would have to fragment them.
    segment_max: usize,
    source: IpAddr,
}

/// Receives the group's datagrams.
pub struct UdpReceiver {
    socket: UdpSocket,
    state: UdpSocketState,
    buffer: Vec<u8>,
    metas: [RecvMeta; RECEIVE_CALLS],
}

/// A receiving socket that can be made deaf to our own datagrams: the kernel then drops them before it
/// queues or copies them, and wakes nobody.
#[derive(Debug)]
pub struct LoopbackSocket {
    socket: UdpSocket,
    own: SocketAddr,
    hears: bool,
}

impl LoopbackSocket {
    /// Whether to hear our own datagrams from now on. Where the system has no filters, all is heard.
    pub fn hear_own(&mut self, hear: bool) {
        if hear == self.hears {
            return;
        }
        let socket = socket2::SockRef::from(&self.socket);
        let done = if hear { socket.detach_filter() } else { socket.attach_filter(&not_from(self.own)) };
        if done.is_ok() {
            self.hears = hear;
        }
    }
}

/// A filter, in the kernel's own instructions, that lets through what is not from this address and port.
fn not_from(own: SocketAddr) -> Vec<SockFilter> {
    // linux/filter.h: loads of 16 and 32 bits, jump if equal, return; the IP header lies at NETWORK.
    const LOAD_16: u16 = 0x28;
    const LOAD_32: u16 = 0x20;
    const JUMP_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    const NETWORK: u32 = 0xFFF0_0000;
    // Where a source address lies in the IP header, and its words.
    let (at, words) = match own.ip() {
        IpAddr::V4(ip) => (12, vec![u32::from(ip)]),
        IpAddr::V6(ip) => (8, (0..4).rev().map(|i| (u128::from(ip) >> (32 * i)) as u32).collect()),
    };
    // The UDP header lies at 0; its first field is the source port.
    let mut checks = vec![(LOAD_16, 0, u32::from(own.port()))];
    checks.extend(words.iter().zip((NETWORK + at..).step_by(4)).map(|(word, at)| (LOAD_32, at, *word)));
    let mut filter = Vec::new();
    for (i, (load, at, value)) in checks.iter().enumerate() {
        // Where one differs, on to the last instruction, which takes the datagram.
        let other = 2 * (checks.len() - i) - 1;
        filter.push(SockFilter::new(*load, 0, 0, *at));
        filter.push(SockFilter::new(JUMP_EQUAL, 0, other as u8, *value));
    }
    filter.push(SockFilter::new(RETURN, 0, 0, 0));
    filter.push(SockFilter::new(RETURN, 0, 0, u32::MAX));
    filter
}

/// The largest datagram that the path to the group carries in one packet, bytes of UDP payload.
///
/// # Errors
/// [`Code::NoRoute`] if the group cannot be reached.
pub fn segment(group: SocketAddr, options: &Options) -> Result<usize> {
    if let Some(segment) = options.segment {
        return Ok(segment);
    }
    let mtu = route_mtu(group, options).map_err(|e| no_route(group, &e))?;
    Ok((mtu - headers(group)).clamp(SEGMENT_MIN, LOOPBACK_SEGMENT))
}

/// Bytes of the IP and UDP headers.
fn headers(group: SocketAddr) -> usize {
    if group.is_ipv4() { 20 + 8 } else { 40 + 8 }
}

fn route_mtu(group: SocketAddr, options: &Options) -> io::Result<usize> {
    if let Some(mtu) = options.mtu {
        return Ok(mtu);
    }
    let socket = sending_socket(group, options)?;
    socket.connect(&group.into())?;
    let mtu = if group.is_ipv4() { sockopt::ip_mtu(&socket)? } else { sockopt::ipv6_mtu(&socket)? };
    Ok((mtu as usize).clamp(MTU_MIN, 65_536))
}

/// The address that datagrams to the group leave from.
fn source(group: SocketAddr, options: &Options) -> io::Result<IpAddr> {
    let socket = sending_socket(group, options)?;
    socket.connect(&group.into())?;
    Ok(UdpSocket::from(socket).local_addr()?.ip())
}

impl UdpSender {
    /// A socket that sends to the group.
    ///
    /// # Errors
    /// [`Code::NoRoute`] if the group cannot be reached, [`Code::System`] otherwise.
    pub fn open(group: SocketAddr, options: &Options) -> Result<UdpSender> {
        let make = || -> io::Result<UdpSender> {
            let socket: UdpSocket = sending_socket(group, options)?.into();
            // The port is chosen now, so that all messages leave from one.
            let any: SocketAddr = match group {
                SocketAddr::V4(_) => SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0).into(),
                SocketAddr::V6(_) => SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, 0, 0, 0).into(),
            };
            socket2::SockRef::from(&socket).bind(&any.into())?;
            let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
            match group {
                SocketAddr::V4(_) => sockopt::set_ip_mtu_discover(&socket, Ipv4PathMtuDiscovery::DONT)?,
                SocketAddr::V6(_) => sockopt::set_ipv6_mtu_discover(&socket, Ipv6PathMtuDiscovery::DONT)?,
            }
            let gso = AtomicBool::new(options.gso && state.max_gso_segments() > 1);
            let segment_max = route_mtu(group, options)? - headers(group);
            let source = source(group, options)?;
            Ok(UdpSender { socket, state, group, gso, segment_max, source })
        };
        make().map_err(|e| no_route(group, &e))
    }

    /// Sends all datagrams of a batch; a run of equal lengths leaves in one system call. Waits while the
    /// socket's buffer is full.
    ///
    /// # Errors
    /// The system's own; the remaining datagrams are then lost, as on any network.
    pub fn send(&self, batch: &Batch) -> io::Result<()> {
        let mut first_error = None;
        for train in batch.trains() {
            let segmented = train.count > 1 && train.segment <= self.segment_max && self.gso.load(Ordering::Relaxed);
            let sent = if segmented {
                self.send_train(train.bytes, train.segment)
            } else {
                train.bytes.chunks(train.segment.max(1)).try_for_each(|one| self.transmit(one, None))
            };
            if let Err(error) = sent {
                first_error.get_or_insert(error);
            }
        }
        first_error.map_or(Ok(()), Err)
    }

    /// Sends one datagram to an address outside the group.
    ///
    /// # Errors
    /// The system's own; the datagram is then lost, as on any network.
    pub fn send_to(&self, to: SocketAddr, datagram: &[u8]) -> io::Result<()> {
        self.socket.send_to(datagram, to).map(drop)
    }

    /// Takes one datagram that came to this socket's own port: an answer to what was sent from it. `None` if there is none.
    ///
    /// # Errors
    /// The system's own.
    pub fn receive_answer<'a>(&self, buffer: &'a mut [u8]) -> io::Result<Option<(SocketAddr, &'a mut [u8])>> {
        loop {
            match self.socket.recv_from(buffer) {
                Ok((n, from)) => return Ok(Some((from, &mut buffer[..n]))),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// Answers of many members come to this socket at once: it gets as large a buffer as the group's has.
    pub fn hear_many(&self, options: &Options) {
        // A smaller one loses some of them; they are said again.
        let _ = size_buffer(&self.socket, options.recv_buf_size);
    }

    /// The descriptor, to wait for answers.
    pub fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    fn send_train(&self, bytes: &[u8], segment: usize) -> io::Result<()> {
        match self.transmit(bytes, Some(segment)) {
            Ok(()) => Ok(()),
            // This kernel, interface or segment does not take it: go on one by one, from now on
            // unless only the length was too much.
            Err(error) => {
                if error.raw_os_error() != Some(rustix::io::Errno::MSGSIZE.raw_os_error()) {
                    self.gso.store(false, Ordering::Relaxed);
                }
                bytes.chunks(segment).try_for_each(|one| self.transmit(one, None))
            }
        }
    }

    fn transmit(&self, contents: &[u8], segment_size: Option<usize>) -> io::Result<()> {
        let transmit = Transmit { destination: self.group, ecn: None, contents, segment_size, src_ip: None };
        loop {
            match self.state.try_send(UdpSockRef::from(&self.socket), &transmit) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    let timeout = Timespec::try_from(SEND_TIMEOUT).expect("less than a second");
                    if poll(&mut [PollFd::new(&self.socket, PollFlags::OUT)], Some(&timeout))? == 0 {
                        return Err(e);
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }

    /// Whether runs of datagrams leave segmented.
    pub fn gso(&self) -> bool {
        self.gso.load(Ordering::Relaxed)
    }

    /// The address that our datagrams come from, as far as the socket knows it.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }
}

impl UdpReceiver {
    /// A socket that has joined the group, with what is not as it should be.
    ///
    /// # Errors
    /// [`Code::NoRoute`] if the group cannot be joined, [`Code::System`] otherwise.
    pub fn open(group: SocketAddr, options: &Options) -> Result<(UdpReceiver, Vec<Warning>)> {
        let mut warnings = Vec::new();
        let mut make = || -> io::Result<UdpReceiver> {
            let socket = Socket::new(Domain::for_address(group), Type::DGRAM, Some(Protocol::UDP))?;
            socket.set_reuse_address(true)?;
            warnings.extend(size_buffer(&socket, options.recv_buf_size)?);
            // Bound to the group's address, it hears nothing else that comes to the port.
            socket.bind(&group.into())?;
            match group.ip() {
                IpAddr::V4(ip) => {
                    socket.join_multicast_v4(&ip, &interface_v4(options))?;
                    socket.set_multicast_all_v4(false)?;
                }
                IpAddr::V6(ip) => {
                    socket.join_multicast_v6(&ip, 0)?;
                    socket.set_multicast_all_v6(false)?;
                }
            }
            let socket: UdpSocket = socket.into();
            let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
            let buffer = vec![0; RECEIVE_CALLS * RECEIVE_BYTES];
            keep_heap();
            Ok(UdpReceiver { socket, state, buffer, metas: [RecvMeta::default(); RECEIVE_CALLS] })
        };
        let receiver = make().map_err(|e| no_route(group, &e))?;
        Ok((receiver, warnings))
    }

    /// Takes what has arrived, at most one system call's worth, and hands over each datagram with its
    /// sender; `false` if nothing was there.
    ///
    /// # Errors
    /// The system's own.
    pub fn receive(&mut self, mut each: impl FnMut(SocketAddr, &mut [u8])) -> io::Result<bool> {
        let mut slices = self.buffer.chunks_exact_mut(RECEIVE_BYTES).map(IoSliceMut::new);
        let mut slices: [IoSliceMut<'_>; RECEIVE_CALLS] =
            std::array::from_fn(|_| slices.next().expect("the buffer has RECEIVE_CALLS parts"));
        let n = loop {
            match self.state.recv(UdpSockRef::from(&self.socket), &mut slices, &mut self.metas) {
                Ok(n) => break n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        };
        for (slice, meta) in slices.iter_mut().zip(&self.metas[..n]) {
            if meta.len == 0 {
                each(meta.addr, &mut []);
            }
            for datagram in slice[..meta.len].chunks_mut(meta.stride.max(1)) {
                each(meta.addr, datagram);
            }
        }
        Ok(true)
    }

    /// Lets this socket be told whether to hear what `sender` sends; `None` where that cannot be told.
    pub fn loopback_socket(&self, sender: &UdpSender) -> Option<LoopbackSocket> {
        let own = SocketAddr::new(sender.source, sender.local_addr().ok()?.port());
        Some(LoopbackSocket { socket: self.socket.try_clone().ok()?, own, hears: true })
    }

    /// The descriptor, to wait for.
    pub fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Bytes of the receive buffer that the kernel granted, as it counts them.
    pub fn buffer_bytes(&self) -> io::Result<usize> {
        socket2::SockRef::from(&self.socket).recv_buffer_size()
    }
}

/// Teaches glibc's allocator to keep memory of up to some megabytes that is freed, as it learns by itself
/// once a block of that size has been freed. Else it returns the heap's end to the system after each
/// message of 100 KB, and every next one costs a page fault per 4 KB: 12 us of a round trip.
fn keep_heap() {
    drop(std::hint::black_box(Vec::<u8>::with_capacity(KEPT_HEAP_BYTES)));
}

fn sending_socket(group: SocketAddr, options: &Options) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(group), Type::DGRAM, Some(Protocol::UDP))?;
    match group {
        SocketAddr::V4(_) => {
            socket.set_multicast_ttl_v4(options.ttl.into())?;
            socket.set_multicast_loop_v4(true)?;
            if options.interface.is_some() {
                socket.set_multicast_if_v4(&interface_v4(options))?;
            }
        }
        SocketAddr::V6(_) => {
            socket.set_multicast_hops_v6(options.ttl.into())?;
            socket.set_multicast_loop_v6(true)?;
        }
    }
    Ok(socket)
}

fn interface_v4(options: &Options) -> Ipv4Addr {
    match options.interface {
        Some(IpAddr::V4(ip)) => ip,
        _ => Ipv4Addr::UNSPECIFIED,
    }
}

/// Asks for a receive buffer; the kernel grants what `net.core.rmem_max` allows, without a word.
fn size_buffer(socket: &impl AsFd, wanted: Option<usize>) -> io::Result<Option<Warning>> {
    let bytes = wanted.unwrap_or(RECEIVE_BUFFER);
    // Who may administer the network is not held to rmem_max.
    if sockopt::set_socket_recv_buffer_size_force(socket, wanted.unwrap_or(RECEIVE_BUFFER_FORCED)).is_err() {
        socket2::SockRef::from(socket).set_recv_buffer_size(bytes)?;
    }
    // Linux doubles the figure for its own bookkeeping, when it is set and when it is read.
    let granted = socket2::SockRef::from(socket).recv_buffer_size()? / 2;
    let enough = granted >= bytes || (wanted.is_none() && granted >= RECEIVE_BUFFER_ENOUGH);
    Ok((!enough).then(|| Warning {
        what: format!("the receive buffer has {granted} bytes, not {bytes}: bursts will be lost"),
        hint: format!("sudo sysctl -w net.core.rmem_max={bytes}"),
    }))
}

fn no_route(group: SocketAddr, error: &io::Error) -> Error {
    let unreachable = matches!(
        error.raw_os_error().map(rustix::io::Errno::from_raw_os_error),
        Some(rustix::io::Errno::NODEV | rustix::io::Errno::NETUNREACH | rustix::io::Errno::HOSTUNREACH)
    );
    if unreachable {
        Error::new(Code::NoRoute, format!("no network route to {group}: {error}"))
            .with_hint("sudo ip link set lo multicast on && sudo ip route add 224.0.0.0/4 dev lo")
    } else {
        Error::system(format!("the socket of {group}"), error)
    }
}

impl AsFd for UdpReceiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl fmt::Debug for UdpSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UdpSender").field("group", &self.group).finish_non_exhaustive()
    }
}

impl fmt::Debug for UdpReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UdpReceiver").field("socket", &self.socket).finish_non_exhaustive()
    }
}

/// How long a full socket buffer is waited for at most before a datagram counts as lost.
pub const SEND_TIMEOUT: Duration = Duration::from_millis(200);
/// Buffers of one receiving call: enough to empty a burst, few enough to stay in the cache.
const RECEIVE_CALLS: usize = 4;
/// A datagram, or a run of them that the kernel put together, has at most this many bytes.
const RECEIVE_BYTES: usize = 65_536;
/// Bytes of receive buffer that we ask for: 60 ms of 1 KB messages at 60 MB/s.
const RECEIVE_BUFFER: usize = 4 << 20;
/// The same where the limit does not hold: a receiver may be off the processor for some 10 ms.
const RECEIVE_BUFFER_FORCED: usize = 32 << 20;
/// With less than this we warn.
const RECEIVE_BUFFER_ENOUGH: usize = 1 << 20;
/// Messages of this size and less come and go without the system's help.
const KEPT_HEAP_BYTES: usize = 4 << 20;
/// IPv4's least MTU that everybody takes.
const MTU_MIN: usize = 576;
/// On loopback (MTU 65,536) the fewest datagrams are the fastest: each costs 8 to 10 µs of kernel time and
/// wake-ups, more than sealing one piece while another is under way would save.
const LOOPBACK_SEGMENT: usize = 65_000;

#[cfg(test)]
mod tests {
    use super::*;

    /// What the other sends and we send, of which our socket hears all or only the other's.
    fn hears_the_other_only(loopback: IpAddr) {
        let any = SocketAddr::new(loopback, 0);
        let socket = UdpSocket::bind(any).expect("loopback");
        socket.set_read_timeout(Some(Duration::from_millis(200))).expect("a time-out");
        let (ours, other) = (UdpSocket::bind(any).expect("loopback"), UdpSocket::bind(any).expect("loopback"));
        let (to, own) = (socket.local_addr().expect("bound"), ours.local_addr().expect("bound"));
        let mut loopback_socket =
            LoopbackSocket { socket: socket.try_clone().expect("a descriptor"), own, hears: true };
        let heard = || {
            ours.send_to(b"ours", to).expect("loopback takes it");
            other.send_to(b"other", to).expect("loopback takes it");
            let mut buffer = [0; 16];
            let next = || socket.recv(&mut buffer).ok().map(|n| buffer[..n].to_vec());
            std::iter::from_fn(next).collect::<Vec<_>>()
        };
        assert_eq!(heard(), [&b"ours"[..], b"other"], "without a filter");
        loopback_socket.hear_own(false);
        assert_eq!(heard(), [&b"other"[..]], "{own}");
        loopback_socket.hear_own(true);
        assert_eq!(heard(), [&b"ours"[..], b"other"], "and again without");
    }

    #[test]
    fn our_own_datagrams_are_dropped_by_the_kernel_over_ipv4() {
        hears_the_other_only(Ipv4Addr::LOCALHOST.into());
    }

    #[test]
    fn our_own_datagrams_are_dropped_by_the_kernel_over_ipv6() {
        if UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).is_err() {
            println!("skipped: this machine has no IPv6");
            return;
        }
        hears_the_other_only(Ipv6Addr::LOCALHOST.into());
    }
}
