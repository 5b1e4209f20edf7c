//! `sealcast-broker`: one broker. Started by `sealcast brokers run`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::{Args, Parser, Subcommand, ValueEnum};
use sealcast_brokerd::config::{Config, ShareOn};
use sealcast_brokerd::deal::deal;
use sealcast_brokerd::log;
use sealcast_brokerd::serve::{Broker, Failure};
use signal_hook::consts::{SIGINT, SIGTERM};

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
    /// FOLDER holds broker.key, cluster.toml and, if wanted, broker.toml; «sealcast brokers init» makes them. Options
    /// given here count before those in broker.toml. Exit codes: 0 ended when asked, 1 the disk or the order failed,
    /// 2 wrong usage, 3 something in the folder is wrong, 4 an address cannot be used.
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
    /// Frames of one block, at most; the same at all brokers.
    #[arg(long, value_name = "N")]
    block_size: Option<usize>,
    /// Signatures checked at once, at most.
    #[arg(long, value_name = "N")]
    batch_size: Option<usize>,
    /// Threads of each stage.
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Log as JSON, one object per line.
    #[arg(long)]
    json: bool,
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

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Run(run) => {
            if run.json {
                log::as_json();
            }
            serve(run)
        }
        Command::Deal { folders } => deal(&folders),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            log::error(&failure.to_string());
            ExitCode::from(failure.exit())
        }
    }
}

fn serve(run: Run) -> Result<(), Failure> {
    let end = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // A second one ends the process at once.
        let registered = signal_hook::flag::register_conditional_shutdown(signal, 130, end.clone())
            .and_then(|_| signal_hook::flag::register(signal, end.clone()));
        registered.map_err(|e| Failure::Config(format!("signals cannot be heard: {e}")))?;
    }
    let mut config = Config::read(&run.folder).map_err(|e| Failure::Config(e.to_string()))?;
    if run.solo && config.cluster.brokers() != 1 {
        let what = format!("--solo: the cluster file names {} brokers, not one", config.cluster.brokers());
        return Err(Failure::Config(what));
    }
    let settings = &mut config.settings;
    settings.metrics = run.metrics.or(settings.metrics);
    settings.block_size = run.block_size.or(settings.block_size);
    settings.batch_size = run.batch_size.or(settings.batch_size);
    settings.threads = run.threads.or(settings.threads);
    if let Some(when) = run.share_on {
        settings.share_on = match when {
            When::Write => ShareOn::Write,
            When::Read => ShareOn::Read,
        };
    }
    if run.until_stdin_closes {
        let end = end.clone();
        // The thread ends with the process.
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
            end.store(true, Ordering::Release);
        });
    }
    let broker = Broker::start(config)?;
    let failure = broker.wait(&end);
    log::info("ending");
    broker.stop();
    failure.map_or(Ok(()), Err)
}
