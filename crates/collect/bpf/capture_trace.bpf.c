// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * The first calls of one process, one record each, as strace would show them but without
 * stopping it. This source is dual licensed; inside the kernel it runs under the GPL, which
 * the helpers it calls ask for.
 */
#include "calls.h"

char LICENSE[] SEC("license") = "GPL";

#define TRACE_RING_BYTES (1024 * 1024)
#define TRACE_THREADS 1024
#define TRACE_PATH_BYTES 128

/* Classes, beside those of paths: it ends the thread, or the memory that its path is in. */
#define CALL_ENDS 0x20
#define CALL_EXECS 0x40

/* Of a call that does not return, in place of how long it took. */
#define NEVER (~0ULL)

struct call_rec {
	__u64 at;
	__u64 ns;
	__s64 result;
	__u32 tid;
	__u32 call;
	__u64 args[6];
	char comm[16];
	char path[TRACE_PATH_BYTES];
};
_Static_assert(sizeof(struct call_rec) == 224, "twin: src/capture/kinds/trace.rs");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, TRACE_RING_BYTES);
} trace_ring SEC(".maps");

/* Calls under way; what is still here in the end has not returned. */
struct call_begun {
	__u64 at;
	__u64 call;
	__u64 args[6];
	char comm[16];
	/* Of programs that are executed; of all else it is read when the kernel has read it. */
	char path[TRACE_PATH_BYTES];
};
_Static_assert(sizeof(struct call_begun) == 208, "twin: src/capture/kinds/trace.rs");
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, TRACE_THREADS);
	__type(key, __u32);
	__type(value, struct call_begun);
} calls_begun SEC(".maps");

struct {
	/* Calls that were sent, or for which the ring had no room. */
	__u64 taken;
} globals;

static __always_inline void read_path(char *to, const __u64 *args, __u8 class)
{
	__u64 at = 0;

	switch (class & PATH_ARG) {
	case 1:
		at = args[0];
		break;
	case 2:
		at = args[1];
		break;
	}
	if (at)
		bpf_probe_read_user_str(to, TRACE_PATH_BYTES, (void *)at);
}

/* Where a call that is wanted goes; none if there were enough, or there is no room. The caller sends it. */
static __always_inline struct call_rec *take(const struct call_begun *begun, __u64 ns)
{
	struct call_rec *rec;

	if (ns < config.min_ns || __sync_fetch_and_add(&globals.taken, 1) >= config.number || !count_event())
		return 0;
	rec = bpf_ringbuf_reserve(&trace_ring, sizeof(*rec), 0);
	if (!rec) {
		count_lost();
		return 0;
	}
	rec->at = begun->at;
	rec->ns = ns;
	rec->result = 0;
	rec->tid = (__u32)bpf_get_current_pid_tgid();
	rec->call = begun->call;
	__builtin_memcpy(rec->args, begun->args, sizeof(rec->args));
	__builtin_memcpy(rec->comm, begun->comm, sizeof(rec->comm));
	__builtin_memcpy(rec->path, begun->path, sizeof(rec->path));
	return rec;
}

static __always_inline int begin(struct pt_regs *regs, long number)
{
	struct call_begun begun = { .call = number };
	__u32 tid = (__u32)bpf_get_current_pid_tgid();
	__u8 class = class_of(number);
	struct call_rec *rec;

	begun.args[0] = call_arg(regs, 0);
	begun.args[1] = call_arg(regs, 1);
	begun.args[2] = call_arg(regs, 2);
	begun.args[3] = call_arg(regs, 3);
	begun.args[4] = call_arg(regs, 4);
	begun.args[5] = call_arg(regs, 5);
	bpf_get_current_comm(begun.comm, sizeof(begun.comm));
	begun.at = bpf_ktime_get_ns();
	if (class & CALL_ENDS) {
		/* Its thread would keep its place for ever. */
		rec = take(&begun, NEVER);
		if (rec)
			bpf_ringbuf_submit(rec, BPF_RB_NO_WAKEUP);
		return 0;
	}
	if (class & CALL_EXECS)
		read_path(begun.path, begun.args, class);
	if (bpf_map_update_elem(&calls_begun, &tid, &begun, BPF_ANY))
		count_lost();
	return 0;
}

SEC("tp_btf/sys_enter")
int trace_entered(unsigned long long *ctx)
{
	struct pt_regs *regs = (struct pt_regs *)ctx[0];

	if (!goes_on() || !wanted() || is_compat(regs))
		return 0;
	if (*(volatile __u64 *)&globals.taken >= config.number)
		return 0;
	return begin(regs, (long)ctx[1]);
}

SEC("tp_btf/sys_exit")
int trace_left(unsigned long long *ctx)
{
	__u32 tid = (__u32)bpf_get_current_pid_tgid();
	struct call_begun *begun;
	struct call_rec *rec;
	__u8 class;

	if (!goes_on() || !wanted())
		return 0;
	begun = bpf_map_lookup_elem(&calls_begun, &tid);
	if (!begun)
		return 0;
	rec = take(begun, bpf_ktime_get_ns() - begun->at);
	if (rec) {
		class = class_of(begun->call);
		rec->result = (long)ctx[1];
		/* A program that was executed has another memory. */
		if (!rec->path[0] && (!(class & CALL_EXECS) || rec->result < 0))
			read_path(rec->path, rec->args, class);
		bpf_ringbuf_submit(rec, BPF_RB_NO_WAKEUP);
	}
	bpf_map_delete_elem(&calls_begun, &tid);
	return 0;
}
