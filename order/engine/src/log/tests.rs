//! Stories of one log on a simulated disk: a seed decides what is appended, made durable, read and lost.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use commonware_codec::Encode as _;
use commonware_consensus::simplex::types::{Finalize, Proposal};
use commonware_consensus::types::{Epoch, Round, View};
use commonware_parallel::Sequential;
use commonware_runtime::deterministic::Context;
use commonware_runtime::{Blob as _, Clock as _, ReadOptions, Storage as _, Supervisor as _};
use commonware_utils::iter::NonEmpty;
use rand_chacha::ChaCha20Rng;
use rand_core::{Rng as _, SeedableRng as _};
use sealcast_order::{Batch, Block};
use sealcast_order_testing::simulated::{Disks, Root, play, play_on};

use super::segment::TRAILER_BYTES;
use super::*;
use crate::SigningSeed;
use crate::codec::EngineBlock;
use crate::stack::{Members, signer};

const DISK: &str = "broker0-";
/// A file holds few records here.
const SMALL: Sizes = Sizes { bytes: 2048, records: 8 };

fn block(height: u64, bytes: usize) -> EngineBlock {
    Block { parent: [3; 32], height, time: height, batches: vec![Batch::new(vec![7; bytes])] }.into()
}

async fn open(context: &Context) -> Opened<Context> {
    Log::open(context.child("log"), DISK, SMALL).await.expect("the log opens")
}

async fn put(opened: &mut Opened<Context>, block: &EngineBlock) {
    opened.log.append(Kind::Block, block.height, &block.hash(), block).await.expect("it is appended");
    opened.heights[0].insert((block.height, block.height));
}

async fn assert_held(log: &mut Log<Context>, block: &EngineBlock, story: &str) {
    let by_height = log.get(Kind::Block, block.height).await.expect("the log is sound").expect(story);
    assert_eq!((by_height.digest, &by_height.body[..]), (block.hash(), &block.encode()[..]), "{story}");
    let by_digest = log.find(&block.hash()).await.expect("the log is sound").expect(story);
    assert_eq!(by_digest.height, block.height, "{story}");
}

/// Blocks and certificates come in any order, are made durable now and then, and a crash tears what was not.
#[test]
fn rule_e12_what_was_durable_is_there_after_a_crash_and_nothing_false_is() {
    for seed in 0..48 {
        let story = format!("crashes, seed {seed}");
        let mut rng = ChaCha20Rng::seed_from_u64(seed);
        // By kind and height: what was appended, and whether it must be there.
        let mut model: BTreeMap<(Kind, u64), (EngineBlock, bool)> = BTreeMap::new();
        let mut disks: Option<Disks> = None;
        for life in 0..6 {
            let (rng, model, story) = (&mut rng, &mut model, &story);
            let begin = move |root: Root| {
                async move {
                    let context = root.context();
                    let mut opened = open(&context).await;
                    for ((kind, height), (block, durable)) in std::mem::take(model) {
                        let found = opened.log.get(kind, height).await.expect("the log is sound");
                        assert!(found.is_some() || !durable, "{story}, life {life}: {kind:?} {height} is lost");
                        assert_eq!(opened.heights[table_of(kind)].contains(height), found.is_some(), "{story}");
                        if let Some(found) = found {
                            assert_eq!(found.body, block.encode(), "{story}, life {life}");
                            // What survived once is durable.
                            model.insert((kind, height), (block, true));
                        }
                    }
                    for _ in 0..rng.next_u64() % 60 {
                        let (height, bytes) = (rng.next_u64() % 100, rng.next_u64() % 300);
                        let kind = if rng.next_u64().is_multiple_of(2) { Kind::Block } else { Kind::Certificate };
                        if let Entry::Vacant(vacant) = model.entry((kind, height)) {
                            let block = block(height, usize::try_from(bytes).expect("it is small"));
                            opened.log.append(kind, height, &block.hash(), &block).await.expect("it is appended");
                            vacant.insert((block, false));
                        }
                        if rng.next_u64().is_multiple_of(8) {
                            opened.log.sync().await.expect("it is durable");
                            model.values_mut().for_each(|(_, durable)| *durable = true);
                        }
                    }
                    for ((kind, height), (block, _)) in model.iter() {
                        let found = opened.log.get(*kind, *height).await.expect("the log is sound").expect(story);
                        assert_eq!(found.body, block.encode(), "{story}");
                        if *kind == Kind::Block {
                            assert_held(&mut opened.log, block, story).await;
                        }
                    }
                }
            };
            let ((), after) = match disks.take() {
                None => play(seed, true, begin),
                Some(disks) => play_on(disks, begin),
            };
            disks = Some(after);
        }
    }
}

