// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * The page cache, by process and file: pages that reads asked for, pages that had to be
 * brought in, and pages that went. This source is dual licensed; inside the kernel it runs
 * under the GPL, which the helpers it calls ask for.
 */
#include "calls.h"
#include "names.h"

char LICENSE[] SEC("license") = "GPL";

#define CACHE_FILES 8192
#define CACHE_NAMES 4096

/* Class of calls that write. A page that such a call adds was not missed by anybody. */
#define CALL_WRITES 1

#define PF_MEMALLOC 0x00000800
#define S_IFMT 00170000
#define S_IFBLK 0060000

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct super_block {
	__u32 s_dev;
};
struct inode {
	unsigned short i_mode;
	__u32 i_rdev;
	struct super_block *i_sb;
	unsigned long i_ino;
	long long i_size;
	struct hlist_head i_dentry;
};
struct address_space {
	struct inode *host;
};
typedef struct {
	unsigned long f;
} memdesc_flags_t;
struct folio {
	memdesc_flags_t flags; /* since 6.18 */
	struct address_space *mapping;
	unsigned long _flags_1; /* since 6.1; the order is in its low byte since 6.6 */
};
struct folio___old {
	unsigned long flags;
	unsigned char _folio_order; /* 6.1 to 6.5 */
};
struct page___old {
	unsigned char compound_order; /* of the second page, up to 6.5 */
};
enum pageflags { PG_head = 16 };

#pragma clang attribute pop

struct cache_key {
	__u64 ino;
	__u32 dev;
	__u32 tgid;
};
struct cache_sum {
	/* Pages that reads asked for. */
	__u64 looked;
	/* Pages that were brought in, by the process that did it. */
	__u64 added;
	/* Pages that a write made: nobody missed them. */
	__u64 written;
	/* Faults on a mapped file that did not find their page mapped by those around it. */
	__u64 faults;
	/* Pages that reclaim took, by the process that ran it. */
	__u64 evicted;
	/* Pages that went otherwise: truncated, deleted, dropped on request. */
	__u64 dropped;
	char comm[16];
};
_Static_assert(sizeof(struct cache_key) == 16, "twin: src/capture/kinds/cache.rs");
_Static_assert(sizeof(struct cache_sum) == 64, "twin: src/capture/kinds/cache.rs");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, CACHE_FILES);
	__type(key, struct cache_key);
	__type(value, struct cache_sum);
} cache_sums SEC(".maps");

/* Under a key without a process. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, CACHE_NAMES);
	__type(key, struct cache_key);
	__type(value, struct names);
} cache_names SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct names);
} name_scratch SEC(".maps");

/* A read that takes several turns announces what is left of it at each. */
struct reading {
	__u64 mapping;
	__u64 index;
	__u64 last;
};
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct reading);
} reading SEC(".maps");

static __always_inline void identify(struct inode *inode, struct cache_key *key)
{
	key->tgid = 0;
	if ((inode->i_mode & S_IFMT) == S_IFBLK) {
		key->dev = inode->i_rdev;
		key->ino = 0;
		return;
	}
	key->dev = inode->i_sb->s_dev;
	key->ino = inode->i_ino;
}

static __always_inline void keep_name(struct cache_key *file, struct inode *inode)
{
	__u64 offset = bpf_core_field_exists(struct dentry, d_u.d_alias) ?
			       bpf_core_field_offset(struct dentry, d_u.d_alias) :
			       bpf_core_field_offset(struct dentry___flat, d_alias);
	struct hlist_node *alias;
	struct names *names;
	__u32 first = 0;

	if (!file->ino || bpf_map_lookup_elem(&cache_names, file))
		return;
	names = bpf_map_lookup_elem(&name_scratch, &first);
	alias = BPF_CORE_READ(inode, i_dentry.first);
	if (!names || !alias)
		return;
	read_names(names, (struct dentry *)((__u64)alias - offset), 0);
	if (bpf_map_update_elem(&cache_names, file, names, BPF_NOEXIST)) {
		/* A file whose name had no place. */
		count_other();
	}
}

