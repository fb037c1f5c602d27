// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Who starts processes and threads, how long the call takes against the memory of the caller,
 * which programs that are, and how long they live. This source is dual licensed; inside the
 * kernel it runs under the GPL, which the helpers it calls ask for.
 */
#include "calls.h"
#include "clock.h"

char LICENSE[] SEC("license") = "GPL";

#define FORK_SUMS 2048
#define PROGRAMS 4096
#define FILE_BYTES 72

/* Classes. */
#define CALL_FORK 1
#define CALL_VFORK 2
#define CALL_CLONE 3
#define CALL_CLONE3 4

#define CLONE_VM 0x00000100
#define CLONE_VFORK 0x00004000
#define CLONE_THREAD 0x00010000

enum fork_kind {
	FORK_COPY = 0,   /* the address space is copied */
	FORK_SHARED = 1, /* the child runs in ours until it executes a program, and we wait */
	FORK_THREAD = 2,
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct linux_binprm {
	const char *filename;
};
struct mm_struct___maps {
	int map_count;
};

#pragma clang attribute pop

struct fork_key {
	__u32 tgid;
	__u32 kind;
};
struct fork_sum {
	struct times times;
	__u64 failed;
	/* As it was at the last call. */
	__u64 rss_pages;
	__u64 pgtables_bytes;
	__u64 maps;
};
_Static_assert(sizeof(struct fork_sum) == 296, "twin: src/capture/kinds/fork.rs");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, FORK_SUMS);
	__type(key, struct fork_key);
	__type(value, struct fork_sum);
} fork_sums SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct fork_sum);
} fork_first SEC(".maps");

struct forking {
	__u64 at;
	__u64 kind;
};
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct forking);
} forking SEC(".maps");

struct program_key {
	__u32 parent;
	char comm[16];
};
struct program_sum {
	__u64 execs;
	__u64 exits;
	/* Exits by a signal or with a status other than 0. */
	__u64 failures;
	__u64 life_total;
	__u64 life_max;
	__u64 cpu_total;
	__u32 last_pid;
	__u32 pad;
	char parent_comm[16];
	char file[FILE_BYTES];
};
_Static_assert(sizeof(struct program_key) == 20, "twin: src/capture/kinds/fork.rs");
_Static_assert(sizeof(struct program_sum) == 144, "twin: src/capture/kinds/fork.rs");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PROGRAMS);
	__type(key, struct program_key);
	__type(value, struct program_sum);
} programs SEC(".maps");

struct clock_gap clock;

static __always_inline __u32 kind_of(struct pt_regs *regs, __u8 class)
{
	/* Read here and not in the branches, which the compiler would join at one load of two
	 * kinds of pointers. */
	__u64 first = call_arg(regs, 0);
	__u64 flags = 0;

	barrier_var(first);
	switch (class) {
	case CALL_VFORK:
		return FORK_SHARED;
	case CALL_CLONE:
		flags = first;
		break;
	case CALL_CLONE3:
		/* The flags are the first field of struct clone_args. */
		bpf_probe_read_user(&flags, sizeof(flags), (void *)first);
		break;
	default:
		return FORK_COPY;
	}
	if (flags & CLONE_THREAD)
		return FORK_THREAD;
	return flags & (CLONE_VM | CLONE_VFORK) ? FORK_SHARED : FORK_COPY;
}

SEC("tp_btf/sys_enter")
int fork_entered(unsigned long long *ctx)
{
	struct pt_regs *regs = (struct pt_regs *)ctx[0];
	__u8 class = class_of((long)ctx[1]);
	struct forking *f;

	if (!goes_on() || !class || !wanted() || is_compat(regs))
		return 0;
	f = bpf_task_storage_get(&forking, bpf_get_current_task_btf(), 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!f) {
		count_lost();
		return 0;
	}
	f->kind = kind_of(regs, class);
	f->at = bpf_ktime_get_ns();
	return 0;
}

static __always_inline void measure(struct fork_sum *sum)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct mm_struct *mm = task->mm;

	if (!mm)
		return;
	sum->rss_pages = RSS_PAGES(mm, MM_ANONPAGES) + RSS_PAGES(mm, MM_FILEPAGES) + RSS_PAGES(mm, MM_SHMEMPAGES);
	sum->pgtables_bytes = FIELD_OR_NA(mm, pgtables_bytes.counter);
	sum->maps = ((struct mm_struct___maps *)mm)->map_count;
}

