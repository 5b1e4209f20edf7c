//! Opening sessions for commands, and finding those that run already (A7).

use std::path::Path;
use std::time::{Duration, Instant};

use sealcast::code::Code;
use sealcast::config::{KeptIdentity, PrincipalFile};
use sealcast::control::{Client, GroupInfo, running, socket_path};
use sealcast::session::Opening;
use sealcast::url::{Credentials, Join, OriginMode, Scheme, TransportAddress, Url};
use sealcast::{LogEntry, LogEvent, Notice, Session};
use sealcast_keys::Exclusion;
use sealcast_keys::center::query::Refusal;
use sealcast_wire::Dropped;

use crate::cluster::Cluster;
use crate::commands::kdc::read_passphrase;
use crate::commands::{Env, id};
use crate::hint::Failure;
use crate::interrupt;
use crate::target::{self, Target};
use crate::text::duration;

/// Opens a session, through brokers who see what is published as a client of theirs; the group may still be forming: see
/// [`wait_for_key`].
pub(crate) fn open(env: &Env<'_>, target: &Target, wanted: For) -> Result<Session, Failure> {
    let opening = match Cluster::of_publications(&target.url)? {
        Some(cluster) => cluster.opening(env, wanted)?,
        None => opening(env, target)?,
    };
    let opening = if wanted == For::Message { opening.one_shot() } else { opening };
    let session = first_to_end(env, target, || Ok(opening.clone().wait()?))?;
    for warning in session.warnings() {
        env.output.detail(format!("{} ({})", warning.what, warning.hint));
    }
    Ok(session)
}

/// Opens a session to come into a group by, in this way.
pub(crate) fn open_to_join(env: &Env<'_>, target: &Target, how: Join) -> Result<Session, Failure> {
    let opening = opening(env, target)?.join(how).one_shot();
    first_to_end(env, target, || Ok(opening.clone().wait()?))
}

/// A member's session. Commands sign, unless the URL says otherwise (A2).
fn opening(env: &Env<'_>, target: &Target) -> Result<Opening, Failure> {
    let mut opening = sealcast::open(&target.url.to_string()).home(env.home.clone());
    if let Some(name) = target.identity(env)? {
        if target.url.keys == Scheme::Center {
            if let Some(passphrase) = passphrase(env, &name)? {
                opening = opening.passphrase(passphrase);
            }
        } else if let (_, Some(hint)) = id::check(env, &name)? {
            env.output.warn(hint);
        }
        opening = opening.identity(name.as_str());
    }
    if target.url.keys == Scheme::Plain {
        env.output.warn("keys=plain: everything is sent in clear, and anybody can send as anybody");
    } else if target.url.options.origin == OriginMode::Auto && target.url.options.credentials != Credentials::Basic {
        opening = opening.origin(OriginMode::Signed);
    }
    if target.url.options.origin == OriginMode::Mac {
        env.output.warn("origin=mac: any member of the group can send as any other");
    }
    Ok(opening)
}

/// The pass phrase of a principal whose file is sealed: in the file that `SEALCAST_PASSPHRASE_FILE` names.
fn passphrase(env: &Env<'_>, name: &str) -> Result<Option<String>, Failure> {
    if !PrincipalFile::read(&env.home.principal(name))?.is_sealed() {
        return Ok(None);
    }
    let Some(path) = std::env::var_os(PASSPHRASE_FILE).filter(|it| !it.is_empty()) else {
        let failure = Failure::new(Code::Decrypt, format!("a pass phrase seals the secrets of '{name}'"));
        return Err(failure.hint(format!("export {PASSPHRASE_FILE}=FILE, a file with it that only you can read")));
    };
    Ok(Some(read_passphrase(Path::new(&path))?.to_string()))
}

/// Names the file with the pass phrase.
const PASSPHRASE_FILE: &str = "SEALCAST_PASSPHRASE_FILE";

/// What a session is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum For {
    /// One message: it ends in a moment.
    Message,
    /// Messages as they come.
    Lines,
    /// Reading.
    Subscription,
}

/// One process at a time runs with an identity; a `pub` that does is gone in a moment.
fn first_to_end(
    env: &Env<'_>,
    target: &Target,
    open: impl Fn() -> Result<Session, Failure>,
) -> Result<Session, Failure> {
    let start = Instant::now();
    loop {
        match open() {
            Err(failure)
                if failure.is(Code::Duplicate)
                    && start.elapsed() < OTHER_ENDS_WITHIN
                    && !interrupt::asked()
                    && !stays(env, target) =>
            {
                env.output.detail("waiting for another process of this identity to end");
                std::thread::sleep(STEP);
            }
            other => return other,
        }
    }
}

