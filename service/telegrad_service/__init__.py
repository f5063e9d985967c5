"""The Telegrad server: sessions of dynamic computation graphs over REST."""

__version__ = "0.1.0"
