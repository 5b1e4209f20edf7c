//! Members of a group whose keys come from a centre, and the centre itself, with a changed program.

use std::collections::VecDeque;
use std::time::Duration;

use sealcast_crypto::leighton_micali::Master;
use sealcast_crypto::secret::Secret;
use sealcast_keys::center::misbehaving::MessageKind;
use sealcast_keys::center::query::{self, Answer, Query, Refusal};
use sealcast_sim::{Effect, Node, Reach, Records};
use sealcast_wire::{Address, CertHash, Monotonic, Now};

use super::liar::{Inside, Lies};
use super::{as_open, open_message};
use crate::member::{MemberCommand, MemberEvent};
use crate::scenarios::center::{CenterRobot, KdcNode};

/// How a member of such a group lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CenterLie {
    /// It says that it leads, challenges and proposes, and has no right to.
    Usurps,
    /// It asks to be let in in another member's name, and uses the tokens that this one is given.
    Steals {
        /// Whose.
        whom: usize,
    },
    /// It acknowledges in the names of all others, of those too who are not there.
    AcknowledgesForOthers,
    /// It says that its view ended otherwise than it did.
    Misjudges,
}

/// A member that says what the scheme does not let it.
pub(super) struct CenterLiar {
    lie: CenterLie,
    /// Whose tokens it steals.
    victim: CertHash,
    /// What this one asked with.
    heard: VecDeque<Vec<u8>>,
    /// What it acknowledges for others.
    proposal: Vec<u8>,
}

impl CenterLiar {
    pub(super) fn new(lie: CenterLie, victim: CertHash) -> CenterLiar {
        CenterLiar { lie, victim, heard: VecDeque::new(), proposal: Vec::new() }
    }

    fn look_at(&mut self, now: Now, robot: &mut CenterRobot, bootstrap_sealed: &[u8]) {
        let victim = self.victim;
        match self.lie {
            CenterLie::Steals { .. } => {
                let kind = robot.group().keys().inner().read(bootstrap_sealed);
                if kind == Some(MessageKind::Join(victim)) {
                    self.heard.truncate(HEARD_MAX - 1);
                    self.heard.push_front(as_open(bootstrap_sealed));
                }
                robot.with_keys(now, |keys| keys.steal(bootstrap_sealed, victim));
            }
            CenterLie::AcknowledgesForOthers => {
                if robot.group().keys().inner().read(bootstrap_sealed) == Some(MessageKind::Propose) {
                    self.proposal = bootstrap_sealed.to_vec();
                }
            }
            CenterLie::Usurps | CenterLie::Misjudges => {}
        }
    }
}

impl Lies<CenterRobot> for CenterLiar {
    fn hear(&mut self, now: Now, member: &mut Inside<CenterRobot>, from: Address, datagram: &mut [u8]) {
        if let Some(bootstrap_sealed) = open_message(datagram) {
            self.look_at(now, &mut member.robot, bootstrap_sealed);
        }
        member.robot.handle(now, from, datagram);
    }

    fn effect(&mut self, now: Now, member: &mut Inside<CenterRobot>, effect: Effect<MemberEvent>) {
        let effect = match effect {
            Effect::Send { to, datagram } if self.lie == CenterLie::Misjudges => {
                let lie = open_message(&datagram).and_then(|it| member.robot.with_keys(now, |keys| keys.misjudge(it)));
                Effect::Send { to, datagram: lie.map_or(datagram, |it| as_open(&it)) }
            }
            Effect::Send { to, datagram } if self.lie == CenterLie::AcknowledgesForOthers => {
                // Others' acknowledgements come to the leader alone: it goes by its own.
                if let Some(own) = open_message(&datagram) {
                    member.robot.with_keys(now, |keys| keys.acknowledge_falsely(&self.proposal, own));
                }
                Effect::Send { to, datagram }
            }
            other => other,
        };
        member.effects.push_back(effect);
    }

    fn act(&mut self, now: Now, member: &mut Inside<CenterRobot>) {
        if self.lie == CenterLie::Usurps {
            member.robot.with_keys(now, |keys| keys.usurp());
        }
        self.heard.iter().for_each(|it| member.send(it.clone()));
    }
}

/// How a centre lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum KdcLie {
    /// It has not the centre's secret: it changes what the centre says, and says that members are revoked.
    Garbles,
    /// It refuses everything.
    Refuses,
    /// It knows of no revocation.
    Forgets,
}

/// A centre that lies, or somebody in its place.
pub(super) struct FalseKdc {
    kdc: KdcNode,
    lie: KdcLie,
    members: Vec<CertHash>,
    effects: VecDeque<Effect<MemberEvent>>,
}

impl FalseKdc {
    pub(super) fn new(records: &Records, lie: KdcLie, members: Vec<CertHash>) -> FalseKdc {
        let none = Records::new();
        let kdc = KdcNode::new(if lie == KdcLie::Forgets { &none } else { records });
        FalseKdc { kdc, lie, members, effects: VecDeque::new() }
    }

    /// Answers to a question that the centre gives in no such way.
    fn lies(&self, asked: &[u8]) -> Option<Vec<Vec<u8>>> {
        let kind = *asked.get(query::MAGIC.len())?;
        let asked = Query::read(asked).ok()?;
        let (asker, nonce) = (asked.asker, asked.nonce);
        let secret = if self.lie == KdcLie::Refuses { KdcNode::secret() } else { Secret::from_bytes([1; 32]) };
        let keys = Master::new(&secret).long_term(&asker.0);
        let answers = match self.lie {
            KdcLie::Refuses => vec![Answer::Refused(kind, 0, Refusal::Denied)],
            KdcLie::Garbles => vec![
                Answer::Revoked(9, (1..).zip(&self.members).map(|(number, it)| (number, *it)).collect()),
                Answer::Refused(kind, 9, Refusal::Revoked),
                Answer::Done(9),
            ],
            KdcLie::Forgets => Vec::new(),
        };
        Some(answers.iter().map(|it| it.write(&asker, &nonce, &keys)).collect())
    }
}

impl Node for FalseKdc {
    type Event = MemberEvent;
    type Command = MemberCommand;

    fn handle(&mut self, now: Now, from: Address, datagram: &mut [u8]) {
        let Address::Node(node) = from else { return };
        let to = Reach::One(node as usize);
        let lies = open_message(datagram).and_then(|it| self.lies(it)).unwrap_or_default();
        self.effects.extend(lies.iter().map(|it| Effect::Send { to, datagram: as_open(it) }));
        self.kdc.handle(now, from, datagram);
        while let Some(effect) = self.kdc.poll() {
            match (effect, self.lie) {
                (Effect::Send { to, mut datagram }, KdcLie::Garbles) => {
                    if let Some(last) = datagram.last_mut() {
                        *last ^= 1;
                    }
                    self.effects.push_back(Effect::Send { to, datagram });
                }
                (_, KdcLie::Refuses) | (Effect::Store { .. }, KdcLie::Forgets) => {}
                (effect, _) => self.effects.push_back(effect),
            }
        }
    }

    fn command(&mut self, _now: Now, _command: MemberCommand) {}

    fn timeout(&self) -> Option<Monotonic> {
        None
    }

    fn handle_timeout(&mut self, _now: Now) {}

    fn poll(&mut self) -> Option<Effect<MemberEvent>> {
        self.effects.pop_front()
    }
}

/// From one lie of its own to the next.
pub(super) const EVERY: Duration = Duration::from_millis(50);
/// Messages of its victim that a thief says again.
const HEARD_MAX: usize = 4;
