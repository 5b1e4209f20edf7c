use std::collections::BTreeSet;

use proptest::prelude::*;
use sealcast_crypto::signature::{Algorithm, SigningKey};
use sealcast_crypto::tdh2;
use sealcast_wire::Utc;

use super::registration::binding_digest;
use super::*;
use crate::access::Access;
use crate::fixture::{DAY, NOW, World, client, header, origin_key, publication, publish, subscribe};
use crate::genesis::{Cluster, Genesis};

/// Of a sealed publication with all of its parts.
fn accusation() -> Accusation {
    let published = Publication {
        associated: b"ad".to_vec(),
        access: Some("exchange:desk = fx".parse().unwrap()),
        execute: Execute::Put { key: b"k".to_vec(), value: b"v".to_vec() },
        policy: 3,
        epoch: 1,
        ..publication(&["market/eurusd", "price=105"], b"")
    };
    let (sn, client, number) = (17, client(1), 5);
    let (envelope, ciphertext, shares) = (published.envelope(), b"ciphertext".to_vec(), b"shares".to_vec());
    Accusation { sn, client, number, envelope, ciphertext, sharing: tdh2::Sharing::First, shares }
}

fn samples(world: &mut World) -> Vec<Operation> {
    let rules = "read market/# if exchange:desk = fx\npublish \"a topic/+\" if hospitalA:role in [a, \"b c\"]";
    let cas = |expected| Execute::CompareAndSet { key: b"k".to_vec(), expected, value: b"new".to_vec() };
    let mut all = vec![
        world.claim(1, &[("desk", "fx"), ("clearance", "3")]),
        world.certificate(2, &[("hospitalA", "role", "nurse")]),
        Operation::Advertise { scope: "market/#".parse().unwrap(), text: b"quotes".to_vec() },
        subscribe("county = Orange and (price = 105 or \"a topic/+\" or market/#)"),
        Operation::Unsubscribe(7),
        Operation::Sync,
        world.admin(1, Action::Policy(rules.parse().unwrap())),
        world.admin(2, Action::RevokeClient(client(1))),
        world.admin(3, Action::RevokeCredential { issuer: "exchange".into(), serial: vec![1] }),
        world.admin(4, Action::Epoch(2)),
        world.admin(5, Action::Restore(client(1))),
        Operation::Accuse(Box::new(accusation())),
    ];
    for (execute, body) in [
        (Execute::Nothing, Body::Plain(vec![])),
        (Execute::Put { key: b"k".to_vec(), value: b"v".to_vec() }, Body::Sealed(b"ciphertext".to_vec())),
        (Execute::Increment { key: b"k".to_vec(), by: -3 }, Body::Digest { size: 9, hash: [7; 32] }),
        (cas(None), Body::Plain(b"x".to_vec())),
        (cas(Some(b"old".to_vec())), Body::Plain(b"x".to_vec())),
    ] {
        all.push(publish(Publication {
            associated: b"ad".to_vec(),
            access: Some("exchange:desk = fx".parse().unwrap()),
            execute,
            policy: 3,
            epoch: 1,
            body,
            ..publication(&["market/eurusd", "price=105"], b"")
        }));
    }
    all
}

#[test]
fn what_is_encoded_is_decoded() {
    for operation in samples(&mut World::new()) {
        let bytes = operation.to_bytes();
        assert_eq!(Operation::from_bytes(&bytes).as_ref(), Ok(&operation));
        for n in 0..bytes.len() {
            assert!(Operation::from_bytes(&bytes[..n]).is_err(), "{operation:?} cut at {n}");
        }
        assert!(Operation::from_bytes(&[&bytes[..], &[0]].concat()).is_err());
    }
}

