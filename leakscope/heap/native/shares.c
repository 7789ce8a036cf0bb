/* Leak shares: what growing containers that hold the same objects account for together.
 *
 * What can be reached past all of them stays whatever is fixed. Of the rest every byte is split
 * evenly among the growers that reach it, so that shares add up to the whole; what one grower alone
 * reaches is what fixing it alone would free. A grower that lies within another takes its part
 * first.
 *
 * Source of the method: LeakShare of BLeak (Vilk and Berger, PLDI 2018), as LeakCanary's
 * LeakShareCalculator.kt carries it out.
 */
#include "walk.h"

#include <string.h>

#define MOST_GROUPS 62
#define STAYS ((uint64_t)1 << 63)
#define BARRED ((uint64_t)1 << 62)

typedef struct {
    Node *nodes;
    size_t n_nodes;
    uint32_t *edges, *node; /* edges lead to positions, `node` from position to node */
    Numbers seeds;
    uint32_t n_devices;
} Graph;

static const char *const graph_name = "leakscope.heap.graph";

static void free_graph(PyObject *capsule) {
    Graph *g = PyCapsule_GetPointer(capsule, graph_name);
    if (g == NULL)
        return;
    Walk nobody = {0};
    drop(&nobody, g->nodes);
    drop(&nobody, g->edges);
    drop(&nobody, g->node);
    drop(&nobody, g->seeds.items);
    PyMem_Free(g);
}

/* Return a capsule that takes over what the walk and the tree no longer need. */
PyObject *keep_graph(Walk *w, Tree *t) {
    Graph *g = PyMem_Calloc(1, sizeof *g);
    if (g == NULL)
        return PyErr_NoMemory();
    PyObject *capsule = PyCapsule_New(g, graph_name, free_graph);
    if (capsule == NULL) {
        PyMem_Free(g);
        return NULL;
    }
    *g = (Graph){w->nodes, w->n_nodes, w->edges, t->node, w->seeds, w->n_devices};
    w->nodes = NULL;
    w->edges = NULL;
    t->node = NULL;
    w->seeds = (Numbers){0};
    return capsule;
}

/* Mark what can be reached from the marked nodes on the stack without meeting any of `without`. */
static int spread(Walk *w, const Graph *g, Numbers *stack, uint64_t *masks, uint64_t mark,
                  uint64_t without) {
    while (stack->count) {
        const Node *node = &g->nodes[stack->items[--stack->count]];
        for (uint32_t e = 0; e < node->n_edges; e++) {
            uint32_t target = g->node[g->edges[node->first_edge + e]];
            if (masks[target] & (mark | without))
                continue;
            masks[target] |= mark;
            if (push(w, stack, target) < 0)
                return -1;
        }
    }
    return 0;
}

static int mark_node(Walk *w, Numbers *stack, uint64_t *masks, uint32_t node, uint64_t mark) {
    masks[node] |= mark;
    return push(w, stack, node);
}

typedef struct {
    uint32_t *items;
    size_t count;
} Group;

static int mark_all(Walk *w, const Graph *g, uint64_t *masks, const Group *groups, size_t n) {
    Numbers stack = {0};
    int result = -1;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < groups[i].count; k++)
            masks[groups[i].items[k]] |= BARRED;
    for (size_t i = 0; i < g->seeds.count; i++)
        if (!(masks[g->seeds.items[i]] & (BARRED | STAYS)) &&
            mark_node(w, &stack, masks, g->seeds.items[i], STAYS) < 0)
            goto out;
    if (spread(w, g, &stack, masks, STAYS, BARRED) < 0)
        goto out;
    for (size_t i = 0; i < n; i++) {
        uint64_t mark = (uint64_t)1 << i;
        for (size_t k = 0; k < groups[i].count; k++)
            if (mark_node(w, &stack, masks, groups[i].items[k], mark) < 0)
                goto out;
        if (spread(w, g, &stack, masks, mark, STAYS) < 0)
            goto out;
    }
    result = 0;
out:
    drop(w, stack.items);
    return result;
}

/* Find which groups lie within which: one that reaches the other's objects and is not reached back. */
static void find_outer(const uint64_t *masks, const Group *groups, size_t n, uint64_t *outer) {
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < groups[i].count; k++)
            outer[i] |= masks[groups[i].items[k]] & (BARRED - 1) & ~((uint64_t)1 << i);
    uint64_t reached[MOST_GROUPS];
    memcpy(reached, outer, n * sizeof *outer);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n; j++)
            if ((reached[i] >> j & 1) && (reached[j] >> i & 1))
                outer[i] &= ~((uint64_t)1 << j);
}

