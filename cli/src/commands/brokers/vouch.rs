//! Who vouches for whom: claims of issuers without X.509, and what brokers are told of their holders.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use sealcast::brokers::vouched;
use sealcast::code::Code;
use sealcast::config::{Home, KeptIdentity, Overwrite, Voucher, write_public};
use sealcast_broker::operation::{Claim, Operation};
use sealcast_crypto::identity::Attribute;
use sealcast_wire::{Utc, limits};
use serde_json::{Value, json};

use super::Which;
use crate::cluster::Cluster;
use crate::commands::ca::public_keys;
use crate::commands::grant::{attributes_shown, said};
use crate::commands::{Env, read_text};
use crate::hint::Failure;
use crate::session::For;
use crate::target;
use crate::text::{date, instant, now, parse_duration};

/// What an issuer says of whom.
#[derive(Debug, Args)]
pub(super) struct Say {
    /// The holder's public key (scpub1…)
    #[arg(long = "for", value_name = "scpub1…")]
    key: String,
    /// The name under which the brokers know you: --issuer NAME=scpub1… when they were made
    #[arg(long, value_name = "NAME")]
    issuer: String,
    /// What you say of the holder; may be repeated
    #[arg(long = "attr", value_name = "KEY=VALUE")]
    attributes: Vec<String>,
    /// How long the claim is valid
    #[arg(long, value_name = "TIME", default_value = "90d", value_parser = parse_duration)]
    valid: Duration,
    /// Where it goes [default: stdout]
    #[arg(long, short, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Overwrite the file
    #[arg(long)]
    force: bool,
}

/// Signs a claim with the chosen identity's key.
pub(super) fn claim(env: &Env<'_>, say: &Say) -> Result<(), Failure> {
    Attribute::new(&say.issuer, "key", "value").map_err(|e| Failure::new(Code::BadValue, format!("--issuer: {e}")))?;
    let attributes = said(&say.issuer, &say.attributes)?;
    if attributes.len() > limits::CLAIMED_ATTRIBUTES_MAX {
        let most = limits::CLAIMED_ATTRIBUTES_MAX;
        return Err(Failure::new(Code::TooLarge, format!("a claim has at most {most} attributes")));
    }
    let name = target::identity(env)?.ok_or_else(|| target::no_identity(env))?;
    let issuer = KeptIdentity::load(&env.home, &name)?;
    let holder = public_keys(&say.key)?.signing;
    let pairs: Vec<(&str, &str)> = attributes.iter().map(|it| (&it.key[..], &it.value[..])).collect();
    let mut serial = [0; 8];
    getrandom::fill(&mut serial).map_err(|e| Failure::new(Code::System, e))?;
    // Whose clock goes before the brokers' gives claims that hold at once, too.
    let from = Utc(now().0 - CLOCKS_APART_SECONDS);
    let until = Utc(now().0.saturating_add(i64::try_from(say.valid.as_secs()).unwrap_or(i64::MAX)));
    let key = issuer.secret.signing_key();
    let claim = Voucher::Claim(Claim::sign(&say.issuer, &serial, (from, until), &pairs, &holder, &key));
    let text = claim.to_pem();
    let named = say.out.as_deref().filter(|path| *path != Path::new("-"));
    if let Some(path) = named {
        write_public(path, text.as_bytes(), if say.force { Overwrite::Replace } else { Overwrite::Never })?;
    }
    env.output.say(format!("{}   signed by {name}", shown(&say.issuer, &claim)));
    env.output.say("          Next, its holder:  sealcast brokers reg --with FILE");
    if env.output.is_json() {
        let mut object = described(&say.issuer, &claim);
        object["pem"] = json!(text);
        return env.output.object(&object);
    }
    if named.is_none() { env.output.bytes(text.as_bytes()) } else { Ok(()) }
}