#[test]
fn every_changed_byte_is_refused_or_another_operation() {
    for operation in samples(&mut World::new()) {
        let bytes = operation.to_bytes();
        for at in 0..bytes.len() {
            for change in [1, 2, 0x80] {
                let mut other = bytes.clone();
                other[at] ^= change;
                if let Ok(read) = Operation::from_bytes(&other) {
                    assert_eq!(read.to_bytes(), other, "one encoding");
                    assert_ne!(read, operation);
                }
            }
        }
    }
}

#[test]
fn genesis_has_one_encoding_and_names_the_cluster() {
    let world = World::new();
    let bytes = world.genesis.to_bytes();
    let read = Genesis::from_bytes(&bytes).unwrap();
    assert_eq!((read.to_bytes(), read.cluster()), (bytes.clone(), world.cluster));
    for n in 0..bytes.len() {
        assert!(Genesis::from_bytes(&bytes[..n]).is_err());
    }
    let mut other = world.genesis.clone();
    other.quorum = 1;
    assert_ne!(other.cluster(), world.cluster);
    other.quorum = 4;
    assert!(Genesis::from_bytes(&other.to_bytes()).is_err(), "nobody could be four of three");
}

#[test]
fn s9_the_label_tells_headers_rules_and_operation_apart() {
    let base = Publication {
        associated: b"ad".to_vec(),
        access: Some("a:x = 1".parse::<Access>().unwrap()),
        execute: Execute::Put { key: b"k".to_vec(), value: b"v".to_vec() },
        ..publication(&["a", "b"], b"body")
    };
    let mut variants = vec![base.clone()];
    variants.push(Publication { headers: vec![header("a")], ..base.clone() });
    variants.push(Publication { headers: vec![header("b"), header("a")], ..base.clone() });
    variants.push(Publication { headers: vec![header("a=b")], ..base.clone() });
    variants.push(Publication { headers: vec![header("a"), header("b=ad")], ..base.clone() });
    variants.push(Publication { associated: b"".to_vec(), ..base.clone() });
    variants.push(Publication { access: None, ..base.clone() });
    variants.push(Publication { access: Some("a:x = 1 and b:y = 2".parse().unwrap()), ..base.clone() });
    variants.push(Publication { execute: Execute::Nothing, ..base.clone() });
    variants.push(Publication { epoch: 1, ..base.clone() });
    variants.push(Publication { policy: 1, ..base.clone() });
    let labels: BTreeSet<[u8; 32]> = variants.iter().map(|v| v.label(&client(1), 5).hash()).collect();
    assert_eq!(labels.len(), variants.len());
    let label = base.label(&client(1), 5);
    assert_eq!(tdh2::Label::decode(&label.encode()), Ok(label), "within the limits of labels");
    assert_ne!(base.label(&client(1), 5), base.label(&client(2), 5));
    assert_ne!(base.label(&client(1), 5), base.label(&client(1), 6));
    let other_body = Publication { body: Body::Sealed(b"c".to_vec()), ..base.clone() };
    assert_eq!(base.label(&client(1), 5), other_body.label(&client(1), 5), "the ciphertext is bound to it, not in it");
}

/// The publication's bytes are its envelope and its body; clients seal to the same bytes.
#[test]
fn s9_the_envelope_that_clients_seal_is_the_one_that_is_ordered() {
    let samples = samples(&mut World::new());
    let publications = samples.iter().filter_map(|operation| match operation {
        Operation::Publish(publication) => Some((operation.to_bytes(), publication.envelope())),
        _ => None,
    });
    let mut seen = 0;
    for (bytes, envelope) in publications {
        let mut r = Reader::new(&bytes[1..]);
        assert_eq!(sealcast_wire::Envelope::decode(&mut r).as_ref(), Ok(&envelope));
        assert!(envelope.is_sound() && (1..=3).contains(&r.u8().unwrap()), "the body's kind follows");
        seen += 1;
    }
    assert_eq!(seen, 5);
}

