// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * What services answer and what processes ask of others, by the turns of their connections:
 * a request begins when data arrives, and ends when the answer is sent. Nothing is read of
 * what is sent, but by socket_sent_reading(). State is kept with the socket and goes with it.
 * This source is dual licensed; inside the kernel it runs under the GPL, which the helpers it
 * calls ask for.
 */
#include "answers.h"
#include "turns.h"
#include "unseen.h"

char LICENSE[] SEC("license") = "GPL";

/* include/net/tcp_states.h */
#define TCP_ESTABLISHED 1
#define TCP_SYN_SENT 2
#define TCP_SYN_RECV 3
#define TCP_CLOSE 7
#define TCP_CLOSE_WAIT 8
#define TCP_LISTEN 10

/* Who closes sooner than this after data without an answer says goodbye (QUIT, close_notify) and has not given up. */
#define PATIENCE_NS 100000000ULL

/* What a Unix socket has sent is added up a 64th at a time, and at the latest after as many messages. */
#define KEPT_SHIFT 6
#define KEPT_MAX 64

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct bpf_iter__bpf_sk_storage_map {
	struct sock *sk;
	void *value;
};
struct file;
struct bpf_iter__task_file {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
	__u32 fd;
	struct file *file;
};
#pragma clang attribute pop

/* What a Unix socket sends is kept with it for a while: an addition that all CPUs see costs as much as all the rest. */
static __always_inline void note_unix_sent(struct service_slot *slot, struct conn *conn, __u32 bytes)
{
	__u32 kept = ++conn->messages_out - conn->sends;

	conn->sent += bytes;
	if (kept < KEPT_MAX && kept <= conn->sends >> KEPT_SHIFT)
		return;
	add(&slot->sends, kept);
	add(&slot->sent, conn->sent);
	conn->sends += kept;
	conn->sent = 0;
}

/* What TCP has counted itself since this was added last, and what was seen. */
static __always_inline void add_counted(struct sock *sk, struct service_slot *slot, struct conn *conn)
{
	struct tcp_sock *tcp = is_tcp(sk) ? bpf_skc_to_tcp_sock(sk) : 0;
	__u64 sent, received;
	__u32 sends;

	if (!tcp) {
		add_seen(slot, conn);
		return;
	}
	sends = tcp->data_segs_out;
	sent = bytes_sent(tcp);
	received = bytes_received(sk, tcp);
	if (sends != conn->sends)
		add(&slot->sends, (__u32)(sends - conn->sends));
	if (sent != conn->sent)
		add(&slot->sent, sent - conn->sent);
	if (received != conn->received)
		add(&slot->received, received - conn->received);
	conn->sends = sends;
	conn->sent = sent;
	conn->received = received;
	add_seen(slot, conn);
}

static __always_inline void note_process(struct service_slot *slot)
{
	__u32 tgid = bpf_get_current_pid_tgid() >> 32;

	if (slot->tgid == tgid && slot->comm[0])
		return;
	slot->tgid = tgid;
	bpf_get_current_comm(slot->comm, sizeof(slot->comm));
}

/*
 * How often the thread that answers calls write(), and how long it has run without a pause: since it came
 * to the CPU last, or, whoever took the CPU away meanwhile, in the mean of each of its turns between two
 * sleeps since its last answer. The scheduler adds up at its ticks, and when the thread leaves the CPU.
 */
static __always_inline void note_thread(struct service_slot *slot, __u32 window)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u64 ran = task->se.sum_exec_runtime, slept = task->nvcsw, writes = FIELD_OR_NA(task, ioac.syscw);
	__u64 stretch = ran - task->se.prev_sum_exec_runtime;
	__u32 tid = bpf_get_current_pid_tgid();

	/* What it has answered between two windows is not known. */
	if (slot->window != window) {
		slot->window = window;
		slot->tid = tid;
		stretch = 0;
	} else if (slot->tid == tid) {
		__u64 since = ran - slot->oncpu_from, sleeps = slept - slot->sleeps_from;

		/* An answer is mostly the last thing before a sleep. */
		__u64 each = sleeps > 1 ? since / sleeps : since;

		if (stretch > since)
			stretch = since;
		if (stretch < each)
			stretch = each;
		/* The call that sends is counted as it returns. */
		add(&slot->writes, writes - slot->writes_from);
		add(&slot->writes_sent, 1);
	} else {
		slot->tid = tid;
	}
	slot->oncpu_from = ran;
	slot->sleeps_from = slept;
	slot->writes_from = writes;
	if (stretch > slot->oncpu_worst && (__s64)stretch > 0)
		slot->oncpu_worst = stretch;
}

/* From here on it is known what each segment of this window answers. */
static __always_inline void begin_to_know(struct conn *conn, __u32 segments)
{
	if (conn->is_known)
		return;
	conn->is_known = 1;
	conn->seen_from = conn->seen_to = segments;
}

