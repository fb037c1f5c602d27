// Puts itself between a program and the C library, and makes the N-th call of a kind fail.
//
// MITRA_FAULT_DIR=DIR       only files below it are touched
// MITRA_FAULT=OP:N:ERROR:TIMES
//     OP     open write short read fsync rename unlink link mkdir truncate malloc
//     N      the first call that fails, counted from 1; `short` writes a part instead
//     TIMES  how many calls in a row fail
// MITRA_FAULT_COUNT=FILE    at the end, how many calls of each kind there were, by name
//
// A failed fsync does what Linux does: it says so once, and what had been written since the last good one is gone. Here it
// is gone at once, also for who reads it back.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

enum op { OPEN, WRITE, SHORT, READ, FSYNC, RENAME, UNLINK, LINK, MKDIR, TRUNCATE, MALLOC, OPS };
static const char *const names[OPS] = { "open", "write", "short", "read", "fsync", "rename",
					"unlink", "link", "mkdir", "truncate", "malloc" };

#define FDS 1024
static struct {
	int tracked;
	off_t from, until;
} fds[FDS];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const char *dir;
static size_t dir_len;
static long counts[OPS];
static int op = -1, error_number;
static long first, times;
static int ready;

static int number_of(const char *name)
{
	static const struct { const char *name; int number; } errors[] = {
		{ "EIO", EIO }, { "ENOSPC", ENOSPC }, { "EINTR", EINTR }, { "EACCES", EACCES },
		{ "EMFILE", EMFILE }, { "EROFS", EROFS }, { "EDQUOT", EDQUOT }, { "ENOMEM", ENOMEM },
	};
	for (size_t i = 0; i < sizeof(errors) / sizeof(*errors); i++)
		if (!strcmp(errors[i].name, name))
			return errors[i].number;
	return EIO;
}

__attribute__((constructor)) static void begin(void)
{
	char kind[16] = "", error[16] = "";
	const char *fault = getenv("MITRA_FAULT");

	dir = getenv("MITRA_FAULT_DIR");
	dir_len = dir ? strlen(dir) : 0;
	if (fault && sscanf(fault, "%15[^:]:%ld:%15[^:]:%ld", kind, &first, error, &times) == 4) {
		for (int i = 0; i < OPS; i++)
			if (!strcmp(names[i], kind))
				op = i;
		error_number = number_of(error);
	}
	ready = dir_len > 0;
}

__attribute__((destructor)) static void end(void)
{
	const char *path = getenv("MITRA_FAULT_COUNT");
	FILE *file;

	ready = 0;
	if (!path || !(file = fopen(path, "w")))
		return;
	for (int i = 0; i < OPS; i++)
		fprintf(file, "%s %ld\n", names[i], counts[i]);
	fclose(file);
}

// Whether this call is one that fails.
static int fails(int kind)
{
	int hit;

	pthread_mutex_lock(&lock);
	counts[kind]++;
	hit = kind == op && counts[kind] >= first && counts[kind] < first + times;
	pthread_mutex_unlock(&lock);
	if (hit)
		errno = error_number;
	return hit;
}

static int is_ours(const char *path)
{
	return ready && path && !strncmp(path, dir, dir_len);
}

static int is_tracked(int fd)
{
	return ready && fd >= 0 && fd < FDS && fds[fd].tracked;
}

#define REAL(name) \
	static __typeof__(name) *real; \
	if (!real) \
		real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

static int opened(const char *path, int fd)
{
	if (fd >= 0 && fd < FDS) {
		fds[fd].tracked = is_ours(path);
		fds[fd].from = fds[fd].until = 0;
	}
	return fd;
}

int open64(const char *path, int flags, ...)
{
	va_list list;
	mode_t mode;

	REAL(open64);
	va_start(list, flags);
	mode = va_arg(list, mode_t);
	va_end(list);
	if (is_ours(path) && fails(OPEN))
		return -1;
	return opened(path, real(path, flags, mode));
}

int close(int fd)
{
	REAL(close);
	if (fd >= 0 && fd < FDS)
		fds[fd].tracked = 0;
	return real(fd);
}

