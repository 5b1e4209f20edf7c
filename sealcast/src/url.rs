//! One URL says how bytes travel and who holds the keys.
//!
//! ```text
//! udpm://239.255.76.67:7667?ttl=1&keys=contributory&group=ward3
//! udpm://239.255.76.67:7667?ttl=1&order=total&group=ward3
//! mem:bench?keys=plain&order=best-effort
//! mem:ward?keys=mls
//! udpm://239.255.76.67:7667?keys=center&kdc=192.0.2.7:7680&group=ward3
//! quorum:cluster.toml?keys=threshold
//! quorum:cluster.toml?keys=contributory&group=ward3
//! mqtts://relay.example/sealcast?keys=mls&group=ward3&directory=https://relay.example/v1&relay=scrl1…
//! ```
//! LCM's URLs are read too (`udpm://` alone means LCM's address), but never as a wish for plaintext:
//! without `keys=` the group is sealed. An option that is not known is an error, since a mistyped one
//! could weaken what was asked for.

pub mod pairs;

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use sealcast_crypto::identity::Fingerprint;
use sealcast_delivery::multicast::SEGMENT_MAX;
use sealcast_wire::frame::SEGMENT_MIN;
use sealcast_wire::limits;

use crate::code::Code;
use crate::error::{Error, Result};
use pairs::{LATER_SCHEMES, LATER_TRANSPORTS, Pair, Transport};

/// A URL, read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// The transport and where it meets its peers.
    pub address: TransportAddress,
    /// Who holds the keys.
    pub keys: Scheme,
    /// Everything else.
    pub options: Options,
    text: String,
}

/// A transport, and where it meets its peers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TransportAddress {
    /// UDP multicast.
    Multicast {
        /// To this address.
        group: SocketAddr,
        /// Whether there is a channel beside best effort that loses nothing.
        ordered: bool,
    },
    /// Inside this process, among sessions that name the same place.
    Memory {
        /// The place.
        name: String,
        /// Whether all deliver in one order.
        ordered: bool,
    },
    /// Through the brokers of a cluster file.
    Quorum(PathBuf),
    /// Through a relay.
    Relay(RelayAddress),
}

/// An MQTT broker, and where members meet there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelayAddress {
    /// Whether the channel is TLS (`mqtts:`).
    pub tls: bool,
    /// The broker's name or address.
    pub host: String,
    /// Its port: 1883, or 8883 with TLS, if the URL does not say.
    pub port: u16,
    /// Under which topics members meet.
    pub prefix: String,
}

/// Who holds the keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Scheme {
    /// Nobody: nothing is sealed.
    Plain,
    /// Every member contributes (Dutta–Barua).
    Contributory,
    /// A key distribution centre, through who leads (Leighton–Micali).
    Center,
    /// Brokers hold shares, and release to each reader what it may read.
    Threshold,
    /// The members of a group of RFC 9420, by commits in an order.
    Mls,
}

impl TransportAddress {
    /// Which one it is, whatever it is given.
    pub fn transport(&self) -> Transport {
        match self {
            TransportAddress::Multicast { ordered: false, .. } => Transport::Multicast,
            TransportAddress::Multicast { ordered: true, .. } => Transport::OrderedMulticast,
            TransportAddress::Memory { ordered: false, .. } => Transport::Memory,
            TransportAddress::Memory { ordered: true, .. } => Transport::OrderedMemory,
            TransportAddress::Quorum(_) => Transport::Quorum,
            TransportAddress::Relay(_) => Transport::Relay,
        }
    }
}

impl Url {
    /// The text of a URL through the brokers of a cluster file, without options. What would end the path in a URL is escaped.
    pub fn of_cluster_file(path: &Path) -> String {
        // RFC 3986, 2.1; the escape's own sign first.
        format!("quorum:{}", path.display().to_string().replace('%', "%25").replace('?', "%3F"))
    }

    /// So long after a message was taken it is known what became of it, unless its publisher says otherwise.
    pub(crate) fn outcome_within(&self) -> Duration {
        match &self.address {
            TransportAddress::Quorum(_) => self.options.wait,
            TransportAddress::Multicast { .. } | TransportAddress::Memory { .. } | TransportAddress::Relay(_) => {
                OUTCOME_WITHIN
            }
        }
    }

    /// That of a client of brokers whose cluster file is no file here.
    #[cfg(feature = "brokers")]
    pub(crate) fn of_brokers(keys: Scheme, wait: Duration) -> Url {
        let text = format!("quorum:?keys={}", keys.name());
        Url {
            address: TransportAddress::Quorum(PathBuf::new()),
            keys,
            options: Options { wait, ..Options::default() },
            text,
        }
    }
}

/// When a message's origin is proved by a signature (A1, A2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OriginMode {
    /// `auto`: where some reader of the topic may not write it; elsewhere every reader may write, and could have written it.
    #[default]
    Auto,
    /// `signed`: always. A signature costs the sender some 20 µs and the datagram 64 bytes.
    Signed,
    /// `mac`: never. The group's key alone proves that a member wrote it, but not which one, as in LCMsec.
    Mac,
}

/// What happens to a member that all others wait for, since it is slower than they publish.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SlowMember {
    /// They publish no faster.
    #[default]
    Wait,
    /// After four times `detect=` it is left out of the group, and may come back with a gap.
    Expel,
}

