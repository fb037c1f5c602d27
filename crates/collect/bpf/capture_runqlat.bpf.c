// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * How long tasks that could run waited for a CPU, by process. The scheduler measures each
 * wait itself (sched_info.run_delay, the second number of /proc/PID/schedstat); a task that
 * leaves its CPU has just one more wait in it than when it left the last time. So one look at
 * each switch suffices, wake-ups need none, and the sum is the kernel's own. This source is
 * dual licensed; inside the kernel it runs under the GPL, which the helpers it calls ask for.
 */
#include "calls.h"

char LICENSE[] SEC("license") = "GPL";

#define RUN_TASKS 16384
#define RUN_SUMS 4096

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct sched_info___counted {
	unsigned long pcount;
	unsigned long long run_delay;
};
struct task_struct___counted {
	struct sched_info___counted sched_info;
};

#pragma clang attribute pop

/* Under the rq lock nothing may allocate that wakes somebody: these maps are filled before. */
struct run_seen {
	__u64 run_delay;
	/* It did not leave by itself the last time. */
	__u64 preempted;
};
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, RUN_TASKS);
	__type(key, __u32);
	__type(value, struct run_seen);
} run_seen SEC(".maps");

struct run_sum {
	struct times times;
	__u64 preempted_count;
	__u64 preempted_total;
};
_Static_assert(sizeof(struct run_sum) == 280, "twin: src/capture/kinds/runqlat.rs");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, RUN_SUMS);
	__type(key, __u32);
	__type(value, struct run_sum);
} run_sums SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct run_sum);
} run_first SEC(".maps");

static __always_inline void count_wait(struct task_struct *task, __u64 ns, bool preempted)
{
	__u32 tgid = task->tgid;
	struct run_sum *sum;

	if (ns < config.min_ns || !count_event())
		return;
	sum = times_of(&run_sums, &run_first, &tgid, task);
	if (!sum) {
		count_lost();
		return;
	}
	add_time(&sum->times, ns);
	if (preempted) {
		__sync_fetch_and_add(&sum->preempted_count, 1);
		__sync_fetch_and_add(&sum->preempted_total, ns);
	}
}

static __always_inline int on_switch(struct task_struct *prev, bool still_runnable, bool dead)
{
	__u32 tid = prev->pid;
	struct task_struct___counted *counted = (void *)prev;
	struct run_seen now = { .preempted = still_runnable };
	struct run_seen *seen;

	if (!tid || !wanted())
		return 0;
	now.run_delay = counted->sched_info.run_delay;
	seen = bpf_map_lookup_elem(&run_seen, &tid);
	if (seen) {
		/* A tid that somebody else bore before begins below it. */
		if (now.run_delay >= seen->run_delay)
			count_wait(prev, now.run_delay - seen->run_delay, seen->preempted);
		*seen = now;
		if (dead)
			bpf_map_delete_elem(&run_seen, &tid);
		return 0;
	}
	/* Its first time on a CPU: all its waiting was for this. */
	if (counted->sched_info.pcount == 1)
		count_wait(prev, now.run_delay, false);
	if (!dead && bpf_map_update_elem(&run_seen, &tid, &now, BPF_NOEXIST))
		count_lost();
	return 0;
}

/* Since 5.18 the state is handed over (fa2c3254d7cf). */
SEC("tp_btf/sched_switch")
int switched(unsigned long long *ctx)
{
	__u32 state = (__u32)ctx[3];

	if (!goes_on())
		return 0;
	return on_switch((struct task_struct *)ctx[1], ctx[0] || state == TASK_RUNNING, state & TASK_DEAD);
}
