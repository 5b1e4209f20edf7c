//! `sealcast pub`: one message, a file, or lines as they come.

mod brokers;
mod extra;
mod lines;

use std::io::{self, IsTerminal, Read};
use std::iter;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use sealcast::Session;
use sealcast::code::Code;
use sealcast::control::{self, GroupInfo, Sent};
use sealcast::url::{Scheme, TransportAddress};
use sealcast_broker::operation::check_published;
use sealcast_crypto::identity::check_topic;
use sealcast_wire::{Dropped, Guarantee, limits};
use serde_json::json;

use brokers::{Client, ToBrokers};
use extra::Extra;
use lines::Lines;

use super::Env;
use crate::cluster::Cluster;
use crate::hint::Failure;
use crate::session::{self, For};
use crate::target::Target;
use crate::text::bytes;

/// Publish a message, a file or lines
#[derive(Debug, Args)]
#[command(
    visible_alias = "publish",
    after_help = "\
Beside a running 'sealcast sub' of the same identity it goes through that session; else it joins
the group, sends, leaves, and says so.

Through brokers all messages are in one order and kept there, with and without --ordered; --safe is
for groups. --allow protects the message. Brokers read everything else: topics, --value, --also,
--associated, the condition, and the values of --put and --increment. Every client that the policy
lets read the topic can read such a value, and every client that may publish there can change it.

Examples:
  sealcast pub ward3/vitals '{\"hr\":72}'
  sealcast pub camera/front -f frame.jpg
  tail -f log | sealcast pub site/log -l         each line is a message
  date | sealcast pub site/time                  what comes on stdin is one message
  sealcast pub market/eurusd 1.0842 --allow 'exchange:desk = fx' --receipt r.json     through brokers
  sealcast pub orders/eurusd 'buy 100' --also region=eu --increment count
  tail -f ticks | sealcast pub market/ticks -l --together 64    sealed once for what has come meanwhile"
)]
pub(crate) struct Pub {
    /// The topic, for example ward3/vitals
    topic: String,
    /// The message [default: stdin]
    #[arg(conflicts_with_all = ["file", "lines"], allow_hyphen_values = true)]
    body: Option<String>,
    /// The message is this file
    #[arg(short, long, value_name = "FILE", conflicts_with = "lines")]
    file: Option<PathBuf>,
    /// Each line of stdin is a message
    #[arg(short, long)]
    lines: bool,
    /// With --lines: up to N lines that have come are sealed together, one publication for all of them (brokers)
    #[arg(long, value_name = "N", requires = "lines", conflicts_with_all = ["body", "file", "put", "increment"], value_parser = clap::value_parser!(u16).range(1..=limits::SEALED_TOGETHER_MAX as i64))]
    together: Option<u16>,
    /// In the order sent, without gaps while the sender lives
    #[arg(long, conflicts_with_all = ["ordered", "safe"])]
    fifo: bool,
    /// In one order at all members
    #[arg(long, conflicts_with = "safe")]
    ordered: bool,
    /// Ordered, and acknowledged once all members hold it
    #[arg(long)]
    safe: bool,
    /// Who may read it: 'exchange:desk = fx and exchange:clearance >= 3' (brokers)
    #[arg(long, value_name = "EXPRESSION")]
    allow: Option<String>,
    /// The topic's value, by which others can subscribe: 105 for 'price = 105' (brokers)
    #[arg(long, value_name = "VALUE")]
    value: Option<String>,
    /// Keep the brokers' signatures on what was published (brokers)
    #[arg(long, value_name = "FILE", conflicts_with = "lines")]
    receipt: Option<PathBuf>,
    /// Overwrite the file of --receipt
    #[arg(long, requires = "receipt")]
    force: bool,
    /// It is no error if nobody else is in the group to get it
    #[arg(long)]
    alone: bool,
    #[command(flatten)]
    extra: Extra,
}

/// The route that messages take.
enum Route<'a> {
    /// A session of ours that runs already, in the group of this name.
    Shared(control::Client, String, Got),
    /// A session of this command's own.
    Dedicated(Session),
    /// The same as a client of brokers, who see what is published.
    Brokers(Client<'a>),
}

