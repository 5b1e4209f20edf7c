//! The table of pairs, held against README, URLs, and what transports and schemes say of themselves.

use std::fs;
use std::path::Path;

use sealcast::Code;
use sealcast::url::pairs::{LATER_SCHEMES, LATER_TRANSPORTS, Pair, Transport, markdown};
use sealcast::url::{Scheme, Url};

/// A URL of a transport, with keys.
fn url(transport: Transport, keys: Option<&str>) -> String {
    let base = match transport {
        Transport::Multicast => "udpm://239.255.76.67:7667?ttl=0",
        Transport::OrderedMulticast => "udpm://239.255.76.67:7667?ttl=0&order=total",
        Transport::Memory => "mem:place?wait=1s",
        Transport::OrderedMemory => "mem:place?order=total",
        Transport::Quorum => "quorum:cluster.toml?wait=1s",
        Transport::Relay => "mqtt://127.0.0.1:1883/place?wait=1s",
    };
    match (keys, transport) {
        (Some("center"), Transport::Multicast) => format!("{base}&keys=center&order=best-effort&kdc=127.0.0.1:7680"),
        (Some("center"), _) => format!("{base}&keys=center&kdc=127.0.0.1:7680"),
        (None | Some("mls"), Transport::Relay) => {
            let relay = "scrl132yw8ht5p8cetl2jmvknewjawt9xwzdlrk2pyxlnwjyqrdq0dawqvf0c05";
            let keys = keys.map_or_else(String::new, |keys| format!("&keys={keys}"));
            format!("{base}{keys}&directory=http://127.0.0.1:7690/v1&relay={relay}")
        }
        // By itself it is ordered.
        (Some("mls"), Transport::Memory) => format!("{base}&order=best-effort&keys=mls"),
        (Some(keys), _) => format!("{base}&keys={keys}"),
        (None, _) => base.to_owned(),
    }
}

#[test]
fn urls_allow_and_refuse_what_the_table_does() {
    for transport in Transport::ALL {
        let usual = Url::parse(&url(transport, None)).expect("what is usual is allowed");
        assert_eq!((usual.address.transport(), usual.keys), (transport, transport.default_keys()));
        assert!(transport.url().starts_with(&format!("{}:", transport.name())));
    }
    for pair in Pair::all() {
        let text = url(pair.transport, Some(pair.keys.name()));
        match (Url::parse(&text), pair.is_allowed()) {
            (Ok(url), true) => assert_eq!((url.address.transport(), url.keys), (pair.transport, pair.keys)),
            (Err(error), false) => {
                assert_eq!(error.code(), Code::BadPair, "{text}: {error}");
                assert!(error.message().starts_with(&format!("{text}: keys={} needs", pair.keys.name())), "{error}");
                // Each URL and scheme that the hint names is one that would do.
                let hint = error.hint().unwrap_or_else(|| panic!("{text}: no hint"));
                let others = Scheme::ALL.into_iter().filter(|keys| *keys != pair.keys);
                let fit = others.filter(|keys| Pair { keys: *keys, ..pair }.is_allowed());
                fit.for_each(|keys| assert!(hint.contains(&format!("keys={}", keys.name())), "{text}: {hint}"));
                for transport in Transport::ALL {
                    let named = hint.split(';').next().and_then(|it| it.split_once("runs over ")).map_or("", |it| it.1);
                    let is_named = named.split(", ").any(|it| it.split(" (").next() == Some(transport.url()));
                    assert_eq!(is_named, Pair { transport, ..pair }.is_allowed(), "{text}: {hint}");
                }
            }
            (parsed, allowed) => panic!("{text}: {parsed:?}, and the table says {allowed}"),
        }
    }
}

#[test]
fn what_is_not_built_is_named_as_such() {
    let schemes = LATER_SCHEMES.iter().map(|keys| format!("mem:x?keys={keys}"));
    let transports = LATER_TRANSPORTS.iter().map(|name| format!("{name}://relay/prefix"));
    for text in schemes.chain(transports) {
        let error = Url::parse(&text).expect_err("it is not built");
        assert!(error.message().contains("not built in this version") && error.hint().is_some(), "{error}");
    }
    for (text, known) in [
        ("mem:x?keys=plian", "plain, contributory, center, threshold or mls"),
        ("udp:x", "udpm:, mem:, quorum: or mqtt:"),
    ] {
        let error = Url::parse(text).expect_err("nobody knows it");
        assert!(format!("{} {:?}", error.message(), error.hint()).contains(known), "{error} ({:?})", error.hint());
    }
}

/// After a wanted change: `INSTA_UPDATE=always cargo test --workspace --test sealcast pairs::` writes README's table anew.
#[test]
fn readme_shows_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md");
    let readme = fs::read_to_string(&path).expect("README.md is readable");
    let (before, rest) = readme.split_once(BEGIN).expect("README says where the table begins");
    let (shown, after) = rest.split_once(END).expect("README says where the table ends");
    let table = format!("\n{}\n", markdown());
    if shown == table {
        return;
    }
    if std::env::var("INSTA_UPDATE").is_ok_and(|it| it == "always") {
        fs::write(&path, format!("{before}{BEGIN}{table}{END}{after}")).expect("README.md can be written");
        return;
    }
    panic!(
        "README.md does not show the table of pairs:\n{table}\n\
         to write it anew: INSTA_UPDATE=always cargo test --workspace --test sealcast pairs::"
    );
}

const BEGIN: &str = "<!-- Made from sealcast/src/url/pairs.rs; a test compares. -->\n";
const END: &str = "<!-- End of what is made. -->\n";
