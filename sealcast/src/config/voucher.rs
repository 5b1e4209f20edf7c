//! What issuers beside its own authority say of an identity's key: a certificate of theirs, or a claim.

use sealcast_broker::genesis::{Genesis, Issuer};
use sealcast_broker::operation::Claim;
use sealcast_crypto::identity::{Attribute, Certificate, pem};
use sealcast_crypto::signature::PublicKey;
use sealcast_wire::Utc;

/// An issuer's word on a key.
#[derive(Clone, Debug)]
pub enum Voucher {
    /// Of an issuer that is an authority.
    Certificate(Certificate),
    /// Of an issuer that is known by its key alone.
    Claim(Claim),
}

impl Voucher {
    /// The first claim or else certificate in a text.
    ///
    /// # Errors
    /// Why there is none.
    pub fn from_pem(text: &str) -> Result<Voucher, String> {
        if let Some(bytes) = pem::read(CLAIM, text) {
            return Claim::from_bytes(&bytes).map(Voucher::Claim).map_err(|_| "the claim in it is damaged".to_owned());
        }
        let Some(der) = pem::read(pem::CERTIFICATE, text) else {
            return Err("neither a certificate nor a claim is in it".to_owned());
        };
        let certificate = Certificate::parse(&der).map_err(|e| format!("the certificate in it: {e}"))?;
        Ok(Voucher::Certificate(certificate))
    }

    /// As text.
    pub fn to_pem(&self) -> String {
        match self {
            Voucher::Certificate(certificate) => certificate.to_pem(),
            Voucher::Claim(claim) => pem::write(CLAIM, &claim.to_bytes()),
        }
    }

    /// Whether it is said of whoever has this key.
    pub fn is_of(&self, key: &PublicKey) -> bool {
        match self {
            Voucher::Certificate(certificate) => certificate.key().as_ref() == Ok(key),
            Voucher::Claim(claim) => claim.holder == *key,
        }
    }

    /// Unique within the issuer, as people read it and `brokers revoke --serial` takes it.
    pub fn serial(&self) -> String {
        match self {
            Voucher::Certificate(certificate) => certificate.serial().to_string(),
            Voucher::Claim(claim) => {
                claim.serial.iter().fold("0x".to_owned(), |text, byte| format!("{text}{byte:02x}"))
            }
        }
    }

    /// Who speaks, as far as it says so itself.
    pub fn issuer_name(&self) -> Option<String> {
        match self {
            Voucher::Certificate(certificate) => certificate.attributes().first().map(|it| it.issuer.clone()),
            Voucher::Claim(claim) => Some(claim.issuer.clone()),
        }
    }

    /// The last second of its time.
    pub fn not_after(&self) -> Utc {
        match self {
            Voucher::Certificate(certificate) => certificate.not_after(),
            Voucher::Claim(claim) => claim.not_after,
        }
    }

    /// What is said. Brokers do not count attributes in another issuer's name than the one that speaks (E3).
    pub fn attributes(&self) -> Vec<Attribute> {
        match self {
            Voucher::Certificate(certificate) => certificate.attributes().to_vec(),
            Voucher::Claim(claim) => {
                let said = claim.attributes.iter();
                said.filter_map(|(key, value)| Attribute::new(&claim.issuer, key, value).ok()).collect()
            }
        }
    }

    /// The name under which a cluster knows who speaks; `None` if it takes nobody's word that says this.
    pub fn issuer<'a>(&self, genesis: &'a Genesis) -> Option<&'a str> {
        let speaks = |name: &str, issuer: &Issuer| match (self, issuer) {
            (Voucher::Certificate(it), Issuer::Authority { anchor, .. }) => {
                anchor.verify(it, Some(it.not_before()), Utc(i64::MIN)).is_ok()
            }
            (Voucher::Claim(it), Issuer::Key(_)) => it.issuer == name && it.verify(genesis, it.not_before).is_ok(),
            _ => false,
        };
        genesis.issuers.iter().find(|(name, issuer)| speaks(name, issuer)).map(|(name, _)| name.as_str())
    }
}

/// Label of a claim.
const CLAIM: &str = "SEALCAST CLAIM";
