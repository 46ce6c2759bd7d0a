"""How long the fuzz tests look: a moment, unless PICKWISE_FUZZ_EXAMPLES says otherwise (see ``scripts/fuzz``)."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "fuzz",
    max_examples=int(os.environ.get("PICKWISE_FUZZ_EXAMPLES", "60")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("fuzz")
