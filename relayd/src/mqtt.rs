//! Where the MQTT broker is, and below which topics announcements go.

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use rustls::ClientConfig;
use sealcast_relay::ids::GroupId;
use zeroize::Zeroizing;

use crate::failure::{Code, Failure};
use crate::limits;

/// A broker, `mqtt[s]://[user@]HOST[:PORT]`. Its password comes from a file or the environment, never from the command line, which
/// other users of the machine see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broker {
    /// Its name or address; one of IPv6 is in brackets.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Whether the channel to it is TLS (`mqtts:`).
    pub has_tls: bool,
    /// As whom the relay logs in.
    pub user: Option<String>,
}

/// Where announcements go.
#[derive(Clone, Debug)]
pub enum Address {
    /// To a broker at an address.
    Tcp {
        /// Which.
        broker: Broker,
        /// The relay's password there.
        password: Option<Zeroizing<String>>,
        /// How it is known, if the channel is TLS.
        tls: Option<Arc<ClientConfig>>,
    },
    /// To one of this machine, by its socket.
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp { broker, .. } => broker.fmt(f),
            Address::Unix(path) => write!(f, "at {}", path.display()),
        }
    }
}

/// A text is no broker.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BrokerError {
    /// It does not begin with `mqtt://` or `mqtts://`.
    #[error("a broker's URL begins with mqtt:// or mqtts://, as in mqtts://broker.example.org")]
    Scheme,
    /// A password in the URL.
    #[error("other users of this machine could read a password in a URL: use --mqtt-password-file or {PASSWORD}")]
    Password,
    /// A part that is not taken, or a host or a port of the wrong form.
    #[error("a broker's URL is mqtt[s]://[user@]HOST[:PORT]; --prefix sets the topic")]
    Form,
}

/// The first levels of all topics of this relay, as `sealcast` or `lab/sealcast`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prefix(String);

impl FromStr for Broker {
    type Err = BrokerError;

    fn from_str(text: &str) -> Result<Broker, BrokerError> {
        let (scheme, rest) = text.split_once("://").ok_or(BrokerError::Scheme)?;
        let has_tls = match scheme {
            "mqtt" => false,
            "mqtts" => true,
            _ => return Err(BrokerError::Scheme),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (user, address) = rest.rsplit_once('@').map_or((None, rest), |(user, address)| (Some(user), address));
        if user.is_some_and(|it| it.contains(':')) {
            return Err(BrokerError::Password);
        }
        // The colons of an address of IPv6 are in brackets.
        let at = address.rfind(':').filter(|at| address.rfind(']').is_none_or(|bracket| bracket < *at));
        let (host, port) = match at {
            Some(at) => (&address[..at], address[at + 1..].parse().map_err(|_| BrokerError::Form)?),
            None => (address, if has_tls { TLS_PORT } else { PORT }),
        };
        let is_name = |c: char| c.is_ascii_alphanumeric() || "-._:[]%".contains(c);
        let is_bracketed = host.starts_with('[') && host.ends_with(']');
        let fits = !host.is_empty() && host.chars().all(is_name) && (is_bracketed || !host.contains([':', '[', ']']));
        if !fits || port == 0 || user.is_some_and(str::is_empty) {
            return Err(BrokerError::Form);
        }
        Ok(Broker { host: host.to_owned(), port, has_tls, user: user.map(str::to_owned) })
    }
}

impl Broker {
    /// Whether others on the network can read the relay's password there.
    pub(crate) fn sends_password_in_clear(&self) -> bool {
        let address = self.host.trim_matches(['[', ']']).parse::<IpAddr>();
        let is_here = self.host == "localhost" || address.is_ok_and(|it| it.is_loopback());
        self.user.is_some() && !self.has_tls && !is_here
    }
}

impl fmt::Display for Broker {
    /// Without the user: members log in as others.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.has_tls { "mqtts" } else { "mqtt" };
        write!(f, "{scheme}://{}:{}", self.host, self.port)
    }
}

