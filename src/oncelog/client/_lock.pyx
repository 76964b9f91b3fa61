"""A lock that compiled code takes without a Python call. Its twin is `threading.Lock`.

Who holds it is written down under the interpreter's lock, which everybody here has anyway; the system is asked only
where somebody must wait. Its own locks read the clock each time they are taken, at the cost of a tenth of a `send()`."""

from cpython.pythread cimport (
    WAIT_LOCK, PyThread_acquire_lock, PyThread_allocate_lock, PyThread_free_lock, PyThread_release_lock
)


cdef class QuickLock:
    def __cinit__(self):
        self.gate = PyThread_allocate_lock()
        if self.gate == NULL:
            raise MemoryError()
        PyThread_acquire_lock(self.gate, WAIT_LOCK)

    def __dealloc__(self):
        if self.gate != NULL:
            PyThread_release_lock(self.gate)
            PyThread_free_lock(self.gate)

    cpdef object acquire(self):
        while self.is_held:
            self.waiting += 1
            with nogil:
                PyThread_acquire_lock(self.gate, WAIT_LOCK)
            self.is_gate_open = False
            self.waiting -= 1
        self.is_held = True

    cpdef object release(self):
        self.is_held = False
        if self.waiting and not self.is_gate_open:  # otherwise somebody is on the way already
            self.is_gate_open = True
            PyThread_release_lock(self.gate)