impl Pub {
    pub(crate) fn run(self, env: &Env<'_>) -> Result<(), Failure> {
        check_topic(&self.topic).map_err(|e| Failure::new(Code::BadValue, format!("'{}': {e}", self.topic)))?;
        if self.body.is_none() && self.file.is_none() && !self.lines && io::stdin().is_terminal() {
            env.output.say("reading the message from the terminal; Ctrl-D ends it");
        }
        // Before anything is opened: what cannot be read shall not make us join.
        let one = if self.lines { None } else { Some(self.one()?) };
        let target = Target::of(env)?;
        self.check_given(&target)?;
        // A channel of LCM may have any name; in a group, a name that looks like a pattern's is a mistake.
        if !(target.url.keys == Scheme::Plain && matches!(target.url.address, TransportAddress::Multicast { .. })) {
            check_published(&self.topic)
                .map_err(|e| Failure::new(Code::BadValue, format!("\"{}\": {e}", self.topic.escape_debug())))?;
        }
        let cluster = Cluster::of_publications(&target.url)?;
        let outgoing = match &cluster {
            Some(cluster) => Some((cluster, self.outgoing(cluster)?)),
            None => self.check_not_of_brokers(&target).map(|()| None)?,
        };
        let mut route = match running(env, &target)? {
            Some((client, info)) => {
                env.output.detail(format!("through the running session of {} (process {})", info.me, info.pid));
                Route::Shared(client, info.group, Got::default())
            }
            None => self.own(env, &target, outgoing)?,
        };
        let (mut one, mut lines) = (one, self.lines.then(Lines::of_stdin));
        let together = usize::from(self.together.unwrap_or(1));
        let mut all = iter::from_fn(|| match &mut lines {
            Some(lines) => lines.next(together).transpose(),
            None => one.take().map(|body| Ok(vec![body])),
        });
        let (mut sent, mut read) = (0, 0);
        let done = all.try_for_each(|bodies| {
            sent += 1;
            let first = read + 1;
            let done = bodies.and_then(|bodies| {
                read += bodies.len();
                self.send(env, &target, &mut route, bodies)
            });
            // The program that writes the lines goes on from there.
            done.map_err(|it| if self.lines { it.at(lines_shown(first, read)) } else { it })
        });
        match route {
            Route::Brokers(client) => client.finish(env, done),
            Route::Dedicated(session) => done.and_then(|()| finish(env, &target, session, sent, self.alone)),
            Route::Shared(_, group, got) => done.and_then(|()| got.judge(env, &group, self.alone)),
        }
    }

    /// Refuses what only brokers do, where there are none who see it.
    fn check_not_of_brokers(&self, target: &Target) -> Result<(), Failure> {
        let of_brokers = [&self.allow, &self.value].into_iter().any(Option::is_some) || self.extra.is_any();
        if of_brokers || self.receipt.is_some() || self.together.is_some() {
            let what = match target.url.address {
                TransportAddress::Quorum(_) => {
                    "with keys=contributory brokers see no message: members alone can read all"
                }
                _ => "--allow, --value, --receipt and the like are for brokers, and the URL names none",
            };
            let failure = Failure::new(Code::BadPair, what);
            return Err(failure.hint("--url quorum:cluster.toml; sealcast brokers up -n 4 starts some"));
        }
        Ok(())
    }

    /// The one message.
    fn one(&self) -> Result<Vec<u8>, Failure> {
        if let Some(body) = self.body.as_ref().filter(|b| *b != "-") {
            return Ok(body.clone().into_bytes());
        }
        let mut body = vec![];
        match &self.file {
            Some(path) => {
                let file =
                    std::fs::File::open(path).map_err(|e| Failure::from(sealcast::config::FileError::io(path, e)))?;
                file.take(BODY_BYTES_MAX).read_to_end(&mut body).map_err(|e| Failure::system(path.display(), &e))?;
            }
            None => {
                let stdin = io::stdin().lock();
                stdin.take(BODY_BYTES_MAX).read_to_end(&mut body).map_err(|e| Failure::system("stdin", &e))?;
            }
        }
        if body.len() > limits::MESSAGE_BYTES_MAX {
            let limit = bytes(limits::MESSAGE_BYTES_MAX as u64);
            return Err(Failure::new(Code::TooLarge, format!("the message has more than {limit}")));
        }
        Ok(body)
    }

