//! What is in a certificate, revocation list, policy or invite.

use std::path::Path;

use sealcast::code::Code;
use sealcast::config::Home;
use sealcast_crypto::identity::{Certificate, Crl, Invite, pem};
use serde_json::{Value, json};

use super::{Which, policy};
use crate::authority::{KeptAuthority, choose};
use crate::commands::grant::{attributes_shown, rights_shown};
use crate::commands::{Env, read_text};
use crate::hint::Failure;
use crate::text::{date, instant};

/// Tells files apart by what is in them.
pub(super) fn inspect(env: &Env<'_>, file: Option<&Path>, which: &Which) -> Result<(), Failure> {
    let Some(file) = file else {
        let kept = KeptAuthority::open(&env.home, &choose(env, which.authority.as_deref())?)?;
        return show_certificate(env, kept.authority.certificate());
    };
    let text = read_text(file)?;
    if let Some(der) = pem::read(pem::CERTIFICATE, &text) {
        let certificate = Certificate::parse(&der);
        return show_certificate(env, &certificate.map_err(|e| wrong_content(file, &e))?);
    }
    if let Ok(sealed) = Invite::from_pem(&text) {
        env.output.object(&json!({ "kind": "invite", "bytes": sealed.len() }))?;
        return env.output.line(format!(
            "invite    {} B, sealed for one key: only its holder can open it\n          Next:  sealcast join {}",
            sealed.len(),
            file.display()
        ));
    }
    let anchor = KeptAuthority::open(&env.home, &choose(env, which.authority.as_deref())?)?.anchor();
    if let Some(der) = pem::read(pem::CRL, &text) {
        let list = Crl::verify(&der, &anchor).map_err(|e| Failure::new(Code::Signature, e))?;
        let revoked: Vec<String> = list.revoked().map(|s| format!("#{s}")).collect();
        env.output.object(&json!({
            "kind": "crl", "number": list.number(), "issued": instant(list.this_update()),
            "next": list.next_update().map(instant), "revoked": revoked,
        }))?;
        let next = list.next_update().map_or("-".to_owned(), date);
        let revoked = if revoked.is_empty() { "nothing".to_owned() } else { revoked.join(" ") };
        return env.output.line(format!(
            "revocation list {} of {}, next {next}: {revoked}",
            list.number(),
            date(list.this_update())
        ));
    }
    if let Some(bytes) = pem::read(pem::POLICY, &text) {
        let (lines, object) = policy::shown(&bytes, &anchor)?;
        env.output.object(&object)?;
        return env.output.line(lines);
    }
    let what = "no certificate, revocation list, policy or invite is in it";
    Err(Failure::new(Code::Content, format!("{}: {what}", Home::shown(file))))
}

/// All that a certificate says, one fact a line.
pub(crate) fn show_certificate(env: &Env<'_>, c: &Certificate) -> Result<(), Failure> {
    env.output.object(&certificate_json(c, None))?;
    env.output.line(certificate_lines(c).join("\n"))
}

/// All that a certificate says, one fact a line.
pub(crate) fn certificate_lines(c: &Certificate) -> Vec<String> {
    let mut lines = vec![
        format!("name        {}{}", c.name(), if c.is_authority() { "   (an authority)" } else { "" }),
        format!("serial      #{}", c.serial()),
        format!("valid       {} to {}", date(c.not_before()), date(c.not_after())),
        format!("sha256      {}", hex::encode(c.hash().0)),
    ];
    if !c.attributes().is_empty() {
        lines.push(format!("attributes  {}", attributes_shown(c.attributes())));
    }
    for group in c.rights().groups() {
        lines.push(format!("in {group:<8} {}", rights_shown(c.rights(), group)));
    }
    lines
}

/// The same as an object.
pub(crate) fn certificate_json(c: &Certificate, path: Option<&Path>) -> Value {
    let rights: Vec<Value> = c
        .rights()
        .iter()
        .map(|r| json!({ "group": r.group, "act": r.act.name(), "pattern": r.pattern.to_string() }))
        .collect();
    let attributes: serde_json::Map<String, Value> =
        c.attributes().iter().map(|a| (a.key.clone(), json!(a.value))).collect();
    json!({
        "kind": "certificate", "name": c.name().to_string(), "serial": c.serial().to_string(),
        "authority": c.is_authority(), "not_before": instant(c.not_before()), "not_after": instant(c.not_after()),
        "sha256": hex::encode(c.hash().0), "rights": rights, "attributes": attributes, "path": path,
    })
}

fn wrong_content(file: &Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::new(Code::Content, format!("{}: {error}", Home::shown(file)))
}
