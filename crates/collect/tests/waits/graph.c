/*
 * Makes a graph of processes whose threads wait for each other, and says who is who.
 *
 *     graph DIRECTORY < SCRIPT
 *
 * Lines of the script, with processes and threads by number:
 *
 *     process PARENT           a process; its parent, or -1
 *     lock PROCESS FILE KIND   it holds a lock of a file: flock or fcntl
 *     thread PROCESS OP A B    a thread of it that waits; A and B are what OP needs, HOLDS a mutex (-1)
 *     holds THREAD MUTEX       a thread holds a mutex of its process
 *     go
 *
 * It writes `p NUMBER PID` and `t NUMBER TID` and `ready`, and ends with all of them when its input ends. Every process has
 * only the descriptors that it needs.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PROCESSES = 32, THREADS = 600, FDS = 4096, LOCKS = 64, MUTEXES = 16, FILES = 16 };

struct op {
	int process, a, b, fd, fd2, holds;
	char name[16];
};

static struct shared {
	volatile int pid[PROCESSES], tid[THREADS], ready, mutexes_held[PROCESSES], alive;
} *shared;

static int parent[PROCESSES], processes, threads, locks;
static struct op ops[THREADS];
static struct { int process, file; char kind[8]; } held[LOCKS];
static unsigned owners[FDS];
static const char *directory;
static pthread_mutex_t mutexes[MUTEXES];
static pthread_mutex_t of_condition = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static int me;

static void die(const char *what)
{
	perror(what);
	kill(0, SIGKILL);
}

static int is(const struct op *op, const char *name)
{
	return strcmp(op->name, name) == 0;
}

static int begins(const struct op *op, const char *name)
{
	return strncmp(op->name, name, strlen(name)) == 0;
}

static void own(int fd, int process)
{
	if (fd < 0 || fd >= FDS)
		die("a descriptor");
	if (process >= 0)
		owners[fd] |= 1u << process;
}

static void fill(int fd)
{
	char bytes[4096] = { 0 };
	int size = 4096, quiet = 0;
	setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
	fcntl(fd, F_SETFL, O_NONBLOCK);
	/* What the other end of a connection takes in comes a little later. */
	while (quiet < 3) {
		if (write(fd, bytes, sizeof bytes) > 0) {
			quiet = 0;
		} else {
			quiet++;
			usleep(1000);
		}
	}
	fcntl(fd, F_SETFL, 0);
}

/* A pair of connected sockets: the client's, and the server's, which is not accepted for a queue. */
static void connection(struct op *op, int is_tcp, int client, int server, int is_queue, int *ours, int *theirs)
{
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	static int number;
	int listens = socket(is_tcp ? AF_INET : AF_UNIX, SOCK_STREAM, 0);
	socklen_t length = sizeof in;
	snprintf(un.sun_path, sizeof un.sun_path, "%s/%d.sock", directory, number++);
	struct sockaddr *address = is_tcp ? (struct sockaddr *)&in : (struct sockaddr *)&un;
	if (bind(listens, address, is_tcp ? sizeof in : sizeof un) || listen(listens, 8))
		die("listen");
	if (is_tcp)
		getsockname(listens, address, &length);
	*ours = socket(is_tcp ? AF_INET : AF_UNIX, SOCK_STREAM, 0);
	if (connect(*ours, address, is_tcp ? sizeof in : sizeof un))
		die("connect");
	*theirs = is_queue ? -1 : accept(listens, NULL, NULL);
	own(*ours, client);
	own(listens, server);
	if (!is_queue)
		own(*theirs, server);
	(void)op;
}

