# Types for the compiled form of loop_intake.py; the module runs without it, slower.

from oncelog.client.accumulator cimport Accumulator
from oncelog.client.intake cimport Intake


cdef class LoopIntake:
    cdef readonly Intake _intake
    cdef readonly Accumulator _accumulator
    cdef object _send_early
