//! `keys=mls`: one member of one group, over an order that all members read (D7).
//!
//! ```text
//! founder   ─ FOUND ─────────▶ the first one of the log founds the group
//! newcomer  ─ WANT ─▶ ◀─ ENTRY(GroupInfo) ── a member        external commit ─▶ order ─▶ ◀─ ENTRY(entered)
//! device    ─ key package ─▶ directory or members ─▶ a member: COMMIT ─▶ order; ENTRY(Welcome) ─▶ device
//! member    ─ COMMIT ────────▶ order: the first valid one of an epoch leads to the next, a void one stops nobody (D1)
//! restarted ─ CARD ──────────▶ order: the same epoch of RFC 9420 with the keys of its new run (G4)
//! ```
//! Source: RFC 9420 for groups, through an [`Engine`]; RFC 9750 for what its delivery service does. Data travels
//! under keys that an epoch's exporter gives, with `data=mls` as RFC 9420's PrivateMessages within (D5).
//!
//! | file | what |
//! |---|---|
//! | `message` | the bytes |
//! | `certificates` | who may be in, and change what |
//! | `committing` | what a member wants the group to commit |
//! | `following` | what the order says, and the epochs that it leads to |
//! | `complaints` | what a member signs about a commit that it cannot open |
//! | `complaining` | who counts that, and what follows |
//! | `joining` | the ways in, and how members help those outside |
//! | `posted` | the way in that lies at a directory, for newcomers who meet no member |
//! | `astray` | members in a fork, led there by somebody who is excluded |
//! | `body` | what is too long for a message |
//! | `admitting` | who asks to be let in, and commits that let in many |
//! | `packages` | our own key packages |
//! | `sharing` | what members keep for others where no directory is |
//! | `people` | who is in, and how each runs |
//! | `access` | an epoch's keys |
//! | `private_message` | messages of the application as RFC 9420's, with `data=mls` |
//! | `excluded` | whom no later group may let in |
//! | `mark` | how far it delivered what was ordered |
//! | `records` | what a process leaves for the next one |
//! | `journal` | how that lies on disk |

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use rand_chacha::ChaCha20Rng;
use rand_core::{Rng as _, SeedableRng as _};
use sealcast_crypto::aead;
use sealcast_crypto::bootstrap::BootstrapKey;
use sealcast_crypto::hash::sha256;
use sealcast_crypto::identity::{Identity, Verified};
use sealcast_crypto::secret::Secret;
use sealcast_crypto::signature::{Algorithm, OriginKey};
use sealcast_wire::{
    Agreement, CertHash, Dropped, EpochId, Fetch, FetchId, Fetched, Guarantee, Incarnation, Lane, MemberId, Monotonic,
    Now, Roster, Slot, Source, To, Utc, limits,
};

use super::admitting::Admission;
use super::astray::Astray;
use super::certificates::{Certificates, CredentialKind, TRUST, Trust};
use super::committing::{Pending, Wish};
use super::complaining::Complained;
use super::engine::{Engine, Handshake, LeafIndex, Setup, Signer, Step, Suite};
use super::following::{Entering, Log, Parts};
use super::joining::{External, Outside, Welcomed};
use super::journal::Journal;
use super::judge::{Claim, Credential, Judge};
use super::mark::Marks;
use super::message::{Card, Entry, Message};
use super::packages::OwnPackage;
use super::people::{Cards, People};
use super::posted::NOBODY;
use super::private_message::PrivateMessages;
use super::records;
use super::sharing::Shared;
use crate::timers::Timers;
use crate::{
    Command, CommandError, Exclusion, HandleError, Input, Keys, Need, Output, Properties, Seal, SealError, Sealed,
    SendResult, Token,
};

/// What it needs: an order that may fork at worst (D7).
pub const PROPERTIES: Properties =
    Properties { messages: &[Need(Guarantee::Ordered, Agreement::Forkable)], ..Properties::ANY };

