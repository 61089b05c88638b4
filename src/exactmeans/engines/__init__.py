"""Where the work on blocks is done: in this process (local), later elsewhere."""
