//! Every member contributes to the key, and nobody serves: LCMsec's scheme, rebuilt.
//!
//! Source: LCMsec (Barkhausen Institut, arXiv 2308.07095; its code) for discovery and views; Dutta and
//! Barua, IEEE Trans. Inf. Theory 54(5), for the agreement, as corrected in
//! [`sealcast_crypto::dutta_barua`]. Assumed of the network: it loses, repeats, reorders and forges at will;
//! members that it lets talk to each other for some seconds find each other and one key.
//!
//! ```text
//! newcomers                        members (or newcomers among themselves)
//!     │ JOIN ───────────────────────▶ │  only noted (A6)
//!     │ ◀──────────── proposal, nonce │  one answer for many: whose turn is later keeps silent
//!     │ R1 over the nonce ──────────▶ │  now members enter the ring; till here nothing of theirs changed
//!     │ ◀─────────────────────── R1 ─ │
//!     │ ◀─────────── R2 ────────────▶ │  all compartments' rings in the same messages (A8)
//!     │ ◀──────── confirmation ─────▶ │
//!     ▼ installed                     ▼  the old epoch was in use until here
//! ```
//! Where we deviate from LCMsec, and which weakness of its that closes (research: LCMsec 1.9):
//! member sets are compared by content and proposals totally ordered (W13); nothing unverified changes
//! state, and a failed attempt leaves the installed epoch alone (W4, W5, W14); the silent are left out
//! of the next attempt (W6); JOINs during an attempt wait for the next one; retries back off (W9);
//! clocks are monotonic and never compared (W12); every message under the group's bootstrap key, so that topic
//! names in certificates stay hidden.
//!
//! | file | what |
//! |---|---|
//! | `message` | the bytes |
//! | `people`, `statements` | who is who; evictions, revocations, policy |
//! | `discovery` | JOINs, beacons, who shall be in the next epoch and who proposes it |
//! | `proposal`, `attempt`, `agreement` | one attempt at a key, and what follows from its success or failure |
//! | `version`, `old` | the version of the wire that an epoch uses; those who named none |
//! | `twins` | two cards with one short id |
//! | `caution` | what a member in no group waits for before it believes that it found one |
//! | `exchange` | objects asked for and given |
//! | `inspect` | what `group show` prints |

mod agreement;
mod attempt;
mod caution;
mod discovery;
mod exchange;
mod inspect;
mod memo;
mod message;
#[cfg(any(test, feature = "misbehaving"))]
pub mod misbehaving;
mod old;
mod people;
mod proposal;
mod statements;
#[cfg(test)]
mod tests;
mod timing;
mod twins;
#[cfg(test)]
mod vectors;
mod version;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};
use sealcast_crypto::aead::Suite;
use sealcast_crypto::bootstrap::{BootstrapError, BootstrapKey};
use sealcast_crypto::dutta_barua::Key;
use sealcast_crypto::identity::holder::Identity;
use sealcast_crypto::secret::Secret;
use sealcast_crypto::signature::OriginKey;
use sealcast_wire::{
    CertHash, Change, Dropped, Drops, EpochId, Guarantee, Incarnation, Lane, Monotonic, Now, Roster, Slot, Source, To,
    Utc, limits,
};

pub use inspect::{Counters, Status, Tally};
pub use memo::Memo;
pub use version::Versions;

use self::attempt::{Agreed, Attempt, Env};
use self::memo::Verifier;
use self::message::{Base, Card, InstanceId, Message, ShortId};
use self::old::Old;
use self::people::{Budget, People, Person};
use self::proposal::Proposal;
use self::statements::Statements;
use self::timing::{Timer, Timers};
use crate::allowance::Allowances;
use crate::{
    Command, CommandError, Exclusion, HandleError, Input, Keys, Notice, Output, Properties, Seal, SealError, Sealed,
    Token,
};

/// What it needs: anything that carries a message.
pub const PROPERTIES: Properties = Properties { flushes: true, ..Properties::ANY };

