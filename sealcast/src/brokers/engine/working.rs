//! What the driver does with the machines: takes in what channels say, does what comes of it, hands readers what is theirs.

use std::time::{Duration, Instant};

use sealcast_broker::operation::Body;
use sealcast_broker::state;
use sealcast_client::{self as client, Advertisement, Content, Item, Notice, Outcome};
use sealcast_delivery::{SendError, Token};
use sealcast_keys::{self as keys, Delivered};
use sealcast_wire::Now;

use super::super::credential;
use super::super::lines::Sealed;
use super::super::refusals;
use super::super::sealing::Sealing;
use super::{ASK_AGAIN, Done, Engine, no_quorum, rolled_back, sealed};
use crate::error::Error;
use crate::io::channel::{Channel, Heard};

impl Engine {
    /// Does all that can be done without waiting; whether anything came of it.
    pub(in crate::brokers) fn work(&mut self) -> bool {
        let now = self.clock.now();
        let mut any = false;
        self.mark(now);
        if self.quorum.timeout().is_some_and(|at| at <= now.monotonic) {
            self.quorum.handle_timeout(now);
            any = true;
        }
        if self.sealing.timeout().is_some_and(|at| at <= now.monotonic) {
            self.sealing.handle_timeout(now);
            any = true;
        }
        if self.lines.has_unopened() {
            // Without a key there is nothing yet to open it with.
            let _ = self.find_key();
        }
        any |= self.pump(now);
        while self.attend(now) {
            any = true;
            self.pump(now);
        }
        any |= self.findings.bring(|operation| self.quorum.submit(now, operation));
        any |= self.pump(now);
        // What was queued goes to the kernel now.
        for channel in &mut self.channels {
            channel.flush();
        }
        any
    }

    /// What a caller's verb has to send leaves at once; all else is the driver's, which works the sockets. Tells whether
    /// anything came that others may wait for.
    pub(in crate::brokers) fn send_out(&mut self) -> bool {
        let any = self.pump(self.clock.now());
        if any {
            for channel in &mut self.channels {
                self.closed |= !channel.flush();
            }
        }
        any
    }

    /// Whether the driver must be woken for a timer that is nearer than what it waits for; it is then taken to be woken.
    pub(in crate::brokers) fn is_driver_late(&mut self, timeout: Option<Duration>) -> bool {
        if std::mem::take(&mut self.closed) {
            return true;
        }
        let Some(timeout) = timeout else { return false };
        let at = Instant::now() + timeout;
        let is_late = self.driver_until.is_none_or(|until| at < until);
        if is_late {
            self.driver_until = Some(at);
        }
        is_late
    }

    /// How long what was published may wait.
    pub(in crate::brokers) fn timeout_of_operations(&self) -> Option<Duration> {
        let at = self.quorum.timeout_of_operations()?;
        Some(at.since(self.clock.monotonic()))
    }

    /// How long the driver waits for sockets from now on.
    pub(in crate::brokers) fn wait(&mut self) -> Option<Duration> {
        let timeout = self.timeout();
        self.driver_until = timeout.map(|it| Instant::now() + it);
        timeout
    }

    /// The system says that something happened on this channel.
    pub(in crate::brokers) fn woken(&mut self, token: mio::Token) {
        if let Some(channel) = self.channels.get_mut(token.0) {
            channel.woken();
        }
    }

    /// How long the driver may wait for sockets.
    pub(in crate::brokers) fn timeout(&self) -> Option<Duration> {
        let now = self.clock.now();
        let of_machines = [self.quorum.timeout(), self.sealing.timeout()].into_iter().flatten().min();
        let of_machines = of_machines.map(|at| at.since(now.monotonic));
        let of_channels = self.channels.iter().filter_map(Channel::timeout).min();
        let of_channels = of_channels.map(|at| at.saturating_duration_since(Instant::now()));
        let for_key = (matches!(self.sealing, Sealing::Waiting) && self.lines.has_unopened()).then_some(ASK_AGAIN);
        [of_machines, of_channels, for_key].into_iter().flatten().min()
    }

    /// Sends what is queued, as far as the kernel takes it, and ends.
    pub(in crate::brokers) fn end(&mut self) {
        if !std::mem::replace(&mut self.ended, true) {
            self.work();
            self.mark(self.clock.now());
            self.unstored = Some(self.quorum.record());
            self.store();
            self.channels.iter_mut().for_each(Channel::end);
            self.lines.close(&Error::closed());
        }
    }

    pub(in crate::brokers) fn has_ended(&self) -> bool {
        self.ended || self.failure.is_some()
    }

