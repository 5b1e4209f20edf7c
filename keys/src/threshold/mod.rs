//! Brokers hold shares of one key, and release to each reader what the publisher's policy lets him read: the client.
//!
//! Source: Duan, Reiter, Zhang, «Secure causal atomic broadcast, revisited», and its system Chios, module 2; the
//! encryption is [`sealcast_crypto::tdh2`]. Assumed of the way: one order of messages that f of 3f + 1 brokers cannot
//! change, and attachments of which it is known which broker sent them.
//!
//! ```text
//! publisher ─ seal: header (client, number, envelope), ciphertext bound to all of that ─▶ order
//! reader    ◀─ ciphertext … ◀─ share by broker … t of them combine ─ reader check
//!              ├ holds: Opened(payloads)          └ fails: Fetch(ShareProofs) ─ t proved shares combine ─ reader check
//!              └ f + 1 brokers deny: ⊥                       ├ holds: Opened, who lied is remembered
//!                                                            └ fails: ⊥ for everybody, the publisher is at fault
//! ```
//! *Consistency.* What opens was checked by both equations, so that it is the same whatever shares it came from; ⊥ by
//! proof needs t right shares that open nothing, and then no other t open anything. A ciphertext that is not the
//! ordered one (its own proof fails, or f + 1 brokers name another) is neither: it is dropped, and the brokers are
//! asked again.
//!
//! *Liars.* A share counts once for each broker and only with that broker's index. Who signed a false proof is convicted
//! by it ([`evidence`], E4), who proved another share than he sent is only remembered; neither is believed without
//! proof again, so that one liar costs one round of proofs and not one for each message.
//!
//! Messages of a topic are held back in their order by whoever joins keys and delivery; here each is judged alone.
//!
//! | file | what |
//! |---|---|
//! | `config` | what the cluster file says: the pinned key (E11), versions in force (E6) |
//! | `sealed` | the bytes |
//! | `collecting`, `early` | the shares of one ciphertext; shares that come before theirs |
//! | `evidence` | records that convict |

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
use sealcast_crypto::group::{Group, Ristretto255};
use sealcast_crypto::hash::sha256;
use sealcast_crypto::secret::Secret;
use sealcast_crypto::tdh2::{Ciphertext, Combiner};
use sealcast_wire::envelope::NOTHING;
use sealcast_wire::{
    Agreement, CertHash, Change, Dropped, Drops, Envelope, Fetch, FetchId, Fetched, Guarantee, Incarnation, Lane,
    Malformed, Member, MemberId, Monotonic, Now, Slot, Source, View, limits,
};

pub use config::{Config, ConfigError, Standing, pin};

use self::collecting::{Collecting, Verdict};
use self::early::Early;
use self::evidence::Culprit;
use self::sealed::{Attachment, Header};
use crate::plain::Everything;
use crate::{
    Command, CommandError, Delivered, Exclusion, HandleError, Keys, Notice, Outcome, Output, Seal, SealError, Sealed,
    Token,
};

/// The machine of `keys=threshold`: a client that publishes, reads, or both.
pub struct Threshold<G: Group = Ristretto255> {
    config: Config<G>,
    combiner: Combiner<G>,
    rng: ChaCha20Rng,
    me: Member,
    standing: Standing,
    collecting: BTreeMap<u64, Collecting<G>>,
    /// Of [`Threshold::collecting`].
    bytes: usize,
    early: Early<G>,
    /// The highest place delivered so far.
    newest: Option<u64>,
    timers: BTreeSet<(Monotonic, u64)>,
    fetches: BTreeMap<FetchId, u64>,
    names: u64,
    /// Brokers that are believed with proof only.
    liars: BTreeSet<u16>,
    /// Brokers of which evidence went out.
    convicted: BTreeSet<u16>,
    drops: Drops,
    outputs: VecDeque<Output>,
}

