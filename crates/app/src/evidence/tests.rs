//! Folders that somebody made in order to do harm, and a few that are just odd.

use std::fs::{self, File};
use std::io::{Cursor, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};

use clap::CommandFactory;
use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::*;

const SECRET: &str = "root-only-words that nobody may see";

fn load(paths: &[PathBuf], good: Option<&Path>, date: Option<i64>) -> Result<Loaded> {
    Ok(open(paths, good)?.read(date))
}

/// A secret file beside a folder of evidence.
struct Setup {
    dir: tempfile::TempDir,
    case: PathBuf,
}

fn setup() -> Setup {
    let dir = tempfile::tempdir().unwrap();
    let secret = dir.path().join("secret");
    fs::write(&secret, format!("{SECRET}\n")).unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    let case = dir.path().join("case");
    fs::create_dir(&case).unwrap();
    Setup { dir, case }
}

impl Setup {
    fn load(&self) -> Loaded {
        load(std::slice::from_ref(&self.case), None, None).unwrap()
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        let path = self.case.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

impl Loaded {
    fn file(&self, name: &str) -> &FileRead {
        self.files.iter().find(|file| file.file == name).unwrap_or_else(|| panic!("{name}: {:?}", self.files))
    }

    fn notes(&self, name: &str) -> String {
        self.file(name).notes.join("; ")
    }

    fn text(&self, name: &str) -> Option<String> {
        let mut text = String::new();
        self.open(name)?.read_to_string(&mut text).unwrap();
        Some(text)
    }
}

/// Lines that no format recognises.
fn lines(n: usize) -> String {
    "strange words\n".repeat(n)
}

#[test]
fn no_link_is_followed_out_of_the_folder() {
    let s = setup();
    s.write("real.txt", "words inside\n");
    s.write("inner/x.txt", "x\n");
    symlink(s.dir.path().join("secret"), s.case.join("absolute")).unwrap();
    symlink("../secret", s.case.join("upwards")).unwrap();
    symlink("../../secret", s.case.join("inner/upwards")).unwrap();
    symlink("upwards", s.case.join("chain")).unwrap();
    symlink("/proc/self/fd/0", s.case.join("magic")).unwrap();
    symlink("round", s.case.join("round")).unwrap();
    symlink("nowhere", s.case.join("dangling")).unwrap();
    symlink("..", s.case.join("parent")).unwrap();
    symlink("inner", s.case.join("folder")).unwrap();
    symlink("real.txt", s.case.join("inside")).unwrap();
    symlink("../real.txt", s.case.join("inner/inside")).unwrap();
    let loaded = s.load();
    assert!(!format!("{:?}", loaded.files).contains(SECRET), "{:?}", loaded.files);
    for name in ["absolute", "upwards", "inner/upwards", "chain", "magic", "parent"] {
        assert!(loaded.notes(name).contains("leads out of the folder"), "{name}: {}", loaded.notes(name));
        assert!(loaded.open(name).is_none());
    }
    for name in ["round", "dangling"] {
        assert!(loaded.notes(name).contains("a link: not followed"), "{name}: {}", loaded.notes(name));
    }
    assert_eq!(loaded.notes("folder"), "a link to a folder: not followed");
    for name in ["inside", "inner/inside", "real.txt"] {
        assert_eq!(loaded.text(name).as_deref(), Some("words inside\n"), "{name}");
    }
}

#[test]
fn a_good_side_is_no_way_out_either() {
    let s = setup();
    s.write("a.txt", "x\n");
    let good = s.dir.path().join("case/usual");
    fs::create_dir(&good).unwrap();
    symlink("../../secret", good.join("out")).unwrap();
    fs::write(good.join("b.txt"), "y\n").unwrap();
    let loaded = load(std::slice::from_ref(&s.case), Some(&good), None).unwrap();
    assert!(loaded.notes("out").contains("leads out of the folder"), "{:?}", loaded.files);
    assert!(!format!("{:?}", loaded.files).contains(SECRET));
    // What lies in the good side is of that side only.
    assert_eq!(loaded.files.iter().map(|f| f.file.as_str()).collect::<Vec<_>>(), ["a.txt", "b.txt", "out"]);
    assert!(loaded.good.is_some());
}

#[test]
fn links_on_the_command_line_are_followed() {
    let s = setup();
    s.write("a.txt", "words\n");
    let link = s.dir.path().join("link");
    symlink(&s.case, &link).unwrap();
    assert_eq!(load(&[link], None, None).unwrap().text("a.txt").as_deref(), Some("words\n"));
    let link = s.dir.path().join("file");
    symlink(s.case.join("a.txt"), &link).unwrap();
    assert_eq!(load(&[link], None, None).unwrap().text("file").as_deref(), Some("words\n"));
    assert!(load(&[s.dir.path().join("none")], None, None).is_err());
}

#[test]
fn only_regular_files_are_opened() {
    let s = setup();
    s.write("a.txt", "words\n");
    let mode = Mode::from(0o600);
    mknodat(CWD, s.case.join("pipe"), FileType::Fifo, mode, 0).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(s.case.join("socket")).unwrap();
    let mut wanted = vec![("pipe", "a named pipe: not read"), ("socket", "a socket: not read")];
    // The watchdog: opening it would start it.
    let device = rustix::fs::makedev(10, 130);
    if mknodat(CWD, s.case.join("device"), FileType::CharacterDevice, mode, device).is_ok() {
        wanted.push(("device", "a device: not read"));
    } else {
        println!("no device is made: that needs root");
    }
    symlink("pipe", s.case.join("to-a-pipe")).unwrap();
    wanted.push(("to-a-pipe", "a named pipe: not read"));
    let loaded = s.load();
    for (name, why) in wanted {
        assert_eq!(loaded.notes(name), why, "{name}");
    }
    let loaded = load(&[s.case.join("pipe")], None, None).unwrap();
    assert_eq!(loaded.notes("pipe"), "a named pipe: not read");
}

#[test]
fn a_file_is_opened_once_whatever_becomes_of_its_name() {
    for room in [100, 0] {
        let s = setup();
        for name in ["a.txt", "b.txt", "c.txt"] {
            s.write(name, "as it was\n");
        }
        let paths = std::slice::from_ref(&s.case);
        let found = find::find_with(room, paths, None).unwrap();
        let opened = prepare(paths, None, found).unwrap();
        // One becomes a link, one another file, and one grows.
        fs::remove_file(s.case.join("a.txt")).unwrap();
        symlink("../secret", s.case.join("a.txt")).unwrap();
        fs::write(s.case.join("new"), "another\n").unwrap();
        fs::rename(s.case.join("new"), s.case.join("b.txt")).unwrap();
        let mut grows = File::options().append(true).open(s.case.join("c.txt")).unwrap();
        grows.write_all(lines(1000).as_bytes()).unwrap();
        let loaded = opened.read(None);
        assert!(!format!("{:?}", loaded.files).contains(SECRET), "{:?}", loaded.files);
        assert_eq!(loaded.text("c.txt").as_deref(), Some("as it was\n"));
        assert_eq!(loaded.file("c.txt").lines, 1);
        if room > 0 {
            assert_eq!(loaded.text("a.txt").as_deref(), Some("as it was\n"));
            assert_eq!(loaded.text("b.txt").as_deref(), Some("as it was\n"));
        } else {
            assert!(loaded.open("a.txt").is_none() && loaded.open("b.txt").is_none());
            assert!(loaded.notes("b.txt").contains("another file has its name"), "{:?}", loaded.files);
        }
    }
}

#[test]
fn a_file_is_shortened_while_it_is_read() {
    let s = setup();
    s.write("a.txt", lines(1000));
    let paths = std::slice::from_ref(&s.case);
    let opened = open(paths, None).unwrap();
    File::options().write(true).open(s.case.join("a.txt")).unwrap().set_len(14).unwrap();
    assert_eq!(opened.read(None).file("a.txt").lines, 1);
}

#[test]
fn a_hole_of_a_terabyte_is_not_read() {
    let s = setup();
    let text = lines(100_000);
    s.write("sparse.txt", &text);
    s.write("nothing.txt", "");
    for (name, size) in [("sparse.txt", 1_u64 << 40), ("nothing.txt", 1 << 40)] {
        let file = File::options().write(true).open(s.case.join(name)).unwrap();
        if let Err(error) = file.set_len(size) {
            return println!("skipped: no file of a terabyte can be made here: {error}");
        }
    }
    let loaded = s.load();
    assert!(loaded.notes("sparse.txt").contains("a hole"), "{:?}", loaded.files);
    assert!(loaded.file("sparse.txt").lines >= 100_000);
    assert_eq!(loaded.notes("nothing.txt"), "binary: not read");
}

#[test]
fn what_unpacks_to_too_much_is_not_unpacked_to_its_end() {
    let s = setup();
    let mut bomb = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    let chunk = vec![b'x'; 1 << 20];
    for _ in 0..400 {
        bomb.write_all(&chunk).unwrap();
    }
    let bomb = bomb.finish().unwrap();
    assert!(bomb.len() * 500 < 400 << 20, "{}", bomb.len());
    s.write("bomb.gz", bomb);
    let loaded = s.load();
    assert!(
        loaded.notes("bomb.gz").contains("it unpacks to more than 300 times its size"),
        "{:?}",
        loaded.files
    );
}

#[test]
fn logs_that_say_the_same_for_ever_are_unpacked() {
    let s = setup();
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    packed.write_all(lines(1_000_000).as_bytes()).unwrap();
    s.write("log.gz", packed.finish().unwrap());
    s.write("log.bz2", b"BZh91AY&SY\xff\x00");
    s.write("torn.gz", b"\x1f\x8b\x08\0\0\0\0\0\0\x03\x01\x02");
    let loaded = s.load();
    assert_eq!(loaded.file("log.gz").lines, 1_000_000);
    assert_eq!(loaded.notes("log.gz"), "");
    assert_eq!(loaded.notes("log.bz2"), "packed by bzip2: not read; unpack it");
    assert!(loaded.notes("torn.gz").contains("could not be read to its end"), "{:?}", loaded.files);
}

fn tar_of(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for (name, bytes) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, name, *bytes).unwrap();
    }
    tar.into_inner().unwrap()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(bytes).unwrap();
    packed.finish().unwrap()
}

