// Says that it is an interpreter, or an allocator, whose structures are read, and has nonsense there.
//   python-garbage  an exported _PyRuntime of random bytes
//   python-offsets  one that says of itself where everything is: beyond everything
//   python-cycle    lists of interpreters, threads and objects that lead to themselves
//   python-huge     a symbol table whose hash chain never ends
//   beam            an Erlang VM whose command line has options for whoever asks it
//   arenas          arenas of glibc that lead to each other, chunks of every size
#include "hostile.h"
#include <elf.h>
#include <malloc.h>

enum { BYTES = 64 * PAGE, DYNAMIC = 0x2000, SYMBOLS = 0x2200, STRINGS = 0x2400, HASH = 0x2600, RUNTIME = 0x4000 };
static unsigned char *at;

static unsigned hash_of(const char *name) {
    unsigned hash = 5381;
    for (; *name; name++) hash = hash * 33 + (unsigned char)*name;
    return hash;
}

// A library as the dynamic linker would have left it in memory, with one symbol that is exported.
static void library(const char *what) {
    char path[4096];
    snprintf(path, sizeof path, "%s/libpython3.13.so", getcwd(0, 0));
    int file = MUST(open(path, O_CREAT | O_RDWR, 0755));
    MUST(ftruncate(file, BYTES));
    MUST(pwrite(file, CODE, sizeof CODE, PAGE));
    at = MUST(mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0));
    MUST(mmap(at + PAGE, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED, file, PAGE));
    Elf64_Ehdr head = {.e_ident = {0x7f, 'E', 'L', 'F', 2, 1, 1}, .e_type = ET_DYN, .e_machine = EM_X86_64, .e_phoff = 64,
                       .e_phentsize = sizeof(Elf64_Phdr), .e_phnum = 3, .e_ehsize = 64};
    Elf64_Phdr parts[] = {{PT_LOAD, PF_R | PF_X, 0, 0, 0, RUNTIME, RUNTIME, PAGE},
                          {PT_LOAD, PF_R | PF_W, RUNTIME, RUNTIME, RUNTIME, BYTES - RUNTIME, BYTES - RUNTIME, PAGE},
                          {PT_DYNAMIC, PF_R, DYNAMIC, DYNAMIC, DYNAMIC, 96, 96, 8}};
    memcpy(at, &head, sizeof head);
    memcpy(at + 64, parts, sizeof parts);
    unsigned long dynamic[] = {5, STRINGS, 6, SYMBOLS, 0x6ffffef5, HASH, 0, 0};
    memcpy(at + DYNAMIC, dynamic, sizeof dynamic);
    strcpy((char *)at + STRINGS + 1, "_PyRuntime");
    Elf64_Sym symbol = {1, ELF64_ST_INFO(STB_GLOBAL, STT_OBJECT), 0, 1, RUNTIME, 4096};
    memcpy(at + SYMBOLS + 24, &symbol, 24);
    int is_endless = !strcmp(what, "python-huge");
    unsigned hash[] = {1, 1, 1, 0, -1, -1, 1, is_endless ? 0x10 : hash_of("_PyRuntime") | 1};
    memcpy(at + HASH, hash, sizeof hash);
    if (is_endless) {
        hash[2] = 0x7fffffff;
        memcpy(at + HASH, hash, sizeof hash);
        for (int i = 8; i < 256; i++) ((unsigned *)(at + HASH))[i] = 0x10;
    }
}

