//! Every scenario for some seeds, every checker against what it is to report, and one trace for one seed.
//! `SEALCAST_SEED=<seed> payload_kind test -p sealcast-brokers-sim <test>` plays one seed.

use std::sync::Arc;

use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng as _;
use sealcast_broker::operation::{Batch, Body, Client as Id, Operation, Publication};
use sealcast_broker::protocol::{Reply, Request};
use sealcast_broker::state::Code;
use sealcast_keys::threshold::sealed::{Attachment, What};

use crate::byzantine_client::Deed;
use crate::event::Event;
use crate::fixture::{EVERYTHING, Fixture, MARK, Plan, Threshold, key};
use crate::liar::Lie;
use crate::scenario::{Fault, run, run_with};
use crate::simulation::{Plant, Simulation};

/// Plays seeds on both cores.
fn holds(fault: Fault, seeds: u64, faulty: usize, threshold: Threshold) {
    let only = std::env::var("SEALCAST_SEED").ok().and_then(|it| it.parse().ok());
    let seeds: Vec<u64> = only.map_or((0..seeds).collect(), |seed| vec![seed]);
    let mut lied = 0;
    for seed in seeds {
        let report = run(fault, seed, faulty, threshold);
        if let Some(it) = report.violation {
            let paper = if threshold == Threshold::Paper { " --paper" } else { "" };
            let again = format!("sealcast lab sim brokers --fault {} --seed {seed} --f {faulty}{paper}", fault.name());
            panic!("{}: {} ({again})", it.checker, it.what);
        }
        assert!(report.counts.delivered > 0 && report.counts.shares > 0, "{:?}", report.counts);
        // Who does nothing proves nothing.
        lied += report.counts.lies;
        // A joiner need not ask the liar: there it is looked at all seeds.
        let lies = matches!(fault, Fault::Lie(_)) || fault == Fault::JoiningBesideLiar && report.counts.lies > 0;
        let misbehaviours = matches!(fault, Fault::Deed(_));
        assert_eq!(
            (report.counts.lies > 0, report.counts.misbehaviours > 0),
            (lies, misbehaviours),
            "{:?}",
            report.counts
        );
        // What correct clients publish comes to 34 places; Byzantine clients of these kinds publish, too.
        let adds = matches!(fault, Fault::Deed(Deed::SameNumberTwice | Deed::ForeignIssuer | Deed::Flooder));
        assert!(!adds || report.counts.delivered + report.counts.empty > 34, "the villain did nothing");
    }
    assert!(fault != Fault::JoiningBesideLiar || only.is_some() || lied > 0, "no joiner met a lie");
}

#[test]
fn whole_brokers_hold_every_promise_without_faults() {
    holds(Fault::Honest, SEEDS, 1, Threshold::Default);
}

#[test]
fn whole_brokers_bear_loss_and_broken_channels() {
    holds(Fault::Loss, SEEDS, 1, Threshold::Default);
}

#[test]
fn whole_brokers_bear_crashes_and_restarts() {
    holds(Fault::Crash, SEEDS, 1, Threshold::Default);
}

#[test]
fn whole_brokers_bear_partitions() {
    holds(Fault::Partition, SEEDS, 1, Threshold::Default);
}

#[test]
fn rule_e12_whole_brokers_all_killed_with_torn_writes_lose_nothing_acknowledged() {
    holds(Fault::Killed, SEEDS, 1, Threshold::Default);
}

#[test]
fn rule_e1_a_broker_that_lost_its_folder_joins_by_a_snapshot_beside_a_liar() {
    holds(Fault::JoiningBesideLiar, JOINS, 1, Threshold::Default);
}

#[test]
fn rule_e4_a_broker_joins_beside_one_that_lies_as_it_likes() {
    holds(Fault::JoiningBesideLiar, SEEDS, 2, Threshold::Default);
}

