/* Totals by type, of every object walked: also of those that have no node of their own. */
#include "walk.h"

void count_object(Walk *w, uint32_t type, uint64_t bytes) {
    if (type == NONE || w->failed)
        return;
    if (type >= w->n_totals) {
        uint32_t n = type < 128 ? 256 : type * 2;
        TypeTotal *totals = fresh(w, n, sizeof *totals);
        if (totals == NULL)
            return;
        for (uint32_t i = 0; i < w->n_totals; i++)
            totals[i] = w->totals[i];
        drop(w, w->totals);
        w->totals = totals;
        w->n_totals = n;
    }
    w->totals[type].count++;
    w->totals[type].bytes += bytes;
}

/* Add up, by device, the memory that was first reached through an object of this type. */
static void sum_payload(const Walk *w, uint32_t type, uint64_t *bytes) {
    for (size_t i = 0; i < w->order.count; i++) {
        const Node *node = &w->nodes[w->order.items[i]];
        int is_asked_for = w->baseline ? node->phase == PHASE_NATIVE : node->phase != PHASE_HIDDEN;
        if (node->type < MEMORY_TYPES && is_asked_for && w->nodes[node->parent].type == type)
            bytes[node->device] += node->bytes;
    }
}

/* By type, some of what is new and none of the user's names reaches. The nodes of new objects come in the
 * order of the collector's lists: the youngest first. */
static PyObject **sample_new(Walk *w) {
    PyObject **samples = fresh(w, w->n_totals ? w->n_totals : 1, sizeof *samples);
    for (size_t i = 0; samples && i < w->n_nodes && w->request.new_samples > 0; i++) {
        const Node *node = &w->nodes[i];
        if (node->phase != PHASE_NATIVE || node->type >= w->n_totals || w->types[node->type].type == NULL)
            continue;
        PyObject **list = &samples[node->type];
        if (*list == NULL && (*list = PyList_New(0)) == NULL)
            break;
        if (PyList_GET_SIZE(*list) < w->request.new_samples &&
            PyList_Append(*list, (PyObject *)node->key) < 0)
            break;
    }
    return samples;
}

/* Of what is new and none of the user's names reaches, where that is looked at, else of all.
 * Return a list of (type, count, shallow bytes, payload by device, samples of what is new). */
PyObject *totals_as_list(Walk *w) {
    PyObject *list = PyList_New(0);
    PyObject **samples = w->baseline ? sample_new(w) : NULL;
    for (uint32_t i = 0; list && i < w->n_totals; i++) {
        if (w->totals[i].count == 0)
            continue;
        uint64_t payload[MAX_DEVICES] = {0};
        if (w->types[i].flags & TYPES_WITH_PAYLOAD)
            sum_payload(w, i, payload);
        PyObject *few = samples && samples[i] ? Py_NewRef(samples[i]) : PyList_New(0);
        PyObject *total =
            few ? Py_BuildValue("(OKKNN)", w->types[i].type, w->totals[i].count, w->totals[i].bytes,
                                bytes_by_device(w, payload, 1), few)
                : NULL;
        if (total == NULL || PyList_Append(list, total) < 0)
            Py_CLEAR(list);
        Py_XDECREF(total);
    }
    for (uint32_t i = 0; samples && i < w->n_totals; i++)
        Py_XDECREF(samples[i]);
    drop(w, samples);
    if (list && PyErr_Occurred())
        Py_CLEAR(list);
    return list;
}
