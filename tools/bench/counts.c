/*
 * Counts what requests take in a program that knows nothing of it: preloaded into redis-benchmark, wrk, fio.
 * A request is asked with a write to a descriptor and answered by the next read from it that brings something;
 * a read at an offset is a request by itself. Where `COUNTS_WHOLE` is set, a whole process is a piece of work.
 *
 * Only in the program that is called `COUNTS_OF`, not in what it was started by.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "counts.h"

#define DESCRIPTORS 4096

static uint64_t asked_ns[DESCRIPTORS];
static uint64_t began_ns;

__attribute__((constructor)) static void begin(void)
{
	const char *of = getenv("COUNTS_OF");

	if (!of || strcmp(of, program_invocation_short_name))
		return;
	open_counts();
	if (getenv("COUNTS_WHOLE"))
		began_ns = now_ns();
}

__attribute__((destructor)) static void end(void)
{
	if (began_ns)
		count_work(began_ns, now_ns());
}

static void asked(int fd)
{
	if (counts && fd >= 0 && fd < DESCRIPTORS)
		asked_ns[fd] = now_ns();
}

static ssize_t answered(int fd, ssize_t got)
{
	if (got > 0 && fd >= 0 && fd < DESCRIPTORS && asked_ns[fd]) {
		count_request(asked_ns[fd], now_ns());
		asked_ns[fd] = 0;
	}
	return got;
}

ssize_t write(int fd, const void *from, size_t len)
{
	asked(fd);
	return syscall(SYS_write, fd, from, len);
}

ssize_t send(int fd, const void *from, size_t len, int flags)
{
	asked(fd);
	return syscall(SYS_sendto, fd, from, len, flags, NULL, 0);
}

ssize_t read(int fd, void *to, size_t len)
{
	return answered(fd, syscall(SYS_read, fd, to, len));
}

ssize_t recv(int fd, void *to, size_t len, int flags)
{
	return answered(fd, syscall(SYS_recvfrom, fd, to, len, flags, NULL, NULL));
}

ssize_t pread64(int fd, void *to, size_t len, off64_t at)
{
	asked(fd);
	return answered(fd, syscall(SYS_pread64, fd, to, len, at));
}

/* What the compiler calls where it checks the size of the buffer. */
ssize_t __read_chk(int fd, void *to, size_t len, size_t size)
{
	return len <= size ? read(fd, to, len) : (abort(), -1);
}

ssize_t __recv_chk(int fd, void *to, size_t len, size_t size, int flags)
{
	return len <= size ? recv(fd, to, len, flags) : (abort(), -1);
}

ssize_t __pread64_chk(int fd, void *to, size_t len, off64_t at, size_t size)
{
	return len <= size ? pread64(fd, to, len, at) : (abort(), -1);
}
