/* The frames of a sample: return addresses down to the interpreter, then lines of Python.
 *
 * Python's frames are read in place. They are those of this thread's own state, which nobody else
 * changes, whether it holds the GIL just now or has let it go for a long computation; what they
 * refer to they keep alive. Of a code object a file, a function and a line are noted by their text,
 * once each, so that nothing of the program's is kept.
 */
#include "sampling.h"

#ifdef Py_GIL_DISABLED
#error "frames are read in place, which other threads may change without the GIL"
#endif

#if PY_VERSION_HEX >= 0x030B0000
#define Py_BUILD_CORE
#include <internal/pycore_code.h>
#include <internal/pycore_frame.h>
#if PY_VERSION_HEX >= 0x030E0000
#include <internal/pycore_interpframe.h>
#endif
#undef Py_BUILD_CORE
#else
#include <frameobject.h>
#endif

/* Where the state of the GIL lies; unknown of a later Python, whose threads without Python have no
   line. */
#if PY_VERSION_HEX < 0x030E0000
#define Py_BUILD_CORE
#undef _PyGC_FINALIZED /* which the headers of 3.11 and 3.12 define twice */
#include <internal/pycore_runtime.h>
#if PY_VERSION_HEX >= 0x030C0000
#include <internal/pycore_interp.h>
#endif
#undef Py_BUILD_CORE
#endif

#include <dlfcn.h>
#include <link.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>
#include <unwind.h>

/* Native frames */

static uintptr_t own_begin, own_end, interpreter_begin, interpreter_end;

static int note_texts(struct dl_phdr_info *info, size_t Py_UNUSED(size), void *Py_UNUSED(data)) {
    uintptr_t own = (uintptr_t)&stacks_fill, python = (uintptr_t)&PyObject_Malloc;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        uintptr_t begin = info->dlpi_addr + part->p_vaddr, end = begin + part->p_memsz;
        if (part->p_type != PT_LOAD || !(part->p_flags & PF_X))
            continue;
        if (own >= begin && own < end)
            own_begin = begin, own_end = end;
        if (python >= begin && python < end)
            interpreter_begin = begin, interpreter_end = end;
    }
    return 0;
}

enum { INTERPRETER_FRAMES = 3 }; /* further ones tell nothing that lines of Python don't */

typedef struct {
    Sample *sample;
    uintptr_t slots[NATIVE_FRAMES]; /* where each return address lies */
    int begun, of_interpreter, is_verifiable;
} Walk;

static _Unwind_Reason_Code visit(struct _Unwind_Context *context, void *argument) {
    Walk *walk = argument;
    uintptr_t address = _Unwind_GetIP(context);
    if (address == 0)
        return _URC_END_OF_STACK;
    if (address >= own_begin && address < own_end && !walk->begun)
        return _URC_NO_REASON;
    walk->begun = 1;
    Sample *sample = walk->sample;
    uintptr_t slot = (uintptr_t)_Unwind_GetCFA(context) - sizeof(void *);
#if defined(__x86_64__)
    walk->is_verifiable = walk->is_verifiable && *(uintptr_t *)slot == address;
#else
    walk->is_verifiable = 0;
#endif
    walk->slots[sample->natives] = slot;
    sample->native[sample->natives++] = address;
    if (address >= interpreter_begin && address < interpreter_end)
        walk->of_interpreter++;
    return sample->natives == NATIVE_FRAMES || walk->of_interpreter == INTERPRETER_FRAMES
               ? _URC_END_OF_STACK
               : _URC_NO_REASON;
}

/* Programs allocate from the same few stacks again and again, and an unwinder takes a microsecond
   for each frame. A stack is the one of another time if at the same place of the same thread's stack
   the same return addresses lie where they lay then. Several that begin alike are remembered. */

enum { SET_BITS = 7, WAYS = 8, REMEMBERED = WAYS << SET_BITS };
typedef struct {
    atomic_int held;
    const void *thread;
    uintptr_t frame, caller;
    uint32_t natives;
    uintptr_t slots[NATIVE_FRAMES], native[NATIVE_FRAMES];
} Remembered;

static Remembered *remembered;
static __thread char of_this_thread __attribute__((tls_model("initial-exec")));
extern void *__libc_stack_end;

/* Whether all that lies between two addresses is stack: glibc lays a thread's variables above its
   stack; the first thread's is the kernel's. */
