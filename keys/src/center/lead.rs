//! A leader's side: letting in, proposing, handing out.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rand_chacha::ChaCha20Rng;
use sealcast_crypto::identity::Registration;
use sealcast_crypto::leighton_micali::{Forged, PairSecret, tag};
use sealcast_crypto::secret::Secret;
use sealcast_wire::{
    Address, CertHash, Change, Dropped, EpochId, Flush, MemberId, Monotonic, Now, Roster, Slot, View, limits,
};

use super::epoch::{Drawn, draw, make, places};
use super::follow::{AHEAD_MAX, COUNTER_MAX};
use super::message::{
    Accept, Ack, Beacon, Challenge, Commit, Content, Dismiss, Gone, Join, Lack, Message, PART_SLOTS, Part, Propose,
    Tag, Wish, WishKind,
};
use super::pair::PairKey;
use super::query::Query;
use super::refused::Refused;
use super::{Center, JOIN_RETRY, Phase, STAND_BYS, Timer};
use crate::allowance::Allowances;
use crate::timers::jitter;
use crate::{Notice, Output};

/// What a leader keeps, or a stand-by, or who was one.
pub(super) struct Leads {
    sigmas: BTreeMap<CertHash, Sigma>,
    pub(super) applicants: BTreeMap<MemberId, Applicant>,
    proposed: Option<Proposed>,
    /// The change that made our epoch: answers those who missed it.
    committed: Option<Committed>,
    /// Whom we dismissed, why, and how often they are told again.
    dismissed: BTreeMap<MemberId, (Gone, u32)>,
    /// Makes tokens, and dies at a revocation (C1).
    token_key: Secret<32>,
    /// Applicants that there were: each one's token is its own, and of no use once it was let in.
    applied: u64,
    /// Counts up in our run, so that none of ours is taken for a later one.
    attempt: u32,
    /// Proposals in a row whose members did not say alike how their view ended.
    disagreed: u32,
    disagreed_since: Option<Monotonic>,
    /// How often each principal was let in, and asked for a new key.
    joins: Allowances,
    rekeys: Allowances,
    /// When we last said to a newcomer that our group is here, and whom nobody answered yet.
    signed: Option<Monotonic>,
    unanswered: Option<MemberId>,
    /// A new key is wanted, whoever is in.
    pub(super) rotate: bool,
    /// Who is not let in for a while.
    refused: Refused,
    /// Registrations that were given since then: to one address each, or to all.
    given: BTreeMap<Option<Address>, BTreeSet<CertHash>>,
    given_since: Monotonic,
    /// Since when a key is missing that a proposal needs.
    lacks_since: Option<Monotonic>,
}

/// A pair key for us to talk to somebody.
struct Sigma {
    salt: [u8; 16],
    secret: PairSecret,
}

/// Somebody who asked to be let in.
pub(super) struct Applicant {
    who: MemberId,
    number: u64,
    /// It showed that it holds the key.
    accepted: bool,
    epoch: EpochId,
    size: u16,
    challenged: Option<Monotonic>,
    at: Monotonic,
    /// Where it last asked from: anybody can ask in its name.
    asked_from: Option<Address>,
    /// Where it accepted from.
    address: Option<Address>,
}

struct Proposed {
    id: [u8; 32],
    content: Content,
    /// As it is said; the parts of its roster that were said, signed.
    said: Propose,
    parts: BTreeMap<u16, Part>,
    /// When each slot was given parts that it lacked.
    lacked: BTreeMap<usize, Monotonic>,
    drawn: Drawn,
    /// By slot; none for ours.
    keys: Vec<Option<PairKey>>,
    acks: Vec<Option<Ack>>,
    /// How many of them have not come.
    waits_for: usize,
    /// Where each acknowledgement came from.
    addresses: Vec<Option<Address>>,
    since: Monotonic,
    /// When somebody acknowledged last who had not before.
    heard: Monotonic,
    timeout: Duration,
    /// The same for newcomers, who have no view to end; and which slots they are.
    newcomer_timeout: Duration,
    newcomers: Vec<bool>,
    wait: Duration,
}

impl Proposed {
    /// Whether those who have not answered are taken for silent. As long as others still answer, it is the leader or the
    /// network that is slow; but not for ever.
    fn is_over(&self, now: Monotonic) -> bool {
        let is_missing = |at: &usize| *at > 0 && self.acks[*at].is_none();
        let only_newcomers = (0..self.acks.len()).filter(is_missing).all(|at| self.newcomers[at]);
        let timeout = if only_newcomers { self.newcomer_timeout } else { self.timeout };
        now.since(self.heard) >= timeout || now.since(self.since) >= timeout * TIMEOUTS_MAX
    }
}

struct Committed {
    id: [u8; 32],
    commit: Commit,
    entries: Vec<(u16, Vec<u8>)>,
}

impl Leads {
    pub(super) fn new(rng: &mut ChaCha20Rng) -> Leads {
        Leads {
            sigmas: BTreeMap::new(),
            applicants: BTreeMap::new(),
            proposed: None,
            committed: None,
            dismissed: BTreeMap::new(),
            token_key: Secret::random(rng),
            applied: 0,
            attempt: 0,
            disagreed: 0,
            disagreed_since: None,
            joins: Allowances::new(limits::JOINS_AT_ONCE, limits::JOIN_EVERY),
            rekeys: Allowances::new(limits::REKEYS_AT_ONCE, limits::REKEY_EVERY),
            signed: None,
            unanswered: None,
            rotate: false,
            refused: Refused::default(),
            given: BTreeMap::new(),
            given_since: Monotonic(0),
            lacks_since: None,
        }
    }

    /// Forgets all secrets.
    pub(super) fn clear(&mut self) {
        self.sigmas.clear();
        self.applicants.clear();
        (self.proposed, self.committed) = (None, None);
    }

    /// Another one leads: what we proposed comes to nothing.
    pub(super) fn give_up(&mut self) {
        self.proposed = None;
        self.lacks_since = None;
    }

    /// Somebody is revoked: its key and all tokens are void.
    pub(super) fn forget(&mut self, cert: &CertHash, rng: &mut ChaCha20Rng) {
        self.applicants.retain(|who, _| who.cert != *cert);
        self.token_key = Secret::random(rng);
    }