/// What a member needs to know before it starts.
#[derive(Clone)]
pub struct Config {
    /// The group's name, as certificates have it.
    pub group: String,
    /// Our certificate and keys, whom we trust, and the group's bootstrap key.
    pub identity: Arc<Identity>,
    /// How datagrams are sealed; the same for all members, since it is part of the transcript.
    pub suite: Suite,
    /// Age at which an epoch's key is replaced.
    pub rekey_after: Duration,
    /// A member silent for this long is suspected; in an agreement, which waits for it, for a fifth of that, 0.3 to
    /// 3 s.
    pub detect: Duration,
    /// A date that has surely passed: the build's (G5).
    pub floor: Utc,
    /// Statements known from elsewhere: evictions, a CRL (DER), a policy. Those that do not verify are
    /// skipped.
    pub statements: Vec<Vec<u8>>,
    /// How many times as long a message takes as on a LAN: all waits are so much longer. Through brokers it is some ten
    /// times, and each message that is said again is ordered and stored again.
    pub pace: NonZeroU32,
    /// The versions of the wire that this member speaks.
    pub versions: Versions,
    /// Whether the group has a reliable channel: all members' transports have it, or none.
    pub reliable: bool,
    /// Remembers verifications; for simulations only.
    pub memo: Option<Arc<Memo>>,
    /// Rules that a planted fault leaves out.
    #[cfg(any(test, feature = "misbehaving"))]
    pub without: &'static [misbehaving::Rule],
}

impl Config {
    /// The usual one: AES-256-GCM, a new key every hour, nothing known from elsewhere.
    pub fn new(group: &str, identity: Arc<Identity>) -> Config {
        Config {
            group: group.to_owned(),
            identity,
            suite: Suite::default(),
            rekey_after: Duration::from_secs(3600),
            detect: limits::DETECT,
            floor: Utc(i64::MIN),
            statements: Vec::new(),
            pace: NonZeroU32::MIN,
            versions: Versions::OURS,
            reliable: false,
            memo: None,
            #[cfg(any(test, feature = "misbehaving"))]
            without: &[],
        }
    }

    /// The time by which this member counts: it goes slower where messages do.
    fn slower(&self, now: Now) -> Now {
        Now { monotonic: Monotonic(now.monotonic.0 / u64::from(self.pace.get())), ..now }
    }
}

/// The machine of `keys=contributory`: one member of one group, in one run.
pub struct Contributory {
    config: Config,
    group: Arc<str>,
    me: Arc<Person>,
    /// The incarnation's key.
    key: Arc<OriginKey>,
    bootstrap_key: BootstrapKey,
    rng: ChaCha20Rng,
    verifier: Verifier,
    statements: Statements,
    people: People,
    phase: Phase,
    started: Monotonic,

    installed: Option<Installed>,
    /// Epochs that we were in before, newest last.
    history: VecDeque<EpochId>,
    attempt: Option<Attempt>,
    /// The attempt that made the installed epoch: answers those who missed something.
    last: Option<Attempt>,
    /// The last attempt that we gave up for a later one after our confirmation: others may have installed by it, and
    /// show who lied in it.
    passed: Option<Attempt>,
    /// An attempt that others had ended when we were called to the one after it, and in which only what they say counts:
    /// we go on listening until we have its key, since they may have sealed with it.
    overtaken: Option<Attempt>,
    /// The epoch that we were in before, where we passed over one between, and until when its messages may still come.
    left_behind: Option<(Installed, Monotonic)>,
    /// Epochs in which somebody writes without reading, and hands its key out by itself.
    written: VecDeque<Written>,
    /// A proposal that follows on an epoch whose agreement we are still in.
    later: Option<Proposal>,
    /// Epochs that we confirmed and did not install, newest last: others may have.
    confirmed: VecDeque<Base>,
    /// On whose word, since the last install, an attempt was dropped: another time it may be a lie.
    passed_over: BTreeSet<ShortId>,
    /// Whether `Prepare` is out and neither installed nor abandoned.
    prepared: bool,
    /// The last attempt failed: propose the next without waiting for more JOINs.
    retry: bool,
    /// Whether a new key for the same members is wanted.
    rotate: bool,