fn zip_of(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
    let stored = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    for (name, bytes) in files {
        zip.start_file(*name, stored).unwrap();
        zip.write_all(bytes).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

/// `MemTotal: 7 kB` and `MemFree: 6 kB`, packed by xz.
const XZ: &[u8] = b"\xfd\x37\x7a\x58\x5a\x00\x00\x04\xe6\xd6\xb4\x46\x02\x00\x21\x01\x10\x00\x00\x00\xa8\x70\x8e\x86\x01\x00\x1c\x4d\x65\x6d\x54\x6f\x74\x61\x6c\x3a\x20\x37\x20\x6b\x42\x0a\x4d\x65\x6d\x46\x72\x65\x65\x3a\x20\x36\x20\x6b\x42\x0a\x00\x00\x00\x00\xb2\x96\xd8\xf3\x9d\x4b\x1a\x77\x00\x01\x35\x1d\x44\x1b\xb1\xe1\x1f\xb6\xf3\x7d\x01\x00\x00\x00\x00\x04\x59\x5a";

#[test]
fn archives_inside_each_other_are_read() {
    let s = setup();
    let long = format!("{}/meminfo", "folder/".repeat(30));
    let inner = tar_of(&[
        ("proc/meminfo", b"MemTotal: 5 kB\nMemFree: 4 kB\n"),
        (&long, b"MemTotal: 3 kB\nMemFree: 2 kB\n"),
        ("binary", b"\0\x01"),
    ]);
    let outer = zip_of(&[
        ("host-1.tar.gz", &gzip(&inner)),
        ("m.xz", XZ),
        ("m.zst", &zstd::encode_all(&b"MemTotal: 9 kB\nMemFree: 8 kB\n"[..], 1).unwrap()),
        ("../../out", b"MemTotal: 1 kB\n"),
    ]);
    s.write("case.zip", outer);
    let loaded = s.load();
    for (name, total) in [
        ("case.zip/host-1.tar.gz/proc/meminfo", 5.0),
        (&format!("case.zip/host-1.tar.gz/{long}"), 3.0),
        ("case.zip/m.xz", 7.0),
        ("case.zip/m.zst", 9.0),
    ] {
        assert_eq!(loaded.file(name).unread, 0, "{name}");
        let file = loaded.files.iter().position(|f| f.file == name).unwrap();
        let series = loaded.set.get("mem.total", "").unwrap();
        let at = series.axis.places.iter().position(|p| p.file as usize == file).unwrap();
        assert_eq!((series.values[at], series.axis.places[at].line), (total * 1024.0, 1), "{name}");
        assert!(loaded.text(name).unwrap().starts_with(&format!("MemTotal: {total}")), "{name}");
    }
    assert_eq!(loaded.notes("case.zip/host-1.tar.gz/binary"), "binary: not read");
    assert!(!s.dir.path().join("out").exists());
}

#[test]
fn archives_have_bounds() {
    let s = setup();
    let mut nested = gzip(b"MemTotal: 5 kB\n");
    for _ in 0..8 {
        nested = gzip(&nested);
    }
    s.write("nested.gz", nested);
    let names: Vec<String> = (0..=20_000).map(|n| format!("n{n}")).collect();
    let many: Vec<(&str, &[u8])> = names.iter().map(|n| (n.as_str(), &b""[..])).collect();
    s.write("many.tar", tar_of(&many));
    let tar = tar_of(&[("a", b"MemTotal: 5 kB\n"), ("b", b"MemTotal: 6 kB\n")]);
    s.write("torn.tar", &tar[..1100]);
    s.write("torn.zip", b"PK\x03\x04 and no more");
    s.write("torn.xz", &XZ[..20]);
    let loaded = s.load();
    assert!(loaded.notes("nested.gz").contains("inside 6 others"), "{}", loaded.notes("nested.gz"));
    assert!(loaded.notes("many.tar").contains("more than 20000 files"), "{}", loaded.notes("many.tar"));
    assert_eq!(loaded.file("torn.tar/a").unread, 0);
    for name in ["torn.zip", "torn.xz"] {
        assert!(loaded.notes(name).contains("could not be read to its end"), "{name}");
    }
}

#[test]
fn a_folder_of_too_many_names_is_refused() {
    let s = setup();
    for folder in ["a", "b"] {
        fs::create_dir(s.case.join(folder)).unwrap();
        for n in 0..=find::NAMES_MAX / 2 {
            File::create(s.case.join(format!("{folder}/{n}"))).unwrap();
        }
    }
    let Err(error) = load(std::slice::from_ref(&s.case), None, None) else { panic!("it was read") };
    assert!(error.to_string().contains("more than 20000 files and folders"), "{error}");
}

#[test]
fn folders_in_folders_end_somewhere() {
    let s = setup();
    s.write(&format!("{}deep.txt", "d/".repeat(15)), "x\n");
    s.write(&format!("{}deeper.txt", "e/".repeat(40)), "x\n");
    let loaded = s.load();
    assert_eq!(loaded.files.len(), 2);
    assert_eq!(loaded.notes("e/".repeat(16).trim_end_matches('/')), "a folder below 16 others: not read");
}

#[test]
fn names_may_be_anything() {
    let s = setup();
    for (name, text) in [(&b"\xff.txt"[..], "one\n"), (b"\xfe.txt", "two\n"), (b"a\x1b[2J\nb.txt", "three\n")]
    {
        fs::write(s.case.join(std::ffi::OsStr::from_bytes(name)), text).unwrap();
    }
    let loaded = s.load();
    let mut texts: Vec<String> = loaded.files.iter().filter_map(|file| loaded.text(&file.file)).collect();
    texts.sort();
    assert_eq!(texts, ["one\n", "three\n", "two\n"]);
}

#[test]
fn files_that_say_that_they_are_empty_are_read() {
    let loaded = load(&[PathBuf::from("/proc/vmstat")], None, None).unwrap();
    assert!(loaded.file("vmstat").lines > 50, "{:?}", loaded.files);
}

#[test]
fn a_binary_file_of_sysstat_is_read_by_sadf() {
    let s = setup();
    let made =
        std::process::Command::new("/usr/lib/sysstat/sadc").args(["1", "3"]).arg(s.case.join("sa")).status();
    if !made.is_ok_and(|status| status.success()) || !fs::exists("/usr/bin/sadf").unwrap() {
        return println!("skipped: sysstat is not installed");
    }
    fs::set_permissions(s.case.join("sa"), fs::Permissions::from_mode(0o600)).unwrap();
    let mut torn = fs::read(s.case.join("sa")).unwrap();
    torn.truncate(torn.len() / 5);
    s.write("torn", torn);
    let loaded = s.load();
    assert!(!loaded.notes("sa").contains("could not"), "{:?}", loaded.files);
    assert!(
        loaded.file("sa").formats.iter().any(|f| f == "sysstat binary, read by sadf"),
        "{:?}",
        loaded.files
    );
    assert!(loaded.file("sa").lines > 10);
    let note = loaded.notes("torn");
    assert!(note.contains("sadf could not read it") && !note.contains("/proc/self"), "{note}");
}

#[test]
fn folders_that_say_that_all_was_well() {
    for name in ["baseline-32g", "at-start", "after-fix", "good", "Baseline", "before_upgrade", "healthy.2"] {
        assert!(is_good_name(name), "{name}");
    }
    for name in ["incident", "grown", "goods", "beforehand", "afternoon", "web", ""] {
        assert!(!is_good_name(name), "{name}");
    }
}

#[test]
fn the_help_names_them() {
    let mitra = crate::cli::Cli::command();
    let explain = mitra.find_subcommand("explain").unwrap();
    let baseline = explain.get_arguments().find(|argument| argument.get_id() == "baseline").unwrap();
    let help = baseline.get_help().unwrap().to_string();
    for word in GOOD_WORDS.iter().chain(GOOD_STARTS).filter(|word| !word.contains('_')) {
        assert!(help.contains(word), "{word} is not in {help}");
    }
}
