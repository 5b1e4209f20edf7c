//! What can be seen of a session and its group: figures, members, the log.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sealcast_crypto::identity::PublicKeys;
use sealcast_keys::{CompartmentStatus, Exclusion, MemberStatus, Misbehaviour, Notice, Status, TreeStatus};
use sealcast_wire::{self as wire, Agreement, CertHash, Culprit, Drops, Member, Monotonic, View};

use super::control::millis;
use super::core::LogEvent;
use super::shared::Shared;
#[cfg(feature = "brokers")]
use super::transports::BrokersInfo;
use super::transports::{Carrier, TxQueue};
use crate::code::Code;
use crate::control::{CompartmentInfo, GroupInfo, MemberInfo, OrderInfo, SlowestInfo, TreeInfo};
use crate::error::Error;
use crate::group::lock;
use crate::url::{OriginMode, Scheme, Url};

/// A line of a group's log.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogEntry {
    /// Microseconds since 1970.
    pub at_micros: u64,
    /// What happened.
    pub event: LogEvent,
}

/// What a session has done and seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Messages published.
    pub published: u64,
    /// Messages delivered to at least one subscription.
    pub delivered: u64,
    /// Messages that readers were too slow for.
    pub missed: u64,
    /// Datagrams handed to the kernel.
    pub sent_datagrams: u64,
    /// Sends that the kernel refused.
    pub failed_sends: u64,
    /// Receiving calls that the kernel refused.
    pub failed_receives: u64,
    /// Publications that brokers executed to nothing, or that came to nothing under way.
    pub refused: u64,
    /// What was dropped, by reason.
    pub drops: Drops,
}

/// What is known of a group.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Info {
    /// Where, and how.
    pub url: Url,
    /// Its name.
    pub group: String,
    /// Our own name.
    pub me: String,
    /// Who holds the keys.
    pub keys: Scheme,
    /// When origins are signed.
    pub origin: OriginMode,
    /// The installed membership.
    pub view: Option<Arc<View>>,
    /// How long it has been installed.
    pub age: Duration,
    /// Where one member orders: who does, if anybody does here.
    pub order: Option<Option<Member>>,
    /// The number of the primary view that we were in last; 0: of none.
    pub term: u64,
    /// Members heard on this key, and all of them.
    pub on_new_key: (usize, usize),
    /// Whether publishing is paused by a change of key.
    pub paused: bool,
    /// Why we are out, if so.
    pub excluded: Option<Exclusion>,
    /// For how long nobody else was heard, if that is too long (D2).
    pub silent: Option<Duration>,
    /// Per member: how long ago it was last heard; by slot, `None` if never in this epoch.
    pub last_heard: Vec<Option<Duration>>,
    /// Where it stands with the brokers, if it goes through any.
    #[cfg(feature = "brokers")]
    pub brokers: Option<BrokersInfo>,
}

impl Info {
    /// The members with their places.
    pub fn members(&self) -> impl Iterator<Item = &Member> {
        self.view.iter().flat_map(|v| &v.members)
    }
}

impl Shared {
    pub(super) fn info(&self) -> Info {
        let now = self.clock.monotonic();
        let (on_new_key, last_heard) = self.driver_lock.with(self, |driver| {
            let Some(d) = driver.as_ref() else { return Default::default() };
            (d.core.group().on_new_key(), d.core.group().last_heard(now))
        });
        let paused = lock(&self.gate).is_paused();
        let seen = lock(&self.seen);
        Info {
            url: self.url.clone(),
            group: self.group_name.clone(),
            me: self.me.clone(),
            keys: self.url.keys,
            origin: self.url.options.origin,
            view: seen.view.clone(),
            age: now.since(seen.installed_at),
            order: seen.order.clone().map(|it| it.sequencer),
            term: seen.order.as_ref().map_or(0, |it| it.term),
            on_new_key,
            paused,
            excluded: seen.excluded.clone(),
            silent: seen.silent.map(|(before, at)| before + now.since(at)),
            last_heard,
            #[cfg(feature = "brokers")]
            brokers: self.brokers.as_ref().map(|it| it.lock().info()),
        }
    }

