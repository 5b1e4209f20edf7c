//! `sealcast policy set FILE`: puts a policy in force at brokers, if enough administrators sign it.

use std::path::Path;

use sealcast::code::Code;
use sealcast_broker::operation::Action;

use super::count;
use super::file::PolicyFile;
use crate::cluster::Cluster;
use crate::commands::Env;
use crate::commands::brokers::{Act, Administer, bring};
use crate::hint::Failure;

pub(super) fn set(env: &Env<'_>, path: &Path, administer: &Administer) -> Result<(), Failure> {
    let file = PolicyFile::load(path)?;
    let cluster = Cluster::of(env, administer.which.cluster.as_deref())?;
    let policy = file.policy();
    // A name that no issuer of the cluster gives allows nobody, ever.
    for rule in &policy.rules {
        if let Some(name) = unknown(&cluster, &rule.access) {
            let known: Vec<&str> = cluster.file.genesis.issuers.keys().map(String::as_str).collect();
            return Err(Failure::new(Code::Content, format!("the cluster does not know the issuer '{name}': {rule}"))
                .hint(format!("its issuers are {}", known.join(", "))));
        }
    }
    // A misspelt attribute would keep everybody out; of one that the file lists, reading it has told.
    if file.known.is_none() && policy.rules.iter().any(|rule| !rule.access.atoms().is_empty()) {
        let what = format!("{} does not list what issuers give: a misspelt attribute would go unnoticed", file.shown);
        return Err(Failure::new(Code::Content, what)
            .hint("[issuers], then a line for each: exchange = [\"desk\", \"clearance\"]"));
    }
    let brokers = cluster.open(env)?;
    let next = brokers.ready().wait()?.policy + 1;
    brokers.close();
    if file.number != next {
        let what = format!("{} has number {}, and {next} is next", file.shown, file.number);
        return Err(
            Failure::new(Code::Content, what).hint(format!("number = {next}; policies of a cluster are counted"))
        );
    }
    let (rules, hash) = (count(policy.rules.len(), "rule"), hex::encode(policy.hash(file.number)));
    let what = format!("policy {next}, {rules}, hash {}", &hash[..16]);
    bring(env, Act { what, action: Action::Policy(policy) }, administer)
}

/// The first issuer in a condition that genesis does not name.
fn unknown(cluster: &Cluster, access: &sealcast_broker::access::Access) -> Option<String> {
    let issuers = &cluster.file.genesis.issuers;
    access.atoms().into_iter().map(|it| it.name.issuer()).find(|it| !issuers.contains_key(*it)).map(str::to_owned)
}
