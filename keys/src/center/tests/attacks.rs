//! LSGC's weaknesses as attacks (research: LSGC 1.7), by outsiders who know the bootstrap key, by members, and by leaders.

use std::sync::Arc;

use proptest::prelude::*;
use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng as _};
use sealcast_crypto::identity::{Act, Right};
use sealcast_crypto::leighton_micali::{Master, Pair};
use sealcast_wire::{CertHash, Dropped, EpochId, Incarnation, MemberId, limits};

use super::net::Net;
use super::realm::{ALL, GROUP, PLAIN, now};
use crate::center::kdc::Registry as _;
use crate::center::message::{
    Accept, Ack, Beacon, Challenge, Commit, Content, Dismiss, Gone, Join, Lack, Message, Part, Wish, WishKind, lock,
};
use crate::center::pair::PairKey;
use crate::center::query::{Answer, Query, Refusal};
use crate::{Command, Exclusion, HandleError, Misbehaviour};

const AUTH: Result<(), HandleError> = Err(HandleError::Dropped(Dropped::Auth));

/// A leader, a stand-by and two others; their nodes.
fn group() -> (Net, Vec<usize>) {
    let mut net = Net::new(1);
    let mut all = vec![net.start("leader", ALL)];
    net.for_millis(700);
    all.push(net.start("stand-by", ALL));
    all.extend(["alice", "bob"].map(|name| net.start(name, PLAIN)));
    net.meet(&all, 3000);
    net.for_millis(1500);
    assert_eq!(net.leader(all[3]), net.hash(all[0]));
    (net, all)
}

fn epochs(net: &Net, all: &[usize]) -> Vec<EpochId> {
    all.iter().map(|at| net.view(*at).epoch).collect()
}

/// The key that a pair has which an insider knows: it asks the centre as the leader does.
fn pair_key(net: &mut Net, leader: usize, member: usize) -> (PairKey, [u8; 16]) {
    let (from, to) = (net.hash(leader), net.hash(member));
    let keys = net.nodes[leader].principal.long_term.clone();
    let bytes = net.realm.kdc.answer(now(net.time), &Query::Pair(to).write(&from, &[1; 16], &keys)).unwrap();
    let Answer::Granted(number, granted) = Answer::read(&bytes).unwrap().check(&keys).unwrap() else { panic!() };
    let pair = Pair { from: from.0, to: to.0, nonce: [1; 16] };
    let sigma = keys.unmask(&pair, &granted, &number.to_be_bytes()).unwrap();
    let (leader, member) = (net.nodes[leader].me, net.nodes[member].me);
    (PairKey::new("ward3", &sigma, &leader, &member), granted.salt)
}

/// The key of a leader and a member, which the member knows.
fn shown_key(net: &Net, leader: usize, member: usize) -> PairKey {
    let (from, to) = (net.nodes[leader].me, net.nodes[member].me);
    let salt = net.nodes[leader].keys.as_ref().unwrap().leads.salt_with(&to.cert).unwrap();
    let sigma = net.nodes[member].principal.long_term.receives(&from.cert.0, &to.cert.0, &salt);
    PairKey::new("ward3", &sigma, &from, &to)
}

/// Slots that go from a view in which just these stay.
fn gone(net: &Net, at: usize, stay: &[MemberId], why: Gone) -> Vec<(u16, Gone)> {
    let slots = &net.nodes[at].keys.as_ref().unwrap().installed.as_ref().unwrap().slots;
    (0..).zip(slots).filter(|(_, it)| !stay.contains(it)).map(|(slot, _)| (slot, why)).collect()
}

#[test]
fn rule_g1_nothing_that_was_said_before_changes_anything_when_it_is_said_again() {
    let (mut net, all) = group();
    net.command(all[2], Command::Rotate);
    net.for_millis(500);
    let (before, said) = (epochs(&net, &all), net.tapped.clone());
    for bytes in said.iter().chain(&net.kdc_tapped.clone()) {
        all.iter().for_each(|at| _ = net.inject(*at, bytes));
    }
    net.for_millis(1000);
    assert_eq!(epochs(&net, &all), before);
    assert!(all.iter().all(|at| net.nodes[*at].excluded.is_none()) && net.convicted.is_empty());
}

/// LSGC, weakness 5: entries and the list of members could be changed, reordered and removed.
#[test]
fn lsgc_w5_no_message_that_was_changed_is_believed() {
    let (mut net, all) = group();
    net.command(all[2], Command::Rotate);
    net.for_millis(500);
    let (before, said) = (epochs(&net, &all), net.heard());
    let mut dice = ChaCha20Rng::seed_from_u64(1);
    for message in said.iter().rev().take(300) {
        let bytes = message.encode();
        for _ in 0..12 {
            let mut other = bytes.clone();
            let at = 1 + dice.next_u64() as usize % (other.len() - 1);
            other[at] ^= 1 << (dice.next_u64() % 8);
            if let Ok(other) = Message::decode(&other) {
                all.iter().for_each(|at| _ = net.say(*at, &other));
            }
        }
    }
    net.for_millis(3000);
    assert!(net.together(&all) && net.convicted.is_empty());
    // A JOIN, a BEACON and a WANT prove nothing: all that they can bring about is a challenge that nobody takes.
    assert!(epochs(&net, &all)[0].counter <= before[0].counter + 1, "{:?}", net.seen());
}

/// LSGC, weakness 1b: whoever asked to join could have chosen blocks encrypted under the pair key.
#[test]
fn lsgc_w1b_an_applicant_gets_tags_of_its_own_name_and_run_alone() {
    let (mut net, all) = group();
    let late = net.start("late", PLAIN);
    net.for_millis(30);
    let challenges: Vec<Challenge> = net
        .heard()
        .into_iter()
        .filter_map(|it| if let Message::Challenge(it) = it { Some(it) } else { None })
        .collect();
    let challenge =
        challenges.iter().find(|it| it.to == net.nodes[late].me).expect("it was challenged a place").clone();
    net.meet(&[all[0], all[1], all[2], all[3], late], 1000);
    // The same tag fits no other message, run or member.
    let (key, _) = pair_key(&mut net, all[0], late);
    assert_ne!(key.challenge(&challenge), challenge.tag, "another salt is another key");
    let other = Challenge { to: MemberId { incarnation: Incarnation([9; 16]), ..challenge.to }, ..challenge.clone() };
    assert_eq!(net.say(late, &Message::Challenge(other)), Err(Dropped::Stale.into()));
    let me = net.nodes[late].me;
    let dismiss = Dismiss { from: net.nodes[all[0]].me, to: me, why: Gone::Revoked, tag: challenge.tag };
    assert_eq!(net.say(late, &Message::Dismiss(dismiss)), AUTH);
}