    pub(super) fn stats(&self) -> Stats {
        let tx_queue = |of: fn(&TxQueue) -> u64| self.tx_queue.as_deref().map_or(0, of);
        let tickets = self.tickets();
        Stats {
            published: tickets.published + self.published.load(Ordering::Relaxed),
            delivered: self.delivered.load(Ordering::Relaxed),
            missed: self.missed.load(Ordering::Relaxed),
            sent_datagrams: tx_queue(TxQueue::sent_datagrams),
            failed_sends: tx_queue(TxQueue::failed_sends),
            failed_receives: self.failed_receives.load(Ordering::Relaxed),
            refused: tickets.refused,
            drops: self.drops(),
        }
    }

    /// How much waits to be acknowledged, and for whom.
    fn flow(&self) -> OrderInfo {
        let Some(flow) = self.tx_queue.as_deref().and_then(TxQueue::flow) else { return OrderInfo::default() };
        let view = lock(&self.seen).view.clone();
        let slowest = flow.slowest.and_then(|(slot, lag)| Some((view?.member(slot)?.name.to_string(), lag)));
        OrderInfo {
            backlog_bytes: flow.waiting as u64,
            backlog_bytes_max: flow.most as u64,
            window_bytes: flow.window as u64,
            slowest: slowest.map(|(name, behind)| SlowestInfo { name, behind }),
            ..OrderInfo::default()
        }
    }

    fn tree(&self, known: TreeStatus) -> TreeInfo {
        let TreeStatus { suite, nodes, blanks_above, position } = known;
        let now = self.clock.monotonic();
        let heard = self.carrier().and_then(|it| it.heard);
        TreeInfo {
            suite: suite.to_owned(),
            nodes,
            blanks_above,
            forkable: self.transport.ordered.is_some_and(|it| it.agreement == Agreement::Forkable),
            position,
            heard_ms: heard.map(|at| millis(now.since(at))),
        }
    }

    /// What carries the group, where that is one that can fail.
    fn carrier(&self) -> Option<Carrier> {
        self.driver_lock.with(self, |driver| driver.as_ref()?.shell.carrier())
    }

    /// Why no messages come now. A broker that refuses a publication of ours may deliver those of others, so that is left out.
    pub(super) fn trouble(&self) -> Option<Error> {
        self.carrier()?.trouble.filter(|it| it.code() != Code::DeniedPublish)
    }

    fn drops(&self) -> Drops {
        let drops = self.driver_lock.with(self, |driver| driver.as_ref().map(|d| d.core.group().drops().clone()));
        drops.unwrap_or_else(|| lock(&self.seen).past.drops.clone())
    }

    /// What happened, oldest first.
    pub(super) fn log(&self) -> Vec<LogEntry> {
        let entry = |(at, event): &(Monotonic, LogEvent)| LogEntry {
            at_micros: self.clock.wall_micros(*at),
            event: event.clone(),
        };
        let log =
            self.driver_lock.with(self, |driver| driver.as_ref().map(|d| d.core.log().iter().map(entry).collect()));
        log.unwrap_or_else(|| lock(&self.seen).past.log.iter().map(entry).collect())
    }

    /// What the key scheme knows.
    pub(super) fn status(&self) -> Option<Status> {
        let now = self.clock.now();
        self.driver_lock.with(self, |driver| driver.as_mut()?.describe(self, now))
    }