    /// Somebody was left out since all waited for it.
    pub(super) fn defer(&mut self, cert: CertHash, now: Monotonic) {
        self.joins.defer(cert, now, limits::SLOW_OUT);
    }

    /// The centre gives no key for somebody.
    pub(super) fn refused(&mut self, now: Monotonic, cert: CertHash) {
        self.applicants.retain(|who, _| who.cert != cert);
        self.refused.no_key(now, cert);
    }

    /// An epoch is in use.
    pub(super) fn entered(&mut self, content: &Content, me: MemberId) {
        let is_in = |who: &MemberId| content.slots.contains(who);
        self.applicants.retain(|_, it| !is_in(&it.who));
        (self.proposed, self.lacks_since) = (None, None);
        self.rotate = false;
        (self.disagreed, self.disagreed_since) = (0, None);
        if content.leader != me {
            (self.committed, self.applicants) = (None, BTreeMap::new());
            self.dismissed.clear();
        }
        let applies = |cert: &CertHash| self.applicants.keys().any(|who| who.cert == *cert);
        while self.sigmas.len() > limits::PAIR_KEYS_MAX {
            let spare = |cert: &&CertHash| !applies(cert) && content.slots.iter().all(|it| it.cert != **cert);
            let Some(cert) = self.sigmas.keys().find(spare).copied() else { return };
            self.sigmas.remove(&cert);
        }
    }

    /// Who is in a proposal of ours.
    pub(super) fn proposed_slots(&self) -> &[MemberId] {
        self.proposed.as_ref().map_or(&[], |it| &it.content.slots)
    }

    /// The key that we, leading, share with a member.
    pub(super) fn key_with(&self, group: &str, me: &MemberId, member: &MemberId) -> Option<PairKey> {
        let sigma = self.sigmas.get(&member.cert)?;
        Some(PairKey::new(group, &sigma.secret, me, member))
    }

    /// The salt of that key.
    #[cfg(test)]
    pub(super) fn salt_with(&self, member: &CertHash) -> Option<[u8; 16]> {
        self.sigmas.get(member).map(|it| it.salt)
    }

    /// The token of an applicant.
    fn token(&self, of: &MemberId) -> Option<Tag> {
        let it = self.applicants.get(of)?;
        let about = [&of.cert.0[..], &of.incarnation.0, &it.number.to_be_bytes()];
        let made = tag(&self.token_key, "sealcast/v1/center/token", &about);
        Some(*made.first_chunk().expect("a tag has 32 bytes"))
    }
}

impl Center {
    /// Somebody asks to be let in.
    pub(super) fn on_join(&mut self, now: Now, from: Option<Address>, m: &Join) -> Result<(), Dropped> {
        let who = MemberId { cert: m.registration.hash(), incarnation: m.run };
        if who.cert == self.me.cert {
            return Err(Dropped::Stale);
        }
        self.judge(now, &m.registration)?;
        self.learn_unproved(now.monotonic, &m.registration)?;
        self.has_channels(now.monotonic, who.cert, m.reliable)?;
        if m.epoch != EpochId::default() {
            self.hear(who);
        }
        if !self.is_leading() || self.installed.is_none() {
            self.notice_other(now, &m.registration, m.epoch);
            self.sign(now, &who, &m.registration);
            return Ok(());
        }
        let is_in = self.installed.as_ref().is_some_and(|it| it.slots.contains(&who) && it.epoch == m.epoch);
        if is_in || self.leads.refused.holds(now.monotonic, &who.cert) {
            return Err(Dropped::Stale);
        }
        self.leads.applicants.retain(|_, it| now.monotonic.since(it.at) < APPLIES_FOR);
        if !self.leads.applicants.contains_key(&who) {
            // Anybody can ask in another's name: a few runs of each may show which one holds the key.
            let of_cert = |it: &&Applicant| it.who.cert == who.cert && !it.accepted;
            let runs: Vec<(Monotonic, MemberId)> =
                self.leads.applicants.values().filter(of_cert).map(|it| (it.at, it.who)).collect();
            if runs.len() >= limits::RUNS_PER_CERTIFICATE_MAX {
                runs.iter().min().map(|(_, oldest)| self.leads.applicants.remove(oldest));
            }
            if self.leads.applicants.len() >= limits::APPLICANTS_MAX {
                return Err(Dropped::Rate);
            }
            let (epoch, size, at) = (m.epoch, m.size, now.monotonic);
            self.leads.applied += 1;
            let number = self.leads.applied;
            let new = Applicant {
                who,
                number,
                accepted: false,
                epoch,
                size,
                challenged: None,
                at,
                asked_from: None,
                address: None,
            };
            self.leads.applicants.insert(who, new);
        }
        if let Some(applicant) = self.leads.applicants.get_mut(&who) {
            applicant.asked_from = from;
        }
        match self.leads.sigmas.contains_key(&who.cert) {
            true => self.challenge(now, who, (m.epoch, m.size)),
            false => {
                self.ask(now, Query::Pair(who.cert));
                self.sign(now, &who, &m.registration);
            }
        }
        Ok(())
    }

    /// Says to a newcomer that may lead that a group is here, so that it forms no other one while ours cannot let it in: at
    /// once, if we stand by, and else in a while, if nobody else does.
    fn sign(&mut self, now: Now, to: &MemberId, registration: &Registration) {
        let forms = registration.rights.may_lead(&self.group);
        if !forms || self.view_size() < 2 || self.installed.as_ref().is_some_and(|it| it.slots.contains(to)) {
            return;
        }
        if self.line().take(1 + STAND_BYS).any(|it| *it == self.me) {
            return self.say_here(now);
        }
        let wait = SIGN_LATE + jitter(&mut self.rng, SIGN_LATE * 2);
        self.leads.unanswered = Some(*to);
        self.timers.sooner(Timer::Sign, now.monotonic + wait);
    }

    /// Nobody else said so, and the newcomer was not let in.
    pub(super) fn sign_late(&mut self, now: Now) {
        let is_outside = |it: &MemberId| !self.installed.as_ref().is_some_and(|installed| installed.slots.contains(it));
        if self.leads.unanswered.take().is_some_and(|it| is_outside(&it)) && self.view_size() > 1 {
            self.say_here(now);
        }
    }

