//! `cache`: reads whose share of hits is known.

use std::io::Read as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use std::{fs, thread};

use mitra_collect::capture::Request;
use mitra_model::capture::{CaptureTable, Cell};

use crate::armed::judge::{Judge, agree};
use crate::{arm, has, number, one_row, own, rows, table, watch};

const PAGE: usize = 4096;

/// A file on a disk, whose pages are not in the cache.
fn cold_file(dir: &Path, name: &str, pages: usize) -> std::path::PathBuf {
    let path = dir.join(name);
    fs::write(&path, vec![7_u8; pages * PAGE]).unwrap();
    evict(&path);
    path
}

fn evict(path: &Path) {
    let file = fs::File::open(path).unwrap();
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
}

/// In the build directory: a temporary one may be in memory, where there is no page to miss.
fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// The row of what this process asked of a file. Where memory is short the kernel's own threads evict pages of it, which is theirs.
fn own_row<'a>(files: &'a CaptureTable, path: &Path) -> &'a Vec<Cell> {
    let pid = f64::from(std::process::id());
    let of_file = rows(files, &[("file", path.to_str().unwrap())]);
    let own: Vec<_> = of_file.into_iter().filter(|row| number(files, row, "pid") == pid).collect();
    assert_eq!(own.len(), 1, "{:#?}", files.rows);
    own[0]
}

fn read_each_page(path: &Path, pages: usize) {
    let file = fs::File::open(path).unwrap();
    // Otherwise readahead brings in what is asked for later, and those would be hits.
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random).unwrap();
    let mut page = [0; PAGE];
    for i in 0..pages {
        file.read_exact_at(&mut page, (i * PAGE) as u64).unwrap();
    }
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn a_cold_read_misses_and_a_second_one_hits() {
    let dir = directory();
    let path = cold_file(dir.path(), "cold", 2048);
    let of_thread = path.clone();
    let raw = watch(&own("cache", "mitra-reads"), move || {
        read_each_page(&of_thread, 2048);
        read_each_page(&of_thread, 2048);
        read_each_page(&of_thread, 2048);
        read_each_page(&of_thread, 2048);
        evict(&of_thread);
    });
    let Some(raw) = raw else { return };
    let files = table(&raw, "files");
    let row = own_row(files, &path);
    assert_eq!(number(files, row, "asked"), 4.0 * 2048.0);
    let missed = number(files, row, "brought in");
    assert!((2048.0..2048.0 * 1.02).contains(&missed), "{missed} missed");
    assert!((number(files, row, "hit ratio") - 0.75).abs() < 0.01, "{row:?}");
    // Whatever the kernel's own threads took first is in rows of theirs.
    let dropped = number(files, row, "dropped");
    assert!((0.98 * missed..=missed).contains(&dropped), "{dropped} of {missed}");
    assert_eq!(number(files, row, "evicted"), 0.0);
}

