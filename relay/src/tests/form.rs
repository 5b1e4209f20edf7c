//! Bytes: all that can be said is read back, and nothing that comes makes anything panic.

use std::time::Duration;

use proptest::prelude::*;
use sealcast_crypto::hash::sha256;
use sealcast_wire::{Utc, limits};

use crate::codec::FormatError;
use crate::directory::Memory;
use crate::evidence::Evidence;
use crate::fixture::{MEMBER, Relay as _, device, entry, follower, founded, group, joiner, key, relay};
use crate::follower::{Answer, Follower, Outcome, Progress, ProposeError, SavedError};
use crate::ids::{GroupId, Head};
use crate::log::first_head;
use crate::receipt::{Announcement, Receipt};
use crate::request::{Append, Blob, FetchMail, Package, Proof, PutBlobs, PutMail, PutPackages, Request, TakePackage};
use crate::response::{Info, MailItem, Page, Refusal, Response, Taken};

fn package(i: u8) -> Package {
    Package { expires: Utc(-1 - i64::from(i)), bytes: vec![i; 3] }
}

fn requests() -> Vec<Request> {
    let (group, expected_head) = (group(), Head([3; 32]));
    let proof = Proof { signer: [4; 32], signature: [5; 64] };
    let blobs = vec![Blob::new(b"blob".to_vec()), Blob::known([6; 32]), Blob::new(vec![])];
    let mail = vec![(device(1), b"welcome".to_vec()), (device(2), vec![])];
    let append = |entry, blobs, mail| Append { group, expected_head, at_end: false, entry, blobs, mail };
    let at_end = Append { at_end: true, ..append(entry(b"entry", None), vec![], vec![]) };
    let packages =
        |single_use, last_resort| PutPackages { group, device: device(3), number: 9, single_use, last_resort };
    vec![
        Request::Info,
        Request::Append(Box::new(append(entry(b"", None), vec![], vec![])), proof),
        Request::Append(Box::new(append(entry(b"entry", Some(7)), blobs.clone(), mail)), proof),
        Request::Append(Box::new(at_end), proof),
        Request::Read { group, from: 1, max_bytes: 0 },
        Request::Read { group, from: u64::MAX, max_bytes: u32::MAX },
        Request::Blobs { group, hashes: vec![[1; 32], [2; 32]] },
        Request::PutBlobs(PutBlobs { group, blobs }, proof),
        Request::PutPackages(packages(vec![], None), proof),
        Request::PutPackages(packages(vec![package(1), package(2)], Some(package(3))), proof),
        Request::TakePackage(TakePackage { group, device: device(4) }, proof),
        Request::Mail(FetchMail { group, device: device(4), acknowledged: 17 }, proof),
        Request::PutMail(PutMail { group, mail: vec![(device(1), b"welcome".to_vec()), (device(2), vec![])] }, proof),
    ]
}

fn receipt(position: u64) -> Receipt {
    Receipt::sign(&key(200), group(), position, Head([position as u8; 32]))
}

fn responses() -> Vec<Response> {
    let page = Page {
        before: Some(receipt(3)),
        entries: vec![entry(b"a", None), entry(b"", Some(1))],
        reached: receipt(5),
        newest: receipt(9),
    };
    let (before, newest) = (Box::new(receipt(4)), Box::new(receipt(5)));
    let refusals = [
        Refusal::Version,
        Refusal::Malformed,
        Refusal::TooLarge,
        Refusal::UnknownGroup,
        Refusal::Conflict(Box::new(page.clone())),
        Refusal::WrongKey,
        Refusal::BadSignature,
        Refusal::RateLimited { retry_after: Duration::from_millis(1500) },
        Refusal::Full,
        Refusal::Gone { before, newest },
        Refusal::Missing,
        Refusal::Stale,
    ];
    let taken = Taken { is_last_resort: true, left: 3, package: package(1) };
    let info = Info { key: [1; 32], entry_bytes: 2, blob_bytes: 3, mail_bytes: 4, request_bytes: 5, response_bytes: 6 };
    let mut all: Vec<Response> = refusals.into_iter().map(Response::Refused).collect();
    all.extend([
        Response::Info(info),
        Response::Receipt(receipt(7)),
        Response::Page(Box::new(Page { before: None, ..page })),
        Response::Blobs(vec![None, Some(b"blob".to_vec()), Some(vec![])]),
        Response::Stored { single_use: 16 },
        Response::Package(None),
        Response::Package(Some(taken)),
        Response::Mail { items: vec![MailItem { number: 4, bytes: b"mail".to_vec() }], more: true },
    ]);
    all
}

