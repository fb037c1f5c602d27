// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Tasks that live, by iter/task once a second, and tasks that end, by sched_process_exit.
 * This source is dual licensed; inside the kernel it runs under the GPL, which the
 * helpers it calls ask for.
 */
#include "clock.h"
#include "record.h"

char LICENSE[] SEC("license") = "GPL";

#define STACK_FRAMES 16
#define EXIT_RING_BYTES (512 * 1024)
#define EXIT_SUMS 1024
#define SEEN_SLOTS 16384
/* So many passes apart it is looked at what others have changed of a task that sleeps. */
#define OTHERS_EVERY 8
/* What the scheduler's clocks of two CPUs may be apart: unstable ones are held to a tick. */
#define CLOCK_SLACK_NS 20000000ULL

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, EXIT_RING_BYTES);
} exit_ring SEC(".maps");

/* What the ring had no room for: nothing is lost but the detail. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, EXIT_SUMS);
	__type(key, struct exit_key);
	__type(value, struct exit_sum);
} exit_sums SEC(".maps");

struct {
	/* Neither ring nor sums had room. */
	__u64 exits_lost;
	struct clock_gap clock;
	/* When the reader got its CPU for this pass and for the one before. */
	__u64 pass_ns;
	__u64 last_pass_ns;
	__u32 pass;
	__u32 pad;
} globals;

/*
 * Set by user space: send every task whole (bit 0), look at the files of every leader (bit
 * 1), look at what others have changed of every task that sleeps (bit 2). In a map of its
 * own, to be written alone.
 */
#define ASK_WHOLE 1
#define ASK_FILES 2
#define ASK_OTHERS 4
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} send_whole SEC(".maps");

/* A task as it was sent last, by tid; two that share a slot cost a record. */
struct seen_task {
	__u32 tid;
	__u32 state;
	__u32 running_pass; /* the last pass that saw it on a CPU */
	__u32 others_hash;  /* what others can change of it */
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SEEN_SLOTS);
	__type(key, __u32);
	__type(value, struct seen_task);
} seen_tasks SEC(".maps");

/* The record of the task that the pass is at: beside the stack, which has no room for it. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct task_rec);
} task_record SEC(".maps");

static __always_inline void read_delays(struct task_struct *task, struct delays *to, __u32 *flags)
{
	struct task_delay_info *d = 0;

	to->blkio = to->swapin = to->reclaim = to->thrashing = NA;
	to->compaction = to->wpcopy = to->irq = NA;
	if (bpf_core_field_exists(task->delays))
		d = task->delays;
	if (!d)
		return;
	*flags |= TASK_F_HAS_DELAYS;
	to->blkio = d->blkio_delay;
	to->swapin = d->swapin_delay;
	to->reclaim = d->freepages_delay;
	to->thrashing = d->thrashing_delay;
	to->compaction = FIELD_OR_NA(d, compact_delay);
	to->wpcopy = FIELD_OR_NA(d, wpcopy_delay);
	/* Without CONFIG_IRQ_TIME_ACCOUNTING the field is there and nothing ever adds to it. */
	if (bpf_core_field_exists(((struct rq *)0)->prev_irq_time))
		to->irq = FIELD_OR_NA(d, irq_delay);
}

static __always_inline void read_io(struct task_struct *task, struct task_io_accounting_copy *to)
{
	to->rchar = FIELD_OR_NA(task, ioac.rchar);
	to->wchar = FIELD_OR_NA(task, ioac.wchar);
	to->syscr = FIELD_OR_NA(task, ioac.syscr);
	to->syscw = FIELD_OR_NA(task, ioac.syscw);
	to->read_bytes = FIELD_OR_NA(task, ioac.read_bytes);
	to->write_bytes = FIELD_OR_NA(task, ioac.write_bytes);
	to->cancelled_write_bytes = FIELD_OR_NA(task, ioac.cancelled_write_bytes);
}

static __always_inline __u32 task_state(struct task_struct *task)
{
	if (bpf_core_field_exists(task->__state))
		return task->__state;
	return ((struct task_struct___state *)task)->state;
}

static __always_inline __u32 task_cpu(struct task_struct *task)
{
	if (bpf_core_field_exists(task->thread_info.cpu))
		return task->thread_info.cpu;
	if (bpf_core_field_exists(((struct task_struct___cpu *)0)->cpu))
		return ((struct task_struct___cpu *)task)->cpu;
	return 0;
}

static __always_inline void read_group(struct task_struct *task, struct task_rec *r)
{
	struct signal_struct *signal = task->signal;

	r->num_threads = signal->nr_threads;
	r->dead_utime = signal->utime;
	r->dead_stime = signal->stime;
	r->dead_sum_exec_runtime = signal->sum_sched_runtime;
}

