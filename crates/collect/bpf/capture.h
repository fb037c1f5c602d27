// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * What the programs of armed probes share: what was asked for, the counts, stacks, and the
 * programs that processes ran. The twins in Rust are in src/capture. A probe includes this once.
 */
#ifndef MITRA_CAPTURE_H
#define MITRA_CAPTURE_H

#include "record.h"

/* A state of a task that never comes back (include/linux/sched.h). */
#define TASK_DEAD 0x0080

enum { BPF_MAP_TYPE_STACK_TRACE = 7 };
enum { BPF_F_USER_STACK = 1 << 8 };

/* Filled in before the program is loaded, so that what was not asked for is not even verified. */
struct capture_config {
	__u32 tgid; /* only this process; 0: all */
	__u32 self; /* Mitra, which does not watch itself */
	__u32 flags; /* of the kind */
	__u32 number; /* of the kind */
	__u64 min_ns; /* shorter ones are left out */
	__u64 max_events; /* on each CPU */
	__u64 cgroup; /* only this group of cgroup2, with those below it; 0: all */
	__u64 comm[2]; /* only threads of this name; 0: all */
	__u64 arg; /* of the kind */
	__u64 until_ns; /* nothing is done after it */
};
_Static_assert(sizeof(struct capture_config) == 72, "twin: src/capture/loader.rs");
volatile const struct capture_config config = {};

/* On each CPU, so that counting costs no cache line of another one. */
struct capture_counts {
	__u64 events;
	__u64 lost; /* events without room */
	__u64 stacks_lost; /* events that count, but whose stack had no room */
	__u64 other; /* of the kind */
	__u64 runs; /* of all programs, also those that found nothing to do */
	__u64 stacks; /* that were taken */
	__u64 looked; /* when the clock was read last, in ticks */
	__u64 is_over;
};
_Static_assert(sizeof(struct capture_counts) == 64, "twin: src/capture/loader.rs");
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct capture_counts);
} counts SEC(".maps");

static __always_inline struct capture_counts *my_counts(void)
{
	__u32 first = 0;

	return bpf_map_lookup_elem(&counts, &first);
}

/*
 * Open from when all programs are attached until the first is detached, which takes its time for each of
 * them, much of it on a machine in trouble: what one of them saw alone would be taken for something else.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} gate SEC(".maps");

/*
 * The first thing that every program asks: counts the run; false before the beginning and once the time is
 * over. User space ends a capture, but it may have been stopped (Ctrl-Z), and nobody would. The clock,
 * which costs more than all the rest of a run that finds nothing to do, is read once in a tick.
 */
static __always_inline bool goes_on(void)
{
	struct capture_counts *c = my_counts();
	__u64 tick = bpf_jiffies64();
	__u32 first = 0;
	__u64 *is_open = bpf_map_lookup_elem(&gate, &first);

	if (!c || !is_open)
		return false;
	c->runs += 1;
	if (!*is_open)
		return false;
	if (c->looked != tick) {
		c->looked = tick;
		c->is_over = bpf_ktime_get_ns() >= config.until_ns;
	}
	return !c->is_over;
}

/* Counts an event; false once there were enough of them. */
static __always_inline bool count_event(void)
{
	struct capture_counts *c = my_counts();

	if (!c || c->events >= config.max_events)
		return false;
	c->events += 1;
	return true;
}

static __always_inline void count_lost(void)
{
	struct capture_counts *c = my_counts();

	if (c)
		c->lost += 1;
}

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

/* Up to 6.0 a group has the ids of those above it; since then it has them themselves (7f203bc89eb6). */
struct cgroup___ids {
	int level;
	__u64 ancestor_ids[1];
};

#pragma clang attribute pop

/* Groups may lie deeper in each other; nobody makes use of that. */
#define CGROUP_LEVELS 32

static __always_inline bool in_cgroup_old(void)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	struct cgroup___ids *group = (void *)BPF_CORE_READ(task, cgroups, dfl_cgrp);
	__u64 ids = (__u64)group + bpf_core_field_offset(struct cgroup___ids, ancestor_ids);
	int depth = BPF_CORE_READ(group, level);

	for (int level = 0; level < CGROUP_LEVELS && level <= depth; level++) {
		__u64 id = 0;

		bpf_probe_read_kernel(&id, sizeof(id), (void *)(ids + level * sizeof(id)));
		if (id == config.cgroup)
			return true;
	}
	return false;
}

