// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Rare events, one record each: OOM kills and signals that end a process. And the time
 * that tasks lose in reclaim and compaction, summed up. This source is dual licensed;
 * inside the kernel it runs under the GPL, which the helpers it calls ask for.
 */
#include "record.h"

char LICENSE[] SEC("license") = "GPL";

#define EVENT_RING_BYTES (64 * 1024)
#define STALLED_TASKS 2048
#define STALL_OWNERS 512

#define SIGILL 4
#define SIGABRT 6
#define SIGBUS 7
#define SIGFPE 8
#define SIGKILL 9
#define SIGSEGV 11
#define SIGNALS 64
#define SI_KERNEL 0x80
#define SEND_SIG_NOINFO 0UL
#define SEND_SIG_PRIV 1UL

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, EVENT_RING_BYTES);
} event_ring SEC(".maps");

struct {
	__u64 events_lost;
} globals;

/* When a task entered a stall. Least recently used ones go first: none stays for ever. */
struct stall_key {
	__u32 tid;
	__u32 kind;
};
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, STALLED_TASKS);
	__type(key, struct stall_key);
	__type(value, __u64);
} stall_starts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, STALL_KINDS);
	__type(key, __u32);
	__type(value, struct stall_hist);
} stall_hists SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, STALL_OWNERS);
	__type(key, struct stall_owner);
	__type(value, struct stall_sum);
} stall_owners SEC(".maps");

static __always_inline struct event_rec *new_event(__u32 kind, struct task_struct *victim)
{
	struct event_rec *e = bpf_ringbuf_reserve(&event_ring, sizeof(*e), 0);

	if (!e) {
		__sync_fetch_and_add(&globals.events_lost, 1);
		return 0;
	}
	__builtin_memset(e, 0, sizeof(*e));
	e->kind = kind;
	e->boottime = bpf_ktime_get_boot_ns();
	e->by_tgid = bpf_get_current_pid_tgid() >> 32;
	bpf_get_current_comm(e->by_comm, sizeof(e->by_comm));
	e->uid = ~0U;
	e->total_vm = e->rss_anon = e->rss_file = e->rss_shmem = e->swap = e->pgtables_bytes = NA;
	e->cgroups.unified = e->cgroups.cpu = e->cgroups.memory = NA;
	if (victim) {
		e->pid = victim->pid;
		e->tgid = victim->tgid;
		bpf_probe_read_kernel(e->comm, sizeof(e->comm), &victim->comm);
		read_cgroups(victim, &e->cgroups);
	}
	return e;
}

/* Since 6.8 the victim itself is passed (72ba14deb40a). */
SEC("tp_btf/mark_victim")
int oom_victim(unsigned long long *ctx)
{
	struct task_struct *victim = (struct task_struct *)ctx[0];
	struct mm_struct *mm = victim->mm;
	struct event_rec *e = new_event(EVENT_OOM, victim);

	if (!e)
		return 0;
	e->uid = (__u32)ctx[1];
	e->code = victim->signal->oom_score_adj;
	if (mm) {
		e->total_vm = mm->total_vm;
		e->pgtables_bytes = FIELD_OR_NA(mm, pgtables_bytes.counter);
		e->rss_anon = RSS_PAGES(mm, MM_ANONPAGES);
		e->rss_file = RSS_PAGES(mm, MM_FILEPAGES);
		e->rss_shmem = RSS_PAGES(mm, MM_SHMEMPAGES);
		e->swap = RSS_PAGES(mm, MM_SWAPENTS);
	}
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
	return 0;
}

/* Up to 6.7 only its pid. */
SEC("tp_btf/mark_victim")
int oom_victim_old(unsigned long long *ctx)
{
	struct event_rec *e = new_event(EVENT_OOM, 0);

	if (!e)
		return 0;
	e->pid = (__u32)ctx[0];
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
	return 0;
}

static __always_inline bool kills(int sig)
{
	return sig == SIGKILL || sig == SIGSEGV || sig == SIGBUS || sig == SIGABRT || sig == SIGILL ||
	       sig == SIGFPE;
}

/* Runtimes catch SIGSEGV on purpose, thousands of times: those kill nobody. */
static __always_inline bool is_caught(struct task_struct *task, int sig)
{
	/* Read as a number: the verifier allows no variable offset on a kernel pointer. */
	__u64 sighand = (__u64)BPF_CORE_READ(task, sighand);
	sighandler handler = 0;
	__u64 offset = bpf_core_field_offset(struct sighand_struct, action) +
		       (sig - 1) * (__u64)bpf_core_type_size(struct k_sigaction) +
		       bpf_core_field_offset(struct k_sigaction, sa.sa_handler);

	if (sig == SIGKILL || !sighand)
		return false;
	bpf_probe_read_kernel(&handler, sizeof(handler), (void *)(sighand + offset));
	return handler != 0;
}

