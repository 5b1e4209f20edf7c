//! Which keys run over which transport: the one table of it.
//!
//! What a URL may say, its errors and their hints, README's table and the tests of all pairs come from here. Whether a pair
//! is allowed follows from what the scheme needs and what the transport gives; nobody writes it down twice. A new scheme or
//! transport is a variant here, and the compiler shows what else it takes.

use std::fmt;

#[cfg(feature = "brokers")]
use sealcast_client as client;
use sealcast_delivery as delivery;
use sealcast_delivery::memory::Ordered;
use sealcast_delivery::multicast::Multicast;
use sealcast_delivery::sequencer::Sequencer;
use sealcast_keys::{self as keys, Need};
use sealcast_wire::{Agreement, Guarantee};

use super::Scheme;
use crate::code::Code;
use crate::error::{Error, Result};

/// A transport, as far as it matters to who may run over it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Transport {
    /// UDP multicast.
    Multicast,
    /// The same with a channel beside it that loses nothing.
    OrderedMulticast,
    /// Inside this process.
    Memory,
    /// The same with an order beside it.
    OrderedMemory,
    /// Brokers.
    Quorum,
    /// An MQTT broker; for `keys=mls` with a directory beside it.
    Relay,
}

/// One scheme over one transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// How bytes travel.
    pub transport: Transport,
    /// Who holds the keys.
    pub keys: Scheme,
}

/// Schemes of the design that are not built.
pub const LATER_SCHEMES: [&str; 2] = ["hybrid", "broadcast"];
/// Transports of the design that are not built, as URLs name them.
pub const LATER_TRANSPORTS: [&str; 1] = ["gossip"];

impl Transport {
    /// All of them.
    pub const ALL: [Transport; 6] = [
        Transport::Multicast,
        Transport::OrderedMulticast,
        Transport::Memory,
        Transport::OrderedMemory,
        Transport::Quorum,
        Transport::Relay,
    ];

    /// A URL of it, as people write it.
    pub const fn url(self) -> &'static str {
        match self {
            Transport::Multicast => "udpm://ip:port?ttl=",
            Transport::OrderedMulticast => "udpm://ip:port?order=total",
            Transport::Memory => "mem:NAME",
            Transport::OrderedMemory => "mem:NAME?order=total",
            Transport::Quorum => "quorum:cluster.toml",
            Transport::Relay => "mqtt://HOST/PREFIX",
        }
    }

    /// The word before the colon in a URL.
    pub fn name(self) -> &'static str {
        self.url().split(':').next().unwrap_or_default()
    }

    /// Who holds the keys if a URL does not say.
    pub const fn default_keys(self) -> Scheme {
        match self {
            Transport::Multicast | Transport::OrderedMulticast | Transport::Memory | Transport::OrderedMemory => {
                Scheme::Contributory
            }
            Transport::Quorum => Scheme::Threshold,
            Transport::Relay => Scheme::Mls,
        }
    }

    /// What it gives to this scheme.
    pub const fn gives(self, keys: Scheme) -> delivery::Properties {
        match self {
            Transport::Multicast => Multicast::PROPERTIES,
            Transport::OrderedMulticast => Sequencer::PROPERTIES,
            Transport::Memory => delivery::Properties::BEST_EFFORT,
            Transport::OrderedMemory => Ordered::PROPERTIES,
            #[cfg(feature = "brokers")]
            Transport::Quorum => client::Transport::properties_of(matches!(keys, Scheme::Contributory | Scheme::Mls)),
            // Nothing runs over it here.
            #[cfg(not(feature = "brokers"))]
            Transport::Quorum => {
                let _ = keys;
                let cut = delivery::Cut::Position;
                let ordered = delivery::Channel { agreement: Agreement::Byzantine, acknowledged: true, cut };
                delivery::Properties { ordered: Some(ordered), fetches: SHARES, ..delivery::Properties::BEST_EFFORT }
            }
            #[cfg(feature = "relay")]
            Transport::Relay if matches!(keys, Scheme::Mls) => delivery::relay::Relay::PROPERTIES,
            #[cfg(feature = "relay")]
            Transport::Relay => delivery::relay::Relay::WITHOUT_DIRECTORY,
            // Nothing runs over it here.
            #[cfg(not(feature = "relay"))]
            Transport::Relay => {
                let cut = delivery::Cut::Position;
                let ordered = delivery::Channel { agreement: Agreement::Forkable, acknowledged: true, cut };
                let ordered = if matches!(keys, Scheme::Mls) { Some(ordered) } else { None };
                delivery::Properties { fifo: ordered, ordered, ..delivery::Properties::BEST_EFFORT }
            }
        }
    }

    /// The feature of this crate that it needs and that this program was built without.
    pub(crate) const fn lacks_feature(self) -> Option<&'static str> {
        match self {
            Transport::Multicast | Transport::OrderedMulticast if !cfg!(feature = "lan") => Some("lan"),
            Transport::Quorum if !cfg!(feature = "brokers") => Some("brokers"),
            Transport::Relay if !cfg!(feature = "relay") => Some("relay"),
            Transport::Multicast
            | Transport::OrderedMulticast
            | Transport::Memory
            | Transport::OrderedMemory
            | Transport::Quorum
            | Transport::Relay => None,
        }
    }

    /// Where to get one that does not run yet.
    const fn made_by(self) -> Option<&'static str> {
        match self {
            Transport::Multicast | Transport::OrderedMulticast | Transport::Memory | Transport::OrderedMemory => None,
            Transport::Quorum => Some("brokers of a cluster file"),
            Transport::Relay => Some("a relay"),
        }
    }
}