    /// Who asked to be let in.
    wanting: BTreeMap<ShortId, Wanting>,
    /// Who is to be removed, and why; statements apart.
    removing: BTreeMap<ShortId, Change>,
    /// Who did not answer, or misbehaved.
    strikes: BTreeMap<ShortId, Strike>,
    /// Whose runs did not answer, though they were named as joiners.
    ghosts: BTreeMap<CertHash, Strike>,
    /// Whose proposals came to nothing, by certificate: a new run starts no better.
    vain: BTreeMap<CertHash, Strike>,
    /// The last proposal that was not followed for that reason.
    rated: Option<Proposal>,
    /// Who showed two cards with one short id.
    banned: BTreeMap<CertHash, Strike>,
    /// Whom two cards convicted.
    convicted: VecDeque<twins::Convicted>,
    /// How often each certificate's holder was let in.
    joins: Allowances,
    /// How often each certificate's holder made us replace a key that it lacked.
    rekeys: Allowances,
    /// Greatest (epoch, attempt) proposed by anybody to follow on ours, that we verified.
    proposed: (u32, u8),
    /// Instances whose proposals we have judged, newest last.
    judged: VecDeque<InstanceId>,
    /// Those among them that were refused since they were none of our business; it may become ours.
    refused: VecDeque<InstanceId>,
    /// How many proposals we made since the last install, and when the last one.
    own_proposals: (u32, Monotonic),
    /// One of them failed.
    yields: bool,
    /// Members of the proposal that is scheduled.
    planned: Option<(BTreeSet<ShortId>, bool)>,
    /// Others agree without us: we do not propose until then.
    hold_until: Monotonic,
    /// Since when, one proposal after the other.
    held_since: Monotonic,
    /// We ask another part of the group to let us in, or did.
    merging: Option<Merging>,
    /// The epoch of another part of the group, of which we heard.
    towards: EpochId,
    /// Another run of our certificate was proposed in our place.
    replaced: bool,
    /// Members of other groups of whom we heard while in none, by certificate.
    elsewhere: BTreeMap<CertHash, Elsewhere>,
    /// A member of another group that we heard, and that is not in ours; and when somebody came to ours last.
    apart: Option<CertHash>,
    grew: Monotonic,
    /// Who proposed to us on an epoch that two of its members did not vouch for.
    doubted: BTreeMap<CertHash, Strike>,
    /// By the certificate of who proposed to us, while in no group: the last epoch named to follow on, and how many were.
    named_bases: BTreeMap<CertHash, (Base, Strike)>,
    /// When we first asked to be let in.
    asked: Option<Monotonic>,
    /// Of the last attempt that failed by somebody's messages: those that prove it, and when we last showed them.
    shown: Option<(InstanceId, Vec<Message>, Monotonic)>,
    /// When a sign of others was last seen, by who is in no group.
    last_sign: Monotonic,
    /// Wait before the next JOIN.
    join_wait: Duration,
    join_sent: Option<Monotonic>,
    /// When our card last left, and when it would have, had its last times been evenly spaced.
    card_sent: Monotonic,
    card_paced: Monotonic,
    /// Wait before the next STATUS.
    rto: Duration,
    leave_tries: u32,
    key_tries: u32,

    /// Messages that cannot be verified yet, under the bootstrap key, oldest first.
    early: VecDeque<(Lacks, Vec<u8>)>,
    wanted_cards: BTreeMap<ShortId, WantedCard>,
    wanted_proposals: BTreeMap<InstanceId, u32>,

