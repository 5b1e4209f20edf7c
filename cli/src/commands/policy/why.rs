//! Who may, and why not.

use std::path::PathBuf;

use clap::Args;
use sealcast::code::Code;
use sealcast::config::{KeptIdentity, name_checked};
use sealcast_broker::access::{Access, Because, Vocabulary, Why as Judged};
use sealcast_broker::expression::Location;
use sealcast_broker::operation::Header;
use sealcast_broker::operation::policy::{Act, Rule};
use sealcast_crypto::identity::{Attribute, check_topic};
use serde_json::{Value, json};

use super::file::PolicyFile;
use super::{act, attribute};
use crate::commands::Env;
use crate::commands::brokers::Which;
use crate::hint::Failure;
use crate::target;
use crate::text::now;

#[derive(Debug, Args)]
pub(super) struct Why {
    /// The policy; - is stdin [default: the one in force at the brokers]
    #[arg(conflicts_with = "cluster")]
    file: Option<PathBuf>,
    #[command(flatten)]
    which: Which,
    /// A publication's own condition; it holds beside the policy, and is judged alone where neither FILE nor --cluster
    /// is said
    #[arg(long, value_name = "EXPR", conflicts_with = "publish")]
    expr: Option<String>,
    /// The publication's topic, repeated if it has several [default: every rule is judged]
    #[arg(long = "topic", value_name = "TOPIC")]
    topics: Vec<String>,
    /// What an issuer says of the one who asks; may be repeated
    #[arg(long = "attr", value_name = "issuer:key=value")]
    attributes: Vec<String>,
    /// Take the attributes of this identity [default, for the policy in force: your identity]
    #[arg(long = "as", value_name = "IDENTITY")]
    identity: Option<String>,
    /// Judge publishing instead of reading
    #[arg(long)]
    publish: bool,
}

/// A rule, or the publication's own condition, judged.
struct Verdict {
    /// `rule 2 (ward.toml:9)`, or `the condition`.
    name: String,
    /// What it is about.
    about: String,
    /// The rule's number, and where it begins if it stands in a file.
    rule: Option<(usize, Option<Location>)>,
    why: Judged,
}

impl Why {
    pub(super) fn run(self, env: &Env<'_>) -> Result<(), Failure> {
        let file = self.file.as_deref().map(PolicyFile::load).transpose()?;
        let in_force = self.asks_brokers().then(|| super::in_force(env, &self.which)).transpose()?;
        let known = file.as_ref().and_then(|f| f.known.as_ref());
        let own = self.expr.as_deref().map(|text| condition(text, known)).transpose()?;
        let headers = self.topics.iter().map(|t| header(env, t)).collect::<Result<Vec<_>, _>>()?;
        let attributes = self.attributes(env, known)?;
        let what = if self.publish { Act::Publish } else { Act::Read };

        let mut verdicts = vec![];
        if let Some(file) = &file {
            for (number, r) in file.concerning(what, &headers) {
                verdicts.push(Verdict {
                    name: format!("rule {number} ({}:{})", file.shown, r.location.line),
                    about: format!("{} {}", act(what), r.rule.topic),
                    rule: Some((number, Some(r.location))),
                    why: r.rule.access.why(&attributes),
                });
            }
        }
        if let Some((policy, rules)) = &in_force {
            let concerns = |r: &Rule| headers.is_empty() || headers.iter().any(|h| r.topic.matches(&h.topic));
            for (number, r) in (1..).zip(&rules.rules).filter(|(_, r)| r.act == what && concerns(r)) {
                verdicts.push(Verdict {
                    name: format!("rule {number} of policy {policy}"),
                    about: format!("{} {}", act(what), r.topic),
                    rule: Some((number, None)),
                    why: r.access.why(&attributes),
                });
            }
        }
        if let Some(access) = &own {
            let (name, about) = ("the condition".to_owned(), access.to_string());
            verdicts.push(Verdict { name, about, rule: None, why: access.why(&attributes) });
        }
        let doing = doing(what, &self.topics);
        told(env, &doing, what, &self.topics, &attributes, &verdicts)?;
        match verdicts.iter().filter(|v| !v.why.holds).collect::<Vec<_>>().as_slice() {
            [] => Ok(()),
            denied => Err(refusal(&doing, denied)),
        }
    }

    /// Whether the policy in force is meant.
    fn asks_brokers(&self) -> bool {
        self.file.is_none() && (self.expr.is_none() || self.which.cluster.is_some())
    }

    fn attributes(&self, env: &Env<'_>, known: Option<&Vocabulary>) -> Result<Vec<Attribute>, Failure> {
        let mut all = vec![];
        for text in &self.attributes {
            all.push(attribute::read(text, known).map_err(bad_value)?);
        }
        match &self.identity {
            Some(name) => all.extend(of_identity(env, name)?),
            // Of whom brokers denied something.
            None if self.asks_brokers() && all.is_empty() => {
                let chosen = target::identity(env)?.map(|name| KeptIdentity::load(&env.home, &name)).transpose()?;
                all.extend(chosen.iter().flat_map(|it| it.attributes(now())));
            }
            None => {}
        }
        all.sort();
        all.dedup();
        for wrong in known.iter().flat_map(|k| all.iter().filter_map(|a| attribute::check(a, k).err())) {
            env.output.warn(wrong.hint.map_or(wrong.what.clone(), |hint| format!("{}; {hint}", wrong.what)));
        }
        Ok(all)
    }
}

