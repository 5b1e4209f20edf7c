//! A member's process under load: it publishes ordered messages at a rate, and tells line by line what it sees.
//!
//! ```text
//! publish FIRST RATE   ->  from now on; messages are numbered from FIRST
//! halt                 ->  halted, once it is known what became of each
//! rotate               ->  rotated EPOCH, once the group has a new key; or unrotated WHY
//!
//! view NANOS EPOCH MEMBERS          a view is installed
//! sequencer NANOS NAME|-            who orders now, if anybody does
//! gap NANOS                         messages that others have never come here
//! excluded WHY                      we are out
//! entry NUMBER NANOS                a message was delivered; when it was published
//! acknowledged NUMBER
//! doubt NUMBER WHY                  it may be delivered or not
//! failed NUMBER WHY                 it is never delivered
//! refused NUMBER WHY                it was not taken
//! ```
//! Times are the machine's monotonic clock, which all processes share.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use sealcast::code::Code;
use sealcast::{Session, SlowReader, Subscription, Ticket, ViewEvent, Views};

use crate::Failure;
use crate::peers::roles::{monotonic_nanos, say};

/// Plays the role until stdin ends.
pub(crate) fn run(session: &Session) -> Result<(), Failure> {
    let (views, entries) = (session.views(), session.subscribe(TOPIC).capacity(QUEUE).when_slow(SlowReader::Block));
    let entries = entries.wait()?;
    std::thread::spawn(move || read(entries));
    std::thread::spawn(move || watch(views));
    let publishes = Arc::new(AtomicBool::new(false));
    let mut publisher = None;
    for line in std::io::stdin().lines() {
        let line = line?;
        match line.split_whitespace().collect::<Vec<_>>()[..] {
            ["publish", first, rate] => {
                publishes.store(true, Ordering::Release);
                let (session, publishes) = (session.clone(), publishes.clone());
                let (first, rate): (u64, f64) = (first.parse()?, rate.parse()?);
                publisher = Some(std::thread::spawn(move || publish(&session, first, rate, &publishes)));
            }
            ["halt"] => {
                publishes.store(false, Ordering::Release);
                publisher.take().map(std::thread::JoinHandle::join).transpose().map_err(|_| "the publisher ended")?;
                say("halted");
            }
            ["rotate"] => {
                let session = session.clone();
                std::thread::spawn(move || match session.rotate().wait() {
                    Ok(report) => say(format!("rotated {}", report.to.counter)),
                    Err(why) => say(format!("unrotated {why}")),
                });
            }
            _ => return Err(format!("no command {line:?}").into()),
        }
    }
    Ok(())
}

fn publish(session: &Session, first: u64, rate: f64, publishes: &AtomicBool) {
    let (mut number, mut under_way) = (first, VecDeque::new());
    let every = Duration::from_secs_f64(1.0 / rate);
    let mut due = Instant::now();
    while publishes.load(Ordering::Acquire) {
        let mut body = vec![FILL; BYTES];
        body[..8].copy_from_slice(&number.to_be_bytes());
        body[8..16].copy_from_slice(&monotonic_nanos().to_be_bytes());
        match session.publish(TOPIC, body).ordered().ticket() {
            Ok(ticket) => under_way.push_back((number, ticket)),
            Err(why) => say(format!("refused {number} {why}")),
        }
        number += 1;
        // What a pause took is not made up for.
        due = (due + every).max(Instant::now());
        loop {
            under_way.retain_mut(|(number, ticket)| is_open(*number, ticket));
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() && under_way.len() < UNDER_WAY_MAX || !publishes.load(Ordering::Acquire) {
                break;
            }
            std::thread::sleep(left.clamp(TICK, 5 * TICK));
        }
    }
    under_way.into_iter().for_each(|(number, ticket)| tell(number, ticket.wait().map(drop)));
}

/// Whether it is not known yet what became of it; else tells it.
fn is_open(number: u64, ticket: &mut Ticket) -> bool {
    match ticket.try_wait() {
        None => true,
        Some(done) => {
            tell(number, done.map(drop));
            false
        }
    }
}

fn tell(number: u64, done: sealcast::Result<()>) {
    match done {
        Ok(()) => say(format!("acknowledged {number}")),
        Err(why) if matches!(why.code(), Code::InDoubt | Code::TimedOut) => say(format!("doubt {number} {why}")),
        Err(why) => say(format!("failed {number} {why}")),
    }
}

fn read(mut entries: Subscription) {
    loop {
        match entries.wait() {
            Ok(message) => {
                let field = |at: usize| message.payload().get(at..at + 8)?.try_into().ok().map(u64::from_be_bytes);
                let (number, nanos) = (field(0).unwrap_or_default(), field(8).unwrap_or_default());
                say(format!("entry {number} {nanos}"));
            }
            Err(why) => return say(format!("excluded {why}")),
        }
    }
}

fn watch(mut views: Views) {
    while let Some(event) = views.next_timeout(FOR_EVER) {
        let now = monotonic_nanos();
        match event {
            ViewEvent::Changed { view, .. } => {
                say(format!("view {now} {} {}", view.epoch.counter, view.members.len()));
            }
            ViewEvent::Order { sequencer, gap, .. } => {
                if gap {
                    say(format!("gap {now}"));
                }
                say(format!("sequencer {now} {}", sequencer.as_ref().map_or("-", |it| &*it.name)));
            }
            _ => {}
        }
    }
}

pub(super) const TOPIC: &str = "load/of/robots";
/// What messages are filled with.
pub(super) const FILL: u8 = 0x5A;
const BYTES: usize = 100;
const QUEUE: usize = 1 << 20;
/// Messages of one member of which it is not known yet what became.
const UNDER_WAY_MAX: usize = 1000;
const TICK: Duration = Duration::from_millis(1);
/// Longer than any run.
const FOR_EVER: Duration = Duration::from_secs(1 << 30);