static void wrote(int fd, off_t at, ssize_t len)
{
	if (len <= 0)
		return;
	if (fds[fd].from == fds[fd].until) {
		fds[fd].from = at;
		fds[fd].until = at + len;
		return;
	}
	if (at < fds[fd].from)
		fds[fd].from = at;
	if (at + len > fds[fd].until)
		fds[fd].until = at + len;
}

ssize_t pwrite64(int fd, const void *bytes, size_t len, off64_t at)
{
	ssize_t done;

	REAL(pwrite64);
	if (!is_tracked(fd))
		return real(fd, bytes, len, at);
	if (fails(WRITE))
		return -1;
	if (fails(SHORT) && len > 1)
		len /= 2;
	done = real(fd, bytes, len, at);
	wrote(fd, at, done);
	return done;
}

ssize_t write(int fd, const void *bytes, size_t len)
{
	ssize_t done;
	off_t at;

	REAL(write);
	if (!is_tracked(fd))
		return real(fd, bytes, len);
	if (fails(WRITE))
		return -1;
	if (fails(SHORT) && len > 1)
		len /= 2;
	at = lseek(fd, 0, SEEK_CUR);
	done = real(fd, bytes, len);
	wrote(fd, at, done);
	return done;
}

ssize_t read(int fd, void *bytes, size_t len)
{
	REAL(read);
	if (is_tracked(fd) && fails(READ))
		return -1;
	return real(fd, bytes, len);
}

ssize_t pread64(int fd, void *bytes, size_t len, off64_t at)
{
	REAL(pread64);
	if (is_tracked(fd) && fails(READ))
		return -1;
	return real(fd, bytes, len, at);
}

static int synced(int fd)
{
	static const char zeros[4096];
	off_t at, until;

	if (!is_tracked(fd))
		return 0;
	if (!fails(FSYNC)) {
		fds[fd].from = fds[fd].until = 0;
		return 0;
	}
	at = fds[fd].from;
	until = fds[fd].until;
	fds[fd].from = fds[fd].until = 0;
	// The end of a file may have been cut off since.
	struct stat stat;
	if (!fstat(fd, &stat) && until > stat.st_size)
		until = stat.st_size;
	fds[fd].tracked = 0;
	while (at < until) {
		size_t part = until - at < (off_t)sizeof(zeros) ? (size_t)(until - at) : sizeof(zeros);
		if (pwrite64(fd, zeros, part, at) < 0)
			break;
		at += part;
	}
	fds[fd].tracked = 1;
	errno = error_number;
	return -1;
}

int fsync(int fd)
{
	REAL(fsync);
	return synced(fd) ? -1 : real(fd);
}

int fdatasync(int fd)
{
	REAL(fdatasync);
	return synced(fd) ? -1 : real(fd);
}

int ftruncate64(int fd, off64_t len)
{
	REAL(ftruncate64);
	if (is_tracked(fd) && fails(TRUNCATE))
		return -1;
	return real(fd, len);
}

int rename(const char *from, const char *to)
{
	REAL(rename);
	if (is_ours(from) && fails(RENAME))
		return -1;
	return real(from, to);
}

int unlink(const char *path)
{
	REAL(unlink);
	if (is_ours(path) && fails(UNLINK))
		return -1;
	return real(path);
}

int linkat(int from_dir, const char *from, int to_dir, const char *to, int flags)
{
	REAL(linkat);
	if (is_ours(from) && fails(LINK))
		return -1;
	return real(from_dir, from, to_dir, to, flags);
}

int mkdir(const char *path, mode_t mode)
{
	REAL(mkdir);
	if (is_ours(path) && fails(MKDIR))
		return -1;
	return real(path, mode);
}

extern void *__libc_malloc(size_t);
extern void *__libc_realloc(void *, size_t);

// Counted from when the first file is there.
static int starves(void)
{
	return ready && counts[OPEN] > 0 && fails(MALLOC);
}

void *malloc(size_t len)
{
	return starves() ? NULL : __libc_malloc(len);
}

void *realloc(void *old, size_t len)
{
	return starves() ? NULL : __libc_realloc(old, len);
}
