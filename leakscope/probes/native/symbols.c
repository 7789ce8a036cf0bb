/* Names for addresses, from the files of the libraries that they lie in.
 *
 * The file is read through once for all addresses in it, whose names are asked together, and not
 * mapped: pages of its tables would count as the program's memory.
 */
#include "sampling.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    uint64_t offset; /* the address as the file has it */
    uint64_t begin;  /* of the symbol that was found */
    uint32_t name;
    int found;
} Wanted;

/* Nearly no function of a library is wanted: which pages of its file have any is told by a bit, and
   only functions on these are searched for. */
enum { PAGE_BITS = 12, PLACES = 1 << 16, FEW_PAGES = 16 };
typedef struct {
    uint64_t bits[PLACES / 64];
} Pages;

static void add_page(Pages *pages, uint64_t offset) {
    uint64_t place = (offset >> PAGE_BITS) % PLACES;
    pages->bits[place / 64] |= (uint64_t)1 << place % 64;
}

static int may_be_wanted(const Pages *pages, uint64_t begin, uint64_t size) {
    uint64_t first = begin >> PAGE_BITS, last = (begin + size) >> PAGE_BITS;
    if (last - first >= FEW_PAGES)
        return 1;
    for (uint64_t page = first; page <= last; page++)
        if (pages->bits[page % PLACES / 64] >> page % 64 & 1)
            return 1;
    return 0;
}

static int in_order(const void *left, const void *right) {
    uint64_t a = ((const Wanted *)left)->offset, b = ((const Wanted *)right)->offset;
    return a < b ? -1 : a > b;
}

static int read_at(int file, void *into, size_t size, uint64_t at) {
    char *to = into;
    while (size > 0) {
        ssize_t got = pread(file, to, size, (off_t)at);
        if (got <= 0)
            return 0;
        to += got;
        size -= (size_t)got;
        at += (uint64_t)got;
    }
    return 1;
}

static void try_symbol(const ElfW(Sym) * symbol, const Pages *pages, Wanted *wanted, size_t number) {
    unsigned type = ELF64_ST_TYPE(symbol->st_info);
    if ((type != STT_FUNC && type != STT_GNU_IFUNC) || symbol->st_shndx == SHN_UNDEF ||
        symbol->st_value == 0 || !may_be_wanted(pages, symbol->st_value, symbol->st_size))
        return;
    size_t low = 0, high = number;
    while (low < high) { /* the first that doesn't lie before it */
        size_t middle = (low + high) / 2;
        if (wanted[middle].offset < symbol->st_value)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < number && wanted[low].offset < symbol->st_value + symbol->st_size; low++)
        if (!wanted[low].found || symbol->st_value > wanted[low].begin) {
            wanted[low].found = 1;
            wanted[low].begin = symbol->st_value;
            wanted[low].name = symbol->st_name;
        }
}

static int read_symbols(int file, const ElfW(Shdr) * table, Wanted *wanted, size_t number) {
    enum { AT_ONCE = 4096 };
    static ElfW(Sym) some[AT_ONCE];
    static Pages pages;
    memset(&pages, 0, sizeof pages);
    for (size_t i = 0; i < number; i++)
        add_page(&pages, wanted[i].offset);
    uint64_t all = table->sh_size / sizeof *some;
    for (uint64_t first = 0; first < all; first += AT_ONCE) {
        size_t now = all - first < AT_ONCE ? (size_t)(all - first) : AT_ONCE;
        if (!read_at(file, some, now * sizeof *some, table->sh_offset + first * sizeof *some))
            return 0;
        for (size_t i = 0; i < now; i++)
            try_symbol(&some[i], &pages, wanted, number);
    }
    return 1;
}

static int find_table(int file, unsigned type, ElfW(Shdr) * table, ElfW(Shdr) * strings) {
    ElfW(Ehdr) header;
    if (!read_at(file, &header, sizeof header, 0) || memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
        header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_shentsize != sizeof *table)
        return 0;
    for (unsigned i = 0; i < header.e_shnum; i++) {
        if (!read_at(file, table, sizeof *table, header.e_shoff + i * sizeof *table))
            return 0;
        if (table->sh_type == type && table->sh_link < header.e_shnum)
            return read_at(file, strings, sizeof *strings,
                           header.e_shoff + table->sh_link * sizeof *strings);
    }
    return 0;
}

static PyObject *name_at(int file, const ElfW(Shdr) * strings, const Wanted *wanted) {
    char name[4096];
    if (!wanted->found || wanted->name >= strings->sh_size)
        return Py_NewRef(Py_None);
    uint64_t left = strings->sh_size - wanted->name;
    size_t size = left < sizeof name ? (size_t)left : sizeof name;
    if (!read_at(file, name, size, strings->sh_offset + wanted->name))
        return Py_NewRef(Py_None);
    return PyUnicode_DecodeUTF8(name, (Py_ssize_t)strnlen(name, size), "replace");
}

static int add_names(PyObject *names, int file, const ElfW(Shdr) * strings, Wanted *wanted,
                     size_t number) {
    for (size_t i = 0; i < number; i++) {
        PyObject *key = PyLong_FromUnsignedLongLong(wanted[i].offset);
        PyObject *name = name_at(file, strings, &wanted[i]);
        int result = key && name ? PyDict_SetItem(names, key, name) : -1;
        Py_XDECREF(key);
        Py_XDECREF(name);
        if (result < 0)
            return -1;
    }
    return 0;
}

/* Prefer the table that has what isn't exported, too. */
static int read_names(const char *path, Wanted *wanted, size_t number, PyObject *names) {
    int file = open(path, O_RDONLY | O_CLOEXEC), result = 0;
    if (file < 0)
        return 0;
    ElfW(Shdr) table, strings;
    if ((find_table(file, SHT_SYMTAB, &table, &strings) ||
         find_table(file, SHT_DYNSYM, &table, &strings)) &&
        read_symbols(file, &table, wanted, number))
        result = add_names(names, file, &strings, wanted, number);
    close(file);
    return result;
}

/* symbols(path, offsets) -> {offset: name or None}; without those of a file that can't be read. */
PyObject *symbols_of(PyObject *Py_UNUSED(module), PyObject *arguments) {
    const char *path;
    PyObject *offsets;
    if (!PyArg_ParseTuple(arguments, "sO!", &path, &PyList_Type, &offsets))
        return NULL;
    size_t number = (size_t)PyList_GET_SIZE(offsets);
    Wanted *wanted = calloc(number + 1, sizeof *wanted);
    PyObject *names = PyDict_New();
    if (wanted == NULL || names == NULL) {
        free(wanted);
        Py_XDECREF(names);
        return PyErr_NoMemory();
    }
    for (size_t i = 0; i < number; i++)
        wanted[i].offset =
            PyLong_AsUnsignedLongLongMask(PyList_GET_ITEM(offsets, (Py_ssize_t)i));
    qsort(wanted, number, sizeof *wanted, in_order);
    int failed = PyErr_Occurred() != NULL || read_names(path, wanted, number, names) < 0;
    free(wanted);
    if (failed)
        Py_CLEAR(names);
    return names;
}
