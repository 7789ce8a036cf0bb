/* Points what loaded libraries refer to as malloc and the like at the wrappers, and back.
 *
 * A library calls another one through an entry of its own table, which the dynamic loader filled in
 * by a relocation. Such an entry is exchanged only where it holds the very function that the
 * process uses (or, of a call that was never made, the stub that would find it): whatever somebody
 * else put there stays.
 *
 * No library is touched that the loader is still at work on: it adds to entries and protects pages
 * by itself. What is known to be loaded when the loader's lock was free afterwards is complete.
 */
#include "sampling.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__x86_64__)
enum { CALL = R_X86_64_JUMP_SLOT, ENTRY = R_X86_64_GLOB_DAT, POINTER = R_X86_64_64 };
#else
enum { CALL = R_AARCH64_JUMP_SLOT, ENTRY = R_AARCH64_GLOB_DAT, POINTER = R_AARCH64_ABS64 };
#endif

Patched patched;

typedef struct {
    uintptr_t base, begin, end; /* what its segments cover */
    uintptr_t text_begin, text_end;
    uintptr_t read_only_begin, read_only_end; /* after relocation */
    const ElfW(Dyn) * dynamic;
    const ElfW(Sym) * symbols;
    const char *strings;
    size_t strings_size;
    const ElfW(Rela) * calls, *others;
    size_t calls_size, others_size, relative; /* the first so many of the others name no symbol */
} Library;

static uintptr_t address_in(const Library *library, ElfW(Addr) value) {
    return value < library->base ? library->base + value : value;
}

static void read_dynamic(Library *library) {
    for (const ElfW(Dyn) *entry = library->dynamic; entry->d_tag != DT_NULL; entry++) {
        ElfW(Addr) value = entry->d_un.d_ptr;
        switch (entry->d_tag) {
        case DT_SYMTAB:
            library->symbols = (const void *)address_in(library, value);
            break;
        case DT_STRTAB:
            library->strings = (const void *)address_in(library, value);
            break;
        case DT_STRSZ:
            library->strings_size = value;
            break;
        case DT_JMPREL:
            library->calls = (const void *)address_in(library, value);
            break;
        case DT_PLTRELSZ:
            library->calls_size = value / sizeof(ElfW(Rela));
            break;
        case DT_RELA:
            library->others = (const void *)address_in(library, value);
            break;
        case DT_RELASZ:
            library->others_size = value / sizeof(ElfW(Rela));
            break;
        case DT_RELACOUNT:
            library->relative = value;
            break;
        default:
            break;
        }
    }
}

/* Return whether it has tables that can be read. */
static int read_library(const struct dl_phdr_info *info, Library *library) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    *library = (Library){.base = info->dlpi_addr, .begin = UINTPTR_MAX};
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        uintptr_t begin = info->dlpi_addr + part->p_vaddr, end = begin + part->p_memsz;
        if (part->p_type == PT_LOAD) {
            library->begin = begin < library->begin ? begin : library->begin;
            library->end = end > library->end ? end : library->end;
            if (part->p_flags & PF_X) {
                library->text_begin = library->text_begin ? library->text_begin : begin;
                library->text_end = end;
            }
        } else if (part->p_type == PT_DYNAMIC)
            library->dynamic = (const void *)begin;
        else if (part->p_type == PT_GNU_RELRO) {
            library->read_only_begin = begin / page * page;
            library->read_only_end = end / page * page;
        }
    }
    if (library->dynamic == NULL)
        return 0;
    read_dynamic(library);
    return library->symbols != NULL && library->strings != NULL;
}

/* Which functions the process uses */

static struct {
    uintptr_t begin, end; /* of the library that malloc is in */
    uintptr_t interpreter_begin, interpreter_end;
    char file[512];
    int is_libc;
} allocator;

const char *allocator_file(void) {
    return allocator.file;
}

static int is_undefined(const void *address) {
    Dl_info info;
    const ElfW(Sym) *symbol = NULL;
    return dladdr1(address, &info, (void **)&symbol, RTLD_DL_SYMENT) && symbol != NULL &&
           symbol->st_shndx == SHN_UNDEF;
}

static int note_allocator(struct dl_phdr_info *info, size_t Py_UNUSED(size), void *address) {
    Library library;
    if (read_library(info, &library) && (uintptr_t)address >= library.begin &&
        (uintptr_t)address < library.end) {
        allocator.begin = library.begin;
        allocator.end = library.end;
        return 1;
    }
    return 0;
}

static const char *const SANITIZERS[] = {"__asan_init", "__tsan_init", "__msan_init",
                                         "__lsan_enable", "__hwasan_init"};

