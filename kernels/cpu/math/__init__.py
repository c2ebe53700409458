"""Functions of real numbers in generated CPU code."""
