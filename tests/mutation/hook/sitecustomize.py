"""Load the mutant of a module in place of the module: Python runs this file at its start, from PYTHONPATH.

``TILEWRIGHT_MUTANT`` has the path of the module's file and that of the mutant's text, with a ``:`` between.
"""

import importlib.machinery
import os


def install(original: str, mutant: str) -> None:
    """Give the code of ``mutant`` for the file ``original`` from now on; nothing compiled is kept."""
    loader = importlib.machinery.SourceFileLoader
    get_code = loader.get_code

    def mutated_code(self, fullname):
        if os.path.realpath(self.path) != original:
            return get_code(self, fullname)
        with open(mutant, "rb") as file:
            return compile(file.read(), original, "exec", dont_inherit=True)

    loader.get_code = mutated_code


if "TILEWRIGHT_MUTANT" in os.environ:
    install(*os.environ["TILEWRIGHT_MUTANT"].split(":"))
