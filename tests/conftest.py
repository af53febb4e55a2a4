"""How many examples Hypothesis tries: some in every run, ten times as many in `make test-all`."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

_PATIENT = [HealthCheck.too_slow, HealthCheck.data_too_large]

settings.register_profile("normal", deadline=None, max_examples=50, suppress_health_check=_PATIENT)
settings.register_profile("all", deadline=None, max_examples=500, suppress_health_check=_PATIENT)
settings.load_profile("all" if os.environ.get("WATERSMEET_TEST_ALL") == "1" else "normal")