    /// What the local socket shows.
    pub(super) fn group_info(&self) -> GroupInfo {
        let (info, stats, flow) = (self.info(), self.stats(), self.flow());
        let mut shown = GroupInfo {
            group: info.group,
            url: info.url.to_string(),
            me: info.me,
            pid: std::process::id(),
            one_shot: self.one_shot,
            keys: info.keys.name().to_owned(),
            cipher: self.url.cipher_name().to_owned(),
            origin: match info.origin {
                OriginMode::Auto => "auto",
                OriginMode::Signed => "signed",
                OriginMode::Mac => "mac",
            }
            .to_owned(),
            epoch: info.view.as_ref().map(|v| v.epoch.counter),
            epoch_hash: info.view.as_ref().map(|v| format!("{:016x}", v.epoch.hash)),
            age_ms: millis(info.age),
            paused: info.paused,
            order: info.order.map(|sequencer| OrderInfo {
                sequencer: sequencer.map(|it| it.name.to_string()),
                term: info.term,
                ..flow
            }),
            silent_ms: info.silent.map(millis),
            excluded: info.excluded.as_ref().map(|why| Error::excluded(why).to_string()),
            authority: self.identity.as_ref().map(|i| i.authority().to_string()),
            has_bootstrap_key: self.url.keys == Scheme::Center
                || self.identity.as_ref().is_some_and(|i| i.has_bootstrap_key(&self.group_name)),
            warnings: lock(&self.seen).warnings.iter().map(|w| format!("{}: {}", w.what, w.hint)).collect(),
            ..GroupInfo::default()
        };
        let mut heard = info.last_heard.iter();
        shown.members = info
            .view
            .iter()
            .flat_map(|view| view.members.slots().map(|(slot, m)| (slot == view.me, m)))
            .map(|(me, m)| MemberInfo {
                name: m.name.to_string(),
                certificate: hex::encode(m.id.cert.0),
                last_heard_ms: heard.next().copied().flatten().filter(|_| !me).map(millis),
                me,
                ..MemberInfo::default()
            })
            .collect();
        if let Some(status) = self.status() {
            shown.rotates_in_ms = status.rotates_in.map(millis);
            for (member, known) in shown.members.iter_mut().zip(&status.members) {
                describe(member, known, &shown.group);
            }
            shown.compartments = status.compartments.into_iter().map(compartment).collect();
            shown.tree = status.tree.map(|it| self.tree(it));
        }
        if let Some(why) = self.carrier().and_then(|it| it.trouble) {
            shown.warnings.push(format!("{why} [{}]", why.code()));
        }
        let counters = [
            ("published", stats.published),
            ("delivered", stats.delivered),
            ("missed", stats.missed),
            ("sent datagrams", stats.sent_datagrams),
            ("failed sends", stats.failed_sends),
            ("failed receives", stats.failed_receives),
        ];
        shown.counters = counters.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect();
        shown.counters.extend(stats.drops.iter().map(|(why, n)| (format!("dropped {why}"), n)));
        shown
    }
}

/// What a member's certificate says.
fn describe(member: &mut MemberInfo, known: &MemberStatus, group: &str) {
    member.serial = Some(known.serial.to_string());
    member.key = known.sealing.map(|sealing| PublicKeys { signing: known.key.clone(), sealing }.to_string());
    member.attributes = known.attributes.iter().map(|a| format!("{}={}", a.key, a.value)).collect();
    member.x25519 = known.exchanges;
    member.since_epoch = Some(known.since);
    member.publishes = known.rights.publishes(group).map(|p| p.to_string()).collect();
    member.subscribes = known.rights.subscribes(group).map(|p| p.to_string()).collect();
}

fn compartment(known: CompartmentStatus) -> CompartmentInfo {
    let CompartmentStatus { domain: _, name, patterns, readers, writers_only, signed } = known;
    CompartmentInfo { name, patterns, readers, writers_only, signed }
}

