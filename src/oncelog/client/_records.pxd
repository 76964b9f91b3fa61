cpdef object new_metadata(object kind, object topic, object partition, object offset, object timestamp_ms)
cpdef object hide_from_collector(object one)
cpdef object show_to_collector(object one)
cpdef object kind_of(object callback)
