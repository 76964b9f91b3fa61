# cython: language_level=3
raise ImportError("the native kernel is not written yet")
