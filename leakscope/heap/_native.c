/* The native heap walker: the same walk as reference.py, over arrays of C integers.
 *
 * From the first edge to the moment when the answer holds its strong references no bytecode runs:
 * the GIL is never released, the collector is off, and of the objects met only tp_traverse, sizes
 * of built-in types and torch's own C accessors are called. Nothing met can therefore die or move,
 * and borrowed pointers are enough.
 *
 * The answer's rules (order of edges, phases, selection) are those of edges.py, reference.py and
 * selection.py; tests hold both engines side by side.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#if PY_VERSION_HEX >= 0x030B0000 && PY_VERSION_HEX < 0x030D0000
#define Py_BUILD_CORE
#include <internal/pycore_code.h>
#include <internal/pycore_frame.h>
#undef Py_BUILD_CORE
#else
#include <frameobject.h>
#endif
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <structmember.h>
#include <sys/mman.h>
#include <time.h>

#define NONE UINT32_MAX
#define MAX_DEVICES 64 /* the host among them */
#define FOLD_LIMIT 4096 /* a lone number or text smaller than this needs no node of its own */
#define MAX_GROUPS 256
#define MAX_SAMPLES 8

enum { PHASE_USER, PHASE_LIBRARY, PHASE_OTHER, PHASE_HIDDEN, PHASE_NATIVE, PHASE_GARBAGE,
       PHASE_BARRIER = 254, PHASE_UNREACHED = 255 };
enum { RANK_PLAIN, RANK_CODE, RANK_LATE, RANK_GRAPH, RANK_CUT };
enum { ROOT_NATIVE = -1, ROOT_GARBAGE = -2, ROOT_OTHER = -3 };

/* ---- types ------------------------------------------------------------------------------- */

enum {
    TYPE_TENSOR = 1, TYPE_PARAMETER = 2, TYPE_STORAGE = 4, TYPE_ARRAY = 8, TYPE_IMAGE = 16,
    TYPE_ATOMIC = 32, TYPE_FUNCTION = 64, TYPE_FRAME = 128, TYPE_INLINE_VALUES = 256,
    TYPE_MAY_LACK_HEADER = 512, TYPE_SAVED = 1024,
};

typedef struct {
    PyTypeObject *type; /* NULL: a tensor's storage, which is no Python object */
    PyCFunction sizer;  /* NULL: object.__sizeof__, computed in place */
    PyObject **saved;   /* of an autograd node: its accessors, borrowed from the type */
    PyObject *next_functions, *variable;
    uint32_t n_saved, header;
    uint16_t flags;
    uint8_t rank;
    int8_t mark;
} TypeFacts;

typedef struct {
    uintptr_t key; /* address of a Python object, or of a storage with its lowest bit set */
    uint64_t bytes;
    uint64_t first_edge;
    uint32_t n_edges, parent, type;
    int32_t root;
    uint16_t depth;
    uint8_t phase, flags;
    int8_t mark;
    uint8_t device;
} Node;

enum { NODE_BY_GRAPH = 1, NODE_KEEPS_GRAPH = 2, NODE_GRADIENT = 4 };

typedef struct {
    uint32_t *items;
    size_t count, capacity, head;
} Numbers;

typedef struct {
    PyObject *tensor, *parameter, *untyped_storage, *grad, *grad_fn, *base, *is_leaf,
        *requires_grad, *storage_key, *storage_nbytes, *storage_device, *plain_dispatch;
} Access;

typedef struct {
    Py_ssize_t library_from, max_selected, max_depth, graph_budget, max_groups, max_samples;
    uint64_t cutoff;
    int full;
    PyObject *roots, *barriers, *hidden, *marked, *late, *stages;
} Request;

typedef struct {
    Request request;
    Access access;
    int has_torch;
    PyObject *ndarray, *array_nbytes;

    Node *nodes;
    size_t n_nodes, cap_nodes;
    uint64_t *slots; /* open addressing: fingerprint << 32 | node + 1 */
    size_t n_slots;
    TypeFacts *types;
    uint32_t n_types, cap_types;
    uint32_t *type_slots;
    size_t n_type_slots;
    uint32_t *edges;
    size_t n_edges, cap_edges;
    Numbers order, code, late, graph, seeds;
    PyObject **owned; /* wrappers that accessors made for us; alive until the walk is over */
    size_t n_owned, cap_owned;

    int phase;
    uint32_t current;
    uint32_t last_edge;
    const void *cut_globals, *cut_builtins;

    PyObject *device_objects[MAX_DEVICES];
    uint32_t n_devices;
    struct { Py_hash_t hash; int number; } seen[MAX_DEVICES];
    uint32_t n_seen;
    uint64_t folded, heap_bytes, hidden_heap, array_bytes, hidden_objects, hidden_edges;
    uint64_t array_by_graph;
    size_t graph_count;
    int graph_truncated, failed;
    size_t scratch, peak;
} Walk;

static PyObject *name_sizeof, *name_dispatch, *name_data, *name_unpack;

/* ---- memory ------------------------------------------------------------------------------ */

/* Large blocks are mappings of their own: they go back to the system at once when the walk is over,
 * where malloc would keep them and so change the figures that are being measured. */
typedef struct {
    size_t bytes; /* with this header */
    size_t is_mapped;
} Block;

#define MAPPED_FROM ((size_t)1 << 17)

