//! Scenarios: stories by name, played by a fixture in a simulation.

pub(crate) mod carrier;
pub mod center;
pub(crate) mod channels;
pub mod command;
pub mod contributory;
mod fifo;
pub mod fixture;
mod insiders;
mod lan;
mod leaders;
pub mod mls;
mod mocks;
mod order;
pub mod pairs;
mod relays;
pub mod script;
pub mod simulation;
mod versions;
pub(crate) mod watch;

use std::io;
use std::time::Duration;

use sealcast_sim::dice::{Chance, Dice};

use crate::mocks::fixture::{MlsFixture, ThresholdFixture};
use sealcast_keys::contributory::misbehaving::Rule;

use center::CenterRobots;
use channels::OrderedRobots;
use contributory::Robots;
use fifo::ReliableRobots;
use fixture::Fixture;
use mls::MlsMembers;
use script::{Knobs, Script};
use simulation::{Keep, Report};

/// A story by name.
pub struct Scenario {
    /// What to type.
    pub name: &'static str,
    /// What happens, in one sentence.
    pub story: &'static str,
    /// What it is played with unless asked otherwise.
    pub knobs: Knobs,
    fixture: fn(&Knobs) -> Box<dyn Fixture>,
    write: fn(&Knobs, &mut Dice) -> Script,
}

impl Scenario {
    /// The story with these knobs and the chances of this seed.
    pub fn script(&self, knobs: &Knobs, seed: u64) -> Script {
        (self.write)(knobs, &mut Dice::new(seed, STREAM_SCRIPT))
    }

    /// Plays it on the simulator.
    pub fn play(&self, knobs: &Knobs, seed: u64, keep: Keep) -> Report {
        let _again = Again { scenario: self, knobs, seed, ground: Ground::Simulator };
        simulation::play(&*(self.fixture)(knobs), &self.script(knobs, seed), seed, keep)
    }

    /// Plays it on the simulator with members of which none that behaves keeps these rules; `None` where there are no such.
    pub fn play_without(&self, rules: &'static [Rule], knobs: &Knobs, seed: u64, keep: Keep) -> Option<Report> {
        let fixture = (self.fixture)(knobs).lacking(rules)?;
        Some(simulation::play(&*fixture, &self.script(knobs, seed), seed, keep))
    }

    /// Plays it over real sockets; this process must be inside a namespace of [`crate::netns`], or root.
    ///
    /// # Errors
    /// If no network of namespaces can be made here, or the story's ways need more than UDP multicast.
    pub fn play_over_sockets(&self, knobs: &Knobs, seed: u64, keep: Keep) -> io::Result<Report> {
        let _again = Again { scenario: self, knobs, seed, ground: Ground::Sockets };
        let fixture = (self.fixture)(knobs).apart();
        let fixture = fixture.ok_or_else(|| io::Error::other(format!("{} has no way over UDP", self.name)))?;
        simulation::play_over_sockets(&*fixture, &self.script(knobs, seed), seed, keep)
    }

    /// Plays it there.
    ///
    /// # Errors
    /// Over sockets, as [`Scenario::play_over_sockets`].
    pub fn play_on(&self, ground: Ground, knobs: &Knobs, seed: u64, keep: Keep) -> io::Result<Report> {
        match ground {
            Ground::Simulator => Ok(self.play(knobs, seed, keep)),
            Ground::Sockets => self.play_over_sockets(knobs, seed, keep),
        }
    }

    /// Whether it can be played over sockets.
    pub fn has_sockets(&self) -> bool {
        (self.fixture)(&self.knobs).apart().is_some()
    }

    /// The scenario of a name.
    pub fn find(name: &str) -> Option<&'static Scenario> {
        ALL.iter().find(|s| s.name == name)
    }
}

/// Where a story is played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ground {
    /// Virtual time and a simulated network.
    Simulator,
    /// Real time, real sockets.
    Sockets,
}

/// Says how to see a run again that ends in a panic.
struct Again<'a> {
    scenario: &'a Scenario,
    knobs: &'a Knobs,
    seed: u64,
    ground: Ground,
}

impl Drop for Again<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("again:  {}", command::again(self.scenario, self.knobs, self.seed, self.ground));
        }
    }
}

/// What a sequencer can do that is an insider: not among all, since checkers report it.
pub static TWO_ORDERS: Scenario =
    ordering("order-two-orders", 5, 50_000, "whoever orders says two orders", order::two_orders);

/// The same of a leader, where keys come from a centre.
pub static CENTER_TWO_ORDERS: Scenario = center(
    "center-order-two-orders",
    5,
    50_000,
    center_order_leaders,
    "the leader, who orders, says two orders",
    leaders::two_orders,
);