/*
 * Whether the running thread is in the group that was asked for, or below it. At which level that group
 * lies is not known: in a namespace of groups nobody sees what is above.
 */
static __always_inline bool in_cgroup(void)
{
	/* Tracing programs may call the helper since 5.14, before the ids went. */
	if (bpf_core_field_exists(struct cgroup___ids, ancestor_ids))
		return in_cgroup_old();
	for (int level = 0; level < CGROUP_LEVELS; level++) {
		__u64 id = bpf_get_current_ancestor_cgroup_id(level);

		if (id == config.cgroup)
			return true;
		/* The thread's own group was the one before. */
		if (!id)
			return false;
	}
	return false;
}

/* Whether the running thread is one of those asked for. */
static __always_inline bool wanted(void)
{
	__u32 tgid = bpf_get_current_pid_tgid() >> 32;

	if (config.tgid ? tgid != config.tgid : tgid == config.self)
		return false;
	if (config.cgroup && !in_cgroup())
		return false;
	if (config.comm[0]) {
		__u64 comm[2] = {};

		bpf_get_current_comm(comm, sizeof(comm));
		if (comm[0] != config.comm[0] || comm[1] != config.comm[1])
			return false;
	}
	return true;
}

/* Stacks take 17 MB of the kernel's memory: a probe without any leaves all this out. */
#ifndef CAPTURE_WITHOUT_STACKS

/*
 * The program that the running process runs. Addresses mean something only together with it: it is
 * told to user space when it is seen first, while its mappings can still be read.
 */
struct image_rec {
	__u32 id;
	__u32 tgid;
	char comm[16];
};
_Static_assert(sizeof(struct image_rec) == 24, "twin: src/capture/stacks.rs");

#define IMAGES 8192
#define IMAGE_RING_BYTES (64 * 1024)
#define STACKS 16384
#define STACK_DEPTH 127

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, IMAGES);
	__type(key, __u32);
	__type(value, __u64);
} images SEC(".maps");
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, IMAGE_RING_BYTES);
} image_ring SEC(".maps");
/* A probe that keeps stacks by itself (chain.h) has the programs of processes all the same. */
#ifndef CAPTURE_WITH_CHAINS
struct {
	__uint(type, BPF_MAP_TYPE_STACK_TRACE);
	__uint(max_entries, STACKS);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, STACK_DEPTH * sizeof(__u64));
} stacks SEC(".maps");
#endif

/* 0: a thread of the kernel, which has no program. */
static __always_inline __u32 current_image(void)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	__u64 mm = (__u64)BPF_CORE_READ(task, mm);
	__u32 tgid = bpf_get_current_pid_tgid() >> 32;
	/* The address space is a new one after execve. Its address, a multiple of 64, names it. */
	__u32 id = (__u32)(mm >> 6);
	struct image_rec *rec;
	__u64 *known;

	if (!mm)
		return 0;
	known = bpf_map_lookup_elem(&images, &tgid);
	if (known && *known == mm)
		return id;
	/* Without room it is not known yet, and told the next time. */
	rec = bpf_ringbuf_reserve(&image_ring, sizeof(*rec), 0);
	if (!rec)
		return id;
	bpf_map_update_elem(&images, &tgid, &mm, BPF_ANY);
	rec->id = id;
	rec->tgid = tgid;
	bpf_get_current_comm(rec->comm, sizeof(rec->comm));
	bpf_ringbuf_submit(rec, BPF_RB_NO_WAKEUP);
	return id;
}

#ifndef CAPTURE_WITH_CHAINS

#define EEXIST 17

/* The number of the stack of the running thread; negative: it has none, or there was no room. */
static __always_inline __s32 current_stack(void *ctx, __u64 flags)
{
	__s32 id = bpf_get_stackid(ctx, &stacks, flags);
	struct capture_counts *c = my_counts();

	if (c) {
		c->stacks += 1;
		if (id == -EEXIST)
			c->stacks_lost += 1;
	}
	return id;
}

#endif /* CAPTURE_WITH_CHAINS */
#endif /* CAPTURE_WITHOUT_STACKS */

#endif
