cpdef object new_metadata(object kind, object topic, object partition, object offset, object timestamp_ms)
