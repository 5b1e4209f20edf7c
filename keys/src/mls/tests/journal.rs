//! What lies on the disk: whole at each moment, small, and no longer there when it is superseded.

use std::collections::BTreeMap;

use sealcast_crypto::hash::sha256;
use sealcast_crypto::secret::Secret;
use sealcast_wire::codec::Writer;

use super::formed;
use super::net::Net;
use crate::mls::engine::Engine as _;
use crate::mls::engine::mls_rs::MlsRs;
use crate::mls::{Mls, position};
use crate::{Command, FILE_KEY};

type Records = BTreeMap<u64, Vec<u8>>;

fn base(net: &Net, node: usize) -> Secret<32> {
    net.nodes[node].keys.as_ref().unwrap().inside().unwrap().base.clone()
}

fn counter(net: &Net, node: usize) -> u32 {
    net.nodes[node].views.last().unwrap().view.epoch.counter
}

/// The position from which a run with these records goes on.
fn goes_on(records: &Records) -> Option<u64> {
    position(&records.clone().into_iter().collect::<Vec<_>>())
}

fn holds(records: &Records, needle: &[u8]) -> bool {
    records.values().any(|it| it.windows(needle.len()).any(|part| part == needle))
}

/// Whether the old records, of which somebody kept a copy, open with the file keys that are left.
fn opens(copy: &Records, now: &Records) -> bool {
    let mut records = copy.clone();
    records.retain(|id, _| id & FILE_KEY == 0);
    records.extend(now.iter().filter(|(id, _)| **id & FILE_KEY != 0).map(|(id, it)| (*id, it.clone())));
    goes_on(&records).is_some()
}

/// The state as version 1 wrote it, in one record.
fn version_1(keys: &mut Mls<MlsRs>) -> Vec<u8> {
    let inside = keys.inside_mut().unwrap();
    let mut w = Writer::new();
    w.u8(1).u64(inside.position).u64(inside.founded).u32(inside.epoch.counter);
    w.raw(inside.base.expose()).raw(&inside.cut).u32(inside.cards.len() as u32);
    inside.cards.values().for_each(|card| card.put(&mut w));
    for part in [&inside.engine.checkpoint().0[..], &inside.engine.tree(), &[]] {
        w.u32(part.len() as u32).raw(part);
    }
    w.u8(0);
    w.finish()
}

#[test]
fn rule_g6_what_is_stored_at_any_moment_leads_to_the_last_whole_state() {
    for seed in 0..3 {
        let mut net = formed(4, seed);
        for i in 0..60 {
            net.command(i % 3, Command::Rotate);
            net.run(700);
        }
        let cert = net.cert(3);
        net.command(0, Command::Evict { cert, reason: String::new() });
        net.run(3_000);
        for node in 0..3 {
            // As kill -9 leaves it: what was stored up to some moment.
            let mut records = Records::new();
            let mut before = None;
            for (id, record) in &net.nodes[node].stored {
                records.insert(*id, record.clone());
                let at = goes_on(&records);
                assert!(at >= before, "m{node} goes back from {before:?} to {at:?}");
                before = at;
            }
            assert!(before.is_some());
            let bases =
                net.nodes[node].stored.iter().filter(|(id, it)| *id >= 1 << 32 && it.starts_with(&[2, 0])).count();
            assert!((2..6).contains(&bases), "{bases} bases");
        }
        // The evicted keeps nothing.
        assert_eq!(goes_on(&net.nodes[3].records), None);
    }
}

#[test]
fn rule_g6_what_a_crash_tore_is_noticed() {
    let mut net = formed(3, 1);
    for _ in 0..10 {
        net.command(0, Command::Rotate);
        net.run(700);
    }
    let whole = net.nodes[1].records.clone();
    let last = goes_on(&whole);
    let numbers: Vec<u64> = whole.keys().filter(|id| **id >= 1 << 32 && **id & FILE_KEY == 0).copied().collect();
    let mut lost = Vec::new();
    for id in &numbers {
        // Lost, or that of another time.
        for other in [vec![], whole[&numbers[0]].clone(), whole[numbers.last().unwrap()].clone()] {
            let mut torn = whole.clone();
            torn.insert(*id, other);
            if torn != whole {
                lost.push(goes_on(&torn));
            }
        }
    }
    assert!(lost.iter().all(|at| *at < last), "{lost:?}, and {last:?} if nothing is torn");
    assert!(lost.is_sorted(), "the later the tear, the later the state: {lost:?}");
    for change in [0, 1, 2, 33] {
        let mut changed = whole.clone();
        changed.get_mut(numbers.last().unwrap()).unwrap()[change] ^= 1;
        assert!(goes_on(&changed) <= last, "byte {change}");
    }
}

