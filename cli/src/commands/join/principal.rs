//! Joining with the file of a key distribution centre's principal.

use std::path::Path;

use sealcast::code::Code;
use sealcast::config::{FileError, Home, Overwrite, PrincipalFile, name_checked};
use sealcast_crypto::identity::RegistrationError;
use sealcast_wire::Utc;
use serde_json::json;
use zeroize::Zeroizing;

use super::{Join, make_context};
use crate::commands::Env;
use crate::commands::grant::rights_shown;
use crate::commands::kdc::read_passphrase;
use crate::hint::Failure;
use crate::text::{FLOOR, date, now};

/// Copies the file, and makes a context named after the group.
pub(super) fn join(env: &Env<'_>, of: &Join, text: Zeroizing<String>) -> Result<(), Failure> {
    if of.authority.is_some() {
        let failure = Failure::new(Code::BadValue, "--authority: a principal's file comes from no authority");
        return Err(failure.hint("leave that out"));
    }
    let file = match of.file == Path::new("-") {
        true => PrincipalFile::parse(&of.file, text.clone())?,
        // Unlike an invite it is a secret, which others must not have read.
        false => PrincipalFile::read(&of.file)?,
    };
    let passphrase = of.passphrase_file.as_deref().map(read_passphrase).transpose()?;
    if !file.is_sealed() || passphrase.is_some() {
        PrincipalFile::parse(&of.file, text)?.open(passphrase.as_deref().map(String::as_str))?;
    }
    let it = file.registration();
    it.check(Some(now()), FLOOR).map_err(|why| {
        let code = Failure::new(Code::CertificateExpired, why);
        match why {
            RegistrationError::Expired(_) => code.hint("at the centre: sealcast kdc register makes a new one"),
            RegistrationError::NotYetValid(_) => code.hint("is the clock of this machine right? date -u"),
        }
    })?;
    let (name, to) = (name_checked(&it.name)?, env.home.principal(&it.name));
    file.copy(&to, overwrite(&file, &to)?)?;
    let group = it.rights.groups().into_iter().next().unwrap_or_default().to_owned();
    let url = env.global.url.as_deref().or(file.url()).ok_or_else(|| {
        Failure::new(Code::NoUrl, "the file says nothing of where the group is").hint("sealcast join FILE --url URL")
    })?;
    let context = make_context(env, &group, url, name)?;
    let (realm, ends) = (hex::encode(it.realm), date(Utc(it.not_after)));
    env.output.object(&json!({
        "group": group, "url": url, "id": name, "name": name, "centre": realm, "valid_to": ends, "context": context,
        "sealed": file.is_sealed(),
    }))?;
    env.output.line(format!("centre    {}", &realm[..12]))?;
    let (granted, at) = (rights_shown(&it.rights, &group), Home::shown(&to));
    let seal = if file.is_sealed() { "   sealed by a pass phrase" } else { "" };
    env.output.line(format!("principal {name}   {granted}   to {ends}   {at}   [0600]{seal}"))?;
    env.output.line(format!("context   {context}  {url}   selected"))?;
    env.output.say("          Next:  sealcast sub '#'");
    Ok(())
}

/// A later registration by the same centre replaces an earlier one; nothing else is overwritten.
fn overwrite(file: &PrincipalFile, to: &Path) -> Result<Overwrite, Failure> {
    let new = file.registration();
    match PrincipalFile::read(to).as_ref().map(PrincipalFile::registration) {
        Ok(old) if old.realm == new.realm && old.serial <= new.serial => Ok(Overwrite::Replace),
        Err(FileError::Missing(_)) => Ok(Overwrite::Never),
        _ => {
            let shown = Home::shown(to);
            let what = format!("{shown} is there already, and is another centre's or a later one");
            Err(Failure::new(Code::Exists, what).hint(format!("to lose that one: rm {shown}")))
        }
    }
}
