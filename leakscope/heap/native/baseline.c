/* The baseline of a process: which objects the collector tracked when measuring began.
 *
 * A walk of the user's names that is given one also looks at all that is new since, wherever it hangs:
 * new objects that no name of the user's reaches are weighed, and told apart into what something outside
 * holds (a library, or native code) and garbage. That costs what is new, not what a process consists of.
 *
 * The baseline is a set of addresses. An object that takes the place of one that was freed counts as known:
 * what is weighed is at most too small by that, and a full walk doesn't depend on it.
 */
#define Py_BUILD_CORE
#include "walk.h"

#include <internal/pycore_gc.h>
#include <internal/pycore_interp.h>
#include <string.h>

#define PAGE_BITS 12
#define PAGE_WORDS 4 /* a bit for every 16 bytes of a page: objects that are tracked begin there */
#define KNOWN_IN_A_ROW 16
/* So many known objects in a row, from the end of the oldest generation's list: what comes before them
 * was there already. New ones are appended, and only a collection of all generations mixes them. */

typedef struct {
    uintptr_t page; /* its number; 0: free */
    uint64_t bits[PAGE_WORDS];
} Page;

struct Baseline {
    Page *pages;
    size_t n_slots, n_pages;
    Py_ssize_t collections; /* of all generations, when it was made; -1 before */
    uint64_t imported;      /* bytes of modules that came later, which are known by now */
    PyObject **sequence;    /* the oldest generation as it was last gone through, as a forecast */
    size_t n_sequence, cap_sequence;
};

static const char *const capsule_name = "leakscope.heap.baseline";
#define AHEAD 12 /* objects that are on their way from memory while the list is gone through */

static void free_baseline(PyObject *capsule) {
    Walk nobody = {0};
    Baseline *b = PyCapsule_GetPointer(capsule, capsule_name);
    if (b == NULL)
        return;
    drop(&nobody, b->pages);
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
    return b ? PyLong_FromSize_t(sizeof *b + b->n_slots * sizeof *b->pages + b->cap_sequence * 8) : NULL;
}

static Page *page_of(const Baseline *b, uintptr_t page) {
    size_t mask = b->n_slots - 1, at = (page * 0x9E3779B97F4A7C15ull >> 20) & mask;
    while (b->pages[at].page && b->pages[at].page != page)
        at = (at + 1) & mask;
    return &b->pages[at];
}

static int bit_of(PyObject *object) { return (int)((uintptr_t)object >> 4 & (PAGE_WORDS * 64 - 1)); }

/* Say whether an object was there before. */
int is_known(const Baseline *b, PyObject *object) {
    const Page *page = page_of(b, (uintptr_t)object >> PAGE_BITS);
    int bit = bit_of(object);
    return page->bits[bit >> 6] >> (bit & 63) & 1;
}

static int grow_pages(Walk *w, Baseline *b) {
    Page *old = b->pages;
    size_t count = b->n_slots, n_slots = count ? count * 2 : (size_t)1 << 14;
    Page *pages = fresh(w, n_slots, sizeof *pages);
    if (pages == NULL)
        return -1;
    b->pages = pages;
    b->n_slots = n_slots;
    for (size_t i = 0; i < count; i++)
        if (old[i].page)
            *page_of(b, old[i].page) = old[i];
    drop(w, old);
    return 0;
}

typedef struct {
    Walk *walk;
    Baseline *baseline;
} Learning;

static int learn(PyObject *object, int Py_UNUSED(is_young), void *argument) {
    Learning *l = argument;
    Baseline *b = l->baseline;
    Page *page = page_of(b, (uintptr_t)object >> PAGE_BITS);
    if (page->page == 0) {
        if ((b->n_pages + 1) * 2 > b->n_slots) {
            if (grow_pages(l->walk, b) < 0)
                return -1;
            page = page_of(b, (uintptr_t)object >> PAGE_BITS);
        }
        page->page = (uintptr_t)object >> PAGE_BITS;
        b->n_pages++;
    }
    int bit = bit_of(object);
    page->bits[bit >> 6] |= (uint64_t)1 << (bit & 63);
    return 0;
}

static Py_ssize_t full_collections(void) {
    return PyInterpreterState_Get()->gc.generation_stats[NUM_GENERATIONS - 1].collections;
}

/* Take note of all objects that are tracked now. */
static int begin_baseline(Walk *w, Baseline *b) {
    Learning l = {w, b};
    if (b->n_slots == 0 && grow_pages(w, b) < 0)
        return -1;
    visit_tracked(learn, &l);
    b->collections = full_collections();
    return w->failed ? -1 : 0;
}

typedef struct {
    Walk *walk;
    Baseline *baseline;
    int known;     /* of the oldest generation, in a row */
    size_t next;   /* the place in the forecast that is expected next */
    size_t count;  /* objects of the oldest generation so far */
    PyObject **sequence;
    size_t cap_sequence;
} News;

static int note_new(PyObject *object, int is_young, void *argument) {
    News *n = argument;
    if (!is_known(n->baseline, object))
        mark_tracked(n->walk, object, is_young);
    return n->walk->failed ? -1 : 0;
}

static int note_latest(PyObject *object, int is_young, void *argument) {
    News *n = argument;
    n->known = is_known(n->baseline, object) ? n->known + 1 : 0;
    return note_new(object, is_young, argument) < 0 || n->known == KNOWN_IN_A_ROW ? -1 : 0;
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

/* Give all that is new and unreached a node that waits. */
static void mark_new(Walk *w, Baseline *b) {
    News n = {.walk = w, .baseline = b};
    if (full_collections() == b->collections) {
        visit_generations(note_new, note_latest, 1, &n);
        return;
    }
    visit_generations(note_new, note_in_sequence, 0, &n);
    drop(w, b->sequence);
    b->sequence = n.sequence;
    b->n_sequence = n.count;
    b->cap_sequence = n.cap_sequence;
}

/* What modules brought that were imported since: it stays, and is known from now on. */
static void take_in_imports(Walk *w, Baseline *b) {
    Learning l = {w, b};
    if (w->request.library_from >= PyList_GET_SIZE(w->request.roots))
        return;
    walk_library(w);
    for (size_t i = 0; i < w->n_nodes; i++) {
        if (w->nodes[i].phase != PHASE_LIBRARY)
            continue;
        b->imported += w->nodes[i].device == 0 ? w->nodes[i].bytes : 0;
        if (w->types[w->nodes[i].type].type != NULL && learn((PyObject *)w->nodes[i].key, 0, &l) < 0)
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

/* After the user's names: weigh what is new and none of them reaches. The first walk sees what there is. */
void walk_new(Walk *w) {
    Baseline *b = w->baseline;
    if (b->collections < 0) {
        begin_baseline(w, b);
        return;
    }
    take_in_imports(w, b);
    walk_waiting(w, PHASE_HIDDEN, PHASE_HIDDEN);
    hide_parts(w);
    size_t base = w->n_nodes;
    mark_new(w, b);
    if (!w->failed)
        walk_unreached(w, base, w->n_nodes - base);
    w->elsewhere = bytes_of_phase(w, PHASE_NATIVE) + b->imported;
    w->new_garbage = bytes_of_phase(w, PHASE_GARBAGE);
    w->has_weighed_new = !w->failed;
}
