//! `sealcast brokers status`: where each broker stands, in its own words, and what evidence against it holds.

use std::collections::BTreeMap;
use std::time::Duration;

use sealcast::brokers::BrokerStatus;
use sealcast::code::Code;
use sealcast_broker::operation::Client;
use sealcast_broker::protocol::{Misbehaviour, Report, Status};
use serde_json::{Value, json};

use super::condition::{Condition, Conditions};
use super::evidence::Judged;
use super::{Which, evidence};
use crate::cluster::Cluster;
use crate::commands::Env;
use crate::hint::Failure;
use crate::text::{duration, row, table};

pub(super) fn status(env: &Env<'_>, which: &Which, wait: Duration) -> Result<(), Failure> {
    let cluster = Cluster::of(env, which.cluster.as_deref())?;
    let file = cluster.file.clone();
    let cluster = Cluster { timeout: wait, ..cluster };
    let brokers = cluster.open(env)?;
    let stands = brokers.survey(wait).wait()?;
    let faulty = brokers.cluster().faulty();
    brokers.close();
    let here = evidence::brokers_convicted(env, &file)?;
    let judged = evidence::judged(env, &cluster, &stands);
    let conditions = Conditions::of(&stands, &judged.proved, &here, file.threshold);
    show(env, &stands, &conditions, &judged)?;
    show_suspended(env, &suspended(&stands, faulty))?;
    for warning in conditions.warnings().into_iter().chain(doubts(&judged)) {
        env.output.object(&json!({ "warning": warning }))?;
        env.output.line(warning)?;
    }
    let (ordering, needed) = conditions.quorum();
    if !conditions.has_quorum() {
        let what = format!("{ordering} of {} brokers order, {needed} must", stands.len());
        return Err(Failure::new(Code::NoQuorum, what).hint("sealcast brokers up, or: sealcast brokers run FOLDER"));
    }
    // The table says what is wrong.
    if conditions.is_well() && judged.unproved.is_empty() { Ok(()) } else { Err(Failure::said(NOT_WELL)) }
}

/// What is reported of brokers, and convicts nobody.
pub(super) fn doubts(judged: &Judged) -> Vec<String> {
    let baseless = judged.baseless.iter().map(|by| format!("broker {by} keeps a file that proves nothing"));
    let unproved = judged.unproved.iter().map(|it| {
        let claim = format!("broker {} {} at {}", it.broker, misbehaviour(it.misbehaviour), it.at);
        format!("unverified: {claim}, says another; --id NAME of a client that the brokers know checks the proof")
    });
    baseless.chain(unproved).collect()
}

fn show(env: &Env<'_>, stands: &[BrokerStatus], conditions: &Conditions, judged: &Judged) -> Result<(), Failure> {
    let highest = highest(stands);
    for (it, condition) in stands.iter().zip(&conditions.each) {
        let of = |reports: &[Report], verified: bool| {
            let of = reports.iter().filter(|report| report.broker == it.broker);
            of.map(|it| json!({ "misdeed": misbehaviour(it.misbehaviour), "at": it.at, "verified": verified }))
                .collect::<Vec<_>>()
        };
        let reports = [of(&judged.proved, true), of(&judged.unproved, false)].concat();
        env.output.object(&object(it, highest, reports, condition))?;
    }
    show_people(env, stands, conditions)
}

/// The table; with `--json` nothing.
pub(super) fn show_people(env: &Env<'_>, stands: &[BrokerStatus], conditions: &Conditions) -> Result<(), Failure> {
    let highest = highest(stands);
    let mut rows = vec![row([
        "broker",
        "addr",
        "role",
        "view",
        "height",
        "lag",
        "keeps",
        "p50 commit",
        "key age",
        "files",
        "state",
    ])];
    rows.extend(stands.iter().zip(&conditions.each).map(|(it, condition)| cells(env, it, highest, condition)));
    env.output.line(table(&rows))
}

fn highest(stands: &[BrokerStatus]) -> u64 {
    stands.iter().filter_map(|it| it.said.as_ref().ok()).map(|it| it.height).max().unwrap_or(0)
}

/// What brokers have evidence of, each once.
pub(super) fn against(stands: &[BrokerStatus]) -> Vec<Report> {
    let said = stands.iter().filter_map(|it| it.said.as_ref().ok());
    let mut reports: Vec<Report> = said.flat_map(|it| it.reports.iter().copied()).collect();
    reports.sort_unstable();
    reports.dedup();
    reports
}

/// Clients that f + 1 brokers say are suspended, and since which block.
pub(super) fn suspended(stands: &[BrokerStatus], faulty: usize) -> Vec<(Client, u64)> {
    let mut said: BTreeMap<(Client, u64), usize> = BTreeMap::new();
    for it in stands.iter().filter_map(|it| it.said.as_ref().ok()).flat_map(|it| &it.suspended) {
        *said.entry(*it).or_default() += 1;
    }
    said.into_iter().filter(|(_, brokers)| *brokers > faulty).map(|(it, _)| it).collect()
}

