/* From what is walked in which order: the user's names, the library's, and what neither reaches. */
#include "walk.h"

#include <string.h>

#define OWN_AND_ONE 2 /* references to a tensor of torch's: its Python object's and one more */

static int begins_stage(const Request *r, Py_ssize_t root) {
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(r->stages); i++)
        if (PyLong_AsSsize_t(PyList_GET_ITEM(r->stages, i)) == root)
            return 1;
    return 0;
}

void walk_user(Walk *w, PyObject *request) {
    Request *r = &w->request;
    begin_phase(w, PHASE_USER);
    PyObject *ours[] = {request, r->roots, r->barriers, r->hidden, r->pinned};
    for (int i = 0; i < 5; i++)
        reserve(w, ours[i], PHASE_HIDDEN);
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(r->hidden); i++)
        reserve(w, PyList_GET_ITEM(r->hidden, i), PHASE_HIDDEN);
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(r->barriers); i++)
        reserve(w, PyList_GET_ITEM(r->barriers, i), PHASE_BARRIER);
    for (Py_ssize_t i = 0; i < r->library_from && !w->failed; i++) {
        if (begins_stage(r, i))
            drain_stage(w);
        seed(w, PyList_GET_ITEM(r->roots, i), (int32_t)i);
    }
    drain(w);
    w->folded_by_user = w->folded;
}

void walk_library(Walk *w) {
    const Request *r = &w->request;
    begin_phase(w, PHASE_LIBRARY);
    for (Py_ssize_t i = r->library_from; i < PyList_GET_SIZE(r->roots) && !w->failed; i++)
        seed(w, PyList_GET_ITEM(r->roots, i), (int32_t)i);
    if (w->resumed)
        resume_phase(w, PHASE_LIBRARY);
    drain(w);
}

/* Make every node that waits in a phase's colour a seed of the phase that begins. */
void walk_waiting(Walk *w, int waiting, int phase) {
    begin_phase(w, phase);
    Numbers ready = {0};
    /* What a seal leads to is reached and queued: where that phase has the same number as those that wait,
     * only these may be queued here. A node that was walked twice would have its edges twice. */
    for (size_t i = 0; waiting == phase && i < w->n_nodes && !w->failed; i++)
        if (w->nodes[i].phase == (uint32_t)waiting && !(w->nodes[i].flags & NODE_SEALED))
            push(w, &ready, (uint32_t)i);
    if (w->resumed)
        resume_phase(w, phase);
    for (size_t i = 0; waiting != phase && i < w->n_nodes && !w->failed; i++)
        if (w->nodes[i].phase == (uint32_t)waiting && !(w->nodes[i].flags & NODE_SEALED))
            push(w, &ready, (uint32_t)i);
    for (size_t i = 0; i < ready.count && !w->failed; i++) {
        Node *node = &w->nodes[ready.items[i]];
        node->phase = (uint32_t)phase;
        node->root = root_of_phase(phase);
        push(w, &w->seeds, ready.items[i]);
        push(w, &w->order, ready.items[i]);
    }
    drop(w, ready.items);
    drain(w);
}

typedef struct {
    Walk *walk;
    int64_t *references; /* of each unreached object: those that nobody unreached accounts for */
    uint8_t *counted;    /* of each unreached object of a storage: whether a tensor led to it */
    size_t base, count;
} Unreached;

/* Note that the collector tracks an object; one that nothing has reached so far waits for its phase.
 * Returns its node; NONE of one that is part of a parcel. */
uint32_t mark_tracked(Walk *w, PyObject *object, int is_young) {
    if (is_among(&w->in_parcels, object))
        return NONE;
    uint64_t entry = find_entry(&w->index, key_of(w, object));
    uint32_t node = entry ? node_of(entry) : reserve(w, object, PHASE_UNREACHED);
    if (node != NONE)
        w->nodes[node].flags |= NODE_TRACKED | (is_young ? NODE_YOUNG : 0);
    return node;
}

typedef struct {
    Walk *walk;
    uintptr_t coming[LAG]; /* with the lowest bit set where it is young */
    size_t count;
} Tracked;

