/* Scratch memory. Large blocks are mappings of their own: they go back to the system at once when
 * the walk is over, where malloc would keep them and so change the figures that are measured. */
#define _GNU_SOURCE
#include "walk.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct {
    size_t bytes; /* with this header */
    size_t is_mapped;
} Block;

#ifdef __SANITIZE_ADDRESS__
#define MAPPED_FROM SIZE_MAX /* it watches what malloc gives, and no mappings */
#else
#define MAPPED_FROM ((size_t)1 << 17)
#endif
#define HUGE_FROM ((size_t)1 << 22)

/* A page fault costs more than filling the page does: ask for huge ones. */
static void prefer_huge_pages(void *memory, size_t bytes) {
#ifdef MADV_HUGEPAGE
    if (bytes >= HUGE_FROM)
        (void)madvise(memory, bytes, MADV_HUGEPAGE);
#endif
}

static Block *new_block(size_t bytes) {
    Block *block;
    if (bytes < MAPPED_FROM) {
        block = calloc(1, bytes);
    } else {
        block = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (block == MAP_FAILED)
            block = NULL;
        else
            prefer_huge_pages(block, bytes);
    }
    if (block != NULL)
        *block = (Block){bytes, bytes >= MAPPED_FROM};
    return block;
}

static void free_block(Block *block) {
    if (block->is_mapped)
        munmap(block, block->bytes);
    else
        free(block);
}

static Block *resized_block(Block *block, size_t bytes) {
#ifdef MREMAP_MAYMOVE
    if (block->is_mapped && bytes >= MAPPED_FROM) {
        Block *moved = mremap(block, block->bytes, bytes, MREMAP_MAYMOVE);
        if (moved == MAP_FAILED)
            return NULL;
        prefer_huge_pages(moved, bytes);
        moved->bytes = bytes;
        return moved;
    }
#endif
    Block *larger = new_block(bytes);
    if (larger == NULL)
        return NULL;
    size_t used = block->bytes < bytes ? block->bytes : bytes;
    memcpy(larger + 1, block + 1, used - sizeof *block);
    free_block(block);
    return larger;
}

static void *counted(Walk *w, Block *block, size_t before) {
    if (block == NULL) {
        w->failed = 1;
        return NULL;
    }
    w->scratch += block->bytes - before;
    if (w->scratch > w->peak)
        w->peak = w->scratch;
    return block + 1;
}

/* Return zeroed memory. */
void *fresh(Walk *w, size_t count, size_t size) {
    return counted(w, new_block(sizeof(Block) + count * size), 0);
}

/* Return the memory at another size; what is new in it is undefined. */
void *resized(Walk *w, void *old, size_t bytes) {
    if (old == NULL)
        return fresh(w, 1, bytes);
    Block *block = (Block *)old - 1;
    size_t before = block->bytes;
    return counted(w, resized_block(block, sizeof(Block) + bytes), before);
}

void drop(Walk *w, void *memory) {
    if (memory == NULL)
        return;
    Block *block = (Block *)memory - 1;
    w->scratch -= block->bytes;
    free_block(block);
}

/* Return how much of it is resident, its header included: of a large block pages that were touched. */
size_t resident_part(const void *memory) {
    enum { AT_ONCE = 1024 };
    unsigned char states[AT_ONCE];
    if (memory == NULL)
        return 0;
    const Block *block = (const Block *)memory - 1;
    size_t page = (size_t)sysconf(_SC_PAGESIZE), pages = 0;
    if (!block->is_mapped)
        return block->bytes;
    for (size_t at = 0; at < block->bytes; at += AT_ONCE * page) {
        size_t left = block->bytes - at, now = left < AT_ONCE * page ? left : AT_ONCE * page;
        if (mincore((char *)block + at, now, (void *)states) != 0)
            return block->bytes;
        for (size_t i = 0; i * page < now; i++)
            pages += states[i] & 1;
    }
    return pages * page;
}

int push(Walk *w, Numbers *list, uint32_t value) {
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? list->capacity * 2 : 1024;
        uint32_t *items = resized(w, list->items, capacity * 4);
        if (items == NULL)
            return -1;
        list->items = items;
        list->capacity = capacity;
    }
    list->items[list->count++] = value;
    return 0;
}
