// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * CPU time of a task up to this moment. This source is dual licensed; inside the kernel it runs
 * under the GPL, which the helpers it calls ask for.
 */
#ifndef MITRA_CLOCK_H
#define MITRA_CLOCK_H

#include "record.h"

/* No clock that is trusted is further off than this; a task's run time is brought up to
 * date at least once per tick, and no kernel ticks slower than 100 Hz. */
#define TICK_NS_MAX 10000000ULL
/* How far CLOCK_MONOTONIC and the scheduler's clock may part: 1/2^14, 61 ppm. */
#define CLOCK_DRIFT_SHIFT 14

/*
 * CLOCK_MONOTONIC minus the scheduler's clock, from above: now - last_arrival is too large by
 * the time since the task got its CPU, so the smallest one seen is the best.
 */
struct clock_gap {
	__u64 ns;
	__u64 seen_ns; /* 0: not known */
};

static __always_inline __u64 clock_gap_at(const struct clock_gap *gap, __u64 now_ns)
{
	__u64 since = now_ns - gap->seen_ns;

	/* Another CPU may have seen it after the clock was read here. */
	return (__s64)since < 0 ? gap->ns : gap->ns + (since >> CLOCK_DRIFT_SHIFT);
}

static __always_inline void learn_clock_gap(struct clock_gap *gap, __u64 now_ns, __u64 last_arrival_ns)
{
	__u64 candidate = now_ns - last_arrival_ns;

	if (!last_arrival_ns)
		return;
	if (!gap->seen_ns || (__s64)(candidate - clock_gap_at(gap, now_ns)) < 0) {
		gap->ns = candidate;
		gap->seen_ns = now_ns;
	}
}

/*
 * CPU time of the task that is running here. sum_exec_runtime stands still between two
 * ticks, and a process of 1 ms may never see one: so add the time since it got the CPU to
 * what it had then.
 */
static __always_inline __u64 running_cpu_time(struct clock_gap *gap, struct task_struct *task)
{
	__u64 charged = task->se.sum_exec_runtime;
	__u64 arrived = task->sched_info.last_arrival;
	__u64 now = bpf_ktime_get_ns();
	__u64 estimate;

	learn_clock_gap(gap, now, arrived);
	if (!arrived || !gap->seen_ns)
		return charged;
	estimate = task->se.prev_sum_exec_runtime + (now - clock_gap_at(gap, now) - arrived);
	if ((__s64)(estimate - charged) < 0)
		return charged;
	return estimate - charged > TICK_NS_MAX ? charged : estimate;
}

/* CPU time of the other threads of a process whose last one is ending: those that were reaped
 * before, and a leader that ended first, which is a zombie until then and not among them. */
static __always_inline __u64 group_cpu_time(struct task_struct *task)
{
	struct task_struct *leader = task->group_leader;
	__u64 ns = task->signal->sum_sched_runtime;

	return leader == task ? ns : ns + leader->se.sum_exec_runtime;
}

#endif
