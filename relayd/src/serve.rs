//! A relay, running: puts its parts together, and takes them apart in order.

use std::net::{SocketAddr, TcpListener as StdListener};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use axum::http::Uri;
use sealcast_relay::directory::{self, Directory};
use sealcast_relay::key::RelayKey;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::warn;
use zeroize::Zeroizing;

use crate::announcer::{Announcements, Announcer};
use crate::api;
use crate::connections::Server;
use crate::failure::{Code, Failure};
use crate::folder::Folder;
use crate::limits;
use crate::metrics::Metrics;
use crate::mosquitto::{self, Mosquitto};
use crate::mqtt::{Address, Broker, Prefix};
use crate::rows::Rows;
use crate::tls::Files;
use crate::writer::{Requests, Writer};

/// What a relay is started with.
pub struct Config {
    /// The data folder.
    pub data: PathBuf,
    /// Where the directory listens.
    pub listen: SocketAddr,
    /// How members reach it, if not there.
    pub public_url: Option<String>,
    /// The MQTT broker.
    pub mqtt: Mqtt,
    /// Below which topics announcements go.
    pub prefix: Prefix,
    /// Certificate and key of the directory.
    pub tls: Option<Files>,
    /// Whether it may serve other machines without TLS.
    pub insecure: bool,
    /// Where figures are shown.
    pub metrics: Option<SocketAddr>,
    /// How much of each group's log is kept.
    pub keep: Keep,
}

/// How many bytes of each group's log are kept at least, behind which the oldest entries go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keep(u64);

impl Default for Keep {
    fn default() -> Keep {
        Keep(limits::DIRECTORY_LOG_BYTES)
    }
}

impl Keep {
    fn configured(self) -> directory::Config {
        let usual = directory::Config::default();
        // Small entries count, too.
        directory::Config { log_bytes: self.0, log_entries: usual.log_entries.max(self.0 >> 10), ..usual }
    }
}

impl FromStr for Keep {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Keep, &'static str> {
        let at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let unit = match &text[at..] {
            "MB" => 1_000_000,
            "GB" => 1_000_000_000,
            "M" | "MiB" => 1 << 20,
            "G" | "GiB" => 1 << 30,
            _ => 0,
        };
        let bytes = text[..at].parse::<u64>().ok().and_then(|it| it.checked_mul(unit)).unwrap_or(0);
        (limits::KEEP_MIN..=limits::KEEP_MAX)
            .contains(&bytes)
            .then_some(Keep(bytes))
            .ok_or("a size from 16MiB to 1000GB, such as 256MiB or 1GB")
    }
}

/// The MQTT broker of a relay.
pub enum Mqtt {
    /// One that runs already.
    At {
        /// Which.
        broker: Broker,
        /// The relay's password there.
        password: Option<Zeroizing<String>>,
        /// The authorities that its certificate is checked by, PEM, if not the system's.
        authorities: Option<PathBuf>,
    },
    /// One of its own.
    Child(mosquitto::Setup),
}

/// What members need to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Links {
    /// The key to pin.
    pub relay: RelayKey,
    /// The directory's URL.
    pub directory: String,
    /// The broker's URL with the prefix.
    pub mqtt: String,
    /// Where figures are shown.
    pub metrics: Option<String>,
}

impl Links {
    /// The URL for members; they put the name of their group in.
    pub fn url(&self) -> String {
        format!("{}?keys=mls&group=GROUP&directory={}&relay={}", self.mqtt, self.directory, self.relay)
    }
}

/// A running relay. Dropping it ends it like a crash, which its files bear.
pub struct Relay {
    links: Links,
    writer: Writer,
    announcer: Announcer,
    end: watch::Sender<bool>,
    servers: Vec<JoinHandle<()>>,
    mosquitto: Option<Mosquitto>,
    folder: Folder,
}

impl Relay {
    /// Starts a relay.
    ///
    /// # Errors
    /// [`Failure`]: what is wrong with the folder, the files or the addresses.
    pub async fn start(config: Config) -> Result<Relay, Failure> {
        is_secured(&config)?;
        let tls = config.tls.as_ref().map(Files::acceptor).transpose()?;
        let (listener, listens) = listen("--listen", config.listen)?;
        let figures = config.metrics.map(|at| listen("--metrics", at)).transpose()?;
        let (folder, key) = Folder::open(&config.data)?;
        let rows = Rows::open(&folder.rows()).map_err(|e| Failure::storage(folder.path(), &e.0))?;
        let (mosquitto, address, mqtt) = match config.mqtt {
            Mqtt::At { broker, password, authorities } => {
                let url = broker.to_string();
                if broker.sends_password_in_clear() {
                    warn!("the password goes to {broker} in clear: where it has TLS, say mqtts://");
                }
                let tls = broker.has_tls.then(|| crate::tls::client(authorities.as_deref())).transpose()?;
                (None, Address::Tcp { broker, password, tls }, url)
            }
            Mqtt::Child(setup) => {
                let mosquitto = Mosquitto::start(&folder, &setup)?;
                let address = Address::Unix(mosquitto.socket().to_owned());
                let url = mqtt_url(mosquitto.listens(), setup.tls.is_some(), config.public_url.as_deref());
                (Some(mosquitto), address, url)
            }
        };

        let metrics = Arc::new(Metrics::default());
        let directory = Directory::new(config.keep.configured(), key);
        let relay = *directory.public();
        let announcements = Announcements::new(config.prefix.clone(), metrics.clone());
        let announcer = Announcer::start(announcements.clone(), &address, &relay);
        let started = Writer::start(directory, rows, announcements, metrics.clone());
        let (writer, requests) = started.map_err(|e| Failure::file(folder.path(), &e))?;

        let links = Links {
            relay,
            directory: config.public_url.clone().unwrap_or_else(|| directory_url(listens, tls.is_some())),
            mqtt: format!("{mqtt}/{}", config.prefix),
            metrics: figures.as_ref().map(|(_, at)| format!("http://{at}/metrics")),
        };
        let (end, ended) = watch::channel(false);
        let mut servers = vec![serve_directory(listener, tls, requests, &metrics, &ended)];
        if let Some((listener, _)) = figures {
            let router = api::figures(metrics.clone());
            let connections_max = limits::METRICS_CONNECTIONS_MAX;
            // Its connections are no clients'.
            let metrics = Arc::new(Metrics::default());
            let server = Server { listener, tls: None, router, connections_max, metrics };
            servers.push(tokio::spawn(server.run(ended)));
        }
        Ok(Relay { links, writer, announcer, end, servers, mosquitto, folder })
    }

