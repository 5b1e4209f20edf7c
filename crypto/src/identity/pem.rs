//! PEM (RFC 7468), where people expect it: certificates, revocation lists, and our own files in its manner.

/// One section as text.
pub(super) fn write(label: &str, bytes: &[u8]) -> String {
    let config = ::pem::EncodeConfig::new().set_line_ending(::pem::LineEnding::LF);
    ::pem::encode_config(&::pem::Pem::new(label, bytes), config)
}

/// The first section of this kind in a text; `None` if there is none, or it is broken.
pub(super) fn read(label: &str, text: &str) -> Option<Vec<u8>> {
    ::pem::parse_many(text).ok()?.into_iter().find(|p| p.tag() == label).map(::pem::Pem::into_contents)
}

pub(super) const CERTIFICATE: &str = "CERTIFICATE";
pub(super) const CRL: &str = "X509 CRL";
