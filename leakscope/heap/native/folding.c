/* Objects without a node of their own: what only one container refers to, and is too light for a row.
 *
 * A number or text to which nothing else refers is folded into its container, which dominates it whatever
 * else the heap looks like. The same holds for a parcel: a container to which only another refers, with all
 * that only it keeps. A list of a million records so has a node of its own and none for its records.
 *
 * A parcel may also refer to numbers and texts that others hold too, and to few objects that have nodes in any
 * case. These edges begin at a node that stands for all parcels of a container. It weighs nothing, has no
 * object, and is reached when the parcels would have been, so that names and dominators are those of a walk that
 * folds nothing but numbers and texts.
 */
#include "walk.h"

#include <string.h>

#define FOLD_LIMIT 4096 /* a lone number or text smaller than this needs no node of its own */
#define MOST_LEVELS 6   /* of containers in each other in a parcel */
#define MOST_INNER 64   /* containers of a parcel */
#define MOST_SHARED 64  /* what a parcel refers to and others hold too */
#define MOST_MET 4      /* of these, what is neither number nor text nor another leaf */
#define MOST_AWAITED (1u << (AWAITED_BITS - 1))
#define MOST_LUCK 64
#define LUCK_OF_SUCCESS 4
#define UNLUCKY (-32) /* below it one object of a type in so many is tried */
#define SELDOM 16

static inline int is_atomic(PyTypeObject *type) {
    return type == &PyLong_Type || type == &PyFloat_Type || type == &PyUnicode_Type ||
           type == &PyBytes_Type || type == &PyComplex_Type;
}

/* Bytes of a number or text; FOLD_LIMIT or more of one that needs a node of its own in any case. */
static inline uint64_t atom_bytes(Walk *w, PyObject *object, PyTypeObject *type) {
    if (type == &PyFloat_Type)
        return sizeof(PyFloatObject);
    if (type == &PyUnicode_Type && PyUnicode_IS_COMPACT_ASCII(object))
        return sizeof(PyASCIIObject) + (uint64_t)PyUnicode_GET_LENGTH(object) + 1;
    uint32_t number = known_type_number(w, type);
    return number == NONE ? FOLD_LIMIT : shallow_bytes(object, &w->types[number]);
}

static inline uint64_t small_bytes(Walk *w, PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    return is_atomic(type) ? atom_bytes(w, object, type) : FOLD_LIMIT;
}

/* Bytes of a small number or text that only its container refers to; 0 for any other object. */
uint64_t folded_bytes(Walk *w, PyObject *object) {
    uint64_t bytes = Py_REFCNT(object) == 1 ? small_bytes(w, object) : FOLD_LIMIT;
    return bytes < FOLD_LIMIT ? bytes : 0;
}

/* Fold a small number or text into the node that refers to it, if nothing else does; a dict may have it under
 * itself as the key. */
int fold(Walk *w, uint32_t source, PyObject *object, PyObject *key) {
    int is_alone = Py_REFCNT(object) == 1 || (object == key && Py_REFCNT(object) == 2);
    uint64_t bytes = is_alone ? small_bytes(w, object) : FOLD_LIMIT;
    if (bytes >= FOLD_LIMIT)
        return 0;
    w->nodes[source].bytes += bytes;
    if (is_counted(w, w->phase)) {
        w->heap_bytes += bytes;
        w->folded++;
        if (w->request.counts_types)
            count_object(w, known_type_number(w, Py_TYPE(object)), bytes);
    }
    return 1;
}

/* Types whose objects may be parcels. */

enum { FOLDS_UNKNOWN, FOLDS_NEVER, FOLDS };

static traverseproc traverse_of_classes; /* that of all classes written in Python */

/* Before any walk: what is made here is left to the collector. */
int prepare_folding(void) {
    PyObject *class = PyObject_CallFunction((PyObject *)&PyType_Type, "s(){}", "plain");
    if (class == NULL)
        return -1;
    traverse_of_classes = ((PyTypeObject *)class)->tp_traverse;
    Py_DECREF(class);
    return 0;
}

static int is_plain_container(const PyTypeObject *type) {
    return type == &PyDict_Type || type == &PyList_Type || type == &PyTuple_Type || type == &PySet_Type ||
           type == &PyFrozenSet_Type || type == &PyODict_Type || strcmp(type->tp_name, "collections.deque") == 0 ||
           strcmp(type->tp_name, "collections.defaultdict") == 0;
}

