// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Where CPU time goes: the stacks that a clock finds when it ticks on a CPU that is not idle. This source
 * is dual licensed; inside the kernel it runs under the GPL, which the helpers it calls ask for.
 */
#include "capture.h"

char LICENSE[] SEC("license") = "GPL";

struct on_key {
	__u32 tgid;
	__u32 image;
	__s32 user;
	__s32 kernel;
	char comm[16];
};
_Static_assert(sizeof(struct on_key) == 32, "twin: src/capture/kinds/oncpu.rs");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct on_key);
	__type(value, __u64);
} on_sums SEC(".maps");

SEC("perf_event")
int on_tick(void *ctx)
{
	__u64 id = bpf_get_current_pid_tgid();
	struct on_key key = {};
	__u64 *sum;

	if (!goes_on())
		return 0;
	/* The thread of id 0 is the idle one. */
	if (!(__u32)id || !wanted() || !count_event())
		return 0;
	key.tgid = id >> 32;
	key.image = current_image();
	key.kernel = current_stack(ctx, 0);
	key.user = key.image ? current_stack(ctx, BPF_F_USER_STACK) : -1;
	bpf_get_current_comm(key.comm, sizeof(key.comm));
	sum = bpf_map_lookup_elem(&on_sums, &key);
	if (!sum) {
		__u64 zero = 0;

		bpf_map_update_elem(&on_sums, &key, &zero, BPF_NOEXIST);
		sum = bpf_map_lookup_elem(&on_sums, &key);
	}
	if (sum)
		__sync_fetch_and_add(sum, 1);
	else
		count_lost();
	return 0;
}