static Block *new_block(size_t bytes) {
    Block *block;
    if (bytes < MAPPED_FROM) {
        block = calloc(1, bytes);
    } else {
        block = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (block == MAP_FAILED)
            block = NULL;
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
        moved->bytes = bytes;
        return moved;
    }
#endif
    Block *fresh = new_block(bytes);
    if (fresh == NULL)
        return NULL;
    size_t used = block->bytes < bytes ? block->bytes : bytes;
    memcpy(fresh + 1, block + 1, used - sizeof *block);
    free_block(block);
    return fresh;
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

/* Return zeroed memory, or NULL after noting that the walk has failed. */
static void *fresh(Walk *w, size_t count, size_t size) {
    return counted(w, new_block(sizeof(Block) + count * size), 0);
}

/* Return the memory at another size; what is new in it is undefined. */
static void *resized(Walk *w, void *old, size_t bytes) {
    if (old == NULL)
        return fresh(w, 1, bytes);
    Block *block = (Block *)old - 1;
    size_t before = block->bytes;
    return counted(w, resized_block(block, sizeof(Block) + bytes), before);
}

static void drop(Walk *w, void *memory) {
    if (memory == NULL)
        return;
    Block *block = (Block *)memory - 1;
    w->scratch -= block->bytes;
    free_block(block);
}

static int push(Walk *w, Numbers *list, uint32_t value) {
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

static inline uint64_t mixed(uintptr_t key) {
    uint64_t h = (uint64_t)key * 0x9E3779B97F4A7C15ull;
    return h ^ (h >> 29);
}

static int grow_slots(Walk *w, size_t n_slots) {
    uint64_t *slots = fresh(w, n_slots, 8);
    if (slots == NULL)
        return -1;
    for (size_t i = 0; i < w->n_nodes; i++) {
        uint64_t h = mixed(w->nodes[i].key);
        size_t at = (size_t)(h >> 20) & (n_slots - 1);
        while (slots[at])
            at = (at + 1) & (n_slots - 1);
        slots[at] = (h << 32) | (i + 1);
    }
    drop(w, w->slots);
    w->slots = slots;
    w->n_slots = n_slots;
    return 0;
}

/* Return the node of a key, or NONE with the slot where it belongs. */
static inline uint32_t find_node(Walk *w, uintptr_t key, size_t *slot) {
    uint64_t h = mixed(key);
    size_t at = (size_t)(h >> 20) & (w->n_slots - 1);
    uint64_t print = h << 32;
    for (;;) {
        uint64_t entry = w->slots[at];
        if (entry == 0) {
            *slot = at;
            return NONE;
        }
        if ((entry ^ print) >> 32 == 0) {
            uint32_t node = (uint32_t)entry - 1;
            if (w->nodes[node].key == key)
                return node;
        }
        at = (at + 1) & (w->n_slots - 1);
    }
}

/* ---- facts about types ------------------------------------------------------------------- */

static PyObject *own_attribute(PyTypeObject *type, PyObject *name) { /* borrowed */
#if PY_VERSION_HEX >= 0x030C0000
    PyObject *dict = PyType_GetDict(type);
    if (dict == NULL)
        return NULL;
    PyObject *found = PyDict_GetItemWithError(dict, name);
    Py_DECREF(dict);
#else
    PyObject *found = type->tp_dict ? PyDict_GetItemWithError(type->tp_dict, name) : NULL;
#endif
    if (found == NULL && PyErr_Occurred())
        PyErr_Clear();
    return found;
}

static int is_subtype(PyTypeObject *type, PyObject *base) {
    return base != NULL && PyType_IsSubtype(type, (PyTypeObject *)base);
}

static int is_trusted(PyTypeObject *type) {
    static const char *const prefixes[] = {"collections.", "array.", "_io.", "re.", "_struct."};
    if ((type->tp_flags & Py_TPFLAGS_HEAPTYPE) && !(type->tp_flags & Py_TPFLAGS_IMMUTABLETYPE))
        return 0;
    if (strchr(type->tp_name, '.') == NULL)
        return 1;
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (strncmp(type->tp_name, prefixes[i], strlen(prefixes[i])) == 0)
            return 1;
    return 0;
}

/* The interpreter's own C method that sizes instances, or NULL for that of object. An override is
 * passed over, and so is a method put on a class that it was not made for. */
static PyCFunction sizer_of(PyTypeObject *type) {
    PyObject *mro = type->tp_mro;
    for (Py_ssize_t i = 0; mro && i < PyTuple_GET_SIZE(mro); i++) {
        PyTypeObject *base = (PyTypeObject *)PyTuple_GET_ITEM(mro, i);
        PyObject *found = own_attribute(base, name_sizeof);
        if (found == NULL || !Py_IS_TYPE(found, &PyMethodDescr_Type))
            continue;
        PyMethodDescrObject *method = (PyMethodDescrObject *)found;
        if (method->d_common.d_type != base || !is_trusted(base) ||
            method->d_method->ml_flags != METH_NOARGS)
            continue;
#if PY_VERSION_HEX < 0x030D0000
        if (base == &PyBaseObject_Type)
            return NULL;
#endif
        return method->d_method->ml_meth;
    }
    return NULL;
}

static PyObject *unwrapped(PyObject *function) { /* borrowed */
    if (Py_IS_TYPE(function, &PyStaticMethod_Type) || Py_IS_TYPE(function, &PyClassMethod_Type))
        return ((struct { PyObject_HEAD PyObject *callable; } *)function)->callable;
    return function;
}

/* Wrapper subclasses claim the memory of what they wrap; they have none themselves. */
static int has_plain_dispatch(Walk *w, PyTypeObject *type) {
    PyObject *mro = type->tp_mro;
    for (Py_ssize_t i = 0; mro && i < PyTuple_GET_SIZE(mro); i++) {
        PyObject *found =
            own_attribute((PyTypeObject *)PyTuple_GET_ITEM(mro, i), name_dispatch);
        if (found != NULL)
            return unwrapped(found) == unwrapped(w->access.plain_dispatch);
    }
    return 1;
}

static PyObject *getset_of(PyTypeObject *type, const char *name) { /* borrowed */
    PyObject *key = PyUnicode_FromString(name), *result = NULL, *mro = type->tp_mro;
    for (Py_ssize_t i = 0; key && mro && result == NULL && i < PyTuple_GET_SIZE(mro); i++) {
        result = own_attribute((PyTypeObject *)PyTuple_GET_ITEM(mro, i), key);
        if (result && !Py_IS_TYPE(result, &PyGetSetDescr_Type))
            result = NULL;
    }
    Py_XDECREF(key);
    PyErr_Clear();
    return result;
}

/* Collect the raw saved variables of a type of autograd nodes. */
static void study_node(Walk *w, TypeFacts *facts) {
    PyTypeObject *type = facts->type;
    facts->next_functions = getset_of(type, "next_functions");
    if (facts->next_functions == NULL || getset_of(type, "_input_metadata") == NULL) {
        facts->next_functions = NULL;
        return;
    }
    facts->rank = RANK_GRAPH;
    facts->variable = getset_of(type, "variable");
    PyObject *mro = type->tp_mro;
    for (Py_ssize_t i = PyTuple_GET_SIZE(mro); i-- > 0;) {
        PyTypeObject *base = (PyTypeObject *)PyTuple_GET_ITEM(mro, i);
#if PY_VERSION_HEX >= 0x030C0000
        PyObject *dict = PyType_GetDict(base);
#else
        PyObject *dict = base->tp_dict;
        Py_XINCREF(dict);
#endif
        PyObject *key, *value;
        Py_ssize_t at = 0;
        while (dict && PyDict_Next(dict, &at, &key, &value)) {
            const char *name = PyUnicode_CheckExact(key) ? PyUnicode_AsUTF8(key) : NULL;
            if (name == NULL || strncmp(name, "_raw_saved_", 11) != 0 ||
                !Py_IS_TYPE(value, &PyGetSetDescr_Type))
                continue;
            PyObject **saved =
                resized(w, facts->saved, (facts->n_saved + 1) * sizeof(PyObject *));
            if (saved == NULL)
                break;
            facts->saved = saved;
            saved[facts->n_saved++] = value;
        }
        Py_XDECREF(dict);
        PyErr_Clear();
    }
}

static int is_image_core(PyTypeObject *type) {
    const char *dot = strrchr(type->tp_name, '.');
    return strcmp(dot ? dot + 1 : type->tp_name, "ImagingCore") == 0 &&
           !(type->tp_flags & Py_TPFLAGS_HEAPTYPE);
}

static void study(Walk *w, TypeFacts *facts) {
    PyTypeObject *type = facts->type;
    unsigned long flags = type->tp_flags;
    facts->mark = -1;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(w->request.marked) && i < 127; i++)
        if (PyType_IsSubtype(type, (PyTypeObject *)PyTuple_GET_ITEM(w->request.marked, i))) {
            facts->mark = (int8_t)i;
            break;
        }
    facts->sizer = sizer_of(type);
    if (flags & Py_TPFLAGS_HAVE_GC)
        facts->header += 16;
    if (type->tp_is_gc != NULL)
        facts->flags |= TYPE_MAY_LACK_HEADER;
#if PY_VERSION_HEX >= 0x030C0000
    if (flags & (Py_TPFLAGS_MANAGED_DICT | Py_TPFLAGS_MANAGED_WEAKREF))
        facts->header += 16;
#elif PY_VERSION_HEX >= 0x030B0000
    if (flags & Py_TPFLAGS_MANAGED_DICT)
        facts->header += 16;
#endif
#if PY_VERSION_HEX >= 0x030B0000 && PY_VERSION_HEX < 0x030D0000
    if ((flags & Py_TPFLAGS_MANAGED_DICT) && (flags & Py_TPFLAGS_HEAPTYPE))
        facts->flags |= TYPE_INLINE_VALUES;
#endif
    if (type == &PyFloat_Type || type == &PyLong_Type || type == &PyUnicode_Type ||
        type == &PyBytes_Type || type == &PyComplex_Type)
        facts->flags |= TYPE_ATOMIC;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(w->request.late); i++)
        if (PyType_IsSubtype(type, (PyTypeObject *)PyTuple_GET_ITEM(w->request.late, i)))
            facts->rank = RANK_LATE;
    if (type == &PyFunction_Type) {
        facts->rank = RANK_CODE;
        facts->flags |= TYPE_FUNCTION;
    } else if (type == &PyFrame_Type) {
        facts->rank = RANK_CODE;
        facts->flags |= TYPE_FRAME;
    } else if (type == &PyTraceBack_Type) {
        facts->rank = RANK_CODE;
    } else if (PyType_FastSubclass(type, Py_TPFLAGS_TYPE_SUBCLASS) ||
               PyType_IsSubtype(type, &PyModule_Type)) {
        facts->rank = RANK_CUT;
    }
    if (w->has_torch && is_subtype(type, w->access.tensor)) {
        facts->flags |= TYPE_TENSOR;
        if (is_subtype(type, w->access.parameter))
            facts->flags |= TYPE_PARAMETER;
        if (has_plain_dispatch(w, type))
            facts->flags |= TYPE_STORAGE;
    } else if (w->has_torch && facts->rank == RANK_PLAIN && type != &PyTuple_Type &&
               type != &PyDict_Type && type != &PyList_Type) {
        study_node(w, facts);
    }
    if (strcmp(type->tp_name, "torch._C._autograd.SavedTensor") == 0)
        facts->flags |= TYPE_SAVED;
    if (is_subtype(type, w->ndarray))
        facts->flags |= TYPE_ARRAY;
    else if (is_image_core(type))
        facts->flags |= TYPE_IMAGE;
}

static uint32_t add_type(Walk *w, PyTypeObject *type) {
    if (w->n_types == w->cap_types) {
        uint32_t capacity = w->cap_types ? w->cap_types * 2 : 256;
        TypeFacts *types = resized(w, w->types, capacity * sizeof *types);
        if (types == NULL)
            return NONE;
        w->types = types;
        w->cap_types = capacity;
    }
    TypeFacts facts = {.type = type};
    if (type != NULL)
        study(w, &facts);
    w->types[w->n_types] = facts;
    return w->n_types++;
}

static uint32_t type_number(Walk *w, PyTypeObject *type) {
    if ((w->n_types + 1) * 2 > w->n_type_slots) {
        size_t n = w->n_type_slots ? w->n_type_slots * 2 : 1024;
        uint32_t *slots = fresh(w, n, 4);
        if (slots == NULL)
            return NONE;
        for (uint32_t i = 1; i < w->n_types; i++) {
            size_t at = (size_t)(mixed((uintptr_t)w->types[i].type) >> 20) & (n - 1);
            while (slots[at])
                at = (at + 1) & (n - 1);
            slots[at] = i;
        }
        drop(w, w->type_slots);
        w->type_slots = slots;
        w->n_type_slots = n;
    }
    size_t mask = w->n_type_slots - 1;
    size_t at = (size_t)(mixed((uintptr_t)type) >> 20) & mask;
    while (w->type_slots[at]) {
        if (w->types[w->type_slots[at]].type == type)
            return w->type_slots[at];
        at = (at + 1) & mask;
    }
    uint32_t number = add_type(w, type);
    if (number != NONE)
        w->type_slots[at] = number;
    return number;
}

/* ---- sizes ------------------------------------------------------------------------------- */

#if PY_VERSION_HEX >= 0x030B0000 && PY_VERSION_HEX < 0x030D0000
/* Attributes that live in an array of their own, which sys.getsizeof leaves out. */
static uint64_t inline_values_bytes(PyObject *object) {
    struct keys { Py_ssize_t refcount; uint8_t small[4]; uint32_t version; Py_ssize_t usable, used; };
#if PY_VERSION_HEX >= 0x030C0000
    uintptr_t slot = (uintptr_t)((PyObject **)object)[-3];
    const uint8_t *values = slot & 1 ? (const uint8_t *)(slot + 1) : NULL;
#else
    const uint8_t *values = (const uint8_t *)((PyObject **)object)[-4];
#endif
    struct keys *keys = (struct keys *)((PyHeapTypeObject *)Py_TYPE(object))->ht_cached_keys;
    if (values == NULL || keys == NULL)
        return 0;
    Py_ssize_t prefix = values[-1], size = keys->usable + keys->used;
    if (size > prefix - 2)
        size = prefix - 2;
    if (size < prefix - 9)
        size = prefix - 9;
    return (uint64_t)(prefix + 8 * (size > 0 ? size : 0));
}
#endif

static uint64_t shallow_bytes(PyObject *object, const TypeFacts *facts) {
    PyTypeObject *type = facts->type;
    uint64_t bytes = facts->header;
    if ((facts->flags & TYPE_MAY_LACK_HEADER) && !PyObject_IS_GC(object))
        bytes = 0;
    if (type == &PyList_Type)
        return bytes + (uint64_t)type->tp_basicsize +
               8 * (uint64_t)((PyListObject *)object)->allocated;
    if (type == &PyUnicode_Type && PyUnicode_IS_COMPACT_ASCII(object))
        return bytes + sizeof(PyASCIIObject) + (uint64_t)PyUnicode_GET_LENGTH(object) + 1;
    if (facts->sizer == NULL) {
        Py_ssize_t items = type->tp_itemsize ? Py_SIZE(object) : 0;
        bytes += (uint64_t)(type->tp_basicsize + (items < 0 ? -items : items) * type->tp_itemsize);
    } else {
        PyObject *size = facts->sizer(object, NULL);
        Py_ssize_t value = size ? PyLong_AsSsize_t(size) : 0;
        Py_XDECREF(size);
        PyErr_Clear();
        bytes += value > 0 ? (uint64_t)value : 0;
    }
#if PY_VERSION_HEX >= 0x030B0000 && PY_VERSION_HEX < 0x030D0000
    if (facts->flags & TYPE_INLINE_VALUES)
        bytes += inline_values_bytes(object);
#endif
    return bytes;
}

