//! A look at a relay as a member would see it: its MQTT broker, and its directory.

use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use sealcast_relay::follower::{Answer, Call, Follower};
use sealcast_relay::response::Refusal;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc2822;

use super::{Names, RelayKey, evidence, misbehaved, pinned};
use crate::code::Code;
use crate::config::Home;
use crate::error::{Error, Result};
use crate::io::directory::Client;
use crate::io::{mqtt, tls_roots};
use crate::session::group_and_identity;
use crate::url::{TransportAddress, Url};

/// What was seen of a relay.
#[derive(Debug)]
#[non_exhaustive]
pub struct Checked {
    /// Where members publish at the MQTT broker.
    pub topic: String,
    /// The MQTT broker: how long an empty message took there and back.
    pub broker: Result<Duration>,
    /// The directory; `None` where the URL names none.
    pub directory: Option<Result<DirectoryStatus>>,
}

/// A directory that has the pinned key.
#[derive(Debug)]
#[non_exhaustive]
pub struct DirectoryStatus {
    /// Its key.
    pub relay: RelayKey,
    /// Where the group's log ends; `None` if nobody has founded the group there.
    pub position: Option<u64>,
    /// Seconds by which its clock is ahead of ours, if it shows one.
    pub clock_ahead: Option<i64>,
    /// From a request to its response.
    pub took: Duration,
}

/// Looks at the relay of a URL, as an identity of this user. An empty message goes to the group, which drops it.
///
/// # Errors
/// The URL is of no relay, the identity is missing, a file of the URL cannot be read, or a proof that is kept convicts the relay.
pub fn check(url: &Url, home: &Home, identity: Option<&str>, timeout: Duration) -> Result<Checked> {
    let TransportAddress::Relay(address) = &url.address else {
        return Err(Error::new(Code::BadUrl, format!("{url}: this is no relay"))
            .with_hint("mqtts://HOST/PREFIX?keys=mls&…, as the relay's program prints it"));
    };
    let relay = pinned(url)?;
    relay.map_or(Ok(()), |relay| evidence::refuse_convicted(home, &relay))?;
    let (group, identity) = group_and_identity(url, home, identity)?;
    let names = Names::of(&group, identity.as_deref());
    let roots = url.options.ca.as_deref().map(tls_roots::read).transpose()?;
    let mut setup = mqtt::Setup::of(address, url, &names, roots.as_deref())?;
    setup.is_probe = true;
    let topic = setup.messages.clone();
    let directory = url.options.directory.as_ref().zip(relay).map(|(place, relay)| {
        let client = Client::new(place, tls_roots::for_http(roots.as_deref()), timeout);
        directory(&client, relay, &names)
    });
    Ok(Checked { topic, broker: broker(setup, timeout), directory })
}

/// Publishes an empty message, and waits for it.
fn broker(setup: mqtt::Setup, timeout: Duration) -> Result<Duration> {
    let who = setup.broker();
    let (tell, heard) = channel();
    let mqtt = mqtt::Mqtt::start(setup, move |it| {
        // Nobody waits for it any more.
        let _ = tell.send(it);
    })?;
    let until = Instant::now() + timeout;
    let mut sent = None;
    loop {
        match (heard.recv_timeout(until.saturating_duration_since(Instant::now())), sent) {
            (Ok(mqtt::Heard::Connected), None) => {
                sent = Some(Instant::now());
                mqtt.publish(b"");
            }
            (Ok(mqtt::Heard::Message(bytes)), Some(at)) if bytes.is_empty() => return Ok(at.elapsed()),
            (Ok(mqtt::Heard::Disconnected(why) | mqtt::Heard::Denied(why)), _) => return Err(why),
            (Ok(_), _) => {}
            (Err(_), None) => return Err(mqtt::silent(&who)),
            (Err(_), Some(_)) => {
                let what = format!("{who} does not give back what is published there");
                return Err(Error::new(Code::DeniedSubscribe, what).with_hint(mqtt::RIGHTS));
            }
        }
    }
}

fn directory(client: &Client, relay: RelayKey, names: &Names) -> Result<DirectoryStatus> {
    let mut follower = Follower::new(names.group, relay);
    let ask = |call: &Call, follower: &mut Follower| {
        let begun = Instant::now();
        let answer = client.ask(call.request())?;
        let said = follower.handle(call, &answer.response).map_err(|e| misbehaved(e.to_string()))?;
        Ok::<_, Error>((said, answer.date, begun.elapsed()))
    };
    let (info, head) = (follower.info(), follower.ask_newest());
    ask(&info, &mut follower)?;
    let (said, date, took) = ask(&head, &mut follower)?;
    let position = match said {
        Answer::Newest(receipt) => Some(receipt.position),
        Answer::Refused(Refusal::UnknownGroup) => None,
        Answer::Refused(why) => {
            return Err(Error::new(Code::TimedOut, format!("the directory refuses: {why}")).with_hint("try it again"));
        }
        _ => return Err(misbehaved("the directory's response does not fit the request".to_owned())),
    };
    let shown = date.and_then(|it| OffsetDateTime::parse(&it, &Rfc2822).ok());
    let clock_ahead = shown.map(|it| it.unix_timestamp() - OffsetDateTime::now_utc().unix_timestamp());
    Ok(DirectoryStatus { relay, position, clock_ahead, took })
}
