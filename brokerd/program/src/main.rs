//! `sealcast-broker`: one broker. Started by `sealcast brokers run`.

use std::io::Read as _;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::builder::RangedU64ValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum};
use rustix::fs::Mode;
use sealcast_broker::cluster_file::ClusterFile;
use sealcast_broker::protocol::Report;
use sealcast_brokerd::config::{BLOCK_SIZE, CHECKED_TOGETHER, Config, Given, ShareOn, THREADS};
use sealcast_brokerd::control::Control;
use sealcast_brokerd::deal::deal;
use sealcast_brokerd::failure::Failure;
use sealcast_brokerd::serve::Broker;
use sealcast_brokerd::sync::Keep;
use sealcast_brokerd::{descriptors, ending, evidence, log};
use sealcast_order_engine::Simplex;
use tracing::{error, info, warn};

/// One broker of a Sealcast cluster: orders and keeps what clients publish, and reads none of it.
#[derive(Parser)]
#[command(name = "sealcast-broker", version, max_term_width = 120)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs the broker of a folder until SIGINT or SIGTERM.
    ///
    /// FOLDER holds broker.key, cluster.toml and, if wanted, broker.toml; 'sealcast brokers init' makes them. SIGHUP, or
    /// 'sealcast brokers reload FOLDER', reads broker.toml again. Options
    /// given here count before those in broker.toml. Exit codes: 0 ended when asked, 1 the disk or the order failed,
    /// 2 wrong usage, 3 something in the folder is wrong, 4 an address cannot be used;
    /// 'sealcast explain CODE' tells more of an error.
    Run(Run),
    /// Deals a threshold key to the folders of all brokers of a cluster.
    ///
    /// Whoever runs this could read everything that is ever sealed to the brokers: without it, they make a key that
    /// nobody knows when they first run together.
    Deal {
        /// All brokers' folders.
        #[arg(required = true)]
        folders: Vec<PathBuf>,
    },
    /// Deals with proofs that brokers keep of what others did.
    Evidence {
        #[command(subcommand)]
        verb: Evidence,
    },
}

#[derive(Subcommand)]
enum Evidence {
    /// Says whom a proof convicts, to whoever has the cluster file.
    ///
    /// One line of JSON; exit code 6 if it convicts nobody.
    Verify {
        /// The proof, as it lies in a broker's folder; - is stdin.
        file: PathBuf,
        /// The cluster file.
        #[arg(long, value_name = "FILE")]
        cluster: PathBuf,
    },
}

#[derive(Args)]
struct Run {
    /// The broker's folder.
    folder: PathBuf,
    /// Insist on a cluster of one broker, which orders alone and bears no fault.
    #[arg(long)]
    solo: bool,
    /// Show figures there, for Prometheus.
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<SocketAddr>,
    /// When the broker computes its shares of sealed publications.
    #[arg(long, value_name = "WHEN")]
    share_on: Option<When>,
    /// Batches of a block that it proposes, at most.
    #[arg(long, value_name = "N", value_parser = within(BLOCK_SIZE))]
    block_size: Option<usize>,
    /// Signatures checked at once, at most.
    #[arg(long, alias = "batch-size", value_name = "N", value_parser = within(CHECKED_TOGETHER))]
    checked_together: Option<usize>,
    /// Threads of each stage; broker.toml sets them one by one.
    #[arg(long, value_name = "N", value_parser = within(THREADS))]
    threads: Option<usize>,
    /// How far back publications are kept: 'everything', a time as '2d', '36h', '90m', '30s', or '100000 blocks'.
    #[arg(long, value_name = "HOW FAR")]
    keep: Option<Keep>,
    /// Log as JSON, one object per line.
    #[arg(long)]
    json: bool,
    /// Log only what somebody should look at.
    #[arg(long, short)]
    quiet: bool,
    /// End as if asked when standard input closes: with whoever started the broker, however that one ended.
    #[arg(long)]
    until_stdin_closes: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum When {
    /// As soon as a publication is executed.
    Write,
    /// When the first reader is there.
    Read,
}

/// A number in a range, which an error names.
fn within(range: RangeInclusive<usize>) -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(*range.start() as u64..=*range.end() as u64)
}

