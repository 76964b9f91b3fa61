# Types for the compiled form of connection.py; the module runs without it, slower.

from oncelog.broker.answer_line cimport AnswerLine
from oncelog.wire.frame cimport FrameAssembler


cdef class KafkaConnection:
    cdef object _server
    cdef FrameAssembler _frames
    cdef AnswerLine _line
    cdef object _held
    cdef object _outbox
    cdef dict _timers
    cdef object _transport
    cdef bint _write_blocked
    cdef bint _is_leaving
    cdef bint _reading_paused
    cdef object _muting
    cdef object _holding
    cdef object _peer
    cdef long long _noted_bytes
    cdef bint _is_unfinished
    cdef bint _on_workbench
    cdef dict _in_work
    cdef long long _waiting_bytes
    cdef bint _goes_on
    cdef double _began_s
    cdef readonly double last_active_s
    cdef object __weakref__

    cdef bint _is_open(self) except -1
    cdef bint _is_saturated(self) except -1
    cdef _serve(self, object frame)
    cdef _serve_now(self, object frame)
    cdef _note_unfinished(self, long long arriving_bytes)
    cdef _go_on_later(self)
    cdef _balance_reading(self)
    cdef _answer(self, object header, object answer)
    cdef _framed(self, object header, object answer)
    cdef _send(self, object chunks)