#[test]
fn s10_the_executable_operation_is_bound_to_the_ciphertext() {
    let with = |by| Publication { execute: Execute::Increment { key: b"k".to_vec(), by }, ..publication(&["a"], b"") };
    assert_ne!(with(1).label(&client(1), 0).executable, with(2).label(&client(1), 0).executable);
    assert_eq!(publication(&["a"], b"").label(&client(1), 0).executable, None);
}

#[test]
fn rule_g3_a_batch_binds_cluster_client_numbers_and_all_operations() {
    let world = World::new();
    let batch = Batch::sign(&world.cluster, &origin_key(1), 5, vec![Operation::Sync, Operation::Unsubscribe(1)]);
    let good = |cluster: &Cluster, batch: &Batch| check(cluster, vec![batch.clone()], |_| vec![])[0].is_ok();
    assert!(good(&world.cluster, &batch));
    assert!(!good(&Cluster([1; 32]), &batch), "another cluster");
    let bytes = batch.to_bytes();
    assert_eq!(Batch::from_bytes(&bytes).as_ref(), Ok(&batch));
    for at in 0..bytes.len() {
        let mut other = bytes.clone();
        other[at] ^= 1;
        assert!(!Batch::from_bytes(&other).is_ok_and(|f| good(&world.cluster, &f)), "byte {at}");
    }
}

#[test]
fn rule_e10_a_batch_is_judged_alike_alone_and_in_any_company() {
    let world = World::new();
    let mut batches: Vec<Batch> =
        (0..40).map(|i| Batch::sign(&world.cluster, &origin_key(i % 3), u64::from(i), vec![Operation::Sync])).collect();
    let foreign = |i| Batch::sign(&Cluster([9; 32]), &origin_key(1), i, vec![Operation::Sync]);
    for at in [3, 4, 39] {
        batches[at] = foreign(at as u64);
    }
    let judged = check(&world.cluster, batches.clone(), |_| vec![]);
    for (i, (together, batch)) in judged.iter().zip(&batches).enumerate() {
        let alone = check(&world.cluster, vec![batch.clone()], |_| vec![]).remove(0);
        assert_eq!(*together, alone);
        assert_eq!(together.is_err(), [3, 4, 39].contains(&i));
    }
}

#[test]
fn s11_s12_a_ciphertext_is_checked_with_its_label_before_it_is_ordered() {
    let world = World::new();
    let sealed = |n: u8| Publication { body: Body::Sealed(vec![n]), epoch: 4, ..publication(&["a"], b"") };
    let batch = |first, n: u8| {
        let operations = vec![publish(publication(&["a"], b"plain")), publish(sealed(n))];
        Batch::sign(&world.cluster, &origin_key(1), first, operations)
    };
    let judged = check(&world.cluster, vec![batch(0, 1), batch(2, 2)], |asked| {
        assert_eq!(asked[1].label, sealed(2).label(&client(1), 3), "the label of client and number");
        assert_eq!((asked.len(), asked[1].epoch, asked[1].ciphertext), (2, 4, &[2][..]));
        asked.iter().map(|s| s.ciphertext == [2]).collect()
    });
    assert_eq!(judged[0], Err(BatchError::Ciphertext));
    assert!(judged[1].is_ok());
}

