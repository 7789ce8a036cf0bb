/* The Python module: start, stop, and what is live now, by stack. */
#include "sampling.h"

#include <link.h>
#include <math.h>
#include <string.h>
#include <sys/mman.h>

static int is_running;

static int add_origins(PyObject *origins) {
    origins_clear();
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(origins); i++) {
        const char *prefix;
        int origin;
        if (!PyArg_ParseTuple(PyList_GET_ITEM(origins, i), "si", &prefix, &origin))
            return -1;
        origin_add(prefix, (Origin)origin);
    }
    return 0;
}

static void end(void) {
    is_running = 0;
    blocks_stop();
    wrappers_stop();
    Py_BEGIN_ALLOW_THREADS
    relocations_restore();
    Py_END_ALLOW_THREADS
    samples_clear();
}

static PyObject *start(PyObject *Py_UNUSED(module), PyObject *arguments) {
    double interval;
    unsigned long long seed;
    PyObject *origins;
    if (!PyArg_ParseTuple(arguments, "dKO!", &interval, &seed, &PyList_Type, &origins))
        return NULL;
    if (!(interval >= 0)) {
        PyErr_SetString(PyExc_ValueError, "an interval is a number of bytes");
        return NULL;
    }
    if (add_origins(origins) < 0)
        return NULL;
    if (!is_running) {
        const char *why_not = relocations_resolve();
        if (why_not == NULL && (!samples_ready() || !stacks_ready()))
            why_not = "there is no memory for its tables";
        if (why_not != NULL)
            return PyUnicode_FromString(why_not);
    }
    is_running = 1;
    samples_clear();
    atomic_store(&counts.taken, 0);
    atomic_store(&counts.dropped, 0);
    atomic_store(&counts.unseen_frees, 0);
    atomic_store(&counts.thinned, 0);
    wrappers_start(interval, seed);
    Py_BEGIN_ALLOW_THREADS /* whoever has the loader's lock may be waiting for the GIL */
    relocations_update(1);
    Py_END_ALLOW_THREADS
    const char *why_not = NULL;
    if (patched.refused)
        why_not = "the tables of libraries may not be written here";
    else if (!wrappers_are_reached())
        why_not = "another tool follows allocations here";
    if (why_not == NULL)
        Py_RETURN_NONE;
    end();
    return PyUnicode_FromString(why_not);
}

static PyObject *stop(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing)) {
    if (is_running)
        end();
    Py_RETURN_NONE;
}

static PyObject *start_blocks(PyObject *Py_UNUSED(module), PyObject *argument) {
    double interval = PyFloat_AsDouble(argument);
    if (PyErr_Occurred())
        return NULL;
    int is_ready = is_running && interval > 0 && blocks_ready();
    if (is_ready)
        blocks_start(interval);
    return PyBool_FromLong(is_ready);
}

static PyObject *stop_blocks(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing)) {
    blocks_stop();
    Py_RETURN_NONE;
}

static PyObject *update(PyObject *Py_UNUSED(module), PyObject *arguments) {
    int all;
    if (!PyArg_ParseTuple(arguments, "p", &all))
        return NULL;
    if (is_running && atomic_load(&sampling)) {
        unsigned lost = patched.lost;
        Py_BEGIN_ALLOW_THREADS
        relocations_update(all);
        Py_END_ALLOW_THREADS
        if (patched.lost != lost && !wrappers_are_reached())
            atomic_store(&sampling, 0); /* another tool stands there now */
        blocks_update();
    }
    Py_RETURN_NONE;
}

/* What is live */

typedef struct {
    Sample sample; /* the first of them, for its stack */
    uint64_t hash;
    uint32_t next; /* of those with the same place */
    uint64_t number, bytes;
    double estimate, chance, variance;
} Group;

typedef struct {
    Group *groups; /* from 1 */
    uint32_t *places;
    uint32_t used, room, mask;
    size_t size;
} Groups;