/// All scenarios.
pub static ALL: &[Scenario] = &[
    robots("formation", 8, "members start within the jitter and form one group", lan::formation),
    Scenario {
        name: "formation-wide",
        story: "2 to 64 members, jitter to 2 s, loss to 20 %: all drawn from the seed",
        knobs: Knobs { members: 64, loss: Chance(200_000), jitter: Duration::from_secs(2) },
        fixture: contributory,
        write: lan::formation_wide,
    },
    robots("one-by-one", 6, "members join a group one after the other", lan::one_by_one),
    robots("leave", 6, "a member leaves, the others agree on a key without it", lan::leave),
    robots("evict", 6, "a member is evicted by a signed statement, and never comes back", lan::evict),
    robots("suspect", 6, "a member dies; its silence removes it from the view", lan::suspect),
    robots("rekey", 6, "a member asks for a new key, and all have it", lan::rekey),
    robots("rotate", 6, "members ask for a new key, several at once", lan::rotate),
    robots("partition", 6, "the network splits, both halves go on, and merge when it heals", lan::partition),
    robots("restart", 5, "processes die and come back at once or later, some several times", lan::restart),
    robots("frozen", 5, "a process is stopped until the others have given it up, and goes on", lan::frozen),
    robots("dying-joiner", 5, "newcomers die at every moment of their joining; nobody is held up", lan::dying_joiner),
    robots("silent-member", 5, "a member hears but is not heard, or is heard but does not hear", lan::silent_member),
    robots("replayer", 5, "an outsider sends everything again, at once and later", lan::replayer),
    robots("forger", 5, "an outsider sends forgeries of every form while the group lives", lan::forger),
    robots("flooder", 4, "an outsider floods the group while it forms", lan::flooder),
    robots(
        "flooder-inside",
        4,
        "a member says everything many times over, and garbage under the bootstrap key",
        lan::flooder_inside,
    ),
    robots("equivocator", 5, "a member tells half of the others another story", lan::equivocator),
    robots(
        "evicted-insider",
        5,
        "an evicted member goes on sealing with old keys and reading along",
        lan::evicted_insider,
    ),
    quiet("traffic-join", 5, "members join while all publish 1,000 messages a second: none is lost", lan::traffic_join),
    quiet(
        "traffic-rotate",
        5,
        "keys change while all publish 1,000 messages a second: none is lost",
        lan::traffic_rotate,
    ),
    quiet(
        "traffic-evict",
        5,
        "a member is evicted while all publish 1,000 messages a second: none is lost",
        lan::traffic_evict,
    ),
    quiet(
        "traffic-leave",
        5,
        "a member leaves while all publish 1,000 messages a second: none is lost",
        lan::traffic_leave,
    ),
    robots(
        "claimed-number",
        5,
        "somebody proposes, to all who start, epochs of the greatest numbers",
        insiders::claimed_number,
    ),
    quiet("climber", 4, "each run of a member that comes and goes claims an epoch far ahead", insiders::climber),
    quiet("churner", 5, "a member joins, wants new keys and leaves without end: nothing is lost", insiders::churner),
    quiet(
        "visitor",
        5,
        "a member joins and leaves without end while the others publish: none of theirs is lost",
        insiders::visitor,
    ),
    robots("captor", 5, "somebody captures each newcomer of a group, by an epoch that it makes up", insiders::captor),
    robots(
        "evicted-captor",
        5,
        "an evicted member captures one that was off when it was evicted",
        insiders::evicted_captor,
    ),
    robots(
        "captured",
        5,
        "a newcomer that nobody else hears is captured, until its captor is silent",
        insiders::captured,
    ),
    quiet("splitter", 5, "a member says the truth to one of the others and a lie to the rest", insiders::splitter),
    quiet(
        "splitter-heard",
        5,
        "a member says to one of the others what it heard, and something else to the rest",
        insiders::splitter_heard,
    ),
    quiet(
        "splitter-share",
        5,
        "a member has a right share for one of the others and none for the rest",
        insiders::splitter_share,
    ),
    quiet(
        "splitter-confirmation",
        5,
        "a member confirms the key to one of the others and another one to the rest",
        insiders::splitter_confirmation,
    ),
    robots(
        "twins",
        5,
        "one certificate has two cards with one short id, and shows each half another one",
        insiders::twins,
    ),
    Scenario {
        name: "wrong-publics",
        story: "a reader says another key to who only writes than the other readers do",
        knobs: Knobs { members: 5, loss: Chance::NEVER, jitter: Duration::from_millis(100) },
        fixture: with_sensor,
        write: insiders::wrong_publics,
    },
    channels(
        "channels-join",
        5,
        0,
        "members join while best effort and ordered messages flow at once",
        lan::traffic_join,
    ),
    channels("channels-rotate", 5, 0, "keys change while messages flow on both channels at once", lan::traffic_rotate),
    channels("channels-evict", 5, 0, "a member is evicted while messages flow on both channels", lan::traffic_evict),
    channels("channels-leave", 5, 0, "a member leaves while messages flow on both channels", lan::traffic_leave),
    channels("channels-suspect", 6, 50_000, "a member dies while messages flow on both channels", channels::suspect),
    channels("channels-partition", 6, 50_000, "the network splits and heals under both channels", channels::partition),
    channels("channels-restart", 5, 50_000, "processes die and come back under both channels", lan::restart),
    reliable("fifo-loss", 5, 200_000, "all publish fifo on a network that loses up to a fifth", fifo::loss),
    reliable("fifo-deaf", 5, 50_000, "a member hears nothing for up to a second, and gets it all", fifo::deaf),
    reliable("fifo-join", 5, 50_000, "members join one after the other while all publish fifo", lan::one_by_one),
    reliable("fifo-leave", 5, 50_000, "a member leaves while all publish fifo", lan::leave),
    reliable("fifo-rotate", 5, 50_000, "keys change while all publish fifo: what not all had comes again", lan::rotate),
    reliable("fifo-evict", 5, 50_000, "a member is evicted while all publish fifo", lan::evict),
    reliable("fifo-suspect", 5, 50_000, "a member dies while all publish fifo", lan::suspect),
    reliable("fifo-partition", 6, 50_000, "the network splits and heals while all publish fifo", lan::partition),
    reliable("fifo-restart", 5, 50_000, "processes die and come back while all publish fifo", lan::restart),
    reliable("fifo-frozen", 5, 50_000, "a process is stopped and goes on while all publish fifo", lan::frozen),
    reliable("fifo-life", 6, 50_000, "anything happens to a group that publishes fifo", lan::life),
    ordering("order-loss", 5, 200_000, "all publish ordered on a network that loses up to a fifth", fifo::loss),
    ordering("order-deaf", 5, 50_000, "a member hears nothing for up to a second, and misses nothing", fifo::deaf),
    ordering("order-join", 5, 50_000, "members join one after the other while all publish ordered", lan::one_by_one),
    ordering("order-leave", 5, 50_000, "a member leaves while all publish ordered", lan::leave),
    ordering("order-rotate", 5, 50_000, "keys change while all publish ordered: each view ends alike", lan::rotate),
    ordering("order-evict", 5, 50_000, "a member is evicted while all publish ordered", lan::evict),
    ordering(
        "order-suspect",
        5,
        50_000,
        "a member dies, the sequencer perhaps, while all publish ordered",
        lan::suspect,
    ),
    ordering(
        "order-partition",
        6,
        50_000,
        "the network splits and heals: the primary component orders",
        lan::partition,
    ),
    ordering("order-replayer", 5, 50_000, "an outsider sends everything again, at once and later", lan::replayer),
    ordering("order-restart", 5, 50_000, "processes die and come back while all publish ordered", lan::restart),
    ordering("order-frozen", 5, 50_000, "a process, the sequencer perhaps, is stopped and goes on", lan::frozen),
    ordering(
        "order-sequencer-killed",
        5,
        50_000,
        "whoever orders dies and comes back, twice, while all publish ordered",
        order::sequencer_killed,
    ),
    ordering(
        "order-double-failover",
        5,
        50_000,
        "whoever orders dies, and during the change whoever orders next",
        order::double_failover,
    ),
    Scenario {
        name: "order-acknowledger",
        story: "a member says that it holds all of the order before it does; others may have a gap where it alone had some",
        knobs: Knobs { members: 5, loss: Chance(100_000), jitter: Duration::from_millis(500) },
        fixture: ordering_robots_with_gaps,
        write: order::acknowledger,
    },
    ordering("order-nak-flooder", 5, 50_000, "a member asks for everything, again and again", order::nak_flooder),
    ordering(
        "order-stamp-forger",
        5,
        50_000,
        "a member that does not order stamps each record that it hears",
        order::stamp_forger,
    ),
    ordering(
        "order-evicted-sequencer",
        5,
        50_000,
        "whoever orders is evicted, does not listen, and goes on",
        order::evicted_sequencer,
    ),
    Scenario {
        name: "order-stopped",
        story: "a process, the sequencer perhaps, is stopped for 10 s and goes on with its old state; it may have a gap",
        knobs: knobs(5),
        fixture: ordering_robots_with_gaps,
        write: order::stopped,
    },
    Scenario {
        name: "order-fast-churn",
        story: "a hundred times in a second members come, leave or die while all publish ordered",
        knobs: knobs(6),
        fixture: ordering_robots_with_gaps,
        write: order::fast_churn,
    },
    Scenario {
        name: "order-slow",
        story: "a member that gets nothing holds all up, is left out as slow, and comes back; it may have a gap",
        knobs: knobs(5),
        fixture: expelling_robots,
        write: fifo::slow,
    },
    Scenario {
        name: "order-state",
        story: "members die and come back one after the other, who give others their state among them",
        knobs: knobs(5),
        fixture: ordering_robots_with_gaps,
        write: fifo::state,
    },
    Scenario {
        name: "order-life",
        story: "anything happens to a group that publishes ordered; who was long apart may have a gap",
        knobs: knobs(6),
        fixture: ordering_robots_with_gaps,
        write: lan::life,
    },
    Scenario {
        name: "mixed-versions",
        story: "members of two versions of the wire join, change keys and go: the highest that all speak is spoken",
        knobs: knobs(6),
        fixture: with_old,
        write: versions::mixed,
    },
    Scenario {
        name: "downgrader",
        story: "a member strips versions from what others say, and says that they speak less than they do",
        knobs: knobs(5),
        fixture: newer,
        write: versions::downgrader,
    },
    robots("life", 7, "anything happens to a group, in any order, and in the end it is one", lan::life),
    center(
        "center-formation",
        8,
        50000,
        center_lan,
        "members start within the jitter, and one of them leads all",
        lan::formation,
    ),
    center("center-leave", 6, 50000, center_lan, "a member leaves, the leader perhaps", lan::leave),
    center("center-evict", 6, 50000, center_lan, "a member is revoked at the centre, and never comes back", lan::evict),
    center("center-suspect", 6, 50000, center_lan, "a member dies, the leader perhaps", lan::suspect),
    center("center-rekey", 6, 50000, center_lan, "a member asks the leader for a new key, and all have it", lan::rekey),
    center(
        "center-silent-member",
        6,
        50000,
        center_lan,
        "a member hears but is not heard, or is heard but does not hear",
        lan::silent_member,
    ),
    center(
        "center-dying-joiner",
        5,
        50000,
        center_lan,
        "newcomers die at every moment of their joining",
        lan::dying_joiner,
    ),
    center(
        "center-replayer",
        5,
        50000,
        center_lan,
        "an outsider sends everything again, at once and later",
        lan::replayer,
    ),
    center(
        "center-forger",
        5,
        50000,
        center_lan,
        "an outsider sends forgeries of every form while the group lives",
        lan::forger,
    ),
    center("center-flooder", 4, 50000, center_lan, "an outsider floods the group while it forms", lan::flooder),
    center(
        "center-partition",
        6,
        50000,
        center_leaders,
        "the network splits, each side has a leader, and they merge when it heals",
        lan::partition,
    ),
    center("center-life", 7, 50000, center_lan, "anything happens to a group whose keys come from a centre", lan::life),
    center(
        "center-traffic-join",
        5,
        0,
        center_lan,
        "a member joins while all publish 1,000 messages a second: none is lost",
        lan::traffic_join,
    ),
    center(
        "center-traffic-rotate",
        5,
        0,
        center_lan,
        "keys change while all publish 1,000 messages a second: none is lost",
        lan::traffic_rotate,
    ),
    center(
        "center-traffic-evict",
        5,
        0,
        center_lan,
        "a member is revoked while all publish 1,000 messages a second: none is lost",
        lan::traffic_evict,
    ),
    center(
        "center-traffic-leave",
        5,
        0,
        center_lan,
        "a member leaves while all publish 1,000 messages a second: none is lost",
        lan::traffic_leave,
    ),
    center(
        "center-fifo-loss",
        5,
        200000,
        center_fifo,
        "all publish fifo on a network that loses up to a fifth",
        fifo::loss,
    ),
    center(
        "center-fifo-deaf",
        5,
        50000,
        center_fifo,
        "a member hears nothing for up to a second, and gets it all",
        fifo::deaf,
    ),
    center(
        "center-fifo-join",
        5,
        50000,
        center_fifo,
        "members join one after the other while all publish fifo",
        lan::one_by_one,
    ),
    center(
        "center-fifo-leave",
        5,
        50000,
        center_fifo,
        "a member leaves, the leader perhaps while all publish fifo",
        lan::leave,
    ),
    center("center-fifo-rotate", 5, 50000, center_fifo, "keys change while all publish fifo", lan::rotate),
    center(
        "center-fifo-evict",
        5,
        50000,
        center_fifo,
        "a member is revoked, the leader perhaps while all publish fifo",
        lan::evict,
    ),
    center(
        "center-fifo-suspect",
        5,
        50000,
        center_fifo,
        "a member dies, the leader perhaps while all publish fifo",
        lan::suspect,
    ),
    center(
        "center-fifo-partition",
        6,
        50000,
        center_fifo_leaders,
        "the network splits and heals while all publish fifo",
        lan::partition,
    ),
    center(
        "center-fifo-restart",
        5,
        50000,
        center_fifo,
        "processes die and come back while all publish fifo",
        lan::restart,
    ),
    center(
        "center-fifo-frozen",
        5,
        50000,
        center_fifo,
        "a process, the leader perhaps, is stopped and goes on while all publish fifo",
        lan::frozen,
    ),
    center("center-fifo-life", 6, 50000, center_fifo, "anything happens while all publish fifo", lan::life),
    center(
        "center-order-loss",
        5,
        200000,
        center_order,
        "all publish ordered on a network that loses up to a fifth",
        fifo::loss,
    ),
    center(
        "center-order-deaf",
        5,
        50000,
        center_order,
        "a member hears nothing for up to a second, and gets it all",
        fifo::deaf,
    ),
    center(
        "center-order-join",
        5,
        50000,
        center_order,
        "members join one after the other while all publish ordered",
        lan::one_by_one,
    ),
    center(
        "center-order-leave",
        5,
        50000,
        center_order,
        "a member leaves, the leader perhaps while all publish ordered",
        lan::leave,
    ),
    center("center-order-rotate", 5, 50000, center_order, "keys change while all publish ordered", lan::rotate),
    center(
        "center-order-evict",
        5,
        50000,
        center_order,
        "a member is revoked, the leader perhaps while all publish ordered",
        lan::evict,
    ),
    center(
        "center-order-suspect",
        5,
        50000,
        center_order,
        "a member dies, the leader perhaps while all publish ordered",
        lan::suspect,
    ),
    center(
        "center-order-partition",
        6,
        50000,
        center_order_leaders,
        "the network splits and heals while all publish ordered",
        lan::partition,
    ),
    center(
        "center-order-restart",
        5,
        50000,
        center_order,
        "processes die and come back while all publish ordered",
        lan::restart,
    ),
    center(
        "center-order-frozen",
        5,
        50000,
        center_order,
        "a process, the leader perhaps, is stopped and goes on while all publish ordered",
        lan::frozen,
    ),
    center(
        "center-order-forger",
        5,
        50000,
        center_order,
        "an outsider forges datagrams of every kind while all publish ordered",
        lan::forger,
    ),
    center(
        "center-order-replayer",
        5,
        50000,
        center_order,
        "an outsider sends everything again, at once and later, while all publish ordered",
        lan::replayer,
    ),
    center(
        "center-order-life",
        6,
        50000,
        center_order_with_gaps,
        "anything happens while all publish ordered",
        lan::life,
    ),
    center(
        "center-order-leader-killed",
        6,
        50000,
        center_order_leaders,
        "the leader, who orders, is killed while all publish ordered: a stand-by leads on",
        leaders::killed,
    ),
    center(
        "center-order-double-failover",
        6,
        50000,
        center_order_leaders,
        "the leader is killed, and the stand-by that takes over, too",
        leaders::double_failover,
    ),
    center(
        "center-order-kdc-lost",
        6,
        50000,
        center_order_leaders,
        "the centre is away while the leader is killed",
        leaders::kdc_lost,
    ),
    center(
        "center-order-split",
        6,
        50000,
        center_order_leaders,
        "the network splits leader and stand-by, who both lead, with the centre or without it",
        leaders::split,
    ),
    center(
        "center-order-churn",
        6,
        50000,
        center_order_with_gaps,
        "members come, leave and die, two at once, while all publish ordered",
        leaders::churn,
    ),
    center(
        "center-order-fast-churn",
        6,
        50000,
        center_order_with_gaps,
        "a hundred times in a second members come, leave or die while all publish ordered",
        order::fast_churn,
    ),
    center(
        "center-order-stopped",
        5,
        50000,
        center_order_with_gaps,
        "a process, the leader perhaps, is stopped for 10 s and goes on with its old state",
        order::stopped,
    ),
    center(
        "center-order-slow",
        5,
        50000,
        center_order_expelling,
        "a member that gets nothing holds all up, is left out as slow, and comes back",
        fifo::slow,
    ),
    center(
        "center-order-acknowledger",
        6,
        100_000,
        center_order_with_gaps,
        "a member says that it holds all of the order before it does; others may have a gap where it alone had some",
        order::acknowledger,
    ),
    center(
        "center-order-nak-flooder",
        6,
        50_000,
        center_order,
        "a member asks for everything, again and again",
        order::nak_flooder,
    ),
    center(
        "center-order-stamp-forger",
        6,
        50_000,
        center_order,
        "a member that does not order stamps each record that it hears",
        order::stamp_forger,
    ),
    center(
        "center-order-evicted-sequencer",
        5,
        50_000,
        center_order_leaders,
        "the leader, who orders, is revoked, does not listen, and goes on",
        leaders::evicted_sequencer,
    ),
    center(
        "center-order-large",
        100,
        20000,
        center_order_few_leaders,
        "of more members than show each other MACs some publish ordered, and whoever orders dies",
        order::large,
    ),
    center("center-churn", 7, 50000, center_lan, "members come, leave and die, two at once", leaders::churn),
    center(
        "center-usurper",
        6,
        50000,
        center_lan,
        "a member without the right to lead says that it leads",
        leaders::usurper,
    ),
    center(
        "center-token-thief",
        6,
        50000,
        center_lan,
        "a member uses the tokens that another one is given",
        leaders::token_thief,
    ),
    center(
        "center-acknowledger",
        6,
        50000,
        center_lan,
        "a member acknowledges in the names of all others",
        leaders::acknowledger,
    ),
    center(
        "center-misjudger",
        6,
        50000,
        center_lan,
        "a member acknowledges another end of the view than there was",
        leaders::misjudger,
    ),
    center(
        "center-revoked-leader",
        6,
        50000,
        center_leaders,
        "the leader is revoked, goes on leading, and captures whoever comes back",
        leaders::revoked_leader,
    ),
    center(
        "center-kdc-garbles",
        6,
        50000,
        center_lan,
        "somebody in the centre's place changes its answers, and says that members are revoked",
        leaders::kdc_garbles,
    ),
    center("center-kdc-refuses", 6, 50000, center_lan, "the centre refuses everything", leaders::kdc_refuses),
    center("center-kdc-forgets", 6, 50000, center_lan, "the centre forgot who is revoked", leaders::kdc_forgets),
    Scenario {
        name: "mls-external",
        story: "newcomers come in by external commits, and publish to each other",
        knobs: knobs(4),
        fixture: members_of_mls,
        write: mocks::admission,
    },
    Scenario {
        name: "mls-admission",
        story: "devices wait, and members admit them by their key packages",
        knobs: knobs(5),
        fixture: mls_admitted,
        write: mocks::admission,
    },
    Scenario {
        name: "mls-two-founders",
        story: "all found a group at once: one wins, and the others join it",
        knobs: knobs(4),
        fixture: founders_of_mls,
        write: mocks::admission,
    },
    Scenario {
        name: "mls-race",
        story: "all commit at once; one wins each epoch, the others commit again",
        knobs: knobs(5),
        fixture: members_of_mls,
        write: mocks::race,
    },
    Scenario {
        name: "mls-crash",
        story: "a committer dies at any moment and comes back with what its disk holds",
        knobs: knobs(4),
        fixture: members_of_mls,
        write: mocks::crash,
    },
    Scenario {
        name: "mls-departure",
        story: "one leaves and one is evicted while all publish",
        knobs: knobs(5),
        fixture: members_of_mls,
        write: mocks::departure,
    },
    Scenario {
        name: "mls-offline",
        story: "a member is away for ten epochs, and follows the log",
        knobs: knobs(4),
        fixture: members_of_mls,
        write: mls::offline,
    },
    Scenario {
        name: "mls-fleet-restart",
        story: "all processes end at once, and come back",
        knobs: knobs(5),
        fixture: members_of_mls,
        write: mls::fleet_restart,
    },
    Scenario {
        name: "mls-partition",
        story: "a member is parted from the order for some seconds, and follows it",
        knobs: knobs(4),
        fixture: members_of_mls,
        write: mls::partition,
    },
    Scenario {
        name: "mls-evicted-rejoiner",
        story: "an evicted member comes back, with its state and without",
        knobs: knobs(4),
        fixture: members_of_mls,
        write: mls::evicted_rejoiner,
    },
    insider_of_mls(
        "mls-garbage-committer",
        "a member has bytes ordered that are no commits, and commits, cards and parts that are void",
        mls::garbage_committer,
    ),
    insider_of_mls(
        "mls-double-committer",
        "a member makes two commits of each epoch, and has each of them ordered twice",
        mls::double_committer,
    ),
    insider_of_mls(
        "mls-rights-forger",
        "a member removes another one, and everybody, without the right to",
        mls::rights_forger,
    ),
    insider_of_mls(
        "mls-bad-path",
        "half of the others cannot open the commits of a member: they complain, come in anew, and it is removed",
        mls::bad_path,
    ),
    insider_of_mls(
        "mls-bad-path-all",
        "nobody can open the commits of a member: the others found the group anew, without it",
        mls::bad_path_all,
    ),
    insider_of_mls(
        "mls-false-complainer",
        "a member complains of all commits of others: nobody is removed",
        mls::false_complainer,
    ),
    insider_of_mls("mls-proposal-flooder", "a member has many proposals ordered", mls::proposal_flooder),
    Scenario {
        name: "mls-no-welcome",
        story: "the member that lets newcomers in sends them no Welcome: they come in by external commits",
        knobs: knobs(4),
        fixture: mls_admitted,
        write: mls::no_welcome,
    },
    Scenario {
        name: "mls-relay",
        story: "one leaves and one is evicted while all publish, over a relay with a directory",
        knobs: knobs(5),
        fixture: mls_at_relay,
        write: mocks::departure,
    },
    Scenario {
        name: "mls-relay-admission",
        story: "devices wait at a relay; one is off when it is admitted, and all others are when it starts",
        knobs: knobs(4),
        fixture: mls_admitted_at_relay,
        write: mls::admitted_while_off,
    },
    Scenario {
        name: "mls-relay-race",
        story: "all commit at once over a relay: the directory takes one after the other",
        knobs: knobs(5),
        fixture: mls_at_relay,
        write: mocks::race,
    },
    Scenario {
        name: "mls-relay-crash",
        story: "a committer dies at any moment and comes back, over a relay",
        knobs: knobs(4),
        fixture: mls_at_relay,
        write: mocks::crash,
    },
    Scenario {
        name: "mls-relay-offline",
        story: "a member is away for ten epochs, and reads what the directory kept",
        knobs: knobs(4),
        fixture: mls_at_relay,
        write: mls::offline,
    },
    Scenario {
        name: "mls-relay-restart",
        story: "the relay's process ends three times, and comes back with what it wrote",
        knobs: knobs(4),
        fixture: mls_at_relay,
        write: mls::relay_restart,
    },
    Scenario {
        name: "mls-data",
        story: "with data=mls one leaves and one is evicted while all publish",
        knobs: knobs(5),
        fixture: mls_data,
        write: mocks::departure,
    },
    Scenario {
        name: "mls-data-crash",
        story: "with data=mls a committer dies at any moment and comes back",
        knobs: knobs(4),
        fixture: mls_data,
        write: mocks::crash,
    },
    Scenario {
        name: "mls-data-relay",
        story: "with data=mls all processes end at once, and come back to a relay",
        knobs: knobs(4),
        fixture: mls_data_at_relay,
        write: mls::fleet_restart,
    },
    lying_relay(
        "mls-relay-forker",
        mls_at_forking_relay,
        "the relay signs two logs for two sides of a group, and shows one side the other log in the end",
        relays::forker,
    ),
    lying_relay(
        "mls-relay-amnesiac",
        mls_at_forking_relay,
        "the relay loses the end of its log, and signs another one for a member that was away",
        relays::amnesiac,
    ),
    lying_relay(
        "mls-relay-withholder",
        mls_at_relay,
        "the relay shows some members nothing new, an eviction among it, for a while",
        relays::withholder,
    ),
    lying_relay(
        "mls-relay-content-withholder",
        mls_admitted_at_relay,
        "the relay gives a newcomer neither Welcome nor tree for a while",
        relays::content_withholder,
    ),
    lying_relay(
        "mls-relay-rewinder",
        mls_at_relay,
        "the relay answers every second time by what it knew a while ago",
        relays::rewinder,
    ),
    lying_relay(
        "mls-relay-swapper",
        mls_admitted_at_relay,
        "the relay gives other blobs, entries and key packages than those that it is asked for",
        relays::swapper,
    ),
    lying_relay(
        "mls-relay-replayer",
        mls_at_relay,
        "the relay repeats responses, announcements and what members say, and shows ordered messages first as best effort",
        relays::replayer,
    ),
    lying_relay(
        "mls-data-replayer",
        mls_data_at_relay,
        "with data=mls the relay repeats what members say, and shows what is to be ordered first as best effort",
        relays::replayer,
    ),
    lying_relay(
        "mls-relay-flooded",
        mls_at_relay,
        "a former member floods the log with entries that name keys; members go on by theirs",
        relays::flooded,
    ),
    Scenario {
        name: "mock-mls-admission",
        story: "MLS-shaped: members are let in by a Welcome, and publish to each other",
        knobs: knobs(4),
        fixture: mls,
        write: mocks::admission,
    },
    Scenario {
        name: "mock-mls-race",
        story: "MLS-shaped: all commit at once; one wins each epoch, the others are superseded and retry",
        knobs: knobs(5),
        fixture: mls,
        write: mocks::race,
    },
    Scenario {
        name: "mock-mls-crash",
        story: "MLS-shaped: a committer dies at any moment and comes back with what its disk holds",
        knobs: knobs(4),
        fixture: mls,
        write: mocks::crash,
    },
    Scenario {
        name: "mock-mls-departure",
        story: "MLS-shaped: one leaves and one is evicted while all publish",
        knobs: knobs(5),
        fixture: mls,
        write: mocks::departure,
    },
    Scenario {
        name: "mock-threshold",
        story: "threshold-shaped: body now, shares later, one broker lies, one reader gets nothing; one order",
        knobs: knobs(4),
        fixture: threshold,
        write: mocks::brokers,
    },
];

