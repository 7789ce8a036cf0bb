/* The native heap walker: the same walk as the reference walker, over arrays of C integers.
 *
 * From the first edge to the moment when the answer takes its strong references no bytecode runs:
 * the GIL is never released, the collector is off, and of the objects met only tp_traverse, sizes
 * of built-in types and torch's own C accessors are called. Nothing met can therefore die or move,
 * and borrowed pointers are enough: of a plain Python object not a byte is written, its reference
 * count included, so that a forked process goes on sharing its pages.
 *
 * The answer's rules (order of edges, phases, selection) are those of the modules of
 * heap/reference; tests hold both engines side by side.
 */
#ifndef LEAKSCOPE_WALK_H
#define LEAKSCOPE_WALK_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

#ifdef Py_GIL_DISABLED
#error "the native walker needs the GIL; without it the reference walker is used"
#endif

#define NONE UINT32_MAX
#define MAX_DEVICES 64 /* the host among them */
#define MAX_SAMPLES 8
#define MAX_REFERRERS 8
#define MOST_DEPTH 511
#define MAX_MARKS 31
#define LATEST_TYPES 64

enum { PHASE_USER, PHASE_LIBRARY, PHASE_OTHER, PHASE_HIDDEN, PHASE_NATIVE, PHASE_GARBAGE,
       PHASE_BARRIER, PHASE_UNREACHED };
enum { RANK_PLAIN, RANK_CODE, RANK_LATE, RANK_GRAPH, RANK_CUT };
enum { ROOT_NATIVE = -1, ROOT_GARBAGE = -2, ROOT_OTHER = -3 };

enum {
    TYPE_TENSOR = 1, TYPE_PARAMETER = 2, TYPE_STORAGE = 4, TYPE_ARRAY = 8, TYPE_IMAGE = 16,
    TYPE_FUNCTION = 32, TYPE_FRAME = 64, TYPE_INLINE_VALUES = 128, TYPE_MAY_LACK_HEADER = 256,
    TYPE_SAVED = 512, TYPE_STORAGE_OBJECT = 1 << 10, TYPE_MAPPING = 1 << 11,
    TYPE_EXPORTER = 1 << 12, TYPE_ARROW = 1 << 13, TYPE_DICT = 1 << 14, TYPE_C_DATA = 1 << 15,
    TYPE_RECORD = 1 << 16, TYPE_TEXT_BUFFER = 1 << 17, TYPE_CANVAS = 1 << 18,
};

/* Of these, adapters tell references that traversal does not. */
#define TYPES_WITH_PAYLOAD                                                                         \
    (TYPE_TENSOR | TYPE_STORAGE_OBJECT | TYPE_SAVED | TYPE_ARRAY | TYPE_RECORD | TYPE_MAPPING |     \
     TYPE_ARROW)

/* Numbers of the first types: memory that is no Python object's own, by what backs it; and what stands for
 * folded parcels (folding.c), which is none at all. */
enum { MEMORY_PRIVATE, MEMORY_SHARED, MEMORY_FILE, MEMORY_BATCH, MEMORY_TYPES };

typedef struct {
    PyTypeObject *type; /* NULL: memory, which is no Python object */
    PyCFunction sizer;  /* NULL: object.__sizeof__, computed in place */
    PyObject **saved;   /* of an autograd node: its accessors, borrowed from the type */
    PyObject *next_functions, *variable;
    uint32_t n_saved, header, flags;
    uint8_t rank, folds;
    int8_t mark, luck;
} TypeFacts;

enum { NODE_BY_GRAPH = 1, NODE_KEEPS_GRAPH = 2, NODE_GRADIENT = 4, NODE_FROZEN = 8,
       NODE_TRACKED = 16, /* on the collector's lists */
       NODE_YOUNG = 32,   /* and in its youngest generation */
       NODE_CROSSES = 64, /* has an edge to what an earlier phase reached */
       NODE_SEALED = 128, /* stands for an entry of the seal */ };