    fn say_here(&mut self, now: Now) {
        if self.leads.signed.is_none_or(|at| now.monotonic.since(at) >= SIGN_SPACING) {
            self.leads.signed = Some(now.monotonic);
            let (registration, run) = (self.registration.clone(), self.me.incarnation);
            let reliable = self.config.reliable;
            self.send(&Message::Beacon(Beacon { registration, run, epoch: self.epoch(), size: 0, reliable }));
        }
    }

    /// The centre gave us a key to talk to somebody.
    pub(super) fn on_pair(&mut self, now: Now, with: CertHash, salt: [u8; 16], sigma: PairSecret) {
        // Where we have an X25519 key, the other one's registration says whether it has. Without that we ask again.
        let known = self.people.get(&with).map(|it| it.registration.clone());
        let mixed = match (self.registration.exchange, known) {
            (None, _) => Some(sigma),
            (Some(_), known) => known.and_then(|it| self.config.principal.mixed(&sigma, &it)),
        };
        let Some(secret) = mixed else { return };
        self.leads.sigmas.entry(with).or_insert(Sigma { salt, secret });
        let waits = self.leads.applicants.values().filter(|it| it.who.cert == with && !it.accepted);
        let waits: Vec<_> = waits.map(|it| (it.who, (it.epoch, it.size))).collect();
        waits.into_iter().for_each(|(who, place)| self.challenge(now, who, place));
        self.plan(now, Duration::ZERO);
        self.take_keys(now);
    }

    fn challenge(&mut self, now: Now, to: MemberId, (epoch, size): (EpochId, u16)) {
        let Some(token) = self.leads.token(&to) else { return };
        let Some(key) = self.leads.key_with(&self.group, &self.me, &to) else { return };
        let Some(sigma) = self.leads.sigmas.get(&to.cert) else { return };
        let (registration, run, salt) = (self.registration.clone(), self.me.incarnation, sigma.salt);
        let mut address = None;
        if let Some(it) = self.leads.applicants.get_mut(&to) {
            (it.epoch, it.size, it.at) = (epoch, size, now.monotonic);
            if it.challenged.is_some_and(|at| now.monotonic.since(at) < CHALLENGE_SPACING) {
                return;
            }
            // Who asks again may not have heard it there.
            address = it.asked_from.filter(|_| it.challenged.is_none());
            it.challenged = Some(now.monotonic);
        }
        let mut challenge = Challenge { to, registration, run, salt, token, tag: [0; 16] };
        challenge.tag = key.challenge(&challenge);
        self.send_to(address, &Message::Challenge(challenge));
    }

    /// An applicant showed that it holds the key, and is there.
    pub(super) fn on_accept(&mut self, now: Now, from: Option<Address>, m: &Accept) -> Result<(), Dropped> {
        if m.to != self.me || !self.is_leading() || self.installed.is_none() {
            return Err(Dropped::Stale);
        }
        let key = self.leads.key_with(&self.group, &self.me, &m.from).ok_or(Dropped::Stale)?;
        // Equal tokens say no more than that the message is worth a look: its tag decides.
        if self.leads.token(&m.from) != Some(m.token) {
            return Err(Dropped::Stale);
        }
        if let Err(why) = self.authentic(key.check_accept(m)) {
            self.tell_stolen(now.monotonic, m.from.cert);
            return Err(why);
        }
        let registration = self.people.get(&m.from.cert).map(|it| it.registration.clone()).ok_or(Dropped::Stale)?;
        self.judge(now, &registration)?;
        // Numbers ascend for everybody; nobody makes ours run out (research: LAN attacks, L1).
        if m.epoch.counter > self.epoch().counter.saturating_add(AHEAD_MAX).min(COUNTER_MAX - 1) {
            return Err(Dropped::Policy);
        }
        // A member that is where we are needs no letting in, whoever asked in its name.
        let is_in = self.installed.as_ref().is_some_and(|it| it.slots.contains(&m.from) && it.epoch == m.epoch);
        if is_in {
            self.leads.applicants.remove(&m.from);
            return Err(Dropped::Stale);
        }
        let Some(applicant) = self.leads.applicants.get_mut(&m.from) else { return Err(Dropped::Stale) };
        // Each costs all members a change of key, or two.
        if !applicant.accepted && !self.leads.joins.take(m.from.cert, now.monotonic) {
            return Err(Dropped::Rate);
        }
        (applicant.accepted, applicant.epoch, applicant.at) = (true, m.epoch, now.monotonic);
        applicant.address = applicant.address.or(from);
        let size = applicant.size;
        self.leads.applicants.retain(|who, _| who.cert != m.from.cert || *who == m.from);
        // All of another part come together, if they can.
        self.plan(now, if size >= 2 { GATHER_PART } else { GATHER });
        Ok(())
    }

    /// Whether a tag is its author's.
    fn authentic(&self, checked: Result<(), Forged>) -> Result<(), Dropped> {
        #[cfg(any(test, feature = "misbehaving"))]
        if self.lacks(super::misbehaving::Rule::Tags) {
            return Ok(());
        }
        checked.map_err(|_| Dropped::Auth)
    }

    /// Sees to it that what there is to change is proposed.
    pub(super) fn plan(&mut self, now: Now, wait: Duration) {
        // A member that is ready for another's change waits for that.
        let waits = self.follows.as_ref().is_some_and(|it| !self.going.contains_key(&it.content.leader.cert));
        if !self.is_leading() || self.installed.is_none() || !self.has_work() || waits {
            return;
        }
        // A proposal that names somebody who has to go comes to nothing; but a member that fell silent may ask to be let in.
        let applies = |who: &MemberId| self.leads.applicants.get(who).is_some_and(|it| it.accepted);
        let goes = |it: &MemberId| match self.going.get(&it.cert) {
            Some(Gone::Silent) => !applies(it),
            Some(_) => true,
            None => false,
        };
        let runs = self.leads.proposed.as_ref().is_some_and(|it| !it.content.slots.iter().any(goes));
        if !runs {
            self.timers.sooner(Timer::Propose, now.monotonic + wait);
        }
    }

    fn has_work(&self) -> bool {
        let leads_already = self.leader() == Some(self.me);
        self.leads.rotate
            || !leads_already
            || !self.going.is_empty()
            || self.leads.applicants.values().any(|it| it.accepted)
    }

