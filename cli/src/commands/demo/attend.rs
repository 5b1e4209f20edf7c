//! A participant's own process: it sends camera frames and shared state while it is told to, and tells what it sees.
//!
//! Commands come in on stdin, a line each: `go`, `halt`, `figures`; [`Seen`] goes out on stdout, a line of JSON each. It ends
//! with its stdin, and so with the process that started it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use sealcast::code::Code;
use sealcast::{Session, Subscription, ViewEvent, Views};
use sealcast_wire::Dropped;
use serde::{Deserialize, Serialize};

use crate::commands::Env;
use crate::hint::Failure;
use crate::output::Output;

/// What a participant's process tells.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Seen {
    /// A view is installed: its epoch and how many members it has.
    View(u32, usize),
    /// Who orders now, if anybody does.
    Sequencer(Option<String>),
    /// An entry of the shared state was delivered.
    Entry(String),
    /// One of our own has its position in the order.
    Acknowledged(String),
    /// One of our own may have none, and why.
    Unacknowledged(String, String),
    /// Entries that others have never come here.
    Gap,
    /// The answer to `figures`.
    Figures(Figures),
}

/// What a participant has counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Figures {
    /// Camera frames sent.
    pub(super) sent: u64,
    /// Camera frames that came, by sender.
    pub(super) came: BTreeMap<String, u64>,
    /// Datagrams that no key opened.
    pub(super) no_key: u64,
    /// Datagrams under an old key for which nobody vouched.
    pub(super) old_key: u64,
}

/// Attends until stdin ends.
pub(super) fn run(env: &Env<'_>, name: &str) -> Result<(), Failure> {
    let url = env.global.url.as_deref();
    let url = url.ok_or_else(|| Failure::new(Code::NoUrl, "a participant needs --url"))?;
    let session = sealcast::open(url).home(env.home.clone()).identity(name).wait()?;
    let (messages, views) = (session.subscribe("#").capacity(QUEUE).wait()?, session.views());
    let attendee = Arc::new(Attendee {
        name: name.to_owned(),
        session,
        output: env.output.clone(),
        speaks: AtomicBool::new(false),
        sent: AtomicU64::new(0),
        came: Mutex::default(),
    });
    attendee.spawn(|it| it.read(messages));
    attendee.spawn(|it| it.watch(views));
    let (mut speakers, mut entries) = (vec![], 0);
    for line in std::io::stdin().lines().map_while(Result::ok) {
        match line.as_str() {
            "go" => {
                attendee.speaks.store(true, Ordering::Relaxed);
                let first = entries;
                speakers = vec![attendee.spawn(|it| it.film()), attendee.spawn(move |it| it.take_part(first))];
            }
            "halt" => {
                attendee.speaks.store(false, Ordering::Relaxed);
                // A panic in it was reported when it happened.
                entries = speakers.drain(..).filter_map(|it| it.join().ok()).sum();
                attendee.session.flush().wait()?;
            }
            _ => attendee.tell(&Seen::Figures(attendee.figures())),
        }
    }
    Ok(())
}

struct Attendee {
    name: String,
    session: Session,
    output: Output,
    speaks: AtomicBool,
    sent: AtomicU64,
    came: Mutex<BTreeMap<String, u64>>,
}

impl Attendee {
    fn spawn<T: Send + 'static>(self: &Arc<Self>, does: impl FnOnce(&Attendee) -> T + Send + 'static) -> JoinHandle<T> {
        let it = self.clone();
        std::thread::spawn(move || does(&it))
    }

    fn tell(&self, seen: &Seen) {
        // The process that started this one is gone if that fails, and stdin ends too.
        let _ = self.output.object(seen);
    }

    /// Camera frames, best effort; how many entries that makes: none.
    fn film(&self) -> usize {
        let (topic, frame) = (format!("{MEDIA}{}", self.name), vec![0xA5; FRAME_BYTES]);
        let mut due = Instant::now();
        while self.speaks.load(Ordering::Relaxed) {
            if self.session.publish(&topic, &frame).wait().is_ok() {
                self.sent.fetch_add(1, Ordering::Relaxed);
            }
            // Frames that a pause took are not made up for.
            due = (due + FRAME_EVERY).max(Instant::now());
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
        }
        0
    }

    /// Hands, slides and chat, ordered; how many entries there are by then.
    fn take_part(&self, mut entries: usize) -> usize {
        while self.speaks.load(Ordering::Relaxed) {
            entries += 1;
            let (topic, what) = match entries % 4 {
                1 => ("state/hands", "raises a hand"),
                2 => ("state/chat", "asks a question in the chat"),
                3 => ("state/slides", "turns to the next slide"),
                _ => ("state/hands", "lowers the hand"),
            };
            let body = format!("#{entries}: {what}");
            let entry = entry(&self.name, &body);
            self.tell(&match self.session.publish(topic, &body).ordered().wait() {
                Ok(_) => Seen::Acknowledged(entry),
                Err(why) => Seen::Unacknowledged(entry, why.to_string()),
            });
            std::thread::sleep(ENTRY_EVERY);
        }
        entries
    }

    fn read(&self, mut messages: Subscription) {
        // Until the session is closed, or excluded: then there is an error.
        while let Ok(message) = messages.wait() {
            let by = message.origin().name().unwrap_or("?").to_owned();
            match message.topic().strip_prefix(MEDIA) {
                Some(_) => *self.came().entry(by).or_default() += 1,
                None => self.tell(&Seen::Entry(entry(&by, &String::from_utf8_lossy(message.payload())))),
            }
        }
    }

    fn watch(&self, mut views: Views) {
        while let Some(event) = views.next_timeout(FOR_EVER) {
            match event {
                ViewEvent::Changed { view, .. } => self.tell(&Seen::View(view.epoch.counter, view.members.len())),
                ViewEvent::Order { sequencer, gap, .. } => {
                    self.tell(&Seen::Sequencer(sequencer.map(|it| it.name.to_string())));
                    if gap {
                        self.tell(&Seen::Gap);
                    }
                }
                _ => {}
            }
        }
    }

    fn figures(&self) -> Figures {
        let drops = self.session.stats().drops;
        Figures {
            sent: self.sent.load(Ordering::Relaxed),
            came: self.came().clone(),
            no_key: drops.of(Dropped::NoKey),
            old_key: drops.of(Dropped::OldKey),
        }
    }

    fn came(&self) -> MutexGuard<'_, BTreeMap<String, u64>> {
        self.came.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An entry of the shared state as all write it down.
fn entry(by: &str, what: &str) -> String {
    format!("{by} {what}")
}

const MEDIA: &str = "media/";
/// 50 a second.
const FRAME_EVERY: Duration = Duration::from_millis(20);
const FRAME_BYTES: usize = 1000;
/// A few a second.
const ENTRY_EVERY: Duration = Duration::from_millis(250);
/// More than a demonstration sends.
const QUEUE: usize = 100_000;
const FOR_EVER: Duration = Duration::from_secs(1 << 30);
