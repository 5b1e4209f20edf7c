//! Who may read and write, who is revoked, and what the authority says later.

use super::*;
use sealcast_crypto::identity::statement::{Compartment, OnStale, Policy};
use sealcast_wire::{Change, Dropped};

fn becomes_one(net: &mut Net, within_ms: u64) {
    assert!(net.run_until(within_ms, Net::is_one), "not one\n{}", net.describe());
}

fn last(net: &Net, i: usize) -> &Epoch {
    net.nodes[i].epochs.last().unwrap()
}

#[test]
fn rule_a8_compartments_ride_in_the_same_messages_and_only_their_readers_open_them() {
    let mut net = Net::new(1);
    let rights: [&[(Act, &str)]; 4] = [
        &[(Act::Both, "#")],
        &[(Act::Both, "pose/+")],
        &[(Act::Both, "pose/+"), (Act::Subscribe, "map/#")],
        &[(Act::Subscribe, "pose/+")],
    ];
    for (i, rights) in rights.into_iter().enumerate() {
        let identity = house().identity(&format!("a8-{i}"), rights);
        net.start(identity);
    }
    becomes_one(&mut net, 3_000);
    let c = net.counters();
    assert_eq!((c["R1"].0, c["R2"].0, c["KC"].0), (4, 4, 4), "all rings in one message each");
    for (topic, readers) in [("pose/1", &[0, 1, 2, 3][..]), ("map/hall", &[0, 2]), ("camera", &[0])] {
        let access = &last(&net, 0).access;
        let domain = access.domain(topic).unwrap();
        let sealed = seal(&last(&net, 0).protect, domain, topic.as_bytes());
        for i in 1..4 {
            let opened = open(&last(&net, i).protect, &sealed);
            match readers.contains(&i) {
                true => assert_eq!(opened.as_deref(), Ok(topic.as_bytes()), "{topic} {i}"),
                false => assert_eq!(opened, Err(Dropped::NoKey), "{topic} {i}"),
            }
            let slot = last(&net, i).view.me;
            assert_eq!(access.may_subscribe(slot, topic), readers.contains(&i), "{topic} {i}");
        }
    }
    assert!(last(&net, 0).access.must_sign("pose/1"), "node 3 reads and may not write it");
    assert!(!last(&net, 0).access.must_sign("camera"));
}

#[test]
fn rule_a1_a_writer_without_read_right_is_heard_and_hears_nothing() {
    for loss in [0, 15] {
        let mut net = Net::new(2);
        net.start(house().identity("a1-reader", &[(Act::Both, "#")]));
        net.start(house().identity("a1-second", &[(Act::Both, "#")]));
        let sensor = net.start(house().identity("a1-sensor", &[(Act::Publish, "log/+")]));
        net.loss = loss;
        becomes_one(&mut net, 10_000);
        net.run(4_000);
        let domain = last(&net, sensor).access.domain("log/1").unwrap();
        let sealed = seal(&last(&net, sensor).protect, domain, b"warm");
        for reader in [0, 1] {
            assert_eq!(open(&last(&net, reader).protect, &sealed).as_deref(), Ok(&b"warm"[..]), "loss {loss}");
        }
        let secret = seal(&last(&net, 0).protect, domain, b"for readers");
        assert_eq!(open(&last(&net, sensor).protect, &secret), Err(Dropped::NoKey));
        assert!(!last(&net, 0).access.may_publish(last(&net, sensor).view.me, "pose/1"));
    }
}

#[test]
fn a_member_with_a_p256_certificate_agrees_with_the_others() {
    let mut net = Net::new(3);
    for i in 0..3 {
        let identity = house().identity(&format!("p256-{i}"), &[(Act::Both, "#")]);
        net.start(identity);
    }
    net.start(robot(0));
    becomes_one(&mut net, 3_000);
    net.assert_one_key(&[0, 1, 2, 3]);
}

#[test]
fn rule_a10_a_revoked_member_is_out_while_it_runs_and_lists_never_go_back() {
    let mut net = Net::new(4);
    let (keep, revoked) = {
        let mut house = house();
        let keep: Vec<_> = (0..3).map(|i| house.identity(&format!("a10-{i}"), &[(Act::Both, "#")])).collect();
        (keep, house.identity("a10-revoked", &[(Act::Both, "#")]))
    };
    keep.iter().for_each(|i| _ = net.start(i.clone()));
    let victim = net.start(revoked.clone());
    becomes_one(&mut net, 3_000);
    let (old, new) = {
        let mut house = house();
        let old = house.authority.crl(UTC, 86_400).unwrap();
        house.authority.revoke(revoked.certificate().serial, UTC).unwrap();
        (old, house.authority.crl(UTC, 86_400).unwrap())
    };
    net.command(0, Command::Learn(new.clone())).unwrap();
    let before = net.epoch_of(1);
    let moved = |net: &Net| net.epoch_of(1) != before && net.are_one(&[0, 1, 2]);
    assert!(net.run_until(3_000, moved), "{}", net.describe());
    assert_eq!(net.nodes[victim].excluded, Some(Exclusion::Revoked));
    assert_eq!(last(&net, 1).view.change, Change::Evicted);
    assert_eq!(net.command(1, Command::Learn(old)), Err(crate::CommandError::Invalid), "never backwards");
    // It comes again; a newcomer that never heard of the list learns it from the others.
    let again = net.start(revoked);
    let fresh = net.start(house().identity("a10-fresh", &[(Act::Both, "#")]));
    let all = [0, 1, 2, fresh];
    assert!(net.run_until(5_000, |net| net.are_one(&all)), "{}", net.describe());
    net.run(1_000);
    assert!(net.nodes[fresh].keys.status(net.clock()).crl_number > 0);
    assert!(net.are_one(&all) && net.nodes[again].epochs.iter().all(|e| e.view.members.len() == 1));
    // What was stored survives a restart.
    let restarted = net.restart(0);
    assert!(net.nodes[restarted].keys.status(net.clock()).crl_number > 0);
}

