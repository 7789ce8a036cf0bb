/* What follows from a type: found once, then read by number. */
#include "walk.h"

#include <string.h>
#include <structmember.h>
#if PY_VERSION_HEX < 0x030B0000
#include <frameobject.h>
#endif

static PyObject *own_attribute(PyTypeObject *type, PyObject *name) { /* borrowed */
#if PY_VERSION_HEX >= 0x030C0000
    PyObject *dict = PyType_GetDict(type);
    if (dict == NULL)
        return NULL;
    PyObject *found = PyDict_GetItemWithError(dict, name);
    Py_DECREF(dict);
#else
    PyObject *found = type->tp_dict ? PyDict_GetItemWithError(type->tp_dict, name) : NULL;
#endif
    if (found == NULL && PyErr_Occurred())
        PyErr_Clear();
    return found;
}

static int is_subtype(PyTypeObject *type, PyObject *base) {
    return base != NULL && PyType_Check(base) && PyType_IsSubtype(type, (PyTypeObject *)base);
}

static int is_trusted(PyTypeObject *type) {
    static const char *const prefixes[] = {
        "collections.", "array.", "_io.", "re.", "_struct.", "decimal.", "itertools.", "_pickle.",
        "xml.etree.ElementTree."}; /* as anatomy.py says */
    if ((type->tp_flags & Py_TPFLAGS_HEAPTYPE) && !(type->tp_flags & Py_TPFLAGS_IMMUTABLETYPE))
        return 0;
    if (strchr(type->tp_name, '.') == NULL)
        return 1;
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (strncmp(type->tp_name, prefixes[i], strlen(prefixes[i])) == 0)
            return 1;
    return 0;
}

/* The interpreter's own C method that sizes instances, or NULL for that of object. An override is
 * passed over, and so is a method put on a class that it was not made for. */
static PyCFunction sizer_of(PyTypeObject *type) {
    PyObject *mro = type->tp_mro;
    for (Py_ssize_t i = 0; mro && i < PyTuple_GET_SIZE(mro); i++) {
        PyTypeObject *base = (PyTypeObject *)PyTuple_GET_ITEM(mro, i);
        PyObject *found = own_attribute(base, name_sizeof);
        if (found == NULL || !Py_IS_TYPE(found, &PyMethodDescr_Type))
            continue;
        PyMethodDescrObject *method = (PyMethodDescrObject *)found;
        if (method->d_common.d_type != base || !is_trusted(base) ||
            method->d_method->ml_flags != METH_NOARGS)
            continue;
#if PY_VERSION_HEX < 0x030D0000
        if (base == &PyBaseObject_Type)
            return NULL;
#endif
        return method->d_method->ml_meth;
    }
    return NULL;
}

static PyObject *unwrapped(PyObject *function) { /* borrowed */
    if (Py_IS_TYPE(function, &PyStaticMethod_Type) || Py_IS_TYPE(function, &PyClassMethod_Type))
        return ((struct { PyObject_HEAD PyObject *callable; } *)function)->callable;
    return function;
}

/* Wrapper subclasses claim the memory of what they wrap; they have none themselves. */
static int has_plain_dispatch(Walk *w, PyTypeObject *type) {
    PyObject *mro = type->tp_mro;
    for (Py_ssize_t i = 0; mro && i < PyTuple_GET_SIZE(mro); i++) {
        PyObject *found =
            own_attribute((PyTypeObject *)PyTuple_GET_ITEM(mro, i), name_dispatch);
        if (found != NULL)
            return unwrapped(found) == unwrapped(w->access.plain_dispatch);
    }
    return 1;
}

PyObject *getset_of(PyTypeObject *type, const char *name) { /* borrowed */
    PyObject *key = PyUnicode_FromString(name), *result = NULL, *mro = type->tp_mro;
    for (Py_ssize_t i = 0; key && mro && result == NULL && i < PyTuple_GET_SIZE(mro); i++) {
        result = own_attribute((PyTypeObject *)PyTuple_GET_ITEM(mro, i), key);
        if (result && !Py_IS_TYPE(result, &PyGetSetDescr_Type))
            result = NULL;
    }
    Py_XDECREF(key);
    PyErr_Clear();
    return result;
}

