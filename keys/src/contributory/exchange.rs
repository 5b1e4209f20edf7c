//! What members ask of each other and hand on: cards, proposals, statements, sender keys, farewells.

use sealcast_crypto::hpke;
use sealcast_crypto::identity::statement::{Eviction, Kind, OnStale};
use sealcast_crypto::secret::Secret;
use sealcast_wire::{CertHash, Change, Domain, Dropped, Now, limits};

use rand_core::Rng;

use super::message::{Fetch, InstanceId, Leave, Message, Object, SenderKey, ShortId, State, Summary, signed};
use super::statements::NotLearnt;
use super::timing::{self, Timer, jitter};
use super::{Contributory, Lacks, Phase, WantedCard};
use crate::{CommandError, Exclusion, HandleError, Notice, Output};

impl Contributory {
    /// Notes that we lack somebody's card.
    pub(super) fn want_card(&mut self, now: Now, short: ShortId) {
        if self.people.knows(&short) || short == self.me.short {
            return;
        }
        let named = |s: &ShortId| self.attempt.as_ref().is_some_and(|a| a.proposal.seat_of(s).is_some());
        if self.wanted_cards.len() >= limits::WANTED_CARDS_MAX && named(&short) {
            // Names of nobody, which anybody may mention, do not keep those of an attempt out.
            let other = self.wanted_cards.keys().find(|s| !named(s)).copied();
            other.map(|s| self.wanted_cards.remove(&s));
        }
        if self.wanted_cards.len() < limits::WANTED_CARDS_MAX {
            let next = now.monotonic + jitter(&mut self.rng, FETCH_BLUR);
            self.wanted_cards.entry(short).or_insert(WantedCard { tries: 0, next });
            self.timers.sooner(Timer::Fetch, next);
        }
    }

    /// Notes that we missed a proposal of which we hear.
    ///
    /// `likely`: whether it may well name us.
    pub(super) fn want_proposal(&mut self, now: Now, id: InstanceId, likely: bool) {
        if self.wanted_proposals.contains_key(&id) {
            return;
        }
        if self.wanted_proposals.len() >= limits::WANTED_PROPOSALS_MAX {
            // What nobody has given, perhaps since there is none, makes room.
            let most = self.wanted_proposals.iter().max_by_key(|(_, tries)| **tries).filter(|(_, tries)| **tries > 1);
            most.map(|(id, _)| *id).map(|id| self.wanted_proposals.remove(&id));
        }
        if self.wanted_proposals.len() < limits::WANTED_PROPOSALS_MAX {
            self.wanted_proposals.insert(id, 0);
            let wait = if likely { FETCH_BLUR } else { timing::GREET * 2 };
            let blur = jitter(&mut self.rng, FETCH_BLUR * 2);
            self.timers.sooner(Timer::Fetch, now.monotonic + wait + blur);
        }
    }

    /// Asks for what is wanted.
    pub(super) fn fetch_wanted(&mut self, now: Now) {
        self.wanted_proposals.retain(|_, tries| *tries < FETCH_TRIES);
        self.wanted_cards.retain(|_, wanted| wanted.tries < FETCH_TRIES);
        let due = |w: &WantedCard| w.next <= now.monotonic + FETCH_BLUR;
        let cards: Vec<ShortId> = self.wanted_cards.iter().filter(|(_, w)| due(w)).map(|(s, _)| *s).collect();
        let proposal = self.wanted_proposals.iter().min_by_key(|(_, tries)| **tries).map(|(id, _)| *id);
        if proposal.is_some() || !cards.is_empty() {
            for short in &cards {
                if let Some(wanted) = self.wanted_cards.get_mut(short) {
                    wanted.tries += 1;
                    wanted.next = now.monotonic + timing::RTO * wanted.tries;
                }
            }
            if let Some(tries) = proposal.and_then(|id| self.wanted_proposals.get_mut(&id)) {
                *tries += 1;
            }
            self.send(&Message::Fetch(Fetch { proposal, cards }));
        }
        let again = (!self.wanted_proposals.is_empty()).then(|| now.monotonic + timing::RTO);
        let next = self.wanted_cards.values().map(|w| w.next).chain(again).min();
        if let Some(next) = next {
            let blur = jitter(&mut self.rng, FETCH_BLUR);
            self.timers.set(Timer::Fetch, next + blur);
        }
    }

