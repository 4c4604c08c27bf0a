"""For all tiers: assertions in shared batteries of tests explain themselves as those in test modules do."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("tests.support.frontier_suite")
