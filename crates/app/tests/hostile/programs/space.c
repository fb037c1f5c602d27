// Lives in namespaces of its own, as root there, in a tree where everything that one looks for is something else.
//   lies     its /proc, /tmp, /etc and /usr/lib are traps
//   gone     its root is not mounted any more
//   links    the way to its library leads through absolute links, out of its tree and into the machine's
#include "hostile.h"

static void put(const char *what, mode_t mode) {
    if (mkfifo(what, mode)) skip(what);
}

int main(int count, char **words) {
    const char *what = count > 1 ? words[1] : "";
    char *dir = getcwd(0, 0), path[4096];
    int user = getuid(), group = getgid();
    MUST(unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWUTS | CLONE_NEWCGROUP));
    write_line("/proc/self/setgroups", "deny", 0);
    write_line("/proc/self/uid_map", "0 %d 1", user);
    write_line("/proc/self/gid_map", "0 %d 1", group);
    int told[2];
    MUST(pipe(told));
    pid_t child = MUST(fork());
    if (child) {
        // The child is the first of its own, and does not know how it is called out here.
        char line[4096];
        close(told[1]);
        FILE *from = fdopen(told[0], "r");
        say("pid %d", child);
        while (fgets(line, sizeof line, from)) {
            line[strcspn(line, "\n")] = 0;
            say("%s", line);
        }
        for (;;) pause();
    }
    MUST(mount("", "/", "", MS_REC | MS_PRIVATE, 0));
    MUST(sethostname("\x1b]0;owned\x07", 10));
    MUST(mkdir("tree", 0755));
    MUST(mount("t", "tree", "tmpfs", 0, "mode=755,size=16m"));
    MUST(chdir("tree"));
    const char *folders[] = {"proc", "tmp", "etc", "usr", "usr/lib", "usr/lib/debug", "usr/lib/debug/.build-id", "dev", "jdk", "jdk/lib",
                             "jdk/lib/server", "jdk/bin", "old"};
    for (unsigned i = 0; i < sizeof folders / sizeof *folders; i++) MUST(mkdir(folders[i], 0777));
    // By its own number a JIT names its file, and it is the first here.
    put("tmp/perf-1.map", 0666);
    put("jdk/release", 0666);
    put("etc/passwd", 0666);
    put("proc/stat", 0666);
    mkdir("proc/1", 0777);
    put("proc/1/maps", 0666);
    int file = write_code("jdk/lib/server/libjvm.so", "\x7f" "ELF\2\1\1", 7);
    void *code = map_code(file);
    file = write_code("tmp/libjemalloc.so", "\x7f" "ELF\2\1\1", 7);
    void *more = map_code(file);
    void *anonymous = MUST(mmap(0, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    memcpy(anonymous, CODE, sizeof CODE);
    if (!strcmp(what, "links")) {
        // Read by the machine's root, each leads to a FIFO of the machine, or to what only root may read.
        MUST(unlink("jdk/release"));
        snprintf(path, sizeof path, "%s/outside", dir);
        MUST(mkfifo(path, 0600));
        MUST(symlink(path, "jdk/release"));
        MUST(unlink("tmp/libjemalloc.so"));
        MUST(symlink(path, "tmp/libjemalloc.so"));
        MUST(unlink("jdk/lib/server/libjvm.so"));
        MUST(symlink(getenv("MITRA_HOSTILE_SECRET"), "jdk/lib/server/libjvm.so"));
        MUST(unlink("tmp/perf-1.map"));
        MUST(symlink(path, "tmp/perf-1.map"));
    }
    MUST(syscall(SYS_pivot_root, ".", "old"));
    MUST(chdir("/"));
    if (!strcmp(what, "gone")) {
        MUST(umount2("/old", MNT_DETACH));
        MUST(umount2("/", MNT_DETACH) && errno != EINVAL && errno != EBUSY ? -1 : 0);
    }
    close(told[0]);
    dup2(told[1], 1);
    signal(SIGQUIT, SIG_IGN);
    struct sigaction handled = {.sa_handler = (void (*)(int))pause};
    sigaction(SIGQUIT, &handled, 0);
    in_a_thread(busy, code);
    in_a_thread(busy, more);
    in_a_thread(busy, anonymous);
    if (!strcmp(what, "links")) {
        // Where the machine sees it.
        say("trap /old%s/outside", dir);
    } else if (strcmp(what, "gone")) {
        say("trap /etc/passwd");
        say("trap /proc/stat");
        say("trap /proc/1/maps");
    }
    forever();
}
