"""The catalog: textbook definitions by name, each with its source."""

from redalg._moved import contents

__getattr__ = contents(__name__)
