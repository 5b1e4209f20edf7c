//! Fig. 6: latency without contention, of one client that sends one operation, with blocks of one.

use super::{Point, Publishing, System, at_least, not_run};
use crate::Failure;
use crate::experiments::{Lab, Verdict};
use crate::figures::{Holds, number};
use crate::peers::servers::Server;
use crate::plots::{Bars, Table};

pub(in crate::experiments) fn fig6(lab: &Lab) -> Result<Vec<Verdict>, Failure> {
    let peers = lab.servers();
    lab.bar.set_length(7 + peers.len() as u64);
    let mut found: Vec<(String, Point)> = Vec::new();
    for system in [System::One, System::Two, System::Solo].into_iter().chain(peers) {
        let one = Publishing { clients: 1, window: 1, block: Some(1), batch: 1, paced: true };
        found.push((format!("pub, {}", system.name()), lab.publish(system, one)?));
    }
    let on_write = ["--share-on", "write"];
    let reads: [(&str, System, &[&str]); 4] = [
        ("read, module 1", System::One, &[]),
        ("read, module 2 (shares on read)", System::Two, &[]),
        ("read, module 2 (shares on write)", System::Two, &on_write),
        ("read, Solo", System::Solo, &[]),
    ];
    for (name, system, options) in reads {
        found.push((name.into(), lab.read(system, 1, options)?));
    }
    let mut table = Table::new(&["operation", "p50_ms"]);
    found.iter().for_each(|(name, it)| table.push(&[name, &it.p50_ms]));
    let bars = found.iter().map(|(name, it)| (name.clone(), it.p50_ms)).collect();
    let plot = Bars { title: "Latency of one operation at a time, BlockSize 1, median", y: "ms", bars };
    lab.wrote_all([table.write(&lab.out, "chios-fig6")?, plot.write(&lab.out, "chios-fig6")?]);

    let of = |name: &str| found.iter().find(|(it, _)| it == name).map(|(_, it)| it.p50_ms);
    let known = |name: &str| of(name).ok_or_else(|| Failure::from(format!("'{name}' was measured")));
    let (pub_one, pub_two) = (known("pub, module 1")?, known("pub, module 2")?);
    let (read_one, read_two) = (known("read, module 1")?, known("read, module 2 (shares on read)")?);
    let ahead = known("read, module 2 (shares on write)")?;
    let claim = |claim: &str, above, below| at_least(claim, 1.0, above, below, "ms");
    let mut verdicts = vec![
        claim("Chios Fig. 6a: read(P) is the fastest read", ("module 2", read_two), ("module 1", read_one)),
        claim("Chios Fig. 6a: the same with shares computed on write", ("module 2", ahead), ("module 1", read_one)),
        claim("Chios Fig. 6c: pub is slower than read, module 1", ("pub", pub_one), ("read", read_one)),
        claim("Chios Fig. 6c: pub is slower than read, module 2", ("pub", pub_two), ("read", read_two)),
        claim("Chios Fig. 6c: pub(C) is slower than pub(P)", ("module 2", pub_two), ("module 1", pub_one)),
    ];
    for server in [Server::Kafka, Server::Nats] {
        let what = format!("not in the paper: latency of {}, each message on its disk", server.name());
        verdicts.push(match of(&format!("pub, {}", server.name())) {
            Some(ms) => Verdict {
                claim: what,
                holds: Holds::Reported,
                seen: format!("{} ms, module 1 {} ms ({})", number(ms), number(pub_one), server.described()),
            },
            None => not_run(&what, lab.without(server)),
        });
    }
    verdicts.push(not_run("Chios Fig. 6b, 6d, 6e, 6f: WAN, f = 5 and 10, other machines, module 4", "not re-run"));
    Ok(verdicts)
}
