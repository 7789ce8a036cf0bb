/* What no tensor and no array can read any more: `x[:10]` keeps the whole storage of `x`.
 *
 * Whatever reads, what has a view of it and what else might hold it is counted by references. Where
 * somebody holds a storage whom the walk does not know, he is taken to read all of it.
 */
#include "walk.h"

#include <stdlib.h>
#include <string.h>

#define LONGEST_CHAIN_OF_BASES 16

/* Of a region, the node that has memory, or of a storage that is part of one. */
enum { PARTIAL = 1, WHOLE = 2, CHECKED = 4, SHOWN = 8 };

typedef struct {
    Walk *walk;
    uint8_t *state;  /* by node */
    uint32_t *known; /* references that the walk knows of: a storage's tensors, a base's views */
    uint8_t *ours;   /* whether the walk itself has a reference */
    Numbers regions;
    Reach *reaches;
    size_t n_reaches, cap_reaches;
} Search;

static PyObject *object_of(const Walk *w, uint32_t node) {
    return (PyObject *)w->nodes[node].key;
}

static unsigned flags_of(const Walk *w, uint32_t node) {
    return w->types[w->nodes[node].type].flags;
}

static uint32_t node_at(Walk *w, PyObject *object) {
    uint64_t entry = object ? find_entry(&w->index, key_of(w, object)) : 0;
    return entry ? node_of(entry) : NONE;
}

static uint32_t storage_of(const Walk *w, uint32_t tensor) {
    const Node *node = &w->nodes[tensor];
    for (uint32_t e = 0; e < node->n_edges; e++) {
        uint32_t target = w->edges[node->first_edge + e];
        if (w->nodes[target].type < MEMORY_TYPES)
            return target;
    }
    return NONE;
}

/* Return the node that has a storage's memory: an array's, where the storage was made from that. */
static uint32_t region_of_storage(const Walk *w, uint32_t storage) {
    const Node *node = storage == NONE ? NULL : &w->nodes[storage];
    return node && node->n_edges ? w->edges[node->first_edge] : storage;
}

/* Return the node that has the memory which an array shows, and from where it begins. */
static uint32_t region_of_array(Walk *w, PyObject *array, uintptr_t *address) {
    for (int i = 0; i < LONGEST_CHAIN_OF_BASES; i++) {
        PyObject *base = array_base(array);
        if (base == NULL)
            return NONE;
        uint32_t node = node_at(w, base);
        unsigned flags = node == NONE ? 0 : flags_of(w, node);
        if (flags & TYPE_TENSOR) {
            *address = (uintptr_t)read_size(PyObject_CallOneArg(w->access.tensor_address, base));
            uint32_t storage = storage_of(w, node), region = region_of_storage(w, storage);
            if (region != storage)
                *address = flags_of(w, region) & TYPE_ARRAY ? array_address(object_of(w, region)) : 0;
            return *address ? region : NONE;
        }
        if (!(flags & TYPE_ARRAY))
            return NONE;
        if (array_owns(base)) {
            *address = array_address(base);
            return node;
        }
        array = base;
    }
    return NONE;
}

/* Return how much memory a region has of which views can be judged: that of bytes, say, has none. */
static uint64_t region_bytes(Walk *w, uint32_t region) {
    if (w->nodes[region].type < MEMORY_TYPES)
        return w->nodes[region].bytes;
    return flags_of(w, region) & TYPE_ARRAY ? array_bytes(w, object_of(w, region)) : 0;
}

/* Sizes of a subclass may be computed by its own code: those are not asked, and parts are read. */
static int is_plain(const Walk *w, uint32_t tensor) {
    return flags_of(w, tensor) & TYPE_STORAGE && parts_of(w, object_of(w, tensor)) == NULL;
}

/* Whether a tensor's items are as many bytes as its storage; that it repeats some just as often as it
 * leaves others out is not looked for. */
static int fills(Walk *w, PyObject *tensor, uint64_t bytes) {
    return read_size(read_getset(w->access.nbytes, tensor)) == bytes;
}

static void note_partial(Search *s, uint32_t region) {
    if (!s->state[region] && push(s->walk, &s->regions, region) == 0)
        s->state[region] = PARTIAL;
}

