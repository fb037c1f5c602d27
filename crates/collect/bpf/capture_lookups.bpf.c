// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Names that were looked up and are not there, by process and directory. Only the exit of
 * calls is probed, and what did not fail with ENOENT ends after one comparison: the path is
 * still where the argument points to, and in memory, because the kernel has just read it.
 * This source is dual licensed; inside the kernel it runs under the GPL, which the helpers
 * it calls ask for.
 */
#include "calls.h"
#include "names.h"

char LICENSE[] SEC("license") = "GPL";

#define ENOENT 2
#define AT_FDCWD (-100)
#define LOOKUP_DIRS 4096
#define PATH_BYTES 256
#define DIR_BYTES 108
#define EXAMPLES 4
#define EXAMPLE_BYTES 48

enum dir_flag {
	DIR_CUT = 1, /* the directory's name is longer than there is room for */
};

struct lookup_key {
	/* The directory that a relative path starts from; 0: the path is absolute. Neither the number of
	 * a descriptor nor that it was the working directory would tell: both soon mean another one. */
	__u64 base;
	__u32 tgid;
	__u32 flags;
	__u32 bytes; /* of dir */
	char dir[DIR_BYTES];
};
_Static_assert(sizeof(struct lookup_key) == 128, "twin: src/capture/kinds/lookups.rs");

struct lookup_sum {
	__u64 count;
	char comm[16];
	__u32 call; /* of the first */
	__u32 pad;
	/* The first, and then whenever the count doubles. */
	char examples[EXAMPLES][EXAMPLE_BYTES];
	/* Of relative paths: the directory that they start from. */
	struct names base;
};
_Static_assert(sizeof(struct lookup_sum) == 552, "twin: src/capture/kinds/lookups.rs");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, LOOKUP_DIRS);
	__type(key, struct lookup_key);
	__type(value, struct lookup_sum);
} lookups SEC(".maps");

struct scratch {
	struct lookup_key key;
	struct lookup_sum first;
	char path[PATH_BYTES + EXAMPLE_BYTES];
};

/* Programs of one CPU do not interrupt each other here: calls return one at a time, and
 * a sleeping one has left. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct scratch);
} scratches SEC(".maps");

static __always_inline __u64 path_argument(struct pt_regs *regs, __u8 class)
{
	switch (class & PATH_ARG) {
	case 1:
		return call_arg(regs, 0);
	case 2:
		return call_arg(regs, 1);
	default:
		return 0;
	}
}

/*
 * The position after the last slash of the path; 0 without one. A function of its own, for the
 * verifier: it looks at it once, and not again with each of the values that it may return.
 */
__noinline int after_slash(void)
{
	__u32 first = 0;
	struct scratch *s = bpf_map_lookup_elem(&scratches, &first);
	int after = 0;

	if (!s)
		return 0;
	for (int i = 0; i < PATH_BYTES - 1; i++) {
		if (!s->path[i])
			break;
		if (s->path[i] == '/')
			after = i + 1;
	}
	return after;
}

/* Where the kernel keeps the directory that a relative path starts from; 0 if that cannot be told. */
static __always_inline __u64 base_path(int dirfd)
{
	struct task_struct___files *task = (void *)bpf_get_current_task_btf();
	struct fdtable___names *table;
	struct file **files;
	struct file *file = 0;

	if (dirfd == AT_FDCWD) {
		__u64 fs = (__u64)BPF_CORE_READ(task, fs);

		return fs ? fs + bpf_core_field_offset(struct fs_struct, pwd) : 0;
	}
	table = BPF_CORE_READ(task, files, fdt);
	if (dirfd < 0 || (__u32)dirfd >= BPF_CORE_READ(table, max_fds))
		return 0;
	files = BPF_CORE_READ(table, fd);
	bpf_probe_read_kernel(&file, sizeof(file), &files[dirfd]);
	return file ? (__u64)file + bpf_core_field_offset(struct file, f_path) : 0;
}

/* What tells a directory from others: where its entry lies, which may soon be that of another one, and
 * its name. */
static __always_inline __u64 base_id(__u64 at)
{
	struct path *path = (struct path *)at;
	struct dentry *dentry = at ? BPF_CORE_READ(path, dentry) : 0;

	return dentry ? (__u64)dentry ^ BPF_CORE_READ(dentry, d_name.hash_len) : 0;
}

static __always_inline struct lookup_sum *lookup_sum(struct scratch *s, long call, __u64 base)
{
	struct path *path = (struct path *)base;
	struct lookup_sum *sum = bpf_map_lookup_elem(&lookups, &s->key);

	if (sum)
		return sum;
	__builtin_memset(&s->first, 0, sizeof(s->first));
	process_comm(s->first.comm, bpf_get_current_task_btf());
	s->first.call = call;
	s->first.base.flags = NAMES_UNKNOWN;
	if (base)
		read_names(&s->first.base, BPF_CORE_READ(path, dentry), BPF_CORE_READ(path, mnt));
	bpf_map_update_elem(&lookups, &s->key, &s->first, BPF_NOEXIST);
	return bpf_map_lookup_elem(&lookups, &s->key);
}

static __always_inline void keep_example(struct lookup_sum *sum, __u64 count, const char *name)
{
	__u32 slot;

	if (count & (count - 1))
		return;
	slot = count <= 1 ? 0 : 1 + log2_bucket(count, 0, 31) % (EXAMPLES - 1);
	/* The compiler knows the bound and would leave the check out; the verifier does not. */
	barrier_var(slot);
	if (slot < EXAMPLES)
		bpf_probe_read_kernel_str(sum->examples[slot], EXAMPLE_BYTES, name);
}

SEC("tp_btf/sys_exit")
int lookup_failed(unsigned long long *ctx)
{
	struct pt_regs *regs = (struct pt_regs *)ctx[0];
	__u32 first = 0;
	__u32 tgid;
	struct lookup_sum *sum;
	struct scratch *s;
	__u64 bytes, slash, count;
	__u64 base = 0;
	__u8 class;
	long call;

	if (!goes_on() || (long)ctx[1] != -ENOENT)
		return 0;
	tgid = current_tgid();
	if (!wanted())
		return 0;
	call = call_number(regs);
	class = class_of(call);
	if (!class || is_compat(regs))
		return 0;
	s = bpf_map_lookup_elem(&scratches, &first);
	if (!s)
		return 0;
	if (bpf_probe_read_user_str(s->path, PATH_BYTES, (void *)path_argument(regs, class)) <= 0) {
		/* The path could not be read. */
		count_other();
		return 0;
	}
	slash = (__u32)after_slash();
	if (slash > PATH_BYTES)
		return 0;
	__builtin_memset(&s->key, 0, sizeof(s->key));
	s->key.tgid = tgid;
	/* An absolute path does not look at the descriptor. */
	if (s->path[0] != '/') {
		base = base_path(class & DIR_FIRST ? (int)call_arg(regs, 0) : AT_FDCWD);
		s->key.base = base_id(base);
	}
	bytes = slash;
	if (bytes > DIR_BYTES) {
		bytes = DIR_BYTES;
		s->key.flags = DIR_CUT;
	}
	s->key.bytes = bytes;
	bpf_probe_read_kernel(s->key.dir, bytes, s->path);
	if (!count_event())
		return 0;
	sum = lookup_sum(s, call, base);
	if (!sum) {
		count_lost();
		return 0;
	}
	count = __sync_fetch_and_add(&sum->count, 1) + 1;
	keep_example(sum, count, &s->path[slash]);
	return 0;
}
