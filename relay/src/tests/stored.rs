//! Blobs, key packages and mail at an honest directory, and how long it keeps what.

use std::time::Duration;

use sealcast_crypto::signature::OriginKey;
use sealcast_wire::{Utc, limits};

use crate::directory::Config;
use crate::fixture::{
    DAY, MEMBER, World, device, entry, exchange, follower, founded, group, joiner, key, progress, propose, relay,
    signed,
};
use crate::follower::{Answer, Follower, Misbehaviour, Outcome};
use crate::ids::DeviceId;
use crate::request::{Append, Blob, Package, Proof, PutPackages, Request};
use crate::response::{Refusal, Response};

fn package(world: &World, i: u8, kept: Duration) -> Package {
    Package { expires: Utc(world.now.utc.unwrap().0 + kept.as_secs() as i64), bytes: vec![i; 10] }
}

fn put(
    world: &mut World,
    number: u64,
    single_use: Vec<Package>,
    last_resort: Option<Package>,
    signer: &OriginKey,
) -> Result<Answer, Misbehaviour> {
    let mut follower = follower();
    let call = follower.put_packages(device(1), number, single_use, last_resort, signer).unwrap();
    exchange(world, &mut follower, &call)
}

fn take(world: &mut World) -> Option<(u8, bool, u16)> {
    let mut follower = follower();
    let call = follower.take_package(device(1), &key(MEMBER));
    match exchange(world, &mut follower, &call).unwrap() {
        Answer::Package(taken) => taken.map(|it| (it.package.bytes[0], it.is_last_resort, it.left)),
        other => panic!("{other:?}"),
    }
}

fn mail(world: &mut World, to: DeviceId, acknowledged: u64) -> (Vec<(u64, u8)>, bool) {
    let mut follower = follower();
    let call = follower.mail(to, acknowledged, &joiner());
    match exchange(world, &mut follower, &call).unwrap() {
        Answer::Mail { items, more } => (items.iter().map(|it| (it.number, it.bytes[0])).collect(), more),
        other => panic!("{other:?}"),
    }
}

fn blobs(world: &mut World, follower: &mut Follower, wanted: &[Blob]) -> Vec<bool> {
    let call = follower.blobs(wanted.iter().map(|it| *it.hash()).collect()).unwrap();
    match exchange(world, follower, &call).unwrap() {
        Answer::Blobs(blobs) => blobs.iter().map(|it| it.1.is_some()).collect(),
        other => panic!("{other:?}"),
    }
}

fn blob(i: u8, bytes: usize) -> Blob {
    Blob::new(vec![i; bytes])
}

#[test]
fn single_use_packages_are_handed_out_once_and_the_last_resort_as_often_as_wanted() {
    let (mut world, _) = founded(1);
    assert_eq!(take(&mut world), None);
    let packages: Vec<_> = (1..=3).map(|i| package(&world, i, 10 * DAY)).collect();
    let last = package(&world, 9, 20 * DAY);
    let stored = put(&mut world, 5, packages.clone(), Some(last), &joiner());
    assert_eq!(stored, Ok(Answer::Stored { single_use: 3 }));
    // The same request again, and an older one: a newcomer that did not hear, and a replay.
    assert_eq!(put(&mut world, 5, packages.clone(), None, &joiner()), Ok(Answer::Stored { single_use: 3 }));
    assert_eq!(put(&mut world, 4, packages.clone(), None, &joiner()), Ok(Answer::Refused(Refusal::Stale)));
    assert_eq!(take(&mut world), Some((1, false, 2)));
    assert_eq!(
        put(&mut world, 5, packages, None, &joiner()),
        Ok(Answer::Stored { single_use: 2 }),
        "it is not there again"
    );
    assert_eq!(take(&mut world), Some((2, false, 1)));
    // A member fills up for its own device.
    let more = vec![package(&world, 4, 10 * DAY)];
    assert_eq!(put(&mut world, 6, more, None, &key(MEMBER)), Ok(Answer::Stored { single_use: 2 }));
    assert_eq!(take(&mut world), Some((3, false, 1)));
    assert_eq!(take(&mut world), Some((4, false, 0)));
    for _ in 0..3 {
        assert_eq!(take(&mut world), Some((9, true, 0)));
    }
    assert_eq!(put(&mut world, 7, vec![], None, &key(77)), Ok(Answer::Refused(Refusal::WrongKey)));
    assert_eq!(world.rows(b'p'), 0);
}

