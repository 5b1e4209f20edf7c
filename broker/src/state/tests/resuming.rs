//! Resumptions of subscriptions in steps, between which the state moves on.

use super::*;

/// So many publications of `topic`, by client 2.
fn publish_many(run: &mut Broker, topic: &str, count: usize) {
    let bodies: Vec<usize> = (0..count).collect();
    for some in bodies.chunks(32) {
        let operations = some.iter().map(|n| publish(publication(&[topic], &n.to_be_bytes()))).collect();
        assert!(run.codes(2, operations).iter().all(|code| *code == Code::Done));
    }
}

/// Client 1's subscription to what comes rarely.
fn subscribed(run: &mut Broker) -> u64 {
    assert_eq!(run.codes(1, vec![subscribe("rare/#")]), [Code::Done]);
    run.state.subscriptions(&client(1)).last().expect("it stands").0
}

#[test]
fn a_resumption_looks_at_few_publications_at_a_time_and_blocks_are_executed_between() {
    let mut run = Broker::with_clients();
    let id = subscribed(&mut run);
    publish_many(&mut run, "often", 3 * limits::RESUME_STEP_ENTRIES);
    publish_many(&mut run, "rare/a", 3);
    let mut resuming = Resuming::new(client(1), id, 0, 0, 0);
    let mut steps = 1;
    while resuming.step(&run.state).expect("memory does not fail") {
        steps += 1;
        publish_many(&mut run, if steps == 3 { "rare/b" } else { "often" }, 2);
    }
    assert_eq!(steps, 4, "each looks at no more than its share of all");
    let found = resuming.found();
    assert_eq!(found.notice.places(), 5, "what was published meanwhile is found too, behind the rest");
    assert_eq!(Ok(found), run.state.resume(&client(1), id, 0, 0, 0));
}

#[test]
fn a_resumption_ends_where_it_may_look_no_further_and_goes_on_from_there() {
    let mut run = Broker::with_clients();
    let id = subscribed(&mut run);
    publish_many(&mut run, "rare/a", 1);
    publish_many(&mut run, "often", limits::RESUME_ENTRIES_MAX);
    publish_many(&mut run, "rare/b", 1);
    let first = run.state.resume(&client(1), id, 0, 0, 0).expect("memory does not fail");
    assert_eq!((first.notice.places(), first.until < run.state.next_sn()), (1, true));
    let second = run.state.resume(&client(1), id, 1, first.until, 0).expect("memory does not fail");
    assert_eq!((second.notice.first, second.notice.places(), second.until), (1, 1, run.state.next_sn()));
}

#[test]
fn rule_e9_what_is_pruned_between_two_steps_is_not_counted_twice() {
    let mut run = Broker::with_clients();
    let id = subscribed(&mut run);
    publish_many(&mut run, "rare/a", 2 * limits::RESUME_STEP_ENTRIES);
    let mut resuming = Resuming::new(client(1), id, 0, 0, 0);
    assert_eq!(resuming.step(&run.state), Ok(true));
    let head = run.state.snapshot_head();
    let rows = elements(&run.state.store).map(|row| row.expect("memory does not fail"));
    let places = rows.filter_map(|row| LowWaterMark::place(head.height(), &row).expect("it is a row"));
    let places: Changes = places.map(|(key, value)| (key, Some(value))).collect();
    run.state.store.apply(places).expect("memory does not fail");
    run.state.raise_low_water_mark(head.low_water_mark()).expect("memory does not fail");
    assert_eq!(resuming.step(&run.state), Ok(false));
    let found = resuming.found();
    let kept = limits::RESUME_STEP_ENTRIES as u64;
    assert_eq!((found.lost, found.notice.first, found.notice.places()), (0, 0, kept));
    let next = run.state.resume(&client(1), id, kept, found.until, 0).expect("memory does not fail");
    assert_eq!((next.lost, next.notice.first, next.notice.places()), (kept, 2 * kept, 0));
}
