// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Who makes a process grow: its anonymous memory by the stack that brought it, and where it lies. The
 * kernel says when the count of a process' resident pages has changed, not by how much; it is kept as a
 * sum and, on each CPU, what has not been added to it yet. What changed on this CPU since it was looked
 * at last, and in the sum since anybody did, adds up to what changed in all. Where a page came to lie is
 * known from the fault before. This source is dual licensed; inside the kernel it runs under the GPL,
 * which the helpers it calls ask for.
 */
#define CAPTURE_WITH_CHAINS
#include "capture.h"
#include "chain.h"
#include "functions.h"

char LICENSE[] SEC("license") = "GPL";

#define GROWTH_SUMS 16384
#define GROWTH_PAGES 131072
#define GROWTH_THREADS 4096
/* The stack of the first thread is mapped so far below its beginning, at most, whatever its limit: what
 * lies above the highest mapping is kept free for it, at least this (MIN_GAP of mm/util.c). */
#define STACK_REACH (128ULL << 20)

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct mm_struct___places {
	unsigned long start_brk, brk, start_stack;
};
/* What perf hands to a program; the registers in front of it differ by machine. */
struct bpf_perf_event_data {
	__u64 sample_period;
	__u64 addr;
};
/* A map with a value for each CPU: the pointers that become addresses by adding what is the CPU's own. */
struct bpf_array {
	void *pptrs[1];
};

#pragma clang attribute pop

enum growth_place { PLACE_UNKNOWN, PLACE_HEAP, PLACE_STACK, PLACE_MAPPED };

struct growth_key {
	__u32 image;
	__u32 place;
	__u64 chain;
	__u64 functions;
	char comm[16];
};
_Static_assert(sizeof(struct growth_key) == 40, "twin: src/capture/kinds/growth/twins.rs");

struct growth_sum {
	__u64 count;
	__u64 pages;
	__u64 unplaced; /* of the pages: nobody knows where they lie */
};
_Static_assert(sizeof(struct growth_sum) == 24, "twin: src/capture/kinds/growth/twins.rs");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, GROWTH_SUMS);
	__type(key, struct growth_key);
	__type(value, struct growth_sum);
} growth_sums SEC(".maps");

/* What came last at an address. Whether it is there still is for user space to see, in the end. */
struct growth_page {
	__u64 at;
	struct growth_key key;
	__u32 pages; /* that came */
	__u32 span; /* that lie from this address on; 1: the others lie somewhere else */
};
_Static_assert(sizeof(struct growth_page) == 56, "twin: src/capture/kinds/growth/twins.rs");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, GROWTH_PAGES);
	__type(key, __u64);
	__type(value, struct growth_page);
} growth_pages SEC(".maps");

/* The address of a fault that goes on, by thread: handling it may sleep. 0: there is none. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, GROWTH_THREADS);
	__type(key, __u32);
	__type(value, __u64);
} growth_faults SEC(".maps");

struct growth_cpu {
	__u64 mm; /* whose `local` it is */
	__s64 local; /* what this CPU had not added to the sum when it was looked at last */
	__s64 twice; /* pages that another CPU has counted too, which are taken off what comes next */
	__u64 offset; /* of what is this CPU's own */
	__u64 has_offset;
	__u64 scratch;
	/* Pages. */
	__u64 came;
	__u64 went;
	__u64 came_by_others;
	__u64 went_by_others;
};
_Static_assert(sizeof(struct growth_cpu) == 80, "twin: src/capture/kinds/growth/twins.rs");
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct growth_cpu);
} growth_cpus SEC(".maps");

struct growth_all {
	__u64 mm; /* the memory of the process */
	__s64 count; /* the sum when anybody looked at it last */
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct growth_all);
} growth_alls SEC(".maps");

/* A pointer that was written to memory and read again is a number, which may be reckoned with. */
static __always_inline __u64 as_number(__u64 *scratch, const void *pointer)
{
	*(volatile __u64 *)scratch = (__u64)pointer;
	return *(volatile __u64 *)scratch;
}

/*
 * How far what is this CPU's own lies from where pointers to it point. The kernel does not tell its
 * programs, but it does so for a map with a value for each CPU: this is the value, and the map has the
 * pointer.
 */
static __always_inline void learn_offset(struct growth_cpu *cpu)
{
	__u64 map = as_number(&cpu->scratch, &growth_cpus);
	__u64 pointer = 0;

	map += bpf_core_field_offset(struct bpf_array, pptrs);
	if (bpf_probe_read_kernel(&pointer, sizeof(pointer), (void *)map) || !pointer)
		return;
	cpu->offset = as_number(&cpu->scratch, cpu) - pointer;
	cpu->has_offset = 1;
}

