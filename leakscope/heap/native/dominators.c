/* Who alone keeps what alive: dominators by semi-NCA, and what they retain.
 *
 * Source: L. Georgiadis, "Linear-Time Algorithms for Dominators and Related Problems" (2005), §2.4.
 */
#include "walk.h"

#include <string.h>

static void number_as_next(Tree *t, uint32_t node, uint32_t above, uint32_t *parent) {
    t->number[node] = t->count;
    t->node[t->count] = node;
    parent[t->count++] = above;
}

/* Number the nodes in depth-first order from the virtual root at position 0. */
static void depth_first(Walk *w, Tree *t, uint32_t *parent, uint32_t *cursor) {
    uint32_t at = 0;
    t->count = 1;
    t->node[0] = NONE;
    for (;;) {
        const Node *node = at ? &w->nodes[t->node[at]] : NULL;
        const uint32_t *targets = node ? w->edges + node->first_edge : w->seeds.items;
        uint32_t n = node ? node->n_edges : (uint32_t)w->seeds.count, i = cursor[at];
        while (i < n) {
            if (i + 8 < n)
                __builtin_prefetch(&t->number[targets[i + 8]]);
            if (i + 4 < n)
                __builtin_prefetch(&w->nodes[targets[i + 4]]);
            uint32_t target = targets[i++];
            if (t->number[target])
                continue;
            number_as_next(t, target, at, parent);
            if (w->nodes[target].n_edges) {
                cursor[at] = i;
                at = t->count - 1;
                goto deeper;
            }
        }
        if (at == 0)
            return;
        at = parent[at];
    deeper:;
    }
}

/* Fill `before[first[v] .. first[v + 1]]` with the positions of the predecessors of v. From then on
 * edges lead to positions. */
static void turn_edges_round(Walk *w, const Tree *t, uint32_t *first, uint32_t *before) {
    for (size_t e = 0; e < w->n_edges; e++)
        first[w->edges[e] = t->number[w->edges[e]]]++;
    for (size_t e = 0; e < w->seeds.count; e++)
        first[t->number[w->seeds.items[e]]]++;
    for (uint32_t i = 1; i <= t->count; i++)
        first[i] += first[i - 1];
    for (size_t k = 0; k < w->n_nodes; k++) {
        const uint32_t *targets = w->edges + w->nodes[k].first_edge;
        for (uint32_t e = 0; e < w->nodes[k].n_edges; e++)
            before[--first[targets[e]]] = t->number[k];
    }
    for (size_t e = 0; e < w->seeds.count; e++)
        before[--first[t->number[w->seeds.items[e]]]] = 0;
}

/* Return the least label on the path from v up to what was not yet processed, shortening it. */
static inline uint32_t evaluate(uint32_t v, uint32_t last, uint32_t *ancestor, uint32_t *label,
                                uint32_t *path) {
    if (v <= last)
        return label[v];
    size_t n = 0;
    uint32_t u = v;
    while (ancestor[u] > last) {
        path[n++] = u;
        u = ancestor[u];
    }
    while (n-- > 0) {
        u = path[n];
        uint32_t above = ancestor[u];
        if (label[above] < label[u])
            label[u] = label[above];
        ancestor[u] = ancestor[above];
    }
    return label[v];
}

/* After its own turn a node's label is its semidominator, until an evaluation lowers it to the least
 * on its path; the climb needs the semidominator, so it is kept apart. */
static void climb(Tree *t, uint32_t *parent, uint32_t *label, uint32_t *semi,
                  const uint32_t *first, const uint32_t *before, uint32_t *path) {
    for (uint32_t i = 0; i < t->count; i++)
        label[i] = i;
    for (uint32_t v = t->count - 1; v > 0; v--) {
        uint32_t best = v;
        for (uint32_t e = first[v]; e < first[v + 1]; e++) {
            uint32_t found = evaluate(before[e], v, parent, label, path);
            if (found < best)
                best = found;
        }
        semi[v] = label[v] = best;
    }
    for (uint32_t v = 1; v < t->count; v++) {
        uint32_t above = t->dominator[v];
        while (above > semi[v])
            above = t->dominator[above];
        t->dominator[v] = above;
    }
}