#[test]
fn packages_expire_and_too_many_push_out_the_oldest() {
    let (mut world, _) = founded(1);
    let singles = vec![package(&world, 1, DAY), package(&world, 2, 5 * DAY)];
    let last = package(&world, 9, 8 * DAY);
    put(&mut world, 1, singles, Some(last), &joiner()).unwrap();
    world.pass(2 * DAY);
    assert_eq!(take(&mut world), Some((2, false, 0)), "the expired one is passed over");
    assert_eq!(take(&mut world), Some((9, true, 0)));
    world.pass(7 * DAY);
    assert_eq!(take(&mut world), None);
    world.sweep();
    assert_eq!((world.rows(b'd'), world.rows(b'l'), world.rows(b'x')), (0, 0, 0), "nothing of the device is left");

    let many = |world: &World, from: u8| (from..from + 20).map(|i| package(world, i, DAY)).collect::<Vec<_>>();
    let (first, second) = (many(&world, 10), many(&world, 30));
    put(&mut world, 2, first, None, &joiner()).unwrap();
    let stored = put(&mut world, 3, second, None, &joiner());
    let most = limits::RELAY_PACKAGES_MAX as u16;
    assert_eq!(stored, Ok(Answer::Stored { single_use: most }));
    assert_eq!(take(&mut world), Some((10 + 40 - most as u8, false, most - 1)), "the newest are kept");
    world.pass(3 * DAY);
    world.sweep();
    assert_eq!((world.rows(b'd'), world.rows(b'p')), (0, 0));
}

#[test]
fn quotas_of_packages_and_devices_refuse() {
    let mut world = World::with(Config { devices: 2, package_bytes: 3000, ..Config::default() });
    progress(propose(&mut world, &mut follower(), b"f", Some(MEMBER), &joiner()));
    let mut request = |i: u8, packages: usize| {
        let package = package(&world, i, DAY);
        let single_use = vec![package; packages];
        let it = PutPackages { group: group(), device: device(i), number: 1, single_use, last_resort: None };
        let proof = Proof::new(&joiner(), |key| it.statement(&relay(), key));
        world.ask(&Request::PutPackages(it, proof))
    };
    assert_eq!(request(1, 20), Response::Refused(Refusal::Full));
    assert_eq!(request(1, 5), Response::Stored { single_use: 5 });
    assert_eq!(request(2, 5), Response::Stored { single_use: 5 });
    assert_eq!(request(3, 1), Response::Refused(Refusal::Full));
}

#[test]
fn rule_d1_commit_welcomes_and_blobs_are_kept_or_refused_whole() {
    let (mut world, mut member) = founded(1);
    let mail_to = |i: u8| (device(i), vec![i]);
    let missing = Append {
        at_end: false,
        group: group(),
        expected_head: *member.head(),
        entry: entry(b"commit", Some(3)),
        blobs: vec![blob(1, 5), Blob::known([8; 32])],
        mail: vec![mail_to(1)],
    };
    assert_eq!(world.refusal(&signed(missing, &key(MEMBER))), Refusal::Missing);
    assert!(!blobs(&mut world, &mut member, &[blob(1, 5)])[0]);
    assert_eq!(mail(&mut world, device(1), 0), (vec![], false));

    let call = member.propose(entry(b"commit", Some(3)), vec![blob(1, 5)], vec![mail_to(1), mail_to(2)], &key(MEMBER));
    let answer = exchange(&mut world, &mut member, &call.unwrap());
    assert_eq!(progress(answer).outcome, Some(Outcome::Won(2)));
    assert_eq!(blobs(&mut world, &mut member, &[blob(1, 5), blob(2, 5)]), [true, false]);
    assert_eq!(mail(&mut world, device(1), 0), (vec![(1, 1)], false));
    assert_eq!(mail(&mut world, device(2), 0), (vec![(2, 2)], false));
    progress(propose(&mut world, &mut member, b"next", None, &key(3)));
}

#[test]
fn mail_is_kept_until_it_is_acknowledged() {
    let (mut world, mut member) = founded(1);
    let mut round = |world: &mut World, i: u8| {
        let call =
            member.propose(entry(&[i], None), vec![], vec![(device(1), vec![i]), (device(2), vec![i])], &key(MEMBER));
        progress(exchange(world, &mut member, &call.unwrap()));
    };
    (1..=3).for_each(|i| round(&mut world, i));
    assert_eq!(mail(&mut world, device(1), 0), (vec![(1, 1), (3, 2), (5, 3)], false));
    assert_eq!(mail(&mut world, device(1), 0).0.len(), 3, "it is there until it is acknowledged");
    assert_eq!(mail(&mut world, device(1), 3), (vec![(5, 3)], false));
    assert_eq!(mail(&mut world, device(1), 0), (vec![(5, 3)], false), "an older acknowledgement changes nothing");
    assert_eq!(mail(&mut world, device(1), u64::MAX), (vec![], false));
    assert_eq!(mail(&mut world, device(2), 0).0.len(), 3, "others' mail is their own");
    for i in 0..70 {
        round(&mut world, i);
    }
    let (items, more) = mail(&mut world, device(1), 0);
    assert_eq!((items.len(), more), (limits::RELAY_MAIL_MAX, true));
    let (rest, more) = mail(&mut world, device(1), items.last().unwrap().0);
    assert_eq!((rest.len(), more), (0, true), "what is acknowledged fills an answer");
    assert_eq!(mail(&mut world, device(1), items.last().unwrap().0).0.len(), 70 - limits::RELAY_MAIL_MAX);
}

