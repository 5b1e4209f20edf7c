//! Directories that misbehave, each a small wrapper around an honest one, and what shows it.

use crate::evidence::{Evidence, EvidenceError};
use crate::fixture::{
    MEMBER, Relay, World, blob_and_mail, catch_up, entry, exchange, follower, founded, group, key, progress, propose,
    relay,
};
use crate::follower::{Answer, Comparison, Follower, Misbehaviour, Outcome};
use crate::ids::Head;
use crate::key::RelayKey;
use crate::receipt::Receipt;
use crate::request::Request;
use crate::response::{Refusal, Response};

/// Changes what an honest directory answers.
struct Changing<F: FnMut(&Request, &mut Response)> {
    honest: World,
    change: F,
}

impl<F: FnMut(&Request, &mut Response)> Relay for Changing<F> {
    fn send(&mut self, request: &[u8]) -> Vec<u8> {
        let mut response = Response::decode(&self.honest.send(request)).unwrap();
        (self.change)(&Request::decode(request).unwrap(), &mut response);
        response.encode()
    }
}

fn swapper(honest: World, change: impl FnMut(&Request, &mut Response)) -> impl Relay {
    Changing { honest, change }
}

/// The same log up to a position, and then two of them; each member sees one.
fn forker(common: u8, one: u8, other: u8) -> ([World; 2], [Follower; 2]) {
    let (world, member) = founded(common);
    let mut worlds = [world.copy(), world];
    let mut members = [member.clone(), member];
    for (branch, count) in [(0, one), (1, other)] {
        for i in 0..count {
            let bytes = [branch as u8, i];
            progress(propose(&mut worlds[branch], &mut members[branch], &bytes, Some(MEMBER), &key(MEMBER)));
        }
    }
    (worlds, members)
}

fn evidence(from: Result<impl std::fmt::Debug, Misbehaviour>) -> Evidence {
    match from {
        Err(Misbehaviour::Forked(evidence)) => *evidence,
        other => panic!("no evidence: {other:?}"),
    }
}

/// Convicts this directory and no other, by its bytes alone, and no changed byte does.
fn assert_convicts(evidence: &Evidence) {
    let bytes = evidence.to_bytes();
    assert_eq!(Evidence::from_bytes(&bytes).unwrap().verify(&relay()), Ok(()));
    let other = RelayKey::new(&key(201).public_bytes()).unwrap();
    assert_eq!(evidence.verify(&other), Err(EvidenceError::Signature));
    let step = bytes.len() / 97 + 1;
    for at in (0..bytes.len()).step_by(step) {
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        // The head by which the other history passes is bound by the links alone, unless there is none.
        assert!(
            Evidence::from_bytes(&changed).is_ok_and(|it| it.verify(&relay()).is_ok()).then_some(at).is_none(),
            "{at}"
        );
    }
}

#[test]
fn rule_d1_two_receipts_for_one_position_are_exportable_evidence() {
    let (_, [mut one, mut other]) = forker(3, 1, 1);
    for (member, receipt) in
        [(&mut one.clone(), other.receipt().copied()), (&mut other.clone(), one.receipt().copied())]
    {
        let evidence = evidence(member.exchange(&receipt.unwrap()));
        assert!(evidence.links.is_empty() && evidence.one.position == 4 && evidence.other.position == 4);
        assert_convicts(&evidence);
    }
    let before = one.clone();
    assert!(one.exchange(other.receipt().unwrap()).is_err());
    assert_eq!(one, before, "a fork changes nothing at the member that finds it");
    // Honest histories of different lengths convict nobody.
    let (mut world, mut ahead) = founded(2);
    let behind = ahead.clone();
    progress(propose(&mut world, &mut ahead, b"x", None, &key(MEMBER)));
    let (a, b) = (*behind.receipt().unwrap(), *ahead.receipt().unwrap());
    for (one, other, links) in [(a, b, vec![]), (a, a, vec![]), (a, b, vec![entry(b"x", None).link()])] {
        let it = Evidence { one, head: one.head, links, other };
        assert_eq!(it.verify(&relay()), Err(EvidenceError::NoContradiction));
    }
    let elsewhere = Receipt::sign(&key(crate::fixture::RELAY), crate::ids::GroupId([1; 32]), 2, Head([1; 32]));
    let it = Evidence { one: elsewhere, head: a.head, links: vec![], other: a };
    assert_eq!(it.verify(&relay()), Err(EvidenceError::NoContradiction), "of another group");
    assert_eq!(other.exchange(&Receipt { signature: [0; 64], ..a }), Err(Misbehaviour::BadReceipt));
}