impl Scheme {
    /// All of them.
    pub const ALL: [Scheme; 5] = [Scheme::Plain, Scheme::Contributory, Scheme::Center, Scheme::Threshold, Scheme::Mls];

    /// As `keys=` names it.
    pub const fn name(self) -> &'static str {
        match self {
            Scheme::Plain => "plain",
            Scheme::Contributory => "contributory",
            Scheme::Center => "center",
            Scheme::Threshold => "threshold",
            Scheme::Mls => "mls",
        }
    }

    /// What it needs of this transport.
    pub const fn needs(self, transport: Transport) -> keys::Properties {
        match self {
            // Who orders messages together has views, and frames of the group's own.
            Scheme::Plain if matches!(transport, Transport::OrderedMulticast) => keys::plain::GROUP_PROPERTIES,
            Scheme::Plain => keys::Properties::PLAIN,
            Scheme::Contributory => keys::contributory::PROPERTIES,
            Scheme::Center => keys::center::PROPERTIES,
            #[cfg(feature = "brokers")]
            Scheme::Threshold => keys::threshold::PROPERTIES,
            #[cfg(not(feature = "brokers"))]
            Scheme::Threshold => keys::Properties {
                data: Need(Guarantee::Ordered, Agreement::Byzantine),
                fetches: SHARES,
                ..keys::Properties::ANY
            },
            Scheme::Mls => COMMITS,
        }
    }

    /// The feature of this crate that it needs and that this program was built without.
    pub(crate) const fn lacks_feature(self) -> Option<&'static str> {
        match self {
            Scheme::Mls if !cfg!(feature = "mls") => Some("mls"),
            Scheme::Plain | Scheme::Contributory | Scheme::Center | Scheme::Threshold | Scheme::Mls => None,
        }
    }

    /// The transports that it runs over.
    fn transports(self) -> impl Iterator<Item = Transport> {
        Transport::ALL.into_iter().filter(move |it| Pair { transport: *it, keys: self }.is_allowed())
    }
}

