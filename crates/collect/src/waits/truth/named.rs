//! Waits at a FIFO and at a message queue, which have names, and in a call that was interrupted.

use std::ffi::{CStr, CString};
use std::io::Write as _;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, Mode, mkfifoat};
use rustix::process::{Pid, Signal, kill_process};

use super::{SETTLED_WITHIN, looker, waits_of};
use crate::waits::ends::{End, Kind};
use crate::waits::look::Looker;
use crate::waits::{mean, name_ends};

/// A process that ends with the test.
struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        let _killed = self.0.kill();
        let _ended = self.0.wait();
    }
}

impl Started {
    fn shell(script: &str) -> Started {
        Started(Command::new("sh").arg("-c").arg(script).spawn().expect("a shell"))
    }

    fn id(&self) -> u32 {
        self.0.id()
    }
}

fn fifo() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("fifo");
    mkfifoat(CWD, &path, Mode::RUSR | Mode::WUSR).expect("a FIFO");
    (directory, path)
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn who_writes_to_a_fifo_waits_for_the_process_that_reads_it() {
    let Some(mut looker) = looker() else { return };
    let (_directory, fifo) = fifo();
    let reader = Started::shell(&format!("exec sleep 60 < '{}'", fifo.display()));
    let writer = Started::shell(&format!("exec dd if=/dev/zero bs=65536 > '{}'", fifo.display()));
    let wanted = (Kind::Full, End::Process(reader.id()));
    assert_eq!(waits_of(&mut looker, writer.id(), wanted), [wanted]);
    let edges = looker.look(&[writer.id()]).edges;
    let mut rows = mean(&edges.into_iter().map(|edge| (edge, 1)).collect::<Vec<_>>(), 1);
    name_ends(&mut rows);
    let row = rows.iter().find(|((pid, kind, end), _)| (*pid, (*kind, *end)) == (writer.id(), wanted));
    assert_eq!(row.and_then(|(_, waiters)| waiters.comm.as_deref()), Some("sleep"), "{rows:?}");
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn who_opens_a_fifo_that_nobody_else_opens_waits_for_nobody_in_particular() {
    let Some(mut looker) = looker() else { return };
    let (_directory, fifo) = fifo();
    let opener = Started::shell(&format!("exec sleep 60 < '{}'", fifo.display()));
    let wanted = (Kind::Pipe, End::Unknown);
    assert_eq!(waits_of(&mut looker, opener.id(), wanted), [wanted]);
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn who_does_not_read_from_a_connection_is_seen_by_whom_writes_to_it() {
    let Some(mut looker) = looker() else { return };
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let script = format!("exec 3<>/dev/tcp/127.0.0.1/{port}; exec sleep 60");
    let reader = Started(Command::new("bash").arg("-c").arg(script).spawn().expect("bash"));
    let (mut stream, _) = listener.accept().expect("a connection");
    stream.set_nonblocking(true).expect("a setting");
    let wanted = (Kind::Unread, End::Process(reader.id()));
    let is_seen = |looker: &mut Looker| {
        let edges = looker.look(&[std::process::id()]).edges;
        edges.iter().any(|edge| edge.pid == std::process::id() && (edge.kind, edge.end) == wanted)
    };
    assert!(!is_seen(&mut looker), "nothing was written");
    while stream.write(&[0; 65536]).is_ok() {}
    let began = Instant::now();
    while !is_seen(&mut looker) {
        assert!(began.elapsed() < SETTLED_WITHIN, "not seen");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A copy of this process that sends to a queue until it is full, and waits then. This process has it open to receive.
struct Sender {
    name: CString,
    queue: libc::mqd_t,
    pid: libc::pid_t,
}

impl Drop for Sender {
    fn drop(&mut self) {
        // SAFETY: all three were made for this test, and no memory is touched.
        unsafe {
            libc::kill(self.pid, libc::SIGKILL);
            libc::waitpid(self.pid, std::ptr::null_mut(), 0);
            libc::mq_close(self.queue);
            libc::mq_unlink(self.name.as_ptr());
        }
    }
}

impl Sender {
    /// `None` where the kernel has no such queues.
    fn begin() -> Option<Sender> {
        let name = CString::new(format!("/mitra-test-{}", std::process::id())).expect("a name");
        // SAFETY: they are numbers.
        let mut attributes: libc::mq_attr = unsafe { std::mem::zeroed() };
        (attributes.mq_maxmsg, attributes.mq_msgsize) = (1, 1);
        let (flags, mode): (_, libc::mode_t) = (libc::O_RDONLY | libc::O_CREAT | libc::O_EXCL, 0o600);
        // SAFETY: the name has an end, and the attributes live for as long as the call.
        let queue = unsafe { libc::mq_open(name.as_ptr(), flags, mode, &raw const attributes) };
        if queue < 0 {
            println!("skipped: no queue: {}", std::io::Error::last_os_error());
            return None;
        }
        // SAFETY: the copy does nothing but system calls, and ends with the thread of the test.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            send(&name);
        }
        let sender = Sender { name, queue, pid };
        assert!(sender.pid > 0, "{}", std::io::Error::last_os_error());
        Some(sender)
    }
}

/// What the copy does. It keeps nothing open that others may wait for.
fn send(name: &CStr) -> ! {
    // SAFETY: the name has an end, and the message has the length that is said.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong);
        libc::syscall(libc::SYS_close_range, 0, libc::c_uint::MAX, 0);
        let queue = libc::mq_open(name.as_ptr(), libc::O_WRONLY);
        while libc::mq_send(queue, c"x".as_ptr(), 1, 0) == 0 {}
        libc::_exit(1)
    }
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn who_sends_to_a_full_queue_waits_for_the_process_that_receives() {
    let Some(mut looker) = looker() else { return };
    let Some(sender) = Sender::begin() else { return };
    let wanted = (Kind::Queue, End::Process(std::process::id()));
    assert_eq!(waits_of(&mut looker, sender.pid.unsigned_abs(), wanted), [wanted]);
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn a_sleep_that_goes_on_after_a_stop_waits_for_the_time() {
    let Some(mut looker) = looker() else { return };
    let sleep = Started(Command::new("sleep").arg("60").spawn().expect("sleep"));
    let pid = Pid::from_child(&sleep.0);
    let (time, stopped) = ((Kind::Timer, End::Unknown), (Kind::Stopped, End::Unknown));
    assert_eq!(waits_of(&mut looker, sleep.id(), time), [time]);
    kill_process(pid, Signal::STOP).expect("stopped");
    assert_eq!(waits_of(&mut looker, sleep.id(), stopped), [stopped]);
    kill_process(pid, Signal::CONT).expect("continued");
    assert_eq!(waits_of(&mut looker, sleep.id(), time), [time]);
}