/// The cipher of payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cipher {
    /// AES-256-GCM.
    #[default]
    Aes256Gcm,
    /// ChaCha20-Poly1305.
    ChaCha20Poly1305,
}

/// How a member comes into a group whose members let others in (`keys=mls`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Join {
    /// It founds the group if it finds none, and comes in by itself.
    #[default]
    Auto,
    /// It comes in by itself, and founds none.
    External,
    /// It waits until a member admits it.
    Wait,
    /// It founds the group, and fails if there is one: no URL says so, as a second run would fail.
    Create,
}

/// How members name themselves in a group's tree (`keys=mls`; RFC 9420, section 5.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Credentials {
    /// By their certificates.
    #[default]
    X509,
    /// By names, which nothing proves, and any member may remove any other: for experiments.
    Basic,
}

/// How proposals and commits travel, under the bootstrap encryption (`keys=mls`; RFC 9420, section 6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum HandshakeForm {
    /// As PrivateMessages.
    #[default]
    Private,
    /// As PublicMessages: anyone who has the bootstrap key sees who changes what.
    Public,
}

/// How messages of the application travel, under the epoch's key (`keys=mls`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum DataForm {
    /// As they are.
    #[default]
    Records,
    /// As PrivateMessages (RFC 9420, section 6.3), each with a key of its own.
    Mls,
}

/// The options of a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// `ttl=`: how many routers multicast may pass; 0 stays on this machine.
    pub ttl: u8,
    /// `recv_buf_size=`: bytes of the socket's receive buffer.
    pub recv_buf_size: Option<usize>,
    /// `interface=`: the local address of the interface to use.
    pub interface: Option<IpAddr>,
    /// `mtu=`: bytes of an IP packet; else asked from the route.
    pub mtu: Option<usize>,
    /// `segment=`: bytes of a datagram at most; else as the MTU allows.
    pub segment: Option<usize>,
    /// `linger=`: how long a message may wait for company.
    pub linger: Duration,
    /// `batch=`: messages in quick succession share datagrams and system calls; off: one message, one
    /// datagram, one call (for measurements).
    pub batch: bool,
    /// `gso=`: segmented sends where the kernel has them.
    pub gso: bool,
    /// `group=`: the group's name.
    pub group: Option<String>,
    /// `origin=`: when a message carries its sender's signature, beside the seal that any member could have made.
    pub origin: OriginMode,
    /// `suite=`.
    pub cipher: Cipher,
    /// `rekey=`: a new key after this time.
    pub rekey: Option<Duration>,
    /// `erase=epoch`: the secrets of each epoch are erased from the disk at once, and not within 32 epochs or a minute (D6);
    /// with `keys=mls`.
    pub erases: bool,
    /// `detect=`: a member silent for this long is suspected; 3 s if it says nothing, 500 ms where multicast has `order=total`.
    pub detect: Option<Duration>,
    /// `kdc=`: where the key distribution centre and its stand-bys are asked, `HOST:PORT`, the first one first; with
    /// `keys=center`.
    pub kdc: Vec<String>,
    /// `backlog=`: bytes that may wait until all readers have acknowledged them; with `order=total`.
    pub backlog: usize,
    /// `slow=`: whether a member that holds all others up is left out; with `order=total`.
    pub slow: SlowMember,
    /// `fec=`: whether lost records are rebuilt from parities, where many lack some; with `order=total`.
    pub fec: bool,
    /// `join=`, with `keys=mls`.
    pub join: Join,
    /// `ciphersuite=`, with `keys=mls`: the number of the suite of RFC 9420 that the group must have, 1 or 2; else it is that of
    /// the identity's key.
    pub ciphersuite: Option<u16>,
    /// `credentials=`, with `keys=mls`.
    pub credentials: Credentials,
    /// `handshake=`, with `keys=mls`.
    pub handshake: HandshakeForm,
    /// `data=`, with `keys=mls`: all members of a group have the same.
    pub data: DataForm,
    /// `wait=`: how long publish waits for the first key, or for brokers.
    pub wait: Duration,
    /// `pin=`: how the id of the brokers' cluster begins, in hex.
    pub pin: Option<String>,
    /// `authority=`: who must have signed the brokers' cluster file.
    pub authority: Option<Fingerprint>,
    /// `directory=`: the URL of a relay's directory, `http(s)://HOST/v1`.
    pub directory: Option<String>,
    /// `relay=`: the key that the directory's receipts must have, `scrl1…`.
    pub relay: Option<String>,
    /// `history=`: all that is published goes into the log of a relay's directory, and comes to members that are away now, too.
    pub history: bool,
    /// `padding=`: what a relay carries sealed has a multiple of so many bytes.
    pub padding: usize,
    /// `user=`: as whom to log in at the MQTT broker.
    pub user: Option<String>,
    /// `password-file=`: its password; else `SEALCAST_RELAY_PASSWORD` has it.
    pub password_file: Option<PathBuf>,
    /// `ca=`: the certificates (PEM) by which a relay's TLS is checked, if not by the system's.
    pub ca: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            ttl: 0,
            recv_buf_size: None,
            interface: None,
            mtu: None,
            segment: None,
            linger: Duration::ZERO,
            batch: true,
            gso: true,
            group: None,
            origin: OriginMode::Auto,
            cipher: Cipher::Aes256Gcm,
            rekey: None,
            erases: false,
            detect: None,
            kdc: Vec::new(),
            backlog: limits::RELIABLE_BACKLOG_BYTES,
            slow: SlowMember::Wait,
            fec: true,
            join: Join::Auto,
            ciphersuite: None,
            credentials: Credentials::X509,
            handshake: HandshakeForm::Private,
            data: DataForm::Records,
            wait: Duration::from_secs(10),
            pin: None,
            authority: None,
            directory: None,
            relay: None,
            history: false,
            padding: 1,
            user: None,
            password_file: None,
            ca: None,
        }
    }
}