    timers: Timers,
    outputs: VecDeque<Output>,
    token: u64,
    counters: Counters,
    drops: Drops,
    /// Since when, and how many, signatures in somebody's name were false.
    forged: BTreeMap<ShortId, (Monotonic, u32)>,
    /// Answers to lists of statements.
    stating: Budget,
    /// Statements of ours that are said again, and how often they were said.
    telling: VecDeque<(Vec<u8>, u32)>,
    /// Beacons for newcomers.
    greeting: Budget,
    /// When the last beacon of our epoch was sent or heard.
    greeted: Monotonic,
    /// When another part of the group was heard last.
    part_heard: Option<Monotonic>,
    stale_told: bool,
    /// Of whose version of the wire people were told, and when.
    versions_told: BTreeMap<Option<CertHash>, Monotonic>,
    /// Hash of what is delivered in the view in use, zeros where that is not known; none while it is flushed.
    cut: Option<[u8; 32]>,
    /// What it is flushed for.
    flushing: EpochId,
    /// When our certificate's end was last told.
    last_told: Option<Monotonic>,
}

/// Where a member stands as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Running,
    Leaving,
    Out,
}

/// The epoch in use.
struct Installed {
    agreed: Agreed,
    at: Monotonic,
    joins_since_setup: u32,
    ring_key: Arc<Key>,
    /// Since which epoch each member is in, by slot.
    since: Vec<u32>,
    /// The same people as its view has them.
    members: Roster,
}

/// An epoch of which we take in the sending keys of those who write without reading.
struct Written {
    agreed: Agreed,
    /// Once another one is installed: until when what was sealed in it may still come.
    until: Option<Monotonic>,
}

/// Somebody who asked to be let in.
#[derive(Clone, Copy, Debug)]
struct Wanting {
    since: Monotonic,
    last: Monotonic,
    epoch: EpochId,
    size: u16,
    /// The epoch that it wants to come to, if it heard of one.
    towards: EpochId,
}

/// A member of another group.
struct Elsewhere {
    person: Arc<Person>,
    first: Monotonic,
    last: Monotonic,
}

/// Our wish to be let in by another part of the group.
#[derive(Clone, Copy, Debug)]
struct Merging {
    since: Monotonic,
    until: Monotonic,
    /// How many such wishes in a row came to nothing, this one included.
    vain: u32,
}

/// Somebody who did not answer.
#[derive(Clone, Copy, Debug)]
struct Strike {
    count: u32,
    until: Monotonic,
}

/// What a message waits for before it can be verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lacks {
    Card(ShortId),
    Instance(InstanceId),
    /// A proposal's author's card.
    Proposer(ShortId, InstanceId),
}

#[derive(Clone, Copy, Debug)]
struct WantedCard {
    tries: u32,
    next: Monotonic,
}

impl Contributory {
    /// A member that will ask to be let in at its first [`Keys::handle_timeout`], or form a group.
    ///
    /// `seed` is this run's only randomness: never use one twice.
    pub fn new(config: Config, seed: [u8; 32], now: Now) -> Contributory {
        Contributory::restore(config, seed, now, &[])
    }

