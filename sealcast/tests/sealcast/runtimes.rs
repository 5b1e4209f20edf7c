//! One program under tokio and smol: all of it awaited, by futures that move between threads.

use std::sync::Arc;

use futures::StreamExt as _;
use sealcast::{Code, Result, ViewEvent};
use sealcast_crypto::identity::Identity;

use crate::common::{Ca, url};

/// Two members over multicast, all of it awaited: what one publishes the other reads.
async fn pair(url: String, members: [Arc<Identity>; 2]) -> Result<Vec<String>> {
    let [alice, bob] = members;
    let (alice, bob) = (sealcast::open(&url).identity(alice).await?, sealcast::open(&url).identity(bob).await?);
    let mut views = bob.views();
    while bob.ready().await?.members.len() < 2 || alice.ready().await?.members.len() < 2 {
        let event = views.next().await.expect("bob is in the group");
        assert!(matches!(event, ViewEvent::Changed { .. }), "{event:?}");
    }
    let mut poses = bob.subscribe("pose/+").await?;
    for n in 0..10 {
        alice.publish("pose/robot7", format!("at {n}")).await?;
    }
    alice.flush().await?;
    let mut read = Vec::new();
    while read.len() < 10 {
        let message = poses.next().await.expect("bob is in the group")?;
        read.push(String::from_utf8_lossy(message.payload()).into_owned());
    }
    alice.rotate().await?;
    alice.leave().await?;
    let refused = alice.publish("pose/robot7", "gone").await.expect_err("it has left");
    assert_eq!(refused.code(), Code::Closed, "{refused}");
    Ok(read)
}

/// Messages with a place in one order.
async fn ordered(url: String) -> Result<Vec<u64>> {
    let (one, other) = (sealcast::open(&url).await?, sealcast::open(&url).await?);
    let mut all = other.subscribe("#").await?;
    let ticket = one.publish("t", "first").ordered().ticket()?;
    let mut numbers = Vec::new();
    numbers.extend(ticket.await?.number);
    numbers.extend(one.publish("t", "second").ordered().await?.number);
    assert_eq!(all.next().await.expect("the session goes on")?.payload(), b"first");
    assert_eq!(all.next().await.expect("the session goes on")?.payload(), b"second");
    Ok(numbers)
}

fn members() -> [Arc<Identity>; 2] {
    let mut ca = Ca::new();
    ["alice", "bob"].map(|name| ca.member(name, &["both:#"]))
}

fn wanted() -> Vec<String> {
    (0..10).map(|n| format!("at {n}")).collect()
}

#[test]
fn tokio_moves_sessions_between_threads() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let pair = tokio::spawn(pair(url("&keys=contributory"), members()));
        let order = tokio::spawn(ordered("mem:runtimes-tokio?keys=plain&order=total".to_owned()));
        assert_eq!(pair.await.unwrap().unwrap(), wanted());
        assert_eq!(order.await.unwrap().unwrap().len(), 2);
    });
}

#[test]
fn smol_runs_the_same() {
    smol::block_on(async {
        let pair = smol::spawn(pair(url("&keys=contributory"), members()));
        let order = smol::spawn(ordered("mem:runtimes-smol?keys=plain&order=total".to_owned()));
        assert_eq!(pair.await.unwrap(), wanted());
        assert_eq!(order.await.unwrap().len(), 2);
    });
}
