//! A relay: the connection to its MQTT broker, and to its directory.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mio::Registry;
use sealcast_crypto::kdf::hkdf;
use sealcast_crypto::secret::Secret;
use sealcast_crypto::signature::OriginKey;
use sealcast_delivery::relay::{Config, DIRECTORY, Handle, MQTT, Relay};
use sealcast_delivery::{Batch, Delivery};
use sealcast_keys::{Exclusion, Notice};
use sealcast_relay::ids::{DeviceId, GroupId};
use sealcast_wire::{CertHash, Now, limits};

use super::{Fault, Listening, Meeting, Shell, Transport};
use crate::code::Code;
use crate::error::{Error, Result};
use crate::group::lock;
use crate::io::{directory, mqtt, rng, tls_roots};
use crate::session::driver::AnyCore;
use crate::url::{Join, RelayAddress, Url};

/// Something that came from one of the two.
enum Came {
    Mqtt(mqtt::Heard),
    Directory(directory::Heard),
}

/// The shell around a relay's machine.
struct RelayLink {
    mqtt: mqtt::Mqtt,
    directory: Option<directory::Directory>,
    inbox: Arc<Mutex<VecDeque<Came>>>,
    /// What the directory did, where there is one.
    handle: Option<Handle>,
    /// Why the broker, and the directory, do not work now.
    trouble: [Option<String>; 2],
    /// Of requests to the directory.
    generation: u64,
    /// Something was lost on its way out, and is asked again.
    lost: bool,
}

/// A member's end of a relay.
pub(super) fn open(address: &RelayAddress, url: &Url, meeting: Meeting, waker: &Arc<mio::Waker>) -> Result<Transport> {
    let Meeting { group, identity, record } = meeting;
    // Former members know it, too: it names, and proves nothing.
    let secret: Secret<32> = match &identity {
        Some(identity) => identity.bootstrap_key(&group).derived("relay"),
        None => hkdf(group.as_bytes(), b"", &[b"sealcast/v1/relay/clear"]),
    };
    let derived = |label: &[u8]| hkdf::<32>(secret.expose(), b"", &[b"sealcast/v1/relay", label]);
    let joiner = OriginKey::from_seed(&derived(b"joiner"));
    let (group, topic) = (GroupId::of(&joiner.public_bytes()), hex::encode(derived(b"topic").expose()));
    let prefix = if address.prefix.is_empty() { String::new() } else { format!("{}/", address.prefix) };
    let (delivery, handle): (Box<dyn Delivery>, Option<Handle>) = match (&url.options.directory, &url.options.relay) {
        (Some(_), Some(relay)) => {
            let device = derived(b"device");
            let config = Config {
                relay: relay.parse().map_err(|e| Error::new(Code::BadUrl, format!("{url}: relay={relay}: {e}")))?,
                signer: Box::new(joiner),
                device: Box::new(move |cert: &CertHash| DeviceId(*hkdf::<32>(device.expose(), &cert.0, &[]).expose())),
            };
            let opened = Relay::open(config, record.as_deref(), url.options.join == Join::Create);
            let damaged = |_| Error::new(Code::Content, "what was kept of this group's log is damaged");
            let (relay, handle) = opened.map_err(damaged)?;
            (Box::new(relay), Some(handle))
        }
        _ => (Box::new(Relay::without_directory(!url.is_sealed())), None),
    };
    let inbox: Arc<Mutex<VecDeque<Came>>> = Arc::default();
    let roots = url.options.ca.as_deref().map(tls_roots::read).transpose()?;
    let setup = mqtt::Setup {
        host: address.host.clone(),
        port: address.port,
        tls: address.tls.then(|| tls_roots::client(roots.as_deref())).transpose()?,
        client_id: format!("sealcast-{}", hex::encode(rng::bytes::<8>()?)),
        login: match &url.options.user {
            Some(user) => Some((user.clone(), mqtt::password(url.options.password_file.as_deref())?)),
            None => None,
        },
        messages: format!("{prefix}{topic}"),
        announcements: format!("{prefix}{}/log", hex::encode(group.0)),
    };
    let tell = |waker: &Arc<mio::Waker>| {
        let (inbox, waker) = (inbox.clone(), waker.clone());
        move |came: Came| {
            let mut inbox = lock(&inbox);
            // Messages are best effort, and announcements are read from the log. What channels do is never lost.
            let may_be_lost = matches!(came, Came::Mqtt(mqtt::Heard::Message(_) | mqtt::Heard::Announcement(_)));
            if inbox.len() < limits::MQTT_QUEUE_MAX || !may_be_lost {
                inbox.push_back(came);
            }
            drop(inbox);
            // Fails only if the descriptor is gone, and then nobody waits on it.
            let _ = waker.wake();
        }
    };
    let (to_mqtt, to_directory) = (tell(waker), tell(waker));
    let directory = match &url.options.directory {
        Some(place) => {
            let heard = move |heard| to_directory(Came::Directory(heard));
            Some(directory::Directory::start(place, tls_roots::for_http(roots.as_deref()), heard)?)
        }
        None => None,
    };
    let mqtt = mqtt::Mqtt::start(setup, move |heard| to_mqtt(Came::Mqtt(heard)))?;
    let link: Box<dyn Shell> =
        Box::new(RelayLink { mqtt, directory, inbox, handle, trouble: [None, None], generation: 0, lost: false });
    Ok(Transport { delivery, shell: Box::new(|_| (link, None)), brokers: None })
}