/// A file is closed every eight records: 1,000 of them are found with a handful of open files.
#[test]
fn rule_e15_open_files_and_runs_do_not_grow_with_the_blocks() {
    let write = |root: Root| async move {
        let context = root.context();
        let mut opened = open(&context).await;
        for height in 0..8000 {
            put(&mut opened, &block(height, 0)).await;
            if height % 64 == 0 {
                context.sleep(std::time::Duration::from_millis(1)).await;
            }
        }
        opened.log.sync().await.expect("it is durable");
        assert!(opened.log.closed.len() >= 999);
        for height in (0..8000).step_by(97) {
            assert_held(&mut opened.log, &block(height, 0), &format!("height {height}")).await;
        }
        assert!(opened.log.files.len() <= limits::LOG_FILES_OPEN);
        assert!(opened.log.digests.runs() <= limits::LOG_RUNS_MAX, "{} runs", opened.log.digests.runs());
        assert!(opened.log.find(&[9; 32]).await.expect("the log is sound").is_none());
    };
    let ((), disks) = play(1, false, write);
    let read = |root: Root| async move {
        let context = root.context();
        let mut opened = open(&context).await;
        assert_eq!(opened.heights[0].ranges_from(0).collect::<Vec<_>>(), [(0, 7999)]);
        for height in (0..8000).step_by(331) {
            assert_held(&mut opened.log, &block(height, 0), &format!("height {height}, again")).await;
        }
        // The digests are made again where they are missing.
        drop(opened);
        context.remove(&format!("{DISK}keys"), None).await.expect("they are there");
        let mut opened = open(&context).await;
        assert_held(&mut opened.log, &block(5, 0), "without its runs").await;
    };
    play_on(disks, read);
}

#[test]
fn what_is_pruned_is_gone_and_its_files_too() {
    let ((), _) = play(1, false, |root| async move {
        let context = root.context();
        let mut opened = open(&context).await;
        for height in 0..100 {
            put(&mut opened, &block(height, 10)).await;
        }
        opened.log.sync().await.expect("it is durable");
        let files = opened.log.closed.len();
        opened.log.prune(Kind::Block, 50).await.expect("it is pruned");
        opened.log.prune(Kind::Block, 20).await.expect("a lower floor changes nothing");
        opened.log.sync().await.expect("it is durable");
        assert!(opened.log.closed.len() < files * 2 / 3, "{files} files before");
        drop(opened);

        let mut opened = open(&context).await;
        assert_eq!(opened.heights[0].ranges_from(0).collect::<Vec<_>>(), [(50, 99)], "the floor is remembered");
        assert!(opened.log.get(Kind::Block, 49).await.expect("the log is sound").is_none());
        assert!(opened.log.find(&block(49, 10).hash()).await.expect("the log is sound").is_none());
        assert_held(&mut opened.log, &block(50, 10), "above the floor").await;
    });
}

/// Changes a file of the log and returns what opening it and reading all of it says.
async fn damaged(context: &Context, number: u64, change: impl FnOnce(&mut Vec<u8>)) -> Result<(), LogError> {
    let partition = format!("{DISK}log");
    let (file, size) = context.open(&partition, &number.to_be_bytes()).await.expect("it opens");
    let length = usize::try_from(size).expect("it is small");
    let mut bytes =
        file.read_at(0, length, ReadOptions::default()).await.expect("it is read").coalesce().as_ref().to_vec();
    change(&mut bytes);
    file.resize(0).await.expect("it is changed");
    file.write_at(0, bytes, WriteOptions::default()).await.expect("it is changed");
    file.sync().await.expect("it is changed");
    drop(file);
    let mut opened = Log::open(context.child("log"), DISK, SMALL).await?;
    for height in 0..20 {
        opened.log.get(Kind::Block, height).await?;
    }
    Ok(())
}