/// LSGC, weakness 3: whoever stole long-term keys read all that was recorded of a pair. Between two with X25519 keys the
/// centre's own secret and a recording are too little; without such keys it opens everything, as `SECURITY.md` says.
#[test]
fn lsgc_w3_the_centres_secret_opens_no_recorded_entry_of_two_with_x25519_keys() {
    for has_exchange in [false, true] {
        let mut net = Net::new(1);
        net.realm.has_exchange = has_exchange;
        let all = [net.start("leader", ALL), net.start("bob", PLAIN)];
        net.meet(&all, 3000);
        let (thief, heard) = (Master::new(&net.realm.secret), net.heard());
        let (mut entries, mut opened) = (0, 0);
        for message in &heard {
            let Message::Commit(commit) = message else { continue };
            entries += commit.entries.len();
            let challenges =
                heard.iter().filter_map(|it| if let Message::Challenge(it) = it { Some(it) } else { None });
            for challenge in challenges {
                let (cert, to) = (challenge.registration.hash(), challenge.to);
                let from = MemberId { cert, incarnation: challenge.run };
                let sigma = thief.long_term(&to.cert.0).receives(&cert.0, &to.cert.0, &challenge.salt);
                let key = PairKey::new(GROUP, &sigma, &from, &to);
                let opens = |sealed: &[u8]| key.open_entry(&commit.transcript(), &mut sealed.to_vec()).is_ok();
                opened += commit.entries.iter().filter(|(_, sealed)| opens(sealed)).count();
            }
        }
        assert!(entries > 0);
        assert_eq!(opened > 0, !has_exchange, "{opened} of {entries}");
    }
}

/// LSGC, weakness 7: anyone could expel anyone, since a leave was not authenticated.
#[test]
fn lsgc_w7_nobody_leaves_or_is_dismissed_by_anothers_word() {
    let (mut net, all) = group();
    let (leader, alice, bob) = (net.nodes[all[0]].me, net.nodes[all[2]].me, net.nodes[all[3]].me);
    let epoch = net.view(all[0]).epoch;
    let wish = Wish { from: alice, to: leader, epoch, what: WishKind::Leave, tag: [7; 16] };
    assert_eq!(net.say(all[0], &Message::Wish(wish)), AUTH);
    // Bob's own, in alice's name.
    net.command(all[3], Command::Leave);
    let heard = net.heard();
    let mut wishes = heard.iter().filter_map(|it| if let Message::Wish(it) = it { Some(*it) } else { None });
    let bobs = wishes.find(|it| it.from == bob && it.what == WishKind::Leave).unwrap();
    assert_eq!(net.say(all[0], &Message::Wish(Wish { from: alice, ..bobs })), AUTH);
    net.for_millis(1000);
    assert!(net.together(&all[..3]) && net.nodes[all[2]].excluded.is_none());
    // A stand-by holds a pair key with alice, and no right to dismiss her until it leads.
    let (key, _) = pair_key(&mut net, all[1], all[2]);
    let mut dismiss = Dismiss { from: net.nodes[all[1]].me, to: alice, why: Gone::Revoked, tag: [0; 16] };
    dismiss.tag = key.dismiss(&dismiss);
    assert_eq!(net.say(all[2], &Message::Dismiss(dismiss)), Err(Dropped::Policy.into()));
}

/// LSGC, weakness 8: a member could make tokens; here one that is stolen is of no use.
#[test]
fn lsgc_w8_a_stolen_token_lets_nobody_in() {
    let (mut net, all) = group();
    let late = net.start("late", PLAIN);
    net.for_millis(3);
    let mut challenge = None;
    while challenge.is_none() {
        net.for_millis(1);
        let to = net.nodes[late].me;
        challenge = net
            .heard()
            .into_iter()
            .find_map(|it| if let Message::Challenge(it) = it { (it.to == to).then_some(it) } else { None });
    }
    let (challenge, leader) = (challenge.unwrap(), net.nodes[all[0]].me);
    net.stop(late);
    let stolen = |from| {
        let accept = Accept { from, to: leader, token: challenge.token, epoch: EpochId::default(), tag: [1; 16] };
        Message::Accept(accept)
    };
    // The leader tells its user once, not each time.
    for _ in 0..2 {
        assert_eq!(net.say(all[0], &stolen(challenge.to)), AUTH);
    }
    assert_eq!(net.nodes[all[0]].stolen, [challenge.to.cert]);
    net.for_millis(500);
    let before = epochs(&net, &all);
    for from in [challenge.to, net.nodes[all[3]].me] {
        assert!(net.say(all[0], &stolen(from)).is_err());
    }
    net.for_millis(500);
    assert!(epochs(&net, &all)[0].counter <= before[0].counter + 1 && net.together(&all));
}

/// LSGC, weakness 11: a token was of one view, so that in a group that changed often none was used in time.
#[test]
fn lsgc_w11_who_joins_a_group_whose_key_changes_all_the_time_comes_in() {
    let (mut net, mut all) = group();
    let before = epochs(&net, &all)[0].counter;
    let late = net.start("late", PLAIN);
    let mut millis = 0;
    while net.nodes[late].views.is_empty() {
        assert!(millis < 2000, "not let in after {millis} ms and {} changes", epochs(&net, &all)[0].counter - before);
        net.command(all[0], Command::Rotate);
        net.for_millis(1);
        millis += 1;
    }
    all.push(late);
    net.meet(&all, 1000);
    // A token that waits while the key changes is good all the same.
    let other = net.start("other", PLAIN);
    net.parts[other] = 1;
    let registration = Arc::new(net.nodes[other].principal.registration.clone());
    let (who, leader, epoch) = (net.nodes[other].me, net.nodes[all[0]].me, EpochId::default());
    let join = Join { registration, run: who.incarnation, epoch, size: 0, reliable: false };
    net.say(all[0], &Message::Join(join)).unwrap();
    net.for_millis(20);
    let heard = net.heard();
    let challenge =
        heard.iter().find_map(|it| if let Message::Challenge(it) = it { (it.to == who).then_some(it) } else { None });
    let challenge = challenge.expect("it was challenged");
    let sigma = net.nodes[other].principal.long_term.receives(&leader.cert.0, &who.cert.0, &challenge.salt);
    let mut accept = Accept { from: who, to: leader, token: challenge.token, epoch, tag: [0; 16] };
    accept.tag = PairKey::new(GROUP, &sigma, &leader, &who).accept(&accept);
    let at = epochs(&net, &all)[0].counter;
    for _ in 0..5 {
        net.command(all[0], Command::Rotate);
        net.for_millis(30);
    }
    assert!(epochs(&net, &all)[0].counter >= at + 3, "{at}, {:?}", epochs(&net, &all));
    assert_eq!(net.say(all[0], &Message::Accept(accept)), Ok(()));
}

