//! What the holder of one certificate costs a group, whatever it does: it joins, asks for new keys and leaves as fast as it
//! can; answers whoever wants in with an epoch that it makes up; says to one member what it does not say to the others.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::Failure;
use crate::figures::{Bench, Goal, Row};
use crate::netns::{self, Bridge};
use crate::peers::identities::Identities;
use crate::peers::{Cpu, Player};

pub(super) const ROWS: &[&str] = &["insider-cpu", "insider-lost"];

/// Three honest members, one of which publishes, without the insider and then beside it, for each thing that it can do.
pub(super) fn measure(bench: &Bench) -> Result<Vec<Row>, Failure> {
    netns::available()?;
    let seconds = bench.pick(4, 15);
    let mut seen = Vec::new();
    for &kind in KINDS {
        bench.bar.tick();
        // Members of its own: the ones before would not let it in again.
        let mut lan = Lan::new()?;
        lan.publishing(WARM)?;
        let alone = lan.publishing(seconds)?;
        let insider = lan.insider(kind)?;
        std::thread::sleep(Duration::from_secs(1));
        let beside = lan.publishing(seconds)?;
        drop(insider);
        if beside.views == 0 && kind == CHURNER {
            return Err("the insider changed no key".into());
        }
        seen.push((kind, alone, beside));
    }
    let more = |(_, alone, beside): &(&str, Seen, Seen)| (beside.busiest - alone.busiest).max(0.0);
    let what = "processor time of an honest member beside an insider at its most expensive, less that without it";
    let mut cpu = Row::new("lan", "insider-cpu", what, "% of a core", Goal::AtMost(10.0));
    let what = "messages lost among honest members meanwhile, at its worst";
    let mut lost = Row::new("lan", "insider-lost", what, "messages", Goal::AtMost(0.0));
    for one @ (kind, _, beside) in &seen {
        cpu = cpu.part(*kind, more(one));
        lost = lost.part(*kind, beside.lost as f64);
    }
    let worst = seen.iter().max_by(|a, b| more(a).total_cmp(&more(b))).ok_or("nothing was measured")?;
    let cpu = cpu.part("without", worst.1.busiest).part("beside", worst.2.busiest);
    let cpu = cpu.measured(more(worst), how(seconds, worst));
    let worst = seen.iter().max_by_key(|(_, _, beside)| beside.lost).ok_or("nothing was measured")?;
    let lost = lost.part("sent, by receiver", worst.2.sent as f64);
    let lost = lost.measured(worst.2.lost as f64, how(seconds, worst));
    Ok(vec![cpu, lost])
}

fn how(seconds: u64, (kind, _, beside): &(&str, Seen, Seen)) -> String {
    format!(
        "worst: {kind}; {HONEST} honest members on a bridge, {RATE} messages/s of 100 B for {seconds} s; beside it keys \
         change {:.1} times a second",
        beside.views as f64 / seconds as f64
    )
}

struct Lan {
    bridge: Bridge,
    identities: Arc<Identities>,
    members: Vec<Player>,
}

struct Seen {
    /// Of all members, the one that used most: % of a core.
    busiest: f64,
    sent: u64,
    lost: u64,
    /// Changes of view at the first member.
    views: u64,
}

impl Lan {
    fn new() -> Result<Lan, Failure> {
        let identities = Arc::new(Identities::new(HONEST + 1)?);
        let mut lan = Lan { bridge: Bridge::new(HONEST + 1)?, identities, members: Vec::new() };
        let url = format!("udpm://{ADDRESS}?ttl=1&keys=contributory");
        for i in 0..HONEST {
            let mut member = lan.process("member", &url, i)?;
            member.tell("open")?;
            lan.members.push(member);
        }
        for member in &mut lan.members {
            let until = Instant::now() + FORMATION_MAX;
            loop {
                let line =
                    member.hear_for(until.saturating_duration_since(Instant::now()))?.ok_or("no group formed")?;
                if line.starts_with("view") && line.ends_with(&format!(" {HONEST}")) {
                    break;
                }
            }
        }
        for member in &mut lan.members[1..] {
            member.tell("count insider/test")?;
            while member.hear()? != "ready" {}
        }
        Ok(lan)
    }

    fn process(&self, role: &str, url: &str, i: usize) -> Result<Player, Failure> {
        let mut command = self.bridge.command(i, std::env::current_exe()?);
        command.args(["role", role, url, "--identity", &self.identities.name(i), "--home"]).arg(self.identities.home());
        let player = Player::start(&mut command)?.with(Some(Arc::clone(&self.identities)));
        player.ready()?;
        Ok(player)
    }

    /// The last process on the bridge misbehaves; it can speak to each of the others alone.
    fn insider(&mut self, kind: &str) -> Result<Player, Failure> {
        let ways = (0..HONEST).map(|to| self.bridge.aside(HONEST, to)).collect::<std::io::Result<Vec<_>>>()?;
        let mut insider = self.process("insider", ADDRESS, HONEST)?;
        for (to, from) in ways.iter().enumerate() {
            insider.tell(&format!("aside {to} {from}"))?;
        }
        if insider.ask(kind)? != "ready" {
            return Err(format!("the insider does not begin as {kind}").into());
        }
        Ok(insider)
    }

    /// The first member publishes for so long.
    fn publishing(&mut self, seconds: u64) -> Result<Seen, Failure> {
        let used = |lan: &Lan| lan.members.iter().map(Player::cpu).collect::<std::io::Result<Vec<Cpu>>>();
        let before = used(self)?;
        self.members[0].tell(&format!("publish insider/test 100 {RATE} {}", seconds * 1000))?;
        let (mut views, mut sent) = (0, None);
        while sent.is_none() {
            let line = self.members[0].hear_for(Duration::from_secs(seconds) + FORMATION_MAX)?;
            let line = line.ok_or("the publisher says nothing")?;
            views += u64::from(line.starts_with("view"));
            sent = line.strip_prefix("sent ").map(str::parse::<u64>).transpose()?;
        }
        let sent = sent.ok_or("nothing was sent")?;
        let share = |(now, before): (&Cpu, &Cpu)| {
            let used = now.since(*before);
            (used.user + used.system).as_secs_f64() / seconds as f64 * 100.0
        };
        let busiest = used(self)?.iter().zip(&before).map(share).fold(0.0, f64::max);
        // What waits for a key comes within the overlap of two epochs.
        std::thread::sleep(Duration::from_secs(3));
        let mut got = 0;
        for member in &mut self.members[1..] {
            member.tell("take")?;
            loop {
                if let Some(n) = member.hear()?.strip_prefix("got ") {
                    got += n.parse::<u64>()?;
                    break;
                }
            }
        }
        let due = sent * (HONEST as u64 - 1);
        Ok(Seen { busiest, sent, lost: due.saturating_sub(got), views })
    }
}

/// What it does, as [`crate::peers::insider`] understands it.
const KINDS: &[&str] = &[CHURNER, "captor 4294967292", "splitter confirmation 0 4", "splitter share 0 4"];
const CHURNER: &str = "churner";
/// Until a group's first messages are behind it, seconds.
const WARM: u64 = 2;
const ADDRESS: &str = "239.255.76.67:7667";
const HONEST: usize = 3;
/// Messages per second.
const RATE: u64 = 200;
const FORMATION_MAX: Duration = Duration::from_secs(20);
