//! `sealcast sub`: messages as they come, each with who sent it and how that is known.

mod released;
mod watch;

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Args;
use sealcast::code::Code;
use sealcast::config::KeptIdentity;
use sealcast::control::{Client, Heard, HeardOrigin, Listening};
use sealcast::group::ViewEvent;
use sealcast::url::Scheme;
use sealcast::{Session, Subscription, Views};
use sealcast_crypto::identity::Pattern;
use sealcast_keys::Exclusion;
use serde_json::json;

use released::{end, list};

use super::Env;
use crate::cluster::Cluster;
use crate::format::{Payload, Received, Sender, Template, headline, object};
use crate::hint::Failure;
use crate::interrupt;
use crate::session::{self, For};
use crate::target::Target;
use crate::text::{duration, members, parse_duration, stale};

/// Subscribe: print messages as they come
#[derive(Debug, Args)]
#[command(
    visible_alias = "subscribe",
    after_help = "\
A line says number, topic, sender, epoch, size and time on the way; the payload follows. On a
terminal it stands behind a margin, and what could drive the terminal is escaped. In a file or a
pipe it is printed as it is, so that a payload can look like such a line: programs read --json.
'from robot7' is a verified signature; 'from ~robot7' only somebody with the group's key who says
so.

Patterns: + is one level, # at the end is all the rest. With --regex LCM's regular expressions.
Format:   %t topic  %s sender  %p payload  %e epoch  %n sender's number  %i number here  %l bytes
          %d time on the way  %j JSON  %%  \\n  \\t

Examples:
  sealcast sub 'ward3/#'
  sealcast sub 'pose/+' camera/front -C 10 -W 5s
  sealcast sub pose/robot7 --format '%t %s %p'
  sealcast sub camera/front -C 1 --raw > frame.jpg

With --json each message is an object. One with \"event\" instead of \"topic\" says that ordered
messages are missing there (gap), or that an order was begun anew (forced).

Through brokers (quorum: URLs) a subscription stays when this command ends, and goes on where it was
left the next time; 'from' is then the publisher's key at the brokers. A pattern may ask for values
and be joined by and, or and parentheses; double quotes hold characters that mean something else:
  sealcast sub 'price = 105 and region = eu' 'news/#'
  sealcast sub --list                            sealcast sub --end 'news/#'
It warns when too few brokers answer or shares of a publication are missing. It ends with exit
code 7 when nobody vouches for you any more, and with 8 when more brokers lie than may.
What others tell of what they publish ('sealcast brokers advertise') comes with --advertisements,
also without a pattern."
)]
pub(crate) struct Sub {
    /// Patterns of topics, for example 'ward3/#'; of several, one suffices
    #[arg(required_unless_present_any = ["list", "advertisements"], value_name = "PATTERN")]
    patterns: Vec<String>,
    /// End after this many messages
    #[arg(short = 'C', long, value_name = "N")]
    count: Option<u64>,
    /// End after this time; with -C, exit code 4 if fewer messages came
    #[arg(short = 'W', long, value_name = "TIME", value_parser = parse_duration)]
    wait: Option<Duration>,
    /// Print each message in this form
    #[arg(long, value_name = "TEMPLATE", value_parser = Template::parse, conflicts_with = "raw")]
    format: Option<Template>,
    /// Print payloads only, byte for byte, nothing between them
    #[arg(long)]
    raw: bool,
    /// Patterns are regular expressions that match whole topics, as in LCM
    #[arg(long)]
    regex: bool,
    /// Show what you have subscribed to, and what waits for you there (brokers)
    #[arg(long, conflicts_with_all = ["patterns", "count", "wait", "format", "raw", "regex", "end"])]
    list: bool,
    /// End the subscription to these patterns for good, and what waits there (brokers)
    #[arg(long, conflicts_with_all = ["count", "wait", "format", "raw", "regex"])]
    end: bool,
    /// Print what others advertise, too; it counts as a message (brokers)
    #[arg(long, conflicts_with_all = ["format", "raw", "regex", "list", "end"])]
    advertisements: bool,
}

