# Types for the compiled form of loop_intake.py; the module runs without it, slower.

cimport cython

from oncelog.client.accumulator cimport Accumulator
from oncelog.client.delivery cimport RecordFuture
from oncelog.client.intake cimport Intake
from oncelog.client.loop_future cimport LoopFuture, new_loop_future


cdef class LoopIntake:
    cdef Intake _intake
    cdef Accumulator _accumulator
    cdef object _send_early
    cdef object _home
    cdef object _send_slowly

    @cython.locals(record=RecordFuture)
    cpdef object send(
        self,
        object topic,
        object value=*,
        object key=*,
        object headers=*,
        object partition=*,
        object timestamp_ms=*,
        object on_delivery=*,
    )
