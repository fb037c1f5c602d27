/*
 * A heap to look into: `heap MIB usual|dense` fills so many mebibytes with malloc and prints what of it is planted, then "ready".
 * It ends when its input does; the kernel kills it when its parent ends.
 *
 * The dense one is a third binary (nodes of pointers and small numbers, doubles, buffers that look compressed) and two thirds
 * strings in chunks of their own: words of a vocabulary after Zipf, keys and lines with a number each, JSON documents, UTF-8 and
 * UTF-16. The usual one has the same, and as much again and half as much of what programs hold beside it: buffers with a request
 * in front and zeros behind, and hash tables of which a quarter is taken. Five strings are the leak: of each as many copies as
 * there are objects, one for 4 KiB of the heap.
 */
#define _GNU_SOURCE
#include <math.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { WORDS = 50000, DOCUMENT_MAX = 2000 };

static uint64_t state = 88172645463325252ull;

static uint64_t dice(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

static size_t filled;
/* Or the compiler sees that nobody reads what is written. */
static void *volatile newest;

static void *get(size_t bytes)
{
	void *chunk = malloc(bytes);

	if (!chunk) {
		perror("heap: malloc");
		exit(1);
	}
	newest = chunk;
	/* What glibc takes for it. */
	filled += bytes + 8 < 32 ? 32 : (bytes + 8 + 15) & ~15ull;
	return chunk;
}

static void keep(const char *text, size_t length)
{
	char *chunk = get(length + 1);

	memcpy(chunk, text, length);
	chunk[length] = 0;
}

static char words[WORDS][24];

static const char *word(void)
{
	/* The n-th word is drawn in proportion to 1 / n. */
	double uniform = (dice() >> 11) * 0x1p-53;

	return words[(size_t)exp(uniform * log(WORDS)) % WORDS];
}

static void node(void *before)
{
	uint64_t *chunk = get(6 * sizeof(*chunk));

	chunk[0] = (uintptr_t)before;
	chunk[1] = (uintptr_t)words[dice() % WORDS];
	chunk[2] = dice() % 1000;
	chunk[3] = 0;
	chunk[4] = dice() % 7 | (dice() % 100) << 32;
	chunk[5] = (uintptr_t)chunk;
}

static void numbers(void)
{
	double *chunk = get(64 * sizeof(*chunk));

	for (int i = 0; i < 64; i++)
		chunk[i] = (double)(dice() % 100000) / 100;
}

static void compressed(void)
{
	uint64_t *chunk = get(1024);

	for (int i = 0; i < 128; i++)
		chunk[i] = dice();
}

static void document(void)
{
	char text[DOCUMENT_MAX];
	int wanted = 200 + dice() % (DOCUMENT_MAX - 300);
	int length = snprintf(text, sizeof(text), "{\"id\": %llu", (unsigned long long)dice());

	while (length < wanted)
		length += snprintf(text + length, sizeof(text) - length, ", \"%s\": \"%s\"", word(), word());
	keep(text, length);
}

static void buffer(void)
{
	char *chunk = get(4096);

	memset(chunk, 0, 4096);
	snprintf(chunk, 4096, "GET /v1/%s/%llu HTTP/1.1\r\nHost: %s.example.com\r\nX-Request-Id: %016llx\r\nAccept: */*\r\n\r\n", word(),
		 (unsigned long long)(dice() % 1000000), word(), (unsigned long long)dice());
}

static void table(void)
{
	uint64_t *chunk = get(2048);

	memset(chunk, 0, 2048);
	for (int i = 0; i < 64; i++)
		chunk[dice() % 256] = (uintptr_t)words[dice() % WORDS];
}

static void wide(const char *text)
{
	size_t length = strlen(text);
	char *chunk = get(2 * length + 2);

	for (size_t i = 0; i <= length; i++) {
		chunk[2 * i] = text[i];
		chunk[2 * i + 1] = 0;
	}
}

int main(int argc, char **argv)
{
	static const char *const leak[] = {
		"session-store/default", "Mozilla/5.0 (X11; Linux x86_64) Gecko", "eu-central-1", "application/json; charset=utf-8",
		"com.example.client.Connection",
	};
	size_t wanted = (size_t)(argc > 1 ? atol(argv[1]) : 64) << 20;
	int is_dense = argc > 2 && strcmp(argv[2], "dense") == 0;
	unsigned long objects = 0;
	char text[256];

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (int i = 0; i < WORDS; i++) {
		int length = 3 + dice() % 12;

		for (int j = 0; j < length; j++)
			words[i][j] = "etaoinshrdlucmfwypvbgkjqxz"[(dice() % 26) * (dice() % 26) / 26];
	}
	while (filled < wanted) {
		for (int i = 0; i < 4; i++)
			node(get(24));
		if (dice() % 3 == 0)
			numbers();
		if (dice() % 16 == 0)
			compressed();
		for (int i = 0; i < 5; i++) {
			const char *some = word();

			keep(some, strlen(some));
		}
		keep(text, snprintf(text, sizeof(text), "request-%08llu", (unsigned long long)(dice() % 100000000)));
		keep(text, snprintf(text, sizeof(text), "user:%llu:%s:%s", (unsigned long long)(dice() % 1000000), word(), word()));
		if (dice() % 4 == 0)
			keep(text, snprintf(text, sizeof(text), "Größe %s für %llu €", word(), (unsigned long long)(dice() % 10000)));
		if (dice() % 4 == 0)
			wide(word());
		if (dice() % 8 == 0)
			document();
		if (!is_dense && dice() % 4 == 0)
			buffer();
		if (!is_dense && dice() % 3 == 0)
			table();
		if (filled / 4096 > objects) {
			for (size_t i = 0; i < sizeof(leak) / sizeof(*leak); i++)
				keep(leak[i], strlen(leak[i]));
			objects++;
		}
	}
	for (size_t i = 0; i < sizeof(leak) / sizeof(*leak); i++)
		printf("%lu\t%s\n", objects, leak[i]);
	printf("ready\n");
	fflush(stdout);
	while (read(0, text, sizeof(text)) > 0)
		;
	return 0;
}
