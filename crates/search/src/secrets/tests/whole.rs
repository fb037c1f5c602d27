//! Properties of every text, and of whole documents.

use proptest::prelude::*;

use super::{document, judge_all};
use crate::document::{Document, Flag, Kind, Value};
use crate::secrets::Policy;

/// Fragments of lines that the rules react to.
fn pieces() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "password",
        "token",
        "key",
        "Secret",
        "api_key",
        "=",
        ":",
        ": ",
        " ",
        "\"",
        "'",
        "\\",
        "\n",
        "\r\n",
        "  ",
        "\t",
        "#",
        ";",
        ",",
        "<",
        ">",
        "</",
        "{",
        "}",
        "[",
        "]",
        "(",
        ")",
        "|",
        "- ",
        "--",
        "://",
        "@",
        "$",
        "${",
        "}",
        "%",
        "hunter2Zq",
        "ä",
        "€",
        "x",
        "12345",
        "mysql -p",
        "curl -u a:",
        "data:",
        "kind: Secret",
        "-----BEGIN PRIVATE KEY-----",
        "-----END",
        "eyJ",
        "value",
        "name",
        "createUser",
        "user ",
        "Basic ",
        "<withheld:key>",
        "\"\"\"",
        "!vault |",
        "Authorization: Bearer ",
        "default(",
        "identified by ",
    ]);
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn lines_stay_and_what_is_withheld_is_counted(text in pieces()) {
        let policy = Policy::default();
        let (once, found) = policy.clean_text(&text);
        prop_assert_eq!(text.matches('\n').count(), once.matches('\n').count());
        prop_assert_eq!(found.count == 0, once == text);
        prop_assert_eq!(found.count == 0, found.reasons.is_empty());
    }

    #[test]
    fn a_value_behind_its_key_goes(value in "[a-z]{3}[0-9][A-Za-z0-9]{8,20}", pad in " {0,3}") {
        let (clean, found) = Policy::default().clean_text(&format!("a = 1\ndb_password{pad}={pad}{value}\nb = 2\n"));
        prop_assert_eq!(clean, format!("a = 1\ndb_password{pad}={pad}<withheld:password>\nb = 2\n"));
        prop_assert_eq!(found.keys, ["db_password"]);
    }
}

#[test]
fn a_text_without_secrets_is_the_same() {
    let (clean, found) = Policy::default().clean_text("vm.swappiness = 1\n");
    assert_eq!((clean.as_str(), found.count), ("vm.swappiness = 1\n", 0));
}

#[test]
fn facts_and_links_are_cleaned_as_the_content() {
    let mut document = document("/srv/x.conf", "password:\n  geheimnis7\nport: 1\n");
    document.facts.insert("cron.command".to_owned(), vec![Value::Text("curl -u me:geheimnis8 x".to_owned())]);
    document.facts.insert(
        "sysctl.net.ipv6.conf.all.stable_secret".to_owned(),
        vec![Value::Text("fe80::1234".to_owned())],
    );
    document.facts.insert("x.pin".to_owned(), vec![Value::Number(1_234_567.0)]);
    document.link = Some("https://me:geheimnis9@host/".to_owned());
    Policy::default().clean(&mut document);
    let shown = format!("{document:?}");
    for gone in ["geheimnis", "fe80::1234", "1234567"] {
        assert!(!shown.contains(gone), "{gone}: {shown}");
    }
    assert!(document.is(Flag::Redacted));
    assert!(shown.contains("curl -u me:<withheld:password> x"), "{shown}");
}

#[test]
fn a_list_of_packages_is_no_list_of_passwords() {
    let content = "passwd 1:4.13 amd64\nlibsecret-1-0 0.20.5 amd64\ntoken: 1.2.3.4.5\n";
    let mut packages =
        Document { filename: "@packages/dpkg".to_owned(), kind: Kind::Package, ..document("x", content) };
    packages.facts.clear();
    packages.facts.insert("package.passwd".to_owned(), vec![Value::Text("1:4.13+dfsg1".to_owned())]);
    let before = packages.clone();
    Policy::default().clean(&mut packages);
    assert_eq!(packages, before);
}

#[test]
fn the_configuration_adds_and_allows() {
    let policy = Policy::with(&["/srv/**/*.cfg".to_owned()], &["/etc/haproxy/**".to_owned()]).unwrap();
    assert_eq!(policy.denies("/srv/a/b.cfg"), Some("configured"));
    assert_eq!(policy.denies("/etc/haproxy/site.pem"), None);
    assert!(Policy::default().denies("/etc/haproxy/site.pem").is_some());
    assert_eq!(policy.allowed(), ["/etc/haproxy/**"]);
    assert!(policy.denies("/etc/shadow").is_some());
}

#[test]
fn a_denied_file_keeps_its_name_and_nothing_else() {
    let mut shadow = document("/etc/shadow", "anything at all\n");
    Policy::default().clean(&mut shadow);
    assert_eq!((shadow.content.as_deref(), shadow.facts.len()), (None, 0));
    assert!(shadow.is(Flag::Refused) && !shadow.is(Flag::Redacted));
    assert_eq!(
        (shadow.withheld.count, shadow.withheld.reasons.as_slice()),
        (1, &["password-hashes".to_owned()][..])
    );
}

#[test]
fn a_second_check_in_other_notations() {
    let (refused, redacted, wrong) = judge_all(super::further::ROWS.iter());
    let all = super::further::ROWS.len();
    println!(
        "second check: {all} kinds, {refused} files refused, {redacted} redacted, {} missed",
        wrong.len()
    );
    wrong.iter().for_each(|why| println!("  {why}"));
    assert!(wrong.len() * 100 <= all * 15, "{} of {all} are missed", wrong.len());
}
