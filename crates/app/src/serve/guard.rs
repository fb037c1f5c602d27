//! Who may ask. Pages of other sites run in the same browser, and other users on the same machine.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, Result, bail};
use hyper::header::{
    AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, HOST, HeaderMap, ORIGIN, TRANSFER_ENCODING,
};
use hyper::{Method, Request, StatusCode};
use subtle::ConstantTimeEq;

use super::response::Failure;
use crate::recording::{is_part, status::SEND_FOLDER};

/// Shorter ones are guessed.
const TOKEN_MIN: usize = 16;
const TOKEN_MAX: u64 = 4096;
/// Deeper folders than these lie nowhere beside a recording.
const DEPTH_MAX: u32 = 8;

/// What whoever asks has to know.
pub struct Token(Vec<u8>);

impl Token {
    /// Reads a file that nobody else can read.
    pub fn read(path: &Path) -> Result<Self> {
        let shown = path.display();
        let file = File::open(path).with_context(|| format!("cannot open {shown}"))?;
        let meta = file.metadata().with_context(|| format!("cannot look at {shown}"))?;
        let own = rustix::process::geteuid().as_raw();
        if !meta.is_file() || meta.mode() & 0o077 != 0 || ![own, 0].contains(&meta.uid()) {
            bail!("{shown}: others can read or change the token; want a file of your own: chmod 600 {shown}");
        }
        let mut bytes = Vec::new();
        file.take(TOKEN_MAX).read_to_end(&mut bytes).with_context(|| format!("cannot read {shown}"))?;
        let token = bytes.trim_ascii().to_vec();
        if token.len() < TOKEN_MIN || !token.iter().all(u8::is_ascii_graphic) {
            bail!(
                "{shown}: want a token of at least {TOKEN_MIN} letters and digits, as of: openssl rand -hex 32"
            );
        }
        Ok(Token(token))
    }

    /// One that nobody guesses.
    pub fn random() -> Result<Self> {
        let mut bytes = [0; 16];
        let random = "/dev/urandom";
        File::open(random)
            .and_then(|mut file| file.read_exact(&mut bytes))
            .with_context(|| format!("cannot read {random}"))?;
        Ok(Token(bytes.iter().flat_map(|byte| format!("{byte:02x}").into_bytes()).collect()))
    }

    /// As it stands in an address.
    pub fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.0)
    }

    fn is(&self, given: &[u8]) -> bool {
        given.ct_eq(&self.0).into()
    }

    /// Of a program in a header of its own, of the page in a cookie.
    fn is_in(&self, headers: &HeaderMap, cookie: &str) -> bool {
        let given = headers.get(AUTHORIZATION).map(|value| value.as_bytes());
        let given = given.and_then(|value| value.split_at_checked(7));
        let is_bearer =
            given.is_some_and(|(scheme, given)| scheme.eq_ignore_ascii_case(b"Bearer ") && self.is(given));
        let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
        let mut pairs =
            cookies.flat_map(|list| list.split(';')).filter_map(|pair| pair.trim().split_once('='));
        is_bearer || pairs.any(|(name, value)| name == cookie && self.is(value.as_bytes()))
    }
}

/// How something is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asks {
    Get,
    /// With a body.
    Post,
    /// As a form, too.
    Either,
}

/// What is looked at before anything is read.
pub struct Guard {
    token: Option<Token>,
    /// The name of the cookie: a browser has one jar for all ports of an address.
    cookie: String,
    /// Then a browser checks the name: only who has a certificate for it can answer.
    is_encrypted: bool,
}

impl Guard {
    pub fn new(token: Option<Token>, port: Option<u16>, is_encrypted: bool) -> Self {
        Guard { token, cookie: format!("mitra_serve_{}", port.unwrap_or_default()), is_encrypted }
    }