SEC("tp_btf/sys_exit")
int fork_left(unsigned long long *ctx)
{
	struct pt_regs *regs = (struct pt_regs *)ctx[0];
	struct fork_key key = { .tgid = current_tgid() };
	struct task_struct *task = bpf_get_current_task_btf();
	struct fork_sum *sum;
	struct forking *f;
	__u64 ns;

	if (!goes_on() || !class_of(call_number(regs)) || !wanted())
		return 0;
	/* A new thread is on its CPU for the first time: nothing says better when it got it. */
	learn_clock_gap(&clock, bpf_ktime_get_ns(), task->sched_info.last_arrival);
	/* The child leaves the call too, and has entered none. */
	f = bpf_task_storage_get(&forking, task, 0, 0);
	if (!f || !f->at)
		return 0;
	ns = bpf_ktime_get_ns() - f->at;
	f->at = 0;
	if (ns < config.min_ns || !count_event())
		return 0;
	key.kind = f->kind;
	sum = times_of(&fork_sums, &fork_first, &key, task);
	if (!sum) {
		count_lost();
		return 0;
	}
	add_time(&sum->times, ns);
	if ((long)ctx[1] < 0)
		__sync_fetch_and_add(&sum->failed, 1);
	measure(sum);
	return 0;
}

/* Of the parent the first thread's name: one that forks may bear another. */
static __always_inline struct program_sum *program_sum(struct task_struct *task, struct task_struct *parent)
{
	struct program_key key = { .parent = parent->tgid };
	struct program_sum *sum;

	process_comm(key.comm, task);
	sum = bpf_map_lookup_elem(&programs, &key);
	if (!sum) {
		struct program_sum fresh = {};

		bpf_probe_read_kernel(fresh.parent_comm, sizeof(fresh.parent_comm), &parent->comm);
		bpf_map_update_elem(&programs, &key, &fresh, BPF_NOEXIST);
		sum = bpf_map_lookup_elem(&programs, &key);
	}
	if (!sum)
		count_lost();
	return sum;
}

/* Of one process the programs are those that it starts. */
static __always_inline bool starts_are_wanted(struct task_struct *parent)
{
	return wanted() || (config.tgid && (__u32)parent->tgid == config.tgid);
}

SEC("tp_btf/sched_process_exec")
int program_started(unsigned long long *ctx)
{
	struct task_struct *task = (struct task_struct *)ctx[0];
	struct linux_binprm *program = (struct linux_binprm *)ctx[2];
	struct task_struct *parent = task->real_parent->group_leader;
	struct program_sum *sum;

	if (!goes_on() || !starts_are_wanted(parent) || !count_event())
		return 0;
	sum = program_sum(task, parent);
	if (!sum)
		return 0;
	if (!__sync_fetch_and_add(&sum->execs, 1))
		bpf_probe_read_kernel_str(sum->file, sizeof(sum->file), program->filename);
	sum->last_pid = task->tgid;
	return 0;
}

static __always_inline int ended(struct task_struct *task)
{
	struct task_struct *parent = task->real_parent->group_leader;
	struct signal_struct *signal = task->signal;
	struct program_sum *sum;
	int code = signal->flags & SIGNAL_GROUP_EXIT ? signal->group_exit_code : task->exit_code;
	__u64 life, now;

	if (task->flags & PF_KTHREAD || !starts_are_wanted(parent) || !count_event())
		return 0;
	sum = program_sum(task, parent);
	if (!sum)
		return 0;
	now = bpf_ktime_get_boot_ns();
	life = task->group_leader->start_boottime;
	life = now > life ? now - life : 0;
	__sync_fetch_and_add(&sum->exits, 1);
	if (code)
		__sync_fetch_and_add(&sum->failures, 1);
	__sync_fetch_and_add(&sum->life_total, life);
	raise_to(&sum->life_max, life);
	__sync_fetch_and_add(&sum->cpu_total, running_cpu_time(&clock, task) + group_cpu_time(task));
	sum->last_pid = task->tgid;
	return 0;
}

/* Since 6.16 the tracepoint says whether this was the last thread. */
SEC("tp_btf/sched_process_exit")
int program_ended(unsigned long long *ctx)
{
	return goes_on() && (bool)ctx[1] ? ended((struct task_struct *)ctx[0]) : 0;
}

SEC("tp_btf/sched_process_exit")
int program_ended_old(unsigned long long *ctx)
{
	struct task_struct *task = (struct task_struct *)ctx[0];

	return goes_on() && task->signal->live.counter == 0 ? ended(task) : 0;
}
