// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * How long programs wait for name servers, without a look at packets: hooks at the root of
 * the control groups see sockets that are connected to port 53, that send to it and read
 * from it without being connected, and that are closed. This source is dual licensed; inside
 * the kernel it runs under the GPL, which the helpers it calls ask for.
 *
 * Resolvers differ. That of glibc connects a socket to each server, sends with send() or
 * sendmmsg(), which pass no hook, and reads with recvfrom(), which does. That of musl sends
 * and reads without connecting. Go connects and reads with read(), which passes no hook:
 * whether an answer came is then asked of the socket when it is closed.
 */
#include "net.h"

char LICENSE[] SEC("license") = "GPL";

#define DNS_PORT 53
#define WAITING_SOCKETS 1024
#define SERVERS 64
/* resolv.conf allows no more servers. */
#define SERVERS_OF_SOCKET 3
/*
 * Whoever has all answers closes the socket at once. The shortest time after which resolvers
 * give up is one second, the longest thirty (RES_MAXRETRANS): a socket that had an answer
 * and lay open for a time in between waited for another one. Beyond, it was just kept.
 */
#define GIVE_UP_NS_MIN 1000000000ULL
#define GIVE_UP_NS_MAX 30000000000ULL

/* include/uapi/linux/bpf.h: what the hooks get. The kernel translates the offsets. */
struct bpf_sock;
struct bpf_sock_addr {
	__u32 user_family;
	__u32 user_ip4;
	__u32 user_ip6[4];
	__u32 user_port;
	__u32 family;
	__u32 type;
	__u32 protocol;
	__u32 msg_src_ip4;
	__u32 msg_src_ip6[4];
	struct bpf_sock *sk;
};
struct bpf_sock {
	__u32 bound_dev_if;
	__u32 family;
	__u32 type;
	__u32 protocol;
};

/* One server that a socket has turned to. */
struct question {
	struct server server;
	/* When the oldest question without an answer was asked, and the latest one. */
	__u64 first;
	__u64 last;
	__u64 answered;
	__u32 outstanding;
	__u32 answers;
};

struct waiting {
	struct question questions[SERVERS_OF_SOCKET];
	__u32 tgid;
	__u32 next;
	__u32 is_connected;
	/* The number of the last packet sent when the last answer was read; version 4 only. */
	__u32 sent_at_answer;
	char comm[16];
};
_Static_assert(sizeof(struct waiting) == 200, "twin: src/bpf/dns.rs");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, WAITING_SOCKETS);
	__type(key, __u64);
	__type(value, struct waiting);
} waiting_sockets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, SERVERS);
	__type(key, struct server);
	__type(value, struct server_sum);
} servers SEC(".maps");

/* Templates on no stack. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct waiting);
} blank_waiting SEC(".maps");
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct server_sum);
} blank_sum SEC(".maps");

/* Written by user space each time it has read: who waited worst is of one round. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} rounds SEC(".maps");

struct {
	/* Grows with each change of servers. */
	__u64 events;
	__u64 lost;
} globals;

static __always_inline struct server_sum *server_sum(struct server *server)
{
	struct server_sum *sum = bpf_map_lookup_elem(&servers, server);
	struct server_sum *blank;
	__u32 first = 0;

	__sync_fetch_and_add(&globals.events, 1);
	if (sum)
		return sum;
	blank = bpf_map_lookup_elem(&blank_sum, &first);
	if (!blank)
		return 0;
	bpf_map_update_elem(&servers, server, blank, BPF_NOEXIST);
	sum = bpf_map_lookup_elem(&servers, server);
	if (!sum)
		__sync_fetch_and_add(&globals.lost, 1);
	return sum;
}

static __always_inline void charge_wait(struct server_sum *sum, struct waiting *w, __u64 ns)
{
	__u32 first = 0;
	__u64 *now = bpf_map_lookup_elem(&rounds, &first);

	__sync_fetch_and_add(&sum->wait, ns);
	if (!now)
		return;
	/* Two at once may mix their names; the next wait puts it right. */
	if (sum->worst_round == *now && sum->worst_wait >= ns)
		return;
	sum->worst_round = *now;
	sum->worst_wait = ns;
	sum->worst_tgid = w->tgid;
	__builtin_memcpy(sum->worst_comm, w->comm, sizeof(sum->worst_comm));
}

static __always_inline void count_answer(struct server *server, struct waiting *w, __u64 ns, bool is_timed)
{
	struct server_sum *sum = server_sum(server);
	__u32 bucket;

	if (!sum)
		return;
	__sync_fetch_and_add(&sum->answers, 1);
	if (!is_timed)
		return;
	bucket = log2_bucket((ns + 999) / 1000, DNS_FIRST_SHIFT, DNS_BUCKETS - 1);
	if (bucket < DNS_BUCKETS)
		__sync_fetch_and_add(&sum->latency[bucket], 1);
	charge_wait(sum, w, ns);
}

