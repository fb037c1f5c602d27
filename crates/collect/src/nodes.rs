//! NUMA nodes: what each served and has free.

use mitra_model::Frame;
use mitra_parse::node::Node;

use crate::file::{KeptFile, each_entry};
use crate::io::Io;

const NODES: &str = "sys/devices/system/node";
/// No more nodes are read; the parser knows no more either.
const NODES_MAX: usize = 4_096;
/// With more nodes than this they are read on slow ticks only.
const FAST_NODES_MAX: usize = 8;

#[derive(Debug)]
struct Files {
    node: u32,
    numastat: KeptFile,
    meminfo: KeptFile,
}

/// The nodes that there were at the start: they are not plugged while the machine runs.
#[derive(Debug)]
pub struct Nodes {
    all: Vec<Files>,
    parser: Node,
}

impl Nodes {
    /// Finds the nodes.
    #[must_use]
    pub fn find(io: &Io) -> Self {
        let mut numbers = Vec::new();
        if let Ok(dir) = io.root.open_file(NODES) {
            // A directory that cannot be listed has no nodes to read.
            let _listed = each_entry(std::os::fd::AsFd::as_fd(&dir), |name| {
                let number =
                    name.to_str().ok().and_then(|name| name.strip_prefix("node")?.parse::<u32>().ok());
                numbers.extend(number.filter(|_| numbers.len() < NODES_MAX));
            });
        }
        numbers.sort_unstable();
        let files = |node: u32| Files {
            node,
            numastat: KeptFile::new(&format!("{NODES}/node{node}/numastat")),
            meminfo: KeptFile::new(&format!("{NODES}/node{node}/meminfo")),
        };
        Nodes { all: numbers.into_iter().map(files).collect(), parser: Node::default() }
    }

    /// Whether reading them on each tick is cheap.
    #[must_use]
    pub fn is_fast(&self) -> bool {
        self.all.len() <= FAST_NODES_MAX
    }

    /// Fills a row for each and returns how many lines could not be read.
    pub fn read(&mut self, io: &mut Io, frame: &mut Frame) -> u32 {
        let mut bad = 0;
        for files in &mut self.all {
            if let Ok(bytes) = files.numastat.read(&io.root, &mut io.buffer) {
                bad += self.parser.numastat(files.node, bytes, &mut io.strings, frame).bad_lines;
            }
            if let Ok(bytes) = files.meminfo.read(&io.root, &mut io.buffer) {
                bad += self.parser.meminfo(files.node, bytes, &mut io.strings, frame).bad_lines;
            }
        }
        bad
    }
}