/* ---- payloads ---------------------------------------------------------------------------- */

/* Call a C getter; whatever it raises is dropped. New reference or NULL. */
static PyObject *read_getset(PyObject *descriptor, PyObject *object) {
    PyGetSetDef *def = ((PyGetSetDescrObject *)descriptor)->d_getset;
    PyObject *found = def->get(object, def->closure);
    if (found == NULL)
        PyErr_Clear();
    return found;
}

static uint64_t read_size(PyObject *number) { /* steals */
    if (number == NULL) {
        PyErr_Clear();
        return 0;
    }
    long long value = PyLong_Check(number) ? PyLong_AsLongLong(number) : 0;
    Py_DECREF(number);
    if (value < 0) {
        PyErr_Clear();
        return 0;
    }
    return (uint64_t)value;
}

/* NumPy's public array struct; its layout is the same in NumPy 1 and 2. */
typedef struct {
    PyObject_HEAD
    char *data;
    int nd;
    Py_ssize_t *dimensions, *strides;
    PyObject *base;
    struct { PyObject_HEAD PyObject *typeobj; char kind, type, byteorder, former_flags; int type_num; } *descr;
    int flags;
} Array;

enum { ARRAY_CONTIGUOUS = 1 | 2, ARRAY_OWNS = 4, ARRAY_OF_OBJECTS = 17 };

static uint64_t array_bytes(Walk *w, PyObject *object) {
    if (!(((Array *)object)->flags & ARRAY_OWNS) || w->array_nbytes == NULL)
        return 0;
    return read_size(read_getset(w->array_nbytes, object));
}

static uint64_t image_bytes(PyObject *core) {
    PyObject *mode_of = getset_of(Py_TYPE(core), "mode"), *size_of = getset_of(Py_TYPE(core), "size");
    PyObject *mode = mode_of ? read_getset(mode_of, core) : NULL;
    PyObject *size = size_of ? read_getset(size_of, core) : NULL;
    uint64_t bytes = 0;
    if (mode && size && PyUnicode_Check(mode) && PyTuple_CheckExact(size) && PyTuple_GET_SIZE(size) == 2) {
        const char *name = PyUnicode_AsUTF8(mode);
        uint64_t pixel = 4;
        if (name && (!strcmp(name, "1") || !strcmp(name, "L") || !strcmp(name, "P")))
            pixel = 1;
        else if (name && !strncmp(name, "I;16", 4))
            pixel = 2;
        for (int i = 0; i < 2; i++) {
            PyObject *side = PyTuple_GET_ITEM(size, i);
            pixel *= PyLong_Check(side) ? (uint64_t)PyLong_AsLongLong(side) : 0;
        }
        bytes = pixel;
    }
    Py_XDECREF(mode);
    Py_XDECREF(size);
    PyErr_Clear();
    return bytes;
}

/* ---- nodes and edges --------------------------------------------------------------------- */

static int root_of_phase(int phase) {
    return phase == PHASE_NATIVE ? ROOT_NATIVE : phase == PHASE_GARBAGE ? ROOT_GARBAGE : ROOT_OTHER;
}

/* Append a node for a key that is not there yet; `slot` is where find_node said it belongs. */
static uint32_t add_node(Walk *w, uintptr_t key, size_t slot, uint32_t type, uint32_t parent,
                         int32_t root, uint8_t phase) {
    if (w->n_nodes == w->cap_nodes) {
        size_t capacity = w->cap_nodes ? w->cap_nodes * 2 : 4096;
        Node *nodes = resized(w, w->nodes, capacity * sizeof *nodes);
        if (nodes == NULL || capacity >= NONE) {
            w->failed = 1;
            return NONE;
        }
        w->nodes = nodes;
        w->cap_nodes = capacity;
    }
    uint32_t number = (uint32_t)w->n_nodes++;
    Node *node = &w->nodes[number];
    memset(node, 0, sizeof *node);
    node->key = key;
    node->type = type;
    node->parent = parent;
    node->root = root;
    node->phase = phase;
    node->mark = -1;
    w->slots[slot] = (mixed(key) << 32) | ((uint64_t)number + 1);
    if (w->n_nodes * 3 > w->n_slots * 2 && grow_slots(w, w->n_slots * 4) < 0)
        return NONE;
    return number;
}

static int may_take(Walk *w, const Node *node) {
    return (node->phase == PHASE_BARRIER && w->phase >= PHASE_LIBRARY) ||
           (node->phase == PHASE_UNREACHED && w->phase >= PHASE_NATIVE);
}

static int enqueue(Walk *w, uint32_t node, int rank) {
    Numbers *queues[] = {&w->order, &w->code, &w->late, &w->graph, &w->order};
    return push(w, queues[rank], node);
}

static int add_edge(Walk *w, uint32_t target) {
    if (target == w->last_edge)
        return 0;
    if (w->n_edges == w->cap_edges) {
        size_t capacity = w->cap_edges ? w->cap_edges * 2 : 8192;
        uint32_t *edges = resized(w, w->edges, capacity * 4);
        if (edges == NULL)
            return -1;
        w->edges = edges;
        w->cap_edges = capacity;
    }
    w->last_edge = target;
    w->edges[w->n_edges++] = target;
    w->nodes[w->current].n_edges++;
    return 0;
}

/* Follow the edge from the current node to an object; returns its node, NONE where it is cut. */
static uint32_t follow(Walk *w, PyObject *object, int *is_new) {
    size_t slot = 0;
    uint32_t target = find_node(w, (uintptr_t)object, &slot);
    *is_new = 0;
    if (target == NONE) {
        int cuts = w->phase == PHASE_USER || w->phase == PHASE_HIDDEN;
        if (cuts && !w->request.full && PyType_Check(object))
            return NONE;
        uint32_t type = type_number(w, Py_TYPE(object));
        if (type == NONE)
            return NONE;
        int rank = w->types[type].rank;
        if (rank == RANK_CUT && cuts) {
            if (w->phase == PHASE_USER && w->request.full)
                add_node(w, (uintptr_t)object, slot, type, NONE, ROOT_OTHER, PHASE_BARRIER);
            return NONE;
        }
        target = add_node(w, (uintptr_t)object, slot, type, w->current, w->nodes[w->current].root,
                            (uint8_t)w->phase);
        if (target == NONE || enqueue(w, target, rank) < 0)
            return NONE;
        *is_new = 1;
    } else if (w->nodes[target].phase != w->phase) {
        Node *node = &w->nodes[target];
        if (!may_take(w, node))
            return NONE;
        node->phase = (uint8_t)w->phase;
        node->parent = w->current;
        node->root = w->nodes[w->current].root;
        if (enqueue(w, target, w->types[node->type].rank) < 0)
            return NONE;
    }
    add_edge(w, target);
    return target;
}

static inline int is_nothing(PyObject *object) {
    return object == Py_None || object == Py_True || object == Py_False ||
           object == Py_Ellipsis || object == Py_NotImplemented;
}

static inline int is_atomic(PyTypeObject *type) {
    return type == &PyLong_Type || type == &PyFloat_Type || type == &PyUnicode_Type ||
           type == &PyBytes_Type || type == &PyComplex_Type;
}

/* Bytes of a small number or text that only its container refers to; 0 for any other object. It
 * needs no node: its container dominates it whatever else the heap looks like. */
static inline uint64_t folded_bytes(Walk *w, PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    if (Py_REFCNT(object) != 1 || !is_atomic(type))
        return 0;
    if (type == &PyFloat_Type)
        return sizeof(PyFloatObject);
    uint32_t number = type_number(w, type);
    if (number == NONE)
        return 0;
    uint64_t bytes = shallow_bytes(object, &w->types[number]);
    return bytes < FOLD_LIMIT ? bytes : 0;
}

static int visit(PyObject *object, void *argument) {
    Walk *w = argument;
    int is_new;
    if (is_nothing(object) || object == w->cut_globals || object == w->cut_builtins)
        return 0;
    uint64_t bytes = folded_bytes(w, object);
    if (bytes) {
        w->nodes[w->current].bytes += bytes;
        if (w->phase != PHASE_HIDDEN) {
            w->heap_bytes += bytes;
            w->folded++;
        }
        return 0;
    }
    follow(w, object, &is_new);
    return w->failed ? -1 : 0;
}

/* Follow an edge that an accessor told of; steals the reference, keeping it where it's news. */
static uint32_t follow_owned(Walk *w, PyObject *object) {
    int is_new = 0;
    uint32_t target = NONE;
    if (object == NULL)
        return NONE;
    if (!is_nothing(object))
        target = follow(w, object, &is_new);
    if (!is_new) {
        Py_DECREF(object);
        return target;
    }
    if (w->n_owned == w->cap_owned) {
        size_t capacity = w->cap_owned ? w->cap_owned * 2 : 256;
        PyObject **owned = resized(w, w->owned, capacity * 8);
        if (owned == NULL)
            return NONE; /* leaks one reference rather than freeing what a node points at */
        w->owned = owned;
        w->cap_owned = capacity;
    }
    w->owned[w->n_owned++] = object;
    return target;
}

static int is_named(PyObject *device, const char *name) {
    PyObject *text = PyObject_Str(device);
    int same = text && PyUnicode_Check(text) && PyUnicode_CompareWithASCIIString(text, name) == 0;
    Py_XDECREF(text);
    PyErr_Clear();
    return same;
}

/* Number of the device a storage lives on: 0 for the host, -1 for none (meta). */
static int device_number(Walk *w, PyObject *storage) {
    PyObject *device = read_getset(w->access.storage_device, storage);
    if (device == NULL)
        return -1;
    Py_hash_t hash = PyObject_Hash(device);
    for (uint32_t i = 0; i < w->n_seen; i++)
        if (w->seen[i].hash == hash) {
            Py_DECREF(device);
            return w->seen[i].number;
        }
    int number = is_named(device, "meta") ? -1 : is_named(device, "cpu") ? 0 : (int)w->n_devices;
    if (w->n_seen == MAX_DEVICES) {
        Py_DECREF(device);
        return -1;
    }
    w->seen[w->n_seen].hash = hash;
    w->seen[w->n_seen++].number = number;
    if (number > 0)
        w->device_objects[w->n_devices++] = device;
    else
        Py_DECREF(device);
    return number;
}