static __always_inline void count_unanswered(struct server *server, struct waiting *w, __u32 count, __u64 ns)
{
	struct server_sum *sum = server_sum(server);

	if (!sum)
		return;
	__sync_fetch_and_add(&sum->unanswered, count);
	charge_wait(sum, w, ns);
}

static __always_inline bool same_server(struct server *a, struct server *b)
{
	__u64 *x = (__u64 *)a, *y = (__u64 *)b;

	return x[0] == y[0] && x[1] == y[1] && x[2] == y[2];
}

/*
 * The kernel's socket, to be read as memory: the verifier forbids arithmetic on what the
 * hooks get, so the address goes by way of the stack and comes back as a number.
 */
static __always_inline void *kernel_sock(void *from_hook)
{
	void *sk = 0;

	bpf_probe_read_kernel(&sk, sizeof(sk), &from_hook);
	return sk;
}

/* The number that the socket gives its packets, one more for each; since 5.17 (23f57406b82d). */
static __always_inline __u32 packets_sent(void *sk)
{
	struct inet_sock *inet = sk;
	struct inet_sock___old *old = sk;

	if (bpf_core_field_exists(inet->inet_id.counter))
		return (__u32)BPF_CORE_READ(inet, inet_id.counter) & 0xffff;
	return BPF_CORE_READ(old, inet_id);
}

/* A connected socket notes on which CPU a packet came for it; -1 until then. */
static __always_inline bool has_received(void *sk)
{
	struct sock *s = sk;

	return BPF_CORE_READ(s, __sk_common.skc_incoming_cpu) != -1;
}

static __always_inline __u32 netns_of(void *sk)
{
	struct sock *s = sk;

	return BPF_CORE_READ(s, __sk_common.skc_net.net, ns.inum);
}

/* The socket turns to somebody else, or is closed: what is left is not answered any more. */
static __always_inline void finish(struct waiting *w, bool was_answered_unseen)
{
	__u64 now = bpf_ktime_get_ns();
	bool any_answer = false;

#pragma clang loop unroll(full)
	for (int i = 0; i < SERVERS_OF_SOCKET; i++)
		any_answer |= w->questions[i].answers > 0;
#pragma clang loop unroll(full)
	for (int i = 0; i < SERVERS_OF_SOCKET; i++) {
		struct question *q = &w->questions[i];
		/* A connected socket does not tell what it asked after its first answer. */
		__u64 since = q->outstanding ? q->first : q->answered;
		__u64 ns = now - since;
		bool gave_up = ns >= GIVE_UP_NS_MIN && ns <= GIVE_UP_NS_MAX;

		if (!since)
			continue;
		if (q->outstanding && was_answered_unseen)
			count_answer(&q->server, w, ns, ns <= GIVE_UP_NS_MAX);
		else if (q->outstanding && !any_answer)
			count_unanswered(&q->server, w, q->outstanding, ns <= GIVE_UP_NS_MAX ? ns : 0);
		else if (gave_up && (q->outstanding || w->is_connected))
			count_unanswered(&q->server, w, q->outstanding ?: 1, ns);
		q->outstanding = 0;
		q->first = q->answered = 0;
	}
}

static __always_inline struct waiting *waiting_for(__u64 *cookie, bool make)
{
	struct waiting *w = bpf_map_lookup_elem(&waiting_sockets, cookie);
	struct waiting *blank;
	__u32 first = 0;

	if (w || !make)
		return w;
	blank = bpf_map_lookup_elem(&blank_waiting, &first);
	if (!blank)
		return 0;
	bpf_map_update_elem(&waiting_sockets, cookie, blank, BPF_NOEXIST);
	w = bpf_map_lookup_elem(&waiting_sockets, cookie);
	if (w) {
		w->tgid = bpf_get_current_pid_tgid() >> 32;
		bpf_get_current_comm(w->comm, sizeof(w->comm));
	}
	return w;
}

static __always_inline void asked(struct question *q, __u64 now)
{
	if (!q->outstanding)
		q->first = now;
	q->last = now;
	q->outstanding += 1;
}

/* The question that this socket asks this server; the place of the oldest where it is new. */
static __always_inline struct question *question_for(struct waiting *w, struct server *server)
{
	struct question *q;

#pragma clang loop unroll(full)
	for (int i = 0; i < SERVERS_OF_SOCKET; i++)
		if (same_server(&w->questions[i].server, server))
			return &w->questions[i];
	q = w->next == 0 ? &w->questions[0] : w->next == 1 ? &w->questions[1] : &w->questions[2];
	w->next = w->next >= SERVERS_OF_SOCKET - 1 ? 0 : w->next + 1;
	__builtin_memset(q, 0, sizeof(*q));
	__builtin_memcpy(&q->server, server, sizeof(*server));
	return q;
}

