// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Waiting for locks: those of the kernel, by process, kind and stack of the one that waits,
 * and futexes by process and address. This source is dual licensed; inside the kernel it
 * runs under the GPL, which the helpers it calls ask for.
 */
#define CALLS_WITH_STACKS
#include "calls.h"

char LICENSE[] SEC("license") = "GPL";

#define LOCK_WAITERS 8192
#define LOCK_SUMS 4096
#define FUTEX_SUMS 4096
/* Most threads that have nothing to do wait for a futex. */
#define FUTEX_WAITERS 32768
/* Below, the stack costs more than the wait. */
#define STACK_MIN_NS 10000
/* Bucket i counts up to 256 << i nanoseconds, the last one the rest. */

/* include/trace/events/lock.h */
#define LCB_F_SPIN 1
#define LCB_F_MUTEX 32
/* Ours, beside them: the lock is that of the address space of the one that waits. */
#define LOCK_MMAP (1U << 31)

/* Classes. */
#define CALL_FUTEX 1
#define CALL_FUTEX_WAIT 2
#define CALL_FUTEX_WAKE 3

#define EAGAIN 11

/* include/uapi/linux/futex.h */
#define FUTEX_CMD_MASK 127
#define FUTEX_WAIT 0
#define FUTEX_WAKE 1
#define FUTEX_LOCK_PI 6
#define FUTEX_WAIT_BITSET 9
#define FUTEX_WAKE_BITSET 10
#define FUTEX_WAIT_REQUEUE_PI 11
#define FUTEX_LOCK_PI2 13

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct rw_semaphore {
	atomic_long_t count;
};
struct mm_struct___lock {
	struct rw_semaphore mmap_lock; /* since 5.8 */
};

#pragma clang attribute pop

struct lock_wait {
	__u64 at;
	__u64 lock;
	__u64 flags;
	__u32 tid;
	__u32 tgid;
};
_Static_assert(sizeof(struct lock_wait) == 32, "twin: src/capture/kinds/locks.rs");

/* Waits that may sleep, by tid: neither allocation nor a lock of a hash that others wait for. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, LOCK_WAITERS);
	__type(key, __u32);
	__type(value, struct lock_wait);
} lock_waits SEC(".maps");

/* Who spins stays on its CPU. An interrupt that spins for another lock meanwhile is not seen. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct lock_wait);
} lock_spins SEC(".maps");

struct contended_key {
	__u32 tgid;
	__u32 flags;
	__s32 stack; /* of the kernel; negative: none was taken */
	__u32 pad;
};
struct contended_sum {
	__u64 count;
	__u64 total;
	__u64 max;
	char comm[16];
};
_Static_assert(sizeof(struct contended_key) == 16, "twin: src/capture/kinds/locks.rs");
_Static_assert(sizeof(struct contended_sum) == 40, "twin: src/capture/kinds/locks.rs");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, LOCK_SUMS);
	__type(key, struct contended_key);
	__type(value, struct contended_sum);
} lock_sums SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, TIME_BUCKETS);
	__type(key, __u32);
	__type(value, __u64);
} lock_latency SEC(".maps");

struct futex_key {
	__u64 address;
	__u32 tgid;
	__u32 pad;
};
struct futex_sum {
	__u64 waits;
	__u64 total;
	__u64 max;
	__u64 wakes;
	/* Calls that found the value changed: somebody else was quicker. */
	__u64 again;
	/* Waits for the value 2, which is what a taken glibc lock holds that others wait for. */
	__u64 value_2;
	char comm[16];
};
_Static_assert(sizeof(struct futex_key) == 16, "twin: src/capture/kinds/locks.rs");
_Static_assert(sizeof(struct futex_sum) == 64, "twin: src/capture/kinds/locks.rs");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, FUTEX_SUMS);
	__type(key, struct futex_key);
	__type(value, struct futex_sum);
} futex_sums SEC(".maps");

struct futex_wait {
	__u64 at;
	__u64 address;
	__u32 value;
	__u32 tgid;
};
_Static_assert(sizeof(struct futex_wait) == 24, "twin: src/capture/kinds/locks.rs");

