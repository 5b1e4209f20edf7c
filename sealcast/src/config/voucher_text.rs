//! What issuers say of an identity's key, in a program that goes through no brokers: kept as it was read.

/// An issuer's word on a key, as text.
#[derive(Clone, Debug)]
pub struct Voucher(String);

impl Voucher {
    /// Takes a text as it is.
    ///
    /// # Errors
    /// None; a program that goes through brokers reads it.
    pub fn from_pem(text: &str) -> Result<Voucher, String> {
        Ok(Voucher(text.to_owned()))
    }

    /// As it was read.
    pub fn to_pem(&self) -> String {
        self.0.clone()
    }
}
