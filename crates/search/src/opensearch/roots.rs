//! The certificates that are trusted: those of the system, or of one file. None are built in.

use std::path::Path;

use ureq::tls::{Certificate, PemItem, parse_pem};

use crate::error::{At, Error};

/// Where distributions keep theirs: Debian and Alpine, Red Hat, SUSE, others.
const SYSTEM: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// The certificates of a file, or of the first of the system's that is there.
pub(super) fn read(file: Option<&Path>) -> Result<Vec<Certificate<'static>>, Error> {
    let Some(path) = file.or_else(|| SYSTEM.iter().map(Path::new).find(|p| p.exists())) else {
        return Err(Error::Cannot(format!(
            "no certificates to trust: none of {} is there; name a file with them",
            SYSTEM.join(", ")
        )));
    };
    let text = std::fs::read(path).at(path)?;
    // A bundle of a system may have an item that is no certificate, or is not understood; the others count.
    let found: Vec<_> = parse_pem(&text)
        .filter_map(|item| match item {
            Ok(PemItem::Certificate(certificate)) => Some(certificate),
            _ => None,
        })
        .collect();
    if found.is_empty() {
        return Err(Error::Broken {
            path: path.to_owned(),
            what: "no certificate in it (wanted PEM)".to_owned(),
        });
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
