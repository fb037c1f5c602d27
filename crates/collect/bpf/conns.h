// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Connections, and the slot that each counts in: whose side of a connection a socket is, and what that service or process is
 * called.
 */
#ifndef MITRA_CONNS_H
#define MITRA_CONNS_H

#include "services.h"

#define BPF_MAP_TYPE_STACK 23
#define BPF_MAP_TYPE_SK_STORAGE 24
#define BPF_F_NO_PREALLOC 1
#define BPF_F_MMAPABLE (1 << 10)
#define BPF_LOCAL_STORAGE_GET_F_CREATE 1

#define PORTS 4096
#define IPPROTO_TCP 6

/* Messages of a connection without any answer, after which none is expected. */
#define ONE_WAY 3

enum turn { TURN_NONE, TURN_OPEN, TURN_HALF_CLOSED, TURN_ANSWERED };

struct conn {
	__u64 gen;
	__u64 asked;
	__u64 answered;
	__u64 sent; /* of TCP what the kernel had counted when that was added last, of a Unix socket what is still to be added */
	__u64 received;
	__u32 slot;
	__u32 window; /* in which it was looked at last */
	__u32 last_seq;
	__u32 written; /* likewise, of what is sent; of a Unix socket messages */
	__u32 bucket;
	__u32 sends; /* segments of data, when they were added last */
	__u32 messages_out; /* of a Unix socket, which keeps no count of its own */
	__u32 seen_from;
	__u32 seen_to; /* the segments of which it is known what was asked and answered */
	__u32 pass; /* over files, that came here last */
	__u8 role;
	__u8 turn;
	__u8 was_answered;
	__u8 messages;
	__u8 is_connecting;
	__u8 was_reset;
	__u8 is_known; /* whether what is open was known at some time in this window */
	__u8 is_unaccepted;
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct conn);
} conns SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SLOTS);
	__type(key, struct service_key);
	__type(value, __u32);
} slot_of SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SLOTS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct service_slot);
} slots SEC(".maps");

/* User space fills it. The lowest comes first: what was never used is not resident there. */
struct {
	__uint(type, BPF_MAP_TYPE_STACK);
	__uint(max_entries, SLOTS);
	__type(value, __u32);
} free_slots SEC(".maps");

/* Ports that are listened on. User space adds those that were before, and removes. */
struct port_key {
	__u32 netns;
	__u32 port;
};
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PORTS);
	__type(key, struct port_key);
	__type(value, __u32);
} listening SEC(".maps");

/* What user space says. */
enum setting {
	/* The process id of the recorder, if it asks services itself over Unix sockets, and otherwise 1, once the above is filled. */
	IS_ON,
	/* Of the time in which turns are looked at. It grows from one to the next, and is 0 between them. */
	WINDOW,
	TICK_NS, /* of the kernel's clock of jiffies */
	/* Whether a pass goes over all files, because the kernel lets nobody go over the connections themselves. */
	BY_FILES,
	SETTINGS,
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SETTINGS);
	__type(key, __u32);
	__type(value, __u32);
} settings SEC(".maps");

/* Connections of TCP that no file has yet, where passes go over files: they wait to be accepted. */
#define UNACCEPTED 16384
struct unaccepted {
	__u64 gen;
	__u64 asked; /* 0: nothing yet */
	__u32 slot;
	__u32 pad;
};
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, UNACCEPTED);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64); /* the address of the socket */
	__type(value, struct unaccepted);
} unaccepted SEC(".maps");

/* How often the programs were called that see each request. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} calls SEC(".maps");

struct {
	/* Grows with each slot that is given out. */
	__u64 slots_made;
	__u64 slots_lost;
} globals;

static __always_inline __u32 setting(enum setting which)
{
	__u32 at = which, *value = bpf_map_lookup_elem(&settings, &at);

	return value ? *value : 0;
}

static __always_inline void count_call(void)
{
	__u32 first = 0;
	__u64 *count = bpf_map_lookup_elem(&calls, &first);

	if (count)
		*count += 1;
}

static __always_inline void add(__u64 *to, __u64 n)
{
	__sync_fetch_and_add(to, n);
}

static __always_inline struct service_slot *slot_at(__u32 at)
{
	return bpf_map_lookup_elem(&slots, &at);
}