typedef struct {
    uintptr_t key; /* address of a Python object, or of a storage with its lowest bit set */
    uint64_t bytes;
    uint32_t first_edge, n_edges, parent, type;
    int32_t root;
    uint32_t depth : 9, phase : 3, flags : 8, device : 6;
    int32_t mark : 6;
} Node;

typedef struct {
    uint32_t *items;
    size_t count, capacity, head;
} Numbers;

/* From address to node. An entry holds the whole key, so that a hit needs no look at the node:
 * key (37 bits: the number of a region of 4 GiB, the address in it in words) | unsettled | node + 1.
 * Regions are numbered as they are met: objects may lie anywhere between mappings of terabytes. */
#define MAX_REGIONS 256
#define REGION_SLOTS 512
#define REGION_BITS 32
#define NODE_BITS 26
#define MOST_NODES ((1u << NODE_BITS) - 2)
#define UNSETTLED ((uint64_t)1 << NODE_BITS) /* its phase may change yet: look at the node */

typedef struct {
    uint64_t *slots;
    size_t mask;
    uintptr_t regions[REGION_SLOTS]; /* their names; 0 where there is none */
    uint8_t region_numbers[REGION_SLOTS];
    uint32_t n_regions;
} Index;

/* An edge that was seen and not followed yet: meanwhile memory fetches what following it needs. */
#define LAG 32
typedef struct {
    PyObject *object; /* NULL: it was folded */
    PyObject *name;   /* the text that is its key in a dict; NULL elsewhere */
    uint64_t key;
    uint32_t source, may_be_parcel;
} Pending;

typedef struct {
    PyObject *tensor, *parameter, *untyped_storage, *grad, *grad_fn, *base, *is_leaf,
        *requires_grad, *storage_key, *storage_nbytes, *storage_device, *plain_dispatch, *storage,
        *is_shared, *is_resizable, *storage_address, *tensor_address, *is_wrapped, *unwrapped,
        *retains_grad, *nbytes, *shape, *stride, *offset, *item_bytes, *use_count,
        *storage_use_count;
} Access;

/* Types that adapters know; None where the program has not imported their module. */
typedef struct {
    PyObject *array, *record, *mapping, *numbers, *c_data, *text_buffer, *bytes_buffer, *arrow_buffer,
        *arrow_array, *arrow_dictionary, *arrow_chunked, *arrow_table, *arrow_batch,
        *arrow_extension, *canvas;
} Known;

typedef struct {
    Py_ssize_t library_from, lasting_from, root_base, max_selected, max_depth, graph_budget, max_groups, max_samples;
    Py_ssize_t new_samples;
    uint64_t cutoff, circle_bytes;
    Py_ssize_t own_passes;
    int full, keeps_graph, counts_types, needs_autograd, folds;
    PyObject *roots, *barriers, *hidden, *marked, *late, *stages, *pinned;
} Request;

/* Memory whose address is known. Foreign memory may be another object's, or no private memory. */
typedef struct {
    uintptr_t address;
    uint64_t bytes;
    uint32_t node, owner;
    int is_foreign;
} Extent;

/* Where the memory of a storage lies. */
typedef struct {
    uint32_t node;
    uintptr_t address;
} Place;

/* The part of a storage's or an array's memory that no tensor and no array can read. */
typedef struct {
    uint32_t node;
    uint64_t bytes;
} Unread;

/* What a view can read: from where to where in memory, and how many bytes of that at most. */
typedef struct {
    uint64_t begin, end, bytes;
    uint32_t region; /* the node that has the memory */
} Reach;

/* A stretch of addresses that is not private memory. */
typedef struct {
    uintptr_t begin, end;
    int backing;
} Mapping;

/* An object that is asked about, and the first objects seen to refer to it. */
typedef struct {
    PyObject *object;
    uint32_t node, n_referrers, referrers[MAX_REFERRERS];
} Pinned;

typedef struct {
    uint64_t count, bytes;
} TypeTotal;