impl Pair {
    /// All of them, the refused ones too.
    pub fn all() -> impl Iterator<Item = Pair> {
        let of = |transport| Scheme::ALL.into_iter().map(move |keys| Pair { transport, keys });
        Transport::ALL.into_iter().flat_map(of)
    }

    /// Whether the transport gives what the scheme needs.
    pub fn is_allowed(self) -> bool {
        self.lack().is_none()
    }

    fn lack(self) -> Option<Lack> {
        lack(&self.keys.needs(self.transport), &self.transport.gives(self.keys))
    }

    /// The same for a URL that asks for it, with what lacks and what would fit.
    ///
    /// # Errors
    /// [`Code::BadPair`].
    pub fn check(self, url: &str) -> Result<()> {
        let Some(lack) = self.lack() else { return Ok(()) };
        let (keys, transport) = (self.keys.name(), self.transport.name());
        let fitting = Scheme::ALL.into_iter().filter(|keys| Pair { keys: *keys, ..self }.is_allowed());
        let fitting: Vec<String> = fitting.map(|it| format!("keys={}", it.name())).collect();
        let places: Vec<String> = self
            .keys
            .transports()
            .map(|it| match it.made_by() {
                Some(how) => format!("{} ({how})", it.url()),
                None => it.url().to_owned(),
            })
            .collect();
        let with = if self.transport == Transport::OrderedMulticast { " with order=total" } else { "" };
        let what = format!("{url}: keys={keys} {lack}, and {transport}:{with} does not give that");
        let hint = format!("keys={keys} runs over {}; over {transport}: {}", places.join(", "), fitting.join(" or "));
        Err(Error::new(Code::BadPair, what).with_hint(hint))
    }

    /// What README says of it.
    fn remark(self) -> String {
        if let Some(lack) = self.lack() {
            return format!("no: it {lack}");
        }
        let is_default = self.transport.default_keys() == self.keys;
        let what = match (self.keys, self.transport) {
            (Scheme::Plain, Transport::Multicast) => "in clear, LCM's own wire format (LC02/LC03)",
            (Scheme::Plain, Transport::OrderedMulticast) => "in clear, the group's own format",
            (Scheme::Plain, Transport::Memory | Transport::OrderedMemory | Transport::Relay) => "in clear",
            (Scheme::Plain, Transport::Quorum) => "signed, in clear to the brokers",
            (Scheme::Contributory, Transport::Quorum) => "sealed; ordered by brokers who read nothing",
            (Scheme::Mls, Transport::Quorum) => "sealed; groups of RFC 9420, ordered by brokers who read nothing",
            (Scheme::Contributory, _) => "sealed",
            (Scheme::Center, _) => "sealed; keys from a key distribution centre (`kdc=`)",
            (Scheme::Threshold, _) => "sealed; brokers release each message to whom its policy allows",
            (Scheme::Mls, Transport::Relay) => "sealed; groups of RFC 9420, whose log a directory keeps",
            (Scheme::Mls, _) => "sealed; groups of RFC 9420",
        };
        format!("{what}{}", if is_default { "; the default" } else { "" })
    }
}

/// What a transport does not give and a scheme needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lack {
    Channel(Need, Option<Agreement>),
    Directory,
    Shares,
    /// The format of LCM's datagrams.
    LcmFormat,
    /// A transport that needs no views that members end together.
    NoFlush,
    /// The way to a key distribution centre.
    Outside,
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Lack::Channel(Need(guarantee, agreement), given) => {
                write!(f, "needs {} messages with {} agreement", in_words(*guarantee), agreement_in_words(*agreement))?;
                given.map_or(Ok(()), |given| write!(f, " (not {})", agreement_in_words(given)))
            }
            Lack::Directory => f.write_str("needs a directory"),
            Lack::Shares => f.write_str("needs brokers with shares of its key"),
            Lack::LcmFormat => f.write_str("needs LCM's own wire format"),
            Lack::Outside => f.write_str("needs the way to a key distribution centre"),
            Lack::NoFlush => f.write_str("needs a transport for members that do not end views together"),
        }
    }
}

