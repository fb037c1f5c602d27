// Memory that cannot be read, or whose reader waits for ever: pages that somebody has to bring, and does not.
//   waits-code, waits-python    userfaultfd behind the lowest code, behind what is called libpython
//   waits-line                  behind the command line and the environment of an Erlang VM
//   goes                        pages that are there when asked for and awaited when read
//   unreadable                  no access, guards, secrets, nothing behind a file
//   sparse                      a terabyte of addresses, each of some pages touched
//   many                        as many mappings as there may be, of long names
#include "hostile.h"
#include <linux/userfaultfd.h>

static int faults = -1;

static void await(void *at, size_t bytes) {
    if (faults < 0) {
        faults = MUST(syscall(SYS_userfaultfd, O_CLOEXEC));
        struct uffdio_api api = {.api = UFFD_API, .features = UFFD_FEATURE_MISSING_SHMEM};
        MUST(ioctl(faults, UFFDIO_API, &api));
    }
    struct uffdio_register range = {{(unsigned long)at, bytes}, UFFDIO_REGISTER_MODE_MISSING, 0};
    MUST(ioctl(faults, UFFDIO_REGISTER, &range));
}

// A file in memory, with nothing in it but perhaps some code.
static int hollow(const char *name, int has_code) {
    char path[256];
    snprintf(path, sizeof path, "/dev/shm/mitra-hostile-%d-%s", getpid(), name);
    mkdir(path, 0755);
    say("remove %s", path);
    snprintf(path, sizeof path, "/dev/shm/mitra-hostile-%d-%s/%s", getpid(), name, name);
    int file = MUST(open(path, O_CREAT | O_RDWR, 0755));
    MUST(ftruncate(file, 16 * PAGE));
    if (has_code) MUST(pwrite(file, CODE, sizeof CODE, PAGE));
    return file;
}

static void *drops(void *at) {
    for (;;) {
        char *page = at;
        // Written by the thread that brings pages, gone a moment later.
        struct uffdio_zeropage zero = {{(unsigned long)page, 256 * PAGE}, 0, 0};
        ioctl(faults, UFFDIO_ZEROPAGE, &zero);
        for (int i = 0; i < 256; i++) page[i * PAGE] = 'x';
        usleep(300);
        madvise(page, 256 * PAGE, MADV_DONTNEED);
        usleep(100);
    }
    return 0;
}

int main(int count, char **words) {
    const char *what = count > 1 ? words[1] : "";
    if (!strcmp(what, "waits-code")) {
        // Below everything else.
        char *low = MUST(mmap((void *)0x10000, 16 * PAGE, PROT_READ | PROT_EXEC, MAP_SHARED | MAP_FIXED_NOREPLACE, hollow("low", 0), 0));
        await(low, 16 * PAGE);
    }
    if (!strcmp(what, "waits-python")) {
        int file = hollow("libpython3.11.so", 1);
        char *at = MUST(mmap(0, 16 * PAGE, PROT_READ | PROT_EXEC, MAP_SHARED, file, 0));
        in_a_thread(busy, map_code(file));
        await(at, PAGE);
    }
    if (!strcmp(what, "waits-line")) {
        // Of an Erlang VM the command line is read; it is wherever the process says.
        int file = hollow("beam.smp", 1);
        map_code(file);
        in_a_thread(busy, map_code(file));
        char *at = MUST(mmap(0, 16 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        await(at, 16 * PAGE);
        words_at(at, at + 2 * PAGE);
    }
    if (!strcmp(what, "goes")) {
        char *at = MUST(mmap(0, 256 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        await(at, 256 * PAGE);
        in_a_thread(drops, at);
        usleep(10000);
    }
    if (!strcmp(what, "unreadable")) {
        char *none = MUST(mmap(0, 64 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        memset(none, 'n', 64 * PAGE);
        MUST(mprotect(none, 64 * PAGE, PROT_NONE));
        char *guarded = MUST(mmap(0, 64 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        memset(guarded, 'g', 64 * PAGE);
        for (int i = 0; i < 64; i += 2) madvise(guarded + i * PAGE, PAGE, 102 /* MADV_GUARD_INSTALL, Linux 6.13 */);
        int hidden = syscall(SYS_memfd_secret, 0);
        if (hidden >= 0) {
            MUST(ftruncate(hidden, 16 * PAGE));
            // Who has no room for locked memory has none of these either.
            char *secret = mmap(0, 16 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, hidden, 0);
            if (secret != MAP_FAILED) memset(secret, 's', 16 * PAGE);
        }
        char *huge = mmap(0, 4 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_NORESERVE, -1, 0);
        if (huge != MAP_FAILED) madvise(huge, 4 << 20, MADV_POPULATE_WRITE);
        int cut = write_code("libjemalloc.so", "\x7f" "ELF", 4);
        char *behind = MUST(mmap(0, 16 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, cut, 0));
        behind[0] = 1;
        MUST(mmap(0, 16 * PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE, cut, 0));
        MUST(ftruncate(cut, 0));
        int zero = MUST(open("/dev/zero", O_RDWR));
        MUST(mmap(0, 16 * PAGE, PROT_READ | PROT_EXEC, MAP_SHARED, zero, 0));
    }
    if (!strcmp(what, "sparse")) {
        char *at = MUST(mmap(0, 1ul << 40, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
        MUST(madvise(at, 1ul << 40, MADV_NOHUGEPAGE));
        for (long i = 0; i < 4096; i++) at[i << 28] = (char)i;
    }
    if (!strcmp(what, "many")) {
        char name[4096], part[250];
        memset(part, 'p', sizeof part);
        part[200] = 0;
        for (int i = 0; i < 10; i++) {
            if (mkdir(part, 0755) || chdir(part)) break;
        }
        snprintf(name, sizeof name, "library");
        int file = write_code(name, "\x7f" "ELF", 4);
        for (long i = 0; i < 30000; i++) {
            int access = i & 1 ? PROT_READ : PROT_READ | PROT_EXEC;
            if (mmap(0, PAGE, access, MAP_PRIVATE, file, i & 2 ? 0 : PAGE) == MAP_FAILED) break;
        }
        in_a_thread(busy, map_code(file));
    }
    forever();
}