    /// The same with the records that an earlier run stored: what was revoked stays revoked (A10).
    pub fn restore(config: Config, seed: [u8; 32], now: Now, records: &[(u64, Vec<u8>)]) -> Contributory {
        let now = config.slower(now);
        let mut rng = ChaCha20Rng::from_seed(seed);
        let group: Arc<str> = config.group.as_str().into();
        let mut incarnation = Incarnation::default();
        rng.fill_bytes(&mut incarnation.0);
        let key = OriginKey::from_seed(&Secret::random(&mut rng));
        let cert = config.identity.certificate().clone();
        let mut card = Card {
            cert: cert.hash,
            incarnation,
            key: key.public_bytes(),
            versions: config.versions,
            signature: [0; 64],
            der: cert.der.to_vec(),
        };
        card.signature = config.identity.key().sign(&card.signed(&group));
        let short = card.short_id(&group);
        let me = people::person(short, cert, &card).expect("our own key is a key");
        let mut people = People::new(group.clone());
        people.insert(me.clone(), now.monotonic);
        let mut statements = Statements::new(&group, config.identity.anchor().clone(), config.floor);
        for bytes in records.iter().map(|(_, record)| record).chain(&config.statements) {
            _ = statements.learn(bytes); // what does not verify is skipped: it would not be believed later either
        }
        let mut member = Contributory {
            bootstrap_key: config.identity.bootstrap_key(&group),
            verifier: Verifier(config.memo.clone()),
            config,
            group,
            me,
            key: Arc::new(key),
            rng,
            statements,
            people,
            phase: Phase::Running,
            started: now.monotonic,
            installed: None,
            history: VecDeque::new(),
            attempt: None,
            last: None,
            passed: None,
            overtaken: None,
            left_behind: None,
            written: VecDeque::new(),
            later: None,
            confirmed: VecDeque::new(),
            passed_over: BTreeSet::new(),
            prepared: false,
            retry: false,
            rotate: false,
            wanting: BTreeMap::new(),
            removing: BTreeMap::new(),
            strikes: BTreeMap::new(),
            ghosts: BTreeMap::new(),
            vain: BTreeMap::new(),
            rated: None,
            banned: BTreeMap::new(),
            convicted: VecDeque::new(),
            joins: Allowances::new(limits::JOINS_AT_ONCE, limits::JOIN_EVERY),
            rekeys: Allowances::new(limits::REKEYS_AT_ONCE, limits::REKEY_EVERY),
            proposed: (0, 0),
            judged: VecDeque::new(),
            refused: VecDeque::new(),
            own_proposals: (0, Monotonic(0)),
            yields: false,
            planned: None,
            hold_until: Monotonic(0),
            held_since: Monotonic(0),
            merging: None,
            towards: EpochId::default(),
            replaced: false,
            elsewhere: BTreeMap::new(),
            apart: None,
            grew: now.monotonic,
            doubted: BTreeMap::new(),
            named_bases: BTreeMap::new(),
            asked: None,
            shown: None,
            last_sign: now.monotonic,
            join_wait: timing::JOIN_RETRY,
            join_sent: None,
            card_sent: Monotonic(0),
            card_paced: Monotonic(0),
            rto: timing::RTO,
            leave_tries: 0,
            key_tries: 0,
            early: VecDeque::new(),
            wanted_cards: BTreeMap::new(),
            wanted_proposals: BTreeMap::new(),
            timers: Timers::default(),
            outputs: VecDeque::new(),
            token: 0,
            counters: Counters::default(),
            drops: Drops::default(),
            forged: BTreeMap::new(),
            stating: Budget::default(),
            telling: VecDeque::new(),
            greeting: Budget::default(),
            greeted: Monotonic(0),
            part_heard: None,
            stale_told: false,
            versions_told: BTreeMap::new(),
            cut: Some([0; 32]),
            flushing: EpochId::default(),
            last_told: None,
        };
        #[cfg(any(test, feature = "misbehaving"))]
        if member.lacks(misbehaving::Rule::Allowance) {
            member.joins = Allowances::new(u32::MAX, Duration::ZERO);
            member.rekeys = Allowances::new(u32::MAX, Duration::ZERO);
        }
        member.begin(now);
        member.exclude_if_reported();
        member
    }

    /// Others can be heard and asked from now on; nothing was said before.
    fn begin(&mut self, now: Now) {
        if self.phase == Phase::Running && self.installed.is_none() && self.asked.is_none() {
            self.started = now.monotonic;
            self.last_sign = now.monotonic;
            self.timers.set(Timer::Join, now.monotonic);
            self.timers.set(Timer::Judge, now.monotonic);
        }
    }

