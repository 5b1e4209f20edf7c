//! Who stands behind clients: what one credential may take, and what ends with it.

use super::*;

/// A registration of client `seed` by the exchange, under a serial that others may have too.
fn claim(run: &Broker, seed: u8, serial: u8, not_after: Utc, intent: bool) -> Operation {
    let World { exchange, .. } = &run.world;
    let claim =
        Claim::sign("exchange", &[serial], (NOW, not_after), &[("desk", "fx")], origin_key(seed).public(), exchange);
    Operation::Register(Registration { intent, proof: claim.into() })
}

fn in_a_month() -> Utc {
    Utc(NOW.0 + 30 * DAY)
}

#[test]
fn rule_g8_one_credential_vouches_for_few_keys() {
    let mut run = Broker::new();
    let most = u8::try_from(limits::CLIENTS_PER_CREDENTIAL_MAX).expect("few");
    let register = |run: &mut Broker, seed, serial| {
        let claim = claim(run, seed, serial, in_a_month(), false);
        run.codes(seed, vec![claim])[0]
    };
    assert!((0..most).all(|seed| register(&mut run, seed, 1) == Code::Done));
    assert_eq!(register(&mut run, most, 1), Code::TooMany);
    assert_eq!(run.state.client(&client(most)).unwrap(), None, "and nothing is remembered of it");
    assert_eq!(register(&mut run, 0, 1), Code::Done, "who is one of them may say so again");
    assert_eq!(register(&mut run, most, 2), Code::Done, "of another credential it may be a client");
}

#[test]
fn rule_g8_the_clients_of_one_credential_share_its_room_for_subscriptions() {
    let mut run = Broker::new();
    let clients =
        u8::try_from(limits::SUBSCRIPTIONS_PER_CREDENTIAL_MAX / limits::SUBSCRIPTIONS_PER_CLIENT_MAX).unwrap();
    for seed in 0..=clients {
        let claim = claim(&run, seed, 1, in_a_month(), false);
        assert_eq!(run.codes(seed, vec![claim]), [Code::Done]);
    }
    let many = |n: usize| (0..n).map(|i| subscribe(&format!("t{i}"))).collect::<Vec<_>>();
    for seed in 0..clients {
        let codes = run.codes(seed, many(limits::SUBSCRIPTIONS_PER_CLIENT_MAX));
        assert!(codes.iter().all(|code| *code == Code::Done));
    }
    assert_eq!(run.codes(clients, many(2)), [Code::TooMany; 2]);
    let first = run.state.subscriptions(&client(0)).next().expect("it has some").0;
    let outbox = run.block(vec![(0, vec![Operation::Unsubscribe(first)]), (clients, many(2))]);
    let codes: Vec<Code> = outbox.results[1].outcomes.iter().map(|it| it.code).collect();
    assert_eq!(codes, [Code::Done, Code::TooMany], "what one of them gives up another may have");

    // Others are not touched by it.
    let other = claim(&run, 100, 2, in_a_month(), false);
    assert_eq!(run.codes(100, [vec![other], many(1)].concat()), [Code::Done; 2]);
    // Long ones count by their bytes.
    let long = |i: usize| {
        let topics: Vec<String> = (0..25).map(|k| format!("{i}/{k}/{}", "x".repeat(200))).collect();
        subscribe(&topics.join(" or "))
    };
    let codes = run.codes(100, (0..limits::BATCH_OPERATIONS_MAX - 1).map(long).collect());
    let taken = codes.iter().filter(|it| **it == Code::Done).count();
    assert!((40..64).contains(&taken), "{taken} of 5 KB each, so that all fit into 256 KB");
    assert_eq!(run.codes(100, many(1)), [Code::Done], "a short one still does");
}

#[test]
fn rule_e10_a_certificate_registers_nobody_behind_its_time() {
    let mut run = Broker::with_clients();
    let certificate = run.world.certificate(5, &[]);
    let end = NOW.0 + 90 * DAY;
    let mut register = |at: i64| {
        let batches = run.checked(vec![(5, vec![certificate.clone()])]);
        let height = run.state.height() + 1;
        run.state.execute(height, Utc(at), &batches).expect("memory does not fail").results[0].outcomes[0].code
    };
    assert_eq!(register(end), Code::Done, "its last second");
    assert_eq!(register(end + 1), Code::Proof);
    assert_eq!(register(end + 290), Code::Proof, "its place is free by then, and one credential has few");
}

#[test]
fn rule_g8_who_registers_again_makes_nobody_look_up_anything_anew() {
    let mut run = Broker::with_clients();
    let before = run.state.vouching();
    let again = |run: &Broker, intent| claim(run, 1, 1, Utc(NOW.0 + 30 * DAY), intent);
    let operations = vec![again(&run, false), again(&run, true)];
    assert_eq!(run.codes(1, operations), [Code::Done; 2]);
    assert_eq!(run.state.vouching(), before);
    assert!(run.state.client(&client(1)).unwrap().expect("it is known").intent);
    let longer = claim(&run, 1, 1, Utc(NOW.0 + 31 * DAY), false);
    assert_eq!(run.codes(1, vec![longer]), [Code::Done]);
    assert_ne!(run.state.vouching(), before);
}

/// One with a subscription, one with an intent, and what they are told of a publication and an advertisement.
fn told(run: &mut Broker) -> (usize, Vec<Client>) {
    let operations = vec![
        publish(publication(&["a"], b"x")),
        Operation::Advertise { scope: "a".parse().expect("an interest"), text: b"soon".to_vec() },
    ];
    let outbox = run.block(vec![(3, operations)]);
    assert!(outbox.results[0].outcomes.iter().all(|it| it.code == Code::Done));
    (outbox.notices.len(), outbox.intents)
}