    /// Nothing more can be done.
    pub(in crate::brokers) fn fail(&mut self, why: Error) {
        self.lines.close(&why);
        self.failure.get_or_insert(why);
    }

    /// Why nothing more can be done.
    pub(in crate::brokers) fn failed(&self) -> Option<Error> {
        self.failure.clone().or_else(|| self.ended.then(Error::closed))
    }

    /// Too few brokers answer: which ones do not, and why.
    pub(in crate::brokers) fn no_quorum(&self, patience: Duration) -> Error {
        no_quorum(&self.cluster, &self.channels, patience)
    }

    /// Takes in what channels say and sends what they have; whether anything came.
    fn attend(&mut self, now: Now) -> bool {
        let mut any = false;
        for (number, channel) in (0_u16..).zip(&mut self.channels) {
            channel.attend(&self.registry, &mut |heard| {
                any = true;
                match heard {
                    Heard::Opened => self.quorum.connected(now, number),
                    Heard::Closed => self.quorum.disconnected(now, number),
                    Heard::Message(bytes) => self.quorum.handle(now, number, bytes),
                }
            });
        }
        any
    }

    /// Does what the machines want done; whether there was anything.
    pub(super) fn pump(&mut self, now: Now) -> bool {
        let mut any = false;
        loop {
            if let Some(output) = self.quorum.poll(now) {
                self.perform(now, output);
            } else if let Some(output) = self.sealing.poll() {
                self.perform_for_keys(now, output);
            } else if let Some(sealed) = self.lines.next_to_open(|bytes| self.sealing.has_room(bytes)) {
                let Sealed { entry, header, ciphertext, .. } = sealed;
                let body = Some(&ciphertext[..]);
                self.sealing.open(now, Delivered { index: entry.sn, header: &header, body, attachments: &[] });
            } else if !self.hand_over(now) {
                break;
            }
            any = true;
        }
        self.watch_credential();
        self.store();
        any
    }

    /// Gives readers what is ready for them; whether more may come because of that.
    fn hand_over(&mut self, now: Now) -> bool {
        self.lines.advance();
        let is_behind = self.lines.is_behind();
        self.quorum.hold(now, is_behind);
        std::mem::replace(&mut self.behind, is_behind) && !is_behind
    }

    pub(super) fn perform(&mut self, now: Now, output: client::Output) {
        match output {
            client::Output::Send { broker, request } => {
                self.store();
                if let Some(channel) = self.channels.get_mut(usize::from(broker)) {
                    // What a closed channel does not take, the machine sends again when it opens.
                    channel.send(&request);
                }
            }
            client::Output::Standing(standing) => {
                if standing.registered {
                    self.not_registered = None;
                }
                self.sealing.stands(now, &standing);
                if self.lines.has_unopened() {
                    let _ = self.find_key();
                }
            }
            client::Output::Delivered(delivered) => self.deliver(now, *delivered),
            client::Output::Skipped { subscription, place, count } => {
                self.line_up(now, subscription, Item::Empty { place, count });
            }
            client::Output::Lost { subscription, place, count } => {
                self.line_up(now, subscription, Item::Lost { place, count });
            }
            client::Output::Advertised { advertisement, scope, text } => {
                let state::Advertisement { client, sn, .. } = advertisement;
                self.advertised.put(Advertisement { scope, text, client, sn });
            }
            client::Output::Attach { sn, broker, attachment } => {
                let attachments = [(broker, attachment)];
                self.sealing.open(now, Delivered { index: sn, header: &[], body: None, attachments: &attachments });
            }
            client::Output::Outcome(token, outcome) => {
                self.wanted.remove(&token);
                if let Outcome::Executed { outcome, .. } = &outcome {
                    match outcome.code {
                        state::Code::Unregistered => {
                            self.lines.close(&self.expired().unwrap_or_else(credential::ended));
                        }
                        state::Code::Revoked => self.lines.close(&refusals::refused(outcome.code.into())),
                        _ => {}
                    }
                }
                if !self.findings.ended(token, &outcome, self.newest) {
                    self.finish(token, Done::Outcome(outcome));
                }
            }
            client::Output::Subscribed { token, subscription } => {
                self.wanted.remove(&token);
                if self.forgotten.remove(&token) {
                    // Nobody would read what is lined up for it.
                    self.quorum.leave(now, subscription);
                } else {
                    let inbox = self.lines.begin(subscription);
                    self.done.insert(token, Done::Subscribed(inbox));
                }
            }
            client::Output::Read(token, answer) => self.finish(token, Done::Read(answer)),
            client::Output::Receipt(token, receipt) => self.finish(token, Done::Receipt(receipt)),
            client::Output::Status(token, said) => self.finish(token, Done::Status(said)),
            client::Output::Proofs(token, proofs) => self.finish(token, Done::Proofs(proofs)),
            client::Output::Store(record) => self.unstored = Some(record),
            client::Output::Notice(notice) => self.notice(notice),
        }
    }

