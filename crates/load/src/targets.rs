//! Who is asked for what.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::net::IpAddr;
use std::path::Path;
use std::rc::Rc;

use hyper::http::uri::PathAndQuery;
use hyper::{Method, Uri};

use crate::Error;

/// Lines of a list at most.
const TARGETS_MAX: usize = 1_000_000;
/// Bytes of a line of a list or a log at most.
pub(crate) const LINE_MAX: usize = 65_536;
/// Hosts at most: each has connections of its own.
const ORIGINS_MAX: usize = 1_000;

/// One thing to ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Whom: its place in [`Targets::origins`].
    pub origin: usize,
    /// How; that of the run if there is none.
    pub method: Option<Method>,
    /// What.
    pub path: PathAndQuery,
}

/// Scheme, host and port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Origin {
    pub is_secure: bool,
    /// Without the brackets of an IPv6 address.
    pub host: String,
    pub port: u16,
    /// As it was typed: `127.0.0.1:8080`.
    pub authority: String,
}

/// All that is asked for, in turns.
#[derive(Debug, Clone, Default)]
pub struct Targets {
    pub(crate) all: Vec<Rc<Target>>,
    pub(crate) origins: Vec<Origin>,
}

impl Targets {
    /// No target yet.
    #[must_use]
    pub fn new() -> Targets {
        Targets::default()
    }

