//! Figures for Prometheus, as OpenMetrics 1.0. None names a group or a client.

use std::time::Duration;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

type ByName = Family<[(&'static str, &'static str); 1], Counter>;

/// What is counted.
pub struct Metrics {
    registry: Registry,
    requests: ByName,
    refusals: ByName,
    turned_away: ByName,
    /// Connections of clients that are open.
    pub connections: Gauge,
    /// Groups that were founded since the start.
    pub founded: Counter,
    commit_seconds: Histogram,
    /// Requests that the commits served.
    pub committed: Counter,
    /// Announcements that the MQTT broker acknowledged.
    pub published: Counter,
    announcements_dropped: ByName,
    /// Announcements that wait for the MQTT broker.
    pub waiting: Gauge,
    /// Whether the MQTT broker is connected.
    pub mqtt_connected: Gauge,
    /// Connections to the MQTT broker since the start.
    pub mqtt_connections: Counter,
}

/// Why a request or a connection got no response of the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnedAway {
    /// There are too many connections, of all clients or of one address.
    Connections,
    /// The TLS handshake failed or took too long.
    Handshake,
    /// The body is over the limit.
    TooLarge,
    /// The body took too long or ended early.
    Body,
    /// Too many requests or bytes wait.
    Busy,
}

/// Why an announcement was not published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unpublished {
    /// Too many waited.
    Full,
    /// The MQTT broker refused it.
    Refused,
}

impl Default for Metrics {
    fn default() -> Metrics {
        let mut all = Metrics {
            registry: Registry::with_prefix("sealcast_relay"),
            requests: ByName::default(),
            refusals: ByName::default(),
            turned_away: ByName::default(),
            connections: Gauge::default(),
            founded: Counter::default(),
            commit_seconds: Histogram::new([0.000_5, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 5.0]),
            committed: Counter::default(),
            published: Counter::default(),
            announcements_dropped: ByName::default(),
            waiting: Gauge::default(),
            mqtt_connected: Gauge::default(),
            mqtt_connections: Counter::default(),
        };
        // A figure that has not happened is 0, not missing.
        let label = |family: &ByName, label, names: &[&'static str]| {
            names.iter().for_each(|name| drop(family.get_or_create(&[(label, *name)])));
        };
        label(&all.requests, "kind", &KINDS);
        label(&all.refusals, "reason", &REFUSALS);
        label(&all.turned_away, "reason", &["connections", "handshake", "too_large", "body", "busy"]);
        label(&all.announcements_dropped, "reason", &["full", "refused"]);
        let it = &mut all.registry;
        it.register("requests", "Requests that the directory answered.", all.requests.clone());
        it.register("refusals", "Requests that the directory refused.", all.refusals.clone());
        it.register("turned_away", "What got no response of the directory.", all.turned_away.clone());
        it.register("connections", "Connections of clients that are open.", all.connections.clone());
        it.register("groups_founded", "Groups that were founded since the start.", all.founded.clone());
        it.register("commit_seconds", "How long a durable commit takes.", all.commit_seconds.clone());
        it.register("committed_requests", "Requests that the commits served.", all.committed.clone());
        let published = "Announcements that the MQTT broker acknowledged.";
        it.register("announcements_published", published, all.published.clone());
        let dropped = "Announcements that were not published.";
        it.register("announcements_dropped", dropped, all.announcements_dropped.clone());
        it.register("announcements_waiting", "Announcements that wait for the MQTT broker.", all.waiting.clone());
        it.register("mqtt_connected", "Whether the MQTT broker is connected.", all.mqtt_connected.clone());
        it.register("mqtt_connections", "Connections to the MQTT broker.", all.mqtt_connections.clone());
        all
    }
}

impl Metrics {
    /// The directory answered a request. Both begin with the version, and then the kind (`docs/WIRE.md`, 25.2 and 25.3).
    pub fn answered(&self, request: &[u8], response: &[u8]) {
        let kind = request.get(1).map_or(0, |kind| usize::from(*kind));
        self.requests.get_or_create(&[("kind", *KINDS.get(kind).unwrap_or(&KINDS[0]))]).inc();
        if let [_, REFUSED, code, ..] = response {
            self.refusals.get_or_create(&[("reason", *REFUSALS.get(usize::from(*code)).unwrap_or(&REFUSALS[0]))]).inc();
        }
    }

    /// A request or a connection got no response of the directory.
    pub fn turned_away(&self, why: TurnedAway) {
        let why = match why {
            TurnedAway::Connections => "connections",
            TurnedAway::Handshake => "handshake",
            TurnedAway::TooLarge => "too_large",
            TurnedAway::Body => "body",
            TurnedAway::Busy => "busy",
        };
        self.turned_away.get_or_create(&[("reason", why)]).inc();
    }

    /// An announcement was dropped.
    pub fn unpublished(&self, why: Unpublished) {
        let why = match why {
            Unpublished::Full => "full",
            Unpublished::Refused => "refused",
        };
        self.announcements_dropped.get_or_create(&[("reason", why)]).inc();
    }

    /// A durable commit for so many requests.
    pub fn committed(&self, took: Duration, requests: u64) {
        self.commit_seconds.observe(took.as_secs_f64());
        self.committed.inc_by(requests);
    }

    /// All figures as text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("a string takes all");
        text
    }
}

/// By the kind's number.
const KINDS: [&str; 10] =
    ["unknown", "info", "append", "read", "blobs", "put_blobs", "put_packages", "take_package", "mail", "put_mail"];
/// By the refusal's number.
const REFUSALS: [&str; 13] = [
    "other",
    "version",
    "malformed",
    "too_large",
    "unknown_group",
    "conflict",
    "wrong_key",
    "bad_signature",
    "rate_limited",
    "full",
    "gone",
    "missing",
    "stale",
];
/// The kind of a response that refuses.
const REFUSED: u8 = 0;

#[cfg(test)]
mod tests {
    use sealcast_relay::request::Request;
    use sealcast_relay::response::{Refusal, Response};

    use super::*;

    #[test]
    fn requests_and_refusals_are_counted_by_name() {
        let metrics = Metrics::default();
        let refused = |why| Response::Refused(why).encode();
        metrics.answered(&Request::Info.encode(), &refused(Refusal::WrongKey));
        metrics.answered(&[9, 200], &refused(Refusal::Version));
        metrics.answered(&[], &refused(Refusal::Stale));
        let text = metrics.text();
        for line in [
            "requests_total{kind=\"info\"} 1",
            "requests_total{kind=\"unknown\"} 2",
            "requests_total{kind=\"append\"} 0",
            "refusals_total{reason=\"wrong_key\"} 1",
            "refusals_total{reason=\"version\"} 1",
            "refusals_total{reason=\"stale\"} 1",
            "turned_away_total{reason=\"busy\"} 0",
            "announcements_dropped_total{reason=\"full\"} 0",
        ] {
            assert!(text.contains(&format!("sealcast_relay_{line}\n")), "{line}: {text}");
        }
        assert!(text.ends_with("# EOF\n"));
    }
}
