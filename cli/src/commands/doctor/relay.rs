//! What `doctor` and `relay check` look at where the URL goes through a relay: its broker, its directory, and what both see.

use std::time::Duration;

use sealcast::relay::{DirectoryStatus, check as look};
use sealcast::url::Scheme;

use super::{Check, of_failure};
use crate::commands::Env;
use crate::target::Target;
use crate::text::duration;

/// Checks of the MQTT broker and of the directory.
pub(crate) fn check(env: &Env<'_>, target: &Target) -> Vec<Check> {
    let checked = target.identity(env).and_then(|id| Ok(look(&target.url, &env.home, id.as_deref(), LOOK)?));
    let checked = match checked {
        Ok(checked) => checked,
        Err(failure) => return vec![of_failure("relay", &failure)],
    };
    let mut checks = vec![match checked.broker {
        Ok(took) => {
            let took = duration(took);
            Check::good("broker", format!("a message to {} came back after {took}", checked.topic))
        }
        Err(e) => of_failure("broker", &e.into()),
    }];
    match checked.directory {
        Some(Ok(it)) => checks.extend(of_directory(&it)),
        Some(Err(e)) => checks.push(of_failure("directory", &e.into())),
        None => {}
    }
    checks
}

fn of_directory(it: &DirectoryStatus) -> Vec<Check> {
    let (took, position) = (duration(it.took), it.position);
    let log = position.map_or("nobody has founded the group there".to_owned(), |it| format!("its log ends at {it}"));
    let mut checks = vec![
        Check::good("directory", format!("answers after {took}; {log}")),
        Check::good("receipts", format!("it has the pinned key {}", it.relay)),
    ];
    if let Some(ahead) = it.clock_ahead {
        let found =
            format!("its clock is {} s {}", ahead.abs(), if ahead < 0 { "behind ours" } else { "ahead of ours" });
        checks.push(match ahead.abs() > CLOCK_SECONDS {
            true => Check::hurts("its clock", found, "sudo timedatectl set-ntp true, there and here"),
            false => Check::good("its clock", found),
        });
    }
    checks
}

/// What a relay sees of the group (D4), a line each.
pub(crate) fn sees(target: &Target) -> Vec<&'static str> {
    let mut all = vec![
        "who subscribes: addresses, times and client ids of all connections, and that they are of one group",
        "who publishes when, and how many bytes: messages are not padded",
    ];
    match target.url.keys {
        Scheme::Plain => all.push("keys=plain: all names, topics and payloads, too"),
        Scheme::Mls => {
            all.push("which connection appends which handshake, its size, and how often keys change");
            all.push("names of devices that mean nothing to it, and how many key packages each has there");
        }
        _ => {}
    }
    if target.url.keys != Scheme::Plain {
        all.push("no names, topics or payloads, nor who is allowed what");
    }
    all
}

/// How long each of the two is waited for.
const LOOK: Duration = Duration::from_secs(5);
/// Clocks of HTTP show whole seconds.
const CLOCK_SECONDS: i64 = 60;