const fn robots(
    name: &'static str,
    members: usize,
    story: &'static str,
    write: fn(&Knobs, &mut Dice) -> Script,
) -> Scenario {
    Scenario { name, story, knobs: knobs(members), fixture: contributory, write }
}

/// On a network that loses nothing.
const fn quiet(
    name: &'static str,
    members: usize,
    story: &'static str,
    write: fn(&Knobs, &mut Dice) -> Script,
) -> Scenario {
    let knobs = Knobs { members, loss: Chance::NEVER, jitter: Duration::from_millis(100) };
    Scenario { name, story, knobs, fixture: contributory, write }
}

/// Over two channels, of which one is ordered; a loss of 0 is that of a quiet network.
const fn channels(
    name: &'static str,
    members: usize,
    loss: u32,
    story: &'static str,
    write: fn(&Knobs, &mut Dice) -> Script,
) -> Scenario {
    let knobs = Knobs { members, loss: Chance(loss), jitter: Duration::from_millis(100) };
    Scenario { name, story, knobs, fixture: ordered_robots, write }
}

/// Over two channels of which one loses nothing.
const fn reliable(
    name: &'static str,
    members: usize,
    loss: u32,
    story: &'static str,
    write: fn(&Knobs, &mut Dice) -> Script,
) -> Scenario {
    let knobs = Knobs { members, loss: Chance(loss), jitter: Duration::from_millis(500) };
    Scenario { name, story, knobs, fixture: reliable_robots, write }
}

