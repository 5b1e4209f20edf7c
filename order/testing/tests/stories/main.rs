//! Stories of four brokers. A seed decides latency, loss, who is spoken to, when things break.

use std::sync::Arc;

use sealcast_order::{Batch, BlockSize, Misbehaviour, Refused, StartCertificate};
use sealcast_order_engine::{Start, judge};
use sealcast_order_testing::simulated::{play, play_on};
use sealcast_order_testing::{BAD, Ledger, assert_agree};

mod world;

use world::{SIZE, World, ledgers, pairs, settings};

const ALL: [usize; 4] = [0, 1, 2, 3];

fn seeds(count: u64) -> impl Iterator<Item = u64> {
    let only = std::env::var("SEALCAST_SEED").ok().and_then(|s| s.parse().ok());
    match only {
        Some(seed) => seed..seed + 1,
        None => 0..count,
    }
}

/// A failure names the seed: `SEALCAST_SEED=<seed> cargo test -p sealcast-order-testing <story>` replays it.
fn story(name: &str, seed: u64) -> String {
    format!("{name}, seed {seed}")
}

#[test]
fn all_brokers_deliver_one_order_under_loss_and_latency() {
    for seed in seeds(24) {
        let story = story("loss and latency", seed);
        play(seed, false, |root| async move {
            let mut world = World::new(root, ledgers(), Some(10)).await;
            for i in ALL {
                world.start(i).await;
            }
            let batches = world.submit_many(&ALL, "batch", 40).await;
            world.until_ordered(&ALL, &batches, &story).await;
            assert_agree(&world.ledgers, &story);
        });
    }
}

#[test]
fn a_crashed_broker_replays_its_journal_and_catches_up() {
    for seed in seeds(24) {
        let story = story("crash and restart", seed);
        play(seed, false, |root| async move {
            let mut world = World::new(root, ledgers(), None).await;
            for i in ALL {
                world.start(i).await;
            }
            let victim = world.below(4);
            let others: Vec<usize> = ALL.into_iter().filter(|i| *i != victim).collect();
            let mut batches = world.submit_many(&others, "before", 15).await;
            world.crash(victim).await;
            batches.extend(world.submit_many(&others, "without", 15).await);
            world.until_ordered(&others, &batches, &story).await;
            world.start(victim).await;
            batches.extend(world.submit_many(&ALL, "after", 15).await);
            world.until_ordered(&ALL, &batches, &story).await;
            assert_agree(&world.ledgers, &story);
        });
    }
}

#[test]
fn halves_order_nothing_apart_and_everything_together() {
    for seed in seeds(16) {
        let story = story("partition and heal", seed);
        play(seed, false, |root| async move {
            let mut world = World::new(root, ledgers(), None).await;
            for i in ALL {
                world.start(i).await;
            }
            let mut batches = world.submit_many(&ALL, "before", 10).await;
            world.until_ordered(&ALL, &batches, &story).await;
            for (a, b) in pairs().filter(|(a, b)| a / 2 != b / 2) {
                world.unlink(a, b).await;
            }
            // What was on its way arrives; then nothing can become final.
            world.sleep(500).await;
            let heights: Vec<u64> = world.ledgers.iter().map(|l| l.height()).collect();
            batches.extend(world.submit_many(&ALL, "apart", 10).await);
            world.sleep(3000).await;
            let now: Vec<u64> = world.ledgers.iter().map(|l| l.height()).collect();
            assert_eq!(now.iter().max(), heights.iter().max(), "{story}: half of the brokers ordered something");
            for (a, b) in pairs().filter(|(a, b)| a / 2 != b / 2) {
                world.link(a, b, 10, 100).await;
            }
            world.until_ordered(&ALL, &batches, &story).await;
            assert_agree(&world.ledgers, &story);
        });
    }
}