fn lack(keys: &keys::Properties, delivery: &delivery::Properties) -> Option<Lack> {
    for need in keys.needs() {
        let given = delivery.gives(need.0).map(|channel| channel.agreement);
        if given.is_none_or(|given| given < need.1) {
            return Some(Lack::Channel(need, given));
        }
    }
    if keys.seals_nothing && delivery.needs_keys {
        return Some(Lack::LcmFormat);
    }
    if delivery.needs_flush && !keys.flushes {
        return Some(Lack::NoFlush);
    }
    if keys.asks_outside && !delivery.reaches_outside {
        return Some(Lack::Outside);
    }
    match (delivery.fetches.covers(keys.fetches), keys.fetches.directory && !delivery.fetches.directory) {
        (true, _) => None,
        (false, true) => Some(Lack::Directory),
        (false, false) => Some(Lack::Shares),
    }
}

/// Whether a transport gives what a scheme needs, for any two of them.
///
/// # Errors
/// [`Code::BadPair`] with the first need that is not met, what the transport has, and what would fit.
pub fn check(keys: &keys::Properties, delivery: &delivery::Properties) -> Result<()> {
    let Some(lack) = lack(keys, delivery) else { return Ok(()) };
    let everywhere = Scheme::ALL.into_iter().filter(|it| it.transports().count() == Transport::ALL.len());
    let everywhere: Vec<String> = everywhere.map(|it| format!("keys={}", it.name())).collect();
    let what = format!("this key scheme {lack}, and this transport does not give that");
    Err(Error::new(Code::BadPair, what).with_hint(format!("{} run over every transport", everywhere.join(" and "))))
}

/// What brokers alone can be asked for.
#[cfg(not(feature = "brokers"))]
const SHARES: keys::Fetches = keys::Fetches { shares: true, directory: false };

#[cfg(feature = "mls")]
const COMMITS: keys::Properties = keys::mls::PROPERTIES;
/// Commits in an order.
#[cfg(not(feature = "mls"))]
const COMMITS: keys::Properties =
    keys::Properties { messages: &[Need(Guarantee::Ordered, Agreement::Forkable)], ..keys::Properties::ANY };

/// The table as README shows it.
pub fn markdown() -> String {
    let mut lines = vec!["| URL | guarantees (agreement) |".to_owned(), "|---|---|".to_owned()];
    for keys in Scheme::ALL {
        lines[0] += &format!(" `keys={}` |", keys.name());
        lines[1] += "---|";
    }
    for transport in Transport::ALL {
        let given = guarantees(&transport.gives(transport.default_keys()));
        let remarks = Scheme::ALL.map(|keys| format!(" {} |", Pair { transport, keys }.remark()));
        lines.push(format!("| `{}` | {given} |{}", transport.url(), remarks.concat()));
    }
    let coded = |names: &[&str], before: &str, after: &str| {
        names.iter().map(|it| format!("`{before}{it}{after}`")).collect::<Vec<_>>().join(", ")
    };
    let schemes = coded(&LATER_SCHEMES, "keys=", "");
    let transports = coded(&LATER_TRANSPORTS, "", ":");
    format!("{}\n\nNot built yet: {schemes}; {transports}.\n", lines.join("\n"))
}

/// The guarantees of a transport, those of one agreement together.
fn guarantees(given: &delivery::Properties) -> String {
    let all = [Guarantee::BestEffort, Guarantee::Fifo, Guarantee::Ordered, Guarantee::Safe];
    let mut groups: Vec<(Agreement, Vec<&str>)> = Vec::new();
    for (guarantee, channel) in all.into_iter().filter_map(|it| Some((it, given.gives(it)?))) {
        match groups.last_mut().filter(|(agreement, _)| *agreement == channel.agreement) {
            Some((_, names)) => names.push(in_words(guarantee)),
            None => groups.push((channel.agreement, vec![in_words(guarantee)])),
        }
    }
    let said = groups.into_iter().map(|(agreement, names)| match agreement {
        Agreement::None => names.join(", "),
        _ => format!("{} ({})", names.join(", "), agreement_in_words(agreement)),
    });
    said.collect::<Vec<_>>().join("; ")
}