/// Over all channels.
const fn ordering(
    name: &'static str,
    members: usize,
    loss: u32,
    story: &'static str,
    write: fn(&Knobs, &mut Dice) -> Script,
) -> Scenario {
    let knobs = Knobs { members, loss: Chance(loss), jitter: Duration::from_millis(500) };
    Scenario { name, story, knobs, fixture: ordering_robots, write }
}

/// With keys from a centre; a loss of 0 is that of a quiet network.
const fn center(
    name: &'static str,
    members: usize,
    loss: u32,
    fixture: fn(&Knobs) -> Box<dyn Fixture>,
    story: &'static str,
    write: fn(&Knobs, &mut Dice) -> Script,
) -> Scenario {
    let jitter = Duration::from_millis(if loss == 0 { 100 } else { 500 });
    Scenario { name, story, knobs: Knobs { members, loss: Chance(loss), jitter }, fixture, write }
}

/// Of an MLS group over an order.
const fn insider_of_mls(name: &'static str, story: &'static str, write: fn(&Knobs, &mut Dice) -> Script) -> Scenario {
    Scenario { name, story, knobs: knobs(4), fixture: members_of_mls, write }
}

/// Of MLS groups.
const fn lying_relay(
    name: &'static str,
    fixture: fn(&Knobs) -> Box<dyn Fixture>,
    story: &'static str,
    write: fn(&Knobs, &mut Dice) -> Script,
) -> Scenario {
    Scenario { name, story, knobs: knobs(4), fixture, write }
}