static void follow_storage(Walk *w, PyObject *tensor) {
    PyObject *storage = PyObject_CallOneArg(w->access.untyped_storage, tensor);
    if (storage == NULL) {
        PyErr_Clear();
        return;
    }
    uint64_t bytes = read_size(PyObject_CallOneArg(w->access.storage_nbytes, storage));
    uintptr_t key = (uintptr_t)read_size(read_getset(w->access.storage_key, storage)) | 1;
    size_t slot = 0;
    uint32_t target = bytes && key != 1 ? find_node(w, key, &slot) : NONE;
    if (bytes && key != 1 && target == NONE) {
        int device = device_number(w, storage);
        if (device >= 0) {
            target = add_node(w, key, slot, 0, w->current, w->nodes[w->current].root,
                              (uint8_t)w->phase);
            if (target != NONE) {
                w->nodes[target].bytes = bytes;
                w->nodes[target].device = (uint8_t)device;
                push(w, &w->order, target);
            }
        }
    }
    Py_DECREF(storage);
    if (target != NONE && w->nodes[target].phase == w->phase)
        add_edge(w, target);
}

static int is_true(PyObject *answer) { /* steals */
    int yes = answer == Py_True;
    Py_XDECREF(answer);
    return yes;
}

static void follow_tensor(Walk *w, PyObject *tensor, const TypeFacts *facts) {
    uint32_t node = w->current;
    if (facts->flags & TYPE_STORAGE)
        follow_storage(w, tensor);
    if (is_true(read_getset(w->access.is_leaf, tensor))) { /* of other tensors asking warns */
        uint32_t gradient = follow_owned(w, read_getset(w->access.grad, tensor));
        if (gradient != NONE)
            w->nodes[gradient].flags |= NODE_GRADIENT;
    }
    follow_owned(w, read_getset(w->access.base, tensor));
    PyObject *graph = read_getset(w->access.grad_fn, tensor);
    if (graph != NULL && graph != Py_None)
        w->nodes[node].flags |= NODE_KEEPS_GRAPH;
    follow_owned(w, graph);
}

static void follow_attribute(Walk *w, PyObject *saved, PyObject *name) {
    PyObject *value = PyObject_GetAttr(saved, name);
    if (value == NULL)
        PyErr_Clear();
    follow_owned(w, value);
}

/* What a saved variable holds as it is, and the unpack hook: it never runs, but under checkpointing
 * its closure keeps the inputs from which activations are recomputed. Steals. */
static void follow_saved(Walk *w, PyObject *saved) {
    if (saved != Py_None) {
        follow_attribute(w, saved, name_data);
        follow_attribute(w, saved, name_unpack);
    }
    Py_DECREF(saved);
}

static void follow_graph(Walk *w, PyObject *object, const TypeFacts *facts) {
    PyObject *next = read_getset(facts->next_functions, object);
    for (Py_ssize_t i = 0; next && PyTuple_CheckExact(next) && i < PyTuple_GET_SIZE(next); i++) {
        PyObject *pair = PyTuple_GET_ITEM(next, i);
        PyObject *node = PyTuple_CheckExact(pair) ? PyTuple_GET_ITEM(pair, 0) : Py_None;
        Py_INCREF(node);
        follow_owned(w, node);
    }
    Py_XDECREF(next);
    if (facts->variable != NULL)
        follow_owned(w, read_getset(facts->variable, object));
    for (uint32_t i = 0; i < facts->n_saved; i++) {
        PyObject *saved = read_getset(facts->saved[i], object); /* raises once it was freed */
        if (saved == NULL)
            continue;
        if (!PyTuple_CheckExact(saved)) {
            follow_saved(w, saved);
            continue;
        }
        for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(saved); k++) {
            PyObject *one = PyTuple_GET_ITEM(saved, k);
            Py_INCREF(one);
            follow_saved(w, one);
        }
        Py_DECREF(saved);
    }
}

static void traverse_array(PyObject *object, visitproc visitor, void *argument, uint64_t bytes) {
    Array *array = (Array *)object;
    if (array->base != NULL && visitor(array->base, argument) < 0)
        return;
    if (bytes == 0 || array->descr->type_num != ARRAY_OF_OBJECTS ||
        !(array->flags & ARRAY_CONTIGUOUS))
        return;
    PyObject **items = (PyObject **)array->data;
    for (uint64_t i = 0; i < bytes / sizeof *items; i++)
        if (items[i] != NULL && visitor(items[i], argument) < 0)
            return;
}

/* From what is the user's or ours, cut the way to namespaces; say whether to traverse at all. */
static int cut_namespaces(Walk *w, PyObject *object, const TypeFacts *facts) {
    w->cut_globals = w->cut_builtins = NULL;
    if (w->phase != PHASE_USER && w->phase != PHASE_HIDDEN)
        return 1;
    if (facts->flags & TYPE_FUNCTION) {
        w->cut_globals = ((PyFunctionObject *)object)->func_globals;
        w->cut_builtins = ((PyFunctionObject *)object)->func_builtins;
    } else if (facts->flags & TYPE_FRAME) {
#if PY_VERSION_HEX >= 0x030B0000
        PyObject *globals = PyFrame_GetGlobals((PyFrameObject *)object);
        PyObject *builtins = PyFrame_GetBuiltins((PyFrameObject *)object);
        w->cut_globals = globals;
        w->cut_builtins = builtins;
        Py_XDECREF(globals);
        Py_XDECREF(builtins);
#else
        PyFrameObject *frame = (PyFrameObject *)object;
        w->cut_globals = frame->f_globals;
        w->cut_builtins = frame->f_builtins;
        return frame->f_state != FRAME_EXECUTING; /* the locals of running frames are roots */
#endif
    }
    return 1;
}

/* Enter the node that is next in order: weigh it, inherit from its parent, follow its edges. */
static void enter(Walk *w, uint32_t number) {
    Node *node = &w->nodes[number];
    TypeFacts facts = w->types[node->type];
    w->current = number;
    w->last_edge = NONE;
    node->first_edge = w->n_edges;
    if (node->parent != NONE) {
        const Node *parent = &w->nodes[node->parent];
        node->depth = parent->depth < UINT16_MAX ? parent->depth + 1 : UINT16_MAX;
        node->mark = parent->mark;
        if ((parent->flags & NODE_BY_GRAPH) || w->types[parent->type].rank == RANK_GRAPH)
            node->flags |= NODE_BY_GRAPH;
    }
    if (facts.type == NULL)
        return;
    if (facts.mark >= 0)
        node->mark = facts.mark;
    PyObject *object = (PyObject *)node->key;
    uint64_t shallow = shallow_bytes(object, &facts), data = 0;
    if (facts.flags & TYPE_ARRAY)
        data = array_bytes(w, object);
    else if (facts.flags & TYPE_IMAGE)
        data = image_bytes(object);
    node->bytes += shallow + data;
    if (w->phase == PHASE_HIDDEN) {
        w->hidden_objects++;
    } else {
        w->heap_bytes += shallow;
        w->array_bytes += data;
        if (node->flags & NODE_BY_GRAPH)
            w->array_by_graph += data;
    }
    if (facts.rank == RANK_GRAPH) {
        if (w->graph_count >= (size_t)w->request.graph_budget) {
            w->graph_truncated = 1;
            return;
        }
        w->graph_count++;
    }
    if (facts.type->tp_traverse != NULL && cut_namespaces(w, object, &facts) &&
        PyObject_IS_GC(object))
        facts.type->tp_traverse(object, visit, w);
    w->cut_globals = w->cut_builtins = NULL;
    if (facts.flags & TYPE_TENSOR)
        follow_tensor(w, object, &facts);
    else if (facts.flags & TYPE_SAVED)
        Py_INCREF(object), follow_saved(w, object);
    else if (facts.rank == RANK_GRAPH)
        follow_graph(w, object, &facts);
    else if (facts.flags & TYPE_ARRAY)
        traverse_array(object, visit, w, data);
    if (w->phase == PHASE_HIDDEN)
        w->hidden_edges += w->nodes[number].n_edges;
}

/* Enter what waits; between two stages (`all` = 0) what is late and the graphs go on waiting. */
static void drain_queues(Walk *w, int all) {
    Numbers *queues[] = {&w->code, &w->late, &w->graph};
    int n = all ? 3 : 1;
    while (!w->failed) {
        if (w->order.head == w->order.count) {
            int i = 0;
            while (i < n && queues[i]->head == queues[i]->count)
                i++;
            if (i == n)
                return;
            push(w, &w->order, queues[i]->items[queues[i]->head++]);
        } else {
            enter(w, w->order.items[w->order.head++]);
        }
    }
}

static void drain(Walk *w) { drain_queues(w, 1); }

static void seed(Walk *w, PyObject *object, int32_t root) {
    size_t slot = 0;
    uint32_t number = find_node(w, (uintptr_t)object, &slot);
    if (number == NONE) {
        uint32_t type = type_number(w, Py_TYPE(object));
        if (type != NONE)
            number = add_node(w, (uintptr_t)object, slot, type, NONE, root, (uint8_t)w->phase);
        if (number == NONE)
            return;
    } else {
        Node *node = &w->nodes[number];
        if (node->phase != PHASE_BARRIER && !may_take(w, node))
            return;
        node->phase = (uint8_t)w->phase;
        node->root = root;
        node->parent = NONE;
    }
    push(w, &w->seeds, number);
    int late = w->types[w->nodes[number].type].rank == RANK_LATE;
    push(w, late ? &w->late : &w->order, number);
}

static void reserve(Walk *w, PyObject *object, uint8_t phase) {
    size_t slot = 0;
    if (w->failed || find_node(w, (uintptr_t)object, &slot) != NONE)
        return;
    uint32_t type = type_number(w, Py_TYPE(object));
    if (type != NONE)
        add_node(w, (uintptr_t)object, slot, type, NONE, root_of_phase(phase), phase);
}

/* ---- the phases -------------------------------------------------------------------------- */

