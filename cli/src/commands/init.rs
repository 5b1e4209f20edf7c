//! `sealcast init NAME`: an authority, your first identity, and a context, ready to use.

use clap::Args;
use sealcast::code::Code;
use sealcast::config::{Context, Contexts, Home, KeptIdentity, Membership, Overwrite, name_checked};
use sealcast::url::Url;
use sealcast_crypto::identity::{Act, Authority, MemberSecret, Request, Right, Rights, keytext};
use sealcast_crypto::signature::Algorithm;
use serde_json::json;

use super::Env;
use crate::authority::KeptAuthority;
use crate::hint::Failure;
use crate::text::{date, now, table};

/// An authority, your first identity and a context, ready to use
#[derive(Debug, Args)]
#[command(after_help = "\
Makes three things, and nothing if one of them exists already:
  ca/NAME    the authority of the group NAME: whoever has this file decides who is a member
  id/YOU     your identity, with the right to publish, subscribe and evict everywhere in the group
  a context  that says where the group is (--url) and as whom you act

Examples:
  sealcast init ward3
  sealcast init ward3 --url 'udpm://239.255.76.67:7667?ttl=1'    reach the whole network segment")]
pub(crate) struct Init {
    /// The group's name
    name: String,
    /// What others see you as [default: USER@HOST]
    #[arg(long = "as", value_name = "NAME")]
    called: Option<String>,
    /// Replace what exists under these names; it is lost then
    #[arg(long)]
    force: bool,
}

impl Init {
    pub(crate) fn run(self, env: &Env<'_>) -> Result<(), Failure> {
        let name = name_checked(&self.name)?;
        sealcast_crypto::identity::check_group(name).map_err(|e| Failure::new(Code::BadValue, e))?;
        let url = env.global.url.clone().unwrap_or_else(|| DEFAULT_URL.to_owned());
        Url::parse(&url)?;
        let user = user();
        let id = env.global.id.clone().unwrap_or_else(|| free_id(env, &user, name, self.force));
        name_checked(&id)?;
        let called = self.called.unwrap_or_else(|| format!("{user}@{}", host()));
        let overwrite = if self.force { Overwrite::Replace } else { Overwrite::Never };
        check_free(env, name, &id, overwrite)?;

        let (kept, identity) = make(env, name, &id, &called, overwrite)?;
        Contexts::update(&env.home, |all| {
            all.context.insert(name.to_owned(), Context { url: url.clone(), id: Some(id.clone()) });
            all.select(name);
            Ok::<(), Failure>(())
        })?;
        told(env, name, &url, &called, &kept, &identity)
    }
}

/// The same without a context, for a newcomer who begins with something else: an authority of this name, and an identity
/// of it if there is none yet.
pub(crate) fn found(env: &Env<'_>, name: &str) -> Result<(), Failure> {
    sealcast_crypto::identity::check_group(name_checked(name)?).map_err(|e| Failure::new(Code::BadValue, e))?;
    let user = user();
    let id = env.global.id.clone().unwrap_or_else(|| free_id(env, &user, name, false));
    check_free(env, name, name_checked(&id)?, Overwrite::Never)?;
    let called = format!("{user}@{}", host());
    let (kept, identity) = make(env, name, &id, &called, Overwrite::Never)?;
    let until = date(kept.authority.certificate().not_after());
    let fingerprint = keytext::compared(&kept.authority.fingerprint().to_string());
    env.output.say(format!("CA        {fingerprint}  (valid to {until})    {}   [0600]", Home::shown(&kept.path)));
    let key = keytext::short(&identity.secret.public().to_string());
    env.output.say(format!("identity  {called}  {key}    {}   [0600]", Home::shown(identity.path())));
    Ok(())
}

