// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * The functions that a thread is in where an interpreter runs them: its own stack has only the interpreter. User space says how
 * the interpreter keeps them, and which of its states belongs to which thread: by the address of the thread's own memory, which the
 * interpreter knows (pthread_self) and the kernel too. Only on x86-64. The twins in Rust are in src/capture/functions.rs. To be
 * included after chain.h.
 */
#ifndef MITRA_FUNCTIONS_H
#define MITRA_FUNCTIONS_H

#define FUNCTION_DEPTH 32
#define FUNCTION_STACKS 8192
#define INTERPRETED_THREADS 4096
#define NOTHING_BETWEEN 0xffffffff

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct thread_struct___x86 {
	unsigned long fsbase;
};
struct task_struct___x86 {
	struct thread_struct___x86 thread;
};

#pragma clang attribute pop

struct interpreted {
	__u32 innermost; /* in a thread's state */
	__u32 between; /* in what it leads to, or NOTHING_BETWEEN */
	__u32 code; /* in a frame */
	__u32 caller; /* in a frame */
	__u64 tag; /* bits of the code's address that mean something else */
	__u64 is_on;
};
_Static_assert(sizeof(struct interpreted) == 32, "twin: src/capture/functions.rs");
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct interpreted);
} interpreters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, INTERPRETED_THREADS);
	__type(key, __u64);
	__type(value, __u64);
} interpreted_threads SEC(".maps");

struct functions {
	__u64 codes[FUNCTION_DEPTH]; /* the innermost first; 0 ends it */
};
_Static_assert(sizeof(struct functions) == 256, "twin: src/capture/functions.rs");
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, FUNCTION_STACKS);
	__type(key, __u64);
	__type(value, struct functions);
} function_stacks SEC(".maps");
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct functions);
} function_scratches SEC(".maps");

static __always_inline __u64 follow_functions(struct functions *s, const struct interpreted *how, __u64 frame)
{
	__u64 id = 1;

	for (int i = 0; i < FUNCTION_DEPTH; i++) {
		__u64 code = 0;

		if (!frame || bpf_probe_read_user(&code, sizeof(code), (void *)(frame + how->code))) {
			s->codes[i] = 0;
			break;
		}
		/* Of a frame without code: what lies on the way back is worth knowing all the same. */
		code = (code & ~how->tag) ?: 1;
		s->codes[i] = code;
		id = add_to_id(id, code);
		if (bpf_probe_read_user(&frame, sizeof(frame), (void *)(frame + how->caller)))
			frame = 0;
	}
	return id;
}

/* The number of the functions that the running thread is in; 0: none are known. */
static __always_inline __u64 current_functions(void)
{
	struct task_struct___x86 *task = (void *)bpf_get_current_task_btf();
	__u32 first = 0;
	struct interpreted *how = bpf_map_lookup_elem(&interpreters, &first);
	struct functions *s = bpf_map_lookup_elem(&function_scratches, &first);
	__u64 base, id, frame = 0;
	__u64 *state;

	if (!how || !s || !how->is_on || !bpf_core_field_exists(task->thread.fsbase))
		return 0;
	base = task->thread.fsbase;
	state = bpf_map_lookup_elem(&interpreted_threads, &base);
	if (!state || bpf_probe_read_user(&frame, sizeof(frame), (void *)(*state + how->innermost)))
		return 0;
	if (how->between != NOTHING_BETWEEN &&
	    bpf_probe_read_user(&frame, sizeof(frame), (void *)(frame + how->between)))
		return 0;
	if (!frame)
		return 0;
	id = follow_functions(s, how, frame);
	/* Without room only they are missing. */
	if (!bpf_map_lookup_elem(&function_stacks, &id) && bpf_map_update_elem(&function_stacks, &id, s, BPF_ANY))
		return 0;
	return id;
}

#endif