#[test]
fn rule_c1_tokens_die_at_a_revocation() {
    let (mut net, all) = group();
    let late = net.start("late", PLAIN);
    net.parts[late] = 1;
    net.for_millis(1);
    let registration = Arc::new(net.nodes[late].principal.registration.clone());
    let join =
        Join { registration, run: net.nodes[late].me.incarnation, epoch: EpochId::default(), size: 0, reliable: false };
    let challenge_of = |net: &mut Net| {
        net.tapped.clear();
        net.say(all[0], &Message::Join(join.clone())).unwrap();
        net.for_millis(20);
        net.heard().into_iter().find_map(|it| if let Message::Challenge(it) = it { Some(it) } else { None }).unwrap()
    };
    let (one, again) = (challenge_of(&mut net), challenge_of(&mut net));
    assert_eq!(one.token, again.token);
    let cert = net.hash(all[3]);
    net.command(all[0], Command::Evict { cert, reason: String::new() });
    net.meet(&all[..3], 2000);
    assert_ne!(challenge_of(&mut net).token, one.token);
}

/// "Read after eviction": a leader that was revoked still has keys for members who were off at the time.
#[test]
fn rule_c1_a_revoked_leader_captures_nobody_who_comes_back() {
    let (mut net, all) = group();
    let cert = net.hash(all[1]);
    net.command(all[0], Command::Evict { cert, reason: String::new() });
    net.meet(&[all[0], all[2], all[3]], 3000);
    // Carol comes where only the revoked one is heard.
    let carol = net.start("carol", PLAIN);
    net.parts[carol] = 1;
    let (from, to) = (cert, net.hash(carol));
    let master = Master::new(&net.realm.secret);
    let pair = Pair { from: from.0, to: to.0, nonce: [0; 16] };
    let old = master.grant(&pair, &master.long_term(&pair.from), &[], &mut ChaCha20Rng::seed_from_u64(3));
    let sigma = master.long_term(&to.0).receives(&from.0, &to.0, &old.salt);
    let (liar, member) = (net.nodes[all[1]].me, net.nodes[carol].me);
    let key = PairKey::new("ward3", &sigma, &liar, &member);
    let registration = Arc::new(net.nodes[all[1]].principal.registration.clone());
    let mut challenge =
        Challenge { to: member, registration, run: liar.incarnation, salt: old.salt, token: [5; 16], tag: [0; 16] };
    challenge.tag = key.challenge(&challenge);
    assert_eq!(net.say(carol, &Message::Challenge(challenge.clone())), Ok(()), "it cannot know better yet");
    net.for_millis(20);
    assert!(!net.heard().iter().any(|it| matches!(it, Message::Accept(it) if it.from == member)));
    assert_eq!(net.say(carol, &Message::Challenge(challenge)), Err(Dropped::Policy.into()), "the centre told it");
    let (base, lock, slots) = (EpochId::default(), [0; 32], vec![liar, member]);
    let propose = Content { leader: liar, base, counter: 9, attempt: 1, lock, gone: Vec::new(), slots };
    assert!(net.propose(carol, all[1], &propose).is_err());
    assert!(net.nodes[carol].views.is_empty());
}

/// A member that looked its leader up before this one was revoked does so again.
#[test]
fn rule_c1_what_the_centre_said_of_a_leader_does_not_outlive_its_revocation() {
    let (mut net, all) = group();
    let late = net.start("late", PLAIN);
    net.meet(&[all[0], all[1], all[2], all[3], late], 3000);
    let cert = net.hash(all[0]);
    assert!(net.nodes[late].keys.as_ref().unwrap().good.contains_key(&cert));
    net.command(all[1], Command::Evict { cert, reason: String::new() });
    net.meet(&[all[1], all[2], all[3], late], 3000);
    assert!(!net.nodes[late].keys.as_ref().unwrap().good.contains_key(&cert));
}

/// The same without the centre: it waits rather than trusts.
#[test]
fn a_newcomer_takes_no_offer_that_the_centre_does_not_vouch_for() {
    let (mut net, all) = group();
    let carol = net.start("carol", PLAIN);
    net.for_millis(2);
    net.kdc_is_up = false;
    net.for_millis(3000);
    assert!(net.nodes[carol].views.is_empty() && net.together(&all));
    net.kdc_is_up = true;
    net.meet(&[all[0], all[1], all[2], all[3], carol], 5000);
}

/// A stand-by that lags behind vouches for nobody, and whoever asked it is told so; the next one is asked, too.
#[test]
fn rule_c1_who_asks_a_stale_stand_by_is_told_so_and_waits() {
    let (mut net, all) = group();
    net.realm.kdc.registry_mut().stale = true;
    net.for_millis(2000);
    assert_eq!(net.nodes[all[0]].refused, [Refusal::Stale], "once, however often it asks");
    assert!(net.together(&all), "the group goes on");
    let carol = net.start("carol", PLAIN);
    net.for_millis(3000);
    assert!(net.nodes[carol].views.is_empty());
    // She asks about a leader that has a key for her: it may ask another centre than she does.
    let cert = net.hash(carol);
    let carol_again = net.nodes[carol].principal.clone();
    net.stop(carol);
    net.realm.kdc.registry_mut().stale = false;
    let carol = net.run(carol_again);
    while net.nodes[all[0]].keys.as_ref().unwrap().leads.salt_with(&cert).is_none() {
        net.for_millis(1);
    }
    net.realm.kdc.registry_mut().stale = true;
    net.for_millis(3000);
    assert_eq!((net.nodes[carol].views.len(), &net.nodes[carol].refused[..]), (0, &[Refusal::Stale][..]));
    net.realm.kdc.registry_mut().stale = false;
    net.meet(&[all[0], all[1], all[2], all[3], carol], 6000);
}

/// A centre that can store nothing, on a full disk, say: whoever wanted somebody out is told so.
#[test]
fn a_revocation_that_the_centre_cannot_store_is_told_as_such() {
    let (mut net, all) = group();
    net.realm.kdc.registry_mut().full = true;
    let cert = net.hash(all[3]);
    net.command(all[0], Command::Evict { cert, reason: String::new() });
    net.for_millis(1000);
    assert_eq!(net.nodes[all[0]].refused, [Refusal::Store]);
    assert!(net.together(&all), "nobody is out");
}

