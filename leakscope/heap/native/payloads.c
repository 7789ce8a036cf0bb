/* Data that an object owns beside what its type tells: pixels, elements of arrays, texts in buffers. */
#include "walk.h"

/* The beginning of every object of ctypes; it is the same from 3.10 to 3.13. */
typedef struct {
    PyObject_HEAD
    char *data;
    int owns;
    PyObject *base;
    Py_ssize_t bytes;
    Py_ssize_t length, index;
    PyObject *kept;
    long double value; /* small data lie here */
} CData;

/* The beginning of io.StringIO, likewise. */
typedef struct {
    PyObject_HEAD
    Py_UCS4 *text;
    Py_ssize_t position, length;
    size_t capacity;
    int state;
#if PY_VERSION_HEX < 0x030C0000
    PyObject *joined, *pieces;
#endif
} TextBuffer;

enum { ACCUMULATING = 2 };

/* The beginning of array.array, likewise. */
typedef struct {
    PyObject_VAR_HEAD
    char *items;
    Py_ssize_t allocated;
    const struct { char code; int item_bytes; } *description;
} NumberArray;

static uint64_t c_data_bytes(PyObject *object) {
    const CData *data = (const CData *)object;
    int is_inside = (size_t)data->bytes <= sizeof data->value;
    return data->owns && !is_inside && data->bytes > 0 ? (uint64_t)data->bytes : 0;
}

#if PY_VERSION_HEX < 0x030C0000
static uint64_t gathered_bytes(const TextBuffer *buffer) {
    (void)buffer;
    return 0; /* pieces weigh by themselves */
}

/* What a buffer has gathered, of which its own traversal doesn't tell (Modules/_io/stringio.c). */
void visit_text_pieces(PyObject *object, visitproc visitor, void *argument) {
    const TextBuffer *buffer = (const TextBuffer *)object;
    if (buffer->state != ACCUMULATING)
        return;
    if (buffer->joined != NULL)
        visitor(buffer->joined, argument);
    if (buffer->pieces != NULL)
        visitor(buffer->pieces, argument);
}
#else
/* At least: pieces are as wide as their characters. */
static uint64_t gathered_bytes(const TextBuffer *buffer) { return (uint64_t)buffer->length; }

void visit_text_pieces(PyObject *object, visitproc visitor, void *argument) {
    (void)object, (void)visitor, (void)argument;
}
#endif

/* It gathers pieces until it is read or sought in. */
static uint64_t text_buffer_bytes(PyObject *object) {
    const TextBuffer *buffer = (const TextBuffer *)object;
    if (buffer->state == ACCUMULATING)
        return gathered_bytes(buffer);
    return buffer->text ? sizeof(Py_UCS4) * (uint64_t)buffer->capacity : 0;
}

/* Borrowed for a moment: nothing else tells of the pixels that matplotlib's C++ code draws on. */
static uint64_t canvas_bytes(PyObject *object) {
    Py_buffer pixels;
    uint64_t bytes = 0;
    if (PyObject_GetBuffer(object, &pixels, PyBUF_STRIDED_RO) == 0) {
        bytes = (uint64_t)pixels.len;
        PyBuffer_Release(&pixels);
    }
    PyErr_Clear();
    return bytes;
}

uint64_t payload_bytes(Walk *w, PyObject *object, const TypeFacts *facts) {
    if (facts->flags & TYPE_ARRAY)
        return array_bytes(w, object);
    if (facts->flags & TYPE_IMAGE)
        return image_bytes(object);
    if (facts->flags & TYPE_RECORD)
        return record_bytes(object);
    if (facts->flags & TYPE_C_DATA)
        return c_data_bytes(object);
    if (facts->flags & TYPE_TEXT_BUFFER)
        return text_buffer_bytes(object);
    if (facts->flags & TYPE_CANVAS)
        return canvas_bytes(object);
    return 0;
}

/* Find the memory that an object owns and lends to others; say whether there is some. */
int exported_memory(Walk *w, PyObject *object, const TypeFacts *facts, uintptr_t *address,
                    uint64_t *bytes) {
    if (facts->flags & TYPE_ARRAY) {
        *address = array_address(object);
        *bytes = array_bytes(w, object);
    } else if (facts->flags & TYPE_C_DATA) {
        *address = (uintptr_t)((CData *)object)->data;
        *bytes = c_data_bytes(object);
    } else if (PyBytes_Check(object)) {
        *address = (uintptr_t)PyBytes_AS_STRING(object);
        *bytes = (uint64_t)PyBytes_GET_SIZE(object);
    } else if (PyByteArray_Check(object)) {
        *address = (uintptr_t)PyByteArray_AS_STRING(object);
        *bytes = (uint64_t)PyByteArray_GET_SIZE(object);
    } else {
        const NumberArray *numbers = (const NumberArray *)object;
        *address = (uintptr_t)numbers->items;
        *bytes = (uint64_t)Py_SIZE(object) * (uint64_t)numbers->description->item_bytes;
    }
    return *address != 0 && *bytes != 0;
}
