"""The layout of stored objects: elements, order of axes, inner chunks, index."""