    /// Somebody asks: the owner answers at once, the others when it does not.
    pub(super) fn on_fetch(&mut self, now: Now, m: &Fetch) -> Result<(), HandleError> {
        let mut cards = Vec::new();
        for short in &m.cards {
            // The answer is for all: no need to ask too.
            if let Some(wanted) = self.wanted_cards.get_mut(short) {
                wanted.next = wanted.next.max(now.monotonic + timing::RTO);
            }
            if *short == self.me.short {
                // What left just now is on its way to this one too; who asks later was not there yet.
                let crossing = now.monotonic.since(self.card_sent) < CARD_CROSSING;
                if !crossing && self.card_paced <= now.monotonic + OWN_CARD_SPACING * OWN_CARDS_AT_ONCE {
                    self.give_own_card(now);
                }
                continue;
            }
            let Some(waited) = self.people.asked(short, now.monotonic) else { continue };
            let turn = waited >= timing::RTO / 2 && self.rng.next_u64() % (self.crowd() as u64) < 3;
            if let Some(person) = self.people.get(short).filter(|_| turn) {
                cards.push(Object::Card(Box::new(person.card.clone())));
                self.people.gave(short, now.monotonic);
            }
        }
        self.give(cards);
        if let Some(id) = m.proposal {
            let of = |a: &&mut super::Attempt| a.proposal.id() == id;
            let found = self.attempt.as_mut().filter(of).or(self.last.as_mut().filter(of));
            let again = found.and_then(|a| a.remind(now.monotonic, timing::RTO / 4));
            again.iter().for_each(|(message, bootstrap_sealed)| self.send_bootstrap(message, bootstrap_sealed.clone()));
        }
        Ok(())
    }

    /// Shows who we are, to those who were not there when we said so.
    pub(super) fn give_own_card(&mut self, now: Now) {
        self.card_sent = now.monotonic;
        self.card_paced = self.card_paced.max(now.monotonic) + OWN_CARD_SPACING;
        let card = Box::new(self.me.card.clone());
        self.send(&Message::Give(vec![Object::Card(card)]));
    }

    /// Hands objects to the group, as many in one message as fit an Ethernet frame.
    fn give(&mut self, objects: Vec<Object>) {
        let (mut message, mut size) = (Vec::new(), 0);
        for object in objects {
            let bytes = object.size();
            if size + bytes > GIVE_BYTES && !message.is_empty() {
                self.send(&Message::Give(std::mem::take(&mut message)));
                size = 0;
            }
            size += bytes;
            message.push(object);
        }
        if !message.is_empty() {
            self.send(&Message::Give(message));
        }
    }

    /// How many could answer.
    fn crowd(&self) -> usize {
        let named = self.attempt.as_ref().map_or(0, |a| a.seats());
        named.max(self.view_size()).max(1)
    }

    pub(super) fn on_give(&mut self, now: Now, objects: &[Object]) -> Result<(), HandleError> {
        let mut result = Ok(());
        for object in objects {
            match object {
                Object::Card(card) => {
                    let floor = self.statements.floor();
                    match self.people.meet(now, floor, self.statements.anchor(), &self.verifier, card) {
                        Ok(person) => {
                            self.card_is_here(now, person.short);
                            self.forget_people();
                        }
                        Err(why) => result = Err(why.into()),
                    }
                    self.judge_twins(now);
                }
                Object::Eviction(bytes) | Object::Crl(bytes) | Object::Policy(bytes) => {
                    // Two certificates and a signature at most: as much as three unknown certificates.
                    let known = self.statements.knows(bytes);
                    if !known && !(0..3).all(|_| self.people.may_check(now.monotonic)) {
                        result = Err(Dropped::Rate.into());
                    } else if !known && self.learn(now, bytes).is_err() {
                        result = Err(Dropped::Policy.into());
                    }
                }
            }
        }
        result
    }

    /// A card came, by whichever way.
    pub(super) fn card_is_here(&mut self, now: Now, short: ShortId) {
        if self.wanted_cards.remove(&short).is_some() {
            if let Some(attempt) = self.attempt.as_mut().filter(|a| a.proposal.seat_of(&short).is_some()) {
                attempt.progress = now.monotonic;
            }
            self.resume(now, |lacks| matches!(lacks, Lacks::Card(s) | Lacks::Proposer(s, _) if *s == short));
            self.try_form(now);
        }
    }

    /// Somebody else knows other statements than we do, or not: told at once, in turns.
    pub(super) fn compare(&mut self, now: Now, theirs: Summary) {
        if theirs != self.statements.summary() {
            self.timers.sooner(Timer::State, now.monotonic + jitter(&mut self.rng, timing::RTO / 2));
        }
    }

