"""Memory for objects of which one is made for every record, and most are gone a moment later.

To get it from the interpreter and give it back costs more than everything else that is done with such an object, part
of it for the collector's list of all objects. So the memory of a few is kept for the next ones, and they are hidden
from the collector: whoever makes one part of a cycle shows it (`show_to_collector`)."""

cdef extern from *:
    """
    #define ONCELOG_POOLS 4
    #define ONCELOG_POOL_ROOM 1024

    typedef struct {
        PyTypeObject *type;
        Py_ssize_t room, count;
        PyObject *kept[ONCELOG_POOL_ROOM];
    } oncelog_pool;

    static oncelog_pool oncelog_pools[ONCELOG_POOLS];
    static int oncelog_pool_count = 0;

    static oncelog_pool *oncelog_pool_of(PyTypeObject *type) {
        for (int number = 0; number < oncelog_pool_count; number++)
            if (oncelog_pools[number].type == type) return &oncelog_pools[number];
        Py_FatalError("oncelog: memory of a class that has none kept");  /* only those that have come here */
    }

    static PyObject *oncelog_recycling_alloc(PyTypeObject *type, Py_ssize_t count) {
        oncelog_pool *pool = oncelog_pool_of(type);
        PyObject *made;
        if (pool->count) {
            made = pool->kept[--pool->count];
            memset((char *)made + sizeof(PyObject), 0, (size_t)type->tp_basicsize - sizeof(PyObject));
            return PyObject_Init(made, type);
        }
        made = PyType_GenericAlloc(type, count);
        if (made != NULL) PyObject_GC_UnTrack(made);
        return made;
    }

    static void oncelog_recycling_free(void *memory) {
        oncelog_pool *pool = oncelog_pool_of(Py_TYPE((PyObject *)memory));
        if (pool->count < pool->room)
            pool->kept[pool->count++] = (PyObject *)memory;
        else
            PyObject_GC_Del(memory);
    }

    static int oncelog_recycle(PyObject *kind, Py_ssize_t room) {
        PyTypeObject *type = (PyTypeObject *)kind;
    #ifndef Py_GIL_DISABLED  /* the lock that guards the pools */
        /* A subclass in Python has an allocation of its own, and does not inherit this one. */
        if (!PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE) && PyType_IS_GC(type) && type->tp_itemsize == 0
            && room <= ONCELOG_POOL_ROOM && oncelog_pool_count < ONCELOG_POOLS) {
            oncelog_pools[oncelog_pool_count].type = type;
            oncelog_pools[oncelog_pool_count++].room = room;
            type->tp_alloc = oncelog_recycling_alloc;
            type->tp_free = oncelog_recycling_free;
            return 1;
        }
    #endif
        return 0;
    }
    """
    bint oncelog_recycle(object kind, Py_ssize_t room)


cpdef bint recycle(object kind, Py_ssize_t room) except? 0:
    """Keep the memory of so many objects of a compiled class. Returns whether it is done: only for those."""
    if not isinstance(kind, type):
        raise TypeError(f"{kind!r} is no class")
    return oncelog_recycle(kind, room)
