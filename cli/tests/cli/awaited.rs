//! A session's brokers under an async runtime, and the example that uses them.

use std::process::Command;
use std::time::Duration;

use futures::StreamExt as _;
use sealcast::brokers::{Brokers, Header, Item, Outgoing, Purpose, Read};
use sealcast::{Home as Folders, Result};

use crate::common::{Home, Running};

/// Four brokers, ann at the desk fx and bob at another; and the URL.
fn market(name: &str) -> (Running, Home, String) {
    let (home, brokers) = crate::brokers::market(name);
    let url = format!("quorum:{}?wait=60s", home.path().join("home/state/clusters/market/cluster.toml").display());
    (brokers, home, url)
}

async fn open(url: &str, home: Folders, name: &str, purpose: Purpose) -> Result<Brokers> {
    let brokers = sealcast::open(url).home(home).identity(name).as_client(purpose).await?.into_brokers()?;
    brokers.registered().await?;
    Ok(brokers)
}

/// Publishes, takes the receipt, and reads three ways.
async fn use_of_brokers(url: String, home: Folders) -> Result<String> {
    let ann = open(&url, home.clone(), "ann", Purpose::Call).await?;
    let reader = open(&url, home, "ann", Purpose::Subscribe).await?;
    let mut prices = reader.subscribe("market/#".parse().expect("an interest")).await?;
    let outgoing =
        Outgoing::new("market/eurusd", "1.0842").readable_by("exchange:desk = fx".parse().expect("it reads"));
    let published = ann.publish(&outgoing).await?;
    let receipt = ann.receipt(published.height, published.number).await?;
    receipt.verify(&ann.cluster().genesis).expect("2f + 1 brokers signed it");
    let header = Header { topic: "market/eurusd".to_owned(), value: None };
    let found = ann.read(&Read::TopicPosition { header, ps: published.places[0] }, true).await?;
    let read = found.iter().find_map(|it| it.publication.as_ref()).and_then(|(_, it)| it.bodies()).map(<[_]>::concat);
    assert_eq!(read.as_deref(), Some(&b"1.0842"[..]));
    let subscribed = match prices.next().await {
        Some(Ok(Item::Publication { content, .. })) => content.bodies().map(<[_]>::concat).unwrap_or_default(),
        other => panic!("{other:?}"),
    };
    Ok(String::from_utf8_lossy(&subscribed).into_owned())
}

#[test]
fn reads_and_receipts_are_awaited_on_threads_of_tokio() {
    let (_brokers, home, url) = market("awaited");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let folders = Folders::at(&home.path().join("home"));
    let came = runtime.block_on(async {
        let using = tokio::spawn(use_of_brokers(url, folders));
        // While it waits the runtime's threads are free.
        let idle = tokio::time::timeout(Duration::from_secs(60), using);
        idle.await.expect("it ends").expect("it does not panic")
    });
    assert_eq!(came.unwrap_or_else(|e| panic!("{e} ({:?})", e.remedy())), "1.0842");
}

#[test]
fn the_market_of_the_examples_lets_one_desk_read() {
    let (home, _brokers) = crate::brokers::market("market-example");
    let built = std::path::PathBuf::from(env!("CARGO_BIN_EXE_sealcast")).with_file_name("examples").join("market");
    // Testing the whole workspace has built it; testing this package alone has not.
    if !built.is_file() {
        let arguments = ["build", "-q", "-p", "sealcast", "--example", "market", "--features", "brokers"];
        let built = Command::new(env!("CARGO")).args(arguments).status();
        assert!(built.is_ok_and(|it| it.success()), "the example is built");
    }
    let of_home = home.command(&[]);
    let mut market = Command::new(built);
    market.args(["market", "ann", "bob"]).env_clear();
    market.envs(of_home.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let ran = market.output().expect("it starts");
    let printed = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{printed}{}", String::from_utf8_lossy(&ran.stderr));
    for line in ["receipt: good", "ann reads 1.0842", "bob reads nothing"] {
        assert!(printed.lines().any(|it| it == line), "'{line}' in {printed}");
    }
}
