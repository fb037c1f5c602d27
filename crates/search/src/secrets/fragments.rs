//! Text fragments from a process's memory, without the line that would tell what they are.
//!
//! A token in memory has no key next to it, a line of a private key has no `-----BEGIN`, and a
//! truncated text may end in half a token, which has no known shape. What remains is that tokens
//! are random and human text is not: frequent character pairs of one are rare in the other.

use std::borrow::Cow;

use super::Policy;
use super::report::Reason;

/// Shorter runs are not distinguishable: 18 bytes in base64, twelve in hexadecimal.
const RUN_MIN: usize = 24;
/// A last word of this length in a truncated text is not shown, because it may be the beginning of
/// anything.
const CUT_MIN: usize = 16;
/// The replacement for such a word.
const CUT: &str = "…";
/// Minimum evidence in bits that part of a run is random. Measured on 220,000 runs of at least 24
/// bytes from the standard library of Python 3.12, documentation and libraries of Debian, and on
/// random runs. Of the former 99 % stay; most of the others are hashes and base64. Detected are 97
/// % of base64 with 24 bytes, 99 % with 40, 99 % of hexadecimal with 24, and all parts of JWTs.
const BITS_MIN: i32 = 12;

/// For each lower-case letter, the letters that follow it in words; bit 0 is `a`. These 275 pairs
/// are 97 % of all pairs in the same texts, but 41 % of random ones.
const FOLLOWS: [u32; 26] = [
    0x1bebd6e, 0x1164b15, 0x01e4d95, 0x1164919, 0x1efb97f, 0x01e4931, 0x0166991, 0x00a4111, 0x2aef87f,
    0x0004010, 0x0042110, 0x11cc939, 0x014d113, 0x13c6d7d, 0x07efd7f, 0x11ec911, 0x0100000, 0x13e7d7d,
    0x15ccd95, 0x15ec9bd, 0x00eb97f, 0x0000111, 0x0066191, 0x0088115, 0x00ca000, 0x0000010,
];

impl Policy {
    /// Withholds secrets in a text from a process's memory. `is_cut` means that the text may
    /// continue beyond its end.
    #[must_use]
    pub fn clean_memory(&self, text: &str, is_cut: bool) -> String {
        let whole = if is_cut { without_last(text) } else { Cow::Borrowed(text) };
        let (clean, _) = self.clean_text(&whole);
        without_random(&clean)
    }
}

/// Removes what may be half a token.
fn without_last(text: &str) -> Cow<'_, str> {
    let ends = |char: char| char.is_whitespace() || "\"'`<>()[]{},;&?=|".contains(char);
    let start = text.rfind(ends).map_or(0, |at| at + text[at..].chars().next().map_or(0, char::len_utf8));
    let (before, last) = text.split_at(start);
    if last.len() < CUT_MIN {
        return Cow::Borrowed(text);
    }
    // Keeps the leading directories of a path or URL that are words.
    let mut keep = 0;
    if last.starts_with('/') || last.contains("://") {
        for (at, _) in last.match_indices('/') {
            let folder = last.get(keep..at).unwrap_or_default();
            if folder.len() >= CUT_MIN && bits(folder.as_bytes()) > 0 {
                break;
            }
            keep = at + 1;
        }
    }
    Cow::Owned(format!("{before}{}{CUT}", last.get(..keep).unwrap_or_default()))
}

/// Replaces each random run.
fn without_random(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let length = rest.bytes().position(|byte| !is_of_run(byte)).unwrap_or(rest.len());
        let (run, after) = rest.split_at(length);
        out.push_str(if is_random(run.as_bytes()) { Reason::Random.replacement() } else { run });
        let length = after.bytes().position(is_of_run).unwrap_or(after.len());
        let (between, after) = after.split_at(length);
        out.push_str(between);
        rest = after;
    }
    out
}

/// Characters of base64, JWTs and paths, and percent signs in URLs. `#` stands for a number in
/// patterns.
fn is_of_run(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"+/=-_.~%$#".contains(&byte)
}

fn is_random(run: &[u8]) -> bool {
    // Mangled function names of C++ and Rust have a number before each word.
    run.len() >= RUN_MIN && !run.starts_with(b"_Z") && bits(run) >= BITS_MIN
}

/// The evidence of the part with the most evidence.
fn bits(run: &[u8]) -> i32 {
    let (mut most, mut here) = (0, 0_i32);
    for pair in run.array_windows() {
        here = (here + weight(*pair)).max(0);
        most = most.max(here);
    }
    most
}

