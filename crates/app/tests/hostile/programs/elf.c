// CPUs are busy in libraries whose files lie: their headers, tables, notes and debug information. The argument says how, with commas
// between where there are several.
#include "hostile.h"
#include <elf.h>

enum { STRINGS = 0x2000, SYMBOLS = 0x2100, NAMES = 0x2400, NOTE = 0x2600, LINK = 0x2700, INDEX = 0x2800, FRAMES = 0x2900,
       PACKED = 0x3000, SECTIONS = 0x3800, END = 0x4000 };
enum { S_NONE, S_TEXT, S_STRINGS, S_SYMBOLS, S_NAMES, S_NOTE, S_LINK, S_INFO, S_ABBREV, S_LINE, S_COUNT };

static unsigned char bytes[END];
static Elf64_Ehdr *head = (Elf64_Ehdr *)bytes;
static Elf64_Phdr *parts = (Elf64_Phdr *)(bytes + sizeof(Elf64_Ehdr));
static Elf64_Shdr *sections = (Elf64_Shdr *)(bytes + SECTIONS);
static Elf64_Sym *symbols = (Elf64_Sym *)(bytes + SYMBOLS);

static void section(int which, int name, int kind, long flags, long at, long size, int link, long entry) {
    sections[which] = (Elf64_Shdr){.sh_name = name, .sh_type = kind, .sh_flags = flags, .sh_offset = at, .sh_size = size,
                                   .sh_addr = which == S_TEXT ? PAGE : 0, .sh_link = link, .sh_addralign = 1,
                                   .sh_entsize = entry};
}

// A library without a lie, but for code that has no name.
static void honest(void) {
    static const char names[] = "\0.text\0.strtab\0.symtab\0.shstrtab\0.note.gnu.build-id\0.gnu_debuglink\0.debug_info\0"
                                ".debug_abbrev\0.debug_line";
    static const char strings[] = "\0near\0later";
    *head = (Elf64_Ehdr){.e_ident = {0x7f, 'E', 'L', 'F', 2, 1, 1}, .e_type = ET_DYN, .e_machine = EM_X86_64, .e_version = 1,
                         .e_phoff = sizeof *head, .e_shoff = SECTIONS, .e_ehsize = sizeof *head,
                         .e_phentsize = sizeof *parts, .e_phnum = 3, .e_shentsize = sizeof *sections, .e_shnum = S_COUNT,
                         .e_shstrndx = S_NAMES};
    parts[0] = (Elf64_Phdr){PT_LOAD, PF_R | PF_X, 0, 0, 0, END, END, PAGE};
    parts[1] = (Elf64_Phdr){PT_NOTE, PF_R, NOTE, NOTE, NOTE, 36, 36, 4};
    parts[2] = (Elf64_Phdr){PT_GNU_EH_FRAME, PF_R, INDEX, INDEX, INDEX, 0x40, 0x40, 4};
    memcpy(bytes + PAGE, CODE, sizeof CODE);
    memcpy(bytes + STRINGS, strings, sizeof strings);
    memcpy(bytes + NAMES, names, sizeof names);
    memcpy(bytes + NOTE, "\4\0\0\0\24\0\0\0\3\0\0\0GNU\0\1\2\3\4\5\6\7\10", 24);
    strcpy((char *)bytes + LINK, "x.debug");
    symbols[1] = (Elf64_Sym){1, ELF64_ST_INFO(STB_GLOBAL, STT_FUNC), 0, S_TEXT, PAGE + 0x800, 8};
    symbols[2] = (Elf64_Sym){6, ELF64_ST_INFO(STB_GLOBAL, STT_FUNC), 0, S_TEXT, PAGE + 0xc00, 8};
    section(S_TEXT, 1, SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR, PAGE, PAGE, 0, 0);
    section(S_STRINGS, 7, SHT_STRTAB, 0, STRINGS, sizeof strings, 0, 0);
    section(S_SYMBOLS, 15, SHT_SYMTAB, 0, SYMBOLS, 3 * sizeof *symbols, S_STRINGS, sizeof *symbols);
    section(S_NAMES, 23, SHT_STRTAB, 0, NAMES, sizeof names, 0, 0);
    section(S_NOTE, 33, SHT_NOTE, SHF_ALLOC, NOTE, 36, 0, 0);
    section(S_LINK, 52, SHT_PROGBITS, 0, LINK, 12, 0, 0);
    section(S_INFO, 67, SHT_PROGBITS, 0, PACKED, 64, 0, 0);
    section(S_ABBREV, 79, SHT_PROGBITS, 0, PACKED + 64, 64, 0, 0);
    section(S_LINE, 93, SHT_PROGBITS, 0, PACKED + 128, 64, 0, 0);
}