static int mark_later(PyObject *object, int is_young, void *argument) {
    Tracked *t = argument;
    prefetch_slot(&t->walk->index, key_of(t->walk, object));
    uintptr_t *place = &t->coming[t->count++ % LAG];
    if (t->count > LAG)
        mark_tracked(t->walk, (PyObject *)(*place & ~(uintptr_t)1), *place & 1);
    *place = (uintptr_t)object | (is_young != 0);
    return t->walk->failed ? -1 : 0;
}

static void mark_all_tracked(Walk *w) {
    Tracked t = {.walk = w};
    visit_tracked(mark_later, &t);
    for (size_t i = t.count > LAG ? t.count - LAG : 0; i < t.count; i++) {
        uintptr_t coming = t.coming[i % LAG];
        mark_tracked(w, (PyObject *)(coming & ~(uintptr_t)1), coming & 1);
    }
}

/* Return the place of an object among the unreached; SIZE_MAX where it is none of them. */
static size_t place_of(const Unreached *u, PyObject *object) {
    uint64_t entry = find_entry(&u->walk->index, key_of(u->walk, object));
    size_t place = entry ? node_of(entry) - u->base : SIZE_MAX; /* before the base it wraps round */
    return place < u->count ? place : SIZE_MAX;
}

static int uncount(PyObject *object, void *argument) {
    Unreached *u = argument;
    size_t place = place_of(u, object);
    if (place != SIZE_MAX)
        u->references[place]--;
    return 0;
}

static void uncount_owned(Unreached *u, PyObject *object) {
    if (object != NULL)
        uncount(object, u);
    Py_XDECREF(object);
}

/* The memory of a tensor holds its storage's Python object, once for all tensors that share it. */
static void uncount_storage(Unreached *u, PyObject *tensor) {
    PyObject *storage = PyObject_CallOneArg(u->walk->access.untyped_storage, tensor);
    PyErr_Clear();
    size_t place = storage ? place_of(u, storage) : SIZE_MAX;
    if (place != SIZE_MAX && !u->counted[place]) {
        u->counted[place] = 1;
        u->references[place]--;
    }
    Py_XDECREF(storage);
}

/* What accumulates a gradient refers to its leaf in C++, for which torch adds one reference to the
 * leaf's Python object, whatever the number of those in C++: it is this where there is no other. A torch
 * that counts otherwise adds none. */
static void uncount_leaf(Unreached *u, PyObject *graph_node, const TypeFacts *facts) {
    const Access *access = &u->walk->access;
    if (facts->variable == NULL || access->storage_use_count == Py_None)
        return;
    PyObject *leaf = read_getset(facts->variable, graph_node);
    if (leaf == NULL)
        return;
    if (read_size(PyObject_CallOneArg(access->use_count, leaf)) == OWN_AND_ONE)
        uncount(leaf, u);
    Py_DECREF(leaf);
}

static void uncount_payload(Unreached *u, PyObject *object, const TypeFacts *facts) {
    Walk *w = u->walk;
    if (facts->flags & TYPE_TENSOR) {
        int is_leaf = is_true(read_getset(w->access.is_leaf, object));
        uncount_owned(u, gradient_of(w, object, is_leaf));
        uncount_owned(u, read_getset(w->access.base, object));
        uncount_owned(u, wrapped_by(w, object));
        if (facts->flags & TYPE_STORAGE)
            uncount_storage(u, object);
        if (may_ask_graph(w))
            uncount_owned(u, read_getset(w->access.grad_fn, object));
    } else if (facts->flags & TYPE_ARRAY) {
        traverse_array(object, uncount, u, array_bytes(w, object));
    } else if (facts->flags & TYPE_RECORD) {
        uncount_owned(u, record_base(object));
    } else if (facts->flags & TYPE_TEXT_BUFFER) {
        visit_text_pieces(object, uncount, u);
    }
}

