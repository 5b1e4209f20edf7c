//! What brokers signed that contradicts itself, kept in the folder: one file each, which anybody who has the cluster file
//! can check.
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
use sealcast_wire::limits;
use serde_json::json;

use crate::config::hex;

/// The evidence of one broker's folder.
#[derive(Debug)]
pub struct Shelf {
    folder: PathBuf,
    cluster: Cluster,
    keys: Vec<[u8; 32]>,
    known: Mutex<BTreeSet<protocol::Report>>,
}

impl Shelf {
    /// What lies there; the folder is made if it is not there.
    ///
    /// # Errors
    /// If the folder cannot be made or read.
    pub fn open(folder: &Path, genesis: &Genesis) -> io::Result<Shelf> {
        fs::create_dir_all(folder)?;
        let mut known = BTreeSet::new();
        for entry in fs::read_dir(folder)? {
            let name = entry?.file_name();
            known.extend(name.to_str().and_then(parse));
        }
        let (cluster, keys) = (genesis.cluster(), genesis.brokers.iter().copied().collect());
        Ok(Shelf { folder: folder.to_path_buf(), cluster, keys, known: Mutex::new(known) })
    }

    /// Keeps a proof of the engine's, if there is none of this misdeed yet; `None` if it is known, or too much is kept.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn keep(&self, evidence: &order::Evidence) -> io::Result<Option<PathBuf>> {
        let misdeed = match evidence.misdeed {
            order::Misdeed::TwoNotarizeVotes | order::Misdeed::TwoFinalizeVotes => protocol::Misdeed::Equivocated,
            order::Misdeed::SkippedAndFinalized => protocol::Misdeed::SkippedAndFinalized,
        };
        let broker = u16::try_from(evidence.broker).expect("brokers have a limit");
        let report = protocol::Report { broker, at: evidence.view, misdeed };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.contains(&report) || known.len() >= limits::EVIDENCE_MAX {
            return Ok(None);
        }
        let text = json!({
            "cluster": hex(&self.cluster.0),
            "broker": broker,
            "key": self.keys.get(evidence.broker).map(|key| hex(key)),
            "view": evidence.view,
            "misdeed": word(misdeed),
            "proof": hex(&evidence.proof),
        });
        let path = self.folder.join(format!("{broker}-{}-{}.json", evidence.view, word(misdeed)));
        let new = path.with_extension("new");
        let mut file = File::create(&new)?;
        writeln!(file, "{text:#}")?;
        file.sync_all()?;
        fs::rename(&new, &path)?;
        known.insert(report);
        Ok(Some(path))
    }

    /// What is known of whom.
    pub fn reports(&self) -> Vec<protocol::Report> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect()
    }
}

fn word(misdeed: protocol::Misdeed) -> &'static str {
    match misdeed {
        protocol::Misdeed::Equivocated => "equivocated",
        protocol::Misdeed::SkippedAndFinalized => "skipped-and-finalized",
        protocol::Misdeed::FalseShare => "false-share",
        protocol::Misdeed::FalseState => "false-state",
    }
}

/// The report that a file's name stands for.
fn parse(name: &str) -> Option<protocol::Report> {
    let (broker, rest) = name.strip_suffix(".json")?.split_once('-')?;
    let (at, misdeed) = rest.split_once('-')?;
    use protocol::Misdeed::{Equivocated, FalseShare, FalseState, SkippedAndFinalized};
    let all = [Equivocated, SkippedAndFinalized, FalseShare, FalseState];
    let misdeed = all.into_iter().find(|it| word(*it) == misdeed)?;
    Some(protocol::Report { broker: broker.parse().ok()?, at: at.parse().ok()?, misdeed })
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
            misdeed: order::Misdeed::TwoFinalizeVotes,
            proof: vec![0xab, 0xcd],
        };
        let shelf = Shelf::open(&folder, &genesis).expect("a new folder");
        let path = shelf.keep(&evidence(7)).expect("written").expect("new");
        let text = fs::read_to_string(&path).expect("it is there");
        let parts = [&hex(&[2; 32])[..], "abcd", &hex(&genesis.cluster().0), "equivocated"];
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");

        let shelf = Shelf::open(&folder, &genesis).expect("the same folder");
        assert!(
            shelf.keep(&evidence(7)).expect("known").is_none() && shelf.keep(&evidence(8)).expect("written").is_some()
        );
        assert_eq!(shelf.reports().iter().map(|r| (r.broker, r.at)).collect::<Vec<_>>(), [(1, 7), (1, 8)]);
        let _ = fs::remove_dir_all(&folder);
    }
}