/// A large read comes in several turns, and each of them announces what is left.
#[test]
#[ignore = "needs root: make test-kernel"]
fn a_large_read_asks_for_each_page_once() {
    let dir = directory();
    let path = dir.path().join("large");
    // Written page by page, so that a file system that can has small folios too.
    let file = fs::File::create(&path).unwrap();
    for i in (0..1024).rev() {
        file.write_all_at(&[1; PAGE], i * PAGE as u64).unwrap();
    }
    drop(file);
    let of_thread = path.clone();
    let raw = watch(&own("cache", "mitra-large"), move || {
        let mut file = fs::File::open(&of_thread).unwrap();
        // The last read asks for more than there is.
        let mut buffer = vec![0; 3 << 20];
        while file.read(&mut buffer).unwrap() > 0 {}
    });
    let Some(raw) = raw else { return };
    let files = table(&raw, "files");
    let row = own_row(files, &path);
    assert_eq!(number(files, row, "asked"), 1024.0, "{row:?}");
    assert_eq!(number(files, row, "hit ratio"), 1.0);
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn what_is_written_was_not_missed() {
    let dir = directory();
    let path = dir.path().join("written");
    let of_thread = path.clone();
    let raw =
        watch(&own("cache", "mitra-writes"), move || fs::write(of_thread, vec![1; 512 * PAGE]).unwrap());
    let Some(raw) = raw else { return };
    let files = table(&raw, "files");
    let row = own_row(files, &path);
    assert_eq!(number(files, row, "written"), 512.0);
    assert_eq!(number(files, row, "brought in"), 0.0);
    assert_eq!(row[crate::column(files, "hit ratio")], Cell::Unknown(()));
}

/// fio reads each page of a file once, at random, and as much of it as is wanted was read before.
#[test]
#[ignore = "needs root: make test-kernel"]
fn the_hit_ratio_of_fio_is_the_one_that_was_made() {
    if !rustix::process::geteuid().is_root() || !has("fio") {
        return;
    }
    let pages = 16 * 1024;
    for warm in [0.0, 0.5, 0.9] {
        let dir = directory();
        let path = cold_file(dir.path(), "fio.data", pages);
        read_each_page(&path, (pages as f64 * warm) as usize);
        let request = Request { comm: Some("fio".to_owned()), ..Request::new("cache", 30.0, "test") };
        let Some(mut armed) = arm(&Request { cost_budget: 1.0, ..request }) else { return };
        let output = Command::new("fio")
            .args(["--name=j", "--rw=randread", "--bs=4k", "--ioengine=psync", "--invalidate=0", "--thread"])
            .args(["--randseed=7", "--fadvise_hint=0"])
            .arg(format!("--size={}", pages * PAGE))
            .arg(format!("--filename={}", path.display()))
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        thread::sleep(Duration::from_millis(100));
        armed.poll();
        let raw = armed.finish();
        let files = table(&raw, "files");
        // Who evicts a page of it meanwhile has a row of its own.
        let row = one_row(files, &[("comm", "fio"), ("file", path.to_str().unwrap())]);
        // Read ahead of a file that is not there at all, more may be brought in than is asked for.
        let ratio = match row[crate::column(files, "hit ratio")] {
            Cell::Unknown(()) if warm == 0.0 => 0.0,
            _ => number(files, row, "hit ratio"),
        };
        println!(
            "fio with {warm} of the file in the cache: asked {}, brought in {}, hit ratio {ratio:.3}",
            number(files, row, "asked"),
            number(files, row, "brought in")
        );
        // Without a hint fio's reads look random to readahead, which leaves them alone after the first few.
        assert!((ratio - warm).abs() < 0.05, "{warm} made, {ratio} seen: {row:?}");
        assert_eq!(number(files, row, "asked"), pages as f64);
    }
}

/// A group of version 1 that goes away again.
struct Group(std::path::PathBuf);

impl Group {
    fn of_limit(bytes: usize) -> Option<Self> {
        let text = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let mut mounts = text.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let mount =
            mounts.find(|words| words[2] == "cgroup" && words[3].split(',').any(|o| o == "memory"))?;
        let group = Path::new(mount[1]).join(format!("mitra-test-{}", std::process::id()));
        fs::create_dir(&group).ok()?;
        fs::write(group.join("memory.limit_in_bytes"), bytes.to_string()).ok()?;
        Some(Self(group))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        _ = fs::remove_dir(&self.0);
    }
}

/// A file larger than the memory of its reader pushes itself out.
#[test]
#[ignore = "needs root: make test-kernel"]
fn pages_that_reclaim_takes_are_evicted_and_not_dropped() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let Some(group) = Group::of_limit(16 << 20) else {
        println!("skipped: no memory controller of version 1 here");
        return;
    };
    let dir = directory();
    let pages = 16 * 1024;
    let path = cold_file(dir.path(), "too-large", pages);
    let request = Request { comm: Some("cat".to_owned()), ..Request::new("cache", 30.0, "test") };
    let Some(mut armed) = arm(&Request { cost_budget: 1.0, ..request }) else { return };
    let script = "echo $$ > \"$0\"/cgroup.procs && exec cat \"$1\" > /dev/null";
    let status = Command::new("sh").args(["-c", script]).arg(&group.0).arg(&path).status().unwrap();
    assert!(status.success());
    armed.poll();
    let raw = armed.finish();
    let files = table(&raw, "files");
    let row = one_row(files, &[("file", path.to_str().unwrap())]);
    let (brought_in, evicted) = (number(files, row, "brought in"), number(files, row, "evicted"));
    // What does not fit has to go. Of a reader that is so short of memory some is read ahead twice.
    let stayed = brought_in - evicted;
    assert!(brought_in >= pages as f64 && (0.0..=4096.0).contains(&stayed), "{row:?}");
    assert_eq!(number(files, row, "dropped"), 0.0);
    // What was read ahead and taken before it was read is brought in twice.
    let ratio = &row[crate::column(files, "hit ratio")];
    let twice = brought_in > number(files, row, "asked");
    assert_eq!(*ratio, if twice { Cell::Unknown(()) } else { Cell::Number(0.0) }, "{row:?}");
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn pages_agree_with_bpftrace() {
    let script = "tracepoint:filemap:mm_filemap_get_pages /comm == \"mitra-reads2\"/ \
                  { @asked = sum(args->last_index - args->index + 1); } \
                  tracepoint:filemap:mm_filemap_add_to_page_cache /comm == \"mitra-reads2\"/ \
                  { @added = sum(1 << args->order); }";
    let optional = ["filemap:mm_filemap_get_pages", "order"];
    let Some(judge) = Judge::start_where_known(&optional, script) else { return };
    let dir = directory();
    let path = cold_file(dir.path(), "judged", 4096);
    let of_thread = path.clone();
    let raw = watch(&own("cache", "mitra-reads2"), move || {
        read_each_page(&of_thread, 2048);
        // With readahead, in large folios where the file system has them.
        let mut file = fs::File::open(&of_thread).unwrap();
        while file.read(&mut [0; PAGE]).unwrap() > 0 {}
    });
    let [asked, added] = judge.values(["asked", "added"]);
    let raw = raw.unwrap();
    let files = table(&raw, "files");
    let row = own_row(files, &path);
    let (ours, missed) = (number(files, row, "asked"), number(files, row, "brought in"));
    agree("pages asked for", ours, asked);
    agree("pages brought in", missed, added);
    assert_eq!(ours, 2048.0 + 4096.0);
}

/// Faults on a mapping ask for no pages, and a ratio cannot be made of them.
#[test]
#[ignore = "needs root: make test-kernel"]
fn misses_of_a_mapping_are_faults() {
    let dir = directory();
    let path = cold_file(dir.path(), "mapped", 1024);
    let of_thread = path.clone();
    let raw = watch(&own("cache", "mitra-maps"), move || {
        let file = fs::File::open(&of_thread).unwrap();
        let (prot, flags) = (rustix::mm::ProtFlags::READ, rustix::mm::MapFlags::SHARED);
        // SAFETY: a new mapping of a file that nobody changes, used within its length and then unmapped.
        unsafe {
            let at = rustix::mm::mmap(std::ptr::null_mut(), 1024 * PAGE, prot, flags, &file, 0).unwrap();
            rustix::mm::madvise(at, 1024 * PAGE, rustix::mm::Advice::Random).unwrap();
            for page in 0..1024 {
                assert_eq!(at.cast::<u8>().add(page * PAGE).read_volatile(), 7);
            }
            rustix::mm::munmap(at, 1024 * PAGE).unwrap();
        }
    });
    let Some(raw) = raw else { return };
    let files = table(&raw, "files");
    let row = own_row(files, &path);
    assert_eq!(number(files, row, "asked"), 0.0);
    assert_eq!(number(files, row, "faults"), 1024.0);
    assert_eq!(number(files, row, "brought in"), 1024.0);
    assert_eq!(row[crate::column(files, "hit ratio")], Cell::Unknown(()));
}