    /// The cookie for who opens the page by an address with the right token.
    pub fn cookie(&self, given: &str) -> Result<String, Failure> {
        match &self.token {
            Some(token) if token.is(given.as_bytes()) => {
                let secure = if self.is_encrypted { "; Secure" } else { "" };
                Ok(format!("{}={given}; Path=/; HttpOnly; SameSite=Strict{secure}", self.cookie))
            }
            _ => Err(Failure::new(StatusCode::UNAUTHORIZED, "no_token", "this is not the token")),
        }
    }

    /// Refuses what is only for those who know a token, where there is none.
    pub fn has_token(&self) -> Result<(), Failure> {
        let why = "this wants a token, and the server has none: start it by mitra record --serve";
        let none = || Failure::new(StatusCode::FORBIDDEN, "no_token", why);
        self.token.as_ref().map(drop).ok_or_else(none)
    }

    /// Refuses what does not come from this server's own page or from a program.
    pub fn check<B>(&self, request: &Request<B>, asks: Asks, is_secret: bool) -> Result<(), Failure> {
        let headers = request.headers();
        let is_post = request.method() == Method::POST;
        let is_get = [Method::GET, Method::HEAD].contains(request.method());
        match asks {
            Asks::Either if is_post => {
                let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
                if kind.split(';').next().map(str::trim) != Some("application/x-www-form-urlencoded") {
                    let why = "want Content-Type: application/x-www-form-urlencoded";
                    return Err(Failure::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "bad_type", why));
                }
            }
            Asks::Get | Asks::Either if !is_get => {
                let why = "nothing here can be changed: GET and HEAD only";
                return Err(Failure::new(StatusCode::METHOD_NOT_ALLOWED, "bad_method", why));
            }
            Asks::Post if !is_post => {
                let why = "this is asked with POST";
                return Err(Failure::new(StatusCode::METHOD_NOT_ALLOWED, "want_post", why));
            }
            _ => {}
        }
        if !is_post {
            let length = headers.get(CONTENT_LENGTH).map_or("0", |value| value.to_str().unwrap_or("?"));
            if length.trim() != "0" || headers.contains_key(TRANSFER_ENCODING) {
                return Err(too_large("a question has no body"));
            }
        }
        let host = host(request, self.is_encrypted)?;
        is_own_page(headers, if self.is_encrypted { "https" } else { "http" }, host)?;
        match &self.token {
            Some(token) if is_secret && !token.is_in(headers, &self.cookie) => {
                let why = "want the header Authorization: Bearer TOKEN";
                Err(Failure::new(StatusCode::UNAUTHORIZED, "no_token", why))
            }
            _ => Ok(()),
        }
    }
}

pub fn too_large(why: impl Into<String>) -> Failure {
    Failure::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", why)
}

/// The name that the server was called by. Another one may have been made to point here by whoever owns it, so that their
/// page counts as one of ours.
fn host<B>(request: &Request<B>, is_checked: bool) -> Result<&str, Failure> {
    let mut hosts = request.headers().get_all(HOST).iter();
    let host = match (hosts.next(), hosts.next()) {
        (Some(host), None) => host.to_str().ok(),
        _ => None,
    };
    let host = host.ok_or_else(|| Failure::bad("bad_host", "want one header Host"))?;
    let in_target = request.uri().authority().map(|authority| authority.as_str());
    if is_checked || [Some(host), in_target].into_iter().flatten().all(is_own_name) {
        Ok(host)
    } else {
        Err(Failure::new(StatusCode::FORBIDDEN, "bad_host", "this server has another name"))
    }
}

fn is_own_name(host: &str) -> bool {
    let name = without_port(host);
    let is_loopback = name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    is_loopback || name.eq_ignore_ascii_case("localhost")
}

fn is_own_page(headers: &HeaderMap, scheme: &str, host: &str) -> Result<(), Failure> {
    let refused = || {
        let why = "a page of another site asked; this server answers its own page and programs";
        Err(Failure::new(StatusCode::FORBIDDEN, "bad_origin", why))
    };
    if headers
        .get_all(ORIGIN)
        .iter()
        .any(|origin| origin.as_bytes() != format!("{scheme}://{host}").as_bytes())
    {
        return refused();
    }
    // A page can have pictures and scripts of other sites without an Origin; links to here are fine.
    let fetch = |name: &str| headers.get(name).map(|value| value.as_bytes());
    let is_foreign = matches!(fetch("sec-fetch-site"), Some(b"cross-site" | b"same-site"));
    if is_foreign && fetch("sec-fetch-mode") != Some(b"navigate") { refused() } else { Ok(()) }
}

