//! Rights: what a certificate lets its holder do in a group, as URIs in its subject alternative names (A1).
//!
//! ```text
//! urn:sealcast:<group>:<pub|sub|both|evict|lead>:<topic pattern>
//! ```
//! Group and pattern are percent-encoded where a URI cannot hold their characters: `#` is `%23`. Other
//! acts, of later versions, grant nothing here; a broken URI of ours makes the certificate malformed.
//!
//! LCMsec's URIs are read too (research: LCMsec 1.2). A channel's right is `both` on that one channel; the
//! group's right, without which LCMsec's members cannot send names, grants no topic. The group's name is
//! `<ip>:<port>`, and the uid means nothing to us:
//! ```text
//! urn:lcmsec:gkexchg:<ip>:<port>:<channel>:<uid>
//! urn:lcmsec:gkexchg_g:<ip>:<port>:<uid>
//! ```

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use sealcast_wire::limits;

use super::pattern::{Pattern, PatternError};
use super::uri;

/// One right.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Right {
    /// The group that it holds in.
    pub group: String,
    /// What may be done.
    pub act: Act,
    /// With which topics.
    pub pattern: Pattern,
}

/// What a right allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Act {
    /// `pub`: write.
    Publish,
    /// `sub`: read.
    Subscribe,
    /// `both`: write and read.
    Both,
    /// `evict`: sign statements of eviction against holders of rights that the pattern covers (A4).
    Evict,
    /// `lead`: lead a group whose keys come from a centre, or stand by for it, whatever the pattern (C2).
    Lead,
}

/// All rights of a certificate; clones share them.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rights {
    rights: Arc<BTreeSet<Right>>,
}

/// Why a URI or a group's name is not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RightError {
    /// Not of the form in the module's head.
    #[error("a right is written urn:sealcast:<group>:<pub|sub|both|evict>:<topic pattern>")]
    Form,
    /// An escape is broken, or the bytes are not UTF-8.
    #[error("broken percent-encoding")]
    Encoding,
    /// The group's name: see [`check_group`].
    #[error("a group's name has 1 to 64 bytes, no control character, and is not `attr` or `key`")]
    Group,
    /// The pattern.
    #[error("topic pattern: {0}")]
    Pattern(#[from] PatternError),
}

impl Rights {
    /// No right at all.
    pub fn none() -> Rights {
        Rights::default()
    }

    /// Adds one.
    pub fn grant(&mut self, right: Right) {
        Arc::make_mut(&mut self.rights).insert(right);
    }

    /// Whether topics' messages may be written: `pub` or `both` on the topic.
    pub fn may_publish(&self, group: &str, topic: &str) -> bool {
        self.publishes(group).any(|p| p.matches(topic))
    }

    /// Whether topics' messages may be read: `sub` or `both` on the topic.
    pub fn may_subscribe(&self, group: &str, topic: &str) -> bool {
        self.subscribes(group).any(|p| p.matches(topic))
    }

    /// Whether one grant to read covers all topics of the pattern.
    pub fn reads_all(&self, group: &str, pattern: &Pattern) -> bool {
        self.subscribes(group).any(|p| p.covers(pattern))
    }

    /// Whether one grant to write covers all topics of the pattern.
    pub fn writes_all(&self, group: &str, pattern: &Pattern) -> bool {
        self.publishes(group).any(|p| p.covers(pattern))
    }

    /// Whether the holder may sign the eviction of somebody with these rights (A4): every right of the
    /// other in the group, `evict` too, lies within one of our `evict` patterns. Somebody without rights
    /// there is covered by `#` only.
    pub fn may_evict(&self, group: &str, other: &Rights) -> bool {
        let mut theirs: Vec<&Pattern> = other.of(group).map(|r| &r.pattern).collect();
        let all = Pattern::all();
        if theirs.is_empty() {
            theirs.push(&all);
        }
        theirs.iter().all(|t| self.evicts(group).any(|e| e.covers(t)))
    }

    /// Whether the holder may lead the group (C2).
    pub fn may_lead(&self, group: &str) -> bool {
        self.with(group, &[Act::Lead]).next().is_some()
    }

    /// Whether there is any right to take part in the group.
    pub fn is_member(&self, group: &str) -> bool {
        self.of(group).next().is_some()
    }

    /// Patterns of `pub` and `both`, most specific first.
    pub fn publishes<'a>(&'a self, group: &'a str) -> impl Iterator<Item = &'a Pattern> + 'a {
        self.with(group, &[Act::Publish, Act::Both])
    }

    /// Patterns of `sub` and `both`.
    pub fn subscribes<'a>(&'a self, group: &'a str) -> impl Iterator<Item = &'a Pattern> + 'a {
        self.with(group, &[Act::Subscribe, Act::Both])
    }

    /// Patterns of `evict`.
    pub fn evicts<'a>(&'a self, group: &'a str) -> impl Iterator<Item = &'a Pattern> + 'a {
        self.with(group, &[Act::Evict])
    }

    /// The names of the groups in which there is a right.
    pub fn groups(&self) -> BTreeSet<&str> {
        self.rights.iter().map(|r| r.group.as_str()).collect()
    }

    /// All of them, ordered.
    pub fn iter(&self) -> impl Iterator<Item = &Right> {
        self.rights.iter()
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.rights.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.rights.is_empty()
    }

    fn of<'a>(&'a self, group: &'a str) -> impl Iterator<Item = &'a Right> + 'a {
        self.rights.iter().filter(move |r| r.group == group)
    }

    fn with<'a>(&'a self, group: &'a str, acts: &'static [Act]) -> impl Iterator<Item = &'a Pattern> + 'a {
        self.of(group).filter(|r| acts.contains(&r.act)).map(|r| &r.pattern)
    }
}