pub(super) fn show_suspended(env: &Env<'_>, suspended: &[(Client, u64)]) -> Result<(), Failure> {
    for (client, since) in suspended {
        env.output.object(&json!({ "suspended": hex::encode(client.0), "since": since }))?;
        env.output.line(format!("suspended  client {}  since block {since}", hex::encode(client.0)))?;
    }
    Ok(())
}

fn cells(env: &Env<'_>, it: &BrokerStatus, highest: u64, condition: &Condition) -> Vec<String> {
    let number = it.broker.to_string();
    let state = match condition {
        Condition::Ok => condition.to_string(),
        _ => env.output.bad(condition.to_string()),
    };
    let Ok(said) = &it.said else {
        return [number, it.address.clone()].into_iter().chain(row(["-"; 8])).chain([state]).collect();
    };
    let commit =
        if said.commit_micros == 0 { "-".to_owned() } else { duration(Duration::from_micros(said.commit_micros)) };
    let age = match said.key_age {
        None => "no key".to_owned(),
        Some(_) if !said.has_share => "no share".to_owned(),
        Some(age) => duration(Duration::from_secs(age)),
    };
    vec![
        number,
        it.address.clone(),
        role(said).to_owned(),
        said.view.to_string(),
        said.height.to_string(),
        (highest - said.height).to_string(),
        keeps(said),
        commit,
        age,
        files(said),
        state,
    ]
}

fn object(it: &BrokerStatus, highest: u64, reports: Vec<Value>, condition: &Condition) -> Value {
    let mut object = json!({ "broker": it.broker, "address": it.address, "answers": it.said.is_ok() });
    match &it.said {
        Ok(said) => {
            object["role"] = json!(role(said));
            object["view"] = json!(said.view);
            object["height"] = json!(said.height);
            object["state_root"] = json!(hex::encode(said.state_root));
            object["tip"] = json!(said.tip);
            object["lag"] = json!(highest - said.height);
            object["oldest_block"] = json!(oldest_block(said));
            object["oldest_publication"] = json!(said.low_water_mark.sn);
            object["commit_p50_ms"] = json!((said.commit_micros > 0).then_some(said.commit_micros as f64 / 1e3));
            object["key_age_s"] = json!(said.key_age);
            object["has_share"] = json!(said.has_share);
            object["policy"] = json!(said.policy);
            object["epoch"] = json!(said.epoch);
            object["clients"] = json!(said.clients);
            object["waiting"] = json!(said.waiting);
            object["descriptors_used"] = json!((said.descriptors_used > 0).then_some(said.descriptors_used));
            object["descriptors_allowed"] = json!(descriptors_allowed(said));
            object["silent"] = json!(said.silent);
            object["cut_off"] = json!(said.cut_off);
            object["clock_ahead_s"] = json!(said.clock_ahead);
        }
        Err(why) => object["why"] = json!(why),
    }
    object["state"] = json!(condition.to_string());
    object["evidence"] = json!(reports);
    object
}

/// How far back it goes: 'all', or the first block whose publications it has.
fn keeps(said: &Status) -> String {
    match oldest_block(said) {
        1 => "all".to_owned(),
        block => format!("from {block}"),
    }
}

/// The first block whose publications it keeps; those before it are gone.
fn oldest_block(said: &Status) -> u64 {
    said.low_water_mark.height + 1
}

/// How many file descriptors it has open, of how many that it may open: "112/1024".
fn files(said: &Status) -> String {
    let number = |n: Option<u32>| n.map_or_else(|| "-".to_owned(), |n| n.to_string());
    format!(
        "{}/{}",
        number((said.descriptors_used > 0).then_some(said.descriptors_used)),
        number(descriptors_allowed(said))
    )
}

/// How many file descriptors it may open; `None` without a limit.
fn descriptors_allowed(said: &Status) -> Option<u32> {
    (said.descriptors_allowed < u32::MAX).then_some(said.descriptors_allowed)
}

fn role(said: &Status) -> &'static str {
    if said.leader == said.broker { "leader" } else { "replica" }
}

pub(super) fn misbehaviour(misbehaviour: Misbehaviour) -> &'static str {
    match misbehaviour {
        Misbehaviour::Equivocated => "equivocated",
        Misbehaviour::SkippedAndFinalized => "skipped and finalized",
        Misbehaviour::FalseShare => "false share",
        Misbehaviour::FalseState => "false state",
    }
}

/// The exit code if a broker is not well, and there is a quorum.
const NOT_WELL: u8 = 1;
