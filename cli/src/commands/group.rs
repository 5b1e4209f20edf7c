//! `sealcast group`: what a running session knows and can do, asked over its local socket (A7).

mod admission;

use std::time::Duration;

use clap::{Args, Subcommand};
use sealcast::code::Code;
use sealcast::config::{Home, Overwrite};
use sealcast::control::{Change, Client, GroupInfo, MemberInfo, TreeInfo, running};
use sealcast::url::{TransportAddress, Url};
use sealcast_crypto::identity::keytext;
use sealcast_wire::{CertHash, Utc};
use serde_json::json;

use super::Env;
use crate::authority::KeptAuthority;
use crate::format::safe;
use crate::hint::Failure;
use crate::session::meant;
use crate::text::{duration, parse_duration, row, stale, table};

/// Your group: members, keys, log; create, join, admit, rotate, evict, leave
#[derive(Debug, Args)]
#[command(
    disable_help_subcommand = true,
    after_help = "\
All but create and join ask a session that runs, for example sealcast sub '#' in another terminal.

Examples:
  sealcast group show
  sealcast group members --json | jq -r .name
  sealcast group join                            in a group at a relay; a member types:
  sealcast group admit carol
  sealcast group evict carol --reason 'lost laptop'"
)]
pub(crate) struct Group {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Epoch, keys, the members, and which topics share a key
    Show,
    /// The members only
    Members,
    /// What happened, newest last
    Log {
        /// Only the last lines
        #[arg(short = 'n', long, value_name = "N")]
        lines: Option<usize>,
    },
    /// Found a group at a relay; fails if there is one
    Create,
    /// Come into a group at a relay, once a member has admitted this device
    Join {
        /// Come in without being admitted, by a member's program that runs
        #[arg(long)]
        external: bool,
        /// Wait no longer than this, such as 30s or 1h; without --external there is no limit if this is not given
        #[arg(long, value_name = "TIME", value_parser = parse_duration)]
        timeout: Option<Duration>,
    },
    /// The devices that wait to be admitted
    Pending,
    /// Let devices into the group, all of them with one change of key
    Admit {
        /// Names of devices, or (the beginning of) their certificates' SHA-256; one that is off comes in later
        #[arg(required_unless_present = "all", value_name = "NAME|FINGERPRINT")]
        who: Vec<String>,
        /// All devices that wait
        #[arg(long, conflicts_with = "who")]
        all: bool,
    },
    /// Agree on a new key now
    Rotate,
    /// Let those who are here order again, though most of the group are gone for good (order=total)
    Primary {
        /// If they are not gone, two parts may go on with two orders
        #[arg(long)]
        force: bool,
    },
    /// Exclude a member for good; the others agree on a key without it
    Evict {
        /// Its name, or the beginning of its certificate's SHA-256
        member: String,
        /// For the log of every member
        #[arg(long, default_value = "", hide_default_value = true)]
        reason: String,
        /// All devices that have this name, with one change of key
        #[arg(long)]
        all_devices: bool,
    },
    /// Leave the group; the running session ends
    Leave,
}

impl Group {
    pub(crate) fn run(self, env: &Env<'_>) -> Result<(), Failure> {
        match self.verb {
            Verb::Create => return admission::create(env),
            Verb::Join { external, timeout } => return admission::join(env, external, timeout),
            _ => {}
        }
        let (client, info) = meant(env)?;
        match self.verb {
            Verb::Create | Verb::Join { .. } => unreachable!("they ask no session"),
            Verb::Pending => admission::pending(env, client, &info),
            Verb::Admit { who, all } => admission::admit(env, client, &info, &who, all),
            Verb::Show => show(env, &info),
            Verb::Members => members(env, &info),
            Verb::Log { lines } => log(env, client, lines),
            Verb::Rotate => rotate(env, client),
            Verb::Primary { force } => primary(env, client, &info, force),
            Verb::Evict { member, reason, all_devices: true } => {
                admission::evict_all(env, client, &info, &member, &reason)
            }
            Verb::Evict { member, reason, all_devices: false } => evict(env, client, &info, &member, &reason),
            Verb::Leave => leave(env, client, &info),
        }
    }
}