/// What is cut short, longer or of another version is refused.
fn assert_strict<T>(bytes: &[u8], decode: impl Fn(&[u8]) -> Result<T, FormatError>) {
    for length in 0..bytes.len() {
        assert!(decode(&bytes[..length]).is_err(), "cut at {length} of {}", bytes.len());
    }
    assert!(decode(&[bytes, &[0]].concat()).is_err(), "with a byte more");
    let other = [&[2], &bytes[1..]].concat();
    assert!(decode(&other).err() == Some(FormatError::Version), "of another version");
}

#[test]
fn rule_g2_every_request_and_response_has_one_form() {
    for request in requests() {
        let bytes = request.encode();
        assert_eq!(Request::decode(&bytes), Ok(request));
        assert_strict(&bytes, Request::decode);
    }
    let mut codes = Vec::new();
    for response in responses() {
        let bytes = response.encode();
        assert_eq!(Response::decode(&bytes), Ok(response.clone()));
        assert_strict(&bytes, Response::decode);
        if let Response::Refused(why) = response {
            codes.push(why.code());
            assert!(!why.to_string().is_empty());
        }
    }
    assert_eq!(codes, (1..=12).collect::<Vec<u8>>(), "each refusal has its code");
    for announcement in [
        Announcement { receipt: receipt(1), entry: None },
        Announcement { receipt: receipt(1), entry: Some(entry(b"e", Some(3))) },
    ] {
        assert_eq!(Announcement::from_bytes(&announcement.to_bytes()), Ok(announcement.clone()));
        assert_strict(&announcement.to_bytes(), Announcement::from_bytes);
    }
    let links = vec![entry(b"a", None).link(), entry(b"b", Some(1)).link()];
    let evidence = Evidence { one: receipt(1), head: Head([9; 32]), links, other: receipt(3) };
    assert_eq!(Evidence::from_bytes(&evidence.to_bytes()), Ok(evidence.clone()));
    assert_strict(&evidence.to_bytes(), Evidence::from_bytes);
    let at = receipt(8);
    assert_eq!(Receipt::from_bytes(&at.to_bytes()), Ok(at));
    for position in [0, u64::MAX] {
        assert!(Receipt::from_bytes(&Receipt { position, ..at }.to_bytes()).is_err());
    }
}

#[test]
fn rule_g2_parts_over_their_limits_are_refused_by_both_sides() {
    let long = vec![0; limits::RELAY_ENTRY_BYTES_MAX + 1];
    let (mut world, mut follower) = founded(1);
    let long_entry = crate::fixture::append(&follower, entry(&long, None), &key(MEMBER));
    assert_eq!(world.refusal(&long_entry), Refusal::TooLarge);
    let proposed = follower.propose(entry(&long, None), vec![], vec![], &key(MEMBER));
    assert_eq!(proposed.err(), Some(ProposeError::TooLarge));
    assert_eq!(follower.pending(), None);
    let exact = entry(&long[1..], None);
    let call = follower.propose(exact, vec![], vec![], &key(MEMBER)).unwrap();
    let answer = crate::fixture::exchange(&mut world, &mut follower, &call);
    assert_eq!(crate::fixture::progress(answer).outcome, Some(Outcome::Won(2)));

    let blob = Blob::new(vec![0; limits::RELAY_BLOB_BYTES_MAX + 1]);
    assert!(follower.put_blobs(vec![blob], &joiner()).is_err());
    assert!(follower.blobs(vec![[0; 32]; limits::RELAY_BLOBS_MAX + 1]).is_err());
    let garbage = vec![1; limits::RELAY_REQUEST_BYTES_MAX + 1];
    let response = Response::decode(&world.send(&garbage)).unwrap();
    assert_eq!(response, Response::Refused(Refusal::TooLarge));
    assert_eq!(Response::decode(&[]), Err(FormatError::Malformed));
}

