"""The functions that steps name: a user's, from a module or a file, and the stream tools.

A shell: it imports what the user wrote. A module's folder is the pipeline file's own. Functions of a file travel to the
executors by value, so that a cluster needs no copy of the file.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import re
import sys
from collections.abc import Callable
from typing import Any

from oncelog.client.settings import nearest
from oncelog.errors import OncelogError
from oncelog.spark.pipeline.values import FunctionStep

Function = Callable[..., Any]


class NoFunction(OncelogError):
    """What a step names cannot be called as the step says."""


def load_function(step: FunctionStep, folder: str) -> Function:
    """Raises NoFunction."""
    function = _tool(step.function) if step.key == "tool" else _of_user(step.function, folder)
    try:
        inspect.signature(function).bind(*step.inputs, **step.arguments)
    except TypeError as error:
        taken = f"{len(step.inputs)} data frame{'s' if len(step.inputs) > 1 else ''}"
        raise NoFunction(
            f'"{step.function}" cannot be called with {taken} and {_listed(step.arguments)}: {error}'
        ) from None
    return function


def _listed(arguments: Any) -> str:
    return f"with.{', with.'.join(arguments)}" if arguments else "no arguments"


def _tool(name: str) -> Function:
    tools = importlib.import_module("oncelog.spark.tools")
    names = [one for one in tools.__all__ if inspect.isfunction(getattr(tools, one))]
    if name not in names:
        near = nearest(name, names)
        hint = f'; did you mean "{near}"?' if near else f"; there are {', '.join(names)}"
        raise NoFunction(f'there is no stream tool "{name}"{hint}')
    function: Function = getattr(tools, name)
    return function


def _of_user(text: str, folder: str) -> Function:
    where, colon, name = text.rpartition(":")
    if not colon or not where or not name:
        raise NoFunction(f'write "module:function" or "file.py:function", not {text!r}')
    module = _from_file(os.path.join(folder, where)) if where.endswith(".py") else _by_name(where, folder)
    function = getattr(module, name, None)
    if not callable(function):
        known = [one for one, value in vars(module).items() if inspect.isfunction(value)]
        near = nearest(name, known)
        hint = f'; did you mean "{near}"?' if near else ""
        raise NoFunction(f"{where} has no function {name!r}{hint}")
    found: Function = function
    return found


def _by_name(name: str, folder: str) -> Any:
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return _imported(name, lambda: importlib.import_module(name))


def _from_file(path: str) -> Any:
    if not os.path.isfile(path):
        raise NoFunction(f"there is no file {path}")
    name = re.sub(r"\W", "_", f"pipeline_{path.removesuffix('.py')}")  # hides no module that is called the same
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None, path
    assert spec.loader is not None, path
    loader = spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    _imported(path, lambda: loader.exec_module(module))
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    return module


def _imported(what: str, load: Callable[[], Any]) -> Any:
    try:
        return load()
    except Exception as error:  # whatever the user's module raises while it is imported
        raise NoFunction(f"{what} cannot be imported: {type(error).__name__}: {error}") from error
