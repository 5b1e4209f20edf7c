//! Registrations: who a client is, in an issuer's words.

use sealcast_crypto::hash::{Transcript, sha256};
use sealcast_crypto::identity::{Attribute, Certificate, CertificateError};
use sealcast_crypto::signature::{Algorithm, PublicKey, SIGNATURE_LEN, Signature, SigningKey};
use sealcast_wire::{Malformed, Reader, Utc, Writer, limits};

use super::Client;
use crate::genesis::{Cluster, Genesis, Issuer};

/// What `reg` orders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// Whether the client wants advertisements before it has a subscription.
    pub intent: bool,
    /// Who vouches for it.
    pub proof: Proof,
}

/// Who vouches for a client: an issuer's word on somebody's key. Where that key is not the client's own (a holder has
/// several clients, and its key may be of P-256), its signature over
/// `T("sealcast/v1/client key"; cluster, client, SHA-256 of the word)` names the client's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Proof {
    /// An issuer's certificate (DER).
    Certificate {
        /// Of which issuer.
        issuer: String,
        /// The certificate.
        der: Vec<u8>,
        /// The certificate's key on the client's.
        binding: Option<Signature>,
    },
    /// Attributes that an issuer signed.
    Claim {
        /// What it signed.
        claim: Box<Claim>,
        /// The holder's key on the client's.
        binding: Option<Signature>,
    },
}

/// An issuer's word on the holder of a key, without X.509.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Who says so.
    pub issuer: String,
    /// Unique within the issuer; what a revocation names.
    pub serial: Vec<u8>,
    /// The first second of its time.
    pub not_before: Utc,
    /// The last second of its time.
    pub not_after: Utc,
    /// Keys and values; the issuer is the one above. Strictly ascending.
    pub attributes: Vec<(String, String)>,
    /// Of whom it is said: a client's key, or one that names clients.
    pub holder: PublicKey,
    /// The issuer's, over `T("sealcast/v1/claim"; all of the above)`.
    pub signature: Signature,
}

/// What an issuer's word says, verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential {
    /// Who says so.
    pub issuer: String,
    /// Unique within the issuer.
    pub serial: Vec<u8>,
    /// The last second of its time.
    pub not_after: Utc,
    /// What is said. Attributes in another issuer's name do not count (E3).
    pub attributes: Vec<Attribute>,
}

impl Credential {
    /// Issuer and serial.
    pub fn name(&self) -> (String, Vec<u8>) {
        (self.issuer.clone(), self.serial.clone())
    }
}

/// Why a registration is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProofError {
    /// Genesis does not name the issuer, or not for this kind of proof.
    #[error("the cluster does not know this issuer")]
    Issuer,
    /// The certificate.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// The claim's signature, or the holder's key on the client's.
    #[error("the signature is wrong")]
    Signature,
    /// The block's time is not within the claim's.
    #[error("the claim is not valid at the time of the block")]
    Time,
    /// The attributes.
    #[error("the claim has attributes that are none, or not in order")]
    Attributes,
}

impl ProofError {
    /// Whether it is wrong for whoever judges it, whenever.
    pub fn is_lasting(&self) -> bool {
        use CertificateError::{AuthorityExpired, Expired, NotYetValid};
        !matches!(self, ProofError::Time | ProofError::Certificate(AuthorityExpired | Expired | NotYetValid))
    }
}

impl Registration {
    /// What the issuer says, if it says so at this time, which is a block's (E10).
    ///
    /// # Errors
    /// The first that does not hold.
    pub fn verify(
        &self,
        genesis: &Genesis,
        cluster: &Cluster,
        client: &Client,
        at: Utc,
    ) -> Result<Credential, ProofError> {
        self.judge(genesis, cluster, client, |_| at)
    }

    /// The same of what may be said from a later time on alone: the newest block may be old.
    ///
    /// # Errors
    /// The first that does not hold.
    pub fn verify_early(
        &self,
        genesis: &Genesis,
        cluster: &Cluster,
        client: &Client,
        at: Utc,
    ) -> Result<Credential, ProofError> {
        self.judge(genesis, cluster, client, |not_before| at.max(not_before))
    }

