// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * What interrupt handlers and softirqs take of each CPU. This source is dual licensed; inside the kernel it
 * runs under the GPL, which the helpers it calls ask for.
 *
 * An interrupt belongs to the machine and not to the task that it interrupts: nothing here asks wanted().
 */
#define CAPTURE_WITHOUT_STACKS
#include "capture.h"

char LICENSE[] SEC("license") = "GPL";

#define IRQ_SUMS 8192
#define IRQ_NAME_BYTES 40

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct irqaction {
	const char *name;
};

#pragma clang attribute pop

/* An interrupt line may have several handlers; each has an irqaction. */
struct irq_key {
	__u64 action; /* 0: a softirq */
	__u32 number; /* of the interrupt, or of the softirq */
	__u32 cpu;
};
struct irq_sum {
	__u64 count;
	__u64 total;
	__u64 longest;
	char name[IRQ_NAME_BYTES]; /* of the handler, when it ended first */
};
_Static_assert(sizeof(struct irq_key) == 16, "twin: src/capture/kinds/interrupts.rs");
_Static_assert(sizeof(struct irq_sum) == 64, "twin: src/capture/kinds/interrupts.rs");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, IRQ_SUMS);
	__type(key, struct irq_key);
	__type(value, struct irq_sum);
} irq_sums SEC(".maps");

/* What runs on a CPU now. Softirqs do not nest; a handler can interrupt one. */
struct irq_running {
	__u64 hard_since; /* 0: none */
	__u64 soft_since; /* 0: none */
	__u64 hard_total; /* of all handlers that have ended */
	__u64 hard_total_before; /* when the softirq began */
};
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct irq_running);
} irq_running SEC(".maps");

static __always_inline struct irq_running *running_here(void)
{
	__u32 first = 0;

	return bpf_map_lookup_elem(&irq_running, &first);
}

static __always_inline void add_run(struct irqaction *action, __u32 number, __u64 ns)
{
	struct irq_key key = {
		.action = (__u64)action,
		.number = number,
		.cpu = bpf_get_smp_processor_id(),
	};
	struct irq_sum *sum;

	if (!count_event())
		return;
	sum = bpf_map_lookup_elem(&irq_sums, &key);
	if (!sum) {
		struct irq_sum fresh = {};

		if (action)
			bpf_probe_read_kernel_str(fresh.name, sizeof(fresh.name), action->name);
		bpf_map_update_elem(&irq_sums, &key, &fresh, BPF_NOEXIST);
		sum = bpf_map_lookup_elem(&irq_sums, &key);
	}
	if (!sum) {
		count_lost();
		return;
	}
	/* Not atomic: a handler does not interrupt itself, and the key is of this CPU. */
	sum->count += 1;
	sum->total += ns;
	if (ns > sum->longest)
		sum->longest = ns;
}

SEC("tp_btf/irq_handler_entry")
int hard_began(unsigned long long *ctx)
{
	struct irq_running *running = goes_on() ? running_here() : 0;

	if (!running)
		return 0;
	/* An NMI interrupted a handler, whose time is not known then. */
	if (running->hard_since)
		count_lost();
	running->hard_since = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/irq_handler_exit")
int hard_ended(unsigned long long *ctx)
{
	struct irq_running *running = goes_on() ? running_here() : 0;
	__u64 ns;

	if (!running || !running->hard_since)
		return 0;
	ns = bpf_ktime_get_ns() - running->hard_since;
	running->hard_since = 0;
	running->hard_total += ns;
	add_run((struct irqaction *)ctx[1], (__u32)ctx[0], ns);
	return 0;
}

/* A handler that runs between the two readings, here and at the end, counts as time of the softirq, which
 * therefore is never negative. */
SEC("tp_btf/softirq_entry")
int soft_began(unsigned long long *ctx)
{
	struct irq_running *running = goes_on() ? running_here() : 0;

	if (!running)
		return 0;
	running->soft_since = bpf_ktime_get_ns();
	running->hard_total_before = running->hard_total;
	return 0;
}

SEC("tp_btf/softirq_exit")
int soft_ended(unsigned long long *ctx)
{
	struct irq_running *running = goes_on() ? running_here() : 0;
	__u64 since, hard;

	if (!running || !running->soft_since)
		return 0;
	since = running->soft_since;
	running->soft_since = 0;
	hard = running->hard_total - running->hard_total_before;
	add_run(0, (__u32)ctx[0], bpf_ktime_get_ns() - since - hard);
	return 0;
}
