# Types for the compiled form of loop_intake.py; the module runs without it, slower.

from oncelog.client.accumulator cimport Accumulator
from oncelog.client.intake cimport Intake


cdef class LoopIntake:
    cdef Intake _intake
    cdef Accumulator _accumulator
    cdef object _send_early
    cdef object _send_slowly

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
