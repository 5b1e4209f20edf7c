//! Taking certificates back, and telling everybody (A10).

use std::path::Path;
use std::time::Duration;

use sealcast::code::Code;
use sealcast::config::Overwrite;
use sealcast_crypto::identity::{Authority, Serial, pem};
use serde_json::json;

use super::{CRL_VALIDITY_SECONDS, Which, hand_out, refused, tell_identities};
use crate::authority::{KeptAuthority, choose};
use crate::commands::{Env, group};
use crate::hint::{Failure, nearest};
use crate::text::{duration, now};

/// Revokes, signs the next list, and hands it to this machine's identities and sessions.
pub(super) fn revoke(env: &Env<'_>, whom: &str, which: &Which) -> Result<(), Failure> {
    let mut kept = KeptAuthority::open(&env.home, &choose(env, which.authority.as_deref())?)?;
    let serials = serials_of(&kept.authority, whom)?;
    for serial in &serials {
        kept.authority.revoke(*serial, now()).map_err(refused)?;
    }
    let list = kept.authority.crl(now(), CRL_VALIDITY_SECONDS).map_err(refused)?;
    kept.crl = Some(list.clone());
    kept.save(Overwrite::Replace)?;
    let told = tell_identities(env, &kept)?;
    let groups = group::teach(env, &kept, &list);
    let shown: Vec<String> = serials.iter().map(|s| format!("#{s}")).collect();
    let number = kept.authority.ledger().crl_number();
    env.output.object(&json!({
        "revoked": shown, "whom": whom, "crl": number, "identities": told, "sessions": groups,
    }))?;
    let what = if shown.len() == 1 { "certificate" } else { "certificates" };
    env.output.line(format!("revoked {what} {} of {whom} · revocation list {number}", shown.join(", ")))?;
    match groups.len() {
        0 => env.output.say("no session runs here; give a member the list: sealcast ca crl -o ward.crl; there: sealcast id learn ward.crl"),
        _ => env.output.say(format!("told the running session of {}; members pass it on", groups.join(", "))),
    }
    Ok(())
}

/// The valid certificates of a name, or the one of a serial.
fn serials_of(authority: &Authority, whom: &str) -> Result<Vec<Serial>, Failure> {
    let ledger = authority.ledger();
    let digits = whom.strip_prefix('#').or(Some(whom).filter(|w| w.bytes().all(|b| b.is_ascii_digit())));
    if let Some(serial) = digits.filter(|_| ledger.issued().all(|(_, i)| i.name != whom)) {
        let serial: Serial =
            serial.parse().map_err(|_| Failure::new(Code::BadValue, format!("'{whom}' is no serial number")))?;
        if ledger.issued().all(|(s, _)| *s != serial) {
            return Err(
                Failure::new(Code::Missing, format!("no certificate #{serial} was issued")).hint("sealcast ca ls NAME")
            );
        }
        return Ok(vec![serial]);
    }
    let valid = ledger.valid_of(whom, now());
    if !valid.is_empty() {
        return Ok(valid);
    }
    let known = ledger.issued().any(|(_, i)| i.name == whom);
    let what = if known { "has no valid certificate" } else { "never had a certificate" };
    let failure = Failure::new(Code::Missing, format!("{whom} {what} of this authority"));
    Err(match nearest(whom, ledger.issued().map(|(_, i)| i.name.as_str())) {
        Some(better) if !known => failure.hint(format!("did you mean '{better}'?")),
        _ => failure.hint("sealcast ca ls NAME"),
    })
}

/// Signs a new list, though nothing changed: before the last one is over.
pub(super) fn crl(env: &Env<'_>, valid: Duration, out: Option<&Path>, which: &Which) -> Result<(), Failure> {
    let mut kept = KeptAuthority::open(&env.home, &choose(env, which.authority.as_deref())?)?;
    let seconds = i64::try_from(valid.as_secs()).unwrap_or(i64::MAX);
    let list = kept.authority.crl(now(), seconds).map_err(refused)?;
    kept.crl = Some(list.clone());
    kept.save(Overwrite::Replace)?;
    tell_identities(env, &kept)?;
    group::teach(env, &kept, &list);
    let text = pem::write(pem::CRL, &list);
    let number = kept.authority.ledger().crl_number();
    env.output.say(format!("revocation list {number}, due again in {}", duration(valid)));
    hand_out(env, json!({ "crl": number, "path": out }), &text, out, true)
}
