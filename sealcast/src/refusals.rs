//! What the brokers' refusals are to a user: an error with its code, and what to do about it.

use sealcast_broker::state::{Code as Became, OperationResult as Came};
use sealcast_wire::Reason;

use crate::code::Code;
use crate::error::{Error, Result};

/// The error of an operation that brokers executed to nothing for this reason.
pub(crate) fn refused(reason: Reason) -> Error {
    let why = Became::try_from(reason).ok().and_then(|code| done(&Came { code, detail: Vec::new() }).err());
    why.unwrap_or_else(|| Error::new(Code::NotReady, "the brokers executed nothing of it"))
}

/// The error of an operation that brokers executed to nothing.
pub(crate) fn done(outcome: &Came) -> Result<()> {
    let number = || outcome.detail.first_chunk::<8>().map_or(0, |n| u64::from_be_bytes(*n));
    let unregistered = "sealcast brokers reg, with an identity of an issuer that the cluster file names";
    Err(match outcome.code {
        Became::Done => return Ok(()),
        Became::Unregistered => {
            Error::new(Code::Denied, "the brokers do not know us, or nobody vouches for us any more")
                .with_hint(unregistered)
        }
        Became::Revoked => {
            Error::new(Code::Excluded, "administrators have revoked this client, whatever its certificate")
                .with_hint("a new key is a new client: sealcast id new NAME, and a certificate of an issuer for it")
        }
        Became::CredentialRevoked => Error::new(Code::Excluded, "administrators have revoked our certificate")
            .with_hint("the issuer gives a new one: sealcast ca issue NAME --ca ISSUER --attr …"),
        Became::Proof => {
            Error::new(Code::Authority, "the brokers do not accept our certificate: expired, or not of its issuer")
                .with_hint("sealcast id show; the cluster file names the issuers")
        }
        Became::Denied => Error::new(Code::DeniedPublish, "the cluster's policy does not let us publish there")
            .with_hint("sealcast policy why --topic TOPIC --publish"),
        Became::StalePolicy | Became::StaleEpoch => Error::new(Code::NotReady, "policy or key changed meanwhile"),
        Became::TooMany => Error::new(Code::Full, "too many subscriptions, or attributes")
            .with_hint("sealcast sub --list shows yours, and «sealcast sub --end PATTERN» ends one"),
        Became::NoSubscription => Error::new(Code::BadValue, "there is no such subscription"),
        Became::NoNumber => {
            Error::new(Code::BadValue, "what is to be incremented is no number, or the sum is too large")
        }
        Became::Mismatch => Error::new(Code::BadValue, "the value is not what was expected"),
        Became::Signatures => Error::new(Code::Denied, "not signed by enough administrators")
            .with_hint("sealcast brokers sign FILE adds a signature"),
        Became::AdminNumber => {
            Error::new(Code::BadValue, format!("the brokers execute act {} of the administrators next", number()))
                .with_hint("acts are executed in order, each once; begin this one again")
        }
        Became::Futile => Error::new(Code::BadValue, "this has changed nothing: what it asks for is so already")
            .with_hint("nothing is left to do; 'sealcast brokers status' shows who is suspended"),
        Became::Suspended => {
            let since = number();
            Error::new(Code::Excluded, format!("since block {since} evidence keeps this client from publishing"))
                .with_hint(
                    "it sealed what opens to nothing; administrators restore it: sealcast brokers restore CLIENT",
                )
        }
        Became::Unfounded => Error::new(Code::BadValue, "what is accused does not stand there"),
        Became::Duplicate | Became::Gap => {
            Error::new(Code::Duplicate, "another process uses the same client key of these brokers")
        }
    })
}
