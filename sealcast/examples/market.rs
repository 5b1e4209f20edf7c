//! A price that one desk may read: published through brokers, with a receipt that anybody can check.
//!
//! ```console
//! $ cargo run --example market --features brokers -- market ann bob
//! ```
//! `market` is the context that `sealcast brokers up` has made; a URL will do, too. Of the two identities, `ann` is at the desk fx
//! and `bob` is not: docs/quickstart-brokers.md makes them.

use std::error::Error;
use std::time::Duration;

use sealcast::brokers::{Brokers, Header, Item, Outgoing, Purpose, Read};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [cluster, at_desk, elsewhere] = &args[..] else { return Err("market CONTEXT READER OTHER".into()) };
    let open = |name: &str, purpose| -> sealcast::Result<Brokers> {
        let brokers = sealcast::open(cluster).identity(name).as_client(purpose).wait()?.into_brokers()?;
        brokers.registered().wait()?; // the brokers know whose key this is
        Ok(brokers)
    };
    let ann = open(at_desk, Purpose::Call)?;
    // Its subscriptions go on where the last run left them.
    let reader = open(at_desk, Purpose::Subscribe)?;
    let mut prices = reader.subscribe("market/#".parse()?).wait()?;

    let price = Outgoing::new("market/eurusd", "1.0842").readable_by("exchange:desk = fx".parse()?);
    let published = ann.publish(&price).wait()?;
    println!("published: block {}, number {}", published.height, published.places[0]);

    // What brokers sign holds for whoever has the cluster file, without asking anybody.
    let receipt = ann.receipt(published.height, published.number).wait()?;
    receipt.verify(&ann.cluster().genesis)?;
    println!("receipt: good");

    match prices.next_timeout(Duration::from_secs(10))? {
        Some(Item::Publication { content, .. }) => {
            let bodies = content.bodies().map(<[_]>::concat).unwrap_or_default();
            println!("{at_desk} reads {}", String::from_utf8_lossy(&bodies));
        }
        other => println!("{at_desk} got {other:?}"),
    }
    let bob = open(elsewhere, Purpose::Call)?;
    let header = Header { topic: "market/eurusd".to_owned(), value: None };
    let read = Read::TopicPosition { header, ps: published.places[0] };
    let found = bob.read(&read, true).wait()?;
    let is_empty = found.iter().all(|it| it.publication.is_none());
    println!("{elsewhere} reads {}", if is_empty { "nothing" } else { "it" });
    for client in [ann, reader, bob] {
        client.close();
    }
    Ok(())
}
