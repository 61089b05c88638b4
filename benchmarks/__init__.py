"""Ours and its peers side by side: same data, same start, same answer, alternating."""
