// Code without a file, and a file that is to name it: /tmp/perf-PID.map, which anybody can make.
#include "hostile.h"

static char path[64];

static void *code_of(size_t at) {
    char *code = MUST(mmap((void *)at, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    memcpy(code, CODE, sizeof CODE);
    return code;
}

int main(int count, char **words) {
    const char *how = count > 1 ? words[1] : "";
    snprintf(path, sizeof path, "/tmp/perf-%d.map", getpid());
    unlink(path);
    say("remove %s", path);
    unsigned long at = (unsigned long)code_of(0);
    char line[4096], *secret = getenv("MITRA_HOSTILE_SECRET");
    if (!strcmp(how, "fifo")) MUST(mkfifo(path, 0666));
    if (!strcmp(how, "link")) MUST(symlink(secret, path));
    if (!strcmp(how, "hard-link")) MUST(link(secret, path));
    if (!strcmp(how, "directory")) MUST(mkdir(path, 0777));
    if (!strcmp(how, "evil")) {
        snprintf(line, sizeof line, "%lx 1000 %s\n", at, EVIL);
        for (char *c = line; c < line + strlen(line) - 1; c++) if (*c == '\n' || *c == '\r') *c = ' ';
        write_text(path, line, 0644);
    }
    if (!strcmp(how, "sparse")) {
        MUST(truncate((close(write_text(path, "1 1 x\n", 0644)), path), 1l << 30));
    }
    if (!strcmp(how, "numbers")) {
        FILE *file = fopen(path, "w");
        fprintf(file, "-1 -1 minus\nffffffffffffffff ffffffffffffffff end\n0 ffffffffffffffff all\n%lx 0 none\n", at);
        fprintf(file, "10000000000000000 1 more\n%lx ffffffffffffffff here\n\xff\xfe\n%lx\n%lx 1000 ", at, at, at);
        for (int i = 0; i < 1 << 20; i++) fputc('L', file);
        fclose(file);
    }
    if (!strcmp(how, "many")) {
        // More functions, and more bytes, than anybody keeps.
        FILE *file = fopen(path, "w");
        for (long i = 0; i < 2000000; i++) fprintf(file, "%lx 1 f%ld\n", at + i, i);
        fclose(file);
    }
    if (!strcmp(how, "changes")) {
        // It is written anew while it is read, and of somebody who may be believed of this process.
        snprintf(line, sizeof line, "%lx 1000 a_name\n", at);
        int file = write_text(path, line, 0666);
        if (!fork()) {
            for (;;) { pwrite(file, line, strlen(line), 0); usleep(1000); ftruncate(file, 0); }
        }
    }
    in_a_thread(busy, (void *)at);
    forever();
}