/* By tid, for user space: who waits at the end. A thread that is killed leaves its call first. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, FUTEX_WAITERS);
	__type(key, __u32);
	__type(value, struct futex_wait);
} futex_waits SEC(".maps");

static __always_inline bool spins(__u32 flags)
{
	return (flags & (LCB_F_SPIN | LCB_F_MUTEX)) == LCB_F_SPIN;
}

static __always_inline bool is_own_mmap_lock(__u64 lock)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct mm_struct *mm = task->mm;

	return mm && lock == (__u64)mm + bpf_core_field_offset(struct mm_struct___lock, mmap_lock);
}

SEC("tp_btf/contention_begin")
int lock_begin(unsigned long long *ctx)
{
	struct lock_wait wait = { .lock = ctx[0], .flags = (__u32)ctx[1] };
	bool is_spin = spins(wait.flags);
	__u32 tid = (__u32)bpf_get_current_pid_tgid();
	__u32 first = 0;
	struct lock_wait *old;

	if (!goes_on() || !wanted())
		return 0;
	wait.tid = tid;
	wait.tgid = current_tgid();
	if (is_own_mmap_lock(wait.lock))
		wait.flags |= LOCK_MMAP;
	if (is_spin) {
		old = bpf_map_lookup_elem(&lock_spins, &first);
		/* Who spins for a lock does not begin to, and nobody else runs on its CPU meanwhile: what says
		 * so was left behind, as when the end was not seen. An interrupt spins for another lock. */
		if (!old || (old->at && old->tid == tid && old->lock != wait.lock))
			return 0;
	} else {
		old = bpf_map_lookup_elem(&lock_waits, &tid);
	}
	wait.at = bpf_ktime_get_ns();
	if (!old) {
		if (bpf_map_update_elem(&lock_waits, &tid, &wait, BPF_NOEXIST))
			count_lost();
		return 0;
	}
	/* A mutex begins to spin and begins again to sleep, and so on: one wait. Any other lock begins once. */
	if (!is_spin && (wait.flags & LCB_F_MUTEX) && old->lock == wait.lock && old->flags != wait.flags) {
		old->flags = wait.flags;
		return 0;
	}
	*old = wait;
	return 0;
}

static __always_inline void count_lock(void *ctx, struct lock_wait *wait)
{
	__u64 ns = bpf_ktime_get_ns() - wait->at;
	struct contended_key key = { .tgid = current_tgid(), .flags = (__u32)wait->flags, .stack = -1 };
	__u32 bucket = time_bucket(ns);
	struct contended_sum *sum;
	__u64 *slot;

	if (ns < config.min_ns || !count_event())
		return;
	if (ns >= STACK_MIN_NS)
		key.stack = current_stack(ctx, 0);
	sum = bpf_map_lookup_elem(&lock_sums, &key);
	if (!sum) {
		struct contended_sum fresh = {};

		process_comm(fresh.comm, bpf_get_current_task_btf());
		bpf_map_update_elem(&lock_sums, &key, &fresh, BPF_NOEXIST);
		sum = bpf_map_lookup_elem(&lock_sums, &key);
	}
	if (!sum) {
		count_lost();
		return;
	}
	__sync_fetch_and_add(&sum->count, 1);
	__sync_fetch_and_add(&sum->total, ns);
	raise_to(&sum->max, ns);
	slot = bpf_map_lookup_elem(&lock_latency, &bucket);
	if (slot)
		*slot += 1;
}

SEC("tp_btf/contention_end")
int lock_end(unsigned long long *ctx)
{
	__u64 lock = ctx[0];
	__u32 tid = (__u32)bpf_get_current_pid_tgid();
	__u32 first = 0;
	struct lock_wait *wait;

	if (!goes_on() || !wanted())
		return 0;
	wait = bpf_map_lookup_elem(&lock_spins, &first);
	if (wait && wait->at && wait->tid == tid && wait->lock == lock) {
		count_lock(ctx, wait);
		wait->at = 0;
		return 0;
	}
	wait = bpf_map_lookup_elem(&lock_waits, &tid);
	if (!wait || wait->lock != lock)
		return 0;
	count_lock(ctx, wait);
	bpf_map_delete_elem(&lock_waits, &tid);
	return 0;
}

