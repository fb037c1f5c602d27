/*
 * Processes for a recorder to look at: `load WORKDIR IDLE BUSY [CHURN]`.
 *
 * Starts IDLE times `sleep infinity` and BUSY processes that each use one to two per cent of a CPU in small
 * bursts, write and read a file in WORKDIR, and grow and shrink a little. Prints "ready" when all run, and
 * ends when its input does. The kernel kills every child when this process ends, however it ends. CHURN children
 * more begin in each second and end within a second, half of them with another name than they began with.
 *
 * The bursts differ in length by a fixed sequence per process: numbers that never vary would flatter a
 * recorder that stores differences, and chance would not be the same for all.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
	PERIOD_US = 20000,
	BURST_MIN_US = 200,
	BURST_MAX_US = 400,
	BLOCK_BYTES = 4096,
	FILE_BLOCKS = 256,
	WRITE_EVERY = 10,
	GROW_EVERY = 50,
	GROW_BYTES_MAX = 64 * 4096,
	PROCESSES_MAX = 100000,
	CHURN_TICK_MS = 20,
	CHURN_LIFE_MS_MAX = 1000,
};

static pid_t children[2 * PROCESSES_MAX];
static int children_len;

static void fail(const char *what)
{
	fprintf(stderr, "load: %s: %s\n", what, strerror(errno));
	exit(1);
}

static uint64_t now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static uint32_t next(uint32_t *state)
{
	*state = *state * 1664525 + 1013904223;
	return *state >> 8;
}

static void busy(const char *dir, int number)
{
	static char block[BLOCK_BYTES];
	char path[4096], name[32];
	uint32_t chance = 12345 + number * 7919;
	uint64_t due_us = now_us() + next(&chance) % PERIOD_US;
	char *grown = NULL;

	snprintf(name, sizeof(name), "load-busy-%d", number);
	prctl(PR_SET_NAME, name);
	snprintf(path, sizeof(path), "%s/busy-%d", dir, number);
	int fd = open(path, O_CREAT | O_RDWR | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		fail(path);
	for (uint32_t turn = 0;; turn++) {
		uint64_t end_us = now_us() + BURST_MIN_US + next(&chance) % (BURST_MAX_US - BURST_MIN_US);

		while (now_us() < end_us)
			;
		if (turn % WRITE_EVERY == 0) {
			off_t at = (off_t)(next(&chance) % FILE_BLOCKS) * BLOCK_BYTES;

			if (pwrite(fd, block, sizeof(block), at) < 0 || pread(fd, block, sizeof(block), at) < 0)
				fail(path);
		}
		if (turn % GROW_EVERY == 0) {
			size_t bytes = 1 + next(&chance) % GROW_BYTES_MAX;

			free(grown);
			grown = malloc(bytes);
			if (grown)
				memset(grown, 1, bytes);
		}
		due_us += PERIOD_US;
		struct timespec until = { .tv_sec = due_us / 1000000, .tv_nsec = due_us % 1000000 * 1000 };
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
	}
}

static void start(const char *dir, int busy_number, pid_t parent)
{
	pid_t pid = fork();

	if (pid < 0)
		fail("cannot start another process");
	if (pid > 0) {
		children[children_len++] = pid;
		return;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	/* Otherwise the children would keep the spawner's input open and its output unfinished. */
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0)
		fail("/dev/null");
	if (busy_number >= 0)
		busy(dir, busy_number);
	execlp("sleep", "sleep", "infinity", (char *)NULL);
	fail("sleep");
}

/* One that is gone soon. Nobody waits for it: the kernel buries it. */
static void start_short(uint32_t *chance, uint32_t number)
{
	uint32_t life_ms = next(chance) % CHURN_LIFE_MS_MAX;
	pid_t parent = getpid(), pid = fork();

	if (pid < 0)
		fail("cannot start another process");
	if (pid > 0)
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	if (number % 2) {
		char name[32];

		snprintf(name, sizeof(name), "short-%u", number % 1000);
		prctl(PR_SET_NAME, name);
	}
	struct timespec life = { .tv_sec = life_ms / 1000, .tv_nsec = life_ms % 1000 * 1000000L };
	nanosleep(&life, NULL);
	_exit(0);
}

/* Until the input ends. */
static void churn(int per_second)
{
	struct pollfd input = { .fd = 0, .events = POLLIN };
	uint32_t chance = 4242, number = 0;
	uint64_t began_us = now_us();
	char byte;

	for (;;) {
		int ready = poll(&input, 1, per_second ? CHURN_TICK_MS : -1);

		if (ready > 0 && read(0, &byte, 1) <= 0)
			return;
		uint64_t due = (now_us() - began_us) * per_second / 1000000;
		/* What a stopped machine has missed is not made up for. */
		if (due > number + 2 * (uint64_t)per_second)
			number = due;
		for (; number < due; number++)
			start_short(&chance, number);
	}
}

static int count(const char *text)
{
	char *end;
	long value = strtol(text, &end, 10);

	if (*text == 0 || *end != 0 || value < 0 || value > PROCESSES_MAX) {
		fprintf(stderr, "load: %s: not a number from 0 to %d\n", text, PROCESSES_MAX);
		exit(2);
	}
	return (int)value;
}

int main(int argc, char **argv)
{
	pid_t self = getpid();

	if (argc != 4 && argc != 5) {
		fprintf(stderr, "usage: load WORKDIR IDLE BUSY [CHURN]\n");
		return 2;
	}
	/* The harness that started us may be killed: then go too, and with us the children. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (int i = 0, n = count(argv[2]); i < n; i++)
		start(argv[1], -1, self);
	for (int i = 0, n = count(argv[3]); i < n; i++)
		start(argv[1], i, self);
	puts("ready");
	fflush(stdout);
	signal(SIGCHLD, SIG_IGN);
	churn(argc == 5 ? count(argv[4]) : 0);
	/* Not left to the init of the machine, which may take its time to bury so many. */
	for (int i = 0; i < children_len; i++)
		kill(children[i], SIGKILL);
	for (int i = 0; i < children_len; i++)
		waitpid(children[i], NULL, 0);
	return 0;
}