static void make(struct op *op)
{
	int two[2];
	if (begins(op, "pipe")) {
		int writes = is(op, "pipe_write");
		if (pipe(two))
			die("pipe");
		op->fd = two[writes];
		op->fd2 = two[!writes];
		own(op->fd, op->process);
		own(op->fd2, op->a);
		if (is(op, "pipe_shared"))
			own(op->fd2, op->b);
		if (is(op, "pipe_copy"))
			own(op->fd2, op->process);
		if (writes)
			fill(op->fd);
	} else if (begins(op, "pair")) {
		if (socketpair(AF_UNIX, SOCK_STREAM, 0, two))
			die("socketpair");
		op->fd = two[0];
		own(two[0], op->process);
		own(two[1], op->a);
		if (is(op, "pair_write"))
			fill(two[0]);
	} else if (begins(op, "unix") || begins(op, "tcp")) {
		int is_tcp = begins(op, "tcp"), other;
		const char *manner = strchr(op->name, '_') + 1;
		if (strcmp(manner, "serve") == 0 || strcmp(manner, "push") == 0)
			connection(op, is_tcp, op->a, op->process, 0, &other, &op->fd);
		else
			connection(op, is_tcp, op->process, op->a, strcmp(manner, "queue") == 0, &op->fd, &other);
		if (strcmp(manner, "push") == 0)
			fill(op->fd);
	} else if (is(op, "either")) {
		if (pipe(two))
			die("pipe");
		op->fd = two[0];
		own(two[0], op->process);
		own(two[1], op->a);
		if (pipe(two))
			die("pipe");
		op->fd2 = two[0];
		own(two[0], op->process);
		own(two[1], op->b);
	} else if (is(op, "accept")) {
		struct sockaddr_in in = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
		op->fd = socket(AF_INET, SOCK_STREAM, 0);
		if (bind(op->fd, (struct sockaddr *)&in, sizeof in) || listen(op->fd, 8))
			die("listen");
		own(op->fd, op->process);
	}
}

static int open_file(int file)
{
	char path[256];
	snprintf(path, sizeof path, "%s/%d.lock", directory, file);
	int fd = open(path, O_RDWR | O_CREAT, 0600);
	if (fd < 0)
		die(path);
	return fd;
}

static int take(const char *kind, int file)
{
	int fd = open_file(file);
	if (strcmp(kind, "flock") == 0)
		return flock(fd, LOCK_EX);
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	return fcntl(fd, F_SETLKW, &lock);
}

/* Waits for one of five thousand pipes. */
static void many(void)
{
	struct rlimit limit = { 16384, 16384 };
	struct epoll_event event = { .events = EPOLLIN };
	int two[2], set = epoll_create1(0);
	setrlimit(RLIMIT_NOFILE, &limit);
	for (int i = 0; i < 5000 && pipe(two) == 0; i++)
		epoll_ctl(set, EPOLL_CTL_ADD, two[0], &event);
	epoll_wait(set, &event, 1, -1);
}

static void *end_at_once(void *byte)
{
	usleep(100);
	return byte;
}

/* Threads, children and descriptors that come and go; ids and numbers are used again. */
static void churn(void)
{
	for (;;) {
		pthread_t thread;
		int two[2];
		char byte;
		pthread_create(&thread, NULL, end_at_once, NULL);
		pid_t child = fork();
		if (child == 0)
			_exit(0);
		if (pipe(two))
			die("pipe");
		fcntl(two[0], F_SETFL, O_NONBLOCK);
		read(two[0], &byte, 1);
		pthread_join(thread, NULL);
		waitpid(child, NULL, 0);
		close(two[0]);
		close(two[1]);
	}
}

static void *close_later(void *fd)
{
	usleep(10000);
	close(*(int *)fd);
	return fd;
}

static void wait_for(struct op *op)
{
	char byte;
	struct pollfd polled[2] = { { op->fd, POLLIN, 0 }, { op->fd2, POLLIN, 0 } };
	const char *manner = strchr(op->name, '_');
	manner = manner ? manner + 1 : "";
	if (is(op, "sleep")) {
		sleep(1000);
	} else if (is(op, "spin")) {
		for (;;)
			__asm__ volatile("");
	} else if (is(op, "many")) {
		many();
	} else if (is(op, "churn")) {
		churn();
	} else if (is(op, "closed")) {
		int two[2];
		pthread_t thread;
		pipe(two);
		pthread_create(&thread, NULL, close_later, &two[0]);
		read(two[0], &byte, 1);
	} else if (is(op, "accept")) {
		accept(op->fd, NULL, NULL);
	} else if (is(op, "condition")) {
		pthread_mutex_lock(&of_condition);
		pthread_cond_wait(&condition, &of_condition);
	} else if (is(op, "mutex")) {
		pthread_mutex_lock(&mutexes[op->a]);
	} else if (is(op, "flock") || is(op, "fcntl")) {
		take(op->name, op->a);
	} else if (is(op, "child")) {
		waitpid(shared->pid[op->a], NULL, 0);
	} else if (is(op, "children")) {
		siginfo_t info;
		waitid(P_ALL, 0, &info, WEXITED);
	} else if (is(op, "either")) {
		poll(polled, 2, -1);
	} else if (strcmp(manner, "woken") == 0) {
		int two[2];
		if (begins(op, "tcp") ? (two[0] = eventfd(0, 0)) < 0 : pipe(two))
			die("a descriptor to be woken by");
		polled[1].fd = two[0];
		poll(polled, 2, -1);
	} else if (strcmp(manner, "poll") == 0) {
		poll(polled, 1, 1000000);
	} else if (strcmp(manner, "select") == 0) {
		fd_set set;
		FD_ZERO(&set);
		FD_SET(op->fd, &set);
		select(op->fd + 1, &set, NULL, NULL, NULL);
	} else if (strcmp(manner, "epoll") == 0) {
		struct epoll_event event = { .events = EPOLLIN | EPOLLET };
		int set = epoll_create1(0);
		epoll_ctl(set, EPOLL_CTL_ADD, op->fd, &event);
		epoll_wait(set, &event, 1, -1);
	} else if (strcmp(manner, "write") == 0 || strcmp(manner, "push") == 0) {
		char many[65536] = { 0 };
		for (;;)
			if (write(op->fd, many, sizeof many) < 0)
				break;
	} else if (begins(op, "pipe")) {
		read(op->fd, &byte, 1);
	} else {
		recv(op->fd, &byte, 1, 0);
	}
	fprintf(stderr, "%s does not wait\n", op->name);
	pause();
}

