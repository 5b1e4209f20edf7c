//! UDP multicast: publishers' threads send through a [`TxQueue`], and the driver receives.

use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

use mio::Registry;
use sealcast_delivery::multicast::{Config, Multicast};
use sealcast_delivery::sequencer::Sequencer;
use sealcast_delivery::{Batch, Delivery};
use sealcast_keys::Notice;
use sealcast_wire::{Address, Now};

use super::{Carrier, Fault, Listening, Shell, Transport, TxQueue};
use crate::error::{Error, Result};
use crate::io::clock::Clock;
use crate::io::udp::{self, UdpReceiver, UdpSender};
use crate::session::driver::AnyCore;
use crate::url::{Options, SlowMember, Url};

/// See the module. A plain publisher needs no receiving socket.
struct Udp {
    group: SocketAddr,
    options: Options,
    tx_queue: Arc<TxQueue>,
    receiver: Option<Box<UdpReceiver>>,
    /// Whether something may come to the sending socket's own port: a centre's answers, and what members tell us alone.
    hears_aside: bool,
    /// Whether something came there that was not taken yet.
    has_aside: bool,
}

/// A member of the multicast group with this address; with a channel that loses nothing, if it is `ordered`.
pub(super) fn open(group: SocketAddr, ordered: bool, url: &Url, clock: Clock) -> Result<Transport> {
    let options = url.options.clone();
    let mut config = Config { segment: udp::segment(group, &options)?, plain: !url.has_views(), ..Config::default() };
    config.detect = url.detect();
    config.collects = ordered || !options.kdc.is_empty();
    let (delivery, sender): (Box<dyn Delivery>, _) = if ordered {
        let mut sequencer = Sequencer::new(config, options.backlog);
        sequencer.transmitted_by_shell();
        if options.slow == SlowMember::Expel {
            sequencer.expel_slow(EXPEL_AFTER * url.detect());
        }
        if options.fec {
            sequencer.use_parities();
        }
        let sender = sequencer.sender();
        (Box::new(sequencer), sender)
    } else {
        let mut multicast = Multicast::new(config);
        multicast.transmitted_by_shell();
        let sender = multicast.sender();
        (Box::new(multicast), sender)
    };
    let udp = UdpSender::open(group, &options)?;
    let shell = move |gate| {
        let tx_queue = Arc::new(TxQueue::new(gate, sender, udp, clock, options.linger, options.batch));
        let hears_aside = config.collects;
        let shell = Udp { group, options, tx_queue: tx_queue.clone(), receiver: None, hears_aside, has_aside: false };
        let shell: Box<dyn Shell> = Box::new(shell);
        (shell, Some(tx_queue))
    };
    Ok(Transport { delivery, shell: Box::new(shell), brokers: None })
}

impl Shell for Udp {
    fn listen(&mut self, registry: &Registry) -> Result<Option<Listening>> {
        if self.receiver.is_some() {
            return Ok(None);
        }
        let (receiver, warnings) = UdpReceiver::open(self.group, &self.options)?;
        let fd: RawFd = receiver.as_raw_fd();
        let registered = registry.register(&mut mio::unix::SourceFd(&fd), SOCKET, mio::Interest::READABLE);
        registered.map_err(|e| Error::system("waiting for the socket", &e))?;
        if self.hears_aside {
            self.tx_queue.udp.hear_many(&self.options);
            let own: RawFd = self.tx_queue.udp.as_raw_fd();
            let registered = registry.register(&mut mio::unix::SourceFd(&own), ASIDE, mio::Interest::READABLE);
            registered.map_err(|e| Error::system("waiting for the socket", &e))?;
            self.has_aside = true;
        }
        let loopback_socket = receiver.loopback_socket(&self.tx_queue.udp);
        self.receiver = Some(Box::new(receiver));
        Ok(Some(Listening { warnings, loopback_socket }))
    }

    fn receive(&mut self, now: Now, core: &mut AnyCore) -> std::result::Result<bool, Fault> {
        let Some(receiver) = &mut self.receiver else { return Ok(false) };
        let received = receiver.receive(|from, datagram| core.handle_datagram(now, Address::Socket(from), datagram));
        let mut any = received.map_err(|_| Fault::Refused)?;
        if any {
            self.tx_queue.hear();
        }
        let mut buffer = [0; ASIDE_BYTES];
        // A flood at this port keeps nothing else waiting.
        for _ in 0..ASIDE_PER_TURN {
            if !self.has_aside {
                break;
            }
            let answer = self.tx_queue.udp.receive_answer(&mut buffer).map_err(|_| Fault::Refused)?;
            let Some((from, datagram)) = answer else {
                self.has_aside = false;
                break;
            };
            core.handle_datagram(now, Address::Socket(from), datagram);
            any = true;
        }
        Ok(any)
    }

    /// What it means is in the line's sender: the machine does not transmit by itself, but to one alone.
    fn send(&mut self, batch: &Batch, published: Option<usize>) {
        match batch.to {
            // What is lost is asked again.
            Some(Address::Socket(to)) => batch.iter().for_each(|it| _ = self.tx_queue.udp.send_to(to, it)),
            // A member that was not heard yet: all get it.
            None if !batch.is_empty() => _ = self.tx_queue.udp.send(batch),
            Some(Address::Node(_)) | None => match published {
                Some(bytes) => self.tx_queue.published(bytes),
                None => self.tx_queue.flush(),
            },
        }
    }

    fn flush(&mut self) {}

    fn hand_over(&mut self, _now: Now) -> bool {
        false
    }

    fn timeout(&self) -> Option<Duration> {
        None
    }

    fn woken(&mut self, token: mio::Token) {
        self.has_aside |= token == ASIDE;
    }

    fn keep(&mut self, _record: &[u8]) -> std::io::Result<bool> {
        Ok(false)
    }

    fn noticed(&mut self, _notice: &Notice) {}

    fn is_settled(&self) -> bool {
        true
    }

    fn late(&self, _patience: Duration) -> Option<Error> {
        None
    }

    fn carrier(&self) -> Option<Carrier> {
        None
    }

    fn end(&mut self, _now: Now) {}
}

/// A member goes that holds all up for so many times as long as a silent one is waited for.
const EXPEL_AFTER: u32 = 4;
const SOCKET: mio::Token = mio::Token(0);
const ASIDE: mio::Token = mio::Token(1);
const ASIDE_PER_TURN: usize = 16;
/// More than any answer of a key distribution centre, and any word to one member.
const ASIDE_BYTES: usize = 2048;
