/* The seal's table: which objects are sealed, and how it grows at the end of a walk. */
#include "seal.h"

#if PY_VERSION_HEX < 0x030B0000
#include <frameobject.h>
#endif

#include <stdlib.h>
#include <string.h>

static const char *const capsule_name = "leakscope.heap.seal";

static void free_seal(PyObject *capsule) {
    Seal *seal = PyCapsule_GetPointer(capsule, capsule_name);
    if (seal == NULL)
        return;
    Walk nobody = {0};
    drop(&nobody, seal->entries);
    drop(&nobody, seal->slots);
    drop(&nobody, seal->tracked);
    drop(&nobody, seal->sequence);
    drop(&nobody, seal->dicts);
    drop(&nobody, seal);
}

PyObject *new_seal(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing)) {
    Walk nobody = {0};
    Seal *seal = fresh(&nobody, 1, sizeof *seal);
    if (seal == NULL)
        return PyErr_NoMemory();
    PyObject *capsule = PyCapsule_New(seal, capsule_name, free_seal);
    if (capsule == NULL)
        drop(&nobody, seal);
    return capsule;
}

Seal *seal_of(PyObject *capsule) { return PyCapsule_GetPointer(capsule, capsule_name); }

int has_sealed(const Seal *seal) { return seal->count > 0; }

/* Return how many objects are sealed, and how many of those are gone. */
PyObject *seal_facts(PyObject *Py_UNUSED(module), PyObject *capsule) {
    const Seal *seal = seal_of(capsule);
    if (seal == NULL)
        return NULL;
    return Py_BuildValue("(nn)", (Py_ssize_t)seal->count, (Py_ssize_t)seal->n_gone);
}

/* Return the bytes that a seal takes itself. */
PyObject *seal_bytes(PyObject *Py_UNUSED(module), PyObject *capsule) {
    const Seal *seal = seal_of(capsule);
    if (seal == NULL)
        return NULL;
    return PyLong_FromSize_t(resident_part(seal) + resident_part(seal->entries) +
                             resident_part(seal->slots) + resident_part(seal->tracked) +
                             resident_part(seal->sequence) + resident_part(seal->dicts));
}

/* Return the number of a type in the seal; NONE where there are too many. */
static uint32_t sealed_type(Seal *seal, PyTypeObject *type) {
    size_t mask = 2 * MOST_SEALED_TYPES - 1, at = ((uintptr_t)type * 0x9E3779B97F4A7C15ull >> 40) & mask;
    for (; seal->type_slots[at]; at = (at + 1) & mask)
        if (seal->types[seal->type_slots[at] - 1] == type)
            return seal->type_slots[at] - 1u;
    if (seal->n_types == MOST_SEALED_TYPES)
        return NONE;
    seal->types[seal->n_types] = type;
    seal->is_static[seal->n_types] = !(type->tp_flags & Py_TPFLAGS_HEAPTYPE);
    seal->type_slots[at] = (uint16_t)++seal->n_types;
    return seal->n_types - 1;
}

static void insert_from(const Seal *seal, uint32_t first) {
    for (uint32_t i = first; i < seal->count; i++) {
        if (seal->entries[i].word == 0)
            continue;
        size_t at = sealed_slot(seal, (uintptr_t)SEALED_OBJECT(&seal->entries[i]));
        while (seal->slots[at])
            at = (at + 1) & (seal->n_slots - 1);
        seal->slots[at] = i + 1;
    }
}

/* Enter the entries from `first` on in the table, which grows if it must. */
static int index_entries(Walk *w, Seal *seal, uint32_t first) {
    size_t n_slots = seal->n_slots ? seal->n_slots : (size_t)1 << 12;
    while (n_slots < seal->count * 3 / 2 + 64)
        n_slots *= 2;
    if (n_slots != seal->n_slots) {
        uint32_t *slots = fresh(w, n_slots, 4);
        if (slots == NULL)
            return -1;
        drop(w, seal->slots);
        seal->slots = slots;
        seal->n_slots = n_slots;
        first = 0;
    }
    insert_from(seal, first);
    return 0;
}

/* An entry that is gone stays in its place: others may name it as their dominator. */
void forget(Seal *seal, uint32_t entry) {
    seal->entries[entry].word = 0;
    seal->entries[entry].bytes = 0;
    seal->n_gone++;
}

/* Of these types objects never come to refer to anything else, or do so where a program patches
 * another's code: that is found by looking at all edges. */
static int is_immutable(const PyTypeObject *type) {
    static const PyTypeObject *const types[] = {
        &PyTuple_Type, &PyFrozenSet_Type, &PyFunction_Type, &PyCode_Type, &PyCFunction_Type,
        &PyMethodDescr_Type, &PyClassMethodDescr_Type, &PyWrapperDescr_Type, &PyGetSetDescr_Type,
        &PyMemberDescr_Type, &PyProperty_Type, &PyStaticMethod_Type, &PyClassMethod_Type,
        &PyMethod_Type, &_PyWeakref_RefType, &_PyWeakref_ProxyType, &PyUnicode_Type, &PyBytes_Type,
        &PyLong_Type, &PyFloat_Type, &PyComplex_Type, &PyCapsule_Type, &PyInstanceMethod_Type,
        &Py_GenericAliasType, &PyDictProxy_Type};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (type == types[i])
            return 1;
    return PyType_FastSubclass((PyTypeObject *)type, Py_TPFLAGS_TYPE_SUBCLASS) ||
           type == &PyModule_Type || strcmp(type->tp_name, "types.UnionType") == 0;
}

