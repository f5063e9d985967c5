"""What all routes share: media types, bodies, sequence numbers, and what they depend on."""