const char *relocations_resolve(void) {
    for (size_t i = 0; i < sizeof SANITIZERS / sizeof *SANITIZERS; i++)
        if (dlsym(RTLD_DEFAULT, SANITIZERS[i]) != NULL)
            return "a sanitizer checks every allocation of this process";
    void *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
    if (libc == NULL)
        return "this process doesn't use glibc as a shared library";
    for (Hook *hook = hooks; hook->name != NULL; hook++) {
        void *found = dlsym(RTLD_DEFAULT, hook->name);
        if (found != NULL && is_undefined(found)) {
            /* A program at a fixed address has a stub of its own stand for the function. */
            hook->stub = found;
            found = dlsym(libc, hook->name);
        }
        *hook->real = found;
    }
    dlclose(libc);
    Dl_info of_malloc, of_free;
    if (*hooks[0].real == NULL || *hooks[1].real == NULL ||
        !dladdr(*hooks[0].real, &of_malloc) || !dladdr(*hooks[1].real, &of_free))
        return "malloc and free can't be found";
    if (of_malloc.dli_fbase != of_free.dli_fbase)
        return "malloc and free are of different libraries";
    strncpy(allocator.file, of_malloc.dli_fname, sizeof allocator.file - 1);
    const char *base = strrchr(allocator.file, '/');
    allocator.is_libc = strncmp(base ? base + 1 : allocator.file, "libc.so", 7) == 0 ||
                        strncmp(base ? base + 1 : allocator.file, "libc-2", 6) == 0;
    dl_iterate_phdr(note_allocator, *hooks[0].real);
    return NULL;
}

static Hook *hook_named(const char *name) {
    if (memchr("mfcrapvd", name[0], 8) == NULL)
        return NULL;
    for (Hook *hook = hooks; hook->name != NULL; hook++)
        if (strcmp(hook->name, name) == 0)
            return *hook->real != NULL ? hook : NULL;
    return NULL;
}

/* Entries that were exchanged, to see whether somebody has written there since. */

enum { MOST_ENTRIES = 4096 };
static const uintptr_t **entries;
static int entries_number;

static void remember_entry(const uintptr_t *entry) {
    if (entries == NULL)
        entries = own_mapping(sizeof *entries * MOST_ENTRIES);
    if (entries != NULL && entries_number < MOST_ENTRIES)
        entries[entries_number++] = entry;
}

static int is_wrapper(uintptr_t value) {
    for (const Hook *hook = hooks; hook->name != NULL; hook++)
        if (value == (uintptr_t)hook->wrapper)
            return 1;
    return 0;
}

static int is_exchanged_back(void) {
    for (int i = 0; i < entries_number; i++)
        if (!is_wrapper(__atomic_load_n(entries[i], __ATOMIC_RELAXED)))
            return 1;
    return 0;
}

/* One library */

static int put(const Library *library, uintptr_t *entry, uintptr_t value) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = (uintptr_t)entry / page * page;
    int is_protected = (uintptr_t)entry >= library->read_only_begin &&
                       (uintptr_t)entry < library->read_only_end;
    if (is_protected && mprotect((void *)begin, page, PROT_READ | PROT_WRITE) != 0) {
        patched.refused++;
        return 0;
    }
    __atomic_store_n(entry, value, __ATOMIC_RELEASE);
    if (is_protected)
        mprotect((void *)begin, page, PROT_READ);
    return 1;
}

static void exchange(const Library *library, const ElfW(Rela) * relocation, int restore) {
    unsigned type = ELF64_R_TYPE(relocation->r_info);
    if (type != CALL && type != ENTRY && !(type == POINTER && relocation->r_addend == 0))
        return;
    uintptr_t *entry = (uintptr_t *)(library->base + relocation->r_offset);
    if ((uintptr_t)entry < library->begin || (uintptr_t)entry >= library->end)
        return;
    const ElfW(Sym) *symbol = &library->symbols[ELF64_R_SYM(relocation->r_info)];
    if (symbol->st_name >= library->strings_size)
        return;
    Hook *hook = hook_named(library->strings + symbol->st_name);
    if (hook == NULL)
        return;
    uintptr_t now = __atomic_load_n(entry, __ATOMIC_RELAXED), real = (uintptr_t)*hook->real;
    if (restore) {
        if (now == (uintptr_t)hook->wrapper)
            put(library, entry, real);
        return;
    }
    int is_unresolved = type == CALL && symbol->st_shndx == SHN_UNDEF &&
                        now >= library->text_begin && now < library->text_end;
    if (now == real || (hook->stub != NULL && now == (uintptr_t)hook->stub) || is_unresolved) {
        if (!put(library, entry, (uintptr_t)hook->wrapper))
            return;
        now = (uintptr_t)hook->wrapper;
        patched.slots++;
    }
    if (now == (uintptr_t)hook->wrapper)
        remember_entry(entry);
    else
        patched.foreign++;
}

static void exchange_all(const Library *library, int restore) {
    for (size_t i = 0; i < library->calls_size; i++)
        exchange(library, &library->calls[i], restore);
    size_t first = library->relative < library->others_size ? library->relative : 0;
    for (size_t i = first; i < library->others_size; i++)
        exchange(library, &library->others[i], restore);
    patched.libraries += !restore;
}

