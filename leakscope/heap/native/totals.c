/* Totals by type: of every object walked, also of those that have no node of their own; and of new objects to
 * which somebody refers whom the walk can't see. */
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
        int is_counted = w->baseline ? node->phase == PHASE_NATIVE : node->phase != PHASE_HIDDEN;
        if (node->type < MEMORY_TYPES && is_counted && w->nodes[node->parent].type == type)
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
        if (PyList_GET_SIZE(*list) < w->request.new_samples && !may_be_unfinished(node) &&
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

/* Take note of such an object; of a whole heap only of one that is new. */
void add_head(Walk *w, uint32_t node, int64_t references) {
    if (w->baseline == NULL && (w->since == NULL || !has_begun(w->since) ||
                                is_known(w->since, (PyObject *)w->nodes[node].key)))
        return;
    if (w->n_heads == w->cap_heads) {
        size_t capacity = w->cap_heads ? w->cap_heads * 2 : 256;
        Head *heads = resized(w, w->heads, capacity * sizeof *heads);
        if (heads == NULL)
            return;
        w->heads = heads;
        w->cap_heads = capacity;
    }
    w->heads[w->n_heads++] = (Head){node, references};
}

/* Give each object the bytes, on the host, that are reached through it first. */
static uint64_t *bytes_of_heads(Walk *w) {
    uint32_t *of = fresh(w, w->n_heads ? w->n_nodes : 1, 4); /* node -> its head, plus one */
    uint64_t *bytes = fresh(w, w->n_heads + 1, 8);
    for (size_t i = 0; of && bytes && i < w->n_heads; i++)
        of[w->heads[i].node] = (uint32_t)i + 1;
    for (size_t i = 0; of && bytes && w->n_heads && i < w->order.count; i++) {
        uint32_t number = w->order.items[i];
        const Node *node = &w->nodes[number];
        if (node->phase != PHASE_NATIVE || node->flags & NODE_SEALED)
            continue;
        if (!of[number] && node->parent != NONE)
            of[number] = of[node->parent];
        if (of[number] && node->device == 0)
            bytes[of[number] - 1] += node->bytes;
    }
    drop(w, of);
    return bytes;
}

typedef struct {
    uint32_t type;
    uint64_t count, bytes;
    int64_t least, most;
    PyObject *samples; /* a list */
} HeadTotal;

static void add_to_total(HeadTotal *total, const Walk *w, const Head *head, uint64_t bytes) {
    total->least = total->count == 0 || head->references < total->least ? head->references : total->least;
    total->most = head->references > total->most ? head->references : total->most;
    total->count++;
    total->bytes += bytes;
    if (total->samples == NULL)
        total->samples = PyList_New(0);
    const Node *node = &w->nodes[head->node];
    if (total->samples && PyList_GET_SIZE(total->samples) < w->request.max_samples &&
        !may_be_unfinished(node) && PyList_Append(total->samples, (PyObject *)node->key) < 0)
        Py_CLEAR(total->samples);
}

/* Return a list of (type, count, bytes reached, least and most such references of one, samples). */
PyObject *heads_as_list(Walk *w) {
    PyObject *list = PyList_New(0);
    uint64_t *bytes = bytes_of_heads(w);
    HeadTotal *totals = fresh(w, w->n_types ? w->n_types : 1, sizeof *totals);
    for (size_t i = 0; bytes && totals && i < w->n_heads; i++)
        add_to_total(&totals[w->nodes[w->heads[i].node].type], w, &w->heads[i], bytes[i]);
    for (uint32_t i = 0; list && totals && i < w->n_types; i++) {
        if (totals[i].count == 0 || totals[i].samples == NULL)
            continue;
        PyObject *total = Py_BuildValue("(OKKLLO)", w->types[i].type, totals[i].count, totals[i].bytes,
                                        (long long)totals[i].least, (long long)totals[i].most, totals[i].samples);
        if (total == NULL || PyList_Append(list, total) < 0)
            Py_CLEAR(list);
        Py_XDECREF(total);
    }
    for (uint32_t i = 0; totals && i < w->n_types; i++)
        Py_XDECREF(totals[i].samples);
    drop(w, totals);
    drop(w, bytes);
    if (list && PyErr_Occurred())
        Py_CLEAR(list);
    return list;
}
