//! A client of an MQTT 5 broker, by `rumqttc` on a thread of its own: it needs an async runtime, and the rest of the library
//! does without one.
//!
//! Messages leave with QoS 1. A message may come twice after a broken connection: what is sealed is dropped by its packet
//! counter, and what is not changes nothing the second time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::mqttbytes::v5::{ConnectReturnCode, Filter, Packet, PubAckReason, Publish, SubscribeReasonCode};
use rumqttc::v5::{Client, Connection, ConnectionError, Event, MqttOptions, TlsError};
use rumqttc::{Outgoing, TlsConfiguration, Transport};
use rustls::pki_types::CertificateDer;
use sealcast_wire::limits;

use super::{rng, tls_roots};
use crate::code::Code;
use crate::config::read_public;
use crate::error::{Error, Result};
use crate::relay::Names;
use crate::url::{RelayAddress, Url};

/// Which broker, as whom, and where on it.
pub(crate) struct Setup {
    pub(crate) host: String,
    pub(crate) port: u16,
    /// For `mqtts:`.
    pub(crate) tls: Option<Arc<rustls::ClientConfig>>,
    /// Names this process to the broker.
    pub(crate) client_id: String,
    /// User and password.
    pub(crate) login: Option<(String, String)>,
    /// Where members publish.
    pub(crate) messages: String,
    /// Where the directory announces what it accepted.
    pub(crate) announcements: String,
    /// It looks whether the broker works: it hears itself, and is forgotten when it ends.
    pub(crate) is_probe: bool,
}

