//! What the directory accepted, to the MQTT broker: at least once, in order, as long as it fits.
//!
//! ```text
//! push ─▶ [ in flight … | waiting … ] ─▶ PUBLISH, QoS 1, PREFIX/<group>/log
//!           └── PUBACK removes the first; a new connection begins with it again
//! ```
//! Members also read the log, so an announcement that is lost makes them slower, and one that comes twice says nothing new.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::mqttbytes::v5::{Packet, PubAckReason};
use rumqttc::v5::{AsyncClient, ConnectionError, Event, EventLoop, MqttOptions};
use rumqttc::{Outgoing, TlsConfiguration, Transport};
use sealcast_relay::directory::Published;
use sealcast_relay::key::RelayKey;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use crate::limits;
use crate::lock;
use crate::metrics::{Metrics, Unpublished};
use crate::mqtt::{Address, Prefix};

/// Announcements that wait. Clones are the same queue.
#[derive(Clone)]
pub struct Announcements(Arc<Queue>);

struct Queue {
    prefix: Prefix,
    metrics: Arc<Metrics>,
    items: Mutex<Items>,
    changed: Notify,
}

#[derive(Default)]
struct Items {
    /// The first `in_flight` are with the broker.
    all: VecDeque<Item>,
    in_flight: usize,
    bytes: usize,
}

#[derive(Clone)]
struct Item {
    topic: String,
    announcement: Bytes,
    /// The same without the entry, for a broker that takes no longer one.
    receipt_alone: Bytes,
}

impl Announcements {
    /// None waits.
    pub fn new(prefix: Prefix, metrics: Arc<Metrics>) -> Announcements {
        Announcements(Arc::new(Queue { prefix, metrics, items: Mutex::default(), changed: Notify::new() }))
    }

    /// Puts one at the end. If there are too many, the oldest that is not with the broker yet is dropped.
    pub fn push(&self, published: &Published) {
        let item = Item {
            topic: self.0.prefix.log_of(&published.group),
            announcement: published.to_bytes(limits::ANNOUNCEMENT_BYTES_MAX).into(),
            receipt_alone: published.to_bytes(0).into(),
        };
        let mut items = lock(&self.0.items);
        items.bytes += item.announcement.len();
        items.all.push_back(item);
        while items.all.len() > limits::ANNOUNCEMENTS_MAX || items.bytes > limits::ANNOUNCEMENTS_BYTES_MAX {
            let at = items.in_flight;
            let dropped = items.all.remove(at).expect("fewer are with the broker than may wait");
            items.bytes -= dropped.announcement.len();
            self.0.metrics.unpublished(Unpublished::Full);
        }
        self.0.metrics.waiting.set(items.all.len() as i64);
        drop(items);
        self.0.changed.notify_one();
    }

    fn is_empty(&self) -> bool {
        lock(&self.0.items).all.is_empty()
    }

    /// The next one for the broker, which has it from now on.
    async fn next(&self) -> Item {
        loop {
            {
                let mut items = lock(&self.0.items);
                let at = items.in_flight;
                if at < limits::IN_FLIGHT_MAX && at < items.all.len() {
                    items.in_flight += 1;
                    return items.all[at].clone();
                }
            }
            self.0.changed.notified().await;
        }
    }

    /// The first one is done with. `false` if none was with the broker.
    fn remove_first(&self) -> bool {
        let mut items = lock(&self.0.items);
        if items.in_flight == 0 {
            return false;
        }
        if let Some(first) = items.all.pop_front() {
            items.in_flight -= 1;
            items.bytes -= first.announcement.len();
        }
        self.0.metrics.waiting.set(items.all.len() as i64);
        drop(items);
        self.0.changed.notify_one();
        true
    }

    /// The connection is gone: none is with the broker. Gives how many were.
    fn restart(&self) -> usize {
        std::mem::take(&mut lock(&self.0.items).in_flight)
    }
}

