//! Changes whose secrets members derive from those before: what that gives to nobody else.

use sealcast_crypto::identity::Act;
use sealcast_wire::limits::{COMPARTMENTS_MAX, EPOCH_ENTRY_BYTES_MAX};
use sealcast_wire::{Domain, Dropped, EpochId, MemberId};

use super::net::{Net, REKEY, open, seal};
use super::realm::{ALL, GROUP, PLAIN};
use crate::center::epoch::{Drawn, Made, derive, draw, make};
use crate::center::message::{Commit, Content, Gone, Message, Part, Propose, lock};
use crate::center::pair::PairKey;
use crate::{Command, HandleError, Misbehaviour};

/// A leader and three others, together for a while, whose last change was drawn afresh.
fn group() -> (Net, Vec<usize>) {
    let mut net = Net::new(1);
    let mut all = vec![net.start("leader", ALL)];
    net.for_millis(700);
    all.extend(["stand-by", "alice", "bob"].map(|name| net.start(name, if name == "stand-by" { ALL } else { PLAIN })));
    net.meet(&all, 3000);
    net.for_millis(1500);
    net.command(all[0], Command::Rotate);
    net.for_millis(200);
    assert!(net.together(&all) && net.leader(all[3]) == net.hash(all[0]));
    net.tapped.clear();
    (net, all)
}

/// What the leader said of changes: each with whether it was one-way, and whose entries came.
fn commits(net: &Net) -> Vec<(Propose, Commit)> {
    let heard = net.heard();
    let proposals: Vec<&Propose> =
        heard.iter().filter_map(|it| if let Message::Propose(it) = it { Some(it) } else { None }).collect();
    let pair = |it: &Message| {
        let Message::Commit(commit) = it else { return None };
        let of = proposals.iter().find(|propose| propose.id() == commit.proposal)?;
        Some(((*of).clone(), commit.clone()))
    };
    heard.iter().filter_map(pair).collect()
}

/// A change that the leader makes by its program's own parts, outside of its protocol.
struct Crafted {
    content: Content,
    drawn: Drawn,
    keys: Vec<Option<PairKey>>,
}

fn craft(net: &mut Net, members: &[MemberId], base: EpochId, gone: Vec<(u16, Gone)>) -> Crafted {
    let leader = members[0];
    let keys = net.nodes[0].keys.as_mut().unwrap();
    let (counter, attempt, slots) = (keys.epoch().counter + 1, 9000, members.to_vec());
    let mut content = Content { leader, base, counter, attempt, lock: [0; 32], gone, slots };
    let table = keys.table_of(&content).unwrap();
    let drawn = draw(keys, &mut content, table, true);
    let of_leader = |it: &MemberId| keys.leads.key_with(GROUP, &leader, it).filter(|_| *it != leader);
    let pairs = members.iter().map(of_leader).collect();
    Crafted { content, drawn, keys: pairs }
}

fn handed_out(net: &Net, it: &Crafted, of_base: &[bool]) -> Made {
    make(net.nodes[0].keys.as_ref().unwrap(), &it.content, &it.drawn, [1; 32], &it.keys, of_base)
}

fn members(net: &Net, all: &[usize]) -> Vec<MemberId> {
    all.iter().map(|at| net.nodes[*at].me).collect()
}

#[test]
fn a_join_seals_for_newcomers_alone_and_they_read_nothing_of_before() {
    let (mut net, all) = group();
    let before = seal(&net.nodes[all[2]], Domain::GROUP, b"before").unwrap();
    let late = net.start("late", PLAIN);
    net.meet(&[all[0], all[1], all[2], all[3], late], 1000);
    let (propose, commit) = commits(&net).into_iter().next().unwrap();
    assert!(commit.nonce.is_some());
    let slots: Vec<u16> = commit.entries.iter().map(|(slot, _)| *slot).collect();
    let came: Vec<(u16, MemberId)> = propose.came.unwrap();
    assert_eq!((slots, came[0].1, came.len()), (vec![came[0].0], net.nodes[late].me, 1));
    assert_eq!(open(&net.nodes[late], &before), None);
}

