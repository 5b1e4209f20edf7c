//! The log at an honest directory (D1).

use std::time::Duration;

use sealcast_crypto::hash::sha256;
use sealcast_crypto::secret::Secret;
use sealcast_crypto::signature::OriginKey;
use sealcast_wire::limits;

use crate::directory::{Config, Directory, Memory, Write};
use crate::fixture::{
    MEMBER, Relay as _, World, append, catch_up, device, entry, exchange, follower, founded, group, joiner, key,
    progress, propose, relay, signed,
};
use crate::follower::{Answer, Comparison, Follower, Misbehaviour, Outcome};
use crate::ids::{GroupId, Head};
use crate::log::LogEntry;
use crate::receipt::Announcement;
use crate::request::{Append, Blob, Request};
use crate::response::{Refusal, Response};

#[test]
fn rule_d1_of_two_founders_one_wins_and_both_learn_it() {
    let mut world = World::new();
    let (mut one, mut other) = (follower(), follower());
    let won = progress(propose(&mut world, &mut one, b"one", Some(MEMBER), &joiner()));
    assert_eq!(won.outcome, Some(Outcome::Won(1)));
    assert!(won.entries[0].is_own && won.entries[0].bytes == b"one");
    let lost = progress(propose(&mut world, &mut other, b"other", Some(3), &joiner()));
    assert_eq!(lost.outcome, Some(Outcome::Lost));
    assert!(!lost.entries[0].is_own && lost.entries[0].bytes == b"one");
    assert_eq!(one.head(), other.head());
    // The loser goes on with what the winner named.
    let won = progress(propose(&mut world, &mut other, b"second", None, &key(MEMBER)));
    assert_eq!(won.outcome, Some(Outcome::Won(2)));
}

#[test]
fn only_a_holder_of_the_joiner_key_founds_a_group() {
    let mut world = World::new();
    assert_eq!(world.refusal(&append(&follower(), entry(b"x", None), &key(9))), Refusal::WrongKey);
    let mut forged = append(&follower(), entry(b"x", None), &joiner());
    if let Request::Append(it, _) = &mut forged {
        it.entry.bytes.push(0);
    }
    assert_eq!(world.refusal(&forged), Refusal::BadSignature);
    assert_eq!(world.refusal(&Request::Read { group: group(), from: 1, max_bytes: 9 }), Refusal::UnknownGroup);
    let later = Append {
        group: group(),
        expected_head: Head([1; 32]),
        at_end: false,
        entry: entry(b"x", None),
        blobs: vec![],
        mail: vec![],
    };
    assert_eq!(world.refusal(&signed(later, &joiner())), Refusal::UnknownGroup);
    let at_end = follower().propose_at_end(entry(b"x", None), &joiner()).unwrap();
    assert_eq!(world.refusal(&Request::decode(at_end.request()).unwrap()), Refusal::UnknownGroup);
}

#[test]
fn rule_d1_a_conflict_brings_the_missed_entries_and_the_retry_wins() {
    let (mut world, mut ahead) = founded(1);
    let mut behind = ahead.clone();
    for i in 0..5 {
        progress(propose(&mut world, &mut ahead, &[i], Some(MEMBER), &key(MEMBER)));
    }
    let missed = progress(propose(&mut world, &mut behind, b"late", None, &key(MEMBER)));
    assert_eq!(missed.outcome, Some(Outcome::Lost));
    let bytes: Vec<_> = missed.entries.iter().map(|it| (it.position, it.bytes[0], it.is_own)).collect();
    assert_eq!(bytes, (0..5).map(|i| (u64::from(i) + 2, i, false)).collect::<Vec<_>>());
    let won = progress(propose(&mut world, &mut behind, b"late", None, &key(MEMBER)));
    assert_eq!(won.outcome, Some(Outcome::Won(7)));
}

