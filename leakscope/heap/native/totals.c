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

/* Of what is new and none of the user's names reaches, where that is looked at, else of all.
 * Return a list of (type, count, shallow bytes, payload by device). */
PyObject *totals_as_list(Walk *w) {
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list && i < w->n_totals; i++) {
        if (w->totals[i].count == 0)
            continue;
        uint64_t payload[MAX_DEVICES] = {0};
        if (w->types[i].flags & TYPES_WITH_PAYLOAD)
            sum_payload(w, i, payload);
        PyObject *total = Py_BuildValue("(OKKN)", w->types[i].type, w->totals[i].count,
                                        w->totals[i].bytes, bytes_by_device(w, payload, 1));
        if (total == NULL || PyList_Append(list, total) < 0)
            Py_CLEAR(list);
        Py_XDECREF(total);
    }
    return list;
}
