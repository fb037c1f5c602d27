// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Trouble on the network, counted where it happens: packets dropped with the kernel's
 * reason, segments sent again and resets by peer, sockets whose buffers are full. None of
 * these is on the way of a packet that goes well. This source is dual licensed; inside the
 * kernel it runs under the GPL, which the helpers it calls ask for.
 */
#include "net.h"

char LICENSE[] SEC("license") = "GPL";

#define PEERS 256

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct drop_counts);
} drops SEC(".maps");

/* Least recently used ones go first. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, PEERS);
	__type(key, struct peer);
	__type(value, struct peer_sum);
} peers SEC(".maps");

struct {
	/* Grows with each change of peers. */
	__u64 peer_events;
	__u64 peers_lost;
	__u64 rcvqueue_full;
	__u64 exceed_buf_limit;
	__u64 udp_fail_queue_rcv;
} globals;

/* Since 5.17 with a reason (c504e5c2f964). */
SEC("tp_btf/kfree_skb")
int packet_dropped(unsigned long long *ctx)
{
	__u32 reason = (__u32)ctx[2], first = 0;
	struct drop_counts *counts = bpf_map_lookup_elem(&drops, &first);

	if (!counts)
		return 0;
	if (reason >= DROP_REASONS - 1)
		reason = DROP_REASONS - 1;
	counts->packets[reason] += 1;
	return 0;
}

static __always_inline struct peer_sum *peer_sum(struct peer *peer)
{
	struct peer_sum *sum = bpf_map_lookup_elem(&peers, peer);
	struct peer_sum zero = {};

	__sync_fetch_and_add(&globals.peer_events, 1);
	if (sum)
		return sum;
	bpf_map_update_elem(&peers, peer, &zero, BPF_NOEXIST);
	sum = bpf_map_lookup_elem(&peers, peer);
	if (!sum)
		__sync_fetch_and_add(&globals.peers_lost, 1);
	return sum;
}

/*
 * A service has the lower of the two ports. Where the peer is the client its port is another
 * one for each connection, and only its address says something.
 */
static __always_inline void set_port(struct peer *peer, __u16 remote, __u16 local)
{
	peer->port = local && remote > local ? 0 : remote;
}

static __always_inline bool peer_of_sock(struct sock_common *sk, struct peer *peer, bool is_full)
{
	__u16 family = BPF_CORE_READ(sk, skc_family);
	__u16 local = BPF_CORE_READ(sk, skc_num);

	/* A socket that is being closed has given its port back, and still says which it was. */
	if (!local && is_full)
		local = swap_port(BPF_CORE_READ((struct inet_sock *)sk, inet_sport));

	if (family == AF_INET)
		map_v4(peer->address, BPF_CORE_READ(sk, skc_daddr));
	else if (family == AF_INET6)
		bpf_core_read(peer->address, sizeof(peer->address), &sk->skc_v6_daddr);
	else
		return false;
	set_port(peer, swap_port(BPF_CORE_READ(sk, skc_dport)), local);
	return true;
}

/* The sender of a packet that arrived. */
static __always_inline bool peer_of_packet(struct sk_buff *skb, struct peer *peer)
{
	unsigned char *head = BPF_CORE_READ(skb, head);
	unsigned char *ip = head + BPF_CORE_READ(skb, network_header);
	unsigned char *tcp = head + BPF_CORE_READ(skb, transport_header);
	__be16 ports[2] = {};
	__u8 version = 0;
	__be32 source = 0;

	if (bpf_probe_read_kernel(&version, sizeof(version), ip))
		return false;
	switch (version >> 4) {
	case 4:
		bpf_probe_read_kernel(&source, sizeof(source), ip + 12);
		map_v4(peer->address, source);
		break;
	case 6:
		bpf_probe_read_kernel(peer->address, sizeof(peer->address), ip + 8);
		break;
	default:
		return false;
	}
	if (bpf_probe_read_kernel(ports, sizeof(ports), tcp))
		return false;
	set_port(peer, swap_port(ports[0]), swap_port(ports[1]));
	return true;
}

/* The connection of a socket, or of a request for one, had to send something again. */
static __always_inline int sent_again(struct sock_common *sk, bool is_full)
{
	struct peer peer = {};
	struct peer_sum *sum;

	if (!peer_of_sock(sk, &peer, is_full))
		return 0;
	sum = peer_sum(&peer);
	if (sum)
		__sync_fetch_and_add(&sum->retransmits, 1);
	return 0;
}

SEC("tp_btf/tcp_retransmit_skb")
int segment_sent_again(unsigned long long *ctx)
{
	return sent_again((struct sock_common *)ctx[0], true);
}

SEC("tp_btf/tcp_retransmit_synack")
int synack_sent_again(unsigned long long *ctx)
{
	/* The request for a connection has the address of the peer; the socket only listens. */
	return sent_again((struct sock_common *)ctx[1], false);
}

SEC("tp_btf/tcp_receive_reset")
int reset_received(unsigned long long *ctx)
{
	struct peer peer = {};
	struct peer_sum *sum;

	if (!peer_of_sock((struct sock_common *)ctx[0], &peer, true))
		return 0;
	sum = peer_sum(&peer);
	if (sum)
		__sync_fetch_and_add(&sum->resets_received, 1);
	return 0;
}

/* There may be no socket, when nobody listens, and no packet, when a program aborts. */
SEC("tp_btf/tcp_send_reset")
int reset_sent(unsigned long long *ctx)
{
	struct sock_common *sk = (struct sock_common *)ctx[0];
	struct sk_buff *skb = (struct sk_buff *)ctx[1];
	struct peer peer = {};
	struct peer_sum *sum;

	if (skb ? !peer_of_packet(skb, &peer) : !sk || !peer_of_sock(sk, &peer, true))
		return 0;
	sum = peer_sum(&peer);
	if (sum)
		__sync_fetch_and_add(&sum->resets_sent, 1);
	return 0;
}

SEC("tp_btf/sock_rcvqueue_full")
int rcvqueue_full(unsigned long long *ctx)
{
	__sync_fetch_and_add(&globals.rcvqueue_full, 1);
	return 0;
}

SEC("tp_btf/sock_exceed_buf_limit")
int exceed_buf_limit(unsigned long long *ctx)
{
	__sync_fetch_and_add(&globals.exceed_buf_limit, 1);
	return 0;
}

SEC("tp_btf/udp_fail_queue_rcv_skb")
int udp_fail_queue_rcv(unsigned long long *ctx)
{
	__sync_fetch_and_add(&globals.udp_fail_queue_rcv, 1);
	return 0;
}
