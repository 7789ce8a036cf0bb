/* How long a chain of autograd nodes may be that is asked for its nodes.
 *
 * To ask for a node makes a Python object for it, which the node then keeps for life, and torch
 * frees nodes that have one by recursion: some 190 bytes of stack for each node in a row. A chain of
 * fifty thousand, which a program may well make and torch alone frees without recursion, would then
 * crash the program. So a chain is measured while it is asked for, and left alone beyond that.
 */
#include "walk.h"

#define LONGEST_CHAIN 5000

enum { UNSEEN, OPEN = UINT16_MAX };

typedef struct {
    uint32_t node, next_edge;
} Step;

typedef struct {
    const Walk *walk;
    uint16_t *length; /* of the longest chain from a node on, by number above the first node */
    Step *path;
} Measure;

/* Return where to keep the length of a node; NULL of anything but an autograd node. */
static uint16_t *length_of(const Measure *m, uint32_t node) {
    const Walk *w = m->walk;
    int counts = node >= w->first_graph && w->types[w->nodes[node].type].rank == RANK_GRAPH;
    return counts ? &m->length[node - w->first_graph] : NULL;
}

static uint16_t longest_below(const Measure *m, const Node *node) {
    uint16_t longest = 0;
    for (uint32_t e = 0; e < node->n_edges; e++) {
        const uint16_t *length = length_of(m, m->walk->edges[node->first_edge + e]);
        if (length && *length != OPEN && *length > longest)
            longest = *length;
    }
    return longest;
}

/* Measure a node and all below it, deepest first; say whether a chain is too long. */
static int is_deep_from(const Measure *m, uint32_t start) {
    size_t at = 0;
    m->path[0] = (Step){start, 0};
    *length_of(m, start) = OPEN;
    for (;;) {
        Step *step = &m->path[at];
        const Node *node = &m->walk->nodes[step->node];
        if (step->next_edge < node->n_edges) {
            uint32_t target = m->walk->edges[node->first_edge + step->next_edge++];
            uint16_t *length = length_of(m, target);
            if (length && *length == UNSEEN) {
                *length = OPEN;
                m->path[++at] = (Step){target, 0};
            }
            continue;
        }
        uint16_t length = longest_below(m, node) + 1;
        if (length >= LONGEST_CHAIN)
            return 1;
        *length_of(m, step->node) = length;
        if (at-- == 0)
            return 0;
    }
}

static int has_long_chain(Walk *w) {
    size_t count = w->n_nodes - w->first_graph;
    Measure m = {w, fresh(w, count, sizeof(uint16_t)), fresh(w, count, sizeof(Step))};
    int deep = 0;
    if (m.length && m.path)
        for (uint32_t i = w->first_graph; i < w->n_nodes && !deep; i++) {
            const uint16_t *length = length_of(&m, i);
            deep = length && *length == UNSEEN && is_deep_from(&m, i);
        }
    drop(w, m.length);
    drop(w, m.path);
    return deep;
}

/* Say whether autograd may be asked for one more node. */
int may_ask_graph(Walk *w) {
    if (w->autograd_changes || w->graph_is_deep || w->graph_count >= (size_t)w->request.graph_budget)
        return 0;
    if (w->graph_count >= w->graph_measured + LONGEST_CHAIN) {
        w->graph_measured = w->graph_count;
        w->graph_is_deep = has_long_chain(w);
    }
    return !w->graph_is_deep;
}
