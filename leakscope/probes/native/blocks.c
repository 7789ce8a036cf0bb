/* Which lines of Python made the objects that are alive: a sample of the blocks of Python's own
 * allocators, which take small ones from arenas that malloc never sees.
 *
 * A layer in front of them (layers.h) chooses blocks as the wrappers do, by bytes. Of a chosen one
 * the lines of Python are kept until it is freed. A look-up by the address of an object then tells
 * which line made it, all run long, where tracemalloc would tell it of every block while it is on.
 *
 * The GIL is enough of a lock but for interpreters with one of their own: who changes the table
 * takes one besides, which nearly always is free.
 */
#include "layers.h"
#include "sampling.h"

#include <math.h>
#include <sched.h>
#include <string.h>
#include <time.h>

typedef struct {
    uintptr_t address; /* 0: unused, and `next` is the next unused one */
    uint32_t size;
    uint32_t next;
    float interval; /* mean of the draw that chose it */
    uint32_t lines;
    uint32_t line[PYTHON_FRAMES];
} Block;

enum { INDEX_BITS = 17, MOST_BLOCKS = 3 << 14 }; /* beyond two thirds of them they are thinned out */
#define PLACES (1u << INDEX_BITS)

/* Small objects are drawn by bytes of their own; so are the tables of containers, which are larger
   or were made by enlarging another: few of them tell more than many objects. A large block counts
   as this many bytes, so that texts and buffers don't crowd the tables out. */
typedef enum { OBJECTS, TABLES, ENLARGED, DRAWS } Class;
enum { SMALL = 512, LARGE = 32768, TABLES_MORE = 8 };

typedef struct {
    unsigned long long left; /* bytes that are not chosen yet */
    double left_for;         /* the interval by which that was drawn */
    double base, interval;
    double round_began, spare; /* draws that weren't made in quiet times */
    unsigned of_round;
} Draw;

static Draw draws[DRAWS];

/* A program that allocates much has fewer of its bytes chosen: of each class so many times a second,
   each a part of a microsecond, and so many more in a burst. How much it allocates is looked at after
   so many seconds or draws. */
static const double PER_SECOND = 1000, BURST = 1024, ROUND_SECONDS = 0.1, SHORTEST_ROUND = 0.004;
enum { ROUND_DRAWS = 64, STEEPEST = 4 };
/* Of what leakscope itself allocates nothing is kept: as it works, draws are at least so far apart.
   The first that falls on the program's own counts for as much. */
static const double OWN_INTERVAL = 2048;

static Block *blocks; /* from 1 */
static uint32_t *places; /* of blocks by address, with linear probing */
unsigned char near_blocks[NEIGHBOURHOODS] __attribute__((aligned(4096)));
static uint32_t blocks_fresh, blocks_unused, blocks_alive;
static unsigned long long taken, thinned_blocks, drawn_times;
static double handed_out; /* an estimate of how many blocks were */
static int is_on;
static atomic_int held;

static void hold(void) {
    while (atomic_exchange(&held, 1))
        sched_yield();
}

static void let_go(void) {
    atomic_store(&held, 0);
}

/* The table */

static uint32_t place_of(uintptr_t address) {
    return (uint32_t)((address >> 4) * UINT64_C(0xD6E8FEB86659FD93) >> (64 - INDEX_BITS));
}

static uint32_t place_found(uintptr_t address) {
    uint32_t place = place_of(address);
    while (places[place] != 0 && blocks[places[place]].address != address)
        place = (place + 1) % PLACES;
    return place;
}

static void count_near(uintptr_t address, int more) {
    unsigned char *count = &near_blocks[neighbourhood(address)];
    if (*count != 255) /* one that reached the top stays there: that costs look-ups, no block */
        *count = (unsigned char)(*count + more);
}