impl Url {
    /// Reads a URL.
    ///
    /// # Errors
    /// [`Code::BadUrl`] with the part that is not understood.
    ///
    /// ```
    /// let url = sealcast::Url::parse("udpm://239.255.76.67:7667?ttl=1&group=ward3")?;
    /// assert_eq!(url.options.group.as_deref(), Some("ward3"));
    /// # Ok::<(), sealcast::Error>(())
    /// ```
    pub fn parse(text: &str) -> Result<Url> {
        let (place, query) = text.split_once('?').unwrap_or((text, ""));
        let (scheme, place) = place.split_once(':').ok_or_else(|| {
            bad(text, "it has no scheme")
                .with_hint("udpm://239.255.76.67:7667?keys=contributory, or mem:NAME?keys=plain")
        })?;
        let address = match scheme {
            "udpm" => TransportAddress::Multicast { group: multicast_address(text, place)?, ordered: false },
            "mem" => TransportAddress::Memory { name: place.trim_start_matches('/').to_owned(), ordered: false },
            "quorum" if place.is_empty() => {
                return Err(bad(text, "it names no cluster file").with_hint("quorum:cluster.toml"));
            }
            "quorum" => TransportAddress::Quorum(unescaped(place).into()),
            "mqtt" | "mqtts" => TransportAddress::Relay(relay_address(text, place, scheme == "mqtts")?),
            later if LATER_TRANSPORTS.contains(&later) => {
                return Err(not_built(text, &format!("{scheme}: is a way of the design that")));
            }
            "tcpq" | "file" | "memq" | "mpudpm" => {
                return Err(bad(text, &format!("LCM's {scheme}: is not carried here")).with_hint(transports_hint()));
            }
            _ => return Err(bad(text, &format!("the scheme '{scheme}' is unknown")).with_hint(transports_hint())),
        };
        if let Some(feature) = address.transport().lacks_feature() {
            let what = format!("this program was built without {scheme}:");
            return Err(
                bad(text, &what).with_hint(format!("build it with the feature '{feature}' of the crate sealcast"))
            );
        }
        let keys = address.transport().default_keys();
        let mut url = Url { address, keys, options: Options::default(), text: text.to_owned() };
        let mut given = BTreeSet::new();
        for pair in query.split('&').filter(|p| !p.is_empty()) {
            let (name, value) =
                pair.split_once('=').ok_or_else(|| bad(text, &format!("the option '{pair}' has no value")))?;
            if !given.insert(name) {
                let hint = format!("say {name}= once");
                return Err(bad(text, &format!("the option '{name}' stands there twice")).with_hint(hint));
            }
            url.set(name, value)?;
        }
        match (url.keys, &mut url.address) {
            // LSGC's group has both channels, and commits need one order.
            (Scheme::Center, TransportAddress::Multicast { ordered, .. })
            | (Scheme::Mls, TransportAddress::Memory { ordered, .. })
                if !given.contains("order") =>
            {
                *ordered = true;
            }
            _ => {}
        }
        if let Some(feature) = url.keys.lacks_feature() {
            let what = format!("this program was built without keys={}", url.keys.name());
            return Err(
                bad(text, &what).with_hint(format!("build it with the feature '{feature}' of the crate sealcast"))
            );
        }
        for name in ["backlog", "slow", "fec"] {
            if given.contains(name) && url.address.transport() != Transport::OrderedMulticast {
                return Err(bad(text, &format!("{name}= belongs to udpm: URLs with order=total")));
            }
        }
        url.check_pair()?;
        for name in ["join", "erase", "ciphersuite", "credentials", "handshake", "data"] {
            if given.contains(name) && url.keys != Scheme::Mls {
                return Err(bad(text, &format!("{name}= belongs to keys=mls")));
            }
        }
        if (url.options.credentials, url.options.origin) == (Credentials::Basic, OriginMode::Signed) {
            let what = "with credentials=basic nothing proves whose a signature is";
            return Err(bad(text, what).with_hint("leave origin=signed out, or say credentials=x509"));
        }
        if (url.options.data, url.options.origin) == (DataForm::Mls, OriginMode::Mac) {
            let what = "with data=mls each message is signed";
            return Err(bad(text, what).with_hint("leave origin=mac out, or data=mls"));
        }
        url.check_relay(&given)?;
        match (url.keys, given.contains("kdc")) {
            (Scheme::Center, false) => {
                let hint = "add &kdc=HOST:PORT, where the centre listens";
                return Err(bad(text, "keys=center needs to know where its centre is").with_hint(hint));
            }
            (Scheme::Center, true) | (_, false) => {}
            (_, true) => return Err(bad(text, "kdc= belongs to keys=center")),
        }
        Ok(url)
    }

