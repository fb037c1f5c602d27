// fork-bench fork|vfork|posix_spawn MIB SECONDS: starts /bin/true again and again from a process that has MIB of memory in
// small pages, and prints how many children a second ended well.
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: fork-bench fork|vfork|posix_spawn MIB SECONDS\n");
        return 2;
    }
    size_t bytes = strtoul(argv[2], NULL, 10) << 20;
    double seconds = strtod(argv[3], NULL);
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        perror("mmap");
        return 1;
    }
    // Huge pages would make the page table, which fork copies, hundreds of times smaller.
    madvise(memory, bytes, MADV_NOHUGEPAGE);
    memset(memory, 1, bytes);
    char *const child[] = {"/bin/true", NULL};
    long children = 0;
    double began = now();
    while (now() - began < seconds) {
        pid_t pid = -1;
        if (!strcmp(argv[1], "fork")) {
            pid = fork();
        } else if (!strcmp(argv[1], "vfork")) {
            pid = vfork();
        } else if (posix_spawn(&pid, child[0], NULL, NULL, child, environ)) {
            pid = -1;
        }
        if (pid == 0) {
            execve(child[0], child, environ);
            _exit(127);
        }
        int status;
        if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0) {
            perror("no child");
            return 1;
        }
        children++;
    }
    printf("{\"children\": %ld, \"children_per_s\": %.1f}\n", children, children / (now() - began));
    return 0;
}
