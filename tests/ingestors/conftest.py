"""Assertions in these helper modules show what differs, as those in tests do."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("readings", "engines")