impl FromIterator<Right> for Rights {
    fn from_iter<I: IntoIterator<Item = Right>>(rights: I) -> Rights {
        Rights { rights: Arc::new(rights.into_iter().collect()) }
    }
}

impl Right {
    /// A right from its parts as people write them.
    ///
    /// # Errors
    /// The group's name or the pattern is not valid.
    pub fn new(group: &str, act: Act, pattern: &str) -> Result<Right, RightError> {
        check_group(group)?;
        Ok(Right { group: group.to_owned(), act, pattern: pattern.parse()? })
    }

    /// Reads a URI. `Ok(None)`: not one of ours or of LCMsec's, or one that grants nothing.
    ///
    /// # Errors
    /// One of ours that is broken: whoever issued it meant something else than we would do.
    pub fn from_uri(text: &str) -> Result<Option<Right>, RightError> {
        if let Some(rest) = text.strip_prefix(PREFIX) {
            Right::from_sealcast(rest)
        } else if let Some(rest) = text.strip_prefix(LCMSEC_CHANNEL) {
            Right::from_lcmsec(rest).map(Some)
        } else {
            Ok(None)
        }
    }

    fn from_sealcast(rest: &str) -> Result<Option<Right>, RightError> {
        let (group, rest) = rest.split_once(':').ok_or(RightError::Form)?;
        if RESERVED.contains(&group) {
            return Ok(None);
        }
        let (act, pattern) = rest.split_once(':').ok_or(RightError::Form)?;
        let group = uri::decode(group).ok_or(RightError::Encoding)?;
        let pattern = uri::decode(pattern).ok_or(RightError::Encoding)?;
        Act::from_name(act).map(|act| Right::new(&group, act, &pattern)).transpose()
    }

    /// `<ip>:<port>:<channel>:<uid>`; a channel may hold colons itself, so it is what the others leave.
    fn from_lcmsec(rest: &str) -> Result<Right, RightError> {
        let mut parts = rest.splitn(3, ':');
        let (Some(ip), Some(port), Some(rest)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(RightError::Form);
        };
        let (channel, uid) = rest.rsplit_once(':').ok_or(RightError::Form)?;
        let numeric = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if !numeric(uid) || !numeric(port) {
            return Err(RightError::Form);
        }
        let group = format!("{ip}:{port}");
        check_group(&group)?;
        Ok(Right { group, act: Act::Both, pattern: Pattern::exact(channel)? })
    }
}

/// The URI.
impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let group = uri::encode(&self.group, "");
        let pattern = uri::encode(&self.pattern.to_string(), PATTERN_CHARACTERS);
        write!(f, "{PREFIX}{group}:{}:{pattern}", self.act.name())
    }
}

impl Act {
    /// As in the URI.
    pub fn name(self) -> &'static str {
        match self {
            Act::Publish => "pub",
            Act::Subscribe => "sub",
            Act::Both => "both",
            Act::Evict => "evict",
            Act::Lead => "lead",
        }
    }

    /// From the URI's word.
    pub fn from_name(name: &str) -> Option<Act> {
        [Act::Publish, Act::Subscribe, Act::Both, Act::Evict, Act::Lead].into_iter().find(|a| a.name() == name)
    }
}

/// Whether a text can name a group: 1 to [`limits::GROUP_BYTES_MAX`] bytes, no control characters, and not
/// one of the words that URIs use in a group's place.
///
/// # Errors
/// [`RightError::Group`].
pub fn check_group(name: &str) -> Result<(), RightError> {
    let fits = (1..=limits::GROUP_BYTES_MAX).contains(&name.len());
    if fits && !name.chars().any(char::is_control) && !RESERVED.contains(&name) {
        Ok(())
    } else {
        Err(RightError::Group)
    }
}