static void *run(void *of)
{
	struct op *op = of;
	if (op->holds >= 0)
		pthread_mutex_lock(&mutexes[op->holds]);
	shared->tid[op - ops] = syscall(SYS_gettid);
	__sync_fetch_and_add(&shared->mutexes_held[me], 1);
	int own = 0;
	for (int i = 0; i < threads; i++)
		own += ops[i].process == me;
	/* Each mutex is held before somebody waits for it, and each lock of a file. */
	while (shared->mutexes_held[me] < own || shared->alive < processes)
		usleep(500);
	__sync_fetch_and_add(&shared->ready, 1);
	wait_for(op);
	return NULL;
}

static void start(int process);

static void start_children(int of)
{
	for (int i = 0; i < processes; i++)
		if (parent[i] == of)
			start(i);
}

static void start(int process)
{
	pid_t pid = fork();
	if (pid < 0)
		die("fork");
	if (pid > 0)
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	me = process;
	shared->pid[me] = getpid();
	start_children(me);
	for (int fd = 0; fd < FDS; fd++)
		if (fd != 2 && !(owners[fd] & 1u << me))
			close(fd);
	for (int i = 0; i < locks; i++)
		if (held[i].process == me)
			take(held[i].kind, held[i].file);
	__sync_fetch_and_add(&shared->alive, 1);
	pthread_attr_t small;
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 256 * 1024);
	for (int i = 0; i < threads; i++) {
		pthread_t thread;
		if (ops[i].process == me && pthread_create(&thread, &small, run, &ops[i]))
			die("thread");
	}
	for (;;)
		pause();
}

int main(int argc, char **argv)
{
	char line[128];
	if (argc != 2)
		return 2;
	directory = argv[1];
	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	for (int i = 0; i < MUTEXES; i++)
		pthread_mutex_init(&mutexes[i], NULL);
	while (fgets(line, sizeof line, stdin)) {
		struct op *op = &ops[threads];
		int thread, mutex;
		if (sscanf(line, "process %d", &parent[processes]) == 1) {
			processes++;
		} else if (sscanf(line, "lock %d %d %7s", &held[locks].process, &held[locks].file, held[locks].kind) == 3) {
			locks++;
		} else if (sscanf(line, "thread %d %15s %d %d", &op->process, op->name, &op->a, &op->b) == 4) {
			op->holds = op->fd = op->fd2 = -1;
			threads++;
		} else if (sscanf(line, "holds %d %d", &thread, &mutex) == 2) {
			ops[thread].holds = mutex;
		} else {
			break;
		}
	}
	for (int i = 0; i < threads; i++)
		make(&ops[i]);
	start_children(-1);
	for (int fd = 3; fd < FDS; fd++)
		close(fd);
	while (shared->ready < threads)
		usleep(500);
	for (int i = 0; i < processes; i++)
		printf("p %d %d\n", i, shared->pid[i]);
	for (int i = 0; i < threads; i++)
		printf("t %d %d\n", i, shared->tid[i]);
	printf("ready\n");
	fflush(stdout);
	while (fgets(line, sizeof line, stdin))
		;
	kill(0, SIGKILL);
}
