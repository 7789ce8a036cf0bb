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

/* Return a list of (type, count, shallow bytes). */
PyObject *totals_as_list(const Walk *w) {
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list && i < w->n_totals; i++) {
        if (w->totals[i].count == 0)
            continue;
        PyObject *total =
            Py_BuildValue("(OKK)", w->types[i].type, w->totals[i].count, w->totals[i].bytes);
        if (total == NULL || PyList_Append(list, total) < 0)
            Py_CLEAR(list);
        Py_XDECREF(total);
    }
    return list;
}
