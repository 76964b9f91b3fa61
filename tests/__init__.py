"""The tests; what they share in `tests.support` asserts as readably as they do themselves."""

import pytest

pytest.register_assert_rewrite("tests.support")
