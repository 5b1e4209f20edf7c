//! Members of MLS groups by OpenMLS, driven by lines on stdin; one answer a line on stdout.
//!
//! ```text
//! VERB MEMBER [FIELD]…   ─▶   ok [FIELD]…  |  error TEXT
//! ```
//! A member is named by a word, which is its credential. Messages, trees and hashes are in hexadecimal.
//!
//! | verb | fields | answer |
//! |---|---|---|
//! | `new` | `memory`, or `sqlite` and a file | |
//! | `drop` | | |
//! | `package` | | key package |
//! | `create` | group id | |
//! | `join` | Welcome, tree | microseconds |
//! | `external` | GroupInfo, tree | commit, microseconds |
//! | `propose` | `add` and a key package, `remove` and a leaf, or `update` | proposal |
//! | `commit` | any number of `add` and a key package, `remove` and a leaf | commit, Welcome or `-` |
//! | `apply` | | |
//! | `process` | message | microseconds, bytes that the storage encoded |
//! | `info` | | GroupInfo without tree |
//! | `tree` | | ratchet tree |
//! | `state` | | epoch, epoch authenticator, tree hash, own leaf, members |

mod member;
mod storage;

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{BufRead as _, Write as _};
use std::time::Instant;

use member::{Client, Member, Plan};

type Failure = Box<dyn Error>;

fn main() -> std::io::Result<()> {
    let mut members: BTreeMap<String, Box<dyn Member>> = BTreeMap::new();
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split(' ').collect();
        match answer(&mut members, &words) {
            Ok(fields) => writeln!(out, "ok {}", fields.join(" "))?,
            Err(why) => writeln!(out, "error {}", why.to_string().replace('\n', " "))?,
        }
        out.flush()?;
    }
    Ok(())
}

fn answer(members: &mut BTreeMap<String, Box<dyn Member>>, words: &[&str]) -> Result<Vec<String>, Failure> {
    let [verb, name, fields @ ..] = words else { return Err("VERB MEMBER [FIELD]…".into()) };
    match (*verb, fields) {
        ("new", ["memory"]) => _ = members.insert((*name).into(), Box::new(Client::new(name, storage::memory())?)),
        ("new", ["sqlite", path]) => {
            _ = members.insert((*name).into(), Box::new(Client::new(name, storage::sqlite(path)?)?));
        }
        ("drop", []) => _ = members.remove(*name),
        _ => {
            let member = members.get_mut(*name).ok_or_else(|| format!("no member {name}"))?;
            return ask(member.as_mut(), verb, fields);
        }
    }
    Ok(Vec::new())
}

fn ask(member: &mut dyn Member, verb: &str, fields: &[&str]) -> Result<Vec<String>, Failure> {
    let bytes = |field: &str| hex::decode(field);
    Ok(match (verb, fields) {
        ("package", []) => vec![hex::encode(member.package()?)],
        ("create", [id]) => {
            member.create(&bytes(id)?)?;
            Vec::new()
        }
        ("join", [welcome, tree]) => {
            let (welcome, tree) = (bytes(welcome)?, bytes(tree)?);
            let begun = Instant::now();
            member.join(&welcome, &tree)?;
            vec![micros(begun)]
        }
        ("external", [info, tree]) => {
            let (info, tree) = (bytes(info)?, bytes(tree)?);
            let begun = Instant::now();
            let commit = member.external(&info, &tree)?;
            vec![hex::encode(commit), micros(begun)]
        }
        ("propose", _) => vec![hex::encode(member.propose(&plan(fields)?)?)],
        ("commit", _) => {
            let (commit, welcome) = member.commit(&plan(fields)?)?;
            vec![hex::encode(commit), welcome.map_or("-".into(), hex::encode)]
        }
        ("apply", []) => {
            member.apply()?;
            Vec::new()
        }
        ("process", [message]) => {
            let message = bytes(message)?;
            let before = storage::encoded_bytes();
            let begun = Instant::now();
            member.process(&message)?;
            vec![micros(begun), (storage::encoded_bytes() - before).to_string()]
        }
        ("info", []) => vec![hex::encode(member.info()?)],
        ("tree", []) => vec![hex::encode(member.tree()?)],
        ("state", []) => {
            let state = member.state()?;
            let (authenticator, tree_hash) = (hex::encode(state.authenticator), hex::encode(state.tree_hash));
            let (epoch, leaf, members) = (state.epoch, state.leaf, state.members);
            vec![epoch.to_string(), authenticator, tree_hash, leaf.to_string(), members.to_string()]
        }
        _ => return Err(format!("no verb {verb} with {} fields", fields.len()).into()),
    })
}

fn plan(fields: &[&str]) -> Result<Plan, Failure> {
    let mut plan = Plan::default();
    let mut fields = fields.iter();
    while let Some(what) = fields.next() {
        let mut next = || fields.next().ok_or_else(|| format!("{what} of what?"));
        match *what {
            "add" => plan.add.push(hex::decode(next()?)?),
            "remove" => plan.remove.push(next()?.parse()?),
            "update" => {}
            _ => return Err(format!("'{what}' is neither add, remove nor update").into()),
        }
    }
    Ok(plan)
}

fn micros(since: Instant) -> String {
    since.elapsed().as_micros().to_string()
}