    /// The URL to use when none is named: `SEALCAST_URL`, else the selected context's (`context`), else
    /// `LCM_DEFAULT_URL`.
    ///
    /// # Errors
    /// [`Code::NoUrl`] if there is none, or those of [`Url::parse`].
    pub fn default_of(context: Option<&str>) -> Result<Url> {
        let var = |name: &str| std::env::var(name).ok().filter(|v| !v.is_empty());
        match var("SEALCAST_URL").or_else(|| context.map(str::to_owned)).or_else(|| var("LCM_DEFAULT_URL")) {
            Some(url) => Url::parse(&url),
            None => Err(Error::new(Code::NoUrl, "no URL is given")
                .with_hint("export SEALCAST_URL='udpm://239.255.76.67:7667?ttl=0&keys=contributory'")),
        }
    }

    fn set(&mut self, name: &str, value: &str) -> Result<()> {
        let text = self.text.clone();
        let wrong = |takes: &str| bad(&text, &format!("{name}={value}: {name} takes {takes}"));
        let options = &mut self.options;
        match name {
            "ttl" => options.ttl = value.parse().map_err(|_| wrong("a number from 0 to 255"))?,
            "recv_buf_size" => {
                options.recv_buf_size = Some(bytes(value).ok_or_else(|| wrong("bytes, such as 4194304 or 4MiB"))?);
            }
            "interface" => {
                options.interface = Some(value.parse().map_err(|_| wrong("the address of a local interface"))?);
            }
            "mtu" => {
                let n = bytes(value).filter(|n| (1280..=65_536).contains(n));
                options.mtu = Some(n.ok_or_else(|| wrong("bytes from 1280 to 65536"))?);
            }
            "segment" => {
                let n = bytes(value).filter(|n| (SEGMENT_MIN..=SEGMENT_MAX).contains(n));
                options.segment = Some(n.ok_or_else(|| wrong(&format!("bytes from {SEGMENT_MIN} to {SEGMENT_MAX}")))?);
            }
            "linger" => options.linger = duration(value).ok_or_else(|| wrong("a time such as 100us or 5ms"))?,
            "batch" => options.batch = switch(value).ok_or_else(|| wrong("on or off"))?,
            "gso" => options.gso = switch(value).ok_or_else(|| wrong("on or off"))?,
            "group" if !value.is_empty() => options.group = Some(value.to_owned()),
            "origin" => {
                options.origin = match value {
                    "auto" => OriginMode::Auto,
                    "signed" => OriginMode::Signed,
                    "mac" => OriginMode::Mac,
                    _ => return Err(wrong("auto, signed or mac")),
                }
            }
            "suite" => {
                options.cipher = match value {
                    "aes256gcm" | "aes" => Cipher::Aes256Gcm,
                    "chacha20poly1305" | "chacha" => Cipher::ChaCha20Poly1305,
                    _ => return Err(wrong("aes256gcm or chacha20poly1305")),
                }
            }
            "rekey" => {
                let time = duration(value).ok_or_else(|| wrong("a time such as 1h"))?;
                options.rekey = Some(
                    at_least(limits::REKEY_MIN, time).ok_or_else(|| short(&wrong, limits::REKEY_MIN, "rekey=1h"))?,
                );
            }
            "erase" if value == "epoch" => options.erases = true,
            "erase" => return Err(wrong("epoch")),
            "detect" => {
                let time = duration(value).ok_or_else(|| wrong("a time such as 500ms"))?;
                options.detect = Some(
                    at_least(limits::DETECT_MIN, time)
                        .ok_or_else(|| short(&wrong, limits::DETECT_MIN, "detect=500ms"))?,
                );
            }
            "join" => {
                options.join = match value {
                    "auto" => Join::Auto,
                    "external" => Join::External,
                    "wait" => Join::Wait,
                    _ => return Err(wrong("auto, external or wait")),
                }
            }
            "ciphersuite" => {
                options.ciphersuite = match value {
                    "1" => Some(1),
                    "2" => Some(2),
                    _ => return Err(wrong("1 (X25519, Ed25519) or 2 (P-256)")),
                }
            }
            "credentials" => {
                options.credentials = match value {
                    "x509" => Credentials::X509,
                    "basic" => Credentials::Basic,
                    _ => return Err(wrong("x509 or basic")),
                }
            }
            "handshake" => {
                options.handshake = match value {
                    "private" => HandshakeForm::Private,
                    "public" => HandshakeForm::Public,
                    _ => return Err(wrong("private or public")),
                }
            }
            "data" => {
                options.data = match value {
                    "records" => DataForm::Records,
                    "mls" => DataForm::Mls,
                    _ => return Err(wrong("records or mls")),
                }
            }
            "wait" => options.wait = duration(value).ok_or_else(|| wrong("a time such as 10s"))?,
            "pin" => {
                let hex = |c: char| matches!(c, '0'..='9' | 'a'..='f');
                let good = (16..=64).contains(&value.len()) && value.chars().all(hex);
                if !matches!(self.address, TransportAddress::Quorum(_)) {
                    return Err(bad(&text, "pin= belongs to quorum: URLs"));
                }
                options.pin =
                    Some(good.then(|| value.to_owned()).ok_or_else(|| wrong("16 to 64 digits of a cluster's id"))?);
            }
            "authority" => {
                if !matches!(self.address, TransportAddress::Quorum(_)) {
                    return Err(bad(&text, "authority= belongs to quorum: URLs"));
                }
                options.authority = Some(value.parse().map_err(|_| wrong("an authority's fingerprint, scca1…"))?);
            }
            "keys" => match Scheme::ALL.into_iter().find(|it| it.name() == value) {
                Some(keys) => self.keys = keys,
                None if LATER_SCHEMES.contains(&value) => {
                    return Err(not_built(&text, &format!("keys={value} is a scheme of the design that")));
                }
                None => return Err(wrong(&several(&Scheme::ALL.map(Scheme::name)))),
            },
            "order" => match (&mut self.address, value) {
                (TransportAddress::Quorum(_) | TransportAddress::Relay(_), _) => {
                    return Err(bad(&text, "order= belongs to udpm: and mem: URLs"));
                }
                (
                    TransportAddress::Memory { ordered, .. } | TransportAddress::Multicast { ordered, .. },
                    "total" | "best-effort",
                ) => *ordered = value == "total",
                (TransportAddress::Memory { .. } | TransportAddress::Multicast { .. }, _) => {
                    return Err(wrong("total or best-effort"));
                }
            },
            "kdc" => {
                let places: Vec<String> = value.split(',').map(str::to_owned).collect();
                let is_place = |it: &String| {
                    let port = it.rsplit_once(':').filter(|(host, _)| !host.is_empty()).map(|(_, port)| port);
                    port.is_some_and(|port| port.parse::<u16>().is_ok_and(|port| port > 0))
                };
                if !places.iter().all(is_place) || places.len() > KDC_PLACES_MAX {
                    return Err(wrong("HOST:PORT of the key distribution centre, and of its stand-bys after commas"));
                }
                options.kdc = places;
            }
            "slow" => {
                options.slow = match value {
                    "wait" => SlowMember::Wait,
                    "expel" => SlowMember::Expel,
                    _ => return Err(wrong("wait or expel")),
                }
            }
            "backlog" => {
                let range = limits::RELIABLE_BACKLOG_BYTES_MIN..=limits::RELIABLE_BACKLOG_BYTES_MAX;
                let n = bytes(value).filter(|n| range.contains(n));
                options.backlog = n.ok_or_else(|| wrong("bytes from 64KiB to 64MiB, such as 16MiB"))?;
            }
            "directory" => {
                let is_http = ["http://", "https://"].iter().any(|it| value.len() > it.len() && value.starts_with(it));
                options.directory = Some(
                    is_http
                        .then(|| value.to_owned())
                        .ok_or_else(|| wrong("the URL of a relay's directory, such as https://relay.example/v1"))?,
                );
            }
            "relay" => {
                #[cfg(feature = "relay")]
                let good = value.parse::<sealcast_relay::key::RelayKey>().is_ok();
                // A URL of one does not parse there.
                #[cfg(not(feature = "relay"))]
                let good = false;
                let key = good.then(|| value.to_owned());
                options.relay = Some(key.ok_or_else(|| wrong("the key of a relay, scrl1…, as its program prints it"))?);
            }
            "history" => options.history = switch(value).ok_or_else(|| wrong("on or off"))?,
            "padding" => {
                let n = bytes(value).filter(|n| (1..=PADDING_MAX).contains(n));
                options.padding = n.ok_or_else(|| wrong("bytes from 1 to 65536, such as 256"))?;
            }
            "user" if !value.is_empty() => options.user = Some(value.to_owned()),
            "password-file" if !value.is_empty() => options.password_file = Some(value.into()),
            "ca" if !value.is_empty() => options.ca = Some(value.into()),
            "fec" => {
                options.fec = match value {
                    "auto" => true,
                    "off" => false,
                    _ => return Err(wrong("auto or off")),
                };
            }
            _ => {
                return Err(bad(&text, &format!("unknown option '{name}'")).with_hint(format!("known are {KNOWN}")));
            }
        }
        Ok(())
    }