    /// Somebody lists what it knows.
    pub(super) fn on_state(&mut self, now: Now, m: &State) -> Result<(), HandleError> {
        if self.statements.lacks(m) {
            self.timers.sooner(Timer::State, now.monotonic + jitter(&mut self.rng, timing::RTO / 2));
        } else {
            self.timers.stop(Timer::State);
        }
        // Not signed, and an outsider may send it again: a few answers a second, each of a portion (G8).
        let beyond = self.statements.beyond(m);
        let may = !beyond.is_empty() && self.stating.take(now.monotonic, STATE_ANSWERS_PER_SECOND);
        if may && self.rng.next_u64() % (self.crowd() as u64) < 3 {
            let from = self.rng.next_u64() as usize % beyond.len().div_ceil(STATE_PORTION);
            self.give(beyond.into_iter().skip(from * STATE_PORTION).take(STATE_PORTION).collect());
        }
        Ok(())
    }

    /// Takes in a statement, CRL or policy, and does what follows from it; whether it was new.
    pub(super) fn learn(&mut self, now: Now, bytes: &[u8]) -> Result<bool, NotLearnt> {
        let excluded: Vec<CertHash> = self.excluded();
        if !self.statements.learn(bytes)? {
            return Ok(false);
        }
        for (id, record) in self.statements.records() {
            self.outputs.push_back(Output::Store { id, record });
        }
        for cert in self.excluded().iter().filter(|c| !excluded.contains(c)) {
            self.note_eviction(*cert);
        }
        self.exclude_if_reported();
        if self.phase == Phase::Out {
            return Ok(true);
        }
        if Kind::of(bytes) == Some(Kind::Policy) && self.installed.is_some() {
            self.rotate = true; // its compartments hold from the next epoch on: let that be now
        }
        self.stale_told = false;
        self.prepare_removal(now);
        self.drop_unfit(now);
        self.try_form(now);
        self.plan(now);
        Ok(true)
    }

    /// We are out if a statement says so.
    pub(super) fn exclude_if_reported(&mut self) {
        if self.statements.excludes(&self.me.cert) {
            let why = match self.statements.eviction_of(&self.me.cert) {
                Some(e) => Exclusion::Evicted { reason: e.eviction().reason.clone() },
                None => Exclusion::Revoked,
            };
            self.exclude(why);
        }
    }

    fn excluded(&self) -> Vec<CertHash> {
        let members = self.installed.iter().flat_map(|i| &i.agreed.people);
        members.filter(|p| self.statements.excludes(&p.cert)).map(|p| p.id.cert).collect()
    }

    fn note_eviction(&mut self, cert: CertHash) {
        let person = self.installed.iter().flat_map(|i| &i.agreed.people).find(|p| p.id.cert == cert);
        let Some(signed) = person.and_then(|p| self.statements.eviction_of(&p.cert)) else { return };
        let (number, reason) = (signed.eviction().number, signed.eviction().reason.clone());
        let by = signed.signer().name(self.statements.anchor()).to_string();
        self.notice(Notice::Eviction { cert, number, reason, by });
    }

    /// Says a statement to the group, and a few times more, since any of them may be lost.
    pub(super) fn tell(&mut self, now: Now, bytes: &[u8]) {
        self.give_statement(bytes);
        if self.telling.len() >= limits::STATEMENTS_SENT_MAX {
            self.telling.pop_front(); // who lacks it hears so when summaries are compared
        }
        self.telling.push_back((bytes.to_vec(), 1));
        let blur = jitter(&mut self.rng, timing::TELL / 4);
        self.timers.sooner(Timer::Tell, now.monotonic + timing::TELL + blur);
    }

    pub(super) fn tell_again(&mut self, now: Now) {
        let telling = std::mem::take(&mut self.telling);
        telling.iter().for_each(|(bytes, _)| self.give_statement(bytes));
        let more = telling.into_iter().map(|(bytes, said)| (bytes, said + 1));
        self.telling = more.filter(|(_, said)| *said < timing::TELL_TIMES).collect();
        if let Some(said) = self.telling.iter().map(|(_, said)| *said).min() {
            let wait = timing::TELL * 4_u32.pow(said - 1);
            let blur = jitter(&mut self.rng, timing::TELL / 4);
            self.timers.set(Timer::Tell, now.monotonic + wait + blur);
        }
    }

