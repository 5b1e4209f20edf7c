//! Brokers hold shares of one key, and release to each reader what the publisher's policy lets him read: the client.
//!
//! Source: Duan, Reiter, Zhang, 'Secure causal atomic broadcast, revisited', and its system Chios, module 2; the
//! encryption is [`sealcast_crypto::tdh2`]. Assumed of the way: one order of messages that f of 3f + 1 brokers cannot
//! change, and attachments of which it is known which broker sent them.
//!
//! ```text
//! publisher ─ seal: header (client, number, envelope), ciphertext bound to all of that ─▶ order
//! reader    ◀─ ciphertext … ◀─ share by broker … t of them combine ─ reader check
//!              ├ holds: Opened(payloads)          └ fails: Fetch(Shares, proved) ─ t of them combine ─ reader check
//!              └ f + 1 brokers deny: ⊥                       ├ holds: Opened, who lied is remembered
//!                                                            └ fails: ⊥ for everybody, the publisher is at fault
//! ```
//! *Consistency.* What opens was checked by both equations, so that it is the same whatever shares it came from; ⊥ by
//! proof needs t right shares that open nothing, and then no other t open anything. A ciphertext that is not the
//! ordered one (its own proof fails, or f + 1 brokers name another) is neither: it is dropped, and the brokers are
//! asked again.
//!
//! *Liars.* A share counts once for each broker and only with that broker's index. Who signed a false proof is convicted
//! by it ([`evidence`], E4), who proved another share than he sent, or proves none where all others that were tried with
//! his are right, is only remembered; neither is believed without proof again, so that one liar costs one round of
//! proofs and not one for each message.
//!
//! Messages of a topic are held back in their order by whoever joins keys and delivery; here each is judged alone.
//!
//! | file | what |
//! |---|---|
//! | `client` | a client before it knows the key |
//! | `config` | what the cluster file says: the pinned key (E11), versions in force (E6) |
//! | `sealed` | the bytes |
//! | `collecting`, `early` | the shares of one ciphertext; shares that come before theirs |
//! | `evidence` | records that convict |

mod client;
mod collecting;
mod config;
mod early;
pub mod evidence;
pub mod sealed;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;
use sealcast_crypto::group::{PrimeGroup, Ristretto255};
use sealcast_crypto::hash::sha256;
use sealcast_crypto::secret::Secret;
use sealcast_crypto::tdh2::{Ciphertext, Combiner};
use sealcast_wire::{
    Agreement, CertHash, Change, Culprit, Dropped, Drops, Envelope, Evidence, Fetch, FetchId, Fetched, Guarantee,
    Incarnation, Malformed, Member, MemberId, Monotonic, Now, SealedHeader, Slot, Took, View, limits,
};

pub use client::{Client, Setup};
pub use config::{Config, ConfigError, RequiredVersions, pin};

use self::collecting::{Collecting, Verdict};
use self::early::Early;
use self::sealed::Attachment;
use crate::plain::Everything;
use crate::{
    Command, CommandError, Delivered, Exclusion, Fetches, HandleError, Input, Keys, Need, Notice, Output, Properties,
    Seal, SealError, Sealed, Shortage, Status,
};

/// What it needs: an order that liars among the brokers do not change, and their shares.
pub const PROPERTIES: Properties = Properties {
    messages: &[],
    data: Need(Guarantee::Ordered, Agreement::Byzantine),
    fetches: Fetches { shares: true, directory: false },
    seals_messages: true,
    seals_nothing: false,
    flushes: false,
    asks_outside: false,
    stays: false,
    claims_names: false,
};

