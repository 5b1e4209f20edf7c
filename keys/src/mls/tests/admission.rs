//! Devices that wait, many of them in one commit, and those that are away.

use sealcast_wire::{Fetch, Utc};

use super::net::{NOW, Net};
use crate::mls::engine::Engine as _;
use crate::mls::engine::mls_rs::MlsRs;
use crate::{Command, Exclusion, Input, Keys, NotAdmitted, Notice};

/// So many members, and as many devices more that wait.
fn with_waiting(members: usize, waiting: usize, seed: u64, directory: bool) -> Net {
    let mut net = Net::new(members + waiting, seed);
    (0..members).for_each(|node| {
        net.start_as(node, |config| config.directory = directory);
        net.run(2_000);
    });
    (members..members + waiting).for_each(|node| wait(&mut net, node, directory));
    net.run(3_000);
    net.assert_together(&(0..members).collect::<Vec<_>>());
    net
}

fn wait(net: &mut Net, node: usize, directory: bool) {
    net.start_as(node, |config| (config.directory, config.founds, config.joins) = (directory, false, false));
}

fn admit(net: &mut Net, by: usize, whom: impl IntoIterator<Item = usize>) {
    let all = whom.into_iter().map(|it| Command::Admit { cert: net.cert(it) }).collect();
    net.command(by, Command::Batch(all));
}

fn epoch(net: &Net, node: usize) -> u64 {
    net.nodes[node].keys.as_ref().unwrap().inside().unwrap().engine_epoch()
}

fn refused(net: &Net, node: usize) -> Vec<NotAdmitted> {
    let why = |it: &Notice| if let Notice::NotAdmitted { why, .. } = it { Some(*why) } else { None };
    net.nodes[node].notices.iter().filter_map(why).collect()
}

#[test]
fn many_that_wait_are_listed_and_come_in_with_one_commit() {
    for directory in [true, false] {
        let mut net = with_waiting(2, 9, 3, directory);
        assert_eq!(net.pending(1), (2..11).collect::<Vec<_>>(), "with a directory: {directory}");
        let names: Vec<&str> = net.nodes[1].pending.iter().map(|it| it.name.as_str()).collect();
        assert!(names.contains(&"m7"), "{names:?}");
        let before = epoch(&net, 0);
        admit(&mut net, 1, 2..11);
        net.run(6_000);
        net.assert_together(&(0..11).collect::<Vec<_>>());
        assert_eq!(epoch(&net, 0), before + 1, "one commit lets all of them in");
        assert_eq!(net.pending(1), [0; 0]);
        assert!(refused(&net, 1).is_empty());
    }
}

#[test]
fn a_single_use_secret_is_erased_by_its_use_and_the_others_stay() {
    let mut net = with_waiting(2, 1, 4, true);
    let cert = net.cert(2);
    assert_eq!(net.single_use[&cert].len(), 16);
    assert_eq!(net.nodes[2].keys.as_ref().unwrap().packages_kept(), (16, 1));
    admit(&mut net, 0, [2]);
    net.run(3_000);
    net.assert_together(&[0, 1, 2]);
    assert_eq!(net.single_use[&cert].len(), 15, "it was handed out");
    assert_eq!(net.nodes[2].keys.as_ref().unwrap().packages_kept(), (15, 1), "and its secret is gone");
    // So it is on disk.
    net.crash(2);
    net.start(2);
    net.run(3_000);
    assert_eq!(net.nodes[2].keys.as_ref().unwrap().packages_kept().0, 15);
    net.assert_together(&[0, 1, 2]);
}

#[test]
fn few_packages_are_filled_up_and_a_directory_that_lies_gets_no_more_each_time() {
    let mut net = with_waiting(1, 1, 5, true);
    let cert = net.cert(1);
    for left in [9, 8, 7] {
        net.single_use.get_mut(&cert).unwrap().truncate(left);
        net.crash(1);
        wait(&mut net, 1, true);
        net.run(1_000);
        assert_eq!(net.single_use[&cert].len(), if left < 8 { 16 } else { left });
    }
    // It says at once that none is there, and once more.
    let now = net.now();
    for _ in 0..5 {
        net.nodes[1].keys.as_mut().unwrap().handle(now, Input::PackagesKept(0)).unwrap();
    }
    net.run(1_000);
    assert_eq!(net.single_use[&cert].len(), 16);
    assert!(net.nodes[1].keys.as_ref().unwrap().packages_kept().0 <= 32);
}

#[test]
fn rule_d1_a_crash_while_a_welcome_is_applied_loses_neither_the_group_nor_leaves_the_secret() {
    for millis in 0..10 {
        let mut net = with_waiting(2, 1, 6, true);
        admit(&mut net, 0, [2]);
        net.run(millis);
        net.crash(2);
        net.run(20);
        wait(&mut net, 2, true);
        net.run(5_000);
        net.assert_together(&[0, 1, 2]);
        assert_eq!(net.nodes[2].keys.as_ref().unwrap().packages_kept().0, 15, "after {millis} ms");
    }
}