static int groups_make(Groups *groups, uint32_t room) {
    uint32_t places = 64;
    while (places < 2 * room)
        places *= 2;
    size_t of_groups = sizeof(Group) * ((size_t)room + 1);
    groups->size = of_groups + sizeof(uint32_t) * places;
    char *made = mmap(NULL, groups->size, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (made == MAP_FAILED)
        return 0;
    *groups = (Groups){(Group *)made, (uint32_t *)(made + of_groups), 0, room, places - 1,
                       groups->size};
    return 1;
}

static uint64_t stack_hash(const Sample *sample) {
    uint64_t hash = sample->kind;
    for (uint32_t i = 0; i < sample->pythons; i++)
        hash = (hash ^ sample->python[i]) * UINT64_C(0x9E3779B97F4A7C15);
    for (uint32_t i = 0; i < sample->natives; i++)
        hash = (hash ^ hash >> 29 ^ sample->native[i]) * UINT64_C(0xBF58476D1CE4E5B9);
    return hash ^ hash >> 32;
}

static int same_stack(const Sample *a, const Sample *b) {
    return a->kind == b->kind && a->pythons == b->pythons && a->natives == b->natives &&
           memcmp(a->python, b->python, sizeof *a->python * a->pythons) == 0 &&
           memcmp(a->native, b->native, sizeof *a->native * a->natives) == 0;
}

static Group *group_of(Groups *groups, const Sample *sample) {
    uint64_t hash = stack_hash(sample);
    uint32_t *place = &groups->places[hash & groups->mask];
    for (uint32_t i = *place; i != 0; i = groups->groups[i].next)
        if (groups->groups[i].hash == hash && same_stack(&groups->groups[i].sample, sample))
            return &groups->groups[i];
    if (groups->used == groups->room)
        return NULL;
    Group *group = &groups->groups[++groups->used];
    *group = (Group){.sample = *sample, .hash = hash, .next = *place};
    *place = groups->used;
    return group;
}

/* A block stands for 1 / p like it, where p is the probability that it was chosen. */
static void add(Group *group, const Sample *sample) {
    double size = (double)sample->size;
    double missed = sample->interval > 0 ? exp(-(double)sample->drawn / sample->interval) : 0.0;
    double chosen = sample->interval > 0 ? -expm1(-(double)sample->drawn / sample->interval) : 1.0;
    double deviation = size * sqrt(missed) / chosen;
    group->number++;
    group->bytes += sample->size;
    group->estimate += size / chosen;
    group->chance += deviation;
    group->variance += deviation * deviation;
}

PyObject *sites_tuple(const uint32_t *sites, uint32_t number) {
    PyObject *tuple = PyTuple_New(number);
    for (uint32_t i = 0; tuple && i < number; i++) {
        PyObject *site = PyLong_FromUnsignedLong(sites[i]);
        if (site == NULL)
            Py_CLEAR(tuple);
        else
            PyTuple_SET_ITEM(tuple, i, site);
    }
    return tuple;
}

static PyObject *tuple_of_addresses(const Sample *sample) {
    PyObject *tuple = PyTuple_New(sample->natives);
    for (uint32_t i = 0; tuple && i < sample->natives; i++) {
        PyObject *number = PyLong_FromUnsignedLongLong(sample->native[i]);
        if (number == NULL)
            Py_CLEAR(tuple);
        else
            PyTuple_SET_ITEM(tuple, i, number);
    }
    return tuple;
}

static PyObject *list_of(const Groups *groups) {
    PyObject *list = PyList_New(0);
    for (uint32_t i = 1; list && i <= groups->used; i++) {
        const Group *group = &groups->groups[i];
        PyObject *row = Py_BuildValue(
            "(iNNKKddd)", (int)group->sample.kind, sites_tuple(group->sample.python, group->sample.pythons),
            tuple_of_addresses(&group->sample), (unsigned long long)group->number,
            (unsigned long long)group->bytes, group->estimate, group->chance, group->variance);
        if (row == NULL || PyList_Append(list, row) < 0)
            Py_CLEAR(list);
        Py_XDECREF(row);
    }
    return list;
}

static PyObject *live(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing)) {
    Groups groups;
    Sample sample;
    if (!is_running)
        return PyList_New(0);
    uint32_t used = samples_used();
    if (!groups_make(&groups, used))
        return PyErr_NoMemory();
    for (uint32_t number = 1; number <= used; number++) {
        Group *group = sample_copy(number, &sample) ? group_of(&groups, &sample) : NULL;
        if (group != NULL)
            add(group, &sample);
    }
    int was = keep_quiet(1);
    PyObject *list = list_of(&groups);
    keep_quiet(was);
    munmap(groups.groups, groups.size);
    return list;
}

