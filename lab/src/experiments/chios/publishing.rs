//! Throughput of publications: who is compared (Fig. 5), against clients and size of blocks (Fig. 7), beside one broker
//! (Fig. 15).

use super::{BATCH, Point, Publishing, System, at_least, at_most, not_run};
use crate::Failure;
use crate::experiments::{Lab, Verdict};
use crate::figures::{Holds, number};
use crate::peers::servers::Server;
use crate::plots::{Bars, Chart, Curve, Table};

/// Each client has one batch under way.
fn closed(clients: u16, block: Option<u32>) -> Publishing {
    Publishing { clients, window: u64::from(clients) * u64::from(BATCH), block, batch: BATCH, paced: false }
}

pub(in crate::experiments) fn fig5(lab: &Lab) -> Result<Vec<Verdict>, Failure> {
    let clients = lab.pick(32, 200);
    let mut systems = vec![System::One, System::Two, System::Solo];
    systems.extend(lab.servers());
    lab.bar.set_length(systems.len() as u64);
    let mut table = Table::new(&["system", "clients", "publications_per_s", "p50_ms", "broker_cpu_us"]);
    let mut found = Vec::new();
    for system in systems {
        let it = lab.publish(system, closed(clients, None))?;
        table.push(&[&system.name(), &clients, &it.rate, &it.p50_ms, &cell(it.broker_us)]);
        found.push((system, it));
    }
    let bars = found.iter().map(|(system, it)| (system.name().to_owned(), it.rate)).collect();
    let title = format!("Publications of 1 KB, {clients} clients, in order at one subscriber");
    let plot = Bars { title: &title, y: "publications/s", bars }.write(&lab.out, "chios-fig5")?;
    lab.wrote_all([table.write(&lab.out, "chios-fig5")?, plot]);

    let of = |system: System| found.iter().find(|(it, _)| *it == system).map(|(_, it)| *it);
    let one = of(System::One).ok_or("module 1 was measured")?;
    let solo = of(System::Solo).ok_or("Solo was measured")?;
    let mut verdicts = beside_solo("Chios Fig. 5", one, solo);
    for (server, claim) in [
        (
            Server::Kafka,
            "Chios Fig. 5: module 1 only marginally below Kafka (>= 0.9), here with each batch on its disk",
        ),
        (Server::Nats, "not in the paper: module 1 >= 7 x NATS JetStream with each message on its disk"),
    ] {
        let least = if server == Server::Kafka { 0.9 } else { 7.0 };
        verdicts.push(match of(System::Peer(server)) {
            Some(peer) => {
                let mut verdict = at_least(claim, least, ("module 1", one.rate), (server.name(), peer.rate), "1/s");
                verdict.seen += &format!(" ({}; {clients} clients, window {})", server.described(), 32 * clients);
                verdict
            }
            None => not_run(claim, lab.without(server)),
        });
    }
    verdicts.push(not_run("Chios Fig. 5: faster than Fabric-Kafka and Fabric-Solo by far", "not re-run"));
    verdicts.push(not_run("Chios Fig. 5: only marginally below Kafka-Rep, three nodes", "not re-run"));
    Ok(verdicts)
}

pub(in crate::experiments) fn fig7(lab: &Lab) -> Result<Vec<Verdict>, Failure> {
    let clients: &[u16] = lab.pick(&[1, 4, 16, 48], &[1, 2, 4, 8, 16, 32, 64, 128, 256]);
    let blocks: &[u32] = lab.pick(&[32, 512, 8192], &[32, 128, 512, 2048, 5000, 10_016, 20_000]);
    let mut systems = vec![System::One, System::Two];
    systems.extend(lab.servers());
    lab.bar.set_length((systems.len() * clients.len() + 2 * blocks.len()) as u64);
    let mut table = Table::new(&["system", "clients", "block_operations", "publications_per_s", "p50_ms"]);
    let (mut by_clients, mut by_block) = (Vec::new(), Vec::new());
    for system in &systems {
        let mut points = Vec::new();
        for clients in clients {
            let it = lab.publish(*system, closed(*clients, None))?;
            table.push(&[&system.name(), clients, &"default", &it.rate, &it.p50_ms]);
            points.push((f64::from(*clients), it.rate));
        }
        by_clients.push(Curve { label: system.name().into(), points });
    }
    for system in [System::One, System::Two] {
        let mut points = Vec::new();
        for block in blocks {
            let window = lab.pick(8192, 16_384);
            let it = lab.publish(system, Publishing { window, ..closed(BLOCK_CLIENTS, Some(*block)) })?;
            table.push(&[&system.name(), &BLOCK_CLIENTS, block, &it.rate, &it.p50_ms]);
            points.push((f64::from(*block), it.rate));
        }
        by_block.push(Curve { label: system.name().into(), points });
    }
    let clients_plot = Chart {
        title: "Publications against clients, each with one batch of 32 under way",
        x: "clients",
        y: "publications/s",
        log_x: true,
        curves: by_clients.clone(),
    };
    let title = format!("Publications against the size of a block, {BLOCK_CLIENTS} clients");
    let blocks_plot = Chart {
        title: &title,
        x: "operations of one block, at most",
        y: "publications/s",
        log_x: true,
        curves: by_block.clone(),
    };
    lab.wrote_all([
        table.write(&lab.out, "chios-fig7")?,
        clients_plot.write(&lab.out, "chios-fig7a")?,
        blocks_plot.write(&lab.out, "chios-fig7b")?,
    ]);

    let peak = |curve: &Curve| curve.points.iter().map(|p| p.1).fold(0.0, f64::max);
    let (one, two) = (&by_clients[0], &by_clients[1]);
    let pairs =
        || [(one, two), (&by_block[0], &by_block[1])].into_iter().flat_map(|(a, b)| a.points.iter().zip(&b.points));
    let lower = pairs().filter(|(a, b)| b.1 < a.1).count();
    let blocks_of_one = &by_block[0].points;
    let (first, last) = (blocks_of_one[0], blocks_of_one[blocks_of_one.len() - 1]);
    let before = blocks_of_one[blocks_of_one.len() - 2];
    Ok(vec![
        Verdict {
            claim: "Chios Fig. 7a: pub(P) peaks at 45 kops/s (its brokers had 8 cores each)".into(),
            holds: Holds::of(peak(one) >= 45e3),
            seen: format!("{} 1/s", number(peak(one))),
        },
        Verdict {
            claim: "Chios Fig. 7a: throughput rises with clients".into(),
            holds: Holds::of(one.points[one.points.len() - 1].1 > one.points[0].1),
            seen: one.points.iter().map(|(x, y)| format!("{x}: {}", number(*y))).collect::<Vec<_>>().join(", "),
        },
        Verdict {
            claim: "Chios Fig. 7: pub(C) is lower than pub(P) in all experiments".into(),
            holds: Holds::of(lower == pairs().count()),
            seen: format!(
                "in {lower} of {}; peaks {} and {} 1/s",
                pairs().count(),
                number(peak(two)),
                number(peak(one))
            ),
        },
        at_least(
            "Chios Fig. 7b: throughput rises with the size of blocks",
            1.0,
            ("last", last.1),
            ("first", first.1),
            "1/s",
        ),
        Verdict {
            claim: "Chios Fig. 7b: and in the end ceases to (the last step within 10 %)".into(),
            holds: Holds::of((last.1 / before.1 - 1.0).abs() <= 0.1),
            seen: format!("{} at {}, {} at {}", number(before.1), before.0, number(last.1), last.0),
        },
        not_run("Chios Fig. 7c, 7d: up to 31 servers, LAN and WAN", "not re-run: f = 1 on one machine"),
    ])
}