#[test]
fn a_device_that_is_off_comes_in_later_though_all_members_are_off() {
    for rotated in [0, 3] {
        let mut net = with_waiting(2, 2, 7, true);
        net.crash(2);
        net.crash(3);
        admit(&mut net, 1, [2, 3]);
        net.run(2_000);
        // What comes behind its Welcome it finds in the log.
        for _ in 0..rotated {
            net.command(0, Command::Rotate);
            net.run(500);
        }
        let last = epoch(&net, 0);
        net.crash(0);
        net.crash(1);
        wait(&mut net, 2, true);
        net.run(5_000);
        assert_eq!(epoch(&net, 2), last, "after {rotated} more commits");
        assert_eq!(net.nodes[2].views.last().unwrap().view.members.len(), 4);
        [0, 1].into_iter().for_each(|node| net.start(node));
        wait(&mut net, 3, true);
        net.run(5_000);
        net.assert_together(&[0, 1, 2, 3]);
        let mail = net.mail.values().map(|(mail, fetched)| mail.len() - usize::from(*fetched)).sum::<usize>();
        assert_eq!(mail, 0, "what was read is deleted");
    }
}

#[test]
fn a_welcome_that_the_directory_lost_is_replaced_by_the_way_of_those_who_have_a_leaf() {
    let mut net = with_waiting(2, 1, 8, true);
    net.crash(2);
    admit(&mut net, 1, [2]);
    net.run(2_000);
    net.mail.clear();
    wait(&mut net, 2, true);
    net.run(5_000);
    net.assert_together(&[0, 1, 2]);
}

#[test]
fn mail_of_no_use_is_passed_over() {
    let mut net = with_waiting(2, 1, 9, true);
    net.crash(2);
    let cert = net.cert(2);
    let mail = &mut net.mail.entry(cert).or_default().0;
    mail.extend([vec![], vec![7; 300]]);
    admit(&mut net, 1, [2]);
    net.run(2_000);
    net.crash(0);
    net.crash(1);
    wait(&mut net, 2, true);
    net.run(5_000);
    assert_eq!(net.nodes[2].views.last().unwrap().view.members.len(), 3);
}

#[test]
fn who_cannot_be_let_in_is_named_with_the_reason_and_keeps_nobody_else_out() {
    for directory in [true, false] {
        let mut net = with_waiting(2, 4, 10, directory);
        // Nobody has a package of m3, and m4 is revoked.
        let (certs, now) = ([2, 3, 4, 5].map(|it| net.cert(it)), net.now().utc.unwrap());
        net.pending(1);
        [0, 1].into_iter().for_each(|it| net.nodes[it].keys.as_mut().unwrap().forget_package(&certs[1]));
        net.single_use.remove(&certs[1]);
        net.directory.remove(&Fetch::KeyPackage(certs[1]));
        net.crash(3);
        let serial = net.nodes[4].identity.certificate().serial;
        assert!(net.authority.revoke(serial, now).unwrap());
        let crl = net.authority.crl(now, 86_400).unwrap();
        net.command(0, Command::Learn(crl));
        net.run(3_000);
        assert!(!net.pending(1).contains(&4), "the revoked are not listed");
        let before = epoch(&net, 0);
        admit(&mut net, 1, [2, 3, 4, 5]);
        net.run(20_000);
        net.assert_together(&[0, 1, 2, 5]);
        assert_eq!(epoch(&net, 0), before + 1);
        let mut why = refused(&net, 1);
        why.sort();
        assert_eq!(why, [NotAdmitted::NoPackage, NotAdmitted::Refused], "with a directory: {directory}");
    }
}

#[test]
fn an_expired_package_and_one_that_is_none_are_refused_before_a_commit() {
    let mut net = with_waiting(2, 2, 11, true);
    let certs = [2, 3].map(|it| net.cert(it));
    net.crash(2);
    net.crash(3);
    let other = net.single_use.get_mut(&certs[0]).unwrap().pop_front().unwrap();
    net.single_use.get_mut(&certs[1]).unwrap().push_front(other);
    let before = epoch(&net, 0);
    admit(&mut net, 0, [3]);
    net.run(2_000);
    assert_eq!(refused(&net, 0), [NotAdmitted::Unfit]);
    // Certificates last for 30 days here, and packages for 90: the clock of one member alone is ahead.
    let late = Utc(NOW.0 + 91 * 86_400);
    net.clock_of_all = Some(late);
    admit(&mut net, 0, [2]);
    net.run(2_000);
    assert_eq!(refused(&net, 0), [NotAdmitted::Unfit, NotAdmitted::Expired]);
    assert_eq!(epoch(&net, 0), before, "nothing was committed");
}

/// Members and devices some of which have no clock, a month after their certificates were issued: more than the newest date
/// that those know.
fn with_clocks_missing(seed: u64, directory: bool, missing: &[usize]) -> Net {
    let mut net = Net::new(5, seed);
    net.without_clock.extend(missing);
    net.clock_of_all = Some(Utc(NOW.0 + 29 * 86_400));
    (0..3).for_each(|node| {
        net.start_as(node, |config| config.directory = directory);
        net.run(2_000);
    });
    (3..5).for_each(|node| wait(&mut net, node, directory));
    net.run(3_000);
    net.assert_together(&[0, 1, 2]);
    net
}