static __always_inline bool is_tcp(struct sock *sk)
{
	__u16 family = sk->__sk_common.skc_family;

	return (family == AF_INET || family == AF_INET6) && sk->sk_protocol == IPPROTO_TCP;
}

static __always_inline bool is_unix(struct sock *sk)
{
	return sk->__sk_common.skc_family == AF_UNIX &&
	       (sk->sk_type == SOCK_STREAM || sk->sk_type == SOCK_SEQPACKET);
}

static __always_inline __u32 netns_of(struct sock *sk)
{
	return sk->__sk_common.skc_net.net->ns.inum;
}

/* Reads the name of a Unix socket, and hashes it; false where it has none. */
static __noinline bool unix_name(struct unix_address *address, char *path, __u8 *hash)
{
	__u64 h = 0xcbf29ce484222325ULL;
	int len;

	if (!address || !path || !hash)
		return false;
	/* Two bytes of it are the family. */
	len = BPF_CORE_READ(address, len) - 2;
	if (len <= 0)
		return false;
	if (len > UNIX_PATH)
		len = UNIX_PATH;
	bpf_probe_read_kernel(path, len & 127, &address->name[0].sun_path);
	for (int i = 0; i < UNIX_PATH; i++) {
		h ^= (__u8)path[i];
		h *= 0x100000001b3ULL;
	}
	__builtin_memcpy(hash, &h, sizeof(h));
	return true;
}

struct unix_text {
	char path[128]; /* as much as a mask can say to the verifier */
};
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct unix_text);
} unix_texts SEC(".maps");

/* The slot of a key, which is given out if nobody has it. 0: there is none. */
static __always_inline __u32 slot_for(struct service_key *key, struct unix_text *text)
{
	__u32 *known = bpf_map_lookup_elem(&slot_of, key), at = 0;
	struct service_slot *slot;

	if (known)
		return *known;
	if (bpf_map_pop_elem(&free_slots, &at)) {
		add(&globals.slots_lost, 1);
		return 0;
	}
	slot = slot_at(at);
	if (!slot)
		return 0;
	if (text)
		__builtin_memcpy(slot->path, text->path, sizeof(slot->path));
	slot->tgid = key->tgid;
	if (bpf_map_update_elem(&slot_of, key, &at, BPF_NOEXIST)) {
		/* Another CPU was faster. */
		bpf_map_push_elem(&free_slots, &at, 0);
		known = bpf_map_lookup_elem(&slot_of, key);
		return known ? *known : 0;
	}
	add(&globals.slots_made, 1);
	return at;
}

static __always_inline void set_addresses(struct sock *sk, struct service_key *key, bool is_remote)
{
	struct sock_common *c = &sk->__sk_common;

	if (c->skc_family == AF_INET)
		map_v4(key->address, is_remote ? c->skc_daddr : c->skc_rcv_saddr);
	else if (is_remote)
		bpf_core_read(key->address, sizeof(key->address), &c->skc_v6_daddr);
	else
		bpf_core_read(key->address, sizeof(key->address), &c->skc_v6_rcv_saddr);
	key->port = is_remote ? swap_port(c->skc_dport) : c->skc_num;
}

/* Whether this end of a Unix socket, or of one with this peer, is the recorder's: what it asks itself is no work of a service. */
static __always_inline bool is_of_recorder(__u32 tgid)
{
	__u32 on = setting(IS_ON);

	return on > 1 && on == tgid;
}

/* Whether the end of what the other side sends has come, which counts like a byte (SOCK_DONE in enum sock_flags). */
static __always_inline bool other_has_ended(struct sock *sk)
{
	return sk->__sk_common.skc_flags >> 1 & 1;
}

static __always_inline __u64 bytes_received(struct sock *sk, struct tcp_sock *tcp)
{
	return tcp->bytes_received - other_has_ended(sk);
}

static __always_inline __u64 bytes_sent(struct tcp_sock *tcp)
{
	return tcp->bytes_sent - tcp->bytes_retrans;
}

/* What was before is not counted. */
static __always_inline void begin_at(struct sock *sk, struct conn *conn)
{
	struct tcp_sock *tcp = is_tcp(sk) ? bpf_skc_to_tcp_sock(sk) : 0;

	conn->is_known = 0;
	if (!tcp)
		return;
	conn->sends = conn->seen_from = conn->seen_to = tcp->data_segs_out;
	conn->sent = bytes_sent(tcp);
	conn->received = bytes_received(sk, tcp);
	conn->last_seq = tcp->copied_seq;
	conn->written = tcp->write_seq;
}

