//! A key distribution centre makes pair keys, and a leader hands out the group's: LSGC's scheme, rebuilt.
//!
//! Source: McDaniel, Honeyman and Prakash, "Lightweight Secure Group Communication" (LSGC, 1998), as corrected in
//! [`sealcast_crypto::leighton_micali`]. Assumed of the network: it loses, repeats, reorders and forges at will. Who may
//! `lead` is trusted with the group's keys and roster; other members are not trusted with anything.
//!
//! ```text
//! newcomer                         leader                        centre          members
//!    │ JOIN ─────────────────────────▶ │ PAIR, unless it has it ────▶ │
//!    │ ◀───────────── CHALLENGE, a salt ── │ ◀──────── GRANTED, masked ── │
//!    │ CHECK: is it revoked? ───────────────────────────────────────▶ │
//!    │ ACCEPT ───────────────────────▶ │ now it is an applicant
//!    │ ◀─────────────────── PROPOSE: who is in, a tag for each ───────────────────────▶ │
//!    │ ACK ──────────────────────────▶ │ ◀──────────────── ACK, with the end of the view ─│
//!    │ ◀─────────────────── COMMIT: secrets, an entry for each ───────────────────────▶ │
//! ```
//! A change that only lets newcomers in derives the next secrets one-way; any other draws them afresh. The first one named leads; others with the right
//! stand by in the order of their slots, and hold pair keys with all members, so that they lead on without the centre (C2).
//!
//! | weakness of LSGC (research: LSGC 1.7) | here |
//! |---|---|
//! | view nonce of 8 bits (4), entries and list unauthenticated (5) | epochs bind all of PROPOSE, and entries the epoch |
//! | leave and failure unauthenticated (7) | a leave is under the pair key; who is silent is the leader's to judge |
//! | token is a published plaintext of one view (8, 11) | a tag under a key of the leader's that dies at a revocation (C1) |
//! | one key for many senders (23) | a key for each sender, run and compartment |
//! | the leader dies (14) | a stand-by leads on; two leaders that meet merge their groups |
//!
//! | file | what |
//! |---|---|
//! | `message`, `pair` | the bytes; what a leader and a member share |
//! | `lead`, `follow` | a leader's side; a member's side |
//! | `refused` | whom a leader does not let in for a while |
//! | `epoch` | the epoch's secrets, made and taken in |
//! | `query`, `queries` | what members ask the centre, and what it answers; our questions |
//! | `kdc` | the centre |
//! | `row` | a row of its log |
//! | `feed` | what a stand-by centre asks the first one |

mod epoch;
pub mod feed;
mod follow;
pub mod kdc;
mod lead;
mod message;
#[cfg(any(test, feature = "misbehaving"))]
pub mod misbehaving;
mod pair;
mod queries;
pub mod query;
mod refused;
pub mod row;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod vectors;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};
use sealcast_crypto::aead::Suite;
use sealcast_crypto::bootstrap::{BootstrapError, BootstrapKey};
use sealcast_crypto::identity::{Principal, Registration, Rights, Serial};
use sealcast_crypto::secret::Secret;
use sealcast_crypto::signature::OriginKey;
use sealcast_wire::{
    Address, CertHash, Dropped, Drops, EpochId, Guarantee, Incarnation, Lane, MemberId, Monotonic, Now, Roster, Source,
    To, Utc, limits,
};

use self::follow::{Courts, Follows, Gathers, PairKeys};
use self::lead::{Leads, spread};
use self::message::{Gone, Message, Part, Wish, WishKind};
use self::queries::{News, Queries};
use self::query::{Query, Refusal};
use crate::compartments::Table;
use crate::status::{MemberStatus, Status};
use crate::timers::{Timers, jitter};
use crate::{
    Command, CommandError, Exclusion, HandleError, Input, Keys, Notice, Output, Properties, Seal, SealError, Sealed,
    Token,
};

/// What it needs: anything that carries a message, to an address, too.
pub const PROPERTIES: Properties = Properties { flushes: true, asks_outside: true, ..Properties::ANY };

/// What a member needs to know before it starts.
#[derive(Clone)]
pub struct Config {
    /// The group's name, as registrations have it.
    pub group: String,
    /// Our registration and keys.
    pub principal: Arc<Principal>,
    /// Where the centre and its stand-bys are asked, the first one first.
    pub centers: Vec<Address>,
    /// How datagrams are sealed; the same for all members.
    pub suite: Suite,
    /// Age at which an epoch's key is replaced.
    pub rekey_after: Duration,
    /// A member silent for this long is suspected; in a change, which waits for it, for a fifth of that, 0.3 to 3 s, or longer in
    /// a large group.
    pub detect: Duration,
    /// A date that has surely passed: the build's (G5).
    pub floor: Utc,
    /// Whether the group has a reliable channel: all members' transports have it, or none.
    pub reliable: bool,
    /// Rules that a planted fault leaves out.
    #[cfg(any(test, feature = "misbehaving"))]
    pub without: &'static [misbehaving::Rule],
}