#[test]
fn rule_d1_who_loses_the_head_to_others_again_and_again_appends_where_the_log_ends() {
    let (mut world, mut ahead) = founded(1);
    let old = ahead.clone();
    for i in 0..limits::RELAY_BEHIND_MAX as u8 {
        progress(propose(&mut world, &mut ahead, &[i], None, &key(MEMBER)));
    }
    // Its answer is lost, and others go on.
    let mut behind = old.clone();
    let call = behind.propose_at_end(entry(b"mine", Some(3)), &key(MEMBER)).unwrap();
    let first = world.send(call.request());
    let kept = world.published.len();
    let call = behind.retry().unwrap();
    assert_eq!((world.send(call.request()), world.published.len()), (first.clone(), kept), "it is in once");
    assert_eq!(progress(behind.handle(&call, &first)).entries, vec![]);
    // It is asked for once more behind entries that came in between.
    let mut half = old.clone();
    half.propose_at_end(entry(b"mine", Some(3)), &key(MEMBER)).unwrap();
    let published: Vec<_> = world.published[1..40].iter().map(|it| it.to_bytes(1 << 20)).collect();
    published.iter().for_each(|it| assert_eq!(half.hint(it).unwrap().outcome, None));
    let call = half.retry().unwrap();
    assert_eq!(progress(exchange(&mut world, &mut half, &call)).outcome, None);
    assert!(catch_up(&mut world, &mut half).unwrap().last().unwrap().is_own);
    let read = behind.read();
    let found = progress(exchange(&mut world, &mut behind, &read));
    assert_eq!((found.outcome, behind.pending()), (Some(Outcome::Won(130)), None));
    let own: Vec<_> = found.entries.iter().filter(|it| it.is_own).map(|it| (it.position, &it.bytes[..])).collect();
    assert_eq!(own, [(130, &b"mine"[..])]);
    // Its key is named, and what it says is no plain append.
    progress(propose(&mut world, &mut behind, b"by it", None, &key(3)));
    let Ok(Request::Append(it, proof)) = Request::decode(call.request()) else { unreachable!() };
    let plain = Append { at_end: false, expected_head: *behind.head(), ..*it.clone() };
    assert_eq!(world.refusal(&Request::Append(Box::new(plain), proof)), Refusal::BadSignature);
    // One that knows too little is told what it missed, and so is one that expects a head of another log.
    let mut far = old.clone();
    let call = far.propose_at_end(entry(b"late", None), &key(MEMBER)).unwrap();
    let lost = progress(exchange(&mut world, &mut far, &call));
    assert_eq!((lost.outcome, lost.entries.len(), far.pending()), (Some(Outcome::Lost), 130, None));
    let mut far = old.clone();
    far.propose_at_end(entry(b"late", None), &key(MEMBER)).unwrap();
    assert_eq!(catch_up(&mut world, &mut far).unwrap().len(), 130);
    let call = far.retry().unwrap();
    assert_eq!(progress(exchange(&mut world, &mut far, &call)).outcome, Some(Outcome::Lost));
    let elsewhere = signed(Append { expected_head: Head([9; 32]), at_end: true, ..*it }, &key(MEMBER));
    assert!(matches!(world.refusal(&elsewhere), Refusal::Conflict(_)));
}

#[test]
fn rule_d1_who_appends_where_the_log_ends_believes_entries_and_no_receipt() {
    let (mut world, mut author) = founded(1);
    let mut other = author.clone();
    for _ in 0..2 {
        progress(propose(&mut world, &mut other, b"other", None, &key(MEMBER)));
    }
    let call = author.propose_at_end(entry(b"mine", None), &key(MEMBER)).unwrap();
    // The relay drops it, and says by a receipt that it has it.
    let lie = Response::Receipt(*other.receipt().unwrap()).encode();
    assert_eq!(progress(author.handle(&call, &lie)).outcome, None);
    let mut late = author.clone();
    assert_eq!(catch_up(&mut world, &mut author).unwrap().len(), 2);
    assert_eq!(author.pending(), None, "it lost, and is proposed anew");
    // The same if an announcement brings the entry first.
    let outcomes: Vec<_> =
        world.published[1..].iter().map(|it| late.hint(&it.to_bytes(1 << 20)).unwrap().outcome).collect();
    assert_eq!(outcomes, [None, Some(Outcome::Lost)]);
    // One where its own should be is a lie that shows at once.
    let call = late.propose_at_end(entry(b"mine", None), &key(MEMBER)).unwrap();
    progress(propose(&mut world, &mut other, b"other", None, &key(MEMBER)));
    let lie = Response::Receipt(*other.receipt().unwrap()).encode();
    assert_eq!(late.handle(&call, &lie), Err(Misbehaviour::WrongEntries));
}

