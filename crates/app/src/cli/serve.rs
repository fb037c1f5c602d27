//! `mitra serve` and `mitra mcp`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;

use super::{FolderArgs, examples};

/// Kaprekar's constant: below the ports that clients are given as their own.
const PORT: u16 = 6174;

#[derive(Debug, Args)]
#[command(after_help = examples::below(
    "serve",
    "What may be asked is in docs/http.md and, for programs, at /api/v1/openapi.json. Any address but loopback wants a \
                        certificate, its key and a token; without them other machines come through ssh -L. Every user of the machine can ask a port: \
                        where they may not read the archive, the address that is printed has a token in it, which the browser keeps \
                        as a cookie and programs send as Authorization: Bearer TOKEN. A Unix socket can be opened by its owner only."
))]
pub struct ServeArgs {
    #[command(flatten)]
    pub archive: FolderArgs,
    /// Where to listen: an address with its port (0: one that is free), or unix:PATH
    #[arg(long, value_name = "ADDR:PORT|unix:PATH", default_value_t = Listen::default())]
    pub listen: Listen,
    /// A file of one's own (mode 0600) with the token that is asked for, in place of a new one each time; the page is opened by
    /// /?token=TOKEN
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    #[command(flatten)]
    pub started_by: StartedBy,
    /// Encrypt, with this certificate (PEM, its chain behind it)
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// The key of the certificate (PEM), which not everybody may read
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Let in only clients with a certificate of these authorities (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_client_ca: Option<PathBuf>,
}

/// How a recorder starts a server beside itself.
#[derive(Debug, Args)]
pub struct StartedBy {
    /// Wait for the first sample of a recorder that has just started
    #[arg(long, hide = true)]
    pub wait: bool,
    /// Ask the recorder at the other end of standard input for these probes
    #[arg(long, hide = true, value_delimiter = ',', value_name = "KIND")]
    pub may_ask: Vec<String>,
}

#[derive(Debug, Args)]
#[command(after_help = examples::below(
    "mcp",
    "An assistant that speaks the Model Context Protocol starts it and asks through standard input and output, one message a \
                        line, in revision 2026-07-28 or one of the two before it. Its tools only read: explain, incidents, \
                        findings, processes_at, query, changes, and search_state where the archive has an index beside it. \
                        Answers are cut to a size that an assistant can read, and what looks like a secret is withheld. \
                        mitra serve has the same tools at /mcp."
))]
pub struct McpArgs {
    #[command(flatten)]
    pub archive: FolderArgs,
}

#[derive(Debug, Args)]
#[command(after_help = examples::below(
    "dbus",
    "The service org.mitra.Mitra1 of the system bus answers Status, Incidents and Explain with the JSON of docs/http.md, and sends \
                        the signal Incident when one begins, is explained in another way, or is over. Root and the owner of the \
                        archive may ask, everybody where everybody may read the archive, and whom polkit lets \
                        (org.mitra.Mitra1.read). Started by mitra record --dbus it also arms probes (Arm), where the \
                        configuration has ask = true in the table [captures], for root, for the owner of the archive, and for whom \
                        polkit lets (org.mitra.Mitra1.arm). For instance: busctl call org.mitra.Mitra1 /org/mitra/Mitra1 \
                        org.mitra.Mitra1 Incidents ss '' ''"
))]
pub struct DbusArgs {
    #[command(flatten)]
    pub archive: FolderArgs,
    #[command(flatten)]
    pub started_by: StartedBy,
}

/// Where to listen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl Listen {
    /// Whether other machines reach it.
    pub fn is_open(&self) -> bool {
        matches!(self, Listen::Tcp(address) if !address.ip().to_canonical().is_loopback())
    }

    /// The port, or the usual one where it is open which.
    pub fn port_or_usual(&self) -> u16 {
        match self {
            Listen::Tcp(address) if address.port() != 0 => address.port(),
            _ => PORT,
        }
    }
}

impl Default for Listen {
    fn default() -> Self {
        Listen::Tcp((IpAddr::V4(Ipv4Addr::LOCALHOST), PORT).into())
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Listen::Tcp(address) => address.fmt(f),
            Listen::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(path) = text.strip_prefix("unix:") {
            let path = PathBuf::from(path);
            return if path.is_absolute() {
                Ok(Listen::Unix(path))
            } else {
                Err("want unix:/a/whole/path".to_owned())
            };
        }
        let text = text
            .strip_prefix("localhost:")
            .map_or_else(|| text.to_owned(), |port| format!("127.0.0.1:{port}"));
        let address: SocketAddr =
            text.parse().map_err(|_| format!("not an address; want 127.0.0.1:{PORT} or unix:/path"))?;
        Ok(Listen::Tcp(address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_other_machines_reach_is_known() {
        for closed in [
            "127.0.0.1:6174",
            "127.9.9.9:1",
            "[::1]:0",
            "localhost:80",
            "unix:/run/mitra.sock",
            "[::ffff:127.0.0.1]:1",
        ] {
            assert!(!closed.parse::<Listen>().unwrap().is_open(), "{closed}");
        }
        for open in ["0.0.0.0:6174", "10.0.0.7:6174", "[::]:6174", "[fe80::1]:6174"] {
            assert!(open.parse::<Listen>().unwrap().is_open(), "{open}");
        }
        for bad in ["example.org:80", "6174", "unix:x", "unix:", ""] {
            assert!(bad.parse::<Listen>().is_err(), "{bad}");
        }
        assert_eq!(Listen::default().to_string().parse(), Ok(Listen::default()));
    }
}