// Debug information that is said to be packed, of this size.
static void packed(unsigned kind, unsigned long size) {
    for (int which = S_INFO; which <= S_LINE; which++) {
        Elf64_Chdr *before = (Elf64_Chdr *)(bytes + sections[which].sh_offset);
        *before = (Elf64_Chdr){kind, 0, size, 1};
        memcpy(before + 1, "\x78\x9c\x03\x00\x00\x00\x00\x01", 8);
        sections[which].sh_flags |= SHF_COMPRESSED;
    }
}

// Zeros, a gigabyte and a half of them, as zlib packs them: one, and then copies of the 258 before.
static void bomb(int file) {
    const long all = 1536l << 20;
    unsigned char *out = calloc(1, 12 << 20);
    Elf64_Chdr before = {ELFCOMPRESS_ZLIB, 0, all, 1};
    memcpy(out, &before, sizeof before);
    long bit = (sizeof before + 2) * 8;
    memcpy(out + sizeof before, "\x78\x9c", 2);
    const char *start = "11000110000"; // the last block, fixed codes, a zero
    for (; *start; start++, bit++) out[bit >> 3] |= (*start == '1') << (bit & 7);
    for (long done = 1; done < all; done += 258) {
        const char *copy = "1100010100000"; // 258 bytes, from one before
        for (; *copy; copy++, bit++) out[bit >> 3] |= (*copy == '1') << (bit & 7);
    }
    bit += 7 + 8 + 32;
    for (int which = S_INFO; which <= S_LINE; which++) {
        sections[which].sh_flags |= SHF_COMPRESSED;
        sections[which].sh_offset = END;
        sections[which].sh_size = bit >> 3;
    }
    MUST(pwrite(file, out, bit >> 3, END));
    MUST(pwrite(file, bytes, END, 0));
    free(out);
}

static void *shrink_and_grow(void *file) {
    unsigned char *rest = memcpy(malloc(END - STRINGS), bytes + STRINGS, END - STRINGS);
    for (;;) {
        // The page of the code stays. Whoever maps the file may find no bytes behind the mapping.
        if (ftruncate((long)file, 2 * PAGE)) return 0;
        usleep(20);
        if (pwrite((long)file, rest, END - STRINGS, STRINGS) < 0) return 0;
        usleep(200);
    }
    return 0;
}