    /// Nobody leads a group that we could come to: forms one, of us alone.
    pub(super) fn form(&mut self, now: Now) {
        if self.installed.is_some() || self.phase != Phase::Running || self.leads.proposed.is_some() {
            return;
        }
        let recent = self.last_sign.is_some_and(|at| now.monotonic.since(at) < SIGN_FOR);
        // A sign proves nothing: it keeps nobody waiting for long.
        let recent = recent && now.monotonic.since(self.started) < self.config.detect * SIGNS_HOLD_DETECTS;
        if recent || self.courts.is_some() || self.follows.is_some() {
            let wait = SIGN_FOR + jitter(&mut self.rng, SIGN_FOR / 4);
            self.courts.take_if(|_| !recent);
            // Whoever is there is asked once more before that is over.
            self.join_wait = JOIN_RETRY;
            self.timers.sooner(Timer::Join, now.monotonic);
            return self.timers.set(Timer::Form, now.monotonic + wait);
        }
        let slots = vec![self.me];
        let (base, leader) = (EpochId::default(), self.me);
        self.leads.attempt += 1;
        let attempt = self.leads.attempt;
        let lock = [0; 32];
        self.begin(now, Content { leader, base, counter: 1, attempt, lock, gone: Vec::new(), slots }, false);
    }

    /// Proposes what there is to change.
    pub(super) fn propose(&mut self, now: Now) {
        let Some(installed) = self.installed.as_ref().filter(|_| self.is_leading() && self.has_work()) else { return };
        let accepted = |it: &&Applicant| it.accepted && !self.revoked.contains(&it.who.cert);
        let applicants: Vec<MemberId> = self.leads.applicants.values().filter(accepted).map(|it| it.who).collect();
        let stays = installed.slots.iter().filter(|it| !self.going.contains_key(&it.cert));
        // Another run of a member takes its place.
        let run_of = |it: &MemberId| applicants.iter().find(|new| new.cert == it.cert).copied().unwrap_or(*it);
        let mut slots: Vec<MemberId> = stays.map(run_of).filter(|it| *it != self.me).collect();
        let came: Vec<MemberId> = applicants.iter().filter(|it| !slots.contains(it)).copied().collect();
        slots.extend(came);
        slots.truncate(self.members_max() - 1);
        // For whom there is no room the group does not change; a beacon of its size says so.
        let out = applicants.into_iter().filter(|it| !slots.contains(it));
        let out: Vec<CertHash> = out.map(|it| it.cert).collect();
        self.leads.applicants.retain(|_, it| !it.accepted || slots.contains(&it.who));
        for cert in &out {
            self.tell_full(now.monotonic, *cert, false);
        }
        if !out.is_empty() && self.leads.signed.is_none_or(|at| now.monotonic.since(at) >= SIGN_SPACING) {
            self.leads.signed = Some(now.monotonic);
            self.beacon(now);
        }
        let Some(installed) = self.installed.as_ref() else { return };
        if !self.has_work() {
            return;
        }
        // Who may lead comes first, to stand by and to order.
        slots.sort_by_key(|it| !self.may_lead(&it.cert));
        let lacks: Vec<CertHash> =
            slots.iter().map(|it| it.cert).filter(|cert| !self.leads.sigmas.contains_key(cert)).collect();
        if !lacks.is_empty() {
            return self.fetch_missing(now, &lacks);
        }
        self.leads.lacks_since = None;
        let claims = self.leads.applicants.values().filter(|it| it.accepted).map(|it| it.epoch.counter);
        let last = claims.chain([installed.epoch.counter]).max().unwrap_or_default();
        let counter = (last + 1).min(COUNTER_MAX);
        let gone = (0..).zip(&installed.slots).filter(|(_, it)| !slots.contains(it) && **it != self.me);
        let why = |it: &MemberId| self.going.get(&it.cert).copied().unwrap_or(Gone::Replaced);
        let mut gone: Vec<(u16, Gone)> = gone.map(|(slot, it)| (slot, why(it))).collect();
        if gone.len() > limits::CENTER_REASONS_MAX {
            gone.retain(|(_, why)| *why != Gone::Silent);
            gone.truncate(limits::CENTER_REASONS_MAX);
        }
        let base = installed.epoch;
        self.leads.attempt += 1;
        let slots = [self.me].into_iter().chain(slots).collect();
        let (leader, attempt) = (self.me, self.leads.attempt);
        // A member of another group brings its own secrets: a merge is drawn afresh.
        let merges = self.leads.applicants.values().any(|it| it.accepted && it.epoch != EpochId::default());
        let one_way = !self.leads.rotate && !merges && self.leader() == Some(self.me);
        self.begin(now, Content { leader, base, counter, attempt, lock: [0; 32], gone, slots }, one_way);
    }

    /// How many members the group may have: as many as its reliable channel takes, if it has one. Each registration has a
    /// verification key, by which members of a large one show who said what of the order (A3).
    pub(super) fn members_max(&self) -> usize {
        if self.config.reliable { limits::ORDERED_MEMBERS_MAX } else { limits::CENTER_MEMBERS_MAX }
    }

    /// Keys that a proposal needs are asked for; who has none for long stays out.
    fn fetch_missing(&mut self, now: Now, lacks: &[CertHash]) {
        let since = *self.leads.lacks_since.get_or_insert(now.monotonic);
        if now.monotonic.since(since) >= LACKS_FOR {
            self.leads.lacks_since = None;
            for cert in lacks {
                self.leads.applicants.retain(|who, _| who.cert != *cert);
                self.goes(now, *cert, Gone::Silent);
            }
        } else {
            lacks.iter().for_each(|cert| _ = self.ask(now, Query::Pair(*cert)));
        }
        self.timers.sooner(Timer::Propose, now.monotonic + LACKS_AGAIN);
    }