fn show(env: &Env<'_>, info: &GroupInfo) -> Result<(), Failure> {
    let not_primary = info.order.as_ref().is_some_and(|it| it.sequencer.is_none());
    let mut object = info.clone();
    object.warnings.extend(not_primary.then(|| NOT_PRIMARY.to_owned()));
    env.output.object(&object)?;
    let place = place(&info.url);
    let epoch = match (info.epoch, &info.epoch_hash) {
        (Some(n), Some(hash)) => format!("epoch {n} (0x{}…)   age {}", &hash[..hash.len().min(4)], ms(info.age_ms)),
        _ => "no key agreed yet".to_owned(),
    };
    let rotates = info.rotates_in_ms.map(|t| format!("   rotates in {}", ms(t))).unwrap_or_default();
    env.output.line(env.output.bold(format!("{}   {place}   {epoch}{rotates}", safe(&info.group))))?;
    let exchanging = info.members.iter().filter(|it| it.x25519).count();
    let scheme = match info.keys.as_str() {
        "contributory" => "contributory (Dutta-Barua, ristretto255)".to_owned(),
        "center" if exchanging < 2 => "center (Leighton-Micali, symmetric)".to_owned(),
        "center" if exchanging == info.members.len() => "center (Leighton-Micali, and X25519)".to_owned(),
        "center" => {
            let all = info.members.len();
            format!("center (Leighton-Micali, symmetric; and X25519 among {exchanging} of {all} members)")
        }
        other => match &info.tree {
            Some(tree) => format!("{other} ({})", tree.suite),
            None => other.to_owned(),
        },
    };
    let origin = match info.origin.as_str() {
        "auto" => "auto (signed where a reader may not write; elsewhere any reader could have written)",
        "mac" => "mac (never signed: any reader could have written)",
        other => other,
    };
    // A recorder of a symmetric group gains nothing by a quantum computer; its signatures can be forged then.
    let quantum = if info.keys == "center" { "keys" } else { "NO" };
    let cipher = &info.cipher;
    env.output.line(format!("keys    {scheme}   sealed {cipher}   origin: {origin}   post-quantum: {quantum}"))?;
    if !info.has_bootstrap_key {
        let what = "! names are hidden only from those who do not know the authority: this group has no bootstrap key";
        env.output.line(what)?;
    }
    if info.paused {
        env.output.line("! a change of key is going on: publishing waits for it")?;
    }
    if let Some(silent) = info.silent_ms {
        env.output.line(format!("! {}", stale(Duration::from_millis(silent))))?;
    }
    match info.order.as_ref().map(|it| &it.sequencer) {
        Some(Some(name)) => {
            let term = info.order.as_ref().map_or(0, |it| it.term);
            env.output.line(format!("order   total   sequencer: {}   term: {term}", safe(name)))?;
        }
        Some(None) => env.output.line(format!("! {NOT_PRIMARY}"))?,
        None => {}
    }
    if let Some(tree) = &info.tree {
        let TreeInfo { nodes, blanks_above, position, .. } = tree;
        let whether = if tree.forkable { "who keeps it can fork it, and is found out" } else { "it cannot fork" };
        let heard = tree.heard_ms.map(|it| format!("   directory answered {} ago", ms(it))).unwrap_or_default();
        env.output.line(format!("order   total: {whether}   log position: {position}{heard}"))?;
        env.output.line(format!("tree    {nodes} nodes   blank above us: {blanks_above}"))?;
    }
    if let Some(order) = &info.order {
        let (waiting, most) = (order.backlog_bytes.div_ceil(1024), order.backlog_bytes_max.div_ceil(1024));
        let slowest = order.slowest.as_ref().map_or_else(
            || "slowest: nobody is waited for".to_owned(),
            |it| format!("slowest: {}, {} records behind", safe(&it.name), it.behind),
        );
        env.output.line(format!("backlog {waiting} of {most} KiB   {slowest}"))?;
    }
    if let Some(why) = &info.excluded {
        env.output.line(format!("x this session is out of the group: {}", safe(why)))?;
    }
    env.output.line(members_table(info))?;
    if !info.compartments.is_empty() {
        env.output.line(String::new())?;
        env.output.line(compartments_table(info))?;
    }
    for warning in &info.warnings {
        env.output.warn(warning);
    }
    Ok(())
}

