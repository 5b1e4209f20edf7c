//! By which certificates TLS is checked: the system's, or those of a file; and why a connection to a relay does not come about.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};

use crate::code::Code;
use crate::error::{Error, Result};

/// The certificates of a PEM file.
///
/// # Errors
/// It cannot be read, or holds none.
pub(crate) fn read(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let shown = path.display();
    let bytes = std::fs::read(path).map_err(|e| Error::system(&shown, &e))?;
    let found: std::result::Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    match found {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        Ok(_) | Err(_) => {
            let error = Error::new(Code::Content, format!("{shown}: no certificates"));
            Err(error.with_hint("ca= takes a file of certificates in PEM"))
        }
    }
}

/// TLS as a client.
///
/// # Errors
/// The system has no certificates, or one of them cannot be used.
pub(crate) fn client(roots: Option<&[CertificateDer<'static>]>) -> Result<Arc<ClientConfig>> {
    let mut store = RootCertStore::empty();
    match roots {
        Some(roots) => {
            for root in roots {
                store.add(root.clone()).map_err(|e| Error::new(Code::Content, format!("ca=: {e}")))?;
            }
        }
        None => _ = store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs),
    }
    if store.is_empty() {
        let error = Error::new(Code::Missing, "the system has no certificates to check TLS by");
        return Err(error.with_hint("say &ca=FILE with those of the relay"));
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|e| Error::new(Code::System, format!("TLS: {e}")))?;
    Ok(Arc::new(builder.with_root_certificates(store).with_no_client_auth()))
}

/// The same for HTTP; `None` for the system's.
pub(crate) fn for_http(roots: Option<&[CertificateDer<'static>]>) -> Vec<ureq::tls::Certificate<'static>> {
    let system = || rustls_native_certs::load_native_certs().certs;
    let roots = roots.map_or_else(system, <[_]>::to_vec);
    roots.iter().map(|it| ureq::tls::Certificate::from_der(it).to_owned()).collect()
}

/// Why a connection to somebody, with TLS or without, does not come about, or breaks.
pub(crate) fn unreachable(who: &str, has_tls: bool, why: &io::Error) -> Error {
    if let Some(e) = why.get_ref().and_then(|it| it.downcast_ref::<rustls::Error>()) {
        return refused(who, e);
    }
    let hint = match why.kind() {
        io::ErrorKind::ConnectionRefused => "does it run, and is the URL the one that the relay prints?",
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => "does it run, and does a firewall let us through?",
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted => {
            if has_tls {
                NO_TLS
            } else {
                "it ended the connection: where it wants TLS, say mqtts: and https:"
            }
        }
        _ => "is the URL the one that the relay prints?",
    };
    Error::new(Code::NoRoute, format!("{who}: {why}")).caused_by(io::Error::from(why.kind())).with_hint(hint)
}

/// Why TLS with somebody does not come about.
pub(crate) fn refused(who: &str, why: &rustls::Error) -> Error {
    match why {
        rustls::Error::InvalidCertificate(e) => {
            // rustls has no name for it that programs could match.
            let hint = match format!("{e:?}").contains("CaUsedAsEndEntity") {
                true => {
                    "it is an authority's: a relay wants one with `basicConstraints=CA:FALSE`, which ca= or its issuer vouches for"
                }
                false => "ca=FILE names the certificates by which it is checked; ask the relay's operator for them",
            };
            Error::new(Code::Authority, format!("{who}: its certificate does not count here: {e}")).with_hint(hint)
        }
        rustls::Error::InvalidMessage(_) => {
            Error::new(Code::NoRoute, format!("{who} speaks no TLS there")).with_hint(NO_TLS)
        }
        other => Error::new(Code::NoRoute, format!("{who}: TLS: {other}"))
            .with_hint("is the URL the one that the relay prints?"),
    }
}

/// What may be the matter where TLS does not come about.
const NO_TLS: &str = "mqtts: and https: want the port that has TLS; where there is none, say mqtt: and http:";