static int begins_stage(const Request *r, Py_ssize_t root) {
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(r->stages); i++)
        if (PyLong_AsSsize_t(PyList_GET_ITEM(r->stages, i)) == root)
            return 1;
    return 0;
}

static void walk_user(Walk *w, PyObject *request) {
    Request *r = &w->request;
    w->phase = PHASE_USER;
    PyObject *ours[] = {request, r->roots, r->barriers, r->hidden};
    for (int i = 0; i < 4; i++)
        reserve(w, ours[i], PHASE_HIDDEN);
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(r->hidden); i++)
        reserve(w, PyList_GET_ITEM(r->hidden, i), PHASE_HIDDEN);
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(r->barriers); i++)
        reserve(w, PyList_GET_ITEM(r->barriers, i), PHASE_BARRIER);
    for (Py_ssize_t i = 0; i < r->library_from && !w->failed; i++) {
        if (begins_stage(r, i))
            drain_queues(w, 0);
        seed(w, PyList_GET_ITEM(r->roots, i), (int32_t)i);
    }
    drain(w);
}

/* Make every node that waits in a phase's colour a seed of that phase. */
static void seed_waiting(Walk *w, int waiting, int phase, size_t from) {
    w->phase = phase;
    size_t count = w->n_nodes;
    for (size_t i = from; i < count && !w->failed; i++)
        if (w->nodes[i].phase == waiting) {
            w->nodes[i].phase = (uint8_t)phase;
            w->nodes[i].root = root_of_phase(phase);
            push(w, &w->seeds, (uint32_t)i);
            push(w, &w->order, (uint32_t)i);
        }
    drain(w);
}

typedef struct {
    Walk *walk;
    int64_t *references;
    size_t base;
} Count;

static int uncount(PyObject *object, void *argument) {
    Count *c = argument;
    size_t slot = 0;
    uint32_t target = find_node(c->walk, (uintptr_t)object, &slot);
    if (target != NONE && target >= c->base)
        c->references[target - c->base]--;
    return 0;
}

static void uncount_owned(Count *c, PyObject *object) {
    if (object != NULL)
        uncount(object, c);
    Py_XDECREF(object);
}

static void uncount_payload(Count *c, PyObject *object, const TypeFacts *facts) {
    Walk *w = c->walk;
    if (facts->flags & TYPE_TENSOR) {
        if (is_true(read_getset(w->access.is_leaf, object)))
            uncount_owned(c, read_getset(w->access.grad, object));
        uncount_owned(c, read_getset(w->access.base, object));
        uncount_owned(c, read_getset(w->access.grad_fn, object));
    } else if (facts->flags & TYPE_ARRAY) {
        traverse_array(object, uncount, c, array_bytes(w, object));
    }
}

/* The collector's own reasoning: what has more references than the unreached hold is held by
 * somebody who can't be traversed. */
static void walk_unreached(Walk *w, PyObject *everything) {
    size_t base = w->n_nodes;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(everything); i++)
        reserve(w, PyList_GET_ITEM(everything, i), PHASE_UNREACHED);
    size_t count = w->n_nodes - base;
    Count c = {w, fresh(w, count, sizeof(int64_t)), base};
    if (c.references == NULL || w->failed)
        goto out;
    for (size_t i = 0; i < count; i++)
        c.references[i] = Py_REFCNT((PyObject *)w->nodes[base + i].key) - 1;
    for (size_t i = 0; i < count; i++) {
        PyObject *object = (PyObject *)w->nodes[base + i].key;
        TypeFacts *facts = &w->types[w->nodes[base + i].type];
        if (facts->type->tp_traverse != NULL && PyObject_IS_GC(object))
            facts->type->tp_traverse(object, uncount, &c);
        uncount_payload(&c, object, facts);
    }
    w->phase = PHASE_NATIVE;
    for (size_t i = 0; i < count && !w->failed; i++)
        if (c.references[i] > 0)
            seed(w, (PyObject *)w->nodes[base + i].key, ROOT_NATIVE);
    drain(w);
    w->phase = PHASE_GARBAGE;
    for (size_t i = 0; i < count && !w->failed; i++) {
        seed(w, (PyObject *)w->nodes[base + i].key, ROOT_GARBAGE);
        drain(w);
    }
out:
    drop(w, c.references);
}

static void walk_rest(Walk *w, PyObject *everything) {
    Request *r = &w->request;
    w->phase = PHASE_LIBRARY;
    for (Py_ssize_t i = r->library_from; i < PyList_GET_SIZE(r->roots) && !w->failed; i++)
        seed(w, PyList_GET_ITEM(r->roots, i), (int32_t)i);
    drain(w);
    seed_waiting(w, PHASE_BARRIER, PHASE_OTHER, 0);
    seed_waiting(w, PHASE_HIDDEN, PHASE_HIDDEN, 0);
    walk_unreached(w, everything);
}

/* ---- dominators: semi-NCA ---------------------------------------------------------------- */

typedef struct {
    uint32_t count;      /* nodes in depth-first order, the virtual root first */
    uint32_t *number;    /* node -> position in that order; 0 where it was not reached */
    uint32_t *node;      /* position -> node */
    uint32_t *dominator; /* position -> position */
    uint64_t *host;      /* retained, by position */
    uint64_t *device[MAX_DEVICES];
    uint64_t *reached[MAX_DEVICES]; /* by node: its own bytes and those named through it */
    uint32_t *graph_nodes;
    size_t n_nodes;
} Tree;

static uint32_t depth_first(Walk *w, Tree *t, uint32_t *parent, uint32_t *cursor) {
    uint32_t count = 1, at = 0;
    t->node[0] = NONE;
    parent[0] = 0;
    for (;;) {
        const uint32_t *targets;
        uint32_t n;
        if (at == 0) {
            targets = w->seeds.items;
            n = (uint32_t)w->seeds.count;
        } else {
            const Node *node = &w->nodes[t->node[at]];
            targets = w->edges + node->first_edge;
            n = node->n_edges;
        }
        uint32_t i = cursor[at];
        while (i < n && t->number[targets[i]])
            i++;
        if (i < n) {
            uint32_t target = targets[i];
            cursor[at] = i + 1;
            t->number[target] = count;
            t->node[count] = target;
            parent[count] = at;
            at = count++;
        } else if (at == 0) {
            return count;
        } else {
            cursor[at] = n;
            at = parent[at];
        }
    }
}

static inline uint32_t evaluate(uint32_t v, uint32_t last, uint32_t *ancestor, uint32_t *label,
                                uint32_t *path) {
    if (v <= last)
        return label[v];
    size_t n = 0;
    uint32_t u = v;
    while (ancestor[u] > last) {
        path[n++] = u;
        u = ancestor[u];
    }
    while (n-- > 0) {
        u = path[n];
        uint32_t above = ancestor[u];
        if (label[above] < label[u])
            label[u] = label[above];
        ancestor[u] = ancestor[above];
    }
    return label[v];
}

static int find_dominators(Walk *w, Tree *t) {
    size_t n = t->n_nodes = w->n_nodes;
    size_t size = n + 1;
    int result = -1;
    uint32_t *parent = fresh(w, size, 4), *cursor = fresh(w, size, 4), *label = NULL,
             *first = NULL, *before = NULL;
    t->number = fresh(w, size, 4);
    t->node = fresh(w, size, 4);
    if (!parent || !cursor || !t->number || !t->node)
        goto out;
    uint32_t count = t->count = depth_first(w, t, parent, cursor);
    uint32_t *path = cursor; /* done with */
    label = fresh(w, count, 4);
    first = fresh(w, (size_t)count + 1, sizeof *first);
    before = fresh(w, w->n_edges + w->seeds.count, 4);
    t->dominator = fresh(w, count, 4);
    if (!label || !first || !before || !t->dominator || w->n_edges + w->seeds.count >= NONE)
        goto out;
    for (size_t e = 0; e < w->n_edges; e++)
        first[t->number[w->edges[e]]]++;
    for (size_t e = 0; e < w->seeds.count; e++)
        first[t->number[w->seeds.items[e]]]++;
    for (uint32_t i = 1; i <= count; i++)
        first[i] += first[i - 1];
    for (uint32_t i = 1; i < count; i++) {
        const Node *node = &w->nodes[t->node[i]];
        for (uint32_t e = 0; e < node->n_edges; e++)
            before[--first[t->number[w->edges[node->first_edge + e]]]] = i;
    }
    for (size_t e = 0; e < w->seeds.count; e++)
        before[--first[t->number[w->seeds.items[e]]]] = 0;
    memcpy(t->dominator, parent, count * 4);
    for (uint32_t i = 0; i < count; i++)
        label[i] = i;
    /* After its own turn a node's label is its semidominator, until an evaluation lowers it to the
     * least on its path; the climb below needs the semidominator, so it is kept apart. */
    uint32_t *semi = t->number; /* reused below by position; node -> position is rebuilt after */
    memset(semi, 0, size * 4);
    for (uint32_t v = count - 1; v > 0; v--) {
        uint32_t best = v;
        for (uint32_t e = first[v]; e < first[v + 1]; e++) {
            uint32_t found = evaluate(before[e], v, parent, label, path);
            if (found < best)
                best = found;
        }
        semi[v] = label[v] = best;
    }
    for (uint32_t v = 1; v < count; v++) {
        uint32_t above = t->dominator[v];
        while (above > semi[v])
            above = t->dominator[above];
        t->dominator[v] = above;
    }
    memset(t->number, 0, size * 4);
    for (uint32_t v = 1; v < count; v++)
        t->number[t->node[v]] = v;
    result = 0;
out:
    drop(w, parent);
    drop(w, cursor);
    drop(w, label);
    drop(w, first);
    drop(w, before);
    return result;
}

static int sum_retained(Walk *w, Tree *t) {
    t->host = fresh(w, t->count, 8);
    t->graph_nodes = fresh(w, t->count, 4);
    if (!t->host || !t->graph_nodes)
        return -1;
    for (uint32_t d = 1; d < w->n_devices; d++)
        if ((t->device[d] = fresh(w, t->count, 8)) == NULL)
            return -1;
    for (uint32_t v = t->count - 1; v > 0; v--) {
        const Node *node = &w->nodes[t->node[v]];
        uint32_t above = t->dominator[v];
        if (node->device == 0)
            t->host[v] += node->bytes;
        else
            t->device[node->device][v] += node->bytes;
        t->graph_nodes[v] += w->types[node->type].rank == RANK_GRAPH;
        t->host[above] += t->host[v];
        t->graph_nodes[above] += t->graph_nodes[v];
        for (uint32_t d = 1; d < w->n_devices; d++)
            t->device[d][above] += t->device[d][v];
    }
    return 0;
}

