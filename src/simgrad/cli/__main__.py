"""`python -m simgrad.cli`."""

from simgrad.cli import main

main()