impl Setup {
    /// What a URL says of the broker, for a group with these names there; `roots` are those of `ca=`.
    ///
    /// # Errors
    /// The password cannot be read, or there is no certificate to check TLS by.
    pub(crate) fn of(
        address: &RelayAddress,
        url: &Url,
        names: &Names,
        roots: Option<&[CertificateDer<'static>]>,
    ) -> Result<Setup> {
        let prefix = if address.prefix.is_empty() { String::new() } else { format!("{}/", address.prefix) };
        Ok(Setup {
            host: address.host.clone(),
            port: address.port,
            tls: address.tls.then(|| tls_roots::client(roots)).transpose()?,
            client_id: format!("sealcast-{}", hex::encode(rng::bytes::<8>()?)),
            login: match &url.options.user {
                Some(user) => Some((user.clone(), password(url.options.password_file.as_deref())?)),
                None => None,
            },
            messages: format!("{prefix}{}", names.messages),
            announcements: format!("{prefix}{}", names.announcements),
            is_probe: false,
        })
    }

    pub(crate) fn broker(&self) -> String {
        format!("the MQTT broker {}:{}", self.host, self.port)
    }

    /// Why the connection does not work.
    fn trouble(&self, why: &ConnectionError) -> Error {
        use ConnectReturnCode::{BadUserNamePassword, Banned, NotAuthorized};
        let broker = self.broker();
        match why {
            ConnectionError::ConnectionRefused(BadUserNamePassword | NotAuthorized | Banned) => {
                let (what, hint) = match &self.login {
                    Some((user, _)) => (
                        format!("{broker} refuses user {user} or its password"),
                        format!("the password is in password-file= or {PASSWORD_VARIABLE}; ask the broker's operator"),
                    ),
                    None => (
                        format!("{broker} wants a user and a password"),
                        format!("add &user=NAME&password-file=FILE to the URL, or export {PASSWORD_VARIABLE}"),
                    ),
                };
                Error::new(Code::Login, what).with_hint(hint)
            }
            ConnectionError::Tls(TlsError::TLS(e)) => tls_roots::refused(&broker, e),
            ConnectionError::Io(e) | ConnectionError::Tls(TlsError::Io(e)) => {
                tls_roots::unreachable(&broker, self.tls.is_some(), e)
            }
            ConnectionError::Timeout(_) => silent(&broker),
            other => Error::new(Code::NoRoute, format!("{broker}: {other}"))
                .with_hint("does it speak MQTT 5 there? Where it wants TLS, say mqtts:"),
        }
    }
}

/// What comes of it.
pub(crate) enum Heard {
    /// Messages come and go from now on.
    Connected,
    /// They do not.
    Disconnected(Error),
    /// The broker did not take a message.
    Denied(Error),
    Message(Vec<u8>),
    Announcement(Vec<u8>),
}

/// What the two threads tell each other.
struct Shared {
    /// We have said good-bye.
    ends: AtomicBool,
    /// Bytes of a packet that the broker takes.
    packet_bytes: AtomicU32,
}

/// A client.
pub(crate) struct Mqtt {
    client: Client,
    topic: String,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Mqtt {
    /// Connects, and again whenever the connection breaks; `heard` is called on the thread that does so.
    ///
    /// # Errors
    /// The system starts no thread.
    pub(crate) fn start(setup: Setup, heard: impl Fn(Heard) + Send + 'static) -> Result<Mqtt> {
        let mut options = MqttOptions::new(&setup.client_id, &setup.host, setup.port);
        options.set_keep_alive(KEEP_ALIVE).set_connection_timeout(CONNECT_SECONDS);
        // The broker keeps what comes while a connection is broken.
        let session = if setup.is_probe { 0 } else { SESSION_SECONDS };
        options.set_clean_start(setup.is_probe).set_session_expiry_interval(Some(session));
        options.set_max_packet_size(Some(limits::MQTT_PACKET_BYTES_MAX));
        if let Some((user, password)) = &setup.login {
            options.set_credentials(user, password);
        }
        if let Some(tls) = &setup.tls {
            options.set_transport(Transport::tls_with_config(TlsConfiguration::Rustls(tls.clone())));
        }
        let (client, connection) = Client::new(options, limits::MQTT_QUEUE_MAX);
        let shared =
            Shared { ends: AtomicBool::new(false), packet_bytes: AtomicU32::new(limits::MQTT_PACKET_BYTES_MAX) };
        let shared = Arc::new(shared);
        let (topic, own, theirs) = (setup.messages.clone(), client.clone(), shared.clone());
        let work = move || follow(connection, &own, &setup, &theirs, &heard);
        let thread = thread::Builder::new().name("mqtt".into()).spawn(work);
        let thread = thread.map_err(|e| Error::system("starting a thread", &e))?;
        Ok(Mqtt { client, topic, shared, thread: Some(thread) })
    }

    /// Publishes a message; `false` if too many wait, or the broker takes none of this length.
    pub(crate) fn publish(&self, message: &[u8]) -> bool {
        let most = self.shared.packet_bytes.load(Ordering::Relaxed) as usize;
        if message.len() + self.topic.len() + PACKET_OVERHEAD > most {
            return false;
        }
        self.client.try_publish(self.topic.as_str(), QoS::AtLeastOnce, false, message.to_vec()).is_ok()
    }

    /// Sends what waits, as far as it goes quickly, and says good-bye.
    pub(crate) fn end(&mut self) {
        self.shared.ends.store(true, Ordering::Relaxed);
        let _ = self.client.try_disconnect();
        let Some(thread) = self.thread.take() else { return };
        let until = Instant::now() + END_TIMEOUT;
        while !thread.is_finished() && Instant::now() < until {
            thread::sleep(Duration::from_millis(5));
        }
        // One that cannot reach its broker ends by itself.
    }
}

impl Drop for Mqtt {
    fn drop(&mut self) {
        self.end();
    }
}

fn follow(mut connection: Connection, client: &Client, setup: &Setup, shared: &Shared, heard: &dyn Fn(Heard)) {
    let mut is_connected = false;
    let mut subscribes = false;
    let mut pause = RETRY_FIRST;
    loop {
        // The queue may be full of messages; this loop works them off.
        if subscribes {
            let filter = |topic: &String| Filter {
                path: topic.clone(),
                qos: QoS::AtLeastOnce,
                // What is ours we know.
                nolocal: !setup.is_probe,
                ..Filter::default()
            };
            let filters = [&setup.messages, &setup.announcements].map(filter);
            subscribes = client.try_subscribe_many(filters).is_err();
        }
        match connection.recv() {
            Ok(Ok(Event::Incoming(packet))) => match packet {
                Packet::ConnAck(ack) => {
                    subscribes = true;
                    let most = ack.properties.and_then(|it| it.max_packet_size).unwrap_or(u32::MAX);
                    shared.packet_bytes.store(most.min(limits::MQTT_PACKET_BYTES_MAX), Ordering::Relaxed);
                }
                Packet::SubAck(ack) => {
                    let is_good = |it: &SubscribeReasonCode| matches!(it, SubscribeReasonCode::Success(_));
                    if ack.return_codes.iter().all(is_good) {
                        (is_connected, pause) = (true, RETRY_FIRST);
                        heard(Heard::Connected);
                    } else {
                        let what = format!("{} does not let this user read {}", setup.broker(), setup.messages);
                        heard(Heard::Disconnected(Error::new(Code::DeniedSubscribe, what).with_hint(RIGHTS)));
                    }
                }
                Packet::PubAck(ack)
                    if !matches!(ack.reason, PubAckReason::Success | PubAckReason::NoMatchingSubscribers) =>
                {
                    let what = format!("{} does not let this user publish at {}", setup.broker(), setup.messages);
                    heard(Heard::Denied(Error::new(Code::DeniedPublish, what).with_hint(RIGHTS)));
                }
                Packet::Publish(Publish { topic, payload, .. }) if topic == setup.messages.as_bytes() => {
                    heard(Heard::Message(payload.to_vec()));
                }
                Packet::Publish(Publish { topic, payload, .. }) if topic == setup.announcements.as_bytes() => {
                    heard(Heard::Announcement(payload.to_vec()));
                }
                _ => {}
            },
            Ok(Ok(Event::Outgoing(Outgoing::Disconnect))) => return,
            Ok(Ok(Event::Outgoing(_))) => {}
            // Everybody who could send is gone, or we have said good-bye.
            Err(_) => return,
            Ok(Err(_)) if shared.ends.load(Ordering::Relaxed) => return,
            Ok(Err(why)) => {
                if std::mem::take(&mut is_connected) || pause == RETRY_FIRST {
                    heard(Heard::Disconnected(setup.trouble(&why)));
                }
                thread::sleep(pause);
                pause = (pause * 2).min(RETRY_LAST);
            }
        }
    }
}

/// That a broker does not answer.
pub(crate) fn silent(broker: &str) -> Error {
    Error::new(Code::TimedOut, format!("{broker} does not answer"))
        .with_hint("does it run, is its port reachable, and does it speak MQTT 5 there?")
}

/// A session's password: that of the file, or of the environment.
///
/// # Errors
/// The file cannot be read.
pub(crate) fn password(file: Option<&std::path::Path>) -> Result<String> {
    match file {
        Some(path) => {
            let text = read_public(path).map_err(|e| {
                Error::from(e).with_hint("password-file= names a file whose first line is the password at the broker")
            })?;
            Ok(text.trim_end_matches(['\r', '\n']).to_owned())
        }
        None => std::env::var(PASSWORD_VARIABLE).map_err(|_| {
            let hint = format!("add &password-file=FILE to the URL, or export {PASSWORD_VARIABLE}");
            Error::new(Code::BadUrl, "user= needs a password").with_hint(hint)
        }),
    }
}

/// What a broker without rights for members needs.
pub(crate) const RIGHTS: &str = "the broker's access rules must let members publish and read at PREFIX/#";
const PASSWORD_VARIABLE: &str = "SEALCAST_RELAY_PASSWORD";
const KEEP_ALIVE: Duration = Duration::from_secs(30);
const CONNECT_SECONDS: u64 = 10;
/// So long the broker keeps what comes for a process whose connection is broken.
const SESSION_SECONDS: u32 = 300;
/// Bytes of a PUBLISH beside topic and message.
const PACKET_OVERHEAD: usize = 32;
const END_TIMEOUT: Duration = Duration::from_secs(1);
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_LAST: Duration = Duration::from_secs(5);
