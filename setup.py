"""Builds the native parts. Everything else is in pyproject.toml."""

import os

from Cython.Build import cythonize
from setuptools import Extension, setup

# The Makefile installs the package in place, and compiles afterwards: on two processors, and only what has changed.
COMPILES_LATER = "ONCELOG_COMPILE_LATER" in os.environ

# Modules that every record of a producer passes through: plain Python, compiled as they are. The .pxd beside each gives
# types to its classes; a new attribute of such a class needs a line there.
COMPILED = [
    "types",
    "wire.api",
    "wire.primitives",
    "wire.frame",
    "wire.frame_receiver",
    "client.delivery",
    "client.batch",
    "client.accumulator",
    "client.node_ring",
    "client.placement",
    "client.intake",
    "client.loop_future",
    "client.loop_intake",
    "client.connection",
    "client.link",
    "client.network",
    "client.metadata_cache",
    "client.producer_counters",
    "client.idempotence",
    "client.verdict",
    "client.fates",
    "client.dispatch",
    "client.sender",
    "client.sockets",
    "client.standing_in",
]

KERNEL_PARTS = ("src/oncelog/records/_crc32c.h", "src/oncelog/records/_cursor.pxi")


def native(name: str, suffix: str, optimize: str = "-O2", depends: tuple[str, ...] = ()) -> Extension:
    return Extension(
        f"oncelog.{name}",
        [f"src/oncelog/{name.replace('.', '/')}{suffix}"],
        extra_compile_args=[optimize, "-Wno-array-bounds"],  # Cython's checks of None look to gcc like an overrun
        depends=list(depends),
        optional=True,  # without a C compiler the install still works, on the Python source or twin
    )


def natives() -> list[Extension]:
    return cythonize(
        [
            native("records._appender", ".pyx"),
            native("records._placing", ".pyx"),
            native("records._native", ".pyx", "-O3", KERNEL_PARTS),
            native("wire._quick", ".pyx"),
            native("client._lock", ".pyx"),
            native("client._records", ".pyx"),
            native("client._recycling", ".pyx"),
            native("client._settled", ".pyx"),
            native("client._clock", ".pyx"),
            *(native(name, ".py") for name in COMPILED),
        ],
        # Annotations are for people and mypy: an `int` there has no bound, as C's has.
        compiler_directives={"language_level": "3", "annotation_typing": False},
        build_dir="build",
        quiet=True,
        nthreads=2,
    )


setup(ext_modules=[] if COMPILES_LATER else natives())
