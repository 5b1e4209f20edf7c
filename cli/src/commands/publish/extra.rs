//! What a publication can bring to brokers beside its message: more topics, text that they may read, and what they do
//! with the values that they keep with its first topic.

use clap::Args;
use sealcast::code::Code;
use sealcast_broker::operation::{Execute, Header, check_published};
use sealcast_crypto::identity::check_topic;
use sealcast_wire::limits;

use crate::format::safe;
use crate::hint::Failure;

/// See the module.
#[derive(Clone, Debug, Args)]
pub(super) struct Extra {
    /// One more topic, with its value if it has one; may be repeated (brokers)
    #[arg(long, value_name = "TOPIC[=VALUE]")]
    also: Vec<String>,
    /// Text for the readers that the brokers may read, too (brokers)
    #[arg(long, value_name = "TEXT")]
    associated: Option<String>,
    /// Set a value that the brokers keep with the topic, in clear; "sealcast read TOPIC --key KEY" reads it (brokers)
    #[arg(long, value_name = "KEY=VALUE", conflicts_with = "increment")]
    put: Option<String>,
    /// With --put: only if it is this now, else nothing is published
    #[arg(long, value_name = "VALUE", requires = "put", conflicts_with = "expect_none")]
    expect: Option<String>,
    /// With --put: only if there is none, else nothing is published
    #[arg(long, requires = "put")]
    expect_none: bool,
    /// Add N, or 1, to a number that the brokers keep with the topic, in clear, and say the sum (brokers)
    #[arg(long, value_name = "KEY[=N]")]
    increment: Option<String>,
    /// With --allow: let --put and --increment store their value in clear, which --allow does not protect (brokers)
    #[arg(long, requires = "allow")]
    clear: bool,
}

impl Extra {
    /// Whether there is anything.
    pub(super) fn is_any(&self) -> bool {
        let texts = [&self.associated, &self.put, &self.increment];
        !self.also.is_empty() || texts.into_iter().any(Option::is_some)
    }

    /// All topics, this one first.
    pub(super) fn headers(&self, first: Header) -> Result<Vec<Header>, Failure> {
        let mut headers = vec![first];
        for text in &self.also {
            let (topic, value) = text.split_once('=').map_or((&text[..], None), |(topic, value)| (topic, Some(value)));
            for part in [Some(topic), value].into_iter().flatten() {
                check_topic(part).map_err(|e| Failure::new(Code::BadValue, format!("--also '{text}': {e}")))?;
            }
            check_published(topic)
                .map_err(|e| Failure::new(Code::BadValue, format!("--also \"{}\": {e}", topic.escape_debug())))?;
            let header = Header { topic: topic.to_owned(), value: value.map(str::to_owned) };
            if headers.contains(&header) {
                return Err(Failure::new(Code::BadValue, format!("--also '{text}': it is published there already")));
            }
            headers.push(header);
        }
        if headers.len() > limits::HEADERS_MAX {
            let what = format!("a publication has at most {} topics, not {}", limits::HEADERS_MAX, headers.len());
            return Err(Failure::new(Code::TooLarge, what));
        }
        Ok(headers)
    }

    /// What need not be kept from brokers.
    pub(super) fn associated(&self) -> Vec<u8> {
        self.associated.as_deref().unwrap_or_default().as_bytes().to_vec()
    }

    /// The key whose value the brokers keep in clear, if there is one.
    pub(super) fn key_in_clear(&self) -> Option<&str> {
        let put = self.put.as_deref().map(|text| text.split_once('=').map_or(text, |(key, _)| key));
        put.or_else(|| self.increment.as_deref().map(|text| text.split_once('=').map_or(text, |(key, _)| key)))
    }

    /// Refuses a value that its publisher may take for sealed: `--allow` protects the message and nothing else.
    ///
    /// # Errors
    /// [`Code::Usage`] with `--put` or `--increment`, unless `--clear` was given.
    pub(super) fn check_clear(&self, is_for_some: bool) -> Result<(), Failure> {
        let option = if self.put.is_some() { "--put" } else { "--increment" };
        match self.key_in_clear() {
            Some(key) if is_for_some && !self.clear => {
                let key = safe(key);
                let what =
                    format!("{option} stores \"{key}\" in clear at the brokers; --allow protects the message only");
                Err(Failure::new(Code::Usage, what)
                    .hint("put the value into the message, or add --clear to store it in clear all the same"))
            }
            _ => Ok(()),
        }
    }

    /// What brokers do with the values that they keep.
    pub(super) fn execute(&self) -> Result<Execute, Failure> {
        if let Some(text) = &self.put {
            let Some((key, value)) = text.split_once('=') else {
                return Err(
                    Failure::new(Code::BadValue, format!("--put '{text}' says no value")).hint("--put KEY=VALUE")
                );
            };
            let (key, value) = (key.as_bytes().to_vec(), value.as_bytes().to_vec());
            let expected = self.expect.as_ref().map(|it| it.as_bytes().to_vec());
            return Ok(match expected.is_some() || self.expect_none {
                true => Execute::CompareAndSet { key, expected, value },
                false => Execute::Put { key, value },
            });
        }
        let Some(text) = &self.increment else { return Ok(Execute::Nothing) };
        let (key, by) = text.split_once('=').unwrap_or((text, "1"));
        let by = by.parse().map_err(|_| {
            Failure::new(Code::BadValue, format!("--increment '{text}': '{by}' is no whole number"))
                .hint("--increment KEY=-3")
        })?;
        Ok(Execute::Increment { key: key.as_bytes().to_vec(), by })
    }
}