#[test]
fn rule_d2_one_exchanged_receipt_reveals_a_fork_of_branches_of_any_length() {
    for (one_length, other_length) in [(1, 30), (30, 1), (5, 6), (60, 2)] {
        let (mut worlds, [mut one, mut other]) = forker(2, one_length, other_length);
        let (receipt, longer) = (*one.receipt().unwrap(), one_length >= other_length);
        // The member that is behind asks on, and then the log does not lead to the other's receipt.
        match other.exchange(&receipt) {
            Ok(Comparison::Ahead) => {
                assert!(longer && other.is_behind());
                // Nothing that it is given leads there: not its own branch,
                let withheld = catch_up(&mut worlds[1], &mut other.clone());
                assert!(matches!(withheld, Err(Misbehaviour::Withheld { .. })), "{withheld:?}");
                // and neither the other one.
                assert_convicts(&evidence(catch_up(&mut worlds[0], &mut other.clone())));
                // Should its own branch grow beyond, that proves it, too.
                let mut author = founded(2).1;
                catch_up(&mut worlds[1], &mut author).unwrap();
                for i in 0..=one_length {
                    progress(propose(&mut worlds[1], &mut author, &[9, i], Some(MEMBER), &key(MEMBER)));
                }
                assert_convicts(&evidence(catch_up(&mut worlds[1], &mut other)));
            }
            Err(Misbehaviour::Forked(evidence)) => {
                assert!(!longer || one_length == other_length);
                assert_convicts(&evidence);
            }
            result => panic!("{result:?}"),
        }
        assert!(matches!(one.exchange(&receipt), Ok(Comparison::Same)));
    }
    // Too far back, nothing can be said.
    let (_, [mut one, other]) = forker(2, 70, 1);
    assert_eq!(one.exchange(other.receipt().unwrap()), Ok(Comparison::TooOld));
}

#[test]
fn a_follower_that_is_moved_to_the_other_branch_convicts_the_forker() {
    let (mut worlds, [mut one, _]) = forker(2, 3, 3);
    assert_convicts(&evidence(catch_up(&mut worlds[1], &mut one.clone())));
    let answer = propose(&mut worlds[1], &mut one.clone(), b"x", None, &key(MEMBER));
    assert_convicts(&evidence(answer));
    let announced = worlds[1].published.last().unwrap().to_bytes(1 << 20);
    assert_convicts(&evidence(one.hint(&announced)));
    // Members choose a branch by D2, and then go on with it.
    let (_, [_, other]) = forker(2, 3, 3);
    assert_eq!(one.adopt(*other.receipt().unwrap()), Ok(None));
    assert_eq!(catch_up(&mut worlds[1], &mut one), Ok(vec![]));
}

#[test]
fn a_rewinder_is_noticed_and_convicted_once_its_log_grows_again() {
    let (world, _) = founded(3);
    let old = world.copy();
    let (mut world, mut member) = (world, follower());
    catch_up(&mut world, &mut member).unwrap();
    progress(propose(&mut world, &mut member, b"4", None, &key(MEMBER)));
    progress(propose(&mut world, &mut member, b"5", None, &key(MEMBER)));
    let mut rewound = old;
    let before = member.clone();
    let rolled_back = Err(Misbehaviour::RolledBack { had: 5, now: 3 });
    assert_eq!(catch_up(&mut rewound, &mut member), rolled_back);
    let call = member.propose(entry(b"6", None), vec![], vec![], &key(MEMBER)).unwrap();
    assert!(matches!(exchange(&mut rewound, &mut member, &call), Err(Misbehaviour::RolledBack { had: 5, now: 3 })));
    member.withdraw();
    assert_eq!(member, before);
    // A newcomer makes the old log grow.
    let mut newcomer = follower();
    catch_up(&mut rewound, &mut newcomer).unwrap();
    progress(propose(&mut rewound, &mut newcomer, b"other 4", Some(MEMBER), &key(MEMBER)));
    assert_convicts(&evidence(catch_up(&mut rewound, &mut member.clone())));
    for i in 0..3 {
        progress(propose(&mut rewound, &mut newcomer, &[i], None, &key(MEMBER)));
    }
    assert_convicts(&evidence(catch_up(&mut rewound, &mut member)));
}

#[test]
fn a_newcomer_begins_at_the_end_of_the_log_and_members_notice_an_older_end() {
    let (mut world, mut member) = founded(3);
    let mut old = world.copy();
    progress(propose(&mut world, &mut member, b"4", None, &key(MEMBER)));
    let mut newcomer = follower();
    let call = newcomer.ask_newest();
    let Ok(Answer::Newest(newest)) = exchange(&mut world, &mut newcomer, &call) else { panic!("it has an end") };
    assert_eq!(newcomer.adopt(newest), Ok(None));
    assert_eq!((newcomer.position(), newcomer.head()), (4, member.head()));
    progress(propose(&mut world, &mut member, b"5", None, &key(MEMBER)));
    assert_eq!(catch_up(&mut world, &mut newcomer).unwrap().len(), 1);
    let call = member.ask_newest();
    assert_eq!(exchange(&mut old, &mut member, &call), Err(Misbehaviour::RolledBack { had: 5, now: 3 }));
}