/* What this CPU has not added to the sum yet. */
static __always_inline __s64 local_count(struct growth_cpu *cpu, struct mm_struct *mm)
{
	__u64 counters = (__u64)mm->rss_stat[MM_ANONPAGES].counters;
	__s32 local = 0;

	if (!cpu->has_offset)
		learn_offset(cpu);
	if (cpu->has_offset)
		bpf_probe_read_kernel(&local, sizeof(local), (void *)(counters + cpu->offset));
	return local;
}

/* Notes where counting begins. */
static __always_inline void begin(struct growth_cpu *cpu, struct growth_all *all, struct mm_struct *mm)
{
	if (all->mm != (__u64)mm) {
		all->count = mm->rss_stat[MM_ANONPAGES].count;
		all->mm = (__u64)mm;
	}
	if (cpu->mm != (__u64)mm) {
		cpu->local = local_count(cpu, mm);
		cpu->mm = (__u64)mm;
	}
}

/* Whether this thread handles a fault that has brought nothing yet. */
static __always_inline bool is_faulting(void)
{
	__u32 tid = (__u32)bpf_get_current_pid_tgid();
	__u64 *at = bpf_map_lookup_elem(&growth_faults, &tid);

	return at && *at;
}

/*
 * By how many pages the memory has changed. A CPU that has just added to the sum has nothing left to add;
 * one that has something left has not touched the sum, which others may have. Where two add at the same
 * time one of them tells of both. The other one finds the sum unchanged then, as if pages had gone, which
 * no fault does: what it had told of before is counted twice.
 */
static __always_inline __s64 changed_by(struct growth_cpu *cpu, struct growth_all *all, struct mm_struct *mm)
{
	__s64 local, count;

	if (cpu->mm != (__u64)mm || all->mm != (__u64)mm) {
		begin(cpu, all, mm);
		return 0;
	}
	local = local_count(cpu, mm);
	if (local) {
		count = local - cpu->local;
		cpu->local = local;
		return count;
	}
	count = mm->rss_stat[MM_ANONPAGES].count;
	count -= (__s64)__sync_lock_test_and_set(&all->count, count);
	local = cpu->local;
	cpu->local = 0;
	if (!count && local > 0 && is_faulting()) {
		cpu->twice += local;
		return 0;
	}
	return count - local;
}

static __always_inline bool is_of_process(void)
{
	return (__u32)(bpf_get_current_pid_tgid() >> 32) == config.tgid;
}

static __always_inline int fault(__u64 address)
{
	__u32 tid = (__u32)bpf_get_current_pid_tgid();
	__u32 first = 0;
	__u64 *at;

	if (!goes_on() || !is_of_process())
		return 0;
	at = bpf_map_lookup_elem(&growth_faults, &tid);
	if (at)
		*at = address;
	else
		bpf_map_update_elem(&growth_faults, &tid, &address, BPF_ANY);
	if (!bpf_core_field_exists(((struct mm_struct___old *)0)->rss_stat.count)) {
		struct task_struct *task = bpf_get_current_task_btf();
		struct mm_struct *mm = task->mm;
		struct growth_cpu *cpu = bpf_map_lookup_elem(&growth_cpus, &first);
		struct growth_all *all = bpf_map_lookup_elem(&growth_alls, &first);

		if (mm && cpu && all)
			begin(cpu, all, mm);
	}
	return 0;
}

SEC("tp_btf/page_fault_user")
int growth_fault_user(unsigned long long *ctx)
{
	return fault(ctx[0]);
}

SEC("tp_btf/page_fault_kernel")
int growth_fault_kernel(unsigned long long *ctx)
{
	return fault(ctx[0]);
}

/* Machines without these tracepoints have the event of perf that comes before a fault is handled. */
SEC("perf_event")
int growth_fault(struct bpf_perf_event_data *ctx)
{
	return fault(ctx->addr);
}

/* The address of the fault that brought memory; each is taken once. */
static __always_inline __u64 take_address(void)
{
	__u32 tid = (__u32)bpf_get_current_pid_tgid();
	__u64 *at = bpf_map_lookup_elem(&growth_faults, &tid);
	__u64 address = at ? *at : 0;

	if (at)
		*at = 0;
	return address;
}

static __always_inline __u32 place_of(struct mm_struct *mm, __u64 address)
{
	struct mm_struct___places *places = (struct mm_struct___places *)mm;
	__u64 stack = places->start_stack;

	if (!address)
		return PLACE_UNKNOWN;
	if (address >= places->start_brk && address < places->brk)
		return PLACE_HEAP;
	if (address < stack + STACK_REACH && address + STACK_REACH > stack)
		return PLACE_STACK;
	return PLACE_MAPPED;
}

