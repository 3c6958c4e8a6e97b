"""`python -m fsxds`."""

import sys

from fsxds.commands.main import main

if __name__ == "__main__":
    sys.exit(main())