/// Before it waits until nobody remembers its votes, and after. That it must, `sync::votes` shows; `rejoin-without-vote-quarantine`, which
/// does not wait, has been caught at seeds of earlier versions.
#[test]
fn a_broker_that_lost_its_folder_asks_twice_for_a_snapshot() {
    for seed in [5089, 5118] {
        let report = run(Fault::JoiningBesideLiar, seed, 1, Threshold::Default);
        assert!(report.violation.is_none() && report.counts.joined == 2, "seed {seed}: {:?}", report.violation);
    }
}

#[test]
fn rule_e4_an_equivocator_changes_nothing() {
    holds(Fault::Lie(Lie::Equivocator), SEEDS, 1, Threshold::Default);
}

#[test]
fn rule_e2_a_share_withholder_keeps_nobody_from_reading() {
    holds(Fault::Lie(Lie::ShareWithholder), SEEDS, 1, Threshold::Default);
}

#[test]
fn rule_e4_a_share_forger_is_found_out() {
    holds(Fault::Lie(Lie::ShareForger), SEEDS, 1, Threshold::Default);
    holds(Fault::Lie(Lie::ShareForger), 1, 1, Threshold::Paper);
}

#[test]
fn rule_e1_a_liar_in_results_is_not_believed() {
    holds(Fault::Lie(Lie::LiarInResults), SEEDS, 1, Threshold::Default);
}

#[test]
fn rule_e1_a_liar_in_bottom_is_not_believed() {
    holds(Fault::Lie(Lie::LiarInBottom), SEEDS, 1, Threshold::Default);
    holds(Fault::Lie(Lie::LiarInBottom), 1, 1, Threshold::Paper);
}

#[test]
fn rule_e14_a_censor_keeps_nothing_out_of_the_order() {
    holds(Fault::Lie(Lie::Censor), SEEDS, 1, Threshold::Default);
}

#[test]
fn rule_e9_a_stale_state_is_not_believed() {
    holds(Fault::Lie(Lie::StaleState), SEEDS, 1, Threshold::Default);
}

#[test]
fn one_number_used_twice_stands_for_one_operation() {
    holds(Fault::Deed(Deed::SameNumberTwice), SEEDS, 1, Threshold::Default);
}

#[test]
fn malformed_ciphertexts_are_never_ordered() {
    holds(Fault::Deed(Deed::MalformedCiphertext), SEEDS, 1, Threshold::Default);
}

#[test]
fn what_is_replayed_is_executed_once_and_for_its_publisher() {
    holds(Fault::Deed(Deed::Replayer), SEEDS, 1, Threshold::Default);
}

#[test]
fn rule_e3_a_foreign_issuers_word_opens_nothing() {
    holds(Fault::Deed(Deed::ForeignIssuer), SEEDS, 1, Threshold::Default);
}

#[test]
fn rule_g7_a_flooder_keeps_nobodys_publications_from_coming() {
    holds(Fault::Deed(Deed::Flooder), SEEDS, 1, Threshold::Default);
}

#[test]
fn rule_g10_the_same_seed_gives_the_same_run() {
    for fault in [Fault::Crash, Fault::Lie(Lie::ShareForger)] {
        let runs = [0, 0, 1].map(|seed| run(fault, seed, 1, Threshold::Default));
        assert_eq!((&runs[0].trace, runs[0].counts), (&runs[1].trace, runs[1].counts));
        assert_ne!(runs[0].trace, runs[2].trace);
    }
}

#[test]
fn a_false_snapshot_that_is_begun_with_is_reported() {
    let forged = once(|event| match event {
        Event::Joined { broker, height, .. } => {
            Some(vec![Event::Joined { broker: *broker, height: *height, root: [9; 32] }])
        }
        _ => None,
    });
    let report = run_with(Fault::JoiningBesideLiar, PLANTED, 1, Threshold::Default, Some(forged));
    let violation = report.violation.expect("somebody reports it");
    assert_eq!(violation.checker, "state roots", "{}", violation.what);
}

/// What checkers are shown instead, once.
fn once(mut change: impl FnMut(&Event) -> Option<Vec<Event>> + 'static) -> Plant {
    let mut done = false;
    Box::new(move |events| {
        if let [event] = &events[..]
            && !done
            && let Some(changed) = change(event)
        {
            done = true;
            *events = changed;
        }
    })
}

