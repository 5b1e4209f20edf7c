//! `sealcast brokers`: clusters of intrusion-tolerant brokers, made, run, looked at and administered.

mod act;
mod condition;
pub(crate) mod evidence;
mod init;
mod local;
mod processes;
mod reload;
mod sign;
mod status;
mod up;
mod vouch;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use sealcast_broker::cluster_file::Suite;
use sealcast_wire::limits;

use super::{Env, LogFormat};
use crate::hint::Failure;
use crate::text::{parse_duration, whole};

pub(crate) use act::{Act, bring};
pub(crate) use evidence::{keep, misled_before};
pub(crate) use init::free_ports;
pub(crate) use local::{Local, Wanted};
pub(crate) use vouch::listed;

/// Brokers of which some may lie: make, run and administer them
#[derive(Debug, Args)]
#[command(
    disable_help_subcommand = true,
    after_help = "\
Of 3f+1 brokers f may be broken into, and still all readers get the same publications in the same order, and
nobody reads what its publisher's policy does not allow.

Examples:
  sealcast brokers up -n 4                    four local ones, ready to use, until Ctrl-C
  sealcast brokers status
  sealcast brokers init -n 4 --host b{}.example.org market    for machines of their own
  sealcast brokers run market/broker-2        on the machine of broker 2
  sealcast brokers reg --with insurer.pem     one more issuer says something of you
  sealcast brokers revoke --serial hospitalA:17"
)]
pub(crate) struct Brokers {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Make keys, the cluster file and a folder for each broker
    Init(Init),
    /// Start local brokers, made if there are none, and stop them with Ctrl-C
    Up {
        #[command(flatten)]
        made: Made,
        /// Their folder [default: in the state folder, by the cluster's name]
        folder: Option<PathBuf>,
        /// How long they may take to agree on their key
        #[arg(long, value_name = "TIME", default_value = "2m", value_parser = parse_duration)]
        wait: Duration,
    },
    /// Run one broker (starts sealcast-broker)
    Run(Run),
    /// Let running brokers of this machine read their settings again
    Reload {
        /// A broker's folder, or one with folders of brokers in it
        folder: PathBuf,
    },
    /// Show where each broker stands, and how far back it keeps what was published
    Status {
        #[command(flatten)]
        which: Which,
        /// How long silent brokers are waited for
        #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse_duration)]
        wait: Duration,
    },
    /// Show what is known against brokers, and save the proofs
    #[command(args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
    Evidence {
        #[command(subcommand)]
        verb: Option<EvidenceVerb>,
        #[command(flatten)]
        which: Which,
        /// Copy the proofs to this folder, with those that brokers keep
        #[arg(long, short, value_name = "FOLDER")]
        out: Option<PathBuf>,
        /// Bring those against publishers before the brokers, who suspend them; a proof from elsewhere is a file
        #[arg(long, value_name = "FILE", num_args = 0..=1)]
        submit: Option<Option<PathBuf>>,
    },
    /// Register your identity with the brokers, by its certificate and by what else issuers say of it
    Reg {
        /// A certificate of another issuer for your key (sealcast ca issue --for) or a claim (sealcast brokers claim):
        /// your identity keeps it, and is known by it from now on; may be repeated
        #[arg(long, value_name = "FILE")]
        with: Vec<PathBuf>,
        /// Let your identity keep this one no longer, as 'sealcast id show' names it; may be repeated
        #[arg(long, value_name = "ISSUER:SERIAL")]
        without: Vec<String>,
        #[command(flatten)]
        which: Which,
    },
    /// Say something of somebody, as an issuer that is no X.509 authority: signed with your identity's key
    Claim(vouch::Say),
    /// Tell others what you publish
    Advertise {
        /// Which topics, as in subscriptions: 'market/# or price = 105'
        scope: String,
        /// What to know of it
        text: String,
        #[command(flatten)]
        which: Which,
    },
    /// End a client, or what a certificate says; takes m administrators
    Revoke {
        /// The client's key, 64 hex digits
        #[arg(required_unless_present = "serial", conflicts_with = "serial")]
        client: Option<String>,
        /// The certificate, as ISSUER:SERIAL
        #[arg(long, value_name = "ISSUER:SERIAL")]
        serial: Option<String>,
        #[command(flatten)]
        administer: Administer,
    },
    /// Let a client publish again that evidence has suspended; takes m administrators
    Restore {
        /// The client's key, 64 hex digits
        client: String,
        #[command(flatten)]
        administer: Administer,
    },
    /// Add your signature to an act of the administrators; the last one that is needed carries it out
    Sign {
        /// The act, as `policy set`, `revoke` or `restore` wrote it
        act: PathBuf,
        /// Show what it does and who has signed it, and sign nothing; exit 6 if a signature is false
        #[arg(long, visible_alias = "dry-run")]
        look: bool,
        #[command(flatten)]
        which: Which,
    },
}

#[derive(Debug, Subcommand)]
enum EvidenceVerb {
    /// Check a proof by the cluster's keys, and say whom it convicts; exit 6 if nobody
    Verify {
        /// The proof, as readers or brokers saved it; - is stdin
        file: PathBuf,
        #[command(flatten)]
        which: Which,
    },
}

/// Which brokers.
#[derive(Clone, Debug, Args)]
pub(crate) struct Which {
    /// The cluster file [default: the one of the URL]
    #[arg(long, value_name = "FILE")]
    pub(crate) cluster: Option<PathBuf>,
}

/// How an act of the administrators is begun.
#[derive(Clone, Debug, Args)]
pub(crate) struct Administer {
    #[command(flatten)]
    pub(crate) which: Which,
    /// Where the act goes if other administrators must sign it [default: act-N.toml]
    #[arg(long, short, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
}

