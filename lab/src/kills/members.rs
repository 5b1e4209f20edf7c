//! Five members of a group as processes that publish in one order, over multicast on a loopback of their own or at a relay.

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::ValueEnum;

use super::TIMEOUT;
use super::ledger::{Ledger, first};
use crate::Failure;
use crate::brokers::beside;
use crate::figures::brokers::disk;
use crate::netns::{self, Loopback};
use crate::peers::centre::{Registry, Running};
use crate::peers::identities::{GROUP, Identities};
use crate::peers::player::Player;
use crate::peers::relay::Servers;

/// Who holds the keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Scheme {
    /// A leader, with keys from a key distribution centre.
    Center,
    /// The members agree.
    Contributory,
}

/// See the module. Dropped, the processes are ended.
pub(super) struct Members {
    /// By number; `None` is one that was killed.
    members: Vec<Option<Member>>,
    /// How often each was started.
    started: Vec<u32>,
    pub(super) ledger: Ledger,
    pub(super) counts: Counts,
    rate: f64,
    url: String,
    scene: Scene,
    network: Option<Loopback>,
    /// At a relay: the last epoch that each member told of, over all its runs, and the last one that was acknowledged to
    /// somebody who asked for it.
    epochs: Vec<u32>,
    rotated: u32,
    end: Arc<AtomicBool>,
}

/// What became of messages that were not acknowledged, and the rest that is reported.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) doubtful: u64,
    pub(super) failed: u64,
    pub(super) refused: u64,
    pub(super) gaps: u64,
    /// Changes of key that were asked for, and had.
    pub(super) rotations: u64,
    /// Why messages were not acknowledged.
    pub(super) reasons: BTreeMap<String, u64>,
    /// When the order grew last, and the longest time without that.
    grew: Option<Instant>,
    longest: Duration,
}

struct Member {
    player: Player,
    run: usize,
    view: Option<(u32, usize)>,
    sequencer: Option<String>,
    has_halted: bool,
}

/// Where identities are.
enum Scene {
    /// The centre's process is ended before its folder goes.
    Center {
        _centre: Running,
        registry: Registry,
    },
    Contributory(Identities),
    /// Members come back to where they were.
    Relay {
        servers: Servers,
        identities: Identities,
    },
}

impl Members {
    /// Starts all over multicast, and lets them publish once they are together.
    pub(super) fn start(scheme: Scheme, rate: f64, detect: &str, end: Arc<AtomicBool>) -> Result<Members, Failure> {
        let (network, port) = match netns::available() {
            Ok(()) => (Some(Loopback::new()?), 7667),
            Err(why) => {
                eprintln!("lab: {why}: over this machine's own loopback");
                (None, UdpSocket::bind("0.0.0.0:0")?.local_addr()?.port())
            }
        };
        let mut url = format!("udpm://239.255.76.67:{port}?ttl=0&group={GROUP}&order=total&detect={detect}");
        let scene = match scheme {
            Scheme::Contributory => Scene::Contributory(Identities::new(MEMBERS)?),
            Scheme::Center => {
                let registry = Registry::new()?;
                registry.keep(MEMBERS)?;
                let within = network.as_ref().map(|it| beside("sealcast").map(|program| it.command(program)));
                let centre = registry.run(within.transpose()?, "127.0.0.1:0")?;
                url += &format!("&keys=center&kdc={}", centre.address);
                Scene::Center { _centre: centre, registry }
            }
        };
        Members::of(url, scene, network, rate, end)
    }

    /// Starts all and a relay of their own, and lets them publish once they are together.
    pub(super) fn at_a_relay(rate: f64, end: Arc<AtomicBool>) -> Result<Members, Failure> {
        let servers = Servers::start(&disk())?;
        let url = servers.url.clone();
        let scene = Scene::Relay { servers, identities: Identities::new(MEMBERS)? };
        Members::of(url, scene, None, rate, end)
    }

    fn of(
        url: String,
        scene: Scene,
        network: Option<Loopback>,
        rate: f64,
        end: Arc<AtomicBool>,
    ) -> Result<Members, Failure> {
        let (ledger, counts) = (Ledger::default(), Counts::default());
        let members = (0..MEMBERS).map(|_| None).collect();
        let (started, epochs, rotated) = (vec![0; MEMBERS], vec![0; MEMBERS], 0);
        let mut all = Members { members, started, ledger, counts, rate, url, scene, network, epochs, rotated, end };
        (0..MEMBERS).try_for_each(|member| all.launch(member, true))?;
        all.until("the members do not come together", |it| it.are_in_one_view())?;
        (0..MEMBERS).try_for_each(|member| all.publish(member))?;
        all.grow()?;
        Ok(all)
    }