#[test]
fn rule_e4_an_accusation_names_what_was_published_and_is_checked_before_it_is_ordered() {
    let world = World::new();
    let it = accusation();
    let published = samples(&mut World::new()).into_iter().find(|it| match it {
        Operation::Publish(it) => matches!(it.body, Body::Sealed(_)),
        _ => false,
    });
    let published = published.expect("one of them is sealed");
    let Operation::Publish(publication) = &published else { panic!("a publication") };
    assert_eq!(it.accused(), OperationId::of(&published.to_bytes()));
    assert_eq!(it.label(), publication.label(&it.client, it.number));
    let later = Accusation { sharing: tdh2::Sharing::Later([7; 32]), ..it.clone() };
    for it in [&it, &later] {
        assert_eq!(Accusation::of_record(it.sn, &it.record()), Ok(it.clone()));
    }
    assert_ne!(it.record(), later.record(), "an accusation names the sharing that its shares are of");
    let accuse = |n: usize| vec![Operation::Accuse(Box::new(it.clone())); n];
    let judge = |good: bool| {
        let batch = Batch::sign(&world.cluster, &origin_key(2), 0, accuse(1));
        let judged = check(&world.cluster, vec![batch], |asked| {
            assert_eq!((asked.len(), asked[0].against, asked[0].ciphertext), (1, Some(&it), &b"ciphertext"[..]));
            assert_eq!((asked[0].client, asked[0].number, asked[0].id), (it.client, it.number, it.accused()));
            vec![good]
        });
        judged.into_iter().next().unwrap().map(drop)
    };
    assert_eq!((judge(true), judge(false)), (Ok(()), Err(BatchError::Accusation)));
    let two = Batch::sign(&world.cluster, &origin_key(2), 0, accuse(limits::BATCH_ACCUSATIONS_MAX + 1));
    assert_eq!(Batch::from_bytes(&two.to_bytes()), Err(Malformed), "they come one by one");
}

#[test]
fn rule_e3_administrators_sign_m_of_k() {
    let world = World::new();
    let action = || Action::RevokeClient(client(1));
    let mut admin = Admin::new(1, action());
    let verify = |admin: &Admin| admin.verify(&world.genesis, &world.cluster);
    assert!(!admin.sign(&world.genesis, &world.cluster, &origin_key(1)), "a client is none");
    assert!(admin.sign(&world.genesis, &world.cluster, &world.administrators[2]));
    assert!(admin.sign(&world.genesis, &world.cluster, &world.administrators[2]));
    assert_eq!(verify(&admin), Err(AdminError::Signatures), "one signed twice");
    assert!(admin.sign(&world.genesis, &world.cluster, &world.administrators[0]));
    assert_eq!(verify(&admin), Ok(()));
    assert_eq!(
        Admin { number: 2, ..admin.clone() }.verify(&world.genesis, &world.cluster),
        Err(AdminError::Signatures)
    );
    let other = Admin { action: Action::RevokeClient(client(2)), ..admin.clone() };
    assert_eq!(verify(&other), Err(AdminError::Signatures));
    assert_eq!(admin.verify(&world.genesis, &Cluster([0; 32])), Err(AdminError::Signatures));
    let forged = Admin { signatures: vec![admin.signatures[0], admin.signatures[0]], ..admin.clone() };
    let bytes = Operation::Administer(forged).to_bytes();
    assert!(Operation::from_bytes(&bytes).is_err(), "the same one twice has no encoding");
}

