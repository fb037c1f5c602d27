// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * What the captures of system calls and files have in common: the registers of a call, whom
 * to look at, and where a file lies in the tree of names.
 *
 * The two shapes of pt_regs are chosen between by the fields that the kernel has, so that one
 * object serves both machines. At the exit of a call its arguments are still in the registers:
 * x86 keeps them all but the one that held the number, arm64 keeps the first in orig_x0. What
 * only cares for calls that failed therefore needs no probe at their entry.
 */
#ifndef MITRA_CALLS_H
#define MITRA_CALLS_H

#ifndef CALLS_WITH_STACKS
#define CAPTURE_WITHOUT_STACKS
#endif
#include "capture.h"

#define CALLS_MAX 512
#define ERRNO_MAX 4095

/* Classes of calls with a path: the position of its argument plus one; DIR_FIRST where a descriptor
 * of a directory stands before it. */
#define PATH_ARG 0x0f
#define DIR_FIRST 0x10

/* By number of the call. Numbers differ between machines, so user space fills it in before
 * anything is attached; what the values mean is said where they are used. */
struct call_classes {
	__u8 of[CALLS_MAX];
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct call_classes);
} call_classes SEC(".maps");

enum { BPF_MAP_TYPE_TASK_STORAGE = 29 };
enum { BPF_F_NO_PREALLOC = 1 };
enum { BPF_LOCAL_STORAGE_GET_F_CREATE = 1 };

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct pt_regs___x86 {
	unsigned long di;
	unsigned long si;
	unsigned long dx;
	unsigned long r10;
	unsigned long r8;
	unsigned long r9;
	unsigned long orig_ax;
};
struct pt_regs___arm64 {
	__u64 regs[31];
	__u64 orig_x0;
	__s32 syscallno;
};
struct thread_info___x86 {
	__u32 status;
};
struct thread_info___arm64 {
	unsigned long flags;
};
struct task_struct___x86 {
	struct thread_info___x86 thread_info;
};
struct task_struct___arm64 {
	struct thread_info___arm64 thread_info;
};

#pragma clang attribute pop

#define TS_COMPAT 0x0002
#define TIF_32BIT_ARM64 22

static __always_inline bool is_x86(struct pt_regs *regs)
{
	return bpf_core_field_exists(((struct pt_regs___x86 *)regs)->orig_ax);
}

/* The name of the process, which is that of its first thread: others may have names of their own. */
static __always_inline void process_comm(char *to, struct task_struct *task)
{
	bpf_probe_read_kernel(to, 16, &task->group_leader->comm);
}

/* The number of the call, or negative where there is none, as after sigreturn. */
static __always_inline long call_number(struct pt_regs *regs)
{
	if (is_x86(regs))
		return (long)((struct pt_regs___x86 *)regs)->orig_ax;
	return ((struct pt_regs___arm64 *)regs)->syscallno;
}

/* Argument 0 to 5, at the entry of a call and at its exit. `n` is a constant. */
static __always_inline __u64 call_arg(struct pt_regs *regs, int n)
{
	struct pt_regs___x86 *x = (void *)regs;

	if (!is_x86(regs)) {
		struct pt_regs___arm64 *arm = (void *)regs;

		return n == 0 ? arm->orig_x0 : arm->regs[n];
	}
	switch (n) {
	case 0:
		return x->di;
	case 1:
		return x->si;
	case 2:
		return x->dx;
	case 3:
		return x->r10;
	case 4:
		return x->r8;
	default:
		return x->r9;
	}
}

/* Calls of 32-bit programs bear other numbers. */
static __always_inline bool is_compat(struct pt_regs *regs)
{
	struct task_struct *task = bpf_get_current_task_btf();

	if (is_x86(regs))
		return ((struct task_struct___x86 *)task)->thread_info.status & TS_COMPAT;
	return ((struct task_struct___arm64 *)task)->thread_info.flags & (1UL << TIF_32BIT_ARM64);
}

static __always_inline __u32 current_tgid(void)
{
	return bpf_get_current_pid_tgid() >> 32;
}

static __always_inline __u8 class_of(long number)
{
	struct call_classes *classes;
	__u32 first = 0;
	__u64 i = number;

	if (i >= CALLS_MAX)
		return 0;
	classes = bpf_map_lookup_elem(&call_classes, &first);
	return classes ? classes->of[i] : 0;
}

/* A number that can be a key: all that no table has become one. */
static __always_inline __u32 known_number(__u64 number)
{
	return number < CALLS_MAX ? number : CALLS_MAX;
}

/* What the kind calls other, see where it is used. */
static __always_inline void count_other(void)
{
	struct capture_counts *c = my_counts();

	if (c)
		c->other += 1;
}

static __always_inline void raise_to(__u64 *max, __u64 value)
{
	/* Two at once may leave the smaller one: a maximum of a capture may be that wrong. */
	if (value > *max)
		*max = value;
}

/* How long something took: the beginning of what is summed under a key. Bucket i counts up to
 * 256 << i nanoseconds, the last one the rest. */
#define TIME_BUCKETS 28
struct times {
	__u64 count;
	__u64 total;
	__u64 max;
	char comm[16];
	__u64 latency[TIME_BUCKETS];
};
_Static_assert(sizeof(struct times) == 264, "twin: src/capture/calls/times.rs");

static __always_inline __u32 time_bucket(__u64 ns)
{
	return log2_bucket(ns, 8, TIME_BUCKETS - 1);
}

static __always_inline void add_time(struct times *times, __u64 ns)
{
	__u32 bucket = time_bucket(ns);

	__sync_fetch_and_add(&times->count, 1);
	__sync_fetch_and_add(&times->total, ns);
	raise_to(&times->max, ns);
	if (bucket < TIME_BUCKETS)
		__sync_fetch_and_add(&times->latency[bucket], 1);
}

/* What is summed under a key; begun with the name of the process where there is nothing yet.
 * `blank` is a map with one entry for each CPU that nothing but a name is ever written to: as
 * large as it is, it has no room on the stack. */
static __always_inline void *times_of(void *sums, void *blank, const void *key, struct task_struct *task)
{
	struct times *times = bpf_map_lookup_elem(sums, key);
	__u32 first = 0;

	if (times)
		return times;
	times = bpf_map_lookup_elem(blank, &first);
	if (!times)
		return 0;
	process_comm(times->comm, task);
	bpf_map_update_elem(sums, key, times, BPF_NOEXIST);
	return bpf_map_lookup_elem(sums, key);
}

#endif