fn in_words(guarantee: Guarantee) -> &'static str {
    match guarantee {
        Guarantee::BestEffort => "best effort",
        Guarantee::Fifo => "fifo",
        Guarantee::Ordered => "ordered",
        Guarantee::Safe => "safe",
    }
}

fn agreement_in_words(agreement: Agreement) -> &'static str {
    match agreement {
        Agreement::None => "no",
        Agreement::Forkable => "forkable",
        Agreement::Primary => "primary",
        Agreement::Byzantine => "Byzantine",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scheme_is_refused_where_nothing_orders_or_nobody_can_be_asked() {
        const COMMITS: &[Need] = &[Need(Guarantee::Ordered, Agreement::Forkable)];
        let needs = keys::Properties { messages: COMMITS, ..keys::Properties::ANY };
        let plain = delivery::Properties::BEST_EFFORT;
        let error = check(&needs, &plain).unwrap_err();
        assert_eq!(error.code(), Code::BadPair);
        assert!(error.message().contains("needs ordered messages with forkable agreement"), "{error}");
        let hint = error.hint().expect("what would fit");
        assert!(hint.contains("keys=contributory") && !hint.contains("threshold"), "{hint}");
        let cut = delivery::Cut::Position;
        let channel = delivery::Channel { agreement: Agreement::Forkable, acknowledged: true, cut };
        let ordered = delivery::Properties { ordered: Some(channel), ..plain };
        assert_eq!(check(&needs, &ordered), Ok(()));
        let asks = keys::Properties { fetches: keys::Fetches { directory: true, shares: false }, ..needs };
        let error = check(&asks, &ordered).unwrap_err();
        assert!(error.message().contains("a directory"), "{error}");
    }

    #[test]
    fn every_transport_has_its_default_and_every_scheme_a_transport() {
        for transport in Transport::ALL {
            assert!(Pair { transport, keys: transport.default_keys() }.is_allowed(), "{transport:?}");
        }
        for keys in Scheme::ALL {
            assert!(keys.transports().count() > 0, "{keys:?}");
        }
        let refused = |keys| {
            Transport::ALL.into_iter().filter(move |transport| !Pair { transport: *transport, keys }.is_allowed())
        };
        let on_lan = [Transport::Multicast, Transport::OrderedMulticast, Transport::Memory, Transport::OrderedMemory];
        let not_brokers: Vec<Transport> = on_lan.into_iter().chain([Transport::Relay]).collect();
        assert_eq!(refused(Scheme::Threshold).collect::<Vec<_>>(), not_brokers, "threshold alone needs brokers");
        let no_way_outside = [Transport::Memory, Transport::OrderedMemory, Transport::Quorum, Transport::Relay];
        assert_eq!(refused(Scheme::Center).collect::<Vec<_>>(), no_way_outside, "a centre is asked outside");
        assert_eq!(refused(Scheme::Plain).count(), 0);
        assert_eq!(refused(Scheme::Contributory).count(), 0);
    }

    #[test]
    fn rule_d7_commits_need_an_order_that_outlives_its_views() {
        for transport in Transport::ALL {
            let has_none = [Transport::Multicast, Transport::OrderedMulticast, Transport::Memory].contains(&transport);
            let pair = Pair { transport, keys: Scheme::Mls };
            assert_eq!(pair.is_allowed(), !has_none, "{transport:?}");
            assert_eq!(pair.check("url").map_err(|it| it.code()), if has_none { Err(Code::BadPair) } else { Ok(()) });
        }
    }
}
