"""The Telegrad server: sessions of dynamic computation graphs over REST."""

from telegrad_engine import __version__ as __version__
