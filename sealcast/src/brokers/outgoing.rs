//! Which limit a publication is over, for its publisher.

use sealcast_broker::cluster_file::Suite;
use sealcast_broker::operation::{Body, Execute, Publication, check_published};
use sealcast_crypto::group::{P256, Ristretto255};
use sealcast_crypto::tdh2::Ciphertext;
use sealcast_keys::threshold::sealed::together_overhead;
use sealcast_wire::limits;

use super::{Access, Header, Outgoing};
use crate::code::Code;
use crate::error::Error;

impl Outgoing {
    /// One message at one topic, for every reader whom the global policies let.
    pub fn new(topic: impl Into<String>, body: impl Into<Vec<u8>>) -> Outgoing {
        Outgoing {
            headers: vec![Header { topic: topic.into(), value: None }],
            associated: Vec::new(),
            access: None,
            execute: Execute::Nothing,
            body: body.into(),
        }
    }

    /// The same for those alone whose attributes satisfy this: `"exchange:desk = fx".parse()?`.
    pub fn readable_by(mut self, access: Access) -> Outgoing {
        self.access = Some(access);
        self
    }

    /// The publication in clear, with this body.
    pub(super) fn publication(&self, body: Vec<u8>) -> Publication {
        Publication {
            headers: self.headers.clone(),
            associated: self.associated.clone(),
            access: self.access.clone(),
            execute: self.execute.clone(),
            policy: 0,
            epoch: 0,
            body: Body::Plain(body),
        }
    }

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

    /// Whether all of it is what brokers read, as far as can be told before it is sealed.
    pub(super) fn keeps_to_limits(&self, more: &[&[u8]]) -> bool {
        self.bytes(more) <= limits::BODY_BYTES_MAX && self.over().is_none() && !self.headers.is_empty()
    }

    fn bytes(&self, more: &[&[u8]]) -> usize {
        self.body.len() + more.iter().map(|it| it.len()).sum::<usize>()
    }

    /// Names the limit that it is over, if it is sealed with `more` bodies in a group of this suite, or not sealed.
    pub(super) fn too_large(&self, more: &[&[u8]], sealed: Option<Suite>) -> Error {
        let own = match sealed {
            None => 0,
            Some(Suite::Ristretto255) => together_overhead(Ciphertext::<Ristretto255>::OVERHEAD, 1 + more.len()),
            Some(Suite::P256) => together_overhead(Ciphertext::<P256>::OVERHEAD, 1 + more.len()),
        };
        let (body, room) = (self.bytes(more), limits::BODY_BYTES_MAX.saturating_sub(own));
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

#[cfg(test)]
mod tests {
    use sealcast_broker::operation::Header;

    use super::*;

    type G = Ristretto255;

    #[test]
    fn a_publication_over_a_limit_is_told_which_one() {
        let header = |topic: &str| Header { topic: topic.into(), value: None };
        let good = || Outgoing {
            headers: vec![header("t")],
            associated: Vec::new(),
            access: None,
            execute: Execute::Nothing,
            body: Vec::new(),
        };
        let told = |it: &Outgoing, more: &[&[u8]]| {
            let why = it.too_large(more, Some(Suite::Ristretto255));
            assert!(why.code() == Code::TooLarge && why.hint().is_some(), "{why}");
            why.message().to_owned()
        };
        let room = limits::BODY_BYTES_MAX - together_overhead(Ciphertext::<G>::OVERHEAD, 1);
        let body = |bytes: usize| Outgoing { body: vec![0; bytes], ..good() };
        let expected = format!("the message has {} bytes, and a publication holds {room}", room + 1);
        assert_eq!(told(&body(room + 1), &[]), expected);
        assert!(told(&body(room), &[b""]).contains(&format!("holds {}", room - 4)), "with the length of another one");
        assert!(
            told(&body(room), &[]).contains("with its topics, condition and message"),
            "it fits, so it was something else"
        );
        let topics = Outgoing { headers: vec![header("t"); limits::HEADERS_MAX + 1], ..good() };
        assert!(told(&topics, &[]).contains("has 17 topics, and it may have 16"), "{}", told(&topics, &[]));
        let put = |key: usize, value: usize| Execute::Put { key: vec![0; key], value: vec![0; value] };
        let key = Outgoing { execute: put(limits::VALUE_KEY_BYTES_MAX + 1, 1), ..good() };
        let value = Outgoing { execute: put(1, limits::VALUE_BYTES_MAX + 1), ..good() };
        assert!(told(&key, &[]).contains("bytes of a key") && told(&value, &[]).contains("bytes of a value"));
        for it in [&topics, &key, &value, &body(limits::BODY_BYTES_MAX + 1)] {
            assert!(!it.keeps_to_limits(&[]));
        }
        assert!(good().keeps_to_limits(&[]) && !body(limits::BODY_BYTES_MAX).keeps_to_limits(&[b"1"]));
        let odd = Outgoing { headers: vec![header("fine"), header("a/#")], ..good() };
        assert!(odd.bad_topic().message().starts_with("\"a/#\": "), "{}", odd.bad_topic());
    }
}