    /// At a time that may depend on when the proof's begins.
    fn judge(
        &self,
        genesis: &Genesis,
        cluster: &Cluster,
        client: &Client,
        at: impl FnOnce(Utc) -> Utc,
    ) -> Result<Credential, ProofError> {
        match &self.proof {
            Proof::Certificate { issuer, der, binding } => {
                let Some(Issuer::Authority { anchor, .. }) = genesis.issuers.get(issuer) else {
                    return Err(ProofError::Issuer);
                };
                let certificate = Certificate::parse(der)?;
                let at = at(certificate.not_before());
                let verified = anchor.verify(&certificate, Some(at), Utc(i64::MIN))?;
                // That allows for a clock's error at both ends. A block's time is what it is: with its time a credential's
                // place is free, and nobody takes it again (E10).
                if at > verified.not_after {
                    return Err(CertificateError::Expired.into());
                }
                names(&verified.key, cluster, client, &verified.hash.0, binding.as_ref())?;
                let mut attributes = verified.attributes.clone();
                attributes.retain(|a| a.issuer == *issuer);
                attributes.truncate(limits::CLAIMED_ATTRIBUTES_MAX);
                let serial = verified.serial.as_bytes().to_vec();
                Ok(Credential { issuer: issuer.clone(), serial, not_after: verified.not_after, attributes })
            }
            Proof::Claim { claim, binding } => {
                let credential = claim.verify(genesis, at(claim.not_before))?;
                names(&claim.holder, cluster, client, &claim.hash(), binding.as_ref())?;
                Ok(credential)
            }
        }
    }

    pub(super) fn encode(&self, w: &mut Writer) {
        w.u8(u8::from(self.intent));
        match &self.proof {
            Proof::Certificate { issuer, der, binding } => {
                w.u8(1).bytes16(issuer.as_bytes()).bytes16(der);
                encode_binding(w, binding.as_ref());
            }
            Proof::Claim { claim, binding } => {
                claim.encode(w.u8(2));
                encode_binding(w, binding.as_ref());
            }
        }
    }

    pub(super) fn decode(r: &mut Reader<'_>) -> Result<Registration, Malformed> {
        let intent = flag(r)?;
        let proof = match r.u8()? {
            1 => {
                let issuer = text(r)?;
                let der = r.bytes16(limits::CERTIFICATE_BYTES_MAX)?.to_vec();
                Proof::Certificate { issuer, der, binding: decode_binding(r)? }
            }
            2 => Proof::Claim { claim: Box::new(Claim::decode(r)?), binding: decode_binding(r)? },
            _ => return Err(Malformed),
        };
        Ok(Registration { intent, proof })
    }
}

impl From<Claim> for Proof {
    /// Of the client whose own key the holder's is.
    fn from(claim: Claim) -> Proof {
        Proof::Claim { claim: Box::new(claim), binding: None }
    }
}

impl Proof {
    /// Whether both are the same word of an issuer's, whatever client its holder names.
    pub fn is_same_statement(&self, other: &Proof) -> bool {
        match (self, other) {
            (Proof::Certificate { der: one, .. }, Proof::Certificate { der: other, .. }) => one == other,
            (Proof::Claim { claim: one, .. }, Proof::Claim { claim: other, .. }) => one == other,
            _ => false,
        }
    }
}

impl Claim {
    /// An issuer's word, signed. Attributes are put in order.
    pub fn sign(
        issuer: &str,
        serial: &[u8],
        validity: (Utc, Utc),
        attributes: &[(&str, &str)],
        holder: &PublicKey,
        key: &SigningKey,
    ) -> Claim {
        let mut attributes: Vec<_> = attributes.iter().map(|&(k, v)| (k.to_owned(), v.to_owned())).collect();
        attributes.sort();
        attributes.dedup();
        let (not_before, not_after) = validity;
        let (issuer, serial, holder) = (issuer.to_owned(), serial.to_vec(), holder.clone());
        let signature = [0; SIGNATURE_LEN];
        let mut claim = Claim { issuer, serial, not_before, not_after, attributes, holder, signature };
        claim.signature = key.sign(&claim.digest());
        claim
    }

    /// What is said, if a cluster takes this issuer's claims and its time is not over.
    ///
    /// # Errors
    /// The first that does not hold.
    pub fn verify(&self, genesis: &Genesis, at: Utc) -> Result<Credential, ProofError> {
        let Some(Issuer::Key(key)) = genesis.issuers.get(&self.issuer) else { return Err(ProofError::Issuer) };
        if at < self.not_before || at > self.not_after {
            return Err(ProofError::Time);
        }
        let attributes: Result<Vec<_>, _> =
            self.attributes.iter().map(|(k, v)| Attribute::new(&self.issuer, k, v)).collect();
        let attributes = attributes.map_err(|_| ProofError::Attributes)?;
        key.verify(&self.digest(), &self.signature).map_err(|_| ProofError::Signature)?;
        let (issuer, serial) = (self.issuer.clone(), self.serial.clone());
        Ok(Credential { issuer, serial, not_after: self.not_after, attributes })
    }