impl<G: Group> Threshold<G> {
    /// A client that knows of these versions; the seed is drawn once for each process and never used again.
    pub fn new(
        name: &str,
        incarnation: Incarnation,
        config: Config<G>,
        standing: Standing,
        seed: &Secret<32>,
    ) -> Threshold<G> {
        let me = Member { id: MemberId { cert: CertHash(sha256(&config.client)), incarnation }, name: name.into() };
        let mut machine = Threshold {
            combiner: Combiner::new(config.key.clone()),
            config,
            rng: ChaCha20Rng::from_seed(*seed.expose()),
            me,
            standing,
            collecting: BTreeMap::new(),
            bytes: 0,
            early: Early::new(),
            newest: None,
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

    /// Seals payloads of one envelope into one ciphertext, under the client's number of the publication. Each number is
    /// sealed once; whoever sends again sends the same bytes. The versions in the envelope are set to those in force.
    ///
    /// # Errors
    /// [`SealError::Policy`] if the envelope is over a limit, [`SealError::TooLarge`] if the payloads are.
    pub fn seal_together(&mut self, number: u64, envelope: Envelope, payloads: &[&[u8]]) -> Result<Sealed, SealError> {
        let Standing { epoch, policy } = self.standing;
        let envelope = Envelope { epoch, policy, ..envelope };
        if !envelope.is_sound() {
            return Err(SealError::Policy);
        }
        let plaintext = sealed::together(payloads, Ciphertext::<G>::OVERHEAD).ok_or(SealError::TooLarge)?;
        let header = Header { client: self.config.client, number, envelope };
        let ciphertext = self.config.key.encrypt(&header.label(), &plaintext, &mut self.rng);
        Ok(Sealed { header: header.to_bytes(), body: ciphertext.encode(), epoch: self.standing.into() })
    }

    /// The versions that we seal for.
    pub fn standing(&self) -> Standing {
        self.standing
    }

    /// Brokers that are believed with proof only.
    pub fn liars(&self) -> &BTreeSet<u16> {
        &self.liars
    }

    /// What was not used, by reason.
    pub fn drops(&self) -> &Drops {
        &self.drops
    }

    fn install(&mut self, change: Change) {
        let view = View { epoch: self.standing.into(), members: vec![self.me.clone()], me: Slot(0), change };
        self.outputs.push_back(Output::Epoch { view, protect: None, access: Arc::new(Everything) });
    }

    /// Takes in an ordered ciphertext.
    fn deliver(&mut self, now: Now, index: u64, header: &[u8], body: &[u8]) -> Result<(), Dropped> {
        if self.collecting.contains_key(&index) {
            return Ok(());
        }
        let size = header.len() + body.len();
        if !self.has_room(size) {
            return Err(Dropped::Queue);
        }
        let label = Header::from_bytes(header)?.label();
        let ciphertext = Ciphertext::decode(body).map_err(|_| Malformed)?;
        let it = self.config.key.bind(ciphertext, &label);
        let mut collecting = Collecting::new(it, header, size, now.monotonic + PATIENCE);
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
        let said = Attachment::from_bytes(bytes)?;
        match self.collecting.get_mut(&index) {
            Some(collecting) => collecting.take(&self.config, broker, said),
            None if self.newest.is_some_and(|newest| index <= newest) => Err(Dropped::Stale),
            None => {
                self.early.keep(broker, index, said);
                Ok(())
            }
        }
    }

    /// Opens a message if what is there suffices.
    fn look(&mut self, index: u64) {
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
            Verdict::Doubt => self.ask(index),
            Verdict::Opened(plaintext, lied) => {
                self.liars.extend(lied);
                self.settle(index, sealed::apart(&plaintext).ok());
            }
            Verdict::Denied => self.settle(index, None),
            Verdict::Bottom(shares) => {
                let record = evidence::faulty(&collecting.header, &collecting.it, &shares);
                if let Ok(Header { client, number, .. }) = Header::from_bytes(&collecting.header) {
                    self.outputs.push_back(notice(Culprit::Publisher { client, number }, record, index));
                }
                self.settle(index, None);
            }
            Verdict::NotOrdered => {
                self.drops.count(Dropped::Auth);
                self.forget(index);
                self.fetch(index);
            }
        }
    }

    fn settle(&mut self, index: u64, bodies: Option<Vec<Vec<u8>>>) {
        self.forget(index);
        self.outputs.push_back(Output::Opened { index, origin: None, bodies });
    }

    fn forget(&mut self, index: u64) {
        if let Some(collecting) = self.collecting.remove(&index) {
            self.bytes -= collecting.size;
            self.timers.remove(&(collecting.ask_at, index));
        }
    }

    /// Asks the brokers for shares with proofs, and sets the time for the next asking, later each time.
    fn ask(&mut self, index: u64) {
        if let Some(collecting) = self.collecting.get_mut(&index) {
            self.timers.remove(&(collecting.ask_at, index));
            let doublings = collecting.asks.min(limits::SHARES_ASKED_DOUBLINGS_MAX);
            collecting.asks += 1;
            collecting.ask_at = collecting.ask_at + PATIENCE * (1 << doublings);
            self.timers.insert((collecting.ask_at, index));
        }
        self.fetch(index);
    }

    fn fetch(&mut self, index: u64) {
        if !self.fetches.values().any(|asked| *asked == index) && self.fetches.len() < limits::ORDERED_PENDING_MAX {
            self.names += 1;
            self.fetches.insert(FetchId(self.names), index);
            self.outputs.push_back(Output::Fetch { id: FetchId(self.names), what: Fetch::ShareProofs { index } });
        }
    }
}

impl<G: Group> Keys for Threshold<G> {
    fn has_room(&self, bytes: usize) -> bool {
        self.collecting.len() < limits::SEALED_WAITING_MAX && self.bytes + bytes <= limits::SEALED_WAITING_BYTES_MAX
    }

