//! `sealcast read TOPIC`: what stands at a topic's places, and values that brokers keep with it, read without subscribing.

use std::path::PathBuf;

use clap::Args;
use sealcast::brokers::{Brokers, Content, TopicPosition};
use sealcast::code::Code;
use sealcast_broker::operation::{Act, Header, TopicError, check_published};
use sealcast_broker::receipt::Receipt;
use sealcast_client::Read as What;
use sealcast_crypto::identity::check_topic;
use serde_json::{Value, json};

use super::Env;
use crate::cluster::Cluster;
use crate::commands::policy::Denial;
use crate::format::{Payload, for_terminal, safe, typed};
use crate::hint::Failure;
use crate::text::{bytes, instant};

/// Read what stands at a topic's places (brokers)
#[derive(Debug, Args)]
#[command(after_help = "\
Publications of a topic are numbered from 0 without gaps, and what stands at a place never changes.
A place whose publication you may not read shows as ⊥. A read is of the newest block that enough
brokers agree on, which may be a moment ago; with --linearizable, whatever was acknowledged to
anybody before the call is in it.

Examples:
  sealcast read market/eurusd                 all that is kept, at most 100
  sealcast read market/eurusd --from 1200 --limit 20
  sealcast read market/eurusd --latest --raw
  sealcast read market/eurusd --latest --linearizable
  sealcast read market/eurusd --from 1200 --limit 1 --receipt r.json
  sealcast read orders/eurusd --key count     a value that publications have set or counted")]
pub(crate) struct Read {
    /// The topic
    topic: String,
    /// A value that the brokers keep with the topic, as 'sealcast pub --put' and '--increment' made it
    #[arg(long, value_name = "KEY", conflicts_with_all = ["value", "from", "limit", "latest"])]
    key: Option<String>,
    /// The topic's value, where it has one
    #[arg(long, value_name = "VALUE")]
    value: Option<String>,
    /// The first place
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with = "latest")]
    from: u64,
    /// How many places at most
    #[arg(long, value_name = "N", default_value_t = 100, conflicts_with = "latest",
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    limit: u16,
    /// The last place only
    #[arg(long)]
    latest: bool,
    /// Miss nothing that was published before this call: orders a mark first
    #[arg(long)]
    linearizable: bool,
    /// Print payloads only, byte for byte, nothing between them
    #[arg(long)]
    raw: bool,
    /// Keep the brokers' signatures on the one publication that is read, for others to check
    #[arg(long, value_name = "FILE", conflicts_with = "key")]
    receipt: Option<PathBuf>,
    /// Overwrite the file of --receipt
    #[arg(long, requires = "receipt")]
    force: bool,
}

impl Read {
    pub(crate) fn run(self, env: &Env<'_>) -> Result<(), Failure> {
        let checked =
            |text: &str| check_topic(text).map_err(|e| Failure::new(Code::BadValue, format!("'{text}': {e}")));
        checked(&self.topic)?;
        self.value.as_deref().map(checked).transpose()?;
        if let Some(file) = &self.receipt {
            super::receipt::check_free(file, self.force)?;
        }
        let cluster = Cluster::of(env, None)?;
        let brokers = cluster.open_registered(env)?;
        if let Some(key) = &self.key {
            let value = brokers.value(&self.topic, key.as_bytes(), self.linearizable).wait();
            super::brokers::keep(env, &cluster.file.cluster(), &brokers.evidence())?;
            let misled = brokers.misled();
            brokers.close();
            if let Some(why) = misled {
                return Err(why.into());
            }
            return self.show_value(env, key, value?.as_deref());
        }
        let places = self.places(env, &brokers);
        super::brokers::keep(env, &cluster.file.cluster(), &brokers.evidence())?;
        let (places, pruned) = places?;
        let misled = brokers.misled();
        let is_all_readable = places.iter().all(|it| it.publication.is_some());
        // ⊥ is the word of f + 1 brokers, whom an earlier run may have caught lying.
        let misled = match (misled, is_all_readable) {
            (None, false) => super::brokers::misled_before(env, &cluster, &brokers)?,
            (misled, _) => misled,
        };
        let refused = places.iter().all(|it| it.publication.is_none()) && !places.is_empty();
        let denied = (refused && misled.is_none()).then(|| self.denied(env, &cluster, &brokers)).transpose()?;
        let receipt = self.receipt(&brokers, &places);
        brokers.close();
        if places.is_empty() && !pruned {
            self.say_nothing(env)?;
        }
        for place in places.iter().filter(|it| misled.is_none() || it.publication.is_some()) {
            self.show(env, place)?;
        }
        if let Some(why) = misled {
            return Err(why.into());
        }
        if let (Some(receipt), Some(file)) = (receipt?, &self.receipt) {
            super::receipt::save(file, &receipt, &cluster.file, self.force)?;
            env.output.say(format!("receipt {}", file.display()));
        }
        denied.map_or(Ok(()), Err)
    }