/* Collect the raw saved variables of a type of autograd nodes. */
static void study_node(Walk *w, TypeFacts *facts) {
    PyTypeObject *type = facts->type;
    facts->next_functions = getset_of(type, "next_functions");
    if (facts->next_functions == NULL || getset_of(type, "_input_metadata") == NULL) {
        facts->next_functions = NULL;
        return;
    }
    facts->rank = RANK_GRAPH;
    facts->variable = getset_of(type, "variable");
    PyObject *mro = type->tp_mro;
    for (Py_ssize_t i = PyTuple_GET_SIZE(mro); i-- > 0;) {
        PyTypeObject *base = (PyTypeObject *)PyTuple_GET_ITEM(mro, i);
#if PY_VERSION_HEX >= 0x030C0000
        PyObject *dict = PyType_GetDict(base);
#else
        PyObject *dict = base->tp_dict;
        Py_XINCREF(dict);
#endif
        PyObject *key, *value;
        Py_ssize_t at = 0;
        while (dict && PyDict_Next(dict, &at, &key, &value)) {
            const char *name = PyUnicode_CheckExact(key) ? PyUnicode_AsUTF8(key) : NULL;
            if (name == NULL || strncmp(name, "_raw_saved_", 11) != 0 ||
                !Py_IS_TYPE(value, &PyGetSetDescr_Type))
                continue;
            PyObject **saved =
                resized(w, facts->saved, (facts->n_saved + 1) * sizeof(PyObject *));
            if (saved == NULL)
                break;
            facts->saved = saved;
            saved[facts->n_saved++] = value;
        }
        Py_XDECREF(dict);
        PyErr_Clear();
    }
}

static int is_image_core(PyTypeObject *type) {
    const char *dot = strrchr(type->tp_name, '.');
    return strcmp(dot ? dot + 1 : type->tp_name, "ImagingCore") == 0 &&
           !(type->tp_flags & Py_TPFLAGS_HEAPTYPE);
}

static int is_of_arrow(const Known *known, PyTypeObject *type) {
    PyObject *const types[] = {known->arrow_buffer, known->arrow_array, known->arrow_chunked,
                               known->arrow_table, known->arrow_batch};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (is_subtype(type, types[i]))
            return 1;
    return 0;
}

static void study_payload(Walk *w, TypeFacts *facts) {
    PyTypeObject *type = facts->type;
    const Known *known = &w->known;
    if (is_subtype(type, known->array))
        facts->flags |= TYPE_ARRAY;
    else if (is_subtype(type, known->record))
        facts->flags |= TYPE_RECORD;
    else if (is_subtype(type, known->mapping))
        facts->flags |= TYPE_MAPPING;
    else if (is_subtype(type, known->c_data))
        facts->flags |= TYPE_C_DATA;
    else if (is_subtype(type, known->text_buffer))
        facts->flags |= TYPE_TEXT_BUFFER;
    else if (is_subtype(type, known->canvas))
        facts->flags |= TYPE_CANVAS;
    else if (is_subtype(type, known->bytes_buffer))
        facts->sizer = NULL; /* it would count the bytes, which have a node */
    else if (PyType_FastSubclass(type, Py_TPFLAGS_BYTES_SUBCLASS) ||
             PyType_IsSubtype(type, &PyByteArray_Type) || is_subtype(type, known->numbers))
        facts->flags |= TYPE_EXPORTER;
    else if (is_of_arrow(known, type))
        facts->flags |= TYPE_ARROW;
    else if (is_image_core(type))
        facts->flags |= TYPE_IMAGE;
}

static void study(Walk *w, TypeFacts *facts) {
    PyTypeObject *type = facts->type;
    unsigned long flags = type->tp_flags;
    facts->mark = -1;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(w->request.marked) && i < MAX_MARKS; i++)
        if (PyType_IsSubtype(type, (PyTypeObject *)PyTuple_GET_ITEM(w->request.marked, i))) {
            facts->mark = (int8_t)i;
            break;
        }
    facts->sizer = sizer_of(type);
    if (flags & Py_TPFLAGS_HAVE_GC)
        facts->header += 16;
    if (type->tp_is_gc != NULL)
        facts->flags |= TYPE_MAY_LACK_HEADER;
#if PY_VERSION_HEX >= 0x030C0000
    if (flags & (Py_TPFLAGS_MANAGED_DICT | Py_TPFLAGS_MANAGED_WEAKREF))
        facts->header += 16;