impl Config {
    /// The usual one: AES-256-GCM, a new key every hour.
    pub fn new(group: &str, principal: Arc<Principal>, centers: Vec<Address>) -> Config {
        Config {
            group: group.to_owned(),
            principal,
            centers,
            suite: Suite::default(),
            rekey_after: Duration::from_secs(3600),
            detect: limits::DETECT,
            floor: Utc(i64::MIN),
            reliable: false,
            #[cfg(any(test, feature = "misbehaving"))]
            without: &[],
        }
    }
}

/// Why there can be no such member.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The registration grants nothing in the group.
    #[error("the registration of {0} grants nothing in the group '{1}'")]
    NoRight(String, String),
}

/// The machine of `keys=center`: one member of one group, in one run.
pub struct Center {
    config: Config,
    group: Arc<str>,
    me: MemberId,
    registration: Arc<Registration>,
    signer: Arc<OriginKey>,
    bootstrap_key: BootstrapKey,
    rng: ChaCha20Rng,
    phase: Phase,
    people: BTreeMap<CertHash, Known>,
    /// The rights of all of them, each kept once.
    rights: BTreeSet<Arc<Rights>>,
    /// Registrations that we heard of by JOIN and did not know, since then.
    unknown: (Monotonic, u32),
    installed: Option<Installed>,
    /// A proposal of our leader's, or of who becomes it.
    follows: Option<Follows>,
    /// One whose roster is not all here yet.
    gathers: Option<Gathers>,
    /// Parts of rosters that came before their proposals.
    early: Vec<Part>,
    /// A signed proposal of somebody who does not lead yet, as far as we know.
    overtook: Option<(Monotonic, Option<Address>, message::Propose)>,
    /// The newest attempt that we followed, and whose.
    newest: Option<(MemberId, u32)>,
    /// When we last asked to be let in.
    joined_at: Option<Monotonic>,
    /// The last one that we gave up.
    failed: Option<[u8; 32]>,
    /// Whose challenge we accepted, or shall.
    courts: Option<Courts>,
    /// The leader of another part of the group that we want to come to.
    towards: Option<(CertHash, Monotonic)>,
    /// Leaders that the centre said are good, and when.
    good: BTreeMap<CertHash, Monotonic>,
    /// Keys that leaders share with us.
    pairs: PairKeys,
    /// Where our leader was heard in the change that made our epoch; where we lead, where the members were.
    addresses: BTreeMap<MemberId, Address>,
    /// Members of the view that have to go.
    going: BTreeMap<CertHash, Gone>,
    /// Of whom the centre said that they are revoked.
    revoked: BTreeSet<CertHash>,
    /// The newest revocation that we know of.
    number: u64,
    leads: Leads,
    queries: Queries,
    /// What the view in use is flushed for, and how it ends; none while it is flushed.
    flushing: EpochId,
    cut: Option<[u8; 32]>,
    /// Whether `Prepare` is out and neither installed nor abandoned.
    prepared: bool,
    /// When a sign of another leader, or of who will be one, was last seen.
    last_sign: Option<Monotonic>,
    started: Monotonic,
    /// When somebody came to our view last, and whether others were heard since who are not in it.
    grew: Monotonic,
    others: Option<MemberId>,
    /// When the centre was last asked who is revoked, and how often we looked around.
    news_asked: Option<Monotonic>,
    /// When people were last told that a stand-by is stale.
    stale_told: Option<Monotonic>,
    looks: u32,
    /// Of whom people were last told that it is not let in, and when.
    full_told: Option<(CertHash, Monotonic)>,
    /// When a stolen token was told of last.
    stolen_told: Option<Monotonic>,
    /// Whose other channels people were last told of, and when.
    channels_told: Option<(CertHash, Monotonic)>,
    join_wait: Duration,
    joins: u32,
    leave_tries: u32,
    /// A new key is wanted in place of this epoch's, and asked for so many times more.
    rotating: Option<(EpochId, u32)>,
    timers: Timers<Timer>,
    outputs: VecDeque<Output>,
    token: u64,
    drops: Drops,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Running,
    Leaving,
    Out,
}

/// A registration that we heard of.
struct Known {
    registration: Arc<Registration>,
    rights: Arc<Rights>,
    seen: Monotonic,
}