#[test]
fn mail_may_come_behind_its_entry_and_a_follower_goes_back_for_what_lies_between() {
    let (mut world, mut member) = founded(3);
    let left = |world: &mut World, mail: Vec<(DeviceId, Vec<u8>)>, signer: &OriginKey| {
        let call = follower().put_mail(mail, signer).unwrap();
        exchange(world, &mut follower(), &call).unwrap()
    };
    let both = vec![(device(1), vec![7]), (device(2), vec![8])];
    assert_eq!(left(&mut world, both.clone(), &key(MEMBER)), Answer::Stored { single_use: 0 });
    assert_eq!(left(&mut world, both, &key(77)), Answer::Refused(Refusal::WrongKey));
    assert_eq!(mail(&mut world, device(1), 0).0, [(1, 7)]);
    assert_eq!(mail(&mut world, device(2), 0).0, [(2, 8)]);

    // It began at the end, and its mail is of position 1.
    let mut late = follower();
    late.adopt(*member.receipt().unwrap()).unwrap();
    let call = late.ask_before(1);
    let Ok(Answer::Before(receipt)) = exchange(&mut world, &mut late, &call) else { panic!("it is kept") };
    assert_eq!(receipt.position, 1);
    late.go_back(receipt).unwrap();
    assert!(late.is_behind(), "what it had a receipt for comes again");
    let call = late.read();
    let entries = progress(exchange(&mut world, &mut late, &call)).entries;
    assert_eq!(entries.iter().map(|it| it.position).collect::<Vec<_>>(), [2, 3]);
    assert_eq!(late.head(), member.head());
    progress(propose(&mut world, &mut member, b"on", None, &key(MEMBER)));
}

#[test]
fn old_mail_vanishes_by_age_and_by_quota() {
    let mut world = World::with(Config { mail_bytes: 3 * (limits::RELAY_ROW_BYTES + 1), ..Config::default() });
    let mut member = follower();
    let mut round = |world: &mut World, i: u8| {
        let signer = if i == 1 { joiner() } else { key(MEMBER) };
        let call = member.propose(entry(&[i], Some(MEMBER)), vec![], vec![(device(i), vec![i])], &signer).unwrap();
        progress(exchange(world, &mut member, &call));
    };
    (1..=5).for_each(|i| round(&mut world, i));
    assert_eq!(mail(&mut world, device(2), 0).0, []);
    assert_eq!(mail(&mut world, device(3), 0).0, [(3, 3)]);
    world.pass(29 * DAY);
    round(&mut world, 6);
    world.pass(2 * DAY);
    assert_eq!(mail(&mut world, device(4), 0).0, [], "it is not given any more");
    world.sweep();
    assert_eq!((world.rows(b'n'), world.rows(b'w')), (1, 1));
    assert_eq!(mail(&mut world, device(6), 0).0, [(6, 6)]);
    // One request's mail that does not fit at all.
    let many = (0..4).map(|i| (device(i), vec![i])).collect();
    let call = member.propose(entry(b"x", None), vec![], many, &key(MEMBER)).unwrap();
    assert_eq!(exchange(&mut world, &mut member, &call), Ok(Answer::Refused(Refusal::Full)));
}