/// Registers the chosen identity by all that is said of it, and keeps what is new.
pub(super) fn register(env: &Env<'_>, files: &[PathBuf], without: &[String], which: &Which) -> Result<(), Failure> {
    let cluster = Cluster::of(env, which.cluster.as_deref())?;
    let name = target::identity(env)?.ok_or_else(|| target::no_identity(env))?;
    let mut me = KeptIdentity::load(&env.home, &name)?;
    if !without.is_empty() {
        forget(&mut me, without)?;
        me.save(Overwrite::Replace)?;
    }
    let mut new = files.iter().map(|it| read(&cluster, &me, &name, it)).collect::<Result<Vec<_>, _>>()?;
    let mut seen = BTreeSet::new();
    new.retain(|it| seen.insert(it.to_pem()));
    let is_new = |it: &Voucher| new.iter().any(|new| new.to_pem() == it.to_pem());
    me.vouchers.retain(|it| !is_new(it));
    me.vouchers.extend(new.iter().cloned());
    let me = Arc::new(me);
    let brokers = cluster.opening_as(env, Some(me.clone()), For::Message)?.wait()?.into_brokers()?;
    let order_status = cluster.registered(env, &brokers)?;
    let client = brokers.client();
    let (mut told, mut refused) = (Vec::new(), None);
    for it in me.vouchers.iter().filter(|it| it.not_after() >= now()) {
        let Some(registration) = vouched(&cluster.file, it, &me.secret.signing_key(), &client) else { continue };
        let issuer = it.issuer(&cluster.file.genesis).unwrap_or_default().to_owned();
        // It was ordered when the client began; only so its own outcome is known.
        match brokers.submit(&Operation::Register(registration)).wait() {
            Ok(_) => told.push((issuer, it)),
            Err(e) if is_new(it) => refused = Some(Failure::from(e)),
            Err(e) => env.output.warn(format!("what {issuer} says of you: {e}")),
        }
    }
    brokers.close();
    let taken: Vec<Voucher> = told.iter().map(|(_, it)| (*it).clone()).filter(is_new).collect();
    if !taken.is_empty() {
        // Others may have changed the file meanwhile. With what is new, what is over goes.
        let mut kept = KeptIdentity::load(&env.home, &name)?;
        kept.vouchers.retain(|it| !is_new(it) && it.not_after() >= now());
        kept.vouchers.extend(taken);
        kept.save(Overwrite::Replace)?;
    }
    if let Some(why) = refused {
        return Err(why);
    }
    let client = hex::encode(client.0);
    let vouchers: Vec<Value> = told.iter().map(|(issuer, it)| described(issuer, it)).collect();
    let object = json!({ "client": client, "registered": true, "height": order_status.height, "vouchers": vouchers });
    env.output.object(&object)?;
    env.output.line(format!("registered   client {client}   block {}", order_status.height))?;
    told.iter().try_for_each(|(issuer, it)| env.output.line(format!("also         {}", shown(issuer, it))))
}

/// What is named so is told to nobody any more; brokers forget what they were told when its time is over.
fn forget(me: &mut KeptIdentity, without: &[String]) -> Result<(), Failure> {
    for named in without {
        let is_named = |it: &Voucher| {
            let (issuer, serial) = (named_as(it), it.serial());
            named.split_once(':').is_some_and(|(of, number)| of == issuer && number.trim_start_matches('#') == serial)
        };
        let count = me.vouchers.len();
        me.vouchers.retain(|it| !is_named(it));
        if me.vouchers.len() == count {
            let failure = Failure::new(Code::Missing, format!("--without: {} keeps no {named}", me.name()));
            return Err(failure.hint("'sealcast id show' lists them: ISSUER:SERIAL"));
        }
    }
    Ok(())
}

/// What a file says of this identity, to brokers that take it.
fn read(cluster: &Cluster, me: &KeptIdentity, name: &str, file: &Path) -> Result<Voucher, Failure> {
    let at = Home::shown(file);
    let new =
        Voucher::from_pem(&read_text(file)?).map_err(|why| Failure::new(Code::Content, format!("{at}: {why}")))?;
    let keys = me.secret.public();
    if !new.is_of(&keys.signing) {
        let failure = Failure::new(Code::Denied, format!("{at} is for another key than that of {name}"));
        return Err(failure.hint(format!("its issuer needs this one:  {keys}")));
    }
    let genesis = &cluster.file.genesis;
    if new.issuer(genesis).is_none() {
        let issuers: Vec<&str> = genesis.issuers.keys().map(String::as_str).collect();
        let what = format!("{at} is signed by no issuer of {}", genesis.name);
        return Err(Failure::new(Code::Authority, what).hint(format!("its issuers are {}", issuers.join(", "))));
    }
    if new.not_after() < now() {
        let what = format!("{at}: its time was over {}", date(new.not_after()));
        return Err(Failure::new(Code::CertificateExpired, what).hint("ask for it anew"));
    }
    Ok(new)
}

/// `insurer   level=3   #0x1f… to 2027-02-18`
pub(super) fn shown(issuer: &str, it: &Voucher) -> String {
    let said = it.attributes();
    let said: Vec<Attribute> = said.into_iter().filter(|it| it.issuer == issuer).collect();
    let attributes = attributes_shown(&said);
    let said = if attributes.is_empty() { "no attributes" } else { &attributes };
    format!("{issuer}   {said}   #{} to {}", it.serial(), date(it.not_after()))
}

/// The same for programs.
fn described(issuer: &str, it: &Voucher) -> Value {
    let said = it.attributes().into_iter().filter(|it| it.issuer == issuer);
    let attributes: Vec<String> = said.map(|it| format!("{}:{}={}", it.issuer, it.key, it.value)).collect();
    json!({ "issuer": issuer, "attributes": attributes, "serial": it.serial(), "valid_to": instant(it.not_after()) })
}

/// Who speaks, where no cluster says by which name it knows him.
fn named_as(it: &Voucher) -> String {
    it.issuer_name().unwrap_or_else(|| "somebody".to_owned())
}

/// What each of an identity's vouchers says, for people and for programs.
pub(crate) fn listed(identity: &KeptIdentity) -> (Vec<String>, Vec<Value>) {
    let each = identity.vouchers.iter().map(|it| (named_as(it), it));
    each.map(|(issuer, it)| (shown(&issuer, it), described(&issuer, it))).unzip()
}

/// How far the brokers' time may lie behind an issuer's clock.
const CLOCKS_APART_SECONDS: i64 = 300;
