//! `sealcast group create|pending|admit|join`: how devices come into groups whose members let others in (`keys=mls`).

use std::time::{Duration, Instant};

use sealcast::code::Code;
use sealcast::control::{AdmissionInfo, Client, GroupInfo, PendingInfo};
use sealcast::url::{Join, Scheme, TransportAddress};
use sealcast::{Remedy, Session};
use sealcast_crypto::identity::keytext;
use serde_json::json;

use super::{authority_of, ms};
use crate::commands::Env;
use crate::format::safe;
use crate::hint::{Failure, nearest};
use crate::interrupt;
use crate::session;
use crate::target::Target;
use crate::text::{duration, row, table};

/// Founds the group, and ends: its only member stays one.
pub(super) fn create(env: &Env<'_>) -> Result<(), Failure> {
    let target = at_relay(env)?;
    let session = session::open_to_join(env, &target, Join::Create)?;
    session.ready().wait()?;
    shown(env, session, "created")
}

/// Comes in, and ends: the device stays a member.
pub(super) fn join(env: &Env<'_>, external: bool, timeout: Option<Duration>) -> Result<(), Failure> {
    let target = at_relay(env)?;
    let how = if external { Join::External } else { Join::Wait };
    let session = session::open_to_join(env, &target, how)?;
    let timeout = timeout.or(external.then_some(target.url.options.wait));
    let (start, mut told) = (Instant::now(), false);
    let mut views = session.views();
    while session.view().is_none() {
        if views.next_timeout(STEP).is_some() && session.view().is_none() {
            // Excluded: the error says why.
            session.ready().wait()?;
        }
        if interrupt::asked() {
            return Err(Failure::said(130));
        }
        if let Some(why) = session.ended() {
            return Err(why.into());
        }
        let info = session.info();
        if timeout.is_some_and(|it| start.elapsed() >= it) {
            return Err(match session.transport_trouble() {
                Some(why) => why.into(),
                None => not_in(&info.group, &info.me, external, start.elapsed()),
            });
        }
        if !told && start.elapsed() > TELL_AFTER {
            let (me, group) = (safe(&info.me), safe(&info.group));
            env.output.say(match external {
                true => format!("waiting for a member of {group} that runs"),
                false => format!("waiting to be admitted to {group}: a member types sealcast group admit {me}"),
            });
            told = true;
        }
    }
    shown(env, session, "joined")
}

fn not_in(group: &str, me: &str, external: bool, waited: Duration) -> Failure {
    let waited = duration(waited);
    if external {
        let failure = Failure::new(Code::NotReady, format!("no member of {group} let us in within {waited}"));
        return failure.hint("a member's program must run; or a member types sealcast group admit, and we join later");
    }
    let what = format!("nobody admitted {me} to {group} within {waited}; what members need for it stays at the relay");
    let hint = format!("a member types sealcast group admit {me}, then again: sealcast group join");
    Failure::new(Code::NotReady, what).hint(hint)
}

fn shown(env: &Env<'_>, session: Session, done: &str) -> Result<(), Failure> {
    let info = session.info();
    let (epoch, members) = (info.view.as_ref().map_or(0, |it| it.epoch.counter), info.members().count());
    // What we said last is on its way.
    session.close();
    env.output.object(&json!({ done: info.group, "me": info.me, "epoch": epoch, "members": members }))?;
    let count = format!("{members} {}", if members == 1 { "member" } else { "members" });
    env.output.line(format!("{done} {} as {} · epoch {epoch} · {count}", safe(&info.group), safe(&info.me)))
}

/// A group that outlives its members' programs.
fn at_relay(env: &Env<'_>) -> Result<Target, Failure> {
    let target = Target::of(env)?;
    if target.url.keys != Scheme::Mls || !matches!(target.url.address, TransportAddress::Relay(_)) {
        let what = format!("{}: a group there lasts as long as its members' programs run", target.url);
        let hint = "open a session instead: sealcast sub '#'; groups at a relay last: mqtts://HOST/PREFIX?keys=mls&…";
        return Err(Failure::new(Code::BadPair, what).hint(hint));
    }
    if let Some(mut running) = session::of_target(env, &target)?
        && let Ok(info) = running.show()
        && info.epoch.is_some()
    {
        let what = format!("{} is a member of {} already, by process {}", info.me, info.group, info.pid);
        return Err(Failure::new(Code::AlreadyMember, what).hint("sealcast group show"));
    }
    Ok(target)
}

