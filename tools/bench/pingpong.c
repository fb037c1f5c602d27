/*
 * Two processes send a byte to and fro through two pipes: the shortest request and answer that a
 * kernel can serve, and two switches of context for each. Prints round trips a second and the 99th
 * percentile of a round trip in nanoseconds: `pingpong SECONDS`.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

/* Bucket i counts round trips of 100 ns * i; the last one everything longer. */
#define BUCKETS 100000
#define BUCKET_NS 100

static unsigned long histogram[BUCKETS];

static long now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000L + t.tv_nsec;
}

static int answer(int from, int to)
{
	char byte;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (read(from, &byte, 1) == 1)
		if (write(to, &byte, 1) != 1)
			return 1;
	return 0;
}

int main(int argc, char **argv)
{
	int ask[2], reply[2];
	long end, before, after;
	unsigned long count = 0, seen = 0;
	char byte = 0;
	int bucket;

	if (argc != 2 || pipe(ask) || pipe(reply))
		return 2;
	if (fork() == 0) {
		close(ask[1]);
		return answer(ask[0], reply[1]);
	}
	close(ask[0]);
	before = now_ns();
	end = before + (long)(atof(argv[1]) * 1e9);
	while (before < end) {
		if (write(ask[1], &byte, 1) != 1 || read(reply[0], &byte, 1) != 1)
			return 1;
		after = now_ns();
		bucket = (after - before) / BUCKET_NS;
		histogram[bucket < BUCKETS ? bucket : BUCKETS - 1]++;
		count++;
		before = after;
	}
	close(ask[1]);
	wait(NULL);
	for (bucket = 0; bucket < BUCKETS && seen * 100 < count * 99; bucket++)
		seen += histogram[bucket];
	printf("%.1f %ld\n", count / atof(argv[1]), (long)bucket * BUCKET_NS);
	return 0;
}
