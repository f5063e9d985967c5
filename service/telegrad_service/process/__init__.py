"""This process and its machine: cores, memory, and settings that small programs feel most."""