#[test]
fn saved_state_is_read_back_and_checked() {
    let (mut world, mut follower) = founded(100);
    let announced = Receipt::sign(&key(200), group(), 105, Head([1; 32]));
    follower.exchange(&announced).unwrap();
    follower.propose(entry(b"next", None), vec![], vec![], &key(MEMBER)).unwrap();
    let bytes = follower.encode();
    assert!(bytes.len() < 5 << 10, "{} bytes", bytes.len());
    assert_eq!(Follower::decode(relay(), &bytes), Ok(follower.clone()));
    for length in 0..bytes.len() {
        assert!(Follower::decode(relay(), &bytes[..length]).is_err());
    }
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        // A key that a link names and the proof of an append are not checked again.
        if let Ok(other) = Follower::decode(relay(), &changed) {
            assert_eq!((other.position(), other.head(), other.receipt()), (100, follower.head(), follower.receipt()));
        }
    }
    let other = crate::key::RelayKey::new(&key(201).public_bytes()).unwrap();
    assert_eq!(Follower::decode(other, &bytes), Err(SavedError::OtherRelay));
    let fresh = Follower::new(group(), relay());
    assert_eq!(Follower::decode(relay(), &fresh.encode()), Ok(fresh));
    // Going on with it works.
    let mut restored = Follower::decode(relay(), &bytes).unwrap();
    let call = restored.retry().unwrap();
    let answer = crate::fixture::exchange(&mut world, &mut restored, &call);
    assert!(matches!(answer, Ok(Answer::Progress(it)) if it.outcome == Some(Outcome::Won(101))));
}

#[test]
fn rule_g3_statements_differ_in_each_part() {
    let mut statements = Vec::new();
    for relay_seed in [200, 201] {
        let relay = crate::key::RelayKey::new(&key(relay_seed).public_bytes()).unwrap();
        for signer in [[1; 32], [2; 32]] {
            for group in [GroupId([1; 32]), GroupId([2; 32])] {
                for (expected, next_key) in [(3, None), (4, None), (3, Some(1))] {
                    let blobs = vec![Blob::new(vec![1])];
                    let it = Append {
                        at_end: false,
                        group,
                        expected_head: Head([expected; 32]),
                        entry: entry(b"e", next_key),
                        blobs,
                        mail: vec![(device(1), vec![1])],
                    };
                    statements.push(it.statement(&relay, &signer));
                    statements.push(Append { at_end: true, ..it.clone() }.statement(&relay, &signer));
                    statements.push(Append { blobs: vec![], ..it.clone() }.statement(&relay, &signer));
                    statements.push(Append { mail: vec![], ..it.clone() }.statement(&relay, &signer));
                    statements.push(Append { entry: entry(b"f", next_key), ..it }.statement(&relay, &signer));
                }
                let mail = FetchMail { group, device: device(1), acknowledged: 1 };
                statements.push(mail.statement(&relay, &signer));
                statements.push(FetchMail { acknowledged: 2, ..mail }.statement(&relay, &signer));
                statements.push(TakePackage { group, device: device(1) }.statement(&relay, &signer));
                let put = |single_use, last_resort| PutPackages {
                    group,
                    device: device(1),
                    number: 1,
                    single_use,
                    last_resort,
                };
                statements.push(put(vec![package(1)], None).statement(&relay, &signer));
                statements.push(put(vec![], Some(package(1))).statement(&relay, &signer));
                statements.push(put(vec![package(2)], None).statement(&relay, &signer));
                let left = |i| PutMail { group, mail: vec![(device(i), vec![1])] };
                statements.extend([1, 2].map(|i| left(i).statement(&relay, &signer)));
                let blobs = PutBlobs { group, blobs: vec![Blob::new(vec![1])] };
                statements.push(blobs.statement(&relay, &signer));
            }
        }
    }
    let count = statements.len();
    statements.sort_unstable();
    statements.dedup();
    assert_eq!(statements.len(), count);
    let brought = PutBlobs { group: group(), blobs: vec![Blob::new(vec![1])] };
    let known = PutBlobs { group: group(), blobs: vec![Blob::known(*brought.blobs[0].hash())] };
    assert_eq!(brought.statement(&relay(), &[1; 32]), known.statement(&relay(), &[1; 32]), "content is its hash");
}