/// The epoch in use.
struct Installed {
    epoch: EpochId,
    /// By slot; the first one leads.
    slots: Vec<MemberId>,
    members: Roster,
    table: Arc<Table>,
    at: Monotonic,
    /// Since which epoch each is in, by slot.
    since: Vec<u32>,
    /// Of the rings that we are in, by ring: what a one-way change derives from.
    rings: Vec<Option<Secret<32>>>,
}

/// What a member waits for. The order breaks ties of equal times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// Query again to be let in.
    Join,
    /// Nobody leads: form a group.
    Form,
    /// Propose what there is to change.
    Propose,
    /// Say a proposal again to who has not acknowledged it, or give up on them.
    Resend,
    /// Acknowledge again.
    Ack,
    /// Ask for the parts of a roster that did not come.
    Gather,
    /// What is delivered in the view is not settled in time.
    Flush,
    /// Query the centre again.
    Query,
    /// Query the centre who is revoked, and look whose registration has ended.
    News,
    /// Say that the group is here.
    Beacon,
    /// The same, to a newcomer whom nobody answers.
    Sign,
    /// The key is old.
    Rekey,
    /// Ask again for a new key.
    Rotate,
    /// Say again that we leave.
    Leave,
}

impl Center {
    /// A member that asks to be let in at its first [`Keys::handle_timeout`], or forms a group if it may lead.
    ///
    /// `seed` is this run's only randomness: never use one twice.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn new(config: Config, seed: [u8; 32], now: Now) -> Result<Center, ConfigError> {
        let mut rng = ChaCha20Rng::from_seed(seed);
        let mut incarnation = Incarnation::default();
        rng.fill_bytes(&mut incarnation.0);
        let registration = Arc::new(config.principal.registration.clone());
        let group: Arc<str> = config.group.as_str().into();
        let bootstrap = config.principal.bootstrap_of(&group).filter(|_| registration.rights.is_member(&group));
        let bootstrap =
            bootstrap.ok_or_else(|| ConfigError::NoRight(registration.name.to_string(), config.group.clone()))?;
        let me = MemberId { cert: registration.hash(), incarnation };
        let mut member = Center {
            bootstrap_key: BootstrapKey::new(bootstrap),
            signer: Arc::new(config.principal.origin_key()),
            queries: Queries::new(me.cert, config.centers.clone()),
            leads: Leads::new(&mut rng),
            group,
            me,
            registration,
            config,
            rng,
            phase: Phase::Running,
            people: BTreeMap::new(),
            rights: BTreeSet::new(),
            unknown: (now.monotonic, 0),
            installed: None,
            follows: None,
            gathers: None,
            early: Vec::new(),
            overtook: None,
            newest: None,
            joined_at: None,
            failed: None,
            courts: None,
            towards: None,
            good: BTreeMap::new(),
            pairs: PairKeys::default(),
            addresses: BTreeMap::new(),
            going: BTreeMap::new(),
            revoked: BTreeSet::new(),
            number: 0,
            flushing: EpochId::default(),
            cut: Some([0; 32]),
            prepared: false,
            last_sign: None,
            started: now.monotonic,
            grew: now.monotonic,
            others: None,
            news_asked: None,
            stale_told: None,
            looks: 0,
            full_told: None,
            stolen_told: None,
            channels_told: None,
            join_wait: JOIN_RETRY,
            joins: 0,
            leave_tries: 0,
            rotating: None,
            timers: Timers::default(),
            outputs: VecDeque::new(),
            token: 0,
            drops: Drops::default(),
        };
        #[cfg(any(test, feature = "misbehaving"))]
        {
            member.queries.believes = member.lacks(misbehaving::Rule::Answers);
        }
        member.learn(now.monotonic, &member.registration.clone());
        member.timers.set(Timer::Join, now.monotonic);
        member.timers.set(Timer::News, now.monotonic);
        if member.may_lead(&me.cert) {
            let wait = FORM + jitter(&mut member.rng, FORM / 2);
            member.timers.set(Timer::Form, now.monotonic + wait);
        }
        Ok(member)
    }

    /// How many messages were dropped, by reason.
    pub fn drops(&self) -> &Drops {
        &self.drops
    }

    /// Sends a message to the group, under the bootstrap key.
    fn send(&mut self, message: &Message) {
        self.send_to(None, message);
    }

    /// Sends a message to whom it concerns alone, where its address is known, else to the group.
    fn send_to(&mut self, to: Option<Address>, message: &Message) {
        let mut nonce = [0; 12];
        self.rng.fill_bytes(&mut nonce);
        let bytes = self.bootstrap_key.seal(nonce, &message.encode());
        self.transmit(to.map_or(To::Group, To::Peer), bytes);
    }

    fn transmit(&mut self, to: To, bytes: Vec<u8>) {
        self.token += 1;
        let token = Token(self.token);
        let needs = Guarantee::BestEffort;
        self.outputs.push_back(Output::Send { token, lane: Lane::Open, needs, to, after: None, names: None, bytes });
    }

    fn notice(&mut self, notice: Notice) {
        let about = notice.about().and_then(|cert| Some(self.people.get(cert)?.registration.name.to_string()));
        self.outputs.push_back(Output::Notice { notice, about });
    }

    /// Remembers a registration; those of the view and of applicants stay, whoever else comes.
    fn learn(&mut self, now: Monotonic, registration: &Arc<Registration>) {
        let cert = registration.hash();
        if let Some(known) = self.people.get_mut(&cert) {
            known.seen = now;
            return;
        }
        // Of a large group many have the same rights: they are told apart by comparing where they are.
        let rights = self.rights.get(&registration.rights).cloned().unwrap_or_else(|| {
            let new = Arc::new(registration.rights.clone());
            self.rights.insert(new.clone());
            new
        });
        self.people.insert(cert, Known { registration: registration.clone(), rights, seen: now });
        if self.people.len() > limits::CENTER_PEOPLE_MAX {
            self.forget_people();
        }
    }

    /// Forgets registrations that nothing needs, the oldest first; several at once, as each time all are looked at.
    fn forget_people(&mut self) {
        let slots = self.installed.iter().flat_map(|it| &it.slots);
        let followed = self.follows.iter().flat_map(|it| &it.content.slots);
        let needed =
            slots.chain(followed).chain(self.leads.applicants.keys()).chain(self.courts.iter().map(|it| &it.leader));
        let mut needed: BTreeSet<CertHash> = needed.map(|it| it.cert).collect();
        needed.insert(self.me.cert);
        needed.extend(self.leads.proposed_slots().iter().map(|it| it.cert));
        needed.extend(self.gathers.iter().flat_map(Gathers::certs));
        let spare = self.people.iter().filter(|(cert, _)| !needed.contains(cert));
        let mut spare: Vec<(Monotonic, CertHash)> = spare.map(|(cert, it)| (it.seen, *cert)).collect();
        spare.sort_unstable();
        let count = spare.len().div_ceil(FORGOTTEN_PART);
        spare.iter().take(count).for_each(|(_, cert)| _ = self.people.remove(cert));
        self.rights.retain(|it| Arc::strong_count(it) > 1);
    }

    /// Remembers a registration of which nothing is proved: so many unknown ones a second.
    ///
    /// # Errors
    /// [`Dropped::Rate`].
    fn learn_unproved(&mut self, now: Monotonic, registration: &Arc<Registration>) -> Result<(), Dropped> {
        if !self.people.contains_key(&registration.hash()) {
            if now.since(self.unknown.0) >= Duration::from_secs(1) {
                self.unknown = (now, 0);
            }
            if self.unknown.1 >= limits::UNKNOWN_REGISTRATIONS_PER_SECOND {
                return Err(Dropped::Rate);
            }
            self.unknown.1 += 1;
        }
        self.learn(now, registration);
        Ok(())
    }

    /// The registration, if it holds now, is of our centre, and lets its holder take part.
    fn judge(&self, now: Now, registration: &Registration) -> Result<(), Dropped> {
        let fits = registration.realm == self.registration.realm && registration.rights.is_member(&self.group);
        let holds = registration.check(now.utc, self.config.floor).is_ok();
        if fits && holds && !self.revoked.contains(&registration.hash()) { Ok(()) } else { Err(Dropped::Policy) }
    }

    /// Whether somebody's transport has the channels that ours has; people are told if not.
    ///
    /// # Errors
    /// [`Dropped::Policy`].
    fn has_channels(&mut self, now: Monotonic, cert: CertHash, reliable: bool) -> Result<(), Dropped> {
        if reliable == self.config.reliable {
            return Ok(());
        }
        let told = self.channels_told.is_some_and(|(of, at)| of == cert && now.since(at) < TOLD_FOR);
        if !told {
            self.channels_told = Some((cert, now));
            self.notice(Notice::OtherChannels { cert, reliable });
        }
        Err(Dropped::Policy)
    }

    /// Tells people that somebody is not let in, for want of room; once in a while for each.
    fn tell_full(&mut self, now: Monotonic, cert: CertHash, is_us: bool) {
        if self.full_told.is_none_or(|(of, at)| of != cert || now.since(at) >= TOLD_FOR) {
            self.full_told = Some((cert, now));
            self.notice(Notice::GroupFull { cert, is_us, most: self.members_max() });
        }
    }

    /// Tells people that somebody used another one's token. Anybody who hears the group can do that for each newcomer, so it is
    /// told once in a while, of all newcomers together.
    fn tell_stolen(&mut self, now: Monotonic, cert: CertHash) {
        if self.stolen_told.is_none_or(|at| now.since(at) >= TOLD_FOR) {
            self.stolen_told = Some(now);
            self.notice(Notice::StolenToken { cert });
        }
    }

    fn may_lead(&self, cert: &CertHash) -> bool {
        self.people.get(cert).is_some_and(|it| it.registration.rights.may_lead(&self.group))
    }

    fn is_in_view(&self, cert: &CertHash) -> bool {
        self.installed.as_ref().is_some_and(|it| it.members.find(cert).is_some())
    }

    fn view_size(&self) -> usize {
        self.installed.as_ref().map_or(0, |it| it.slots.len())
    }

    fn epoch(&self) -> EpochId {
        self.installed.as_ref().map_or(EpochId::default(), |it| it.epoch)
    }

    /// Who leads our view.
    fn leader(&self) -> Option<MemberId> {
        self.installed.as_ref().map(|it| it.slots[0])
    }

    /// Who in our view may lead and need not go, in the order in which they stand by; the leader first.
    fn line(&self) -> impl Iterator<Item = &MemberId> {
        let slots = self.installed.iter().flat_map(|it| &it.slots);
        slots.filter(|it| !self.going.contains_key(&it.cert) && self.may_lead(&it.cert))
    }

    /// Whether we lead, or have to lead on.
    fn is_leading(&self) -> bool {
        self.phase == Phase::Running && self.line().next() == Some(&self.me)
    }

    /// Whether nobody is left in our view who may lead it.
    fn is_orphaned(&self) -> bool {
        self.installed.is_some() && self.line().next().is_none()
    }

    /// We are out for good: nothing is sent or taken any more.
    fn exclude(&mut self, why: Exclusion) {
        if self.phase != Phase::Out {
            self.phase = Phase::Out;
            (self.follows, self.gathers, self.courts) = (None, None, None);
            self.leads.clear();
            self.queries.retain(|_| false);
            self.timers = Timers::default();
            self.outputs.push_back(Output::Excluded { why });
        }
    }

    fn receive(&mut self, now: Now, from: Option<Address>, bytes: &[u8]) -> Result<(), HandleError> {
        if bytes.starts_with(&query::MAGIC) {
            let news = self.queries.answered(now.monotonic, &self.config.principal.long_term, bytes)?;
            self.on_news(now, news);
            return Ok(());
        }
        let bytes = self.bootstrap_key.open(bytes).map_err(|why| match why {
            BootstrapError::Foreign => Dropped::Foreign,
            BootstrapError::Auth => Dropped::Auth,
        })?;
        let known = |hash: &CertHash| self.people.get(hash).map(|it| it.registration.clone());
        match Message::decode_knowing(&bytes, &known)? {
            Message::Join(m) => Ok(self.on_join(now, from, &m)?),
            Message::Challenge(m) => Ok(self.on_challenge(now, from, m)?),
            Message::Accept(m) => Ok(self.on_accept(now, from, &m)?),
            Message::Propose(m) => Ok(self.on_propose(now, from, m)?),
            Message::Ack(m) => Ok(self.on_ack(now, from, m)?),
            Message::Commit(m) => self.on_commit(now, &m),
            Message::Beacon(m) => Ok(self.on_beacon(now, &m)?),
            Message::Wish(m) => Ok(self.on_wish(now, &m)?),
            Message::Dismiss(m) => Ok(self.on_dismiss(&m)?),
            Message::Roster(m) => Ok(self.on_roster(now, m)?),
            Message::Lack(m) => Ok(self.on_lack(now, from, &m)?),
            Message::Want(list) => Ok(self.on_want(now, from, &list)?),
            Message::Give(_) if !self.wants_any() => Ok(()),
            Message::Give(list) => {
                for it in list.iter().filter(|it| self.is_wanted(&it.hash())).cloned().collect::<Vec<_>>() {
                    self.learn(now.monotonic, &it);
                }
                self.go_on(now);
                Ok(())
            }
        }
    }

    /// What the centre said.
    fn on_news(&mut self, now: Now, news: News) {
        match news {
            News::Pair { with, salt, sigma } => self.on_pair(now, with, salt, sigma),
            News::Revoked { number, list } => {
                if number < self.number {
                    // It has lost some, or is a stand-by that lacked them: all over again.
                    self.number = 0;
                    self.notice(Notice::StaleCrl);
                    return;
                }
                let last = list.last().map_or(number, |(last, _)| *last);
                for (_, cert) in list {
                    self.revoke(now, cert);
                }
                self.number = self.number.max(last);
                if last < number {
                    self.ask(now, Query::News(last));
                }
            }
            News::Done { ask: Query::Check(cert), .. } => {
                self.good.retain(|_, at| now.monotonic.since(*at) < GOOD_FOR);
                if self.good.len() < limits::REMEMBERED_PEOPLE_MAX {
                    self.good.insert(cert, now.monotonic);
                }
                self.take_challenge(now);
            }
            News::Done { ask: Query::Revoke(cert, reason), number } => {
                let by = self.registration.name.to_string();
                self.notice(Notice::Eviction { cert, number, reason, by });
                self.wish(WishKind::News);
                self.revoke(now, cert);
            }
            News::Done { .. } => {}
            News::Stale => {
                if self.stale_told.is_none_or(|at| now.monotonic.since(at) >= STALE_TOLD_EVERY) {
                    self.stale_told = Some(now.monotonic);
                    self.notice(Notice::KdcRefuses(Refusal::Stale));
                }
            }
            News::Excluded => self.exclude(Exclusion::Revoked),
            News::Refused { ask: Query::Pair(cert) | Query::Check(cert), why } => {
                if why == Refusal::Revoked {
                    self.revoke(now, cert);
                }
                self.courts.take_if(|it| it.leader.cert == cert);
                self.leads.refused(now.monotonic, cert);
            }
            News::Refused { ask: Query::News(_), .. } => {}
            // The command was judged by our own registration: the centre knows better.
            News::Refused { ask: Query::Revoke(..), why } => self.notice(Notice::KdcRefuses(why)),
        }
    }

    /// The centre says that somebody is revoked.
    fn revoke(&mut self, now: Now, cert: CertHash) {
        if self.revoked.len() < limits::EVICTIONS_MAX || self.is_in_view(&cert) {
            self.revoked.insert(cert);
        }
        #[cfg(any(test, feature = "misbehaving"))]
        if self.lacks(misbehaving::Rule::Revocations) {
            self.revoked.clear();
        }
        self.leads.forget(&cert, &mut self.rng);
        self.drop_proposal_of(now, &cert);
        self.pairs.forget(&cert);
        self.follows.take_if(|it| it.content.leader.cert == cert);
        self.gathers.take_if(|it| it.propose.leader.cert == cert);
        self.good.remove(&cert);
        self.courts.take_if(|it| it.leader.cert == cert);
        if cert == self.me.cert {
            return self.exclude(Exclusion::Revoked);
        }
        if self.is_in_view(&cert) {
            self.goes(now, cert, Gone::Revoked);
        }
    }

    /// A member of our view has to go.
    fn goes(&mut self, now: Now, cert: CertHash, why: Gone) {
        let before = self.going.get(&cert).copied();
        if cert == self.me.cert || !self.is_in_view(&cert) || before.is_some_and(|it| it >= why) {
            return;
        }
        self.going.insert(cert, why);
        // Who is silent is the leader's to judge: publishers would wait for a change that does not come.
        if why != Gone::Silent || self.is_leading() {
            self.prepare_removal();
        }
        self.plan(now, Duration::ZERO);
        if self.is_orphaned() {
            // Those of a small group ask at once, those of a large one not all at the same time.
            let all = spread(JOIN_RETRY, self.view_size()).saturating_sub(JOIN_RETRY);
            let wait = jitter(&mut self.rng, all);
            self.timers.sooner(Timer::Join, now.monotonic + wait);
        }
        self.follow_late(now);
    }

    fn ask(&mut self, now: Now, ask: Query) -> bool {
        let asked = self.queries.ask(now.monotonic, ask, &mut self.rng);
        self.ask_due(now);
        asked
    }

    fn ask_due(&mut self, now: Now) {
        let due = self.queries.due(now.monotonic, &self.config.principal.long_term, &mut self.rng);
        due.into_iter().for_each(|(to, bytes)| self.transmit(To::Peer(to), bytes));
        match self.queries.timeout() {
            Some(at) => self.timers.set(Timer::Query, at),
            None => self.timers.stop(Timer::Query),
        }
    }

    /// Once a second: leaders and stand-bys ask who is revoked, and whose registration has ended goes.
    fn look_around(&mut self, now: Now) {
        self.timers.set(Timer::News, now.monotonic + limits::KDC_NEWS_EVERY);
        if self.registration.check(now.utc, self.config.floor).is_err() {
            return self.exclude(Exclusion::Revoked);
        }
        let over: Vec<CertHash> = self.installed.iter().flat_map(|it| &it.slots).map(|it| it.cert).collect();
        for cert in over {
            let known = self.people.get(&cert).map(|it| it.registration.clone());
            if known.is_some_and(|it| it.check(now.utc, self.config.floor).is_err()) {
                self.goes(now, cert, Gone::Revoked);
            }
        }
        let stands_by = self.line().take(1 + STAND_BYS).any(|it| *it == self.me);
        if stands_by {
            // One that is under way is answered yet.
            let number = self.number;
            self.queries.retain(|it| !matches!(it, Query::News(since) if *since != number));
            self.news_asked = Some(now.monotonic);
            self.ask(now, Query::News(number));
            let slots = self.installed.as_ref().map(|it| it.slots.clone()).unwrap_or_default();
            self.fetch_keys(now, &slots);
        } else if let Some(leader) = self.leader() {
            // Others learn it from the leader, unless it is the leader itself.
            self.looks += 1;
            let slot =
                self.installed.as_ref().and_then(|it| it.members.find(&self.me.cert)).map_or(0, |(slot, _)| slot.0);
            #[cfg(any(test, feature = "misbehaving"))]
            if self.lacks(misbehaving::Rule::Check) {
                return;
            }
            if (self.looks + slot).is_multiple_of(LEADER_CHECKED_EVERY) {
                self.ask(now, Query::Check(leader.cert));
            }
        }
    }

    fn command(&mut self, now: Now, command: Command) -> Result<(), CommandError> {
        if self.phase != Phase::Running {
            return Err(CommandError::NotReady);
        }
        match command {
            Command::Rotate if self.installed.is_none() => Err(CommandError::NotReady),
            Command::Rotate => {
                self.leads.rotate |= self.is_leading();
                self.rotating = Some((self.epoch(), ROTATE_TRIES));
                self.rotate(now);
                self.plan(now, Duration::ZERO);
                Ok(())
            }
            Command::Evict { cert, reason } => {
                let whom = self.people.get(&cert).ok_or(CommandError::NoSuchMember)?;
                if !self.registration.rights.may_evict(&self.group, &whom.registration.rights) {
                    return Err(CommandError::Denied("evict"));
                }
                if reason.len() > limits::REASON_BYTES_MAX {
                    return Err(CommandError::Invalid);
                }
                if self.ask(now, Query::Revoke(cert, reason)) { Ok(()) } else { Err(CommandError::NotReady) }
            }
            Command::Leave => {
                self.phase = Phase::Leaving;
                self.leave(now);
                Ok(())
            }
            // Rights and revocations are the centre's alone.
            Command::Learn(_) | Command::Admit { .. } => Err(CommandError::Unsupported),
            Command::Batch(all) => all.into_iter().try_for_each(|it| self.command(now, it)),
        }
    }

    /// Says that we leave, a few times, unless we are alone.
    fn leave(&mut self, now: Now) {
        self.leave_tries += 1;
        if self.leave_tries > LEAVE_TRIES || self.view_size() < 2 {
            return self.exclude(Exclusion::Left);
        }
        self.wish(WishKind::Leave);
        self.timers.set(Timer::Leave, now.monotonic + LEAVE_AGAIN);
    }

    /// Asks for a new key, a few times, until there is one.
    fn rotate(&mut self, now: Now) {
        let current = self.epoch();
        self.rotating.take_if(|(epoch, left)| *left == 0 || *epoch != current);
        let Some((_, left)) = &mut self.rotating else { return };
        *left -= 1;
        self.wish(WishKind::Rotate);
        self.timers.set(Timer::Rotate, now.monotonic + ROTATE_AGAIN);
    }

    /// Asks our leader for something; who leads tells all others that it leaves.
    fn wish(&mut self, what: WishKind) {
        let Some(leader) = self.leader() else { return };
        let others: Vec<MemberId> = match (&self.installed, what) {
            (Some(it), WishKind::Leave) if leader == self.me => it.slots[1..].to_vec(),
            _ if leader == self.me => Vec::new(),
            _ => vec![leader],
        };
        // What is said again may not have come where it went; or it came, and the answer did not.
        let again = self.leave_tries > ALONE_TRIES;
        for to in others {
            let mut wish = Wish { from: self.me, to, epoch: self.epoch(), what, tag: [0; 16] };
            let Some(key) = self.shared_with(&to) else { continue };
            wish.tag = key.wish(&wish);
            let address = self.addresses.get(&to).copied().filter(|_| what == WishKind::Leave && !again);
            self.send_to(address, &Message::Wish(wish));
        }
    }

    fn status(&self, now: Now) -> Status {
        let installed = self.installed.as_ref();
        let age = installed.map_or(Duration::ZERO, |it| now.monotonic.since(it.at));
        let member = |(id, since): (&MemberId, &u32)| {
            let registration = &self.people.get(&id.cert)?.registration;
            Some(MemberStatus {
                id: *id,
                name: registration.name.to_string(),
                serial: Serial::new(&registration.serial.to_be_bytes()).ok()?,
                key: registration.key.clone(),
                sealing: None,
                exchanges: registration.exchange.is_some(),
                rights: registration.rights.clone(),
                attributes: Vec::new(),
                not_after: registration.not_after,
                since: *since,
            })
        };
        let members = installed.map_or(Vec::new(), |it| it.slots.iter().zip(&it.since).filter_map(member).collect());
        let compartments = installed.map_or(Vec::new(), |it| it.table.status());
        let rotates_in = Some(self.config.rekey_after.saturating_sub(age));
        Status { members, compartments, rotates_in, ..Status::default() }
    }
}