/* A new object to which somebody refers whom the walk can't see, and how many such references it has. */
typedef struct {
    uint32_t node;
    int64_t references;
} Head;

typedef struct {
    uint32_t type;
    uint64_t count, bytes, unread;
    PyObject *samples[MAX_SAMPLES];
    uint32_t n_samples;
} Kind;

#define MAX_PARCEL_SAMPLES 3

/* What was folded into a container, of one type. */
typedef struct {
    uint32_t source;
    Kind kind;
} Parcels;

/* What a parcel refers to, and others too. */
typedef struct {
    PyObject *object;
    uint32_t level : 31; /* in how many containers of the parcel it lies */
    uint32_t is_leaf : 1; /* a number, a text or another object that refers to nothing */
} SharedAtom;

#define AWAITED_BITS 13

/* An object that others hold too and that a node which waits to be entered refers to. */
typedef struct {
    PyObject *object;
    uint32_t source; /* the node through which that one was found */
    uint32_t level;  /* in how many containers, from that one inwards, it lies */
} Awaited;

/* Those of parcels of a container that come in a row. */
typedef struct {
    uint32_t source, levels;
    size_t first, count;
    size_t place; /* behind its node in the order of the walk */
} Batch;

#define PAGE_BITS 12
#define PAGE_WORDS 4 /* a bit for every 16 bytes of a page: objects that are tracked begin there */

typedef struct {
    uintptr_t page; /* its number; 0: free */
    uint64_t bits[PAGE_WORDS];
} Page;

/* A set of addresses of objects that the collector tracks. */
typedef struct {
    Page *pages;
    size_t n_slots, n_pages;
} Addresses;

typedef struct Baseline Baseline;
typedef struct Seal Seal;
typedef struct Resumed Resumed;

typedef struct {
    Request request;
    Access access;
    Known known;
    int has_torch;
    PyObject *array_nbytes;

    Node *nodes;
    size_t n_nodes, cap_nodes;
    Index index;
    TypeFacts *types;
    uint32_t n_types, cap_types;
    uint32_t *type_slots;
    size_t n_type_slots;
    uint32_t latest_types[LATEST_TYPES]; /* numbers, by address */
    uint32_t *edges;
    size_t n_edges, cap_edges;
    Numbers order, code, late, graph, made, seeds, tensors, views, opaque;
    PyObject *parts; /* of tensors by their address, what they consist of; borrowed */
    PyObject **owned; /* wrappers that accessors made for us; alive until the walk is over */
    size_t n_owned, cap_owned;
    Extent *extents;
    size_t n_extents, cap_extents, n_foreign;
    Place *storages; /* in the order of their nodes' numbers */
    size_t n_storages, cap_storages;
    Unread *unread;
    size_t n_unread;
    Mapping *mappings;
    size_t n_mappings;
    int has_mappings;
    Pinned *pinned;
    TypeTotal *totals; /* by type's number; NULL unless types are counted */
    uint32_t n_pinned, n_totals;
    Head *heads; /* in the order of the walk */
    size_t n_heads, cap_heads;
    Seal *seal;        /* what earlier walks sealed, and where this one does; NULL without one */
    Baseline *baseline; /* what was there when measuring began; NULL unless what is new is weighed */
    Baseline *since;    /* of a full walk: what was there when measuring began; NULL where that isn't known */
    uint64_t elsewhere, new_garbage; /* host bytes that are new, and no name of the user's reaches */
    int has_weighed_new;
    Resumed *resumed;  /* of a walk that goes on from a seal; NULL of a whole one */

    int folds_parcels;
    Parcels *parcels;
    size_t n_parcels, cap_parcels;
    SharedAtom *shared;
    size_t n_shared, cap_shared;
    Batch *batches;
    size_t n_batches, cap_batches;
    Awaited *awaited; /* by address; NULL where there are none */
    uint32_t n_awaited;
    Addresses in_parcels; /* what the collector tracks of parcels, where its lists are gone through */
    uint32_t passed_by; /* objects that could have been parcels and were not tried */
    uint64_t folded_by_user;

    int phase;
    uint32_t phase_first; /* settled nodes from here on are of this phase, those before of others */
    Pending pending[LAG];
    uint32_t n_pending, first_pending;
    uint32_t n_arrived; /* of these, the first: the object is there, its slot on its way */
    uint32_t source;    /* the node whose edges are being added */
    uint32_t last_edge; /* and the last of them: repeated edges are one */
    const void *cut_globals, *cut_builtins;

    PyObject *device_objects[MAX_DEVICES];
    uint32_t n_devices;
    struct { Py_hash_t hash; int number; } seen[MAX_DEVICES];
    uint32_t n_seen;
    uint64_t folded, heap_bytes, array_bytes, array_by_graph;
    size_t graph_count, graph_measured;
    uint32_t first_graph; /* no autograd node has a lower number */
    int graph_truncated, graph_is_deep, failed;
    int autograd_changes; /* other threads change gradients and graphs: neither is read */
    size_t scratch, peak;
} Walk;

