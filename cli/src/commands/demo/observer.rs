//! Somebody at the MQTT broker: subscribes to everything, and takes what comes (MQTT 3.1.1, OASIS 2014, by hand).

use std::io::{BufReader, Read, Write as _};
use std::net::{Shutdown, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;

use super::broken;
use super::eavesdropper::Capture;
use crate::hint::Failure;

/// Listens until it is asked what it has.
pub(super) struct Observer {
    stream: TcpStream,
    thread: JoinHandle<Vec<Vec<u8>>>,
}

impl Observer {
    /// Subscribes to `#` at the broker of this port.
    pub(super) fn subscribe(port: u16) -> Result<Observer, Failure> {
        let system = |e| Failure::system("the observer's connection", &e);
        let mut stream = TcpStream::connect(("127.0.0.1", port)).map_err(system)?;
        stream.set_read_timeout(Some(TIMEOUT)).map_err(system)?;
        stream.write_all(&[CONNECT, SUBSCRIBE].concat()).map_err(system)?;
        let mut answers = [0; CONNACK.len() + SUBACK.len()];
        stream.read_exact(&mut answers).map_err(system)?;
        if answers[..] != [CONNACK, SUBACK].concat() {
            return Err(broken("the MQTT broker lets nobody subscribe to everything"));
        }
        stream.set_read_timeout(None).map_err(system)?;
        let reads = BufReader::new(stream.try_clone().map_err(system)?);
        Ok(Observer { stream, thread: std::thread::spawn(move || packets(reads).collect()) })
    }

    /// Ends, and hands out what it has taken.
    pub(super) fn end(self) -> Capture {
        // The broker may be gone.
        let _ = self.stream.shutdown(Shutdown::Both);
        Capture::of(self.thread.join().unwrap_or_default())
    }
}

/// Bodies of publications, payload first and then the topic, in clear as the broker has them.
fn packets(mut from: impl Read) -> impl Iterator<Item = Vec<u8>> {
    std::iter::from_fn(move || {
        let mut byte = [0];
        from.read_exact(&mut byte).ok()?;
        // Section 2.2.3: seven bits a byte, the lowest first, at most four bytes.
        let mut length = 0;
        for at in 0..4 {
            from.read_exact(&mut byte).ok()?;
            length |= usize::from(byte[0] & 0x7F) << (7 * at);
            if byte[0] < 0x80 {
                break;
            }
        }
        let mut body = vec![0; length];
        from.read_exact(&mut body).ok()?;
        // Section 3.3.2: a publication begins with its topic's length in two bytes, and its topic.
        let topic = 2 + body.first_chunk().map_or(0, |it| usize::from(u16::from_be_bytes(*it)));
        body.rotate_left(topic.min(length));
        Some(body)
    })
}

/// Section 3.1: protocol MQTT, level 4, a clean session, no keep alive, client `observer`.
const CONNECT: &[u8] = b"\x10\x14\x00\x04MQTT\x04\x02\x00\x00\x00\x08observer";
/// Section 3.8: packet 1, the filter `#`, QoS 0.
const SUBSCRIBE: &[u8] = b"\x82\x06\x00\x01\x00\x01#\x00";
const CONNACK: &[u8] = &[0x20, 2, 0, 0];
const SUBACK: &[u8] = &[0x90, 3, 0, 1, 0];
const TIMEOUT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_told_apart_by_their_lengths() {
        let long = [&[0, 1, b't'], &[7; 297][..]].concat();
        let stream = [&[0x30, 4, 0, 2, b't', b'u', 0x30, 0xAC, 0x02], &long[..], &[0x30, 5, 1]].concat();
        let after = [&[7; 297][..], &[0, 1, b't']].concat();
        assert_eq!(packets(&stream[..]).collect::<Vec<_>>(), [vec![0, 2, b't', b'u'], after]);
    }
}
