"""Builds the native kernel. Everything else is in pyproject.toml."""

from setuptools import Extension, setup

# optional=True: without a C compiler the install still works, on the Python twin of the kernel.
setup(
    ext_modules=[
        Extension(
            "oncelog.records._native",
            ["src/oncelog/records/_native.pyx"],
            extra_compile_args=["-O3"],
            depends=["src/oncelog/records/_crc32c.h"],
            optional=True,
        )
    ]
)