#[test]
fn rule_g7_a_chain_of_keys_of_which_each_is_used_once_has_the_rate_of_one() {
    let (mut world, mut follower) = founded(1);
    world.pace = Duration::from_millis(1);
    let mut taken = 0;
    let seed = |i: u32| OriginKey::from_seed(&Secret::from_bytes(sha256(&i.to_be_bytes())));
    for i in 0..6_000_u32 {
        let signer = if taken == 0 { key(MEMBER) } else { seed(taken) };
        let entry = LogEntry { next_key: Some(seed(taken + 1).public_bytes()), bytes: vec![] };
        let call = follower.propose(entry, vec![], vec![], &signer).unwrap();
        match exchange(&mut world, &mut follower, &call).unwrap() {
            Answer::Progress(_) => taken += 1,
            Answer::Refused(Refusal::RateLimited { .. }) => follower.withdraw(),
            other => panic!("{i}: {other:?}"),
        }
    }
    assert!(taken < 5_400, "{taken}: what one has at once, and its rate for six seconds");
}

#[test]
fn rule_d1_a_repeated_append_gets_the_same_receipt_and_is_not_appended_twice() {
    let (mut world, mut member) = founded(1);
    let call = member.propose(entry(b"once", Some(3)), vec![], vec![(device(1), vec![1])], &key(MEMBER)).unwrap();
    let first = world.send(call.request());
    let rows = world.storage.clone();
    assert_eq!(world.send(call.request()), first);
    // Also when others went on, and when the key that signed it is no longer named.
    let mut other = founded(1).1;
    catch_up(&mut world, &mut other).unwrap();
    for i in 0..70 {
        progress(propose(&mut world, &mut other, &[i], Some(10 + i), &if i == 0 { key(3) } else { key(9 + i) }));
    }
    let later = world.storage.clone();
    assert_eq!(world.send(call.request()), first);
    assert_eq!((world.storage.clone(), world.published.len()), (later, 72), "nothing was written or published");
    assert_ne!(world.storage, rows);
    let won = progress(member.handle(&call, &first));
    assert_eq!(won.outcome, Some(Outcome::Won(2)));
    assert_eq!(catch_up(&mut world, &mut member).unwrap().len(), 70);
}

#[test]
fn rule_d1_the_directory_publishes_what_it_accepted_and_a_member_needs_no_other_path() {
    let (mut world, mut author) = founded(1);
    let (mut hearer, mut late) = (author.clone(), author.clone());
    for i in 0..4 {
        progress(propose(&mut world, &mut author, &[i], None, &key(MEMBER)));
    }
    let announced: Vec<Vec<u8>> = world.published.iter().skip(1).map(|it| it.to_bytes(1 << 20)).collect();
    assert_eq!(announced.len(), 4);
    for (i, bytes) in announced.iter().enumerate() {
        let heard = hearer.hint(bytes).unwrap();
        assert_eq!((heard.entries.len(), heard.entries[0].bytes[0]), (1, i as u8));
        assert_eq!(hearer.hint(bytes).unwrap().entries, vec![], "each entry is told once");
    }
    assert_eq!(hearer, author);
    // An announcement ahead, or without its entry, makes a member ask for what lies between.
    assert_eq!(late.hint(&announced[3]).unwrap().entries, vec![]);
    assert!(late.is_behind());
    assert_eq!(catch_up(&mut world, &mut late).unwrap().len(), 4);
    let short = world.published[4].to_bytes(140);
    assert_eq!(Announcement::from_bytes(&short).unwrap().entry, None);
    assert_eq!(late.hint(&short).unwrap().entries, vec![]);
    // An author that hears its entry before the answer won.
    let call = late.propose(entry(b"own", None), vec![], vec![], &key(MEMBER)).unwrap();
    let response = world.send(call.request());
    let heard = late.hint(&world.published[5].to_bytes(1 << 20)).unwrap();
    assert_eq!((heard.outcome, heard.entries[0].is_own), (Some(Outcome::Won(6)), true));
    assert_eq!(progress(late.handle(&call, &response)).entries, vec![]);
    // Announcements that anybody can make change nothing.
    let before = late.clone();
    for at in 0..announced[3].len() {
        let mut changed = announced[3].clone();
        changed[at] ^= 1;
        assert!(late.hint(&changed).is_err() || at > 136, "byte {at}");
        assert_eq!(late, before);
    }
}

