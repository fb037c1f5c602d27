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
    "What may be asked is in docs/http.md and, for programs, at /api/v1/openapi.json. Only loopback addresses are listened on: \
                        there is no encryption. Other machines come through ssh -L. Every user of the machine can ask a port: \
                        where they may not read the archive, the address that is printed has a token in it, which the browser keeps \
                        as a cookie and programs send as Authorization: Bearer TOKEN. A Unix socket can be opened by its owner only."
))]
pub struct ServeArgs {
    #[command(flatten)]
    pub archive: FolderArgs,
    /// Where to listen: a loopback address with its port (0: one that is free), or unix:PATH
    #[arg(long, value_name = "ADDR:PORT|unix:PATH", default_value_t = Listen::default())]
    pub listen: Listen,
    /// A file of one's own (mode 0600) with the token that is asked for, in place of a new one each time; the page is opened by
    /// /?token=TOKEN
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
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

/// Where to listen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    Tcp(SocketAddr),
    Unix(PathBuf),
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
        if !address.ip().is_loopback() {
            return Err(format!(
                "others could read along, because there is no encryption; listen on 127.0.0.1:{0} and come from other machines \
                 with: ssh -L {0}:127.0.0.1:{0} HOST",
                if address.port() == 0 { PORT } else { address.port() }
            ));
        }
        Ok(Listen::Tcp(address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_is_listened_on() {
        for good in ["127.0.0.1:6174", "127.9.9.9:1", "[::1]:0", "localhost:80", "unix:/run/mitra.sock"] {
            assert!(good.parse::<Listen>().is_ok(), "{good}");
        }
        for bad in [
            "0.0.0.0:6174",
            "10.0.0.7:6174",
            "[::]:6174",
            "[fe80::1]:6174",
            "example.org:80",
            "6174",
            "unix:x",
            "unix:",
            "",
        ] {
            assert!(bad.parse::<Listen>().is_err(), "{bad}");
        }
        assert!("0.0.0.0:6174".parse::<Listen>().unwrap_err().contains("ssh -L 6174:"));
        assert_eq!(Listen::default().to_string().parse(), Ok(Listen::default()));
    }
}
