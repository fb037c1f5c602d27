// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * The kernel types that Mitra's programs read, reduced to the fields they read.
 *
 * Every struct carries preserve_access_index: the loader rewrites the offsets for the
 * kernel it finds (CO-RE), so neither the order nor the padding here means anything.
 * A type named `x___old` is the shape that `x` had in older kernels; the suffix is not
 * part of the name that is looked up. The oldest kernel aimed at is 5.8, the first with
 * iter/task and CAP_BPF. By then kernfs_node.id was a plain u64 (5.5) and start_boottime
 * had its present name (5.5), so those need no shim.
 */
#ifndef MITRA_KERNEL_H
#define MITRA_KERNEL_H

typedef unsigned char __u8;
typedef signed char __s8;
typedef unsigned short __u16;
typedef short __s16;
typedef unsigned int __u32;
typedef int __s32;
typedef unsigned long long __u64;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef _Bool bool;
#define true 1
#define false 0

/* linux/bpf.h, only what the maps and helpers below need. */
enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_HASH = 5,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_RINGBUF = 27,
};
enum { BPF_ANY = 0, BPF_NOEXIST = 1 };
enum { BPF_RB_NO_WAKEUP = 1 };

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

typedef struct {
	int counter;
} atomic_t;

typedef struct {
	long counter;
} atomic_long_t;

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
	__u64 session_id;
	__u64 seq_num;
};

struct cpumask {
	unsigned long bits[1];
};

struct thread_info {
	__u32 cpu;
};

struct sched_entity {
	__u64 sum_exec_runtime;
	__u64 prev_sum_exec_runtime;
};

struct sched_info {
	unsigned long long run_delay;
	unsigned long long last_arrival;
};

struct task_io_accounting {
	__u64 rchar;
	__u64 wchar;
	__u64 syscr;
	__u64 syscw;
	__u64 read_bytes;
	__u64 write_bytes;
	__u64 cancelled_write_bytes;
};

struct task_delay_info {
	__u64 blkio_delay;
	__u64 swapin_delay;
	__u64 freepages_delay;
	__u64 thrashing_delay;
	__u64 compact_delay; /* since 5.17 */
	__u64 wpcopy_delay;  /* since 5.19 */
	__u64 irq_delay;     /* since 6.4 */
};

struct percpu_counter {
	__s64 count;
	__s32 *counters; /* of each CPU */
};

/* enum without a name in linux/mm_types_task.h; these values since 4.5. */
enum { MM_FILEPAGES, MM_ANONPAGES, MM_SWAPENTS, MM_SHMEMPAGES, NR_MM_COUNTERS };

struct mm_struct {
	struct percpu_counter rss_stat[NR_MM_COUNTERS];
	unsigned long total_vm;
	atomic_long_t pgtables_bytes;
};

/* Up to 6.1: one array of atomics, with a per-thread cache of up to 64 events. */
struct mm_rss_stat {
	atomic_long_t count[NR_MM_COUNTERS];
};
struct mm_struct___old {
	struct mm_rss_stat rss_stat;
};

struct kernfs_node {
	__u64 id;
};
struct cgroup {
	struct kernfs_node *kn;
};
struct cgroup_subsys_state {
	struct cgroup *cgroup;
};
struct css_set {
	struct cgroup_subsys_state *subsys[1];
	struct cgroup *dfl_cgrp;
};
/* The values differ with the configuration: always read through bpf_core_enum_value(). */
enum cgroup_subsys_id { cpu_cgrp_id = 1, memory_cgrp_id = 4 };

typedef void (*sighandler)(int);
struct sigaction {
	sighandler sa_handler;
};
struct k_sigaction {
	struct sigaction sa;
};
struct sighand_struct {
	struct k_sigaction action[64];
};

union __sifields {
	struct {
		void *_addr;
	} _sigfault;
};
struct kernel_siginfo {
	int si_code;
	union __sifields _sifields;
};

