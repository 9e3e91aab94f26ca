"""`python -m tandembus`: the command line, also where no script is installed."""

from tandembus.cli import main

main(prog_name="tandembus")
