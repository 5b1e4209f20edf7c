//! PEM (RFC 7468), where people expect it: certificates, revocation lists, and our own files in its manner.

/// One section as text.
pub fn write(label: &str, bytes: &[u8]) -> String {
    let config = ::pem::EncodeConfig::new().set_line_ending(::pem::LineEnding::LF);
    ::pem::encode_config(&::pem::Pem::new(label, bytes), config)
}

/// The first section of this kind in a text; `None` if there is none, or it is broken.
pub fn read(label: &str, text: &str) -> Option<Vec<u8>> {
    ::pem::parse_many(text).ok()?.into_iter().find(|p| p.tag() == label).map(::pem::Pem::into_contents)
}

/// Label of a certificate.
pub const CERTIFICATE: &str = "CERTIFICATE";
/// Label of a revocation list.
pub const CRL: &str = "X509 CRL";
/// Label of a signed policy.
pub const POLICY: &str = "SEALCAST POLICY";