fn make(
    env: &Env<'_>,
    name: &str,
    id: &str,
    called: &str,
    overwrite: Overwrite,
) -> Result<(KeptAuthority, KeptIdentity), Failure> {
    let mut rng = crate::rng();
    let authority = Authority::create(name, Algorithm::P256, now(), &mut rng);
    let authority = authority.map_err(|e| Failure::new(Code::BadValue, e))?;
    let mut kept = KeptAuthority::new(&env.home, name, authority)?;
    let mut identity = KeptIdentity::new(&env.home, id, MemberSecret::generate(Algorithm::Ed25519, &mut rng));
    let rights: Result<Rights, _> = [Act::Both, Act::Evict].into_iter().map(|a| Right::new(name, a, "#")).collect();
    let request = Request {
        name: called.to_owned(),
        keys: identity.secret.public(),
        rights: rights.map_err(|e| Failure::new(Code::BadValue, e))?,
        attributes: vec![],
    };
    let certificate = kept.authority.issue(&request, now(), super::ca::MEMBER_VALIDITY_SECONDS);
    let certificate = certificate.map_err(|e| Failure::new(Code::BadValue, e))?;
    kept.save(overwrite)?;
    identity.membership = Some(Membership {
        certificate,
        anchor: kept.anchor(),
        policy: None,
        bootstrap_keys: [(name.to_owned(), kept.authority.bootstrap_key(name))].into(),
    });
    identity.save(overwrite)?;
    Ok((kept, identity))
}

/// The user's name, as far as it can be a file's.
fn user() -> String {
    let named = ["USER", "LOGNAME"].iter().find_map(|v| std::env::var(v).ok().filter(|u| name_checked(u).is_ok()));
    named.unwrap_or_else(|| "me".to_owned())
}

/// All or nothing: better to find out before the first file is written.
fn check_free(env: &Env<'_>, name: &str, id: &str, overwrite: Overwrite) -> Result<(), Failure> {
    if overwrite == Overwrite::Replace {
        return Ok(());
    }
    let exists = |what: &str, at: String| {
        Failure::new(Code::Exists, format!("{what} exists already: {at}")).hint(format!(
            "use what exists: sealcast ctx select {name}; or take another name; or sealcast init {name} --force, \
                 by which the keys that exist are lost"
        ))
    };
    for (what, path) in [("the authority", env.home.authority(name)), ("the identity", env.home.identity(id))] {
        if path.exists() {
            return Err(exists(what, Home::shown(&path)));
        }
    }
    if Contexts::load(&env.home)?.context.contains_key(name) {
        return Err(exists("the context", name.to_owned()));
    }
    Ok(())
}

fn told(
    env: &Env<'_>,
    name: &str,
    url: &str,
    called: &str,
    kept: &KeptAuthority,
    identity: &KeptIdentity,
) -> Result<(), Failure> {
    let until = kept.authority.certificate().not_after();
    let (fingerprint, key) = (kept.authority.fingerprint().to_string(), identity.secret.public().to_string());
    env.output.object(&json!({
        "authority": { "name": name, "fingerprint": fingerprint, "valid_to": date(until), "path": kept.path },
        "identity": { "name": called, "id": identity.name(), "key": key, "path": identity.path() },
        "context": { "name": name, "url": url, "selected": true },
    }))?;
    let rows = [
        vec![
            "CA".to_owned(),
            format!("{}  (P-256, valid to {})", keytext::compared(&fingerprint), date(until)),
            format!("{}   [0600]", Home::shown(&kept.path)),
        ],
        vec![
            "identity".to_owned(),
            format!("{called}   {}", keytext::short(&key)),
            format!("{}   [0600]", Home::shown(identity.path())),
        ],
    ];
    env.output.line(table(&rows))?;
    env.output.line(format!("context   {name}  {url}   selected"))?;
    env.output.say(format!("          Next:  sealcast sub '{name}/#'   |   sealcast invite --for scpub1…"));
    Ok(())
}

/// `you`, or `you.ward5` where `you` is already somebody in another group.
fn free_id(env: &Env<'_>, user: &str, group: &str, force: bool) -> String {
    if force || !env.home.identity(user).exists() { user.to_owned() } else { format!("{user}.{group}") }
}

/// The machine's name without its domain.
fn host() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    name.split('.').next().filter(|h| !h.is_empty()).unwrap_or("here").to_owned()
}

/// LCM's address, on this machine only, keys agreed by the members.
pub(crate) const DEFAULT_URL: &str = "udpm://239.255.76.67:7667?ttl=0&keys=contributory";