    fn begin(&mut self, now: Now, mut content: Content, one_way: bool) {
        let Some(table) = self.table_of(&content) else {
            self.leads.rotate = true;
            return self.timers.sooner(Timer::Propose, now.monotonic + AGAIN);
        };
        let drawn = draw(self, &mut content, table, one_way);
        let id = content.id();
        let key = |it: &MemberId| self.leads.key_with(&self.group, &self.me, it).filter(|_| *it != self.me);
        let keys: Vec<Option<PairKey>> = content.slots.iter().map(key).collect();
        let (counter, attempt, members) = (content.counter, content.attempt, content.slots.len());
        self.notice(Notice::Attempt { counter, attempt, members });
        let takes_over = self.leader().is_some_and(|it| it != self.me);
        let (newcomer_timeout, timeout) = self.timeouts(members);
        let ends_none = |it: &MemberId| self.leads.applicants.get(it).is_some_and(|it| it.epoch == EpochId::default());
        let only_join: Vec<bool> = content.slots.iter().map(ends_none).collect();
        let timeout = timeout + if takes_over { self.config.detect } else { Duration::ZERO };
        let acks = vec![None; members];
        let (since, wait) = (now.monotonic, spread(RESEND, members));
        self.follows = None;
        let base = self.installed.as_ref().filter(|it| it.epoch == content.base).map(|it| &it.slots[..]);
        // Who has no key with us yet finds the salt beside its name.
        let said = content.say(base.filter(|_| !takes_over), &self.signer);
        let new = content.slots.iter().zip(places(&content.slots, base.unwrap_or_default()));
        let new = new.filter(|(it, place)| place.is_none() && **it != self.me);
        let newcomers: Vec<MemberId> = new.map(|(it, _)| *it).collect();
        let is_whole = said.came.is_none();
        self.leads.proposed = Some(Proposed {
            id,
            content: content.clone(),
            said: said.clone(),
            parts: BTreeMap::new(),
            lacked: BTreeMap::new(),
            drawn,
            keys,
            acks,
            waits_for: members - 1,
            addresses: vec![None; members],
            since,
            heard: since,
            timeout,
            newcomer_timeout,
            newcomers: only_join,
            wait,
        });
        self.timers.set(Timer::Resend, now.monotonic + wait);
        if members > 1 {
            self.send(&Message::Propose(said));
            self.introduce(&newcomers, is_whole);
        }
        self.prepare(now, &id, &content);
    }

    /// How long a change of so many waits for newcomers who say nothing, and for others: time to say it again to a large
    /// group; and, where there is an order, to end the view.
    fn timeouts(&self, members: usize) -> (Duration, Duration) {
        let newcomers = silent(self.config.detect).max(spread(RESEND, members) * RESENDS);
        let flush = if self.config.reliable { FLUSHES * limits::flush_within(members) } else { Duration::ZERO };
        (newcomers, newcomers.max(flush))
    }

    /// How long a change of so many may last as long as its leader is heard.
    pub(super) fn lasts(&self, members: usize) -> Duration {
        self.timeouts(members).1 * TIMEOUTS_MAX
    }

    /// Says the roster whole to newcomers, and who all are; to the others, who newcomers are.
    fn introduce(&mut self, newcomers: &[MemberId], is_whole: bool) {
        let address = |it: &MemberId| self.leads.applicants.get(it).and_then(|it| it.address);
        let addresses: Option<Vec<Address>> = newcomers.iter().map(address).collect();
        let addresses = addresses.filter(|it| it.len() <= INTRODUCED_EACH && !is_whole);
        let Some(proposed) = &self.leads.proposed else { return };
        let parts = proposed.said.parts();
        let (new, old): (Vec<MemberId>, Vec<MemberId>) =
            proposed.content.slots.iter().partition(|it| newcomers.contains(it));
        let certs = |of: &[MemberId]| of.iter().map(|it| it.cert).collect::<Vec<CertHash>>();
        let (new, old) = (certs(&new), certs(&old));
        match addresses {
            Some(addresses) => {
                for to in &addresses {
                    (0..parts).for_each(|part| self.say_part(Some(*to), part));
                }
                // The others heard them ask, or want to know who they are.
                addresses.into_iter().for_each(|to| self.give(Some(to), &old));
            }
            None => {
                (0..parts).for_each(|part| self.say_part(None, part));
                if !new.is_empty() {
                    self.give(None, &[new, old].concat());
                }
            }
        }
    }

    /// Says one part of the roster that we propose.
    fn say_part(&mut self, to: Option<Address>, part: usize) {
        let Some(proposed) = &mut self.leads.proposed else { return };
        let (signer, sigmas, me) = (&self.signer, &self.leads.sigmas, self.me);
        let said = proposed.parts.entry(part as u16).or_insert_with(|| {
            let salt = |it: &MemberId| sigmas.get(&it.cert).filter(|_| *it != me).map_or([0; 16], |it| it.salt);
            let slots = proposed.content.slots.iter().skip(part * PART_SLOTS).take(PART_SLOTS);
            let slots = slots.map(|it| (*it, salt(it))).collect();
            let mut it = Part { proposal: proposed.id, part: part as u16, slots, signature: [0; 64] };
            it.signature = signer.sign(&it.statement());
            it
        });
        let said = said.clone();
        self.send_to(to, &Message::Roster(said));
    }

    /// A member lacks parts of the roster that we propose.
    pub(super) fn on_lack(&mut self, now: Now, from: Option<Address>, m: &Lack) -> Result<(), Dropped> {
        if m.to != self.me {
            return Err(Dropped::Foreign);
        }
        let key = self.leads.key_with(&self.group, &self.me, &m.from).ok_or(Dropped::Stale)?;
        let proposed = self.leads.proposed.as_mut().filter(|it| it.id == m.proposal).ok_or(Dropped::Stale)?;
        let slot = proposed.content.slot_of(&m.from).ok_or(Dropped::Stale)?;
        key.check_lack(m).map_err(|_| Dropped::Auth)?;
        if proposed.lacked.get(&slot).is_some_and(|at| now.monotonic.since(*at) < GIVEN_WITHIN) {
            return Err(Dropped::Rate);
        }
        proposed.lacked.insert(slot, now.monotonic);
        let parts = proposed.said.parts();
        (0..parts).filter(|part| m.parts >> part & 1 == 1).for_each(|part| self.say_part(from, part));
        Ok(())
    }

