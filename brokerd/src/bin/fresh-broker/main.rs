//! A fresh broker joins a cluster with history: four brokers, each a process of its own, publications of 1 KB until there
//! are `--size` of them; then one of the brokers loses its folder, all but its key, and comes back. How long until it has
//! executed what the others have, and how much memory it took meanwhile. `sealcast lab sync brokers` starts it.
//!
//! With `--aged`, what the age of a broker costs at its start: `aged`.
//!
//! With `--keep` the brokers prune, and the fresh one begins with a snapshot of theirs; without, it executes everything.

use std::fs;
use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Parser;
use sealcast_broker::operation::{Batch, Body, Claim, Execute, Header, Operation, Publication, Registration};
use sealcast_broker::protocol::{Answer, Query, Why};
use sealcast_broker::state::{Code, Reading};
use sealcast_brokerd::channel::Channel;
use sealcast_brokerd::sync::Keep;
use sealcast_brokerd::{config, ending};
use sealcast_wire::Utc;

mod aged;
mod home;

use home::{BROKERS, Home, Progress, Running, key};

/// Measure how a fresh broker comes by the history of the others
#[derive(Debug, Parser)]
struct Args {
    /// How much is published before: bytes, or with the unit kB, MB or GB
    #[arg(long, default_value = "64MB", value_parser = bytes)]
    size: u64,
    /// Instead: start one broker with a history of so many empty blocks, made for it, beside one without any
    #[arg(long, value_name = "BLOCKS", conflicts_with_all = ["size", "keep"])]
    aged: Option<u64>,
    /// How far back the brokers keep publications, as in broker.toml
    #[arg(long)]
    keep: Option<Keep>,
    /// A folder for the brokers' folders, removed at the end
    #[arg(long, value_name = "FOLDER")]
    within: Option<PathBuf>,
    /// One JSON object
    #[arg(long)]
    json: bool,
    /// No progress on stderr
    #[arg(long)]
    no_progress: bool,
    /// End when standard input closes: with whoever started this
    #[arg(long)]
    until_stdin_closes: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let end = match ending::asked(args.until_stdin_closes) {
        Ok(end) => end,
        Err(e) => {
            eprintln!("fresh-broker: {e}");
            return ExitCode::FAILURE;
        }
    };
    match run(&args, end.clone()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) if end.load(Ordering::Acquire) => {
            eprintln!("fresh-broker: ended before it was done; nothing is left of the brokers");
            ExitCode::FAILURE
        }
        Err(e) => {
            eprintln!("fresh-broker: {e}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args, end: Arc<AtomicBool>) -> io::Result<()> {
    let progress = Progress { is_shown: io::stderr().is_terminal() && !args.no_progress, end: end.clone() };
    let within = args.within.clone().unwrap_or_else(std::env::temp_dir);
    let home = Home::new(within.join(format!("sealcast-fresh-{}", std::process::id())), end)?;
    if let Some(blocks) = args.aged {
        return aged::run(&home, blocks, args.json, &progress);
    }
    // Whoever ends early leaves no broker: each is killed as this function returns.
    let mut brokers: Vec<Running> = (0..BROKERS).map(|it| home.start(it, args.keep)).collect::<io::Result<_>>()?;
    let (published, filling) = home.fill(args.size, &progress)?;

    drop(brokers.pop());
    for entry in fs::read_dir(home.folder(FRESH))? {
        let path = entry?.path();
        let is_kept = [config::KEY, config::CLUSTER].iter().any(|name| path.ends_with(name));
        if !is_kept {
            if path.is_dir() { fs::remove_dir_all(path)? } else { fs::remove_file(path)? }
        }
    }
    let (others, begun) = (home.status(0)?, Instant::now());
    let fresh = home.start(FRESH, args.keep)?;
    loop {
        let height = home.status(FRESH).map_or(0, |it| it.height);
        progress.tell("blocks executed", height, others.height)?;
        if height >= others.height {
            break;
        }
        if begun.elapsed() > TIMEOUT {
            return Err(io::Error::other("it never caught up"));
        }
        thread::sleep(Duration::from_millis(20));
    }
    progress.finish();
    let (seconds, memory) = (begun.elapsed().as_secs_f64(), fresh.memory_peak()?);
    let (oldest, kept) = home.compare(published)?;
    let (disk, megabytes) = (bytes_in(&home.folder(FRESH))?, (published * BODY_BYTES as u64) as f64 / 1e6);
    let (rate, memory, disk) = (megabytes / seconds, memory as f64 / 1e6, disk as f64 / 1e6);
    if args.json {
        println!(
            "{{\"published_mb\":{megabytes:.1},\"blocks\":{},\"kept\":{kept},\"seconds\":{seconds:.2},\"mb_per_second\":{rate:.2},\
             \"memory_peak_mb\":{memory:.1},\"disk_mb\":{disk:.1},\"filling_seconds\":{filling:.1}}}",
            others.height
        );
    } else {
        println!(
            "{megabytes:.0} MB in {published} publications and {} blocks, published in {filling:.0} s; \
             a fresh broker had executed what the others have after {seconds:.1} s ({rate:.1} MB/s), \
             at most {memory:.0} MB of memory, {disk:.0} MB on disk; it keeps {kept} publications, the oldest at place {oldest}",
            others.height
        );
    }
    Ok(())
}

impl Home {
    /// Publishes so many bytes; how many publications, and how long it took.
    fn fill(&self, size: u64, progress: &Progress) -> io::Result<(u64, f64)> {
        let mut channel = self.open(0, PUBLISHER)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_err(io::Error::other)?.as_secs();
        let now = i64::try_from(now).expect("before the year 292 277 026 596");
        let validity = (Utc(now - 3600), Utc(now + 86_400));
        let claim = Claim::sign("lab", b"1", validity, &[("role", "publisher")], key(PUBLISHER).public(), &self.issuer);
        let register = Operation::Register(Registration { intent: false, proof: claim.into() });
        let cluster = self.file.cluster();
        let sign = |first: u64, operations| Batch::sign(&cluster, &key(PUBLISHER), first, operations);
        let register = sign(0, vec![register]);
        executed(&mut channel, 0, std::slice::from_ref(&register))?;
        let (begun, batches) = (Instant::now(), size.div_ceil((BODY_BYTES * BATCH) as u64));
        let mut under_way: Vec<Batch> = Vec::new();
        let (mut first, mut body) = (1, [0; BODY_BYTES]);
        for batch in 0..batches {
            let operations = (0..BATCH as u64).map(|n| {
                body[..8].copy_from_slice(&(batch * BATCH as u64 + n).to_be_bytes());
                publish(&body)
            });
            let signed = sign(first, operations.collect());
            first = signed.end();
            channel.submit(&signed)?;
            under_way.push(signed);
            progress.tell("batches published", batch, batches)?;
            // Half of what is under way is waited for while the other half is ordered.
            if under_way.len() == WINDOW || batch + 1 == batches {
                let half = if batch + 1 == batches { under_way.len() } else { WINDOW / 2 };
                executed(&mut channel, under_way[half - 1].first(), &under_way[..half])?;
                under_way.drain(..half);
            }
        }
        Ok((batches * BATCH as u64, begun.elapsed().as_secs_f64()))
    }

    /// Whether the fresh broker answers as broker 0 does: what is latest, and what is oldest that it keeps, with its body.
    /// Which place that is, and how many there are.
    fn compare(&self, published: u64) -> io::Result<(u64, u64)> {
        let mut two = [self.open(0, PUBLISHER)?, self.open(FRESH, PUBLISHER)?];
        let mut both = |query: Query| -> io::Result<Answer> {
            let [old, fresh] = two.each_mut().map(|it| it.ask(query.clone()));
            let (old, fresh) = (old?, fresh?);
            if old == fresh { Ok(fresh) } else { Err(io::Error::other(format!("brokers differ: {old:?}, {fresh:?}"))) }
        };
        let header = || Header { topic: TOPIC.into(), value: None };
        both(Query::Latest { header: header(), min_height: 0 })?;
        let mut fresh = self.open(FRESH, PUBLISHER)?;
        let (mut gone, mut kept) = (0, published - 1);
        while gone < kept {
            let middle = gone + (kept - gone) / 2;
            match fresh.ask(Query::TopicPosition { header: header(), ps: middle })? {
                Answer::No(Why::Pruned) => gone = middle + 1,
                Answer::Places(_) => kept = middle,
                other => return Err(io::Error::other(format!("place {middle}: {other:?}"))),
            }
        }
        let Answer::Places(places) = fresh.ask(Query::TopicPosition { header: header(), ps: kept })? else {
            return Err(io::Error::other("the oldest place is gone"));
        };
        let Some(Reading::Publication(entry)) = places.into_iter().next().map(|it| it.reading) else {
            return Err(io::Error::other("the publisher may read what it published"));
        };
        match fresh.ask(Query::Bodies { sns: vec![entry.sn] })? {
            Answer::Bodies(bodies) if bodies.len() == 1 => Ok((kept, published - kept)),
            other => Err(io::Error::other(format!("the oldest body: {other:?}"))),
        }
    }
}

/// Waits until the operation with this number was executed, and sends the batches again that came to nothing.
fn executed(channel: &mut Channel, number: u64, batches: &[Batch]) -> io::Result<()> {
    let mut begun = Instant::now();
    let mut tries = 0;
    if number == 0 {
        channel.submit(&batches[0])?;
    }
    loop {
        match channel.ask(Query::Result { number })? {
            Answer::Result { results, .. } => {
                let done = results.outcomes.iter().all(|it| it.code == Code::Done);
                return if done { Ok(()) } else { Err(io::Error::other(format!("{:?}", results.outcomes))) };
            }
            _ if tries > 60 => return Err(io::Error::other("nothing is executed")),
            _ if begun.elapsed() > Duration::from_secs(2) => {
                batches.iter().try_for_each(|it| channel.submit(it))?;
                (begun, tries) = (Instant::now(), tries + 1);
            }
            _ => thread::sleep(Duration::from_millis(2)),
        }
    }
}

fn publish(body: &[u8]) -> Operation {
    Operation::Publish(Box::new(Publication {
        headers: vec![Header { topic: TOPIC.into(), value: None }],
        associated: vec![],
        access: None,
        execute: Execute::Nothing,
        policy: 0,
        epoch: 0,
        body: Body::Plain(body.to_vec()),
    }))
}

/// What the files in a folder take.
fn bytes_in(folder: &Path) -> io::Result<u64> {
    use std::os::unix::fs::MetadataExt as _;
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let about = entry.metadata()?;
        bytes += if about.is_dir() { bytes_in(&entry.path())? } else { about.blocks() * 512 };
    }
    Ok(bytes)
}

fn bytes(text: &str) -> Result<u64, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let factor = match unit {
        "" | "B" => 1,
        "kB" => 1000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        _ => return Err("a size is a number with kB, MB or GB".into()),
    };
    let number: u64 = number.parse().map_err(|_| "a size begins with a number")?;
    number.checked_mul(factor).filter(|it| *it > 0).ok_or_else(|| "no such size".into())
}

/// The one that loses its folder.
const FRESH: usize = 3;
const TOPIC: &str = "lab/history";
const BODY_BYTES: usize = 1024;
/// Publications of one batch.
const BATCH: usize = 32;
/// Batches under way.
const WINDOW: usize = 256;
/// Seeds of clients.
const PUBLISHER: u8 = 1;
/// How long the fresh one may take.
const TIMEOUT: Duration = Duration::from_secs(3600);