static __always_inline int ask(void *ctx, void *sk, struct server *server, bool connects)
{
	__u64 cookie = bpf_get_socket_cookie(ctx);
	__u64 now = bpf_ktime_get_ns();
	struct waiting *w = waiting_for(&cookie, true);
	struct server_sum *sum;
	struct question *q;

	if (!w)
		return 1;
	server->netns = netns_of(sk);
	if (connects) {
		finish(w, w->is_connected && has_received(sk));
		__builtin_memset(w->questions, 0, sizeof(w->questions));
		w->is_connected = 1;
	}
	q = question_for(w, server);
	/* On a socket that is kept open questions add up that nobody answered. */
	if (q->outstanding && now - q->first > GIVE_UP_NS_MAX) {
		count_unanswered(server, w, q->outstanding, 0);
		q->outstanding = 0;
	}
	asked(q, now);
	sum = server_sum(server);
	if (sum)
		__sync_fetch_and_add(&sum->queries, 1);
	return 1;
}

static __always_inline int answer(void *ctx, void *sk, struct server *server)
{
	__u64 cookie = bpf_get_socket_cookie(ctx);
	struct waiting *w = waiting_for(&cookie, false);
	__u64 now = bpf_ktime_get_ns();
	__u32 sent = packets_sent(sk);
	bool is_timed = false;
	struct question *q = 0;
	__u64 ns = 0;

	if (!w)
		return 1;
	server->netns = netns_of(sk);
#pragma clang loop unroll(full)
	for (int i = 0; i < SERVERS_OF_SOCKET; i++)
		if (same_server(&w->questions[i].server, server))
			q = &w->questions[i];
	if (!q)
		return 1;
	if (q->outstanding) {
		ns = now - q->first;
		is_timed = true;
	} else if (w->is_connected && server->address[10] == 0xff && sent == w->sent_at_answer) {
		/* Nothing was sent since the last answer: this one was asked for as early as that. */
		ns = now - q->last;
		is_timed = true;
	}
	count_answer(server, w, ns, is_timed && ns <= GIVE_UP_NS_MAX);
	q->answers += 1;
	q->answered = now;
	if (q->outstanding)
		q->outstanding -= 1;
	q->first = q->last;
	w->sent_at_answer = sent;
	return 1;
}

static __always_inline bool is_dns(struct bpf_sock_addr *ctx)
{
	return ctx->user_port == __builtin_bswap16(DNS_PORT) && ctx->type == SOCK_DGRAM;
}

static __always_inline void server_v6(struct bpf_sock_addr *ctx, struct server *server)
{
	__u32 *words = (__u32 *)server->address;

	words[0] = ctx->user_ip6[0];
	words[1] = ctx->user_ip6[1];
	words[2] = ctx->user_ip6[2];
	words[3] = ctx->user_ip6[3];
}

SEC("cgroup/connect4")
int dns_connect4(struct bpf_sock_addr *ctx)
{
	struct server server = {};

	if (!is_dns(ctx))
		return 1;
	map_v4(server.address, ctx->user_ip4);
	return ask(ctx, kernel_sock(ctx->sk), &server, true);
}

SEC("cgroup/connect6")
int dns_connect6(struct bpf_sock_addr *ctx)
{
	struct server server = {};

	if (!is_dns(ctx))
		return 1;
	server_v6(ctx, &server);
	return ask(ctx, kernel_sock(ctx->sk), &server, true);
}

SEC("cgroup/sendmsg4")
int dns_sendmsg4(struct bpf_sock_addr *ctx)
{
	struct server server = {};

	if (!is_dns(ctx))
		return 1;
	map_v4(server.address, ctx->user_ip4);
	return ask(ctx, kernel_sock(ctx->sk), &server, false);
}

SEC("cgroup/sendmsg6")
int dns_sendmsg6(struct bpf_sock_addr *ctx)
{
	struct server server = {};

	if (!is_dns(ctx))
		return 1;
	server_v6(ctx, &server);
	return ask(ctx, kernel_sock(ctx->sk), &server, false);
}

SEC("cgroup/recvmsg4")
int dns_recvmsg4(struct bpf_sock_addr *ctx)
{
	struct server server = {};

	if (!is_dns(ctx))
		return 1;
	map_v4(server.address, ctx->user_ip4);
	return answer(ctx, kernel_sock(ctx->sk), &server);
}

SEC("cgroup/recvmsg6")
int dns_recvmsg6(struct bpf_sock_addr *ctx)
{
	struct server server = {};

	if (!is_dns(ctx))
		return 1;
	server_v6(ctx, &server);
	return answer(ctx, kernel_sock(ctx->sk), &server);
}

SEC("cgroup/sock_release")
int dns_release(struct bpf_sock *ctx)
{
	struct waiting *w;
	__u64 cookie;

	if (ctx->type != SOCK_DGRAM)
		return 1;
	cookie = bpf_get_socket_cookie(ctx);
	w = waiting_for(&cookie, false);
	if (!w)
		return 1;
	finish(w, w->is_connected && has_received(kernel_sock(ctx)));
	bpf_map_delete_elem(&waiting_sockets, &cookie);
	return 1;
}