/// Computed from docs/WIRE.md by a script of its own, with another library's SHA-256 and Ed25519.
#[test]
fn rule_g9_bytes_and_statements_are_those_of_wire_md() {
    let hex = |bytes: [u8; 32]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let blobs = vec![Blob::new(b"blob".to_vec()), Blob::known([6; 32])];
    let mail = vec![(device(1), b"welcome".to_vec())];
    let first = first_head(&group());
    let entry = entry(b"entry", Some(2));
    let head = entry.link().head(&first, 1);
    let append = Append { group: group(), expected_head: first, at_end: false, entry, blobs: blobs.clone(), mail };
    let request = crate::fixture::signed(append, &joiner()).encode();
    let receipt = Receipt::sign(&key(crate::fixture::RELAY), group(), 1, head).to_bytes();
    let (group, signer, device) = (group(), joiner().public_bytes(), device(1));
    let package = |expires, bytes: &[u8]| Package { expires: Utc(expires), bytes: bytes.to_vec() };
    let (single_use, last_resort) = (vec![package(-2, b"p")], Some(package(5, b"last")));
    let packages = PutPackages { group, device, number: 9, single_use, last_resort };
    for (what, found, expect) in [
        ("APPEND", sha256(&request), "2dd01dfbd830a63d558b413ed5473a507fb34b13a732fe830329c7bb498a2909"),
        ("receipt", sha256(&receipt), "34959f8ecd1ea804dff1a9d799d2b3a8beca8b2098cc99158ad1b9750025c140"),
        (
            "blobs",
            PutBlobs { group, blobs }.statement(&relay(), &signer),
            "587286bd814a01565ed83598d1afdc4e1bdbc27f973e76cd16a86384786b279f",
        ),
        (
            "packages",
            packages.statement(&relay(), &signer),
            "58356ce26b7e78d9c41765963b3e3bea882e7a71c264d86a691a01ea0c93a362",
        ),
        (
            "take",
            TakePackage { group, device }.statement(&relay(), &signer),
            "41656bc68d07dd4831ec3598ccac5069439823446042d837c57dbb12dfb2a049",
        ),
        (
            "mail",
            FetchMail { group, device, acknowledged: 17 }.statement(&relay(), &signer),
            "756cb49667400d6d55844679c619e6af179dd449450234e05756d52dc67f5df9",
        ),
        (
            "leave",
            PutMail { group, mail: vec![(device, b"welcome".to_vec())] }.statement(&relay(), &signer),
            "2b388af310e1593fb58fe093a86039c5d505e3be4a7bf21e768a3d44898f8a2a",
        ),
    ] {
        assert_eq!(hex(found), expect, "{what}");
    }
}

/// Bytes that are one of these with some changed, or anything.
fn mutated(all: Vec<Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let changed = (prop::sample::select(all), prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4));
    let changed = changed.prop_map(|(mut bytes, changes)| {
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        bytes
    });
    prop_oneof![4 => changed, 1 => prop::collection::vec(any::<u8>(), 0..200)]
}