    /// Whether a relay's options are there, and at a relay.
    fn check_relay(&self, given: &BTreeSet<&str>) -> Result<()> {
        if !matches!(self.address, TransportAddress::Relay(_)) {
            let found = ["directory", "relay", "history", "padding", "user", "password-file", "ca"]
                .into_iter()
                .find(|it| given.contains(it));
            return found.map_or(Ok(()), |it| Err(bad(&self.text, &format!("{it}= belongs to mqtt: URLs"))));
        }
        if self.options.history && self.keys != Scheme::Mls {
            let what = "history= needs the log of a directory, which keys=mls has";
            return Err(bad(&self.text, what).with_hint("add &keys=mls&directory=https://HOST/v1&relay=scrl1…"));
        }
        if given.contains("padding") && !self.is_sealed() {
            return Err(bad(&self.text, "padding= hides nothing where nothing is sealed"));
        }
        if let (TransportAddress::Relay(RelayAddress { tls: false, host, .. }), Some(_)) =
            (&self.address, &self.options.user)
            && host != "localhost"
            && !host.parse::<IpAddr>().is_ok_and(|it| it.is_loopback())
        {
            let hint = "say mqtts://, or leave user= out";
            return Err(bad(&self.text, "without TLS the password would travel in clear").with_hint(hint));
        }
        let of_log = [("directory", "https://HOST/v1"), ("relay", "scrl1…")];
        for (name, value) in of_log {
            match (self.keys == Scheme::Mls, given.contains(name)) {
                (true, false) => {
                    let hint = format!("add &{name}={value}, as the relay's program prints it");
                    return Err(bad(&self.text, &format!("keys=mls needs {name}=")).with_hint(hint));
                }
                (false, true) => return Err(bad(&self.text, &format!("{name}= belongs to keys=mls"))),
                (true, true) | (false, false) => {}
            }
        }
        Ok(())
    }