typedef struct {
    uint32_t count;      /* nodes in depth-first order, the virtual root first */
    uint32_t *number;    /* node -> position in that order; 0 where it was not reached */
    uint32_t *node;      /* position -> node */
    uint32_t *dominator; /* position -> position */
    uint64_t *host;      /* retained, by position */
    uint64_t *device[MAX_DEVICES];
    uint64_t *reached[MAX_DEVICES]; /* by node: its own bytes and those named through it */
    uint64_t *unread[MAX_DEVICES];  /* retained, by position; NULL where nothing is */
    uint64_t *recent; /* of what is reached on the host, by node, what came since measuring began; or NULL */
    uint32_t *graph_nodes;
} Tree;

typedef struct {
    uint64_t total;
    uint32_t node;
    uint16_t depth;
    uint8_t foreign;
} Candidate;

typedef struct {
    Kind *items;
    uint32_t count;
} Kinds;

#define SHARED_SAMPLES 3
#define MAX_HOLDERS 6

/* A container, or an object that it names, and the others that hold it. */
typedef struct {
    uint32_t container, object, n_holders, holders[MAX_HOLDERS];
    uint32_t next; /* index, plus one, of another sample of the same object */
} Shared;

#define LONGEST_CIRCLE 64

/* The circle of references that keeps an object of garbage from being freed. */
typedef struct {
    uint32_t of, count, nodes[LONGEST_CIRCLE];
} Circle;

typedef struct {
    Candidate *chosen;
    size_t n_chosen;
    uint32_t *named; /* the chosen and their ancestors, parents first */
    size_t n_named;
    uint32_t *place; /* node -> place in named, plus one; the top bit marks the chosen */
    Kinds *kinds;    /* by place */
    Shared *shared;  /* samples of what chosen containers name and others hold too */
    size_t n_shared;
    Circle *circles;
    size_t n_circles;
    uint32_t *samples; /* by place: index, plus one, of the first sample of a container */
} Choice;

#define CHOSEN 0x80000000u
#define PLACE(x) (((x) & ~CHOSEN) - 1)

static inline int is_nothing(PyObject *object) {
    return object == Py_None || object == Py_True || object == Py_False ||
           object == Py_Ellipsis || object == Py_NotImplemented;
}

/* memory.c: scratch that goes back to the system. All return NULL, or -1, after setting failed. */
void *fresh(Walk *w, size_t count, size_t size);
void *resized(Walk *w, void *old, size_t bytes);
void drop(Walk *w, void *memory);
size_t resident_part(const void *memory);
int push(Walk *w, Numbers *list, uint32_t value);

/* types.c */
PyObject *getset_of(PyTypeObject *type, const char *name);
uint32_t add_type(Walk *w, PyTypeObject *type);
uint32_t type_number(Walk *w, PyTypeObject *type);