#[test]
fn of_too_many_blobs_those_go_that_were_not_named_for_the_longest_time() {
    let each = limits::RELAY_ROW_BYTES + 100;
    let mut world = World::with(Config { blob_bytes: 4 * each, ..Config::default() });
    let mut member = follower();
    progress(propose(&mut world, &mut member, b"f", Some(MEMBER), &joiner()));
    let mut put = |world: &mut World, blobs: Vec<Blob>| {
        let call = member.put_blobs(blobs, &key(MEMBER)).unwrap();
        exchange(world, &mut member, &call).unwrap()
    };
    let stored = Answer::Stored { single_use: 0 };
    let all: Vec<Blob> = (0..9).map(|i| blob(i, 100)).collect();
    assert_eq!(put(&mut world, all[..4].to_vec()), stored);
    // Named by its hash, and brought again: both live on.
    assert_eq!(put(&mut world, vec![Blob::known(*all[0].hash()), all[1].clone()]), stored);
    assert_eq!(put(&mut world, all[4..6].to_vec()), stored);
    let left = blobs(&mut world, &mut follower(), &all);
    assert_eq!(left, [true, true, false, false, true, true, false, false, false]);
    assert_eq!(put(&mut world, vec![Blob::known(*all[2].hash())]), Answer::Refused(Refusal::Missing));
    assert_eq!(put(&mut world, all[..5].to_vec()), Answer::Refused(Refusal::Full));
    // The same one twice counts once.
    assert_eq!(put(&mut world, vec![all[6].clone(), all[6].clone()]), stored);
    assert_eq!((world.rows(b't'), world.rows(b'b'), world.rows(b'o')), (4, 4, 4));
}

#[test]
fn idle_groups_are_removed_with_all_that_is_theirs_and_others_stay() {
    let (mut world, mut member) = founded(3);
    let mut other = Follower::new(crate::ids::GroupId::of(&key(5).public_bytes()), relay());
    progress(propose(&mut world, &mut other, b"f", Some(MEMBER), &key(5)));
    let rows_of_other =
        world.storage.rows().filter(|(key, _)| key.windows(32).any(|it| *it == other.group().0)).count();
    let call = member.propose(
        entry(b"x", None),
        (0..90).map(|i| blob(i, 9)).collect(),
        vec![(device(1), vec![1])],
        &key(MEMBER),
    );
    progress(exchange(&mut world, &mut member, &call.unwrap()));
    let last = package(&world, 1, 1000 * DAY);
    put(&mut world, 1, vec![last.clone()], Some(last), &joiner()).unwrap();
    world.pass(100 * DAY);
    progress(propose(&mut world, &mut other, b"x", None, &key(MEMBER)));
    world.sweep();
    assert!(world.rows(b'g') == 2 && world.rows(b't') == 90);
    world.pass(100 * DAY);
    // While rows are being removed, nobody founds the group anew on what is left.
    let writes = world.directory.sweep(world.now, &world.storage).unwrap();
    world.storage.apply(writes);
    let again = propose(&mut world, &mut follower(), b"again", None, &joiner());
    assert!(matches!(again, Ok(Answer::Refused(Refusal::RateLimited { .. }))));
    world.sweep();
    let left = world.storage.rows().filter(|(key, _)| key.windows(32).any(|it| *it == group().0)).count();
    let kept = world.storage.rows().filter(|(key, _)| key.windows(32).any(|it| *it == other.group().0)).count();
    assert_eq!((left, world.rows(b'g')), (1, 1), "a note of when the packages expire");
    assert!(kept >= rows_of_other, "{kept} of {rows_of_other}");
    let call = member.read();
    let forgot = Err(Misbehaviour::RolledBack { had: 4, now: 0 });
    assert_eq!(exchange(&mut world, &mut member, &call), forgot, "its members notice");
    progress(propose(&mut world, &mut follower(), b"again", None, &joiner()));
    world.pass(1000 * DAY);
    world.sweep();
    assert_eq!(world.storage.rows().count(), 1, "the number of groups: 0");
}

#[test]
fn without_a_clock_nothing_expires_and_a_clock_that_comes_later_removes_nothing_at_once() {
    let mut world = World::new();
    let utc = world.now.utc.take();
    let mut member = follower();
    let call = member.propose(entry(b"f", Some(MEMBER)), vec![], vec![(device(1), vec![1])], &joiner()).unwrap();
    progress(exchange(&mut world, &mut member, &call));
    let package = Package { expires: Utc(5), bytes: vec![3] };
    put(&mut world, 1, vec![package], None, &joiner()).unwrap();
    world.sweep();
    assert_eq!(mail(&mut world, device(1), 0).0.len(), 1);
    assert_eq!(take(&mut world), Some((3, false, 0)));
    world.now.utc = utc;
    world.sweep();
    assert_eq!(catch_up_count(&mut world), 1);
    world.pass(179 * DAY);
    world.sweep();
    assert_eq!(catch_up_count(&mut world), 1);
    world.pass(3 * DAY);
    world.sweep();
    assert_eq!(world.rows(b'g'), 0);
}

fn catch_up_count(world: &mut World) -> usize {
    crate::fixture::catch_up(world, &mut follower()).unwrap().len()
}
