// All that has a name has a hostile one: the process, its threads, its command line and environment, its program, its libraries,
// its folder, its sockets.
//   long     a command line of two megabytes without an end
//   none     no command line, no name
//   changes  names that change all the time
#include "hostile.h"
#include <arpa/inet.h>

static const char *COMMS[] = {"\x1b]0;owned\x07", "\x1b[2J\x1b[31m", "a) R 1 1 (", "\xe2\x80\xae" "evil", "$(reboot)`id`", "\n\n\r\t",
                              "</script><b>", "\"},{\"a\":\"", "\xff\xfe\xc3", "%s%n%x%d", "a,b c|d;e", "\xc2\x9b" "31m\xe2\x81\xa6"};
static const char *variant;

static void *named(void *name) {
    prctl(PR_SET_NAME, name);
    for (long i = 0;; i++) {
        if (!strcmp(variant, "changes")) prctl(PR_SET_NAME, COMMS[i % 12]), usleep(100);
        else if (i % 1024 == 0) usleep(1000);
    }
    return 0;
}

static void listens(void) {
    int socket_file = MUST(socket(AF_INET, SOCK_STREAM, 0));
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    MUST(bind(socket_file, (struct sockaddr *)&any, sizeof any));
    MUST(listen(socket_file, 1));
}

int main(int count, char **words) {
    variant = count > 1 && words[0][0] ? words[1] : getenv("MITRA_HOSTILE_VARIANT");
    if (!getenv("MITRA_HOSTILE_VARIANT")) {
        // Once more, by a hostile path and with hostile words.
        char from[4096] = {0}, to[4096];
        MUST(readlink("/proc/self/exe", from, sizeof from - 1));
        snprintf(to, sizeof to, "%s", EVIL);
        for (char *c = to; *c; c++) if (*c == '/') *c = '_';
        to[200] = 0;
        MUST(mkdir(to, 0755));
        MUST(chdir(to));
        int file = MUST(open(from, O_RDONLY));
        struct stat about;
        MUST(fstat(file, &about));
        char *bytes = MUST(mmap(0, about.st_size, PROT_READ, MAP_PRIVATE, file, 0));
        close(write_file(to, bytes, about.st_size, 0755));
        MUST(chdir("."));
        char long_word[100 << 10];
        memset(long_word, 'A', sizeof long_word);
        long_word[sizeof long_word - 1] = 0;
        char with[64];
        snprintf(with, sizeof with, "MITRA_HOSTILE_VARIANT=%s", variant);
        char *environment[] = {with, EVIL, "ERL_EPMD_PORT=-1", 0};
        char *line[24] = {EVIL, EVIL, "-sname", "--", "", 0};
        if (!strcmp(variant, "none")) line[0] = "", line[1] = 0;
        if (!strcmp(variant, "long")) for (int i = 0; i < 20; i++) line[i] = long_word;
        execve(to, line, environment);
        skip("exec");
    }
    listens();
    // A library of a hostile name, in use.
    char name[256];
    snprintf(name, sizeof name, "lib%.180s", EVIL);
    for (char *c = name; *c; c++) if (*c == '/') *c = '_';
    void *code = map_code(write_code(name, "\x7f" "ELF\2\1\1", 7));
    snprintf(name, sizeof name, "libpython3.11%.180s", EVIL);
    for (char *c = name; *c; c++) if (*c == '/') *c = '_';
    map_code(write_code(name, "\x7f" "ELF\2\1\1", 7));
    for (int i = 0; i < 12; i++) in_a_thread(named, (void *)COMMS[i]);
    prctl(PR_SET_NAME, !strcmp(variant, "none") ? "" : "\x1b]52;c;eA==\x07");
    if (!strcmp(variant, "long")) {
        // Not even a zero at the end.
        extern char **environ;
        for (char *c = words[0]; c < environ[0]; c++) if (!*c) *c = 'B';
    }
    in_a_thread(busy, code);
    forever();
}