/* The same, of types that come again and again. */
static inline uint32_t known_type_number(Walk *w, PyTypeObject *type) {
    uint32_t *latest = &w->latest_types[(uintptr_t)type >> 4 & (LATEST_TYPES - 1)];
    if (w->types[*latest].type != type)
        *latest = type_number(w, type);
    if (*latest != NONE)
        return *latest;
    *latest = 0;
    return NONE;
}

static inline int is_collected(PyObject *object, const TypeFacts *facts) {
    return PyType_IS_GC(facts->type) &&
           (!(facts->flags & TYPE_MAY_LACK_HEADER) || PyObject_IS_GC(object));
}

/* sizes.c */
const void *attribute_values(PyObject *object);
uint64_t shallow_bytes(PyObject *object, const TypeFacts *facts);

/* accessors.c: reading what C getters tell. */
PyObject *read_getset(PyObject *descriptor, PyObject *object);
uint64_t read_size(PyObject *number);
int is_true(PyObject *answer);

/* payloads.c: data that an object owns beside what its type tells. */
uint64_t payload_bytes(Walk *w, PyObject *object, const TypeFacts *facts);
void visit_text_pieces(PyObject *buffer, visitproc visitor, void *argument);
int exported_memory(Walk *w, PyObject *object, const TypeFacts *facts, uintptr_t *address,
                    uint64_t *bytes);

/* arrays.c */
uint64_t array_bytes(Walk *w, PyObject *object);
uint64_t array_frame_bytes(PyObject *object);
uint64_t record_bytes(PyObject *object);
PyObject *record_base(PyObject *object);
uint64_t image_bytes(PyObject *core);
uintptr_t array_address(PyObject *object);
PyObject *array_base(PyObject *object);
int array_owns(PyObject *object);
int array_reach(Walk *w, PyObject *object, Reach *reach);
void traverse_array(PyObject *object, visitproc visitor, void *argument, uint64_t bytes);
void follow_array(Walk *w, uint32_t node, PyObject *object);

/* mappings.c, arrow.c */
void follow_mapping(Walk *w, uint32_t node, PyObject *object);
int backing_of(Walk *w, uintptr_t address);
void follow_arrow(Walk *w, uint32_t node, PyObject *object);

/* extents.c: memory that several objects have part in, given by its address. */
void add_extent(Walk *w, uint32_t node, uintptr_t address, uint64_t bytes, int is_foreign);
void follow_memory(Walk *w, uint32_t source, uintptr_t address, uint64_t bytes);
void settle_extents(Walk *w);
uint64_t file_bytes(const Walk *w);

/* unread.c: what no tensor and no array can read of the memory that they keep. */
void find_unread(Walk *w);

/* keys.c */
PyObject *const *text_entries(PyObject *dict, Py_ssize_t *count);
void visit_text_keys(PyObject *dict, visitproc visitor, void *argument);

/* parts.c: tensors that consist of others, of which only operations tell. */
PyObject *parts_of(const Walk *w, PyObject *tensor);
int follow_parts(Walk *w, uint32_t node, PyObject *tensor);
void note_opaque(Walk *w, uint32_t node);
void hide_parts(Walk *w);
PyObject *opaque_as_list(const Walk *w);

/* tensors.c */
PyObject *wrapped_by(Walk *w, PyObject *tensor);
PyObject *gradient_of(Walk *w, PyObject *tensor, int is_leaf);
void follow_storage(Walk *w, uint32_t node, PyObject *storage, PyObject *tensor);
void note_address(Walk *w, uint32_t node, uintptr_t address);
uintptr_t address_of(const Walk *w, uint32_t node);
int has_met(Walk *w, PyObject *storage);
void follow_tensor(Walk *w, uint32_t node, PyObject *tensor, const TypeFacts *facts);
void follow_graph(Walk *w, uint32_t node, PyObject *object, const TypeFacts *facts);
void follow_saved(Walk *w, uint32_t node, PyObject *saved);

void follow_maker(Walk *w, uint32_t node);