    /// Says a proposal again, or goes on without those who do not answer.
    pub(super) fn resend(&mut self, now: Now) {
        let Some(proposed) = &mut self.leads.proposed else { return };
        if !proposed.is_over(now.monotonic) || proposed.content.slots.len() == 1 {
            proposed.wait = (proposed.wait * 2).min(spread(RESEND_MAX, proposed.acks.len()));
            self.timers.set(Timer::Resend, now.monotonic + proposed.wait);
            let mut said = proposed.said.clone();
            said.acked = vec![0; proposed.acks.len().div_ceil(8)];
            let is_ready = |slot: usize| slot == 0 || proposed.acks[slot].is_some();
            (0..proposed.acks.len()).filter(|it| is_ready(*it)).for_each(|it| said.acked[it / 8] |= 1 << (it % 8));
            // Who has no part of its own has no key to ask for others.
            let lacks =
                |part: &usize| (part * PART_SLOTS..proposed.acks.len()).take(PART_SLOTS).any(|it| !is_ready(it));
            let parts = if said.came.is_none() { said.parts() } else { 0 };
            let parts: Vec<usize> = (0..parts).filter(lacks).collect();
            if proposed.acks.len() > 1 {
                self.send(&Message::Propose(said));
                parts.into_iter().for_each(|part| self.say_part(None, part));
            }
            return;
        }
        let Some(proposed) = self.leads.proposed.take() else { return };
        let answered = |at: usize| at == 0 || proposed.acks[at].is_some();
        let silent: Vec<MemberId> =
            (0..proposed.acks.len()).filter(|at| !answered(*at)).map(|at| proposed.content.slots[at]).collect();
        for who in silent {
            // It kept all others waiting: not again and again.
            let is_newcomer = self.leads.applicants.contains_key(&who);
            self.leads.applicants.retain(|it, _| it.cert != who.cert);
            self.leads.refused.silent(now.monotonic, who.cert, is_newcomer);
            self.goes(now, who.cert, Gone::Silent);
        }
        self.leads.rotate |= self.prepared && self.going.is_empty();
        self.plan(now, Duration::ZERO);
    }

    /// A member is ready for what we proposed, or asks again for what we handed out.
    pub(super) fn on_ack(&mut self, now: Now, from: Option<Address>, m: Ack) -> Result<(), Dropped> {
        if m.to != self.me {
            return Err(Dropped::Foreign);
        }
        if let Some(committed) = self.leads.committed.as_ref().filter(|it| it.id == m.proposal) {
            let key = self.leads.key_with(&self.group, &self.me, &m.from).ok_or(Dropped::Stale)?;
            let slots = self.installed.as_ref().map_or(&[][..], |it| &it.slots);
            let slot = slots.iter().position(|it| *it == m.from).ok_or(Dropped::Stale)?;
            key.check_ack(&m).map_err(|_| Dropped::Auth)?;
            let entry = committed.entries.iter().find(|(at, _)| usize::from(*at) == slot).cloned();
            let commit = committed.commit.clone();
            self.send_commit(&commit, entry.as_slice(), &[]);
            return Ok(());
        }
        let proposed = self.leads.proposed.as_ref().filter(|it| it.id == m.proposal).ok_or(Dropped::Stale)?;
        let slot = proposed.content.slot_of(&m.from).ok_or(Dropped::Stale)?;
        let key = proposed.keys[slot].as_ref().ok_or(Dropped::Stale)?;
        self.authentic(key.check_ack(&m))?;
        if let Some(proposed) = &mut self.leads.proposed {
            if proposed.acks[slot].is_none() {
                proposed.waits_for -= 1;
                proposed.heard = now.monotonic;
                // Who overhears it can say it again from elsewhere, but later.
                proposed.addresses[slot] = from;
            }
            proposed.acks[slot] = Some(m);
        }
        self.try_commit(now);
        Ok(())
    }

    /// Hands out the epoch once everybody is ready, and all of our view say alike how it ended.
    pub(super) fn try_commit(&mut self, now: Now) {
        let (Some(cut), Some(proposed)) = (self.cut, &self.leads.proposed) else { return };
        if proposed.waits_for > 0 {
            return;
        }
        let base = proposed.content.base;
        let of_base = proposed.acks.iter().flatten().filter(|it| it.base == base && base != EpochId::default());
        let (alike, others): (Vec<&Ack>, Vec<&Ack>) = of_base.partition(|it| it.cut == cut);
        let (alike, others) = (alike.len() + 1, others.into_iter().map(|it| it.from.cert).collect::<Vec<CertHash>>());
        if !others.is_empty() {
            // Some have not heard yet how it ended: again; but not for ever.
            self.leads.proposed = None;
            self.leads.rotate = true;
            self.leads.disagreed += 1;
            let since = *self.leads.disagreed_since.get_or_insert(now.monotonic);
            // A leader that differs from most, or flushed nothing in time, was likely lied to itself. The transport names the
            // liar sooner.
            let is_odd = cut == [0; 32] || others.len() > alike;
            let times = if is_odd { DISAGREED_ODD } else { 1 };
            let is_over = self.leads.disagreed >= DISAGREED_MAX * times;
            #[cfg(any(test, feature = "misbehaving"))]
            let is_over = is_over && !self.lacks(super::misbehaving::Rule::Ends);
            if is_over && now.monotonic.since(since) >= DISAGREED_FOR * times {
                others.into_iter().for_each(|cert| self.goes(now, cert, Gone::Silent));
            }
            return self.timers.sooner(Timer::Propose, now.monotonic + AGAIN);
        }
        let Some(proposed) = self.leads.proposed.take() else { return };
        self.timers.stop(Timer::Resend);
        let revoked = proposed.content.slots.iter().any(|it| self.revoked.contains(&it.cert));
        if revoked {
            self.leads.rotate = true;
            return self.timers.sooner(Timer::Propose, now.monotonic + AGAIN);
        }
        let of_base: Vec<bool> = proposed.acks.iter().map(|it| it.is_some_and(|it| it.base == base)).collect();
        let made = make(self, &proposed.content, &proposed.drawn, cut, &proposed.keys, &of_base);
        let entries: Vec<(u16, Vec<u8>)> = (0..).zip(made.entries).filter(|(_, it)| !it.is_empty()).collect();
        self.send_commit(&made.commit, &entries, &proposed.addresses);
        self.leads.committed = Some(Committed { id: proposed.id, commit: made.commit, entries });
        let went = self.installed.iter().flat_map(|it| &it.slots).filter(|it| proposed.content.slot_of(it).is_none());
        let slots = self.installed.as_ref().map_or(&[][..], |it| &it.slots);
        let why = |it: &MemberId| proposed.content.why(slots, &it.cert).or(self.going.get(&it.cert).copied());
        let went: Vec<(MemberId, Gone)> =
            went.map(|it| (*it, why(it).unwrap_or(Gone::Replaced))).filter(|(_, why)| *why != Gone::Silent).collect();
        for (who, why) in went {
            if self.leads.dismissed.len() < limits::REMEMBERED_PEOPLE_MAX {
                self.leads.dismissed.insert(who, (why, DISMISSALS));
            }
            let address = self.addresses.get(&who).copied();
            self.dismiss(who, why, address);
        }
        let heard = proposed.content.slots.iter().zip(&proposed.addresses);
        self.addresses = heard.filter_map(|(who, at)| Some((*who, (*at)?))).collect();
        let Drawn { table, nonce, .. } = proposed.drawn;
        self.enter(now, &proposed.content, table, made.mine, nonce.is_some());
    }

