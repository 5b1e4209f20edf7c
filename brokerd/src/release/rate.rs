//! How often one client is given proofs of shares (E4).

use std::collections::BTreeMap;
use std::time::Instant;

use sealcast_broker::operation::Client;
use sealcast_wire::limits;

/// By client: what it may still ask, and when that was.
#[derive(Default)]
pub(super) struct Rate(BTreeMap<Client, (f64, Instant)>);

impl Rate {
    /// Whether the client may have one more now.
    pub(super) fn allows(&mut self, client: &Client, now: Instant) -> bool {
        let (burst, per_second) = (f64::from(limits::PROOFS_AT_ONCE), f64::from(limits::PROOFS_PER_SECOND));
        let filled = |(left, at): (f64, Instant)| {
            (left + now.saturating_duration_since(at).as_secs_f64() * per_second).min(burst)
        };
        if self.0.len() > limits::PROOF_CLIENTS_MAX {
            // Who has not asked for long is as one who never did.
            self.0.retain(|_, it| filled(*it) < burst);
        }
        let left = self.0.get(client).map_or(burst, |it| filled(*it));
        let allowed = left >= 1.0;
        self.0.insert(*client, (if allowed { left - 1.0 } else { left }, now));
        allowed
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn rule_e4_proofs_are_given_at_a_rate_to_each_client() {
        let (mut rate, start) = (Rate::default(), Instant::now());
        let (one, other) = (Client([1; 32]), Client([2; 32]));
        let granted =
            |rate: &mut Rate, client, at| (0..limits::PROOFS_AT_ONCE * 2).filter(|_| rate.allows(client, at)).count();
        assert_eq!(granted(&mut rate, &one, start), limits::PROOFS_AT_ONCE as usize);
        assert_eq!(granted(&mut rate, &other, start), limits::PROOFS_AT_ONCE as usize);
        assert_eq!(granted(&mut rate, &one, start + Duration::from_secs(1)), limits::PROOFS_PER_SECOND as usize);
        assert!(rate.allows(&one, start + Duration::from_secs(100)));
    }
}