/// The task that talks to the broker.
pub struct Announcer {
    announcements: Announcements,
    is_connected: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

impl Announcer {
    /// Starts it. It connects, and connects again, as long as it lives.
    pub fn start(announcements: Announcements, broker: &Address, relay: &RelayKey) -> Announcer {
        // A client of the same name would take over the connection: no other one knows it.
        let mut unique = [0; 8];
        let _ = getrandom::fill(&mut unique);
        let id = format!("sealcast-relay-{}-{}", hex::encode(&relay.as_bytes()[..4]), hex::encode(unique));
        let mut options = match broker {
            Address::Tcp { broker, .. } => MqttOptions::new(id, &broker.host, broker.port),
            Address::Unix(path) => MqttOptions::new(id, path.to_string_lossy(), 0),
        };
        options.set_keep_alive(limits::MQTT_KEEP_ALIVE).set_connection_timeout(limits::MQTT_CONNECT_SECONDS);
        options.set_clean_start(true);
        match broker {
            Address::Tcp { broker, password, tls } => {
                if let Some(user) = &broker.user {
                    options.set_credentials(user, password.as_ref().map_or("", |it| it.as_str()));
                }
                if let Some(tls) = tls {
                    options.set_transport(Transport::tls_with_config(TlsConfiguration::Rustls(tls.clone())));
                }
            }
            Address::Unix(_) => _ = options.set_transport(Transport::unix()),
        }
        let is_connected = Arc::new(AtomicBool::new(false));
        let state = State { announcements: announcements.clone(), is_connected: is_connected.clone(), options };
        let task = tokio::spawn(state.run(broker.to_string()));
        Announcer { announcements, is_connected, task }
    }

    /// Ends it; what waits has [`limits::ANNOUNCE_TIMEOUT`] if the broker is there.
    pub async fn stop(self) {
        let emptied = async {
            while !self.announcements.is_empty() && self.is_connected.load(Ordering::Acquire) {
                sleep(Duration::from_millis(5)).await;
            }
        };
        let _ = timeout(limits::ANNOUNCE_TIMEOUT, emptied).await;
        self.task.abort();
    }
}

struct State {
    announcements: Announcements,
    is_connected: Arc<AtomicBool>,
    options: MqttOptions,
}

/// How a connection went.
struct Ended {
    error: ConnectionError,
    was_connected: bool,
    /// Announcements that the broker acknowledged.
    acknowledged: usize,
}

impl State {
    async fn run(self, broker: String) {
        let (least, most) = limits::RECONNECT_AFTER;
        let (mut wait, mut attempts, mut is_logged) = (least, 0, false);
        loop {
            let ended = self.connection(&broker).await;
            self.is_connected.store(false, Ordering::Release);
            self.announcements.0.metrics.mqtt_connected.set(0);
            let were_in_flight = self.announcements.restart();
            // A broker that ends the connection over an announcement would do so forever.
            attempts = if ended.acknowledged == 0 && were_in_flight > 0 { attempts + 1 } else { 0 };
            if attempts >= limits::ATTEMPTS_MAX {
                attempts = 0;
                self.announcements.drop_first();
            }
            if ended.was_connected || !is_logged {
                warn!("no connection to the MQTT broker {broker}: {}", said(&ended.error));
                is_logged = true;
            }
            wait = if ended.acknowledged > 0 { least } else { (wait * 2).min(most) };
            sleep(wait.mul_f64(0.5 + jitter() / 2.0)).await;
        }
    }

    /// One connection, until it ends.
    async fn connection(&self, broker: &str) -> Ended {
        let (client, mut events) = AsyncClient::new(self.options.clone(), limits::IN_FLIGHT_MAX);
        let (connected, acknowledged) = (Connected::default(), AtomicUsize::new(0));
        let error = tokio::select! {
            error = self.poll(&mut events, broker, &connected, &acknowledged) => error,
            () = self.feed(&client, &connected) => ConnectionError::RequestsDone,
        };
        let was_connected = self.is_connected.load(Ordering::Acquire);
        Ended { error, was_connected, acknowledged: acknowledged.into_inner() }
    }