static void take_out(uint32_t place) {
    uint32_t number = places[place], hole = place;
    count_near(blocks[number].address, -1);
    blocks[number].address = 0;
    blocks[number].next = blocks_unused;
    blocks_unused = number;
    blocks_alive--;
    /* What was put further because of it comes nearer. */
    for (uint32_t at = (hole + 1) % PLACES; places[at] != 0; at = (at + 1) % PLACES) {
        uint32_t wanted = place_of(blocks[places[at]].address);
        if ((at - wanted) % PLACES >= (at - hole) % PLACES) {
            places[hole] = places[at];
            hole = at;
        }
    }
    places[hole] = 0;
}

static void put_in(uintptr_t address, uint32_t size, double drawn_for, const Sample *stack) {
    uint32_t place = place_found(address);
    if (places[place] != 0) { /* it was freed by somebody whose calls aren't seen */
        take_out(place);
        place = place_found(address);
    }
    uint32_t number = blocks_unused;
    if (number != 0)
        blocks_unused = blocks[number].next;
    else if (blocks_fresh < MOST_BLOCKS)
        number = ++blocks_fresh;
    else
        return;
    blocks[number] = (Block){.address = address, .size = size, .interval = (float)drawn_for,
                             .lines = stack->pythons};
    memcpy(blocks[number].line, stack->python, sizeof stack->python);
    places[place] = number;
    count_near(address, 1);
    blocks_alive++;
    taken++;
}

static void forget(uintptr_t address) {
    hold();
    uint32_t place = place_found(address);
    if (places[place] != 0)
        take_out(place);
    let_go();
}

static void forget_all(void) {
    hold();
    memset(places, 0, PLACES * sizeof *places);
    memset(near_blocks, 0, sizeof near_blocks);
    blocks_fresh = blocks_unused = blocks_alive = 0;
    let_go();
}

static double chance(double size, double mean) {
    return mean > 0 ? -expm1(-(size < LARGE ? size : LARGE) / mean) : 1.0;
}

/* Room becomes short: as many stay as would have been chosen with twice the interval. */
static void thin_out(void) {
    for (int i = 0; i < DRAWS; i++)
        draws[i].base *= 2;
    hold();
    for (uint32_t number = 1; number <= blocks_fresh; number++) {
        Block *block = &blocks[number];
        if (block->address == 0)
            continue;
        double was = chance(block->size, block->interval);
        double is = chance(block->size, 2 * block->interval);
        if (uniform() * was < is)
            block->interval *= 2;
        else {
            take_out(place_found(block->address));
            thinned_blocks++;
        }
    }
    let_go();
}

/* Choosing */

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void keep_pace(Draw *draw) {
    double now = seconds(), took = now - draw->round_began;
    if (++draw->of_round < ROUND_DRAWS + draw->spare && took < ROUND_SECONDS)
        return;
    took = took > SHORTEST_ROUND ? took : SHORTEST_ROUND;
    double spare = draw->spare + PER_SECOND * took - draw->of_round;
    draw->spare = spare < 0 ? 0 : spare < BURST ? spare : BURST;
    double wanted = draw->interval * draw->of_round / took / PER_SECOND;
    wanted = spare > 0 ? wanted / 2 : wanted; /* what is spare is for more of them */
    /* A burst is shorter than a tick of this clock: how fast it is nobody knows. */
    wanted = fmin(wanted, draw->interval * STEEPEST);
    draw->interval = wanted < draw->base ? draw->base : wanted;
    draw->of_round = 0;
    draw->round_began = now;
}

static void draw_next(Draw *draw, double interval) {
    double bytes = -log(uniform()) * interval;
    draw->left_for = interval;
    draw->left = bytes < 0x1p62 ? (unsigned long long)bytes : 1ull << 62;
}

typedef struct {
    void *block;
    size_t size;
    double drawn_for;
    Draw *draw;
} Chosen;