/* In the process that sends. */
static __always_inline int note_sent(unsigned long long *ctx, bool reads_answers)
{
	struct sock *sk = (struct sock *)ctx[0];
	__u32 window = setting(WINDOW);
	int bytes = (int)ctx[1];
	struct service_slot *slot = 0;
	struct tcp_sock *tcp = 0;
	struct conn *conn;
	__u64 now;

	/* Between two windows this may be attached to count what Unix sockets send. */
	if (bytes <= 0 || !(is_unix(sk) || (window && is_tcp(sk))))
		return 0;
	conn = conn_of(sk, true, ROLE_NONE, &slot);
	if (!conn || !slot)
		return 0;
	if (is_unix(sk))
		note_unix_sent(slot, conn, bytes);
	if (!window)
		return 0;
	count_call();
	now = bpf_ktime_get_ns();
	if (conn->window != window) {
		add_seen(slot, conn);
		take_up(sk, conn, window, AT_SEND, bytes, now);
	}
	if (is_tcp(sk))
		tcp = bpf_skc_to_tcp_sock(sk);
	conn->written = conn->messages_out;
	barrier();
	if (tcp)
		conn->written = tcp->write_seq;
	note_process(slot);
	if (conn->role == ROLE_SERVER) {
		bool begins = conn->turn == TURN_OPEN || conn->turn == TURN_HALF_CLOSED;

		if (conn->turn != TURN_NONE)
			answer(slot, conn, now);
		if (reads_answers && begins)
			note_status(slot, bytes, !tcp || !tcp->inet_conn.icsk_ulp_ops);
		answered_unaccepted(sk, conn);
		if (conn->is_known)
			conn->seen_to = sends_of(tcp, conn);
		note_thread(slot, window);
	} else if (conn->turn == TURN_OPEN) {
		restart_turn(conn, now);
	} else if (expects_answer(conn)) {
		begin_to_know(conn, sends_of(tcp, conn) - 1);
		open_turn(conn, now);
	}
	return 0;
}

/* sk, ret, flags. */
SEC("tp_btf/sock_send_length")
int socket_sent(unsigned long long *ctx)
{
	return note_sent(ctx, false);
}

/* In its place where the configuration asks for the status of answers. */
SEC("tp_btf/sock_send_length")
int socket_sent_reading(unsigned long long *ctx)
{
	return note_sent(ctx, true);
}

enum arrival { ARRIVAL_NOTHING, ARRIVAL_MORE, ARRIVAL_AFTER_READING };

/* What arrived; whether all before it had been read, so that the program waited for more. */
static __always_inline enum arrival note_arrival(struct sock *sk, struct tcp_sock *tcp, struct conn *conn)
{
	bool was_read;
	__u32 bytes;

	if (!tcp)
		return ARRIVAL_MORE;
	was_read = (__s32)(tcp->copied_seq - conn->last_seq) >= 0;
	bytes = tcp->rcv_nxt - conn->last_seq;
	/* The end of the other side's data takes a number of its own. */
	if (bytes && (sk->sk_shutdown & RCV_SHUTDOWN))
		bytes--;
	if (!bytes)
		return ARRIVAL_NOTHING;
	conn->last_seq = tcp->rcv_nxt;
	return was_read ? ARRIVAL_AFTER_READING : ARRIVAL_MORE;
}

/* sk; mostly in an interrupt. */
SEC("tp_btf/sk_data_ready")
int data_ready(unsigned long long *ctx)
{
	struct sock *sk = (struct sock *)ctx[0];
	__u32 window = setting(WINDOW);
	struct service_slot *slot = 0;
	struct tcp_sock *tcp = 0;
	enum arrival arrival;
	struct conn *conn;
	__u64 now;

	count_call();
	if (!window || !(is_tcp(sk) || is_unix(sk)) || sk->__sk_common.skc_state == TCP_LISTEN)
		return 0;
	conn = conn_of(sk, false, ROLE_NONE, &slot);
	if (!conn || !slot)
		return 0;
	now = bpf_ktime_get_ns();
	if (conn->window != window) {
		add_seen(slot, conn);
		take_up(sk, conn, window, AT_ARRIVAL, 0, now);
	}
	if (is_tcp(sk))
		tcp = bpf_skc_to_tcp_sock(sk);
	arrival = note_arrival(sk, tcp, conn);
	if (arrival == ARRIVAL_NOTHING)
		return 0;
	if (conn->role == ROLE_CLIENT) {
		if (conn->turn != TURN_NONE)
			answer(slot, conn, now);
		if (conn->is_known)
			conn->seen_to = sends_of(tcp, conn);
	} else if (conn->turn == TURN_OPEN) {
		/* Of a Unix socket it is not known what was read: what was never answered may expect no answer. */
		if (arrival == ARRIVAL_AFTER_READING || (is_unix(sk) && !conn->was_answered))
			restart_turn(conn, now);
	} else if (is_tcp(sk) && (sk->sk_shutdown & SEND_SHUTDOWN)) {
		/* It has closed the connection, and answers nothing any more. */
		return 0;
	} else if (is_tcp(sk) && (sk->sk_shutdown & RCV_SHUTDOWN)) {
		/* The whole of a request, with the end of what the client sends. */
		conn->asked = now;
		conn->turn = TURN_HALF_CLOSED;
	} else if (expects_answer(conn)) {
		begin_to_know(conn, sends_of(tcp, conn));
		open_turn(conn, now);
		note_unaccepted(sk, conn);
	}
	return 0;
}