static void tell(const char *lie) {
    memset(bytes, 0, sizeof bytes);
    honest();
    const char *trap = 0;
    char *dir = getcwd(0, 0), path[4096];
    if (!strcmp(lie, "sections-nowhere")) head->e_shoff = 1ul << 62;
    if (!strcmp(lie, "sections-many")) head->e_shnum = 0, sections[0].sh_size = 1ul << 60;
    if (!strcmp(lie, "sections-overflow")) head->e_shoff = -64ul, head->e_shnum = 0xffff;
    if (!strcmp(lie, "sections-overlap"))
        for (int which = 1; which < S_COUNT; which++) sections[which].sh_offset = 0, sections[which].sh_size = END;
    if (!strcmp(lie, "sections-end")) for (int which = 1; which < S_COUNT; which++) sections[which].sh_size = -1ul - 0x1000;
    if (!strcmp(lie, "names-nowhere")) head->e_shstrndx = 0xffff, sections[0].sh_link = 0x7fffffff;
    if (!strcmp(lie, "parts-many")) head->e_phnum = 0xffff, sections[0].sh_info = -1;
    if (!strcmp(lie, "parts-empty")) head->e_phentsize = 0, parts[0].p_filesz = 1ul << 63, parts[2].p_filesz = -1ul;
    if (!strcmp(lie, "packed-zlib")) packed(ELFCOMPRESS_ZLIB, 1ul << 40);
    if (!strcmp(lie, "packed-zstd")) packed(2, 1ul << 40);
    if (!strcmp(lie, "packed-negative")) packed(ELFCOMPRESS_ZLIB, -1ul);
    if (!strcmp(lie, "packed-unknown")) packed(77, 4);
    if (!strcmp(lie, "symbols-many")) sections[S_SYMBOLS].sh_size = 24ul << 32, sections[S_SYMBOLS].sh_entsize = 1;
    if (!strcmp(lie, "symbols-odd")) sections[S_SYMBOLS].sh_size -= 5, sections[S_SYMBOLS].sh_entsize = 0, sections[S_SYMBOLS].sh_offset++;
    if (!strcmp(lie, "symbols-unnamed")) symbols[1].st_name = -1, symbols[1].st_value = 0, symbols[1].st_size = -1ul;
    if (!strcmp(lie, "symbols-linked")) sections[S_SYMBOLS].sh_link = 0xfffffff0;
    if (!strcmp(lie, "strings-endless")) {
        sections[S_STRINGS].sh_size = 6;
        memset(bytes + STRINGS, 'x', 0x100);
        symbols[1].st_value = PAGE, symbols[1].st_size = PAGE;
    }
    if (!strcmp(lie, "strings-evil")) {
        strcpy((char *)bytes + STRINGS + 1, EVIL);
        sections[S_STRINGS].sh_size = sizeof EVIL + 1;
        symbols[1].st_value = PAGE, symbols[1].st_size = PAGE, symbols[2].st_name = 0;
        // A mangled name that unfolds.
        symbols[2].st_value = PAGE, symbols[2].st_size = PAGE;
    }
    if (!strcmp(lie, "note-sizes")) memset(bytes + NOTE, 0xff, 8);
    if (!strcmp(lie, "note-empty")) memset(bytes + NOTE + 4, 0, 4);
    if (!strcmp(lie, "note-one-byte")) bytes[NOTE + 4] = 1, sections[S_NOTE].sh_size = 17;
    if (!strncmp(lie, "link-", 5)) {
        // What it names must not be opened: it is a name of its own choice.
        snprintf(path, sizeof path, "%s/%s", dir, lie);
        if (strstr(lie, "fifo")) MUST(mkfifo(path, 0666));
        else MUST(write_text(path, "\x7f" "ELF", 0600));
        trap = strdup(path);
        if (strstr(lie, "up")) snprintf((char *)bytes + LINK, 256, "../../../../../../../../../../..%s", path);
        else strcpy((char *)bytes + LINK, path);
        sections[S_LINK].sh_size = 200;
    }
    if (!strcmp(lie, "frames-many")) memcpy(bytes + INDEX, "\1\x1b\3\x3b\xfc\0\0\0\xff\xff\xff\xff\0\0\0\0\0\0\0\0", 20);
    if (!strcmp(lie, "frames-garbage")) {
        // The index leads to an entry whose head is the entry itself, and whose rules never end.
        memcpy(bytes + INDEX, "\1\x1b\3\x3b\xfc\0\0\0\1\0\0\0\0\xe8\xff\xff\0\1\0\0", 20);
        memset(bytes + FRAMES, 0xff, 0x200);
        memcpy(bytes + FRAMES, "\x40\0\0\0\4\0\0\0\0\xe7\xff\xff\xff\xff\xff\x7f", 16);
    }
    if (!strcmp(lie, "frames-expression")) {
        // An honest index and head; the rule of the caller is an expression without end.
        memcpy(bytes + INDEX, "\1\x1b\3\x3b\xfc\0\0\0\1\0\0\0\0\xe8\xff\xff\x20\1\0\0", 20);
        memcpy(bytes + FRAMES, "\x1c\0\0\0\0\0\0\0\1zR\0\1\x78\x10\1\x1b\x0c\7\x08\x90\1\0\0\0\0\0\0\0\0\0\0", 32);
        memcpy(bytes + FRAMES + 32, "\x1c\0\0\0\x24\0\0\0\xd8\xe6\xff\xff\0\x10\0\0\0\x0f\x7f\x2f\xfd\xff", 22);
    }
    snprintf(path, sizeof path, "%s/lib-%s.so", dir, lie);
    int file = write_file(path, bytes, sizeof bytes, 0755);
    if (!strcmp(lie, "bomb")) bomb(file);
    if (!strcmp(lie, "cut")) MUST(ftruncate(file, 2 * PAGE + 10));
    void *code = map_code(file);
    if (!strcmp(lie, "shrinks")) in_a_thread(shrink_and_grow, (void *)(long)file);
    in_a_thread(busy, code);
    if (trap) say("trap %s", trap);
}

int main(int count, char **words) {
    for (char *lie = strtok(count > 1 ? words[1] : "", ","); lie; lie = strtok(0, ",")) tell(lie);
    forever();
}
