//! The certificate of a server, and whose clients it lets in.

use std::path::Path;
use std::sync::Arc;

use rustls::RootCertStore;
pub use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use rustls::server::WebPkiClientVerifier;

use crate::{Error, roots};

/// TLS 1.2 and 1.3 with this certificate (PEM, its chain behind it) and key. With `client_ca` only clients with a certificate of
/// these authorities get a connection.
///
/// # Errors
/// If a file cannot be read or used, the key is not that of the certificate, or others may read it.
pub fn server(certificate: &Path, key: &Path, client_ca: Option<&Path>) -> Result<Arc<ServerConfig>, Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let chain = roots::certificates(certificate)?;
    let private = private_key(key)?;
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::Cannot(error.to_string()))?;
    let builder = match client_ca {
        Some(path) => {
            let mut trusted = RootCertStore::empty();
            for authority in roots::certificates(path)? {
                trusted.add(authority).map_err(|error| Error::broken(path, error.to_string()))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(trusted), provider)
                .build()
                .map_err(|error| Error::broken(path, error.to_string()))?;
            builder.with_client_cert_verifier(verifier)
        }
        None => builder.with_no_client_auth(),
    };
    let mut config = builder
        .with_single_cert(chain, private)
        .map_err(|error| Error::broken(certificate, format!("with {}: {error}", key.display())))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// The key in a file that not everybody may read.
pub fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, Error> {
    PrivateKeyDer::from_pem_slice(&key_text(path)?)
        .map_err(|_| Error::broken(path, "no private key in it (wanted PEM)"))
}

/// The text of a key that not everybody may read.
pub fn key_text(path: &Path) -> Result<Vec<u8>, Error> {
    use std::os::unix::fs::MetadataExt;
    let text = std::fs::read(path).map_err(Error::io(path))?;
    let mode = std::fs::metadata(path).map_err(Error::io(path))?.mode();
    // Certificate managers give a group its key: only everybody is too many.
    if mode & 0o007 != 0 {
        return Err(Error::broken(path, format!("everybody may read it (mode {:04o})", mode & 0o7777)));
    }
    Ok(text)
}