impl Shell for RelayLink {
    fn listen(&mut self, _registry: &Registry) -> Result<Option<Listening>> {
        Ok(None)
    }

    fn receive(&mut self, now: Now, core: &mut AnyCore) -> std::result::Result<bool, Fault> {
        if std::mem::take(&mut self.lost)
            && let Some(directory) = &self.directory
        {
            self.generation = directory.forget();
            let group = core.group_mut();
            group.disconnected(now, DIRECTORY);
            group.connected(now, DIRECTORY);
        }
        let came: Vec<Came> = {
            let mut inbox = lock(&self.inbox);
            let count = inbox.len().min(AT_ONCE);
            inbox.drain(..count).collect()
        };
        let any = !came.is_empty();
        for it in came {
            match it {
                Came::Mqtt(mqtt::Heard::Message(mut datagram)) => core.handle_datagram(now, MQTT, &mut datagram),
                Came::Mqtt(mqtt::Heard::Announcement(bytes)) => core.group_mut().handle_message(now, MQTT, &bytes),
                Came::Directory(directory::Heard::Response(of, _)) if of != self.generation => {}
                Came::Directory(directory::Heard::Response(_, bytes)) => {
                    self.trouble[1] = None;
                    core.group_mut().handle_message(now, DIRECTORY, &bytes);
                }
                Came::Mqtt(mqtt::Heard::Connected) => {
                    self.trouble[0] = None;
                    core.group_mut().connected(now, MQTT);
                }
                Came::Directory(directory::Heard::Connected(generation)) => {
                    self.generation = generation;
                    core.group_mut().connected(now, DIRECTORY);
                }
                Came::Mqtt(mqtt::Heard::Disconnected(why)) => {
                    self.trouble[0] = Some(why);
                    core.group_mut().disconnected(now, MQTT);
                }
                Came::Directory(directory::Heard::Disconnected(why)) => {
                    self.trouble[1] = Some(why);
                    core.group_mut().disconnected(now, DIRECTORY);
                }
            }
        }
        if let Some(handle) = &self.handle
            && handle.lock().evidence.is_some()
        {
            let what = "the relay showed two histories of the group: nothing that it says counts any more";
            let why = Error::new(Code::Authority, what).with_hint("meet at another relay, and keep away from this one");
            return Err(Fault::Ended { why, any });
        }
        if let Some(handle) = &self.handle
            && handle.lock().exists
        {
            let why = Error::excluded(&Exclusion::Exists);
            return Err(Fault::Ended { why, any });
        }
        Ok(any)
    }

    fn send(&mut self, batch: &Batch, _published: Option<usize>) {
        for bytes in batch.iter() {
            match (&self.directory, batch.to) {
                (Some(directory), Some(DIRECTORY)) => self.lost |= !directory.ask(self.generation, bytes),
                // What does not fit is lost: best effort.
                _ => _ = self.mqtt.publish(bytes),
            }
        }
    }

    fn flush(&mut self) {}

    fn hand_over(&mut self, _now: Now) -> bool {
        false
    }

    fn timeout(&self) -> Option<Duration> {
        self.lost.then_some(Duration::ZERO)
    }

    fn woken(&mut self, _token: mio::Token) {}

    fn keep(&mut self, _record: &[u8]) -> std::io::Result<bool> {
        Ok(false)
    }

    fn noticed(&mut self, _notice: &Notice) {}

    fn is_settled(&self) -> bool {
        true
    }

    fn late(&self, _timeout: Duration) -> Option<Error> {
        if let Some(why) = self.handle.as_ref().and_then(|it| it.lock().misbehaviour.clone()) {
            let hint = "relay= is to be the key that the relay's program prints";
            return Some(Error::new(Code::Authority, why).with_hint(hint));
        }
        let why = self.trouble.iter().flatten().next()?;
        Some(
            Error::new(Code::NoRoute, why.clone())
                .with_hint("is the relay running, and is the URL the one that it prints?"),
        )
    }

    fn end(&mut self, _now: Now) {
        self.mqtt.end();
    }
}

/// Taken in at once, before anything is done about it.
const AT_ONCE: usize = 64;