fn members(env: &Env<'_>, info: &GroupInfo) -> Result<(), Failure> {
    info.members.iter().try_for_each(|m| env.output.object(m))?;
    env.output.line(members_table(info))
}

fn members_table(info: &GroupInfo) -> String {
    let mut rows = vec![row(["MEMBER", "KEY", "ATTRS", "SINCE", "KEY AGE", "LAST SEEN", "PUB / SUB"])];
    for m in &info.members {
        let key = m.key.as_ref().map_or_else(|| m.certificate.chars().take(8).collect(), |k| keytext::short(k));
        let seen = if m.me { "me".to_owned() } else { m.last_heard_ms.map_or("-".to_owned(), ms) };
        rows.push(vec![
            safe(&m.name),
            key,
            if m.attributes.is_empty() { "-".to_owned() } else { safe(&m.attributes.join(" ")) },
            m.since_epoch.map_or("-".to_owned(), |e| format!("epoch {e}")),
            ms(m.age_ms.unwrap_or(info.age_ms)),
            seen,
            format!("{} / {}", m.publishes.len(), m.subscribes.len()),
        ]);
    }
    table(&rows)
}

fn compartments_table(info: &GroupInfo) -> String {
    let names = |places: &[usize]| -> String {
        if places.len() == info.members.len() {
            return "all".to_owned();
        }
        let names: Vec<String> = places.iter().filter_map(|p| info.members.get(*p)).map(|m| safe(&m.name)).collect();
        if names.is_empty() { "-".to_owned() } else { names.join(" ") }
    };
    let mut rows = vec![row(["COMPARTMENT", "TOPICS", "READERS", "WRITE ONLY", "ORIGIN"])];
    for c in &info.compartments {
        rows.push(vec![
            safe(&c.name),
            safe(&c.patterns.join(" ")),
            names(&c.readers),
            names(&c.writers_only),
            if c.signed { "signed" } else { "any reader" }.to_owned(),
        ]);
    }
    table(&rows)
}

fn log(env: &Env<'_>, mut client: Client, lines: Option<usize>) -> Result<(), Failure> {
    let all = client.log()?;
    let skip = lines.map_or(0, |n| all.len().saturating_sub(n));
    let mut rows = vec![];
    for line in &all[skip..] {
        env.output.object(line)?;
        rows.push(vec![
            line.epoch.map_or("-".to_owned(), |e| e.to_string()),
            clock(line.at_micros),
            line.event.clone(),
            safe(&line.what),
        ]);
    }
    if rows.is_empty() {
        env.output.say("nothing happened yet");
        return Ok(());
    }
    env.output.line(table(&rows))
}

fn rotate(env: &Env<'_>, mut client: Client) -> Result<(), Failure> {
    let change = client.rotate()?;
    env.output.object(&change)?;
    env.output.line(format!("rotated · {}", change_shown(&change)))
}

fn primary(env: &Env<'_>, mut client: Client, info: &GroupInfo, force: bool) -> Result<(), Failure> {
    match info.order.as_ref().map(|it| &it.sequencer) {
        None => {
            let failure = Failure::new(Code::BadPair, "no member orders in this group");
            return Err(failure.hint("order=total in all members' URLs, over multicast"));
        }
        Some(Some(name)) => return env.output.line(format!("messages are ordered here already, by {}", safe(name))),
        Some(None) if !force => {
            let what =
                "this part of the group is not primary; if the others go on elsewhere, there would be two orders";
            return Err(Failure::new(Code::Usage, what).hint("--force, if they are gone for good"));
        }
        Some(None) => {}
    }
    let sequencer = client.force_primary()?;
    env.output.object(&json!({ "forced": info.group, "sequencer": sequencer }))?;
    env.output.line(format!("{} orders again, by {}", safe(&info.group), safe(&sequencer)))
}