fn center_lan(knobs: &Knobs) -> Box<dyn Fixture> {
    Box::new(CenterRobots::new(knobs.members))
}

fn center_leaders(knobs: &Knobs) -> Box<dyn Fixture> {
    Box::new(CenterRobots::new(knobs.members).of_leaders())
}

fn center_fifo(knobs: &Knobs) -> Box<dyn Fixture> {
    Box::new(CenterRobots::new(knobs.members).reliable())
}

fn center_fifo_leaders(knobs: &Knobs) -> Box<dyn Fixture> {
    Box::new(CenterRobots::new(knobs.members).reliable().of_leaders())
}

fn center_order(knobs: &Knobs) -> Box<dyn Fixture> {
    Box::new(CenterRobots::new(knobs.members).ordering(true))
}

fn center_order_leaders(knobs: &Knobs) -> Box<dyn Fixture> {
    Box::new(CenterRobots::new(knobs.members).ordering(true).of_leaders())
}

fn center_order_few_leaders(knobs: &Knobs) -> Box<dyn Fixture> {
    Box::new(CenterRobots::new(knobs.members).ordering(true).of_few_leaders())
}

fn center_order_with_gaps(knobs: &Knobs) -> Box<dyn Fixture> {
    Box::new(CenterRobots::new(knobs.members).ordering(false))
}