impl Keys for Center {
    fn properties(&self) -> Properties {
        PROPERTIES
    }

    fn handle(&mut self, now: Now, input: Input<'_>) -> Result<(), HandleError> {
        match input {
            Input::Message { source, bytes, .. } => {
                if self.phase == Phase::Out || matches!(source, Source::Inside { .. }) {
                    return Err(Dropped::Stale.into());
                }
                let from = if let Source::Outside(from) = source { Some(*from) } else { None };
                let result = self.receive(now, from, bytes);
                if let Err(HandleError::Dropped(why)) = result {
                    self.drops.count(why);
                }
                result
            }
            Input::Command(command) => Ok(self.command(now, command)?),
            Input::Suspected(slot) => {
                let who = self.installed.as_ref().and_then(|it| it.slots.get(slot.index()).copied());
                if let Some(who) = who.filter(|_| self.phase == Phase::Running) {
                    self.goes(now, who.cert, Gone::Silent);
                }
                Ok(())
            }
            Input::Slow(cert) => {
                self.leads.defer(cert, now.monotonic);
                Ok(())
            }
            Input::Flushed(epoch, cut) => {
                if epoch == self.flushing {
                    self.flushed(now, cut);
                }
                Ok(())
            }
            Input::Describe => {
                let status = self.status(now);
                self.outputs.push_back(Output::Described(Box::new(status)));
                Ok(())
            }
            // Messages are said again until they are answered, datagrams are sealed, and nothing is fetched.
            Input::Up
            | Input::Outcome(..)
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
        self.timers.next()
    }

    fn handle_timeout(&mut self, now: Now) {
        while let Some(timer) = self.timers.take_due(now.monotonic) {
            match timer {
                Timer::Join => self.join_again(now),
                Timer::Form => self.form(now),
                Timer::Propose => self.propose(now),
                Timer::Resend => self.resend(now),
                Timer::Ack => self.ack_again(now),
                Timer::Gather => self.gather_again(now),
                Timer::Flush => self.flushed(now, [0; 32]),
                Timer::Query => self.ask_due(now),
                Timer::News => self.look_around(now),
                Timer::Beacon => self.beacon(now),
                Timer::Sign => self.sign_late(now),
                Timer::Rekey => {
                    self.leads.rotate |= self.is_leading();
                    self.plan(now, Duration::ZERO);
                }
                Timer::Rotate => self.rotate(now),
                Timer::Leave => self.leave(now),
            }
        }
    }

    fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }
}

