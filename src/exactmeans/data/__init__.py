"""Where rows come from: sources of blocks, and arrays that users pass, checked."""