/* Whether data came with the end of what the other side sends: it is about to be told by data_ready(). */
static __always_inline bool came_with_data(struct sock *sk, struct conn *conn)
{
	struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);

	return tcp && conn->last_seq && tcp->rcv_nxt - conn->last_seq > 1;
}

/* The other side sends no more: it may still wait for the answer, or has said goodbye. */
static __always_inline void half_close(struct sock *sk, struct service_slot *slot, struct conn *conn, __u64 now)
{
	bool hangs_up = conn->role == ROLE_CLIENT;

	if (conn->turn != TURN_OPEN || (hangs_up && came_with_data(sk, conn)))
		return;
	conn->turn = TURN_HALF_CLOSED;
	if (!hangs_up && now - conn->asked < PATIENCE_NS)
		return;
	add(hangs_up ? &slot->unanswered : &slot->abandoned, 1);
	add(&slot->in_vain, now - conn->asked);
	conn->turn = TURN_NONE;
}

/* The connection ends without the other side having closed it, unless it was reset. */
static __always_inline void close_open(struct service_slot *slot, struct conn *conn, __u64 now)
{
	bool by_server = conn->role == ROLE_SERVER ? !conn->was_reset : conn->was_reset;

	if (conn->turn != TURN_OPEN)
		return;
	conn->turn = TURN_NONE;
	if (!by_server && now - conn->asked < PATIENCE_NS)
		return;
	add(by_server ? &slot->unanswered : &slot->abandoned, 1);
	add(&slot->in_vain, now - conn->asked);
}

static __always_inline void end_connecting(struct service_slot *slot, struct conn *conn, __u64 now, bool failed)
{
	conn->is_connecting = 0;
	add(&slot->connect_time, now - conn->asked);
	add(failed ? &slot->connect_failed : &slot->connections, 1);
}

/* sk, old state, new state. */
SEC("tp_btf/inet_sock_set_state")
int state_changed(unsigned long long *ctx)
{
	struct sock *sk = (struct sock *)ctx[0];
	int from = (int)ctx[1], to = (int)ctx[2];
	struct service_slot *slot = 0;
	struct conn *conn;
	__u32 window;
	__u64 now;

	if (!is_tcp(sk))
		return 0;
	if (to == TCP_LISTEN) {
		struct port_key port = { .netns = netns_of(sk), .port = sk->__sk_common.skc_num };
		__u32 one = 1;

		bpf_map_update_elem(&listening, &port, &one, BPF_ANY);
		return 0;
	}
	if (from == TCP_LISTEN)
		return 0;
	now = bpf_ktime_get_ns();
	if (to == TCP_SYN_SENT || (from == TCP_SYN_RECV && to == TCP_ESTABLISHED)) {
		bool is_server = to == TCP_ESTABLISHED;

		/* A socket may try another address after one that failed. */
		conn = is_server ? 0 : bpf_sk_storage_get(&conns, sk, 0, 0);
		if (conn)
			conn->slot = 0;
		conn = conn_of(sk, !is_server, is_server ? ROLE_SERVER : ROLE_CLIENT, &slot);
		if (!conn || !slot)
			return 0;
		if (is_server) {
			struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);

			add(&slot->connections, 1);
			if (tcp)
				conn->last_seq = tcp->rcv_nxt;
			note_unaccepted(sk, conn);
		} else {
			note_process(slot);
			conn->asked = now;
			conn->is_connecting = 1;
		}
		return 0;
	}
	conn = bpf_sk_storage_get(&conns, sk, 0, 0);
	if (!conn || !conn->slot)
		return 0;
	if (to == TCP_CLOSE)
		forget_unaccepted(sk, conn);
	slot = slot_at(conn->slot);
	if (!slot || slot->gen != conn->gen)
		return 0;
	if (conn->is_connecting) {
		struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);

		if (to == TCP_ESTABLISHED || to == TCP_CLOSE)
			end_connecting(slot, conn, now, to == TCP_CLOSE);
		if (tcp)
			conn->last_seq = tcp->rcv_nxt;
		return 0;
	}
	window = setting(WINDOW);
	if (!window || conn->window != window) {
		add_seen(slot, conn);
		take_up(sk, conn, window, AT_CHANGE, 0, now);
	}
	if (to == TCP_CLOSE_WAIT)
		half_close(sk, slot, conn, now);
	else if (to != TCP_ESTABLISHED)
		close_open(slot, conn, now);
	if (to == TCP_CLOSE)
		add_counted(sk, slot, conn);
	return 0;
}