/// The machine of `keys=threshold`: a client that publishes, reads, or both.
pub struct Threshold<G: PrimeGroup = Ristretto255> {
    config: Config<G>,
    combiner: Combiner<G>,
    rng: ChaCha20Rng,
    me: Member,
    required: RequiredVersions,
    collecting: BTreeMap<u64, Collecting<G>>,
    /// Of [`Threshold::collecting`].
    bytes: usize,
    early: Early<G>,
    /// The highest place delivered so far.
    newest: Option<u64>,
    /// The highest place that came to something so far, and when.
    settled: Option<(u64, Monotonic)>,
    /// How long shares take from their ciphertext's coming on.
    took: Took,
    timers: BTreeSet<(Monotonic, u64)>,
    /// What is asked for: the place, and whether with proofs.
    fetches: BTreeMap<FetchId, (u64, bool)>,
    names: u64,
    /// Brokers that are believed with proof only.
    liars: BTreeSet<u16>,
    /// Brokers of which evidence went out.
    convicted: BTreeSet<u16>,
    drops: Drops,
    outputs: VecDeque<Output>,
}

impl<G: PrimeGroup> Threshold<G> {
    /// A client that knows of these versions; the seed is drawn once for each process and never used again.
    pub fn new(
        name: &str,
        incarnation: Incarnation,
        config: Config<G>,
        required: RequiredVersions,
        seed: &Secret<32>,
    ) -> Threshold<G> {
        let me = Member { id: MemberId { cert: CertHash(sha256(&config.client)), incarnation }, name: name.into() };
        let mut machine = Threshold {
            combiner: Combiner::new(config.key.clone()),
            config,
            rng: ChaCha20Rng::from_seed(*seed.expose()),
            me,
            required,
            collecting: BTreeMap::new(),
            bytes: 0,
            early: Early::new(),
            newest: None,
            settled: None,
            took: Took::default(),
            timers: BTreeSet::new(),
            fetches: BTreeMap::new(),
            names: 0,
            liars: BTreeSet::new(),
            convicted: BTreeSet::new(),
            drops: Drops::default(),
            outputs: VecDeque::new(),
        };
        machine.install(Change::Formed);
        machine
    }

    /// The versions that we seal for.
    pub fn required_versions(&self) -> RequiredVersions {
        self.required
    }

    /// Brokers that are believed with proof only.
    pub fn liars(&self) -> &BTreeSet<u16> {
        &self.liars
    }

    /// The first publication that has waited for shares for `timeout` in which no other came to anything either, or four
    /// times as long.
    pub fn shortage(&self, now: Monotonic, timeout: Duration) -> Option<Shortage> {
        let is_quiet = self.settled.is_none_or(|(_, at)| now.since(at) >= timeout);
        let timeout = if is_quiet { timeout } else { 4 * timeout };
        let late = |(_, it): &(&u64, &Collecting<G>)| now.since(it.since) >= timeout;
        let (index, _) = self.collecting.iter().find(late)?;
        self.shortage_of(*index)
    }

    /// What the publication at a place waits for; `None` if it does not, or has shares enough that are being judged.
    pub fn shortage_of(&self, index: u64) -> Option<Shortage> {
        let holders = self.collecting.get(&index)?.holders(&self.liars);
        let needed = self.config.threshold();
        (holders.len() < needed).then_some(Shortage { index, needed, holders })
    }

    /// What was not used, by reason.
    pub fn drops(&self) -> &Drops {
        &self.drops
    }

    fn install(&mut self, change: Change) {
        let view = View::new(None, self.required.into(), [self.me.clone()].into_iter().collect(), Slot(0), change);
        self.outputs.push_back(Output::Epoch { view, protect: None, access: Arc::new(Everything) });
    }

