//! A relay that lies: the real directory behind it has the pinned key, so that what it signs is valid.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::time::Duration;

use sealcast_crypto::secret::Secret;
use sealcast_crypto::signature::OriginKey;
use sealcast_relay::directory::{Handled, Memory, Published};
use sealcast_relay::follower::{Answer, Follower};
use sealcast_relay::ids::GroupId;
use sealcast_relay::log::LogEntry;
use sealcast_relay::request::Request;
use sealcast_relay::response::{Refusal, Response, Taken};
use sealcast_sim::dice::Dice;
use sealcast_sim::{Effect, Node, Reach, Records};
use sealcast_wire::{Address, Monotonic, Now};

use crate::member::{MemberCommand, MemberEvent};
use crate::mocks::relay::{ANNOUNCED_BYTES, RelayNode, announce, announce_within, joiner, public, request_in, respond};

/// How a relay lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RelayLie {
    /// It keeps two logs from its start on, and shows the second one to members from this one on. In the end it shows those the
    /// first one.
    Forks {
        /// The first of those.
        from: usize,
        /// After so long.
        lasting: Duration,
        /// By its answers; otherwise it repeats its announcements of the first log.
        answers: bool,
    },
    /// To members from this one on it shows nothing that comes after its start, and takes nothing of theirs.
    WithholdsLog {
        /// The first of those.
        from: usize,
    },
    /// To members from this one on it gives no blob and no key package.
    WithholdsContent {
        /// The first of those.
        from: usize,
    },
    /// It answers every second time by what it knew a while ago.
    Rewinds,
    /// It gives every second time other blobs, entries and key packages than those that it is asked for.
    Swaps,
    /// It repeats its old responses and announcements, and shows members what is to be appended first where best effort comes.
    Replays,
    /// It lost what it wrote since its last start.
    Forgets,
    /// It is honest. A former member appends junk before each request of a member, which names keys, and uses them as well.
    IsFlooded,
}

/// See the module.
pub(super) struct FalseRelay {
    relay: RelayNode,
    lie: RelayLie,
    members: usize,
    dice: Dice,
    began: Monotonic,
    /// The second log, or what was known a while ago.
    others: VecDeque<Memory>,
    announced: Vec<Published>,
    responses: VecDeque<Vec<u8>>,
    packages: Vec<Taken>,
    /// Who gets the truth next time.
    lied_to: BTreeSet<usize>,
    effects: VecDeque<Effect<MemberEvent>>,
    /// When the members that see the second log are shown the first one.
    reveals: Option<Monotonic>,
    former: Option<FormerMember>,
}

/// Somebody who was invited once, and has the joiner key.
struct FormerMember {
    follower: Follower,
    /// The joiner key, and those that it named.
    keys: Vec<OriginKey>,
}

impl FalseRelay {
    pub(super) fn new(now: Now, records: &Records, lie: RelayLie, members: usize, dice: Dice) -> FalseRelay {
        let relay = match lie {
            RelayLie::Forgets => RelayNode::new(&RelayNode::before_last_start(records)),
            _ => RelayNode::new(records),
        };
        let reveals = match lie {
            RelayLie::Forks { lasting, answers: false, .. } => Some(now.monotonic + lasting),
            _ => None,
        };
        FalseRelay {
            others: VecDeque::from([relay.storage.clone()]),
            relay,
            lie,
            members,
            dice,
            began: now.monotonic,
            announced: Vec::new(),
            responses: VecDeque::new(),
            packages: Vec::new(),
            lied_to: BTreeSet::new(),
            effects: VecDeque::new(),
            reveals,
            former: (lie == RelayLie::IsFlooded).then(|| FormerMember {
                follower: Follower::new(GroupId::of(&joiner().public_bytes()), public()),
                keys: vec![joiner()],
            }),
        }
    }

    /// A former member appends by all of its keys, until the directory takes no more of them.
    fn flood(&mut self, now: Now) {
        let Some(mut former) = self.former.take() else { return };
        for _ in 0..FLOODS {
            let call = former.follower.read();
            let handled = self.relay.request(now, call.request());
            if former.follower.handle(&call, &handled.response).is_err() || former.follower.is_behind() {
                continue;
            }
            let index = self.dice.index(former.keys.len());
            let named = OriginKey::from_seed(&Secret::from_bytes(self.dice.seed()));
            let entry = LogEntry { next_key: Some(named.public_bytes()), bytes: b"junk".to_vec() };
            let Ok(call) = former.follower.propose(entry, vec![], vec![], &former.keys[index]) else { break };
            let handled = self.relay.request(now, call.request());
            match former.follower.handle(&call, &handled.response) {
                Ok(Answer::Progress(_)) => former.keys.push(named),
                // It does not know the key any more.
                Ok(Answer::Refused(Refusal::WrongKey)) => _ = former.keys.swap_remove(index),
                _ => {}
            }
            former.follower.withdraw();
            self.effects.extend(handled.published.iter().flat_map(|it| announce(Reach::All, it)));
        }
        self.former = Some(former);
    }