#[test]
fn rule_e3_an_issuer_speaks_for_itself_only() {
    let mut world = World::new();
    let verify = |world: &World, operation: &Operation, client: &Client, at: Utc| match operation {
        Operation::Register(r) => r.verify(&world.genesis, &world.cluster, client, at),
        _ => panic!("no registration"),
    };
    let registration =
        world.certificate(1, &[("hospitalA", "role", "nurse"), ("exchange", "desk", "fx"), ("hospitalB", "role", "x")]);
    let credential = verify(&world, &registration, &client(1), NOW).unwrap();
    assert_eq!(credential.attributes.len(), 1, "only its own namespace");
    assert_eq!(credential.attributes[0].issuer, "hospitalA");
    assert_eq!(verify(&world, &registration, &client(2), NOW), Err(ProofError::Signature), "another's certificate");
    assert!(matches!(
        verify(&world, &registration, &client(1), Utc(NOW.0 + 91 * DAY)),
        Err(ProofError::Certificate(_))
    ));

    let claim = world.claim(1, &[("desk", "fx")]);
    assert_eq!(verify(&world, &claim, &client(1), NOW).unwrap().attributes[0].value, "fx");
    assert_eq!(verify(&world, &claim, &client(2), NOW), Err(ProofError::Signature), "for another client");
    assert_eq!(verify(&world, &claim, &client(1), Utc(NOW.0 + 31 * DAY)), Err(ProofError::Time));
    // Said of somebody's key, it is of each client that this key names, in this cluster, and of nobody else.
    for algorithm in [Algorithm::Ed25519, Algorithm::P256] {
        let seed = sealcast_crypto::secret::Secret::from_bytes([7; 32]);
        let holder = SigningKey::from_seed(algorithm, &seed).unwrap();
        let until = Utc(NOW.0 + DAY);
        let claim = Claim::sign("exchange", &[7], (NOW, until), &[("desk", "fx")], holder.public(), &world.exchange);
        assert_eq!(Claim::from_bytes(&claim.to_bytes()), Ok(claim.clone()));
        let named = |by: &SigningKey, cluster: &Cluster, client: &Client| {
            let binding = Some(by.sign(&binding_digest(cluster, client, &claim.hash())));
            Operation::Register(Registration {
                intent: false,
                proof: Proof::Claim { claim: Box::new(claim.clone()), binding },
            })
        };
        for seed in [1, 2] {
            let word = named(&holder, &world.cluster, &client(seed));
            assert_eq!(Operation::from_bytes(&word.to_bytes()).as_ref(), Ok(&word));
            assert_eq!(verify(&world, &word, &client(seed), NOW).unwrap().attributes[0].value, "fx");
            assert_eq!(verify(&world, &word, &client(3), NOW), Err(ProofError::Signature), "it names another client");
        }
        let elsewhere = named(&holder, &Cluster([9; 32]), &client(1));
        assert_eq!(verify(&world, &elsewhere, &client(1), NOW), Err(ProofError::Signature), "in another cluster");
        let stolen = named(&world.exchange, &world.cluster, &client(1));
        assert_eq!(verify(&world, &stolen, &client(1), NOW), Err(ProofError::Signature), "not by its holder");
        let unnamed = Operation::Register(Registration { intent: false, proof: claim.into() });
        assert_eq!(verify(&world, &unnamed, &client(1), NOW), Err(ProofError::Signature), "by nobody");
    }
    let forger = SigningKey::from_seed(Algorithm::P256, &sealcast_crypto::secret::Secret::from_bytes([3; 32])).unwrap();
    let forged = |issuer| {
        let claim = Claim::sign(issuer, &[1], (NOW, NOW), &[("desk", "fx")], origin_key(1).public(), &forger);
        Operation::Register(Registration { intent: false, proof: claim.into() })
    };
    assert_eq!(verify(&world, &forged("exchange"), &client(1), NOW), Err(ProofError::Signature));
    assert_eq!(
        verify(&world, &forged("hospitalA"), &client(1), NOW),
        Err(ProofError::Issuer),
        "it issues certificates"
    );
    assert_eq!(verify(&world, &forged("nobody"), &client(1), NOW), Err(ProofError::Issuer));
}

