//! The centre, asked by the honest and by others.

use proptest::prelude::*;
use sealcast_crypto::identity::{Act, Principal};
use sealcast_crypto::leighton_micali::Pair;
use sealcast_wire::limits::KDC_QUERY_BYTES_MAX;
use sealcast_wire::{CertHash, Dropped, Malformed};

use super::realm::{ALL, PLAIN, Realm, UTC, now};
use crate::center::query::{Answer, Query, Refusal};

const NONCE: [u8; 16] = [9; 16];

fn hash(of: &Principal) -> CertHash {
    of.registration.hash()
}

fn ask(realm: &mut Realm, who: &Principal, ask: &Query) -> Result<Answer, Dropped> {
    let question = ask.write(&hash(who), &NONCE, &who.long_term);
    let bytes = realm.kdc.answer(now(0), &question)?;
    assert!(bytes.len() <= question.len(), "nothing amplifies (G8)");
    let answer = Answer::read(&bytes).unwrap();
    assert_eq!((answer.asker, answer.nonce), (hash(who), NONCE));
    Ok(answer.check(&who.long_term).unwrap())
}

#[test]
fn who_may_lead_gets_a_key_that_the_other_one_computes_alone() {
    let mut realm = Realm::new();
    let (leader, alice) = (realm.register("leader", ALL), realm.register("alice", PLAIN));
    let Answer::Granted(number, granted) = ask(&mut realm, &leader, &Query::Pair(hash(&alice))).unwrap() else {
        panic!()
    };
    let pair = Pair { from: hash(&leader).0, to: hash(&alice).0, nonce: NONCE };
    let key = leader.long_term.unmask(&pair, &granted, &number.to_be_bytes()).unwrap();
    assert_eq!(key, alice.long_term.receives(&pair.from, &pair.to, &granted.salt));
    assert!(leader.long_term.unmask(&pair, &granted, &(number + 1).to_be_bytes()).is_err(), "the number is bound");
}

#[test]
fn rule_c2_who_may_not_lead_gets_no_keys_and_no_news() {
    let mut realm = Realm::new();
    let (leader, alice) = (realm.register("leader", ALL), realm.register("alice", PLAIN));
    let denied = |kind, why| Ok(Answer::Refused(kind, 0, why));
    assert_eq!(ask(&mut realm, &alice, &Query::Pair(hash(&leader))), denied(1, Refusal::Denied));
    assert_eq!(ask(&mut realm, &alice, &Query::News(0)), denied(3, Refusal::Denied));
    assert_eq!(ask(&mut realm, &leader, &Query::Pair(CertHash([0; 32]))), denied(1, Refusal::Unknown));
    let over = realm.register_until("over", PLAIN, UTC - 1);
    assert_eq!(ask(&mut realm, &leader, &Query::Pair(hash(&over))), denied(1, Refusal::Expired));
    assert_eq!(ask(&mut realm, &over, &Query::News(0)), Err(Dropped::Policy));
    realm.kdc.registry_mut().stale = true;
    assert_eq!(ask(&mut realm, &leader, &Query::Pair(hash(&alice))), denied(1, Refusal::Stale));
}

#[test]
fn rule_c1_a_revocation_needs_the_right_is_numbered_and_is_news() {
    let mut realm = Realm::new();
    let (leader, alice) = (realm.register("leader", ALL), realm.register("alice", PLAIN));
    let bob = realm.register("bob", &[(Act::Both, "#"), (Act::Evict, "pose/#")]);
    let lost = || Query::Revoke(hash(&alice), "lost".into());
    assert_eq!(ask(&mut realm, &bob, &lost()), Ok(Answer::Refused(5, 0, Refusal::Denied)));
    realm.kdc.registry_mut().full = true;
    assert_eq!(ask(&mut realm, &leader, &lost()), Ok(Answer::Refused(5, 0, Refusal::Store)));
    realm.kdc.registry_mut().full = false;
    assert_eq!(ask(&mut realm, &leader, &lost()), Ok(Answer::Done(1)));
    assert_eq!(ask(&mut realm, &leader, &lost()), Ok(Answer::Done(1)), "again is the same");
    assert_eq!(ask(&mut realm, &leader, &Query::News(0)), Ok(Answer::Revoked(1, vec![(1, hash(&alice))])));
    assert_eq!(ask(&mut realm, &leader, &Query::News(1)), Ok(Answer::Revoked(1, vec![])));
    assert_eq!(ask(&mut realm, &leader, &Query::Pair(hash(&alice))), Ok(Answer::Refused(1, 1, Refusal::Revoked)));
    assert_eq!(ask(&mut realm, &alice, &Query::News(0)), Ok(Answer::Refused(3, 1, Refusal::Excluded)), "so it knows");
}

