//! A planted fault for each checker, which it must report; and a clean run, in which none reports.

use std::sync::Arc;

use sealcast::group::{Epoch, Origin};
use sealcast_crypto::secret::Secret;
use sealcast_keys::plain::Everything;
use sealcast_wire::{CertHash, Change, EpochId, Incarnation, Member, MemberId, Monotonic, Protect, Slot, View};

use super::*;
use crate::checkers::loss::Tally;
use crate::mocks::protect::MockProtect;

mod order;

const AT: Monotonic = Monotonic(0);

fn member(node: usize) -> Member {
    let id = MemberId { cert: CertHash([node as u8; 32]), incarnation: Incarnation([1; 16]) };
    Member { id, name: format!("n{node}").into() }
}

fn roles() -> Roles {
    Roles::new((0..4).map(|node| member(node).id.cert))
}

fn view(counter: u32, members: &[usize], me: usize, change: Change) -> View {
    let me = members.iter().position(|m| *m == me).expect("the view's owner is in it");
    let members = members.iter().map(|m| member(*m)).collect();
    View::new(None, EpochId { counter, hash: u64::from(counter) }, members, Slot(me as u32), change)
}

fn installed(view: View, secret: u8) -> Event {
    let protect: Arc<dyn Protect> = Arc::new(MockProtect::new(&view, &Secret::from_bytes([secret; 32])));
    let view = Arc::new(view);
    let epoch = Epoch { view: view.clone(), protect: Some(protect), access: Arc::new(Everything) };
    Event::Installed(view, Some(Arc::new(epoch)))
}

fn body(author: u32, number: u64) -> Arc<[u8]> {
    Body { author, life: 1, number }.bytes(64).into()
}

fn published(body: &Arc<[u8]>) -> Event {
    Event::Published { topic: "t".into(), body: body.clone() }
}

fn delivered(body: &Arc<[u8]>, from: usize, counter: u32) -> Event {
    let epoch = Some(EpochId { counter, hash: u64::from(counter) });
    Event::Delivered {
        sequence: 1,
        topic: "t".into(),
        body: body.clone(),
        origin: Origin::Claimed(member(from)),
        epoch,
    }
}

/// What a panel of one checker says to this story.
fn told(checker: impl Checker<Roles, Event> + 'static, story: &[(usize, Event)]) -> Vec<String> {
    let mut panel = Panel::new(roles(), vec![Box::new(checker)]);
    for (node, event) in story {
        panel.event(AT, *node, event);
    }
    panel.end(AT);
    panel.violations().iter().map(|v| v.what.clone()).collect()
}

fn both(change: Change) -> Vec<(usize, Event)> {
    vec![(0, installed(view(1, &[0, 1], 0, change), 7)), (1, installed(view(1, &[0, 1], 1, change), 7))]
}

#[test]
fn a_clean_run_is_not_reported() {
    let (loss, tally) = Loss::new();
    let message = body(0, 1);
    let mut story = both(Change::Formed);
    story.extend([(0, published(&message)), (1, delivered(&message, 0, 1))]);
    let all: Vec<Box<Property>> = vec![
        Box::<Agreement>::default(),
        Box::<Authentic>::default(),
        Box::<Duplicates>::default(),
        Box::<Exclusions>::default(),
        Box::<Forward>::default(),
        Box::<Numbers>::default(),
        Box::<Blame>::default(),
        Box::new(loss),
        Box::new(Secrecy::new(vec![b"topic".to_vec()])),
    ];
    let mut panel = Panel::new(roles(), all);
    for (node, event) in &story {
        panel.event(AT, *node, event);
        panel.sent(AT, *node, b"ciphertext");
    }
    panel.end(AT);
    assert_eq!(panel.violations(), []);
    assert_eq!(*tally.lock().unwrap(), Tally { published: 1, due: 1, lost: 0 });
}

#[test]
fn agreement_reports_another_key_under_one_epoch() {
    let story = [
        (0, installed(view(1, &[0, 1], 0, Change::Formed), 7)),
        (1, installed(view(1, &[0, 1], 1, Change::Formed), 8)),
    ];
    assert!(told(Agreement::default(), &story)[0].contains("cannot open"));
}

#[test]
fn agreement_reports_another_roster_under_one_epoch() {
    let story = [
        (0, installed(view(1, &[0, 1], 0, Change::Formed), 7)),
        (1, installed(view(1, &[0, 1, 2], 1, Change::Formed), 7)),
    ];
    assert!(told(Agreement::default(), &story)[0].contains("different members"));
}

#[test]
fn authentic_reports_what_nobody_published() {
    let mut story = both(Change::Formed);
    story.push((1, delivered(&body(0, 1), 0, 1)));
    assert!(told(Authentic::default(), &story)[0].contains("never published"));
    story.push((1, delivered(&b"plaintext"[..].into(), 0, 1)));
    assert!(told(Authentic::default(), &story)[1].contains("nobody published"));
}