    fn own<'a>(&self, env: &Env<'_>, target: &Target, outgoing: ToBrokers<'a>) -> Result<Route<'a>, Failure> {
        // Lines may come as long as their writer runs.
        let session = session::open(env, target, if self.lines { For::Lines } else { For::Message })?;
        if let Some((cluster, outgoing)) = outgoing {
            return Client::new(env, cluster, session.into_brokers()?, outgoing).map(Route::Brokers);
        }
        session::wait_for_key(env, target, &session, None)?;
        Ok(Route::Dedicated(session))
    }

    /// Refuses what this way of travelling does not give, before anything joins a group.
    fn check_given(&self, target: &Target) -> Result<(), Failure> {
        let asked = [(self.fifo, "--fifo"), (self.ordered, "--ordered"), (self.safe, "--safe")];
        let Some((_, asked)) = asked.into_iter().find(|(is_asked, _)| *is_asked) else { return Ok(()) };
        let through = match target.url.address {
            TransportAddress::Quorum(_) if !self.safe => return Ok(()),
            TransportAddress::Quorum(_) => {
                "brokers do not give --safe: nobody tells them when all members hold a message".to_owned()
            }
            TransportAddress::Memory { ordered: true, .. } => return Ok(()),
            TransportAddress::Relay(_) if target.url.keys == Scheme::Mls && !self.safe => return Ok(()),
            TransportAddress::Multicast { ordered: true, .. } => return Ok(()),
            TransportAddress::Multicast { .. } => {
                format!("multicast does not give {asked}: {} is best effort", target.url)
            }
            _ => format!("{} does not give {asked}", target.url),
        };
        let hint = match target.url.address {
            TransportAddress::Quorum(_) => "--ordered, which is kept once this returns",
            TransportAddress::Multicast { .. } => {
                "order=total in all members' URLs gives it to a sealed group; or --url quorum:cluster.toml"
            }
            _ if self.safe => "leave it out; --url quorum:cluster.toml gives --ordered",
            _ => "leave it out, or --url quorum:cluster.toml; sealcast brokers up -n 4 starts such brokers",
        };
        Err(Failure::new(Code::BadPair, through).hint(hint))
    }

    /// One message, or to brokers several together.
    fn send(&self, env: &Env<'_>, target: &Target, route: &mut Route<'_>, bodies: Vec<Vec<u8>>) -> Result<(), Failure> {
        let body = &bodies.concat();
        let (number, through) = loop {
            match route {
                Route::Shared(client, _, got) => match client.publish(&self.topic, body, self.guarantee()) {
                    // It ended under our hands, as another one-shot pub does: then we go ourselves.
                    Err(e) if e.code() == Code::Closed => *route = self.own(env, target, None)?,
                    other => {
                        let sent = other?;
                        got.count(&sent);
                        break (sent.number, "session");
                    }
                },
                Route::Dedicated(session) => break (self.publish(session, body)?, "own"),
                Route::Brokers(client) => return client.publish(env, self, bodies),
            }
        };
        env.output.object(&json!({ "topic": self.topic, "bytes": body.len(), "number": number, "through": through }))
    }

    fn publish(&self, session: &Session, body: &[u8]) -> Result<Option<u64>, Failure> {
        let publish = session.publish(&self.topic, body);
        let publish = match self.guarantee() {
            Guarantee::BestEffort => publish,
            Guarantee::Fifo => publish.fifo(),
            Guarantee::Ordered => publish.ordered(),
            Guarantee::Safe => publish.safe(),
        };
        Ok(publish.wait()?.number)
    }

    fn guarantee(&self) -> Guarantee {
        match (self.fifo, self.ordered, self.safe) {
            (true, _, _) => Guarantee::Fifo,
            (_, true, _) => Guarantee::Ordered,
            (_, _, true) => Guarantee::Safe,
            (false, false, false) => Guarantee::BestEffort,
        }
    }
}

/// Who could get what went through a running session, in messages.
#[derive(Default)]
struct Got {
    /// Other members.
    others: u64,
    /// Nobody but subscriptions of that session.
    here: u64,
    nobody: u64,
}

