//! `/etc/resolv.conf` as three resolvers read it.
//!
//! ```text
//! nameserver 10.0.0.2
//! search prod.example example
//! options ndots:5 timeout:2 attempts:3 edns0
//! ```
//!
//! From glibc 2.36 (`resolv/res_init.c`), musl 1.2.3 (`src/network/resolvconf.c`) and Go 1.19 to 1.26
//! (`src/net/dnsconfig_unix.go`). They differ in what ends a word, in limits and in what is ignored.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use serde::Serialize;

/// Name servers that each of the three uses (`MAXNS`).
pub const SERVERS_MAX: usize = 3;
/// Domains of a search list that are followed: more make no lookup that anybody would wait for.
pub const SEARCH_MAX: usize = 256;
/// The port of name servers.
const PORT: u16 = 53;

/// What a resolver takes from the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Settings {
    /// The name servers, in this order.
    pub servers: Vec<SocketAddr>,
    /// Name servers beyond the third, which nobody asks.
    pub unused_servers: usize,
    /// The search list.
    pub search: Vec<String>,
    /// Domains beyond [`SEARCH_MAX`], which are not followed.
    pub unused_domains: usize,
    /// Dots from which on a name is asked for as it is at first.
    pub ndots: u32,
    /// `options timeout`, after the resolver's own limits. glibc takes a negative one, too.
    pub timeout_s: i32,
    /// `options attempts`, likewise.
    pub attempts: i32,
    /// `options rotate`.
    pub rotate: bool,
    /// `options edns0`.
    pub edns0: bool,
    /// `options single-request`.
    pub single_request: bool,
    /// `options single-request-reopen`.
    pub single_request_reopen: bool,
    /// `options use-vc`.
    pub use_vc: bool,
    /// `options trust-ad`.
    pub trust_ad: bool,
    /// `options no-aaaa`.
    pub no_aaaa: bool,
    /// `options no-tld-query`.
    pub no_tld_query: bool,
    /// Options and words that the resolver does not know.
    pub unknown: Vec<String>,
}

/// Unknown words that are kept.
const UNKNOWN_MAX: usize = 16;

/// The index of a network interface, for link-local name servers.
pub type Interfaces<'a> = dyn Fn(&str) -> Option<u32> + 'a;

impl Settings {
    /// The defaults of all three: one dot, 5 s, 2 attempts.
    fn new() -> Self {
        Settings {
            servers: Vec::new(),
            unused_servers: 0,
            search: Vec::new(),
            unused_domains: 0,
            ndots: 1,
            timeout_s: 5,
            attempts: 2,
            rotate: false,
            edns0: false,
            single_request: false,
            single_request_reopen: false,
            use_vc: false,
            trust_ad: false,
            no_aaaa: false,
            no_tld_query: false,
            unknown: Vec::new(),
        }
    }

    fn set_search(&mut self, domains: impl Iterator<Item = String>) {
        self.search.clear();
        self.unused_domains = 0;
        for domain in domains {
            if self.search.len() < SEARCH_MAX {
                self.search.push(domain);
            } else {
                self.unused_domains += 1;
            }
        }
    }

    fn add_server(&mut self, server: Option<SocketAddr>) {
        match server {
            Some(server) if self.servers.len() < SERVERS_MAX => self.servers.push(server),
            Some(_) => self.unused_servers += 1,
            None => {}
        }
    }

    fn add_unknown(&mut self, word: &str) {
        if self.unknown.len() < UNKNOWN_MAX && !self.unknown.iter().any(|known| known == word) {
            self.unknown.push(word.chars().take(40).collect());
        }
    }
}

