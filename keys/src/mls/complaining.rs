//! Commits that some members cannot open (D3): complaints about them, and what follows.
//!
//! ```text
//! victim ── COMPLAINT ──▶ order                                at a random time, once for each such commit
//!        ── WANT, external commit ──▶ order                    at another one; later and later, if it happens often
//! member ── counts complaints of different names ── its turn ──▶ COMMIT, with the complaints in the group context
//! ```
//! A member counts a complaint about a commit that it judged itself, by a member of the epoch that the commit ended. So one
//! member cannot complain twice, nor about what could not hit it. Members that come later judge the complaints in the group
//! context by their signatures and names alone, as all others do.
//!
//! If all members but its author complained of a commit, only the author can be in the epoch that follows. The others then
//! leave that group for good, and found another one, which excludes the author from its first epoch on.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use rand_core::Rng as _;
use sealcast_crypto::hash::sha256;
use sealcast_wire::{CertHash, Monotonic, Now, limits};

use super::certificates::{CredentialKind, Trust};
use super::committing::Wish;
use super::complaints::{About, Complaint, Complaints, Proved};
use super::engine::{self, Engine};
use super::message::Message;
use super::people::People;
use super::scheme::{Mls, Phase, Timer, slot};
use crate::{Output, SendResult, Token};

/// What a member knows of commits that some cannot open.
#[derive(Default)]
pub(super) struct Complained {
    /// The last commits that were judged.
    commits: VecDeque<Judged>,
    /// Good complaints about others than us.
    heard: Complaints,
    /// Ours, until the order has them.
    ours: VecDeque<(Complaint, Option<Token>)>,
    /// Groups in which nobody is but the author of such a commit, and the number of the last data epoch in which we were there.
    deserted: VecDeque<([u8; 32], u32)>,
    /// How many commits we could not open lately, and when the last one was.
    lately: Option<(u32, Monotonic)>,
}

/// A commit that others may complain about.
struct Judged {
    about: About,
    /// Of the data epoch that it ended.
    counter: u32,
    /// The members of the epoch that it ended.
    people: People,
    /// Who complained.
    accusers: BTreeSet<CertHash>,
    /// Whether we could open it.
    opened: bool,
    /// When we judged it.
    at: Monotonic,
}

impl Judged {
    /// Whether all members but the author complained.
    fn is_closed_to_all(&self) -> bool {
        let author = usize::from(self.people.roster.find(&self.about.accused).is_some());
        self.accusers.len() + author >= self.people.members.len()
    }
}

impl<E: Engine> Mls<E> {
    /// A commit of our epoch leads on, and we could open it, so that the engine has followed it, or not.
    pub(super) fn note_commit(&mut self, now: Now, commit: &[u8], by: CertHash, opened: bool) {
        let at = now.monotonic;
        let Some(about) = self.about(commit, by, opened) else { return };
        let Some((counter, people)) = self.inside().map(|it| (it.epoch.counter, it.people.clone())) else { return };
        let commits = &mut self.complained.commits;
        if commits.len() >= limits::MLS_COMMITS_KEPT_MAX {
            // Whether all complain of one that we could not open may come to light only after many others.
            let oldest = commits.iter().position(|it| it.opened).unwrap_or(0);
            commits.remove(oldest);
        }
        let accusers = BTreeSet::new();
        commits.push_back(Judged { about, counter, people, accusers, opened, at });
    }

    /// Names a commit of the engine's epoch, or the one that led to it.
    fn about(&self, commit: &[u8], accused: CertHash, followed: bool) -> Option<About> {
        let context = self.inside()?.engine.context();
        let group_id = context.group_id.try_into().ok()?;
        let epoch = context.epoch.checked_sub(u64::from(followed))?;
        Some(About { group_id, epoch, commit: sha256(commit), accused })
    }

    /// The author of a commit that the engine has followed.
    pub(super) fn author_of(&self, change: &engine::Change) -> Option<CertHash> {
        let inside = self.inside()?;
        if !change.external {
            return inside.members.get(&slot(change.by)).map(|it| it.hash);
        }
        let claim = inside.engine.member(change.by)?;
        self.judge.verify(&claim).ok().map(|it| it.hash)
    }

    /// Others follow a commit, and we cannot: we complain, and come in anew.
    pub(super) fn cannot_open(&mut self, now: Now, commit: &[u8]) {
        let committer = self.inside().and_then(|it| it.engine.committer());
        let by = committer.and_then(|it| self.judge.verify(&it).ok()).map(|it| it.hash);
        if let Some(by) = by.filter(|by| *by != self.me.hash) {
            self.note_commit(now, commit, by, false);
            // Complaints name certificates.
            if self.config.credentials == CredentialKind::X509 {
                self.prepare_complaint(now, commit, by);
            }
        }
        self.come_in_anew(now);
    }