    /// Hands a statement to the group.
    fn give_statement(&mut self, bytes: &[u8]) {
        let object = match Kind::of(bytes) {
            Some(Kind::Eviction) => Object::Eviction(bytes.to_vec()),
            Some(Kind::Policy) => Object::Policy(bytes.to_vec()),
            Some(Kind::Crl) => Object::Crl(bytes.to_vec()),
            None => return,
        };
        if object.fits() {
            self.send(&Message::Give(vec![object]));
        }
    }

    /// Evicts a member by our own right (A4).
    pub(super) fn evict(&mut self, now: Now, cert: CertHash, reason: &str) -> Result<(), CommandError> {
        let installed = self.installed.as_ref().ok_or(CommandError::NotReady)?;
        let member = installed.agreed.people.iter().find(|p| p.id.cert == cert);
        let person = member.or_else(|| self.people.of(cert).next()).ok_or(CommandError::NoSuchMember)?.clone();
        let number = self.statements.evictions().last_number(Some(self.me.id.cert)).saturating_add(1);
        let statement = Eviction::new(&self.group, &person.cert, number, reason);
        let identity = self.config.identity.clone();
        let bytes = statement.sign_as_member(&identity, &person.cert).map_err(|_| CommandError::Denied("evict"))?;
        self.learn(now, &bytes).map_err(|_| CommandError::Invalid)?;
        self.tell(now, &bytes);
        // Whoever evicts proposes the key without the evicted at once.
        if self.timers.is_set(Timer::Propose) {
            self.timers.set(Timer::Propose, now.monotonic);
        }
        Ok(())
    }

    pub(super) fn send_leave(&mut self) {
        let (author, epoch) = (self.me.short, self.epoch());
        let mut leave = Leave { author, epoch, signature: [0; 64] };
        let body = Message::Leave(leave.clone()).body();
        leave.signature = self.config.identity.key().sign(&signed(LEAVE_LABEL, &self.group, &[], &body));
        self.send(&Message::Leave(leave));
    }

    /// A member says that it goes; a run that left does not come back, so that its word never grows old.
    pub(super) fn on_leave(&mut self, now: Now, m: &Leave) -> Result<(), HandleError> {
        let known = self.removing.get(&m.author) == Some(&Change::Left);
        if known || m.author == self.me.short {
            return Err(Dropped::Stale.into());
        }
        let Some(person) = self.people.get(&m.author).cloned() else { return Err(Dropped::Stale.into()) };
        let body = Message::Leave(m.clone()).body();
        let digest = signed(LEAVE_LABEL, &self.group, &[], &body);
        if !self.verifier.signature(&person.cert.key, &digest, &m.signature) {
            return Err(Dropped::Auth.into());
        }
        if self.removing.len() >= limits::REMEMBERED_PEOPLE_MAX {
            // Runs that were never in a view are soon forgotten anyway; members are not.
            let departed = self.removing.keys().find(|s| !self.is_in_view(s)).copied();
            departed.map(|s| self.removing.remove(&s));
        }
        self.removing.insert(m.author, Change::Left);
        self.wanting.remove(&m.author);
        if self.is_in_view(&m.author) {
            self.prepare_removal(now);
        }
        if self.attempt.as_ref().is_some_and(|a| a.nobody_joined() && a.proposal.seat_of(&m.author).is_some()) {
            // We wait for nobody else.
            self.drop_attempt();
        }
        self.plan(now);
        Ok(())
    }

    /// Gives the readers our sending keys of compartments that we write without reading (A1).
    pub(super) fn send_own_keys(&mut self, now: Now) {
        let Some(installed) = &self.installed else { return };
        let agreed = &installed.agreed;
        if agreed.own.is_empty() || self.key_tries >= OWN_KEY_TRIES {
            return;
        }
        let (epoch, author) = (agreed.epoch, self.me.short);
        let mut messages = Vec::new();
        for (domain, key) in &agreed.own {
            let Some((_, to)) = agreed.publics.iter().find(|(d, _)| d == domain) else { continue };
            let info = sender_key_info(&self.group, &epoch.to_bytes(), *domain);
            let sealed = hpke::seal_to(to, &info, &author.0, key.expose(), &mut self.rng);
            let Ok(sealed) = sealed else { continue }; // the readers' key is no key: nobody could open
            let mut message = SenderKey { author, epoch, domain: domain.0, sealed, signature: [0; 64] };
            let body = Message::SenderKey(message.clone()).body();
            message.signature = self.key.sign(&signed(SENDER_KEY_LABEL, &self.group, &[], &body));
            messages.push(Message::SenderKey(message));
        }
        messages.iter().for_each(|m| _ = self.send(m));
        self.key_tries += 1;
        let wait = timing::RTO * (1 << self.key_tries);
        let blur = jitter(&mut self.rng, timing::RTO);
        self.timers.set(Timer::SenderKey, now.monotonic + wait + blur);
    }