#[test]
fn authentic_reports_the_wrong_author() {
    let message = body(0, 1);
    let story = [(0, published(&message)), (1, delivered(&message, 2, 1))];
    assert!(told(Authentic::default(), &story)[0].contains("for the author"));
}

#[test]
fn authentic_reports_a_message_without_origin() {
    let message = body(0, 1);
    let nobody = Event::Delivered {
        sequence: 1,
        topic: "t".into(),
        body: message.clone(),
        origin: Origin::Anonymous,
        epoch: None,
    };
    let story = [(0, published(&message)), (1, nobody)];
    assert_eq!(told(Authentic::default(), &story).len(), 1);
    assert_eq!(told(Authentic::anonymous(), &story), [""; 0]);
}

#[test]
fn duplicates_are_reported() {
    let message = body(0, 1);
    let story = [(1, delivered(&message, 0, 1)), (1, delivered(&message, 0, 1))];
    assert!(told(Duplicates::default(), &story)[0].contains("twice"));
    let again = [(1, delivered(&message, 0, 1)), (1, Event::Started), (1, delivered(&message, 0, 1))];
    assert_eq!(told(Duplicates::default(), &again), [""; 0], "another process may get it again");
}

#[test]
fn exclusion_reports_that_the_evicted_is_heard() {
    let message = body(1, 1);
    let mut story = both(Change::Formed);
    story.push((0, installed(view(2, &[0], 0, Change::Evicted), 9)));
    story.push((0, delivered(&message, 1, 1)));
    assert!(told(Exclusions::default(), &story)[0].contains("no member"));
}

#[test]
fn exclusion_reports_an_agreed_key_that_opens_once_it_is_passed_over() {
    let heard = || (0, delivered(&body(1, 1), 1, 2));
    let alone = (0, installed(view(9, &[0], 0, Change::Formed), 7));
    let agreed = (0, Event::Keyed(EpochId { counter: 2, hash: 2 }));
    let passed = (0, installed(view(10, &[0], 0, Change::Rekeyed), 8));
    assert_eq!(told(Exclusions::default(), &[alone.clone(), agreed.clone(), heard()]), [""; 0]);
    assert!(told(Exclusions::default(), &[alone.clone(), heard()])[0].contains("no member"));
    assert!(told(Exclusions::default(), &[alone, agreed, passed, heard()])[0].contains("no member"));
}

#[test]
fn exclusion_reports_that_the_evicted_reads() {
    let message = body(0, 1);
    let mut story = both(Change::Formed);
    story.push((0, Event::Prepared(view(2, &[0], 0, Change::Evicted))));
    story.push((0, published(&message)));
    story.push((1, delivered(&message, 0, 1)));
    assert!(told(Exclusions::default(), &story)[0].contains("shut out"), "it sealed with the old key");
}

#[test]
fn exclusion_reports_a_reader_of_a_foreign_epoch() {
    let message = body(0, 1);
    let story = [
        (0, installed(view(1, &[0, 1], 0, Change::Formed), 7)),
        (0, published(&message)),
        (2, delivered(&message, 0, 1)),
    ];
    assert!(told(Exclusions::default(), &story)[0].contains("no member of"));
}

#[test]
fn forward_reports_an_epoch_that_is_no_later() {
    for second in [2, 3] {
        let story = [
            (0, installed(view(3, &[0, 1], 0, Change::Formed), 7)),
            (0, installed(view(second, &[0, 1], 0, Change::Rekeyed), 7)),
        ];
        assert!(told(Forward::default(), &story)[0].contains("no later"));
    }
}

#[test]
fn forward_reports_a_view_after_exclusion() {
    let story = [(0, Event::Excluded), (0, installed(view(3, &[0], 0, Change::Formed), 7))];
    assert!(told(Forward::default(), &story)[0].contains("is out"));
}

#[test]
fn numbers_reports_an_epoch_that_follows_on_none() {
    let first = sealcast_wire::limits::FIRST_COUNTER_MAX;
    let epoch = |counter| (0, installed(view(counter, &[0, 1], 0, Change::Formed), 7));
    assert_eq!(told(Numbers::default(), &[epoch(first), epoch(first + 1), epoch(first + 2)]), [""; 0]);
    let agreed = |counter| (0, Event::Keyed(EpochId { counter, hash: 1 }));
    assert_eq!(told(Numbers::default(), &[epoch(first), agreed(first + 1), epoch(first + 2)]), [""; 0]);
    for far in [epoch(first + 2), agreed(first + 2)] {
        assert!(told(Numbers::default(), &[epoch(first), far])[0].contains("nobody did on"));
    }
    assert!(told(Numbers::default(), &[epoch(u32::MAX - 2)])[0].contains("nobody did on"));
}

#[test]
fn blame_reports_who_is_named_and_behaves() {
    let named = |by: usize, whom: usize, why| (by, Event::LeftOut(member(whom).id.cert, why));
    let lies = Misbehaviour::WrongValue;
    assert!(told(Blame::default(), &[named(0, 1, lies)])[0].contains("which behaves"));
    assert_eq!(told(Blame::default(), &[named(0, 1, Misbehaviour::Silent)]), [""; 0]);
    let story = [(1, Event::Changed), named(0, 1, lies), named(1, 0, lies)];
    assert_eq!(told(Blame::default(), &story), [""; 0], "a liar names whom it likes");
}