/// Whether the session of this identity that runs already does not end by itself; one that does not answer is about to.
fn stays(env: &Env<'_>, target: &Target) -> bool {
    let other = of_target(env, target).ok().flatten();
    other.and_then(|mut it| it.show().ok()).is_some_and(|info| !info.one_shot)
}

/// Waits for the first key as long as the URL says (`wait=`), and not beyond `timeout`; tells after a
/// second what it waits for.
pub(crate) fn wait_for_key(
    env: &Env<'_>,
    target: &Target,
    session: &Session,
    timeout: Option<Duration>,
) -> Result<(), Failure> {
    let (start, mut told) = (Instant::now(), false);
    let timeout = target.url.options.wait.min(timeout.unwrap_or(Duration::MAX));
    let mut views = session.views();
    while session.view().is_none() {
        let left = timeout.saturating_sub(start.elapsed());
        if views.next_timeout(left.min(STEP)).is_some() && session.view().is_none() {
            let info = session.info();
            if info.excluded == Some(Exclusion::Left) {
                env.output.say(format!("left {}, as 'sealcast group leave' asked", info.group));
                return Err(Failure::said(0));
            }
            // Excluded before the first key: the error says why.
            session.ready().wait()?;
        }
        if interrupt::asked() {
            return Err(Failure::said(130));
        }
        // Nothing proves what a beacon says: one that is let in all the same does not hear of it.
        if let Some(why) = session.kept_out().filter(|_| start.elapsed() > TELL_AFTER) {
            return Err(why.into());
        }
        let group = session.info().group;
        if left.is_zero() && session.view().is_none() {
            if let (TransportAddress::Relay(_), Some(why)) = (&target.url.address, session.transport_trouble()) {
                return Err(why.into());
            }
            let failure =
                Failure::new(Code::NotReady, format!("no key of {group} was agreed in {}", duration(timeout)));
            let drops = session.stats().drops;
            let (unproved, foreign) = (drops.of(Dropped::Auth), drops.of(Dropped::Foreign));
            return Err(match target.url.keys {
                Scheme::Center if is_refused_as_stale(session) => failure.hint(
                    "the centre at kdc= is a stand-by that has not heard from the first one: start that one again; if it is gone for good, end this one and: sealcast kdc run --promote",
                ),
                Scheme::Center if unproved > 0 => failure.hint(format!(
                    "{unproved} answers or messages prove nothing: is at kdc= the centre that made your principal file?"
                )),
                Scheme::Center if foreign > 0 => failure.hint(
                    "members of another centre or group speak here: did the centre of this group make your principal file?",
                ),
                Scheme::Center => failure.hint(
                    "is a member there whose registration says --lead, and does 'sealcast kdc run' listen at kdc=, not stale?",
                ),
                _ => failure.hint("sealcast doctor; do the others have the same URL and the same authority?"),
            });
        }
        if !told && start.elapsed() > TELL_AFTER {
            let is_relay = matches!(target.url.address, TransportAddress::Relay(_));
            let why = session.transport_trouble().filter(|_| is_relay);
            let why = why.map_or_else(String::new, |it| format!(": {it}"));
            env.output.say(format!("waiting for a key of {group} ({}){why}", target.url));
            told = true;
        }
    }
    Ok(())
}

/// Whether a stand-by proved that it is stale, and does not serve.
fn is_refused_as_stale(session: &Session) -> bool {
    let is_stale =
        |it: &LogEntry| matches!(it.event, LogEvent::Notice { notice: Notice::KdcRefuses(Refusal::Stale), .. });
    session.log().iter().any(is_stale)
}

/// Whether all processes of an identity share one session there, as members of a group do.
pub(crate) fn is_shared(target: &Target) -> bool {
    matches!(target.url.keys, Scheme::Contributory | Scheme::Center | Scheme::Mls)
}

/// The running session of the target's identity, if there is one.
pub(crate) fn of_target(env: &Env<'_>, target: &Target) -> Result<Option<Client>, Failure> {
    if !is_shared(target) {
        return Ok(None);
    }
    match target.identity(env)? {
        Some(name) => of_identity(env, target.url.keys, &name, target.url.options.group.as_deref()),
        None => Ok(None),
    }
}