    /// Adds one: `http://127.0.0.1:8080/path` or `POST http://…`.
    ///
    /// # Errors
    /// If it is no such address, or there are too many.
    pub fn add(&mut self, text: &str) -> Result<(), Error> {
        let text = text.trim();
        let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
        if rest.split(['/', '?', '#']).next().is_some_and(|authority| authority.contains('@')) {
            return Err(Error::wanted(
                "an address has no user and password; want --header 'Authorization: @FILE'",
            ));
        }
        // What has an @ elsewhere may hold a password, too, and is not printed.
        let shown = |what: &str| if text.contains('@') { "it".to_owned() } else { format!("'{what}'") };
        let (method, url) = match text.split_once(char::is_whitespace) {
            Some((method, url)) => {
                let method = Method::from_bytes(method.as_bytes()).map_err(|_| {
                    Error::wanted(format!("{} is no method; want GET or POST", shown(method)))
                })?;
                (Some(method), url.trim())
            }
            None => (None, text),
        };
        let bad = |what: &str| {
            Error::wanted(format!("{} {what}; want http://HOST:PORT/PATH or https://…", shown(url)))
        };
        let uri: Uri = url.parse().map_err(|_| bad("is no address"))?;
        let is_secure = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(bad("is no address")),
        };
        let authority = uri.authority().ok_or_else(|| bad("has no host"))?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        if host.is_empty() {
            return Err(bad("has no host"));
        }
        let behind = authority.as_str().rsplit(']').next().unwrap_or_default();
        let port = match uri.port_u16() {
            Some(0) => return Err(bad("has no such port")),
            Some(port) => port,
            None if behind.contains(':') => return Err(bad("has no such port")),
            None if is_secure => 443,
            None => 80,
        };
        let origin = Origin { is_secure, host, port, authority: authority.as_str().to_owned() };
        let place = match self.origins.iter().position(|known| *known == origin) {
            Some(place) => place,
            None if self.origins.len() < ORIGINS_MAX => {
                self.origins.push(origin);
                self.origins.len() - 1
            }
            None => return Err(Error::wanted(format!("more than {ORIGINS_MAX} hosts"))),
        };
        if self.all.len() >= TARGETS_MAX {
            return Err(Error::wanted(format!("more than {TARGETS_MAX} targets")));
        }
        let path = uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
        self.all.push(Rc::new(Target { origin: place, method, path }));
        Ok(())
    }

    /// Adds those of a file, one a line. Empty lines and such that begin with `#` are comments.
    ///
    /// # Errors
    /// If the file cannot be read or a line has no target.
    pub fn add_list(&mut self, path: &Path) -> Result<(), Error> {
        let mut reader = BufReader::new(File::open(path).map_err(Error::io(path))?);
        let mut line = String::new();
        for number in 1_u64.. {
            line.clear();
            let n = (&mut reader).take(LINE_MAX as u64).read_line(&mut line).map_err(Error::io(path))?;
            if n == 0 {
                break;
            }
            if n == LINE_MAX {
                return Err(Error::wanted(format!(
                    "{}:{number}: longer than {LINE_MAX} bytes",
                    path.display()
                )));
            }
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            self.add(&line)
                .map_err(|error| Error::wanted(format!("{}:{number}: {error}", path.display())))?;
        }
        Ok(())
    }

    /// Whether one of them wants TLS.
    #[must_use]
    pub fn is_secure(&self) -> bool {
        self.origins.iter().any(|origin| origin.is_secure)
    }

    /// Whether another machine is asked without TLS.
    #[must_use]
    pub fn is_exposed(&self) -> bool {
        let is_here = |host: &str| {
            host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
        };
        self.origins.iter().any(|origin| !origin.is_secure && !is_here(&origin.host))
    }

    /// Whom it asks, for people and recordings: host and port, never a path.
    #[must_use]
    pub fn names(&self) -> String {
        const NAMED_MAX: usize = 3;
        let mut names: Vec<&str> =
            self.origins.iter().take(NAMED_MAX).map(|origin| origin.authority.as_str()).collect();
        let more = self.origins.len().saturating_sub(NAMED_MAX);
        let more_text = format!("{more} more");
        if more > 0 {
            names.push(&more_text);
        }
        names.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let mut targets = Targets::new();
        targets.add("http://127.0.0.1:8080").unwrap();
        targets.add("POST http://127.0.0.1:8080/x?y=z").unwrap();
        targets.add("https://[::1]/").unwrap();
        assert_eq!(targets.names(), "127.0.0.1:8080, [::1]");
        let paths: Vec<(usize, &str)> = targets.all.iter().map(|t| (t.origin, t.path.as_str())).collect();
        assert_eq!(paths, [(0, "/"), (0, "/x?y=z"), (1, "/")]);
        assert_eq!(targets.all[1].method, Some(Method::POST));
        let v6 = &targets.origins[1];
        assert_eq!((v6.is_secure, v6.host.as_str(), v6.port), (true, "::1", 443));
        for bad in ["", "localhost:80", "ftp://x/", "/path", "http://", "G(T http://x/", "http://x y/"] {
            assert!(targets.add(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_port_is_a_number() {
        let mut targets = Targets::new();
        for bad in ["http://x:99999/", "http://x:808O/", "http://x:0/", "http://x:/", "http://[::1]:99999/"] {
            let said = targets.add(bad).map_err(|error| error.to_string());
            assert!(
                said.as_ref().is_err_and(|said| said.contains("address") || said.contains("port")),
                "{bad}"
            );
        }
        targets.add("http://x:65535/a:b").unwrap();
        assert_eq!(targets.origins[0].port, 65535);
    }

    #[test]
    fn passwords_are_not_printed() {
        let mut targets = Targets::new();
        for url in [
            "http://user:geheim@host/",
            "user:geheim@host",
            "ftp://user:geheim@host/",
            "http://user:ge heim@host/",
            "http://user:geheim@ho st/",
            "G(T http://user:geheim@host/",
            "http://user:geheim/9@host/",
        ] {
            let said = targets.add(url).unwrap_err().to_string();
            assert!(!said.contains("heim"), "{said}");
        }
        targets.add("http://host/@user?a=b@c").unwrap();
    }

    #[test]
    fn what_goes_over_the_network_in_clear_is_known() {
        for (url, is_exposed) in [
            ("http://web17/", true),
            ("https://web17/", false),
            ("http://127.0.0.7:80/", false),
            ("http://[::1]/", false),
            ("http://localhost/", false),
            ("http://10.0.0.1/", true),
        ] {
            let mut targets = Targets::new();
            targets.add(url).unwrap();
            assert_eq!(targets.is_exposed(), is_exposed, "{url}");
        }
    }

    #[test]
    fn a_list_names_the_line_that_is_wrong() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "# all\n\nhttp://a/1\nGET http://b/2\nnothing\n").unwrap();
        let mut targets = Targets::new();
        let said = targets.add_list(file.path()).unwrap_err().to_string();
        assert!(said.contains(":5: 'nothing'"), "{said}");
        assert_eq!(targets.all.len(), 2);
    }
}
