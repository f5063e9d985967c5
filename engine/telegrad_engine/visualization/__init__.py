"""The graph as data, as DOT and Mermaid text, and as a picture."""