/// The same where the target is.
///
/// # Errors
/// It runs elsewhere.
pub(crate) fn at_target(env: &Env<'_>, target: &Target) -> Result<Option<(Client, GroupInfo)>, Failure> {
    let Some(mut client) = of_target(env, target)? else { return Ok(None) };
    // One that is about to end is as good as none.
    let Ok(info) = client.show() else { return Ok(None) };
    if !same_address(&info, target) {
        let failure = format!("your session of {} runs at {}, not at {}", info.group, info.url, target.url);
        return Err(Failure::new(Code::Duplicate, failure).hint("sealcast group leave, or another --id"));
    }
    if let Ok(running) = Url::parse(&info.url)
        && running.address != target.url.address
    {
        let order = |url: &Url| match url.address {
            TransportAddress::Multicast { ordered: true, .. } => "order=total",
            _ => "order=best-effort",
        };
        let (runs, asked) = (order(&running), order(&target.url));
        env.output.warn(format!("your running session of {} has {runs}, which counts here, not {asked}", info.group));
    }
    Ok(Some((client, info)))
}

/// Warns of those whose URLs have another order or form of messages, whom we never meet; whether there are any.
pub(crate) fn warn_of_other_urls(env: &Env<'_>, log: &[LogEntry]) -> bool {
    let mut any = false;
    for it in log {
        let LogEvent::Notice { notice, about } = &it.event else { continue };
        let who = about.as_deref().unwrap_or("somebody");
        let what = match notice {
            Notice::OtherChannels { reliable: true, .. } => format!("{who}'s URL says order=total: yours must, too"),
            Notice::OtherChannels { .. } => format!("{who}'s URL says order=best-effort: yours must, too"),
            Notice::OtherForm { private_messages } => {
                let (says, must) =
                    if *private_messages { ("says", "must, too") } else { ("does not say", "must not, either") };
                format!("somebody answers for a group whose URL {says} data=mls; if nobody else does, yours {must}")
            }
            _ => continue,
        };
        env.output.warn(format!("{what}, to meet"));
        any = true;
    }
    any
}

/// The running session of an identity, in this group or in any of its groups.
fn of_identity(env: &Env<'_>, keys: Scheme, name: &str, group: Option<&str>) -> Result<Option<Client>, Failure> {
    let (hash, groups) = if keys == Scheme::Center {
        let file = PrincipalFile::read(&env.home.principal(name))?;
        let groups = file.registration().rights.groups().into_iter().map(str::to_owned).collect();
        (file.registration().hash(), groups)
    } else {
        let kept = KeptIdentity::load(&env.home, name)?;
        let Some(membership) = &kept.membership else { return Ok(None) };
        (membership.certificate.hash(), membership.groups())
    };
    let groups = group.map_or(groups, |g| vec![g.to_owned()]);
    for group in groups {
        let path = socket_path(&env.home, &hash, &group);
        if let Some(client) = Client::connect(&path)? {
            return Ok(Some(client));
        }
    }
    Ok(None)
}

/// The session that `group` commands mean: that of the identity, else the only one that runs.
pub(crate) fn meant(env: &Env<'_>) -> Result<(Client, GroupInfo), Failure> {
    let named = env.global.id.is_some() || env.global.ctx.is_some();
    let url = Target::of(env).ok().map(|t| t.url);
    let group = url.as_ref().and_then(|url| url.options.group.clone());
    let keys = url.map_or(Scheme::Contributory, |url| url.keys);
    let found = match target::identity_for(env, keys) {
        Ok(Some(name)) => of_identity(env, keys, &name, group.as_deref())?,
        Err(failure) if named => return Err(failure),
        _ => None,
    };
    if let Some(mut client) = found {
        let info = client.show()?;
        return Ok((client, info));
    }
    let mut all = if named { vec![] } else { running(&env.home) };
    if all.len() > 1 {
        let names: Vec<String> =
            all.iter_mut().filter_map(|c| c.show().ok()).map(|i| format!("{} in {}", i.me, i.group)).collect();
        let failure = Failure::new(Code::NoSession, format!("which session? There run {}", names.join(", ")));
        return Err(failure.hint("--id NAME, or --ctx NAME"));
    }
    match all.pop() {
        Some(mut client) => {
            let info = client.show()?;
            Ok((client, info))
        }
        None => Err(Failure::new(Code::NoSession, "no session of yours runs here").hint("sealcast sub '#' &")),
    }
}

/// Whether a running session is where the command wants to be.
fn same_address(info: &GroupInfo, target: &Target) -> bool {
    match (Url::parse(&info.url).map(|u| u.address), &target.url.address) {
        (Ok(TransportAddress::Multicast { group: a, .. }), TransportAddress::Multicast { group: b, .. }) => a == *b,
        (Ok(a), b) => a == *b,
        (Err(_), _) => false,
    }
}

/// How long another process of the same identity may take to end.
const OTHER_ENDS_WITHIN: Duration = Duration::from_secs(2);
const STEP: Duration = Duration::from_millis(50);
const TELL_AFTER: Duration = Duration::from_secs(1);
