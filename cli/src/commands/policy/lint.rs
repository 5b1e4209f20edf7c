//! All that is wrong with a policy file, and what its author hardly meant.

use std::path::Path;

use sealcast::code::Code;
use sealcast_broker::access::{Access, Finding, Vocabulary, lint as findings};
use sealcast_broker::expression::Location;
use serde_json::{Value, json};

use super::file::{LocatedRule, Mistake, PolicyFile};
use super::{act, count};
use crate::commands::Env;
use crate::hint::Failure;

pub(super) fn lint(env: &Env<'_>, path: &Path, strict: bool) -> Result<(), Failure> {
    let (file, mistakes) = PolicyFile::read(path)?;
    // What could not be read may be what makes the rest odd.
    let odd = if mistakes.is_empty() { odd(&file) } else { vec![] };
    let told = |level: &'static str, m: &Mistake| json!({ "level": level, "line": m.location.line, "column": m.location.column, "message": m.what, "hint": m.hint });
    let all: Vec<Value> =
        mistakes.iter().map(|m| told("error", m)).chain(odd.iter().map(|m| told("warning", m))).collect();
    env.output.object(&json!({
        "file": file.shown, "policy": file.number, "rules": file.rules.len(), "tests": file.cases.len(),
        "errors": mistakes.len(), "warnings": odd.len(), "found": all,
    }))?;
    let error = env.output.bad("error");
    let levels = mistakes.iter().map(|m| (error.as_str(), m)).chain(odd.iter().map(|m| ("warning", m)));
    for (level, m) in levels {
        env.output.line(format!("{}:{}: {level}: {}", file.shown, m.location, m.what))?;
        m.hint.iter().try_for_each(|hint| env.output.line(format!("    hint: {hint}")))?;
    }
    let failed = |n, what| Err(Failure::new(Code::Content, format!("{}: {}", file.shown, count(n, what))));
    match (mistakes.len(), odd.len()) {
        (0, 0) => {}
        (0, n) if strict => return failed(n, "warning"),
        (0, _) => return Ok(()),
        (n, _) => return failed(n, "mistake"),
    }
    env.output.line(format!(
        "{}: good: policy {} with {} and {}",
        file.shown,
        file.number,
        count(file.rules.len(), "rule"),
        count(file.cases.len(), "test")
    ))
}

/// What is no mistake but hardly meant, in the order of the file.
fn odd(file: &PolicyFile) -> Vec<Mistake> {
    let top = Location { line: 1, column: 1 };
    let mut found = vec![];
    let mut say = |location, what: String, hint: Option<&str>| {
        found.push(Mistake { location, what, hint: hint.map(str::to_owned) });
    };
    if file.known.is_none() {
        let hint = "[issuers], then a line for each: hospitalA = [\"role\", \"ward\"]";
        say(top, "no issuers are named, so a misspelt attribute goes unnoticed".into(), Some(hint));
    }
    if file.rules.is_empty() {
        say(top, "there is no rule: every registered client may read and publish everything".into(), Some("[[rule]]"));
    }
    for r in &file.rules {
        for finding in of_one(&r.rule.access) {
            let part = match &finding {
                Finding::AlwaysFalse { part }
                | Finding::AlwaysTrue { part }
                | Finding::Shadowed { part, .. }
                | Finding::Redundant { part, .. }
                | Finding::TwoValues { part, .. }
                | Finding::ProvedUnregistered { part } => part,
                Finding::UnknownIssuer { .. } | Finding::UnknownAttribute { .. } => continue,
            };
            say(file.location_of(r, part), finding.to_string(), None);
        }
    }
    for (i, later) in file.rules.iter().enumerate() {
        for earlier in file.rules[..i].iter().filter(|e| e.rule.act == later.rule.act) {
            if earlier.rule == later.rule {
                say(later.location, format!("the same rule stands in line {} already", earlier.location.line), None);
            } else if let Some(who) = who_meets_both(earlier, later) {
                let topics = if later.rule.topic.covers(&earlier.rule.topic) { earlier } else { later };
                let (line, topic) = (earlier.location.line, &topics.rule.topic);
                let what = format!("with the rule of line {line}, {who} may {} {topic}", act(later.rule.act));
                let hint = "all rules that match a topic must hold: join alternatives with `or` in one rule";
                say(later.location, what, Some(hint));
            }
        }
    }
    found.sort_by_key(|m| m.location);
    found
}

/// Findings about a condition by itself.
fn of_one(access: &Access) -> Vec<Finding> {
    findings(access, &Vocabulary::new(access.atoms().into_iter().map(|c| c.name.clone())))
}

/// If topics of one rule fall under the other, too, and hardly anybody meets both conditions, though each can
/// be met: who does.
fn who_meets_both(a: &LocatedRule, b: &LocatedRule) -> Option<&'static str> {
    let nested = a.rule.topic.covers(&b.rule.topic) || b.rule.topic.covers(&a.rule.topic);
    if !nested {
        return None;
    }
    let alone = [&a.rule.access, &b.rule.access].map(of_one);
    let joined = of_one(&Access::all(vec![a.rule.access.clone(), b.rule.access.clone()]));
    let of_both_only = |is: fn(&Finding) -> bool| {
        let count = |all: &Vec<Finding>| all.iter().filter(|f| is(f)).count();
        count(&joined) > alone.iter().map(count).sum()
    };
    if of_both_only(|f| matches!(f, Finding::AlwaysFalse { .. })) {
        Some("nobody")
    } else if of_both_only(|f| matches!(f, Finding::TwoValues { .. })) {
        Some("only who holds two values of an attribute")
    } else {
        None
    }
}
