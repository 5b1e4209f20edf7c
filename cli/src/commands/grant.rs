//! What a certificate shall allow and say: the options that `ca issue` and `invite` share.

use std::time::Duration;

use clap::Args;
use sealcast::code::Code;
use sealcast_crypto::identity::{Act, Attribute, Right, Rights};

use crate::hint::Failure;
use crate::text::parse_duration;

/// Rights and attributes.
#[derive(Clone, Debug, Args)]
pub(crate) struct Grant {
    #[command(flatten)]
    patterns: Patterns,
    /// What the certificate says of its holder; may be repeated
    #[arg(long = "attr", value_name = "KEY=VALUE")]
    attributes: Vec<String>,
    /// The group that the rights hold in [default: the authority's name]
    #[arg(long, value_name = "NAME")]
    pub(crate) group: Option<String>,
    /// How long the certificate is valid
    #[arg(long, value_name = "TIME", default_value = "90d", value_parser = parse_duration)]
    pub(crate) valid: Duration,
}

/// Rights as patterns of topics.
#[derive(Clone, Debug, Args)]
pub(crate) struct Patterns {
    /// May publish on topics of this pattern; may be repeated
    #[arg(long = "pub", value_name = "PATTERN")]
    publish: Vec<String>,
    /// May subscribe to topics of this pattern; may be repeated
    #[arg(long = "sub", value_name = "PATTERN")]
    subscribe: Vec<String>,
    /// May evict members whose rights lie within this pattern
    #[arg(long, value_name = "PATTERN")]
    evict: Vec<String>,
}

impl Patterns {
    /// The rights in a group, with those `beside` them; if none of them is to publish or subscribe, both on every topic.
    pub(crate) fn rights(&self, group: &str, beside: &[(Act, &[String])]) -> Result<Rights, Failure> {
        let mut rights = Rights::none();
        let own = [(Act::Publish, &self.publish[..]), (Act::Subscribe, &self.subscribe), (Act::Evict, &self.evict)];
        let given: Vec<_> = own.iter().chain(beside).collect();
        let is_of_topics = |act| matches!(act, Act::Publish | Act::Subscribe | Act::Both);
        let everything = !given.iter().any(|(act, patterns)| is_of_topics(*act) && !patterns.is_empty());
        let both = (Act::Both, &["#".to_owned()][..]);
        for (act, patterns) in given.into_iter().chain(everything.then_some(&both)) {
            for pattern in *patterns {
                let right = Right::new(group, *act, pattern);
                rights.grant(right.map_err(|e| Failure::new(Code::BadValue, format!("'{pattern}': {e}")))?);
            }
        }
        Ok(rights)
    }
}

impl Grant {
    /// The group's name.
    pub(crate) fn group<'a>(&'a self, authority: &'a str) -> &'a str {
        self.group.as_deref().unwrap_or(authority)
    }

    /// The rights; without --pub and --sub, both on every topic.
    pub(crate) fn rights(&self, group: &str) -> Result<Rights, Failure> {
        self.patterns.rights(group, &[])
    }

    /// The attributes, in the authority's name.
    pub(crate) fn attributes(&self, authority: &str) -> Result<Vec<Attribute>, Failure> {
        said(authority, &self.attributes)
    }

    /// Seconds of validity.
    pub(crate) fn valid_seconds(&self) -> i64 {
        i64::try_from(self.valid.as_secs()).unwrap_or(i64::MAX)
    }
}

/// What an issuer says, each `role=nurse`, in its name.
pub(crate) fn said(issuer: &str, attributes: &[String]) -> Result<Vec<Attribute>, Failure> {
    let one = |text: &String| {
        let wrong = |why: String| Failure::new(Code::BadValue, why).hint("--attr role=nurse");
        let (key, value) = text.split_once('=').ok_or_else(|| wrong(format!("'{text}' has no =")))?;
        Attribute::new(issuer, key, value).map_err(|e| wrong(format!("'{text}': {e}")))
    };
    attributes.iter().map(one).collect()
}

/// `pub ward3/vitals   sub ward3/#   evict #   lead`, as lists of patterns by act.
pub(crate) fn rights_shown(rights: &Rights, group: &str) -> String {
    let of = |act: Act| {
        let patterns = rights.iter().filter(|r| r.group == group && r.act == act).map(|r| r.pattern.to_string());
        let patterns: Vec<String> = patterns.collect();
        (!patterns.is_empty()).then(|| format!("{} {}", act.name(), patterns.join(" ")))
    };
    let mut all: Vec<String> =
        [Act::Both, Act::Publish, Act::Subscribe, Act::Evict].into_iter().filter_map(of).collect();
    if rights.may_lead(group) {
        all.push(Act::Lead.name().to_owned());
    }
    if all.is_empty() { "no rights".to_owned() } else { all.join("   ") }
}

/// `role=nurse ward=3`
pub(crate) fn attributes_shown(attributes: &[Attribute]) -> String {
    attributes.iter().map(|a| format!("{}={}", a.key, a.value)).collect::<Vec<_>>().join(" ")
}
