//! Mutated datagrams of every kind, a quarter of them sealed by a hostile member.

use std::thread::available_parallelism;

use crate::Failure;
use crate::figures::{Bench, Goal, Row};
use crate::hostile::Campaign;

pub(super) const ROWS: &[&str] = &["hostile-datagrams"];

pub(super) fn measure(bench: &Bench) -> Result<Vec<Row>, Failure> {
    let count = bench.pick(400_000, 10_000_000);
    let mut campaign = Campaign::new(1);
    campaign.run(count, available_parallelism()?.get(), None, &indicatif::ProgressBar::hidden())?;
    let (panics, others) = campaign.counted();
    let what = "panics, growth, or state changes by hostile datagrams";
    let row = Row::new("lan", "hostile-datagrams", what, "findings", Goal::AtMost(0.0));
    let branches: usize = campaign.coverage.values().map(std::collections::BTreeMap::len).sum();
    let row = row
        .part("mutations", campaign.done as f64)
        .part("sealed under a valid key", campaign.resealed as f64)
        .part("kinds", campaign.coverage.len() as f64)
        .part("kinds with outcomes", branches as f64)
        .part("MiB before", (campaign.memory.0 >> 20) as f64)
        .part("MiB after", (campaign.memory.1 >> 20) as f64);
    let findings = panics + others + usize::from(campaign.grew());
    Ok(vec![row.measured(
        findings as f64,
        "coverage by kind and outcome: sealcast lab run hostile; a full run has 10 000 000",
    )])
}