/// What a member needs to know before it starts.
#[derive(Clone)]
pub struct Config {
    /// The group's name, as certificates have it.
    pub group: String,
    /// Our certificate and keys, whom we trust, and the group's bootstrap key.
    pub identity: Arc<Identity>,
    /// How datagrams are sealed.
    pub suite: aead::Suite,
    /// Whether this member founds the group if nobody lets it in.
    pub founds: bool,
    /// Whether it comes in by itself; otherwise it waits until a member admits it, or founds the group if it may and there is
    /// none.
    pub joins: bool,
    /// Whether origins are proved by signatures: any member can seal in the name of any other.
    pub signs: bool,
    /// Age of our leaf's key at which we commit a new one.
    pub rekey_after: Duration,
    /// A date that has surely passed (G5).
    pub floor: Utc,
    /// How handshakes of members travel.
    pub handshake: Handshake,
    /// How members name themselves in the tree.
    pub credentials: CredentialKind,
    /// Whether each message of the application is a PrivateMessage (`data=mls`), which costs a signature and time that grows with
    /// the members; all members of a group have the same here.
    pub private_messages: bool,
    /// Whether the transport has a directory. Otherwise members keep what others ask for, and send it.
    pub directory: bool,
    /// Whether it stays a member while its process does not run: its records, and the order, outlive that.
    pub stays: bool,
    /// Statements of eviction, and the authority's list, that are known from elsewhere: from other runs ([`super::statements`]).
    pub statements: Vec<Vec<u8>>,
    /// Whether each epoch's secrets are erased from the records as soon as the next one begins, and not up to 32 epochs or
    /// a minute later (D6): that costs some milliseconds of an epoch of thousands.
    pub erases: bool,
    /// How often slower time goes than where members hear each other within milliseconds; at least 1.
    pub pace: u32,
}

impl Config {
    /// The usual one: AES-256-GCM, signed origins, a new leaf key every day.
    pub fn new(group: &str, identity: Arc<Identity>) -> Config {
        Config {
            group: group.to_owned(),
            identity,
            suite: aead::Suite::default(),
            founds: true,
            joins: true,
            signs: true,
            rekey_after: Duration::from_secs(24 * 3600),
            floor: Utc(i64::MIN),
            handshake: Handshake::Private,
            credentials: CredentialKind::X509,
            private_messages: false,
            directory: true,
            stays: false,
            statements: Vec::new(),
            erases: false,
            pace: 1,
        }
    }
}

/// The machine of `keys=mls`.
pub struct Mls<E> {
    pub(super) config: Config,
    pub(super) group: Arc<str>,
    pub(super) judge: Arc<Certificates>,
    pub(super) setup: Setup,
    pub(super) bootstrap_key: BootstrapKey,
    pub(super) me: Arc<Verified>,
    /// Whom no group of this name may have for a member.
    pub(super) known: Trust,
    /// With which group context that was compared, and whether it lacks some of it.
    pub(super) compared: Option<(Arc<Trust>, bool)>,
    /// Of this run.
    pub(super) card: Card,
    pub(super) origin: Arc<OriginKey>,
    pub(super) rng: ChaCha20Rng,
    pub(super) phase: Phase<E>,
    /// What the order brought and is not judged yet.
    pub(super) log: Log,
    /// Pieces of bodies that were fetched, until they are used.
    pub(super) pieces: BTreeMap<[u8; 32], Vec<u8>>,
    pub(super) fetching: BTreeMap<FetchId, Fetch>,
    /// Where no directory is.
    pub(super) shared: Shared,
    pub(super) pending: Option<Pending>,
    pub(super) wishes: VecDeque<Wish>,
    /// Messages of ours that are being ordered.
    sent: BTreeMap<Token, Vec<u8>>,
    /// What failed together is tried one by one.
    pub(super) alone: VecDeque<Wish>,
    /// How often in a row something was not done.
    again: u32,
    /// The newest last.
    pub(super) packages: Vec<OwnPackage>,
    pub(super) journal: Journal,
    pub(super) marks: Marks,
    /// Whether the next answer of a directory is filled up.
    pub(super) refills: bool,
    pub(super) admission: Admission,
    pub(super) timers: Timers<Timer>,
    /// The roster that our application saw last.
    pub(super) shown: Option<Roster>,
    /// Who was let in by our commits, and how.
    pub(super) welcomed: VecDeque<Welcomed>,
    /// When somebody outside was answered last.
    pub(super) answered: BTreeMap<CertHash, Monotonic>,
    pub(super) leaving: bool,
    /// Commits that some cannot open.
    pub(super) complained: Complained,
    /// What is said to members whom somebody excluded led astray.
    pub(super) astray: Astray,
    /// External commits in a row that did not wait to be ordered.
    pub(super) withdrawn: u32,
    /// It was said that a group's messages have another form.
    pub(super) told_form: bool,
    names: u64,
    pub(super) outputs: VecDeque<Output>,
}

