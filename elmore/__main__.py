"""`python -m elmore`: the command line, for torchrun and where the script is not on the path."""

from elmore.cli import main

main()