#[test]
fn rule_d1_former_members_flood_a_log_with_names_and_push_out_no_key_of_members() {
    let (mut world, mut follower) = founded(1);
    let name = |world: &mut World, follower: &mut Follower, key: [u8; 32], signer: &OriginKey| {
        let call = follower.propose(LogEntry { next_key: Some(key), bytes: vec![] }, vec![], vec![], signer).unwrap();
        progress(exchange(world, follower, &call));
    };
    // Epoch 4 evicts a holder of key 3, and the joiner key.
    name(&mut world, &mut follower, key(3).public_bytes(), &key(MEMBER));
    name(&mut world, &mut follower, key(4).public_bytes(), &key(3));
    for i in 0..200 {
        // Some of them are no points of the curve.
        let junk = if i % 2 == 0 { [i; 32] } else { key(100 + i / 2).public_bytes() };
        let signer = match i % 3 {
            0 => joiner(),
            1 => key(3),
            _ if i > 3 => key(100 + (i - 3 - (i + 1) % 2) / 2),
            _ => key(3),
        };
        let call =
            follower.propose(LogEntry { next_key: Some(junk), bytes: vec![i] }, vec![], vec![], &signer).unwrap();
        if exchange(&mut world, &mut follower, &call).unwrap() == Answer::Refused(Refusal::WrongKey) {
            follower.withdraw();
        }
    }
    progress(propose(&mut world, &mut follower, b"member", Some(5), &key(4)));
    progress(propose(&mut world, &mut follower, b"member", None, &key(5)));
    // The keys outlive the process.
    let mut again = World { now: world.now, ..World::on(Config::default(), world.storage.clone()) };
    progress(propose(&mut again, &mut follower, b"member", None, &key(5)));
}

#[test]
fn a_folder_of_the_version_before_keeps_its_keys() {
    let (mut world, mut follower) = founded(3);
    let rows: Vec<(Vec<u8>, Vec<u8>)> =
        world.storage.rows().map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
    let named = |kind: u8| rows.iter().find(|(key, _)| key[1] == kind).cloned().unwrap();
    let ((keys, _), (group, record)) = (named(b'k'), named(b'g'));
    // There a group's record ended with its keys.
    let record = [record, key(MEMBER).public_bytes().into(), key(9).public_bytes().into()].concat();
    world.storage.apply(vec![Write { key: keys, value: None }, Write { key: group, value: Some(record) }]);
    progress(propose(&mut world, &mut follower, b"by one", None, &key(9)));
    progress(propose(&mut world, &mut follower, b"by the other", Some(10), &key(MEMBER)));
    progress(propose(&mut world, &mut follower, b"by a new one", None, &key(10)));
    assert_eq!(world.rows(b'k'), 1);
}

#[test]
fn rule_g7_who_has_many_keys_has_no_greater_rate() {
    let (mut world, mut follower) = founded(1);
    let junk: Vec<u8> = (10..40).collect();
    for (i, seed) in junk.iter().enumerate() {
        progress(propose(
            &mut world,
            &mut follower,
            b"names",
            Some(*seed),
            &if i < 8 { key(MEMBER) } else { key(junk[i - 8]) },
        ));
    }
    world.pass(Duration::from_secs(60));
    world.pace = Duration::ZERO;
    // What they have at once is used up after ten seconds. A member appends beside them.
    let (mut taken, mut ours) = (0_u32, 0_u32);
    for millis in 0..20_000_u32 {
        world.pass(Duration::from_millis(1));
        let seed = junk[millis as usize % junk.len()];
        let call = follower.propose(entry(b"junk", None), vec![], vec![], &key(seed)).unwrap();
        match exchange(&mut world, &mut follower, &call).unwrap() {
            Answer::Progress(_) => taken += u32::from(millis >= 15_000),
            _ => follower.withdraw(),
        }
        if millis % 250 == 0 {
            progress(propose(&mut world, &mut follower, b"member", None, &key(MEMBER)));
            ours += 1;
        }
    }
    assert_eq!(ours, 80);
    assert!((1_000..2_500).contains(&taken), "{taken} in five seconds");
}

