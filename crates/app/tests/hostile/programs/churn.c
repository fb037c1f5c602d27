// Comes and goes faster than it can be looked at.
//   maps, threads, execs    mappings, threads, programs
//   forks                   processes, eight at a time
//   leader                  the first thread has ended, others live
//   stopped                 stopped, with a child that has ended and is not waited for
//   numbers                 a process after the other has the number that is looked at
#include "hostile.h"
#include <linux/sched.h>

// One of many is slower.
static void rest(void) {
    if (getenv("MITRA_HOSTILE_MANY")) usleep(50000);
}

static void *none(void *with) { return with; }

static void *maps(void *with) {
    for (;;) {
        char *at[64];
        for (int i = 0; i < 64; i++) {
            at[i] = mmap(0, PAGE * (1 + i), PROT_READ | PROT_WRITE | (i & 1 ? PROT_EXEC : 0), MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (at[i] != MAP_FAILED) memset(at[i], 0x41, PAGE * (1 + i));
        }
        for (int i = 0; i < 64; i++) if (at[i] != MAP_FAILED) munmap(at[i], PAGE * (1 + i));
        rest();
    }
    return with;
}

static void *mallocs(void *with) {
    for (;;) {
        void *at[512];
        for (int i = 0; i < 512; i++) at[i] = malloc(24 << (i % 12));
        for (int i = 0; i < 512; i++) free(at[i]);
        rest();
    }
    return with;
}

static void *threads(void *with) {
    for (;;) {
        pthread_t thread;
        if (!pthread_create(&thread, 0, none, 0)) pthread_join(thread, 0);
        rest();
    }
    return with;
}

static void *late(void *with) {
    usleep(50000);
    say("ready");
    for (;;) { void *some = malloc(100); free(some); usleep(1000); }
    return with;
}

// Life after life under one number.
static void numbers(void) {
    pid_t wanted = MUST(fork());
    if (!wanted) _exit(0);
    waitpid(wanted, 0, 0);
    for (int lives = 0;; lives++) {
        struct clone_args how = {.exit_signal = SIGCHLD, .set_tid = (unsigned long)&wanted, .set_tid_size = 1};
        pid_t child = MUST(syscall(SYS_clone3, &how, sizeof how));
        if (!child) {
            // Every second one is another program.
            if (lives & 1) execl("/proc/self/exe", "churn", "maps-quietly", (char *)0);
            mallocs(0);
        }
        if (lives == 0) say("pid %d", child), say("ready");
        usleep(2000 + lives * 777 % 20000);
        rest();
        kill(child, SIGKILL);
        waitpid(child, 0, 0);
    }
}

int main(int count, char **words) {
    const char *what = count > 1 ? words[1] : "";
    if (!strcmp(what, "maps")) {
        in_a_thread(maps, 0);
        in_a_thread(mallocs, 0);
        in_a_thread(mallocs, 0);
        forever();
    }
    if (!strcmp(what, "threads")) {
        for (int i = 0; i < 3; i++) in_a_thread(threads, 0);
        forever();
    }
    if (!strcmp(what, "execs")) {
        if (!getenv("AGAIN")) say("ready");
        setenv("AGAIN", "1", 1);
        void *kept[100];
        for (int i = 0; i < 100; i++) kept[i] = malloc(10000);
        usleep(kept[9] ? 2000 : 0);
        rest();
        execl("/proc/self/exe", "churn", "execs", (char *)0);
    }
    if (!strcmp(what, "forks")) {
        // What the children leave behind is waited for here: the first process of a machine may be slow at it.
        MUST(prctl(PR_SET_CHILD_SUBREAPER, 1));
        say("ready");
        for (int alive = 0;; rest()) {
            if (alive < 16) {
                pid_t child = fork();
                if (!child) {
                    if (!fork()) _exit(0);
                    char *some = malloc(1 << 20);
                    memset(some, 1, 1 << 20);
                    _exit(some[5] - 1);
                }
                alive += child > 0 ? 2 : 0;
            }
            while (alive && waitpid(-1, 0, alive < 16 ? WNOHANG : 0) > 0) alive--;
        }
    }
    if (!strcmp(what, "leader")) {
        in_a_thread(late, 0);
        in_a_thread(mallocs, 0);
        pthread_exit(0);
    }
    if (!strcmp(what, "stopped")) {
        if (!fork()) _exit(3);
        in_a_thread(mallocs, 0);
        say("ready");
        raise(SIGSTOP);
        for (;;) pause();
    }
    if (!strcmp(what, "maps-quietly")) maps(0);
    if (!strcmp(what, "numbers")) numbers();
    return 1;
}
