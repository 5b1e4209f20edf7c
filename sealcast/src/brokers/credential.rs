//! How long somebody vouches for a client: with that ends what it has standing at the brokers, and they tell nobody.
//!
//! Time is the brokers' (E10), so that a clock that is wrong here ends nothing that goes on there.

use std::time::Duration;

use sealcast_broker::operation::{Proof, Registration};
use sealcast_crypto::identity::Certificate;
use sealcast_wire::Utc;

use crate::code::Code;
use crate::error::Error;

/// The time of a credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Credential {
    not_before: Utc,
    pub(super) not_after: Utc,
}

impl Credential {
    /// Of the credential that this registers with; `None` if it cannot be read.
    pub(super) fn of(registration: &Registration) -> Option<Credential> {
        let (not_before, not_after) = match &registration.proof {
            Proof::Certificate { der, .. } => {
                let certificate = Certificate::parse(der).ok()?;
                (certificate.not_before(), certificate.not_after())
            }
            Proof::Claim { claim, .. } => (claim.not_before, claim.not_after),
        };
        Some(Credential { not_before, not_after })
    }

    /// Whether its time was over at a block's.
    pub(super) fn is_over(&self, at: Utc) -> bool {
        at > self.not_after
    }

    /// Its last second, once so little of its time is left that it should be renewed.
    pub(super) fn ends_soon(&self, at: Utc) -> Option<Utc> {
        let seconds = |from: Utc, to: Utc| u64::try_from(to.0.saturating_sub(from.0)).unwrap_or(0);
        let tenth = Duration::from_secs(seconds(self.not_before, self.not_after) / 10);
        let left = Duration::from_secs(seconds(at, self.not_after));
        (left <= tenth.min(WARN_BEFORE_MAX)).then_some(self.not_after)
    }
}

/// Its time is over.
pub(super) fn expired() -> Error {
    Error::new(
        Code::CertificateExpired,
        "the time of our certificate is over, and with it what stood for us at the brokers",
    )
    .with_hint(RENEW)
}

/// The brokers executed an operation of ours to that: nobody vouches for us.
pub(crate) fn ended() -> Error {
    Error::new(Code::Excluded, "nobody vouches for us at the brokers any more, and what stood for us there has ended")
        .with_hint(RENEW)
}

const RENEW: &str =
    "sealcast id show; whoever runs the authority renews it: sealcast ca issue NAME --ca ISSUER --attr …";
/// However long it lasts, this much before its end is early enough to be told of it.
const WARN_BEFORE_MAX: Duration = Duration::from_secs(14 * 86_400);

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 86_400;

    #[test]
    fn a_warning_comes_when_a_tenth_is_left_and_not_much_earlier_than_two_weeks() {
        let of = |days: i64| Credential { not_before: Utc(0), not_after: Utc(days * DAY) };
        let (short, usual, long) = (of(1), of(90), of(3650));
        assert_eq!(short.ends_soon(Utc(DAY * 89 / 100)), None);
        assert_eq!(short.ends_soon(Utc(DAY * 91 / 100)), Some(Utc(DAY)));
        assert_eq!((usual.ends_soon(Utc(80 * DAY)), usual.ends_soon(Utc(81 * DAY))), (None, Some(Utc(90 * DAY))));
        assert_eq!((long.ends_soon(Utc(3635 * DAY)), long.ends_soon(Utc(3636 * DAY))), (None, Some(Utc(3650 * DAY))));
        assert!(!usual.is_over(Utc(90 * DAY)) && usual.is_over(Utc(90 * DAY + 1)), "its last second is one of it");
    }
}