#[test]
fn interests_are_anchored_where_they_are_narrow() {
    let anchors = |text: &str| {
        let interest: Interest = text.parse().unwrap();
        interest.anchors().iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(anchors("market/# and price = 105"), ["price"]);
    assert_eq!(anchors("a or b = 1 or (c/+ and d)"), ["a", "b", "d"]);
    let interest: Interest = "county = Orange and (price = 105 or price = 106)".parse().unwrap();
    let matches = |headers: &[&str]| interest.matches(&headers.iter().map(|h| header(h)).collect::<Vec<_>>());
    assert!(matches(&["price=106", "county=Orange"]));
    assert!(!matches(&["price=106"]));
    assert!(!matches(&["price=107", "county=Orange"]));
    assert!("not a".parse::<Interest>().is_err(), "a topic called not, beside another");
}

#[test]
fn a_policys_hash_is_of_its_rules_and_number_not_of_their_order() {
    let policy = |text: &str| text.parse::<Policy>().unwrap().in_order();
    let (a, b) = ("read a if h:x = 1\n", "publish a if h:x = 2\n");
    let both = policy(&format!("{a}{b}"));
    assert_eq!(both.hash(3), policy(&format!("{b}{a}{b}")).hash(3));
    assert_ne!(both.hash(3), both.hash(4));
    assert_ne!(both.hash(3), policy(a).hash(3));
}

#[test]
fn policies_read_back_and_errors_have_their_line() {
    let text = "read market/# if exchange:desk = fx\npublish \"a topic\" if h:role in [a, b] or h:n > 3\n";
    let policy: Policy = format!("# for people\n\n{text}").parse().unwrap();
    assert_eq!(policy.to_string(), text);
    assert_eq!(Policy::from_bytes(&policy.to_bytes()).as_ref(), Ok(&policy));
    let error = "read a if h:x = 1\n\nread a/#/b if h:x = 1".parse::<Policy>().unwrap_err();
    assert_eq!((error.location.line, error.location.column), (3, 6));
    let error = "read a if h:x = 1\nwrite a if h:x = 1".parse::<Policy>().unwrap_err();
    assert_eq!(error.to_string(), "2:1: expected `read` or `publish`, found `write`");
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_harm(kind in 0_u8..10, bytes in prop::collection::vec(0_u8..8, 0..80)) {
        let bytes = [&[kind], &bytes[..]].concat();
        if let Ok(operation) = Operation::from_bytes(&bytes) {
            prop_assert_eq!(operation.to_bytes(), bytes);
        }
    }

    #[test]
    fn any_bytes_are_no_batch(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut bytes = bytes;
        if let Some(version) = bytes.first_mut() { *version = 1; }
        if let Ok(batch) = Batch::from_bytes(&bytes) {
            let head = Head { client: batch.client(), first: batch.first(), end: batch.end() };
            prop_assert_eq!(Head::of(&bytes), Ok(head));
            prop_assert_eq!(batch.to_bytes(), bytes);
        }
    }
}

#[test]
fn a_batch_of_encoded_operations_is_the_same_batch() {
    let world = World::new();
    let operations =
        || vec![subscribe("market/#"), publish(publication(&["market/eurusd"], b"1.0842")), Operation::Sync];
    let encoded: Vec<(OperationId, Vec<u8>)> =
        operations().iter().map(Operation::to_bytes).map(|bytes| (OperationId::of(&bytes), bytes)).collect();
    let signed = |again: u8| {
        let of = encoded.iter().map(|(id, bytes)| (id, &bytes[..]));
        sign_encoded(&world.cluster, &origin_key(1), 7, again, of)
    };
    let batch = Batch::sign(&world.cluster, &origin_key(1), 7, operations());
    assert_eq!(signed(0), (batch.digest(&world.cluster), batch.to_bytes()));
    let (digest, bytes) = signed(1);
    assert_ne!(digest, batch.digest(&world.cluster));
    let again = Batch::from_bytes(&bytes).expect("it is a batch");
    assert_eq!(again.to_bytes(), bytes);
    assert!(check(&world.cluster, vec![again], |_| vec![]).remove(0).is_ok_and(|it| *it.digest() == digest));
}

#[test]
fn a_batches_first_bytes_say_what_the_batch_says() {
    let world = World::new();
    let checked = world.batch(3, 7, vec![Operation::Sync, Operation::Unsubscribe(1)]);
    let bytes = checked.batch().to_bytes();
    assert_eq!(Head::of(&bytes), Ok(Head { client: client(3), first: 7, end: 9 }));
    assert!(Head::of(&bytes[..43]).is_err());
    let none = [&bytes[..42], &[0, 0]].concat();
    assert!(Head::of(&none).is_err(), "a batch has operations");
}
