/* The table of nodes, its index by address, and the list of edges. */
#include "walk.h"

#include <string.h>

static void insert(Index *index, uint64_t entry) {
    size_t at = slot_of(index, entry >> (NODE_BITS + 1));
    while (index->slots[at])
        at = (at + 1) & index->mask;
    index->slots[at] = entry;
}

int grow_index(Walk *w, size_t n_slots) {
    Index *index = &w->index;
    uint64_t *old = index->slots;
    size_t count = old ? index->mask + 1 : 0;
    uint64_t *slots = fresh(w, n_slots, 8);
    if (slots == NULL)
        return -1;
    index->slots = slots;
    index->mask = n_slots - 1;
    for (size_t i = 0; i < count; i++)
        if (old[i])
            insert(index, old[i]);
    drop(w, old);
    return 0;
}

/* Number a region in a slot that is free for it. */
void add_region(Walk *w, uintptr_t region, size_t at) {
    Index *index = &w->index;
    if (index->n_regions == MAX_REGIONS) {
        w->failed = 1;
        return;
    }
    index->regions[at] = region;
    index->region_numbers[at] = (uint8_t)index->n_regions++;
}

/* Append a node for a key that is not there yet: an object's address, a storage's with bit 0 set. */
uint32_t add_node(Walk *w, uintptr_t key, uint32_t type, uint32_t parent, int32_t root,
                  int phase) {
    if (w->n_nodes == w->cap_nodes) {
        size_t capacity = w->cap_nodes ? w->cap_nodes * 2 : 4096;
        Node *nodes = resized(w, w->nodes, capacity * sizeof *nodes);
        if (nodes == NULL)
            return NONE;
        w->nodes = nodes;
        w->cap_nodes = capacity;
    }
    if (w->n_nodes >= MOST_NODES) {
        w->failed = 1;
        return NONE;
    }
    uint32_t number = (uint32_t)w->n_nodes++;
    w->nodes[number] = (Node){.key = key, .type = type, .parent = parent, .root = root,
                              .phase = (uint32_t)phase, .mark = -1};
    uint64_t unsettled = phase == w->phase ? 0 : UNSETTLED;
    uint64_t place = key_in(w, key & ~(uintptr_t)1, key & 1);
    insert(&w->index, place << (NODE_BITS + 1) | unsettled | (number + 1));
    if (w->n_nodes * 2 > w->index.mask && grow_index(w, (w->index.mask + 1) * 2) < 0)
        return NONE;
    return number;
}

void add_edge(Walk *w, uint32_t source, uint32_t target) {
    if (source != w->source) {
        w->source = source;
        w->last_edge = NONE;
        w->nodes[source].first_edge = (uint32_t)w->n_edges;
    }
    if (target == w->last_edge)
        return;
    if (w->n_edges == w->cap_edges) {
        size_t capacity = w->cap_edges ? w->cap_edges * 2 : 8192;
        uint32_t *edges = capacity < NONE ? resized(w, w->edges, capacity * 4) : NULL;
        if (edges == NULL) {
            w->failed = 1;
            return;
        }
        w->edges = edges;
        w->cap_edges = capacity;
    }
    w->last_edge = target;
    w->edges[w->n_edges++] = target;
    w->nodes[source].n_edges++;
}

int enqueue(Walk *w, uint32_t node, int rank) {
    Numbers *queues[] = {&w->order, &w->code, &w->late, &w->graph, &w->order};
    if (rank == RANK_GRAPH && node < w->first_graph)
        w->first_graph = node;
    return push(w, queues[rank], node);
}

static int may_seed(const Walk *w, const Node *node) {
    return node->phase == PHASE_BARRIER ||
           (node->phase == PHASE_UNREACHED && w->phase >= PHASE_LIBRARY);
}

/* Begin a path at an object; returns its node, NONE where an earlier phase has it. */
uint32_t seed(Walk *w, PyObject *object, int32_t root) {
    uint64_t entry = find_entry(&w->index, key_of(w, object));
    uint32_t number;
    if (entry == 0) {
        if (w->resumed && w->phase == PHASE_LIBRARY && root >= w->request.lasting_from)
            unseal(w, object); /* of a module that is new */
        if (w->resumed && !takes_sealed(w, object))
            return NONE;
        uint32_t type = type_number(w, Py_TYPE(object));
        number = type == NONE
                     ? NONE
                     : add_node(w, (uintptr_t)object, type, NONE, root, w->phase);
        if (number == NONE)
            return NONE;
    } else {
        number = node_of(entry);
        Node *node = &w->nodes[number];
        if (!may_seed(w, node))
            return NONE;
        node->phase = (uint32_t)w->phase;
        node->root = root;
        node->parent = NONE;
    }
    push(w, &w->seeds, number);
    int late = w->types[w->nodes[number].type].rank == RANK_LATE;
    push(w, late ? &w->late : &w->order, number);
    return number;
}

/* Give an object a node that waits until its phase comes, and return it; NONE where it has one. */
uint32_t reserve(Walk *w, PyObject *object, int phase) {
    if (w->failed || find_entry(&w->index, key_of(w, object)))
        return NONE;
    if (w->resumed && phase == PHASE_HIDDEN && is_sealed_ours(w, object))
        return NONE;
    if (w->resumed && phase != PHASE_UNREACHED && !takes_sealed(w, object))
        return NONE;
    uint32_t type = type_number(w, Py_TYPE(object));
    return type == NONE ? NONE
                        : add_node(w, (uintptr_t)object, type, NONE, root_of_phase(phase), phase);
}
