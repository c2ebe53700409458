"""Which schedules are legal, what they cost on a device, and which one is taken."""

from redalg._moved import contents

__getattr__ = contents(__name__)
