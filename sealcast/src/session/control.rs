//! What a running session answers through its local socket (A7).

use std::sync::{Arc, Weak};
use std::time::Duration;

use sealcast_keys::PendingStatus;
use sealcast_wire::{CertHash, Change as ViewChange, Member, View};

use super::core::LogEvent;
use super::info::told;
use super::{Admission, Inner, Report, Session, Subscription, Who};
use crate::code::Code;
use crate::control::{AdmissionInfo, Answer, Change, Handler, LogLine, PendingInfo, RefusedInfo, Request};
use crate::error::{Error, Result};
use crate::group::ViewEvent;

/// A session as its local socket sees it: it does not keep the session alive.
pub(super) struct Controlled(Weak<Inner>);

impl Controlled {
    pub(super) fn new(inner: &Arc<Inner>) -> Controlled {
        Controlled(Arc::downgrade(inner))
    }
}

impl Handler for Controlled {
    fn handle(&self, request: Request, bytes: Vec<u8>) -> Result<Answer> {
        let session = Session { inner: self.0.upgrade().ok_or_else(Error::closed)? };
        match request {
            Request::Show => Ok(Answer::Show(Box::new(session.inner.shared.group_info()))),
            Request::Log => Ok(Answer::Log(session.log().iter().flat_map(lines).collect())),
            Request::Publish { topic, guarantee, .. } => {
                let mut publish = session.publish(&topic, bytes);
                publish.guarantee = session.inner.shared.guarantee(guarantee.into());
                let published = publish.wait()?;
                // What it gets a place for is waited for only if that was asked for.
                drop(session.flush());
                let others = session.view().map(|view| view.members.len().saturating_sub(1));
                let here = session.inner.shared.wants(&topic);
                Ok(Answer::Published { number: published.number, others, here })
            }
            Request::Rotate => Ok(Answer::Changed(change(&session.rotate().wait()?, None))),
            Request::Primary => Ok(Answer::Ordered { sequencer: session.force_primary().wait()?.name.to_string() }),
            Request::Evict { who, reason, all: true } => {
                Ok(Answer::Changed(change(&session.evict_all(&who, &reason).wait()?, None)))
            }
            Request::Evict { who, reason, all: false } => {
                let who = certificate(&who).map_or(Who::Name(who), Who::Cert);
                let serial = session.serial_of(&who);
                Ok(Answer::Changed(change(&session.evict(who, &reason).wait()?, serial)))
            }
            Request::Pending => Ok(Answer::Pending(session.pending().wait()?.iter().map(waiting).collect())),
            Request::Admit { who } => {
                let who = who.into_iter().map(|it| certificate(&it).map_or(Who::Name(it), Who::Cert));
                let admission = session.admit(who).wait()?;
                let members = session.view().map_or(0, |view| view.members.len());
                Ok(Answer::Admitted(admitted(admission, members)))
            }
            Request::Leave => session.leave().wait().map(|()| Answer::Done),
            Request::Learn { object } => {
                let object = hex::decode(&object)
                    .ok()
                    .ok_or_else(|| Error::new(Code::BadValue, "the object is not in hexadecimal digits"))?;
                session.learn(object).map(|()| Answer::Done)
            }
            Request::Subscribe { .. } => Err(Error::new(Code::Usage, "a subscription is not answered once")),
        }
    }

    fn subscribe(&self, pattern: &str, regex: bool) -> Result<Subscription> {
        let session = Session { inner: self.0.upgrade().ok_or_else(Error::closed)? };
        let subscribe = session.subscribe(pattern);
        if regex { subscribe.regex().wait() } else { subscribe.wait() }
    }
}

fn change(report: &Report, serial: Option<String>) -> Change {
    Change {
        from: report.from.counter,
        to: report.to.counter,
        on_new_key: report.on_new_key,
        members: report.members,
        elapsed_micros: micros(report.elapsed),
        serial,
    }
}

fn waiting(it: &PendingStatus) -> PendingInfo {
    PendingInfo {
        name: it.name.clone(),
        certificate: hex::encode(it.cert.0),
        serial: it.serial.to_string(),
        not_after: it.not_after,
        heard_ms: millis(it.heard),
    }
}