/// Twenty durable blocks in files 0, 1 (closed) and 2 (active), the last ones made durable twice.
async fn twenty(context: &Context) {
    let mut opened = open(context).await;
    for height in 0..20 {
        put(&mut opened, &block(height, 10)).await;
        opened.log.sync().await.expect("it is durable");
    }
    assert_eq!(opened.log.active.number, 2);
}

#[test]
fn rule_e12_damage_is_named_and_a_torn_write_is_not_damage() {
    let record = record::HEAD_BYTES + block(0, 10).encode().len() + record::CHECKSUM_BYTES;
    let header = segment::FILE_HEADER_BYTES;
    type Change = Box<dyn Fn(&mut Vec<u8>)>;
    let flip = |at: usize| -> Change { Box::new(move |bytes| bytes[at] ^= 1) };
    let cut = |to: usize| -> Change { Box::new(move |bytes| bytes.truncate(to)) };
    let from_end = |n: usize| -> Change {
        Box::new(move |bytes| {
            let at = bytes.len() - n;
            bytes[at] ^= 1
        })
    };
    let cases: Vec<(&str, u64, Change, Option<&str>)> = vec![
        ("a record of a closed file", 0, flip(header + record + 70), Some("block 1 has a false checksum")),
        ("the first bytes", 0, flip(2), Some("first bytes")),
        ("another version", 0, flip(7), Some("its version is 0")),
        ("a marker", 0, flip(17), Some("first bytes")),
        ("a trailer", 1, from_end(TRAILER_BYTES / 2), Some("its end")),
        ("a table", 1, from_end(TRAILER_BYTES + 40), Some("false checksum")),
        ("a closed file cut", 1, cut(300), Some("its end")),
        ("a closed file cut to nothing", 1, cut(3), Some("cut short")),
        ("an old record of the active file", 2, flip(header + 80), Some("records behind it")),
        ("the active file cut before what was durable", 2, cut(header + record + 5), None),
        ("the active file cut to nothing", 2, cut(0), None),
        ("its last record", 2, from_end(1), None),
        ("no change", 2, Box::new(|_| ()), None),
    ];
    for (story, number, change, expected) in cases {
        play(1, false, |root| async move {
            let context = root.context();
            twenty(&context).await;
            let said = damaged(&context, number, change).await;
            match (said, expected) {
                (Ok(()), None) => {}
                (Err(LogError::Damaged(damage)), Some(what)) => {
                    assert!(damage.what.contains(what), "{story}: {damage}");
                    assert_eq!(damage.file, format!("{DISK}log/{number:016x}"), "{story}");
                }
                (said, expected) => panic!("{story}: {said:?} instead of {expected:?}"),
            }
        });
    }
}

#[test]
fn rule_e12_a_missing_file_is_named() {
    play(1, false, |root| async move {
        let context = root.context();
        twenty(&context).await;
        context.remove(&format!("{DISK}log"), Some(&1u64.to_be_bytes())).await.expect("it was there");
        let Err(LogError::Damaged(damage)) = Log::open(context.child("log"), DISK, SMALL).await.map(drop) else {
            panic!("a log without its second file opens");
        };
        assert_eq!((&damage.file[..], &damage.what[..]), (&format!("{DISK}log/0000000000000001")[..], "it is missing"));
    });
}

/// A client publishes what looks like a record that was appended later; then a crash tears the block around it.
#[test]
fn a_published_record_cannot_pass_for_one_of_the_log() {
    play(1, false, |root| async move {
        let context = root.context();
        let mut opened = open(&context).await;
        let mut forged = Vec::new();
        record::append(&mut forged, b"a marker", Kind::Block, 1, &[0; 32], u64::MAX, &block(1, 4));
        let carrier = EngineBlock::from(Block { batches: vec![Batch::new(forged)], ..Block::clone(&block(0, 0)) });
        put(&mut opened, &carrier).await;
        opened.log.sync().await.expect("it is durable");
        drop(opened);
        damaged(&context, 0, |bytes| bytes[segment::FILE_HEADER_BYTES + 20] ^= 1).await.expect("it counts as torn");
    });
}