/* Find the memory of which something sees less than all. */
static void find_partial(Search *s) {
    Walk *w = s->walk;
    for (size_t i = 0; i < w->tensors.count; i++) {
        uint32_t tensor = w->tensors.items[i], region = region_of_storage(w, storage_of(w, tensor));
        if (region == NONE || s->state[region] || !is_plain(w, tensor))
            continue;
        uint64_t bytes = region_bytes(w, region);
        if (bytes && !fills(w, object_of(w, tensor), bytes))
            note_partial(s, region);
    }
    for (size_t i = 0; i < w->views.count; i++) {
        uintptr_t address;
        Reach reach;
        PyObject *view = object_of(w, w->views.items[i]);
        uint32_t region = region_of_array(w, view, &address);
        if (region != NONE && (!array_reach(w, view, &reach) || reach.bytes < region_bytes(w, region)))
            note_partial(s, region);
    }
}

static int is_partial(const Search *s, uint32_t region) {
    return region != NONE && (s->state[region] & (PARTIAL | WHOLE)) == PARTIAL;
}

/* Of a storage made from an array, one of the array's references is known. */
static void note_lender(Search *s, uint32_t tensor, uint32_t storage, uint32_t region) {
    Walk *w = s->walk;
    if (storage == region || s->state[storage] & CHECKED || !(flags_of(w, region) & TYPE_ARRAY))
        return;
    s->state[storage] |= CHECKED;
    PyObject *array = object_of(w, region), *object = object_of(w, tensor);
    PyObject *wrapper = PyObject_CallOneArg(w->access.untyped_storage, object);
    if (wrapper != NULL &&
        read_size(PyObject_CallOneArg(w->access.storage_nbytes, wrapper)) == array_bytes(w, array) &&
        read_size(PyObject_CallOneArg(w->access.tensor_address, object)) == array_address(array))
        s->known[region]++;
    Py_XDECREF(wrapper);
    PyErr_Clear();
}

/* Whether Python code refers to a base that reads its whole region: there is no need to count then.
 * We, the view's own and torch's object have a reference each, and the walk may. */
static int is_base_in_use(Search *s, PyObject *base, uint32_t node, uint32_t region) {
    Walk *w = s->walk;
    return w->views.count == 0 && Py_REFCNT(base) > 2 + s->ours[node] && is_plain(w, node) &&
           region_of_storage(w, storage_of(w, node)) == region &&
           fills(w, base, region_bytes(w, region));
}

static void note_base(Search *s, uint32_t tensor, uint32_t region) {
    Walk *w = s->walk;
    PyObject *base = read_getset(w->access.base, object_of(w, tensor));
    uint32_t node = base == Py_None ? NONE : node_at(w, base);
    if (node != NONE) {
        if (s->known[node]++ == 0 && is_base_in_use(s, base, node, region))
            s->state[region] |= WHOLE;
    }
    Py_XDECREF(base);
}

static void count_known(Search *s) {
    Walk *w = s->walk;
    for (size_t i = 0; i < w->tensors.count; i++) {
        uint32_t tensor = w->tensors.items[i], storage = storage_of(w, tensor);
        uint32_t region = region_of_storage(w, storage);
        if (!is_partial(s, region))
            continue;
        s->known[storage]++;
        note_base(s, tensor, region);
        note_lender(s, tensor, storage, region);
    }
    for (size_t i = 0; i < w->views.count; i++) {
        uintptr_t address;
        PyObject *view = object_of(w, w->views.items[i]);
        uint32_t region = region_of_array(w, view, &address);
        if (!is_partial(s, region))
            continue;
        uint32_t base = node_at(w, array_base(view));
        if (base != NONE)
            s->known[base]++;
        s->state[region] |= SHOWN;
    }
}

static void note_ours(Search *s) {
    Walk *w = s->walk;
    for (size_t i = 0; i < w->n_owned; i++) {
        uint32_t node = node_at(w, w->owned[i]);
        if (node != NONE)
            s->ours[node] = 1;
    }
}

/* Whether somebody refers to an object beside those that have a view of it. torch's own object has a
 * reference to the Python object as long as others refer to it, and that one always to torch's. */
static int is_named(Search *s, uint32_t node) {
    Walk *w = s->walk;
    PyObject *object = object_of(w, node);
    uint64_t references = (uint64_t)Py_REFCNT(object) - s->ours[node];
    if (flags_of(w, node) & TYPE_TENSOR) {
        uint64_t count = read_size(PyObject_CallOneArg(w->access.use_count, object));
        references += count > 1 ? count - 2 : 0;
    }
    return references > s->known[node];
}

