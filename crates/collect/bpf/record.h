// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * What travels from the kernel to user space. The twins in Rust are in src/bpf; both
 * sides assert the sizes. Times in nanoseconds, memory in pages, I/O in bytes.
 */
#ifndef MITRA_RECORD_H
#define MITRA_RECORD_H

#include "kernel.h"

/* taskstats' delay accounting. All NA: the task was born while it was off. */
struct delays {
	__u64 blkio;
	__u64 swapin;
	__u64 reclaim;
	__u64 thrashing;
	__u64 compaction;
	__u64 wpcopy;
	__u64 irq;
};

/* kernfs ids, which are the inode numbers of the cgroup directories. */
struct cgroup_ids {
	__u64 unified;
	__u64 cpu;
	__u64 memory;
};

enum task_flag {
	TASK_F_KTHREAD = 1 << 0,
	TASK_F_LEADER = 1 << 1,
	TASK_F_HAS_DELAYS = 1 << 2,
	TASK_F_HAS_MM = 1 << 3,
	TASK_F_HAS_STACK = 1 << 4, /* text ending in a newline follows the record */
	TASK_F_IN_IOWAIT = 1 << 5,
	TASK_F_GROUP_DEAD = 1 << 6, /* exit records only: the whole process ended */
	TASK_F_STILL = 1 << 7, /* a still_rec: nothing changed since the last pass */
	TASK_F_HAS_FILES = 1 << 8, /* fds, fd_limit and netns were looked at */
};

struct task_rec {
	__u32 tid;
	__u32 tgid;
	__u32 ppid;
	__u32 flags;
	__u64 start_boottime;
	char comm[16];
	__u32 state;
	__u32 exit_state;
	__u32 cpu;
	__u32 nr_cpus_allowed;
	__u64 cpus_allowed;
	__u16 policy;
	__s16 nice;
	__u16 rt_priority;
	__u16 pad;
	__u32 num_threads;
	__u32 netns;
	__u64 utime;
	__u64 stime;
	__u64 sum_exec_runtime;
	__u64 run_delay;
	__u64 nvcsw;
	__u64 nivcsw;
	__u64 min_flt;
	__u64 maj_flt;
	struct task_io_accounting_copy {
		__u64 rchar;
		__u64 wchar;
		__u64 syscr;
		__u64 syscw;
		__u64 read_bytes;
		__u64 write_bytes;
		__u64 cancelled_write_bytes;
	} io;
	struct delays delays;
	__u32 rss_anon;
	__u32 rss_file;
	__u32 rss_shmem;
	__u32 swap;
	struct cgroup_ids cgroups;
	/* Leaders only: what threads that have ended since had used. */
	__u64 dead_utime;
	__u64 dead_stime;
	__u64 dead_sum_exec_runtime;
	/* Leaders only, and only where they may have changed. The limit is ~0 for none. */
	__u32 fds;
	__u32 fd_limit;
};
_Static_assert(sizeof(struct task_rec) == 328, "twin: src/bpf/task.rs");

/*
 * A task that did not run since the last pass; it is the one that had this tid then, as a
 * new one would have run. The flags are where task_rec has them.
 */
struct still_rec {
	__u32 tid;
	__u32 tgid;
	__u32 state;
	__u32 flags;
};
_Static_assert(sizeof(struct still_rec) == 16, "twin: src/bpf/task.rs");

/* One exit. With TASK_F_GROUP_DEAD the sums are those of all threads the process had. */
struct exit_rec {
	__u32 tid;
	__u32 tgid;
	__u32 ppid;
	__u32 flags;
	__u64 start_boottime;
	__u64 leader_start_boottime;
	__u64 end_boottime;
	char comm[16];
	char leader_comm[16];
	char parent_comm[16];
	__s32 exit_code;
	__u32 pad;
	__u64 cpu_time;
	__u64 utime;
	__u64 stime;
	__u64 run_delay;
	__u64 nvcsw;
	__u64 nivcsw;
	__u64 min_flt;
	__u64 maj_flt;
	__u64 read_bytes;
	__u64 write_bytes;
	struct delays delays;
	struct cgroup_ids cgroups;
};
_Static_assert(sizeof(struct exit_rec) == 256, "twin: src/bpf/exit.rs");

/* Exits for which the ring had no room, by who started what. */
struct exit_key {
	__u32 ppid;
	__u32 pad;
	char comm[16];
	char parent_comm[16];
};
struct exit_sum {
	__u64 processes;
	__u64 threads;
	__u64 cpu_time;
	__u64 run_delay;
	__u64 min_flt;
	__u64 maj_flt;
	__u64 read_bytes;
	__u64 write_bytes;
};
_Static_assert(sizeof(struct exit_key) == 40, "twin: src/bpf/exit.rs");
_Static_assert(sizeof(struct exit_sum) == 64, "twin: src/bpf/exit.rs");

/* Bucket i counts latencies up to 16 us << i; the last one everything above 8.4 s. */
#define LATENCY_BUCKETS 21
/* Bucket i counts sizes up to 4 KiB << i; the last one everything above 1 MiB. */
#define SIZE_BUCKETS 10

enum block_op { BLOCK_READ, BLOCK_WRITE, BLOCK_FLUSH, BLOCK_DISCARD, BLOCK_OTHER };

