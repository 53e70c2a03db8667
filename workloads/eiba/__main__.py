"""``python -m workloads.eiba``."""

from __future__ import annotations

import sys

from workloads.eiba.main import main

sys.exit(main())
