/* What torch keeps outside of Python's sight: storages, gradients, autograd graphs. */
#include "walk.h"

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

/* Find where a storage's memory lies; say whether it has any. Asking a storage itself would make
 * memory that is copied on write private, so that one is asked only where it can't be such. */
static int memory_of(Walk *w, PyObject *storage, PyObject *tensor, int is_resizable,
                     uintptr_t *address) {
    const Access *access = &w->access;
    PyObject *found = NULL;
    *address = 0;
    if (access->tensor_address == Py_None)
        return 1;
    if (tensor != NULL)
        found = PyObject_CallOneArg(access->tensor_address, tensor);
    else if (!is_resizable)
        found = PyObject_CallOneArg(access->storage_address, storage);
    *address = (uintptr_t)read_size(found);
    return *address != 0 || tensor == NULL;
}

void note_address(Walk *w, uint32_t node, uintptr_t address) {
    if (w->n_storages == w->cap_storages) {
        size_t capacity = w->cap_storages ? w->cap_storages * 2 : 256;
        Place *storages = resized(w, w->storages, capacity * sizeof *storages);
        if (storages == NULL)
            return;
        w->storages = storages;
        w->cap_storages = capacity;
    }
    w->storages[w->n_storages++] = (Place){node, address};
}

/* Return where the memory of a storage lies; 0 where that isn't known. */
uintptr_t address_of(const Walk *w, uint32_t node) {
    size_t low = 0, high = w->n_storages;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (w->storages[middle].node < node)
            low = middle + 1;
        else
            high = middle;
    }
    return low < w->n_storages && w->storages[low].node == node ? w->storages[low].address : 0;
}

/* Return a new node for a storage; NONE where it has no memory. */
static uint32_t new_storage(Walk *w, uint32_t source, PyObject *storage, PyObject *tensor,
                            uintptr_t key, uint64_t bytes) {
    int device = device_number(w, storage), type = MEMORY_PRIVATE;
    int is_resizable = is_true(PyObject_CallOneArg(w->access.is_resizable, storage));
    uintptr_t address;
    if (device < 0 || !memory_of(w, storage, tensor, is_resizable, &address))
        return NONE;
    if (device == 0 && is_true(PyObject_CallOneArg(w->access.is_shared, storage)))
        type = MEMORY_SHARED;
    uint32_t node =
        add_node(w, key | 1, (uint32_t)type, source, w->nodes[source].root, w->phase);
    if (node == NONE || push(w, &w->order, node) < 0)
        return NONE;
    w->nodes[node].bytes = bytes;
    w->nodes[node].device = (uint32_t)device;
    if (address != 0)
        note_address(w, node, address);
    if (device == 0 && address != 0)
        add_extent(w, node, address, bytes, !is_resizable);
    return node;
}

/* Follow the edge to the memory of a storage; `tensor` is one that has it, or NULL. */
void follow_storage(Walk *w, uint32_t source, PyObject *storage, PyObject *tensor) {
    uint64_t bytes = read_size(PyObject_CallOneArg(w->access.storage_nbytes, storage));
    uintptr_t key = (uintptr_t)read_size(read_getset(w->access.storage_key, storage));
    if (bytes == 0 || key == 0)
        return;
    uint64_t entry = find_entry(&w->index, key_in(w, key, 1));
    uint32_t target =
        entry ? node_of(entry) : new_storage(w, source, storage, tensor, key, bytes);
    if (target != NONE && w->nodes[target].phase == (uint32_t)w->phase)
        add_edge(w, source, target);
}

/* Say whether the memory of a storage was met already. */
int has_met(Walk *w, PyObject *storage) {
    uintptr_t key = (uintptr_t)read_size(read_getset(w->access.storage_key, storage));
    return key != 0 && find_entry(&w->index, key_in(w, key, 1)) != 0;
}

/* Return what functorch wraps, a new reference, or NULL: a wrapper has no storage. */
PyObject *wrapped_by(Walk *w, PyObject *tensor) {
    const Access *access = &w->access;
    if (access->is_wrapped == Py_None ||
        !is_true(PyObject_CallOneArg(access->is_wrapped, tensor)))
        return NULL;
    PyObject *inner = PyObject_CallOneArg(access->unwrapped, tensor);
    PyErr_Clear();
    return inner;
}

/* Say whether the storage of a wrapper has no memory. It isn't asked for: that would make a Python
 * object of it, which torch keeps, and which by itself tells of the memory that the wrapper claims. */
static int claims_memory(Walk *w, PyObject *tensor) {
    PyObject *found = PyObject_CallOneArg(w->access.tensor_address, tensor);
    int is_known = found != NULL;
    uint64_t address = read_size(found);
    return is_known && address == 0;
}

