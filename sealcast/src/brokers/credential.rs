//! Whether somebody vouches for a client, and how long: with that ends what it has standing at the brokers, and they tell
//! nobody.
//!
//! Time is the brokers' (E10), so that a clock that is wrong here ends nothing that goes on there.

use std::collections::BTreeMap;
use std::time::Duration;

use sealcast_broker::operation::{Operation, OperationId, Proof, Registration};
use sealcast_client::Notice;
use sealcast_crypto::identity::Certificate;
use sealcast_wire::Utc;

use crate::code::Code;
use crate::error::Error;
use crate::refusals::done;
use crate::remedy::Remedy;

/// What is known of this client at the brokers.
pub(crate) struct ClientStatus {
    /// Until when issuers vouch for us, by the registrations that say so and were not refused.
    credentials: BTreeMap<OperationId, Credential>,
    /// Why the brokers do not take our registration.
    not_registered: Option<Error>,
    /// f + 1 brokers do not know us, and we have no registration to give.
    nobody_vouches: bool,
    /// f + 1 brokers say of us, who wait for publications, that nobody vouches for us any more.
    not_vouched: bool,
}

impl ClientStatus {
    pub(crate) fn new(registrations: &[Registration]) -> ClientStatus {
        let mut status = ClientStatus {
            credentials: BTreeMap::new(),
            not_registered: None,
            nobody_vouches: false,
            not_vouched: false,
        };
        registrations.iter().for_each(|it| status.submits(&Operation::Register(it.clone())));
        status
    }

    /// An operation of ours is ordered: perhaps one that registers us.
    pub(crate) fn submits(&mut self, operation: &Operation) {
        if let Operation::Register(registration) = operation
            && let Some(credential) = Credential::of(registration)
        {
            self.credentials.insert(OperationId::of(&operation.to_bytes()), credential);
        }
    }

    /// Takes in what the brokers say of us, at a block of this time.
    pub(crate) fn noticed(&mut self, notice: &Notice, at: Option<Utc>) {
        match notice {
            Notice::Unregistered => self.nobody_vouches = true,
            Notice::NotVouched => self.not_vouched = true,
            // Of several the first one tells: it is the own certificate, where there is one.
            Notice::NotRegistered(registration, outcome) => {
                // One whose time is over stays: that is why, and what its holder is told.
                self.credentials
                    .retain(|it, credential| it != registration || at.is_some_and(|at| credential.is_over(at)));
                self.not_registered = self.not_registered.take().or(done(outcome).err());
            }
            Notice::RolledBack { .. } | Notice::Misbehaved { .. } | Notice::Evidence(_) => {}
        }
    }

    /// f + 1 brokers know us.
    pub(crate) fn registered(&mut self) {
        self.not_registered = None;
    }

    /// Why we cannot become known to brokers, if so; whether they do not know us, and whether a registration is under way.
    pub(crate) fn unregistered(&self, at: Option<Utc>, is_unknown: bool, is_registering: bool) -> Option<Error> {
        if let Some(why) = at.and_then(|at| self.expired(at)) {
            return Some(why);
        }
        // Somebody else may still vouch for us.
        if is_unknown
            && !is_registering
            && let Some(why) = &self.not_registered
        {
            return Some(why.clone());
        }
        (is_unknown && self.nobody_vouches).then(|| {
            Error::new(
                Code::Denied,
                "the brokers do not know us, and no issuer of the cluster has given us a certificate",
            )
            .with_remedy(Remedy::AskIssuer)
        })
    }

    /// The last second of the time of the last of our credentials, once little of it is left.
    pub(crate) fn ends_soon(&self, at: Utc) -> Option<Utc> {
        self.credentials.values().max_by_key(|it| it.not_after)?.ends_soon(at)
    }

    /// That the time of all our credentials is over.
    pub(crate) fn expired(&self, at: Utc) -> Option<Error> {
        self.are_over(at).then(expired)
    }