    /// Takes in an ordered ciphertext.
    fn deliver(&mut self, now: Now, index: u64, header: &[u8], body: &[u8]) -> Result<(), Dropped> {
        if self.collecting.contains_key(&index) {
            return Ok(());
        }
        let size = header.len() + body.len();
        if !self.has_capacity(size) {
            return Err(Dropped::Queue);
        }
        let label = sealed::label(&SealedHeader::from_bytes(header)?);
        let ciphertext = Ciphertext::decode(body).map_err(|_| Malformed)?;
        let it = self.config.key.bind(ciphertext, &label);
        let mut collecting = Collecting::new(it, header, size, now.monotonic, self.request_timeout());
        for (broker, said) in self.early.take(index) {
            if let Err(why) = collecting.take(&self.config, broker, said) {
                self.drops.count(why);
            }
        }
        self.newest = self.newest.max(Some(index));
        self.timers.insert((collecting.ask_at, index));
        self.bytes += size;
        self.collecting.insert(index, collecting);
        Ok(())
    }

    /// Takes in what a broker attached to the message at a place.
    fn attach(&mut self, index: u64, broker: u16, bytes: &[u8]) -> Result<(), Dropped> {
        if usize::from(broker) >= self.config.brokers.len() {
            return Err(Dropped::Auth);
        }
        match self.collecting.get_mut(&index) {
            Some(collecting) => collecting.take(&self.config, broker, Attachment::from_bytes(bytes)?),
            // Of no more use, as most shares are that come after t others: not even decoded.
            None if self.newest.is_some_and(|newest| index <= newest) => Err(Dropped::Stale),
            None => {
                self.early.keep(broker, index, Attachment::from_bytes(bytes)?);
                Ok(())
            }
        }
    }

    /// Opens a message if what is there suffices.
    fn look(&mut self, now: Now, index: u64) {
        let Some(collecting) = self.collecting.get_mut(&index) else { return };
        let mut found = Vec::new();
        let verdict = collecting.judge(&self.config, &mut self.combiner, &self.liars, &mut found, &mut self.rng);
        for (broker, signed) in found {
            self.liars.insert(broker);
            if self.convicted.insert(broker) {
                let record = evidence::false_share(&collecting.header, &collecting.it, broker, &signed);
                self.outputs.push_back(notice(Culprit::Broker(broker), record, index));
            }
        }
        match verdict {
            Verdict::Wait => {}
            Verdict::Doubt => self.ask(now, index),
            Verdict::Opened(plaintext, lied) => {
                self.liars.extend(lied);
                self.settle(now, index, sealed::apart(&plaintext).ok());
            }
            Verdict::Denied => self.settle(now, index, None),
            Verdict::Bottom(shares) => {
                let record = evidence::faulty(&self.config.key.sharing(), &collecting.header, &collecting.it, &shares);
                if let Ok(SealedHeader { client, number, .. }) = SealedHeader::from_bytes(&collecting.header) {
                    self.outputs.push_back(notice(Culprit::Publisher { client, number }, record, index));
                }
                self.settle(now, index, None);
            }
            Verdict::NotOrdered => {
                self.drops.count(Dropped::Auth);
                self.forget(index);
                self.fetch(index);
            }
        }
    }

    fn settle(&mut self, now: Now, index: u64, bodies: Option<Vec<Vec<u8>>>) {
        if let Some(it) = self.collecting.get(&index).filter(|it| it.asks == 0) {
            self.took.saw(now.monotonic.since(it.since));
        }
        self.forget(index);
        self.settled = self.settled.max(Some((index, now.monotonic)));
        self.outputs.push_back(Output::Opened { index, origin: None, bodies });
    }

    fn forget(&mut self, index: u64) {
        if let Some(collecting) = self.collecting.remove(&index) {
            self.bytes -= collecting.size;
            self.timers.remove(&(collecting.ask_at, index));
        }
    }

    /// Until when a place waits though its timeout is over: brokers release in order, so while places before it still come
    /// to something its turn has not come. To ask then would only give busy brokers more to do. Whoever releases one now and
    /// then gains no more than [`TURN_MAX`] by it.
    fn turn(&self, index: u64) -> Option<Monotonic> {
        let it = self.collecting.get(&index).filter(|it| it.asks == 0)?;
        let (_, at) = self.settled.filter(|(highest, _)| *highest < index)?;
        Some((at + self.request_timeout()).min(it.since + TURN_MAX))
    }

