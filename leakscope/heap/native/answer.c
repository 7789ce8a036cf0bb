/* The answer as Python objects: the columns of a WalkResult. */
#include "walk.h"

#include <stdlib.h>
#include <string.h>

static const Walk *sorting; /* qsort has no argument for it; the GIL is held */

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
        PyObject *group = samples ? Py_BuildValue("(OKKNK)", w->types[kind->type].type, kind->count,
                                                  kind->bytes, samples, kind->unread) : NULL;
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

PyObject *bytes_by_device(Walk *w, const uint64_t *bytes, int with_host) {
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
    return shallow_bytes(object, facts) + payload_bytes(w, object, facts);
}

/* The number of an entry; of one whose name may have changed, -2 less that. */
static PyObject *sealed_number(Walk *w, uint32_t number) {
    uint32_t entry = entry_of(w, number);
    if (entry == NONE)
        return PyLong_FromLong(-1);
    return PyLong_FromLongLong(is_renamed(w, entry) ? -2 - (long long)entry : (long long)entry);
}

enum { N_COLUMNS = 20 };
static const char *const column_names[N_COLUMNS] = {
    "objects", "parent", "root", "dominator", "selected", "shallow_bytes", "host_bytes",
    "device_bytes", "reached_bytes", "unused_bytes", "graph_nodes", "keeps_graph", "holds", "number", "referrers",
    "others", "holders", "circle", "sealed", "recent_bytes"};

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
    uint64_t unread[MAX_DEVICES] = {0};
    for (uint32_t d = 0; d < w->n_devices; d++)
        unread[d] = t->unread[d] ? t->unread[d][v] : 0;
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
        bytes_by_device(w, unread, unread[0] != 0),
        PyLong_FromUnsignedLong(t->graph_nodes[v]),
        PyBool_FromLong((node->flags & NODE_KEEPS_GRAPH) != 0),
        groups_as_list(w, &c->kinds[row]),
        PyLong_FromUnsignedLong(number),
        referrers_as_list(w, c, number),
        others_as_list(c, row),
        holders_as_list(c, row),
        circle_as_list(c, number),
        sealed_number(w, number),
        t->recent ? PyLong_FromUnsignedLongLong(t->recent[number]) : PyLong_FromLong(-1),
    };
    values[0] = may_be_unfinished(node) ? PyTuple_New(0) : Py_NewRef((PyObject *)node->key);
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

enum { N_TENSOR_COLUMNS = 8 };
static const char *const tensor_names[N_TENSOR_COLUMNS] = {
    "storage", "nbytes", "device", "holder", "root", "mark", "flags", "address"};

/* Return the node that has a storage's memory: another's, where the storage is part of that. */
static uint32_t part_of(const Walk *w, const Tree *t, uint32_t storage) {
    const Node *node = &w->nodes[storage];
    return node->n_edges ? t->node[w->edges[node->first_edge]] : storage;
}

/* Fill a row with a tensor's memory; of one that consists of several, with the nth. */
static void fill_tensor(Walk *w, const Tree *t, uint32_t number, int nth, int64_t holder,
                        int64_t *row[]) {
    const Node *node = &w->nodes[number], *data = NULL;
    const TypeFacts *facts = &w->types[node->type];
    int64_t storage = -1;
    uintptr_t address = 0;
    for (uint32_t e = 0; e < node->n_edges && !data; e++) {
        uint32_t target = t->node[w->edges[node->first_edge + e]];
        if (w->nodes[target].type < MEMORY_TYPES && nth-- == 0) {
            storage = part_of(w, t, target);
            address = address_of(w, target);
            data = &w->nodes[storage];
        }
    }
    *row[0] = storage;
    *row[1] = data ? (int64_t)data->bytes : 0;
    *row[2] = data ? data->device : 0;
    *row[3] = holder;
    *row[4] = node->root;
    *row[5] = node->mark;
    *row[6] = (facts->flags & TYPE_PARAMETER ? 1 : 0) | (node->flags & NODE_GRADIENT ? 2 : 0) |
              (node->flags & NODE_KEEPS_GRAPH ? 4 : 0) | (node->flags & NODE_BY_GRAPH ? 8 : 0) |
              (node->flags & NODE_FROZEN ? 16 : 0);
    *row[7] = (int64_t)address;
}

/* Return the place, plus one, of the nearest chosen node on the way from the root; 0 without one.
 * What was found is kept along the way, so that long chains are climbed once. */
static uint32_t holder_of(const Walk *w, const Choice *c, uint32_t *known, uint32_t number) {
    uint32_t at = number, found;
    while (!known[at] && !(c->place[at] & CHOSEN) && w->nodes[at].parent != NONE)
        at = w->nodes[at].parent;
    found = known[at] ? known[at] - 1 : c->place[at] & CHOSEN ? c->place[at] & ~CHOSEN : 0;
    for (uint32_t i = number; i != at; i = w->nodes[i].parent)
        known[i] = found + 1;
    known[at] = found + 1;
    return found;
}

