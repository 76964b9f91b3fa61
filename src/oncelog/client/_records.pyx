"""What `records.new_metadata` does, without the detours of a Python call: one is made for every record.

And what spares the collector the sight of objects that are part of no cycle: looking through a thousand results that
wait to be awaited would cost as much as a few hundred more of them."""

from functools import partial

from cpython.ref cimport Py_INCREF, PyObject
from cpython.tuple cimport PyTuple_SET_ITEM

from oncelog.records._named_tuple cimport new_raw_named_tuple

cdef extern from "Python.h":
    int PyFunction_Check(object one)
    int PyMethod_Check(object one)
    PyObject* PyFunction_GetCode(object function) except NULL
    PyObject* PyMethod_Function(object method) except NULL
    void PyObject_GC_Track(object one)
    void PyObject_GC_UnTrack(object one)
    int PyObject_GC_IsTracked(object one)

cpdef object new_metadata(object kind, object topic, object partition, object offset, object timestamp_ms):
    cdef object metadata = new_raw_named_tuple(kind, 4)
    Py_INCREF(topic)
    PyTuple_SET_ITEM(metadata, 0, topic)
    Py_INCREF(partition)
    PyTuple_SET_ITEM(metadata, 1, partition)
    Py_INCREF(offset)
    PyTuple_SET_ITEM(metadata, 2, offset)
    Py_INCREF(timestamp_ms)
    PyTuple_SET_ITEM(metadata, 3, timestamp_ms)
    return metadata  # which the collector need not know: of text and numbers there are no cycles


cpdef object hide_from_collector(object one):
    PyObject_GC_UnTrack(one)


cpdef object show_to_collector(object one):
    if not PyObject_GC_IsTracked(one):
        PyObject_GC_Track(one)


cpdef object kind_of(object callback):
    """As `callbacks.kind_of`, which says what it is for: asked with every record that has a callback."""
    if type(callback) is partial:
        callback = callback.func
    if PyMethod_Check(callback):
        callback = <object>PyMethod_Function(callback)
    if PyFunction_Check(callback):
        return <object>PyFunction_GetCode(callback)
    code = getattr(callback, "__code__", None)
    return type(callback) if code is None else code
