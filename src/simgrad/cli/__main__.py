"""`python -m simgrad.cli`."""

from simgrad.cli.program import main

main()
