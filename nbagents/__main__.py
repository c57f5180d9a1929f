"""`python -m nbagents` is the command `nbagents`."""

from nbagents.cli import main

raise SystemExit(main())