/// As glibc reads it, with the variables of the environment and the host name.
#[must_use]
pub fn glibc(
    file: Option<&[u8]>,
    localdomain: Option<&str>,
    res_options: Option<&str>,
    hostname: &str,
    interfaces: &Interfaces<'_>,
) -> Settings {
    let mut settings = Settings::new();
    // It is a search list even when it is empty: then with one empty domain.
    let is_set = localdomain.is_some();
    if let Some(domains) = localdomain {
        let line = domains.split('\n').next().unwrap_or_default();
        settings.set_search(blank_separated(line));
        if settings.search.is_empty() {
            settings.search.push(String::new());
        }
    }
    for line in text(file).split_inclusive('\n') {
        let line = c_string(line);
        if line.starts_with([';', '#']) {
            continue;
        }
        let Some((word, rest)) = line.split_once([' ', '\t']) else { continue };
        let rest = rest.trim_start_matches([' ', '\t']);
        let until_newline = rest.split('\n').next().unwrap_or_default();
        match word {
            "domain" | "search" if is_set || until_newline.is_empty() => {}
            "domain" => settings.set_search(blank_separated(rest).take(1)),
            "search" => settings.set_search(blank_separated(until_newline)),
            "nameserver" => {
                let address = rest.split([' ', '\t', '\n']).next().unwrap_or_default();
                settings.add_server(server(address, glibc_zone, interfaces));
            }
            "options" => glibc_options(&mut settings, rest),
            _ => {}
        }
    }
    if settings.servers.is_empty() {
        settings.servers.push(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), PORT));
    }
    if settings.search.is_empty()
        && let Some((_, domain)) = hostname.split_once('.')
    {
        settings.search.push(domain.to_owned());
    }
    if let Some(options) = res_options {
        glibc_options(&mut settings, options);
    }
    settings
}

/// Options are compared by their beginning: `rotate2` is `rotate`.
fn glibc_options(settings: &mut Settings, options: &str) {
    for word in options.split([' ', '\t']).filter(|word| !word.trim_end().is_empty()) {
        if let Some(number) = word.strip_prefix("ndots:") {
            // The field has four bits.
            settings.ndots = (atoi(number).min(15) & 15) as u32;
        } else if let Some(number) = word.strip_prefix("timeout:") {
            settings.timeout_s = atoi(number).min(30);
        } else if let Some(number) = word.strip_prefix("attempts:") {
            settings.attempts = atoi(number).min(5);
        } else if word.starts_with("rotate") {
            settings.rotate = true;
        } else if word.starts_with("edns0") {
            settings.edns0 = true;
        } else if word.starts_with("single-request-reopen") {
            settings.single_request_reopen = true;
        } else if word.starts_with("single-request") {
            settings.single_request = true;
        } else if word.starts_with("no_tld_query") || word.starts_with("no-tld-query") {
            settings.no_tld_query = true;
        } else if word.starts_with("use-vc") {
            settings.use_vc = true;
        } else if word.starts_with("trust-ad") {
            settings.trust_ad = true;
        } else if word.starts_with("no-aaaa") {
            settings.no_aaaa = true;
        } else if !word.starts_with("no-reload") {
            settings.add_unknown(word.trim_end());
        }
    }
}

/// Bytes of a line that musl reads. It skips longer lines.
const MUSL_LINE: usize = 255;

/// As musl reads it. It looks at no variable, and of the options knows three.
#[must_use]
pub fn musl(file: Option<&[u8]>, interfaces: &Interfaces<'_>) -> Settings {
    let mut settings = Settings::new();
    for line in text(file).split_inclusive('\n') {
        if line.len() > MUSL_LINE {
            continue;
        }
        let line = c_string(line);
        let after = |word: &str| line.strip_prefix(word).filter(|rest| rest.starts_with(is_space));
        if let Some(options) = after("options") {
            let number = |name: &str, max: i32| {
                let at = options.find(name)?;
                let digits = options.get(at + name.len()..)?;
                let has_digits = digits.starts_with(|c: char| c.is_ascii_digit());
                has_digits.then(|| digits_of(digits).min(u64::from(max.unsigned_abs())) as i32)
            };
            if let Some(ndots) = number("ndots:", 15) {
                settings.ndots = ndots.unsigned_abs();
            }
            settings.attempts = number("attempts:", 10).unwrap_or(settings.attempts);
            settings.timeout_s = number("timeout:", 60).unwrap_or(settings.timeout_s);
            for word in options.split(is_space).filter(|word| !word.is_empty()) {
                if !["ndots:", "attempts:", "timeout:"].iter().any(|known| word.contains(known)) {
                    settings.add_unknown(word);
                }
            }
        } else if let Some(rest) = after("nameserver") {
            let address = rest.split(is_space).find(|word| !word.is_empty()).unwrap_or_default();
            settings.add_server(server(address, musl_zone, interfaces));
        } else if let Some(rest) = after("domain").or_else(|| after("search")) {
            settings.set_search(rest.split(is_space).filter(|word| !word.is_empty()).map(str::to_owned));
        }
    }
    if settings.servers.is_empty() {
        settings.servers.push(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), PORT));
    }
    settings
}