/* rss lives in the mm, which all threads share: only the leader carries it. */
static __always_inline void read_memory(struct task_struct *task, struct task_rec *r)
{
	struct mm_struct *mm = task->mm;

	r->rss_anon = r->rss_file = r->rss_shmem = r->swap = 0;
	if (!mm || r->tid != r->tgid)
		return;
	r->flags |= TASK_F_HAS_MM;
	r->rss_anon = RSS_PAGES(mm, MM_ANONPAGES);
	r->rss_file = RSS_PAGES(mm, MM_FILEPAGES);
	r->rss_shmem = RSS_PAGES(mm, MM_SHMEMPAGES);
	r->swap = RSS_PAGES(mm, MM_SWAPENTS);
}

/* Fills what others can change of a task while it sleeps, and what tells it from others. */
static __always_inline void fill_others(struct task_struct *task, struct task_rec *r, __u32 state)
{
	__builtin_memset(r, 0, __builtin_offsetof(struct task_rec, utime));
	r->tid = task->pid;
	r->tgid = task->tgid;
	r->ppid = task->real_parent->tgid;
	bpf_probe_read_kernel(r->comm, sizeof(r->comm), &task->comm);
	r->state = state;
	r->exit_state = task->exit_state;
	r->nr_cpus_allowed = task->nr_cpus_allowed;
	r->cpus_allowed = task->cpus_ptr->bits[0];
	r->policy = task->policy;
	r->nice = task->static_prio - 120;
	r->rt_priority = task->rt_priority;
	read_cgroups(task, &r->cgroups);
	if (task->flags & PF_KTHREAD)
		r->flags |= TASK_F_KTHREAD;
	if (r->tid == r->tgid)
		r->flags |= TASK_F_LEADER;
	read_memory(task, r);
}

/* Fills what only the task itself changes. */
static __always_inline void fill_own(struct task_struct *task, struct task_rec *r)
{
	r->start_boottime = task->start_boottime;
	r->cpu = task_cpu(task);
	r->utime = task->utime;
	r->stime = task->stime;
	r->sum_exec_runtime = task->se.sum_exec_runtime;
	r->run_delay = FIELD_OR_NA(task, sched_info.run_delay);
	r->nvcsw = task->nvcsw;
	r->nivcsw = task->nivcsw;
	r->min_flt = task->min_flt;
	r->maj_flt = task->maj_flt;
	read_io(task, &r->io);
	read_delays(task, &r->delays, &r->flags);
	if (BPF_CORE_READ_BITFIELD(task, in_iowait))
		r->flags |= TASK_F_IN_IOWAIT;
	r->dead_utime = r->dead_stime = r->dead_sum_exec_runtime = 0;
	r->fds = r->fd_limit = 0;
}

#define BITS_PER_WORD 64
/*
 * Descriptors are counted one by one up to 16,384, and beyond in groups of 64 that are full, up
 * to 1,048,576: there a bit of the one bitmap stands for a word of the other.
 */
#define WORDS_MAX 256

static __always_inline __u32 least(__u32 a, __u32 b)
{
	return a < b ? a : b;
}

/*
 * Bits set in one of the two bitmaps of a table of descriptors, by its address. A function of its own: its caller's stack is
 * nearly full, and it may have no more than 32 bytes itself. And not a static one: the verifier looks at it once then, and not
 * again for each way that leads here, which took 920,000 of the 1,000,000 instructions that Linux 6.1 is willing to follow.
 */
__attribute__((noinline)) __u32 count_bits(__u64 table, __u32 of_groups)
{
	struct fdtable *t = (struct fdtable *)table;
	__u32 words = BPF_CORE_READ(t, max_fds) / BITS_PER_WORD;
	__u32 first = of_groups ? WORDS_MAX / BITS_PER_WORD : 0;
	__u32 end = least(of_groups ? words / BITS_PER_WORD : words, WORDS_MAX);
	__u64 bitmap = of_groups ? (__u64)BPF_CORE_READ(t, full_fds_bits) : (__u64)BPF_CORE_READ(t, open_fds);
	__u32 sum = 0;

#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < WORDS_MAX; i++) {
		__u64 word = 0;

		if (first + i >= end)
			break;
		if (bpf_probe_read_kernel(&word, sizeof(word), (void *)(bitmap + (first + i) * sizeof(word))))
			break;
		sum += __builtin_popcountll(word);
	}
	return sum;
}

