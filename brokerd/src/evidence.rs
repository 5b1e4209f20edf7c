//! What brokers signed that contradicts itself, kept in the folder: one file each, which anybody who has the cluster file
//! can check ([`convicts`]; `sealcast brokers evidence verify FILE`).
//!
//! ```text
//! evidence/BROKER-VIEW-MISDEED.json   {"cluster", "broker", "key", "view", "misdeed", "proof"}, bytes in hex
//! ```

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use sealcast_broker::genesis::{Cluster, Genesis};
use sealcast_broker::protocol;
use sealcast_order as order;
use sealcast_order::consensus::Consensus;
use sealcast_wire::limits;
use serde_json::{Value, json};

/// The evidence of one broker's folder.
#[derive(Debug)]
pub struct EvidenceStore {
    folder: PathBuf,
    cluster: Cluster,
    keys: Vec<[u8; 32]>,
    known: Mutex<BTreeSet<protocol::Report>>,
}

impl EvidenceStore {
    /// What lies there; the folder is made if it is not there.
    ///
    /// # Errors
    /// If the folder cannot be made or read.
    pub fn open(folder: &Path, genesis: &Genesis) -> io::Result<EvidenceStore> {
        fs::create_dir_all(folder)?;
        let mut known = BTreeSet::new();
        for entry in fs::read_dir(folder)? {
            let name = entry?.file_name();
            known.extend(name.to_str().and_then(parse));
        }
        let (cluster, keys) = (genesis.cluster(), genesis.brokers.iter().copied().collect());
        Ok(EvidenceStore { folder: folder.to_path_buf(), cluster, keys, known: Mutex::new(known) })
    }

    /// Keeps a proof of the engine's, if there is none of this misbehaviour yet; `None` if it is known, or too much is kept.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn keep(&self, evidence: &order::Evidence) -> io::Result<Option<PathBuf>> {
        let report = report_of(evidence);
        let protocol::Report { broker, misbehaviour, .. } = report;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let has_capacity = known.len() < limits::EVIDENCE_MAX && evidence.proof.len() <= limits::EVIDENCE_BYTES_MAX;
        if known.contains(&report) || !has_capacity {
            return Ok(None);
        }
        let text = json!({
            "cluster": hex::encode(self.cluster.0),
            "broker": broker,
            "key": self.keys.get(evidence.broker).map(hex::encode),
            "view": evidence.view,
            "misdeed": word(misbehaviour),
            "proof": hex::encode(&evidence.proof),
        });
        let path = self.path(&report);
        let new = path.with_extension("new");
        let mut file = File::create(&new)?;
        writeln!(file, "{text:#}")?;
        file.sync_all()?;
        fs::rename(&new, &path)?;
        known.insert(report);
        Ok(Some(path))
    }

    /// What is known of whom; nothing any more of what somebody moved away.
    pub fn reports(&self) -> Vec<protocol::Report> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|report| self.path(report).try_exists().unwrap_or(true));
        known.iter().copied().collect()
    }

    /// The same with the proofs, those left out whose files are damaged or gone.
    pub fn proofs(&self) -> Vec<(protocol::Report, Vec<u8>)> {
        let proof = |report: protocol::Report| {
            let text = fs::read_to_string(self.path(&report)).ok()?;
            let proof = proof_in(&serde_json::from_str(&text).ok()?)?;
            (proof.len() <= limits::EVIDENCE_BYTES_MAX).then_some((report, proof))
        };
        self.reports().into_iter().filter_map(proof).collect()
    }

    fn path(&self, report: &protocol::Report) -> PathBuf {
        self.folder.join(format!("{}-{}-{}.json", report.broker, report.at, word(report.misbehaviour)))
    }
}