static int is_stack(uintptr_t begin, uintptr_t end) {
    uintptr_t variables = (uintptr_t)&of_this_thread, first = (uintptr_t)__libc_stack_end;
    uintptr_t most = (uintptr_t)64 << 20;
    return begin < end && ((end <= variables && variables - begin < most) ||
                           (end <= first && first - begin < most));
}

static Remembered *set_of(uintptr_t frame, uintptr_t caller) {
    uint64_t mixed = (frame ^ caller * 31 ^ (uintptr_t)&of_this_thread) *
                     UINT64_C(0x9E3779B97F4A7C15);
    return &remembered[(mixed >> (64 - SET_BITS)) * WAYS];
}

static int is_same(const Remembered *known, uintptr_t frame, uintptr_t caller) {
    int same = known->natives > 0 && known->thread == &of_this_thread && known->frame == frame &&
               known->caller == caller;
    for (uint32_t i = 0; same && i < known->natives; i++)
        same = *(volatile uintptr_t *)known->slots[i] == known->native[i];
    return same;
}

static int recalled(Sample *sample, uintptr_t frame, uintptr_t caller) {
    Remembered *set = set_of(frame, caller);
    for (int way = 0; way < WAYS; way++) {
        Remembered *known = &set[way];
        if (known->frame != frame || atomic_exchange(&known->held, 1))
            continue;
        int same = is_same(known, frame, caller);
        if (same) {
            sample->natives = known->natives;
            memcpy(sample->native, known->native, sizeof *known->native * known->natives);
        }
        atomic_store(&known->held, 0);
        if (same)
            return 1;
    }
    return 0;
}

static void remember(const Walk *walk, uintptr_t frame, uintptr_t caller) {
    static atomic_uint turn;
    const Sample *sample = walk->sample;
    for (uint32_t i = 0; i < sample->natives; i++)
        if (!is_stack(frame, walk->slots[i] + sizeof(void *)))
            return;
    Remembered *set = set_of(frame, caller), *known = NULL;
    for (int way = 0; way < WAYS && known == NULL; way++)
        known = set[way].natives == 0 ? &set[way] : NULL;
    if (known == NULL)
        known = &set[atomic_fetch_add(&turn, 1) % WAYS];
    if (atomic_exchange(&known->held, 1))
        return;
    known->thread = &of_this_thread;
    known->frame = frame;
    known->caller = caller;
    known->natives = sample->natives;
    memcpy(known->slots, walk->slots, sizeof *walk->slots * sample->natives);
    memcpy(known->native, sample->native, sizeof *sample->native * sample->natives);
    atomic_store(&known->held, 0);
}

static void fill_native(Sample *sample, uintptr_t caller, uintptr_t frame) {
    sample->natives = 0;
    if (unwinder_is_safe() && !recalled(sample, frame, caller)) {
        Walk walk = {.sample = sample, .is_verifiable = 1};
        _Unwind_Backtrace(visit, &walk);
        if (sample->natives > 0 && walk.is_verifiable)
            remember(&walk, frame, caller);
    }
    if (sample->natives == 0) {
        sample->native[0] = caller;
        sample->natives = 1;
    }
}

/* Texts and sites: each once, found by what they say. A table that is full takes no more. */

enum { MOST_TEXTS = 1 << 14, TEXT_BYTES = 2 << 20, MOST_SITES = 1 << 15, LONGEST = 1023 };

typedef struct {
    uint64_t hash;
    uint32_t at;
    uint32_t origin;
} Text;

typedef struct {
    uint32_t file, function; /* numbers of texts */
    int line;
} Site;

static Text *texts;
static char *text_bytes;
static Site *sites;
static atomic_uint *texts_by_hash, *sites_by_hash; /* numbers; 0 where there is none */
static atomic_uint texts_number, text_end, sites_number;

enum { MOST_PREFIXES = 64 };
static struct {
    char text[512];
    size_t length;
    Origin origin;
} prefixes[MOST_PREFIXES];
static int prefixes_number;

int origin_add(const char *prefix, Origin origin) {
    size_t length = strlen(prefix);
    if (prefixes_number == MOST_PREFIXES || length >= sizeof prefixes->text)
        return 0;
    memcpy(prefixes[prefixes_number].text, prefix, length + 1);
    prefixes[prefixes_number].length = length;
    prefixes[prefixes_number++].origin = origin;
    return 1;
}

void origins_clear(void) {
    prefixes_number = 0;
}

