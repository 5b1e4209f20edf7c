//! A threshold key dealt by somebody trusted, to all brokers' folders on one machine before they are moved to theirs.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use sealcast_broker::cluster_file::{ClusterFile, Suite as SuiteName, VouchedKey};
use sealcast_broker::protocol::SignedKey;
use sealcast_crypto::group::{P256, PrimeGroup, Ristretto255};
use sealcast_crypto::signature::OriginKey;

use crate::config::{CLUSTER, Config};
use crate::dkg::EPOCH;
use crate::failure::{Failure, storage};
use crate::release;
use crate::serve::rng;
use crate::shares;
use crate::shares::file::Folder;

/// Deals a key to the brokers of these folders, all of one cluster; each signs it, and it goes into their cluster files.
///
/// # Errors
/// [`Failure`]. Folders that have a key keep it.
pub fn deal(folders: &[PathBuf]) -> Result<(), Failure> {
    let configs: Vec<Config> = folders.iter().map(|folder| Config::read(folder)).collect::<Result<_, _>>()?;
    let first = configs.first().ok_or_else(|| Failure::Config("no folder is named".into()))?;
    let by_number: BTreeMap<u16, &Config> = configs.iter().map(|config| (config.index, config)).collect();
    let one_cluster = configs.iter().all(|config| config.cluster.to_text() == first.cluster.to_text());
    if !one_cluster || by_number.len() != first.cluster.brokers() || configs.len() != by_number.len() {
        let what = format!("the folders are not those of the {} brokers of one cluster", first.cluster.brokers());
        return Err(Failure::Config(what));
    }
    if first.cluster.key.is_some() {
        return Err(Failure::Config("the cluster has a threshold key already".into()));
    }
    match first.cluster.suite {
        SuiteName::Ristretto255 => deal_in::<Ristretto255>(&first.cluster, &by_number),
        SuiteName::P256 => deal_in::<P256>(&first.cluster, &by_number),
    }
}

fn deal_in<G: PrimeGroup>(file: &ClusterFile, brokers: &BTreeMap<u16, &Config>) -> Result<(), Failure> {
    let config = |e: &dyn std::fmt::Display| Failure::Config(e.to_string());
    let mut rng = rng()?;
    let made = release::now();
    let n = u16::try_from(file.brokers()).expect("brokers have a limit");
    let cluster = file.cluster();
    let mut folders = Vec::new();
    for broker in brokers.values() {
        let folder = Folder::open(&broker.at("keys")).map_err(|e| config(&e))?;
        if folder.share::<G>(EPOCH, broker.index).map_err(|e| config(&e))?.is_some() {
            return Err(Failure::Config(format!("{}: it has a share already", broker.folder.display())));
        }
        folders.push(folder);
    }
    let (key, shares) = shares::deal::<G>(&cluster, file.threshold, n, &mut rng).map_err(|e| config(&e))?;
    let encoded = key.encode();
    let statement = SignedKey::statement(&cluster, EPOCH, &encoded);
    let sign = |broker: &Config| OriginKey::from_seed(&broker.seed).sign(&statement);
    let signatures = brokers.iter().map(|(number, broker)| (*number, sign(broker))).collect();
    let mut file = file.clone();
    file.set_key(VouchedKey { epoch: EPOCH, key: encoded, signatures }).map_err(|e| config(&e))?;
    for (folder, share) in folders.iter().zip(&shares) {
        folder.made(EPOCH, made).map_err(|e| config(&e))?;
        folder.keep(&key, share, &mut rng).map_err(|e| config(&e))?;
    }
    for broker in brokers.values() {
        let path = broker.at(CLUSTER);
        replace(&path, &file.to_text()).map_err(|e| storage(&path, &e))?;
    }
    Ok(())
}

/// Writes a file whole or not at all.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = File::create(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, path)
}