/// C2: a member without the right challenges, proposes and says that it leads.
#[test]
fn rule_c2_who_may_not_lead_leads_nobody() {
    let (mut net, all) = group();
    let (alice, bob) = (net.nodes[all[2]].me, net.nodes[all[3]].me);
    let registration = Arc::new(net.nodes[all[2]].principal.registration.clone());
    let run = alice.incarnation;
    let beacon = Beacon {
        registration: registration.clone(),
        run,
        epoch: EpochId { counter: 99, hash: 1 },
        size: 60,
        reliable: false,
    };
    assert_eq!(net.say(all[3], &Message::Beacon(beacon)), Err(Dropped::Policy.into()));
    let challenge = Challenge { to: bob, registration, run, salt: [1; 16], token: [2; 16], tag: [3; 16] };
    assert_eq!(net.say(all[3], &Message::Challenge(challenge)), Err(Dropped::Policy.into()));
    let (base, lock, slots) = (net.view(all[3]).epoch, [0; 32], vec![alice, bob]);
    let gone = gone(&net, all[3], &slots, Gone::Left);
    let propose = Content { leader: alice, base, counter: base.counter + 1, attempt: 1, lock, gone, slots };
    assert_eq!(net.propose(all[3], all[2], &propose), Err(Dropped::Policy.into()));
    // With another registration in its name: the centre made its keys for the one that it knows.
    let mut other = net.nodes[all[2]].principal.registration.clone();
    other.rights = net.nodes[all[0]].principal.registration.rights.clone();
    let challenge =
        Challenge { to: bob, registration: Arc::new(other), run, salt: [1; 16], token: [2; 16], tag: [3; 16] };
    assert!(net.say(all[3], &Message::Challenge(challenge)).is_err());
}

/// A stand-by that proposes though the leader is there: nobody follows until they miss the leader themselves.
#[test]
fn a_stand_by_deposes_no_leader_that_others_hear() {
    let (mut net, all) = group();
    net.suspect(all[1], all[0]);
    net.for_millis(100);
    assert!(all[2..].iter().all(|at| net.leader(*at) == net.hash(all[0])));
    for _ in 0..8 {
        net.for_millis(500);
        net.suspect_lost();
    }
    net.meet(&all, 8000);
}

/// LSGC, weakness 4: after 256 views an old key could be installed again.
#[test]
fn lsgc_w4_an_epoch_of_before_is_not_installed_again() {
    let (mut net, all) = group();
    let old: Vec<Message> = net.heard();
    net.command(all[3], Command::Leave);
    net.meet(&all[..3], 1000);
    for message in &old {
        if let Message::Propose(_) | Message::Commit(_) = message {
            all[..3].iter().for_each(|at| assert!(net.say(*at, message).is_err()));
        }
    }
    assert!(net.together(&all[..3]));
}

/// L1 of the LAN's attacks: numbers that are claimed do not bring the group near their end.
#[test]
fn a_claimed_epoch_number_is_believed_so_far_only() {
    let (mut net, all) = group();
    let late = net.start("late", PLAIN);
    net.parts[late] = 1;
    let registration = Arc::new(net.nodes[late].principal.registration.clone());
    let who = net.nodes[late].me;
    let claim = EpochId { counter: u32::MAX - 2, hash: 1 };
    net.say(
        all[0],
        &Message::Join(Join { registration, run: who.incarnation, epoch: claim, size: 1, reliable: false }),
    )
    .unwrap();
    net.for_millis(20);
    let heard = net.heard();
    let challenge =
        heard.iter().find_map(|it| if let Message::Challenge(it) = it { (it.to == who).then_some(it) } else { None });
    let challenge = challenge.expect("it was challenged a place").clone();
    let sigma = net.nodes[late].principal.long_term.receives(&net.hash(all[0]).0, &who.cert.0, &challenge.salt);
    let key = PairKey::new("ward3", &sigma, &net.nodes[all[0]].me, &who);
    let mut accept = Accept { from: who, to: net.nodes[all[0]].me, token: challenge.token, epoch: claim, tag: [0; 16] };
    accept.tag = key.accept(&accept);
    assert_eq!(net.say(all[0], &Message::Accept(accept)), Err(Dropped::Policy.into()));
    assert!(net.view(all[0]).epoch.counter < 100);
}

/// A13: a leader that gives one member other secrets than it committed to is named.
#[test]
fn rule_a13_a_leader_that_gives_other_secrets_than_it_committed_to_is_named() {
    let (mut net, all) = group();
    let key = shown_key(&net, all[0], all[3]);
    let (leader, bob) = (net.nodes[all[0]].me, net.nodes[all[3]].me);
    let (base, slots) = (net.view(all[3]).epoch, vec![leader, bob]);
    let (counter, commitments) = (base.counter + 1, vec![[1; 32]]);
    let lock = lock(None, &commitments);
    let gone = gone(&net, all[3], &slots, Gone::Silent);
    let propose = Content { leader, base, counter, attempt: 9000, lock, gone, slots };
    let id = propose.id();
    assert_eq!(net.propose(all[3], all[0], &propose), Ok(()));
    net.for_millis(20);
    let mut commit = Commit { proposal: id, cut: [1; 32], nonce: None, commitments, entries: Vec::new() };
    commit.entries.push((1, key.seal_entry(&commit.transcript(), &[5; 32])));
    let named = Err(HandleError::Misbehaved(leader.cert, Misbehaviour::WrongValue));
    assert_eq!(net.say(all[3], &Message::Commit(commit)), named);
    assert_eq!(net.view(all[3]).epoch, base);
}

/// An insider acknowledges for others: no view ends by its word.
#[test]
fn an_acknowledgement_is_its_authors_alone() {
    let (mut net, all) = group();
    net.stop(all[3]);
    net.command(all[0], Command::Rotate);
    net.for_millis(20);
    let heard = net.heard();
    let mut acks = heard.iter().rev().filter_map(|it| if let Message::Ack(it) = it { Some(*it) } else { None });
    let alices = acks.find(|it| it.from == net.nodes[all[2]].me).unwrap();
    let forged = Ack { from: net.nodes[all[3]].me, ..alices };
    assert_eq!(net.say(all[0], &Message::Ack(forged)), AUTH);
}