/// Where a member stands.
pub(super) enum Phase<E> {
    Outside(Box<Outside>),
    /// Our external commit is under way.
    External(Box<External<E>>),
    Inside(Box<Inside<E>>),
    Out,
}

/// A member of a group.
pub(super) struct Inside<E> {
    pub(super) engine: E,
    pub(super) epoch: EpochId,
    /// What the exporter of the engine's epoch gave.
    pub(super) base: Secret<32>,
    pub(super) cut: [u8; 32],
    pub(super) people: People,
    /// Of the last message that led to this epoch.
    pub(super) position: u64,
    /// Of the last message that was judged.
    pub(super) judged: u64,
    /// Of the message that founded the group.
    pub(super) founded: u64,
    /// Others are in a later epoch, it seems.
    pub(super) behind: bool,
    /// How often we asked.
    pub(super) tries: u32,
    /// A way into another epoch or group, whose annex is being fetched.
    pub(super) probe: Option<(Entry, Monotonic)>,
    /// The message that ends this epoch.
    pub(super) entering: Option<Entering>,
    /// Members that asked to be removed.
    pub(super) leavers: BTreeSet<LeafIndex>,
    /// Who led to the last epochs, the last one first: they were there not long ago, and most of a large group may be away.
    pub(super) recent: VecDeque<Slot>,
    /// External commits that won in this epoch of ours and before: what proves it, and the annex.
    pub(super) externals: VecDeque<(Entry, Cards)>,
    /// Parts of long messages that were ordered in this data epoch, by the hash of the whole.
    pub(super) parts: BTreeMap<[u8; 32], Parts>,
    /// What seals and opens messages of the application in the engine's epoch, with `data=mls`.
    pub(super) messages: Option<Arc<PrivateMessages<E>>>,
}

/// A member's group is the people in it.
impl<E> Deref for Inside<E> {
    type Target = People;

