// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * What happened on a connection while its turns were not looked at. TCP keeps what is needed: what was sent and received last, when,
 * by the clock of jiffies, and which of both came first. A Unix socket keeps nothing: what it sends may be counted.
 */
#ifndef MITRA_UNSEEN_H
#define MITRA_UNSEEN_H

#include "conns.h"

/* include/net/sock.h */
#define RCV_SHUTDOWN 1
#define SEND_SHUTDOWN 2
#define SHUTDOWN_MASK 3

/* What is younger may be none: its beginning is known to a jiffy. */
#define TICKS_MIN 2
/* Whoever has read a request acknowledges it at the latest by then (TCP_DELACK_MAX), and half a round trip later that is here. */
#define ACKNOWLEDGED_NS 300000000ULL

/* When it is looked at: as something is sent, as something has arrived, at a change of state, or just so. */
enum moment { AT_SEND, AT_ARRIVAL, AT_CHANGE, AT_REST };

static __always_inline __u32 received_to(struct sock *sk, struct tcp_sock *tcp)
{
	return tcp->rcv_nxt - other_has_ended(sk);
}

/*
 * Whether the last data that this side has sent came after the last that it received. Within one jiffy their times say nothing.
 * snd_wl1 is where the segment began that brought the last news of the other side's window or of what it has received: is it
 * the end of all that was received, then no data came with it, nor later.
 */
static __always_inline bool sent_last(struct sock *sk, struct tcp_sock *tcp, struct conn *conn, enum moment moment, __u32 tick_ns)
{
	__s32 later = tcp->lsndtime - tcp->inet_conn.icsk_ack.lrcvtime;

	if (later || moment != AT_REST)
		return later ? later > 0 : conn->role == ROLE_SERVER;
	if (tcp->snd_una != tcp->write_seq)
		return true;
	if (tcp->snd_wl1 != received_to(sk, tcp))
		return false;
	/* To a client that comes with an acknowledgement too which is alone, and with the answer to a probe of its own. */
	return conn->role == ROLE_SERVER || (__u64)(tcp->rcv_tstamp - tcp->lsndtime) * tick_ns < ACKNOWLEDGED_NS;
}

/* A request without an answer, if there is one. */
static __always_inline void find_turn(struct sock *sk, struct tcp_sock *tcp, struct conn *conn, enum moment moment, __u64 now)
{
	bool is_server = conn->role == ROLE_SERVER;
	__u32 tick_ns = setting(TICK_NS), ticks;

	conn->turn = TURN_NONE;
	if (!(is_server ? tcp->bytes_received : tcp->bytes_sent) || (is_server && (sk->sk_shutdown & SEND_SHUTDOWN)))
		return;
	if (sent_last(sk, tcp, conn, moment, tick_ns) == is_server || (!conn->was_answered && conn->messages >= ONE_WAY))
		return;
	ticks = (__u32)bpf_jiffies64() - (is_server ? tcp->inet_conn.icsk_ack.lrcvtime : tcp->lsndtime);
	if (ticks < TICKS_MIN || ticks >> 31)
		return;
	/* In the middle of that jiffy. */
	conn->asked = now - (__u64)ticks * tick_ns + tick_ns / 2;
	conn->turn = TURN_OPEN;
}

/* Segments of data that were sent, or messages of a Unix socket. */
static __always_inline __u32 sends_of(struct tcp_sock *tcp, struct conn *conn)
{
	__u32 sends = conn->messages_out;

	/* The verifier wants one instruction for each kind of pointer. */
	barrier_var(sends);
	if (tcp)
		sends = tcp->data_segs_out;
	return sends;
}

/* A request that a server of a Unix socket had not answered is still open if it has sent nothing since. */
static __always_inline void take_up_unix(struct conn *conn, bool is_sending)
{
	__u32 before = conn->messages_out - is_sending;

	if (conn->role != ROLE_SERVER || conn->turn != TURN_OPEN || before != conn->written) {
		conn->turn = TURN_NONE;
		return;
	}
	conn->is_known = 1;
	conn->seen_from = conn->seen_to = before;
}

/* What is known of a connection that was not looked at for a while. `bytes` are about to be told as sent. */
static __always_inline void take_up(struct sock *sk, struct conn *conn, __u32 window, enum moment moment, __u32 bytes, __u64 now)
{
	struct tcp_sock *tcp = is_tcp(sk) ? bpf_skc_to_tcp_sock(sk) : 0;
	bool is_same;

	conn->window = window;
	conn->is_known = 0;
	if (!tcp) {
		take_up_unix(conn, moment == AT_SEND);
		return;
	}
	is_same = tcp->write_seq - bytes == conn->written;
	if (moment == AT_ARRIVAL)
		is_same &= (__s32)(tcp->copied_seq - conn->last_seq) <= 0;
	else
		is_same &= received_to(sk, tcp) == conn->last_seq;
	if (!is_same) {
		if (moment == AT_REST || moment == AT_CHANGE)
			find_turn(sk, tcp, conn, moment, now);
		else
			conn->turn = TURN_NONE;
		conn->last_seq = moment == AT_ARRIVAL ? tcp->copied_seq : received_to(sk, tcp);
		conn->written = tcp->write_seq;
	}
	if (conn->turn == TURN_NONE)
		return;
	conn->is_known = 1;
	conn->seen_from = conn->seen_to = tcp->data_segs_out - (conn->role == ROLE_CLIENT && conn->turn == TURN_OPEN);
}

/* Segments of which it is known what was asked and answered are added up. */
static __always_inline void add_seen(struct service_slot *slot, struct conn *conn)
{
	__u32 seen = conn->seen_to - conn->seen_from;

	conn->seen_from = conn->seen_to;
	if (seen && !(seen >> 31))
		add(&slot->sends_seen, seen);
}

#endif