static int is_installed(const char *file) {
    return strstr(file, "/site-packages/") || strstr(file, "/dist-packages/");
}

/* The first prefix that fits decides; an installed library may lie below any folder. */
static Origin origin_of(const char *file) {
    for (int i = 0; i < prefixes_number; i++) {
        size_t length = prefixes[i].length;
        if (strncmp(file, prefixes[i].text, length) == 0)
            return prefixes[i].origin == USER && is_installed(file + length - 1) ? LIBRARY
                                                                                 : prefixes[i].origin;
    }
    if (strncmp(file, "<frozen importlib", 17) == 0)
        return IMPORT;
    if (file[0] == '<')
        return strcmp(file, "<string>") == 0 || strncmp(file, "<stdin", 6) == 0 ||
                       strncmp(file, "<ipython", 8) == 0
                   ? USER
                   : STANDARD;
    return is_installed(file) ? LIBRARY : USER;
}

static uint64_t hash_bytes(const char *text, size_t length) {
    uint64_t hash = length * UINT64_C(0x9E3779B97F4A7C15), word;
    for (; length >= 8; text += 8, length -= 8) {
        memcpy(&word, text, 8);
        hash = (hash ^ word) * UINT64_C(0xBF58476D1CE4E5B9);
        hash ^= hash >> 29;
    }
    word = 0;
    memcpy(&word, text, length);
    hash = (hash ^ word) * UINT64_C(0x94D049BB133111EB);
    return hash ^ hash >> 32;
}

static uint32_t text_number(const char *text, size_t length) {
    uint64_t hash = hash_bytes(text, length);
    uint32_t made = 0;
    for (uint32_t i = 0; i < MOST_TEXTS; i++) {
        atomic_uint *place = &texts_by_hash[(hash + i) % MOST_TEXTS];
        uint32_t number = atomic_load_explicit(place, memory_order_acquire);
        if (number == 0) {
            if (made == 0) {
                made = atomic_fetch_add(&texts_number, 1) + 1;
                uint32_t at = atomic_fetch_add(&text_end, (uint32_t)length + 1);
                if (made > MOST_TEXTS / 2 || at + length + 1 > TEXT_BYTES) {
                    atomic_fetch_sub(&texts_number, 1);
                    atomic_fetch_sub(&text_end, (uint32_t)length + 1);
                    return 0;
                }
                memcpy(text_bytes + at, text, length);
                text_bytes[at + length] = '\0';
                texts[made] = (Text){hash, at, origin_of(text_bytes + at)};
            }
            if (atomic_compare_exchange_strong(place, &number, made))
                return made;
        }
        if (texts[number].hash == hash &&
            strncmp(text_bytes + texts[number].at, text, length) == 0 &&
            text_bytes[texts[number].at + length] == '\0')
            return number;
    }
    return 0;
}

static uint32_t site_number(uint32_t file, uint32_t function, int line) {
    uint64_t hash = ((uint64_t)file << 40 ^ (uint64_t)function << 20 ^ (unsigned)line) *
                    UINT64_C(0x9E3779B97F4A7C15) >> 20;
    uint32_t made = 0;
    for (uint32_t i = 0; i < MOST_SITES; i++) {
        atomic_uint *place = &sites_by_hash[(hash + i) % MOST_SITES];
        uint32_t number = atomic_load_explicit(place, memory_order_acquire);
        if (number == 0) {
            if (made == 0) {
                made = atomic_fetch_add(&sites_number, 1) + 1;
                if (made > MOST_SITES / 2) {
                    atomic_fetch_sub(&sites_number, 1);
                    return 0;
                }
                sites[made] = (Site){file, function, line};
            }
            if (atomic_compare_exchange_strong(place, &number, made))
                return made;
        }
        if (sites[number].file == file && sites[number].function == function &&
            sites[number].line == line)
            return number;
    }
    return 0;
}

int site_place(uint32_t number, Place *place) {
    if (number == 0 || number > sites_known())
        return 0;
    const Site *site = &sites[number];
    place->file = text_bytes + texts[site->file].at;
    place->function = text_bytes + texts[site->function].at;
    place->line = site->line;
    place->origin = (Origin)texts[site->file].origin;
    return 1;
}

uint32_t sites_known(void) {
    uint32_t number = atomic_load(&sites_number);
    return number < MOST_SITES / 2 ? number : MOST_SITES / 2;
}

/* Python frames */