fn center_order_expelling(knobs: &Knobs) -> Box<dyn Fixture> {
    Box::new(CenterRobots::new(knobs.members).expelling())
}

fn ordering_robots(_knobs: &Knobs) -> Box<dyn Fixture> {
    Box::new(ReliableRobots::ordering(true))
}

fn ordering_robots_with_gaps(_knobs: &Knobs) -> Box<dyn Fixture> {
    Box::new(ReliableRobots::ordering(false))
}

fn expelling_robots(_knobs: &Knobs) -> Box<dyn Fixture> {
    Box::new(ReliableRobots::expelling())
}

fn reliable_robots(_knobs: &Knobs) -> Box<dyn Fixture> {
    Box::new(ReliableRobots::new())
}

fn ordered_robots(knobs: &Knobs) -> Box<dyn Fixture> {
    Box::new(OrderedRobots::new(knobs.members))
}

fn contributory(_knobs: &Knobs) -> Box<dyn Fixture> {
    Box::new(Robots::new())
}

fn with_sensor(_knobs: &Knobs) -> Box<dyn Fixture> {
    Box::new(Robots::with_sensor(insiders::SENSOR))
}

fn with_old(_knobs: &Knobs) -> Box<dyn Fixture> {
    Box::new(Robots::speaking(versions::of_mixed))
}

