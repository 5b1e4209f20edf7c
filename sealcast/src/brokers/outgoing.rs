//! Which limit a publication is over, for its publisher.

use sealcast_broker::operation::{Execute, check_published};
use sealcast_wire::limits;

use super::Outgoing;
use crate::code::Code;
use crate::error::Error;

impl Outgoing {
    /// The first limit that it is over in anything but its body: what it is of, how much it has, and how much it may have.
    fn over(&self) -> Option<(&'static str, usize, usize)> {
        let (key, value): (&[u8], &[u8]) = match &self.execute {
            Execute::Nothing => (&[], &[]),
            Execute::Put { key, value } | Execute::CompareAndSet { key, value, .. } => (key, value),
            Execute::Increment { key, .. } => (key, &[]),
        };
        let expected = match &self.execute {
            Execute::CompareAndSet { expected: Some(expected), .. } => expected.len(),
            _ => 0,
        };
        let parts = [
            ("topics", self.headers.len(), limits::HEADERS_MAX),
            ("bytes of associated text", self.associated.len(), limits::ASSOCIATED_BYTES_MAX),
            ("bytes of a key", key.len(), limits::VALUE_KEY_BYTES_MAX),
            ("bytes of a value", value.len(), limits::VALUE_BYTES_MAX),
            ("bytes of an expected value", expected, limits::VALUE_BYTES_MAX),
        ];
        parts.into_iter().find(|(_, has, most)| has > most)
    }

    /// Whether all of it but its body is what brokers read.
    pub(super) fn keeps_to_limits(&self) -> bool {
        self.over().is_none() && !self.headers.is_empty()
    }

    /// Names the limit that it is over, if a body has `room` bytes; `more` bodies are sealed with its own.
    pub(super) fn too_large(&self, more: &[&[u8]], room: usize) -> Error {
        let body = self.body.len() + more.iter().map(|it| it.len()).sum::<usize>();
        if self.headers.is_empty() {
            return Error::new(Code::BadValue, "a publication has a topic");
        }
        if let Some((what, has, most)) = self.over() {
            let what = format!("the publication has {has} {what}, and it may have {most}");
            return Error::new(Code::TooLarge, what).with_hint("put what is large into the message");
        }
        let (what, hint) = match body > room {
            true => (format!("the message has {body} bytes, and a publication holds {room}"), SPLIT),
            false => (
                format!(
                    "the publication with its topics, condition and message has more than {} bytes",
                    limits::OPERATION_BYTES_MAX
                ),
                "fewer topics, or a shorter condition",
            ),
        };
        Error::new(Code::TooLarge, what).with_hint(hint)
    }

    /// Says at which topic nothing can be published, and why.
    pub(super) fn bad_topic(&self) -> Error {
        let of = |topic: &str| Some((topic.to_owned(), check_published(topic).err()?));
        match self.headers.iter().find_map(|it| of(&it.topic)) {
            Some((topic, why)) => Error::new(Code::BadValue, format!("\"{}\": {why}", topic.escape_debug())),
            None => Error::new(Code::BadValue, "nothing can be published at this topic"),
        }
    }
}

const SPLIT: &str =
    "split -b 1000K FILE PART- makes parts that fit; publish each, or where the file lies and its SHA-256";