    fn env(&mut self) -> Env<'_> {
        Env {
            group: &self.group,
            suite: self.config.suite,
            rng: &mut self.rng,
            verifier: &self.verifier,
            identity: self.config.identity.key(),
            key: &self.key,
            cut: self.cut,
        }
    }

    /// Sends a message to the group, under the bootstrap key; returns its bytes.
    fn send(&mut self, message: &Message) -> Vec<u8> {
        let mut nonce = [0; 12];
        self.rng.fill_bytes(&mut nonce);
        let bootstrap_sealed = self.bootstrap_key.seal(nonce, &message.encode());
        self.send_bootstrap(message, bootstrap_sealed.clone());
        bootstrap_sealed
    }

    fn send_bootstrap(&mut self, message: &Message, bootstrap_sealed: Vec<u8>) {
        self.counters.of(message).sent(bootstrap_sealed.len());
        self.token += 1;
        let token = Token(self.token);
        self.outputs.push_back(Output::Send {
            token,
            lane: Lane::Open,
            needs: Guarantee::BestEffort,
            to: To::Group,
            after: None,
            names: None,
            bytes: bootstrap_sealed,
        });
    }

    /// Sends what somebody else said once more, as it came.
    fn resend_bootstrap(&mut self, bootstrap_sealed: &[u8]) {
        let message = self.bootstrap_key.open(bootstrap_sealed).ok().and_then(|bytes| Message::decode(&bytes).ok());
        if let Some(message) = message {
            self.send_bootstrap(&message, bootstrap_sealed.to_vec());
        }
    }

    /// Keeps a message until what it lacks is here.
    fn keep(&mut self, lacks: Lacks, bootstrap_sealed: &[u8]) {
        if self.early.len() >= limits::EARLY_MESSAGES_MAX {
            self.early.pop_front();
            self.drops.count(Dropped::Queue);
        }
        self.early.push_back((lacks, bootstrap_sealed.to_vec()));
    }

    /// Takes kept messages up again whose time has come.
    fn resume(&mut self, now: Now, is_here: impl Fn(&Lacks) -> bool) {
        let (ready, rest) = std::mem::take(&mut self.early).into_iter().partition(|(lacks, _)| is_here(lacks));
        self.early = rest;
        let ready: VecDeque<(Lacks, Vec<u8>)> = ready;
        for (_, bootstrap_sealed) in ready {
            if let Err(HandleError::Dropped(why)) = self.open_and_take(now, &bootstrap_sealed) {
                self.drops.count(why);
            }
        }
    }

    fn open_and_take(&mut self, now: Now, bootstrap_sealed: &[u8]) -> Result<(), HandleError> {
        let bytes = self.bootstrap_key.open(bootstrap_sealed).map_err(|why| match why {
            BootstrapError::Foreign => Dropped::Foreign,
            BootstrapError::Auth => Dropped::Auth,
        })?;
        let message = Message::decode(&bytes)?;
        self.take(now, message, bootstrap_sealed)
    }

    /// One message, whose bytes are well-formed and come from somebody who knows the bootstrap key.
    fn take(&mut self, now: Now, message: Message, bootstrap_sealed: &[u8]) -> Result<(), HandleError> {
        // Whoever knows the bootstrap key can sign falsely in anybody's name: so often it costs us a check (G8).
        let author = message.author();
        let since = |at: Monotonic| now.monotonic.since(at) < Duration::from_secs(1);
        let forged = author.and_then(|a| self.forged.get(&a)).filter(|(at, _)| since(*at));
        if forged.is_some_and(|(_, n)| *n >= FALSE_SIGNATURES_PER_SECOND) {
            return Err(Dropped::Rate.into());
        }
        let result = self.dispatch(now, message, bootstrap_sealed);
        if let (Some(author), Err(HandleError::Dropped(Dropped::Auth))) = (author, &result) {
            if self.forged.len() > limits::REMEMBERED_PEOPLE_MAX {
                self.forged.retain(|_, (at, _)| since(*at));
            }
            let entry = self.forged.entry(author).or_insert((now.monotonic, 0));
            *entry = if since(entry.0) { (entry.0, entry.1 + 1) } else { (now.monotonic, 1) };
        }
        result
    }

    fn dispatch(&mut self, now: Now, message: Message, bootstrap_sealed: &[u8]) -> Result<(), HandleError> {
        match message {
            Message::Join(m) => self.on_join(now, &m),
            Message::Propose(m) => self.on_propose(now, m, bootstrap_sealed),
            m @ (Message::R1(_) | Message::R2(_) | Message::Kc(_)) => self.on_round(now, m, bootstrap_sealed),
            Message::Status(m) => self.on_status(now, &m, bootstrap_sealed),
            Message::Fetch(m) => self.on_fetch(now, &m),
            Message::Give(objects) => self.on_give(now, &objects),
            Message::Beacon(m) => self.on_beacon(now, &m, bootstrap_sealed),
            Message::Leave(m) => self.on_leave(now, &m),
            Message::SenderKey(m) => self.on_sender_key(now, &m),
            Message::State(m) => self.on_state(now, &m),
        }
    }

    /// Members of the installed view; none before the first.
    fn view_size(&self) -> usize {
        self.installed.as_ref().map_or(0, |i| i.agreed.people.len())
    }

    /// Whether there is a group that depends on us: of two or more.
    fn is_grouped(&self) -> bool {
        self.view_size() >= 2
    }

    fn epoch(&self) -> EpochId {
        self.installed.as_ref().map_or(EpochId::default(), |i| i.agreed.epoch)
    }

    /// The epoch as what the next one follows on, if others depend on it.
    fn base(&self) -> Option<Base> {
        self.is_grouped().then(|| Base::of(self.epoch(), self.view_size()))
    }

    /// The versions that all members of our epoch speak, or we alone.
    fn versions(&self) -> Versions {
        let people = self.installed.iter().flat_map(|i| &i.agreed.people);
        Versions::common(people.map(|p| p.card.versions)).unwrap_or(self.config.versions)
    }

    fn is_in_view(&self, short: &ShortId) -> bool {
        self.installed.as_ref().is_some_and(|i| i.agreed.people.iter().any(|p| p.short == *short))
    }

    /// We are out for good: nothing is sent or taken any more.
    fn exclude(&mut self, why: Exclusion) {
        if self.phase != Phase::Out {
            self.phase = Phase::Out;
            self.attempt = None;
            (self.overtaken, self.left_behind) = (None, None);
            self.written.clear();
            self.later = None;
            self.timers = Timers::default();
            self.outputs.push_back(Output::Excluded { why });
        }
    }

    /// Statistics and membership, for people to read.
    pub fn status(&self, now: Now) -> Status {
        inspect::status(self, now)
    }

    /// Tells the operator, with the name of the member that it is about.
    fn notice(&mut self, notice: Notice) {
        let named = notice.about().and_then(|cert| Some((cert, self.people.named(*cert)?)));
        let about = named.map(|(cert, (name, is_only))| if is_only { name.to_owned() } else { cert.beside(name) });
        self.outputs.push_back(Output::Notice { notice, about });
    }

    /// How many messages were dropped, by reason.
    pub fn drops(&self) -> &Drops {
        &self.drops
    }
}