/// LSGC, weakness 21: each request to join cost the leader a question to the centre.
/// Whoever holds the bootstrap key says what it likes, at once and much: members stay as they are, and in bounds.
#[test]
fn lsgc_w21_rule_g8_a_flood_of_strangers_costs_questions_and_memory_that_are_bounded() {
    let (mut net, all) = group();
    let before = epochs(&net, &all);
    let mut registration = net.nodes[all[2]].principal.registration.clone();
    net.kdc_tapped.clear();
    for i in 0..2000 {
        registration.serial = 1000 + i;
        let join = Join {
            registration: Arc::new(registration.clone()),
            run: Incarnation([1; 16]),
            epoch: EpochId::default(),
            size: 0,
            reliable: false,
        };
        let _ = net.say(all[0], &Message::Join(join));
    }
    net.for_millis(1000);
    let keys = net.nodes[all[0]].keys.as_ref().unwrap();
    assert!(keys.people.len() <= sealcast_wire::limits::CENTER_PEOPLE_MAX);
    assert!(keys.leads.applicants.len() <= 128);
    assert!(net.kdc_tapped.len() <= 4096, "{} questions and answers", net.kdc_tapped.len());
    assert_eq!(epochs(&net, &all), before);
    let late = net.start("late", PLAIN);
    net.meet(&[all[0], all[1], all[2], all[3], late], 8000);
}

/// A centre that lies can refuse, and no more than that: whoever has no key of ours makes no answer.
#[test]
fn what_a_false_centre_answers_is_not_believed() {
    let (mut net, all) = group();
    let late = net.start("late", PLAIN);
    net.kdc_is_up = false;
    net.for_millis(100);
    let asked = net.kdc_tapped.clone();
    let mut false_realm = super::realm::Realm::new();
    false_realm.secret = sealcast_crypto::secret::Secret::from_bytes([1; 32]);
    let liar = Master::new(&false_realm.secret);
    for question in asked.iter().filter_map(|it| Query::read(it).ok()) {
        let keys = liar.long_term(&question.asker.0);
        for answer in
            [Answer::Done(7), Answer::Refused(1, 7, Refusal::Revoked), Answer::Revoked(9, vec![(9, net.hash(all[2]))])]
        {
            let bytes = answer.write(&question.asker, &question.nonce, &keys);
            all.iter().chain([&late]).for_each(|at| assert!(net.inject(*at, &bytes).is_err()));
        }
    }
    net.kdc_is_up = true;
    net.meet(&[all[0], all[1], all[2], all[3], late], 6000);
    assert_eq!(net.nodes[all[2]].excluded, None::<Exclusion>);
}

#[test]
fn messages_are_read_as_they_were_written_and_no_cut_of_them_is() {
    let (net, all) = group();
    for message in net.heard() {
        let bytes = message.encode();
        assert_eq!(Message::decode(&bytes), Ok(message));
        for at in 0..bytes.len() {
            assert!(Message::decode(&bytes[..at]).is_err());
        }
    }
    assert_eq!(net.view(all[0]).members.len(), 4);
}

proptest! {
    #[test]
    fn rule_g2_no_bytes_make_it_panic(kind in 0..13_u8, bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = Message::decode(&[&[kind], &bytes[..]].concat());
    }

    #[test]
    fn rule_g2_counts_that_claim_more_than_there_is_are_refused(count in 1..u16::MAX) {
        let claims = [&[10], &count.to_be_bytes()[..], &CertHash::default().0].concat();
        prop_assert_eq!(Message::decode(&claims).is_ok(), count == 1);
    }
}

/// A member that says another end of the view each time stops nobody: it is left out after a while.
#[test]
fn who_never_agrees_how_the_view_ended_is_left_out() {
    let (mut net, all) = group();
    net.nodes[all[3]].cut = 9;
    net.command(all[0], Command::Rotate);
    net.meet(&all[..3], 4000);
}

/// A member proves its report to all but the leader, whose flush then comes to nothing: the leader leaves nobody out but whom
/// its transport names.
#[test]
fn a_leader_that_alone_ends_the_view_differently_does_not_leave_the_others_out() {
    let (mut net, all) = group();
    net.nodes[all[0]].cut = 0;
    net.command(all[0], Command::Rotate);
    net.for_millis(2500);
    assert!(net.together(&all), "{:?}", net.seen());
    net.suspect(all[0], all[3]);
    net.nodes[all[0]].cut = 1;
    net.meet(&all[..3], 1000);
}

/// A member that does not answer costs a large group no more time than a small one, where there is no order.
#[test]
fn rule_g7_silence_costs_a_large_group_little_time() {
    let mut net = Net::new(1);
    let mut all = vec![net.start("leader", ALL)];
    all.extend((0..99).map(|i| net.start(&format!("m{i}"), PLAIN)));
    net.meet(&all, 8000);
    net.for_millis(1000);
    let silent = all.pop().expect("there are many");
    net.stop(silent);
    net.command(all[0], Command::Rotate);
    let millis = net.meet(&all, 5000);
    assert!(millis < 700, "{millis} ms");
}

/// A member that comes, is silent in the next change, and comes again keeps the others waiting less and less often.
#[test]
fn rule_g8_who_is_silent_in_one_change_after_another_waits_outside() {
    let (mut net, all) = group();
    let principal = Arc::new(net.realm.register("comer", PLAIN));
    let cert = principal.registration.hash();
    let (began, mut times) = (net.time, 0);
    while net.time < began + 60_000_000 {
        let comer = net.run(principal.clone());
        net.for_millis(400);
        times += usize::from(net.view(all[0]).members.find(&cert).is_some());
        net.stop(comer);
        net.command(all[0], Command::Rotate);
        net.for_millis(600);
    }
    assert!(net.together(&all), "{:?}", net.seen());
    assert!((3..=8).contains(&times), "{times} times in a minute");
}