    fn perform_for_keys(&mut self, now: Now, output: keys::Output) {
        match output {
            keys::Output::Opened { index, bodies, .. } => self.settle(index, bodies),
            keys::Output::Fetch { id, what } => {
                let result = self.quorum.fetch(now, &what);
                self.sealing.fetched(now, id, result);
            }
            keys::Output::Notice { notice, .. } => self.findings.by_keys(&notice),
            _ => {}
        }
    }

    fn finish(&mut self, token: Token, done: Done) {
        if !self.forgotten.remove(&token) {
            self.done.insert(token, done);
        }
    }

    fn deliver(&mut self, now: Now, delivered: client::Delivered) {
        let client::Delivered { subscription, place, entry, publication } = delivered;
        if !self.lines.is_read(subscription) {
            return;
        }
        self.newest = self.newest.max(entry.sn);
        let entry = Box::new(entry);
        match publication.body {
            Body::Sealed(_) if self.seals() => {
                if !self.lines.has_unopened() {
                    // Until it is known, it is looked for again now and then.
                    let _ = self.find_key();
                }
                if let Some(sealed) = sealed(&entry, publication) {
                    self.lines.put_sealed(subscription, place, sealed);
                }
                self.look_back(now);
            }
            body => {
                let item = match Content::of(body) {
                    Some(content) => Item::Publication { place, entry, associated: publication.associated, content },
                    // Without keys nothing sealed is ever opened.
                    None => Item::Empty { place, count: 1 },
                };
                self.line_up(now, subscription, item);
            }
        }
    }

    fn line_up(&mut self, now: Now, subscription: u64, item: Item) {
        self.lines.put(subscription, item);
        self.look_back(now);
    }

    /// Stops what comes if readers or keys have enough.
    fn look_back(&mut self, now: Now) {
        if !self.behind && self.lines.is_behind() {
            self.behind = true;
            self.quorum.hold(now, true);
        }
    }

    /// A sealed publication opened, or is ⊥.
    fn settle(&mut self, sn: u64, bodies: Option<Vec<Vec<u8>>>) {
        self.quorum.opened(sn);
        if let Some(reading) = self.reads.get_mut(&sn) {
            reading.opened = Some(bodies.clone());
        }
        self.lines.settle(sn, bodies.as_ref());
    }

    /// Takes the threshold key into use, if it is known by now.
    pub(super) fn find_key(&mut self) -> std::result::Result<(), SendError> {
        let Sealing::Waiting = self.sealing else { return Ok(()) };
        let standing = self.quorum.standing().cloned().ok_or(SendError::NotReady)?;
        let key = self.look_for_key().ok_or(SendError::NotReady)?;
        match Sealing::of(&self.cluster, &key, self.quorum.client().0, &standing) {
            Ok(sealing) => {
                self.sealing = sealing;
                Ok(())
            }
            Err(e) => {
                self.fail(e);
                Err(SendError::NotReady)
            }
        }
    }

    fn notice(&mut self, notice: Notice) {
        match notice {
            Notice::Unregistered => self.nobody_vouches = true,
            Notice::NotVouched => {
                self.not_vouched = true;
                self.lines.close(&self.not_vouched());
            }
            // Of several the first one tells: it is the own certificate, where there is one.
            Notice::NotRegistered(registration, outcome) => {
                // One whose time is over stays: that is why, and what its holder is told.
                let at = self.quorum.at();
                self.credentials
                    .retain(|it, credential| *it != registration || at.is_some_and(|at| credential.is_over(at)));
                self.not_registered = self.not_registered.take().or(refusals::done(&outcome).err());
            }
            Notice::RolledBack { seen, height } => {
                self.fail(rolled_back(seen, height));
            }
            Notice::Misbehaved { .. } | Notice::Evidence { .. } => self.findings.by_order(&notice),
        }
    }

    /// Whether all evidence that is to be brought before the brokers has been.
    pub(in crate::brokers) fn has_accused(&self) -> bool {
        self.findings.has_accused()
    }

    fn store(&mut self) {
        if let Some(record) = self.unstored.take()
            && let Err(e) = self.record.keep(&record)
        {
            self.fail(Error::system("keeping what this client knows", &e));
        }
    }

    /// Tells the machine what readers have taken, so that a restarted program goes on there.
    pub(super) fn mark(&mut self, now: Now) {
        for (subscription, place, sn) in self.lines.taken() {
            self.quorum.taken(now, subscription, place, sn);
        }
    }
}
