"""Every fault test draws its choices from one seed, which a failure shows."""

from __future__ import annotations

import os
import random

import pytest

SEED_VARIABLE = "ONCELOG_SEED"


@pytest.fixture
def rng() -> random.Random:
    seed = int(os.environ.get(SEED_VARIABLE) or random.SystemRandom().randrange(2**32))
    # Captured, and shown with a failure.
    print(f"seed {seed}: the same choices again with {SEED_VARIABLE}={seed}")
    return random.Random(seed)
