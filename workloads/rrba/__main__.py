"""``python -m workloads.rrba``."""

from __future__ import annotations

import sys

from workloads.rrba.main import main

sys.exit(main())