struct block_key {
	__u32 major;
	__u32 minor;
	__u32 op;
	__u32 pad;
};
struct block_hist {
	__u64 count;
	__u64 bytes;
	__u64 latency_sum;
	__u64 untimed;
	__u64 device_sum;
	__u64 device_timed;
	__u64 latency[LATENCY_BUCKETS];
	__u64 size[SIZE_BUCKETS];
};
_Static_assert(sizeof(struct block_key) == 16, "twin: src/bpf/block.rs");
_Static_assert(sizeof(struct block_hist) == 296, "twin: src/bpf/block.rs");

enum event_kind { EVENT_OOM = 1, EVENT_SIGNAL = 2 };

struct event_rec {
	__u32 kind;
	__u32 pid; /* the victim */
	__u32 tgid;
	__u32 uid;
	__u64 boottime;
	char comm[16];
	__u32 by_tgid; /* who was running: the sender, or who asked for memory */
	__u32 signal;
	char by_comm[16];
	__s32 code;   /* si_code, or oom_score_adj */
	__u32 result; /* enum of trace/events/signal.h: 0 delivered, 1 ignored, 2 pending */
	__u64 addr;
	__u64 total_vm;
	__u64 rss_anon;
	__u64 rss_file;
	__u64 rss_shmem;
	__u64 swap;
	__u64 pgtables_bytes;
	struct cgroup_ids cgroups;
};
_Static_assert(sizeof(struct event_rec) == 152, "twin: src/bpf/events.rs");

enum stall_kind {
	STALL_DIRECT,
	STALL_MEMCG,
	STALL_COMPACTION,
	STALL_THROTTLED,
	STALL_LOCK,
	STALL_KINDS
};

struct stall_hist {
	__u64 count;
	__u64 total;
	__u64 reclaimed;
	__u64 latency[LATENCY_BUCKETS];
};
_Static_assert(sizeof(struct stall_hist) == 192, "twin: src/bpf/events.rs");

/* The time one process lost, and the name it had when it lost it first. */
struct stall_owner {
	__u32 tgid;
	__u32 kind;
};
struct stall_sum {
	__u64 count;
	__u64 total;
	char comm[16];
};
_Static_assert(sizeof(struct stall_sum) == 32, "twin: src/bpf/events.rs");

/* The time that the threads of a process slept for locks, by id and birth of its leader. */
struct lock_owner {
	__u64 tgid;
	__u64 start_boottime;
};
struct lock_sum {
	__u64 total;
};
_Static_assert(sizeof(struct lock_owner) == 16, "twin: src/bpf/locks.rs");

/* The smallest i with value <= first << i, at most last. No loop: a bisection. */
static __always_inline __u32 log2_bucket(__u64 value, __u32 first_shift, __u32 last)
{
	__u64 v = value ? (value - 1) >> first_shift : 0;
	__u32 i = 0;

	if (v >> 32) {
		return last;
	}
	if (v >> 16) {
		i += 16;
		v >>= 16;
	}
	if (v >> 8) {
		i += 8;
		v >>= 8;
	}
	if (v >> 4) {
		i += 4;
		v >>= 4;
	}
	if (v >> 2) {
		i += 2;
		v >>= 2;
	}
	if (v >> 1) {
		i += 1;
		v >>= 1;
	}
	i += v;
	return i < last ? i : last;
}

static __always_inline __u64 cgroup_id(struct cgroup *cgroup)
{
	return cgroup ? cgroup->kn->id : NA;
}

/* `id` is a constant that CO-RE fills in, so the verifier sees a fixed offset. */
static __always_inline __u64 controller_cgroup_id(struct css_set *set, __u64 id)
{
	struct cgroup_subsys_state **subsys = (void *)&set->subsys;
	struct cgroup_subsys_state *css = subsys[id];

	return css ? cgroup_id(css->cgroup) : NA;
}

static __always_inline void read_cgroups(struct task_struct *task, struct cgroup_ids *to)
{
	struct css_set *set = task->cgroups;

	to->unified = NA;
	to->cpu = NA;
	to->memory = NA;
	if (!set)
		return;
	to->unified = cgroup_id(set->dfl_cgrp);
	if (bpf_core_enum_value_exists(enum cgroup_subsys_id, cpu_cgrp_id))
		to->cpu = controller_cgroup_id(set, bpf_core_enum_value(enum cgroup_subsys_id, cpu_cgrp_id));
	if (bpf_core_enum_value_exists(enum cgroup_subsys_id, memory_cgrp_id))
		to->memory =
			controller_cgroup_id(set, bpf_core_enum_value(enum cgroup_subsys_id, memory_cgrp_id));
}

/* The shared part alone may be below zero while the per-CPU parts make up for it. */
static __always_inline __u64 not_negative(__s64 pages)
{
	return pages > 0 ? pages : 0;
}

/*
 * Read as a number: up to 6.1 the verifier follows no array whose elements are a typedef ("Type 'atomic_long_t' is not a
 * struct"). A function of its own: its callers' stacks are nearly full.
 */
static __attribute__((noinline)) __s64 read_long(__u64 address)
{
	__s64 value = 0;

	bpf_probe_read_kernel(&value, sizeof(value), (void *)address);
	return value;
}

/* A macro, because an index is only relocated where the compiler sees a constant. */
#define RSS_PAGES(mm, kind)                                                                                          \
	not_negative(bpf_core_type_exists(struct mm_rss_stat) ?                                                       \
			     read_long((__u64)&((struct mm_struct___old *)(mm))->rss_stat.count[kind].counter) :      \
			     (mm)->rss_stat[kind].count)

#endif