/* Of these types all that they refer to is visited, in order, and nothing else is theirs. */
static int may_fold_type(Walk *w, const TypeFacts *facts) {
    PyTypeObject *type = facts->type;
    if (facts->rank != RANK_PLAIN || facts->mark >= 0 || (facts->flags & ~(TYPE_DICT | TYPE_INLINE_VALUES)))
        return 0;
    if (!PyType_IS_GC(type))
        return type->tp_traverse == NULL;
    int is_class = PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE) && type->tp_traverse == traverse_of_classes;
    const PyTypeObject *base = type;
    while (is_class && base->tp_traverse == type->tp_traverse)
        base = base->tp_base;
    return is_class ? (base == &PyBaseObject_Type || is_plain_container(base)) && !is_made_at_run_time(w, (PyObject *)type)
                    : is_plain_container(type);
}

static int folds(Walk *w, uint32_t number) {
    if (w->types[number].folds == FOLDS_UNKNOWN) {
        PyTypeObject *type = w->types[number].type;
        int may = may_fold_type(w, &w->types[number]);
        w->types[number].folds = may ? FOLDS : FOLDS_NEVER;
        if (may && w->request.full && PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE))
            reserve(w, (PyObject *)type, PHASE_BARRIER); /* as an edge to it would have it wait */
    }
    return w->types[number].folds == FOLDS;
}

/* A parcel in the making. */

typedef struct {
    Walk *walk;
    uint64_t bytes;
    uint64_t left; /* so many more bytes, with what others hold too, and something in it may be worth a row */
    uint32_t n_objects, n_inner, n_shared, n_met, level, source;
    int is_awaited; /* it fails for what comes to be met through it */
    PyObject *entered; /* whose contents are taken */
    PyObject *key;     /* under which a dict has the parcel; NULL where none has */
    PyObject *inner[MOST_INNER];
    SharedAtom shared[MOST_SHARED];
} Parcel;

static int share(Parcel *p, PyObject *object, uint64_t bytes, int is_leaf) {
    if (p->n_shared == MOST_SHARED || bytes >= p->left)
        return -1;
    p->left -= bytes;
    p->shared[p->n_shared++] = (SharedAtom){object, p->level, (uint32_t)is_leaf};
    return 0;
}

static inline int take_atom(Parcel *p, PyObject *object, PyTypeObject *type) {
    uint64_t bytes = atom_bytes(p->walk, object, type);
    if (bytes >= FOLD_LIMIT || bytes >= p->left)
        return -1;
    int is_own = Py_REFCNT(object) == 1 || (object == p->key && Py_REFCNT(object) == 2);
    if (!is_own)
        return share(p, object, bytes, 1);
    p->left -= bytes;
    p->bytes += bytes;
    p->n_objects++;
    return 0;
}

/* What others hold too is part of no parcel. A leaf is shared as numbers and texts are. Anything else has to be
 * met on another way, which names it: then no parcel dominates it, and an edge to it is all that is needed.
 * Where it isn't met yet, the first object that refers to it gets a node, is entered before those that are
 * folded after it, and meets it. */

static Awaited *place_of(const Walk *w, PyObject *object) {
    size_t at = ((uintptr_t)object >> 4) * 0x9E3779B97F4A7C15ull >> (64 - AWAITED_BITS);
    while (w->awaited[at].object && w->awaited[at].object != object)
        at = (at + 1) & (((size_t)1 << AWAITED_BITS) - 1);
    return &w->awaited[at];
}

/* Say whether an object that is not met yet will have been when the parcel would have been entered. */
static int is_awaited(Parcel *p, PyObject *object) {
    Walk *w = p->walk;
    if (w->awaited == NULL && (w->awaited = fresh(w, (size_t)1 << AWAITED_BITS, sizeof *w->awaited)) == NULL)
        return 0;
    Awaited *awaited = place_of(w, object);
    if (awaited->object)
        return awaited->level <= p->level && (awaited->level == 1 || awaited->source == p->source);
    if (w->n_awaited == MOST_AWAITED)
        return 0;
    w->n_awaited++;
    *awaited = (Awaited){object, p->source, p->level};
    p->is_awaited = 1;
    return 0;
}

