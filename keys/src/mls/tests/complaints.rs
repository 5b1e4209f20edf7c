//! Commits that some members cannot open, and complaints about them (D3).

use sealcast_crypto::signature::Algorithm;
use sealcast_wire::CertHash;

use super::formed;
use super::net::{GROUP, Net};
use crate::Exclusion;
use crate::mls::certificates::{Certificates, CredentialKind, Trust};
use crate::mls::complaints::{About, Complaint, Proved};
use crate::mls::judge::{Act, Credential, Judge, Refusal, What};
use crate::mls::message::Message;
use crate::mls::scheme::Phase;

/// How many complaints are in the order.
fn complaints(net: &Net) -> usize {
    let key = net.nodes[0].identity.bootstrap_key(GROUP);
    let is_one = |bytes: &[u8]| matches!(key.open(bytes).map(|it| Message::read(&it)), Ok(Ok(Message::Complaint(_))));
    net.log.iter().filter(|(_, bytes)| is_one(bytes)).count()
}

/// Members by their leaves, from the left: of a whole tree, an odd leaf's neighbour is the one before it.
fn by_leaf(net: &Net) -> Vec<usize> {
    let roster = &net.nodes[0].views.last().unwrap().view.members;
    let node = |cert: CertHash| (0..net.nodes.len()).find(|node| net.cert(*node) == cert).unwrap();
    roster.iter().map(|it| node(it.id.cert)).collect()
}

/// A member commits so that these cannot open it, or nobody else; nor can others who share a node with one of them.
fn commit_badly(net: &mut Net, by: usize, victims: Option<&[usize]>) {
    let certs = victims.map(|it| it.iter().map(|node| net.cert(*node)).collect::<Vec<CertHash>>());
    net.with(by, |keys, now| keys.commit_bad_path(now, certs.as_deref()));
}

#[test]
fn rule_d3_who_cannot_open_a_commit_complains_and_comes_in_anew() {
    for seed in 0..4 {
        let mut net = formed(4, seed);
        let at = by_leaf(&net);
        commit_badly(&mut net, at[3], Some(&[at[2]]));
        net.run(100);
        assert_eq!(complaints(&net), 1, "seed {seed}");
        net.run(10_000);
        // One alone does not say who is at fault.
        net.assert_together(&[0, 1, 2, 3]);
        assert_eq!(complaints(&net), 1, "seed {seed}");
    }
}

#[test]
fn rule_d3_complaints_of_two_names_remove_a_committer() {
    for seed in 0..4 {
        let mut net = formed(6, seed);
        let at = by_leaf(&net);
        commit_badly(&mut net, at[5], Some(&at[..2]));
        net.run(20_000);
        net.assert_together(&at[..5]);
        // It is told why, unless a member with an `evict` right did all in one commit.
        let Some(Exclusion::Evicted { reason }) = &net.nodes[at[5]].excluded else { panic!("seed {seed}") };
        assert!(["", "members could not open its commits"].contains(&reason.as_str()), "{reason}");
        // Neither with its state nor without it; also members that come later judge so.
        net.crash(at[5]);
        net.nodes[at[5]].records.clear();
        net.start(6);
        net.run(3_000);
        net.start_as(at[5], |config| config.founds = false);
        net.run(5_000);
        net.assert_together(&[&at[..5], &[6]].concat());
    }
}

#[test]
fn rule_d3_who_can_open_a_commit_counts_the_complaints_of_others() {
    for seed in 0..4 {
        let mut net = formed(6, seed);
        let at = by_leaf(&net);
        commit_badly(&mut net, at[5], Some(&at[..2]));
        net.run(5);
        // Nobody of the victims comes in again; the neighbour of the author is none.
        at[..4].iter().for_each(|node| net.nodes[*node].deaf = true);
        net.run(10_000);
        let author = net.cert(at[5]);
        let members = &net.nodes[at[4]].views.last().unwrap().view.members;
        assert!(members.find(&author).is_none(), "seed {seed}");
    }
}

#[test]
fn rule_d3_one_liar_removes_nobody_however_it_complains() {
    for seed in 0..4 {
        let mut net = formed(4, seed);
        for node in 0..4 {
            net.command(node, crate::Command::Rotate);
            net.run(1_000);
        }
        net.with(3, |keys, _| keys.complain_falsely());
        net.run(5_000);
        assert!(complaints(&net) > 6, "seed {seed}");
        net.assert_together(&[0, 1, 2, 3]);
        // A member that another one cannot follow later has two against it; it did what nobody else does.
        commit_badly(&mut net, 1, Some(&[2]));
        net.run(20_000);
        net.assert_together(&[0, 2, 3]);
    }
}

