//! One broker alone, on a real disk.

use std::path::Path;

use futures::executor::block_on;
use sealcast_order::solo::{self, Solo};
use sealcast_order::{BlockSize, Order, Refused};

mod common;

use common::{Folder, Ledger, batch, until};

fn alone(folder: &Path) -> solo::Settings {
    let block = BlockSize { batches: 16, bytes: 4096 };
    solo::Settings { namespace: b"alone".to_vec(), folder: folder.to_path_buf(), block, unacknowledged: 8 }
}

#[test]
fn one_broker_alone_keeps_its_order_over_restarts() {
    let folder = Folder::new("solo");
    let ledger = Ledger::new();
    let solo = Solo::start(alone(&folder.0), ledger.clone()).expect("it starts");
    (0..500).for_each(|n| solo.submit(batch(n)).expect("it is taken"));
    until("500 batches", || ledger.ordered() == 500);
    let tip = solo.status().tip;
    drop(solo);

    let solo = Solo::start(alone(&folder.0), ledger.clone()).expect("it starts again");
    assert_eq!(solo.status().tip, tip);
    (500..9000).for_each(|n| solo.submit(batch(n)).expect("it is taken"));
    until("9,000 batches", || ledger.ordered() == 9000 && solo.status().lag() == 0);
    let status = solo.status();
    assert!(status.tip >= 9000 / 16);
    assert!(block_on(solo.block(1)).is_some());
    solo.prune(status.tip);
    assert!(block_on(solo.block(1)).is_none(), "whole files below are removed");
    let last = block_on(solo.block(status.tip)).expect("the last one stays");
    assert_eq!(Some(&last.hash()), ledger.blocks().get(&status.tip));
    block_on(solo.stop());
    assert_eq!(solo.submit(batch(9001)), Err(Refused::Ended));
    drop(solo);

    let solo = Solo::start(alone(&folder.0), ledger.clone()).expect("it starts a third time");
    assert_eq!(solo.status().height, status.tip, "what was acknowledged does not come again");
}

#[test]
fn a_log_is_read_whatever_size_new_blocks_have() {
    let folder = Folder::new("solo-smaller");
    let ledger = Ledger::new();
    let solo = Solo::start(alone(&folder.0), ledger.clone()).expect("it starts");
    (0..500).for_each(|n| solo.submit(batch(n)).expect("it is taken"));
    until("500 batches", || ledger.ordered() == 500 && solo.status().lag() == 0);
    let tip = solo.status().tip;
    assert!(tip < 500, "no block had two batches");
    drop(solo);

    let block = BlockSize { batches: 1, bytes: 4 };
    let solo = Solo::start(solo::Settings { block, ..alone(&folder.0) }, ledger.clone()).expect("it starts");
    assert_eq!((solo.status().tip, solo.status().height), (tip, tip), "nothing of it was cut off");
    for (height, hash) in ledger.blocks() {
        assert_eq!(block_on(solo.block(height)).map(|it| it.hash()), Some(hash));
    }
    (500..510).for_each(|n| solo.submit(batch(n)).expect("it is taken"));
    until("ten more", || ledger.ordered() == 510);
    assert_eq!(solo.status().tip, tip + 10);
}

#[test]
fn rule_g6_a_block_not_acknowledged_comes_again_and_a_torn_record_never_comes() {
    let folder = Folder::new("solo-again");
    let ledger = Ledger::holding_back();
    let solo = Solo::start(alone(&folder.0), ledger.clone()).expect("it starts");
    for n in 0..3 {
        solo.submit(batch(n)).expect("it is taken");
        until("one more block", || ledger.ordered() == n + 1);
    }
    assert_eq!((solo.status().height, solo.status().tip), (0, 3));
    drop(solo);

    // The crash tore the last record.
    let log = folder.0.join(format!("{:020}.log", 1));
    let length = std::fs::metadata(&log).unwrap().len();
    std::fs::OpenOptions::new().write(true).open(&log).unwrap().set_len(length - 3).unwrap();
    let after = Ledger::new();
    let solo = Solo::start(alone(&folder.0), after.clone()).expect("it starts");
    until("two blocks again", || after.ordered() == 2);
    assert_eq!(solo.status().tip, 2);
    solo.submit(batch(2)).expect("it is taken");
    until("a third block", || after.ordered() == 3);
    assert_eq!(after.blocks().first_key_value(), ledger.blocks().first_key_value());
}