    /// Its bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut w = Writer::new();
        self.encode(&mut w);
        w.finish()
    }

    /// Reads what [`Claim::to_bytes`] wrote.
    ///
    /// # Errors
    /// [`Malformed`], also if attributes are not in order or the holder's key is none.
    pub fn from_bytes(bytes: &[u8]) -> Result<Claim, Malformed> {
        let mut r = Reader::new(bytes);
        let claim = Claim::decode(&mut r)?;
        r.end()?;
        Ok(claim)
    }

    /// SHA-256 of its bytes, by which its holder names clients.
    pub fn hash(&self) -> [u8; 32] {
        sha256(&self.to_bytes())
    }

    fn digest(&self) -> [u8; 32] {
        let mut w = Writer::new();
        self.encode_unsigned(&mut w);
        Transcript::new("sealcast/v1/claim").add(w.as_slice()).finish()
    }

    fn encode(&self, w: &mut Writer) {
        self.encode_unsigned(w);
        w.raw(&self.signature);
    }

    fn encode_unsigned(&self, w: &mut Writer) {
        w.bytes16(self.issuer.as_bytes()).bytes16(&self.serial);
        w.raw(&self.not_before.0.to_be_bytes()).raw(&self.not_after.0.to_be_bytes());
        w.u16(u16::try_from(self.attributes.len()).expect("attributes have a limit"));
        for (key, value) in &self.attributes {
            w.bytes16(key.as_bytes()).bytes16(value.as_bytes());
        }
        w.bytes16(&self.holder.to_bytes());
    }

    fn decode(r: &mut Reader<'_>) -> Result<Claim, Malformed> {
        let issuer = text(r)?;
        let serial = r.bytes16(limits::ATTRIBUTE_BYTES_MAX)?.to_vec();
        let (not_before, not_after) = (Utc(i64::from_be_bytes(r.array()?)), Utc(i64::from_be_bytes(r.array()?)));
        let count = r.count16(4, limits::CLAIMED_ATTRIBUTES_MAX)?;
        let attributes: Vec<_> = (0..count).map(|_| Ok((text(r)?, text(r)?))).collect::<Result<_, Malformed>>()?;
        if !attributes.is_sorted_by(|a, b| a < b) {
            return Err(Malformed);
        }
        let holder = PublicKey::from_bytes(r.bytes16(P256_KEY_LEN)?).map_err(|_| Malformed)?;
        Ok(Claim { issuer, serial, not_before, not_after, attributes, holder, signature: r.array()? })
    }
}

/// What the holder's key of a certificate or claim (its SHA-256) signs to name a client's key.
pub fn binding_digest(cluster: &Cluster, client: &Client, word: &[u8; 32]) -> [u8; 32] {
    Transcript::new("sealcast/v1/client key").add(&cluster.0).add(&client.0).add(word).finish()
}

/// Whether a client is a holder's: its key is the holder's, or the holder's names it; either, never both.
fn names(
    holder: &PublicKey,
    cluster: &Cluster,
    client: &Client,
    word: &[u8; 32],
    binding: Option<&Signature>,
) -> Result<(), ProofError> {
    let own = holder.algorithm() == Algorithm::Ed25519 && holder.point() == client.0;
    match binding {
        None if own => Ok(()),
        Some(signature) if !own => {
            let message = binding_digest(cluster, client, word);
            holder.verify(&message, signature).map_err(|_| ProofError::Signature)
        }
        _ => Err(ProofError::Signature),
    }
}

fn encode_binding(w: &mut Writer, binding: Option<&Signature>) {
    w.u8(u8::from(binding.is_some()));
    if let Some(signature) = binding {
        w.raw(signature);
    }
}

fn decode_binding(r: &mut Reader<'_>) -> Result<Option<Signature>, Malformed> {
    Ok(if flag(r)? { Some(r.array()?) } else { None })
}

/// A public key of P-256 with its algorithm before it; one of Ed25519 is shorter.
const P256_KEY_LEN: usize = 66;

fn flag(r: &mut Reader<'_>) -> Result<bool, Malformed> {
    match r.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Malformed),
    }
}

fn text(r: &mut Reader<'_>) -> Result<String, Malformed> {
    let bytes = r.bytes16(limits::ATTRIBUTE_BYTES_MAX)?;
    String::from_utf8(bytes.to_vec()).map_err(|_| Malformed)
}
