// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* The turns of a connection: a request begins when data arrives, and ends when the answer is sent. */
#ifndef MITRA_TURNS_H
#define MITRA_TURNS_H
#include "conns.h"

/* An answer in parts goes on after a pause as long as the answer so far, or as this. */
#define PAUSE_NS 1000000ULL

/* Sixteen steps for each power of two of units of 1024 ns. */
static __always_inline __u32 latency_bucket(__u64 ns)
{
	__u64 v = ns >> 10, left = v;
	__u32 power = 0, bucket;

	if (v < 16)
		return v;
	if (left >> 32)
		return SERVICE_BUCKETS - 1;
	if (left >> 16) {
		power += 16;
		left >>= 16;
	}
	if (left >> 8) {
		power += 8;
		left >>= 8;
	}
	if (left >> 4) {
		power += 4;
		left >>= 4;
	}
	if (left >> 2) {
		power += 2;
		left >>= 2;
	}
	power += left >> 1;
	bucket = (power - 3) * 16 + ((v >> (power - 4)) & 15);
	return bucket < SERVICE_BUCKETS ? bucket : SERVICE_BUCKETS - 1;
}

static __always_inline void count_latency(struct service_slot *slot, __u32 bucket, __u32 n)
{
	if (bucket < SERVICE_BUCKETS)
		__sync_fetch_and_add(&slot->latency[bucket], n);
}

static __always_inline void open_turn(struct conn *conn, __u64 now)
{
	conn->asked = now;
	conn->turn = TURN_OPEN;
}

/* More of a request, or another one before the answer: the time is that from the last one on. */
static __always_inline void restart_turn(struct conn *conn, __u64 now)
{
	conn->asked = now;
	if (!conn->was_answered && conn->messages < ONE_WAY && ++conn->messages == ONE_WAY)
		conn->turn = TURN_NONE;
}

static __always_inline bool expects_answer(struct conn *conn)
{
	return conn->was_answered || conn->messages < ONE_WAY;
}

/* The answer, or a further part of it. */
static __always_inline void answer(struct service_slot *slot, struct conn *conn, __u64 now)
{
	__u64 took = now - conn->asked;
	__u32 bucket = latency_bucket(took);

	if (conn->turn == TURN_ANSWERED) {
		__u64 pause = now - conn->answered;

		if (pause > PAUSE_NS && pause > conn->answered - conn->asked)
			return;
		add(&slot->response, pause);
		if (bucket != conn->bucket) {
			count_latency(slot, conn->bucket, -1);
			count_latency(slot, bucket, 1);
		}
	} else {
		conn->turn = TURN_ANSWERED;
		conn->was_answered = 1;
		add(&slot->response, took);
		count_latency(slot, bucket, 1);
	}
	if (took > slot->worst)
		slot->worst = took;
	conn->answered = now;
	conn->bucket = bucket;
}

#endif