#[test]
fn blame_reports_who_blames_a_relay_that_behaves_or_proves_nothing() {
    let blames = |proof| (0, Event::Blames { relay: 4, proof });
    assert!(told(Blame::default(), &[blames(None)])[0].contains("which behaves"));
    assert!(told(Blame::default(), &[(4, Event::Changed), blames(Some(false))])[0].contains("does not hold"));
    assert_eq!(told(Blame::default(), &[(4, Event::Changed), blames(None), blames(Some(true))]), [""; 0]);
}

#[test]
fn loss_reports_a_message_that_did_not_come() {
    let mut story = both(Change::Formed);
    story.push((0, published(&body(0, 1))));
    let (loss, tally) = Loss::new();
    assert!(told(loss, &story)[0].contains("missing"));
    assert_eq!(*tally.lock().unwrap(), Tally { published: 1, due: 1, lost: 1 });
    story.push((1, Event::Stopped));
    assert_eq!(told(Loss::new().0, &story), [""; 0], "nothing is due to who is gone");
}

#[test]
fn secrecy_reports_payload_and_topic_on_the_wire() {
    for shown in [&body(0, 1)[..], b"..secret/topic.."] {
        let mut panel = Panel::new(roles(), vec![Box::new(Secrecy::new(vec![b"secret/topic".to_vec()]))]);
        panel.sent(AT, 3, shown);
        assert_eq!(panel.violations().len(), 1);
    }
}

#[test]
fn leaders_reports_who_leads_without_the_right() {
    let story = both(Change::Formed);
    assert_eq!(told(Leaders::of([0]), &story), [""; 0]);
    assert!(told(Leaders::of([1]), &story)[0].contains("without the right"));
}

#[test]
fn one_order_reports_another_message_at_a_place_and_going_back() {
    let at = |node: usize, sequence: u64, number: u64| {
        let (topic, body, origin) = ("t".into(), body(0, number), Origin::Anonymous);
        (node, Event::Delivered { sequence, topic, body, origin, epoch: None })
    };
    let of_t = || OneOrder::of(["t".into()]);
    assert!(told(of_t(), &[at(0, 5, 1), at(1, 5, 2)])[0].contains("another message"));
    assert!(told(of_t(), &[at(0, 5, 1), at(0, 4, 2)])[0].contains("after"));
    assert_eq!(told(of_t(), &[at(0, 5, 1), at(0, 6, 2), at(1, 6, 2)]), [""; 0]);
}

#[test]
fn a_state_that_lacks_a_message_is_reported() {
    let at = |node: usize, position: u64, hash: u8| (node, Event::State(position, [hash; 32]));
    let of = |story: &[(usize, Event)]| told(States::default(), story);
    assert!(of(&[at(0, 5, 1), at(0, 6, 2), at(1, 6, 3)])[0].contains("another state than node 0"));
    assert_eq!(of(&[at(0, 5, 1), at(0, 6, 2), at(1, 6, 2), at(2, 7, 3)]), [""; 0]);
}

#[test]
fn a_gap_in_the_order_that_is_not_told_is_reported() {
    let at = |node: usize, sequence: u64| {
        let (topic, body, origin) = ("t".into(), body(0, sequence), Origin::Anonymous);
        (node, Event::Delivered { sequence, topic, body, origin, epoch: None })
    };
    let of = |story: &[(usize, Event)]| told(Gapless::of(["t".into()]), story);
    assert!(of(&[at(0, 5), at(0, 6), at(0, 7), at(1, 5), at(1, 7)])[0].contains("misses what node 0 got at 6"));
    assert_eq!(of(&[at(0, 5), at(0, 6), at(0, 7), at(1, 5), (1, Event::Gap(9)), at(1, 7)]), [""; 0]);
    assert_eq!(of(&[at(0, 5), at(0, 6), at(0, 7), at(1, 6)]), [""; 0]);
}

fn came(number: u64) -> Event {
    delivered(&body(0, number), 0, 1)
}

#[test]
fn a_fifo_message_that_is_missing_late_or_doubled_is_reported() {
    let of = |story: &[(usize, Event)]| told(Fifo::of(["t".into()]), &[&both(Change::Formed)[..], story].concat());
    let sent = |number| (0, published(&body(0, number)));
    assert!(of(&[sent(1), sent(2), (1, came(1)), (1, came(2))]).is_empty());
    assert!(of(&[sent(1), sent(2), (1, came(1))])[0].contains("1 deliveries missing"));
    assert!(of(&[sent(1), sent(2), (1, came(2))])[0].contains("without"));
    assert!(of(&[sent(1), (1, came(1)), (1, came(1))])[0].contains("after number 1"));
    // To whom its sender does not see any more nothing is due.
    let parted = (0, installed(view(2, &[0], 0, Change::Suspected), 8));
    assert!(of(&[sent(1), parted]).is_empty());
}