/* chains.c: how long a graph may be that is asked for its nodes. */
int may_ask_graph(Walk *w);

/* threads.c */
int prepare_threads(void);
int others_change_autograd(Py_ssize_t own);

/* lock.c: no other thread goes on meanwhile. */
int prepare_lock(void);
void go_on_keeping_lock(void);
PyObject *can_keep_lock(PyObject *module, PyObject *nothing);
PyObject *keep_lock(PyObject *module, PyObject *nothing);
PyObject *go_on(PyObject *module, PyObject *nothing);
PyObject *keep_lock_no_more(PyObject *module, PyObject *nothing);
PyObject *real_path(PyObject *module, PyObject *path);
PyObject *read_file(PyObject *module, PyObject *path);
PyObject *read_memory(PyObject *module, PyObject *args);

/* nodes.c: the table of nodes, its index by address, and the edges. */
int grow_index(Walk *w, size_t n_slots);
void add_region(Walk *w, uintptr_t region, size_t at);
uint32_t add_node(Walk *w, uintptr_t key, uint32_t type, uint32_t parent, int32_t root,
                  int phase);
void add_edge(Walk *w, uint32_t source, uint32_t target);
int enqueue(Walk *w, uint32_t node, int rank);
uint32_t seed(Walk *w, PyObject *object, int32_t root);
uint32_t reserve(Walk *w, PyObject *object, int phase);

/* folding.c: what needs no node of its own. */
int prepare_folding(void);
uint64_t folded_bytes(Walk *w, PyObject *object);
int fold(Walk *w, uint32_t source, PyObject *object, PyObject *key);
int may_be_parcel(Walk *w, uint32_t source, PyObject *object);
int fold_parcel(Walk *w, uint32_t source, PyObject *object, PyObject *key);
PyObject *shared_by_batch(Walk *w, uint32_t number, size_t *at);
void follow_batch(Walk *w, uint32_t number);
void group_parcels(Walk *w, const Choice *c);

/* edges.c: following edges, breadth first. */
int root_of_phase(int phase);
void hold(Walk *w, PyObject *object);
uint32_t follow_owned(Walk *w, uint32_t source, PyObject *object);
void reserve_edge(Walk *w, uint32_t source);
void follow_reserved(Walk *w, uint32_t source, PyObject *object);
void begin_phase(Walk *w, int phase);
void drain(Walk *w);
void drain_stage(Walk *w);

uint32_t follow_edge(Walk *w, uint32_t source, PyObject *object);
void inherit(Walk *w, Node *node);

/* phases.c */
void walk_user(Walk *w, PyObject *request);
void walk_rest(Walk *w);
uint32_t mark_tracked(Walk *w, PyObject *object, int is_young);
void walk_library(Walk *w);
void walk_waiting(Walk *w, int waiting, int phase);
void walk_unreached(Walk *w, size_t base, size_t count);

/* collector.c */
PyObject *is_collecting(PyObject *module, PyObject *nothing);
typedef int (*trackedproc)(PyObject *object, int is_young, void *argument);
void visit_tracked(trackedproc visitor, void *argument);
void visit_tracked_from_both_ends(trackedproc visitor, void *argument);
void visit_frozen(trackedproc visitor, void *argument);
void visit_generations(trackedproc of_young, trackedproc of_oldest, int backwards, void *argument);

/* baseline.c: what is new since measuring began. */
PyObject *new_baseline(PyObject *module, PyObject *nothing);
PyObject *baseline_bytes(PyObject *module, PyObject *baseline);
Baseline *baseline_of(PyObject *capsule);
int add_address(Walk *w, Addresses *addresses, PyObject *object);
int has_begun(const Baseline *baseline);
int is_known(const Baseline *baseline, PyObject *object);
int sum_recent(Walk *w, Tree *t);
void walk_new(Walk *w);
void sum_new(Walk *w);

