//! LCMsec W2–W4, W14: what datagrams that anybody can send do to a member. There, 8 bytes kill every node.

use std::thread::available_parallelism;

use crate::Failure;
use crate::experiments::{Lab, Verdict};
use crate::figures::Holds;
use crate::hostile::Campaign;
use crate::plots::Table;

pub(super) fn run(lab: &Lab) -> Result<Vec<Verdict>, Failure> {
    std::fs::create_dir_all(&lab.out)?;
    let file = lab.out.join("hostile.json");
    let mut campaign = if lab.resume { Campaign::resume(&file, lab.seed) } else { Campaign::new(lab.seed) };
    let count = lab.count.unwrap_or(lab.pick(200_000, 10_000_000));
    campaign.run(count, available_parallelism()?.get(), Some(&file), &lab.bar)?;
    lab.wrote(&file);
    let mut table = Table::new(&["kind", "outcome", "times"]);
    for (kind, outcomes) in &campaign.coverage {
        outcomes.iter().for_each(|(outcome, n)| table.push(&[kind, outcome, n]));
    }
    lab.wrote(&table.write(&lab.out, "hostile")?);
    if !lab.json {
        print!("{}", campaign.table());
    }
    let (panics, others) = campaign.counted();
    let branches: usize = campaign.coverage.values().map(std::collections::BTreeMap::len).sum();
    let done = format!("{} mutations, {} of them sealed under a valid key", campaign.done, campaign.resealed);
    let (before, after) = (campaign.memory.0 >> 20, campaign.memory.1 >> 20);
    let mut verdicts = vec![
        Verdict { claim: "no panic".into(), holds: Holds::of(panics == 0), seen: format!("{panics} in {done}") },
        Verdict {
            claim: "no state change by what no key sealed, and the honest are heard after it".into(),
            holds: Holds::of(others == 0),
            seen: format!("{others} in {done}"),
        },
        Verdict {
            claim: "no growth".into(),
            holds: Holds::of(!campaign.grew()),
            seen: format!("{before} MiB after the first round, {after} MiB after the last"),
        },
        Verdict {
            claim: "parsers covered".into(),
            holds: Holds::of(branches > 0),
            seen: format!("{} kinds of datagram, {branches} pairs of kind and outcome", campaign.coverage.len()),
        },
    ];
    verdicts.extend(campaign.findings.iter().take(5).map(|f| Verdict {
        claim: format!("chunk {} mutation {} ({})", f.chunk, f.index, f.how),
        holds: Holds::No,
        seen: f.what.clone(),
    }));
    Ok(verdicts)
}
