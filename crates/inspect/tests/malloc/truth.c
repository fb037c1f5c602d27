/* Allocates in a pattern, prints glibc's counts and its own, and waits. */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define THREADS 8

static char output[1 << 16];
/* What each thread holds; read from outside while it changes. */
static struct { volatile long chunks, bytes; char pad[112]; } held[THREADS];
static pthread_barrier_t done;
static long kept_chunks, kept_bytes;

static uint64_t next(uint64_t *seed)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 7;
	*seed ^= *seed << 17;
	return *seed;
}

static long chunk_bytes(void *p)
{
	return (long)malloc_usable_size(p) + 8;
}

static void *keep(size_t size)
{
	char *p = malloc(size);
	memset(p, 'x', size);
	__atomic_fetch_add(&kept_chunks, 1, __ATOMIC_RELAXED);
	__atomic_fetch_add(&kept_bytes, chunk_bytes(p), __ATOMIC_RELAXED);
	return p;
}

static void drop(void *p)
{
	__atomic_fetch_sub(&kept_chunks, 1, __ATOMIC_RELAXED);
	__atomic_fetch_sub(&kept_bytes, chunk_bytes(p), __ATOMIC_RELAXED);
	free(p);
}

/* Sizes as in usual programs: mostly small. */
static size_t some_size(uint64_t *seed)
{
	uint64_t r = next(seed);
	if (r % 100 == 0)
		return 2000 + (r >> 20) % 60000;
	return 1 + (r >> 20) % (r % 3 ? 120 : 1500);
}

static void *mixed(void *arg)
{
	uint64_t seed = 88172645463325252ull + 977 * (uintptr_t)arg;
	const int n = 60000;
	void **p = keep(n * sizeof *p);
	for (int i = 0; i < n; i++)
		p[i] = keep(some_size(&seed));
	for (int i = 0; i < n; i++)
		if (next(&seed) % 3 == 0) {
			drop(p[i]);
			p[i] = NULL;
		}
	if (arg) {
		pthread_barrier_wait(&done);
		pause();
	}
	return p;
}

/* Seven of each of ten sizes in each cache. */
static void *cached(void *arg)
{
	void *p[10][7];
	for (int i = 0; i < 10; i++)
		for (int j = 0; j < 7; j++)
			p[i][j] = malloc(24 + 64 * i);
	for (int i = 0; i < 10; i++)
		for (int j = 0; j < 7; j++)
			free(p[i][j]);
	pthread_barrier_wait(&done);
	pause();
	return arg;
}

/* Allocates and frees for ever, with some hundred megabytes in all threads together. */
static void *busy(void *arg)
{
	long me = (long)arg - 1;
	uint64_t seed = 88172645463325252ull + 977 * (uintptr_t)arg;
	const int n = 100000;
	void **p = calloc(n, sizeof *p);
	for (long round = 0;; round++) {
		int i = next(&seed) % n;
		if (round < n)
			i = round;
		if (p[i]) {
			held[me].chunks--;
			held[me].bytes -= chunk_bytes(p[i]);
			free(p[i]);
		}
		p[i] = malloc(some_size(&seed));
		held[me].chunks++;
		held[me].bytes += chunk_bytes(p[i]);
		if (round == n)
			pthread_barrier_wait(&done);
	}
	return NULL;
}

static void threads(void *(*run)(void *))
{
	pthread_t thread;
	pthread_barrier_init(&done, NULL, THREADS + 1);
	for (long i = 1; i <= THREADS; i++)
		pthread_create(&thread, NULL, run, (void *)i);
	pthread_barrier_wait(&done);
}

static void many(int n, size_t size, int every)
{
	void **p = malloc(n * sizeof *p);
	kept_chunks++;
	kept_bytes += chunk_bytes(p);
	for (int i = 0; i < n; i++)
		p[i] = keep(size);
	for (int i = 0; i < n - 1; i++)
		if (every == 0 || i % every == 0)
			drop(p[i]);
}

/* More than fits into one heap. */
static void *far(void *arg)
{
	many(150000, 1000, 3);
	pthread_barrier_wait(&done);
	pause();
	return arg;
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "mixed";
	setvbuf(stdout, output, _IOFBF, sizeof output);
	if (!strcmp(mode, "mixed")) {
		mixed(NULL);
	} else if (!strcmp(mode, "threads")) {
		threads(mixed);
	} else if (!strcmp(mode, "few-arenas")) {
		mallopt(M_ARENA_MAX, 2);
		threads(mixed);
	} else if (!strcmp(mode, "cached")) {
		threads(cached);
	} else if (!strcmp(mode, "busy")) {
		threads(busy);
	} else if (!strcmp(mode, "heaps")) {
		pthread_t thread;
		pthread_barrier_init(&done, NULL, 2);
		pthread_create(&thread, NULL, far, NULL);
		pthread_barrier_wait(&done);
	} else if (!strcmp(mode, "fragments")) {
		many(400000, 500, 2);
	} else if (!strcmp(mode, "fastbins")) {
		many(500000, 100, 2);
	} else if (!strcmp(mode, "freed")) {
		many(500000, 200, 0);
	} else if (!strcmp(mode, "mmapped")) {
		void *p[64];
		for (int i = 0; i < 64; i++)
			p[i] = malloc((1 << 20) + 50000 * i);
		for (int i = 0; i < 64; i += 5)
			free(p[i]);
		/* Freeing raised the threshold: these are larger. */
		for (int i = 0; i < 4; i++) {
			void *q;
			if (posix_memalign(&q, 1 << 16, 40 << 20))
				return 1;
		}
		p[1] = realloc(p[1], 20 << 20);
	} else if (!strcmp(mode, "foreign")) {
		many(1000, 1000, 3);
		memset(sbrk(100000), 'f', 100000);
		many(2000, 1000, 3);
		memset(sbrk(12345), 0, 12345);
		many(2000, 1000, 3);
	} else if (!strcmp(mode, "no-brk")) {
		many(100, 1000, 3);
		/* Something is in the way of the heap. */
		char *end = (char *)(((uintptr_t)sbrk(0) + 65535) & ~65535ul);
		mmap(end, 65536, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
		many(20000, 1000, 3);
	} else if (!strcmp(mode, "trimmed")) {
		many(1000, 100000, 2);
		malloc_trim(0);
	}
	struct mallinfo2 m = mallinfo2();
	printf("arena %zu ordblks %zu smblks %zu hblks %zu hblkhd %zu fsmblks %zu uordblks %zu fordblks %zu\n", m.arena,
	       m.ordblks, m.smblks, m.hblks, m.hblkhd, m.fsmblks, m.uordblks, m.fordblks);
	printf("kept %ld %ld held %p\n", kept_chunks, kept_bytes, (void *)held);
	if (strcmp(mode, "busy"))
		malloc_info(0, stdout);
	puts("ready");
	fflush(stdout);
	pause();
}
