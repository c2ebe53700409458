"""The shared graph that everything after the language works on, and facts about its nodes. No SymPy."""

from redalg._moved import contents

__getattr__ = contents(__name__)