static inline Page *page_of(const Addresses *a, uintptr_t page) {
    size_t mask = a->n_slots - 1, at = (page * 0x9E3779B97F4A7C15ull >> 20) & mask;
    while (a->pages[at].page && a->pages[at].page != page)
        at = (at + 1) & mask;
    return &a->pages[at];
}

static inline int bit_of(PyObject *object) { return (int)((uintptr_t)object >> 4 & (PAGE_WORDS * 64 - 1)); }

static inline int is_among(const Addresses *a, PyObject *object) {
    if (a->n_slots == 0)
        return 0; /* with the collector switched off from the start nothing may have been old */
    const Page *page = page_of(a, (uintptr_t)object >> PAGE_BITS);
    int bit = bit_of(object);
    return page->bits[bit >> 6] >> (bit & 63) & 1;
}

/* Say whether objects of a phase are part of the sums: ours never are, and where only what is new is
 * looked at beside the user's names, that is added up by itself. */
static inline int is_counted(const Walk *w, int phase) {
    return phase != PHASE_HIDDEN && (w->baseline == NULL || phase == PHASE_USER);
}

/* seal.c: what stays the same from census to census. */
Seal *seal_of(PyObject *capsule);
int has_sealed(const Seal *seal);
int add_to_seal(Walk *w, const Tree *t);
void reset_seal(Walk *w, Seal *seal);
PyObject *new_seal(PyObject *module, PyObject *nothing);
PyObject *seal_facts(PyObject *module, PyObject *seal);
PyObject *seal_bytes(PyObject *module, PyObject *seal);

/* resume.c: a walk that goes on from a seal. */
int begin_resumed(Walk *w);
int is_sealed(const Walk *w, PyObject *object);
int takes_sealed(Walk *w, PyObject *object);
int is_doubtful(const Walk *w, PyObject *object);
int seals_native(const Walk *w);
void unseal(Walk *w, PyObject *object);
int is_sealed_ours(Walk *w, PyObject *object);
int is_renamed(const Walk *w, uint32_t entry);
void walk_resumed(Walk *w);
void resume_phase(Walk *w, int phase);
void finish_resumed(Walk *w);
void group_sealed(Walk *w, const Choice *c);
uint64_t named_bytes(const Walk *w, uint32_t number);
void drop_resumed(Walk *w);

/* What is sealed, summed up: objects and host bytes by phase. */
typedef struct {
    uint64_t objects, heap, by_phase[PHASE_UNREACHED + 1];
} SealedSums;
SealedSums sealed_sums(const Walk *w);
uint32_t entry_of(const Walk *w, uint32_t number);

/* pinned.c */
int watch_pinned(Walk *w);
void note_referrer(Walk *w, uint32_t source, PyObject *target);
void find_pinned(Walk *w);
void name_pinned(Walk *w, const Tree *t, Choice *c, Numbers *named);
void choose_pinned(Walk *w, const Tree *t, Choice *c);
PyObject *referrers_as_list(const Walk *w, const Choice *c, uint32_t number);

/* totals.c */
void count_object(Walk *w, uint32_t type, uint64_t bytes);
PyObject *totals_as_list(Walk *w);
void add_head(Walk *w, uint32_t node, int64_t references);
PyObject *heads_as_list(Walk *w);

/* dominators.c */
int find_dominators(Walk *w, Tree *t);
int sum_retained(Walk *w, Tree *t);
int sum_reached(Walk *w, Tree *t);
uint64_t total_of(const Walk *w, const Tree *t, uint32_t position);
uint64_t unread_of(const Walk *w, const Tree *t, uint32_t position);
uint64_t worth_of(const Walk *w, const Tree *t, uint32_t number);

/* selection.c */
void add_with_ancestors(Walk *w, Choice *c, Numbers *named, uint32_t number);
int choose(Walk *w, const Tree *t, Choice *c);
int group_children(Walk *w, const Tree *t, Choice *c);
Kind *add_kind(Walk *w, Kinds *kinds, uint32_t type, uint64_t bytes, PyObject *sample);

