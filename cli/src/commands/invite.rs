//! `sealcast invite --for KEY`: all that a newcomer needs, in one file that only it can open (A11).

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use sealcast::brokers::load_named;
use sealcast::code::Code;
use sealcast::config::{Contexts, Home, Overwrite, write_public};
use sealcast::url::{TransportAddress, Url};
use sealcast_crypto::identity::{Invite as Contents, keytext};
use sealcast_wire::Utc;
use serde_json::json;

use super::Env;
use super::ca::{Which, certify, public_keys};
use super::grant::{Grant, attributes_shown, rights_shown};
use crate::authority::{KeptAuthority, choose};
use crate::cluster::moved;
use crate::hint::Failure;
use crate::target::Target;
use crate::text::{date, duration, now, parse_duration};

/// Invite somebody: certificate, group and URL in one file only they can open
#[derive(Debug, Args)]
#[command(after_help = "\
The other one makes keys with 'sealcast id new NAME' and tells you the scpub1…; the file may travel
by any road: it is sealed for that key. Without --pub and --sub the newcomer may do both with every
topic.

Examples:
  sealcast invite --for scpub1… --as robot7 --pub 'pose/robot7' --sub '#' --attr role=robot
  sealcast invite --for scpub1… --as alice -o - | ssh alice sealcast join -")]
pub(crate) struct Invite {
    /// The newcomer's public key
    #[arg(long = "for", value_name = "scpub1…")]
    key: String,
    /// What others see the newcomer as [default: member and the serial number]
    #[arg(long = "as", value_name = "NAME")]
    called: Option<String>,
    #[command(flatten)]
    grant: Grant,
    /// How long the file can be opened
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = parse_duration)]
    ttl: Duration,
    #[command(flatten)]
    which: Which,
    /// Where it goes; - is stdout [default: NAME.invite]
    #[arg(long, short, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Overwrite the file
    #[arg(long)]
    force: bool,
}

impl Invite {
    pub(crate) fn run(self, env: &Env<'_>) -> Result<(), Failure> {
        let joiner = public_keys(&self.key)?;
        if self.ttl.as_secs() == 0 {
            let what = format!("--ttl {}: an invite is open for a second at least", duration(self.ttl));
            return Err(Failure::new(Code::BadValue, what).hint("--ttl 10m, the time that the file needs to arrive"));
        }
        let mut kept = KeptAuthority::open(&env.home, &choose(env, self.which.authority.as_deref())?)?;
        let group = self.grant.group(&kept.name).to_owned();
        let next = kept.authority.ledger().issued().count() + 1;
        let called = self.called.clone().unwrap_or_else(|| format!("member{next}"));
        let out = self.out.clone().unwrap_or_else(|| PathBuf::from(file_name(&called)));
        if out != Path::new("-") && out.exists() && !self.force {
            let failure = Failure::new(Code::Exists, format!("{} exists already", Home::shown(&out)));
            return Err(failure.hint("-o FILE, or --force to overwrite it"));
        }
        let url = meeting_place(env, &group)?;
        let certificate = certify(env, &mut kept, &called, joiner.clone(), &self.grant)?;
        let until = Utc(now().0.saturating_add(i64::try_from(self.ttl.as_secs()).unwrap_or(i64::MAX)));
        let contents = Contents {
            group: group.clone(),
            url,
            certificate: certificate.der().to_vec(),
            crl: kept.crl.clone(),
            policy: kept.policy.clone(),
            bootstrap_key: kept.authority.bootstrap_key(&group),
            issued_at: now(),
            expires_at: until,
        };
        let sealed = contents.seal(&kept.authority, &joiner, &mut crate::rng());
        let sealed = sealed.map_err(|e| Failure::new(Code::BadValue, e))?;
        let text = Contents::to_pem(&sealed);
        let to_stdout = out == Path::new("-");
        if to_stdout && !env.output.is_json() {
            env.output.bytes(text.as_bytes())?;
        } else if !to_stdout {
            let overwrite = if self.force { Overwrite::Replace } else { Overwrite::Never };
            write_public(&out, text.as_bytes(), overwrite)?;
        }
        let fingerprint = kept.authority.fingerprint().to_string();
        env.output.object(&json!({
            "invite": out, "for": self.key, "name": called, "group": group, "url": contents.url,
            "serial": certificate.serial().to_string(), "valid_to": date(certificate.not_after()),
            "ttl_seconds": self.ttl.as_secs(), "authority": fingerprint, "text": to_stdout.then_some(&text),
        }))?;
        let mut granted = rights_shown(certificate.rights(), &group);
        if !certificate.attributes().is_empty() {
            granted = format!("{}   {granted}", attributes_shown(certificate.attributes()));
        }
        let line = format!(
            "invite    {}   for {called} ({})   {granted}   #{} to {}   open for {}",
            out.display(),
            keytext::short(&self.key),
            certificate.serial(),
            date(certificate.not_after()),
            duration(self.ttl),
        );
        if to_stdout {
            env.output.say(line)
        } else {
            env.output.line(line)?
        }
        env.output.say(format!("          Next:  there:  sealcast join {} --authority {fingerprint}", out.display()));
        if let Ok(Url { address: TransportAddress::Quorum(path), .. }) = Url::parse(&contents.url) {
            let name = path.file_name().unwrap_or_default().display();
            env.output.say(format!(
                "          There the brokers' cluster file must be at {}, or as {name} beside the invite",
                path.display()
            ));
        }
        if let Some(farther) = farther(&contents.url) {
            let id = Contexts::load(&env.home)?.context.get(&group).and_then(|c| c.id.clone());
            let id = id.map(|id| format!(" --id {id}")).unwrap_or_default();
            env.output
                .say("          This group stays on this machine (ttl=0 in its URL); to meet on the network, first:");
            env.output.say(format!("          sealcast ctx add {group} --url '{farther}'{id} --force   then invite"));
        }
        Ok(())
    }
}