static PyObject *tensors_as_dict(Walk *w, const Tree *t, Choice *c) {
    size_t n = w->tensors.count;
    uint32_t *known = fresh(w, n ? w->n_nodes : 1, 4);
    PyObject *dict = PyDict_New(), *columns[N_TENSOR_COLUMNS] = {NULL};
    for (int i = 0; dict && i < N_TENSOR_COLUMNS; i++) {
        columns[i] = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)n * 8);
        if (columns[i] == NULL || PyDict_SetItemString(dict, tensor_names[i], columns[i]) < 0)
            Py_CLEAR(dict);
        Py_XDECREF(columns[i]);
    }
    int nth = 0;
    for (size_t i = 0; dict && known && i < n; i++) {
        uint32_t number = w->tensors.items[i];
        nth = i && w->tensors.items[i - 1] == number ? nth + 1 : 0;
        int64_t *row[N_TENSOR_COLUMNS];
        for (int k = 0; k < N_TENSOR_COLUMNS; k++)
            row[k] = (int64_t *)PyBytes_AS_STRING(columns[k]) + i;
        fill_tensor(w, t, number, nth, (int64_t)holder_of(w, c, known, number) - 1, row);
    }
    drop(w, known);
    return dict;
}

typedef struct {
    uint64_t payload[MAX_DEVICES], by_graph[MAX_DEVICES], shared, garbage, native, hidden, objects, edges;
} Totals;

static void sum_up(Walk *w, Totals *totals) {
    totals->payload[0] = w->array_bytes;
    totals->by_graph[0] = w->array_by_graph;
    totals->objects = w->folded;
    if (w->resumed) {
        SealedSums sums = sealed_sums(w);
        totals->objects += sums.objects;
        totals->native = sums.by_phase[PHASE_NATIVE];
        totals->hidden = sums.by_phase[PHASE_HIDDEN];
        w->heap_bytes += sums.heap;
    }
    for (size_t i = 0; i < w->order.count; i++) {
        const Node *node = &w->nodes[w->order.items[i]];
        int is_storage = node->type < MEMORY_TYPES;
        if (node->flags & NODE_SEALED)
            continue;
        if (node->device == 0) {
            totals->garbage += node->phase == PHASE_GARBAGE ? node->bytes : 0;
            totals->native += node->phase == PHASE_NATIVE ? node->bytes : 0;
            totals->hidden += node->phase == PHASE_HIDDEN ? node->bytes : 0;
        }
        if (!is_counted(w, (int)node->phase))
            continue;
        totals->objects += !is_storage;
        totals->edges += node->n_edges;
        if (is_storage) {
            if (node->type == MEMORY_SHARED)
                totals->shared += node->bytes;
            else
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

/* The payload by device; of the host's, what is shared and what maps files apart. */
static PyObject *payload_as_dict(Walk *w, const Totals *totals) {
    PyObject *dict = bytes_by_device(w, totals->payload, 1);
    const char *const names[] = {"shared", "file"};
    const uint64_t bytes[] = {totals->shared, file_bytes(w)};
    for (int i = 0; dict && i < 2; i++) {
        PyObject *value = bytes[i] ? PyLong_FromUnsignedLongLong(bytes[i]) : NULL;
        if (bytes[i] && (value == NULL || PyDict_SetItemString(dict, names[i], value) < 0))
            Py_CLEAR(dict);
        Py_XDECREF(value);
    }
    return dict;
}

static PyObject *optional(int known, uint64_t value) {
    if (known)
        return PyLong_FromUnsignedLongLong(value);
    Py_RETURN_NONE;
}

PyObject *build_answer(Walk *w, Tree *t, Choice *c) {
    Totals totals = {0};
    sum_up(w, &totals);
    int full = w->request.full;
    PyObject *nodes = nodes_as_dict(w, t, c);
    PyObject *tensors = nodes ? tensors_as_dict(w, t, c) : NULL;
    if (tensors == NULL) {
        Py_XDECREF(nodes);
        return NULL;
    }
    return Py_BuildValue(
        "{sNsNsNsKsKsKsNsNsKsNsNsNsNsNsKsKsNsNsN}", "nodes", nodes, "tensors", tensors, "devices",
        devices_as_list(w), "objects", totals.objects, "edges",
        totals.edges, "heap_bytes", w->heap_bytes, "payload_bytes",
        payload_as_dict(w, &totals), "graph_bytes",
        bytes_by_device(w, totals.by_graph, 1), "graph_nodes", (uint64_t)w->graph_count,
        "graph_truncated", PyBool_FromLong(w->graph_truncated), "graph_is_deep",
        PyBool_FromLong(w->graph_is_deep), "garbage_bytes",
        optional(full || w->has_weighed_new, full ? totals.garbage : w->new_garbage),
        "elsewhere_bytes", optional(w->has_weighed_new, w->elsewhere), "native_bytes", optional(full, totals.native),
        "hidden_bytes", full ? totals.hidden : (uint64_t)0, "scratch_bytes", (uint64_t)w->peak,
        "types", totals_as_list(w), "heads", heads_as_list(w), "opaque", opaque_as_list(w));
}
