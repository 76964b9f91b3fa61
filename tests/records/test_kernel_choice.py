"""Which kernel is taken, what an install without a compiler hears, and what an import costs."""

from __future__ import annotations

import subprocess
import sys
import warnings

import pytest

from oncelog.records import kernel
from tests.records.conftest import NAMES

WITHOUT_NATIVE = "import sys; sys.modules['oncelog.records._native'] = None\n"


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60, check=False
    )


def test_both_kernels_have_every_name() -> None:
    for choice in kernel.KERNELS:
        try:
            module = kernel.load(choice)
        except ImportError:
            pytest.skip("the native kernel was not built")
        assert all(hasattr(module, name) for name in NAMES)
    assert {name for name in NAMES if not hasattr(kernel, name)} == set()


@pytest.mark.parametrize("choice", kernel.KERNELS)
def test_the_environment_forces_one(choice: str) -> None:
    code = "from oncelog.records import kernel; print(kernel.NATIVE)"
    done = run(code, ONCELOG_KERNEL=choice)
    if "No module named 'oncelog.records._native'" in done.stderr:
        pytest.skip("the native kernel was not built")
    assert (done.stdout.strip(), done.stderr) == (str(choice == "native"), "")


def test_an_unknown_choice_is_refused() -> None:
    with pytest.raises(ImportError, match="fastest"):
        kernel.load("fastest")


def test_without_the_native_kernel_all_works_and_one_warning_says_so() -> None:
    code = WITHOUT_NATIVE + (
        "import oncelog.records.kernel, oncelog.records.batch as b, oncelog.records.validation\n"
        "print(oncelog.records.kernel.NATIVE, b.decode_records(b.build_batch([(1, b'k', b'v', ())], codec=4))[0].value)"
    )
    done = run(code)
    assert done.stdout.strip() == "False b'v'"
    assert done.stderr.count("RuntimeWarning") == 1
    assert "without its native kernel" in done.stderr


def test_a_forced_native_kernel_that_is_missing_is_an_error() -> None:
    done = run(WITHOUT_NATIVE + "import oncelog.records.kernel", ONCELOG_KERNEL="native")
    assert done.returncode != 0
    assert "ImportError" in done.stderr or "ModuleNotFoundError" in done.stderr


def test_the_twin_is_chosen_without_a_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert kernel.load("python").__name__ == "oncelog.records._python"


def test_importing_is_cheap() -> None:
    code = (
        "import sys, oncelog.records.batch, oncelog.records.validation, oncelog.records.arrow\n"
        "oncelog.records.batch.build_batch([(1, b'k', b'v', ())])\n"
        "print([name for name in ('cramjam', 'pyarrow', 'numpy', 'asyncio') if name in sys.modules])"
    )
    done = run(code)
    assert done.stdout.strip() == "[]", done.stderr
