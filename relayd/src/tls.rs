//! TLS with a certificate and a key from files, as other programs for servers take them; and as a client of an MQTT broker.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::{Error, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;

use crate::failure::{Code, Failure};

/// Where certificate and key are.
#[derive(Clone, Debug)]
pub struct Files {
    /// The certificate and those that lead to its authority, PEM.
    pub certificates: PathBuf,
    /// Its private key, PEM.
    pub key: PathBuf,
}

impl Files {
    /// Reads them.
    ///
    /// # Errors
    /// A file cannot be read, or holds something else, or the key is of another certificate.
    pub fn acceptor(&self) -> Result<TlsAcceptor, Failure> {
        let of_certificates = |e| wrong(&self.certificates, "certificate", "--tls-cert", e);
        let certificates = CertificateDer::pem_file_iter(&self.certificates).map_err(of_certificates)?;
        let certificates: Vec<_> = certificates.collect::<Result<_, _>>().map_err(of_certificates)?;
        if certificates.is_empty() {
            return Err(of_certificates(Error::NoItemsFound));
        }
        let key = PrivateKeyDer::from_pem_file(&self.key);
        let key = key.map_err(|e| wrong(&self.key, "private key", "--tls-key", e))?;
        let unusable = |e: rustls::Error| {
            let (certificates, key) = (self.certificates.display(), self.key.display());
            Failure::new(
                Code::Content,
                format!("TLS cannot use {certificates} with {key}: {e}"),
                "name the certificate and the private key that belong together",
            )
        };
        let builder = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
        let builder = builder.with_protocol_versions(&[&rustls::version::TLS13]).map_err(unusable)?;
        let mut config = builder.with_no_client_auth().with_single_cert(certificates, key).map_err(unusable)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

/// A client that believes the authorities of a file, or the system's.
///
/// # Errors
/// The file cannot be read, or holds something else, or the system has none.
pub fn client(authorities: Option<&Path>) -> Result<Arc<ClientConfig>, Failure> {
    let mut roots = RootCertStore::empty();
    match authorities {
        Some(path) => {
            let unreadable = |e| wrong(path, "certificate", "--mqtt-ca", e);
            for certificate in CertificateDer::pem_file_iter(path).map_err(unreadable)? {
                roots.add(certificate.map_err(unreadable)?).map_err(|e| {
                    let hint = "--mqtt-ca takes the certificate of the broker's authority, or the broker's own, PEM";
                    Failure::new(Code::Content, format!("{}: {e}", path.display()), hint)
                })?;
            }
            if roots.is_empty() {
                return Err(unreadable(Error::NoItemsFound));
            }
        }
        None => _ = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs),
    }
    if roots.is_empty() {
        let what = "this system has no certificates of authorities to check the broker's by";
        return Err(Failure::new(Code::Missing, what, "--mqtt-ca names a file with that of the broker's authority"));
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().expect("the provider has suites for TLS 1.2 and 1.3");
    Ok(Arc::new(builder.with_root_certificates(roots).with_no_client_auth()))
}

fn wrong(path: &Path, what: &str, option: &str, error: Error) -> Failure {
    let at = path.display();
    let hint = format!("{option} takes a PEM file; 'openssl x509 -noout -subject -in FILE' shows a certificate");
    match error {
        Error::Io(e) if e.kind() == std::io::ErrorKind::NotFound => {
            Failure::new(Code::Missing, format!("{at}: there is no such file"), hint)
        }
        Error::Io(e) => Failure::new(Code::Content, format!("{at}: {e}"), hint),
        Error::NoItemsFound => Failure::new(Code::Content, format!("{at}: there is no {what} in it"), hint),
        other => Failure::new(Code::Content, format!("{at}: it is not PEM: {other}"), hint),
    }
}
