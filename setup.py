"""Builds the native parts. Everything else is in pyproject.toml."""

import os
import sysconfig
from copy import copy
from pathlib import Path
from tempfile import TemporaryDirectory

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import BaseError, CCompilerError

from distutils.ccompiler import new_compiler  # isort: skip  (setuptools', which brings it along)
from distutils.sysconfig import customize_compiler  # isort: skip

# The Makefile installs the package in place, and compiles afterwards: only what has changed.
COMPILES_LATER = "ONCELOG_COMPILE_LATER" in os.environ
AT_ONCE = min(4, os.cpu_count() or 1)  # each takes some hundred megabytes

# Without what debuggers want to know (Python's own flags ask for it) compiling takes a third less time and the result a
# fifth of the space. Cython's checks of None look to gcc like an overrun.
FLAGS = ("-g0", "-Wno-array-bounds")

# Modules that every record passes through in a producer, or every Produce request in a broker: plain Python, compiled as
# they are. The .pxd beside some gives types to their classes; a new attribute of such a class needs a line there.
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
    "records.frames",
    "records.validation",
    "log.producer_state",
    "log.verification",
    "log.segment",
    "log.partition_log",
    "broker.answer_line",
    "broker.outbox",
    "broker.lookout",
    "broker.connection",
    "broker.dispatch",
    "broker.handlers.heavy_batches",
    "broker.handlers.produce",
]

KERNEL_PARTS = ("src/oncelog/records/_crc32c.h", "src/oncelog/records/_cursor.pxi")


def native(name: str, suffix: str, optimize: str = "-O2", depends: tuple[str, ...] = ()) -> Extension:
    return Extension(
        f"oncelog.{name}",
        [f"src/oncelog/{name.replace('.', '/')}{suffix}"],
        extra_compile_args=[optimize, *FLAGS],
        depends=list(depends),
    )


def natives() -> list[Extension]:
    if os.name != "posix":  # they are written for gcc and clang
        return []
    return [
        native("records._appender", ".pyx"),
        native("records._placing", ".pyx"),
        native("records._native", ".pyx", "-O3", KERNEL_PARTS),
        native("wire._quick", ".pyx"),
        native("client._lock", ".pyx"),
        native("client._records", ".pyx"),
        native("client._recycling", ".pyx"),
        native("client._settled", ".pyx"),
        native("client._clock", ".pyx"),
        native("broker._allocator", ".pyx"),
        *(native(name, ".py") for name in COMPILED),
    ]


def translate(extensions: list[Extension]) -> None:
    """To C, which takes a minute and is wanted by nobody who asks only for metadata or a source distribution."""
    from Cython.Build import cythonize

    translated = cythonize(
        [copy(extension) for extension in extensions],
        # Annotations are for people and mypy: an `int` there has no bound, as C's has.
        compiler_directives={"language_level": "3", "annotation_typing": False},
        build_dir="build",
        quiet=True,
        nthreads=AT_ONCE,
    )
    by_name = {extension.name: extension for extension in extensions}
    for extension in translated:
        by_name[extension.name].sources = extension.sources
        by_name[extension.name].depends = extension.depends


def check_compiler() -> None:
    """Raises CCompilerError if there is none, or if it does not find Python's headers."""
    with TemporaryDirectory() as folder:
        probe = Path(folder, "probe.c")
        probe.write_text("#include <Python.h>\n")
        compiler = new_compiler()
        customize_compiler(compiler)
        headers = sorted({sysconfig.get_path("include"), sysconfig.get_path("platinclude")})
        compiler.compile([str(probe)], output_dir=folder, include_dirs=headers)


class AllOrNothing(build_ext):
    """Where something cannot be compiled, the install works on the Python sources and twins, and on nothing else: what
    is compiled shares its types and needs the rest. Whoever compiles in place wants to hear what is wrong."""

    def run(self) -> None:
        try:
            if self.extensions:
                check_compiler()
                translate(self.extensions)
            super().run()
        except (CCompilerError, BaseError, ImportError) as error:
            if self.inplace and not self.editable_mode:
                raise
            self.warn(f"oncelog is installed without its compiled parts, and slower for it: {error}")
            for built in self.get_outputs():
                Path(built).unlink(missing_ok=True)
            self.extensions.clear()


if __name__ == "__main__":  # Cython's processes import this file where they cannot be forked
    setup(
        ext_modules=[] if COMPILES_LATER else natives(),
        cmdclass={"build_ext": AllOrNothing},
        options={"build_ext": {"parallel": AT_ONCE}},
    )