fn reports(property: &str, plant: Plant) {
    let report = run_with(Fault::Honest, PLANTED, 1, Threshold::Default, Some(plant));
    let violation = report.violation.unwrap_or_else(|| panic!("nobody reports what hurts '{property}'"));
    assert_eq!(violation.checker, property, "{}", violation.what);
}

#[test]
fn another_block_is_reported() {
    reports(
        "total order 1",
        once(|event| match event {
            Event::Executed { broker: 2, height: 7, roots, .. } => {
                Some(vec![Event::Executed { broker: 2, height: 7, hash: [9; 32], roots: *roots }])
            }
            _ => None,
        }),
    );
}

#[test]
fn a_broker_left_behind_is_reported() {
    let lost = Box::new(|events: &mut Vec<Event>| {
        events.retain(|it| !matches!(it, Event::Executed { broker: 1, height: 9.., .. }));
    });
    reports("agreement 1", lost);
}

#[test]
fn another_state_is_reported() {
    reports(
        "state roots",
        once(|event| match event {
            Event::Executed { broker: 2, height: 7, roots, hash } => {
                let roots = (roots.0, [1; 32]);
                Some(vec![Event::Executed { broker: 2, height: 7, hash: *hash, roots }])
            }
            _ => None,
        }),
    );
}

#[test]
fn an_operation_without_outcome_is_reported() {
    reports(
        "liveness 1",
        once(|event| match event {
            Event::Outcome { plan: 0, .. } => Some(Vec::new()),
            _ => None,
        }),
    );
}

#[test]
fn a_publication_out_of_its_order_is_reported() {
    let mut held: Option<Vec<Event>> = None;
    let swap: Plant = Box::new(move |events| {
        let is_one = matches!(&events[..], [Event::Delivered { client: 3, .. }]);
        match held.take() {
            None if is_one => held = Some(std::mem::take(events)),
            Some(before) if is_one => events.extend(before),
            before => held = before,
        }
    });
    // Which one reports it first depends on which reader of the desk was first.
    let report = run_with(Fault::Honest, PLANTED, 1, Threshold::Default, Some(swap));
    let violation = report.violation.expect("somebody reports it");
    assert!(["total order 2", "topic order", "bottom"].contains(&violation.checker), "{violation:?}");
}

#[test]
fn a_topics_number_out_of_its_order_is_reported() {
    let mut seen = 0;
    reports(
        "topic order",
        once(move |event| match event {
            Event::Delivered { client: 4, place, sn, publisher, number, topic, body } if topic.0 == "open" => {
                seen += 1;
                let (place, sn, publisher, number) = (*place, *sn, *publisher, *number);
                let (topic, body) = ((topic.0.clone(), 0), body.clone());
                (seen == 2).then(|| vec![Event::Delivered { client: 4, place, sn, publisher, number, topic, body }])
            }
            _ => None,
        }),
    );
}

/// Takes from these readers all but the first three things that come to them.
fn forgets(readers: &'static [usize]) -> Plant {
    let mut seen = std::collections::BTreeMap::new();
    Box::new(move |events| {
        events.retain(|event| match event {
            Event::Delivered { client, .. } | Event::Empty { client, .. } if readers.contains(client) => {
                let seen: &mut usize = seen.entry(*client).or_default();
                *seen += 1;
                *seen <= 3
            }
            _ => true,
        });
    })
}

#[test]
fn a_reader_who_misses_what_another_got_is_reported() {
    reports("agreement 2", forgets(&[3]));
}

#[test]
fn rule_e13_who_subscribes_to_one_topic_and_misses_what_another_got_there_is_reported() {
    reports("agreement 2", forgets(&[OF_ONE_TOPIC]));
}

