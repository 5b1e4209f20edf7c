//! `sealcast brokers up`: local brokers, made if there are none, started, watched and stopped.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sealcast::brokers::{BATCH_OPERATIONS, Brokers, ClientKey, Opening, load, save};
use sealcast::code::Code;
use sealcast::config::{Context, Contexts, Home, Overwrite};
use sealcast::url::{Scheme, Url};
use sealcast_broker::cluster_file::{ClusterFile, Suite};
use serde_json::json;

use super::condition::Conditions;
use super::processes::Processes;
use super::{Made, N, evidence, init, status};
use crate::cluster::PIN_DIGITS;
use crate::commands::Env;
use crate::hint::Failure;
use crate::interrupt;
use crate::target;
use crate::text::{brokers as brokers_of, duration};

pub(super) fn up(env: &Env<'_>, made: &Made, folder: Option<PathBuf>, wait: Duration) -> Result<(), Failure> {
    let folder = match folder {
        Some(folder) => std::path::absolute(&folder).map_err(|e| Failure::system(folder.display(), &e))?,
        None => init::default_folder(env, &made.name)?,
    };
    let path = folder.join("cluster.toml");
    let cluster = match path.exists() {
        true => {
            let file = load(&path)?;
            let of_it = differing(made, &file);
            if !of_it.is_empty() {
                let (at, given) = (Home::shown(&path), of_it.join(", "));
                let failure =
                    Failure::new(Code::BadPair, format!("{at} is there already, and {given} would not change it"));
                return Err(failure.hint("leave that out to go on with these brokers; or another --name for new ones"));
            }
            init::Cluster { file, path: path.clone() }
        }
        false => init::make(env, made, &folder)?,
    };
    init::told(env, &cluster)?;
    let begun = Instant::now();
    let folders = init::folders(&folder, cluster.file.brokers())?;
    let mut processes = Processes::start_missing(&folders)?;
    let elsewhere = processes.running() - processes.own();
    if elsewhere > 0 {
        let all = cluster.file.brokers();
        env.output.say(format!("running   {elsewhere} of {} run already, started elsewhere", brokers_of(all)));
    }
    let result = serve(env, cluster, &folders, &mut processes, wait, begun);
    let own = processes.own();
    if own > 0 {
        env.output.say(format!("stopping {}", brokers_of(own)));
    }
    if !processes.stop(STOP_TIMEOUT) {
        env.output.warn(format!("a broker did not end within {} and was killed", duration(STOP_TIMEOUT)));
    }
    result
}

/// What was asked of brokers that are there already and is otherwise with them: it was settled when they were made. What
/// is as by default may not have been asked for.
fn differing(made: &Made, file: &ClusterFile) -> Vec<&'static str> {
    let name = |issuer: &String| issuer.split('=').next().unwrap_or_default().to_owned();
    let known = |issuer: &String| file.genesis.issuers.contains_key(&name(issuer));
    let ends = |port: u16| file.addresses.first().is_some_and(|it| it.gateway.ends_with(&format!(":{port}")));
    let administrators = made.administrators.len();
    let asked = [
        ("-n", made.n != N && made.n != file.brokers()),
        ("--paper", made.paper && usize::from(file.threshold) != file.faulty() + 1),
        ("--suite", Suite::from(made.suite) != Suite::default() && Suite::from(made.suite) != file.suite),
        ("--issuer", !made.issuers.iter().all(known)),
        ("--admin", administrators > 0 && administrators != file.genesis.administrators.len()),
        ("--quorum", made.quorum.is_some_and(|it| it != file.genesis.quorum)),
        ("--port", made.port.is_some_and(|it| it != 0 && !ends(it))),
    ];
    asked.into_iter().filter_map(|(option, differs)| differs.then_some(option)).collect()
}

/// Waits until they are ready, says so, and watches them until Ctrl-C. Those that run go on when others end, also when
/// they are too few to order anything: whoever starts another one by hand needs them.
fn serve(
    env: &Env<'_>,
    mut cluster: init::Cluster,
    folders: &[PathBuf],
    processes: &mut Processes,
    wait: Duration,
    begun: Instant,
) -> Result<(), Failure> {
    let opening = Opening {
        cluster: cluster.file.clone().into(),
        key: ClientKey::fresh()?,
        registrations: Vec::new(),
        keys: Scheme::Threshold,
        timeout: STEP,
        batch_operations: BATCH_OPERATIONS,
        accuse: false,
    };
    let brokers = Brokers::open(opening)?;
    watched(env, processes, &cluster, wait, "the brokers do not answer", || Ok(brokers.ready().wait().is_ok()))?;
    env.output.say(format!("order     {} brokers agree   +{}", cluster.file.brokers(), duration(begun.elapsed())));
    if cluster.file.key.is_none() {
        env.output.say("key       being made by the brokers together, without a dealer");
        let mut key = None;
        watched(env, processes, &cluster, wait, "the brokers have made no key", || {
            key = brokers.key(STEP).wait().ok();
            Ok(key.is_some())
        })?;
        if let Some(key) = key {
            cluster.file.set_key(key).map_err(|e| Failure::new(Code::Signature, e))?;
            // Whoever gets the file from now on need not ask for the key.
            for at in folders.iter().map(|it| it.join("cluster.toml")).chain([cluster.path.clone()]) {
                save(&at, &cluster.file, Overwrite::Replace)?;
            }
        }
    }
    let signed = cluster.file.key.as_ref().map_or(0, |key| key.signatures.len());
    env.output.say(format!("key       signed by {signed} brokers   +{}", duration(begun.elapsed())));
    let context = context(env, &cluster)?;
    let stands = brokers.survey(SURVEY).wait()?;
    // Which of the reports are true "sealcast brokers status" finds out.
    let here = evidence::brokers_convicted(env, &cluster.file)?;
    let conditions = Conditions::of(&stands, &[], &here, cluster.file.threshold);
    status::show_people(env, &stands, &conditions)?;
    brokers.close();
    let told = json!({
        "cluster": hex::encode(cluster.file.cluster().0), "path": cluster.path, "brokers": cluster.file.brokers(),
        "url": context.1, "context": context.0, "started": processes.own(), "ready_ms": begun.elapsed().as_millis() as u64,
    });
    env.output.object(&told)?;
    env.output.line(format!("context   {}  {}   selected", context.0, context.1))?;
    env.output.say(
        "          Next:  sealcast sub 'market/#'   |   sealcast pub market/eurusd 1.0842   (in another terminal)",
    );
    if processes.own() == 0 {
        env.output.say("          All of them run already, and stop where they were started");
        return Ok(());
    }
    env.output
        .say("          Ctrl-C stops the brokers; what they hold stays, and 'sealcast brokers up' goes on with it");
    watch(env, processes, &cluster)
}