#[test]
fn rule_g4_a_card_that_was_changed_on_the_disk_is_verified_anew() {
    for changes in [false, true] {
        let mut net = formed(3, 6);
        net.crash(1);
        let records = &mut net.nodes[1].records;
        let mut numbers: Vec<u64> =
            records.keys().filter(|id| **id >= 1 << 32 && **id & FILE_KEY == 0).copied().collect();
        numbers.retain(|id| !records[id].is_empty());
        let base = numbers.iter().rposition(|id| records[id].starts_with(&[2, 0])).unwrap();
        // The last card's signature, and the chain with it.
        *records.get_mut(&numbers[base]).unwrap().last_mut().unwrap() ^= u8::from(changes);
        for pair in numbers[base..].windows(2) {
            let before = sha256(&records[&pair[0]]);
            records.get_mut(&pair[1]).unwrap()[2..34].copy_from_slice(&before);
        }
        net.start(1);
        let cards = net.nodes[1].keys.as_ref().unwrap().inside().unwrap().cards.len();
        assert_eq!(cards, if changes { 2 } else { 3 });
    }
}

#[test]
fn rule_d6_superseded_secrets_are_gone_within_32_epochs() {
    let mut net = formed(3, 2);
    let mut copies = Vec::new();
    for _ in 0..80 {
        copies.push((counter(&net, 1), base(&net, 1), net.nodes[1].records.clone()));
        net.command(0, Command::Rotate);
        net.run(200);
        let now = &net.nodes[1].records;
        let current = counter(&net, 1);
        for (then, base, copy) in &copies {
            assert!(!holds(now, base.expose()), "the secret of epoch {then} in clear");
            if current > then + 32 {
                assert!(!opens(copy, now), "the state of epoch {then} opens in {current}");
            }
        }
    }
    let opening = copies.iter().filter(|(.., copy)| opens(copy, &net.nodes[1].records)).count();
    assert!(opening > 0, "a copy opens while its key is there");
}

#[test]
fn rule_d6_superseded_secrets_are_gone_within_a_minute() {
    let mut net = formed(3, 3);
    let copies: Vec<Records> = net.nodes.iter().map(|it| it.records.clone()).collect();
    net.command(0, Command::Rotate);
    net.run(1_000);
    assert!(opens(&copies[1], &net.nodes[1].records), "its key is still there");
    net.run(59_000);
    for (node, copy) in copies.iter().enumerate() {
        assert!(!opens(copy, &net.nodes[node].records), "m{node}");
    }
    // The next run goes on, all the same.
    let before = counter(&net, 1);
    net.crash(1);
    net.start(1);
    net.run(3_000);
    net.assert_together(&[0, 1, 2]);
    assert_eq!(counter(&net, 1), before + 1, "by its card, and no commit");
}

#[test]
fn rule_d6_with_erase_epoch_they_are_gone_at_once() {
    let mut net = Net::new(3, 4);
    for node in 0..3 {
        net.start_as(node, |config| config.erases = true);
        net.run(1_500);
    }
    for _ in 0..5 {
        let copy = net.nodes[1].records.clone();
        net.command(0, Command::Rotate);
        net.run(300);
        assert!(!opens(&copy, &net.nodes[1].records));
    }
    net.assert_together(&[0, 1, 2]);
}

#[test]
fn a_folder_of_version_1_opens_and_its_record_is_erased() {
    let mut net = formed(3, 5);
    net.command(1, Command::Rotate);
    net.run(1_000);
    let before = counter(&net, 0);
    for node in 0..3 {
        let record = version_1(net.nodes[node].keys.as_mut().unwrap());
        let at = &mut net.nodes[node];
        at.records.retain(|id, _| *id == 2);
        at.records.insert(1, record);
        net.crash(node);
    }
    (0..3).for_each(|node| net.start(node));
    net.run(5_000);
    net.assert_together(&[0, 1, 2]);
    assert_eq!(counter(&net, 0), before + 3, "three cards, and no commit");
    for node in 0..3 {
        assert_eq!(net.nodes[node].records[&1], Vec::<u8>::new());
        net.crash(node);
        net.start(node);
    }
    net.run(5_000);
    net.assert_together(&[0, 1, 2]);
}
