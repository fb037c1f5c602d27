// What hostile programs have in place of the tool of a run time. It notes as whom it was run and how, and answers nonsense.
#include "hostile.h"
#include <grp.h>

static void status(FILE *to, const char *name) {
    char line[256];
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        if (!strncmp(line, name, strlen(name))) fputs(line, to);
    if (file) fclose(file);
}

int main(int count, char **words) {
    char path[4096];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 16);
    if (length < 0) return 1;
    path[length] = 0;
    // Of DIR/jdk/bin/jcmd it is DIR/ran.
    for (int i = 0; i < 3; i++) {
        char *slash = strrchr(path, '/');
        if (slash) *slash = 0;
    }
    strcat(path, "/ran");
    FILE *ran = fopen(path, "a");
    if (!ran) return 1;
    uid_t r, e, s;
    getresuid(&r, &e, &s);
    fprintf(ran, "uid %d %d %d groups %d leads %d\n", r, e, s, getgroups(0, 0), getsid(0) == getpid());
    status(ran, "NoNewPrivs:");
    status(ran, "CapPrm:");
    status(ran, "CapBnd:");
    for (int fd = 3; fd < 64; fd++)
        if (fcntl(fd, F_GETFD) >= 0) fprintf(ran, "inherits file %d\n", fd);
    int terminal = open("/dev/tty", O_RDWR);
    if (terminal >= 0) fprintf(ran, "has a terminal\n");
    fclose(ran);
    for (int i = 1; i < count; i++)
        if (strstr(words[i], "histogram")) {
            printf(" num     #instances         #bytes  class name (module)\n-----\n");
            for (int n = 1; n < 3000; n++)
                printf("%4d: %18llu %18llu  evil%d\x1b]0;t\x07</script>\xe2\x80\xae (m)\n", n, ~0ull - n, ~0ull, n);
        }
    printf(" heap\x1b[2J total 18446744073709551615G, used -1K\n- x (reserved=99999999999999999999KB, committed=1KB)\n");
    return 0;
}
