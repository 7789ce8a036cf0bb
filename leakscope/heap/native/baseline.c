/* The baseline of a process: which objects the collector tracked when measuring began.
 *
 * A walk of the user's names that is given one also looks at all that is new since, wherever it hangs:
 * new objects that no name of the user's reaches are weighed, and told apart into what something outside
 * holds (a library, or native code) and garbage. That costs what is new, not what a process consists of.
 *
 * The baseline is a set of addresses, and an object may come to lie where a known one was. Those that live
 * shortly are not in it, one in the youngest generation is new whatever its address, and after a collection
 * of all generations those that are gone are taken out. What takes the place of an old one between two
 * looks, and has grown old by the second, isn't weighed; a full walk doesn't depend on that.
 */
#define Py_BUILD_CORE
#include "walk.h"

#include <internal/pycore_gc.h>
#include <internal/pycore_interp.h>
#include <string.h>

#define LAST_KEPT 4096 /* of the oldest generation, the last objects are known in their order */
#define IN_A_ROW 8
/* So many of those in that order, from the end of the oldest generation's list: what comes before them was
 * there already. New ones are appended, and only a collection of all generations mixes them. */
#define MANY_YOUNG 20000
/* Objects of the youngest generation are not known, for many are about to go. Where the collector is
 * switched off everything is young. */
#define HINT_WORDS 1024 /* of 64 bits, of which one in sixteen is set when there are as many as are kept */
#define AHEAD 12 /* objects that are on their way from memory while the list is gone through */

struct Baseline {
    Addresses known;
    Addresses taken_in; /* of modules that came later: known however young they are */
    Py_ssize_t collections;    /* of all generations, when it was made; -1 before */
    Py_ssize_t cleared;        /* the same when those that are gone were last taken out */
    int knows_young;           /* it has the youngest objects of the beginning too */
    PyObject *last[LAST_KEPT]; /* of the oldest generation at the beginning */
    uint64_t hints[HINT_WORDS]; /* by a hash of the address: whether an object may be among them */
    size_t n_last;             /* how many they are */
    uint64_t imported;         /* bytes of modules that came later, which are known by now */
    PyObject **sequence;       /* the oldest generation as it was last gone through, as a forecast */
    size_t n_sequence, cap_sequence;
};

static const char *const capsule_name = "leakscope.heap.baseline";

static void free_baseline(PyObject *capsule) {
    Walk nobody = {0};
    Baseline *b = PyCapsule_GetPointer(capsule, capsule_name);
    if (b == NULL)
        return;
    drop(&nobody, b->known.pages);
    drop(&nobody, b->taken_in.pages);
    drop(&nobody, b->sequence);
    drop(&nobody, b);
}

PyObject *new_baseline(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing)) {
    Walk nobody = {0};
    Baseline *b = fresh(&nobody, 1, sizeof *b);
    if (b == NULL)
        return PyErr_NoMemory();
    b->collections = -1;
    PyObject *capsule = PyCapsule_New(b, capsule_name, free_baseline);
    if (capsule == NULL)
        drop(&nobody, b);
    return capsule;
}

Baseline *baseline_of(PyObject *capsule) { return PyCapsule_GetPointer(capsule, capsule_name); }

/* Return the bytes that a baseline takes itself. */
PyObject *baseline_bytes(PyObject *Py_UNUSED(module), PyObject *capsule) {
    const Baseline *b = baseline_of(capsule);
    if (b == NULL)
        return NULL;
    return PyLong_FromSize_t(resident_part(b) + resident_part(b->known.pages) +
                             resident_part(b->taken_in.pages) + resident_part(b->sequence));
}

/* Say whether it has taken note of what was there. */
int has_begun(const Baseline *b) { return b->collections >= 0; }

/* Say whether an object was there before. */
int is_known(const Baseline *b, PyObject *object) {
    return is_among(&b->known, object) || is_among(&b->taken_in, object);
}

static int grow_pages(Walk *w, Addresses *a) {
    Page *old = a->pages;
    size_t count = a->n_slots, n_slots = count ? count * 2 : (size_t)1 << 14;
    Page *pages = fresh(w, n_slots, sizeof *pages);
    if (pages == NULL)
        return -1;
    a->pages = pages;
    a->n_slots = n_slots;
    for (size_t i = 0; i < count; i++)
        if (old[i].page)
            *page_of(a, old[i].page) = old[i];
    drop(w, old);
    return 0;
}