    /// What it does about a request.
    fn request(&mut self, now: Now, node: usize, request: &[u8]) -> Option<Handled> {
        let asked = Request::decode(request).ok();
        match self.lie {
            RelayLie::Forks { from, lasting, answers } => {
                if node < from || answers && now.monotonic >= self.began + lasting {
                    return Some(self.relay.request(now, request));
                }
                let mut handled = self.elsewhere(now, request, 0);
                self.others[0].apply(std::mem::take(&mut handled.writes));
                Some(handled)
            }
            RelayLie::WithholdsLog { from } if node >= from => match asked {
                Some(Request::Read { .. }) => Some(self.elsewhere(now, request, 0)),
                Some(Request::Append(..)) => None,
                _ => Some(self.relay.request(now, request)),
            },
            RelayLie::WithholdsContent { from } if node >= from => {
                let mut handled = self.relay.request(now, request);
                let mut response = Response::decode(&handled.response).expect("the directory wrote it");
                match &mut response {
                    Response::Blobs(blobs) => blobs.fill(None),
                    Response::Package(package) => *package = None,
                    _ => {}
                }
                handled.response = response.encode();
                Some(handled)
            }
            RelayLie::Rewinds | RelayLie::Swaps => {
                let mut handled = self.relay.request(now, request);
                let lie = match self.lie {
                    _ if self.lied_to.remove(&node) => None,
                    RelayLie::Swaps => Some(self.swapped(&handled.response)),
                    // The log would fork.
                    _ if matches!(asked, Some(Request::Append(..))) => None,
                    _ => {
                        let index = self.dice.index(self.others.len());
                        Some(self.elsewhere(now, request, index).response)
                    }
                };
                if let Some(lie) = lie.filter(|it| *it != handled.response) {
                    self.lied_to.insert(node);
                    handled.response = lie;
                }
                Some(handled)
            }
            _ => Some(self.relay.request(now, request)),
        }
    }

    /// What the directory would say if it knew no more than this.
    fn elsewhere(&mut self, now: Now, request: &[u8], index: usize) -> Handled {
        self.relay.directory.handle(now, request, &self.others[index]).expect("memory does not fail")
    }

    /// A response with other content.
    fn swapped(&mut self, response: &[u8]) -> Vec<u8> {
        let mut response = Response::decode(response).expect("the directory wrote it");
        match &mut response {
            Response::Blobs(blobs) if blobs.len() > 1 => blobs.rotate_left(1),
            Response::Blobs(blobs) => blobs.iter_mut().flatten().for_each(|it| it.reverse()),
            Response::Package(Some(taken)) => {
                let own = std::mem::replace(taken, self.packages.last().unwrap_or(taken).clone());
                self.packages.push(own);
            }
            Response::Page(page) | Response::Refused(Refusal::Conflict(page)) if !page.entries.is_empty() => {
                page.entries.reverse();
                let index = self.dice.index(page.entries.len());
                page.entries[index].bytes.push(0);
            }
            _ => {}
        }
        response.encode()
    }

    fn respond(&mut self, node: usize, number: u64, response: Vec<u8>) {
        if self.lie == RelayLie::Replays {
            if !self.lied_to.remove(&node) && !self.responses.is_empty() {
                let old = self.responses[self.dice.index(self.responses.len())].clone();
                self.effects.extend(respond(node, number, &old));
                self.lied_to.insert(node);
            }
            if !self.announced.is_empty() {
                let old = self.dice.index(self.announced.len());
                self.effects.extend(announce(Reach::All, &self.announced[old]));
            }
            self.responses.truncate(KEPT - 1);
            self.responses.push_front(response.clone());
        }
        self.effects.extend(respond(node, number, &response));
    }

    /// Announces to those who may see the log that this member sees.
    fn announce(&mut self, node: usize, published: Published) {
        let to: Range<usize> = match self.lie {
            RelayLie::Forks { from, .. } if node < from => 0..from,
            RelayLie::Forks { from, .. } => from..self.members,
            RelayLie::WithholdsLog { from } => 0..from,
            _ => 0..self.members,
        };
        // Who is shown no entries asks for them, and gets others.
        let most = if self.lie == RelayLie::Swaps { 0 } else { ANNOUNCED_BYTES };
        self.effects.extend(to.flat_map(|it| announce_within(most, Reach::One(it), &published)));
        let is_first = !matches!(self.lie, RelayLie::Forks { from, .. } if node >= from);
        if is_first {
            self.announced.push(published);
        }
        if self.lie == RelayLie::Rewinds {
            self.others.truncate(KEPT - 1);
            self.others.push_front(self.relay.storage.clone());
        }
    }
}

impl Node for FalseRelay {
    type Event = MemberEvent;
    type Command = MemberCommand;

    fn handle(&mut self, now: Now, from: Address, datagram: &mut [u8]) {
        let Some((node, number, request)) = request_in(from, datagram) else { return };
        self.flood(now);
        if let (RelayLie::Replays, Ok(Request::Append(append, _))) = (self.lie, Request::decode(request)) {
            self.effects.push_back(Effect::Send { to: Reach::All, datagram: append.entry.bytes });
        }
        let handled = self.request(now, node, request);
        // What it says follows from what is durable, if it is kept at all (G6).
        while let Some(effect) = self.relay.poll() {
            self.effects.push_back(effect);
        }
        if let Some(handled) = handled {
            self.respond(node, number, handled.response);
            handled.published.into_iter().for_each(|it| self.announce(node, it));
        }
    }

    fn command(&mut self, _now: Now, _command: MemberCommand) {}

    fn timeout(&self) -> Option<Monotonic> {
        self.reveals
    }

    fn handle_timeout(&mut self, now: Now) {
        if let RelayLie::Forks { from, .. } = self.lie
            && self.reveals.take_if(|at| *at <= now.monotonic).is_some()
        {
            let to = (from..self.members).flat_map(|it| self.announced.iter().map(move |published| (it, published)));
            self.effects.extend(to.flat_map(|(it, published)| announce(Reach::One(it), published)));
        }
    }

    fn poll(&mut self) -> Option<Effect<MemberEvent>> {
        self.effects.pop_front()
    }
}

/// What a former member appends beside each request of members.
const FLOODS: usize = 4;
/// Old responses, and states, that it keeps.
const KEPT: usize = 16;