    /// What was asked for; where the brokers no longer keep its beginning, from the oldest that they keep on, and whether
    /// that is so.
    fn places(&self, env: &Env<'_>, brokers: &Brokers) -> Result<(Vec<TopicPosition>, bool), Failure> {
        let header = || Header { topic: self.topic.clone(), value: self.value.clone() };
        let range = |from: u64| What::Range { header: header(), from, limit: self.limit };
        let what = if self.latest { What::Latest { header: header() } } else { range(self.from) };
        let mut read = brokers.read(&what, self.linearizable).wait();
        let mut pruned = None;
        // More may go while it is looked for.
        for _ in 0..PRUNED_TRIES {
            if read.as_ref().err().is_none_or(|e| e.code() != Code::NotKept) {
                break;
            }
            let oldest = brokers.oldest_kept(&header(), self.from).wait()?;
            pruned = Some(oldest);
            read = brokers.read(&range(oldest), self.linearizable).wait();
        }
        let places = read?;
        if let Some(oldest) = pruned {
            let (topic, gone) = (safe(&self.topic), oldest - self.from);
            env.output.warn(match places.is_empty() {
                true => format!("the brokers keep no publication of {topic} any more: {oldest} were published"),
                false => {
                    format!("{gone} publications of {topic} are no longer kept; number {oldest} is the oldest that is")
                }
            });
        }
        Ok((places, pruned.is_some()))
    }

    /// Says that there is nothing; of what looks like a pattern, that it is one.
    fn say_nothing(&self, env: &Env<'_>) -> Result<(), Failure> {
        let topic = safe(&self.topic);
        if check_published(&self.topic) == Err(TopicError::Wildcard) {
            let what = format!("\"{topic}\" is a pattern, and \"sealcast read\" reads one topic");
            return Err(
                Failure::new(Code::BadValue, what).hint(format!("sealcast sub {} takes patterns", typed(&self.topic)))
            );
        }
        env.output.say(format!("nothing is published at {topic} from number {} on", self.from));
        Ok(())
    }

    /// Nothing of it may be read: by the policy in force, as far as can be told, or by what the publisher said.
    fn denied(&self, env: &Env<'_>, cluster: &Cluster, brokers: &Brokers) -> Result<Failure, Failure> {
        let headers = [Header { topic: self.topic.clone(), value: self.value.clone() }];
        let topic = safe(&self.topic);
        let by = Denial::of(env, cluster, brokers, Act::Read, &headers)?;
        let failure = match &by {
            Some(by) => Failure::new(Code::DeniedPolicy, format!("{} may read nothing of {topic}: {by}", by.who)),
            None => Failure::new(Code::DeniedPolicy, format!("you may read none of {topic}")),
        };
        let why = format!("sealcast policy why --topic {}", typed(&self.topic));
        Ok(failure.hint(match by {
            Some(_) => why,
            None => {
                format!("its publisher allows others only, or the policy of its time did; of the one in force: {why}")
            }
        }))
    }