static size_t put_utf8(char *to, Py_UCS4 c) {
    if (c < 0x80)
        return *to = (char)c, 1;
    if (c < 0x800)
        return to[0] = (char)(0xC0 | c >> 6), to[1] = (char)(0x80 | (c & 0x3F)), 2;
    if (c >= 0xD800 && c < 0xE000)
        c = '?'; /* a byte that was no text */
    if (c == '?')
        return *to = '?', 1;
    if (c < 0x10000)
        return to[0] = (char)(0xE0 | c >> 12), to[1] = (char)(0x80 | (c >> 6 & 0x3F)),
               to[2] = (char)(0x80 | (c & 0x3F)), 3;
    return to[0] = (char)(0xF0 | c >> 18), to[1] = (char)(0x80 | (c >> 12 & 0x3F)),
           to[2] = (char)(0x80 | (c >> 6 & 0x3F)), to[3] = (char)(0x80 | (c & 0x3F)), 4;
}

static uint32_t text_of(PyObject *text) {
    char copy[LONGEST + 5];
    size_t length = 0;
    if (text == NULL || !PyUnicode_Check(text))
        return 0;
#if PY_VERSION_HEX < 0x030C0000
    if (!PyUnicode_IS_READY(text))
        return 0;
#endif
    Py_ssize_t size = PyUnicode_GET_LENGTH(text);
    if (PyUnicode_IS_COMPACT_ASCII(text)) {
        if (size <= LONGEST)
            return text_number((const char *)PyUnicode_1BYTE_DATA(text), (size_t)size);
    }
    for (Py_ssize_t i = 0; i < size && length < LONGEST - 4; i++)
        length += put_utf8(copy + length, PyUnicode_READ_CHAR(text, i));
    return text_number(copy, length);
}

/* The file and the site of an instruction that was met before, for as long as its code looks as it
   did: the same objects, and a file's name of the same length and end (cells of a notebook differ
   there). */

enum { CODE_BITS = 10 };
typedef struct {
    atomic_uint version; /* odd while it is written */
    const void *code, *file_object, *name_object;
    Py_ssize_t length;
    uint64_t end;
    int offset;
    uint32_t file, site; /* the site only if its file is the user's or it was innermost */
} KnownCode;

static KnownCode *known_codes;

static KnownCode code_now(PyCodeObject *code, int offset) {
    KnownCode now = {.code = code, .offset = offset, .file_object = code->co_filename, .name_object = code->co_name};
    PyObject *file = code->co_filename;
    if (PyUnicode_Check(file) && PyUnicode_IS_COMPACT_ASCII(file)) {
        now.length = PyUnicode_GET_LENGTH(file);
        if (now.length >= (Py_ssize_t)sizeof now.end)
            memcpy(&now.end, (const char *)PyUnicode_1BYTE_DATA(file) + now.length - sizeof now.end,
                   sizeof now.end);
    }
    return now;
}

static int is_known(KnownCode *place, KnownCode *now) {
    unsigned version = atomic_load_explicit(&place->version, memory_order_acquire);
    int same = !(version & 1) && place->code == now->code && place->offset == now->offset &&
               now->length > 0 &&
               place->file_object == now->file_object && place->name_object == now->name_object &&
               place->length == now->length && place->end == now->end;
    now->file = place->file;
    now->site = place->site;
    atomic_thread_fence(memory_order_acquire);
    return same && atomic_load_explicit(&place->version, memory_order_relaxed) == version;
}

static uint32_t site_of(uint32_t file, PyCodeObject *code, int offset) {
    int line = PyCode_Addr2Line(code, offset); /* below 0: of an instruction that has none */
    return site_number(file, text_of(code->co_name), line > 0 ? line : code->co_firstlineno);
}

static KnownCode code_known(PyCodeObject *code, int offset, int needs_site) {
    KnownCode now = code_now(code, offset);
    KnownCode *place = &known_codes[((uintptr_t)code / sizeof(void *) + (uintptr_t)offset) *
                                        UINT64_C(0x9E3779B97F4A7C15) >> (64 - CODE_BITS)];
    int known = is_known(place, &now);
    if (!known)
        now.file = text_of(code->co_filename), now.site = 0;
    needs_site = now.file != 0 && now.site == 0 &&
                 (needs_site || texts[now.file].origin == USER || texts[now.file].origin == OWN);
    if (needs_site)
        now.site = site_of(now.file, code, offset);
    if (known && !needs_site)
        return now;
    unsigned version = atomic_load(&place->version);
    if (!(version & 1) && atomic_compare_exchange_strong(&place->version, &version, version + 1)) {
        memcpy((char *)place + sizeof place->version, (char *)&now + sizeof now.version,
               sizeof now - sizeof now.version);
        atomic_store(&place->version, version + 2);
    }
    return now;
}