#[test]
fn many_revocations_come_in_answers_that_are_no_longer_than_their_questions() {
    let mut realm = Realm::new();
    let leader = realm.register("leader", ALL);
    for i in 0..30 {
        let one = realm.register(&format!("m{i}"), PLAIN);
        ask(&mut realm, &leader, &Query::Revoke(hash(&one), String::new())).unwrap();
    }
    let (mut since, mut known) = (0, 0);
    while let Answer::Revoked(30, list) = ask(&mut realm, &leader, &Query::News(since)).unwrap() {
        let Some((last, _)) = list.last() else { break };
        (since, known) = (*last, known + list.len());
    }
    assert_eq!((since, known), (30, 30));
}

/// LSGC, weakness 1: its centre answered whoever asked, in anybody's name.
#[test]
fn lsgc_w1_who_does_not_prove_to_be_who_it_says_gets_no_answer() {
    let mut realm = Realm::new();
    let (leader, alice) = (realm.register("leader", ALL), realm.register("alice", PLAIN));
    let good = Query::Pair(hash(&alice)).write(&hash(&leader), &NONCE, &leader.long_term);
    let forged = Query::Pair(hash(&alice)).write(&hash(&leader), &NONCE, &alice.long_term);
    assert_eq!(realm.kdc.answer(now(0), &forged), Err(Dropped::Auth));
    let nobody = Query::Pair(hash(&alice)).write(&CertHash([5; 32]), &NONCE, &alice.long_term);
    assert_eq!(realm.kdc.answer(now(0), &nobody), Err(Dropped::Foreign));
    for at in 0..good.len() {
        let mut other = good.clone();
        other[at] ^= 1;
        assert!(realm.kdc.answer(now(0), &other).is_err(), "byte {at}");
        assert!(realm.kdc.answer(now(0), &good[..at]).is_err());
    }
    // An answer is no question, and a question no answer.
    let answer = realm.kdc.answer(now(0), &good).unwrap();
    assert_eq!(realm.kdc.answer(now(0), &answer), Err(Dropped::Malformed));
    assert_eq!(Answer::read(&good).map(drop).map_err(|_| ()), Err(()));
}

/// LSGC, weakness 2: an answer could be changed on its way.
#[test]
fn lsgc_w2_an_answer_that_was_changed_is_not_believed() {
    let mut realm = Realm::new();
    let (leader, alice) = (realm.register("leader", ALL), realm.register("alice", PLAIN));
    for question in [Query::Pair(CertHash([0; 32])), Query::News(0), Query::Revoke(hash(&alice), "x".into())] {
        let bytes = realm.kdc.answer(now(0), &question.write(&hash(&leader), &NONCE, &leader.long_term)).unwrap();
        for at in 0..bytes.len() {
            let mut other = bytes.clone();
            other[at] ^= 1;
            let read = Answer::read(&other);
            let believed = read.ok().filter(|it| it.asker == hash(&leader) && it.nonce == NONCE);
            // A kind without a tag has a proof instead, which such bytes do not have.
            let tagged = believed.and_then(|it| it.check(&leader.long_term).ok());
            assert!(!matches!(tagged, Some(Answer::Refused(..) | Answer::Revoked(..) | Answer::Done(_))), "byte {at}");
        }
    }
}

proptest! {
    #[test]
    fn rule_g2_no_bytes_make_the_centre_or_an_asker_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..600),
        kind in 0..9_u8,
    ) {
        let mut realm = Realm::new();
        realm.register("leader", ALL);
        let framed = [&crate::center::query::MAGIC[..], &[kind], &bytes].concat();
        for bytes in [&bytes, &framed] {
            prop_assert!(realm.kdc.answer(now(0), bytes).is_err());
            let _ = Answer::read(bytes);
        }
    }
}

#[test]
fn questions_and_answers_are_read_as_they_were_written() {
    let mut realm = Realm::new();
    let leader = realm.register("leader", ALL);
    let me = hash(&leader);
    for ask in [Query::Pair(CertHash([1; 32])), Query::News(7), Query::Revoke(CertHash([2; 32]), "lost laptop".into())]
    {
        let bytes = ask.write(&me, &NONCE, &leader.long_term);
        assert!(bytes.len() <= KDC_QUERY_BYTES_MAX);
        assert_eq!(Query::read(&bytes).unwrap().check(&leader.long_term), Ok(ask));
    }
    for why in Refusal::ALL {
        let bytes = Answer::Refused(1, 3, why).write(&me, &NONCE, &leader.long_term);
        assert_eq!(Answer::read(&bytes).unwrap().check(&leader.long_term), Ok(Answer::Refused(1, 3, why)));
    }
    assert_eq!(Query::read(&[0; 1000]).map(drop), Err(Malformed));
}