int add_address(Walk *w, Addresses *a, PyObject *object) {
    if ((a->n_pages + 1) * 2 > a->n_slots && grow_pages(w, a) < 0)
        return -1;
    Page *page = page_of(a, (uintptr_t)object >> PAGE_BITS);
    if (page->page == 0) {
        page->page = (uintptr_t)object >> PAGE_BITS;
        a->n_pages++;
    }
    int bit = bit_of(object);
    page->bits[bit >> 6] |= (uint64_t)1 << (bit & 63);
    return 0;
}

typedef struct {
    Walk *walk;
    Baseline *baseline;
} Learning;

static int learn(PyObject *object, int Py_UNUSED(is_young), void *argument) {
    Learning *l = argument;
    return add_address(l->walk, &l->baseline->known, object);
}

static int take_in(const Learning *l, PyObject *object) {
    return add_address(l->walk, &l->baseline->taken_in, object);
}

/* Of an object that is known. */
static void forget_known(Baseline *b, PyObject *object) {
    int bit = bit_of(object);
    page_of(&b->known, (uintptr_t)object >> PAGE_BITS)->bits[bit >> 6] &= ~((uint64_t)1 << (bit & 63));
}

static Py_ssize_t full_collections(void) {
    return PyInterpreterState_Get()->gc.generation_stats[NUM_GENERATIONS - 1].collections;
}

static int count_young(PyObject *Py_UNUSED(object), int is_young, void *argument) {
    size_t *count = argument;
    *count += is_young;
    return is_young && *count <= MANY_YOUNG ? 0 : -1;
}

static int learn_older(PyObject *object, int is_young, void *argument) {
    return is_young ? 0 : learn(object, is_young, argument);
}

static int pass_by(PyObject *Py_UNUSED(object), int Py_UNUSED(is_young), void *Py_UNUSED(argument)) {
    return 0;
}

static int keep_last(PyObject *object, int Py_UNUSED(is_young), void *argument) {
    Baseline *b = ((Learning *)argument)->baseline;
    b->last[b->n_last++] = object;
    return b->n_last < LAST_KEPT ? 0 : -1;
}

/* Keep the last objects of the oldest generation, in its order. */
static void keep_end(Learning *l) {
    Baseline *b = l->baseline;
    visit_generations(pass_by, keep_last, 1, l);
    for (size_t i = 0; i < b->n_last / 2; i++) {
        PyObject *object = b->last[i];
        b->last[i] = b->last[b->n_last - 1 - i];
        b->last[b->n_last - 1 - i] = object;
    }
}

static size_t hint_of(PyObject *object) {
    return (size_t)(((uint64_t)(uintptr_t)object >> 4) * 0x9E3779B97F4A7C15u >> 48);
}

static int may_be_last(const Baseline *b, PyObject *object) {
    size_t bit = hint_of(object);
    return (int)(b->hints[bit >> 6] >> (bit & 63) & 1);
}

static void keep_hints(Baseline *b) {
    for (size_t i = 0; i < b->n_last; i++) {
        size_t bit = hint_of(b->last[i]);
        b->hints[bit >> 6] |= (uint64_t)1 << (bit & 63);
    }
}

/* Take note of the objects that are tracked now. */
static int begin_baseline(Walk *w, Baseline *b) {
    Learning l = {.walk = w, .baseline = b};
    size_t young = 0;
    visit_tracked(count_young, &young);
    b->knows_young = young > MANY_YOUNG;
    visit_tracked_from_both_ends(b->knows_young ? learn : learn_older, &l);
    keep_end(&l);
    keep_hints(b);
    b->collections = b->cleared = full_collections();
    return w->failed ? -1 : 0;
}

typedef struct {
    Walk *walk;
    Baseline *baseline;
    int n_row; /* objects so far that may be the last of the beginning, in their order */
    size_t before; /* the place among the last of those that come next, plus one */
    size_t next;   /* the place in the forecast that is expected next */
    size_t count;  /* objects of the oldest generation so far */
    PyObject **sequence;
    size_t cap_sequence;
    int clears;      /* those that are gone are taken out */
    Addresses alive, alive_taken_in; /* then: of those that are known */
} News;