/// A4, C1: with all secrets that they ever had, and all that was ever said, who left and who was revoked come to no later key.
#[test]
fn rule_c1_who_left_or_was_revoked_derives_no_later_key() {
    for revoked in [false, true] {
        let (mut net, all) = group();
        let cert = net.hash(all[3]);
        match revoked {
            true => net.command(all[0], Command::Evict { cert, reason: String::new() }),
            false => net.command(all[3], Command::Leave),
        }
        net.meet(&all[..3], 2000);
        let late = net.start("late", PLAIN);
        net.meet(&[all[0], all[1], all[2], late], 2000);
        let said = commits(&net);
        assert!(said.iter().any(|(_, it)| it.nonce.is_some()), "the last change was one-way");
        let bob = net.nodes[all[3]].keys.as_ref().unwrap().installed.as_ref().unwrap();
        let leader = net.nodes[all[0]].keys.as_ref().unwrap();
        // Rosters, oldest first, from the one that bob was in.
        let mut slots = bob.slots.clone();
        for (propose, commit) in &said {
            let content = propose.applied(&slots).unwrap();
            slots.clone_from(&content.slots);
            let leaves = propose.base == bob.epoch;
            assert_eq!(commit.nonce.is_none(), leaves, "a change in which somebody goes is drawn afresh");
            let table = leader.table_of(&content).unwrap();
            for slot in 0..content.slots.len() {
                let derived = derive(bob, &content, &table, commit, (slot, &commit.nonce.unwrap_or_default()));
                assert_eq!(derived.err(), Some(Dropped::Conflict));
            }
        }
        assert!(slots.len() == 4 && slots.iter().all(|it| it.cert != cert));
        let sealed = seal(&net.nodes[late], Domain::GROUP, b"secret").unwrap();
        assert_eq!(open(&net.nodes[all[3]], &sealed), None);
    }
}

/// A3: a leader that has members derive a key which somebody who goes derives, too, is named.
#[test]
fn rule_a3_a_change_in_which_somebody_goes_is_never_taken_one_way() {
    let (mut net, all) = group();
    let stay = members(&net, &[all[0], all[1], all[3]]);
    let base = net.view(all[3]).epoch;
    let slots = net.nodes[all[3]].keys.as_ref().unwrap().installed.as_ref().unwrap().slots.clone();
    let alice = slots.iter().position(|it| *it == net.nodes[all[2]].me).unwrap() as u16;
    let mut crafted = craft(&mut net, &stay, base, vec![(alice, Gone::Left)]);
    assert_eq!(crafted.drawn.nonce, None, "our own program makes none");
    let (nonce, commitments) = ([5; 32], handed_out(&net, &crafted, &[true; 3]).commit.commitments);
    crafted.content.lock = lock(Some(&nonce), &commitments);
    let id = crafted.content.id();
    assert_eq!(net.propose(all[3], all[0], &crafted.content), Ok(()));
    net.for_millis(20);
    let commit = Commit { proposal: id, cut: [1; 32], nonce: Some(nonce), commitments, entries: Vec::new() };
    let named = Err(HandleError::Misbehaved(net.hash(all[0]), Misbehaviour::WrongValue));
    assert_eq!(net.say(all[3], &Message::Commit(commit)), named);
    assert_eq!(net.view(all[3]).epoch, base);
}

/// A13: the same if what is derived is not what the leader committed to.
#[test]
fn rule_a13_a_leader_that_commits_to_another_secret_than_is_derived_is_named() {
    let (mut net, all) = group();
    let (all_of_them, base) = (members(&net, &all), net.view(all[3]).epoch);
    let mut crafted = craft(&mut net, &all_of_them, base, Vec::new());
    let (nonce, commitments) = (crafted.drawn.nonce.unwrap(), vec![[7; 32]]);
    crafted.content.lock = lock(Some(&nonce), &commitments);
    let id = crafted.content.id();
    assert_eq!(net.propose(all[3], all[0], &crafted.content), Ok(()));
    net.for_millis(20);
    let commit = Commit { proposal: id, cut: [1; 32], nonce: Some(nonce), commitments, entries: Vec::new() };
    let named = Err(HandleError::Misbehaved(net.hash(all[0]), Misbehaviour::WrongValue));
    assert_eq!(net.say(all[3], &Message::Commit(commit)), named);
}

