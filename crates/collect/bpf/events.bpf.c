// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Rare events, one record each: OOM kills and signals that end a process. And the time
 * that tasks lose in reclaim, in compaction and for locks, summed up. This source is dual licensed;
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

/* What a task sleeps for, by tid; two that share a slot cost the wait of one of them. */
#define LOCK_SLOTS 4096
#define LOCK_OWNERS 256
/* Shorter waits are how locks work. */
#define LOCK_WAIT_NS_MIN 1000000ULL
/* include/trace/events/lock.h: it spins, which is CPU time. */
#define LCB_F_SPIN 1

struct lock_slot {
	__u64 lock;
	__u64 start;
	__u64 tid;
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, LOCK_SLOTS);
	__type(key, __u32);
	__type(value, struct lock_slot);
} lock_slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, LOCK_OWNERS);
	__type(key, struct lock_owner);
	__type(value, struct lock_sum);
} lock_owners SEC(".maps");

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
		/* Since 7.x what may be no pointer is a number to the verifier. */
		e->code = BPF_CORE_READ(info, si_code);
		/*
		 * Positive codes come from the kernel; only then is there a faulting address. Up to 6.1 the verifier takes
		 * a union for the first of its members, and refuses what lies beyond the end of that.
		 */
		if (e->code > 0 && e->code != SI_KERNEL)
			bpf_core_read(&e->addr, sizeof(e->addr), &info->_sifields._sigfault._addr);
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

static __always_inline int count_stall(__u32 kind, __u64 ns, __u64 reclaimed)
{
	struct stall_hist *h = bpf_map_lookup_elem(&stall_hists, &kind);
	__u32 bucket;

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

static __always_inline int stall_end(__u32 kind, __u64 reclaimed)
{
	struct stall_key key = { .tid = (__u32)bpf_get_current_pid_tgid(), .kind = kind };
	__u64 *start = bpf_map_lookup_elem(&stall_starts, &key);
	__u64 ns;

	if (!start)
		return 0;
	ns = bpf_ktime_get_ns() - *start;
	bpf_map_delete_elem(&stall_starts, &key);
	charge_owner(kind, ns);
	return count_stall(kind, ns, reclaimed);
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

/* nid, usec_timeout, usec_delayed, reason. kswapd is made to wait too, and nobody minds. */
SEC("tp_btf/mm_vmscan_throttled")
int reclaim_throttled(unsigned long long *ctx)
{
	__u64 ns = (__u64)(__u32)ctx[2] * 1000;

	if (in_kernel_thread())
		return 0;
	charge_owner(STALL_THROTTLED, ns);
	return count_stall(STALL_THROTTLED, ns, 0);
}

static __always_inline struct lock_slot *own_lock_slot(__u32 tid)
{
	__u32 slot = tid % LOCK_SLOTS;

	return bpf_map_lookup_elem(&lock_slots, &slot);
}

/*
 * lock, flags. Spinning comes by here as well, often, and is turned away first. A mutex that
 * was handed to somebody else while its waiter woke begins again for the same wait.
 */
SEC("tp_btf/contention_begin")
int lock_begin(unsigned long long *ctx)
{
	struct lock_slot *slot;
	__u32 tid;

	if (ctx[1] & LCB_F_SPIN)
		return 0;
	tid = (__u32)bpf_get_current_pid_tgid();
	slot = own_lock_slot(tid);
	if (!slot || (slot->tid == tid && slot->lock == ctx[0]))
		return 0;
	slot->lock = ctx[0];
	slot->tid = tid;
	slot->start = bpf_ktime_get_ns();
	return 0;
}

static __always_inline int charge_lock(__u64 ns)
{
	struct task_struct *self = (void *)bpf_get_current_task();
	struct lock_owner owner = {};
	struct lock_sum *sum;

	owner.tgid = bpf_get_current_pid_tgid() >> 32;
	owner.start_boottime = BPF_CORE_READ(self, group_leader, start_boottime);
	sum = bpf_map_lookup_elem(&lock_owners, &owner);
	if (!sum) {
		struct lock_sum first = {};

		bpf_map_update_elem(&lock_owners, &owner, &first, BPF_NOEXIST);
		sum = bpf_map_lookup_elem(&lock_owners, &owner);
	}
	if (sum)
		__sync_fetch_and_add(&sum->total, ns);
	return count_stall(STALL_LOCK, ns, 0);
}

/* lock, ret. A spinlock on the way to a sleep ends here too: it is another lock. */
SEC("tp_btf/contention_end")
int lock_end(unsigned long long *ctx)
{
	__u32 tid = (__u32)bpf_get_current_pid_tgid();
	struct lock_slot *slot = own_lock_slot(tid);
	__u64 ns;

	if (!slot || slot->tid != tid || slot->lock != ctx[0])
		return 0;
	ns = bpf_ktime_get_ns() - slot->start;
	slot->tid = 0;
	slot->lock = 0;
	if (ns < LOCK_WAIT_NS_MIN || in_kernel_thread())
		return 0;
	return charge_lock(ns);
}