static void count_references(Unreached *u, size_t count) {
    Walk *w = u->walk;
    for (size_t i = 0; i < count; i++) {
        PyObject *object = (PyObject *)w->nodes[u->base + i].key;
        u->references[i] = Py_REFCNT(object);
        if (w->types[w->nodes[u->base + i].type].rank == RANK_GRAPH)
            hold(w, object);
    }
    for (size_t i = 0; i < count; i++) {
        if (w->nodes[u->base + i].phase != PHASE_UNREACHED)
            continue;
        PyObject *object = (PyObject *)w->nodes[u->base + i].key;
        const TypeFacts *facts = &w->types[w->nodes[u->base + i].type];
        if (facts->type->tp_traverse != NULL && PyObject_IS_GC(object))
            facts->type->tp_traverse(object, uncount, u);
        uncount_payload(u, object, facts);
    }
    /* A node that a graph in C++ holds as well is no garbage: what it refers to is held through it. */
    for (size_t i = 0; i < count; i++) {
        const Node *node = &w->nodes[u->base + i];
        const TypeFacts *facts = &w->types[node->type];
        if (node->phase == PHASE_UNREACHED && facts->rank == RANK_GRAPH && u->references[i] <= 0)
            uncount_leaf(u, (PyObject *)node->key, facts);
    }
}

/* Say whether torch keeps the Python object of something that lives in C++ and that others lead to:
 * it does so of each that was ever requested. */
static int is_kept_by_torch(const Walk *w, const Node *node) {
    const TypeFacts *facts = &w->types[node->type];
    return facts->rank == RANK_GRAPH || (facts->flags & TYPE_STORAGE_OBJECT);
}

/* Begin at an unreached object; not at that of a storage whose memory tensors led to: to begin there
 * as well would leave the tensors that hold it nothing of their own. */
static void walk_one(Walk *w, Node *node, int32_t root) {
    PyObject *object = (PyObject *)node->key;
    int is_storage = w->types[node->type].flags & TYPE_STORAGE_OBJECT;
    if (is_storage && node->phase == PHASE_UNREACHED && has_met(w, object))
        node->phase = PHASE_HIDDEN;
    else
        seed(w, object, root);
}

/* Begin at what has more references than the unreached hold; what torch keeps by itself comes after
 * all else. */
static void walk_held(Unreached *u, size_t count, int kept) {
    Walk *w = u->walk;
    for (size_t i = 0; i < count && !w->failed; i++) {
        Node *node = &w->nodes[u->base + i];
        if (node->phase != PHASE_UNREACHED || u->references[i] <= 0 || is_kept_by_torch(w, node) != kept)
            continue;
        if (!kept)
            add_head(w, (uint32_t)(u->base + i), u->references[i]);
        walk_one(w, node, ROOT_NATIVE);
    }
    drain(w);
}

static void walk_garbage(Unreached *u, size_t count, int kept) {
    Walk *w = u->walk;
    for (size_t i = 0; i < count && !w->failed; i++) {
        if (is_kept_by_torch(w, &w->nodes[u->base + i]) != kept)
            continue;
        walk_one(w, &w->nodes[u->base + i], ROOT_GARBAGE);
        drain(w);
    }
}

/* The collector's own reasoning: of the nodes from `base` on that wait, what has more references
 * than the others hold is held by somebody who can't be traversed. */
void walk_unreached(Walk *w, size_t base, size_t count) {
    Unreached u = {.walk = w, .base = base, .count = count};
    u.references = fresh(w, count, sizeof(int64_t));
    u.counted = fresh(w, count, sizeof(uint8_t));
    if (u.references == NULL || u.counted == NULL || w->failed)
        goto out;
    memset(u.counted, 0, count);
    count_references(&u, count);
    begin_phase(w, PHASE_NATIVE);
    if (w->resumed)
        resume_phase(w, PHASE_NATIVE);
    walk_held(&u, count, 0);
    walk_held(&u, count, 1);
    begin_phase(w, PHASE_GARBAGE);
    walk_garbage(&u, count, 0);
    walk_garbage(&u, count, 1);
out:
    drop(w, u.counted);
    drop(w, u.references);
}

void walk_rest(Walk *w) {
    walk_library(w);
    walk_waiting(w, PHASE_BARRIER, PHASE_OTHER);
    walk_waiting(w, PHASE_HIDDEN, PHASE_HIDDEN);
    hide_parts(w);
    size_t base = w->n_nodes;
    mark_all_tracked(w);
    walk_unreached(w, base, w->n_nodes - base);
}
