//! The history of a broker that has idled for years, made in minutes, to measure what age costs.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use sealcast_brokerd::config::Config;
use sealcast_brokerd::failure::Failure;
use sealcast_order_engine::{SigningSeed, StartError};
use sealcast_order_testing::Aged;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The folders of all brokers of a cluster, whose keys sign the blocks; the first one gets them.
    #[arg(required = true)]
    folders: Vec<PathBuf>,
    /// How many blocks.
    #[arg(long)]
    blocks: u64,
}

/// Says on stdout how many blocks are written, line by line.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let brokers: Vec<Config> = args.folders.iter().map(|folder| Config::read(folder)).collect::<Result<_, _>>()?;
    let first = &brokers[0];
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let aged = Aged {
        folder: first.at("order"),
        namespace: first.cluster.cluster().0.to_vec(),
        keys: brokers.iter().map(|broker| SigningSeed::new(broker.seed.expose())).collect(),
        blocks: args.blocks,
        until: u64::try_from(now.as_micros()).expect("before the year 586 524"),
    };
    aged.write(|blocks| println!("{blocks}")).map_err(|error| match error {
        StartError::Io(error) => Failure::Storage(error.to_string()),
        error => Failure::Config(error.to_string()),
    })
}
