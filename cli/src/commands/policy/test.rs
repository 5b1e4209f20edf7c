//! The cases that are written in a policy file.

use std::collections::BTreeSet;
use std::path::Path;

use sealcast::code::Code;
use serde_json::json;

use super::file::{Case, PolicyFile};
use super::{act, attribute, count};
use crate::commands::Env;
use crate::hint::Failure;
use crate::text::{row, table};

/// What became of a case.
struct Ran<'a> {
    case: &'a Case,
    allowed: bool,
    /// The rules that decided: if denied, those that deny it; else all that concern it.
    rules: Vec<usize>,
}

pub(super) fn test(env: &Env<'_>, path: &Path) -> Result<(), Failure> {
    let file = PolicyFile::load(path)?;
    if file.cases.is_empty() {
        let failure = Failure::new(Code::Content, format!("{} has no [[test]] to run", file.shown));
        return Err(failure.hint("sealcast policy --help shows one"));
    }
    let all: Vec<Ran<'_>> = file.cases.iter().map(|case| run(&file, case)).collect();
    let mut rows = vec![row(["", "CASE", "ACT", "TOPIC", "EXPECTED", "IS", "BY"])];
    for ran in &all {
        let good = ran.allowed == ran.case.allow;
        let topics: Vec<&str> = ran.case.headers.iter().map(|h| h.topic.as_str()).collect();
        let attributes: Vec<String> = ran.case.attributes.iter().map(attribute::shown).collect();
        env.output.object(&json!({
            "case": ran.case.name, "line": ran.case.location.line, "act": act(ran.case.act), "topics": topics,
            "attributes": attributes, "expected": verdict(ran.case.allow), "is": verdict(ran.allowed),
            "rules": ran.rules, "good": good,
        }))?;
        let mark = if good { env.output.good("ok") } else { env.output.bad("x") };
        let by: Vec<String> = ran.rules.iter().map(|n| format!("{n}")).collect();
        let by = match by.as_slice() {
            [] => "no rule".to_owned(),
            [one] => format!("rule {one}"),
            many => format!("rules {}", many.join(" ")),
        };
        rows.push(vec![
            mark,
            ran.case.name.clone(),
            act(ran.case.act).to_owned(),
            topics.join(" "),
            verdict(ran.case.allow).to_owned(),
            verdict(ran.allowed).to_owned(),
            by,
        ]);
    }
    env.output.line(table(&rows))?;
    let failed: Vec<&Ran<'_>> = all.iter().filter(|r| r.allowed != r.case.allow).collect();
    let Some(first) = failed.first() else {
        untested(env, &file, &all);
        env.output.say(format!("{}: {} passed", file.shown, count(all.len(), "case")));
        return Ok(());
    };
    let what =
        format!("{}:{}: '{}' gives {}", file.shown, first.case.location.line, first.case.name, verdict(first.allowed));
    let more = if failed.len() > 1 { format!(", and {} more fail", failed.len() - 1) } else { String::new() };
    let what = format!("{what}, expected {}{more}", verdict(first.case.allow));
    Err(Failure::new(Code::PolicyTest, what).hint(explanation(path, first.case)))
}

fn run<'a>(file: &PolicyFile, case: &'a Case) -> Ran<'a> {
    let (mut all, mut against) = (vec![], vec![]);
    for (number, r) in file.concerning(case.act, &case.headers) {
        all.push(number);
        if !r.rule.access.allows(&case.attributes) {
            against.push(number);
        }
    }
    let allowed = against.is_empty();
    Ran { case, allowed, rules: if allowed { all } else { against } }
}

/// Names the rules that no case would miss: a rule is tested if some case is denied by it.
fn untested(env: &Env<'_>, file: &PolicyFile, all: &[Ran<'_>]) {
    let deny: BTreeSet<usize> = all.iter().filter(|r| !r.allowed).flat_map(|r| r.rules.iter().copied()).collect();
    for (number, r) in (1..).zip(&file.rules).filter(|(n, _)| !deny.contains(n)) {
        let at = format!("rule {number} ({}:{}, {} {})", file.shown, r.location.line, act(r.rule.act), r.rule.topic);
        env.output.warn(format!("no case is denied by {at}: without it all would pass as well"));
    }
}

/// The command that explains a case.
fn explanation(path: &Path, case: &Case) -> String {
    let mut words = vec!["sealcast policy why".to_owned(), word(&path.display().to_string())];
    words.extend(case.headers.iter().map(|h| format!("--topic {}", word(&h.topic))));
    words.extend(case.attributes.iter().map(|a| format!("--attr {}", word(&attribute::shown(a)))));
    if act(case.act) == "publish" {
        words.push("--publish".to_owned());
    }
    words.join(" ")
}

/// A word for the shell, in quotes where it needs them.
fn word(text: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "_-./:=@+%,".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

fn verdict(allowed: bool) -> &'static str {
    if allowed { "allow" } else { "deny" }
}
