//! Open descriptors against `/proc/PID/fd`, their limit against `/proc/PID/limits`.

use std::fs;
use std::os::fd::AsFd as _;

use mitra_collect::bpf::{FLAG_HAS_FILES, TaskRec};

use super::spawn::idle;
use super::{pass, probes};

fn own(probes: &mut mitra_collect::bpf::Probes) -> TaskRec {
    let (record, _) = &pass(probes)[&std::process::id()];
    assert_ne!(record.flags & FLAG_HAS_FILES, 0, "this process runs");
    *record
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn descriptors_are_as_many_as_proc_lists() {
    let Some((_guard, mut probes)) = probes() else { return };
    // The directory's own descriptor is in the list; that of the iterator is only open during the pass.
    let listed = || fs::read_dir("/proc/self/fd").expect("own descriptors").count() - 1;
    assert_eq!(own(&mut probes).fds as usize, listed() + 1);
    let null = fs::File::open("/dev/null").expect("/dev/null");
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    // Over the edges of a word and of a chunk, with holes.
    let many = 5_000.min(limit.current.unwrap_or(5_000).saturating_sub(100)) as usize;
    let mut copies: Vec<_> =
        (0..many).map(|_| Some(null.as_fd().try_clone_to_owned().expect("a copy"))).collect();
    copies.iter_mut().step_by(7).for_each(|copy| drop(copy.take()));
    let record = own(&mut probes);
    assert_eq!(record.fds as usize, listed() + 1);
    assert!(record.fds as usize > many / 2);
    assert_eq!(Some(u64::from(record.fd_limit)), limit.current.or(Some(u64::from(u32::MAX))));
    drop(copies);
    assert_eq!(own(&mut probes).fds as usize, listed() + 1);
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn a_process_that_sleeps_is_not_looked_at_again_and_its_network_namespace_is_known() {
    let Some((_guard, mut probes)) = probes() else { return };
    let sleeper = idle();
    std::thread::sleep(std::time::Duration::from_millis(100));
    let first = pass(&mut probes)[&sleeper.pid()].0;
    let link = fs::read_link(format!("/proc/{}/ns/net", sleeper.pid())).expect("its namespace");
    assert_eq!(link.to_string_lossy(), format!("net:[{}]", first.netns));
    assert_eq!(
        first.fds as usize,
        fs::read_dir(format!("/proc/{}/fd", sleeper.pid())).expect("its fds").count()
    );
    let mut looks = 0;
    for _ in 0..5 {
        std::thread::sleep(std::time::Duration::from_millis(60));
        looks += u32::from(pass(&mut probes)[&sleeper.pid()].0.flags & FLAG_HAS_FILES != 0);
    }
    assert!(looks <= 1, "{looks}: it has not run");
}