/// The URL with a reach of one network segment, if it is multicast that does not leave this machine.
fn farther(url: &str) -> Option<String> {
    let parsed = Url::parse(url).ok()?;
    if !matches!(parsed.address, TransportAddress::Multicast { .. }) || parsed.options.ttl != 0 {
        return None;
    }
    // Without a word about it, 0 is what counts.
    match url.contains("ttl=0") {
        true => Some(url.replacen("ttl=0", "ttl=1", 1)),
        false => Some(format!("{url}{}ttl=1", if url.contains('?') { '&' } else { '?' })),
    }
}

/// Where the newcomer shall go: the context named as the group, unless the command line says otherwise.
fn meeting_place(env: &Env<'_>, group: &str) -> Result<String, Failure> {
    let said = env.global.url.is_some() || env.global.ctx.is_some();
    let text = match Contexts::load(&env.home)?.context.get(group).filter(|_| !said) {
        Some(context) => context.url.clone(),
        None => Target::of(env)?.url.to_string(),
    };
    // What cannot be read as a URL is refused by whoever joins, as ever.
    match Url::parse(&text) {
        Ok(url) => everywhere(env, &url),
        Err(_) => Ok(text),
    }
}

/// A URL that means the same in every folder, and names its brokers: whoever joins goes by it alone (E11).
fn everywhere(env: &Env<'_>, url: &Url) -> Result<String, Failure> {
    let TransportAddress::Quorum(path) = &url.address else { return Ok(url.to_string()) };
    let absolute = std::path::absolute(path).map_err(|e| Failure::system(path.display(), &e))?;
    match load_named(path, &url.options) {
        Ok(file) => Ok(moved(url, &absolute, &file)),
        Err(e) if e.code() == Code::Missing => {
            env.output.warn(format!("{} is not here, so the invite names it as it is, without its id", path.display()));
            Ok(url.to_string())
        }
        Err(e) => Err(e.into()),
    }
}

/// The name as a file's: no folders, no leading dot.
fn file_name(called: &str) -> String {
    let plain: String = called.chars().map(|c| if c == '/' || c.is_whitespace() { '-' } else { c }).collect();
    format!("{}.invite", plain.trim_start_matches(['.', '-']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_that_stays_on_this_machine_can_reach_farther() {
        let farther = |url: &str| farther(url).unwrap_or_default();
        assert_eq!(
            farther("udpm://239.255.76.67:7667?ttl=0&keys=contributory"),
            "udpm://239.255.76.67:7667?ttl=1&keys=contributory"
        );
        assert_eq!(farther("udpm://239.255.76.67:7667"), "udpm://239.255.76.67:7667?ttl=1");
        assert_eq!(
            farther("udpm://239.255.76.67:7667?keys=contributory"),
            "udpm://239.255.76.67:7667?keys=contributory&ttl=1"
        );
        for url in ["udpm://239.255.76.67:7667?ttl=1", "mem:here", "no URL"] {
            assert_eq!(farther(url), "", "{url}");
        }
    }
}