    fn needs(&self, lane: Lane) -> (Guarantee, Agreement) {
        match lane {
            Lane::Data => (Guarantee::Ordered, Agreement::Byzantine),
            Lane::Open | Lane::Control => (Guarantee::BestEffort, Agreement::None),
        }
    }

    /// The simple case of [`Threshold::seal_together`]: one topic without a value, one payload. The number of the
    /// publication is the last eight bytes of the message's id; the first eight are zero.
    fn seal(&mut self, message: &Seal<'_>) -> Result<Sealed, SealError> {
        let number = u64::try_from(u128::from_be_bytes(message.id)).map_err(|_| SealError::Number)?;
        let envelope = Envelope {
            headers: vec![(message.topic.to_owned(), None)],
            associated: Vec::new(),
            access: (!message.policy.is_empty()).then(|| message.policy.to_vec()),
            execute: if message.operation.is_empty() { NOTHING } else { message.operation }.to_vec(),
            policy: self.standing.policy,
            epoch: self.standing.epoch,
        };
        self.seal_together(number, envelope, &[message.body])
    }

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
        self.look(index);
    }

    /// Of a publication that named old versions: what stands, so that it can be sealed again (E6). Versions never go
    /// back (E11).
    fn outcome(&mut self, _now: Now, _token: Token, outcome: Outcome) {
        if let Outcome::Superseded(stands) = outcome {
            let standing = self.standing.max(stands.into());
            if standing != self.standing {
                self.standing = standing;
                self.install(Change::Rekeyed);
            }
        }
    }

    /// Shares and proofs come as attachments; this only says that the asking is over.
    fn fetched(&mut self, _now: Now, id: FetchId, _result: Fetched) {
        self.fetches.remove(&id);
    }

    fn handle(&mut self, _now: Now, _source: &Source, _message: &[u8]) -> Result<(), HandleError> {
        Err(Dropped::Foreign.into())
    }

    fn command(&mut self, _now: Now, command: Command) -> Result<(), CommandError> {
        match command {
            Command::Leave => {
                self.outputs.push_back(Output::Excluded { why: Exclusion::Left });
                Ok(())
            }
            Command::Learn(key) => self.config.check_key(&key).map_err(|_| CommandError::Invalid),
            Command::Rotate | Command::Admit { .. } | Command::Evict { .. } => Err(CommandError::Unsupported),
        }
    }

    fn timeout(&self) -> Option<Monotonic> {
        self.timers.first().map(|(at, _)| *at)
    }

    fn handle_timeout(&mut self, now: Now) {
        while let Some((at, index)) = self.timers.first().copied().filter(|(at, _)| *at <= now.monotonic) {
            let threshold = self.config.threshold();
            let Some(collecting) = self.collecting.get_mut(&index) else {
                self.timers.remove(&(at, index));
                continue;
            };
            // The times are counted from now, not from when they should have been looked at.
            self.timers.remove(&(at, index));
            collecting.ask_at = now.monotonic;
            if collecting.has_enough(threshold) {
                collecting.doubt();
            }
            self.fetches.retain(|_, asked| *asked != index);
            self.ask(index);
            self.look(index);
        }
    }

    fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }
}

fn notice(against: Culprit, record: Vec<u8>, at: u64) -> Output {
    Output::Notice(Notice::Evidence { against, record, at })
}

/// How long shares may take before the brokers are asked, at first.
const PATIENCE: Duration = Duration::from_millis(150);
