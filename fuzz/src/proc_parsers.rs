//! Every parser of a kernel file, with any bytes: none panics, and what it has learned of a file changes nothing in
//! what it says of the same file the next time.

use mitra_model::{Entity, Frame, Key, NA, Strings, cgroup_name, columns};
use mitra_parse::cgroup::{Cgroup, FILES};
use mitra_parse::container_state;
use mitra_parse::node::Node;
use mitra_parse::task::task_stat;
use mitra_parse::task_status::TaskFiles;
use mitra_parse::{Outcome, SOURCES, kmsg, mounts, netlink, stack, sysctl};

/// What the first byte stands for, by position: files of the machine by path, the others by name. The corpus knows the
/// positions, so new ones go to the end.
const TARGETS: &[&str] = &[
    "proc/stat",
    "proc/loadavg",
    "proc/vmstat",
    "proc/meminfo",
    "proc/buddyinfo",
    "proc/diskstats",
    "proc/pressure/cpu",
    "proc/pressure/irq",
    "proc/softirqs",
    "proc/net/dev",
    "proc/net/snmp",
    "proc/net/netstat",
    "proc/net/sockstat",
    "proc/net/softnet_stat",
    "proc/sys/fs/dentry-state",
    "proc/sys/fs/inode-state",
    "proc/sys/fs/file-nr",
    "proc/zoneinfo",
    "proc/slabinfo",
    "proc/interrupts",
    "numastat",
    "node-meminfo",
    "sysctl-number",
    "sysctl-text",
    "cgroup",
    "task-stat",
    "task-status",
    "task-io",
    "task-schedstat",
    "task-cgroup",
    "stack",
    "mounts",
    "kmsg",
    "proc/net/stat/nf_conntrack",
    "netlink",
    "journal",
    "container-state",
];

type Cells = Vec<(Key, Vec<i64>)>;

/// Reads the bytes as what the first of them says.
pub fn run(data: &[u8]) {
    let Some((selector, input)) = data.split_first() else { return };
    let Some(target) = TARGETS.get(usize::from(*selector) % TARGETS.len()) else { return };
    if let Some(source) = SOURCES.iter().find(|source| source.path == *target) {
        let mut parse = (source.parser)();
        return twice(input, |input, strings, frame| parse(input, strings, frame));
    }
    match *target {
        "numastat" | "node-meminfo" => {
            let mut node = Node::default();
            twice(input, |input, strings, frame| match *target {
                "numastat" => node.numastat(1, input, strings, frame),
                _ => node.meminfo(1, input, strings, frame),
            });
        }
        "sysctl-number" | "sysctl-text" => {
            let path =
                if *target == "sysctl-text" { "proc/sys/net/ipv4/tcp_mem" } else { "proc/sys/vm/swappiness" };
            let Some(mut setting) = sysctl::settings().into_iter().find(|setting| setting.path == path)
            else {
                return;
            };
            twice(input, |input, strings, frame| setting.parse(input, strings, frame));
        }
        "cgroup" => {
            let Some((which, input)) = input.split_first() else { return };
            let Some(file) = FILES.get(usize::from(*which) % FILES.len()) else { return };
            let mut cgroup = Cgroup::default();
            twice(input, |input, _, frame| {
                (file.parse)(&mut cgroup, input, frame.table_mut(Entity::Cgroup).push(Key::named(0)))
            });
        }
        "stack" => {
            let mut text = String::new();
            stack::stack(input, &mut text);
            assert!(text.len() <= input.len());
        }
        "netlink" => {
            let mut count = 0;
            let _end = (netlink::qdiscs(input, |_| count += 1), netlink::listeners(input, |_| count += 1));
            let _end = netlink::receivers(input, |_| count += 1);
            let _end = mitra_parse::sockets::sockets(input, |_| count += 1);
            assert!(count <= input.len());
        }
        "journal" => journal(input),
        "container-state" => containers(input),
        "mounts" => assert!(mounts::mounts(input).0.len() <= input.len()),
        "kmsg" => assert!(kmsg::record(input).is_none_or(|record| record.priority < 8)),
        _ => task(target, input),
    }
}

/// What runtimes write of containers, and paths of cgroups.
fn containers(input: &[u8]) {
    let docker = container_state::docker(input);
    let bundle = container_state::bundle(input).unwrap_or_default();
    let listed = container_state::storage(input).into_values();
    let bounds = [docker, bundle.state].into_iter().flatten().chain(listed);
    assert!(
        bounds
            .flat_map(|state| [state.container, state.image, state.pod])
            .flatten()
            .all(|name| name.len() <= input.len())
    );
    let Ok(path) = std::str::from_utf8(input) else { return };
    let _pod = container_state::pod_folder(path, "x");
    let read = cgroup_name::read(path);
    assert!(read.containers.iter().all(|container| path.starts_with(container.path)));
    let _name = cgroup_name::name(path, |_| cgroup_name::Names::default());
}

/// Reads what may be a file of journald, from its beginning and once more.
fn journal(mut input: &[u8]) {
    const MOST: u32 = 64;
    let Ok(header) = mitra_parse::journal::Header::read(&mut input) else { return };
    let mut cursor = mitra_parse::journal::Cursor::default();
    for _ in 0..2 {
        let entries = cursor.next(&mut input, &header, MOST);
        assert!(entries.len() <= MOST as usize);
        for entry in entries {
            let Some(entry) = header.entry(&mut input, entry) else { continue };
            for offset in entry.fields {
                assert!(header.field(&mut input, offset, 64).is_none_or(|field| field.len() <= 64));
            }
        }
    }
}

fn task(target: &str, input: &[u8]) {
    let mut files = TaskFiles::new(4096);
    twice(input, |input, strings, frame| {
        let row = frame.table_mut(Entity::Task).push(Key::task(1, 1));
        match target {
            "task-status" => files.status(input, true, row),
            "task-io" => files.io(input, row),
            "task-schedstat" => files.schedstat(input, row),
            "task-cgroup" => files.cgroup(input, strings, row),
            _ => {
                if let Some(stat) = task_stat(input) {
                    files.columns().stat(&stat, true, true, strings, row);
                }
                Outcome::default()
            }
        }
    });
}

/// Reads the input twice, each time into an empty frame, and compares.
fn twice(input: &[u8], mut parse: impl FnMut(&[u8], &mut Strings, &mut Frame) -> Outcome) {
    let mut strings = Strings::new();
    let mut frame = Frame::new();
    let first = parse(input, &mut strings, &mut frame);
    let cells = all_cells(&frame);
    frame.clear();
    let second = parse(input, &mut strings, &mut frame);
    assert_eq!(first, second);
    assert_eq!(cells, all_cells(&frame));
}

fn all_cells(frame: &Frame) -> Vec<Cells> {
    let rows = |table: &mitra_model::Table| {
        table
            .rows()
            .filter(|(_, row)| row.iter().any(|cell| *cell != NA))
            .map(|(key, row)| {
                assert_eq!(row.len(), columns(table.entity()).len());
                (key, row.to_vec())
            })
            .collect()
    };
    frame.tables.iter().map(rows).collect()
}
