"""Builds the native parts. Everything else is in pyproject.toml."""

from setuptools import Extension, setup

# optional=True: without a C compiler the install still works, on their Python twins.
setup(
    ext_modules=[
        Extension(
            "oncelog.records._native",
            ["src/oncelog/records/_native.pyx"],
            extra_compile_args=["-O3"],
            depends=["src/oncelog/records/_crc32c.h"],
            optional=True,
        ),
        Extension("oncelog.wire._quick", ["src/oncelog/wire/_quick.pyx"], extra_compile_args=["-O2"], optional=True),
    ]
)