/* Finds out which side of a connection this is, and whose slot it counts in. */
static __noinline int find_slot(struct sock *sk, struct conn *conn, bool in_process)
{
	struct service_key key = {};
	struct unix_text *text = 0;
	struct service_slot *slot;
	__u32 first = 0;

	if (!sk || !conn)
		return 0;
	conn->slot = 0;
	conn->turn = TURN_NONE;
	if (is_tcp(sk)) {
		struct port_key port = { .netns = netns_of(sk), .port = sk->__sk_common.skc_num };

		key.netns = port.netns;
		if (conn->role == ROLE_NONE)
			conn->role = bpf_map_lookup_elem(&listening, &port) ? ROLE_SERVER : ROLE_CLIENT;
		set_addresses(sk, &key, conn->role == ROLE_CLIENT);
	} else {
		struct unix_sock *u = bpf_skc_to_unix_sock(sk);

		text = bpf_map_lookup_elem(&unix_texts, &first);
		if (!u || !text)
			return 0;
		__builtin_memset(text, 0, sizeof(*text));
		key.netns = netns_of(sk);
		if (unix_name(BPF_CORE_READ(u, addr), text->path, key.address)) {
			conn->role = ROLE_SERVER;
			if (is_of_recorder(BPF_CORE_READ(sk, sk_peer_pid, numbers[0].nr)))
				return 0;
		} else {
			struct unix_sock *peer = (struct unix_sock *)BPF_CORE_READ(u, peer);

			if (!peer || !unix_name(BPF_CORE_READ(peer, addr), text->path, key.address))
				return 0;
			conn->role = ROLE_CLIENT;
		}
	}
	key.role = conn->role;
	if (conn->role == ROLE_CLIENT) {
		/* Elsewhere another process may be running. */
		if (!in_process)
			return 0;
		key.tgid = bpf_get_current_pid_tgid() >> 32;
		if (text && is_of_recorder(key.tgid))
			return 0;
	}
	conn->slot = slot_for(&key, text);
	slot = slot_at(conn->slot);
	if (!slot || !conn->slot)
		return 0;
	conn->gen = slot->gen;
	conn->window = setting(WINDOW);
	begin_at(sk, conn);
	return 1;
}

/* The state of a connection and its slot; 0 where there is none. */
static __always_inline struct conn *conn_of(struct sock *sk, bool in_process, __u32 role,
					    struct service_slot **slot)
{
	struct service_slot *found;
	struct conn *conn;

	conn = bpf_sk_storage_get(&conns, sk, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!conn)
		return 0;
	found = slot_at(conn->slot);
	if (!found)
		return 0;
	if (!conn->slot || conn->gen != found->gen) {
		if (!setting(IS_ON))
			return 0;
		if (role)
			conn->role = role;
		if (!find_slot(sk, conn, in_process))
			return 0;
		found = slot_at(conn->slot);
		if (!found)
			return 0;
	}
	*slot = found;
	return conn;
}

/* Notes a server's connection that nobody has accepted. */
static __always_inline void note_unaccepted(struct sock *sk, struct conn *conn)
{
	struct unaccepted one = { .gen = conn->gen, .slot = conn->slot };
	__u64 key = (__u64)sk;

	if (!is_tcp(sk) || sk->sk_socket || !setting(BY_FILES))
		return;
	if (conn->turn == TURN_OPEN)
		one.asked = conn->asked;
	conn->is_unaccepted = !bpf_map_update_elem(&unaccepted, &key, &one, BPF_ANY);
}

/* Who accepts may have no descriptor for it: the kernel, or a ring. */
static __always_inline void answered_unaccepted(struct sock *sk, struct conn *conn)
{
	__u64 key = (__u64)sk;
	struct unaccepted *one;

	if (!conn->is_unaccepted || !sk->sk_socket)
		return;
	one = bpf_map_lookup_elem(&unaccepted, &key);
	if (one)
		one->asked = 0;
}

static __always_inline void forget_unaccepted(struct sock *sk, struct conn *conn)
{
	__u64 key = (__u64)sk;

	if (!conn->is_unaccepted)
		return;
	conn->is_unaccepted = 0;
	bpf_map_delete_elem(&unaccepted, &key);
}

#endif