#[test]
fn rule_g5_members_and_devices_without_a_clock_let_each_other_in() {
    // The one who admits, one who reads its commit, one device, and all.
    for missing in [&[0][..], &[1], &[3], &[0, 3], &[0, 1, 2, 3, 4]] {
        for directory in [true, false] {
            let mut net = with_clocks_missing(17, directory, missing);
            let before = epoch(&net, 0);
            admit(&mut net, 0, [3, 4]);
            net.run(6_000);
            net.assert_together(&[0, 1, 2, 3, 4]);
            assert_eq!(epoch(&net, 0), before + 1, "without {missing:?}, all follow one commit");
            assert!(refused(&net, 0).is_empty());
        }
    }
}

#[test]
fn rule_g5_a_package_of_a_device_without_a_clock_ends_with_its_certificate() {
    let mut net = with_clocks_missing(18, true, &[2, 3]);
    let package = net.single_use[&net.cert(3)].front().unwrap().clone();
    let read = |net: &Net| {
        let member = net.nodes[0].keys.as_ref().unwrap();
        let (package, _) = member.read_package(net.cert(3), &package).unwrap();
        MlsRs::inspect_key_package(&package).unwrap()
    };
    let (from, certificate) = (read(&net).from, net.nodes[3].identity.certificate().clone());
    assert_eq!(from, Utc(certificate.not_before.0 - 3600), "it is the newest date that the device knows");
    assert_eq!(read(&net).until, certificate.not_after);
    // A clock shows the member that admits when that is over: to the second, though readers leave a margin.
    net.clock_of_all = Some(Utc(certificate.not_after.0 + 1));
    admit(&mut net, 1, [3]);
    net.run(2_000);
    assert_eq!(refused(&net, 1), [NotAdmitted::Expired]);
}

#[test]
fn rule_g5_the_date_of_the_group_s_list_is_known_without_a_clock() {
    let mut net = with_clocks_missing(19, true, &[0, 1, 2, 3]);
    let ended = Utc(net.nodes[3].identity.certificate().not_after.0 + 7200);
    let crl = net.authority.crl(ended, 90 * 86_400).unwrap();
    net.command(0, Command::Learn(crl));
    net.run(2_000);
    let before = epoch(&net, 0);
    admit(&mut net, 0, [3]);
    net.run(2_000);
    assert_eq!(refused(&net, 0), [NotAdmitted::Refused]);
    assert_eq!(epoch(&net, 0), before);
}

#[test]
fn members_are_not_admitted_twice() {
    let mut net = with_waiting(3, 1, 12, true);
    let before = epoch(&net, 0);
    admit(&mut net, 0, [1, 2]);
    net.run(2_000);
    assert_eq!(epoch(&net, 0), before);
    // By three members at once, and by one twice.
    (0..3).for_each(|by| admit(&mut net, by, [3]));
    admit(&mut net, 0, [3]);
    net.run(6_000);
    net.assert_together(&[0, 1, 2, 3]);
    assert_eq!(epoch(&net, 0), before + 1);
}

#[test]
fn more_than_a_lot_come_in_lot_by_lot() {
    let mut net = with_waiting(1, 70, 13, true);
    let before = epoch(&net, 0);
    admit(&mut net, 0, 1..71);
    net.run(10_000);
    assert_eq!(epoch(&net, 0), before + 2, "64 of them, and 6");
    let all: Vec<usize> = (0..71).collect();
    for node in &all {
        assert_eq!(net.nodes[*node].views.last().unwrap().view.members.len(), 71);
    }
}

#[test]
fn all_devices_of_a_name_go_with_one_commit() {
    let mut net = with_waiting(5, 0, 14, true);
    let before = epoch(&net, 0);
    let evict = |it: usize| Command::Evict { cert: net.cert(it), reason: "left the company".into() };
    let all = vec![evict(2), evict(3)];
    net.command(0, Command::Batch(all));
    net.run(3_000);
    net.assert_together(&[0, 1, 4]);
    assert_eq!(epoch(&net, 0), before + 1);
    for out in [2, 3] {
        let why = Exclusion::Evicted { reason: "left the company".into() };
        assert_eq!(net.nodes[out].excluded, Some(why));
    }
}

#[test]
fn who_creates_a_group_founds_it_or_fails() {
    let mut net = Net::new(3, 15);
    let create = |net: &mut Net, node| net.start_as(node, |config| (config.founds, config.joins) = (true, false));
    create(&mut net, 0);
    net.run(2_000);
    net.assert_together(&[0]);
    create(&mut net, 1);
    net.run(3_000);
    assert_eq!(net.nodes[1].excluded, Some(Exclusion::Exists));
    // Of two at once, one.
    let mut net = Net::new(2, 16);
    create(&mut net, 0);
    create(&mut net, 1);
    net.run(5_000);
    let founders: Vec<usize> = (0..2).filter(|it| net.nodes[*it].excluded.is_none()).collect();
    assert_eq!(founders.len(), 1);
    net.assert_together(&founders);
}
