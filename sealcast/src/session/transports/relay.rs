//! A relay: the connection to its MQTT broker, and to its directory.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mio::Registry;
use sealcast_delivery::relay::{Config, DIRECTORY, Handle, MQTT, Relay};
use sealcast_delivery::{Batch, Delivery};
use sealcast_keys::{Exclusion, Notice};
use sealcast_wire::{CertHash, Monotonic, Now, limits};

use super::{Carrier, Fault, Listening, Meeting, Shell, Transport};
use crate::code::Code;
use crate::config::Home;
use crate::error::{Error, Result};
use crate::group::lock;
use crate::io::{directory, mqtt, tls_roots};
use crate::relay::{self, Names, RelayKey, evidence};
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
    /// What is known of the directory, where there is one.
    known: Option<Known>,
    /// When the directory answered last.
    heard: Option<Monotonic>,
    /// Why the broker, and the directory, do not work now.
    trouble: [Option<Error>; 2],
    /// Of requests to the directory.
    generation: u64,
    /// Something was lost on its way out, and is asked again.
    lost: bool,
}

/// A directory, and what it did.
struct Known {
    handle: Handle,
    relay: RelayKey,
    /// Where evidence is kept, of identities on disk.
    home: Option<Home>,
    convicted: Option<Error>,
    /// The session ends next.
    is_shown: bool,
}

/// A member's end of a relay.
pub(super) fn open(address: &RelayAddress, url: &Url, meeting: Meeting, waker: &Arc<mio::Waker>) -> Result<Transport> {
    let Meeting { group, identity, record, home } = meeting;
    let names = Names::of(&group, identity.as_deref());
    let roots = url.options.ca.as_deref().map(tls_roots::read).transpose()?;
    let setup = mqtt::Setup::of(address, url, &names, roots.as_deref())?;
    let (delivery, known): (Box<dyn Delivery>, Option<Known>) = match relay::pinned(url)? {
        Some(relay) => {
            home.as_ref().map_or(Ok(()), |home| evidence::refuse_convicted(home, &relay))?;
            let Names { joiner, devices, .. } = names;
            let (signer, device) = (Box::new(joiner), Box::new(move |cert: &CertHash| devices.name(cert)));
            let config = Config { relay, signer, device };
            let opened = Relay::open(config, record.as_deref(), url.options.join == Join::Create);
            let damaged = |_| Error::new(Code::Content, "what was kept of this group's log is damaged");
            let (delivery, handle) = opened.map_err(damaged)?;
            (
                Box::new(delivery.padded(url.options.padding)),
                Some(Known { handle, relay, home, convicted: None, is_shown: false }),
            )
        }
        None => {
            let delivery = Relay::without_directory(!url.is_sealed()).padded(url.options.padding);
            (Box::new(delivery), None)
        }
    };
    let inbox: Arc<Mutex<VecDeque<Came>>> = Arc::default();
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
    let link: Box<dyn Shell> = Box::new(RelayLink {
        mqtt,
        directory,
        inbox,
        known,
        heard: None,
        trouble: [None, None],
        generation: 0,
        lost: false,
    });
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
                    (self.trouble[1], self.heard) = (None, Some(now.monotonic));
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
                Came::Mqtt(mqtt::Heard::Denied(why)) => self.trouble[0] = Some(why),
                Came::Directory(directory::Heard::Disconnected(why)) => {
                    self.trouble[1] = Some(why);
                    core.group_mut().disconnected(now, DIRECTORY);
                }
            }
        }
        let Some(known) = &mut self.known else { return Ok(any) };
        if known.handle.lock().exists {
            return Err(Fault::Ended { why: Error::excluded(&Exclusion::Exists), any });
        }
        match known.convicted() {
            // The others are shown the proof first.
            Some(_) if !std::mem::replace(&mut known.is_shown, true) => Ok(any),
            Some(why) => Err(Fault::Ended { why, any }),
            None => Ok(any),
        }
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
        let ends = self.known.as_ref().is_some_and(|it| it.is_shown);
        (self.lost || ends).then_some(Duration::ZERO)
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
        let refusal = || self.known.as_ref()?.handle.lock().refusal.clone();
        let silence = || self.directory.as_ref()?.silence();
        self.carrier()?.trouble.or_else(silence).or_else(|| Some(relay::refused(&refusal()?)))
    }

    fn carrier(&self) -> Option<Carrier> {
        let did = self.known.as_ref().and_then(|it| it.handle.lock().misbehaviour.clone());
        let trouble = did.map(relay::misbehaved).or_else(|| self.trouble.iter().flatten().next().cloned());
        Some(Carrier { heard: self.heard, trouble })
    }

    fn end(&mut self, _now: Now) {
        self.mqtt.end();
    }
}

impl Known {
    /// That it showed two logs, if so: the proof is kept then.
    fn convicted(&mut self) -> Option<Error> {
        if self.convicted.is_none()
            && let Some(proof) = self.handle.lock().evidence.as_deref()
        {
            let what = evidence::what(&self.relay, proof);
            self.convicted = Some(match &self.home {
                Some(home) => match evidence::keep(home, &self.relay, proof) {
                    Ok(path) => evidence::convicted(&what, &path),
                    Err(e) => Error::new(Code::Equivocation, format!("{what}; the proof is lost: {e}")),
                },
                None => Error::new(Code::Equivocation, what),
            });
        }
        self.convicted.clone()
    }
}

/// Taken in at once, before anything is done about it.
const AT_ONCE: usize = 64;
