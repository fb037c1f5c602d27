//! When a Go program with cgo calls the C library, and in which order Go asks by itself.

use std::path::Path;

use mitra_inspect::resolver::trace::Step;
use mitra_inspect::resolver::{self, Caller, Environment, Host, Report};

use super::check;
use super::space::inside;

const PLAIN: &str = "nameserver 127.0.0.1\n";
const DEBIAN: &str = "hosts: files mdns4_minimal [NOTFOUND=return] dns\n";

/// `resolv.conf`, `nsswitch.conf`, perhaps a variable, and a name.
const ORDERS: &[(&str, &str, &str, &str)] = &[
    (PLAIN, "hosts: files dns\n", "", "www.example"),
    (PLAIN, "hosts: dns files\n", "", "www.example"),
    (PLAIN, "hosts: dns\n", "", "www.example"),
    (PLAIN, "hosts: files\n", "", "www.example"),
    (PLAIN, "hosts:\n", "", "www.example"),
    (PLAIN, "passwd: files\n", "", "www.example"),
    (PLAIN, "what is this\n", "", "www.example"),
    (PLAIN, DEBIAN, "", "www.example"),
    (PLAIN, DEBIAN, "", "printer.local"),
    (PLAIN, DEBIAN, "", "a.PRINTER.Local"),
    (PLAIN, DEBIAN, "", "local"),
    (PLAIN, "hosts: files myhostname dns\n", "", "www.example"),
    (PLAIN, "hosts: files myhostname dns\n", "", "BOX"),
    (PLAIN, "hosts: files myhostname dns\n", "", "a.localhost"),
    (PLAIN, "hosts: files myhostname dns\n", "", "_gateway"),
    (PLAIN, "hosts: resolve [!UNAVAIL=return] files dns\n", "", "www.example"),
    (PLAIN, "hosts: files nis\n", "", "www.example"),
    (PLAIN, "hosts: files dns [!UNAVAIL=return]\n", "", "www.example"),
    (PLAIN, "hosts: files [NOTFOUND=return] dns\n", "", "www.example"),
    (PLAIN, "hosts: files [SUCCESS=return NOTFOUND=continue] dns [NOTFOUND=return]\n", "", "www.example"),
    (PLAIN, "hosts: dns myhostname [NOTFOUND=return] files\n", "", "www.example"),
    (PLAIN, "hosts: files dns\n", "LOCALDOMAIN=", "www.example"),
    (PLAIN, "hosts: files dns\n", "RES_OPTIONS=", "www.example"),
    (PLAIN, "hosts: files dns\n", "RES_OPTIONS=ndots:2", "www.example"),
    (PLAIN, "hosts: files dns\n", "HOSTALIASES=/nowhere", "www.example"),
    ("nameserver 127.0.0.1\noptions rotate edns0 trust-ad use-vc\n", "hosts: files dns\n", "", "www.example"),
    ("nameserver 127.0.0.1\noptions no-aaaa\n", "hosts: files dns\n", "", "www.example"),
    ("nameserver 127.0.0.1\nsortlist 10.0.0.0\n", "hosts: files dns\n", "", "www.example"),
    ("lookup file bind\nnameserver 127.0.0.1\n", "hosts: files dns\n", "", "www.example"),
];

/// What Go says of itself (`GODEBUG=netdns=2`), beside the prediction.
#[test]
#[ignore = "needs root: make test-kernel"]
fn go_chooses_as_predicted() {
    inside("go_order::go_chooses_as_predicted", |space| {
        let programs = space.programs();
        let mut wrong = Vec::new();
        for &(resolv_conf, nsswitch, variable, name) in ORDERS {
            let variable = variable.split_once('=');
            space.write("resolv.conf", resolv_conf);
            space.write("nsswitch.conf", nsswitch);
            space.write("hosts", "127.0.0.1 other\n");
            let of = |wanted: &str| {
                variable.filter(|(name, _)| *name == wanted).map(|(_, value)| value.to_owned())
            };
            for (caller, netdns) in
                [(Caller::GoWithCgo, "2"), (Caller::GoWithCgo, "cgo+2"), (Caller::Go, "go+2")]
            {
                let environment = Environment {
                    localdomain: of("LOCALDOMAIN"),
                    res_options: of("RES_OPTIONS"),
                    hostaliases: of("HOSTALIASES"),
                    godebug: Some(format!("netdns={netdns}")),
                };
                let host = Host::read(Path::new("/"), environment).unwrap();
                let expected = predicted(&resolver::report(&host, name, None), caller);
                let Some(actual) = programs.go_order(name, variable.as_slice(), netdns) else {
                    println!("skipped: there is no go with cgo");
                    return;
                };
                if actual != expected {
                    wrong.push(format!(
                        "{resolv_conf}{nsswitch}{name} {variable:?} {netdns}: predicted {expected}, {actual}"
                    ));
                }
            }
        }
        check(&wrong);
    });
}

/// `cgo`, or the sources that Go asks for a name that nobody has.
fn predicted(report: &Report, caller: Caller) -> String {
    let lookup = report.lookups.iter().find(|lookup| lookup.caller == caller).unwrap();
    if lookup.note.as_ref().is_some_and(|note| note.starts_with("calls getaddrinfo")) {
        return "cgo".to_owned();
    }
    let sources = lookup.walk.steps.iter().filter_map(|step| match step {
        Step::Source { source, .. } => Some(source.as_str()),
        Step::Query(_) => None,
    });
    sources.collect::<Vec<_>>().join(",")
}
