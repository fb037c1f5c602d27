// Libraries are mapped and in use. What their names lead to afterwards is something else: what the argument says, with commas between
// where it is several things.
#include "hostile.h"

static void swap(const char *to, int number) {
    char *dir = getcwd(0, 0), library[4096], python[4096];
    // By these names it is looked into further: as an allocator's, as Python's.
    snprintf(library, sizeof library, "%s/libjemalloc-%s.so", dir, to);
    snprintf(python, sizeof python, "%s/libpython3.%d.so", dir, number);
    const char *names[] = {library, python};
    for (int i = 0; i < 2; i++) {
        const char *name = names[i];
        int file = write_code(name, "\x7f" "ELF\2\1\1", 7);
        MUST(mmap(0, PAGE, PROT_READ, MAP_PRIVATE, file, 0));
        void *code = map_code(file);
        if (i == 0) in_a_thread(busy, code);
        // What is mapped remains; behind it there is nothing any more.
        if (!strcmp(to, "truncated")) {
            MUST(ftruncate(file, PAGE + 64));
            continue;
        }
        MUST(unlink(name));
        if (!strcmp(to, "fifo")) MUST(mkfifo(name, 0666));
        if (!strcmp(to, "secret")) MUST(symlink(getenv("MITRA_HOSTILE_SECRET"), name));
        // A device that does nothing, as the one that restarts the machine would be opened too.
        if (!strcmp(to, "device")) MUST(mknod(name, S_IFCHR | 0666, 1 << 8 | 3));
        if (!strcmp(to, "directory")) MUST(mkdir(name, 0777));
        if (!strcmp(to, "sparse")) MUST(truncate((close(write_text(name, "", 0755)), name), 1l << 40));
        if (!strcmp(to, "another")) write_code(name, "\x7f" "ELF\2\1\1", 7);
        if (!strcmp(to, "loop")) MUST(symlink(name, name));
        if (strcmp(to, "deleted") && strcmp(to, "loop")) say("trap %s", name);
    }
}

int main(int count, char **words) {
    int number = 6;
    for (char *to = strtok(count > 1 ? words[1] : "", ","); to; to = strtok(0, ",")) swap(to, number++);
    forever();
}
