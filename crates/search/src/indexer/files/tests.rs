use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::*;

fn write(root: &Path, path: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, "x").unwrap();
}

fn asked(files: &[&str], exclude: &[&str]) -> Selection {
    let own = |all: &[&str]| all.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
    Selection::new(&own(files), &own(exclude)).unwrap()
}

fn names(root: &Path, files: &[&str], exclude: &[&str]) -> (Vec<String>, Vec<String>) {
    let mut dirs = Vec::new();
    let root = Root::open(root).unwrap();
    let listing = asked(files, exclude).list(&root, &mut |path, _| dirs.push(path.to_owned()));
    assert!(!listing.was_cut && listing.unlisted.is_empty(), "{listing:?}");
    (listing.names.into_keys().collect(), dirs)
}

#[test]
fn paths_patterns_and_directories_are_found() {
    let tmp = tempfile::tempdir().unwrap();
    let root = tmp.path();
    for path in
        ["etc/hosts", "etc/a.conf", "etc/app/b.conf", "etc/app/deep/c.conf", "etc/app/c.conf.bak", "srv/x"]
    {
        write(root, path);
    }
    symlink("a.conf", root.join("etc/link.conf")).unwrap();
    let found = |files: &[&str], exclude: &[&str]| names(root, files, exclude).0;
    assert_eq!(found(&["/etc/hosts"], &[]), ["/etc/hosts"]);
    assert_eq!(found(&["/etc/*.conf"], &[]), ["/etc/a.conf", "/etc/link.conf"]);
    assert_eq!(found(&["/etc/**/c.*"], &[]), ["/etc/app/c.conf.bak", "/etc/app/deep/c.conf"]);
    let all = ["/etc/a.conf", "/etc/app/b.conf", "/etc/app/deep/c.conf", "/etc/hosts", "/etc/link.conf"];
    assert_eq!(found(&["/etc", "/etc/hosts"], &["*.bak"]), all);
    assert_eq!(found(&["/etc"], &["/etc/app", "*.conf"]), ["/etc/hosts"]);
    assert_eq!(found(&["/none/x", "/none/*.y"], &[]), ["/none/x"], "what is named is looked for");
    let dirs = names(root, &["/none/deep/x", "/etc/app/deep/*", "/etc/hosts"], &[]).1;
    assert_eq!(dirs, ["/", "/etc/app/deep", "/etc"], "the nearest directory that is there");
}

#[test]
fn braces_are_several_patterns() {
    assert_eq!(braces("/a/{b,c}/{d,e}"), ["/a/b/d", "/a/b/e", "/a/c/d", "/a/c/e"]);
    assert_eq!(braces("/a/{b}/c}{"), ["/a/{b}/c}{"]);
    assert_eq!(braces("/{a}/{b,c}"), ["/{a}/b", "/{a}/c"]);
    assert_eq!(braces("/{a{b,c}d,e}"), ["/abd", "/e", "/acd"]);
    assert!(braces(&"{a,b}".repeat(40)).len() <= BRACES_MAX + 40);
    let a = asked(&["/etc/{hosts,app/*.conf}"], &["*.{bak,swp}"]);
    assert_eq!(a.how("/etc/hosts"), Some(How::Named));
    assert_eq!((a.how("/etc/app/a.conf"), a.how("/etc/app/b.bak")), (Some(How::Found), None));
    assert!(a.excludes("/x/y.swp"));
}

#[test]
fn links_lead_only_to_what_was_asked_for() {
    let a = asked(&["/etc", "/srv/*.conf", "/etc/os-release"], &["/etc/ssl"]);
    assert!(a.may_follow("/etc/x", "/etc/y"));
    assert!(a.may_follow("/etc/x", "/srv/a.conf"));
    assert!(a.may_follow("/etc/os-release", "/usr/lib/os-release"));
    assert!(a.may_follow("/proc/mounts", "/proc/12/mounts"));
    assert!(!a.may_follow("/etc/x", "/usr/lib/os-release"));
    assert!(!a.may_follow("/etc/x", "/home/u/secret"));
    assert!(!a.may_follow("/etc/x", "/etc/ssl/a"));
}

#[test]
fn what_an_event_is_about_is_known() {
    let a = asked(&["/etc/app", "/srv/*/x.conf", "/etc/hosts"], &["*.swp"]);
    assert_eq!(a.how("/etc/hosts"), Some(How::Named));
    assert_eq!(a.how("/etc/app/x"), Some(How::Found));
    assert_eq!(a.how("/etc/app/.x.swp"), None);
    assert_eq!(a.how("/etc/passwd"), None);
    assert!(a.leads_to("/srv") && a.leads_to("/srv/new") && a.leads_to("/etc/app/new"));
    assert!(!a.leads_to("/srv/new/deeper") && !a.leads_to("/home"));
    assert!(a.is_volatile("/proc/meminfo") && a.is_volatile("/proc/12/stat"));
    assert!(!a.is_volatile("/proc/cmdline") && !a.is_volatile("/etc/hosts"));
}

#[test]
fn walks_are_bounded() {
    let tmp = tempfile::tempdir().unwrap();
    write(tmp.path(), &format!("a/{}x", "d/".repeat(DEPTH_MAX + 4)));
    let root = Root::open(tmp.path()).unwrap();
    let listing = asked(&["/a"], &[]).list(&root, &mut |_, _| {});
    assert!(listing.was_cut && listing.names.is_empty());
}

#[test]
fn proc_is_not_read_by_whoever_asks_for_all() {
    let root = Root::open(Path::new("/")).unwrap();
    assert!(is_made_up(&root.dir("/proc").unwrap()));
    assert!(!tells_changes(&root.dir("/proc").unwrap()));
    let mut dirs = Vec::new();
    let a = asked(&["/*/version"], &[]);
    let listing = a.list(&root, &mut |path, _| dirs.push(path.to_owned()));
    assert!(!listing.names.contains_key("/proc/version"));
}
