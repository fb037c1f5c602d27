// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Time off CPU by stack: from the moment that a thread leaves its CPU until it is back on one. It waits,
 * or it could run and there is no CPU for it; both are off CPU, and the state tells them apart. This
 * source is dual licensed; inside the kernel it runs under the GPL, which the helpers it calls ask for.
 */
#include "capture.h"

char LICENSE[] SEC("license") = "GPL";

#define FLAG_D_ONLY 1
#define TASK_INTERRUPTIBLE 0x0001

enum off_state { OFF_RUNNABLE, OFF_SLEEPING, OFF_BLOCKED, OFF_IDLE, OFF_OTHER };

struct off_key {
	__u32 tgid;
	__u32 image;
	__s32 user;
	__s32 kernel;
	__u32 state;
	__u32 pad;
	char comm[16];
};
_Static_assert(sizeof(struct off_key) == 40, "twin: src/capture/kinds/offcpu.rs");

struct off_sum {
	__u64 count;
	__u64 total;
	__u64 longest;
};
_Static_assert(sizeof(struct off_sum) == 24, "twin: src/capture/kinds/offcpu.rs");

/* A thread that is off CPU now. */
struct off_start {
	__u64 since;
	struct off_key key;
};
_Static_assert(sizeof(struct off_start) == 48, "twin: src/capture/kinds/offcpu.rs");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 32768);
	__type(key, __u32);
	__type(value, struct off_start);
} off_starts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct off_key);
	__type(value, struct off_sum);
} off_sums SEC(".maps");

struct off_hist {
	__u64 buckets[LATENCY_BUCKETS];
};
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct off_hist);
} off_lengths SEC(".maps");

static __always_inline void add_length(__u64 ns)
{
	__u32 first = 0;
	struct off_hist *h = bpf_map_lookup_elem(&off_lengths, &first);
	__u32 bucket = log2_bucket((ns + 999) / 1000, 4, LATENCY_BUCKETS - 1);

	if (h && bucket < LATENCY_BUCKETS)
		h->buckets[bucket] += 1;
}

static __always_inline void back_on_cpu(__u32 tid)
{
	struct off_start *start = bpf_map_lookup_elem(&off_starts, &tid);
	struct off_sum *sum;
	__u64 ns;

	if (!start)
		return;
	ns = bpf_ktime_get_ns() - start->since;
	if (ns < config.min_ns || !count_event()) {
		bpf_map_delete_elem(&off_starts, &tid);
		return;
	}
	sum = bpf_map_lookup_elem(&off_sums, &start->key);
	if (!sum) {
		struct off_sum zero = {};

		bpf_map_update_elem(&off_sums, &start->key, &zero, BPF_NOEXIST);
		sum = bpf_map_lookup_elem(&off_sums, &start->key);
	}
	if (sum) {
		__sync_fetch_and_add(&sum->count, 1);
		__sync_fetch_and_add(&sum->total, ns);
		if (ns > sum->longest)
			sum->longest = ns;
	} else {
		count_lost();
	}
	add_length(ns);
	bpf_map_delete_elem(&off_starts, &tid);
}

static __always_inline __u32 off_state(bool preempted, __u32 state)
{
	if (preempted || state == TASK_RUNNING)
		return OFF_RUNNABLE;
	if (state & TASK_UNINTERRUPTIBLE)
		return state & TASK_NOLOAD ? OFF_IDLE : OFF_BLOCKED;
	return state & TASK_INTERRUPTIBLE ? OFF_SLEEPING : OFF_OTHER;
}

static __always_inline void leave_cpu(void *ctx, struct task_struct *prev, bool preempted, __u32 state)
{
	struct off_start start = {};
	__u32 tid = prev->pid;

	if (!tid || !wanted())
		return;
	/* It never comes back; a start that was left behind would count for ever. */
	if (state & TASK_DEAD) {
		bpf_map_delete_elem(&off_starts, &tid);
		return;
	}
	start.key.state = off_state(preempted, state);
	if ((config.flags & FLAG_D_ONLY) && start.key.state != OFF_BLOCKED)
		return;
	start.key.tgid = prev->tgid;
	start.key.image = current_image();
	start.key.kernel = current_stack(ctx, 0);
	start.key.user = start.key.image ? current_stack(ctx, BPF_F_USER_STACK) : -1;
	bpf_get_current_comm(start.key.comm, sizeof(start.key.comm));
	start.since = bpf_ktime_get_ns();
	if (bpf_map_update_elem(&off_starts, &tid, &start, BPF_ANY))
		count_lost();
}

/* Since 5.18 the state comes along (fa2c3254d7cf); the task's own may have changed by now. */
SEC("tp_btf/sched_switch")
int off_switch(unsigned long long *ctx)
{
	struct task_struct *prev = (struct task_struct *)ctx[1];
	struct task_struct *next = (struct task_struct *)ctx[2];

	if (!goes_on())
		return 0;
	back_on_cpu(next->pid);
	leave_cpu(ctx, prev, ctx[0], (__u32)ctx[3]);
	return 0;
}

SEC("tp_btf/sched_switch")
int off_switch_old(unsigned long long *ctx)
{
	struct task_struct *prev = (struct task_struct *)ctx[1];
	struct task_struct *next = (struct task_struct *)ctx[2];
	__u32 state = bpf_core_field_exists(prev->__state) ? prev->__state :
							     ((struct task_struct___state *)prev)->state;

	if (!goes_on())
		return 0;
	back_on_cpu(next->pid);
	leave_cpu(ctx, prev, ctx[0], state);
	return 0;
}
