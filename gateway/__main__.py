"""`python -m gateway` is `saltway`."""

from gateway.cli import main

main()