/* The address as a number, which a function that is not static wants. */
static __always_inline __u32 count_fds(struct files_struct *files)
{
	__u64 table = 0;

	bpf_core_read(&table, sizeof(table), &files->fdt);
	return count_bits(table, 0) + BITS_PER_WORD * count_bits(table, 1);
}

static __always_inline __u32 soft_fd_limit(struct signal_struct *signal)
{
	unsigned long limit = signal->rlim[RLIMIT_NOFILE].rlim_cur;

	return limit >= ~0U ? ~0U : limit;
}

/* A kernel thread has none of its own; what a process that ends had is gone already. */
static __always_inline void read_files(struct task_struct *task, struct task_rec *r)
{
	struct files_struct *files = task->files;
	struct nsproxy *spaces = task->nsproxy;

	if (!files || !spaces || (task->flags & PF_KTHREAD))
		return;
	r->flags |= TASK_F_HAS_FILES;
	r->fds = count_fds(files);
	r->fd_limit = soft_fd_limit(task->signal);
	r->netns = spaces->net_ns->ns.inum;
}

/* Not zero: there was no room. */
static __always_inline long write_stack(struct seq_file *seq, struct task_struct *task)
{
	__u64 frames[STACK_FRAMES] = {};
	long bytes = bpf_get_task_stack(task, frames, sizeof(frames), 0);

	for (int i = 0; i < STACK_FRAMES; i++) {
		if (i * (long)sizeof(__u64) >= bytes)
			break;
		bpf_seq_printf(seq, "%ps;", sizeof("%ps;"), &frames[i], sizeof(frames[i]));
	}
	return bpf_seq_write(seq, "\n", 1);
}

static __always_inline void begin_pass(void)
{
	struct task_struct *self = (void *)bpf_get_current_task();
	__u64 arrived = BPF_CORE_READ(self, sched_info.last_arrival);

	learn_clock_gap(&globals.clock, bpf_ktime_get_ns(), arrived);
	globals.last_pass_ns = globals.pass_ns;
	globals.pass_ns = arrived;
	globals.pass += 1;
}

static __always_inline struct seen_task *seen_before(struct task_struct *task)
{
	__u32 slot = (__u32)task->pid % SEEN_SLOTS;

	return bpf_map_lookup_elem(&seen_tasks, &slot);
}

/*
 * Whether the task has run since the last pass came by, or may have. It has not, if it got
 * a CPU for the last time before that pass began, did not hold one as the pass came by, and
 * is neither on one now nor waiting for one.
 */
static __always_inline bool may_have_run(struct task_struct *task, bool is_running, __u32 running_pass)
{
	__u64 arrived;

	if (!bpf_core_field_exists(task->on_cpu) || !bpf_core_field_exists(task->sched_info.last_arrival))
		return true;
	arrived = task->sched_info.last_arrival;
	return is_running || running_pass == globals.pass - 1 || !arrived ||
	       arrived + CLOCK_SLACK_NS >= globals.last_pass_ns;
}

static __always_inline __u64 mixed(__u64 hash, __u64 value)
{
	hash = (hash ^ value) * 0x9E3779B97F4A7C15ULL;
	return hash ^ hash >> 32;
}

/*
 * Of what others can change while a task sleeps: its memory (reclaim, a tracer, its
 * hypervisor), parent, name, priority, CPUs, cgroups. Up to `utime` the record is filled.
 */
static __always_inline __u32 hash_others(struct task_rec *r)
{
	__u64 *comm = (__u64 *)r->comm;
	__u64 hash = mixed(r->exit_state, (__u64)r->ppid << 32 | r->flags);

	hash = mixed(hash, comm[0]);
	hash = mixed(hash, comm[1]);
	hash = mixed(hash, r->cpus_allowed);
	hash = mixed(hash, (__u64)r->nr_cpus_allowed << 32 | r->rt_priority);
	hash = mixed(hash, (__u64)r->policy << 32 | (__u16)r->nice);
	hash = mixed(hash, r->cgroups.unified);
	hash = mixed(hash, r->cgroups.cpu);
	hash = mixed(hash, r->cgroups.memory);
	hash = mixed(hash, (__u64)r->rss_anon << 32 | r->rss_file);
	return mixed(hash, (__u64)r->rss_shmem << 32 | r->swap);
}

/* On a ring of the process' list head and its threads: no look at the process needed. */
static __always_inline bool has_one_thread(struct task_struct *task)
{
	return task->thread_node.next == task->thread_node.prev;
}

static __always_inline __u64 asked_for(void)
{
	__u32 first = 0;
	__u64 *asked = bpf_map_lookup_elem(&send_whole, &first);

	return asked ? *asked : ASK_WHOLE | ASK_FILES;
}