static int note_new(PyObject *object, int is_young, void *argument) {
    News *n = argument;
    if (is_among(&n->baseline->taken_in, object))
        return n->clears ? add_address(n->walk, &n->alive_taken_in, object) : 0;
    int known = is_among(&n->baseline->known, object);
    if (known && is_young && !n->baseline->knows_young) {
        forget_known(n->baseline, object);
        known = 0;
    }
    if (!known)
        mark_tracked(n->walk, object, is_young);
    else if (n->clears && add_address(n->walk, &n->alive, object) < 0)
        return -1;
    return n->walk->failed ? -1 : 0;
}

/* Return the place among the last, plus one, of an object among those not passed yet; 0 where it is none. */
static size_t place_among_last(const News *n, PyObject *object) {
    const Baseline *b = n->baseline;
    if (!may_be_last(b, object))
        return 0;
    for (size_t at = n->before; at > 0; at--)
        if (b->last[at - 1] == object)
            return at;
    return 0;
}

/* Of the oldest generation from its end on, until the row of objects that was its end stands there. */
static int note_latest(PyObject *object, int is_young, void *argument) {
    News *n = argument;
    size_t place = is_known(n->baseline, object) ? place_among_last(n, object) : 0;
    if (place) {
        n->before = place - 1;
        return ++n->n_row == IN_A_ROW ? -1 : 0;
    }
    n->n_row = 0; /* those were known, too, and are left alone */
    n->before = n->baseline->n_last;
    return note_new(object, is_young, argument);
}

static int keep_in_sequence(News *n, PyObject *object) {
    if (n->count == n->cap_sequence) {
        size_t capacity = n->cap_sequence ? n->cap_sequence * 2 : n->baseline->n_sequence + 4096;
        PyObject **sequence = resized(n->walk, n->sequence, capacity * sizeof *sequence);
        if (sequence == NULL)
            return -1;
        n->sequence = sequence;
        n->cap_sequence = capacity;
    }
    n->sequence[n->count++] = object;
    return 0;
}

/* All of the oldest generation has to be gone through: send for what stood next the last time. */
static int note_in_sequence(PyObject *object, int is_young, void *argument) {
    News *n = argument;
    const Baseline *b = n->baseline;
    for (size_t at = n->next; at < n->next + 4 && at < b->n_sequence; at++)
        if (b->sequence[at] == object) {
            n->next = at + 1;
            if (at + AHEAD < b->n_sequence)
                __builtin_prefetch((char *)b->sequence[at + AHEAD] - sizeof(PyGC_Head));
            break;
        }
    return note_new(object, is_young, argument) < 0 ? -1 : keep_in_sequence(n, object);
}

static int keep_frozen(PyObject *object, int Py_UNUSED(is_young), void *argument) {
    News *n = argument;
    return is_known(n->baseline, object) ? add_address(n->walk, &n->alive, object) : 0;
}

/* Give all that is new and unreached a node that waits. */
static void mark_new(Walk *w, Baseline *b) {
    News n = {.walk = w, .baseline = b, .before = b->n_last};
    if (full_collections() == b->collections) {
        visit_generations(note_new, note_latest, 1, &n);
        return;
    }
    n.clears = full_collections() != b->cleared;
    visit_generations(note_new, note_in_sequence, 0, &n);
    if (n.clears && !w->failed) {
        visit_frozen(keep_frozen, &n);
        drop(w, b->known.pages);
        drop(w, b->taken_in.pages);
        b->known = n.alive;
        b->taken_in = n.alive_taken_in;
        b->cleared = full_collections();
    } else {
        drop(w, n.alive.pages);
        drop(w, n.alive_taken_in.pages);
    }
    drop(w, b->sequence);
    b->sequence = n.sequence;
    b->n_sequence = n.count;
    b->cap_sequence = n.cap_sequence;
}

/* torch keeps the Python object of each storage that was asked for, as a walk does: the memory of one whose
 * tensor is known must not count again through that object. */