#[test]
fn rule_e4_an_equivocator_is_caught_and_changes_nothing() {
    for seed in seeds(16) {
        let story = story("twins", seed);
        play(seed, false, |root| async move {
            let mut world = World::new(root, ledgers(), None).await;
            let honest = [0, 1, 2];
            for i in honest {
                world.start(i).await;
            }
            let other = Arc::new(Ledger::new());
            let twin = world.start_twins(3, other.clone()).await;
            // The halves hold different batches, so that they propose different blocks in one view.
            twin.submit(Batch::new(&b"twin"[..])).expect("the twin takes it");
            let batches = world.submit_many(&honest, "batch", 30).await;
            world.until_ordered(&honest, &batches, &story).await;
            let evidence = || (0..3).flat_map(|i| world.broker(i).evidence()).collect::<Vec<_>>();
            world.until(|| !evidence().is_empty(), &format!("{story}: evidence")).await;
            for e in evidence() {
                assert_eq!(e.broker, 3, "{story}: {e:?}");
                // It convinces whoever knows the keys, and only as it was signed, of this cluster.
                let keys: Vec<[u8; 32]> = settings()[0].brokers.iter().map(|it| it.key).collect();
                let shown = |proof: &[u8]| judge(&keys, b"simulation", proof);
                assert_eq!(shown(&e.proof), Some(e.clone()), "{story}");
                assert_eq!(judge(&keys, b"another", &e.proof), None, "{story}");
                for i in 0..e.proof.len() {
                    let mut changed = e.proof.clone();
                    changed[i] ^= 1;
                    assert_eq!(shown(&changed), None, "{story}: byte {i}");
                }
                assert_eq!(shown(&e.proof[1..]), None, "{story}");
            }
            assert!(evidence().iter().any(|e| e.misbehaviour == Misbehaviour::TwoNotarizeVotes), "{story}");
            assert_agree(&world.ledgers[..3], &story);
        });
    }
}

/// One half speaks to broker 0, the other one to 1 and 2: these certify a block that broker 0 was not proposed. That shows
/// it a leader that equivocated, without two votes of it on one link.
#[test]
fn rule_e4_a_leader_that_equivocates_apart_is_cut_off_with_evidence_and_nobody_else_is() {
    for seed in seeds(8) {
        let story = story("twins apart", seed);
        play(seed, false, |root| async move {
            let mut world = World::new(root, ledgers(), None).await;
            let honest = [0, 1, 2];
            for i in honest {
                world.start(i).await;
            }
            let twin = world.start_twins_apart(3, Arc::new(Ledger::new()), 0).await;
            twin.submit(Batch::new(&b"twin"[..])).expect("the twin takes it");
            let batches = world.submit_many(&honest, "batch", 20).await;
            let cut_off = || world.broker(0).peers()[3].cut_off > 0;
            world.until(cut_off, &format!("{story}: broker 0 has cut off broker 3")).await;
            world.until_ordered(&honest, &batches, &story).await;
            let evidence = world.broker(0).evidence();
            assert!(!evidence.is_empty() && evidence.iter().all(|it| it.broker == 3), "{story}: {evidence:?}");
            let keys: Vec<[u8; 32]> = settings()[0].brokers.iter().map(|it| it.key).collect();
            for it in evidence {
                assert_eq!(judge(&keys, b"simulation", &it.proof), Some(it), "{story}");
            }
            for (i, peers) in honest.map(|i| (i, world.broker(i).peers())) {
                let innocent = honest.iter().all(|other| peers[*other].cut_off == 0);
                assert!(innocent, "{story}: broker {i} has cut off an honest one: {peers:?}");
            }
            assert_agree(&world.ledgers[..3], &story);
        });
    }
}

#[test]
fn an_invalid_block_is_never_final() {
    for seed in seeds(16) {
        let story = story("invalid block", seed);
        play(seed, false, |root| async move {
            let mut ledgers = ledgers();
            ledgers[3] = Arc::new(Ledger::lax());
            let mut world = World::new(root, ledgers, None).await;
            for i in ALL {
                world.start(i).await;
            }
            let bad = Batch::new([BAD, b" batch"].concat());
            assert_eq!(world.broker(0).submit(bad.clone()), Err(Refused::Invalid));
            world.broker(3).submit(bad.clone()).expect("a lax broker takes anything");
            // Long enough for broker 3 to lead several times; each of its blocks holds the bad batch.
            let batches = world.submit_many(&[0, 1, 2], "batch", 60).await;
            world.until_ordered(&ALL, &batches, &story).await;
            assert_agree(&world.ledgers, &story);
            assert!(world.ledgers.iter().all(|l| !l.has(std::slice::from_ref(&bad))), "{story}");
        });
    }
}

