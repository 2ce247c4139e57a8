"""`python -m mirlo` is the command `mirlo`."""

from __future__ import annotations

import sys

from mirlo.tools.cli import main

sys.exit(main())