/* Counts pages that came for the stack that brought them. `is_whole`: they lie side by side. */
static __always_inline void count_growth(void *ctx, struct mm_struct *mm, __u64 pages, bool is_whole)
{
	struct growth_page page = { .pages = pages, .span = 1 };
	__u64 address = take_address();
	struct growth_sum *sum;
	__u64 bytes = config.arg; /* of a page */
	bool is_placed;

	page.key.place = place_of(mm, address);
	/* A large page lies at a multiple of its size. */
	if (is_whole && !(pages & (pages - 1))) {
		page.span = pages;
		bytes *= pages;
	}
	address &= ~(bytes - 1);
	/* One in so many is looked at. What another one brought to its address is gone. */
	if (config.number > 1 && bpf_get_prandom_u32() % config.number) {
		if (address)
			bpf_map_delete_elem(&growth_pages, &address);
		return;
	}
	if (!count_event())
		return;
	page.at = bpf_ktime_get_ns();
	page.key.image = current_image();
	page.key.chain = current_chain(ctx);
	page.key.functions = current_functions();
	/* Reading the memory of a program may fault as well. */
	take_address();
	bpf_get_current_comm(page.key.comm, sizeof(page.key.comm));
	is_placed = address && !bpf_map_update_elem(&growth_pages, &address, &page, BPF_ANY);
	sum = bpf_map_lookup_elem(&growth_sums, &page.key);
	if (!sum) {
		struct growth_sum zero = {};

		bpf_map_update_elem(&growth_sums, &page.key, &zero, BPF_NOEXIST);
		sum = bpf_map_lookup_elem(&growth_sums, &page.key);
	}
	if (!sum) {
		count_lost();
		return;
	}
	__sync_fetch_and_add(&sum->count, 1);
	__sync_fetch_and_add(&sum->pages, pages);
	if (!is_placed)
		__sync_fetch_and_add(&sum->unplaced, pages);
}

/* Pages came or went; `is_own`: by a thread of the process itself. */
static __always_inline void count_change(void *ctx, struct growth_cpu *cpu, struct mm_struct *mm, __s64 by,
					 bool is_own, bool is_whole)
{
	if (by < 0) {
		if (is_own)
			cpu->went += -by;
		else
			cpu->went_by_others += -by;
	} else if (by > 0 && !is_own) {
		cpu->came_by_others += by;
	} else if (by > 0) {
		cpu->came += by;
		if (wanted())
			count_growth(ctx, mm, by, is_whole);
	}
}

/*
 * Whether a change is one of the process. A process that forks, or begins another program, fills memory
 * that is not its own yet; when it ends, what it gives back is nobody's business any more.
 */
static __always_inline bool is_ours(struct growth_all *all, struct mm_struct *mm, bool is_own)
{
	struct task_struct *task = bpf_get_current_task_btf();

	return is_own ? (__u64)task->mm == (__u64)mm : all->mm == (__u64)mm;
}

/* What came, without what another CPU has counted already. */
static __always_inline __s64 counted_once(struct growth_cpu *cpu, __s64 by)
{
	__s64 twice = cpu->twice;

	if (by <= 0 || twice <= 0)
		return by;
	if (twice > by)
		twice = by;
	cpu->twice -= twice;
	return by - twice;
}

/* Since 6.2 the counters are kept for each CPU (f1a7941243c1), and each change is told. */
SEC("tp_btf/rss_stat")
int growth_changed(unsigned long long *ctx)
{
	struct mm_struct *mm = (struct mm_struct *)ctx[0];
	struct growth_cpu *cpu;
	struct growth_all *all;
	__u32 first = 0;
	bool is_own;
	__s64 by;

	if (!goes_on() || (__u32)ctx[1] != MM_ANONPAGES)
		return 0;
	all = bpf_map_lookup_elem(&growth_alls, &first);
	cpu = bpf_map_lookup_elem(&growth_cpus, &first);
	is_own = is_of_process();
	if (!all || !cpu || !is_ours(all, mm, is_own))
		return 0;
	by = changed_by(cpu, all, mm);
	count_change(ctx, cpu, mm, is_own ? counted_once(cpu, by) : by, is_own, cpu->has_offset);
	return 0;
}

/* Before, each thread tells of every 64th page or so, with what the count is then. */
SEC("tp_btf/rss_stat")
int growth_changed_old(unsigned long long *ctx)
{
	struct mm_struct *mm = (struct mm_struct *)ctx[0];
	__s64 count = (__s64)ctx[2];
	struct growth_cpu *cpu;
	struct growth_all *all;
	__u32 first = 0;
	bool is_own;

	if (!goes_on() || (__u32)ctx[1] != MM_ANONPAGES)
		return 0;
	all = bpf_map_lookup_elem(&growth_alls, &first);
	cpu = bpf_map_lookup_elem(&growth_cpus, &first);
	is_own = is_of_process();
	if (!all || !cpu || !is_ours(all, mm, is_own))
		return 0;
	if (all->mm != (__u64)mm) {
		all->mm = (__u64)mm;
		all->count = count;
		return 0;
	}
	count -= (__s64)__sync_lock_test_and_set(&all->count, count);
	count_change(ctx, cpu, mm, count, is_own, false);
	return 0;
}