/// Nobody else has the blocks of a broker alone: what does not check is cut off only where a crash can have left it.
#[test]
fn rule_e12_a_broker_alone_names_damage_and_loses_nothing_in_silence() {
    let folder = Folder::new("solo-damaged");
    let ledger = Ledger::new();
    let solo = Solo::start(alone(&folder.0), ledger.clone()).expect("it starts");
    // More than one file: 256 blocks each.
    for n in 0..300 {
        solo.submit(batch(n)).expect("it is taken");
        until("one more block", || ledger.ordered() == n + 1 && solo.status().lag() == 0);
    }
    block_on(solo.stop());
    drop(solo);
    let file = |first: u64| folder.0.join(format!("{first:020}.log"));
    let (old, last) = (file(1), file(257));
    let sound = [&old, &last].map(|it| std::fs::read(it).unwrap());
    let restore = || {
        std::fs::write(&old, &sound[0]).unwrap();
        std::fs::write(&last, &sound[1]).unwrap();
    };
    let start = || Solo::start(alone(&folder.0), Ledger::new()).map(|solo| solo.status().tip);
    let flip = |path: &Path, at: usize| {
        let mut bytes = std::fs::read(path).unwrap();
        bytes[at] ^= 1;
        std::fs::write(path, bytes).unwrap();
    };
    let cut = |path: &Path, by: u64| {
        let open = std::fs::OpenOptions::new().write(true).open(path).unwrap();
        open.set_len(open.metadata().unwrap().len() - by).unwrap();
    };
    type Damage<'a> = (&'a str, &'a dyn Fn(), &'a Path, &'a str);
    let cases: [Damage<'_>; 6] = [
        ("a flip in an old file", &|| flip(&old, 5000), &old, "was changed or cut short"),
        ("an old file cut", &|| cut(&old, 1), &old, "was changed or cut short"),
        ("a flip in the middle of the last file", &|| flip(&last, 700), &last, "records behind it were not"),
        ("a length that cannot be", &|| flip(&last, 0), &last, "records behind it were not"),
        ("the last file cut", &|| cut(&last, 100), &last, "block 300 was executed here"),
        ("the last record flipped", &|| flip(&last, sound[1].len() - 1), &last, "block 300 was executed here"),
    ];
    for (story, damage, file, what) in cases {
        damage();
        let before = [&old, &last].map(|it| std::fs::read(it).unwrap());
        match start() {
            Err(solo::StartError::Damaged { file: named, what: said }) => {
                assert!(named == *file && said.contains(what), "{story}: {} {said}", named.display());
            }
            other => panic!("{story}: {other:?}"),
        }
        let after = [&old, &last].map(|it| std::fs::read(it).unwrap());
        assert!(before == after, "{story}: what can be repaired by hand was cut off");
        restore();
    }
    assert_eq!(start().expect("it starts"), 300);
}

#[test]
fn another_clusters_log_is_refused() {
    let folder = Folder::new("solo-other");
    let ledger = Ledger::new();
    let solo = Solo::start(alone(&folder.0), ledger.clone()).expect("it starts");
    solo.submit(batch(0)).expect("it is taken");
    until("a block", || ledger.ordered() == 1);
    drop(solo);
    let other = solo::Settings { namespace: b"another".to_vec(), ..alone(&folder.0) };
    assert!(Solo::start(other, Ledger::new()).is_err());
}
