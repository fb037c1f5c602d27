// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Stacks of programs that frame pointers do not connect. The C library has none on most systems, and it
 * is where memory is touched first. For each place a rule says where the frame of the caller ends and
 * where the frame pointer is kept; user space takes it from the tables that compilers write, when it is
 * asked for the first time: with a copy of the stack, so that it learns of all places on the way at once.
 * Until then frame pointers are followed. Elsewhere than on x86-64 they always are. The twins in Rust are
 * in src/capture/chains.rs. To be included after capture.h.
 */
#ifndef MITRA_CHAIN_H
#define MITRA_CHAIN_H

#define CHAIN_DEPTH 64
#define CHAINS 8192
#define FRAME_RULES 16384
#define COPY_BYTES 8192
#define COPY_RING_BYTES (512 * 1024)
/* On each CPU. Whoever has not learned by then is not going to. */
#define COPIES_MAX 2048

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct pt_regs___x86_user {
	unsigned long bp;
	unsigned long ip;
	unsigned long sp;
};

#pragma clang attribute pop

enum frame_rule_kind { RULE_FRAME_POINTER, RULE_FROM_SP, RULE_FROM_BP, RULE_END };

struct frame_rule {
	__s32 offset; /* of the end of the frame from the register */
	__s16 bp_at; /* from there, where the caller's is kept; 0: it is where it was */
	__u8 kind;
	__u8 pad;
};
_Static_assert(sizeof(struct frame_rule) == 8, "twin: src/capture/chains.rs");

/* By the address, times two, and one more where it executes there and no call returns there. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, FRAME_RULES);
	__type(key, __u64);
	__type(value, struct frame_rule);
} frame_rules SEC(".maps");

struct chain {
	__u64 ips[CHAIN_DEPTH]; /* the leaf first; 0 ends it */
};
_Static_assert(sizeof(struct chain) == 512, "twin: src/capture/chains.rs");
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, CHAINS);
	__type(key, __u64);
	__type(value, struct chain);
} chains SEC(".maps");

struct chain_scratch {
	struct chain chain;
	__u64 copies;
};
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct chain_scratch);
} chain_scratches SEC(".maps");

struct stack_copy {
	__u64 chain;
	__u64 ip;
	__u64 sp;
	__u64 bp;
	__u32 tgid;
	__u32 bytes;
	char stack[COPY_BYTES];
};
_Static_assert(sizeof(struct stack_copy) == 40 + COPY_BYTES, "twin: src/capture/chains.rs");
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, COPY_RING_BYTES);
} copy_ring SEC(".maps");

/* Near its beginning there is less of a stack. */
static __always_inline __u32 read_stack(struct stack_copy *copy)
{
	if (!bpf_probe_read_user(copy->stack, COPY_BYTES, (void *)copy->sp))
		return COPY_BYTES;
	if (!bpf_probe_read_user(copy->stack, COPY_BYTES / 2, (void *)copy->sp))
		return COPY_BYTES / 2;
	if (!bpf_probe_read_user(copy->stack, COPY_BYTES / 8, (void *)copy->sp))
		return COPY_BYTES / 8;
	if (!bpf_probe_read_user(copy->stack, COPY_BYTES / 32, (void *)copy->sp))
		return COPY_BYTES / 32;
	return 0;
}

/* Where a walk is. */
struct frame_at {
	__u64 ip;
	__u64 sp;
	__u64 bp;
};

static __always_inline void ask_for_rules(struct chain_scratch *s, __u64 id, const struct frame_at *leaf)
{
	struct stack_copy *copy;

	if (s->copies >= COPIES_MAX)
		return;
	copy = bpf_ringbuf_reserve(&copy_ring, sizeof(*copy), 0);
	/* Somebody else asks. */
	if (!copy)
		return;
	s->copies += 1;
	copy->chain = id;
	copy->ip = leaf->ip;
	copy->sp = leaf->sp;
	copy->bp = leaf->bp;
	copy->tgid = bpf_get_current_pid_tgid() >> 32;
	copy->bytes = read_stack(copy);
	bpf_ringbuf_submit(copy, BPF_RB_NO_WAKEUP);
}

