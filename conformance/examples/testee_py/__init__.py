"""The parts of testee.py, one page of the specification each."""
