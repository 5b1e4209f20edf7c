//! By which rules of the policy in force the chosen identity may not do something, as an error tells it.

use std::fmt;
use std::time::Duration;

use sealcast::brokers::Brokers;
use sealcast_broker::operation::Header;
use sealcast_broker::operation::policy::Act;

use super::why::needs;
use crate::cluster::Cluster;
use crate::commands::Env;
use crate::hint::Failure;
use crate::target;

/// See the module.
pub(crate) struct Denial {
    /// Whom: the identity's name, or "you".
    pub(crate) who: String,
    policy: u64,
    /// Each rule by its number, and what must become true.
    rules: Vec<(usize, String)>,
}

impl Denial {
    /// Of the chosen identity at these topics; `None` if no rule in force denies it, or the brokers do not tell the policy
    /// soon.
    ///
    /// # Errors
    /// The identity cannot be read.
    pub(crate) fn of(
        env: &Env<'_>,
        cluster: &Cluster,
        brokers: &Brokers,
        what: Act,
        headers: &[Header],
    ) -> Result<Option<Denial>, Failure> {
        let who = target::identity(env)?.unwrap_or_else(|| "you".to_owned());
        let attributes = cluster.attributes(env)?;
        let Ok((number, policy)) = brokers.policy(TIMEOUT).wait() else { return Ok(None) };
        let concerns = |topic: &sealcast_crypto::identity::Pattern| headers.iter().any(|it| topic.matches(&it.topic));
        let rules = (1..).zip(&policy.rules).filter(|(_, rule)| rule.act == what && concerns(&rule.topic));
        let rules: Vec<(usize, String)> = rules
            .map(|(number, rule)| (number, rule.access.why(&attributes)))
            .filter(|(_, why)| !why.holds)
            .map(|(number, why)| (number, needs(&why, false)))
            .collect();
        Ok((!rules.is_empty()).then_some(Denial { who, policy: number, rules }))
    }
}

/// `rule 2 of policy 7 needs exchange:desk = fx, and rule 3 needs …`
impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (number, needs)) in self.rules.iter().enumerate() {
            match i {
                0 => write!(f, "rule {number} of policy {} needs {needs}", self.policy)?,
                _ => write!(f, ", and rule {number} needs {needs}")?,
            }
        }
        Ok(())
    }
}

/// How long the policy in force is waited for.
const TIMEOUT: Duration = Duration::from_secs(1);
