//! How Mitra talks to other machines: one HTTP client, which certificates it trusts, its own certificate, and secrets that stand
//! in files.

mod error;
mod roots;
mod secret;
mod server;
mod sigv4;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub use rustls;
use rustls::RootCertStore;
use ureq::tls::{Certificate, ClientCert, PrivateKey, RootCerts, TlsConfig, TlsProvider};
pub use ureq::{self, Agent};

pub use error::Error;
pub use secret::secret;
pub use server::{ServerConfig, server};
pub use sigv4::{AccessKey, SignedRequest, sha256_hex};

/// A client. Every status is an answer, and no redirect is followed: the configuration alone decides where a secret goes, so
/// the environment's proxy is ignored, too.
///
/// # Errors
/// If certificates are wanted and there are none to trust.
pub fn client(
    is_secure: bool,
    ca_file: Option<&Path>,
    to_connect: Duration,
    in_all: Duration,
) -> Result<Agent, Error> {
    client_with(is_secure, ca_file, None, to_connect, in_all)
}

/// The same for servers that want to know who asks: the client's certificate (PEM, its chain behind it) and its key.
///
/// # Errors
/// As [`client`], and if certificate or key cannot be read, or everybody may read the key.
pub fn client_with(
    is_secure: bool,
    ca_file: Option<&Path>,
    identity: Option<(&Path, &Path)>,
    to_connect: Duration,
    in_all: Duration,
) -> Result<Agent, Error> {
    let identity = identity.map(|(certificate, key)| client_cert(certificate, key)).transpose()?;
    let certificates = if is_secure { roots::read(ca_file)? } else { Vec::new() };
    let tls = TlsConfig::builder()
        .provider(TlsProvider::Rustls)
        .root_certs(RootCerts::Specific(Arc::new(certificates)))
        .client_cert(identity)
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .build();
    let config = Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .proxy(None)
        .user_agent(concat!("mitra/", env!("CARGO_PKG_VERSION")))
        .timeout_connect(Some(to_connect))
        .timeout_global(Some(in_all))
        .tls_config(tls)
        .build();
    Ok(Agent::new_with_config(config))
}

/// TLS 1.2 and 1.3 for connections that others open: the certificates in `ca_file` are trusted, or those of the system.
///
/// # Errors
/// If there are no certificates to trust.
pub fn client_tls(ca_file: Option<&Path>) -> Result<rustls::ClientConfig, Error> {
    client_tls_with(ca_file, None)
}

/// The same for servers that want to know who connects: the client's certificate (PEM, its chain behind it) and its key.
///
/// # Errors
/// As [`client_tls`], and if certificate or key cannot be used, or everybody may read the key.
pub fn client_tls_with(
    ca_file: Option<&Path>,
    identity: Option<(&Path, &Path)>,
) -> Result<rustls::ClientConfig, Error> {
    let mut trusted = RootCertStore::empty();
    trusted.add_parsable_certificates(roots::trusted(ca_file)?);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::Cannot(error.to_string()))?;
    let builder = builder.with_root_certificates(trusted);
    let Some((certificate, key)) = identity else { return Ok(builder.with_no_client_auth()) };
    let (chain, private) = (roots::certificates(certificate)?, server::private_key(key)?);
    builder
        .with_client_auth_cert(chain, private)
        .map_err(|error| Error::broken(certificate, format!("with {}: {error}", key.display())))
}

fn client_cert(certificate: &Path, key: &Path) -> Result<ClientCert, Error> {
    let chain: Vec<Certificate<'static>> =
        roots::certificates(certificate)?.iter().map(|one| Certificate::from_der(one).to_owned()).collect();
    let text = server::key_text(key)?;
    let none = |_| Error::broken(key, "no private key in it (wanted PEM)");
    Ok(ClientCert::new_with_certs(&chain, PrivateKey::from_pem(&text).map_err(none)?))
}