/// The bits by which a pair suggests random base64 instead of human text: the logarithm of the
/// ratio of its frequencies in the texts of [`BITS_MIN`].
fn weight(pair: [u8; 2]) -> i32 {
    let is_digit = |byte: u8| byte.is_ascii_digit() || byte == b'#';
    let [one, other] = pair;
    let is_either = |is: fn(&u8) -> bool| (is(&one), is(&other));
    match (is_digit(one), is_digit(other)) {
        // Numbers are as frequent in both.
        (true, true) => return 0,
        (true, false) if other.is_ascii_alphabetic() => return 3,
        (false, true) if one.is_ascii_alphabetic() => return 3,
        _ => {}
    }
    if is_either(u8::is_ascii_alphabetic) != (true, true) {
        return -2;
    }
    let place = |letter: u8| u32::from(letter.to_ascii_lowercase() - b'a');
    let is_common = FOLLOWS[place(one) as usize] >> place(other) & 1 == 1;
    match is_either(u8::is_ascii_uppercase) {
        (false, true) => 1,
        (true, true) if is_common => 0,
        _ if is_common => -2,
        _ => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clean(text: &str) -> String {
        Policy::default().clean_memory(text, false)
    }

    /// Texts from the memory of real programs.
    const ORDINARY: &[&str] = &[
        "GET /api/v1/orders/00000017?customer=000017 HTTP/1.1",
        "orders-client/2.4 (libcurl; retries=3)",
        "/usr/lib/x86_64-linux-gnu/libcrypto.so.1.1",
        "/usr/lib/python3.11/site-packages/urllib3/connectionpool.py",
        "org.springframework.beans.factory.support.DefaultListableBeanFactory",
        "org.springframework.aop.framework.AbstractSingletonProxyFactoryBean",
        "Ljava/util/concurrent/ConcurrentHashMap$ReduceValuesToLongTask;",
        "com/sun/org/apache/xerces/internal/impl/xs/traversers/XSDHandler",
        "{\"id\":17,\"name\":\"Widget\",\"price\":9.99,\"tags\":[\"new\",\"sale\"]}",
        "{\"timestamp\": \"2026-11-22T11:19:04.123456Z\", \"level\": \"INFO\"}",
        "https://example.com/catalogue/products?page=2&sort=price_ascending",
        "http://localhost:8080/metrics/prometheus/application_requests_total",
        "SELECT id, name, created_at FROM customers WHERE country = $1 ORDER BY created_at",
        "INSERT INTO order_items (order_id, product_id, quantity) VALUES (?, ?, ?)",
        "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko)",
        "text/html,application/xhtml+xml,application/xml;q=0.9,image/webp,*/*;q=0.8",
        "Content-Type: application/x-www-form-urlencoded; charset=utf-8",
        "ECDHE-RSA-CHACHA20-POLY1305:ECDHE-ECDSA-AES256-GCM-SHA384",
        "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
        "The quick brown fox jumps over the lazy dog.",
        "Internationalisierungsmöglichkeiten und Straßenbahnhaltestellen",
        "UnicodeDecodeError: 'utf-8' codec can't decode byte 0xff in position 17",
        "concurrent.futures.thread.ThreadPoolExecutor-0_17",
        "_ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEE9_M_appendEPKcm",
        "__attribute__((visibility(\"default\"), nonnull(1, 2)))",
        "LD_LIBRARY_PATH=/usr/local/lib:/opt/service/lib64",
        "pthread_mutex_timedlock_pi_requeue_private_futex",
        "CONFIG_DEBUG_PREEMPT_VOLUNTARY_BUILD_SUPPORTED",
        "getHTTPResponseStatusCodeForRequestWithTimeout",
        "XMLHttpRequestEventTargetPrototypeConstructor",
        "2026-11-22 11:19:04,123 WARN [worker-17] c.e.service.OrderService - slow query",
        "numpy.core._multiarray_umath.cpython-311-x86_64-linux-gnu.so",
        "00000000000000000000000000000017",
        "-----------------------------------------------------------------",
        "1700000000123456789012345678",
        "<div class=\"product-list__item product-list__item--highlighted\">",
        "kubernetes.io/ingress-bandwidth-controller.example.internal",
        "leaks.HANDLERS[…].__closure__[…].cell_contents",
        "(local 'session' of handle_request())",
        "app.password_cache.tokens[…].items",
        "#-#-#T#:#:#Z request-# user=# GET /v#/users/#?page=# HTTP/#.#",
    ];

    #[test]
    fn ordinary_texts_stay_as_they_are() {
        let changed: Vec<_> =
            ORDINARY.iter().map(|text| (*text, clean(text))).filter(|(text, clean)| text != clean).collect();
        assert!(ORDINARY.len() >= 30 && changed.is_empty(), "{changed:#?}");
    }

    /// Made-up secrets in the form of real ones, without a telling word next to them.
    const SECRET: &[&str] = &[
        // Parts of a JWT.
        "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9",
        "eyJzdWIiOiIxMjM0NTY3ODkwIiwibmFtZSI6IkpvaG4gRG9lIiwiaWF0IjoxNTE2",
        "SflKxwRJSMeKKF2QT4fwpMeJf36POk6yJV_adQssw5c",
        "eyJhbGciOiJSUzI1NiIsImtpZCI6IjEyMyJ9.eyJpc3MiOiJodHRwczovL2V4YW1w",
        // Lines of private keys.
        "MIIEpAIBAAKCAQEA0Z3VS5JJcds3xfn/ygWyF8PbnGy0AHB7MhgHcTz6sE2I2yPB",
        "aFDrBz9vFqU4yVkzSnpgkP8kXzVYpNGE8eGcNjs8QFh2mGqYvXwTzLe1JcRbKuN5",
        "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAABFwAAAAdz",
        "Jw8ZmnZ7Ud3kVt+QW2h5kRvnY1aTq0fNzS9dxYHbOe6uCg==",
        // AWS.
        "AKIAIOSFODNN7EXAMPLE",
        "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        "FwoGZXIvYXdzEBYaDKr3mQ7tJ0VnX2hLpSLBASxT5uGdYq9",
        // GitHub and similar.
        "ghp_a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8",
        "github_pat_11ABCDEFG0aBcDeFgHiJkL_mNoPqRsTuVwXyZ0123456789",
        "glpat-Zk3vQ9xL2mWp7RtY8sBn",
        // Session ids.
        "0f1e2d3c4b5a69788796a5b4c3d2e1f0",
        "D41D8CD98F00B204E9800998ECF8427E",
        "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "s%3AZk3vQ9xL2mWp7RtY8sBnCc4D.hV5jT0uKqE6oXrGfI1yMwA",
        "/sessions/Zk3vQ9xL2mWp7RtY8sBnCc4D/renewed",
        "{\"sid\":\"hV5jT0uKqE6oXrGfI1yMwAzN\"}",
        // After a word.
        "Bearer Zk3vQ9xL2mWp7RtY8sBnCc4DhV5jT0uK",
        "Bearer 7d1b6a0c9e8f4a2b3c5d6e7f8091a2b3",
        // The rest of a token in a pattern.
        "ab#Cd#/Ef#gH#/Jk#Lm#+Np#Qr#",
    ];

    #[test]
    fn secrets_are_withheld_without_a_word_beside_them() {
        let is_token = |word: &&str| word.len() >= 16;
        let remains = |text: &&&str| {
            let clean = clean(text);
            text.split(['/', ' ', '"', '.', '_']).filter(is_token).any(|part| clean.contains(part))
                || !clean.contains("<withheld:")
        };
        let shown: Vec<_> = SECRET.iter().filter(remains).map(|text| (text, clean(text))).collect();
        assert!(SECRET.len() >= 20 && shown.is_empty(), "{shown:#?}");
    }

    #[test]
    fn of_a_cut_text_the_last_word_is_not_shown() {
        for (text, expected) in [
            ("Cookie is eyJhbGciOiJIUzI1Ni", "Cookie is …"),
            ("GET /api/v1/orders/17?session=Zk3vQ9xL2mWp7RtY", "GET /api/v1/orders/17?session=…"),
            ("{\"name\":\"Widget\",\"sid\":\"hV5jT0uKqE6oXrGf", "{\"name\":\"Widget\",\"sid\":\"…"),
            ("AKIAIOSFODNN7EXA", "…"),
            ("opens /usr/lib/python3.11/site-packages/urll", "opens /usr/lib/python3.11/site-packages/…"),
            ("/s/Zk3vQ9xL2mWp7RtY8s/x", "/s/…"),
            ("the last word is sho", "the last word is sho"),
            ("größe \u{a0}internationalisie", "größe \u{a0}…"),
            ("", ""),
        ] {
            assert_eq!(Policy::default().clean_memory(text, true), expected);
        }
        // Wherever the token is cut, at most its first few bytes are shown.
        let token = "hV5jT0uKqE6oXrGfI1yMwAzNZk3vQ9xL2mWp7RtY8sBnCc4D";
        for length in CUT_MIN..token.len() {
            let cut = format!("Set-Header: {}", &token[..length]);
            assert!(!Policy::default().clean_memory(&cut, true).contains(&token[..CUT_MIN]), "{length}");
        }
    }

    #[test]
    fn what_was_withheld_stays_so() {
        for text in ORDINARY.iter().chain(SECRET) {
            for is_cut in [false, true] {
                let again = |text: &str| Policy::default().clean_memory(text, is_cut);
                assert_eq!(again(&again(text)), again(text));
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn nothing_panics(text in "[aZ9/=… \"{é]{0,80}", is_cut: bool) {
            let _ = Policy::default().clean_memory(&text, is_cut);
        }
    }
}