static void keep_block(void *argument) {
    Chosen *chosen = argument;
    Sample stack;
    Origin origin = stacks_users(&stack);
    Draw *draw = chosen->draw;
    if (origin == OWN) { /* no part of the program's pace, nor of what it costs */
        draw_next(draw, draw->interval > OWN_INTERVAL ? draw->interval : OWN_INTERVAL);
        return;
    }
    drawn_times++;
    handed_out += 1 / chance((double)chosen->size, chosen->drawn_for);
    keep_pace(draw);
    if (origin != USER)
        return;
    uint32_t size = chosen->size < UINT32_MAX ? (uint32_t)chosen->size : UINT32_MAX;
    hold();
    put_in((uintptr_t)chosen->block, size, chosen->drawn_for, &stack);
    let_go();
}

static __attribute__((noinline, cold)) void choose(void *block, size_t size, Draw *draw) {
    Chosen chosen = {block, size, draw->left_for, draw};
    if (!is_on || !atomic_load_explicit(&sampling, memory_order_relaxed)) {
        draw->left = 1ull << 62;
        return;
    }
    if (UNLIKELY(blocks_alive > MOST_BLOCKS / 3 * 2))
        thin_out();
    draw_next(draw, draw->interval);
    if (block != NULL && size != 0)
        guarded(keep_block, &chosen);
}

/* Whether a block of this size is chosen; of nearly all that is one subtraction, before they are
   allocated, so that the call for them can be the last thing. */
static inline Draw *drawn(size_t size, Class class) {
    Draw *draw = &draws[class];
    size_t counted = size < LARGE ? size : LARGE;
    if (UNLIKELY(counted > draw->left))
        return draw;
    draw->left -= counted;
    return NULL;
}

static inline Draw *drawn_by_size(size_t size) {
    return drawn(size, size <= SMALL ? OBJECTS : TABLES);
}

static __attribute__((noinline, cold)) void *malloc_chosen(PyMemAllocatorEx *inner, size_t size,
                                                           Draw *draw) {
    void *block = inner->malloc(inner->ctx, size);
    choose(block, size, draw);
    return block;
}

static void *chosen_malloc(void *layer, size_t size) {
    PyMemAllocatorEx *inner = &((Layer *)layer)->inner;
    Draw *draw = drawn_by_size(size);
    return UNLIKELY(draw != NULL) ? malloc_chosen(inner, size, draw)
                                  : inner->malloc(inner->ctx, size);
}

static void *chosen_calloc(void *layer, size_t number, size_t each) {
    PyMemAllocatorEx *inner = &((Layer *)layer)->inner;
    void *block = inner->calloc(inner->ctx, number, each);
    size_t size = block ? number * each : 0; /* can't overflow where it succeeded */
    Draw *draw = drawn_by_size(size);
    if (UNLIKELY(draw != NULL))
        choose(block, size, draw);
    return block;
}

static inline int may_be_chosen(const void *block) {
    return block != NULL && near_blocks[neighbourhood((uintptr_t)block)] != 0;
}

/* A block that is resized is another one, and drawn for again. */
static void *chosen_realloc(void *layer, void *old, size_t size) {
    PyMemAllocatorEx *inner = &((Layer *)layer)->inner;
    if (UNLIKELY(may_be_chosen(old)))
        forget((uintptr_t)old);
    void *block = inner->realloc(inner->ctx, old, size);
    Draw *draw = drawn(size, size <= SMALL ? OBJECTS : ENLARGED);
    if (UNLIKELY(draw != NULL))
        choose(block, size, draw);
    return block;
}

static void followed_free(void *layer, void *block) {
    PyMemAllocatorEx *inner = &((Layer *)layer)->inner;
    if (UNLIKELY(may_be_chosen(block)))
        forget((uintptr_t)block);
    inner->free(inner->ctx, block);
}

/* Start and stop */

int blocks_ready(void) {
    if (blocks == NULL)
        blocks = own_mapping(sizeof *blocks * (MOST_BLOCKS + 1));
    if (places == NULL)
        places = own_mapping(sizeof *places * PLACES);
    return blocks && places;
}

