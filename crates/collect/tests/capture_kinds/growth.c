/* Does with its memory what it is told, line by line: a word and a number of pages. Says "done" after each. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static size_t page;

static char *map(size_t pages, int flags)
{
	void *at = mmap(0, pages * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);

	return at == MAP_FAILED ? 0 : at;
}

static char *touched(size_t pages)
{
	char *at = map(pages, 0);

	if (!at)
		return 0;
	madvise(at, pages * page, MADV_NOHUGEPAGE);
	for (size_t i = 0; i < pages; i++)
		at[i * page] = 1;
	return at;
}

static void *grow(void *pages)
{
	touched((size_t)pages);
	return 0;
}

static void churn(size_t pages)
{
	for (int i = 0; i < 4; i++) {
		char *at = touched(pages);

		if (at)
			munmap(at, pages * page);
	}
}

static void threads(size_t pages)
{
	pthread_t ids[4];

	for (int i = 0; i < 4; i++)
		pthread_create(&ids[i], 0, grow, (void *)(pages / 4));
	for (int i = 0; i < 4; i++)
		pthread_join(ids[i], 0);
}

/* A child does it, which has memory of its own. */
static void child(size_t pages)
{
	pid_t pid = fork();

	if (!pid) {
		touched(pages);
		_exit(0);
	}
	waitpid(pid, 0, 0);
}

/* Half of the pages are given back, then. */
static void half(size_t pages)
{
	char *at = touched(pages);

	if (at)
		madvise(at, pages / 2 * page, MADV_DONTNEED);
}

/* One write to each of the largest pages that there are. */
static void huge(size_t pages)
{
	size_t size = 2 << 20, bytes = pages * page;
	char *at = map(pages + size / page, 0);

	if (!at)
		return;
	at = (char *)(((uintptr_t)at + size - 1) & ~(uintptr_t)(size - 1));
	madvise(at, bytes, MADV_HUGEPAGE);
	for (size_t i = 0; i < bytes; i += size)
		at[i] = 1;
	/* The first of four are given back. */
	munmap(at, bytes / 4);
}

/* The kernel fills it. */
static void reads(size_t pages)
{
	char *at = map(pages, 0);
	FILE *zero = fopen("/dev/zero", "r");

	if (!at || !zero)
		return;
	madvise(at, pages * page, MADV_NOHUGEPAGE);
	for (size_t i = 0; i < pages; i++)
		if (read(fileno(zero), at + i * page, 1) != 1)
			return;
	fclose(zero);
}

static void move(size_t pages)
{
	char *at = touched(pages);
	char *to = map(pages, 0);

	if (at && to)
		mremap(at, pages * page, pages * page, MREMAP_MAYMOVE | MREMAP_FIXED, to);
}

int main(void)
{
	char word[16];
	size_t pages;

	page = sysconf(_SC_PAGESIZE);
	/* Of what follows nothing else touches memory for the first time. */
	setvbuf(stdin, 0, _IONBF, 0);
	setvbuf(stdout, 0, _IONBF, 0);
	puts("ready");
	while (scanf("%15s %zu", word, &pages) == 2) {
		if (!strcmp(word, "grow"))
			grow((void *)pages);
		else if (!strcmp(word, "churn"))
			churn(pages);
		else if (!strcmp(word, "threads"))
			threads(pages);
		else if (!strcmp(word, "child"))
			child(pages);
		else if (!strcmp(word, "half"))
			half(pages);
		else if (!strcmp(word, "huge"))
			huge(pages);
		else if (!strcmp(word, "reads"))
			reads(pages);
		else if (!strcmp(word, "move"))
			move(pages);
		else if (!strcmp(word, "populate"))
			map(pages, MAP_POPULATE);
		puts("done");
	}
	return 0;
}