/// Whom such a file convicts of what, by the keys of this cluster; `None` if nobody. What it says beside its proof must be
/// what the proof shows.
pub fn convicts(consensus: &dyn Consensus, genesis: &Genesis, text: &str) -> Option<protocol::Report> {
    let value: Value = serde_json::from_str(text).ok()?;
    let keys: Vec<[u8; 32]> = genesis.brokers.iter().copied().collect();
    let cluster = genesis.cluster();
    let report = report_of(&consensus.judge(&keys, &cluster.0, &proof_in(&value)?)?);
    let says = |key: &str| value.get(key).cloned().unwrap_or_default();
    let told = (says("cluster"), says("broker"), says("view"), says("misdeed"));
    let shown =
        (json!(hex::encode(cluster.0)), json!(report.broker), json!(report.at), json!(word(report.misbehaviour)));
    (told == shown).then_some(report)
}

fn report_of(evidence: &order::Evidence) -> protocol::Report {
    let misbehaviour = match evidence.misbehaviour {
        order::Misbehaviour::TwoNotarizeVotes | order::Misbehaviour::TwoFinalizeVotes => {
            protocol::Misbehaviour::Equivocated
        }
        order::Misbehaviour::SkippedAndFinalized => protocol::Misbehaviour::SkippedAndFinalized,
    };
    let broker = u16::try_from(evidence.broker).expect("brokers have a limit");
    protocol::Report { broker, at: evidence.view, misbehaviour }
}

fn proof_in(value: &Value) -> Option<Vec<u8>> {
    hex::decode(value.get("proof")?.as_str()?).ok()
}

/// As files and their names have it.
pub fn word(misbehaviour: protocol::Misbehaviour) -> &'static str {
    match misbehaviour {
        protocol::Misbehaviour::Equivocated => "equivocated",
        protocol::Misbehaviour::SkippedAndFinalized => "skipped-and-finalized",
        protocol::Misbehaviour::FalseShare => "false-share",
        protocol::Misbehaviour::FalseState => "false-state",
    }
}

/// The report that a file's name stands for.
fn parse(name: &str) -> Option<protocol::Report> {
    let (broker, rest) = name.strip_suffix(".json")?.split_once('-')?;
    let (at, misbehaviour) = rest.split_once('-')?;
    use protocol::Misbehaviour::{Equivocated, FalseShare, FalseState, SkippedAndFinalized};
    let all = [Equivocated, SkippedAndFinalized, FalseShare, FalseState];
    let misbehaviour = all.into_iter().find(|it| word(*it) == misbehaviour)?;
    Some(protocol::Report { broker: broker.parse().ok()?, at: at.parse().ok()?, misbehaviour })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn rule_e4_evidence_is_kept_once_over_restarts() {
        let folder = std::env::temp_dir().join(format!("sealcast-evidence-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        let brokers = BTreeSet::from([[1; 32], [2; 32]]);
        let (administrators, issuers) = (Vec::new(), BTreeMap::new());
        let genesis = Genesis { name: "test".into(), brokers, quorum: 1, administrators, issuers };
        let evidence = |view: u64| order::Evidence {
            broker: 1,
            view,
            misbehaviour: order::Misbehaviour::TwoFinalizeVotes,
            proof: vec![0xab, 0xcd],
        };
        let evidence_store = EvidenceStore::open(&folder, &genesis).expect("a new folder");
        let path = evidence_store.keep(&evidence(7)).expect("written").expect("new");
        let text = fs::read_to_string(&path).expect("it is there");
        let parts = [&hex::encode([2; 32])[..], "abcd", &hex::encode(genesis.cluster().0), "equivocated"];
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");

        let evidence_store = EvidenceStore::open(&folder, &genesis).expect("the same folder");
        assert!(
            evidence_store.keep(&evidence(7)).expect("known").is_none()
                && evidence_store.keep(&evidence(8)).expect("written").is_some()
        );
        assert_eq!(evidence_store.reports().iter().map(|r| (r.broker, r.at)).collect::<Vec<_>>(), [(1, 7), (1, 8)]);
        // Whoever has dealt with it moves the file away, while the broker runs.
        fs::remove_file(&path).expect("it is there");
        assert_eq!(evidence_store.reports().iter().map(|r| (r.broker, r.at)).collect::<Vec<_>>(), [(1, 8)]);
        let _ = fs::remove_dir_all(&folder);
    }
}
