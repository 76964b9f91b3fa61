"""What `await` runs on a result that is already there: one step, without a generator and without StopIteration."""

cimport cython


cdef extern from *:
    """
    /* As the layout of the class below begins; `result` is handed over to whoever awaits. */
    static PyObject *oncelog_take_result(PyObject *settled);

    static PySendResult oncelog_send_settled(PyObject *settled, PyObject *sent, PyObject **result) {
        (void)sent;
        *result = oncelog_take_result(settled);
        return *result == NULL ? PYGEN_ERROR : PYGEN_RETURN;
    }
    static void oncelog_install_send(PyObject *type) {
        ((PyTypeObject *)type)->tp_as_async->am_send = oncelog_send_settled;
    }
    """
    void oncelog_install_send(object type)


@cython.freelist(8)
@cython.no_gc  # it lives for one step
cdef class Settled:
    def __await__(self):
        return self

    def __iter__(self):
        return self

    def __next__(self):
        raise StopIteration(take_result(self))


cdef public object oncelog_take_result(object settled):
    return take_result(settled)


cdef inline object take_result(Settled settled):
    result, settled.result = settled.result, None
    return result


cpdef object settled(object result):
    cdef Settled made = Settled.__new__(Settled)
    made.result = result
    return made


oncelog_install_send(Settled)
