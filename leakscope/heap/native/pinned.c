/* Objects asked about by name: answered whatever they weigh, with who refers to them. */
#include "walk.h"

int watch_pinned(Walk *w) {
    PyObject *list = w->request.pinned;
    size_t count = (size_t)PyList_GET_SIZE(list);
    if (count == 0)
        return 0;
    w->pinned = fresh(w, count, sizeof *w->pinned);
    if (w->pinned == NULL)
        return -1;
    for (size_t i = 0; i < count; i++)
        w->pinned[i] = (Pinned){.object = PyList_GET_ITEM(list, (Py_ssize_t)i), .node = NONE};
    w->n_pinned = (uint32_t)count;
    return 0;
}

static void add_referrer(Pinned *pinned, uint32_t source) {
    uint32_t n = pinned->n_referrers;
    int is_known = n && pinned->referrers[n - 1] == source; /* edges of a source come in a row */
    if (n < MAX_REFERRERS && !is_known)
        pinned->referrers[pinned->n_referrers++] = source;
}

/* That an instance refers to its class, and an object to itself, says nothing about who holds it. */
void note_referrer(Walk *w, uint32_t source, PyObject *target) {
    PyObject *object = (PyObject *)w->nodes[source].key;
    if (w->phase == PHASE_HIDDEN || object == target || (PyObject *)Py_TYPE(object) == target)
        return;
    for (uint32_t i = 0; i < w->n_pinned; i++)
        if (w->pinned[i].object == target)
            add_referrer(&w->pinned[i], source);
}

/* Look up their nodes while there is an index. */
void find_pinned(Walk *w) {
    for (uint32_t i = 0; i < w->n_pinned; i++) {
        uint64_t entry = find_entry(&w->index, key_of(w, w->pinned[i].object));
        w->pinned[i].node = entry ? node_of(entry) : NONE;
    }
}

/* Return whether a pinned object was reached by anybody but leakscope. */
static int is_reached(const Walk *w, const Tree *t, const Pinned *pinned) {
    return pinned->node != NONE && t->number[pinned->node] &&
           w->nodes[pinned->node].phase != PHASE_HIDDEN;
}

/* Name what is pinned and what refers to it. */
void name_pinned(Walk *w, const Tree *t, Choice *c, Numbers *named) {
    for (uint32_t i = 0; i < w->n_pinned; i++) {
        const Pinned *pinned = &w->pinned[i];
        if (!is_reached(w, t, pinned))
            continue;
        add_with_ancestors(w, c, named, pinned->node);
        for (uint32_t r = 0; r < pinned->n_referrers; r++)
            add_with_ancestors(w, c, named, pinned->referrers[r]);
    }
}

/* Choose what is pinned and all its ancestors: whatever alone keeps it alive is among them. */
void choose_pinned(Walk *w, const Tree *t, Choice *c) {
    if (w->n_pinned == 0 || c->n_named == 0 || w->failed)
        return;
    Candidate *chosen = resized(w, c->chosen, c->n_named * sizeof *chosen);
    if (chosen == NULL)
        return;
    c->chosen = chosen;
    for (uint32_t i = 0; i < w->n_pinned; i++) {
        uint32_t n = is_reached(w, t, &w->pinned[i]) ? w->pinned[i].node : NONE;
        for (; n != NONE; n = w->nodes[n].parent) {
            if (!(c->place[n] & CHOSEN))
                c->chosen[c->n_chosen++] = (Candidate){.node = n};
            c->place[n] |= CHOSEN;
        }
    }
}

/* Return the places of those that refer to a node; an empty list where it is not pinned. */
PyObject *referrers_as_list(const Walk *w, const Choice *c, uint32_t number) {
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list && i < w->n_pinned; i++)
        for (uint32_t r = 0; list && w->pinned[i].node == number && r < w->pinned[i].n_referrers; r++) {
            PyObject *place = PyLong_FromUnsignedLong(PLACE(c->place[w->pinned[i].referrers[r]]));
            if (place == NULL || PyList_Append(list, place) < 0)
                Py_CLEAR(list);
            Py_XDECREF(place);
        }
    return list;
}
