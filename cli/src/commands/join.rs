//! `sealcast join FILE`: become a member with an invite, or with the file that a key distribution centre wrote.

mod principal;

use std::path::{Path, PathBuf};

use clap::Args;
use sealcast::brokers::load_named;
use sealcast::code::Code;
use sealcast::config::{Context, Contexts, Home, KeptIdentity, Membership, Overwrite, PrincipalFile, name_checked};
use sealcast::url::{TransportAddress, Url};
use sealcast_crypto::identity::invite::Opened;
use sealcast_crypto::identity::{Fingerprint, Invite, InviteError, keytext};
use serde_json::json;
use zeroize::Zeroizing;

use super::{Env, read_text};
use crate::cluster::moved;
use crate::hint::Failure;
use crate::target;
use crate::text::{FLOOR, date, now};

/// Become a member with an invite, or with the file of a centre's principal
#[derive(Debug, Args)]
#[command(after_help = "\
Opens the invite with the identity that it is for, puts certificate and veil beside its keys, and
makes a context named after the group, which is then in use. The cluster file of brokers may
lie where the invite says, beside the invite, or in this folder. The file of 'sealcast kdc register'
is copied, sealed if it is.

Examples:
  sealcast join robot7.invite
  sealcast join - --authority scca1… < robot7.invite     only if it comes from this authority")]
pub(crate) struct Join {
    /// The invite, or the principal's file; - is stdin
    file: PathBuf,
    /// The authority that it must come from
    #[arg(long, value_name = "scca1…")]
    authority: Option<String>,
    /// Try the pass phrase in this file on the principal's file
    #[arg(long, value_name = "FILE")]
    passphrase_file: Option<PathBuf>,
}

impl Join {
    pub(crate) fn run(self, env: &Env<'_>) -> Result<(), Failure> {
        let expected = self.authority.as_deref().map(str::parse::<Fingerprint>).transpose();
        let expected = expected.map_err(|e| Failure::new(Code::BadValue, format!("--authority: {e}")))?;
        let text = Zeroizing::new(read_text(&self.file)?);
        if PrincipalFile::is_one(&text) {
            return principal::join(env, &self, text);
        }
        let sealed = Invite::from_pem(&text)
            .map_err(|e| Failure::new(Code::Content, format!("{}: {e}", Home::shown(&self.file))))?;
        let (identity, opened) = open(env, &sealed, expected)?;
        let url = Url::parse(&opened.invite.url)?;
        let url = reachable(env, &url, &self.file)?;
        keep(env, identity, &opened, &url)
    }
}

/// The invite's URL as it holds on this machine: the cluster file that it names may lie beside the invite, or here. Says
/// so if it is nowhere.
fn reachable(env: &Env<'_>, url: &Url, invite: &Path) -> Result<String, Failure> {
    let TransportAddress::Quorum(path) = &url.address else { return Ok(url.to_string()) };
    let absolute = |path: &Path| std::path::absolute(path).map_err(|e| Failure::system(path.display(), &e));
    let beside = invite.parent().unwrap_or(Path::new(""));
    let name = path.file_name().unwrap_or_default();
    let named = url.options.pin.is_some() || url.options.authority.is_some();
    // A file elsewhere is the right one if the URL says how to know it.
    let others = [beside.join(name), Path::new(name).to_path_buf()].into_iter().filter(|_| named);
    let mut wrong = None;
    for candidate in std::iter::once(path.clone()).chain(others) {
        match load_named(&candidate, &url.options) {
            Ok(file) => return Ok(moved(url, &absolute(&candidate)?, &file)),
            Err(e) if e.code() == Code::Missing => {}
            Err(e) => wrong = wrong.or(Some(e)),
        }
    }
    let shown = Home::shown(&absolute(path)?);
    match wrong {
        Some(e) => env.output.warn(format!("the brokers' cluster file cannot be used: {e}")),
        None => env.output.warn(format!("the brokers' cluster file is not there yet: {shown}")),
    }
    env.output.say("          Get it from the person who invites you, and put it there: nothing works before");
    Ok(url.to_string())
}