impl FromStr for Prefix {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Prefix, &'static str> {
        let is_plain =
            |level: &str| !level.is_empty() && level.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
        let fits = text.len() <= limits::PREFIX_BYTES_MAX && text.split('/').all(is_plain);
        fits.then(|| Prefix(text.to_owned()))
            .ok_or("a prefix has letters, digits, '-', '_' and '.', and '/' between levels")
    }
}

impl Prefix {
    /// The topic of what a group's log took.
    pub fn log_of(&self, group: &GroupId) -> String {
        format!("{}/{}/log", self.0, hex::encode(group.0))
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The password of a file, or of the environment.
///
/// # Errors
/// The file cannot be read.
pub fn password(file: Option<&Path>) -> Result<Option<Zeroizing<String>>, Failure> {
    let Some(path) = file else { return Ok(std::env::var(PASSWORD).ok().map(Zeroizing::new)) };
    let text = std::fs::read_to_string(path).map(Zeroizing::new).map_err(|e| {
        let hint = "--mqtt-password-file takes a file whose first line is the password";
        Failure::new(Code::Missing, format!("{}: {e}", path.display()), hint)
    })?;
    Ok(Some(Zeroizing::new(text.lines().next().unwrap_or_default().to_owned())))
}

const PASSWORD: &str = "SEALCAST_MQTT_PASSWORD";
/// IANA's.
const PORT: u16 = 1883;
const TLS_PORT: u16 = 8883;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brokers_are_read_and_what_is_wrong_is_named() {
        let broker = |host: &str, port, user: Option<&str>| {
            Ok(Broker { host: host.into(), port, has_tls: false, user: user.map(str::to_owned) })
        };
        let read = |text: &str| text.parse::<Broker>();
        assert_eq!(read("mqtt://broker.example.org"), broker("broker.example.org", 1883, None));
        assert_eq!(read("mqtt://relay@127.0.0.1:1884/"), broker("127.0.0.1", 1884, Some("relay")));
        assert_eq!(read("mqtt://[::1]:7"), broker("[::1]", 7, None));
        assert_eq!(read("mqtt://[::1]"), broker("[::1]", 1883, None));
        assert_eq!(read("mqtt://ann:secret@b"), Err(BrokerError::Password));
        let over_tls = |port| Ok(Broker { has_tls: true, ..broker("b", port, Some("relay")).expect("it is one") });
        assert_eq!(read("mqtts://relay@b"), over_tls(8883));
        assert_eq!(read("mqtts://relay@b:443/"), over_tls(443));
        assert_eq!(read("mqtts://b").unwrap().to_string(), "mqtts://b:8883");
        let in_clear = |text| read(text).unwrap().sends_password_in_clear();
        assert!(in_clear("mqtt://relay@b") && in_clear("mqtt://relay@192.0.2.1"));
        for text in
            ["mqtts://relay@b", "mqtt://b", "mqtt://relay@127.0.0.1", "mqtt://relay@[::1]:7", "mqtt://relay@localhost"]
        {
            assert!(!in_clear(text), "{text}");
        }
        assert_eq!(read("http://b"), Err(BrokerError::Scheme));
        assert_eq!(read("b:1883"), Err(BrokerError::Scheme));
        for text in ["mqtt://", "mqtt://b:0", "mqtt://b:x", "mqtt://::1", "mqtt://b/topic", "mqtt://@b", "mqtt://a b"] {
            assert_eq!(read(text), Err(BrokerError::Form), "{text}");
        }
        assert_eq!(read("mqtt://relay@[::1]").unwrap().to_string(), "mqtt://[::1]:1883");
    }

    #[test]
    fn prefixes_are_plain_levels() {
        let prefix: Prefix = "lab-1/sealcast".parse().unwrap();
        assert_eq!(prefix.log_of(&GroupId([0xab; 32])), format!("lab-1/sealcast/{}/log", "ab".repeat(32)));
        for text in ["", "/a", "a/", "a//b", "#", "a/+", "$SYS", "a b", &"a".repeat(65)] {
            assert!(text.parse::<Prefix>().is_err(), "{text}");
        }
    }
}