typedef struct {
    Sample *sample;
    int users_only;
    Origin origin; /* whose it is, as far as was read */
    int users, seen, is_over;
} Reading;

enum { DEEPEST = 128, USERS = PYTHON_FRAMES - 1 };

/* The innermost frame, and of the user's own the innermost few. What leakscope does for itself is
   its own, but programs also reach libraries through its wrappers. */
static void read_frame(Reading *reading, PyCodeObject *code, int offset) {
    Sample *sample = reading->sample;
    KnownCode known = code_known(code, offset, reading->seen == 0 && !reading->users_only);
    if (known.file == 0)
        return;
    Origin origin = (Origin)texts[known.file].origin;
    if (origin == IMPORT && reading->users_only && reading->users == 0) {
        reading->origin = IMPORT;
        reading->is_over = 1; /* what a module is made of grows with no work of the user's */
        return;
    }
    int is_first = reading->seen++ == 0 && !reading->users_only;
    int is_own = origin == OWN && reading->users == 0;
    if (known.site != 0 && (is_first || origin == USER || is_own))
        sample->python[sample->pythons++] = known.site;
    reading->users += origin == USER;
    reading->origin = is_own ? OWN : reading->users ? USER : LIBRARY;
    reading->is_over = is_own || reading->users == USERS || reading->seen == DEEPEST ||
                       sample->pythons == PYTHON_FRAMES;
}

static PyThreadState *own_state(void) {
    return PyGILState_GetThisThreadState();
}

#if PY_VERSION_HEX < 0x030B0000

static void read_frames(Reading *reading) {
    PyThreadState *state = own_state();
    for (PyFrameObject *frame = state ? state->frame : NULL; frame && !reading->is_over;
         frame = frame->f_back)
        read_frame(reading, frame->f_code,
                   frame->f_lasti < 0 ? -1 : frame->f_lasti * (int)sizeof(_Py_CODEUNIT));
}

#else

static struct _PyInterpreterFrame *innermost(PyThreadState *state) {
#if PY_VERSION_HEX >= 0x030D0000
    return state->current_frame;
#else
    return state->cframe ? state->cframe->current_frame : NULL;
#endif
}

static PyObject *executable(struct _PyInterpreterFrame *frame) {
#if PY_VERSION_HEX >= 0x030E0000
    return frame->owner < FRAME_OWNED_BY_INTERPRETER
               ? PyStackRef_AsPyObjectBorrow(frame->f_executable)
               : NULL;
#elif PY_VERSION_HEX >= 0x030D0000
    return frame->owner == FRAME_OWNED_BY_CSTACK ? NULL : frame->f_executable;
#elif PY_VERSION_HEX >= 0x030C0000
    return frame->owner == FRAME_OWNED_BY_CSTACK ? NULL : (PyObject *)frame->f_code;
#else
    return (PyObject *)frame->f_code;
#endif
}

static PyCodeObject *code_of(struct _PyInterpreterFrame *frame) {
    PyObject *code = executable(frame);
    return code != NULL && Py_TYPE(code) == &PyCode_Type ? (PyCodeObject *)code : NULL;
}

static void read_frames(Reading *reading) {
    PyThreadState *state = own_state();
    struct _PyInterpreterFrame *frame = state ? innermost(state) : NULL;
    for (int depth = 0; frame && !reading->is_over && depth < 4 * DEEPEST; depth++) {
        PyCodeObject *code = code_of(frame);
        if (code != NULL) /* a frame that isn't complete yet is before its first instruction */
            read_frame(reading, code,
                       (int)(_PyInterpreterFrame_LASTI(frame) * sizeof(_Py_CODEUNIT)));
        frame = frame->previous;
    }
}

#endif

/* A thread that never ran Python mostly works for one that called a library and waits for it. That
   one let the GIL go, nobody took it since, and its frames stay as they are until somebody does: so
   they count if the GIL was free before and after they were read. They are another thread's all the
   same: only the kernel reads them, which says no where nothing is mapped any more. */