static int take_in_storage(const Learning *l, PyObject *tensor) {
    PyObject *storage = PyObject_CallOneArg(l->walk->access.untyped_storage, tensor);
    PyErr_Clear();
    int result = storage ? take_in(l, storage) : 0;
    Py_XDECREF(storage);
    return result;
}

/* What modules brought that were imported since: it stays, and is known from now on. */
static void take_in_imports(Walk *w, Baseline *b) {
    Learning l = {.walk = w, .baseline = b};
    if (w->request.library_from >= PyList_GET_SIZE(w->request.roots))
        return;
    walk_library(w);
    for (size_t i = 0; i < w->n_nodes; i++) {
        if (w->nodes[i].phase != PHASE_LIBRARY)
            continue;
        b->imported += w->nodes[i].device == 0 ? w->nodes[i].bytes : 0;
        const TypeFacts facts = w->types[w->nodes[i].type];
        PyObject *object = (PyObject *)w->nodes[i].key;
        if (facts.type != NULL && take_in(&l, object) < 0)
            return;
        if (facts.flags & TYPE_STORAGE && take_in_storage(&l, object) < 0)
            return;
    }
}

static uint64_t bytes_of_phase(const Walk *w, int phase) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < w->n_nodes; i++)
        if (w->nodes[i].phase == (uint32_t)phase && w->nodes[i].device == 0)
            bytes += w->nodes[i].bytes;
    return bytes;
}

/* What barriers hold is new or known by itself. Our own list of them must not lead to it: all that an event
 * loop holds would be ours. */
static void leave_barriers(Walk *w) {
    for (size_t i = 0; i < w->n_nodes; i++)
        if (w->nodes[i].phase == PHASE_BARRIER)
            w->nodes[i].phase = PHASE_OTHER;
}

/* After the user's names: walk what is new and none of them reaches. The first walk sees what there is. */
void walk_new(Walk *w) {
    Baseline *b = w->baseline;
    if (!has_begun(b)) {
        begin_baseline(w, b);
        return;
    }
    leave_barriers(w);
    take_in_imports(w, b);
    walk_waiting(w, PHASE_HIDDEN, PHASE_HIDDEN);
    hide_parts(w);
    size_t base = w->n_nodes;
    mark_new(w, b);
    if (!w->failed)
        walk_unreached(w, base, w->n_nodes - base);
    w->has_weighed_new = !w->failed;
}

/* Once it is settled whose the memory is that several have part in. */
void sum_new(Walk *w) {
    if (!w->has_weighed_new)
        return;
    w->elsewhere = bytes_of_phase(w, PHASE_NATIVE) + w->baseline->imported;
    w->new_garbage = bytes_of_phase(w, PHASE_GARBAGE);
}

/* Say whether an object came since measuring began. Of what the collector doesn't track nothing tells. */
static int is_recent(const Walk *w, const Node *node, int is_parent_recent) {
    const TypeFacts *facts = &w->types[node->type];
    PyObject *object = (PyObject *)node->key;
    if (facts->type == NULL || !is_collected(object, facts) || !PyObject_GC_IsTracked(object))
        return is_parent_recent;
    return !is_known(w->since, object);
}

/* Sum up, of a whole walk, what of all that is named through each node came since measuring began: what an
 * object that isn't tracked consists of counts with the one that leads to it. */
int sum_recent(Walk *w, Tree *t) {
    if (w->since == NULL || !has_begun(w->since) || w->resumed)
        return 0;
    uint8_t *recent = fresh(w, w->n_nodes, 1);
    t->recent = fresh(w, w->n_nodes, 8);
    for (size_t i = 0; !w->failed && i < w->order.count; i++) {
        uint32_t number = w->order.items[i];
        const Node *node = &w->nodes[number];
        recent[number] = (uint8_t)is_recent(w, node, node->parent != NONE && recent[node->parent]);
    }
    for (size_t i = w->order.count; !w->failed && i-- > 0;) {
        uint32_t number = w->order.items[i];
        const Node *node = &w->nodes[number];
        if (recent[number] && node->device == 0)
            t->recent[number] += node->bytes;
        if (node->parent != NONE)
            t->recent[node->parent] += t->recent[number];
    }
    drop(w, recent);
    return w->failed ? -1 : 0;
}
