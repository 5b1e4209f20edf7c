//! What the brokers' refusals are to a user: an error with its code, and what to do about it.

use sealcast_broker::state::{Code as Became, OperationResult as Came};
use sealcast_wire::Reason;

use crate::code::Code;
use crate::error::{Error, Result};
use crate::remedy::Remedy;

/// The error of an operation that brokers executed to nothing for this reason.
pub(crate) fn refused(reason: Reason) -> Error {
    let why = Became::try_from(reason).ok().and_then(|code| done(&Came { code, detail: Vec::new() }).err());
    why.unwrap_or_else(|| Error::new(Code::NotReady, "the brokers executed nothing of it"))
}

/// The error of an operation that brokers executed to nothing.
pub(crate) fn done(outcome: &Came) -> Result<()> {
    let number = || outcome.detail.first_chunk::<8>().map_or(0, |n| u64::from_be_bytes(*n));
    Err(match outcome.code {
        Became::Done => return Ok(()),
        Became::Unregistered => {
            Error::new(Code::Denied, "the brokers do not know us, or nobody vouches for us any more")
                .with_remedy(Remedy::Register)
        }
        Became::Revoked => {
            Error::new(Code::Excluded, "administrators have revoked this client, whatever its certificate")
                .with_remedy(Remedy::NewKey)
        }
        Became::CredentialRevoked => Error::new(Code::Excluded, "administrators have revoked our certificate")
            .with_remedy(Remedy::NewCertificate),
        Became::Proof => {
            Error::new(Code::Authority, "the brokers do not accept our certificate: expired, or not of its issuer")
                .with_remedy(Remedy::CheckIssuer)
        }
        Became::Denied => Error::new(Code::DeniedPublish, "the cluster's policy does not let us publish there")
            .with_remedy(Remedy::ExplainPolicy),
        Became::StalePolicy | Became::StaleEpoch => Error::new(Code::NotReady, "policy or key changed meanwhile"),
        Became::TooMany => {
            Error::new(Code::Full, "too many subscriptions, or attributes").with_remedy(Remedy::EndSubscription)
        }
        Became::NoSubscription => Error::new(Code::BadValue, "there is no such subscription"),
        Became::NoNumber => {
            Error::new(Code::BadValue, "what is to be incremented is no number, or the sum is too large")
        }
        Became::Mismatch => Error::new(Code::BadValue, "the value is not what was expected"),
        Became::Signatures => {
            Error::new(Code::Denied, "not signed by enough administrators").with_remedy(Remedy::AddSignature)
        }
        Became::AdminNumber => {
            Error::new(Code::BadValue, format!("the brokers execute act {} of the administrators next", number()))
                .with_hint("acts are executed in order, each once; begin this one again")
        }
        Became::Futile => Error::new(Code::BadValue, "this has changed nothing: what it asks for is so already")
            .with_remedy(Remedy::NothingLeft),
        Became::Suspended => {
            let since = number();
            Error::new(Code::Excluded, format!("since block {since} evidence keeps this client from publishing"))
                .with_remedy(Remedy::RestoreClient { client: None })
        }
        Became::Unfounded => Error::new(Code::BadValue, "what is accused does not stand there"),
        Became::Duplicate | Became::Gap => {
            Error::new(Code::Duplicate, "another process uses the same client key of these brokers")
        }
    })
}