fn admitted(it: Admission, members: usize) -> AdmissionInfo {
    let refused = |(cert, why): (CertHash, _)| {
        let error = Error::from(why);
        let (code, message) = (error.code().number(), error.message().to_owned());
        RefusedInfo { certificate: hex::encode(cert.0), code, message }
    };
    AdmissionInfo {
        from: it.from.counter,
        to: it.to.counter,
        members,
        admitted: it.admitted.iter().map(|cert| hex::encode(cert.0)).collect(),
        refused: it.refused.into_iter().map(refused).collect(),
        elapsed_micros: micros(it.elapsed),
    }
}

fn lines(entry: &super::info::LogEntry) -> Vec<LogLine> {
    let line =
        |epoch, event: &str, what: String| LogLine { at_micros: entry.at_micros, epoch, event: event.to_owned(), what };
    match &entry.event {
        LogEvent::View(ViewEvent::Excluded(why)) => vec![line(None, "excluded", Error::excluded(why).to_string())],
        LogEvent::View(ViewEvent::Changed { view, joined, left }) => {
            let epoch = Some(view.epoch.counter);
            let gone = match view.change {
                ViewChange::Evicted => "evicted",
                ViewChange::Suspected => "silent",
                ViewChange::Slow => "slow",
                _ => "left",
            };
            let all = || view.members.iter().chain(left);
            let named = |m: &Member| match all().all(|it| it.name != m.name || it.id.cert == m.id.cert) {
                true => m.name.to_string(),
                false => m.id.cert.beside(&m.name),
            };
            let mut lines: Vec<LogLine> = joined.iter().map(|m| line(epoch, "joined", named(m))).collect();
            lines.extend(left.iter().map(|m| line(epoch, gone, named(m))));
            if lines.is_empty() {
                lines.push(line(epoch, "rekeyed", summary(view)));
            }
            lines
        }
        LogEvent::View(ViewEvent::Gap { from }) => {
            vec![line(None, "gap", format!("messages of {} that were promised never come", from.name))]
        }
        LogEvent::View(ViewEvent::Missed { from, until }) => {
            vec![line(None, "gap", format!("positions {from} to {until} of the order are not kept any more"))]
        }
        LogEvent::View(ViewEvent::Stale { silent }) => {
            let what = match silent {
                Some(silent) => format!("nobody else was heard for {} s", silent.as_secs()),
                None => "others are heard again".to_owned(),
            };
            vec![line(None, "stale", what)]
        }
        LogEvent::View(ViewEvent::Order { sequencer, is_settled, forced, gap, term, .. }) => {
            let missed =
                gap.then(|| line(None, "gap", "ordered messages were delivered elsewhere and not here".to_owned()));
            let told = match sequencer {
                Some(member) => {
                    let forced = if *forced { "; this part was made primary by force" } else { "" };
                    Some(line(None, "order", format!("{} is the sequencer of term {term}{forced}", member.name)))
                }
                None if *is_settled => Some(line(None, "order", "not in the primary component".to_owned())),
                None => None,
            };
            missed.into_iter().chain(told).collect()
        }
        LogEvent::Notice { notice, about } => vec![line(None, "notice", told(notice, about.as_deref()))],
    }
}

fn summary(view: &View) -> String {
    let n = view.members.len();
    format!("{n} {}", if n == 1 { "member" } else { "members" })
}

/// A certificate's hash, if that is what the text is.
fn certificate(text: &str) -> Option<CertHash> {
    Some(CertHash(hex::decode(text).ok()?.try_into().ok()?))
}

pub(super) fn micros(d: Duration) -> u64 {
    u64::try_from(d.as_micros()).unwrap_or(u64::MAX)
}

pub(super) fn millis(d: Duration) -> u64 {
    u64::try_from(d.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_named_by_all_of_its_hash() {
        let hash = CertHash([0xAB; 32]);
        assert_eq!(certificate(&"ab".repeat(32)), Some(hash));
        for name in ["carol", "ab", &"ab".repeat(31), &"zz".repeat(32), &"é".repeat(32)] {
            assert_eq!(certificate(name), None, "{name}");
        }
    }
}
