// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * What the program of services hands over. The twins in Rust are in src/bpf/services.rs;
 * both sides assert the sizes. Times in nanoseconds.
 */
#ifndef MITRA_SERVICES_H
#define MITRA_SERVICES_H

#include "net.h"

/* Of both kinds, and the first one, which nobody has. */
#define SLOTS 1024
/* Steps of a sixteenth of a power of two from 1 us to 2 minutes; see latency_bucket(). */
#define SERVICE_BUCKETS 400
#define UNIX_PATH 108

enum service_role { ROLE_NONE, ROLE_SERVER, ROLE_CLIENT };

/* How an answer went, by its first bytes. The twins are STATUSES and PROTOCOLS in src/net/service_rows.rs. */
enum status { STATUS_UNKNOWN, STATUS_OK, STATUS_CLIENT_ERROR, STATUS_SERVER_ERROR, STATUSES };
enum protocol {
	PROTOCOL_UNKNOWN,
	PROTOCOL_HTTP,
	PROTOCOL_REDIS,
	PROTOCOL_POSTGRESQL,
	PROTOCOL_MYSQL,
	PROTOCOL_MEMCACHED,
};

/* A server by its own address, a client by the address that it calls and its process. */
struct service_key {
	__u8 address[16]; /* of a Unix socket a hash of its name, in the first half */
	__u32 netns;
	__u32 tgid; /* of clients */
	__u16 port; /* 0: a Unix socket */
	__u8 role;
	__u8 pad[5];
};
_Static_assert(sizeof(struct service_key) == 32, "twin: src/bpf/services.rs");

struct service_slot {
	__u64 gen;	/* grows when the slot goes to another key */
	__u64 response; /* time until the answers, added up; how many they are says the histogram */
	__u64 in_vain;	/* time that was waited for answers that did not come */
	__u64 unanswered;
	__u64 abandoned;
	__u64 connections;
	__u64 connect_time;
	__u64 connect_failed;
	__u64 resets;
	__u64 sent; /* of TCP at each pass and at the end, of a Unix socket little by little */
	__u64 received;
	__u64 sends;	  /* segments of TCP or messages of a Unix socket, likewise: they say how much of all was seen */
	__u64 sends_seen; /* those of which it is known what was asked and answered */
	__u64 worst; /* since user space wrote a zero here */
	__u64 oncpu_worst; /* likewise: CPU time of a thread without a pause, from one answer to the next */
	__u64 oncpu_from;  /* CPU time of the thread that answered last, when it did */
	__u64 sleeps_from; /* likewise: how often it had slept */
	__u64 writes_from; /* likewise: how often it had called write() */
	__u64 writes;	   /* calls of write() from one answer of a thread to its next, within windows */
	__u64 writes_sent; /* and what it sent in those */
	__u64 answers[STATUSES]; /* by how they went, where that is read */
	/* Of the last pass over all connections. */
	__u64 open;	   /* requests without an answer */
	__u64 open_wait;   /* how long those have waited, added up */
	__u64 connecting;
	__u64 connecting_wait;
	__u64 alive; /* connections */
	__u32 tgid;
	__u32 tid;    /* of the thread that answered last */
	__u32 window; /* in which it did */
	__u32 protocol; /* of the last answer whose status was known */
	char comm[16];
	char path[UNIX_PATH + 4];
	__u32 latency[SERVICE_BUCKETS];
};
_Static_assert(sizeof(struct service_slot) == 1976, "twin: src/bpf/services.rs");

#endif
