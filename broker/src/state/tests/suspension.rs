//! Suspension of publishers (E4). That evidence convicts is judged before it is ordered; here all of it does.

use sealcast_crypto::tdh2::Sharing;

use super::*;
use crate::operation::{Accusation, Body};

fn sealed(bytes: &[u8]) -> Publication {
    Publication { body: Body::Sealed(bytes.to_vec()), ..publication(&["a"], b"") }
}

/// That client `seed`'s publication at `sn`, which it numbered so, opens to nothing.
pub(super) fn accuse(sn: u64, seed: u8, number: u64, published: &Publication) -> Operation {
    let Body::Sealed(ciphertext) = published.body.clone() else { panic!("sealed") };
    let envelope = published.envelope();
    Operation::Accuse(Box::new(Accusation {
        sn,
        client: client(seed),
        number,
        envelope,
        ciphertext,
        sharing: Sharing::First,
        shares: b"t shares".to_vec(),
    }))
}

/// Client 2 published twice, under its numbers 1 and 2; the places.
fn published(run: &mut Broker) -> [u64; 2] {
    let outbox = run.block(vec![(2, vec![publish(sealed(b"false")), publish(sealed(b"fine"))])]);
    [outbox.publications[0].sn, outbox.publications[1].sn]
}

#[test]
fn rule_e4_evidence_suspends_the_publisher_from_its_place_on() {
    let mut run = Broker::with_clients();
    let [sn, _] = published(&mut run);
    let outbox = run.block(vec![
        (2, vec![publish(sealed(b"before"))]),
        (1, vec![accuse(sn, 2, 1, &sealed(b"false"))]),
        (2, vec![publish(sealed(b"after")), publish(publication(&["a"], b"plain")), Operation::Sync]),
    ]);
    let codes: Vec<Vec<Code>> = outbox.results.iter().map(|it| it.outcomes.iter().map(|o| o.code).collect()).collect();
    assert_eq!(codes, [vec![Code::Done], vec![Code::Done], vec![Code::Suspended, Code::Suspended, Code::Done]]);
    assert_eq!(
        outbox.results[2].outcomes[0],
        OperationResult::number(Code::Suspended, outbox.height),
        "and says since when"
    );
    assert_eq!(outbox.publications.len(), 1, "what stood before stands");
    assert_eq!(run.state.suspended().get(&client(2)), Some(&outbox.height));
    assert_eq!(run.codes(3, vec![publish(sealed(b"others"))]), [Code::Done]);
    // It is part of the state that brokers agree on and keep.
    let rows: Vec<_> = elements(&run.state.store).map(|row| row.expect("memory does not fail")).collect();
    let (root, head) = (run.state.root(), run.state.snapshot_head());
    let restored = State::restore(run.world.genesis.clone(), Memory::default(), head, rows, &root).expect("its own");
    assert_eq!(restored.suspended(), run.state.suspended());
}

#[test]
fn rule_e4_a_false_accusation_changes_nothing_and_costs_the_accuser_its_number() {
    let mut run = Broker::with_clients();
    let [sn, _] = published(&mut run);
    let set = run.state.head.set.clone();
    let number = run.state.client(&client(1)).unwrap().unwrap().next;
    let false_ones = vec![
        accuse(sn + 1, 2, 1, &sealed(b"false")),
        accuse(sn, 2, 2, &sealed(b"false")),
        accuse(sn, 3, 1, &sealed(b"false")),
        accuse(sn, 2, 1, &sealed(b"another")),
        accuse(sn, 2, 1, &Publication { associated: vec![1], ..sealed(b"false") }),
        accuse(sn + 1000, 2, 1, &sealed(b"false")),
    ];
    let count = false_ones.len();
    let codes: Vec<Code> = false_ones.into_iter().flat_map(|it| run.codes(1, vec![it])).collect();
    assert_eq!(codes, vec![Code::Unfounded; count]);
    assert!(run.state.suspended().is_empty());
    let accuser = run.state.client(&client(1)).unwrap().unwrap();
    assert_eq!(accuser.next, number + count as u64, "each used up a number");
    assert_ne!(run.state.head.set, set, "which is all that changed");
    assert_eq!(run.state.client(&client(2)).unwrap().unwrap().suspended, None);
    assert_eq!(
        run.codes(77, vec![accuse(sn, 2, 1, &sealed(b"false"))]),
        [Code::Unregistered],
        "nor do strangers accuse"
    );
}