    /// Whether the transport gives what the scheme needs.
    ///
    /// # Errors
    /// [`Code::BadPair`], with what would fit.
    pub(crate) fn check_pair(&self) -> Result<()> {
        Pair { transport: self.address.transport(), keys: self.keys }.check(&self.text)
    }

    /// Whether what members say to each other goes through brokers, and is slower for it.
    pub(crate) fn meets_at_brokers(&self) -> bool {
        matches!(self.address, TransportAddress::Quorum(_))
    }

    /// A member silent for this long is suspected: `detect=`, or 3 s, or 500 ms where a multicast group orders.
    pub(crate) fn detect(&self) -> Duration {
        let orders = self.address.transport() == Transport::OrderedMulticast;
        self.options.detect.unwrap_or(if orders { limits::DETECT_ORDERED } else { limits::DETECT })
    }

    /// Whether anything is sealed at all.
    pub(crate) fn is_sealed(&self) -> bool {
        self.keys != Scheme::Plain
    }

    /// Whether the group has views: with `keys=plain`, that is where members order messages together.
    pub(crate) fn has_views(&self) -> bool {
        self.is_sealed() || self.address.transport() == Transport::OrderedMulticast
    }

    /// The cipher of payload, as people read it.
    pub(crate) fn cipher_name(&self) -> &'static str {
        match (self.keys, self.options.cipher) {
            (Scheme::Plain, _) => "none",
            (_, Cipher::Aes256Gcm) => "AES-256-GCM",
            (_, Cipher::ChaCha20Poly1305) => "ChaCha20-Poly1305",
        }
    }
}

/// Undoes what [`Url::of_cluster_file`] escapes.
fn unescaped(place: &str) -> String {
    place.replace("%3F", "?").replace("%3f", "?").replace("%25", "%")
}

