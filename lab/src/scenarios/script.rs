//! A story as data: what happens when, and what all shall see in the end. It knows no carrier: the
//! simulator plays it, and real sockets do.

use std::collections::BTreeSet;
use std::time::Duration;

use sealcast_keys::Command;
use sealcast_sim::dice::{Chance, Dice};
use sealcast_sim::network::Network;

use crate::misbehaviour::Misbehaviour;

/// What a run can be asked to vary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Knobs {
    /// How many members.
    pub members: usize,
    /// Chance that the network loses a datagram, per receiver.
    pub loss: Chance,
    /// Members start within this time.
    pub jitter: Duration,
}

/// One thing that happens, or is waited for.
#[derive(Clone, Debug)]
pub enum Step {
    /// A member's process starts, or a helper's, whose numbers follow the members'; after a crash, with what its disk holds.
    Start(usize),
    /// It ends without a word.
    Crash(usize),
    /// It is stopped (SIGSTOP).
    Stop(usize),
    /// It goes on.
    Resume(usize),
    /// Whoever orders ends without a word: of the members that run, the first one of their views.
    CrashSequencer,
    /// It is stopped instead.
    StopSequencer,
    /// All members that do not run start, and all that are stopped go on.
    Return,
    /// Within this time all members that run have one view of exactly these.
    Rest(Duration),
    /// Its application asks for something of the group.
    Command(usize, Command),
    /// It evicts another one.
    Evict {
        /// Who.
        by: usize,
        /// Whom.
        whom: usize,
    },
    /// Its delivery reports that it has not heard another one for too long.
    Suspect {
        /// Who.
        by: usize,
        /// Whom.
        whom: usize,
    },
    /// The network is another one from now on.
    Network(Network),
    /// Nothing of the first reaches the second.
    Cut(usize, usize),
    /// Only members of one side hear each other.
    Partition(Vec<Vec<usize>>),
    /// Partition and cuts end.
    Heal,
    /// These publish so many messages a second each, for so long, beside what follows.
    Traffic {
        /// Who.
        by: Vec<usize>,
        /// Messages a second, each.
        rate: u32,
        /// Bytes of a message.
        bytes: usize,
        /// For how long.
        lasting: Duration,
    },
    /// Somebody outside misbehaves from now on.
    Misbehave(Misbehaviour),
    /// From its next start on, this member's or helper's program is changed.
    Imposter(usize, Misbehaviour),
    /// From its next start on, it is ours again.
    Honest(usize),
    /// Time passes.
    Wait(Duration),
    /// Within this time all of these have one view of exactly these.
    Converge {
        /// Who.
        members: BTreeSet<usize>,
        /// How long it may take.
        within: Duration,
    },
    /// Within this time all of these have one view of exactly these, of another epoch than any of them has now.
    Renewed {
        /// Who.
        members: BTreeSet<usize>,
        /// How long it may take.
        within: Duration,
    },
    /// Within this time all of these have one view, of these and perhaps others.
    Together {
        /// Who.
        members: BTreeSet<usize>,
        /// How long it may take.
        within: Duration,
    },
    /// Within this time the member knows that it is out.
    Out {
        /// Who.
        member: usize,
        /// How long it may take.
        within: Duration,
    },
    /// Within this time each of these gets a message of another member.
    Hears {
        /// Who.
        members: BTreeSet<usize>,
        /// How long it may take.
        within: Duration,
    },
    /// Nothing that is published from here on is delivered to this member, nor read by it.
    Deaf(usize),
    /// From here on none of these is in a view with somebody else but with most of these: it is neither captured nor
    /// split off.
    Majority(BTreeSet<usize>),
    /// Within this time all of these have named this member as one that lies.
    Named {
        /// Who.
        by: BTreeSet<usize>,
        /// Whom.
        whom: usize,
        /// How long it may take.
        within: Duration,
    },
    /// Within this time all of these have found that the relay misbehaves.
    Blames {
        /// Who.
        members: BTreeSet<usize>,
        /// Whether all of them have evidence that it showed two logs.
        proof: bool,
        /// How long it may take.
        within: Duration,
    },
    /// All of these are in an epoch of this version of the wire.
    Speaks {
        /// Who.
        members: BTreeSet<usize>,
        /// The version.
        version: u8,
    },
    /// None of these is in an epoch of a greater number.
    Number {
        /// Who.
        members: BTreeSet<usize>,
        /// The greatest that may be.
        at_most: u32,
    },
    /// From here on until the end no such member is in any of these members' views.
    Never {
        /// Whose views.
        members: BTreeSet<usize>,
        /// Who must not be in them.
        whom: usize,
    },
}

/// A story.
#[derive(Clone, Debug)]
pub struct Script {
    /// How many members it names.
    pub members: usize,
    /// The network at its start.
    pub network: Network,
    /// What happens, in order.
    pub steps: Vec<Step>,
    /// Whether every message published must arrive.
    pub lossless: bool,
}

impl Script {
    /// A story of so many members on this network.
    pub fn new(members: usize, network: Network) -> Script {
        Script { members, network, steps: Vec::new(), lossless: false }
    }

    /// Adds a step.
    pub fn then(&mut self, step: Step) -> &mut Script {
        self.steps.push(step);
        self
    }

    /// Time passes.
    pub fn wait(&mut self, time: Duration) -> &mut Script {
        self.then(Step::Wait(time))
    }

    /// Members start in random order within `jitter`.
    pub fn start_all(
        &mut self,
        who: impl IntoIterator<Item = usize>,
        jitter: Duration,
        dice: &mut Dice,
    ) -> &mut Script {
        let mut starts: Vec<(Duration, usize)> =
            who.into_iter().map(|member| (dice.between(Duration::ZERO, jitter), member)).collect();
        starts.sort_unstable();
        let mut passed = Duration::ZERO;
        for (at, member) in starts {
            self.wait(at - passed).then(Step::Start(member));
            passed = at;
        }
        self
    }

    /// All of these shall have one view of exactly these.
    pub fn converge(&mut self, members: impl IntoIterator<Item = usize>, within: Duration) -> &mut Script {
        self.then(Step::Converge { members: members.into_iter().collect(), within })
    }
}
