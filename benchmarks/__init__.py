"""exactmeans and its peers in turn: the same data, the same initial centres, results compared."""
