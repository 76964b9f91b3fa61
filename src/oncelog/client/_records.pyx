"""What `records.new_metadata` does, without the detours of a Python call: one is made for every record.

And what spares the collector the sight of objects that are part of no cycle: looking through a thousand results that
wait to be awaited would cost as much as a few hundred more of them."""

from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_SET_ITEM

from oncelog.records._named_tuple cimport new_raw_named_tuple

cdef extern from "Python.h":
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