struct list_head {
	struct list_head *next, *prev;
};

struct fdtable {
	unsigned int max_fds;
	unsigned long *open_fds;
	unsigned long *full_fds_bits; /* since 4.5 */
};
struct files_struct {
	struct fdtable *fdt;
};

struct ns_common {
	unsigned int inum;
};
struct net {
	struct ns_common ns;
};
struct nsproxy {
	struct net *net_ns;
};

struct rlimit {
	unsigned long rlim_cur;
};
/* The resource of file descriptors; MIPS and SPARC number it otherwise and are not aimed at. */
#define RLIMIT_NOFILE 7

struct signal_struct {
	atomic_t live;
	struct rlimit rlim[16];
	int nr_threads;
	int group_exit_code;
	unsigned int flags;
	__u64 utime;
	__u64 stime;
	unsigned long nvcsw;
	unsigned long nivcsw;
	unsigned long min_flt;
	unsigned long maj_flt;
	unsigned long long sum_sched_runtime;
	struct task_io_accounting ioac;
	short oom_score_adj;
};

struct task_struct {
	struct thread_info thread_info;
	unsigned int __state;
	unsigned int flags;
	unsigned int on_cpu; /* with CONFIG_SMP; a byte since 7.x, and only an unsigned load is made to fit that */
	int static_prio;
	unsigned int rt_priority;
	struct sched_entity se;
	unsigned int policy;
	int nr_cpus_allowed;
	const struct cpumask *cpus_ptr;
	struct sched_info sched_info;
	struct mm_struct *mm;
	int exit_state;
	int exit_code;
	unsigned int in_iowait : 1;
	int pid;
	int tgid;
	struct task_struct *real_parent;
	struct task_struct *group_leader;
	struct list_head thread_node;
	__u64 utime;
	__u64 stime;
	unsigned long nvcsw;
	unsigned long nivcsw;
	__u64 start_boottime;
	unsigned long min_flt;
	unsigned long maj_flt;
	char comm[16];
	struct files_struct *files;
	struct nsproxy *nsproxy;
	struct signal_struct *signal;
	struct sighand_struct *sighand;
	struct task_io_accounting ioac;
	struct css_set *cgroups;
	struct task_delay_info *delays;
};

/* Up to 5.13: `state`, renamed to `__state` in 5.14 (2f064a59a11f). */
struct task_struct___state {
	volatile long state;
};
/* Up to 5.15: `cpu` beside the stack; 5.16 moved it into thread_info (bcf9033e5449). */
struct task_struct___cpu {
	unsigned int cpu;
};

/* Only looked at for which fields exist. */
struct rq {
	__u64 prev_irq_time;
};

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

struct gendisk {
	int major;
	int first_minor;
};
struct request_queue {
	struct gendisk *disk; /* since 5.15 */
};
struct request {
	struct request_queue *q;
	unsigned int cmd_flags;
	unsigned int __data_len;
	__u64 start_time_ns;
	__u64 io_start_time_ns;
};
/* Up to 5.16: the disk hung on the request (f3fa33acca9f removed it). */
struct request___old {
	struct gendisk *rq_disk;
};

#pragma clang attribute pop

/* Flags of task_struct, signal_struct and the task state that user space also knows. */
#define PF_KTHREAD 0x00200000
#define SIGNAL_GROUP_EXIT 0x00000004
#define TASK_RUNNING 0x0000
#define TASK_UNINTERRUPTIBLE 0x0002
#define TASK_NOLOAD 0x0400
#define TASK_FROZEN 0x8000

/* A value that this kernel does not keep. Zero would be a lie. */
#define NA (~0ULL)

/* Missing at this kernel's configuration: NA. `p` is evaluated only if the field is there. */
#define FIELD_OR_NA(p, field) (bpf_core_field_exists((p)->field) ? (__u64)(p)->field : NA)

#endif