#[test]
fn rule_e4_each_false_publication_costs_one_suspension_which_administrators_lift() {
    let mut run = Broker::with_clients();
    let [sn, other] = published(&mut run);
    let again = || accuse(sn, 2, 1, &sealed(b"false"));
    assert_eq!(run.codes(1, vec![again()]), [Code::Done]);
    assert_eq!(run.codes(3, vec![again()]), [Code::Futile], "replayed");
    assert_eq!(run.codes(2, vec![run.world.admin(1, Action::Restore(client(3)))]), [Code::Futile], "another one");
    assert_eq!(run.codes(2, vec![run.world.admin(2, Action::Restore(client(2)))]), [Code::Done]);
    assert!(run.state.suspended().is_empty());
    let codes = run.codes(1, vec![again()]);
    assert_eq!(codes, [Code::Futile], "what was forgiven is forgiven");
    assert_eq!(run.codes(1, vec![accuse(other, 2, 2, &sealed(b"fine"))]), [Code::Futile], "as is all before it");
    let number = run.state.client(&client(2)).unwrap().unwrap().next;
    let outbox = run.block(vec![(2, vec![publish(sealed(b"false again"))])]);
    let sn = outbox.publications[0].sn;
    assert_eq!(run.codes(1, vec![accuse(sn, 2, number, &sealed(b"false again"))]), [Code::Done]);
    assert_eq!(run.codes(2, vec![publish(sealed(b"x"))]), [Code::Suspended]);
}

#[test]
fn rule_e4_another_key_of_the_same_certificate_is_suspended_too() {
    let mut run = Broker::with_clients();
    // A second client for whom the same credential vouches: here one whose serial is client 2's.
    let same = |run: &Broker, seed: u8| {
        let validity = (NOW, Utc(NOW.0 + 30 * DAY));
        let claim = Claim::sign(
            "exchange",
            &[2],
            validity,
            &[("desk", "rates")],
            origin_key(seed).public(),
            &run.world.exchange,
        );
        Operation::Register(Registration { intent: false, proof: claim.into() })
    };
    let (second, third) = (same(&run, 20), same(&run, 21));
    assert_eq!(run.codes(20, vec![second]), [Code::Done]);
    let [sn, _] = published(&mut run);
    assert_eq!(run.codes(1, vec![accuse(sn, 2, 1, &sealed(b"false"))]), [Code::Done]);
    assert_eq!(run.codes(20, vec![publish(sealed(b"x"))]), [Code::Suspended], "who held it before");
    assert_eq!(
        run.codes(21, vec![third, publish(sealed(b"x"))]),
        [Code::Done, Code::Suspended],
        "who comes with it later"
    );
    assert_eq!(run.codes(3, vec![run.world.admin(1, Action::Restore(client(21)))]), [Code::Done]);
    assert_eq!(run.codes(20, vec![publish(sealed(b"x"))]), [Code::Done], "one restoration is all of theirs");
}

#[test]
fn rule_e4_a_broker_that_kept_no_publication_judges_alike() {
    let mut run = Broker::with_clients();
    let [sn, _] = published(&mut run);
    let rows: Vec<Row> = elements(&run.state.store).collect::<Result<_, _>>().expect("memory does not fail");
    let (genesis, head, root) = (run.world.genesis.clone(), run.state.snapshot_head(), run.state.root());
    let mut fresh = State::restore(genesis, Memory::default(), head, rows, &root).expect("its own rows");
    assert!(fresh.published(sn).unwrap().is_none() && run.state.published(sn).unwrap().is_some());
    let false_one = accuse(sn, 2, 1, &sealed(b"another"));
    let outbox = run.block(vec![(1, vec![false_one, accuse(sn, 2, 1, &sealed(b"false"))])]);
    let (height, at, batches) = run.blocks.last().cloned().expect("a block was executed");
    let its = fresh.execute(height, at, &batches).expect("memory does not fail");
    assert_eq!(its.results, outbox.results);
    assert_eq!(outbox.results[0].outcomes.iter().map(|it| it.code).collect::<Vec<_>>(), [Code::Unfounded, Code::Done]);
    assert_eq!(fresh.root(), run.state.root());
}