/// As Go reads it. Domains of the search list have no dot at their end here.
#[must_use]
pub fn go(file: Option<&[u8]>, hostname: &str, interfaces: &Interfaces<'_>) -> Settings {
    let mut settings = Settings::new();
    for line in text(file).split('\n') {
        if line.starts_with([';', '#']) {
            continue;
        }
        let mut words = line.split([' ', '\r', '\t']).filter(|word| !word.is_empty());
        let Some(first) = words.next() else { continue };
        match first {
            "nameserver" => {
                let strict = words.next().filter(|word| {
                    let (address, _) = word.split_once('%').unwrap_or((word, ""));
                    address.parse::<IpAddr>().is_ok()
                });
                settings.add_server(strict.and_then(|word| server(word, go_zone, interfaces)));
            }
            "domain" => {
                if let Some(domain) = words.next() {
                    settings.set_search(std::iter::once(without_dot(domain)));
                }
            }
            "search" => {
                settings.set_search(words.filter(|word| *word != ".").map(without_dot));
            }
            "options" => words.for_each(|word| go_option(&mut settings, word)),
            // OpenBSD's order of sources.
            "lookup" => {}
            _ => settings.add_unknown(first),
        }
    }
    if settings.servers.is_empty() {
        settings.servers.push(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), PORT));
        settings.servers.push(SocketAddr::new(IpAddr::V6(Ipv6Addr::LOCALHOST), PORT));
    }
    if settings.search.is_empty()
        && let Some((_, domain)) = hostname.split_once('.')
        && !domain.is_empty()
    {
        settings.search.push(without_dot(domain));
    }
    settings
}

/// Go's numbers end here.
const GO_NUMBER_MAX: u64 = 0xFF_FFFF;

fn go_option(settings: &mut Settings, word: &str) {
    let number = |text: &str| digits_of(text).min(GO_NUMBER_MAX) as i32;
    if let Some(text) = word.strip_prefix("ndots:") {
        settings.ndots = number(text).min(15).unsigned_abs();
    } else if let Some(text) = word.strip_prefix("timeout:") {
        settings.timeout_s = number(text).max(1);
    } else if let Some(text) = word.strip_prefix("attempts:") {
        settings.attempts = number(text).max(1);
    } else {
        match word {
            "rotate" => settings.rotate = true,
            "single-request" | "single-request-reopen" => settings.single_request = true,
            "use-vc" | "usevc" | "tcp" => settings.use_vc = true,
            "trust-ad" => settings.trust_ad = true,
            "edns0" | "no-reload" => {}
            _ => settings.add_unknown(word),
        }
    }
}

/// Bytes that are no UTF-8 cannot be part of an address or of a name that is asked for.
fn text(file: Option<&[u8]>) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(file.unwrap_or_default())
}

/// What C sees of a line: a zero byte ends it.
fn c_string(line: &str) -> &str {
    line.split('\0').next().unwrap_or_default()
}

fn blank_separated(line: &str) -> impl Iterator<Item = String> {
    line.split([' ', '\t', '\n']).filter(|word| !word.is_empty()).map(str::to_owned)
}

