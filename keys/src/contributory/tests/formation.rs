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
fn a_member_whose_transport_comes_up_late_looks_for_others_from_then_on() {
    let at = |ms: u64| Now { monotonic: Monotonic(ms * 1000), utc: Some(UTC) };
    let mut member = Contributory::new(Config::new(GROUP, robot(0)), [7; 32], at(0));
    let mut forms = |ms: u64, up: bool| {
        if up {
            member.handle(at(ms), crate::Input::Up).unwrap();
        }
        member.handle_timeout(at(ms));
        std::iter::from_fn(|| member.poll()).any(|output| matches!(output, Output::Epoch { .. }))
    };
    assert!(!forms(10_000, true), "the time before is not counted");
    assert!((10_001..10_290).all(|ms| !forms(ms, false)));
    assert!((10_290..10_500).any(|ms| forms(ms, false)));
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

/// Three agree; all confirmations reach the first, and none of its own the others. It installs alone; its datagrams are
/// lost until then. A fourth has started meanwhile.
fn one_of_three_installs_alone(seed: u64) -> Net {
    let mut net = Net::robots(seed, 3, 0);
    net.start_at(net.now + 41_000, robot(3));
    net.keep_log = true;
    let first = |net: &Net| net.nodes.first().and_then(|n| n.keys.attempt.as_ref().map(state));
    let at = |net: &Net, stages: &[&str]| first(net).is_some_and(|state| stages.contains(&state));
    assert!(net.run_until(1_000, |net| at(net, &["r2", "kc"])), "{}", net.describe());
    net.muted.insert(0);
    assert!(net.run_until(1_000, |net| net.epoch_of(0).is_some()), "{}", net.describe());
    net.muted.clear();
    net.held_back.clear();
    assert!((1..3).all(|i| net.epoch_of(i).is_none()), "{}", net.describe());
    net
}

/// The others confirmed the epoch that one installed: what it proposes on it is proven by all of them.
#[test]
fn w9_an_epoch_that_one_installed_is_proven_by_those_who_confirmed_it() {
    for seed in 0..seeds(20) {
        let mut net = one_of_three_installs_alone(seed);
        assert!(net.run_until(5_000, Net::is_one), "{}{}", net.tail(40), net.describe());
        assert!(net.since_last_start() < 300.0, "{}\n{}{}", net.since_last_start(), net.tail(40), net.describe());
        assert!(net.nodes.iter().all(|n| n.keys.doubted.is_empty()), "{}", net.describe());
    }
}

/// Two that heard a group form their own, which does not let them in: it may have an order, so theirs begins none at once.
#[test]
fn rule_b1_who_heard_a_group_and_is_not_in_it_begins_no_order_at_once() {
    let mut net = Net::robots(760, 3, 0);
    assert!(net.run_until(2_000, Net::is_one), "{}", net.describe());
    assert!(net.nodes.iter().all(|n| n.keys.apart.is_none()), "nobody else was there");
    let pair = [net.start(robot(3)), net.start(robot(4))];
    let heard = |net: &Net| pair.iter().all(|i| !net.nodes[*i].keys.elsewhere.is_empty());
    assert!(net.run_until(1_000, heard), "{}", net.describe());
    net.muted.extend(0..3);
    assert!(net.run_until(20_000, |net| net.are_one(&pair)), "{}", net.describe());
    assert!(pair.iter().all(|i| net.nodes[*i].keys.apart.is_some()), "{}", net.describe());
    net.muted.clear();
    net.held_back.clear();
    assert!(net.run_until(20_000, |net| net.are_one(&[0, 1, 2, pair[0], pair[1]])), "{}", net.describe());
    assert!(net.nodes.iter().all(|n| n.keys.apart.is_none()), "all are together");
}

/// Two who wait for a group's answer take in a third one meanwhile, whichever of them would be free to go on.
#[test]
fn a_third_newcomer_does_not_wait_for_the_pair_before_it() {
    for seed in 0..seeds(10) {
        for (second, third) in [(0, 50), (0, 80), (50, 60), (50, 90), (900, 901), (900, 930)] {
            let mut net = Net::robots(seed, 1, 0);
            (net.spread, net.keep_log) = (100, true);
            net.start_at(net.now + second * 1000, robot(1));
            net.start_at(net.now + third * 1000, robot(2));
            assert!(net.run_until(5_000, Net::is_one), "{}{}", net.tail(40), net.describe());
            let took = net.since_last_start();
            assert!(took < 60.0, "{second}, {third}: {took} ms\n{}{}", net.tail(60), net.describe());
        }
    }
}