    /// Kills one with SIGKILL, as a crash does.
    pub(super) fn kill(&mut self, member: usize) -> Result<(), Failure> {
        let Some(mut killed) = self.members[member].take() else { return Ok(()) };
        killed.player.kill()?;
        // All that it had said, until there is no more.
        while let Ok(Some(line)) = killed.player.hear_for(TIMEOUT) {
            self.note(member, &mut killed, &line)?;
        }
        self.ledger.end(killed.run);
        Ok(())
    }

    /// Starts a killed one again: it joins, and publishes as soon as it can.
    pub(super) fn restart(&mut self, member: usize) -> Result<(), Failure> {
        self.launch(member, false)?;
        self.publish(member)
    }

    /// Its relay, if they are at one.
    pub(super) fn servers(&mut self) -> Option<&mut Servers> {
        match &mut self.scene {
            Scene::Relay { servers, .. } => Some(servers),
            Scene::Center { .. } | Scene::Contributory(_) => None,
        }
    }

    /// Has a member that runs ask for a new key of the group.
    pub(super) fn rotate(&mut self, member: usize) -> Result<(), Failure> {
        let running = self.members[member].as_mut();
        Ok(running.map_or(Ok(()), |it| it.player.tell("rotate"))?)
    }

    /// Takes down what the members tell for a while.
    ///
    /// # Errors
    /// One has ended by itself; or all is to end.
    pub(super) fn pass(&mut self, time: Duration) -> Result<(), Failure> {
        let begun = Instant::now();
        loop {
            self.hear()?;
            if begun.elapsed() >= time {
                return Ok(());
            }
            std::thread::sleep(LOOK.min(time));
        }
    }

    /// Waits until all are in one view, and each delivers what is new; how long that took.
    ///
    /// # Errors
    /// What they are in, if that takes too long.
    pub(super) fn together(&mut self) -> Result<Duration, Failure> {
        let begun = Instant::now();
        self.until("the members do not come together again", |it| it.are_in_one_view() && it.have_positions())?;
        if let Some(epoch) = self.epochs.iter().find(|it| **it < self.rotated) {
            return Err(format!("epoch {} was acknowledged, and all are in {epoch}", self.rotated).into());
        }
        self.grow()?;
        Ok(begun.elapsed())
    }

    /// Waits until the order grows.
    pub(super) fn grow(&mut self) -> Result<(), Failure> {
        let before = self.ledger.len();
        self.until("nothing is delivered any more", |it| it.ledger.len() > before)
    }

    /// Lets all halt, and waits until each has the whole order.
    pub(super) fn halt(&mut self) -> Result<(), Failure> {
        for member in self.members.iter_mut().flatten() {
            member.player.tell("halt")?;
        }
        self.until("the members do not halt", |it| it.members.iter().flatten().all(|it| it.has_halted))?;
        self.until("not all have the whole order", |it| {
            it.members.iter().flatten().all(|member| it.ledger.behind(member.run) == Some(0))
        })
    }

    /// Who orders, as the first of them sees it.
    pub(super) fn sequencer(&self) -> Option<usize> {
        let name = self.members.iter().flatten().find_map(|it| it.sequencer.as_ref())?;
        name.strip_prefix("robot")?.parse().ok()
    }

    /// The longest time in which the order did not grow since the last call, the time until now among them.
    pub(super) fn longest_gap(&mut self) -> Duration {
        let now = self.counts.grew.map_or(Duration::ZERO, |it| it.elapsed());
        std::mem::take(&mut self.counts.longest).max(now)
    }

    fn launch(&mut self, member: usize, founds: bool) -> Result<(), Failure> {
        let (home, name) = (self.scene.home().to_owned(), format!("robot{member}"));
        let mut command = in_network(self.network.as_ref(), std::env::current_exe()?);
        command.args(["role", "publisher", &self.url, "--identity", &name, "--home"]).arg(home);
        let player = Player::start(&mut command)?;
        self.started[member] += 1;
        let run = self.ledger.begin(format!("{name} (run {})", self.started[member]), founds);
        self.members[member] = Some(Member { player, run, view: None, sequencer: None, has_halted: false });
        Ok(())
    }

    fn publish(&mut self, member: usize) -> Result<(), Failure> {
        let (number, rate) = (first(member, self.started[member]) + 1, self.rate);
        let it = self.members[member].as_mut().ok_or("it was not started")?;
        Ok(it.player.tell(&format!("publish {number} {rate}"))?)
    }

