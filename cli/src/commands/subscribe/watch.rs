//! What a running `sub` through brokers tells its user beside what it prints: that it waits in vain, and why.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use sealcast::brokers::Brokers;
use sealcast::error::Error;

use crate::cluster::Cluster;
use crate::commands::{Env, brokers};
use crate::hint::Failure;

/// See the module.
pub(super) struct Watch {
    look_at: Instant,
    /// Whether the end of the certificate was told.
    told_of_end: bool,
    /// Since when too few brokers are connected, and whether that was told.
    cut_off: Option<(Instant, bool)>,
    /// The brokers whose shares had come when it was told that some are missing.
    told_holders: Option<BTreeSet<u16>>,
}

impl Watch {
    pub(super) fn new(client: &Brokers) -> Watch {
        let told_of_end = client.ends_soon().is_some();
        Watch { look_at: Instant::now(), told_of_end, cut_off: None, told_holders: None }
    }

    /// Looks now and then: keeps evidence that came up, and warns of what keeps publications from coming.
    ///
    /// # Errors
    /// Why nothing can come any more: nobody vouches for the client, or more brokers lie than may.
    pub(super) fn look(&mut self, env: &Env<'_>, cluster: &Cluster, client: &Brokers) -> Result<(), Failure> {
        let now = Instant::now();
        if now < self.look_at {
            return Ok(());
        }
        self.look_at = now + EVERY;
        self.told_of_end = self.told_of_end || cluster.warn_of_end(env, client);
        // A disk that is full must not end the reading.
        if let Err(e) = brokers::keep(env, &cluster.file.cluster(), &client.evidence()) {
            env.output.warn(format!("the evidence could not be kept: {}", e.what()));
        }
        if let Some(why) = client.misled().or_else(|| client.excluded()) {
            return Err(why.into());
        }
        self.look_for_brokers(env, client, now);
        self.look_for_shares(env, client);
        Ok(())
    }

    /// Warns once too few brokers have been connected for a while.
    fn look_for_brokers(&mut self, env: &Env<'_>, client: &Brokers, now: Instant) {
        let Some(why) = client.cut_off() else {
            if let Some((_, true)) = self.cut_off.take() {
                env.output.say("enough brokers answer again");
            }
            return;
        };
        let (since, told) = self.cut_off.get_or_insert((now, false));
        if !*told && now.duration_since(*since) >= CUT_OFF_TIMEOUT {
            *told = true;
            warn(env, &why);
        }
    }

    /// Warns of missing shares, and again when others are missing.
    fn look_for_shares(&mut self, env: &Env<'_>, client: &Brokers) {
        let Some(shortage) = client.shortage() else {
            if self.told_holders.take().is_some() {
                env.output.say("shares come again");
            }
            return;
        };
        if self.told_holders.as_ref() != Some(&shortage.holders) {
            warn(env, &client.explain(&shortage).wait());
            self.told_holders = Some(shortage.holders);
        }
    }
}

fn warn(env: &Env<'_>, why: &Error) {
    let hint = crate::hint::next(why).map_or_else(String::new, |hint| format!("; {hint}"));
    env.output.warn(format!("{}{hint}", why.message()));
}

/// How often a running `sub` looks.
const EVERY: Duration = Duration::from_millis(250);
/// How long too few brokers may be connected before it is told: brokers that restart are back by then.
const CUT_OFF_TIMEOUT: Duration = Duration::from_secs(5);