    /// How long shares may take before the brokers are asked, at first: well over what they took lately.
    fn request_timeout(&self) -> Duration {
        self.took.timeout(TIMEOUT_MIN, TIMEOUT_MAX)
    }

    /// Asks the brokers for shares, and sets the time for the next asking, later each time.
    fn ask(&mut self, now: Now, index: u64) {
        if let Some(collecting) = self.collecting.get_mut(&index) {
            self.timers.remove(&(collecting.ask_at, index));
            let doublings = collecting.asks.min(limits::SHARES_ASKED_DOUBLINGS_MAX);
            collecting.asks += 1;
            collecting.ask_at = collecting.ask_at + TIMEOUT_MIN * (1 << doublings);
            self.timers.insert((collecting.ask_at, index));
        }
        if !self.fetch(index) {
            self.not_asked(now, index);
        }
    }

    /// Asks, unless too much is asked for already. Where only too few shares have come the first question is for such as
    /// are sent unasked: they cost brokers a third, and proofs are given at a rate (E4).
    fn fetch(&mut self, index: u64) -> bool {
        let proved = self.collecting.get(&index).is_none_or(|it| it.doubts() || it.asks > 1);
        if self.fetches.values().any(|asked| *asked == (index, proved)) {
            return true;
        }
        if self.fetches.len() == limits::ORDERED_PENDING_MAX {
            return false;
        }
        self.names += 1;
        self.fetches.insert(FetchId(self.names), (index, proved));
        self.outputs.push_back(Output::Fetch { id: FetchId(self.names), what: Fetch::Shares { index, proved } });
        true
    }

    /// A question that was not sent comes again soon, and not later each time.
    fn not_asked(&mut self, now: Now, index: u64) {
        if let Some(collecting) = self.collecting.get_mut(&index) {
            self.timers.remove(&(collecting.ask_at, index));
            collecting.asks = collecting.asks.saturating_sub(1);
            collecting.ask_at = now.monotonic + TIMEOUT_MIN;
            self.timers.insert((collecting.ask_at, index));
        }
    }
}

impl<G: PrimeGroup> Threshold<G> {
    fn open(&mut self, now: Now, message: Delivered<'_>) {
        let index = message.index;
        if let Some(body) = message.body
            && let Err(why) = self.deliver(now, index, message.header, body)
        {
            self.drops.count(why);
        }
        for (broker, bytes) in message.attachments {
            if let Err(why) = self.attach(index, *broker, bytes) {
                self.drops.count(why);
            }
        }
        self.look(now, index);
    }

    /// What is in force at the brokers, so that it is sealed for (E6). Versions never go back (E11).
    fn in_force(&mut self, versions: RequiredVersions) {
        let required = self.required.max(versions);
        if required != self.required {
            self.required = required;
            self.install(Change::Rekeyed);
        }
    }

    /// Shares and proofs come as attachments; this only says that the asking is over, or never began.
    fn fetched(&mut self, now: Now, id: FetchId, result: Fetched) {
        if let Some((index, _)) = self.fetches.remove(&id)
            && result == Fetched::NotAsked
        {
            self.not_asked(now, index);
        }
    }
}

impl<G: PrimeGroup> Keys for Threshold<G> {
    fn has_capacity(&self, bytes: usize) -> bool {
        self.collecting.len() < limits::SEALED_WAITING_MAX && self.bytes + bytes <= limits::SEALED_WAITING_BYTES_MAX
    }

    fn properties(&self) -> Properties {
        PROPERTIES
    }

