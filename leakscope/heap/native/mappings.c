/* What backs an address: memory of this process's own, memory shared with others, or a file.
 *
 * The kernel's table of mappings tells; it is read at most once a walk, when something is met that
 * may be no private memory. Where there is no such table, all memory counts as private.
 */
#include "walk.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The beginning of Python's mmap object; it is the same from 3.10 to 3.13 where there is no Windows. */
typedef struct {
    PyObject_HEAD
    char *data;
    Py_ssize_t size;
} MappedFile;

void follow_mapping(Walk *w, uint32_t node, PyObject *object) {
    const MappedFile *mapped = (const MappedFile *)object;
    if (mapped->data != NULL && mapped->size > 0)
        follow_memory(w, node, (uintptr_t)mapped->data, (uint64_t)mapped->size);
}

static char *read_table(Walk *w, size_t *length) {
    int file = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    size_t capacity = (size_t)1 << 18;
    char *text = file < 0 ? NULL : fresh(w, 1, capacity);
    *length = 0;
    while (text != NULL) {
        ssize_t got = read(file, text + *length, capacity - *length - 1);
        if (got <= 0)
            break;
        *length += (size_t)got;
        if (capacity - *length > 4096)
            continue;
        capacity *= 2;
        char *more = resized(w, text, capacity);
        if (more == NULL)
            break;
        text = more;
    }
    if (text != NULL)
        text[*length] = 0;
    if (file >= 0)
        close(file);
    return text;
}

static int starts_with(const char *text, const char *start) {
    return strncmp(text, start, strlen(start)) == 0;
}

/* Tell from a line's end, `rw-s 00000000 00:1b 12 /dev/shm/name`, what backs the mapping. */
static int backing_of_line(const char *line, const char *end) {
    const char *path = memchr(line, '/', (size_t)(end - line));
    int is_shared = line[3] == 's';
    if (path == NULL)
        return is_shared ? MEMORY_SHARED : MEMORY_PRIVATE;
    if (starts_with(path, "/dev/") || starts_with(path, "/memfd:") || starts_with(path, "/SYSV"))
        return is_shared ? MEMORY_SHARED : MEMORY_PRIVATE;
    return MEMORY_FILE;
}

static void read_mappings(Walk *w) {
    size_t length, lines = 0;
    char *text = read_table(w, &length);
    w->has_mappings = 1;
    if (text == NULL)
        return;
    for (size_t i = 0; i < length; i++)
        lines += text[i] == '\n';
    w->mappings = fresh(w, lines ? lines : 1, sizeof *w->mappings);
    for (char *line = text, *end; w->mappings && (end = strchr(line, '\n')); line = end + 1) {
        char *rest;
        uintptr_t begin = strtoull(line, &rest, 16), stop = strtoull(rest + 1, &rest, 16);
        int backing = end - rest > 5 ? backing_of_line(rest + 1, end) : MEMORY_PRIVATE;
        if (backing != MEMORY_PRIVATE)
            w->mappings[w->n_mappings++] = (Mapping){begin, stop, backing};
    }
    drop(w, text);
}

/* Return MEMORY_PRIVATE, MEMORY_SHARED or MEMORY_FILE. */
int backing_of(Walk *w, uintptr_t address) {
    if (!w->has_mappings)
        read_mappings(w);
    size_t low = 0, high = w->n_mappings;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (w->mappings[middle].end <= address)
            low = middle + 1;
        else
            high = middle;
    }
    int found = low < w->n_mappings && w->mappings[low].begin <= address;
    return found ? w->mappings[low].backing : MEMORY_PRIVATE;
}