#[test]
fn rule_e13_another_topics_publication_for_who_subscribes_to_one_is_reported() {
    let mut open = None;
    reports(
        "subscription",
        once(move |event| match event {
            Event::Delivered { client: 2, sn, publisher, number, topic, body, .. } if topic.0 == "open" => {
                open = Some((*sn, *publisher, *number, topic.clone(), body.clone()));
                None
            }
            Event::Delivered { client: OF_ONE_TOPIC, place, .. } => {
                let (sn, publisher, number, topic, body) = open.clone()?;
                Some(vec![Event::Delivered { client: OF_ONE_TOPIC, place: *place, sn, publisher, number, topic, body }])
            }
            _ => None,
        }),
    );
}

#[test]
fn rule_e13_another_order_at_who_subscribes_to_one_topic_is_reported() {
    let mut first: Option<Event> = None;
    let swap: Plant = Box::new(move |events| {
        let [Event::Delivered { client: OF_ONE_TOPIC, place, .. }] = &mut events[..] else { return };
        match (*place, first.take()) {
            (0, _) => first = events.pop(),
            (_, Some(mut before)) => {
                // Each in the other one's place.
                let Event::Delivered { place: earlier, .. } = &mut before else { return };
                std::mem::swap(place, earlier);
                events.push(before);
            }
            _ => {}
        }
    });
    // Which one reports it first depends on which reader of the desk was first.
    let report = run_with(Fault::Honest, PLANTED, 1, Threshold::Default, Some(swap));
    let violation = report.violation.expect("somebody reports it");
    assert!(["total order 2", "topic order"].contains(&violation.checker), "{violation:?}");
}

#[test]
fn rule_e13_a_place_more_at_who_subscribes_to_one_topic_is_reported() {
    reports(
        "bottom",
        once(|event| match event {
            Event::Delivered { client: OF_ONE_TOPIC, place: 3, .. } => {
                Some(vec![event.clone(), Event::Empty { client: OF_ONE_TOPIC, place: 4, count: 1 }])
            }
            _ => None,
        }),
    );
}

#[test]
fn a_publication_that_nobody_gets_is_reported() {
    reports("liveness 2", forgets(&[4]));
}

#[test]
fn what_comes_twice_is_reported() {
    reports(
        "no duplication",
        once(|event| match event {
            Event::Delivered { client: 2, place: 1.., .. } => Some(vec![event.clone(), event.clone()]),
            _ => None,
        }),
    );
}

#[test]
fn what_nobody_published_is_reported() {
    reports(
        "no creation",
        once(|event| match event.clone() {
            Event::Delivered { client: 4, place, sn, publisher, number, topic, .. } => {
                let body = b"invented".to_vec();
                Some(vec![Event::Delivered { client: 4, place, sn, publisher, number, topic, body }])
            }
            _ => None,
        }),
    );
}

#[test]
fn a_plaintext_at_a_broker_is_reported() {
    reports(
        "confidentiality",
        once(|event| match event {
            Event::Stored { broker, .. } => {
                let bytes: Arc<[u8]> = [b"row ", MARK].concat().into();
                Some(vec![Event::Stored { broker: *broker, bytes }])
            }
            _ => None,
        }),
    );
}

#[test]
fn a_share_for_whom_may_not_read_is_reported() {
    // All shares for the reader at desk rates go to one at desk fx instead.
    reports(
        "shares",
        Box::new(|events| {
            for event in events {
                if let Event::Share { client, .. } = event
                    && *client == 4
                {
                    *client = 2;
                }
            }
        }),
    );
}

#[test]
fn rule_e2_a_share_that_leaves_before_its_publication_is_final_is_reported() {
    reports(
        "shares",
        once(|event| match event.clone() {
            Event::Share { broker, client, publisher, number, height, .. } => {
                Some(vec![Event::Share { broker, client, publisher, number, executed: false, height }])
            }
            _ => None,
        }),
    );
}