/// Whoever holds the bootstrap key makes registrations up: of those that a JOIN or BEACON shows, a member looks at so many a
/// second, and it keeps equal rights once.
#[test]
fn rule_g8_made_up_registrations_cost_a_bounded_amount_of_work() {
    let (mut net, all) = group();
    let mut registration = net.nodes[all[2]].principal.registration.clone();
    let mut refused = 0;
    for i in 0..4000 {
        registration.serial = 1000 + i;
        registration.rights = [Right::new("ward3", Act::Both, &format!("t{}", i / 2)).unwrap()].into_iter().collect();
        let registration = Arc::new(registration.clone());
        let run = Incarnation([1; 16]);
        let join = Join { registration, run, epoch: EpochId::default(), size: 0, reliable: false };
        refused += usize::from(net.say(all[3], &Message::Join(join)) == Err(Dropped::Rate.into()));
    }
    let keys = net.nodes[all[3]].keys.as_ref().unwrap();
    let unknown = limits::UNKNOWN_REGISTRATIONS_PER_SECOND as usize;
    assert_eq!((refused, keys.people.len()), (4000 - unknown, 4 + unknown));
    assert_eq!(keys.rights.len(), 2 + unknown / 2);
    // Second by second: what is forgotten leaves no rights behind.
    for i in 0..40_000 {
        registration.serial = 9000 + i;
        registration.rights = [Right::new("ward3", Act::Both, &format!("u{i}")).unwrap()].into_iter().collect();
        let registration = Arc::new(registration.clone());
        let run = Incarnation([1; 16]);
        let join = Join { registration, run, epoch: EpochId::default(), size: 0, reliable: false };
        let _ = net.say(all[3], &Message::Join(join));
        net.for_millis(u64::from(i % 10 == 0) * 2);
    }
    let keys = net.nodes[all[3]].keys.as_ref().unwrap();
    let most = limits::CENTER_PEOPLE_MAX;
    assert!(keys.people.len() <= most && keys.rights.len() <= most, "{} rights", keys.rights.len());
    assert!(all.iter().all(|at| keys.people.contains_key(&net.hash(*at))), "members are not forgotten");
}

/// WANT proves nothing: what it brings about goes to where a member proved who it is, or to all, and nobody uses up another
/// one's share of it.
#[test]
fn rule_g8_registrations_are_sent_to_no_address_that_proved_nothing() {
    let (mut net, all) = group();
    let want = Message::Want(all.iter().map(|at| net.hash(*at)).collect());
    let given = |net: &mut Net, from: u32| {
        (net.receptions, net.tapped) = (0, Vec::new());
        net.say_from(from, all[0], &want).unwrap();
        let heard = net.heard();
        (heard.iter().filter(|it| matches!(it, Message::Give(_))).count(), net.receptions)
    };
    assert_eq!(given(&mut net, 77), (1, 3), "to all");
    assert_eq!(given(&mut net, 78), (0, 0), "not again at once");
    // The member itself gets what it wants, whatever others ask for.
    let alice = all[2] as u32;
    assert_eq!((given(&mut net, alice), given(&mut net, alice)), ((1, 1), (0, 0)));
    net.for_millis(20);
    assert_eq!((given(&mut net, alice), given(&mut net, 79)), ((1, 1), (1, 3)));
}

/// An acknowledgement that somebody overheard, said again from elsewhere, proves no other address.
#[test]
fn rule_g8_an_acknowledgement_said_again_from_elsewhere_proves_no_address() {
    let (mut net, all) = group();
    net.stop(all[3]);
    net.command(all[0], Command::Rotate);
    net.for_millis(20);
    let alice = net.nodes[all[2]].me;
    let of_alice = |it: &Message| matches!(it, Message::Ack(it) if it.from == alice);
    let ack = net.heard().into_iter().rev().find(of_alice).expect("she is ready");
    net.say_from(88, all[0], &ack).unwrap();
    (net.receptions, net.tapped) = (0, Vec::new());
    net.say_from(88, all[0], &Message::Want(vec![alice.cert])).unwrap();
    assert_eq!((net.tapped.len(), net.receptions), (1, 3), "to all");
}

/// A stand-by that says that the leader left, or is revoked: nobody follows by its word.
#[test]
fn a_stand_bys_word_deposes_no_leader() {
    for why in [Gone::Left, Gone::Revoked] {
        let (mut net, all) = group();
        let (stand_by, bob) = (net.nodes[all[1]].me, net.nodes[all[3]].me);
        let (base, lock, slots) = (net.view(all[3]).epoch, [0; 32], vec![stand_by, bob]);
        let mut gone = gone(&net, all[3], &slots, Gone::Left);
        assert_eq!(gone[0].0, 0, "the leader");
        gone[0].1 = why;
        let propose = Content { leader: stand_by, base, counter: base.counter + 1, attempt: 1, lock, gone, slots };
        for _ in 0..5 {
            assert_eq!(net.propose(all[3], all[1], &propose), Err(Dropped::Policy.into()));
            net.for_millis(50);
        }
        assert_eq!(net.leader(all[3]), net.hash(all[0]));
    }
}

/// An outsider says a proposal again and again whose leader is gone: who was to come in by it comes in by another one.
#[test]
fn rule_g7_a_proposal_that_is_said_again_holds_nobody_beyond_its_time() {
    let (mut net, all) = group();
    let newcomer = net.start("carol", PLAIN);
    while net.nodes[newcomer].keys.as_ref().unwrap().follows.is_none() {
        net.for_millis(1);
    }
    net.stop(all[0]);
    let proposes = |it: &Message| matches!(it, Message::Propose(_));
    let proposal = net.heard().iter().rposition(proposes).map(|at| net.tapped[at].clone()).expect("it was said");
    for round in 0..2_000 {
        let _ = net.inject(newcomer, &proposal);
        net.for_millis(10);
        if round % 50 == 0 {
            net.suspect_lost();
        }
    }
    assert!(net.together(&[all[1], all[2], all[3], newcomer]));
}

/// L1 once more, by who may lead: no epoch's number is near the end.
#[test]
fn no_leader_drives_the_numbers_of_epochs_to_their_end() {
    let (mut net, all) = group();
    let (leader, bob) = (net.nodes[all[0]].me, net.nodes[all[3]].me);
    let (base, lock, slots) = (net.view(all[3]).epoch, [0; 32], vec![leader, bob]);
    let gone = gone(&net, all[3], &slots, Gone::Left);
    for counter in [u32::MAX, u32::MAX - 1, (1 << 31) + 1, base.counter + (1 << 16) + 1, base.counter] {
        let (gone, slots) = (gone.clone(), slots.clone());
        let propose = Content { leader, base, counter, attempt: 9000, lock, gone, slots };
        assert_eq!(net.propose(all[3], all[0], &propose), Err(Dropped::Stale.into()), "{counter}");
    }
}

/// Signs of a leader that is not there, recorded or made up, keep newcomers apart for a moment only.
#[test]
fn rule_g7_beacons_without_a_leader_behind_them_keep_nobody_from_forming_a_group() {
    let (mut net, all) = group();
    let registration = Arc::new(net.nodes[all[0]].principal.registration.clone());
    let names = [net.nodes[all[1]].principal.clone(), net.nodes[all[3]].principal.clone()];
    all.iter().for_each(|at| net.stop(*at));
    let again = names.map(|it| net.run(it));
    for i in 0..60 {
        let run = Incarnation([i; 16]);
        let beacon = Beacon {
            registration: registration.clone(),
            run,
            epoch: EpochId { counter: 9, hash: 1 },
            size: 64,
            reliable: false,
        };
        again.iter().for_each(|at| _ = net.say(*at, &Message::Beacon(beacon.clone())));
        net.for_millis(50);
    }
    assert!(net.together(&again), "{:?}", net.seen());
}

