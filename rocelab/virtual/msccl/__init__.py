"""Collectives that are there as files: algorithms of MSCCL, read and made into messages that need each other."""