int find_dominators(Walk *w, Tree *t) {
    size_t size = w->n_nodes + 1;
    int result = -1;
    uint32_t *parent = fresh(w, size, 4), *cursor = fresh(w, size, 4), *label = NULL,
             *first = NULL, *before = NULL;
    t->number = fresh(w, size, 4);
    t->node = fresh(w, size, 4);
    if (!parent || !cursor || !t->number || !t->node || w->n_edges + w->seeds.count >= NONE)
        goto out;
    depth_first(w, t, parent, cursor);
    label = fresh(w, t->count, 4);
    first = fresh(w, (size_t)t->count + 1, 4);
    before = fresh(w, w->n_edges + w->seeds.count, 4);
    t->dominator = fresh(w, t->count, 4);
    if (!label || !first || !before || !t->dominator)
        goto out;
    turn_edges_round(w, t, first, before);
    memcpy(t->dominator, parent, t->count * sizeof *parent);
    uint32_t *semi = t->number, *path = cursor; /* both are done with until they are made anew */
    memset(semi, 0, size * 4);
    climb(t, parent, label, semi, first, before, path);
    memset(t->number, 0, size * 4);
    for (uint32_t v = 1; v < t->count; v++)
        t->number[t->node[v]] = v;
    result = 0;
out:
    drop(w, parent);
    drop(w, cursor);
    drop(w, label);
    drop(w, first);
    drop(w, before);
    return result;
}

/* Sum up how much each node retains that can't be read. */
static int sum_unread(Walk *w, Tree *t) {
    for (size_t i = 0; i < w->n_unread; i++) {
        uint32_t device = w->nodes[w->unread[i].node].device;
        if (!t->unread[device] && !(t->unread[device] = fresh(w, t->count, 8)))
            return -1;
        t->unread[device][t->number[w->unread[i].node]] += w->unread[i].bytes;
    }
    for (uint32_t d = 0; d < w->n_devices; d++)
        for (uint32_t v = t->unread[d] ? t->count - 1 : 0; v > 0; v--)
            t->unread[d][t->dominator[v]] += t->unread[d][v];
    return 0;
}

/* Sum up what each node retains: its own bytes and those of all that it dominates. */
int sum_retained(Walk *w, Tree *t) {
    t->host = fresh(w, t->count, 8);
    t->graph_nodes = fresh(w, t->count, 4);
    if (!t->host || !t->graph_nodes)
        return -1;
    for (uint32_t d = 1; d < w->n_devices; d++)
        if ((t->device[d] = fresh(w, t->count, 8)) == NULL)
            return -1;
    for (size_t i = 0; i < w->order.count; i++) {
        const Node *node = &w->nodes[w->order.items[i]];
        uint64_t *column = node->device ? t->device[node->device] : t->host;
        uint32_t v = t->number[w->order.items[i]];
        column[v] = node->bytes;
        t->graph_nodes[v] = w->types[node->type].rank == RANK_GRAPH;
    }
    for (uint32_t v = t->count - 1; v > 0; v--) {
        uint32_t above = t->dominator[v];
        t->host[above] += t->host[v];
        t->graph_nodes[above] += t->graph_nodes[v];
        for (uint32_t d = 1; d < w->n_devices; d++)
            t->device[d][above] += t->device[d][v];
    }
    return sum_unread(w, t);
}

/* Sum up what is named through each node: its own bytes and those of all whose path leads on. */
int sum_reached(Walk *w, Tree *t) {
    for (uint32_t d = 0; d < w->n_devices; d++) {
        uint64_t *sums = t->reached[d] = fresh(w, w->n_nodes, 8);
        if (sums == NULL)
            return -1;
        for (size_t i = w->order.count; i-- > 0;) {
            uint32_t number = w->order.items[i];
            const Node *node = &w->nodes[number];
            if (node->device == d)
                sums[number] += node->flags & NODE_SEALED ? named_bytes(w, number) : node->bytes;
            if (node->parent != NONE)
                sums[node->parent] += sums[number];
        }
    }
    return 0;
}

/* Return what the node at a position retains on all devices. */
uint64_t total_of(const Walk *w, const Tree *t, uint32_t position) {
    uint64_t total = t->host[position];
    for (uint32_t d = 1; d < w->n_devices; d++)
        total += t->device[d][position];
    return total;
}

/* Return how much of that can't be read. */
uint64_t unread_of(const Walk *w, const Tree *t, uint32_t position) {
    uint64_t total = 0;
    for (uint32_t d = 0; d < w->n_devices; d++)
        total += t->unread[d] ? t->unread[d][position] : 0;
    return total;
}

/* By what a node is selected: under user roots also by what is named through it. */
uint64_t worth_of(const Walk *w, const Tree *t, uint32_t number) {
    if (w->nodes[number].phase != PHASE_USER)
        return total_of(w, t, t->number[number]);
    uint64_t total = 0;
    for (uint32_t d = 0; d < w->n_devices; d++)
        total += t->reached[d][number];
    return total;
}