    fn deref(&self) -> &People {
        &self.people
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// Ask to be let in, or what became of our external commit.
    Want,
    /// Found the group.
    Found,
    /// Say our card in the order.
    Card,
    /// It is our turn to remove somebody.
    Turn,
    /// Try again what was not done.
    Again,
    /// Our leaf's key is old.
    Rekey,
    /// Ask again to be removed.
    Leave,
    /// Have our complaints ordered.
    Complain,
    /// Ask others for what we lack.
    Seek,
    /// Somebody is to be removed, and is not.
    Withheld,
    /// Erase what is superseded from the records.
    Erase,
    /// Look how many of our key packages are left.
    Packages,
    /// Post the way into this epoch.
    Post,
    /// Say whom the group excludes.
    Astray,
    /// Store how far we delivered what was ordered.
    Mark,
    /// Lead to an epoch in which we may seal.
    Renew,
}

impl<E: Engine> Mls<E> {
    /// A process of this member, with what an earlier one left. `seed` is this run's only randomness: never use one twice.
    ///
    /// # Errors
    /// The certificate is none of a member that reads all of the group.
    pub fn restore(config: Config, seed: [u8; 32], now: Now, stored: &[(u64, Vec<u8>)]) -> Result<Mls<E>, ConfigError> {
        let mut rng = ChaCha20Rng::from_seed(seed);
        let group: Arc<str> = config.group.as_str().into();
        let mine = config.identity.certificate();
        let (anchor, kind) = (config.identity.anchor().clone(), config.credentials);
        let judge = Arc::new(Certificates::new(group.clone(), anchor, config.floor, kind));
        let credential = match kind {
            CredentialKind::X509 => Credential::X509(vec![mine.der.to_vec()]),
            CredentialKind::Basic => Credential::Basic(mine.name.as_bytes().to_vec()),
        };
        let claim = Claim { credential, signature_key: mine.key.point().to_vec() };
        let me = judge.verify(&claim).map_err(|_| ConfigError::Name)?;
        let suite = match me.key.algorithm() {
            Algorithm::Ed25519 => Suite::X25519,
            Algorithm::P256 => Suite::P256,
        };
        if !me.rights.is_member(&group) || !me.rights.reads_all(&group, &sealcast_crypto::identity::Pattern::all()) {
            return Err(ConfigError::Readers);
        }
        let setup = Setup {
            suite,
            credential: claim.credential,
            signer: config.identity.clone() as Arc<dyn Signer>,
            judge: judge.clone() as Arc<dyn Judge>,
            handshake: config.handshake,
            extension_kinds: vec![TRUST],
        };
        let records = records::read(stored);
        let origin = Arc::new(OriginKey::generate(&mut rng));
        let mut incarnation = [0; 16];
        rng.fill_bytes(&mut incarnation);
        let id = MemberId { cert: me.hash, incarnation: Incarnation(incarnation) };
        // Later than every run before, also if the disk was lost.
        let by_clock = now.utc.map_or(0, |utc| u64::try_from(utc.0).unwrap_or(0)) << 16;
        let run = by_clock.max(records.run.saturating_add(1));
        let card = Card::new(&group, &config.identity, id, run, origin.public_bytes());
        let mut mls: Mls<E> = Mls {
            bootstrap_key: config.identity.bootstrap_key(&group),
            known: Trust::new(&group),
            compared: None,
            group,
            judge,
            setup,
            me,
            card,
            origin,
            rng,
            phase: Phase::Outside(Box::default()),
            log: Log::default(),
            pieces: BTreeMap::new(),
            fetching: BTreeMap::new(),
            shared: Shared::default(),
            pending: None,
            wishes: VecDeque::new(),
            sent: BTreeMap::new(),
            alone: VecDeque::new(),
            again: 0,
            packages: records.packages,
            journal: records.journal,
            marks: Marks::of(stored),
            refills: false,
            admission: Admission::default(),
            timers: Timers::default(),
            shown: None,
            welcomed: VecDeque::new(),
            answered: BTreeMap::new(),
            leaving: false,
            complained: Complained::default(),
            astray: Astray::default(),
            withdrawn: 0,
            told_form: false,
            names: 0,
            outputs: VecDeque::new(),
            config,
        };
        let elsewhere = std::mem::take(&mut mls.config.statements);
        mls.learn_statements(&[elsewhere, super::statements(stored)].concat());
        mls.store_run();
        match records.state.and_then(|state| mls.resume(now, state)) {
            Some(()) => {}
            None => mls.begin_outside(now),
        }
        if mls.inside().is_some_and(|it| !mls.has_our_form(&it.engine.context().group_id)) {
            return Err(ConfigError::Form);
        }
        mls.begin_marks();
        mls.arm_erasure(now);
        Ok(mls)
    }

    /// The epoch that it is in.
    pub fn epoch(&self) -> Option<EpochId> {
        self.inside().map(|it| it.epoch)
    }

    pub(super) fn inside(&self) -> Option<&Inside<E>> {
        if let Phase::Inside(inside) = &self.phase { Some(inside) } else { None }
    }

    pub(super) fn inside_mut(&mut self) -> Option<&mut Inside<E>> {
        if let Phase::Inside(inside) = &mut self.phase { Some(inside) } else { None }
    }

    // ---- small things --------------------------------------------------------------------------

