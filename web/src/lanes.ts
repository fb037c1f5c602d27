// What the time line shows, from top to bottom. Names are those of the metric table.
import type { Row, Wanted } from "./api";

export interface LineOf extends Wanted {
  label: string;
}

export interface LaneOf {
  id: string;
  title: string;
  /** One sentence for whoever does not know what is drawn. */
  about: string;
  unit: string;
  /** Parts of a whole, drawn on top of each other. */
  stacked?: boolean;
  lines: LineOf[];
}

const of = (metrics: [label: string, metric: string][]): LineOf[] => metrics.map(([label, metric]) => ({ label, metric }));

const LOST: LaneOf = {
  id: "lost",
  title: "Lost time",
  about: "Task-seconds per second in which tasks could not go on, by what they waited for. Parts overlap.",
  unit: "s/s",
  stacked: true,
  lines: of([
    ["run queue", "tasks.run_delay"],
    ["block I/O", "tasks.blkio_delay"],
    ["swap-in", "tasks.swapin_delay"],
    ["reclaim", "tasks.reclaim_delay"],
    ["thrashing", "tasks.thrashing_delay"],
    ["compaction", "tasks.compact_delay"],
    ["copy on write", "tasks.wpcopy_delay"],
    ["interrupts", "tasks.irq_delay"],
  ]),
};

const ASLEEP: LaneOf = {
  id: "asleep",
  title: "Standing still",
  about: "Tasks in D state at the moment of each sample, by what their kernel stack says that they wait for.",
  unit: "",
  stacked: true,
  lines: of([
    ["block I/O", "tasks.d_io"],
    ["kernel locks", "tasks.d_lock"],
    ["memory", "tasks.d_memory"],
    ["held back", "tasks.d_throttle"],
    ["something else", "tasks.d_other"],
  ]),
};

const CPU: LaneOf = {
  id: "cpu",
  title: "CPU",
  about: "CPUs in use, of all that are online.",
  unit: "s/s",
  stacked: true,
  lines: of([
    ["user", "sys.cpu_user"],
    ["system", "sys.cpu_system"],
    ["nice", "sys.cpu_nice"],
    ["soft interrupts", "sys.cpu_softirq"],
    ["interrupts", "sys.cpu_irq"],
    ["steal", "sys.cpu_steal"],
  ]),
};

const MEMORY: LaneOf = {
  id: "memory",
  title: "Memory",
  about: "What memory is used for, and what programs can still get.",
  unit: "bytes",
  lines: of([
    ["available", "mem.available"],
    ["page cache", "mem.cached"],
    ["anonymous", "mem.anon"],
    ["slab", "mem.slab"],
    ["dirty", "mem.dirty"],
  ]),
};

const RECLAIM: LaneOf = {
  id: "reclaim",
  title: "Reclaim",
  about: "Pages that the kernel looked at to free them, that came back after they were evicted, and that were swapped.",
  unit: "pages/s",
  lines: of([
    ["kswapd scans", "vm.pgscan_kswapd"],
    ["direct scans", "vm.pgscan_direct"],
    ["file refaults", "vm.workingset_refault_file"],
    ["anon refaults", "vm.workingset_refault_anon"],
    ["swap in", "vm.pswpin"],
    ["swap out", "vm.pswpout"],
  ]),
};

const PRESSURE: LaneOf = {
  id: "pressure",
  title: "Pressure",
  about: "Share of the time in which some task, or all of them, waited (PSI).",
  unit: "share",
  lines: of([
    ["CPU some", "psi.cpu_some"],
    ["I/O some", "psi.io_some"],
    ["I/O full", "psi.io_full"],
    ["memory some", "psi.memory_some"],
    ["memory full", "psi.memory_full"],
    ["interrupts full", "psi.irq_full"],
  ]),
};

const SHOWN_ROWS = 3;

