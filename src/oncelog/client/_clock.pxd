cpdef long long read_ms(object clock) except? -1