fn without_dot(domain: &str) -> String {
    domain.strip_suffix('.').unwrap_or(domain).to_owned()
}

/// `isspace` of the C locale.
fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\x0b' | '\x0c' | '\r')
}

/// The leading digits, saturated.
fn digits_of(text: &str) -> u64 {
    let mut value: u64 = 0;
    for digit in text.bytes().take_while(u8::is_ascii_digit) {
        value = value.saturating_mul(10).saturating_add(u64::from(digit - b'0'));
    }
    value
}

/// glibc's `atoi`: `strtol`, of which the low 32 bits remain.
fn atoi(text: &str) -> i32 {
    let text = text.trim_start_matches(is_space);
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let value = digits_of(digits).min(i64::MAX.unsigned_abs()) as i64;
    if negative { value.wrapping_neg() as i32 } else { value as i32 }
}

/// An address of a name server. Both C libraries take the short forms of `inet_aton`. `index` gives the interface of
/// a zone, or `None` if the resolver passes over such an address.
fn server(text: &str, index: ZoneIndex, interfaces: &Interfaces<'_>) -> Option<SocketAddr> {
    if let Some(v4) = inet_aton(text) {
        return Some(SocketAddr::new(IpAddr::V4(v4), PORT));
    }
    let (address, zone) = text.split_once('%').map_or((text, None), |(address, zone)| (address, Some(zone)));
    let address: Ipv6Addr = address.parse().ok()?;
    let is_link_local = address.is_unicast_link_local();
    let scope_id = zone.map_or(Some(0), |zone| index(zone, is_link_local, interfaces))?;
    // The kernel looks at the interface of no other address.
    let scope_id = if is_link_local { scope_id } else { 0 };
    Some(SocketAddr::V6(SocketAddrV6::new(address, PORT, 0, scope_id)))
}

