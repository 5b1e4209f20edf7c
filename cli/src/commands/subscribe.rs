//! `sealcast sub`: messages as they come, each with who sent it and how that is known.

mod released;
mod watch;

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Args;
use sealcast::code::Code;
use sealcast::config::KeptIdentity;
use sealcast::group::{Message, Origin, ViewEvent};
use sealcast::url::Scheme;
use sealcast::{Session, Subscription, Views};
use sealcast_crypto::identity::Pattern;
use sealcast_keys::Exclusion;

use super::Env;
use crate::cluster::Cluster;
use crate::format::{Payload, Received, Sender, Template, headline, object};
use crate::hint::Failure;
use crate::interrupt;
use crate::session;
use crate::target::Target;
use crate::text::{duration, members, parse_duration};

/// Subscribe: print messages as they come
#[derive(Debug, Args)]
#[command(
    visible_alias = "subscribe",
    after_help = "\
A line says number, topic, sender, epoch, size and time on the way; the payload follows.
«from robot7» is a verified signature; «from ~robot7» only somebody with the group's key who says
so.

Patterns: + is one level, # at the end is all the rest. With --regex LCM's regular expressions.
Format:   %t topic  %s sender  %p payload  %e epoch  %n sender's number  %i number here  %l bytes
          %d time on the way  %j JSON  %%  \\n  \\t

Examples:
  sealcast sub 'ward3/#'
  sealcast sub 'pose/+' camera/front -C 10 -W 5s
  sealcast sub pose/robot7 --format '%t %s %p'
  sealcast sub camera/front -C 1 --raw > frame.jpg

Through brokers (quorum: URLs) a subscription stays when this command ends, and goes on where it was
left the next time; «from» is then the publisher's key at the brokers. A pattern may ask for values
and be joined by and, or and parentheses; double quotes hold characters that mean something else:
  sealcast sub 'price = 105 and region = eu' 'news/#'
  sealcast sub --list                            sealcast sub --end 'news/#'