    pub(super) fn utc(&self, now: Now) -> Utc {
        let floor = self.config.floor.max(self.judge.anchor().newest_date()).max(self.me.not_before);
        let utc = now.utc.unwrap_or(floor).max(floor);
        self.judge.set_time(utc, now.utc.is_some());
        utc
    }

    /// A time that members give each other.
    pub(super) fn paced(&self, time: Duration) -> Duration {
        time * self.config.pace
    }

    /// When something is tried once more that was not done: later each time, and not by all at once.
    pub(super) fn again(&mut self, now: Now) -> Monotonic {
        let base = AGAIN * (1 << self.again.min(AGAIN_DOUBLES));
        self.again += 1;
        now.monotonic + base + base.mul_f64(f64::from(self.rng.next_u32()) / f64::from(u32::MAX))
    }

    pub(super) fn done(&mut self) {
        self.again = 0;
    }

    pub(super) fn seed(&mut self) -> Secret<32> {
        Secret::random(&mut self.rng)
    }

    pub(super) fn token(&mut self) -> Token {
        self.names += 1;
        Token(self.names)
    }

    /// A message under the bootstrap key.
    pub(super) fn sealed(&mut self, message: &[u8]) -> Vec<u8> {
        let mut nonce = [0; 12];
        self.rng.fill_bytes(&mut nonce);
        self.bootstrap_key.seal(nonce, message)
    }

    pub(super) fn send(&mut self, token: Token, needs: Guarantee, to: To, bytes: Vec<u8>) {
        self.send_naming(None, token, needs, to, bytes);
    }

    fn send_naming(&mut self, names: Option<[u8; 32]>, token: Token, needs: Guarantee, to: To, bytes: Vec<u8>) {
        self.outputs.push_back(Output::Send { token, lane: Lane::Open, needs, to, after: None, names, bytes });
    }

    /// Sends a message that nobody orders.
    pub(super) fn tell(&mut self, to: To, message: &Message) {
        let (token, bytes) = (self.token(), self.sealed(&message.write()));
        self.send(token, Guarantee::BestEffort, to, bytes);
    }

    /// Has a message of this epoch ordered, in parts if it is long.
    pub(super) fn order(&mut self, epoch: u64, message: &[u8]) -> Vec<Token> {
        self.order_naming(None, epoch, message)
    }

    /// The same for a commit, with the key of the epoch that it leads to.
    pub(super) fn order_naming(&mut self, names: Option<[u8; 32]>, epoch: u64, message: &[u8]) -> Vec<Token> {
        if message.len() <= limits::MLS_PART_BYTES {
            return vec![self.order_one(names, message)];
        }
        let whole = sha256(message);
        let count = message.len().div_ceil(limits::MLS_PART_BYTES) as u16;
        let parts = (0..).zip(message.chunks(limits::MLS_PART_BYTES));
        let part = |(index, bytes): (u16, &[u8])| Message::Part { epoch, whole, index, count, bytes: bytes.to_vec() };
        parts.map(part).map(|it| self.order_one(names, &it.write())).collect()
    }

    fn order_one(&mut self, names: Option<[u8; 32]>, message: &[u8]) -> Token {
        let (token, bytes) = (self.token(), self.sealed(message));
        self.send_naming(names, token, Guarantee::Ordered, To::Group, bytes);
        self.sent.insert(token, message.to_vec());
        token
    }

    /// Makes something available to who fetches it.
    pub(super) fn provide(&mut self, what: Fetch, bytes: Vec<u8>) {
        if !self.config.directory {
            return self.keep(what, bytes);
        }
        self.outputs.push_back(Output::Provide { what, bytes });
    }

    pub(super) fn fetch(&mut self, now: Now, what: Fetch) {
        if !self.config.directory {
            return self.seek(now, what);
        }
        if self.fetching.values().any(|it| *it == what) || self.fetching.len() >= limits::MLS_PIECES_MAX {
            return;
        }
        self.names += 1;
        let id = FetchId(self.names);
        self.fetching.insert(id, what.clone());
        self.outputs.push_back(Output::Fetch { id, what });
    }