/** Whole devices that did something; a partition is part of its disk. */
export function busiest(rows: Row[]): string[] {
  const names = new Set(rows.map((one) => one.row));
  const isPart = (name: string) => names.has(name.replace(/p?\d+$/, "")) && /\d$/.test(name);
  return rows
    .filter((one) => (one.max ?? 0) > 0 && !isPart(one.row))
    .slice(0, SHOWN_ROWS)
    .map((one) => one.row);
}

export function lanes(disks: string[], nics: string[]): LaneOf[] {
  return [
    LOST,
    ASLEEP,
    CPU,
    MEMORY,
    RECLAIM,
    {
      id: "disks",
      title: "Disks",
      about: "Bytes read and written by the busiest disks.",
      unit: "bytes/s",
      lines: disks.flatMap((row) => [
        { label: `read ${row}`, metric: "disk.read_bytes", row },
        { label: `written ${row}`, metric: "disk.write_bytes", row },
      ]),
    },
    {
      id: "queue",
      title: "Disk queues",
      about: "Requests in a disk and its queue, on average.",
      unit: "",
      lines: disks.map((row) => ({ label: row, metric: "disk.weighted_time", row })),
    },
    {
      id: "network",
      title: "Network",
      about: "Bytes received and sent by the busiest interfaces.",
      unit: "bytes/s",
      lines: nics.flatMap((row) => [
        { label: `received ${row}`, metric: "nic.rx_bytes", row },
        { label: `sent ${row}`, metric: "nic.tx_bytes", row },
      ]),
    },
    {
      id: "tcp",
      title: "TCP",
      about: "Segments sent again, connections that failed, packets that interfaces dropped.",
      unit: "1/s",
      lines: [
        ...of([
          ["retransmitted", "tcp.RetransSegs"],
          ["failed attempts", "tcp.AttemptFails"],
          ["resets sent", "tcp.OutRsts"],
        ]),
        ...nics.map((row) => ({ label: `dropped ${row}`, metric: "nic.rx_drop", row })),
      ],
    },
    PRESSURE,
  ];
}

/** The life of one process. */
export function life(row: string): LaneOf[] {
  const task = (metrics: [string, string][]): LineOf[] => metrics.map(([label, metric]) => ({ label, metric, row }));
  return [
    {
      id: "cpu",
      title: "CPU",
      about: "CPUs that the process used.",
      unit: "s/s",
      stacked: true,
      lines: task([
        ["user", "task.user_time"],
        ["system", "task.system_time"],
      ]),
    },
    {
      id: "waits",
      title: "Lost time",
      about: "Task-seconds per second in which it could not go on. Parts overlap.",
      unit: "s/s",
      lines: task([
        ["run queue", "task.run_delay"],
        ["block I/O", "task.blkio_delay"],
        ["swap-in", "task.swapin_delay"],
        ["reclaim", "task.reclaim_delay"],
        ["thrashing", "task.thrashing_delay"],
        ["kernel locks", "task.lock_wait"],
      ]),
    },
    {
      id: "memory",
      title: "Memory",
      about: "Resident pages, and pages in swap.",
      unit: "pages",
      stacked: true,
      lines: task([
        ["anonymous", "task.rss_anon"],
        ["files", "task.rss_file"],
        ["shared", "task.rss_shmem"],
        ["swap", "task.swap"],
      ]),
    },
    {
      id: "io",
      title: "Disk I/O",
      about: "Bytes that it had fetched from a device, and bytes that it made dirty or sent to one.",
      unit: "bytes/s",
      lines: task([
        ["read", "task.read_bytes"],
        ["written", "task.write_bytes"],
      ]),
    },
    {
      id: "faults",
      title: "Faults",
      about: "Page faults that waited for I/O, and switches that it was made to do.",
      unit: "1/s",
      lines: task([
        ["major faults", "task.majflt"],
        ["involuntary switches", "task.nivcsw"],
        ["voluntary switches", "task.nvcsw"],
      ]),
    },
    {
      id: "handles",
      title: "Threads and files",
      about: "Threads and open file descriptors.",
      unit: "",
      lines: task([
        ["threads", "task.threads"],
        ["descriptors", "task.fds"],
      ]),
    },
  ];
}