#define TYPES_NEVER_SEALED                                                                          \
    (TYPES_WITH_PAYLOAD | TYPE_IMAGE | TYPE_FRAME | TYPE_EXPORTER | TYPE_C_DATA | TYPE_TEXT_BUFFER | TYPE_CANVAS)

static int may_seal_type(const TypeFacts *facts) {
    const PyTypeObject *type = facts->type;
    int is_bytes = type == &PyBytes_Type; /* can't be resized */
    if (type == NULL || facts->rank == RANK_GRAPH || facts->rank == RANK_LATE ||
        ((facts->flags & TYPES_NEVER_SEALED) && !is_bytes))
        return 0;
    return type != &PyGen_Type && type != &PyCoro_Type && type != &PyAsyncGen_Type &&
           type != &PyTraceBack_Type && type != &PyByteArray_Type;
}

typedef struct {
    Walk *walk;
    const Tree *tree;
    Seal *seal;
    uint32_t *entries; /* by node: its entry + 1; 0 where it isn't sealed */
    int seals_young;
} Sealing;

/* What native code holds and is new may be leaked: each full walk is to count it. */
static int is_new(const Walk *w, const Node *node) {
    return w->since && has_begun(w->since) && !is_known(w->since, (PyObject *)node->key);
}

static int may_seal(const Sealing *s, const Node *node) {
    const Request *request = &s->walk->request;
    const TypeFacts *facts = &s->walk->types[node->type];
    if (node->phase < PHASE_LIBRARY || node->phase > PHASE_NATIVE || !may_seal_type(facts) ||
        (node->flags & NODE_BY_GRAPH) || node->bytes >= UINT32_MAX)
        return 0;
    if (node->phase == PHASE_NATIVE && (!seals_native(s->walk) || is_new(s->walk, node)))
        return 0;
    int is_root = node->parent == NONE && node->phase == PHASE_LIBRARY;
    if (is_root && node->root < request->lasting_from)
        return 0;
    if ((node->flags & NODE_YOUNG) && !s->seals_young && !is_root)
        return 0;
    return node->parent == NONE || s->entries[node->parent] != 0;
}

static int has_room(Walk *w, Seal *seal, size_t more) {
    if (seal->count + more >= NONE - 1)
        return 0;
    size_t capacity = seal->count + more;
    if (capacity > seal->capacity) {
        Sealed *entries = resized(w, seal->entries, capacity * sizeof *entries);
        if (entries == NULL)
            return 0;
        seal->entries = entries;
        seal->capacity = capacity;
    }
    size_t words = capacity / 64 + 1;
    if (words > seal->n_tracked_words) {
        uint64_t *tracked = resized(w, seal->tracked, words * 8);
        if (tracked == NULL)
            return 0;
        memset(tracked + seal->n_tracked_words, 0, (words - seal->n_tracked_words) * 8);
        seal->tracked = tracked;
        seal->n_tracked_words = words;
    }
    return 1;
}

static void seal_node(Sealing *s, uint32_t number) {
    Walk *w = s->walk;
    Seal *seal = s->seal;
    const Node *node = &w->nodes[number];
    const TypeFacts *facts = &w->types[node->type];
    uint32_t type = sealed_type(seal, facts->type);
    if (type == NONE)
        return;
    uint32_t above = s->tree->node[s->tree->dominator[s->tree->number[number]]];
    uint32_t entry = (uint32_t)seal->count++;
    /* What was made since the first walk may be replaced by another at the same place. */
    uint64_t flags = is_immutable(facts->type) && !w->resumed ? 0 : SEALED_MUTABLE;
    int is_static = PyType_Check((PyObject *)node->key) &&
                    !(((PyTypeObject *)node->key)->tp_flags & Py_TPFLAGS_HEAPTYPE);
    flags |= is_static ? SEALED_IMMORTAL : 0;
    flags |= node->parent == NONE ? SEALED_ROOT_FLAG : 0;
    uint32_t root = node->phase == PHASE_LIBRARY
                        ? (uint32_t)(node->root - w->request.lasting_from + w->request.root_base)
                        : (uint32_t)node->root;
    seal->entries[entry] = (Sealed){
        .word = (uint64_t)node->key >> 3 << 19 | (uint64_t)type << 7 | (uint64_t)node->phase << 4 | flags,
        .parent = node->parent == NONE ? root : s->entries[node->parent] - 1,
        .dominator = above == NONE ? NONE : s->entries[above] - 1,
        .bytes = (uint32_t)node->bytes,
    };
    if (node->flags & NODE_TRACKED)
        set_bit(seal->tracked, entry);
    if (node->phase == PHASE_NATIVE && w->resumed)
        seal->native_bytes += node->bytes;
    s->entries[number] = entry + 1;
}

