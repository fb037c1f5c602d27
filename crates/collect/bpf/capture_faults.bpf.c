// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Page faults by stack and by what is mapped where they happen. The events of perf come after the fault
 * was handled, so they tell a minor one from one that waited for the disk. This source is dual licensed;
 * inside the kernel it runs under the GPL, which the helpers it calls ask for.
 */
#include "capture.h"

char LICENSE[] SEC("license") = "GPL";

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct qstr {
	const unsigned char *name;
};
struct dentry {
	struct qstr d_name;
};
struct super_block {
	__u32 s_dev;
};
struct inode {
	struct super_block *i_sb;
	unsigned long i_ino;
};
struct path {
	struct dentry *dentry;
};
struct file {
	struct path f_path;
	struct inode *f_inode;
};
struct vm_area_struct {
	unsigned long vm_start;
	unsigned long vm_end;
	struct file *vm_file;
};
/* What perf hands to a program; the registers in front of it differ by machine. */
struct bpf_perf_event_data {
	__u64 sample_period;
	__u64 addr;
};
struct mm_struct___places {
	unsigned long start_brk, brk, start_stack;
};

#pragma clang attribute pop

/* What is mapped at the address. */
enum fault_place { PLACE_UNKNOWN, PLACE_FILE, PLACE_ANON, PLACE_HEAP, PLACE_STACK };

struct fault_key {
	__u32 tgid;
	__u32 image;
	__s32 user;
	__s32 kernel;
	__u32 major;
	__u32 place;
	__u64 inode;
	__u32 dev;
	__u32 pad;
	char comm[16];
	char file[32]; /* the end of a longer name is cut off */
};
_Static_assert(sizeof(struct fault_key) == 88, "twin: src/capture/kinds/faults.rs");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct fault_key);
	__type(value, __u64);
} fault_sums SEC(".maps");

/* The mapping of an address, filled in below. */
struct found {
	struct fault_key *key;
	__u64 addr;
};

static long take_place(struct task_struct *task, struct vm_area_struct *vma, struct found *found)
{
	struct fault_key *key = found->key;
	struct file *file = BPF_CORE_READ(vma, vm_file);
	struct mm_struct___places *mm = (void *)BPF_CORE_READ(task, mm);
	unsigned long start = BPF_CORE_READ(vma, vm_start), end = BPF_CORE_READ(vma, vm_end);

	if (file) {
		const unsigned char *name = BPF_CORE_READ(file, f_path.dentry, d_name.name);

		key->place = PLACE_FILE;
		key->inode = BPF_CORE_READ(file, f_inode, i_ino);
		key->dev = BPF_CORE_READ(file, f_inode, i_sb, s_dev);
		bpf_probe_read_kernel_str(key->file, sizeof(key->file), name);
	} else if (start <= BPF_CORE_READ(mm, brk) && end >= BPF_CORE_READ(mm, start_brk)) {
		key->place = PLACE_HEAP;
	} else if (start <= BPF_CORE_READ(mm, start_stack) && end >= BPF_CORE_READ(mm, start_stack)) {
		key->place = PLACE_STACK;
	} else {
		key->place = PLACE_ANON;
	}
	return 0;
}

static __always_inline void count_fault(void *ctx, struct fault_key *key)
{
	__u64 *sum;

	key->tgid = bpf_get_current_pid_tgid() >> 32;
	key->image = current_image();
	key->kernel = current_stack(ctx, 0);
	key->user = key->image ? current_stack(ctx, BPF_F_USER_STACK) : -1;
	bpf_get_current_comm(key->comm, sizeof(key->comm));
	sum = bpf_map_lookup_elem(&fault_sums, key);
	if (!sum) {
		__u64 zero = 0;

		bpf_map_update_elem(&fault_sums, key, &zero, BPF_NOEXIST);
		sum = bpf_map_lookup_elem(&fault_sums, key);
	}
	if (sum)
		__sync_fetch_and_add(sum, 1);
	else
		count_lost();
}

/* bpf_find_vma and bpf_get_current_task_btf are there since 5.17. */
static __always_inline int fault(struct bpf_perf_event_data *ctx, __u32 major)
{
	struct fault_key key = { .major = major };
	struct found found = { .key = &key, .addr = ctx->addr };

	if (!goes_on() || !wanted() || !count_event())
		return 0;
	bpf_find_vma(bpf_get_current_task_btf(), found.addr, take_place, &found, 0);
	count_fault(ctx, &key);
	return 0;
}

static __always_inline int fault_plain(struct bpf_perf_event_data *ctx, __u32 major)
{
	struct fault_key key = { .major = major };

	if (!goes_on() || !wanted() || !count_event())
		return 0;
	count_fault(ctx, &key);
	return 0;
}

SEC("perf_event")
int fault_minor(struct bpf_perf_event_data *ctx)
{
	return fault(ctx, 0);
}

SEC("perf_event")
int fault_major(struct bpf_perf_event_data *ctx)
{
	return fault(ctx, 1);
}

SEC("perf_event")
int fault_minor_old(struct bpf_perf_event_data *ctx)
{
	return fault_plain(ctx, 0);
}

SEC("perf_event")
int fault_major_old(struct bpf_perf_event_data *ctx)
{
	return fault_plain(ctx, 1);
}
