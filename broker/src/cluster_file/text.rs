//! A cluster file as text: TOML, for people and programs.
//!
//! ```toml
//! version = 1
//! name = "market"
//! id = "5f0c…"                                 # of the genesis below; who changes that makes another cluster
//! threshold = 3
//! suite = "ristretto255"
//!
//! [administrators]
//! quorum = 2
//! keys = ["3b6a…", "9d61…", "f2c0…"]
//!
//! [issuers.exchange]
//! certificate = "-----BEGIN CERTIFICATE----- …"  # or: key = "01…", as it signs claims
//!
//! [[broker]]                                   # number 0, and so on: ascending by key
//! key = "0a4c…"
//! gateway = "127.0.0.1:7400"
//! order = "127.0.0.1:7410"
//!
//! [key]                                        # once there is one
//! epoch = 0
//! key = "01…"
//! signatures = { 0 = "…", 1 = "…", 3 = "…" }
//!
//! [authority]
//! certificate = "-----BEGIN CERTIFICATE----- …"
//! signature = "…"
//! ```
//! Bytes are in hex.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write};
use std::ops::Range;

use sealcast_crypto::ed25519::Key;
use sealcast_crypto::identity::{TrustAnchor, pem};
use sealcast_crypto::signature::{PublicKey, SIGNATURE_LEN, Signature};
use sealcast_wire::limits;
use serde::Deserialize;
use toml::Spanned;

use super::{Addresses, ClusterFile, Endorsement, Suite, VouchedKey};
use crate::expression::Location;
use crate::genesis::{Genesis, Issuer};