/// A13, G3: only the nonce that the leader vouched for in this very change makes a key.
#[test]
fn rule_a13_a_forged_or_replayed_nonce_makes_no_key() {
    let (mut net, all) = group();
    let late = net.start("late", PLAIN);
    net.meet(&[all[0], all[1], all[2], all[3], late], 1000);
    let (_, old) = commits(&net).into_iter().find(|(_, it)| it.nonce.is_some()).unwrap();
    let (five, base) = (members(&net, &[all[0], all[1], all[2], all[3], late]), net.view(all[3]).epoch);
    let crafted = craft(&mut net, &five, base, Vec::new());
    let right = handed_out(&net, &crafted, &[true; 5]).commit;
    assert!(right.nonce.is_some() && right.nonce != old.nonce);
    assert_eq!(net.propose(all[3], all[0], &crafted.content), Ok(()));
    net.for_millis(20);
    let auth = Err(Dropped::Auth.into());
    for nonce in [Some([9; 32]), old.nonce, None] {
        assert_eq!(net.say(all[3], &Message::Commit(Commit { nonce, ..right.clone() })), auth);
        let replayed = Commit { nonce, commitments: old.commitments.clone(), ..right.clone() };
        assert_eq!(net.say(all[3], &Message::Commit(replayed)), auth);
    }
    assert_eq!(net.say(all[3], &Message::Commit(old)), Err(Dropped::Stale.into()));
    assert_eq!((net.view(all[3]).epoch, net.convicted.len()), (base, 0));
    assert_eq!(net.say(all[3], &Message::Commit(right)), Ok(()));
    assert_eq!(net.view(all[3]).epoch.counter, base.counter + 1);
}

/// B4: who was not in the base has nothing to derive from. Its entry, sealed for it alone, brings it in.
#[test]
fn rule_b4_who_missed_the_base_comes_in_by_a_sealed_entry_alone() {
    let (mut net, all) = group();
    let missed = net.view(all[3]).epoch;
    // The others went on without bob, and are in an epoch that he never had.
    let base = EpochId { hash: missed.hash ^ 1, ..missed };
    net.nodes[all[0]].keys.as_mut().unwrap().installed.as_mut().unwrap().epoch = base;
    let all_of_them = members(&net, &all);
    let crafted = craft(&mut net, &all_of_them, base, Vec::new());
    let mut made = handed_out(&net, &crafted, &[true, true, true, false]);
    assert!(made.commit.nonce.is_some() && made.entries[2].is_empty() && !made.entries[3].is_empty());
    assert_eq!(net.propose(all[3], all[0], &crafted.content), Ok(()));
    assert!(net.nodes[all[3]].keys.as_ref().unwrap().follows.is_none(), "it lacks the roster, too");
    let leads = &net.nodes[all[0]].keys.as_ref().unwrap().leads;
    let slots = all_of_them.iter().map(|it| (*it, leads.salt_with(&it.cert).unwrap_or_default())).collect();
    let mut part = Part { proposal: crafted.content.id(), part: 0, slots, signature: [0; 64] };
    part.signature = net.nodes[all[0]].principal.origin_key().sign(&part.statement());
    assert_eq!(net.say(all[3], &Message::Roster(part)), Ok(()));
    net.for_millis(20);
    assert_eq!(net.say(all[3], &Message::Commit(made.commit.clone())), Err(Dropped::Foreign.into()));
    assert_eq!(net.view(all[3]).epoch, missed);
    made.commit.entries.push((3, made.entries[3].clone()));
    assert_eq!(net.say(all[3], &Message::Commit(made.commit)), Ok(()));
    assert_eq!(net.view(all[3]).epoch.counter, missed.counter + 1);
}

#[test]
fn a_merge_is_never_one_way() {
    let (mut net, all) = group();
    let others: Vec<usize> = ["x", "y", "z"].map(|name| net.start(name, ALL)).to_vec();
    others.iter().for_each(|at| net.parts[*at] = 1);
    net.for_millis(2000);
    assert!(net.together(&all) && net.together(&others), "{:?}", net.seen());
    net.parts.fill(0);
    net.tapped.clear();
    let whole = [all, others].concat();
    net.meet(&whole, 4000);
    let last = net.view(whole[0]).epoch;
    let grew = |it: &Propose| it.size > 4;
    let said = commits(&net);
    assert!(said.iter().any(|(propose, _)| grew(propose) && propose.counter <= last.counter));
    assert!(said.iter().filter(|(propose, _)| grew(propose)).all(|(_, it)| it.nonce.is_none()));
}