impl Got {
    fn count(&mut self, sent: &Sent) {
        match sent {
            // Where nobody knows who is there, nobody can be missed.
            Sent { others: None | Some(1..), .. } => self.others += 1,
            Sent { here: true, .. } => self.here += 1,
            Sent { here: false, .. } => self.nobody += 1,
        }
    }

    /// It is an error if nobody got any of it.
    fn judge(self, env: &Env<'_>, group: &str, alone: bool) -> Result<(), Failure> {
        match self {
            Got { others: 0, here: 0, nobody: 1.. } => nobody_got_it(env, group, alone),
            Got { others: 0, here: 1.., .. } => {
                env.output.warn(format!("nobody else is in {group}: only subscriptions of this identity got it"));
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// Which lines of the input, from the first to the last of those that were sent together.
fn lines_shown(first: usize, last: usize) -> String {
    if last > first { format!("lines {first} to {last} of stdin") } else { format!("line {first} of stdin") }
}

fn nobody_got_it(env: &Env<'_>, group: &str, alone: bool) -> Result<(), Failure> {
    let nobody = format!("nobody else is in {group}: nobody got it");
    if alone {
        env.output.warn(nobody);
        return Ok(());
    }
    Err(Failure::new(Code::Nobody, nobody).hint("start the others first; pub --alone counts this as done"))
}

/// The session of this identity, if one runs; one that was started a moment ago is waited for.
fn running(env: &Env<'_>, target: &Target) -> Result<Option<(control::Client, GroupInfo)>, Failure> {
    let start = Instant::now();
    loop {
        if let Some(running) = session::at_target(env, target)? {
            return Ok(Some(running));
        }
        if !session::is_shared(target) || start.elapsed() > JUST_STARTED {
            return Ok(None);
        }
        std::thread::sleep(JUST_STARTED / 10);
    }
}

/// Leaves, and says what the command did to the group by coming and going.
fn finish(env: &Env<'_>, target: &Target, session: Session, sent: u64, alone: bool) -> Result<(), Failure> {
    let info = session.info();
    let foreign = session.stats().drops.of(Dropped::Foreign);
    let view = session.view();
    let unordered = session.clone().close();
    if let Some(refusal) = session.refusal() {
        return Err(refusal.into());
    }
    let log = session.log();
    if unordered > 0 && matches!(target.url.address, TransportAddress::Multicast { .. }) {
        let what =
            format!("{unordered} of {sent} messages are not acknowledged by all who read them; they may have them");
        return Err(sealcast::Error::new(Code::TimedOut, what).with_hint("sealcast group show").into());
    }
    if unordered > 0 {
        let what =
            format!("{unordered} of {sent} messages have no place in the brokers' order; they may get one still");
        return Err(sealcast::Error::new(Code::TimedOut, what).with_hint("sealcast brokers status").into());
    }
    let what = if sent == 1 { "1 message".to_owned() } else { format!("{sent} messages") };
    match view.filter(|_| !info.group.is_empty()) {
        None => env.output.detail(format!("sent {what}")),
        Some(view) => {
            let others = view.members.len().saturating_sub(1);
            let to = if others == 1 { "1 other".to_owned() } else { format!("{others} others") };
            // Members of MLS groups stay.
            let left = if target.url.keys == Scheme::Mls { "" } else { ", left" };
            env.output.say(format!("joined {} (epoch {}), sent {what} to {to}{left}", info.group, view.epoch.counter));
            if others == 0 {
                if foreign > 0 {
                    let who = "somebody else speaks on this address, of another group or authority";
                    env.output.warn(format!("{who}; compare 'sealcast id show' on both sides"));
                }
                session::warn_of_other_urls(env, &log);
                nobody_got_it(env, &info.group, alone || sent == 0)?;
            }
        }
    }
    Ok(())
}

/// 'sub & pub' starts two programs at once: this long the first may take to be there.
const JUST_STARTED: Duration = Duration::from_millis(150);
/// One more than a message may have, so that too long ones are noticed.
const BODY_BYTES_MAX: u64 = limits::MESSAGE_BYTES_MAX as u64 + 1;