/// Members next in line that hold pair keys with all others (C2).
const STAND_BYS: usize = 2;
/// Who may lead, and hears nobody who does, forms a group after so long, or half as long again.
const FORM: Duration = Duration::from_millis(120);
/// The first wait between two JOINs, and the longest.
const JOIN_RETRY: Duration = Duration::from_millis(50);
const JOIN_RETRY_MAX: Duration = Duration::from_secs(1);
/// The centre is asked who is revoked so often: no leader goes on with a revoked member for much longer (C1).
/// People are told of a stale stand-by this often, however often it answers.
const STALE_TOLD_EVERY: Duration = Duration::from_secs(60);
/// Members that do not stand by look so seldom, in times that they look around, whether their leader is revoked, or they are.
const LEADER_CHECKED_EVERY: u32 = 5;
/// For so long the centre's word that a leader is good counts.
const GOOD_FOR: Duration = Duration::from_secs(10);
/// The part of the registrations that nothing needs that is forgotten at once.
const FORGOTTEN_PART: usize = 16;
/// People are told once in so long that somebody has other channels, finds the group full, or used a stolen token.
const TOLD_FOR: Duration = Duration::from_secs(60);
/// So often a leave is said to whom it concerns alone; later to all, among whom that one is.
const ALONE_TRIES: u32 = 2;
/// A leave is said so often, with so long between.
const LEAVE_TRIES: u32 = 8;
const LEAVE_AGAIN: Duration = Duration::from_millis(60);
/// A new key is asked for so often, with so long between.
const ROTATE_TRIES: u32 = 8;
const ROTATE_AGAIN: Duration = Duration::from_millis(250);
