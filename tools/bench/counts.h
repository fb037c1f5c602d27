/*
 * What requests took, by when they were answered: counts in a file that many processes may share. counts.py
 * makes the file and reads it; how the numbers lie in it is said once, here, and read from here there.
 *
 * A count of a time bin and a latency bucket. Buckets are 1/32 of an octave wide.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define COUNTS_BIN_NS 20000000
#define COUNTS_SUB_BITS 5
#define COUNTS_OCTAVES 29
#define COUNTS_BUCKETS ((COUNTS_OCTAVES + 1) << COUNTS_SUB_BITS)

static uint32_t *counts;
static uint64_t counts_start_ns, counts_bins;

static inline uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* `COUNTS=START_NS:FILE`; whoever was not given one counts nothing. */
static inline void open_counts(void)
{
	const char *given = getenv("COUNTS");
	char *path;
	struct stat s;
	void *mapped;
	int fd;

	if (!given)
		return;
	counts_start_ns = strtoull(given, &path, 10);
	fd = *path == ':' ? open(path + 1, O_RDWR | O_CLOEXEC) : -1;
	if (fd < 0 || fstat(fd, &s))
		_exit(126);
	mapped = mmap(NULL, s.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (mapped == MAP_FAILED)
		_exit(126);
	counts_bins = s.st_size / (COUNTS_BUCKETS * sizeof(*counts));
	counts = mapped;
}

static inline unsigned bucket_of(uint64_t ns)
{
	unsigned octave, bucket;

	if (ns >> COUNTS_SUB_BITS == 0)
		return ns;
	octave = 63 - __builtin_clzll(ns) - COUNTS_SUB_BITS;
	bucket = ((octave + 1) << COUNTS_SUB_BITS) + ((ns >> octave) & ((1 << COUNTS_SUB_BITS) - 1));
	return bucket < COUNTS_BUCKETS ? bucket : COUNTS_BUCKETS - 1;
}

static inline void count_request(uint64_t asked_ns, uint64_t answered_ns)
{
	uint64_t bin = (answered_ns - counts_start_ns) / COUNTS_BIN_NS;

	if (counts && bin < counts_bins)
		__atomic_fetch_add(
			&counts[bin * COUNTS_BUCKETS + bucket_of(answered_ns - asked_ns)], 1,
			__ATOMIC_RELAXED);
}

/* Work that takes longer than a bin: each bin has its share of it, in parts. */
static inline void count_work(uint64_t began_ns, uint64_t done_ns)
{
	const double parts_per_ns = 10000.0 / (done_ns - began_ns);
	uint64_t bin = (began_ns - counts_start_ns) / COUNTS_BIN_NS, from, to;

	for (from = began_ns; counts && bin < counts_bins && from < done_ns; from = to, bin++) {
		to = counts_start_ns + (bin + 1) * COUNTS_BIN_NS;
		to = to < done_ns ? to : done_ns;
		__atomic_fetch_add(
			&counts[bin * COUNTS_BUCKETS + bucket_of(done_ns - began_ns)],
			(uint32_t)(parts_per_ns * (to - from) + 0.5), __ATOMIC_RELAXED);
	}
}