    pub(super) fn on_sender_key(&mut self, _now: Now, m: &SenderKey) -> Result<(), HandleError> {
        // Of the epoch in use, of those before it, and of one that is about to be.
        let mut agreed = self.written.iter().map(|w| &w.agreed);
        let agreed = agreed.rfind(|a| a.epoch == m.epoch).ok_or(Dropped::Stale)?;
        let domain = Domain(m.domain);
        let slot = agreed.people.iter().position(|p| p.short == m.author).ok_or(Dropped::Policy)?;
        if !agreed.table.writers_only(domain).holds(slot) {
            return Err(Dropped::Policy.into());
        }
        let Some((_, pair)) = agreed.pairs.iter().find(|(d, _)| *d == domain) else { return Ok(()) };
        if agreed.keys.knows(sealcast_wire::Slot(slot as u32), domain) {
            return Err(Dropped::Stale.into());
        }
        let body = Message::SenderKey(m.clone()).body();
        let digest = signed(SENDER_KEY_LABEL, &self.group, &[], &body);
        if !self.verifier.signature(&agreed.people[slot].key, &digest, &m.signature) {
            return Err(Dropped::Auth.into());
        }
        let info = sender_key_info(&self.group, &m.epoch.to_bytes(), domain);
        let key = pair.open(&info, &m.author.0, &m.sealed).map_err(|_| Dropped::Auth)?;
        let key = Secret::try_from(&key[..]).map_err(|_| Dropped::Malformed)?;
        let slot = sealcast_wire::Slot(slot as u32);
        agreed.keys.learn(slot, domain, &key);
        self.outputs.push_back(Output::SenderKey { epoch: m.epoch, slot });
        Ok(())
    }

    /// Our own certificate's end, and the age of the revocation list (A10).
    pub(super) fn judge_own(&mut self, now: Now) {
        if let Some(utc) = now.utc {
            let left = self.me.cert.not_after.0 - utc.0;
            let cert = self.me.id.cert;
            if left < EXPIRES_SOON_SECONDS && self.last_told.is_none_or(|at| now.monotonic.since(at) >= EXPIRY_WARNING)
            {
                self.last_told = Some(now.monotonic);
                self.notice(Notice::Expires { cert, seconds: left });
            }
        }
        if let Some(on_stale) = self.statements.staleness(now) {
            if !self.stale_told {
                self.stale_told = true;
                self.notice(Notice::StaleCrl);
            }
            if on_stale == OnStale::Stop && self.phase == Phase::Running {
                self.exclude(Exclusion::StaleCrl);
            }
        }
    }
}

fn sender_key_info(group: &str, epoch: &[u8; 12], domain: Domain) -> Vec<u8> {
    signed("sealcast/v1/sender-key-info", group, &[epoch], &domain.0.to_be_bytes()).to_vec()
}

const LEAVE_LABEL: &str = "sealcast/v1/leave";
const SENDER_KEY_LABEL: &str = "sealcast/v1/sender-key";
/// How often the same thing is asked for.
const FETCH_TRIES: u32 = 8;
/// Our card is on its way to all for so long.
const CARD_CROSSING: std::time::Duration = std::time::Duration::from_millis(2);
/// Between two times that we give our own card (G8), a few at once apart: newcomers come in flocks.
const OWN_CARD_SPACING: std::time::Duration = std::time::Duration::from_millis(75);
const OWN_CARDS_AT_ONCE: u32 = 16;
/// Those who lack the same ask at different times, so that one asks for all.
const FETCH_BLUR: std::time::Duration = std::time::Duration::from_millis(3);
/// Lists of statements that are answered per second.
const STATE_ANSWERS_PER_SECOND: u32 = 10;
/// Statements given in one answer; who lacks more says so again.
const STATE_PORTION: usize = 16;
/// Bytes of objects in one message, so that it fits an Ethernet frame.
const GIVE_BYTES: usize = 1200;
/// How often our own sending keys are handed out per epoch.
const OWN_KEY_TRIES: u32 = 6;
/// An end so near is told.
const EXPIRES_SOON_SECONDS: i64 = 7 * 86_400;
/// And told again after so long.
const EXPIRY_WARNING: std::time::Duration = std::time::Duration::from_secs(86_400);
