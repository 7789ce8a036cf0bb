/* pyarrow's buffers: memory behind arrays, columns and tables.
 *
 * Only getters written in C++ are asked that neither make Python code run nor release the GIL. An
 * array of a type that Python defines is left alone: to wrap it runs that type's code.
 */
#include "walk.h"

#define MOST_PARENTS 16

static PyObject *ask(PyObject *type, const char *name, PyObject *object) {
    PyObject *getter = PyType_Check(type) ? getset_of((PyTypeObject *)type, name) : NULL;
    return getter ? read_getset(getter, object) : NULL;
}

static int is_a(PyObject *object, PyObject *type) {
    return PyType_Check(type) && PyType_IsSubtype(Py_TYPE(object), (PyTypeObject *)type);
}

/* Follow the edge to the whole memory of which a buffer is a slice. Steals. */
static void follow_buffer(Walk *w, uint32_t node, PyObject *buffer) {
    PyObject *type = w->known.arrow_buffer;
    for (int i = 0; i < MOST_PARENTS; i++) {
        PyObject *parent = ask(type, "parent", buffer);
        if (parent == NULL || !is_a(parent, type)) {
            Py_XDECREF(parent);
            break;
        }
        Py_SETREF(buffer, parent);
    }
    if (is_true(ask(type, "is_cpu", buffer))) {
        uint64_t bytes = read_size(ask(type, "size", buffer));
        follow_memory(w, node, (uintptr_t)read_size(ask(type, "address", buffer)), bytes);
    }
    Py_DECREF(buffer);
}

static PyObject *call(PyObject *type, const char *name, PyObject *object, PyObject *argument) {
    PyObject *method = PyObject_GetAttrString(type, name);
    PyObject *found = method ? PyObject_CallFunctionObjArgs(method, object, argument, NULL) : NULL;
    Py_XDECREF(method);
    PyErr_Clear();
    return found;
}

static void follow_arrow_array(Walk *w, uint32_t node, PyObject *array) {
    PyObject *buffers = call(w->known.arrow_array, "buffers", array, NULL);
    for (Py_ssize_t i = 0; buffers && PyList_CheckExact(buffers) && i < PyList_GET_SIZE(buffers); i++) {
        PyObject *buffer = PyList_GET_ITEM(buffers, i);
        if (is_a(buffer, w->known.arrow_buffer))
            follow_buffer(w, node, Py_NewRef(buffer));
    }
    Py_XDECREF(buffers);
    if (is_a(array, w->known.arrow_dictionary)) {
        PyObject *values = ask(w->known.arrow_dictionary, "dictionary", array);
        if (values && is_a(values, w->known.arrow_array))
            follow_arrow_array(w, node, values);
        Py_XDECREF(values);
    }
}

static void follow_chunks(Walk *w, uint32_t node, PyObject *column) {
    PyObject *kind = ask(w->known.arrow_chunked, "type", column);
    uint64_t count = read_size(ask(w->known.arrow_chunked, "num_chunks", column));
    if (kind == NULL || is_a(kind, w->known.arrow_extension))
        count = 0;
    Py_XDECREF(kind);
    for (uint64_t i = 0; i < count; i++) {
        PyObject *number = PyLong_FromUnsignedLongLong(i);
        PyObject *chunk = number ? call(w->known.arrow_chunked, "chunk", column, number) : NULL;
        if (chunk && is_a(chunk, w->known.arrow_array))
            follow_arrow_array(w, node, chunk);
        Py_XDECREF(chunk);
        Py_XDECREF(number);
    }
}

static int has_extension(Walk *w, PyObject *batch) {
    PyObject *schema = ask(w->known.arrow_batch, "schema", batch);
    PyObject *kinds = schema ? PyObject_GetAttrString(schema, "types") : NULL;
    int found = kinds == NULL || !PyList_CheckExact(kinds);
    for (Py_ssize_t i = 0; !found && i < PyList_GET_SIZE(kinds); i++)
        found = is_a(PyList_GET_ITEM(kinds, i), w->known.arrow_extension);
    Py_XDECREF(schema);
    Py_XDECREF(kinds);
    PyErr_Clear();
    return found;
}

/* Return the columns of a table or batch; NULL of anything else. */
static PyObject *columns_of(Walk *w, PyObject *object) {
    PyObject *columns = NULL;
    if (is_a(object, w->known.arrow_table))
        columns = ask(w->known.arrow_table, "columns", object);
    else if (is_a(object, w->known.arrow_batch) && !has_extension(w, object))
        columns = ask(w->known.arrow_batch, "columns", object);
    if (columns && !PyList_CheckExact(columns))
        Py_CLEAR(columns);
    return columns;
}

void follow_arrow(Walk *w, uint32_t node, PyObject *object) {
    if (is_a(object, w->known.arrow_buffer))
        follow_buffer(w, node, Py_NewRef(object));
    else if (is_a(object, w->known.arrow_array))
        follow_arrow_array(w, node, object);
    else if (is_a(object, w->known.arrow_chunked))
        follow_chunks(w, node, object);
    PyObject *columns = columns_of(w, object);
    for (Py_ssize_t i = 0; columns && i < PyList_GET_SIZE(columns); i++)
        follow_arrow(w, node, PyList_GET_ITEM(columns, i));
    Py_XDECREF(columns);
}