pub(super) fn pending(env: &Env<'_>, mut client: Client, info: &GroupInfo) -> Result<(), Failure> {
    let all = client.pending()?;
    all.iter().try_for_each(|it| env.output.object(it))?;
    if all.is_empty() {
        env.output.say(format!("no device that waits was heard; one waits by: sealcast group join ({})", info.group));
        return Ok(());
    }
    let mut rows = vec![row(["DEVICE", "CERTIFICATE", "SERIAL", "LAST HEARD"])];
    for it in &all {
        let certificate = it.certificate.chars().take(SHOWN).collect();
        rows.push(vec![safe(&it.name), certificate, it.serial.clone(), format!("{} ago", ms(it.heard_ms))]);
    }
    env.output.line(table(&rows))
}

pub(super) fn admit(
    env: &Env<'_>,
    mut client: Client,
    info: &GroupInfo,
    who: &[String],
    all: bool,
) -> Result<(), Failure> {
    let pending = client.pending()?;
    let mut devices: Vec<Device> = Vec::new();
    if all {
        devices.extend(pending.iter().map(Device::of));
        if devices.is_empty() {
            env.output.say(format!("no device waits to be let into {}", info.group));
            return Ok(());
        }
    }
    for it in who {
        let found = meant(env, info, &pending, it)?;
        devices.extend(found.into_iter().filter(|it| !devices.contains(it)).collect::<Vec<_>>());
    }
    let certs: Vec<String> = devices.iter().map(|it| it.certificate.clone()).collect();
    let admission = client.admit(&certs)?;
    told(env, info, &devices, &admission)
}

/// A device to be let in.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Device {
    name: String,
    certificate: String,
}

impl Device {
    fn of(it: &PendingInfo) -> Device {
        Device { name: it.name.clone(), certificate: it.certificate.clone() }
    }
}

/// The devices that somebody means: those that wait, by name or by the beginning of the certificate; else those to whom the
/// authority on this machine issued a certificate; else the one with this certificate.
fn meant(env: &Env<'_>, info: &GroupInfo, pending: &[PendingInfo], who: &str) -> Result<Vec<Device>, Failure> {
    let is_hex = who.len() >= PREFIX_LEAST && who.chars().all(|it| it.is_ascii_hexdigit());
    let waits: Vec<Device> = pending
        .iter()
        .filter(|it| it.name == who || is_hex && it.certificate.starts_with(&who.to_ascii_lowercase()))
        .map(Device::of)
        .collect();
    if !waits.is_empty() {
        return Ok(waits);
    }
    let is_member = |certificate: &str| info.members.iter().any(|it| it.certificate == certificate);
    let kept = authority_of(env, info);
    let now = crate::text::now();
    let issued: Vec<Device> = kept
        .iter()
        .flat_map(|kept| {
            let ledger = kept.authority.ledger();
            let valid = ledger.valid_of(who, now);
            let of_name = ledger.issued().filter(move |(serial, _)| valid.contains(serial));
            of_name.map(|(_, it)| Device { name: it.name.clone(), certificate: hex::encode(it.hash.0) })
        })
        .filter(|it| !is_member(&it.certificate))
        .collect();
    if !issued.is_empty() {
        return Ok(issued);
    }
    if is_hex && who.len() == 64 && !is_member(who) {
        return Ok(vec![Device { name: who[..SHOWN].to_owned(), certificate: who.to_ascii_lowercase() }]);
    }
    if info.members.iter().any(|it| it.name == who || is_hex && it.certificate.starts_with(who)) {
        let failure = Failure::new(Code::AlreadyMember, format!("{who} is a member of {} already", info.group));
        return Err(failure.hint("sealcast group members"));
    }
    let failure = Failure::new(Code::BadValue, format!("no device named '{who}' waits to be let into {}", info.group));
    Err(match nearest(who, pending.iter().map(|it| it.name.as_str())) {
        Some(better) => failure.hint(format!("did you mean '{better}'?")),
        None => failure.hint("sealcast group pending; a device that is off is named by its certificate's SHA-256"),
    })
}