#[test]
fn rule_e12_nothing_acknowledged_is_lost_when_all_are_killed_and_writes_are_torn() {
    for seed in seeds(16) {
        let story = story("all killed", seed);
        let ledgers = ledgers();
        let before = ledgers.clone();
        let (batches, disks) = play(seed, true, |root| async move {
            let mut world = World::new(root, before, None).await;
            for i in ALL {
                world.start(i).await;
            }
            let count = 10 + world.below(20);
            world.submit_many(&ALL, "before", count).await
        });
        let acknowledged: Vec<u64> = ledgers.iter().map(|l| l.height()).collect();
        ledgers.iter().for_each(|l| l.crash());
        let after = ledgers.clone();
        let name = story.clone();
        play_on(disks, |root| async move {
            let mut world = World::new(root, after, None).await;
            for i in ALL {
                world.start(i).await;
            }
            // What was not ordered before the crash is gone from the pools; clients hand it in again.
            for batch in &batches {
                let _ = world.broker(0).submit(batch.clone());
            }
            world.until_ordered(&ALL, &batches, &name).await;
        });
        assert!(ledgers.iter().zip(acknowledged).all(|(l, before)| l.height() >= before), "{story}");
        assert_agree(&ledgers, &story);
    }
}

#[test]
fn a_broker_without_history_starts_from_a_floor() {
    for seed in seeds(8) {
        let story = story("floor", seed);
        play(seed, false, |root| async move {
            let mut world = World::new(root, ledgers(), None).await;
            for i in 0..3 {
                world.start(i).await;
            }
            let before = world.submit_many(&[0, 1, 2], "before", 20).await;
            world.until_ordered(&[0, 1, 2], &before, &story).await;
            let height = world.ledgers[0].height();
            let mut start_certificate = None;
            for h in (1..=height).rev() {
                start_certificate = start_certificate.or(world.broker(0).start_certificate(h).await);
            }
            let start_certificate = start_certificate.expect("some block has its own certificate");
            let from = start_certificate.height;
            let higher = StartCertificate { height: from + 1, ..start_certificate.clone() };
            let mut other = start_certificate.clone();
            other.header[39] ^= 1;
            for start_certificate in [higher, other] {
                world.start_from(3, Start::StartCertificate(start_certificate));
                assert!(!world.may_start(3), "{story}: the height is not the block's");
            }
            world.start_from(3, Start::StartCertificate(start_certificate));
            world.start(3).await;
            let after = world.submit_many(&ALL, "after", 20).await;
            world.until_ordered(&ALL, &after, &story).await;
            let first = *world.ledgers[3].blocks().first_key_value().expect("it has blocks").0;
            assert!(first >= from, "{story}: it began at {first}, below its floor {from}");
            assert_agree(&world.ledgers, &story);
            assert!(world.broker(3).block(first).await.is_some());
        });
    }
}

#[test]
fn a_leader_that_is_silent_is_counted() {
    for seed in seeds(4) {
        let story = story("silent leader", seed);
        play(seed, false, |root| async move {
            let mut world = World::new(root, ledgers(), None).await;
            for i in ALL {
                world.start(i).await;
            }
            let batches = world.submit_many(&ALL, "batch", 20).await;
            world.until_ordered(&ALL, &batches, &story).await;
            world.until(|| world.broker(0).status().changes > 0, &format!("{story}: another one leads")).await;
            let skips = world.broker(0).status().skips;
            world.crash(3).await;
            // Its turn comes.
            world.until(|| world.broker(0).status().skips > skips, &format!("{story}: a view is given up")).await;
        });
    }
}

