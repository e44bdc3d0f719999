"""What the bytes of a stored object mean: elements, order of axes, inner chunks, index."""