static int put_in_front(void) {
    const PyMemAllocatorEx choosing = {NULL, chosen_malloc, chosen_calloc, chosen_realloc,
                                       followed_free};
    draws[OBJECTS].left = 1ull << 40; /* so that every block changes it */
    int missed = layers_install(&choosing, &draws[OBJECTS].left);
    draw_next(&draws[OBJECTS], draws[OBJECTS].interval);
    return missed;
}

void blocks_start(double mean) {
    taken = thinned_blocks = drawn_times = 0;
    handed_out = 0;
    forget_all();
    for (int i = 0; i < DRAWS; i++) {
        double first = i == OBJECTS ? mean : mean / TABLES_MORE;
        draws[i] = (Draw){.base = first, .interval = first, .round_began = seconds(),
                          .spare = BURST};
        draw_next(&draws[i], first);
    }
    is_on = 1;
    put_in_front();
}

/* What was freed while the layers weren't reached is not known. */
void blocks_update(void) {
    if (is_on && put_in_front())
        forget_all();
}

void blocks_stop(void) {
    is_on = 0;
    layers_remove();
    if (places != NULL)
        forget_all();
}

void blocks_after_fork(void) {
    is_on = 0;
    let_go(); /* whoever had it doesn't exist here */
}

/* Questions */

static int block_copy(uintptr_t address, Block *into) {
    if (address == 0 || !may_be_chosen((void *)address))
        return 0;
    hold();
    uint32_t number = places[place_found(address)];
    if (number != 0)
        *into = blocks[number];
    let_go();
    return number != 0;
}

static int add_answer(PyObject *list, int is_table, const uint32_t *sites, uint32_t number,
                      double size, double chosen) {
    PyObject *row = Py_BuildValue("(iNdd)", is_table, sites_tuple(sites, number), size / chosen,
                                  1 / chosen);
    int result = row ? PyList_Append(list, row) : -1;
    Py_XDECREF(row);
    return result;
}

/* A large block may have been sampled where malloc handed it out. */
static int answer(PyObject *list, int is_table, uintptr_t address) {
    Block block;
    Sample sample;
    if (block_copy(address, &block))
        return add_answer(list, is_table, block.line, block.lines, block.size,
                          chance(block.size, block.interval));
    if (address == 0 || !may_be_sampled((void *)address) || !sample_find(address, &sample))
        return 0;
    double drawn = (double)sample.drawn;
    return add_answer(list, is_table, sample.python, sample.pythons, (double)sample.size,
                      sample.interval > 0 ? -expm1(-drawn / sample.interval) : 1.0);
}

/* The block that an object lies in; 0 where it may have come from one of the interpreter's lists of
   free objects, of which the block tells who took it first. */
static uintptr_t block_of(PyObject *object) {
    if (PyList_CheckExact(object) || PyDict_CheckExact(object) || PyFloat_CheckExact(object) ||
        (PyTuple_CheckExact(object) && Py_SIZE(object) < 20))
        return 0;
    uintptr_t before = PyObject_IS_GC(object) ? 2 * sizeof(void *) : 0;
#if PY_VERSION_HEX >= 0x030C0000
    if (PyType_HasFeature(Py_TYPE(object), Py_TPFLAGS_MANAGED_DICT) ||
        PyType_HasFeature(Py_TYPE(object), Py_TPFLAGS_MANAGED_WEAKREF))
        before += 2 * sizeof(void *);
#elif PY_VERSION_HEX >= 0x030B0000
    if (PyType_HasFeature(Py_TYPE(object), Py_TPFLAGS_MANAGED_DICT))
        before += 2 * sizeof(void *);
#endif
    return (uintptr_t)object - before;
}