    /// Says to somebody that it is out; to all, among whom it is, if it may not hear us where it was last.
    fn dismiss(&mut self, to: MemberId, why: Gone, address: Option<Address>) {
        let mut dismiss = Dismiss { from: self.me, to, why, tag: [0; 16] };
        let Some(key) = self.shared_with(&to) else { return };
        dismiss.tag = key.dismiss(&dismiss);
        self.send_to(address, &Message::Dismiss(dismiss));
    }

    /// A member asks us for something.
    pub(super) fn on_wish(&mut self, now: Now, m: &Wish) -> Result<(), Dropped> {
        if m.to != self.me {
            return Err(Dropped::Foreign);
        }
        let key = self.shared_with(&m.from).ok_or(Dropped::Stale)?;
        key.check_wish(m).map_err(|_| Dropped::Auth)?;
        if let Some((why, _)) = self.leads.dismissed.get(&m.from).copied() {
            self.dismiss(m.from, why, None);
            return Ok(());
        }
        let is_in = self.installed.as_ref().is_some_and(|it| it.slots.contains(&m.from) && it.epoch == m.epoch);
        // Who leads tells all others that it leaves, and asks them for nothing else.
        let leader_leaves = self.leader() == Some(m.from) && m.what == WishKind::Leave;
        if !is_in || (!self.is_leading() && !leader_leaves) {
            return Err(Dropped::Stale);
        }
        match m.what {
            WishKind::Leave => self.goes(now, m.from.cert, Gone::Left),
            WishKind::Rotate => {
                let young = self.installed.as_ref().is_some_and(|it| now.monotonic.since(it.at) < limits::REKEY_MIN);
                if young || !self.leads.rekeys.take(m.from.cert, now.monotonic) {
                    return Err(Dropped::Rate);
                }
                self.leads.rotate = true;
                self.plan(now, GATHER);
            }
            WishKind::News if self.news_asked.is_none_or(|at| now.monotonic.since(at) >= NEWS_SPACING) => {
                self.timers.sooner(Timer::News, now.monotonic);
            }
            WishKind::News => return Err(Dropped::Rate),
        }
        Ok(())
    }

    /// Somebody lacks registrations.
    pub(super) fn on_want(&mut self, now: Now, from: Option<Address>, list: &[CertHash]) -> Result<(), Dropped> {
        if !self.is_leading() {
            return Err(Dropped::Stale);
        }
        // Anybody can ask in another one's name.
        let from = from.filter(|it| self.has_proved(it));
        if now.monotonic.since(self.leads.given_since) >= GIVEN_WITHIN {
            self.leads.given.clear();
            self.leads.given_since = now.monotonic;
        }
        let (mut to_one, mut to_all) = (Vec::new(), Vec::new());
        for cert in list.iter().filter(|it| self.is_named(it)).copied().collect::<Vec<CertHash>>() {
            // Members of the view know each other: only the one that asks lacks one of them.
            let to = from.filter(|_| self.is_in_view(&cert));
            let given = self.leads.given.entry(to).or_default();
            if (to.is_none() || given.len() < limits::GIVEN_TO_ONE_MAX) && given.insert(cert) {
                if to.is_some() { to_one.push(cert) } else { to_all.push(cert) }
            }
        }
        self.give(from, &to_one);
        self.give(None, &to_all);
        Ok(())
    }

    /// Whether a member, or somebody whom we let in, proved to us from this address who it is.
    fn has_proved(&self, address: &Address) -> bool {
        let applicants = self.leads.applicants.values().filter_map(|it| it.address.as_ref());
        let acks = self.leads.proposed.iter().flat_map(|it| &it.addresses).flatten();
        self.addresses.values().chain(applicants).chain(acks).any(|it| it == address)
    }

    /// Whether somebody with this registration is in our view, or shall be.
    fn is_named(&self, cert: &CertHash) -> bool {
        let proposed = self.leads.proposed.as_ref();
        self.is_in_view(cert) || proposed.is_some_and(|it| it.content.slots.iter().any(|it| it.cert == *cert))
    }

    /// Whether a proposal of ours names somebody who has to go; it is given up then.
    pub(super) fn drop_proposal_of(&mut self, now: Now, cert: &CertHash) {
        let names = |it: &Proposed| it.content.slots.iter().any(|it| it.cert == *cert);
        if self.leads.proposed.as_ref().is_some_and(names) {
            self.leads.proposed = None;
            self.leads.rotate = true;
            self.timers.sooner(Timer::Propose, now.monotonic);
        }
    }

    fn give(&mut self, to: Option<Address>, list: &[CertHash]) {
        let known = list.iter().filter_map(|it| Some(self.people.get(it)?.registration.clone()));
        let (mut parts, mut bytes) = (Vec::<Vec<_>>::new(), usize::MAX);
        for it in known {
            let length = it.to_bytes().len() + 2;
            if bytes.saturating_add(length) > GIVE_BYTES {
                parts.push(Vec::new());
                bytes = 0;
            }
            bytes += length;
            parts.last_mut().expect("one was pushed").push(it);
        }
        parts.into_iter().for_each(|part| self.send_to(to, &Message::Give(part)));
    }