/// Until Ctrl-C, tells who ends, who comes back, and whether enough run.
fn watch(env: &Env<'_>, processes: &mut Processes, cluster: &init::Cluster) -> Result<(), Failure> {
    let (mut enough, mut looked) = (true, Instant::now());
    while !interrupt::asked() {
        tell_ended(env, processes);
        if looked.elapsed() > LOOK_AGAIN {
            looked = Instant::now();
            for number in processes.returned() {
                env.output.say(format!("running   broker {number} runs again, started elsewhere"));
            }
        }
        if processes.running() == 0 {
            return Err(too_few(processes, cluster, "run"));
        }
        let now = processes.running() >= needed(cluster);
        if now != enough {
            enough = now;
            match enough {
                true => env.output.say(format!("order     {} run, enough to go on", brokers_of(processes.running()))),
                false => env.output.warn(format!("{}: those that run wait", too_few(processes, cluster, "run").what())),
            }
        }
        std::thread::sleep(STEP);
    }
    if enough { Ok(()) } else { Err(too_few(processes, cluster, "ran at the end")) }
}

/// How many must run so that anything is ordered: 2f + 1.
fn needed(cluster: &init::Cluster) -> usize {
    2 * cluster.file.faulty() + 1
}

fn too_few(processes: &Processes, cluster: &init::Cluster, run: &str) -> Failure {
    let (running, all, needed) = (processes.running(), cluster.file.brokers(), needed(cluster));
    let what = format!("only {running} of {} {run}, and {needed} are needed to order anything", brokers_of(all));
    Failure::new(Code::NoQuorum, what).hint(format!("{}; then: sealcast brokers up", logs(cluster)))
}

/// Where the brokers say why they end.
fn logs(cluster: &init::Cluster) -> String {
    format!("each broker has a log: {}/broker-N/log", Home::shown(cluster.path.parent().unwrap_or(Path::new("."))))
}

/// Tries until it is done, while enough brokers run.
fn watched(
    env: &Env<'_>,
    processes: &mut Processes,
    cluster: &init::Cluster,
    wait: Duration,
    late: &str,
    mut done: impl FnMut() -> Result<bool, Failure>,
) -> Result<(), Failure> {
    let (begun, mut told) = (Instant::now(), Instant::now());
    while !done()? {
        if interrupt::asked() {
            return Err(Failure::said(130));
        }
        tell_ended(env, processes);
        if processes.running() < needed(cluster) {
            return Err(too_few(processes, cluster, "run"));
        }
        if begun.elapsed() > wait {
            return Err(Failure::new(Code::TimedOut, format!("{late} after {}", duration(wait))).hint(logs(cluster)));
        }
        if told.elapsed() > TELL_AGAIN {
            told = Instant::now();
            env.output.say(format!("          still waiting, {} so far", duration(begun.elapsed())));
        }
    }
    Ok(())
}

fn tell_ended(env: &Env<'_>, processes: &mut Processes) {
    for it in processes.ended() {
        let folder = Home::shown(&it.folder);
        env.output.warn(format!("broker {} {}", it.number, it.how));
        env.output
            .say(format!("          To start it again:  sealcast brokers run {folder}   (its log: {folder}/log)"));
    }
}

/// A context for the cluster, selected: its name and URL.
fn context(env: &Env<'_>, cluster: &init::Cluster) -> Result<(String, String), Failure> {
    let name = cluster.file.genesis.name.clone();
    let pin = &hex::encode(cluster.file.cluster().0)[..PIN_DIGITS];
    let url = format!("{}?keys=threshold&pin={pin}", Url::of_cluster_file(&cluster.path));
    let id = target::identity(env)?;
    Contexts::update(&env.home, |all| {
        let id = id.clone().or_else(|| all.context.get(&name).and_then(|it| it.id.clone()));
        all.context.insert(name.clone(), Context { url: url.clone(), id });
        all.select(&name);
        Ok::<(), Failure>(())
    })?;
    Ok((name, url))
}

/// How long one look at the brokers takes.
const STEP: Duration = Duration::from_millis(100);
const SURVEY: Duration = Duration::from_secs(2);
const TELL_AGAIN: Duration = Duration::from_secs(10);
/// How often `up` looks whether somebody has started a broker that had ended.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// How long brokers may take to end.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