/* The frame of the caller; false where there is none, or it cannot be read. A stack only grows back. */
static __always_inline bool go_up(struct frame_at *at, const struct frame_rule *rule)
{
	__u64 sp = at->sp;
	__u64 frame[2];

	if (!rule || rule->kind == RULE_FRAME_POINTER) {
		if (bpf_probe_read_user(frame, sizeof(frame), (void *)at->bp))
			return false;
		at->sp = at->bp + sizeof(frame);
		at->bp = frame[0];
		at->ip = frame[1];
	} else if (rule->kind == RULE_END) {
		return false;
	} else {
		__u64 end = (rule->kind == RULE_FROM_BP ? at->bp : at->sp) + rule->offset;

		if (rule->bp_at && bpf_probe_read_user(&at->bp, sizeof(at->bp), (void *)(end + rule->bp_at)))
			return false;
		if (bpf_probe_read_user(&at->ip, sizeof(at->ip), (void *)(end - sizeof(at->ip))))
			return false;
		at->sp = end;
	}
	return at->ip && at->sp > sp;
}

static __always_inline __u64 add_to_id(__u64 id, __u64 ip)
{
	id = (id ^ ip) * 0x9e3779b97f4a7c15ULL;
	return id ^ (id >> 32);
}

/* As the kernel follows it. */
static __always_inline __u64 plain_chain(void *ctx, struct chain_scratch *s)
{
	long bytes = bpf_get_stack(ctx, s->chain.ips, sizeof(s->chain.ips), BPF_F_USER_STACK);
	__u64 id = 1;

	for (int i = 0; i < CHAIN_DEPTH; i++) {
		if ((long)(i * sizeof(__u64)) >= bytes) {
			s->chain.ips[i] = 0;
			break;
		}
		id = add_to_id(id, s->chain.ips[i]);
	}
	return id;
}

static __always_inline __u64 chain_by_rules(struct chain_scratch *s, struct frame_at at)
{
	struct frame_at leaf = at;
	bool is_unknown = false;
	__u64 id = 1;

	for (int i = 0; i < CHAIN_DEPTH; i++) {
		__u64 key = at.ip << 1 | !i;
		struct frame_rule *rule;

		s->chain.ips[i] = at.ip;
		id = add_to_id(id, at.ip);
		rule = bpf_map_lookup_elem(&frame_rules, &key);
		if (!rule)
			is_unknown = true;
		if (!go_up(&at, rule)) {
			if (i + 1 < CHAIN_DEPTH)
				s->chain.ips[i + 1] = 0;
			break;
		}
	}
	if (is_unknown) {
		/* What was found of two stacks may be the same, and neither is whole: those of one depth of one thread are taken for
		 * the same until the rules are there. */
		if (s->copies < COPIES_MAX)
			id = add_to_id(id, leaf.sp);
		ask_for_rules(s, id, &leaf);
	}
	return id;
}

/* The number of the stack of the running thread in its program; 0: it has none. */
static __always_inline __u64 current_chain(void *ctx)
{
	struct pt_regs___x86_user *regs = (void *)bpf_task_pt_regs(bpf_get_current_task_btf());
	__u32 first = 0;
	struct chain_scratch *s = bpf_map_lookup_elem(&chain_scratches, &first);
	struct capture_counts *c = my_counts();
	__u64 id;

	if (!s || !c)
		return 0;
	c->stacks += 1;
	if (bpf_core_field_exists(regs->ip)) {
		struct frame_at at = { .ip = regs->ip, .sp = regs->sp, .bp = regs->bp };

		id = chain_by_rules(s, at);
	} else {
		id = plain_chain(ctx, s);
	}
	if (!bpf_map_lookup_elem(&chains, &id) && bpf_map_update_elem(&chains, &id, &s->chain, BPF_ANY)) {
		c->stacks_lost += 1;
		return 0;
	}
	return id;
}

#endif