#[test]
fn rule_a8_a_policy_reaches_all_and_the_next_epoch_follows_it() {
    let mut net = Net::new(5);
    for i in 0..3 {
        net.start(house().identity(&format!("policy-{i}"), &[(Act::Both, "#")]));
    }
    becomes_one(&mut net, 3_000);
    let line = |name: &str, p: &str| Compartment { name: name.into(), patterns: vec![p.parse().unwrap()] };
    let draft = Policy {
        group: GROUP.into(),
        number: 0,
        compartments: vec![line("motion", "pose/#"), line("rest", "#")],
        max_crl_age_seconds: None,
        on_stale: OnStale::Warn,
    };
    let policy = house().authority.policy(&draft).unwrap();
    net.command(2, Command::Learn(policy)).unwrap();
    net.run(500);
    assert!((0..3).all(|i| net.nodes[i].keys.status(net.clock()).policy_number > 0));
    let newcomer = net.start(house().identity("policy-late", &[(Act::Both, "#")]));
    becomes_one(&mut net, 3_000);
    let status = net.nodes[newcomer].keys.status(net.clock());
    let names: Vec<&str> = status.compartments.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(names, ["motion", "rest"]);
    assert_eq!(status.fingerprint(), net.nodes[0].keys.status(net.clock()).fingerprint());
}

#[test]
fn rule_a10_an_old_revocation_list_does_what_the_policy_says() {
    let mut net = Net::new(6);
    net.start(house().identity("stale-0", &[(Act::Both, "#")]));
    net.start(house().identity("stale-1", &[(Act::Both, "#")]));
    becomes_one(&mut net, 3_000);
    let draft = Policy {
        group: GROUP.into(),
        number: 0,
        compartments: vec![],
        max_crl_age_seconds: Some(1),
        on_stale: OnStale::RefuseJoins,
    };
    let policy = house().authority.policy(&draft).unwrap();
    net.command(0, Command::Learn(policy)).unwrap();
    net.run(61_000);
    assert!(net.nodes[0].notices.contains(&Notice::StaleCrl));
    let late = net.start(house().identity("stale-late", &[(Act::Both, "#")]));
    net.run(2_000);
    assert!(net.are_one(&[0, 1]) && net.nodes[late].epochs.iter().all(|e| e.view.members.len() == 1));
}

#[test]
fn rule_a13_the_epoch_id_names_the_transcript_and_every_member_confirms_it() {
    let mut net = Net::robots(7, 4, 0);
    net.keep_log = true;
    becomes_one(&mut net, 3_000);
    let confirmations: Vec<_> = net
        .log
        .iter()
        .filter_map(|(_, _, b)| if let Message::Kc(kc) = bootstrap_open(b) { Some(kc) } else { None })
        .collect();
    let epoch = net.epoch_of(0).unwrap();
    assert!(confirmations.len() == 4 && confirmations.iter().all(|kc| kc.epoch == epoch.hash));
    let commitment = confirmations[0].rings[0].1;
    assert!(confirmations.iter().all(|kc| kc.rings[0].1 == commitment), "one commitment to one key");
    let macs: BTreeSet<_> = confirmations.iter().map(|kc| kc.rings[0].0).collect();
    assert_eq!(macs.len(), 4, "each member's own proof");
}

#[test]
fn rule_g4_each_run_of_a_process_has_keys_of_its_own() {
    let mut net = Net::robots(8, 3, 0);
    becomes_one(&mut net, 3_000);
    let first = net.nodes[1].keys.me.id;
    let again = net.restart(1);
    becomes_one(&mut net, 5_000);
    let second = net.nodes[again].keys.me.id;
    assert_eq!(first.cert, second.cert);
    assert_ne!(first.incarnation, second.incarnation);
}

#[test]
fn rule_g7_every_state_of_waiting_has_a_time_out() {
    let mut net = Net::robots(9, 5, 30);
    net.loss = 30;
    for _ in 0..3_000 {
        let end = net.now + 2_000;
        while net.step(end) {}
        net.now = end;
        for i in 0..net.nodes.len() {
            let next = net.nodes[i].keys.timeout();
            assert!(next.is_some(), "node {i} waits for ever\n{}", net.describe());
        }
    }
}

#[test]
fn topic_names_never_travel_in_clear() {
    let mut net = Net::new(10);
    let secret = "plans/for/tomorrow";
    for i in 0..3 {
        net.start(house().identity(&format!("hidden-{i}"), &[(Act::Both, secret), (Act::Both, "#")]));
    }
    net.keep_log = true;
    becomes_one(&mut net, 3_000);
    let found = net.log.iter().any(|(_, _, b)| b.windows(5).any(|w| w == b"plans" || w == b"hidde"));
    assert!(!found);
}
