"""``python -m ptxbench``."""

from ptxbench.cli.console import main

main()