/* holders.c */
int gathers(const PyTypeObject *type);
void find_holders(Walk *w, const Tree *t, Choice *c, Numbers *named);
void index_samples(Walk *w, Choice *c);
PyObject *others_as_list(const Choice *c, size_t row);
PyObject *holders_as_list(const Choice *c, size_t row);

/* circles.c */
void find_circles(Walk *w, const Tree *t, Choice *c, Numbers *named);
PyObject *circle_as_list(const Choice *c, uint32_t number);

/* answer.c */
PyObject *bytes_by_device(Walk *w, const uint64_t *bytes, int with_host);
PyObject *build_answer(Walk *w, Tree *t, Choice *c);

/* shares.c */
PyObject *keep_graph(Walk *w, Tree *t);
PyObject *leak_shares(PyObject *module, PyObject *args);

/* addresses.c */
PyObject *referent_addresses(PyObject *module, PyObject *args);

/* attributes.c */
PyObject *inline_attributes(PyObject *module, PyObject *object);

/* classes.c */
int is_made_at_run_time(const Walk *w, PyObject *object);
PyObject *classes_in(PyObject *module, PyObject *names);

/* untraced.c */
PyObject *remember_allocators(PyObject *module, PyObject *nothing);
PyObject *trace_no_more(PyObject *module, PyObject *nothing);
PyObject *trace_again(PyObject *module, PyObject *nothing);

/* frames.c */
PyObject *frame_locals(PyObject *module, PyObject *frame);
PyObject *stacked(PyObject *module, PyObject *arguments);

extern PyObject *name_sizeof, *name_dispatch, *name_data, *name_unpack;

/* Return whether C code may still be filling a tuple: nothing that was met refers to it. It is resized
 * only while it has a single reference, so that whoever holds another one makes the program fail
 * (_PyTuple_Resize), as tuple() of a generator does while another thread runs. */
static inline int may_be_unfinished(const Node *node) {
    PyObject *object = (PyObject *)node->key;
    return node->root < 0 && node->parent == NONE && PyTuple_CheckExact(object) && Py_REFCNT(object) == 1;
}

static inline uint64_t key_in(Walk *w, uintptr_t address, int is_storage) {
    const Index *index = &w->index;
    uintptr_t region = (address >> REGION_BITS << 1 | (uintptr_t)is_storage) + 1;
    size_t at = region * 0x9E3779B97F4A7C15ull >> 55;
    while (index->regions[at] != region) {
        if (index->regions[at] == 0) {
            add_region(w, region, at);
            break;
        }
        at = (at + 1) % REGION_SLOTS;
    }
    return (uint64_t)index->region_numbers[at] << (REGION_BITS - 3) |
           (address & (((uintptr_t)1 << REGION_BITS) - 1)) >> 3;
}

static inline uint64_t key_of(Walk *w, PyObject *object) {
    return key_in(w, (uintptr_t)object, 0);
}

/* Neighbours in memory are neighbours in the index: a cache line for every 256 bytes. */
static inline size_t slot_of(const Index *index, uint64_t key) {
    uint64_t h = (key >> 4) * 0x9E3779B97F4A7C15ull;
    return (((size_t)(h >> 29) & ~(size_t)3) | (size_t)(key >> 2 & 3)) & index->mask;
}

static inline void prefetch_slot(const Index *index, uint64_t key) {
    __builtin_prefetch(&index->slots[slot_of(index, key)]);
}

/* Return the entry of a key, 0 where it has none. */
static inline uint64_t find_entry(const Index *index, uint64_t key) {
    for (size_t at = slot_of(index, key);; at = (at + 1) & index->mask) {
        uint64_t entry = index->slots[at];
        if (entry == 0 || entry >> (NODE_BITS + 1) == key)
            return entry;
    }
}

static inline uint32_t node_of(uint64_t entry) {
    return (uint32_t)(entry & (UNSETTLED - 1)) - 1;
}

#endif
