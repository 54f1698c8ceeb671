"""`python -m lotnet`, where the command itself is not on the path."""

import sys

from lotnet.cli.main import main

sys.exit(main())