/* What its numbers mean */

static PyObject *place(PyObject *Py_UNUSED(module), PyObject *argument) {
    Place found;
    unsigned long number = PyLong_AsUnsignedLong(argument);
    if (PyErr_Occurred())
        return NULL;
    if (number > UINT32_MAX || !site_place((uint32_t)number, &found))
        Py_RETURN_NONE;
    return Py_BuildValue("(sisi)", found.file, found.line, found.function, (int)found.origin);
}

static int add_library(struct dl_phdr_info *info, size_t Py_UNUSED(size), void *list) {
    unsigned long long begin = ~0ull, end = 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        unsigned long long from = info->dlpi_addr + part->p_vaddr;
        if (part->p_type == PT_LOAD) {
            begin = from < begin ? from : begin;
            end = from + part->p_memsz > end ? from + part->p_memsz : end;
        }
    }
    PyObject *path = PyUnicode_DecodeFSDefault(info->dlpi_name);
    PyObject *row = path ? Py_BuildValue("(NKKK)", path, (unsigned long long)info->dlpi_addr,
                                         begin, end)
                         : NULL;
    int result = row ? PyList_Append(list, row) : -1;
    Py_XDECREF(row);
    return result;
}

static PyObject *libraries(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing)) {
    PyObject *list = PyList_New(0);
    if (list != NULL && dl_iterate_phdr(add_library, list) != 0)
        Py_CLEAR(list);
    return list;
}

static PyObject *state(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing)) {
    return Py_BuildValue(
        "{s:O,s:O,s:O,s:s,s:d,s:K,s:K,s:K,s:K,s:K,s:K,s:I,s:I,s:I,s:I,s:I,s:N}", "running",
        is_running && atomic_load(&sampling) ? Py_True : Py_False, "faulted",
        faulted() ? Py_True : Py_False, "unwinds", unwinder_is_safe() ? Py_True : Py_False,
        "allocator", allocator_file(), "interval", interval_in_force(), "live",
        (unsigned long long)samples_live(), "taken", (unsigned long long)counts.taken, "dropped",
        (unsigned long long)counts.dropped, "unseen_frees",
        (unsigned long long)counts.unseen_frees, "thinned", (unsigned long long)counts.thinned,
        "own_bytes", (unsigned long long)own_resident(), "libraries", patched.libraries, "slots",
        patched.slots, "refused", patched.refused, "foreign", patched.foreign, "lost", patched.lost, "blocks",
        blocks_state());
}

static PyObject *fault(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing)) {
    fault_next();
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"start", start, METH_VARARGS,
     "start(interval, seed, origins): sample from now on; return why not, or None."},
    {"stop", stop, METH_NOARGS, "Sample no more, and forget what was sampled."},
    {"update", update, METH_VARARGS, "update(all): take in libraries that were loaded since; all: look through every one again."},
    {"live", live, METH_NOARGS, "What is live, by stack."},
    {"start_blocks", start_blocks, METH_O, "start_blocks(interval): sample Python's blocks too; return whether it could be done."},
    {"stop_blocks", stop_blocks, METH_NOARGS, "Sample them no more, and forget what was sampled."},
    {"blocks_of", blocks_of, METH_VARARGS, "blocks_of(objects, addresses, deque): which of their blocks were sampled, and where they were made."},
    {"blocks_live", blocks_live, METH_NOARGS, "Small blocks that are live, by the lines that made them."},
    {"place", place, METH_O, "place(site): its file, line, function and origin, or None."},
    {"libraries", libraries, METH_NOARGS, "Path, base, begin and end of each that is loaded."},
    {"symbols", symbols_of, METH_VARARGS, "symbols(path, offsets): the functions there."},
    {"state", state, METH_NOARGS, "How it goes."},
    {"fault", fault, METH_NOARGS, "Have the next sample fault, for tests."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_sampling", NULL, -1, methods,
                                        NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__sampling(void) {
    return PyModule_Create(&definition);
}