static int sum_reached(Walk *w, Tree *t) {
    for (uint32_t d = 0; d < w->n_devices; d++) {
        uint64_t *sums = t->reached[d] = fresh(w, w->n_nodes, 8);
        if (sums == NULL)
            return -1;
        for (size_t i = w->order.count; i-- > 0;) {
            uint32_t number = w->order.items[i];
            const Node *node = &w->nodes[number];
            if (node->device == d)
                sums[number] += node->bytes;
            if (node->parent != NONE)
                sums[node->parent] += sums[number];
        }
    }
    return 0;
}

static uint64_t total_of(const Walk *w, const Tree *t, uint32_t v) {
    uint64_t total = t->host[v];
    for (uint32_t d = 1; d < w->n_devices; d++)
        total += t->device[d][v];
    return total;
}

/* By what a node is selected: under user roots also by what is named through it. */
static uint64_t worth_of(const Walk *w, const Tree *t, uint32_t number) {
    if (w->nodes[number].phase != PHASE_USER)
        return total_of(w, t, t->number[number]);
    uint64_t total = 0;
    for (uint32_t d = 0; d < w->n_devices; d++)
        total += t->reached[d][number];
    return total;
}

/* ---- the answer -------------------------------------------------------------------------- */

typedef struct {
    uint64_t total;
    uint32_t node;
    uint16_t depth;
    uint8_t foreign;
} Candidate;

static int heavier(const void *left, const void *right) {
    const Candidate *a = left, *b = right;
    if (a->foreign != b->foreign)
        return a->foreign - b->foreign;
    if (a->total != b->total)
        return a->total < b->total ? 1 : -1;
    if (a->depth != b->depth)
        return a->depth - b->depth;
    return a->node < b->node ? -1 : a->node > b->node;
}

typedef struct {
    uint32_t type;
    uint64_t count, bytes;
    PyObject *samples[MAX_SAMPLES];
    uint32_t n_samples;
} Kind;

typedef struct {
    Kind *items;
    uint32_t count;
} Kinds;

typedef struct {
    Candidate *chosen;
    size_t n_chosen;
    uint32_t *named; /* the chosen and their ancestors, parents first */
    size_t n_named;
    uint32_t *place; /* node -> place in named, plus one; the top bit marks the chosen */
    Kinds *kinds;    /* by place */
} Choice;

#define CHOSEN 0x80000000u
#define PLACE(x) (((x) & ~CHOSEN) - 1)

static int may_name(const Walk *w, const Node *node) {
    const TypeFacts *facts = &w->types[node->type];
    return facts->type != NULL && facts->rank != RANK_GRAPH && !(node->flags & NODE_BY_GRAPH) &&
           node->phase != PHASE_HIDDEN && node->depth <= w->request.max_depth;
}

static const Walk *sorting; /* qsort has no argument for it; the GIL is held */

static int shallower(const void *left, const void *right) {
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    int difference = sorting->nodes[a].depth - sorting->nodes[b].depth;
    return difference ? difference : a < b ? -1 : a > b;
}

static int choose(Walk *w, const Tree *t, Choice *c) {
    size_t capacity = 0, count = 0;
    Candidate *found = NULL;
    for (size_t i = 0; i < w->order.count; i++) {
        uint32_t number = w->order.items[i];
        const Node *node = &w->nodes[number];
        uint64_t total = worth_of(w, t, number);
        if (total < w->request.cutoff || !may_name(w, node))
            continue;
        if (count == capacity) {
            size_t grown = capacity ? capacity * 2 : 1024;
            Candidate *more = resized(w, found, grown * sizeof *more);
            if (more == NULL)
                break;
            found = more;
            capacity = grown;
        }
        found[count++] = (Candidate){total, number, node->depth, node->phase != PHASE_USER};
    }
    if (count)
        qsort(found, count, sizeof *found, heavier);
    if (count > (size_t)w->request.max_selected)
        count = (size_t)w->request.max_selected;
    c->chosen = found;
    c->n_chosen = count;
    c->place = fresh(w, w->n_nodes, 4);
    if (w->failed)
        return -1;
    Numbers named = {0};
    for (size_t i = 0; i < count; i++)
        for (uint32_t n = found[i].node; n != NONE && !c->place[n]; n = w->nodes[n].parent) {
            c->place[n] = 1;
            push(w, &named, n);
        }
    c->named = named.items;
    c->n_named = named.count;
    if (w->failed)
        return -1;
    sorting = w;
    if (c->n_named)
        qsort(c->named, c->n_named, 4, shallower);
    sorting = NULL;
    for (size_t i = 0; i < c->n_named; i++)
        c->place[c->named[i]] = (uint32_t)i + 1;
    for (size_t i = 0; i < count; i++)
        c->place[found[i].node] |= CHOSEN;
    return 0;
}

static void add_kind(Walk *w, Kinds *kinds, uint32_t type, uint64_t bytes, PyObject *sample) {
    uint32_t i = 0;
    while (i < kinds->count && kinds->items[i].type != type)
        i++;
    if (i == kinds->count) {
        if (i == MAX_GROUPS)
            return;
        if (kinds->items == NULL || (i >= 4 && (i & (i - 1)) == 0)) {
            uint32_t capacity = i ? i * 2 : 4;
            Kind *items = realloc(kinds->items, capacity * sizeof *items);
            if (items == NULL)
                return;
            kinds->items = items;
        }
        kinds->items[kinds->count++] = (Kind){.type = type};
    }
    Kind *kind = &kinds->items[i];
    kind->count++;
    kind->bytes += bytes;
    if (kind->n_samples < (uint32_t)w->request.max_samples)
        kind->samples[kind->n_samples++] = sample;
}

typedef struct {
    Walk *walk;
    Kinds *kinds;
} Holding;

static int add_folded(PyObject *object, void *argument) {
    Holding *h = argument;
    uint64_t bytes = is_nothing(object) ? 0 : folded_bytes(h->walk, object);
    if (bytes)
        add_kind(h->walk, h->kinds, type_number(h->walk, Py_TYPE(object)), bytes, object);
    return 0;
}

/* Group what each chosen node alone keeps alive, one step down the dominator tree. Everything is
 * borrowed still, so that reference counts tell what was folded. */
static int group_children(Walk *w, const Tree *t, Choice *c) {
    c->kinds = fresh(w, c->n_named, sizeof *c->kinds);
    if (c->kinds == NULL)
        return -1;
    for (size_t i = 0; i < w->order.count; i++) {
        uint32_t number = w->order.items[i];
        const Node *node = &w->nodes[number];
        uint32_t v = t->number[number], above = t->node[t->dominator[v]];
        const TypeFacts *facts = &w->types[node->type];
        if (above == NONE || !(c->place[above] & CHOSEN) || facts->type == NULL ||
            facts->rank == RANK_GRAPH)
            continue;
        add_kind(w, &c->kinds[PLACE(c->place[above])], node->type, total_of(w, t, v),
                 (PyObject *)node->key);
    }
    for (size_t i = 0; i < c->n_chosen; i++) {
        const Node *node = &w->nodes[c->chosen[i].node];
        PyObject *object = (PyObject *)node->key;
        TypeFacts facts = w->types[node->type];
        Holding h = {w, &c->kinds[PLACE(c->place[c->chosen[i].node])]};
        if (facts.type->tp_traverse != NULL && PyObject_IS_GC(object))
            facts.type->tp_traverse(object, add_folded, &h);
        if (facts.flags & TYPE_ARRAY)
            traverse_array(object, add_folded, &h, array_bytes(w, object));
    }
    return 0;
}

static const char *short_name(const Walk *w, const Kind *kind) {
    const char *name = w->types[kind->type].type->tp_name, *dot = strrchr(name, '.');
    return dot ? dot + 1 : name;
}

static int weightier(const void *left, const void *right) {
    const Kind *a = left, *b = right;
    if (a->bytes != b->bytes)
        return a->bytes < b->bytes ? 1 : -1;
    if (a->count != b->count)
        return a->count < b->count ? 1 : -1;
    return strcmp(short_name(sorting, a), short_name(sorting, b));
}

static PyObject *groups_as_list(Walk *w, Kinds *kinds) {
    sorting = w;
    if (kinds->count)
        qsort(kinds->items, kinds->count, sizeof *kinds->items, weightier);
    sorting = NULL;
    Py_ssize_t n = (Py_ssize_t)kinds->count;
    n = n < w->request.max_groups ? n : w->request.max_groups;
    PyObject *list = PyList_New(n);
    for (Py_ssize_t i = 0; list && i < n; i++) {
        Kind *kind = &kinds->items[i];
        PyObject *samples = PyList_New(kind->n_samples);
        for (uint32_t s = 0; samples && s < kind->n_samples; s++) {
            Py_INCREF(kind->samples[s]);
            PyList_SET_ITEM(samples, s, kind->samples[s]);
        }
        PyObject *group = samples ? Py_BuildValue("(OKKN)", w->types[kind->type].type,
                                                  kind->count, kind->bytes, samples) : NULL;
        if (group == NULL)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, i, group);
    }
    return list;
}

static PyObject *device_name(Walk *w, uint32_t device) {
    return device ? PyObject_Str(w->device_objects[device]) : PyUnicode_FromString("host");
}

static PyObject *bytes_by_device(Walk *w, const uint64_t *bytes, int with_host) {
    PyObject *dict = PyDict_New();
    for (uint32_t d = with_host ? 0 : 1; dict && d < w->n_devices; d++) {
        if (d && !bytes[d])
            continue;
        PyObject *name = device_name(w, d), *value = PyLong_FromUnsignedLongLong(bytes[d]);
        if (name == NULL || value == NULL || PyDict_SetItem(dict, name, value) < 0)
            Py_CLEAR(dict);
        Py_XDECREF(name);
        Py_XDECREF(value);
    }
    return dict;
}

static uint32_t chosen_above(const Tree *t, const Choice *c, uint32_t v) {
    for (v = t->dominator[v]; v; v = t->dominator[v])
        if (c->place[t->node[v]] & CHOSEN)
            return PLACE(c->place[t->node[v]]);
    return NONE;
}