    fn prepare_complaint(&mut self, now: Now, commit: &[u8], accused: CertHash) {
        let Some(about) = self.about(commit, accused, false) else { return };
        let complaint = Complaint::new(&self.group, &self.config.identity, about);
        if self.complained.ours.len() >= limits::MLS_COMMITS_KEPT_MAX {
            self.complained.ours.pop_front();
        }
        self.complained.ours.push_back((complaint.clone(), None));
        // Ours counts for us before it has a position: it gets one sooner or later.
        let accuser = self.me.clone();
        if let Some(judged) = self.complained.commits.iter_mut().find(|it| it.about == about) {
            judged.accusers.insert(accuser.hash);
        }
        self.complained.heard.insert(Proved { complaint, accuser });
        let spread = self.spread();
        let after = self.part_of(spread);
        self.timers.sooner(Timer::Complain, now.monotonic + after);
    }

    /// Has our complaints ordered.
    pub(super) fn complain(&mut self) {
        for index in 0..self.complained.ours.len() {
            if let (complaint, None) = &self.complained.ours[index] {
                let message = Message::Complaint(complaint.clone()).write();
                self.complained.ours[index].1 = self.order(0, &message).pop();
            }
        }
    }

    /// What became of one of ours.
    pub(super) fn complaint_outcome(&mut self, now: Now, token: Token, result: SendResult) {
        let Some(at) = self.complained.ours.iter().position(|(_, of)| *of == Some(token)) else { return };
        match result {
            SendResult::Ordered(_) => _ = self.complained.ours.remove(at),
            SendResult::Accepted => {}
            SendResult::InDoubt | SendResult::Failed => {
                self.complained.ours[at].1 = None;
                let later = self.again(now);
                self.timers.sooner(Timer::Complain, later);
            }
        }
    }

    /// Not all victims come at once, and nobody comes again and again without a pause.
    fn come_in_anew(&mut self, now: Now) {
        let spread = self.spread();
        let lately = self.complained.lately.filter(|(_, last)| now.monotonic.since(*last) < LATELY);
        let count = lately.map_or(0, |(count, _)| count);
        let pause = if count == 0 { Duration::ZERO } else { self.paced(PAUSE) * (1 << (count - 1).min(PAUSES_DOUBLE)) };
        self.complained.lately = Some((count + 1, now.monotonic));
        self.rejoin(now);
        let after = pause + self.part_of(spread + pause);
        self.timers.set(Timer::Want, now.monotonic + after);
    }

    /// The time over which victims spread what they have ordered, as if all members were victims.
    fn spread(&self) -> Duration {
        let members = self.inside().map_or(1, |it| it.members.len());
        let each = self.paced(EACH);
        each.saturating_mul(u32::try_from(members).unwrap_or(u32::MAX)).min(SPREAD_MAX)
    }

    fn part_of(&mut self, time: Duration) -> Duration {
        time.mul_f64(f64::from(self.rng.next_u32()) / f64::from(u32::MAX))
    }

    // ---- what others say -----------------------------------------------------------------------

    /// Somebody outside hears complaints, too: nothing else in the order decides with them.
    pub(super) fn hear_complaints(&mut self, now: Now) {
        let is_one = |message: &Message| matches!(message, Message::Complaint(_));
        while let Some(at) = self.log.waits.iter().position(|(_, message, _)| is_one(message)) {
            if let Some((_, Message::Complaint(complaint), _)) = self.log.waits.remove(at) {
                self.hear_complaint(now, complaint);
            }
        }
    }

    /// A complaint has a position in the order: it counts if its author was a member when that commit came.
    pub(super) fn hear_complaint(&mut self, now: Now, complaint: Complaint) {
        let group = self.group.clone();
        let Some(judged) = self.complained.commits.iter_mut().find(|it| it.about == complaint.about) else { return };
        let Some((at, _)) = judged.people.roster.find(&complaint.accuser()) else { return };
        let Some(accuser) = judged.people.members.get(&at).cloned() else { return };
        if judged.accusers.contains(&accuser.hash) || !complaint.is_by(&group, &accuser) {
            return;
        }
        judged.accusers.insert(accuser.hash);
        let (About { group_id, accused, .. }, counter) = (judged.about, judged.counter);
        let deserts = !judged.opened && judged.is_closed_to_all();
        if accused != self.me.hash {
            self.complained.heard.insert(Proved { complaint, accuser });
        }
        // One that alone complains may be alone with the author: it comes in by that one.
        if deserts && self.complained.heard.exclude(&accused) {
            self.desert(now, group_id, counter);
        } else {
            self.set_turn(now);
        }
    }

