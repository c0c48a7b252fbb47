"""``python -m ptxbench``."""

from ptxbench.console import main

main()