static PyObject *number_or_none(uint32_t place) {
    return PyLong_FromLongLong(place == NONE ? -1 : (long long)place);
}

static uint64_t weigh_again(Walk *w, const Node *node) {
    PyObject *object = (PyObject *)node->key;
    const TypeFacts *facts = &w->types[node->type];
    uint64_t data = facts->flags & TYPE_ARRAY ? array_bytes(w, object)
                    : facts->flags & TYPE_IMAGE ? image_bytes(object) : 0;
    return shallow_bytes(object, facts) + data;
}

enum { N_COLUMNS = 12 };
static const char *const column_names[N_COLUMNS] = {
    "objects", "parent", "root", "dominator", "selected", "shallow_bytes", "host_bytes",
    "device_bytes", "reached_bytes", "graph_nodes", "keeps_graph", "holds"};

static int fill_row(Walk *w, Tree *t, Choice *c, size_t row, PyObject **columns) {
    uint32_t number = c->named[row];
    const Node *node = &w->nodes[number];
    uint32_t v = t->number[number];
    uint64_t devices[MAX_DEVICES] = {0};
    for (uint32_t d = 1; d < w->n_devices; d++)
        devices[d] = t->device[d][v];
    uint64_t reached[MAX_DEVICES] = {0};
    for (uint32_t d = 0; d < w->n_devices; d++)
        reached[d] = t->reached[d][number];
    uint32_t parent = node->parent == NONE ? NONE : PLACE(c->place[node->parent]);
    PyObject *values[N_COLUMNS] = {
        NULL,
        number_or_none(parent),
        PyLong_FromLong(node->root),
        number_or_none(chosen_above(t, c, v)),
        PyBool_FromLong((c->place[number] & CHOSEN) != 0),
        PyLong_FromUnsignedLongLong(weigh_again(w, node)),
        PyLong_FromUnsignedLongLong(t->host[v]),
        bytes_by_device(w, devices, 0),
        bytes_by_device(w, reached, 1),
        PyLong_FromUnsignedLong(t->graph_nodes[v]),
        PyBool_FromLong((node->flags & NODE_KEEPS_GRAPH) != 0),
        groups_as_list(w, &c->kinds[row]),
    };
    Py_INCREF((PyObject *)node->key);
    values[0] = (PyObject *)node->key;
    int complete = 1;
    for (int i = 0; i < N_COLUMNS; i++) {
        if (values[i] == NULL) {
            complete = 0;
            Py_INCREF(Py_None);
            values[i] = Py_None;
        }
        PyList_SET_ITEM(columns[i], (Py_ssize_t)row, values[i]);
    }
    return complete ? 0 : -1;
}

static PyObject *nodes_as_dict(Walk *w, Tree *t, Choice *c) {
    PyObject *columns[N_COLUMNS] = {NULL}, *dict = PyDict_New();
    for (int i = 0; dict && i < N_COLUMNS; i++) {
        columns[i] = PyList_New((Py_ssize_t)c->n_named);
        if (columns[i] == NULL || PyDict_SetItemString(dict, column_names[i], columns[i]) < 0)
            Py_CLEAR(dict);
        Py_XDECREF(columns[i]);
    }
    for (size_t row = 0; dict && row < c->n_named; row++)
        if (fill_row(w, t, c, row, columns) < 0) {
            Py_CLEAR(dict);
        }
    return dict;
}

enum { N_TENSOR_COLUMNS = 7 };
static const char *const tensor_names[N_TENSOR_COLUMNS] = {
    "storage", "nbytes", "device", "holder", "root", "mark", "flags"};

static void fill_tensor(Walk *w, uint32_t number, int64_t holder, int64_t *row[]) {
    const Node *node = &w->nodes[number], *data = NULL;
    const TypeFacts *facts = &w->types[node->type];
    int64_t storage = -1;
    for (uint32_t e = 0; e < node->n_edges && !data; e++) {
        uint32_t target = w->edges[node->first_edge + e];
        if (w->nodes[target].type == 0) {
            data = &w->nodes[target];
            storage = target;
        }
    }
    *row[0] = storage;
    *row[1] = data ? (int64_t)data->bytes : 0;
    *row[2] = data ? data->device : 0;
    *row[3] = holder;
    *row[4] = node->root;
    *row[5] = node->mark;
    *row[6] = (facts->flags & TYPE_PARAMETER ? 1 : 0) | (node->flags & NODE_GRADIENT ? 2 : 0) |
              (node->flags & NODE_KEEPS_GRAPH ? 4 : 0) | (node->flags & NODE_BY_GRAPH ? 8 : 0);
}

static PyObject *tensors_as_dict(Walk *w, Choice *c) {
    size_t n = 0, at = 0;
    uint32_t *holder = fresh(w, w->n_nodes, 4); /* place of the nearest chosen, plus one */
    PyObject *dict = PyDict_New(), *columns[N_TENSOR_COLUMNS] = {NULL};
    for (size_t i = 0; i < w->order.count; i++) {
        const Node *node = &w->nodes[w->order.items[i]];
        n += (w->types[node->type].flags & TYPE_TENSOR) && node->phase != PHASE_HIDDEN;
    }
    for (int i = 0; dict && i < N_TENSOR_COLUMNS; i++) {
        columns[i] = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)n * 8);
        if (columns[i] == NULL || PyDict_SetItemString(dict, tensor_names[i], columns[i]) < 0)
            Py_CLEAR(dict);
        Py_XDECREF(columns[i]);
    }
    for (size_t i = 0; dict && holder && i < w->order.count; i++) {
        uint32_t number = w->order.items[i];
        const Node *node = &w->nodes[number];
        uint32_t place = c->place[number];
        holder[number] = place & CHOSEN ? (place & ~CHOSEN)
                         : node->parent == NONE ? 0 : holder[node->parent];
        if (!(w->types[node->type].flags & TYPE_TENSOR) || node->phase == PHASE_HIDDEN)
            continue;
        int64_t *row[N_TENSOR_COLUMNS];
        for (int k = 0; k < N_TENSOR_COLUMNS; k++)
            row[k] = (int64_t *)PyBytes_AS_STRING(columns[k]) + at;
        fill_tensor(w, number, (int64_t)holder[number] - 1, row);
        at++;
    }
    drop(w, holder);
    return dict;
}

typedef struct {
    uint64_t payload[MAX_DEVICES], by_graph[MAX_DEVICES], garbage, native, hidden, objects;
} Totals;

static void sum_up(Walk *w, Totals *totals) {
    totals->payload[0] = w->array_bytes;
    totals->by_graph[0] = w->array_by_graph;
    totals->objects = w->folded;
    for (size_t i = 0; i < w->order.count; i++) {
        const Node *node = &w->nodes[w->order.items[i]];
        int is_storage = w->types[node->type].type == NULL;
        if (node->device == 0) {
            totals->garbage += node->phase == PHASE_GARBAGE ? node->bytes : 0;
            totals->native += node->phase == PHASE_NATIVE ? node->bytes : 0;
            totals->hidden += node->phase == PHASE_HIDDEN ? node->bytes : 0;
        }
        if (node->phase == PHASE_HIDDEN)
            continue;
        totals->objects += !is_storage;
        if (is_storage) {
            totals->payload[node->device] += node->bytes;
            if (node->flags & NODE_BY_GRAPH)
                totals->by_graph[node->device] += node->bytes;
        }
    }
}

static PyObject *devices_as_list(Walk *w) {
    PyObject *list = PyList_New(w->n_devices);
    for (uint32_t d = 0; list && d < w->n_devices; d++) {
        PyObject *name = device_name(w, d);
        if (name == NULL)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, d, name);
    }
    return list;
}

static PyObject *optional(int known, uint64_t value) {
    if (known)
        return PyLong_FromUnsignedLongLong(value);
    Py_RETURN_NONE;
}

static PyObject *build_answer(Walk *w, Tree *t, Choice *c) {
    Totals totals = {0};
    sum_up(w, &totals);
    int full = w->request.full;
    PyObject *nodes = nodes_as_dict(w, t, c);
    PyObject *tensors = nodes ? tensors_as_dict(w, c) : NULL;
    if (tensors == NULL) {
        Py_XDECREF(nodes);
        return NULL;
    }
    return Py_BuildValue(
        "{sNsNsNsKsKsKsNsNsKsNsNsNsKsK}", "nodes", nodes, "tensors", tensors, "devices",
        devices_as_list(w), "objects", totals.objects, "edges",
        (uint64_t)(w->n_edges - w->hidden_edges), "heap_bytes", w->heap_bytes, "payload_bytes",
        bytes_by_device(w, totals.payload, 1), "graph_bytes",
        bytes_by_device(w, totals.by_graph, 1), "graph_nodes", (uint64_t)w->graph_count,
        "graph_truncated", PyBool_FromLong(w->graph_truncated), "garbage_bytes",
        optional(full, totals.garbage), "native_bytes", optional(full, totals.native),
        "hidden_bytes", full ? totals.hidden : (uint64_t)0, "scratch_bytes", (uint64_t)w->peak);
}

/* ---- asking and letting go --------------------------------------------------------------- */

static int take_number(PyObject *request, const char *name, Py_ssize_t *value) {
    PyObject *found = PyObject_GetAttrString(request, name);
    if (found == NULL)
        return -1;
    *value = PyLong_AsSsize_t(found);
    Py_DECREF(found);
    return *value == -1 && PyErr_Occurred() ? -1 : 0;
}

static PyObject *take_object(PyObject *request, const char *name, PyTypeObject *type) {
    PyObject *found = PyObject_GetAttrString(request, name);
    if (found == NULL)
        return NULL;
    if (!PyObject_TypeCheck(found, type)) {
        PyErr_Format(PyExc_TypeError, "%s must be a %s", name, type->tp_name);
        Py_CLEAR(found);
    }
    return found;
}