    /// Whether somebody is a member whom complaints exclude, and the group context does not yet.
    pub(super) fn is_somebody_accused(&self) -> bool {
        let Some(inside) = self.inside().filter(|_| !self.complained.heard.is_empty()) else { return false };
        let Ok(trust) = self.judge.trust(&inside.engine.context().extensions) else { return false };
        let excluding = self.complained.heard.excluding(|accuser| !trust.excludes(accuser));
        let is_in = |cert: &CertHash| {
            let at = inside.roster.find(cert).map(|(at, _)| at);
            at.and_then(|at| inside.members.get(&at)).is_some_and(|it| !trust.excludes(it))
        };
        excluding.accused().any(is_in)
    }

    /// It is our turn to have the group exclude them.
    pub(super) fn exclude_accused(&mut self, now: Now) {
        if self.is_somebody_accused() {
            self.know_accused();
            self.hold(now);
            self.wish(now, Wish::Exclude);
        }
    }

    /// From now on no group of this name may have for a member whom complaints exclude.
    fn know_accused(&mut self) {
        let complaints = Trust { complaints: self.complained.heard.clone(), ..Trust::new(&self.group) };
        self.know(&complaints);
    }

    /// The last commits of others.
    #[cfg(any(test, feature = "misbehaving"))]
    pub(super) fn commits_of_others(&self) -> Vec<About> {
        let of_others = |it: &&Judged| it.about.accused != self.me.hash;
        self.complained.commits.iter().rev().filter(of_others).take(4).map(|it| it.about).collect()
    }

    // ---- a group without members ---------------------------------------------------------------

    /// Whether nobody may be in a group but the author of a commit that all others complained of.
    pub(super) fn is_deserted(&self, group_id: &[u8]) -> bool {
        self.complained.deserted.iter().any(|(it, _)| it == group_id)
    }

    /// Whether the author of a commit that we could not open shows us a way, and it may come to light yet that nobody else can.
    pub(super) fn is_way_of_author(&self, now: Now, engine: &E, opening: &[u8]) -> bool {
        let claim = E::inspect_group_info(opening).ok().and_then(|it| engine.member(it.by));
        let Some(by) = claim.and_then(|it| self.judge.verify(&it).ok()) else { return false };
        let lasts = self.paced(AUTHOR_AFTER);
        let is_its = |it: &Judged| !it.opened && it.about.accused == by.hash && now.monotonic.since(it.at) < lasts;
        self.complained.commits.iter().any(is_its)
    }

    /// Of a group that we found: 1, or behind the epochs of one that its members left.
    pub(super) fn first_counter(&self) -> u32 {
        let left = self.complained.deserted.back();
        left.map_or(1, |(_, counter)| counter.saturating_add(COUNTERS_APART))
    }

    /// All but one of a group leave it, and found another one.
    fn desert(&mut self, now: Now, group_id: [u8; 32], counter: u32) {
        if self.is_deserted(&group_id) {
            return;
        }
        if self.complained.deserted.len() >= limits::MLS_COMMITS_KEPT_MAX {
            self.complained.deserted.pop_front();
        }
        self.complained.deserted.push_back((group_id, counter));
        self.know_accused();
        let is_in_another = match &self.phase {
            Phase::Inside(inside) => inside.engine.context().group_id != group_id,
            Phase::External(external) => external.engine.context().group_id != group_id,
            Phase::Outside(_) => false,
            Phase::Out => true,
        };
        if is_in_another {
            return;
        }
        if self.pending.take().is_some_and(|it| it.excludes) {
            self.outputs.push_back(Output::Abandoned);
        }
        self.begin_outside(now);
    }
}

/// For each member so much time, over which victims come in anew: some round trips of an external commit.
const EACH: Duration = Duration::from_millis(20);
/// The most of it.
const SPREAD_MAX: Duration = Duration::from_secs(60);
/// A victim that was one before waits so long at least, and twice as long each time.
const PAUSE: Duration = Duration::from_millis(500);
const PAUSES_DOUBLE: u32 = 7;
/// A victim that has opened all commits for so long is as one for the first time.
const LATELY: Duration = Duration::from_secs(600);
/// A victim comes in by the author of the commit only so much later: by then the others have complained, or are away.
const AUTHOR_AFTER: Duration = Duration::from_secs(10);
/// Others may have been in so many epochs more, with the author of the commit, before they left a group.
const COUNTERS_APART: u32 = 1024;