/// What became of it; who was not let in is the error.
fn told(env: &Env<'_>, info: &GroupInfo, devices: &[Device], it: &AdmissionInfo) -> Result<(), Failure> {
    let name = |certificate: &str| {
        let device = devices.iter().find(|it| it.certificate == certificate);
        device.map_or_else(|| certificate.chars().take(SHOWN).collect(), |it| safe(&it.name))
    };
    env.output.object(it)?;
    if !it.admitted.is_empty() {
        let names: Vec<String> = it.admitted.iter().map(|it| name(it)).collect();
        let took = duration(Duration::from_micros(it.elapsed_micros));
        let (from, to, members) = (it.from, it.to, it.members);
        env.output
            .line(format!("admitted {} · epoch {from} → {to} · {members} members after {took}", names.join(", ")))?;
    }
    let Some((last, others)) = it.refused.split_last() else { return Ok(()) };
    let what = |it: &sealcast::control::RefusedInfo| {
        format!("{} is not in {}: {}", name(&it.certificate), info.group, it.message)
    };
    others.iter().for_each(|it| env.output.warn(what(it)));
    let code = Code::of_number(last.code).unwrap_or(Code::System);
    let failure = Failure::new(code, what(last));
    Err(match code {
        Code::Denied => failure.hint("sealcast ca ls shows its certificate"),
        Code::GroupFull => failure.hint(crate::remedy::typed(&Remedy::MakeRoom)),
        _ => failure.hint(crate::remedy::typed(&Remedy::StartDevice)),
    })
}

/// A member's devices go together.
pub(super) fn evict_all(
    env: &Env<'_>,
    mut client: Client,
    info: &GroupInfo,
    name: &str,
    reason: &str,
) -> Result<(), Failure> {
    let devices: Vec<_> = info.members.iter().filter(|it| it.name == name).collect();
    if devices.iter().any(|it| it.me) {
        let failure = Failure::new(Code::BadValue, format!("{name} is the name of this session itself"));
        return Err(failure.hint("sealcast group leave; another device of that name by its certificate"));
    }
    if devices.is_empty() {
        // The same error as for one device.
        super::member(info, name)?;
    }
    let change = match client.evict_all(name, reason) {
        Err(e) if e.code() == Code::DeniedEvict => {
            let mut last = None;
            for device in &devices {
                let Some(kept) = authority_of(env, info) else {
                    let hint = "somebody with an evict right, or the authority: sealcast ca revoke";
                    return Err(Failure::from(e).hint(hint));
                };
                let now = client.show()?;
                last = Some(super::evict_as_authority(kept, &mut client, &now, device, reason)?);
            }
            last.expect("there is a device")
        }
        other => {
            let change = other?;
            devices.iter().for_each(|it| super::revoke_too(env, info, it));
            change
        }
    };
    let shown: Vec<String> = devices.iter().filter_map(|it| it.key.as_deref().map(keytext::short)).collect();
    env.output.object(&json!({ "evicted": name, "devices": devices.len(), "change": change }))?;
    let count = format!("{} {}", devices.len(), if devices.len() == 1 { "device" } else { "devices" });
    env.output.detail(shown.join(" "));
    env.output.line(format!("evicted {count} of {} · {}", safe(name), super::change_shown(&change)))
}

const STEP: Duration = Duration::from_millis(50);
const TELL_AFTER: Duration = Duration::from_secs(1);
/// Digits of a certificate's hash that are shown, and that name it at least.
const SHOWN: usize = 12;
const PREFIX_LEAST: usize = 6;
