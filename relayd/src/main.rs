//! `sealcast-relay`: a relay for MLS groups. It forwards and stores sealed bytes.

use std::io::{IsTerminal as _, Write as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit, umask};
use sealcast_relayd::failure::{Code, Failure};
use sealcast_relayd::log;
use sealcast_relayd::mosquitto::Setup;
use sealcast_relayd::mqtt::{Broker, Prefix, password};
use sealcast_relayd::serve::{Config, Keep, Links, Mqtt, Relay};
use sealcast_relayd::tls::Files;
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use tracing::{info, warn};

/// A relay for MLS groups: it keeps and announces what members seal, and can read none of it.
#[derive(Parser)]
#[command(name = "sealcast-relay", version, max_term_width = 120)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs a relay until SIGINT or SIGTERM: a directory, and the MQTT broker Mosquitto.
    ///
    /// The directory keeps logs of handshakes, blobs, key packages and Welcomes for groups, and announces what a log took at the
    /// MQTT broker. It starts Mosquitto itself, unless --mqtt names a broker that runs already; SIGHUP has Mosquitto read its
    /// users again. The first start makes the data folder and in it the receipt key, which members pin: keep a copy. Exit codes: 0 ended when asked, 1 the disk failed, 2 wrong usage, 3 something in a file is wrong, 4 an
    /// address cannot be used.
    Run(Run),
}

#[derive(Args)]
struct Run {
    /// The data folder.
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Where the directory listens.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7690")]
    listen: SocketAddr,
    /// Where the MQTT broker listens that it starts.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:1883", conflicts_with = "mqtt")]
    mqtt_listen: SocketAddr,
    /// Who may use that broker: a file that mosquitto_passwd writes. Without it, everybody may.
    #[arg(long, value_name = "FILE", conflicts_with = "mqtt")]
    mqtt_users: Option<PathBuf>,
    /// A broker that runs already: mqtt[s]://[user@]HOST[:PORT]. A password is in --mqtt-password-file or SEALCAST_MQTT_PASSWORD.
    #[arg(long, value_name = "URL")]
    mqtt: Option<Broker>,
    /// A file whose first line is the password at that broker.
    #[arg(long, value_name = "FILE", requires = "mqtt")]
    mqtt_password_file: Option<PathBuf>,
    /// The authorities that the certificate of that broker is checked by at mqtts://, PEM; the system's if not given.
    #[arg(long, value_name = "FILE", requires = "mqtt")]
    mqtt_ca: Option<PathBuf>,
    /// The first levels of MQTT topics.
    #[arg(long, value_name = "TOPIC", default_value = "sealcast")]
    prefix: Prefix,
    /// The certificate of directory and broker and those that lead to its authority, PEM.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The private key of the certificate, PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// How members reach the directory, if that is not where it listens, as https://relay.example.org/v1.
    #[arg(long, value_name = "URL")]
    directory_url: Option<String>,
    /// Serve other machines without TLS. Others on the network then see which groups there are.
    #[arg(long)]
    insecure: bool,
    /// Show figures there, for Prometheus.
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<SocketAddr>,
    /// How much of each group's log is kept: members that were away for longer come in anew, and learn what they missed.
    /// 256MiB if not given.
    #[arg(long, value_name = "SIZE")]
    keep: Option<Keep>,
    /// Write JSON, one object per line.
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    log::panics_in_one_line();
    let Command::Run(run) = Arguments::parse().command;
    log::start(run.json);
    // Whatever libraries make below the folder is this user's alone, too.
    umask(Mode::RWXG | Mode::RWXO);
    raise_descriptors();
    match serve(run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            log::failure(&failure);
            ExitCode::from(failure.code.exit())
        }
    }
}

fn serve(run: Run) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|e| system("cannot start threads", &e))?;
    let served = runtime.block_on(async {
        let hear = |kind| signal(kind).map_err(|e| system("signals cannot be heard", &e));
        let (mut term, mut interrupt) = (hear(SignalKind::terminate())?, hear(SignalKind::interrupt())?);
        let mut hangup = hear(SignalKind::hangup())?;
        let json = run.json;
        let mut relay = Relay::start(configure(run)?).await?;
        show(relay.links(), json);
        // A terminal that is closed ends its programs; one without a terminal reads its users again.
        let is_typed = std::io::stdin().is_terminal();
        let failure = loop {
            tokio::select! {
                failure = relay.failed() => break Some(failure),
                _ = term.recv() => break None,
                _ = interrupt.recv() => break None,
                _ = hangup.recv() => if is_typed { break None } else { relay.reload() },
            }
        };
        info!("ending");
        relay.stop().await;
        failure.map_or(Ok(()), Err)
    });
    runtime.shutdown_background();
    served
}

fn configure(run: Run) -> Result<Config, Failure> {
    let tls = run.tls_cert.zip(run.tls_key).map(|(certificates, key)| Files { certificates, key });
    let mqtt = match run.mqtt {
        Some(broker) if run.mqtt_ca.is_some() && !broker.has_tls => {
            let what = format!("--mqtt-ca: {broker} has no TLS");
            return Err(Failure { code: Code::Usage, what, hint: "say mqtts://, or leave --mqtt-ca out".into() });
        }
        Some(broker) => {
            let password = password(run.mqtt_password_file.as_deref())?;
            Mqtt::At { broker, password, authorities: run.mqtt_ca }
        }
        None => Mqtt::Child(Setup { listen: run.mqtt_listen, users: run.mqtt_users, tls: tls.clone() }),
    };
    Ok(Config {
        data: run.data,
        listen: run.listen,
        public_url: run.directory_url,
        mqtt,
        prefix: run.prefix,
        tls,
        insecure: run.insecure,
        metrics: run.metrics,
        keep: run.keep.unwrap_or_default(),
    })
}

/// What members need to know, on standard output.
fn show(links: &Links, json: bool) {
    let Links { relay, directory, mqtt, metrics } = links;
    let text = match json {
        true => {
            let relay = relay.to_string();
            let (url, metrics) = (links.url(), metrics.as_ref());
            format!(
                "{}\n",
                json!({ "relay": relay, "directory": directory, "mqtt": mqtt, "metrics": metrics, "url": url })
            )
        }
        false => {
            let metrics = metrics.as_ref().map_or_else(String::new, |it| format!("metrics    {it}\n"));
            format!(
                "relay      {relay}\ndirectory  {directory}\nmqtt       {mqtt}\n{metrics}url        {}\n",
                links.url()
            )
        }
    };
    let mut out = std::io::stdout().lock();
    // Nobody reads it then.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Connections must not run out of files at the soft limit, which is meant for programs that use `select`.
fn raise_descriptors() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum
        && let Err(e) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })
    {
        warn!("the limit of open files stays as it is: {e}");
    }
}

fn system(what: &str, error: &std::io::Error) -> Failure {
    Failure { code: Code::System, what: format!("{what}: {error}"), hint: "start the relay again".into() }
}
