"""`python -m lotnet`, where the command itself is not on the path."""

import sys

from lotnet.cli import main

sys.exit(main())
