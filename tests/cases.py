"""Whether all cases of large test matrices run, with CASES=all (`make conformance`), or a sample of each kind."""

from __future__ import annotations

import os

ALL_CASES = os.environ.get("CASES") == "all"