static int take_shared(Parcel *p, PyObject *object, uint32_t number) {
    Walk *w = p->walk;
    PyTypeObject *type = w->types[number].type;
    int is_empty_tuple = type == &PyTuple_Type && Py_SIZE(object) == 0; /* there is only this one */
    if (is_empty_tuple || (!PyType_IS_GC(type) && folds(w, number)))
        return share(p, object, shallow_bytes(object, &w->types[number]), 1);
    /* It is reported who else holds what gathers objects, and what many objects of a container are held by. */
    if (!folds(w, number) || gathers(type) || p->n_met++ == MOST_MET)
        return -1;
    int is_met = find_entry(&w->index, key_of(w, object)) != 0;
    return is_met || is_awaited(p, object) ? share(p, object, 0, 0) : -1;
}

static int take_container(Parcel *p, PyObject *object);

static inline int take(Parcel *p, PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    return is_nothing(object) ? 0 : is_atomic(type) ? take_atom(p, object, type) : take_container(p, object);
}

static int take_edge(PyObject *object, void *argument) {
    Parcel *p = argument;
    int is_class = object == (PyObject *)Py_TYPE(p->entered); /* which has a place of its own */
    return is_class ? 0 : take(p, object);
}

static inline int take_items(Parcel *p, PyObject *const *items, Py_ssize_t count) {
    for (Py_ssize_t i = 0; i < count; i++)
        __builtin_prefetch(items[i]);
    for (Py_ssize_t i = count; i-- > 0;)
        if (items[i] != NULL && take(p, items[i]) < 0)
            return -1;
    return 0;
}

static inline int take_entries(Parcel *p, PyObject *const *entries, Py_ssize_t count) {
    for (Py_ssize_t i = 0; i < count; i++)
        __builtin_prefetch(entries[2 * i + 1]);
    for (Py_ssize_t i = 0; i < count; i++) {
        if (entries[2 * i + 1] == NULL)
            continue;
        if (take(p, entries[2 * i + 1]) < 0 ||
            (Py_REFCNT(entries[2 * i]) == 1 && take(p, entries[2 * i]) < 0))
            return -1;
    }
    return 0;
}

/* Contents are visited in the order of edges.c, but for the keys of a dict. */
static int take_contents(Parcel *p, PyObject *object, const TypeFacts *facts) {
    Py_ssize_t count;
    PyObject *const *entries;
    if (facts->type == &PyTuple_Type)
        return take_items(p, ((PyTupleObject *)object)->ob_item, Py_SIZE(object));
    if (facts->type == &PyList_Type)
        return take_items(p, ((PyListObject *)object)->ob_item, Py_SIZE(object));
    if (facts->type == &PyDict_Type && (entries = text_entries(object, &count)))
        return take_entries(p, entries, count);
    p->entered = object;
    if (PyType_IS_GC(facts->type) && facts->type->tp_traverse(object, take_edge, p) < 0)
        return -1;
    if (facts->flags & TYPE_DICT)
        visit_text_keys(object, take_edge, p);
    return 0;
}

static int take_container(Parcel *p, PyObject *object) {
    Walk *w = p->walk;
    PyTypeObject *type = Py_TYPE(object);
    uint32_t number = known_type_number(w, type);
    if (Py_REFCNT(object) != 1 && number != NONE)
        return take_shared(p, object, number);
    if (number == NONE || !folds(w, number) || p->n_inner == MOST_INNER || p->level == MOST_LEVELS)
        return -1;
    const TypeFacts facts = w->types[number];
    uint64_t bytes = shallow_bytes(object, &facts);
    if (bytes >= p->left)
        return -1;
    p->left -= bytes;
    p->bytes += bytes;
    p->n_objects++;
    p->inner[p->n_inner++] = object;
    PyObject *above = p->entered;
    p->level++;
    int result = take_contents(p, object, &facts);
    p->level--;
    p->entered = above;
    return result;
}

/* What a parcel leaves behind. */