/// Members whom nobody leads, and of whom nobody may, tell newcomers that they are here: those begin no order of their own yet.
#[test]
fn rule_b1_members_without_a_leader_answer_a_newcomer_that_nobody_else_answers() {
    let (mut net, all) = group();
    let (leaders, others) = all.split_at(2);
    let again = net.nodes[leaders[0]].principal.clone();
    leaders.iter().for_each(|at| net.stop(*at));
    let late = net.run(again);
    net.for_millis(300);
    let heard = |net: &Net| net.nodes[late].keys.as_ref().and_then(|it| it.others);
    assert_eq!(net.view(late).members.len(), 1);
    assert!(heard(&net).is_some_and(|it| others.iter().any(|at| net.nodes[*at].me == it)), "{:?}", heard(&net));
    // They come once they take their leader for gone.
    let whole: Vec<usize> = others.iter().copied().chain([late]).collect();
    net.suspect_lost();
    net.for_millis(3_000);
    assert!(net.together(&whole), "{:?}", net.seen());
    assert_eq!(heard(&net), None);
}

/// One principal's runs come and go: each costs all members, and so it may only so often.
#[test]
fn rule_g8_one_principal_is_let_in_so_often_only() {
    let (mut net, all) = group();
    let before = net.view(all[0]).epoch.counter;
    let principal = Arc::new(net.realm.register("comer", PLAIN));
    let mut last = None;
    for _ in 0..200 {
        last.into_iter().for_each(|at| net.stop(at));
        last = Some(net.run(principal.clone()));
        net.for_millis(25);
    }
    // 16 at once, and two a second; each is two changes at most.
    let changes = net.view(all[0]).epoch.counter - before;
    assert!(changes <= 2 * (16 + 11), "{changes} changes in 5 s");
}

/// `order=` must be the same for all: who has another one is not let in, and people are told.
#[test]
fn who_has_other_channels_is_not_let_in() {
    let (mut net, all) = group();
    net.reliable = true;
    let late = net.start("late", PLAIN);
    net.for_millis(2000);
    assert!(net.together(&all) && net.nodes[late].views.is_empty());
    let told = |at: usize| net.nodes[at].other_channels.clone();
    assert_eq!((told(all[0]), told(late)), (vec![true], vec![false]));
}

/// A pair key is the leader's and the member's: the member knows how the leader's words look, and speaks to it in none of them.
#[test]
fn no_member_dismisses_its_leader() {
    let (mut net, all) = group();
    let (leader, bob) = (net.nodes[all[0]].me, net.nodes[all[3]].me);
    let key = shown_key(&net, all[0], all[3]);
    let mut dismiss = Dismiss { from: bob, to: leader, why: Gone::Revoked, tag: [0; 16] };
    dismiss.tag = key.dismiss(&dismiss);
    assert_eq!(net.say(all[0], &Message::Dismiss(dismiss)), Err(Dropped::Policy.into()));
    assert_eq!(net.nodes[all[0]].excluded, None);
}

/// C2: a leader that was led away keeps its pair keys, and sends nobody away by them.
#[test]
fn rule_c2_a_leader_that_was_led_away_dismisses_nobody() {
    let (mut net, all) = group();
    let keys = [all[1], all[2], all[3]].map(|at| (at, shown_key(&net, all[0], at)));
    let (cert, leader) = (net.hash(all[0]), net.nodes[all[0]].me);
    net.command(all[1], Command::Evict { cert, reason: String::new() });
    net.meet(&all[1..], 4000);
    for (at, key) in keys {
        let to = net.nodes[at].me;
        let mut dismiss = Dismiss { from: leader, to, why: Gone::Revoked, tag: [0; 16] };
        dismiss.tag = key.dismiss(&dismiss);
        assert!(net.say(at, &Message::Dismiss(dismiss)).is_err());
        assert_eq!(net.nodes[at].excluded, None);
    }
}

/// C1: who is revoked while it is being let in does not stay.
#[test]
fn rule_c1_who_is_revoked_while_a_proposal_names_it_does_not_stay() {
    for wait in 0..30 {
        let (mut net, all) = group();
        let late = net.start("late", PLAIN);
        net.for_millis(wait);
        let cert = net.hash(late);
        net.realm.kdc.registry_mut().revoke(&cert, "", "");
        net.for_millis(3500);
        assert!(net.together(&all), "{wait}: {:?}", net.seen());
    }
}

/// C1: no member keeps its leader from hearing who is revoked by asking it to hear that.
#[test]
fn rule_c1_wishes_for_news_keep_no_leader_from_the_news() {
    let (mut net, all) = group();
    let (leader, bob) = (net.nodes[all[0]].me, net.nodes[all[3]].me);
    let key = shown_key(&net, all[0], all[3]);
    let epoch = net.view(all[0]).epoch;
    let mut wish = Wish { from: bob, to: leader, epoch, what: WishKind::News, tag: [0; 16] };
    wish.tag = key.wish(&wish);
    net.realm.kdc.registry_mut().revoke(&bob.cert, "", "");
    net.kdc_tapped.clear();
    for _ in 0..1500 {
        let _ = net.say(all[0], &Message::Wish(wish));
        net.for_millis(1);
    }
    assert!(net.together(&all[..3]), "{:?}", net.seen());
    assert!(net.kdc_tapped.len() < 100, "{} questions and answers", net.kdc_tapped.len());
}

/// A newcomer whose name others use to ask to be let in comes in all the same.
#[test]
fn joins_in_anothers_name_keep_nobody_out() {
    let (mut net, all) = group();
    let late = net.start("late", PLAIN);
    let registration = Arc::new(net.nodes[late].principal.registration.clone());
    for i in 0..200 {
        let run = Incarnation([i; 16]);
        let join =
            Join { registration: registration.clone(), run, epoch: EpochId::default(), size: 0, reliable: false };
        let _ = net.say(all[0], &Message::Join(join));
        net.for_millis(2);
    }
    net.meet(&[all[0], all[1], all[2], all[3], late], 4000);
}

