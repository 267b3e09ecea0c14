"""``python -m tilewright``: the command line."""

from tilewright.driver import main

main()