#elif PY_VERSION_HEX >= 0x030B0000
    if (flags & Py_TPFLAGS_MANAGED_DICT)
        facts->header += 16;
#endif
#if PY_VERSION_HEX >= 0x030D0000
    if (flags & Py_TPFLAGS_INLINE_VALUES)
        facts->flags |= TYPE_INLINE_VALUES;
#elif PY_VERSION_HEX >= 0x030B0000
    if ((flags & Py_TPFLAGS_MANAGED_DICT) && (flags & Py_TPFLAGS_HEAPTYPE))
        facts->flags |= TYPE_INLINE_VALUES;
#endif
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(w->request.late); i++)
        if (PyType_IsSubtype(type, (PyTypeObject *)PyTuple_GET_ITEM(w->request.late, i)))
            facts->rank = RANK_LATE;
    if (type == &PyFunction_Type) {
        facts->rank = RANK_CODE;
        facts->flags |= TYPE_FUNCTION;
    } else if (type == &PyFrame_Type) {
        facts->rank = RANK_CODE;
        facts->flags |= TYPE_FRAME;
    } else if (type == &PyTraceBack_Type || type == &PyMethod_Type) {
        facts->rank = RANK_CODE; /* what a method is bound to has a better name as a rule */
    } else if (PyType_FastSubclass(type, Py_TPFLAGS_TYPE_SUBCLASS) ||
               PyType_IsSubtype(type, &PyModule_Type)) {
        facts->rank = RANK_CUT;
    }
    if (w->has_torch && is_subtype(type, w->access.storage)) {
        facts->flags |= TYPE_STORAGE_OBJECT;
    } else if (w->has_torch && is_subtype(type, w->access.tensor)) {
        facts->flags |= TYPE_TENSOR;
        if (is_subtype(type, w->access.parameter))
            facts->flags |= TYPE_PARAMETER;
        if (has_plain_dispatch(w, type))
            facts->flags |= TYPE_STORAGE;
    } else if (w->has_torch && facts->rank == RANK_PLAIN && type != &PyTuple_Type &&
               type != &PyDict_Type && type != &PyList_Type) {
        study_node(w, facts);
    }
    if (strcmp(type->tp_name, "torch._C._autograd.SavedTensor") == 0)
        facts->flags |= TYPE_SAVED;
    if (PyType_FastSubclass(type, Py_TPFLAGS_DICT_SUBCLASS))
        facts->flags |= TYPE_DICT;
    study_payload(w, facts);
}

uint32_t add_type(Walk *w, PyTypeObject *type) {
    if (w->n_types == w->cap_types) {
        uint32_t capacity = w->cap_types ? w->cap_types * 2 : 256;
        TypeFacts *types = resized(w, w->types, capacity * sizeof *types);
        if (types == NULL)
            return NONE;
        w->types = types;
        w->cap_types = capacity;
    }
    TypeFacts facts = {.type = type};
    if (type != NULL)
        study(w, &facts);
    w->types[w->n_types] = facts;
    return w->n_types++;
}

static inline uint64_t mixed(const PyTypeObject *type) {
    return (uintptr_t)type * 0x9E3779B97F4A7C15ull >> 29;
}

uint32_t type_number(Walk *w, PyTypeObject *type) {
    if ((w->n_types + 1) * 2 > w->n_type_slots) {
        size_t n = w->n_type_slots ? w->n_type_slots * 2 : 1024;
        uint32_t *slots = fresh(w, n, 4);
        if (slots == NULL)
            return NONE;
        for (uint32_t i = MEMORY_TYPES; i < w->n_types; i++) {
            size_t at = (size_t)(mixed(w->types[i].type)) & (n - 1);
            while (slots[at])
                at = (at + 1) & (n - 1);
            slots[at] = i;
        }
        drop(w, w->type_slots);
        w->type_slots = slots;
        w->n_type_slots = n;
    }
    size_t mask = w->n_type_slots - 1;
    size_t at = (size_t)(mixed(type)) & mask;
    while (w->type_slots[at]) {
        if (w->types[w->type_slots[at]].type == type)
            return w->type_slots[at];
        at = (at + 1) & mask;
    }
    uint32_t number = add_type(w, type);
    if (number != NONE)
        w->type_slots[at] = number;
    return number;
}
