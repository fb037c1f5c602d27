// What hostile programs share.
//
// A program gets its variant as its only argument and runs in an empty directory of its own. It says on standard output, a line each:
//   pid N       look at this process in place of the first
//   trap PATH   as the process sees it: nobody may open that from now on
//   remove PATH of the machine: to be removed in the end
//   skip WHY    it cannot be done here
//   ready       it is as bad as it gets now
// and goes on until it is killed, together with all that it started. MITRA_HOSTILE_SECRET is the path of a file that only root may read.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096
// A name that does everything a name can: text that runs backwards, half a character, an escape sequence, a title and the clipboard of
// a terminal, a link, quotes, the end of a script, a shell, a format, two lines.
#define EVIL                                                                                                          \
    "\xe2\x80\xaetxt\xe2\x81\xa6\xff\xc3\xc2\x9b" "31m\x1b[2J\x1b]0;owned\x07\"',}]</script><img src=x onerror=alert(1)>%s%n" \
    "$(touch /tmp/mitra-hostile-pwned)`touch /tmp/mitra-hostile-pwned`;touch /tmp/mitra-hostile-pwned;"               \
    "\x1b]52;c;b3duZWQ=\x07\x1b]8;;http://evil/\x1b\\x\n{\"injected\":1}\r%99999999d"

static inline void say(const char *format, ...) {
    va_list values;
    va_start(values, format);
    vprintf(format, values);
    va_end(values);
    putchar('\n');
    fflush(stdout);
}

static inline void skip(const char *what) {
    say("skip %s: %s", what, strerror(errno));
    for (;;) pause();
}

// What has to work.
#define MUST(what) ({ __auto_type done = (what); if ((long)done == -1) skip(#what); done; })

static inline void forever(void) {
    say("ready");
    for (;;) pause();
}

static inline int write_file(const char *path, const void *bytes, size_t count, mode_t mode) {
    int file = MUST(open(path, O_CREAT | O_TRUNC | O_RDWR, mode));
    if (write(file, bytes, count) != (ssize_t)count) skip(path);
    fchmod(file, mode);
    return file;
}

static inline int write_text(const char *path, const char *text, mode_t mode) {
    return write_file(path, text, strlen(text), mode);
}

static inline void write_line(const char *path, const char *format, int number) {
    char line[64];
    int file = MUST(open(path, O_WRONLY));
    MUST(write(file, line, snprintf(line, sizeof line, format, number)));
    close(file);
}

// From now on a page of the command line and one of the environment are there. All else that is known of the process stays.
static inline void words_at(char *line, char *environment) {
    unsigned long f[53] = {0};
    char text[2048];
    FILE *stat = fopen("/proc/self/stat", "r");
    if (!stat || !fgets(text, sizeof text, stat)) skip("/proc/self/stat");
    int number = 3;
    for (char *word = strtok(strrchr(text, ')') + 2, " "); word && number < 53; word = strtok(0, " ")) f[number++] = strtoul(word, 0, 10);
    struct prctl_mm_map all = {.start_code = f[26], .end_code = f[27], .start_stack = f[28], .start_data = f[45], .end_data = f[46],
                               .start_brk = f[47], .brk = (unsigned long)sbrk(0), .arg_start = (unsigned long)line,
                               .arg_end = (unsigned long)line + PAGE, .env_start = (unsigned long)environment,
                               .env_end = (unsigned long)environment + PAGE, .exe_fd = -1};
    MUST(prctl(PR_SET_MM, PR_SET_MM_MAP, &all, sizeof all, 0));
}

// Code that works for a while and touches what its argument points to: mov $20000,%ecx; 1: dec %ecx; jnz 1b; movb $1,(%rdi); ret
static const unsigned char CODE[] = {0xb9, 0x20, 0x4e, 0, 0, 0xff, 0xc9, 0x75, 0xfc, 0xc6, 0x07, 1, 0xc3};

// Calls such code for ever, with fresh memory to touch: a CPU is busy in it, and pages are faulted in by it. Where there are many
// programs, each is so for a hundredth of the time.
static inline void *busy(void *code) {
    void (*touch)(char *) = (void (*)(char *))code;
    int is_one_of_many = getenv("MITRA_HOSTILE_MANY") != 0;
    for (;;) {
        size_t bytes = (is_one_of_many ? 128 : 1024) * PAGE;
        if (is_one_of_many) usleep(300000);
        char *fresh = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        for (size_t at = 0; fresh != MAP_FAILED && at < bytes; at += PAGE) touch(fresh + at);
        if (fresh != MAP_FAILED) munmap(fresh, bytes);
    }
    return 0;
}

static inline void in_a_thread(void *(*what)(void *), void *with) {
    pthread_t thread;
    if (pthread_create(&thread, 0, what, with)) skip("pthread_create");
    pthread_detach(thread);
}

// A file with such code at its second page, mapped.
static inline void *map_code(int file) {
    return MUST(mmap(0, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, PAGE));
}

// A file that begins with `head` and has such code at its second page.
static inline int write_code(const char *path, const void *head, size_t count) {
    char pages[2 * PAGE] = {0};
    memcpy(pages, head, count);
    memcpy(pages + PAGE, CODE, sizeof CODE);
    return write_file(path, pages, sizeof pages, 0755);
}