#[test]
fn a_brokers_own_size_of_blocks_bounds_its_blocks_alone() {
    let large = BlockSize { batches: 64, bytes: 1 << 16 };
    let small = BlockSize { batches: 2, bytes: 32 };
    for seed in seeds(8) {
        let story = story("sizes of blocks", seed);
        play(seed, false, |root| async move {
            let mut world = World::new(root, ledgers(), None).await;
            for (i, size) in ALL.into_iter().zip([large, large, small, small]) {
                world.resize(i, size);
            }
            // Broker 2 has its small one from the first block on, and broker 3 fetches the blocks of the others later.
            for i in 0..3 {
                world.start(i).await;
            }
            let mut batches = Vec::new();
            for n in 0..4 {
                batches.extend((0..40).map(|k| world.submit(n % 3, &format!("batch {n} {k}"))));
                world.sleep(700).await;
            }
            world.until_ordered(&[0, 1, 2], &batches, &story).await;
            assert!(world.ledgers[0].largest() > SIZE.batches, "{story}: no block was large");

            // Smaller over the same history, and on an empty disk.
            for i in [0, 1] {
                world.crash(i).await;
                world.resize(i, small);
                world.start(i).await;
            }
            world.start(3).await;
            batches.extend(world.submit_many(&ALL, "after", 20).await);
            world.until_ordered(&ALL, &batches, &story).await;
            assert_agree(&world.ledgers, &story);
            for i in ALL {
                for (height, hash) in world.ledgers[i].blocks() {
                    let block = world.broker(i).block(height).await;
                    assert_eq!(block.map(|it| it.hash()), Some(hash), "{story}: block {height} at {i}");
                }
            }
        });
    }
}

#[test]
fn rule_e14_a_batch_at_any_broker_wakes_the_leader() {
    for seed in seeds(8) {
        let story = story("idle", seed);
        play(seed, false, |root| async move {
            let mut world = World::new(root, ledgers(), None).await;
            for i in ALL {
                world.start(i).await;
            }
            world.until(|| world.ledgers.iter().all(|l| l.height() > 2), &story).await;
            for n in 0..12 {
                let i = n % 4;
                let batch = world.submit(i, &format!("batch {n}"));
                // Four message delays of at most 35 ms and some scheduling, unless the leader is just changing.
                world.sleep(400).await;
                assert!(world.ledgers[i].has(&[batch]), "{story}: batch {n} waits for its own broker's turn");
            }
        });
    }
}

#[test]
fn rule_e14_a_backlog_reaches_the_leader_as_soon_as_it_can() {
    for seed in seeds(8) {
        let story = story("backlog", seed);
        play(seed, false, |root| async move {
            let mut world = World::new(root, ledgers(), None).await;
            for i in ALL {
                world.start(i).await;
            }
            for (a, b) in pairs().filter(|(a, b)| *a == 0 || *b == 0) {
                world.unlink(a, b).await;
            }
            let batches: Vec<Batch> = (0..300).map(|n| world.submit(0, &format!("batch {n}"))).collect();
            world.sleep(3000).await;
            for (a, b) in pairs().filter(|(a, b)| *a == 0 || *b == 0) {
                world.link(a, b, 5, 100).await;
            }
            // 38 blocks; a block's worth with each repair would take half a minute.
            world.sleep(8000).await;
            assert!(world.ledgers[1].has(&batches), "{story}: only {} of 300", world.ledgers[1].batches().len());
            assert_agree(&world.ledgers, &story);
        });
    }
}

#[test]
fn rule_g10_the_same_seed_gives_the_same_trace() {
    let trace = || {
        let story = |root| async move {
            let mut world = World::new(root, ledgers(), Some(10)).await;
            for i in ALL {
                world.start(i).await;
            }
            let batches = world.submit_many(&ALL, "batch", 10).await;
            world.until_ordered(&ALL, &batches, "trace").await;
            world.brokers.trace()
        };
        play(7, false, story).0
    };
    assert_eq!(trace(), trace());
}