/* The other threads change the memory and the sums of a process while its leader sleeps. */
static __always_inline bool may_be_still(struct task_struct *task, bool has_run, __u64 asked)
{
	if (has_run || (asked & ASK_WHOLE))
		return false;
	return task->pid != task->tgid || has_one_thread(task);
}

/*
 * Whether the descriptors may be others than at the last pass. What shares the table without
 * being a thread (CLONE_FILES alone) is seen by the passes that ask for everybody's.
 */
static __always_inline bool files_may_differ(struct task_struct *task, bool has_run, __u64 asked)
{
	return has_run || (asked & ASK_FILES) || !has_one_thread(task);
}

static __always_inline bool is_stuck(__u32 state)
{
	/* Idle kernel threads wait uninterruptibly too, and frozen tasks are not stuck. */
	return (state & TASK_UNINTERRUPTIBLE) && !(state & (TASK_NOLOAD | TASK_FROZEN));
}

SEC("iter/task")
int task_pass(struct bpf_iter__task *ctx)
{
	struct bpf_iter_meta *meta = ctx->meta;
	struct seq_file *seq = meta->seq;
	struct task_struct *task = ctx->task;
	struct task_rec *r;
	struct seen_task *seen;
	__u64 asked;
	__u32 state, others_hash, first = 0;
	bool is_running, has_run, may_be_kept;

	if (!task)
		return 0;
	if (meta->seq_num == 0)
		begin_pass();

	r = bpf_map_lookup_elem(&task_record, &first);
	seen = seen_before(task);
	if (!r || !seen)
		return 0;
	state = task_state(task);
	asked = asked_for();
	is_running = state == TASK_RUNNING || (bpf_core_field_exists(task->on_cpu) && task->on_cpu);
	has_run = may_have_run(task, is_running, seen->running_pass);
	may_be_kept = may_be_still(task, has_run, asked) && !is_stuck(state) && seen->tid == (__u32)task->pid &&
		      seen->state == state;
	others_hash = seen->others_hash;
	/* Few cache lines up to here: each one of a task that slept for a second costs a miss. */
	if (!may_be_kept || (asked & ASK_OTHERS) || (task->pid + globals.pass) % OTHERS_EVERY == 0) {
		fill_others(task, r, state);
		others_hash = hash_others(r);
	}
	if (may_be_kept && others_hash == seen->others_hash) {
		/* The front of a record is that of a still_rec. */
		r->tid = task->pid;
		r->tgid = task->tgid;
		r->ppid = state;
		r->flags = TASK_F_STILL;
		bpf_seq_write(seq, r, sizeof(struct still_rec));
		return 0;
	}
	fill_own(task, r);
	if (r->tid == r->tgid) {
		read_group(task, r);
		if (files_may_differ(task, has_run, asked))
			read_files(task, r);
	}
	if (is_stuck(state))
		r->flags |= TASK_F_HAS_STACK;
	/* What found no room in the buffer comes by once more, and is looked at anew. */
	if (bpf_seq_write(seq, r, sizeof(*r)))
		return 0;
	if (is_stuck(state) && write_stack(seq, task))
		return 0;
	if (is_running)
		seen->running_pass = globals.pass;
	seen->tid = r->tid;
	seen->state = state;
	seen->others_hash = others_hash;
	return 0;
}

/*
 * Adds the threads that were reaped before. A leader that ended first stays a zombie
 * until the last thread ends, and is in neither.
 */
static __always_inline void add_group(struct exit_rec *e, struct task_struct *task,
				      struct task_struct *leader)
{
	struct signal_struct *s = task->signal;

	e->cpu_time += group_cpu_time(task);
	e->utime += s->utime;
	e->stime += s->stime;
	e->nvcsw += s->nvcsw;
	e->nivcsw += s->nivcsw;
	e->min_flt += s->min_flt;
	e->maj_flt += s->maj_flt;
	if (bpf_core_field_exists(s->ioac.read_bytes)) {
		e->read_bytes += s->ioac.read_bytes;
		e->write_bytes += s->ioac.write_bytes;
	}
	if (leader == task)
		return;
	e->utime += leader->utime;
	e->stime += leader->stime;
	e->nvcsw += leader->nvcsw;
	e->nivcsw += leader->nivcsw;
	e->min_flt += leader->min_flt;
	e->maj_flt += leader->maj_flt;
	if (bpf_core_field_exists(leader->ioac.read_bytes)) {
		e->read_bytes += leader->ioac.read_bytes;
		e->write_bytes += leader->ioac.write_bytes;
	}
}