    fn handle(&mut self, now: Now, input: Input<'_>) -> Result<(), HandleError> {
        match input {
            Input::Delivered(message) => self.open(now, message),
            Input::InForce(versions) => self.in_force(versions.into()),
            Input::Fetched(id, result) => self.fetched(now, id, result),
            Input::Command(Command::Leave) => self.outputs.push_back(Output::Excluded { why: Exclusion::Left }),
            Input::Command(Command::Learn(key)) => {
                self.config.check_key(&key).map_err(|_| CommandError::Invalid)?;
            }
            Input::Command(Command::Rotate | Command::Admit { .. } | Command::Evict { .. } | Command::Batch(_)) => {
                return Err(CommandError::Unsupported.into());
            }
            Input::Message { .. } => return Err(Dropped::Foreign.into()),
            Input::Describe => {
                let missing = self.collecting.keys().filter_map(|index| self.shortage_of(*index)).collect();
                let late = self.shortage(now.monotonic, SHARES_TIMEOUT);
                self.outputs.push_back(Output::Described(Box::new(Status { missing, late, ..Status::default() })));
            }
            // No message is sent, nobody is known who could be silent, and there is one view.
            Input::Outcome(..)
            | Input::PackagesKept(_)
            | Input::Suspected(_)
            | Input::Slow(_)
            | Input::Passed(_)
            | Input::Ends
            | Input::Flushed(..)
            | Input::Up => {}
        }
        Ok(())
    }

    /// Seals the bodies into one ciphertext. The client's number of the publication is the last eight bytes of the id; the
    /// first eight are zero. Each number is sealed once; a client that sends again sends the same bytes.
    fn seal(&mut self, message: &Seal<'_>) -> Result<Sealed, SealError> {
        let number = u64::try_from(u128::from_be_bytes(message.id)).map_err(|_| SealError::Number)?;
        let RequiredVersions { epoch, policy } = self.required;
        let envelope = Envelope { epoch, policy, ..message.envelope.clone() };
        if !envelope.is_sound() {
            return Err(SealError::Policy);
        }
        let plaintext = sealed::together(message.bodies, Ciphertext::<G>::OVERHEAD).ok_or(SealError::TooLarge)?;
        let header = SealedHeader { client: self.config.client, number, envelope };
        let ciphertext = self.config.key.encrypt(&sealed::label(&header), &plaintext, &mut self.rng);
        Ok(Sealed { header: header.to_bytes(), body: ciphertext.encode(), epoch: self.required.into() })
    }

    fn timeout(&self) -> Option<Monotonic> {
        self.timers.first().map(|(at, _)| *at)
    }

    fn handle_timeout(&mut self, now: Now) {
        while let Some((at, index)) = self.timers.first().copied().filter(|(at, _)| *at <= now.monotonic) {
            self.timers.remove(&(at, index));
            let turn = self.turn(index).filter(|turn| *turn > now.monotonic);
            let threshold = self.config.threshold();
            let Some(collecting) = self.collecting.get_mut(&index) else { continue };
            // The times are counted from now, not from when they should have been looked at.
            collecting.ask_at = turn.unwrap_or(now.monotonic);
            if turn.is_some() {
                self.timers.insert((collecting.ask_at, index));
                continue;
            }
            if collecting.has_enough(threshold) {
                collecting.doubt();
            }
            self.fetches.retain(|_, (asked, _)| *asked != index);
            self.ask(now, index);
            self.look(now, index);
        }
    }

    fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }
}

fn notice(against: Culprit, record: Vec<u8>, at: u64) -> Output {
    Output::Notice { notice: Notice::Evidence(Evidence { against, record, at }), about: None }
}

/// How long shares may take before the brokers are asked, at first: at least,
const TIMEOUT_MIN: Duration = Duration::from_millis(150);
/// and at most.
const TIMEOUT_MAX: Duration = Duration::from_secs(2);
/// How long a place that is behind others waits before the brokers are asked, at most.
const TURN_MAX: Duration = Duration::from_secs(4);
/// How long shares may take before it is told that they are missing.
const SHARES_TIMEOUT: Duration = Duration::from_secs(5);