    /// Says that our group is here, and once more to those who are out that they are.
    pub(super) fn beacon(&mut self, now: Now) {
        if !self.is_leading() || self.leader() != Some(self.me) {
            return;
        }
        let (registration, run) = (self.registration.clone(), self.me.incarnation);
        let (epoch, size) = (self.epoch(), self.view_size() as u16);
        let reliable = self.config.reliable;
        self.send(&Message::Beacon(Beacon { registration, run, epoch, size, reliable }));
        let again: Vec<(MemberId, Gone)> = self.leads.dismissed.iter().map(|(who, (why, _))| (*who, *why)).collect();
        again.into_iter().for_each(|(who, why)| self.dismiss(who, why, None));
        self.leads.dismissed.retain(|_, (_, left)| {
            *left = left.saturating_sub(1);
            *left > 0
        });
        let every = (self.config.detect / 3).clamp(BEACON_MIN, limits::KDC_NEWS_EVERY);
        let wait = every + jitter(&mut self.rng, every / 8);
        self.timers.set(Timer::Beacon, now.monotonic + wait);
    }

    /// Who stands by has keys with all members before it needs them (C2): those that we lack, if we do among these.
    pub(super) fn keys_lacked(&self, slots: &[MemberId]) -> Vec<CertHash> {
        let may_lead = |it: &&MemberId| !self.going.contains_key(&it.cert) && self.may_lead(&it.cert);
        if !slots.iter().filter(may_lead).take(1 + STAND_BYS).any(|it| *it == self.me) {
            return Vec::new();
        }
        let lacks = slots.iter().filter(|it| **it != self.me && !self.leads.sigmas.contains_key(&it.cert));
        lacks.map(|it| it.cert).collect()
    }

    /// Asks for those.
    pub(super) fn fetch_keys(&mut self, now: Now, slots: &[MemberId]) {
        self.keys_lacked(slots).into_iter().for_each(|cert| _ = self.ask(now, Query::Pair(cert)));
    }

    /// Somebody in the view must go: publishers pause at once.
    pub(super) fn prepare_removal(&mut self) {
        let Some(installed) = &self.installed else { return };
        let stays: Vec<MemberId> =
            installed.slots.iter().filter(|it| !self.going.contains_key(&it.cert)).copied().collect();
        let me = stays.iter().position(|it| *it == self.me).unwrap_or(0);
        let members: Roster =
            stays.iter().filter_map(|it| installed.members.find(&it.cert)).map(|(_, m)| m.clone()).collect();
        let why = self.going.values().max();
        let change = match why {
            Some(Gone::Revoked) => Change::Evicted,
            Some(Gone::Left) => Change::Left,
            Some(Gone::Silent | Gone::Replaced) | None => Change::Suspected,
        };
        let epoch = EpochId { counter: installed.epoch.counter.saturating_add(1), hash: 0 };
        let view = View::new(Some(&installed.members), epoch, members, Slot(me as u32), change);
        self.prepared = true;
        self.outputs.push_back(Output::Prepare { view, flush: Flush::Later });
    }
}

/// How long a change waits for who says nothing: contributory's bounds.
fn silent(detect: Duration) -> Duration {
    (detect / 5).clamp(Duration::from_millis(300), Duration::from_secs(3))
}

/// A wait for what many members answer: a large group's answers take a leader some time, and asked again all answer again.
pub(super) fn spread(wait: Duration, members: usize) -> Duration {
    wait + wait * (members / SPREAD_MEMBERS) as u32
}

const SPREAD_MEMBERS: usize = 64;
/// A proposal is said again so often at least before who has not answered is silent.
const RESENDS: u32 = 3;
/// So many times the time-out a change lasts at most while some still answer.
const TIMEOUTS_MAX: u32 = 4;
/// The end of a view takes a part of the time for which a change waits: who is ready late is there, and one that waits for
/// somebody who is not must have the time to say so.
const FLUSHES: u32 = 3;
/// Applicants of one time, and others', make one change.
pub(super) const GATHER: Duration = Duration::from_millis(4);
/// The same for members of another part of the group.
const GATHER_PART: Duration = Duration::from_millis(60);
/// Waits between two times that a proposal is said.
const RESEND: Duration = Duration::from_millis(30);
const RESEND_MAX: Duration = Duration::from_millis(120);
/// So often such a change is proposed again before it goes on without those who differ from the leader.
const DISAGREED_MAX: u32 = 8;
const DISAGREED_FOR: Duration = Duration::from_secs(1);
/// So many times as often and as long if it is the leader that differs from most.
const DISAGREED_ODD: u32 = 4;
/// Signs of others keep a newcomer from forming a group, or a view from a first order, for so many `detect` at most: a group
/// that lost its leader can let it in after about one.
pub(super) const SIGNS_HOLD_DETECTS: u32 = 3;
/// A change whose members had not all heard how their view ended is proposed again after this.
const AGAIN: Duration = Duration::from_millis(5);
/// A sign of somebody who leads, or will, counts for so long.
const SIGN_FOR: Duration = Duration::from_millis(400);
/// An applicant that says nothing for so long is forgotten.
const APPLIES_FOR: Duration = Duration::from_secs(3);
/// Between two challenges to one applicant.
const CHALLENGE_SPACING: Duration = Duration::from_millis(10);
/// Between two signs to newcomers.
const SIGN_SPACING: Duration = Duration::from_millis(40);
/// Who does not stand by says so after this, or up to three times as long.
const SIGN_LATE: Duration = Duration::from_millis(20);
/// A stand-by that lacks a key goes on without its member after this.
const LACKS_FOR: Duration = Duration::from_secs(3);
const LACKS_AGAIN: Duration = Duration::from_millis(50);
/// How often somebody is told that it is out.
const DISMISSALS: u32 = 3;
/// Registrations that were just given are not given again.
const GIVEN_WITHIN: Duration = Duration::from_millis(20);
/// Members may have the centre asked for news once in so long.
const NEWS_SPACING: Duration = Duration::from_millis(200);
const GIVE_BYTES: usize = 1100;
/// So many newcomers are told the roster one by one; more are told it once, with all others.
const INTRODUCED_EACH: usize = 4;
const BEACON_MIN: Duration = Duration::from_millis(100);
