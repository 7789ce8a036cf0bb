/* Tensors that consist of others, such as sparse ones. Only operations show their parts, and those
 * release the GIL: a walk reports which it met, and the next is given their parts.
 */
#include "walk.h"

#define MOST_OPAQUE 10000

/* Return the parts of a tensor, borrowed; NULL where none are known. */
PyObject *parts_of(const Walk *w, PyObject *tensor) {
    if (PyDict_GET_SIZE(w->parts) == 0)
        return NULL;
    PyObject *key = PyLong_FromVoidPtr(tensor);
    PyObject *parts = key ? PyDict_GetItemWithError(w->parts, key) : NULL;
    Py_XDECREF(key);
    PyErr_Clear();
    return parts;
}

/* Follow the edge to the memory of a part, given by storage, address and, without a storage, size. */
static void follow_part(Walk *w, uint32_t source, PyObject *part) {
    PyObject *storage = PyTuple_GET_ITEM(part, 0);
    uintptr_t address = (uintptr_t)PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(part, 1));
    uint32_t node = (uint32_t)w->n_nodes;
    if (storage == Py_None)
        follow_memory(w, source, address, PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(part, 2)));
    else
        follow_storage(w, source, storage, NULL);
    if (w->n_nodes == node || address == 0 || address_of(w, node) != 0)
        return;
    note_address(w, node, address);
    if (storage != Py_None && w->nodes[node].device == 0)
        add_extent(w, node, address, w->nodes[node].bytes, 0);
}

/* Follow the edges to the memory of a tensor's parts. A row of the answer is for each. */
int follow_parts(Walk *w, uint32_t node, PyObject *tensor) {
    PyObject *parts = parts_of(w, tensor);
    if (parts == NULL)
        return 0;
    uint32_t before = w->nodes[node].n_edges;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(parts); i++)
        follow_part(w, node, PyTuple_GET_ITEM(parts, i));
    for (uint32_t i = before + 1; i < w->nodes[node].n_edges && w->phase != PHASE_HIDDEN; i++)
        push(w, &w->tensors, node);
    return 1;
}

void note_opaque(Walk *w, uint32_t node) {
    if (w->opaque.count < MOST_OPAQUE && w->phase != PHASE_HIDDEN)
        push(w, &w->opaque, node);
}

/* Hide an object of ours, also where the collector was seen to track it. */
static void hide(Walk *w, PyObject *object) {
    uint64_t entry = find_entry(&w->index, key_of(w, object));
    Node *node = entry ? &w->nodes[node_of(entry)] : NULL;
    if (node == NULL) {
        reserve(w, object, PHASE_HIDDEN);
    } else if (node->phase == PHASE_UNREACHED) {
        node->phase = PHASE_HIDDEN;
        node->root = root_of_phase(PHASE_HIDDEN);
    }
}

/* What we were given is nobody's, and leads nowhere. */
void hide_parts(Walk *w) {
    PyObject *key, *parts;
    Py_ssize_t at = 0;
    hide(w, w->parts);
    while (PyDict_Next(w->parts, &at, &key, &parts)) {
        hide(w, parts);
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(parts); i++) {
            hide(w, PyTuple_GET_ITEM(parts, i));
            PyObject *storage = PyTuple_GET_ITEM(PyTuple_GET_ITEM(parts, i), 0);
            if (storage != Py_None)
                hide(w, storage);
        }
    }
}

/* Return the tensors whose memory is not known. */
PyObject *opaque_as_list(const Walk *w) {
    PyObject *list = PyList_New((Py_ssize_t)w->opaque.count);
    for (size_t i = 0; list && i < w->opaque.count; i++) {
        PyObject *tensor = (PyObject *)w->nodes[w->opaque.items[i]].key;
        Py_INCREF(tensor);
        PyList_SET_ITEM(list, (Py_ssize_t)i, tensor);
    }
    return list;
}
