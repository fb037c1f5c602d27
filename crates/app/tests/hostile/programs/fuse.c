// Files of a server of its own that stops answering, in namespaces of its own, as any user can make them where /dev/fuse is open to all.
//   file    a library of it is mapped: its first page was never brought, its second is in use
//   line    the command line of an Erlang VM is such a page
//   locked  a change of a mapping waits for the server, and so does whoever wants to see the mappings
#include "hostile.h"
#include <linux/fuse.h>
#include <sys/uio.h>

static volatile int *is_silent;
static unsigned char content[64 * PAGE];

static void answer(int device, unsigned long unique, int error, const void *body, size_t bytes) {
    struct fuse_out_header head = {sizeof head + (error ? 0 : bytes), error, unique};
    struct iovec both[] = {{&head, sizeof head}, {(void *)body, error ? 0 : bytes}};
    if (writev(device, both, 2) < 0) return;
}

static struct fuse_attr about(unsigned long node) {
    struct fuse_attr is = {.ino = node, .size = node == 1 ? 0 : sizeof content, .mode = node == 1 ? S_IFDIR | 0755 : S_IFREG | 0777,
                           .nlink = 1, .blksize = PAGE};
    return is;
}

static void serve(int device) {
    static char request[(1 << 20) + PAGE];
    for (;;) {
        if (*is_silent) { usleep(10000); continue; }
        ssize_t read_bytes = read(device, request, sizeof request);
        if (read_bytes < 0) { if (errno == EINTR || errno == ENOENT) continue; _exit(0); }
        if (*is_silent) continue;
        struct fuse_in_header *head = (void *)request;
        void *body = head + 1;
        switch (head->opcode) {
        case FUSE_INIT: {
            struct fuse_init_out init = {.major = 7, .minor = 31, .max_readahead = 0, .max_write = 128 << 10, .time_gran = 1};
            answer(device, head->unique, 0, &init, sizeof init);
            break;
        }
        case FUSE_LOOKUP: {
            struct fuse_entry_out entry = {.nodeid = 2 + ((char *)body)[0], .attr_valid = 1000, .entry_valid = 1000};
            entry.attr = about(entry.nodeid);
            answer(device, head->unique, 0, &entry, sizeof entry);
            break;
        }
        case FUSE_GETATTR: case FUSE_SETATTR: {
            struct fuse_attr_out attr = {.attr_valid = 1000, .attr = about(head->nodeid)};
            answer(device, head->unique, 0, &attr, sizeof attr);
            break;
        }
        case FUSE_OPEN: {
            struct fuse_open_out open_out = {.open_flags = FOPEN_KEEP_CACHE};
            answer(device, head->unique, 0, &open_out, sizeof open_out);
            break;
        }
        case FUSE_READ: {
            struct fuse_read_in *wanted = body;
            size_t from = wanted->offset < sizeof content ? wanted->offset : sizeof content;
            size_t bytes = wanted->size < sizeof content - from ? wanted->size : sizeof content - from;
            answer(device, head->unique, 0, content + from, bytes);
            break;
        }
        case FUSE_FORGET: case FUSE_BATCH_FORGET: break;
        default: answer(device, head->unique, -ENOSYS, 0, 0);
        }
    }
}

static void *locks(void *at) {
    // A mapping that is to be written back is replaced: with the lock of all mappings held, the server is waited for.
    mmap(at, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    return 0;
}

int main(int count, char **words) {
    const char *what = count > 1 ? words[1] : "";
    memcpy(content, "\x7f" "ELF\2\1\1", 7);
    memcpy(content + PAGE, CODE, sizeof CODE);
    is_silent = MUST(mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    // As nobody, to whom /dev/fuse belongs on most machines; here it may be root's, who is the second user inside for the moment.
    int told[2];
    char line[128];
    MUST(pipe(told));
    pid_t self = getpid(), helper = MUST(fork());
    if (!helper) {
        if (read(told[0], line, 1) != 1) _exit(1);
        snprintf(line, sizeof line, "/proc/%d/uid_map", self);
        write_line(line, "0 %d 1\n1 0 1\n", 65534);
        snprintf(line, sizeof line, "/proc/%d/gid_map", self);
        write_line(line, "0 %d 1\n1 0 1\n", 65534);
        _exit(0);
    }
    MUST(mkdir("served", 0755));
    MUST(unshare(CLONE_NEWUSER | CLONE_NEWNS));
    MUST(write(told[1], "x", 1));
    waitpid(helper, 0, 0);
    int device = MUST(open("/dev/fuse", O_RDWR | O_CLOEXEC));
    MUST(mount("", "/", "", MS_REC | MS_PRIVATE, 0));
    snprintf(line, sizeof line, "fd=%d,rootmode=40000,user_id=0,group_id=0", device);
    MUST(mount("f", "served", "fuse", MS_NOSUID | MS_NODEV, line));
    MUST(setresgid(0, 0, 0));
    MUST(setresuid(0, 0, 0));
    MUST(prctl(PR_SET_DUMPABLE, 1));
    if (!fork()) {
        prctl(PR_SET_NAME, "server");
        serve(device);
    }
    close(device);
    char name[64];
    snprintf(name, sizeof name, "served/%s", !strcmp(what, "file") ? "libpython3.11.so" : "beam.smp");
    int file = MUST(open(name, O_RDWR));
    // Brought: the page of the code. Not brought: the one before.
    char *at = MUST(mmap(0, 64 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0));
    if (!strcmp(what, "locked")) {
        char *shared = MUST(mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 8 * PAGE));
        shared[0] = 1;
        *is_silent = 1;
        usleep(50000);
        in_a_thread(locks, shared);
        usleep(200000);
        say("ready");
        for (;;) pause();
    }
    char *code = map_code(file);
    MUST(madvise(code, PAGE, MADV_POPULATE_READ));
    *is_silent = 1;
    usleep(50000);
    if (!strcmp(what, "line")) {
        words_at(at + 16 * PAGE, at + 32 * PAGE);
    }
    in_a_thread(busy, code);
    forever();
}