impl Sub {
    pub(crate) fn run(self, env: &Env<'_>) -> Result<(), Failure> {
        let target = Target::of(env)?;
        let cluster = Cluster::of_publications(&target.url)?;
        let interest = match &cluster {
            Some(cluster) if self.list => return list(env, cluster),
            Some(cluster) => {
                let interest = self.interest()?;
                if let (Some(interest), true) = (&interest, self.end) {
                    return end(env, cluster, interest);
                }
                interest
            }
            None if self.list || self.end || self.advertisements => {
                let what = "--list, --end and --advertisements are for brokers, and the URL names none";
                return Err(Failure::new(Code::BadPair, what).hint("elsewhere a subscription ends with its command"));
            }
            None => self.check_rights(env, &target).map(|()| None)?,
        };
        let mut shown = Shown { since: Instant::now(), count: 0 };
        let Some(session) = self.session(env, &target, &mut shown)? else { return Ok(()) };
        match &cluster {
            Some(cluster) => self.released(env, cluster, session.into_brokers()?, interest),
            None => self.delivered(env, &target, session, &mut shown),
        }
    }

    /// What comes to a member of a group.
    fn delivered(&self, env: &Env<'_>, target: &Target, session: Session, shown: &mut Shown) -> Result<(), Failure> {
        // Before there is a key: what comes first must not be missed.
        let mut subscriptions = self.subscribe(&session)?;
        session::wait_for_key(env, target, &session, self.wait)?;
        let mut views = session.views();
        tell_views(env, &mut views)?;
        let (mut looked, mut warned) = (Instant::now(), false);
        let mut trouble = Trouble::default();
        let mut ended = self.show_all(shown, |shown, timeout| {
            let message = next(&mut subscriptions, timeout, Subscription::next_timeout)?;
            self.show(env, shown, message.map(Heard::from))?;
            if looked.elapsed() > LOOK {
                warned = warned || session::warn_of_other_urls(env, &session.log());
                trouble.look(env, &session)?;
                looked = Instant::now();
            }
            tell_views(env, &mut views)
        });
        if session.info().excluded == Some(Exclusion::Left) {
            env.output.say(format!("left {}, as 'sealcast group leave' asked", session.info().group));
            ended = Ok(());
        }
        tell_missed(env, subscriptions.iter().map(Subscription::missed).sum());
        session.close();
        ended
    }

    /// Refuses patterns that cannot be read. A certificate that grants nothing of one will never hear anything: better said now.
    fn check_rights(&self, env: &Env<'_>, target: &Target) -> Result<(), Failure> {
        if self.regex {
            return Ok(());
        }
        let one = |text: &String| text.parse().map_err(|e| Failure::new(Code::BadValue, format!("'{text}': {e}")));
        let patterns: Vec<Pattern> = self.patterns.iter().map(one).collect::<Result<_, _>>()?;
        if target.url.keys == Scheme::Plain {
            return Ok(());
        }
        let Some(name) = target.identity(env)? else { return Ok(()) };
        // A session of a principal judges its rights by itself.
        if target.url.keys == Scheme::Center {
            return Ok(());
        }
        let kept = KeptIdentity::load(&env.home, &name)?;
        let Some(m) = &kept.membership else { return Ok(()) };
        let rights = m.certificate.rights();
        let groups = m.groups();
        for pattern in &patterns {
            if !groups.iter().any(|g| rights.subscribes(g).any(|granted| granted.overlaps(pattern))) {
                let granted: Vec<String> = groups.iter().map(|g| super::grant::rights_shown(rights, g)).collect();
                let who = m.certificate.name();
                let failure = format!("{who} may not subscribe to {pattern} (granted: {})", granted.join("; "));
                let key = sealcast_crypto::identity::keytext::short(&kept.secret.public().to_string());
                return Err(Failure::new(Code::DeniedSubscribe, failure).hint(format!(
                    "the authority grants it:  sealcast invite --for {key} --as {who} --sub '{pattern}'"
                )));
            }
        }
        Ok(())
    }

    fn subscribe(&self, session: &Session) -> Result<Vec<Subscription>, Failure> {
        let one = |pattern: &String| {
            let subscribe = session.subscribe(pattern);
            let subscribe = if self.regex { subscribe.regex() } else { subscribe };
            Ok(subscribe.wait()?)
        };
        self.patterns.iter().map(one).collect()
    }

    /// A session of our own, once no other of this identity listens for us; `None` if it brought all that was wanted.
    fn session(&self, env: &Env<'_>, target: &Target, shown: &mut Shown) -> Result<Option<Session>, Failure> {
        loop {
            // One that publishes and goes is waited for.
            let running = session::at_target(env, target)?.filter(|(_, info)| !info.one_shot);
            if let Some((client, info)) = running {
                env.output.detail(format!("through the running session of {} (process {})", info.me, info.pid));
                match self.through_session(env, target, client, shown) {
                    Err(failure) if failure.is(Code::Closed) && !interrupt::asked() => {
                        env.output.say("the session that brought the messages has ended; joining");
                    }
                    ended => return ended.map(|()| None),
                }
            }
            match session::open(env, target, For::Subscription) {
                // Another one was quicker.
                Err(failure) if failure.is(Code::Duplicate) && session::is_shared(target) && !interrupt::asked() => {
                    std::thread::sleep(STEP);
                }
                other => return other.map(Some),
            }
        }
    }

