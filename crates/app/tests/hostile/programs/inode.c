// A library lies on a file system of its own, under the number that a trap has elsewhere; its name leads to the trap then. Whoever
// compares numbers only takes the trap for the library.
//   fifo, device, secret    the trap, on another file system at the same place in the process' own mount namespace
//   outside                 an absolute link of a container, which the machine's own root resolves: to a FIFO of the machine
#include "hostile.h"

static ino_t number(const char *path) {
    struct stat about;
    MUST(stat(path, &about));
    return about.st_ino;
}

// A library with this number: files of a tmpfs are numbered as they come.
static int library(const char *path, ino_t wanted) {
    for (int i = 0; i < 2000000; i++) {
        int file = MUST(open(path, O_CREAT | O_RDWR | O_EXCL, 0755));
        struct stat about;
        MUST(fstat(file, &about));
        if (about.st_ino == wanted) {
            close(file);
            return write_code(path, "\x7f" "ELF\2\1\1", 7);
        }
        if (about.st_ino > wanted) break;
        close(file);
        MUST(unlink(path));
    }
    errno = ERANGE;
    skip("a file with the number of the trap");
    return -1;
}

int main(int count, char **words) {
    const char *what = count > 1 ? words[1] : "";
    char *dir = getcwd(0, 0), outside[4096], path[4096];
    int is_outside = !strcmp(what, "outside");
    snprintf(outside, sizeof outside, "/dev/shm/mitra-hostile-%d", getpid());
    if (is_outside) {
        MUST(mkfifo(outside, 0600));
        say("remove %s", outside);
    }
    MUST(unshare(CLONE_NEWNS));
    MUST(mount("", "/", "", MS_REC | MS_PRIVATE, 0));
    MUST(mkdir("mapped", 0755));
    MUST(mkdir("seen", 0755));
    MUST(mount("t", "mapped", "tmpfs", 0, "size=16m"));
    MUST(mount("t", "seen", "tmpfs", 0, "size=16m"));
    snprintf(path, sizeof path, "%s/mapped/libjemalloc.so", dir);
    char there[4096];
    snprintf(there, sizeof there, "%s/seen/libjemalloc.so", dir);
    if (!strcmp(what, "fifo")) MUST(mkfifo(there, 0666));
    if (!strcmp(what, "device")) MUST(mknod(there, S_IFCHR | 0666, 1 << 8 | 3));
    if (!strcmp(what, "secret")) write_text(there, "only-for-root stable release version 9.9.", 0600);
    if (is_outside) MUST(symlink(outside, there));
    int file = library(path, is_outside ? number(outside) : number(there));
    in_a_thread(busy, map_code(file));
    // The one that is mapped is covered, and the other one is found by its name.
    MUST(mount("seen", "mapped", "", MS_BIND, 0));
    say("trap %s", is_outside ? outside : path);
    forever();
}
