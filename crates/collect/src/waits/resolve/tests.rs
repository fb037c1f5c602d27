use std::os::fd::AsRawFd as _;
use std::process::{Child, Command};

use rustix::event::epoll;

use super::*;

/// Calls `f` with what is known of the machine in a look.
fn in_a_look<T>(f: impl FnOnce(&mut Scene<'_>) -> T) -> T {
    let root = Root::open("/".as_ref()).unwrap();
    let (mut buffer, mut asker, mut holders) = (Buffer::default(), Asker::new(), Holders::default());
    f(&mut Scene::new(&root, &mut buffer, &mut asker, &mut holders, Duration::MAX))
}

fn sleep() -> Child {
    Command::new("sleep").arg("60").spawn().unwrap()
}

fn end(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

/// This thread, as if it were all of the process.
fn this() -> Process {
    let tid = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
    Process::new(std::process::id(), vec![tid])
}

#[test]
fn an_epoll_instance_is_read_once_for_all_threads() {
    let (reader, _writer) = std::io::pipe().unwrap();
    let instance = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
    epoll::add(&instance, &reader, epoll::EventData::new_u64(0), epoll::EventFlags::IN).unwrap();
    in_a_look(|scene| {
        let (mut process, fd) = (this(), instance.as_raw_fd());
        let before = scene.resolve(Call::Epoll(fd), &mut process, 1);
        assert!(matches!(before[..], [(Kind::Pipe | Kind::Futex, _)]), "{before:?}");
        epoll::delete(&instance, &reader).unwrap();
        assert_eq!(scene.resolve(Call::Epoll(fd), &mut process, 2), before);
        assert_eq!(scene.resolve(Call::Epoll(fd), &mut this(), 1), [(Kind::Timer, End::Unknown)]);
    });
}

#[test]
fn the_children_of_a_process_are_listed_once() {
    let first = sleep();
    in_a_look(|scene| {
        let mut process = this();
        let only = [(Kind::Child, End::Process(first.id()))];
        assert_eq!(scene.resolve(Call::Child(None), &mut process, 1), only);
        let second = sleep();
        assert_eq!(scene.resolve(Call::Child(None), &mut process, 2), only);
        assert_eq!(scene.resolve(Call::Child(Some(first.id())), &mut process, 2), only);
        assert_eq!(scene.resolve(Call::Child(None), &mut this(), 1).len(), 2);
        end(second);
    });
    end(first);
}

#[test]
fn the_ids_of_the_threads_of_a_process_are_read_once() {
    let child = sleep();
    in_a_look(|scene| {
        let mut process = Process::new(child.id(), vec![child.id()]);
        let id = scene.inner_id(child.id()).unwrap();
        assert_eq!(scene.thread(&mut process, id), Some(child.id()));
        let pid = child.id();
        end(child);
        assert_eq!(scene.thread(&mut process, id), Some(pid));
        assert_eq!(scene.thread(&mut process, id + 1), None);
    });
}