/// L1: a member far ahead in numbers that never comes leaves the others where they were.
#[test]
fn a_proposal_that_comes_to_nothing_keeps_nobody_from_the_next() {
    let (mut net, all) = group();
    let late = net.start("late", PLAIN);
    net.parts[late] = 1;
    let registration = Arc::new(net.nodes[late].principal.registration.clone());
    let (who, leader) = (net.nodes[late].me, net.nodes[all[0]].me);
    let epoch = EpochId { counter: 60_000, hash: 1 };
    let join = Join { registration, run: who.incarnation, epoch, size: 1, reliable: false };
    net.say(all[0], &Message::Join(join)).unwrap();
    net.for_millis(20);
    let heard = net.heard();
    let challenge =
        heard.iter().find_map(|it| if let Message::Challenge(it) = it { (it.to == who).then_some(it) } else { None });
    let challenge = challenge.unwrap().clone();
    let sigma = net.nodes[late].principal.long_term.receives(&leader.cert.0, &who.cert.0, &challenge.salt);
    let key = PairKey::new("ward3", &sigma, &leader, &who);
    let mut accept = Accept { from: who, to: leader, token: challenge.token, epoch, tag: [0; 16] };
    accept.tag = key.accept(&accept);
    net.say(all[0], &Message::Accept(accept)).unwrap();
    net.for_millis(700);
    net.command(all[2], Command::Rotate);
    net.meet(&all, 1500);
    let said = net.tapped.clone();
    let at = net.view(all[0]).epoch;
    for bytes in &said {
        all.iter().for_each(|to| _ = net.inject(*to, bytes));
    }
    net.for_millis(1000);
    assert!(net.together(&all) && net.view(all[0]).epoch.counter <= at.counter + 2);
}

/// A3: a proposal and a roster count by their leader's signature alone; a member's, or another's, makes none.
#[test]
fn rule_a3_a_change_that_its_leader_did_not_sign_is_not_followed() {
    let (mut net, all) = group();
    let (leader, bob, carol) = (
        net.nodes[all[0]].me,
        net.nodes[all[3]].me,
        MemberId { cert: CertHash([7; 32]), incarnation: Incarnation([7; 16]) },
    );
    let (base, lock) = (net.view(all[3]).epoch, [0; 32]);
    let counter = base.counter + 1;
    let whole = net.nodes[all[3]].keys.as_ref().unwrap().installed.as_ref().unwrap().slots.clone();
    let content = Content { leader, base, counter, attempt: 9000, lock, gone: Vec::new(), slots: whole.clone() };
    // In the leader's name, by the stand-by and by alice.
    for at in [all[1], all[2]] {
        assert_eq!(net.propose(all[3], at, &content), AUTH);
    }
    // The leader's own word, changed: each of its parts is signed.
    let said = content.say(Some(&whole), &net.nodes[all[0]].principal.origin_key());
    for changed in [
        crate::center::message::Propose { counter: counter + 1, ..said.clone() },
        crate::center::message::Propose { lock: [1; 32], ..said.clone() },
        crate::center::message::Propose { roster: [1; 32], ..said.clone() },
        crate::center::message::Propose { gone: vec![(2, Gone::Left)], ..said.clone() },
        crate::center::message::Propose { base: EpochId { hash: 1, ..base }, ..said.clone() },
    ] {
        assert_eq!(net.say(all[3], &Message::Propose(changed)), AUTH);
    }
    // Who came is what the signed hash says, or nothing is followed before the leader's own roster is there.
    let with = crate::center::message::Propose { came: Some(vec![(3, carol)]), ..said.clone() };
    assert_eq!(net.say(all[3], &Message::Propose(with)), Ok(()));
    assert!(net.nodes[all[3]].keys.as_ref().unwrap().follows.is_none());
    let slots: Vec<(MemberId, [u8; 16])> = whole.iter().map(|it| (*it, [0; 16])).collect();
    let mut part = Part { proposal: content.id(), part: 0, slots, signature: [0; 64] };
    part.signature = net.nodes[all[1]].principal.origin_key().sign(&part.statement());
    assert_eq!(net.say(all[3], &Message::Roster(part.clone())), AUTH);
    part.signature = net.nodes[all[0]].principal.origin_key().sign(&part.statement());
    let other = Part { part: 1, ..part.clone() };
    assert_eq!(net.say(all[3], &Message::Roster(other)), Err(Dropped::Stale.into()), "there is no such part");
    assert_eq!((net.view(all[3]).epoch, net.nodes[all[3]].me), (base, bob));
}

/// A member that asks for parts of a roster proves who it is: nobody has them sent to others by its name.
#[test]
fn rule_g8_a_roster_is_given_to_members_who_prove_that_they_are() {
    let (mut net, all) = group();
    net.stop(all[2]);
    net.command(all[0], Command::Rotate);
    net.for_millis(20);
    let (from, to) = (net.nodes[all[3]].me, net.nodes[all[0]].me);
    let proposal = net.nodes[all[3]].keys.as_ref().unwrap().follows.as_ref().unwrap().id;
    let mut lack = Lack { from, to, proposal, parts: u64::MAX, tag: [0; 16] };
    assert_eq!(net.say(all[0], &Message::Lack(lack)), AUTH);
    lack.tag = shown_key(&net, all[0], all[3]).lack(&lack);
    net.tapped.clear();
    assert_eq!(net.say(all[0], &Message::Lack(lack)), Ok(()));
    assert_eq!(net.say(all[0], &Message::Lack(lack)), Err(Dropped::Rate.into()));
    let parts = net.heard().iter().filter(|it| matches!(it, Message::Roster(_))).count();
    assert_eq!(parts, 1, "as many as there are, whatever it asks for");
    let outsider = Lack { from: net.nodes[all[2]].me, proposal: [1; 32], ..lack };
    assert!(net.say(all[0], &Message::Lack(outsider)).is_err());
}

/// B10: a change costs receptions that grow with the members, not with their square.
#[test]
fn rule_b10_acknowledgements_of_a_change_come_to_the_leader_alone() {
    let mut net = Net::new(1);
    let mut all = vec![net.start("leader", ALL)];
    all.extend((0..39).map(|i| net.start(&format!("m{i}"), PLAIN)));
    net.meet(&all, 5000);
    net.for_millis(1000);
    (net.receptions, net.tapped) = (0, Vec::new());
    net.command(all[0], Command::Rotate);
    net.for_millis(60);
    assert!(net.together(&all));
    let acks = net.heard().iter().filter(|it| matches!(it, Message::Ack(_))).count();
    assert!(acks >= 39 && net.receptions <= 12 * 40, "{acks} acknowledgements, {} receptions", net.receptions);
}