/* The block that a container made last to have room for more items. */
static uintptr_t table_of(PyObject *object) {
    if (PyList_Check(object))
        return (uintptr_t)((PyListObject *)object)->ob_item;
    if (PyDict_Check(object))
        return (uintptr_t)((PyDictObject *)object)->ma_keys;
    return PyAnySet_Check(object) ? (uintptr_t)((PySetObject *)object)->table : 0;
}

/* A deque has a block for each 64 items, of which the newest tell; the first may be as old as the
   deque. It begins with its two ends, and each block with the one to its left. */
typedef struct {
    PyObject_VAR_HEAD
    uintptr_t *leftmost, *rightmost;
} Deque;

enum { NEWEST_BLOCKS = 16 };

static int answer_deque(PyObject *list, Deque *deque) {
    uintptr_t *block = deque->rightmost;
    for (int i = 0; block != deque->leftmost && i < NEWEST_BLOCKS; i++) {
        if (answer(list, 1, (uintptr_t)block) < 0)
            return -1;
        block = (uintptr_t *)*block;
    }
    return 0;
}

PyObject *blocks_of(PyObject *Py_UNUSED(module), PyObject *arguments) {
    PyObject *objects, *addresses, *deque;
    if (!PyArg_ParseTuple(arguments, "O!O!O!", &PyList_Type, &objects, &PyList_Type, &addresses,
                          &PyType_Type, &deque))
        return NULL;
    PyObject *list = PyList_New(0);
    for (Py_ssize_t i = 0; list && is_on && i < PyList_GET_SIZE(objects); i++) {
        PyObject *object = PyList_GET_ITEM(objects, i);
        if (answer(list, 0, block_of(object)) < 0 ||
            answer(list, 1, table_of(object)) < 0 ||
            (PyType_IsSubtype(Py_TYPE(object), (PyTypeObject *)deque) &&
             answer_deque(list, (Deque *)object) < 0))
            Py_CLEAR(list);
    }
    for (Py_ssize_t i = 0; list && i < PyList_GET_SIZE(addresses); i++) {
        size_t address = PyLong_AsSize_t(PyList_GET_ITEM(addresses, i));
        if (PyErr_Occurred() || answer(list, 0, address) < 0)
            Py_CLEAR(list);
    }
    return list;
}

/* Small blocks by their lines: the larger ones come from malloc, where they are sampled too. */
PyObject *blocks_live(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing)) {
    PyObject *sums = PyDict_New();
    uint32_t fresh = blocks_fresh;
    for (uint32_t number = 1; sums && is_on && number <= fresh; number++) {
        Block block = blocks[number];
        if (block.address == 0 || block.size > SMALL)
            continue;
        int samples = 0;
        double estimate = 0, variance = 0, chosen = chance(block.size, block.interval);
        double deviation = block.size * sqrt(1 - chosen) / chosen;
        PyObject *lines = sites_tuple(block.line, block.lines);
        PyObject *sum = lines ? PyDict_GetItemWithError(sums, lines) : NULL;
        if (sum != NULL && !PyArg_ParseTuple(sum, "idd", &samples, &estimate, &variance))
            Py_CLEAR(lines);
        PyObject *row = lines && !PyErr_Occurred()
                            ? Py_BuildValue("(idd)", samples + 1, estimate + block.size / chosen,
                                            variance + deviation * deviation)
                            : NULL;
        if (row == NULL || PyDict_SetItem(sums, lines, row) < 0)
            Py_CLEAR(sums);
        Py_XDECREF(row);
        Py_XDECREF(lines);
    }
    return sums;
}

PyObject *blocks_state(void) {
    return Py_BuildValue("{s:O,s:d,s:I,s:K,s:K,s:K,s:d}", "running", is_on ? Py_True : Py_False,
                         "interval", draws[OBJECTS].interval, "live", blocks_alive, "taken", taken,
                         "thinned", thinned_blocks, "drawn", drawn_times, "handed_out", handed_out);
}