/// Opens it with `--id`, else with whichever identity of this user it is for.
fn open(env: &Env<'_>, sealed: &[u8], expected: Option<Fingerprint>) -> Result<(KeptIdentity, Opened), Failure> {
    let names = match &env.global.id {
        Some(id) if env.home.identity(name_checked(id)?).exists() => vec![id.clone()],
        Some(id) => return Err(target::unknown_identity(id, &env.home.identities())),
        None => env.home.identities(),
    };
    for name in &names {
        let identity = KeptIdentity::load(&env.home, name)?;
        match Invite::open(sealed, &identity.secret, expected, Some(now()), FLOOR) {
            Ok(opened) => return Ok((identity, opened)),
            Err(InviteError::OtherKey) => {}
            Err(error) => return Err(refused(error)),
        }
    }
    if names.is_empty() {
        let failure = Failure::new(Code::NoIdentity, "an invite is for somebody's keys, and you have none yet");
        return Err(failure.hint("sealcast id new NAME, and give the scpub1… to the person who invites you"));
    }
    let failure =
        Failure::new(Code::Decrypt, format!("the invite is for another key than that of {}", names.join(", ")));
    Err(failure.hint(format!("the person who invites you needs this one:  sealcast id export {}", names[0])))
}

fn refused(error: InviteError) -> Failure {
    let code = match error {
        InviteError::Malformed => Code::Content,
        InviteError::OtherKey | InviteError::Tampered => Code::Decrypt,
        InviteError::Signature | InviteError::Crl(_) | InviteError::Policy(_) => Code::Signature,
        InviteError::OtherAuthority | InviteError::Certificate(_) => Code::Authority,
        InviteError::Expired => Code::InviteExpired,
    };
    let failure = Failure::new(code, error);
    match error {
        InviteError::Expired => failure.hint("ask for a new one:  sealcast invite --for KEY --ttl 1d"),
        _ => failure,
    }
}

/// Certificate and bootstrap key go beside the keys; a second authority's into an identity of its own.
fn keep(env: &Env<'_>, mut identity: KeptIdentity, opened: &Opened, url: &str) -> Result<(), Failure> {
    let invite = &opened.invite;
    let anchor = opened.identity.anchor().clone();
    let mut bootstrap_keys = std::collections::BTreeMap::from([(invite.group.clone(), invite.bootstrap_key.clone())]);
    let mut overwrite = Overwrite::Replace;
    if let Some(old) = identity.membership.take() {
        if old.anchor.certificate().hash() == anchor.certificate().hash() {
            bootstrap_keys.extend(old.bootstrap_keys.into_iter().filter(|(group, _)| *group != invite.group));
        } else {
            let name = format!("{}.{}", identity.name(), invite.group);
            let vouchers = std::mem::take(&mut identity.vouchers);
            identity = KeptIdentity::new(&env.home, name_checked(&name)?, identity.secret.clone());
            identity.vouchers = vouchers;
            overwrite = Overwrite::Never;
        }
    }
    let certificate = sealcast_crypto::identity::Certificate::parse(&invite.certificate)
        .expect("an opened invite holds a verified certificate");
    identity.membership = Some(Membership { certificate, anchor, policy: invite.policy.clone(), bootstrap_keys });
    identity.save(overwrite)?;
    let context = make_context(env, &invite.group, url, &identity.name())?;
    told(env, &identity, opened, &context, url)
}

/// A context named after the group; if that is somebody else's, after the identity too.
fn make_context(env: &Env<'_>, group: &str, url: &str, id: &str) -> Result<String, Failure> {
    let plain: String = group.chars().map(|c| if name_checked(&c.to_string()).is_ok() { c } else { '_' }).collect();
    let made = Context { url: url.to_owned(), id: Some(id.to_owned()) };
    Contexts::update(&env.home, |all| {
        let mine = |name: &str| all.context.get(name).is_none_or(|c| c.id == made.id);
        let name = if mine(&plain) { plain.clone() } else { format!("{plain}.{id}") };
        all.context.insert(name.clone(), made.clone());
        all.select(&name);
        Ok(name)
    })
}

fn told(env: &Env<'_>, identity: &KeptIdentity, opened: &Opened, context: &str, url: &str) -> Result<(), Failure> {
    let (invite, verified) = (&opened.invite, opened.identity.certificate());
    let fingerprint = opened.identity.authority().to_string();
    env.output.object(&json!({
        "group": invite.group, "url": url, "id": identity.name(), "name": verified.name.to_string(),
        "authority": fingerprint, "valid_to": date(verified.not_after), "context": context,
    }))?;
    let authority = opened.identity.anchor().certificate().name().clone();
    env.output.line(format!("CA        {authority}   {fingerprint}"))?;
    let at = Home::shown(identity.path());
    let granted = super::grant::rights_shown(&verified.rights, &invite.group);
    env.output.line(format!(
        "identity  {}   {granted}   to {}   {at}   [0600]",
        verified.name,
        date(verified.not_after)
    ))?;
    env.output.line(format!("context   {context}  {url}   selected"))?;
    let shown = keytext::compared(&fingerprint);
    env.output.say(format!(
        "          Is {shown} the authority that invited you? Compare it by another way.\n          Next:  sealcast sub '#'"
    ));
    Ok(())
}
