"""Whether the server lives and takes work, and where its pages are."""
