//! How Mitra talks to other machines: one HTTP client, which certificates it trusts, its own certificate, and secrets that stand
//! in files.

mod error;
mod roots;
mod secret;
mod server;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub use rustls;
use ureq::tls::{RootCerts, TlsConfig, TlsProvider};
pub use ureq::{self, Agent};

pub use error::Error;
pub use secret::secret;
pub use server::{ServerConfig, server};

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
    let certificates = if is_secure { roots::read(ca_file)? } else { Vec::new() };
    let tls = TlsConfig::builder()
        .provider(TlsProvider::Rustls)
        .root_certs(RootCerts::Specific(Arc::new(certificates)))
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
