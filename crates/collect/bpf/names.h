// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Where a file lies in the tree of names. A process that a capture has seen may be gone before
 * user space could ask for its files, so the last names are taken along, once per file.
 */
#ifndef MITRA_NAMES_H
#define MITRA_NAMES_H

#include "record.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct qstr {
	__u64 hash_len;
	const unsigned char *name;
};
struct hlist_node {
	struct hlist_node *next;
};
struct hlist_head {
	struct hlist_node *first;
};
struct dentry {
	struct dentry *d_parent;
	struct qstr d_name;
	union {
		struct hlist_node d_alias;
	} d_u;
};
/* Since 7.x the union has no name. */
struct dentry___flat {
	struct hlist_node d_alias;
};
struct vfsmount {
	struct dentry *mnt_root;
};
struct mount {
	struct mount *mnt_parent;
	struct dentry *mnt_mountpoint;
	struct vfsmount mnt;
};
struct path {
	struct vfsmount *mnt;
	struct dentry *dentry;
};
struct file {
	struct path f_path;
};
struct fdtable___names {
	unsigned int max_fds;
	struct file **fd;
};
struct files_struct___names {
	struct fdtable___names *fdt;
};
struct fs_struct {
	struct path pwd;
};
struct task_struct___files {
	struct fs_struct *fs;
	struct files_struct___names *files;
};

#pragma clang attribute pop

#define NAMES_MAX 8
#define NAME_BYTES 40
/* Mounts and directories that are looked at on the way up. */
#define STEPS_MAX 24

enum names_flag {
	NAMES_DEEPER = 1, /* there are more directories above */
	NAMES_UNKNOWN = 4,
};

/* The last names of a path, the innermost first. */
struct names {
	__u32 count;
	__u32 flags;
	char name[NAMES_MAX][NAME_BYTES];
};
_Static_assert(sizeof(struct names) == 328, "twin: src/capture/calls/names.rs");

/*
 * Walks up from a directory entry. Locks are not taken: a tree that changes meanwhile may
 * give a wrong name, never a wrong access. With a mount the walk passes from the root of a
 * file system to where it is mounted.
 */
static __always_inline void read_names(struct names *to, struct dentry *dentry, struct vfsmount *vfs)
{
	__u64 offset = bpf_core_field_offset(struct mount, mnt);
	struct mount *mount = vfs ? (struct mount *)((__u64)vfs - offset) : 0;

	to->count = 0;
	to->flags = 0;
	for (int i = 0; i < STEPS_MAX && dentry; i++) {
		/* From memory, so that the verifier does not follow its value through all turns. */
		__u32 n = *(volatile __u32 *)&to->count;
		struct dentry *parent;

		if (mount && dentry == BPF_CORE_READ(mount, mnt.mnt_root)) {
			struct mount *above = BPF_CORE_READ(mount, mnt_parent);

			if (above == mount || !above)
				return;
			dentry = BPF_CORE_READ(mount, mnt_mountpoint);
			mount = above;
			continue;
		}
		parent = BPF_CORE_READ(dentry, d_parent);
		if (parent == dentry || !parent)
			return;
		if (n >= NAMES_MAX) {
			to->flags |= NAMES_DEEPER;
			return;
		}
		bpf_probe_read_kernel_str(to->name[n], NAME_BYTES, BPF_CORE_READ(dentry, d_name.name));
		to->count = n + 1;
		dentry = parent;
	}
	to->flags |= NAMES_DEEPER;
}

#endif