    /// Why nothing comes any more for us, if so.
    pub(crate) fn excluded(&self, at: Option<Utc>) -> Option<Error> {
        at.and_then(|at| self.expired(at)).or_else(|| self.not_vouched.then(|| self.not_vouched(at)))
    }

    /// Why nobody vouches for us, as f + 1 brokers say: they may know a later block than we do, at which our time was over.
    pub(crate) fn not_vouched(&self, at: Option<Utc>) -> Error {
        let later = at.map(|at| Utc(at.0.saturating_add(BROKERS_AHEAD_SECONDS)));
        if later.is_some_and(|at| self.are_over(at)) { expired() } else { ended() }
    }

    fn are_over(&self, at: Utc) -> bool {
        !self.credentials.is_empty() && self.credentials.values().all(|it| it.is_over(at))
    }
}

/// The time of a credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Credential {
    not_before: Utc,
    not_after: Utc,
}

impl Credential {
    /// Of the credential that this registers with; `None` if it cannot be read.
    fn of(registration: &Registration) -> Option<Credential> {
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
    fn is_over(&self, at: Utc) -> bool {
        at > self.not_after
    }

    /// Its last second, once so little of its time is left that it should be renewed.
    fn ends_soon(&self, at: Utc) -> Option<Utc> {
        let seconds = |from: Utc, to: Utc| u64::try_from(to.0.saturating_sub(from.0)).unwrap_or(0);
        let tenth = Duration::from_secs(seconds(self.not_before, self.not_after) / 10);
        let left = Duration::from_secs(seconds(at, self.not_after));
        (left <= tenth.min(WARN_BEFORE_MAX)).then_some(self.not_after)
    }
}

/// Its time is over.
fn expired() -> Error {
    Error::new(
        Code::CertificateExpired,
        "the time of our certificate is over, and with it what stood for us at the brokers",
    )
    .with_remedy(Remedy::RenewCertificate)
}

/// The brokers executed an operation of ours to that: nobody vouches for us.
pub(crate) fn ended() -> Error {
    Error::new(Code::Excluded, "nobody vouches for us at the brokers any more, and what stood for us there has ended")
        .with_remedy(Remedy::RenewCertificate)
}

/// By how much the newest block of a broker may be later than the newest one that is known here, block time.
const BROKERS_AHEAD_SECONDS: i64 = 10;
/// However long it lasts, this much before its end is early enough to be told of it.
const WARN_BEFORE_MAX: Duration = Duration::from_secs(14 * 86_400);

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 86_400;

    #[test]
    fn rule_e10_a_refused_registration_vouches_for_nobody_and_is_the_reason_where_its_time_is_over() {
        use sealcast_broker::operation::Claim;
        use sealcast_broker::state::{Code as Became, OperationResult};
        use sealcast_crypto::secret::Secret;
        use sealcast_crypto::signature::OriginKey;
        let holder = OriginKey::from_seed(&Secret::from_bytes([1; 32])).public().clone();
        let (issuer, serial, attributes) = ("exchange".to_owned(), vec![1], Vec::new());
        let (not_before, not_after) = (Utc(0), Utc(1000));
        let claim = Claim { issuer, serial, not_before, not_after, attributes, holder, signature: [0; 64] };
        let registration = Registration { intent: false, proof: claim.into() };
        let id = OperationId::of(&Operation::Register(registration.clone()).to_bytes());
        for (at, is_over) in [(Utc(500), false), (Utc(1001), true)] {
            let mut status = ClientStatus::new(std::slice::from_ref(&registration));
            status.noticed(
                &Notice::NotRegistered(id, OperationResult { code: Became::Proof, detail: Vec::new() }),
                Some(at),
            );
            assert_eq!(status.expired(at).is_some(), is_over, "at {at:?}");
            assert_eq!(status.credentials.is_empty(), !is_over, "at {at:?}");
            let why = status.unregistered(Some(at), true, false).expect("nobody vouches for it");
            assert_eq!(why.code(), if is_over { Code::CertificateExpired } else { Code::Authority });
            assert!(is_over || status.unregistered(Some(at), true, true).is_none(), "somebody may still vouch for it");
        }
    }

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
