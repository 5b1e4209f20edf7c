//! `sealcast kdc run`: the centre itself, until Ctrl-C.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::Path;
use std::time::Duration;

use sealcast::code::Code;
use sealcast::config::Home;
use sealcast::io::clock::Clock;
use sealcast_crypto::secret::Secret;
use sealcast_kdc::server::ServeError;
use sealcast_kdc::{Centre, Control, FeedStatus, Server, Store};
use serde_json::json;

use super::failed;
use crate::commands::Env;
use crate::hint::Failure;
use crate::interrupt;
use crate::text::{duration, now};

/// What part this centre plays.
pub(super) struct Part<'a> {
    /// The first centre, if this is a stand-by.
    pub(super) of: Option<&'a str>,
    pub(super) stale_after: Duration,
    pub(super) promote: bool,
}

pub(super) fn run(env: &Env<'_>, folder: &Path, listen: SocketAddr, part: &Part<'_>) -> Result<(), Failure> {
    let first = part.of.map(|of| resolved(of, listen)).transpose()?;
    if first.is_some() && part.stale_after < STALE_AFTER_MIN {
        let what = format!("--stale-after: a stand-by asks once a second, so {} at least", duration(STALE_AFTER_MIN));
        return Err(Failure::new(Code::BadValue, what).hint("--stale-after 10s"));
    }
    let store = opened(folder, part)?;
    let clock = Clock::start();
    let realm = hex::encode(store.realm());
    let registered = store.registered().map_err(|e| failed(e, folder))?;
    let server = match first {
        None => Server::first(store.clone(), listen),
        Some(of) => Server::stand_by(store.clone(), listen, of, part.stale_after, clock.monotonic()),
    };
    let mut server = server.map_err(|e| ended(e, listen))?;
    let at = server.address().map_err(|e| Failure::system(listen, &e))?;
    let _control = Control::open(store, now).map_err(|e| failed(e, folder))?;

    env.output.object(&json!({
        "listen": at.to_string(), "realm": realm, "registered": registered, "dir": folder, "standby_of": part.of,
    }))?;
    env.output.line(format!("centre    {}   {}", &realm[..12], Home::shown(folder)))?;
    env.output.line(format!("listening {at}   {registered} registered"))?;
    if let Some(of) = part.of {
        env.output.line(format!(
            "stand-by  of {of}   refuses service {} after it last heard from it",
            duration(part.stale_after)
        ))?;
    }
    env.output
        .say("          Next:  sealcast kdc register NAME --group GROUP   (in another terminal); Ctrl-C ends this");
    let served = server.serve(|| clock.now(), &interrupt::flag(), |status| told(env, status));
    let drops: Vec<String> = server.drops().iter().map(|(why, count)| format!("{why} {count}")).collect();
    let dropped = if drops.is_empty() { "none".to_owned() } else { drops.join(", ") };
    env.output.say(format!("ended     {} answered   dropped: {dropped}", server.answered()));
    served.map_err(|e| ended(e, listen))
}

/// The folder's store, as this part needs it.
fn opened(folder: &Path, part: &Part<'_>) -> Result<Store, Failure> {
    let centre = match part.of {
        // A stand-by with a secret of its own would be another centre.
        Some(_) => Centre::open(folder),
        None => Centre::create(folder, &Secret::random(&mut crate::rng())),
    };
    let at = Home::shown(folder);
    let store = match centre {
        Ok(Centre::Here(store)) => store,
        Ok(Centre::Running(_)) => {
            let failure = Failure::new(Code::Duplicate, format!("the centre in {at} runs already"));
            return Err(failure.hint("end that one first; a centre of its own has another folder: --dir DIR"));
        }
        Err(sealcast_kdc::StoreError::None(_)) => {
            let what = format!("{at} has no file 'secret', and a stand-by needs that of the first centre");
            let copy = format!("mkdir -m 700 -p {at} && scp -p FIRST:.config/sealcast/kdc/secret {at}/");
            return Err(Failure::new(Code::Missing, what).hint(copy));
        }
        Err(error) => return Err(failed(error, folder)),
    };
    if part.of.is_some() {
        return Ok(store);
    }
    if part.promote {
        store.set_stand_by(false).map_err(|e| failed(e, folder))?;
    }
    if store.is_stand_by().map_err(|e| failed(e, folder))? {
        let failure = Failure::new(Code::Content, format!("the centre in {at} is a stand-by"));
        return Err(failure.hint("--standby-of HOST:PORT, or --promote if the first centre is gone for good"));
    }
    Ok(store)
}

/// The first centre's address; of several, one of the family on which this one listens.
fn resolved(of: &str, listen: SocketAddr) -> Result<SocketAddr, Failure> {
    let failure = |why: String| Failure::new(Code::Address, format!("--standby-of {of}: {why}")).hint("HOST:PORT");
    let found: Vec<_> = of.to_socket_addrs().map_err(|e| failure(crate::hint::plain(&e)))?.collect();
    let alike = found.iter().find(|it| it.is_ipv4() == listen.is_ipv4());
    alike.or(found.first()).copied().ok_or_else(|| failure("it has no address".to_owned()))
}

fn told(env: &Env<'_>, status: FeedStatus) {
    let (name, line) = match status {
        FeedStatus::Fresh => ("fresh", "fresh     it holds what the first centre holds, and answers"),
        FeedStatus::Stale => ("stale", "stale     it has not heard from the first centre, and refuses service"),
        FeedStatus::Diverged => ("diverged", "its log is not the first centre's: it refuses service"),
    };
    // A reader of the output that has gone is no reason to end a centre.
    let _ = env.output.object(&json!({ "standby": name }));
    if status == FeedStatus::Diverged {
        env.output.warn(format!("{line}; of the two folders, keep the right one and remove the other's rows.redb"));
    } else {
        env.output.say(line);
    }
}

fn ended(error: ServeError, listen: SocketAddr) -> Failure {
    match error {
        ServeError::Socket(error) => Failure::new(Code::Address, format!("{listen}: {}", crate::hint::plain(&error)))
            .hint("--listen ADDRESS:PORT names another one; port 0 takes a free one"),
        ServeError::Store(what) => Failure::new(Code::System, what),
        ServeError::Randomness(error) => error.into(),
    }
}

/// A shorter time would end between two answers.
const STALE_AFTER_MIN: Duration = Duration::from_secs(2);