/* Note of a new entry whether it refers to what isn't sealed, and what else it refers to. */
static void finish_entry(const Sealing *s, uint32_t number) {
    const Walk *w = s->walk;
    const Node *node = &w->nodes[number];
    Sealed *sealed = &s->seal->entries[s->entries[number] - 1];
    int crosses = (node->flags & NODE_CROSSES) && node->phase != PHASE_HIDDEN;
    for (uint32_t e = 0; e < node->n_edges && !crosses; e++) {
        uint32_t target = s->tree->node[w->edges[node->first_edge + e]];
        crosses = s->entries[target] == 0;
    }
    if (crosses)
        sealed->word |= SEALED_BOUNDARY;
    sealed->checksum = checksum_of((PyObject *)node->key);
}

/* Few objects are young, unless the collector is off: then to leave them out would leave out all. */
static int are_many_young(const Walk *w) {
    size_t young = 0, tracked = 0;
    for (size_t i = 0; i < w->order.count; i++) {
        unsigned flags = w->nodes[w->order.items[i]].flags;
        tracked += (flags & NODE_TRACKED) != 0;
        young += (flags & NODE_YOUNG) != 0;
    }
    return young > tracked / 10;
}

static const Seal *sorting; /* qsort has no argument for it; the GIL is held */

static int by_address(const void *left, const void *right) {
    uint64_t a = sorting->entries[*(const uint32_t *)left].word >> 19;
    uint64_t b = sorting->entries[*(const uint32_t *)right].word >> 19;
    return a < b ? -1 : a > b;
}

/* Add entries of dicts that aren't tracked to the list of those; takes what it is given. */
int list_dicts(Walk *w, Seal *seal, Numbers *dicts) {
    if (dicts->count == 0)
        return 0;
    for (size_t i = 0; i < seal->n_dicts; i++)
        if (seal->entries[seal->dicts[i]].word && !has_bit(seal->tracked, seal->dicts[i]) &&
            push(w, dicts, seal->dicts[i]) < 0)
            return -1;
    sorting = seal;
    qsort(dicts->items, dicts->count, 4, by_address);
    sorting = NULL;
    size_t count = 0;
    for (size_t i = 0; i < dicts->count; i++)
        if (count == 0 || dicts->items[count - 1] != dicts->items[i])
            dicts->items[count++] = dicts->items[i];
    drop(w, seal->dicts);
    seal->dicts = dicts->items;
    seal->n_dicts = count;
    return 0;
}

static int list_new_dicts(Walk *w, Seal *seal, uint32_t first) {
    Numbers dicts = {0};
    for (uint32_t i = first; i < seal->count; i++)
        if (seal->types[SEALED_TYPE(&seal->entries[i])] == &PyDict_Type && !has_bit(seal->tracked, i) &&
            push(w, &dicts, i) < 0)
            return -1;
    return list_dicts(w, seal, &dicts);
}

static size_t count_candidates(const Walk *w) {
    size_t count = 0;
    for (size_t i = 0; i < w->order.count; i++) {
        const Node *node = &w->nodes[w->order.items[i]];
        count += node->phase >= PHASE_LIBRARY && node->phase <= PHASE_NATIVE &&
                 !(node->flags & NODE_SEALED);
    }
    return count;
}

static void seal_nodes(Sealing *s) {
    const Walk *w = s->walk;
    uint32_t first = (uint32_t)s->seal->count;
    for (size_t i = 0; i < w->order.count; i++) {
        uint32_t number = w->order.items[i];
        const Node *node = &w->nodes[number];
        if (!(node->flags & NODE_SEALED) && s->tree->number[number] && may_seal(s, node))
            seal_node(s, number);
    }
    for (size_t i = 0; i < w->order.count; i++)
        if (s->entries[w->order.items[i]] > first)
            finish_entry(s, w->order.items[i]);
}

/* Seal what this walk met and what will stay. Edges lead to positions. */
int add_to_seal(Walk *w, const Tree *t) {
    Seal *seal = w->seal;
    Sealing s = {w, t, seal, fresh(w, w->n_nodes + 1, 4), are_many_young(w)};
    uint32_t first = (uint32_t)seal->count;
    int result = -1;
    if (s.entries != NULL && has_room(w, seal, count_candidates(w))) {
        if (w->resumed)
            note_kept(w, s.entries);
        else
            seal->folded = w->folded - w->folded_by_user;
        seal_nodes(&s);
        result = list_new_dicts(w, seal, first) < 0 ? -1 : index_entries(w, seal, first);
    }
    drop(w, s.entries);
    return result;
}

/* Forget everything: the next walk is a whole one. */
void reset_seal(Walk *w, Seal *seal) {
    drop(w, seal->entries);
    drop(w, seal->slots);
    drop(w, seal->tracked);
    drop(w, seal->sequence);
    drop(w, seal->dicts);
    memset(seal, 0, sizeof *seal);
}