impl Keys for Contributory {
    fn properties(&self) -> Properties {
        PROPERTIES
    }

    fn handle(&mut self, now: Now, input: Input<'_>) -> Result<(), HandleError> {
        let now = self.config.slower(now);
        match input {
            Input::Message { source, bytes, .. } => self.hear(now, source, bytes),
            Input::Command(command) => Ok(self.command(now, command)?),
            Input::Suspected(slot) => {
                self.suspect(now, slot);
                Ok(())
            }
            Input::Slow(cert) => {
                self.joins.defer(cert, now.monotonic, limits::SLOW_OUT);
                Ok(())
            }
            Input::Up => {
                self.begin(now);
                Ok(())
            }
            Input::Describe => {
                self.outputs.push_back(Output::Described(Box::new(inspect::status(self, now).known())));
                Ok(())
            }
            Input::Flushed(epoch, cut) => {
                if epoch == self.flushing {
                    self.flushed(now, cut);
                }
                Ok(())
            }
            // Messages are said again until they are answered, datagrams are sealed, and nothing is fetched.
            Input::Outcome(..)
            | Input::InForce(_)
            | Input::Passed(_)
            | Input::Ends
            | Input::Delivered(_)
            | Input::Fetched(..)
            | Input::PackagesKept(_) => Ok(()),
        }
    }

