// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * What the programs of the network read of the kernel, and what they hand over. The twins
 * in Rust are in src/bpf/net.rs and src/bpf/dns.rs; both sides assert the sizes.
 */
#ifndef MITRA_NET_H
#define MITRA_NET_H

#include "record.h"

#define AF_UNIX 1
#define AF_INET 2
#define AF_INET6 10
#define SOCK_STREAM 1
#define SOCK_DGRAM 2
#define SOCK_SEQPACKET 5

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct in6_addr {
	__u8 bytes[16];
};
typedef struct {
	struct net *net;
} possible_net_t;
typedef struct {
	long long counter;
} atomic64_t;

struct sock_common {
	__be32 skc_daddr;
	__be32 skc_rcv_saddr;
	__be16 skc_dport;
	__u16 skc_num;
	unsigned short skc_family;
	volatile unsigned char skc_state;
	unsigned long skc_flags;
	int skc_incoming_cpu;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
	possible_net_t skc_net;
	atomic64_t skc_cookie;
};
struct upid {
	int nr;
};
struct pid {
	struct upid numbers[1];
};
struct sock {
	struct sock_common __sk_common;
	struct pid *sk_peer_pid;
	__u16 sk_type;
	__u16 sk_protocol;
	__u8 sk_shutdown;
	struct socket *sk_socket;
};
struct socket {
	struct sock *sk;
};
struct inet_connection_sock {
	const void *icsk_ulp_ops; /* what encrypts in the kernel */
	struct {
		__u32 lrcvtime;
	} icsk_ack;
};
struct tcp_sock {
	struct inet_connection_sock inet_conn;
	__u32 rcv_nxt;
	__u32 copied_seq;
	__u32 write_seq;
	__u32 snd_una;
	__u32 snd_wl1;
	__u32 lsndtime;
	__u32 rcv_tstamp;
	__u32 data_segs_out;
	__u64 bytes_received;
	__u64 bytes_sent;
	__u64 bytes_retrans;
};
struct sockaddr_un {
	char sun_path[108];
};
struct unix_address {
	int len;
	struct sockaddr_un name[1];
};
struct unix_sock {
	struct unix_address *addr;
	struct sock *peer;
};
struct inet_sock {
	struct sock sk;
	__be16 inet_sport;
	atomic_t inet_id;
};
/* Up to 6.5, and what was not mended since: a plain number (f866fbc842de). */
struct inet_sock___old {
	__u16 inet_id;
};
struct request_sock {
	struct sock_common __req_common;
};
struct sk_buff {
	unsigned char *head;
	__u16 transport_header;
	__u16 network_header;
};

#pragma clang attribute pop

/* Version 4 addresses are written within version 6 ones: ::ffff:10.0.0.7. */
static __always_inline void map_v4(__u8 *to, __be32 address)
{
	__builtin_memset(to, 0, 10);
	to[10] = to[11] = 0xff;
	__builtin_memcpy(to + 12, &address, sizeof(address));
}

static __always_inline __u16 swap_port(__be16 port)
{
	return __builtin_bswap16(port);
}

/* A remote end; port 0 stands for the many ports of clients. */
struct peer {
	__u8 address[16];
	__u32 port;
	__u32 pad;
};
_Static_assert(sizeof(struct peer) == 24, "twin: src/bpf/net.rs");

struct peer_sum {
	__u64 retransmits;
	__u64 resets_received;
	__u64 resets_sent;
};
_Static_assert(sizeof(struct peer_sum) == 24, "twin: src/bpf/net.rs");

/* Drops by reason. Reasons of subsystems, whose numbers begin at 1 << 16, are the last. */
#define DROP_REASONS 256
struct drop_counts {
	__u64 packets[DROP_REASONS];
};

/* A name server, in which network namespace. */
struct server {
	__u8 address[16];
	__u32 netns;
	__u32 pad;
};
_Static_assert(sizeof(struct server) == 24, "twin: src/bpf/dns.rs");

/* 1 ms doubled 13 times, and the rest. */
#define DNS_BUCKETS 15
#define DNS_FIRST_SHIFT 10

struct server_sum {
	__u64 queries;
	__u64 answers;
	__u64 unanswered;
	__u64 wait;
	__u64 latency[DNS_BUCKETS];
	/* Of the time since user space asked last. */
	__u64 worst_round;
	__u64 worst_wait;
	__u32 worst_tgid;
	__u32 pad;
	char worst_comm[16];
};
_Static_assert(sizeof(struct server_sum) == 192, "twin: src/bpf/dns.rs");

#endif
