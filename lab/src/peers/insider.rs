//! Somebody who misbehaves, as a process beside sessions: an actor of [`crate::misbehaviour`] on sockets of its own.

use std::collections::BTreeMap;
use std::io::{self, BufRead as _};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, TryRecvError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sealcast::config::{Home, KeptIdentity};
use sealcast::io::udp::{UdpReceiver, UdpSender};
use sealcast::url::Options;
use sealcast_crypto::identity::Identity;
use sealcast_delivery::Batch;
use sealcast_keys::contributory::Config;
use sealcast_keys::contributory::misbehaving::{Claim, Lie};
use sealcast_sim::{Effect, Reach, Records};
use sealcast_wire::{Address, Monotonic, Now, Utc};

use super::identities::GROUP;
use super::roles::say;
use crate::Failure;
use crate::member::MemberEvent;
use crate::misbehaviour::{self, Misbehaviour};
use crate::netns::Bridge;
use crate::scenarios::contributory::robot;
use crate::scenarios::fixture::Player;

/// Reads lines on stdin until they end: `aside NODE ADDRESS`, from where what is sent reaches that node alone, and one of
/// `churner`, `captor CLAIM`, `captor CLAIM NODE` and `splitter LIE NODE MEMBERS`. Says `keyed N` for each key that it shares with
/// others.
///
/// # Errors
/// If a line cannot be understood, or a socket not be opened.
pub(super) fn run(group: SocketAddr, home: &Path, me: usize) -> Result<(), Failure> {
    let (tell, lines) = mpsc::channel();
    std::thread::spawn(move || io::stdin().lock().lines().map_while(Result::ok).try_for_each(|line| tell.send(line)));
    let (mut receiver, _) = UdpReceiver::open(group, &options(None))?;
    let sender = UdpSender::open(group, &options(None))?;
    let start = Instant::now();
    let mut aside: BTreeMap<usize, UdpSender> = BTreeMap::new();
    let mut actor: Option<Player> = None;
    say("ready");
    loop {
        match lines.try_recv() {
            Ok(line) => match line.split_whitespace().collect::<Vec<_>>()[..] {
                ["aside", node, from] => {
                    let from: IpAddr = from.parse()?;
                    _ = aside.insert(node.parse()?, UdpSender::open(group, &options(Some(from)))?);
                }
                ref words => {
                    actor = Some(begin(home, me, kind(words)?, now(start)?)?);
                    say("ready");
                }
            },
            Err(TryRecvError::Disconnected) => return Ok(()),
            Err(TryRecvError::Empty) => {}
        }
        wait(&receiver, actor.as_ref().and_then(|a| a.timeout()), now(start)?.monotonic);
        let mut came = Vec::new();
        // An error of the network is a loss like any other.
        let _ = receiver.receive(|from, bytes| came.push((from, bytes.to_vec())));
        let Some(actor) = &mut actor else { continue };
        for (from, mut datagram) in came {
            if Bridge::member_of(from.ip()) != Some(me) {
                actor.handle(now(start)?, Address::Socket(from), &mut datagram);
            }
        }
        if actor.timeout().is_some_and(|at| at <= Monotonic(micros(start))) {
            actor.handle_timeout(now(start)?);
        }
        let mut batch = Batch::default();
        while let Some(effect) = actor.poll() {
            match effect {
                Effect::Send { to, datagram } => {
                    batch.clear();
                    batch.push(&datagram);
                    let sender = match to {
                        Reach::All => Some(&sender),
                        Reach::One(node) => aside.get(&node),
                    };
                    let _ = sender.map(|sender| sender.send(&batch));
                }
                Effect::Tell(MemberEvent::Keyed { epoch, .. }) if epoch.view.members.len() > 1 => {
                    say(format!("keyed {}", epoch.view.members.len()));
                }
                Effect::Tell(_) | Effect::Store { .. } => {}
            }
        }
    }
}

fn begin(home: &Path, me: usize, kind: Misbehaviour, now: Now) -> Result<Player, Failure> {
    let identity = identity(home, me)?;
    let mut seed = [0; 32];
    getrandom::fill(&mut seed)?;
    let make = move |now: Now, seed, without| {
        robot(Config { without, ..Config::new(GROUP, identity.clone()) }, seed, now, &Records::new())
    };
    let cert = |member| identity_of(home, member);
    let birth = misbehaviour::insider(me, kind, seed, Box::new(make), &cert).ok_or("it needs no membership")?;
    Ok(birth(now, &Records::new()))
}

fn identity_of(home: &Path, member: usize) -> sealcast_wire::CertHash {
    identity(home, member).map(|identity| identity.certificate().hash).unwrap_or_default()
}

fn identity(home: &Path, member: usize) -> Result<Arc<Identity>, Failure> {
    let kept = KeptIdentity::load(&Home::at(home), &format!("robot{member}"))?;
    Ok(Arc::new(kept.identity()?.ok_or("it has no certificate")?))
}

fn kind(words: &[&str]) -> Result<Misbehaviour, Failure> {
    let claim = |word: &str| match word {
        "first" => Ok(Claim::First),
        number => number.parse().map(Claim::After),
    };
    Ok(match *words {
        ["churner"] => Misbehaviour::Churner { ahead: None },
        ["captor", of] => Misbehaviour::Captor { target: None, claim: claim(of)? },
        ["captor", of, node] => Misbehaviour::Captor { target: Some(node.parse()?), claim: claim(of)? },
        ["splitter", lie, node, members] => {
            let lie = match lie {
                "contribution" => Lie::Contribution,
                "heard" => Lie::Heard,
                "share" => Lie::Share,
                "confirmation" => Lie::Confirmation,
                "epoch" => Lie::Epoch,
                "publics" => Lie::Publics,
                _ => return Err(format!("there is no lie {lie}").into()),
            };
            Misbehaviour::Splitter { lie, told_truth: node.parse()?, members: members.parse()? }
        }
        _ => return Err(format!("nobody misbehaves by {words:?}").into()),
    })
}

fn wait(receiver: &UdpReceiver, timer: Option<Monotonic>, now: Monotonic) {
    let wait = timer.map_or(LINES, |at| at.since(now).min(LINES));
    let wait = Timespec::try_from(wait).expect("less than a second");
    // Interrupted, it looks again.
    let _ = poll(&mut [PollFd::from_borrowed_fd(receiver.as_fd(), PollFlags::IN)], Some(&wait));
}

fn now(start: Instant) -> Result<Now, Failure> {
    let utc = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    Ok(Now { monotonic: Monotonic(micros(start)), utc: Some(Utc(i64::try_from(utc)?)) })
}

fn micros(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX)
}

fn options(interface: Option<IpAddr>) -> Options {
    let mut options = Options::default();
    (options.ttl, options.interface) = (1, interface);
    options
}

/// Between two looks for a line.
const LINES: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_lie_has_a_word_and_no_other_word_is_one() {
        let lie = |word| match kind(&["splitter", word, "0", "4"]) {
            Ok(Misbehaviour::Splitter { lie, .. }) => Some(lie),
            _ => None,
        };
        let words = ["contribution", "heard", "share", "confirmation", "epoch", "publics"];
        let lies = [Lie::Contribution, Lie::Heard, Lie::Share, Lie::Confirmation, Lie::Epoch, Lie::Publics];
        assert_eq!(words.map(lie), lies.map(Some));
        assert_eq!(lie("truth"), None);
    }
}
