//! A value that all members of a group keep alike: it follows from the ordered messages of one topic.

use std::collections::VecDeque;
use std::fmt;
use std::time::{Duration, Instant};

use sealcast_delivery::{StateEvent, StateInput};
use sealcast_wire::limits;

use super::Session;
use super::queue::{Item, SlowReader, Subscription};
use crate::code::Code;
use crate::error::{Error, Result};
use crate::group::Message;

/// What a [`Replica`] keeps.
pub trait State {
    /// A message of the topic, in the order of all members. Members must come to the same from the same messages.
    fn apply(&mut self, message: &Message);

    /// The state as bytes, for a member that comes: at most `limits::STATE_BYTES_MAX` (16 MiB), and read by every member that
    /// may read the topic, at whatever time it comes.
    fn snapshot(&self) -> Vec<u8>;

    /// The state is this one from now on, of which another member's [`State::snapshot`] made the bytes; `None`: nothing was
    /// said before. Whoever may publish the topic may have made the bytes: what cannot be read is the application's to refuse.
    fn restore(&mut self, snapshot: Option<&[u8]>);
}

/// What a [`Replica`] did last.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Step {
    /// It took in this message.
    Applied(Message),
    /// It begins with nothing, since nobody has anything.
    Began,
    /// It got another member's state, in which all messages before this position are.
    Restored {
        /// The [`Message::sequence`] of the first message that may come.
        position: u64,
    },
    /// It lacks messages, since this member was apart from the others; the state of one of them comes.
    Lost,
    /// It goes on with what it had when it lost messages: no member has them, and none had more.
    Resumed,
}

/// A value that all members of a group keep alike. It takes in messages as [`Replica::next_timeout`] is called, and gives its
/// state to members that come. A member that does not call it keeps the session from receiving, as a subscription with
/// [`SlowReader::Block`] does.
pub struct Replica<S: State> {
    session: Session,
    topic: String,
    subscription: Subscription,
    state: S,
    is_current: bool,
    /// Messages that wait for a state.
    pending: VecDeque<Message>,
    pending_bytes: usize,
    /// Those before this position are in the state.
    from: u64,
}

impl Session {
    /// Keeps a value that follows from the `.ordered()` and `.safe()` messages of one topic; `state` is how it begins. A member that comes, or that
    /// was apart and has a gap, gets the value of another one, and then each message after it, once.
    ///
    /// One topic, since all its readers have one key: a state is sealed for whom its messages are sealed for. It comes from
    /// members alone that may publish the topic.
    ///
    /// # Errors
    /// [`Code::BadPair`] where one member's order is not to be had (`udpm:` with `order=total` has it), and those of
    /// [`Session::subscribe`].
    ///
    /// ```no_run
    /// use sealcast::{Message, State, Step};
    ///
    /// #[derive(Default)]
    /// struct Board(Vec<String>);
    ///
    /// impl State for Board {
    ///     fn apply(&mut self, message: &Message) {
    ///         self.0.push(String::from_utf8_lossy(message.payload()).into_owned());
    ///     }
    ///     fn snapshot(&self) -> Vec<u8> {
    ///         self.0.join("\n").into_bytes()
    ///     }
    ///     fn restore(&mut self, snapshot: Option<&[u8]>) {
    ///         let text = String::from_utf8_lossy(snapshot.unwrap_or_default()).into_owned();
    ///         self.0 = text.lines().map(str::to_owned).collect();
    ///     }
    /// }
    ///
    /// let session = sealcast::open("udpm://239.255.76.67:7667?order=total").identity("desk").wait()?;
    /// let mut board = session.replicate("board", Board::default())?;
    /// session.publish("board", "milk").ordered().wait()?;
    /// while let Some(Step::Applied(_) | Step::Began | Step::Restored { .. }) = board.next_timeout(std::time::Duration::from_secs(1))? {
    ///     println!("{:?}", board.state().map(|it| &it.0));
    /// }
    /// # Ok::<(), sealcast::Error>(())
    /// ```
    pub fn replicate<S: State>(&self, topic: &str, state: S) -> Result<Replica<S>> {
        let shared = &self.inner.shared;
        if !shared.transport.needs_flush {
            let what = "members keep one state where one of them orders";
            return Err(Error::new(Code::BadPair, what).with_hint("udpm://…?order=total"));
        }
        if topic.contains(['+', '#']) {
            return Err(Error::new(Code::BadValue, format!("{topic}: a state is that of one topic")));
        }
        if shared.subscriptions.select(|filter| filter.matches(topic)).iter().any(|it| it.of_state) {
            return Err(Error::new(Code::BadValue, format!("{topic}: this session keeps its state already")));
        }
        let subscription = self.subscribe(topic).when_slow(SlowReader::Block).of_state().wait()?;
        shared.state(StateInput::Follow(topic))?;
        let (session, topic) = (self.clone(), topic.to_owned());
        let (pending, pending_bytes) = (VecDeque::new(), 0);
        Ok(Replica { session, topic, subscription, state, is_current: false, pending, pending_bytes, from: 0 })
    }
}