    /// Whether this is asked for, and not answered.
    pub(super) fn is_fetching(&self, what: &Fetch) -> bool {
        self.fetching.values().any(|it| it == what) || self.shared.seeks(what)
    }

    fn fetched(&mut self, now: Now, id: FetchId, result: Fetched) {
        let Some(what) = self.fetching.remove(&id) else { return };
        match (what, result) {
            (Fetch::KeyPackage(NOBODY), Fetched::Bytes(bytes)) => self.post_came(now, &bytes),
            (Fetch::KeyPackage(NOBODY), _) => {}
            (Fetch::KeyPackage(cert), Fetched::Bytes(bytes)) => self.package_came(now, cert, &bytes),
            (Fetch::Blob(hash), Fetched::Bytes(bytes)) if sha256(&bytes) == hash => {
                self.piece_came(now, hash, &bytes);
            }
            // Who provides it may not have done so yet.
            (Fetch::Blob(_), _) => self.look_for_pieces(now),
            (Fetch::KeyPackage(cert), _) => self.package_missing(now, cert),
            (Fetch::Mail(_), Fetched::Bytes(bytes)) => self.mail_came(now, &bytes),
            (Fetch::Mail(_) | Fetch::Shares { .. } | Fetch::Key, _) => {}
        }
    }

    /// Our leaf's key is renewed at some time, at which not all others do so.
    pub(super) fn set_rekey(&mut self, now: Now) {
        let after = self.config.rekey_after;
        let spread = after.mul_f64(f64::from(self.rng.next_u32()) / f64::from(u32::MAX) / 8.0);
        self.timers.set(Timer::Rekey, now.monotonic + after + spread);
    }

    pub(super) fn exclude(&mut self, why: Exclusion) {
        self.phase = Phase::Out;
        self.pending = None;
        self.wishes.clear();
        self.log = Log::default();
        self.timers = Timers::default();
        self.store();
        self.outputs.push_back(Output::Excluded { why });
    }

    fn handle_input(&mut self, now: Now, input: Input<'_>) -> Result<(), HandleError> {
        match input {
            Input::Message { source, position, bytes } => self.hear(now, source, position, bytes)?,
            Input::Command(command) => self.command(now, command)?,
            Input::Outcome(token, result) => self.outcome(now, token, result),
            Input::Fetched(id, result) => self.fetched(now, id, result),
            Input::PackagesKept(single_use) => self.offered(now, single_use),
            Input::Flushed(epoch, cut) => self.flushed(now, epoch, cut),
            Input::Describe => self.describe(now),
            Input::Passed(position) => self.passed(now, position),
            Input::Ends => self.store_mark(),
            // Members stay while they are away.
            Input::Suspected(_) | Input::Slow(_) | Input::Delivered(_) | Input::InForce(_) | Input::Up => {}
        }
        Ok(())
    }

    fn hear(&mut self, now: Now, source: &Source, position: Option<u64>, bytes: &[u8]) -> Result<(), Dropped> {
        if matches!(self.phase, Phase::Out) {
            return Err(Dropped::Stale);
        }
        let opened = self.bootstrap_key.open(bytes).map_err(|_| Dropped::Foreign)?;
        let message = Message::read(&opened).map_err(|_| Dropped::Malformed)?;
        match (message, position) {
            (Message::Want { what, position, tries, card }, _) => {
                self.hear_want(now, source, what, position, tries, card)
            }
            (Message::Entry(entry), _) => self.hear_entry(now, entry),
            (Message::Seek(what), _) => self.hear_seek(now, source, &what),
            (Message::Piece(bytes), _) => self.hear_piece(now, &bytes),
            (Message::Package { cert, bytes }, _) => self.hear_package(now, cert, bytes),
            (Message::Warning(statements), _) => self.hear_warning(now, &statements),
            (message, Some(position)) => self.hear_ordered(now, position, message, opened),
            // What has no position decides nothing.
            (_, None) => Err(Dropped::Malformed),
        }
    }