    fn seal(&mut self, _message: &Seal<'_>) -> Result<Sealed, SealError> {
        Err(SealError::PerDatagram)
    }

    /// It opens no whole messages.
    fn has_capacity(&self, _bytes: usize) -> bool {
        true
    }

    fn timeout(&self) -> Option<Monotonic> {
        self.timers.next().map(|at| Monotonic(at.0.saturating_mul(u64::from(self.config.pace.get()))))
    }

    fn handle_timeout(&mut self, now: Now) {
        let now = self.config.slower(now);
        while let Some(timer) = self.timers.take_due(now.monotonic) {
            match timer {
                Timer::Join => self.join_again(now),
                Timer::Propose => self.propose(now),
                Timer::Resend => self.resend(now),
                Timer::Flush => self.flushed(now, [0; 32]),
                Timer::Fetch => self.fetch_wanted(now),
                Timer::State => {
                    let state = self.statements.state();
                    self.send(&Message::State(state));
                }
                Timer::Tell => self.tell_again(now),
                Timer::Beacon => self.beacon(now),
                Timer::Greet => self.greet_now(now),
                Timer::Rekey => {
                    self.rotate = true;
                    self.plan(now);
                }
                Timer::Leave => self.leave(now),
                Timer::SenderKey => self.send_own_keys(now),
                Timer::Judge => self.judge(now),
            }
        }
    }

    fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }
}

impl Contributory {
    fn hear(&mut self, now: Now, source: &Source, message: &[u8]) -> Result<(), HandleError> {
        if self.phase == Phase::Out || matches!(source, Source::Inside { .. }) {
            return Err(Dropped::Stale.into());
        }
        let result = self.receive(now, message);
        if let Err(HandleError::Dropped(why)) = result {
            self.drops.count(why);
        }
        result
    }

    fn command(&mut self, now: Now, command: Command) -> Result<(), CommandError> {
        if self.phase != Phase::Running {
            return Err(CommandError::NotReady);
        }
        match command {
            Command::Rotate => self.rotate(now),
            Command::Evict { cert, reason } => self.evict(now, cert, &reason),
            Command::Leave => {
                self.leave(now);
                Ok(())
            }
            Command::Learn(bytes) => match self.learn(now, &bytes) {
                Ok(true) => {
                    self.tell(now, &bytes);
                    Ok(())
                }
                Ok(false) => Ok(()),
                Err(_) => Err(CommandError::Invalid),
            },
            Command::Admit { .. } => Err(CommandError::Unsupported),
            Command::Batch(all) => all.into_iter().try_for_each(|it| self.command(now, it)),
        }
    }

    fn suspect(&mut self, now: Now, slot: Slot) {
        let Some(installed) = &self.installed else { return };
        let Some(person) = installed.agreed.people.get(slot.index()) else { return };
        if person.short != self.me.short && self.phase == Phase::Running {
            let short = person.short;
            self.removing.entry(short).or_insert(Change::Suspected);
            self.prepare_removal(now);
            self.plan(now);
        }
    }

    fn receive(&mut self, now: Now, bootstrap_sealed: &[u8]) -> Result<(), HandleError> {
        let bytes = self.bootstrap_key.open(bootstrap_sealed).map_err(|why| match why {
            BootstrapError::Foreign => Dropped::Foreign,
            BootstrapError::Auth => Dropped::Auth,
        })?;
        if let Some(old) = Old::read(&bytes) {
            return self.on_old(now, &old);
        }
        let message = Message::decode(&bytes)?;
        self.counters.of(&message).received(bootstrap_sealed.len());
        self.take(now, message, bootstrap_sealed)
    }
}

/// False signatures in one member's name that are checked per second. Its own messages go unheard for the
/// rest of that second, so there are many: 60 ms of a core at most.
const FALSE_SIGNATURES_PER_SECOND: u32 = 1000;
