//! TLS with a certificate and a key from files, as other programs for servers take them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::{Error, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
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
