//! The trusted certificates: those of the system, or those of one file. None are built in.

use std::path::Path;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use ureq::tls::Certificate;

use crate::Error;

/// Where distributions store certificates: Debian and Alpine, Red Hat, SUSE, others.
const SYSTEM: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// The certificates in `file`, or in the first of the system's files that exists.
pub fn trusted(file: Option<&Path>) -> Result<Vec<CertificateDer<'static>>, Error> {
    let Some(path) = file.or_else(|| SYSTEM.iter().map(Path::new).find(|p| p.exists())) else {
        return Err(Error::Cannot(format!(
            "no certificates to trust: none of {} is there; name a file with them",
            SYSTEM.join(", ")
        )));
    };
    certificates(path)
}

/// The same for ureq.
pub fn read(file: Option<&Path>) -> Result<Vec<Certificate<'static>>, Error> {
    let found = trusted(file)?;
    Ok(found.iter().map(|certificate| Certificate::from_der(certificate).to_owned()).collect())
}

/// All certificates of a file.
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let text = std::fs::read(path).map_err(Error::io(path))?;
    // Skips items of a bundle that are not certificates or cannot be parsed.
    let found: Vec<_> = CertificateDer::pem_slice_iter(&text).filter_map(Result::ok).collect();
    if found.is_empty() {
        return Err(Error::broken(path, "no certificate in it (wanted PEM)"));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_certificates_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n").unwrap();
        assert!(read(Some(file.path())).unwrap_err().to_string().contains("no certificate"));
    }
}