/* Whether all that refer to a tensor's storage are tensors that were met. While we hold its Python
 * object, that one is referred to by the storage and by us, and refers to the storage. Memory of
 * another's may be read by others, unless the array was met that lends it or to which torch did. */
static int is_held_by_known(Search *s, uint32_t tensor, uint32_t storage) {
    Walk *w = s->walk;
    PyObject *wrapper = PyObject_CallOneArg(w->access.untyped_storage, object_of(w, tensor));
    if (wrapper == NULL) {
        PyErr_Clear();
        return 0;
    }
    PyObject *key = read_getset(w->access.storage_key, wrapper);
    PyObject *count = key ? PyObject_CallOneArg(w->access.storage_use_count, key) : NULL;
    int held = Py_REFCNT(wrapper) == 2 && read_size(count) == (uint64_t)s->known[storage] + 1 &&
               (region_of_storage(w, storage) != storage || s->state[storage] & SHOWN ||
                is_true(PyObject_CallOneArg(w->access.is_resizable, wrapper)));
    Py_XDECREF(key);
    Py_DECREF(wrapper);
    return held;
}

/* Leave out what the walk does not know enough of. */
static void check_holders(Search *s) {
    Walk *w = s->walk;
    for (size_t i = 0; i < s->regions.count; i++) {
        uint32_t region = s->regions.items[i];
        if (w->nodes[region].type >= MEMORY_TYPES && is_named(s, region))
            s->state[region] |= WHOLE;
    }
    for (size_t i = 0; i < w->tensors.count; i++) {
        uint32_t tensor = w->tensors.items[i], storage = storage_of(w, tensor);
        uint32_t region = region_of_storage(w, storage);
        if (!is_partial(s, region))
            continue;
        if (storage == region && s->state[storage] & CHECKED)
            continue;
        s->state[storage] |= CHECKED;
        if (!is_held_by_known(s, tensor, storage))
            s->state[region] |= WHOLE;
    }
}

static int64_t number_at(PyObject *numbers, Py_ssize_t i) {
    return PyLong_AsLongLong(PyTuple_GET_ITEM(numbers, i));
}

/* Find what a tensor reads, counted from where its storage begins; say whether it can be read. */
static int tensor_reach(Walk *w, PyObject *tensor, Reach *reach) {
    const Access *access = &w->access;
    PyObject *shape = read_getset(access->shape, tensor);
    PyObject *strides = PyObject_CallOneArg(access->stride, tensor);
    int is_readable = shape && strides && PyTuple_Check(shape) && PyTuple_Check(strides) &&
                      PyTuple_GET_SIZE(shape) == PyTuple_GET_SIZE(strides);
    uint64_t span = 0, distinct = 1, item;
    for (Py_ssize_t i = 0; is_readable && i < PyTuple_GET_SIZE(shape); i++) {
        uint64_t size = (uint64_t)number_at(shape, i), stride = (uint64_t)number_at(strides, i);
        span += size ? (size - 1) * stride : 0;
        distinct *= size == 0 || stride ? size : 1;
    }
    Py_XDECREF(shape);
    Py_XDECREF(strides);
    item = read_size(PyObject_CallOneArg(access->item_bytes, tensor));
    reach->begin = item * read_size(PyObject_CallOneArg(access->offset, tensor));
    reach->end = reach->begin + (distinct ? (span + 1) * item : 0);
    reach->bytes = distinct * item;
    return is_readable && !PyErr_Occurred() && item != 0;
}

static void add_reach(Search *s, uint32_t region, Reach reach) {
    Walk *w = s->walk;
    uint64_t size = region_bytes(w, region);
    reach.region = region;
    reach.end = reach.end < size ? reach.end : size;
    if (reach.begin >= reach.end)
        return;
    if (reach.bytes > reach.end - reach.begin)
        reach.bytes = reach.end - reach.begin;
    if (reach.bytes >= size) {
        s->state[region] |= WHOLE;
        return;
    }
    if (s->n_reaches == s->cap_reaches) {
        size_t capacity = s->cap_reaches ? s->cap_reaches * 2 : 256;
        Reach *reaches = resized(w, s->reaches, capacity * sizeof *reaches);
        if (reaches == NULL)
            return;
        s->reaches = reaches;
        s->cap_reaches = capacity;
    }
    s->reaches[s->n_reaches++] = reach;
}