/// By our own right, or, on the authority's machine, by the authority's.
fn evict(env: &Env<'_>, mut client: Client, info: &GroupInfo, who: &str, reason: &str) -> Result<(), Failure> {
    let member = member(info, who)?;
    if member.me {
        let failure = Failure::new(Code::BadValue, format!("{} is this session itself", member.name));
        return Err(failure.hint("sealcast group leave"));
    }
    let evicted = client.evict(&member.certificate, reason);
    let change = match evicted {
        Err(e) if e.code() == Code::DeniedEvict => match authority_of(env, info) {
            Some(kept) => evict_as_authority(kept, &mut client, info, member, reason)?,
            None if info.keys == "center" => {
                let name = &member.name;
                let hint = format!("somebody with an evict right; or, where the centre is: sealcast kdc revoke {name}");
                return Err(Failure::from(e).hint(hint));
            }
            None => {
                return Err(Failure::from(e).hint("somebody with an evict right, or the authority: sealcast ca revoke"));
            }
        },
        // The statement may be out, though its session ended or was too slow to say so: the authority's ledger knows of it all
        // the same, or the certificate would be as good as ever to whoever was not there.
        Err(e) if matches!(e.code(), Code::Closed | Code::TimedOut) => {
            revoke_too(env, info, member);
            return Err(Failure::from(e).hint("sealcast group members; if it is still there, evict it again"));
        }
        other => {
            let change = other?;
            revoke_too(env, info, member);
            change
        }
    };
    let serial = change.serial.clone().or(member.serial.clone());
    env.output.object(&json!({ "evicted": member.name, "serial": serial, "change": change }))?;
    let what = serial.map_or(format!("evicted {}", safe(&member.name)), |s| format!("revoked certificate #{s}"));
    env.output.line(format!("{what} · {}", change_shown(&change)))
}

/// The one member that a name or the beginning of a certificate's hash means.
fn member<'a>(info: &'a GroupInfo, who: &str) -> Result<&'a MemberInfo, Failure> {
    let named: Vec<&MemberInfo> = info.members.iter().filter(|m| m.name == who).collect();
    let hashed = info.members.iter().filter(|m| who.len() >= 6 && m.certificate.starts_with(who));
    let all = if named.is_empty() { hashed.collect() } else { named };
    match all.as_slice() {
        [one] => Ok(one),
        [] => {
            let failure = Failure::new(Code::BadValue, format!("no member of {} is named '{who}'", info.group));
            // An eviction cannot be taken back: a name that is near is nobody to propose.
            Err(failure.hint("sealcast group members; for somebody who is not here: sealcast ca revoke"))
        }
        several => {
            let hashes: Vec<&str> = several.iter().map(|m| &m.certificate[..m.certificate.len().min(12)]).collect();
            let failure = Failure::new(Code::BadValue, format!("{} members are named '{who}'", several.len()));
            Err(failure.hint(format!("sealcast group evict {}; --all-devices for all of them", hashes.join(" or "))))
        }
    }
}

/// The group's authority, if its key is on this machine.
fn authority_of(env: &Env<'_>, info: &GroupInfo) -> Option<KeptAuthority> {
    let fingerprint = info.authority.as_ref()?;
    let names = env.home.authorities();
    let mut all = names.iter().filter_map(|name| KeptAuthority::open(&env.home, name).ok());
    all.find(|kept| kept.authority.fingerprint().to_string() == *fingerprint)
}