/// A notice as a person reads it; `about` names the member that it is about.
pub(super) fn told(notice: &Notice, about: Option<&str>) -> String {
    let who = |cert: &CertHash| about.map_or_else(|| cert.short(), str::to_owned);
    match notice {
        Notice::Attempt { counter, attempt, members } => {
            format!("agreeing on epoch {counter}, attempt {attempt}, with {members} members")
        }
        Notice::LeftOut { cert, why } => format!("left out {}: {}", who(cert), said(*why)),
        Notice::Eviction { cert, number, reason, by } => {
            format!("{by} evicts {} (statement {number}): {reason}", who(cert))
        }
        Notice::Expires { cert, seconds } => {
            format!("the certificate of {} ends in {} h", who(cert), seconds / 3600)
        }
        Notice::StaleCrl => "the revocation list is older than the policy allows".to_owned(),
        Notice::Evidence(wire::Evidence { against: Culprit::Broker(number), .. }) => {
            format!("broker {number} signed a false share")
        }
        Notice::Evidence(wire::Evidence { against: Culprit::Publisher { client, number }, .. }) => {
            format!("publication {number} of {} opens to nothing", hex::encode(&client[..6]))
        }
        Notice::OtherVersion { cert, theirs, ours } => {
            let list = |of: &[u8]| of.iter().map(u8::to_string).collect::<Vec<_>>().join(", ");
            let age = if theirs.iter().max() < ours.iter().min() { "too old" } else { "of another version" };
            let whose = cert.as_ref().map_or_else(|| "somebody's".to_owned(), |cert| format!("{}'s", who(cert)));
            format!("{whose} program is {age}: it speaks {} of the wire, ours {}", list(theirs), list(ours))
        }
        Notice::OtherChannels { cert, reliable } => {
            let (theirs, ours) =
                if *reliable { ("order=total", "order=best-effort") } else { ("order=best-effort", "order=total") };
            format!("{}'s URL says {theirs}, ours {ours}: both must say the same to be in one group", who(cert))
        }
        Notice::OtherForm { private_messages } => {
            let (theirs, ours) = if *private_messages { ("data=mls", "does not") } else { ("no data=mls", "does") };
            format!("there is a group whose members say {theirs}, and our URL {ours}: we do not join it")
        }
        Notice::GroupFull { cert, is_us: false, most } => {
            format!("{} is not let in: the group has its {most} members", who(cert))
        }
        Notice::GroupFull { most, is_us: true, .. } => {
            format!("we are not let in: the group has its {most} members")
        }
        Notice::NotAdmitted { cert, why } => format!("{} is not let in: {why}", who(cert)),
        Notice::StolenToken { cert } => {
            format!("somebody without the key of {0} used the token given to {0}, and is not let in", who(cert))
        }
        Notice::RemovalWithheld { cert } => format!(
            "{} is evicted and still a member: the relay may be withholding its removal, and nothing is published before",
            who(cert)
        ),
        Notice::KdcRefuses(why) => format!("the centre at kdc= refuses: {why}"),
        Notice::OtherPart { epoch } => format!("another part of the group is heard, in epoch {}", epoch.counter),
    }
}

/// Why somebody was left out.
fn said(why: Misbehaviour) -> &'static str {
    match why {
        Misbehaviour::Silent => "it is silent",
        Misbehaviour::Slow => "all wait for it, and it takes too little (slow=)",
        Misbehaviour::Equivocation => "it sent two different messages where one belongs",
        Misbehaviour::WrongValue => "it sent a wrong value",
        Misbehaviour::Rights => "its rights do not allow what it did",
        Misbehaviour::Version => "it said that others speak less of the wire than they do",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_names_its_member_and_shows_the_hash_of_whom_it_does_not_know() {
        let cert = CertHash([0xAB; 32]);
        let silent = Notice::LeftOut { cert, why: Misbehaviour::Silent };
        assert_eq!(told(&silent, Some("carol")), "left out carol: it is silent");
        assert_eq!(told(&silent, None), "left out abababababab: it is silent");
        let stolen = told(&Notice::StolenToken { cert }, Some("carol"));
        assert_eq!(stolen, "somebody without the key of carol used the token given to carol, and is not let in");
        let evicts = Notice::Eviction { cert, number: 1, reason: "lost".to_owned(), by: "desk".to_owned() };
        assert_eq!(told(&evicts, Some(&cert.beside("carol"))), "desk evicts carol (abababababab) (statement 1): lost");
    }
}
