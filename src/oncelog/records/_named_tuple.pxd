"""Instances of NamedTuple classes, made without a Python call: one home for what such a tuple needs to be whole.

The caller sets every item (the reference is stolen) before anything else sees it. The collector need not know it: what
it will hold can be part of no cycle.
"""

from cpython.object cimport PyObject

cdef extern from *:
    """
    #ifndef ONCELOG_NAMED_TUPLE
    #define ONCELOG_NAMED_TUPLE
    /* Since Python 3.14 a tuple remembers its hash, and -1 says that it is not known yet. Memory that was zeroed would say
       0: the tuple would equal another, and not be found in its place in a set. */
    static CYTHON_INLINE PyObject *oncelog_without_hash(PyObject *made) {
    #if PY_VERSION_HEX >= 0x030E0000
        if (made != NULL) ((PyTupleObject *)made)->ob_hash = -1;
    #endif
        return made;
    }
    static CYTHON_INLINE PyObject *new_named_tuple(PyObject *type, Py_ssize_t size) {
        PyObject *made = ((PyTypeObject *)type)->tp_alloc((PyTypeObject *)type, size);
        if (made != NULL) PyObject_GC_UnTrack(made);
        return oncelog_without_hash(made);
    }
    /* The same with items that are not even zeroed: nothing may fail before all are set. */
    static CYTHON_INLINE PyObject *new_raw_named_tuple(PyObject *type, Py_ssize_t size) {
        return oncelog_without_hash((PyObject *)PyObject_GC_NewVar(PyTupleObject, (PyTypeObject *)type, size));
    }
    #endif
    """
    PyObject *new_named_tuple(PyObject *type, Py_ssize_t size) except NULL
    object new_raw_named_tuple(object type, Py_ssize_t size)