#[test]
fn rule_e2_a_share_of_what_is_only_on_its_way_is_seen() {
    let (fixture, shares) = Fixture::new(1, Threshold::Default, PLANTED);
    let mut simulation = Simulation::new(PLANTED, 1, Threshold::Default, None);
    let client = Id(key(1).public_bytes());
    let plan = Plan { client, topic: "open", only: None, sealed: true, payload: MARK.to_vec() };
    let label = plan.publication(0).label(&client, 0);
    let ciphertext = fixture.key.encrypt(&label, MARK, &mut ChaCha20Rng::seed_from_u64(PLANTED));
    let checked = fixture.key.check(fixture.key.bind(ciphertext.clone(), &label)).expect("it is well-formed");
    let what = What::Share(shares[0].share(&checked).expect("it is its own"));
    let attachment = Attachment { ciphertext: *checked.id(), what }.to_bytes();

    // The broker has executed nothing.
    let sealed = Publication { body: Body::Sealed(ciphertext.encode()), ..plan.publication(0) };
    let batch = Batch::sign(&fixture.cluster, &key(1), 0, vec![Operation::Publish(Box::new(sealed))]);
    simulation.note_sealed(&Request::Submit(batch.to_bytes()).to_bytes());
    simulation.enter(3, Some("fx"), Some(EVERYTHING)).expect("it holds");
    let reader = simulation.clients[0].id;
    let violation = simulation.reply(0, &reader, &Reply::Attach { sn: 0, attachment }).expect_err("it is too early");
    assert_eq!(violation.checker, "shares", "{}", violation.what);
    assert!(violation.what.contains("has not executed"), "{}", violation.what);
}

#[test]
fn a_publication_for_another_desk_is_reported() {
    let mut for_fx = None;
    reports(
        "authorised delivery",
        once(move |event| match event {
            Event::Delivered { client: 2, sn, publisher, number, topic, body, .. } if topic.0 == "desks/fx" => {
                for_fx = Some((*sn, *publisher, *number, topic.clone(), body.clone()));
                None
            }
            Event::Empty { client: 4, place, .. } => {
                let (sn, publisher, number, topic, body) = for_fx.clone()?;
                Some(vec![Event::Delivered { client: 4, place: *place, sn, publisher, number, topic, body }])
            }
            _ => None,
        }),
    );
}

#[test]
fn bottom_twice_is_reported() {
    reports(
        "bottom",
        once(|event| match event {
            Event::Empty { client, place, count } => {
                Some(vec![Event::Empty { client: *client, place: *place, count: count + 1 }])
            }
            _ => None,
        }),
    );
}

#[test]
fn a_lost_acknowledgement_is_reported() {
    reports(
        "nothing acknowledged lost",
        once(|event| match event {
            Event::Kept { broker, sn, .. } => Some(vec![Event::Kept { broker: *broker, sn: *sn, who: None }]),
            _ => None,
        }),
    );
}

#[test]
fn a_receipt_that_does_not_hold_is_reported() {
    reports(
        "receipts",
        once(|event| match event {
            Event::Receipt { plan, receipt } => {
                let mut receipt = receipt.clone();
                receipt.height += 1;
                Some(vec![Event::Receipt { plan: *plan, receipt }])
            }
            _ => None,
        }),
    );
}

#[test]
fn a_proof_against_an_honest_broker_is_reported() {
    reports(
        "accusations",
        once(|event| match event {
            Event::Outcome { code: Code::Done, .. } => {
                Some(vec![event.clone(), Event::Contradicted { by: 0, broker: 1, view: 1 }])
            }
            _ => None,
        }),
    );
}

#[test]
fn an_honest_broker_accused_is_reported() {
    reports(
        "accusations",
        once(|event| match event {
            Event::Outcome { code: Code::Done, .. } => {
                Some(vec![event.clone(), Event::Accused { client: 0, broker: 0, what: "nothing".into() }])
            }
            _ => None,
        }),
    );
}

/// As many as show each way to lie to who joins, and to clients meanwhile.
const JOINS: u64 = 14;
/// So many seeds of each scenario: the simulation of more is `sealcast lab sim brokers`.
const SEEDS: u64 = 2;
/// Who subscribes to one topic alone.
const OF_ONE_TOPIC: usize = 7;
/// The seed under which faults are planted.
const PLANTED: u64 = 3;