fn newer(_knobs: &Knobs) -> Box<dyn Fixture> {
    Box::new(Robots::speaking(versions::of_newer))
}

fn threshold(knobs: &Knobs) -> Box<dyn Fixture> {
    Box::new(ThresholdFixture { members: knobs.members })
}

fn mls(knobs: &Knobs) -> Box<dyn Fixture> {
    Box::new(MlsFixture { members: knobs.members })
}

fn members_of_mls(knobs: &Knobs) -> Box<dyn Fixture> {
    Box::new(MlsMembers::new(knobs.members))
}

fn founders_of_mls(knobs: &Knobs) -> Box<dyn Fixture> {
    Box::new(MlsMembers { founders: knobs.members, ..MlsMembers::new(knobs.members) })
}

fn mls_at_relay(knobs: &Knobs) -> Box<dyn Fixture> {
    Box::new(MlsMembers { at_relay: true, ..MlsMembers::new(knobs.members) })
}

fn mls_at_forking_relay(knobs: &Knobs) -> Box<dyn Fixture> {
    Box::new(MlsMembers { at_relay: true, may_fork: true, ..MlsMembers::new(knobs.members) })
}

fn mls_data(knobs: &Knobs) -> Box<dyn Fixture> {
    Box::new(MlsMembers { private_messages: true, ..MlsMembers::new(knobs.members) })
}

fn mls_data_at_relay(knobs: &Knobs) -> Box<dyn Fixture> {
    Box::new(MlsMembers { at_relay: true, private_messages: true, ..MlsMembers::new(knobs.members) })
}

fn mls_admitted(knobs: &Knobs) -> Box<dyn Fixture> {
    Box::new(MlsMembers { admits: true, ..MlsMembers::new(knobs.members) })
}

fn mls_admitted_at_relay(knobs: &Knobs) -> Box<dyn Fixture> {
    Box::new(MlsMembers { at_relay: true, admits: true, ..MlsMembers::new(knobs.members) })
}

const fn knobs(members: usize) -> Knobs {
    Knobs { members, loss: Chance(50_000), jitter: Duration::from_millis(500) }
}

const STREAM_SCRIPT: u64 = 4;
