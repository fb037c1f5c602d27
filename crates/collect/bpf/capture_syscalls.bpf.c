// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * System calls by process: how many, how long, and which fail by what. Two captures use this
 * source: the one of errors attaches the exit alone. This source is dual licensed; inside the
 * kernel it runs under the GPL, which the helpers it calls ask for.
 */
#include "calls.h"

char LICENSE[] SEC("license") = "GPL";

#define CALL_SUMS 4096
#define ERROR_SUMS 4096

struct call_key {
	__u32 tgid;
	__u32 call;
};
struct call_sum {
	struct times times;
	__u64 errors;
};
_Static_assert(sizeof(struct call_sum) == 272, "twin: src/capture/kinds/syscalls.rs");

struct error_key {
	__u32 tgid;
	__u16 call;
	__u16 error;
};
struct error_sum {
	__u64 count;
	char comm[16];
};
_Static_assert(sizeof(struct error_key) == 8, "twin: src/capture/kinds/errors.rs");
_Static_assert(sizeof(struct error_sum) == 24, "twin: src/capture/kinds/errors.rs");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, CALL_SUMS);
	__type(key, struct call_key);
	__type(value, struct call_sum);
} call_sums SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, ERROR_SUMS);
	__type(key, struct error_key);
	__type(value, struct error_sum);
} error_sums SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct call_sum);
} first_sums SEC(".maps");

struct entered {
	__u64 at;
	__u64 call;
};
/* It lives and dies with its task: bounded by the tasks there are. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct entered);
} entered SEC(".maps");

SEC("tp_btf/sys_enter")
int call_entered(unsigned long long *ctx)
{
	struct pt_regs *regs = (struct pt_regs *)ctx[0];
	struct entered *e;

	if (!goes_on() || !wanted())
		return 0;
	if (is_compat(regs)) {
		/* A call of a 32-bit program. */
		count_other();
		return 0;
	}
	e = bpf_task_storage_get(&entered, bpf_get_current_task_btf(), 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!e) {
		count_lost();
		return 0;
	}
	e->call = ctx[1];
	e->at = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/sys_exit")
int call_left(unsigned long long *ctx)
{
	struct pt_regs *regs = (struct pt_regs *)ctx[0];
	long result = (long)ctx[1];
	struct call_key key = { .tgid = current_tgid() };
	struct call_sum *sum;
	struct entered *e;
	__u64 ns;

	if (!goes_on() || !wanted())
		return 0;
	e = bpf_task_storage_get(&entered, bpf_get_current_task_btf(), 0, 0);
	if (!e || !e->at)
		return 0;
	ns = bpf_ktime_get_ns() - e->at;
	e->at = 0;
	if (ns < config.min_ns || !count_event())
		return 0;
	key.call = known_number(e->call);
	sum = times_of(&call_sums, &first_sums, &key, bpf_get_current_task_btf());
	if (!sum) {
		count_lost();
		return 0;
	}
	add_time(&sum->times, ns);
	/* After sigreturn a register of the program is where a result would be, and there is no number. */
	if (result < 0 && result >= -ERRNO_MAX && call_number(regs) >= 0)
		__sync_fetch_and_add(&sum->errors, 1);
	return 0;
}

SEC("tp_btf/sys_exit")
int call_failed(unsigned long long *ctx)
{
	struct pt_regs *regs = (struct pt_regs *)ctx[0];
	long result = (long)ctx[1];
	struct error_key key = {};
	struct error_sum *sum;
	long number;

	if (!goes_on() || result >= 0 || result < -ERRNO_MAX)
		return 0;
	key.tgid = current_tgid();
	if (!wanted())
		return 0;
	if (is_compat(regs)) {
		count_other();
		return 0;
	}
	/* After sigreturn a register of the program is where a result would be. */
	number = call_number(regs);
	if (number < 0 || !count_event())
		return 0;
	key.call = known_number(number);
	key.error = -result;
	sum = bpf_map_lookup_elem(&error_sums, &key);
	if (!sum) {
		struct error_sum fresh = {};

		process_comm(fresh.comm, bpf_get_current_task_btf());
		bpf_map_update_elem(&error_sums, &key, &fresh, BPF_NOEXIST);
		sum = bpf_map_lookup_elem(&error_sums, &key);
	}
	if (!sum) {
		count_lost();
		return 0;
	}
	__sync_fetch_and_add(&sum->count, 1);
	return 0;
}