#[test]
fn rule_g3_requests_of_another_group_or_for_another_directory_are_of_no_use() {
    let (mut world, member) = founded(1);
    let second = GroupId::of(&key(5).public_bytes());
    let mut other = Follower::new(second, relay());
    progress(propose(&mut world, &mut other, b"founds", Some(MEMBER), &key(5)));
    let Request::Append(it, proof) = append(&member, entry(b"m", None), &key(MEMBER)) else { unreachable!() };
    let moved = Append { group: second, expected_head: *other.head(), ..*it };
    assert_eq!(world.refusal(&Request::Append(Box::new(moved), proof)), Refusal::BadSignature);
    assert_eq!(world.refusal(&append(&other, entry(b"m", None), &joiner())), Refusal::WrongKey);
    // The same founding request at another directory.
    let founding = append(&follower(), entry(b"f", None), &joiner());
    let mut elsewhere = Directory::new(Config::default(), key(201));
    let handled = elsewhere.handle(world.now, &founding.encode(), &Memory::default()).unwrap();
    assert_eq!(Response::decode(&handled.response), Ok(Response::Refused(Refusal::BadSignature)));
    assert!(handled.writes.is_empty());
    let info =
        Response::decode(&elsewhere.handle(world.now, &Request::Info.encode(), &Memory::default()).unwrap().response);
    let call = member.info();
    assert_eq!(member.clone().handle(&call, &info.unwrap().encode()), Err(Misbehaviour::OtherKey));
    assert!(
        matches!(exchange(&mut world, &mut member.clone(), &call), Ok(Answer::Info(it)) if it.key == *relay().as_bytes())
    );
}

#[test]
fn a_log_is_compacted_and_its_head_kept() {
    let mut world = World::with(Config { log_entries: 10, ..Config::default() });
    let mut author = follower();
    let mut old = Vec::new();
    for i in 1..=30 {
        old.push(author.clone());
        let signer = if i == 1 { joiner() } else { key(MEMBER) };
        progress(propose(&mut world, &mut author, &[i], Some(MEMBER), &signer));
    }
    assert_eq!((world.rows(b'm'), world.rows(b'e'), world.rows(b'h')), (10, 10, 11));
    assert_eq!(world.rows(b'g'), 1);
    // Position 20 is the last one that is gone: who is there goes on, and may even conflict.
    let mut at_horizon = old[20].clone();
    assert_eq!(catch_up(&mut world, &mut at_horizon).unwrap().len(), 10);
    let mut loses = old[20].clone();
    let lost = progress(propose(&mut world, &mut loses, b"late", None, &key(MEMBER)));
    assert_eq!((lost.outcome, lost.entries.len()), (Some(Outcome::Lost), 10));
    // Who is before it is told where the log begins.
    let mut behind = old[19].clone();
    let lost = progress(propose(&mut world, &mut behind, b"late", None, &key(MEMBER)));
    assert_eq!((lost.outcome, behind.is_behind()), (None, true), "nobody can say any more");
    let call = behind.read();
    let Ok(Answer::Gone(receipt)) = exchange(&mut world, &mut behind, &call) else { panic!("it is gone") };
    assert_eq!(receipt.position, 20);
    assert_eq!(behind.adopt(receipt), Ok(Some(Outcome::Unknown)));
    assert_eq!(catch_up(&mut world, &mut behind).unwrap().len(), 10);
    assert_eq!(behind.head(), author.head());
    let mut fresh = follower();
    let call = fresh.read();
    assert!(matches!(exchange(&mut world, &mut fresh, &call), Ok(Answer::Gone(it)) if it == receipt));
    // By bytes, too, and the newest entry stays whatever it has.
    let mut world = World::with(Config { log_bytes: 1000, ..Config::default() });
    let mut author = follower();
    progress(propose(&mut world, &mut author, &[1; 200], Some(MEMBER), &joiner()));
    for _ in 0..9 {
        progress(propose(&mut world, &mut author, &[1; 200], None, &key(MEMBER)));
        assert!((1..=2).contains(&world.rows(b'e')));
    }
    progress(propose(&mut world, &mut author, &[1; 5000], None, &key(MEMBER)));
    assert_eq!(world.rows(b'e'), 1);
}

#[test]
fn long_logs_are_read_in_pages_and_each_page_has_its_receipt() {
    let (mut world, mut author) = founded(1);
    let mut reader = author.clone();
    for _ in 0..6 {
        progress(propose(&mut world, &mut author, &vec![7; 1 << 20], Some(MEMBER), &key(MEMBER)));
        world.pass(Duration::from_secs(2));
    }
    let call = reader.read();
    let page = progress(exchange(&mut world, &mut reader, &call));
    assert_eq!((page.entries.len(), reader.is_behind()), (4, true));
    assert_eq!(reader.receipt().map(|it| it.position), Some(5));
    assert_eq!(author.clone().exchange(reader.receipt().unwrap()), Ok(Comparison::Same));
    assert_eq!(catch_up(&mut world, &mut reader).unwrap().len(), 2);
    let one = Request::Read { group: group(), from: 2, max_bytes: 1 };
    assert!(matches!(world.ask(&one), Response::Page(it) if it.entries.len() == 1), "the first comes in any case");
    let nothing = Request::Read { group: group(), from: 100, max_bytes: 1 };
    assert!(matches!(world.ask(&nothing), Response::Page(it) if it.entries.is_empty() && it.reached.position == 7));
}

