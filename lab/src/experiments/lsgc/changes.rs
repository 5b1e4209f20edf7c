//! LSGC, Fig. 4: what a change of the members costs, against their number; each one brings a new key.
//!
//! The paper computes the changes of a second from the speed of its ciphers and from the bytes of message 6, and runs none of
//! them: 50 and more below 200 members, 20 at 350. Here each is played, the next one when all have the key of the last, in
//! virtual time, without loss, with each cipher that seals payloads. The network does not tell ciphers apart; the processor time
//! of a change is that of all members together, and of the simulator.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use sealcast_crypto::aead::Suite;
use sealcast_sim::network::Network;

use super::group::Group;
use crate::Failure;
use crate::experiments::{Lab, Verdict};
use crate::figures::{Holds, median, number};
use crate::plots::{Chart, Curve, Table};

const SIZES: [usize; 8] = [2, 3, 4, 8, 16, 32, 48, 64];
/// What came of the change before is over then.
const REST: Duration = Duration::from_millis(400);

pub(in crate::experiments) fn run(lab: &Lab) -> Result<Vec<Verdict>, Failure> {
    let runs = lab.pick(3, 20);
    lab.bar.set_length((CIPHERS.len() * SIZES.len()) as u64 * runs);
    let mut table = Table::new(&["cipher", "members", "seed", "change", "ms", "cpu_ms", "datagrams", "bytes"]);
    let curves: Vec<Curves> =
        CIPHERS.iter().map(|cipher| of_cipher(lab, runs, *cipher, &mut table)).collect::<Result<_, _>>()?;
    lab.wrote(&table.write(&lab.out, "lsgc-fig4")?);
    let draw = |name: &str, title, y, of: fn(&Curves) -> &[Curve; 2]| {
        let curves = curves.iter().flat_map(|it| of(it).clone()).collect();
        let x = "members, with who comes or goes";
        Chart { title, x, y, log_x: true, curves }.write(&lab.out, name).map(|path| lab.wrote(&path))
    };
    draw("lsgc-fig4", "From a join or leave to the new key at all members", "ms", |it| &it.times)?;
    draw("lsgc-fig4-bytes", "Sent for one change, by all members together", "KB", |it| &it.sizes)?;
    draw("lsgc-fig4-cpu", "Processor time of one change, all members together", "ms", |it| &it.cpu)?;
    Ok(CIPHERS.iter().zip(&curves).flat_map(|((name, _), it)| verdicts(name, it)).collect())
}

/// A join's and a leave's medians against the number of members.
struct Curves {
    times: [Curve; 2],
    sizes: [Curve; 2],
    cpu: [Curve; 2],
}

fn of_cipher(lab: &Lab, runs: u64, (cipher, suite): (&str, Suite), table: &mut Table) -> Result<Curves, Failure> {
    let curves = || CHANGES.map(|it| Curve { label: format!("{it}, {cipher}"), points: Vec::new() });
    let mut found = Curves { times: curves(), sizes: curves(), cpu: curves() };
    for n in SIZES {
        let mut seen = [const { [const { Vec::new() }; 3] }; 2];
        for seed in lab.seed..lab.seed + runs {
            let mut group = Group::sealing_by(suite, n, Network::quiet(), seed);
            (0..n - 1).for_each(|member| group.start(member));
            group.meet(n - 1)?;
            for (change, name) in CHANGES.iter().enumerate() {
                group.rest(REST);
                let (before, began) = (group.seen.sent, cpu_ms());
                match change {
                    0 => group.start(n - 1),
                    _ => group.leave(n - 1),
                }
                let took = group.meet(if change == 0 { n } else { n - 1 })?.as_secs_f64() * 1e3;
                let cpu = cpu_ms() - began;
                let datagrams = group.seen.sent.datagrams - before.datagrams;
                let bytes = group.seen.sent.bytes - before.bytes;
                table.push(&[&cipher, &n, &seed, name, &took, &cpu, &datagrams, &bytes]);
                seen[change].iter_mut().zip([took, bytes as f64 / 1e3, cpu]).for_each(|(all, it)| all.push(it));
            }
            lab.bar.inc(1);
        }
        for (change, [ms, kilobytes, cpu]) in seen.iter().enumerate() {
            found.times[change].points.push((n as f64, median(ms)));
            found.sizes[change].points.push((n as f64, median(kilobytes)));
            found.cpu[change].points.push((n as f64, median(cpu)));
        }
    }
    Ok(found)
}

fn verdicts(cipher: &str, found: &Curves) -> [Verdict; 4] {
    let at_64 = |of: &[Curve; 2]| [0, 1].map(|change| of[change].points.last().map_or(0.0, |it| it.1));
    let both = |of: &[Curve; 2], unit| {
        let [join, leave] = at_64(of).map(number);
        format!("join {join} {unit}, leave {leave} {unit}")
    };
    let [join, leave] = at_64(&found.times);
    let slowest = found.times.iter().flat_map(|it| &it.points).map(|it| it.1).fold(0.0, f64::max);
    let verdict = |claim: &str, holds, seen| Verdict { claim: format!("{claim}; {cipher}"), holds, seen };
    [
        verdict(
            "LSGC Fig. 4 (computed there): 50 changes a second below 200 members; here at 64, one after the other",
            Holds::of(2e3 / (join + leave) >= 50.0),
            format!("{}: {} a second", both(&found.times, "ms"), number(2e3 / (join + leave))),
        ),
        verdict(
            "each change has its key at all members within 20 ms, at any size up to 64",
            Holds::of(slowest <= 20.0),
            format!("at most {} ms in the median", number(slowest)),
        ),
        verdict(
            "bytes of one change at 64 members (LSGC's message 6: 24 a member, without acknowledgements)",
            Holds::Reported,
            both(&found.sizes, "KB"),
        ),
        verdict(
            "processor time of one change at 64 members, all of them together",
            Holds::Reported,
            both(&found.cpu, "ms"),
        ),
    ]
}

/// Milliseconds of processor time that this process used.
fn cpu_ms() -> f64 {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    used.tv_sec as f64 * 1e3 + used.tv_nsec as f64 / 1e6
}

const CHANGES: [&str; 2] = ["join", "leave"];
/// All that `suite=` takes.
const CIPHERS: [(&str, Suite); 2] = [("AES-256-GCM", Suite::Aes256Gcm), ("ChaCha20-Poly1305", Suite::ChaCha20Poly1305)];
