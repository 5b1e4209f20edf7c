//! What a member sends and receives in an hour in which nobody says anything, in virtual time.

use std::time::Duration;

use sealcast_sim::network::Network;
use sealcast_sim::{Observer, Reach, Sim};
use sealcast_wire::Monotonic;

use super::AREA;
use crate::Failure;
use crate::figures::{Bench, Goal, Row};
use crate::member::MemberEvent;
use crate::scenarios::fixture::{Fixture as _, Player};
use crate::scenarios::mls::MlsMembers;

pub(in crate::figures) const TRAFFIC: &[&str] = &["mls-idle"];

/// The busiest member of a group at a relay.
pub(in crate::figures) fn traffic(bench: &Bench) -> Result<Vec<Row>, Failure> {
    let fixture = MlsMembers { at_relay: true, ..MlsMembers::new(MEMBERS) };
    let (mut sim, mut counted) = (Sim::new(1, Network::quiet()), Counted::new());
    for _ in 0..MEMBERS {
        sim.add(true);
    }
    for (hears, birth) in fixture.helpers() {
        let node = sim.add(hears);
        sim.start(node, birth, &mut counted);
    }
    for member in 0..MEMBERS {
        sim.start(member, fixture.member(member, 1, [member as u8; 32]), &mut counted);
        sim.run_until(sim.now() + JOINS, &mut counted);
    }
    let together = counted.views.iter().all(|view| *view == Some(MEMBERS));
    if !together {
        return Err(format!("the group has not formed: members see {:?}", counted.views).into());
    }
    let before = counted.bytes.clone();
    let until = sim.now() + Duration::from_secs(3600);
    while sim.step(until, &mut counted) {
        bench.bar.tick();
    }
    let hour = counted.bytes.iter().zip(&before).map(|(after, before)| after - before);
    let (most, all) = hour.fold((0, 0), |(most, all), it| (it.max(most), all + it));
    let what = format!("traffic of a member in an idle hour, {MEMBERS} members, simulated");
    let row = Row::new(AREA, "mls-idle", what, "MB", Goal::AtMost(1.0));
    let how = "the member with the most, sent and received, without what MQTT, TLS and HTTP add, with a directory and a broker that \
               announces each entry of the log three times";
    Ok(vec![row.part("mean MB", all as f64 / MEMBERS as f64 / 1e6).measured(most as f64 / 1e6, how)])
}

struct Counted {
    /// By member, sent to it and by it.
    bytes: Vec<u64>,
    views: Vec<Option<usize>>,
}

impl Counted {
    fn new() -> Counted {
        Counted { bytes: vec![0; MEMBERS], views: vec![None; MEMBERS] }
    }
}

impl Observer<Player> for Counted {
    fn sent(&mut self, _: Monotonic, from: usize, to: Reach, datagram: &[u8]) {
        let length = datagram.len() as u64;
        for (member, bytes) in self.bytes.iter_mut().enumerate() {
            let hears = member != from && (to == Reach::All || to == Reach::One(member));
            if hears || member == from {
                *bytes += length;
            }
        }
    }

    fn told(&mut self, _: Monotonic, node: usize, told: MemberEvent) {
        if let MemberEvent::Installed(epoch) = told {
            self.views[node] = Some(epoch.view.members.len());
        }
    }
}

const MEMBERS: usize = 20;
/// From one member's start to the next.
const JOINS: Duration = Duration::from_secs(2);