#[test]
fn rule_d3_a_group_that_nobody_but_the_author_of_a_commit_can_follow_is_founded_anew() {
    for (seed, silent) in [(0, false), (1, false), (2, true), (3, true)] {
        let mut net = formed(4, seed);
        let before = net.nodes[0].views.last().unwrap().view.epoch.counter;
        commit_badly(&mut net, 3, None);
        if silent {
            net.run(30);
            net.crash(3);
        }
        net.run(30_000);
        assert_eq!(complaints(&net), 3, "seed {seed}");
        net.assert_together(&[0, 1, 2]);
        assert!(net.nodes[0].views.last().unwrap().view.epoch.counter > before, "seed {seed}");
        // It is excluded there, too.
        net.crash(3);
        net.nodes[3].records.clear();
        net.start(3);
        net.run(5_000);
        net.assert_together(&[0, 1, 2]);
    }
}

#[test]
fn rule_d3_a_group_is_not_left_while_somebody_may_follow_it() {
    let mut net = formed(4, 1);
    let at = by_leaf(&net);
    net.crash(at[2]);
    commit_badly(&mut net, at[3], Some(&at[..2]));
    net.run(30);
    net.crash(at[3]);
    net.run(20_000);
    let is_outside = |net: &Net, node: usize| matches!(net.nodes[node].keys.as_ref().unwrap().phase, Phase::Outside(_));
    assert!(is_outside(&net, at[0]) && is_outside(&net, at[1]), "nobody else is there");
    net.start(at[2]);
    net.run(20_000);
    net.assert_together(&at[..3]);
}

#[test]
fn rule_d3_many_victims_come_in_anew_one_after_the_other() {
    let mut net = formed(12, 1);
    let before = net.log.len();
    let at = by_leaf(&net);
    let victims = &at[..10];
    commit_badly(&mut net, at[11], Some(victims));
    net.run(30_000);
    net.assert_together(&at[..11]);
    assert_eq!(complaints(&net), victims.len());
    // Of each its complaint, its external commit, and perhaps one that lost; of the others two that exclude the author.
    let ordered = net.log.len() - before;
    assert!(ordered < 4 * victims.len() + 6, "{ordered} messages in the order");
}

#[test]
fn rule_d3_a_victim_waits_longer_each_time() {
    let mut net = formed(3, 1);
    let (at, mut waits) = (by_leaf(&net), Vec::new());
    for _ in 0..6 {
        commit_badly(&mut net, at[0], Some(&[at[1]]));
        net.run(10);
        let began = net.time;
        while !matches!(net.nodes[at[1]].keys.as_ref().unwrap().phase, Phase::Inside(_)) {
            net.run(10);
        }
        waits.push(net.time - began);
        net.run(60_000);
        net.assert_together(&[0, 1, 2]);
    }
    assert_eq!(complaints(&net), 6);
    assert!(waits[0] < 1_000_000 && waits[5] > 8_000_000, "{waits:?}");
}

#[test]
fn rule_d3_complaints_in_a_group_context_are_judged_by_signature_and_name() {
    let net = Net::of(&[&[(sealcast_crypto::identity::Act::Both, "#")][..]; 4], Algorithm::Ed25519, 1);
    let anchor = net.nodes[0].identity.anchor().clone();
    let judge = Certificates::new(GROUP.into(), anchor, super::net::NOW, CredentialKind::X509);
    let credential = |node: usize| Credential::X509(vec![net.nodes[node].identity.certificate().der.to_vec()]);
    let about = |accused: CertHash| About { group_id: [1; 32], epoch: 3, commit: [2; 32], accused };
    let by = |node: usize, whom: usize| {
        let identity = &net.nodes[node].identity;
        let complaint = Complaint::new(GROUP, identity, about(net.cert(whom)));
        Proved { complaint, accuser: identity.certificate().clone() }
    };
    let permits = |complaints: Vec<Proved>| {
        let mut trust = Trust::new(GROUP);
        complaints.into_iter().for_each(|it| trust.complaints.insert(it));
        let new = [trust.extension()];
        let by = credential(0);
        judge.permit(&Act { by: &by, what: What::Extensions(&new), extensions: &[] }).map(|()| new)
    };
    let refused = Err(Refusal::Right);
    assert_eq!(permits(vec![by(1, 3)]), refused, "one name");
    assert_eq!(permits(vec![by(1, 3), by(1, 3)]), refused, "one name twice");
    assert_eq!(permits(vec![by(1, 3), by(3, 3)]), refused, "the accused itself");
    let mut forged = by(2, 3);
    forged.complaint.about.epoch += 1;
    assert_eq!(permits(vec![by(1, 3), forged]), refused, "a wrong signature");
    assert_eq!(permits(vec![by(0, 3), by(1, 3), by(2, 3)]), refused, "more than exclude it");
    let new = permits(vec![by(1, 3), by(2, 3)]).expect("two names");
    // From then on any member may remove it, and nobody may forget it.
    let (one, three) = (credential(1), credential(3));
    let remove = |extensions| judge.permit(&Act { by: &one, what: What::Remove(&three), extensions });
    assert_eq!((remove(&new), remove(&[])), (Ok(()), Err(Refusal::Right)));
    let forget = Act { by: &one, what: What::Extensions(&[]), extensions: &new };
    assert_eq!(judge.permit(&forget), Err(Refusal::Right));
}