static __always_inline void fill_exit(struct exit_rec *e, struct task_struct *task, bool group_dead)
{
	struct task_struct *leader = task->group_leader;
	/* The thread that forked may bear another name than its process. */
	struct task_struct *parent = task->real_parent->group_leader;
	struct signal_struct *signal = task->signal;

	e->tid = task->pid;
	e->tgid = task->tgid;
	e->ppid = parent->tgid;
	e->flags = group_dead ? TASK_F_GROUP_DEAD : 0;
	if (e->tid == e->tgid)
		e->flags |= TASK_F_LEADER;
	if (task->flags & PF_KTHREAD)
		e->flags |= TASK_F_KTHREAD;
	e->start_boottime = task->start_boottime;
	e->leader_start_boottime = leader->start_boottime;
	e->end_boottime = bpf_ktime_get_boot_ns();
	bpf_probe_read_kernel(e->comm, sizeof(e->comm), &task->comm);
	bpf_probe_read_kernel(e->leader_comm, sizeof(e->leader_comm), &leader->comm);
	bpf_probe_read_kernel(e->parent_comm, sizeof(e->parent_comm), &parent->comm);
	e->exit_code = signal->flags & SIGNAL_GROUP_EXIT ? signal->group_exit_code : task->exit_code;
	e->pad = 0;
	e->cpu_time = running_cpu_time(&globals.clock, task);
	e->utime = task->utime;
	e->stime = task->stime;
	e->run_delay = FIELD_OR_NA(task, sched_info.run_delay);
	e->nvcsw = task->nvcsw;
	e->nivcsw = task->nivcsw;
	e->min_flt = task->min_flt;
	e->maj_flt = task->maj_flt;
	e->read_bytes = FIELD_OR_NA(task, ioac.read_bytes);
	e->write_bytes = FIELD_OR_NA(task, ioac.write_bytes);
	read_delays(task, &e->delays, &e->flags);
	read_cgroups(task, &e->cgroups);
	if (group_dead)
		add_group(e, task, leader);
}

static __always_inline void sum_exit(struct task_struct *task, bool group_dead)
{
	struct task_struct *parent = task->real_parent->group_leader;
	struct exit_key key = {};
	struct exit_sum zero = {};
	struct exit_sum *sum;

	key.ppid = parent->tgid;
	bpf_probe_read_kernel(key.comm, sizeof(key.comm), &task->comm);
	bpf_probe_read_kernel(key.parent_comm, sizeof(key.parent_comm), &parent->comm);
	sum = bpf_map_lookup_elem(&exit_sums, &key);
	if (!sum) {
		bpf_map_update_elem(&exit_sums, &key, &zero, BPF_NOEXIST);
		sum = bpf_map_lookup_elem(&exit_sums, &key);
	}
	if (!sum) {
		__sync_fetch_and_add(&globals.exits_lost, 1);
		return;
	}
	__sync_fetch_and_add(group_dead ? &sum->processes : &sum->threads, 1);
	__sync_fetch_and_add(&sum->cpu_time, running_cpu_time(&globals.clock, task));
	__sync_fetch_and_add(&sum->min_flt, task->min_flt);
	__sync_fetch_and_add(&sum->maj_flt, task->maj_flt);
	if (bpf_core_field_exists(task->sched_info.run_delay))
		__sync_fetch_and_add(&sum->run_delay, task->sched_info.run_delay);
	if (bpf_core_field_exists(task->ioac.read_bytes)) {
		__sync_fetch_and_add(&sum->read_bytes, task->ioac.read_bytes);
		__sync_fetch_and_add(&sum->write_bytes, task->ioac.write_bytes);
	}
}

/* No wake-up: user space drains the ring once per tick, however many end. */
static __always_inline int on_exit(struct task_struct *task, bool group_dead)
{
	struct exit_rec *e = bpf_ringbuf_reserve(&exit_ring, sizeof(*e), 0);

	if (!e) {
		sum_exit(task, group_dead);
		return 0;
	}
	fill_exit(e, task, group_dead);
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
	return 0;
}

/* Since 6.16 the tracepoint says whether this was the last thread. */
SEC("tp_btf/sched_process_exit")
int process_exit(unsigned long long *ctx)
{
	return on_exit((struct task_struct *)ctx[0], (bool)ctx[1]);
}

/*
 * Up to 6.15 the count of live threads has to tell. Two last threads that end in the same
 * instant may both see zero; user space drops the second by (tgid, start).
 */
SEC("tp_btf/sched_process_exit")
int process_exit_old(unsigned long long *ctx)
{
	struct task_struct *task = (struct task_struct *)ctx[0];

	return on_exit(task, task->signal->live.counter == 0);
}