static __always_inline struct futex_sum *futex_sum(__u64 address)
{
	struct futex_key key = { .address = address, .tgid = current_tgid() };
	struct futex_sum *sum = bpf_map_lookup_elem(&futex_sums, &key);

	if (!sum) {
		struct futex_sum fresh = {};

		process_comm(fresh.comm, bpf_get_current_task_btf());
		bpf_map_update_elem(&futex_sums, &key, &fresh, BPF_NOEXIST);
		sum = bpf_map_lookup_elem(&futex_sums, &key);
	}
	if (!sum)
		count_lost();
	return sum;
}

/* The class of a call of futex(), whose second argument says what it wants. */
static __always_inline __u8 futex_class(__u64 op)
{
	switch (op & FUTEX_CMD_MASK) {
	case FUTEX_WAIT:
	case FUTEX_WAIT_BITSET:
	case FUTEX_LOCK_PI:
	case FUTEX_LOCK_PI2:
	case FUTEX_WAIT_REQUEUE_PI:
		return CALL_FUTEX_WAIT;
	case FUTEX_WAKE:
	case FUTEX_WAKE_BITSET:
		return CALL_FUTEX_WAKE;
	default:
		return 0;
	}
}

SEC("tp_btf/sys_enter")
int futex_entered(unsigned long long *ctx)
{
	struct pt_regs *regs = (struct pt_regs *)ctx[0];
	__u8 class = class_of((long)ctx[1]);
	struct futex_wait wait = {};
	struct futex_sum *sum;
	__u32 tid;

	if (!goes_on() || !class || !wanted() || is_compat(regs))
		return 0;
	if (class == CALL_FUTEX)
		class = futex_class(call_arg(regs, 1));
	if (class == CALL_FUTEX_WAKE) {
		sum = futex_sum(call_arg(regs, 0));
		if (sum)
			__sync_fetch_and_add(&sum->wakes, 1);
		return 0;
	}
	if (class != CALL_FUTEX_WAIT)
		return 0;
	wait.address = call_arg(regs, 0);
	/* futex() has the value third, futex_wait() second. */
	wait.value = class_of((long)ctx[1]) == CALL_FUTEX ? call_arg(regs, 2) : call_arg(regs, 1);
	wait.tgid = current_tgid();
	wait.at = bpf_ktime_get_ns();
	tid = (__u32)bpf_get_current_pid_tgid();
	if (bpf_map_update_elem(&futex_waits, &tid, &wait, BPF_ANY))
		count_lost();
	return 0;
}

static __always_inline void count_futex(const struct futex_wait *wait, long result)
{
	__u64 ns = bpf_ktime_get_ns() - wait->at;
	struct futex_sum *sum;

	if (ns < config.min_ns || !count_event())
		return;
	sum = futex_sum(wait->address);
	if (!sum)
		return;
	if (result == -EAGAIN) {
		__sync_fetch_and_add(&sum->again, 1);
		return;
	}
	__sync_fetch_and_add(&sum->waits, 1);
	__sync_fetch_and_add(&sum->total, ns);
	if (wait->value == 2)
		__sync_fetch_and_add(&sum->value_2, 1);
	raise_to(&sum->max, ns);
}

SEC("tp_btf/sys_exit")
int futex_left(unsigned long long *ctx)
{
	struct pt_regs *regs = (struct pt_regs *)ctx[0];
	__u8 class = class_of(call_number(regs));
	struct futex_wait *wait;
	__u32 tid;

	if (!goes_on() || !class || class == CALL_FUTEX_WAKE || !wanted())
		return 0;
	tid = (__u32)bpf_get_current_pid_tgid();
	wait = bpf_map_lookup_elem(&futex_waits, &tid);
	if (!wait)
		return 0;
	count_futex(wait, (long)ctx[1]);
	bpf_map_delete_elem(&futex_waits, &tid);
	return 0;
}