SEC("tp_btf/tcp_receive_reset")
int reset_received(unsigned long long *ctx)
{
	struct sock *sk = (struct sock *)ctx[0];
	struct service_slot *slot;
	struct conn *conn;

	if (!sk || !is_tcp(sk))
		return 0;
	conn = bpf_sk_storage_get(&conns, sk, 0, 0);
	if (!conn || !conn->slot)
		return 0;
	slot = slot_at(conn->slot);
	if (!slot || slot->gen != conn->gen || conn->is_connecting)
		return 0;
	add(&slot->resets, 1);
	conn->was_reset = 1;
	return 0;
}

/* The slot of a connection at which a pass has come, after what the kernel has counted of it was added. */
static __always_inline struct service_slot *passed(struct sock *sk, struct conn *conn, __u64 now)
{
	__u32 window = setting(WINDOW);
	struct service_slot *slot;

	if (!conn->slot || sk->sk_shutdown == SHUTDOWN_MASK)
		return 0;
	slot = slot_at(conn->slot);
	if (!slot || slot->gen != conn->gen)
		return 0;
	add_counted(sk, slot, conn);
	if (!conn->is_connecting && (!window || conn->window != window))
		take_up(sk, conn, window, AT_REST, 0, now);
	return slot;
}

/* What is open on a connection counts in its slot. Of a Unix socket nobody says that the other side has closed it, and it is seen here. */
static __always_inline void count_open(struct sock *sk, struct conn *conn)
{
	__u64 now = bpf_ktime_get_ns(), since;
	struct service_slot *slot = passed(sk, conn, now);

	if (!slot)
		return;
	slot->alive += 1;
	if ((conn->turn != TURN_OPEN && !conn->is_connecting) || (is_unix(sk) && sk->sk_shutdown))
		return;
	since = conn->asked;
	since = now > since ? now - since : 0;
	if (conn->is_connecting) {
		slot->connecting += 1;
		slot->connecting_wait += since;
	} else {
		slot->open += 1;
		slot->open_wait += since;
	}
}

/* As a window begins: what is open on each connection. */
SEC("iter/bpf_sk_storage_map")
int window_pass(struct bpf_iter__bpf_sk_storage_map *ctx)
{
	struct conn *conn = ctx->value;
	struct sock *sk = ctx->sk;

	if (conn && sk)
		passed(sk, conn, bpf_ktime_get_ns());
	return 0;
}

/* A pass over all connections: what is open in each slot. User space zeroes the numbers before; nobody else writes them. */
SEC("iter/bpf_sk_storage_map")
int open_pass(struct bpf_iter__bpf_sk_storage_map *ctx)
{
	struct conn *conn = ctx->value;
	struct sock *sk = ctx->sk;

	if (conn && sk)
		count_open(sk, conn);
	return 0;
}

/*
 * The same, where the kernel refuses the above: over the files of all processes. Several may have the same one. A connection that has no
 * file is in `unaccepted`.
 */
static __always_inline struct conn *conn_of_file(struct bpf_iter__task_file *ctx, struct sock **sk)
{
	struct file *file = ctx->file;
	__u32 pass = ctx->meta->session_id;
	struct socket *socket;
	struct conn *conn;

	if (!file)
		return 0;
	socket = bpf_sock_from_file(file);
	if (!socket)
		return 0;
	*sk = socket->sk;
	if (!*sk)
		return 0;
	conn = bpf_sk_storage_get(&conns, *sk, 0, 0);
	if (!conn || conn->pass == pass)
		return 0;
	conn->pass = pass;
	return conn;
}

SEC("iter/task_file")
int window_pass_files(struct bpf_iter__task_file *ctx)
{
	struct sock *sk = 0;
	struct conn *conn = conn_of_file(ctx, &sk);

	if (conn && sk)
		passed(sk, conn, bpf_ktime_get_ns());
	return 0;
}

SEC("iter/task_file")
int open_pass_files(struct bpf_iter__task_file *ctx)
{
	struct sock *sk = 0;
	struct conn *conn = conn_of_file(ctx, &sk);

	if (!conn || !sk)
		return 0;
	forget_unaccepted(sk, conn);
	count_open(sk, conn);
	return 0;
}