pub(in crate::experiments) fn fig15(lab: &Lab) -> Result<Vec<Verdict>, Failure> {
    let clients: &[u16] = lab.pick(&[1, 8, 32], &[1, 4, 16, 64, 128]);
    let servers = lab.servers();
    lab.bar.set_length(((4 + servers.len()) * clients.len()) as u64);
    let mut table = Table::new(&["system", "clients", "block_operations", "publications_per_s", "broker_cpu_us"]);
    let (mut curves, mut verdicts) = (Vec::new(), Vec::new());
    for block in [2000, 5000] {
        let mut best: Vec<Option<Point>> = Vec::new();
        for system in [System::One, System::Solo] {
            let (mut points, mut peak) = (Vec::new(), None::<Point>);
            for clients in clients {
                let it = lab.publish(system, closed(*clients, Some(block)))?;
                table.push(&[&system.name(), clients, &block, &it.rate, &cell(it.broker_us)]);
                points.push((f64::from(*clients), it.rate));
                peak = peak.filter(|best| best.rate >= it.rate).or(Some(it));
            }
            curves.push(Curve { label: format!("{}, BlockSize {block}", system.name()), points });
            best.push(peak);
        }
        if let [Some(one), Some(solo)] = best[..] {
            verdicts.extend(beside_solo(&format!("Chios Fig. 15, BlockSize {block}"), one, solo));
        }
    }
    let absent = [Server::Kafka, Server::Nats].into_iter().filter(|it| lab.compare && it.is_here().is_err());
    verdicts.extend(absent.map(|it| not_run(&format!("Fig. 15 beside {}", it.name()), lab.without(it))));
    // Which the paper does not show there; they have no blocks.
    for system in servers {
        let mut points = Vec::new();
        for clients in clients {
            let it = lab.publish(system, closed(*clients, None))?;
            table.push(&[&system.name(), clients, &"", &it.rate, &cell(it.broker_us)]);
            points.push((f64::from(*clients), it.rate));
        }
        curves.push(Curve { label: system.name().into(), points });
    }
    let plot = Chart {
        title: "Four brokers and one alone, on the same cores",
        x: "clients, each with one batch of 32 under way",
        y: "publications/s",
        log_x: true,
        curves,
    };
    lab.wrote_all([table.write(&lab.out, "chios-fig15")?, plot.write(&lab.out, "chios-fig15")?]);
    Ok(verdicts)
}

/// The paper's claim, here and per machine.
fn beside_solo(figure: &str, one: Point, solo: Point) -> Vec<Verdict> {
    let claim = format!("{figure}: module 1 as fast as Solo (>= 0.9), here on the same cores");
    let here = at_least(&claim, 0.9, ("module 1", one.rate), ("Solo", solo.rate), "1/s");
    let claim = format!("{figure}: the same on machines of their own: a broker of four works <= 1.1 x Solo for each");
    let own = match (one.broker_us, solo.broker_us) {
        (Some(one), Some(solo)) => at_most(&claim, 1.1, ("one of four", one), ("Solo", solo), "µs"),
        _ => not_run(&claim, "processor time is unknown"),
    };
    vec![here, own]
}

fn cell(value: Option<f64>) -> String {
    value.map_or_else(String::new, |it| it.to_string())
}

/// Clients of Fig. 7b; the paper's 375 had one operation each under way.
const BLOCK_CLIENTS: u16 = 12;