fn main() -> ExitCode {
    log::panics_in_one_line();
    log::start(false, false);
    let done = match Arguments::parse().command {
        Command::Run(run) => {
            log::start(run.json, run.quiet);
            serve(run)
        }
        Command::Deal { folders } => deal(&folders),
        Command::Evidence { verb: Evidence::Verify { file, cluster } } => match convicted(&file, &cluster) {
            Ok(true) => Ok(()),
            Ok(false) => return ExitCode::from(CONVICTS_NOBODY),
            Err(failure) => Err(failure),
        },
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            log::failure(&failure);
            ExitCode::from(failure.code().exit())
        }
    }
}

/// Whether a proof convicts somebody; whom, is said.
fn convicted(file: &Path, cluster: &Path) -> Result<bool, Failure> {
    let wrong = |path: &Path, e: &dyn std::fmt::Display| Failure::Config(format!("{}: {e}", path.display()));
    let text = std::fs::read_to_string(cluster).map_err(|e| wrong(cluster, &e))?;
    let of = ClusterFile::from_text(&text).map_err(|e| wrong(cluster, &e))?;
    let text = if file == Path::new("-") {
        std::io::read_to_string(std::io::stdin().lock().take(FILE_BYTES_MAX))
    } else {
        std::fs::File::open(file).and_then(|it| std::io::read_to_string(it.take(FILE_BYTES_MAX)))
    };
    match evidence::convicts(&Simplex, &of.genesis, &text.map_err(|e| wrong(file, &e))?) {
        Some(Report { broker, at, misbehaviour }) => {
            println!(
                "{}",
                serde_json::json!({ "broker": broker, "misdeed": evidence::word(misbehaviour), "view": at })
            );
            Ok(true)
        }
        None => {
            error!("{}: it convicts nobody of {}", file.display(), of.genesis.name);
            Ok(false)
        }
    }
}

/// As `sealcast` has it: what authenticates nobody.
const CONVICTS_NOBODY: u8 = 6;
/// Bytes of a proof's file.
const FILE_BYTES_MAX: u64 = 64 << 10;

fn serve(run: Run) -> Result<(), Failure> {
    if let Err(e) = descriptors::raise() {
        warn!("the limit of open files stays as it is: {e}");
    }
    // Whatever libraries make below the folder is this user's alone, too.
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
    let end = ending::asked(run.until_stdin_closes)?;
    let mut config = configure(&run)?;
    // The folder is this process's now. Who asks while the broker waits for others is answered when it runs.
    let control = Control::start(&run.folder)
        .map_err(|e| Failure::Config(format!("{} cannot be asked: {e}", run.folder.display())))?;
    loop {
        let begun = Broker::start_until(config, &Simplex, &end, |front| front)?;
        let Some(mut broker) = begun else { return Ok(()) };
        let failure = broker.wait(&end, Some(&control));
        info!("{}", if matches!(failure, Some(Failure::Behind(_))) { "beginning anew" } else { "ending" });
        broker.stop();
        match failure {
            // The others have pruned what it lacks: it begins with one of their snapshots.
            Some(Failure::Behind(why)) => warn!("{why}"),
            failure => return failure.map_or(Ok(()), Err),
        }
        // Its lock went with it.
        config = configure(&run)?;
    }
}

/// The folder's settings, and what the command line says instead.
fn configure(run: &Run) -> Result<Config, Failure> {
    let config = Config::read(&run.folder)?;
    if run.solo && config.cluster.brokers() != 1 {
        let what = format!("--solo: the cluster file names {} brokers, not one", config.cluster.brokers());
        return Err(Failure::Config(what));
    }
    let share_on = run.share_on.map(|when| match when {
        When::Write => ShareOn::Write,
        When::Read => ShareOn::Read,
    });
    let &Run { metrics, block_size, checked_together, threads, keep, .. } = run;
    Ok(config.given(Given { metrics, share_on, block_size, checked_together, threads, keep }))
}