/// A quorum's certificate for each of these blocks.
fn certificates(blocks: &[EngineBlock]) -> Vec<(u64, Finalization<Scheme, Digest>)> {
    let seeds: Vec<SigningSeed> = (1..=4).map(|i| SigningSeed::new(&[i; 32])).collect();
    let keys: Vec<[u8; 32]> = seeds.iter().map(SigningSeed::public).collect();
    let sorted = Members::of(keys.iter()).expect("they are keys").sorted;
    let scheme = |seed: &SigningSeed| Scheme::signer(b"test", sorted.clone(), signer(seed)).expect("it is a member");
    let signers: Vec<Scheme> = seeds[..3].iter().map(scheme).collect();
    let certify = |block: &EngineBlock| {
        let round = Round::new(Epoch::zero(), View::new(block.height + 1));
        let proposal = Proposal::new(round, View::new(block.height), Digest(block.hash()));
        let votes: Vec<_> = signers.iter().filter_map(|it| Finalize::sign(it, proposal.clone())).collect();
        let votes = NonEmpty::try_new(votes.into_iter()).expect("a quorum has members");
        let all = Finalization::from_owned_finalizes(&signers[0], votes, &Sequential);
        (block.height, all.expect("a quorum has signed"))
    };
    blocks.iter().map(certify).collect()
}

/// A folder of the version before, taken over; killed at each step of it.
#[test]
fn old_archives_become_the_log_whenever_it_is_interrupted() {
    use commonware_runtime::buffer::paged::CacheRef;
    use commonware_utils::{NZU16, NZUsize};
    const BLOCKS: u64 = 600;
    let pages = || CacheRef::new(NZU16!(1024), NZUsize!(64));
    let old: Vec<EngineBlock> = (0..BLOCKS).map(|height| block(height, 5)).collect();
    // Not each block has one: a certificate makes those before its block final, too.
    let certified: Vec<EngineBlock> = old.iter().filter(|block| block.height % 7 == 3).cloned().collect();
    let certificates = certificates(&certified);
    for kill_after in [0, 1, 3, 10, 50, 200, 1000] {
        let story = format!("killed after {kill_after} ms");
        let ((), mut disks) = play(1, false, |root| async {
            migrate::write_old(&root.context(), DISK, &pages(), &old, &certificates).await;
        });
        for life in 0..2 {
            let ((), after) = play_on(disks, |root| async {
                let context = root.context();
                let mut opened = open(&context).await;
                let pages = pages();
                let take_over = migrate::take_over(&context, DISK, &pages, &mut opened, |_, _| ());
                let kill = context.sleep(std::time::Duration::from_millis(kill_after));
                if life == 0 {
                    futures::future::select(std::pin::pin!(take_over), std::pin::pin!(kill)).await;
                    return;
                }
                take_over.await.expect("it is taken over");
                for block in &old {
                    assert_held(&mut opened.log, block, &story).await;
                    let height = block.height;
                    let found = opened.log.get(Kind::Certificate, height).await.expect("the log is sound");
                    let expected = certificates.iter().find(|(of, _)| *of == height).map(|(_, it)| it);
                    assert_eq!(found.as_ref().map(|it| it.digest), expected.map(|it| it.proposal.payload.0), "{story}");
                    assert_eq!(found.map(|it| it.body), expected.map(|it| it.encode()), "{story}: block {height}");
                    assert_eq!(opened.heights[1].contains(height), expected.is_some(), "{story}: block {height}");
                }
                for partition in ["blocks-key", "blocks-value", "certificates-key", "taken-over"] {
                    assert!(context.scan(&format!("{DISK}{partition}")).await.is_err(), "{story}: {partition} is left");
                }
            });
            disks = after;
        }
    }
}