static int read_request(Request *r, PyObject *request) {
    Py_ssize_t cutoff, full;
    if (!(r->roots = take_object(request, "roots", &PyList_Type)) ||
        !(r->barriers = take_object(request, "barriers", &PyList_Type)) ||
        !(r->hidden = take_object(request, "hidden", &PyList_Type)) ||
        !(r->marked = take_object(request, "marked_types", &PyTuple_Type)) ||
        !(r->late = take_object(request, "late_types", &PyTuple_Type)) ||
        !(r->stages = take_object(request, "stages", &PyList_Type)))
        return -1;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(r->late); i++)
        if (!PyType_Check(PyTuple_GET_ITEM(r->late, i))) {
            PyErr_SetString(PyExc_TypeError, "late_types must be classes");
            return -1;
        }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(r->marked); i++)
        if (!PyType_Check(PyTuple_GET_ITEM(r->marked, i))) {
            PyErr_SetString(PyExc_TypeError, "marked_types must be classes");
            return -1;
        }
    if (take_number(request, "cutoff_bytes", &cutoff) < 0 ||
        take_number(request, "full", &full) < 0 ||
        take_number(request, "max_selected", &r->max_selected) < 0 ||
        take_number(request, "max_depth", &r->max_depth) < 0 ||
        take_number(request, "graph_budget", &r->graph_budget) < 0 ||
        take_number(request, "max_groups", &r->max_groups) < 0 ||
        take_number(request, "max_samples", &r->max_samples) < 0)
        return -1;
    r->cutoff = cutoff > 0 ? (uint64_t)cutoff : 0;
    r->full = full != 0;
    r->library_from = PyList_GET_SIZE(r->roots);
    if (r->max_samples > MAX_SAMPLES)
        r->max_samples = MAX_SAMPLES;
    PyObject *from = PyObject_GetAttrString(request, "library_from");
    if (from == NULL)
        return -1;
    if (from != Py_None) {
        Py_ssize_t index = PyLong_AsSsize_t(from);
        if (index >= 0 && index < r->library_from)
            r->library_from = index;
    }
    Py_DECREF(from);
    return PyErr_Occurred() ? -1 : 0;
}

static int read_access(Walk *w, PyObject *access) {
    if (access == Py_None)
        return 0;
    size_t count = sizeof(Access) / sizeof(PyObject *);
    if (!PyTuple_Check(access) || PyTuple_GET_SIZE(access) < (Py_ssize_t)count) {
        PyErr_SetString(PyExc_TypeError, "access must be a TensorAccess");
        return -1;
    }
    memcpy(&w->access, ((PyTupleObject *)access)->ob_item, sizeof(Access));
    PyObject *getters[] = {w->access.grad, w->access.grad_fn, w->access.base, w->access.is_leaf,
                           w->access.storage_key, w->access.storage_device};
    for (size_t i = 0; i < sizeof getters / sizeof *getters; i++)
        if (!Py_IS_TYPE(getters[i], &PyGetSetDescr_Type))
            return 0; /* a torch made otherwise: its tensors stay opaque */
    w->has_torch = PyType_Check(w->access.tensor) && PyType_Check(w->access.parameter);
    return 0;
}

static void release(Walk *w, Tree *t, Choice *c) {
    for (size_t i = 0; c->kinds && i < c->n_named; i++)
        free(c->kinds[i].items);
    drop(w, c->kinds);
    drop(w, c->chosen);
    drop(w, c->named);
    drop(w, c->place);
    drop(w, t->number);
    drop(w, t->node);
    drop(w, t->dominator);
    drop(w, t->host);
    drop(w, t->graph_nodes);
    for (uint32_t d = 1; d < MAX_DEVICES; d++)
        drop(w, t->device[d]);
    for (uint32_t d = 0; d < MAX_DEVICES; d++)
        drop(w, t->reached[d]);
    for (uint32_t i = 0; i < w->n_types; i++)
        drop(w, w->types[i].saved);
    drop(w, w->types);
    drop(w, w->type_slots);
    drop(w, w->nodes);
    drop(w, w->slots);
    drop(w, w->edges);
    drop(w, w->order.items);
    drop(w, w->code.items);
    drop(w, w->late.items);
    drop(w, w->graph.items);
    drop(w, w->seeds.items);
}

static void let_go(Walk *w) {
    for (size_t i = 0; i < w->n_owned; i++)
        Py_DECREF(w->owned[i]);
    drop(w, w->owned);
    for (uint32_t d = 0; d < w->n_devices; d++)
        Py_XDECREF(w->device_objects[d]);
    Py_XDECREF(w->request.roots);
    Py_XDECREF(w->request.barriers);
    Py_XDECREF(w->request.hidden);
    Py_XDECREF(w->request.marked);
    Py_XDECREF(w->request.late);
    Py_XDECREF(w->request.stages);
}

static PyObject *list_everything(void) {
    PyObject *gc = PyImport_ImportModule("gc");
    PyObject *list = gc ? PyObject_CallMethod(gc, "get_objects", NULL) : NULL;
    Py_XDECREF(gc);
    if (list != NULL && !PyList_CheckExact(list))
        Py_CLEAR(list);
    return list;
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Walk with the collector off; returns the answer's dict or NULL. */
static PyObject *walk_heap(Walk *w, PyObject *request, PyObject *everything) {
    Tree tree = {0};
    Choice choice = {0};
    PyObject *answer = NULL;
    if (grow_slots(w, everything ? (size_t)1 << 20 : (size_t)1 << 14) < 0 ||
        add_type(w, NULL) == NONE)
        goto out;
    w->n_devices = 1;
    walk_user(w, request);
    if (everything != NULL && !w->failed)
        walk_rest(w, everything);
    drop(w, w->slots);
    w->slots = NULL;
    if (w->failed || find_dominators(w, &tree) < 0 || sum_retained(w, &tree) < 0 ||
        sum_reached(w, &tree) < 0 || choose(w, &tree, &choice) < 0 ||
        group_children(w, &tree, &choice) < 0)
        goto out;
    answer = build_answer(w, &tree, &choice);
out:
    release(w, &tree, &choice);
    if (answer == NULL && !PyErr_Occurred())
        PyErr_NoMemory();
    return answer;
}

PyDoc_STRVAR(walk_doc, "walk(request, access, array_type)\n--\n\n"
                       "Walk the heap as asked and return the columns of a WalkResult.");

static PyObject *native_walk(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *request, *access, *array_type;
    if (!PyArg_ParseTuple(args, "OOO", &request, &access, &array_type))
        return NULL;
    Walk walk = {0};
    double began = seconds();
    PyObject *answer = NULL, *everything = NULL;
    int collecting = PyGC_IsEnabled();
    if (read_request(&walk.request, request) < 0 || read_access(&walk, access) < 0)
        goto out;
    if (PyType_Check(array_type)) {
        walk.ndarray = array_type;
        walk.array_nbytes = getset_of((PyTypeObject *)array_type, "nbytes");
    }
    PyGC_Disable();
    if (!walk.request.full || (everything = list_everything()) != NULL)
        answer = walk_heap(&walk, request, everything);
    if (collecting)
        PyGC_Enable();
out:
    let_go(&walk);
    Py_XDECREF(everything);
    if (answer != NULL) {
        PyObject *pause = PyFloat_FromDouble(seconds() - began);
        if (pause == NULL || PyDict_SetItemString(answer, "pause_s", pause) < 0)
            Py_CLEAR(answer);
        Py_XDECREF(pause);
    }
    return answer;
}

/* ---- locals of running frames ------------------------------------------------------------ */

#if PY_VERSION_HEX < 0x030D0000

static int add_local(PyObject *list, PyObject *name, PyObject *value) {
    if (value == NULL)
        return 0;
    PyObject *pair = PyTuple_Pack(2, name, value);
    int result = pair ? PyList_Append(list, pair) : -1;
    Py_XDECREF(pair);
    return result;
}

static PyObject *in_cell(PyObject *value) {
    return value && PyCell_Check(value) ? PyCell_GET(value) : value;
}

#if PY_VERSION_HEX >= 0x030B0000

static int add_locals(PyObject *list, PyFrameObject *frame, PyCodeObject *code) {
    PyObject **values = frame->f_frame->localsplus;
    for (int i = 0; i < code->co_nlocalsplus; i++) {
        unsigned char kind = (unsigned char)PyBytes_AS_STRING(code->co_localspluskinds)[i];
        PyObject *value = values[i];
        if (kind & (CO_FAST_CELL | CO_FAST_FREE))
            value = in_cell(value);
        if (add_local(list, PyTuple_GET_ITEM(code->co_localsplusnames, i), value) < 0)
            return -1;
    }
    return 0;
}

#else

static int add_named(PyObject *list, PyObject *names, PyObject **values, int cells) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names); i++)
        if (add_local(list, PyTuple_GET_ITEM(names, i),
                      cells ? in_cell(values[i]) : values[i]) < 0)
            return -1;
    return 0;
}

static int add_locals(PyObject *list, PyFrameObject *frame, PyCodeObject *code) {
    PyObject **values = frame->f_localsplus, **cells = values + code->co_nlocals;
    PyObject **free = cells + PyTuple_GET_SIZE(code->co_cellvars);
    return add_named(list, code->co_varnames, values, 0) < 0 ||
                   add_named(list, code->co_cellvars, cells, 1) < 0 ||
                   add_named(list, code->co_freevars, free, 1) < 0
               ? -1
               : 0;
}

#endif

PyDoc_STRVAR(frame_locals_doc, "frame_locals(frame)\n--\n\n"
                               "Return names and values of a function's variables.");

static PyObject *native_frame_locals(PyObject *Py_UNUSED(module), PyObject *frame) {
    if (!PyFrame_Check(frame)) {
        PyErr_SetString(PyExc_TypeError, "a frame is needed");
        return NULL;
    }
    PyCodeObject *code = PyFrame_GetCode((PyFrameObject *)frame);
    PyObject *list = PyList_New(0);
    if (list != NULL && add_locals(list, (PyFrameObject *)frame, code) < 0)
        Py_CLEAR(list);
    Py_DECREF(code);
    return list;
}

#endif

static PyMethodDef methods[] = {
    {"walk", native_walk, METH_VARARGS, walk_doc},
#if PY_VERSION_HEX < 0x030D0000
    {"frame_locals", native_frame_locals, METH_O, frame_locals_doc},
#endif
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "leakscope.heap._native", "The native heap walker.", -1, methods,
    NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__native(void) {
    name_sizeof = PyUnicode_InternFromString("__sizeof__");
    name_dispatch = PyUnicode_InternFromString("__torch_dispatch__");
    name_data = PyUnicode_InternFromString("data");
    name_unpack = PyUnicode_InternFromString("unpack_hook");
    if (!name_sizeof || !name_dispatch || !name_data || !name_unpack)
        return NULL;
    return PyModule_Create(&definition);
}
