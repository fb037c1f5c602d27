// Says that it is a Java VM: maps a library of that name, with a tool of its own beside it.
//   stays      and is one as far as anybody can see; its counters are nonsense
//   privileged1, privileged2
//              and becomes a set-uid program as soon as its program is opened for the first time, for the second: what is run
//              then must not be run as that user
//   execs      and becomes another program, and another one, all the time
//   setuid     what `privileged` becomes, which listens too
#include "hostile.h"

static void on_quit(int signal) { (void)signal; }

static void put(unsigned char **at, const char *name, char kind, const char *value, int vector) {
    unsigned char *entry = *at;
    int value_at = (20 + (int)strlen(name) + 8) & ~7;
    int length = (value_at + (kind == 'J' ? 8 : (int)strlen(value) + 1) + 7) & ~7;
    int words[] = {length, 20, vector};
    memcpy(entry, words, 12);
    entry[12] = kind;
    memcpy(entry + 16, &value_at, 4);
    strcpy((char *)entry + 20, name);
    if (kind == 'J') memcpy(entry + value_at, value, 8);
    else strcpy((char *)entry + value_at, value);
    *at = entry + length;
}

// Counters as HotSpot shares them, of an amount that cannot be.
static void counters(void) {
    char path[128];
    mkdir("hsperfdata_root", 0755);
    snprintf(path, sizeof path, "hsperfdata_root/%d", getpid());
    int file = MUST(open(path, O_CREAT | O_RDWR, 0600));
    MUST(ftruncate(file, 32 << 10));
    unsigned char *at = MUST(mmap(0, 32 << 10, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0)), *begin = at;
    int head[] = {0xc0c0feca, 0x01000201, 0, 0, 0, 0, 32, 1 << 30};
    memcpy(at, head, sizeof head);
    at += 32;
    put(&at, "java.property.java.vm.name", 'B', EVIL, 900);
    put(&at, "java.property.java.vm.version", 'B', EVIL, 1 << 30);
    put(&at, "sun.os.hrt.frequency", 'J', "\1\0\0\0\0\0\0\0", 0);
    for (int space = 0; space < 8; space++) {
        char name[64];
        snprintf(name, sizeof name, "sun.gc.generation.0.space.%d.used", space);
        put(&at, name, 'J', "\xff\xff\xff\xff\xff\xff\xff\x7f", 0);
        snprintf(name, sizeof name, "sun.gc.generation.0.space.%d.capacity", space);
        put(&at, name, 'J', "\1\0\0\0\0\0\0\0", 0);
        snprintf(name, sizeof name, "sun.gc.generation.0.space.%d.name", space);
        put(&at, name, 'B', EVIL, 900);
    }
    int torn[] = {-1, 1 << 30, 1 << 30, -1, -1};
    memcpy(at, torn, sizeof torn);
    memset(begin + (30 << 10), 0xff, 2 << 10);
}

int main(int count, char **words) {
    const char *variant = count > 1 ? words[1] : "setuid";
    signal(SIGQUIT, on_quit);
    if (!strcmp(variant, "setuid")) {
        // With the user who it is now, as programs of that kind are.
        MUST(setresuid(0, 0, 0));
        for (;;) pause();
    }
    const char *dir = getcwd(0, 0);
    char path[4096];
    snprintf(path, sizeof path, "%s/jdk/lib/server/libjvm.so", dir);
    // The tool and its folders are put there by the test, and so is `privileged`, which belongs to root.
    MUST(write_code(path, "\x7f" "ELF", 4));
    in_a_thread(busy, map_code(open(path, O_RDONLY)));
    counters();
    if (!strcmp(variant, "stays")) forever();
    int notes = MUST(inotify_init1(0));
    MUST(inotify_add_watch(notes, "/proc/self/exe", IN_OPEN));
    say("ready");
    struct inotify_event note;
    if (!strncmp(variant, "privileged", 10)) {
        for (int opened = atoi(variant + 10); opened > 0; opened--) MUST(read(notes, &note, sizeof note));
        execl("privileged", "privileged", (char *)0);
        skip("exec of the set-uid program");
    }
    // Not faster than somebody can look at one of them.
    usleep(30000);
    execl("/proc/self/exe", "jvm", "execs", (char *)0);
    skip("exec");
}