    fn outcome(&mut self, now: Now, token: Token, result: SendResult) {
        // Its sender is told where it stands, and does not hear it again.
        let sent = self.sent.remove(&token);
        if self.log.said.remove(&token) && matches!(result, SendResult::InDoubt | SendResult::Failed) {
            let later = self.again(now);
            self.timers.sooner(Timer::Card, later);
        }
        if self.pending.as_ref().is_some_and(|it| it.tokens.contains(&token)) {
            match result {
                SendResult::Ordered(_) | SendResult::Accepted => {}
                // It may be in the order, and would then count for all others.
                SendResult::InDoubt => self.send_pending_again(now),
                SendResult::Failed => self.give_up_pending(now),
            }
        }
        self.complaint_outcome(now, token, result);
        self.external_outcome(now, token, result);
        if let (SendResult::Ordered(position), Some(bytes)) = (result, sent)
            && let Ok(message) = Message::read(&bytes)
        {
            let _ = self.hear_ordered(now, position, message, bytes);
        }
    }
}

/// Why a member cannot start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// All members of a group read all of it.
    #[error(
        "the certificate does not grant reading all topics of the group: with keys=mls, use a group for each set of readers"
    )]
    Readers,
    /// The certificate's name cannot be a credential.
    #[error("the certificate's name cannot be a credential")]
    Name,
    /// The group of the records has another form of messages.
    #[error(
        "the group that was joined before has another form of messages: say data=mls if it has that, and else leave it out"
    )]
    Form,
}

impl<E: Engine> Keys for Mls<E> {
    fn properties(&self) -> Properties {
        Properties {
            stays: self.config.stays,
            claims_names: self.config.credentials == CredentialKind::Basic,
            ..PROPERTIES
        }
    }

    fn handle(&mut self, now: Now, input: Input<'_>) -> Result<(), HandleError> {
        let handled = self.handle_input(now, input);
        self.arm_erasure(now);
        handled
    }

    fn seal(&mut self, _message: &Seal<'_>) -> Result<Sealed, SealError> {
        Err(SealError::PerDatagram)
    }

    /// It opens no whole messages.
    fn has_capacity(&self, _bytes: usize) -> bool {
        true
    }

    fn timeout(&self) -> Option<Monotonic> {
        self.timers.next()
    }

    fn handle_timeout(&mut self, now: Now) {
        while let Some(timer) = self.timers.take_due(now.monotonic) {
            match timer {
                Timer::Want => self.want(now),
                Timer::Found => self.found(now),
                Timer::Card => self.say_card(),
                Timer::Turn => self.take_turn(now),
                Timer::Again => {
                    if self.pending.as_ref().is_some_and(|it| it.tokens.is_empty()) {
                        self.send_pending();
                    }
                    self.pursue(now);
                }
                Timer::Rekey => {
                    self.wish(now, Wish::Update);
                    self.set_rekey(now);
                }
                Timer::Leave => self.ask_to_leave(now),
                Timer::Complain => self.complain(),
                Timer::Seek => self.seek_again(now),
                Timer::Withheld => self.removal_withheld(now),
                Timer::Erase => self.erase(),
                Timer::Packages => self.offer_packages(now),
                Timer::Post => self.post(now),
                Timer::Astray => self.warn_astray(now),
                Timer::Mark => self.store_mark(),
                Timer::Renew => self.renew(now),
            }
        }
        self.arm_erasure(now);
    }

    fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }
}

/// A call's time and randomness.
pub(super) fn step(utc: Utc, seed: &Secret<32>) -> Step<'_> {
    Step { utc, seed }
}

/// From a failure to the next try.
const AGAIN: Duration = Duration::from_millis(30);
const AGAIN_DOUBLES: u32 = 7;

/// The slot of a leaf.
pub(super) fn slot(leaf: LeafIndex) -> Slot {
    Slot(leaf.0)
}

/// Why a command is refused.
pub(super) type Refused = CommandError;

/// What a command asks.
pub(super) type Requested = Command;