/// However many come, the key that a former leak gives is replaced when it is old.
#[test]
fn rule_a5_joins_do_not_put_off_a_fresh_secret() {
    let (mut net, all) = group();
    let mut last = None;
    for i in 0..10 {
        net.for_millis(REKEY.as_millis() as u64 / 8);
        last = Some(net.start(&format!("late{i}"), PLAIN));
        net.for_millis(500);
    }
    let whole: Vec<usize> = all.iter().copied().chain(4..=last.unwrap()).collect();
    assert!(net.together(&whole), "{:?}", net.seen());
    let fresh = commits(&net).iter().filter(|(_, it)| it.nonce.is_none()).count();
    assert!(fresh >= 1, "{fresh}");
    assert!(commits(&net).iter().filter(|(_, it)| it.nonce.is_some()).count() >= 9);
}

/// A8: newcomers who read a part of the topics get that part alone, and one that only writes gets its sending key.
#[test]
fn rule_a8_a_one_way_change_gives_newcomers_their_own_rings_alone() {
    use sealcast_crypto::identity::Act;
    let mut net = Net::new(12);
    let leader = net.start("leader", ALL);
    let poser = net.start("poser", &[(Act::Both, "pose/#")]);
    let logger = net.start("logger", &[(Act::Publish, "log/#")]);
    net.meet(&[leader, poser, logger], 3000);
    net.for_millis(500);
    net.tapped.clear();
    let second = net.start("poser2", &[(Act::Both, "pose/#")]);
    net.meet(&[leader, poser, logger, second], 2000);
    let (propose, commit) = commits(&net).into_iter().next().unwrap();
    assert!(commit.nonce.is_some());
    let places = net.nodes[leader].keys.as_ref().unwrap().installed.as_ref().unwrap().slots.clone();
    assert_eq!(usize::from(propose.size), places.len());
    let mut slots: Vec<MemberId> = commit.entries.iter().map(|(slot, _)| places[usize::from(*slot)]).collect();
    slots.sort();
    // A member that writes some of a part which it does not read is given its sending key.
    let mut expect = [poser, logger, second].map(|at| net.nodes[at].me);
    expect.sort();
    assert_eq!(slots, expect);
    let access = net.nodes[leader].views.last().unwrap().access.clone();
    let (pose, rest) = (access.domain("pose/1").unwrap(), access.domain("log/1").unwrap());
    let of = |at: usize, domain| seal(&net.nodes[at], domain, b"x");
    assert!([poser, second].iter().all(|at| open(&net.nodes[*at], &of(leader, pose).unwrap()).is_some()));
    assert!([poser, second].iter().all(|at| open(&net.nodes[*at], &of(leader, rest).unwrap()).is_none()));
    let logged = of(logger, rest).unwrap();
    assert!(open(&net.nodes[leader], &logged).is_some() && open(&net.nodes[second], &logged).is_none());
}

/// Data, stamps and rekeys fit one packet: with as many compartments as there may be, and a member that writes all of them and
/// reads none.
#[test]
fn the_largest_entry_of_a_change_fits_one_packet() {
    let mut net = Net::new(1);
    let mut all = vec![net.start("leader", ALL)];
    net.for_millis(700);
    for i in 1..COMPARTMENTS_MAX {
        all.push(net.start(&format!("reader {i}"), &[(Act::Subscribe, &format!("t{i}/#"))]));
    }
    all.extend(["one", "two"].map(|name| net.start(name, &[(Act::Publish, "#")])));
    net.meet(&all, 8000);
    net.for_millis(1500);
    for rotates in [true, false] {
        net.tapped.clear();
        if rotates {
            net.command(all[0], Command::Rotate);
        } else {
            all.push(net.start("three", &[(Act::Publish, "#")]));
        }
        net.for_millis(600);
        assert!(net.together(&all), "{:?}", net.seen());
        let commits: Vec<Commit> = net
            .heard()
            .into_iter()
            .filter_map(|it| if let Message::Commit(it) = it { Some(it) } else { None })
            .collect();
        assert!(commits.iter().all(|it| it.commitments.len() == COMPARTMENTS_MAX + 1 && it.nonce.is_none() == rotates));
        let entries = commits.iter().flat_map(|it| &it.entries).map(|(_, sealed)| sealed.len());
        assert_eq!(entries.max(), Some(EPOCH_ENTRY_BYTES_MAX));
        let longest = net.tapped.iter().map(Vec::len).max();
        assert!(longest.is_some_and(|it| it <= 1280 - 28), "{longest:?}");
    }
}