impl FromStr for Url {
    type Err = Error;
    fn from_str(text: &str) -> Result<Url> {
        Url::parse(text)
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn bad(url: &str, what: &str) -> Error {
    Error::new(Code::BadUrl, format!("{url}: {what}"))
}

fn not_built(url: &str, what: &str) -> Error {
    Error::new(Code::BadUrl, format!("{url}: {what} is not built in this version"))
        .with_hint("use udpm://…?keys=contributory, or keys=plain")
}

fn transports_hint() -> String {
    let mut names = Transport::ALL.map(|it| format!("{}:", it.name())).to_vec();
    names.dedup();
    format!("use {}", several(&names))
}

/// 'a, b or c'.
fn several<S: AsRef<str>>(names: &[S]) -> String {
    let (last, others) = names.split_last().map_or(("", &[][..]), |(last, others)| (last.as_ref(), others));
    let others: Vec<&str> = others.iter().map(AsRef::as_ref).collect();
    if others.is_empty() { last.to_owned() } else { format!("{} or {last}", others.join(", ")) }
}

fn at_least(least: Duration, time: Duration) -> Option<Duration> {
    (time >= least).then_some(time)
}

fn short(wrong: &impl Fn(&str) -> Error, least: Duration, hint: &str) -> Error {
    wrong(&format!("at least {least:?}")).with_hint(hint)
}

fn multicast_address(url: &str, place: &str) -> Result<SocketAddr> {
    let place = place.strip_prefix("//").unwrap_or(place).trim_end_matches('/');
    let (ip, port) = match place.rsplit_once(':') {
        Some((ip, port)) if !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()) => (ip, Some(port)),
        _ => (place, None),
    };
    let ip: IpAddr = match ip.trim_start_matches('[').trim_end_matches(']') {
        "" => LCM_ADDRESS.into(),
        v6 if v6.contains(':') => v6.parse::<Ipv6Addr>().map_err(|_| bad(url, "the address cannot be read"))?.into(),
        v4 => v4.parse::<Ipv4Addr>().map_err(|_| bad(url, &format!("'{v4}' is not an IP address")))?.into(),
    };
    if !ip.is_multicast() {
        return Err(
            bad(url, &format!("{ip} is not a multicast address")).with_hint("use one of 239.0.0.0 to 239.255.255.255")
        );
    }
    if let IpAddr::V6(v6) = ip
        && v6.segments()[0] & 0xF <= 2
    {
        // Of these an address names a place only together with an interface, and ff02::1 is every machine.
        return Err(
            bad(url, &format!("{ip} reaches one link or none")).with_hint("use one of ff15::/16, or 239.255.76.67")
        );
    }
    let port = match port {
        Some(port) => {
            port.parse().ok().filter(|p| *p != 0).ok_or_else(|| bad(url, "the port is not from 1 to 65535"))?
        }
        None => LCM_PORT,
    };
    Ok(SocketAddr::new(ip, port))
}

fn relay_address(url: &str, place: &str, tls: bool) -> Result<RelayAddress> {
    let place = place.strip_prefix("//").unwrap_or(place);
    let (at, prefix) = place.split_once('/').unwrap_or((place, ""));
    if at.contains('@') {
        return Err(bad(url, "a URL holds no password").with_hint("say &user=NAME&password-file=FILE"));
    }
    let prefix = prefix.trim_matches('/');
    if prefix.contains(['+', '#']) {
        return Err(bad(url, "the prefix is no MQTT topic: it has + or #"));
    }
    let (host, port) = match at.rsplit_once(':') {
        Some((host, port)) if !at.ends_with(']') => (host, Some(port)),
        _ => (at, None),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    if host.is_empty() {
        return Err(bad(url, "it names no MQTT broker").with_hint("mqtts://HOST/PREFIX?keys=mls&…"));
    }
    let port = match port {
        None => {
            if tls {
                8883
            } else {
                1883
            }
        }
        Some(port) => {
            port.parse().ok().filter(|p| *p != 0).ok_or_else(|| bad(url, "the port is not from 1 to 65535"))?
        }
    };
    Ok(RelayAddress { tls, host: host.to_owned(), port, prefix: prefix.to_owned() })
}

/// A time: a number with `us`, `ms`, `s`, `m` or `h`.
pub fn duration(text: &str) -> Option<Duration> {
    let at = text.find(|c: char| !c.is_ascii_digit())?;
    let number: u64 = text[..at].parse().ok()?;
    let micros = match &text[at..] {
        "us" | "µs" => 1,
        "ms" => 1_000,
        "s" => 1_000_000,
        "m" | "min" => 60_000_000,
        "h" => 3_600_000_000,
        _ => return None,
    };
    Some(Duration::from_micros(number.checked_mul(micros)?))
}

fn bytes(text: &str) -> Option<usize> {
    let at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: usize = text[..at].parse().ok()?;
    let unit = match &text[at..] {
        "" => 1,
        "k" | "K" | "KiB" => 1 << 10,
        "M" | "MiB" => 1 << 20,
        _ => return None,
    };
    number.checked_mul(unit)
}

fn switch(text: &str) -> Option<bool> {
    match text {
        "on" | "1" | "true" => Some(true),
        "off" | "0" | "false" => Some(false),
        _ => None,
    }
}

/// LCM's default address (lcm_udpm.c).
const LCM_ADDRESS: Ipv4Addr = Ipv4Addr::new(239, 255, 76, 67);
/// LCM's default port (lcm_udpm.c).
const LCM_PORT: u16 = 7667;
/// Places of a key distribution centre and its stand-bys.
const KDC_PLACES_MAX: usize = 8;
/// In a group that is reached directly, so long after a message was taken its publisher knows what became of it.
const OUTCOME_WITHIN: Duration = Duration::from_secs(5);
/// Larger steps would make most messages that large.
const PADDING_MAX: usize = 1 << 16;
const KNOWN: &str = "ttl recv_buf_size interface mtu segment linger batch gso group origin suite rekey detect wait keys order (and backlog, slow and fec with order=total, kdc with keys=center, join, erase, ciphersuite, credentials, handshake and data with keys=mls, pin and authority for quorum:, directory, relay, history, padding, user, password-file and ca for mqtt:)";

#[cfg(test)]
mod tests {
    use super::*;

    fn multicast(group: &str) -> TransportAddress {
        TransportAddress::Multicast { group: group.parse().unwrap(), ordered: false }
    }

    #[test]
    fn lcm_urls_are_read_and_stay_sealed() {
        let url = Url::parse("udpm://").unwrap();
        assert_eq!(url.address, multicast("239.255.76.67:7667"));
        assert_eq!(url.keys, Scheme::Contributory);
        let url = Url::parse("udpm://239.1.2.3:99?ttl=1&recv_buf_size=4194304&keys=plain").unwrap();
        assert_eq!((url.options.ttl, url.options.recv_buf_size), (1, Some(4 << 20)));
        assert_eq!(url.keys, Scheme::Plain);
        let url = Url::parse("udpm://:7668?ttl=1").unwrap();
        assert_eq!(url.address, multicast("239.255.76.67:7668"));
        let url = Url::parse("udpm://[ff15::5c]:7667?keys=plain").unwrap();
        assert!(matches!(url.address, TransportAddress::Multicast { group, .. } if group.is_ipv6()));
    }

    #[cfg(feature = "brokers")]
    #[test]
    fn a_cluster_file_is_a_place_and_sealed_if_nothing_else_is_said() {
        let url = Url::parse("quorum:/etc/sealcast/cluster.toml").unwrap();
        assert_eq!(
            (&url.address, url.keys),
            (&TransportAddress::Quorum("/etc/sealcast/cluster.toml".into()), Scheme::Threshold)
        );
        assert_eq!(Url::parse("quorum:c.toml?keys=plain").unwrap().keys, Scheme::Plain);
        let pinned = Url::parse("quorum:c.toml?pin=0123456789abcdef").unwrap();
        assert_eq!(pinned.options.pin.as_deref(), Some("0123456789abcdef"));
        let authority = Fingerprint([9; 32]);
        let signed = Url::parse(&format!("quorum:c.toml?authority={authority}")).unwrap();
        assert_eq!(signed.options.authority, Some(authority));
        assert!(Url::parse("quorum:c.toml?authority=hospital").is_err());
        assert!(Url::parse(&format!("udpm://?authority={authority}")).is_err());
        assert!(Url::parse("quorum:c.toml?pin=01").is_err() && Url::parse("mem:x?pin=0123456789abcdef").is_err());
        let group = Url::parse("quorum:c.toml?keys=contributory&group=ward3").unwrap();
        assert_eq!((group.keys, group.options.group.as_deref()), (Scheme::Contributory, Some("ward3")));
        assert_eq!(Url::parse("udpm://?keys=threshold").unwrap_err().code(), Code::BadPair);
    }

    #[cfg(feature = "brokers")]
    #[test]
    fn any_path_of_a_cluster_file_can_be_named() {
        for path in ["c.toml", "/a b/c?.toml", "50%/c.toml", "%3F/%25?%"] {
            let text = Url::of_cluster_file(Path::new(path));
            let url = Url::parse(&format!("{text}?keys=plain")).unwrap();
            assert_eq!((url.address, url.keys), (TransportAddress::Quorum(path.into()), Scheme::Plain));
        }
    }

    #[cfg(feature = "brokers")]
    #[test]
    fn what_is_not_understood_is_an_error_that_names_it() {
        for (text, part) in [
            ("239.255.76.67:7667", "scheme"),
            ("udpm://10.0.0.1:7667", "not a multicast address"),
            ("udpm://239.255.76.67:0", "port"),
            ("udpm://239.255.76.67:7667?tll=1", "'tll'"),
            ("udpm://239.255.76.67:7667?ttl=1000", "ttl"),
            ("udpm://239.255.76.67:7667?keys=plian", "plain, contributory, center, threshold or mls"),
            ("udpm://?keys=center", "needs to know where its centre is"),
            ("udpm://?keys=center&kdc=host", "HOST:PORT of the key distribution centre"),
            ("udpm://?keys=center&kdc=:7680", "HOST:PORT of the key distribution centre"),
            ("udpm://?kdc=host:7680", "belongs to keys=center"),
            ("udpm://239.255.76.67:7667?keys=hybrid", "not built in this version"),
            ("gossip://relay/prefix", "not built in this version"),
            ("mqtt:///prefix", "names no MQTT broker"),
            ("mqtt://ann@relay/prefix", "holds no password"),
            ("mqtt://relay/prefix?keys=mls", "needs directory="),
            ("udpm://?directory=http://relay/v1", "belongs to mqtt:"),
            ("udpm://?erase=epoch", "belongs to keys=mls"),
            ("udpm://?padding=256", "belongs to mqtt:"),
            ("mqtt://a/p?keys=plain&group=g&padding=256", "hides nothing"),
            ("mqtt://a/p?keys=contributory&group=g&padding=0", "1 to 65536"),
            ("mem://a?keys=mls&order=total&erase=hour", "epoch"),
            ("mem:g?keys=mls&join=soon", "auto, external or wait"),
            ("udpm://?join=wait", "belongs to keys=mls"),
            ("udpm://?credentials=basic", "belongs to keys=mls"),
            ("mem:g?keys=mls&credentials=none", "x509 or basic"),
            ("mem:g?keys=mls&credentials=basic&origin=signed", "nothing proves"),
            ("mem:g?keys=mls&handshake=clear", "private or public"),
            ("mem:g?keys=mls&data=clear", "records or mls"),
            ("mem:g?keys=mls&data=mls&origin=mac", "each message is signed"),
            ("udpm://?data=mls", "belongs to keys=mls"),
            ("mem:g?keys=mls&history=on", "belongs to mqtt: URLs"),
            ("mqtt://127.0.0.1/p?keys=plain&history=on", "needs the log of a directory"),
            ("mem:g?keys=mls&ciphersuite=3", "1 (X25519, Ed25519) or 2"),
            ("quorum:", "names no cluster file"),
            ("quorum:cluster.toml?order=total", "belongs to udpm: and mem"),
            ("udpm://?order=some", "total or best-effort"),
            ("udpm://?linger=5", "a time such as"),
            ("udpm://?ttl", "no value"),
        ] {
            let error = Url::parse(text).unwrap_err();
            assert_eq!(error.code(), Code::BadUrl, "{text}");
            assert!(error.message().contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn what_no_group_could_work_with_is_refused_with_a_hint() {
        for (text, part) in [
            ("udpm://?rekey=1ms", "at least 100ms"),
            ("udpm://?detect=1us", "at least 50ms"),
            ("udpm://?ttl=0&keys=plain&ttl=1", "'ttl' stands there twice"),
            ("udpm://[ff02::1]", "ff02::1 reaches one link"),
            ("udpm://[ff01::5c]:7667", "ff01::5c reaches one link"),
        ] {
            let error = Url::parse(text).unwrap_err();
            assert_eq!(error.code(), Code::BadUrl, "{text}");
            assert!(error.message().contains(part) && error.hint().is_some(), "{text}: {error} ({:?})", error.hint());
        }
        assert!(Url::parse("udpm://[ff15::1]?rekey=100ms&detect=100ms").is_ok());
    }
}
