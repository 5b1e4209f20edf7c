//! Policies: which topics share a key, and what an old revocation list means (A8, A10).

use std::path::Path;
use std::time::Duration;

use sealcast::code::Code;
use sealcast::config::{FileError, Home, Overwrite, read_public};
use sealcast_crypto::identity::statement::{Compartment, OnStale, Policy, SignedPolicy};
use sealcast_crypto::identity::{Pattern, TrustAnchor};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Which, refused, tell_identities};
use crate::authority::{KeptAuthority, choose};
use crate::commands::{Env, group};
use crate::hint::Failure;
use crate::text::{duration, parse_duration};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyFile {
    #[serde(default)]
    max_crl_age: Option<String>,
    #[serde(default)]
    on_stale: Option<String>,
    #[serde(default)]
    compartment: Vec<CompartmentFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CompartmentFile {
    name: String,
    patterns: Vec<String>,
}

/// Signs the policy in a file and hands it to this machine's identities and sessions.
pub(super) fn sign(env: &Env<'_>, file: &Path, group: Option<&str>, which: &Which) -> Result<(), Failure> {
    let text = read_public(file)?;
    let draft: PolicyFile = toml::from_str(&text).map_err(|e| FileError::toml(file, &text, &e))?;
    let mut kept = KeptAuthority::open(&env.home, &choose(env, which.authority.as_deref())?)?;
    let draft = draft_of(&draft, group.unwrap_or(&kept.name)).map_err(|wrong| mistakes(file, &wrong))?;
    let signed = kept.authority.policy(&draft).map_err(refused)?;
    kept.policy = Some(signed.clone());
    kept.save(Overwrite::Replace)?;
    let told = tell_identities(env, &kept)?;
    let sessions = group::teach(env, &kept, &signed);
    let number = kept.authority.ledger().policy_number();
    env.output.object(&json!({ "policy": number, "group": draft.group, "identities": told, "sessions": sessions }))?;
    env.output.line(format!("policy {number} for {} signed: {} compartments", draft.group, draft.compartments.len()))
}

/// All mistakes of the file at once.
fn draft_of(file: &PolicyFile, group: &str) -> Result<Policy, Vec<String>> {
    let mut wrong = vec![];
    let max_crl_age_seconds = file.max_crl_age.as_ref().and_then(|text| match parse_duration(text) {
        Ok(age) => u32::try_from(age.as_secs()).ok().filter(|s| *s > 0),
        Err(e) => {
            wrong.push(format!("max_crl_age = \"{text}\": {e}"));
            None
        }
    });
    let on_stale = match file.on_stale.as_deref() {
        None | Some("warn") => OnStale::Warn,
        Some("refuse-joins") => OnStale::RefuseJoins,
        Some("stop") => OnStale::Stop,
        Some(other) => {
            wrong.push(format!("on_stale = \"{other}\": there are warn, refuse-joins, stop"));
            OnStale::Warn
        }
    };
    let mut compartments = vec![];
    for c in &file.compartment {
        let mut patterns = vec![];
        for text in &c.patterns {
            match text.parse::<Pattern>() {
                Ok(pattern) => patterns.push(pattern),
                Err(e) => wrong.push(format!("compartment {}: '{text}': {e}", c.name)),
            }
        }
        if c.patterns.is_empty() {
            wrong.push(format!("compartment {} has no patterns", c.name));
        }
        compartments.push(Compartment { name: c.name.clone(), patterns });
    }
    if !wrong.is_empty() {
        return Err(wrong);
    }
    Ok(Policy { group: group.to_owned(), number: 0, compartments, max_crl_age_seconds, on_stale })
}

fn mistakes(file: &Path, wrong: &[String]) -> Failure {
    let more = if wrong.len() > 1 { format!("{} mistakes: ", wrong.len()) } else { String::new() };
    Failure::new(Code::Content, format!("{}: {more}{}", Home::shown(file), wrong.join("; ")))
        .hint("sealcast ca policy --help shows an example")
}

/// Shows the last policy.
pub(super) fn show(env: &Env<'_>, which: &Which) -> Result<(), Failure> {
    let kept = KeptAuthority::open(&env.home, &choose(env, which.authority.as_deref())?)?;
    let Some(bytes) = &kept.policy else {
        env.output.say("no policy is signed: compartments follow from the members' sub rights");
        return env.output.object(&json!({ "policy": null }));
    };
    let (lines, object) = shown(bytes, kept.authority.anchor())?;
    env.output.object(&object)?;
    env.output.line(lines)
}

/// A signed policy in lines, and as an object.
pub(super) fn shown(bytes: &[u8], anchor: &TrustAnchor) -> Result<(String, Value), Failure> {
    let signed = SignedPolicy::verify(bytes, anchor).map_err(|e| Failure::new(Code::Signature, e))?;
    let p = signed.policy();
    let age = p.max_crl_age_seconds.map_or("any age".to_owned(), |s| duration(Duration::from_secs(s.into())));
    let mut lines =
        vec![format!("policy {} of {}: revocation lists up to {age}, then {:?}", p.number, p.group, p.on_stale)];
    let patterns = |c: &Compartment| c.patterns.iter().map(ToString::to_string).collect::<Vec<_>>();
    lines.extend(p.compartments.iter().map(|c| format!("  {}: {}", c.name, patterns(c).join(" "))));
    let compartments: Vec<Value> =
        p.compartments.iter().map(|c| json!({ "name": c.name, "patterns": patterns(c) })).collect();
    let object = json!({
        "kind": "policy", "policy": p.number, "group": p.group,
        "max_crl_age_seconds": p.max_crl_age_seconds, "compartments": compartments,
    });
    Ok((lines.join("\n"), object))
}
