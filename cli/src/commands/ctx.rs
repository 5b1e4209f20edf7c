//! `sealcast ctx`: names for 'this group, by this URL, as this identity'.

use clap::{Args, Subcommand};
use sealcast::code::Code;
use sealcast::config::{Context, Contexts, name_checked};
use sealcast::url::{TransportAddress, Url};
use serde_json::json;

use super::Env;
use crate::hint::{Failure, nearest};
use crate::text::{row, table};

/// Contexts: a name for a group's URL and your identity in it
#[derive(Debug, Args)]
#[command(
    disable_help_subcommand = true,
    after_help = "\
Examples:
  sealcast ctx add ward --url 'udpm://239.255.76.67:7667?ttl=1' --id alice --select
  sealcast ctx ls
  sealcast ctx select ward
  sealcast ctx -                back to the one before, as 'cd -' does"
)]
pub(crate) struct Ctx {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Add a context: --url says where, --id as whom
    Add {
        /// Its name
        name: String,
        /// Use it from now on
        #[arg(long)]
        select: bool,
        /// Replace a context of this name
        #[arg(long)]
        force: bool,
    },
    /// List all contexts; * is the one in use
    Ls,
    /// Use this context from now on; '-' is the one before
    Select {
        /// Its name, or -
        #[arg(allow_hyphen_values = true)]
        name: String,
    },
    /// Forget a context; its identity and keys stay
    Rm {
        /// Its name
        name: String,
    },
    /// Go back to the context used before
    #[command(name = "-")]
    Back,
}

impl Ctx {
    pub(crate) fn run(self, env: &Env<'_>) -> Result<(), Failure> {
        match self.verb {
            Verb::Add { name, select, force } => add(env, &name, select, force),
            Verb::Ls => ls(env),
            Verb::Select { name } if name == "-" => back(env),
            Verb::Select { name } => select(env, &name),
            Verb::Rm { name } => remove(env, &name),
            Verb::Back => back(env),
        }
    }
}

fn add(env: &Env<'_>, name: &str, select: bool, force: bool) -> Result<(), Failure> {
    name_checked(name)?;
    let Some(url) = env.global.url.clone() else {
        let failure = Failure::new(Code::NoUrl, format!("context {name} needs a URL"));
        return Err(failure.hint(format!("sealcast ctx add {name} --url '{EXAMPLE_URL}'")));
    };
    let parsed = Url::parse(&url)?;
    if let TransportAddress::Quorum(path) = &parsed.address
        && !path.exists()
    {
        env.output.warn(format!("there is no cluster file {} yet", path.display()));
    }
    let url = wherever_we_are(&url, &parsed)?;
    let id = env.global.id.clone();
    if let Some(id) = &id
        && !env.home.identity(name_checked(id)?).exists()
    {
        env.output.warn(format!("there is no identity {id} yet; make it with: sealcast id new {id}"));
    }
    let context = Context { url, id };
    let selected = Contexts::update(&env.home, |all| {
        if all.context.contains_key(name) && !force {
            let failure = Failure::new(Code::Exists, format!("context {name} exists already"));
            return Err(failure.hint("another name, or --force to replace it"));
        }
        all.context.insert(name.to_owned(), context.clone());
        // The first one is in use at once: nobody adds a context in order not to use it.
        if select || all.selected.is_none() {
            all.select(name);
        }
        Ok(all.selected.as_deref() == Some(name))
    })?;
    told(env, name, &context, selected)
}

/// A URL that names a file of this folder means the same one from everywhere.
fn wherever_we_are(text: &str, url: &Url) -> Result<String, Failure> {
    let TransportAddress::Quorum(path) = &url.address else { return Ok(text.to_owned()) };
    let absolute = std::path::absolute(path).map_err(|e| Failure::system(path.display(), &e))?;
    Ok(text.replacen(&path.display().to_string(), &absolute.display().to_string(), 1))
}

fn ls(env: &Env<'_>) -> Result<(), Failure> {
    let all = Contexts::load(&env.home)?;
    let chosen = |name: &str| all.selected.as_deref() == Some(name);
    for (name, c) in &all.context {
        env.output.object(&json!({ "context": name, "url": c.url, "id": c.id, "selected": chosen(name) }))?;
    }
    if all.context.is_empty() {
        env.output.say("no contexts yet; sealcast init NAME makes one, or sealcast ctx add NAME --url URL");
        return Ok(());
    }
    let mut rows = vec![row(["", "CONTEXT", "IDENTITY", "URL"])];
    for (name, c) in &all.context {
        let mark = if chosen(name) { "*" } else { "" };
        rows.push(row([mark, name, c.id.as_deref().unwrap_or("-"), &c.url]));
    }
    env.output.line(table(&rows))
}

fn select(env: &Env<'_>, name: &str) -> Result<(), Failure> {
    let context = Contexts::update(&env.home, |all| {
        if !all.select(name) {
            return Err(unknown(all, name));
        }
        Ok(all.context[name].clone())
    })?;
    told(env, name, &context, true)
}

fn back(env: &Env<'_>) -> Result<(), Failure> {
    let (name, context) = Contexts::update(&env.home, |all| {
        let Some(name) = all.previous.clone() else {
            let failure = Failure::new(Code::Missing, "no other context was used before");
            return Err(failure.hint("sealcast ctx ls"));
        };
        if !all.select(&name) {
            return Err(unknown(all, &name));
        }
        let context = all.context[&name].clone();
        Ok((name, context))
    })?;
    told(env, &name, &context, true)
}

fn remove(env: &Env<'_>, name: &str) -> Result<(), Failure> {
    Contexts::update(&env.home, |all| {
        if all.context.remove(name).is_none() {
            return Err(unknown(all, name));
        }
        for place in [&mut all.selected, &mut all.previous] {
            if place.as_deref() == Some(name) {
                *place = None;
            }
        }
        Ok(())
    })?;
    env.output.object(&json!({ "context": name, "removed": true }))?;
    env.output.line(format!("context   {name}  removed"))
}

fn told(env: &Env<'_>, name: &str, c: &Context, selected: bool) -> Result<(), Failure> {
    env.output.object(&json!({ "context": name, "url": c.url, "id": c.id, "selected": selected }))?;
    let id = c.id.as_ref().map(|id| format!("   as {id}")).unwrap_or_default();
    let mark = if selected { "   selected" } else { "" };
    env.output.line(format!("context   {name}  {}{id}{mark}", c.url))
}

/// The error about a context that is not there, with the nearest name.
pub(crate) fn unknown(all: &Contexts, name: &str) -> Failure {
    let failure = Failure::new(Code::Missing, format!("there is no context '{name}'"));
    match nearest(name, all.context.keys().map(String::as_str)) {
        Some(better) => failure.hint(format!("did you mean '{better}'?")),
        None => failure.hint("sealcast ctx ls"),
    }
}

const EXAMPLE_URL: &str = "udpm://239.255.76.67:7667?ttl=1";
