/* Memory that several objects have part in though no reference tells: `torch.from_numpy` keeps the
 * array's memory, and the array, where no traversal sees. Addresses tell.
 *
 * Foreign memory, which did not come from its holder's own allocator, is settled when the walk is
 * over: it is part of a Python object's memory, or of other such memory, or maps a file.
 */
#include "walk.h"

#include <stdlib.h>

#define SMALLEST_MAPPED 65536 /* the system isn't asked about less */

void add_extent(Walk *w, uint32_t node, uintptr_t address, uint64_t bytes, int is_foreign) {
    if (w->n_extents == w->cap_extents) {
        size_t capacity = w->cap_extents ? w->cap_extents * 2 : 256;
        Extent *extents = resized(w, w->extents, capacity * sizeof *extents);
        if (extents == NULL)
            return;
        w->extents = extents;
        w->cap_extents = capacity;
    }
    w->extents[w->n_extents++] = (Extent){address, bytes, node, NONE, is_foreign};
    w->n_foreign += is_foreign != 0;
}

/* Follow an edge to memory that is known by its address alone. */
void follow_memory(Walk *w, uint32_t source, uintptr_t address, uint64_t bytes) {
    if (address == 0 || bytes == 0)
        return;
    uint64_t entry = find_entry(&w->index, key_in(w, address, 1));
    uint32_t node = entry ? node_of(entry) : NONE;
    if (entry == 0) {
        node = add_node(w, address | 1, MEMORY_PRIVATE, source, w->nodes[source].root, w->phase);
        if (node == NONE || push(w, &w->order, node) < 0)
            return;
        w->nodes[node].bytes = bytes;
        add_extent(w, node, address, bytes, 1);
    }
    if (w->nodes[node].phase == (uint32_t)w->phase)
        add_edge(w, source, node);
}

/* By address; of those that begin alike first the largest, then what is its holder's own. */
static int by_address(const void *left, const void *right) {
    const Extent *a = left, *b = right;
    if (a->address != b->address)
        return a->address < b->address ? -1 : 1;
    if (a->bytes != b->bytes)
        return a->bytes > b->bytes ? -1 : 1;
    if (a->is_foreign != b->is_foreign)
        return a->is_foreign - b->is_foreign;
    return a->node < b->node ? -1 : a->node > b->node;
}

static size_t first_from(const Walk *w, uintptr_t address) {
    size_t low = 0, high = w->n_extents;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (w->extents[middle].address < address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Find the Python objects in whose memory foreign extents lie. */
static void find_owners(Walk *w) {
    for (size_t i = 0; i < w->order.count; i++) {
        uint32_t number = w->order.items[i];
        const TypeFacts *facts = &w->types[w->nodes[number].type];
        uintptr_t address;
        uint64_t bytes;
        if (!(facts->flags & (TYPE_ARRAY | TYPE_EXPORTER | TYPE_C_DATA)) ||
            !exported_memory(w, (PyObject *)w->nodes[number].key, facts, &address, &bytes))
            continue;
        for (size_t b = first_from(w, address); b < w->n_extents; b++) {
            Extent *extent = &w->extents[b];
            if (extent->address >= address + bytes)
                break;
            if (extent->is_foreign && extent->owner == NONE)
                extent->owner = number;
        }
    }
}

/* Foreign extents within another extent are part of that. */
static void find_containers(Walk *w) {
    const Extent *around = NULL;
    for (size_t i = 0; i < w->n_extents; i++) {
        Extent *extent = &w->extents[i];
        if (around && extent->address + extent->bytes <= around->address + around->bytes) {
            if (extent->is_foreign && extent->owner == NONE)
                extent->owner = around->owner == NONE ? around->node : around->owner;
        } else {
            around = extent;
        }
    }
}

/* Of two phases, the earlier has the memory; within one, an edge says that both hold it. */
static void give_to_owner(Walk *w, const Extent *extent) {
    Node *node = &w->nodes[extent->node], *owner = &w->nodes[extent->owner];
    if (owner->phase > node->phase) {
        owner->bytes -= owner->bytes < extent->bytes ? owner->bytes : extent->bytes;
        return;
    }
    node->bytes = 0;
    if (owner->phase == node->phase)
        add_edge(w, extent->node, extent->owner);
}

static void tell_backing(Walk *w, const Extent *extent) {
    Node *node = &w->nodes[extent->node];
    if (extent->bytes < SMALLEST_MAPPED)
        return;
    node->type = (uint32_t)backing_of(w, extent->address);
    if (node->type == MEMORY_FILE)
        node->bytes = 0;
}

void settle_extents(Walk *w) {
    if (w->n_foreign == 0 || w->failed)
        return;
    qsort(w->extents, w->n_extents, sizeof *w->extents, by_address);
    find_owners(w);
    find_containers(w);
    w->source = NONE;
    for (size_t i = 0; i < w->n_extents && !w->failed; i++) {
        if (w->extents[i].owner != NONE)
            give_to_owner(w, &w->extents[i]);
        else if (w->extents[i].is_foreign)
            tell_backing(w, &w->extents[i]);
    }
}

/* Return the bytes of files that are mapped, each stretch once. */
uint64_t file_bytes(const Walk *w) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < w->n_extents; i++) {
        const Node *node = &w->nodes[w->extents[i].node];
        if (node->type == MEMORY_FILE && node->phase != PHASE_HIDDEN)
            bytes += w->extents[i].bytes;
    }
    return bytes;
}
