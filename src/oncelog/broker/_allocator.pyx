"""One wish to the C library's allocator that has no name in Python: one arena for all threads.

glibc gives each thread an arena of its own, which keeps what was freed in it for that thread. The broker's few threads
take turns at the interpreter's lock and hardly ever allocate at the same time, so the arenas gain nothing, and what
each of them keeps is several megabytes. Other C libraries have no such setting, and are left alone.
"""

cdef extern from *:
    """
    #include <stdlib.h>
    #ifdef __GLIBC__
    #include <malloc.h>
    static int share_one_arena(void) { return mallopt(M_ARENA_MAX, 1); }
    #else
    static int share_one_arena(void) { return 0; }
    #endif
    """
    int share_one_arena()


def use_one_arena() -> bool:
    """To be called before there are threads. Whether the C library does so."""
    return share_one_arena() != 0