static void add_to_sum(Walk *w, uint32_t source, PyObject *object, uint64_t bytes) {
    uint32_t type = known_type_number(w, Py_TYPE(object));
    size_t i = w->n_parcels;
    while (i > 0 && w->parcels[i - 1].source == source && w->parcels[i - 1].kind.type != type)
        i--;
    if (i == 0 || w->parcels[i - 1].source != source) {
        if (w->n_parcels == w->cap_parcels) {
            size_t capacity = w->cap_parcels ? w->cap_parcels * 2 : 256;
            Parcels *parcels = resized(w, w->parcels, capacity * sizeof *parcels);
            if (parcels == NULL)
                return;
            w->parcels = parcels;
            w->cap_parcels = capacity;
        }
        i = ++w->n_parcels;
        w->parcels[i - 1] = (Parcels){.source = source, .kind = {.type = type}};
    }
    Kind *kind = &w->parcels[i - 1].kind;
    kind->count++;
    kind->bytes += bytes;
    if (kind->n_samples < MAX_PARCEL_SAMPLES)
        kind->samples[kind->n_samples++] = object;
}

/* The key of the node that stands for the parcels of a batch at a level: no address is so high. */
#define BATCH_KEY(batch, level) ((uintptr_t)1 << 63 | (uintptr_t)(batch) << 6 | (uintptr_t)(level) << 3)
#define BATCH_OF(key) ((size_t)((key) & ~((uintptr_t)1 << 63)) >> 6)
#define LEVEL_OF(key) ((uint32_t)((key) >> 3 & 7))

static void add_batch_node(Walk *w, size_t batch, uint32_t level, uint32_t parent) {
    uint32_t node = add_node(w, BATCH_KEY(batch, level), MEMORY_BATCH, parent, w->nodes[parent].root, w->phase);
    if (node != NONE && enqueue(w, node, RANK_PLAIN) == 0)
        add_edge(w, parent, node);
}

static int is_shared_already(const Walk *w, const Batch *batch, const SharedAtom *atom) {
    const SharedAtom *end = w->shared + w->n_shared, *at = end - w->shared > 8 ? end - 8 : w->shared;
    for (at = at < w->shared + batch->first ? w->shared + batch->first : at; at < end; at++)
        if (at->object == atom->object && at->level <= atom->level)
            return 1;
    return 0;
}

static void add_shared(Walk *w, uint32_t source, const SharedAtom *atom) {
    /* What has been found in between and isn't folded comes in between. */
    if (w->n_batches == 0 || w->batches[w->n_batches - 1].source != source ||
        w->batches[w->n_batches - 1].place != w->order.count) {
        if (w->n_batches == w->cap_batches) {
            size_t capacity = w->cap_batches ? w->cap_batches * 2 : 256;
            Batch *batches = resized(w, w->batches, capacity * sizeof *batches);
            if (batches == NULL)
                return;
            w->batches = batches;
            w->cap_batches = capacity;
        }
        w->batches[w->n_batches++] = (Batch){.source = source, .first = w->n_shared};
        add_batch_node(w, w->n_batches - 1, 1, source);
        w->batches[w->n_batches - 1].place = w->order.count;
    }
    Batch *batch = &w->batches[w->n_batches - 1];
    if (is_shared_already(w, batch, atom))
        return;
    if (w->n_shared == w->cap_shared) {
        size_t capacity = w->cap_shared ? w->cap_shared * 2 : 1024;
        SharedAtom *shared = resized(w, w->shared, capacity * sizeof *shared);
        if (shared == NULL)
            return;
        w->shared = shared;
        w->cap_shared = capacity;
    }
    w->shared[w->n_shared++] = *atom;
    batch->count++;
    if (atom->level > batch->levels)
        batch->levels = atom->level;
}

/* Return the objects, one after the other, to which a node of a batch refers; NULL after the last. Only leaves
 * are met through it, as they have no row that would have to be named. */
PyObject *shared_by_batch(Walk *w, uint32_t number, size_t *at) {
    const Batch *batch = &w->batches[BATCH_OF(w->nodes[number].key)];
    while (*at < batch->count) {
        const SharedAtom *atom = &w->shared[batch->first + (*at)++];
        if (atom->level == LEVEL_OF(w->nodes[number].key) &&
            (atom->is_leaf || find_entry(&w->index, key_of(w, atom->object))))
            return atom->object;
    }
    return NULL;
}

