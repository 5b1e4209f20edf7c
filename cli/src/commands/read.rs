//! `sealcast read TOPIC`: what stands at a topic's places, and values that brokers keep with it, read without subscribing.

use std::path::PathBuf;

use clap::Args;
use sealcast::brokers::{Brokers, Content, Place};
use sealcast::code::Code;
use sealcast_broker::operation::Header;
use sealcast_broker::receipt::Receipt;
use sealcast_crypto::identity::check_topic;
use sealcast_delivery::quorum::Read as What;
use serde_json::{Value, json};

use super::Env;
use crate::cluster::{Cluster, hex};
use crate::format::{Payload, for_terminal, safe};
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
  sealcast read market/eurusd                 all that there is, at most 100
  sealcast read market/eurusd --from 1200 --limit 20
  sealcast read market/eurusd --latest --raw
  sealcast read market/eurusd --latest --linearizable
  sealcast read market/eurusd --from 1200 --limit 1 --receipt r.json
  sealcast read orders/eurusd --key count     a value that publications have set or counted")]
pub(crate) struct Read {
    /// The topic
    topic: String,
    /// A value that the brokers keep with the topic, as «sealcast pub --put» and «--increment» made it
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
}

impl Read {
    pub(crate) fn run(self, env: &Env<'_>) -> Result<(), Failure> {
        let checked =
            |text: &str| check_topic(text).map_err(|e| Failure::new(Code::BadValue, format!("«{text}»: {e}")));
        checked(&self.topic)?;
        self.value.as_deref().map(checked).transpose()?;
        let cluster = Cluster::of(env, None)?;
        let brokers = cluster.open_registered(env)?;
        if let Some(key) = &self.key {
            let value = brokers.value(&self.topic, key.as_bytes(), self.linearizable);
            super::brokers::keep(env, &cluster.file.cluster(), &brokers.evidence())?;
            brokers.close();
            return self.show_value(env, key, value?.as_deref());
        }
        let header = Header { topic: self.topic.clone(), value: self.value.clone() };
        let what = match self.latest {
            true => What::Latest { header },
            false => What::Range { header, from: self.from, limit: self.limit },
        };
        let places = brokers.read(&what, self.linearizable)?;
        super::brokers::keep(env, &cluster.file.cluster(), &brokers.evidence())?;
        let receipt = self.receipt(&brokers, &places);
        brokers.close();
        if places.is_empty() {
            env.output.say(format!("nothing stands at {} from {} on", self.topic, self.from));
        }
        let refused = places.iter().all(|it| it.publication.is_none());
        for place in &places {
            self.show(env, place)?;
        }
        if let (Some(receipt), Some(file)) = (receipt?, &self.receipt) {
            super::receipt::save(file, &receipt, &cluster.file)?;
            env.output.say(format!("receipt {}", file.display()));
        }
        if refused && !places.is_empty() {
            return Err(Failure::new(Code::DeniedPolicy, format!("you may read none of {}", self.topic))
                .hint("its publisher allows others only; sealcast policy why --expr EXPRESSION --as YOU explains"));
        }
        Ok(())
    }

    /// What `--receipt` asks for.
    fn receipt(&self, brokers: &Brokers, places: &[Place]) -> Result<Option<Receipt>, Failure> {
        if self.receipt.is_none() {
            return Ok(None);
        }
        match places {
            [Place { publication: Some((entry, _)), .. }] => Ok(Some(brokers.receipt_of(entry)?)),
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
            (None, None) => env.output.say(format!("nothing is kept for «{key}» at {}", self.topic)),
        }
        env.output.object(&object)?;
        match (number, value) {
            (_, Some(value)) if self.raw && !env.output.is_json() => env.output.bytes(value),
            (Some(number), _) => env.output.line(number),
            (None, Some(value)) => env.output.line(for_terminal(value)),
            (None, None) => Ok(()),
        }
    }

    fn show(&self, env: &Env<'_>, place: &Place) -> Result<(), Failure> {
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
            let (from, size) = (hex(&entry.client.0[..4]), bytes(payload.size()));
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

    fn object(&self, place: &Place) -> Value {
        let mut object = json!({ "topic": self.topic, "value": self.value, "number": place.ps, "readable": place.publication.is_some() });
        if let Some((entry, content)) = &place.publication {
            object["at"] = json!(instant(entry.at));
            object["client"] = json!(hex(&entry.client.0));
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

/// Each body; or that they lie elsewhere.
pub(super) fn payloads(content: &Content) -> impl Iterator<Item = Payload<'_>> {
    let elsewhere = match content {
        Content::Bodies(_) => None,
        Content::Elsewhere { size, hash } => Some(Payload::Elsewhere(*size, hash)),
    };
    content.bodies().into_iter().flatten().map(|body| Payload::Here(body)).chain(elsewhere)
}