proptest! {
    #[test]
    fn rule_g1_no_bytes_make_a_directory_panic_or_change_it_when_it_refuses(
        all in prop::collection::vec(mutated(requests().iter().map(Request::encode).collect()), 1..8)
    ) {
        let (mut world, _) = founded(2);
        for bytes in all {
            let before: Memory = world.storage.clone();
            let published = world.published.len();
            let response = Response::decode(&world.send(&bytes)).unwrap();
            if matches!(response, Response::Refused(_)) {
                prop_assert_eq!(&world.storage, &before);
                prop_assert_eq!(world.published.len(), published);
            }
        }
    }

    #[test]
    fn rule_g1_no_bytes_make_a_follower_panic_or_change_it_when_it_refuses(
        kind in 0_usize..10,
        bytes in mutated(responses().iter().map(Response::encode).collect()),
        saved in mutated(vec![follower().encode(), founded(3).1.encode()]),
    ) {
        let (_, mut follower) = founded(3);
        let member = key(MEMBER);
        let call = match kind {
            0 => follower.info(),
            1 => follower.read(),
            2 => follower.propose(entry(b"x", None), vec![], vec![], &member).unwrap(),
            3 => follower.blobs(vec![[0; 32]; 3]).unwrap(),
            4 => follower.put_blobs(vec![], &member).unwrap(),
            5 => follower.take_package(device(1), &member),
            6 => follower.ask_before(1),
            8 => follower.propose_at_end(entry(b"x", None), &member).unwrap(),
            7 => follower.put_mail(vec![(device(1), vec![])], &member).unwrap(),
            _ => follower.mail(device(1), 0, &member),
        };
        let before = follower.clone();
        if follower.handle(&call, &bytes).is_err() {
            prop_assert_eq!(&follower, &before);
        }
        let _ = follower.hint(&bytes);
        let _ = Evidence::from_bytes(&bytes);
        let _ = Follower::decode(relay(), &saved);
    }

    #[test]
    fn rule_d1_members_who_propose_at_once_agree_on_one_log(
        turns in prop::collection::vec((0_usize..3, 0..4), 1..30)
    ) {
        let (mut world, first) = founded(1);
        let mut members = [first.clone(), first.clone(), first];
        let mut logs = [vec![], vec![], vec![]];
        let mut won = 0;
        for (i, (who, does)) in turns.into_iter().enumerate() {
            let bytes = [who as u8, i as u8];
            let call = match does {
                0 => members[who].read(),
                1 => members[who].propose_at_end(entry(&bytes, None), &key(MEMBER)).unwrap(),
                _ => members[who].propose(entry(&bytes, Some(MEMBER)), vec![], vec![], &key(MEMBER)).unwrap(),
            };
            let answer = crate::fixture::exchange(&mut world, &mut members[who], &call);
            let Ok(Answer::Progress(mut progress)) = answer else { panic!("{answer:?}") };
            if does == 1 && members[who].is_behind() {
                // It stands behind what its author does not know yet, once.
                prop_assert!(progress.outcome.is_none());
                let again = members[who].retry().unwrap();
                let again = crate::fixture::exchange(&mut world, &mut members[who], &again);
                prop_assert_eq!(again, Ok(Answer::Progress(Progress::default())));
                let call = members[who].read();
                let answer = crate::fixture::exchange(&mut world, &mut members[who], &call);
                let Ok(Answer::Progress(read)) = answer else { panic!("{answer:?}") };
                progress = read;
            }
            prop_assert!(does != 1 || matches!(progress.outcome, Some(Outcome::Won(_))));
            prop_assert!(members[who].pending().is_none(), "it won or lost");
            won += usize::from(matches!(progress.outcome, Some(Outcome::Won(_))));
            logs[who].extend(progress.entries.into_iter().map(|it| it.bytes));
        }
        for (member, log) in members.iter_mut().zip(&mut logs) {
            log.extend(crate::fixture::catch_up(&mut world, member).unwrap().into_iter().map(|it| it.bytes));
        }
        prop_assert_eq!(logs[0].len(), won, "each entry that won is in the log, and nothing else");
        prop_assert!(logs[0] == logs[1] && logs[1] == logs[2]);
        prop_assert!(members[0].head() == members[1].head() && members[1].head() == members[2].head());
    }
}
