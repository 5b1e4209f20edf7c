//! When batches are cut and when they are sent again.

use std::time::Duration;

use sealcast_broker::operation::{Batch, Keys};
use sealcast_broker::state::{OperationResult as Came, Results};
use sealcast_crypto::secret::Secret;

use super::super::sending::{Op, Sending, What};
use super::*;

const CLUSTER: Cluster = Cluster([7; 32]);
const HOME: u16 = 0;

fn key() -> OriginKey {
    OriginKey::from_seed(&Secret::from_bytes([1; 32]))
}

fn at(millis: u64) -> Monotonic {
    Monotonic(millis * 1000)
}

fn push(sending: &mut Sending, now: Monotonic, count: u64) {
    (0..count).for_each(|token| sending.push(now, Op::new(Token(token), What::Other, &Operation::Sync)));
}

fn cut(sending: &mut Sending, now: Monotonic, operations: usize) -> Vec<Arc<[u8]>> {
    sending.cut(now, (&CLUSTER, &key()), operations, HOME, true)
}

/// What brokers say of a batch that they executed.
fn executed(request: &[u8]) -> Results {
    let batch = Batch::read(Request::submitted(request).expect("a batch"), &mut Keys::default()).expect("a batch");
    let done = Came { code: Code::Done, detail: Vec::new() };
    let outcomes = vec![done; batch.operations().count()];
    Results { client: batch.client(), first: batch.first(), batch: batch.digest(&CLUSTER), outcomes }
}

fn late(sending: &mut Sending, now: Monotonic) -> bool {
    sending.late(now, (&CLUSTER, &key()), &[0, 1, 2, 3], 1).is_some()
}

/// Ten batches of one operation each, all sent at once.
fn ten() -> (Sending, Vec<Arc<[u8]>>) {
    let mut sending = Sending::default();
    sending.begin(1);
    push(&mut sending, at(0), 10);
    let requests = cut(&mut sending, at(0), 1);
    assert_eq!(requests.len(), 10);
    (sending, requests)
}

#[test]
fn who_is_behind_batches_that_come_back_is_not_sent_again() {
    let (mut sending, requests) = ten();
    // Busy brokers: one batch every 300 ms, the last after three seconds.
    for (n, request) in (1..).zip(&requests) {
        assert!(!late(&mut sending, at(300 * n)), "batch {n}");
        sending.executed(at(300 * n), &executed(request));
    }
    assert!(sending.is_empty());
}

#[test]
fn when_nothing_comes_back_any_more_it_is_sent_to_others() {
    let (mut sending, requests) = ten();
    sending.executed(at(400), &executed(&requests[0]));
    let due = |sending: &mut Sending| {
        let mut now = at(400);
        while !late(sending, now) {
            now = sending.timeout().expect("batches are under way");
        }
        now
    };
    // A batch took 400 ms, so the others wait for four times as long after it.
    assert_eq!(due(&mut sending), at(2000));
    let (mut silent, _) = ten();
    assert!(!late(&mut silent, at(499)) && late(&mut silent, at(500)), "nothing came at all");
}

#[test]
fn who_lets_a_batch_pass_now_and_then_holds_up_none_for_longer_than_that() {
    let (mut sending, requests) = ten();
    for (n, request) in (1..=8).zip(&requests) {
        assert!(!late(&mut sending, at(490 * n)), "batch {n}");
        sending.executed(at(490 * n), &executed(request));
    }
    assert!(!late(&mut sending, at(3999)) && late(&mut sending, at(4000)));
}

#[test]
fn operations_gather_for_as_long_as_is_little_beside_what_batches_take() {
    let gathers = |took: u64| {
        let mut sending = Sending::default();
        sending.begin(1);
        push(&mut sending, at(0), 1);
        let first = cut(&mut sending, at(0), 32).remove(0);
        sending.executed(at(took), &executed(&first));
        // One leaves at once; the next ones wait for each other.
        push(&mut sending, at(took), 1);
        assert_eq!(cut(&mut sending, at(took), 32).len(), 1);
        push(&mut sending, at(took), 1);
        assert!(cut(&mut sending, at(took), 32).is_empty());
        sending.timeout().expect("it gathers").since(at(took))
    };
    assert_eq!(gathers(10), Duration::from_millis(1));
    assert_eq!(gathers(160), Duration::from_millis(5));
    assert_eq!(gathers(3000), Duration::from_millis(10));
}