    fn until(&mut self, what: &str, holds: impl Fn(&Members) -> bool) -> Result<(), Failure> {
        let begun = Instant::now();
        loop {
            self.hear()?;
            if holds(self) {
                return Ok(());
            }
            if begun.elapsed() > TIMEOUT {
                return Err(format!("{what} in {TIMEOUT:?}: {}", self.shown()).into());
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Takes down what the members have told.
    fn hear(&mut self) -> Result<(), Failure> {
        if self.end.load(Ordering::Acquire) {
            return Err("interrupted".into());
        }
        let before = self.ledger.len();
        for number in 0..self.members.len() {
            let Some(mut member) = self.members[number].take() else { continue };
            while let Some(line) = member.player.hear_for(Duration::ZERO)? {
                self.note(number, &mut member, &line)?;
            }
            self.members[number] = Some(member);
        }
        self.ledger.settle();
        if self.ledger.len() > before {
            let now = Instant::now();
            let gap = self.counts.grew.replace(now).map_or(Duration::ZERO, |last| now - last);
            self.counts.longest = self.counts.longest.max(gap);
        }
        Ok(())
    }

    fn note(&mut self, number: usize, member: &mut Member, line: &str) -> Result<(), Failure> {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        match words[..] {
            ["entry", entry, nanos] => self.ledger.deliver(member.run, entry.parse()?, nanos.parse()?),
            ["acknowledged", entry] => self.ledger.acknowledge(entry.parse()?),
            [what @ ("doubt" | "failed" | "refused"), entry, ..] => {
                let why = line.splitn(3, ' ').nth(2).unwrap_or_default();
                *self.counts.reasons.entry(format!("{what}: {why}")).or_default() += 1;
                match what {
                    "doubt" => self.counts.doubtful += 1,
                    "failed" => self.counts.failed += 1,
                    _ => self.counts.refused += 1,
                }
                if what != "doubt" {
                    self.ledger.fail(entry.parse()?);
                }
            }
            ["view", nanos, epoch, members] => {
                let epoch = epoch.parse()?;
                member.view = Some((epoch, members.parse()?));
                if self.servers().is_some() {
                    self.ledger.joined(member.run, nanos.parse()?);
                    if epoch < std::mem::replace(&mut self.epochs[number], epoch) {
                        return Err(format!("robot{number} went back to epoch {epoch}").into());
                    }
                }
            }
            ["rotated", epoch] => {
                self.counts.rotations += 1;
                self.rotated = self.rotated.max(epoch.parse()?);
            }
            ["unrotated", ..] => *self.counts.reasons.entry(line.to_owned()).or_default() += 1,
            ["sequencer", nanos, name] => {
                member.sequencer = Some(name.to_owned()).filter(|it| it != "-");
                if member.sequencer.is_some() {
                    self.ledger.joined(member.run, nanos.parse()?);
                }
            }
            ["gap", nanos] => {
                self.counts.gaps += 1;
                self.ledger.gap(member.run, nanos.parse()?);
            }
            ["halted"] => member.has_halted = true,
            _ => return Err(format!("robot{number}: {line}").into()),
        }
        Ok(())
    }

    fn are_in_one_view(&self) -> bool {
        let has_sequencer = !matches!(self.scene, Scene::Relay { .. });
        let is_whole = |it: &&Member| it.sequencer.is_some() || !has_sequencer;
        let is_all = |(_, members): &(u32, usize)| *members == MEMBERS;
        let of = |it: &Member| Some((it.view.filter(is_all)?, Some(it).filter(is_whole)?.sequencer.clone()));
        let views: Vec<_> = self.members.iter().flatten().map(of).collect();
        views.len() == MEMBERS && views[0].is_some() && views.windows(2).all(|pair| pair[0] == pair[1])
    }

    fn have_positions(&self) -> bool {
        self.members.iter().flatten().all(|it| self.ledger.behind(it.run).is_some())
    }

    fn shown(&self) -> String {
        let of = |(number, it): (usize, &Option<Member>)| {
            it.as_ref().map(|it| {
                let order = it.sequencer.as_deref().unwrap_or("nobody");
                let behind = self.ledger.behind(it.run);
                format!("robot{number} {:?} order from {order}, behind {behind:?}", it.view)
            })
        };
        self.members.iter().enumerate().filter_map(of).collect::<Vec<_>>().join("; ")
    }
}

impl Scene {
    fn home(&self) -> &std::path::Path {
        match self {
            Scene::Center { registry, .. } => registry.home(),
            Scene::Contributory(identities) | Scene::Relay { identities, .. } => identities.home(),
        }
    }
}

fn in_network(network: Option<&Loopback>, program: impl AsRef<std::ffi::OsStr>) -> Command {
    match network {
        Some(network) => network.command(program),
        None => Command::new(program),
    }
}

/// How many there are.
pub(super) const MEMBERS: usize = 5;
const LOOK: Duration = Duration::from_millis(2);
