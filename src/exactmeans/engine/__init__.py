"""What a fit needs of its rows, wherever they are: in this process or on a cluster."""