static void python(const char *what) {
    library(what);
    unsigned long *runtime = (unsigned long *)(at + RUNTIME), self = (unsigned long)runtime;
    size_t words = (BYTES - RUNTIME) / 8;
    unsigned long noise = 88172645463325252ul;
    for (size_t i = 0; i < words; i++) {
        noise ^= noise << 13, noise ^= noise >> 7, noise ^= noise << 17;
        // Every second word leads into itself.
        runtime[i] = i & 1 ? noise : self + noise % (BYTES - RUNTIME - 64);
    }
    if (!strcmp(what, "python-cycle")) for (size_t i = 0; i < words; i++) runtime[i] = self + (i * 64) % (BYTES - RUNTIME - 4096);
    if (!strcmp(what, "python-offsets") || !strcmp(what, "python-cycle")) {
        memcpy(runtime, "xdebugpy", 8);
        runtime[1] = 0x030d00f0;
        runtime[2] = 0;
        if (!strcmp(what, "python-offsets"))
            for (int i = 3; i < 200; i++) runtime[i] = i % 3 ? -1ul - i * 8 : 1ul << (i % 63);
        else
            for (int i = 3; i < 200; i++) runtime[i] = 8 * (i % 16);
    }
}

static void beam(void) {
    char path[4096], *dir = getcwd(0, 0);
    if (!getenv("AGAIN")) {
        snprintf(path, sizeof path, "%s/erts-13/bin/beam.smp", dir);
        setenv("AGAIN", "1", 1);
        // Its own copy is the emulator; erl_call lies beside it.
        execl(path, "/usr/lib/erlang/erts-\x1b[2J/bin/beam.smp", "beam", "-MHsbct", EVIL, "--", "-root", dir, "-home", "/root", "-sname",
              "x -c cookie -a 'os cmd [\"touch /tmp/mitra-hostile-pwned\"]'", "-setcookie", "$(touch /tmp/mitra-hostile-pwned)",
              (char *)0);
        skip("exec of beam.smp");
    }
    // Carriers whose lists lead anywhere.
    for (int i = 0; i < 40; i++) {
        unsigned long *carrier = MUST(mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        for (int j = 0; j < 1 << 17; j++) carrier[j] = j % 3 ? (unsigned long)carrier + (j * 72) % (1 << 20) : j * 0x9e3779b97f4a7c15ul;
    }
}

static void *allocates(void *with) {
    for (int i = 0; i < 4000; i++) memset(malloc(16 + i % 1000), 'a', 8);
    for (;;) pause();
    return with;
}

static void arenas(void) {
    for (int i = 0; i < 6; i++) in_a_thread(allocates, 0);
    char **kept = malloc(3000 * sizeof *kept);
    for (int i = 0; i < 3000; i++) kept[i] = malloc(64 + i), memset(kept[i], 'm', 64);
    usleep(300000);
    // Sizes before the chunks: none, all there are, themselves, one that leads back.
    const unsigned long sizes[] = {0, -1ul, 1, 0x21, -64ul, 1ul << 40, 7, 0x10, 0x7ffffffffffffff1ul};
    for (int i = 0; i < 3000; i += 3) ((unsigned long *)kept[i])[-1] = sizes[i / 3 % 9];
    // The head of each thread's heap leads to another one's, and its arena to itself.
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    unsigned long from, to, first = 0;
    static unsigned long heaps[64];
    int count = 0;
    while (maps && fgets(line, sizeof line, maps))
        if (sscanf(line, "%lx-%lx rw-p 00000000 00:00", &from, &to) == 2 && !(from & 0x3ffffff) && count < 64) heaps[count++] = from;
    for (int i = 0; i < count; i++) {
        unsigned long *heap = (unsigned long *)heaps[i];
        first = first ? first : heap[0];
        heap[0] = heaps[(i + 1) % count] + 0x30;
        heap[1] = heaps[(i + 1) % count];
        heap[2] = -1ul;
        for (int j = 6; j < 300; j++) if (j % 5 == 0) heap[j] = heaps[i] + 8 * (j + 1);
    }
}

int main(int count, char **words) {
    const char *what = count > 1 ? words[1] : "beam";
    if (!strncmp(what, "python", 6)) python(what);
    if (!strcmp(what, "beam") || getenv("AGAIN")) beam();
    if (!strcmp(what, "arenas")) arenas();
    forever();
}
