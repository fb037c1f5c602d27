/*
 * Grows by a megabyte each 100 ms in leak_here, by many small blocks of its heap and by a mapping in turn, while churn gets and returns memory
 * in the same thread, and another thread grows by a quarter of that. Says who has leaked, when, and how many bytes.
 */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define MEGABYTE (1 << 20)
/* malloc itself touches nearly every page first, and memset or calloc the rest: neither has a frame pointer. */
#define SMALL 48

/* One for each thread: both write to it, and ask malloc for the size of what they have just got. */
static _Thread_local void *volatile kept;

__attribute__((noinline)) static size_t leak_here(size_t block)
{
	size_t got = 0;

	/* With the size that malloc puts before each. */
	for (; got < MEGABYTE; got += malloc_usable_size(kept) + sizeof(size_t)) {
		kept = malloc(block);
		memset(kept, 1, block);
	}
	return got;
}

__attribute__((noinline)) static size_t leak_in_thread(void)
{
	size_t got = 0;

	for (; got < MEGABYTE / 4; got += malloc_usable_size(kept) + sizeof(size_t))
		kept = calloc(1, 1000);
	return got;
}

__attribute__((noinline)) static void churn(void)
{
	char *buffer = mmap(0, MEGABYTE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (buffer == MAP_FAILED)
		return;
	memset(buffer, 1, MEGABYTE);
	munmap(buffer, MEGABYTE);
}

static void say(const char *what, size_t bytes)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	printf("%s %lld %zu\n", what, now.tv_sec * 1000000000LL + now.tv_nsec, bytes);
	fflush(stdout);
}

static void *leaks(void *unused)
{
	for (;;) {
		say("leak_in_thread", leak_in_thread());
		usleep(100 * 1000);
	}
	return unused;
}

int main(void)
{
	pthread_t thread;

	say("ready", 0);
	pthread_create(&thread, 0, leaks, 0);
	for (int turn = 0;; turn++) {
		say("leak_here", leak_here(turn % 2 ? MEGABYTE : SMALL));
		for (int i = 0; i < 5; i++) {
			churn();
			usleep(20 * 1000);
		}
	}
}
