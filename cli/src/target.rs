//! Where and as whom: URL and identity from options, environment and context, in this order.

use std::env;

use sealcast::code::Code;
use sealcast::config::{Context, Contexts};
use sealcast::url::{Scheme, Url};

use crate::commands::Env;
use crate::hint::{Failure, nearest};

/// What a command shall talk to.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// How bytes travel and who holds the keys.
    pub(crate) url: Url,
    /// Who said so, for people.
    pub(crate) from: String,
    /// The name of an identity of this user, if one is chosen.
    pub(crate) id: Option<String>,
}

impl Target {
    /// `--url`, else `--ctx`, else `SEALCAST_URL`, else the selected context, else `LCM_DEFAULT_URL`;
    /// the identity likewise, and where there is only one, that one.
    pub(crate) fn of(env: &Env<'_>) -> Result<Target, Failure> {
        let (context, named) = chosen(env)?;
        let from_context = context.as_ref().map(|(name, c)| (c.url.clone(), format!("context {name}")));
        let options = [
            env.global.url.clone().map(|u| (u, "--url".to_owned())),
            from_context.clone().filter(|_| named),
            variable("SEALCAST_URL").map(|u| (u, "SEALCAST_URL".to_owned())),
            from_context,
            variable("LCM_DEFAULT_URL").map(|u| (u, "LCM_DEFAULT_URL".to_owned())),
        ];
        let Some((text, from)) = options.into_iter().flatten().next() else {
            let failure = Failure::new(Code::NoUrl, "no URL and no context: where to?");
            return Err(failure.hint("sealcast init NAME makes all that is needed; or say --url"));
        };
        let url = Url::parse(&text)?;
        let id = identity_for(env, url.keys)?;
        Ok(Target { url, from, id })
    }

    /// The identity's name, or why there must be one; `None` only where nothing is sealed.
    pub(crate) fn identity(&self, env: &Env<'_>) -> Result<Option<String>, Failure> {
        match &self.id {
            Some(id) => Ok(Some(id.clone())),
            None if self.url.keys == Scheme::Plain => Ok(None),
            None if self.url.keys == Scheme::Center => Err(no_principal(env)),
            None => Err(no_identity(env)),
        }
    }
}

/// `--id`, else that of `--ctx`, else `SEALCAST_ID`, else that of the selected context, else the only one.
pub(crate) fn identity(env: &Env<'_>) -> Result<Option<String>, Failure> {
    identity_for(env, Scheme::Contributory)
}

/// The same for a group with these keys: from a key distribution centre, it is a principal's name.
pub(crate) fn identity_for(env: &Env<'_>, keys: Scheme) -> Result<Option<String>, Failure> {
    let (context, named) = chosen(env)?;
    let from_context = context.and_then(|(_, c)| c.id);
    let all = if keys == Scheme::Center { env.home.principals() } else { env.home.identities() };
    let asked = env.global.id.clone();
    let asked = asked.or_else(|| from_context.clone().filter(|_| named)).or_else(|| variable("SEALCAST_ID"));
    let found = asked.or(from_context).or_else(|| all.first().filter(|_| all.len() == 1).cloned());
    if let Some(id) = &found
        && !all.contains(id)
    {
        return Err(if keys == Scheme::Center { unknown_principal(id, &all) } else { unknown_identity(id, &all) });
    }
    Ok(found)
}

fn no_principal(env: &Env<'_>) -> Failure {
    let all = env.home.principals();
    if all.is_empty() {
        let failure = "this group's keys come from a key distribution centre, and none registered you";
        return Failure::new(Code::NoIdentity, failure)
            .hint("sealcast join FILE, which 'sealcast kdc register NAME -o FILE' wrote");
    }
    Failure::new(Code::NoIdentity, format!("which principal? You have {}", all.join(", ")))
        .hint(format!("--id {}", all[0]))
}

fn unknown_principal(id: &str, all: &[String]) -> Failure {
    let failure = Failure::new(Code::NoIdentity, format!("no key distribution centre registered '{id}' here"));
    match nearest(id, all.iter().map(String::as_str)) {
        Some(better) => failure.hint(format!("did you mean '{better}'?")),
        None => failure.hint("sealcast join FILE, which 'sealcast kdc register NAME -o FILE' wrote"),
    }
}

/// The error where an identity must be and none is chosen.
pub(crate) fn no_identity(env: &Env<'_>) -> Failure {
    let all = env.home.identities();
    if all.is_empty() {
        let failure = Failure::new(Code::NoIdentity, "sealed groups need an identity, and you have none");
        return failure.hint("sealcast init NAME (a group of your own), or: sealcast id new NAME (to be invited)");
    }
    let failure = Failure::new(Code::NoIdentity, format!("which identity? You have {}", all.join(", ")));
    failure.hint(format!("--id {}", all[0]))
}

/// The error about an identity that is not there.
pub(crate) fn unknown_identity(id: &str, all: &[String]) -> Failure {
    let failure = Failure::new(Code::NoIdentity, format!("there is no identity '{id}'"));
    match nearest(id, all.iter().map(String::as_str)) {
        Some(better) => failure.hint(format!("did you mean '{better}'?")),
        None => failure.hint(format!("sealcast id new {id}, or 'sealcast id ls' for those that there are")),
    }
}

/// The context to go by, and whether it was named for this command.
fn chosen(env: &Env<'_>) -> Result<(Option<(String, Context)>, bool), Failure> {
    let all = Contexts::load(&env.home)?;
    let Some(name) = env.global.ctx.clone().or_else(|| variable("SEALCAST_CTX")) else {
        return Ok((all.current().map(|(name, c)| (name.to_owned(), c.clone())), false));
    };
    match all.context.get(&name) {
        Some(context) => Ok((Some((name, context.clone())), true)),
        None => Err(crate::commands::ctx::unknown(&all, &name)),
    }
}

fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|v| !v.is_empty())
}