fn evict_as_authority(
    mut kept: KeptAuthority,
    client: &mut Client,
    info: &GroupInfo,
    member: &MemberInfo,
    reason: &str,
) -> Result<Change, Failure> {
    let damaged = || Failure::new(Code::System, "the session's answer about the member cannot be read");
    let certificate = certificate_of(member).ok_or_else(damaged)?;
    let issued = kept.authority.ledger().issued().find(|(_, i)| i.hash == certificate).map(|(s, _)| *s);
    let serial = issued
        .ok_or_else(|| Failure::new(Code::Missing, format!("{} has no certificate of this authority", member.name)))?;
    let statement = kept.authority.evict(&info.group, serial, certificate, reason, false);
    let statement = statement.map_err(|e| Failure::new(Code::BadValue, e))?;
    kept.authority.revoke(serial, crate::text::now()).map_err(|e| Failure::new(Code::BadValue, e))?;
    kept.save(Overwrite::Replace)?;
    let start = std::time::Instant::now();
    client.learn(&statement)?;
    let before = info.epoch.unwrap_or(0);
    // Learning is done when the statement is accepted; the change of key follows.
    loop {
        let now = client.show()?;
        let epoch = now.epoch.unwrap_or(0);
        let elapsed_micros = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
        if epoch != before && !now.paused {
            let members = now.members.len();
            let serial = Some(serial.to_string());
            return Ok(Change { from: before, to: epoch, on_new_key: members, members, elapsed_micros, serial });
        }
        if start.elapsed() > CHANGE_TIMEOUT {
            return Err(Failure::new(Code::TimedOut, "the statement is out, but no new key was agreed in time"));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The hash of a member's certificate, if the session's answer can be read.
fn certificate_of(member: &MemberInfo) -> Option<CertHash> {
    Some(CertHash(hex::decode(&member.certificate).ok()?.try_into().ok()?))
}

/// Where the authority is on this machine, its ledger shall say so too; else nothing is missing.
fn revoke_too(env: &Env<'_>, info: &GroupInfo, member: &MemberInfo) {
    let Some((mut kept, certificate)) = authority_of(env, info).zip(certificate_of(member)) else {
        return;
    };
    let issued = kept.authority.ledger().issued().find(|(_, i)| i.hash == certificate).map(|(s, _)| *s);
    let Some(serial) = issued else { return };
    let noted = kept.authority.revoke(serial, crate::text::now()).is_ok() && kept.save(Overwrite::Replace).is_ok();
    match noted {
        true => env.output.detail(format!("noted in {}", Home::shown(&kept.path))),
        false => env.output.warn(format!("{} could not be noted in {}", member.name, Home::shown(&kept.path))),
    }
}

fn leave(env: &Env<'_>, mut client: Client, info: &GroupInfo) -> Result<(), Failure> {
    client.leave()?;
    env.output.object(&json!({ "left": info.group, "pid": info.pid }))?;
    env.output.line(format!("left {} · the session of process {} has ended", safe(&info.group), info.pid))
}

/// Hands a signed object to the running sessions that trust the authority; their groups' names.
pub(crate) fn teach(env: &Env<'_>, kept: &KeptAuthority, object: &[u8]) -> Vec<String> {
    let fingerprint = kept.authority.fingerprint().to_string();
    let mut told = vec![];
    for mut client in running(&env.home) {
        match client.show() {
            Ok(info) if info.authority.as_ref() == Some(&fingerprint) => match client.learn(object) {
                Ok(()) => told.push(info.group),
                Err(e) => env.output.warn(format!("the session of {} refuses it: {e}", info.group)),
            },
            // Another authority's session, or one that is ending.
            _ => {}
        }
    }
    told
}

fn change_shown(c: &Change) -> String {
    format!(
        "epoch {} → {} · {}/{} members on the new key after {}",
        c.from,
        c.to,
        c.on_new_key,
        c.members,
        duration(Duration::from_micros(c.elapsed_micros))
    )
}

/// The URL without what is shown beside it anyway.
fn place(url: &str) -> String {
    match Url::parse(url).map(|u| u.address) {
        Ok(TransportAddress::Multicast { group, .. }) => format!("udpm://{group}"),
        _ => url.to_owned(),
    }
}

fn ms(ms: u64) -> String {
    duration(Duration::from_millis(ms))
}

/// `10:31:02`, UTC.
fn clock(at_micros: u64) -> String {
    let at = crate::text::instant(Utc(i64::try_from(at_micros / 1_000_000).unwrap_or(0)));
    at.split_once('T').map_or(at.clone(), |(_, time)| time.trim_end_matches('Z').to_owned())
}

const NOT_PRIMARY: &str = "nothing is ordered here: this member is not in the primary component";
/// The longest change of key that is waited for.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(10);