    async fn poll(
        &self,
        events: &mut EventLoop,
        broker: &str,
        connected: &Connected,
        acknowledged: &AtomicUsize,
    ) -> ConnectionError {
        let metrics = &self.announcements.0.metrics;
        loop {
            match events.poll().await {
                Ok(Event::Incoming(Packet::ConnAck(it))) => {
                    let most = it.properties.and_then(|it| it.max_packet_size);
                    connected.bytes_max.store(most.map_or(usize::MAX, |it| it as usize), Ordering::Release);
                    connected.now.notify_one();
                    self.is_connected.store(true, Ordering::Release);
                    metrics.mqtt_connected.set(1);
                    metrics.mqtt_connections.inc();
                    info!("connected to the MQTT broker {broker}");
                }
                // A broker acknowledges in the order in which it got them (MQTT 5.0, 4.6).
                Ok(Event::Incoming(Packet::PubAck(it))) => {
                    if !self.announcements.remove_first() {
                        continue;
                    }
                    acknowledged.fetch_add(1, Ordering::AcqRel);
                    match it.reason {
                        PubAckReason::Success | PubAckReason::NoMatchingSubscribers => _ = metrics.published.inc(),
                        why => {
                            metrics.unpublished(Unpublished::Refused);
                            warn!("the MQTT broker refuses an announcement: {why:?}");
                        }
                    }
                }
                Ok(Event::Incoming(_) | Event::Outgoing(Outgoing::Disconnect | Outgoing::PingReq)) => {}
                Ok(Event::Outgoing(_)) => {}
                Err(error) => return error,
            }
        }
    }

    async fn feed(&self, client: &AsyncClient, connected: &Connected) {
        connected.now.notified().await;
        let bytes_max = connected.bytes_max.load(Ordering::Acquire);
        loop {
            let Item { topic, announcement, receipt_alone } = self.announcements.next().await;
            let fits = announcement.len() + topic.len() + PACKET_BYTES <= bytes_max;
            let payload = if fits { announcement } else { receipt_alone };
            if client.publish(topic, QoS::AtLeastOnce, false, payload).await.is_err() {
                return;
            }
        }
    }
}

impl Announcements {
    /// The broker does not take the first one.
    fn drop_first(&self) {
        let mut items = lock(&self.0.items);
        if let Some(first) = items.all.pop_front() {
            items.bytes -= first.announcement.len();
            self.0.metrics.unpublished(Unpublished::Refused);
            self.0.metrics.waiting.set(items.all.len() as i64);
        }
    }
}

#[derive(Default)]
struct Connected {
    now: Notify,
    /// Bytes of the longest packet that the broker takes.
    bytes_max: AtomicUsize,
}

/// What is told of a broker that is gone.
fn said(error: &ConnectionError) -> String {
    match error {
        ConnectionError::ConnectionRefused(why) => {
            format!("it refuses the relay ({why:?}); check the user in --mqtt and the password")
        }
        ConnectionError::Tls(why) => {
            format!(
                "TLS: {why}; --mqtt-ca names the certificates that the broker's is checked by, and mqtts: its port with TLS"
            )
        }
        ConnectionError::Io(error) => error.to_string(),
        ConnectionError::Timeout(_) => "it does not answer".into(),
        other => other.to_string(),
    }
}

/// From 0 to 1; without randomness in the middle.
fn jitter() -> f64 {
    getrandom::u32().map_or(0.5, |it| f64::from(it) / f64::from(u32::MAX))
}

/// Bytes of a PUBLISH beside topic and payload: 1 and up to 4 of the fixed header, 2 of the topic's length, 2 of the packet's
/// number, 1 without properties.
const PACKET_BYTES: usize = 10;