/// By the zone, and whether the address is link-local.
type ZoneIndex = fn(&str, bool, &Interfaces<'_>) -> Option<u32>;

/// `__inet6_scopeid_pton`: a zone that is none counts as no zone.
fn glibc_zone(zone: &str, _: bool, interfaces: &Interfaces<'_>) -> Option<u32> {
    interfaces(zone).or_else(|| zone.parse().ok()).or(Some(0))
}

/// `__lookup_ipliteral`: only a link-local address may have a name as its zone.
fn musl_zone(zone: &str, is_link_local: bool, interfaces: &Interfaces<'_>) -> Option<u32> {
    zone.parse().ok().or_else(|| interfaces(zone).filter(|_| is_link_local))
}

/// `ParseAddr` of `net/netip`: any zone but an empty one.
fn go_zone(zone: &str, _: bool, interfaces: &Interfaces<'_>) -> Option<u32> {
    if zone.is_empty() {
        return None;
    }
    interfaces(zone).or_else(|| zone.parse().ok()).or(Some(0))
}

/// `127.1`, `0x7f000001`, `10.0.0.02`: the last part fills the bytes that remain.
pub(super) fn inet_aton(text: &str) -> Option<Ipv4Addr> {
    let parts: Vec<&str> = text.split('.').collect();
    let (last, heads) = parts.split_last()?;
    if heads.len() > 3 {
        return None;
    }
    let mut value: u32 = 0;
    for (i, part) in heads.iter().enumerate() {
        let byte = c_number(part).filter(|&n| n <= 255)?;
        value |= byte << (24 - 8 * i);
    }
    let rest = c_number(last)?;
    let is_too_large = !heads.is_empty() && rest >> (32 - 8 * heads.len()) != 0;
    (!is_too_large).then(|| Ipv4Addr::from(value | rest))
}

fn c_number(text: &str) -> Option<u32> {
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => (hex, 16),
        None if text.len() > 1 && text.starts_with('0') => (text, 8),
        None => (text, 10),
    };
    // `from_str_radix` takes a sign.
    (!digits.starts_with('+')).then(|| u32::from_str_radix(digits, radix).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn none(_: &str) -> Option<u32> {
        None
    }

    const FILE: &[u8] = b"# made by hand\nnameserver 10.0.0.2\nnameserver 127.1\nnameserver fe80::1%3\n\
        nameserver 10.0.0.9\nsearch prod.example  example.\noptions ndots:20 timeout:99 attempts:12 rotate inet6\n";

    #[test]
    fn limits_differ() {
        let (glibc, musl) = (glibc(Some(FILE), None, None, "host", &none), musl(Some(FILE), &none));
        let go = go(Some(FILE), "host", &none);
        assert_eq!((glibc.ndots, glibc.timeout_s, glibc.attempts), (15, 30, 5));
        assert_eq!((musl.ndots, musl.timeout_s, musl.attempts), (15, 60, 10));
        assert_eq!((go.ndots, go.timeout_s, go.attempts), (15, 99, 12));
        assert_eq!(glibc.servers.len(), 3);
        assert_eq!((glibc.unused_servers, musl.unused_servers), (1, 1));
        assert_eq!(glibc.servers[1], "127.0.0.1:53".parse().unwrap());
        // Go does not take the short form of an address.
        assert_eq!(go.servers[1].to_string(), "[fe80::1%3]:53");
        assert_eq!(glibc.search, ["prod.example", "example."]);
        assert_eq!(go.search, ["prod.example", "example"]);
        assert_eq!((glibc.unknown, musl.unknown.len()), (vec!["inet6".to_owned()], 2));
    }

    #[test]
    fn variables_replace_the_file() {
        let settings = glibc(Some(FILE), Some("a b\tc"), Some("ndots:2 no-aaaa"), "host", &none);
        assert_eq!(settings.search, ["a", "b", "c"]);
        assert_eq!((settings.ndots, settings.no_aaaa), (2, true));
        let settings = glibc(None, None, None, "web.example.org", &none);
        assert_eq!(settings.search, ["example.org"]);
        assert_eq!(settings.servers, ["127.0.0.1:53".parse().unwrap()]);
    }

    #[test]
    fn zones() {
        let eth0 = |name: &str| (name == "eth0").then_some(7_u32);
        for (address, by_glibc, by_musl, by_go) in [
            ("fe80::1%eth0", Some("[fe80::1%7]:53"), Some("[fe80::1%7]:53"), Some("[fe80::1%7]:53")),
            ("fe80::1%3", Some("[fe80::1%3]:53"), Some("[fe80::1%3]:53"), Some("[fe80::1%3]:53")),
            ("fe80::1%gone", Some("[fe80::1]:53"), None, Some("[fe80::1]:53")),
            ("fe80::1%", Some("[fe80::1]:53"), None, None),
            ("fd00::1%eth0", Some("[fd00::1]:53"), None, Some("[fd00::1]:53")),
            ("fd00::1", Some("[fd00::1]:53"), Some("[fd00::1]:53"), Some("[fd00::1]:53")),
            ("10.0.0.1%eth0", None, None, None),
        ] {
            let read = |index: ZoneIndex| server(address, index, &eth0).map(|server| server.to_string());
            let owned = |text: Option<&str>| text.map(str::to_owned);
            assert_eq!(read(glibc_zone), owned(by_glibc), "{address}");
            assert_eq!((read(musl_zone), read(go_zone)), (owned(by_musl), owned(by_go)), "{address}");
        }
    }

    #[test]
    fn numbers_of_c() {
        assert_eq!((atoi(" -1"), atoi("99999999999"), atoi("x")), (-1, 1_215_752_191, 0));
        assert_eq!(atoi("99999999999999999999999"), -1);
        for wrong in ["", ".", "1.2.3.4.5", "1.2.3.256", "256.1", "1.16777216", "+1", "0x", "09"] {
            assert_eq!(inet_aton(wrong), None, "{wrong}");
        }
        assert_eq!(inet_aton("010.1"), Some(Ipv4Addr::new(8, 0, 0, 1)));
    }
}