static int unwinder_checked, unwinder_safe;

/* The loader, the unwinder (a sample must not wait for a lock that its own caller has) and another
   allocator than libc's, which hands on what it maps, stay as they are; so do we. */
static int is_left_out(const struct dl_phdr_info *info, const Library *library) {
    uintptr_t own = (uintptr_t)&relocations_update;
    const char *base = strrchr(info->dlpi_name, '/');
    base = base ? base + 1 : info->dlpi_name;
    if (strncmp(base, "libgcc_s", 8) == 0 || strncmp(base, "libunwind", 9) == 0) {
        if (base[3] == 'g' && !unwinder_checked) {
            unwinder_checked = 1;
            unwinder_safe = memmem(library->strings, library->strings_size, "_dl_find_object",
                                   sizeof "_dl_find_object") != NULL;
        }
        return 1;
    }
    return (own >= library->begin && own < library->end) || strncmp(base, "ld-", 3) == 0 ||
           strncmp(base, "ld.so", 5) == 0 || strncmp(base, "linux-vdso", 10) == 0 ||
           strncmp(base, "linux-gate", 10) == 0 ||
           (!allocator.is_libc && library->begin == allocator.begin);
}

/* An unwinder that asks the loader for its lock might wait for who waits for us. */
int unwinder_is_safe(void) {
    return unwinder_safe;
}

/* All of them */

enum { MOST_LIBRARIES = 8192 };
typedef struct {
    uintptr_t base;
    const void *headers;
    int state; /* 1: seen, 2: seen when the loader's lock was free, 3: done */
} Known;

static Known *known;
static int known_number;
static unsigned long long adds, subs;
static int adds_known;
static atomic_int at_work;

static Known *known_library(const struct dl_phdr_info *info) {
    for (int i = known_number - 1; i >= 0; i--)
        if (known[i].base == info->dlpi_addr && known[i].headers == info->dlpi_phdr)
            return &known[i];
    return NULL;
}

enum { UNCHANGED = 1, LOADED, WRITTEN };

/* While it is asked the loader can't unload anything. */
static int change(struct dl_phdr_info *info, size_t Py_UNUSED(size), void *Py_UNUSED(data)) {
    if (!adds_known || info->dlpi_adds != adds || info->dlpi_subs != subs)
        return LOADED;
    return is_exchanged_back() ? WRITTEN : UNCHANGED;
}

static int note(struct dl_phdr_info *info, size_t Py_UNUSED(size), void *Py_UNUSED(data)) {
    if (info->dlpi_subs != subs) {
        known_number = entries_number = 0; /* another library may lie where one lay */
        subs = info->dlpi_subs;
    }
    adds = info->dlpi_adds;
    if (known_library(info) == NULL && known_number < MOST_LIBRARIES)
        known[known_number++] = (Known){info->dlpi_addr, info->dlpi_phdr, 1};
    return 0;
}

static int patch(struct dl_phdr_info *info, size_t Py_UNUSED(size), void *Py_UNUSED(data)) {
    Library library;
    Known *seen = known_library(info);
    if (info->dlpi_subs != subs || seen == NULL || seen->state == 3)
        return 0; /* the next time */
    seen->state = 3;
    if (read_library(info, &library) && !is_left_out(info, &library))
        exchange_all(&library, 0);
    return 0;
}

/* `all`: also those that are done. */
void relocations_update(int all) {
    if (atomic_exchange(&at_work, 1))
        return; /* whoever is at work does it */
    if (known == NULL)
        known = own_mapping(sizeof(Known) * MOST_LIBRARIES);
    int found = known != NULL ? dl_iterate_phdr(change, NULL) : UNCHANGED;
    patched.lost += found == WRITTEN;
    if (known != NULL && (all || found != UNCHANGED)) {
        Dl_info ignored;
        if (all || found == WRITTEN)
            known_number = entries_number = 0;
        adds_known = 1;
        dl_iterate_phdr(note, NULL);
        (void)dladdr((void *)&relocations_update, &ignored); /* waits for the loader's lock */
        dl_iterate_phdr(patch, NULL);
    }
    atomic_store(&at_work, 0);
}

static int restore_one(struct dl_phdr_info *info, size_t Py_UNUSED(size), void *Py_UNUSED(data)) {
    Library library;
    if (known_library(info) != NULL && read_library(info, &library) &&
        !is_left_out(info, &library))
        exchange_all(&library, 1);
    return 0;
}

void relocations_restore(void) {
    Dl_info ignored;
    if (known == NULL || atomic_exchange(&at_work, 1))
        return;
    (void)dladdr((void *)&relocations_update, &ignored);
    dl_iterate_phdr(restore_one, NULL);
    known_number = entries_number = 0;
    adds_known = 0;
    patched = (Patched){0};
    atomic_store(&at_work, 0);
}

void relocations_after_fork(void) {
    atomic_store(&at_work, 0);
}