/* Wrapper subclasses claim the memory of what they wrap. That they have none is seen by its address,
 * where torch tells; otherwise by their dispatch. */
static void follow_data(Walk *w, uint32_t node, PyObject *tensor, const TypeFacts *facts) {
    if (!(facts->flags & TYPE_STORAGE) &&
        (w->access.tensor_address == Py_None || claims_memory(w, tensor)))
        return;
    PyObject *storage = PyObject_CallOneArg(w->access.untyped_storage, tensor);
    PyErr_Clear();
    if (storage != NULL)
        follow_storage(w, node, storage, tensor);
    else if (!follow_parts(w, node, tensor)) {
        PyObject *inner = wrapped_by(w, tensor);
        if (inner == NULL && facts->flags & TYPE_STORAGE)
            note_opaque(w, node);
        follow_owned(w, node, inner);
    }
    Py_XDECREF(storage);
}

/* Return the gradient of a leaf, or of a tensor that was told to keep its own: of others asking
 * warns. */
PyObject *gradient_of(Walk *w, PyObject *tensor, int is_leaf) {
    if (w->autograd_changes || (!is_leaf && !is_true(read_getset(w->access.retains_grad, tensor))))
        return NULL;
    return read_getset(w->access.grad, tensor);
}

/* A gradient outlives the moment at which its tensor was frozen. */
static unsigned frozen_flag(Walk *w, PyObject *tensor) {
    return is_true(read_getset(w->access.requires_grad, tensor)) ? 0 : NODE_FROZEN;
}

void follow_tensor(Walk *w, uint32_t node, PyObject *tensor, const TypeFacts *facts) {
    follow_data(w, node, tensor, facts);
    int leaf = is_true(read_getset(w->access.is_leaf, tensor));
    uint32_t gradient = follow_owned(w, node, gradient_of(w, tensor, leaf));
    if (gradient != NONE)
        w->nodes[gradient].flags |= NODE_GRADIENT | frozen_flag(w, tensor);
    follow_owned(w, node, read_getset(w->access.base, tensor));
    if (!leaf && push(w, &w->made, node) == 0) {
        w->nodes[node].flags |= NODE_KEEPS_GRAPH;
        reserve_edge(w, node);
    }
}

/* Follow the edge from a tensor to the autograd node that made it. */
void follow_maker(Walk *w, uint32_t node) {
    if (!may_ask_graph(w))
        w->graph_truncated = 1;
    else
        follow_reserved(w, node, read_getset(w->access.grad_fn, (PyObject *)w->nodes[node].key));
}

static void follow_attribute(Walk *w, uint32_t node, PyObject *saved, PyObject *name) {
    PyObject *value = PyObject_GetAttr(saved, name);
    if (value == NULL)
        PyErr_Clear();
    follow_owned(w, node, value);
}

/* What a saved variable holds as it is, and the unpack hook: it never runs, but under checkpointing
 * its closure keeps the inputs from which activations are recomputed. Steals. */
void follow_saved(Walk *w, uint32_t node, PyObject *saved) {
    if (saved != Py_None) {
        follow_attribute(w, node, saved, name_data);
        follow_attribute(w, node, saved, name_unpack);
    }
    Py_DECREF(saved);
}

static void follow_next(Walk *w, uint32_t node, PyObject *next) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(next); i++) {
        PyObject *pair = PyTuple_GET_ITEM(next, i);
        if (!PyTuple_CheckExact(pair))
            continue;
        PyObject *follower = PyTuple_GET_ITEM(pair, 0);
        Py_INCREF(follower);
        follow_owned(w, node, follower);
    }
}

/* Follow the raw saved variables: asking for `_saved_x` would run unpack hooks. */
void follow_graph(Walk *w, uint32_t node, PyObject *object, const TypeFacts *facts) {
    PyObject *next = read_getset(facts->next_functions, object);
    if (next && PyTuple_CheckExact(next))
        follow_next(w, node, next);
    Py_XDECREF(next);
    if (facts->variable != NULL)
        follow_owned(w, node, read_getset(facts->variable, object));
    for (uint32_t i = 0; i < facts->n_saved; i++) {
        PyObject *saved = read_getset(facts->saved[i], object); /* raises once it was freed */
        if (saved == NULL)
            continue;
        if (!PyTuple_CheckExact(saved)) {
            follow_saved(w, node, saved);
            continue;
        }
        for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(saved); k++) {
            PyObject *one = PyTuple_GET_ITEM(saved, k);
            Py_INCREF(one);
            follow_saved(w, node, one);
        }
        Py_DECREF(saved);
    }
}
