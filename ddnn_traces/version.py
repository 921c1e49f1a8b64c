"""The version of the package, as every file it writes states it."""

__version__ = "0.1.0"