    /// What `--receipt` asks for.
    fn receipt(&self, brokers: &Brokers, places: &[TopicPosition]) -> Result<Option<Receipt>, Failure> {
        if self.receipt.is_none() {
            return Ok(None);
        }
        match places {
            [TopicPosition { publication: Some((entry, _)), .. }] => Ok(Some(brokers.receipt_of(entry).wait()?)),
            // Why there is none is told without it.
            [] | [_] => Ok(None),
            _ => Err(Failure::new(
                Code::Usage,
                format!("a receipt is of one publication, and {} were read", places.len()),
            )
            .hint("--latest, or --from N --limit 1")),
        }
    }

    /// A number where it is one, which no text looks like: 8 bytes of which the first is 0 or 255.
    fn show_value(&self, env: &Env<'_>, key: &str, value: Option<&[u8]>) -> Result<(), Failure> {
        let eight: Option<[u8; 8]> = value.and_then(|it| it.try_into().ok());
        let number = eight.filter(|it| matches!(it[0], 0 | 255)).map(i64::from_be_bytes);
        let mut object = json!({ "topic": self.topic, "key": key, "set": value.is_some() });
        match (number, value) {
            (Some(number), _) => object["number"] = json!(number),
            (None, Some(value)) => {
                let (name, value) = Payload::Here(value).field();
                object[name.replace("payload", "value")] = value;
            }
            (None, None) => env.output.say(format!("nothing is kept for '{key}' at {}", self.topic)),
        }
        env.output.object(&object)?;
        match (number, value) {
            (_, Some(value)) if self.raw && !env.output.is_json() => env.output.bytes(value),
            (Some(number), _) => env.output.line(number),
            (None, Some(value)) => env.output.line(for_terminal(value)),
            (None, None) => Ok(()),
        }
    }

    fn show(&self, env: &Env<'_>, place: &TopicPosition) -> Result<(), Failure> {
        env.output.object(&self.object(place))?;
        if env.output.is_json() {
            return Ok(());
        }
        let Some((entry, content)) = &place.publication else {
            return if self.raw {
                Ok(())
            } else {
                env.output.line(format!("#{} {}  ⊥", place.ps, safe(&self.topic)))
            };
        };
        for payload in payloads(content) {
            let (from, size) = (hex::encode(&entry.client.0[..4]), bytes(payload.size()));
            let line = format!("#{} {}  from {from}…  {}  {size}", place.ps, safe(&self.topic), instant(entry.at));
            match payload {
                Payload::Here(body) if self.raw => env.output.bytes(body)?,
                Payload::Elsewhere(..) if self.raw => env.output.warn(format!("{line}: {}", payload.shown())),
                _ => {
                    env.output.line(env.output.bold(line))?;
                    let is_terminal = env.output.to_terminal();
                    env.output.line(if is_terminal { payload.set_off() } else { payload.shown() })?;
                }
            }
        }
        Ok(())
    }

    fn object(&self, place: &TopicPosition) -> Value {
        let mut object = json!({ "topic": self.topic, "value": self.value, "number": place.ps, "readable": place.publication.is_some() });
        if let Some((entry, content)) = &place.publication {
            object["at"] = json!(instant(entry.at));
            object["client"] = json!(hex::encode(entry.client.0));
            object["sn"] = json!(entry.sn);
            object["allow"] = json!(entry.access.as_ref().map(ToString::to_string));
            let payload = |it: Payload<'_>| {
                let (name, value) = it.field();
                json!({ name: value, "bytes": it.size() })
            };
            object["payloads"] = payloads(content).map(payload).collect();
        }
        object
    }
}

/// How often the oldest publication that is kept is looked for again.
const PRUNED_TRIES: usize = 5;

/// Each body; or that they lie elsewhere.
pub(super) fn payloads(content: &Content) -> impl Iterator<Item = Payload<'_>> {
    let elsewhere = match content {
        Content::Bodies(_) => None,
        Content::Elsewhere { size, hash } => Some(Payload::Elsewhere(*size, hash)),
    };
    content.bodies().into_iter().flatten().map(|body| Payload::Here(body)).chain(elsewhere)
}