    /// By a session of this identity that runs already: one process at a time is the member.
    fn through_session(&self, env: &Env<'_>, target: &Target, first: Client, shown: &mut Shown) -> Result<(), Failure> {
        let mut first = Some(first);
        let mut all = Vec::new();
        for pattern in &self.patterns {
            let client = match first.take() {
                Some(client) => client,
                None => session::of_target(env, target)?.ok_or_else(sealcast::Error::closed)?,
            };
            all.push(client.subscribe(pattern, self.regex)?);
        }
        let ended = self.show_all(shown, |shown, timeout| {
            let heard = next(&mut all, timeout, Listening::next_timeout)?;
            self.show(env, shown, heard)
        });
        tell_missed(env, all.iter().map(Listening::missed).sum());
        ended
    }

    /// Shows what comes, step by step, until that is all that was wanted.
    fn show_all(
        &self,
        shown: &mut Shown,
        mut step: impl FnMut(&mut Shown, Duration) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        loop {
            if self.count.is_some_and(|n| shown.count >= n) || interrupt::asked() {
                return Ok(());
            }
            let left = self.wait.map_or(STEP, |w| w.saturating_sub(shown.since.elapsed()));
            if left.is_zero() {
                return self.out_of_time(shown.count);
            }
            step(shown, left.min(STEP))?;
        }
    }

    fn out_of_time(&self, index: u64) -> Result<(), Failure> {
        let (Some(count), Some(wait)) = (self.count, self.wait) else { return Ok(()) };
        let what = format!("{index} of {count} messages came within {}", duration(wait));
        Err(Failure::new(Code::TimedOut, what).hint("sealcast doctor; sealcast group members shows who could send"))
    }

    fn show(&self, env: &Env<'_>, shown: &mut Shown, heard: Option<Heard>) -> Result<(), Failure> {
        let Some(heard) = heard else { return Ok(()) };
        shown.count += 1;
        let client = |key: &str| key.get(..8).map_or_else(|| key.to_owned(), |first| format!("{first}…"));
        let key_shown;
        let received = Received {
            index: shown.count,
            topic: &heard.topic,
            sender: match &heard.origin {
                HeardOrigin::Signed(name) => Sender::Signed(name),
                HeardOrigin::Claimed(name) => Sender::Claimed(name),
                HeardOrigin::Client(key) => {
                    key_shown = client(key);
                    Sender::Signed(&key_shown)
                }
                HeardOrigin::Anonymous => Sender::Anonymous,
            },
            epoch: heard.epoch.unwrap_or(0),
            sequence: heard.sequence,
            delay_micros: heard.sent_micros.map(delay_since),
            associated: &[],
            places: &[],
            payload: Payload::Here(&heard.payload),
        };
        self.show_received(env, &received)
    }

    fn show_received(&self, env: &Env<'_>, received: &Received<'_>) -> Result<(), Failure> {
        if env.output.is_json() {
            return env.output.object(&object(received));
        }
        if self.raw && matches!(received.payload, Payload::Elsewhere(..)) {
            env.output.warn(format!("{}: {}", headline(received), received.payload.shown()));
            return Ok(());
        }
        if self.raw && !env.output.to_terminal() {
            return env.output.bytes(&received.payload.to_bytes());
        }
        if let Some(template) = &self.format {
            let mut line = template.fill(received, env.output.to_terminal());
            line.push(b'\n');
            return env.output.bytes(&line);
        }
        if !self.raw {
            env.output.line(env.output.bold(headline(received)))?;
        }
        if env.output.to_terminal() {
            return env.output.line(if self.raw { received.payload.shown() } else { received.payload.set_off() });
        }
        let mut payload = received.payload.to_bytes();
        payload.push(b'\n');
        env.output.bytes(&payload)
    }
}

/// Since when messages are shown, and how many were.
struct Shown {
    since: Instant,
    count: u64,
}

/// What keeps the relay from working, as it was told.
#[derive(Default)]
struct Trouble {
    since: Option<Instant>,
    told: bool,
}