It warns when too few brokers answer or shares of a publication are missing. It ends with exit
code 7 when nobody vouches for you any more, and with 8 when more brokers lie than may.
What others tell of what they publish («sealcast brokers advertise») comes with --advertisements,
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
        if let Some(cluster) = Cluster::of_publications(&target.url)? {
            return self.through_brokers(env, &cluster);
        }
        if self.list || self.end || self.advertisements {
            let what = "--list, --end and --advertisements are for brokers, and the URL names none";
            return Err(Failure::new(Code::BadPair, what).hint("elsewhere a subscription ends with its command"));
        }
        let patterns = self.parsed()?;
        if !self.regex {
            check_rights(env, &target, &patterns)?;
        }
        let session = session::open(env, &target)?;
        // Before there is a key: what comes first must not be missed.
        let mut subscriptions = self.subscribe(&session)?;
        session::wait_for_key(env, &target, &session, self.wait)?;
        let mut ended = self.print(env, &session, &mut subscriptions);
        if session.info().excluded == Some(Exclusion::Left) {
            env.output.say(format!("left {}, as «sealcast group leave» asked", session.info().group));
            ended = Ok(());
        }
        if let Some(missed) = Some(subscriptions.iter().map(Subscription::missed).sum::<u64>()).filter(|m| *m > 0) {
            env.output.warn(format!("{missed} messages came faster than they could be printed"));
        }
        session.close();
        ended
    }

    /// The patterns, each of them readable.
    fn parsed(&self) -> Result<Vec<Pattern>, Failure> {
        if self.regex {
            return Ok(vec![]);
        }
        let one = |text: &String| text.parse().map_err(|e| Failure::new(Code::BadValue, format!("«{text}»: {e}")));
        self.patterns.iter().map(one).collect()
    }

    fn subscribe(&self, session: &Session) -> Result<Vec<Subscription>, Failure> {
        let one = |pattern: &String| {
            let subscribe = session.subscribe(pattern);
            let subscribe = if self.regex { subscribe.regex() } else { subscribe };
            Ok(subscribe.wait()?)
        };
        self.patterns.iter().map(one).collect()
    }

    fn print(&self, env: &Env<'_>, session: &Session, subscriptions: &mut [Subscription]) -> Result<(), Failure> {
        let (start, mut index) = (Instant::now(), 0);
        let mut views = session.views();
        tell_views(env, &mut views);
        loop {
            if self.count.is_some_and(|n| index >= n) || interrupt::asked() {
                return Ok(());
            }
            let left = self.wait.map_or(STEP, |w| w.saturating_sub(start.elapsed()));
            if left.is_zero() {
                return self.out_of_time(index);
            }
            if let Some(message) = next(subscriptions, left.min(STEP))? {
                index += 1;
                self.show(env, index, &message)?;
            }
            tell_views(env, &mut views);
        }
    }

    fn out_of_time(&self, index: u64) -> Result<(), Failure> {
        let (Some(count), Some(wait)) = (self.count, self.wait) else { return Ok(()) };
        let what = format!("{index} of {count} messages came within {}", duration(wait));
        Err(Failure::new(Code::TimedOut, what).hint("sealcast doctor; sealcast group members shows who could send"))
    }

    fn show(&self, env: &Env<'_>, index: u64, message: &Message) -> Result<(), Failure> {
        let origin = message.origin();
        let client = origin.to_string();
        let received = Received {
            index,
            topic: message.topic(),
            sender: match &origin {
                Origin::Signed(member) => Sender::Signed(&member.name),
                Origin::Claimed(member) => Sender::Claimed(&member.name),
                Origin::Client(_) => Sender::Signed(&client),
                Origin::Anonymous => Sender::Anonymous,
            },
            epoch: message.epoch().map_or(0, |e| e.counter),
            sequence: message.sequence(),
            delay_micros: message.sent_micros().map(delay_since),
            associated: &[],
            places: &[],
            payload: Payload::Here(message.payload()),
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

/// The next message of any subscription. A message that several patterns match is shown once for each.
fn next(subscriptions: &mut [Subscription], patience: Duration) -> Result<Option<Message>, Failure> {
    if let [only] = subscriptions {
        return Ok(only.next_timeout(patience)?);
    }
    let start = Instant::now();
    loop {
        for subscription in subscriptions.iter_mut() {
            if let Some(message) = subscription.next_timeout(TURN)? {
                return Ok(Some(message));
            }
        }
        if start.elapsed() > patience {
            return Ok(None);
        }
    }
}

/// With `-v`, who came and went.
fn tell_views(env: &Env<'_>, views: &mut Views) {
    while let Some(event) = views.try_next() {
        if let ViewEvent::Changed { view, joined, left } = event {
            let names = |sign: char, of: &[sealcast_wire::Member]| -> String {
                of.iter().map(|m| format!(" {sign}{}", m.name)).collect()
            };
            let (counter, all) = (view.epoch.counter, members(view.members.len()));
            env.output.detail(format!("epoch {counter}: {all}{}{}", names('+', &joined), names('-', &left)));
        }
    }
}

/// A certificate that grants nothing of a pattern will never hear anything: better said now.
fn check_rights(env: &Env<'_>, target: &Target, patterns: &[Pattern]) -> Result<(), Failure> {
    if target.url.keys == Scheme::Plain {
        return Ok(());
    }
    let Some(name) = target.identity(env)? else { return Ok(()) };
    let kept = KeptIdentity::load(&env.home, &name)?;
    let Some(m) = &kept.membership else { return Ok(()) };
    let rights = m.certificate.rights();
    let groups = m.groups();
    for pattern in patterns {
        if !groups.iter().any(|g| rights.subscribes(g).any(|granted| granted.overlaps(pattern))) {
            let granted: Vec<String> = groups.iter().map(|g| super::grant::rights_shown(rights, g)).collect();
            let who = m.certificate.name();
            let failure = format!("{who} may not subscribe to {pattern} (granted: {})", granted.join("; "));
            let key = sealcast_crypto::identity::keytext::short(&kept.secret.public().to_string());
            return Err(Failure::new(Code::DeniedSubscribe, failure)
                .hint(format!("the authority grants it:  sealcast invite --for {key} --as {who} --sub '{pattern}'")));
        }
    }
    Ok(())
}

fn delay_since(sent_micros: u64) -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_micros());
    i64::try_from(now).unwrap_or(i64::MAX).saturating_sub_unsigned(sent_micros)
}

/// How often Ctrl-C and the end of time are looked for.
const STEP: Duration = Duration::from_millis(50);
/// How long one of several subscriptions is listened to alone.
const TURN: Duration = Duration::from_millis(2);