    /// What members need to know.
    pub fn links(&self) -> &Links {
        &self.links
    }

    /// Has a broker of its own read its users again.
    pub fn reload(&self) {
        self.mosquitto.iter().for_each(Mosquitto::reload);
    }

    /// Comes when the relay cannot go on.
    pub async fn failed(&mut self) -> Failure {
        match (&mut self.writer.failed).await {
            Ok(why) => Failure::storage(self.folder.path(), &why.0),
            Err(_) => Failure::storage(self.folder.path(), "the thread that writes the rows has ended"),
        }
    }

    /// Ends it: requests under way are answered first, as far as that takes no long time.
    pub async fn stop(self) {
        self.end.send_replace(true);
        for server in self.servers {
            // A panic in it was reported by its own hook.
            let _ = server.await;
        }
        // All senders of requests went with the servers.
        let _ = tokio::task::spawn_blocking(move || self.writer.join()).await;
        self.announcer.stop().await;
        if let Some(mosquitto) = self.mosquitto {
            let _ = tokio::task::spawn_blocking(move || drop(mosquitto)).await;
        }
        drop(self.folder);
    }
}

fn serve_directory(
    listener: TcpListener,
    tls: Option<tokio_rustls::TlsAcceptor>,
    requests: Requests,
    metrics: &Arc<Metrics>,
    ended: &watch::Receiver<bool>,
) -> JoinHandle<()> {
    let router = api::directory(requests, metrics.clone());
    let connections_max = limits::CONNECTIONS_MAX;
    tokio::spawn(Server { listener, tls, router, connections_max, metrics: metrics.clone() }.run(ended.clone()))
}

/// Receipts and sealed entries need no secrecy, but names of groups do: they let others read sealed bytes. A broker for other
/// machines that lets everybody in is soon anybody's.
fn is_secured(config: &Config) -> Result<(), Failure> {
    if config.insecure {
        return Ok(());
    }
    if config.tls.is_none() && !config.listen.ip().is_loopback() {
        let at = config.listen;
        return Err(Failure::new(
            Code::Usage,
            format!("without TLS the directory serves this machine alone, and {at} is an address for others"),
            "add --tls-cert FILE --tls-key FILE; behind a proxy with TLS, --listen 127.0.0.1:7690; in a test, --insecure",
        ));
    }
    match &config.mqtt {
        Mqtt::Child(setup) if !setup.listen.ip().is_loopback() && (setup.tls.is_none() || setup.users.is_none()) => {
            let at = setup.listen;
            Err(Failure::new(
                Code::Usage,
                format!("without TLS and passwords the MQTT broker serves this machine alone, and {at} is for others"),
                "add --tls-cert FILE --tls-key FILE --mqtt-users FILE, which mosquitto_passwd writes; in a test, --insecure",
            ))
        }
        Mqtt::Child(_) | Mqtt::At { .. } => Ok(()),
    }
}

/// How members reach a broker of the relay's own: it is where the directory is.
fn mqtt_url(listens: SocketAddr, has_tls: bool, directory: Option<&str>) -> String {
    let scheme = if has_tls { "mqtts" } else { "mqtt" };
    let is_public = !listens.ip().is_loopback();
    let host = directory.filter(|_| is_public).and_then(|it| it.parse::<Uri>().ok()?.host().map(str::to_owned));
    match host {
        Some(host) => format!("{scheme}://{host}:{}", listens.port()),
        None if listens.ip().is_unspecified() => format!("{scheme}://HOST:{}", listens.port()),
        None => format!("{scheme}://{listens}"),
    }
}

fn listen(option: &str, at: SocketAddr) -> Result<(TcpListener, SocketAddr), Failure> {
    let listen = || {
        let listener = StdListener::bind(at)?;
        listener.set_nonblocking(true)?;
        let bound = listener.local_addr()?;
        Ok((TcpListener::from_std(listener)?, bound))
    };
    listen().map_err(|e| Failure::address(option, at, &e))
}

fn directory_url(listens: SocketAddr, has_tls: bool) -> String {
    let scheme = if has_tls { "https" } else { "http" };
    match listens.ip().is_unspecified() {
        true => format!("{scheme}://HOST:{}/v1", listens.port()),
        false => format!("{scheme}://{listens}/v1"),
    }
}