impl Trouble {
    /// Tells of what lasts, and of its end.
    fn look(&mut self, env: &Env<'_>, session: &Session) -> Result<(), Failure> {
        let Some(why) = session.trouble() else {
            self.since = None;
            if std::mem::take(&mut self.told) {
                env.output.say("the relay works again");
                env.output.object(&json!({ "event": "relay", "trouble": null }))?;
            }
            return Ok(());
        };
        let lasts = self.since.get_or_insert_with(Instant::now).elapsed() > TROUBLE_LASTS;
        if lasts && !self.told {
            self.told = true;
            env.output.warn(format!(
                "no messages come until the relay works again: {} [{}]",
                why.message(),
                why.code()
            ));
            env.output
                .object(&json!({ "event": "relay", "trouble": why.message(), "code": why.code().to_string() }))?;
        }
        Ok(())
    }
}

fn tell_missed(env: &Env<'_>, missed: u64) {
    if missed > 0 {
        env.output.warn(format!("{missed} messages came faster than they could be printed"));
    }
}

/// The next message of any subscription. A message that several patterns match is shown once for each.
fn next<S, M>(
    subscriptions: &mut [S],
    timeout: Duration,
    next: impl Fn(&mut S, Duration) -> sealcast::Result<Option<M>>,
) -> Result<Option<M>, Failure> {
    if let [only] = subscriptions {
        return Ok(next(only, timeout)?);
    }
    let start = Instant::now();
    loop {
        for subscription in subscriptions.iter_mut() {
            if let Some(message) = next(subscription, TURN)? {
                return Ok(Some(message));
            }
        }
        if start.elapsed() > timeout {
            return Ok(None);
        }
    }
}

/// What is missing of the order; with `-v`, who came and went, and who orders.
fn tell_views(env: &Env<'_>, views: &mut Views) -> Result<(), Failure> {
    while let Some(event) = views.try_next() {
        match event {
            ViewEvent::Changed { view, joined, left } => {
                let names = |sign: char, of: &[sealcast_wire::Member]| -> String {
                    of.iter().map(|m| format!(" {sign}{}", m.name)).collect()
                };
                let (counter, all) = (view.epoch.counter, members(view.members.len()));
                env.output.detail(format!("epoch {counter}: {all}{}{}", names('+', &joined), names('-', &left)));
            }
            ViewEvent::Gap { from } => {
                let what = format!("messages of {} that were promised never come", from.name);
                env.output.warn(&what);
                env.output.object(&json!({ "event": "gap", "what": what }))?;
            }
            ViewEvent::Missed { from, until } => {
                let what = format!("the relay keeps no more what had positions {from} to {until}: it never comes");
                env.output.warn(&what);
                env.output.object(&json!({ "event": "gap", "from": from, "until": until, "what": what }))?;
            }
            ViewEvent::Stale { silent } => {
                let what = silent.map_or_else(|| "others are heard again".to_owned(), stale);
                match silent {
                    Some(_) => env.output.warn(&what),
                    None => env.output.detail(&what),
                }
                env.output
                    .object(&json!({ "event": if silent.is_some() { "stale" } else { "heard" }, "what": what }))?;
            }
            ViewEvent::Order { sequencer, is_settled, forced, gap, term, .. } => {
                let gap = gap.then_some(("gap", GAP));
                for (event, what) in gap.into_iter().chain(forced.then_some(("forced", FORCED))) {
                    env.output.warn(what);
                    // Where the messages are data, so is what is missing between them.
                    env.output.object(&json!({ "event": event, "what": what }))?;
                }
                match sequencer {
                    Some(member) => {
                        env.output.detail(format!("order: {} is the sequencer of term {term}", member.name))
                    }
                    None if is_settled => env.output.detail("order: this member is not in the primary component"),
                    None => {}
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn delay_since(sent_micros: u64) -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_micros());
    i64::try_from(now).unwrap_or(i64::MAX).saturating_sub_unsigned(sent_micros)
}

const GAP: &str = "ordered messages are missing here: this member was apart from the group";
const FORCED: &str = "this part of the group was made primary by force: others may have another order";
/// How often it is looked for others with another order.
const LOOK: Duration = Duration::from_secs(1);
/// A relay that is back before is not spoken of.
const TROUBLE_LASTS: Duration = Duration::from_secs(3);
/// How often Ctrl-C and the end of time are looked for.
const STEP: Duration = Duration::from_millis(50);
/// How long one of several subscriptions is listened to alone.
const TURN: Duration = Duration::from_millis(2);