/// `localhost:80` and `[::1]:80` without the port.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port))
            if port.bytes().all(|b| b.is_ascii_digit()) && (!name.contains(':') || name.ends_with(']')) =>
        {
            name
        }
        _ => host,
    }
}

/// Whether every user of the machine may read what is served of a recording anyway.
pub fn is_public(dir: &Path) -> bool {
    let is_written = mitra_archive::recording(dir).is_some();
    dir.canonicalize().is_ok_and(|dir| {
        dir.ancestors().all(|above| others_may(above, 0o001)) && can_be_read(&dir, is_written)
    })
}

/// Whether others may read the recording in a folder, and what lies beside it there. Who writes it may still make what is not there, so
/// that others may not read it.
fn can_be_read(dir: &Path, is_written: bool) -> bool {
    const BESIDE: [&str; 3] = ["captures", "index", SEND_FOLDER];
    if is_written && !BESIDE.iter().all(|name| dir.join(name).is_dir()) {
        return false;
    }
    all_in(dir, |name, path| match name.to_str() {
        Some(name) if BESIDE.contains(&name) => is_open(path, DEPTH_MAX),
        _ => !is_part(name) || others_may(path, 0o004),
    })
}

/// Whether others may read a file, or a folder and all that is below it.
fn is_open(path: &Path, depth: u32) -> bool {
    if path.is_dir() {
        depth > 0 && all_in(path, |_, path| is_open(path, depth - 1))
    } else {
        others_may(path, 0o004)
    }
}

/// Whether others may list a folder, and all that is in it is as wanted.
fn all_in(dir: &Path, is_wanted: impl Fn(&OsStr, &Path) -> bool) -> bool {
    let Ok(mut files) = std::fs::read_dir(dir) else { return false };
    others_may(dir, 0o005)
        && files.all(|file| file.is_ok_and(|file| is_wanted(&file.file_name(), &file.path())))
}