SEC("tp_btf/signal_generate")
int signal_generated(unsigned long long *ctx)
{
	int sig = (int)ctx[0];
	struct kernel_siginfo *info = (struct kernel_siginfo *)ctx[1];
	struct task_struct *task = (struct task_struct *)ctx[2];
	struct event_rec *e;

	if (!kills(sig) || is_caught(task, sig))
		return 0;
	e = new_event(EVENT_SIGNAL, task);
	if (!e)
		return 0;
	e->signal = sig;
	e->result = (__u32)ctx[4];
	if ((unsigned long)info == SEND_SIG_PRIV) {
		e->code = SI_KERNEL;
	} else if ((unsigned long)info != SEND_SIG_NOINFO) {
		e->code = info->si_code;
		/* Positive codes come from the kernel; only then is there a faulting address. */
		if (e->code > 0 && e->code != SI_KERNEL)
			e->addr = (__u64)info->_sifields._sigfault._addr;
	}
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
	return 0;
}

static __always_inline int stall_begin(__u32 kind)
{
	struct stall_key key = { .tid = (__u32)bpf_get_current_pid_tgid(), .kind = kind };
	__u64 now = bpf_ktime_get_ns();

	bpf_map_update_elem(&stall_starts, &key, &now, BPF_ANY);
	return 0;
}

static __always_inline void charge_owner(__u32 kind, __u64 ns)
{
	struct stall_owner owner = { .tgid = bpf_get_current_pid_tgid() >> 32, .kind = kind };
	struct stall_sum *sum = bpf_map_lookup_elem(&stall_owners, &owner);

	if (!sum) {
		struct stall_sum first = {};

		bpf_get_current_comm(first.comm, sizeof(first.comm));
		bpf_map_update_elem(&stall_owners, &owner, &first, BPF_NOEXIST);
		sum = bpf_map_lookup_elem(&stall_owners, &owner);
	}
	if (sum) {
		__sync_fetch_and_add(&sum->count, 1);
		__sync_fetch_and_add(&sum->total, ns);
	}
}

static __always_inline int stall_end(__u32 kind, __u64 reclaimed)
{
	struct stall_key key = { .tid = (__u32)bpf_get_current_pid_tgid(), .kind = kind };
	__u64 *start = bpf_map_lookup_elem(&stall_starts, &key);
	struct stall_hist *h;
	__u32 bucket;
	__u64 ns;

	if (!start)
		return 0;
	ns = bpf_ktime_get_ns() - *start;
	bpf_map_delete_elem(&stall_starts, &key);
	charge_owner(kind, ns);
	h = bpf_map_lookup_elem(&stall_hists, &kind);
	if (!h)
		return 0;
	h->count += 1;
	h->total += ns;
	h->reclaimed += reclaimed;
	bucket = log2_bucket((ns + 999) / 1000, 4, LATENCY_BUCKETS - 1);
	if (bucket < LATENCY_BUCKETS)
		h->latency[bucket] += 1;
	return 0;
}

SEC("tp_btf/mm_vmscan_direct_reclaim_begin")
int direct_begin(unsigned long long *ctx)
{
	return stall_begin(STALL_DIRECT);
}

SEC("tp_btf/mm_vmscan_direct_reclaim_end")
int direct_end(unsigned long long *ctx)
{
	return stall_end(STALL_DIRECT, ctx[0]);
}

SEC("tp_btf/mm_vmscan_memcg_reclaim_begin")
int memcg_begin(unsigned long long *ctx)
{
	return stall_begin(STALL_MEMCG);
}

SEC("tp_btf/mm_vmscan_memcg_reclaim_end")
int memcg_end(unsigned long long *ctx)
{
	return stall_end(STALL_MEMCG, ctx[0]);
}

/* kcompactd compacts too, and nobody waits for it. */
static __always_inline bool in_kernel_thread(void)
{
	struct task_struct *self = (void *)bpf_get_current_task();

	return BPF_CORE_READ(self, flags) & PF_KTHREAD;
}

SEC("tp_btf/mm_compaction_begin")
int compaction_begin(unsigned long long *ctx)
{
	return in_kernel_thread() ? 0 : stall_begin(STALL_COMPACTION);
}

SEC("tp_btf/mm_compaction_end")
int compaction_end(unsigned long long *ctx)
{
	return in_kernel_thread() ? 0 : stall_end(STALL_COMPACTION, 0);
}