/// What is said of an identity.
fn of_identity(env: &Env<'_>, name: &str) -> Result<Vec<Attribute>, Failure> {
    if !env.home.identity(name_checked(name)?).exists() {
        return Err(target::unknown_identity(name, &env.home.identities()));
    }
    let identity = KeptIdentity::load(&env.home, name)?;
    if identity.membership.is_none() && identity.vouchers.is_empty() {
        let failure = Failure::new(Code::NoIdentity, format!("identity {name} has no certificate yet"));
        return Err(failure.hint("sealcast join FILE, or say --attr"));
    }
    let attributes = identity.attributes(now());
    if attributes.is_empty() {
        env.output.warn(format!("nobody says anything of {name}: it has no attributes"));
    }
    Ok(attributes)
}

fn condition(text: &str, known: Option<&Vocabulary>) -> Result<Access, Failure> {
    let read = match known {
        Some(known) => Access::parse_known(text, known),
        None => text.parse(),
    };
    read.map_err(|e| {
        let what = format!("--expr:{}: expected {}, found {}", e.location, e.expected, e.found);
        let failure = Failure::new(Code::BadValue, what);
        failure
            .hint(e.hint.unwrap_or_else(|| "--expr 'hospitalA:role = nurse and hospitalA:ward in [3, 4]'".to_owned()))
    })
}

fn header(env: &Env<'_>, topic: &str) -> Result<Header, Failure> {
    check_topic(topic).map_err(|e| Failure::new(Code::BadValue, format!("--topic '{topic}': {e}")))?;
    if topic.split('/').any(|level| level == "+" || level == "#") {
        env.output.warn(format!("'{topic}' is taken as the name of one topic, not as a pattern"));
    }
    Ok(Header { topic: topic.to_owned(), value: None })
}

fn bad_value(wrong: attribute::Wrong) -> Failure {
    let failure = Failure::new(Code::BadValue, wrong.what);
    match wrong.hint {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

/// `reading records/derma/7 is `, or nothing where no topic is said.
fn doing(what: Act, topics: &[String]) -> String {
    let verb = if what == Act::Read { "reading" } else { "publishing" };
    if topics.is_empty() { String::new() } else { format!("{verb} {} is ", topics.join(" ")) }
}

fn told(
    env: &Env<'_>,
    doing: &str,
    what: Act,
    topics: &[String],
    attributes: &[Attribute],
    verdicts: &[Verdict],
) -> Result<(), Failure> {
    let allowed = verdicts.iter().all(|v| v.why.holds);
    let held: Vec<String> = attributes.iter().map(attribute::shown).collect();
    let rules: Vec<Value> = verdicts.iter().map(verdict_json).collect();
    env.output.object(&json!({
        "allowed": allowed, "act": act(what), "topics": topics, "attributes": held, "conditions": rules,
    }))?;
    let held = if held.is_empty() { "nobody says anything of the one who asks".to_owned() } else { held.join("  ") };
    env.output.line(format!("attributes  {held}"))?;
    for v in verdicts {
        env.output.line(format!("\n{}  {}", env.output.bold(&v.name), v.about))?;
        for line in v.why.to_string().lines() {
            let (verdict, rest) = line.split_at(3.min(line.len()));
            let verdict = if line.starts_with("yes") { env.output.good(verdict) } else { env.output.bad(verdict) };
            env.output.line(format!("{verdict}{rest}"))?;
        }
    }
    if verdicts.is_empty() {
        env.output.line("\nno rule matches: nothing is asked")?;
    }
    let verdict = if allowed { env.output.good("allowed") } else { env.output.bad("denied") };
    env.output.line(format!("\n{doing}{verdict}"))
}

fn verdict_json(v: &Verdict) -> Value {
    let (number, line) = v.rule.map(|(number, location)| (number, location.map(|it| it.line))).unzip();
    json!({ "rule": number, "line": line, "about": v.about, "holds": v.why.holds, "why": why_json(&v.why) })
}

fn why_json(why: &Judged) -> Value {
    let (because, values) = match &why.because {
        Because::Holds => ("holds", None),
        Because::Missing => ("missing", None),
        Because::Other(values) => ("other", Some(values)),
        Because::NoNumber(values) => ("no number", Some(values)),
        Because::All => ("all", None),
        Because::Any => ("any", None),
        Because::Not => ("not", None),
    };
    let parts: Vec<Value> = why.parts.iter().map(why_json).collect();
    json!({ "holds": why.holds, "condition": why.condition, "because": because, "values": values, "parts": parts })
}

/// Denied: by what, and what would be needed.
fn refusal(doing: &str, denied: &[&Verdict]) -> Failure {
    let by: Vec<&str> = denied.iter().map(|v| v.name.as_str()).collect();
    let needs: Vec<String> = denied.iter().map(|v| needs(&v.why, denied.len() > 1)).collect();
    let failure = Failure::new(Code::DeniedPolicy, format!("{doing}denied by {}", by.join(" and ")));
    failure.hint(format!("it needs {}", needs.join(" and ")))
}

/// What must become true of a false condition, in the words of conditions.
pub(super) fn needs(why: &Judged, within_all: bool) -> String {
    let false_parts = || why.parts.iter().filter(|p| !p.holds);
    match why.because {
        Because::All => {
            let alone = false_parts().count() == 1;
            false_parts().map(|p| needs(p, within_all || !alone)).collect::<Vec<_>>().join(" and ")
        }
        Because::Any => {
            let any = false_parts().map(|p| needs(p, false)).collect::<Vec<_>>().join(" or ");
            if within_all { format!("({any})") } else { any }
        }
        _ => why.condition.clone(),
    }
}