#[test]
fn rule_e10_what_stands_ends_with_the_last_credential_s_time() {
    let mut run = Broker::with_clients();
    let soon = Utc(at(run.state.height() + 1).0 + 200);
    for (seed, operations) in [(11, vec![subscribe("a")]), (12, vec![])] {
        let claim = claim(&run, seed, seed, soon, seed == 12);
        run.codes(seed, [vec![claim], operations].concat());
    }
    assert_eq!(told(&mut run), (1, BTreeSet::from([client(11), client(12)]).into_iter().collect()));
    while run.state.time() <= soon {
        run.block(vec![]);
    }
    assert_eq!(told(&mut run), (0, vec![]), "neither a place, ⊥, nor what is advertised");
    assert_eq!(run.state.subscriptions(&client(11)).count(), 0);
    let expired = claim(&run, 11, 11, soon, false);
    assert_eq!(run.codes(11, vec![subscribe("a"), expired]), [Code::Unregistered, Code::Proof]);
    // Renewed, it is a client as before, with room as before.
    let renewed = claim(&run, 11, 11, in_a_month(), true);
    assert_eq!(run.codes(11, vec![renewed, subscribe("a")]), [Code::Done; 2]);
    assert_eq!(told(&mut run), (1, vec![client(11)]));
    // A broker that starts again has the same in memory as one that never ended.
    let store = run.state.store.clone();
    run.state = State::open(run.world.genesis.clone(), store).expect("memory does not fail");
    assert_eq!(told(&mut run), (1, vec![client(11)]));
}

#[test]
fn rule_e2_what_stands_ends_with_the_last_credential_s_revocation() {
    let mut run = Broker::with_clients();
    let claims = [11, 12].map(|serial| claim(&run, 11, serial, in_a_month(), true));
    run.codes(11, [claims.to_vec(), vec![subscribe("a")]].concat());
    for (number, serial) in [(1, 11), (2, 12)] {
        assert_eq!(told(&mut run), (1, vec![client(11)]), "somebody vouches for it");
        let revoke = Action::RevokeCredential { issuer: "exchange".into(), serial: vec![serial] };
        let revoke = run.world.admin(number, revoke);
        assert_eq!(run.codes(3, vec![revoke]), [Code::Done]);
    }
    assert_eq!(told(&mut run), (0, vec![]));
    assert_eq!(run.state.subscriptions(&client(11)).count(), 0);
}

#[test]
fn rule_e2_who_loses_one_of_two_credentials_in_a_block_gets_empty_in_it() {
    let mut run = Broker::with_clients();
    let other = run.world.certificate(1, &[]);
    run.codes(1, vec![other, subscribe("a")]);
    let revoke = run.world.admin(1, Action::RevokeCredential { issuer: "exchange".into(), serial: vec![1] });
    let outbox = run.block(vec![(3, vec![publish(to("fx", &["a"], b"x")), revoke])]);
    assert_eq!(got(&outbox, 1), [(0, vec![Run::Empty { count: 1 }])]);
}

#[test]
fn rule_e4_a_suspended_publisher_is_known_again_when_its_credential_is_renewed() {
    let mut run = Broker::with_clients();
    let soon = Utc(at(run.state.height() + 1).0 + 200);
    let sealed = Publication { body: crate::operation::Body::Sealed(b"false".to_vec()), ..publication(&["a"], b"") };
    let claimed = claim(&run, 11, 11, soon, false);
    let sn = run.block(vec![(11, vec![claimed, publish(sealed.clone())])]).publications[0].sn;
    let evidence = super::suspension::accuse(sn, 11, 1, &sealed);
    assert_eq!(run.codes(1, vec![evidence]), [Code::Done]);
    while run.state.time() <= soon {
        run.block(vec![]);
    }
    let renewed = |run: &Broker, seed| claim(run, seed, 11, in_a_month(), false);
    let other_key = renewed(&run, 12);
    let publish_plain = || publish(publication(&["a"], b"x"));
    assert_eq!(run.codes(12, vec![other_key, publish_plain()]), [Code::Done, Code::Suspended]);
    let restore = run.world.admin(1, Action::Restore(client(11)));
    assert_eq!(run.codes(3, vec![restore]), [Code::Done]);
    assert_eq!(run.codes(12, vec![publish_plain()]), [Code::Done]);
}

#[test]
fn rule_g8_a_subscription_to_everything_costs_a_notice_a_block_and_a_row_while_its_client_is_away() {
    let mut run = Broker::with_clients();
    let all = vec![subscribe("#"); limits::SUBSCRIPTIONS_PER_CLIENT_MAX];
    assert!(run.codes(1, all).iter().all(|it| *it == Code::Done));
    let is_of_subscriptions =
        |row: &Result<Row, StoreError>| row.as_ref().is_ok_and(|(key, _)| key[0] == table::SUBSCRIPTION);
    let rows = |run: &Broker| elements(&run.state.store).filter(is_of_subscriptions).count();
    let before = rows(&run);
    // What it may not read costs one run, however much it is.
    let publications = |n: usize| (0..n).map(|_| publish(to("rates", &["a"], b"x"))).collect::<Vec<_>>();
    for n in [1, 40] {
        let outbox = run.block(vec![(2, publications(n))]);
        assert_eq!(outbox.notices.len(), limits::SUBSCRIPTIONS_PER_CLIENT_MAX);
        assert!(outbox.notices.iter().all(|it| it.runs == [Run::Empty { count: n as u64 }]));
    }
    // Nobody is there to take it, and nothing waits for that: its place alone is kept.
    assert_eq!(rows(&run), before);
    assert!(run.state.subscriptions(&client(1)).all(|(.., next)| next == 41));
}