#if PY_VERSION_HEX < 0x030E0000

#if PY_VERSION_HEX < 0x030B0000
typedef PyFrameObject AnyFrame;
#else
typedef struct _PyInterpreterFrame AnyFrame;
#endif

enum { LONGEST_TEXT = 511, LONGEST_TABLE = 4096, DEEPEST_WAITING = 48 };

static int copied(void *to, const void *from, size_t size) {
    struct iovec local = {to, size}, remote = {(void *)from, size};
    return from != NULL && process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == (ssize_t)size;
}

static PyThreadState *waiting_state(void) {
#if PY_VERSION_HEX < 0x030C0000
    struct _gil_runtime_state *gil = &_PyRuntime.ceval.gil;
#else
    PyInterpreterState *interpreter = PyInterpreterState_Main();
    struct _gil_runtime_state *gil = interpreter ? interpreter->ceval.gil : NULL;
#endif
    if (gil == NULL || __atomic_load_n((int *)&gil->locked, __ATOMIC_ACQUIRE) != 0)
        return NULL;
    return (PyThreadState *)__atomic_load_n((uintptr_t *)&gil->last_holder, __ATOMIC_ACQUIRE);
}

static AnyFrame *innermost_waiting(PyThreadState *state) {
    void *frame = NULL;
#if PY_VERSION_HEX < 0x030B0000
    const void *place = &state->frame;
#elif PY_VERSION_HEX < 0x030D0000
    _PyCFrame *outer = NULL;
    const void *place = copied(&outer, &state->cframe, sizeof outer) && outer
                            ? &outer->current_frame
                            : NULL;
#else
    const void *place = &state->current_frame;
#endif
    return copied(&frame, place, sizeof frame) ? frame : NULL;
}

/* The number of a text that is copied first; of other than ASCII, and of long ones, 0. */
static uint32_t copied_text(PyObject *text) {
    struct {
        PyASCIIObject head;
        char rest[LONGEST_TEXT + 1];
    } copy;
    if (!copied(&copy.head, text, sizeof copy.head) || copy.head.ob_base.ob_type != &PyUnicode_Type ||
        !copy.head.state.compact || !copy.head.state.ascii || copy.head.length > LONGEST_TEXT ||
        !copied(copy.rest, (char *)text + sizeof copy.head, (size_t)copy.head.length))
        return 0;
    return text_number(copy.rest, (size_t)copy.head.length);
}

static int line_of_copy(PyCodeObject *code, int offset) {
    struct {
        PyBytesObject head;
        char rest[LONGEST_TABLE];
    } table;
    const size_t begin = offsetof(PyBytesObject, ob_sval);
    Py_ssize_t size;
    if (!copied(&table, code->co_linetable, begin) || Py_TYPE(&table.head) != &PyBytes_Type)
        return code->co_firstlineno;
    size = Py_SIZE(&table.head) < LONGEST_TABLE ? Py_SIZE(&table.head) : LONGEST_TABLE;
    if (size < 0 || !copied(table.head.ob_sval, (char *)code->co_linetable + begin, (size_t)size))
        return code->co_firstlineno;
    Py_SET_SIZE((PyVarObject *)&table.head, size);
    code->co_linetable = (PyObject *)&table.head;
#if PY_VERSION_HEX >= 0x030C0000
    code->_co_monitoring = NULL;
#elif PY_VERSION_HEX >= 0x030B0000
    code->_co_linearray = NULL;
#endif
    int line = PyCode_Addr2Line(code, offset);
    return line > 0 ? line : code->co_firstlineno;
}

static void read_copy(Reading *reading, PyObject *executed, int offset) {
    PyCodeObject code;
    Sample *sample = reading->sample;
    if (!copied(&code, executed, sizeof code) || Py_TYPE(&code) != &PyCode_Type)
        return;
    uint32_t file = copied_text(code.co_filename);
    if (file == 0)
        return;
    Origin origin = (Origin)texts[file].origin;
    if (reading->seen++ == 0 || origin == USER) {
        uint32_t name = copied_text(code.co_name);
        uint32_t site = site_number(file, name, line_of_copy(&code, offset));
        if (site != 0)
            sample->python[sample->pythons++] = site;
    }
    reading->users += origin == USER;
    reading->is_over = reading->users == USERS || sample->pythons == PYTHON_FRAMES;
}

