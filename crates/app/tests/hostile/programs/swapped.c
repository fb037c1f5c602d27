// A library is mapped and in use. What its name leads to afterwards is something else.
#include "hostile.h"

int main(int count, char **words) {
    const char *to = count > 1 ? words[1] : "";
    char *dir = getcwd(0, 0), library[4096], python[4096];
    // By these names it is looked into further: as Python's, as an allocator's.
    snprintf(library, sizeof library, "%s/libjemalloc.so", dir);
    snprintf(python, sizeof python, "%s/libpython3.11.so", dir);
    const char *names[] = {library, python};
    void *code = 0;
    for (int i = 0; i < 2; i++) {
        int file = write_code(names[i], "\x7f" "ELF\2\1\1", 7);
        MUST(mmap(0, PAGE, PROT_READ, MAP_PRIVATE, file, 0));
        code = map_code(file);
        in_a_thread(busy, code);
        if (strcmp(to, "truncated")) MUST(unlink(names[i]));
        const char *name = names[i];
        if (!strcmp(to, "fifo")) MUST(mkfifo(name, 0666));
        if (!strcmp(to, "secret")) MUST(symlink(getenv("MITRA_HOSTILE_SECRET"), name));
        // A device that does nothing, as the one that restarts the machine would be opened too.
        if (!strcmp(to, "device")) MUST(mknod(name, S_IFCHR | 0666, 1 << 8 | 3));
        if (!strcmp(to, "directory")) MUST(mkdir(name, 0777));
        if (!strcmp(to, "sparse")) MUST(truncate((close(write_text(name, "", 0755)), name), 1l << 40));
        if (!strcmp(to, "another")) write_code(name, "\x7f" "ELF\2\1\1", 7);
        if (!strcmp(to, "loop")) MUST(symlink(name, name));
        if (strcmp(to, "deleted") && strcmp(to, "loop") && strcmp(to, "truncated")) say("trap %s", name);
        // What is mapped remains; behind it there is nothing any more.
        if (!strcmp(to, "truncated")) MUST(ftruncate(file, PAGE + 64));
    }
    forever();
}