#[test]
fn rule_g7_each_key_has_its_rate_and_waits_for_itself_alone() {
    let (mut world, mut member) = founded(1);
    world.pace = Duration::ZERO;
    let mut refused = None;
    for i in 0..10_000_u32 {
        let call = member.propose(entry(&i.to_be_bytes(), None), vec![], vec![], &joiner()).unwrap();
        match exchange(&mut world, &mut member, &call).unwrap() {
            Answer::Progress(_) => {}
            Answer::Refused(Refusal::RateLimited { retry_after }) => {
                refused = Some((i, retry_after));
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    let (count, retry_after) = refused.expect("the joiner key is limited");
    assert!((300..600).contains(&count) && retry_after <= Duration::from_secs(1), "{count} {retry_after:?}");
    assert!(member.pending().is_some(), "it is tried again");
    world.pass(retry_after + Duration::from_millis(1));
    let call = member.retry().unwrap();
    assert!(matches!(progress(exchange(&mut world, &mut member, &call)).outcome, Some(Outcome::Won(_))));
    progress(propose(&mut world, &mut member, b"member", None, &key(MEMBER)));
    // Wrong signatures in the name of a key cost it nothing.
    let Request::Append(it, proof) = append(&member, entry(b"x", None), &key(MEMBER)) else { unreachable!() };
    let wrong = Request::Append(it, crate::request::Proof { signature: [7; 64], ..proof });
    assert!((0..2000).all(|_| world.refusal(&wrong) == Refusal::BadSignature));
    progress(propose(&mut world, &mut member, b"member", None, &key(MEMBER)));
    let mut other = Follower::new(GroupId::of(&key(5).public_bytes()), relay());
    progress(propose(&mut world, &mut other, b"founds", None, &key(5)));
}

#[test]
fn rule_g7_memory_stays_bounded_whatever_keys_come() {
    let mut world = World::with(Config { buckets: 50, groups: 120, ..Config::default() });
    let mut founded = 0;
    for seed in 0..=255_u8 {
        if [crate::fixture::RELAY].contains(&seed) {
            continue;
        }
        let mut follower = Follower::new(GroupId::of(&key(seed).public_bytes()), relay());
        let names = Some(seed.wrapping_add(1));
        match propose(&mut world, &mut follower, b"f", names, &key(seed)).unwrap() {
            Answer::Progress(_) => founded += 1,
            Answer::Refused(Refusal::Full) => continue,
            other => panic!("{other:?}"),
        }
        // Keys that nobody named, groups that nobody founded.
        world.refusal(&append(&follower, entry(b"x", None), &key(seed.wrapping_add(7))));
        world.ask(&Request::Read { group: GroupId([seed; 32]), from: 1, max_bytes: 1 });
        world.ask(&Request::Read { group: *follower.group(), from: 1, max_bytes: 1 });
        propose(&mut world, &mut follower, b"g", None, &key(seed.wrapping_add(1))).unwrap();
        assert!(world.directory.buckets() <= 50);
    }
    assert_eq!(founded, 120, "a quota bounds the groups, too");
    assert_eq!(world.directory.buckets(), 50);
}

#[test]
fn rule_g6_several_requests_share_one_durable_write() {
    let (mut world, mut member) = founded(1);
    let mut other = member.clone();
    let one = member.propose(entry(b"one", None), vec![Blob::new(vec![1])], vec![], &key(MEMBER)).unwrap();
    let two = other.propose(entry(b"two", None), vec![], vec![], &key(MEMBER)).unwrap();
    let mut overlay = crate::directory::Overlay::new(&world.storage);
    let mut responses = Vec::new();
    for call in [&one, &two, &one] {
        let handled = world.directory.handle(world.now, call.request(), &overlay).unwrap();
        overlay.apply(handled.writes);
        responses.push(handled.response);
    }
    let writes = overlay.into_writes();
    world.storage.apply(writes);
    assert_eq!(responses[0], responses[2]);
    assert_eq!(progress(member.handle(&one, &responses[0])).outcome, Some(Outcome::Won(2)));
    assert_eq!(progress(other.handle(&two, &responses[1])).outcome, Some(Outcome::Lost));
    assert_eq!(member.head(), other.head());
}