/* What was read for one thread, of which many others may ask while it waits. */
static struct {
    atomic_int held;
    PyThreadState *state;
    AnyFrame *frame;
    const void *instruction;
    uint32_t pythons, python[PYTHON_FRAMES];
} waited_for;

static const void *instruction_of(const AnyFrame *frame) {
#if PY_VERSION_HEX < 0x030B0000
    return (const char *)frame->f_code + frame->f_lasti;
#elif PY_VERSION_HEX < 0x030D0000
    return frame->prev_instr;
#else
    return frame->instr_ptr;
#endif
}

static void read_waiting(Reading *reading) {
    Sample *sample = reading->sample;
    PyThreadState *state = waiting_state();
    AnyFrame *first = state ? innermost_waiting(state) : NULL, *at = first, frame;
    if (!copied(&frame, at, sizeof frame) || atomic_exchange(&waited_for.held, 1))
        return;
    const void *instruction = instruction_of(&frame);
    int known = waited_for.state == state && waited_for.frame == first &&
                waited_for.instruction == instruction;
    if (known) {
        sample->pythons = waited_for.pythons;
        memcpy(sample->python, waited_for.python, sizeof sample->python);
    } else {
        sample->python[sample->pythons++] =
            site_number(text_number("<awaited>", 9), text_number("<awaited>", 9), 0);
        for (int depth = 0; depth < DEEPEST_WAITING && !reading->is_over; depth++) {
#if PY_VERSION_HEX < 0x030B0000
            read_copy(reading, (PyObject *)frame.f_code,
                      frame.f_lasti < 0 ? -1 : frame.f_lasti * (int)sizeof(_Py_CODEUNIT));
            at = frame.f_back;
#else
            PyObject *code = executable(&frame);
            if (code != NULL)
                read_copy(reading, code,
                          (int)(_PyInterpreterFrame_LASTI(&frame) * sizeof(_Py_CODEUNIT)));
            at = frame.previous;
#endif
            if (!copied(&frame, at, sizeof frame))
                break;
        }
    }
    if (waiting_state() != state || innermost_waiting(state) != first)
        sample->pythons = 0;
    waited_for.state = sample->pythons ? state : NULL;
    waited_for.frame = first;
    waited_for.instruction = instruction;
    waited_for.pythons = sample->pythons;
    memcpy(waited_for.python, sample->python, sizeof sample->python);
    atomic_store(&waited_for.held, 0);
}

static void awaited_after_fork(void) {
    atomic_store(&waited_for.held, 0);
}

#else

static void read_waiting(Reading *Py_UNUSED(reading)) {
}

static void awaited_after_fork(void) {
}

#endif

void stacks_fill(Sample *sample, void *caller, void *frame) {
    sample->pythons = 0;
    fill_native(sample, (uintptr_t)caller, (uintptr_t)frame);
    Reading reading = {.sample = sample};
    if (own_state() != NULL)
        read_frames(&reading);
    else
        read_waiting(&reading);
}

/* Of a thread that runs Python, the lines of the user's alone. Return whose the block is: the user's
   where there is such a line, leakscope's own, an import's, or a library's. */
Origin stacks_users(Sample *sample) {
    sample->pythons = 0;
    Reading reading = {.sample = sample, .users_only = 1, .origin = LIBRARY};
    if (own_state() != NULL)
        read_frames(&reading);
    return reading.origin;
}

int stacks_ready(void) {
    if (texts == NULL) {
        dl_iterate_phdr(note_texts, NULL);
        remembered = own_mapping(sizeof *remembered * REMEMBERED);
        texts_by_hash = own_mapping(sizeof *texts_by_hash * MOST_TEXTS);
        sites_by_hash = own_mapping(sizeof *sites_by_hash * MOST_SITES);
        text_bytes = own_mapping(TEXT_BYTES);
        known_codes = own_mapping(sizeof *known_codes << CODE_BITS);
        sites = own_mapping(sizeof *sites * (MOST_SITES + 1));
        texts = own_mapping(sizeof *texts * (MOST_TEXTS + 1));
    }
    return remembered && known_codes && texts_by_hash && sites_by_hash && text_bytes && sites && texts;
}

/* Locks of threads that a forked child doesn't have. */
void stacks_after_fork(void) {
    awaited_after_fork();
    for (int i = 0; remembered != NULL && i < REMEMBERED; i++)
        if (atomic_load_explicit(&remembered[i].held, memory_order_relaxed))
            atomic_store(&remembered[i].held, 0);
}