/// What all our URIs begin with.
pub(super) const PREFIX: &str = "urn:sealcast:";
/// Words in the group's place that are no groups: attributes, and the holder's sealing key.
const RESERVED: [&str; 2] = ["attr", "key"];
const LCMSEC_CHANNEL: &str = "urn:lcmsec:gkexchg:";
/// What RFC 3986 lets stand in a path (`pchar` and the slash), beside the unreserved.
const PATTERN_CHARACTERS: &str = "!$&'()*+,;=:@/";

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn right(uri: &str) -> Right {
        Right::from_uri(uri).expect("a valid URI").expect("a right")
    }

    fn rights(uris: &[&str]) -> Rights {
        uris.iter().map(|u| right(u)).collect()
    }

    #[test]
    fn rule_a1_rights_hold_per_direction_group_and_topic() {
        let r =
            rights(&["urn:sealcast:ward3:pub:pose/%2B", "urn:sealcast:ward3:sub:cmd/%23", "urn:sealcast:w4:both:#"]);
        assert!(r.may_publish("ward3", "pose/x") && !r.may_subscribe("ward3", "pose/x"));
        assert!(r.may_subscribe("ward3", "cmd/x/y") && !r.may_publish("ward3", "cmd/x/y"));
        assert!(r.may_publish("w4", "anything") && r.may_subscribe("w4", "anything"));
        assert!(!r.may_publish("ward", "pose/x") && !r.is_member("ward"));
        assert!(r.reads_all("ward3", &"cmd/a/#".parse().expect("valid")));
        assert!(!r.reads_all("ward3", &"#".parse().expect("valid")));
    }

    #[test]
    fn rule_a4_an_evict_right_reaches_as_far_as_its_pattern() {
        let head = rights(&["urn:sealcast:g:evict:ward3/%23"]);
        let chief = rights(&["urn:sealcast:g:evict:%23"]);
        let nurse = rights(&["urn:sealcast:g:pub:ward3/vitals", "urn:sealcast:g:sub:ward3/+"]);
        let visitor = rights(&["urn:sealcast:g:sub:ward3/+", "urn:sealcast:g:sub:cafeteria"]);
        let elsewhere = rights(&["urn:sealcast:other:both:%23"]);
        assert!(head.may_evict("g", &nurse) && !nurse.may_evict("g", &head));
        assert!(!head.may_evict("g", &visitor) && chief.may_evict("g", &visitor));
        assert!(!head.may_evict("g", &chief) && chief.may_evict("g", &head));
        assert!(!head.may_evict("g", &elsewhere) && chief.may_evict("g", &elsewhere));
        assert!(!chief.may_evict("other", &elsewhere));
    }

    #[test]
    fn lcmsec_uris_are_read() {
        let r = right("urn:lcmsec:gkexchg:239.255.76.67:7667:EXAMPLE:4");
        assert_eq!(r, Right::new("239.255.76.67:7667", Act::Both, "EXAMPLE").expect("valid"));
        assert_eq!(right("urn:lcmsec:gkexchg:1.2.3.4:5:a:b+:4").pattern, Pattern::exact("a:b+").expect("valid"));
        assert_eq!(Right::from_uri("urn:lcmsec:gkexchg_g:239.255.76.67:7667:4"), Ok(None));
        // LCMsec throws on these (its parser cuts strings at colons).
        for broken in ["1.2.3.4:5:a", "1.2.3.4:5:a:x", "1.2.3.4:p:a:1", "1.2.3.4:5::1", ""] {
            let uri = format!("urn:lcmsec:gkexchg:{broken}");
            assert!(Right::from_uri(&uri).is_err(), "{uri}");
        }
    }

    #[test]
    fn foreign_uris_grant_nothing_and_broken_ones_are_refused() {
        for other in ["https://example.org", "urn:sealcast:attr:ca:role=nurse", "urn:sealcast:key:00", "urn:uuid:1"] {
            assert_eq!(Right::from_uri(other), Ok(None), "{other}");
        }
        assert_eq!(Right::from_uri("urn:sealcast:g:administer:#"), Ok(None), "an act of a later version");
        for (broken, why) in [
            ("urn:sealcast:", RightError::Form),
            ("urn:sealcast:g:pub", RightError::Form),
            ("urn:sealcast::pub:a", RightError::Group),
            ("urn:sealcast:%61ttr:pub:a", RightError::Group),
            ("urn:sealcast:g%0A:pub:a", RightError::Group),
            ("urn:sealcast:g:pub:%2", RightError::Encoding),
            ("urn:sealcast:g:pub:", RightError::Pattern(PatternError::Empty)),
            ("urn:sealcast:g:pub:a%23", RightError::Pattern(PatternError::Wildcard(1))),
        ] {
            assert_eq!(Right::from_uri(broken), Err(why), "{broken}");
        }
    }

    #[test]
    fn a_uri_holds_what_uris_may_hold() {
        let r = Right::new("10.0.0.1:7 ä", Act::Subscribe, "a:b/+/\\#/#").expect("valid");
        assert_eq!(r.to_string(), "urn:sealcast:10.0.0.1%3A7%20%C3%A4:sub:a:b/+/%5C%23/%23");
        assert_eq!(right(&r.to_string()), r);
    }

    proptest! {
        #[test]
        fn parsing_never_panics(tail in "\\PC{0,40}|[a-c:%/+#0-9]{0,20}") {
            for prefix in ["", PREFIX, LCMSEC_CHANNEL] {
                if let Ok(Some(r)) = Right::from_uri(&format!("{prefix}{tail}")) {
                    prop_assert_eq!(right(&r.to_string()), r);
                }
            }
        }
    }
}