impl<S: State> Replica<S> {
    /// The value; `None` while it lacks messages and waits for another member's.
    pub fn state(&self) -> Option<&S> {
        self.is_current.then_some(&self.state)
    }

    /// Takes in what comes next; `None` if nothing came in time.
    ///
    /// # Errors
    /// Why nothing more will come.
    pub fn next_timeout(&mut self, timeout: Duration) -> Result<Option<Step>> {
        let deadline = Instant::now().checked_add(timeout);
        loop {
            if self.is_current
                && let Some(message) = self.pending.pop_front()
            {
                self.pending_bytes -= message.payload().len();
                if let Some(step) = self.apply(message) {
                    return Ok(Some(step));
                }
                continue;
            }
            let Some(item) = self.subscription.next_item(deadline)? else { return Ok(None) };
            let step = match item {
                Item::Message(message) => self.message(message)?,
                Item::State(event) => self.event(event)?,
            };
            if step.is_some() {
                return Ok(step);
            }
        }
    }

    /// Takes in what comes next, however long it takes.
    ///
    /// # Errors
    /// Why nothing more will come.
    pub fn wait(&mut self) -> Result<Step> {
        loop {
            if let Some(step) = self.next_timeout(TURN)? {
                return Ok(step);
            }
        }
    }

    fn message(&mut self, message: Message) -> Result<Option<Step>> {
        // What is sent otherwise comes to members in different orders.
        if !message.is_ordered() {
            return Ok(None);
        }
        if self.is_current {
            return Ok(self.apply(message));
        }
        self.pending_bytes += message.payload().len();
        self.pending.push_back(message);
        if self.pending_bytes > limits::STATE_PENDING_BYTES_MAX || self.pending.len() > PENDING_MAX {
            self.forget_pending();
            self.session.inner.shared.state(StateInput::Again(&self.topic))?;
        }
        Ok(None)
    }

    fn apply(&mut self, message: Message) -> Option<Step> {
        if message.sequence() < self.from {
            return None;
        }
        self.state.apply(&message);
        Some(Step::Applied(message))
    }

    fn forget_pending(&mut self) {
        self.pending.clear();
        self.pending_bytes = 0;
    }

    fn event(&mut self, event: StateEvent) -> Result<Option<Step>> {
        Ok(Some(match event {
            StateEvent::Begins => {
                self.state.restore(None);
                (self.is_current, self.from) = (true, 0);
                Step::Began
            }
            StateEvent::Resumes => {
                self.is_current = true;
                Step::Resumed
            }
            StateEvent::Wanted(ticket) => {
                let bytes = self.is_current.then(|| self.state.snapshot());
                self.session.inner.shared.state(StateInput::Give { ticket, bytes })?;
                return Ok(None);
            }
            StateEvent::Here { position, bytes } => {
                self.state.restore(Some(&bytes));
                (self.is_current, self.from) = (true, position);
                Step::Restored { position }
            }
            StateEvent::Lost => {
                self.is_current = false;
                self.forget_pending();
                Step::Lost
            }
            StateEvent::Refused => {
                let what = format!("a member keeps at most {} states", limits::STATES_MAX);
                return Err(Error::new(Code::BadValue, what));
            }
        }))
    }
}

impl<S: State> Drop for Replica<S> {
    fn drop(&mut self) {
        // A closed session keeps none.
        let _ = self.session.inner.shared.state(StateInput::Unfollow(&self.topic));
    }
}

impl<S: State> fmt::Debug for Replica<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replica").field("topic", &self.topic).finish_non_exhaustive()
    }
}

/// How long one call waits.
const TURN: Duration = Duration::from_secs(3600);
/// Messages that wait for a state at most.
const PENDING_MAX: usize = 65_536;
