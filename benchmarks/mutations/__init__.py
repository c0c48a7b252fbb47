"""The mutation gate: breaks the synchronisation of the bundled kernels, one instruction at a time, and counts what is
noticed.
"""