/* After what a node of a batch refers to: the next level, where there is one. */
void follow_batch(Walk *w, uint32_t number) {
    size_t batch = BATCH_OF(w->nodes[number].key);
    uint32_t level = LEVEL_OF(w->nodes[number].key);
    if (level < w->batches[batch].levels)
        add_batch_node(w, batch, level + 1, number);
}

static void keep_parcel(Walk *w, uint32_t source, const Parcel *p) {
    w->nodes[source].bytes += p->bytes;
    w->heap_bytes += p->bytes;
    w->folded += p->n_objects;
    add_to_sum(w, source, p->inner[0], p->bytes);
    int meets_collector = w->request.full || w->baseline != NULL;
    for (uint32_t i = 0; i < p->n_inner; i++) {
        PyObject *object = p->inner[i];
        if (w->resumed && is_sealed(w, object))
            takes_sealed(w, object); /* it is the user's now, and found among what is sealed */
        else if (meets_collector && PyType_IS_GC(Py_TYPE(object)) && PyObject_GC_IsTracked(object))
            add_address(w, &w->in_parcels, object);
    }
    for (uint32_t i = 0; i < p->n_shared; i++)
        add_shared(w, source, &p->shared[i]);
}

/* Say whether an object to which a node refers may be a parcel: then its contents are sent for. */
int may_be_parcel(Walk *w, uint32_t source, PyObject *object) {
    if (!w->folds_parcels || Py_REFCNT(object) != 1 || w->phase != PHASE_USER || !folds(w, w->nodes[source].type))
        return 0;
    uint32_t number = known_type_number(w, Py_TYPE(object));
    if (number == NONE || !folds(w, number))
        return 0;
    if (w->types[number].luck < UNLUCKY && w->passed_by++ % SELDOM)
        return 0;
    if (w->types[number].type == &PyDict_Type) {
        __builtin_prefetch(((const PyDictObject *)object)->ma_keys);
        __builtin_prefetch((const char *)((const PyDictObject *)object)->ma_keys + 64);
    } else if (w->types[number].type == &PyList_Type) {
        __builtin_prefetch(((const PyListObject *)object)->ob_item);
    } else if (w->types[number].flags & TYPE_INLINE_VALUES) {
        __builtin_prefetch(attribute_values(object));
    }
    return 1;
}

/* To try in vain costs time: note of a type how often its latest objects were parcels. */
static void note_luck(Walk *w, PyObject *object, int change) {
    uint32_t number = known_type_number(w, Py_TYPE(object));
    int luck = number == NONE ? 0 : w->types[number].luck + change;
    if (number != NONE)
        w->types[number].luck = (int8_t)(luck > MOST_LUCK ? MOST_LUCK : luck < -MOST_LUCK ? -MOST_LUCK : luck);
}

/* Fold an object with all that it keeps into the node that refers to it; say whether that could be. A dict
 * may have it under a text of its own: a record by its name. */
int fold_parcel(Walk *w, uint32_t source, PyObject *object, PyObject *key) {
    Parcel p;
    p.walk = w;
    p.key = key;
    p.bytes = 0;
    p.left = w->request.cutoff;
    p.n_objects = p.n_inner = p.n_shared = p.n_met = p.level = 0;
    p.source = source;
    p.is_awaited = 0;
    p.entered = NULL;
    if (w->failed || take_container(&p, object) < 0) {
        if (!p.is_awaited)
            note_luck(w, object, -1);
        return 0;
    }
    note_luck(w, object, LUCK_OF_SUCCESS);
    keep_parcel(w, source, &p);
    return 1;
}

/* Add to the kinds of chosen containers what their parcels are. */
void group_parcels(Walk *w, const Choice *c) {
    for (size_t i = 0; i < w->n_parcels; i++) {
        uint32_t place = c->place[w->parcels[i].source];
        if (!(place & CHOSEN))
            continue;
        const Kind *sum = &w->parcels[i].kind;
        Kind *kind = add_kind(w, &c->kinds[PLACE(place)], sum->type, sum->bytes, sum->samples[0]);
        if (kind == NULL)
            continue;
        kind->count += sum->count - 1;
        for (uint32_t k = 1; k < sum->n_samples && kind->n_samples < (uint32_t)w->request.max_samples; k++)
            kind->samples[kind->n_samples++] = sum->samples[k];
    }
}