/// A text that is no cluster file, or one that does not hold together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// Where, if it is about one place.
    pub location: Option<Location>,
    /// What is wrong there.
    pub what: String,
    /// What to do.
    pub hint: &'static str,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    version: Spanned<u32>,
    name: Spanned<String>,
    id: Spanned<String>,
    threshold: u16,
    suite: Spanned<String>,
    administrators: Administrators,
    #[serde(default)]
    issuers: BTreeMap<String, Spanned<Issued>>,
    #[serde(default)]
    broker: Vec<Broker>,
    key: Option<Spanned<Vouched>>,
    authority: Option<Authority>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Administrators {
    quorum: Spanned<usize>,
    keys: Vec<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Issued {
    certificate: Option<Spanned<String>>,
    key: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Broker {
    key: Spanned<String>,
    gateway: Spanned<String>,
    order: Spanned<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Vouched {
    epoch: u32,
    key: Spanned<String>,
    signatures: BTreeMap<String, Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Authority {
    certificate: Spanned<String>,
    signature: Spanned<String>,
}

impl ClusterFile {
    /// Reads a file; what is returned holds together ([`ClusterFile::check`]).
    ///
    /// # Errors
    /// [`ParseError`]: the first thing that is wrong.
    pub fn from_text(text: &str) -> Result<ClusterFile, ParseError> {
        let at = |span: Range<usize>, what: String| ParseError::at(text, span.start, what);
        if text.len() > limits::CLUSTER_FILE_BYTES_MAX {
            let what = format!("the file has more than {} bytes", limits::CLUSTER_FILE_BYTES_MAX);
            return Err(ParseError { location: None, what, hint: ANOTHER });
        }
        let file: File = toml::from_str(text).map_err(|e| {
            let what = e.message().split_whitespace().collect::<Vec<_>>().join(" ");
            at(e.span().unwrap_or_default(), what)
        })?;
        if *file.version.get_ref() != VERSION {
            let what =
                format!("the file has version {}, and this program reads version {VERSION}", file.version.get_ref());
            return Err(ParseError { hint: "use the program that made the file", ..at(file.version.span(), what) });
        }
        let name = file.name.get_ref();
        if name.is_empty() || name.len() > limits::GROUP_BYTES_MAX || name.contains(char::is_control) {
            let what = format!("a name has 1 to {} bytes and no control character", limits::GROUP_BYTES_MAX);
            return Err(at(file.name.span(), what));
        }
        let suite = Suite::of_name(file.suite.get_ref())
            .ok_or_else(|| at(file.suite.span(), format!("there is no suite '{}'", file.suite.get_ref())))?;

        let mut brokers = BTreeSet::new();
        let mut addresses = Vec::new();
        for broker in &file.broker {
            let key: [u8; 32] = bytes(text, &broker.key)?;
            if Key::new(&key).is_err() {
                return Err(at(broker.key.span(), "this is no Ed25519 key".into()));
            }
            if brokers.last().is_some_and(|last| *last >= key) {
                let what = "brokers stand ascending by their keys, which give them their numbers";
                return Err(at(broker.key.span(), what.into()));
            }
            brokers.insert(key);
            addresses
                .push(Addresses { gateway: address(text, &broker.gateway)?, order: address(text, &broker.order)? });
        }
        let mut administrators = Vec::new();
        for key in &file.administrators.keys {
            let bytes: [u8; 32] = bytes(text, key)?;
            administrators.push(Key::new(&bytes).map_err(|_| at(key.span(), "this is no Ed25519 key".into()))?);
        }
        administrators.sort_by_key(|key| *key.as_bytes());
        administrators.dedup();
        let quorum = &file.administrators.quorum;
        if !(1..=administrators.len()).contains(quorum.get_ref()) || administrators.len() > limits::ADMINISTRATORS_MAX {
            let (m, k) = (quorum.get_ref(), administrators.len());
            return Err(at(quorum.span(), format!("{m} of {k} administrators cannot sign")));
        }
        let mut issuers = BTreeMap::new();
        for (name, issued) in &file.issuers {
            issuers.insert(name.clone(), issuer(text, name, issued)?);
        }
        let genesis = Genesis { name: name.clone(), brokers, quorum: *quorum.get_ref(), administrators, issuers };
        // Also what Genesis alone knows of names and numbers holds then.
        let sound = genesis.issuers.len() <= limits::ISSUERS_MAX && Genesis::from_bytes(&genesis.to_bytes()).is_ok();
        if !sound {
            return Err(at(0..0, "brokers, administrators and issuers are no genesis".into()));
        }
        if hex::encode(genesis.cluster().0) != *file.id.get_ref() {
            let what = "the id is not that of the brokers, administrators and issuers below: they were changed";
            return Err(ParseError { hint: ANOTHER, ..at(file.id.span(), what.into()) });
        }

        let endorsement = file.authority.as_ref().map(|it| endorsement(text, it)).transpose()?;
        let mut read = ClusterFile { genesis, addresses, threshold: file.threshold, suite, key: None, endorsement };
        read.check().map_err(|e| ParseError { location: None, what: e.to_string(), hint: ANOTHER })?;
        if let Some(it) = &file.key {
            let wrong = |e: super::Mismatch| ParseError { hint: ANOTHER, ..at(it.span(), e.to_string()) };
            read.set_key(vouched(text, it.get_ref())?).map_err(wrong)?;
        }
        Ok(read)
    }

    /// The text that reads back as this.
    pub fn to_text(&self) -> String {
        let mut text = String::from(HEAD);
        let quoted = |s: &str| toml::Value::from(s).to_string();
        let genesis = &self.genesis;
        let mut line = |line: String| writeln!(text, "{line}").expect("text grows");
        line(format!("version = {VERSION}\nname = {}", quoted(&genesis.name)));
        line(format!("id = \"{}\"", hex::encode(self.cluster().0)));
        line(format!("threshold = {}\nsuite = \"{}\"", self.threshold, self.suite.name()));
        line(format!("\n[administrators]\nquorum = {}\nkeys = [", genesis.quorum));
        genesis.administrators.iter().for_each(|key| line(format!("  \"{}\",", hex::encode(key.as_bytes()))));
        line("]".into());
        for (name, issuer) in &genesis.issuers {
            line(format!("\n[issuers.{}]", quoted(name)));
            match issuer {
                Issuer::Authority { der, .. } => line(certificate(der)),
                Issuer::Key(key) => line(format!("key = \"{}\"", hex::encode(key.to_bytes()))),
            }
        }
        for (number, (key, at)) in genesis.brokers.iter().zip(&self.addresses).enumerate() {
            line(format!("\n[[broker]] # {number}\nkey = \"{}\"", hex::encode(key)));
            line(format!("gateway = {}\norder = {}", quoted(&at.gateway), quoted(&at.order)));
        }
        if let Some(it) = &self.key {
            line(format!("\n[key]\nepoch = {}\nkey = \"{}\"\n\n[key.signatures]", it.epoch, hex::encode(&it.key)));
            it.signatures
                .iter()
                .for_each(|(broker, signature)| line(format!("{broker} = \"{}\"", hex::encode(signature))));
        }
        if let Some(it) = &self.endorsement {
            line(format!("\n[authority]\n{}", certificate(it.authority.certificate().der())));
            line(format!("signature = \"{}\"", hex::encode(it.signature)));
        }
        text
    }
}

impl ParseError {
    fn at(text: &str, at: usize, what: String) -> ParseError {
        let before = text.get(..at.min(text.len())).unwrap_or("");
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
        ParseError { location: Some(Location { line, column }), what, hint: SHAPE }
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.location.iter().try_for_each(|location| write!(f, "{location}: "))?;
        f.write_str(&self.what)
    }
}

impl std::error::Error for ParseError {}

fn issuer(text: &str, name: &str, issued: &Spanned<Issued>) -> Result<Issuer, ParseError> {
    let at = |span: Range<usize>, what: String| ParseError::at(text, span.start, what);
    match (&issued.get_ref().certificate, &issued.get_ref().key) {
        (Some(it), None) => {
            let der = pem::read(pem::CERTIFICATE, it.get_ref());
            let der = der.ok_or_else(|| at(it.span(), format!("issuer {name}: this is no certificate in PEM")))?;
            Issuer::authority(&der)
                .map_err(|_| at(it.span(), format!("issuer {name}: this is no authority's certificate")))
        }
        (None, Some(it)) => {
            let key = hex::decode(it.get_ref()).ok().and_then(|bytes| PublicKey::from_bytes(&bytes).ok());
            let key = key.ok_or_else(|| at(it.span(), format!("issuer {name}: this is no public key in hex")))?;
            Ok(Issuer::Key(key))
        }
        _ => Err(at(issued.span(), format!("issuer {name} needs either a certificate or a key"))),
    }
}

fn vouched(text: &str, it: &Vouched) -> Result<VouchedKey, ParseError> {
    let key = hex::decode(it.key.get_ref()).ok().filter(|key| key.len() <= limits::THRESHOLD_KEY_BYTES_MAX);
    let key = key.ok_or_else(|| ParseError::at(text, it.key.span().start, "this is no threshold key in hex".into()))?;
    let mut signatures = BTreeMap::new();
    for (broker, signature) in &it.signatures {
        let number = broker
            .parse()
            .map_err(|_| ParseError::at(text, signature.span().start, format!("'{broker}' is no broker's number")))?;
        signatures.insert(number, bytes(text, signature)?);
    }
    Ok(VouchedKey { epoch: it.epoch, key, signatures })
}

fn endorsement(text: &str, it: &Authority) -> Result<Endorsement, ParseError> {
    let anchor = pem::read(pem::CERTIFICATE, it.certificate.get_ref()).and_then(|der| TrustAnchor::new(&der).ok());
    let wrong =
        || ParseError::at(text, it.certificate.span().start, "this is no authority's certificate in PEM".into());
    let signature: Signature = bytes::<SIGNATURE_LEN>(text, &it.signature)?;
    Ok(Endorsement { authority: Box::new(anchor.ok_or_else(wrong)?), signature })
}

/// `host:port`, as it is written.
fn address(text: &str, it: &Spanned<String>) -> Result<String, ParseError> {
    let value = it.get_ref();
    let good = value.len() <= limits::ADDRESS_BYTES_MAX
        && value.rsplit_once(':').is_some_and(|(host, port)| {
            let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
            let name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-');
            let host = !bare.is_empty() && (bare.chars().all(name) || bare.parse::<std::net::Ipv6Addr>().is_ok());
            host && port.parse::<u16>().is_ok_and(|port| port != 0)
        });
    if good {
        Ok(value.clone())
    } else {
        Err(ParseError::at(text, it.span().start, format!("'{value}' is no address, as 127.0.0.1:7400")))
    }
}

fn bytes<const N: usize>(text: &str, it: &Spanned<String>) -> Result<[u8; N], ParseError> {
    let read = hex::decode(it.get_ref()).ok().and_then(|bytes| <[u8; N]>::try_from(bytes).ok());
    read.ok_or_else(|| ParseError::at(text, it.span().start, format!("these are not {N} bytes in hex")))
}

fn certificate(der: &[u8]) -> String {
    format!("certificate = \"\"\"\n{}\"\"\"", pem::write(pem::CERTIFICATE, der))
}

const VERSION: u32 = 1;
const HEAD: &str = "\
# The brokers of a cluster, for its clients and for themselves. Nothing here is secret, but get it from somebody
# whom you trust: whoever can change it can make you speak to other brokers.
";
const SHAPE: &str = "docs/WIRE.md, 15.2, shows a cluster file";
const ANOTHER: &str = "get the file again from the brokers' operator";