typedef struct {
    uint64_t share[MAX_DEVICES], exclusive[MAX_DEVICES], others;
} Share;

static void split(const Graph *g, const uint64_t *masks, const uint64_t *outer, size_t n,
                  Share *shares) {
    for (size_t k = 0; k < g->n_nodes; k++) {
        uint64_t reaching = masks[k] & STAYS ? 0 : masks[k] & (BARRED - 1), inner = reaching;
        for (uint64_t left = reaching; left; left &= left - 1)
            inner &= ~outer[__builtin_ctzll(left)];
        if (g->nodes[k].bytes == 0 || inner == 0)
            continue;
        uint64_t parts = (uint64_t)__builtin_popcountll(inner);
        for (uint64_t left = inner; left; left &= left - 1) {
            Share *share = &shares[__builtin_ctzll(left)];
            share->share[g->nodes[k].device] += g->nodes[k].bytes / parts;
            if (parts == 1)
                share->exclusive[g->nodes[k].device] += g->nodes[k].bytes;
            else
                share->others |= inner;
        }
    }
    for (size_t i = 0; i < n; i++)
        shares[i].others &= ~((uint64_t)1 << i);
}

static PyObject *bytes_as_list(const Graph *g, const uint64_t *bytes) {
    PyObject *list = PyList_New(g->n_devices);
    for (uint32_t d = 0; list && d < g->n_devices; d++) {
        PyObject *value = PyLong_FromUnsignedLongLong(bytes[d]);
        if (value == NULL)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, d, value);
    }
    return list;
}

static PyObject *shares_as_list(const Graph *g, const Share *shares, size_t n) {
    PyObject *list = PyList_New((Py_ssize_t)n);
    for (size_t i = 0; list && i < n; i++) {
        PyObject *others = PyList_New(0);
        for (size_t j = 0; others && j < n; j++)
            if (shares[i].others >> j & 1) {
                PyObject *number = PyLong_FromSize_t(j);
                if (number == NULL || PyList_Append(others, number) < 0)
                    Py_CLEAR(others);
                Py_XDECREF(number);
            }
        PyObject *row = Py_BuildValue("(NNN)", bytes_as_list(g, shares[i].share),
                                      bytes_as_list(g, shares[i].exclusive), others);
        if (row == NULL)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, (Py_ssize_t)i, row);
    }
    return list;
}

static int read_group(Walk *w, const Graph *g, PyObject *numbers, Group *group) {
    if (!PyList_Check(numbers))
        return -1;
    size_t n = (size_t)PyList_GET_SIZE(numbers);
    group->items = fresh(w, n ? n : 1, 4);
    for (size_t i = 0; group->items && i < n; i++) {
        size_t number = PyLong_AsSize_t(PyList_GET_ITEM(numbers, (Py_ssize_t)i));
        if (number >= g->n_nodes)
            return -1;
        group->items[group->count++] = (uint32_t)number;
    }
    return group->items ? 0 : -1;
}

PyObject *leak_shares(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *capsule, *lists;
    if (!PyArg_ParseTuple(args, "OO!", &capsule, &PyList_Type, &lists))
        return NULL;
    Graph *g = PyCapsule_GetPointer(capsule, graph_name);
    size_t n = (size_t)PyList_GET_SIZE(lists);
    if (g == NULL)
        return NULL;
    if (n > MOST_GROUPS)
        return PyErr_Format(PyExc_ValueError, "at most %d groups can share", MOST_GROUPS);
    Walk scratch = {0};
    Group groups[MOST_GROUPS] = {{0}};
    uint64_t outer[MOST_GROUPS] = {0};
    uint64_t *masks = fresh(&scratch, g->n_nodes + 1, 8);
    Share *shares = fresh(&scratch, n + 1, sizeof *shares);
    PyObject *answer = NULL;
    int valid = masks != NULL && shares != NULL;
    for (size_t i = 0; valid && i < n; i++)
        valid = read_group(&scratch, g, PyList_GET_ITEM(lists, (Py_ssize_t)i), &groups[i]) == 0;
    if (valid && mark_all(&scratch, g, masks, groups, n) == 0) {
        find_outer(masks, groups, n, outer);
        split(g, masks, outer, n, shares);
        answer = shares_as_list(g, shares, n);
    }
    for (size_t i = 0; i < n; i++)
        drop(&scratch, groups[i].items);
    drop(&scratch, masks);
    drop(&scratch, shares);
    if (answer == NULL && !PyErr_Occurred())
        PyErr_SetString(scratch.failed ? PyExc_MemoryError : PyExc_ValueError,
                        "a group is a list of node numbers");
    return answer;
}