static int reads(Search *s, uint32_t node, uint32_t region) {
    return is_partial(s, region) && (s->known[node] == 0 || is_named(s, node));
}

static void add_tensor(Search *s, uint32_t tensor) {
    Walk *w = s->walk;
    uint32_t storage = storage_of(w, tensor), region = region_of_storage(w, storage);
    Reach reach;
    if (!reads(s, tensor, region))
        return;
    PyObject *object = object_of(w, tensor);
    if (!is_plain(w, tensor) || !tensor_reach(w, object, &reach)) {
        PyErr_Clear();
        s->state[region] |= WHOLE;
        return;
    }
    if (region != storage) {
        uint64_t shift = read_size(PyObject_CallOneArg(w->access.tensor_address, object)) -
                         array_address(object_of(w, region));
        reach.begin += shift;
        reach.end += shift;
    }
    add_reach(s, region, reach);
}

static void add_view(Search *s, uint32_t view) {
    Walk *w = s->walk;
    uintptr_t address;
    Reach reach;
    PyObject *object = object_of(w, view);
    uint32_t region = region_of_array(w, object, &address);
    if (!reads(s, view, region) || !array_reach(w, object, &reach))
        return;
    reach.begin -= address;
    reach.end -= address;
    add_reach(s, region, reach);
}

static int by_place(const void *left, const void *right) {
    const Reach *a = left, *b = right;
    if (a->region != b->region)
        return a->region < b->region ? -1 : 1;
    return a->begin < b->begin ? -1 : a->begin > b->begin;
}

/* Return how many bytes the views of a region read at most, which stand from `*at` on: where views
 * overlap, no more than lies between their ends, and no more than all of them read. */
static uint64_t bytes_read(const Search *s, uint32_t region, size_t *at) {
    uint64_t total = 0;
    while (*at < s->n_reaches && s->reaches[*at].region == region) {
        uint64_t begin = s->reaches[*at].begin, end = begin, bytes = 0;
        for (; *at < s->n_reaches && s->reaches[*at].region == region; ++*at) {
            const Reach *reach = &s->reaches[*at];
            if (reach->begin >= end && end != begin)
                break;
            end = reach->end > end ? reach->end : end;
            bytes += reach->bytes;
        }
        total += bytes < end - begin ? bytes : end - begin;
    }
    return total;
}

static int by_number(const void *left, const void *right) {
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    return a < b ? -1 : a > b;
}

/* Add up what is left of each region. */
static void settle(Search *s) {
    Walk *w = s->walk;
    w->unread = fresh(w, s->regions.count, sizeof *w->unread);
    if (w->unread == NULL)
        return;
    if (s->n_reaches)
        qsort(s->reaches, s->n_reaches, sizeof *s->reaches, by_place);
    qsort(s->regions.items, s->regions.count, sizeof *s->regions.items, by_number);
    size_t at = 0;
    for (size_t i = 0; i < s->regions.count; i++) {
        uint32_t region = s->regions.items[i];
        uint64_t read = bytes_read(s, region, &at), size = region_bytes(w, region);
        if (!(s->state[region] & WHOLE) && read < size && w->nodes[region].phase != PHASE_HIDDEN)
            w->unread[w->n_unread++] = (Unread){region, size - read};
    }
}

static void search(Search *s) {
    Walk *w = s->walk;
    s->known = fresh(w, w->n_nodes, sizeof *s->known);
    s->ours = fresh(w, w->n_nodes, 1);
    if (s->known == NULL || s->ours == NULL)
        return;
    note_ours(s);
    count_known(s);
    check_holders(s);
    for (size_t i = 0; i < w->tensors.count; i++)
        add_tensor(s, w->tensors.items[i]);
    for (size_t i = 0; i < w->views.count; i++)
        add_view(s, w->views.items[i]);
    settle(s);
}

/* Only a torch that tells how many refer to a storage is asked, and arrays alone without torch. */
void find_unread(Walk *w) {
    Search s = {.walk = w};
    if (w->failed || w->tensors.count + w->views.count == 0)
        return;
    if (w->has_torch && w->access.storage_use_count == Py_None)
        return;
    s.state = fresh(w, w->n_nodes, 1);
    if (s.state != NULL)
        find_partial(&s);
    if (s.regions.count && !w->failed)
        search(&s);
    drop(w, s.state);
    drop(w, s.known);
    drop(w, s.ours);
    drop(w, s.regions.items);
    drop(w, s.reaches);
}