static __always_inline struct cache_sum *cache_sum(struct inode *inode, bool of_filtered_file)
{
	struct cache_key key = {};
	struct cache_sum *sum;
	__u32 tgid = current_tgid();

	if (!inode)
		return 0;
	identify(inode, &key);
	if (!wanted()) {
		/* Who evicts is somebody else: there the file decides. */
		if (!of_filtered_file || !bpf_map_lookup_elem(&cache_names, &key))
			return 0;
	}
	if (!count_event())
		return 0;
	key.tgid = tgid;
	sum = bpf_map_lookup_elem(&cache_sums, &key);
	if (!sum) {
		struct cache_sum fresh = {};

		process_comm(fresh.comm, bpf_get_current_task_btf());
		bpf_map_update_elem(&cache_sums, &key, &fresh, BPF_NOEXIST);
		sum = bpf_map_lookup_elem(&cache_sums, &key);
		key.tgid = 0;
		keep_name(&key, inode);
	}
	if (!sum)
		count_lost();
	return sum;
}

/* Before 6.1 a folio has no field for its order: the second of its pages has it. */
static __always_inline __u8 order_of_second_page(struct folio *folio)
{
	__u64 at = (__u64)folio + bpf_core_type_size(struct page___old) +
		   bpf_core_field_offset(struct page___old, compound_order);
	__u8 order = 0;

	bpf_probe_read_kernel(&order, sizeof(order), (void *)at);
	return order;
}

static __always_inline __u64 folio_pages(struct folio *folio)
{
	struct folio___old *old = (void *)folio;
	__u64 head = 1UL << bpf_core_enum_value(enum pageflags, PG_head);
	__u64 flags = bpf_core_field_exists(folio->flags.f) ? folio->flags.f : old->flags;
	__u64 order;

	if (!(flags & head))
		return 1;
	if (bpf_core_field_exists(old->_folio_order))
		order = old->_folio_order;
	else if (bpf_core_field_exists(folio->_flags_1))
		order = folio->_flags_1 & 0xff;
	else if (bpf_core_field_exists(struct page___old, compound_order))
		order = order_of_second_page(folio);
	else
		order = 0;
	return 1ULL << (order & 31);
}

/* `last` is the page that holds the last byte asked for, also where the file ends before. */
SEC("tp_btf/mm_filemap_get_pages")
int pages_looked_up(unsigned long long *ctx)
{
	struct address_space *mapping = (struct address_space *)ctx[0];
	__u64 index = ctx[1], last = ctx[2];
	struct inode *inode = mapping->host;
	struct cache_sum *sum;
	struct reading *r;
	__u64 end;
	bool continues;

	if (!goes_on() || !wanted() || !inode)
		return 0;
	r = bpf_task_storage_get(&reading, bpf_get_current_task_btf(), 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!r) {
		count_lost();
		return 0;
	}
	continues = r->mapping == (__u64)mapping && r->last == last && index > r->index;
	r->mapping = (__u64)mapping;
	r->index = index;
	r->last = last;
	if (continues)
		return 0;
	sum = cache_sum(inode, false);
	if (!sum || inode->i_size <= 0)
		return 0;
	end = (__u64)(inode->i_size - 1) >> (config.arg & 63);
	if (last > end)
		last = end;
	if (last >= index)
		__sync_fetch_and_add(&sum->looked, last - index + 1);
	return 0;
}

static __always_inline bool is_writing(void)
{
	struct task_struct *task = bpf_get_current_task_btf();

	if (task->flags & PF_KTHREAD)
		return false;
	return class_of(call_number((struct pt_regs *)bpf_task_pt_regs(task))) & CALL_WRITES;
}

SEC("tp_btf/mm_filemap_add_to_page_cache")
int pages_added(unsigned long long *ctx)
{
	struct folio *folio = (struct folio *)ctx[0];
	struct cache_sum *sum = goes_on() ? cache_sum(folio->mapping->host, false) : 0;

	if (sum)
		__sync_fetch_and_add(is_writing() ? &sum->written : &sum->added, folio_pages(folio));
	return 0;
}

SEC("tp_btf/mm_filemap_delete_from_page_cache")
int pages_deleted(unsigned long long *ctx)
{
	struct folio *folio = (struct folio *)ctx[0];
	struct task_struct *task = bpf_get_current_task_btf();
	struct cache_sum *sum = goes_on() ? cache_sum(folio->mapping->host, true) : 0;

	if (sum)
		__sync_fetch_and_add(task->flags & PF_MEMALLOC ? &sum->evicted : &sum->dropped,
				     folio_pages(folio));
	return 0;
}

SEC("tp_btf/mm_filemap_fault")
int page_faulted(unsigned long long *ctx)
{
	struct address_space *mapping = (struct address_space *)ctx[0];
	struct cache_sum *sum = goes_on() ? cache_sum(mapping->host, false) : 0;

	if (sum)
		__sync_fetch_and_add(&sum->faults, 1);
	return 0;
}
