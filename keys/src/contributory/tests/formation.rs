//! Groups form: all sizes, any start, any loss.

use super::*;

fn formed(seed: u64, n: usize, jitter_ms: u64, loss: u64) -> Net {
    let mut net = Net::robots(seed, n, jitter_ms);
    (net.loss, net.duplication, net.spread) = (loss, loss / 2, if loss > 0 { 3000 } else { 100 });
    net.keep_log = n <= 8;
    let one = net.run_until(30_000, Net::is_one);
    assert!(one, "n {n}, jitter {jitter_ms}, loss {loss}: not one\n{}{}", net.tail(40), net.describe());
    let live: Vec<usize> = net.live().collect();
    net.assert_one_key(&live);
    net
}

#[test]
fn one_member_alone_forms_a_group_of_one() {
    let net = formed(1, 1, 0, 0);
    assert!((290.0..500.0).contains(&net.since_last_start()), "{}", net.since_last_start());
}

#[test]
fn two_and_three_and_eight_and_sixteen_who_start_together_share_one_key() {
    for n in [2, 3, 8, 16] {
        let net = formed(2, n, 0, 0);
        assert!(net.nodes.iter().all(|node| node.epochs.len() == 1), "in one agreement\n{}", net.describe());
        println!("n {n}: {} ms, {:?}", net.since_last_start(), net.counters());
    }
}

#[test]
fn w9_formation_converges_for_any_start_jitter_and_loss() {
    for seed in 0..seeds(6) {
        for n in [2, 3, 4, 8, 16] {
            for (jitter, loss) in [(0, 0), (30, 0), (120, 0), (2000, 0), (0, 20), (120, 10), (2000, 20)] {
                let net = formed(seed, n, jitter, loss);
                if seed == 0 {
                    let c = net.counters();
                    println!("n {n} jitter {jitter} loss {loss}: {} ms, {c:?}", net.since_last_start());
                }
            }
        }
    }
}

#[test]
fn w9_a_full_group_converges() {
    for seed in 0..seeds(1) {
        for (jitter, loss) in [(0, 0), (2000, 0), (0, 20), (2000, 20)] {
            let began = std::time::Instant::now();
            let net = formed(seed, 64, jitter, loss);
            let epochs = net.nodes[0].epochs.len();
            println!(
                "n 64 jitter {jitter} loss {loss}: {} ms, {epochs} epochs at first, {:?} ({:?} of CPU)",
                net.since_last_start(),
                net.counters(),
                began.elapsed()
            );
        }
    }
}