#[test]
fn an_amnesiac_is_noticed() {
    let (_, mut member) = founded(3);
    let mut empty = World::new();
    let forgot = Misbehaviour::RolledBack { had: 3, now: 0 };
    assert_eq!(catch_up(&mut empty, &mut member), Err(forgot.clone()));
    assert_eq!(propose(&mut empty, &mut member, b"x", None, &key(MEMBER)), Err(forgot));
    member.withdraw();
    // Somebody founds the group anew.
    let mut founder = follower();
    progress(propose(&mut empty, &mut founder, b"anew", Some(MEMBER), &crate::fixture::joiner()));
    assert_convicts(&evidence(catch_up(&mut empty, &mut member)));
}

#[test]
fn a_withholder_is_noticed_by_one_announcement_or_receipt_of_another_member() {
    let (mut world, mut author) = founded(2);
    let mut kept_out = author.clone();
    let mut old = world.copy();
    progress(propose(&mut world, &mut author, b"remove", None, &key(MEMBER)));
    assert_eq!(catch_up(&mut old, &mut kept_out), Ok(vec![]), "alone it notices nothing");
    let announced = world.published.last().unwrap().to_bytes(0);
    let mut by_hint = kept_out.clone();
    by_hint.hint(&announced).unwrap();
    let withheld = Err(Misbehaviour::Withheld { signed: 3, given: 2 });
    assert_eq!(catch_up(&mut old, &mut by_hint), withheld);
    assert_eq!(kept_out.exchange(author.receipt().unwrap()), Ok(Comparison::Ahead));
    assert_eq!(catch_up(&mut old, &mut kept_out), withheld);
    // One that admits that there is more, and does not give it.
    let mut empty_pages = swapper(world.copy(), |_, response| {
        if let Response::Page(page) = response {
            page.entries.clear();
            page.reached = page.before.unwrap();
        }
    });
    assert_eq!(catch_up(&mut empty_pages, &mut kept_out), withheld);
    assert_eq!(catch_up(&mut world, &mut kept_out).unwrap().len(), 1);
}

#[test]
fn a_swapper_of_entries_or_blobs_is_noticed() {
    let (mut world, mut author) = founded(1);
    let start = author.clone();
    for i in 0..4 {
        let (blobs, mail) = blob_and_mail();
        let call = author.propose(entry(&[i], Some(MEMBER)), blobs, mail, &key(MEMBER)).unwrap();
        progress(exchange(&mut world, &mut author, &call));
    }
    type Change = fn(&mut crate::response::Page);
    let changes: [(&str, Change, Misbehaviour); 8] = [
        ("changed", |page| page.entries[1].bytes.push(0), Misbehaviour::WrongEntries),
        ("another key", |page| page.entries[1].next_key = Some([1; 32]), Misbehaviour::WrongEntries),
        ("reordered", |page| page.entries.swap(0, 1), Misbehaviour::WrongEntries),
        ("left out", |page| _ = page.entries.remove(1), Misbehaviour::Unexpected),
        ("added", |page| page.entries.push(entry(b"x", None)), Misbehaviour::Unexpected),
        ("another head", |page| page.reached.head = Head([1; 32]), Misbehaviour::BadReceipt),
        ("of another group", |page| page.newest.group.0[0] ^= 1, Misbehaviour::Unexpected),
        ("another begin", |page| page.before = None, Misbehaviour::Unexpected),
    ];
    for (what, change, expect) in changes {
        let mut relay = swapper(world.copy(), |_, response| {
            if let Response::Page(page) = response {
                change(page);
            }
        });
        let mut member = start.clone();
        assert_eq!(catch_up(&mut relay, &mut member), Err(expect), "{what}");
        assert_eq!(member, start, "{what}");
    }
    let (blobs, _) = blob_and_mail();
    let mut relay = swapper(world.copy(), |_, response| {
        if let Response::Blobs(blobs) = response {
            blobs[0] = Some(b"other".to_vec());
        }
    });
    let call = author.blobs(vec![*blobs[0].hash()]).unwrap();
    assert_eq!(exchange(&mut relay, &mut author, &call), Err(Misbehaviour::WrongContent));
    let mut relay = swapper(world.copy(), |_, response| *response = Response::Stored { single_use: 0 });
    assert_eq!(catch_up(&mut relay, &mut author), Err(Misbehaviour::Unexpected));
}

