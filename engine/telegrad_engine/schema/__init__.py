"""What an op is: its parameters and signature, its declaration, what its derivative saves, and what tests call it with.

Everything that there is to know of an op is derived from one declaration (:mod:`.op`).
"""