fn others_may(path: &Path, bits: u32) -> bool {
    std::fs::metadata(path).is_ok_and(|meta| meta.mode() & bits == bits)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn code(guard: &Guard, headers: &[(&str, &str)], is_secret: bool) -> Option<&'static str> {
        let mut request = Request::get("/api/v1/recording");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        guard.check(&request.body(()).unwrap(), Asks::Get, is_secret).err().map(|failure| failure.code)
    }

    #[test]
    fn other_names_and_other_sites_are_refused() {
        let guard = Guard::new(None, None, false);
        for host in ["localhost", "LOCALHOST:6174", "127.0.0.1:6174", "127.3.2.1", "[::1]:6174"] {
            assert_eq!(code(&guard, &[("host", host)], true), None, "{host}");
        }
        for host in
            ["evil.example", "localhost.evil.example", "10.0.0.8", "127.0.0.1.evil.example:6174", "", "::1.x"]
        {
            assert_eq!(code(&guard, &[("host", host)], true), Some("bad_host"), "{host}");
        }
        assert_eq!(code(&guard, &[], true), Some("bad_host"));
        assert_eq!(code(&guard, &[("host", "localhost"), ("host", "localhost")], true), Some("bad_host"));
        let from = |origin: &str| code(&guard, &[("host", "localhost:6174"), ("origin", origin)], true);
        assert_eq!(from("http://localhost:6174"), None);
        for origin in ["null", "http://localhost:8000", "https://localhost:6174", "http://evil.example"] {
            assert_eq!(from(origin), Some("bad_origin"), "{origin}");
        }
        let fetched = |site: &str, mode: &str| {
            code(&guard, &[("host", "localhost"), ("sec-fetch-site", site), ("sec-fetch-mode", mode)], true)
        };
        assert_eq!(fetched("cross-site", "no-cors"), Some("bad_origin"));
        assert_eq!(fetched("same-origin", "cors"), None);
        assert_eq!(fetched("cross-site", "navigate"), None);
        // With a certificate any name is that of the certificate.
        let guard = Guard::new(None, None, true);
        let own = "web1.example:6174";
        assert_eq!(code(&guard, &[("host", own), ("origin", "https://web1.example:6174")], true), None);
        for origin in ["http://web1.example:6174", "https://evil.example"] {
            assert_eq!(
                code(&guard, &[("host", own), ("origin", origin)], true),
                Some("bad_origin"),
                "{origin}"
            );
        }
    }

    #[test]
    fn a_token_has_to_be_the_same() {
        let guard = Guard::new(Some(Token(b"0123456789abcdef".to_vec())), Some(6174), false);
        let with = |token: &str| code(&guard, &[("host", "localhost"), ("authorization", token)], true);
        assert_eq!(with("Bearer 0123456789abcdef"), None);
        assert_eq!(with("bearer 0123456789abcdef"), None);
        for bad in [
            "",
            "Bearer",
            "Bearer ",
            "Bearer 0123456789abcdeF",
            "Bearer 0123456789abcdef0",
            "Basic 0123456789abcdef",
        ] {
            assert_eq!(with(bad), Some("no_token"), "{bad}");
        }
        let cookie = guard.cookie("0123456789abcdef").unwrap();
        let cookie = format!("other=1; {}", cookie.split(';').next().unwrap());
        assert_eq!(code(&guard, &[("host", "localhost"), ("cookie", &cookie)], true), None);
        let of_other_port = cookie.replace("6174", "6175");
        assert_eq!(
            code(&guard, &[("host", "localhost"), ("cookie", &of_other_port)], true),
            Some("no_token")
        );
        assert!(guard.cookie("0123456789abcde").is_err());
        assert_eq!(code(&guard, &[("host", "localhost")], false), None, "the page itself is no secret");
    }

    #[test]
    fn a_recording_is_public_if_all_that_is_served_of_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let mode = |name: &str, mode: u32| {
            let path = dir.path().join(name);
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        std::fs::create_dir_all(dir.path().join("captures/more")).unwrap();
        let all = [
            ("", 0o755),
            ("0000000001.seg", 0o644),
            ("captures", 0o755),
            ("captures/a.json.zst", 0o644),
            ("captures/more", 0o755),
            ("captures/more/b.json.zst", 0o644),
        ];
        for (name, public) in all.into_iter().chain([("lock", 0o600)]) {
            if !dir.path().join(name).is_dir() {
                std::fs::write(dir.path().join(name), "").unwrap();
            }
            mode(name, public);
        }
        assert!(can_be_read(dir.path(), false));
        for (name, public) in all {
            mode(name, public & 0o770);
            assert!(!can_be_read(dir.path(), false), "{name}");
            mode(name, public);
        }
        mode("captures/more", 0o754);
        assert!(!can_be_read(dir.path(), false), "a folder that can be listed and not entered");
        mode("captures/more", 0o755);
        assert!(can_be_read(dir.path(), false));
        assert!(!can_be_read(dir.path(), true), "a recorder may still make the others");
        for name in ["index", SEND_FOLDER] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
            mode(name, 0o755);
        }
        assert!(can_be_read(dir.path(), true));
    }

    #[test]
    fn a_token_is_of_a_file_that_nobody_else_reads() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let with = |text: &str, mode: u32| {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            Token::read(&path).map(|token| token.0)
        };
        assert_eq!(with("0123456789abcdef\n", 0o600).unwrap(), b"0123456789abcdef");
        assert!(with("0123456789abcdef\n", 0o640).is_err() && with("0123456789abcdef\n", 0o604).is_err());
        assert!(with("short\n", 0o600).is_err() && with("with a space in it\n", 0o600).is_err());
    }
}