#[test]
fn a_signing_swapper_gives_void_entries_and_another_members_receipt_shows_it() {
    let (mut world, mut author) = founded(1);
    let mut victim = author.clone();
    progress(propose(&mut world, &mut author, b"real", None, &key(MEMBER)));
    let forged = entry(b"forged", None);
    let head = forged.link().head(victim.head(), 2);
    let signed = Receipt::sign(&key(crate::fixture::RELAY), group(), 2, head);
    let mut relay = swapper(world.copy(), move |_, response| {
        if let Response::Page(page) = response {
            page.entries = vec![forged.clone()];
            (page.reached, page.newest) = (signed, signed);
        }
    });
    assert_eq!(catch_up(&mut relay, &mut victim).unwrap()[0].bytes, b"forged", "members judge it: it does not open");
    assert_convicts(&evidence(victim.exchange(author.receipt().unwrap())));
}

#[test]
fn true_answers_to_other_requests_are_told_apart() {
    let (mut world, mut author) = founded(2);
    let mut behind = author.clone();
    let at_two = *author.receipt().unwrap();
    for i in 3..=5 {
        progress(propose(&mut world, &mut author, &[i], Some(MEMBER), &key(MEMBER)));
    }
    // A page that begins elsewhere.
    let page = world.ask(&Request::Read { group: group(), from: 4, max_bytes: 100 });
    let read = behind.read();
    let before = behind.clone();
    assert_eq!(behind.handle(&read, &page.encode()), Err(Misbehaviour::Unexpected));
    assert_eq!(behind, before);
    // A conflict with nothing that came first.
    let call = behind.propose(entry(b"own", None), vec![], vec![], &key(MEMBER)).unwrap();
    let page = crate::response::Page { before: Some(at_two), entries: vec![], reached: at_two, newest: at_two };
    let conflict = Response::Refused(Refusal::Conflict(Box::new(page))).encode();
    assert_eq!(behind.handle(&call, &conflict), Err(Misbehaviour::Unexpected));
    assert_eq!(behind.pending(), Some(3));
    // The receipt of another position, after the append came by an announcement.
    let call = author.propose(entry(b"6", None), vec![], vec![], &key(MEMBER)).unwrap();
    world.send(call.request());
    author.hint(&world.published.last().unwrap().to_bytes(1 << 20)).unwrap();
    let other = Response::Receipt(at_two).encode();
    assert_eq!(author.handle(&call, &other), Err(Misbehaviour::WrongEntries));
}

#[test]
fn a_replayer_of_requests_and_responses_achieves_nothing() {
    let (mut world, mut member) = founded(1);
    let read = member.read();
    let old = world.send(read.request());
    let call = member.propose(entry(b"2", None), vec![], vec![], &key(MEMBER)).unwrap();
    let receipt = world.send(call.request());
    progress(member.handle(&call, &receipt));
    let rows = world.storage.clone();
    world.send(call.request());
    assert_eq!(world.storage, rows, "a request again");
    // Responses to requests of before are late, and harmless; to a later one they are a rollback.
    assert_eq!(progress(member.handle(&read, &old)).entries, vec![]);
    assert_eq!(progress(member.handle(&call, &receipt)).entries, vec![]);
    let later = member.read();
    assert_eq!(member.handle(&later, &old), Err(Misbehaviour::RolledBack { had: 2, now: 1 }));
    let next = member.propose(entry(b"3", None), vec![], vec![], &key(MEMBER)).unwrap();
    assert_eq!(member.handle(&next, &receipt), Err(Misbehaviour::WrongEntries), "the receipt of another append");
    assert_eq!(member.pending(), Some(3));
}

#[test]
fn a_directory_that_denies_what_it_accepted_is_found_out_by_the_log() {
    let (world, mut author) = founded(1);
    let mut denier = Changing {
        honest: world,
        change: |request: &Request, response: &mut Response| {
            if matches!(request, Request::Append(..)) {
                *response = Response::Refused(Refusal::Full);
            }
        },
    };
    let answer = propose(&mut denier, &mut author, b"own", None, &key(MEMBER));
    assert_eq!(answer, Ok(Answer::Refused(Refusal::Full)));
    assert_eq!(author.pending(), Some(2));
    let read = author.read();
    assert_eq!(progress(exchange(&mut denier, &mut author, &read)).outcome, Some(Outcome::Won(2)));
    // One that claims a conflict and shows none.
    let honest = denier.honest;
    let mut liar = swapper(honest, |request, response| {
        if let (Request::Append(..), Response::Receipt(receipt)) = (request, &*response) {
            let entries = vec![];
            let before = Some(*receipt);
            let page = crate::response::Page { before, entries, reached: *receipt, newest: *receipt };
            *response = Response::Refused(Refusal::Conflict(Box::new(page)));
        }
    });
    let answer = progress(propose(&mut liar, &mut author, b"own", None, &key(MEMBER)));
    assert_eq!((answer.outcome, author.is_behind()), (None, true), "the log decides");
    assert_eq!(catch_up(&mut liar, &mut author).unwrap().len(), 1);
    assert_eq!(author.pending(), None);
}