/// As many brokers as bear one fault.
const N: usize = 4;

/// What a cluster is made with.
#[derive(Clone, Debug, Args)]
struct Made {
    /// How many brokers: 3f+1
    #[arg(short, value_name = "N", default_value_t = N)]
    n: usize,
    /// The cluster's name
    #[arg(long, value_name = "NAME", default_value = "brokers")]
    name: String,
    /// f+1 brokers open a publication, as in the paper, instead of 2f+1: f+1 that collude read everything
    #[arg(long)]
    paper: bool,
    /// This machine makes the threshold key and deals its shares, instead of the brokers making it together:
    /// anybody who reads its disk or memory now can read everything
    #[arg(long)]
    dealer: bool,
    /// The group of the threshold key
    #[arg(long, value_name = "SUITE", default_value = "ristretto255")]
    suite: SuiteName,
    /// Who gives attributes: an authority of yours, NAME=CERTIFICATE.pem, or NAME=scpub1… of somebody who signs claims
    /// (sealcast brokers claim; a program's key may be in hex); may be repeated [default: your authorities, or a new one]
    #[arg(long = "issuer", value_name = "ISSUER")]
    issuers: Vec<String>,
    /// An administrator's public key (scpub1…, Ed25519); may be repeated [default: your identity]
    #[arg(long = "admin", value_name = "KEY")]
    administrators: Vec<String>,
    /// How many administrators must sign [default: more than half]
    #[arg(long, value_name = "M")]
    quorum: Option<usize>,
    /// Where brokers listen; {} is the broker's number
    #[arg(long, value_name = "HOST", default_value = "127.0.0.1")]
    host: String,
    /// The first broker's port for clients; those between brokers are 100 higher [default: 7400, or free ones]
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
}

#[derive(Debug, Args)]
struct Init {
    #[command(flatten)]
    made: Made,
    /// Where it goes
    folder: PathBuf,
}

/// One broker, and what counts before its `broker.toml`.
#[derive(Debug, Args)]
struct Run {
    /// Its folder, as `init` made it
    folder: PathBuf,
    /// Insist on a cluster of one broker, which orders alone and bears no fault
    #[arg(long)]
    solo: bool,
    /// Show figures there, for Prometheus
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<SocketAddr>,
    /// When it computes its shares of sealed publications: read (by the first reader), write
    #[arg(long, value_name = "WHEN", value_parser = ["read", "write"], hide_possible_values = true)]
    share_on: Option<String>,
    /// Batches of a block that it proposes, at most
    #[arg(long, value_name = "N", value_parser = whole(limits::BLOCK_BATCHES_MAX))]
    block_size: Option<u32>,
    /// Signatures checked at once, at most
    #[arg(long, alias = "batch-size", value_name = "N", value_parser = whole(limits::CHECKED_TOGETHER_MAX))]
    checked_together: Option<u32>,
    /// Threads of each stage
    #[arg(long, value_name = "N")]
    threads: Option<u32>,
    /// How far back publications are kept: everything, a time as 2d, 36h, 90m, 30s, or '100000 blocks'
    #[arg(long, value_name = "HOW FAR")]
    keep: Option<String>,
}

impl Run {
    /// What the broker's program is told beside the folder.
    fn arguments(&self, env: &Env<'_>) -> Vec<String> {
        let number = |n: Option<u32>| n.map(|n| n.to_string());
        let named = [
            ("--metrics", self.metrics.map(|at| at.to_string())),
            ("--share-on", self.share_on.clone()),
            ("--block-size", number(self.block_size)),
            ("--checked-together", number(self.checked_together)),
            ("--threads", number(self.threads)),
            ("--keep", self.keep.clone()),
        ];
        let json = env.global.json || env.global.log_format == LogFormat::Json;
        let flags = [("--solo", self.solo), ("--json", json), ("--quiet", env.global.quiet)];
        let flags = flags.into_iter().filter(|(_, said)| *said).map(|(name, _)| name.to_owned());
        flags.chain(named.into_iter().filter_map(|(name, value)| Some(format!("{name}={}", value?)))).collect()
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum SuiteName {
    Ristretto255,
    P256,
}

impl From<SuiteName> for Suite {
    fn from(name: SuiteName) -> Suite {
        match name {
            SuiteName::Ristretto255 => Suite::Ristretto255,
            SuiteName::P256 => Suite::P256,
        }
    }
}

impl Brokers {
    pub(crate) fn run(self, env: &Env<'_>) -> Result<(), Failure> {
        match self.verb {
            Verb::Init(Init { made, folder }) => init::init(env, &made, &folder),
            Verb::Up { made, folder, wait } => up::up(env, &made, folder, wait),
            Verb::Run(run) => processes::run(&run.folder, &run.arguments(env)),
            Verb::Reload { folder } => reload::reload(env, &folder),
            Verb::Status { which, wait } => status::status(env, &which, wait),
            Verb::Evidence { verb: Some(EvidenceVerb::Verify { file, which }), .. } => {
                evidence::verify(env, &file, &which)
            }
            Verb::Evidence { verb: None, which, out, submit } => {
                evidence::evidence(env, &which, out.as_deref(), submit)
            }
            Verb::Reg { with, without, which } => vouch::register(env, &with, &without, &which),
            Verb::Claim(say) => vouch::claim(env, &say),
            Verb::Advertise { scope, text, which } => act::advertise(env, &scope, &text, &which),
            Verb::Revoke { client, serial, administer } => {
                act::revoke(env, client.as_deref(), serial.as_deref(), &administer)
            }
            Verb::Restore { client, administer } => act::restore(env, &client, &administer),
            Verb::Sign { act, look, which } => sign::sign(env, &act, look, &which),
        }
    }
}
