// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Block I/O by device and operation, counted when a request completes. The kernel stamps
 * a request when it is allocated and when the driver gets it, so no state is kept between
 * issue and completion. This source is dual licensed; inside the kernel it runs under the
 * GPL, which the helpers it calls ask for.
 */
#include "record.h"

char LICENSE[] SEC("license") = "GPL";

#define REQ_OP_MASK 0xff
#define REQ_OP_READ 0
#define REQ_OP_WRITE 1
#define REQ_OP_FLUSH 2
#define REQ_OP_DISCARD 3

/* User space sets the size by the number of devices. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 64);
	__type(key, struct block_key);
	__type(value, struct block_hist);
} block_hists SEC(".maps");

/* A template on no stack: the value is larger than half of one. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct block_hist);
} block_zero SEC(".maps");

struct {
	/* Requests of devices that came when the map was full. */
	__u64 requests_lost;
} globals;

static __always_inline struct gendisk *request_disk(struct request *rq)
{
	if (bpf_core_field_exists(rq->q->disk))
		return rq->q->disk;
	return ((struct request___old *)rq)->rq_disk;
}

static __always_inline __u32 block_op(__u32 cmd_flags)
{
	switch (cmd_flags & REQ_OP_MASK) {
	case REQ_OP_READ:
		return BLOCK_READ;
	case REQ_OP_WRITE:
		return BLOCK_WRITE;
	case REQ_OP_FLUSH:
		return BLOCK_FLUSH;
	case REQ_OP_DISCARD:
		return BLOCK_DISCARD;
	default:
		return BLOCK_OTHER;
	}
}

static __always_inline struct block_hist *block_hist(struct block_key *key)
{
	struct block_hist *h = bpf_map_lookup_elem(&block_hists, key);
	__u32 first = 0;
	struct block_hist *zero;

	if (h)
		return h;
	zero = bpf_map_lookup_elem(&block_zero, &first);
	if (!zero)
		return 0;
	bpf_map_update_elem(&block_hists, key, zero, BPF_NOEXIST);
	return bpf_map_lookup_elem(&block_hists, key);
}

static __always_inline void count_request(struct block_hist *h, struct request *rq, __u32 bytes)
{
	__u64 now = bpf_ktime_get_ns();
	__u64 started = rq->start_time_ns;
	__u64 issued = rq->io_start_time_ns;
	__u32 bucket = log2_bucket(bytes, 12, SIZE_BUCKETS - 1);

	h->count += 1;
	h->bytes += bytes;
	if (bucket < SIZE_BUCKETS)
		h->size[bucket] += 1;
	/* Stamped only where queue/iostats is on; a stamp may lie ahead of a cached clock. */
	if (!started) {
		h->untimed += 1;
		return;
	}
	started = now > started ? now - started : 0;
	h->latency_sum += started;
	bucket = log2_bucket((started + 999) / 1000, 4, LATENCY_BUCKETS - 1);
	if (bucket < LATENCY_BUCKETS)
		h->latency[bucket] += 1;
	/* Stamped only where somebody asked for queue statistics, as wbt does. */
	if (issued) {
		h->device_sum += now > issued ? now - issued : 0;
		h->device_timed += 1;
	}
}

SEC("tp_btf/block_rq_complete")
int block_complete(unsigned long long *ctx)
{
	struct request *rq = (struct request *)ctx[0];
	__u32 bytes = (__u32)ctx[2];
	struct gendisk *disk;
	struct block_hist *h;
	struct block_key key = {};

	/* A part of a request: the rest is still to come, and it counts then. */
	if (bytes < rq->__data_len)
		return 0;
	disk = request_disk(rq);
	if (!disk)
		return 0;
	key.major = disk->major;
	key.minor = disk->first_minor;
	key.op = block_op(rq->cmd_flags);
	h = block_hist(&key);
	if (!h) {
		__sync_fetch_and_add(&globals.requests_lost, 1);
		return 0;
	}
	count_request(h, rq, bytes);
	return 0;
}
