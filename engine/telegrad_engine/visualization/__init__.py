"""Draw the graph as data, as DOT and Mermaid text, and as an SVG picture."""
